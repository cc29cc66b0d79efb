/* control.h - the control plane: one authenticated, ordered stream of frames to every peer, and news of
 * their death.
 *
 * Model:   a full mesh. Rank i connects to every j < i (retrying until the deadline, so nodes start in any
 *          order) and accepts from every j > i. Each stream: HELLO both ways (version, job, rank, size,
 *          incarnation, nonce), mutual HMAC-SHA256 challenge and answer over the transcript (or munge
 *          credentials that carry it), and only then the hello blob and frames.
 * Threads: one sleeping thread runs every callback, one at a time. `send` may be called from any thread and
 *          from callbacks. A callback that runs for longer than silence_ns makes us look dead beyond a
 *          network; none may close the control plane.
 * Order:   frames of one peer arrive in the order sent. `up` comes before a peer's first frame, `down` after
 *          the last one. There is neither for ourselves.
 * Return:  a rank that went down comes up again only with a higher incarnation. If its earlier life still
 *          looks alive then, that is declared down first; an incarnation seen before is turned away.
 * Failure: end of stream or a silent machine (heartbeats between machines) is `down` with -EHOSTDOWN; a peer
 *          that said goodbye is `down` with 0. Garbage, a wrong credential, another job or version: that
 *          connection is dropped with a logged sentence, and nobody else notices.
 * Costs:   idle costs nothing on one machine; between machines one small frame every heartbeat_ns.
 */
#pragma once

#include <stdbool.h>

#include "bootstrap/bootstrap.h"

#define REMO__FRAME_BYTES_MAX (60u << 10)
#define REMO__HELLO_BYTES_MAX 2048u
#define REMO__SEND_QUEUE_BYTES_MAX (64u << 20) /* per peer; beyond that send returns -ENOBUFS */

struct remo__control;

struct remo__control_config {
    const struct remo__roster *roster;
    const void *hello; /* our blob, given to each peer's `up` */
    size_t hello_bytes;
    uint64_t heartbeat_ns; /* 0 = 20 ms; between machines only */
    uint64_t silence_ns;   /* 0 = 500 ms: a peer silent for longer is down */
    struct remo__log log;
    void *ctx; /* for the callbacks */
    void (*up)(void *ctx, uint32_t peer, uint32_t incarnation, bool same_machine, const void *hello,
               size_t hello_bytes);
    /* `fd` is -1 or a descriptor that the callee owns. */
    void (*frame)(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes, int fd);
    void (*down)(void *ctx, uint32_t peer, int reason);
};

/* Bind, start the thread, begin to connect; returns without waiting for peers. *ret_control is set before the
 * first callback runs, and NULL on failure. Errors: -EADDRINUSE (the sentence names the address), -EACCES,
 * -EINVAL, -ENOMEM. */
int remo__control_open(const struct remo__control_config *config, struct remo__control **ret_control);
/* Say goodbye to all, flush what is queued (at most 1 s), stop the thread, close. No callback runs
 * afterwards, and none for what arrives meanwhile. NULL is fine; no other thread may be sending. */
void remo__control_close(struct remo__control *control);
/* Queue one frame; never blocks. `fd` (or -1) is duplicated; it travels over Unix sockets only and is dropped
 * elsewhere. To self: delivered through the thread like any other, at any time. Errors: -EHOSTDOWN, -ENOTCONN
 * (not up yet), -EMSGSIZE, -ENOBUFS. */
int remo__control_send(struct remo__control *control, uint32_t peer, uint16_t type, const void *data,
                       size_t bytes, int fd);
/* Why `peer` is not there, for the error that names it ("" when nothing is known): that one refused the
 * other, else the last thing that went wrong. */
enum remo__why { REMO__WHY_AWAY, REMO__WHY_REFUSED };
enum remo__why remo__control_why(struct remo__control *control, uint32_t peer, char *ret_text, size_t cap);
