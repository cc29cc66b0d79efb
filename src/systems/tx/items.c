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
    if (bytes > REMO_TX_BYTES_MAX - tx->bytes_used)
        return remo__fail(-EMSGSIZE,
                          "the keys and values of a transaction have more than REMO_TX_BYTES_MAX = %u bytes: "
                          "divide it",
                          REMO_TX_BYTES_MAX);
    *ret_at = (uint16_t)tx->bytes_used;
    if (bytes > 0)
        memcpy(tx->bytes + tx->bytes_used, data, bytes);
    tx->bytes_used += bytes;
    return 0;
}

static int add_item(struct remo_tx *tx, uint32_t structure, uint32_t owner,
                    const struct remo_structure_key *key, struct remo__tx_item **ret_item) {
    uint16_t key_at = 0;
    if (tx->items_count == REMO_TX_ITEMS_MAX)
        return remo__fail(-ENOBUFS, "a transaction has at most %u keys: divide it", REMO_TX_ITEMS_MAX);
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

/* Look an item up, for the first time, and keep its value. */
static int look_up(struct remo_tx *tx, struct remo__tx_item *item) {
    struct remo_structure *structure = tx->space->structures[item->structure];
    char value[REMO_ITEM_BYTES_MAX];
    size_t bytes = 0;
    enum remo_lookup_way way;
    struct remo__evidence evidence = {0};
    int rc = remo__structure_find(structure, item->owner, &item->key, value, sizeof value, &bytes, &way,
                                  &evidence);
    if (rc != 0 && rc != -ENOENT)
        return rc;
    if (evidence.proof == REMO__PROOF_NONE)
        return remo__fail(-EPROTO,
                          "the owner of a key of %s sent an answer without evidence: its memory is "
                          "damaged; start it again",
                          remo_channel_name(structure->share->channel));
    bool is_present = rc == 0;
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
    tx->last = (uint32_t)(item - tx->items);
    return 0;
}

/* Find the item of a key, and look it up unless the transaction has read or changed it. */
static int look_up_once(struct remo_tx *tx, struct remo_structure *structure, const void *key,
                        size_t key_bytes, struct remo__tx_item **ret_item) {
    int rc = find_item(tx, structure, key, key_bytes, ret_item);
    if (rc == 0 && (*ret_item)->evidence.proof == REMO__PROOF_NONE && !(*ret_item)->is_changed)
        rc = look_up(tx, *ret_item);
    return rc;
}

int remo_tx_read(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes,
                 void *value, size_t cap, size_t *ret_value_bytes) {
    struct remo__tx_item *item;
    if (!value && cap > 0)
        return remo__fail(-EINVAL, "cannot read a key: `value` is NULL, and `cap` is not 0");
    int rc = look_up_once(tx, structure, key, key_bytes, &item);
    if (rc != 0)
        return rc;
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
    int rc = look_up_once(tx, structure, key, key_bytes, &item);
    if (rc == 0 && item->is_present)
        return remo__fail_static(-EEXIST, "the key is present");
    return rc != 0 ? rc : set_value(tx, item, value, value_bytes);
}

int remo_tx_update(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes,
                   const void *value, size_t value_bytes) {
    struct remo__tx_item *item;
    int rc = look_up_once(tx, structure, key, key_bytes, &item);
    if (rc == 0 && !item->is_present)
        return remo__fail_static(-ENOENT, "the key is absent");
    return rc != 0 ? rc : set_value(tx, item, value, value_bytes);
}

int remo_tx_put(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes,
                const void *value, size_t value_bytes) {
    struct remo__tx_item *item;
    int rc = find_item(tx, structure, key, key_bytes, &item);
    return rc != 0 ? rc : set_value(tx, item, value, value_bytes);
}

int remo_tx_delete(struct remo_tx *tx, struct remo_structure *structure, const void *key, size_t key_bytes) {
    struct remo__tx_item *item;
    int rc = look_up_once(tx, structure, key, key_bytes, &item);
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
