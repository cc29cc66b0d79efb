/* thread.c - attaches threads of the program to a node, and detaches them when they end.
 *
 * A struct remo__thread has two owners: the thread, by its thread-local list, and the node. They release it
 * in any order, each with one atomic exchange; the second to do so frees it. The node waits for a thread that
 * releases its state in objects (ENDING). */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "node/arena.h"
#include "remote/op.h"
#include "remote/stats.h"
#include "remote/watch.h"

#define SPINS 1000u /* about 20 us, longer than a message takes on one machine */

enum {
    ATTACHED = 1,
    DETACHED = 2, /* the thread has ended */
    ORPHANED = 3, /* the node is closed */
    ENDING = 4    /* the thread ends, and its observers run: the node must not be freed */
};

_Thread_local struct remo__tls remo__tls __attribute__((tls_model("initial-exec")));
#ifdef REMO_SIM
/* the simulator's threads are contexts; it replaces this when it switches */
_Thread_local struct remo__thread *remo__threads_of_os_thread;
#define threads_of_os_thread remo__threads_of_os_thread
#else
static _Thread_local struct remo__thread *threads_of_os_thread;
#endif

static_assert(REMO__THREADS_MAX <= 1u << REMO__HOLDER_TASK_SHIFT, "a holder has the index of its thread");

static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key; /* its destructor runs when a thread ends; its value is not used */

/* An observer may wait, so the lock is not held during its call. It stays in the list until its calls have
 * returned, so its `next` stays valid. */
static void call_observers(struct remo__thread *thread) {
    struct remo__threads *threads = thread->node->threads;
    pthread_mutex_lock(&threads->observers_lock);
    for (struct remo__thread_observer *at = threads->observers; at; at = at->next) {
        if (!at->ended)
            continue;
        at->calls++;
        pthread_mutex_unlock(&threads->observers_lock);
        at->ended(at, thread);
        pthread_mutex_lock(&threads->observers_lock);
        if (--at->calls == 0)
            pthread_cond_broadcast(&threads->observers_idle);
    }
    pthread_mutex_unlock(&threads->observers_lock);
}

static void end_thread(struct remo__thread *thread) {
    uint32_t attached = ATTACHED;
    if (!atomic_compare_exchange_strong(&thread->attached, &attached, ENDING)) {
        free(thread); /* orphaned */
        return;
    }
    call_observers(thread);
    /* If a worker has not ended, the thread has left operations in flight, against the rules. The memory
     * stays allocated, because these operations may refer to it. */
    if (thread->workers && !remo__scheduler_lives(thread->workers)) {
        while (!remo__ops_settled(thread)) /* another thread completes an operation; bounded by its poll */
            sched_yield();
        remo__scheduler_close(thread->workers);
    }
    atomic_store(&thread->attached, DETACHED);
}

/* A struct stays in the list while its observers run, because they find it there. */
static void os_thread_exit(void *unused) {
    (void)unused;
    remo__tls = (struct remo__tls){0};
    while (threads_of_os_thread) {
        struct remo__thread *next = threads_of_os_thread->next_of_os_thread;
        end_thread(threads_of_os_thread);
        threads_of_os_thread = next;
    }
    remo__tls = (struct remo__tls){0};
}

static void make_exit_key(void) {
    (void)pthread_key_create(&exit_key, os_thread_exit);
}

/* Find this thread's struct of `node`, or return NULL. Frees structs of closed nodes on the way. */
static struct remo__thread *find_thread(const struct remo_node *node) {
    struct remo__thread **link = &threads_of_os_thread;
    while (*link) {
        struct remo__thread *thread = *link;
        if (atomic_load(&thread->attached) == ORPHANED) {
            *link = thread->next_of_os_thread;
            free(thread);
            continue;
        }
        if (thread->node_id == node->id)
            return thread;
        link = &thread->next_of_os_thread;
    }
    return NULL;
}

struct remo__thread *remo__thread_attached(const struct remo_node *node) {
    return remo__tls.node_id == node->id ? remo__tls.thread : find_thread(node);
}

static struct remo__thread *make_thread(struct remo_node *node, uint32_t index) {
    struct remo__thread *thread =
        aligned_alloc(REMO__CACHE_LINE, remo__align_up(sizeof *thread, REMO__CACHE_LINE));
    if (!thread) {
        remo__fail(-ENOMEM, "no memory for the state of a thread");
        return NULL;
    }
    *thread = (struct remo__thread){.node = node,
                                    .peers = node->fabric->peers,
                                    .index = index,
                                    .holder = index,
                                    .node_id = node->id,
                                    .attached = ATTACHED};
    thread->stats = calloc(REMO__COUNTERS_MAX, sizeof *thread->stats);
    int rc = thread->stats ? remo__slots_open(node, &thread->slots)
                           : remo__fail(-ENOMEM, "no memory for the counters of a thread");
    if (rc != 0) {
        free(thread->stats);
        free(thread);
        return NULL;
    }
    return thread;
}

/* Reuse the struct of a thread that has ended, or make one. The lock is held. */
static struct remo__thread *take_thread(struct remo_node *node) {
    uint32_t count = atomic_load(&node->threads->count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t detached = DETACHED;
        struct remo__thread *thread = node->threads->of[i];
        if (!atomic_compare_exchange_strong(&thread->attached, &detached, ATTACHED))
            continue;
        remo__stats_of_thread(thread, &thread->stats_at_attach);
        remo__slots_inherit(thread);
        thread->workers = NULL;
        if (thread->buffers && remo__slots_progress(thread) == 0)
            thread->buffers_free = UINT32_MAX; /* the network uses none of the earlier thread's buffers */
        return thread;
    }
    if (count == node->threads_max) {
        remo__fail(-EAGAIN,
                   "cannot attach a thread: %u threads use this node already; raise threads_max in struct "
                   "remo_config (at most %u)",
                   count, REMO__THREADS_MAX);
        return NULL;
    }
    struct remo__thread *thread = make_thread(node, count);
    if (!thread) {
        remo__fail_more(remo__last_code(), "cannot attach thread number %u to the node", count);
        return NULL;
    }
    node->threads->of[count] = thread;
    atomic_store(&node->threads->count, count + 1);
    return thread;
}

struct remo__thread *remo__thread_attach(struct remo_node *node) {
    pthread_once(&exit_once, make_exit_key);
    struct remo__thread *thread = find_thread(node);
    if (!thread) {
        pthread_mutex_lock(&node->threads->lock);
        thread = take_thread(node);
        pthread_mutex_unlock(&node->threads->lock);
        if (!thread)
            return NULL;
        thread->next_of_os_thread = threads_of_os_thread;
        threads_of_os_thread = thread;
        pthread_setspecific(exit_key, &exit_key);
    }
    remo__tls = (struct remo__tls){.node_id = node->id, .thread = thread};
    return thread;
}

void remo_thread_stats(struct remo_node *node, struct remo_stats *ret_stats) {
    struct remo_stats sum = {0};
    const struct remo__thread *thread = node ? remo__thread(node) : NULL;
    if (thread) {
        remo__stats_of_thread(thread, &sum);
        remo__stats_subtract(&sum, &thread->stats_at_attach);
    }
    if (ret_stats)
        *ret_stats = sum;
}

void remo__thread_observe(struct remo_node *node, struct remo__thread_observer *observer) {
    struct remo__threads *threads = node->threads;
    pthread_mutex_lock(&threads->observers_lock);
    observer->next = threads->observers;
    threads->observers = observer;
    pthread_mutex_unlock(&threads->observers_lock);
}

void remo__thread_unobserve(struct remo_node *node, const struct remo__thread_observer *observer) {
    struct remo__threads *threads = node->threads;
    pthread_mutex_lock(&threads->observers_lock);
    while (observer->calls > 0)
        pthread_cond_wait(&threads->observers_idle, &threads->observers_lock);
    struct remo__thread_observer **link = &threads->observers;
    while (*link && *link != observer)
        link = &(*link)->next;
    if (*link)
        *link = observer->next;
    pthread_mutex_unlock(&threads->observers_lock);
}

int remo__threads_open(struct remo_node *node) {
    node->threads = calloc(1, sizeof *node->threads);
    if (!node->threads)
        return remo__fail(-ENOMEM, "no memory for the threads of a node");
    node->threads->spins = REMO__SPINS_CROWDED;
    pthread_mutex_init(&node->threads->lock, NULL);
    remo__watch_init(&node->threads->watch);
    pthread_mutex_init(&node->threads->observers_lock, NULL);
    pthread_cond_init(&node->threads->observers_idle, NULL);
    return 0;
}

void remo__threads_choose_spins(struct remo_node *node) {
    const struct remo__processors *processors = &node->processors;
    uint32_t by_affinity = 0, by_quota = 0;
    for (uint32_t peer = 0; peer < node->size; peer++) {
        by_affinity += node->peers[peer].shares_processors;
        by_quota += node->peers[peer].shares_quota;
    }
    bool is_crowded = by_affinity > processors->count || by_quota > processors->quota;
    node->threads->spins = is_crowded ? REMO__SPINS_CROWDED : SPINS;
}

/* Release the struct of a thread. All objects are closed, so there are no observers; but a thread that ends
 * may still hold `observers_lock`, and use the slots. */
static void release_thread(struct remo__thread *thread) {
    struct remo__slots *slots = thread->slots;
    struct remo_stats *stats = thread->stats;
    struct remo__scheduler *workers;
    uint32_t attached = atomic_load(&thread->attached);
    for (;;) {
        workers = attached == ATTACHED ? thread->workers : NULL; /* a thread that ends closes its own */
        if (attached != ENDING && atomic_compare_exchange_weak(&thread->attached, &attached, ORPHANED))
            break;
        sched_yield();
        attached = atomic_load(&thread->attached);
    }
    if (attached == DETACHED)
        free(thread); /* otherwise its thread frees it */
    remo__slots_close(slots);
    if (workers)
        remo__scheduler_close(workers);
    free(stats);
}

void remo__threads_close(struct remo_node *node) {
    if (!node->threads)
        return;
    uint32_t count = atomic_load(&node->threads->count);
    for (uint32_t i = 0; i < count; i++)
        release_thread(node->threads->of[i]);
    pthread_mutex_destroy(&node->threads->lock);
    remo__watch_destroy(&node->threads->watch);
    pthread_mutex_destroy(&node->threads->observers_lock);
    pthread_cond_destroy(&node->threads->observers_idle);
    free(node->threads);
    node->threads = NULL;
    remo__tls = (struct remo__tls){0};
}
