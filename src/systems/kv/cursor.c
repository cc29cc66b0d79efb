/* cursor.c - iteration over all keys: it visits each place of this node's index once, and reads the slot
 * of the entry there. docs/internals/kv.md states why it returns each key that stays exactly once. */
#include <errno.h>

#include "systems/kv/kv.h"

/* One entry, and the caller's buffers for its key and value. */
struct visit {
    struct remo_kv *kv;
    struct remo__kv_thread *mine;
    uint64_t entry;
    void *key, *value;
    size_t key_cap, value_cap;
    size_t key_bytes; /* out: length of the key in the slot */
    struct remo__kv_snapshot snapshot;
    enum remo__kv_verdict verdict;
};

/* Return whether the slot is VALID in the generation that the entry names. Otherwise the entry's key was
 * deleted, and a new key in the slot has its own entry. */
static bool is_current(const struct visit *visit, uint64_t head) {
    bool is_same_generation = (remo__kv_head_generation(head) & REMO__KV_GENERATION_MASK)
                              == remo__kv_entry_generation(visit->entry);
    uint32_t key_bytes = remo__kv_head_key_bytes(head);
    return remo__kv_head_state(head) == REMO__KV_VALID && is_same_generation && key_bytes > 0
           && key_bytes <= visit->kv->shape.key_bytes_max;
}

static int refuse_key_room(const struct visit *visit) {
    return remo__fail(-EMSGSIZE, "cannot return a key of %zu bytes: the buffer has %zu; use a larger buffer",
                      visit->key_bytes, visit->key_cap);
}

/* Read the slot once. Errors: -EMSGSIZE (the key is too long); those of a read. */
static int read_once(struct visit *visit) {
    const struct remo__kv_shape *shape = &visit->kv->shape;
    const char *slot;
    int rc = remo__kv_slot_open(visit->kv, visit->mine, visit->entry, &slot);
    if (rc != 0)
        return rc;
    uint64_t head = remo__load(slot);
    visit->verdict = REMO__KV_VERDICT_OTHER;
    if (!is_current(visit, head))
        return 0;
    visit->key_bytes = remo__kv_head_key_bytes(head);
    if (visit->key_bytes > visit->key_cap)
        return refuse_key_room(visit);
    remo__copy_from(visit->key, slot + 8, visit->key_bytes);
    struct remo__kv_key key = {.bytes = visit->key,
                               .bytes_count = visit->key_bytes,
                               .hash = remo__kv_hash(visit->key, visit->key_bytes)};
    visit->verdict = remo__kv_slot_read(shape, slot, &key, visit->value, visit->value_cap,
                                        visit->mine->scratch, &visit->snapshot);
    /* On a mapped fabric the slot may be reused between the two reads; the new key has its own entry. */
    if (!is_current(visit, visit->snapshot.head))
        visit->verdict = REMO__KV_VERDICT_OTHER;
    return 0;
}

/* Wait condition: read again. From the second read on, OLDER suffices (docs/internals/kv.md). */
static int read_again(void *ctx) {
    struct visit *visit = ctx;
    int rc = read_once(visit);
    return rc != 0 ? rc : visit->verdict != REMO__KV_VERDICT_TORN;
}

/* Read the entry. Returns 1 (key and value are in the buffers), 0 (the entry is stale), or an error. */
static int visit_entry(struct visit *visit) {
    int rc = read_once(visit);
    if (rc == 0 && (visit->verdict == REMO__KV_VERDICT_TORN || visit->verdict == REMO__KV_VERDICT_OLDER))
        rc = remo__wait_attempt(visit->kv->node, read_again, visit,
                                remo__deadline(visit->kv->node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "cannot read slot %u of node %u: it changed during every read; try again",
                          remo__kv_entry_slot(visit->entry), remo__kv_entry_node(visit->entry));
    return rc != 0 ? rc : visit->verdict != REMO__KV_VERDICT_OTHER;
}

/* Find the first entry, from *place on, that is not stale, and set *place. Returns 1 or an error. */
static int find_next(struct visit *visit, uint64_t *place) {
    const struct remo__kv_index *index = &visit->kv->index;
    for (; *place < remo__kv_index_places(index); ++*place) {
        visit->entry = remo__kv_index_at(index, *place);
        int rc = visit->entry != 0 ? visit_entry(visit) : 0;
        if (rc != 0)
            return rc;
    }
    return remo__fail_static(
        -ENOENT,
        "cannot return a key: the cursor has visited all keys; begin again with REMO_KV_CURSOR_INIT");
}

static int check_arguments(const struct remo_kv *kv, const struct remo_kv_cursor *cursor,
                           const struct visit *visit, const size_t *ret_key_bytes) {
    if (!kv || !cursor || !visit->key || !ret_key_bytes)
        return remo__fail(-EINVAL, "cannot advance a cursor: kv, cursor, key or ret_key_bytes is NULL");
    if (!visit->value && visit->value_cap > 0)
        return remo__fail(-EINVAL,
                          "cannot advance a cursor: value is NULL, but value_cap is %zu; set it to 0",
                          visit->value_cap);
    return 0;
}

int remo_kv_next(struct remo_kv *kv, struct remo_kv_cursor *cursor, void *key, size_t key_cap,
                 size_t *ret_key_bytes, void *value, size_t value_cap, size_t *ret_value_bytes) {
    struct visit visit = {.kv = kv, .key = key, .key_cap = key_cap, .value = value, .value_cap = value_cap};
    int rc = check_arguments(kv, cursor, &visit, ret_key_bytes);
    if (rc != 0)
        return rc;
    visit.mine = remo__kv_thread(kv);
    if (!visit.mine)
        return remo__last_code();
    remo__kv_try_release_kept(kv, visit.mine);
    rc = find_next(&visit, &cursor->internal[0]);
    if (rc == 1 || rc == -EMSGSIZE)
        *ret_key_bytes = visit.key_bytes;
    size_t value_bytes = rc == 1 ? remo__kv_meta_value_bytes(visit.snapshot.meta) : 0;
    if (rc == 1 && ret_value_bytes)
        *ret_value_bytes = value_bytes;
    if (rc == 1 && value && value_bytes > value_cap)
        return remo__kv_refuse_capacity(value_bytes, value_cap);
    if (rc == 1 || remo__is_departure(rc))
        cursor->internal[0]++;
    return rc == 1 ? 0 : rc;
}
