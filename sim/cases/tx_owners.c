/* tx_owners.c - transactions that change keys of several owners. In most cases the keys 0 and 1 belong to
 * node 0, and 2 and 3 to node 1; in cases of three owners, the keys 0, 1 and 2 to the nodes 0, 1 and 2. */
#include "sim/cases/tx.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- keys ---- */

/* Key i belongs to node i / `per_node`; the last keys to the last of `owners`. */
static void choose_keys(struct tx_state *s, uint32_t rank, uint32_t per_node, uint32_t owners) {
    uint64_t key = 1;
    for (uint32_t i = 0; i < ORACLE_KEYS; key++) {
        uint32_t owner = i / per_node < owners ? i / per_node : owners - 1;
        if (remo_table_owner(s->tables[rank], &key, sizeof key) == owner)
            s->keys[i++] = key;
    }
}

static uint32_t owner_of(const struct tx_state *s, uint32_t rank, uint32_t key) {
    return remo_table_owner(s->tables[rank], &s->keys[key], sizeof s->keys[key]);
}

void sim_tx_open_pairs(void *state, struct remo_node *node, uint32_t rank) {
    sim_tx_open(state, node, rank, 1, 1, 4);
    choose_keys(state, rank, 2, 2);
}

void sim_tx_open_three(void *state, struct remo_node *node, uint32_t rank) {
    sim_tx_open(state, node, rank, 1, 100, 4);
    choose_keys(state, rank, 1, 3);
}

/* No item stays locked: a change of each key succeeds if its owner is up. Then all keys are read together. */
void sim_tx_owners_after(void *state, uint32_t rank) {
    const uint64_t all[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_READ, 1, 0), STEP(TX_READ, 2, 0),
                                     STEP(TX_READ, 3, 0)};
    for (uint32_t key = 0; key < ORACLE_KEYS; key++)
        sim_tx_call(state, rank, STEP(TX_PUT, key, 100 + 10 * key + rank), owner_of(state, rank, key));
    (void)sim_tx_transact(state, rank, 0, all);
}

/* ---- cases ---- */

#define TWO_OWNERS(case_name, case_about, node_count, thread_count, run)                            \
    {                                                                                               \
        .object = "tx", .name = case_name, .about = case_about, .nodes = node_count,                \
        .threads = thread_count, .state_bytes = sizeof(struct tx_state), .open = sim_tx_open_pairs, \
        .close = sim_tx_close, .body = run, .after = sim_tx_owners_after, .oracle = &oracle_tx,     \
        .relies_on_end = true                                                                       \
    }

void sim_tx_both_body(void *state, uint32_t rank, uint32_t thread) {
    uint32_t first = rank % 2 * 2;
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, first, 10 + rank), STEP(TX_PUT, 2 - first, 20 + rank)},
                   update[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_UPDATE, 2, 30 + rank),
                                        STEP(TX_UPDATE, 0, 40 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, first, 0), STEP(TX_READ, 2 - first, 0)};
    (void)sim_tx_transact(state, rank, thread, put);
    (void)sim_tx_transact(state, rank, thread, rank == 1 ? read : update);
    (void)sim_tx_transact(state, rank, thread, read);
}

const struct sim_case sim_case_tx_both =
    TWO_OWNERS("both", "three nodes change and read keys of two owners together", 3, 1, sim_tx_both_body);

/* Each of two transactions reads a key that the other one changes: one of them must be in conflict. */
void sim_tx_skew_body(void *state, uint32_t rank, uint32_t thread) {
    uint32_t own = 2 * (rank % 2), other = 2 - own;
    const uint64_t insert[STEPS_MAX] = {STEP(TX_PUT, 0, 1), STEP(TX_PUT, 2, 2)},
                   cross[STEPS_MAX] = {STEP(TX_READ, other, 0), STEP(TX_PUT, own, 10 + rank)},
                   wide[STEPS_MAX] = {STEP(TX_READ, own + 1, 0), STEP(TX_READ, other, 0),
                                      STEP(TX_PUT, own, 20 + rank), STEP(TX_PUT, other + 1, 30 + rank)};
    if (rank == 2)
        (void)sim_tx_transact(state, rank, thread, insert);
    (void)sim_tx_transact(state, rank, thread, cross);
    (void)sim_tx_transact(state, rank, thread, wide);
}

const struct sim_case sim_case_tx_skew = TWO_OWNERS(
    "skew", "transactions read keys that others change, at one owner and at another", 3, 1, sim_tx_skew_body);

/* Keys of both owners come and go together; others are found absent. Keys of one owner share a bucket. */
void sim_tx_gone_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t insert[STEPS_MAX] = {STEP(TX_INSERT, 0, 10 + rank), STEP(TX_INSERT, 2, 20 + rank)},
                   swap[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_DELETE, 0, 0), STEP(TX_PUT, 2, 30 + rank)},
                   move[STEPS_MAX] = {STEP(TX_READ, 3, 0), STEP(TX_DELETE, 2, 0), STEP(TX_INSERT, 1, 40)},
                   read[STEPS_MAX] = {STEP(TX_READ, 2, 0), STEP(TX_READ, 1, 0), STEP(TX_READ, 0, 0)};
    (void)sim_tx_transact(state, rank, thread, rank == 2 ? read : insert);
    (void)sim_tx_transact(state, rank, thread, rank == 1 ? swap : move);
    (void)sim_tx_transact(state, rank, thread, rank == 0 ? insert : read);
}

const struct sim_case sim_case_tx_gone = TWO_OWNERS(
    "gone", "keys of two owners come and go; transactions find others absent", 3, 1, sim_tx_gone_body);

/* Lookups and changes of the structure itself, and transactions at one owner, beside those at two. */
void sim_tx_beside_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t both[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_PUT, 2, 20 + rank),
                                      STEP(TX_PUT, 0, 10 + rank)},
                   one[STEPS_MAX] = {STEP(TX_PUT, 0, 50 + rank), STEP(TX_READ, 1, 0), STEP(TX_PUT, 1, 60)};
    for (uint32_t i = 0; i < 4 && rank == 2; i++)
        sim_tx_call(state, rank, STEP(TX_READ, 2 - i % 2 * 2, 0), SIM_ANY);
    for (uint32_t i = 0; i < 2 && rank < 2; i++) {
        (void)sim_tx_transact(state, rank, thread, both);
        sim_tx_call(state, rank, STEP(i == 0 ? TX_DELETE : TX_PUT, 2 * (rank ^ i), 30 + i), SIM_ANY);
        (void)sim_tx_transact(state, rank, thread, one);
    }
}

const struct sim_case sim_case_tx_beside =
    TWO_OWNERS("beside", "lookups, changes and transactions at one owner, beside those at two", 3, 1,
               sim_tx_beside_body);

/* More transactions of one node than it can commit at the same time. */
void sim_tx_busy_body(void *state, uint32_t rank, uint32_t thread) {
    uint8_t id = (uint8_t)(10 * rank + thread);
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, thread, 100 + id), STEP(TX_PUT, 3 - thread, 120 + id)},
                   read[STEPS_MAX] = {STEP(TX_READ, 3 - thread, 0), STEP(TX_READ, thread, 0)};
    (void)sim_tx_transact(state, rank, thread, put);
    (void)sim_tx_transact(state, rank, thread, read);
    (void)sim_tx_transact(state, rank, thread, put);
}

const struct sim_case sim_case_tx_busy =
    TWO_OWNERS("busy", "two threads of each node commit at two owners", 2, 2, sim_tx_busy_body);

/* Node 3 owns nothing. */
void sim_tx_three_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, (rank + 1) % 3, 10 + rank),
                                     STEP(TX_PUT, (rank + 2) % 3, 20), STEP(TX_PUT, rank % 3, 30 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_READ, 1, 0), STEP(TX_READ, 2, 0)};
    (void)sim_tx_transact(state, rank, thread, rank == 3 || rank == 0 ? put : read);
    (void)sim_tx_transact(state, rank, thread, rank == 3 ? put : read);
}

const struct sim_case sim_case_tx_three = {.object = "tx",
                                           .name = "three",
                                           .about = "transactions at three owners",
                                           .nodes = 4,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct tx_state),
                                           .open = sim_tx_open_three,
                                           .close = sim_tx_close,
                                           .body = sim_tx_three_body,
                                           .after = sim_tx_owners_after,
                                           .oracle = &oracle_tx,
                                           .relies_on_end = true};

/* The coordinator and the decider fail, one after the other. */
static void fail_partner(void) {
    if (sim_fault_fails())
        return;
    if (sim_out(0) && !sim_out(3))
        sim_crash(3);
    if (sim_out(3) && !sim_out(0))
        sim_crash(0);
}

/* Node 3 is the coordinator, and node 0 the decider. A lookup of its key could return a change that is lost
 * with both. */
void sim_tx_two_fail_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, 0, 10), STEP(TX_PUT, 1, 20), STEP(TX_PUT, 2, 30)},
                   again[STEPS_MAX] = {STEP(TX_PUT, 0, 40), STEP(TX_PUT, 2, 50), STEP(TX_PUT, 1, 60)},
                   read[STEPS_MAX] = {STEP(TX_READ, rank, 0), STEP(TX_READ, 3 - rank, 0)};
    ((struct tx_state *)state)->fails_twice = true;
    if (rank == 3) {
        (void)sim_tx_transact(state, rank, thread, put);
        (void)sim_tx_transact(state, rank, thread, again);
    }
    for (uint32_t i = 0; i < 6 && (rank == 1 || rank == 2); i++) {
        fail_partner();
        (void)sim_tx_transact(state, rank, thread, read);
    }
}

/* Keys 1 and 2 are usable, and have values of one transaction. */
void sim_tx_two_fail_after(void *state, uint32_t rank) {
    const uint64_t read[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_READ, 2, 0)};
    for (uint32_t key = 1; key < 3; key++)
        sim_tx_call(state, rank, STEP(TX_READ, key, 0), owner_of(state, rank, key));
    (void)sim_tx_transact(state, rank, 0, read);
    for (uint32_t key = 1; key < 3; key++)
        sim_tx_call(state, rank, STEP(TX_PUT, key, 100 + 10 * key + rank), owner_of(state, rank, key));
}

const struct sim_case sim_case_tx_two_fail = {.object = "tx",
                                              .name = "two_fail",
                                              .about = "the coordinator and the decider fail",
                                              .nodes = 4,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct tx_state),
                                              .open = sim_tx_open_three,
                                              .close = sim_tx_close,
                                              .body = sim_tx_two_fail_body,
                                              .after = sim_tx_two_fail_after,
                                              .oracle = &oracle_tx,
                                              .relies_on_end = true};

/* The keys of each node belong to one bucket, until its first division separates them. */
void sim_tx_open_growing(void *state, struct remo_node *node, uint32_t rank) {
    struct tx_state *s = state;
    uint64_t key = 1;
    sim_tx_open(state, node, rank, 1, 100, 1);
    for (uint32_t i = 0; i < ORACLE_KEYS; key++)
        if (remo_table_owner(s->tables[rank], &key, sizeof key) == i / 2
            && (XXH3_64bits(&key, sizeof key) >> 32 & 1) == i % 2)
            s->keys[i++] = key;
}

/* Node 0 inserts keys of its own, so its bucket is divided while the others lock and reserve items in it. */
void sim_tx_moved_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, rank == 1, 10 + rank), STEP(TX_PUT, 2 + (rank == 1), 20)},
                   swap[STEPS_MAX] = {STEP(TX_DELETE, 0, 0), STEP(TX_PUT, 3, 30 + rank),
                                      STEP(TX_PUT, 1, 40 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_READ, 3, 0), STEP(TX_READ, 0, 0)};
    if (rank == 0)
        for (uint32_t key = 0; key < 4; key++)
            sim_tx_call(state, rank, STEP(TX_PUT, key % 2, 50 + key), SIM_ANY);
    (void)sim_tx_transact(state, rank, thread, put);
    (void)sim_tx_transact(state, rank, thread, rank == 2 ? read : swap);
    (void)sim_tx_transact(state, rank, thread, read);
}

const struct sim_case sim_case_tx_moved = {.object = "tx",
                                           .name = "moved",
                                           .about = "a bucket is divided while transactions lock its items",
                                           .nodes = 3,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct tx_state),
                                           .open = sim_tx_open_growing,
                                           .close = sim_tx_close,
                                           .body = sim_tx_moved_body,
                                           .after = sim_tx_owners_after,
                                           .oracle = &oracle_tx,
                                           .relies_on_end = true};

/* Node 0, the decider, and node 3, the coordinator, lose each other; then node 3 fails for all. */
void sim_tx_apart_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, 0, 10), STEP(TX_PUT, 1, 20), STEP(TX_PUT, 2, 30)},
                   again[STEPS_MAX] = {STEP(TX_PUT, 1, 40), STEP(TX_PUT, 2, 50), STEP(TX_PUT, 0, 60)},
                   more[STEPS_MAX] = {STEP(TX_PUT, 1, 70), STEP(TX_PUT, 2, 80)},
                   read[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_READ, 1, 0), STEP(TX_READ, 2, 0)};
    if (rank == 3) {
        (void)sim_tx_transact(state, rank, thread, put);
        (void)sim_tx_transact(state, rank, thread, again);
        for (uint32_t i = 0; i < 3; i++)
            (void)sim_tx_transact(state, rank, thread, more);
    }
    for (uint32_t i = 0; i < 4 && rank < 3; i++) {
        if (rank == 1 && i == 1)
            sim_part(0, 3, 300);
        (void)sim_tx_transact(state, rank, thread, read);
    }
}

const struct sim_case sim_case_tx_apart = {.object = "tx",
                                           .name = "apart",
                                           .about = "the coordinator and an owner lose each other first",
                                           .nodes = 4,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct tx_state),
                                           .open = sim_tx_open_three,
                                           .close = sim_tx_close,
                                           .body = sim_tx_apart_body,
                                           .after = sim_tx_owners_after,
                                           .oracle = &oracle_tx,
                                           .profiles = "ibta_rc,rc_relaxed,efa,tcp,ofi",
                                           .has_own_fault = true,
                                           .relies_on_end = true};

/* Node 0, the decider, loses node 3, the coordinator, and node 1. Then node 3 fails for all, while node 0 is
 * up for node 2; then node 0. If node 2 makes no step in between, a commit that was acknowledged may be lost
 * with both. */
void sim_tx_two_apart_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, 0, 10), STEP(TX_PUT, 1, 20), STEP(TX_PUT, 2, 30)},
                   again[STEPS_MAX] = {STEP(TX_PUT, 0, 40), STEP(TX_PUT, 2, 50), STEP(TX_PUT, 1, 60)},
                   read[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_READ, 2, 0)};
    ((struct tx_state *)state)->fails_twice = true;
    if (rank == 3) {
        (void)sim_tx_transact(state, rank, thread, put);
        (void)sim_tx_transact(state, rank, thread, again);
    }
    for (uint32_t i = 0; i < 4 && (rank == 1 || rank == 2); i++) {
        if (rank == 1 && i == 1) {
            sim_part(0, 3, 200);
            sim_part(1, 0, 500);
        }
        (void)sim_tx_transact(state, rank, thread, read);
    }
}

const struct sim_case sim_case_tx_two_apart = {.object = "tx",
                                               .name = "two_apart",
                                               .about = "the decider loses the coordinator and an owner",
                                               .nodes = 4,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct tx_state),
                                               .open = sim_tx_open_three,
                                               .close = sim_tx_close,
                                               .body = sim_tx_two_apart_body,
                                               .after = sim_tx_two_fail_after,
                                               .oracle = &oracle_tx,
                                               .profiles = "ibta_rc,rc_relaxed,efa,tcp,ofi",
                                               .has_own_fault = true,
                                               .relies_on_end = true};

/* Node 3, the coordinator, loses node 0, the decider, and node 1. Then node 0 fails, and later node 3. */
void sim_tx_both_apart_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t read[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_READ, 2, 0)};
    for (uint32_t i = 0; i < 4 && rank == 3; i++) {
        const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, 0, 10 + i), STEP(TX_PUT, 1, 20 + i),
                                         STEP(TX_PUT, 2, 30 + i)};
        (void)sim_tx_transact(state, rank, thread, put);
    }
    for (uint32_t i = 0; i < 8 && (rank == 1 || rank == 2); i++) {
        if (rank == 1 && i == 1) {
            sim_part(0, 3, 4000);
            sim_part(1, 3, 4000);
        } else if (rank == 1 && i == 5) {
            sim_crash(0);
        }
        (void)sim_tx_transact(state, rank, thread, read);
    }
}

const struct sim_case sim_case_tx_both_apart = {.object = "tx",
                                                .name = "both_apart",
                                                .about = "the coordinator loses the decider and an owner",
                                                .nodes = 4,
                                                .threads = 1,
                                                .state_bytes = sizeof(struct tx_state),
                                                .open = sim_tx_open_three,
                                                .close = sim_tx_close,
                                                .body = sim_tx_both_apart_body,
                                                .after = sim_tx_two_fail_after,
                                                .oracle = &oracle_tx,
                                                .profiles = "ibta_rc,rc_relaxed,efa,tcp,ofi",
                                                .has_own_fault = true,
                                                .relies_on_end = true};
