/* call.c - the side of the caller: starts calls and posts, waits for calls, and cancels them.
 * Invariant: a thread that runs a handler or a `done` function never waits here. */
#include <limits.h>

#include "objects/rpc/rpc.h"

/* Set *ret_depth to the depth of a call in the handler of `turn`; NULL: outside handlers. */
static inline int find_depth(const struct remo__rpc_turn *turn, uint32_t *ret_depth) {
    *ret_depth = 1 + (turn ? turn->depth : 0);
    if (remo__likely(*ret_depth <= REMO_RPC_DEPTH_MAX))
        return 0;
    return remo__fail(-ELOOP,
                      "cannot send: the handler is at depth %u, and the maximum is %u; break the cycle of "
                      "handlers that call each other",
                      *ret_depth - 1, REMO_RPC_DEPTH_MAX);
}

/* Return the status of a call that has ended, and set its sentence. */
static int report(const struct remo_rpc_op *call) {
    int status = call->status;
    uint32_t node = call->node, number = call->number;
    if (remo__likely(status >= 0))
        return status;
    if (call->fate == REMO_RPC_DONE && (status != -EMSGSIZE || call->reply_bytes <= call->reply_cap))
        return remo__fail(status, "handler %u, called at node %u, replied with this error", number, node);
    switch (status) {
    case -EMSGSIZE:
        if (call->fate == REMO_RPC_NOT_SENT && call->request_bytes > REMO__RPC_LARGE_MAX)
            return remo__fail(status, "a request of %zu bytes is too long: the maximum is %u; divide it",
                              call->request_bytes, REMO__RPC_LARGE_MAX);
        if (call->fate == REMO_RPC_NOT_SENT)
            return remo__fail(status,
                              "handler %u of node %u is SHORT, and takes at most %u bytes: the request has "
                              "%zu, or is in a place; register the handler as LONG",
                              number, node, REMO__RPC_DATA_MAX, call->request_bytes);
        return remo__fail(status, "the reply of node %u has %zu bytes, the buffer %zu; use a larger buffer",
                          node, call->reply_bytes, call->reply_cap);
    case -ETIMEDOUT:
        return remo__fail(status, "no reply from handler %u of node %u in time; %s", number, node,
                          call->fate == REMO_RPC_NOT_SENT ? "the request was not executed"
                                                          : "the handler may have run, or may run later");
    case -EHOSTDOWN:
        return remo__fail(status,
                          "the call of handler %u at node %u failed: that node, or a node to which it "
                          "forwarded the request, has failed or left",
                          number, node);
    case -ENOSYS:
        return remo__fail(status,
                          "node %u has no handler %u, or forwarded the request to a node without its "
                          "handler; register handlers before the first call",
                          node, number);
    case -EPROTO:
        return remo__fail(status,
                          "the call of handler %u at node %u failed: its request or its reply was malformed; "
                          "start all nodes from the same build",
                          number, node);
    case -ENOTCONN:
        return remo__fail(
            status, "node %u, or a node to which it forwarded the request, has closed the service", node);
    default:
        return remo__fail(status, "the call of handler %u at node %u ended with this error", number, node);
    }
}

/* ---- start ---- */

/* The call could not be started. */
static void discard_call(struct remo__rpc_transport *transport, struct remo__thread *thread,
                         struct remo_rpc_op *call, int status) {
    bool holds = call->done && remo__rpc_hold_done(transport, thread);
    if (call->done)
        remo__rpc_unlist(transport, call);
    remo__rpc_end_call(call, status, REMO_RPC_NOT_SENT, 0);
    if (holds)
        remo__mutex_unlock(transport->node, &transport->done_mutex);
}

/* Start a call whose deadline and `wake` are set. */
static inline int start_at_depth(struct remo_rpc *rpc, struct remo__thread *thread, struct remo_rpc_op *call,
                                 uint32_t depth) {
    uint32_t flags = call->done ? REMO__RPC_HAS_DONE : 0;
    call->own.rpc = rpc;
    call->own.head = remo__rpc_head_make(call->request_bytes & 0xffff, call->number, depth, 0, flags);
    call->own.serial = 0;
    int rc = remo__unlikely(remo__rpc_is_large(call)) ? remo__rpc_large_prepare(rpc->transport, call) : 0;
    if (remo__unlikely(rc != 0))
        return call->status = rc;
    call->own.rest = remo__rpc_rest(rpc, call->node, call->own.deadline_ns);
    call->fate = REMO_RPC_IN_FLIGHT;
    __atomic_store_n(&call->own.state, REMO__RPC_CALL_STARTING, __ATOMIC_RELAXED);
    if (remo__unlikely(call->done != NULL))
        remo__rpc_list_done(rpc->transport, call);
    rc = remo__rpc_submit(thread, call);
    if (remo__unlikely(rc != 0))
        discard_call(rpc->transport, thread, call, rc);
    return rc;
}

static inline int start_call(struct remo_rpc *rpc, struct remo__thread *thread, struct remo_rpc_op *call) {
    const struct remo__rpc_turn *turn = remo__rpc_turn_of(rpc->transport, thread);
    uint32_t depth;
    int rc = find_depth(turn, &depth);
    if (remo__unlikely(rc != 0))
        return call->status = rc;
    if (remo__unlikely(turn != NULL))
        call->own.deadline_ns = remo__min(call->own.deadline_ns, turn->deadline_ns);
    return start_at_depth(rpc, thread, call, depth);
}

int remo_rpc_start(struct remo_rpc *rpc, struct remo_rpc_op *call) {
    REMO__REQUIRE(rpc);
    REMO__REQUIRE(call);
    if (remo__rpc_is_in_flight(call))
        return remo__fail(-EBUSY, "the call is in flight; wait until it has ended, or cancel it");
    call->fate = REMO_RPC_NOT_SENT;
    struct remo__thread *thread = remo__thread(rpc->node);
    if (!thread)
        return call->status = remo__last_code();
    bool is_large = remo__rpc_is_large(call); /* then remo__rpc_large_prepare checks the data */
    int rc = remo__rpc_check_target(rpc, call->node, call->number, is_large ? NULL : call->request,
                                    is_large ? 0 : call->request_bytes);
    if (rc != 0)
        return call->status = rc;
    call->own.deadline_ns = remo__deadline(call->timeout_ns);
    call->own.wake = call->waits && !call->done ? REMO__RPC_WAKE_WAITS : REMO__RPC_WAKE_NOW;
    return start_call(rpc, thread, call);
}

/* ---- leaf calls ---- */

int remo__rpc_start_leaf(struct remo_rpc *rpc, struct remo_rpc_op *call) {
    struct remo__thread *thread = remo__thread(rpc->node);
    call->fate = REMO_RPC_NOT_SENT;
    int rc = thread
                 ? remo__rpc_check_target(rpc, call->node, call->number, call->request, call->request_bytes)
                 : remo__last_code();
    if (rc != 0)
        return call->status = rc;
    call->own.deadline_ns = REMO_FOREVER;
    call->own.wake = REMO__RPC_WAKE_NOW;
    return start_at_depth(rpc, thread, call, REMO__RPC_LEAF_DEPTH);
}

int remo__rpc_leaf_is_ready(const struct remo_rpc *rpc, uint32_t node) {
    struct remo__sentence before = remo__sentence_get();
    int rc = remo__rpc_check_connected(rpc, node);
    if (rc != 0 && rc != -EAGAIN && !remo__is_departure(rc))
        return rc;
    remo__sentence_put(before);
    /* Departed from the transport only: the node has restarted, and opened the service. It is not ready. */
    return rc == 0 || remo_channel_peer(rpc->channel, node) > REMO_CHANNEL_CONNECTED;
}

bool remo__rpc_leaf_has_ended(struct remo_rpc_op *call) {
    return !remo__rpc_is_in_flight(call) || remo__rpc_check_call(call->own.rpc->transport, call);
}

void remo__rpc_leaf_serve(struct remo_rpc *rpc) {
    struct remo__thread *thread = remo__thread(rpc->node);
    if (!thread || thread->handling)
        return;
    if (rpc->transport->mapped) {
        remo__rpc_serve_now(rpc->transport, thread);
    } else if (atomic_load(&rpc->transport->chores) > 0) {
        /* The service thread runs the handlers: here their replies could wait for writes of this thread. */
        struct remo__last_error discarded, *before = remo__errors_discard(&discarded);
        remo__rpc_do_chores(rpc->transport, thread);
        remo__errors_restore(before);
    }
}

bool remo__rpc_leaf_is_queued(const struct remo_rpc_op *call) {
    return __atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE) == REMO__RPC_CALL_QUEUED;
}

/* ---- wait, test, cancel ---- */

struct call_wait {
    struct remo__rpc_transport *transport;
    struct remo_rpc_op *call;
};

static int is_over(void *ctx) {
    const struct call_wait *wait = ctx;
    return remo__rpc_check_call(wait->transport, wait->call);
}

static int fail_wait(void) {
    return remo__fail(-EDEADLK, "a SHORT handler or a `done` function must not wait or serve; start a call "
                                "with `done` and defer the reply, or register the handler as LONG");
}

static int fail_in_progress(void) {
    return remo__fail_static(-EINPROGRESS, "the call has not ended");
}

static inline int wait_call(struct remo__rpc_transport *transport, struct remo__thread *thread,
                            struct remo_rpc_op *call) {
    struct call_wait wait = {transport, call};
    if (remo__rpc_wait_calls(transport, thread, is_over, &wait, &call, 1, call->own.deadline_ns) != 0)
        remo__rpc_abandon_call(transport, call, -ETIMEDOUT);
    return report(call);
}

static int check_started(const struct remo_rpc_op *call) {
    if (!call || !call->own.rpc)
        return remo__fail(-EINVAL, "cannot wait for a call: it is NULL, or was never started");
    return 0;
}

/* Return 0 if this thread, *ret_thread, may wait for the call. */
static int check_wait(const struct remo_rpc_op *call, struct remo__thread **ret_thread) {
    int rc = check_started(call);
    if (rc == 0 && call->done)
        rc = remo__fail(-EINVAL, "cannot wait for a call with `done`: the function is called at its end");
    if (rc != 0)
        return rc;
    *ret_thread = remo__thread(call->own.rpc->node);
    if (!*ret_thread)
        return remo__last_code();
    return (*ret_thread)->handling && remo__rpc_is_in_flight(call) ? fail_wait() : 0;
}

int remo_rpc_wait(struct remo_rpc_op *call) {
    struct remo__thread *thread;
    int rc = check_wait(call, &thread);
    if (rc != 0)
        return rc;
    return remo__rpc_is_in_flight(call) ? wait_call(call->own.rpc->transport, thread, call) : report(call);
}

int remo_rpc_wait_for(struct remo_rpc_op *call, uint64_t timeout_ns) {
    struct remo__thread *thread;
    int rc = check_wait(call, &thread);
    if (rc != 0)
        return rc;
    struct call_wait wait = {call->own.rpc->transport, call};
    if (remo__rpc_is_in_flight(call)
        && remo__rpc_wait_calls(wait.transport, thread, is_over, &wait, &call, 1, remo__deadline(timeout_ns))
               != 0)
        return fail_in_progress();
    return report(call);
}

struct calls_wait {
    struct remo__rpc_transport *transport;
    struct remo_rpc_op *const *calls;
    uint32_t count;
};

/* Check all of them: a reply that was taken frees its slot for a call that is queued. */
static int are_over(void *ctx) {
    const struct calls_wait *wait = ctx;
    int all = 1;
    for (uint32_t i = 0; i < wait->count; i++)
        if (remo__rpc_is_in_flight(wait->calls[i]) && !remo__rpc_check_call(wait->transport, wait->calls[i]))
            all = 0;
    return all;
}

/* Return the first deadline of the calls that have not ended. */
static uint64_t first_deadline(const struct calls_wait *wait) {
    uint64_t deadline_ns = REMO_FOREVER;
    for (uint32_t i = 0; i < wait->count; i++)
        if (remo__rpc_is_in_flight(wait->calls[i]))
            deadline_ns = remo__min(deadline_ns, wait->calls[i]->own.deadline_ns);
    return deadline_ns;
}

static void abandon_expired(const struct calls_wait *wait) {
    for (uint32_t i = 0; i < wait->count; i++)
        if (remo__rpc_is_in_flight(wait->calls[i])
            && remo__remaining_ns(wait->calls[i]->own.deadline_ns) == 0)
            remo__rpc_abandon_call(wait->transport, wait->calls[i], -ETIMEDOUT);
}

static int check_calls(struct remo_rpc_op *const *calls, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (!calls || check_started(calls[i]) != 0 || calls[i]->done
            || calls[i]->own.rpc->node != calls[0]->own.rpc->node)
            return remo__fail(-EINVAL,
                              "cannot wait for calls: one is NULL, has `done`, was never started, or "
                              "was started by another node");
    return 0;
}

int remo_rpc_wait_all(struct remo_rpc_op *const *calls, uint32_t count) {
    int rc = check_calls(calls, count);
    if (rc != 0 || count == 0)
        return rc;
    struct remo__thread *thread = remo__thread(calls[0]->own.rpc->node);
    struct calls_wait wait = {calls[0]->own.rpc->transport, calls, count};
    if (!thread)
        return remo__last_code();
    if (thread->handling && !are_over(&wait))
        return fail_wait();
    while (remo__rpc_wait_calls(wait.transport, thread, are_over, &wait, calls, count, first_deadline(&wait))
           != 0)
        abandon_expired(&wait);
    return 0;
}

/* Check all of them, as are_over. */
static int is_any_over(void *ctx) {
    const struct calls_wait *wait = ctx;
    int any = 0;
    for (uint32_t i = 0; i < wait->count; i++)
        if (!remo__rpc_is_in_flight(wait->calls[i]) || remo__rpc_check_call(wait->transport, wait->calls[i]))
            any = 1;
    return any;
}

int remo_rpc_wait_any(struct remo_rpc_op *const *calls, uint32_t count, uint64_t timeout_ns) {
    int rc = check_calls(calls, count);
    if (rc == 0 && (count == 0 || count > INT_MAX))
        rc = remo__fail(-EINVAL, "cannot wait for one of %u calls: the count is out of range; give 1 to %d",
                        count, INT_MAX);
    if (rc != 0)
        return rc;
    struct remo__thread *thread = remo__thread(calls[0]->own.rpc->node);
    struct calls_wait wait = {calls[0]->own.rpc->transport, calls, count};
    if (!thread)
        return remo__last_code();
    if (thread->handling && !is_any_over(&wait))
        return fail_wait();
    if (remo__rpc_wait_calls(wait.transport, thread, is_any_over, &wait, calls, count,
                             remo__deadline(timeout_ns))
        != 0)
        return remo__fail_static(-EINPROGRESS, "the wait has ended: no call has ended in time");
    uint32_t first = 0;
    while (first < count - 1 && remo__rpc_is_in_flight(calls[first]))
        first++;
    return (int)first;
}

int remo_rpc_test(struct remo_rpc_op *call) {
    int rc = check_started(call);
    if (rc == 0 && call->done)
        rc = remo__fail(-EINVAL, "cannot test a call with `done`: the function is called at its end");
    if (rc != 0)
        return rc;
    struct remo__rpc_transport *transport = call->own.rpc->transport;
    struct remo__thread *thread = remo__thread(call->own.rpc->node);
    if (!thread)
        return remo__last_code();
    remo__rpc_wake_late(transport, thread, call); /* the thread may not wait soon */
    (void)remo__rpc_poll(transport, thread);
    if (!remo__rpc_is_in_flight(call))
        return report(call);
    if (remo__rpc_check_call(transport, call))
        return report(call);
    if (remo__remaining_ns(call->own.deadline_ns) == 0) {
        remo__rpc_abandon_call(transport, call, -ETIMEDOUT);
        return report(call);
    }
    return fail_in_progress();
}

static void cancel_done(struct remo__rpc_transport *transport, const struct remo__thread *thread,
                        struct remo_rpc_op *call) {
    bool holds = remo__rpc_hold_done(transport, thread);
    if (remo__rpc_is_in_flight(call)) {
        remo__rpc_unlist(transport, call);
        remo__rpc_abandon_call(transport, call, -ECANCELED);
    }
    if (holds)
        remo__mutex_unlock(transport->node, &transport->done_mutex);
}

void remo_rpc_cancel(struct remo_rpc_op *call) {
    if (!call || !call->own.rpc)
        return;
    struct remo__rpc_transport *transport = call->own.rpc->transport;
    struct remo__thread *thread = remo__thread(call->own.rpc->node);
    if (call->done) {
        if (thread)
            cancel_done(transport, thread, call);
    } else if (remo__rpc_is_in_flight(call)) {
        if (thread)
            remo__rpc_wake_late(transport, thread, call); /* the late reply frees the slot */
        remo__rpc_abandon_call(transport, call, -ECANCELED);
    }
}

/* ---- settle ---- */

/* Return 1 if the late reply to the call has arrived, 0 if not. The state is loaded first: if the slot was
 * taken meanwhile, it has another serial. */
static int is_settled(void *ctx) {
    const struct call_wait *wait = ctx;
    const struct remo__rpc_slot *slot = &wait->transport->slot[wait->call->own.slot];
    remo__rpc_slots_reclaim(wait->transport);
    uint8_t state = atomic_load(&slot->state);
    if (atomic_load(&slot->serial) != wait->call->own.serial || state == REMO__RPC_SLOT_FREE)
        return 1;
    if (state != REMO__RPC_SLOT_LOST)
        return 0;
    return remo__fail(
        -EHOSTDOWN,
        "a node that had the call of handler %u at node %u has failed or left, and may still use "
        "the places of the call: do not use them again before this node closes",
        wait->call->number, wait->call->node);
}

int remo_rpc_settle(struct remo_rpc_op *call, uint64_t timeout_ns) {
    if (!call)
        return remo__fail(-EINVAL, "cannot settle a call: it is NULL");
    if (remo__rpc_is_in_flight(call))
        return remo__fail(-EBUSY, "the call is in flight; wait until it has ended, or cancel it");
    if (call->own.serial == 0)
        return 0;
    struct remo__thread *thread = remo__thread(call->own.rpc->node);
    struct call_wait wait = {call->own.rpc->transport, call};
    if (!thread)
        return remo__last_code();
    int rc = is_settled(&wait);
    if (rc == 0 && timeout_ns > 0 && thread->handling)
        return fail_wait();
    if (rc == 0)
        rc = timeout_ns == 0
                 ? -ETIMEDOUT
                 : remo__rpc_wait(wait.transport, thread, is_settled, &wait, remo__deadline(timeout_ns));
    else
        rc = rc > 0 ? 0 : rc;
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "node %u may still use the places of the call of handler %u: settle it later",
                          call->node, call->number);
    return rc;
}

/* ---- call, post, serve ---- */

struct target {
    const struct remo_rpc *rpc;
    uint32_t node;
};

static int is_connected(void *ctx) {
    const struct target *target = ctx;
    int rc = remo__rpc_check_connected(target->rpc, target->node);
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

/* Set what a call without `done` uses: to clear the struct takes as long as to start the call. */
static inline void set_call(struct remo_rpc_op *call, uint32_t node, uint32_t number, const void *request,
                            size_t request_bytes, void *reply, size_t cap) {
    call->node = node;
    call->number = number;
    call->request = request;
    call->request_bytes = request_bytes;
    call->reply = reply;
    call->reply_cap = cap;
    call->request_place.word = call->reply_place.word = 0;
    call->done = NULL;
    call->own.block = NULL;
}

int remo_rpc_call(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *request,
                  size_t request_bytes, void *reply, size_t cap, size_t *ret_reply_bytes,
                  uint64_t timeout_ns) {
    REMO__REQUIRE(rpc);
    struct remo__thread *thread = remo__thread(rpc->node);
    if (remo__unlikely(!thread))
        return remo__last_code();
    bool is_large = request_bytes > REMO__RPC_DATA_MAX; /* remo__rpc_large_prepare checks the data */
    int rc = remo__rpc_check_arguments(rpc, node, number, request, is_large ? 0 : request_bytes);
    if (rc == 0 && remo__unlikely(thread->handling != NULL))
        rc = fail_wait();
    if (remo__unlikely(rc != 0))
        return rc;
    uint64_t deadline_ns = remo__deadline(timeout_ns);
    rc = remo__rpc_check_connected(rpc, node);
    if (remo__unlikely(rc == -EAGAIN)) {
        const struct remo__rpc_turn *turn = remo__rpc_turn_of(rpc->transport, thread);
        deadline_ns = turn ? remo__min(deadline_ns, turn->deadline_ns) : deadline_ns;
        rc = await_target(rpc, thread, node, deadline_ns);
    }
    if (remo__unlikely(rc != 0))
        return rc;
    struct remo_rpc_op call;
    set_call(&call, node, number, request, request_bytes, reply, cap);
    call.own.deadline_ns = deadline_ns;
    call.own.wake = REMO__RPC_WAKE_WAITS;
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
    bool queues; /* instead of a wait for room */
};

static int try_post(void *ctx) {
    const struct post *post = ctx;
    return remo__rpc_send_message(post->thread, post->rpc, post->node, post->words, post->data, post->queues);
}

/* Send a post, or queue it if it `queues`. Returns 1, 0 (no room), or an error. */
static int start_post(struct post *post, uint32_t number, size_t bytes) {
    struct remo_rpc *rpc = post->rpc;
    uint32_t depth;
    post->thread = remo__thread(rpc->node);
    if (!post->thread)
        return remo__last_code();
    int rc = remo__rpc_check_target(rpc, post->node, number, post->data, bytes);
    if (rc == 0)
        rc = find_depth(remo__rpc_turn_of(rpc->transport, post->thread), &depth);
    if (rc != 0)
        return rc;
    post->queues |= post->thread->handling != NULL;
    post->words =
        (struct remo__rpc_words){.head = remo__rpc_head_make(bytes, number, depth, 0, REMO__RPC_POST),
                                 .call = remo__rpc_call_make(rpc->transport->rank, 0, 0),
                                 .rest = remo__rpc_rest(rpc, post->node, REMO_FOREVER)};
    return try_post(post);
}

int remo_rpc_post(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data, size_t bytes) {
    REMO__REQUIRE(rpc);
    struct post post = {.rpc = rpc, .node = node, .data = data};
    int rc = start_post(&post, number, bytes);
    if (rc == 0)
        rc = remo__rpc_wait(rpc->transport, post.thread, try_post, &post,
                            remo__deadline(rpc->node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "this node's ring at node %u is full; nothing was sent", node);
    return rc > 0 ? 0 : rc;
}

int remo_rpc_post_queued(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data,
                         size_t bytes) {
    REMO__REQUIRE(rpc);
    struct post post = {.rpc = rpc, .node = node, .data = data, .queues = true};
    int rc = start_post(&post, number, bytes);
    return rc > 0 ? 0 : rc;
}

uint64_t remo_rpc_remaining_ns(const struct remo_rpc *rpc) {
    const struct remo__thread *thread = rpc ? remo__thread(rpc->node) : NULL;
    const struct remo__rpc_turn *turn = thread ? remo__rpc_turn_of(rpc->transport, thread) : NULL;
    return turn ? remo__remaining_ns(turn->deadline_ns) : REMO_FOREVER;
}

static uint32_t count_late(const struct remo__rpc_transport *transport, uint32_t depth) {
    uint32_t count = 0;
    for (uint32_t node = 0; node < transport->size; node++)
        count += atomic_load(&transport->peers[node].retired[depth - 1]);
    return count;
}

uint32_t remo_rpc_late_count(const struct remo_rpc *rpc) {
    struct remo__thread *thread = rpc ? remo__thread(rpc->node) : NULL;
    if (!thread || atomic_load(&rpc->transport->retired_count) == 0)
        return 0;
    const struct remo__rpc_turn *turn = remo__rpc_turn_of(rpc->transport, thread);
    remo__rpc_slots_reclaim(rpc->transport);
    return count_late(rpc->transport, remo__min(turn ? turn->depth + 1 : 1, REMO_RPC_DEPTH_MAX));
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
    if (remo__unlikely(thread->handling != NULL))
        return timeout_ns == 0 ? 0 : fail_wait();
    if (timeout_ns == 0 && rpc->transport->mapped) {
        remo__rpc_serve_now(rpc->transport, thread);
        return 0;
    }
    int rc = remo__rpc_wait(rpc->transport, thread, never, NULL, remo__deadline(timeout_ns));
    return rc == -ETIMEDOUT ? 0 : rc;
}
