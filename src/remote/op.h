/* op.h - one network operation of a thread on a peer: the hot path.
 *
 * Model:      on a mapped fabric an operation is a few inline instructions on the peer's memory: no queue, no
 *             table, no system call. So is an operation of an ofi node on itself. Others use a slot of the
 *             thread (slots.c). It holds everything that the completion needs, so a caller may stop
 *             waiting at any time.
 * Parameters: `ref` is the place. With an ack, the result is in place when the ack is complete; without one,
 *             on return.
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

/* A reference: the place of an operation, and the thread that executes it. It is made from the memory of a
 * channel (remo__memory_find in channel.h) or from an address (address.c), which check it; operations do not
 * check it again. Passed by value: the mapped path keeps it in registers. So each function that sets a
 * reference is always inlined. Otherwise its caller may load two members at once that were stored one by one.
 * Such a load waits until all earlier stores have reached the cache: about 45 ns when a lock is contended. */
struct remo__ref {
    struct remo__thread *thread;
    struct remo_stats *stats; /* the thread's counters of the channel */
    uint32_t node;
    uint64_t at; /* offset in the node's arena */
};

static inline struct remo__ref remo__ref_make(struct remo__thread *thread, struct remo_stats *stats,
                                              uint32_t node, uint64_t at) {
    return (struct remo__ref){.thread = thread, .stats = stats, .node = node, .at = at};
}

/* Return the reference to the place `bytes` after `ref`, in the same memory. */
static inline struct remo__ref remo__ref_after(struct remo__ref ref, uint64_t bytes) {
    ref.at += bytes;
    return ref;
}

/* Return a copy for a call out of line. Without it the compiler keeps `ref` in memory on the mapped path
 * too. */
static inline struct remo__ref remo__ref_in_memory(struct remo__ref ref) {
    return remo__ref_make(ref.thread, ref.stats, ref.node, ref.at);
}

/* Return the reference to `bytes` bytes at an address that may come from another node. Checks the
 * address. Waits until the memory there is announced, for op_timeout_ns at most. Errors: those of
 * remo_read (remo/node.h). */
int remo__address_find(struct remo_node *node, struct remo_addr addr, size_t bytes,
                       struct remo__ref *ret_ref);

/* Flags of a write. */
enum {
    REMO__WRITE_NOTIFY = 1, /* notify the target when the data is placed */
    REMO__WRITE_IMM = 2,    /* deliver an immediate */
    /* An exempt write, always with an ack. Only remo__fence_leave flushes it, and no fence returns its
     * failure: the object that writes it does both if necessary. No call reports a failure after
     * remo_ack_cancel. */
    REMO__WRITE_EXEMPT = 4,
    REMO__WRITE_TRACKED = 8, /* remo__op_abandoned counts the write */
    REMO__WRITE_TRY = 16,    /* of one piece: return -ETIMEDOUT instead of waiting until it can start */
    /* The caller expects that no thread waits for the completion soon, neither for an ack nor in a fence. The
     * fabric may then report it later, and save a message. */
    REMO__WRITE_UNAWAITED = 32
};

/* ---- slots: the operations in flight of a thread ---- */

/* Errors: -ENOMEM, -ENOSPC, and those of the fabric's endpoint_open. */
int remo__slots_open(struct remo_node *node, struct remo__slots **ret_slots);
void remo__slots_close(struct remo__slots *slots);
/* Let a new thread use the slots of one that has ended. Errors of earlier writes remain for global fences. */
void remo__slots_inherit(struct remo__thread *thread);
/* Defer operations until the matching uncork, then post those to one peer together: where the fabric
 * supports it, with one doorbell and one completion. A wait or a fence in between posts them early. Calls
 * may be nested. No effect on mapped fabrics. While tasks of a thread have not ended, operations of the
 * thread and its tasks are deferred without this call, until an event that remo/task.h lists ("Network"). The
 * operations of workers are deferred until the caller of remo__workers_run posts or waits. */
void remo__slots_cork(struct remo__thread *thread);
void remo__slots_uncork(struct remo__thread *thread);

/* Replace the number of corks without an uncork, and return it. 0: the next poll or post posts all. */
uint32_t remo__slots_recork(struct remo__thread *thread, uint32_t depth);

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
/* Make the service thread drive operations of threads that do not poll, if it does not do so already. */
void remo__request_sweeps(struct remo_node *node);
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
/* The writes of a thread to one peer so far, for remo__writes_are_placed. */
struct remo__write_mark {
    uint64_t started; /* operations of the thread, to any peer */
    uint64_t written; /* number of the last write to the peer */
};
struct remo__write_mark remo__writes_mark(const struct remo__thread *writer, uint32_t peer);
/* Return whether the writes of `writer` to `peer` before the mark are placed or lost. Drives them, and
 * flushes them if necessary. Never waits: repeat the call. */
bool remo__writes_are_placed(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer,
                             const struct remo__write_mark *mark);
/* Return whether an operation of this node is in flight although its caller no longer waits: an atomic at
 * `peer`, or a REMO__WRITE_TRACKED write to any peer. It may be applied at any time. Drives operations; not
 * for the hot path. */
bool remo__op_abandoned(struct remo_node *node, uint32_t peer);
/* Return the number of operations that the thread has started so far. Threads: the thread itself. */
uint64_t remo__ops_started(const struct remo__thread *thread);
/* Return whether the first `count` operations of the thread have ended. Drives operations; not for the hot
 * path. */
bool remo__ops_have_ended(struct remo__thread *thread, uint64_t count);
/* Post deferred operations, then sleep until a completion, or `timeout_ns`. Returns false, without a sleep,
 * if no operation is in flight. */
bool remo__slots_sleep(struct remo__thread *thread, uint64_t timeout_ns);

/* The general path: any fabric, any size. Mapped fabrics use it for immediates, and for peers that are not
 * mapped, to set the sentence of the error. */
int remo__op_read(struct remo__ref ref, void *dst, size_t bytes, struct remo_ack *ack);
int remo__op_write(struct remo__ref ref, const void *src, size_t bytes, uint32_t flags, uint32_t imm,
                   struct remo_ack *ack);
int remo__op_atomic(struct remo__ref ref, uint8_t kind, uint64_t operand, uint64_t compare, uint64_t *ret_old,
                    struct remo_ack *ack);

/* Start a read of at most REMO__BOUNCE_BYTES, or a compare-swap, for a caller with a time limit. Block until
 * `deadline_ns` (0: not at all) while no slot of the thread is free or the fabric's queue is full.
 * Errors: as above; after an error the operation is not in flight. */
int remo__op_start_read(struct remo__ref ref, void *dst, size_t bytes, struct remo_ack *ack,
                        uint64_t deadline_ns);
int remo__op_start_compare_swap(struct remo__ref ref, uint64_t expected, uint64_t desired, uint64_t *ret_old,
                                struct remo_ack *ack, uint64_t deadline_ns);

/* Return whether an operation of the ack is in flight. The service thread may complete it at any time. */
static inline bool remo__ack_pending(const struct remo_ack *ack) {
    return __atomic_load_n(&ack->pending, __ATOMIC_ACQUIRE) > 0;
}
/* Return an ack for which only the calling thread or task will wait, by remo__ack_await. `thread` is the
 * calling thread. */
struct remo_ack remo__ack_awaited(struct remo__thread *thread);
/* Wait for the operations of such an ack, as remo_ack_wait does, in fewer steps. */
int remo__ack_await(struct remo_ack *ack, uint64_t timeout_ns);
/* Return whether no other thread is completing an operation of `thread`: that may resume a task of `thread`,
 * even one that has ended. A caller repeats the call until it returns true, without a deadline: the call
 * succeeds when no thread holds the lock of the slots. Another thread holds it for a post or a poll, which
 * the fabric bounds, and never while it sleeps; in between it releases the lock. */
bool remo__ops_settled(struct remo__thread *thread);
/* Wait for the operations of an ack, and cancel those still in flight after `timeout_ns`. The ack may then be
 * used again. Errors: those of remo_ack_wait. */
int remo__ack_settle(struct remo_ack *ack, uint64_t timeout_ns);

/* Add to a counter. Only its thread writes it; all threads read it. */
static inline void remo__count(uint64_t *counter, uint64_t by) {
    __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED);
}

/* Return the address at which a peer's arena is mapped, or NULL. */
static inline char *remo__peer_base(const struct remo_node *node, uint32_t peer) {
    return atomic_load_explicit(&node->fabric->peers[peer].base, memory_order_relaxed);
}

/* The same for the peer of an operation. */
static inline char *remo__ref_base(struct remo__ref ref) {
    return atomic_load_explicit(&ref.thread->peers[ref.node].base, memory_order_relaxed);
}

/* Return the CPU address of the place, or NULL if its node is not mapped. */
static inline const char *remo__ref_mapped(struct remo__ref ref) {
    const char *base = remo__ref_base(ref);
    return remo__likely(base != NULL) ? base + ref.at : NULL;
}

static inline __attribute__((always_inline)) int remo__read(struct remo__ref ref, void *dst, size_t bytes,
                                                            struct remo_ack *ack) {
    char *base = remo__ref_base(ref);
    if (remo__unlikely(!base))
        return remo__op_read(remo__ref_in_memory(ref), dst, bytes, ack);
    remo__mapped_copy_from(dst, base + ref.at, bytes);
    remo__count(&ref.stats->reads, 1);
    remo__count(&ref.stats->bytes, bytes);
    return 0;
}

static inline __attribute__((always_inline)) int
remo__write(struct remo__ref ref, const void *src, size_t bytes, uint32_t flags, struct remo_ack *ack) {
    char *base = remo__ref_base(ref);
    if (remo__unlikely(!base))
        return remo__op_write(remo__ref_in_memory(ref), src, bytes, flags, 0, ack);
    remo__mapped_copy_to(base + ref.at, src, bytes);
    remo__count(&ref.stats->writes, 1);
    remo__count(&ref.stats->bytes, bytes);
    ref.thread->unfenced = true;
    if (flags & REMO__WRITE_NOTIFY) {
        remo__count(&ref.stats->imms, 1);
        if (remo__mapped_notify(&ref.thread->peers[ref.node]))
            ref.thread->unfenced = false;
    }
    return 0;
}

/* Count a write of `bytes` bytes, which the caller has stored in mapped memory of `node`, and notify the
 * node. */
static inline __attribute__((always_inline)) void
remo__stored(struct remo__thread *thread, struct remo_stats *stats, uint32_t node, uint64_t bytes) {
    remo__count(&stats->writes, 1);
    remo__count(&stats->bytes, bytes);
    remo__count(&stats->imms, 1);
    thread->unfenced = !remo__mapped_notify(&thread->peers[node]);
}

/* Notify the node of a change that it reads in mapped memory. The change is an atomic, the last operation of
 * this thread: it is the fence of the notification. Returns false, without effect, if the node is not mapped:
 * there only a write notifies. */
static inline __attribute__((always_inline)) bool remo__notify_after_atomic(struct remo__ref ref) {
    struct remo__fabric_peer *peer = &ref.thread->peers[ref.node];
    if (remo__unlikely(!remo__ref_base(ref)))
        return false;
    remo__count(&ref.stats->imms, 1);
    remo__mapped_wake(peer);
    return true;
}

/* An atomic of a node that is not mapped. *ret_old is not passed on without an ack, so that callers of the
 * inline functions below can keep it in a register. */
static inline __attribute__((always_inline)) int remo__atomic_in_memory(struct remo__ref ref, uint8_t kind,
                                                                        uint64_t operand, uint64_t compare,
                                                                        uint64_t *ret_old,
                                                                        struct remo_ack *ack) {
    uint64_t old;
    if (ack || !ret_old)
        return remo__op_atomic(remo__ref_in_memory(ref), kind, operand, compare, ret_old, ack);
    int rc = remo__op_atomic(remo__ref_in_memory(ref), kind, operand, compare, &old, NULL);
    if (rc == 0)
        *ret_old = old;
    return rc;
}

static inline __attribute__((always_inline)) int remo__fetch_add(struct remo__ref ref, uint64_t addend,
                                                                 uint64_t *ret_old, struct remo_ack *ack) {
    char *base = remo__ref_base(ref);
    if (remo__unlikely(!base))
        return remo__atomic_in_memory(ref, REMO__OP_FETCH_ADD, addend, 0, ret_old, ack);
    uint64_t old = remo__mapped_fetch_add(base + ref.at, addend);
    if (ret_old)
        *ret_old = old;
    remo__count(&ref.stats->atomics, 1);
    remo__count(&ref.stats->bytes, 8);
    return 0;
}

static inline __attribute__((always_inline)) int remo__compare_swap(struct remo__ref ref, uint64_t expected,
                                                                    uint64_t desired, uint64_t *ret_old,
                                                                    struct remo_ack *ack) {
    char *base = remo__ref_base(ref);
    if (remo__unlikely(!base))
        return remo__atomic_in_memory(ref, REMO__OP_COMPARE_SWAP, desired, expected, ret_old, ack);
    uint64_t old = remo__mapped_compare_swap(base + ref.at, expected, desired);
    if (ret_old)
        *ret_old = old;
    remo__count(&ref.stats->atomics, 1);
    remo__count(&ref.stats->bytes, 8);
    return 0;
}
