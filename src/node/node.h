/* node.h - the node from inside: peers, threads, arena, and what floors above may hook into.
 *
 * Everything that the data path reads sits in two places: struct remo__fabric_peer (is the peer there, where
 * is its memory) and struct remo__thread (my counters, my operations). Neither is written by another thread
 * on the data path.
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
    8u /* the simulator copies the whole world at every start: all is as small as it can be */
#define REMO__COUNTERS_MAX 64u
#else
#define REMO__THREADS_MAX 256u
#define REMO__COUNTERS_MAX 4096u /* sets of counters per thread: one for each channel that can be open */
#endif

/* Frame types on the control stream. The node's are below 100, the channels' from 100. */
enum remo__frame_type {
    REMO__FRAME_SEGMENT = 1, /* one more segment of the sender's arena */
    REMO__FRAME_READY = 2,   /* all segments that existed when we met have been announced */
    REMO__FRAME_CHANNELS = 100
};

struct remo__peer {
    _Atomic uint32_t state; /* enum remo_peer_state */
    _Atomic uint32_t incarnation;
    bool same_machine;
    _Atomic bool reported; /* on_peer has returned for its join: remo_node_open waits for that */
    _Atomic bool met;      /* a connection to it was made: from then on the control plane reports its end */
    _Atomic uint64_t mapped_bytes; /* its arena can be reached up to here; 0: not yet */
};

/* What the floor above wants to hear; set once before the control thread starts. All run on the control
 * thread except `immediate`, which runs on the service thread. */
struct remo__node_hooks {
    void *ctx;
    void (*attach)(void *ctx, struct remo_node *node); /* before any other hook */
    void (*peer_up)(void *ctx, uint32_t peer);
    void (*peer_down)(void *ctx, uint32_t peer);
    void (*frame)(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes);
    void (*immediate)(void *ctx, uint32_t peer, uint32_t value);
};

struct remo__arena;
struct remo__slots;

/* One attached thread. Counters are written by it alone and read by anybody (relaxed). */
struct remo__thread {
    struct remo_node *node;
    struct remo_stats *stats;          /* [REMO__COUNTERS_MAX], by channel slot; 0 is the root's */
    struct remo_stats stats_at_attach; /* what threads that had this part before have counted */
    bool unfenced;                     /* mapped fabrics: wrote since the last CPU fence */
    uint32_t index;
    struct remo__slots *slots; /* endpoint and operations in flight */
    char *buffers; /* REMO_BUFFERS_PER_THREAD blocks of the arena; NULL until the first is asked for */
    uint32_t buffers_free; /* bit set */
    _Atomic uint32_t attached;
    struct remo__thread *next_of_os_thread;
    uint64_t node_id; /* copy: stays readable when the node is gone */
} REMO__CACHE_ALIGNED;

struct remo_node {
    uint64_t id; /* unlike that of any other node of this process, past or present */
    uint32_t rank, size;
    struct remo__fabric *fabric;
    pthread_mutex_t fabric_lock; /* around its set-up calls: connect, add_segment, map_segment, disconnect */
    bool mapped;                 /* fabric->caps.mapped */
    struct remo__peer *peers;    /* [size] */
    struct remo__arena *arena;
    struct remo__log log;
    void (*on_peer)(void *ctx, uint32_t peer, enum remo_peer_state state); /* the program's, or NULL */
    void *on_peer_ctx;
    _Atomic bool reporting; /* on_peer runs, on the control thread */
    uint64_t op_timeout_ns;
    uint32_t spins; /* of the wait primitive before it yields; see wait.c */
    struct remo__doorbell *doorbell;

    pthread_mutex_t threads_lock;
    uint32_t threads_max;
    struct remo__thread *threads[REMO__THREADS_MAX];
    _Atomic uint32_t threads_count; /* entries of threads[] ever used */

    struct remo__control *control;
    struct remo__roster *roster;
    pthread_t service;
    bool service_started;
    _Atomic bool closing;
    _Atomic bool left_behind; /* the service thread drives operations whose threads went on; see op.c */
    struct remo__node_hooks hooks;
    void *channels;       /* the channel floor's registry */
    char join_error[256]; /* why a peer cannot take part, for the thread that waits in open */
    int join_rc;
    _Atomic bool refused; /* join_error and join_rc are written */
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

/* The calling thread's part of the node, attached at its first call; NULL with the sentence set when there is
 * no room (-EAGAIN). */
static inline struct remo__thread *remo__thread(struct remo_node *node) {
    if (remo__likely(remo__tls.node_id == node->id))
        return remo__tls.thread;
    return remo__thread_attach(node);
}
void remo__threads_close(struct remo_node *node);

/* ---- peers ---- */

static inline bool remo__peer_alive(const struct remo_node *node, uint32_t peer) {
    return atomic_load_explicit(&node->peers[peer].state, memory_order_acquire) == REMO_PEER_UP;
}
/* -EHOSTDOWN with a sentence that says whether it left or died (or -EAGAIN style "has not come yet": also
 * -EHOSTDOWN). */
int remo__peer_fail(const struct remo_node *node, uint32_t peer, const char *what);
/* -ETIMEDOUT with a sentence: op_timeout_ns passed, and nobody says that the peer is gone. */
int remo__peer_silent(const struct remo_node *node, uint32_t peer, const char *what);

/* ---- control ---- */

static inline int remo__node_send(struct remo_node *node, uint32_t peer, uint16_t type, const void *data,
                                  size_t bytes) {
    return remo__control_send(node->control, peer, type, data, bytes, -1);
}

/* Open with the hooks of the floor above; remo_node_open in channel/ calls this. */
int remo__node_open(const struct remo_config *config, const struct remo__node_hooks *hooks,
                    struct remo_node **ret_node);
/* Say goodbye and stop the control and the service thread: no hook is called afterwards. remo__node_close
 * does it too. */
void remo__node_close_helpers(struct remo_node *node);
void remo__node_close(struct remo_node *node);
