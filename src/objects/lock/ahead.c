/* ahead.c - hints about the tickets after that of the holder, if memory is not mapped. A release
 * compares the word that it expects with the queue word at the home.
 * docs/internals/lock.md, "Known waiters", describes the protocol. */
#include "objects/lock/lock.h"

#include <stdlib.h>

/* Of two nodes, the holder's successor arrives after the holder has read the queue words. */
#define PARTICIPANTS_MIN 3u

int remo__lock_ahead_open(struct remo_lock *lock, uint32_t participants) {
    if (lock->node->mapped || participants < PARTICIPANTS_MIN)
        return 0;
    lock->aheads = aligned_alloc(REMO__CACHE_LINE, (size_t)lock->count * sizeof *lock->aheads);
    if (!lock->aheads)
        return remo__fail(-ENOMEM, "no memory for the state of %u locks", lock->count);
    for (uint32_t i = 0; i < lock->count; i++)
        lock->aheads[i] = (struct remo__lock_ahead){.read = REMO_ACK_INIT};
    return 0;
}

void remo__lock_ahead_close(struct remo_lock *lock) {
    free(lock->aheads);
}

/* If an earlier read is still in flight, its tickets are in the past, and its words are not used. */
void remo__lock_look_ahead(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                           uint32_t ticket, bool has_slept) {
    struct remo__lock_local *local = &lock->locals[index];
    struct remo__lock_ahead *ahead = &lock->aheads[index];
    uint64_t written =
        remo__load(lock->grants->own + REMO__GRANT_BYTES * (uint64_t)index + REMO__GRANT_SUCCESSOR);
    ahead->successor = (uint32_t)(written >> 32) == ticket + 1 ? (uint32_t)written : 0;
    ahead->has_slept = has_slept;
    local->marks |= REMO__LOCK_AHEAD;
    if (remo__ack_pending(&ahead->read))
        return;
    struct remo__ref ref;
    uint32_t first = ticket + (ahead->successor != 0 ? 2 : 1);
    uint32_t which = remo__lock_queue_word(lock, first);
    ahead->first = first;
    ahead->count = ahead->successor != 0 || which == lock->places ? 1 : 2;
    ahead->read = (struct remo_ack)REMO_ACK_INIT;
    if (!remo__memory_find_now(lock->words, thread, local->home, local->offset + 8 * (uint64_t)which, &ref)
        || remo__read(ref, ahead->words, 8 * (size_t)ahead->count, &ahead->read) != 0)
        ahead->count = 0;
}

uint64_t remo__lock_arrived_ahead(const struct remo_lock *lock, uint32_t index, uint32_t ticket) {
    if (!lock->aheads)
        return 0;
    const struct remo__lock_ahead *ahead = &lock->aheads[index];
    bool is_read = !remo__ack_pending(&ahead->read) && ahead->read.status == 0;
    return is_read && ticket - ahead->first < ahead->count
               ? remo__queue_word_arrived(ahead->words[ticket - ahead->first])
               : 0;
}

/* The write needs no completion: without it the waiter wakes up later. */
void remo__lock_wake_ahead(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                           uint32_t ticket) {
    uint64_t arrived = remo__lock_arrived_ahead(lock, index, ticket);
    uint32_t waiter = remo__queue_word_waiter(arrived);
    struct remo_ack ack = REMO_ACK_INIT;
    struct remo__ref ref;
    if (arrived == 0 || !lock->aheads[index].has_slept || waiter >= lock->node->size
        || !remo_nodeset_has(&lock->channel->participants, waiter)
        || !remo__memory_find_now(lock->grants, thread, waiter,
                                  REMO__GRANT_BYTES * (uint64_t)index + REMO__GRANT_NEAR, &ref))
        return;
    uint64_t near = REMO__GRANT_VALID | (arrived >> 16) << 32 | ticket;
    (void)remo__write(ref, &near, sizeof near, REMO__WRITE_NOTIFY | REMO__WRITE_EXEMPT, &ack);
    remo_ack_cancel(&ack);
}
