/* test_tx_owners.c - transactions that change items of several owners, between real nodes: the cost of a
 * commit, absent keys, transfers between accounts of all nodes, and the failure of coordinators and owners in
 * the middle of a commit. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tx_words.h"

#define ACCOUNTS 8u /* of each node */
#define BALANCE 1000u
#define TRANSFERS 300u
#define PAIRS 4u

/* Shared by all processes. */
static struct {
    _Atomic uint64_t committed[PAIRS]; /* the last value of a pair whose commit has returned 0 */
    _Atomic uint32_t has_begun;
    _Atomic bool holds_deletes; /* of slow structures */
} * shared;

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

static enum remo_tx_locks early = REMO_TX_EARLY; /* the ctx of tests with early locks */

/* `locks`: NULL, or &early. */
static int open_place(struct remo_node *node, const enum remo_tx_locks *locks, struct place *ret_place) {
    return open_locking(node, NULL, NULL, locks ? *locks : REMO_TX_LATE, ret_place);
}

/* ---- costs ---- */

/* Commit, and check the cost since `before`: calls for which the commit does not wait may follow it. */
static int commit_for(struct place *place, struct cost before, uint64_t reads, uint64_t writes) {
    struct cost after;
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK_REACHES(after = cost_of(place), after.writes - before.writes, writes);
    CHECK_EQUAL(after.reads - before.reads, reads);
    return 0;
}

/* Node 0 has keys of its own, and uses those of the nodes 1 and 2. */
static int check_costs(struct place *place) {
    uint64_t own = key_of(place, 0, 0), one = key_of(place, 1, 0), two = key_of(place, 2, 0), value;
    uint64_t other = key_of(place, 1, 1);
    CHECK_OK(plain_put(place, one, 1));
    CHECK_OK(plain_put(place, other, 2));
    CHECK_OK(plain_read(place, one, &value)); /* the pages and places are known now */
    CHECK_OK(plain_read(place, other, &value));
    struct cost before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx)); /* 2 PREPAREs, the decision, and the other FINISH */
    CHECK_OK(put_word(place, one, 3));
    CHECK_OK(put_word(place, two, 4));
    CHECK(commit_for(place, before, 0, 4) == 0);
    before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx)); /* 1 PREPARE, and the decision */
    CHECK_OK(put_word(place, own, 5));
    CHECK_OK(put_word(place, two, 6));
    CHECK(commit_for(place, before, 0, 2) == 0);
    before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx)); /* a read, and its validation */
    CHECK_OK(read_word(place, other, &value));
    CHECK_OK(put_word(place, own, value));
    CHECK(commit_for(place, before, 2, 0) == 0);
    before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(read_word(place, other, &value));
    CHECK_OK(put_word(place, one, value));
    CHECK_OK(put_word(place, two, value));
    CHECK(commit_for(place, before, 2, 4) == 0);
    CHECK_OK(plain_read(place, two, &value));
    CHECK_EQUAL(value, 2);
    CHECK_OK(plain_read(place, one, &value));
    CHECK_EQUAL(value, 2);
    CHECK_OK(plain_read(place, own, &value));
    CHECK_EQUAL(value, 2);
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct place place;
    CHECK(open_place(node, ctx, &place) == 0);
    if (place.rank == 0)
        CHECK(check_costs(&place) == 0);
    return close_place(&place);
}

/* ---- absent keys ---- */

/* A transaction finds a key absent in the place into which it inserts another one: it is not in conflict with
 * itself. With many keys each bucket has some. */
static int absent(struct remo_node *node, void *ctx) {
    struct place place;
    uint64_t value;
    CHECK(open_place(node, ctx, &place) == 0);
    for (uint32_t i = 0; i < 100 && place.rank == 0; i++) {
        CHECK_OK(remo_tx_begin(place.tx));
        for (uint32_t j = 0; j < 10; j++)
            CHECK_CODE(read_word(&place, key_of(&place, j % 3, 1000 + j), &value), -ENOENT);
        for (uint32_t j = 0; j < 3; j++)
            CHECK_OK(put_word(&place, key_of(&place, j, i), i));
        CHECK_OK(remo_tx_commit(place.tx));
    }
    return close_place(&place);
}

/* ---- transfers ---- */

struct transfer {
    struct place *place;
    uint64_t from, to, amount;
    uint64_t sum;
};

static int move(void *ctx, struct remo_tx *tx) {
    struct transfer *transfer = ctx;
    uint64_t from, to;
    int rc = read_word(transfer->place, transfer->from, &from);
    (void)tx;
    if (rc == 0)
        rc = read_word(transfer->place, transfer->to, &to);
    if (rc != 0 || from < transfer->amount)
        return rc;
    rc = put_word(transfer->place, transfer->from, from - transfer->amount);
    return rc != 0 ? rc : put_word(transfer->place, transfer->to, to + transfer->amount);
}

static int add_up(void *ctx, struct remo_tx *tx) {
    struct transfer *transfer = ctx;
    int rc = 0;
    (void)tx;
    transfer->sum = 0;
    for (uint32_t i = 0; i < transfer->place->size * ACCOUNTS && rc == 0; i++) {
        uint64_t value;
        rc = read_word(transfer->place,
                       key_of(transfer->place, i % transfer->place->size, i / transfer->place->size), &value);
        transfer->sum += rc == 0 ? value : 0;
    }
    return rc;
}

/* All nodes transfer between accounts of all nodes, and add them up meanwhile. */
static int transfers(struct remo_node *node, void *ctx) {
    struct place place;
    CHECK(open_place(node, ctx, &place) == 0);
    for (uint32_t i = 0; i < ACCOUNTS; i++)
        CHECK_OK(plain_put(&place, key_of(&place, place.rank, i), BALANCE));
    CHECK_OK(cluster_meet());
    uint32_t seed = place.rank + 1;
    for (uint32_t i = 0; i < TRANSFERS; i++) {
        uint32_t from = (uint32_t)rand_r(&seed), to = (uint32_t)rand_r(&seed);
        struct transfer transfer = {.place = &place,
                                    .from = key_of(&place, from % place.size, from / 8 % ACCOUNTS),
                                    .to = key_of(&place, to % place.size, to / 8 % ACCOUNTS),
                                    .amount = from / 64 % 100};
        if (transfer.from != transfer.to)
            CHECK_OK(remo_tx_run(place.tx, move, &transfer, LONG_TIME));
        if (i % 16 == 0) {
            CHECK_OK(remo_tx_run(place.tx, add_up, &transfer, LONG_TIME));
            CHECK_EQUAL(transfer.sum, place.size * ACCOUNTS * BALANCE);
        }
    }
    return close_place(&place);
}

/* ---- failures ---- */

static void *kill_later(void *ctx) {
    const struct timespec time = {.tv_nsec = *(const long *)ctx};
    while (!atomic_load(&shared->has_begun))
        cluster_sleep_ms(1);
    nanosleep(&time, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Put the same value at two owners. */
static int put_pair(struct place *place, uint32_t pair, uint64_t value) {
    CHECK_OK(remo_tx_begin(place->tx));
    int rc = put_word(place, key_of(place, 0, pair), value);
    if (rc == 0)
        rc = put_word(place, key_of(place, 1, pair), value);
    if (rc == 0)
        return remo_tx_commit(place->tx);
    remo_tx_abort(place->tx); /* with early locks: a conflict, or an owner has failed */
    return rc;
}

/* Again and again. */
static int put_pairs(struct place *place) {
    for (uint64_t value = 1;; value++) {
        uint32_t pair = (uint32_t)value % PAIRS;
        int rc = put_pair(place, pair, value);
        if (rc == -EAGAIN)
            continue;
        CHECK_OK(rc);
        atomic_store(&shared->committed[pair], value);
        atomic_store(&shared->has_begun, 1);
    }
}

/* Both values of each pair are the same, at least as new as the last commit that has returned, and not
 * locked. */
static int check_pairs(struct place *place) {
    for (uint32_t pair = 0; pair < PAIRS; pair++) {
        uint64_t first = 0, second = 0, committed = atomic_load(&shared->committed[pair]);
        int rc = plain_read(place, key_of(place, 0, pair), &first);
        CHECK(rc == 0 || rc == -ENOENT);
        CHECK_CODE(plain_read(place, key_of(place, 1, pair), &second), rc);
        CHECK_EQUAL(first, second);
        CHECK(first >= committed);
        CHECK_OK(plain_put(place, key_of(place, 0, pair), 7));
        CHECK_OK(plain_put(place, key_of(place, 1, pair), 7));
    }
    return 0;
}

/* Node 2 is killed at a random moment of its commits, while the owners read its pairs. */
static int coordinator_fails(struct remo_node *node, void *ctx) {
    struct place place;
    pthread_t thread;
    CHECK(open_place(node, ctx, &place) == 0);
    if (place.rank == 2) {
        long delay = (long)(cluster_now_ns() % 2000000);
        cluster_expect_death();
        CHECK(pthread_create(&thread, NULL, kill_later, &delay) == 0);
        return put_pairs(&place);
    }
    uint64_t first, second;
    for (uint32_t i = 0; remo_node_peer(node, 2) == REMO_PEER_UP; i++) {
        CHECK_OK(remo_tx_begin(place.tx));
        int rc = read_word(&place, key_of(&place, 0, i % PAIRS), &first);
        int other = read_word(&place, key_of(&place, 1, i % PAIRS), &second);
        if (remo_tx_commit(place.tx) == 0) {
            CHECK_CODE(other, rc);
            CHECK(rc != 0 || first == second);
        }
    }
    cluster_await_cut_off(node, 2);
    CHECK_OK(cluster_meet());
    if (place.rank == 0)
        CHECK(check_pairs(&place) == 0);
    return close_place(&place);
}

/* Node 1, an owner, is killed while node 2 commits at the nodes 0 and 1. Each commit ends, and the keys of
 * node 0 are not locked afterwards. */
static int owner_fails(struct remo_node *node, void *ctx) {
    struct place place;
    pthread_t thread;
    CHECK(open_place(node, ctx, &place) == 0);
    if (place.rank == 1) {
        long delay = (long)(cluster_now_ns() % 2000000);
        cluster_expect_death();
        CHECK(pthread_create(&thread, NULL, kill_later, &delay) == 0);
        cluster_sleep_ms(100000);
        return 0;
    }
    int rc = 0;
    for (uint64_t value = 1; place.rank == 2 && (rc == 0 || rc == -EAGAIN); value++) {
        rc = put_pair(&place, (uint32_t)value % PAIRS, value);
        atomic_store(&shared->has_begun, 1);
    }
    CHECK_CODE(rc, place.rank == 2 ? -EHOSTDOWN : 0);
    CHECK_OK(cluster_meet());
    for (uint32_t pair = 0; pair < PAIRS; pair++)
        CHECK_OK(plain_put(&place, key_of(&place, 0, pair), 9));
    return close_place(&place);
}

/* ---- an owner that does not answer ---- */

/* A structure with one item in each share. Its key is the owner. Deletes can be held. */
static struct remo_structure *slow;

static uint32_t slow_owner(void *ctx, const struct remo_structure_key *key) {
    (void)ctx;
    return *(const uint32_t *)key->data;
}

static bool slow_lookup_start(void *ctx, const struct remo_structure_key *key, uint32_t owner,
                              struct remo_structure_place *ret_place) {
    (void)ctx, (void)key, (void)owner, (void)ret_place;
    return false;
}

static enum remo_lookup_verdict slow_lookup_end(void *ctx, const struct remo_structure_key *key,
                                                uint32_t owner, const struct remo_structure_place *place,
                                                const void *data, struct remo_item *ret_item) {
    (void)ctx, (void)key, (void)owner, (void)place, (void)data, (void)ret_item;
    return REMO_LOOKUP_ELSEWHERE;
}

static uint32_t slow_group(void *ctx, const struct remo_structure_key *key) {
    (void)ctx, (void)key;
    return 0;
}

static uint64_t slow_find(void *ctx, const struct remo_structure_key *key) {
    (void)ctx;
    return remo_item_state_of(slow, key, 0) == REMO_ITEM_MATCHES ? 0 : REMO_STRUCTURE_NOWHERE;
}

static int slow_make(void *ctx, const struct remo_structure_key *key, uint64_t *ret_offset) {
    (void)ctx, (void)key;
    *ret_offset = 0;
    return 0;
}

static void slow_link(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    (void)ctx, (void)key, (void)offset;
}

static void slow_unlink(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    (void)ctx, (void)key, (void)offset;
    while (atomic_load(&shared->holds_deletes))
        cluster_sleep_ms(1);
}

static void slow_opened(void *ctx, struct remo_structure *structure, char *share) {
    (void)ctx, (void)share;
    slow = structure;
}

static int open_slow(struct remo_node *node, struct remo_tx_space **ret_space) {
    static const struct remo_structure_type type = {.name = "slow",
                                                    .owner = slow_owner,
                                                    .lookup_start = slow_lookup_start,
                                                    .lookup_end = slow_lookup_end,
                                                    .group = slow_group,
                                                    .find = slow_find,
                                                    .make = slow_make,
                                                    .link = slow_link,
                                                    .unlink = slow_unlink};
    const struct remo_structure_options options = {
        .share_bytes = remo_structure_item_bytes(4, 0), .key_bytes_max = 4, .opened = slow_opened};
    struct remo_structure *structure;
    CHECK_OK(remo_structure_open(remo_node_root(node), "slow", &type, &options, &structure));
    CHECK_OK(remo_channel_wait(remo_structure_channel(structure), LONG_TIME));
    const struct remo_tx_space_options space = {.structures = &structure, .structure_count = 1};
    CHECK_OK(remo_tx_space_open(remo_node_root(node), "tx", &space, ret_space));
    CHECK_OK(remo_channel_wait(remo_tx_space_channel(*ret_space), LONG_TIME));
    return 0;
}

static int insert_keys(void *ctx, struct remo_tx *tx) {
    int rc = 0;
    (void)ctx;
    for (uint32_t key = 1; key <= 2 && rc == 0; key++)
        rc = remo_tx_insert(tx, slow, &key, sizeof key, NULL, 0);
    return rc;
}

static int delete_keys(void *ctx, struct remo_tx *tx) {
    int rc = 0;
    (void)ctx;
    for (uint32_t key = 1; key <= 2 && rc == 0; key++)
        rc = remo_tx_delete(tx, slow, &key, sizeof key);
    return rc;
}

/* The decider does not answer in time: the fate is pending, until it answers. */
static int settle_deletes(struct remo_node *node, struct remo_tx *tx) {
    enum remo_tx_fate fate = REMO_TX_UNKNOWN;
    CHECK_OK(remo_tx_run(tx, insert_keys, NULL, LONG_TIME));
    atomic_store(&shared->holds_deletes, true);
    cluster_set_op_timeout(node, 2 * SECOND);
    CHECK_SENTENCE(remo_tx_run(tx, delete_keys, NULL, LONG_TIME), -ETIMEDOUT, "remo_tx_settle");
    CHECK_CODE(remo_tx_settle(tx, SECOND / 50, &fate), -ETIMEDOUT);
    CHECK_EQUAL(fate, REMO_TX_PENDING);
    atomic_store(&shared->holds_deletes, false);
    CHECK_OK(remo_tx_settle(tx, LONG_TIME, &fate));
    CHECK_EQUAL(fate, REMO_TX_COMMITTED);
    for (uint32_t key = 1; key <= 2; key++)
        CHECK_CODE(remo_structure_lookup(slow, &key, sizeof key, NULL, 0, NULL, NULL), -ENOENT);
    return 0;
}

static int undecided(struct remo_node *node, void *ctx) {
    struct remo_tx_space *space;
    struct remo_tx *tx;
    (void)ctx;
    CHECK(open_slow(node, &space) == 0);
    CHECK_OK(remo_tx_open(space, &tx));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0)
        CHECK(settle_deletes(node, tx) == 0);
    CHECK_OK(cluster_meet());
    remo_tx_close(tx);
    remo_tx_space_close(space);
    remo_structure_close(slow);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(costs, 3),
        CLUSTER_TEST(absent, 3),
        CLUSTER_TEST(transfers, 3),
        CLUSTER_TEST(coordinator_fails, 3),
        CLUSTER_TEST(owner_fails, 3),
        CLUSTER_TEST(undecided, 3),
        CLUSTER_TEST_NAMED("transfers_early", transfers, 3, .ctx = &early),
        CLUSTER_TEST_NAMED("coordinator_fails_early", coordinator_fails, 3, .ctx = &early),
        CLUSTER_TEST_NAMED("owner_fails_early", owner_fails, 3, .ctx = &early),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
