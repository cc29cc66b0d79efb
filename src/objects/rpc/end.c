/* end.c - ends calls: their reply has arrived, or cannot arrive, or the caller stops waiting.
 * Invariant: a call ends once, in the thread that waits for it or tests it, or, with `done`, in the thread
 * that holds done_mutex. */
#include "objects/rpc/rpc.h"

#define DONE_SCANNED_MAX 16u /* calls with `done` in flight */
#define DONE_PER_PASS 16u

/* ---- the end of a call ---- */

/* The slot of the call is used by another call from now on, or by none. */
static void leave_slot(struct remo__rpc_transport *transport, const struct remo_rpc_op *call) {
    if (remo__unlikely(call->done != NULL))
        atomic_store(&transport->slot[call->own.slot].call, NULL);
}

void remo__rpc_end_call(struct remo_rpc_op *call, int status, enum remo_rpc_fate fate, size_t reply_bytes) {
    if (remo__unlikely(call->own.block != NULL)) { /* it was not sent */
        remo__rpc_block_give(call->own.rpc->transport, call->own.block);
        call->own.block = NULL;
    }
    call->status = status;
    call->reply_bytes = reply_bytes;
    call->fate = fate;
    __atomic_store_n(&call->own.state, REMO__RPC_CALL_IDLE, __ATOMIC_RELEASE);
}

/* For remo_rpc_settle: the call ends without a reply. */
static void keep_serial(const struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    call->own.serial = atomic_load_explicit(&transport->slot[call->own.slot].serial, memory_order_relaxed);
}

/* The reply has arrived: copy it, and give the slot back. */
static inline void take_reply(struct remo__rpc_transport *transport, struct remo_rpc_op *call,
                              const struct remo__rpc_reply *reply) {
    static const enum remo_rpc_fate fates[] = {[REMO__RPC_REPLIED] = REMO_RPC_DONE,
                                               [REMO__RPC_REFUSED] = REMO_RPC_NOT_SENT,
                                               [REMO__RPC_ABANDONED] = REMO_RPC_UNKNOWN,
                                               [REMO__RPC_REPLIED_IN_PLACE] = REMO_RPC_DONE};
    size_t bytes = reply->head & 0xffff;
    int status = (int)(uint32_t)reply->result;
    uint32_t hops = reply->head >> 16 & 0xf;
    enum remo_rpc_fate fate = fates[reply->head >> 20 & 3];
    if (remo__unlikely(fate == REMO_RPC_NOT_SENT && hops > 0))
        fate = REMO_RPC_UNKNOWN; /* the handler that forwarded the request has run */
    void *buffer =
        remo__likely(call->reply_place.word == 0) ? call->reply : remo__rpc_large_buffer(transport, call);
    if (remo__unlikely((reply->head >> 20 & 3) == REMO__RPC_REPLIED_IN_PLACE))
        status = remo__rpc_large_take(transport, call, reply, &bytes) ? status : -EMSGSIZE;
    else if (buffer && remo__likely(bytes <= call->reply_cap))
        remo__copy_from(buffer, reply->data, bytes);
    else if (buffer)
        status = -EMSGSIZE;
    leave_slot(transport, call);
    remo__rpc_slot_release(transport, call->own.slot);
    remo__rpc_slot_give(transport, call->own.slot, hops);
    remo__rpc_end_call(call, status, fate, bytes);
}

/* The holder has failed, unless the reply or a note that it was forwarded has arrived since. */
static bool end_if_orphaned(struct remo__rpc_transport *transport, struct remo_rpc_op *call,
                            uint64_t *image) {
    struct remo__rpc_reply reply;
    if (!remo__rpc_slot_is_orphaned(transport, call->own.slot))
        return false;
    if (remo__rpc_slot_probe(transport, call->own.slot, image, &reply)) {
        take_reply(transport, call, &reply);
        return true;
    }
    leave_slot(transport, call);
    keep_serial(transport, call);
    remo__rpc_slot_abandon(transport, call->own.slot, true);
    remo__rpc_end_call(call, -EHOSTDOWN, REMO_RPC_UNKNOWN, 0);
    return true;
}

/* End a call that was not sent. */
static bool end_queued(struct remo__rpc_transport *transport, struct remo_rpc_op *call, int status) {
    if (!remo__rpc_unqueue(transport, call))
        return false; /* it was sent meanwhile */
    remo__rpc_end_call(call, status, REMO_RPC_NOT_SENT, 0);
    return true;
}

void remo__rpc_abandon_call(struct remo__rpc_transport *transport, struct remo_rpc_op *call, int status) {
    uint32_t state = __atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE);
    if (state == REMO__RPC_CALL_QUEUED && end_queued(transport, call, status))
        return;
    leave_slot(transport, call);
    keep_serial(transport, call);
    remo__rpc_slot_abandon(transport, call->own.slot, false);
    remo__rpc_end_call(call, status, REMO_RPC_UNKNOWN, 0);
}

bool remo__rpc_check_call(struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    uint64_t image[REMO__RPC_REPLY_MAX / sizeof(uint64_t)];
    struct remo__rpc_reply reply;
    uint32_t state = __atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE);
    if (state == REMO__RPC_CALL_QUEUED)
        return remo__rpc_has_departed(transport, call->node) && end_queued(transport, call, -EHOSTDOWN);
    if (remo__likely(remo__rpc_slot_probe(transport, call->own.slot, image, &reply))) {
        take_reply(transport, call, &reply);
        return true;
    }
    if (remo__unlikely(remo__rpc_slot_is_malformed(transport, call->own.slot))) {
        remo__rpc_abandon_call(transport, call, -EPROTO); /* its node is faulty, and may write again */
        return true;
    }
    return end_if_orphaned(transport, call, image);
}

/* ---- calls with `done` ---- */

void remo__rpc_list_done(struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    remo__rpc_lock(transport, &transport->calls_mutex);
    call->own.done_previous = NULL;
    call->own.done_next = transport->first_done;
    if (transport->first_done)
        transport->first_done->own.done_previous = call;
    transport->first_done = call;
    atomic_fetch_add(&transport->done_count, 1);
    if (call->own.deadline_ns != REMO_FOREVER)
        atomic_fetch_add(&transport->timed_count, 1);
    remo__rpc_unlock(transport, &transport->calls_mutex);
    remo__rpc_request_sweep(transport);
}

/* Remove a call from the list. calls_mutex is held. */
static void unlist_locked(struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    if (call->own.done_previous)
        call->own.done_previous->own.done_next = call->own.done_next;
    else
        transport->first_done = call->own.done_next;
    if (call->own.done_next)
        call->own.done_next->own.done_previous = call->own.done_previous;
    atomic_fetch_sub(&transport->done_count, 1);
    if (call->own.deadline_ns != REMO_FOREVER)
        atomic_fetch_sub(&transport->timed_count, 1);
}

void remo__rpc_unlist(struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    remo__rpc_lock(transport, &transport->calls_mutex);
    unlist_locked(transport, call);
    remo__rpc_unlock(transport, &transport->calls_mutex);
}

/* Return the call with `done` of a slot whose reply has arrived, or NULL. done_mutex is held, so no other
 * thread ends one. */
static struct remo_rpc_op *end_replied(struct remo__rpc_transport *transport, uint32_t slot) {
    struct remo_rpc_op *call = atomic_load(&transport->slot[slot].call);
    if (!call || __atomic_load_n(&call->own.state, __ATOMIC_SEQ_CST) != REMO__RPC_CALL_SENT
        || call->own.slot != slot || !remo__rpc_check_call(transport, call))
        return NULL; /* a call that is not sent yet is marked again (remo__rpc_slot_recheck) */
    remo__rpc_unlist(transport, call);
    return call;
}

static struct remo_rpc_op *next_replied(struct remo__rpc_transport *transport) {
    for (uint32_t first = 0; first < REMO__RPC_SLOTS_TOTAL; first += 64) {
        const char *word = remo__rpc_own_state(transport, REMO__RPC_AT_ENDED + first / 64 * 8);
        uint64_t bits;
        while ((bits = remo__load(word)) != 0) {
            uint32_t slot = first + (uint32_t)__builtin_ctzll(bits);
            (void)remo__rpc_clear_bit(transport->state->own, REMO__RPC_AT_ENDED, slot);
            struct remo_rpc_op *call = slot < REMO__RPC_SLOTS_TOTAL ? end_replied(transport, slot) : NULL;
            if (call)
                return call;
        }
    }
    return NULL;
}

/* Return a call that has ended without a reply, or NULL. done_mutex is held. */
static struct remo_rpc_op *next_failed(struct remo__rpc_transport *transport) {
    uint64_t now = atomic_load(&transport->timed_count) > 0 ? remo__now_ns() : 0;
    struct remo_rpc_op *call;
    bool is_over = false;
    remo__rpc_lock(transport, &transport->calls_mutex);
    for (call = transport->first_done; call; call = call->own.done_next) {
        if (__atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE) == REMO__RPC_CALL_STARTING)
            continue;
        is_over = remo__rpc_check_call(transport, call);
        if (!is_over && call->own.deadline_ns != REMO_FOREVER && now >= call->own.deadline_ns) {
            remo__rpc_abandon_call(transport, call, -ETIMEDOUT);
            is_over = true;
        }
        if (is_over)
            break;
    }
    if (is_over)
        unlist_locked(transport, call);
    remo__rpc_unlock(transport, &transport->calls_mutex);
    return is_over ? call : NULL;
}

/* On unmapped fabrics the service thread marks a reply when it receives the immediate. A thread that polls
 * does not wait for that if few calls are in flight: it looks into each slot. */
static bool looks_into_slots(struct remo__rpc_transport *transport) {
    return atomic_exchange(&transport->must_scan, false)
           || (!transport->mapped && atomic_load(&transport->done_count) <= DONE_SCANNED_MAX);
}

static struct remo_rpc_op *next_done(struct remo__rpc_transport *transport) {
    struct remo_rpc_op *call = next_replied(transport);
    if (call || !looks_into_slots(transport))
        return call;
    if ((call = next_failed(transport)) != NULL)
        atomic_store(&transport->must_scan, true); /* there may be more */
    return call;
}

static void run_done(struct remo__rpc_transport *transport, struct remo__thread *thread,
                     struct remo_rpc_op *call) {
    struct remo__rpc_turn turn = {.transport = transport, .thread = thread, .deadline_ns = REMO_FOREVER};
    thread->handling = &turn;
    call->done(call);
    thread->handling = NULL;
}

/* As lock_ring in serve.c. */
static bool lock_done(struct remo__rpc_transport *transport) {
    if (remo__mutex_try_lock(&transport->done_mutex))
        return true;
    atomic_store(&transport->missed_done, true);
    return remo__mutex_try_lock(&transport->done_mutex);
}

bool remo__rpc_complete_done(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    struct remo_rpc_op *call;
    uint32_t count = 0;
    do {
        if (!lock_done(transport))
            break;
        if ((call = next_done(transport)) != NULL) {
            run_done(transport, thread, call);
            count++;
        }
        remo__mutex_unlock(transport->node, &transport->done_mutex);
    } while ((call && count < DONE_PER_PASS) || atomic_exchange(&transport->missed_done, false));
    if (count == DONE_PER_PASS)
        remo__rpc_request_poll(transport);
    return count > 0;
}

bool remo__rpc_hold_done(struct remo__rpc_transport *transport, const struct remo__thread *thread) {
    const struct remo__rpc_turn *turn = thread->handling;
    bool is_held = turn && turn->depth == 0;
    if (!is_held)
        (void)remo__mutex_lock(transport->node, &transport->done_mutex, REMO_FOREVER);
    return !is_held;
}
