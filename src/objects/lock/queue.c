/* queue.c - the wait queue of a lock at its home: draws a ticket, waits, times out, resumes, releases.
 * Invariant: a queue word is 0 when `serving` moves past its ticket, so a later ticket can use the word.
 * A release with a hint about the next waiter makes the queue word of that waiter 0, while it moves
 * `serving`.
 * docs/internals/lock.md describes the words, the local states and the proofs. */
#include <stdio.h>

#include "objects/lock/lock.h"

#define CHECKS_WITHOUT_CLOCK 100u
/* With the learned pause after each one. */
#ifdef REMO_SIM_SMALL
#define PAUSED_LOOKS 2u
#else
#define PAUSED_LOOKS 8u
#endif
#define LATE_GRANT_PART 16u /* of op_timeout_ns: by then a grant word has usually arrived */

/* ---- operations on a lock's words ---- */

static inline __attribute__((always_inline)) int find_word(const struct remo_lock *lock, uint32_t index,
                                                           struct remo__thread *thread, uint32_t word,
                                                           struct remo__ref *ret_ref) {
    const struct remo__lock_local *local = &lock->locals[index];
    return remo__memory_find(lock->words, thread, local->home, local->offset + 8 * (uint64_t)word, ret_ref);
}

int remo__lock_add(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                   uint64_t addend, uint64_t *ret_old, struct remo_ack *ack) {
    struct remo__ref ref;
    int rc = find_word(lock, index, thread, word, &ref);
    return rc != 0 ? rc : remo__fetch_add(ref, addend, ret_old, ack);
}

int remo__lock_swap(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                    uint64_t expected, uint64_t desired, uint64_t *ret_old) {
    struct remo__ref ref;
    int rc = find_word(lock, index, thread, word, &ref);
    return rc != 0 ? rc : remo__compare_swap(ref, expected, desired, ret_old, NULL);
}

/* Errors are ignored: if a message cannot be sent, a later REMIND of a node that waits makes up for it. */
static void send_type(struct remo_lock *lock, uint32_t node, enum remo__lock_message type) {
    const uint8_t message[] = {(uint8_t)type};
    (void)remo_channel_send(lock->channel, node, message, sizeof message);
}

/* `waits_since_s` has 16 bits and wraps: after a pause of about a multiple of 2^16 s between two waits, a
 * REMIND may be late. */
uint64_t remo__lock_remind(struct remo_lock *lock, uint32_t index) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t now_ns = remo__now_ns();
    uint16_t now_s = (uint16_t)remo__max((uint16_t)(now_ns / REMO__NS_PER_S), 1);
    if (local->waits_since_s == 0) {
        local->waits_since_s = now_s;
    } else if ((uint16_t)(now_s - local->waits_since_s) >= REMO__LOCK_REMIND_S) {
        local->waits_since_s = now_s;
        send_type(lock, local->home, REMO__LOCK_REMIND);
    }
    uint16_t waited_s = (uint16_t)(now_s - local->waits_since_s);
    return now_ns + (REMO__LOCK_REMIND_S - waited_s) * REMO__NS_PER_S;
}

/* In state UNSETTLED the node does not answer the home. If it did, the home could end the ticket first, and
 * the late operation would then end or grant another ticket. */
void remo__lock_end(struct remo_lock *lock, uint32_t index, int rc, uint16_t nonce, uint32_t ticket) {
    struct remo__lock_local *local = &lock->locals[index];
    enum remo__lock_state state = REMO__LOCK_FREE;
    char sentence[REMO__SENTENCE_MAX]; /* messages that cannot be sent must not replace it */
    if (rc < 0)
        snprintf(sentence, sizeof sentence, "%s", remo_last_error());
    if (rc != 0 && !remo__is_departure(rc)) {
        local->outcome_unknown = true;
        if (remo__op_abandoned(lock->node, local->home))
            state = REMO__LOCK_UNSETTLED;
        else
            state = REMO__LOCK_GUARDED;
        nonce = (uint16_t)(nonce + 1); /* see remo__lock_reopen */
        send_type(lock, local->home, REMO__LOCK_RECOUNT);
    }
    remo__lock_set_state(lock, local, remo__state_word(state, nonce, ticket));
    if (rc < 0)
        (void)remo__fail(rc, "%s", sentence);
}

int remo__lock_guard(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t previous) {
    uint64_t word = 0;
    int rc = remo__lock_add(lock, index, thread, 0, 0, &word, NULL);
    if (rc != 0) {
        remo__lock_end(lock, index, rc, remo__state_nonce(previous), (uint32_t)previous);
        return rc;
    }
    if (remo__word_pending(word) <= lock->guarded_max)
        return 1;
    remo__lock_set_state(lock, &lock->locals[index], previous);
    return 0;
}

/* ---- grants ---- */

static int send_grant_message(struct remo_lock *lock, uint32_t index, uint32_t waiter, uint64_t grant) {
    uint8_t message[16];
    struct remo__writer writer = remo__writer_of(message, sizeof message);
    remo__put_u8(&writer, REMO__LOCK_GRANT);
    remo__put_u32(&writer, index);
    remo__put_u64(&writer, grant);
    int rc = remo_channel_send(lock->channel, waiter, message, (size_t)(writer.at - message));
    if (rc != 0 && rc != -EHOSTDOWN)
        lock->has_unsent_grant = true;
    return rc;
}

/* Wait until the write is complete: this thread might never call the library again to drive it. */
static __attribute__((noinline)) int write_grant(struct remo_lock *lock, uint32_t index,
                                                 struct remo__thread *thread, uint32_t waiter,
                                                 uint64_t grant) {
    struct remo_ack ack = REMO_ACK_INIT;
    struct remo__ref ref;
    uint32_t successor = (uint32_t)grant + 1;
    uint64_t arrived = remo__lock_arrived_ahead(lock, index, successor);
    uint64_t words[] = {grant, (uint64_t)successor << 32 | arrived};
    int rc = remo__memory_find(lock->grants, thread, waiter, REMO__GRANT_BYTES * (uint64_t)index, &ref);
    if (rc != 0)
        return rc;
    rc = remo__write(ref, words, arrived != 0 ? sizeof words : sizeof grant,
                     REMO__WRITE_NOTIFY | REMO__WRITE_EXEMPT | REMO__WRITE_TRACKED, &ack);
    if (rc == 0 && arrived != 0)
        remo__lock_wake_ahead(lock, index, thread, successor);
    if (rc == 0)
        rc = remo__ack_settle(&ack, lock->node->op_timeout_ns);
    return rc == -ETIMEDOUT ? remo__peer_timeout(lock->node, waiter, "grant a lock to") : rc;
}

/* On mapped memory the waiter reads its queue word at the home, so it needs only a notification. Returns
 * false if the waiter is not mapped. */
static inline bool notify_mapped(const struct remo_lock *lock, struct remo__thread *thread, uint32_t waiter) {
    struct remo__ref ref;
    return lock->node->mapped && remo__memory_find_now(lock->grants, thread, waiter, 0, &ref)
           && remo__notify_after_atomic(ref);
}

/* This node may have lost contact with the waiter although the waiter is up. So the home decides whether it
 * has failed, and sends the grant or ends the ticket. The caller gets no error. */
int remo__lock_send_grant(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint32_t waiter, uint64_t grant, bool by_message) {
    if (waiter >= lock->node->size || !remo_nodeset_has(&lock->channel->participants, waiter))
        return remo__fail(
            -EPROTO,
            "lock %u of %s: a queue word names node %u, which is no participant; the memory of the home is "
            "damaged",
            index, remo_channel_name(lock->channel), waiter);
    if (!by_message && remo__likely(notify_mapped(lock, thread, waiter)))
        return 0;
    int rc = by_message ? send_grant_message(lock, index, waiter, grant)
                        : write_grant(lock, index, thread, waiter, grant);
    if (!remo__is_departure(rc))
        return rc;
    return by_message ? 0 : REMO__LOCK_GRANT_LOST;
}

int remo__lock_grant(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                     uint32_t flags, bool by_message) {
    uint64_t grant = remo__queue_word_grant(by_message ? REMO__GRANTER_RECOVERY : lock->rank, flags), before;
    uint32_t queue_word = remo__lock_queue_word(lock, ticket);
    int rc = remo__lock_add(lock, index, thread, queue_word, grant, &before, NULL);
    if (rc != 0)
        return rc;
    if (before & REMO__QUEUE_WORD_SKIP) {
        rc = remo__lock_add(lock, index, thread, queue_word, -(before + grant), NULL, NULL);
        return rc != 0 ? rc : REMO__LOCK_TICKET_SKIPPED;
    }
    uint32_t waiter = remo__queue_word_waiter(before);
    if (before == 0) {
        if (by_message) /* a release that failed may have made the word 0 */
            waiter = lock->claimant(lock, index, ticket);
        if (waiter >= REMO_NODES_MAX)
            return 0; /* the waiter finds the grant when it arrives */
    }
    return remo__lock_send_grant(lock, index, thread, waiter, remo__grant_of(before + grant, ticket),
                                 by_message);
}

/* Each iteration ends a skipped ticket. Its node can draw another one only after that. So the number of
 * iterations is bounded by the tickets in the queue plus the acquires that time out during the loop. */
int remo__lock_grant_next(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint32_t ticket, uint64_t word, bool by_message) {
    while (remo__word_next(word) != ticket + 1) {
        ticket++;
        int rc = remo__lock_grant(lock, index, thread, ticket, remo__word_flags(word), by_message);
        if (rc != REMO__LOCK_TICKET_SKIPPED)
            return rc;
        uint64_t step = remo__word_step(ticket);
        rc = remo__lock_add(lock, index, thread, 0, step, &word, NULL);
        if (rc != 0)
            return rc;
        word += step;
    }
    return 0;
}

int remo__lock_end_ticket(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint32_t ticket, uint64_t change, bool by_message) {
    uint64_t step = remo__word_step(ticket) + change, word;
    int rc = remo__lock_add(lock, index, thread, 0, step, &word, NULL);
    return rc != 0 ? rc : remo__lock_grant_next(lock, index, thread, ticket, word + step, by_message);
}

/* ---- holding and releasing ---- */

struct operations {
    struct remo_lock *lock;
    uint32_t home;
};

/* A wait condition: no operation of this node that may still change a word at the home is in flight. */
static int have_ended(void *ctx) {
    const struct operations *operations = ctx;
    struct remo_lock *lock = operations->lock;
    return !remo__op_abandoned(lock->node, operations->home)
               ? 1
               : remo__channel_check_peer(lock->channel, operations->home);
}

/* Complete the reset of the queue word, which must be 0 before `serving` moves on. If a reset has failed, its
 * outcome is unknown: read the word. While the lock is held, no other node changes it. */
static int finish_reset(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                        bool unreset) {
    struct remo__lock_local *local = &lock->locals[index];
    uint32_t queue_word = remo__lock_queue_word(lock, ticket);
    int rc = local->reset.status;
    if (remo__ack_pending(&local->reset))
        rc = remo_ack_wait(&local->reset, lock->node->op_timeout_ns);
    if (rc == -ETIMEDOUT) { /* the reset may still be applied, even after a later atomic */
        remo_ack_cancel(&local->reset);
        return remo__peer_timeout(lock->node, local->home, "reset a queue word at");
    }
    local->reset = (struct remo_ack)REMO_ACK_INIT;
    if ((rc == 0 && !unreset) || remo__is_departure(rc))
        return 0;
    struct operations operations = {.lock = lock, .home = local->home};
    uint64_t timeout_ns = lock->node->op_timeout_ns;
    rc = remo__wait_polling(lock->node, have_ended, &operations, remo__deadline(timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__peer_timeout(lock->node, local->home, "reset a queue word at");
    if (rc != 0)
        return rc;
    uint64_t is = 0;
    rc = remo__lock_swap(lock, index, thread, queue_word, 0, 0, &is);
    return rc == 0 && is != 0 ? remo__lock_swap(lock, index, thread, queue_word, is, 0, &is) : rc;
}

int remo__lock_still_held(const struct remo_lock *lock, uint32_t index) {
    return remo__fail_more(-EAGAIN,
                           "lock %u of %s is still held, because writes may be in flight; release it again",
                           index, remo_channel_name(lock->channel));
}

int remo__lock_release_failed(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                              uint8_t marks, int rc) {
    struct remo__lock_local *local = &lock->locals[index];
    char sentence[REMO__SENTENCE_MAX];
    if (remo__is_departure(rc))
        return rc;
    snprintf(sentence, sizeof sentence, "%s", remo_last_error());
    if (remo__fence_retry_peer(thread, local->home, lock->node->op_timeout_ns, NULL) == 0)
        return remo__fail(rc, "%s", sentence);
    uint64_t state = atomic_load_explicit(&local->state, memory_order_relaxed);
    local->marks = marks | REMO__LOCK_UNSURE;
    rc = remo__lock_still_held(lock, index);
    snprintf(sentence, sizeof sentence, "%s", remo_last_error()); /* a message to a report may fail */
    remo__lock_publish(lock, local,
                       remo__state_word(REMO__LOCK_HELD, remo__state_nonce(state), (uint32_t)state));
    return remo__fail(rc, "%s", sentence);
}

/* Return 1 if a release that failed was applied, 0 if not, or an error. The release is no longer in flight,
 * so the home word shows its effect. */
static int is_released(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket) {
    uint64_t word = 0;
    int rc = remo__lock_add(lock, index, thread, 0, 0, &word, NULL);
    return rc != 0 ? rc : (uint16_t)word != (uint16_t)ticket;
}

/* The next waiter of a release: its queue word as it arrived, or 0, and the compare-and-swap of that word. */
struct next {
    uint64_t arrived;
    uint64_t old;
    int rc;
};

static int settle(const struct remo_lock *lock, uint32_t index, struct remo_ack *ack) {
    int rc = remo__ack_settle(ack, lock->node->op_timeout_ns);
    return rc == -ETIMEDOUT ? remo__peer_timeout(lock->node, lock->locals[index].home, "release a lock at")
                            : rc;
}

/* Add `step` to the home word and, at the same time, make the queue word of the next waiter 0, if it has not
 * changed since the waiter arrived. Both have ended on return, unless they timed out. */
static int end_with_next(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                         struct next *next, uint64_t *ret_word) {
    struct remo_ack ended = REMO_ACK_INIT, swapped = REMO_ACK_INIT;
    struct remo__ref word, queue_word;
    int rc = find_word(lock, index, thread, 0, &word);
    if (rc == 0)
        rc = find_word(lock, index, thread, remo__lock_queue_word(lock, ticket + 1), &queue_word);
    if (rc != 0)
        return next->rc = rc;
    remo__cork(thread);
    rc = remo__fetch_add(word, remo__word_step(ticket), ret_word, &ended);
    next->rc = rc != 0 ? rc : remo__compare_swap(queue_word, next->arrived, 0, &next->old, &swapped);
    remo__uncork(thread);
    if (rc == 0 && next->rc == 0)
        next->rc = settle(lock, index, &swapped);
    return rc != 0 ? rc : settle(lock, index, &ended);
}

/* Complete the reset of the queue word, then end the ticket. *ret_word is the home word after that. */
static int end_own_ticket(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint32_t ticket, uint8_t *marks, struct next *next, uint64_t *ret_word) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t step = remo__word_step(ticket), word;
    if (*marks & REMO__LOCK_GOT_OWNERDEAD)
        step -= (uint64_t)REMO__LOCK_OWNER_DEAD << REMO__LOCK_FLAG_SHIFT;
    if ((*marks & REMO__LOCK_GOT_OWNERDEAD) && !(*marks & REMO__LOCK_REPAIRED))
        step += (uint64_t)REMO__LOCK_LOST << REMO__LOCK_FLAG_SHIFT;
    bool unreset = (*marks & REMO__LOCK_UNRESET) != 0;
    bool reset = !remo__ack_pending(&local->reset) && local->reset.status == 0 && !unreset;
    int rc = 0;
    if (!reset)
        rc = finish_reset(lock, index, thread, ticket, unreset);
    if (rc != 0) {
        *marks |= REMO__LOCK_UNRESET;
        return rc;
    }
    *marks &= (uint8_t)~REMO__LOCK_UNRESET;
    if (next->arrived != 0)
        rc = end_with_next(lock, index, thread, ticket, next, &word);
    else
        rc = remo__lock_add(lock, index, thread, 0, step, &word, NULL);
    if (rc != 0 && next->arrived != 0)
        *marks |= REMO__LOCK_SWAPPED;
    *ret_word = rc == 0 ? word + step : 0;
    return rc;
}

/* Grant the lock to the next ticket, after the own one has ended. A waiter whose queue word is 0 by this
 * release needs only its grant word. */
static int grant_after(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                       const struct next *next, uint64_t word) {
    if (next->arrived == 0 || (next->rc == 0 && next->old != next->arrived))
        return remo__lock_grant_next(lock, index, thread, ticket, word, false);
    if (next->rc != 0)
        return next->rc;
    uint64_t granted = next->arrived | remo__queue_word_grant(lock->rank, remo__word_flags(word));
    return remo__lock_send_grant(lock, index, thread, remo__queue_word_waiter(next->arrived),
                                 REMO__GRANT_CLEARED | remo__grant_of(granted, ticket + 1), false);
}

/* Return the queue word of the next waiter, or 0 if it is unknown, or if a mark excludes that the waiter is
 * granted while the own ticket ends. */
static uint64_t find_next(const struct remo_lock *lock, uint32_t index, uint32_t ticket, uint8_t marks) {
    if (marks != REMO__LOCK_AHEAD)
        return 0;
    uint64_t successor = lock->aheads[index].successor;
    return successor != 0 ? successor : remo__lock_arrived_ahead(lock, index, ticket + 1);
}

int remo__lock_return(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                      enum remo_fence_scope fence) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t state = atomic_load_explicit(&local->state, memory_order_relaxed), word = 0;
    uint32_t ticket = (uint32_t)state;
    uint8_t marks = local->marks;
    /* With REMO_FENCE_NONE no other step waits for the operations of an earlier release that failed. */
    if ((marks & REMO__LOCK_UNSURE) && fence == REMO_FENCE_NONE
        && remo__fence_retry_peer(thread, local->home, lock->node->op_timeout_ns, NULL) != 0)
        return remo__lock_still_held(lock, index);
    local->marks = 0;
    atomic_store_explicit(&local->state, remo__state_busy(state), memory_order_release);
    int was_released = marks & REMO__LOCK_UNSURE ? is_released(lock, index, thread, ticket) : 0;
    bool may_be_swapped = (marks & REMO__LOCK_SWAPPED) != 0; /* by the earlier release */
    struct next next = {.arrived = find_next(lock, index, ticket, marks)};
    marks &= (uint8_t)~REMO__LOCK_AHEAD;
    int rc =
        was_released == 0 ? end_own_ticket(lock, index, thread, ticket, &marks, &next, &word) : was_released;
    if (rc < 0 && fence != REMO_FENCE_NONE)
        rc = remo__lock_release_failed(lock, index, thread, marks, rc);
    if (rc == -EAGAIN)
        return rc;
    if (rc == 0)
        rc = may_be_swapped ? 1 : grant_after(lock, index, thread, ticket, &next, word);
    /* After an earlier release that was applied, also in part, the recount lets the home grant the next
     * ticket. */
    remo__lock_end(lock, index, rc, remo__state_nonce(state), ticket);
    return rc > 0 ? 0 : rc;
}

static int fail_lost(const struct remo_lock *lock, uint32_t index) {
    return remo__fail(-ENOTRECOVERABLE,
                      "lock %u of %s is lost: a holder failed, and the next one released the lock without "
                      "remo_lock_consistent; open a lock with another name, and rebuild the data",
                      index, remo_channel_name(lock->channel));
}

int remo__lock_take(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint16_t nonce,
                    uint32_t ticket, uint32_t flags) {
    struct remo__lock_local *local = &lock->locals[index];
    atomic_store_explicit(&local->owner, thread->holder, memory_order_relaxed);
    local->handovers = 0;
    local->waits_since_s = 0;
    local->marks = flags == REMO__LOCK_OWNER_DEAD ? REMO__LOCK_GOT_OWNERDEAD : 0;
    remo__lock_publish(lock, local, remo__state_word(REMO__LOCK_HELD, nonce, ticket));
    if (remo__likely(flags == 0))
        return 0;
    if (flags & REMO__LOCK_LOST) {
        int rc = remo__lock_return(lock, index, thread, REMO_FENCE_NONE);
        return rc != 0 ? rc : fail_lost(lock, index);
    }
    return remo__fail(
        -EOWNERDEAD,
        "lock %u of %s is acquired, but its previous holder failed: repair the protected data, then call "
        "remo_lock_consistent",
        index, remo_channel_name(lock->channel));
}

/* Make the queue word 0 while the lock is held: no other node changes it then. So on mapped memory a store
 * suffices. Unlike an atomic, it does not wait for its line. */
static int reset_queue_word(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                            uint32_t ticket, uint64_t queue_word) {
    struct remo__lock_local *local = &lock->locals[index];
    uint32_t which = remo__lock_queue_word(lock, ticket);
    uint64_t at = local->offset + 8 * (uint64_t)which;
    void *mapped = (void *)(uintptr_t)remo__memory_mapped(lock->words, local->home, at);
    local->reset = (struct remo_ack)REMO_ACK_INIT;
    if (remo__unlikely(!mapped))
        return remo__lock_add(lock, index, thread, which, -queue_word, NULL, &local->reset);
    remo__store(mapped, 0);
    struct remo_stats *stats = remo__channel_counters(lock->channel, thread);
    remo__count(&stats->writes, 1);
    remo__count(&stats->bytes, sizeof(uint64_t));
    return 0;
}

/* How a queue word becomes 0 after the grant. */
enum reset {
    RESET,      /* from its known value */
    RESET_LATE, /* by the release, which reads it */
    RESET_DONE  /* by the granter */
};

/* Take a lock that was granted at its queue word. The reset of the word proceeds while the lock is held. */
static int take_granted_lock(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                             uint16_t nonce, uint32_t ticket, uint64_t queue_word, enum reset reset,
                             bool has_slept) {
    struct remo__lock_local *local = &lock->locals[index];
    int rc = remo__lock_take(lock, index, thread, nonce, ticket,
                             remo__queue_word_flags(queue_word) & REMO__LOCK_OWNER_DEAD);
    uint8_t unreset = reset == RESET_LATE ? REMO__LOCK_UNRESET : 0;
    if (remo__unlikely(lock->aheads != NULL))
        remo__cork(thread);
    if (remo__unlikely(reset == RESET_DONE))
        local->reset = (struct remo_ack)REMO_ACK_INIT;
    else if (reset == RESET && reset_queue_word(lock, index, thread, ticket, queue_word) != 0)
        unreset = REMO__LOCK_UNRESET; /* the release repeats the reset */
    local->marks |= unreset;
    if (remo__unlikely(lock->aheads != NULL)) {
        if (remo__queue_word_flags(queue_word) == 0 && unreset == 0)
            remo__lock_look_ahead(lock, index, thread, ticket, has_slept);
        remo__uncork(thread);
    }
    if (!(remo__queue_word_flags(queue_word) & REMO__LOCK_LOST))
        return rc;
    local->marks = unreset;
    rc = remo__lock_return(lock, index, thread, REMO_FENCE_NONE);
    return rc != 0 ? rc : fail_lost(lock, index);
}

/* ---- looks at a mapped queue word ---- */

/* Return the place of the queue word of `ticket`, or NULL if peers do not read it there. The home maps its
 * own words on every network. */
static inline const char *mapped_queue_word(const struct remo_lock *lock,
                                            const struct remo__lock_local *local, uint32_t ticket) {
    uint64_t at = local->offset + 8 * (uint64_t)remo__lock_queue_word(lock, ticket);
    return remo__likely(lock->node->mapped) ? remo__memory_mapped(lock->words, local->home, at) : NULL;
}

/* Return the queue word if it is granted to this node, which has added `arrived` to it; otherwise pause, and
 * return 0. */
static inline uint64_t look(const struct remo_lock *lock, struct remo__lock_local *local, const char *word,
                            uint64_t arrived, uint32_t *looks) {
    uint64_t found = remo__load(word);
    if (remo__queue_word_is_granted(found) && (found & REMO__QUEUE_WORD_WHICH) == arrived) {
        if (*looks > 0) /* the first look precedes every pause */
            local->look_pause = remo__pause_learn(local->look_pause, *looks > 1);
        return found;
    }
    if ((*looks)++ < PAUSED_LOOKS) /* later pauses would delay a deadline */
        remo__relax_awake(lock->node, local->look_pause / REMO__PAUSE_UNIT);
    return 0;
}

/* Look for the grant of a mapped ticket before the arrival, which is not needed if the grant comes soon: the
 * granter then finds no waiter to notify, and this node executes one atomic less. The state is BUSY, which
 * delays reports, so this is brief. Returns the granted queue word, or 0. */
static inline uint64_t look_before_arrival(const struct remo_lock *lock, struct remo__lock_local *local,
                                           uint32_t ticket) {
    const char *word = mapped_queue_word(lock, local, ticket);
    uint64_t found = 0;
    for (uint32_t looks = 0; word && found == 0 && looks < PAUSED_LOOKS;) {
        found = look(lock, local, word, 0, &looks);
#ifdef REMO_SIM
        remo__sim_turn("look");
#endif
    }
    return found;
}

/* ---- waiting ---- */

struct grant_wait {
    struct remo_lock *lock;
    struct remo__lock_local *local;
    char *word;       /* the grant word of this node */
    uint64_t arrived; /* the queue word before the grant */
    uint64_t which;   /* the bits of the grant word that identify the grant */
    uint64_t grant;   /* result */
    bool by_message;  /* result: the home sent the grant */
    bool is_near;     /* another node has written that the grant comes soon */
    bool has_slept;
    uint32_t looks;  /* at a mapped queue word, without a grant */
    uint32_t checks; /* of the condition granted_soon */
};

/* Return whether the queue word is mapped, which alone shows the grant then. The word shares its line with
 * those on which the atomics of the releaser are, and each load takes the line: pause between loads. */
static inline bool read_queue_word(struct grant_wait *wait) {
    uint32_t ticket = (uint32_t)wait->which;
    const char *word = mapped_queue_word(wait->lock, wait->local, ticket);
    if (remo__unlikely(!word))
        return false;
    uint64_t found = look(wait->lock, wait->local, word, wait->arrived, &wait->looks);
    if (found != 0)
        wait->grant = remo__grant_of(found, ticket);
    return true;
}

static int granted(void *ctx) {
    struct grant_wait *wait = ctx;
    if (read_queue_word(wait))
        return wait->grant != 0 ? 1 : remo__channel_check_peer(wait->lock->channel, wait->local->home);
    uint64_t put = remo__load(wait->word);
    uint64_t message_grant = atomic_load_explicit(&wait->local->message_grant, memory_order_acquire);
    wait->has_slept |= remo__wait_is_last_check();
    if ((put & REMO__GRANT_WHICH) == wait->which)
        wait->grant = put;
    else if ((message_grant & REMO__GRANT_TICKET) == (wait->which & REMO__GRANT_TICKET)) {
        wait->grant = message_grant;
        wait->by_message = true;
    } else if (wait->is_near || remo__load((const char *)wait->word + REMO__GRANT_NEAR) != wait->which)
        return remo__channel_check_peer(wait->lock->channel, wait->local->home);
    return 1;
}

#ifndef REMO_SIM
/* A wait condition: granted, or the wait is not short: checked often, or about to sleep. */
static int granted_soon(void *ctx) {
    struct grant_wait *wait = ctx;
    int rc = read_queue_word(wait) ? wait->grant != 0 : granted(wait);
    bool is_long = ++wait->checks >= CHECKS_WITHOUT_CLOCK || remo__wait_is_last_check();
    return rc == 0 && is_long ? 1 : rc;
}
#endif

/* The grant comes soon: begin another wait, which is awake first. */
static void await_near(struct grant_wait *wait) {
    wait->is_near = true;
    remo__store(wait->word + REMO__GRANT_NEAR, 0);
}

/* Wait for the grant, and remind the home of messages that it, or its peers, could not send. */
static int wait_until_granted(struct grant_wait *wait, uint32_t index, uint64_t deadline_ns) {
#ifndef REMO_SIM /* a short wait without a deadline reads no clock */
    wait->checks = 0;
    int soon = remo__wait(wait->lock->node, granted_soon, wait, deadline_ns);
    if (soon == 0 ? wait->grant != 0 : soon != -ETIMEDOUT)
        return soon;
#endif
    for (;;) {
        uint64_t until_ns = remo__min(deadline_ns, remo__lock_remind(wait->lock, index));
        int rc = remo__wait(wait->lock->node, granted, wait, until_ns);
        if (rc == 0 && wait->grant == 0)
            await_near(wait);
        else if (rc != -ETIMEDOUT || until_ns == deadline_ns)
            return rc;
    }
}

/* Set SKIP in the queue word of this node. Returns 0, -EALREADY if it was granted before, or an error. */
static int set_skip(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t arrived,
                    uint32_t ticket) {
    uint64_t old;
    int rc = remo__lock_swap(lock, index, thread, remo__lock_queue_word(lock, ticket), arrived,
                             arrived | REMO__QUEUE_WORD_SKIP, &old);
    return rc == 0 && old != arrived ? -EALREADY : rc;
}

/* Wait for the grant word of a grant that has been made. A late write may have overwritten the word. So the
 * node requests a round, in which the home sends the grant by message. Without the word the node abandons
 * the ticket, and the home ends the ticket. A later wait ignores the word, because it has another nonce. */
static int wait_for_late_grant(struct grant_wait *wait, uint32_t index, uint16_t nonce, uint32_t ticket) {
    struct remo_lock *lock = wait->lock;
    uint64_t timeout_ns = lock->node->op_timeout_ns;
    uint64_t usual_end_ns = remo__deadline(timeout_ns / LATE_GRANT_PART);
    uint64_t deadline_ns = remo__deadline(timeout_ns);
    remo__lock_publish(lock, wait->local, remo__state_word(REMO__LOCK_WAITING, nonce, ticket));
    int rc = wait_until_granted(wait, index, usual_end_ns);
    if (rc == -ETIMEDOUT) {
        send_type(lock, wait->local->home, REMO__LOCK_RECOUNT);
        rc = wait_until_granted(wait, index, deadline_ns);
    }
    if (rc != -ETIMEDOUT)
        return rc;
    return remo__fail(-ETIMEDOUT,
                      "lock %u of %s was granted to this node, but the grant did not arrive: the node that "
                      "released the lock is paused or unreachable; try again later",
                      index, remo_channel_name(lock->channel));
}

/* Wait for the grant, after the arrival and `looks` with a pause; the state is BUSY, and becomes WAITING. */
static int wait_for_grant(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint16_t nonce,
                          uint32_t ticket, uint32_t looks, uint64_t deadline_ns) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t arrived = remo__queue_word_arrive(lock->rank, nonce);
    struct grant_wait wait = {.lock = lock,
                              .local = local,
                              .word = lock->grants->own + REMO__GRANT_BYTES * (uint64_t)index,
                              .arrived = arrived,
                              .which = REMO__GRANT_VALID | (uint64_t)nonce << 32 | ticket,
                              .looks = looks};
    remo__lock_publish(lock, local, remo__state_word(REMO__LOCK_WAITING, nonce, ticket));
    int rc = wait_until_granted(&wait, index, deadline_ns);
    if (rc == -ETIMEDOUT) {
        atomic_store_explicit(&local->state, remo__state_word(REMO__LOCK_BUSY, nonce, ticket),
                              memory_order_release);
        rc = set_skip(lock, index, thread, arrived, ticket);
        if (rc == 0) {
            remo__lock_set_state(lock, local, remo__state_word(REMO__LOCK_SKIPPED, nonce, ticket));
            return remo__fail(-ETIMEDOUT, "lock %u of %s was not free within the timeout", index,
                              remo_channel_name(lock->channel));
        }
        if (rc == -EALREADY) /* the grant came first */
            rc = wait_for_late_grant(&wait, index, nonce, ticket);
    }
    if (rc != 0) {
        remo__lock_end(lock, index, rc, nonce, ticket);
        return rc;
    }
    uint32_t granter = (uint32_t)(wait.grant >> REMO__GRANT_GRANTER_SHIFT & 0x3ff) - 1;
    uint32_t flags = (uint32_t)(wait.grant >> REMO__GRANT_FLAG_SHIFT) & REMO__LOCK_FLAGS;
    enum reset reset = wait.by_message ? RESET_LATE : wait.grant & REMO__GRANT_CLEARED ? RESET_DONE : RESET;
    return take_granted_lock(lock, index, thread, nonce, ticket,
                             arrived | remo__queue_word_grant(granter, flags), reset, wait.has_slept);
}

/* Clear SKIP in the queue word of the skipped ticket. Returns 0, -EALREADY if the ticket was skipped or is
 * being skipped, or an error. */
static int clear_skip(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                      uint64_t previous) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t arrived = remo__queue_word_arrive(lock->rank, remo__state_nonce(previous)), old;
    uint32_t ticket = (uint32_t)previous;
    int rc = remo__lock_swap(lock, index, thread, remo__lock_queue_word(lock, ticket),
                             arrived | REMO__QUEUE_WORD_SKIP, arrived, &old);
    if (rc != 0 || old == (arrived | REMO__QUEUE_WORD_SKIP))
        return rc;
    atomic_store_explicit(&local->last_skipped, ticket, memory_order_relaxed);
    atomic_store_explicit(&local->has_skipped, true, memory_order_release);
    return -EALREADY;
}

int remo__lock_use_ticket(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint64_t previous, uint64_t drawn, uint64_t deadline_ns) {
    struct remo__lock_local *local = &lock->locals[index];
    uint32_t ticket = remo__word_next(drawn);
    uint16_t nonce = (uint16_t)(remo__state_nonce(previous) + 1);
    if (remo__word_is_free(drawn))
        return remo__lock_take(lock, index, thread, remo__state_nonce(previous), ticket,
                               remo__word_flags(drawn));
    if (local->outcome_unknown)
        send_type(lock, local->home, REMO__LOCK_RECOUNT);
    local->outcome_unknown = false;
    uint64_t granted_word = look_before_arrival(lock, local, ticket);
    if (granted_word != 0)
        return take_granted_lock(lock, index, thread, nonce, ticket, granted_word, RESET, false);
    uint64_t arrive = remo__queue_word_arrive(lock->rank, nonce), before;
    int rc = remo__lock_add(lock, index, thread, remo__lock_queue_word(lock, ticket), arrive, &before, NULL);
    if (rc != 0) {
        remo__lock_end(lock, index, rc, nonce, ticket);
        return rc;
    }
    if (remo__queue_word_is_granted(before))
        return take_granted_lock(lock, index, thread, nonce, ticket, before + arrive, RESET, false);
    return wait_for_grant(lock, index, thread, nonce, ticket, PAUSED_LOOKS, deadline_ns);
}

int remo__lock_join_queue(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                          uint64_t previous, uint64_t deadline_ns) {
    uint64_t drawn;
    int rc = 0;
    if (remo__state_kind(previous) == REMO__LOCK_SKIPPED) {
        rc = clear_skip(lock, index, thread, previous);
        if (rc == 0)
            return wait_for_grant(lock, index, thread, remo__state_nonce(previous), (uint32_t)previous, 0,
                                  deadline_ns);
    }
    if (rc == 0 || rc == -EALREADY)
        rc = remo__lock_add(lock, index, thread, 0, REMO__LOCK_DRAW, &drawn, NULL);
    if (rc == 0)
        return remo__lock_use_ticket(lock, index, thread, previous, drawn, deadline_ns);
    remo__lock_end(lock, index, rc, remo__state_nonce(previous), (uint32_t)previous);
    return rc;
}
