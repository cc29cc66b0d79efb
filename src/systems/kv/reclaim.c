/* reclaim.c - finds slots of this node that are DELETED, but whose record has not arrived here: the node
 * that deleted the key failed in between. Invariant: a slot is returned to the pool only together with the
 * removal of its index entry, so it is returned once. See "Failure" in docs/internals/kv.md. */
#include "base/clock.h"
#include "systems/kv/kv.h"

#define RECLAIM_NS_MIN REMO__NS_PER_S /* between two scans, which read all slots of this node */

/* Compute the index entry of the key in a slot of this node. False: the length is invalid (peers can write
 * it). */
static bool entry_of_slot(const struct remo_kv *kv, uint32_t slot, uint64_t head, uint64_t *ret_hash,
                          uint64_t *ret_entry) {
    char key[REMO__KV_KEY_BYTES_MAX + 1];
    uint32_t bytes = remo__kv_head_key_bytes(head);
    if (bytes > kv->shape.key_bytes_max)
        return false;
    remo__copy_from(key, kv->own + remo__kv_slot_at(kv, slot) + 8, bytes);
    *ret_hash = remo__kv_index_hash(kv, remo__kv_hash(key, bytes));
    *ret_entry = remo__kv_entry_make(*ret_hash, kv->rank, slot, remo__kv_head_generation(head));
    return true;
}

uint32_t remo__kv_reclaim(struct remo_kv *kv) {
    uint64_t now = remo__now_ns(), hash, entry;
    uint32_t count = 0;
    if (kv->reclaimed_ns != 0 && now - kv->reclaimed_ns < RECLAIM_NS_MIN)
        return 0;
    kv->reclaimed_ns = now;
    for (uint32_t slot = 0; slot < kv->pool.fresh; slot++) {
        uint64_t head = remo__load(kv->own + remo__kv_slot_at(kv, slot));
        if (remo__kv_head_state(head) != REMO__KV_DELETED || !entry_of_slot(kv, slot, head, &hash, &entry))
            continue;
        if (!remo__kv_index_remove(&kv->index, hash, entry))
            continue; /* the slot is free, or the abort of its insert is about to free it */
        remo__kv_pool_give(&kv->pool, slot);
        count++;
    }
    return count;
}
