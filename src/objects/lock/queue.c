/* queue.c - the wait queue of a lock at its home: draws a ticket, waits, takes the lock, times out, resumes.
 * Invariant: a queue word is 0 when `serving` moves past its ticket, so a later ticket can use the word.
 * docs/internals/lock.md describes the words, the local states and the proofs. */
#include "objects/lock/lock.h"

#define CHECKS_WITHOUT_CLOCK 100u
/* With the learned pause after each one. */
#ifdef REMO_SIM_SMALL
#define PAUSED_LOOKS 2u
#else
#define PAUSED_LOOKS 8u
#endif
#define LATE_GRANT_PART 16u /* of op_timeout_ns: by then a grant word has usually arrived */

/* ---- taking ---- */

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
        remo__lock_send_type(lock, wait->local->home, REMO__LOCK_RECOUNT);
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
        remo__lock_send_type(lock, local->home, REMO__LOCK_RECOUNT);
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
