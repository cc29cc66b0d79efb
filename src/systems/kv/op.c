/* op.c - operations in flight: each thread or task has a list of them, its window. Its polls advance them.
 * Invariant: an operation is in the list while its status is -EINPROGRESS. The steps are those of enum
 * remo__kv_step (kv.h); docs/internals/kv.md describes the steps of changes. On a mapped fabric a poll makes
 * the changes; elsewhere workers make them (worker.c). A poll sends all records. */
#include <errno.h>

#include "systems/kv/kv.h"

/* ---- in flight ---- */

static int refuse_value(const struct remo_kv *kv, size_t bytes) {
    return remo__fail(
        -EMSGSIZE,
        "cannot use a value of %zu bytes: %s was opened with value_bytes_max = %u; open it with a larger one",
        bytes, remo_channel_name(kv->channel), kv->shape.value_bytes_max);
}

/* Check fetch_add and compare_put, and refuse unknown kinds. */
static int check_rare_kind(const struct remo_kv *kv, const struct remo_kv_op *op) {
    if (op->kind == REMO_KV_FETCH_ADD && op->value && op->value_bytes < sizeof(uint64_t))
        return remo__fail(
            -EMSGSIZE,
            "cannot return the old value: the buffer has %zu bytes; fetch_add needs %zu bytes, or NULL and 0",
            op->value_bytes, sizeof(uint64_t));
    if (op->kind == REMO_KV_COMPARE_PUT && op->expected_bytes > 0 && !op->expected)
        return remo__fail(-EINVAL,
                          "cannot compare: the expected value is NULL, but its length is %zu bytes; give the "
                          "value, or a length of 0",
                          op->expected_bytes);
    if (op->kind == REMO_KV_COMPARE_PUT && op->expected_bytes > kv->shape.value_bytes_max)
        return refuse_value(kv, op->expected_bytes);
    if ((uint32_t)op->kind > REMO_KV_COMPARE_PUT)
        return remo__fail(
            -EINVAL, "cannot start an operation of kind %u: a map has no such kind; see enum remo_kv_kind",
            (uint32_t)op->kind);
    return 0;
}

static int check_op(const struct remo_kv *kv, const struct remo_kv_op *op) {
    if (remo__unlikely(!remo__kv_key_fits(kv, op->key, op->key_bytes)))
        return remo__kv_refuse_key(kv, op->key_bytes);
    if (remo__unlikely(op->value_bytes > 0 && !op->value))
        return remo__fail(
            -EINVAL,
            "cannot use the value: it is NULL, but its length is %zu bytes; give the value, or a length of 0",
            op->value_bytes);
    bool gives_value = op->kind != REMO_KV_GET && op->kind != REMO_KV_DELETE && op->kind != REMO_KV_FETCH_ADD;
    if (remo__unlikely(gives_value && op->value_bytes > kv->shape.value_bytes_max))
        return refuse_value(kv, op->value_bytes);
    return remo__likely(op->kind <= REMO_KV_PUT) ? 0 : check_rare_kind(kv, op);
}

/* Add the operation to those in flight. Always inline: a call would make a get in a window 5 % slower. */
static inline __attribute__((always_inline)) void add_op(struct remo_kv *kv, struct remo__kv_thread *mine,
                                                         struct remo_kv_op *op) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    uint64_t hash = remo__kv_hash(op->key, op->key_bytes);
    *state = (struct remo__kv_op_state){
        .previous = mine->last,
        .owner = mine,
        .hash = hash,
        .cursor = remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, hash)),
        .step = op->kind == REMO_KV_GET ? REMO__KV_STEP_SEARCH
                : kv->node->mapped      ? REMO__KV_STEP_PREFETCH
                                        : REMO__KV_STEP_START,
    };
    op->status = -EINPROGRESS;
    if (mine->last)
        remo__kv_op_state(mine->last)->next = op;
    else
        mine->first = op;
    mine->last = op;
    mine->in_flight_count++;
}

/* ---- get ---- */

/* Always inline: GCC treats a function that only prefetches as one without effect, and removes the call. */
static inline __attribute__((always_inline)) void prefetch_slot(const struct remo_kv *kv, const char *slot) {
    __builtin_prefetch(slot);
    if (kv->shape.slot_bytes > REMO__CACHE_LINE) {
        __builtin_prefetch(slot + kv->shape.copies_at);
        __builtin_prefetch(slot + kv->shape.copies_at + kv->shape.copy_bytes);
    }
}

/* End a read early: one that has timed out, or of which some pieces could not be started. */
static void abandon_read(struct remo__kv_thread *mine, struct remo__kv_op_state *state) {
    bool is_pending = remo__ack_pending(&state->ack);
    remo_ack_cancel(&state->ack);
    mine->reads_count--;
    if (is_pending)
        remo__kv_buffer_lose(mine, state->buffer);
    else
        remo__kv_buffer_give(mine, state->buffer);
}

/* Start to read the slot of state->entry on a fabric that is not mapped. If all buffers are in use, the next
 * poll retries. */
static void start_read(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo__kv_op_state *state) {
    int buffer = remo__kv_buffer_take(mine);
    state->step = REMO__KV_STEP_PROBE;
    if (buffer < 0)
        return;
    state->buffer = (uint8_t)buffer;
    state->ack = (struct remo_ack)REMO_ACK_INIT;
    state->step = REMO__KV_STEP_READ;
    mine->reads_count++;
    int rc = remo_region_read(kv->slots, remo__kv_entry_node(state->entry),
                              remo__kv_slot_at(kv, remo__kv_entry_slot(state->entry)),
                              remo__kv_buffer(mine, state->buffer), kv->shape.slot_bytes, &state->ack);
    if (rc == 0)
        return;
    abandon_read(mine, state);
    state->lost_error = (int16_t)rc;
    state->step = REMO__KV_STEP_SEARCH;
}

static void search_index(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    state->entry = remo__kv_index_next(&kv->index, &state->cursor);
    state->was_probed = false;
    if (state->entry == 0) {
        remo__kv_complete(mine, op, remo__kv_fail_not_found(state->lost_error));
        return;
    }
    const char *slot = remo__kv_mapped(kv, mine, state->entry);
    state->step = REMO__KV_STEP_PROBE;
    if (remo__likely(slot != NULL))
        prefetch_slot(kv, slot);
    else
        start_read(kv, mine, state);
}

static void complete_get(struct remo__kv_thread *mine, struct remo_kv_op *op, uint64_t meta) {
    size_t cap = op->value_bytes;
    int status = 0;
    op->value_bytes = remo__kv_meta_value_bytes(meta);
    if (remo__unlikely(op->value_bytes > cap))
        status = remo__kv_refuse_capacity(op->value_bytes, cap);
    remo__kv_complete(mine, op, status);
}

/* Complete the get, or select its next step. */
static void apply_verdict(struct remo__kv_thread *mine, struct remo_kv_op *op, enum remo__kv_verdict verdict,
                          const struct remo__kv_snapshot *snapshot) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    if (remo__likely(verdict == REMO__KV_VERDICT_GOOD)
        || (verdict == REMO__KV_VERDICT_OLDER && state->was_probed)) {
        complete_get(mine, op, snapshot->meta);
        return;
    }
    state->step = verdict == REMO__KV_VERDICT_OTHER ? REMO__KV_STEP_SEARCH : REMO__KV_STEP_PROBE;
    state->was_probed = true;
}

static void probe_slot(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    struct remo__kv_key key = remo__kv_key_of(op, state->hash);
    struct remo__kv_snapshot snapshot;
    enum remo__kv_verdict verdict;
    if (remo__unlikely(!kv->node->mapped) && !remo__kv_mapped(kv, mine, state->entry)) {
        start_read(kv, mine, state);
        return;
    }
    int rc = remo__kv_probe(kv, mine, &key, state->entry, op->value, op->value_bytes, &verdict, &snapshot);
    if (remo__likely(rc == 0)) {
        apply_verdict(mine, op, verdict, &snapshot);
        return;
    }
    state->lost_error = (int16_t)rc;
    state->step = REMO__KV_STEP_SEARCH;
}

static void finish_read(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    struct remo__kv_key key = remo__kv_key_of(op, state->hash);
    struct remo__kv_snapshot snapshot;
    uint32_t buffer = state->buffer;    /* the caller may reuse the operation once it is complete */
    if (remo__ack_pending(&state->ack)) /* a call of remo_ack_test would poll the network */
        return;
    int rc = remo_ack_test(&state->ack);
    mine->reads_count--;
    if (rc == 0) {
        apply_verdict(mine, op,
                      remo__kv_slot_read(&kv->shape, remo__kv_buffer(mine, state->buffer), &key, op->value,
                                         op->value_bytes, mine->scratch, &snapshot),
                      &snapshot);
    } else {
        state->lost_error = (int16_t)rc;
        state->step = REMO__KV_STEP_SEARCH;
    }
    remo__kv_buffer_give(mine, buffer);
}

/* ---- changes ---- */

/* Prefetch the slot that the change will probably need. The index may change before the lock is acquired. */
static void prefetch_first(const struct remo_kv *kv, struct remo__kv_thread *mine,
                           struct remo__kv_op_state *state) {
    uint64_t entry = remo__kv_index_next(&kv->index, &state->cursor);
    const char *slot = entry ? remo__kv_mapped(kv, mine, entry) : NULL;
    if (slot)
        prefetch_slot(kv, slot);
    state->step = REMO__KV_STEP_START;
}

/* Complete a change that a poll has made. */
static void complete_here(struct remo_kv *kv, struct remo_kv_op *op) {
    struct remo__kv_thread *mine = remo__kv_op_state(op)->owner;
    mine->locked_count--;
    remo__kv_complete(mine, op, remo__kv_change_finish(kv, op));
}

/* The record of the change is sent and acknowledged (`outcome` is 0), or the change is to be aborted. */
static void settle(struct remo_kv *kv, struct remo_kv_op *op, int outcome) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    state->is_sent = state->step == REMO__KV_STEP_ACK;
    state->outcome = (int16_t)outcome;
    state->step = REMO__KV_STEP_SETTLED;
    if (state->worker)
        remo__task_resume(state->worker);
    else if (!state->is_awaited)
        complete_here(kv, op);
}

/* ---- changes on a mapped fabric ---- */

/* The lock is free: make the change. */
static void change_locked(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    int status = remo__kv_change(kv, mine, op);
    if (status == -EINPROGRESS)
        mine->locked_count++;
    else
        remo__kv_complete(mine, op, status);
}

/* On a mapped fabric a change waits only for its lock. A worker that queued for the lock could be granted it
 * between two polls, and would hold it idle until the next one. So a poll makes the changes itself, and skips
 * those whose lock is not free. Such a change can starve. So each poll waits for its first contended lock
 * (REMO__KV_QUEUE_TIMEOUT_NS), unless the window holds another lock, for which a peer may wait. A free lock
 * is acquired with this timeout too, because that costs less than a try-lock. */
static void try_change(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    if (mine->failed_tries >= REMO__KV_LOCK_TRIES_MAX)
        return;
    bool may_queue_now = mine->locked_count == 0 && mine->failed_tries == 0;
    int rc =
        remo__kv_lock(kv, mine, remo__kv_op_state(op)->hash, may_queue_now ? REMO__KV_QUEUE_TIMEOUT_NS : 0);
    if (rc == 0)
        change_locked(kv, mine, op);
    else if (rc == -ETIMEDOUT || rc == -EDEADLK) /* another operation of this window may have the stripe */
        mine->failed_tries++;
    else
        remo__kv_complete(mine, op, rc);
}

/* ---- records ---- */

/* Records to send, and their operations. Only the owner of the window removes operations at step SEND. */
struct batch {
    struct remo__kv_record records[REMO__KV_BATCH_MAX];
    struct remo_kv_op *ops[REMO__KV_BATCH_MAX];
    uint32_t count;
};

/* Collect the operations at step SEND. */
static void collect_records(const struct remo_kv *kv, const struct remo__kv_thread *mine,
                            struct batch *batch) {
    batch->count = 0;
    for (struct remo_kv_op *op = mine->first; op && batch->count < REMO__KV_BATCH_MAX;
         op = remo__kv_op_state(op)->next) {
        if (remo__kv_op_state(op)->step != REMO__KV_STEP_SEND)
            continue;
        batch->records[batch->count] = remo__kv_record_of(kv, op);
        batch->ops[batch->count++] = op;
    }
}

/* Advance an operation whose record was sent. */
static void advance_sent_op(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                            uint64_t message) {
    mine->to_send_count--;
    remo__kv_op_state(op)->step = REMO__KV_STEP_ACK;
    remo__kv_op_state(op)->message = message;
    if (op->kind == REMO_KV_DELETE)
        settle(kv, op, 0);
}

/* Send the records of this thread's operations, and advance these. The send may park a task. Meanwhile other
 * tasks run the workers of this window, and further operations reach step SEND.
 * Errors: those of remo__kv_send_records. */
static int send_records(struct remo_kv *kv, struct remo__kv_thread *mine) {
    struct batch batch;
    while (mine->to_send_count > 0) {
        uint32_t sent_count;
        uint64_t message;
        collect_records(kv, mine, &batch);
        int rc = remo__kv_send_records(kv, batch.records, batch.count, &sent_count, &message);
        if (rc != 0)
            return rc;
        for (uint32_t i = 0; i < sent_count; i++)
            advance_sent_op(kv, mine, batch.ops[i], message);
    }
    return 0;
}

/* ---- poll ---- */

static void advance_op(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    switch ((enum remo__kv_step)state->step) {
    case REMO__KV_STEP_SEARCH: search_index(kv, mine, op); break;
    case REMO__KV_STEP_PROBE: probe_slot(kv, mine, op); break;
    case REMO__KV_STEP_READ: finish_read(kv, mine, op); break;
    case REMO__KV_STEP_PREFETCH: prefetch_first(kv, mine, state); break;
    case REMO__KV_STEP_START:
        if (kv->node->mapped)
            try_change(kv, mine, op);
        else
            remo__kv_queue_change(mine, op);
        break;
    case REMO__KV_STEP_ACK:
        if (remo__kv_is_acked(kv, mine, state->message))
            settle(kv, op, 0);
        break;
    case REMO__KV_STEP_QUEUED:
    case REMO__KV_STEP_CHANGE:
    case REMO__KV_STEP_MERGED:
    case REMO__KV_STEP_SEND:
    case REMO__KV_STEP_SETTLED: break;
    }
}

static void abort_get(struct remo__kv_thread *mine, struct remo_kv_op *op, int status) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    if (state->step == REMO__KV_STEP_READ)
        abandon_read(mine, state);
    remo__kv_complete(mine, op, status);
}

static void abort_record(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op,
                         int status) {
    mine->to_send_count -= remo__kv_op_state(op)->step == REMO__KV_STEP_SEND;
    settle(kv, op, status);
}

/* Abort a change whose lock was not acquired. */
static void abort_unlocked(const struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    bool is_queued = remo__kv_op_state(op)->step == REMO__KV_STEP_QUEUED;
    if (is_queued)
        remo__kv_unqueue_change(mine, op);
    remo__kv_complete(mine, op,
                      remo__fail(-ETIMEDOUT, "an operation on %s timed out: %s; try again",
                                 remo_channel_name(kv->channel),
                                 is_queued ? "other changes of this thread have not ended"
                                           : "the lock of its key was not free"));
}

/* Abort an operation that has been in flight for op_timeout_ns. A worker limits its own waits. */
static void abort_late(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    enum remo__kv_step step = remo__kv_op_state(op)->step;
    const char *name = remo_channel_name(kv->channel);
    if (step == REMO__KV_STEP_SEND || step == REMO__KV_STEP_ACK)
        abort_record(kv, mine, op,
                     remo__fail(-ETIMEDOUT,
                                "an operation on %s timed out: a peer that is up has not acknowledged its "
                                "record; its outcome is unknown: read the key",
                                name));
    else if (op->kind == REMO_KV_GET)
        abort_get(mine, op,
                  remo__fail(-ETIMEDOUT,
                             "an operation on %s timed out: its slot could not be read; try again", name));
    else if (step == REMO__KV_STEP_START || step == REMO__KV_STEP_QUEUED)
        abort_unlocked(kv, mine, op);
}

static void check_deadlines(struct remo_kv *kv, struct remo__kv_thread *mine) {
    uint64_t now = remo__now_ns();
    struct remo_kv_op *next;
    for (struct remo_kv_op *op = mine->first; op; op = next) {
        struct remo__kv_op_state *state = remo__kv_op_state(op);
        next = state->next;
        if (state->deadline_ns == 0)
            state->deadline_ns = now + kv->node->op_timeout_ns;
        else if (now >= state->deadline_ns)
            abort_late(kv, mine, op);
    }
}

static void fail_unsent_ops(struct remo_kv *kv, struct remo__kv_thread *mine, int status) {
    struct remo_kv_op *next;
    for (struct remo_kv_op *op = mine->first; op; op = next) {
        next = remo__kv_op_state(op)->next;
        if (remo__kv_op_state(op)->step == REMO__KV_STEP_SEND)
            abort_record(kv, mine, op, status);
    }
}

static void poll_all(struct remo_kv *kv, struct remo__kv_thread *mine) {
    struct remo_kv_op *next;
    mine->failed_tries = 0;
    mine->is_ack_missing = false;
    mine->last_error = remo__last_error_of_task;
    if (remo__unlikely(mine->second_image != NULL))
        remo__kv_second_image_give(mine);
    remo__kv_try_release_kept(kv, mine);
    if (mine->reads_count > 0)
        (void)remo__slots_progress(mine->thread); /* once for all reads */
    remo__cork(mine->thread);                     /* post the operations of a window together */
    for (struct remo_kv_op *op = mine->first; op; op = next) {
        next = remo__kv_op_state(op)->next;
        advance_op(kv, mine, op);
    }
    if (!kv->node->mapped)
        remo__kv_run_workers(kv, mine);
    remo__uncork(mine->thread);
    if (mine->to_send_count > 0) {
        int rc = send_records(kv, mine);
        if (rc != 0 && rc != -ETIMEDOUT)
            fail_unsent_ops(kv, mine, rc);
        remo__workers_run(mine->thread); /* a delete is complete when its record is sent */
    }
    if (mine->is_ack_missing || mine->to_send_count > 0)
        remo__rpc_leaf_serve(kv->trackers); /* peers may wait for this node meanwhile */
    if (!kv->node->mapped)
        remo__slots_post_deferred(mine->thread); /* a task may call this again and again, and not wait */
    if (++mine->polls % REMO__KV_DEADLINE_POLLS == 0)
        check_deadlines(kv, mine);
}

int remo_kv_start(struct remo_kv *kv, struct remo_kv_op *op) {
    REMO__REQUIRE(kv);
    REMO__REQUIRE(op);
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    if (remo__unlikely(!mine)) {
        op->status = remo__last_code();
        return op->status;
    }
    int rc = check_op(kv, op);
    if (remo__likely(rc == 0))
        add_op(kv, mine, op);
    else
        op->status = rc;
    return rc;
}

/* Execute operations of peers: the completions of this thread's changes are among them. Not with few reads in
 * flight: requests would have fewer operations each. */
static void poll_arrivals(struct remo_kv *kv, struct remo__kv_thread *mine, bool has_progress) {
    bool has_workers = remo__workers_count(mine->thread) >= REMO__KV_POLLED_WORKERS;
    if (!has_workers && mine->reads_count < REMO__KV_POLLED_READS)
        return;
    if (has_workers)
        remo__poll_arrivals(kv->node,
                            has_progress ? REMO__KV_ARRIVALS_BUSY_WORKERS_NS : REMO__KV_ARRIVALS_WORKERS_NS);
    else
        remo__poll_arrivals(kv->node, has_progress ? REMO__KV_ARRIVALS_BUSY_NS : REMO__KV_ARRIVALS_READS_NS);
}

int remo_kv_poll(struct remo_kv *kv) {
    REMO__REQUIRE(kv);
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    if (remo__unlikely(!mine))
        return remo__last_code();
    uint32_t before_count = mine->in_flight_count;
    poll_all(kv, mine);
    if (!kv->node->mapped)
        poll_arrivals(kv, mine, mine->in_flight_count != before_count);
    return (int)mine->in_flight_count;
}

/* ---- wait ---- */

struct wait {
    struct remo_kv *kv;
    struct remo__kv_thread *mine;
    struct remo_kv_op *op;
};

/* Return whether the thread may sleep in the wait queue of the operation's lock: the operation has no worker.
 * A thread that holds a lock must not, because a peer may wait for that lock. */
static bool may_queue(const struct wait *wait) {
    return wait->kv->node->mapped && wait->op->status == -EINPROGRESS && wait->mine->locked_count == 0
           && remo__kv_op_state(wait->op)->step == REMO__KV_STEP_START;
}

/* An attempt: the operation is complete, or the thread may queue for its lock. */
static int done_or_may_queue(void *ctx) {
    const struct wait *wait = ctx;
    poll_all(wait->kv, wait->mine);
    return wait->op->status != -EINPROGRESS || may_queue(wait);
}

/* Queue for the lock of the operation, and make its change. */
static void queue_for_lock(const struct wait *wait) {
    int rc =
        remo__kv_lock(wait->kv, wait->mine, remo__kv_op_state(wait->op)->hash, wait->kv->node->op_timeout_ns);
    if (rc == 0)
        change_locked(wait->kv, wait->mine, wait->op);
    else if (rc == -ETIMEDOUT)
        abort_late(wait->kv, wait->mine, wait->op);
    else
        remo__kv_complete(wait->mine, wait->op, rc);
}

int remo_kv_wait(struct remo_kv *kv, struct remo_kv_op *op) {
    REMO__REQUIRE(kv);
    REMO__REQUIRE(op);
    struct wait wait = {.kv = kv, .mine = remo__kv_thread(kv), .op = op};
    if (remo__unlikely(!wait.mine))
        return remo__last_code();
    if (remo__unlikely(op->status == -EINPROGRESS && remo__kv_op_state(op)->owner != wait.mine))
        return remo__fail_static(-EPERM,
                                 "cannot wait for the operation: another thread or task has started it");
    while (op->status == -EINPROGRESS) {
        (void)remo__wait_attempt(kv->node, done_or_may_queue, &wait, REMO_FOREVER); /* op has its deadlines */
        if (may_queue(&wait))
            queue_for_lock(&wait);
    }
    return op->status;
}

/* An attempt: the caller can complete its change. */
static int is_settled(void *ctx) {
    const struct wait *wait = ctx;
    poll_all(wait->kv, wait->mine);
    return remo__kv_op_state(wait->op)->step == REMO__KV_STEP_SETTLED;
}

/* Make the change in the caller itself: nothing else is in flight. */
static int change_here(struct remo_kv *kv, struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct wait wait = {.kv = kv, .mine = mine, .op = op};
    add_op(kv, mine, op);
    if (kv->node->mapped)
        prefetch_first(kv, mine, remo__kv_op_state(op));
    remo__kv_op_state(op)->step = REMO__KV_STEP_CHANGE;
    remo__kv_op_state(op)->is_awaited = true;
    int status = remo__kv_lock_and_change(kv, mine, op);
    if (status == -EINPROGRESS) {
        (void)remo__wait_attempt(kv->node, is_settled, &wait, REMO_FOREVER); /* the record has a deadline */
        status = remo__kv_change_finish(kv, op);
    }
    remo__kv_complete(mine, op, status);
    return status;
}

/* While operations of the window are in flight, the caller must drive them: it may need a lock that one of
 * them holds. */
int remo__kv_run(struct remo_kv *kv, struct remo_kv_op *op) {
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    if (remo__unlikely(!mine))
        return remo__last_code();
    int rc = check_op(kv, op);
    if (remo__unlikely(rc != 0))
        return rc;
    if (remo__likely(mine->in_flight_count == 0))
        return change_here(kv, mine, op);
    add_op(kv, mine, op);
    return remo_kv_wait(kv, op);
}
