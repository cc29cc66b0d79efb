/* pending.h - LONG requests that have not started: the places in which they wait, by caller and slot; a queue
 * for each depth, in order of arrival; a heap by deadline. The pool (pool.c) locks them. */
#pragma once

#include "objects/rpc/rpc.h"

struct remo__rpc_pending {
    struct remo__rpc_pending *next, *previous; /* in the queue of its depth */
    uint32_t timer;                            /* position in the heap, from 1; 0: none */
    bool is_waiting;                           /* a request is in this place */
    struct remo_rpc *rpc;
    struct remo__rpc_entry *entry;
    struct remo__rpc_words words;
    uint64_t deadline_ns;
    uint64_t data[REMO__RPC_RECORD_MAX / sizeof(uint64_t)];
};

struct remo__rpc_pendings {
    struct {
        struct remo__rpc_pending *first, *last;
        _Atomic uint32_t count;
    } queues[REMO_RPC_DEPTH_MAX];
    struct remo__rpc_pending (*places)[REMO__RPC_SLOTS_TOTAL]; /* [size] by caller, and its slot */
    struct remo__rpc_pending **timers;                         /* [1 .. timer_count]: a heap by deadline_ns */
    uint32_t timer_count;
    _Atomic uint64_t earliest_ns; /* of these deadlines; REMO_FOREVER: none */
};

/* `pendings` is zeroed. Errors: -ENOMEM. */
int remo__rpc_pendings_open(struct remo__rpc_pendings *pendings, uint32_t size);
void remo__rpc_pendings_close(struct remo__rpc_pendings *pendings);
/* Return the place of a call. */
struct remo__rpc_pending *remo__rpc_pending_of(const struct remo__rpc_pendings *pendings,
                                               const struct remo__rpc_words *words);
/* Copy a request to its place, which is free. */
void remo__rpc_pending_add(struct remo__rpc_pendings *pendings, const struct remo__rpc_turn *turn,
                           struct remo__rpc_entry *entry, const void *data);
/* Copy a request to a turn and to `data`, which has REMO__RPC_RECORD_MAX bytes, and free its place. If `data`
 * is NULL, do not copy the data. */
void remo__rpc_pending_take(struct remo__rpc_pendings *pendings, struct remo__rpc_pending *pending,
                            struct remo__rpc_turn *ret_turn, struct remo__rpc_entry **ret_entry,
                            uint64_t *data);
/* Return the first request of a service, or NULL. */
struct remo__rpc_pending *remo__rpc_pending_find(const struct remo__rpc_pendings *pendings,
                                                 const struct remo_rpc *rpc);
/* Return a request whose deadline has passed, or NULL. */
struct remo__rpc_pending *remo__rpc_pending_expired(const struct remo__rpc_pendings *pendings);
