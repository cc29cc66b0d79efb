/* change.c - insert, update, delete, put, fetch_add and compare_put, under the lock of the key's stripe.
 *
 * Invariant: the stripe is released only when no write of the change is in flight, since the write would
 * overwrite the next holder's change. The steps of a change, and its states after a failure:
 * docs/internals/kv.md. */
#include <errno.h>

#include "systems/kv/kv.h"

/* ---- locks ---- */

int remo__kv_lock(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t hash, uint64_t timeout_ns) {
    uint32_t stripe = remo__kv_stripe_of(kv, hash);
    int rc = remo__unlikely(mine->is_kept) ? remo__kv_await_kept(kv, mine, remo__deadline(timeout_ns)) : 0;
    if (rc == 0)
        rc = remo_lock_acquire(kv->locks, stripe, timeout_ns);
    /* Each step of a change leaves the map consistent: "Failure" in docs/internals/kv.md. */
    return remo__likely(rc != -EOWNERDEAD) ? rc : remo_lock_consistent(kv->locks, stripe);
}

static int unlock_stripe(struct remo_kv *kv, uint64_t hash, enum remo_fence_scope fence) {
    return remo_lock_release(kv->locks, remo__kv_stripe_of(kv, hash), fence);
}

/* Release the stripe. Return `status` or, if that is 0, the release's result. */
static int unlock_with_status(struct remo_kv *kv, uint64_t hash, int status) {
    int rc = unlock_stripe(kv, hash, REMO_FENCE_NONE);
    return status != 0 ? status : rc;
}

/* Release the stripe after a write to `node`, when the write is no longer in flight. `is_home`: the same node
 * has the lock. */
static int unlock_after_write(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t hash, uint32_t node,
                              bool is_home, struct remo_ack *ack) {
    uint32_t stripe = remo__kv_stripe_of(kv, hash);
    int rc = 0;
    if (!is_home && !kv->node->mapped) /* the ack of the write returns its loss */
        rc = remo__fence_write(mine->thread, node, ack, kv->node->op_timeout_ns);
    if (rc == 0)
        rc = unlock_stripe(kv, hash, is_home ? REMO_FENCE_PAIR : REMO_FENCE_NONE);
    else
        rc = -EAGAIN;
    return rc == -EAGAIN ? remo__kv_keep_locked(kv, mine, stripe, node) : rc;
}

/* ---- update, fetch_add, compare_put; and put of a key that is present ---- */

/* The next value of the key. */
struct next_value {
    const void *bytes;
    size_t count;
    uint64_t old, sum; /* fetch_add: the value before and after */
};

/* Compute the next value. remo__kv_find_locked has left the present value in mine->scratch.
 * Errors: -EINVAL, -ESTALE: the operation is refused. */
static inline __attribute__((always_inline)) int compute_next_value(const struct remo__kv_thread *mine,
                                                                    const struct remo_kv_op *op,
                                                                    const struct remo__kv_location *place,
                                                                    struct next_value *ret_next) {
    size_t count = remo__kv_meta_value_bytes(place->snapshot.meta);
    ret_next->bytes = op->value;
    ret_next->count = op->value_bytes;
    if (remo__likely(op->kind == REMO_KV_UPDATE || op->kind == REMO_KV_PUT))
        return 0;
    if (op->kind == REMO_KV_FETCH_ADD) {
        if (count != sizeof ret_next->old)
            return remo__fail(
                -EINVAL, "cannot add to the value: it has %zu bytes; fetch_add needs a value of %zu bytes",
                count, sizeof ret_next->old);
        memcpy(&ret_next->old, mine->scratch, sizeof ret_next->old);
        ret_next->sum = ret_next->old + op->delta;
        ret_next->bytes = &ret_next->sum;
        ret_next->count = sizeof ret_next->sum;
        return 0;
    }
    bool is_equal =
        count == op->expected_bytes && (count == 0 || memcmp(mine->scratch, op->expected, count) == 0);
    if (is_equal)
        return 0;
    return remo__fail_static(
        -ESTALE, "cannot replace the value: it is not the expected one; read it again with a get");
}

/* Write the next version over the older copy, in one write. `outgoing` is in use until `ack` is complete. */
static int write_value(struct remo_kv *kv, struct remo__kv_thread *mine, const struct next_value *next,
                       uint64_t hash, const struct remo__kv_location *place, struct remo_ack *ack) {
    int rc = remo__kv_buffer_ensure(mine, &mine->outgoing);
    if (rc != 0)
        return rc;
    uint64_t meta = remo__kv_meta_make(remo__kv_meta_version(place->snapshot.meta) + 1, next->count);
    size_t bytes = remo__kv_copy_build(mine->outgoing, place->snapshot.head, hash, meta, next->bytes);
    uint32_t copy = place->snapshot.copy ^ 1;
    uint64_t at =
        remo__kv_slot_at(kv, remo__kv_entry_slot(place->entry)) + remo__kv_copy_at(&kv->shape, copy);
    return remo_region_write(kv->slots, remo__kv_entry_node(place->entry), at, mine->outgoing, bytes, 0, ack);
}

/* Wait for the write to `node`, which is placed or lost unless the stripe is kept. The release followed the
 * write, so it is usually complete. */
static int await_write(const struct remo_kv *kv, struct remo__kv_thread *mine, uint32_t node,
                       struct remo_ack *ack) {
    if (remo__likely(kv->node->mapped))
        return 0;
    int rc = remo_ack_wait(ack, kv->node->op_timeout_ns);
    if (rc == -ETIMEDOUT) {
        remo_ack_cancel(ack);
        remo__kv_buffer_replace(mine, &mine->outgoing);
    }
    return remo__fenced_status(kv->node, node, rc);
}

/* Write the value, then release the stripe. */
static inline __attribute__((always_inline)) int
write_and_unlock(struct remo_kv *kv, struct remo__kv_thread *mine, const struct next_value *next,
                 uint64_t hash, const struct remo__kv_location *place) {
    uint32_t node = remo__kv_entry_node(place->entry);
    bool is_home = remo_lock_home(kv->locks, remo__kv_stripe_of(kv, hash)) == node;
    struct remo_ack ack = is_home ? (struct remo_ack)REMO_ACK_INIT : remo__ack_awaited(mine->thread);
    remo__cork(mine->thread); /* post the write and the release together */
    int rc = write_value(kv, mine, next, hash, place, &ack);
    /* even after an error: a failed write may be placed in part */
    int released = unlock_after_write(kv, mine, hash, node, is_home, &ack);
    remo__uncork(mine->thread);
    int written = await_write(kv, mine, node, &ack);
    rc = rc != 0 ? rc : written;
    return rc != 0 ? rc : released;
}

/* Change the value of the key at `place`. Inline, with its callees, so that the other kinds do not make an
 * update slower. */
static inline __attribute__((always_inline)) int overwrite_value(struct remo_kv *kv,
                                                                 struct remo__kv_thread *mine,
                                                                 struct remo_kv_op *op,
                                                                 const struct remo__kv_location *place) {
    struct next_value next = {0};
    uint64_t hash = remo__kv_op_state(op)->hash;
    int rc = compute_next_value(mine, op, place, &next);
    if (rc != 0)
        return unlock_with_status(kv, hash, rc);
    rc = write_and_unlock(kv, mine, &next, hash, place);
    if (rc == 0 && op->kind == REMO_KV_FETCH_ADD && op->value) {
        memcpy(op->value, &next.old, sizeof next.old);
        op->value_bytes = sizeof next.old;
    }
    return rc;
}

static int update_key(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_key key = remo__kv_key_of(op, remo__kv_op_state(op)->hash);
    struct remo__kv_location place;
    int rc = remo__kv_find_locked(kv, mine, &key, &place);
    if (!kv->node->mapped) /* before the release, after which a peer may insert an absent key */
        op = remo__kv_choose_update(mine, op);
    return rc != 0 ? unlock_with_status(kv, key.hash, rc) : overwrite_value(kv, mine, op, &place);
}

/* ---- delete ---- */

/* Mark the slot DELETED, before other nodes are notified: otherwise a reader may find the key after another
 * reader has missed it. *ret_in_flight: after an error, whether the write may be in flight.
 * Errors: those of a write. */
static int mark_deleted(struct remo_kv *kv, struct remo__kv_thread *mine,
                        const struct remo__kv_location *place, bool *ret_in_flight) {
    uint64_t head = remo__kv_head_with(place->snapshot.head, REMO__KV_DELETED);
    uint32_t node = remo__kv_entry_node(place->entry);
    struct remo_ack ack = REMO_ACK_INIT; /* without one, a fence of another task could take its error */
    int rc = remo_region_write(kv->slots, node, remo__kv_slot_at(kv, remo__kv_entry_slot(place->entry)),
                               &head, sizeof head, 0, &ack);
    if (rc != 0)
        return rc;
    rc = remo__fence_retry_peer(mine->thread, node, kv->node->op_timeout_ns, NULL);
    *ret_in_flight = rc != 0;
    if (rc != 0)
        remo_ack_cancel(&ack);
    else
        rc = remo__fenced_status(kv->node, node, remo__ack_settle(&ack, kv->node->op_timeout_ns));
    return rc;
}

static int delete_key(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    struct remo__kv_key key = remo__kv_key_of(op, state->hash);
    struct remo__kv_location place;
    bool in_flight = false;
    int rc = remo__kv_find_locked(kv, mine, &key, &place);
    if (rc == 0)
        rc = mark_deleted(kv, mine, &place, &in_flight);
    if (in_flight)
        return remo__kv_keep_locked(kv, mine, remo__kv_stripe_of(kv, state->hash),
                                    remo__kv_entry_node(place.entry));
    if (rc != 0)
        return unlock_with_status(kv, state->hash, rc);
    state->entry = place.entry;
    state->step = REMO__KV_STEP_SEND;
    state->owner->to_send_count++;
    return -EINPROGRESS;
}

/* The key is deleted, whatever the release returns. */
static int finish_delete(struct remo_kv *kv, struct remo_kv_op *op) {
    (void)unlock_stripe(kv, remo__kv_op_state(op)->hash, REMO_FENCE_NONE);
    return 0;
}

/* ---- insert; and put of a key that is absent ---- */

static uint32_t try_take_slot(struct remo_kv *kv) {
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    uint32_t slot = remo__kv_pool_take(&kv->pool);
    remo__mutex_unlock(kv->node, &kv->index_mutex);
    return slot;
}

/* Return a free slot, or REMO__KV_NO_SLOT with the sentence set. */
static uint32_t take_slot(struct remo_kv *kv) {
    uint32_t slot = try_take_slot(kv);
    if (remo__unlikely(slot == REMO__KV_NO_SLOT)) {
        remo__kv_reclaim(kv);
        slot = try_take_slot(kv);
    }
    if (slot == REMO__KV_NO_SLOT)
        remo__fail(-ENOSPC,
                   "cannot insert the key: all %u slots of %s on this node are in use; open the map with a "
                   "larger capacity",
                   kv->slots_per_node, remo_channel_name(kv->channel));
    return slot;
}

static void give_slot(struct remo_kv *kv, uint32_t slot) {
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    remo__kv_pool_give(&kv->pool, slot);
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

static int insert_key(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    struct remo__kv_key key = remo__kv_key_of(op, state->hash);
    struct remo__kv_location place;
    uint32_t slot = REMO__KV_NO_SLOT;
    int rc = remo__kv_find_locked(kv, mine, &key, &place);
    if (rc == 0 && op->kind == REMO_KV_PUT)
        return overwrite_value(kv, mine, op, &place);
    if (rc == 0)
        rc = remo__fail_static(-EEXIST,
                               "cannot insert the key: it is present; change it with an update or a put");
    else if (rc == -ENOENT)
        rc = (slot = take_slot(kv)) == REMO__KV_NO_SLOT ? -ENOSPC : 0;
    if (rc != 0)
        return unlock_with_status(kv, state->hash, rc);
    uint64_t head = remo__kv_slot_fill(&kv->shape, kv->own + remo__kv_slot_at(kv, slot), &key, op->value,
                                       op->value_bytes, mine->scratch);
    state->entry = remo__kv_entry_make(remo__kv_index_hash(kv, state->hash), kv->rank, slot,
                                       remo__kv_head_generation(head));
    state->step = REMO__KV_STEP_SEND;
    state->owner->to_send_count++;
    return -EINPROGRESS;
}

/* Set the state of a slot of this node. */
static void set_own_state(struct remo_kv *kv, uint64_t entry, enum remo__kv_state state) {
    char *slot = kv->own + remo__kv_slot_at(kv, remo__kv_entry_slot(entry));
    remo__store(slot, remo__kv_head_with(remo__load(slot), state));
}

/* Restore the generation in the entries of the slot, whose insert was not sent: a record that removes an
 * earlier entry is perhaps deferred. The generation in the head does not repeat within 2^22 such inserts, so
 * the seal of this insert's copy is not valid again. "Size of the index" in docs/internals/kv.md. */
static void restore_generation(struct remo_kv *kv, uint64_t entry) {
    char *slot = kv->own + remo__kv_slot_at(kv, remo__kv_entry_slot(entry));
    uint32_t generation = remo__kv_head_generation(remo__load(slot)) + REMO__KV_GENERATION_MASK;
    remo__store(slot, remo__kv_head_make(generation, 0, REMO__KV_DELETED));
}

static int finish_insert(struct remo_kv *kv, struct remo_kv_op *op) {
    set_own_state(kv, remo__kv_op_state(op)->entry, REMO__KV_VALID);
    /* Place it before the next holder of the lock, and callers that learn of the insert, read it. */
    remo__mapped_fence();
    return unlock_with_status(kv, remo__kv_op_state(op)->hash, 0);
}

/* ---- all changes ---- */

struct remo__kv_record remo__kv_record_of(const struct remo_kv *kv, const struct remo_kv_op *op) {
    const struct remo__kv_op_state *state = (const struct remo__kv_op_state *)op->internal;
    uint64_t kind = op->kind == REMO_KV_DELETE ? REMO__KV_RECORD_REMOVE : REMO__KV_RECORD_ADD;
    return (struct remo__kv_record){.hash = remo__kv_index_hash(kv, state->hash),
                                    .entry = (state->entry & ~(UINT64_C(0xffff) << 48)) | kind << 48};
}

/* Abort an operation whose record was sent, or not: undo an insert, defer the record of a delete, release the
 * stripe. Return the status of the operation: `status`, or 0 for a delete, which has taken effect. */
static int abort_change(struct remo_kv *kv, struct remo_kv_op *op, bool is_sent, int status) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    bool is_insert = op->kind != REMO_KV_DELETE; /* an insert, or a put of an absent key */
    if (is_insert && !is_sent) {
        restore_generation(kv, state->entry);
        give_slot(kv, remo__kv_entry_slot(state->entry));
    } else { /* the slot becomes free when this node applies the record */
        if (is_insert)
            set_own_state(kv, state->entry, REMO__KV_DELETED);
        struct remo__kv_record record = remo__kv_record_of(kv, op);
        record.entry = (record.entry & ~(UINT64_C(0xffff) << 48)) | REMO__KV_RECORD_REMOVE << 48;
        remo__kv_defer_record(kv, &record);
    }
    if (!is_insert)
        return finish_delete(kv, op);
    return unlock_with_status(kv, state->hash, status);
}

int remo__kv_change(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    if (op->kind == REMO_KV_UPDATE || op->kind > REMO_KV_PUT)
        return update_key(kv, mine, op);
    return op->kind == REMO_KV_DELETE ? delete_key(kv, mine, op) : insert_key(kv, mine, op);
}

int remo__kv_lock_and_change(struct remo_kv *kv, struct remo__kv_thread *own, struct remo_kv_op *op) {
    int rc = remo__kv_lock(kv, own, remo__kv_op_state(op)->hash, kv->node->op_timeout_ns);
    if (rc == -ETIMEDOUT && !own->is_kept)
        return remo__fail(rc, "an operation on %s timed out: the lock of its key was not free; try again",
                          remo_channel_name(kv->channel));
    return rc != 0 ? rc : remo__kv_change(kv, own, op);
}

int remo__kv_change_finish(struct remo_kv *kv, struct remo_kv_op *op) {
    const struct remo__kv_op_state *state = remo__kv_op_state(op);
    if (state->outcome != 0)
        return abort_change(kv, op, state->is_sent, state->outcome);
    return op->kind == REMO_KV_DELETE ? finish_delete(kv, op) : finish_insert(kv, op);
}
