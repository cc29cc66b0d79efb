/* test_history_tree.c - random gets, scans, changes and applies on a tree of three owners, whose leaves split
 * and merge all the time. Each call is an operation of the history (history.h); a scan reads all keys that it
 * covers. A change replaces the value that the caller has read before (remo_tree_compare_put). Or only this
 * actor changes the key, and has the version from its last change. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"

#define OWNERS 3u /* node 3 has no keys */
#define KEYS 96u
#define KEY_BYTES 8u
#define PRIVATE_EVERY 4u /* one key in so many is changed by one actor only */
#define APPLIED_MAX 6u   /* keys of one apply */
#define GOT_MAX 6u       /* keys of one get_many */
#define BUFFER_BYTES (KEYS * (KEY_BYTES + HISTORY_VALUE_BYTES_MAX + 4))
#define ATTEMPTS_MAX 60000u /* to change a key at the end, with 1 ms in between */

struct place {
    struct remo_tree *tree;
    unsigned char names[KEYS][KEY_BYTES]; /* the keys in ascending order, as the tree has them */
};

/* The versions of the keys that only this actor changes. */
struct own {
    uint32_t versions[KEYS];
    bool is_lost[KEYS]; /* a change failed */
};

/* One key of an apply. */
struct change {
    uint32_t key, seen;
    bool deletes;
    uint32_t value_bytes, expected_bytes;
    unsigned char value[HISTORY_VALUE_BYTES_MAX], expected[HISTORY_VALUE_BYTES_MAX];
};

/* ---- objects ---- */

static struct remo_tree *tree_of(const struct history_actor *actor) {
    return ((const struct place *)actor->place)->tree;
}

static const unsigned char *name_of(const struct history_actor *actor, uint32_t key) {
    return ((const struct place *)actor->place)->names[key];
}

static struct remo_tree_key tree_key(const struct history_actor *actor, uint32_t key) {
    return (struct remo_tree_key){name_of(actor, key), KEY_BYTES};
}

static bool is_private(uint32_t key) {
    return key % PRIVATE_EVERY == 0;
}

static bool is_own(const struct history_actor *actor, uint32_t key) {
    return is_private(key)
           && key / PRIVATE_EVERY % HISTORY_ACTORS == actor->rank * HISTORY_TASKS + actor->number;
}

static int open_place(struct remo_node *node, void **ret_place) {
    const struct remo_tree_options options = {.owners.word = {(1u << OWNERS) - 1},
                                              .node_bytes = 512,
                                              .key_bytes_max = KEY_BYTES,
                                              .value_bytes_max = HISTORY_VALUE_BYTES_MAX};
    struct place *place = calloc(1, sizeof *place);
    CHECK(place);
    CHECK_OK(remo_tree_open(remo_node_root(node), "tree", &options, &place->tree));
    CHECK_OK(remo_channel_wait(remo_tree_channel(place->tree), HISTORY_LONG_TIME));
    for (uint32_t key = 0; key < KEYS; key++) {
        struct remo_key name = {.data = place->names[key], .cap = KEY_BYTES};
        remo_key_put_unsigned(&name, UINT64_MAX / KEYS * key + key, KEY_BYTES, REMO_KEY_ASCENDING);
        CHECK_OK(name.error);
        history_run->owners[key] = remo_tree_owner(place->tree, place->names[key], KEY_BYTES);
    }
    *ret_place = place;
    return 0;
}

static void close_place(void *ctx) {
    struct place *place = ctx;
    remo_tree_close(place->tree);
    free(place);
}

static int start(struct history_actor *actor) {
    actor->own = calloc(1, sizeof(struct own));
    CHECK(actor->own);
    return 0;
}

static void stop(struct history_actor *actor) {
    free(actor->own);
}

static bool is_lost(int rc, uint32_t key) {
    return history_is_down(rc) && history_is_victim(history_run->owners[key]);
}

/* ---- gets ---- */

static int version_of(uint32_t key, int rc, const unsigned char *value, size_t bytes, uint32_t *ret_seen) {
    *ret_seen = CYCLES_ABSENT;
    CHECK(rc == 0 || rc == -ENOENT);
    if (rc != 0)
        return 0;
    *ret_seen = history_id_of(value, bytes, key);
    CHECK(*ret_seen != CYCLES_ABSENT);
    return 0;
}

static void record_read(struct history_actor *actor, uint64_t begin, uint32_t key, uint32_t seen) {
    history_begin_at(actor, begin);
    history_use(actor, key, CYCLES_READ, seen);
    history_end(actor, CYCLES_COMMITTED);
}

/* Get a key. *ret_rc is 0, or -EHOSTDOWN if its owner has failed. */
static int get(struct history_actor *actor, uint32_t key, uint32_t *ret_seen, int *ret_rc) {
    unsigned char value[HISTORY_VALUE_BYTES_MAX];
    size_t bytes = 0;
    uint64_t begin = cluster_now_ns();
    int rc = remo_tree_get(tree_of(actor), name_of(actor, key), KEY_BYTES, value, sizeof value, &bytes);
    *ret_rc = is_lost(rc, key) ? rc : 0;
    if (*ret_rc != 0)
        return 0;
    CHECK(version_of(key, rc, value, bytes, ret_seen) == 0);
    record_read(actor, begin, key, *ret_seen);
    return 0;
}

static int get_one(struct history_actor *actor) {
    uint32_t seen;
    int rc;
    return get(actor, history_dice(actor, KEYS), &seen, &rc);
}

/* Each key is an operation of its own. */
static int get_many(struct history_actor *actor) {
    unsigned char values[GOT_MAX][HISTORY_VALUE_BYTES_MAX];
    struct remo_tree_item items[GOT_MAX];
    uint32_t keys[GOT_MAX], count = 1 + history_dice(actor, GOT_MAX), seen;
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = history_dice(actor, KEYS);
        items[i] = (struct remo_tree_item){
            .key = tree_key(actor, keys[i]), .value = values[i], .value_cap = sizeof values[i]};
    }
    uint64_t begin = cluster_now_ns();
    int rc = remo_tree_get_many(tree_of(actor), items, count);
    CHECK(rc == 0 || history_is_down(rc));
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        CHECK(version_of(keys[i], items[i].status, values[i], items[i].value_bytes, &seen) == 0);
        record_read(actor, begin, keys[i], seen);
    }
    return 0;
}

/* ---- scans ---- */

/* A range of keys, from `first` to `last`. */
struct span {
    uint32_t first, last; /* both are in it */
    bool is_descending;
};

static struct remo_tree_range make_range(struct history_actor *actor, const struct span *span) {
    struct remo_tree_range range = {.flags = span->is_descending ? REMO_TREE_DESCENDING : 0};
    if (span->first > 0 && history_dice(actor, 2)) {
        range.from = tree_key(actor, span->first - 1);
        range.flags |= REMO_TREE_FROM_EXCLUDED;
    } else if (span->first > 0 || history_dice(actor, 2)) {
        range.from = tree_key(actor, span->first);
    }
    if (span->last + 1 < KEYS && history_dice(actor, 2)) {
        range.to = tree_key(actor, span->last + 1);
    } else if (span->last + 1 < KEYS || history_dice(actor, 2)) {
        range.to = tree_key(actor, span->last);
        range.flags |= REMO_TREE_TO_INCLUDED;
    }
    return range;
}

/* Return the number of a key, or KEYS. */
static uint32_t number_of(const struct history_actor *actor, const struct remo_tree_key *key) {
    for (uint32_t i = 0; i < KEYS && key->bytes == KEY_BYTES; i++)
        if (memcmp(name_of(actor, i), key->data, KEY_BYTES) == 0)
            return i;
    return KEYS;
}

/* Record that the scan found the keys from *next to before `key` absent, and `key` with this version. */
static void record_up_to(struct history_actor *actor, const struct span *span, uint32_t *next, uint32_t key,
                         uint32_t seen) {
    while (*next != key) {
        history_use(actor, *next, CYCLES_READ, CYCLES_ABSENT);
        *next += span->is_descending ? -1u : 1;
    }
    history_use(actor, key, CYCLES_READ, seen);
    *next += span->is_descending ? -1u : 1;
}

/* Record the keys that a scan has covered, to the end of the span or to the last entry. *ret_next is the
 * first key that it did not cover. */
static int record_scan(struct history_actor *actor, const struct span *span, const void *buffer,
                       const struct remo_tree_result *result, uint32_t *ret_next) {
    struct remo_tree_entry entry;
    size_t offset = 0;
    uint64_t entries = 0;
    uint32_t end = span->is_descending ? span->first - 1 : span->last + 1;
    *ret_next = span->is_descending ? span->last : span->first;
    for (; remo_tree_result_next(buffer, result, &offset, &entry); entries++) {
        uint32_t key = number_of(actor, &entry.key);
        CHECK(key >= span->first && key <= span->last);
        CHECK(span->is_descending ? (int32_t)key <= (int32_t)*ret_next : key >= *ret_next);
        uint32_t seen = history_id_of(entry.value.data, entry.value.bytes, key);
        CHECK(seen != CYCLES_ABSENT);
        record_up_to(actor, span, ret_next, key, seen);
    }
    CHECK_EQUAL(entries, result->entries);
    for (; result->is_complete && *ret_next != end; *ret_next += span->is_descending ? -1u : 1)
        history_use(actor, *ret_next, CYCLES_READ, CYCLES_ABSENT);
    return 0;
}

static struct span choose_span(struct history_actor *actor) {
    uint32_t a = history_dice(actor, KEYS), width = history_dice(actor, history_dice(actor, 4) ? 12 : KEYS);
    uint32_t last = a + width < KEYS ? a + width : KEYS - 1;
    return (struct span){.first = a, .last = last, .is_descending = history_dice(actor, 2)};
}

/* A scan with or without a limit, into a buffer that may be too small for all. */
static int scan(struct history_actor *actor, const struct span *span, bool is_limited) {
    unsigned char buffer[BUFFER_BYTES];
    struct remo_tree_range range = make_range(actor, span);
    struct remo_tree_result result;
    uint32_t next;
    size_t cap = is_limited && history_dice(actor, 2) ? 64 + history_dice(actor, 512) : sizeof buffer;
    range.limit = is_limited && history_dice(actor, 2) ? 1 + history_dice(actor, 8) : 0;
    uint64_t begin = cluster_now_ns();
    int rc = remo_tree_scan(tree_of(actor), &range, buffer, cap, &result);
    CHECK(rc == 0 || history_is_down(rc));
    if (rc != 0)
        return 0;
    CHECK(range.limit == 0 || result.entries <= range.limit);
    CHECK(is_limited || result.is_complete);
    history_begin_at(actor, begin);
    CHECK(record_scan(actor, span, buffer, &result, &next) == 0);
    history_end(actor, CYCLES_COMMITTED);
    return 0;
}

static int scan_any(struct history_actor *actor) {
    const struct span span = choose_span(actor);
    return scan(actor, &span, history_dice(actor, 2));
}

/* Scan the rest of the span by the snapshot, page after page, within one operation. */
static int scan_pages(struct history_actor *actor, struct span span, const uint64_t *snapshot, int *ret_rc) {
    unsigned char buffer[BUFFER_BYTES];
    struct remo_tree_result result = {0};
    for (*ret_rc = 0; *ret_rc == 0 && !result.is_complete;) {
        struct remo_tree_range range = make_range(actor, &span);
        uint32_t next;
        range.snapshot = snapshot;
        range.limit = 1 + history_dice(actor, 12);
        *ret_rc = remo_tree_scan(tree_of(actor), &range, buffer, sizeof buffer, &result);
        CHECK(*ret_rc == 0 || *ret_rc == -ESTALE || history_is_down(*ret_rc));
        if (*ret_rc != 0)
            break;
        CHECK(record_scan(actor, &span, buffer, &result, &next) == 0);
        if (next == (span.is_descending ? span.first - 1 : span.last + 1))
            break; /* the last entry of the span was the last one of the limit */
        *(span.is_descending ? &span.last : &span.first) = next;
    }
    return 0;
}

/* The contents of a snapshot are as of the instant at which it was made. */
static int read_snapshot(struct history_actor *actor) {
    uint64_t versions[OWNERS];
    struct span span = choose_span(actor);
    history_begin(actor);
    int rc = remo_tree_snapshot(tree_of(actor), versions);
    CHECK(rc == 0 || history_is_down(rc));
    uint64_t made = cluster_now_ns();
    if (rc == 0)
        CHECK(scan_pages(actor, span, versions, &rc) == 0);
    history_end_at(actor, rc == 0 ? CYCLES_COMMITTED : CYCLES_NOT_COMMITTED, made);
    return 0;
}

/* ---- changes ---- */

static uint32_t *own_version(struct history_actor *actor, uint32_t key) {
    return &((struct own *)actor->own)->versions[key];
}

/* End a change: `rc` is a result that `can_fail` permits, or an error because its owner has failed. */
static int end_change(struct history_actor *actor, uint32_t key, int rc, bool can_fail) {
    bool is_refused = rc == -EEXIST || rc == -ENOENT || rc == -ESTALE;
    CHECK(rc == 0 || (is_refused && can_fail) || is_lost(rc, key));
    history_end(actor, rc == 0 ? CYCLES_COMMITTED : is_refused ? CYCLES_NOT_COMMITTED : CYCLES_UNKNOWN);
    return 0;
}

/* Change a key of this actor: the version is the one of its last change, and no call can be refused. */
static int change_own(struct history_actor *actor, uint32_t key) {
    unsigned char value[HISTORY_VALUE_BYTES_MAX], expected[HISTORY_VALUE_BYTES_MAX];
    struct remo_tree *tree = tree_of(actor);
    struct own *own = actor->own;
    const unsigned char *name = name_of(actor, key);
    uint32_t seen = own->versions[key], way = history_dice(actor, 4);
    bool deletes = seen != CYCLES_ABSENT && way == 0;
    int rc;
    if (own->is_lost[key])
        return 0;
    history_begin(actor);
    history_use(actor, key, deletes ? CYCLES_DELETE : CYCLES_WRITE, seen);
    uint32_t bytes = history_make_value(value, key, history_id(actor)),
             expected_bytes = history_make_value(expected, key, seen);
    if (deletes)
        rc = remo_tree_remove(tree, name, KEY_BYTES);
    else if (way == 1)
        rc = remo_tree_upsert(tree, name, KEY_BYTES, value, bytes);
    else if (seen == CYCLES_ABSENT)
        rc = remo_tree_insert(tree, name, KEY_BYTES, value, bytes);
    else if (way == 2)
        rc = remo_tree_compare_put(tree, name, KEY_BYTES, expected, expected_bytes, value, bytes);
    else
        rc = remo_tree_update(tree, name, KEY_BYTES, value, bytes);
    own->versions[key] = deletes ? CYCLES_ABSENT : history_id(actor);
    own->is_lost[key] = rc != 0;
    return end_change(actor, key, rc, false);
}

/* Change a key that others change too: the value that was seen is expected. *ret_rc is the result. */
static int change_shared(struct history_actor *actor, uint32_t key, uint32_t seen, bool deletes,
                         int *ret_rc) {
    struct change change = {.key = key, .seen = seen, .deletes = deletes};
    struct remo_tree_key name = tree_key(actor, key);
    history_begin(actor);
    history_use(actor, key, deletes ? CYCLES_DELETE : CYCLES_WRITE, seen);
    change.value_bytes = history_make_value(change.value, key, history_id(actor));
    change.expected_bytes = history_make_value(change.expected, key, seen);
    struct remo_tree_key value = {change.value, change.value_bytes},
                         expected = {change.expected, change.expected_bytes};
    const struct remo_tree_write writes[2] = {
        {.kind = REMO_TREE_COMPARE_PUT, .key = name, .value = value, .expected = expected},
        {.kind = REMO_TREE_REMOVE, .key = name}};
    if (deletes)
        *ret_rc = remo_tree_apply(tree_of(actor), writes, 2, NULL);
    else if (seen == CYCLES_ABSENT)
        *ret_rc = remo_tree_insert(tree_of(actor), name.data, name.bytes, value.data, value.bytes);
    else
        *ret_rc = remo_tree_compare_put(tree_of(actor), name.data, name.bytes, expected.data, expected.bytes,
                                        value.data, value.bytes);
    return end_change(actor, key, *ret_rc, true);
}

static int change_one(struct history_actor *actor) {
    uint32_t key = history_dice(actor, KEYS), seen;
    int rc;
    while (is_private(key) && !is_own(actor, key))
        key = history_dice(actor, KEYS);
    if (is_own(actor, key))
        return change_own(actor, key);
    if (get(actor, key, &seen, &rc))
        return 1;
    return rc != 0
               ? 0
               : change_shared(actor, key, seen, seen != CYCLES_ABSENT && history_dice(actor, 3) == 0, &rc);
}

/* ---- applies ---- */

/* Choose keys of one owner, and find their versions. *ret_count is 0 if the owner has failed. */
static int choose_changes(struct history_actor *actor, struct change *changes, uint32_t *ret_count) {
    uint32_t first = history_dice(actor, KEYS), wanted = 1 + history_dice(actor, APPLIED_MAX), count = 0;
    for (uint32_t key = first; key < KEYS && count < wanted; key += 1 + history_dice(actor, 3)) {
        int rc = 0;
        if ((is_private(key) && !is_own(actor, key))
            || history_run->owners[key] != history_run->owners[first])
            continue;
        struct change *change = &changes[count++];
        *change = (struct change){.key = key};
        if (is_own(actor, key))
            change->seen = *own_version(actor, key);
        else if (get(actor, key, &change->seen, &rc))
            return 1;
        if (rc != 0 || ((struct own *)actor->own)->is_lost[key]) {
            *ret_count = 0;
            return 0;
        }
        change->deletes = change->seen != CYCLES_ABSENT && history_dice(actor, 3) == 0;
    }
    *ret_count = count;
    return 0;
}

/* Append the writes of one change. Returns their number. */
static uint32_t make_writes(struct history_actor *actor, struct change *change,
                            struct remo_tree_write *writes) {
    struct remo_tree_key name = tree_key(actor, change->key);
    bool is_known = is_own(actor, change->key) && history_dice(actor, 2);
    uint32_t count = 0;
    change->value_bytes = history_make_value(change->value, change->key, history_id(actor));
    change->expected_bytes = history_make_value(change->expected, change->key, change->seen);
    struct remo_tree_key value = {change->value, change->value_bytes},
                         expected = {change->expected, change->expected_bytes};
    if (change->seen == CYCLES_ABSENT)
        writes[count++] = (struct remo_tree_write){
            .kind = is_known ? REMO_TREE_UPSERT : REMO_TREE_INSERT, .key = name, .value = value};
    else if (!is_known)
        writes[count++] = (struct remo_tree_write){
            .kind = REMO_TREE_COMPARE_PUT, .key = name, .value = value, .expected = expected};
    else if (!change->deletes)
        writes[count++] = (struct remo_tree_write){.kind = REMO_TREE_UPDATE, .key = name, .value = value};
    if (change->deletes)
        writes[count++] = (struct remo_tree_write){.kind = REMO_TREE_REMOVE, .key = name};
    return count;
}

static int apply(struct history_actor *actor) {
    struct change changes[APPLIED_MAX];
    struct remo_tree_write writes[2 * APPLIED_MAX];
    struct own *own = actor->own;
    uint32_t count, write_count = 0;
    bool can_fail = false;
    CHECK(choose_changes(actor, changes, &count) == 0);
    if (count == 0)
        return 0;
    history_begin(actor);
    for (uint32_t i = 0; i < count; i++) {
        history_use(actor, changes[i].key, changes[i].deletes ? CYCLES_DELETE : CYCLES_WRITE,
                    changes[i].seen);
        write_count += make_writes(actor, &changes[i], &writes[write_count]);
        can_fail |= !is_own(actor, changes[i].key);
    }
    int rc = remo_tree_apply(tree_of(actor), writes, write_count, NULL);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = changes[i].key;
        own->is_lost[key] = is_own(actor, key) && is_lost(rc, key);
        if (is_own(actor, key) && rc == 0)
            own->versions[key] = changes[i].deletes ? CYCLES_ABSENT : history_id(actor);
    }
    return end_change(actor, changes[0].key, rc, can_fail);
}

static int turn(struct history_actor *actor) {
    uint32_t drawn = history_dice(actor, 100);
    if (drawn < 20)
        return get_one(actor);
    if (drawn < 25)
        return get_many(actor);
    if (drawn < 45)
        return scan_any(actor);
    if (drawn < 48)
        return read_snapshot(actor);
    return drawn < 80 ? change_one(actor) : apply(actor);
}

/* ---- the end ---- */

static int read_key(struct history_actor *actor, uint32_t key) {
    const struct span span = {.first = key, .last = key};
    uint32_t seen;
    int rc;
    CHECK(get(actor, key, &seen, &rc) == 0);
    CHECK_OK(rc);
    return scan(actor, &span, false);
}

static int change_key(struct history_actor *actor, uint32_t key) {
    uint32_t seen;
    int rc = -EAGAIN;
    for (uint32_t i = 0; i < ATTEMPTS_MAX && rc != 0; i++) {
        CHECK(get(actor, key, &seen, &rc) == 0);
        CHECK_OK(rc);
        CHECK(change_shared(actor, key, seen, seen != CYCLES_ABSENT && history_dice(actor, 2), &rc) == 0);
    }
    CHECK_OK(rc);
    return 0;
}

int main(int argc, char **argv) {
    static const struct history_test test = {.name = "tree",
                                             .keys = KEYS,
                                             .accesses = 16,
                                             .open = open_place,
                                             .start = start,
                                             .stop = stop,
                                             .turn = turn,
                                             .read_key = read_key,
                                             .change_key = change_key,
                                             .close = close_place};
    return history_main(argc, argv, &test);
}
