/* plane.c - implements plane.h: a control plane whose callbacks count what arrives, and check its order and
 * contents. */
#include "plane.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define WAIT_NS (100 * REMO__NS_PER_S)

static char folder[64];

_Noreturn void check_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s\n   last error: %s\n", file, line, what, remo_last_error());
    _exit(1);
}

const char *plane_folder(void) {
    if (folder[0] == '\0') {
        snprintf(folder, sizeof folder, "/tmp/remo-test-XXXXXX");
        CHECK(mkdtemp(folder));
    }
    return folder;
}

void plane_folder_remove(void) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(folder);
    folder[0] = '\0';
}

const char *plane_key(uint8_t fill) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    uint8_t key[REMO__KEY_BYTES];
    memset(key, fill, sizeof key);
    snprintf(path, sizeof paths[0], "%s/key-%u", plane_folder(), fill);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, key, sizeof key) == sizeof key);
    close(fd);
    return path;
}

/* ---- the recorder -------------------------------------------------------------------------------------- */

static uint8_t pattern(uint64_t number, size_t at) {
    return (uint8_t)(number * 31 + at * 7 + (at >> 8));
}

static void on_up(void *ctx, uint32_t peer, uint32_t incarnation, bool same_machine, const void *hello,
                  size_t hello_bytes) {
    struct plane *plane = ctx;
    struct plane_peer *record = &plane->peers[peer];
    pthread_mutex_lock(&plane->lock);
    record->disorder |= record->ups != record->downs;
    record->ups++;
    record->frames = 0;
    record->incarnation = incarnation;
    record->same_machine = same_machine;
    if (hello_bytes < sizeof record->hello)
        memcpy(record->hello, hello, hello_bytes);
    pthread_cond_broadcast(&plane->changed);
    pthread_mutex_unlock(&plane->lock);
}

static bool frame_is_right(const struct plane_peer *record, uint16_t type, const uint8_t *data,
                           size_t bytes) {
    uint64_t number;
    if (bytes < sizeof number)
        return false;
    memcpy(&number, data, sizeof number);
    for (size_t i = sizeof number; i<bytes; i += bytes> 4096 ? 61 : 1) {
        if (data[i] != pattern(number, i))
            return false;
    }
    return number == record->frames && type == (uint16_t)(number * 5);
}

static void on_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes, int fd) {
    struct plane *plane = ctx;
    struct plane_peer *record = &plane->peers[peer];
    while (atomic_load(&plane->hold))
        usleep(1000);
    pthread_mutex_lock(&plane->lock);
    bool self = peer == plane->roster->rank;
    record->disorder |=
        !frame_is_right(record, type, data, bytes) || (!self && record->ups != record->downs + 1);
    if (fd >= 0) {
        uint64_t inside = 0;
        record->disorder |= pread(fd, &inside, sizeof inside, 0) != sizeof inside || inside != record->frames;
        close(fd);
        record->fds++;
    }
    record->frames++;
    record->bytes += bytes;
    pthread_cond_broadcast(&plane->changed);
    pthread_mutex_unlock(&plane->lock);
}

static void on_down(void *ctx, uint32_t peer, int reason) {
    struct plane *plane = ctx;
    struct plane_peer *record = &plane->peers[peer];
    pthread_mutex_lock(&plane->lock);
    record->downs++;
    record->disorder |= record->ups != record->downs;
    record->reason = reason;
    record->down_at = remo__now_ns();
    pthread_cond_broadcast(&plane->changed);
    pthread_mutex_unlock(&plane->lock);
}

static void on_denied(void *ctx, uint32_t peer, const char *why) {
    struct plane *plane = ctx;
    pthread_mutex_lock(&plane->lock);
    plane->peers[peer].denials++;
    plane->peers[peer].disorder |= plane->peers[peer].ups > 0 || why[0] == '\0';
    pthread_cond_broadcast(&plane->changed);
    pthread_mutex_unlock(&plane->lock);
}

static void on_log(void *ctx, int level, const char *message) {
    (void)level;
    fprintf(stderr, "   [%u] %s\n", ((struct plane *)ctx)->roster->rank, message);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static void on_ended(void *ctx) {
    struct plane *plane = ctx;
    atomic_fetch_add(&plane->ends, 1);
}

static void on_woken(void *ctx) {
    struct plane *plane = ctx;
    uint64_t lost = atomic_load(&plane->lost);
    for (uint32_t peer = 0; peer < plane->roster->size && peer < 64; peer++)
        if (lost >> peer & 1)
            remo__control_lose(plane->control, peer);
}

int plane_open(struct plane *plane, uint32_t rank, uint32_t size, const struct plane_options *options) {
    static char unix_text[REMO__NODES_MAX][96];
    const char *addresses[REMO__NODES_MAX];
    struct plane_options none = {0};
    options = options ? options : &none;
    for (uint32_t i = 0; i < size; i++) {
        snprintf(unix_text[i], sizeof unix_text[i], "unix:%s/%u.sock", plane_folder(), i);
        addresses[i] = options->addresses ? options->addresses[i] : unix_text[i];
    }
    *plane = (struct plane){0};
    pthread_mutex_init(&plane->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&plane->changed, &attr);
    if (getenv("REMO_TEST_LOG"))
        plane->log = (struct remo__log){.fn = on_log, .ctx = plane, .level = atoi(getenv("REMO_TEST_LOG"))};
    struct remo__bootstrap_config bootstrap = {.rank = rank,
                                               .size = size,
                                               .job = options->job,
                                               .addresses = addresses,
                                               .key_file = options->key_file};
    int rc = remo__roster_open(&bootstrap, &plane->roster);
    if (rc != 0)
        return rc;
    plane->roster->incarnation = options->incarnation;
    for (uint32_t i = 0; i < size && options->network; i++) {
        char *address = plane->roster->addresses[i], *tcp = strstr(address, "tcp:");
        memmove(address, tcp, strlen(tcp) + 1);
    }
    char hello[64];
    snprintf(hello, sizeof hello, "hello of %u", rank);
    struct remo__control_config config = {.roster = plane->roster,
                                          .hello = hello,
                                          .hello_bytes = strlen(hello),
                                          .silence_ns = options->silence_ns,
                                          .log = plane->log,
                                          .ctx = plane,
                                          .up = on_up,
                                          .frame = on_frame,
                                          .down = on_down,
                                          .ended = on_ended,
                                          .woken = on_woken,
                                          .denied = on_denied};
    rc = remo__control_open(&config, &plane->control);
    if (rc != 0) {
        remo__roster_close(plane->roster);
        plane->roster = NULL;
    }
    return rc;
}

void plane_lose(struct plane *plane, uint64_t peers) {
    atomic_store(&plane->lost, peers);
    remo__control_wake(plane->control);
}

void plane_close(struct plane *plane) {
    remo__control_close(plane->control);
    remo__roster_close(plane->roster);
    pthread_cond_destroy(&plane->changed);
    pthread_mutex_destroy(&plane->lock);
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

static bool wait_for(struct plane *plane, bool (*done)(struct plane *plane, uint32_t peer, uint64_t number),
                     uint32_t peer, uint64_t number) {
    uint64_t deadline = remo__deadline(WAIT_NS);
    struct timespec until = {.tv_sec = (time_t)(deadline / REMO__NS_PER_S),
                             .tv_nsec = (long)(deadline % REMO__NS_PER_S)};
    bool result;
    pthread_mutex_lock(&plane->lock);
    while (!(result = done(plane, peer, number))
           && pthread_cond_timedwait(&plane->changed, &plane->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&plane->lock);
    return result;
}

static bool are_up(struct plane *plane, uint32_t peer, uint64_t number) {
    uint64_t count = 0;
    (void)peer;
    for (uint32_t i = 0; i < plane->roster->size; i++)
        count += plane->peers[i].ups > plane->peers[i].downs;
    return count >= number;
}

static bool is_down(struct plane *plane, uint32_t peer, uint64_t number) {
    return plane->peers[peer].downs >= (int)number;
}

static bool has_frames(struct plane *plane, uint32_t peer, uint64_t number) {
    return plane->peers[peer].frames >= number;
}

bool plane_wait_up(struct plane *plane, uint32_t count) {
    return wait_for(plane, are_up, 0, count);
}

bool plane_wait_down(struct plane *plane, uint32_t peer, int downs) {
    return wait_for(plane, is_down, peer, (uint64_t)downs);
}

bool plane_wait_frames(struct plane *plane, uint32_t peer, uint64_t frames) {
    return wait_for(plane, has_frames, peer, frames);
}

static bool is_denied(struct plane *plane, uint32_t peer, uint64_t number) {
    (void)number;
    return plane->peers[peer].denials > 0;
}

bool plane_wait_denied(struct plane *plane, uint32_t peer) {
    return wait_for(plane, is_denied, peer, 0);
}

bool plane_wait_why(struct plane *plane, uint32_t peer, const char *text) {
    char why[512];
    uint64_t deadline = remo__deadline(WAIT_NS);
    while (remo__now_ns() < deadline) {
        remo__control_why(plane->control, peer, why, sizeof why);
        if (strstr(why, text))
            return true;
        usleep(10 * 1000);
    }
    fprintf(stderr, "   why is: %s\n", why);
    return false;
}

int plane_send(struct plane *plane, uint32_t peer, uint64_t number, size_t bytes, int fd) {
    uint8_t data[REMO__FRAME_BYTES_MAX];
    CHECK(bytes >= sizeof number && bytes <= sizeof data);
    memcpy(data, &number, sizeof number);
    for (size_t i = sizeof number; i < bytes; i++)
        data[i] = pattern(number, i);
    return remo__control_send(plane->control, peer, (uint16_t)(number * 5), data, bytes, fd);
}
