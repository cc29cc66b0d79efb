/* fence.c - pair, thread and global fences (docs/memory-model.md).
 *
 * A fence waits until reads and atomics are complete and writes are placed. With caps.completion_placed a
 * write is placed when it is complete. Otherwise it is placed when a later read, from the same peer by the
 * same fabric endpoint, is complete. On mapped fabrics one CPU fence suffices. */
#include "remote/fence.h"

#include <stdio.h>
#include <stdlib.h>

#include "remote/slots.h"

struct remo__skipped_writes {
    struct remo__thread *thread; /* the writer; NULL: no round that a fence may skip */
    uint32_t peers;
    uint64_t written[]; /* [peers] `written` of the thread and peer, after the round */
};

struct drain {
    struct remo__slots *slots;
    struct remo__thread *thread;
    uint32_t first, end; /* peers */
    bool writes;
    uint32_t worker;  /* wait only for operations of this worker; 0: of all */
    uint64_t started; /* wait only for this many operations, the first of these slots */
};

static bool has_others(const struct remo__slots_peer *of) {
    return remo__slots_get(&of->others) > 0;
}

/* Return whether the worker has an operation in flight, to any peer, of the kinds that the drain covers. */
static bool worker_is_draining(const struct drain *drain) {
    const struct remo__slots_worker *of = &drain->slots->workers[drain->worker];
    return remo__slots_get(&of->others) > 0 || (drain->writes && remo__slots_get(&of->writes) > 0);
}

/* Return whether an operation to the first peer of the range is in flight that the fence covers. Other tasks
 * of the thread, or the thread of another fence, may start operations during the fence. */
static bool is_draining(const struct drain *drain) {
    const struct remo__slots_peer *of = &drain->slots->peers[drain->first];
    if (!has_others(of) && !(drain->writes && remo__slots_get(&of->writes) > 0))
        return false;
    if (drain->worker == 0 && atomic_load(&drain->slots->started) == drain->started)
        return true;
    if (drain->worker != 0 && !worker_is_draining(drain))
        return false;
    return remo__slots_has_early(drain->slots, drain->first, drain->writes, drain->started, drain->worker);
}

/* A wait condition: the operations that the fence covers are complete. A poll costs system calls, and a
 * thread may have many workers that wait in a fence. So they leave the poll to remo__workers_run. */
static int drained(void *ctx) {
    struct drain *drain = ctx;
    if (drain->worker == 0)
        remo__slots_progress(drain->thread);
    while (drain->first < drain->end && !is_draining(drain))
        drain->first++;
    return drain->first == drain->end;
}

/* Record that completed writes to a failed node may not have been placed; this fence or a later one returns
 * the loss. The error precedes `flushed`: a concurrent fence that needs no flush finds the error. */
static void record_loss(struct remo__slots *slots, uint32_t peer) {
    struct remo__slots_peer *of = &slots->peers[peer];
    (void)remo__mutex_lock(slots->node, &slots->lock, REMO_FOREVER);
    uint64_t written = atomic_load(&of->written);
    if (atomic_load(&of->flushed) < written) {
        remo__slots_note_error(of, -EHOSTDOWN);
        remo__slots_advance(&of->flushed, written);
    }
    remo__mutex_unlock(slots->node, &slots->lock);
}

struct fence {
    struct remo_node *node;
    struct remo__thread *me;     /* the calling thread; NULL: it is not attached (remo__fence_leave) */
    struct remo_stats *stats;    /* counts the flush reads */
    struct remo__thread *writer; /* the only thread whose writes count; NULL: all threads of the scope */
    uint32_t first, end;         /* peers */
    enum remo_fence_scope scope;
    const struct remo__skipped_writes *skipped; /* the round to skip, or NULL */
    bool is_leaving;                            /* covers exempt writes too */
    uint64_t timeout_ns;
    uint64_t deadline_ns; /* one for all threads and peers; 0: not determined yet */
    struct loss {
        int error; /* 0: no write was lost */
        uint32_t peer;
    } loss; /* the first loss that this fence has taken */
};

/* The clock is read only if the fence has to wait. */
static uint64_t deadline_of(struct fence *fence) {
    if (fence->deadline_ns == 0)
        fence->deadline_ns = remo__deadline(fence->timeout_ns);
    return fence->deadline_ns;
}

static int drain_wait(struct fence *fence, struct drain *drain) {
    int rc = drained(drain) ? 0 : remo__wait_polling(fence->node, drained, drain, deadline_of(fence));
    return rc == -ETIMEDOUT ? remo__peer_timeout(fence->node, drain->first, "complete operations on") : rc;
}

/* Return whether all writes to the peer that may be unplaced belong to the skipped round, because none
 * followed it. The fence before that round has placed all earlier writes, except those of the round before.
 * The completion of the skipped round proves that those are placed: the peers had read them. */
static bool only_skipped(const struct remo__skipped_writes *skipped, uint32_t peer, uint64_t written) {
    return written == skipped->written[peer];
}

/* Return whether the writes up to the number `target` are placed or lost. */
static bool is_flushed(const struct remo__slots_peer *of, uint64_t target) {
    return atomic_load(&of->flushed) >= target;
}

/* Post the read that flushes the writes of `thread` to `peer`, unless none is unplaced or a read in flight
 * flushes them. The read counts as an operation of the fencing thread. *ret_target: the number of the last
 * write that this fence must place; 0: none. Returns transient errors only. */
static int flush_post(struct fence *fence, struct remo__thread *thread, uint32_t peer, uint64_t *ret_target) {
    const struct remo__slots_peer *of = &thread->slots->peers[peer];
    uint64_t target = atomic_load(fence->is_leaving ? &of->posted : &of->written);
    *ret_target = 0;
    if (is_flushed(of, target))
        return 0;
    if (fence->skipped && thread == fence->skipped->thread && only_skipped(fence->skipped, peer, target))
        return 0;
    if (!remo__peer_is_up(thread->node, peer)) {
        record_loss(thread->slots, peer);
        return 0;
    }
    *ret_target = target;
    if (atomic_load(&of->flushing) >= target)
        return 0;
    int rc = remo__op_flush_writes(thread, fence->stats, peer, deadline_of(fence));
    if (rc != 0)
        *ret_target = 0;
    return rc;
}

/* Requires that the flush read has ended. Return 0 if the writes up to `target` are placed or lost, else the
 * error of the flush read, which is transient. */
static int flush_end(struct remo__thread *thread, uint32_t peer, uint64_t target) {
    const struct remo__slots_peer *of = &thread->slots->peers[peer];
    if (is_flushed(of, target))
        return 0;
    if (remo__peer_is_up(thread->node, peer))
        return remo__op_fail(thread->slots, atomic_load(&of->flush_status));
    record_loss(thread->slots, peer);
    return 0;
}

/* Flush the writes of `thread`, and complete its other operations. All reads are posted before the wait. A
 * peer that does not answer leaves only the writes to itself unplaced (slots.c). Returns the last transient
 * error, to which the sentence belongs. */
static int flush(struct fence *fence, struct remo__thread *thread, struct drain *drain) {
    uint64_t targets[REMO_NODES_MAX];
    int rc = 0;
    for (uint32_t peer = fence->first; peer < fence->end; peer++) {
        int one = flush_post(fence, thread, peer, &targets[peer]);
        rc = one ? one : rc;
    }
    drain->started = atomic_load(&thread->slots->started);
    int waited = drain_wait(fence, drain);
    if (waited != 0)
        return waited;
    for (uint32_t peer = fence->first; peer < fence->end; peer++) {
        int one = flush_end(thread, peer, targets[peer]);
        rc = one ? one : rc;
    }
    return rc;
}

/* Take the error of writes of `thread` to one peer, if this fence covers them. The lock makes the two words
 * one: a failure that is noted or taken concurrently is returned once. */
static int take_error(const struct fence *fence, struct remo__thread *thread, uint32_t peer) {
    struct remo__slots *slots = thread->slots;
    struct remo__slots_peer *of = &slots->peers[peer];
    bool own = thread == fence->me, global = fence->scope == REMO_FENCE_GLOBAL;
    if (!(own && atomic_load(&of->thread_error) != 0) && !(global && atomic_load(&of->global_error) != 0))
        return 0;
    (void)remo__mutex_lock(slots->node, &slots->lock, REMO_FOREVER);
    int error = own ? atomic_load(&of->thread_error) : 0;
    if (error != 0 && !remo__peer_is_up(thread->node, peer)) /* the error covers all writes so far */
        remo__slots_advance(&of->flushed, atomic_load(&of->written));
    if (error == 0 && global)
        error = atomic_load(&of->global_error);
    if (error != 0)
        atomic_store(&of->global_error, 0);
    if (own)
        atomic_store(&of->thread_error, 0);
    remo__mutex_unlock(slots->node, &slots->lock);
    return error;
}

static void take_errors_of(struct fence *fence, struct remo__thread *thread) {
    for (uint32_t peer = fence->first; peer < fence->end; peer++) {
        int error = take_error(fence, thread, peer);
        if (error != 0 && fence->loss.error == 0)
            fence->loss = (struct loss){.error = error, .peer = peer};
    }
}

/* Take the errors of writes without an ack. The writing thread gets an error from its next fence that covers
 * the write. A global fence of another thread gets it too if it runs earlier, because the writing thread may
 * have ended. The fence returns one error for all losses that it takes. */
static void take_errors(struct fence *fence) {
    struct remo_node *node = fence->node;
    take_errors_of(fence, fence->writer ? fence->writer : fence->me);
    uint32_t count = fence->scope == REMO_FENCE_GLOBAL ? atomic_load(&node->threads->count) : 0;
    for (uint32_t i = 0; i < count; i++)
        take_errors_of(fence, node->threads->of[i]);
}

/* Return the index of the worker that calls this fence of its thread; 0: the caller is none. */
static uint32_t calling_worker(const struct fence *fence, const struct remo__thread *thread) {
    return thread == fence->me ? remo__holder_worker(thread->holder) : 0;
}

/* Fence the operations of one thread. Returns 0, or a transient error: writes may be in flight. If the fabric
 * keeps the order of writes, and of reads after writes, a pair fence needs neither a flush nor a wait for
 * writes. Without flush reads, the fence of a worker covers only its own operations (workers.h). */
static int fence_slots(struct fence *fence, struct remo__thread *thread) {
    struct remo_node *node = fence->node;
    const struct remo__fabric_caps *caps = &node->fabric->caps;
    bool ordered = fence->scope == REMO_FENCE_PAIR && caps->writes_ordered && caps->read_flushes;
    struct drain drain = {.slots = thread->slots,
                          .thread = thread,
                          .first = fence->first,
                          .end = fence->end,
                          .writes = !ordered && caps->completion_placed,
                          .started = atomic_load(&thread->slots->started)};
    bool flushes = !ordered && !caps->completion_placed;
    if (!flushes)
        drain.worker = calling_worker(fence, thread);
    return flushes ? flush(fence, thread, &drain) : drain_wait(fence, &drain);
}

static struct fence fence_of(struct remo__thread *thread, enum remo_fence_scope scope, uint32_t peer) {
    struct remo_node *node = thread->node;
    bool pair = scope == REMO_FENCE_PAIR;
    return (struct fence){.node = node,
                          .me = thread,
                          .stats = &thread->stats[0],
                          .first = pair ? peer : 0,
                          .end = pair ? peer + 1 : node->size,
                          .scope = scope,
                          .timeout_ns = node->op_timeout_ns};
}

static struct fence fence_of_peer(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer) {
    return (struct fence){.node = caller->node,
                          .me = caller,
                          .stats = &caller->stats[0],
                          .writer = writer,
                          .first = peer,
                          .end = peer + 1,
                          .scope = REMO_FENCE_THREAD,
                          .timeout_ns = caller->node->op_timeout_ns};
}

/* Mapped writes become visible in program order (mapped.h). Only a later load may overtake them, which the
 * CPU fence prevents. Writes of other threads that happened before this call are already visible. */
static int fence_mapped(struct remo__thread *thread, enum remo_fence_scope scope) {
    if (thread->unfenced && scope != REMO_FENCE_NONE)
        remo__mapped_fence();
    thread->unfenced = thread->unfenced && scope == REMO_FENCE_NONE;
    return 0;
}

/* Fence the operations of all threads of the scope, on a fabric without mapping; the node itself may be
 * mapped. Returns as fence_slots. */
static int fence_queues(struct fence *fence) {
    struct remo_node *node = fence->node;
    if (fence->me && fence->me->unfenced)
        (void)fence_mapped(fence->me, fence->scope);
    if (fence->writer)
        return fence_slots(fence, fence->writer);
    int rc = fence->me ? fence_slots(fence, fence->me) : 0;
    bool all = fence->scope == REMO_FENCE_GLOBAL;
    uint32_t count = all ? atomic_load(&node->threads->count) : 0;
    for (uint32_t i = 0; i < count; i++) {
        int other = node->threads->of[i] == fence->me ? 0 : fence_slots(fence, node->threads->of[i]);
        rc = other ? other : rc;
    }
    return rc;
}

/* End a fence whose last attempt returned `rc`. A transient error has precedence over a loss, because a
 * caller that gets a loss assumes that no write is in flight. The losses then remain for a later fence. */
static int fence_end(struct fence *fence, int rc) {
    const struct loss *loss = &fence->loss;
    if (rc == 0)
        take_errors(fence);
    if (rc == 0 && loss->error != 0)
        (void)remo__fail(loss->error,
                         "a write to node %u since the last fence failed (%s); whether it was applied is "
                         "unknown",
                         loss->peer, remo_error_name(loss->error));
    return rc;
}

static int fence_once(struct fence *fence) {
    int rc = fence_end(fence, fence_queues(fence));
    return rc ? rc : fence->loss.error;
}

int remo__fence_peer(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer) {
    struct fence fence = fence_of_peer(caller, writer, peer);
    if (!caller->node->mapped)
        return fence_once(&fence);
    remo__mapped_fence();
    return 0;
}

int remo__fence_writer(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer) {
    struct fence fence = fence_of_peer(caller, writer, peer);
    if (!caller->node->mapped)
        return fence_queues(&fence);
    remo__mapped_fence();
    return 0;
}

struct remo__write_mark remo__writes_mark(const struct remo__thread *writer, uint32_t peer) {
    return (struct remo__write_mark){.started = atomic_load(&writer->slots->started),
                                     .written = atomic_load(&writer->slots->peers[peer].written)};
}

bool remo__writes_are_placed(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer,
                             const struct remo__write_mark *mark) {
    const struct remo__slots_peer *of = &writer->slots->peers[peer];
    struct drain drain = {.slots = writer->slots,
                          .thread = writer,
                          .first = peer,
                          .end = peer + 1,
                          .writes = true,
                          .started = mark->started};
    if (writer->node->fabric->caps.completion_placed)
        return drained(&drain);
    if (!is_flushed(of, mark->written) && atomic_load(&of->flushing) < mark->written)
        (void)remo__op_flush_writes(writer, &caller->stats[0], peer, 0);
    remo__slots_progress(writer);
    return is_flushed(of, mark->written) || !remo__peer_is_up(writer->node, peer);
}

static bool is_scope(const struct remo_node *node, enum remo_fence_scope scope, uint32_t peer) {
    return (scope != REMO_FENCE_PAIR || peer < node->size) && (uint32_t)scope <= REMO_FENCE_GLOBAL;
}

static int check_scope(const struct remo_node *node, enum remo_fence_scope scope, uint32_t peer) {
    if (remo__likely(is_scope(node, scope, peer)))
        return 0;
    return remo__fail(-EINVAL, "cannot fence: scope %d with node %u is invalid in a job of %u nodes",
                      (int)scope, peer, node->size);
}

/* Fence on any fabric; attach the thread if necessary. Not inline, so that a mapped fence needs no stack
 * frame. */
static __attribute__((noinline)) int fence_any(struct remo_node *node, enum remo_fence_scope scope,
                                               uint32_t peer) {
    int rc = check_scope(node, scope, peer);
    if (remo__unlikely(rc != 0))
        return rc;
    struct remo__thread *thread = remo__thread(node);
    if (remo__unlikely(!thread))
        return remo__last_code();
#ifdef REMO_SIM
    remo__sim_turn("fence");
#endif
    if (node->mapped)
        return fence_mapped(thread, scope);
    struct fence fence = fence_of(thread, scope, peer);
    return scope == REMO_FENCE_NONE ? 0 : fence_once(&fence);
}

int remo_fence(struct remo_node *node, enum remo_fence_scope scope, uint32_t peer) {
    REMO__REQUIRE(node);
    if (remo__likely(remo__tls.node_id == node->id && is_scope(node, scope, peer) && node->mapped))
        return fence_mapped(remo__tls.thread, scope);
    return fence_any(node, scope, peer);
}

/* ---- fences that retry until no write is in flight ---- */

#define RETRY_PAUSE_NS REMO__NS_PER_MS

/* Retry after a first attempt that returned `rc`. Pauses between the attempts let the fabric recover. */
static int retry_fence(struct fence *fence, int rc) {
    struct remo_node *node = fence->node;
    uint64_t deadline_ns = deadline_of(fence);
    char last[REMO__SENTENCE_MAX];
    while (rc != 0 && remo__remaining_ns(deadline_ns) > 0) {
        rc = fence_queues(fence);
        if (rc == 0)
            return 0;
        snprintf(last, sizeof last, "%s", remo_last_error());
        uint64_t pause_end = remo__deadline(RETRY_PAUSE_NS);
        remo__pause(node, remo__min(deadline_ns, pause_end));
        remo__fail(rc, "%s", last);
    }
    return rc;
}

static int fence_and_retry(struct fence *fence, int *ret_loss) {
    int rc = fence_queues(fence);
    if (remo__unlikely(rc != 0))
        rc = retry_fence(fence, rc);
    if (!ret_loss)
        return rc;
    rc = fence_end(fence, rc);
    *ret_loss = rc == 0 ? fence->loss.error : 0;
    return rc;
}

int remo__fence_retry(struct remo__thread *thread, enum remo_fence_scope scope, uint32_t peer,
                      int *ret_loss) {
    int rc = check_scope(thread->node, scope, peer);
    if (ret_loss)
        *ret_loss = 0;
    if (remo__unlikely(rc != 0))
        return rc;
#ifdef REMO_SIM
    remo__sim_turn("fence");
#endif
    if (thread->node->mapped)
        return fence_mapped(thread, scope);
    struct fence fence = fence_of(thread, scope, peer);
    return scope == REMO_FENCE_NONE ? 0 : fence_and_retry(&fence, ret_loss);
}

int remo__fence_retry_peer(struct remo__thread *thread, uint32_t peer, uint64_t timeout_ns, int *ret_loss) {
    struct fence fence = fence_of_peer(thread, thread, peer);
    fence.timeout_ns = timeout_ns;
    if (ret_loss)
        *ret_loss = 0;
    if (!thread->node->mapped)
        return fence_and_retry(&fence, ret_loss);
    remo__mapped_fence();
    return 0;
}

int remo__fence_write(struct remo__thread *thread, uint32_t peer, struct remo_ack *ack, uint64_t timeout_ns) {
    const struct remo_node *node = thread->node;
    bool is_direct = remo__peer_base(node, peer) != NULL;
    if (!is_direct && !node->fabric->caps.completion_placed)
        return remo__fence_retry_peer(thread, peer, timeout_ns, NULL);
    if (is_direct)
        remo__mapped_fence();
    int rc = is_direct ? 0 : remo__ack_await(ack, timeout_ns);
    return remo__ack_pending(ack) ? rc : 0;
}

int remo__fenced_status(const struct remo_node *node, uint32_t peer, int status) {
    if (status != 0 || node->mapped || node->fabric->caps.completion_placed || remo__peer_is_up(node, peer))
        return status;
    return remo__fail(-EHOSTDOWN, "a write to node %u may be lost, because that node has failed or left",
                      peer);
}

/* A flush read is an operation of the thread whose writes it places. So the calling thread needs no slots. */
int remo__fence_leave(struct remo_node *node) {
    struct remo__thread *thread = remo__thread_attached(node);
    struct remo_stats uncounted = {0}; /* only an attached thread has counters */
    struct fence fence = {.node = node,
                          .me = thread,
                          .stats = thread ? &thread->stats[0] : &uncounted,
                          .end = node->size,
                          .scope = REMO_FENCE_GLOBAL,
                          .is_leaving = true,
                          .timeout_ns = node->op_timeout_ns};
#ifdef REMO_SIM
    remo__sim_turn("fence");
#endif
    if (!node->mapped)
        return fence_and_retry(&fence, NULL);
    remo__mapped_fence();
    return 0;
}

bool remo__peer_quiescent(const struct remo_node *node, uint32_t peer) {
    uint32_t count = node->mapped ? 0 : atomic_load(&node->threads->count);
    for (uint32_t i = 0; i < count; i++) {
        const struct remo__slots_peer *of = &node->threads->of[i]->slots->peers[peer];
        if (remo__slots_get(&of->writes) > 0 || remo__slots_get(&of->others) > 0
            || atomic_load(&of->flushed) < atomic_load(&of->posted))
            return false;
    }
    return true;
}

bool remo__node_quiescent(const struct remo_node *node) {
    for (uint32_t peer = 0; peer < node->size; peer++)
        if (remo__peer_is_up(node, peer) && !remo__peer_quiescent(node, peer))
            return false;
    return true;
}

/* ---- skipped writes ---- */

int remo__skipped_open(struct remo_node *node, struct remo__skipped_writes **ret_skipped) {
    struct remo__skipped_writes *skipped =
        calloc(1, sizeof *skipped + node->size * sizeof skipped->written[0]);
    if (!skipped)
        return remo__fail(-ENOMEM, "no memory to count the writes to %u peers", node->size);
    skipped->peers = node->size;
    *ret_skipped = skipped;
    return 0;
}

/* Skip the writes only if a fence would flush them, and if the fabric keeps the order of writes. On such a
 * fabric, a write that the peer has read proves that all earlier writes to the peer are placed. */
void remo__skipped_begin(struct remo__skipped_writes *skipped, struct remo__thread *thread) {
    const struct remo_node *node = thread->node;
    bool has_tasks = remo__scheduler_of(node); /* they may write between begin and end */
    bool useful = !has_tasks && !node->mapped && !node->fabric->caps.completion_placed
                  && node->fabric->caps.writes_ordered;
    skipped->thread = useful ? thread : NULL;
}

void remo__skipped_end(struct remo__skipped_writes *skipped) {
    for (uint32_t peer = 0; skipped->thread && peer < skipped->peers; peer++)
        skipped->written[peer] = atomic_load(&skipped->thread->slots->peers[peer].written);
}

void remo__skipped_drop(struct remo__skipped_writes *skipped) {
    skipped->thread = NULL;
}

int remo__fence_except(struct remo_node *node, const struct remo__skipped_writes *skipped) {
    struct remo__thread *thread = remo__thread(node);
    if (remo__unlikely(!thread))
        return remo__last_code();
    if (node->mapped || skipped->thread != thread)
        return remo_fence(node, REMO_FENCE_GLOBAL, 0);
#ifdef REMO_SIM
    remo__sim_turn("fence");
#endif
    struct fence fence = fence_of(thread, REMO_FENCE_GLOBAL, 0);
    fence.skipped = skipped;
    return fence_once(&fence);
}
