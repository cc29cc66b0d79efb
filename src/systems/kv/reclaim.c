/* reclaim.c - finds slots of this node that are DELETED, but whose record has not arrived here: the node
 * that deleted the key failed in between, or had no free message. Invariant: a slot is returned to the pool
 * only with the removal of its index entry, so it is returned once, and with a record for all indices. See
 * "Failure" in docs/internals/kv.md. */
#include "base/clock.h"
#include "systems/kv/kv.h"

#define RECLAIM_NS_MIN REMO__NS_PER_S /* between two scans that read all slots of this node */
#define RECLAIM_SLOTS 64u             /* that a scan in between reads */

/* Compute the index entry of the key in a slot of this node. False: the length is invalid (peers can write
 * it), or 0 after an insert that was not sent. The key is copied to memory of the map, because the stack of a
 * worker is small. send_mutex is held. */
static bool entry_of_slot(const struct remo_kv *kv, uint32_t slot, uint64_t head, uint64_t *ret_hash,
                          uint64_t *ret_entry) {
    char *key = kv->reclaim_key;
    uint32_t bytes = remo__kv_head_key_bytes(head);
    if (bytes == 0 || bytes > kv->shape.key_bytes_max)
        return false;
    remo__copy_from(key, kv->own + remo__kv_slot_at(kv, slot) + 8, bytes);
    *ret_hash = remo__kv_index_hash(kv, remo__kv_hash(key, bytes));
    *ret_entry = remo__kv_entry_make(*ret_hash, kv->rank, slot, remo__kv_head_generation(head));
    return true;
}

/* Free the slot if it is DELETED and has an entry. If its entry is absent, the slot is free, or the abort of
 * its insert is about to free it. send_mutex is held. */
static void reclaim_slot(struct remo_kv *kv, uint32_t slot) {
    uint64_t hash, entry, head = remo__load(kv->own + remo__kv_slot_at(kv, slot));
    if (remo__kv_head_state(head) == REMO__KV_DELETED && entry_of_slot(kv, slot, head, &hash, &entry))
        (void)remo__kv_free_stale(kv, hash, entry);
}

void remo__kv_reclaim_slot(struct remo_kv *kv, uint32_t slot) {
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    reclaim_slot(kv, slot);
    remo__mutex_unlock(kv->node, &kv->send_mutex);
}

/* Scan `count` slots, from the end of the last scan on. Returns false if there was no room for a record: the
 * next scan continues there. send_mutex is held. */
static bool reclaim_slots(struct remo_kv *kv, uint32_t count) {
    remo__kv_send_deferred(kv); /* makes room for the records of these slots */
    for (; count > 0; count--) {
        if (kv->deferred_count == REMO__KV_DEFERRED_MAX)
            return false;
        reclaim_slot(kv, kv->reclaim_slot);
        kv->reclaim_slot = (kv->reclaim_slot + 1) % kv->slots_per_node;
    }
    return true;
}

void remo__kv_reclaim(struct remo_kv *kv) {
    (void)remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER);
    uint64_t now = remo__now_ns();
    bool scans_all = kv->reclaimed_ns == 0 || now - kv->reclaimed_ns >= RECLAIM_NS_MIN;
    uint32_t count = scans_all ? kv->slots_per_node : (uint32_t)remo__min(kv->slots_per_node, RECLAIM_SLOTS);
    if (reclaim_slots(kv, count) && scans_all)
        kv->reclaimed_ns = now;
    remo__mutex_unlock(kv->node, &kv->send_mutex);
}
