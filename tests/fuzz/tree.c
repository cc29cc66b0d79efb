/* tree.c - fuzzes the tree: a node that a reader copies from a peer (node.h) or reads directly, the requests
 * of changes (serve.c), and all calls on a damaged tree. Input: u8 mode, and the node, or requests {u8 bytes;
 * data}, or damages {u8 object, place, bytes; data}, or u8 from MISDIRECTS. Odd damages: the owner has no
 * copies of its inner nodes. The only node of the job is its own peer. Invariants: only the node is read; a
 * request is refused, or makes its change, and the tree remains in order; each call ends. */
#include "systems/tree/tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "fuzz.h"
#include "objects/versioned/versioned.h"
#include "systems/tree/seek.h"

#define NODE_BYTES 512u
#define KEY_BYTES_MAX 8u
#define VALUE_BYTES_MAX 24u
#define NODES 8u

enum { REQUESTS = 1, MEND_LEVEL = 2, APPLIES = 2, DAMAGE = 4, MODES = 8 };

#define DAMAGED_KEYS 40u
#define MISDIRECTS 224u /* from this first byte on, the damage is the index of a child */
#define DAMAGED_TIMEOUT_NS (100 * REMO__NS_PER_US) /* a get repeats its attempts for that long */

static struct remo_node *node;
static struct remo_tree *tree;

/* ---- a node ---- */

static void expect_inside(const uint8_t *image, uint32_t bytes, struct tree_bytes part) {
    const uint8_t *data = part.data;
    assert(data >= image && data <= image + bytes && part.bytes <= (size_t)(image + bytes - data));
}

static void search(const uint8_t *image, uint32_t bytes, struct tree_bytes key, uint32_t count) {
    uint32_t index = UINT32_MAX, child, steps = 0;
    bool is_found;
    struct tree_entry entry;
    struct tree_place place;
    struct tree_walk walk;
    (void)remo__tree_node_covers(image, bytes, key);
    if (remo__tree_node_find_in_run(image, bytes, key, &index, &is_found))
        assert(index <= count && (!is_found || index < count));
    if (remo__tree_node_child(image, bytes, key, &index, &child))
        assert(index < count && remo__tree_node_entry(image, bytes, index, &entry));
    if (remo__tree_node_find(image, bytes, key, &place) && place.offset != 0)
        assert(remo__tree_place_entry(image, bytes, &place, &entry)
               && remo__tree_compare(entry.key, key) == 0);
    if (remo__tree_walk_begin(&walk, image, bytes, &key))
        for (; remo__tree_walk_next(&walk, &entry) == 1; steps++)
            expect_inside(image, bytes, entry.value);
    if (remo__tree_walk_begin(&walk, image, bytes, NULL))
        for (; remo__tree_walk_previous(&walk, &entry) == 1; steps++)
            expect_inside(image, bytes, entry.key);
    assert(steps <= 2 * (count + TREE_TAIL_MAX));
}

/* Change a copy of the node, as an owner does whose memory a peer has damaged. */
static void change(const uint8_t *image, uint32_t bytes) {
    uint8_t *copy = malloc(bytes), *scratch = malloc(bytes), *right = malloc(bytes);
    struct tree_bytes key = {"kk", 2}, value = {"a value", 7};
    struct tree_ranges ranges;
    struct tree_place place;
    memcpy(copy, image, bytes);
    if (image[0] == 0 && remo__tree_node_find(copy, bytes, key, &place)) {
        if (place.offset == 0)
            (void)remo__tree_node_insert(copy, bytes, key, value, &ranges);
        else if (!remo__tree_node_replace(copy, bytes, &place, value, &ranges))
            remo__tree_node_remove(copy, bytes, &place, &ranges);
    }
    memcpy(copy, image, bytes);
    struct tree_header header;
    memcpy(&header, copy, sizeof header);
    if (remo__tree_node_is_whole(copy, bytes) && header.count > 1) {
        if (header.level > 0) {
            remo__tree_node_remove_child(copy, bytes, header.count / 2u, scratch);
            (void)remo__tree_node_insert_child(copy, bytes, 1, key, 7, scratch);
        }
        memcpy(copy, image, bytes);
        remo__tree_node_split(copy, right, bytes, key, scratch);
        if (remo__tree_node_is_valid(copy, bytes, header.level)
            && remo__tree_node_is_valid(right, bytes, header.level)) { /* else a fence took the room */
            assert(remo__tree_node_is_whole(copy, bytes) && remo__tree_node_is_whole(right, bytes));
            (void)remo__tree_node_merge(copy, right, bytes, scratch);
            assert(remo__tree_node_is_whole(copy, bytes));
        }
    }
    free(right);
    free(scratch);
    free(copy);
}

/* ---- a node that a get reads directly ---- */

#define RECORD_DATA 24u
#define RECORD_WORDS ((REMO__VERSIONED_RECORD_BYTES + RECORD_DATA) / 8)

enum { NO_RECORD, HEADER_RECORD, ANY_RANGE, TOO_LARGE, RECORDS };

/* Make a record of this kind, from pseudo-random numbers. Returns its words. */
static uint32_t make_record(uint64_t *words, uint32_t kind, uint32_t bytes, uint64_t seed) {
    uint32_t offset = (uint32_t)(seed % bytes), left = bytes - offset,
             size = 1 + (uint32_t)(seed >> 32) % (kind == TOO_LARGE ? left : remo__min(RECORD_DATA, left));
    for (uint32_t i = 0; i < RECORD_WORDS; i++)
        words[i] = seed = remo__random_mix(seed);
    if (kind == HEADER_RECORD) {
        offset = offsetof(struct tree_header, count);
        size = sizeof(struct tree_header) - offset;
    }
    words[1] = (uint64_t)offset << 32 | size;
    return kind == NO_RECORD ? 0 : remo__min(remo__versioned_record_words(size), RECORD_WORDS);
}

/* A visit of the node finds the same. */
static void expect_visit(const struct tree_seek *seek, const void *base, uint32_t bytes) {
    uint64_t copied = 0;
    struct remo_versioned_view view = {.shape = seek->direct.shape, .base = base, .copied = &copied};
    struct tree_seek other = {
        .tree = seek->tree, .buffer = malloc(bytes + TREE_BUFFER_SPARE), .key = seek->key};
    remo__tree_seek_prepare(&other, &view);
    remo__tree_seek_search(&other, &view);
    assert(other.result == seek->result);
    assert(seek->result != SEEK_FOUND || remo__tree_is_equal(seek->entry.value, other.entry.value));
    free(other.buffer);
}

/* Get a key from the node, in an extent of the exact size. */
static void get_directly(const uint8_t *image, uint32_t bytes, struct tree_bytes key, uint32_t kind) {
    struct remo__versioned_shape shape = {.object_bytes = bytes,
                                          .base_bytes = (uint32_t)remo__align_up(bytes, 8),
                                          .log_words = RECORD_WORDS,
                                          .part_bits = remo__versioned_part_bits(bytes)};
    uint64_t base_at = remo__versioned_base_at(&shape);
    uint8_t *extent = calloc(1, base_at + bytes), *base = extent + base_at;
    struct remo__versioned_image *head = (struct remo__versioned_image *)extent;
    static struct remo_tree reader;
    reader.node_bytes = bytes;
    struct tree_seek seek = {.tree = &reader,
                             .buffer = malloc(bytes),
                             .key = key,
                             .direct = {.shape = &shape, .extent = (char *)extent, .generation = 1}};
    memcpy(base, image, bytes);
    uint32_t used =
        make_record(head->records, kind, bytes, remo__random_mix(remo__tree_load64(image + 8) + key.bytes));
    uint32_t offset = (uint32_t)(head->records[1] >> 32), size = (uint32_t)head->records[1];
    head->header.head = remo__versioned_head(1, used, 0);
    if (kind == HEADER_RECORD)
        head->header.lead = remo__versioned_lead(head->records + REMO__VERSIONED_RECORD_BYTES / 8, used);
    else if (kind != NO_RECORD)
        head->header.hull = remo__versioned_hull(offset, offset + size);
    if (remo__tree_direct_search(&seek)) {
        assert(seek.result == SEEK_FOUND || seek.result == SEEK_ABSENT);
        if (seek.result == SEEK_FOUND) {
            assert(remo__tree_is_equal(seek.entry.key, key));
            expect_inside((uint8_t *)seek.buffer, bytes, seek.entry.value);
        }
        if (kind == HEADER_RECORD)
            remo__versioned_overlay(head->records, used, 0, base, bytes);
        if (kind <= HEADER_RECORD)
            expect_visit(&seek, base, bytes);
    }
    free(seek.buffer);
    free(extent);
}

static void get(const uint8_t *image, uint32_t bytes, struct tree_bytes key) {
    for (uint32_t kind = 0; kind < RECORDS; kind++)
        get_directly(image, bytes, key, kind);
}

static void fuzz_node(const uint8_t *data, size_t size, uint32_t mode) {
    uint32_t bytes = TREE_NODE_BYTES_MIN + (uint32_t)size % 3;
    /* The exact size, so that a sanitizer detects accesses beyond the end. */
    uint8_t *image = calloc(1, bytes);
    struct tree_header header;
    struct tree_bytes high;
    memcpy(image, data, remo__min(size, bytes));
    if (mode & MEND_LEVEL)
        image[1] = TREE_NODE + image[1] % 2;
    memcpy(&header, image, sizeof header);
    assert(!remo__tree_node_is_valid(image, bytes, header.level + 1u));
    get(image, bytes, (struct tree_bytes){"dk", 2});
    if (remo__tree_node_is_valid(image, bytes, header.level)) {
        struct tree_bytes low = remo__tree_node_low(image, bytes);
        expect_inside(image, bytes, low);
        (void)remo__tree_node_high(image, bytes, &high);
        expect_inside(image, bytes, high);
        search(image, bytes, low, header.run);
        search(image, bytes, high, header.run);
        search(image, bytes, (struct tree_bytes){NULL, 0}, header.run);
        change(image, bytes);
        for (uint32_t i = 0; i < header.run; i++) {
            struct tree_entry entry;
            if (!remo__tree_node_entry(image, bytes, i, &entry))
                continue;
            expect_inside(image, bytes, entry.key);
            expect_inside(image, bytes, entry.value);
            search(image, bytes, entry.key, header.run);
            get(image, bytes, entry.key);
        }
    }
    free(image);
}

/* ---- requests ---- */

static void close_node(void) {
    remo_tree_close(tree);
    remo_node_close(node);
}

static void open_tree(void) {
    struct remo_tree_options options = {.nodes = NODES,
                                        .node_bytes = NODE_BYTES,
                                        .key_bytes_max = KEY_BYTES_MAX,
                                        .value_bytes_max = VALUE_BYTES_MAX};
    int rc = remo_tree_open(remo_node_root(node), "tree", &options, &tree);
    assert(rc == 0);
}

static void open_node(void) {
    struct remo_config config = {.fabric = "shm", .arena_bytes = 64u << 20, .segment_bytes = 2u << 20};
    int rc = remo_node_open(&config, &node);
    assert(rc == 0);
    open_tree();
    atexit(close_node);
}

/* Make a request. A change that was made is visible. */
static void serve(const uint8_t *data, size_t bytes) {
    uint64_t words[8] = {0};
    struct remo_rpc_request request = {.data = words, .bytes = bytes};
    struct tree_request header;
    char value[VALUE_BYTES_MAX];
    size_t value_bytes;
    memcpy(words, data, bytes);
    int rc = remo__tree_serve(tree, &request);
    assert(rc == 0 || rc == EEXIST || rc == ENOENT || rc == ESTALE || rc == ENOSPC || rc == EPROTO);
    if (rc == EPROTO)
        return;
    memcpy(&header, words, sizeof header);
    const char *key = (const char *)words + sizeof header;
    size_t used = sizeof header + header.key_bytes + header.value_bytes;
    assert(header.op == TREE_COMPARE_PUT ? bytes >= used && bytes <= used + VALUE_BYTES_MAX : bytes == used);
    int get_rc = remo_tree_get(tree, key, header.key_bytes, value, sizeof value, &value_bytes);
    if (rc == ENOENT || header.op == TREE_REMOVE)
        assert(get_rc == -ENOENT);
    else if (rc == 0)
        assert(get_rc == 0 && value_bytes == header.value_bytes
               && memcmp(value, key + header.key_bytes, value_bytes) == 0);
    else
        assert(rc == ENOSPC || get_rc == 0);
}

/* Make the writes of a request. If one fails, none has an effect: the version is the same. Otherwise the last
 * write of the last key is visible. Only values of 0 bytes that replace others of 0 bytes need no version. */
static void serve_apply(const uint8_t *data, size_t bytes) {
    struct tree_write writes[REMO_TREE_WRITES_MAX];
    char value[VALUE_BYTES_MAX];
    uint64_t before, after;
    uint32_t failed, count = remo__tree_decode_apply(tree, data, bytes, writes);
    size_t value_bytes;
    if (count == 0) {
        assert(remo__tree_serve_apply(tree, &(struct remo_rpc_request){.data = data, .bytes = bytes})
               == EPROTO);
        return;
    }
    int rc = remo_versioned_version(tree->nodes, 0, &before);
    assert(rc == 0);
    rc = remo__tree_apply(tree, writes, count, &failed);
    assert(rc == 0 || rc == -EEXIST || rc == -ENOENT || rc == -ESTALE || rc == -ENOSPC);
    assert((rc == 0) == (failed == count));
    assert(remo_versioned_version(tree->nodes, 0, &after) == 0);
    assert(after == before + (rc == 0) || (rc == 0 && after == before && writes[0].value.bytes == 0));
    const struct tree_write *last = &writes[count - 1];
    int get_rc = remo_tree_get(tree, last->key.data, last->key.bytes, value, sizeof value, &value_bytes);
    if (rc == 0 && last->op == TREE_REMOVE)
        assert(get_rc == -ENOENT);
    else if (rc == 0)
        assert(get_rc == 0 && value_bytes == last->value.bytes
               && memcmp(value, last->value.data, value_bytes) == 0);
}

/* Remove a range. The keys that it removes are all that the owner reports. */
static void serve_removal(const uint8_t *data, size_t bytes) {
    struct tree_removal removal;
    struct tree_removed removed;
    uint64_t before, after;
    if (!remo__tree_decode_remove(tree, data, bytes, &removal)) {
        assert(remo__tree_serve_remove(tree, &(struct remo_rpc_request){.data = data, .bytes = bytes})
               == EPROTO);
        return;
    }
    int rc = remo_tree_count(tree, NULL, &before);
    assert(rc == 0);
    rc = remo__tree_remove_some(tree, &removal, &removed);
    assert(rc == 0 && removed.count <= removal.limit && removed.count <= REMO_TREE_WRITES_MAX);
    assert(removed.is_done || removed.count == removal.limit || removed.count > 0);
    struct tree_bytes next = {removed.next, removed.next_bytes};
    assert(removed.count == 0 || remo__tree_compare(removal.from, next) < 0);
    rc = remo_tree_count(tree, NULL, &after);
    assert(rc == 0 && after == before - removed.count);
}

/* Remove a range in several steps. Then it has no keys. */
static void remove_steps(const uint8_t *data) {
    struct remo_tree_range range = {.from = {data + 3, data[0] % (KEY_BYTES_MAX + 1)},
                                    .to = {data + 3 + KEY_BYTES_MAX, data[1] % (KEY_BYTES_MAX + 1)}};
    struct tree_removed removed;
    char next[KEY_BYTES_MAX + 1]; /* outside the loop: the removal refers to it */
    uint64_t left = 1;
    struct tree_removal removal = {.from = {range.from.data, (uint32_t)range.from.bytes},
                                   .to = {range.to.data, (uint32_t)range.to.bytes},
                                   .has_to = true,
                                   .limit = 1 + data[2] % 70};
    if (remo__tree_compare(removal.from, removal.to) > 0)
        return;
    do {
        int rc = remo__tree_remove_some(tree, &removal, &removed);
        assert(rc == 0 && removed.count <= removal.limit && (removed.is_done || removed.count > 0));
        assert(removed.next_bytes <= sizeof next);
        memcpy(next, removed.next, removed.next_bytes);
        removal.from = (struct tree_bytes){next, removed.next_bytes};
    } while (!removed.is_done);
    int rc = remo_tree_count(tree, &range, &left);
    assert(rc == 0 && left == 0);
}

static void remove_ranges(const uint8_t *data, size_t bytes) {
    uint8_t made[3 + 2 * KEY_BYTES_MAX] = {0};
    struct tree_range_request header = {.limit = 7, .has_to = 1};
    uint8_t request[sizeof header + 2 * KEY_BYTES_MAX];
    serve_removal(data, remo__min(bytes, sizeof made)); /* usually malformed */
    memcpy(made, data, remo__min(bytes, sizeof made));
    header.from_bytes = made[0] % (KEY_BYTES_MAX + 1);
    memcpy(request, &header, sizeof header);
    memcpy(request + sizeof header, made + 3, header.from_bytes + made[1] % (KEY_BYTES_MAX + 1));
    serve_removal(request, sizeof header + header.from_bytes + made[1] % (KEY_BYTES_MAX + 1));
    remove_steps(made);
}

/* Remove all keys, which are in order. */
static void clear(void) {
    static char buffer[NODES * NODE_BYTES];
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    struct tree_bytes last = {NULL, 0};
    size_t offset = 0;
    int rc = remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result);
    assert(rc == 0 && result.is_complete);
    for (uint64_t i = 0; remo_tree_result_next(buffer, &result, &offset, &entry); i++) {
        struct tree_bytes key = {entry.key.data, (uint32_t)entry.key.bytes};
        assert(i == 0 || remo__tree_compare(last, key) < 0);
        last = key;
        rc = remo_tree_remove(tree, key.data, key.bytes);
        assert(rc == 0);
    }
    assert(tree->own->free_count == NODES - 1);
}

static void fuzz_requests(const uint8_t *data, size_t bytes, bool are_applies) {
    if (!node)
        open_node();
    for (size_t at = 0; at < bytes;) {
        size_t count = remo__min(are_applies ? data[at] : data[at] % (8 * sizeof(uint64_t)), bytes - at - 1);
        (are_applies ? serve_apply : serve)(data + at + 1, count);
        at += 1 + count;
    }
    /* wrong sizes; a good one requires a caller to reply to */
    assert(remo__tree_serve_freeze(tree, &(struct remo_rpc_request){.data = data, .bytes = 7}) == EPROTO);
    assert(remo__tree_serve_thaw(tree, &(struct remo_rpc_request){.data = data}) == 0);
    remove_ranges(data, bytes);
    clear();
}

/* ---- damage ---- */

static void expect_end(int rc) {
    assert(rc == 0 || rc == -ENOENT || rc == -EEXIST || rc == -ENOSPC || rc == -EPROTO || rc == -ETIMEDOUT
           || rc == -EMSGSIZE);
}

static void commit_damage(uint32_t object, uint32_t place, const void *data, uint32_t bytes) {
    struct remo_versioned_change change = {
        .object = object, .offset = place, .size_bytes = bytes, .data = data};
    int rc = remo_versioned_commit(tree->nodes, &change, 1, NULL);
    assert(rc == 0);
}

static void overwrite(const uint8_t *data, size_t bytes) {
    for (size_t at = 0; at + 3 < bytes;) {
        uint32_t place = data[at + 1] * 2u, count = 1 + data[at + 2] % 32u;
        count = (uint32_t)remo__min(remo__min(count, bytes - at - 3), NODE_BYTES - place);
        commit_damage(data[at] % NODES, place, data + at + 3, count);
        at += 3 + count;
    }
}

/* Overwrite the child of an entry of the root by an index near the number of nodes. */
static void misdirect(uint32_t number) {
    char root[NODE_BYTES];
    struct tree_entry entry;
    uint32_t child = NODES - 1 + number % 3;
    int rc = remo_versioned_read(tree->nodes, 0, TREE_ROOT, root, NULL);
    if (rc == 0 && remo__tree_node_entry(root, NODE_BYTES, number / 3 % 4, &entry)
        && entry.value.bytes == sizeof child)
        commit_damage(TREE_ROOT, (uint32_t)((const char *)entry.value.data - root), &child, sizeof child);
}

/* Without its copies of inner nodes, as if it had no memory for them, the owner reads the damaged nodes. */
static void forget_copies(void) {
    for (uint32_t i = 0; i < NODES; i++) {
        free(tree->own->kept[i]);
        tree->own->kept[i] = NULL;
    }
}

/* Scan, and check that the buffer has the entries that the result counts. */
static void scan_damaged(const struct remo_tree_range *range, char *buffer, size_t cap) {
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    size_t offset = 0;
    int rc = remo_tree_scan(tree, range, buffer, cap, &result);
    expect_end(rc);
    for (uint64_t i = 0; rc == 0 && i < result.entries; i++)
        assert(remo_tree_result_next(buffer, &result, &offset, &entry) == 1);
    assert(rc != 0 || offset == result.bytes);
}

static void read_damaged(void) {
    static char buffer[NODES * NODE_BYTES];
    uint64_t snapshot, count;
    size_t bytes;
    for (uint32_t flags = 0; flags < 4; flags++) {
        const struct remo_tree_range range = {.from = {"1", 1}, .flags = flags};
        scan_damaged(flags > 1 ? &range : NULL, buffer, sizeof buffer);
        expect_end(remo_tree_count(tree, &range, &count));
    }
    int rc = remo_tree_snapshot(tree, &snapshot);
    assert(rc == 0);
    expect_end(remo_tree_get(tree, "17", 2, buffer, sizeof buffer, &bytes));
    expect_end(remo_tree_get_at(tree, &snapshot, "05", 2, buffer, sizeof buffer, &bytes));
    struct remo_tree_item items[] = {{.key = {"05", 2}, .value = buffer, .value_cap = 64},
                                     {.key = {"17", 2}, .value = buffer + 64, .value_cap = 64}};
    expect_end(remo_tree_get_many(tree, items, 2));
}

static void fuzz_damage(const uint8_t *data, size_t bytes) {
    if (!node)
        open_node();
    for (uint32_t i = 0; i < DAMAGED_KEYS; i++) {
        const char key[] = {(char)('0' + i / 10), (char)('0' + i % 10)};
        int rc = remo_tree_insert(tree, key, sizeof key, "a value of 22 bytes...", 22);
        assert(rc == 0);
    }
    uint64_t timeout_ns = node->op_timeout_ns;
    node->op_timeout_ns = DAMAGED_TIMEOUT_NS;
    if (bytes > 0 && data[0] >= MISDIRECTS)
        misdirect(data[0]);
    else
        overwrite(data, bytes);
    if (bytes % 2)
        forget_copies();
    read_damaged();
    for (uint32_t i = 0; i < DAMAGED_KEYS; i++) {
        const char key[] = {(char)('0' + i % 4), (char)('0' + i / 4), 'x'};
        expect_end(remo_tree_upsert(tree, key, 2 + i % 2, "another value", i % 14));
        expect_end(remo_tree_remove(tree, key, 2));
    }
    /* the second write finds the node that the first one has changed */
    const struct remo_tree_write writes[] = {
        {REMO_TREE_UPDATE, .key = {"05", 2}, .value = {data, remo__min(bytes, VALUE_BYTES_MAX)}},
        {REMO_TREE_UPSERT, .key = {"05y", 3}, .value = {"a value", 7}}};
    expect_end(remo_tree_apply(tree, writes, 2, NULL));
    const struct remo_tree_range some = {.from = {"1", 1}, .limit = 20};
    int rc = remo_tree_remove_range(tree, &some, NULL);
    assert(rc == 0 || rc == -EPROTO || rc == -ETIMEDOUT);
    read_damaged();
    node->op_timeout_ns = timeout_ns;
    remo_tree_close(tree);
    open_tree();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 1)
        return 0;
    if (data[0] & REQUESTS)
        fuzz_requests(data + 1, bytes - 1, data[0] & APPLIES);
    else if (data[0] & DAMAGE)
        fuzz_damage(data + 1, bytes - 1);
    else
        fuzz_node(data + 1, bytes - 1, data[0]);
    return 0;
}

/* ---- seeds ---- */

/* A leaf, or an inner node, with some entries. Those of some leaves have one size, so these leaves are
 * compact; some have a removed entry. One has a long fence, so that its index is at its end. */
static size_t seed_node(uint32_t n, uint8_t *image) {
    static const char fence[NODE_BYTES - 72] = "b";
    struct tree_bytes low = {fence, n == 12 ? sizeof fence : 1}, high = {"wx", 2};
    struct tree_ranges ranges;
    uint8_t scratch[NODE_BYTES];
    uint32_t level = n / 2 % 3;
    bool has_one_size = n % 4 == 0;
    struct tree_place place;
    remo__tree_node_init(image, NODE_BYTES, level, low, n % 2 ? &high : NULL);
    for (uint32_t i = 0; i < n; i++) {
        char text[] = {(char)('b' + i), 'k', 0};
        struct tree_bytes key = {text, i == 0 && level > 0 ? 0 : has_one_size ? 2 : 1 + i % 2};
        struct tree_bytes value = {&i, has_one_size ? 4 : i % 5};
        if (level > 0)
            (void)remo__tree_node_insert_child(image, NODE_BYTES, i, key, i, scratch);
        else if (!remo__tree_node_insert(image, NODE_BYTES, key, value, &ranges))
            remo__tree_node_pack(image, NODE_BYTES, scratch);
    }
    if (level == 0 && has_one_size && n > 8) {
        remo__tree_node_pack(image, NODE_BYTES, scratch);
        if (remo__tree_node_find(image, NODE_BYTES, (struct tree_bytes){"dk", 2}, &place)
            && place.offset != 0)
            remo__tree_node_remove(image, NODE_BYTES, &place, &ranges);
    }
    return NODE_BYTES;
}

/* Requests of all kinds, so many that nodes split and merge, or no node is left. */
static size_t seed_requests(uint32_t n, uint8_t *data) {
    size_t at = 0;
    for (uint32_t i = 0; i < 40 * n; i++) {
        struct tree_request header = {.op = (uint8_t)((i / 64 + i % 3) % TREE_OPS),
                                      .key_bytes = (uint16_t)(i * n % 4),
                                      .value_bytes = (uint16_t)(i % 24)};
        uint32_t key = i * 2654435761u;
        data[at++] = (uint8_t)(sizeof header + header.key_bytes + header.value_bytes);
        memcpy(data + at, &header, sizeof header);
        memcpy(data + at + sizeof header, &key, header.key_bytes);
        memset(data + at + sizeof header + header.key_bytes, (int)i, header.value_bytes);
        at += sizeof header + header.key_bytes + header.value_bytes;
    }
    return at;
}

/* Requests of several writes. Some fail, because a key is present or absent. */
static size_t seed_applies(uint32_t n, uint8_t *data) {
    size_t at = 0;
    for (uint32_t i = 0; i < 20 * n; i++) {
        size_t begin = at++;
        for (uint32_t k = 0; k < 1 + i % 3; k++) {
            uint32_t key = (i * 3 + k) / (1 + n % 3) * 2654435761u;
            struct tree_part part = {.op = (uint8_t)(n % 2 ? TREE_UPSERT : (i / 16 + k) % TREE_OPS),
                                     .key_bytes = 3,
                                     .value_bytes = (uint16_t)(i % 24)};
            part.expected_bytes = part.op == TREE_COMPARE_PUT ? part.value_bytes : 0;
            memcpy(data + at, &part, sizeof part);
            memcpy(data + at + sizeof part, &key, 3);
            at += sizeof part + 3;
            memset(data + at, (int)i, part.value_bytes + part.expected_bytes);
            at += part.value_bytes + part.expected_bytes;
        }
        data[begin] = (uint8_t)(at - begin - 1);
    }
    return at;
}

/* Each number in the header of a node, and some bytes behind it. */
static size_t seed_damage(uint32_t n, uint8_t *data) {
    size_t at = 0;
    if (n % 2) {
        data[0] = (uint8_t)(MISDIRECTS + n);
        return 1 + n % 4 / 2;
    }
    for (uint32_t i = 0; i < 1 + n % 4; i++) {
        data[at++] = (uint8_t)(n + i);
        data[at++] = (uint8_t)(n < 6 ? n : 7 * n);
        data[at++] = (uint8_t)(n % 3);
        memset(data + at, n % 2 ? 255 : (int)n, 1 + n % 3);
        at += 1 + n % 3;
    }
    return at;
}

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    if (n >= 12 * MODES)
        return 0;
    ret_data[0] = (uint8_t)(n % MODES);
    return 1
           + (n % MODES == (REQUESTS | APPLIES) ? seed_applies(n / MODES, ret_data + 1)
              : n % MODES & REQUESTS            ? seed_requests(n / MODES, ret_data + 1)
              : n % MODES & DAMAGE              ? seed_damage(n / MODES, ret_data + 1)
                                                : seed_node(2 * (n / MODES), ret_data + 1));
}
