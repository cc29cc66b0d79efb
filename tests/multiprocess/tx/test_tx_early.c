/* test_tx_early.c - transactions with early locks, between real nodes: the cost of locks and commits,
 * conflicts, aborts, limits, waits, and the failure of a coordinator, an owner and the decider that hold
 * locks. Transfers and failures at random moments: test_tx_owners.c. */
#include <signal.h>
#include <unistd.h>

#include "tx_place.h"

#define COMMITS_MAX 32u   /* REMO__TX_COMMITS_MAX */
#define VALUE_BYTES 1500u /* two fit in a message, three do not */

/* Open a queue for 2 elements too, and two transactions. */
static int open_place(struct remo_node *node, struct place *ret_place) {
    const struct remo_table_options table = {.value_bytes_max = VALUE_BYTES};
    const struct remo_tx_queue_options queue = {.capacity = 2};
    CHECK(open_locking(node, &table, &queue, REMO_TX_EARLY, ret_place) == 0);
    CHECK_OK(remo_tx_open(ret_place->space, &ret_place->other));
    return 0;
}

static int lock_word(struct place *place, struct remo_tx *tx, uint64_t key, uint64_t *ret_value) {
    return remo_tx_read_for_update(tx, place->structure, &key, sizeof key, ret_value, sizeof *ret_value,
                                   NULL);
}

static int read_word(struct place *place, struct remo_tx *tx, uint64_t key, uint64_t *ret_value) {
    return remo_tx_read(tx, place->structure, &key, sizeof key, ret_value, sizeof *ret_value, NULL);
}

static int put_word(struct place *place, struct remo_tx *tx, uint64_t key, uint64_t value) {
    return remo_tx_put(tx, place->structure, &key, sizeof key, &value, sizeof value);
}

static int delete_word(struct place *place, struct remo_tx *tx, uint64_t key) {
    return remo_tx_delete(tx, place->structure, &key, sizeof key);
}

/* The key has a value, and is not locked. */
static int check_word(struct place *place, uint64_t key, uint64_t expected) {
    uint64_t value = 0;
    CHECK_OK(plain_read(place, key, &value));
    CHECK_EQUAL(value, expected);
    return 0;
}

/* ---- costs ---- */

/* Check the cost since `before`. Calls for which the commit or abort does not wait may follow it. */
static int check_cost(struct place *place, struct cost before, uint64_t reads, uint64_t writes) {
    struct cost after;
    CHECK_REACHES(after = cost_of(place), after.writes - before.writes, writes);
    CHECK_EQUAL(after.writes - before.writes, writes);
    CHECK_EQUAL(after.reads - before.reads, reads);
    return 0;
}

/* A call is 1 write of its caller. */
static int check_costs_of_commits(struct place *place) {
    uint64_t value;
    for (uint32_t count = 1; count <= 4; count++) { /* keys of one owner: a call for each, and 1 */
        struct cost before = cost_of(place);
        CHECK_OK(remo_tx_begin(place->tx));
        for (uint32_t i = 0; i < count; i++) {
            CHECK_CODE(lock_word(place, place->tx, key_of(place, 1, i), &value), i + 1 < count ? 0 : -ENOENT);
            CHECK_OK(put_word(place, place->tx, key_of(place, 1, i), count));
        }
        CHECK_OK(remo_tx_commit(place->tx));
        CHECK(check_cost(place, before, 0, count + 1) == 0);
    }
    struct cost before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx)); /* 2 owners: 2 locks, the decision, and another message */
    CHECK_OK(put_word(place, place->tx, key_of(place, 1, 0), 9));
    CHECK_OK(put_word(place, place->tx, key_of(place, 2, 0), 9));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(check_cost(place, before, 0, 4) == 0);
    before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx)); /* this node and another one */
    CHECK_OK(put_word(place, place->tx, key_of(place, 0, 0), 9));
    CHECK_OK(put_word(place, place->tx, key_of(place, 2, 0), 10));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(check_cost(place, before, 0, 2) == 0);
    before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx)); /* this node alone */
    CHECK_OK(put_word(place, place->tx, key_of(place, 0, 0), 11));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(check_cost(place, before, 0, 0) == 0);
    return 0;
}

static int check_other_costs(struct place *place) {
    uint64_t value;
    struct cost before = cost_of(place);
    CHECK_OK(plain_read(place, key_of(place, 2, 0), &value)); /* its page and place are known now */
    before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx)); /* a read and its validation, a lock, and the decision */
    CHECK_OK(read_word(place, place->tx, key_of(place, 2, 0), &value));
    CHECK_OK(lock_word(place, place->tx, key_of(place, 1, 0), &value));
    CHECK_OK(read_word(place, place->tx, key_of(place, 1, 0), &value)); /* none */
    CHECK_OK(put_word(place, place->tx, key_of(place, 1, 0), value + 1));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(check_cost(place, before, 2, 2) == 0);
    before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx)); /* a lock, and a message that unlocks */
    CHECK_OK(lock_word(place, place->tx, key_of(place, 1, 0), &value));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(check_cost(place, before, 0, 2) == 0);
    before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(lock_word(place, place->tx, key_of(place, 1, 0), &value));
    remo_tx_abort(place->tx);
    CHECK(check_cost(place, before, 0, 2) == 0);
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    if (place.rank == 0) {
        CHECK(check_costs_of_commits(&place) == 0);
        CHECK(check_other_costs(&place) == 0);
        CHECK(check_word(&place, key_of(&place, 1, 1), 4) == 0);
        CHECK(check_word(&place, key_of(&place, 1, 0), 10) == 0);
        CHECK(check_word(&place, key_of(&place, 2, 0), 10) == 0);
        CHECK(check_word(&place, key_of(&place, 0, 0), 11) == 0);
    }
    return close_place(&place);
}

/* ---- conflicts and aborts ---- */

static int check_conflict(struct place *place, uint64_t key, enum remo_tx_conflict_kind kind) {
    struct remo_tx_conflict conflict;
    CHECK_OK(remo_tx_last_conflict(place->other, &conflict));
    CHECK_EQUAL(conflict.kind, kind);
    CHECK_EQUAL(conflict.key_bytes, sizeof key);
    CHECK(memcmp(conflict.key, &key, sizeof key) == 0);
    return 0;
}

/* One transaction holds a lock; another one of the node is in conflict at once, and can only abort. */
static int check_busy(struct place *place, uint64_t key, uint64_t free_key) {
    uint64_t value;
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(lock_word(place, place->tx, key, &value));
    CHECK_OK(remo_tx_begin(place->other));
    CHECK_OK(put_word(place, place->other, free_key, 99));
    CHECK_CODE(lock_word(place, place->other, key, &value), -EAGAIN);
    CHECK(check_conflict(place, key, REMO_TX_LOCKED) == 0);
    CHECK_CODE(put_word(place, place->other, free_key + 1, 99), -EAGAIN); /* no more locks */
    CHECK_CODE(remo_tx_commit(place->other), -EAGAIN);
    CHECK(check_conflict(place, key, REMO_TX_LOCKED) == 0);
    CHECK_OK(remo_tx_begin(place->other));
    int rc = read_word(place, place->other, key, &value); /* a read by the network finds a locked item */
    CHECK_CODE(rc, remo_table_owner(place->table, &key, sizeof key) == 0 ? -EAGAIN : 0);
    CHECK_CODE(rc == 0 ? remo_tx_commit(place->other) : rc, -EAGAIN);
    CHECK(check_conflict(place, key, REMO_TX_LOCKED) == 0);
    remo_tx_abort(place->other);
    remo_tx_abort(place->tx);
    CHECK(check_word(place, free_key, 1) == 0);
    CHECK_OK(plain_put(place, key, 1)); /* it is unlocked */
    return 0;
}

/* A key has changed between a read and the lock. */
static int check_changed(struct place *place, uint64_t key, uint64_t absent) {
    uint64_t value;
    CHECK_OK(remo_tx_begin(place->other));
    CHECK_OK(read_word(place, place->other, key, &value));
    CHECK_OK(plain_put(place, key, 2));
    CHECK_CODE(put_word(place, place->other, key, 3), -EAGAIN);
    CHECK(check_conflict(place, key, REMO_TX_CHANGED) == 0);
    remo_tx_abort(place->other);
    CHECK_OK(remo_tx_begin(place->other));
    CHECK_CODE(read_word(place, place->other, absent, &value), -ENOENT);
    CHECK_OK(plain_put(place, absent, 4));
    CHECK_CODE(lock_word(place, place->other, absent, &value), -EAGAIN);
    CHECK(check_conflict(place, absent, REMO_TX_APPEARED) == 0);
    remo_tx_abort(place->other);
    CHECK(check_word(place, key, 2) == 0);
    CHECK(check_word(place, absent, 4) == 0);
    return 0;
}

/* An absent key that is locked cannot be inserted by others; it is absent again afterwards. */
static int check_absent(struct place *place, uint64_t absent) {
    uint64_t value;
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(remo_tx_begin(place->tx));
        CHECK_CODE(lock_word(place, place->tx, absent, &value), -ENOENT);
        CHECK_OK(remo_tx_begin(place->other));
        CHECK_CODE(put_word(place, place->other, absent, 5), -EAGAIN);
        remo_tx_abort(place->other);
        if (i == 1) { /* a new key that the transaction deletes again */
            CHECK_OK(put_word(place, place->tx, absent, 6));
            CHECK_OK(delete_word(place, place->tx, absent));
        }
        if (i == 2)
            remo_tx_abort(place->tx);
        else
            CHECK_OK(remo_tx_commit(place->tx));
        CHECK_CODE(plain_read(place, absent, &value), -ENOENT);
    }
    CHECK_OK(plain_put(place, absent, 7));
    return 0;
}

static int conflicts(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    for (uint32_t owner = 0; owner < 2 && place.rank == 0; owner++) {
        for (uint32_t i = 0; i < 3; i++)
            CHECK_OK(plain_put(&place, key_of(&place, owner, i), 1));
        CHECK(check_busy(&place, key_of(&place, owner, 0), key_of(&place, owner, 1)) == 0);
        CHECK(check_changed(&place, key_of(&place, owner, 0), key_of(&place, owner, 5)) == 0);
        CHECK(check_absent(&place, key_of(&place, owner, 6)) == 0);
    }
    return close_place(&place);
}

/* A transaction finds keys absent in the places into which it inserts others: it is not in conflict with
 * itself, and a key that appears is detected. */
static int absent(struct remo_node *node, void *ctx) {
    struct place place;
    uint64_t value;
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    for (uint32_t i = 0; i < 100 && place.rank == 0; i++) {
        CHECK_OK(remo_tx_begin(place.tx));
        for (uint32_t j = 0; j < 10; j++)
            CHECK_CODE(read_word(&place, place.tx, key_of(&place, 1, 20 * i + j), &value), -ENOENT);
        for (uint32_t j = 10; j < 20; j++)
            CHECK_OK(put_word(&place, place.tx, key_of(&place, 1, 20 * i + j), j));
        CHECK_OK(remo_tx_check(place.tx));
        if (i % 2 == 1)
            CHECK_OK(plain_put(&place, key_of(&place, 1, 20 * i + 5), 1));
        CHECK_CODE(remo_tx_commit(place.tx), i % 2 == 1 ? -EAGAIN : 0);
        for (uint32_t j = 10; j < 20; j++)
            CHECK_CODE(plain_read(&place, key_of(&place, 1, 20 * i + j), &value), i % 2 == 1 ? -ENOENT : 0);
    }
    return close_place(&place);
}

/* ---- limits ---- */

/* A node has so many transactions with locks at most. */
static int check_entries(struct place *place) {
    struct remo_tx *txs[COMMITS_MAX];
    for (uint32_t i = 0; i < COMMITS_MAX; i++) {
        CHECK_OK(remo_tx_open(place->space, &txs[i]));
        CHECK_OK(remo_tx_begin(txs[i]));
        CHECK_OK(put_word(place, txs[i], key_of(place, 1, i), i));
    }
    uint64_t before = cluster_set_op_timeout(place->node, SECOND / 50);
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_CODE(put_word(place, place->tx, key_of(place, 1, COMMITS_MAX), 1), -ETIMEDOUT);
    CHECK_CODE(remo_tx_commit(place->tx), -ETIMEDOUT);
    cluster_set_op_timeout(place->node, before);
    remo_tx_close(txs[0]); /* aborts it */
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(put_word(place, place->tx, key_of(place, 1, COMMITS_MAX), 1));
    CHECK_OK(remo_tx_commit(place->tx));
    for (uint32_t i = 1; i < COMMITS_MAX; i++) {
        CHECK_OK(remo_tx_commit(txs[i]));
        remo_tx_close(txs[i]);
        CHECK(check_word(place, key_of(place, 1, i), i) == 0);
    }
    return 0;
}

/* The new values of all owners are in one message. */
static int check_bytes(struct place *place) {
    char value[VALUE_BYTES] = {1};
    for (uint32_t count = 2; count <= 3; count++) {
        CHECK_OK(remo_tx_begin(place->tx));
        for (uint32_t i = 0; i < count; i++) {
            uint64_t key = key_of(place, 1 + i % 2, 40 + i);
            CHECK_OK(remo_tx_put(place->tx, place->structure, &key, sizeof key, value, sizeof value));
        }
        CHECK_CODE(remo_tx_commit(place->tx), count == 2 ? 0 : -EMSGSIZE);
    }
    CHECK_OK(plain_put(place, key_of(place, 1, 42), 1)); /* not locked */
    return 0;
}

/* There is no room for the value of a key that is locked: the key does not count as absent. */
static int check_room(struct place *place) {
    char value[VALUE_BYTES] = {1};
    const uint32_t count =
        REMO_TX_BYTES_MAX / VALUE_BYTES; /* the last one does not fit, because of the keys */
    uint64_t last = key_of(place, 1, 60 + count);
    CHECK_EQUAL(remo_structure_put(place->structure, &last, sizeof last, value, sizeof value), 0);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = key_of(place, 1, 60 + i);
        CHECK_OK(remo_structure_put(place->structure, &key, sizeof key, value, sizeof value));
    }
    CHECK_OK(remo_tx_begin(place->tx));
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = key_of(place, 1, 60 + i);
        CHECK_OK(remo_tx_read_for_update(place->tx, place->structure, &key, sizeof key, value, sizeof value,
                                         NULL));
    }
    for (uint32_t i = 0; i < 2; i++)
        CHECK_CODE(remo_tx_read_for_update(place->tx, place->structure, &last, sizeof last, value,
                                           sizeof value, NULL),
                   -EMSGSIZE);
    CHECK_CODE(remo_tx_insert(place->tx, place->structure, &last, sizeof last, value, 1), -EMSGSIZE);
    CHECK_CODE(remo_tx_commit(place->tx), -EMSGSIZE);
    CHECK_OK(plain_put(place, last, 1)); /* not locked */
    return 0;
}

/* A push that finds the queue full fails at once. */
static int check_queue(struct place *place) {
    uint64_t value = 0;
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_OK(remo_tx_begin(place->tx));
        CHECK_CODE(remo_tx_queue_push(place->tx, place->queue, &i, sizeof i), i < 2 ? 0 : -ENOSPC);
        if (i < 2)
            CHECK_OK(remo_tx_commit(place->tx));
    }
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_OK(remo_tx_begin(place->tx));
        CHECK_CODE(remo_tx_queue_pop(place->tx, place->queue, &value, sizeof value, NULL),
                   i < 2 ? 0 : -ENOENT);
        CHECK_OK(remo_tx_commit(place->tx));
        CHECK_EQUAL(value, i < 2 ? i : 1);
    }
    return 0;
}

static int limits(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    if (place.rank == 0) {
        CHECK(check_entries(&place) == 0);
        CHECK(check_bytes(&place) == 0);
        CHECK(check_room(&place) == 0);
        CHECK(check_queue(&place) == 0);
    }
    return close_place(&place);
}

/* Node 1 has not opened the space: the locks of node 0 fail, and nothing of them is left that would wait for
 * node 1, also not when node 0 closes the space. */
static int not_open(struct remo_node *node, void *ctx) {
    struct place place = {.node = node, .rank = remo_node_rank(node)};
    const struct remo_table_options table = {.value_bytes_max = VALUE_BYTES};
    (void)ctx;
    CHECK_OK(remo_table_open(remo_node_root(node), "table", &table, &place.table));
    CHECK_OK(remo_channel_wait(remo_node_root(node), LONG_TIME));
    place.structure = remo_table_structure(place.table);
    const struct remo_tx_space_options space = {
        .structures = &place.structure, .structure_count = 1, .locks = REMO_TX_EARLY};
    CHECK_OK(cluster_meet());
    if (place.rank == 0) {
        CHECK_OK(remo_tx_space_open(remo_node_root(node), "tx", &space, &place.space));
        CHECK_OK(remo_tx_open(place.space, &place.tx));
        uint64_t before = cluster_set_op_timeout(node, SECOND / 1000);
        for (uint32_t i = 0; i <= COMMITS_MAX; i++) {
            CHECK_OK(remo_tx_begin(place.tx));
            CHECK_SENTENCE(put_word(&place, place.tx, key_of(&place, 1, 0), 1), -ETIMEDOUT, "has not opened");
            remo_tx_abort(place.tx);
        }
        cluster_set_op_timeout(node, before);
        remo_tx_close(place.tx);
        remo_tx_space_close(place.space);
    }
    CHECK_OK(cluster_meet());
    remo_table_close(place.table);
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- waits ---- */

struct waiting {
    struct place *place;
    uint32_t runs;
};

/* Wait until the key has the value 2. */
static int await_two(void *ctx, struct remo_tx *tx) {
    struct waiting *waiting = ctx;
    uint64_t value = 0;
    waiting->runs++;
    int rc = lock_word(waiting->place, tx, key_of(waiting->place, 1, 0), &value);
    if (rc != 0 && rc != -ENOENT)
        return rc;
    return value == 2 ? 0 : REMO_TX_WAIT;
}

/* A transaction that waits holds no locks: the node that changes the key needs them. */
static int waits(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    if (place.rank == 0) {
        struct waiting waiting = {.place = &place};
        CHECK_OK(remo_tx_run(place.tx, await_two, &waiting, LONG_TIME));
        CHECK(waiting.runs >= 1);
    } else {
        for (uint64_t value = 1; value <= 2; value++)
            CHECK_OK(plain_put(&place, key_of(&place, 1, 0), value));
    }
    return close_place(&place);
}

/* ---- failures ---- */

/* Node 2 locks keys of the nodes 0 and 1, and is killed: both unlock them. */
static int coordinator_fails(struct remo_node *node, void *ctx) {
    struct place place;
    uint64_t value;
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    if (place.rank == 2) {
        cluster_expect_death();
        CHECK_OK(remo_tx_begin(place.tx));
        CHECK_OK(put_word(&place, place.tx, key_of(&place, 0, 0), 1));
        CHECK_OK(put_word(&place, place.tx, key_of(&place, 1, 0), 1));
        CHECK_CODE(lock_word(&place, place.tx, key_of(&place, 1, 1), &value), -ENOENT);
        CHECK_OK(cluster_meet());
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(cluster_meet());
    CHECK_CODE(plain_read(&place, key_of(&place, 1 - place.rank, 0), &value), -ENOENT);
    cluster_await_cut_off(node, 2);
    CHECK_OK(cluster_meet());
    CHECK_OK(plain_put(&place, key_of(&place, 1 - place.rank, 0), 2));
    CHECK_OK(plain_put(&place, key_of(&place, 1 - place.rank, 1), 2));
    return close_place(&place);
}

/* An owner fails while a transaction of node 0 has locked its key. The commit fails, and the key of the other
 * owner is unlocked. `ctx` is the rank that fails: the decider is node 1. */
static int owner_fails(struct remo_node *node, void *ctx) {
    const uint32_t lost = *(const uint32_t *)ctx, left = 3 - lost;
    struct place place;
    uint64_t value;
    CHECK(open_place(node, &place) == 0);
    if (place.rank == 0) {
        CHECK_OK(remo_tx_begin(place.tx));
        CHECK_OK(put_word(&place, place.tx, key_of(&place, 1, 0), 1));
        CHECK_OK(put_word(&place, place.tx, key_of(&place, 2, 0), 1));
        CHECK_OK(put_word(&place, place.tx, key_of(&place, 0, 0), 1));
    }
    CHECK_OK(cluster_meet());
    if (place.rank == lost) {
        cluster_expect_death();
        kill(getpid(), SIGKILL);
    }
    cluster_await_cut_off(node, lost);
    CHECK_OK(cluster_meet());
    if (place.rank == 0) {
        enum remo_tx_fate fate;
        CHECK_CODE(remo_tx_commit(place.tx), -EHOSTDOWN);
        CHECK_OK(remo_tx_settle(place.tx, 0, &fate));
        CHECK_EQUAL(fate, REMO_TX_NOT_COMMITTED);
        CHECK_CODE(plain_read(&place, key_of(&place, left, 0), &value), -ENOENT);
        CHECK_CODE(plain_read(&place, key_of(&place, 0, 0), &value), -ENOENT);
        CHECK_OK(remo_tx_begin(place.tx)); /* the lock of a lost node */
        CHECK_CODE(put_word(&place, place.tx, key_of(&place, lost, 0), 1), -EHOSTDOWN);
        CHECK_CODE(remo_tx_commit(place.tx), -EHOSTDOWN);
    }
    return close_place(&place);
}

int main(int argc, char **argv) {
    static uint32_t decider = 1, another = 2;
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(costs, 3),
        CLUSTER_TEST(conflicts, 2),
        CLUSTER_TEST(absent, 2),
        CLUSTER_TEST(limits, 3),
        CLUSTER_TEST(not_open, 2),
        CLUSTER_TEST(waits, 2),
        CLUSTER_TEST(coordinator_fails, 3),
        CLUSTER_TEST_NAMED("decider_fails", owner_fails, 3, .ctx = &decider),
        CLUSTER_TEST_NAMED("another_owner_fails", owner_fails, 3, .ctx = &another),
        {0}};
    return cluster_main(argc, argv, tests, NULL);
}
