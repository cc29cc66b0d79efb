/* node.h - internals of a node: peers, attached threads, and hooks of the layer above.
 *
 * The data path reads two structs: struct remo__fabric_peer (is the peer connected, where is its memory) and
 * struct remo__thread (the thread's counters and operations). On the data path no other thread writes either.
 */
#pragma once

#include <pthread.h>
#include <remo/node.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/control.h"
#include "fabric/fabric.h"

#ifdef REMO_SIM_SMALL
#define REMO__THREADS_MAX \
    8u /* small, because the simulator copies its whole state at the start of each run */
#define REMO__COUNTERS_MAX 64u
#else
#define REMO__THREADS_MAX 256u
#define REMO__COUNTERS_MAX 4096u /* sets of counters per thread: one for each open channel */
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
    bool same_machine;
    _Atomic bool reported;         /* on_peer has returned for its join; remo_node_open waits for this */
    _Atomic bool was_connected;    /* from then on its leave or failure is reported */
    _Atomic uint64_t mapped_bytes; /* its arena is reachable up to this offset; 0: not at all */
};

/* Hooks of the layer above, set once before the control thread starts. The service thread calls `immediate`,
 * the control thread all others. */
struct remo__node_hooks {
    void *ctx;
    void (*attach)(void *ctx, struct remo_node *node); /* called before all other hooks */
    void (*peer_up)(void *ctx, uint32_t peer);
    void (*peer_down)(void *ctx, uint32_t peer);
    void (*frame)(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes);
    void (*immediate)(void *ctx, uint32_t peer, uint32_t value);
};

struct remo__arena;
struct remo__slots;

/* One attached thread. Only this thread writes its counters; all threads read them (relaxed). */
struct remo__thread {
    struct remo_node *node;
    struct remo_stats *stats;          /* [REMO__COUNTERS_MAX], by channel slot; 0 is the root channel */
    struct remo_stats stats_at_attach; /* counted by earlier threads that used this struct */
    bool unfenced;                     /* mapped fabrics: has written since the last CPU fence */
    uint32_t index;
    struct remo__slots *slots; /* endpoint and operations in flight */
    char *buffers; /* REMO_BUFFERS_PER_THREAD blocks of the arena; NULL before the first remo_buffer_get */
    uint32_t buffers_free; /* one bit for each block */
    _Atomic uint32_t attached;
    struct remo__thread *next_of_os_thread;
    uint64_t node_id; /* a copy, readable after the node is freed */
} REMO__CACHE_ALIGNED;

struct remo_node {
    uint64_t id; /* unique among all nodes of this process, past and present */
    uint32_t rank, size;
    struct remo__fabric *fabric;
    pthread_mutex_t fabric_lock; /* for connect, add_segment, map_segment and disconnect of the fabric */
    bool mapped;                 /* fabric->caps.mapped */
    struct remo__peer *peers;    /* [size] */
    struct remo__arena *arena;
    struct remo__log log;
    void (*on_peer)(void *ctx, uint32_t peer, enum remo_peer_state state); /* the program's, or NULL */
    void *on_peer_ctx;
    _Atomic bool reporting; /* on_peer runs, on the control thread */
    uint64_t op_timeout_ns;
    uint32_t spins; /* iterations of a wait before it yields (wait.c) */
    struct remo__doorbell *doorbell;

    pthread_mutex_t threads_lock;
    uint32_t threads_max;
    struct remo__thread *threads[REMO__THREADS_MAX];
    _Atomic uint32_t threads_count; /* entries of threads[] that were ever used */

    struct remo__control *control;
    struct remo__roster *roster;
    pthread_t service;
    bool service_started;
    _Atomic bool closing;
    _Atomic bool is_sweeping; /* the service thread drives operations that their threads do not (op.c) */
    struct remo__node_hooks hooks;
    void *channels;       /* registry of the channel layer */
    char join_error[256]; /* why a peer cannot join, for the thread that waits in remo_node_open */
    int join_rc;
    _Atomic bool refused; /* join_error and join_rc are set */
};

/* ---- threads ---- */

struct remo__tls {
    uint64_t node_id;
    struct remo__thread *thread;
};
extern _Thread_local struct remo__tls remo__tls __attribute__((tls_model("initial-exec")));

#ifdef REMO_SIM
extern _Thread_local struct remo__thread *remo__threads_of_os_thread;
#endif

struct remo__thread *remo__thread_attach(struct remo_node *node);

/* Return the calling thread's struct of the node; attach the thread at its first call. NULL, with the
 * sentence set, if the thread cannot be attached; callers return remo__last_code(). Its codes: -EAGAIN (too
 * many threads), -ENOMEM, and those of remo__slots_open. */
static inline struct remo__thread *remo__thread(struct remo_node *node) {
    if (remo__likely(remo__tls.node_id == node->id))
        return remo__tls.thread;
    return remo__thread_attach(node);
}
/* Release all threads of the node. No other thread may be inside a call. */
void remo__threads_close(struct remo_node *node);

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

/* Open a node with the hooks of the layer above. Errors: those of remo_node_open, which calls it. */
int remo__node_open(const struct remo_config *config, const struct remo__node_hooks *hooks,
                    struct remo_node **ret_node);
/* Leave the job, and stop the control and the service thread. No hook is called after return. */
void remo__node_close_helpers(struct remo_node *node);
/* Free the node; stop its threads if they run. Accepts a half-open node. */
void remo__node_close(struct remo_node *node);
