/* lock_recovery.c - the home's part when a participant dies or leaves: find the tickets that are nobody's any
 * more, and see that they are passed over.
 *
 * A round, for all locks of this home that somebody holds; in steps that never wait, on the control thread:
 *
 * 1. Read the word: the tickets [first, first + span) are out. Read which of their batons say SKIP.
 *
 * 2. Ask every participant that lives which tickets it has. It answers when it has cut the dead off as well,
 * and for each lock at an instant when none of its threads is in the middle of anything (lock_report.c).
 *
 * 3. Read the word again. A ticket of step 1 that is still out and that nobody claims belongs to a dead node.
 * For a live one that drew it has it still, or has given it up, and claims it; or it has released it, so that
 * it is not out. The dead one can do nothing with it any more: it was cut off before step 1.
 *
 * 4. A dead one's ticket behind the first gets SKIP, so that whoever releases the ticket before it passes
 * over it. If the grant came before SKIP, the lock is the dead one's, who never knew: we end the ticket for
 * it. If the dead one itself had said SKIP (step 1), it is passed over without us. The first ticket, if it is
 * still being served: nobody alive is about to grant it, for whoever released the ticket before it was in the
 * middle of that release until it answered. So if it is a dead one's, or is a live one's and its granter died
 * half-way, we act for the dead. So we do when the granter lives, and says that an operation of the grant
 * failed.
 *
 * When somebody else dies meanwhile, the round begins again: what was done so far stays true. */
#include "base/mutant.h"
#include "objects/lock.h"

#include <stdlib.h>

#define BATCH_LOCKS 256u /* held locks in one round of questions */
#define READ_BYTES 8192u /* of home words in one read */
#define READS_A_STEP 16u
#define LOCKS_A_STEP 32u
#define SWAPS_MAX 4u /* of one baton: it changes at most twice (give up, grant) under our hands */

enum { SKIPPED_BEFORE = 8 }; /* beside enum claims */

enum phase { IDLE, SCANNING, ASKING, RESOLVING };

struct busy_lock {
    uint32_t at;    /* the lock's number at this home */
    uint32_t first; /* ticket being served in step 1 */
    uint32_t span;
};

struct remo__lock_recovery {
    enum phase phase;
    uint32_t round;
    uint32_t locks; /* that live here */
    uint32_t slot;  /* of this home in lock->homes */
    uint32_t scanned, resolved, count;
    struct remo_nodeset awaited; /* whose answer is missing */
    struct remo_nodeset unasked; /* of these: who could not be reached yet */
    bool untold;                 /* somebody who has the lock could not be told: again when it connects */
    bool drains; /* after a RECOUNT: ask all once before step 1, so that late operations have ended */
    struct busy_lock batch[BATCH_LOCKS];
    uint8_t *claims; /* [BATCH_LOCKS][places] */
    uint64_t words[READ_BYTES / 8];
};

int remo__lock_recovery_open(struct remo_lock *lock) {
    struct remo__lock_recovery *recovery = calloc(1, sizeof *recovery);
    if (recovery)
        recovery->claims = malloc((size_t)BATCH_LOCKS * lock->places);
    if (!recovery || !recovery->claims) {
        free(recovery);
        return remo__fail(-ENOMEM, "no memory for the recovery of locks");
    }
    while (lock->homes[recovery->slot] != lock->rank)
        recovery->slot++;
    recovery->locks = (lock->count - recovery->slot + lock->home_count - 1) / lock->home_count;
    lock->recovery = recovery;
    return 0;
}

void remo__lock_recovery_close(struct remo_lock *lock) {
    if (lock->recovery)
        free(lock->recovery->claims);
    free(lock->recovery);
}

bool remo__lock_knows_us(const struct remo_lock *lock, uint32_t node) {
    return node == lock->rank
           || lock->channel->peers[node].granted_id != 0; /* changes on the control thread only */
}

bool remo__lock_gone(const struct remo_lock *lock, uint32_t node) {
    enum remo_peer_state life = remo_node_peer(lock->node, node);
    enum remo_channel_peer state = remo_channel_peer(lock->channel, node);
    /* The control thread cuts a dead node off before it gets to us. */
    return life == REMO_PEER_DEAD || life == REMO_PEER_LEFT || state == REMO_CHANNEL_LEFT
           || state == REMO_CHANNEL_DOWN;
}

static uint32_t index_of(const struct remo_lock *lock, uint32_t at) {
    return at * lock->home_count + lock->recovery->slot;
}

static void go_on(struct remo_lock *lock) {
    uint8_t message[8];
    struct remo__writer writer = remo__writer_of(message, sizeof message);
    remo__put_u8(&writer, REMO__LOCK_RECOVER_ON);
    remo__put_u32(&writer, lock->recovery->round);
    if (remo_channel_send(lock->channel, lock->rank, message, (size_t)(writer.at - message)) != 0)
        remo__log(&lock->node->log, REMO_LOG_ERROR, "recovery of %s: %s", remo_channel_name(lock->channel),
                  remo_last_error());
}

void remo__lock_recovery_start(struct remo_lock *lock) {
    struct remo__lock_recovery *recovery = lock->recovery;
    if (!recovery)
        return;
    recovery->phase = SCANNING;
    recovery->round++;
    recovery->scanned = recovery->count = 0;
    recovery->untold = false;
    go_on(lock);
}

/* ---- step 1 ---- */

static void note_lock(struct remo_lock *lock, uint32_t at, const uint64_t *words) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint64_t word = words[0];
    uint32_t span = (uint16_t)(remo__word_next(word) - (uint32_t)(word & 0xffff));
    if (span == 0)
        return;
    if (span > lock->places) {
        remo__log(&lock->node->log, REMO_LOG_ERROR, "lock %u of %s: its word was damaged", index_of(lock, at),
                  remo_channel_name(lock->channel));
        return;
    }
    struct busy_lock *busy = &recovery->batch[recovery->count];
    uint8_t *claims = &recovery->claims[(size_t)recovery->count++ * lock->places];
    *busy = (struct busy_lock){.at = at, .first = remo__word_next(word) - span, .span = span};
    for (uint32_t i = 0; i < span; i++)
        claims[i] = words[remo__lock_baton(lock, busy->first + i)] & REMO__BATON_SKIP ? SKIPPED_BEFORE : 0;
}

/* Read the next few locks through the network, like everybody else. */
static int scan_some(struct remo_lock *lock, struct remo__thread *thread) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint32_t most = READ_BYTES / lock->stride, left = recovery->locks - recovery->scanned;
    uint32_t count = (uint32_t)remo__min(remo__min(most, left), BATCH_LOCKS - recovery->count);
    uint64_t at = remo__memory_at(lock->words, lock->rank, (uint64_t)recovery->scanned * lock->stride);
    int rc = remo__read(thread, remo__channel_counters(lock->channel, thread), lock->rank, at,
                        recovery->words, (size_t)count * lock->stride, NULL);
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        note_lock(lock, recovery->scanned + i, &recovery->words[(size_t)i * lock->stride / 8]);
    recovery->scanned += count;
    return rc;
}

/* ---- step 2 ---- */

static void ask_one(struct remo_lock *lock, uint32_t node) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint8_t message[64];
    struct remo__writer writer = remo__writer_of(message, sizeof message);
    struct remo_nodeset dead = {0};
    for (uint32_t peer = 0; peer < lock->node->size; peer++)
        if (remo__lock_gone(lock, peer))
            remo_nodeset_add(&dead, peer);
    remo__put_u8(&writer, REMO__LOCK_QUERY);
    remo__put_u32(&writer, recovery->round);
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(dead.word); i++)
        remo__put_u64(&writer, dead.word[i]);
    if (remo_channel_send(lock->channel, node, message, (size_t)(writer.at - message)) != 0)
        remo_nodeset_add(&recovery->unasked, node); /* it is about to connect, or to be known as dead */
}

static void ask_all(struct remo_lock *lock) {
    struct remo__lock_recovery *recovery = lock->recovery;
    recovery->phase = ASKING;
    recovery->awaited = recovery->unasked = (struct remo_nodeset){0};
    for (uint32_t node = 0; node < lock->node->size;
         node++) /* who comes later has none of the tickets of step 1 */
        if (remo__lock_knows_us(lock, node) && !remo__lock_gone(lock, node))
            remo_nodeset_add(&recovery->awaited, node);
    struct remo_nodeset asked = recovery->awaited;
    for (uint32_t node = remo__nodeset_next(&asked, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(&asked, node + 1))
        ask_one(lock, node);
}

void remo__lock_recovery_connected(struct remo_lock *lock, uint32_t node) {
    struct remo__lock_recovery *recovery = lock->recovery;
    if (!recovery)
        return;
    if (recovery->untold) {
        remo__lock_recovery_start(lock);
    } else if (recovery->phase == ASKING && remo_nodeset_has(&recovery->unasked, node)) {
        remo_nodeset_remove(&recovery->unasked, node);
        ask_one(lock, node);
    }
}

void remo__lock_recovery_untold(struct remo_lock *lock) {
    lock->recovery->untold = true;
}

static struct busy_lock *find_busy(struct remo__lock_recovery *recovery, uint32_t at) {
    uint32_t low = 0, high = recovery->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (recovery->batch[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < recovery->count && recovery->batch[low].at == at ? &recovery->batch[low] : NULL;
}

static void note_claim(struct remo_lock *lock, uint32_t index, uint32_t ticket, uint8_t kind) {
    struct remo__lock_recovery *recovery = lock->recovery;
    if (index >= lock->count || lock->seats[index].home != lock->rank)
        return;
    const struct busy_lock *busy = find_busy(recovery, index / lock->home_count);
    if (!busy || ticket - busy->first >= busy->span)
        return; /* of a lock or a ticket that is not asked about */
    uint8_t known = REMO__CLAIM_HOLD | REMO__CLAIM_WAIT | REMO__CLAIM_GIVEN_UP | REMO__CLAIM_UNTOLD;
    recovery->claims[(size_t)(busy - recovery->batch) * lock->places + (ticket - busy->first)] |=
        kind & known;
}

static void on_answer(struct remo_lock *lock, uint32_t from, struct remo__reader *reader) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint32_t round = remo__get_u32(reader);
    uint8_t last = remo__get_u8(reader);
    uint16_t count = remo__get_u16(reader);
    if (reader->bad || recovery->phase != ASKING || (round != recovery->round && !REMO__MUTANT(lock_round))
        || !remo_nodeset_has(&recovery->awaited, from))
        return; /* of a round that was begun again */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = remo__get_u32(reader), ticket = remo__get_u32(reader);
        uint8_t kind = remo__get_u8(reader);
        if (!reader->bad)
            note_claim(lock, index, ticket, kind);
    }
    if (!last)
        return;
    remo_nodeset_remove(&recovery->awaited, from);
    if (!remo_nodeset_empty(&recovery->awaited))
        return;
    if (recovery->drains) {
        recovery->drains = false;
        remo__lock_recovery_start(lock);
        return;
    }
    recovery->phase = RESOLVING;
    recovery->resolved = 0;
    go_on(lock);
}

/* ---- steps 3 and 4 ---- */

struct resolve {
    struct remo_lock *lock;
    struct remo__thread *thread;
    uint32_t index;
    uint64_t word; /* in step 3 */
};

static int read_word(const struct resolve *resolve, uint32_t which, uint64_t *ret_word) {
    struct remo_lock *lock = resolve->lock;
    uint64_t at =
        remo__memory_at(lock->words, lock->rank, lock->seats[resolve->index].offset + 8 * (uint64_t)which);
    return remo__read(resolve->thread, remo__channel_counters(lock->channel, resolve->thread), lock->rank, at,
                      ret_word, 8, NULL);
}

/* End a ticket that a dead node had: as its owner if it may have been in the lock, else as somebody who gave
 * up. */
static int end_for_dead(const struct resolve *resolve, uint32_t ticket, uint64_t baton, bool entered) {
    struct remo_lock *lock = resolve->lock;
    uint64_t change = 0;
    if (entered && remo__word_flags(resolve->word) == 0 && !REMO__MUTANT(lock_mark_dead))
        change = (uint64_t)REMO__LOCK_OWNER_DEAD << REMO__LOCK_FLAG_SHIFT;
    int rc = 0;
    if (baton != 0 && !REMO__MUTANT(lock_dead_reset))
        rc = remo__lock_add(lock, resolve->index, resolve->thread, remo__lock_baton(lock, ticket), -baton,
                            NULL, NULL);
    if (rc == 0)
        rc = remo__lock_end_ticket(lock, resolve->index, resolve->thread, ticket, change, true);
    if (rc == 0)
        remo__log(&lock->node->log, REMO_LOG_INFO, "lock %u of %s: passed on for a dead node%s",
                  resolve->index, remo_channel_name(lock->channel), entered ? " that held it" : "");
    return rc;
}

/* A dead one's ticket behind the one being served. */
static int pass_over(const struct resolve *resolve, uint32_t ticket) {
    struct remo_lock *lock = resolve->lock;
    uint32_t which = remo__lock_baton(lock, ticket);
    uint64_t baton, old;
    int rc = read_word(resolve, which, &baton);
    for (uint32_t i = 0; rc == 0 && i < SWAPS_MAX; i++) {
        if (baton & REMO__BATON_SKIP)
            return 0;
        if (remo__baton_granted(baton)
            && !REMO__MUTANT(lock_over_granted)) /* after it was cut off: it never had the lock */
            return end_for_dead(resolve, ticket, baton, false);
        rc = remo__lock_swap(lock, resolve->index, resolve->thread, which, baton, baton | REMO__BATON_SKIP,
                             &old);
        if (rc == 0 && old == baton)
            return 0;
        baton = old;
    }
    return rc;
}

/* The ticket being served since before step 1. */
static int look_at_first(const struct resolve *resolve, uint32_t ticket, uint8_t all_claims) {
    struct remo_lock *lock = resolve->lock;
    uint8_t claims = all_claims & (uint8_t)~REMO__CLAIM_UNTOLD;
    uint64_t baton;
    if ((claims & REMO__CLAIM_HOLD) && !REMO__MUTANT(lock_claim_hold))
        return 0;
    int rc = read_word(resolve, remo__lock_baton(lock, ticket), &baton);
    if (rc != 0)
        return rc;
    bool is_granted = remo__baton_granted(baton), skipped = (baton & REMO__BATON_SKIP) != 0;
    if (claims == 0 || claims == SKIPPED_BEFORE) /* a dead one's */
        return end_for_dead(resolve, ticket, baton,
                            baton == 0
                                || (is_granted && !skipped && remo__baton_waiter(baton) != UINT32_MAX));
    if (baton == 0 && (claims & REMO__CLAIM_WAIT) && !REMO__MUTANT(lock_has_since))
        return 0; /* it has the lock since, and has set the baton back */
    if ((baton == 0 || (is_granted && skipped))
        && !REMO__MUTANT(lock_dead_passer)) /* a live one gave it up, and a dead one was passing over it */
        return end_for_dead(resolve, ticket, baton, false);
    if (!is_granted) { /* a dead one released the ticket before, and did not get to the grant */
        if (REMO__MUTANT(lock_dead_releaser))
            return 0;
        rc = remo__lock_grant(lock, resolve->index, resolve->thread, ticket, remo__word_flags(resolve->word),
                              true);
        return rc == 1 ? end_for_dead(resolve, ticket, 0, false) : rc;
    }
    uint32_t granter = (uint32_t)(baton >> REMO__BATON_GRANTER_SHIFT) - 1;
    if (granter < lock->node->size && !remo__lock_gone(lock, granter) && !(all_claims & REMO__CLAIM_UNTOLD))
        return 0; /* it tells the waiter itself */
    if (REMO__MUTANT(lock_dead_granter))
        return 0;
    return remo__lock_tell(lock, resolve->index, resolve->thread, remo__baton_waiter(baton),
                           remo__grant_of(baton, ticket), true);
}

static int resolve_lock(struct resolve *resolve, const struct busy_lock *busy, const uint8_t *claims) {
    resolve->index = index_of(resolve->lock, busy->at);
    int rc = read_word(resolve, 0, &resolve->word);
    uint32_t done =
        REMO__MUTANT(lock_read_again) ? 0 : (uint16_t)((uint32_t)(resolve->word & 0xffff) - busy->first);
    if (rc != 0 || done >= busy->span)
        return rc;
    for (uint32_t i = busy->span - 1; rc == 0 && i > 0 && i >= done; i--)
        if ((claims[i] & ~REMO__CLAIM_UNTOLD) == 0 && !REMO__MUTANT(lock_pass_over))
            rc = pass_over(resolve, busy->first + i);
    if (rc == 0 && done == 0)
        rc = look_at_first(resolve, busy->first, claims[0]);
    return rc;
}

static void resolve_some(struct remo_lock *lock, struct remo__thread *thread) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint32_t end = (uint32_t)remo__min(recovery->count, recovery->resolved + LOCKS_A_STEP);
    struct resolve resolve = {.lock = lock, .thread = thread};
    for (; recovery->resolved < end; recovery->resolved++) {
        const uint8_t *claims = &recovery->claims[(size_t)recovery->resolved * lock->places];
        if (resolve_lock(&resolve, &recovery->batch[recovery->resolved], claims) != 0)
            remo__log(&lock->node->log, REMO_LOG_ERROR, "recovery of %s: %s",
                      remo_channel_name(lock->channel), remo_last_error());
    }
    if (recovery->resolved < recovery->count) {
        go_on(lock);
        return;
    }
    recovery->phase = recovery->scanned < recovery->locks ? SCANNING : IDLE;
    recovery->round++;
    recovery->count = 0;
    if (recovery->phase == SCANNING)
        go_on(lock);
}

/* ---- one step ---- */

static void scan_step(struct remo_lock *lock, struct remo__thread *thread) {
    struct remo__lock_recovery *recovery = lock->recovery;
    int rc = 0;
    if (recovery->drains) {
        ask_all(lock);
        return;
    }
    for (uint32_t i = 0; rc == 0 && i < READS_A_STEP && recovery->scanned < recovery->locks; i++)
        if (recovery->count < BATCH_LOCKS)
            rc = scan_some(lock, thread);
    if (rc != 0)
        remo__log(&lock->node->log, REMO_LOG_ERROR, "recovery of %s: %s", remo_channel_name(lock->channel),
                  remo_last_error());
    if (recovery->count == BATCH_LOCKS || (recovery->count > 0 && recovery->scanned == recovery->locks))
        ask_all(lock);
    else if (recovery->scanned < recovery->locks)
        go_on(lock);
    else
        recovery->phase = IDLE;
}

static void on_go_on(struct remo_lock *lock, struct remo__reader *reader) {
    struct remo__lock_recovery *recovery = lock->recovery;
    if (remo__get_u32(reader) != recovery->round || reader->bad)
        return;
    struct remo__thread *thread = remo__thread(lock->node);
    if (!thread) {
        remo__log(&lock->node->log, REMO_LOG_ERROR, "recovery of %s: %s", remo_channel_name(lock->channel),
                  remo_last_error());
        return;
    }
    if (recovery->phase == SCANNING)
        scan_step(lock, thread);
    else if (recovery->phase == RESOLVING)
        resolve_some(lock, thread);
}

static void recount(struct remo_lock *lock) {
    lock->recovery->drains = !REMO__MUTANT(lock_drains);
    remo__lock_recovery_start(lock);
}

void remo__lock_recovery_message(struct remo_lock *lock, uint32_t from, const void *data, size_t bytes) {
    struct remo__reader reader = remo__reader_of(data, bytes);
    uint8_t type = remo__get_u8(&reader);
    if (!lock->recovery)
        return;
    if (type == REMO__LOCK_ANSWER)
        on_answer(lock, from, &reader);
    else if (type == REMO__LOCK_RECOUNT)
        recount(lock);
    else if (type == REMO__LOCK_RECOVER_ON && from == lock->rank)
        on_go_on(lock, &reader);
}
