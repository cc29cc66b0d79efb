/* tree_cursor.c - cursors beside changes that split and merge leaves. A page has one entry, so each step
 * reads the tree; with a snapshot it has three. For the checker a step is a transaction: at one instant, the
 * returned entry was present, and the keys between this entry and the previous position were absent. Fixed
 * keys are at both ends. */
#include <errno.h>
#include <string.h>

#include "sim/cases/tree.h"

#define FIRST_KEY '1'
#define LAST_KEY 'y'
#define STEPS_MAX 40u

/* The four keys of the oracle are between two fixed keys at each end. A leaf has room for three entries. */
static void open_tree(void *state, struct remo_node *node, uint32_t rank) {
    struct tree_state *s = state;
    struct remo_tree_options options = {
        .nodes = 12, .node_bytes = 74, .key_bytes_max = 1, .value_bytes_max = 8, .retain = 12};
    remo_nodeset_add(&options.owners, OWNER);
    s->fixed = "12xy";
    sim_tree_open(s, node, rank, &options);
    sim_tree_insert_fixed(s, rank);
}

/* Each owner has two keys of the oracle and two fixed keys. */
static void open_owners(void *state, struct remo_node *node, uint32_t rank) {
    sim_tree_open_halves(state, node, rank, "c", 74, 8);
}

struct walk {
    struct tree_state *s;
    uint32_t rank;
    bool has_owners; /* several: then the keys between two entries were perhaps absent at another instant */
    struct remo_tree_cursor *cursor;
    int at; /* the position: a key, or just before the first or behind the last one */
};

/* Record a step from walk->at to `key` as reads of keys of the oracle. */
static void record(const struct walk *walk, uint32_t index, int key, uint64_t number) {
    int low = key < walk->at ? key : walk->at, high = key < walk->at ? walk->at : key;
    uint64_t steps = 0, result = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < ORACLE_KEYS; i++) {
        int each = 'a' + (int)i;
        bool is_read = each == key || (each > low && each < high && !walk->has_owners);
        if (!is_read)
            continue;
        steps |= STEP(TX_READ, i, 0) << 16 * count;
        result |= (each == key ? number : (uint64_t)TX_ABSENT << 8) << 16 * count;
        count++;
    }
    if (count == 0)
        return;
    sim_history.calls[index].argument = steps;
    sim_end(index, 0, result);
}

/* Make one step. Returns its code. */
static int step(struct walk *walk, bool is_next) {
    struct remo_tree_entry entry;
    uint32_t index = sim_begin(TX_RUN, 0, 0, 0);
    int rc = (is_next ? remo_tree_cursor_next : remo_tree_cursor_prev)(walk->cursor, &entry);
    sim_forget(index);
    if (rc != 1)
        return rc;
    int key = *(const unsigned char *)entry.key.data;
    uint64_t number = sim_tree_number(walk->s, entry.value.data, entry.value.bytes);
    sim_require(is_next ? key > walk->at : key < walk->at, "a step returns key %c after %c", key, walk->at);
    for (const char *fixed = walk->s->fixed; *fixed && !sim_any_out() && !sim_any_hurt(); fixed++)
        sim_require(is_next ? *fixed <= walk->at || *fixed >= key : *fixed >= walk->at || *fixed <= key,
                    "a step from %c to %c skips key %c", walk->at, key, *fixed);
    if (!sim_out(walk->rank))
        record(walk, index, key, number);
    walk->at = key;
    return rc;
}

/* Walk to the end. After some steps, make one in the other direction. */
static void walk_all(struct tree_state *s, uint32_t rank, bool is_next, bool has_owners) {
    struct walk walk = {.s = s, .rank = rank, .has_owners = has_owners, .at = is_next ? 0 : 256};
    int rc = remo_tree_cursor_open(s->trees[rank], NULL, 4 + 1 + s->value_bytes, &walk.cursor);
    sim_require(rc == 0 || sim_excused(rank, SIM_ANY, rc), "open: %d (%s)", rc, remo_last_error());
    if (rc != 0)
        return;
    rc = 1;
    for (uint32_t i = 0; i < STEPS_MAX && rc == 1; i++) {
        bool is_back = i % 3 == 2 && walk.at != FIRST_KEY && walk.at != LAST_KEY;
        rc = step(&walk, is_next != is_back);
    }
    remo_tree_cursor_close(walk.cursor); /* before the next line, which may end the thread */
    sim_require(rc == 0 || sim_excused(rank, SIM_ANY, rc), "a walk: %d (%s)", rc, remo_last_error());
    sim_require(rc < 0 || sim_any_out() || sim_any_hurt() || walk.at == (is_next ? LAST_KEY : FIRST_KEY),
                "a walk ends at key %c", walk.at);
}

/* Walk as of a snapshot: all keys were read at one instant. */
static void walk_snapshot(struct tree_state *s, uint32_t rank) {
    uint64_t snapshot[2], steps = 0, result = 0;
    const struct remo_tree_range range = {.snapshot = snapshot};
    struct remo_tree_cursor *cursor;
    struct remo_tree_entry entry;
    size_t buffer_bytes = 3 * (4 + 1 + s->value_bytes);
    for (uint32_t i = 0; i < ORACLE_KEYS; i++) {
        steps |= STEP(TX_READ, i, 0) << 16 * i;
        result |= (uint64_t)TX_ABSENT << 8 << 16 * i;
    }
    uint32_t index = sim_begin(TX_RUN, 0, steps, 0);
    int rc = remo_tree_snapshot(s->trees[rank], snapshot);
    if (rc == 0)
        rc = remo_tree_cursor_open(s->trees[rank], &range, buffer_bytes, &cursor);
    bool is_open = rc == 0;
    while (is_open && (rc = remo_tree_cursor_next(cursor, &entry)) == 1) {
        int key = *(const unsigned char *)entry.key.data;
        if (strchr(s->fixed, key))
            continue;
        uint32_t place = 16 * (uint32_t)(key - 'a');
        result &= ~(UINT64_C(0xffff) << place);
        result |= sim_tree_number(s, entry.value.data, entry.value.bytes) << place;
    }
    if (is_open)
        remo_tree_cursor_close(cursor);
    if (rc == 0)
        sim_end(index, 0, result);
    else
        sim_forget(index);
    sim_require(rc == 0 || rc == -ESTALE || sim_excused(rank, SIM_ANY, rc), "a walk: %d (%s)", rc,
                remo_last_error());
}

static void change_all(struct tree_state *s, uint32_t rank) {
    static const uint64_t programs[2][6] = {
        {STEP(TX_PUT, 1, 1), STEP(TX_PUT, 0, 2), STEP(TX_PUT, 2, 3), STEP(TX_DELETE, 1, 0),
         STEP(TX_PUT, 1, 4), STEP(TX_DELETE, 0, 0)},
        {STEP(TX_PUT, 3, 11), STEP(TX_PUT, 2, 12), STEP(TX_DELETE, 3, 0), STEP(TX_PUT, 1, 13),
         STEP(TX_PUT, 3, 14), STEP(TX_DELETE, 2, 0)}};
    sim_tree_run(s, rank, programs[rank], 6);
}

static void cursor_body(void *state, uint32_t rank, uint32_t thread) {
    struct tree_state *s = state;
    (void)thread;
    if (rank < 2)
        change_all(s, rank);
    for (uint32_t i = 0; i < 2; i++) {
        walk_all(s, rank, (rank + i) % 2, false);
        if (rank == 2)
            walk_snapshot(s, rank);
    }
}

static void owners_body(void *state, uint32_t rank, uint32_t thread) {
    struct tree_state *s = state;
    (void)thread;
    if (rank < 2)
        change_all(s, rank);
    for (uint32_t i = 0; i < 2; i++) {
        walk_all(s, rank, (rank + i) % 2, true);
        if (rank == 2)
            walk_snapshot(s, rank);
    }
}

const struct sim_case sim_case_tree_cursor = {.object = "tree",
                                              .name = "cursor",
                                              .about = "cursors in both directions beside changes",
                                              .nodes = 3,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct tree_state),
                                              .open = open_tree,
                                              .close = sim_tree_close,
                                              .body = cursor_body,
                                              .after = sim_tree_after,
                                              .oracle = &oracle_tx,
                                              .relies_on_end = true};

const struct sim_case sim_case_tree_cursor_owners = {.object = "tree",
                                                     .name = "cursor_owners",
                                                     .about = "the same with two owners",
                                                     .nodes = 3,
                                                     .threads = 1,
                                                     .state_bytes = sizeof(struct tree_state),
                                                     .open = open_owners,
                                                     .close = sim_tree_close,
                                                     .body = owners_body,
                                                     .after = sim_tree_after,
                                                     .oracle = &oracle_tx,
                                                     .relies_on_end = true};
