/* tx_queue.c - transactions that push and pop elements of a queue, and change keys of a table. The queue has
 * two slots, and each element another value. The keys 0 and 1 belong to node 0, which owns the queue in most
 * cases, and 2 and 3 to node 1. */
#include "sim/cases/tx.h"

#define PUSH(value) STEP(TX_PUSH, 0, value)
#define POP STEP(TX_POP, 0, 0)

/* ---- open ---- */

static void open_queue(void *state, struct remo_node *node, uint32_t rank, uint32_t owner) {
    struct tx_state *s = state;
    const struct remo_tx_queue_options options = {
        .capacity = ORACLE_QUEUE_CAPACITY, .owner = owner, .value_bytes_max = 8};
    sim_opened(remo_tx_queue_open(remo_node_root(node), "queue", &options, &s->queues[rank]),
               "open the queue");
    sim_opened(
        remo_channel_wait(remo_structure_channel(remo_tx_queue_structure(s->queues[rank])), REMO_FOREVER),
        "wait for the queue");
    sim_tx_open(state, node, rank, 1, 100, 4);
    s->queue_owner = owner;
    s->value_words = 1; /* the requests of the simulator are short */
    for (uint64_t key = 1, i = 0; i < ORACLE_KEYS; key++)
        if (remo_table_owner(s->tables[rank], &key, sizeof key) == i / 2)
            s->keys[i++] = key;
}

static void open_one_owner(void *state, struct remo_node *node, uint32_t rank) {
    ((struct tx_state *)state)->is_full_exact = true;
    open_queue(state, node, rank, 0);
}

static void open_owners(void *state, struct remo_node *node, uint32_t rank) {
    open_queue(state, node, rank, 1);
}

/* ---- cases ---- */

/* Empty the queue, and push and pop once more. A transaction that pops an element of its own has room for two
 * others: its request is too long for a call of the simulator. */
static void after(void *state, uint32_t rank) {
    const uint64_t pops[STEPS_MAX] = {POP, POP}, push[STEPS_MAX] = {PUSH(200 + rank)},
                   through[STEPS_MAX] = {PUSH(210 + rank), PUSH(220 + rank), PUSH(230 + rank), POP};
    (void)sim_tx_transact(state, rank, 0, pops);
    if (rank == ((struct tx_state *)state)->queue_owner)
        (void)sim_tx_transact(state, rank, 0, through);
    (void)sim_tx_transact(state, rank, 0, push);
    (void)sim_tx_transact(state, rank, 0, pops);
}

#define QUEUE_CASE(case_name, case_about, node_count, thread_count, open_function, run)         \
    {                                                                                           \
        .object = "tx", .name = case_name, .about = case_about, .nodes = node_count,            \
        .threads = thread_count, .state_bytes = sizeof(struct tx_state), .open = open_function, \
        .close = sim_tx_close, .body = run, .after = after, .oracle = &oracle_tx_queue,         \
        .relies_on_end = true                                                                   \
    }

/* Pushes and pops, one and two in a transaction. */
static void queue_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t push[STEPS_MAX] = {PUSH(10 + rank)}, pop[STEPS_MAX] = {POP},
                   pushes[STEPS_MAX] = {PUSH(20 + rank), PUSH(30 + rank)}, pops[STEPS_MAX] = {POP, POP},
                   both[STEPS_MAX] = {POP, PUSH(40 + rank)};
    const uint64_t *const programs[][4] = {
        {push, both, pops, pushes}, {pushes, pop, push, pops}, {pop, push, pop, both}};
    for (uint32_t i = 0; i < 4; i++)
        (void)sim_tx_transact(state, rank, thread, programs[rank][i]);
}

const struct sim_case sim_case_tx_queue =
    QUEUE_CASE("queue", "three nodes push and pop; two slots", 3, 1, open_one_owner, queue_body);

/* Two threads of each node. A transaction may pop the element that it has pushed. */
static void queue_threads_body(void *state, uint32_t rank, uint32_t thread) {
    uint8_t id = (uint8_t)(10 * rank + thread);
    const uint64_t push[STEPS_MAX] = {PUSH(100 + id)}, pop[STEPS_MAX] = {POP},
                   through[STEPS_MAX] = {PUSH(120 + id), POP}, again[STEPS_MAX] = {PUSH(140 + id)};
    (void)sim_tx_transact(state, rank, thread, thread == 0 ? push : pop);
    (void)sim_tx_transact(state, rank, thread, rank == thread ? through : again);
    (void)sim_tx_transact(state, rank, thread, thread == 0 ? pop : push);
    (void)sim_tx_transact(state, rank, thread, pop);
}

const struct sim_case sim_case_tx_queue_threads =
    QUEUE_CASE("queue_threads", "two threads of each node push and pop; two slots", 2, 2, open_one_owner,
               queue_threads_body);

/* A key changes with the queue, at the same owner. */
static void queue_key_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t send[STEPS_MAX] = {STEP(TX_PUT, 0, 10 + rank), PUSH(10 + rank)},
                   more[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_PUT, 0, 20 + rank), PUSH(20 + rank)},
                   receive[STEPS_MAX] = {STEP(TX_READ, 0, 0), POP, STEP(TX_PUT, 1, 30 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, 0, 0), STEP(TX_READ, 1, 0)};
    (void)sim_tx_transact(state, rank, thread, rank == 2 ? receive : send);
    (void)sim_tx_transact(state, rank, thread, rank == 1 ? receive : more);
    (void)sim_tx_transact(state, rank, thread, rank == 0 ? receive : read);
    (void)sim_tx_transact(state, rank, thread, receive);
}

const struct sim_case sim_case_tx_queue_key = QUEUE_CASE(
    "queue_key", "a key changes together with the queue, at one owner", 3, 1, open_one_owner, queue_key_body);

/* Node 1 owns the queue. Work moves between a key of node 0 and the queue. */
static void queue_owners_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t send[STEPS_MAX] = {STEP(TX_PUT, 0, 10 + rank), PUSH(10 + rank)},
                   again[STEPS_MAX] = {STEP(TX_PUT, 0, 40 + rank), PUSH(40 + rank)},
                   receive[STEPS_MAX] = {POP, STEP(TX_PUT, 1, 20 + rank)},
                   move[STEPS_MAX] = {STEP(TX_READ, 1, 0), POP, STEP(TX_PUT, 0, 30 + rank)},
                   read[STEPS_MAX] = {STEP(TX_READ, 1, 0), POP, STEP(TX_READ, 0, 0)};
    (void)sim_tx_transact(state, rank, thread, rank == 2 ? receive : send);
    (void)sim_tx_transact(state, rank, thread, rank == 1 ? read : rank == 0 ? move : receive);
    (void)sim_tx_transact(state, rank, thread, rank == 0 ? receive : again);
    (void)sim_tx_transact(state, rank, thread, read);
}

const struct sim_case sim_case_tx_queue_owners =
    QUEUE_CASE("queue_owners", "keys of one node change together with the queue of another", 3, 1,
               open_owners, queue_owners_body);
