/* send.c - sends requests into the rings of peers, and queues requests that find no room.
 * Invariant: a request is written only behind all earlier requests of this node, and only over requests that
 * the peer has consumed. Each queue is FIFO. Messages of handlers, and deeper calls, overtake the other
 * queues. */
#include <stdlib.h>

#include "objects/rpc/rpc.h"

#define FENCE_TRIES 3u /* before a message fails because its fence does */

/* A message of a handler, or a write that could not start. */
struct remo__rpc_queued {
    struct remo__rpc_queued *next;
    uint32_t counters;           /* slot of the channel of the service, which may close before */
    struct remo__thread *writer; /* the thread that queued it */
    struct remo__write_mark mark;
    bool is_write;      /* a write into the slots of the node, not a request */
    uint32_t immediate; /* of the write; 0: a notification */
    uint64_t offset;
    struct remo__rpc_words words;
    size_t bytes;
    uint64_t data[];
};

static void lock_send(const struct remo__rpc_transport *transport, struct remo__rpc_peer *peer) {
    if (remo__likely(remo__mutex_try_lock(&peer->send_mutex)))
        return;
    atomic_fetch_add(&peer->lockers, 1);
    remo__rpc_lock(transport, &peer->send_mutex);
    atomic_fetch_sub(&peer->lockers, 1);
}

/* ---- one request ---- */

int remo__rpc_order(const struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node) {
    int rc = 0;
    if (remo__likely(!transport->fences))
        return 0;
    for (uint32_t i = 0; i < FENCE_TRIES; i++)
        if ((rc = remo__fence_writer(thread, thread, node)) == 0 || rc == -ETIMEDOUT)
            break;
    return rc;
}

static bool has_room(struct remo__rpc_transport *transport, uint32_t node, uint64_t position, size_t bytes) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    uint64_t end = position + remo__align_up(REMO__RPC_REQUEST_BYTES + bytes, REMO__RPC_LINE);
    if (remo__likely(end - atomic_load_explicit(&peer->credit, memory_order_acquire) <= REMO__RPC_RING_BYTES))
        return true;
    remo__rpc_add_credit(peer, remo__load(remo__rpc_own_state(transport, REMO__RPC_AT_CREDITS + 8 * node)));
    remo__rpc_slots_collect(transport, node);
    return end - atomic_load(&peer->credit) <= REMO__RPC_RING_BYTES;
}

/* The head is stored last: it proves that the rest is complete. The request counts before that. */
static int write_mapped(struct remo__rpc_transport *transport, struct remo_stats *stats, uint32_t node,
                        uint64_t at, const struct remo__rpc_words *words, const void *data, uint64_t key) {
    char *to = (char *)(uintptr_t)remo__memory_mapped(transport->rings, node, at);
    if (remo__unlikely(!to))
        return 0;
    remo__count(&stats->writes, 1);
    remo__count(&stats->imms, 1);
    remo__count(&stats->bytes, REMO__RPC_REQUEST_BYTES + remo__rpc_bytes(words->head));
    remo__copy_to(to + REMO__RPC_REQUEST_BYTES, data, remo__rpc_bytes(words->head));
    remo__store(to + 16, words->call);
    remo__store(to + 24, words->rest);
    remo__store(to + 8, words->head ^ key);
    remo__store(to, words->head);
    char *next = to + remo__align_up(REMO__RPC_REQUEST_BYTES + remo__rpc_bytes(words->head), REMO__RPC_LINE);
    remo__mapped_prefetch_write(next + REMO__RPC_LINE);
    remo__mapped_prefetch_write(next + 2 * (size_t)REMO__RPC_LINE);
    return 1;
}

/* Queued messages wait until earlier writes of other threads are complete (may_send_for). */
static uint32_t unawaited(const struct remo__rpc_transport *transport) {
    return atomic_load_explicit(&transport->chores, memory_order_relaxed) == 0 ? REMO__WRITE_UNAWAITED : 0;
}

static int write_unmapped(struct remo__rpc_transport *transport, struct remo__thread *thread,
                          struct remo_stats *stats, uint32_t node, uint64_t at,
                          const struct remo__rpc_words *words, const void *data, uint64_t key) {
    uint64_t image[REMO__RPC_REQUEST_MAX / sizeof(uint64_t)];
    struct remo__ref ref;
    if (!remo__memory_find_now(transport->rings, thread, node, at, &ref))
        return 0;
    ref.stats = stats;
    size_t bytes = remo__rpc_encode_request(image, words, data, key);
    bool has_begun = remo__rpc_undefer(thread);
    int rc = remo__channel_write_immediate_flags(transport->channel, ref, image, bytes, 0,
                                                 REMO__WRITE_TRY | unawaited(transport), NULL);
    remo__rpc_undefer_end(has_begun);
    return rc == 0 ? 1 : rc == -ETIMEDOUT ? 0 : rc;
}

static int fail_departed(uint32_t node) {
    return remo__fail(-EHOSTDOWN, "cannot send a request to node %u: it has failed or left", node);
}

int remo__rpc_send(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t counters,
                   uint32_t node, struct remo__rpc_words words, const void *data) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    uint64_t position = atomic_load_explicit(&peer->position, memory_order_relaxed);
    uint64_t key = remo__rpc_key(position), offset = remo__rpc_offset(position);
    size_t bytes = remo__rpc_bytes(words.head);
    if (remo__unlikely(!remo__rpc_is_up(transport, node)))
        return remo__rpc_has_departed(transport, node) ? fail_departed(node) : 0;
    if (remo__unlikely(!has_room(transport, node, position, bytes)))
        return 0;
    uint64_t at = (uint64_t)transport->rank * REMO__RPC_RING_SPAN + offset;
    struct remo_stats *stats = &thread->stats[counters];
    words.head |= remo__rpc_lap_of(position) << 16;
    /* before the request: a reply to another call may return its room at once */
    atomic_store_explicit(&peer->position, remo__rpc_position_after(position, bytes), memory_order_release);
    int rc = 1;
    if (remo__likely(transport->mapped)) {
        rc = write_mapped(transport, stats, node, at, &words, data, key);
        thread->unfenced |= rc == 1;
    } else {
        rc = write_unmapped(transport, thread, stats, node, at, &words, data, key);
    }
    if (remo__unlikely(rc != 1))
        atomic_store_explicit(&peer->position, position, memory_order_relaxed);
    if (rc < 0 && remo__rpc_has_departed(transport, node))
        rc = fail_departed(node);
    return rc;
}

/* ---- wake-ups ---- */

static bool send_immediate(struct remo__rpc_transport *transport, struct remo__thread *thread,
                           uint32_t node) {
    struct remo_stats discarded = {0}; /* the request has counted it */
    struct remo__ref ref;
    if (!remo__memory_find_now(transport->state, thread, node, 0, &ref))
        return true; /* the node has failed or left */
    ref.stats = &discarded;
    int rc = remo__channel_write_immediate_flags(transport->channel, ref, NULL, 0, 0, REMO__WRITE_TRY, NULL);
    return rc == 0 || remo__is_departure(rc);
}

/* At most one immediate of this node is in flight: until it is received, later requests need none. */
static __attribute__((noinline)) void wake_service(struct remo__rpc_transport *transport,
                                                   struct remo__thread *thread, uint32_t node, char *state) {
    uint64_t bit = UINT64_C(1) << transport->rank % 64;
    if (remo__rpc_has_bit(state, REMO__RPC_AT_WOKEN, transport->rank)
        || (remo__rpc_set_bit(state, REMO__RPC_AT_WOKEN, transport->rank) & bit))
        return;
    if (send_immediate(transport, thread, node))
        return;
    (void)remo__rpc_clear_bit(state, REMO__RPC_AT_WOKEN, transport->rank);
    if (!atomic_exchange(&transport->peers[node].owes_wake, true))
        atomic_fetch_add(&transport->chores, 1);
    remo__rpc_request_sweep(transport);
}

static char *state_of(const struct remo__rpc_transport *transport, uint32_t node) {
    return (char *)(uintptr_t)remo__memory_mapped(transport->state, node, 0);
}

/* Make the request known. Returns whether its sender owes the wake-up: a busy thread of the node will
 * probably serve. */
static bool announce(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node,
                     bool may_owe) {
    char *state = transport->mapped ? state_of(transport, node) : NULL;
    if (remo__unlikely(!state))
        return false;
    remo__mapped_fence(); /* pairs with the one of a poller that leaves */
    thread->unfenced = false;
    if (transport->size > REMO__RPC_DIRECT_NODES
        && !remo__rpc_has_bit(state, REMO__RPC_AT_PENDING, transport->rank))
        (void)remo__rpc_set_bit(state, REMO__RPC_AT_PENDING, transport->rank);
    if (remo__load(state + REMO__RPC_AT_POLLERS) != 0)
        return false;
    if (may_owe && remo__rpc_has_bit(state, REMO__RPC_AT_NEAR, 0))
        return true;
    wake_service(transport, thread, node, state);
    return false;
}

void remo__rpc_wake(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node) {
    (void)announce(transport, thread, node, false);
}

void remo__rpc_wake_late(struct remo__rpc_transport *transport, struct remo__thread *thread,
                         struct remo_rpc_op *call) {
    if (remo__likely(call->own.wake != REMO__RPC_WAKE_OWED))
        return;
    call->own.wake = REMO__RPC_WAKE_NOW;
    char *state = remo__rpc_is_in_flight(call) ? state_of(transport, call->node) : NULL;
    if (state)
        wake_service(transport, thread, call->node, state);
}

/* ---- queues ---- */

static uint32_t depth_index(const struct remo_rpc_op *call) {
    return remo__rpc_depth(call->own.head) - 1;
}

static bool is_leaf(const struct remo_rpc_op *call) {
    return depth_index(call) == REMO__RPC_LEAF_DEPTH - 1;
}

/* send_mutex is held. */
static void append_call(struct remo__rpc_peer *peer, struct remo_rpc_op *call) {
    uint32_t depth = depth_index(call);
    call->own.next = NULL;
    call->own.previous = peer->calls[depth].last;
    if (peer->calls[depth].last)
        peer->calls[depth].last->own.next = call;
    else
        peer->calls[depth].first = call;
    peer->calls[depth].last = call;
}

/* send_mutex is held. */
static void remove_call(struct remo__rpc_peer *peer, struct remo_rpc_op *call) {
    uint32_t depth = depth_index(call);
    if (call->own.previous)
        call->own.previous->own.next = call->own.next;
    else
        peer->calls[depth].first = call->own.next;
    if (call->own.next)
        call->own.next->own.previous = call->own.previous;
    else
        peer->calls[depth].last = call->own.previous;
}

static void count_queued(struct remo__rpc_transport *transport, struct remo__rpc_peer *peer) {
    atomic_fetch_add(&peer->queued, 1);
    atomic_fetch_add(&transport->chores, 1);
    remo__rpc_request_sweep(transport);
}

static void uncount_queued(struct remo__rpc_transport *transport, struct remo__rpc_peer *peer) {
    bool is_last = atomic_fetch_sub(&peer->queued, 1) == 1;
    atomic_fetch_sub(&transport->chores, 1);
    if (is_last)
        remo__wake(transport->node); /* a post may wait until nothing is queued */
}

/* Return whether the node keeps fewer slots of the depth than it may. RETIRED slots count; for leaf calls,
 * BUSY slots count too. */
static bool has_quota(const struct remo__rpc_peer *peer, uint32_t depth) {
    return depth == REMO__RPC_LEAF_DEPTH - 1
               ? atomic_load(&peer->leaf_slots) < REMO__RPC_LEAF_SLOTS_OF_PEER
               : atomic_load_explicit(&peer->retired[depth], memory_order_relaxed) < REMO__RPC_RETIRED_MAX;
}

/* Return whether the node may get a further call of the depth: it does not owe too many replies to such. */
static bool replies(struct remo__rpc_transport *transport, uint32_t node, uint32_t depth) {
    const struct remo__rpc_peer *peer = &transport->peers[node];
    if (remo__likely(has_quota(peer, depth)))
        return true;
    if (atomic_load(&peer->retired[depth]) == 0)
        return false;
    remo__rpc_slots_reclaim_of(transport, node, depth + 1); /* each poll does so: check no other slots */
    return has_quota(peer, depth);
}

/* Send a request with places, as remo__rpc_send. From then on its block belongs to its slot. */
static __attribute__((noinline)) int send_large(struct remo__rpc_transport *transport,
                                                struct remo__thread *thread, struct remo_rpc_op *call,
                                                struct remo__rpc_words words) {
    struct remo__rpc_slot *slot = &transport->slot[call->own.slot];
    uint64_t image[REMO__RPC_RECORD_MAX / sizeof(uint64_t)];
    struct remo__rpc_places places;
    memcpy(&places, call->own.places, sizeof places);
    remo__rpc_large_compose(&places, call->request, image);
    slot->block = call->own.block;
    call->own.block = NULL;
    int rc = remo__rpc_send(transport, thread, call->own.rpc->channel->slot, call->node, words, image);
    if (rc == 1)
        return 1;
    call->own.block = slot->block;
    slot->block = NULL;
    return rc;
}

/* Send a call. send_mutex is held. Returns as remo__rpc_send. */
static int send_call(struct remo__rpc_transport *transport, struct remo__thread *thread,
                     struct remo_rpc_op *call) {
    uint64_t position = atomic_load_explicit(&transport->peers[call->node].position, memory_order_relaxed);
    if (!has_room(transport, call->node, position, remo__rpc_bytes(call->own.head))
        || !replies(transport, call->node, depth_index(call)))
        return 0;
    uint32_t serial, slot = remo__rpc_slot_take(transport, call->node, depth_index(call) + 1, &serial);
    if (slot == REMO__RPC_NO_SLOT)
        return 0;
    struct remo__rpc_words words = {.head = call->own.head,
                                    .call = remo__rpc_call_make(transport->rank, slot, serial),
                                    .rest = call->own.rest};
    call->own.slot = slot;
    if (remo__unlikely(call->done != NULL))
        atomic_store(&transport->slot[slot].call, call);
    int rc = remo__likely(!(remo__rpc_flags(words.head) & REMO__RPC_HAS_PLACES))
                 ? remo__rpc_send(transport, thread, call->own.rpc->channel->slot, call->node, words,
                                  call->request)
                 : send_large(transport, thread, call, words);
    if (rc == 1) {
        if (remo__likely(!call->done)) {
            __atomic_store_n(&call->own.state, REMO__RPC_CALL_SENT, __ATOMIC_RELEASE);
        } else { /* from the store on the call may end, and be reused */
            __atomic_store_n(&call->own.state, REMO__RPC_CALL_SENT, __ATOMIC_SEQ_CST);
            remo__rpc_slot_recheck(transport, slot, serial);
        }
    } else {
        atomic_store(&transport->slot[slot].call, NULL);
        remo__rpc_slot_return(transport, slot);
    }
    return rc;
}

/* ---- queued messages and calls ---- */

/* A queued message must not overtake the earlier writes of the thread that queued it. send_mutex is held. */
static bool may_send_for(const struct remo__rpc_transport *transport, struct remo__thread *thread,
                         struct remo__thread *writer, uint32_t node, const struct remo__write_mark *mark) {
    return transport->mapped || writer == thread || remo__writes_are_placed(thread, writer, node, mark);
}

/* Return whether a queued call may be sent now. Elsewhere than on mapped fabrics its time is relative. */
static bool may_send_call(const struct remo__rpc_transport *transport, struct remo__thread *thread,
                          struct remo_rpc_op *call) {
    const struct remo__write_mark mark = {call->own.mark[0], call->own.mark[1]};
    if (!may_send_for(transport, thread, call->own.thread, call->node, &mark))
        return false;
    if (!transport->mapped)
        call->own.rest = remo__rpc_rest(call->own.rpc, call->node, call->own.deadline_ns);
    return true;
}

int remo__rpc_try_write(struct remo__rpc_transport *transport, struct remo__thread *thread,
                        struct remo__ref ref, const void *image, size_t bytes, uint32_t immediate) {
    const uint32_t flags = REMO__WRITE_TRY | unawaited(transport);
    bool has_begun = remo__rpc_undefer(thread);
    int rc = immediate > 0 ? remo__channel_write_immediate_flags(transport->channel, ref, image, bytes,
                                                                 immediate, flags, NULL)
                           : remo__op_write(ref, image, bytes, REMO__WRITE_NOTIFY | flags, 0, NULL);
    remo__rpc_undefer_end(has_begun);
    return rc;
}

/* Send the first message of the queue. Returns 1 if it can be removed. send_mutex is held. */
static int send_queued(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node,
                       const struct remo__rpc_queued *message) {
    struct remo__ref ref;
    if (!remo__rpc_is_up(transport, node))
        return remo__rpc_has_departed(transport, node);
    if (!may_send_for(transport, thread, message->writer, node, &message->mark))
        return 0;
    if (!message->is_write)
        return remo__rpc_send(transport, thread, message->counters, node, message->words, message->data);
    if (!remo__memory_find_now(transport->slots, thread, node, message->offset, &ref))
        return 0;
    ref.stats = &thread->stats[message->counters];
    int rc = remo__rpc_try_write(transport, thread, ref, message->data, message->bytes, message->immediate);
    return rc == 0 || remo__is_departure(rc) ? 1 : 0;
}

/* Send the calls of one depth that wait, as far as possible. send_mutex is held. */
static bool flush_calls(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node,
                        uint32_t depth) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    struct remo_rpc_op *call;
    bool has_sent = false;
    while ((call = peer->calls[depth].first) != NULL && may_send_call(transport, thread, call)) {
        struct remo_rpc_op *next = call->own.next; /* the owner may reuse the call as soon as it is sent */
        if (send_call(transport, thread, call) != 1)
            break;
        peer->calls[depth].first = next;
        if (next)
            next->own.previous = NULL;
        else
            peer->calls[depth].last = NULL;
        uncount_queued(transport, peer);
        has_sent = true;
    }
    return has_sent;
}

/* Messages and deeper calls go first: other calls wait for them. send_mutex is held. */
static bool flush_locked(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    bool has_sent = false;
    while (peer->first_message && send_queued(transport, thread, node, peer->first_message) == 1) {
        struct remo__rpc_queued *message = peer->first_message;
        peer->first_message = message->next;
        if (!message->next)
            peer->last_message = NULL;
        peer->requests_queued -= !message->is_write;
        free(message);
        uncount_queued(transport, peer);
        has_sent = true;
    }
    if (peer->first_message)
        return has_sent; /* no smaller call takes its room */
    for (uint32_t depth = REMO__RPC_DEPTHS; depth-- > 0 && remo__rpc_is_up(transport, node);)
        has_sent |= flush_calls(transport, thread, node, depth);
    return has_sent;
}

/* A thread that waits for the mutex goes first: otherwise a thread that polls, and acquires the mutex for a
 * queue that cannot be sent now, could wake itself by each release, and acquire it again. */
static bool try_lock_peer(struct remo__rpc_peer *peer) {
    return remo__likely(atomic_load(&peer->lockers) == 0) && remo__mutex_try_lock(&peer->send_mutex);
}

/* As lock_ring in serve.c. A thread that waits for the mutex flushes the queue too, before its release. */
static bool lock_peer(struct remo__rpc_peer *peer) {
    if (remo__likely(try_lock_peer(peer)))
        return true;
    atomic_store(&peer->is_unflushed, true);
    return try_lock_peer(peer);
}

static void flush_queue(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    bool has_sent = false;
    do {
        if (!lock_peer(peer))
            break;
        has_sent |= flush_locked(transport, thread, node);
        remo__rpc_unlock(transport, &peer->send_mutex);
    } while (atomic_exchange(&peer->is_unflushed, false) && atomic_load(&peer->queued) > 0);
    if (has_sent)
        remo__rpc_wake(transport, thread, node);
}

/* Release send_mutex, and flush for the threads that have not acquired it. `is_first`: the first call of its
 * queue was appended. Its slot may have been freed before, by a thread that saw nothing queued: try again. */
static void unlock_peer(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node,
                        bool is_first) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    bool has_sent = remo__unlikely(atomic_load(&peer->queued) > 0)
                    && atomic_exchange(&peer->is_unflushed, false) && flush_locked(transport, thread, node);
    remo__rpc_unlock(transport, &peer->send_mutex);
    if (has_sent)
        remo__rpc_wake(transport, thread, node);
    if (remo__unlikely(is_first)
        || (remo__unlikely(atomic_load(&peer->queued) > 0) && atomic_exchange(&peer->is_unflushed, false)))
        flush_queue(transport, thread, node);
}

/* ---- sending, or queueing ---- */

static struct remo__write_mark mark_writes(const struct remo__rpc_transport *transport,
                                           const struct remo__thread *thread, uint32_t node) {
    return transport->mapped ? (struct remo__write_mark){0} : remo__writes_mark(thread, node);
}

int remo__rpc_submit(struct remo__thread *thread, struct remo_rpc_op *call) {
    struct remo__rpc_transport *transport = call->own.rpc->transport;
    uint32_t node = call->node; /* the call may end, and be reused, as soon as it is sent */
    bool waits = call->own.wake == REMO__RPC_WAKE_WAITS, is_ordered = !is_leaf(call);
    struct remo__rpc_peer *peer = &transport->peers[node];
    int rc = is_ordered ? remo__rpc_order(transport, thread, node) : 0;
    if (remo__unlikely(rc != 0))
        return rc;
    lock_send(transport, peer);
    bool is_first = remo__likely(atomic_load_explicit(&peer->queued, memory_order_relaxed) == 0)
                    || (!peer->first_message && !peer->calls[depth_index(call)].first);
    if (is_first)
        rc = send_call(transport, thread, call);
    if (remo__unlikely(rc < 0 && !is_ordered && remo__rpc_is_up(transport, node)))
        rc = 0; /* a leaf call is sent later, instead of failing */
    if (remo__unlikely(rc == 0)) {
        const struct remo__write_mark mark =
            is_ordered ? mark_writes(transport, thread, node) : (struct remo__write_mark){0};
        call->own.mark[0] = mark.started;
        call->own.mark[1] = mark.written;
        call->own.thread = thread;
        __atomic_store_n(&call->own.state, REMO__RPC_CALL_QUEUED, __ATOMIC_RELEASE);
        append_call(peer, call);
        count_queued(transport, peer);
    }
    unlock_peer(transport, thread, node, is_first && rc == 0);
    if (remo__unlikely(rc != 1))
        return rc < 0 ? rc : 0;
    if (!waits)
        remo__rpc_wake(transport, thread, node);
    else if (announce(transport, thread, node, true))
        call->own.wake = REMO__RPC_WAKE_OWED; /* no other thread can end the call */
    return 0;
}

bool remo__rpc_unqueue(struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    struct remo__rpc_peer *peer = &transport->peers[call->node];
    lock_send(transport, peer);
    bool was_queued = __atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE) == REMO__RPC_CALL_QUEUED;
    if (was_queued) {
        remove_call(peer, call);
        uncount_queued(transport, peer);
    }
    remo__rpc_unlock(transport, &peer->send_mutex);
    if (atomic_load(&peer->queued) > 0 && atomic_exchange(&peer->is_unflushed, false))
        remo__rpc_request_poll(transport); /* this thread may hold calls_mutex */
    return was_queued;
}

/* Copy a message and append it. send_mutex is held. */
static int queue_message(struct remo__rpc_transport *transport, struct remo__rpc_peer *peer,
                         const struct remo__rpc_queued *model, const void *data) {
    if (!model->is_write && peer->requests_queued >= REMO_RPC_QUEUED_MAX)
        return remo__fail(-ENOBUFS,
                          "cannot queue a message: %u messages are queued for the node already; "
                          "send fewer messages",
                          REMO_RPC_QUEUED_MAX);
    struct remo__rpc_queued *message = malloc(sizeof *message + model->bytes);
    if (!message)
        return remo__fail(-ENOMEM, "no memory to queue a message");
    *message = *model;
    peer->requests_queued += !model->is_write;
    if (model->bytes > 0)
        memcpy(message->data, data, model->bytes);
    if (peer->last_message)
        peer->last_message->next = message;
    else
        peer->first_message = message;
    peer->last_message = message;
    count_queued(transport, peer);
    return 0;
}

int remo__rpc_send_message(struct remo__thread *thread, const struct remo_rpc *rpc, uint32_t node,
                           struct remo__rpc_words words, const void *data, bool queues) {
    struct remo__rpc_transport *transport = rpc->transport;
    struct remo__rpc_peer *peer = &transport->peers[node];
    struct remo__rpc_queued model = {.counters = rpc->channel->slot,
                                     .writer = thread,
                                     .mark = mark_writes(transport, thread, node),
                                     .words = words,
                                     .bytes = remo__rpc_bytes(words.head)};
    int rc = remo__rpc_order(transport, thread, node);
    if (remo__unlikely(rc != 0))
        return rc;
    lock_send(transport, peer);
    if (atomic_load_explicit(&peer->queued, memory_order_relaxed) == 0)
        rc = remo__rpc_send(transport, thread, model.counters, node, words, data);
    else if (remo__rpc_has_departed(transport, node))
        rc = fail_departed(node); /* queued calls stay until their callers check them */
    bool is_sent = rc == 1;
    if (rc == 0 && queues && (rc = queue_message(transport, peer, &model, data)) == 0)
        rc = 1;
    unlock_peer(transport, thread, node, false);
    if (is_sent)
        remo__rpc_wake(transport, thread, node);
    return rc;
}

int remo__rpc_queue_write(struct remo__rpc_transport *transport, struct remo__thread *thread,
                          uint32_t counters, uint32_t node, uint64_t offset, const void *image, size_t bytes,
                          uint32_t immediate) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    struct remo__rpc_queued model = {.counters = counters,
                                     .writer = thread,
                                     .mark = mark_writes(transport, thread, node),
                                     .is_write = true,
                                     .immediate = immediate,
                                     .offset = offset,
                                     .bytes = bytes};
    lock_send(transport, peer);
    int rc = queue_message(transport, peer, &model, image);
    unlock_peer(transport, thread, node, false);
    return rc;
}

/* ---- chores ---- */

static void pay_wake(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node) {
    atomic_fetch_sub(&transport->chores, 1);
    remo__rpc_wake(transport, thread, node);
}

/* The write of another thread may arrive later, and replace the position: it comes first. */
static int write_credit(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node,
                        uint64_t position) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    struct remo__thread *before = peer->credit_writer;
    struct remo__ref ref;
    if (!remo__memory_find_now(transport->state, thread, node, REMO__RPC_AT_CREDITS + 8 * transport->rank,
                               &ref))
        return 0;
    if (transport->mapped)
        return remo__write(ref, &position, sizeof position, REMO__WRITE_NOTIFY, NULL);
    if (before && !may_send_for(transport, thread, before, node, &peer->credit_mark))
        return -ETIMEDOUT;
    int rc = remo__op_write(ref, &position, sizeof position, REMO__WRITE_NOTIFY | REMO__WRITE_TRY, 0, NULL);
    peer->credit_writer = thread;
    peer->credit_mark = mark_writes(transport, thread, node);
    return rc;
}

void remo__rpc_return_credit(struct remo__rpc_transport *transport, struct remo__thread *thread,
                             uint32_t node) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    uint64_t position = atomic_load_explicit(&peer->consumed, memory_order_relaxed);
    int rc = write_credit(transport, thread, node, position);
    bool owes = rc != 0 && !remo__is_departure(rc);
    if (!owes)
        atomic_store_explicit(&peer->credited, position, memory_order_relaxed);
    if (atomic_exchange(&peer->owes_credit, owes) == owes)
        return;
    if (owes)
        atomic_fetch_add(&transport->chores, 1);
    else
        atomic_fetch_sub(&transport->chores, 1);
    if (owes)
        remo__rpc_request_sweep(transport);
}

void remo__rpc_do_chores(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    if (!transport->mapped)
        (void)remo__slots_progress(thread); /* attempts that do not wait need free slots */
    for (uint32_t node = 0; node < transport->size; node++) {
        struct remo__rpc_peer *peer = &transport->peers[node];
        if (atomic_load(&peer->queued) > 0)
            flush_queue(transport, thread, node);
        if (atomic_load(&peer->owes_wake) && atomic_exchange(&peer->owes_wake, false))
            pay_wake(transport, thread, node);
        if (atomic_load(&peer->owes_credit) && remo__mutex_try_lock(&peer->receive_mutex)) {
            remo__rpc_return_credit(transport, thread, node);
            remo__rpc_unlock_ring(transport, node);
        }
    }
}

void remo__rpc_queues_free(struct remo__rpc_transport *transport) {
    for (uint32_t node = 0; node < transport->size; node++) {
        struct remo__rpc_queued *message = transport->peers[node].first_message;
        while (message) {
            struct remo__rpc_queued *next = message->next;
            free(message);
            message = next;
        }
    }
}
