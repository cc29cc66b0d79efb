/* lock.c - see remo/lock.h and objects/lock.h: opening, and the way of a lock that nobody else wants. */
#include "base/mutant.h"
#include "objects/lock.h"

#include <stdio.h>
#include <stdlib.h>

#include "node/fence.h"
#include "objects/region.h"

#define COUNT_MAX (1u << 24)

/* ---- open ---- */

static void on_connect(void *ctx, uint32_t node) {
    remo__lock_recovery_connected(ctx, node);
}

static void on_leave(void *ctx, uint32_t node, enum remo_channel_peer state) {
    struct remo_lock *lock = ctx;
    (void)node, (void)state;
    remo__lock_report_on(lock); /* an answer may have waited for this */
    remo__lock_recovery_start(lock);
}

static void on_message(void *ctx, uint32_t node, const void *data, size_t size_bytes) {
    struct remo_lock *lock = ctx;
    uint8_t type = size_bytes > 0 ? *(const uint8_t *)data : 0;
    if (type == REMO__LOCK_QUERY || type == REMO__LOCK_GRANT || type == REMO__LOCK_REPORT_ON)
        remo__lock_report_message(lock, node, data, size_bytes);
    else
        remo__lock_recovery_message(lock, node, data, size_bytes);
}

static int choose_homes(struct remo_lock *lock, const struct remo_nodeset *asked,
                        const struct remo_nodeset *participants) {
    struct remo_nodeset homes = *asked;
    if (remo_nodeset_empty(&homes))
        remo_nodeset_add(&homes, remo__nodeset_next(participants, 0));
    for (uint32_t node = remo__nodeset_next(&homes, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(&homes, node + 1)) {
        if (!remo_nodeset_has(participants, node))
            return remo__fail(-EINVAL, "node %u is to be the home of locks but does not participate", node);
        lock->homes[lock->home_count++] = (uint16_t)node;
    }
    return 0;
}

static int make_seats(struct remo_lock *lock) {
    lock->seats = aligned_alloc(REMO__CACHE_LINE, (size_t)lock->count * sizeof *lock->seats);
    if (!lock->seats)
        return remo__fail(-ENOMEM, "no memory for the %u locks of a table", lock->count);
    for (uint32_t i = 0; i < lock->count; i++)
        lock->seats[i] = (struct remo__lock_seat){.home = lock->homes[i % lock->home_count],
                                                  .offset = (uint64_t)(i / lock->home_count) * lock->stride};
    for (uint32_t i = 0; i < REMO__LOCK_STRIPES; i++) {
        pthread_mutex_init(&lock->stripes[i].mutex, NULL);
        lock->stripes[i].last = &lock->stripes[i].first;
    }
    return 0;
}

/* Words and batons at the homes, as many for each (the last ones may stay unused), and grant words
 * everywhere. */
static int make_memory(struct remo_lock *lock) {
    struct remo_nodeset homes = {0};
    uint32_t words = 0, grants = 0;
    for (uint32_t i = 0; i < lock->home_count; i++)
        remo_nodeset_add(&homes, lock->homes[i]);
    uint64_t word_bytes = (uint64_t)((lock->count + lock->home_count - 1) / lock->home_count) * lock->stride;
    uint64_t own_bytes = remo_nodeset_has(&homes, lock->rank) ? word_bytes : 0;
    int rc = remo_channel_add_memory(lock->channel, "words", own_bytes, word_bytes, &homes, &words);
    if (rc == 0)
        rc = remo_channel_add_memory(lock->channel, "grants", 8ull * lock->count, 8ull * lock->count, NULL,
                                     &grants);
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
                                           .on_leave = on_leave,
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
    const struct remo_lock_options *asked = options ? options : &all_default;
    struct remo_nodeset participants;
    int rc = remo__participants_of(parent, &asked->participants, &participants);
    if (rc == 0)
        rc = remo__needs_coherence(parent, "a lock");
    if (rc == 0 && asked->count > COUNT_MAX)
        rc = remo__fail(-EINVAL, "a table of %u locks is too large, at most %u are allowed", asked->count,
                        COUNT_MAX);
    if (rc != 0)
        return rc;
    struct remo_lock *lock = aligned_alloc(REMO__CACHE_LINE, sizeof *lock);
    if (!lock)
        return remo__fail(-ENOMEM, "no memory for lock %s", name ? name : "");
    *lock = (struct remo_lock){.count = asked->count ? asked->count : 1};
    lock->places = (uint32_t)remo__power_of_two_from(2 * remo__nodeset_count(&participants));
    lock->stride = (uint32_t)remo__align_up(8 * (1 + lock->places), REMO__CACHE_LINE);
    rc = choose_homes(lock, &asked->homes, &participants);
    if (rc == 0)
        rc = open_channel(lock, parent, name, &participants);
    if (rc == 0)
        rc = make_seats(lock);
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
    remo_channel_close(lock->channel); /* no callback runs from here on */
    remo__lock_recovery_close(lock);
    remo__lock_report_close(lock);
    for (uint32_t i = 0; lock->seats && i < REMO__LOCK_STRIPES; i++)
        pthread_mutex_destroy(&lock->stripes[i].mutex);
    free(lock->seats);
    free(lock);
}

struct remo_channel *remo_lock_channel(struct remo_lock *lock) {
    return lock ? lock->channel : NULL;
}

uint32_t remo_lock_home(const struct remo_lock *lock, uint32_t index) {
    return lock ? lock->homes[index % lock->home_count] : REMO_NODES_MAX;
}

/* ---- acquire, release ---- */

static int fail_index(const struct remo_lock *lock, uint32_t index) {
    if (!lock)
        return remo__fail(-EINVAL, "the lock is NULL; open it with remo_lock_open");
    return remo__fail(-EINVAL, "there is no lock %u in %s: it has locks 0 to %u", index,
                      remo_channel_name(lock->channel), lock->count - 1);
}

int remo_lock_acquire(struct remo_lock *lock, uint32_t index, uint64_t timeout_ns) {
    if (remo__unlikely(!lock || index >= lock->count))
        return fail_index(lock, index);
    struct remo__thread *thread = remo__thread(lock->node);
    if (remo__unlikely(!thread))
        return -EAGAIN;
    if (remo__unlikely(timeout_ns == 0))
        return remo__lock_try(lock, index, thread);
    struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t seen = atomic_load_explicit(&seat->place, memory_order_relaxed), drawn;
    if (remo__unlikely(
            remo__place_state(seen) != REMO__LOCK_FREE
            || (atomic_load_explicit(&seat->queued, memory_order_relaxed) != 0 && !REMO__MUTANT(lock_queued))
            || !atomic_compare_exchange_strong(&seat->place, &seen, remo__place_busy(seen))))
        return remo__lock_acquire_in_turn(lock, index, thread, remo__deadline(timeout_ns));
    uint64_t at = remo__memory_at(lock->words, seat->home, seat->offset);
    if (remo__unlikely(at == REMO__NO_OFFSET))
        return remo__lock_enter(lock, index, thread, seen, remo__deadline(timeout_ns));
    int rc = remo__fetch_add(thread, remo__channel_counters(lock->channel, thread), seat->home, at,
                             REMO__LOCK_DRAW, &drawn, NULL);
    if (remo__unlikely(rc != 0)) {
        remo__lock_end(lock, index, rc, remo__place_nonce(seen), (uint32_t)seen);
        return rc;
    }
    if (remo__unlikely((!remo__word_free(drawn) && !REMO__MUTANT(lock_drawn_free))
                       || (remo__word_flags(drawn) != 0 && !REMO__MUTANT(lock_drawn_flags))))
        return remo__lock_drawn(lock, index, thread, seen, drawn, remo__deadline(timeout_ns));
    atomic_store_explicit(&seat->owner, thread->index, memory_order_relaxed);
    seat->handovers = 0;
    atomic_store_explicit(&seat->place,
                          remo__place(REMO__LOCK_HELD, remo__place_nonce(seen), remo__word_next(drawn)),
                          memory_order_release);
    return 0;
}

static int fail_not_held(const struct remo_lock *lock, uint32_t index, const char *what) {
    return remo__fail(-EPERM, "cannot %s lock %u of %s: this thread does not hold it", what, index,
                      remo_channel_name(lock->channel));
}

static bool holds(const struct remo__lock_seat *seat, uint64_t place, const struct remo__thread *thread) {
    return remo__place_state(place) == REMO__LOCK_HELD
           && atomic_load_explicit(&seat->owner, memory_order_relaxed) == thread->index;
}

static bool threads_wait(const struct remo__lock_seat *seat) {
    return atomic_load_explicit(&seat->queued, memory_order_relaxed) != 0;
}

/* Nobody of this node waits, and the home needs to hear nothing but the release. */
static bool plain(const struct remo__lock_seat *seat) {
    return (seat->marks == 0 || REMO__MUTANT(lock_plain_marks)) && !remo__ack_pending(&seat->reset)
           && seat->reset.status == 0 && !threads_wait(seat);
}

/* 0: nothing that `scope` covers is in flight. Else the lock stays HELD: after a hand-over a write that is
 * still in flight could overwrite what the next owner writes. */
static int settle(const struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                  enum remo_fence_scope scope, int *ret_loss) {
    uint32_t home = lock->seats[index].home;
    if (REMO__MUTANT(lock_settle)) {
        *ret_loss = remo_fence(lock->node, scope, home);
        return 0;
    }
    int rc = remo__fence_settle(thread, scope, home, ret_loss);
    return rc == 0 || rc == -EINVAL ? rc : remo__lock_still_held(lock, index);
}

/* A pair fence orders our writes before our own release at the home, but the next thread of this node uses a
 * connection of its own: for that thread they must be placed. Threads may queue while we fence, so the check
 * is here, where the lock is handed over, and not before. */
static int settle_for_threads(const struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                              int *ret_loss) {
    uint32_t home = lock->seats[index].home;
    if (lock->node->mapped || REMO__MUTANT(lock_fence_for_threads))
        return 0;
    if (REMO__MUTANT(lock_settle_for_threads)) {
        *ret_loss = remo__fence_placed(thread, thread, home);
        return 0;
    }
    int rc = remo__fence_settle_peer(thread, home, lock->node->op_timeout_ns, ret_loss);
    return rc == 0 ? 0 : remo__lock_still_held(lock, index);
}

/* After a hand-over the seat is another's, so it is not touched here unless it is still held. */
static int end_release(struct remo__lock_seat *seat, int loss, int rc) {
    if (remo__likely(loss == 0))
        return rc;
    if (rc == -EAGAIN)
        seat->loss = (int16_t)loss;
    return rc == -EAGAIN ? rc : loss;
}

static int release_slowly(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          enum remo_fence_scope fence) {
    const struct remo__lock_seat *seat = &lock->seats[index];
    bool hand_over = (seat->marks == 0 || REMO__MUTANT(lock_hand_over_marks)) && threads_wait(seat);
    int loss = 0;
    int rc = 0;
    if (hand_over && fence == REMO_FENCE_PAIR)
        rc = settle_for_threads(lock, index, thread, &loss);
    if (rc != 0)
        return rc;
    if (hand_over && remo__lock_hand_over(lock, index))
        return loss;
    rc = remo__lock_leave(lock, index, thread, fence);
    return end_release(&lock->seats[index], loss, rc);
}

/* Release a lock for which no thread of this node waits. */
static int release_plain(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                         enum remo_fence_scope fence, uint64_t place) {
    struct remo__lock_seat *seat = &lock->seats[index];
    uint32_t ticket = (uint32_t)place;
    uint64_t step = remo__word_step(ticket), word;
    uint64_t at = remo__memory_at(lock->words, seat->home, seat->offset);
    if (remo__unlikely(at == REMO__NO_OFFSET))
        return remo__lock_leave(lock, index, thread, fence);
    atomic_store_explicit(&seat->place, remo__place_busy(place), memory_order_release);
    int rc = remo__fetch_add(thread, remo__channel_counters(lock->channel, thread), seat->home, at, step,
                             &word, NULL);
    if (remo__unlikely(rc != 0 || (remo__word_next(word) != ticket + 1 && !REMO__MUTANT(lock_pass_on)))) {
        if (rc == 0)
            rc = remo__lock_pass_on(lock, index, thread, ticket, word + step, false);
        else if (fence != REMO_FENCE_NONE)
            rc = remo__lock_release_failed(lock, index, thread, 0, rc);
        if (rc != -EAGAIN)
            remo__lock_end(lock, index, rc, remo__place_nonce(place), ticket);
        return rc;
    }
    remo__lock_settle(lock, seat, remo__place(REMO__LOCK_FREE, remo__place_nonce(place), ticket));
    return 0;
}

static int fail_scope(const struct remo_lock *lock, uint32_t index, enum remo_fence_scope fence) {
    return remo__fail(-EINVAL,
                      "cannot release lock %u of %s: %d is no scope of a fence; give REMO_FENCE_NONE, "
                      "PAIR, THREAD or GLOBAL",
                      index, remo_channel_name(lock->channel), (int)fence);
}

int remo_lock_release(struct remo_lock *lock, uint32_t index, enum remo_fence_scope fence) {
    if (remo__unlikely(!lock || index >= lock->count))
        return fail_index(lock, index);
    struct remo__thread *thread = remo__thread(lock->node);
    if (remo__unlikely(!thread))
        return -EAGAIN;
    if (remo__unlikely((uint32_t)fence > REMO_FENCE_GLOBAL))
        return fail_scope(lock, index, fence);
    struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t place = atomic_load_explicit(&seat->place, memory_order_relaxed);
    if (remo__unlikely(!holds(seat, place, thread)))
        return fail_not_held(lock, index, "release");
    int loss = 0, rc = 0;
    if (remo__unlikely(fence != REMO_FENCE_NONE
                       /* where memory is mapped, the atomic is fence enough */
                       && !lock->node->mapped && !REMO__MUTANT(lock_release_fence))) {
        rc = settle(lock, index, thread, fence, &loss);
        if (remo__unlikely(rc != 0))
            return rc;
    }
    if (remo__unlikely(seat->loss != 0)) {
        loss = seat->loss;
        seat->loss = 0;
    }
    if (remo__unlikely(!plain(seat)))
        rc = release_slowly(lock, index, thread, fence);
    else
        rc = release_plain(lock, index, thread, fence, place);
    return end_release(seat, loss, rc);
}

int remo_lock_consistent(struct remo_lock *lock, uint32_t index) {
    if (!lock || index >= lock->count)
        return fail_index(lock, index);
    const struct remo__thread *thread = remo__thread(lock->node);
    if (!thread)
        return -EAGAIN;
    struct remo__lock_seat *seat = &lock->seats[index];
    if (!holds(seat, atomic_load_explicit(&seat->place, memory_order_relaxed), thread))
        return fail_not_held(lock, index, "call consistent");
    if (!(seat->marks & REMO__LOCK_TOLD_DEAD))
        return remo__fail(-EINVAL, "lock %u of %s has nothing to repair: its last owner did not die", index,
                          remo_channel_name(lock->channel));
    seat->marks |= REMO__LOCK_REPAIRED;
    return 0;
}
