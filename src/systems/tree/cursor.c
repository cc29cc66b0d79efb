/* cursor.c - cursors: steps over the entries of a range, in both directions, by scans that fill a page.
 * Invariant: a page has entries of one owner, which were adjacent at one instant, in the order of its
 * direction. The position of a cursor is the entry of the page that it returned last, or `place` if there is
 * none. A step that needs another page first stores the position in `place`, so a failed scan does not move
 * the cursor. */
#include <stdlib.h>
#include <string.h>

#include "systems/tree/tree.h"

#define BUFFER_BYTES_DEFAULT 65536u
#define BUFFER_BYTES_MAX (1u << 30)
#define ENTRY_ROOM 16u    /* bytes of the buffer for each entry that a page can have */
#define FIRST_ENTRIES 32u /* of a page after an open, a seek or a turn; the next ones have more */
#define GROWTH 4u

enum place {
    PLACE_UNSET,  /* before the first step: it leads to the first entry in its direction */
    PLACE_FIRST,  /* before all keys of the range */
    PLACE_LAST,   /* after all keys */
    PLACE_BEFORE, /* just before `key` */
    PLACE_ON,     /* at `key`, whether it is present or not */
    PLACE_AFTER,
};

struct remo_tree_cursor {
    struct remo_tree *tree;
    struct remo_tree_range range; /* of copies; `limit`: entries that the cursor may still return */
    bool has_limit;
    enum place place;
    struct remo_tree_key key; /* of `place`, a copy */
    enum place kept_place;    /* before a step that needs another page */
    struct remo_tree_key kept_key;
    struct remo_tree_result page;
    bool is_left;           /* the keys of the page descend */
    uint32_t position;      /* of the owner of the page */
    uint32_t index;         /* steps into the page; 0: the position is `place` */
    size_t offset;          /* of entry `index` of the page */
    uint32_t *offsets;      /* [entries_max]: of the entries up to `index` */
    uint32_t entries_max;   /* of a page */
    uint32_t entries_limit; /* of the last page */
    size_t cap;
    char *buffer;
};

/* ---- the position ---- */

static void set_key(struct remo_tree_cursor *cursor, enum place place, const void *key, size_t key_bytes) {
    if (key_bytes > 0)
        memcpy((void *)cursor->key.data, key, key_bytes);
    cursor->key.bytes = key_bytes;
    cursor->place = place;
}

/* Move beyond the keys of the owner at `position`. */
static void leave_owner(struct remo_tree_cursor *cursor, bool is_left, uint32_t position) {
    const struct remo_tree *tree = cursor->tree;
    uint32_t boundary = is_left ? position - 1 : position;
    bool is_last = is_left ? position == 0 : position + 1 == tree->owner_count;
    struct tree_bytes limit = is_last ? (struct tree_bytes){0} : tree->boundaries[boundary];
    const struct remo_tree_key *end = is_left ? &cursor->range.from : &cursor->range.to;
    if (!is_last && end->data) { /* the range may end before the next owner */
        int order = remo__tree_compare((struct tree_bytes){end->data, (uint32_t)end->bytes}, limit);
        is_last = is_left ? order >= 0
                          : order < 0 || (order == 0 && !(cursor->range.flags & REMO_TREE_TO_INCLUDED));
    }
    if (is_last)
        cursor->place = is_left ? PLACE_FIRST : PLACE_LAST;
    else
        set_key(cursor, PLACE_BEFORE, limit.data, limit.bytes);
}

static void keep_place(struct remo_tree_cursor *cursor) {
    cursor->kept_place = cursor->place;
    cursor->kept_key.bytes = cursor->key.bytes;
    memcpy((void *)cursor->kept_key.data, cursor->key.data, cursor->key.bytes);
}

static void return_to_place(struct remo_tree_cursor *cursor) {
    set_key(cursor, cursor->kept_place, cursor->kept_key.data, cursor->kept_key.bytes);
}

/* Store the position, and drop the page: the next step is in the direction `is_left`. Move beyond the keys of
 * the owner if the page had the last ones. */
static void drop_page(struct remo_tree_cursor *cursor, bool is_left) {
    struct remo_tree_entry entry;
    bool is_last = cursor->index > 0 && is_left == cursor->is_left && cursor->index == cursor->page.entries
                   && cursor->page.is_complete;
    if (cursor->index > 0) {
        remo__tree_result_entry(cursor->buffer + cursor->offsets[cursor->index - 1], &entry);
        set_key(cursor, PLACE_ON, entry.key.data, entry.key.bytes);
    }
    keep_place(cursor);
    if (is_last)
        leave_owner(cursor, is_left, cursor->position);
    cursor->page = (struct remo_tree_result){0};
    cursor->index = 0;
    cursor->offset = 0;
}

/* ---- pages ---- */

/* Return the position of the owner of the next key in a direction. */
static uint32_t next_owner(const struct remo_tree_cursor *cursor, const struct remo_tree_range *rest,
                           bool is_left) {
    const struct remo_tree *tree = cursor->tree;
    const struct remo_tree_key *limit = is_left ? &rest->to : &rest->from;
    struct tree_bytes key = {limit->data, (uint32_t)limit->bytes};
    if (!limit->data)
        return is_left ? tree->owner_count - 1 : 0;
    uint32_t position = remo__tree_position(tree, key);
    bool is_boundary = position > 0 && remo__tree_compare(tree->boundaries[position - 1], key) == 0;
    return position - (is_left && is_boundary && !(rest->flags & REMO_TREE_TO_INCLUDED));
}

/* Return the part of the range beyond the position in a direction. */
static struct remo_tree_range rest_of(const struct remo_tree_cursor *cursor, bool is_left) {
    struct remo_tree_range rest = cursor->range;
    rest.flags = (rest.flags & ~REMO_TREE_DESCENDING) | (is_left ? REMO_TREE_DESCENDING : 0);
    if (cursor->place < PLACE_BEFORE)
        return rest;
    uint32_t flag = is_left ? REMO_TREE_TO_INCLUDED : REMO_TREE_FROM_EXCLUDED;
    bool is_set = is_left ? cursor->place == PLACE_AFTER : cursor->place != PLACE_BEFORE;
    *(is_left ? &rest.to : &rest.from) = cursor->key;
    rest.flags = (rest.flags & ~flag) | (is_set ? flag : 0);
    return rest;
}

/* Limit a range to the keys of one owner. */
static void clip(const struct remo_tree_cursor *cursor, struct remo_tree_range *rest, bool is_left,
                 uint32_t position) {
    const struct remo_tree *tree = cursor->tree;
    struct remo_tree_key *end = is_left ? &rest->from : &rest->to;
    if (is_left ? position == 0 : position + 1 == tree->owner_count)
        return;
    struct tree_bytes boundary = tree->boundaries[is_left ? position - 1 : position],
                      key = {end->data, (uint32_t)end->bytes};
    int order = end->data ? remo__tree_compare(key, boundary) : 0;
    if (end->data && (is_left ? order >= 0 : order < 0))
        return;
    *end = (struct remo_tree_key){boundary.data, boundary.bytes};
    rest->flags &= ~(is_left ? REMO_TREE_FROM_EXCLUDED : REMO_TREE_TO_INCLUDED);
}

/* Read a page of one owner. It may have no entries. */
static int read_page(struct remo_tree_cursor *cursor, bool is_left, uint32_t *ret_position) {
    struct remo_tree_range rest = rest_of(cursor, is_left);
    *ret_position = next_owner(cursor, &rest, is_left);
    clip(cursor, &rest, is_left, *ret_position);
    rest.limit =
        cursor->has_limit ? remo__min(cursor->range.limit, cursor->entries_limit) : cursor->entries_limit;
    struct remo_tree_result page;
    int rc = remo_tree_scan(cursor->tree, &rest, cursor->buffer, cursor->cap, &page);
    if (rc != 0)
        return rc;
    cursor->page = page;
    cursor->position = *ret_position;
    cursor->is_left = is_left;
    return 0;
}

/* Read the next page in a direction. Returns 1, 0 at the end of the range, or an error. */
static int next_page(struct remo_tree_cursor *cursor, bool is_left) {
    bool goes_on = is_left == cursor->is_left && cursor->index > 0;
    uint32_t position;
    cursor->entries_limit =
        goes_on ? remo__min(cursor->entries_limit * GROWTH, cursor->entries_max) : cursor->entries_limit;
    if (!goes_on)
        cursor->entries_limit = remo__min(FIRST_ENTRIES, cursor->entries_max);
    drop_page(cursor, is_left);
    while (cursor->place != (is_left ? PLACE_FIRST : PLACE_LAST)) {
        int rc = read_page(cursor, is_left, &position);
        if (rc == 0 && cursor->page.entries > 0)
            return 1;
        if (rc == 0 || remo__is_departure(rc))
            leave_owner(cursor, is_left, position);
        else
            return_to_place(cursor);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- steps ---- */

/* Return whether the next entry of the page has a key that cannot be in the tree. */
static bool has_long_key(const struct remo_tree_cursor *cursor) {
    struct remo_tree_entry entry;
    remo__tree_result_entry(cursor->buffer + cursor->offset, &entry);
    return remo__unlikely(entry.key.bytes > cursor->tree->key_bytes_max);
}

static int step(struct remo_tree_cursor *cursor, bool is_left, struct remo_tree_entry *ret_entry) {
    bool is_back = is_left != cursor->is_left && cursor->index > 1;
    if (remo__unlikely(cursor->has_limit && cursor->range.limit == 0))
        return 0;
    if (remo__unlikely(!is_back && (is_left != cursor->is_left || cursor->index == cursor->page.entries))) {
        int rc = next_page(cursor, is_left);
        if (rc != 1)
            return rc;
    }
    if (!is_back && has_long_key(cursor)) /* it would not fit into the memory for the position */
        return remo__fail(-EPROTO, "tree %s at node %u is damaged; start the job again",
                          remo_channel_name(cursor->tree->channel), cursor->tree->owners[cursor->position]);
    cursor->range.limit -= cursor->has_limit;
    if (is_back) {
        cursor->offset = cursor->offsets[--cursor->index];
        remo__tree_result_entry(cursor->buffer + cursor->offsets[cursor->index - 1], ret_entry);
        return 1;
    }
    cursor->offsets[cursor->index++] = (uint32_t)cursor->offset;
    cursor->offset += remo__tree_result_entry(cursor->buffer + cursor->offset, ret_entry);
    return 1;
}

int remo_tree_cursor_next(struct remo_tree_cursor *cursor, struct remo_tree_entry *ret_entry) {
    REMO__REQUIRE(cursor);
    REMO__REQUIRE(ret_entry);
    return step(cursor, cursor->range.flags & REMO_TREE_DESCENDING, ret_entry);
}

int remo_tree_cursor_prev(struct remo_tree_cursor *cursor, struct remo_tree_entry *ret_entry) {
    REMO__REQUIRE(cursor);
    REMO__REQUIRE(ret_entry);
    return step(cursor, !(cursor->range.flags & REMO_TREE_DESCENDING), ret_entry);
}

/* Return PLACE_FIRST or PLACE_LAST for a key outside of the range, otherwise PLACE_ON. */
static enum place place_of(const struct remo_tree_range *range, struct tree_bytes key) {
    struct tree_bytes from = {range->from.data, (uint32_t)range->from.bytes},
                      to = {range->to.data, (uint32_t)range->to.bytes};
    int above_from = from.data ? remo__tree_compare(key, from) : 1,
        below_to = to.data ? remo__tree_compare(to, key) : 1;
    if (above_from < (range->flags & REMO_TREE_FROM_EXCLUDED ? 1 : 0))
        return PLACE_FIRST;
    return below_to < (range->flags & REMO_TREE_TO_INCLUDED ? 0 : 1) ? PLACE_LAST : PLACE_ON;
}

int remo_tree_cursor_seek(struct remo_tree_cursor *cursor, const void *key, size_t key_bytes) {
    REMO__REQUIRE(cursor);
    int rc = remo__tree_check_key(cursor->tree, key, key_bytes);
    if (rc != 0)
        return rc;
    enum place place =
        key ? place_of(&cursor->range, (struct tree_bytes){key, (uint32_t)key_bytes}) : PLACE_UNSET;
    if (place == PLACE_ON)
        place = cursor->range.flags & REMO_TREE_DESCENDING ? PLACE_AFTER : PLACE_BEFORE;
    cursor->page = (struct remo_tree_result){0};
    cursor->index = 0;
    cursor->offset = 0;
    if (place >= PLACE_BEFORE)
        set_key(cursor, place, key, key_bytes);
    cursor->place = place;
    return 0;
}

/* ---- open and close ---- */

/* Copy a key of the range, if it has one, to *at, and advance *at. */
static struct remo_tree_key copy_key(const struct remo_tree_key *key, char **at) {
    if (!key->data)
        return (struct remo_tree_key){0};
    char *copy = *at;
    memcpy(copy, key->data, key->bytes);
    *at += key->bytes;
    return (struct remo_tree_key){copy, key->bytes};
}

/* Make a cursor with all its memory: the words of a snapshot, the offsets, four keys, and the buffer. */
static struct remo_tree_cursor *make(struct remo_tree *tree, const struct remo_tree_range *range,
                                     size_t buffer_bytes) {
    uint32_t entries = (uint32_t)remo__max(buffer_bytes / ENTRY_ROOM, 1);
    size_t words_bytes = range->snapshot ? tree->owner_count * sizeof range->snapshot[0] : 0,
           offsets_bytes = entries * sizeof(uint32_t);
    struct remo_tree_cursor *cursor =
        malloc(sizeof *cursor + words_bytes + offsets_bytes + 4 * (size_t)tree->key_bytes_max + buffer_bytes);
    if (!cursor)
        return NULL;
    char *words = (char *)(cursor + 1), *at = words + words_bytes + offsets_bytes;
    *cursor = (struct remo_tree_cursor){.tree = tree,
                                        .range = *range,
                                        .has_limit = range->limit > 0,
                                        .offsets = (uint32_t *)(words + words_bytes),
                                        .entries_max = entries,
                                        .cap = buffer_bytes};
    cursor->key.data = at;
    cursor->kept_key.data = at + tree->key_bytes_max;
    at += 2 * (size_t)tree->key_bytes_max;
    cursor->range.from = copy_key(&range->from, &at);
    cursor->range.to = copy_key(&range->to, &at);
    cursor->buffer = at;
    if (range->snapshot)
        cursor->range.snapshot = memcpy(words, range->snapshot, words_bytes);
    return cursor;
}

int remo_tree_cursor_open(struct remo_tree *tree, const struct remo_tree_range *range, size_t buffer_bytes,
                          struct remo_tree_cursor **ret_cursor) {
    static const struct remo_tree_range everything;
    struct tree_limits limits;
    REMO__REQUIRE(tree);
    REMO__REQUIRE(ret_cursor);
    range = range ? range : &everything;
    int rc = remo__tree_limits(tree, range, &limits);
    if (rc == 0)
        rc = remo__tree_check_snapshot(tree, range->snapshot);
    if (rc != 0)
        return rc;
    if (buffer_bytes > BUFFER_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open a cursor with a buffer of %zu bytes: the maximum is %u",
                          buffer_bytes, BUFFER_BYTES_MAX);
    struct remo_tree_cursor *cursor =
        make(tree, range, buffer_bytes > 0 ? buffer_bytes : BUFFER_BYTES_DEFAULT);
    if (!cursor)
        return remo__fail(-ENOMEM, "no memory for a cursor of tree %s", remo_channel_name(tree->channel));
    *ret_cursor = cursor;
    return 0;
}

void remo_tree_cursor_close(struct remo_tree_cursor *cursor) {
    free(cursor);
}
