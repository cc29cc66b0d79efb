/* watch.c - implements watch.h.
 * The thread of a scheduler only stores its counters, relaxed: a look reads them at any time, so one of them
 * may be older than another. Therefore a report takes two looks without a switch. */
#include "remote/watch.h"

#define LOOKS_MAX 2u /* without a switch */

void remo__watch_init(struct remo__watch *watch) {
    *watch = (struct remo__watch){.period_ns = REMO__WATCH_PERIOD_NS};
    pthread_mutex_init(&watch->lock, NULL);
}

void remo__watch_destroy(struct remo__watch *watch) {
    pthread_mutex_destroy(&watch->lock);
}

/* The first scheduler wakes the service thread, which then no longer sleeps without a limit. */
void remo__watch_add(struct remo__scheduler *scheduler) {
    struct remo__watch *watch = &scheduler->node->threads->watch;
    pthread_mutex_lock(&watch->lock);
    struct remo__scheduler *next = atomic_load(&watch->first);
    scheduler->watched_next = next;
    atomic_store(&watch->first, scheduler);
    pthread_mutex_unlock(&watch->lock);
#ifndef REMO_SIM
    if (!next)
        scheduler->node->fabric->ops->imm_wake(scheduler->node->fabric);
#else
    (void)next;
#endif
}

void remo__watch_remove(struct remo__scheduler *scheduler) {
    struct remo__watch *watch = &scheduler->node->threads->watch;
    pthread_mutex_lock(&watch->lock);
    if (atomic_load(&watch->first) == scheduler) {
        atomic_store(&watch->first, scheduler->watched_next);
    } else {
        struct remo__scheduler *before = atomic_load(&watch->first);
        while (before->watched_next != scheduler)
            before = before->watched_next;
        before->watched_next = scheduler->watched_next;
    }
    pthread_mutex_unlock(&watch->lock);
}

#ifdef REMO_SIM
uint64_t remo__watch_look(struct remo_node *node) {
    (void)node; /* no task of a schedule runs without end */
    return REMO_FOREVER;
}
#else
static void look_at(struct remo__scheduler *scheduler, uint64_t period_ns) {
    uint32_t switches = atomic_load_explicit(&scheduler->switches, memory_order_relaxed);
    uint32_t tasks = atomic_load_explicit(&scheduler->live_count, memory_order_relaxed);
    bool runs = tasks > 0 && !atomic_load_explicit(&scheduler->is_asleep, memory_order_relaxed);
    if (!runs || switches != scheduler->switches_seen)
        scheduler->looks = 0;
    else if (++scheduler->looks == LOOKS_MAX)
        remo__log(
            &scheduler->node->log, REMO_LOG_WARNING,
            "thread %u has neither waited nor yielded for more than %llu ms, so its %u tasks do not run; "
            "call remo_task_yield in long computations",
            scheduler->thread->index, (unsigned long long)(period_ns / REMO__NS_PER_MS), tasks);
    scheduler->switches_seen = switches;
}

uint64_t remo__watch_look(struct remo_node *node) {
    struct remo__watch *watch = &node->threads->watch;
    if (!atomic_load_explicit(&watch->first, memory_order_relaxed))
        return REMO_FOREVER;
    uint64_t now = remo__now_ns();
    if (now < watch->due_ns)
        return watch->due_ns - now;
    pthread_mutex_lock(&watch->lock);
    for (struct remo__scheduler *at = atomic_load(&watch->first); at; at = at->watched_next)
        look_at(at, watch->period_ns);
    pthread_mutex_unlock(&watch->lock);
    watch->due_ns = now + watch->period_ns;
    return watch->period_ns;
}
#endif
