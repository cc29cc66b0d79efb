/* tx_early.c - transactions with early locks: the cases of several owners in tx_owners.c, and transactions
 * that lock keys, change some or none, and find others absent. Even nodes read keys for update, odd ones lock
 * a key when they change it. */
#include "sim/cases/tx.h"

/* ---- open ---- */

static void open_pairs(void *state, struct remo_node *node, uint32_t rank) {
    ((struct tx_state *)state)->is_early = true;
    sim_tx_open_pairs(state, node, rank);
}

static void open_three(void *state, struct remo_node *node, uint32_t rank) {
    ((struct tx_state *)state)->is_early = true;
    sim_tx_open_three(state, node, rank);
    ((struct tx_state *)state)->value_words = 1; /* COMMIT has the changes of all owners */
}

static void open_growing(void *state, struct remo_node *node, uint32_t rank) {
    ((struct tx_state *)state)->is_early = true;
    sim_tx_open_growing(state, node, rank);
}

/* ---- cases ---- */

#define EARLY(case_name, case_about, node_count, thread_count, open_keys, run, end, ...)               \
    {                                                                                                  \
        .object = "tx", .name = case_name, .about = case_about, .nodes = node_count,                   \
        .threads = thread_count, .state_bytes = sizeof(struct tx_state), .open = open_keys,            \
        .close = sim_tx_close, .body = run, .after = end, .oracle = &oracle_tx, .relies_on_end = true, \
        .needs_sweeps = true, __VA_ARGS__                                                              \
    }

const struct sim_case sim_case_tx_early_both =
    EARLY("early_both", "three nodes lock, change and read keys of two owners together", 3, 1, open_pairs,
          sim_tx_both_body, sim_tx_owners_after);

const struct sim_case sim_case_tx_early_skew =
    EARLY("early_skew", "early locks: transactions read keys that others change", 3, 1, open_pairs,
          sim_tx_skew_body, sim_tx_owners_after);

const struct sim_case sim_case_tx_early_gone =
    EARLY("early_gone", "early locks: keys of two owners come and go; transactions find others absent", 3, 1,
          open_pairs, sim_tx_gone_body, sim_tx_owners_after);

const struct sim_case sim_case_tx_early_beside =
    EARLY("early_beside", "lookups and changes beside transactions with early locks", 3, 1, open_pairs,
          sim_tx_beside_body, sim_tx_owners_after);

const struct sim_case sim_case_tx_early_busy =
    EARLY("early_busy", "early locks: two threads of each node commit at two owners", 2, 2, open_pairs,
          sim_tx_busy_body, sim_tx_owners_after);

const struct sim_case sim_case_tx_early_three = EARLY("early_three", "early locks at three owners", 4, 1,
                                                      open_three, sim_tx_three_body, sim_tx_owners_after);

const struct sim_case sim_case_tx_early_two_fail =
    EARLY("early_two_fail", "early locks: the coordinator and the decider fail", 4, 1, open_three,
          sim_tx_two_fail_body, sim_tx_two_fail_after);

const struct sim_case sim_case_tx_early_moved =
    EARLY("early_moved", "a bucket is divided while its items are locked early", 3, 1, open_growing,
          sim_tx_moved_body, sim_tx_owners_after);

#define OWN_FAULT .profiles = "ibta_rc,rc_relaxed,efa,tcp,ofi", .has_own_fault = true

const struct sim_case sim_case_tx_early_apart =
    EARLY("early_apart", "early locks: the coordinator and an owner lose each other first", 4, 1, open_three,
          sim_tx_apart_body, sim_tx_owners_after, OWN_FAULT);

const struct sim_case sim_case_tx_early_two_apart =
    EARLY("early_two_apart", "early locks: the decider loses the coordinator and an owner", 4, 1, open_three,
          sim_tx_two_apart_body, sim_tx_two_fail_after, OWN_FAULT);

const struct sim_case sim_case_tx_early_both_apart =
    EARLY("early_both_apart", "early locks: the coordinator loses the decider and an owner", 4, 1, open_three,
          sim_tx_both_apart_body, sim_tx_two_fail_after, OWN_FAULT);

/* Transactions lock keys, and do not change all of them: some only read, some find a key absent in the place
 * in which they have reserved another one, and some delete a key that they have inserted. */
static void kept_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t insert[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_PUT, 0, 10 + rank), STEP(TX_READ, 2, 0)},
                   swap[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_PUT, 1, 20 + rank), STEP(TX_DELETE, 1, 0),
                                      STEP(TX_PUT, 2, 30 + rank)},
                   move[STEPS_MAX] = {STEP(TX_READ, 3, 0), STEP(TX_DELETE, 0, 0), STEP(TX_PUT, 2, 40 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, 2, 0), STEP(TX_READ, 1, 0), STEP(TX_READ, 0, 0)};
    (void)sim_tx_transact(state, rank, thread, rank == 0 ? read : insert);
    (void)sim_tx_transact(state, rank, thread, rank == 1 ? swap : move);
    (void)sim_tx_transact(state, rank, thread, rank == 2 ? read : swap);
    (void)sim_tx_transact(state, rank, thread, read);
}

/* Key 2 comes and goes together with changes of key 0. Node 0 finds it absent in the place in which it then
 * reserves or locks key 3, and reads its own key 0 last. */
static void renewed_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t come[STEPS_MAX] = {STEP(TX_PUT, 2, 10 + rank), STEP(TX_PUT, 0, 20 + rank)},
                   go[STEPS_MAX] = {STEP(TX_DELETE, 2, 0), STEP(TX_PUT, 0, 30 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, 2, 0), STEP(TX_READ, 3, 0), STEP(TX_READ, 0, 0)};
    for (uint32_t i = 0; i < 4; i++)
        (void)sim_tx_transact(state, rank, thread, rank == 0 ? read : i % 2 == 0 ? come : go);
}

const struct sim_case sim_case_tx_early_renewed =
    EARLY("early_renewed", "an absent key in a place that the transaction's own locks have changed", 2, 1,
          open_pairs, renewed_body, sim_tx_owners_after);

/* Each of two transactions locks a key of the other node, then reads its own one, which is locked: neither
 * waits for the other. The read is the third step, because node 0 reads its second one for update. */
static void cross_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t cross[STEPS_MAX] = {STEP(TX_PUT, 2 - 2 * rank, 10 + rank),
                                       STEP(TX_PUT, 2 - 2 * rank, 20 + rank), STEP(TX_READ, 2 * rank, 0)};
    for (uint32_t i = 0; i < 3; i++)
        (void)sim_tx_transact(state, rank, thread, cross);
}

const struct sim_case sim_case_tx_early_cross =
    EARLY("early_cross", "transactions that hold locks read keys that others have locked", 2, 1, open_pairs,
          cross_body, sim_tx_owners_after);

const struct sim_case sim_case_tx_early_kept =
    EARLY("early_kept", "transactions lock keys, present and absent, that they do not change", 3, 1,
          open_pairs, kept_body, sim_tx_owners_after);
