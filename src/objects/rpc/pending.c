/* pending.c - LONG requests that have not started. docs/internals/rpc.md describes their places.
 * Invariant: a request is in its place and in the queue of its depth, and in the heap if it has a deadline;
 * or in none of them. */
#include "objects/rpc/pending.h"

#include <stdlib.h>

/* ---- deadlines ---- */

static void timer_set(struct remo__rpc_pendings *pendings, uint32_t at, struct remo__rpc_pending *pending) {
    pendings->timers[at] = pending;
    pending->timer = at;
}

static void sift_up(struct remo__rpc_pendings *pendings, uint32_t at, struct remo__rpc_pending *pending) {
    for (; at > 1 && pendings->timers[at / 2]->deadline_ns > pending->deadline_ns; at /= 2)
        timer_set(pendings, at, pendings->timers[at / 2]);
    timer_set(pendings, at, pending);
}

static void sift_down(struct remo__rpc_pendings *pendings, uint32_t at, struct remo__rpc_pending *pending) {
    for (uint32_t child; (child = 2 * at) <= pendings->timer_count; at = child) {
        if (child < pendings->timer_count
            && pendings->timers[child + 1]->deadline_ns < pendings->timers[child]->deadline_ns)
            child++;
        if (pendings->timers[child]->deadline_ns >= pending->deadline_ns)
            break;
        timer_set(pendings, at, pendings->timers[child]);
    }
    timer_set(pendings, at, pending);
}

static void update_earliest(struct remo__rpc_pendings *pendings) {
    atomic_store(&pendings->earliest_ns,
                 pendings->timer_count > 0 ? pendings->timers[1]->deadline_ns : REMO_FOREVER);
}

static void timer_add(struct remo__rpc_pendings *pendings, struct remo__rpc_pending *pending) {
    pending->timer = 0;
    if (pending->deadline_ns == REMO_FOREVER)
        return;
    sift_up(pendings, ++pendings->timer_count, pending);
    update_earliest(pendings);
}

static void timer_remove(struct remo__rpc_pendings *pendings, const struct remo__rpc_pending *pending) {
    uint32_t at = pending->timer;
    if (at == 0)
        return;
    struct remo__rpc_pending *last = pendings->timers[pendings->timer_count--];
    if (last != pending && at > 1 && pendings->timers[at / 2]->deadline_ns > last->deadline_ns)
        sift_up(pendings, at, last);
    else if (last != pending)
        sift_down(pendings, at, last);
    update_earliest(pendings);
}

struct remo__rpc_pending *remo__rpc_pending_expired(const struct remo__rpc_pendings *pendings) {
    if (pendings->timer_count == 0 || remo__remaining_ns(pendings->timers[1]->deadline_ns) > 0)
        return NULL;
    return pendings->timers[1];
}

/* ---- requests ---- */

/* Return the index of the queue of a request. */
static uint32_t queue_of(const struct remo__rpc_words *words) {
    return remo__rpc_depth(words->head) - 1;
}

struct remo__rpc_pending *remo__rpc_pending_of(const struct remo__rpc_pendings *pendings,
                                               const struct remo__rpc_words *words) {
    return &pendings->places[remo__rpc_origin(words->call)][remo__rpc_slot(words->call)];
}

void remo__rpc_pending_add(struct remo__rpc_pendings *pendings, const struct remo__rpc_turn *turn,
                           struct remo__rpc_entry *entry, const void *data) {
    uint32_t queue = queue_of(&turn->words);
    struct remo__rpc_pending *pending = remo__rpc_pending_of(pendings, &turn->words),
                             **last = &pendings->queues[queue].last;
    pending->is_waiting = true;
    pending->rpc = turn->rpc;
    pending->entry = entry;
    pending->words = turn->words;
    pending->deadline_ns = turn->deadline_ns;
    remo__copy_from(pending->data, data, remo__rpc_bytes(turn->words.head));
    pending->next = NULL;
    pending->previous = *last;
    if (*last)
        (*last)->next = pending;
    else
        pendings->queues[queue].first = pending;
    *last = pending;
    atomic_fetch_add(&pendings->queues[queue].count, 1);
    atomic_fetch_add(&entry->queued, 1);
    timer_add(pendings, pending);
}

void remo__rpc_pending_take(struct remo__rpc_pendings *pendings, struct remo__rpc_pending *pending,
                            struct remo__rpc_turn *ret_turn, struct remo__rpc_entry **ret_entry,
                            uint64_t *data) {
    uint32_t queue = queue_of(&pending->words);
    if (pending->previous)
        pending->previous->next = pending->next;
    else
        pendings->queues[queue].first = pending->next;
    if (pending->next)
        pending->next->previous = pending->previous;
    else
        pendings->queues[queue].last = pending->previous;
    atomic_fetch_sub(&pendings->queues[queue].count, 1);
    atomic_fetch_sub(&pending->entry->queued, 1);
    timer_remove(pendings, pending);
    ret_turn->rpc = pending->rpc;
    ret_turn->words = pending->words;
    ret_turn->deadline_ns = pending->deadline_ns;
    ret_turn->depth = remo__rpc_depth(pending->words.head);
    ret_turn->places = NULL;
    ret_turn->is_replied = false;
    *ret_entry = pending->entry;
    if (data)
        memcpy(data, pending->data, remo__rpc_bytes(pending->words.head));
    pending->is_waiting = false;
}

struct remo__rpc_pending *remo__rpc_pending_find(const struct remo__rpc_pendings *pendings,
                                                 const struct remo_rpc *rpc) {
    for (uint32_t depth = 0; depth < REMO_RPC_DEPTH_MAX; depth++)
        for (struct remo__rpc_pending *pending = pendings->queues[depth].first; pending;
             pending = pending->next)
            if (pending->rpc == rpc)
                return pending;
    return NULL;
}

/* ---- open, close ---- */

int remo__rpc_pendings_open(struct remo__rpc_pendings *pendings, uint32_t size) {
    pendings->earliest_ns = REMO_FOREVER;
    pendings->places = calloc(size, sizeof *pendings->places);
    pendings->timers = calloc(1 + (size_t)size * REMO__RPC_SLOTS_TOTAL, sizeof(struct remo__rpc_pending *));
    if (pendings->places && pendings->timers)
        return 0;
    return remo__fail(-ENOMEM, "no memory for the LONG requests of %u nodes; raise ulimit -v", size);
}

void remo__rpc_pendings_close(struct remo__rpc_pendings *pendings) {
    free(pendings->places);
    free(pendings->timers);
}
