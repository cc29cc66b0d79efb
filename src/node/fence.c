/* fence.c - pair, thread and global fences, each by the cheapest means the fabric allows.
 *
 * Mapped fabrics: stores of this CPU become visible in order; only a later load may overtake them, which one
 * CPU fence forbids. What other threads of this node wrote is placed already: "happened before this call"
 * means that we have seen something they stored later. Others: reads and atomics are done when they have
 * completed. Writes are placed when they have completed (caps.completion_placed) or when a read of the same
 * endpoint from the same peer, posted later, has (caps.read_flushes). Between operations of one endpoint to
 * one peer nothing is needed where writes are ordered and reads do not pass them (caps.read_flushes).
 */
#include "node/fence.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mutant.h"
#include "node/slots.h"

struct remo__news {
    struct remo__thread *thread; /* that wrote it; NULL: there is none, or none that could be left out */
    uint32_t peers;
    struct {
        uint64_t before, after; /* writes of that thread to the peer */
    } peer[];
};

/* Where the flushing read looks: past the fabric's private part, never given out (arena.c). */
static uint64_t flush_offset(const struct remo_node *node) {
    return node->fabric->private_bytes;
}

struct drain {
    struct remo__slots *slots;
    struct remo__thread *thread;
    uint32_t first, end; /* peers */
    bool writes;
};

static int drained(void *ctx) {
    const struct drain *drain = ctx;
    remo__slots_progress(drain->thread);
    for (uint32_t peer = drain->first; peer < drain->end; peer++) {
        const struct remo__slots_peer *of = &drain->slots->peers[peer];
        if ((remo__slots_get(&of->others) > 0 && !REMO__MUTANT(fence_others))
            || (drain->writes && remo__slots_get(&of->writes) > 0))
            return 0;
    }
    return 1;
}

/* Another thread may have got further at the same time. */
static void advance(_Atomic uint64_t *flushed, uint64_t written) {
    uint64_t before = atomic_load(flushed);
    while (before < written && !atomic_compare_exchange_weak(flushed, &before, written))
        continue;
}

/* A write to a node that has failed since may never have been placed, although it completed: note the error,
 * for collect_errors of this fence or of a later one. */
static void note_lost(struct remo__slots_peer *peer, uint64_t written) {
    int none = 0;
    advance(&peer->flushed, written);
    atomic_compare_exchange_strong(&peer->untold, &none, -EHOSTDOWN);
    none = 0;
    atomic_compare_exchange_strong(&peer->error, &none, -EHOSTDOWN);
}

/* For the sentence: somebody in the range who has not answered. */
static int silent(const struct drain *drain) {
    const struct remo__slots_peer *peers = drain->slots->peers;
    uint32_t peer = drain->first;
    while (peer + 1 < drain->end && remo__slots_get(&peers[peer].others) == 0
           && remo__slots_get(&peers[peer].writes) == 0)
        peer++;
    return remo__peer_silent(drain->slots->node, peer, "finish what was begun with");
}

struct fence {
    struct remo__thread *me;
    struct remo__thread *writer; /* the only thread whose writes count; NULL: those of the scope */
    uint32_t first, end;         /* peers */
    enum remo_fence_scope scope;
    const struct remo__news *news; /* to be left out, or NULL */
    uint64_t timeout_ns;
    uint64_t deadline_ns; /* one for all threads and peers; 0: the clock was not needed yet */
    struct loss {
        int error; /* 0: no write was lost */
        uint32_t peer;
    } loss; /* the first one that this fence has found */
};

static uint64_t deadline_of(struct fence *fence) {
    if (fence->deadline_ns == 0)
        fence->deadline_ns = remo__deadline(fence->timeout_ns);
    return fence->deadline_ns;
}

static int drain_wait(struct fence *fence, struct drain *drain) {
    int rc = drained(drain) ? 0 : remo__wait(fence->me->node, drained, drain, deadline_of(fence));
    return rc == -ETIMEDOUT ? silent(drain) : rc;
}

/* Is nothing but the news unplaced? What came before it was placed by the fence before it. */
static bool news_alone(const struct remo__news *news, uint32_t peer, uint64_t written) {
    return written == news->peer[peer].after || REMO__MUTANT(barrier_news);
}

/* A read behind the writes of `thread` to each peer of the range that may have unplaced ones. Counted as
 * ours. Returns transient errors only. */
static int flush(struct fence *fence, struct remo__thread *thread) {
    struct remo_node *node = thread->node;
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t scratch[1], written[REMO_NODES_MAX];
    int rc = 0;
    for (uint32_t peer = fence->first; peer < fence->end; peer++) {
        const struct remo__slots_peer *of = &thread->slots->peers[peer];
        uint64_t flushed = atomic_load(&of->flushed);
        written[peer] = atomic_load(&of->written);
        if (fence->news && thread == fence->news->thread && news_alone(fence->news, peer, written[peer]))
            written[peer] = flushed;
        if (written[peer] == flushed)
            continue;
        if (!remo__peer_alive(node, peer)) {
            if (!REMO__MUTANT(fence_lost))
                note_lost(&thread->slots->peers[peer], written[peer]);
            continue;
        }
        int one = remo__op_read(thread, &fence->me->stats[0], peer, flush_offset(node), scratch,
                                sizeof scratch, &ack);
        rc = rc ? rc : one;
    }
    if (remo__ack_pending(&ack) || ack.status != 0) {
        int waited = remo_ack_wait(&ack, remo__remaining_ns(deadline_of(fence)));
        remo_ack_cancel(&ack);
        rc = rc ? rc : waited;
    }
    for (uint32_t peer = fence->first; peer < fence->end && (rc == 0 || REMO__MUTANT(fence_flush_failed));
         peer++)
        advance(&thread->slots->peers[peer].flushed, written[peer]);
    return rc;
}

/* Errors of writes without an ack. A fence of the writing thread returns such an error first; a global fence
 * of another thread returns it otherwise, because the writing thread may have ended. The errors stay in place
 * until a fence has succeeded but for them: after a transient error, every later fence that covers one of
 * them must return it. */
static void collect_errors(struct fence *fence, const struct remo__thread *thread) {
    bool own = thread == fence->me, global = fence->scope == REMO_FENCE_GLOBAL;
    for (uint32_t peer = fence->first; peer < fence->end && fence->loss.error == 0; peer++) {
        struct remo__slots_peer *of = &thread->slots->peers[peer];
        int error = own ? atomic_load(&of->error) : 0;
        error = error == 0 && global ? atomic_load(&of->untold) : error;
        if (error != 0 && !REMO__MUTANT(fence_errors))
            fence->loss = (struct loss){.error = error, .peer = peer};
    }
}

static int take(_Atomic int *error) {
    return atomic_load(error) ? atomic_exchange(error, 0) : 0;
}

/* The fence returns one error for all losses that it covers: remove them. */
static void take_errors(const struct fence *fence, const struct remo__thread *thread) {
    bool own = thread == fence->me, global = fence->scope == REMO_FENCE_GLOBAL;
    for (uint32_t peer = fence->first; peer < fence->end; peer++) {
        struct remo__slots_peer *of = &thread->slots->peers[peer];
        int error = own ? take(&of->error) : 0;
        if (error != 0 || global)
            (void)take(&of->untold);
        if (error != 0 && !remo__peer_alive(thread->node, peer)) /* of all writes so far */
            advance(&of->flushed, atomic_load(&of->written));
    }
}

/* 0 or a transient error: writes may be in flight. Lost writes are noted in the fence. */
static int fence_slots(struct fence *fence, struct remo__thread *thread) {
    struct remo_node *node = fence->me->node;
    const struct remo__fabric_caps *caps = &node->fabric->caps;
    bool reads_ordered = caps->read_flushes || REMO__MUTANT(fence_pair_reads);
    bool ordered = fence->scope == REMO_FENCE_PAIR
                   && ((caps->writes_ordered && reads_ordered) || REMO__MUTANT(fence_pair_unordered));
    struct drain drain = {.slots = thread->slots,
                          .thread = thread,
                          .first = fence->first,
                          .end = fence->end,
                          .writes = !ordered && caps->completion_placed && !REMO__MUTANT(fence_drain)};
    int rc = 0;
    if (!ordered && !caps->completion_placed && !REMO__MUTANT(fence_flush))
        rc = flush(fence, thread);
    int waited = drain_wait(fence, &drain);
    collect_errors(fence, thread);
    return rc ? rc : waited;
}

static struct fence fence_of(struct remo__thread *thread, enum remo_fence_scope scope, uint32_t peer) {
    const struct remo_node *node = thread->node;
    bool pair = scope == REMO_FENCE_PAIR;
    return (struct fence){.me = thread,
                          .first = pair ? peer : 0,
                          .end = pair ? peer + 1 : node->size,
                          .scope = scope,
                          .timeout_ns = node->op_timeout_ns};
}

static struct fence fence_of_peer(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer) {
    return (struct fence){.me = caller,
                          .writer = writer,
                          .first = peer,
                          .end = peer + 1,
                          .scope = REMO_FENCE_THREAD,
                          .timeout_ns = caller->node->op_timeout_ns};
}

/* Not mapped: all that is in flight, of the threads and to the peers that the scope names. */
static int fence_queues(struct fence *fence) {
    struct remo_node *node = fence->me->node;
    if (fence->writer)
        return fence_slots(fence, fence->writer);
    int rc = fence_slots(fence, fence->me);
    bool all = fence->scope == REMO_FENCE_GLOBAL && !REMO__MUTANT(fence_other_threads);
    uint32_t count = all ? atomic_load(&node->threads_count) : 0;
    for (uint32_t i = 0; i < count; i++) {
        int other = node->threads[i] == fence->me ? 0 : fence_slots(fence, node->threads[i]);
        rc = rc ? rc : other;
    }
    return rc;
}

/* The end of a fence whose last attempt returned `rc`. A transient error comes first, so that the caller
 * does not take a loss for the only failure. */
static int end(struct fence *fence, int rc) {
    struct remo_node *node = fence->me->node;
    const struct loss *loss = &fence->loss;
    if (loss->error == 0 || (rc != 0 && !REMO__MUTANT(fence_take_errors)))
        return rc;
    take_errors(fence, fence->writer ? fence->writer : fence->me);
    uint32_t count = fence->scope == REMO_FENCE_GLOBAL ? atomic_load(&node->threads_count) : 0;
    for (uint32_t i = 0; i < count; i++)
        take_errors(fence, node->threads[i]);
    if (rc == 0)
        (void)remo__fail(loss->error,
                         "a write to node %u since the last fence failed (%s); whether it was applied is "
                         "unknown",
                         loss->peer, remo_error_name(loss->error));
    return rc;
}

static int fence_once(struct fence *fence) {
    int rc = end(fence, fence_queues(fence));
    return rc ? rc : fence->loss.error;
}

static int fence_mapped(struct remo__thread *thread, enum remo_fence_scope scope) {
    if (thread->unfenced && scope != REMO_FENCE_NONE)
        remo__mapped_fence();
    thread->unfenced = thread->unfenced && scope == REMO_FENCE_NONE;
    return 0;
}

int remo__fence_placed(struct remo__thread *caller, struct remo__thread *writer, uint32_t peer) {
    struct fence fence = fence_of_peer(caller, writer, peer);
    if (!caller->node->mapped)
        return fence_once(&fence);
    remo__mapped_fence();
    return 0;
}

static int check_scope(const struct remo_node *node, enum remo_fence_scope scope, uint32_t peer) {
    if (remo__likely((scope != REMO_FENCE_PAIR || peer < node->size) && (uint32_t)scope <= REMO_FENCE_GLOBAL))
        return 0;
    return remo__fail(-EINVAL, "a fence of scope %d with node %u makes no sense in a job of %u nodes",
                      (int)scope, peer, node->size);
}

int remo_fence(struct remo_node *node, enum remo_fence_scope scope, uint32_t peer) {
    REMO__REQUIRE(node);
    int rc = check_scope(node, scope, peer);
    if (remo__unlikely(rc != 0))
        return rc;
    struct remo__thread *thread = remo__thread(node);
    if (remo__unlikely(!thread))
        return -EAGAIN;
#ifdef REMO_SIM
    remo__sim_turn("fence");
#endif
    if (node->mapped)
        return fence_mapped(thread, scope);
    struct fence fence = fence_of(thread, scope, peer);
    return scope == REMO_FENCE_NONE ? 0 : fence_once(&fence);
}

/* ---- repeated until nothing is in flight ---- */

#define RETRY_PAUSE_NS REMO__NS_PER_MS

static int never(void *ctx) {
    (void)ctx;
    return 0;
}

/* `rc` is the result of the first attempt. The pause lets the fabric recover. */
static int settle_slowly(struct fence *fence, int rc) {
    struct remo_node *node = fence->me->node;
    uint64_t deadline_ns = deadline_of(fence);
    char last[REMO__SENTENCE_MAX];
    while (rc != 0 && remo__remaining_ns(deadline_ns) > 0) {
        rc = fence_queues(fence);
        if (rc == 0)
            return 0;
        snprintf(last, sizeof last, "%s", remo_last_error());
        uint64_t pause_end = remo__deadline(RETRY_PAUSE_NS);
        (void)remo__wait(node, never, NULL, remo__min(deadline_ns, pause_end));
        remo__fail(rc, "%s", last);
    }
    return rc;
}

static int settle(struct fence *fence, int *ret_loss) {
    int rc = fence_queues(fence);
    if (remo__unlikely(rc != 0))
        rc = settle_slowly(fence, rc);
    rc = end(fence, rc);
    *ret_loss = rc == 0 ? fence->loss.error : 0;
    return rc;
}

int remo__fence_settle(struct remo__thread *thread, enum remo_fence_scope scope, uint32_t peer,
                       int *ret_loss) {
    int rc = check_scope(thread->node, scope, peer);
    *ret_loss = 0;
    if (remo__unlikely(rc != 0))
        return rc;
#ifdef REMO_SIM
    remo__sim_turn("fence");
#endif
    if (thread->node->mapped)
        return fence_mapped(thread, scope);
    struct fence fence = fence_of(thread, scope, peer);
    return scope == REMO_FENCE_NONE ? 0 : settle(&fence, ret_loss);
}

int remo__fence_settle_peer(struct remo__thread *thread, uint32_t peer, uint64_t timeout_ns, int *ret_loss) {
    struct fence fence = fence_of_peer(thread, thread, peer);
    fence.timeout_ns = timeout_ns;
    *ret_loss = 0;
    if (!thread->node->mapped)
        return settle(&fence, ret_loss);
    remo__mapped_fence();
    return 0;
}

/* ---- news ---- */

int remo__news_open(struct remo_node *node, struct remo__news **ret_news) {
    struct remo__news *news = calloc(1, sizeof *news + node->size * sizeof news->peer[0]);
    if (!news)
        return remo__fail(-ENOMEM, "no memory to count what was written to %u peers", node->size);
    news->peers = node->size;
    *ret_news = news;
    return 0;
}

/* Only where there is something to save, and where what is seen of a connection's last write tells of the
 * earlier ones. */
void remo__news_begin(struct remo__news *news, struct remo__thread *thread) {
    const struct remo_node *node = thread->node;
    bool useful = !node->mapped && !node->fabric->caps.completion_placed && node->fabric->caps.writes_ordered;
    news->thread = useful ? thread : NULL;
    for (uint32_t peer = 0; useful && peer < news->peers; peer++)
        news->peer[peer].before = atomic_load(&thread->slots->peers[peer].written);
}

void remo__news_end(struct remo__news *news) {
    for (uint32_t peer = 0; news->thread && peer < news->peers; peer++)
        news->peer[peer].after = atomic_load(&news->thread->slots->peers[peer].written);
}

void remo__news_drop(struct remo__news *news) {
    news->thread = NULL;
}

void remo__news_placed(struct remo__news *news) {
    for (uint32_t peer = 0; news->thread && peer < news->peers; peer++)
        advance(&news->thread->slots->peers[peer].flushed, news->peer[peer].before);
}

int remo__fence_but(struct remo_node *node, const struct remo__news *news) {
    struct remo__thread *thread = remo__thread(node);
    if (remo__unlikely(!thread))
        return -EAGAIN;
    if (node->mapped || news->thread != thread)
        return remo_fence(node, REMO_FENCE_GLOBAL, 0);
#ifdef REMO_SIM
    remo__sim_turn("fence");
#endif
    struct fence fence = fence_of(thread, REMO_FENCE_GLOBAL, 0);
    fence.news = news;
    return fence_once(&fence);
}
