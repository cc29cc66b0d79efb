/* wait.c - implements wait.h: spin, then yield, then sleep. If every node has a processor, a short spin costs
 * less than a wake-up, and the peer probably changes the condition soon. If nodes share a processor,
 * spinning delays the peer. No wake-up is lost: a sleeper counts itself before its last check. */
#include "remote/wait.h"

#include <sched.h>

#include "base/relax.h"
#include "remote/op.h"

#ifndef REMO_SIM
#define OWN_SLEEP_NS_MAX REMO__NS_PER_MS /* while operations are in flight: completions notify no doorbell */
#endif

/* Drive the operations of the calling thread. Returns the number in flight. A thread that is not attached has
 * none, and a wait does not attach it. */
static uint32_t drive(struct remo_node *node) {
    struct remo__thread *thread = node->mapped ? NULL : remo__thread_attached(node);
    if (!thread)
        return 0;
    remo__slots_post_deferred(thread); /* the condition may depend on them */
    return remo__slots_progress(thread);
}

#ifdef REMO_SIM
static int wait_long(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                     bool is_polling) {
    for (uint32_t checks = 0;; checks++) {
        remo__sim_check_begin(node);
        drive(node);
        int rc = ready(ctx);
        remo__sim_check_end(rc != 0);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (deadline_ns != REMO_FOREVER && remo__now_ns() >= deadline_ns)
            return remo__fail_static(-ETIMEDOUT, "timed out: the condition of the wait was not met in time");
        remo__sim_pause(node, checks, is_polling, deadline_ns);
    }
}
#else
/* Sleep once, unless the condition holds after this thread is counted as a sleeper. */
static int sleep_once(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                      bool is_polling) {
    struct remo__doorbell *bell = node->doorbell;
    uint32_t seen = atomic_load(&bell->seq);
    remo__doorbell_add_sleeper(bell); /* pairs with the fence in remo__wake and remo__mapped_notify */
    int rc = ready(ctx);
    if (rc == 0) {
        uint64_t left = remo__remaining_ns(deadline_ns);
        if (drive(node) > 0)
            remo__slots_sleep(remo__thread_attached(node), remo__min(left, OWN_SLEEP_NS_MAX));
        else
            remo__doorbell_sleep(bell, seen,
                                 remo__min(left, is_polling ? REMO__POLL_NS_MAX : REMO__SLEEP_NS_MAX));
    }
    atomic_fetch_sub(&bell->sleepers, 1);
    return rc;
}

static int wait_long(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                     bool is_polling) {
    for (uint32_t i = 0;; i++) {
        drive(node);
        int rc = ready(ctx);
        if (rc == 0 && i >= node->threads->spins + REMO__CHECKS_BEFORE_SLEEP)
            rc = sleep_once(node, ready, ctx, deadline_ns, is_polling);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (i < node->threads->spins) {
            remo__relax();
            continue;
        }
        if (deadline_ns != REMO_FOREVER && remo__now_ns() >= deadline_ns)
            return remo__fail_static(-ETIMEDOUT, "timed out: the condition of the wait was not met in time");
        if (i < node->threads->spins + REMO__CHECKS_BEFORE_SLEEP)
            sched_yield();
        else
            i = node->threads->spins + REMO__CHECKS_BEFORE_SLEEP; /* from here on only sleep */
    }
}
#endif

static int wait(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns,
                bool is_polling) {
    int rc = ready(ctx);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (deadline_ns != REMO_FOREVER && remo__now_ns() >= deadline_ns)
        return remo__fail_static(
            -ETIMEDOUT, "timed out: the condition of the wait is not met, and no time is left to wait");
    return wait_long(node, ready, ctx, deadline_ns, is_polling);
}

int remo__wait(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns) {
    return wait(node, ready, ctx, deadline_ns, false);
}

int remo__wait_polling(struct remo_node *node, int (*ready)(void *ctx), void *ctx, uint64_t deadline_ns) {
    return wait(node, ready, ctx, deadline_ns, true);
}

/* A wait condition that is never true. */
static int never(void *ctx) {
    (void)ctx;
    return 0;
}

void remo__pause(struct remo_node *node, uint64_t deadline_ns) {
    (void)remo__wait(node, never, NULL, deadline_ns);
}

static int try_lock_contended(void *ctx) {
    struct remo__mutex *mutex = ctx;
    return atomic_exchange_explicit(&mutex->state, 2, memory_order_acquire) == 0;
}

int remo__mutex_lock_slow(struct remo_node *node, struct remo__mutex *mutex, uint64_t deadline_ns) {
    return remo__wait(node, try_lock_contended, mutex, deadline_ns);
}
