/* wait.c - the wait of a transaction until a key that it has read may have changed, at the node that runs it
 * (tx.h). docs/internals/tx.md, Waiting. Invariant: each owner of these keys has a watch, or has ended it,
 * while the thread sleeps. The owners compare the keys with what was read, so a change before its watch is
 * not missed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "systems/tx/tx.h"

#define PAUSE_NS_MAX UINT64_C(1000000) /* if no watch can be set now */

/* ---- entries ---- */

int remo__tx_open_waits(struct remo_tx_space *space) {
    space->waits = calloc(REMO__TX_WAITS_MAX, sizeof *space->waits);
    if (!space->waits)
        return remo__fail(-ENOMEM, "no memory for a transaction space");
    for (uint32_t number = 0; number < REMO__TX_WAITS_MAX; number++)
        space->waits[number].header =
            (struct remo__tx_watch_request){.sequence = remo__now_ns(), .number = number};
    return 0;
}

/* Count `calls` calls as in flight, if there is room. A handler shares fewer slots with others. */
static bool count_calls(struct remo_tx_space *space, uint32_t calls, bool is_handler) {
    uint32_t limit = is_handler ? REMO__TX_WATCHES_MAX / 2 : REMO__TX_WATCHES_MAX;
    if (atomic_fetch_add(&space->watch_calls, calls) + calls <= limit)
        return true;
    atomic_fetch_sub(&space->watch_calls, calls);
    return false;
}

/* Return an entry for a wait with `calls` calls, or NULL if there is none. */
static struct remo__tx_wait *take_entry(struct remo_tx_space *space, uint32_t calls, bool is_handler) {
    if (!count_calls(space, calls, is_handler))
        return NULL;
    for (uint32_t number = 0; number < REMO__TX_WAITS_MAX; number++) {
        struct remo__tx_wait *wait = &space->waits[number];
        if (atomic_load_explicit(&wait->is_used, memory_order_relaxed)
            || atomic_exchange(&wait->is_used, true))
            continue;
        wait->header.sequence++;
        atomic_store(&wait->has_changed, false);
        wait->watches_own = false;
        wait->calls_count = 0;
        wait->requests_bytes = 0;
        return wait;
    }
    atomic_fetch_sub(&space->watch_calls, calls);
    return NULL;
}

static void free_entry(struct remo_tx_space *space, struct remo__tx_wait *wait, uint32_t calls) {
    atomic_store(&wait->is_used, false);
    atomic_fetch_sub(&space->watch_calls, calls);
}

/* ---- the owners ---- */

/* The owners of the keys that the transaction has read. */
struct owners {
    uint32_t count, nodes[REMO_TX_ITEMS_MAX];
    bool has_own; /* this node is one; it is not among `nodes` */
};

static void add_owner(struct owners *owners, uint32_t node) {
    for (uint32_t i = 0; i < owners->count; i++)
        if (owners->nodes[i] == node)
            return;
    owners->nodes[owners->count++] = node;
}

/* Drop the changes of the transaction, and find the owners of the keys that it has read. */
static int find_owners(struct remo_tx *tx, struct owners *ret_owners) {
    *ret_owners = (struct owners){0};
    for (uint32_t i = 0; i < tx->items_count; i++) {
        struct remo__tx_item *item = &tx->items[i];
        item->is_changed = false;
        if (!remo__tx_is_used(item))
            continue;
        if (item->owner == tx->space->node->rank)
            ret_owners->has_own = true;
        else
            add_owner(ret_owners, item->owner);
    }
    if (ret_owners->count == 0 && !ret_owners->has_own)
        return remo__fail(-EINVAL, "cannot wait: the transaction has read no key, so no change can end the "
                                   "wait; read the keys that its result depends on first");
    return ret_owners->has_own ? remo__tx_check_shares(tx) : 0;
}

/* ---- watches ---- */

/* Append the request for an owner, and set *ret_at to its offset in `requests`. */
static int append_request(const struct remo_tx *tx, struct remo__tx_wait *wait, uint32_t owner,
                          size_t *ret_at) {
    uint8_t items[REMO_TX_ITEMS_MAX];
    size_t at = wait->requests_bytes;
    *ret_at = at;
    memcpy(wait->requests + at, &wait->header, sizeof wait->header);
    wait->requests_bytes += sizeof wait->header;
    int rc = remo__tx_request(tx, owner, true, wait->requests,
                              remo__min(at + REMO_RPC_BYTES_MAX, sizeof wait->requests),
                              &wait->requests_bytes, items);
    if (rc == -EMSGSIZE)
        return remo__fail(rc,
                          "cannot wait for keys of node %u that need more than %u bytes together: read fewer "
                          "of them in one transaction",
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

/* Return 1 if an owner's answer means that a key has changed, or that it may have. */
static int result_of(struct remo_tx *tx, int answer) {
    if (answer == REMO__TX_ANSWER_DONE || answer == REMO__TX_ANSWER_CONFLICT)
        return 1;
    if (answer < 0)
        return remo__fail(answer, "cannot wait: %s is being closed", remo_channel_name(tx->space->channel));
    return remo__tx_result(tx, REMO__TX_ANSWER_MALFORMED, NULL, NULL);
}

/* Set the watches of all owners; that of this node last, while the calls are in flight. Returns 0, 1 (a key
 * has changed), or an error. */
static int start_watches(struct remo_tx *tx, struct remo__tx_wait *wait, const struct owners *owners) {
    for (uint32_t i = 0; i < owners->count; i++) {
        int rc = start_watch(tx, wait, owners->nodes[i]);
        if (rc != 0)
            return rc;
    }
    if (!owners->has_own)
        return 0;
    size_t at;
    int rc = append_request(tx, wait, tx->space->node->rank, &at);
    if (rc != 0)
        return rc;
    size_t header_bytes = sizeof wait->header;
    int answer = remo__tx_watch_own(tx->space, &wait->header, wait->requests + at + header_bytes,
                                    wait->requests_bytes - at - header_bytes, wait);
    wait->watches_own = answer == REMO__TX_ANSWER_DONE;
    return answer == REMO__TX_ANSWER_DONE ? 0 : result_of(tx, answer);
}

/* End the watches that are still set. An owner ends its watch by its reply, for which this node does not
 * wait. Returns 0, or the error of a post: the watch ends when a key changes, or this number is used again.
 * */
static int end_watches(struct remo_tx *tx, struct remo__tx_wait *wait) {
    struct remo_tx_space *space = tx->space;
    int result = 0;
    for (uint32_t i = 0; i < wait->calls_count; i++) {
        struct remo_rpc_op *call = &wait->calls[i];
        if (call->fate != REMO_RPC_IN_FLIGHT)
            continue;
        remo_rpc_cancel(call);
        if (call->fate == REMO_RPC_NOT_SENT)
            continue;
        int rc = remo_rpc_post(space->rpc, call->node, REMO__TX_UNWATCH, &wait->header, sizeof wait->header);
        result = rc == 0 || remo__is_departure(rc) ? result : rc;
    }
    if (wait->watches_own)
        remo__tx_unwatch_own(space, &wait->header);
    return result;
}

/* ---- wait ---- */

/* A wait condition: a key has changed, or an owner has failed. It serves requests of this node. */
static int has_ended(void *ctx) {
    struct remo__tx_wait *wait = ctx;
    if (atomic_load(&wait->has_changed))
        return 1;
    for (uint32_t i = 0; i < wait->calls_count; i++)
        if (remo_rpc_test(&wait->calls[i]) != -EINPROGRESS)
            return 1;
    return 0;
}

/* Return the result of a wait that has ended: 1 if a key has changed, or the error of an owner. */
static int find_result(struct remo_tx *tx, const struct remo__tx_wait *wait) {
    int rc = 1;
    if (atomic_load(&wait->has_changed))
        return 1;
    for (uint32_t i = 0; i < wait->calls_count; i++) {
        const struct remo_rpc_op *call = &wait->calls[i];
        if (call->fate == REMO_RPC_IN_FLIGHT)
            continue;
        if (call->status == REMO__TX_ANSWER_CONFLICT || call->status == REMO__TX_ANSWER_DONE)
            return 1;
        rc = call->status < 0 ? remo__fail(call->status,
                                           "cannot wait for keys of node %u: it has failed or left, or has "
                                           "closed %s; open all structures on the remaining nodes again",
                                           call->node, remo_channel_name(tx->space->channel))
                              : result_of(tx, call->status);
    }
    return rc;
}

static int fail_in_time(void) {
    return remo__fail_static(-ETIMEDOUT, "no key that the transaction has read has changed in time");
}

static int await_change(struct remo_tx *tx, struct remo__tx_wait *wait, uint64_t deadline_ns) {
    for (uint32_t i = 0; i < wait->calls_count; i++) /* in a handler, those of its request */
        deadline_ns = remo__min(deadline_ns, wait->calls[i].own.deadline_ns);
    int rc = remo__wait(tx->space->node, has_ended, wait, deadline_ns);
    if (rc == 0)
        rc = find_result(tx, wait);
    return rc == -ETIMEDOUT ? fail_in_time() : rc;
}

/* No watch can be set now. */
static int pause_instead(const struct remo_tx *tx, uint64_t deadline_ns) {
    struct remo__random random;
    remo__random_seed(&random, remo__now_ns() ^ (uint64_t)(uintptr_t)tx);
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

/* End a wait that has the result `result`. Returns it, or the error of its end. Its sentence is kept: the end
 * may park a task, and set other sentences. */
static int end_wait(struct remo_tx *tx, struct remo__tx_wait *wait, int result) {
    char sentence[REMO__SENTENCE_MAX];
    snprintf(sentence, sizeof sentence, "%s", remo_last_error());
    int rc = end_watches(tx, wait);
    if (result >= 0 && rc != 0) {
        result = rc;
        snprintf(sentence, sizeof sentence, "%s", remo_last_error());
    }
    if (wait->calls_count > 0)
        (void)remo_rpc_serve(tx->space->rpc,
                             0); /* a call of another thread may wait for the slot of a call */
    return result < 0 ? remo__fail(result, "%s", sentence) : result;
}

int remo__tx_wait(struct remo_tx *tx, uint64_t deadline_ns) {
    struct owners owners;
    int rc = check_thread(tx->space, deadline_ns);
    if (rc == 0)
        rc = find_owners(tx, &owners);
    if (rc != 0)
        return rc;
    bool is_handler = remo__scheduler && remo__scheduler->running->handling; /* a LONG one */
    struct remo__tx_wait *wait = take_entry(tx->space, owners.count, is_handler);
    if (!wait)
        return pause_instead(tx, deadline_ns);
    rc = start_watches(tx, wait, &owners);
    bool pauses = rc == -EAGAIN; /* an owner has not opened the space */
    if (rc == 0)
        rc = await_change(tx, wait, deadline_ns);
    rc = end_wait(tx, wait, rc);
    free_entry(tx->space, wait, owners.count);
    return pauses ? pause_instead(tx, deadline_ns) : (rc > 0 ? 0 : rc);
}
