/* plane.h - a control plane for tests, whose callbacks record what arrives. */
#ifndef REMO_TESTS_PLANE_H
#define REMO_TESTS_PLANE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "bootstrap/control/control.h"

#define CHECK(condition)                                  \
    do {                                                  \
        if (!(condition))                                 \
            check_failed(__FILE__, __LINE__, #condition); \
    } while (0)

_Noreturn void check_failed(const char *file, int line, const char *what);

struct plane_peer {
    int ups, downs, denials;
    int reason; /* of the last down */
    uint32_t incarnation;
    bool same_machine;
    char hello[64];
    uint64_t frames, bytes, fds;
    bool disorder; /* a frame was out of order, damaged, before `up`, or after `down` */
    uint64_t down_at;
};

struct plane {
    struct remo__roster *roster;
    struct remo__control *control;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct plane_peer peers[REMO__NODES_MAX];
    atomic_bool hold;      /* while set, callbacks of frames wait */
    _Atomic uint64_t lost; /* a mask of peers whose data connections are lost */
    atomic_int ends;       /* how many times `ended` was called */
    struct remo__log log;
};

/* Options besides rank, size and the folder of the sockets; NULL: none. */
struct plane_options {
    const char *const *addresses;
    const char *key_file, *job;
    uint32_t incarnation;
    uint64_t silence_ns;
    bool network; /* do not add Unix sockets to TCP addresses */
};

/* Return the folder of this process, created at the first call; plane_folder_remove removes it and its
 * files. */
const char *plane_folder(void);
void plane_folder_remove(void);
/* Write a key file with 32 bytes `fill` in that folder, and return its path. */
const char *plane_key(uint8_t fill);

/* Open a plane. Errors: those of the roster and of the control plane. */
int plane_open(struct plane *plane, uint32_t rank, uint32_t size, const struct plane_options *options);
void plane_close(struct plane *plane);

/* Wait until `count` peers are up, or until `peer` went down `downs` times; false after 100 s. */
bool plane_wait_up(struct plane *plane, uint32_t count);
bool plane_wait_down(struct plane *plane, uint32_t peer, int downs);
bool plane_wait_frames(struct plane *plane, uint32_t peer, uint64_t frames);
bool plane_wait_denied(struct plane *plane, uint32_t peer);
/* Wait until the reason for which `peer` is not connected contains `text`; false after 100 s. */
bool plane_wait_why(struct plane *plane, uint32_t peer, const char *text);

/* Report the data connections to the peers in the mask as lost. */
void plane_lose(struct plane *plane, uint64_t peers);

/* Send the numbered frame that the recorder expects next: {u64 number; bytes computed from the number}. */
int plane_send(struct plane *plane, uint32_t peer, uint64_t number, size_t bytes, int fd);

#endif
