/* slots.c - the operations in flight of a thread: slots, bounce blocks, completions, deferred operations.
 *
 * A slot is one operation in flight. It owns the memory that the network may access, unless the caller's
 * buffer is in the arena. So a caller may cancel an ack at any time. The lock serializes access to the slots
 * by their own thread, threads that execute a global fence, and the service thread. */
#include "remote/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/arena.h"
#include "remote/scheduler.h"

#define COLLECT_MAX 64u /* completions taken from the fabric at once */

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
    struct remo__task *task = remo__ack_task(ack);
    /* Without a task, the waiter may free the ack from here on. */
    if (__atomic_fetch_sub(&ack->pending, 1, __ATOMIC_RELEASE) == 1 && task)
        remo__task_resume(task);
}

void remo__slots_inherit(struct remo__thread *thread) {
    for (uint32_t peer = 0; peer < thread->node->size; peer++)
        atomic_store(&thread->slots->peers[peer].thread_error, 0);
}

/* Return whether a fence has recorded all writes to the peer as lost while some were in flight. Otherwise
 * `flushed` passes a write only after its completion. */
static bool is_known_lost(const struct remo__slots *slots, const struct remo__slots_peer *peer) {
    return !slots->node->fabric->caps.completion_placed
           && atomic_load(&peer->flushed) >= atomic_load(&peer->written);
}

static void finish_flush(struct remo__slots_peer *peer, uint64_t places, int status) {
    if (status == 0) {
        remo__slots_advance(&peer->flushed, places);
        return;
    }
    atomic_store(&peer->flush_status, status);
    if (atomic_load(&peer->flushing) == places)
        atomic_store(&peer->flushing, 0); /* the next fence posts another one */
}

/* Complete an operation, and free its slot. The error precedes the count: a fence that finds no operation in
 * flight also finds the error. The lock is held. */
static void finish(struct remo__slots *slots, uint32_t index, int status) {
    struct remo__slot *slot = &slots->slot[index];
    struct remo__slots_peer *peer = &slots->peers[slot->peer];
    struct remo__slots_worker *worker = &slots->workers[slot->worker];
    if (slot->kind == REMO__OP_WRITE) {
        if (status != 0 && !slot->ack && !slot->exempt && !is_known_lost(slots, peer))
            remo__slots_note_error(peer, status);
        remo__slots_set(&peer->writes, peer->writes - 1);
        remo__slots_set(&worker->writes, worker->writes - 1);
    } else {
        if (status == 0 && slot->dst)
            memcpy(slot->dst, slot->bounce, slot->bytes);
        if (slot->flushes)
            finish_flush(peer, slot->places, status);
        remo__slots_set(&peer->others, peer->others - 1);
        remo__slots_set(&worker->others, worker->others - 1);
    }
    if (slot->ack)
        finish_ack(slot->ack, status);
    slot->ack = NULL;
    slot->busy = false;
    remo__slots_set(&slots->in_flight, slots->in_flight - 1);
    remo__slots_set(&slots->completed, slots->completed + 1);
    slots->free[slots->free_count++] = (uint16_t)index;
}

static void record_reason(struct remo__slots *slots, const struct remo__completion *done) {
    slots->reason_status = done->why ? done->status : 0;
    if (done->why)
        snprintf(slots->reason, sizeof slots->reason, "%s", done->why);
}

/* Poll the fabric endpoint until it has no more completions, and finish the operations. The lock is held. */
static void collect(struct remo__slots *slots) {
    struct remo__completion done[COLLECT_MAX];
    int count;
    atomic_fetch_add_explicit(&slots->polls, 1, memory_order_relaxed);
    do {
        count = slots->node->fabric->ops->poll(slots->endpoint, done, REMO__ARRAY_COUNT(done));
        for (int i = 0; i < count; i++) {
            if (remo__unlikely(done[i].status != 0))
                record_reason(slots, &done[i]);
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
    return remo__mutex_try_lock(&slots->lock);
}

uint32_t remo__slots_progress(struct remo__thread *thread) {
    struct remo__slots *slots = thread->slots;
    uint32_t left = remo__slots_get(&slots->in_flight);
    if (left == 0 || !try_lock(slots))
        return left;
    /* Those that could not be posted at the uncork. Those of tasks are posted when no task is ready. */
    if (slots->deferred_count > 0 && remo__slots_get(&slots->cork_depth) == 0
        && !remo__scheduler_of(slots->node))
        deferred_post(slots);
    collect(slots);
    left = slots->in_flight;
    remo__mutex_unlock(slots->node, &slots->lock);
    return left;
}

bool remo__slots_sleep(struct remo__thread *thread, uint64_t timeout_ns) {
    struct remo__slots *slots = thread->slots;
    if (remo__slots_get(&slots->in_flight) == 0)
        return false;
    if (!try_lock(slots))
        return true;
    if (slots->deferred_count > 0)
        deferred_post(slots);
    if (slots->in_flight > 0)
        slots->node->fabric->ops->wait(slots->endpoint, timeout_ns);
    collect(slots);
    remo__mutex_unlock(slots->node, &slots->lock);
    return true;
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
    uint32_t count = atomic_load(&node->threads->count);
    for (uint32_t i = 0; i < count && !node->mapped; i++)
        if (remo__slots_progress(node->threads->of[i]) > 0
            && has_abandoned(node->threads->of[i]->slots, peer))
            return true;
    return false;
}

bool remo__slots_has_early(struct remo__slots *slots, uint32_t peer, bool writes, uint64_t count,
                           uint32_t worker) {
    bool found = false;
    if (!try_lock(slots))
        return true;
    for (uint32_t i = 0; i < slots->depth && !found; i++) {
        const struct remo__slot *slot = &slots->slot[i];
        found = slot->busy && slot->peer == peer && slot->number <= count
                && (writes || slot->kind != REMO__OP_WRITE) && (worker == 0 || slot->worker == worker);
    }
    remo__mutex_unlock(slots->node, &slots->lock);
    return found;
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

uint32_t remo__slots_recork(struct remo__thread *thread, uint32_t depth) {
    struct remo__slots *slots = thread->slots;
    uint32_t before = remo__slots_get(&slots->cork_depth);
    remo__slots_set(&slots->cork_depth, depth);
    return before;
}

bool remo__ops_settled(struct remo__thread *thread) {
    struct remo__slots *slots = thread->slots;
    if (!try_lock(slots))
        return false;
    remo__mutex_unlock(slots->node, &slots->lock);
    return true;
}

uint64_t remo__ops_started(const struct remo__thread *thread) {
    return atomic_load(&thread->slots->started);
}

bool remo__ops_have_ended(struct remo__thread *thread, uint64_t count) {
    if (remo__slots_progress(thread) == 0)
        return true;
    for (uint32_t peer = 0; peer < thread->node->size; peer++)
        if (remo__slots_has_early(thread->slots, peer, true, count, 0))
            return false;
    return true;
}

/* ---- start an operation ---- */

static void fill_slot(struct remo__start *start, uint32_t index) {
    struct remo__slot *slot = &start->slots->slot[index];
    slot->ack = start->ack;
    slot->dst = start->dst;
    slot->bytes = (uint32_t)start->op.size_bytes;
    slot->peer = start->op.peer;
    slot->kind = start->op.kind;
    slot->exempt = start->exempt;
    slot->tracked = start->tracked;
    slot->flushes = start->flushes;
    slot->worker = start->worker;
    start->op.token = index;
    if (!start->bounce)
        return;
    start->op.local = slot->bounce;
    if (start->src)
        memcpy(slot->bounce, start->src, start->op.size_bytes);
}

/* Number a write. `posted` is stored first: a flush read that a fence posts after it has read `written`
 * places at least the writes up to that number. */
static void number_write(struct remo__slots_peer *peer, bool is_exempt) {
    uint64_t number = atomic_load_explicit(&peer->posted, memory_order_relaxed) + 1;
    atomic_store_explicit(&peer->posted, number, memory_order_release);
    if (!is_exempt)
        atomic_store_explicit(&peer->written, number, memory_order_release);
}

static void count_posted(struct remo__slots *slots, struct remo__slot *slot) {
    struct remo__slots_peer *peer = &slots->peers[slot->peer];
    struct remo__slots_worker *worker = &slots->workers[slot->worker];
    slot->busy = true;
    slot->number = atomic_fetch_add_explicit(&slots->started, 1, memory_order_release) + 1;
    slots->free_count--;
    remo__slots_set(&slots->in_flight, slots->in_flight + 1);
    if (slot->kind != REMO__OP_WRITE) {
        remo__slots_set(&peer->others, peer->others + 1);
        remo__slots_set(&worker->others, worker->others + 1);
        slot->places = atomic_load(&peer->posted);
        if (slot->flushes)
            atomic_store(&peer->flushing, slot->places);
        return;
    }
    remo__slots_set(&peer->writes, peer->writes + 1);
    remo__slots_set(&worker->writes, worker->writes + 1);
    if (!slots->node->fabric->caps.completion_placed)
        number_write(peer, slot->exempt);
}

/* Return whether the place of the operation is mapped. Then other operations on it are executed at once, so
 * this one must not be deferred. */
static bool is_mapped(const struct remo__start *start) {
    return remo__peer_base(start->slots->node, start->op.peer) != NULL;
}

/* Return whether to defer the operation. Operations of tasks are posted together when no task is ready. The
 * caller may reuse the source of an inline write on return, so a deferred write is sent from the slot's
 * bounce block. */
static bool try_defer(struct remo__start *start) {
    struct remo__op *op = &start->op;
    if ((remo__slots_get(&start->slots->cork_depth) == 0 && !start->of_task) || is_mapped(start))
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
static int post(struct remo__start *start) {
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
    if (slots->deferred_count > 0 && !is_mapped(start))
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

int remo__slots_try_start(struct remo__start *start) {
    struct remo__slots *slots = start->slots;
    if (!try_lock(slots))
        return 0;
    int rc = post(start);
    remo__mutex_unlock(slots->node, &slots->lock);
    return rc;
}
