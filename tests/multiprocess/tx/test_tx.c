/* test_tx.c - transactions between real nodes: the steps of one transaction, the cost of each call, transfers
 * between accounts by threads and tasks, a full table, wrong arguments, the failure of an owner. */
#include <stdlib.h>

#include "../../support/turns.h"
#include "tx_words.h"

static struct turns *turns; /* shared by all processes */

/* ---- open, keys ---- */

static int open_place(struct remo_node *node, const struct remo_table_options *options,
                      struct place *ret_place) {
    return open_objects(node, options, NULL, ret_place);
}

/* ---- the steps of one transaction ---- */

/* A transaction sees its own changes; other lookups see them after the commit. */
static int own_changes(struct place *place, uint64_t a, uint64_t b) {
    uint64_t value = 0;
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_CODE(read_word(place, a, &value), -ENOENT);
    CHECK_CODE(update_word(place, a, 1), -ENOENT);
    CHECK_CODE(delete_word(place, a), -ENOENT);
    CHECK_OK(insert_word(place, a, 1));
    CHECK_CODE(insert_word(place, a, 2), -EEXIST);
    CHECK_OK(read_word(place, a, &value));
    CHECK_EQUAL(value, 1);
    CHECK_OK(update_word(place, a, 3));
    CHECK_OK(put_word(place, b, 4));
    CHECK_OK(read_word(place, b, &value));
    CHECK_EQUAL(value, 4);
    CHECK_CODE(plain_read(place, a, &value), -ENOENT);
    CHECK_OK(remo_tx_check(place->tx));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK_OK(plain_read(place, a, &value));
    CHECK_EQUAL(value, 3);
    CHECK_OK(plain_read(place, b, &value));
    CHECK_EQUAL(value, 4);
    return 0;
}

/* Keys that are deleted, and inserted and deleted, in one transaction; an aborted one. */
static int deletes(struct place *place, uint64_t a, uint64_t b) {
    uint64_t value = 0, other = a + b + 1000;
    while (remo_table_owner(place->table, &other, sizeof other)
           != remo_table_owner(place->table, &a, sizeof a))
        other++;
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(delete_word(place, a));
    CHECK_CODE(read_word(place, a, &value), -ENOENT);
    CHECK_OK(put_word(place, other, 1));
    CHECK_OK(delete_word(place, other));
    CHECK_CODE(read_word(place, other, &value), -ENOENT);
    CHECK_OK(delete_word(place, b));
    CHECK_OK(insert_word(place, b, 5));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK_CODE(plain_read(place, a, &value), -ENOENT);
    CHECK_CODE(plain_read(place, other, &value), -ENOENT);
    CHECK_OK(plain_read(place, b, &value));
    CHECK_EQUAL(value, 5);
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(put_word(place, b, 6));
    remo_tx_abort(place->tx);
    CHECK_OK(plain_read(place, b, &value));
    CHECK_EQUAL(value, 5);
    return 0;
}

/* Each kind of conflict, of a transaction that only reads and of one that changes. */
static int conflicts(struct place *place, uint64_t a, uint64_t b, uint64_t absent) {
    uint64_t value = 0;
    for (uint32_t changes = 0; changes < 2; changes++) {
        CHECK_OK(plain_put(place, a, 1));
        CHECK_OK(remo_tx_begin(place->tx));
        CHECK_OK(read_word(place, a, &value));
        CHECK_OK(plain_put(place, a, 2));
        CHECK_OK(changes ? put_word(place, b, 7) : read_word(place, b, &value));
        CHECK(expect_conflict(place, remo_tx_check(place->tx), a, REMO_TX_CHANGED) == 0);
        CHECK(expect_conflict(place, remo_tx_commit(place->tx), a, REMO_TX_CHANGED) == 0);
        CHECK_CODE(remo_tx_commit(place->tx), -ESTALE);
        CHECK_OK(remo_tx_begin(place->tx));
        CHECK_CODE(read_word(place, absent, &value), -ENOENT);
        CHECK_OK(plain_put(place, absent, 3));
        CHECK_OK(changes ? put_word(place, b, 7) : read_word(place, b, &value));
        CHECK(expect_conflict(place, remo_tx_commit(place->tx), absent, REMO_TX_APPEARED) == 0);
        CHECK_OK(remo_structure_delete(place->structure, &absent, sizeof absent));
    }
    CHECK_OK(plain_read(place, b, &value));
    CHECK(value != 7);
    return 0;
}

static int steps(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    for (uint32_t owner = 0; owner < remo_node_size(node) && remo_node_rank(node) == 0; owner++) {
        uint64_t a = key_of(&place, owner, 0), b = key_of(&place, owner, 1);
        CHECK(own_changes(&place, a, b) == 0);
        CHECK(deletes(&place, a, b) == 0);
        CHECK(conflicts(&place, a, b, key_of(&place, owner, 2)) == 0);
    }
    return close_place(&place);
}

/* ---- costs ---- */

/* The keys of node 0, at node 1. The owner's reply to a call is a write of the owner. */
static int costs_of_peer(struct place *place) {
    enum { KEYS = 5 };
    uint64_t keys[KEYS + 1], value = 0;
    for (uint32_t i = 0; i <= KEYS; i++)
        keys[i] = key_of(place, 0, i);
    CHECK_OK(remo_tx_begin(place->tx));
    struct cost before = cost_of(place);
    for (uint32_t i = 0; i < KEYS; i++)
        CHECK_OK(put_word(place, keys[i], i));
    CHECK(expect_cost(place, before, 0, 0) == 0);
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(expect_cost(place, before, 0, 1) == 0);

    CHECK_OK(remo_tx_begin(place->tx));
    before = cost_of(place);
    for (uint32_t i = 0; i < 2 * KEYS; i++)
        CHECK_OK(read_word(place, keys[i % KEYS], &value));
    CHECK(expect_cost(place, before, KEYS, 0) == 0);
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(expect_cost(place, before, 2 * KEYS - 1, 0) == 0);

    CHECK_OK(remo_tx_begin(place->tx));
    before = cost_of(place);
    CHECK_CODE(read_word(place, keys[KEYS], &value), -ENOENT);
    CHECK_OK(read_word(place, keys[0], &value));
    CHECK_OK(remo_tx_commit(place->tx)); /* the absent key once more */
    CHECK(expect_cost(place, before, 3, 0) == 0);

    CHECK_OK(remo_tx_begin(place->tx));
    before = cost_of(place);
    CHECK_OK(read_word(place, keys[0], &value));
    CHECK_OK(update_word(place, keys[0], value + 1));
    CHECK_OK(update_word(place, keys[1], 1));
    CHECK_OK(delete_word(place, keys[2]));
    CHECK_OK(insert_word(place, keys[KEYS], 1));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(expect_cost(place, before, 4, 1) == 0);
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct place place;
    uint64_t value;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    if (remo_node_rank(node) == 0) { /* first: it counts a reply to a peer late */
        struct cost before = cost_of(&place);
        CHECK_OK(remo_tx_begin(place.tx));
        CHECK_CODE(read_word(&place, key_of(&place, 0, 10), &value), -ENOENT);
        CHECK_OK(put_word(&place, key_of(&place, 0, 11), 1));
        CHECK_OK(remo_tx_commit(place.tx));
        CHECK(expect_cost(&place, before, 0, 0) == 0);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1)
        CHECK(costs_of_peer(&place) == 0);
    return close_place(&place);
}

/* ---- threads and tasks ---- */

#define ACCOUNTS 8u
#define ROUNDS 1500u
#define THREADS 3u
#define EACH 1000u

struct worker {
    struct place place; /* with a transaction of its own */
    uint32_t owner, number;
    uint64_t from, to, amount;
    int result;
};

/* Move money between two accounts of one owner; an empty account is absent. */
static int transfer(void *ctx, struct remo_tx *tx) {
    struct worker *worker = ctx;
    struct place *place = &worker->place;
    uint64_t from = 0, to = 0;
    (void)tx;
    int rc = read_word(place, worker->from, &from);
    if (rc == 0)
        rc = read_word(place, worker->to, &to);
    bool is_new = rc == -ENOENT;
    if (rc != 0 && !is_new)
        return rc;
    uint64_t amount = worker->amount < from ? worker->amount : from;
    if (amount == 0)
        return 0;
    rc = amount == from ? delete_word(place, worker->from) : update_word(place, worker->from, from - amount);
    if (rc != 0)
        return rc;
    return to == 0 ? insert_word(place, worker->to, amount) : update_word(place, worker->to, to + amount);
}

/* All accounts of all owners have the sum of the beginning. */
static int sum_up(void *ctx, struct remo_tx *tx) {
    struct worker *worker = ctx;
    (void)tx;
    worker->amount = 0;
    for (uint32_t owner = 0; owner < 2; owner++)
        for (uint32_t i = 0; i < ACCOUNTS; i++) {
            uint64_t value = 0;
            int rc = read_word(&worker->place, key_of(&worker->place, owner, i), &value);
            if (rc != 0 && rc != -ENOENT)
                return rc;
            worker->amount += rc == 0 ? value : 0;
        }
    return 0;
}

static int work(struct worker *worker) {
    struct place *place = &worker->place;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t from = (i * 5 + worker->number) % ACCOUNTS, to = (from + 1 + i % (ACCOUNTS - 1)) % ACCOUNTS;
        uint32_t owner = (worker->number + i) % 2;
        worker->from = key_of(place, owner, from);
        worker->to = key_of(place, owner, to);
        worker->amount = i % 7 == 0 ? UINT64_MAX : i % 300;
        CHECK_OK(remo_tx_run(place->tx, transfer, worker, LONG_TIME));
        if (i % 8 != 0)
            continue;
        CHECK_OK(remo_tx_run(place->tx, sum_up, worker, LONG_TIME));
        CHECK_EQUAL(worker->amount, 2 * ACCOUNTS * EACH);
    }
    return 0;
}

static void *run_thread(void *ctx) {
    struct worker *worker = ctx;
    worker->result = work(worker);
    return NULL;
}

static int run_task(void *ctx) {
    return work(ctx);
}

static int open_accounts(struct remo_node *node, struct place *ret_place, struct worker *ret_workers) {
    const struct remo_table_options options = {.capacity = 16, .slots_percent = 60, .overflow_percent = 200};
    CHECK(open_place(node, &options, ret_place) == 0);
    for (uint32_t i = 0; i < ACCOUNTS; i++)
        CHECK_OK(plain_put(ret_place, key_of(ret_place, remo_node_rank(node), i), EACH));
    for (uint32_t i = 0; i < THREADS; i++) {
        ret_workers[i] = (struct worker){.place = *ret_place, .number = remo_node_rank(node) * THREADS + i};
        CHECK_OK(remo_tx_open(ret_place->space, &ret_workers[i].place.tx));
    }
    CHECK_OK(cluster_meet());
    return 0;
}

static int threads(struct remo_node *node, void *ctx) {
    struct place place;
    struct worker workers[THREADS];
    pthread_t ids[THREADS];
    int wrong = 0;
    (void)ctx;
    CHECK(open_accounts(node, &place, workers) == 0);
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_EQUAL(pthread_create(&ids[i], NULL, run_thread, &workers[i]), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        wrong |= workers[i].result;
        remo_tx_close(workers[i].place.tx);
    }
    CHECK_EQUAL(wrong, 0);
    return close_place(&place);
}

static int tasks(struct remo_node *node, void *ctx) {
    struct place place;
    struct remo_scheduler *scheduler;
    struct worker workers[THREADS];
    remo_task_id ids[THREADS];
    (void)ctx;
    CHECK(open_accounts(node, &place, workers) == 0);
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_OK(remo_task_spawn(scheduler, run_task, &workers[i], &ids[i]));
    for (uint32_t i = 0; i < THREADS; i++) {
        int result = 1;
        CHECK_OK(remo_task_join(scheduler, ids[i], LONG_TIME, &result));
        CHECK_EQUAL(result, 0);
        remo_tx_close(workers[i].place.tx);
    }
    CHECK_OK(remo_scheduler_close(scheduler));
    return close_place(&place);
}

/* ---- no room, limits, wrong arguments ---- */

/* A transaction that finds no room for its last key changes nothing. */
static int full(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {
        .capacity = 8, .capacity_max = 8, .slots_percent = 1, .overflow_percent = 100};
    struct place place;
    uint64_t value;
    (void)ctx;
    CHECK(open_place(node, &options, &place) == 0);
    for (uint32_t owner = 0; owner < 2 && remo_node_rank(node) == 1; owner++)
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t kept = key_of(&place, owner, 50);
            CHECK_OK(plain_put(&place, kept, 1));
            CHECK_OK(remo_tx_begin(place.tx));
            CHECK_OK(put_word(&place, kept, 2));
            for (uint32_t key = 0; key < 9; key++)
                CHECK_OK(insert_word(&place, key_of(&place, owner, key), key));
            CHECK_SENTENCE(remo_tx_commit(place.tx), -ENOSPC, "delete keys");
            CHECK_OK(plain_read(&place, kept, &value));
            CHECK_EQUAL(value, 1);
            for (uint32_t key = 0; key < 9; key++)
                CHECK_CODE(plain_read(&place, key_of(&place, owner, key), &value), -ENOENT);
            for (uint32_t key = 0; key < 3; key++)
                CHECK_OK(plain_put(&place, key_of(&place, owner, key), 1)); /* there is room for these */
            for (uint32_t key = 0; key < 3; key++) {
                uint64_t used = key_of(&place, owner, key);
                CHECK_OK(remo_structure_delete(place.structure, &used, sizeof used));
            }
        }
    return close_place(&place);
}

static int limits(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.value_bytes_max = 3000};
    struct place place;
    char value[3000] = {0};
    (void)ctx;
    CHECK(open_place(node, &options, &place) == 0);
    uint32_t owner = 1 - remo_node_rank(node) % 2;
    CHECK_OK(remo_tx_begin(place.tx));
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t key = key_of(&place, owner, i);
        CHECK_OK(remo_tx_put(place.tx, place.structure, &key, sizeof key, value, sizeof value));
    }
    uint64_t key = key_of(&place, owner, 5);
    CHECK_SENTENCE(remo_tx_put(place.tx, place.structure, &key, sizeof key, value, sizeof value), -EMSGSIZE,
                   "REMO_TX_BYTES_MAX");
    CHECK_SENTENCE(remo_tx_commit(place.tx), -EMSGSIZE, "divide it");
    CHECK_OK(remo_tx_begin(place.tx));
    for (uint32_t i = 0; i < REMO_TX_ITEMS_MAX; i++)
        CHECK_OK(put_word(&place, key_of(&place, owner, i), i));
    CHECK_SENTENCE(put_word(&place, key_of(&place, owner, REMO_TX_ITEMS_MAX), 1), -ENOBUFS,
                   "at most 64 keys");
    CHECK_OK(remo_tx_commit(place.tx));
    return close_place(&place);
}

static int bad_spaces(struct remo_channel *root, struct remo_structure *structure) {
    struct remo_structure *twice[] = {structure, structure}, *null[] = {NULL};
    struct remo_tx_space *space;
    struct remo_tx_space_options options = {.structures = twice, .structure_count = 2};
    CHECK_SENTENCE(remo_tx_space_open(root, "x", &options, &space), -EINVAL, "are the same");
    options = (struct remo_tx_space_options){.structures = null, .structure_count = 1};
    CHECK_SENTENCE(remo_tx_space_open(root, "x", &options, &space), -EINVAL, "is NULL");
    options = (struct remo_tx_space_options){.structures = twice};
    CHECK_SENTENCE(remo_tx_space_open(root, "x", &options, &space), -EINVAL, "give 1 to 16");
    options = (struct remo_tx_space_options){
        .structures = twice, .structure_count = 1, .locks = (enum remo_tx_locks)2};
    CHECK_SENTENCE(remo_tx_space_open(root, "x", &options, &space), -EINVAL, "REMO_TX_EARLY");
    CHECK_CODE(remo_tx_space_open(root, "x", NULL, &space), -EINVAL);
    return 0;
}

static int body_of_nothing(void *ctx, struct remo_tx *tx) {
    (void)tx;
    return *(int *)ctx;
}

/* A call that would need too many keys adds none. */
static int many_over_limits(struct place *place) {
    uint64_t keys[REMO_TX_ITEMS_MAX + 1], word = 0;
    struct remo_tx_lookup lookups[REMO_TX_ITEMS_MAX + 1];
    for (uint32_t i = 0; i <= REMO_TX_ITEMS_MAX; i++) {
        keys[i] = key_of(place, 0, i);
        lookups[i] = (struct remo_tx_lookup){
            .structure = place->structure, .key = &keys[i], .key_bytes = 8, .value = &word, .cap = 8};
    }
    CHECK_CODE(remo_tx_read_many(place->tx, lookups, REMO_TX_ITEMS_MAX + 1), -ENOBUFS);
    CHECK_EQUAL(lookups[REMO_TX_ITEMS_MAX].status, -ENOBUFS);
    CHECK_OK(remo_tx_read_many(place->tx, lookups, 1));
    CHECK_CODE(remo_tx_read_many(place->tx, &lookups[1], REMO_TX_ITEMS_MAX), -ENOBUFS);
    CHECK(lookups[1].status == -ENOBUFS && lookups[1].value_bytes == 0);
    CHECK_OK(remo_tx_read_many(place->tx, lookups, REMO_TX_ITEMS_MAX));
    remo_tx_abort(place->tx);
    CHECK_OK(remo_tx_begin(place->tx));
    return 0;
}

static int bad_input(struct remo_node *node, void *ctx) {
    struct place place;
    struct remo_table *other;
    struct remo_tx_conflict conflict;
    uint64_t key = 1, value = 0;
    int wanted = -ERANGE;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    CHECK(bad_spaces(remo_node_root(node), place.structure) == 0);
    CHECK_OK(remo_table_open(remo_node_root(node), "other", NULL, &other));
    CHECK_SENTENCE(read_word(&place, key, &value), -ESTALE, "remo_tx_begin first");
    CHECK_CODE(remo_tx_commit(place.tx), -ESTALE);
    CHECK_CODE(remo_tx_check(place.tx), -ESTALE);
    CHECK_CODE(remo_tx_commit(NULL), -EINVAL);
    CHECK_CODE(remo_tx_settle(NULL, 0, &(enum remo_tx_fate){0}), -EINVAL);
    CHECK_CODE(remo_tx_settle(place.tx, 0, NULL), -EINVAL);
    CHECK_CODE(remo_tx_begin(NULL), -EINVAL);
    CHECK_CODE(remo_tx_read_many(NULL, NULL, 0), -EINVAL);
    CHECK_CODE(remo_tx_read_many(place.tx, NULL, 0), -ESTALE);
    CHECK_CODE(remo_tx_last_conflict(place.tx, &conflict), -ENOENT);
    remo_tx_abort(NULL);
    CHECK_OK(remo_tx_begin(place.tx));
    CHECK_SENTENCE(remo_tx_begin(place.tx), -EBUSY, "commit or abort");
    CHECK_CODE(remo_tx_run(place.tx, body_of_nothing, &wanted, SECOND), -EBUSY);
    CHECK_SENTENCE(remo_tx_put(place.tx, remo_table_structure(other), &key, sizeof key, &value, 8), -EINVAL,
                   "not one of the 1 structures");
    CHECK_SENTENCE(remo_tx_put(place.tx, place.structure, &key, 0, &value, 8), -EINVAL, "empty");
    CHECK_CODE(remo_tx_put(place.tx, place.structure, &key, 9, &value, 8), -EMSGSIZE);
    CHECK_CODE(remo_tx_put(place.tx, place.structure, &key, 8, &value, 81), -EMSGSIZE);
    CHECK_CODE(remo_tx_put(place.tx, place.structure, &key, 8, NULL, 8), -EINVAL);
    CHECK_CODE(remo_tx_read_many(place.tx, NULL, 1), -EINVAL);
    CHECK_OK(remo_tx_read_many(place.tx, NULL, 0));
    CHECK_CODE(remo_tx_read_many(place.tx, &(struct remo_tx_lookup){.cap = 1}, 1), -EINVAL);
    CHECK(many_over_limits(&place) == 0);
    CHECK_OK(put_word(&place, key, 5));
    CHECK_SENTENCE(remo_tx_read(place.tx, place.structure, &key, 8, &value, 7, NULL), -EMSGSIZE,
                   "room for 7");
    remo_tx_abort(place.tx);
    CHECK_CODE(remo_tx_run(place.tx, body_of_nothing, &wanted, SECOND), -ERANGE);
    CHECK_CODE(remo_tx_run(place.tx, NULL, &wanted, SECOND), -EINVAL);
    wanted = -EAGAIN;
    CHECK_SENTENCE(remo_tx_run(place.tx, body_of_nothing, &wanted, SECOND / 100), -ETIMEDOUT,
                   "nothing has changed");
    CHECK_OK(cluster_meet());
    remo_table_close(other);
    return close_place(&place);
}

/* Nodes whose spaces have different structures get an error. */
static int mismatch(struct remo_node *node, void *ctx) {
    struct place place;
    struct remo_table *other;
    struct remo_tx_space *space;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    CHECK_OK(remo_table_open(remo_node_root(node), "other", NULL, &other));
    CHECK_OK(remo_channel_wait(remo_structure_channel(remo_table_structure(other)), LONG_TIME));
    struct remo_structure *structures[] = {place.structure, remo_table_structure(other)},
                          *swapped[] = {structures[1], structures[0]};
    const struct remo_tx_space_options options = {
        .structures = remo_node_rank(node) == 0 ? structures : swapped, .structure_count = 2};
    CHECK_OK(remo_tx_space_open(remo_node_root(node), "differs", &options, &space));
    CHECK_SENTENCE(remo_channel_wait(remo_tx_space_channel(space), LONG_TIME), -EPROTO, "2 structures");
    CHECK_OK(cluster_meet());
    remo_tx_space_close(space);
    remo_table_close(other);
    return close_place(&place);
}

/* ---- the fate of a transaction ---- */

static int check_fate(struct place *place, enum remo_tx_fate expected) {
    enum remo_tx_fate fate = REMO_TX_PENDING;
    CHECK_OK(remo_tx_settle(place->tx, 0, &fate));
    CHECK_EQUAL(fate, expected);
    return 0;
}

/* Commit while the owner is paused. */
static int commit_paused(struct place *place, uint64_t key, uint64_t value) {
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(put_word(place, key, value));
    pause_node(turns, 1);
    CHECK_SENTENCE(remo_tx_commit(place->tx), -ETIMEDOUT, "remo_tx_settle");
    return 0;
}

/* The fate of commits that the owner answers too late is what it has done. */
static int check_late(struct place *place, uint64_t key) {
    enum remo_tx_fate fate = REMO_TX_UNKNOWN;
    uint64_t value = 0;
    CHECK(commit_paused(place, key, 5) == 0);
    CHECK_SENTENCE(remo_tx_settle(place->tx, SECOND / 50, &fate), -ETIMEDOUT, "node 1 does not answer");
    CHECK_EQUAL(fate, REMO_TX_PENDING);
    resume_node(turns, 1);
    CHECK_OK(remo_tx_settle(place->tx, LONG_TIME, &fate));
    CHECK(fate == REMO_TX_COMMITTED || fate == REMO_TX_NOT_COMMITTED);
    CHECK_OK(plain_read(place, key, &value));
    CHECK_EQUAL(value, fate == REMO_TX_COMMITTED ? 5 : 4);
    CHECK(commit_paused(place, key, 6) == 0);
    CHECK_OK(remo_tx_begin(place->tx)); /* ends the wait */
    resume_node(turns, 1);
    CHECK_OK(put_word(place, key, 7));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(check_fate(place, REMO_TX_COMMITTED) == 0);
    return commit_paused(place, key, 8); /* close ends the wait */
}

static int settles(struct remo_node *node, void *ctx) {
    struct place place;
    enum remo_tx_fate fate;
    uint64_t value;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    uint64_t key = key_of(&place, 1, 0);
    record_process(turns, remo_node_rank(node));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) != 0)
        return close_place(&place);
    CHECK(check_fate(&place, REMO_TX_NOT_COMMITTED) == 0);
    CHECK_OK(remo_tx_begin(place.tx));
    CHECK_SENTENCE(remo_tx_settle(place.tx, 0, &fate), -EBUSY, "commit or abort");
    CHECK_OK(put_word(&place, key, 3));
    CHECK_OK(remo_tx_commit(place.tx));
    CHECK(check_fate(&place, REMO_TX_COMMITTED) == 0);
    CHECK_OK(remo_tx_begin(place.tx));
    CHECK_OK(read_word(&place, key, &value));
    CHECK_OK(plain_put(&place, key, 4));
    CHECK_OK(put_word(&place, key, value));
    CHECK_CODE(remo_tx_commit(place.tx), -EAGAIN);
    CHECK(check_fate(&place, REMO_TX_NOT_COMMITTED) == 0);
    cluster_set_op_timeout(node, 2 * SECOND);
    CHECK(check_late(&place, key) == 0);
    resume_node(turns, 1);
    return close_place(&place);
}

/* ---- the failure of an owner ---- */

static int failing(struct remo_node *node, void *ctx) {
    struct place place;
    uint64_t value;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    uint64_t lost = key_of(&place, 1, 0), kept = key_of(&place, 0, 0);
    if (remo_node_rank(node) == 2) {
        CHECK_OK(plain_put(&place, lost, 1));
        CHECK_OK(plain_put(&place, kept, 2));
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_tx_begin(place.tx));
    CHECK_OK(read_word(&place, lost, &value));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (remo_node_rank(node) == 0)
        CHECK_OK(cluster_kill(1));
    cluster_await_cut_off(node, 1);
    CHECK_OK(read_word(&place, kept, &value));
    CHECK_CODE(remo_tx_commit(place.tx), -EHOSTDOWN);
    CHECK_OK(remo_tx_begin(place.tx));
    CHECK_CODE(read_word(&place, lost, &value), -EHOSTDOWN);
    CHECK_OK(put_word(&place, lost, 1));
    CHECK_CODE(remo_tx_commit(place.tx), -EHOSTDOWN);
    CHECK(check_fate(&place, REMO_TX_NOT_COMMITTED) == 0);
    CHECK_OK(remo_tx_begin(place.tx));
    CHECK_OK(update_word(&place, kept, 3));
    int rc = remo_tx_commit(place.tx);
    CHECK(rc == 0 || rc == -EAGAIN); /* two nodes do it */
    return close_place(&place);
}

static const struct cluster_test tests[] = {
    CLUSTER_TEST(steps, 2),
    CLUSTER_TEST(costs, 2),
    CLUSTER_TEST(threads, 2),
    CLUSTER_TEST(tasks, 2),
    CLUSTER_TEST(full, 2),
    CLUSTER_TEST(limits, 2),
    CLUSTER_TEST(bad_input, 1),
    CLUSTER_TEST(mismatch, 2),
    CLUSTER_TEST(settles, 2),
    CLUSTER_TEST(failing, 3),
    {0},
};

int main(int argc, char **argv) {
    turns = cluster_shared(sizeof *turns);
    return cluster_main(argc, argv, tests, NULL);
}
