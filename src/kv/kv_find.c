/* kv_find.c - from a key to the slot that holds it. What a get runs through is inline: a few instructions
 * less let the processor begin the next get while this one waits for memory. */
#include <errno.h>

#include "base/mutant.h"
#include "kv/kv.h"

/* Read a slot that is not mapped. */
static __attribute__((noinline)) int fetch(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t entry) {
    int rc = remo__kv_buffer_need(mine, &mine->image);
    if (rc == 0)
        rc = remo_region_read(kv->slots, remo__kv_entry_node(entry),
                              remo__kv_slot_at(kv, remo__kv_entry_slot(entry)), mine->image,
                              kv->shape.slot_bytes, NULL);
    if (rc == -ETIMEDOUT && !kv->node->mapped)
        remo__kv_buffer_lose(mine, &mine->image);
    return rc;
}

/* See remo__kv_slot_open. */
static inline __attribute__((always_inline)) int open_slot(struct remo_kv *kv, struct remo__kv_thread *mine,
                                                           uint64_t entry, const char **ret_slot) {
    *ret_slot = remo__kv_mapped(kv, mine, entry);
    if (remo__likely(*ret_slot != NULL)) {
        remo__count(&mine->stats->reads, 1);
        remo__count(&mine->stats->bytes, kv->shape.slot_bytes);
        return 0;
    }
    int rc = fetch(kv, mine, entry);
    *ret_slot = mine->image;
    return rc;
}

int remo__kv_slot_open(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t entry,
                       const char **ret_slot) {
    return open_slot(kv, mine, entry, ret_slot);
}

/* See remo__kv_look. */
static inline __attribute__((always_inline)) int look(struct remo_kv *kv, struct remo__kv_thread *mine,
                                                      const struct remo__kv_key *key, uint64_t entry,
                                                      void *dst, size_t cap, enum remo__kv_seen *ret_seen,
                                                      struct remo__kv_sight *ret_sight) {
    const char *slot;
    int rc = open_slot(kv, mine, entry, &slot);
    if (remo__unlikely(rc != 0))
        return rc;
    *ret_seen = remo__kv_slot_read(&kv->shape, slot, key, dst, cap, mine->scratch, ret_sight);
    return 0;
}

int remo__kv_look(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                  uint64_t entry, void *dst, size_t cap, enum remo__kv_seen *ret_seen,
                  struct remo__kv_sight *ret_sight) {
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
    struct remo__kv_sight sight;
};

/* A wait condition: read once more. From the second look on the older copy is good too. */
static int look_again(void *ctx) {
    struct again *again = ctx;
    int rc = remo__kv_look(again->kv, again->mine, again->key, again->entry, again->dst, again->cap,
                           &again->seen, &again->sight);
    return rc != 0 ? rc : again->seen != REMO__KV_SEEN_TORN;
}

/* The first look was not GOOD. 1: it is the key's, the value is in `dst`; 0: it is not; or an error. */
static int look_until_whole(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                            uint64_t entry, void *dst, size_t cap, struct remo__kv_sight *ret_sight) {
    struct again again = {.kv = kv, .mine = mine, .key = key, .entry = entry, .dst = dst, .cap = cap};
    int rc = remo__wait(kv->node, look_again, &again, remo__deadline(kv->node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "a slot of %s was changed faster than it could be read",
                          remo_channel_name(kv->channel));
    if (rc != 0)
        return rc;
    *ret_sight = again.sight;
    return again.seen != REMO__KV_SEEN_OTHER;
}

/* ---- under the lock ---- */

/* The slot is not the key's. Is the life that the entry stands for over? Generations only grow, so another
 * one means that. Then nobody needs the entry; without this, those of which a dead node did not tell us would
 * stay for ever. */
static void drop_if_stale(struct remo_kv *kv, uint64_t index_hash, uint64_t entry, uint64_t head) {
    bool same_life =
        (remo__kv_head_generation(head) & REMO__KV_GENERATION_MASK) == remo__kv_entry_generation(entry);
    if (same_life && remo__kv_head_state(head) != REMO__KV_DELETED && !REMO__MUTANT(kv_drop_live))
        return;
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    if (remo__kv_index_remove(&kv->index, index_hash, entry) && remo__kv_entry_node(entry) == kv->rank
        && same_life)
        remo__kv_pool_give(&kv->pool, remo__kv_entry_slot(entry));
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

/* One look; results as above. No writer is at work: what is torn was left so by one that died. The value
 * itself is not wanted. */
static int look_locked(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                       uint64_t entry, struct remo__kv_sight *sight) {
    enum remo__kv_seen seen;
    int rc = look(kv, mine, key, entry, NULL, 0, &seen, sight);
    if (rc != 0)
        return rc;
    if (seen == REMO__KV_SEEN_TORN)
        return remo__fail(-EIO, "slot %u of node %u is damaged: neither of its values is whole",
                          remo__kv_entry_slot(entry), remo__kv_entry_node(entry));
    if (seen == REMO__KV_SEEN_OTHER)
        drop_if_stale(kv, remo__kv_index_hash(kv, key->hash), entry, sight->head);
    return seen != REMO__KV_SEEN_OTHER;
}

/* ---- a key ---- */

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
        if (rc < 0 && !remo__kv_cannot_reach(rc))
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
    uint64_t entry; /* looked at last; 0: none so far */
    int rc;         /* of that look */
    enum remo__kv_seen seen;
    struct remo__kv_sight sight;
};

static inline int finish_get(size_t bytes, size_t cap, size_t *ret_value_bytes) {
    if (ret_value_bytes)
        *ret_value_bytes = bytes;
    return remo__likely(bytes <= cap) ? 0 : remo__kv_no_room(bytes, cap);
}

/* The first entry was not the end of the search. */
static __attribute__((noinline)) int get_slowly(struct remo_kv *kv, struct remo__kv_thread *mine,
                                                struct sought *sought, void *dst, size_t cap,
                                                size_t *ret_value_bytes) {
    int lost = 0;
    for (;;) {
        if (sought->entry != 0 && sought->rc == 0 && sought->seen != REMO__KV_SEEN_OTHER) {
            bool good = sought->seen == REMO__KV_SEEN_GOOD
                        || (sought->seen == REMO__KV_SEEN_OLDER && REMO__MUTANT(kv_second_look));
            sought->rc =
                good ? 1 : look_until_whole(kv, mine, &sought->key, sought->entry, dst, cap, &sought->sight);
            if (sought->rc == 1)
                return finish_get(remo__kv_meta_value_bytes(sought->sight.meta), cap, ret_value_bytes);
        }
        if (sought->rc < 0 && !remo__kv_cannot_reach(sought->rc))
            return sought->rc;
        lost = sought->rc < 0 ? sought->rc : lost;
        sought->entry = remo__kv_index_next(&kv->index, &sought->cursor);
        if (sought->entry == 0)
            return remo__kv_not_found(lost);
        sought->rc = look(kv, mine, &sought->key, sought->entry, dst, cap, &sought->seen, &sought->sight);
    }
}

/* Any key, any value. */
static __attribute__((noinline)) int get_any(struct remo_kv *kv, struct remo__kv_thread *mine,
                                             const void *key, size_t key_bytes, void *value, size_t cap,
                                             size_t *ret_value_bytes) {
    if (remo__unlikely(!remo__kv_key_fits(kv, key, key_bytes)))
        return remo__kv_refuse_key(kv, key_bytes);
    if (remo__unlikely(!value && cap > 0))
        return remo__fail(-EINVAL, "there is nowhere to put the value");
    struct sought sought = {
        .key = {.bytes = key, .bytes_count = key_bytes, .hash = remo__kv_hash(key, key_bytes)}};
    sought.cursor = remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, sought.key.hash));
    sought.entry = remo__kv_index_next(&kv->index, &sought.cursor);
    if (remo__unlikely(sought.entry == 0))
        return remo__kv_not_found(0);
    sought.rc = look(kv, mine, &sought.key, sought.entry, value, cap, &sought.seen, &sought.sight);
    if (remo__likely(sought.rc == 0 && sought.seen == REMO__KV_SEEN_GOOD))
        return finish_get(remo__kv_meta_value_bytes(sought.sight.meta), cap, ret_value_bytes);
    return get_slowly(kv, mine, &sought, value, cap, ret_value_bytes);
}

/* The slot of a map with keys and values of at most 8 bytes, in place. */
struct small_slot {
    uint64_t head, key;
    struct {
        uint64_t seal, meta, value;
    } copy[2];
};

_Static_assert(sizeof(struct small_slot) == REMO__CACHE_LINE, "a small slot is a line");

/* A key of 8 bytes whose value has 8 bytes, which is whole, and where the search ends at once: nearly always.
 * All else (false) is for get_any, which looks anew. It does as get_any does, in two thirds of the
 * instructions. */
static inline __attribute__((always_inline)) bool
get_small(const struct remo_kv *kv, const struct remo__kv_thread *mine, const void *key, void *ret_value) {
    uint64_t word, hash = remo__kv_hash(key, 8), index_hash = remo__kv_index_hash(kv, hash);
    const struct remo__kv_line *line = &kv->index.lines[remo__kv_index_line_of(&kv->index, index_hash)];
    uint32_t matches = remo__kv_line_matches(line, remo__kv_fingerprint(index_hash));
    if (remo__unlikely(matches == 0))
        return false;
    uint64_t entry = atomic_load_explicit(
        &line->entry[(uint32_t)__builtin_ctz(matches) / REMO__KV_MATCH_BITS], memory_order_acquire);
    const struct small_slot *slot = (const struct small_slot *)remo__kv_mapped_small(kv, mine, entry);
    if (remo__unlikely(!slot))
        return false;
    memcpy(&word, key, 8);
    uint64_t head = remo__load(&slot->head);
    if (remo__unlikely((uint32_t)head != (8u << 16 | REMO__KV_VALID) || remo__load(&slot->key) != word))
        return false;
    uint64_t meta0 = remo__load(&slot->copy[0].meta), meta1 = remo__load(&slot->copy[1].meta);
    uint64_t newer = remo__kv_meta_newer_mask(meta1, meta0), meta = meta0 ^ ((meta0 ^ meta1) & newer);
    uint64_t value = remo__load(&slot->copy[newer & 1].value), seal = remo__load(&slot->copy[newer & 1].seal);
    if (remo__unlikely(remo__kv_meta_value_bytes(meta) != 8
                       || seal != remo__kv_seal(value, meta, head, hash)))
        return false;
    memcpy(ret_value, &value, 8);
    return true;
}

int remo_kv_get(struct remo_kv *kv, const void *key, size_t key_bytes, void *value, size_t cap,
                size_t *ret_value_bytes) {
    REMO__REQUIRE(kv);
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    if (remo__unlikely(!mine))
        return -EAGAIN;
    remo__kv_try_kept(kv, mine);
    if (remo__unlikely(!kv->small || key_bytes != 8 || cap < 8 || !key || !value
                       || !get_small(kv, mine, key, value)))
        return get_any(kv, mine, key, key_bytes, value, cap, ret_value_bytes);
    remo__count(&mine->stats->reads, 1);
    remo__count(&mine->stats->bytes, sizeof(struct small_slot));
    if (ret_value_bytes)
        *ret_value_bytes = 8;
    return 0;
}
