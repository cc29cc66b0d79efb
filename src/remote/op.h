/* op.h - one network operation of a thread on a peer: the hot path.
 *
 * Model:      on a mapped fabric an operation is a few inline instructions on the peer's memory: no queue, no
 *             table, no system call. On other fabrics it uses a slot of the thread (slots.c). It holds
 *             everything that the completion needs, so a caller may stop waiting at any time.
 * Parameters: `offset` is an offset in the peer's arena, which the caller has checked. `stats` are the
 *             thread's counters of the channel. With an ack, the result is in place when the ack is complete;
 *             without one, on return.
 * Errors:     -EHOSTDOWN, -ETIMEDOUT, and those of the fabric's post. */
#pragma once

#include <errno.h>

#include "fabric/mapped.h"
#include "remote/thread.h"

/* REMO__SLOTS_MAX is the limit of operations in flight per thread. */
#ifdef REMO_SIM_SMALL
#define REMO__BOUNCE_BYTES 512u
#define REMO__SLOTS_MAX 16u /* the depth of the simulated network */
#else
#define REMO__BOUNCE_BYTES REMO_BUFFER_BYTES
#define REMO__SLOTS_MAX 128u
#endif

/* Flags of a write. */
enum {
    REMO__WRITE_NOTIFY = 1, /* ring the target's doorbell */
    REMO__WRITE_IMM = 2,    /* deliver an immediate */
    /* An exempt write, always with an ack. Only remo__fence_leave flushes it, and no fence returns its
     * failure: the object that writes it does both if necessary. No call reports a failure after
     * remo_ack_cancel. */
    REMO__WRITE_EXEMPT = 4,
    REMO__WRITE_TRACKED = 8 /* remo__op_abandoned counts the write */
};

/* ---- slots: the operations in flight of a thread ---- */

/* Errors: -ENOMEM, -ENOSPC, and those of the fabric's endpoint_open. */
int remo__slots_open(struct remo_node *node, struct remo__slots **ret_slots);
void remo__slots_close(struct remo__slots *slots);
/* Let a new thread use the slots of one that has ended. Errors of earlier writes remain for global fences. */
void remo__slots_inherit(struct remo__thread *thread);
/* Defer operations until the matching uncork, then post those to one peer together: where the fabric
 * supports it, with one doorbell and one completion. A wait or a fence in between posts them early. Calls
 * may be nested. No effect on mapped fabrics. */
void remo__slots_cork(struct remo__thread *thread);
void remo__slots_uncork(struct remo__thread *thread);

static inline void remo__cork(struct remo__thread *thread) {
    if (remo__unlikely(!thread->node->mapped))
        remo__slots_cork(thread);
}

static inline void remo__uncork(struct remo__thread *thread) {
    if (remo__unlikely(!thread->node->mapped))
        remo__slots_uncork(thread);
}

/* Post deferred operations, as far as there is room. */
void remo__slots_post_deferred(struct remo__thread *thread);
/* Collect completions, and post operations that an uncork has left deferred. Returns the number of operations
 * in flight. Never blocks. Cost: one load if none is in flight. */
uint32_t remo__slots_progress(struct remo__thread *thread);
/* Drive the operations of threads that have not polled since the last call. Returns false if there was none
 * for some calls: the caller then sleeps until a thread requests sweeps again. *ret_completed: an operation
 * has completed. Threads: service. */
bool remo__slots_sweep(struct remo_node *node, uint32_t *quiet, bool *ret_completed);
/* Place all writes of `writer` to `peer` so far. Unlike remo_fence it involves no other peer and no other
 * thread, so the failure of another node does not affect it.
 * Errors: those of remo_fence; those of failed writes only if `writer` is the caller. */
int remo__fence_peer(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer);
/* The same, but leave the errors of failed writes to later fences of the program. */
int remo__fence_writer(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer);
/* Return whether an operation of this node is in flight although its caller no longer waits: an atomic at
 * `peer`, or a REMO__WRITE_TRACKED write or a remo__op_flush to any peer. It may be applied at any time.
 * Drives operations; not for the hot path. */
bool remo__op_abandoned(struct remo_node *node, uint32_t peer);
/* Post deferred operations, then sleep until a completion, or `timeout_ns`. */
void remo__slots_sleep(struct remo__thread *thread, uint64_t timeout_ns);

/* The general path: any fabric, any size. Mapped fabrics use it for immediates, and for peers that are not
 * mapped, to set the sentence of the error. */
int remo__op_read(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                  void *dst, size_t bytes, struct remo_ack *ack);
int remo__op_write(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                   const void *src, size_t bytes, uint32_t flags, uint32_t imm, struct remo_ack *ack);
/* Post a read of the word at `offset`. When it is complete, the earlier writes of `thread` to `peer` are
 * placed. Does not wait for it: remo__op_abandoned and fences do. */
int remo__op_flush(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset);
int remo__op_atomic(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                    uint8_t kind, uint64_t operand, uint64_t compare, uint64_t *ret_old,
                    struct remo_ack *ack);

/* Return whether an operation of the ack is in flight. The service thread may complete it at any time. */
static inline bool remo__ack_pending(const struct remo_ack *ack) {
    return __atomic_load_n(&ack->pending, __ATOMIC_ACQUIRE) > 0;
}

/* Add to a counter. Only its thread writes it; all threads read it. */
static inline void remo__count(uint64_t *counter, uint64_t by) {
    __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED);
}

/* Return the address at which a peer's arena is mapped, or NULL. */
static inline char *remo__node_base(const struct remo_node *node, uint32_t peer) {
#ifdef REMO_SIM
    (void)node, (void)peer;
    return NULL;
#else
    return atomic_load_explicit(&node->fabric->peers[peer].base, memory_order_relaxed);
#endif
}

static inline char *remo__peer_base(const struct remo__thread *thread, uint32_t peer) {
    return remo__node_base(thread->node, peer);
}

static inline __attribute__((always_inline)) int remo__read(struct remo__thread *thread,
                                                            struct remo_stats *stats, uint32_t peer,
                                                            uint64_t offset, void *dst, size_t bytes,
                                                            struct remo_ack *ack) {
    char *base = remo__peer_base(thread, peer);
    if (remo__unlikely(!base))
        return remo__op_read(thread, stats, peer, offset, dst, bytes, ack);
    remo__mapped_copy_from(dst, base + offset, bytes);
    remo__count(&stats->reads, 1);
    remo__count(&stats->bytes, bytes);
    return 0;
}

static inline __attribute__((always_inline)) int remo__write(struct remo__thread *thread,
                                                             struct remo_stats *stats, uint32_t peer,
                                                             uint64_t offset, const void *src, size_t bytes,
                                                             uint32_t flags, struct remo_ack *ack) {
    char *base = remo__peer_base(thread, peer);
    if (remo__unlikely(!base))
        return remo__op_write(thread, stats, peer, offset, src, bytes, flags, 0, ack);
    remo__mapped_copy_to(base + offset, src, bytes);
    remo__count(&stats->writes, 1);
    remo__count(&stats->bytes, bytes);
    thread->unfenced = true;
    if (flags & REMO__WRITE_NOTIFY) {
        remo__count(&stats->imms, 1);
        thread->unfenced = false; /* notifying is a full fence */
        remo__mapped_notify(&thread->node->fabric->peers[peer]);
    }
    return 0;
}

static inline __attribute__((always_inline)) int remo__fetch_add(struct remo__thread *thread,
                                                                 struct remo_stats *stats, uint32_t peer,
                                                                 uint64_t offset, uint64_t addend,
                                                                 uint64_t *ret_old, struct remo_ack *ack) {
    char *base = remo__peer_base(thread, peer);
    if (remo__unlikely(!base))
        return remo__op_atomic(thread, stats, peer, offset, REMO__OP_FETCH_ADD, addend, 0, ret_old, ack);
    uint64_t old =
        atomic_fetch_add_explicit((_Atomic uint64_t *)(base + offset), addend, memory_order_seq_cst);
    if (ret_old)
        *ret_old = old;
    remo__count(&stats->atomics, 1);
    remo__count(&stats->bytes, 8);
    return 0;
}

static inline __attribute__((always_inline)) int
remo__compare_swap(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                   uint64_t expected, uint64_t desired, uint64_t *ret_old, struct remo_ack *ack) {
    char *base = remo__peer_base(thread, peer);
    if (remo__unlikely(!base))
        return remo__op_atomic(thread, stats, peer, offset, REMO__OP_COMPARE_SWAP, desired, expected, ret_old,
                               ack);
    atomic_compare_exchange_strong_explicit((_Atomic uint64_t *)(base + offset), &expected, desired,
                                            memory_order_seq_cst, memory_order_seq_cst);
    if (ret_old)
        *ret_old = expected;
    remo__count(&stats->atomics, 1);
    remo__count(&stats->bytes, 8);
    return 0;
}
