/* test_tx_claim.c - precedence of transactions that were in conflict often, between real nodes: a key that is
 * claimed, the end of claims, also by a failure, their costs, and a long transaction beside short ones. */
#include <signal.h>
#include <unistd.h>

#include "systems/tx/tx.h"
#include "tx_place.h"

#define LONG_KEYS 8u
#define LONG_RUNS 3u

/* Shared by all processes. */
static struct {
    _Atomic uint32_t tries, changes; /* of the claimant; of the other node */
    _Atomic bool has_ended;
} * shared;

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

static int open_place(struct remo_node *node, struct place *ret_place) {
    return open_objects(node, NULL, NULL, ret_place);
}

struct counter {
    struct place *place;
    uint32_t count;
    uint64_t keys[LONG_KEYS];
    int (*pause)(void); /* between the reads and the changes; NULL: none */
};

/* Increment each key. */
static int increment(void *ctx, struct remo_tx *tx) {
    const struct counter *counter = ctx;
    uint64_t values[LONG_KEYS];
    int rc = 0;
    for (uint32_t i = 0; i < counter->count && rc == 0; i++)
        rc = remo_tx_read(tx, counter->place->structure, &counter->keys[i], sizeof counter->keys[i],
                          &values[i], sizeof values[i], NULL);
    if (rc == 0 && counter->pause)
        rc = counter->pause();
    for (uint32_t i = 0; i < counter->count && rc == 0; i++) {
        values[i]++;
        rc = remo_tx_put(tx, counter->place->structure, &counter->keys[i], sizeof counter->keys[i],
                         &values[i], sizeof values[i]);
    }
    return rc;
}

/* ---- a claimed key ---- */

/* Let the other node change the key, as long as the transaction does not claim it. */
static int await_change(void) {
    uint32_t changes = 0, tries = atomic_fetch_add(&shared->tries, 1) + 1;
    CHECK_REACHES(changes = atomic_load(&shared->changes), changes, tries);
    return 0;
}

/* Change the key in each attempt of the other node, until it is claimed: then this is a conflict. On a slow
 * machine a claim may end before the change; the next attempt claims the key again. */
static int change_often(struct place *place, uint64_t key) {
    struct remo_tx_conflict conflict;
    uint32_t tries = 0;
    int rc = 0;
    for (uint32_t i = 1; rc == 0; i++) {
        CHECK_REACHES(tries = atomic_load(&shared->tries), tries, i);
        CHECK_OK(remo_tx_begin(place->tx));
        CHECK_OK(remo_tx_put(place->tx, place->structure, &key, sizeof key, &key, sizeof key));
        rc = remo_tx_commit(place->tx);
        CHECK(i > REMO__TX_CONFLICTS_MAX || rc == 0);
        atomic_store(&shared->changes, i);
    }
    CHECK_EQUAL(rc, -EAGAIN);
    CHECK_OK(remo_tx_last_conflict(place->tx, &conflict));
    CHECK_EQUAL(conflict.kind, REMO_TX_LOCKED);
    return 0;
}

/* Node 0 increments a key, which belongs to the owner in `ctx`. */
static int claimed(struct remo_node *node, void *ctx) {
    const uint32_t *owner = ctx;
    struct place place;
    CHECK(open_place(node, &place) == 0);
    struct counter counter = {.place = &place, .count = 1, .keys = {key_of(&place, *owner, 0)}};
    if (place.rank == *owner)
        CHECK_OK(plain_put(&place, counter.keys[0], 0));
    CHECK_OK(cluster_meet());
    if (place.rank == 1)
        CHECK_OK(change_often(&place, counter.keys[0]));
    counter.pause = await_change;
    if (place.rank == 0)
        CHECK_OK(remo_tx_run(place.tx, increment, &counter, LONG_TIME));
    CHECK_OK(cluster_meet());
    CHECK(atomic_load(&shared->tries) > REMO__TX_CONFLICTS_MAX);
    counter.pause = NULL; /* the claim ends */
    if (place.rank == 1)
        CHECK_OK(remo_tx_run(place.tx, increment, &counter, LONG_TIME));
    return close_place(&place);
}

/* ---- costs ---- */

/* A transaction that reads a key of each node, and changes that of node 1. */
struct costly {
    struct place *place;
    uint64_t keys[3];
    uint32_t conflicts, attempts; /* of the attempts, so many are to be in conflict */
};

/* A change outside transactions causes the conflict: claims do not refuse it. */
static int change_one(void *ctx, struct remo_tx *tx) {
    struct costly *costly = ctx;
    struct place *place = costly->place;
    uint64_t value = 0;
    int rc = 0;
    for (uint32_t i = 0; i < 3 && rc == 0; i++)
        rc = remo_tx_read(tx, place->structure, &costly->keys[i], sizeof costly->keys[i], &value,
                          sizeof value, NULL);
    if (rc == 0 && costly->attempts++ < costly->conflicts)
        rc = plain_put(place, costly->keys[1], costly->attempts);
    return rc != 0 ? rc
                   : remo_tx_put(tx, place->structure, &costly->keys[1], sizeof costly->keys[1], &value,
                                 sizeof value);
}

/* An attempt takes a PREPARE, and a FINISH unless it is in conflict. Each claim of the keys takes a call to
 * each of the other two owners, and their end a post to each. */
static int expect_cost(struct place *place, const uint64_t *keys, uint32_t conflicts, uint32_t claims) {
    struct costly costly = {.place = place, .keys = {keys[0], keys[1], keys[2]}, .conflicts = conflicts};
    struct cost before = cost_of(place);
    CHECK_OK(remo_tx_run(place->tx, change_one, &costly, LONG_TIME));
    struct cost after = cost_of(place);
    CHECK_EQUAL(costly.attempts, conflicts + 1);
    CHECK_EQUAL(after.writes - before.writes, 2 * conflicts + 2 + 2 * claims + (claims > 0 ? 2 : 0));
    CHECK_EQUAL(after.reads - before.reads, 2 * (conflicts + 1) + 1);
    CHECK_EQUAL(after.atomics, before.atomics);
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct place place;
    uint64_t keys[3];
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    for (uint32_t owner = 0; owner < 3; owner++) {
        keys[owner] = key_of(&place, owner, 0);
        if (place.rank == 0)
            CHECK_OK(plain_put(&place, keys[owner], 0));
    }
    CHECK_OK(cluster_meet());
    if (place.rank == 0) {
        CHECK(expect_cost(&place, keys, 0, 0) == 0);
        CHECK(expect_cost(&place, keys, REMO__TX_CONFLICTS_MAX - 1, 0) == 0);
        CHECK(expect_cost(&place, keys, REMO__TX_CONFLICTS_MAX, 1) == 0);
        CHECK(expect_cost(&place, keys, REMO__TX_CONFLICTS_MAX + 2, 3) == 0);
    }
    return close_place(&place);
}

/* ---- an owner that is not used any more ---- */

/* Node 2: return whether node 0 claims keys here. */
static bool is_claimed(const struct place *place) {
    struct remo__tx_peer *peer = &place->space->peers[0];
    uint32_t count = 0;
    pthread_mutex_lock(&peer->mutex);
    for (uint32_t i = 0; i < REMO__TX_CLAIMS_MAX; i++)
        count += peer->claims[i].sets[0].count + peer->claims[i].sets[1].count;
    pthread_mutex_unlock(&peer->mutex);
    return count > 0;
}

/* Wait until node 2 has detected this number of changes of its claims. */
static int await_claims(uint32_t expected) {
    uint32_t changes = 0;
    CHECK_REACHES(changes = atomic_load(&shared->changes), changes, expected);
    return 0;
}

/* After the first claim, an attempt uses the key of node 2 no more; so the next claim ends that one. */
static int leave_owner(void *ctx, struct remo_tx *tx) {
    struct costly *costly = ctx;
    struct place *place = costly->place;
    uint64_t value = 0;
    uint32_t attempt = ++costly->attempts, first = attempt > REMO__TX_CONFLICTS_MAX ? 1 : 0;
    int rc = 0;
    for (uint32_t i = first; i < 2 && rc == 0; i++)
        rc = remo_tx_read(tx, place->structure, &costly->keys[i], sizeof costly->keys[i], &value,
                          sizeof value, NULL);
    if (rc == 0 && attempt > REMO__TX_CONFLICTS_MAX)
        rc = await_claims(attempt - REMO__TX_CONFLICTS_MAX);
    if (rc == 0 && attempt <= REMO__TX_CONFLICTS_MAX + 1)
        rc = plain_put(place, costly->keys[1], attempt);
    return rc != 0 ? rc
                   : remo_tx_put(tx, place->structure, &costly->keys[1], sizeof costly->keys[1], &value,
                                 sizeof value);
}

static int left_owner(struct remo_node *node, void *ctx) {
    struct place place;
    bool is = false;
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    struct costly costly = {.place = &place, .keys = {key_of(&place, 2, 0), key_of(&place, 1, 0)}};
    for (uint32_t i = 0; i < 2 && place.rank == 0; i++)
        CHECK_OK(plain_put(&place, costly.keys[i], 0));
    CHECK_OK(cluster_meet());
    if (place.rank == 0)
        CHECK_OK(remo_tx_run(place.tx, leave_owner, &costly, LONG_TIME));
    for (uint32_t changes = 0; place.rank == 2 && changes < 2; changes++) {
        CHECK_REACHES(is = is_claimed(&place) != (changes > 0), is, true);
        atomic_store(&shared->changes, changes + 1);
    }
    return close_place(&place);
}

/* ---- a claimant that fails ---- */

/* Node 0 is killed while it claims the key. */
static int fail_claiming(void *ctx, struct remo_tx *tx) {
    struct costly *costly = ctx;
    if (costly->attempts >= costly->conflicts) {
        CHECK_OK(cluster_meet());
        CHECK_OK(cluster_meet());
        cluster_expect_death();
        kill(getpid(), SIGKILL);
    }
    return change_one(ctx, tx);
}

/* Let a claim have no time limit. Its entries are outside their groups meanwhile, because a request reads the
 * limit under the mutex of one group only. */
static void keep_claim(struct remo__tx_claim_set *set) {
    for (uint32_t i = 0; i < set->count; i++)
        remo__key_claim_remove(&set->entries[i]);
    set->claim.ends_at_ns = UINT64_MAX;
    for (uint32_t i = 0; i < set->count; i++) {
        struct remo__structure_group *group = set->entries[i].group;
        pthread_mutex_lock(&group->mutex);
        remo__key_claim_add(&set->entries[i]);
        pthread_mutex_unlock(&group->mutex);
    }
}

/* At the owner: let the claims of node 0 have no time limit, so that only its failure ends them. Returns the
 * number of claims. */
static uint32_t keep_claims(struct place *place) {
    struct remo__tx_peer *peer = &place->space->peers[0];
    uint32_t claims = 0;
    pthread_mutex_lock(&peer->mutex);
    for (uint32_t i = 0; i < 2 * REMO__TX_CLAIMS_MAX; i++) {
        struct remo__tx_claim_set *set = &peer->claims[i / 2].sets[i % 2];
        if (set->count == 0)
            continue;
        keep_claim(set);
        claims++;
    }
    pthread_mutex_unlock(&peer->mutex);
    return claims;
}

/* The nodes 1 and 2 then change the key, which belongs to node 1. */
static int claimant_fails(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    struct costly costly = {.place = &place, .conflicts = REMO__TX_CONFLICTS_MAX};
    for (uint32_t i = 0; i < 3; i++)
        costly.keys[i] = key_of(&place, 1, i);
    for (uint32_t i = 0; i < 3 && place.rank == 0; i++)
        CHECK_OK(plain_put(&place, costly.keys[i], 0));
    if (place.rank == 0)
        CHECK_OK(remo_tx_run(place.tx, fail_claiming, &costly, LONG_TIME));
    CHECK_OK(cluster_meet());
    CHECK(place.rank != 1 || keep_claims(&place) == 1);
    CHECK_OK(cluster_meet());
    cluster_await_cut_off(node, 0);
    struct counter counter = {.place = &place, .count = 1, .keys = {costly.keys[1]}};
    CHECK_OK(remo_tx_run(place.tx, increment, &counter, LONG_TIME));
    return close_place(&place);
}

/* ---- many nodes ---- */

/* Node 0 increments keys of several owners together. All others increment one of these keys, again and
 * again. */
static int long_transaction(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, &place) == 0);
    struct counter counter = {.place = &place, .count = LONG_KEYS};
    for (uint32_t i = 0; i < LONG_KEYS; i++) {
        counter.keys[i] = key_of(&place, i % place.size, i / place.size);
        if (place.rank == 0)
            CHECK_OK(plain_put(&place, counter.keys[i], 0));
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < LONG_RUNS && place.rank == 0; i++)
        CHECK_OK(remo_tx_run(place.tx, increment, &counter, LONG_TIME));
    counter.count = 1;
    for (uint32_t i = 0; place.rank != 0 && !atomic_load(&shared->has_ended); i++) {
        counter.keys[0] = counter.keys[(place.rank + i) % LONG_KEYS];
        CHECK_OK(remo_tx_run(place.tx, increment, &counter, LONG_TIME));
    }
    atomic_store(&shared->has_ended, true);
    return close_place(&place);
}

int main(int argc, char **argv) {
    static uint32_t owners[] = {0, 1};
    static const struct cluster_test tests[] = {
        CLUSTER_TEST_NAMED("claimed_own", claimed, 2, .ctx = &owners[0]),
        CLUSTER_TEST_NAMED("claimed", claimed, 2, .ctx = &owners[1]),
        CLUSTER_TEST(costs, 3),
        CLUSTER_TEST(left_owner, 3),
        CLUSTER_TEST(claimant_fails, 3),
        CLUSTER_TEST(long_transaction, 4),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
