/* window.c - operations in flight: each thread or task has a list of them, its window, which its polls
 * advance. Invariant: an operation is in the list while its status is -EINPROGRESS. If a change of a key of
 * another node has no call in flight, the owner has not made it, and a later poll calls the owner: the change
 * was not called yet, or scans have delayed it. */
#include <errno.h>
#include <stdlib.h>

#include "systems/tree/tree.h"

#ifdef REMO_SIM_SMALL
#define CALLS_MAX 2u
#else
#define CALLS_MAX 64u /* in flight, of a thread with its tasks */
#endif
#define WAIT_NS REMO__NS_PER_MS /* for one call, until the replies to others are taken too */

/* The contents of remo_tree_op.internal. */
struct op_state {
    struct remo_tree_op *next, *previous;
    struct tree_window *window;
    struct tree_call *call; /* in flight; NULL: none */
    uint64_t deadline_ns;   /* of a change that was delayed; 0: none */
    uint64_t retry_ns;      /* when to try it again */
    uint32_t owner;         /* of the key of a change */
} __attribute__((may_alias));

_Static_assert(sizeof(struct op_state) <= sizeof((struct remo_tree_op *)0)->internal,
               "the state does not fit in remo_tree_op.internal");

/* A window that its thread or task advances. */
struct advance {
    struct remo_tree *tree;
    struct tree_cache *cache;
    struct tree_window *window;
    const struct remo_tree_op *awaited; /* NULL: the call is a poll */
};

/* Return whether the operation that the caller awaits is complete. Then no other one is advanced: the
 * sentence of its error stays. */
static bool is_ended(const struct advance *advance) {
    return advance->awaited && advance->awaited->status != -EINPROGRESS;
}

static struct op_state *state_of(struct remo_tree_op *op) {
    return (struct op_state *)op->internal;
}

/* ---- windows ---- */

/* Find the window of the holder among all of the thread. With `is_start`, make one if there is none. NULL:
 * there is none; then the sentence is set if is_start. */
static __attribute__((noinline)) struct tree_window *
search_window(const struct remo_tree *tree, struct tree_cache *cache, uint32_t holder, bool is_start) {
    struct tree_window *unused = NULL, *window = cache->windows;
    for (; window && (window->holder != holder || window->count == 0); window = window->next)
        unused = window->count == 0 ? window : unused;
    if (window || !is_start)
        return window;
    window = unused ? unused : malloc(sizeof *window);
    if (!window) {
        remo__fail(-ENOMEM, "no memory for a window of tree %s", remo_channel_name(tree->channel));
        return NULL;
    }
    struct tree_window *next = unused ? unused->next : cache->windows;
    *window = (struct tree_window){.next = next, .holder = holder};
    if (!unused)
        cache->windows = window;
    return window;
}

/* Return the window of the calling thread or task, as search_window does. A thread without tasks has one
 * window. */
static inline struct tree_window *find_window(const struct remo_tree *tree, struct tree_cache *cache,
                                              bool is_start) {
    uint32_t holder = remo__thread(tree->node)->holder;
    struct tree_window *window = cache->windows;
    bool is_first = window && window->holder == holder && window->count > 0;
    return remo__likely(is_first) ? window : search_window(tree, cache, holder, is_start);
}

static void add_op(struct tree_window *window, struct remo_tree_op *op, uint32_t owner) {
    *state_of(op) = (struct op_state){.previous = window->last, .window = window, .owner = owner};
    op->status = -EINPROGRESS;
    if (window->last)
        state_of(window->last)->next = op;
    else
        window->first = op;
    window->last = op;
    window->count++;
}

/* Remove the operation from the window, and set its status. */
static void complete_op(struct advance *advance, struct remo_tree_op *op, int status) {
    const struct op_state *state = state_of(op);
    struct tree_window *window = advance->window;
    if (state->previous)
        state_of(state->previous)->next = state->next;
    else
        window->first = state->next;
    if (state->next)
        state_of(state->next)->previous = state->previous;
    else
        window->last = state->previous;
    window->count--;
    op->status = status;
}

/* ---- changes ---- */

/* Return an unused call, or NULL: *ret_error is 0 if all are in flight. */
static struct tree_call *take_call(struct advance *advance, int *ret_error) {
    const struct remo_tree *tree = advance->tree;
    struct tree_cache *cache = advance->cache;
    struct tree_call *call = cache->calls;
    *ret_error = 0;
    if (call) {
        cache->calls = call->next;
        return call;
    }
    if (cache->calls_count == CALLS_MAX)
        return NULL;
    size_t request_bytes = sizeof(struct tree_request) + tree->key_bytes_max + 2 * tree->value_bytes_max;
    call = calloc(1, sizeof *call + remo__min(request_bytes, REMO_RPC_BYTES_MAX));
    if (call)
        cache->calls_count++;
    else
        *ret_error =
            remo__fail(-ENOMEM, "no memory for a request of tree %s", remo_channel_name(tree->channel));
    return call;
}

static void give_call(struct advance *advance, struct tree_call *call) {
    call->next = advance->cache->calls;
    advance->cache->calls = call;
}

static struct remo_tree_write write_of(const struct remo_tree_op *op) {
    return (struct remo_tree_write){.kind = op->kind,
                                    .key = {op->key, op->key_bytes},
                                    .value = {op->value, op->value_bytes},
                                    .expected = {op->expected, op->expected_bytes}};
}

/* The change was not made: try it again later, or complete it with `late` after op_timeout_ns. */
static void delay(struct advance *advance, struct remo_tree_op *op,
                  int (*late)(const struct remo_tree *tree, uint32_t owner)) {
    struct op_state *state = state_of(op);
    if (state->deadline_ns == 0)
        state->deadline_ns = remo__deadline(advance->tree->node->op_timeout_ns);
    state->retry_ns = remo__deadline(TREE_FROZEN_PAUSE_NS);
    if (remo__remaining_ns(state->deadline_ns) == 0)
        complete_op(advance, op, late(advance->tree, state->owner));
}

static int fail_closed(const struct remo_tree *tree, uint32_t owner) {
    return remo__fail(-ETIMEDOUT,
                      "cannot change tree %s: node %u has not opened it; wait with remo_channel_wait",
                      remo_channel_name(tree->channel), owner);
}

/* An attempt has ended with `rc`, the code of the change or TREE_FROZEN. */
static void end_attempt(struct advance *advance, struct remo_tree_op *op, int rc) {
    if (rc == TREE_FROZEN)
        delay(advance, op, remo__tree_fail_frozen);
    else
        complete_op(advance, op, rc);
}

/* Start the call of a change. If all calls are in flight, a later poll starts it. */
static void start_call(struct advance *advance, struct remo_tree_op *op, const struct tree_write *write) {
    struct remo_tree *tree = advance->tree;
    struct op_state *state = state_of(op);
    int rc;
    struct tree_call *call = take_call(advance, &rc);
    if (!call) {
        if (rc != 0)
            complete_op(advance, op, rc);
        return;
    }
    call->rpc = (struct remo_rpc_op){.node = state->owner,
                                     .number = TREE_CHANGE,
                                     .request = call->request,
                                     .request_bytes = remo__tree_encode_change(write, call->request),
                                     .timeout_ns = tree->node->op_timeout_ns};
    rc = remo_rpc_start(tree->rpc, &call->rpc);
    if (rc == 0) {
        state->call = call;
        return;
    }
    give_call(advance, call);
    if (rc == -EAGAIN)
        delay(advance, op, fail_closed);
    else
        complete_op(advance, op, rc);
}

/* Try a change that has no call in flight. */
static void try_change(struct advance *advance, struct remo_tree_op *op) {
    const struct op_state *state = state_of(op);
    const struct remo_tree_write from = write_of(op);
    struct tree_write write;
    if (state->deadline_ns != 0 && remo__remaining_ns(state->retry_ns) > 0)
        return;
    int rc = remo__tree_take_change(advance->tree, &from, &write);
    if (rc != 0)
        complete_op(advance, op, rc);
    else if (state->owner == advance->tree->node->rank)
        end_attempt(advance, op, remo__tree_change_own(advance->tree, &write));
    else
        start_call(advance, op, &write);
}

/* Complete the change if its owner has replied. */
static void test_call(struct advance *advance, struct remo_tree_op *op) {
    struct op_state *state = state_of(op);
    struct remo__sentence before = remo__sentence_get();
    int rc = remo_rpc_test(&state->call->rpc);
    if (rc == -EINPROGRESS) {
        remo__sentence_put(before); /* it may explain an operation that this poll has completed */
        return;
    }
    give_call(advance, state->call);
    state->call = NULL;
    end_attempt(advance, op, remo__tree_end_call(advance->tree, rc, state->owner));
}

/* ---- gets ---- */

/* Make `count` gets. */
static void make_batch(struct advance *advance, struct remo_tree_op *const *ops, uint32_t count) {
    int statuses[TREE_WINDOW];
    int rc = count > 0 ? remo__tree_get_each(advance->tree, ops, statuses, count) : 0;
    for (uint32_t i = 0; i < count; i++)
        complete_op(advance, ops[i], rc != 0 ? rc : statuses[i]);
}

/* Make the gets of the window, TREE_WINDOW at a time. The one that the caller awaits is the last of its
 * batch, so that its sentence is the last one. */
static void make_gets(struct advance *advance) {
    struct remo_tree_op *ops[TREE_WINDOW], *next = advance->window->first;
    while (next && !is_ended(advance)) {
        uint32_t count = 0, last = 0;
        for (; next && count < TREE_WINDOW; next = state_of(next)->next) {
            if (next->kind != REMO_TREE_GET)
                continue;
            last = next == advance->awaited ? count : last;
            ops[count++] = next;
        }
        if (count > 0 && ops[last] == advance->awaited) {
            struct remo_tree_op *awaited = ops[last];
            ops[last] = ops[count - 1];
            ops[count - 1] = awaited;
        }
        make_batch(advance, ops, count);
    }
}

/* ---- the calls ---- */

/* Advance all operations: first the changes start, so that their calls overlap with the reads of gets. */
static void advance_all(struct advance *advance) {
    struct remo_tree_op *next;
    bool has_gets = false;
    for (struct remo_tree_op *op = advance->window->first; op && !is_ended(advance); op = next) {
        next = state_of(op)->next;
        if (op->kind == REMO_TREE_GET)
            has_gets = true;
        else if (!state_of(op)->call)
            try_change(advance, op);
    }
    if (has_gets)
        make_gets(advance);
    for (struct remo_tree_op *op = advance->window->first; op && !is_ended(advance); op = next) {
        next = state_of(op)->next;
        if (state_of(op)->call)
            test_call(advance, op);
    }
}

static int check_get(const struct remo_tree *tree, const struct remo_tree_op *op) {
    int rc = remo__tree_check_key(tree, op->key, op->key_bytes);
    if (rc == 0 && !op->value && op->value_bytes > 0)
        rc = remo__fail(-EINVAL, "the value of a get from tree %s is NULL", remo_channel_name(tree->channel));
    return rc == 0 ? remo__tree_check_options(tree) : rc;
}

static int check_change(struct remo_tree *tree, const struct remo_tree_op *op) {
    const struct remo_tree_write from = write_of(op);
    struct tree_write write;
    return remo__tree_take_change(tree, &from, &write);
}

static int start(struct remo_tree *tree, struct remo_tree_op *op) {
    bool is_get = op->kind == REMO_TREE_GET;
    int rc = is_get ? check_get(tree, op) : check_change(tree, op);
    if (rc != 0)
        return rc;
    struct tree_cache *cache = remo__tree_cache(tree);
    struct tree_window *window = cache ? find_window(tree, cache, true) : NULL;
    if (!window)
        return remo__last_code();
    add_op(window, op, is_get ? 0 : remo_tree_owner(tree, op->key, op->key_bytes)); /* a get needs no owner */
    return 0;
}

int remo_tree_start(struct remo_tree *tree, struct remo_tree_op *op) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(op);
    int rc = start(tree, op);
    if (rc != 0)
        op->status = rc;
    return rc;
}

int remo_tree_poll(struct remo_tree *tree) {
    REMO__REQUIRE(tree);
    struct advance advance = {.tree = tree, .cache = remo__tree_cache(tree)};
    if (!advance.cache)
        return remo__last_code();
    advance.window = find_window(tree, advance.cache, false);
    if (!advance.window)
        return 0;
    advance_all(&advance);
    return (int)advance.window->count;
}

/* Wait until a call has ended that the operation probably needs: its own, or another one if all are in
 * flight. */
static void wait_for_call(const struct advance *advance, struct remo_tree_op *op) {
    struct remo_tree_op *called = op;
    bool is_delayed = state_of(op)->deadline_ns != 0;
    if (!state_of(op)->call)
        for (called = advance->window->first; called && !state_of(called)->call;)
            called = state_of(called)->next;
    if (called && (called == op || !is_delayed))
        (void)remo_rpc_wait_for(&state_of(called)->call->rpc, WAIT_NS);
    else
        remo__pause(advance->tree->node, remo__deadline(TREE_FROZEN_PAUSE_NS));
}

static int wait(struct advance *advance, struct remo_tree_op *op) {
    if (!advance->window || state_of(op)->window != advance->window)
        return remo__fail_static(-EPERM,
                                 "cannot wait for the operation: another thread or task has started it");
    for (;;) {
        advance_all(advance);
        if (op->status != -EINPROGRESS)
            break;
        wait_for_call(advance, op);
    }
    return op->status;
}

int remo_tree_wait(struct remo_tree *tree, struct remo_tree_op *op) {
    REMO__REQUIRE(tree);
    REMO__REQUIRE(op);
    struct advance advance = {.tree = tree, .cache = remo__tree_cache(tree), .awaited = op};
    if (!advance.cache)
        return remo__last_code();
    if (op->status != -EINPROGRESS)
        return op->status;
    advance.window = find_window(tree, advance.cache, false);
    return wait(&advance, op);
}
