/* control.h - the control plane: one authenticated, ordered stream of frames to every peer, and failure
 * detection.
 *
 * Model:   a full mesh. Rank i connects to every j < i and accepts from every j > i. It retries forever, so
 *          nodes start in any order. Each stream begins with the handshake of handshake.h; the hello blobs
 *          and frames follow.
 * Threads: one sleeping thread runs every callback, one at a time. `send` may be called from any thread and
 *          from callbacks. A callback that runs longer than silence_ns makes this node look failed to peers
 *          on other machines. A callback must not close the control plane.
 * Order:   frames of one peer arrive in the order sent. `up` precedes a peer's first frame; `down` follows
 *          the last. This node itself has neither.
 * Rejoin:  a rank that went down comes up again only with a higher incarnation. If its earlier incarnation is
 *          still up, `down` is called for it first. An incarnation that was up before is refused.
 * Failure: end of stream, or a silent machine (heartbeats between machines), is `down` with -EHOSTDOWN. A
 *          peer that left in order is `down` with 0. Malformed data, a wrong credential, another job or
 *          version: the connection is dropped with a logged sentence, and other peers are unaffected. Without
 *          a credential the same holds for a process of another user.
 * Loss:    the user of the control plane may lose another connection to a peer that is up. Then one of the
 *          two nodes ends all its streams, so that all nodes agree on which node has failed (loss.h).
 * Costs:   none while idle on one machine; one small frame every heartbeat_ns between machines.
 */
#pragma once

#include <stdbool.h>

#include "bootstrap/roster/roster.h"

#define REMO__FRAME_BYTES_MAX (60u << 10)
#define REMO__HELLO_BYTES_MAX 2048u
#define REMO__SEND_QUEUE_BYTES_MAX (64u << 20) /* per peer; beyond that send returns -ENOBUFS */

struct remo__control;

struct remo__control_config {
    const struct remo__roster *roster;
    const void *hello; /* this node's blob, passed to each peer's `up` */
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
    /* This node counts as failed and is about to end the streams of all peers; `down` of each follows. NULL:
     * not called. */
    void (*ended)(void *ctx);
    void (*woken)(void *ctx); /* after remo__control_wake; NULL: not called */
    /* `peer` holds another key than this node, or only one of them holds a key: they cannot connect.
     * Called at both ends, perhaps several times, and only before the first `up` of this peer. `why` is a
     * sentence. A connection that is not plausibly the peer's causes no call: one from another user of this
     * machine, or from a machine that the roster does not list for this rank. NULL: not called. */
    void (*denied)(void *ctx, uint32_t peer, const char *why);
};

/* Bind, start the thread, start to connect; do not wait for peers. *ret_control is set before the first
 * callback runs, and NULL on failure. Errors: -EADDRINUSE (the sentence names the address), -EACCES, -EINVAL,
 * -ENOMEM. */
int remo__control_open(const struct remo__control_config *config, struct remo__control **ret_control);
/* Announce to all peers that this node leaves, flush queued frames (at most 1 s), stop the thread, close.
 * Frames that arrive meanwhile are discarded; no callback runs afterwards. Accepts NULL. No other thread may
 * be sending. */
void remo__control_close(struct remo__control *control);
/* Queue one frame; never blocks. `fd` (or -1) is duplicated; only Unix sockets carry it, TCP drops it. The
 * thread also delivers frames to this node itself. Errors: -EHOSTDOWN, -ENOTCONN (not up yet), -EMSGSIZE,
 * -ENOBUFS. */
int remo__control_send(struct remo__control *control, uint32_t peer, uint16_t type, const void *data,
                       size_t bytes, int fd);
/* Make the thread call `woken` soon. Threads: any. */
void remo__control_wake(struct remo__control *control);
/* The data plane has lost its connection to `peer`. If the stream of the peer does not end within
 * 2 * silence_ns, one of the two nodes ends all its streams. Without effect if the loss is open already. Only
 * from `woken`. */
void remo__control_lose(struct remo__control *control, uint32_t peer);
/* The reason why `peer` is not connected, for error sentences: a refusal, else the last failure; "" if none
 * is known. */
enum remo__why { REMO__WHY_AWAY, REMO__WHY_REFUSED };
enum remo__why remo__control_why(struct remo__control *control, uint32_t peer, char *ret_text, size_t cap);
