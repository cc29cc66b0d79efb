/* tree_window.c - operations in flight together on each node, while scans of two owners delay changes. For
 * the checker, each operation is a call that ends when its thread finds it complete. A window can have more
 * changes than a thread can have calls in flight. */
#include <errno.h>
#include <string.h>

#include "sim/cases/tree.h"

#define WINDOW 4u

/* Node 0 has two of the keys, node 1 the others. A leaf has room for two entries. */
static void open_tree(void *state, struct remo_node *node, uint32_t rank) {
    sim_tree_open_halves(state, node, rank, "c", 122, VALUE_BYTES_MAX);
}

struct flight {
    struct remo_tree_op op;
    uint64_t step;
    uint32_t call;
    bool has_ended;
    unsigned char key, value[VALUE_BYTES_MAX];
};

/* Set the kind of an operation. Returns the function of the oracle. */
static uint32_t set_kind(struct flight *flight) {
    switch (flight->step >> 12) {
    case TX_INSERT: flight->op.kind = REMO_TREE_INSERT; return MAP_INSERT;
    case TX_UPDATE: flight->op.kind = REMO_TREE_UPDATE; return MAP_UPDATE;
    case TX_PUT: flight->op.kind = REMO_TREE_UPSERT; return MAP_PUT;
    case TX_DELETE: flight->op.kind = REMO_TREE_REMOVE; return MAP_DELETE;
    default: flight->op.kind = REMO_TREE_GET; return MAP_GET;
    }
}

static void start(struct tree_state *s, uint32_t rank, struct flight *flight) {
    flight->key = (unsigned char)('a' + (flight->step >> 8 & 15));
    memset(flight->value, (int)(flight->step & 255), sizeof flight->value);
    flight->op = (struct remo_tree_op){
        .key = &flight->key, .key_bytes = 1, .value = flight->value, .value_bytes = s->value_bytes};
    uint32_t function = set_kind(flight);
    flight->call = sim_begin(function, flight->key, flight->step & 255, 0);
    int rc = remo_tree_start(s->trees[rank], &flight->op);
    if (rc != 0)
        sim_forget(flight->call);
    flight->has_ended = rc != 0;
}

/* Record the ends of all operations that are complete. */
static void end_complete(const struct tree_state *s, struct flight *flights) {
    for (uint32_t i = 0; i < WINDOW; i++) {
        struct flight *flight = &flights[i];
        int rc = flight->op.status;
        if (flight->has_ended || rc == -EINPROGRESS)
            continue;
        flight->has_ended = true;
        bool is_get = flight->op.kind == REMO_TREE_GET;
        if (rc == 0 || rc == -ENOENT || rc == -EEXIST)
            sim_end(flight->call, rc,
                    rc == 0 && is_get ? sim_tree_number(s, flight->value, flight->op.value_bytes) : 0);
        else if (is_get)
            sim_forget(flight->call);
    }
}

/* Run four operations in flight together: poll once, then wait for each. */
static void run_window(struct tree_state *s, uint32_t rank, const uint64_t *steps) {
    struct flight flights[WINDOW] = {0};
    for (uint32_t i = 0; i < WINDOW; i++) {
        flights[i].step = steps[i];
        start(s, rank, &flights[i]);
    }
    (void)remo_tree_poll(s->trees[rank]);
    end_complete(s, flights);
    for (uint32_t i = 0; i < WINDOW; i++) {
        if (!flights[i].has_ended)
            (void)remo_tree_wait(s->trees[rank], &flights[i].op);
        end_complete(s, flights);
    }
    for (uint32_t i = 0; i < WINDOW; i++) {
        int rc = flights[i].op.status;
        bool is_owners =
            rc == -ENOMEM && (sim_hurt(0) || sim_hurt(1)); /* the owner replied with its own error */
        sim_require(rc == 0 || rc == -ENOENT || rc == -EEXIST || is_owners || sim_excused(rank, SIM_ANY, rc),
                    "step %llx of a window: %d (%s)", (unsigned long long)flights[i].step, rc,
                    remo_last_error());
    }
}

/* Scans delay changes. Their results are not recorded. */
static void scan(struct tree_state *s, uint32_t rank) {
    unsigned char buffer[512];
    struct remo_tree_result result;
    int rc = remo_tree_scan(s->trees[rank], NULL, buffer, sizeof buffer, &result);
    sim_require(rc == 0 || sim_excused(rank, SIM_ANY, rc), "scan: %d (%s)", rc, remo_last_error());
}

static void window_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint64_t steps[3][2][WINDOW] = {
        {{STEP(TX_PUT, 0, 1), STEP(TX_PUT, 2, 2), STEP(TX_PUT, 3, 3), STEP(TX_READ, 1, 0)},
         {STEP(TX_PUT, 1, 4), STEP(TX_DELETE, 2, 0), STEP(TX_UPDATE, 3, 5), STEP(TX_READ, 2, 0)}},
        {{STEP(TX_PUT, 0, 11), STEP(TX_PUT, 1, 12), STEP(TX_INSERT, 0, 13), STEP(TX_PUT, 3, 14)},
         {STEP(TX_DELETE, 1, 0), STEP(TX_READ, 0, 0), STEP(TX_PUT, 2, 15), STEP(TX_READ, 3, 0)}},
        {{STEP(TX_READ, 0, 0), STEP(TX_READ, 2, 0), STEP(TX_PUT, 1, 21), STEP(TX_READ, 3, 0)},
         {STEP(TX_PUT, 2, 22), STEP(TX_PUT, 0, 23), STEP(TX_DELETE, 3, 0), STEP(TX_INSERT, 1, 24)}}};
    (void)thread;
    for (uint32_t i = 0; i < 2; i++)
        run_window(state, rank, steps[rank][i]);
}

static void window_after(void *state, uint32_t rank) {
    const uint64_t steps[WINDOW] = {STEP(TX_PUT, rank, 100 + rank), STEP(TX_READ, 3, 0),
                                    STEP(TX_DELETE, 3, 0), STEP(TX_READ, rank, 0)};
    run_window(state, rank, steps);
}

const struct sim_case sim_case_tree_window = {.object = "tree",
                                              .name = "window",
                                              .about = "four operations in flight on each of three nodes",
                                              .nodes = 3,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct tree_state),
                                              .open = open_tree,
                                              .close = sim_tree_close,
                                              .body = window_body,
                                              .after = window_after,
                                              .oracle = &oracle_map,
                                              .relies_on_end = true};

/* Changes are so frequent that scans delay them. */
static void frozen_body(void *state, uint32_t rank, uint32_t thread) {
    enum { ROUNDS = 5 };
    uint64_t number = 1 + 60 * rank + 20 * thread;
    for (uint32_t i = 0; i < 2 && rank == 2 && thread == 0; i++)
        scan(state, rank);
    for (uint32_t i = 0; i < ROUNDS && rank < 2; i++) {
        uint64_t steps[WINDOW] = {STEP(TX_PUT, 2 * rank, number), STEP(TX_PUT, 2 - 2 * rank, number + 1),
                                  STEP(TX_PUT, 2 * rank + 1, number + 2), STEP(TX_READ, 0, 0)};
        run_window(state, rank, steps);
        number += 3;
    }
}

const struct sim_case sim_case_tree_window_frozen = {.object = "tree",
                                                     .name = "window_frozen",
                                                     .about =
                                                         "scans delay changes that are in flight together",
                                                     .nodes = 3,
                                                     .threads = 2,
                                                     .state_bytes = sizeof(struct tree_state),
                                                     .open = open_tree,
                                                     .close = sim_tree_close,
                                                     .body = frozen_body,
                                                     .after = window_after,
                                                     .oracle = &oracle_map,
                                                     .relies_on_end = true};
