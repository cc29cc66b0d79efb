/* kv_find.c - from a key to the slot that holds it. What a get runs through is inline: a few instructions less let the processor begin the
 * next get while this one waits for memory. */
#include <errno.h>

#include "base/mutant.h"
#include "kv/kv.h"

/* See remo__kv_look. */
static inline __attribute__((always_inline)) int look(struct remo_kv *kv, struct remo__kv_thread *mine,
                                                      const struct remo__kv_key *key, uint64_t entry, void *dst, size_t cap,
                                                      enum remo__kv_seen *ret_seen, struct remo__kv_sight *ret_sight) {
    const char *slot = remo__kv_mapped(kv, mine, entry);
    if (remo__likely(slot != NULL)) {
        mine->stats->reads++;
        mine->stats->bytes += kv->shape.slot_bytes;
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

int remo__kv_look(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key, uint64_t entry, void *dst,
                  size_t cap, enum remo__kv_seen *ret_seen, struct remo__kv_sight *ret_sight) {
    return look(kv, mine, key, entry, dst, cap, ret_seen, ret_sight);
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
        if (remo__kv_sight_confirms(&again->sight, &again->older) || REMO__MUTANT(kv_older_confirmed))
            again->seen = REMO__KV_SEEN_GOOD;
        again->older = again->sight;
    }
    return again->seen == REMO__KV_SEEN_GOOD || again->seen == REMO__KV_SEEN_OTHER;
}

/* `seen` says how the first look ended. 1: it is the key's, the value is in `dst`; 0: it is not; or an error. */
static int look_until_whole(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key, uint64_t entry,
                            void *dst, size_t cap, enum remo__kv_seen seen, struct remo__kv_sight *sight) {
    struct again again = {.kv = kv, .mine = mine, .key = key, .entry = entry, .dst = dst, .cap = cap, .seen = seen};
    if (seen == REMO__KV_SEEN_OLDER)
        again.older = *sight;
    int rc = remo__wait(kv->node, look_again, &again, remo__deadline(kv->node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "a slot of %s was changed faster than it could be read", remo_channel_name(kv->channel));
    if (rc != 0)
        return rc;
    *sight = again.sight;
    return again.seen == REMO__KV_SEEN_GOOD;
}

/* ---- under the lock ---- */

/* The slot is not the key's. Is the life that the entry stands for over? Generations only grow, so another one means that.
 * Then nobody needs the entry; without this, those of which a dead node did not tell us would stay for ever. */
static void drop_if_stale(struct remo_kv *kv, uint64_t index_hash, uint64_t entry, uint64_t head) {
    bool same_life = (remo__kv_head_generation(head) & REMO__KV_GENERATION_MASK) == remo__kv_entry_generation(entry);
    if (same_life && remo__kv_head_state(head) != REMO__KV_DELETED)
        return;
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    if (remo__kv_index_remove(&kv->index, index_hash, entry) && remo__kv_entry_node(entry) == kv->rank && same_life)
        remo__kv_pool_give(&kv->pool, remo__kv_entry_slot(entry));
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

/* As look_freely. No writer is at work: what is torn was left so by one that died. The value itself is not wanted. */
static int look_locked(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key, uint64_t entry,
                       struct remo__kv_sight *sight) {
    enum remo__kv_seen seen;
    int rc = look(kv, mine, key, entry, NULL, 0, &seen, sight);
    if (rc != 0)
        return rc;
    if (seen == REMO__KV_SEEN_TORN)
        return remo__fail(-EIO, "slot %u of node %u is damaged: neither of its values is whole", remo__kv_entry_slot(entry),
                          remo__kv_entry_node(entry));
    if (seen == REMO__KV_SEEN_OTHER)
        drop_if_stale(kv, remo__kv_index_hash(kv, key->hash), entry, sight->head);
    return seen != REMO__KV_SEEN_OTHER;
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

int remo__kv_find_locked(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                         struct remo__kv_place *ret_place) {
    struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, key->hash));
    uint64_t entry;
    int lost = 0;
    while ((entry = remo__kv_index_next(&kv->index, &cursor)) != 0) {
        int rc = look_locked(kv, mine, key, entry, &ret_place->sight);
        if (rc == 1) {
            ret_place->entry = entry;
            return 0;
        }
        if (rc < 0 && !cannot_reach(rc))
            return rc;
        lost = rc < 0 ? rc : lost;
    }
    return remo__kv_not_found(lost);
}

/* ---- get ---- */

/* Where a get has got to. */
struct sought {
    struct remo__kv_key key;
    struct remo__kv_cursor cursor;
    uint64_t entry;          /* looked at last; 0: none so far */
    int rc;                  /* of that look */
    enum remo__kv_seen seen;
    struct remo__kv_sight sight;
};

static inline int finish_get(size_t bytes, size_t cap, size_t *ret_value_bytes) {
    if (ret_value_bytes)
        *ret_value_bytes = bytes;
    return remo__likely(bytes <= cap) ? 0 : remo__kv_no_room(bytes, cap);
}

/* The first entry was not the end of the search. */
static __attribute__((noinline)) int get_slowly(struct remo_kv *kv, struct remo__kv_thread *mine, struct sought *sought, void *dst,
                                                size_t cap, size_t *ret_value_bytes) {
    int lost = 0;
    for (;;) {
        if (sought->entry != 0 && sought->rc == 0 && sought->seen != REMO__KV_SEEN_OTHER) {
            sought->rc = sought->seen == REMO__KV_SEEN_GOOD
                ? 1 : look_until_whole(kv, mine, &sought->key, sought->entry, dst, cap, sought->seen, &sought->sight);
            if (sought->rc == 1)
                return finish_get(remo__kv_meta_value_bytes(sought->sight.meta), cap, ret_value_bytes);
        }
        if (sought->rc < 0 && !cannot_reach(sought->rc))
            return sought->rc;
        lost = sought->rc < 0 ? sought->rc : lost;
        sought->entry = remo__kv_index_next(&kv->index, &sought->cursor);
        if (sought->entry == 0)
            return remo__kv_not_found(lost);
        sought->rc = look(kv, mine, &sought->key, sought->entry, dst, cap, &sought->seen, &sought->sight);
    }
}

int remo_kv_get(struct remo_kv *kv, const void *key, size_t key_bytes, void *value, size_t cap, size_t *ret_value_bytes) {
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    if (remo__unlikely(!mine))
        return -EAGAIN;
    if (remo__unlikely(!remo__kv_key_fits(kv, key, key_bytes)))
        return remo__kv_refuse_key(kv, key_bytes);
    if (remo__unlikely(!value && cap > 0))
        return remo__fail(-EINVAL, "there is nowhere to put the value");
    struct remo__kv_key sought = {.bytes = key, .bytes_count = key_bytes, .hash = remo__kv_hash(key, key_bytes)};
    struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, sought.hash));
    struct remo__kv_sight sight = {0};
    enum remo__kv_seen seen = REMO__KV_SEEN_OTHER;
    uint64_t entry = remo__kv_index_first(&kv->index, &cursor);
    int rc = 0;
    if (remo__likely(entry != 0)) {
        rc = look(kv, mine, &sought, entry, value, cap, &seen, &sight);
        if (remo__likely(rc == 0 && seen == REMO__KV_SEEN_GOOD))
            return finish_get(remo__kv_meta_value_bytes(sight.meta), cap, ret_value_bytes);
    }
    struct sought so_far = {.key = sought, .cursor = cursor, .entry = entry, .rc = rc, .seen = seen, .sight = sight};
    return get_slowly(kv, mine, &so_far, value, cap, ret_value_bytes);
}
