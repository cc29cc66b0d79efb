/* load.c - the load of sorted entries, at their owner: entries are collected for some leaves, which are then
 * made at once. Invariant: no mutex is held while `next` runs. Each commit inserts the next entries of the
 * input, and each version is a complete tree. docs/internals/tree.md describes why readers need no more. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "systems/tree/tree.h"

#define FILL_DEFAULT 90u
#define FILL_MIN 50u
#define FILL_MAX 100u
#define PRINTED_BYTES_MAX 32u /* of a key in a sentence */
#define ENTRIES_NODES 2u      /* with their sizes, the entries of a compact leaf need up to twice its bytes */

/* The entries of one new leaf, in load.entries, with their sizes. */
struct part {
    uint32_t offset, bytes;
    uint32_t last; /* offset of the last entry */
    struct tree_sizes sizes;
};

struct load {
    struct remo_tree *tree;
    uint32_t fill_percent;
    uint32_t fence_bytes; /* of the longest fence or key so far */
    uint64_t loaded;      /* entries */
    char *entries;        /* of TREE_LOAD_LEAVES nodes */
    uint32_t used;        /* bytes */
    struct part parts[TREE_LOAD_LEAVES];
    uint32_t first, end;    /* parts that have not been loaded completely */
    struct tree_bytes last; /* the last key that was collected; data NULL: none */
};

static struct tree_entry entry_at(const struct load *load, uint32_t offset) {
    struct tree_entry entry = {.key.bytes = 0};
    (void)remo__tree_entry_at(load->entries, load->used, offset, &entry);
    return entry;
}

/* ---- errors ---- */

/* Print the first bytes of a key: those that are not printable ASCII, and backslashes, as \xNN. */
static void print_key(char text[4 * PRINTED_BYTES_MAX + 4], struct tree_bytes key) {
    const unsigned char *bytes = key.data;
    for (uint32_t i = 0; bytes && i < key.bytes && i < PRINTED_BYTES_MAX; i++)
        text += sprintf(text, bytes[i] < 128 && isprint(bytes[i]) && bytes[i] != '\\' ? "%c" : "\\x%02x",
                        bytes[i]);
    strcpy(text, bytes && key.bytes > PRINTED_BYTES_MAX ? "..." : "");
}

static int fail_entry(const struct load *load, int rc, uint64_t position, struct tree_bytes key,
                      const char *reason) {
    char text[4 * PRINTED_BYTES_MAX + 4];
    print_key(text, key);
    return remo__fail(rc, "cannot load entry %llu (counted from 0) of the input into tree %s: key '%s' %s",
                      (unsigned long long)position, remo_channel_name(load->tree->channel), text, reason);
}

static bool has_valid_size(const struct remo_tree_key *bytes, uint32_t bytes_max) {
    return bytes->bytes <= bytes_max && (bytes->data || bytes->bytes == 0);
}

/* Set *ret_reason to the reason why an entry is wrong, and return its code. */
static int check(const struct load *load, const struct remo_tree_entry *entry, const char **ret_reason) {
    const struct remo_tree *tree = load->tree;
    struct tree_bytes key = {entry->key.data, (uint32_t)entry->key.bytes};
    int rc = -EINVAL;
    if (!has_valid_size(&entry->key, tree->key_bytes_max))
        *ret_reason = "is NULL, or longer than key_bytes_max; load shorter keys";
    else if (!has_valid_size(&entry->value, tree->value_bytes_max))
        *ret_reason = "has a value that is NULL, or longer than value_bytes_max; load shorter values";
    else if (load->last.data && remo__tree_compare(load->last, key) >= 0)
        *ret_reason = "is not above the key of the entry before; sort the entries, and load each key once";
    else if (tree->owners[remo__tree_position(tree, key)] != tree->node->rank) {
        *ret_reason = "belongs to another owner (remo_tree_owner); load it there";
        rc = -EXDEV;
    } else
        return 0;
    return rc;
}

/* Set the sentence of an error of the first entry that has not been loaded. */
static int fail_first(const struct load *load, int rc) {
    if (rc == -EEXIST)
        return fail_entry(load, rc, load->loaded, entry_at(load, load->parts[load->first].offset).key,
                          "is in the tree already; update or upsert it");
    return rc == -ENOSPC || rc == -ENOMEM || rc == -EMSGSIZE
               ? remo__tree_fail_change(load->tree, rc, load->tree->node->rank)
               : rc;
}

/* ---- one leaf ---- */

/* Return 1 if the entries belong behind all entries of a leaf, and below its high fence. Otherwise return 0,
 * or -1 if an entry of the leaf is not valid. */
static int has_gap(const struct load *load, const void *leaf, const struct part *part) {
    uint32_t bytes = load->tree->node_bytes;
    struct tree_entry greatest;
    struct tree_bytes high;
    struct tree_walk walk;
    if (remo__tree_node_high(leaf, bytes, &high)
        && remo__tree_compare(entry_at(load, part->last).key, high) >= 0)
        return 0;
    if (!remo__tree_walk_begin(&walk, leaf, bytes, NULL))
        return -1;
    int found = remo__tree_walk_previous(&walk, &greatest);
    if (found <= 0)
        return found < 0 ? -1 : 1;
    return remo__tree_compare(greatest.key, entry_at(load, part->offset).key) < 0;
}

/* Return whether a new leaf may have these entries. */
static bool fit(const struct load *load, const struct tree_sizes *sizes) {
    uint32_t bytes = load->tree->node_bytes,
             room = bytes - (uint32_t)sizeof(struct tree_header) - 2 * load->fence_bytes;
    return remo__tree_sizes_packed(sizes) <= room * load->fill_percent / 100
           && remo__tree_sizes_fit(sizes, bytes, room);
}

/* Add the entries to the leaf of the path if it is not full then; otherwise insert a new leaf behind it. */
static int add_leaf(const struct load *load, const struct part *part) {
    struct remo_tree *tree = load->tree;
    struct tree_owner *own = tree->own;
    uint32_t bytes = tree->node_bytes;
    struct tree_step *leaf = &own->steps[own->depth - 1];
    struct tree_bytes high;
    int gap = has_gap(load, leaf->image, part);
    if (gap < 0)
        return remo__tree_fail_damaged(tree);
    bool has_high = remo__tree_node_high(leaf->image, bytes, &high);
    if (gap == 0
        || !remo__tree_node_fill(own->sibling, bytes, entry_at(load, part->offset).key,
                                 has_high ? &high : NULL, load->entries + part->offset, part->bytes,
                                 &part->sizes))
        return 1;
    struct tree_sizes sizes = remo__tree_node_sizes(leaf->image, bytes);
    sizes = remo__tree_sizes_join(&sizes, &part->sizes);
    if (!fit(load, &sizes))
        return remo__tree_insert_leaf(tree);
    if (!remo__tree_node_is_whole(leaf->image, bytes))
        return remo__tree_fail_damaged(tree);
    if (!remo__tree_node_merge(leaf->image, own->sibling, bytes, own->scratch))
        return remo__tree_insert_leaf(tree);
    leaf->is_whole = true;
    return 0;
}

/* ---- commits ---- */

/* Load all parts by one commit, or those before the first one that is not a leaf of its own. Returns 1,
 * without effect, if there are none before it: then its first entry must be inserted. */
static int add_leaves(struct load *load) {
    struct remo_tree *tree = load->tree;
    uint32_t at = load->first;
    int rc = 0;
    while (at < load->end && rc == 0) {
        const struct part *part = &load->parts[at];
        rc = remo__tree_descend(tree, entry_at(load, part->offset).key);
        rc = remo__tree_to_overlay(tree, rc == 0 ? add_leaf(load, part) : rc);
        at += rc == 0;
    }
    bool has_some = at > load->first && (rc == 1 || rc == -ENOSPC); /* commit the leaves before */
    rc = remo__tree_end_overlay(tree, has_some ? 0 : rc);
    for (; load->first < at && rc == 0; load->first++)
        load->loaded += load->parts[load->first].sizes.count;
    return rc;
}

static int insert_first(struct load *load) {
    struct part *part = &load->parts[load->first];
    struct tree_entry entry = entry_at(load, part->offset);
    struct tree_write write = {.op = TREE_INSERT, .key = entry.key, .value = entry.value};
    int rc = remo__tree_change(load->tree, &write);
    if (rc != 0)
        return rc;
    part->offset += remo__tree_entry_size(&entry);
    part->bytes -= remo__tree_entry_size(&entry);
    part->sizes.used -= TREE_SLOT_BYTES + remo__tree_entry_size(&entry);
    part->sizes.count--;
    load->loaded++;
    load->first += part->sizes.count == 0;
    return 0;
}

/* Load the next parts, or one entry. Returns TREE_FROZEN if scans delay changes. */
static int attempt(struct remo_tree *tree, void *ctx) {
    struct load *load = ctx;
    int rc = remo__mutex_lock(tree->node, &tree->own->mutex, REMO_FOREVER); /* held for copies only */
    if (rc != 0)
        return rc;
    rc = remo__remaining_ns(tree->own->frozen_until_ns) > 0 ? TREE_FROZEN : add_leaves(load);
    remo__mutex_unlock(tree->node, &tree->own->mutex);
    return rc == 1 ? insert_first(load) : rc;
}

/* Load all entries that have been collected. */
static int flush(struct load *load) {
    int rc = 0;
    while (load->first < load->end && rc == 0)
        rc = remo__tree_until_thawed(load->tree, load->tree->node->rank, attempt, load);
    if (rc != 0)
        return fail_first(load, rc);
    load->first = load->end = load->used = 0;
    return 0;
}

/* ---- entries ---- */

/* Return whether the last part has room for an entry. */
static bool has_room(const struct load *load, const struct tree_sizes *entry) {
    if (load->end == 0)
        return false;
    struct tree_sizes sizes = remo__tree_sizes_join(&load->parts[load->end - 1].sizes, entry);
    return fit(load, &sizes);
}

/* Add an entry to the last part, or begin another one if the leaf would be too full. Each leaf has room for
 * the longest key so far as its low and as its high fence, so that the next leaf can follow. */
static int collect(struct load *load, const struct tree_entry *entry) {
    struct tree_sizes sizes = {.count = 1,
                               .used = remo__tree_entry_bytes(entry->key.bytes, entry->value.bytes),
                               .key_bytes = entry->key.bytes,
                               .value_bytes = entry->value.bytes};
    load->fence_bytes = entry->key.bytes > load->fence_bytes ? entry->key.bytes : load->fence_bytes;
    bool is_full = !has_room(load, &sizes);
    if (is_full && load->end == TREE_LOAD_LEAVES) {
        int rc = flush(load);
        if (rc != 0)
            return rc;
        remo__tree_let_others(load->tree);
    }
    if (is_full)
        load->parts[load->end++] = (struct part){.offset = load->used};
    struct part *part = &load->parts[load->end - 1];
    part->last = load->used;
    part->bytes += remo__tree_entry_size(entry);
    part->sizes = remo__tree_sizes_join(&part->sizes, &sizes);
    load->used += remo__tree_write_entry(load->entries + load->used, entry->key, entry->value);
    load->last = entry_at(load, part->last).key;
    return 0;
}

/* Load the entries until the end or an error. Entries before an error are loaded. */
static int load_all(struct load *load, int (*next)(void *, struct remo_tree_entry *), void *ctx) {
    struct remo_tree_entry entry = {.key.bytes = 0};
    const char *reason = NULL;
    int got, rc = 0;
    while ((got = next(ctx, &entry)) > 0) {
        struct tree_entry copy = {{entry.key.data, (uint32_t)entry.key.bytes},
                                  {entry.value.data, (uint32_t)entry.value.bytes}};
        int wrong = check(load, &entry, &reason);
        rc = wrong ? flush(load) : collect(load, &copy);
        if (wrong && rc == 0)
            return fail_entry(load, wrong, load->loaded, copy.key, reason);
        if (rc != 0)
            return rc;
        entry = (struct remo_tree_entry){.key.bytes = 0};
    }
    rc = flush(load);
    if (rc != 0 || got == 0)
        return rc;
    return remo__fail(
        got, "cannot load entry %llu (counted from 0) of the input into tree %s: `next` has returned %d",
        (unsigned long long)load->loaded, remo_channel_name(load->tree->channel), got);
}

static uint32_t max_fence_bytes(const struct remo_tree *tree) {
    uint32_t bytes = 0;
    for (uint32_t i = 0; i + 1 < tree->owner_count; i++)
        bytes = tree->boundaries[i].bytes > bytes ? tree->boundaries[i].bytes : bytes;
    return bytes;
}

static int check_load(const struct remo_tree *tree, uint32_t fill_percent) {
    if (!tree->own)
        return remo__fail(
            -EPERM,
            "cannot load entries into tree %s: this node is not an owner; load at the owner of the keys",
            remo_channel_name(tree->channel));
    if (fill_percent < FILL_MIN || fill_percent > FILL_MAX)
        return remo__fail(
            -EINVAL, "cannot load entries into tree %s: fill_percent is %u, and must be 0 or from %u to %u",
            remo_channel_name(tree->channel), fill_percent, FILL_MIN, FILL_MAX);
    return remo__tree_check_options(tree);
}

int remo_tree_load(struct remo_tree *tree, int (*next)(void *ctx, struct remo_tree_entry *ret_entry),
                   void *ctx, uint32_t fill_percent, uint64_t *ret_count) {
    if (ret_count)
        *ret_count = 0;
    REMO__REQUIRE(tree);
    REMO__REQUIRE(next);
    struct load load = {.tree = tree, .fill_percent = fill_percent ? fill_percent : FILL_DEFAULT};
    int rc = check_load(tree, load.fill_percent);
    if (rc != 0)
        return rc;
    load.fence_bytes = max_fence_bytes(tree);
    load.entries = malloc((size_t)TREE_LOAD_LEAVES * ENTRIES_NODES * tree->node_bytes);
    if (!load.entries)
        return remo__fail(-ENOMEM, "no memory to load entries into tree %s",
                          remo_channel_name(tree->channel));
    rc = load_all(&load, next, ctx);
    free(load.entries);
    if (ret_count)
        *ret_count = load.loaded;
    return rc;
}
