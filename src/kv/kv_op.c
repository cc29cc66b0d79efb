#include <errno.h>

#include "base/mutant.h"
#include "kv/kv.h"

/* ---- in flight ---- */

static int refuse_value(const struct remo_kv *kv, size_t bytes) {
    return remo__fail(-EMSGSIZE,
                      "a value of %zu bytes is too long for %s, which was opened with value_bytes_max = %u",
                      bytes, remo_channel_name(kv->channel), kv->shape.value_bytes_max);
}

/* What only the rarer kinds need. */
static int check_rare(const struct remo_kv *kv, const struct remo_kv_op *op) {
    if (op->kind == REMO_KV_FETCH_ADD && op->value && op->value_bytes < sizeof(uint64_t))
        return remo__fail(-EMSGSIZE,
                          "no room for the old value of a fetch_add: give %zu bytes, or NULL and 0",
                          sizeof(uint64_t));
    if (op->kind == REMO_KV_COMPARE_PUT && op->expected_bytes > 0 && !op->expected)
        return remo__fail(-EINVAL, "the expected value is NULL; give its %zu bytes", op->expected_bytes);
    if (op->kind == REMO_KV_COMPARE_PUT && op->expected_bytes > kv->shape.value_bytes_max)
        return refuse_value(kv, op->expected_bytes);
    if ((uint32_t)op->kind > REMO_KV_COMPARE_PUT)
        return remo__fail(-EINVAL, "there is no operation of kind %u; see enum remo_kv_kind",
                          (uint32_t)op->kind);
    return 0;
}

static int check_op(const struct remo_kv *kv, const struct remo_kv_op *op) {
    if (remo__unlikely(!remo__kv_key_fits(kv, op->key, op->key_bytes)))
        return remo__kv_refuse_key(kv, op->key_bytes);
    if (remo__unlikely(op->value_bytes > 0 && !op->value))
        return remo__fail(-EINVAL, "the value is NULL");
    bool gives_value = op->kind != REMO_KV_GET && op->kind != REMO_KV_DELETE && op->kind != REMO_KV_FETCH_ADD;
    if (remo__unlikely(gives_value && op->value_bytes > kv->shape.value_bytes_max))
        return refuse_value(kv, op->value_bytes);
    return remo__likely(op->kind <= REMO_KV_PUT) ? 0 : check_rare(kv, op);
}

int remo__kv_start(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    int rc = check_op(kv, op);
    if (rc != 0) {
        op->status = rc;
        return rc;
    }
    struct remo__kv_run *run = remo__kv_run(op);
    uint64_t hash = remo__kv_hash(op->key, op->key_bytes);
    *run = (struct remo__kv_run){
        .previous = mine->last,
        .hash = hash,
        .cursor = remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, hash)),
        .step = op->kind == REMO_KV_GET ? REMO__KV_STEP_SEARCH
                : kv->node->mapped      ? REMO__KV_STEP_PEEK
                                        : REMO__KV_STEP_LOCK,
    };
    op->status = -EINPROGRESS;
    if (mine->last)
        remo__kv_run(mine->last)->next = op;
    else
        mine->first = op;
    mine->last = op;
    mine->in_flight++;
    return 0;
}

void remo__kv_done(struct remo__kv_thread *mine, struct remo_kv_op *op, int status) {
    struct remo__kv_run *run = remo__kv_run(op);
    if (run->previous)
        remo__kv_run(run->previous)->next = run->next;
    else
        mine->first = run->next;
    if (run->next)
        remo__kv_run(run->next)->previous = run->previous;
    else
        mine->last = run->previous;
    mine->in_flight--;
    op->status = status;
}

/* ---- get ---- */

/* Always inline: GCC takes a function that only prefetches for one that does nothing, and drops the call. */
static inline __attribute__((always_inline)) void ask_for_slot(const struct remo_kv *kv, const char *slot) {
    __builtin_prefetch(slot);
    if (kv->shape.slot_bytes > REMO__CACHE_LINE) {
        __builtin_prefetch(slot + kv->shape.copies_at);
        __builtin_prefetch(slot + kv->shape.copies_at + kv->shape.copy_bytes);
    }
}

/* Read the slot of `entry` on a fabric that is not mapped. When all buffers are in use, the next poll tries
 * again. */
static void start_read(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo__kv_run *run) {
    int landing = remo__kv_buffer_take(mine);
    run->step = REMO__KV_STEP_LOOK;
    if (landing < 0)
        return;
    run->landing = (uint8_t)landing;
    run->ack = (struct remo_ack)REMO_ACK_INIT;
    run->step = REMO__KV_STEP_LANDING;
    int rc = remo_region_read(kv->slots, remo__kv_entry_node(run->entry),
                              remo__kv_slot_at(kv, remo__kv_entry_slot(run->entry)),
                              remo__kv_buffer(mine, run->landing), kv->shape.slot_bytes, &run->ack);
    if (rc == 0)
        return;
    remo__kv_buffer_give(mine, run->landing);
    run->lost = (int16_t)rc;
    run->step = REMO__KV_STEP_SEARCH;
}

static void search(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_run *run = remo__kv_run(op);
    run->entry = remo__kv_index_next(&kv->index, &run->cursor);
    run->looked = false;
    if (run->entry == 0) {
        remo__kv_done(mine, op, remo__kv_not_found(run->lost));
        return;
    }
    const char *slot = remo__kv_mapped(kv, mine, run->entry);
    run->step = REMO__KV_STEP_LOOK;
    if (remo__likely(slot != NULL))
        ask_for_slot(kv, slot);
    else
        start_read(kv, mine, run);
}

static void found(struct remo__kv_thread *mine, struct remo_kv_op *op, uint64_t meta) {
    size_t room = op->value_bytes;
    int status = 0;
    op->value_bytes = remo__kv_meta_value_bytes(meta);
    if (remo__unlikely(op->value_bytes > room))
        status = remo__kv_no_room(op->value_bytes, room);
    remo__kv_done(mine, op, status);
}

/* What a look at the slot has brought. */
static void judge(struct remo__kv_thread *mine, struct remo_kv_op *op, enum remo__kv_seen seen,
                  const struct remo__kv_sight *sight) {
    struct remo__kv_run *run = remo__kv_run(op);
    if (remo__likely(seen == REMO__KV_SEEN_GOOD)
        || (seen == REMO__KV_SEEN_OLDER && (run->looked || REMO__MUTANT(kv_second_look)))) {
        found(mine, op, sight->meta);
        return;
    }
    run->step = seen == REMO__KV_SEEN_OTHER ? REMO__KV_STEP_SEARCH : REMO__KV_STEP_LOOK;
    run->looked = true;
}

static void look(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_run *run = remo__kv_run(op);
    struct remo__kv_key key = remo__kv_key_of(op, run->hash);
    struct remo__kv_sight sight;
    enum remo__kv_seen seen;
    if (remo__unlikely(!kv->node->mapped)) {
        start_read(kv, mine, run);
        return;
    }
    int rc = remo__kv_look(kv, mine, &key, run->entry, op->value, op->value_bytes, &seen, &sight);
    if (remo__likely(rc == 0)) {
        judge(mine, op, seen, &sight);
        return;
    }
    run->lost = (int16_t)rc;
    run->step = REMO__KV_STEP_SEARCH;
}

static void land(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_run *run = remo__kv_run(op);
    struct remo__kv_key key = remo__kv_key_of(op, run->hash);
    struct remo__kv_sight sight;
    uint32_t landing = run->landing; /* when the operation is done, `run` is no longer ours */
    int rc = remo_ack_test(&run->ack);
    if (rc == -EINPROGRESS)
        return;
    if (rc == 0) {
        judge(mine, op,
              remo__kv_slot_read(&kv->shape, remo__kv_buffer(mine, run->landing), &key, op->value,
                                 op->value_bytes, mine->scratch, &sight),
              &sight);
    } else {
        run->lost = (int16_t)rc;
        run->step = REMO__KV_STEP_SEARCH;
    }
    remo__kv_buffer_give(mine, landing);
}

/* ---- changes ---- */

/* Ask for the slot that the change will most likely need; what is in the index may differ once the lock is
 * held. */
static void peek(const struct remo_kv *kv, struct remo__kv_thread *mine, struct remo__kv_run *run) {
    uint64_t entry = remo__kv_index_next(&kv->index, &run->cursor);
    const char *slot = entry ? remo__kv_mapped(kv, mine, entry) : NULL;
    if (slot)
        ask_for_slot(kv, slot);
    run->step = REMO__KV_STEP_LOCK;
}

/* Who only tries leaves no place in the queue of a lock, and may never get one that others always want. So
 * the first that is busy in a poll is queued for, for a moment, if we hold no lock that others may wait for;
 * it also costs less when it is free. */
static void try_change(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    if (mine->failed_tries >= REMO__KV_LOCK_TRIES)
        return;
    bool queue = mine->locks_held == 0 && mine->failed_tries == 0;
    if (remo__kv_change(kv, mine, op, queue ? REMO__KV_QUEUE_NS : 0) != 0)
        mine->failed_tries++;
}

/* ---- poll ---- */

static void step(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_run *run = remo__kv_run(op);
    switch ((enum remo__kv_step)run->step) {
    case REMO__KV_STEP_SEARCH: search(kv, mine, op); break;
    case REMO__KV_STEP_LOOK: look(kv, mine, op); break;
    case REMO__KV_STEP_LANDING: land(kv, mine, op); break;
    case REMO__KV_STEP_PEEK: peek(kv, mine, run); break;
    case REMO__KV_STEP_LOCK: try_change(kv, mine, op); break;
    case REMO__KV_STEP_SEND: break;
    case REMO__KV_STEP_ACK:
        if (REMO__MUTANT(kv_insert_acks) || remo__kv_acked(kv, mine, run->position))
            remo__kv_insert_finish(kv, mine, op);
        break;
    }
}

static void give_up(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op, int status) {
    struct remo__kv_run *run = remo__kv_run(op);
    if (run->step == REMO__KV_STEP_SEND || run->step == REMO__KV_STEP_ACK) {
        remo__kv_change_undo(kv, mine, op, status);
        return;
    }
    if (run->step == REMO__KV_STEP_LANDING) {
        bool pending = remo_ack_test(&run->ack) == -EINPROGRESS;
        remo_ack_cancel(&run->ack);
        if (!pending) /* else the network may still write there: it is never used again */
            remo__kv_buffer_give(mine, run->landing);
    }
    remo__kv_done(mine, op, status);
}

/* Operations that are in flight for too long end. */
static void look_at_deadlines(struct remo_kv *kv, struct remo__kv_thread *mine) {
    uint64_t now = remo__now_ns();
    struct remo_kv_op *next;
    for (struct remo_kv_op *op = mine->first; op; op = next) {
        struct remo__kv_run *run = remo__kv_run(op);
        next = run->next;
        if (run->deadline_ns == 0)
            run->deadline_ns = now + kv->node->op_timeout_ns;
        else if (now >= run->deadline_ns)
            give_up(kv, mine, op,
                    remo__fail(-ETIMEDOUT, "an operation on %s was not done in time: %s",
                               remo_channel_name(kv->channel),
                               run->step == REMO__KV_STEP_ACK || run->step == REMO__KV_STEP_SEND
                                   ? "a node that lives does not acknowledge what it is told"
                                   : "the lock of its key was not free, or its slot always changing"));
    }
}

static void fail_all_unsent(struct remo_kv *kv, struct remo__kv_thread *mine, int status) {
    struct remo_kv_op *next;
    for (struct remo_kv_op *op = mine->first; op; op = next) {
        next = remo__kv_run(op)->next;
        if (remo__kv_run(op)->step == REMO__KV_STEP_SEND)
            remo__kv_change_undo(kv, mine, op, status);
    }
}

static void poll_all(struct remo_kv *kv, struct remo__kv_thread *mine) {
    struct remo_kv_op *next;
    mine->failed_tries = 0;
    mine->acks_missing = false;
    remo__kv_try_kept(kv, mine);
    remo__cork(mine->thread); /* the reads of a window go together */
    for (struct remo_kv_op *op = mine->first; op; op = next) {
        next = remo__kv_run(op)->next;
        step(kv, mine, op);
    }
    remo__uncork(mine->thread);
    if (mine->to_send > 0) {
        int rc = remo__kv_flush(kv, mine);
        if (rc != 0 && rc != -ETIMEDOUT)
            fail_all_unsent(kv, mine, rc);
    }
    if (++mine->polls % REMO__KV_DEADLINE_POLLS == 0)
        look_at_deadlines(kv, mine);
}

int remo_kv_start(struct remo_kv *kv, struct remo_kv_op *op) {
    REMO__REQUIRE(kv);
    REMO__REQUIRE(op);
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    if (remo__unlikely(!mine)) {
        op->status = -EAGAIN;
        return -EAGAIN;
    }
    return remo__kv_start(kv, mine, op);
}

int remo_kv_poll(struct remo_kv *kv) {
    REMO__REQUIRE(kv);
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    if (remo__unlikely(!mine))
        return -EAGAIN;
    poll_all(kv, mine);
    return (int)mine->in_flight;
}

/* ---- wait ---- */

struct waiting {
    struct remo_kv *kv;
    struct remo__kv_thread *mine;
    struct remo_kv_op *op;
};

/* May the waiter sleep in the queue of the operation's lock? Only while it holds none: others may wait for
 * those. */
static bool may_queue(const struct waiting *waiting) {
    return waiting->mine->locks_held == 0 && remo__kv_run(waiting->op)->step == REMO__KV_STEP_LOCK;
}

/* A wait condition. */
static int done_or_may_queue(void *ctx) {
    const struct waiting *waiting = ctx;
    if (waiting->op->status == -EINPROGRESS)
        poll_all(waiting->kv, waiting->mine);
    return waiting->op->status != -EINPROGRESS || may_queue(waiting);
}

int remo_kv_wait(struct remo_kv *kv, struct remo_kv_op *op) {
    REMO__REQUIRE(kv);
    REMO__REQUIRE(op);
    struct waiting waiting = {.kv = kv, .mine = remo__kv_thread(kv), .op = op};
    if (remo__unlikely(!waiting.mine))
        return -EAGAIN;
    if (op->status == -EINPROGRESS && remo__kv_run(op)->step == REMO__KV_STEP_PEEK)
        peek(kv, waiting.mine, remo__kv_run(op));
    while (op->status == -EINPROGRESS) {
        if (may_queue(&waiting)
            && remo__kv_change(kv, waiting.mine, op, kv->node->op_timeout_ns) == -ETIMEDOUT)
            give_up(kv, waiting.mine, op, -ETIMEDOUT);
        else if (op->status == -EINPROGRESS)
            (void)remo__wait(kv->node, done_or_may_queue, &waiting,
                             REMO_FOREVER); /* it has its own deadline */
    }
    return op->status;
}
