/* wait.c - the wait of a transaction until a key that it has read may have changed, at the node that runs it
 * (tx.h). docs/internals/tx.md, Waiting. Invariants: while the thread sleeps, it has a call in flight to each
 * owner of these keys, including this node. The owner compares the keys with what was read, so no change is
 * missed. A number is used again only if each owner has replied, or an UNWATCH precedes its next WATCH. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "systems/tx/tx.h"

#define PAUSE_NS_MAX UINT64_C(1000000) /* if no watch can be set now */

/* ---- what the spaces of a node share ---- */

static const char node_key;

static void close_shared(struct remo__shared *shared) {
    free(remo__container_of(shared, struct remo__tx_node, shared));
}

static int open_shared(struct remo_node *node, struct remo__shared **ret_shared) {
    (void)node;
    struct remo__tx_node *shared = calloc(1, sizeof *shared);
    if (!shared)
        return remo__fail(-ENOMEM, "no memory for transactions that wait");
    shared->shared.close = close_shared;
    *ret_shared = &shared->shared;
    return 0;
}

/* ---- entries ---- */

int remo__tx_open_waits(struct remo_tx_space *space) {
    struct remo__shared *shared;
    int rc = remo__shared_get(space->node, &node_key, open_shared, &shared);
    if (rc != 0)
        return rc;
    space->shared = remo__container_of(shared, struct remo__tx_node, shared);
    space->waits = calloc(REMO__TX_WAITS_MAX, sizeof *space->waits);
    if (!space->waits)
        return remo__fail(-ENOMEM, "no memory for a transaction space");
    for (uint32_t number = 0; number < REMO__TX_WAITS_MAX; number++)
        space->waits[number].header.number = number;
    return 0;
}

static void uncount_calls(struct remo_tx_space *space, uint32_t kind, uint32_t calls) {
    atomic_fetch_sub(&space->shared->calls[kind], calls);
}

/* Count `calls` calls as in flight, if there is room. A cancelled call counts as late before it stops
 * counting as in flight, so each call is counted at least once. */
static bool count_calls(struct remo_tx_space *space, uint32_t kind, uint32_t calls) {
    static const uint32_t limits[] = {REMO__TX_CALLS_MAX, REMO__TX_LONG_CALLS_MAX};
    static const uint32_t slots[] = {REMO__TX_SLOTS_MAX, REMO__TX_LONG_SLOTS_MAX};
    uint32_t count = atomic_fetch_add(&space->shared->calls[kind], calls) + calls;
    if (count <= limits[kind] && count + remo_rpc_late_count(space->rpc) <= slots[kind])
        return true;
    uncount_calls(space, kind, calls);
    return false;
}

static bool use_entry(struct remo__tx_wait *wait, uint32_t state) {
    return atomic_load_explicit(&wait->state, memory_order_relaxed) == state
           && atomic_compare_exchange_strong(&wait->state, &state, REMO__TX_WAIT_USED);
}

/* Return an entry for a wait with `calls` calls, or NULL if there is none. */
static struct remo__tx_wait *take_entry(struct remo_tx_space *space, uint32_t calls) {
    uint32_t kind = remo__scheduler && remo__scheduler->running->handling; /* 1: in a LONG handler */
    if (!count_calls(space, kind, calls))
        return NULL;
    for (uint32_t number = 0; number < REMO__TX_WAITS_MAX; number++) {
        struct remo__tx_wait *wait = &space->waits[number];
        if (!use_entry(wait, REMO__TX_WAIT_FREE))
            continue;
        wait->kind = kind;
        wait->owners_count = calls;
        wait->calls_count = 0;
        wait->owed = 0;
        wait->requests_bytes = 0;
        return wait;
    }
    uncount_calls(space, kind, calls);
    return NULL;
}

static void free_entry(struct remo_tx_space *space, struct remo__tx_wait *wait) {
    uint32_t kind = wait->kind, calls = wait->owners_count;
    atomic_store(&wait->state, REMO__TX_WAIT_FREE);
    uncount_calls(space, kind, calls);
}

void remo__tx_close_waits(struct remo_tx_space *space) {
    for (uint32_t number = 0; space->waits && number < REMO__TX_WAITS_MAX; number++)
        if (atomic_load(&space->waits[number].state) != REMO__TX_WAIT_FREE)
            free_entry(space, &space->waits[number]);
    free(space->waits);
}

/* ---- the owners ---- */

/* The owners of the keys that the transaction has read. */
struct owners {
    uint32_t count, nodes[REMO__TX_ITEMS_MAX];
};

static void add_owner(struct owners *owners, uint32_t node) {
    for (uint32_t i = 0; i < owners->count; i++)
        if (owners->nodes[i] == node)
            return;
    owners->nodes[owners->count++] = node;
}

/* Drop the changes of the transaction, and find the owners of the keys that it has read. */
static int find_owners(struct remo_tx *tx, struct owners *ret_owners) {
    bool has_own = false;
    *ret_owners = (struct owners){0};
    for (uint32_t i = 0; i < tx->items_count; i++) {
        struct remo__tx_item *item = &tx->items[i];
        item->is_changed = item->is_held = false;
        if (!remo__tx_is_used(item))
            continue;
        has_own |= item->owner == tx->space->node->rank;
        add_owner(ret_owners, item->owner);
    }
    if (ret_owners->count == 0)
        return remo__fail(-EINVAL, "cannot wait: the transaction has read no key, so no change can end the "
                                   "wait; read the keys that its result depends on first");
    return has_own ? remo__tx_check_shares(tx) : 0;
}

/* ---- watches ---- */

/* Append the request for an owner, and set *ret_at to its offset in `requests`. */
static int append_request(const struct remo_tx *tx, struct remo__tx_wait *wait, uint32_t owner,
                          size_t *ret_at) {
    uint8_t items[REMO__TX_ITEMS_MAX];
    size_t at = wait->requests_bytes;
    *ret_at = at;
    memcpy(wait->requests + at, &wait->header, sizeof wait->header);
    wait->requests_bytes += sizeof wait->header;
    int rc = remo__tx_request(tx, owner, true, wait->requests,
                              remo__min(at + REMO_RPC_BYTES_MAX, sizeof wait->requests),
                              &wait->requests_bytes, items);
    if (rc == -EMSGSIZE)
        return remo__fail(rc,
                          "cannot wait for keys of node %u: together they need more than %u bytes; read "
                          "fewer of them in one transaction",
                          owner, REMO_RPC_BYTES_MAX);
    return rc;
}

static int start_watch(const struct remo_tx *tx, struct remo__tx_wait *wait, uint32_t owner) {
    size_t at;
    int rc = append_request(tx, wait, owner, &at);
    if (rc != 0)
        return rc;
    struct remo_rpc_op *call = &wait->calls[wait->calls_count];
    *call = (struct remo_rpc_op){.node = owner,
                                 .number = REMO__TX_WATCH,
                                 .request = wait->requests + at,
                                 .request_bytes = wait->requests_bytes - at,
                                 .timeout_ns = REMO_FOREVER};
    wait->requests_bytes = remo__align_up(wait->requests_bytes, 8);
    rc = remo_rpc_start(tx->space->rpc, call);
    wait->calls_count += rc == 0;
    return rc;
}

/* ---- the end of watches ---- */

/* Cancel the calls in flight. The owner ends its watch by its reply, for which no thread waits. */
static void cancel_calls(struct remo__tx_wait *wait) {
    for (uint32_t i = 0; i < wait->calls_count; i++) {
        struct remo_rpc_op *call = &wait->calls[i];
        if (call->fate != REMO_RPC_IN_FLIGHT)
            continue;
        remo_rpc_cancel(call);
        if (call->fate != REMO_RPC_NOT_SENT)
            wait->owed |= UINT64_C(1) << i;
    }
}

/* Let the owners of cancelled calls end their watches, and free the entry. Never waits for room: calls to an
 * owner may be queued until it has replied to cancelled ones. Returns false if a post can be neither sent nor
 * queued now: the entry stays in use, so the number gets no other watch. */
static bool end_entry(struct remo_tx_space *space, struct remo__tx_wait *wait) {
    for (uint32_t i = 0; i < wait->calls_count; i++) {
        uint64_t bit = UINT64_C(1) << i;
        if (!(wait->owed & bit))
            continue;
        int rc = remo_rpc_post_queued(space->rpc, wait->calls[i].node, REMO__TX_UNWATCH, &wait->header,
                                      sizeof wait->header);
        if (rc == 0 || remo__is_departure(rc)) /* the watches of a node that was cut off end */
            wait->owed &= ~bit;
    }
    if (wait->owed == 0)
        free_entry(space, wait);
    return wait->owed == 0;
}

static void leave_entry(struct remo_tx_space *space, struct remo__tx_wait *wait) {
    atomic_fetch_add(&space->ending_waits, 1);
    atomic_store(&wait->state, REMO__TX_WAIT_ENDS);
    remo__request_sweeps(space->node);
}

bool remo__tx_sweep_waits(struct remo_tx_space *space) {
    for (uint32_t number = 0; number < REMO__TX_WAITS_MAX && atomic_load(&space->ending_waits) > 0;
         number++) {
        struct remo__tx_wait *wait = &space->waits[number];
        if (!use_entry(wait, REMO__TX_WAIT_ENDS))
            continue;
        if (end_entry(space, wait))
            atomic_fetch_sub(&space->ending_waits, 1);
        else
            atomic_store(&wait->state, REMO__TX_WAIT_ENDS);
    }
    return atomic_load(&space->ending_waits) > 0;
}

/* ---- wait ---- */

static int start_watches(const struct remo_tx *tx, struct remo__tx_wait *wait, const struct owners *owners) {
    int rc = 0;
    for (uint32_t i = 0; i < owners->count && rc == 0; i++)
        rc = start_watch(tx, wait, owners->nodes[i]);
    return rc;
}

/* Return the result of a call that has ended: 0 if a key has changed, -EAGAIN if the watch could not be set
 * now, or an error of the owner. */
static int result_of(struct remo_tx *tx, const struct remo_rpc_op *call) {
    switch (call->status) {
    case REMO__TX_ANSWER_DONE:
    case REMO__TX_ANSWER_CONFLICT: return 0;
    case REMO__TX_ANSWER_AGAIN: return -EAGAIN;
    default: break;
    }
    if (call->status >= 0)
        return remo__tx_result(tx, REMO__TX_ANSWER_MALFORMED, NULL, NULL);
    return remo__fail(call->status,
                      "cannot wait for keys of node %u: it has failed or left, or has closed %s; open all "
                      "structures on the remaining nodes again",
                      call->node, remo_channel_name(tx->space->channel));
}

/* Return the result of a wait in which a call has ended: a change precedes errors. */
static int find_result(struct remo_tx *tx, const struct remo__tx_wait *wait) {
    int rc = 0;
    for (uint32_t i = 0; i < wait->calls_count; i++) {
        if (wait->calls[i].fate == REMO_RPC_IN_FLIGHT)
            continue;
        rc = result_of(tx, &wait->calls[i]);
        if (rc == 0)
            break;
    }
    return rc;
}

static int fail_in_time(void) {
    return remo__fail_static(-ETIMEDOUT,
                             "the wait has ended: no key that the transaction has read has changed in time");
}

static int await_change(struct remo_tx *tx, struct remo__tx_wait *wait, uint64_t deadline_ns) {
    struct remo_rpc_op *calls[REMO__TX_ITEMS_MAX];
    for (uint32_t i = 0; i < wait->calls_count; i++)
        calls[i] = &wait->calls[i];
    int rc = remo_rpc_wait_any(calls, wait->calls_count, remo__remaining_ns(deadline_ns));
    if (rc >= 0)
        rc = find_result(tx, wait);
    return rc == -EINPROGRESS || rc == -ETIMEDOUT ? fail_in_time() : rc;
}

/* No watch can be set now. */
static int pause_instead(const struct remo_tx *tx, uint64_t deadline_ns) {
    struct remo__random random;
    remo__tx_seed_pauses(tx, &random);
    uint64_t pause_ns = 1 + remo__random_below(&random, PAUSE_NS_MAX);
    return remo_task_sleep(tx->space->node, remo__min(pause_ns, remo__remaining_ns(deadline_ns)));
}

static int check_thread(const struct remo_tx_space *space, uint64_t deadline_ns) {
    const struct remo__thread *thread = remo__thread(space->node);
    if (!thread)
        return remo__last_code();
    if (thread->handling)
        return remo__fail(-EDEADLK, "cannot wait for a change in a SHORT handler or a `done` function: use a "
                                    "LONG handler, or another thread");
    if (remo__remaining_ns(deadline_ns) == 0)
        return remo__fail_static(-ETIMEDOUT, "cannot wait for a change: no time is left");
    return 0;
}

/* End a wait that has the result `result`, and return it. Its sentence is kept: the end may park a task, and
 * set other sentences. */
static int end_wait(struct remo_tx_space *space, struct remo__tx_wait *wait, int result) {
    char sentence[REMO__SENTENCE_MAX];
    snprintf(sentence, sizeof sentence, "%s", remo_last_error());
    cancel_calls(wait);
    if (!end_entry(space, wait))
        leave_entry(space, wait);
    (void)remo_rpc_serve(space->rpc, 0); /* send queued posts now: calls may wait for the replies to them */
    return result < 0 ? remo__fail(result, "%s", sentence) : result;
}

int remo__tx_wait(struct remo_tx *tx, uint64_t deadline_ns) {
    struct owners owners;
    deadline_ns = remo__min(deadline_ns, remo__deadline(remo_rpc_remaining_ns(tx->space->rpc)));
    remo__tx_release_held(tx);
    int rc = check_thread(tx->space, deadline_ns);
    if (rc == 0)
        rc = find_owners(tx, &owners);
    if (rc != 0)
        return rc;
    struct remo__tx_wait *wait = take_entry(tx->space, owners.count);
    if (!wait)
        return pause_instead(tx, deadline_ns);
    rc = start_watches(tx, wait, &owners);
    if (rc == 0)
        rc = await_change(tx, wait, deadline_ns);
    rc = end_wait(tx->space, wait, rc);
    return rc == -EAGAIN ? pause_instead(tx, deadline_ns) : rc; /* it has not opened the space, or is busy */
}
