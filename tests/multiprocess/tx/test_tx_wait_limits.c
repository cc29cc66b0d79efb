/* test_tx_wait_limits.c - transactions that wait, at their limits: an owner that pauses, many transactions
 * that wait for one key, late reports, replies that are late or cannot be sent, several spaces, LONG handlers
 * whose requests time out. */
#include "../../support/turns.h"
#include "objects/rpc/rpc.h"
#include "tx_waits.h"

#define PAUSED_TASKS REMO__TX_WAITS_MAX
#define CROWDS 2u              /* nodes that wait for one key: more than a thread and a sweep report */
#define REPORTS_PER_CHANGE 16u /* of key_watch.c */
#define SPACES 6u

/* Shared by all processes. */
static struct {
    struct turns turns;
    _Atomic uint32_t runs; /* of bodies */
} * shared;

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

/* ---- tasks that wait ---- */

struct waiter {
    struct place *place;
    struct remo_tx_space *space;
    uint64_t keys[3]; /* 0: none */
    uint64_t expected;
    struct remo_tx *tx;
    uint32_t runs;
};

/* Wait until the last key has the expected value. */
static int await_last(void *ctx, struct remo_tx *tx) {
    struct waiter *waiter = ctx;
    uint64_t value = 0;
    waiter->runs++;
    atomic_fetch_add(&shared->runs, 1);
    for (uint32_t i = 0; i < 3; i++) {
        int rc = waiter->keys[i] != 0 ? read_word(waiter->place, tx, waiter->keys[i], &value) : 0;
        if (rc != 0 && rc != -ENOENT)
            return rc;
    }
    return value == waiter->expected ? 0 : REMO_TX_WAIT;
}

static int wait_in_task(void *ctx) {
    struct waiter *waiter = ctx;
    return remo_tx_run(waiter->tx, await_last, waiter, LONG_TIME);
}

struct tasks {
    struct remo_node *node;
    struct waiter *waiters;
    uint32_t count;
    pthread_t thread;
    int rc;
};

static int run_tasks(struct tasks *tasks) {
    const struct remo_scheduler_options options = {.task_count_max = tasks->count};
    struct remo_scheduler *scheduler;
    remo_task_id ids[PAUSED_TASKS];
    CHECK(tasks->count <= PAUSED_TASKS);
    CHECK_OK(remo_scheduler_open(tasks->node, &options, &scheduler));
    for (uint32_t i = 0; i < tasks->count; i++) {
        CHECK_OK(remo_tx_open(tasks->waiters[i].space, &tasks->waiters[i].tx));
        CHECK_OK(remo_task_spawn(scheduler, wait_in_task, &tasks->waiters[i], &ids[i]));
    }
    for (uint32_t i = 0; i < tasks->count; i++) {
        int result = -1;
        CHECK_OK(remo_task_join(scheduler, ids[i], LONG_TIME, &result));
        CHECK_OK(result);
        remo_tx_close(tasks->waiters[i].tx);
    }
    return remo_scheduler_close(scheduler);
}

static void *run_in_thread(void *ctx) {
    struct tasks *tasks = ctx;
    tasks->rc = run_tasks(tasks);
    return NULL;
}

/* ---- an owner that pauses ---- */

static int await_runs(uint32_t expected) {
    for (uint32_t i = 0; atomic_load(&shared->runs) < expected; i++) {
        CHECK(i < 50000);
        cluster_sleep_ms(1);
    }
    return 0;
}

/* The keys of node 0 change while node 1 pauses: all tasks run again. Afterwards node 1 answers calls. */
static int change_during_pause(struct place *place, uint64_t own_key) {
    pause_node(&shared->turns, 1);
    CHECK_OK(plain_put(place, own_key, 1));
    if (place->node->mapped) /* otherwise node 1 may have to answer reads */
        CHECK_OK(await_runs(2 * PAUSED_TASKS));
    else
        cluster_sleep_ms(100);
    resume_node(&shared->turns, 1);
    CHECK_OK(await_runs(2 * PAUSED_TASKS));
    return plain_put(place, key_of(place, 1, 1), 1);
}

static int paused(struct remo_node *node, void *ctx) {
    static struct waiter waiters[PAUSED_TASKS];
    struct tasks tasks = {.node = node, .waiters = waiters, .count = PAUSED_TASKS};
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    record_process(&shared->turns, place.rank);
    for (uint32_t owner = 0; owner < 2; owner++)
        CHECK_OK(place.rank == owner ? plain_put(&place, key_of(&place, owner, 0), 0) : 0);
    CHECK_OK(cluster_meet());
    if (place.rank == 0) {
        for (uint32_t i = 0; i < PAUSED_TASKS; i++)
            waiters[i] = (struct waiter){.place = &place,
                                         .space = place.space,
                                         .keys = {key_of(&place, 0, 0), key_of(&place, 1, 0)},
                                         .expected = 9};
        CHECK(pthread_create(&tasks.thread, NULL, run_in_thread, &tasks) == 0);
        reach_turn(&shared->turns, 1);
        CHECK_OK(change_during_pause(&place, key_of(&place, 0, 0)));
        CHECK_OK(plain_put(&place, key_of(&place, 1, 0), 9));
        CHECK(pthread_join(tasks.thread, NULL) == 0);
        CHECK_OK(tasks.rc);
    } else {
        CHECK_OK(await_watches(&place, PAUSED_TASKS));
        begin_turn(&shared->turns, 1);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(await_no_watch(&place));
    return close_place(&place);
}

/* ---- many for one key ---- */

/* One change wakes all: the thread that makes it, and sweeps. Each wakes a limited number. */
static int crowd(struct remo_node *node, void *ctx) {
    static struct waiter waiters[PAUSED_TASKS];
    struct tasks tasks = {.node = node, .waiters = waiters, .count = PAUSED_TASKS};
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    for (uint32_t i = 0; i < PAUSED_TASKS && place.rank < CROWDS; i++)
        waiters[i] = (struct waiter){
            .place = &place, .space = place.space, .keys = {0, key_of(&place, CROWDS, 0)}, .expected = 1};
    if (place.rank < CROWDS) {
        CHECK_OK(run_tasks(&tasks));
        for (uint32_t i = 0; i < PAUSED_TASKS; i++)
            CHECK_EQUAL(waiters[i].runs, 2);
    } else {
        uint32_t left[2];
        CHECK_OK(await_watches(&place, CROWDS * PAUSED_TASKS));
        pthread_mutex_lock(&node->threads->observers_lock); /* no other sweep reports meanwhile */
        int rc = plain_put(&place, key_of(&place, CROWDS, 0), 1);
        left[0] = watches_of(&place);
        bool is_left = remo__tx_sweep_watches(place.space);
        left[1] = watches_of(&place);
        pthread_mutex_unlock(&node->threads->observers_lock);
        CHECK_OK(rc);
        CHECK_EQUAL(left[0], CROWDS * PAUSED_TASKS - REPORTS_PER_CHANGE);
        CHECK_EQUAL(left[1], left[0] - REMO__TX_REPORTS_PER_SWEEP);
        CHECK(is_left);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(await_no_watch(&place));
    return close_place(&place);
}

/* ---- late reports ---- */

/* Report a watch of node 0 that is set, as a thread does that has found an earlier one of the number due, and
 * was slow. The watch stays set: no key has changed since. */
static int report_late(struct place *place) {
    struct remo__tx_peer *peer = &place->space->peers[0];
    uint32_t number = 0;
    CHECK_OK(await_watches(place, 1));
    while (!peer->watches[number].is_set)
        number++;
    peer->watches[number].watch.report(&peer->watches[number].watch);
    CHECK_EQUAL(watches_of(place), 1);
    return 0;
}

static int late_reports(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    struct waiter waiter = {.place = &place, .tx = place.tx, .keys = {key_of(&place, 1, 0)}, .expected = 2};
    if (place.rank == 0) {
        CHECK_OK(wait_in_task(&waiter));
        CHECK_EQUAL(waiter.runs, 3);
    } else {
        CHECK_OK(report_late(&place));
        CHECK_OK(plain_put(&place, waiter.keys[0], 1));
        CHECK_OK(await_runs(2));
        CHECK_OK(report_late(&place)); /* the same number again */
        CHECK_OK(plain_put(&place, waiter.keys[0], 2));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(await_no_watch(&place));
    return close_place(&place);
}

/* ---- several spaces ---- */

/* Transactions of several spaces wait, more than a node has slots for replies. Their calls do not take all
 * slots: the node still makes calls, by which the keys change. */
static int spaces(struct remo_node *node, void *ctx) {
    static struct waiter waiters[SPACES][PAUSED_TASKS];
    struct remo_tx_space *opened[SPACES];
    struct tasks tasks[SPACES];
    struct place place;
    char name[16];
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    const struct remo_tx_space_options options = {.structures = &place.structure, .structure_count = 1};
    for (uint32_t i = 0; i < SPACES; i++) {
        snprintf(name, sizeof name, "space%u", i);
        CHECK_OK(remo_tx_space_open(remo_node_root(node), name, &options, &opened[i]));
    }
    CHECK_OK(remo_channel_wait(remo_node_root(node), LONG_TIME));
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < SPACES && place.rank == 0; i++) {
        for (uint32_t j = 0; j < PAUSED_TASKS; j++)
            waiters[i][j] = (struct waiter){
                .place = &place, .space = opened[i], .keys = {0, key_of(&place, 1, 0)}, .expected = 1};
        tasks[i] = (struct tasks){.node = node, .waiters = waiters[i], .count = PAUSED_TASKS};
        CHECK(pthread_create(&tasks[i].thread, NULL, run_in_thread, &tasks[i]) == 0);
    }
    if (place.rank == 1) {
        CHECK_OK(await_watches_in(opened, SPACES, REMO__TX_CALLS_MAX));
        CHECK_OK(await_runs(2 * SPACES * PAUSED_TASKS)); /* those without a watch run again and again */
        CHECK_EQUAL(watches_in(opened, SPACES), REMO__TX_CALLS_MAX);
        begin_turn(&shared->turns, 1);
    } else {
        reach_turn(&shared->turns, 1);
        CHECK_OK(plain_put(&place, key_of(&place, 1, 0), 1));
    }
    for (uint32_t i = 0; i < SPACES && place.rank == 0; i++) {
        CHECK(pthread_join(tasks[i].thread, NULL) == 0);
        CHECK_OK(tasks[i].rc);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < SPACES; i++)
        remo_tx_space_close(opened[i]);
    return close_place(&place);
}

/* ---- replies that cannot be sent ---- */

/* Make a reply fail, or succeed again. Returns the word that was replaced. */
static uint64_t replace_word(struct remo_rpc_deferred *reply, uint64_t word) {
    uint64_t replaced = reply->word[0];
    reply->word[0] = word;
    return replaced;
}

/* Two watches change. The reply to the first one fails, so the second one is not tried. Sweeps send both. */
static int keep_replies(struct place *place, const uint64_t *keys) {
    struct remo__tx_peer *peer = &place->space->peers[0];
    pthread_mutex_t *sweeps = &place->node->threads->observers_lock;
    CHECK_OK(await_watches(place, 1));
    pthread_mutex_lock(&peer->mutex);
    uint64_t word = replace_word(&peer->watches[0].deferred, UINT64_MAX); /* the first wait has number 0 */
    pthread_mutex_unlock(&peer->mutex);
    begin_turn(&shared->turns, 1);
    CHECK_OK(await_watches(place, 2));
    pthread_mutex_lock(sweeps);
    int rc[2] = {plain_put(place, keys[0], 1), plain_put(place, keys[1], 1)};
    uint32_t watches = watches_of(place), unsent = peer->unsent_count, replies = peer->replies_count;
    (void)replace_word(&peer->unsent[0].deferred, word);
    pthread_mutex_unlock(sweeps);
    CHECK(rc[0] == 0 && rc[1] == 0);
    CHECK_EQUAL(watches, 0);
    CHECK_EQUAL(unsent, 2);
    CHECK_EQUAL(replies, 2);
    return 0;
}

static int unsent_replies(struct remo_node *node, void *ctx) {
    static struct waiter waiters[2];
    struct tasks tasks[2];
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    const uint64_t keys[2] = {key_of(&place, 1, 0), key_of(&place, 1, 1)};
    for (uint32_t i = 0; i < 2 && place.rank == 0; i++) {
        waiters[i] = (struct waiter){.place = &place, .space = place.space, .keys = {keys[i]}, .expected = 1};
        tasks[i] = (struct tasks){.node = node, .waiters = &waiters[i], .count = 1};
        CHECK(i == 0 || reach_turn(&shared->turns, 1) == 0);
        CHECK(pthread_create(&tasks[i].thread, NULL, run_in_thread, &tasks[i]) == 0);
    }
    CHECK_OK(place.rank == 1 ? keep_replies(&place, keys) : 0);
    for (uint32_t i = 0; i < 2 && place.rank == 0; i++) {
        CHECK(pthread_join(tasks[i].thread, NULL) == 0);
        CHECK_OK(tasks[i].rc);
        CHECK_EQUAL(waiters[i].runs, 2);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(await_no_watch(&place));
    return close_place(&place);
}

/* ---- late replies ---- */

#define ROOM 40u /* calls for which late replies leave slots */

/* Many calls of node 0 to node 2 have ended without a reply. The transactions that wait leave some slots. */
static int late_replies(struct remo_node *node, void *ctx) {
    static struct waiter waiters[PAUSED_TASKS];
    struct tasks tasks = {.node = node, .waiters = waiters, .count = PAUSED_TASKS};
    struct remo__rpc_transport *transport;
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    CHECK_OK(remo__rpc_transport_get(node, &transport));
    if (place.rank == 0) {
        atomic_fetch_add(&transport->peers[2].retired[0], REMO__TX_SLOTS_MAX - ROOM);
        atomic_fetch_add(&transport->retired_count, REMO__TX_SLOTS_MAX - ROOM);
        for (uint32_t i = 0; i < PAUSED_TASKS; i++)
            waiters[i] = (struct waiter){
                .place = &place, .space = place.space, .keys = {0, key_of(&place, 1, 0)}, .expected = 1};
        CHECK_OK(run_tasks(&tasks));
        atomic_fetch_sub(&transport->peers[2].retired[0], REMO__TX_SLOTS_MAX - ROOM);
        atomic_fetch_sub(&transport->retired_count, REMO__TX_SLOTS_MAX - ROOM);
    } else if (place.rank == 1) {
        CHECK_OK(await_watches(&place, ROOM));
        CHECK_OK(await_runs(4 * PAUSED_TASKS)); /* those without a watch run again and again */
        CHECK_EQUAL(watches_of(&place), ROOM);
        CHECK_OK(plain_put(&place, key_of(&place, 1, 0), 1));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(await_no_watch(&place));
    return close_place(&place);
}

/* ---- LONG handlers ---- */

struct handler {
    struct place *place;
    uint64_t key;
    _Atomic int result;             /* of the last run; 1: it has not ended */
    _Atomic uint32_t ended, failed; /* runs whose wait has ended by the deadline, or otherwise */
};

/* Open a service with one LONG handler. */
static int open_service(struct remo_node *node, int (*run)(void *ctx, const struct remo_rpc_request *request),
                        struct handler *handler, struct remo_rpc **ret_rpc) {
    const struct remo_rpc_handler wait = {.number = 0, .run = run, .ctx = handler, .kind = REMO_RPC_LONG};
    const struct remo_rpc_options options = {.handlers = &wait, .handler_count = 1};
    CHECK_OK(remo_rpc_open(remo_node_root(node), "wait", &options, ret_rpc));
    CHECK_OK(remo_channel_wait(remo_rpc_channel(*ret_rpc), LONG_TIME));
    return 0;
}

/* LONG: wait for a change, for any time. */
static int wait_for_long(void *ctx, const struct remo_rpc_request *request) {
    struct handler *handler = ctx;
    uint64_t value;
    (void)request;
    int rc = remo_tx_begin(handler->place->tx);
    if (rc == 0)
        rc = read_word(handler->place, handler->place->tx, handler->key, &value);
    if (rc == 0 || rc == -ENOENT)
        rc = remo_tx_wait(handler->place->tx, REMO_FOREVER);
    remo_tx_abort(handler->place->tx);
    atomic_store(&handler->result, rc);
    return rc;
}

/* Wait until the service has started or refused so many requests. */
static int await_requests(struct remo_rpc *rpc, uint64_t expected, uint64_t *ret_started) {
    struct remo_rpc_handler_stats stats = {0};
    CHECK_REACHES((void)remo_rpc_stats(rpc, 0, &stats), stats.requests + stats.expired, expected);
    *ret_started = stats.requests;
    return 0;
}

/* Node 0 calls its handler, which waits for a key of `owner`. The deadline of the call ends the wait. A slow
 * machine may not start the handler in time: then try with more time. */
static int expire(struct remo_rpc *rpc, struct handler *handler, uint64_t *calls, uint64_t *started) {
    uint64_t before = *started;
    for (uint64_t time_ns = SECOND / 20; *started == before; time_ns *= 2) {
        atomic_store(&handler->result, 1);
        CHECK_CODE(remo_rpc_call(rpc, 0, 0, NULL, 0, NULL, 0, NULL, time_ns), -ETIMEDOUT);
        CHECK_OK(await_requests(rpc, ++*calls, started));
    }
    for (uint32_t i = 0; atomic_load(&handler->result) == 1; i++) {
        CHECK(i < 50000);
        cluster_sleep_ms(1);
    }
    CHECK_CODE(atomic_load(&handler->result), -ETIMEDOUT);
    return 0;
}

static int long_handler(struct remo_node *node, void *ctx) {
    struct place place;
    struct remo_rpc *rpc;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    struct handler handler = {.place = &place};
    uint64_t calls = 0, started = 0;
    CHECK(open_service(node, wait_for_long, &handler, &rpc) == 0);
    for (uint32_t owner = 0; owner < 2; owner++) {
        handler.key = key_of(&place, owner, 3);
        CHECK_OK(place.rank == 0 ? expire(rpc, &handler, &calls, &started) : 0);
        CHECK_OK(cluster_meet());
        CHECK_OK(await_no_watch(&place));
        CHECK_OK(cluster_meet());
    }
    remo_rpc_close(rpc);
    return close_place(&place);
}

#define LONG_POLLS 100u /* runs of bodies that have no watch */

/* LONG: wait for keys of all other nodes, which do not change, for any time. */
static int wait_for_all(void *ctx, const struct remo_rpc_request *request) {
    struct handler *handler = ctx;
    struct waiter waiter = {.place = handler->place, .expected = 1};
    (void)request;
    for (uint32_t owner = 1; owner < handler->place->size; owner++)
        waiter.keys[owner - 1] = key_of(handler->place, owner, 0);
    int rc = remo_tx_open(handler->place->space, &waiter.tx);
    if (rc == 0)
        rc = remo_tx_run(waiter.tx, await_last, &waiter, REMO_FOREVER);
    remo_tx_close(waiter.tx);
    atomic_fetch_add(rc == -ETIMEDOUT ? &handler->ended : &handler->failed, 1);
    return rc;
}

/* Node 0 starts as many LONG handlers as can run. Their waits take a part of the slots of their depth, so
 * some poll. The deadline of their requests ends them all. Adds the number that have started to *started. */
static int fill_handlers(struct remo_rpc *rpc, struct handler *handler, uint64_t *calls, uint64_t *started,
                         uint64_t time_ns) {
    struct remo_rpc_op ops[REMO_RPC_LONG_MAX], *list[REMO_RPC_LONG_MAX];
    uint64_t before = *started;
    atomic_store(&shared->runs, 0);
    atomic_store(&handler->ended, 0);
    for (uint32_t i = 0; i < REMO_RPC_LONG_MAX; i++) {
        ops[i] = (struct remo_rpc_op){.node = 0, .number = 0, .timeout_ns = time_ns};
        list[i] = &ops[i];
        CHECK_OK(remo_rpc_start(rpc, list[i]));
    }
    CHECK_OK(remo_rpc_wait_all(list, REMO_RPC_LONG_MAX));
    *calls += REMO_RPC_LONG_MAX;
    CHECK_OK(await_requests(rpc, *calls, started));
    for (uint32_t i = 0; atomic_load(&handler->ended) < *started - before; i++) {
        CHECK(i < 50000 && atomic_load(&handler->failed) == 0);
        cluster_sleep_ms(1);
    }
    return 0;
}

/* Return the largest number of watches that were set at this node until the others end. */
static uint32_t most_watches(struct place *place) {
    uint32_t most = 0;
    while (atomic_load(&shared->turns.turn) == 0) {
        most = remo__max(most, watches_of(place));
        cluster_sleep_ms(1);
    }
    return most;
}

static int long_handlers(struct remo_node *node, void *ctx) {
    struct place place;
    struct remo_rpc *rpc;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    struct handler handler = {.place = &place};
    uint64_t calls = 0, started = 0;
    CHECK(open_service(node, wait_for_all, &handler, &rpc) == 0);
    CHECK_OK(cluster_meet());
    if (place.rank == 0) {
        uint64_t time_ns = SECOND / 4, before = 0;
        do { /* a slow machine needs more time */
            CHECK(time_ns < 20 * SECOND);
            before = started;
            CHECK_OK(fill_handlers(rpc, &handler, &calls, &started, time_ns));
            time_ns *= 2;
        } while (started - before < REMO_RPC_LONG_MAX
                 || atomic_load(&shared->runs) < REMO_RPC_LONG_MAX + LONG_POLLS);
        begin_turn(&shared->turns, 1);
    } else {
        CHECK(most_watches(&place) <= REMO__TX_LONG_CALLS_MAX / (place.size - 1));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(await_no_watch(&place));
    remo_rpc_close(rpc);
    return close_place(&place);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(paused, 2),       CLUSTER_TEST(crowd, CROWDS + 1), CLUSTER_TEST(late_reports, 2),
        CLUSTER_TEST(spaces, 2),       CLUSTER_TEST(unsent_replies, 2), CLUSTER_TEST(late_replies, 3),
        CLUSTER_TEST(long_handler, 2), CLUSTER_TEST(long_handlers, 4),  {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
