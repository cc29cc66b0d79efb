/* test_tx_wait.c - transactions that wait until a key changes, between real nodes: keys that are present and
 * absent, queues, several owners, a table that grows, costs, limits, failures, wrong arguments. */
#include "tx_waits.h"

/* Shared by all processes. */
static struct { _Atomic uint32_t steps; /* of the nodes, in turn */ } * shared;

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

/* Wait until another node has made this step, or make it. */
static int await_step(uint32_t step) {
    uint32_t steps = 0;
    CHECK_REACHES(steps = atomic_load(&shared->steps), steps, step);
    return 0;
}

static void make_step(uint32_t step) {
    atomic_store(&shared->steps, step);
}

/* ---- one key ---- */

struct watcher {
    struct place *place;
    uint64_t key, value; /* the value that is expected; ABSENT: that it is deleted */
    uint32_t runs;
};

#define ABSENT UINT64_MAX

/* Wait until the key has a value. */
static int await_value(void *ctx, struct remo_tx *tx) {
    struct watcher *watcher = ctx;
    uint64_t value = 0;
    watcher->runs++;
    int rc = read_word(watcher->place, tx, watcher->key, &value);
    if (rc == -ENOENT)
        return watcher->value == ABSENT ? 0 : REMO_TX_WAIT;
    return rc != 0 ? rc : value == watcher->value ? 0 : REMO_TX_WAIT;
}

/* Node 0 waits for a key of `owner`. Node `changer` inserts, updates and deletes it, in this order. */
static int watch_key(struct place *place, uint32_t owner, uint32_t changer, uint32_t index) {
    static const uint64_t values[] = {5, 6, ABSENT};
    struct watcher watcher = {.place = place, .key = key_of(place, owner, index)};
    for (uint32_t i = 0; i < 3; i++) {
        watcher.value = values[i];
        watcher.runs = 0;
        if (place->rank == 0) {
            CHECK_OK(remo_tx_run(place->tx, await_value, &watcher, LONG_TIME));
            CHECK_EQUAL(watcher.runs, 2); /* before the change, and after it */
        }
        if (place->rank == owner) {
            CHECK_OK(await_watches(place, 1));
            make_step(1);
        }
        if (place->rank == changer) {
            CHECK_OK(await_step(1));
            CHECK_OK(values[i] == ABSENT
                         ? remo_structure_delete(place->structure, &watcher.key, sizeof watcher.key)
                         : plain_put(place, watcher.key, values[i]));
        }
        CHECK_OK(cluster_meet());
        CHECK_OK(await_no_watch(place));
        make_step(0);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

static int keys(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    CHECK_OK(watch_key(&place, 1, 2, 0)); /* a key of another node, which a third node changes */
    CHECK_OK(watch_key(&place, 1, 1, 1)); /* or its owner */
    return close_place(&place);
}

/* ---- a key of this node ---- */

struct own {
    struct place *place;
    struct watcher watcher;
    struct remo_tx *tx;
    int rc;
};

static void *wait_in_thread(void *ctx) {
    struct own *own = ctx;
    own->rc = remo_tx_run(own->tx, await_value, &own->watcher, LONG_TIME);
    return NULL;
}

/* A thread waits for a key of its node, which another thread or another node changes: a call to this node. */
static int watch_own_key(struct place *place, uint32_t changer) {
    struct own own = {.place = place, .watcher = {place, key_of(place, 0, changer), 7, 0}};
    struct remo_stats before, after;
    pthread_t thread;
    if (place->rank == 0) {
        CHECK_OK(remo_tx_open(place->space, &own.tx));
        remo_channel_stats(remo_tx_space_channel(place->space), &before);
        CHECK(pthread_create(&thread, NULL, wait_in_thread, &own) == 0);
        CHECK_OK(await_watches(place, 1));
        make_step(1);
    }
    if (place->rank == changer) {
        CHECK_OK(await_step(1));
        CHECK_OK(plain_put(place, own.watcher.key, 7));
    }
    if (place->rank == 0) {
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_OK(own.rc);
        CHECK_EQUAL(own.watcher.runs, 2);
        CHECK_REACHES(remo_channel_stats(remo_tx_space_channel(place->space), &after),
                      after.writes - before.writes, 2); /* another thread may have posted the reply */
        CHECK_EQUAL(watches_of(place), 0);
        remo_tx_close(own.tx);
        make_step(0);
    }
    return cluster_meet();
}

static int own_keys(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    CHECK_OK(watch_own_key(&place, 0));
    CHECK_OK(watch_own_key(&place, 1));
    return close_place(&place);
}

/* ---- turns ---- */

#define TURNS 200u

struct turn {
    struct place *place;
    uint64_t key, rank, value;
};

static int take_turn(void *ctx, struct remo_tx *tx) {
    struct turn *turn = ctx;
    turn->value = 0;
    int rc = read_word(turn->place, tx, turn->key, &turn->value);
    if (rc != 0 && rc != -ENOENT)
        return rc;
    return turn->value % 2 == turn->rank ? put_word(turn->place, tx, turn->key, turn->value + 1)
                                         : REMO_TX_WAIT;
}

/* The nodes 0 and 1 increment a key of node `owner` in turns. */
static int turns_at(struct place *place, uint32_t owner) {
    struct turn turn = {.place = place, .key = key_of(place, owner, 0), .rank = place->rank};
    for (uint32_t i = 0; i < TURNS && place->rank < 2; i++) {
        CHECK_OK(remo_tx_run(place->tx, take_turn, &turn, LONG_TIME));
        CHECK_EQUAL(turn.value, 2 * i + place->rank);
    }
    return cluster_meet();
}

static int turns(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    for (uint32_t owner = 0; owner < place.size; owner++)
        CHECK_OK(turns_at(&place, owner));
    return close_place(&place);
}

/* ---- several owners ---- */

#define ROUNDS 400u /* more than the slots for replies of a node */

struct sum {
    struct place *place;
    uint64_t keys[3], expected;
};

/* Wait until the sum of the keys is the expected one. */
static int await_sum(void *ctx, struct remo_tx *tx) {
    struct sum *sum = ctx;
    uint64_t total = 0;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t value = 0;
        int rc = read_word(sum->place, tx, sum->keys[i], &value);
        if (rc != 0 && rc != -ENOENT)
            return rc;
        total += value;
    }
    return total < sum->expected ? REMO_TX_WAIT : 0;
}

static int put_two(void *ctx, struct remo_tx *tx) {
    const struct sum *sum = ctx;
    int rc = put_word(sum->place, tx, sum->keys[1], sum->expected / 2);
    return rc != 0 ? rc : put_word(sum->place, tx, sum->keys[2], sum->expected / 2);
}

/* Node 0 waits for keys of all nodes. Node 1 changes one of them, or two together. */
static int several_owners(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    struct sum sum = {.place = &place,
                      .keys = {key_of(&place, 0, 0), key_of(&place, 1, 0), key_of(&place, 2, 0)}};
    uint64_t base = 0;
    for (uint32_t i = 0; i < ROUNDS && place.rank < 2; i++) {
        bool is_pair = i % 4 == 3;
        base += is_pair ? 100 : 0;
        sum.expected = is_pair ? 2 * base : sum.expected + 1;
        if (place.rank == 0) {
            CHECK_OK(remo_tx_run(place.tx, await_sum, &sum, LONG_TIME));
            make_step(i + 1);
            continue;
        }
        CHECK_OK(await_step(i));
        if (is_pair) {
            CHECK_OK(plain_put(&place, sum.keys[0], 0));
            CHECK_OK(remo_tx_run(place.tx, put_two, &sum, LONG_TIME));
        } else {
            CHECK_OK(plain_put(&place, sum.keys[0], sum.expected - 2 * base));
        }
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(await_no_watch(&place));
    return close_place(&place);
}

/* ---- queues ---- */

#define ELEMENTS 300u

struct work {
    struct place *place;
    uint64_t element;
};

static int consume(void *ctx, struct remo_tx *tx) {
    struct work *work = ctx;
    int rc = remo_tx_queue_pop(tx, work->place->queue, &work->element, sizeof work->element, NULL);
    return rc == -ENOENT ? REMO_TX_WAIT : rc;
}

/* Push when there is room. */
static int produce(void *ctx, struct remo_tx *tx) {
    struct work *work = ctx;
    uint64_t count;
    int rc = remo_tx_queue_count(tx, work->place->queue, &count);
    if (rc == 0 && count >= 3)
        return REMO_TX_WAIT;
    return rc != 0 ? rc : remo_tx_queue_push(tx, work->place->queue, &work->element, sizeof work->element);
}

/* Node 1 produces, node 2 consumes, or the owner of the queue, node 0: each waits for the other one. */
static int queue(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    for (uint32_t consumer = 0; consumer <= 2; consumer += 2) {
        struct work work = {.place = &place};
        for (uint64_t i = 0; i < ELEMENTS && place.rank == 1; i++) {
            work.element = i;
            CHECK_OK(remo_tx_run(place.tx, produce, &work, LONG_TIME));
        }
        for (uint64_t i = 0; i < ELEMENTS && place.rank == consumer; i++) {
            CHECK_OK(remo_tx_run(place.tx, consume, &work, LONG_TIME));
            CHECK_EQUAL(work.element, i);
        }
        CHECK_OK(cluster_meet());
        CHECK_OK(await_no_watch(&place));
        CHECK_OK(cluster_meet());
    }
    return close_place(&place);
}

/* ---- growth ---- */

#define GROWN 2000u

/* Node 0 waits for two keys, one of them absent, while the table at their owner, node 1, grows from 4 keys to
 * many. The growth ends no wait; afterwards a change does. */
static int growth(struct remo_node *node, void *ctx) {
    const struct remo_table_options table = {.capacity = 8, .capacity_max = 4 * GROWN};
    struct place place;
    (void)ctx;
    CHECK(open_place(node, &table, &place) == 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct watcher watcher = {.place = &place, .key = key_of(&place, 1, i), .value = 9};
        CHECK_OK(place.rank == 1 && i == 0 ? plain_put(&place, watcher.key, 1) : 0);
        CHECK_OK(cluster_meet());
        if (place.rank == 0) {
            CHECK_OK(remo_tx_run(place.tx, await_value, &watcher, LONG_TIME));
            CHECK_EQUAL(watcher.runs, 2);
        } else {
            CHECK_OK(await_watches(&place, 1));
            for (uint64_t key = 1; key < GROWN; key++) {
                uint64_t other = 1000000 * (i + 1) + key;
                if (remo_table_owner(place.table, &other, sizeof other) == 1)
                    CHECK_OK(plain_put(&place, other, key));
            }
            CHECK_EQUAL(watches_of(&place), 1);
            CHECK_OK(plain_put(&place, watcher.key, 9));
        }
        CHECK_OK(cluster_meet());
    }
    return close_place(&place);
}

/* ---- the cost of a wait ---- */

/* Begin, and read keys of the nodes 1 and 2, and wait. */
static void *wait_for_two(void *ctx) {
    struct own *own = ctx;
    uint64_t value;
    own->rc = remo_tx_begin(own->tx);
    for (uint32_t owner = 1; owner <= 2 && own->rc == 0; owner++)
        own->rc = read_word(own->place, own->tx, key_of(own->place, owner, 0), &value);
    if (own->rc == 0)
        own->rc = remo_tx_wait(own->tx, LONG_TIME);
    return NULL;
}

static int wait_and_count(struct place *place) {
    struct own own = {.place = place};
    pthread_t thread;
    CHECK_OK(remo_tx_open(place->space, &own.tx));
    struct cost before = cost_of(place), during, after;
    CHECK(pthread_create(&thread, NULL, wait_for_two, &own) == 0);
    CHECK_OK(await_step(2)); /* both watches are set */
    during = cost_of(place);
    CHECK_EQUAL(during.reads - before.reads, 2);
    CHECK_EQUAL(during.writes - before.writes, 2); /* the calls */
    cluster_sleep_ms(200);
    after = cost_of(place);
    CHECK_EQUAL(after.reads, during.reads); /* a transaction that waits does not poll */
    CHECK_EQUAL(after.writes, during.writes);
    make_step(3);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(own.rc);
    after = cost_of(place);
    CHECK_EQUAL(after.reads, during.reads);
    CHECK_EQUAL(after.writes - during.writes, 1); /* node 2 need not watch any more */
    remo_tx_close(own.tx);
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct place place;
    uint64_t value;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    for (uint32_t owner = 1; owner <= 2; owner++)
        CHECK_OK(place.rank == owner ? plain_put(&place, key_of(&place, owner, 0), 1) : 0);
    CHECK_OK(cluster_meet());
    CHECK_OK(place.rank == 0 ? remo_tx_begin(place.tx) : 0);
    for (uint32_t owner = 1; owner <= 2 && place.rank == 0; owner++) /* the pages and places are known now */
        CHECK_OK(read_word(&place, place.tx, key_of(&place, owner, 0), &value));
    remo_tx_abort(place.tx);
    CHECK_OK(cluster_meet());
    struct cost before = cost_of(&place), after;
    if (place.rank == 0) {
        CHECK_OK(wait_and_count(&place));
    } else {
        CHECK_OK(await_watches(&place, 1));
        atomic_fetch_add(&shared->steps, 1);
        CHECK_OK(await_step(3));
        CHECK_OK(place.rank == 1 ? plain_put(&place, key_of(&place, 1, 0), 2) : 0);
        CHECK_OK(await_no_watch(&place));
        CHECK_REACHES(after = cost_of(&place), after.writes - before.writes, 1); /* the reply */
        CHECK_EQUAL(after.reads - before.reads, 0);
    }
    return close_place(&place);
}

/* ---- more waits than a node has ---- */

#define TASKS (REMO__TX_WAITS_MAX + 36)

static int wait_in_task(void *ctx) {
    struct own *own = ctx;
    return remo_tx_run(own->tx, await_value, &own->watcher, LONG_TIME);
}

/* Tasks of node 0 wait, each for another key of node 1, which changes all. Those without a watch poll. */
static int many(struct remo_node *node, void *ctx) {
    static struct own own[TASKS];
    struct remo_scheduler *scheduler;
    remo_task_id ids[TASKS];
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    if (place.rank == 0) {
        const struct remo_scheduler_options options = {.task_count_max = TASKS};
        CHECK_OK(remo_scheduler_open(node, &options, &scheduler));
        for (uint32_t i = 0; i < TASKS; i++) {
            own[i] = (struct own){.place = &place, .watcher = {&place, key_of(&place, 1, i), 3, 0}};
            CHECK_OK(remo_tx_open(place.space, &own[i].tx));
            CHECK_OK(remo_task_spawn(scheduler, wait_in_task, &own[i], &ids[i]));
        }
        for (uint32_t i = 0; i < TASKS; i++) {
            int result = -1;
            CHECK_OK(remo_task_join(scheduler, ids[i], LONG_TIME, &result));
            CHECK_OK(result);
            remo_tx_close(own[i].tx);
        }
        CHECK_OK(remo_scheduler_close(scheduler));
    } else {
        CHECK_OK(await_watches(&place, REMO__TX_WAITS_MAX));
        for (uint32_t i = 0; i < TASKS; i++)
            CHECK_OK(plain_put(&place, key_of(&place, 1, i), 3));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(await_no_watch(&place));
    return close_place(&place);
}

/* Several transactions wait for one key: one change wakes all. */
static int herd(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    struct watcher watcher = {.place = &place, .key = key_of(&place, 3, 0), .value = 1};
    if (place.rank < 3) {
        CHECK_OK(remo_tx_run(place.tx, await_value, &watcher, LONG_TIME));
        CHECK_EQUAL(watcher.runs, 2);
    } else {
        CHECK_OK(await_watches(&place, 3));
        CHECK_OK(plain_put(&place, watcher.key, 1));
        CHECK_EQUAL(watches_of(&place), 0);
    }
    return close_place(&place);
}

/* ---- failures ---- */

/* Node 1, an owner of two, fails while node 0 waits. */
static int owner_fails(struct remo_node *node, void *ctx) {
    struct place place;
    uint64_t value;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    if (place.rank == 1) {
        CHECK_OK(await_watches(&place, 1));
        return cluster_kill(1);
    }
    if (place.rank == 0) {
        CHECK_OK(remo_tx_begin(place.tx));
        for (uint32_t owner = 1; owner <= 2; owner++)
            CHECK_CODE(read_word(&place, place.tx, key_of(&place, owner, 0), &value), -ENOENT);
        CHECK_SENTENCE(remo_tx_wait(place.tx, LONG_TIME), -EHOSTDOWN, "node 1");
        CHECK_CODE(read_word(&place, place.tx, key_of(&place, 2, 0), &value), -ESTALE);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(await_no_watch(&place));
    return close_place(&place);
}

/* Node 0 fails while it waits: the owner forgets its watch. */
static int waiter_fails(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    struct watcher watcher = {.place = &place, .key = key_of(&place, 1, 0), .value = 1};
    if (place.rank == 0) {
        cluster_expect_death();
        return remo_tx_run(place.tx, await_value, &watcher, LONG_TIME);
    }
    CHECK_OK(place.rank == 1 ? await_watches(&place, 1) : 0);
    CHECK_OK(place.rank == 1 ? cluster_kill(0) : 0);
    CHECK_OK(place.rank == 1 ? await_no_watch(&place) : 0);
    CHECK_OK(cluster_meet());
    CHECK_OK(plain_put(&place, watcher.key, 2));
    return close_place(&place);
}

/* Node 1 closes the space while node 0 waits. */
static int space_closes(struct remo_node *node, void *ctx) {
    struct place place;
    uint64_t value;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    if (place.rank == 0) {
        CHECK_OK(remo_tx_begin(place.tx));
        CHECK_CODE(read_word(&place, place.tx, key_of(&place, 1, 0), &value), -ENOENT);
        CHECK_SENTENCE(remo_tx_wait(place.tx, LONG_TIME), -ENOTCONN, "node 1");
    } else {
        CHECK_OK(await_watches(&place, 1));
        remo_tx_close(place.tx);
        remo_tx_space_close(place.space);
        place.tx = NULL;
        place.space = NULL;
        CHECK_OK(plain_put(&place, key_of(&place, 1, 0), 1));
    }
    return close_place(&place);
}

/* ---- wrong arguments ---- */

static struct place *place_of_handler;

/* Read a key of this node, and wait. */
static int wait_in_handler(void *ctx, const struct remo_rpc_request *request) {
    uint64_t value;
    struct remo_tx *tx = ctx;
    (void)request;
    if (remo_tx_begin(tx) != 0)
        return -EINVAL;
    (void)read_word(place_of_handler, tx, key_of(place_of_handler, place_of_handler->rank, 0), &value);
    return remo_tx_wait(tx, LONG_TIME);
}

static int check_handler(struct place *place) {
    const struct remo_rpc_handler handler = {.number = 0, .run = wait_in_handler, .ctx = place->tx};
    const struct remo_rpc_options options = {.handlers = &handler, .handler_count = 1};
    struct remo_rpc *rpc;
    place_of_handler = place;
    CHECK_OK(remo_rpc_open(remo_node_root(place->node), "wait", &options, &rpc));
    CHECK_OK(remo_channel_wait(remo_rpc_channel(rpc), LONG_TIME));
    CHECK_CODE(remo_rpc_call(rpc, 1 - place->rank, 0, NULL, 0, NULL, 0, NULL, LONG_TIME), -EDEADLK);
    CHECK_OK(cluster_meet());
    remo_rpc_close(rpc);
    return 0;
}

static int only_put(void *ctx, struct remo_tx *tx) {
    struct place *place = ctx;
    int rc = put_word(place, tx, 1, 1);
    return rc != 0 ? rc : REMO_TX_WAIT;
}

static int always_wait(void *ctx, struct remo_tx *tx) {
    struct watcher *watcher = ctx;
    uint64_t value;
    watcher->runs++;
    int rc = read_word(watcher->place, tx, watcher->key, &value);
    return rc == 0 || rc == -ENOENT ? REMO_TX_WAIT : rc;
}

/* No key changes. A slow machine may need more time before the wait. */
static int run_out_of_time(struct place *place, struct watcher *watcher) {
    uint64_t time_ns = SECOND / 20;
    do {
        watcher->runs = 0;
        CHECK_CODE(remo_tx_run(place->tx, always_wait, watcher, time_ns), -ETIMEDOUT);
        CHECK_EQUAL(watcher->runs, 1);
        time_ns *= 2;
        CHECK(time_ns < LONG_TIME);
    } while (!strstr(remo_last_error(), "in time"));
    return 0;
}

static int check_arguments(struct place *place) {
    struct watcher watcher = {.place = place, .key = key_of(place, 1 - place->rank, 5)};
    struct remo_tx_conflict conflict;
    CHECK_SENTENCE(remo_tx_wait(NULL, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_tx_wait(place->tx, 0), -ESTALE, "remo_tx_begin");
    CHECK_SENTENCE(remo_tx_run(place->tx, only_put, place, LONG_TIME), -EINVAL, "no key");
    CHECK_OK(remo_tx_begin(place->tx)); /* the last one has ended */
    remo_tx_abort(place->tx);
    CHECK_SENTENCE(remo_tx_run(place->tx, always_wait, &watcher, 0), -ETIMEDOUT, "no time");
    CHECK_EQUAL(watcher.runs, 1);
    CHECK_OK(run_out_of_time(place, &watcher));
    CHECK_CODE(remo_tx_last_conflict(place->tx, &conflict), -ENOENT);
    watcher.key = key_of(place, place->rank, 5);
    CHECK_OK(run_out_of_time(place, &watcher));
    return cluster_meet();
}

/* The keys of one owner are too long for one request. */
static int check_long_keys(struct place *place, const struct place *long_keys) {
    char key[300];
    uint32_t count = 0;
    CHECK_OK(remo_tx_begin(place->tx));
    for (uint32_t i = 0; count < 20; i++) {
        memset(key, 'k', sizeof key);
        memcpy(key, &i, sizeof i);
        if (remo_table_owner(long_keys->table, key, sizeof key) == place->rank)
            continue;
        CHECK_CODE(remo_tx_read(place->tx, long_keys->structure, key, sizeof key, NULL, 0, NULL), -ENOENT);
        count++;
    }
    CHECK_SENTENCE(remo_tx_wait(place->tx, LONG_TIME), -EMSGSIZE, "read fewer");
    return 0;
}

static int bad_arguments(struct remo_node *node, void *ctx) {
    const struct remo_table_options table = {.key_bytes_max = 300};
    struct place place;
    (void)ctx;
    CHECK(open_place(node, &table, &place) == 0);
    CHECK_OK(check_arguments(&place));
    CHECK_OK(check_long_keys(&place, &place));
    CHECK_OK(cluster_meet());
    CHECK_OK(check_handler(&place));
    CHECK_OK(await_no_watch(&place));
    return close_place(&place);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(keys, 3),          CLUSTER_TEST(own_keys, 2),
        CLUSTER_TEST(turns, 3),         CLUSTER_TEST(several_owners, 3),
        CLUSTER_TEST(queue, 3),         CLUSTER_TEST(growth, 2),
        CLUSTER_TEST(costs, 3),         CLUSTER_TEST(many, 2),
        CLUSTER_TEST(herd, 4),          CLUSTER_TEST(owner_fails, 3),
        CLUSTER_TEST(waiter_fails, 3),  CLUSTER_TEST(space_closes, 2),
        CLUSTER_TEST(bad_arguments, 2), {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
