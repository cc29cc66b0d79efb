/* lock_queue.c - tickets and batons: how a node queues for a lock at its home, gives up, and passes the lock
 * on. */
#include "base/mutant.h"
#include "objects/lock.h"

#include <stdio.h>

#include "node/access.h"
#include "node/fence.h"

#define TRIES_MAX 4u /* compare-and-swaps of one remo_lock_acquire with a timeout of 0 */

/* ---- operations on a lock's words ---- */

static int find_word(struct remo_lock *lock, const struct remo__lock_seat *seat, uint32_t word,
                     uint64_t *ret_at) {
    uint64_t offset = seat->offset + 8 * (uint64_t)word;
    uint64_t at = remo__memory_at(lock->words, seat->home, offset);
    if (remo__unlikely(at == REMO__NO_OFFSET)) {
        int rc = remo__channel_reach(lock->channel, seat->home);
        if (rc != 0)
            return rc;
        at = remo__memory_at(lock->words, seat->home, offset);
        if (at == REMO__NO_OFFSET)
            return remo__fail(-ENOTCONN, "node %u has just left %s", seat->home,
                              remo_channel_name(lock->channel));
    }
    *ret_at = at;
    return 0;
}

int remo__lock_add(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                   uint64_t addend, uint64_t *ret_old, struct remo_ack *ack) {
    const struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t at = 0;
    int rc = find_word(lock, seat, word, &at);
    if (rc != 0)
        return rc;
    return remo__fetch_add(thread, remo__channel_counters(lock->channel, thread), seat->home, at, addend,
                           ret_old, ack);
}

int remo__lock_swap(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t word,
                    uint64_t expected, uint64_t desired, uint64_t *ret_old) {
    const struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t at = 0;
    int rc = find_word(lock, seat, word, &at);
    if (rc != 0)
        return rc;
    return remo__compare_swap(thread, remo__channel_counters(lock->channel, thread), seat->home, at, expected,
                              desired, ret_old, NULL);
}

static void ask_for_recount(struct remo_lock *lock, uint32_t index) {
    const uint8_t message[] = {REMO__LOCK_RECOUNT};
    (void)remo_channel_send(lock->channel, lock->seats[index].home, message, sizeof message);
}

/* An UNSETTLED node answers the home only when the operation has ended: else the home could end the ticket
 * on behalf of the node, and the late operation would end or grant another one. */
void remo__lock_end(struct remo_lock *lock, uint32_t index, int rc, uint16_t nonce, uint32_t ticket) {
    struct remo__lock_seat *seat = &lock->seats[index];
    enum remo__lock_state state = REMO__LOCK_FREE;
    if (rc != 0 && rc != -EHOSTDOWN && rc != -ENOTCONN && !REMO__MUTANT(lock_doubt)) {
        seat->doubt = true;
        if (remo__op_abandoned(lock->node, seat->home) && !REMO__MUTANT(lock_unsettled))
            state = REMO__LOCK_UNSETTLED;
        ask_for_recount(lock, index);
    }
    remo__lock_settle(lock, seat, remo__place(state, nonce, ticket));
}

void remo__lock_reopen(struct remo_lock *lock, uint32_t index) {
    struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t place = atomic_load(&seat->place);
    if (remo__place_state(place) != REMO__LOCK_UNSETTLED || remo__op_abandoned(lock->node, seat->home))
        return;
    uint64_t open = remo__place(REMO__LOCK_FREE, remo__place_nonce(place), (uint32_t)place);
    if (atomic_compare_exchange_strong(&seat->place, &place, open) && atomic_load(&seat->queued) != 0)
        remo__wake(lock->node);
}

/* ---- passing on ---- */

static int tell_by_message(struct remo_lock *lock, uint32_t index, uint32_t waiter, uint64_t grant) {
    uint8_t message[16];
    struct remo__writer writer = remo__writer_of(message, sizeof message);
    remo__put_u8(&writer, REMO__LOCK_GRANT);
    remo__put_u32(&writer, index);
    remo__put_u64(&writer, grant);
    int rc = remo_channel_send(lock->channel, waiter, message, (size_t)(writer.at - message));
    if (rc == -ENOTCONN)
        remo__lock_recovery_untold(lock);
    return rc;
}

/* Post a read behind a failed write of a grant word. While the read is in flight, the state stays
 * UNSETTLED. So the write is placed before the home sends the grant by message: placed later, it could
 * overwrite the grant word of a later ticket. */
static void flush_grant(struct remo_lock *lock, struct remo__thread *thread, uint32_t waiter, uint64_t at) {
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t word;
    if (lock->node->fabric->caps.completion_placed)
        return;
    (void)remo__read(thread, remo__channel_counters(lock->channel, thread), waiter, at, &word, sizeof word,
                     &ack);
    remo_ack_cancel(&ack);
}

/* The write must have been done before we return: this thread may not come back to the library to see it on
 * its way. */
static int tell_by_write(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t waiter,
                         uint64_t grant) {
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t at = remo__memory_at(lock->grants, waiter, 8 * (uint64_t)index);
    if (at == REMO__NO_OFFSET) {
        int rc = remo__channel_reach(lock->channel, waiter);
        at = remo__memory_at(lock->grants, waiter, 8 * (uint64_t)index);
        if (rc != 0 || at == REMO__NO_OFFSET)
            return rc;
    }
    int rc = remo__write(thread, remo__channel_counters(lock->channel, thread), waiter, at, &grant,
                         sizeof grant, REMO__WRITE_NOTIFY | REMO__WRITE_SETTLED, &ack);
    if (rc == 0 && remo__ack_pending(&ack))
        rc = remo_ack_wait(&ack, lock->node->op_timeout_ns);
    if (remo__ack_pending(&ack))
        remo_ack_cancel(&ack);
    if (rc != 0 && rc != -EHOSTDOWN && !REMO__MUTANT(lock_flush_grant))
        flush_grant(lock, thread, waiter, at);
    return rc == -ETIMEDOUT ? remo__peer_silent(lock->node, waiter, "grant a lock to") : rc;
}

/* Bring the grant word to where the waiter looks. A waiter that cannot be reached is dead: its tickets are
 * the home's business, once the home knows of its death too. */
int remo__lock_tell(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t waiter,
                    uint64_t grant, bool by_message) {
    if (waiter >= lock->node->size || !remo_nodeset_has(&lock->channel->participants, waiter))
        return remo__fail(
            -EPROTO,
            "lock %u of %s: its queue names node %u, which takes no part; the home's memory was "
            "damaged",
            index, remo_channel_name(lock->channel), waiter);
    int rc = by_message ? tell_by_message(lock, index, waiter, grant)
                        : tell_by_write(lock, index, thread, waiter, grant);
    return rc == -EHOSTDOWN || rc == -ENOTCONN ? 0 : rc;
}

/* Nobody knows whether the waiter has been told, or will be: the home asks (remo__lock_end), and tells it
 * then. */
static int untold(struct remo_lock *lock, uint32_t index, uint32_t ticket, int rc, bool by_message) {
    struct remo__lock_seat *seat = &lock->seats[index];
    if (rc < 0 && !by_message && !REMO__MUTANT(lock_untold)) {
        seat->untold = ticket;
        seat->is_untold = true;
    }
    return rc;
}

int remo__lock_grant(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                     uint32_t flags, bool by_message) {
    uint64_t grant = remo__baton_grant(by_message ? REMO__GRANTER_RECOVERY : lock->rank, flags), before;
    uint32_t baton = remo__lock_baton(lock, ticket);
    int rc = remo__lock_add(lock, index, thread, baton, grant, &before, NULL);
    if (rc != 0)
        return untold(lock, index, ticket, rc, by_message);
    if ((before & REMO__BATON_SKIP) && !REMO__MUTANT(lock_skip)) {
        if (!REMO__MUTANT(lock_skip_reset))
            rc = remo__lock_add(lock, index, thread, baton, -(before + grant), NULL, NULL);
        return rc != 0 ? rc : 1;
    }
    if (before == 0 || REMO__MUTANT(lock_tell))
        return 0; /* it has not arrived yet, and will see the grant when it does */
    rc = remo__lock_tell(lock, index, thread, remo__baton_waiter(before),
                         remo__grant_of(before + grant, ticket), by_message);
    return untold(lock, index, ticket, rc, by_message);
}

/* Each turn ends a ticket that somebody gave up, who drew another after that, if at all: so the number of
 * turns is bounded by the tickets in the queue and by how many timed acquires give up meanwhile. */
int remo__lock_pass_on(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                       uint64_t word, bool by_message) {
    while (remo__word_next(word) != ticket + 1) {
        ticket++;
        int rc = remo__lock_grant(lock, index, thread, ticket, remo__word_flags(word), by_message);
        if (rc != 1)
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
    return rc != 0 ? rc : remo__lock_pass_on(lock, index, thread, ticket, word + step, by_message);
}

/* ---- having it ---- */

/* The baton must be back at 0 before `serving` moves on; nothing else of ours waits for it. If setting it
 * back failed, and nobody knows whether it happened, look: while we hold the lock nobody else changes it. */
static int finish_reset(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                        bool unreset) {
    struct remo__lock_seat *seat = &lock->seats[index];
    uint32_t baton = remo__lock_baton(lock, ticket);
    int rc = seat->reset.status;
    if (remo__ack_pending(&seat->reset))
        rc = remo_ack_wait(&seat->reset, lock->node->op_timeout_ns);
    if (rc == -ETIMEDOUT) { /* it may still be applied, also after the next atomic */
        remo_ack_cancel(&seat->reset);
        return remo__peer_silent(lock->node, seat->home, "reset a queue word at");
    }
    seat->reset = (struct remo_ack)REMO_ACK_INIT;
    if ((rc == 0 && !unreset) || rc == -EHOSTDOWN || REMO__MUTANT(lock_reset_failed))
        return 0;
    if (remo__op_abandoned(lock->node, seat->home))
        return remo__peer_silent(lock->node, seat->home, "reset a queue word at");
    uint64_t is = 0;
    rc = remo__lock_swap(lock, index, thread, baton, 0, 0, &is);
    return rc == 0 && is != 0 ? remo__lock_swap(lock, index, thread, baton, is, 0, &is) : rc;
}

int remo__lock_still_held(const struct remo_lock *lock, uint32_t index) {
    return remo__fail_more(-EAGAIN,
                           "lock %u of %s is still held, since writes may be in flight; release it again",
                           index, remo_channel_name(lock->channel));
}

int remo__lock_release_failed(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                              uint8_t marks, int rc) {
    struct remo__lock_seat *seat = &lock->seats[index];
    char sentence[REMO__SENTENCE_MAX];
    int loss;
    if (rc == -EHOSTDOWN || rc == -ENOTCONN || REMO__MUTANT(lock_release_failed))
        return rc;
    snprintf(sentence, sizeof sentence, "%s", remo_last_error());
    if (remo__fence_settle_peer(thread, seat->home, lock->node->op_timeout_ns, &loss) == 0)
        return remo__fail(rc, "%s", sentence);
    uint64_t place = atomic_load_explicit(&seat->place, memory_order_relaxed);
    seat->marks = marks | REMO__LOCK_UNSURE;
    atomic_store_explicit(&seat->place,
                          remo__place(REMO__LOCK_HELD, remo__place_nonce(place), (uint32_t)place),
                          memory_order_release);
    return remo__lock_still_held(lock, index);
}

/* 1: a release that failed was applied after all. It is over by now, so the home word shows it. */
static int is_released(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket) {
    uint64_t word = 0;
    int rc = remo__lock_add(lock, index, thread, 0, 0, &word, NULL);
    return rc != 0 ? rc : (uint16_t)word != (uint16_t)ticket;
}

/* Set the baton back to 0, then end the ticket; *ret_word is what the home word is then. */
static int end_turn(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint32_t ticket,
                    uint8_t *marks, uint64_t *ret_word) {
    struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t step = remo__word_step(ticket), word;
    if ((*marks & REMO__LOCK_TOLD_DEAD) && !REMO__MUTANT(lock_repaired))
        step -= (uint64_t)REMO__LOCK_OWNER_DEAD << REMO__LOCK_FLAG_SHIFT;
    if ((*marks & REMO__LOCK_TOLD_DEAD) && !(*marks & REMO__LOCK_REPAIRED) && !REMO__MUTANT(lock_lost))
        step += (uint64_t)REMO__LOCK_LOST << REMO__LOCK_FLAG_SHIFT;
    bool unreset = (*marks & REMO__LOCK_UNRESET) != 0;
    bool reset = !remo__ack_pending(&seat->reset) && seat->reset.status == 0 && !unreset;
    int rc = 0;
    if (!reset && !REMO__MUTANT(lock_reset_wait))
        rc = finish_reset(lock, index, thread, ticket, unreset);
    if (rc != 0) {
        *marks |= REMO__LOCK_UNRESET;
        return rc;
    }
    *marks &= (uint8_t)~REMO__LOCK_UNRESET;
    rc = remo__lock_add(lock, index, thread, 0, step, &word, NULL);
    *ret_word = rc == 0 ? word + step : 0;
    return rc;
}

int remo__lock_leave(struct remo_lock *lock, uint32_t index, struct remo__thread *thread,
                     enum remo_fence_scope fence) {
    struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t place = atomic_load_explicit(&seat->place, memory_order_relaxed), word = 0;
    uint32_t ticket = (uint32_t)place;
    uint8_t marks = seat->marks;
    int loss;
    /* Without a fence no other step waits until an earlier release that failed has ended. */
    if ((marks & REMO__LOCK_UNSURE) && fence == REMO_FENCE_NONE
        && remo__fence_settle_peer(thread, seat->home, lock->node->op_timeout_ns, &loss) != 0)
        return remo__lock_still_held(lock, index);
    seat->marks = 0;
    atomic_store_explicit(&seat->place, remo__place_busy(place), memory_order_release);
    int was_released = marks & REMO__LOCK_UNSURE ? is_released(lock, index, thread, ticket) : 0;
    int rc = was_released == 0 ? end_turn(lock, index, thread, ticket, &marks, &word) : was_released;
    if (rc < 0 && fence != REMO_FENCE_NONE)
        rc = remo__lock_release_failed(lock, index, thread, marks, rc);
    if (rc == -EAGAIN)
        return rc;
    if (rc == 0)
        rc = remo__lock_pass_on(lock, index, thread, ticket, word, false);
    /* Was it released before? Then the home finds who is to be granted the lock. */
    remo__lock_end(lock, index, rc > 0 ? -EIO : rc, remo__place_nonce(place), ticket);
    return rc > 0 ? 0 : rc;
}

static int fail_lost(const struct remo_lock *lock, uint32_t index) {
    return remo__fail(
        -ENOTRECOVERABLE,
        "lock %u of %s: its owner died and the next one released it without remo_lock_consistent; "
        "what it protects is lost: open it anew under another name",
        index, remo_channel_name(lock->channel));
}

/* The lock is ours; the seat is BUSY or WAITING. */
static int have(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint16_t nonce,
                uint32_t ticket, uint32_t flags) {
    struct remo__lock_seat *seat = &lock->seats[index];
    atomic_store_explicit(&seat->owner, thread->index, memory_order_relaxed);
    seat->handovers = 0;
    seat->marks = flags == REMO__LOCK_OWNER_DEAD ? REMO__LOCK_TOLD_DEAD : 0;
    if (REMO__MUTANT(lock_owner_dead))
        flags = 0;
    atomic_store_explicit(&seat->place, remo__place(REMO__LOCK_HELD, nonce, ticket), memory_order_release);
    if (remo__likely(flags == 0))
        return 0;
    if (flags & REMO__LOCK_LOST) {
        int rc = remo__lock_leave(lock, index, thread, REMO_FENCE_NONE);
        return rc != 0 ? rc : fail_lost(lock, index);
    }
    return remo__fail(
        -EOWNERDEAD,
        "lock %u of %s is yours, but its last owner died holding it: repair what it protects, then call "
        "remo_lock_consistent",
        index, remo_channel_name(lock->channel));
}

/* Ours by its baton, whose content we know now. Setting it back is under way while we hold the lock. */
static int have_by_baton(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint16_t nonce,
                         uint32_t ticket, uint64_t baton) {
    struct remo__lock_seat *seat = &lock->seats[index];
    int rc = have(lock, index, thread, nonce, ticket, remo__baton_flags(baton) & REMO__LOCK_OWNER_DEAD);
    seat->reset = (struct remo_ack)REMO_ACK_INIT;
    uint32_t which = remo__lock_baton(lock, ticket);
    int reset = 0;
    if (!REMO__MUTANT(lock_reset))
        reset = remo__lock_add(lock, index, thread, which, -baton, NULL, &seat->reset);
    uint8_t unreset = reset != 0 ? REMO__LOCK_UNRESET : 0; /* the release tries again */
    seat->marks |= unreset;
    if (!(remo__baton_flags(baton) & REMO__LOCK_LOST))
        return rc;
    seat->marks = unreset;
    rc = remo__lock_leave(lock, index, thread, REMO_FENCE_NONE);
    return rc != 0 ? rc : fail_lost(lock, index);
}

/* ---- waiting ---- */

struct grant_wait {
    struct remo_lock *lock;
    struct remo__lock_seat *seat;
    const void *word; /* our grant word */
    uint64_t which;   /* what says that it is for us */
    uint64_t grant;   /* result */
};

static int granted(void *ctx) {
    struct grant_wait *wait = ctx;
    uint64_t put = remo__load(wait->word);
    uint64_t told = atomic_load_explicit(&wait->seat->told, memory_order_acquire);
    if ((put & REMO__GRANT_WHICH) == wait->which || (put != 0 && REMO__MUTANT(lock_grant_which)))
        wait->grant = put;
    else if ((told & REMO__GRANT_WHICH) == wait->which)
        wait->grant = told;
    else
        return remo__channel_check_peer(wait->lock->channel, wait->seat->home);
    return 1;
}

/* Swap SKIP into our baton: 0, -EALREADY (granted before), or an error. */
static int give_up(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t arrived,
                   uint32_t ticket) {
    uint64_t old;
    int rc = remo__lock_swap(lock, index, thread, remo__lock_baton(lock, ticket), arrived,
                             arrived | REMO__BATON_SKIP, &old);
    return rc == 0 && old != arrived && !REMO__MUTANT(lock_give_up_granted) ? -EALREADY : rc;
}

/* We are on the baton; the seat is ours and becomes WAITING. */
static int await(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint16_t nonce,
                 uint32_t ticket, uint64_t deadline_ns) {
    struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t arrived = remo__baton_arrive(lock->rank, nonce);
    struct grant_wait wait = {.lock = lock,
                              .seat = seat,
                              .word = lock->grants->own + 8 * (uint64_t)index,
                              .which = REMO__GRANT_VALID | (uint64_t)nonce << 32 | ticket};
    atomic_store_explicit(&seat->place, remo__place(REMO__LOCK_WAITING, nonce, ticket), memory_order_release);
    int rc = remo__wait(lock->node, granted, &wait, deadline_ns);
    if (rc == -ETIMEDOUT) {
        atomic_store_explicit(&seat->place, remo__place(REMO__LOCK_BUSY, nonce, ticket),
                              memory_order_release);
        rc = give_up(lock, index, thread, arrived, ticket);
        if (rc == 0) {
            remo__lock_settle(lock, seat, remo__place(REMO__LOCK_SKIPPED, nonce, ticket));
            return remo__fail(-ETIMEDOUT, "lock %u of %s was not free within the timeout", index,
                              remo_channel_name(lock->channel));
        }
        /* Granted a moment ago. The grant word is on its way, and must have come before we may wait there
         * again. */
        if (rc == -EALREADY) {
            atomic_store_explicit(&seat->place, remo__place(REMO__LOCK_WAITING, nonce, ticket),
                                  memory_order_release);
            rc = remo__wait(lock->node, granted, &wait, REMO_FOREVER);
        }
    }
    if (rc != 0) {
        remo__lock_end(lock, index, rc, nonce, ticket);
        return rc;
    }
    uint32_t granter = (uint32_t)(wait.grant >> REMO__GRANT_GRANTER_SHIFT & 0x3ff) - 1;
    uint32_t flags = (uint32_t)(wait.grant >> REMO__GRANT_FLAG_SHIFT) & REMO__LOCK_FLAGS;
    return have_by_baton(lock, index, thread, nonce, ticket, arrived | remo__baton_grant(granter, flags));
}

/* Swap SKIP out of the baton of the ticket that was given up: 0, -EALREADY (it is or has been passed over),
 * or an error. */
static int take_up(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t seen) {
    struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t arrived = remo__baton_arrive(lock->rank, remo__place_nonce(seen)), old;
    uint32_t ticket = (uint32_t)seen;
    int rc = remo__lock_swap(lock, index, thread, remo__lock_baton(lock, ticket), arrived | REMO__BATON_SKIP,
                             arrived, &old);
    if (rc != 0 || old == (arrived | REMO__BATON_SKIP) || REMO__MUTANT(lock_take_up_passed))
        return rc;
    atomic_store_explicit(&seat->passed, REMO__LOCK_DRAW | ticket, memory_order_release);
    return -EALREADY;
}

int remo__lock_drawn(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t seen,
                     uint64_t drawn, uint64_t deadline_ns) {
    struct remo__lock_seat *seat = &lock->seats[index];
    uint32_t ticket = remo__word_next(drawn);
    uint16_t nonce = (uint16_t)(remo__place_nonce(seen) + 1);
    if (remo__word_free(drawn))
        return have(lock, index, thread, remo__place_nonce(seen), ticket, remo__word_flags(drawn));
    if (seat->doubt)
        ask_for_recount(lock, index);
    seat->doubt = false;
    uint64_t arrive = remo__baton_arrive(lock->rank, nonce), before;
    int rc = remo__lock_add(lock, index, thread, remo__lock_baton(lock, ticket), arrive, &before, NULL);
    if (rc != 0) {
        remo__lock_end(lock, index, rc, nonce, ticket);
        return rc;
    }
    if (remo__baton_granted(before) && !REMO__MUTANT(lock_arrive_granted))
        return have_by_baton(lock, index, thread, nonce, ticket, before + arrive);
    return await(lock, index, thread, nonce, ticket, deadline_ns);
}

int remo__lock_enter(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t seen,
                     uint64_t deadline_ns) {
    uint64_t drawn;
    int rc = 0;
    if (remo__place_state(seen) == REMO__LOCK_SKIPPED) {
        rc = take_up(lock, index, thread, seen);
        if (rc == 0)
            return await(lock, index, thread, remo__place_nonce(seen), (uint32_t)seen, deadline_ns);
    }
    if (rc == 0 || rc == -EALREADY)
        rc = remo__lock_add(lock, index, thread, 0, REMO__LOCK_DRAW, &drawn, NULL);
    if (rc == 0)
        return remo__lock_drawn(lock, index, thread, seen, drawn, deadline_ns);
    remo__lock_end(lock, index, rc, remo__place_nonce(seen), (uint32_t)seen);
    return rc;
}

/* ---- trying once ---- */

/* What the home word is if we were the last to have the lock. */
static uint64_t guess(uint64_t seen) {
    uint32_t next = (uint32_t)seen + 1;
    return seen == 0 ? 0 : (uint64_t)next << 32 | (uint16_t)next;
}

/* The seat is BUSY. When a swap fails although the word it found is free, somebody had the lock in between:
 * so "held" is a true answer after the last of TRIES_MAX. */
static int try_word(struct remo_lock *lock, uint32_t index, struct remo__thread *thread, uint64_t seen) {
    uint64_t expected = guess(seen), old;
    for (uint32_t i = 0; i < TRIES_MAX; i++) {
        int rc = remo__lock_swap(lock, index, thread, 0, expected, expected + REMO__LOCK_DRAW, &old);
        if (rc != 0) {
            remo__lock_end(lock, index, rc, remo__place_nonce(seen), (uint32_t)seen);
            return rc;
        }
        if (old == expected)
            return have(lock, index, thread, remo__place_nonce(seen), remo__word_next(old),
                        remo__word_flags(old));
        if (!remo__word_free(old) && !REMO__MUTANT(lock_try_free))
            break;
        expected = old;
    }
    remo__lock_settle(lock, &lock->seats[index], seen);
    int rc = remo__channel_check_peer(lock->channel, lock->seats[index].home);
    if (rc != 0)
        return rc;
    return remo__fail_static(-ETIMEDOUT,
                             "the lock is held by another node, and a timeout of 0 allows no waiting");
}

int remo__lock_try(struct remo_lock *lock, uint32_t index, struct remo__thread *thread) {
    struct remo__lock_seat *seat = &lock->seats[index];
    remo__lock_reopen(lock, index);
    uint64_t seen = atomic_load_explicit(&seat->place, memory_order_relaxed);
    if (!remo__place_open(seen) || atomic_load_explicit(&seat->queued, memory_order_relaxed) != 0
        || !atomic_compare_exchange_strong(&seat->place, &seen, remo__place_busy(seen)))
        return remo__lock_is_held_by(seat, thread)
                   ? remo__lock_fail_deadlock()
                   : remo__fail_static(
                       -ETIMEDOUT,
                       "the lock is held by another thread, and a timeout of 0 allows no waiting");
    return try_word(lock, index, thread, seen);
}
