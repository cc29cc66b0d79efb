#include <errno.h>

#include "kv/kv.h"

int remo__kv_look(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key, uint64_t entry, void *dst,
                  size_t cap, enum remo__kv_seen *ret_seen, struct remo__kv_sight *ret_sight) {
    const char *slot = remo__kv_mapped(kv, mine, entry);
    if (remo__likely(slot != NULL)) {
        struct remo_stats *stats = remo__channel_counters(kv->slots->channel, mine->thread);
        stats->reads++;
        stats->bytes += kv->shape.slot_bytes;
    } else {
        int rc = remo_region_read(kv->slots, remo__kv_entry_node(entry), remo__kv_slot_at(kv, remo__kv_entry_slot(entry)),
                                  mine->image, kv->shape.slot_bytes, NULL);
        if (rc != 0)
            return rc;
        slot = mine->image;
    }
    *ret_seen = remo__kv_slot_read(&kv->shape, slot, key, dst, cap, mine->scratch, ret_sight);
    return 0;
}

/* ---- a slot that was torn ---- */

struct again {
    struct remo_kv *kv;
    struct remo__kv_thread *mine;
    const struct remo__kv_key *key;
    uint64_t entry;
    void *dst;
    size_t cap;
    enum remo__kv_seen seen;
    struct remo__kv_sight sight, older;
};

/* A wait condition: read once more. */
static int look_again(void *ctx) {
    struct again *again = ctx;
    int rc = remo__kv_look(again->kv, again->mine, again->key, again->entry, again->dst, again->cap, &again->seen, &again->sight);
    if (rc != 0)
        return rc;
    if (again->seen == REMO__KV_SEEN_OLDER) {
        if (remo__kv_sight_confirms(&again->sight, &again->older))
            again->seen = REMO__KV_SEEN_GOOD;
        again->older = again->sight;
    }
    return again->seen == REMO__KV_SEEN_GOOD || again->seen == REMO__KV_SEEN_OTHER;
}

static int look_until_whole(struct again *again) {
    int rc = remo__wait(again->kv->node, look_again, again, remo__deadline(again->kv->node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "a slot of %s was changed faster than it could be read", remo_channel_name(again->kv->channel));
    return rc;
}

/* 1: it is the key's, the value is in `dst`; 0: it is not; or an error. */
static int look_freely(struct again *again) {
    int rc = remo__kv_look(again->kv, again->mine, again->key, again->entry, again->dst, again->cap, &again->seen, &again->sight);
    if (remo__unlikely(rc != 0))
        return rc;
    if (remo__unlikely(again->seen == REMO__KV_SEEN_TORN || again->seen == REMO__KV_SEEN_OLDER)) {
        again->older = again->seen == REMO__KV_SEEN_OLDER ? again->sight : (struct remo__kv_sight){0};
        rc = look_until_whole(again);
        if (rc != 0)
            return rc;
    }
    return again->seen == REMO__KV_SEEN_GOOD;
}

/* ---- under the lock ---- */

/* The slot is not the key's. Is the life that the entry stands for over? Generations only grow, so another one means that.
 * Then nobody needs the entry; without this, those of which a dead node did not tell us would stay for ever. */
static void drop_if_stale(const struct again *again) {
    struct remo_kv *kv = again->kv;
    uint64_t head = again->sight.head, hash = remo__kv_index_hash(kv, again->key->hash);
    bool same_life = (remo__kv_head_generation(head) & REMO__KV_GENERATION_MASK) == remo__kv_entry_generation(again->entry);
    if (same_life && remo__kv_head_state(head) != REMO__KV_DELETED)
        return;
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    if (remo__kv_index_remove(&kv->index, hash, again->entry) && remo__kv_entry_node(again->entry) == kv->rank && same_life)
        remo__kv_pool_give(&kv->pool, remo__kv_entry_slot(again->entry));
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

/* As look_freely. No writer is at work: what is torn was left so by one that died. */
static int look_locked(struct again *again) {
    int rc = remo__kv_look(again->kv, again->mine, again->key, again->entry, again->dst, again->cap, &again->seen, &again->sight);
    if (rc != 0)
        return rc;
    if (again->seen == REMO__KV_SEEN_TORN)
        return remo__fail(-EIO, "slot %u of node %u is damaged: neither of its values is whole",
                          remo__kv_entry_slot(again->entry), remo__kv_entry_node(again->entry));
    if (again->seen == REMO__KV_SEEN_OTHER)
        drop_if_stale(again);
    return again->seen != REMO__KV_SEEN_OTHER;
}

/* ---- a key ---- */

static bool cannot_reach(int rc) {
    return rc == -EHOSTDOWN || rc == -ENOTCONN;
}

int remo__kv_not_found(int lost) {
    if (lost == 0)
        return remo__fail_static(-ENOENT, "the map does not have this key");
    return remo__fail(lost, "the key may be on a node that %s; it was found nowhere else",
                      lost == -ENOTCONN ? "has closed the map" : "is gone");
}

int remo__kv_find(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key, enum remo__kv_how how,
                  void *dst, size_t cap, struct remo__kv_place *ret_place) {
    struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, key->hash));
    struct again again = {.kv = kv, .mine = mine, .key = key, .dst = dst, .cap = cap};
    int lost = 0;
    while ((again.entry = remo__kv_index_next(&kv->index, &cursor)) != 0) {
        int rc = how == REMO__KV_LOCKED ? look_locked(&again) : look_freely(&again);
        if (remo__likely(rc == 1)) {
            *ret_place = (struct remo__kv_place){.entry = again.entry, .sight = again.sight};
            return 0;
        }
        if (rc < 0 && !cannot_reach(rc))
            return rc;
        lost = rc < 0 ? rc : lost;
    }
    return remo__kv_not_found(lost);
}
