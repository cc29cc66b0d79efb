/* watch.c - the owner's side of transactions that wait (tx.h): it compares their keys with what they have
 * read, watches them, and replies to the waiting node when one changes. docs/internals/tx.md, Waiting.
 * Invariants: the keys are compared, and their watch is set, at one moment under the mutexes of their groups,
 * so no change is missed. The thread that ends a watch takes its reply, so each reply has one sender. */
#include <errno.h>

#include "systems/tx/steps.h"

/* ---- the mutex of the peer is held ---- */

/* End a watch. The caller sends the returned reply, or keeps it. */
static struct remo__tx_reply end_watch(struct remo__tx_watch *watch, enum remo__tx_answer answer) {
    for (uint32_t i = 0; i < watch->count; i++)
        remo__key_watch_remove(&watch->entries[i]);
    watch->count = 0;
    watch->is_set = false;
    watch->space->peers[watch->node].watches_count--;
    return (struct remo__tx_reply){watch->deferred, answer};
}

/* Leave a reply to sweeps. There is room: see watch_keys. */
static void keep_reply(struct remo_tx_space *space, struct remo__tx_peer *peer,
                       const struct remo__tx_reply *reply) {
    peer->unsent[peer->unsent_count++] = *reply;
    atomic_store(&space->must_sweep_watches, true);
}

static void end_watches(struct remo_tx_space *space, struct remo__tx_peer *peer) {
    for (uint32_t number = 0; number < REMO__TX_WAITS_MAX && peer->watches_count > 0; number++) {
        if (!peer->watches[number].is_set)
            continue;
        struct remo__tx_reply reply = end_watch(&peer->watches[number], REMO__TX_ANSWER_DONE);
        keep_reply(space, peer, &reply);
    }
    peer->drops_watches = false;
}

/* ---- replies; no mutex is held ---- */

/* Send a reply. Returns false if this is impossible now: then it is kept. */
static bool send_reply(struct remo_tx_space *space, uint32_t node, const struct remo__tx_reply *reply) {
    struct remo__tx_peer *peer = &space->peers[node];
    int rc = remo_rpc_reply_later(space->rpc, reply->deferred, (int)reply->answer, NULL, 0);
    bool is_over = rc == 0 || rc == -EALREADY || remo__is_departure(rc); /* -EALREADY: it was cut off */
    pthread_mutex_lock(&peer->mutex);
    if (is_over)
        peer->replies_count--;
    else
        keep_reply(space, peer, reply);
    pthread_mutex_unlock(&peer->mutex);
    return is_over;
}

/* Send the reply to a watch that has ended, or leave it to sweeps. Each attempt may wait for a fence, so a
 * thread makes none if an earlier reply to the node could not be sent. */
static void reply_soon(struct remo_tx_space *space, uint32_t node, const struct remo__tx_reply *reply) {
    struct remo__tx_peer *peer = &space->peers[node];
    pthread_mutex_lock(&peer->mutex);
    bool is_kept = peer->unsent_count > 0;
    if (is_kept)
        keep_reply(space, peer, reply);
    pthread_mutex_unlock(&peer->mutex);
    if (is_kept || !send_reply(space, node, reply))
        remo__request_sweeps(space->node);
}

/* A key of the watch has changed, unless the watch has ended meanwhile; it may have been set again. */
static void report(struct remo__key_watch *due) {
    struct remo__tx_watch *watch = remo__container_of(due, struct remo__tx_watch, watch);
    struct remo_tx_space *space = watch->space;
    struct remo__tx_peer *peer = &space->peers[watch->node];
    struct remo__tx_reply reply;
    pthread_mutex_lock(&peer->mutex);
    bool is_taken = watch->is_set && atomic_load(&due->has_changed);
    if (is_taken)
        reply = end_watch(watch, REMO__TX_ANSWER_CONFLICT);
    pthread_mutex_unlock(&peer->mutex);
    if (is_taken)
        reply_soon(space, watch->node, &reply);
}

void remo__tx_report(struct remo_tx_space *space) {
    for (uint32_t i = 0; i < space->structure_count; i++)
        remo__key_watch_report(space->structures[i]);
}

/* ---- WATCH ---- */

struct registration {
    struct remo__tx_watch *watch;
    const struct remo_rpc_request *request;
};

/* Return whether the item is as the transaction has read it. A locked item still has its value, and the key
 * of a reserved one is still absent: the change, if there is one, reports the watch. */
static bool is_same(const struct remo__tx_step *step) {
    bool is_item = step->offset != REMO_STRUCTURE_NOWHERE;
    uint64_t head = is_item ? remo__load(remo__own_at(step->structure, step->offset)) : 0;
    if (step->condition == REMO__TX_ABSENT)
        return !is_item || !remo__item_is_valid(head);
    return step->condition == REMO__TX_SAME && is_item && remo__item_is_valid(head)
           && step->offset == step->was_at && (head & ~REMO__ITEM_LOCKED) == step->had_head;
}

static void set_watch(struct remo__tx_watch *watch, const struct remo__tx_steps *steps) {
    struct remo__tx_peer *peer = &watch->space->peers[watch->node];
    atomic_store(&watch->watch.has_changed, false); /* a thread may still report the last watch */
    watch->count = steps->count;
    for (uint32_t i = 0; i < steps->count; i++) {
        watch->entries[i] = (struct remo__key_watch_entry){
            .group = steps->step[i].group, .watch = &watch->watch, .hash = steps->step[i].key.hash};
        remo__key_watch_add(&watch->entries[i]);
    }
    watch->is_set = true;
    peer->watches_count++;
    peer->replies_count++;
}

/* Compare all keys, and set the watch if they are as they were. The mutexes of the groups are held. */
static enum remo__tx_answer compare(struct remo__tx_steps *steps, void *ctx) {
    const struct registration *registration = ctx;
    if (steps->count == 0 || steps->changes > 0)
        return REMO__TX_ANSWER_MALFORMED;
    for (uint32_t i = 0; i < steps->count; i++) {
        struct remo__tx_step *step = &steps->step[i];
        if (!remo__owner_search(step->structure, &step->key, &step->offset))
            return REMO__TX_ANSWER_MALFORMED;
        if (!is_same(step))
            return REMO__TX_ANSWER_CONFLICT;
    }
    if (remo_rpc_defer(registration->request, &registration->watch->deferred) != 0)
        return REMO__TX_ANSWER_MALFORMED; /* it is a post */
    set_watch(registration->watch, steps);
    return REMO__TX_ANSWER_DONE;
}

/* Threads that report the watch read these fields, so they are written once. */
static void bind_watch(struct remo_tx_space *space, uint32_t node, struct remo__tx_watch *watch) {
    if (watch->space)
        return;
    watch->space = space;
    watch->node = node;
    watch->watch.report = report;
    watch->watch.reporters = &space->reporters;
}

/* Watch the keys of `items`. The mutex of the peer is held. *ret_replaced: the reply to a watch of the same
 * number, which the node has ended, if *ret_replaces. */
static int watch_keys(struct remo_tx_space *space, uint32_t number, const char *items, size_t bytes,
                      const struct remo_rpc_request *request, struct remo__tx_reply *ret_replaced,
                      bool *ret_replaces) {
    struct remo__tx_peer *peer = &space->peers[request->node];
    struct remo__tx_steps steps;
    if (atomic_load(&peer->is_cut_off) || atomic_load(&space->is_closing))
        return -ENOTCONN;
    if (peer->drops_watches)
        end_watches(space, peer); /* of an earlier endpoint of the node */
    struct remo__tx_watch *watch = &peer->watches[number];
    *ret_replaces = watch->is_set;
    if (watch->is_set)
        *ret_replaced = end_watch(watch, REMO__TX_ANSWER_DONE);
    if (peer->replies_count >= REMO__TX_REPLIES_MAX)
        return REMO__TX_ANSWER_AGAIN;
    bind_watch(space, request->node, watch);
    struct registration registration = {.watch = watch, .request = request};
    return (int)remo__tx_steps_run(space, items, bytes, compare, &registration, &steps);
}

int remo__tx_handle_watch(void *ctx, const struct remo_rpc_request *request) {
    struct remo_tx_space *space = ctx;
    struct remo__tx_peer *peer = &space->peers[request->node];
    struct remo__tx_watch_request header;
    struct remo__tx_reply replaced;
    bool replaces = false;
    char copy[REMO_RPC_BYTES_MAX]; /* the caller could change the request in its ring */
    if (request->bytes < sizeof header || request->bytes > sizeof copy)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(copy, request->data, request->bytes);
    memcpy(&header, copy, sizeof header);
    if (header.number >= REMO__TX_WAITS_MAX)
        return REMO__TX_ANSWER_MALFORMED;
    pthread_mutex_lock(&peer->mutex);
    int answer = watch_keys(space, header.number, copy + sizeof header, request->bytes - sizeof header,
                            request, &replaced, &replaces);
    pthread_mutex_unlock(&peer->mutex);
    if (replaces)
        reply_soon(space, request->node, &replaced);
    return answer;
}

/* ---- UNWATCH ---- */

/* The node that waits sends it before its next WATCH of the number. So the watch is the one to end, or has
 * ended. The reply ends the use of the caller's slot. */
int remo__tx_handle_unwatch(void *ctx, const struct remo_rpc_request *request) {
    struct remo_tx_space *space = ctx;
    struct remo__tx_peer *peer = &space->peers[request->node];
    struct remo__tx_watch_request header;
    struct remo__tx_reply reply;
    if (request->bytes != sizeof header)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(&header, request->data, sizeof header);
    if (header.number >= REMO__TX_WAITS_MAX)
        return REMO__TX_ANSWER_MALFORMED;
    pthread_mutex_lock(&peer->mutex);
    bool is_set = peer->watches[header.number].is_set;
    if (is_set)
        reply = end_watch(&peer->watches[header.number], REMO__TX_ANSWER_DONE);
    pthread_mutex_unlock(&peer->mutex);
    if (is_set)
        reply_soon(space, request->node, &reply);
    return REMO__TX_ANSWER_DONE;
}

/* ---- sweeps; close ---- */

void remo__tx_drop_watches(struct remo_tx_space *space, uint32_t node) {
    if (space->peers[node].watches_count == 0)
        return;
    space->peers[node].drops_watches = true;
    atomic_store(&space->must_sweep_watches, true);
}

/* Take the last of the unsent replies to a node. */
static bool take_unsent(struct remo_tx_space *space, struct remo__tx_peer *peer,
                        struct remo__tx_reply *ret_reply) {
    pthread_mutex_lock(&peer->mutex);
    if (peer->drops_watches)
        end_watches(space, peer);
    bool is_taken = peer->unsent_count > 0;
    if (is_taken)
        *ret_reply = peer->unsent[--peer->unsent_count];
    pthread_mutex_unlock(&peer->mutex);
    return is_taken;
}

/* A node may have closed only the space: then the slots of its calls need the replies. */
bool remo__tx_sweep_watches(struct remo_tx_space *space) {
    bool is_left = false;
    for (uint32_t i = 0; i < space->structure_count; i++)
        is_left |= remo__key_watch_report_due(space->structures[i], REMO__TX_REPORTS_PER_SWEEP);
    if (!atomic_load(&space->must_sweep_watches) || !atomic_exchange(&space->must_sweep_watches, false))
        return is_left;
    for (uint32_t node = 0; node < space->node->size; node++) {
        struct remo__tx_reply reply;
        while (take_unsent(space, &space->peers[node], &reply) && send_reply(space, node, &reply))
            continue;
    }
    return is_left || atomic_load(&space->must_sweep_watches);
}

static int has_no_reporter(void *ctx) {
    const struct remo_tx_space *space = ctx;
    return atomic_load(&space->reporters) == 0;
}

/* Afterwards no thread uses a watch. */
void remo__tx_stop_watches(struct remo_tx_space *space) {
    for (uint32_t node = 0; node < space->node->size; node++) {
        struct remo__tx_peer *peer = &space->peers[node];
        pthread_mutex_lock(&peer->mutex);
        end_watches(space, peer);
        pthread_mutex_unlock(&peer->mutex);
    }
    for (uint32_t i = 0; i < space->structure_count; i++)
        remo__key_watch_discard(space->structures[i], &space->reporters);
    (void)remo__wait_polling(space->node, has_no_reporter, space, REMO_FOREVER);
}
