/* node.h - internals of a node: peers, membership, and hooks of the layers above.
 *
 * Of these structs the data path reads only struct remo__fabric_peer: is the peer connected, and where is its
 * memory. */
#pragma once

#include <pthread.h>
#include <remo/node.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/processors.h"
#include "bootstrap/control/control.h"
#include "fabric/mapped.h"

#ifdef REMO_SIM_SMALL
#define REMO__THREADS_MAX \
    8u /* small, because the simulator copies its whole state at the start of each run */
#else
#define REMO__THREADS_MAX 256u
#endif

/* Frame types on the control stream. Types of the node are below 100; those of channels begin at 100. */
enum remo__node_frame {
    REMO__NODE_FRAME_SEGMENT = 1, /* announces a segment of the sender's arena */
    REMO__NODE_FRAME_READY = 2,   /* follows the segments that existed when the peer connected */
    REMO__NODE_FRAME_CHANNELS = 100
};

struct remo__peer {
    _Atomic uint32_t state; /* enum remo_peer_state */
    _Atomic uint32_t incarnation;
    bool shares_processors;        /* it may use only processors that this node may use */
    bool shares_quota;             /* it is in the group of this node's quota */
    _Atomic bool reported;         /* on_peer has returned for its join; remo_node_open waits for this */
    _Atomic bool was_connected;    /* from then on its leave or failure is reported */
    _Atomic uint64_t mapped_bytes; /* its arena is reachable up to this offset; 0: not at all */
};

/* Hooks of the layers above, set before the control thread starts. The service thread calls `immediate`, the
 * control thread all others. */
struct remo__node_hooks {
    void *ctx;
    void (*peer_up)(void *ctx, uint32_t peer);
    void (*peer_down)(void *ctx, uint32_t peer);
    void (*frame)(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes);
    void (*immediate)(void *ctx, uint32_t peer, uint32_t value);
};

struct remo__arena;
struct remo__threads;
struct remo_node {
    uint64_t id; /* unique among all nodes of this process, past and present */
    uint32_t rank, size;
    struct remo__fabric *fabric;
    pthread_mutex_t fabric_lock; /* for connect, add_segment, map_segment and disconnect of the fabric */
    struct remo__processors processors; /* of the thread that opened the node */
    pthread_mutex_t leave_lock;         /* protects is_leaving */
    bool is_leaving;                    /* the control plane may be closed */
    _Atomic bool has_loss;              /* the fabric has lost a connection */
    bool mapped;                        /* fabric->caps.mapped */
    struct remo__peer *peers;           /* [size] */
    struct remo__arena *arena;
    struct remo__log log;
    void (*on_peer)(void *ctx, uint32_t peer, enum remo_peer_state state); /* the program's, or NULL */
    void *on_peer_ctx;
    _Atomic bool reporting; /* on_peer runs, on the control thread */
    uint64_t join_timeout_ns, op_timeout_ns;
    struct remo__doorbell *doorbell;

    uint32_t threads_max;
    struct remo__threads *threads; /* of the data plane (remote/thread.h) */

    struct remo__control *control;
    struct remo__roster *roster;
    struct remo__node_hooks hooks;
    void *channels;       /* registry of the channel layer */
    char join_error[256]; /* why a peer cannot join, for the thread that waits in remo_node_open */
    int join_rc;
    _Atomic bool refused; /* join_error and join_rc are set */
};

/* ---- peers ---- */

/* Return whether the peer has joined, and has neither left nor failed. */
static inline bool remo__peer_is_up(const struct remo_node *node, uint32_t peer) {
    return atomic_load_explicit(&node->peers[peer].state, memory_order_acquire) == REMO_PEER_UP;
}
/* Return -EHOSTDOWN and set the sentence: the peer has left, has failed, or has not joined yet. `what`
 * completes "cannot ... node 3". */
int remo__peer_fail(const struct remo_node *node, uint32_t peer, const char *what);
/* Return -ETIMEDOUT and set the sentence: op_timeout_ns has passed, but the peer has not failed. */
int remo__peer_timeout(const struct remo_node *node, uint32_t peer, const char *what);

/* ---- control ---- */

/* Queue a control frame for `peer`. Errors: those of remo__control_send. */
static inline int remo__node_send(struct remo_node *node, uint32_t peer, uint16_t type, const void *data,
                                  size_t bytes) {
    return remo__control_send(node->control, peer, type, data, bytes, -1);
}

/* Open the parts of a node: roster, fabric and arena. Peers join only after remo__node_start.
 * Errors: those of remo_node_open. */
int remo__node_open(const struct remo_config *config, struct remo_node **ret_node);
/* Start the control thread: peers join, and it calls the hooks. Errors: those of remo_node_open. */
int remo__node_start(struct remo_node *node, const struct remo__node_hooks *hooks);
/* All nodes have joined: fix the size of the arena. */
void remo__node_joined(struct remo_node *node);
/* Leave the job, so that peers do not detect a failure. The control thread calls no hook after the return. */
void remo__node_leave(struct remo_node *node);
/* Free the node, after remo__node_leave. */
void remo__node_free(struct remo_node *node);

/* Wake all waiters of this node, after a change of local memory. Cost: a fence and a load if none sleeps. */
static inline void remo__wake(struct remo_node *node) {
    remo__mapped_fence();
    if (atomic_load_explicit(&node->doorbell->sleepers, memory_order_relaxed) != 0)
        remo__doorbell_notify(node->doorbell);
}
