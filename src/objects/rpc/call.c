/* call.c - the side of the caller: starts calls, waits for their replies, and ends them.
 * Invariant: a call ends once, in the thread that waits for it or tests it, or, with `done`, in the thread
 * that holds done_mutex. */
#include "objects/rpc/rpc.h"

#define DONE_PER_TURN 16u

/* ---- arguments ---- */

static int fail_target(const struct remo_rpc *rpc, uint32_t node, uint32_t number, size_t bytes) {
    const char *name = remo_channel_name(rpc->channel);
    if (bytes > REMO__RPC_DATA_MAX)
        return remo__fail(-EMSGSIZE,
                          "a request of %zu bytes is too long for service %s: the maximum is %u; pass larger "
                          "data by an address in network memory",
                          bytes, name, REMO__RPC_DATA_MAX);
    if (number >= REMO_RPC_HANDLERS_MAX)
        return remo__fail(-EINVAL, "service %s has no handler %u: use a number below %u", name, number,
                          REMO_RPC_HANDLERS_MAX);
    return remo__fail(-EINVAL, "cannot call service %s: node %u is no participant, or the data is NULL", name,
                      node);
}

/* Return 0 if the node can be called now. */
static int check_connected(const struct remo_rpc *rpc, uint32_t node) {
    if (remo__likely(remo__channel_is_connected(rpc->channel, node) && remo__rpc_is_up(rpc->transport, node)))
        return 0;
    if (atomic_load(&rpc->channel->mismatched))
        return remo__fail(-EPROTO, "%s", rpc->channel->error_text);
    int rc = remo__channel_check_peer(rpc->channel, node);
    if (rc == 0)
        rc = remo__channel_check_peer(rpc->transport->channel, node);
    return rc != 0 ? rc
                   : remo__fail(-EAGAIN, "node %u has not opened service %s yet; see remo_channel_wait", node,
                                remo_channel_name(rpc->channel));
}

static inline int check_arguments(const struct remo_rpc *rpc, uint32_t node, uint32_t number,
                                  const void *data, size_t bytes) {
    if (remo__likely(node < rpc->transport->size && remo_nodeset_has(&rpc->channel->participants, node)
                     && number < REMO_RPC_HANDLERS_MAX && bytes <= REMO__RPC_DATA_MAX
                     && (data || bytes == 0)))
        return 0;
    return fail_target(rpc, node, number, bytes);
}

int remo__rpc_check_target(const struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data,
                           size_t bytes) {
    int rc = check_arguments(rpc, node, number, data, bytes);
    return rc == 0 ? check_connected(rpc, node) : rc;
}

/* Set *ret_depth to the depth of a call of this thread. */
static inline int find_depth(const struct remo__thread *thread, uint32_t *ret_depth) {
    const struct remo__rpc_turn *turn = thread->handling;
    *ret_depth = 1 + (turn ? turn->depth : 0);
    if (remo__likely(*ret_depth <= REMO_RPC_DEPTH_MAX))
        return 0;
    return remo__fail(-ELOOP,
                      "a handler at depth %u cannot call another node: the maximum is %u; break the circle "
                      "of handlers that call each other",
                      *ret_depth - 1, REMO_RPC_DEPTH_MAX);
}

uint64_t remo__rpc_rest(const struct remo_rpc *rpc, uint32_t node, uint64_t deadline_ns) {
    uint64_t service = atomic_load_explicit(&rpc->channel->peers[node].id, memory_order_relaxed);
    if (remo__likely(deadline_ns == REMO_FOREVER))
        return service;
    uint64_t left = remo__remaining_ns(deadline_ns) >> REMO__RPC_TIME_SHIFT;
    if (left > INT32_MAX / 2)
        return service; /* half an hour or more: no limit */
    uint64_t start = rpc->transport->mapped ? remo__now_ns() >> REMO__RPC_TIME_SHIFT : 0;
    uint32_t time = (uint32_t)(start + remo__max(left, 1));
    return service | (uint64_t)(time != 0 ? time : 1) << 32;
}

/* ---- the end of a call ---- */

/* The slot of the call is used by another call from now on, or by none. */
static void leave_slot(struct remo__rpc_transport *transport, const struct remo_rpc_op *call) {
    if (remo__unlikely(call->done != NULL))
        atomic_store(&transport->slot[call->own.slot].call, NULL);
}

/* End the call. The caller may reuse it as soon as the fate is set. */
static void end_call(struct remo_rpc_op *call, int status, enum remo_rpc_fate fate, size_t reply_bytes) {
    call->status = status;
    call->reply_bytes = reply_bytes;
    call->fate = fate;
    __atomic_store_n(&call->own.state, REMO__RPC_CALL_IDLE, __ATOMIC_RELEASE);
}

/* The reply has arrived: copy it, and give the slot back. */
static inline void take_reply(struct remo__rpc_transport *transport, struct remo_rpc_op *call,
                              const struct remo__rpc_reply *reply) {
    static const enum remo_rpc_fate fates[] = {[REMO__RPC_REPLIED] = REMO_RPC_DONE,
                                               [REMO__RPC_REFUSED] = REMO_RPC_NOT_SENT,
                                               [REMO__RPC_ABANDONED] = REMO_RPC_UNKNOWN,
                                               REMO_RPC_UNKNOWN};
    size_t bytes = reply->head & 0xffff;
    int status = (int)(uint32_t)reply->result;
    enum remo_rpc_fate fate = fates[reply->head >> 20 & 3];
    if (call->reply && remo__likely(bytes <= call->reply_cap))
        remo__copy_from(call->reply, reply->data, bytes);
    else if (call->reply)
        status = -EMSGSIZE;
    leave_slot(transport, call);
    remo__rpc_slot_give(transport, call->own.slot, reply->head >> 16 & 0xf);
    end_call(call, status, fate, bytes);
}

/* The holder has failed, unless the reply or a note that it was forwarded has arrived since. */
static bool end_if_gone(struct remo__rpc_transport *transport, struct remo_rpc_op *call, uint64_t *image) {
    struct remo__rpc_reply reply;
    if (!remo__rpc_slot_is_orphaned(transport, call->own.slot))
        return false;
    if (remo__rpc_slot_probe(transport, call->own.slot, image, &reply)) {
        take_reply(transport, call, &reply);
        return true;
    }
    leave_slot(transport, call);
    remo__rpc_slot_abandon(transport, call->own.slot, true);
    end_call(call, -EHOSTDOWN, REMO_RPC_UNKNOWN, 0);
    return true;
}

/* End a call that was not sent. */
static bool end_queued(struct remo__rpc_transport *transport, struct remo_rpc_op *call, int status) {
    if (!remo__rpc_unqueue(transport, call))
        return false; /* it was sent meanwhile */
    end_call(call, status, REMO_RPC_NOT_SENT, 0);
    return true;
}

/* End the call if its reply has arrived, or cannot arrive. */
static bool check_call(struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    uint64_t image[REMO__RPC_REPLY_MAX / sizeof(uint64_t)];
    struct remo__rpc_reply reply;
    uint32_t state = __atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE);
    if (state == REMO__RPC_CALL_QUEUED)
        return remo__rpc_is_gone(transport, call->node) && end_queued(transport, call, -EHOSTDOWN);
    if (remo__likely(remo__rpc_slot_probe(transport, call->own.slot, image, &reply))) {
        take_reply(transport, call, &reply);
        return true;
    }
    return end_if_gone(transport, call, image);
}

/* End the call without a reply. */
static void give_up(struct remo__rpc_transport *transport, struct remo_rpc_op *call, int status) {
    uint32_t state = __atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE);
    if (state == REMO__RPC_CALL_QUEUED && end_queued(transport, call, status))
        return;
    leave_slot(transport, call);
    remo__rpc_slot_abandon(transport, call->own.slot, false);
    end_call(call, status, REMO_RPC_UNKNOWN, 0);
}

static bool is_in_flight(const struct remo_rpc_op *call) {
    return __atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE) != REMO__RPC_CALL_IDLE;
}

/* Return the status of a call that has ended, and set its sentence. */
static int report(const struct remo_rpc_op *call) {
    int status = call->status;
    uint32_t node = call->node, number = call->number;
    if (remo__likely(status >= 0))
        return status;
    if (call->fate == REMO_RPC_DONE && status != -EMSGSIZE)
        return remo__fail(status, "handler %u of node %u returned this error", number, node);
    switch (status) {
    case -EMSGSIZE:
        return remo__fail(status, "the reply of node %u has %zu bytes, the buffer %zu; use a larger buffer",
                          node, call->reply_bytes, call->reply_cap);
    case -ETIMEDOUT:
        return remo__fail(status, "node %u did not reply to call %u in time; %s", node, number,
                          call->fate == REMO_RPC_NOT_SENT ? "its handler does not run"
                                                          : "its handler may have run, or may run later");
    case -EHOSTDOWN:
        return remo__fail(status, "node %u, or the node to which it forwarded call %u, has failed or left",
                          node, number);
    case -ENOSYS:
        return remo__fail(status, "node %u has no handler %u; register it before the first call", node,
                          number);
    case -ENOTCONN: return remo__fail(status, "node %u has closed the service", node);
    default: return remo__fail(status, "the call of handler %u at node %u has ended", number, node);
    }
}

/* ---- calls with `done` ---- */

static void list_done(struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    (void)remo__mutex_lock(transport->node, &transport->calls_mutex, REMO_FOREVER);
    call->own.done_previous = NULL;
    call->own.done_next = transport->first_done;
    if (transport->first_done)
        transport->first_done->own.done_previous = call;
    transport->first_done = call;
    atomic_fetch_add(&transport->done_count, 1);
    if (call->own.deadline_ns != REMO_FOREVER)
        atomic_fetch_add(&transport->timed_count, 1);
    remo__mutex_unlock(transport->node, &transport->calls_mutex);
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

static void unlist(struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    (void)remo__mutex_lock(transport->node, &transport->calls_mutex, REMO_FOREVER);
    unlist_locked(transport, call);
    remo__mutex_unlock(transport->node, &transport->calls_mutex);
}

/* Return the call with `done` of a slot whose reply has arrived, or NULL. done_mutex is held, so no other
 * thread ends one. */
static struct remo_rpc_op *end_replied(struct remo__rpc_transport *transport, uint32_t slot) {
    struct remo_rpc_op *call = atomic_load(&transport->slot[slot].call);
    if (!call || __atomic_load_n(&call->own.state, __ATOMIC_SEQ_CST) != REMO__RPC_CALL_SENT
        || call->own.slot != slot || !check_call(transport, call))
        return NULL; /* a call that is not sent yet is marked again (remo__rpc_slot_recheck) */
    unlist(transport, call);
    return call;
}

static struct remo_rpc_op *next_replied(struct remo__rpc_transport *transport) {
    for (uint32_t first = 0; first < REMO__RPC_SLOTS_TOTAL; first += 64) {
        const _Atomic uint64_t *word =
            (void *)remo__rpc_own_state(transport, REMO__RPC_AT_ENDED + first / 64 * 8);
        uint64_t bits;
        while ((bits = atomic_load_explicit(word, memory_order_acquire)) != 0) {
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
    (void)remo__mutex_lock(transport->node, &transport->calls_mutex, REMO_FOREVER);
    for (call = transport->first_done; call; call = call->own.done_next) {
        if (__atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE) == REMO__RPC_CALL_STARTING)
            continue;
        is_over = check_call(transport, call);
        if (!is_over && call->own.deadline_ns != REMO_FOREVER && now >= call->own.deadline_ns) {
            give_up(transport, call, -ETIMEDOUT);
            is_over = true;
        }
        if (is_over)
            break;
    }
    if (is_over)
        unlist_locked(transport, call);
    remo__mutex_unlock(transport->node, &transport->calls_mutex);
    return is_over ? call : NULL;
}

static struct remo_rpc_op *next_done(struct remo__rpc_transport *transport) {
    struct remo_rpc_op *call = next_replied(transport);
    if (call || !atomic_exchange(&transport->must_scan, false))
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
    } while ((call && count < DONE_PER_TURN) || atomic_exchange(&transport->missed_done, false));
    if (count == DONE_PER_TURN)
        remo__rpc_request_look(transport);
    return count > 0;
}

/* Keep other threads from ending calls with `done`: acquire done_mutex, unless this thread holds it,
 * because it runs a callback. Returns whether the caller must release it. */
static bool hold_done(struct remo__rpc_transport *transport, const struct remo__thread *thread) {
    const struct remo__rpc_turn *turn = thread->handling;
    bool is_held = turn && turn->depth == 0;
    if (!is_held)
        (void)remo__mutex_lock(transport->node, &transport->done_mutex, REMO_FOREVER);
    return !is_held;
}

/* ---- start, wait, test, cancel ---- */

/* The call could not be started. */
static void discard_call(struct remo__rpc_transport *transport, struct remo__thread *thread,
                         struct remo_rpc_op *call, int status) {
    bool holds = call->done && hold_done(transport, thread);
    if (call->done)
        unlist(transport, call);
    end_call(call, status, REMO_RPC_NOT_SENT, 0);
    if (holds)
        remo__mutex_unlock(transport->node, &transport->done_mutex);
}

static inline int start_call(struct remo_rpc *rpc, struct remo__thread *thread, struct remo_rpc_op *call) {
    uint32_t depth, flags = call->done ? REMO__RPC_HAS_DONE : 0;
    int rc = find_depth(thread, &depth);
    if (remo__unlikely(rc != 0))
        return rc;
    call->own.rpc = rpc;
    if (remo__unlikely(thread->handling != NULL)) {
        const struct remo__rpc_turn *turn = thread->handling;
        call->own.deadline_ns = remo__min(call->own.deadline_ns, turn->deadline_ns);
    }
    call->own.head = remo__rpc_head_make(call->request_bytes, call->number, depth, 0, flags);
    call->own.rest = remo__rpc_rest(rpc, call->node, call->own.deadline_ns);
    call->fate = REMO_RPC_IN_FLIGHT;
    __atomic_store_n(&call->own.state, REMO__RPC_CALL_STARTING, __ATOMIC_RELAXED);
    if (remo__unlikely(call->done != NULL))
        list_done(rpc->transport, call);
    rc = remo__rpc_submit(thread, call);
    if (remo__unlikely(rc != 0))
        discard_call(rpc->transport, thread, call, rc);
    return rc;
}

int remo_rpc_start(struct remo_rpc *rpc, struct remo_rpc_op *call) {
    REMO__REQUIRE(rpc);
    REMO__REQUIRE(call);
    if (is_in_flight(call))
        return remo__fail(-EBUSY, "the call is in flight; wait until it has ended, or cancel it");
    call->fate = REMO_RPC_NOT_SENT;
    struct remo__thread *thread = remo__thread(rpc->node);
    if (!thread)
        return call->status = remo__last_code();
    int rc = remo__rpc_check_target(rpc, call->node, call->number, call->request, call->request_bytes);
    if (rc != 0)
        return call->status = rc;
    call->own.deadline_ns = remo__deadline(call->timeout_ns);
    return start_call(rpc, thread, call);
}

struct call_wait {
    struct remo__rpc_transport *transport;
    struct remo_rpc_op *call;
};

static int is_over(void *ctx) {
    const struct call_wait *wait = ctx;
    return check_call(wait->transport, wait->call);
}

static int fail_wait(void) {
    return remo__fail(-EDEADLK, "a handler, or a function `done`, must not wait for a call; set `done`, and "
                                "defer the reply");
}

static inline int wait_call(struct remo__rpc_transport *transport, struct remo__thread *thread,
                            struct remo_rpc_op *call) {
    struct call_wait wait = {transport, call};
    if (remo__rpc_wait(transport, thread, is_over, &wait, call->own.deadline_ns) != 0)
        give_up(transport, call, -ETIMEDOUT);
    return report(call);
}

static int check_started(const struct remo_rpc_op *call) {
    if (!call || !call->own.rpc)
        return remo__fail(-EINVAL, "cannot wait for a call: it is NULL, or was never started");
    return 0;
}

int remo_rpc_wait(struct remo_rpc_op *call) {
    int rc = check_started(call);
    if (rc != 0)
        return rc;
    if (call->done)
        return remo__fail(-EINVAL, "cannot wait for a call with `done`: the function is called at its end");
    struct remo__thread *thread = remo__thread(call->own.rpc->node);
    if (!thread)
        return remo__last_code();
    if (!is_in_flight(call))
        return report(call);
    return thread->handling ? fail_wait() : wait_call(call->own.rpc->transport, thread, call);
}

int remo_rpc_test(struct remo_rpc_op *call) {
    int rc = check_started(call);
    if (rc != 0)
        return rc;
    struct remo__rpc_transport *transport = call->own.rpc->transport;
    struct remo__thread *thread = remo__thread(call->own.rpc->node);
    if (!thread)
        return remo__last_code();
    (void)remo__rpc_poll(transport, thread);
    if (!is_in_flight(call))
        return report(call);
    if (!call->done) {
        if (check_call(transport, call))
            return report(call);
        if (remo__remaining_ns(call->own.deadline_ns) == 0) {
            give_up(transport, call, -ETIMEDOUT);
            return report(call);
        }
    }
    return remo__fail_static(-EINPROGRESS, "the call has not ended");
}

static void cancel_done(struct remo__rpc_transport *transport, const struct remo__thread *thread,
                        struct remo_rpc_op *call) {
    bool holds = hold_done(transport, thread);
    if (is_in_flight(call)) {
        unlist(transport, call);
        give_up(transport, call, -ECANCELED);
    }
    if (holds)
        remo__mutex_unlock(transport->node, &transport->done_mutex);
}

void remo_rpc_cancel(struct remo_rpc_op *call) {
    if (!call || !call->own.rpc)
        return;
    struct remo__rpc_transport *transport = call->own.rpc->transport;
    struct remo__thread *thread = remo__thread(call->own.rpc->node);
    if (!thread)
        return;
    if (call->done)
        cancel_done(transport, thread, call);
    else if (is_in_flight(call))
        give_up(transport, call, -ECANCELED);
}

/* ---- call, post, serve ---- */

struct target {
    const struct remo_rpc *rpc;
    uint32_t node;
};

static int is_connected(void *ctx) {
    const struct target *target = ctx;
    int rc = check_connected(target->rpc, target->node);
    return rc == 0 ? 1 : rc == -EAGAIN ? 0 : rc;
}

/* Wait until the node has opened the service. */
static int await_target(struct remo_rpc *rpc, struct remo__thread *thread, uint32_t node,
                        uint64_t deadline_ns) {
    struct target target = {rpc, node};
    int rc = remo__rpc_wait(rpc->transport, thread, is_connected, &target, deadline_ns);
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "node %u has not opened service %s", node, remo_channel_name(rpc->channel));
    return rc;
}

int remo_rpc_call(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *request,
                  size_t request_bytes, void *reply, size_t cap, size_t *ret_reply_bytes,
                  uint64_t timeout_ns) {
    REMO__REQUIRE(rpc);
    struct remo__thread *thread = remo__thread(rpc->node);
    if (remo__unlikely(!thread))
        return remo__last_code();
    int rc = check_arguments(rpc, node, number, request, request_bytes);
    if (rc == 0 && remo__unlikely(thread->handling != NULL))
        rc = fail_wait();
    if (remo__unlikely(rc != 0))
        return rc;
    uint64_t deadline_ns = remo__deadline(timeout_ns);
    rc = check_connected(rpc, node);
    if (remo__unlikely(rc == -EAGAIN))
        rc = await_target(rpc, thread, node, deadline_ns);
    if (remo__unlikely(rc != 0))
        return rc;
    struct remo_rpc_op call = {.node = node,
                               .number = number,
                               .request = request,
                               .request_bytes = request_bytes,
                               .reply = reply,
                               .reply_cap = cap};
    call.own.deadline_ns = deadline_ns;
    rc = start_call(rpc, thread, &call);
    if (remo__unlikely(rc != 0))
        return rc;
    rc = wait_call(rpc->transport, thread, &call);
    if (ret_reply_bytes && (rc >= 0 || call.fate == REMO_RPC_DONE))
        *ret_reply_bytes = call.reply_bytes;
    return rc;
}

struct post {
    struct remo_rpc *rpc;
    struct remo__thread *thread;
    uint32_t node;
    struct remo__rpc_words words;
    const void *data;
};

static int try_post(void *ctx) {
    const struct post *post = ctx;
    return remo__rpc_send_message(post->thread, post->rpc, post->node, post->words, post->data,
                                  post->thread->handling != NULL);
}

int remo_rpc_post(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data, size_t bytes) {
    REMO__REQUIRE(rpc);
    uint32_t depth;
    struct remo__thread *thread = remo__thread(rpc->node);
    if (!thread)
        return remo__last_code();
    int rc = remo__rpc_check_target(rpc, node, number, data, bytes);
    if (rc == 0)
        rc = find_depth(thread, &depth);
    if (rc != 0)
        return rc;
    struct post post = {
        .rpc = rpc,
        .thread = thread,
        .node = node,
        .words = {.head = remo__rpc_head_make(bytes, number, depth, 0, REMO__RPC_POST),
                  .call = remo__rpc_call_make(rpc->transport->rank, 0, 0),
                  .rest = remo__rpc_rest(rpc, node, REMO_FOREVER)},
        .data = data,
    };
    rc = try_post(&post);
    if (rc == 0)
        rc =
            remo__rpc_wait(rpc->transport, thread, try_post, &post, remo__deadline(rpc->node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "the ring of this node at node %u is full; nothing was sent", node);
    return rc > 0 ? 0 : rc;
}

static int never(void *ctx) {
    (void)ctx;
    return 0;
}

int remo_rpc_serve(struct remo_rpc *rpc, uint64_t timeout_ns) {
    REMO__REQUIRE(rpc);
    struct remo__thread *thread = remo__thread(rpc->node);
    if (!thread)
        return remo__last_code();
    if (thread->handling)
        return fail_wait();
    int rc = remo__rpc_wait(rpc->transport, thread, never, NULL, remo__deadline(timeout_ns));
    return rc == -ETIMEDOUT ? 0 : rc;
}
