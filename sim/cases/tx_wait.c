/* tx_wait.c - transactions that wait until a key changes, or a queue has an element. A change is always on
 * its way, unless a node has failed: a wait that ends by its deadline has missed it. The keys 0 and 1 belong
 * to node 0, and 2 and 3 to node 1. */
#include <errno.h>

#include "sim/cases/tx.h"
#include "systems/tx/tx.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define WAIT_TIMEOUT_NS REMO_SECONDS(1000) /* far more than all other timeouts */
#define ABSENT (TX_ABSENT << 8)            /* a required outcome; otherwise it is the least value */
#define PRESENT (UINT64_MAX - 1)           /* any outcome but ABSENT */
#define ANY UINT64_MAX

/* ---- open ---- */

static void open_keys(void *state, struct remo_node *node, uint32_t rank) {
    struct tx_state *s = state;
    sim_tx_open(state, node, rank, 1, 100, 4);
    for (uint64_t key = 1, i = 0; i < ORACLE_KEYS; key++)
        if (remo_table_owner(s->tables[rank], &key, sizeof key) == i / 2)
            s->keys[i++] = key;
}

static void open_queue(void *state, struct remo_node *node, uint32_t rank) {
    struct tx_state *s = state;
    const struct remo_tx_queue_options options = {
        .capacity = ORACLE_QUEUE_CAPACITY, .owner = 0, .value_bytes_max = 8};
    sim_opened(remo_tx_queue_open(remo_node_root(node), "queue", &options, &s->queues[rank]),
               "open the queue");
    sim_opened(
        remo_channel_wait(remo_structure_channel(remo_tx_queue_structure(s->queues[rank])), REMO_FOREVER),
        "wait for the queue");
    open_keys(state, node, rank);
    s->value_words = 1;
}

/* No bucket is divided, and there is an entry for each wait. */
static void open_exact(void *state, struct remo_node *node, uint32_t rank) {
    struct tx_state *s = state;
    open_keys(state, node, rank);
    s->is_wait_exact = true;
}

/* All keys belong to node 0, and to one bucket, until its first division separates them. */
static void open_growing(void *state, struct remo_node *node, uint32_t rank) {
    struct tx_state *s = state;
    uint64_t key = 1;
    sim_tx_open(state, node, rank, 1, 100, 1);
    for (uint32_t i = 0; i < ORACLE_KEYS; key++)
        if (remo_table_owner(s->tables[rank], &key, sizeof key) == 0
            && (XXH3_64bits(&key, sizeof key) >> 32 & 1) == i % 2)
            s->keys[i++] = key;
}

/* ---- transactions that wait ---- */

struct waiting {
    struct tx_state *s;
    uint32_t rank;
    const uint64_t *steps;
    uint64_t required[STEPS_MAX]; /* outcomes of the steps, or ANY */
    uint64_t packed, results;
    uint32_t index; /* of the call in the history */
    bool has_begun;
    bool has_waited; /* the last run has ended with a wait, and had these results: */
    uint64_t results_before;
};

static bool is_required(const struct waiting *waiting, uint32_t i) {
    uint64_t required = waiting->required[i], outcome = waiting->results >> 16 * i & 0xffff;
    if (required == ANY || required == ABSENT || outcome == ABSENT)
        return required == ANY || required == outcome;
    return required == PRESENT || outcome >= required;
}

/* The wait has ended: the results are not those before it. Otherwise it has ended without a change. */
static void check_changed(const struct waiting *waiting) {
    sim_require(!waiting->s->is_wait_exact || !waiting->has_waited
                    || waiting->results != waiting->results_before || sim_any_out() || sim_any_hurt(),
                "a wait has ended, but no key has changed");
}

/* Each run of the body is a call; only the last one may have an effect. All steps that are awaited come
 * first, so that the wait depends on all of them. */
static int wait_body(void *ctx, struct remo_tx *tx) {
    struct waiting *waiting = ctx;
    bool is_met = true;
    if (waiting->has_begun)
        sim_forget(waiting->index);
    waiting->index = sim_begin(TX_RUN, 0, waiting->packed, 0);
    waiting->has_begun = true;
    waiting->results = 0;
    for (uint32_t i = 0; i < STEPS_MAX && waiting->steps[i] != 0; i++) {
        if (!is_met && waiting->required[i] == ANY)
            break;
        int rc = sim_tx_step(waiting->s, waiting->rank, tx, waiting->steps[i], 16 * i, &waiting->results);
        if (rc != 0)
            return rc;
        is_met &= is_required(waiting, i);
    }
    check_changed(waiting);
    waiting->has_waited = !is_met;
    waiting->results_before = waiting->results;
    return is_met ? 0 : REMO_TX_WAIT;
}

/* Return whether an owner has not ended a transaction of a failed node. It needs sweeps, which the simulator
 * runs after all deadlines. */
static bool is_unsettled(const struct tx_state *s) {
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++)
        if (s->spaces[node] && atomic_load(&s->spaces[node]->unsettled) > 0)
            return true;
    return false;
}

/* A transaction has waited until its deadline, because the node that was to change its keys has failed. If it
 * can run now, it has missed the change: all bodies end at such a failure. */
static void check_missed(struct waiting *waiting, struct remo_tx *tx) {
    waiting->has_begun = false;
    int rc = remo_tx_run(tx, wait_body, waiting, 0);
    sim_require(rc != 0 || sim_out(waiting->rank), "a change was missed");
    sim_forget(waiting->index);
}

/* Run a transaction when its steps have the required outcomes. Returns false if that has failed: the body
 * ends. */
static bool wait_and_run(void *state, uint32_t rank, uint32_t thread, const uint64_t *steps,
                         const uint64_t *required) {
    struct tx_state *s = state;
    struct waiting waiting = {.s = s, .rank = rank, .steps = steps};
    bool changes = false;
    for (uint32_t i = 0; i < STEPS_MAX && steps[i] != 0; i++) {
        waiting.required[i] = required[i];
        waiting.packed |= steps[i] << 16 * i;
        changes |= steps[i] >> 12 != TX_READ;
    }
    int rc = remo_tx_run(s->txs[rank][thread], wait_body, &waiting, WAIT_TIMEOUT_NS);
    enum remo_tx_fate fate = sim_tx_settle(s->txs[rank][thread], rank, rc);
    if (fate == REMO_TX_COMMITTED)
        sim_end(waiting.index, 0, waiting.results);
    else if (fate == REMO_TX_NOT_COMMITTED || !changes)
        sim_forget(waiting.index);
    if (rc == -ETIMEDOUT && sim_any_out() && !sim_any_hurt()) {
        if (!is_unsettled(s))
            check_missed(&waiting, s->txs[rank][thread]);
    } else if (rc != 0)
        sim_require(sim_out(rank) || sim_excused(rank, SIM_ANY, rc), "transaction that waits: %d (%s)", rc,
                    remo_last_error());
    return rc == 0;
}

/* ---- afterwards ---- */

/* For sim_until: no transaction waits any more, so no watch is set, and no reply is owed. */
static bool has_no_watch(void *ctx) {
    const struct remo_tx_space *space = ctx;
    for (uint32_t node = 0; node < space->node->size; node++)
        if (space->peers[node].watches_count > 0 || space->peers[node].replies_count > 0)
            return false;
    return true;
}

static void after(void *state, uint32_t rank) {
    struct tx_state *s = state;
    const uint64_t steps[STEPS_MAX] = {STEP(TX_PUT, 1, 200 + rank), STEP(TX_READ, 0, 0)};
    sim_until(has_no_watch, s->spaces[rank], "wait until no watch is set");
    (void)sim_tx_transact(state, rank, 0, steps);
}

#define WAIT_CASE(case_name, case_about, node_count, thread_count, open_function, run, judge)         \
    {                                                                                                 \
        .object = "tx", .name = case_name, .about = case_about, .nodes = node_count,                  \
        .threads = thread_count, .state_bytes = sizeof(struct tx_state), .open = open_function,       \
        .close = sim_tx_close, .body = run, .after = after, .oracle = &(judge), .relies_on_end = true \
    }

/* ---- cases ---- */

/* End the body if a step has failed. */
#define RUN(steps_, required_)                                                    \
    do {                                                                          \
        if (!wait_and_run(state, rank, thread, (const uint64_t[STEPS_MAX])steps_, \
                          (const uint64_t[STEPS_MAX])required_))                  \
            return;                                                               \
    } while (0)
#define LIST(...) \
    { __VA_ARGS__ }

/* A key counts up, and is deleted at the end. Each node waits for its turns. */
static void turns_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t turn = rank; turn < 5; turn += 2)
        RUN(LIST(STEP(TX_READ, 0, 0), STEP(TX_PUT, 0, turn + 1)), LIST(turn == 0 ? ABSENT : turn, ANY));
    if (rank == 1)
        RUN(LIST(STEP(TX_READ, 0, 0), STEP(TX_DELETE, 0, 0)), LIST(5, ANY));
    else
        RUN(LIST(STEP(TX_READ, 0, 0)), LIST(ABSENT));
}

const struct sim_case sim_case_tx_wait_turns = WAIT_CASE(
    "wait_turns", "two nodes wait for each other's changes of a key", 2, 1, open_keys, turns_body, oracle_tx);

/* Node 0 waits for a key of its own and one of node 1. The others wait for its answer. Round 1: the keys
 * change one after the other; round 2: together; round 3: by calls. */
static void owners_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t round = 1; round <= 3 && rank == 0; round++)
        RUN(LIST(STEP(TX_READ, 0, 0), STEP(TX_READ, 2, 0), STEP(TX_PUT, 1, 10 + round)),
            LIST(round, round, ANY));
    for (uint32_t round = 1; round <= 3 && rank != 0; round++) {
        if (round == 1)
            RUN(LIST(STEP(TX_PUT, rank == 1 ? 2 : 0, 1)), LIST(ANY));
        else if (round == 2 && rank == 2)
            RUN(LIST(STEP(TX_PUT, 2, 2), STEP(TX_PUT, 0, 2)), LIST(ANY, ANY));
        else if (round == 3)
            sim_tx_call(state, rank, STEP(TX_PUT, rank == 2 ? 2 : 0, 3), SIM_ANY);
        RUN(LIST(STEP(TX_READ, 1, 0)), LIST(10 + round));
    }
}

const struct sim_case sim_case_tx_wait_owners =
    WAIT_CASE("wait_owners", "a node waits for keys of two owners", 3, 1, open_keys, owners_body, oracle_tx);

/* Nodes wait for elements that others push. Node 0 owns the queue. Two transactions change keys of node 1,
 * too. */
static void queue_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t i = 0; i < 2 && rank == 1; i++)
        RUN(LIST(STEP(TX_PUSH, 0, 10 + i), STEP(TX_PUT, 3, i)), LIST(ANY, ANY));
    if (rank == 1) /* the others have one each */
        RUN(LIST(STEP(TX_READ, 0, 0), STEP(TX_READ, 2, 0)), LIST(PRESENT, PRESENT));
    RUN(LIST(STEP(TX_POP, 0, 0), STEP(TX_PUT, rank, 30 + rank)), LIST(PRESENT, ANY));
    if (rank == 0)
        RUN(LIST(STEP(TX_PUSH, 0, 20)), LIST(ANY));
}

const struct sim_case sim_case_tx_wait_queue = WAIT_CASE(
    "wait_queue", "three nodes wait for elements of a queue", 3, 1, open_queue, queue_body, oracle_tx_queue);

/* Node 1 waits for a key that moves when the bucket is divided, and for an absent one. */
static void growth_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t i = 0; i < 3 && rank == 0; i++) /* key 1 first */
        sim_tx_call(state, rank, STEP(TX_PUT, i == 0 ? 1 : 2 * i - 2, 50 + i), SIM_ANY);
    if (rank == 0) {
        RUN(LIST(STEP(TX_READ, 0, 0), STEP(TX_PUT, 1, 60)), LIST(PRESENT, ANY));
        RUN(LIST(STEP(TX_READ, 0, 0), STEP(TX_PUT, 3, 40)), LIST(70, ANY));
    } else {
        RUN(LIST(STEP(TX_READ, 1, 0), STEP(TX_PUT, 0, 70)), LIST(60, ANY));
        RUN(LIST(STEP(TX_READ, 3, 0)), LIST(40));
    }
}

const struct sim_case sim_case_tx_wait_growth =
    WAIT_CASE("wait_growth", "a node waits for keys of a bucket that is divided", 2, 1, open_growing,
              growth_body, oracle_tx);

/* Two threads of each node wait for changes by other threads of their node and of the other one. */
static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    if (thread == 0)
        RUN(LIST(STEP(TX_READ, 0, 0), STEP(TX_PUT, 2 * rank + 1, 21 + rank)), LIST(1, ANY));
    else if (rank == 1)
        RUN(LIST(STEP(TX_READ, 1, 0), STEP(TX_READ, 3, 0)), LIST(21, 22));
    else
        RUN(LIST(STEP(TX_PUT, 0, 1)), LIST(ANY));
    if (rank == 0 && thread == 1)
        RUN(LIST(STEP(TX_READ, 1, 0), STEP(TX_READ, 3, 0)), LIST(21, 22));
}

const struct sim_case sim_case_tx_wait_threads = WAIT_CASE(
    "wait_threads", "two threads of each node wait for others", 2, 2, open_keys, threads_body, oracle_tx);

/* Node 1 waits twice. The second change may come while node 0 still reports the first one. */
static void again_body(void *state, uint32_t rank, uint32_t thread) {
    if (rank == 0) {
        RUN(LIST(STEP(TX_PUT, 0, 1)), LIST(ANY));
    } else if (rank == 1) {
        RUN(LIST(STEP(TX_READ, 0, 0), STEP(TX_PUT, 2, 1)), LIST(1, ANY));
        RUN(LIST(STEP(TX_READ, 0, 0)), LIST(2));
    } else {
        RUN(LIST(STEP(TX_READ, 2, 0), STEP(TX_PUT, 0, 2)), LIST(1, ANY));
    }
}

const struct sim_case sim_case_tx_wait_again = WAIT_CASE(
    "wait_again", "a key changes again after a node has waited", 3, 1, open_exact, again_body, oracle_tx);

/* Nodes 0 and 2 change a key, in any order, while node 1 waits for the third change. So two threads of node 0
 * may report the same watch, and node 1 sets it again before one of them does. */
static void often_body(void *state, uint32_t rank, uint32_t thread) {
    if (rank == 1) {
        RUN(LIST(STEP(TX_READ, 0, 0)), LIST(3));
    } else if (rank == 2) {
        RUN(LIST(STEP(TX_PUT, 0, 2), STEP(TX_PUT, 1, 1)), LIST(ANY, ANY));
    } else {
        RUN(LIST(STEP(TX_PUT, 0, 1)), LIST(ANY));
        RUN(LIST(STEP(TX_READ, 1, 0), STEP(TX_PUT, 0, 3)), LIST(1, ANY));
    }
}

const struct sim_case sim_case_tx_wait_often = WAIT_CASE(
    "wait_often", "a key changes several times while a node waits", 3, 1, open_exact, often_body, oracle_tx);

/* ---- claims ---- */

/* For sim_until: no transaction claims keys any more. An UNCLAIM that cannot be sent is not repeated, and the
 * claims of a node that was cut off only lose their effect. */
static bool has_no_claim(void *ctx) {
    const struct remo_tx_space *space = ctx;
    for (uint32_t node = 0; node < space->node->size && !sim_any_out() && !sim_any_hurt(); node++)
        for (uint32_t number = 0; number < REMO__TX_CLAIMS_MAX; number++)
            if (space->peers[node].claims[number].sets[0].count > 0
                || space->peers[node].claims[number].sets[1].count > 0)
                return false;
    return true;
}

static void claims_after(void *state, uint32_t rank) {
    sim_until(has_no_claim, ((struct tx_state *)state)->spaces[rank], "wait until no key is claimed");
    after(state, rank);
}

/* Twice, node 0 reads and changes keys of two owners. Each other node changes both keys twice: it puts the
 * first key, then deletes it. Transactions that are in conflict claim their keys. */
static void claims_body(void *state, uint32_t rank, uint32_t thread) {
    for (uint32_t i = 0; i < 2; i++)
        if (rank == 0)
            RUN(LIST(STEP(TX_READ, 0, 0), STEP(TX_READ, 2, 0), STEP(TX_PUT, 0, 10 + i),
                     STEP(TX_PUT, 2, 20 + i)),
                LIST(ANY, ANY, ANY, ANY));
        else
            RUN(LIST(STEP(TX_READ, 2, 0), STEP(i == 0 ? TX_PUT : TX_DELETE, 0, 30 + rank),
                     STEP(TX_PUT, 2, 40 + rank)),
                LIST(ANY, ANY, ANY));
}

const struct sim_case sim_case_tx_claims = {.object = "tx",
                                            .name = "claims",
                                            .about = "transactions that were in conflict claim their keys",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct tx_state),
                                            .open = open_keys,
                                            .close = sim_tx_close,
                                            .body = claims_body,
                                            .after = claims_after,
                                            .oracle = &oracle_tx,
                                            .relies_on_end = true,
                                            .needs_sweeps = true};

/* ---- a space that closes ---- */

/* Node 1 waits for a key of node 0, until a deadline, and closes the space. The end of the wait may still be
 * on its way. Node 0 replies all the same: otherwise the slot of the reply stays in use. */
static void closes_body(void *state, uint32_t rank, uint32_t thread) {
    struct tx_state *s = state;
    struct remo_tx *tx = s->txs[rank][thread];
    uint64_t results = 0;
    if (rank == 0)
        return;
    int rc = remo_tx_begin(tx);
    sim_require(rc == 0, "begin: %d (%s)", rc, remo_last_error());
    rc = sim_tx_step(s, rank, tx, STEP(TX_READ, 0, 0), 0, &results);
    if (rc == 0)
        rc = remo_tx_wait(tx, 1000);
    sim_require(rc == 0 || rc == -ETIMEDOUT || sim_out(rank) || sim_excused(rank, SIM_ANY, rc),
                "wait: %d (%s)", rc, remo_last_error());
    remo_tx_close(tx);
    remo_tx_space_close(s->spaces[rank]);
    s->txs[rank][thread] = NULL;
    s->spaces[rank] = NULL;
}

static void closes_after(void *state, uint32_t rank) {
    struct tx_state *s = state;
    if (rank == 0)
        sim_until(has_no_watch, s->spaces[rank], "wait until no watch is set");
    sim_tx_call(state, rank, STEP(TX_PUT, 0, 8), SIM_ANY);
}

const struct sim_case sim_case_tx_wait_closes = {.object = "tx",
                                                 .name = "wait_closes",
                                                 .about = "a node closes the space after it has waited",
                                                 .nodes = 2,
                                                 .threads = 1,
                                                 .state_bytes = sizeof(struct tx_state),
                                                 .open = open_keys,
                                                 .close = sim_tx_close,
                                                 .body = closes_body,
                                                 .after = closes_after,
                                                 .oracle = &oracle_tx,
                                                 .relies_on_end = true};
