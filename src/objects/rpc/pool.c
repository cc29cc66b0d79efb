/* pool.c - LONG handlers: they run in tasks of a helper thread, and so may wait.
 * Invariants: a request waits in the place of its call, of which the caller has at most one in flight, so
 * there is room for each. It leaves the place before its handler starts, or at its deadline. The tasks of
 * a depth wait only for calls of greater depths, which have other tasks, so each ends.
 * docs/internals/rpc.md describes both. */
#include <remo/task.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/helper.h"
#include "objects/rpc/pending.h"

#define SENTENCE_BYTES 256u
#ifdef REMO_SIM_SMALL
#define STACK_BYTES REMO_TASK_STACK_BYTES_MIN
#else
#define STACK_BYTES REMO_TASK_STACK_BYTES_DEFAULT
#endif

/* The tasks of one depth. */
struct crew {
    struct remo__rpc_pool *pool;
    uint32_t depth;   /* of the requests, less 1 */
    uint32_t running; /* tasks; only the helper changes it */
};

struct remo__rpc_pool {
    struct remo__rpc_transport *transport;
    pthread_t helper;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    bool is_started; /* `rc` is set */
    int rc;          /* of the start, in the helper */
    char sentence[SENTENCE_BYTES];
    bool is_idle;             /* the helper waits for `changed` */
    _Atomic bool stops;       /* the node closes */
    _Atomic uint32_t closing; /* services that wait until their LONG handlers have ended */
    struct crew crews[REMO_RPC_DEPTH_MAX];
    struct remo__rpc_pendings pendings;
    uint64_t wake_ns;                 /* the helper wakes at this time */
    struct remo_scheduler *scheduler; /* of the helper */
};

/* ---- requests that have not started ---- */

/* From here on the service may close. */
static void end_request(const struct remo__rpc_turn *turn) {
    struct remo__rpc_pool *pool = atomic_load(&turn->transport->pool);
    atomic_fetch_sub(&turn->rpc->long_count, 1);
    if (atomic_load(&pool->closing) > 0)
        remo__wake(turn->transport->node);
}

/* Prepare the place of a request. It is occupied only if some node is faulty: see "Room" in
 * docs/internals/rpc.md. A request in the ring of its caller replaces another one, except a copy of itself. A
 * request that was forwarded is discarded. Returns whether the place was free. The lock is held. */
static bool free_place(struct remo__rpc_pendings *pendings, const struct remo__rpc_turn *turn,
                       struct remo__rpc_turn *ret_replaced, bool *ret_may_add) {
    struct remo__rpc_pending *occupant = remo__rpc_pending_of(pendings, &turn->words);
    struct remo__rpc_entry *entry;
    bool is_free = !occupant->is_waiting;
    bool is_copy = occupant->words.call == turn->words.call && remo__rpc_hops(occupant->words.head) == 0;
    *ret_may_add = is_free || (remo__rpc_hops(turn->words.head) == 0 && !is_copy);
    if (!is_free && *ret_may_add)
        remo__rpc_pending_take(pendings, occupant, ret_replaced, &entry, NULL);
    return is_free;
}

bool remo__rpc_pool_add(const struct remo__rpc_turn *turn, struct remo__rpc_entry *entry, const void *data) {
    struct remo__rpc_pool *pool = atomic_load(&turn->transport->pool);
    const struct crew *crew = &pool->crews[turn->depth - 1];
    struct remo__rpc_turn replaced = {.transport = turn->transport};
    bool must_wake = false, is_added;
    pthread_mutex_lock(&pool->lock);
    bool is_free = free_place(&pool->pendings, turn, &replaced, &is_added);
    if (is_added) {
        remo__rpc_pending_add(&pool->pendings, turn, entry, data);
        atomic_fetch_add(&turn->rpc->long_count, 1);
        must_wake =
            !pool->is_idle && (crew->running < REMO__RPC_LONG_MAX || turn->deadline_ns < pool->wake_ns);
        if (pool->is_idle)
            pthread_cond_broadcast(&pool->changed);
    }
    pthread_mutex_unlock(&pool->lock);
    if (must_wake)
        remo__wake(pool->transport->node);
    if (replaced.rpc)
        end_request(&replaced);
    return is_free;
}

/* Take the next request, or end the task. */
static bool take(struct crew *crew, struct remo__rpc_turn *ret_turn, struct remo__rpc_entry **ret_entry,
                 uint64_t *data) {
    struct remo__rpc_pendings *pendings = &crew->pool->pendings;
    pthread_mutex_lock(&crew->pool->lock);
    struct remo__rpc_pending *first = pendings->queues[crew->depth].first;
    if (first)
        remo__rpc_pending_take(pendings, first, ret_turn, ret_entry, data);
    else
        crew->running--; /* with the lock: a request that is added from now on wakes the helper */
    pthread_mutex_unlock(&crew->pool->lock);
    return first != NULL;
}

/* ---- running ---- */

struct status {
    const struct remo__rpc_turn *turn;
    enum remo__rpc_kind kind;
    int status;
};

static int try_send(void *ctx) {
    const struct status *status = ctx;
    const struct remo__rpc_turn *turn = status->turn;
    int rc = remo__rpc_send_reply(turn->transport, turn->thread, turn->rpc, &turn->words, status->kind,
                                  status->status, NULL, 0);
    return rc == 0 || rc == -EHOSTDOWN;
}

/* Send the status of a request, unless its caller fails meanwhile. A failure to send it is transient. */
static void send_status(const struct remo__rpc_turn *turn, enum remo__rpc_kind kind, int code) {
    struct status status = {turn, kind, code};
    if (!try_send(&status))
        (void)remo__wait_attempt(turn->transport->node, try_send, &status, REMO_FOREVER);
}

static void refuse_expired(const struct remo__rpc_turn *turn) {
    remo__rpc_count(&turn->counts->expired);
    send_status(turn, REMO__RPC_REFUSED, -ETIMEDOUT);
}

/* Return whether a request may still be executed: its caller has not failed or left, and its deadline has not
 * passed. */
static bool may_run(const struct remo__rpc_turn *turn) {
    if (!remo__rpc_is_up(turn->transport, remo__rpc_origin(turn->words.call)))
        return false;
    if (remo__remaining_ns(turn->deadline_ns) > 0)
        return true;
    refuse_expired(turn);
    return false;
}

static void run(const struct remo__rpc_turn *turn, const struct remo__rpc_entry *entry, const void *data) {
    remo__rpc_count(&turn->counts->requests);
    int status = remo__rpc_run_handler(turn, entry, data, true);
    if (turn->is_replied)
        return;
    if (status < 0)
        remo__rpc_count(&turn->counts->errors);
    send_status(turn, REMO__RPC_REPLIED, status);
}

/* Read the request, and run its handler if it may still run then. */
static void run_large(const struct remo__rpc_turn *turn, const struct remo__rpc_entry *entry) {
    void *data = NULL;
    if (!may_run(turn))
        return;
    int rc = remo__rpc_large_read(turn, &data);
    if (rc == 0 && may_run(turn))
        run(turn, entry, data);
    else if (rc != 0 && remo__rpc_is_up(turn->transport, remo__rpc_origin(turn->words.call)))
        send_status(turn, REMO__RPC_REFUSED, rc);
    free(data);
}

/* The caller could change the places until the request had left the ring. */
static void run_with_places(struct remo__rpc_turn *turn, const struct remo__rpc_entry *entry,
                            const uint64_t *data) {
    struct remo__rpc_places places;
    bool is_good = remo__rpc_large_decode(&turn->words, data, &places);
    turn->places = &places;
    if (is_good && places.request != 0)
        run_large(turn, entry);
    else if (is_good && may_run(turn))
        run(turn, entry, (const char *)data + REMO__RPC_PLACES_BYTES);
    else if (!is_good)
        send_status(turn, REMO__RPC_REFUSED, -EPROTO);
    turn->places = NULL;
}

static void run_if_due(struct remo__rpc_turn *turn, const struct remo__rpc_entry *entry,
                       const uint64_t *data) {
    if (remo__rpc_flags(turn->words.head) & REMO__RPC_HAS_PLACES)
        run_with_places(turn, entry, data);
    else if (may_run(turn))
        run(turn, entry, data);
}

/* A task: it runs requests of its depth until none waits. */
static int work(void *ctx) {
    struct crew *crew = ctx;
    struct remo__rpc_transport *transport = crew->pool->transport;
    struct remo__rpc_turn turn = {.transport = transport, .thread = remo__thread(transport->node)};
    struct remo__task *task = remo__scheduler->running;
    struct remo__rpc_entry *entry;
    uint64_t data[REMO__RPC_RECORD_MAX / sizeof(uint64_t)];
    while (take(crew, &turn, &entry, data)) {
        turn.counts = &entry->counts[turn.thread->index];
        task->handling = &turn;
        run_if_due(&turn, entry, data);
        task->handling = NULL;
        end_request(&turn);
    }
    return 0;
}

/* ---- the helper ---- */

static uint32_t count_tasks(const struct remo__rpc_pool *pool) {
    uint32_t count = 0;
    for (uint32_t depth = 0; depth < REMO_RPC_DEPTH_MAX; depth++)
        count += pool->crews[depth].running;
    return count;
}

static uint32_t count_pending(const struct crew *crew) {
    return atomic_load(&crew->pool->pendings.queues[crew->depth].count);
}

static bool can_start(const struct crew *crew) {
    return count_pending(crew) > 0 && crew->running < REMO__RPC_LONG_MAX;
}

static bool can_start_any(const struct remo__rpc_pool *pool) {
    for (uint32_t depth = 0; depth < REMO_RPC_DEPTH_MAX; depth++)
        if (can_start(&pool->crews[depth]))
            return true;
    return false;
}

/* A wait condition of the helper, while tasks run. */
static int has_work(void *ctx) {
    const struct remo__rpc_pool *pool = ctx;
    return can_start_any(pool) || count_tasks(pool) == 0
           || atomic_load(&pool->pendings.earliest_ns) < pool->wake_ns;
}

/* Start a task for each request that waits, as far as possible. The lock is held. */
static bool start_tasks(struct remo__rpc_pool *pool) {
    bool has_started = false;
    for (uint32_t depth = 0; depth < REMO_RPC_DEPTH_MAX; depth++) {
        struct crew *crew = &pool->crews[depth];
        for (uint32_t i = count_pending(crew); i > 0 && can_start(crew); i--) {
            if (remo_task_spawn(pool->scheduler, work, crew, NULL) != 0)
                break; /* not reached: there are as many tasks as may run */
            crew->running++;
            has_started = true;
        }
    }
    return has_started;
}

/* Refuse the requests whose deadlines have passed. The root does it, because all tasks may be busy. */
static void expire(struct remo__rpc_pool *pool) {
    struct remo__rpc_turn turn = {.transport = pool->transport,
                                  .thread = remo__thread(pool->transport->node)};
    struct remo__task *root = remo__scheduler->running;
    struct remo__rpc_pending *expired;
    struct remo__rpc_entry *entry;
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        expired = remo__rpc_pending_expired(&pool->pendings);
        if (expired)
            remo__rpc_pending_take(&pool->pendings, expired, &turn, &entry, NULL);
        pthread_mutex_unlock(&pool->lock);
        if (!expired)
            return;
        turn.counts = &entry->counts[turn.thread->index];
        root->handling = &turn;
        if (remo__rpc_is_up(turn.transport, remo__rpc_origin(turn.words.call)))
            refuse_expired(&turn);
        root->handling = NULL;
        end_request(&turn);
    }
}

/* Start tasks, or wait until the helper is needed. Returns false if the node closes, and no task runs. */
static bool start_or_wait(struct remo__rpc_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->is_idle = count_tasks(pool) == 0;
    while (pool->is_idle && !can_start_any(pool) && !atomic_load(&pool->stops))
        pthread_cond_wait(&pool->changed, &pool->lock);
    bool ends = pool->is_idle && atomic_load(&pool->stops);
    bool has_started = !ends && start_tasks(pool);
    pool->is_idle = false;
    pool->wake_ns = atomic_load(&pool->pendings.earliest_ns);
    pthread_mutex_unlock(&pool->lock);
    if (has_started)
        remo_task_yield(); /* they take their requests */
    else if (!ends)
        (void)remo__wait(pool->transport->node, has_work, pool, pool->wake_ns);
    return !ends;
}

/* Run tasks, until the node closes. The thread sleeps while it has none. */
static void run_tasks(struct remo__rpc_pool *pool) {
    while (start_or_wait(pool))
        expire(pool);
}

static void *help(void *ctx) {
    struct remo__rpc_pool *pool = ctx;
    const struct remo_scheduler_options options = {.task_count_max = REMO_RPC_DEPTH_MAX * REMO__RPC_LONG_MAX,
                                                   .stack_bytes = STACK_BYTES};
    remo__wait_sleep_at_once();
    int rc = remo_scheduler_open(pool->transport->node, &options, &pool->scheduler);
    pthread_mutex_lock(&pool->lock);
    if (rc != 0)
        (void)snprintf(pool->sentence, sizeof pool->sentence, "%s", remo_last_error());
    pool->rc = rc;
    pool->is_started = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    if (rc != 0)
        return NULL;
    run_tasks(pool);
    (void)remo_scheduler_close(pool->scheduler);
    return NULL;
}

/* ---- start, stop ---- */

static void free_pool(struct remo__rpc_pool *pool) {
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    remo__rpc_pendings_close(&pool->pendings);
    free(pool);
}

/* Wait until the helper has a scheduler. */
static int await_helper(struct remo__rpc_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    while (!pool->is_started)
        pthread_cond_wait(&pool->changed, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    if (pool->rc == 0)
        return 0;
    pthread_join(pool->helper, NULL);
    return remo__fail(pool->rc, "cannot start the thread of LONG handlers: %s", pool->sentence);
}

static int open_pool(struct remo__rpc_transport *transport, struct remo__rpc_pool **ret_pool) {
    struct remo__rpc_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return remo__fail(-ENOMEM, "no memory for LONG handlers");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    pool->transport = transport;
    for (uint32_t depth = 0; depth < REMO_RPC_DEPTH_MAX; depth++)
        pool->crews[depth] = (struct crew){.pool = pool, .depth = depth};
    int rc = remo__rpc_pendings_open(&pool->pendings, transport->size);
    if (rc == 0)
        rc = remo__helper_start(&pool->helper, "remo-long", help, pool);
    if (rc == 0)
        rc = await_helper(pool);
    if (rc != 0) {
        free_pool(pool);
        return rc;
    }
    *ret_pool = pool;
    return 0;
}

int remo__rpc_pool_start(struct remo__rpc_transport *transport) {
    struct remo__rpc_pool *pool;
    int rc = 0;
    pthread_mutex_lock(&transport->pool_mutex);
    if (!atomic_load(&transport->pool) && (rc = open_pool(transport, &pool)) == 0)
        atomic_store(&transport->pool, pool);
    pthread_mutex_unlock(&transport->pool_mutex);
    return rc;
}

void remo__rpc_pool_stop(struct remo__rpc_transport *transport) {
    struct remo__rpc_pool *pool = atomic_load(&transport->pool);
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stops, true);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    pthread_join(pool->helper, NULL);
    free_pool(pool);
}

/* ---- close of a service ---- */

static bool take_of(struct remo__rpc_pool *pool, const struct remo_rpc *rpc,
                    struct remo__rpc_turn *ret_turn) {
    struct remo__rpc_entry *entry;
    pthread_mutex_lock(&pool->lock);
    struct remo__rpc_pending *pending = remo__rpc_pending_find(&pool->pendings, rpc);
    if (pending)
        remo__rpc_pending_take(&pool->pendings, pending, ret_turn, &entry, NULL);
    pthread_mutex_unlock(&pool->lock);
    return pending != NULL;
}

static int has_none(void *ctx) {
    const struct remo_rpc *rpc = ctx;
    return atomic_load(&rpc->long_count) == 0;
}

void remo__rpc_pool_drain(struct remo_rpc *rpc, struct remo__thread *thread) {
    struct remo__rpc_pool *pool = atomic_load(&rpc->transport->pool);
    struct remo__rpc_turn turn = {.transport = rpc->transport, .thread = thread};
    if (!pool)
        return;
    while (thread && take_of(pool, rpc, &turn)) {
        if (remo__rpc_is_up(rpc->transport, remo__rpc_origin(turn.words.call)))
            send_status(&turn, REMO__RPC_REFUSED, -ENOTCONN);
        end_request(&turn);
    }
    atomic_fetch_add(&pool->closing, 1);
    (void)remo__wait(rpc->node, has_none, rpc, REMO_FOREVER);
    atomic_fetch_sub(&pool->closing, 1);
}
