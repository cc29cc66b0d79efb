#include <errno.h>

#include "base/mutant.h"
#include "kv/kv.h"

/* ---- locks ---- */

static int lock(struct remo_kv *kv, struct remo__kv_thread *mine, uint64_t hash, uint64_t timeout_ns) {
    uint32_t stripe = remo__kv_stripe_of(kv, hash);
    int rc = REMO__MUTANT(kv_lock) ? 0 : remo_lock_acquire(kv->locks, stripe, timeout_ns);
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

/* Release, and be done with `status` or, when that is good, with what the release says. */
static void unlock_and_done(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                            enum remo_fence_scope fence, int status) {
    int rc = unlock(kv, mine, remo__kv_run(op)->hash, fence);
    remo__kv_done(mine, op, status != 0 ? status : rc);
}

/* ---- update ---- */

/* The next version, over the older copy: one write. `outgoing` is in use until `ack` is done. */
static int write_value(struct remo_kv *kv, struct remo__kv_thread *mine, const struct remo_kv_op *op,
                       uint64_t hash, const struct remo__kv_place *place, struct remo_ack *ack) {
    int rc = remo__kv_buffer_need(mine, &mine->outgoing);
    if (rc != 0)
        return rc;
    uint64_t meta = remo__kv_meta_make(remo__kv_meta_version(place->sight.meta) + !REMO__MUTANT(kv_version),
                                       op->value_bytes);
    size_t bytes = remo__kv_copy_build(mine->outgoing, place->sight.head, hash, meta, op->value);
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

static void update(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_run *run = remo__kv_run(op);
    struct remo__kv_key key = remo__kv_key_of(op, run->hash);
    struct remo__kv_place place;
    int rc = remo__kv_find_locked(kv, mine, &key, &place);
    if (rc != 0) {
        unlock_and_done(kv, mine, op, REMO_FENCE_NONE, rc);
        return;
    }
    struct remo_ack ack = REMO_ACK_INIT;
    uint32_t node = remo__kv_entry_node(place.entry);
    remo__cork(mine->thread); /* the write and the release behind it go together */
    rc = write_value(kv, mine, op, run->hash, &place, &ack);
    bool same_node = REMO__MUTANT(kv_update_fence_scope)
                     || remo_lock_home(kv->locks, remo__kv_stripe_of(kv, run->hash)) == node;
    bool fenced = !REMO__MUTANT(kv_update_fence);
    enum remo_fence_scope fence = same_node && fenced ? REMO_FENCE_PAIR : REMO_FENCE_NONE;
    if (rc == 0 && !same_node && !kv->node->mapped && fenced)
        rc = remo__fence_placed(mine->thread, mine->thread, node);
    int released = unlock(kv, mine, run->hash, fence);
    remo__uncork(mine->thread);
    int written = end_write(kv, mine, &ack);
    rc = rc != 0 ? rc : written;
    remo__kv_done(mine, op, rc != 0 ? rc : released);
}

/* ---- delete ---- */

/* Nobody may hear of it before all can see it: else one reader has lost the key that a later one still
 * finds. */
static int mark_deleted(struct remo_kv *kv, struct remo__kv_thread *mine,
                        const struct remo__kv_place *place) {
    uint64_t head = remo__kv_head_with(place->sight.head, REMO__KV_DELETED);
    uint32_t node = remo__kv_entry_node(place->entry);
    int rc = remo_region_write(kv->slots, node, remo__kv_slot_at(kv, remo__kv_entry_slot(place->entry)),
                               &head, sizeof head, 0, NULL);
    if (rc != 0 || REMO__MUTANT(kv_delete_fence))
        return rc;
    return remo__fence_placed(mine->thread, mine->thread, node);
}

static void delete (struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_run *run = remo__kv_run(op);
    struct remo__kv_key key = remo__kv_key_of(op, run->hash);
    struct remo__kv_place place;
    int rc = remo__kv_find_locked(kv, mine, &key, &place);
    if (rc == 0)
        rc = mark_deleted(kv, mine, &place);
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

/* ---- insert ---- */

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

/* ---- all three ---- */

struct remo__kv_record remo__kv_record_of(const struct remo_kv *kv, const struct remo_kv_op *op) {
    const struct remo__kv_run *run = (const struct remo__kv_run *)op->internal;
    uint64_t kind = op->kind == REMO_KV_INSERT ? REMO__KV_RECORD_ADD : REMO__KV_RECORD_REMOVE;
    return (struct remo__kv_record){.hash = remo__kv_index_hash(kv, run->hash),
                                    .entry = (run->entry & ~(UINT64_C(0xffff) << 48)) | kind << 48};
}

void remo__kv_change_undo(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                          int status) {
    struct remo__kv_run *run = remo__kv_run(op);
    bool told = run->step == REMO__KV_STEP_ACK;
    if (!told)
        mine->to_send--;
    if (op->kind == REMO_KV_INSERT)
        set_own_state(kv, run->entry, REMO__KV_DELETED);
    if (op->kind == REMO_KV_INSERT && !told) {
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
    else if (op->kind == REMO_KV_UPDATE)
        update(kv, mine, op);
    else if (op->kind == REMO_KV_DELETE)
        delete (kv, mine, op);
    else
        insert(kv, mine, op);
    return 0;
}
