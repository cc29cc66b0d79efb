/* test_stranger.c - access to a job. Without a key, a process of another user cannot join, by any kind of
 * socket. With a wrong key, both sides are notified at once. A stranger never prevents the job's own nodes
 * from joining. Without arguments, the control plane is tested; --fabric F tests whole nodes. Needs root, to
 * become another user. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <remo/remo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/ports.h"
#include "bootstrap/address.h"
#include "bootstrap/control/handshake.h"
#include "bootstrap/key.h"
#include "bootstrap/control/user.h"
#include "plane.h"

#define STRANGER_USER 65534u
#define WAIT_MS 100000

static struct plane planes[3];

/* ---- helpers ------------------------------------------------------------------------------------------- */

/* Fill the addresses of `size` ranks at `host`. */
static void addresses_fill(const char *host, uint32_t size, char text[][64], const char **list) {
    for (uint32_t i = 0; i < size; i++) {
        uint16_t port = port_reserve();
        CHECK(port != 0);
        snprintf(text[i], sizeof text[i], "tcp:%s:%u", host, port);
        list[i] = text[i];
    }
}

static void become_stranger(void) {
    CHECK(setgid(STRANGER_USER) == 0 && setuid(STRANGER_USER) == 0);
}

static pid_t start(void (*run)(void *ctx), void *ctx) {
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        run(ctx);
        _exit(0);
    }
    return pid;
}

static void end_well(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int connect_to(const char *address) {
    struct remo__place places[REMO__PLACES_MAX];
    uint32_t count = 0;
    CHECK(remo__address_resolve(address, places, &count) == 0 && count > 0);
    int fd = socket(places[0].name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&places[0].name, places[0].name_bytes) == 0);
    return fd;
}

/* ---- the user at the other end ------------------------------------------------------------------------- */

static void check_owner(const char *host) {
    char text[1][64];
    const char *list[1];
    struct remo__place places[REMO__PLACES_MAX];
    uint32_t count = 0;
    int listener = -1;
    addresses_fill(host, 1, text, list);
    CHECK(remo__address_resolve(list[0], places, &count) == 0);
    CHECK(remo__place_listen(&places[0], false, &listener) == 0);
    int caller = connect_to(list[0]);
    CHECK(remo__peer_check_user(caller) == -ENOTCONN); /* not accepted yet: it has no owner */
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    CHECK(poll(&ready, 1, WAIT_MS) == 1);
    int accepted = accept(listener, NULL, NULL);
    CHECK(accepted >= 0);
    CHECK(remo__peer_check_user(caller) == 0 && remo__peer_check_user(accepted) == 0);
    CHECK(seteuid(STRANGER_USER) == 0);
    CHECK(remo__peer_check_user(caller) == -EPERM && remo__peer_check_user(accepted) == -EPERM);
    CHECK(seteuid(0) == 0);
    close(caller);
    CHECK(remo__peer_check_user(accepted) == -ENOTCONN); /* the connection remains, without an owner */
    close(accepted);
    close(listener);
    CHECK(remo__peer_check_user(-1) == -ENOTCONN);
}

static void owners_of_connections(void) {
    check_owner("127.0.0.1");
    check_owner("[::1]");
}

/* ---- a stranger that connects -------------------------------------------------------------------------- */

struct call {
    const char *const *addresses;
    uint32_t place; /* index in the addresses of rank 0; 0 is the Unix socket, if there is one */
    int expected;   /* type of the answer; 0: the connection is closed without one */
};

/* Send a hello as rank 1, without checking the listener's user, and check the type of the answer. */
static void call_as_stranger(void *ctx) {
    const struct call *call = ctx;
    struct remo__bootstrap_config config = {.rank = 1, .size = 2, .addresses = call->addresses};
    struct remo__roster *roster;
    struct remo__handshake handshake;
    struct remo__seal seal = {0};
    struct remo__frame frame;
    uint8_t wire[1024];
    become_stranger();
    CHECK(remo__roster_open(&config, &roster) == 0);
    remo__handshake_begin(&handshake, roster, true);
    remo__handshake_hello_write(&handshake, 0);
    remo__frame_encode(&seal, REMO__FRAME_HELLO, REMO__FRAME_INTERNAL, handshake.ours,
                       (uint32_t)handshake.ours_bytes, wire);
    int fd = connect_to(call->place == 0 ? roster->addresses[0] : call->addresses[0]);
    ssize_t bytes = (ssize_t)remo__frame_wire_bytes(&seal, handshake.ours_bytes);
    (void)!send(fd, wire, (size_t)bytes, MSG_NOSIGNAL);
    bytes = recv(fd, wire, sizeof wire, 0);
    int type = 0;
    if (bytes > 0 && remo__frame_decode(&seal, wire, (size_t)bytes, sizeof wire, &frame) > 0)
        type = frame.type;
    CHECK(type == call->expected);
}

static void calls(const char *host, bool network) {
    char text[2][64];
    const char *list[2];
    addresses_fill(host, 2, text, list);
    struct plane_options options = {.addresses = list, .network = network};
    struct call call = {
        .addresses = list, .place = network ? 1 : 0, .expected = network ? REMO__FRAME_REFUSE : 0};
    CHECK(plane_open(&planes[0], 0, 2, &options) == 0);
    end_well(start(call_as_stranger, &call));
    if (network)
        CHECK(plane_wait_why(&planes[0], 1, "belong to different users"));
    CHECK(planes[0].peers[1].ups == 0);
    CHECK(plane_open(&planes[1], 1, 2, &options) == 0);
    CHECK(plane_wait_up(&planes[0], 1) && plane_wait_up(&planes[1], 1));
    plane_close(&planes[1]);
    plane_close(&planes[0]);
}

static void callers(void) {
    calls("127.0.0.1", true);
    calls("[::1]", true);
    calls("127.0.0.1", false);
}

/* ---- a stranger that listens --------------------------------------------------------------------------- */

static void listen_as_stranger(void *ctx) {
    struct plane_options options = {.addresses = ctx, .network = true};
    become_stranger();
    CHECK(plane_open(&planes[0], 0, 2, &options) == 0);
    for (;;)
        pause();
}

static void listener(void) {
    char text[2][64];
    const char *list[2];
    addresses_fill("127.0.0.1", 2, text, list);
    struct plane_options options = {.addresses = list, .network = true};
    pid_t pid = start(listen_as_stranger, list);
    CHECK(plane_open(&planes[1], 1, 2, &options) == 0);
    CHECK(plane_wait_why(&planes[1], 0, "belong to different users"));
    CHECK(planes[1].peers[0].ups == 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(plane_open(&planes[0], 0, 2, &options) == 0);
    CHECK(plane_wait_up(&planes[0], 1) && plane_wait_up(&planes[1], 1));
    plane_close(&planes[1]);
    plane_close(&planes[0]);
}

/* ---- wrong keys ---------------------------------------------------------------------------------------- */

static void wrong_key(struct plane_options *good, struct plane_options *bad) {
    CHECK(plane_open(&planes[0], 0, 2, good) == 0 && plane_open(&planes[1], 1, 2, bad) == 0);
    CHECK(plane_wait_denied(&planes[0], 1) && plane_wait_denied(&planes[1], 0));
    plane_close(&planes[1]);
    CHECK(plane_open(&planes[1], 1, 2, good) == 0);
    CHECK(plane_wait_up(&planes[0], 1) && plane_wait_up(&planes[1], 1));
    CHECK(!planes[0].peers[1].disorder && !planes[1].peers[0].disorder);
    plane_close(&planes[1]);
    plane_close(&planes[0]);
}

static void wrong_keys(void) {
    char text[2][64];
    const char *list[2];
    addresses_fill("127.0.0.1", 2, text, list);
    struct plane_options good = {.addresses = list, .key_file = plane_key(1)},
                         bad = {.addresses = list, .key_file = plane_key(2)}, none = {.addresses = list};
    wrong_key(&good, &bad);
    wrong_key(&good, &none);
    wrong_key(&none, &good);
    good.network = bad.network = none.network = true;
    wrong_key(&good, &bad);
    wrong_key(&good, &none);
}

/* The job has a key, and the stranger has none: it is refused, and no rank is denied. */
static void keyless_stranger(void) {
    char text[2][64];
    const char *list[2];
    addresses_fill("127.0.0.1", 2, text, list);
    struct plane_options options = {.addresses = list, .network = true, .key_file = plane_key(1)};
    struct call call = {.addresses = list, .place = 1, .expected = REMO__FRAME_REFUSE};
    CHECK(plane_open(&planes[0], 0, 2, &options) == 0);
    end_well(start(call_as_stranger, &call));
    CHECK(plane_open(&planes[1], 1, 2, &options) == 0);
    CHECK(plane_wait_up(&planes[0], 1) && plane_wait_up(&planes[1], 1));
    CHECK(planes[0].peers[1].denials == 0);
    plane_close(&planes[1]);
    plane_close(&planes[0]);
}

/* ---- whole nodes --------------------------------------------------------------------------------------- */

struct open {
    uint32_t rank;
    const char *fabric;
    const char *addresses[2];
    int report; /* 'R': rank 0 refused a process of another user; 'J': the stranger joined */
};

static void on_log(void *ctx, int level, const char *message) {
    const struct open *open = ctx;
    (void)level;
    if (strstr(message, "belong to different users"))
        CHECK(write(open->report, "R", 1) == 1);
}

static int open_node(struct open *open, struct remo_node **ret_node) {
    struct remo_config config = {.fabric = open->fabric,
                                 .rank = open->rank,
                                 .size = 2,
                                 .addresses = open->addresses,
                                 .arena_bytes = UINT64_C(1) << 30,
                                 .join_timeout_ns = 100 * REMO__NS_PER_S,
                                 .log = open->rank == 0 ? on_log : NULL,
                                 .log_level = REMO_LOG_DEBUG,
                                 .log_ctx = open};
    return remo_node_open(&config, ret_node);
}

static void join_as_stranger(void *ctx) {
    struct open *open = ctx;
    struct remo_node *node = NULL;
    become_stranger();
    if (open_node(open, &node) == 0)
        CHECK(write(open->report, "J", 1) == 1);
    remo_node_close(node);
}

static void join(void *ctx) {
    struct remo_node *node = NULL;
    CHECK(open_node(ctx, &node) == 0);
    remo_node_close(node);
}

static void nodes(const char *fabric) {
    char text[3][64], report = 0;
    const char *list[3];
    int ends[2];
    addresses_fill("127.0.0.1", 3, text, list);
    CHECK(pipe(ends) == 0);
    struct open ours[2] = {{0, fabric, {list[0], list[1]}, ends[1]},
                           {1, fabric, {list[0], list[1]}, ends[1]}};
    struct open stranger_options = {1, fabric, {list[0], list[2]}, ends[1]}; /* at another port */
    pid_t pids[2], stranger = start(join_as_stranger, &stranger_options);
    pids[0] = start(join, &ours[0]);
    struct pollfd report_ready = {.fd = ends[0], .events = POLLIN};
    CHECK(poll(&report_ready, 1, WAIT_MS) == 1 && read(ends[0], &report, 1) == 1);
    CHECK(report == 'R');
    pids[1] = start(join, &ours[1]);
    for (uint32_t i = 0; i < 2; i++)
        end_well(pids[i]);
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    while (poll(&report_ready, 1, 0) == 1 && read(ends[0], &report, 1) == 1)
        CHECK(report == 'R');
}

int main(int argc, char **argv) {
    if (geteuid() != 0) {
        printf("skipped: only root can become another user\n");
        return 77;
    }
    if (remo__munge_present()) {
        printf("skipped: a munge daemon runs here, so no job is without a credential\n");
        return 77;
    }
    if (argc == 3 && strcmp(argv[1], "--fabric") == 0) {
        nodes(argv[2]);
        return 0;
    }
    plane_folder();
    owners_of_connections();
    callers();
    listener();
    wrong_keys();
    keyless_stranger();
    plane_folder_remove();
    return 0;
}
