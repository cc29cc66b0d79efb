/* op.c - operations that use a fabric endpoint: slots, bounce blocks, completions.
 *
 * A slot is one operation in flight. It owns the memory that the network may access, unless the caller's
 * buffer is in the arena. So a caller may cancel an ack at any time. The lock serializes access to the slots
 * by their own thread, threads that execute a global fence, and the service thread. */
#include "node/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/arena.h"
#include "node/slots.h"
#include "node/wait.h"

int remo__slots_open(struct remo_node *node, struct remo__slots **ret_slots) {
    struct remo__slots *slots = calloc(1, sizeof *slots + node->size * sizeof slots->peers[0]);
    if (!slots)
        return remo__fail(-ENOMEM, "no memory for the operations of a thread");
    slots->node = node;
    slots->depth = (uint32_t)remo__min(REMO__SLOTS_MAX, node->fabric->caps.depth);
    int rc = node->fabric->ops->endpoint_open(node->fabric, &slots->endpoint);
    if (rc != 0)
        goto fail_free;
    if (!node->mapped) {
        rc = remo__arena_alloc(node->arena, (uint64_t)slots->depth * REMO__BOUNCE_BYTES,
                               &slots->bounce_offset);
        if (rc != 0)
            goto fail_endpoint;
    }
    for (uint32_t i = 0; i < slots->depth; i++) {
        slots->slot[i].bounce = node->mapped ? (char *)&slots->slot[i].word
                                             : remo__arena_base(node->arena) + slots->bounce_offset
                                                   + (uint64_t)i * REMO__BOUNCE_BYTES;
        slots->free[slots->free_count++] = (uint16_t)(slots->depth - 1 - i);
    }
    *ret_slots = slots;
    return 0;
fail_endpoint:
    node->fabric->ops->endpoint_close(slots->endpoint);
fail_free:
    free(slots);
    return rc;
}

void remo__slots_close(struct remo__slots *slots) {
    struct remo_node *node = slots->node;
    node->fabric->ops->endpoint_close(slots->endpoint);
    if (!node->mapped)
        remo__arena_free(node->arena, slots->bounce_offset, (uint64_t)slots->depth * REMO__BOUNCE_BYTES);
    free(slots);
}

static void finish_ack(struct remo_ack *ack, int status) {
    if (status != 0) {
        int32_t none = 0;
        __atomic_compare_exchange_n(&ack->status, &none, status, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
    __atomic_fetch_sub(&ack->pending, 1, __ATOMIC_RELEASE);
}

/* Record the error of a write without an ack, unless an earlier error is recorded. */
static void note_error(struct remo__slots_peer *peer, int status) {
    int none = 0;
    atomic_compare_exchange_strong(&peer->global_error, &none, status);
    none = 0;
    atomic_compare_exchange_strong(&peer->thread_error, &none, status);
}

void remo__slots_inherit(struct remo__thread *thread) {
    for (uint32_t peer = 0; peer < thread->node->size; peer++)
        atomic_store(&thread->slots->peers[peer].thread_error, 0);
}

/* Complete an operation, and free its slot. The lock is held. */
static void finish(struct remo__slots *slots, uint32_t index, int status) {
    struct remo__slot *slot = &slots->slot[index];
    struct remo__slots_peer *peer = &slots->peers[slot->peer];
    if (slot->kind == REMO__OP_WRITE) {
        remo__slots_set(&peer->writes, peer->writes - 1);
        if (status != 0 && !slot->ack)
            note_error(peer, status);
    } else {
        if (status == 0 && slot->dst)
            memcpy(slot->dst, slot->bounce, slot->bytes);
        remo__slots_set(&peer->others, peer->others - 1);
    }
    if (slot->ack)
        finish_ack(slot->ack, status);
    slot->ack = NULL;
    slot->busy = false;
    remo__slots_set(&slots->in_flight, slots->in_flight - 1);
    remo__slots_set(&slots->completed, slots->completed + 1);
    slots->free[slots->free_count++] = (uint16_t)index;
}

static void keep_why(struct remo__slots *slots, const struct remo__completion *done) {
    slots->why_status = done->why ? done->status : 0;
    if (done->why)
        snprintf(slots->why, sizeof slots->why, "%s", done->why);
}

int remo__slots_fail(struct remo__slots *slots, int status) {
    char why[REMO__SENTENCE_MAX] = "";
    (void)remo__mutex_lock(slots->node, &slots->lock, REMO_FOREVER);
    if (slots->why_status == status)
        memcpy(why, slots->why, sizeof why);
    remo__mutex_unlock(slots->node, &slots->lock);
    return why[0] ? remo__fail(status, "%s", why)
                  : remo__fail_static(
                      status,
                      "an operation of this ack failed: its peer has failed or left, or has rejected it");
}

/* Poll the fabric endpoint until it has no more completions, and finish the operations. The lock is held. */
static void collect(struct remo__slots *slots) {
    struct remo__completion done[16];
    int count;
    atomic_fetch_add_explicit(&slots->polls, 1, memory_order_relaxed);
    do {
        count = slots->node->fabric->ops->poll(slots->endpoint, done, REMO__ARRAY_COUNT(done));
        for (int i = 0; i < count; i++) {
            if (remo__unlikely(done[i].status != 0))
                keep_why(slots, &done[i]);
            finish(slots, (uint32_t)done[i].token, done[i].status);
        }
    } while (count == (int)REMO__ARRAY_COUNT(done));
}

/* Sort deferred operations by peer, because adjacent operations to one peer share a post. Operations to the
 * same peer keep their order. */
static void deferred_sort(struct remo__slots *slots) {
    for (uint32_t i = 1; i < slots->deferred_count; i++) {
        struct remo__op op = slots->deferred[i];
        uint32_t at = i;
        for (; at > 0 && slots->deferred[at - 1].peer > op.peer; at--)
            slots->deferred[at] = slots->deferred[at - 1];
        slots->deferred[at] = op;
    }
}

/* Post deferred operations, except those to peers with -EAGAIN (no room, or no connection yet). An operation
 * that cannot be posted completes with its error. The lock is held. */
static void deferred_post(struct remo__slots *slots) {
    const struct remo__fabric_ops *ops = slots->node->fabric->ops;
    uint32_t at = 0, kept = 0, count = slots->deferred_count;
    deferred_sort(slots);
    while (at < count) {
        uint32_t most = (uint32_t)remo__min(count - at, slots->node->fabric->caps.batch_max);
        uint16_t peer = slots->deferred[at].peer;
        int rc = ops->post(slots->endpoint, slots->deferred + at, most);
        while (rc == -EAGAIN && at < count && slots->deferred[at].peer == peer)
            slots->deferred[kept++] = slots->deferred[at++];
        if (rc == -EAGAIN)
            continue;
        if (rc < 0)
            finish(slots, (uint32_t)slots->deferred[at].token, rc);
        at += rc > 0 ? (uint32_t)rc : 1;
    }
    remo__slots_set(&slots->deferred_count, kept);
}

/* Return whether an operation to this peer is deferred. No later operation may be posted before it. */
static bool has_deferred(const struct remo__slots *slots, uint16_t peer) {
    for (uint32_t i = 0; i < slots->deferred_count; i++)
        if (slots->deferred[i].peer == peer)
            return true;
    return false;
}

static bool try_lock(struct remo__slots *slots) {
    uint32_t free_state = 0;
    return atomic_compare_exchange_strong_explicit(&slots->lock.state, &free_state, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

uint32_t remo__slots_progress(struct remo__thread *thread) {
    struct remo__slots *slots = thread->slots;
    uint32_t left = remo__slots_get(&slots->in_flight);
    if (left == 0 || !try_lock(slots))
        return left;
    /* operations that could not be posted at the uncork */
    if (slots->deferred_count > 0 && remo__slots_get(&slots->cork_depth) == 0)
        deferred_post(slots);
    collect(slots);
    left = slots->in_flight;
    remo__mutex_unlock(slots->node, &slots->lock);
    return left;
}

void remo__slots_sleep(struct remo__thread *thread, uint64_t timeout_ns) {
    struct remo__slots *slots = thread->slots;
    if (!try_lock(slots))
        return;
    if (slots->deferred_count > 0)
        deferred_post(slots);
    if (slots->in_flight > 0)
        slots->node->fabric->ops->wait(slots->endpoint, timeout_ns);
    collect(slots);
    remo__mutex_unlock(slots->node, &slots->lock);
}

/* Return whether the slots have an operation that remo__op_abandoned counts. True if another thread holds the
 * lock, because that thread may be about to post. */
static bool has_abandoned(struct remo__slots *slots, uint32_t peer) {
    bool found = false;
    if (!try_lock(slots))
        return true;
    for (uint32_t i = 0; i < slots->depth && !found; i++) {
        const struct remo__slot *slot = &slots->slot[i];
        bool is_atomic = slot->kind != REMO__OP_READ && slot->kind != REMO__OP_WRITE;
        found = slot->busy && !slot->ack && (slot->tracked || (is_atomic && slot->peer == peer));
    }
    remo__mutex_unlock(slots->node, &slots->lock);
    return found;
}

bool remo__op_abandoned(struct remo_node *node, uint32_t peer) {
    uint32_t count = atomic_load(&node->threads_count);
    for (uint32_t i = 0; i < count && !node->mapped; i++)
        if (remo__slots_progress(node->threads[i]) > 0 && has_abandoned(node->threads[i]->slots, peer))
            return true;
    return false;
}

void remo__slots_post_deferred(struct remo__thread *thread) {
    struct remo__slots *slots = thread->slots;
    if (remo__slots_get(&slots->deferred_count) == 0 || !try_lock(slots))
        return;
    deferred_post(slots);
    remo__mutex_unlock(slots->node, &slots->lock);
}

void remo__slots_cork(struct remo__thread *thread) {
    struct remo__slots *slots = thread->slots;
    remo__slots_set(&slots->cork_depth, slots->cork_depth + 1);
}

/* ---- sweeps: the service thread drives operations that their threads do not ----
 *
 * A write without an ack is in flight when the call returns, and its thread may then compute or sleep. If the
 * fabric makes progress only when it is polled, the service thread polls for that thread. The writing thread
 * wakes the service thread once. The service thread then sweeps until more than QUIET_SWEEPS_MAX sweeps in
 * succession have found no such operation. So a thread that posts often causes no further wake-ups. */

#define QUIET_SWEEPS_MAX 16u

static void request_sweeps(struct remo_node *node) {
    /* Orders the store of in_flight before the load of is_sweeping; pairs with remo__slots_sweep. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&node->is_sweeping, memory_order_relaxed)
        && !atomic_exchange(&node->is_sweeping, true))
        node->fabric->ops->imm_wake(node->fabric);
}

/* Ensure progress of operations that the caller has started and does not wait for. */
static void ensure_progress(struct remo__thread *thread) {
    if (!thread->node->mapped && !thread->node->fabric->caps.driven_by_device)
        request_sweeps(thread->node);
}

/* Operations may stay deferred, because the queue is full or another thread holds the lock. Later polls of
 * this thread post them. If the thread does not poll, only sweeps do, so every fabric needs sweeps here. */
void remo__slots_uncork(struct remo__thread *thread) {
    struct remo__slots *slots = thread->slots;
    remo__slots_set(&slots->cork_depth, slots->cork_depth - 1);
    if (slots->cork_depth > 0)
        return;
    remo__slots_post_deferred(thread);
    if (remo__slots_get(&slots->deferred_count) > 0)
        request_sweeps(thread->node);
}

/* Drive the operations of threads that have not polled since the last sweep. Returns their number. */
static uint32_t sweep_once(struct remo_node *node, bool *ret_completed) {
    uint32_t count = atomic_load(&node->threads_count), found = 0, left = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct remo__slots *slots = node->threads[i]->slots;
        uint32_t polls = atomic_load_explicit(&slots->polls, memory_order_relaxed);
        uint32_t in_flight = remo__slots_get(&slots->in_flight);
        if (in_flight > 0 && polls == slots->polls_swept) {
            found += in_flight;
            left += remo__slots_progress(node->threads[i]);
            polls = atomic_load_explicit(&slots->polls, memory_order_relaxed);
        }
        slots->polls_swept = polls;
    }
    *ret_completed = left < found;
    if (left < found)
        remo__wake(node); /* a thread may sleep because it has read these operations as in flight */
    return found;
}

bool remo__slots_sweep(struct remo_node *node, uint32_t *quiet, bool *ret_completed) {
    *quiet = sweep_once(node, ret_completed) > 0 ? 0 : *quiet + 1;
    if (*quiet <= QUIET_SWEEPS_MAX)
        return true;
    atomic_store(&node->is_sweeping, false);
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t count = atomic_load(&node->threads_count);
    for (uint32_t i = 0; i < count; i++)
        if (remo__slots_get(&node->threads[i]->slots->in_flight) > 0)
            atomic_store(&node->is_sweeping, true);
    *quiet = 0;
    return atomic_load(&node->is_sweeping);
}

/* ---- starting an operation ---- */

struct start {
    struct remo__slots *slots;
    struct remo__thread *thread;
    struct remo__op op;
    bool bounce; /* the network accesses the slot's bounce block instead of the caller's buffer */
    bool exempt; /* this and `tracked`: see struct remo__slot */
    bool tracked;
    const void *src; /* a write through the bounce block: the source to copy into the block */
    void *dst;       /* a read or atomic through the block: where the result is copied to, or NULL */
    struct remo_ack *ack;
};

static void fill_slot(struct start *start, uint32_t index) {
    struct remo__slot *slot = &start->slots->slot[index];
    slot->ack = start->ack;
    slot->dst = start->dst;
    slot->bytes = (uint32_t)start->op.size_bytes;
    slot->peer = start->op.peer;
    slot->kind = start->op.kind;
    slot->exempt = start->exempt;
    slot->tracked = start->tracked;
    start->op.token = index;
    if (!start->bounce)
        return;
    start->op.local = slot->bounce;
    if (start->src)
        memcpy(slot->bounce, start->src, start->op.size_bytes);
}

static void count_posted(struct remo__slots *slots, struct remo__slot *slot) {
    struct remo__slots_peer *peer = &slots->peers[slot->peer];
    slot->busy = true;
    slots->free_count--;
    remo__slots_set(&slots->in_flight, slots->in_flight + 1);
    if (slot->kind != REMO__OP_WRITE) {
        remo__slots_set(&peer->others, peer->others + 1);
        return;
    }
    remo__slots_set(&peer->writes, peer->writes + 1);
    atomic_fetch_add(&peer->written, !slots->node->fabric->caps.completion_placed && !slot->exempt);
    if (slot->exempt)
        atomic_store(&peer->has_exempt, true);
}

/* Return whether to defer the operation. The caller may reuse the source of an inline write on return, so a
 * deferred write is sent from the slot's bounce block. */
static bool try_defer(struct start *start) {
    struct remo__slots *slots = start->slots;
    struct remo__op *op = &start->op;
    if (slots->cork_depth == 0)
        return false;
    if (op->kind == REMO__OP_WRITE && (op->flags & REMO__OP_INLINE)) {
        /* even without the flag, a fabric may copy the data from the bounce block when it posts */
        op->flags &= (uint8_t)~REMO__OP_INLINE;
        start->bounce = true;
        start->src = op->local;
    }
    return true;
}

/* Post or defer the operation if a slot is free and the fabric's queue has room. Returns 1, 0 (retry later)
 * or an error. The lock is held. */
static int post(struct start *start) {
    struct remo__slots *slots = start->slots;
    if (slots->free_count == 0 && slots->deferred_count > 0)
        deferred_post(slots);
    if (slots->free_count == 0)
        collect(slots);
    if (slots->free_count == 0)
        return 0;
    uint32_t index = slots->free[slots->free_count - 1];
    bool is_deferred = try_defer(start);
    fill_slot(start, index);
    if (is_deferred) {
        slots->deferred[slots->deferred_count] = start->op;
        remo__slots_set(&slots->deferred_count, slots->deferred_count + 1);
        count_posted(slots, &slots->slot[index]);
        return 1;
    }
    if (slots->deferred_count > 0)
        deferred_post(slots);
    if (has_deferred(slots, start->op.peer)) { /* earlier operations could not be posted */
        collect(slots);
        return 0;
    }
    int rc = slots->node->fabric->ops->post(slots->endpoint, &start->op, 1);
    if (rc == 1)
        count_posted(slots, &slots->slot[index]);
    if (rc == -EAGAIN || slots->node->mapped) /* on a mapped fabric the operation is complete already */
        collect(slots);
    return rc == -EAGAIN ? 0 : rc;
}

/* A wait condition: the operation is posted or deferred. */
static int try_start(void *ctx) {
    struct start *start = ctx;
    struct remo__slots *slots = start->slots;
    if (!try_lock(slots))
        return 0;
    int rc = post(start);
    remo__mutex_unlock(slots->node, &slots->lock);
    if (rc == 0 && !remo__peer_is_up(slots->node, start->op.peer))
        return remo__peer_fail(slots->node, start->op.peer, "start an operation with");
    return rc;
}

static int start_operation(struct start *start) {
    struct remo_node *node = start->slots->node;
    if (!remo__peer_is_up(node, start->op.peer))
        return remo__peer_fail(node, start->op.peer, "start an operation with");
    if (start->ack) {
        start->ack->thread = start->thread;
        __atomic_fetch_add(&start->ack->pending, 1, __ATOMIC_RELAXED);
    }
    int rc = remo__wait(node, try_start, start, remo__deadline(node->op_timeout_ns));
    if (rc != 0 && start->ack)
        __atomic_fetch_sub(&start->ack->pending, 1, __ATOMIC_RELAXED);
    return rc;
}

/* ---- reads, writes, atomics ---- */

/* Wait for an operation of a caller that passes no ack. `rc` is the result of its start. */
static int wait_own(struct remo__thread *thread, struct remo_ack *own, int rc, const char *what,
                    uint32_t peer) {
    struct remo_node *node = thread->node;
    if (rc == 0)
        rc = remo_ack_wait(own, node->op_timeout_ns);
    remo_ack_cancel(own);
    if (rc == -ETIMEDOUT)
        return remo__peer_timeout(node, peer, what);
    /* the fabric's own sentence, if it is set, has more detail */
    bool has_reason = thread->slots->why_status == rc && remo__peer_is_up(node, peer);
    return rc == -EHOSTDOWN && !has_reason ? remo__peer_fail(node, peer, what) : rc;
}

static bool in_arena(const struct remo_node *node, const void *buffer) {
    const char *base = remo__arena_base(node->arena);
    return (const char *)buffer >= base && (const char *)buffer < base + remo__arena_reserved(node->arena);
}

/* Return the largest size of one operation; `direct`: the caller's buffer is in network memory. */
static uint64_t piece_bytes_max(const struct remo_node *node, bool direct) {
    uint64_t bytes = node->fabric->caps.message_bytes_max;
    return direct || node->mapped ? bytes : remo__min(bytes, REMO__BOUNCE_BYTES);
}

int remo__op_read(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                  void *dst, size_t bytes, struct remo_ack *ack) {
    struct remo_node *node = thread->node;
    struct remo_ack own = REMO_ACK_INIT;
    bool direct = node->mapped || in_arena(node, dst);
    uint64_t piece_max = piece_bytes_max(node, direct), at = 0;
    int rc = 0;
    do {
        uint64_t piece = remo__min(bytes - at, piece_max);
        char *to = (char *)dst + at;
        struct start start = {.slots = thread->slots,
                              .thread = thread,
                              .bounce = !direct,
                              .dst = direct ? NULL : to,
                              .ack = ack ? ack : &own,
                              .op = {.kind = REMO__OP_READ,
                                     .flags = ack ? REMO__OP_GATHER : 0,
                                     .peer = (uint16_t)peer,
                                     .remote = offset + at,
                                     .local = to,
                                     .size_bytes = piece}};
        rc = start_operation(&start);
        remo__count(&stats->reads, rc == 0);
        remo__count(&stats->bytes, rc == 0 ? piece : 0);
        at += piece;
    } while (rc == 0 && at < bytes);
    if (!ack)
        return wait_own(thread, &own, rc, "read from", peer);
    ensure_progress(thread);
    return rc;
}

int remo__op_write(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                   const void *src, size_t bytes, uint32_t flags, uint32_t imm, struct remo_ack *ack) {
    struct remo_node *node = thread->node;
    const struct remo__fabric_caps *caps = &node->fabric->caps;
    bool direct = node->mapped || in_arena(node, src);
    uint64_t piece_max = piece_bytes_max(node, direct), at = 0;
    uint8_t last_flags = (flags & REMO__WRITE_IMM)      ? REMO__OP_IMM
                         : (flags & REMO__WRITE_NOTIFY) ? REMO__OP_NOTIFY
                                                        : 0;
    int rc = 0;
    do {
        uint64_t piece = remo__min(bytes - at, piece_max);
        bool last = at + piece == bytes, is_inline = piece <= caps->inline_bytes;
        const char *from = (const char *)src + at;
        struct start start = {
            .slots = thread->slots,
            .thread = thread,
            .bounce = !direct && !is_inline,
            .exempt = (flags & REMO__WRITE_EXEMPT) != 0,
            .tracked = (flags & REMO__WRITE_TRACKED) != 0,
            .src = from,
            .ack = ack,
            .op = {.kind = REMO__OP_WRITE,
                   .peer = (uint16_t)peer,
                   .remote = offset + at,
                   .flags = (uint8_t)((last ? last_flags : 0) | (is_inline ? REMO__OP_INLINE : 0)),
                   .imm = imm,
                   .local = (void *)(uintptr_t)from,
                   .size_bytes = piece}};
        if (last && last_flags && at > 0 && !caps->writes_ordered)
            rc = remo_fence(node, REMO_FENCE_PAIR, peer); /* all pieces are placed before the notification */
        if (rc == 0)
            rc = start_operation(&start);
        remo__count(&stats->writes, rc == 0);
        remo__count(&stats->bytes, rc == 0 ? piece : 0);
        at += piece;
    } while (rc == 0 && at < bytes);
    remo__count(&stats->imms, rc == 0 && last_flags);
    if (rc == 0 && node->mapped)
        thread->unfenced = true;
    ensure_progress(thread);
    return rc;
}

int remo__op_flush(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset) {
    struct start start = {
        .slots = thread->slots,
        .thread = thread,
        .bounce = true,
        .tracked = true,
        .op = {.kind = REMO__OP_READ, .peer = (uint16_t)peer, .remote = offset, .size_bytes = 8}};
    int rc = start_operation(&start);
    remo__count(&stats->reads, rc == 0);
    remo__count(&stats->bytes, rc == 0 ? 8 : 0);
    ensure_progress(thread);
    return rc;
}

int remo__op_flush_exempt(struct remo__thread *caller) {
    struct remo_node *node = caller->node;
    uint32_t count = node->fabric->caps.completion_placed ? 0 : atomic_load(&node->threads_count);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t peer = 0; peer < node->size; peer++) {
            _Atomic bool *has_exempt = &node->threads[i]->slots->peers[peer].has_exempt;
            if (!atomic_load(has_exempt) || !remo__peer_is_up(node, peer))
                continue;
            atomic_store(has_exempt, false);
            int rc = remo__op_flush(node->threads[i], &caller->stats[0], peer, node->fabric->private_bytes);
            if (rc == 0 || !remo__peer_is_up(node, peer))
                continue;
            atomic_store(has_exempt, true);
            return rc;
        }
    return 0;
}

int remo__op_atomic(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                    uint8_t kind, uint64_t operand, uint64_t compare, uint64_t *ret_old,
                    struct remo_ack *ack) {
    struct remo_node *node = thread->node;
    struct remo_ack own = REMO_ACK_INIT;
    if (!node->fabric->caps.coherent)
        return remo__fail(-EOPNOTSUPP, "fabric %s has no atomics: its memory has no hardware coherence",
                          node->fabric->ops->name);
    struct start start = {.slots = thread->slots,
                          .thread = thread,
                          .bounce = true,
                          .dst = ret_old,
                          .ack = ack ? ack : &own,
                          .op = {.kind = kind,
                                 .peer = (uint16_t)peer,
                                 .remote = offset,
                                 .size_bytes = 8,
                                 .operand = operand,
                                 .compare = compare}};
    int rc = start_operation(&start);
    remo__count(&stats->atomics, rc == 0);
    remo__count(&stats->bytes, rc == 0 ? 8 : 0);
    if (!ack)
        return wait_own(thread, &own, rc, "execute an atomic on", peer);
    ensure_progress(thread);
    return rc;
}
