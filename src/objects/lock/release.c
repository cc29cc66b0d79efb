/* release.c - ends the ticket of the holder at the home of a lock, and grants the next ticket.
 * Invariant: a queue word is 0 when `serving` moves past its ticket. A release with a hint about the next
 * waiter makes the queue word of that waiter 0, while it moves `serving`.
 * docs/internals/lock.md describes the words, the local states and the proofs. */
#include <stdio.h>

#include "objects/lock/lock.h"

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
    int rc = remo__lock_find_word(lock, index, thread, 0, &word);
    if (rc == 0)
        rc = remo__lock_find_word(lock, index, thread, remo__lock_queue_word(lock, ticket + 1), &queue_word);
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
