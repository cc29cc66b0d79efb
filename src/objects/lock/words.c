/* words.c - atomics on the words of a lock at its home, the state after one whose outcome is unknown, and
 * messages to the home.
 * docs/internals/lock.md describes the words, the local states and the proofs. */
#include <stdio.h>

#include "objects/lock/lock.h"

int remo__lock_add(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                   uint64_t addend, uint64_t *ret_old, struct remo_ack *ack) {
    struct remo__ref ref;
    int rc = remo__lock_find_word(lock, index, thread, word, &ref);
    return rc != 0 ? rc : remo__fetch_add(ref, addend, ret_old, ack);
}

int remo__lock_swap(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                    uint64_t expected, uint64_t desired, uint64_t *ret_old) {
    struct remo__ref ref;
    int rc = remo__lock_find_word(lock, index, thread, word, &ref);
    return rc != 0 ? rc : remo__compare_swap(ref, expected, desired, ret_old, NULL);
}

/* A later REMIND of a node that waits makes up for a message that could not be sent. */
void remo__lock_send_type(struct remo_lock *lock, uint32_t node, enum remo__lock_message type) {
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
        remo__lock_send_type(lock, local->home, REMO__LOCK_REMIND);
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
        remo__lock_send_type(lock, local->home, REMO__LOCK_RECOUNT);
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
