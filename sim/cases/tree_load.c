/* tree_load.c - loads at the owner, beside reads and changes of other nodes. The first load, of the set-up,
 * inserts fixed keys. The others insert the four keys of the oracle behind them: for the checker, each commit
 * of the load is a transaction that inserts its keys at one instant. */
#include <string.h>

#include "sim/cases/tree.h"

#define HALF_FULL 50u /* one entry for each leaf: a commit has two entries */
#define FULL 100u     /* two entries for each leaf: a commit has four */

struct input {
    const struct tree_state *s;
    const char *keys;
    uint64_t number; /* of the value of the first key; 0: fixed keys */
    uint32_t at, end;
    uint32_t commit_keys; /* 0: fixed keys */
    uint32_t call;
    unsigned char value[VALUE_BYTES_MAX];
};

/* The next commit begins: record its transaction. */
static void begin_commit(struct input *input, uint32_t first) {
    uint64_t steps = 0;
    for (uint32_t i = 0; i < input->commit_keys; i++)
        steps |= STEP(TX_INSERT, first + i, input->number + first + i) << 16 * i;
    input->call = sim_begin(TX_RUN, 0, steps, 0);
}

/* A load commits when it has the first entry for which its leaves have no room. So the commit has ended when
 * the load calls for the entry after that one. */
static int next(void *ctx, struct remo_tree_entry *ret_entry) {
    struct input *input = ctx;
    uint32_t commit_keys = input->commit_keys;
    if (commit_keys > 0 && input->at > commit_keys && input->at % commit_keys == 1) {
        sim_end(input->call, 0, 0);
        begin_commit(input, input->at - 1);
    }
    if (input->at == input->end)
        return 0;
    memset(input->value, commit_keys ? (int)(input->number + input->at) : 0, sizeof input->value);
    *ret_entry = (struct remo_tree_entry){.key = {&input->keys[input->at], 1},
                                          .value = {input->value, input->s->value_bytes}};
    input->at++;
    return 1;
}

static void load(struct tree_state *s, uint64_t number, uint32_t fill_percent) {
    struct input input = {.s = s,
                          .keys = "abcd",
                          .number = number,
                          .end = ORACLE_KEYS,
                          .commit_keys = fill_percent == FULL ? 4 : 2};
    uint64_t count = 0;
    begin_commit(&input, 0);
    int rc = remo_tree_load(s->trees[OWNER], next, &input, fill_percent, &count);
    if (rc == 0) {
        sim_require(count == ORACLE_KEYS, "a load of %llu entries", (unsigned long long)count);
        sim_end(input.call, 0, 0);
        return;
    }
    sim_require(sim_excused(OWNER, SIM_ANY, rc), "load: %d (%s)", rc, remo_last_error());
}

/* A leaf has room for two entries, the root for eight children. The fixed keys fill two leaves. Node 1 is an
 * owner without keys, so the last leaf of node 0 has a high fence, and scans may delay the load. */
static void open_load(void *state, struct remo_node *node, uint32_t rank) {
    static const struct remo_tree_key boundary = {"e", 1};
    struct tree_state *s = state;
    struct remo_tree_options options = {.boundaries = &boundary,
                                        .nodes = 24,
                                        .node_bytes = 122,
                                        .key_bytes_max = 1,
                                        .value_bytes_max = VALUE_BYTES_MAX,
                                        .retain = 16};
    struct input input = {.s = s, .keys = "1234", .end = 4};
    remo_nodeset_add(&options.owners, OWNER);
    remo_nodeset_add(&options.owners, 1);
    sim_tree_open(s, node, rank, &options);
    s->fixed = input.keys;
    if (rank == OWNER)
        sim_opened(remo_tree_load(s->trees[rank], next, &input, FULL, NULL), "load");
}

/* Nodes 1 and 2 insert none of the four keys, so each load finds none of them. */
static void load_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint64_t programs[3][6] = {
        {STEP(TX_DELETE, 0, 0), STEP(TX_DELETE, 1, 0), STEP(TX_DELETE, 2, BY_RANGE), STEP(TX_DELETE, 3, 0),
         SCAN},
        {SCAN, STEP(TX_UPDATE, 1, 101), STEP(TX_DELETE, 2, 0), GET_MANY, STEP(TX_DELETE, 0, 0),
         STEP(TX_UPDATE, 3, 103)},
        {SCAN, STEP(TX_READ, 2, 0), SCAN_MIDDLE, STEP(TX_READ, 3, BY_SNAPSHOT), READ_FIXED, SCAN}};
    (void)thread;
    if (rank != OWNER) {
        sim_tree_run(state, rank, programs[rank], 6);
        return;
    }
    load(state, 1, HALF_FULL);
    sim_tree_run(state, rank, programs[rank], 5);
    load(state, 11, FULL);
    sim_tree_run(state, rank, programs[rank], 5);
    load(state, 21, HALF_FULL);
}

const struct sim_case sim_case_tree_load = {.object = "tree",
                                            .name = "load",
                                            .about = "the owner loads four keys that others read and remove",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct tree_state),
                                            .open = open_load,
                                            .close = sim_tree_close,
                                            .body = load_body,
                                            .after = sim_tree_after,
                                            .oracle = &oracle_tx,
                                            .relies_on_end = true};
