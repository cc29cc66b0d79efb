/* thread.h - the threads of the program that use a node, and their state on the data path.
 *
 * On the data path only its own thread writes a struct remo__thread. All threads read its counters. */
#pragma once

#include "node/node.h"

/* Sets of counters per thread: one for each open channel. */
#ifdef REMO_SIM_SMALL
#define REMO__COUNTERS_MAX 64u
#else
#define REMO__COUNTERS_MAX 4096u
#endif

struct remo__slots;

/* A holder is a thread, a task or a worker: the index of the thread and, in the bits above, the index of the
 * task or worker, or 0 for the thread itself. The flag marks a worker. */
#define REMO__HOLDER_TASK_SHIFT 8
#define REMO__HOLDER_WORKER (UINT32_C(1) << 31)

/* Return the index of the worker; 0: the holder is none. */
static inline uint32_t remo__holder_worker(uint32_t holder) {
    return holder & REMO__HOLDER_WORKER ? (holder & ~REMO__HOLDER_WORKER) >> REMO__HOLDER_TASK_SHIFT : 0;
}

/* One attached thread. Only this thread writes its counters; all threads read them (relaxed). */
struct remo__thread {
    struct remo_node *node;
    struct remo__fabric_peer *peers; /* of the fabric; a copy, because each operation reads it */
    struct remo_stats *stats;        /* [REMO__COUNTERS_MAX], by channel slot; 0 is the root channel */
    bool unfenced;                   /* mapped fabrics: has written since the last CPU fence */
    uint32_t index;
    struct remo__scheduler *workers; /* see workers.h; NULL: none yet */
    uint32_t holder;           /* identifies the thread, or its running task or worker, as holder of a lock */
    struct remo__slots *slots; /* endpoint and operations in flight */
    char *buffers; /* REMO_BUFFERS_PER_THREAD blocks of the arena; NULL before the first remo_buffer_get */
    uint32_t buffers_free; /* one bit for each block */
    _Atomic uint32_t attached;
    void *handling; /* what objects/rpc runs in this thread: a handler or a callback; NULL: nothing */
    struct remo__thread *next_of_os_thread;
    uint64_t node_id; /* a copy, readable after the node is freed */
    struct remo_stats stats_at_attach; /* counted by earlier threads that used this struct */
} REMO__CACHE_ALIGNED;

/* Observes the threads of a node, for an object. Either function may be NULL. */
struct remo__thread_observer {
    /* Release the state of a thread that ends; called in that thread, before another thread can have its
     * index. May wait for op_timeout_ns at most. Threads that end at the same time call it concurrently. */
    void (*ended)(struct remo__thread_observer *observer, struct remo__thread *thread);
    /* Called by the service thread after a sweep, with observers_lock held; must not wait. A sweep skips the
     * call if another thread holds the lock. Returns true if the observer waits for an operation: the sweeps
     * do not end then. */
    bool (*swept)(struct remo__thread_observer *observer);
    struct remo__thread_observer *next;
    uint32_t calls; /* of `ended` that run now */
};

/* The schedulers that are open, and when to look at them (watch.h). */
struct remo__watch {
    pthread_mutex_t lock;
    _Atomic(struct remo__scheduler *) first;
    uint64_t period_ns;
    uint64_t due_ns; /* of the next look; used by the service thread only */
};

/* The spins if nodes that share processors outnumber them. */
#define REMO__SPINS_CROWDED 20u

struct remo__threads {
    pthread_mutex_t lock;
    pthread_mutex_t observers_lock; /* protects the list of observers, and their `calls` */
    pthread_cond_t observers_idle;  /* `calls` of an observer has become 0 */
    struct remo__thread_observer *observers;
    _Atomic uint32_t count;    /* entries of `of` that were ever used */
    uint32_t spins;            /* iterations of a wait before it yields (wait.c) */
    _Atomic uint32_t relieved; /* how often other threads have received for the service thread (service.h) */
    uint32_t needless;         /* immediates for which the service thread had nothing to do (service.h) */
    struct remo__watch watch;
    _Atomic bool is_sweeping; /* the service thread drives operations that their threads do not (sweep.c) */
    struct remo__thread *of[REMO__THREADS_MAX];
};

struct remo__tls {
    uint64_t node_id;
    struct remo__thread *thread;
};
extern _Thread_local struct remo__tls remo__tls __attribute__((tls_model("initial-exec")));

#ifdef REMO_SIM
extern _Thread_local struct remo__thread *remo__threads_of_os_thread;
#endif

struct remo__thread *remo__thread_attach(struct remo_node *node) __attribute__((cold));

/* Return the calling thread's struct of the node; attach the thread at its first call. NULL, with the
 * sentence set, if the thread cannot be attached; callers return remo__last_code(). Its codes: -EAGAIN (too
 * many threads), -ENOMEM, and those of remo__slots_open. */
static inline struct remo__thread *remo__thread(struct remo_node *node) {
    if (remo__likely(remo__tls.node_id == node->id))
        return remo__tls.thread;
    return remo__thread_attach(node);
}
/* Return the calling thread's struct of the node, or NULL if the thread is not attached. */
struct remo__thread *remo__thread_attached(const struct remo_node *node);
/* Call the observer from now on, for each attached thread that ends, and after sweeps. */
void remo__thread_observe(struct remo_node *node, struct remo__thread_observer *observer);
/* Remove an observer, and wait until no call of it runs. Without effect if it was not added. */
void remo__thread_unobserve(struct remo_node *node, const struct remo__thread_observer *observer);
/* Make the table of a node. Errors: -ENOMEM. */
int remo__threads_open(struct remo_node *node);
/* All nodes have joined: choose how long waits spin, by the number of nodes that share processors. */
void remo__threads_choose_spins(struct remo_node *node);
/* Release all threads of the node. No other thread may be inside a call. */
void remo__threads_close(struct remo_node *node);
