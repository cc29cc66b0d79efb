/* op.h - one network operation on one peer, from one thread: the hot path.
 *
 * On a mapped fabric an operation is a few inline instructions on the peer's memory: no queue, no table, no
 * system call. On others it goes through the thread's slots (op.c): a slot holds what the completion needs
 * (ack, where to copy to, a bounce block), so a caller may give up waiting at any time.
 *
 * `offset` is an arena offset of the peer, already checked by the caller. `stats` are the thread's counters
 * of the channel. Results with an ack are in place when it is done; without one, on return.
 */
#pragma once

#include <errno.h>

#include "fabric/mapped.h"
#include "node/node.h"

/* REMO__SLOTS_MAX: operations in flight per thread. */
#ifdef REMO_SIM_SMALL
#define REMO__BOUNCE_BYTES 512u
#define REMO__SLOTS_MAX 16u /* as deep as the simulated network is */
#else
#define REMO__BOUNCE_BYTES REMO_BUFFER_BYTES
#define REMO__SLOTS_MAX 128u
#endif

/* Internal write flags besides enum remo_write_flags. */
enum {
    REMO__WRITE_NOTIFY = 1,
    REMO__WRITE_IMM = 2,
    /* An object's own, for which it answers itself: no fence need place it, or fail when its target dies. */
    REMO__WRITE_SETTLED = 4
};

int remo__slots_open(struct remo_node *node, struct remo__slots **ret_slots);
void remo__slots_close(struct remo__slots *slots);
/* Another thread goes on with what one that ended has left: errors of writes that are not its own are told to
 * global fences only. */
void remo__slots_inherit(struct remo__thread *thread);
/* Between cork and uncork operations that need not be waited for are held back, so that they go to the
 * network together: all those to one peer in one post, where the fabric can (ring the doorbell once, complete
 * once). Whoever waits or fences in between sends them. May be nested. Mapped fabrics have nothing to hold.
 * */
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

/* Send what is held back, as far as there is room. */
void remo__slots_send(struct remo__thread *thread);
/* Collect completions of this thread's operations; cheap when none are in flight. Returns how many are. */
uint32_t remo__slots_progress(struct remo__thread *thread);
/* Drive operations whose threads have not driven them since the last call. False: there were none for a while;
 * sleep until a thread leaves one behind. *ret_completed: some have completed. Called by the service thread,
 * every so often. */
bool remo__slots_sweep(struct remo_node *node, uint32_t *quiet, bool *ret_completed);
/* All that `writer` has written to `peer` so far is placed. Other than a fence it asks nobody else, and tells
 * nobody else's errors: an object whose writes are to be seen at one node must not fail because another one
 * died. Errors: as of a fence, when `writer` is the caller. */
int remo__fence_placed(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer);
/* Return whether an operation of this node is in flight although its caller no longer waits: an atomic at
 * `peer`, a read, or a REMO__WRITE_SETTLED write. It may be applied at any time. Drives operations; not for the
 * hot path. */
bool remo__op_abandoned(struct remo_node *node, uint32_t peer);
/* Sleep for a completion, at most `timeout_ns`. */
void remo__slots_sleep(struct remo__thread *thread, uint64_t timeout_ns);

/* The general path: any fabric, any size; mapped ones come here for immediates and to have their errors told.
 */
int remo__op_read(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                  void *dst, size_t bytes, struct remo_ack *ack);
int remo__op_write(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                   const void *src, size_t bytes, uint32_t flags, uint32_t imm, struct remo_ack *ack);
int remo__op_atomic(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer, uint64_t offset,
                    uint8_t kind, uint64_t operand, uint64_t compare, uint64_t *ret_old,
                    struct remo_ack *ack);

/* Is anything of the ack in flight? Operations may be finished by the service thread. */
static inline bool remo__ack_pending(const struct remo_ack *ack) {
    return __atomic_load_n(&ack->pending, __ATOMIC_ACQUIRE) > 0;
}

/* Counters: written by their own thread alone, read by all. */
static inline void remo__count(uint64_t *counter, uint64_t by) {
    __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED);
}

/* Where a peer's memory is mapped; NULL: it is not. */
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

static inline int remo__read(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer,
                             uint64_t offset, void *dst, size_t bytes, struct remo_ack *ack) {
    char *base = remo__peer_base(thread, peer);
    if (remo__unlikely(!base))
        return remo__op_read(thread, stats, peer, offset, dst, bytes, ack);
    remo__mapped_copy_from(dst, base + offset, bytes);
    remo__count(&stats->reads, 1);
    remo__count(&stats->bytes, bytes);
    return 0;
}

static inline int remo__write(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer,
                              uint64_t offset, const void *src, size_t bytes, uint32_t flags,
                              struct remo_ack *ack) {
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

static inline int remo__fetch_add(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer,
                                  uint64_t offset, uint64_t addend, uint64_t *ret_old, struct remo_ack *ack) {
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

static inline int remo__compare_swap(struct remo__thread *thread, struct remo_stats *stats, uint32_t peer,
                                     uint64_t offset, uint64_t expected, uint64_t desired, uint64_t *ret_old,
                                     struct remo_ack *ack) {
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
