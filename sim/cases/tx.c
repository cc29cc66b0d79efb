/* tx.c - transactions: all keys are one object, and each committed transaction is one call on it.
 * The keys 0 and 1 belong to node 0, and 2 and 3 to node 1. They meet in buckets of width 1. A transaction
 * whose commit fails may have been applied; one in conflict has not. */
#include "sim/cases/tx.h"

#include <errno.h>
#include <string.h>

#include "sim/cases/directory.h"

#define VALUE_WORDS 4u /* an item is more than a cache line */
#define ATTEMPTS_MAX 3u

/* ---- open ---- */

static void choose_keys(struct tx_state *s, const struct remo_table *table) {
    uint64_t key = 1;
    for (uint32_t i = 0; i < ORACLE_KEYS; key++)
        if (remo_table_owner(table, &key, sizeof key) == i / 2)
            s->keys[i++] = key;
}

/* Open the transactions of a structure that is open. */
static void open_space(struct tx_state *s, struct remo_node *node, uint32_t rank) {
    struct remo_channel *channel = remo_structure_channel(s->structures[rank]);
    sim_opened(remo_channel_wait(channel, REMO_FOREVER), "wait for the structure");
    struct remo_structure *structures[] = {s->structures[rank], remo_tx_queue_structure(s->queues[rank])};
    const struct remo_tx_space_options space = {.structures = structures,
                                                .structure_count = structures[1] ? 2 : 1,
                                                .locks = s->is_early ? REMO_TX_EARLY : REMO_TX_LATE};
    sim_opened(remo_tx_space_open(remo_node_root(node), "tx", &space, &s->spaces[rank]), "open the space");
    sim_opened(remo_channel_wait(remo_tx_space_channel(s->spaces[rank]), REMO_FOREVER), "wait for the space");
    for (uint32_t thread = 0; thread < SIM_THREADS_MAX; thread++)
        sim_opened(remo_tx_open(s->spaces[rank], &s->txs[rank][thread]), "open a transaction");
}

void sim_tx_open(void *state, struct remo_node *node, uint32_t rank, uint32_t width, uint32_t slots_percent,
                 uint64_t capacity) {
    struct tx_state *s = state;
    const struct remo_table_options options = {.capacity = capacity,
                                               .capacity_max = 4,
                                               .value_bytes_max = 8 * VALUE_WORDS,
                                               .width = width,
                                               .slots_percent = slots_percent,
                                               .overflow_percent = 400,
                                               .places = 4};
    sim_opened(remo_table_open(remo_node_root(node), "table", &options, &s->tables[rank]), "open the table");
    s->structures[rank] = remo_table_structure(s->tables[rank]);
    s->value_words = VALUE_WORDS;
    open_space(s, node, rank);
}

static void open_txs(void *state, struct remo_node *node, uint32_t rank, uint32_t width,
                     uint32_t slots_percent, uint64_t capacity) {
    struct tx_state *s = state;
    sim_tx_open(state, node, rank, width, slots_percent, capacity);
    choose_keys(s, s->tables[rank]);
}

static void open_narrow(void *state, struct remo_node *node, uint32_t rank) {
    open_txs(state, node, rank, 1, 1, 4);
}

static void open_wide(void *state, struct remo_node *node, uint32_t rank) {
    open_txs(state, node, rank, 2, 1, 4);
}

static void open_buckets(void *state, struct remo_node *node, uint32_t rank) {
    open_txs(state, node, rank, 1, 100, 4);
}

void sim_tx_close(void *state, uint32_t rank) {
    struct tx_state *s = state;
    for (uint32_t thread = 0; thread < SIM_THREADS_MAX; thread++)
        remo_tx_close(s->txs[rank][thread]);
    remo_tx_space_close(s->spaces[rank]);
    remo_tx_queue_close(s->queues[rank]);
    remo_table_close(s->tables[rank]);
}

/* ---- one transaction ---- */

static void check_value(const uint64_t *value, size_t bytes, uint32_t words) {
    sim_require(bytes == words * 8, "a read returns a value of %zu bytes", bytes);
    for (uint32_t i = 1; i < words; i++)
        sim_require(value[i] == value[0], "a read returns a torn value");
}

/* The calls for one step: those of a transaction, or of the structure. */
static int do_step(struct remo_structure *structure, struct remo_tx *tx, uint64_t step, uint64_t key,
                   uint64_t *value, uint32_t words) {
    size_t size = words * 8, bytes = size;
    int rc;
    switch (step >> 12) {
    case TX_INSERT:
        return tx ? remo_tx_insert(tx, structure, &key, sizeof key, value, size)
                  : remo_structure_insert(structure, &key, sizeof key, value, size);
    case TX_UPDATE:
        return tx ? remo_tx_update(tx, structure, &key, sizeof key, value, size)
                  : remo_structure_update(structure, &key, sizeof key, value, size);
    case TX_PUT:
        return tx ? remo_tx_put(tx, structure, &key, sizeof key, value, size)
                  : remo_structure_put(structure, &key, sizeof key, value, size);
    case TX_DELETE:
        return tx ? remo_tx_delete(tx, structure, &key, sizeof key)
                  : remo_structure_delete(structure, &key, sizeof key);
    default:
        rc = tx ? remo_tx_read(tx, structure, &key, sizeof key, value, size, &bytes)
                : remo_structure_lookup(structure, &key, sizeof key, value, size, &bytes, NULL);
        break;
    }
    if (rc == 0)
        check_value(value, bytes, words);
    return rc;
}

/* Push or pop an element. */
static int do_queue_step(struct remo_tx_queue *queue, struct remo_tx *tx, uint64_t step, uint64_t *element,
                         uint32_t words) {
    size_t bytes = words * 8;
    if (step >> 12 == TX_PUSH)
        return remo_tx_queue_push(tx, queue, element, bytes);
    int rc = remo_tx_queue_pop(tx, queue, element, bytes, &bytes);
    if (rc == 0)
        check_value(element, bytes, words);
    return rc;
}

/* Add the outcome of a step to *results. Returns the codes that are no outcome. */
static int add_result(uint64_t step, int rc, uint64_t word, uint32_t shift, uint64_t *results) {
    if (rc == -ENOENT)
        *results |= (uint64_t)TX_ABSENT << 8 << shift;
    else if (rc == -EEXIST)
        *results |= (uint64_t)TX_PRESENT << 8 << shift;
    else if (rc == 0 && (step >> 12 == TX_READ || step >> 12 == TX_POP))
        *results |= word << shift;
    return rc == -ENOENT || rc == -EEXIST ? 0 : rc;
}

int sim_tx_step(struct tx_state *s, uint32_t rank, struct remo_tx *tx, uint64_t step, uint32_t shift,
                uint64_t *results) {
    uint64_t value[VALUE_WORDS];
    for (uint32_t i = 0; i < VALUE_WORDS; i++)
        value[i] = step & 255;
    int rc = step >> 12 >= TX_PUSH
                 ? do_queue_step(s->queues[rank], tx, step, value, s->value_words)
                 : do_step(s->structures[rank], tx, step, s->keys[step >> 8 & 15], value, s->value_words);
    return add_result(step, rc, value[0], shift, results);
}

/* Return whether step i reads its key for update. Even nodes do so if the transaction changes the key later,
 * and node 0 for each second step too; odd nodes lock a key when they change it. */
static bool reads_for_update(const struct tx_state *s, uint32_t rank, const uint64_t *steps, uint32_t i) {
    if (!s->is_early || steps[i] >> 12 != TX_READ || rank % 2 != 0)
        return false;
    for (uint32_t later = i + 1; later < STEPS_MAX && steps[later] != 0; later++)
        if (steps[later] >> 12 != TX_READ && (steps[later] >> 8 & 15) == (steps[i] >> 8 & 15))
            return true;
    return rank == 0 && i % 2 == 1;
}

static int read_for_update(struct tx_state *s, uint32_t rank, struct remo_tx *tx, uint64_t step,
                           uint32_t shift, uint64_t *results) {
    uint64_t value[VALUE_WORDS] = {0}, key = s->keys[step >> 8 & 15];
    size_t bytes = 0;
    int rc = remo_tx_read_for_update(tx, s->structures[rank], &key, sizeof key, value, sizeof value, &bytes);
    if (rc == 0)
        check_value(value, bytes, s->value_words);
    return add_result(step, rc, value[0], shift, results);
}

/* Execute the reads with which a transaction begins, at the same time. Returns their number in *ret_count. */
static int read_together(struct tx_state *s, uint32_t rank, struct remo_tx *tx, const uint64_t *steps,
                         uint32_t *ret_count, uint64_t *results) {
    uint64_t values[STEPS_MAX][VALUE_WORDS];
    struct remo_tx_lookup lookups[STEPS_MAX];
    uint32_t count = 0;
    for (; count < STEPS_MAX && steps[count] >> 12 == TX_READ; count++)
        lookups[count] = (struct remo_tx_lookup){.structure = s->structures[rank],
                                                 .key = &s->keys[steps[count] >> 8 & 15],
                                                 .key_bytes = sizeof s->keys[0],
                                                 .value = values[count],
                                                 .cap = sizeof values[count]};
    *ret_count = count;
    int rc = remo_tx_read_many(tx, lookups, count);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if (lookups[i].status == 0)
            check_value(values[i], lookups[i].value_bytes, s->value_words);
        rc = add_result(steps[i], lookups[i].status, values[i][0], 16 * i, results);
    }
    return rc;
}

enum remo_tx_fate sim_tx_settle(struct remo_tx *tx, uint32_t rank, int result) {
    enum remo_tx_fate fate = REMO_TX_PENDING;
    int rc = remo_tx_settle(tx, REMO_FOREVER, &fate);
    if (sim_out(rank))
        return result == -EAGAIN ? REMO_TX_NOT_COMMITTED : REMO_TX_UNKNOWN;
    sim_require(rc == 0 && fate != REMO_TX_PENDING, "settle: %d, fate %d", rc, (int)fate);
    sim_require(result != 0 || fate == REMO_TX_COMMITTED, "result 0, fate %d", (int)fate);
    sim_require(result != -EAGAIN || fate == REMO_TX_NOT_COMMITTED, "in conflict, fate %d", (int)fate);
    return fate;
}

/* Return whether a node fails of which a commit that was acknowledged may need one, the coordinator or the
 * decider: then it counts as one that perhaps took effect. If both fail before an owner has the outcome, the
 * owners abort (remo/tx.h, Failure). */
static bool may_be_lost(const struct tx_state *s) {
    bool is_one = sim_fault.kind == SIM_LOSE
                  || (sim_fault.kind != SIM_NO_FAULT && sim_fault.kind != SIM_PAUSE && !sim_fault_fails()
                      && (sim_fault.node == TX_DECIDER || sim_fault.node == TX_COORDINATOR));
    return s->fails_twice && (is_one || sim_world->test->has_own_fault);
}

/* Return whether a call may fail: also if another node had no memory to queue its reply. */
static bool is_excused(uint32_t rank, uint32_t depends_on, int rc) {
    return sim_out(rank) || sim_excused(rank, depends_on, rc) || (rc == -ENOMEM && sim_any_hurt());
}

/* Run a transaction once. Returns -EAGAIN if it was in conflict. */
static int attempt(struct tx_state *s, uint32_t rank, uint32_t thread, const uint64_t *steps) {
    struct remo_tx *tx = s->txs[rank][thread];
    uint64_t packed = 0, results = 0;
    bool changes = false;
    int rc = remo_tx_begin(tx);
    sim_require(rc == 0, "begin: %d", rc);
    for (uint32_t i = 0; i < STEPS_MAX && steps[i] != 0; i++) {
        packed |= steps[i] << 16 * i;
        changes |= steps[i] >> 12 != TX_READ;
    }
    uint32_t index = sim_begin(TX_RUN, 0, packed, 0);
    uint32_t done = 0;
    if (s->reads_together)
        rc = read_together(s, rank, tx, steps, &done, &results);
    for (uint32_t i = done; i < STEPS_MAX && steps[i] != 0 && rc == 0; i++)
        rc = (reads_for_update(s, rank, steps, i) ? read_for_update : sim_tx_step)(s, rank, tx, steps[i],
                                                                                   16 * i, &results);
    bool is_run = rc == 0;
    if (is_run)
        rc = remo_tx_commit(tx);
    remo_tx_abort(tx);
    enum remo_tx_fate fate = sim_tx_settle(tx, rank, rc);
    bool is_full = rc == -ENOSPC && is_run && s->queues[rank] && !sim_out(rank);
    if (is_full && s->is_full_exact)
        sim_end(index, rc, 0);
    else if (fate == REMO_TX_COMMITTED && !(changes && may_be_lost(s)))
        sim_end(index, 0, results);
    else if (fate == REMO_TX_NOT_COMMITTED || !is_run || !changes)
        sim_forget(index);
    if (rc != 0 && rc != -EAGAIN && !is_full)
        sim_require(is_excused(rank, SIM_ANY, rc), "transaction: %d (%s)", rc, remo_last_error());
    return rc;
}

int sim_tx_transact(void *state, uint32_t rank, uint32_t thread, const uint64_t *steps) {
    int rc = -EAGAIN;
    for (uint32_t i = 0; i < ATTEMPTS_MAX && rc == -EAGAIN; i++)
        rc = attempt(state, rank, thread, steps);
    return rc;
}

static void transact(void *state, uint32_t rank, uint32_t thread, const uint64_t *steps) {
    (void)sim_tx_transact(state, rank, thread, steps);
}

void sim_tx_call(void *state, uint32_t rank, uint64_t step, uint32_t depends_on) {
    uint64_t results = 0;
    uint32_t index = sim_begin(TX_RUN, 0, step, 0);
    int rc = sim_tx_step(state, rank, NULL, step, 0, &results);
    if (rc == 0 && !sim_out(rank)) {
        sim_end(index, 0, results);
        return;
    }
    if (step >> 12 == TX_READ)
        sim_forget(index);
    sim_require(is_excused(rank, depends_on, rc), "call: %d (%s)", rc, remo_last_error());
}

static void call(void *state, uint32_t rank, uint64_t step) {
    sim_tx_call(state, rank, step, SIM_ANY);
}

/* The surviving nodes can run transactions, unless an owner has failed. */
static void after(void *state, uint32_t rank) {
    const uint64_t steps[STEPS_MAX] = {STEP(TX_PUT, 0, 100 + rank), STEP(TX_READ, 1, 0)},
                   all[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_READ, 1, 0), STEP(TX_READ, 2, 0),
                                     STEP(TX_READ, 3, 0)};
    transact(state, rank, 0, steps);
    transact(state, rank, 0, all);
}

/* ---- cases ---- */

/* Each node changes both keys of node 0 together, and reads both. */
static void pairs_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, rank % 2, 10 + rank),
                                     STEP(TX_PUT, 1 - rank % 2, 20 + rank)},
                   update[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_UPDATE, 1, 30 + rank),
                                        STEP(TX_UPDATE, 0, 40 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, rank % 2, 0), STEP(TX_READ, 1 - rank % 2, 0)};
    transact(state, rank, thread, rank == 2 ? read : put);
    transact(state, rank, thread, rank == 2 ? read : update);
    transact(state, rank, thread, read);
}

const struct sim_case sim_case_tx_pairs = {.object = "tx",
                                           .name = "pairs",
                                           .about =
                                               "three nodes change and read two keys of one owner together",
                                           .nodes = 3,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct tx_state),
                                           .open = open_narrow,
                                           .close = sim_tx_close,
                                           .body = pairs_body,
                                           .after = after,
                                           .oracle = &oracle_tx};

/* Nodes 0 and 1 change keys of their own and of each other; all nodes read keys of both. */
static void owners_body(void *state, uint32_t rank, uint32_t thread) {
    uint32_t own = 2 * (rank % 2), other = 2 - own;
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, own, 10 + rank)},
                   far[STEPS_MAX] = {STEP(TX_PUT, other, 20 + rank), STEP(TX_DELETE, other, 0),
                                     STEP(TX_INSERT, other, 30 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, own, 0), STEP(TX_READ, other, 0)},
                   back[STEPS_MAX] = {STEP(TX_READ, other, 0), STEP(TX_READ, own, 0)};
    transact(state, rank, thread, rank == 2 ? read : put);
    transact(state, rank, thread, rank == 2 ? back : read);
    transact(state, rank, thread, rank == 2 ? read : far);
    transact(state, rank, thread, back);
}

const struct sim_case sim_case_tx_owners = {.object = "tx",
                                            .name = "owners",
                                            .about = "keys of two owners change; transactions read both",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct tx_state),
                                            .open = open_narrow,
                                            .close = sim_tx_close,
                                            .body = owners_body,
                                            .after = after,
                                            .oracle = &oracle_tx};

static void open_together(void *state, struct remo_node *node, uint32_t rank) {
    struct tx_state *s = state;
    open_narrow(state, node, rank);
    s->reads_together = true;
}

/* Transactions read keys of two owners at the same time, while keys change together, come and go. */
static void together_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, 0, 10 + rank), STEP(TX_PUT, 2, 20 + rank)},
                   swap[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_READ, 1, 0), STEP(TX_DELETE, 0, 0),
                                      STEP(TX_PUT, 1, 30 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_READ, 2, 0)},
                   all[STEPS_MAX] = {STEP(TX_READ, 2, 0), STEP(TX_READ, 1, 0), STEP(TX_READ, 0, 0),
                                     STEP(TX_READ, 2, 0)};
    transact(state, rank, thread, rank == 2 ? read : put);
    transact(state, rank, thread, rank == 2 ? all : rank == 1 ? swap : put);
    transact(state, rank, thread, rank == 2 ? read : rank == 1 ? put : all);
}

const struct sim_case sim_case_tx_together = {.object = "tx",
                                              .name = "together",
                                              .about = "keys of two owners are read at the same time",
                                              .nodes = 3,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct tx_state),
                                              .open = open_together,
                                              .close = sim_tx_close,
                                              .body = together_body,
                                              .after = after,
                                              .oracle = &oracle_tx,
                                              .relies_on_end = true};

/* Transactions let both owners look up keys outside their buckets, at the same time, while these keys change
 * together, come and go. */
static void together_calls_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t fill[STEPS_MAX] = {STEP(TX_PUT, 2 * rank, 10), STEP(TX_PUT, 2 * rank + 1, 10)},
                   put[STEPS_MAX] = {STEP(TX_PUT, 1, 20 + rank), STEP(TX_PUT, 3, 20 + rank)},
                   take[STEPS_MAX] = {STEP(TX_READ, 3, 0), STEP(TX_READ, 1, 0), STEP(TX_DELETE, 1, 0)},
                   read[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_READ, 3, 0)},
                   all[STEPS_MAX] = {STEP(TX_READ, 3, 0), STEP(TX_READ, 1, 0), STEP(TX_READ, 0, 0),
                                     STEP(TX_READ, 2, 0)};
    transact(state, rank, thread, rank == 2 ? read : fill);
    transact(state, rank, thread, rank == 2 ? all : put);
    transact(state, rank, thread, rank == 2 ? read : rank == 1 ? take : all);
}

const struct sim_case sim_case_tx_together_calls = {.object = "tx",
                                                    .name = "together_calls",
                                                    .about = "two owners look up keys at the same time",
                                                    .nodes = 3,
                                                    .threads = 1,
                                                    .state_bytes = sizeof(struct tx_state),
                                                    .open = open_together,
                                                    .close = sim_tx_close,
                                                    .body = together_calls_body,
                                                    .after = after,
                                                    .oracle = &oracle_tx,
                                                    .relies_on_end = true};

/* Two keys of a bucket come and go together, or one instead of the other. */
static void absent_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t insert[STEPS_MAX] = {STEP(TX_INSERT, 0, 10 + rank), STEP(TX_INSERT, 1, 20 + rank)},
                   swap[STEPS_MAX] = {STEP(TX_DELETE, 0, 0), STEP(TX_PUT, 1, 30 + rank)},
                   unswap[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_DELETE, 1, 0), STEP(TX_INSERT, 0, 40)},
                   read[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_READ, 0, 0)},
                   far[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_READ, 2, 0), STEP(TX_READ, 1, 0)};
    transact(state, rank, thread, rank == 2 ? read : insert);
    transact(state, rank, thread, rank == 2 ? far : rank == 1 ? swap : unswap);
    transact(state, rank, thread, rank == 1 ? far : rank == 2 ? read : swap);
}

const struct sim_case sim_case_tx_absent = {.object = "tx",
                                            .name = "absent",
                                            .about = "keys of one bucket come and go; transactions read them",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct tx_state),
                                            .open = open_narrow,
                                            .close = sim_tx_close,
                                            .body = absent_body,
                                            .after = after,
                                            .oracle = &oracle_tx};

/* Lookups and changes of the structure itself, beside transactions that change two keys. */
static void plain_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t both[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_PUT, 1, 20 + rank),
                                      STEP(TX_PUT, 0, 10 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_READ, 0, 0), STEP(TX_READ, 2, 0)};
    for (uint32_t i = 0; i < 4 && rank == 2; i++)
        call(state, rank, STEP(TX_READ, i % 2, 0));
    for (uint32_t i = 0; i < 2 && rank < 2; i++) {
        transact(state, rank, thread, both);
        call(state, rank, STEP(rank == 1 ? TX_DELETE : TX_PUT, i, 30 + i));
    }
    transact(state, rank, thread, read);
}

const struct sim_case sim_case_tx_plain = {.object = "tx",
                                           .name = "plain",
                                           .about = "lookups and changes of single keys, beside transactions",
                                           .nodes = 3,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct tx_state),
                                           .open = open_narrow,
                                           .close = sim_tx_close,
                                           .body = plain_body,
                                           .after = after,
                                           .oracle = &oracle_tx};

static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    uint8_t id = (uint8_t)(10 * rank + thread);
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, thread, 100 + id), STEP(TX_PUT, 1 - thread, 120 + id)},
                   take[STEPS_MAX] = {STEP(TX_READ, 1 - thread, 0), STEP(TX_DELETE, thread, 0)},
                   read[STEPS_MAX] = {STEP(TX_READ, thread, 0), STEP(TX_READ, 1 - thread, 0)};
    transact(state, rank, thread, put);
    transact(state, rank, thread, rank == thread ? take : read);
    transact(state, rank, thread, read);
}

const struct sim_case sim_case_tx_threads = {.object = "tx",
                                             .name = "threads",
                                             .about =
                                                 "two threads of each node; two keys in a bucket of width 2",
                                             .nodes = 2,
                                             .threads = 2,
                                             .state_bytes = sizeof(struct tx_state),
                                             .open = open_wide,
                                             .close = sim_tx_close,
                                             .body = threads_body,
                                             .after = after,
                                             .oracle = &oracle_tx};

/* Keys of several buckets, so of several mutexes, in both orders. */
static void groups_body(void *state, uint32_t rank, uint32_t thread) {
    uint8_t id = (uint8_t)(10 * rank + thread);
    uint32_t first = (rank + thread) % 2;
    const uint64_t put[STEPS_MAX] = {STEP(TX_PUT, first, 100 + id), STEP(TX_PUT, 1 - first, 120 + id)},
                   far[STEPS_MAX] = {STEP(TX_PUT, 3 - first, 140 + id), STEP(TX_PUT, 2 + first, 160 + id)},
                   read[STEPS_MAX] = {STEP(TX_READ, first, 0), STEP(TX_READ, 1 - first, 0),
                                      STEP(TX_READ, 3, 0), STEP(TX_READ, 2, 0)};
    transact(state, rank, thread, put);
    transact(state, rank, thread, rank == thread ? read : far);
    transact(state, rank, thread, put);
    transact(state, rank, thread, read);
}

const struct sim_case sim_case_tx_groups = {.object = "tx",
                                            .name = "groups",
                                            .about = "two threads of each node; keys of several buckets",
                                            .nodes = 2,
                                            .threads = 2,
                                            .state_bytes = sizeof(struct tx_state),
                                            .open = open_buckets,
                                            .close = sim_tx_close,
                                            .body = groups_body,
                                            .after = after,
                                            .oracle = &oracle_tx};

/* Keys 0 and 1 belong to one bucket of node 0, and key 2 to its other bucket: owner_of in table.c. */
static void choose_chained_keys(struct tx_state *s, const struct remo_table *table) {
    uint64_t key = 1;
    for (uint32_t i = 0; i < ORACLE_KEYS; key++)
        if (remo_table_owner(table, &key, sizeof key) == 0
            && (uint32_t)XXH3_64bits(&key, sizeof key) >> 31 == (i == 2))
            s->keys[i++] = key;
}

static void open_chain(void *state, struct remo_node *node, uint32_t rank) {
    struct tx_state *s = state;
    open_buckets(state, node, rank);
    choose_chained_keys(s, s->tables[rank]);
}

/* Key 0 is in the slot of the bucket, so key 1 needs an overflow chain, which is empty after its delete. */
static void chain_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t insert[STEPS_MAX] = {STEP(TX_INSERT, 1, 1), STEP(TX_PUT, 2, 2)},
                   delete[STEPS_MAX] = {STEP(TX_DELETE, 1, 0), STEP(TX_PUT, 2, 3)},
                   read[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_READ, 2, 0)};
    if (rank == 0)
        call(state, rank, STEP(TX_PUT, 0, 4));
    for (uint32_t i = 0; i < 6; i++)
        transact(state, rank, thread, rank == 1 ? read : i % 2 == 0 ? insert : delete);
}

const struct sim_case sim_case_tx_chain = {.object = "tx",
                                           .name = "chain",
                                           .about = "a key in an overflow chain is inserted and deleted",
                                           .nodes = 2,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct tx_state),
                                           .open = open_chain,
                                           .close = sim_tx_close,
                                           .body = chain_body,
                                           .oracle = &oracle_tx};

/* All keys belong to node 0. The first division of its bucket separates those with an odd number. */
static void choose_divided_keys(struct tx_state *s, const struct remo_table *table) {
    uint64_t key = 1;
    for (uint32_t i = 0; i < ORACLE_KEYS; key++)
        if (remo_table_owner(table, &key, sizeof key) == 0
            && (XXH3_64bits(&key, sizeof key) >> 32 & 1) == i % 2)
            s->keys[i++] = key;
}

static void open_growing(void *state, struct remo_node *node, uint32_t rank) {
    struct tx_state *s = state;
    open_txs(state, node, rank, 1, 100, 1);
    choose_divided_keys(s, s->tables[rank]);
}

/* Nodes 0 and 1 insert keys in pairs, so the bucket of node 0 is divided, and change them together. */
static void growth_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t even[STEPS_MAX] = {STEP(TX_PUT, 0, 10 + rank), STEP(TX_PUT, 1, 20 + rank)},
                   odd[STEPS_MAX] = {STEP(TX_PUT, 3, 30 + rank), STEP(TX_PUT, 2, 40 + rank)},
                   swap[STEPS_MAX] = {STEP(TX_READ, 2, 0), STEP(TX_DELETE, 1, 0), STEP(TX_PUT, 3, 50 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, 1, 0), STEP(TX_READ, 3, 0), STEP(TX_READ, 0, 0)},
                   back[STEPS_MAX] = {STEP(TX_READ, 3, 0), STEP(TX_READ, 2, 0), STEP(TX_READ, 1, 0)};
    transact(state, rank, thread, rank == 2 ? read : rank == 1 ? odd : even);
    transact(state, rank, thread, rank == 2 ? back : swap);
    transact(state, rank, thread, rank == 1 ? read : rank == 0 ? odd : read);
    transact(state, rank, thread, back);
}

const struct sim_case sim_case_tx_growth = {.object = "tx",
                                            .name = "growth",
                                            .about = "transactions on keys of a bucket that is divided",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct tx_state),
                                            .open = open_growing,
                                            .close = sim_tx_close,
                                            .body = growth_body,
                                            .after = after,
                                            .oracle = &oracle_tx};

/* ---- the structure of the tutorial ---- */

struct directory_state {
    struct tx_state tx;
    struct directory directories[SIM_NODES_MAX];
};

/* Keys 0 and 1 have the same own slot; key 2 is of another group. */
static void open_directory(void *state, struct remo_node *node, uint32_t rank) {
    struct directory_state *directories = state;
    struct tx_state *s = &directories->tx;
    struct directory *directory = &directories->directories[rank];
    sim_opened(directory_open(remo_node_root(node), "directory", directory), "open");
    s->structures[rank] = directory->structure;
    s->value_words = DIRECTORY_VALUE_WORDS;
    open_space(s, node, rank);
    for (uint32_t i = 0; i < ORACLE_KEYS; i++)
        s->keys[i] = directory_key_after(i == 1 ? s->keys[0] : 0, 0, i < 2 ? 5 : 8 * i);
}

static void close_directory(void *state, uint32_t rank) {
    struct tx_state *s = state;
    for (uint32_t thread = 0; thread < SIM_THREADS_MAX; thread++)
        remo_tx_close(s->txs[rank][thread]);
    remo_tx_space_close(s->spaces[rank]);
    remo_structure_close(s->structures[rank]);
}

const struct sim_case sim_case_structure_tx = {.object = "structure",
                                               .name = "tx",
                                               .about = "transactions that insert and delete a moved key",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct directory_state),
                                               .open = open_directory,
                                               .close = close_directory,
                                               .body = chain_body,
                                               .oracle = &oracle_tx};

const struct sim_case sim_case_structure_absent = {
    .object = "structure",
    .name = "absent",
    .about = "transactions insert and delete two keys of one slot together",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct directory_state),
    .open = open_directory,
    .close = close_directory,
    .body = absent_body,
    .after = after,
    .oracle = &oracle_tx};
