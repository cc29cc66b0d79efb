/* try.c - acquires a lock with a timeout of 0: by a compare-and-swap of the home word, which draws a ticket
 * only if the lock is free. docs/internals/lock.md describes the words and the local states. */
#include "objects/lock/lock.h"

#define TRIES_MAX 4u /* compare-and-swaps of one remo_lock_acquire */

/* Return the home word of a free lock whose last holder was this node. */
static uint64_t expected_word(uint64_t previous) {
    uint32_t next = (uint32_t)previous + 1;
    return previous == 0 ? 0 : (uint64_t)next << 32 | (uint16_t)next;
}

/* The state is BUSY. If a swap fails although the word that it found is free, another node has held the lock
 * since the previous swap. So the sentence is true even after the last of TRIES_MAX swaps. */
static int try_word(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t previous) {
    uint64_t expected = expected_word(previous), old;
    for (uint32_t i = 0; i < TRIES_MAX; i++) {
        int rc = remo__lock_swap(lock, index, thread, 0, expected, expected + REMO__LOCK_DRAW, &old);
        if (rc != 0) {
            remo__lock_end(lock, index, rc, remo__state_nonce(previous), (uint32_t)previous);
            return rc;
        }
        if (old == expected)
            return remo__lock_take(lock, index, thread, remo__state_nonce(previous), remo__word_next(old),
                                   remo__word_flags(old));
        if (!remo__word_is_free(old))
            break;
        expected = old;
    }
    remo__lock_set_state(lock, &lock->locals[index], previous);
    int rc = remo__channel_check_peer(lock->channel, lock->locals[index].home);
    if (rc != 0)
        return rc;
    return remo__fail_static(-ETIMEDOUT,
                             "the lock is held by another node, and a timeout of 0 allows no waiting");
}

int remo__lock_try(struct remo_lock *lock, uint32_t index, struct remo__thread *thread) {
    struct remo__lock_local *local = &lock->locals[index];
    uint64_t previous;
    remo__lock_reopen(lock, index);
    if (remo__lock_threads_wait(local) || !remo__lock_make_busy(lock, local, &previous))
        return remo__lock_is_held_by(local, thread)
                   ? remo__lock_fail_deadlock()
                   : remo__fail_static(
                       -ETIMEDOUT,
                       "the lock is held by another thread, and a timeout of 0 allows no waiting");
    return try_word(lock, index, thread, previous);
}
