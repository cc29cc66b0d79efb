#include <errno.h>

#include "base/mutant.h"
#include "kv/kv.h"
#include "node/fence.h"

/* ---- locks ---- */

/* A write under a stripe may still be in flight, and would overwrite a change of the next owner: the stripe
 * stays locked. The thread changes nothing else before it is released, so there is one at most. */
static int keep_locked(const struct remo_kv *kv, struct remo__kv_thread *mine, uint32_t stripe,
                       uint32_t node) {
    mine->is_kept = true;
    mine->kept_stripe = stripe;
    mine->kept_node = node;
    return remo__fail_more(-ETIMEDOUT, "map %s: whether the change was applied is unknown",
                           remo_channel_name(kv->channel));
}

static int try_release(struct remo_kv *kv, struct remo__kv_thread *mine) {
    int loss; /* the change has returned that its outcome is unknown */
    if (remo__now_ns() < mine->kept_next_ns
        || remo__fence_settle_peer(mine->thread, mine->kept_node, REMO__KV_SETTLE_NS, &loss) != 0)
        return -ETIMEDOUT;
    int rc = remo_lock_release(kv->locks, mine->kept_stripe, REMO_FENCE_NONE);
    return rc == -EAGAIN ? -ETIMEDOUT : 0; /* another error is of no concern to this call */
}

int remo__kv_release_kept(struct remo_kv *kv, struct remo__kv_thread *mine) {
    if (try_release(kv, mine) != 0) {
        mine->kept_next_ns = remo__max(mine->kept_next_ns, remo__deadline(REMO__KV_KEPT_NS));
        mine->failed_tries = REMO__KV_LOCK_TRIES; /* no change begins in this poll */
        return -ETIMEDOUT;
    }
    mine->is_kept = false;
    mine->locks_held--;
    return 0;
}

static int lock(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t hash, uint64_t timeout_ns) {
    uint32_t stripe = remo__kv_stripe_of(kv, hash);
    if (remo__unlikely(mine->is_kept) && remo__kv_release_kept(kv, mine) != 0)
        return -ETIMEDOUT;
    int rc = REMO__MUTANT(kv_lock) ? 0 : remo_lock_acquire(kv->locks, stripe, timeout_ns);
    if (rc
        == -EDEADLK) /* another operation of this thread's window has the stripe: as if another thread had */
        rc = -ETIMEDOUT;
    /* What its last owner left half done is in order as it is: see kv.h. */
    if (rc == -EOWNERDEAD && !REMO__MUTANT(kv_consistent))
        rc = remo_lock_consistent(kv->locks, stripe);
    if (rc == 0)
        mine->locks_held++;
    return rc;
}

static int unlock(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t hash,
                  enum remo_fence_scope fence) {
    mine->locks_held--;
    return REMO__MUTANT(kv_lock) ? 0 : remo_lock_release(kv->locks, remo__kv_stripe_of(kv, hash), fence);
}

/* Release after a write to `node`, as soon as it is over. */
static int unlock_written(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t hash, uint32_t node) {
    uint32_t stripe = remo__kv_stripe_of(kv, hash);
    bool fenced = !REMO__MUTANT(kv_update_fence);
    bool same_node = remo_lock_home(kv->locks, stripe) == node || REMO__MUTANT(kv_update_fence_scope);
    int loss = 0, rc = 0;
    if (!same_node && REMO__MUTANT(kv_settle))
        loss = remo__fence_placed(mine->thread, mine->thread, node);
    else if (!same_node && fenced && !kv->node->mapped)
        rc = remo__fence_settle_peer(mine->thread, node, kv->node->op_timeout_ns, &loss);
    if (rc != 0)
        return keep_locked(kv, mine, stripe, node);
    rc = unlock(kv, mine, hash, same_node && fenced ? REMO_FENCE_PAIR : REMO_FENCE_NONE);
    if (rc != -EAGAIN)
        return loss != 0 ? loss : rc;
    mine->locks_held++;
    return keep_locked(kv, mine, stripe, node);
}

/* Release, and be done with `status` or, when that is good, with what the release says. */
static void unlock_and_done(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                            enum remo_fence_scope fence, int status) {
    int rc = unlock(kv, mine, remo__kv_run(op)->hash, fence);
    remo__kv_done(mine, op, status != 0 ? status : rc);
}

/* ---- update, fetch_add, compare_put; and put, of a key that is there ---- */

/* What the key's value is to be. */
struct next_value {
    const void *bytes;
    size_t count;
    uint64_t old, sum; /* fetch_add: the value before and after */
};

/* The present value is in mine->scratch: remo__kv_find_locked left it there.
 * Errors: -EINVAL, -ESTALE: the operation is refused. */
static inline __attribute__((always_inline)) int make_next(const struct remo__kv_thread *mine,
                                                           const struct remo_kv_op *op,
                                                           const struct remo__kv_place *place,
                                                           struct next_value *ret_next) {
    size_t count = remo__kv_meta_value_bytes(place->sight.meta);
    ret_next->bytes = op->value;
    ret_next->count = op->value_bytes;
    if (remo__likely(op->kind == REMO_KV_UPDATE || op->kind == REMO_KV_PUT))
        return 0;
    if (op->kind == REMO_KV_FETCH_ADD) {
        if (count != sizeof ret_next->old)
            return remo__fail(-EINVAL, "the value has %zu bytes; fetch_add needs a value of %zu bytes", count,
                              sizeof ret_next->old);
        memcpy(&ret_next->old, mine->scratch, sizeof ret_next->old);
        ret_next->sum = ret_next->old + op->delta;
        ret_next->bytes = &ret_next->sum;
        ret_next->count = sizeof ret_next->sum;
        return 0;
    }
    bool equal =
        count == op->expected_bytes && (count == 0 || memcmp(mine->scratch, op->expected, count) == 0);
    if (equal || REMO__MUTANT(kv_compare))
        return 0;
    return remo__fail_static(-ESTALE,
                             "the value of the key is not the expected one; read it again with a get");
}

/* The next version, over the older copy: one write. `outgoing` is in use until `ack` is done. */
static int write_value(struct remo_kv *kv, struct remo__kv_thread *mine, const struct next_value *next,
                       uint64_t hash, const struct remo__kv_place *place, struct remo_ack *ack) {
    int rc = remo__kv_buffer_need(mine, &mine->outgoing);
    if (rc != 0)
        return rc;
    uint64_t meta =
        remo__kv_meta_make(remo__kv_meta_version(place->sight.meta) + !REMO__MUTANT(kv_version), next->count);
    size_t bytes = remo__kv_copy_build(mine->outgoing, place->sight.head, hash, meta, next->bytes);
    uint32_t copy = place->sight.copy ^ !REMO__MUTANT(kv_other_copy);
    uint64_t at =
        remo__kv_slot_at(kv, remo__kv_entry_slot(place->entry)) + remo__kv_copy_at(&kv->shape, copy);
    return remo_region_write(kv->slots, remo__kv_entry_node(place->entry), at, mine->outgoing, bytes, 0, ack);
}

/* After the lock's release, which came behind the write: there is hardly anything to wait for. */
static int end_write(const struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_ack *ack) {
    if (remo__likely(kv->node->mapped))
        return 0;
    int rc = remo_ack_wait(ack, kv->node->op_timeout_ns);
    if (rc == -ETIMEDOUT) {
        remo_ack_cancel(ack);
        remo__kv_buffer_lose(mine, &mine->outgoing);
    }
    return rc;
}

/* Write the value, and release behind it. */
static inline __attribute__((always_inline)) int
write_and_unlock(struct remo_kv *kv, struct remo__kv_thread *mine, const struct next_value *next,
                 uint64_t hash, const struct remo__kv_place *place) {
    struct remo_ack ack = REMO_ACK_INIT;
    uint32_t node = remo__kv_entry_node(place->entry);
    remo__cork(mine->thread); /* the write and the release behind it go together */
    int rc = write_value(kv, mine, next, hash, place, &ack);
    int released = unlock_written(kv, mine, hash, node); /* a write that failed may be there in part */
    remo__uncork(mine->thread);
    int written = end_write(kv, mine, &ack);
    rc = rc != 0 ? rc : written;
    return rc != 0 ? rc : released;
}

/* Give the key its next value; its place was found. Inline, with what it calls: an update is to cost no more
 * for the other kinds. */
static inline __attribute__((always_inline)) void overwrite(struct remo_kv *kv, struct remo__kv_thread *mine,
                                                            struct remo_kv_op *op,
                                                            const struct remo__kv_place *place) {
    struct next_value next = {0};
    int rc = make_next(mine, op, place, &next);
    if (rc != 0) {
        unlock_and_done(kv, mine, op, REMO_FENCE_NONE, rc);
        return;
    }
    rc = write_and_unlock(kv, mine, &next, remo__kv_run(op)->hash, place);
    if (rc == 0 && op->kind == REMO_KV_FETCH_ADD && op->value) {
        memcpy(op->value, &next.old, sizeof next.old);
        op->value_bytes = sizeof next.old;
    }
    remo__kv_done(mine, op, rc);
}

static void update(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_key key = remo__kv_key_of(op, remo__kv_run(op)->hash);
    struct remo__kv_place place;
    int rc = remo__kv_find_locked(kv, mine, &key, &place);
    if (rc != 0)
        unlock_and_done(kv, mine, op, REMO_FENCE_NONE, rc);
    else
        overwrite(kv, mine, op, &place);
}

/* ---- delete ---- */

/* The mark is placed before the other nodes are notified: else one reader has lost the key that a later one
 * still finds. -EAGAIN: it may be in flight. */
static int mark_deleted(struct remo_kv *kv, struct remo__kv_thread *mine,
                        const struct remo__kv_place *place) {
    int loss = 0;
    uint64_t head = remo__kv_head_with(place->sight.head, REMO__KV_DELETED);
    uint32_t node = remo__kv_entry_node(place->entry);
    int rc = remo_region_write(kv->slots, node, remo__kv_slot_at(kv, remo__kv_entry_slot(place->entry)),
                               &head, sizeof head, 0, NULL);
    if (rc != 0 || REMO__MUTANT(kv_delete_fence))
        return rc;
    rc = remo__fence_settle_peer(mine->thread, node, kv->node->op_timeout_ns, &loss);
    return rc != 0 ? -EAGAIN : loss;
}

static void delete_key(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_run *run = remo__kv_run(op);
    struct remo__kv_key key = remo__kv_key_of(op, run->hash);
    struct remo__kv_place place;
    int rc = remo__kv_find_locked(kv, mine, &key, &place);
    if (rc == 0)
        rc = mark_deleted(kv, mine, &place);
    if (rc == -EAGAIN) {
        rc = keep_locked(kv, mine, remo__kv_stripe_of(kv, run->hash), remo__kv_entry_node(place.entry));
        remo__kv_done(mine, op, rc);
        return;
    }
    if (rc != 0) {
        unlock_and_done(kv, mine, op, REMO_FENCE_NONE, rc);
        return;
    }
    run->entry = place.entry;
    run->step = REMO__KV_STEP_SEND;
    mine->to_send++;
}

void remo__kv_delete_finish(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    unlock_and_done(kv, mine, op, REMO_FENCE_NONE, 0);
}

/* ---- insert; and put, of a key that is absent ---- */

/* A free slot, or REMO__KV_NO_SLOT with the sentence set. */
static uint32_t take_slot(struct remo_kv *kv) {
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    uint32_t slot = remo__kv_pool_take(&kv->pool);
    if (remo__unlikely(slot == REMO__KV_NO_SLOT) && !REMO__MUTANT(kv_reclaim) && remo__kv_reclaim(kv) > 0)
        slot = remo__kv_pool_take(&kv->pool);
    remo__mutex_unlock(kv->node, &kv->index_mutex);
    if (slot == REMO__KV_NO_SLOT)
        remo__fail(-ENOSPC, "all %u slots of %s on this node are in use; open the map with a larger capacity",
                   kv->slots_per_node, remo_channel_name(kv->channel));
    return slot;
}

static void give_slot(struct remo_kv *kv, uint32_t slot) {
    (void)remo__mutex_lock(kv->node, &kv->index_mutex, REMO_FOREVER);
    remo__kv_pool_give(&kv->pool, slot);
    remo__mutex_unlock(kv->node, &kv->index_mutex);
}

static void insert(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_run *run = remo__kv_run(op);
    struct remo__kv_key key = remo__kv_key_of(op, run->hash);
    struct remo__kv_place place;
    uint32_t slot = REMO__KV_NO_SLOT;
    int rc = remo__kv_find_locked(kv, mine, &key, &place);
    if (rc == 0 && op->kind == REMO_KV_PUT) {
        overwrite(kv, mine, op, &place);
        return;
    }
    if (rc == 0)
        rc = remo__fail_static(-EEXIST, "the map has this key already; change it with an update");
    else if (rc == -ENOENT)
        rc = (slot = take_slot(kv)) == REMO__KV_NO_SLOT ? -ENOSPC : 0;
    if (rc != 0) {
        unlock_and_done(kv, mine, op, REMO_FENCE_NONE, rc);
        return;
    }
    uint64_t head = remo__kv_slot_fill(&kv->shape, kv->own + remo__kv_slot_at(kv, slot), &key, op->value,
                                       op->value_bytes, mine->scratch);
    run->entry = remo__kv_entry_make(remo__kv_index_hash(kv, run->hash), kv->rank, slot,
                                     remo__kv_head_generation(head));
    run->step = REMO__KV_STEP_SEND;
    mine->to_send++;
}

/* Set the state of a slot of our own. */
static void set_own_state(struct remo_kv *kv, uint64_t entry, enum remo__kv_state state) {
    char *slot = kv->own + remo__kv_slot_at(kv, remo__kv_entry_slot(entry));
    remo__store(slot, remo__kv_head_with(remo__load(slot), state));
}

void remo__kv_insert_finish(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    set_own_state(kv, remo__kv_run(op)->entry, REMO__KV_VALID);
    remo__mapped_fence(); /* it is there for the next owner of the lock, and for who hears that we are done */
    unlock_and_done(kv, mine, op, REMO_FENCE_NONE, 0);
}

/* ---- all ---- */

struct remo__kv_record remo__kv_record_of(const struct remo_kv *kv, const struct remo_kv_op *op) {
    const struct remo__kv_run *run = (const struct remo__kv_run *)op->internal;
    uint64_t kind = op->kind == REMO_KV_DELETE ? REMO__KV_RECORD_REMOVE : REMO__KV_RECORD_ADD;
    return (struct remo__kv_record){.hash = remo__kv_index_hash(kv, run->hash),
                                    .entry = (run->entry & ~(UINT64_C(0xffff) << 48)) | kind << 48};
}

void remo__kv_change_undo(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                          int status) {
    struct remo__kv_run *run = remo__kv_run(op);
    bool told = run->step == REMO__KV_STEP_ACK;
    if (!told)
        mine->to_send--;
    bool inserts = op->kind != REMO_KV_DELETE; /* an insert, or a put of an absent key */
    if (inserts)
        set_own_state(kv, run->entry, REMO__KV_DELETED);
    if (inserts && !told) {
        give_slot(kv, remo__kv_entry_slot(run->entry));
    } else { /* the slot comes back when the record is sent */
        struct remo__kv_record record = remo__kv_record_of(kv, op);
        record.entry = (record.entry & ~(UINT64_C(0xffff) << 48)) | REMO__KV_RECORD_REMOVE << 48;
        remo__kv_send_later(kv, &record);
    }
    unlock_and_done(kv, mine, op, REMO_FENCE_NONE, status);
}

int remo__kv_change(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                    uint64_t timeout_ns) {
    int rc = lock(kv, mine, remo__kv_run(op)->hash, timeout_ns);
    if (rc == -ETIMEDOUT)
        return rc;
    if (rc != 0)
        remo__kv_done(mine, op, rc);
    else if (op->kind == REMO_KV_UPDATE || op->kind > REMO_KV_PUT)
        update(kv, mine, op);
    else if (op->kind == REMO_KV_DELETE)
        delete_key(kv, mine, op);
    else
        insert(kv, mine, op);
    return 0;
}
