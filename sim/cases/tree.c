/* tree.c - an ordered map whose leaves have room for two or three entries, so four keys split and merge them.
 * For the checker, the four keys are one object, and each call is a transaction on it: a scan reads its keys
 * at one instant. The set-up inserts fixed keys, which never change. Each scan of all keys must return
 * them. */
#include "sim/cases/tree.h"

#include <errno.h>
#include <string.h>

/* Up to four writes of remo_tree_apply, as one transaction. If one write fails, none has an effect. */
#define APPLY(a, b, c, d) ((a) | (b) << 16 | (c) << 32 | (d) << 48)
#define FAILS (UINT64_C(1) << 63) /* one more write, which fails */
#define CALLS_MAX 8u
#define OWNERS_MAX 2u

void sim_tree_insert_fixed(const struct tree_state *s, uint32_t rank) {
    const unsigned char value[VALUE_BYTES_MAX] = {0};
    for (const char *key = s->fixed; *key; key++)
        if (remo_tree_owner(s->trees[rank], key, 1) == rank)
            sim_opened(remo_tree_insert(s->trees[rank], key, 1, value, s->value_bytes), "insert");
}

void sim_tree_open(struct tree_state *s, struct remo_node *node, uint32_t rank,
                   const struct remo_tree_options *options) {
    sim_opened(remo_tree_open(remo_node_root(node), "tree", options, &s->trees[rank]), "open");
    sim_opened(remo_channel_wait(remo_tree_channel(s->trees[rank]), REMO_FOREVER), "wait");
    s->value_bytes = options->value_bytes_max;
}

static void open_with(struct tree_state *s, struct remo_node *node, uint32_t rank,
                      const struct remo_tree_options *options) {
    sim_tree_open(s, node, rank, options);
    sim_tree_insert_fixed(s, rank);
}

void sim_tree_open_halves(struct tree_state *s, struct remo_node *node, uint32_t rank, const char *boundary,
                          uint32_t node_bytes, uint32_t value_bytes_max) {
    struct remo_tree_options options = {.boundaries = &(struct remo_tree_key){boundary, 1},
                                        .nodes = 8,
                                        .node_bytes = node_bytes,
                                        .key_bytes_max = 1,
                                        .value_bytes_max = value_bytes_max,
                                        .retain = 12};
    remo_nodeset_add(&options.owners, 0);
    remo_nodeset_add(&options.owners, 1);
    s->fixed = "12xy";
    open_with(s, node, rank, &options);
}

/* A leaf has room for three entries. */
static void open_tree(void *state, struct remo_node *node, uint32_t rank) {
    struct remo_tree_options options = {
        .nodes = 8, .node_bytes = 74, .key_bytes_max = 1, .value_bytes_max = 8, .retain = 12};
    remo_nodeset_add(&options.owners, OWNER);
    ((struct tree_state *)state)->fixed = "";
    ((struct tree_state *)state)->by_snapshot = true;
    open_with(state, node, rank, &options);
}

/* The same, with values of two sizes: leaves are compact and mixed. */
static void open_mixed(void *state, struct remo_node *node, uint32_t rank) {
    ((struct tree_state *)state)->has_sizes = true;
    open_tree(state, node, rank);
}

/* Each of two owners has two of the keys. Its leaf has room for one of them; the other splits the leaf. */
static void open_owners(void *state, struct remo_node *node, uint32_t rank) {
    ((struct tree_state *)state)->by_snapshot = true;
    sim_tree_open_halves(state, node, rank, "c", 74, 8);
}

/* Node 0 has three of the keys, node 1 one. A leaf has room for two entries. */
static void open_frozen(void *state, struct remo_node *node, uint32_t rank) {
    sim_tree_open_halves(state, node, rank, "d", 122, VALUE_BYTES_MAX);
}

/* A leaf has room for two entries, the root for eight children. The fixed keys fill six leaves. With three of
 * the keys there are nine leaves, and the root splits. */
static void open_levels(void *state, struct remo_node *node, uint32_t rank) {
    struct remo_tree_options options = {
        .nodes = 15, .node_bytes = 122, .key_bytes_max = 1, .value_bytes_max = VALUE_BYTES_MAX, .retain = 12};
    remo_nodeset_add(&options.owners, OWNER);
    ((struct tree_state *)state)->fixed = "1234567";
    open_with(state, node, rank, &options);
}

/* As for levels, with values of two sizes and more nodes: the indices that an apply drops become free only
 * after its commit. */
static void open_apply(void *state, struct remo_node *node, uint32_t rank) {
    struct remo_tree_options options = {
        .nodes = 24, .node_bytes = 122, .key_bytes_max = 1, .value_bytes_max = VALUE_BYTES_MAX, .retain = 16};
    remo_nodeset_add(&options.owners, OWNER);
    ((struct tree_state *)state)->has_sizes = true;
    ((struct tree_state *)state)->fixed = "1234567";
    open_with(state, node, rank, &options);
}

void sim_tree_close(void *state, uint32_t rank) {
    remo_tree_close(((struct tree_state *)state)->trees[rank]);
}

size_t sim_tree_value_bytes(const struct tree_state *s, uint64_t number) {
    return s->value_bytes - (s->has_sizes ? number % 2 : 0);
}

uint64_t sim_tree_number(const struct tree_state *s, const unsigned char *value, size_t bytes) {
    sim_require(bytes > 0 && bytes == sim_tree_value_bytes(s, value[0]), "a value of %zu bytes", bytes);
    for (uint32_t i = 1; i < bytes; i++)
        sim_require(value[i] == value[0], "a torn value");
    return value[0];
}

/* Get a key by a snapshot. */
static int get_at(struct remo_tree *tree, unsigned char key, void *value, size_t *ret_bytes) {
    uint64_t snapshot[OWNERS_MAX];
    int rc = remo_tree_snapshot(tree, snapshot);
    return rc == 0 ? remo_tree_get_at(tree, snapshot, &key, 1, value, VALUE_BYTES_MAX, ret_bytes) : rc;
}

/* Scan by a snapshot, or, if it is not retained, without. */
static int scan_at(struct remo_tree *tree, const struct remo_tree_range *range, void *buffer, size_t cap,
                   struct remo_tree_result *ret_result) {
    uint64_t snapshot[OWNERS_MAX];
    struct remo_tree_range at = *range;
    int rc = remo_tree_snapshot(tree, snapshot);
    at.snapshot = snapshot;
    rc = rc == 0 ? remo_tree_scan(tree, &at, buffer, cap, ret_result) : rc;
    return rc == -ESTALE ? remo_tree_scan(tree, range, buffer, cap, ret_result) : rc;
}

/* Remove the range that contains one key. */
static int remove_range(struct remo_tree *tree, unsigned char key) {
    unsigned char end = (unsigned char)(key + 1);
    struct remo_tree_range range = {.from = {&key, 1}, .to = {&end, 1}};
    uint64_t count = 0;
    int rc = remo_tree_remove_range(tree, &range, &count);
    sim_require(count <= 1, "the range of one key had %llu keys", (unsigned long long)count);
    return rc == 0 && count == 0 ? -ENOENT : rc;
}

/* Execute one step. Returns its code; *ret_number is the value of a read. */
static int do_step(const struct tree_state *s, uint32_t rank, uint64_t step, uint64_t *ret_number) {
    struct remo_tree *tree = s->trees[rank];
    unsigned char key = (unsigned char)('a' + (step >> 8 & 15)), value[VALUE_BYTES_MAX];
    size_t bytes = 0, written_bytes = sim_tree_value_bytes(s, step & 255);
    memset(value, (int)(step & 255), sizeof value);
    switch (step >> 12) {
    case TX_INSERT: return remo_tree_insert(tree, &key, 1, value, written_bytes);
    case TX_UPDATE: return remo_tree_update(tree, &key, 1, value, written_bytes);
    case TX_PUT: return remo_tree_upsert(tree, &key, 1, value, written_bytes);
    case TX_DELETE: return step & BY_RANGE ? remove_range(tree, key) : remo_tree_remove(tree, &key, 1);
    default: break;
    }
    int rc = -ESTALE;
    if (step & 255)
        rc = get_at(tree, key, value, &bytes);
    if (rc == -ESTALE)
        rc = remo_tree_get(tree, &key, 1, value, sizeof value, &bytes);
    if (rc == 0)
        *ret_number = sim_tree_number(s, value, bytes);
    return rc;
}

/* Apply the writes: puts and deletes of present keys. The first is a put, and its key is not deleted, so
 * the further write of FAILS, an insert of this key, fails. */
static int do_apply(const struct tree_state *s, uint32_t rank, uint64_t steps) {
    bool is_failing = steps & FAILS;
    unsigned char keys[5], values[5][VALUE_BYTES_MAX];
    struct remo_tree_write writes[5];
    uint32_t count = 0, failed;
    for (uint64_t rest = steps & ~FAILS; rest; rest >>= 16) {
        keys[count] = (unsigned char)('a' + (rest >> 8 & 15));
        memset(values[count], (int)(rest & 255), sizeof values[count]);
        writes[count] = (struct remo_tree_write){
            .kind = (rest >> 12 & 15) == TX_PUT ? REMO_TREE_UPSERT : REMO_TREE_REMOVE,
            .key = {&keys[count], 1},
            .value = {values[count], sim_tree_value_bytes(s, rest & 255)}};
        count++;
    }
    writes[count] = writes[0];
    writes[count].kind = REMO_TREE_INSERT;
    int rc = remo_tree_apply(s->trees[rank], writes, count + is_failing, &failed);
    if (!is_failing || rc != -EEXIST)
        return rc;
    sim_require(failed == count, "write %u failed", failed);
    return 0;
}

/* Scan keys of the range. Add the outcomes of reads of keys [first, end) to *ret_result. */
static int do_scan(struct tree_state *s, uint32_t rank, const struct remo_tree_range *range, uint32_t first,
                   uint32_t end, uint64_t *ret_result) {
    unsigned char buffer[512];
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    struct remo_tree_range chosen = range ? *range : (struct remo_tree_range){0};
    bool is_descending = (rank + s->scans[rank]++) % 2;
    size_t offset = 0, fixed_count = 0;
    chosen.flags = is_descending ? REMO_TREE_DESCENDING : 0;
    int last = is_descending ? 256 : -1,
        rc = rank == 2 && s->by_snapshot
                 ? scan_at(s->trees[rank], &chosen, buffer, sizeof buffer, &result)
                 : remo_tree_scan(s->trees[rank], &chosen, buffer, sizeof buffer, &result);
    if (rc != 0)
        return rc;
    for (uint32_t key = first; key < end; key++)
        *ret_result |= (uint64_t)TX_ABSENT << 8 << 16 * (key - first);
    while (remo_tree_result_next(buffer, &result, &offset, &entry)) {
        int key = *(const unsigned char *)entry.key.data;
        uint64_t number = sim_tree_number(s, entry.value.data, entry.value.bytes);
        sim_require(is_descending ? key < last : key > last, "a scan returns key %c after %c", key, last);
        last = key;
        if (strchr(s->fixed, key)) {
            fixed_count++;
            continue;
        }
        uint32_t index = (uint32_t)(key - 'a');
        sim_require(index >= first && index < end, "a scan returns key %c", key);
        *ret_result &= ~(UINT64_C(0xffff) << 16 * (index - first));
        *ret_result |= number << 16 * (index - first);
    }
    sim_require(result.is_complete, "a scan is not complete");
    sim_require(fixed_count == (range ? 0 : strlen(s->fixed)), "a scan returns %zu of the fixed keys",
                fixed_count);
    return 0;
}

static const struct remo_tree_range middle = {.from = {"b", 1}, .to = {"d", 1}};

/* Return the outcome of a step in the form of the oracle. */
static uint64_t outcome_of(int rc, uint64_t number) {
    return rc == -ENOENT ? TX_ABSENT << 8 : rc == -EEXIST ? TX_PRESENT << 8 : number;
}

static void read_fixed(const struct tree_state *s, uint32_t rank) {
    unsigned char value[VALUE_BYTES_MAX];
    size_t bytes;
    for (const char *key = s->fixed; *key; key++) {
        int rc = remo_tree_get(s->trees[rank], key, 1, value, sizeof value, &bytes);
        sim_require(rc == 0 || sim_excused(rank, SIM_ANY, rc), "fixed key %c: %d (%s)", *key, rc,
                    remo_last_error());
    }
}

/* Get all keys by one call. Each get has an instant of its own. */
static void get_many(const struct tree_state *s, uint32_t rank) {
    struct remo_tree_item items[ORACLE_KEYS];
    unsigned char keys[ORACLE_KEYS], values[ORACLE_KEYS][VALUE_BYTES_MAX];
    uint32_t indices[ORACLE_KEYS];
    for (uint32_t i = 0; i < ORACLE_KEYS; i++) {
        keys[i] = (unsigned char)('a' + i);
        items[i] =
            (struct remo_tree_item){.key = {&keys[i], 1}, .value = values[i], .value_cap = VALUE_BYTES_MAX};
        indices[i] = sim_begin(TX_RUN, 0, STEP(TX_READ, i, 0), 0);
    }
    int rc = remo_tree_get_many(s->trees[rank], items, ORACLE_KEYS);
    sim_require(rc == 0 || sim_excused(rank, SIM_ANY, rc), "get_many: %d (%s)", rc, remo_last_error());
    for (uint32_t i = 0; i < ORACLE_KEYS; i++) {
        if (rc != 0) {
            sim_forget(indices[i]);
            continue;
        }
        uint64_t number = items[i].status == 0 ? sim_tree_number(s, values[i], items[i].value_bytes) : 0;
        sim_end(indices[i], 0, outcome_of(items[i].status, number));
    }
}

/* Execute and record one call. A change that fails was made once or not at all. */
static void call(struct tree_state *s, uint32_t rank, uint64_t step) {
    if (step == READ_FIXED) {
        read_fixed(s, rank);
        return;
    }
    if (step == GET_MANY) {
        get_many(s, rank);
        return;
    }
    const uint64_t reads_middle = STEP(TX_READ, 1, 0) | STEP(TX_READ, 2, 0) << 16,
                   reads = STEP(TX_READ, 0, 0) | reads_middle << 16 | STEP(TX_READ, 3, 0) << 48;
    bool is_scan = step == SCAN || step == SCAN_MIDDLE, is_apply = step >> 16;
    bool has_no_effect = is_scan || step & FAILS || (!is_apply && step >> 12 == TX_READ);
    bool has_value = is_apply || (step >> 12 != TX_READ && step >> 12 != TX_DELETE);
    uint64_t argument = step == SCAN          ? reads
                        : step == SCAN_MIDDLE ? reads_middle
                        : step & FAILS        ? 0
                        : has_value           ? step
                                              : step & ~UINT64_C(255);
    uint64_t result = 0, number = 0;
    uint32_t index = sim_begin(TX_RUN, 0, argument, 0);
    int rc = step == SCAN          ? do_scan(s, rank, NULL, 0, ORACLE_KEYS, &result)
             : step == SCAN_MIDDLE ? do_scan(s, rank, &middle, 1, 3, &result)
             : is_apply            ? do_apply(s, rank, step)
                                   : do_step(s, rank, step, &number);
    if (!is_scan && !is_apply && (rc == 0 || rc == -ENOENT || rc == -EEXIST)) {
        result = outcome_of(rc, number);
        rc = 0;
    }
    if (rc == 0) {
        sim_end(index, 0, result);
        return;
    }
    bool is_owners =
        rc == -ENOMEM && (sim_hurt(0) || sim_hurt(1)); /* the owner replied with its own error code */
    sim_require(is_owners || sim_excused(rank, SIM_ANY, rc), "step %llx: %d (%s)", (unsigned long long)step,
                rc, remo_last_error());
    if (has_no_effect)
        sim_forget(index);
}

void sim_tree_run(struct tree_state *s, uint32_t rank, const uint64_t *steps, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        call(s, rank, steps[i]);
}

/* All four keys are inserted, so a leaf splits; two are removed, so leaves merge. */
static void changes_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint64_t programs[3][CALLS_MAX] = {
        {STEP(TX_INSERT, 0, 1), STEP(TX_PUT, 2, 2), STEP(TX_PUT, 1, 3), SCAN, STEP(TX_DELETE, 2, BY_RANGE),
         STEP(TX_UPDATE, 0, 4), STEP(TX_READ, 3, 0), SCAN},
        {STEP(TX_PUT, 3, 11), STEP(TX_READ, 1, 0), STEP(TX_INSERT, 2, 12), STEP(TX_DELETE, 3, 0), SCAN,
         STEP(TX_PUT, 3, 13), STEP(TX_DELETE, 1, 0), GET_MANY},
        {SCAN, STEP(TX_READ, 0, BY_SNAPSHOT), STEP(TX_READ, 3, 0), SCAN, STEP(TX_DELETE, 0, BY_RANGE),
         STEP(TX_READ, 2, BY_SNAPSHOT), SCAN, STEP(TX_READ, 1, 0)}};
    (void)thread;
    sim_tree_run(state, rank, programs[rank], CALLS_MAX);
}

void sim_tree_after(void *state, uint32_t rank) {
    const uint64_t steps[] = {STEP(TX_PUT, rank, 100 + rank),
                              STEP(TX_READ, 3, 0),
                              SCAN,
                              STEP(TX_DELETE, rank, 0),
                              SCAN,
                              READ_FIXED};
    sim_tree_run(state, rank, steps, 6);
}

const struct sim_case sim_case_tree_changes = {.object = "tree",
                                               .name = "changes",
                                               .about = "three nodes change and scan four keys of one owner",
                                               .nodes = 3,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct tree_state),
                                               .open = open_mixed,
                                               .close = sim_tree_close,
                                               .body = changes_body,
                                               .after = sim_tree_after,
                                               .oracle = &oracle_tx,
                                               .relies_on_end = true};

/* Two threads of each node. */
static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint64_t programs[4][4] = {
        {STEP(TX_PUT, 0, 1), STEP(TX_PUT, 3, 2), SCAN, STEP(TX_DELETE, 3, 0)},
        {STEP(TX_INSERT, 1, 11), STEP(TX_READ, 3, 0), STEP(TX_DELETE, 1, 0), SCAN},
        {STEP(TX_PUT, 2, 21), SCAN, STEP(TX_READ, 0, 0), STEP(TX_DELETE, 2, BY_RANGE)},
        {STEP(TX_READ, 2, 0), STEP(TX_PUT, 1, 31), SCAN, GET_MANY}};
    sim_tree_run(state, rank, programs[2 * rank + thread], 4);
}

const struct sim_case sim_case_tree_threads = {.object = "tree",
                                               .name = "threads",
                                               .about = "two threads of the owner and of another node",
                                               .nodes = 2,
                                               .threads = 2,
                                               .state_bytes = sizeof(struct tree_state),
                                               .open = open_tree,
                                               .close = sim_tree_close,
                                               .body = threads_body,
                                               .after = sim_tree_after,
                                               .oracle = &oracle_tx,
                                               .relies_on_end = true};

/* Node 1 owns the last two keys. A scan reads both owners at one instant. */
static void owners_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint64_t programs[3][6] = {
        {STEP(TX_PUT, 0, 1), STEP(TX_PUT, 2, 2), STEP(TX_PUT, 0, 3), SCAN, STEP(TX_DELETE, 2, 0), SCAN},
        {STEP(TX_PUT, 3, 11), STEP(TX_PUT, 1, 12), SCAN, STEP(TX_DELETE, 0, 0), STEP(TX_PUT, 3, 13), SCAN},
        {SCAN, SCAN, STEP(TX_READ, 3, 0), SCAN, STEP(TX_PUT, 1, 21), SCAN}};
    (void)thread;
    sim_tree_run(state, rank, programs[rank], 6);
}

const struct sim_case sim_case_tree_owners = {.object = "tree",
                                              .name = "owners",
                                              .about = "three nodes change and scan keys of two owners",
                                              .nodes = 3,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct tree_state),
                                              .open = open_owners,
                                              .close = sim_tree_close,
                                              .body = owners_body,
                                              .after = sim_tree_after,
                                              .oracle = &oracle_tx,
                                              .relies_on_end = true};

/* Changes are so frequent that scans delay them. Of the six changes of node 0, two in succession split a
 * leaf, and two merge leaves. */
static void frozen_body(void *state, uint32_t rank, uint32_t thread) {
    enum { ROUNDS = 3, CHANGES = 6 };
    static const uint64_t owner[CHANGES] = {STEP(TX_PUT, 0, 1),    STEP(TX_PUT, 1, 2),
                                            STEP(TX_PUT, 2, 3),    STEP(TX_DELETE, 2, 0),
                                            STEP(TX_DELETE, 1, 0), STEP(TX_DELETE, 0, 0)};
    struct tree_state *s = state;
    for (uint32_t i = 0; i < 4 && rank == 2; i++)
        call(s, rank, SCAN);
    for (uint32_t i = 0; i < ROUNDS * CHANGES && rank == 1; i++)
        call(s, rank, STEP(TX_PUT, 3, 1 + 2 * i + thread));
    for (uint32_t i = 0; i < ROUNDS && rank == 0 && thread == 0; i++)
        sim_tree_run(s, rank, owner, CHANGES);
}

const struct sim_case sim_case_tree_frozen = {.object = "tree",
                                              .name = "frozen",
                                              .about = "scans of two owners delay their changes",
                                              .nodes = 3,
                                              .threads = 2,
                                              .state_bytes = sizeof(struct tree_state),
                                              .open = open_frozen,
                                              .close = sim_tree_close,
                                              .body = frozen_body,
                                              .after = sim_tree_after,
                                              .oracle = &oracle_tx,
                                              .relies_on_end = true};

/* The applies split and merge leaves, even leaves that they have made. Some fail, and have no effect. The
 * owner repeats them so often that it would have no free node if a failed apply lost indices. */
static void apply_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint64_t programs[3][6] = {
        {APPLY(STEP(TX_PUT, 0, 1), STEP(TX_PUT, 1, 2), STEP(TX_PUT, 2, 3), STEP(TX_PUT, 3, 4)), SCAN,
         APPLY(STEP(TX_PUT, 1, 5), STEP(TX_PUT, 3, 6), STEP(TX_DELETE, 3, 0), UINT64_C(0)) | FAILS,
         APPLY(STEP(TX_PUT, 0, 7), STEP(TX_PUT, 2, 8), STEP(TX_DELETE, 2, 0), UINT64_C(0)), SCAN,
         APPLY(STEP(TX_PUT, 2, 9), STEP(TX_PUT, 3, 10), UINT64_C(0), UINT64_C(0))},
        {APPLY(STEP(TX_PUT, 3, 21), STEP(TX_PUT, 0, 22), STEP(TX_DELETE, 0, 0), UINT64_C(0)),
         APPLY(STEP(TX_PUT, 0, 23), STEP(TX_PUT, 1, 24), STEP(TX_PUT, 2, 25), STEP(TX_PUT, 3, 26)),
         APPLY(STEP(TX_PUT, 0, 27), STEP(TX_PUT, 1, 28), STEP(TX_PUT, 2, 29), UINT64_C(0)) | FAILS, SCAN,
         APPLY(STEP(TX_PUT, 1, 30), STEP(TX_DELETE, 1, 0), UINT64_C(0), UINT64_C(0)), SCAN},
        {SCAN, STEP(TX_DELETE, 1, 0), SCAN,
         APPLY(STEP(TX_PUT, 1, 41), STEP(TX_PUT, 2, 42), UINT64_C(0), UINT64_C(0)), STEP(TX_READ, 3, 0),
         SCAN}};
    static const uint64_t again[] = {
        APPLY(STEP(TX_PUT, 0, 1), STEP(TX_PUT, 1, 2), STEP(TX_PUT, 2, 3), STEP(TX_PUT, 3, 4)) | FAILS,
        APPLY(STEP(TX_PUT, 0, 5), STEP(TX_PUT, 1, 6), STEP(TX_PUT, 2, 7), STEP(TX_PUT, 3, 8)),
        APPLY(STEP(TX_PUT, 0, 9), STEP(TX_PUT, 1, 10), STEP(TX_PUT, 2, 11), STEP(TX_PUT, 3, 12)) | FAILS,
        APPLY(STEP(TX_PUT, 1, 13), STEP(TX_DELETE, 1, 0), STEP(TX_PUT, 2, 14), STEP(TX_DELETE, 2, 0)),
        APPLY(STEP(TX_PUT, 3, 15), STEP(TX_DELETE, 3, 0), STEP(TX_PUT, 0, 16), STEP(TX_DELETE, 0, 0))};
    (void)thread;
    sim_tree_run(state, rank, programs[rank], 6);
    for (uint32_t i = 0; i < 5 && rank == OWNER; i++)
        sim_tree_run(state, rank, again, 5);
}

const struct sim_case sim_case_tree_apply_levels = {.object = "tree",
                                                    .name = "apply_levels",
                                                    .about = "the same, in a tree of two or three levels",
                                                    .nodes = 3,
                                                    .threads = 1,
                                                    .state_bytes = sizeof(struct tree_state),
                                                    .open = open_apply,
                                                    .close = sim_tree_close,
                                                    .body = apply_body,
                                                    .after = sim_tree_after,
                                                    .oracle = &oracle_tx,
                                                    .relies_on_end = true};

const struct sim_case sim_case_tree_apply = {.object = "tree",
                                             .name = "apply",
                                             .about = "three nodes apply several writes at one instant",
                                             .nodes = 3,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct tree_state),
                                             .open = open_mixed,
                                             .close = sim_tree_close,
                                             .body = apply_body,
                                             .after = sim_tree_after,
                                             .oracle = &oracle_tx,
                                             .relies_on_end = true};

/* The owner's tree has three levels with three of the keys, and two levels otherwise. */
static void levels_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint64_t programs[3][8] = {
        {STEP(TX_INSERT, 1, 1), STEP(TX_INSERT, 0, 2), STEP(TX_INSERT, 2, 3), STEP(TX_PUT, 3, 4),
         STEP(TX_DELETE, 3, 0), STEP(TX_DELETE, 2, 0), STEP(TX_READ, 0, 0), SCAN_MIDDLE},
        {STEP(TX_PUT, 0, 11), STEP(TX_PUT, 1, 12), STEP(TX_PUT, 2, 13), STEP(TX_PUT, 3, 14),
         STEP(TX_DELETE, 3, 0), STEP(TX_DELETE, 2, 0), STEP(TX_READ, 1, 0), SCAN},
        {STEP(TX_READ, 2, 0), SCAN, STEP(TX_READ, 1, 0), SCAN_MIDDLE, STEP(TX_READ, 2, 0), SCAN}};
    (void)thread;
    sim_tree_run(state, rank, programs[rank], rank < 2 ? 8 : 6);
}

const struct sim_case sim_case_tree_levels = {.object = "tree",
                                              .name = "levels",
                                              .about =
                                                  "three nodes use keys of a tree of two or three levels",
                                              .nodes = 3,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct tree_state),
                                              .open = open_levels,
                                              .close = sim_tree_close,
                                              .body = levels_body,
                                              .after = sim_tree_after,
                                              .oracle = &oracle_tx,
                                              .relies_on_end = true};

/* The index of the leaf that contained key 2 is used again for greater keys, while another leaf contains key
 * 2. */
static void reuse_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint64_t owner[] = {STEP(TX_PUT, 0, 1), STEP(TX_PUT, 1, 2),    STEP(TX_PUT, 2, 3),
                                     STEP(TX_PUT, 3, 4), STEP(TX_DELETE, 2, 0), STEP(TX_DELETE, 3, 0),
                                     STEP(TX_PUT, 2, 5), STEP(TX_DELETE, 0, 0), STEP(TX_PUT, 3, 6),
                                     STEP(TX_PUT, 0, 7)};
    static const uint64_t reader[] = {STEP(TX_READ, 2, 0), STEP(TX_READ, 2, 0), STEP(TX_READ, 2, 0),
                                      STEP(TX_READ, 2, 0)};
    (void)thread;
    if (rank == OWNER)
        sim_tree_run(state, rank, owner, 10);
    else
        sim_tree_run(state, rank, reader, 4);
}

const struct sim_case sim_case_tree_reuse = {.object = "tree",
                                             .name = "reuse",
                                             .about = "gets by old inner nodes, while indices are used again",
                                             .nodes = 2,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct tree_state),
                                             .open = open_mixed,
                                             .close = sim_tree_close,
                                             .body = reuse_body,
                                             .after = sim_tree_after,
                                             .oracle = &oracle_tx,
                                             .relies_on_end = true};

/* Each value has another size than the one before, so each change moves the leaf, or splits it. Sixteen moves
 * use all extents again. */
static void extents_body(void *state, uint32_t rank, uint32_t thread) {
    static const uint64_t owner[] = {
        STEP(TX_PUT, 0, 1),  STEP(TX_PUT, 1, 2),  STEP(TX_PUT, 2, 3),  STEP(TX_PUT, 3, 4),
        STEP(TX_PUT, 0, 6),  STEP(TX_PUT, 1, 7),  STEP(TX_PUT, 0, 9),  STEP(TX_PUT, 1, 10),
        STEP(TX_PUT, 0, 12), STEP(TX_PUT, 1, 13), STEP(TX_PUT, 0, 15), STEP(TX_PUT, 1, 16),
        STEP(TX_PUT, 0, 18), STEP(TX_PUT, 1, 19), STEP(TX_PUT, 0, 21), STEP(TX_PUT, 1, 22),
        STEP(TX_PUT, 0, 24), STEP(TX_PUT, 1, 25), STEP(TX_PUT, 0, 27), STEP(TX_PUT, 1, 28)};
    static const uint64_t reader[] = {STEP(TX_READ, 0, 0), STEP(TX_READ, 1, 0), STEP(TX_READ, 3, 0),
                                      STEP(TX_READ, 1, 0), GET_MANY};
    (void)thread;
    if (rank == OWNER)
        sim_tree_run(state, rank, owner, 20);
    else
        sim_tree_run(state, rank, reader, 5);
}

static void open_extents(void *state, struct remo_node *node, uint32_t rank) {
    struct remo_tree_options options = {
        .nodes = 6, .node_bytes = 74, .key_bytes_max = 1, .value_bytes_max = 8, .retain = 10};
    remo_nodeset_add(&options.owners, OWNER);
    ((struct tree_state *)state)->fixed = "";
    ((struct tree_state *)state)->has_sizes = true;
    open_with(state, node, rank, &options);
}

const struct sim_case sim_case_tree_extents = {.object = "tree",
                                               .name = "extents",
                                               .about = "gets while the extents of leaves are used again",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct tree_state),
                                               .open = open_extents,
                                               .close = sim_tree_close,
                                               .body = extents_body,
                                               .after = sim_tree_after,
                                               .oracle = &oracle_tx,
                                               .relies_on_end = true};
