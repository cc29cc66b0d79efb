/* rpc.h - internals of rpc: the transport of a node, and its services. docs/internals/rpc.md has the
 * protocol.
 *
 * Files:  service.c, transport.c (opens the transport, channel callbacks), call.c, serve.c (finds requests,
 *         runs handlers, waits), pool.c (LONG handlers), pending.c (LONG requests that have not started),
 *         end.c (ends of calls), reply.c, send.c (requests into rings, queues, wake-ups), slot.c (reply
 *         slots), target.c, large.c (places), block.c (memory of large calls). Each uses only files that
 *         follow it.
 * Locks:  send_mutex of a peer: the ring at that peer, and its queues. receive_mutex of a peer: the ring of
 *         that peer here; held while its handlers run. done_mutex: held while `done` functions run.
 *         calls_mutex: the list of calls with `done`; slots_mutex: slots that are not free and have no call;
 *         blocks_mutex: free blocks. `lock` of the pool: LONG requests that have not started. A thread that
 *         holds send_mutex, calls_mutex, slots_mutex, blocks_mutex or `lock` neither waits nor runs user
 *         code.
 *         Order: receive_mutex or done_mutex, calls_mutex, send_mutex, slots_mutex, blocks_mutex;
 *         receive_mutex, `lock`. */
#pragma once

#include <pthread.h>
#include <remo/rpc.h>

#include "base/relax.h"
#include "objects/leaf_call.h"
#include "objects/rpc/record.h"

#ifdef REMO_SIM_SMALL
#define REMO__RPC_SLOTS 6u
#define REMO__RPC_LEAF_SLOTS 3u
#define REMO__RPC_LEAF_SLOTS_OF_PEER 2u
#define REMO__RPC_SLOTS_TOTAL 15u
#define REMO__RPC_SLOTS_OF_DEPTH 1u
#define REMO__RPC_RETIRED_MAX 2u
#define REMO__RPC_DIRECT_NODES 2u
#define REMO__RPC_LONG_MAX 1u
#else
#define REMO__RPC_SLOTS REMO_RPC_CALLS_MAX
#define REMO__RPC_LEAF_SLOTS 64u /* for leaf calls (leaf_call.h) */
/* A node that pauses keeps at most so many of them, and leaves the others to calls to other nodes. A map has
 * no more calls to one node in flight (REMO__KV_MESSAGES_MAX). */
#define REMO__RPC_LEAF_SLOTS_OF_PEER 16u
#define REMO__RPC_SLOTS_TOTAL (2 * REMO_RPC_CALLS_MAX + REMO__RPC_LEAF_SLOTS) /* with spare slots */
/* For the calls of handlers, at each depth above 1: a call waits only for deeper calls, so all end. */
#define REMO__RPC_SLOTS_OF_DEPTH 64u
/* A node that does not reply cannot take all slots of a depth: with so many retired ones it gets no call. */
#define REMO__RPC_RETIRED_MAX 32u
#define REMO__RPC_DIRECT_NODES 8u /* up to this size of the job, a thread probes all rings */
#define REMO__RPC_LONG_MAX REMO_RPC_LONG_MAX
#endif
static_assert(REMO__RPC_LEAF_BYTES_MAX == REMO__RPC_DATA_MAX, "a leaf request has the size of a request");
#define REMO__RPC_LEAF_DEPTH (REMO_RPC_DEPTH_MAX + 1)
#define REMO__RPC_DEPTHS REMO__RPC_LEAF_DEPTH /* with that of leaf calls */
#define REMO__RPC_NO_SLOT UINT32_MAX
#define REMO__RPC_TIME_SHIFT 10u /* times in messages: units of 1024 ns */
#define REMO__RPC_NOTES 64u      /* bytes before each reply: one word for each forward */
#define REMO__RPC_SLOT_BYTES \
    (REMO__RPC_NOTES + (uint32_t)(REMO__RPC_REPLY_BYTES + REMO__RPC_DATA_MAX + 63) / 64 * 64)

/* A node's memory "state". Peers change bits only on mapped fabrics, by CPU atomics; elsewhere the node
 * itself does, when it receives an immediate. */
#define REMO__RPC_AT_POLLERS 0u   /* u64: threads that poll for requests, awake */
#define REMO__RPC_AT_NEAR 8u      /* bit 0: a busy thread serves every few microseconds */
#define REMO__RPC_AT_PENDING 64u  /* [4] u64: a bit for each peer whose ring may have a request */
#define REMO__RPC_AT_WOKEN 128u   /* [4] u64: a bit for each peer whose immediate is in flight */
#define REMO__RPC_AT_ENDED 192u   /* [24] u64: a bit for each slot whose call has `done` and a reply */
#define REMO__RPC_AT_CREDITS 384u /* [size] u64: position that the peer has consumed, of our ring there */
static_assert((REMO__RPC_SLOTS_TOTAL + 63) / 64 * 8 <= REMO__RPC_AT_CREDITS - REMO__RPC_AT_ENDED, "bits");

#define REMO__RPC_BLOCK_BYTES_MIN UINT64_C(64) /* powers of two, up to twice REMO__RPC_LARGE_MAX */
#define REMO__RPC_BLOCK_CLASSES 20u

/* A block of this node's network memory, for a call with a large request or a large reply. */
struct remo__rpc_block {
    struct remo__rpc_block *next; /* in the list of free blocks */
    uint64_t offset;              /* in the arena */
    uint32_t class;
};

struct remo__rpc_queued; /* a copied message that waits for room */
struct remo__rpc_pool;   /* see pool.c */

/* The state for one peer; this node is a peer of its own. */
struct remo__rpc_peer {
    struct remo__mutex send_mutex;
    _Atomic uint64_t position; /* of the next request; changes under send_mutex */
    _Atomic uint64_t credit;   /* the peer has consumed the requests before this position */
    struct {
        struct remo_rpc_op *first, *last; /* that wait for room or a slot */
    } calls[REMO__RPC_DEPTHS];            /* by depth */
    struct remo__rpc_queued *first_message, *last_message;
    uint32_t requests_queued; /* of these messages, those that are no writes */
    _Atomic uint32_t queued;  /* of all these lists */
    /* Slots of calls to the peer, by depth: a call must not wait for replies to calls of smaller depths. */
    _Atomic uint32_t retired[REMO__RPC_DEPTHS];
    _Atomic uint32_t leaf_slots; /* BUSY or RETIRED slots of leaf calls to the peer */
    _Atomic uint32_t
        lockers; /* threads that wait for send_mutex: attempts that do not wait leave it to them */
    _Atomic bool is_unflushed; /* a thread found send_mutex held: send what is queued after its release */
    _Atomic bool owes_wake;    /* the immediate could not be sent */

    struct remo__mutex receive_mutex REMO__CACHE_ALIGNED;
    _Atomic uint64_t consumed; /* position in the ring of the peer, here; changes under receive_mutex */
    uint64_t key;              /* of that position */
    _Atomic uint64_t credited; /* the last such position that was sent to the peer */
    _Atomic bool owes_credit;
    struct remo__thread *credit_writer; /* of `credited`, on unmapped fabrics */
    struct remo__write_mark credit_mark;
    _Atomic bool is_missed; /* a thread found receive_mutex held: probe again after its release */
    bool is_broken;         /* a record was malformed */
    bool has_conflict;      /* the place of one of its LONG requests was not free */
    bool owes_reply;        /* the next request has been executed; its reply was not sent */
    uint8_t owed_kind;      /* enum remo__rpc_kind */
    int owed_status;
    uint64_t owed_head; /* of the request, with the forwards that failed */
} REMO__CACHE_ALIGNED;

/* `own.state` of a call. */
enum remo__rpc_call_state {
    REMO__RPC_CALL_IDLE, /* not started yet, or ended */
    REMO__RPC_CALL_STARTING,
    REMO__RPC_CALL_QUEUED,
    REMO__RPC_CALL_SENT
};

enum remo__rpc_slot_state {
    REMO__RPC_SLOT_FREE,
    REMO__RPC_SLOT_BUSY,    /* a call owns it */
    REMO__RPC_SLOT_RETIRED, /* its call has ended; a late reply or note may still arrive */
    REMO__RPC_SLOT_LOST     /* a failed node may still write it, so it is not used again */
};

struct remo__rpc_slot {
    _Atomic uint32_t serial; /* of its last call */
    _Atomic uint16_t node;   /* to which the call was sent */
    _Atomic uint16_t next;
    _Atomic uint8_t state;
    uint8_t depth;                      /* of its calls, less 1 */
    _Atomic(struct remo_rpc_op *) call; /* with `done`; changes to NULL under done_mutex */
    struct remo__rpc_block *block;      /* of a large call; NULL: none */
};

struct remo__rpc_transport {
    struct remo__shared shared;
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo__memory *rings, *slots, *state;
    bool mapped;
    bool fences; /* before each message: the network does not order writes */
    uint32_t size, rank;
    struct remo__rpc_peer *peers;         /* [size] */
    _Atomic(struct remo_rpc *) *services; /* [REMO__COUNTERS_MAX], by slot of the channel */
    _Atomic uint32_t service_count;
    _Atomic
        uint64_t (*deferred)[REMO__RPC_SLOTS_TOTAL]; /* [size]: {u8 hops, u24 service, u32 serial}; 0: none */

    _Atomic uint64_t free_slots[REMO__RPC_DEPTHS] REMO__CACHE_ALIGNED; /* {u48 changes, u16 first + 1} */
    struct remo__mutex slots_mutex;
    _Atomic uint32_t retired_count;
    uint32_t next_spare;
    struct remo__mutex blocks_mutex;
    struct remo__rpc_block *free_blocks[REMO__RPC_BLOCK_CLASSES];
    uint64_t blocks_bytes; /* of all blocks, without those of lost slots */
    struct remo__rpc_slot slot[REMO__RPC_SLOTS_TOTAL];

    /* what a thread that serves does besides; all zero in most calls */
    _Atomic uint32_t chores REMO__CACHE_ALIGNED; /* queued calls and messages, and owed writes */
    _Atomic uint32_t done_count;                 /* calls with `done` in flight */
    struct remo__mutex calls_mutex, done_mutex;
    struct remo_rpc_op *first_done;
    _Atomic uint32_t timed_count; /* of those, calls with a deadline */
    _Atomic bool must_poll;       /* requests may have arrived that no thread serves */
    _Atomic bool must_scan;       /* calls with `done` may have ended without a reply */
    _Atomic bool missed_done;     /* a thread found done_mutex held: check again after its release */
    /* A node has failed or left. Set after the state of the node, and before the wake-up that follows. */
    _Atomic bool has_departures;
    /* The service thread was woken for a request since a thread last set REMO__RPC_AT_NEAR. */
    _Atomic bool was_woken;
    struct remo__thread_observer observer;
    uint64_t next_poll_ns; /* of the service thread */

    pthread_mutex_t pool_mutex; /* held while the pool starts */
    _Atomic(struct remo__rpc_pool *) pool;
};

/* `wake` of a call. */
enum remo__rpc_wake {
    REMO__RPC_WAKE_NOW,   /* the caller does other work before it waits */
    REMO__RPC_WAKE_WAITS, /* the caller waits at once: it may owe the wake-up */
    REMO__RPC_WAKE_OWED   /* a busy thread of the node will probably serve the request */
};

struct remo__rpc_counts {
    uint64_t requests, errors, deferred, forwarded, expired;
    uint64_t timed, timed_ns, timed_ns_max;
} REMO__CACHE_ALIGNED;

struct remo__rpc_entry {
    struct remo_rpc_handler handler;
    _Atomic uint32_t queued;          /* LONG requests that have not started */
    _Atomic bool discards_posts;      /* it has discarded one */
    struct remo__rpc_counts counts[]; /* [threads_max], by thread */
};

struct remo_rpc {
    struct remo_channel *channel;
    struct remo_node *node;
    struct remo__rpc_transport *transport;
    _Atomic uint32_t long_count; /* LONG requests that have not ended */
    _Atomic(struct remo__rpc_entry *) entries[REMO_RPC_HANDLERS_MAX];
};

/* The activity of a thread, in `handling` of the thread: it runs a SHORT handler, or a `done` function. Or
 * the activity of a task, in `handling` of the task: it runs a LONG handler. */
struct remo__rpc_turn {
    struct remo__rpc_transport *transport;
    struct remo__thread *thread;
    struct remo_rpc *rpc;
    struct remo__rpc_words words;
    struct remo__rpc_counts *counts;
    uint64_t deadline_ns;
    const struct remo__rpc_places *places; /* of the request; NULL: none */
    uint32_t depth;                        /* 0: a `done` function */
    bool is_replied;                       /* replied, deferred or forwarded */
};

/* Add 1 to a counter that only its thread writes. */
static inline void remo__rpc_count(uint64_t *counter) {
    remo__count(counter, 1);
}
static inline void remo__rpc_count_time(struct remo__rpc_counts *counts, uint64_t run_ns) {
    remo__rpc_count(&counts->timed);
    remo__count(&counts->timed_ns, run_ns);
    if (run_ns > counts->timed_ns_max)
        remo__count(&counts->timed_ns_max, run_ns - counts->timed_ns_max);
}

/* ---- transport.c ---- */

int remo__rpc_transport_get(struct remo_node *node, struct remo__rpc_transport **ret_transport);

/* Let the service thread check for chores soon. Threads: any. */
static inline void remo__rpc_request_sweep(struct remo__rpc_transport *transport) {
    remo__request_sweeps(transport->node);
}
/* The same, also for requests. */
static inline void remo__rpc_request_poll(struct remo__rpc_transport *transport) {
    atomic_store(&transport->must_poll, true);
    remo__request_sweeps(transport->node);
}

/* Release receive_mutex of a thread that does not serve the ring. Another thread may have left a request to
 * it (lock_ring in serve.c). */
static inline void remo__rpc_unlock_ring(struct remo__rpc_transport *transport, uint32_t node) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    remo__mutex_unlock(transport->node, &peer->receive_mutex);
    if (remo__unlikely(atomic_load(&peer->is_missed)))
        remo__rpc_request_poll(transport);
}

static inline bool remo__rpc_is_up(const struct remo__rpc_transport *transport, uint32_t node) {
    return remo__channel_is_connected(transport->channel, node);
}
/* Return whether the node has failed or left. A node that is neither up nor departed connects later. */
static inline bool remo__rpc_has_departed(const struct remo__rpc_transport *transport, uint32_t node) {
    return remo__unlikely(!remo__rpc_is_up(transport, node))
           && remo_channel_peer(transport->channel, node) > REMO_CHANNEL_CONNECTED;
}
static inline char *remo__rpc_own_state(const struct remo__rpc_transport *transport, uint32_t at) {
    return transport->state->own + at;
}
static inline bool remo__rpc_has_pollers(const struct remo__rpc_transport *transport) {
    return remo__load(remo__rpc_own_state(transport, REMO__RPC_AT_POLLERS)) != 0;
}

/* Acquire send_mutex, calls_mutex or slots_mutex. Blocks the thread, not only its task: the caller may be in
 * a handler that runs on the stack of a task, and the holder never waits. */
static inline void remo__rpc_lock(const struct remo__rpc_transport *transport, struct remo__mutex *mutex) {
    if (remo__likely(remo__mutex_try_lock(mutex)))
        return;
    struct remo__scheduler *scheduler = remo__scheduler;
    remo__scheduler = NULL;
    (void)remo__mutex_lock(transport->node, mutex, REMO_FOREVER);
    remo__scheduler = scheduler;
}
static inline void remo__rpc_unlock(const struct remo__rpc_transport *transport, struct remo__mutex *mutex) {
    remo__mutex_unlock(transport->node, mutex);
}

/* ---- send.c ---- */

/* Complete the earlier writes of the thread to `node`, if the network could place them after a message. A
 * failure is transient: nothing is sent then. Errors: those of remo__fence_writer. */
int remo__rpc_order(const struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node);
/* Write a request into the ring at `node`. send_mutex is held. Returns 1, 0 (no room now), or an error. */
int remo__rpc_send(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t counters,
                   uint32_t node, struct remo__rpc_words words, const void *data);
/* Wake a thread at `node` that serves, unless one polls. On unmapped fabrics the write did so. */
void remo__rpc_wake(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node);
/* Start a call: send it, or queue it. */
int remo__rpc_submit(struct remo__thread *thread, struct remo_rpc_op *call);
/* Wake the service thread of the server now if the call owes this, and has not ended. */
void remo__rpc_wake_late(struct remo__rpc_transport *transport, struct remo__thread *thread,
                         struct remo_rpc_op *call);
/* Send a request without a call. `queues`: copy and queue it if there is no room. Returns 1, 0 (no room), or
 * an error. */
int remo__rpc_send_message(struct remo__thread *thread, const struct remo_rpc *rpc, uint32_t node,
                           struct remo__rpc_words words, const void *data, bool queues);
/* Start a write of a reply or note, if that is possible at once. `immediate`: 0, or 1 + the slot of a call
 * with `done`. Errors: -ETIMEDOUT (not now), those of remo__op_write. */
int remo__rpc_try_write(struct remo__rpc_transport *transport, struct remo__thread *thread,
                        struct remo__ref ref, const void *image, size_t bytes, uint32_t immediate);
/* Queue a reply or note whose write could not start: `bytes` at `offset` in the slots of `node`.
 * `immediate`: 0, or 1 + the slot of a call with `done`. */
int remo__rpc_queue_write(struct remo__rpc_transport *transport, struct remo__thread *thread,
                          uint32_t counters, uint32_t node, uint64_t offset, const void *image, size_t bytes,
                          uint32_t immediate);
/* Remove a call from the queue. Returns whether it was there: it was not sent. */
bool remo__rpc_unqueue(struct remo__rpc_transport *transport, struct remo_rpc_op *call);
/* Return room in the ring of `node` to it, by a write. receive_mutex is held. */
void remo__rpc_return_credit(struct remo__rpc_transport *transport, struct remo__thread *thread,
                             uint32_t node);
/* Send what is queued and owed, as far as possible. */
void remo__rpc_do_chores(struct remo__rpc_transport *transport, struct remo__thread *thread);
void remo__rpc_queues_free(struct remo__rpc_transport *transport);
/* A queue may have room again. */
static inline void remo__rpc_add_credit(struct remo__rpc_peer *peer, uint64_t position) {
    uint64_t before = atomic_load_explicit(&peer->credit, memory_order_relaxed);
    while (position > before && position <= atomic_load(&peer->position)
           && !atomic_compare_exchange_weak(&peer->credit, &before, position))
        continue;
}

/* ---- block.c ---- */

/* Errors: -ENOBUFS, -ENOMEM, those of remo__arena_alloc. */
int remo__rpc_block_take(struct remo__rpc_transport *transport, uint64_t bytes,
                         struct remo__rpc_block **ret_block);
/* No node uses the block any more. */
void remo__rpc_block_give(struct remo__rpc_transport *transport, struct remo__rpc_block *block);
/* A failed node may use the block at any time: never use it again. */
void remo__rpc_block_lose(struct remo__rpc_transport *transport, struct remo__rpc_block *block);
void remo__rpc_blocks_free(struct remo__rpc_transport *transport);

/* ---- slot.c ---- */

/* Divide the slots, all of which are free. */
void remo__rpc_slots_init(struct remo__rpc_transport *transport);
/* Take a slot for a call to `node` at `depth`, from 1. Returns REMO__RPC_NO_SLOT if none is free. */
uint32_t remo__rpc_slot_take(struct remo__rpc_transport *transport, uint32_t node, uint32_t depth,
                             uint32_t *ret_serial);
/* The call was not sent. Wakes no thread: a caller that repeats the attempt would wake itself. */
void remo__rpc_slot_return(struct remo__rpc_transport *transport, uint32_t slot);
/* The call has its reply, which was forwarded `hops` times. */
void remo__rpc_slot_give(struct remo__rpc_transport *transport, uint32_t slot, uint32_t hops);
/* The reply to the call of the slot is complete, or was copied: give its block back. */
static inline void remo__rpc_slot_release(struct remo__rpc_transport *transport, uint32_t slot) {
    struct remo__rpc_block *block = transport->slot[slot].block;
    if (remo__likely(!block))
        return;
    transport->slot[slot].block = NULL;
    remo__rpc_block_give(transport, block);
}
/* The call has ended without a reply. `is_lost`: the node that would reply has failed. */
void remo__rpc_slot_abandon(struct remo__rpc_transport *transport, uint32_t slot, bool is_lost);
/* Free the retired slots whose reply has arrived, and those of failed nodes. */
void remo__rpc_slots_reclaim(struct remo__rpc_transport *transport);
/* The same for calls to `node` at `depth`, from 1. Ends when all of them were checked. */
void remo__rpc_slots_reclaim_of(struct remo__rpc_transport *transport, uint32_t node, uint32_t depth);
/* Take the credit of all replies that have arrived from `node`, of any call. */
void remo__rpc_slots_collect(struct remo__rpc_transport *transport, uint32_t node);
/* Return whether a node that had the request of the slot's call has failed or left: the server, or a node to
 * which it was forwarded. The request may be lost then. */
bool remo__rpc_slot_is_orphaned(const struct remo__rpc_transport *transport, uint32_t slot);

/* A reply that has arrived. */
struct remo__rpc_reply {
    uint64_t head, result;
    const void *data; /* in the slot, or in the image */
};
/* Return whether the reply to the last call of the slot is complete. `image`: REMO__RPC_REPLY_MAX bytes for
 * unmapped fabrics. Takes its credit. */
bool remo__rpc_slot_probe(struct remo__rpc_transport *transport, uint32_t slot, uint64_t *image,
                          struct remo__rpc_reply *ret_reply);
/* Return whether the reply to the last call of the slot is malformed: it is never complete. */
bool remo__rpc_slot_is_malformed(const struct remo__rpc_transport *transport, uint32_t slot);

/* A call with `done` counts as sent. If its reply has arrived before, mark it as ended again. */
void remo__rpc_slot_recheck(struct remo__rpc_transport *transport, uint32_t slot, uint32_t serial);

static inline char *remo__rpc_slot_memory(const struct remo__rpc_transport *transport, uint32_t slot) {
    return transport->slots->own + (size_t)slot * REMO__RPC_SLOT_BYTES;
}
static inline uint64_t remo__rpc_reply_offset(uint32_t slot) {
    return (uint64_t)slot * REMO__RPC_SLOT_BYTES + REMO__RPC_NOTES;
}
/* The key of the reply to one call. */
static inline uint64_t remo__rpc_reply_key(uint32_t slot, uint32_t serial) {
    return remo__random_mix((uint64_t)serial << 32 | (slot + 1));
}

/* Return the handler or `done` function of the node that the caller runs in, or NULL. A SHORT one may run in
 * a wait of a task that runs a LONG one. */
static inline const struct remo__rpc_turn *remo__rpc_turn_of(const struct remo__rpc_transport *transport,
                                                             const struct remo__thread *thread) {
    const struct remo__rpc_turn *turn = thread->handling;
    if (turn || remo__likely(!remo__scheduler))
        return turn;
    turn = remo__scheduler->running->handling;
    return turn && turn->transport == transport ? turn : NULL;
}

/* The operations of tasks are deferred, and may fail when they are posted. A message of a LONG handler, for
 * which others wait, is posted at once instead: then the failure is found here. Returns whether the caller
 * must end it. */
static inline bool remo__rpc_undefer(struct remo__thread *thread) {
    struct remo__scheduler *scheduler = remo__scheduler;
    if (remo__likely(!scheduler) || !scheduler->running->handling || scheduler->is_checking)
        return false;
    remo__slots_post_deferred(thread); /* no message may overtake those to the same peer */
    scheduler->is_checking = true;     /* what a condition starts is not deferred */
    return true;
}
static inline void remo__rpc_undefer_end(bool has_begun) {
    if (remo__unlikely(has_begun))
        remo__scheduler->is_checking = false;
}

/* ---- serve.c ---- */

/* Serve what has arrived: requests, replies to calls with `done`, chores. Returns whether there was any.
 * Never waits. No effect in a handler. */
bool remo__rpc_poll(struct remo__rpc_transport *transport, struct remo__thread *thread);
/* The same, until nothing is left of what had arrived. */
bool remo__rpc_poll_all(struct remo__rpc_transport *transport, struct remo__thread *thread);

/* Return where the next request of a ring will be. */
static inline const char *remo__rpc_next_record(const struct remo__rpc_transport *transport, uint32_t node,
                                                uint64_t position) {
    return transport->rings->own + (size_t)node * REMO__RPC_RING_SPAN + remo__rpc_offset(position);
}
/* Return whether the ring may have a request: a load, without a lock. */
static inline bool remo__rpc_has_record(const struct remo__rpc_transport *transport, uint32_t node) {
    uint64_t position = atomic_load_explicit(&transport->peers[node].consumed, memory_order_relaxed);
    return remo__rpc_lap(remo__load(remo__rpc_next_record(transport, node, position)))
           == remo__rpc_lap_of(position);
}
/* Return whether a thread that serves has other work: chores, or calls with `done`. */
static inline bool remo__rpc_has_others(const struct remo__rpc_transport *transport) {
    return (atomic_load_explicit(&transport->chores, memory_order_relaxed)
            | atomic_load_explicit(&transport->done_count, memory_order_relaxed))
           != 0;
}
/* Return whether remo__rpc_serve_arrived may have an effect. A thread that often finds nothing calls only
 * this. */
static inline bool remo__rpc_may_have_work(const struct remo__rpc_transport *transport) {
    if (remo__unlikely(transport->size > REMO__RPC_DIRECT_NODES))
        return true;
    for (uint32_t node = 0; node < transport->size; node++)
        if (remo__unlikely(remo__rpc_has_record(transport, node)))
            return true;
    return remo__rpc_has_others(transport)
           || atomic_load_explicit(&transport->was_woken, memory_order_relaxed);
}

/* remo__rpc_poll_all for a busy thread that does so often. The fabric is mapped. */
void remo__rpc_serve_arrived(struct remo__rpc_transport *transport, struct remo__thread *thread);
/* The same, cheap if nothing has arrived. */
static inline void remo__rpc_serve_now(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    if (remo__unlikely(remo__rpc_may_have_work(transport)))
        remo__rpc_serve_arrived(transport, thread);
}

/* A wait of a thread that serves meanwhile. */
struct remo__rpc_wait {
    struct remo__rpc_transport *transport;
    struct remo__thread *thread;
    int (*is_over)(void *ctx); /* as `ready` of remo__wait */
    void *ctx;
    struct remo_rpc_op *const *owing; /* calls, some of which owe wake-ups */
    uint32_t owing_count;             /* 0: none of them does */
    uint64_t wake_ns;                 /* when the wake-ups are due */
    uint32_t spins;                   /* before each remo__wait */
    bool is_poller;                   /* the thread is counted in `pollers` */
    bool has_served;                  /* the wait was left because a request was found: spin again */
};
int remo__rpc_wait(struct remo__rpc_transport *transport, struct remo__thread *thread,
                   int (*is_over)(void *ctx), void *ctx, uint64_t deadline_ns);
/* The same; the thread waits for these calls. */
int remo__rpc_wait_calls(struct remo__rpc_transport *transport, struct remo__thread *thread,
                         int (*is_over)(void *ctx), void *ctx, struct remo_rpc_op *const *calls,
                         uint32_t count, uint64_t deadline_ns);

/* ---- pool.c ---- */

/* Start the pool of the node, unless it has started. Errors: those of remo_rpc_handle. */
int remo__rpc_pool_start(struct remo__rpc_transport *transport);
/* Close the pool, if there is one. No service is open, so it has no requests. */
void remo__rpc_pool_stop(struct remo__rpc_transport *transport);
/* Copy a LONG request, which leaves its ring. Returns false if another request for the same reply has not
 * started: one of the two is discarded. receive_mutex of the ring is held. */
bool remo__rpc_pool_add(const struct remo__rpc_turn *turn, struct remo__rpc_entry *entry, const void *data);
/* The service closes, and receives nothing any more: refuse its requests that have not started, and wait
 * until the others have ended. `thread` NULL: those that have not started run too. */
void remo__rpc_pool_drain(struct remo_rpc *rpc, struct remo__thread *thread);

/* Run a handler with the data of its request, and measure its time if `is_timed`. */
static inline int remo__rpc_run_handler(const struct remo__rpc_turn *turn,
                                        const struct remo__rpc_entry *entry, const void *data,
                                        bool is_timed) {
    struct remo_rpc_request request = {.node = remo__rpc_origin(turn->words.call),
                                       .number = remo__rpc_number(turn->words.head),
                                       .data = data,
                                       .bytes = remo__likely(!turn->places)
                                                    ? remo__rpc_bytes(turn->words.head)
                                                    : turn->places->request_bytes,
                                       .state = (void *)(uintptr_t)turn};
    if (remo__likely(!is_timed))
        return entry->handler.run(entry->handler.ctx, &request);
    uint64_t start_ns = remo__now_ns();
    int status = entry->handler.run(entry->handler.ctx, &request);
    remo__rpc_count_time(turn->counts, remo__now_ns() - start_ns);
    return status;
}

/* ---- target.c ---- */

/* Return 0 if the arguments of a message are valid. */
int remo__rpc_check_arguments(const struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data,
                              size_t bytes);
/* Return 0 if the node can be called now. */
int remo__rpc_check_connected(const struct remo_rpc *rpc, uint32_t node);
/* Both: return 0 if such a message can be sent to `node` now, else the error of remo_rpc_start. */
int remo__rpc_check_target(const struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data,
                           size_t bytes);
/* Return the word of a request that has its service and its time. */
uint64_t remo__rpc_rest(const struct remo_rpc *rpc, uint32_t node, uint64_t deadline_ns);

/* ---- large.c ---- */

static inline bool remo__rpc_is_large(const struct remo_rpc_op *call) {
    return call->request_bytes > REMO__RPC_DATA_MAX || (call->reply_cap > REMO__RPC_DATA_MAX && call->reply)
           || (call->request_place.word | call->reply_place.word) != 0;
}
/* Find or take the places of a large call, copy its request there, and set `places`, `block` and `head` of
 * `own`. Errors: those of remo_rpc_start. */
int remo__rpc_large_prepare(struct remo__rpc_transport *transport, struct remo_rpc_op *call);
/* Compose the data of a record with places: REMO__RPC_RECORD_MAX bytes at most. `data`: of a request that is
 * in no place. */
void remo__rpc_large_compose(const struct remo__rpc_places *places, const void *data, uint64_t *ret_image);
/* Copy a reply of REMO__RPC_REPLIED_IN_PLACE to the buffer of the call. Returns false if it is too long. */
bool remo__rpc_large_take(const struct remo__rpc_transport *transport, const struct remo_rpc_op *call,
                          const struct remo__rpc_reply *reply, size_t *ret_bytes);
/* Return the memory for a short reply to a call: its buffer or the place that the program has named. */
void *remo__rpc_large_buffer(const struct remo__rpc_transport *transport, const struct remo_rpc_op *call);
/* Copy and check the places at the start of the data of a request. Returns false if they are malformed. */
bool remo__rpc_large_decode(const struct remo__rpc_words *words, const void *data,
                            struct remo__rpc_places *ret_places);
/* Read the request from its place to *ret_data, which the caller frees. Waits. Errors: -ENOMEM, those of
 * remo_read. */
int remo__rpc_large_read(const struct remo__rpc_turn *turn, void **ret_data);
/* Write a reply to its place; the reply record must follow in the same thread. Waits until no write is in
 * flight. Errors: -EHOSTDOWN (the caller has failed or left), those of remo_write. */
int remo__rpc_large_write(const struct remo__rpc_transport *transport, const struct remo_rpc *rpc,
                          uint64_t place, const void *data, uint64_t bytes);

/* ---- end.c ---- */

static inline bool remo__rpc_is_in_flight(const struct remo_rpc_op *call) {
    return __atomic_load_n(&call->own.state, __ATOMIC_ACQUIRE) != REMO__RPC_CALL_IDLE;
}
/* End the call. The caller may reuse it as soon as the state is set. */
void remo__rpc_end_call(struct remo_rpc_op *call, int status, enum remo_rpc_fate fate, size_t reply_bytes);
/* End the call if its reply has arrived, or cannot arrive. Returns whether it has ended. */
bool remo__rpc_check_call(struct remo__rpc_transport *transport, struct remo_rpc_op *call);
/* End the call without a reply. */
void remo__rpc_abandon_call(struct remo__rpc_transport *transport, struct remo_rpc_op *call, int status);
/* Add a call to the list of calls with `done`, or remove it. */
void remo__rpc_list_done(struct remo__rpc_transport *transport, struct remo_rpc_op *call);
void remo__rpc_unlist(struct remo__rpc_transport *transport, struct remo_rpc_op *call);
/* Keep other threads from ending calls with `done`: acquire done_mutex, unless this thread holds it,
 * because it runs a `done` function. Returns whether the caller must release it. */
bool remo__rpc_hold_done(struct remo__rpc_transport *transport, const struct remo__thread *thread);
/* Complete calls with `done` that have ended. Returns whether there was any. */
bool remo__rpc_complete_done(struct remo__rpc_transport *transport, struct remo__thread *thread);

/* ---- reply.c ---- */

/* Send the reply to the request of `words`. `rpc`: NULL if there is no such service. */
int remo__rpc_send_reply(struct remo__rpc_transport *transport, struct remo__thread *thread,
                         const struct remo_rpc *rpc, const struct remo__rpc_words *words,
                         enum remo__rpc_kind kind, int status, const void *data, size_t bytes);
/* The service closes: reply to its deferred requests. */
void remo__rpc_abandon_deferred(const struct remo_rpc *rpc, struct remo__thread *thread);

/* Change a bit of the state at `base`, the start of some node's state. Returns the word before. */
static inline uint64_t remo__rpc_set_bit(char *base, uint32_t at, uint32_t bit) {
    return remo__mapped_fetch_or(base + at + bit / 64 * 8, UINT64_C(1) << bit % 64);
}
static inline uint64_t remo__rpc_clear_bit(char *base, uint32_t at, uint32_t bit) {
    return remo__mapped_fetch_and(base + at + bit / 64 * 8, ~(UINT64_C(1) << bit % 64));
}
static inline bool remo__rpc_has_bit(char *base, uint32_t at, uint32_t bit) {
    return remo__load(base + at + bit / 64 * 8) >> bit % 64 & 1;
}
