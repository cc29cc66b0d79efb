/* find.c - finds the slot of a key through this node's index: for gets, and for changes under the lock.
 *
 * The functions of a get are inline: the fewer instructions it has, the more the processor overlaps the next
 * get with the cache misses of this one. Why a get is linearizable: docs/internals/kv.md. */
#include <errno.h>

#include "systems/kv/kv.h"

/* Read a slot of a node that is not mapped, into *image. */
static int fetch_slot(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t entry, char **image) {
    int rc = remo__kv_buffer_ensure(mine, image);
    if (rc == 0)
        rc = remo_region_read(kv->slots, remo__kv_entry_node(entry),
                              remo__kv_slot_at(kv, remo__kv_entry_slot(entry)), *image, kv->shape.slot_bytes,
                              NULL);
    if (rc == -ETIMEDOUT && !kv->node->mapped)
        remo__kv_buffer_replace(mine, image);
    return rc;
}

/* A worker that uses the state of its window may wait for a read into `image`. Meanwhile the thread or task
 * of the window reads into another buffer. */
static __attribute__((noinline)) int fetch_image(struct remo_kv *kv, struct remo__kv_thread *mine,
                                                 uint64_t entry, const char **ret_slot) {
    bool is_beside_worker = mine->is_used && mine->thread->holder == mine->holder;
    char **image = is_beside_worker ? &mine->second_image : &mine->image;
    int rc = fetch_slot(kv, mine, entry, image);
    *ret_slot = *image;
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
    return fetch_image(kv, mine, entry, ret_slot);
}

int remo__kv_slot_open(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t entry,
                       const char **ret_slot) {
    return open_slot(kv, mine, entry, ret_slot);
}

/* See remo__kv_probe. */
static inline __attribute__((always_inline)) int probe_slot(struct remo_kv *kv, struct remo__kv_thread *mine,
                                                            const struct remo__kv_key *key, uint64_t entry,
                                                            void *dst, size_t cap,
                                                            enum remo__kv_verdict *ret_verdict,
                                                            struct remo__kv_snapshot *ret_snapshot) {
    const char *slot;
    int rc = open_slot(kv, mine, entry, &slot);
    if (remo__unlikely(rc != 0))
        return rc;
    *ret_verdict = remo__kv_slot_read(&kv->shape, slot, key, dst, cap, mine->scratch, ret_snapshot);
    return 0;
}

int remo__kv_probe(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                   uint64_t entry, void *dst, size_t cap, enum remo__kv_verdict *ret_verdict,
                   struct remo__kv_snapshot *ret_snapshot) {
    return probe_slot(kv, mine, key, entry, dst, cap, ret_verdict, ret_snapshot);
}

/* ---- a slot that was not GOOD ---- */

struct retry {
    struct remo_kv *kv;
    struct remo__kv_thread *mine;
    const struct remo__kv_key *key;
    uint64_t entry;
    void *dst;
    size_t cap;
    enum remo__kv_verdict verdict;
    struct remo__kv_snapshot snapshot;
};

/* Wait condition: probe again. From the second probe on, OLDER suffices (docs/internals/kv.md). */
static int probe_again(void *ctx) {
    struct retry *retry = ctx;
    int rc = remo__kv_probe(retry->kv, retry->mine, retry->key, retry->entry, retry->dst, retry->cap,
                            &retry->verdict, &retry->snapshot);
    return rc != 0 ? rc : retry->verdict != REMO__KV_VERDICT_TORN;
}

/* Probe the slot until the verdict is not TORN; the first probe was not GOOD. Returns 1 (the slot has the
 * key, and the value is in `dst`), 0 (the slot does not have the key), or an error. */
static int probe_until_whole(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                             uint64_t entry, void *dst, size_t cap, struct remo__kv_snapshot *ret_snapshot) {
    struct retry retry = {.kv = kv, .mine = mine, .key = key, .entry = entry, .dst = dst, .cap = cap};
    int rc = remo__wait_attempt(kv->node, probe_again, &retry, remo__deadline(kv->node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "cannot read a slot of %s: it changed during every read; try again",
                          remo_channel_name(kv->channel));
    if (rc != 0)
        return rc;
    *ret_snapshot = retry.snapshot;
    return retry.verdict != REMO__KV_VERDICT_OTHER;
}

/* ---- under the lock ---- */

static bool has_departed_participant(const struct remo_kv *kv) {
    for (uint32_t i = 0; i < kv->receiver_count; i++)
        if (remo_channel_peer(kv->channel, kv->calls[i].node) > REMO_CHANNEL_CONNECTED)
            return true;
    return false;
}

/* The slot does not have the key. Remove the entry if its period has ended: the slot is DELETED, or it has
 * another generation, since generations only grow. Without this, an entry whose removal a failed node did not
 * send would stay forever. The key of the entry may be another one, with the same fingerprint and another
 * line. A removal with the wrong hash decrements the counts of wrong lines, and searches would miss keys that
 * are present. So other entries stay: a change of their own key, or a record, removes them. */
static void drop_if_stale(struct remo_kv *kv, const struct remo__kv_key *key, uint64_t entry,
                          const char *slot, uint64_t head) {
    bool is_same_generation =
        (remo__kv_head_generation(head) & REMO__KV_GENERATION_MASK) == remo__kv_entry_generation(entry)
        && remo__kv_head_key_bytes(head) != 0; /* 0: after an insert that was not sent */
    if (is_same_generation && remo__kv_head_state(head) != REMO__KV_DELETED)
        return;
    if (remo__kv_entry_node(entry) == kv->rank && is_same_generation) {
        remo__kv_reclaim_slot(kv, remo__kv_entry_slot(entry));
        return;
    }
    if (is_same_generation ? !remo__kv_slot_has_key(&kv->shape, slot, head, key)
                           : !has_departed_participant(kv)) /* the record of this removal is in flight */
        return;
    uint64_t index_hash = remo__kv_index_hash(kv, key->hash);
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    if (is_same_generation)
        (void)remo__kv_index_remove(&kv->index, index_hash, entry);
    else /* its key is overwritten */
        (void)remo__kv_index_discard(&kv->index, index_hash, entry);
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

/* Probe the slot under the lock; results as of probe_until_whole. There is no concurrent writer: a torn copy
 * is from a writer that failed. The value is left in mine->scratch. */
static int probe_locked(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                        uint64_t entry, struct remo__kv_snapshot *snapshot) {
    const char *slot;
    int rc = open_slot(kv, mine, entry, &slot);
    if (rc != 0)
        return rc;
    enum remo__kv_verdict verdict =
        remo__kv_slot_read(&kv->shape, slot, key, NULL, 0, mine->scratch, snapshot);
    if (verdict == REMO__KV_VERDICT_TORN)
        return remo__fail(-EIO,
                          "cannot use slot %u of node %u: both copies have a checksum mismatch; copy the "
                          "other keys into a new map",
                          remo__kv_entry_slot(entry), remo__kv_entry_node(entry));
    if (verdict == REMO__KV_VERDICT_OTHER)
        drop_if_stale(kv, key, entry, slot, snapshot->head);
    return verdict != REMO__KV_VERDICT_OTHER;
}

/* ---- a key ---- */

int remo__kv_refuse_key(const struct remo_kv *kv, size_t key_bytes) {
    if (key_bytes <= kv->shape.key_bytes_max)
        return remo__fail(-EINVAL, "cannot use the key: it is empty or NULL; give a key of 1 to %u bytes",
                          kv->shape.key_bytes_max);
    return remo__fail(
        -EMSGSIZE,
        "cannot use a key of %zu bytes: %s was opened with key_bytes_max = %u; open it with a larger one",
        key_bytes, remo_channel_name(kv->channel), kv->shape.key_bytes_max);
}

int remo__kv_refuse_capacity(size_t bytes, size_t cap) {
    return remo__fail(
        -EMSGSIZE, "cannot return a value of %zu bytes: the buffer has %zu; use a larger buffer", bytes, cap);
}

int remo__kv_fail_not_found(int lost_error) {
    if (lost_error == 0)
        return remo__fail_static(-ENOENT, "cannot find the key: it is not in the map; insert it first");
    return remo__fail(lost_error,
                      "cannot find the key: it may be on a node that %s; open a map with the other nodes, "
                      "and insert it there",
                      lost_error == -ENOTCONN ? "has closed the map" : "has failed");
}

int remo__kv_find_locked(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo__kv_key *key,
                         struct remo__kv_location *ret_place) {
    struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, key->hash));
    uint64_t entry;
    int lost_error = 0;
    while ((entry = remo__kv_index_next(&kv->index, &cursor)) != 0) {
        int rc = probe_locked(kv, mine, key, entry, &ret_place->snapshot);
        if (rc == 1) {
            ret_place->entry = entry;
            return 0;
        }
        if (rc < 0 && !remo__is_departure(rc))
            return rc;
        lost_error = rc < 0 ? rc : lost_error;
    }
    return remo__kv_fail_not_found(lost_error);
}

/* ---- get ---- */

/* The state of a get. */
struct search {
    struct remo__kv_key key;
    struct remo__kv_cursor cursor;
    uint64_t entry; /* the last one probed; 0: none */
    int rc;         /* of that probe */
    enum remo__kv_verdict verdict;
    struct remo__kv_snapshot snapshot;
};

static inline int finish_get(size_t bytes, size_t cap, size_t *ret_value_bytes) {
    if (ret_value_bytes)
        *ret_value_bytes = bytes;
    return remo__likely(bytes <= cap) ? 0 : remo__kv_refuse_capacity(bytes, cap);
}

/* Continue a get whose first entry did not yield the value. */
static __attribute__((noinline)) int continue_get(struct remo_kv *kv, struct remo__kv_thread *mine,
                                                  struct search *search, void *dst, size_t cap,
                                                  size_t *ret_value_bytes) {
    int lost_error = 0;
    for (;;) {
        if (search->entry != 0 && search->rc == 0 && search->verdict != REMO__KV_VERDICT_OTHER) {
            bool good = search->verdict == REMO__KV_VERDICT_GOOD;
            search->rc =
                good ? 1
                     : probe_until_whole(kv, mine, &search->key, search->entry, dst, cap, &search->snapshot);
            if (search->rc == 1)
                return finish_get(remo__kv_meta_value_bytes(search->snapshot.meta), cap, ret_value_bytes);
        }
        if (search->rc < 0 && !remo__is_departure(search->rc))
            return search->rc;
        lost_error = search->rc < 0 ? search->rc : lost_error;
        search->entry = remo__kv_index_next(&kv->index, &search->cursor);
        if (search->entry == 0)
            return remo__kv_fail_not_found(lost_error);
        search->rc =
            probe_slot(kv, mine, &search->key, search->entry, dst, cap, &search->verdict, &search->snapshot);
    }
}

/* A get of any key and value. */
static __attribute__((noinline)) int get_value(struct remo_kv *kv, struct remo__kv_thread *mine,
                                               const void *key, size_t key_bytes, void *value, size_t cap,
                                               size_t *ret_value_bytes) {
    if (remo__unlikely(!remo__kv_key_fits(kv, key, key_bytes)))
        return remo__kv_refuse_key(kv, key_bytes);
    if (remo__unlikely(!value && cap > 0))
        return remo__fail(-EINVAL,
                          "cannot return the value: the buffer is NULL, but its capacity is %zu bytes; give "
                          "a buffer, or a capacity of 0",
                          cap);
    struct search search = {
        .key = {.bytes = key, .bytes_count = key_bytes, .hash = remo__kv_hash(key, key_bytes)}};
    search.cursor = remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, search.key.hash));
    search.entry = remo__kv_index_next(&kv->index, &search.cursor);
    if (remo__unlikely(search.entry == 0))
        return remo__kv_fail_not_found(0);
    search.rc =
        probe_slot(kv, mine, &search.key, search.entry, value, cap, &search.verdict, &search.snapshot);
    if (remo__likely(search.rc == 0 && search.verdict == REMO__KV_VERDICT_GOOD))
        return finish_get(remo__kv_meta_value_bytes(search.snapshot.meta), cap, ret_value_bytes);
    return continue_get(kv, mine, &search, value, cap, ret_value_bytes);
}

/* A slot of a map with keys and values of at most 8 bytes, in place. */
struct small_slot {
    uint64_t head, key;
    struct {
        uint64_t seal, meta, value;
    } copy[2];
};

_Static_assert(sizeof(struct small_slot) == REMO__CACHE_LINE, "a small slot is one cache line");

/* The usual case of get_value, in two thirds of its instructions: key and value have 8 bytes, and the first
 * entry yields a GOOD slot. Returns false in all other cases; get_value then begins again. */
static inline __attribute__((always_inline)) bool get_small_value(const struct remo_kv *kv,
                                                                  const struct remo__kv_thread *mine,
                                                                  const void *key, void *ret_value) {
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
        return remo__last_code();
    remo__kv_try_release_kept(kv, mine);
    if (remo__unlikely(!kv->is_small || key_bytes != 8 || cap < 8 || !key || !value
                       || !get_small_value(kv, mine, key, value)))
        return get_value(kv, mine, key, key_bytes, value, cap, ret_value_bytes);
    remo__count(&mine->stats->reads, 1);
    remo__count(&mine->stats->bytes, sizeof(struct small_slot));
    if (ret_value_bytes)
        *ret_value_bytes = 8;
    return 0;
}
