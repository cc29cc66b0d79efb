/* lock.c - opens a lock, and acquires and releases it without contention.
 * Without contention an acquire is one atomic that draws a ticket, and a release one atomic that advances
 * `serving`. A release hands the lock over only when its fence has succeeded (docs/internals/lock.md). */
#include "objects/lock/lock.h"

#include <stdio.h>
#include <stdlib.h>

#include "objects/region.h"

#define COUNT_MAX (1u << 24)

/* ---- open ---- */

static void on_connect(void *ctx, uint32_t node) {
    remo__lock_recovery_connected(ctx, node);
}

static void on_cut_off(void *ctx, uint32_t node) {
    struct remo_lock *lock = ctx;
    (void)node;
    remo__lock_report_continue(lock); /* an answer may wait until this node is cut off */
    remo__lock_recovery_start(lock);
}

static void on_message(void *ctx, uint32_t node, const void *data, size_t size_bytes) {
    struct remo_lock *lock = ctx;
    uint8_t type = size_bytes > 0 ? *(const uint8_t *)data : 0;
    if (type == REMO__LOCK_QUERY || type == REMO__LOCK_GRANT || type == REMO__LOCK_REPORT_CONTINUE)
        remo__lock_report_message(lock, node, data, size_bytes);
    else
        remo__lock_recovery_message(lock, node, data, size_bytes);
}

static int choose_homes(struct remo_lock *lock, const struct remo_nodeset *chosen,
                        const struct remo_nodeset *participants) {
    struct remo_nodeset homes = *chosen;
    if (remo_nodeset_empty(&homes))
        remo_nodeset_add(&homes, remo__nodeset_next(participants, 0));
    for (uint32_t node = remo__nodeset_next(&homes, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(&homes, node + 1)) {
        if (!remo_nodeset_has(participants, node))
            return remo__fail(
                -EINVAL, "node %u cannot be a home of locks: it is no participant; add it to `participants`",
                node);
        lock->homes[lock->home_count++] = (uint16_t)node;
    }
    return 0;
}

static int make_locals(struct remo_lock *lock) {
    lock->locals = aligned_alloc(REMO__CACHE_LINE, (size_t)lock->count * sizeof *lock->locals);
    if (!lock->locals)
        return remo__fail(-ENOMEM, "no memory for the state of %u locks", lock->count);
    for (uint32_t i = 0; i < lock->count; i++)
        lock->locals[i] =
            (struct remo__lock_local){.home = lock->homes[i % lock->home_count],
                                      .offset = (uint64_t)(i / lock->home_count) * lock->stride};
    for (uint32_t i = 0; i < REMO__LOCK_STRIPES; i++) {
        pthread_mutex_init(&lock->stripes[i].mutex, NULL);
        lock->stripes[i].last = &lock->stripes[i].first;
    }
    return 0;
}

/* Add the memory of home words and queue words, the same amount at each home, and of grant words at all. */
static int make_memory(struct remo_lock *lock) {
    struct remo_nodeset homes = {0};
    uint32_t words = 0, grants = 0;
    for (uint32_t i = 0; i < lock->home_count; i++)
        remo_nodeset_add(&homes, lock->homes[i]);
    uint64_t word_bytes = (uint64_t)((lock->count + lock->home_count - 1) / lock->home_count) * lock->stride;
    uint64_t own_bytes = remo_nodeset_has(&homes, lock->rank) ? word_bytes : 0;
    int rc = remo_channel_add_memory(lock->channel, "words", own_bytes, word_bytes, &homes, &words);
    if (rc == 0)
        rc = remo_channel_add_memory(lock->channel, "grants", REMO__GRANT_BYTES * (uint64_t)lock->count,
                                     REMO__GRANT_BYTES * (uint64_t)lock->count, NULL, &grants);
    if (rc != 0)
        return rc;
    lock->words = &lock->channel->memories[words];
    lock->grants = &lock->channel->memories[grants];
    if (own_bytes > 0)
        rc = remo__lock_recovery_open(lock);
    return rc != 0 ? rc : remo__lock_report_open(lock);
}

static int open_channel(struct remo_lock *lock, struct remo_channel *parent, const char *name,
                        const struct remo_nodeset *participants) {
    char type[REMO__TYPE_BYTES_MAX + 1];
    struct remo_channel_options options = {.participants = *participants,
                                           .ctx = lock,
                                           .on_connect = on_connect,
                                           .on_cut_off = on_cut_off,
                                           .on_message = on_message};
    snprintf(type, sizeof type, "table of %u lock%s", lock->count, lock->count == 1 ? "" : "s");
    int rc = remo_channel_open(parent, name, type, &options, &lock->channel);
    if (rc != 0)
        return rc;
    lock->node = remo_channel_node(lock->channel);
    lock->rank = lock->node->rank;
    return 0;
}

int remo_lock_open(struct remo_channel *parent, const char *name, const struct remo_lock_options *options,
                   struct remo_lock **ret_lock) {
    REMO__REQUIRE(ret_lock);
    static const struct remo_lock_options all_default;
    const struct remo_lock_options *chosen = options ? options : &all_default;
    struct remo_nodeset participants;
    int rc = remo__select_participants(parent, &chosen->participants, &participants);
    if (rc == 0)
        rc = remo__require_coherence(parent, "a lock");
    if (rc == 0 && chosen->count > COUNT_MAX)
        rc =
            remo__fail(-EINVAL, "cannot open a table of %u locks: the limit is %u", chosen->count, COUNT_MAX);
    if (rc != 0)
        return rc;
    struct remo_lock *lock = aligned_alloc(REMO__CACHE_LINE, sizeof *lock);
    if (!lock)
        return remo__fail(-ENOMEM, "no memory for lock %s", name ? name : "");
    *lock = (struct remo_lock){.count = chosen->count ? chosen->count : 1};
    lock->places = (uint32_t)remo__power_of_two_from(2 * remo__nodeset_count(&participants));
    lock->guarded_max = lock->places - remo__nodeset_count(&participants) - 1;
    lock->stride = (uint32_t)remo__align_up(8 * (1 + lock->places), REMO__CACHE_LINE);
    rc = choose_homes(lock, &chosen->homes, &participants);
    if (rc == 0)
        rc = open_channel(lock, parent, name, &participants);
    if (rc == 0)
        rc = make_locals(lock);
    if (rc == 0)
        rc = remo__lock_ahead_open(lock, remo__nodeset_count(&participants));
    if (rc == 0)
        rc = make_memory(lock);
    if (rc != 0) {
        remo_lock_close(lock);
        return rc;
    }
    *ret_lock = lock;
    rc = remo_channel_join(lock->channel);
    if (rc != 0) {
        *ret_lock = NULL;
        remo_lock_close(lock);
    }
    return rc;
}

void remo_lock_close(struct remo_lock *lock) {
    if (!lock)
        return;
    if (lock->node)
        remo__thread_unobserve(lock->node, &lock->observer); /* it may send a message of the channel */
    for (uint32_t i = 0; lock->locals && i < lock->count; i++)
        remo_ack_cancel(&lock->locals[i].reset); /* the operation may complete after the close */
    for (uint32_t i = 0; lock->aheads && i < lock->count; i++)
        remo_ack_cancel(&lock->aheads[i].read);
    remo_channel_close(lock->channel); /* no callback runs from here on */
    remo__lock_recovery_close(lock);
    remo__lock_report_close(lock);
    for (uint32_t i = 0; lock->locals && i < REMO__LOCK_STRIPES; i++)
        pthread_mutex_destroy(&lock->stripes[i].mutex);
    remo__lock_ahead_close(lock);
    free(lock->locals);
    free(lock);
}

struct remo_channel *remo_lock_channel(struct remo_lock *lock) {
    return lock ? lock->channel : NULL;
}

uint32_t remo_lock_home(const struct remo_lock *lock, uint32_t index) {
    return lock ? lock->homes[index % lock->home_count] : REMO_NODES_MAX;
}

/* ---- acquire, release ---- */

static __attribute__((noinline, cold)) int fail_index(const struct remo_lock *lock, uint32_t index) {
    if (!lock)
        return remo__fail(-EINVAL, "the lock is NULL; open it with remo_lock_open");
    return remo__fail(-EINVAL, "there is no lock %u in %s: give an index from 0 to %u", index,
                      remo_channel_name(lock->channel), lock->count - 1);
}

/* Return the address of the home word, or NULL if it is not mapped. */
static inline char *mapped_word(const struct remo_lock *lock, const struct remo__lock_local *local) {
    return (char *)(uintptr_t)remo__memory_mapped(lock->words, local->home, local->offset);
}

/* Add to a mapped home word, and return its old value. */
static inline uint64_t add_mapped(const struct remo_lock *lock, struct remo__thread *thread, char *word,
                                  uint64_t addend) {
    uint64_t old = remo__mapped_fetch_add(word, addend);
    struct remo_stats *stats = remo__channel_counters(lock->channel, thread);
    remo__count(&stats->atomics, 1);
    remo__count(&stats->bytes, sizeof old);
    return old;
}

/* The functions out of line have the parameters of their callers. So a call of an acquire or release without
 * contention is a jump, and the path without contention saves no register. */

static __attribute__((noinline)) int acquire_in_turn(struct remo_lock *lock, uint32_t index,
                                                     struct remo__thread *thread, uint64_t timeout_ns) {
    return remo__lock_acquire_in_turn(lock, index, thread, remo__deadline(timeout_ns));
}

static __attribute__((noinline)) int use_ticket(struct remo_lock *lock, uint32_t index,
                                                struct remo__thread *thread, uint64_t previous,
                                                uint64_t drawn, uint64_t timeout_ns) {
    return remo__lock_use_ticket(lock, index, thread, previous, drawn, remo__deadline(timeout_ns));
}

/* Hold the lock after a draw, or wait. */
static inline __attribute__((always_inline)) int take_drawn(struct remo_lock *lock, uint32_t index,
                                                            struct remo__thread *thread, uint64_t previous,
                                                            uint64_t drawn, uint64_t timeout_ns) {
    struct remo__lock_local *local = &lock->locals[index];
    if (remo__unlikely(!remo__word_is_free(drawn) || remo__word_flags(drawn) != 0))
        return use_ticket(lock, index, thread, previous, drawn, timeout_ns);
    atomic_store_explicit(&local->owner, thread->holder, memory_order_relaxed);
    local->handovers = 0;
    local->waits_since_s = 0;
    remo__lock_publish(
        lock, local, remo__state_word(REMO__LOCK_HELD, remo__state_nonce(previous), remo__word_next(drawn)));
    return 0;
}

/* Draw a ticket at a home that is not mapped. */
static __attribute__((noinline)) int acquire_far(struct remo_lock *lock, uint32_t index,
                                                 struct remo__thread *thread, uint64_t previous,
                                                 uint64_t timeout_ns) {
    struct remo__lock_local *local = &lock->locals[index];
    struct remo__ref word;
    uint64_t drawn;
    if (remo__unlikely(!remo__memory_find_now(lock->words, thread, local->home, local->offset, &word)))
        return remo__lock_join_queue(lock, index, thread, previous, remo__deadline(timeout_ns));
    int rc = remo__fetch_add(word, REMO__LOCK_DRAW, &drawn, NULL);
    if (remo__unlikely(rc != 0)) {
        remo__lock_end(lock, index, rc, remo__state_nonce(previous), (uint32_t)previous);
        return rc;
    }
    return take_drawn(lock, index, thread, previous, drawn, timeout_ns);
}

/* Draw a ticket at a mapped home, after this node has handed the lock over to the only waiter. If both nodes
 * acquire the lock again and again, each draw takes the line of the home word from the other node, and causes
 * a hand-over. So if the waiter still holds its ticket, a pause precedes the draw. It grows until the other
 * node acquires the lock REMO_LOCK_HANDOVERS_MAX times in it, and shrinks if the lock was not used again. */
static __attribute__((noinline)) int acquire_after_waiter(struct remo_lock *lock, uint32_t index,
                                                          struct remo__thread *thread, uint64_t previous,
                                                          uint64_t timeout_ns) {
    struct remo__lock_local *local = &lock->locals[index];
    char *word = mapped_word(lock, local);
    uint32_t waiter = (uint32_t)previous + 1; /* its ticket */
    bool pauses = word && (uint16_t)remo__load(word) == (uint16_t)waiter;
    local->handed_over = false;
    if (pauses)
        remo__relax_awake(lock->node, local->draw_pause / REMO__PAUSE_UNIT);
#ifdef REMO_SIM
    remo__sim_turn("pause");
#endif
    word = mapped_word(lock, local);
    if (remo__unlikely(!word)) /* the home has failed or left during the pause */
        return acquire_far(lock, index, thread, previous, timeout_ns);
    uint64_t drawn = add_mapped(lock, thread, word, REMO__LOCK_DRAW);
    uint32_t draws = remo__word_next(drawn) - waiter; /* of other nodes */
    bool is_idle = remo__word_is_free(drawn) && draws <= 1;
    if (pauses)
        local->draw_pause =
            remo__pause_learn(local->draw_pause, draws < REMO_LOCK_HANDOVERS_MAX && !is_idle) & 0x1ff;
    return take_drawn(lock, index, thread, previous, drawn, timeout_ns);
}

static inline __attribute__((always_inline)) int acquire(struct remo_lock *lock, uint32_t index,
                                                         struct remo__thread *thread, uint64_t timeout_ns) {
    if (remo__unlikely(timeout_ns == 0))
        return remo__lock_try(lock, index, thread);
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t previous = atomic_load_explicit(&local->state, memory_order_relaxed), drawn;
    if (remo__unlikely(
            remo__state_kind(previous) != REMO__LOCK_FREE
            || atomic_load_explicit(&local->waiters, memory_order_relaxed) != 0
            || !atomic_compare_exchange_strong(&local->state, &previous, remo__state_busy(previous))))
        return acquire_in_turn(lock, index, thread, timeout_ns);
    char *word = mapped_word(lock, local);
    if (remo__unlikely(!word))
        return acquire_far(lock, index, thread, previous, timeout_ns);
    if (remo__unlikely(local->handed_over))
        return acquire_after_waiter(lock, index, thread, previous, timeout_ns);
    drawn = add_mapped(lock, thread, word, REMO__LOCK_DRAW);
    return take_drawn(lock, index, thread, previous, drawn, timeout_ns);
}

/* The first call of a thread attaches it. */
static __attribute__((noinline, cold)) int attach_and_acquire(struct remo_lock *lock, uint32_t index,
                                                              uint64_t timeout_ns) {
    struct remo__thread *thread = remo__thread(lock->node);
    return thread ? acquire(lock, index, thread, timeout_ns) : remo__last_code();
}

int remo_lock_acquire(struct remo_lock *lock, uint32_t index, uint64_t timeout_ns) {
    if (remo__unlikely(!lock || index >= lock->count))
        return fail_index(lock, index);
    if (remo__unlikely(remo__tls.node_id != lock->node->id))
        return attach_and_acquire(lock, index, timeout_ns);
    return acquire(lock, index, remo__tls.thread, timeout_ns);
}

static int fail_not_held(const struct remo_lock *lock, uint32_t index, const char *what) {
    return remo__fail(-EPERM, "cannot %s lock %u of %s: this thread does not hold it", what, index,
                      remo_channel_name(lock->channel));
}

static bool holds(const struct remo__lock_local *local, uint64_t state, const struct remo__thread *thread) {
    return remo__state_kind(state) == REMO__LOCK_HELD
           && atomic_load_explicit(&local->owner, memory_order_relaxed) == thread->holder;
}

/* Return whether the release is a single atomic, unless a node waits. */
static bool is_plain(const struct remo__lock_local *local) {
    return local->marks == 0 && !remo__ack_pending(&local->reset) && local->reset.status == 0
           && atomic_load_explicit(&local->waiters, memory_order_relaxed) == 0;
}

/* Fence until no write that `scope` covers is in flight. Otherwise return -EAGAIN, and the lock stays
 * HELD: after a hand-over such a write could overwrite data of the next holder. */
static int end_writes(const struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                      enum remo_fence_scope scope, int *ret_loss) {
    uint32_t home = lock->locals[index].home;
    int rc = remo__fence_retry(thread, scope, home, ret_loss);
    return rc == 0 || rc == -EINVAL ? rc : remo__lock_still_held(lock, index);
}

/* A pair fence orders the writes before this thread's own release at the home. The next thread of this
 * node uses another connection, so for that thread they must be placed. A thread may queue during the
 * fence, so this is called where the lock is handed over, and not before. */
static int end_writes_for_threads(const struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                                  int *ret_loss) {
    uint32_t home = lock->locals[index].home;
    if (lock->node->mapped)
        return 0;
    int rc = remo__fence_retry_peer(thread, home, lock->node->op_timeout_ns, ret_loss);
    return rc == 0 ? 0 : remo__lock_still_held(lock, index);
}

/* Combine the results of the fence and of the release. After a hand-over the local state belongs to the next
 * holder, so it is changed only if the lock is still held. */
static int end_release(struct remo__lock_local *local, int loss, int rc) {
    if (remo__likely(loss == 0))
        return rc;
    if (rc == -EAGAIN)
        local->loss = loss >= -UINT8_MAX ? (uint8_t)-loss : EIO; /* on ofi a peer sends the code */
    return rc == -EAGAIN ? rc : loss;
}

static int release_slowly(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          enum remo_fence_scope fence) {
    const struct remo__lock_local *local = &lock->locals[index];
    bool hand_over = (local->marks & ~REMO__LOCK_AHEAD) == 0 && remo__lock_threads_wait(local);
    int loss = 0;
    int rc = 0;
    if (hand_over && fence == REMO_FENCE_PAIR)
        rc = end_writes_for_threads(lock, index, thread, &loss);
    if (rc != 0)
        return rc;
    if (hand_over && remo__lock_hand_over(lock, index))
        return loss;
    rc = remo__lock_return(lock, index, thread, fence);
    return end_release(&lock->locals[index], loss, rc);
}

/* End a release that has advanced `serving`, or has failed with `rc`. A node waits if `rc` is 0. */
static __attribute__((noinline)) int finish_plain(struct remo_lock *lock, uint32_t index,
                                                  struct remo__thread *thread, enum remo_fence_scope fence,
                                                  uint64_t word, int rc) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t state = atomic_load_explicit(&local->state, memory_order_relaxed);
    uint32_t ticket = (uint32_t)state;
    local->handed_over = rc == 0 && lock->node->mapped && remo__word_pending(word) == 1;
    if (rc == 0)
        rc = remo__lock_grant_next(lock, index, thread, ticket, word, false);
    else if (fence != REMO_FENCE_NONE)
        rc = remo__lock_release_failed(lock, index, thread, 0, rc);
    if (rc != -EAGAIN)
        remo__lock_end(lock, index, rc, remo__state_nonce(state), ticket);
    return rc > 0 ? 0 : rc;
}

/* `serving` was advanced by `step`, and the home word was `word` before. */
static inline __attribute__((always_inline)) int end_plain(struct remo_lock *lock, uint32_t index,
                                                           struct remo__thread *thread,
                                                           enum remo_fence_scope fence, uint64_t state,
                                                           uint64_t word, uint64_t step) {
    uint32_t ticket = (uint32_t)state;
    if (remo__unlikely(remo__word_next(word) != ticket + 1))
        return finish_plain(lock, index, thread, fence, word + step, 0);
    remo__lock_set_state(lock, &lock->locals[index],
                         remo__state_word(REMO__LOCK_FREE, remo__state_nonce(state), ticket));
    return 0;
}

/* Release a lock whose home is not mapped. */
static __attribute__((noinline)) int release_far(struct remo_lock *lock, uint32_t index,
                                                 struct remo__thread *thread, enum remo_fence_scope fence,
                                                 uint64_t state) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t step = remo__word_step((uint32_t)state), word;
    struct remo__ref ref;
    if (remo__unlikely(!remo__memory_find_now(lock->words, thread, local->home, local->offset, &ref)))
        return remo__lock_return(lock, index, thread, fence);
    atomic_store_explicit(&local->state, remo__state_busy(state), memory_order_release);
    int rc = remo__fetch_add(ref, step, &word, NULL);
    if (remo__unlikely(rc != 0))
        return finish_plain(lock, index, thread, fence, 0, rc);
    return end_plain(lock, index, thread, fence, state, word, step);
}

/* Release the lock; no thread of this node waits for it. */
static inline __attribute__((always_inline)) int release_plain(struct remo_lock *lock, uint32_t index,
                                                               struct remo__thread *thread,
                                                               enum remo_fence_scope fence, uint64_t state) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t step = remo__word_step((uint32_t)state);
    char *word = mapped_word(lock, local);
    if (remo__unlikely(!word))
        return release_far(lock, index, thread, fence, state);
    atomic_store_explicit(&local->state, remo__state_busy(state), memory_order_release);
    return end_plain(lock, index, thread, fence, state, add_mapped(lock, thread, word, step), step);
}

static int fail_scope(const struct remo_lock *lock, uint32_t index, enum remo_fence_scope fence) {
    return remo__fail(-EINVAL,
                      "cannot release lock %u of %s: %d is not a fence scope; give REMO_FENCE_NONE, "
                      "PAIR, THREAD or GLOBAL",
                      index, remo_channel_name(lock->channel), (int)fence);
}

static inline __attribute__((always_inline)) int release(struct remo_lock *lock, uint32_t index,
                                                         struct remo__thread *thread,
                                                         enum remo_fence_scope fence, uint64_t state) {
    if (remo__unlikely(!is_plain(&lock->locals[index])))
        return release_slowly(lock, index, thread, fence);
    return release_plain(lock, index, thread, fence, state);
}

/* Release the lock after its fence, and return the error of a write that the fence found. */
static __attribute__((noinline)) int release_fenced(struct remo_lock *lock, uint32_t index,
                                                    struct remo__thread *thread, enum remo_fence_scope fence,
                                                    uint64_t state) {
    struct remo__lock_local *local = &lock->locals[index];
    int loss = 0, rc = 0;
    if (remo__unlikely(fence != REMO_FENCE_NONE
                       /* mapped: the atomic is a full fence */
                       && !lock->node->mapped)) {
        rc = end_writes(lock, index, thread, fence, &loss);
        if (remo__unlikely(rc != 0))
            return rc;
    }
    if (remo__unlikely(local->loss != 0)) {
        loss = -(int)local->loss;
        local->loss = 0;
    }
    return end_release(local, loss, release(lock, index, thread, fence, state));
}

static inline __attribute__((always_inline)) int
release_by(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, enum remo_fence_scope fence) {
    if (remo__unlikely((uint32_t)fence > REMO_FENCE_GLOBAL))
        return fail_scope(lock, index, fence);
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t state = atomic_load_explicit(&local->state, memory_order_relaxed);
    if (remo__unlikely(!holds(local, state, thread)))
        return fail_not_held(lock, index, "release");
    if (remo__unlikely(!lock->node->mapped || local->loss != 0))
        return release_fenced(lock, index, thread, fence, state);
    return release(lock, index, thread, fence, state);
}

static __attribute__((noinline, cold)) int attach_and_release(struct remo_lock *lock, uint32_t index,
                                                              enum remo_fence_scope fence) {
    struct remo__thread *thread = remo__thread(lock->node);
    return thread ? release_by(lock, index, thread, fence) : remo__last_code();
}

int remo_lock_release(struct remo_lock *lock, uint32_t index, enum remo_fence_scope fence) {
    if (remo__unlikely(!lock || index >= lock->count))
        return fail_index(lock, index);
    if (remo__unlikely(remo__tls.node_id != lock->node->id))
        return attach_and_release(lock, index, fence);
    return release_by(lock, index, remo__tls.thread, fence);
}

int remo_lock_consistent(struct remo_lock *lock, uint32_t index) {
    if (!lock || index >= lock->count)
        return fail_index(lock, index);
    const struct remo__thread *thread = remo__thread(lock->node);
    if (!thread)
        return remo__last_code();
    struct remo__lock_local *local = &lock->locals[index];
    if (!holds(local, atomic_load_explicit(&local->state, memory_order_relaxed), thread))
        return fail_not_held(lock, index, "call consistent");
    if (!(local->marks & REMO__LOCK_GOT_OWNERDEAD))
        return remo__fail(-EINVAL, "lock %u of %s needs no repair: its previous holder did not fail", index,
                          remo_channel_name(lock->channel));
    local->marks |= REMO__LOCK_REPAIRED;
    return 0;
}
