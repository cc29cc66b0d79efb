/* items.c - the items of a transaction: reads and changes of remo/tx.h, before the commit.
 * Invariant: an item keeps the evidence of its first lookup, so that later reads of its key return the
 * value that the commit validates. */
#include "systems/tx/tx.h"

#include <errno.h>

int remo__tx_check_active(const struct remo_tx *tx) {
    if (!tx)
        return remo__fail(-EINVAL, "cannot use a transaction: it is NULL");
    if (tx->state != REMO__TX_ACTIVE)
        return remo__fail(-ESTALE, "cannot use a transaction that has ended or not begun: call "
                                   "remo_tx_begin first");
    return 0;
}

static int find_structure(const struct remo_tx_space *space, const struct remo_structure *structure,
                          uint32_t *ret_index) {
    for (uint32_t i = 0; i < space->structure_count; i++)
        if (space->structures[i] == structure) {
            *ret_index = i;
            return 0;
        }
    return remo__fail(-EINVAL,
                      "cannot use a structure in a transaction: it is not one of the %u structures "
                      "of %s",
                      space->structure_count, remo_channel_name(space->channel));
}

static int keep_bytes(struct remo_tx *tx, const void *data, size_t bytes, uint16_t *ret_at) {
    if (bytes > REMO__TX_BYTES_MAX - tx->bytes_used)
        return remo__fail(-EMSGSIZE,
                          "the keys and values of a transaction have more than REMO_TX_BYTES_MAX = %u bytes: "
                          "divide it",
                          REMO__TX_BYTES_MAX);
    *ret_at = (uint16_t)tx->bytes_used;
    if (bytes > 0)
        memcpy(tx->bytes + tx->bytes_used, data, bytes);
    tx->bytes_used += bytes;
    return 0;
}

static int add_item(struct remo_tx *tx, uint32_t structure, uint32_t owner,
                    const struct remo_structure_key *key, struct remo__tx_item **ret_item) {
    uint16_t key_at = 0;
    if (tx->items_count == REMO__TX_ITEMS_MAX)
        return remo__fail(-ENOBUFS, "a transaction has at most %u keys: divide it", REMO__TX_ITEMS_MAX);
    int rc = keep_bytes(tx, key->data, key->bytes, &key_at);
    if (rc != 0)
        return rc;
    struct remo__tx_item *item = &tx->items[tx->items_count++];
    *item = (struct remo__tx_item){.key = *key, .structure = structure, .owner = owner};
    item->key.data = tx->bytes + key_at;
    *ret_item = item;
    return 0;
}

/* Find the item of a key, or add it. */
static int find_item(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes,
                     struct remo__tx_item **ret_item) {
    struct remo_structure_key wanted;
    uint32_t index = 0, owner = 0;
    int rc = remo__tx_check_active(tx);
    if (rc == 0)
        rc = find_structure(tx->space, structure, &index);
    if (rc == 0)
        rc = remo__structure_key(structure, key, key_bytes, &wanted, &owner);
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < tx->items_count; i++) {
        struct remo__tx_item *item = &tx->items[i];
        if (item->key.hash == wanted.hash && item->structure == index && item->key.bytes == key_bytes
            && memcmp(item->key.data, key, key_bytes) == 0) {
            *ret_item = item;
            return 0;
        }
    }
    return add_item(tx, index, owner, &wanted, ret_item);
}

/* ---- lookups ---- */

/* Keep the result `rc` of the first lookup of an item, and the value that it found. */
static int keep_result(struct remo_tx *tx, struct remo__tx_item *item, int rc, const void *value,
                       size_t bytes, struct remo__evidence evidence) {
    bool is_present = rc == 0;
    if (rc != 0 && rc != -ENOENT)
        return rc;
    if (evidence.proof == REMO__PROOF_NONE)
        return remo__fail(-EPROTO,
                          "the owner of a key of %s sent an answer without evidence: its memory is "
                          "damaged; start it again",
                          remo_channel_name(tx->space->structures[item->structure]->share->channel));
    if (is_present && !item->is_changed) {
        rc = keep_bytes(tx, value, bytes, &item->value_at);
        if (rc != 0)
            return rc;
        item->value_bytes = (uint16_t)bytes;
    }
    if (!item->is_changed)
        item->is_present = is_present;
    item->was_locked = evidence.proof == REMO__PROOF_HEAD && (evidence.word & REMO__ITEM_LOCKED) != 0;
    evidence.word &= evidence.proof == REMO__PROOF_HEAD ? ~REMO__ITEM_LOCKED : UINT64_MAX;
    item->evidence = evidence;
    return 0;
}

/* Look an item up for the first time, and keep its value. A transaction that may hold locks waits for
 * none. */
static int look_up_prefetched(struct remo_tx *tx, struct remo__tx_item *item, uint64_t prefetched) {
    char value[REMO_ITEM_BYTES_MAX];
    size_t bytes = 0;
    enum remo_lookup_way way;
    struct remo__evidence evidence = {0};
    int rc = remo__structure_find(tx->space->structures[item->structure], item->owner, &item->key, prefetched,
                                  value, sizeof value, &bytes, !tx->space->is_early, &way, &evidence);
    if (rc == -EBUSY)
        return tx->lock_error = remo__tx_conflict(tx, (uint32_t)(item - tx->items), REMO_TX_LOCKED);
    rc = keep_result(tx, item, rc, value, bytes, evidence);
    if (rc == 0)
        tx->last = (uint32_t)(item - tx->items);
    return rc;
}

static int look_up(struct remo_tx *tx, struct remo__tx_item *item) {
    const struct remo_structure *structure = tx->space->structures[item->structure];
    uint64_t prefetched = remo__lookup_prepare(structure, item->owner, &item->key);
    remo__structure_serve_now(structure);
    return look_up_prefetched(tx, item, prefetched);
}

/* Lock an item early, and keep its value unless it was looked up before: then it is the same. If there is no
 * room for the value, the item is locked without evidence: the transaction can only abort. */
static int lock(struct remo_tx *tx, struct remo__tx_item *item) {
    char value[REMO_ITEM_BYTES_MAX];
    size_t bytes = 0;
    struct remo__evidence evidence = {0};
    int rc = remo__tx_lock(tx, item, value, sizeof value, &bytes, &evidence);
    if (rc != 0 && rc != -ENOENT)
        return rc;
    if (item->evidence.proof == REMO__PROOF_NONE)
        return tx->lock_error = keep_result(tx, item, rc, value, bytes, evidence);
    item->evidence = evidence;
    return 0;
}

/* Return whether a read of the item needs a lookup. */
static bool needs_lookup(const struct remo__tx_item *item) {
    return item->evidence.proof == REMO__PROOF_NONE && !item->is_changed;
}

/* Find the item of a key that the transaction will change, and lock it early if the space does so. Otherwise
 * look it up unless the transaction has read or changed it. */
static int find_for_update(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                           size_t key_bytes, struct remo__tx_item **ret_item) {
    int rc = find_item(tx, structure, key, key_bytes, ret_item);
    if (rc == 0 && tx->space->is_early)
        return (*ret_item)->is_held && tx->lock_error == 0 ? 0 : lock(tx, *ret_item);
    return rc == 0 && needs_lookup(*ret_item) ? look_up(tx, *ret_item) : rc;
}

/* Find the item of a key, and look it up unless the transaction has read or changed it. */
static int look_up_once(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                        size_t key_bytes, struct remo__tx_item **ret_item) {
    int rc = find_item(tx, structure, key, key_bytes, ret_item);
    return rc == 0 && needs_lookup(*ret_item) ? look_up(tx, *ret_item) : rc;
}

/* ---- several lookups at the same time ---- */

/* Prefetch what the lookups of a set load first. In a task, other tasks run during the cache misses.
 * ret_prefetched[i] is the result for item i. */
static void prefetch_all(const struct remo_tx *tx, uint64_t wanted, uint64_t *ret_prefetched) {
    const struct remo_node *node = tx->space->node;
    for (uint32_t i = 0; i < tx->items_count; i++) {
        const struct remo__tx_item *item = &tx->items[i];
        ret_prefetched[i] = REMO_STRUCTURE_NOWHERE;
        if (node->mapped && (wanted & UINT64_C(1) << i))
            ret_prefetched[i] =
                remo__lookup_prefetch(tx->space->structures[item->structure], item->owner, &item->key);
    }
    if (remo__lookup_yields(node))
        remo_task_yield();
}

/* How the lookups of items go on, each a set of items. */
struct lookups {
    uint64_t left;  /* not chosen yet */
    uint64_t calls; /* the owner is called */
    uint64_t alone; /* looked up alone */
};

/* Choose items whose places fit. Sets *ret_has_misses to whether some places were prefetched only now. */
static void choose_items(struct remo_tx *tx, struct remo__tx_reads *reads, const uint64_t *prefetched,
                         struct lookups *lookups, bool *ret_has_misses) {
    reads->count = 0;
    reads->bytes = 0;
    *ret_has_misses = false;
    for (uint64_t set = lookups->left; set != 0; set &= set - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(set);
        struct remo__tx_item *item = &tx->items[i];
        const struct remo_structure *structure = tx->space->structures[item->structure];
        struct remo_structure_place place;
        bool is_own = item->owner == structure->rank;
        if (is_own || !remo__lookup_start(structure, item->owner, &item->key, &place)) {
            lookups->alone |= is_own ? UINT64_C(1) << i : 0;
            lookups->calls |= is_own ? 0 : UINT64_C(1) << i;
        } else if (!remo__tx_add_read(reads, item, &place)) {
            return;
        } else if (tx->space->node->mapped && place.offset != prefetched[i]) {
            remo__region_prefetch_read(structure->share, item->owner, place.offset, place.bytes);
            *ret_has_misses = true;
        }
        lookups->left &= ~(UINT64_C(1) << i);
    }
}

/* Look up items by one read each, at the same time. In a task, other tasks run during the cache misses. */
static __attribute__((noinline)) int look_up_by_reads(struct remo_tx *tx, const uint64_t *prefetched,
                                                      struct lookups *lookups) {
    struct remo__tx_reads reads;
    char value[REMO_ITEM_BYTES_MAX];
    bool has_misses;
    choose_items(tx, &reads, prefetched, lookups, &has_misses);
    if (reads.count == 0)
        return 0;
    if (has_misses && remo__lookup_yields(tx->space->node))
        remo_task_yield();
    int rc = remo__tx_read_all(tx, &reads);
    tx->last = REMO__TX_NONE; /* the other lookups had not ended when the last one began */
    for (uint32_t i = 0; i < reads.count && rc == 0; i++) {
        struct remo__tx_read *read = &reads.reads[i];
        struct remo__tx_item *item = read->item;
        uint64_t bit = UINT64_C(1) << (item - tx->items);
        struct remo__evidence evidence = {0};
        size_t bytes = 0;
        rc = remo__lookup_end(tx->space->structures[item->structure], item->owner, &item->key, &read->place,
                              read->data, value, sizeof value, &bytes, &evidence);
        lookups->calls |= rc == REMO__CALL_OWNER ? bit : 0;
        lookups->alone |= rc == REMO__READ_AGAIN ? bit : 0;
        rc = rc > 0 ? 0 : keep_result(tx, item, rc, value, bytes, evidence);
    }
    return rc;
}

/* An owner has looked an item up. If the item is locked, it is looked up alone. */
static int end_call(struct remo_tx *tx, struct remo__tx_item *item, const struct remo__tx_found *found,
                    void *ctx) {
    struct lookups *lookups = ctx;
    if (found->rc != -EBUSY)
        return keep_result(tx, item, found->rc, found->value, found->bytes, found->evidence);
    lookups->alone |= UINT64_C(1) << (item - tx->items);
    return 0;
}

/* Look up items by calls of their owners, at the same time. */
static int look_up_by_calls(struct remo_tx *tx, struct lookups *lookups) {
    uint64_t calls = lookups->calls;
    if (calls == 0)
        return 0;
    tx->last = (calls & (calls - 1)) == 0 ? (uint32_t)__builtin_ctzll(calls) : REMO__TX_NONE;
    return remo__tx_find_by_owners(tx, calls, end_call, lookups);
}

/* Look up all items of a set. */
static int look_up_all(struct remo_tx *tx, uint64_t wanted) {
    uint64_t prefetched[REMO__TX_ITEMS_MAX];
    struct lookups lookups = {.left = wanted};
    int rc = 0;
    if (wanted == 0)
        return 0;
    if ((wanted & (wanted - 1)) == 0)
        return look_up(tx, &tx->items[__builtin_ctzll(wanted)]);
    prefetch_all(tx, wanted, prefetched);
    remo__structure_serve_now(tx->space->structures[0]);
    while (lookups.left != 0 && rc == 0)
        rc = look_up_by_reads(tx, prefetched, &lookups);
    if (rc == 0)
        rc = look_up_by_calls(tx, &lookups);
    for (uint64_t set = lookups.alone; set != 0 && rc == 0; set &= set - 1)
        rc = look_up_prefetched(tx, &tx->items[__builtin_ctzll(set)], REMO_STRUCTURE_NOWHERE);
    return rc;
}

/* ---- reads ---- */

static int return_value(const struct remo_tx *tx, const struct remo__tx_item *item, void *value, size_t cap,
                        size_t *ret_value_bytes) {
    if (!item->is_present)
        return remo__fail_static(-ENOENT, "the key is absent");
    if (ret_value_bytes)
        *ret_value_bytes = item->value_bytes;
    if (item->value_bytes > cap)
        return remo__fail(-EMSGSIZE, "the value has %u bytes, and there is room for %zu", item->value_bytes,
                          cap);
    if (item->value_bytes > 0)
        memcpy(value, tx->bytes + item->value_at, item->value_bytes);
    return 0;
}

static int check_room(const void *value, size_t cap) {
    return value || cap == 0 ? 0
                             : remo__fail(-EINVAL, "cannot read a key: `value` is NULL, and `cap` is not 0");
}

int remo_tx_read(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes,
                 void *value, size_t cap, size_t *ret_value_bytes) {
    struct remo__tx_item *item;
    int rc = check_room(value, cap);
    if (rc == 0)
        rc = look_up_once(tx, structure, key, key_bytes, &item);
    return rc != 0 ? rc : return_value(tx, item, value, cap, ret_value_bytes);
}

int remo_tx_read_for_update(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                            size_t key_bytes, void *value, size_t cap, size_t *ret_value_bytes) {
    struct remo__tx_item *item;
    int rc = check_room(value, cap);
    if (rc == 0)
        rc = find_for_update(tx, structure, key, key_bytes, &item);
    return rc != 0 ? rc : return_value(tx, item, value, cap, ret_value_bytes);
}

/* Find the items of all keys, or add them. After an error none is added. */
static int find_items(struct remo_tx *tx, const struct remo_tx_lookup *lookups, uint32_t count,
                      struct remo__tx_item **ret_items) {
    uint32_t items_before = tx->items_count;
    size_t bytes_before = tx->bytes_used;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        const struct remo_tx_lookup *lookup = &lookups[i];
        rc = check_room(lookup->value, lookup->cap);
        if (rc == 0)
            rc = find_item(tx, lookup->structure, lookup->key, lookup->key_bytes, &ret_items[i]);
    }
    if (rc != 0) {
        tx->items_count = items_before;
        tx->bytes_used = bytes_before;
    }
    return rc;
}

/* Find the items of all keys, and look up those that need it. */
static int look_up_many(struct remo_tx *tx, const struct remo_tx_lookup *lookups, uint32_t count,
                        struct remo__tx_item **ret_items) {
    uint64_t wanted = 0;
    int rc = remo__tx_check_active(tx);
    if (rc == 0 && count > REMO__TX_ITEMS_MAX)
        rc = remo__fail(-ENOBUFS, "a transaction has at most %u keys: divide it", REMO__TX_ITEMS_MAX);
    if (rc == 0)
        rc = find_items(tx, lookups, count, ret_items);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (needs_lookup(ret_items[i]))
            wanted |= UINT64_C(1) << (ret_items[i] - tx->items);
    return rc != 0 ? rc : look_up_all(tx, wanted);
}

int remo_tx_read_many(struct remo_tx *tx, struct remo_tx_lookup *lookups, uint32_t count) {
    struct remo__tx_item *items[REMO__TX_ITEMS_MAX];
    if (!lookups && count > 0)
        return remo__fail(-EINVAL, "cannot read keys: `lookups` is NULL");
    int found = look_up_many(tx, lookups, count, items), rc = found;
    for (uint32_t i = 0; i < count; i++) {
        struct remo_tx_lookup *lookup = &lookups[i];
        lookup->value_bytes = 0;
        lookup->status =
            found != 0 ? found : return_value(tx, items[i], lookup->value, lookup->cap, &lookup->value_bytes);
        if (lookup->status == -EMSGSIZE)
            rc = -EMSGSIZE;
    }
    return rc == 0 || found != 0
               ? rc
               : remo__fail(rc, "a value is longer than the room for it: see `value_bytes`");
}

/* ---- changes ---- */

static int set_value(struct remo_tx *tx, struct remo__tx_item *item, const void *value, size_t value_bytes) {
    int rc = remo__structure_check_value(tx->space->structures[item->structure], value, value_bytes);
    if (rc == 0)
        rc = keep_bytes(tx, value, value_bytes, &item->value_at);
    if (rc != 0)
        return rc;
    item->value_bytes = (uint16_t)value_bytes;
    item->is_changed = item->is_present = true;
    return 0;
}

int remo_tx_insert(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes,
                   const void *value, size_t value_bytes) {
    struct remo__tx_item *item;
    int rc = find_for_update(tx, structure, key, key_bytes, &item);
    if (rc == 0 && item->is_present)
        return remo__fail_static(-EEXIST, "the key is present");
    return rc != 0 ? rc : set_value(tx, item, value, value_bytes);
}

int remo_tx_update(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes,
                   const void *value, size_t value_bytes) {
    struct remo__tx_item *item;
    int rc = find_for_update(tx, structure, key, key_bytes, &item);
    if (rc == 0 && !item->is_present)
        return remo__fail_static(-ENOENT, "the key is absent");
    return rc != 0 ? rc : set_value(tx, item, value, value_bytes);
}

int remo_tx_put(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes,
                const void *value, size_t value_bytes) {
    struct remo__tx_item *item;
    int rc = remo__tx_check_active(tx);
    if (rc == 0)
        rc = tx->space->is_early ? find_for_update(tx, structure, key, key_bytes, &item)
                                 : find_item(tx, structure, key, key_bytes, &item);
    return rc != 0 ? rc : set_value(tx, item, value, value_bytes);
}

int remo_tx_delete(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes) {
    struct remo__tx_item *item;
    int rc = find_for_update(tx, structure, key, key_bytes, &item);
    if (rc == 0 && item->evidence.proof == REMO__PROOF_NONE)
        rc = look_up(tx, item); /* after a put: the request depends on whether the key was present */
    if (rc != 0)
        return rc;
    if (!item->is_present)
        return remo__fail_static(-ENOENT, "the key is absent");
    item->is_changed = true;
    item->is_present = false;
    return 0;
}
