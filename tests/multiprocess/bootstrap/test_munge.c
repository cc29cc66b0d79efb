/* test_munge.c - nodes that authenticate with munge. A libmunge of this test simulates daemons with the same
 * key, with different keys, or without an answer. A wrong credential is reported at once. After an error of
 * the daemon the nodes retry. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../support/ports.h"
#include "bootstrap/key.h"
#include "bootstrap/munge_library.h"
#include "plane.h"

static struct plane planes[2];

/* ---- libmunge ---- */

static char socket_path[sizeof((struct sockaddr_un *)0)->sun_path];
static _Atomic munge_err_t decode_error;
static atomic_uint decodes;

static munge_ctx_t ctx_create(void) {
    return (munge_ctx_t)&socket_path;
}

static void ctx_destroy(munge_ctx_t ctx) {
    (void)ctx;
}

static munge_err_t ctx_get(munge_ctx_t ctx, int option, ...) {
    va_list values;
    CHECK(option == MUNGE_OPT_SOCKET);
    va_start(values, option);
    *va_arg(values, char **) = (char *)ctx;
    va_end(values);
    return EMUNGE_SUCCESS;
}

static munge_err_t ctx_set(munge_ctx_t ctx, int option, ...) {
    (void)ctx;
    CHECK(option == MUNGE_OPT_UID_RESTRICTION);
    return EMUNGE_SUCCESS;
}

/* The credential is the data in hexadecimal digits. */
static munge_err_t encode(char **ret_text, munge_ctx_t ctx, const void *data, int bytes) {
    const unsigned char *byte = data;
    (void)ctx;
    *ret_text = malloc(2 * (size_t)bytes + 1);
    CHECK(*ret_text);
    for (int i = 0; i < bytes; i++)
        snprintf(*ret_text + 2 * i, 3, "%02x", byte[i]);
    return EMUNGE_SUCCESS;
}

static munge_err_t decode(const char *text, munge_ctx_t ctx, void **ret_data, int *ret_bytes, uid_t *ret_uid,
                          gid_t *ret_gid) {
    size_t bytes = strlen(text) / 2;
    unsigned char *data = malloc(bytes);
    (void)ctx, (void)ret_gid;
    CHECK(data);
    for (size_t i = 0; i < bytes; i++)
        CHECK(sscanf(text + 2 * i, "%2hhx", &data[i]) == 1);
    *ret_data = data;
    *ret_bytes = (int)bytes;
    *ret_uid = geteuid();
    atomic_fetch_add(&decodes, 1);
    return atomic_load(&decode_error);
}

static const char *error_text(munge_err_t error) {
    return error == EMUNGE_CRED_INVALID ? "Invalid credential" : "Another error";
}

int __wrap_remo__munge_library_load(const struct remo__munge **ret_munge);

int __wrap_remo__munge_library_load(const struct remo__munge **ret_munge) {
    static const struct remo__munge table = {ctx_create, ctx_destroy, ctx_get,   ctx_set,
                                             encode,     decode,      error_text};
    *ret_munge = &table;
    return 0;
}

/* Listen where the daemon of this libmunge is. */
static void daemon_start(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(socket_path, sizeof socket_path, "%s/munge.socket", plane_folder());
    memcpy(name.sun_path, socket_path, sizeof name.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof name) == 0 && listen(fd, 64) == 0);
}

/* ---- cases ---- */

static struct plane_options over_tcp(void) {
    static char text[2][64];
    static const char *list[2];
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(text[i], sizeof text[i], "tcp:127.0.0.1:%u", port_reserve());
        list[i] = text[i];
    }
    return (struct plane_options){.addresses = list, .network = true};
}

static void open_both(const struct plane_options *options) {
    for (uint32_t i = 0; i < 2; i++)
        CHECK(plane_open(&planes[i], i, 2, options) == 0);
    CHECK(planes[0].roster->use_munge && planes[1].roster->use_munge);
}

static void close_both(void) {
    plane_close(&planes[1]);
    plane_close(&planes[0]);
}

static void same_key(void) {
    struct plane_options options = over_tcp();
    open_both(&options);
    CHECK(plane_wait_up(&planes[0], 1) && plane_wait_up(&planes[1], 1));
    close_both();
}

static void wrong_credential(munge_err_t error) {
    struct plane_options options = over_tcp();
    atomic_store(&decode_error, error);
    open_both(&options);
    CHECK(plane_wait_denied(&planes[0], 1) && plane_wait_denied(&planes[1], 0));
    CHECK(plane_wait_why(&planes[1], 0, "the credential is wrong"));
    atomic_store(&decode_error, EMUNGE_SUCCESS);
    close_both();
}

/* The nodes retry, and no rank is denied. */
static void daemon_recovers(munge_err_t error) {
    struct plane_options options = over_tcp();
    unsigned before = atomic_load(&decodes);
    atomic_store(&decode_error, error);
    open_both(&options);
    while (atomic_load(&decodes) < before + 2)
        usleep(1000);
    CHECK(plane_wait_why(&planes[1], 0, "the munge daemon cannot verify the credential"));
    atomic_store(&decode_error, EMUNGE_SUCCESS);
    CHECK(plane_wait_up(&planes[0], 1) && plane_wait_up(&planes[1], 1));
    CHECK(planes[0].peers[1].denials == 0 && planes[1].peers[0].denials == 0);
    close_both();
}

int main(void) {
    daemon_start();
    same_key();
    wrong_credential(EMUNGE_CRED_INVALID);
    wrong_credential(EMUNGE_CRED_UNAUTHORIZED);
    daemon_recovers(EMUNGE_SOCKET);
    daemon_recovers(EMUNGE_CRED_EXPIRED);
    plane_folder_remove();
    return 0;
}
