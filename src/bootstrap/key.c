/* key.c - implements key.h: key files, and munge credentials.
 *
 * A key file counts only if no other user can read or write it. Buffers that held a secret are erased. */
#include "bootstrap/key.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "bootstrap/munge_library.h"

#define HEX_BYTES (2u * REMO__KEY_BYTES)
#define FILE_BYTES_MAX (HEX_BYTES + 2u) /* a line end may follow */

/* ---- key file ------------------------------------------------------------------------------------------ */

int remo__key_parse(const void *data, size_t bytes, uint8_t ret_key[REMO__KEY_BYTES]) {
    const char *text = data;
    uint8_t key[REMO__KEY_BYTES];
    if (bytes == REMO__KEY_BYTES) {
        memcpy(key, data, sizeof key);
    } else {
        while (bytes > HEX_BYTES && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
            bytes--;
        size_t got = 0;
        if (bytes != HEX_BYTES || sodium_hex2bin(key, sizeof key, text, bytes, NULL, &got, NULL) != 0
            || got != sizeof key)
            return -EINVAL;
    }
    /* A file of zeros is a mistake, never a secret. */
    if (sodium_is_zero(key, sizeof key))
        return -EINVAL;
    memcpy(ret_key, key, sizeof key);
    sodium_memzero(key, sizeof key);
    return 0;
}

static int key_check_owner(int fd, const char *path) {
    struct stat file;
    if (fstat(fd, &file) != 0)
        return remo__fail(-errno, "cannot stat the key file %s: %s", path, strerror(errno));
    if (!S_ISREG(file.st_mode))
        return remo__fail(-EINVAL, "the key file %s is not a regular file", path);
    if (file.st_uid != geteuid())
        return remo__fail(
            -EACCES,
            "the key file %s belongs to user %u, but this process runs as user %u; make your own copy", path,
            file.st_uid, geteuid());
    if (file.st_mode & (S_IRWXG | S_IRWXO))
        return remo__fail(-EACCES, "the key file %s can be used by others (mode %04o); run: chmod 600 %s",
                          path, file.st_mode & 07777, path);
    return 0;
}

int remo__key_read(const char *path, uint8_t ret_key[REMO__KEY_BYTES]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return remo__fail(-errno, "cannot read the key file %s: %s", path, strerror(errno));
    char data[FILE_BYTES_MAX + 1];
    int rc = key_check_owner(fd, path);
    if (rc == 0) {
        ssize_t bytes = read(fd, data, sizeof data);
        if (bytes < 0)
            rc = remo__fail(-errno, "cannot read the key file %s: %s", path, strerror(errno));
        else if (remo__key_parse(data, (size_t)bytes, ret_key) != 0)
            rc = remo__fail(-EINVAL,
                            "the key file %s must hold %u random bytes or %u hexadecimal digits; run: "
                            "(umask 077; head -c %u /dev/urandom > %s)",
                            path, REMO__KEY_BYTES, HEX_BYTES, REMO__KEY_BYTES, path);
        sodium_memzero(data, sizeof data);
    }
    close(fd);
    return rc;
}

void remo__key_format(const uint8_t key[REMO__KEY_BYTES], char ret_hex[2 * REMO__KEY_BYTES + 1]) {
    sodium_bin2hex(ret_hex, HEX_BYTES + 1, key, REMO__KEY_BYTES);
}

/* ---- munge --------------------------------------------------------------------------------------------- */

/* The socket path of the daemon, as configured in this build of libmunge. */
static int munge_socket(const struct remo__munge *munge, struct sockaddr_un *ret_name) {
    munge_ctx_t ctx = munge->munge_ctx_create();
    char *path = NULL;
    if (!ctx)
        return -ENOMEM;
    int rc = munge->munge_ctx_get(ctx, MUNGE_OPT_SOCKET, &path) == EMUNGE_SUCCESS && path ? 0 : -ENOENT;
    if (rc == 0 && strlen(path) >= sizeof ret_name->sun_path)
        rc = -ENAMETOOLONG;
    if (rc == 0)
        memcpy(ret_name->sun_path, path, strlen(path) + 1);
    munge->munge_ctx_destroy(ctx);
    return rc;
}

bool remo__munge_present(void) {
    const struct remo__munge *munge;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (remo__munge_library_load(&munge) != 0 || munge_socket(munge, &name) != 0)
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    /* The socket file alone proves nothing: it remains after the daemon was killed. */
    bool present = connect(fd, (struct sockaddr *)&name, sizeof name) == 0 || errno == EAGAIN;
    close(fd);
    return present;
}

int remo__munge_seal(const void *data, size_t bytes, char **ret_text) {
    const struct remo__munge *munge;
    int rc = remo__munge_library_load(&munge);
    if (rc != 0)
        return rc;
    munge_ctx_t ctx = munge->munge_ctx_create();
    if (!ctx)
        return remo__fail(-ENOMEM, "no memory for a munge credential");
    char *text = NULL;
    munge_err_t err = munge->munge_ctx_set(ctx, MUNGE_OPT_UID_RESTRICTION, geteuid());
    if (err == EMUNGE_SUCCESS)
        err = munge->munge_encode(&text, ctx, data, (int)bytes);
    munge->munge_ctx_destroy(ctx);
    if (err != EMUNGE_SUCCESS) {
        free(text);
        return remo__fail(-EACCES,
                          "cannot create a munge credential: %s; check the daemon with: munge -n | unmunge",
                          munge->munge_strerror(err));
    }
    *ret_text = text;
    return 0;
}

/* Return whether the daemon may verify a later credential of the same peer. */
static bool is_transient(munge_err_t err) {
    return err == EMUNGE_SNAFU || err == EMUNGE_NO_MEMORY || err == EMUNGE_SOCKET || err == EMUNGE_TIMEOUT
           || err == EMUNGE_CRED_EXPIRED || err == EMUNGE_CRED_REWOUND || err == EMUNGE_CRED_REPLAYED;
}

int remo__munge_open(const char *text, void *ret_data, size_t bytes) {
    const struct remo__munge *munge;
    int rc = remo__munge_library_load(&munge);
    if (rc != 0)
        return rc;
    munge_ctx_t ctx = munge->munge_ctx_create();
    if (!ctx)
        return remo__fail(-ENOMEM, "no memory for a munge credential");
    void *data = NULL;
    int length = 0;
    uid_t user = (uid_t)-1;
    munge_err_t err = munge->munge_decode(text, ctx, &data, &length, &user, NULL);
    munge->munge_ctx_destroy(ctx);
    if (err != EMUNGE_SUCCESS)
        rc = remo__fail(is_transient(err) ? -EAGAIN : -EACCES, "munge rejected the peer's credential: %s",
                        munge->munge_strerror(err));
    else if (user != geteuid())
        rc = remo__fail(-EACCES, "the peer runs as user %u, this node as user %u", user, geteuid());
    else if (length < 0 || (size_t)length != bytes)
        rc =
            remo__fail(-EACCES, "the peer's munge credential carries %d bytes instead of %zu", length, bytes);
    else
        memcpy(ret_data, data, bytes);
    if (data && length > 0)
        sodium_memzero(data, (size_t)length);
    free(data);
    return rc;
}
