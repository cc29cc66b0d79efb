/* watch.c - the owner's side of transactions that wait (tx.h): it compares their keys with what they have
 * read, watches them, and notifies the waiting node when one changes. docs/internals/tx.md, Waiting.
 * Invariant: the keys are compared, and their watch is set, at one moment under the mutexes of their groups,
 * so no change is missed. */
#include <errno.h>

#include "systems/tx/steps.h"

static struct remo__tx_peer *peer_of(const struct remo__tx_watch *watch) {
    return &watch->space->peers[watch->node];
}

/* ---- the mutex of the peer is held ---- */

static void remove_entries(struct remo__tx_watch *watch) {
    for (uint32_t i = 0; i < watch->count; i++)
        remo__key_watch_remove(&watch->entries[i]);
    watch->count = 0;
}

static void end_watch(struct remo__tx_watch *watch) {
    remove_entries(watch);
    watch->is_set = false;
    peer_of(watch)->watches_count--;
}

static void end_watches(struct remo__tx_peer *peer) {
    for (uint32_t number = 0; number < REMO__TX_WAITS_MAX && peer->watches_count > 0; number++)
        if (peer->watches[number].is_set)
            end_watch(&peer->watches[number]);
    peer->drops_watches = false;
}

/* ---- reports; no mutex is held ---- */

/* Take what a report needs from a watch, which gets no further report by changes. Returns false if it has
 * ended. */
static bool take_watch(struct remo__tx_watch *watch, struct remo__tx_watch *ret_taken) {
    struct remo__tx_peer *peer = peer_of(watch);
    pthread_mutex_lock(&peer->mutex);
    bool is_set = watch->is_set;
    if (is_set) {
        remove_entries(watch);
        ret_taken->answer = watch->answer;
        ret_taken->sequence = watch->sequence;
        ret_taken->deferred = watch->deferred;
        ret_taken->own = watch->own;
    }
    if (is_set && watch->own) {
        atomic_store(&watch->own->has_changed, true); /* under the mutex, so the wait has not ended */
        end_watch(watch);
    }
    pthread_mutex_unlock(&peer->mutex);
    return is_set;
}

/* The watch was reported, unless this thread can send nothing now: then a sweep tries again. */
static void end_report(struct remo__tx_watch *watch, uint64_t sequence, bool is_reported) {
    struct remo__tx_peer *peer = peer_of(watch);
    pthread_mutex_lock(&peer->mutex);
    bool is_this = watch->is_set && watch->sequence == sequence;
    if (is_this && is_reported)
        end_watch(watch);
    else if (is_this)
        remo__key_watch_make_due(watch->structure, &watch->watch);
    pthread_mutex_unlock(&peer->mutex);
    if (is_this && !is_reported)
        remo__request_sweeps(watch->space->node);
}

static void report(struct remo__key_watch *due) {
    struct remo__tx_watch *watch = remo__container_of(due, struct remo__tx_watch, watch), taken;
    struct remo_tx_space *space = watch->space;
    if (!take_watch(watch, &taken))
        return;
    if (taken.own) {
        remo__wake(space->node);
        return;
    }
    int rc = remo_rpc_reply_later(space->rpc, taken.deferred, (int)taken.answer, NULL, 0);
    end_report(watch, taken.sequence, rc == 0 || rc == -EALREADY || remo__is_departure(rc));
}

void remo__tx_report(struct remo_tx_space *space) {
    for (uint32_t i = 0; i < space->structure_count; i++)
        remo__key_watch_report(space->structures[i]);
}

/* ---- WATCH ---- */

struct registration {
    struct remo__tx_watch *watch;
    const struct remo_rpc_request *request; /* NULL: of this node */
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
    watch->watch.report = report;
    watch->answer = REMO__TX_ANSWER_CONFLICT;
    watch->structure = steps->step[0].structure;
    watch->count = steps->count;
    for (uint32_t i = 0; i < steps->count; i++) {
        watch->entries[i] = (struct remo__key_watch_entry){
            .group = steps->step[i].group, .watch = &watch->watch, .hash = steps->step[i].key.hash};
        remo__key_watch_add(&watch->entries[i]);
    }
    watch->is_set = true;
    peer_of(watch)->watches_count++;
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
    if (registration->request && remo_rpc_defer(registration->request, &registration->watch->deferred) != 0)
        return REMO__TX_ANSWER_MALFORMED; /* it is a post */
    set_watch(registration->watch, steps);
    return REMO__TX_ANSWER_DONE;
}

/* The mutex of the peer is held. *ret_replaced is set to the reply of a watch of the same number whose end
 * has not arrived. */
static int watch_keys(struct remo_tx_space *space, uint32_t node, const struct remo__tx_watch_request *header,
                      const char *request, size_t bytes, struct remo__tx_wait *own,
                      const struct remo_rpc_request *rpc_request, struct remo_rpc_deferred *ret_replaced) {
    struct remo__tx_peer *peer = &space->peers[node];
    struct remo__tx_steps steps;
    if (atomic_load(&peer->is_cut_off) || atomic_load(&space->is_closing))
        return -ENOTCONN;
    if (peer->drops_watches)
        end_watches(peer); /* of an earlier endpoint of the node */
    struct remo__tx_watch *watch = &peer->watches[header->number];
    if (watch->is_set) {
        *ret_replaced = watch->deferred;
        end_watch(watch);
    }
    watch->space = space;
    watch->node = node;
    watch->sequence = header->sequence;
    watch->own = own;
    struct registration registration = {.watch = watch, .request = rpc_request};
    return (int)remo__tx_steps_run(space, request, bytes, compare, &registration, &steps);
}

int remo__tx_watch_own(struct remo_tx_space *space, const struct remo__tx_watch_request *header,
                       const char *request, size_t bytes, struct remo__tx_wait *wait) {
    struct remo__tx_peer *peer = &space->peers[space->node->rank];
    struct remo_rpc_deferred none;
    pthread_mutex_lock(&peer->mutex);
    int answer = watch_keys(space, space->node->rank, header, request, bytes, wait, NULL, &none);
    pthread_mutex_unlock(&peer->mutex);
    return answer;
}

int remo__tx_handle_watch(void *ctx, const struct remo_rpc_request *request) {
    struct remo_tx_space *space = ctx;
    struct remo__tx_peer *peer = &space->peers[request->node];
    struct remo__tx_watch_request header;
    struct remo_rpc_deferred replaced = {{0}};
    char copy[REMO_RPC_BYTES_MAX]; /* the caller could change the request in its ring */
    if (request->bytes < sizeof header || request->bytes > sizeof copy)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(copy, request->data, request->bytes);
    memcpy(&header, copy, sizeof header);
    if (header.number >= REMO__TX_WAITS_MAX || request->node == space->node->rank)
        return REMO__TX_ANSWER_MALFORMED;
    pthread_mutex_lock(&peer->mutex);
    int answer = watch_keys(space, request->node, &header, copy + sizeof header,
                            request->bytes - sizeof header, NULL, request, &replaced);
    pthread_mutex_unlock(&peer->mutex);
    if (replaced.word[1] != 0)
        (void)remo_rpc_reply_later(space->rpc, replaced, REMO__TX_ANSWER_DONE, NULL, 0);
    return answer;
}

/* ---- UNWATCH ---- */

/* End the watch of this header, if it is set. Returns it then. The mutex of the peer is held. */
static struct remo__tx_watch *find_watch(struct remo__tx_peer *peer,
                                         const struct remo__tx_watch_request *header) {
    struct remo__tx_watch *watch = &peer->watches[header->number];
    return watch->is_set && watch->sequence == header->sequence ? watch : NULL;
}

void remo__tx_unwatch_own(struct remo_tx_space *space, const struct remo__tx_watch_request *header) {
    struct remo__tx_peer *peer = &space->peers[space->node->rank];
    pthread_mutex_lock(&peer->mutex);
    struct remo__tx_watch *watch = find_watch(peer, header);
    if (watch)
        end_watch(watch);
    pthread_mutex_unlock(&peer->mutex);
}

/* The reply ends the use of the caller's slot. */
int remo__tx_handle_unwatch(void *ctx, const struct remo_rpc_request *request) {
    struct remo_tx_space *space = ctx;
    struct remo__tx_peer *peer = &space->peers[request->node];
    struct remo__tx_watch_request header;
    if (request->bytes != sizeof header)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(&header, request->data, sizeof header);
    if (header.number >= REMO__TX_WAITS_MAX || request->node == space->node->rank)
        return REMO__TX_ANSWER_MALFORMED;
    pthread_mutex_lock(&peer->mutex);
    struct remo__tx_watch *watch = find_watch(peer, &header);
    if (watch)
        watch->answer = REMO__TX_ANSWER_DONE;
    pthread_mutex_unlock(&peer->mutex);
    if (watch)
        report(&watch->watch);
    return REMO__TX_ANSWER_DONE;
}

/* ---- peers that were cut off; close ---- */

void remo__tx_drop_watches(struct remo_tx_space *space, uint32_t node) {
    if (space->peers[node].watches_count == 0)
        return;
    space->peers[node].drops_watches = true;
    atomic_store(&space->drops_watches, true);
}

void remo__tx_sweep_watches(struct remo_tx_space *space) {
    remo__tx_report(space);
    if (!atomic_load(&space->drops_watches) || !atomic_exchange(&space->drops_watches, false))
        return;
    for (uint32_t node = 0; node < space->node->size; node++) {
        struct remo__tx_peer *peer = &space->peers[node];
        pthread_mutex_lock(&peer->mutex);
        if (peer->drops_watches)
            end_watches(peer);
        pthread_mutex_unlock(&peer->mutex);
    }
}

/* The service replies to the nodes that wait when it closes. */
void remo__tx_stop_watches(struct remo_tx_space *space) {
    for (uint32_t node = 0; node < space->node->size; node++) {
        struct remo__tx_peer *peer = &space->peers[node];
        pthread_mutex_lock(&peer->mutex);
        end_watches(peer);
        pthread_mutex_unlock(&peer->mutex);
    }
    for (uint32_t i = 0; i < space->structure_count; i++)
        remo__key_watch_drain(space->structures[i]);
}
