/* recovery.c - finds orphaned tickets after a failure, a leave or a RECOUNT, and ends them; at the home.
 * A round scans the held locks, queries all participants, and resolves each ticket that no node claims.
 * All steps run on the control thread and never block. A RECOUNT never restarts a round. The steps and their
 * proof are described in docs/internals/lock.md. */
#include "objects/lock/lock.h"

#include <stdlib.h>

#define BATCH_LOCKS 256u /* held locks in one query */
#define READ_BYTES 8192u /* of home words in one read */
#define READS_PER_STEP 16u
#define LOCKS_PER_STEP 32u
#define REMIND_PAUSE_MIN_NS (REMO__LOCK_REMIND_NS / 2)
#define REMIND_PAUSE_MAX_NS (8u * REMO__LOCK_REMIND_NS)
#define SWAPS_MAX 4u /* of a queue word: other nodes change it twice at most (skip, grant) */

enum { SKIPPED_BEFORE = 8 }; /* a further kind of claim: the ticket had SKIP at the scan */

enum phase { IDLE, SCANNING, QUERYING, RESOLVING };

struct held_lock {
    uint32_t at;    /* the number of the lock at this home */
    uint32_t first; /* the ticket that was served at the scan */
    uint32_t span;
};

/* The ticket that the next round confirms: its claim was SKIPPED, and its queue word 0 (confirm_skip). */
struct skipped_ticket {
    bool is_used;
    bool is_of_this_round;
    uint32_t index, ticket;
    uint32_t from; /* no lock before this one is considered: each lock gets its turn */
};

struct remo__lock_recovery {
    enum phase phase;
    uint32_t round;
    uint32_t locks; /* at this home */
    uint32_t slot;  /* of this home in lock->homes */
    uint32_t scanned, resolved, count;
    struct remo_nodeset unanswered; /* participants whose answer is missing */
    struct remo_nodeset unsent;     /* of these: the query could not be sent yet */
    bool drains;    /* after a RECOUNT: query all once before the scan, so that late operations have ended */
    bool is_paused; /* the message that continues the round was not sent, or could not be handled */
    uint64_t reminded_at_ns;  /* a REMIND soon after it has no effect: many threads may wait */
    uint64_t recounted_at_ns; /* when a REMIND last began a recount */
    uint64_t remind_pause_ns; /* until the next REMIND may begin one; it doubles until a round is useful */
    bool recount_due;         /* a RECOUNT arrived, or a skip must be confirmed: begin another round */
    struct skipped_ticket skipped;
    struct held_lock batch[BATCH_LOCKS];
    uint8_t *claims;   /* [BATCH_LOCKS][places] */
    uint16_t *waiters; /* [BATCH_LOCKS][places]: the node that claims to wait, plus 1 */
    uint64_t words[READ_BYTES / 8];
};

static uint32_t claimant(const struct remo_lock *lock, uint32_t index, uint32_t ticket);

int remo__lock_recovery_open(struct remo_lock *lock) {
    struct remo__lock_recovery *recovery = calloc(1, sizeof *recovery);
    if (recovery)
        recovery->claims = malloc((size_t)BATCH_LOCKS * lock->places);
    if (recovery)
        recovery->waiters = malloc((size_t)BATCH_LOCKS * lock->places * sizeof *recovery->waiters);
    if (!recovery || !recovery->claims || !recovery->waiters) {
        if (recovery) {
            free(recovery->claims);
            free(recovery->waiters);
        }
        free(recovery);
        return remo__fail(-ENOMEM, "no memory for the recovery of locks");
    }
    while (lock->homes[recovery->slot] != lock->rank)
        recovery->slot++;
    recovery->locks = (lock->count - recovery->slot + lock->home_count - 1) / lock->home_count;
    recovery->remind_pause_ns = REMIND_PAUSE_MIN_NS;
    lock->recovery = recovery;
    lock->claimant = claimant;
    return 0;
}

void remo__lock_recovery_close(struct remo_lock *lock) {
    if (lock->recovery) {
        free(lock->recovery->claims);
        free(lock->recovery->waiters);
    }
    free(lock->recovery);
}

bool remo__lock_has_our_addresses(const struct remo_lock *lock, uint32_t node) {
    return node == lock->rank
           || lock->channel->peers[node].granted_id != 0; /* changes on the control thread only */
}

bool remo__lock_is_cut_off(const struct remo_lock *lock, uint32_t node) {
    enum remo_peer_state in_job = remo_node_peer(lock->node, node);
    /* The control thread cuts a failed node off before it calls on_cut_off. */
    return in_job == REMO_PEER_DEAD || in_job == REMO_PEER_LEFT
           || remo__channel_is_cut_off(lock->channel, node);
}

static uint32_t index_of(const struct remo_lock *lock, uint32_t at) {
    return at * lock->home_count + lock->recovery->slot;
}

static void continue_round(struct remo_lock *lock) {
    uint8_t message[8];
    struct remo__writer writer = remo__writer_of(message, sizeof message);
    remo__put_u8(&writer, REMO__LOCK_RECOVERY_CONTINUE);
    remo__put_u32(&writer, lock->recovery->round);
    size_t bytes = (size_t)(writer.at - message);
    lock->recovery->is_paused = remo_channel_send(lock->channel, lock->rank, message, bytes) != 0;
    if (lock->recovery->is_paused)
        remo__log(&lock->node->log, REMO_LOG_ERROR, "cannot recover locks of %s: %s",
                  remo_channel_name(lock->channel), remo_last_error());
}

static void start_round(struct remo_lock *lock) {
    struct remo__lock_recovery *recovery = lock->recovery;
    recovery->phase = SCANNING;
    recovery->round++;
    recovery->scanned = recovery->count = 0;
    lock->has_unsent_grant = false;
    continue_round(lock);
}

void remo__lock_recovery_start(struct remo_lock *lock) {
    if (!lock->recovery)
        return;
    lock->recovery->remind_pause_ns = REMIND_PAUSE_MIN_NS;
    start_round(lock);
}

static void begin_recount(struct remo_lock *lock) {
    lock->recovery->recount_due = false;
    lock->recovery->drains = true;
    start_round(lock);
}

static void end_round(struct remo_lock *lock) {
    struct skipped_ticket *skipped = &lock->recovery->skipped;
    if (!skipped->is_of_this_round) {
        skipped->from = skipped->is_used ? skipped->index + 1 : 0;
        skipped->is_used = false;
    }
    skipped->is_of_this_round = false;
    lock->recovery->phase = IDLE;
    if (lock->recovery->recount_due)
        begin_recount(lock);
}

/* ---- SCANNING ---- */

static void record_lock(struct remo_lock *lock, uint32_t at, const uint64_t *words) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint64_t word = words[0];
    uint32_t span = remo__word_pending(word);
    if (span == 0)
        return;
    if (span > lock->places) {
        remo__log(&lock->node->log, REMO_LOG_ERROR, "lock %u of %s: its home word is damaged",
                  index_of(lock, at), remo_channel_name(lock->channel));
        return;
    }
    struct held_lock *held = &recovery->batch[recovery->count];
    uint16_t *waiters = &recovery->waiters[(size_t)recovery->count * lock->places];
    uint8_t *claims = &recovery->claims[(size_t)recovery->count++ * lock->places];
    *held = (struct held_lock){.at = at, .first = remo__word_next(word) - span, .span = span};
    for (uint32_t i = 0; i < span; i++) {
        claims[i] =
            words[remo__lock_queue_word(lock, held->first + i)] & REMO__QUEUE_WORD_SKIP ? SKIPPED_BEFORE : 0;
        waiters[i] = 0;
    }
}

/* Read the next locks, through the network: the CPU must not access words that change by network atomics. */
static int scan_some(struct remo_lock *lock, struct remo__thread *thread) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint32_t most = READ_BYTES / lock->stride, left = recovery->locks - recovery->scanned;
    uint32_t count = (uint32_t)remo__min(remo__min(most, left), BATCH_LOCKS - recovery->count);
    struct remo__ref ref;
    int rc =
        remo__memory_find(lock->words, thread, lock->rank, (uint64_t)recovery->scanned * lock->stride, &ref);
    if (rc == 0)
        rc = remo__read(ref, recovery->words, (size_t)count * lock->stride, NULL);
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        record_lock(lock, recovery->scanned + i, &recovery->words[(size_t)i * lock->stride / 8]);
    recovery->scanned += count;
    return rc;
}

/* ---- QUERYING ---- */

static void query_node(struct remo_lock *lock, uint32_t node) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint8_t message[64];
    struct remo__writer writer = remo__writer_of(message, sizeof message);
    struct remo_nodeset failed = {0};
    for (uint32_t peer = 0; peer < lock->node->size; peer++)
        if (remo__lock_is_cut_off(lock, peer))
            remo_nodeset_add(&failed, peer);
    remo__put_u8(&writer, REMO__LOCK_QUERY);
    remo__put_u32(&writer, recovery->round);
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(failed.word); i++)
        remo__put_u64(&writer, failed.word[i]);
    if (remo_channel_send(lock->channel, node, message, (size_t)(writer.at - message)) != 0)
        remo_nodeset_add(&recovery->unsent, node); /* until it connects or fails, or a REMIND arrives */
}

static void query_unanswered(struct remo_lock *lock) {
    struct remo_nodeset queried = lock->recovery->unanswered;
    for (uint32_t node = remo__nodeset_next(&queried, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(&queried, node + 1))
        query_node(lock, node);
}

static void query_all(struct remo_lock *lock) {
    struct remo__lock_recovery *recovery = lock->recovery;
    recovery->phase = QUERYING;
    recovery->unanswered = recovery->unsent = (struct remo_nodeset){0};
    /* A node that connects later has no ticket of the scan. */
    for (uint32_t node = 0; node < lock->node->size; node++)
        if (remo__lock_has_our_addresses(lock, node) && !remo__lock_is_cut_off(lock, node))
            remo_nodeset_add(&recovery->unanswered, node);
    query_unanswered(lock);
}

void remo__lock_recovery_connected(struct remo_lock *lock, uint32_t node) {
    struct remo__lock_recovery *recovery = lock->recovery;
    if (!recovery)
        return;
    if (lock->has_unsent_grant) {
        remo__lock_recovery_start(lock);
    } else if (recovery->phase == QUERYING && remo_nodeset_has(&recovery->unsent, node)) {
        remo_nodeset_remove(&recovery->unsent, node);
        query_node(lock, node);
    }
}

static struct held_lock *find_held(struct remo__lock_recovery *recovery, uint32_t at) {
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

static void record_claim(struct remo_lock *lock, uint32_t from, uint32_t index, uint32_t ticket,
                         uint8_t kind) {
    struct remo__lock_recovery *recovery = lock->recovery;
    if (index >= lock->count || lock->locals[index].home != lock->rank)
        return;
    const struct held_lock *held = find_held(recovery, index / lock->home_count);
    if (!held || ticket - held->first >= held->span)
        return; /* not of this query */
    uint8_t known = REMO__CLAIM_HELD | REMO__CLAIM_WAITING | REMO__CLAIM_SKIPPED;
    size_t at = (size_t)(held - recovery->batch) * lock->places + (ticket - held->first);
    recovery->claims[at] |= kind & known;
    if (kind & REMO__CLAIM_WAITING)
        recovery->waiters[at] = (uint16_t)(from + 1);
}

static uint32_t claimant(const struct remo_lock *lock, uint32_t index, uint32_t ticket) {
    struct remo__lock_recovery *recovery = lock->recovery;
    const struct held_lock *held = find_held(recovery, index / lock->home_count);
    if (!held || ticket - held->first >= held->span)
        return REMO_NODES_MAX; /* drawn after the scan */
    uint32_t waiter =
        recovery->waiters[(size_t)(held - recovery->batch) * lock->places + (ticket - held->first)];
    return waiter != 0 ? waiter - 1 : REMO_NODES_MAX;
}

static void on_answer(struct remo_lock *lock, uint32_t from, struct remo__reader *reader) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint32_t round = remo__get_u32(reader);
    uint8_t last = remo__get_u8(reader);
    uint16_t count = remo__get_u16(reader);
    if (reader->bad || recovery->phase != QUERYING || round != recovery->round
        || !remo_nodeset_has(&recovery->unanswered, from))
        return; /* of an earlier round */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = remo__get_u32(reader), ticket = remo__get_u32(reader);
        uint8_t kind = remo__get_u8(reader);
        if (!reader->bad)
            record_claim(lock, from, index, ticket, kind);
    }
    if (!last)
        return;
    remo_nodeset_remove(&recovery->unanswered, from);
    if (!remo_nodeset_empty(&recovery->unanswered))
        return;
    if (recovery->drains) {
        recovery->drains = false;
        start_round(lock);
        return;
    }
    recovery->phase = RESOLVING;
    recovery->resolved = 0;
    continue_round(lock);
}

/* ---- RESOLVING ---- */

struct resolve {
    struct remo_lock *lock;
    struct remo__thread *thread;
    uint32_t index;
    uint64_t word; /* the home word, read again */
};

/* A round that changes something is useful, so the next REMIND has an effect soon. */
static void note_change(const struct resolve *resolve) {
    resolve->lock->recovery->remind_pause_ns = REMIND_PAUSE_MIN_NS;
}

static int read_word(const struct resolve *resolve, uint32_t which, uint64_t *ret_word) {
    struct remo_lock *lock = resolve->lock;
    struct remo__ref ref;
    int rc = remo__memory_find(lock->words, resolve->thread, lock->rank,
                               lock->locals[resolve->index].offset + 8 * (uint64_t)which, &ref);
    return rc != 0 ? rc : remo__read(ref, ret_word, 8, NULL);
}

/* End an orphaned ticket. `entered`: its node may have held the lock. */
static int end_orphaned(const struct resolve *resolve, uint32_t ticket, uint64_t queue_word, bool entered) {
    struct remo_lock *lock = resolve->lock;
    uint64_t change = 0;
    note_change(resolve);
    if (entered && remo__word_flags(resolve->word) == 0)
        change = (uint64_t)REMO__LOCK_OWNER_DEAD << REMO__LOCK_FLAG_SHIFT;
    int rc = 0;
    if (queue_word != 0)
        rc = remo__lock_add(lock, resolve->index, resolve->thread, remo__lock_queue_word(lock, ticket),
                            -queue_word, NULL, NULL);
    if (rc == 0)
        rc = remo__lock_end_ticket(lock, resolve->index, resolve->thread, ticket, change, true);
    if (rc == 0)
        remo__log(&lock->node->log, REMO_LOG_INFO, "lock %u of %s: ended the ticket of a failed node%s",
                  resolve->index, remo_channel_name(lock->channel),
                  entered ? ", which may have held the lock" : "");
    return rc;
}

/* Skip an orphaned ticket that is not being served yet. */
static int skip_orphaned(const struct resolve *resolve, uint32_t ticket) {
    struct remo_lock *lock = resolve->lock;
    uint32_t which = remo__lock_queue_word(lock, ticket);
    uint64_t queue_word, old;
    int rc = read_word(resolve, which, &queue_word);
    for (uint32_t i = 0; rc == 0 && i < SWAPS_MAX; i++) {
        if (queue_word & REMO__QUEUE_WORD_SKIP)
            return 0;
        /* The grant came after the cut-off, so the failed node never held the lock. */
        if (remo__queue_word_is_granted(queue_word))
            return end_orphaned(resolve, ticket, queue_word, false);
        note_change(resolve);
        rc = remo__lock_swap(lock, resolve->index, resolve->thread, which, queue_word,
                             queue_word | REMO__QUEUE_WORD_SKIP, &old);
        /* A release may have made the word 0, and may grant the ticket. Then the next round ends it. */
        if (rc == 0 && old == queue_word && queue_word == 0)
            lock->recovery->recount_due = true;
        if (rc == 0 && old == queue_word)
            return 0;
        queue_word = old;
    }
    return rc;
}

/* The queue word of a ticket with the claim SKIPPED is 0. Return true if a node that failed was about to skip
 * the ticket. Otherwise its node has resumed the ticket since the claim, and has acquired the lock. The node
 * claims HELD in the next round then. So the next round confirms the former, for one ticket at a time. */
static bool confirm_skip(struct remo_lock *lock, uint32_t index, uint32_t ticket) {
    struct remo__lock_recovery *recovery = lock->recovery;
    struct skipped_ticket *skipped = &recovery->skipped;
    bool is_found = skipped->is_used && skipped->index == index && skipped->ticket == ticket;
    if (is_found && !skipped->is_of_this_round) {
        skipped->is_used = false;
        return true;
    }
    recovery->recount_due = true;
    if (!skipped->is_used && index >= skipped->from) {
        skipped->is_used = skipped->is_of_this_round = true;
        skipped->index = index;
        skipped->ticket = ticket;
    }
    return false;
}

/* The queue word of a served ticket is 0 although its node waited for it. The node has acquired the lock
 * since then, and ignores the message; or the node that released the ticket before has failed after it had
 * made the word 0. */
static int grant_cleared(const struct resolve *resolve, uint32_t ticket, uint64_t word) {
    struct remo_lock *lock = resolve->lock;
    uint64_t granted = remo__queue_word_grant(REMO__GRANTER_RECOVERY, remo__word_flags(word));
    note_change(resolve);
    return remo__lock_send_grant(lock, resolve->index, resolve->thread,
                                 claimant(lock, resolve->index, ticket), remo__grant_of(granted, ticket),
                                 true);
}

/* Return whether the node of a served ticket, which no node claims, may have held the lock. The home may have
 * sent a grant without an arrival in the word to a node that had arrived (grant_cleared). On mapped memory a
 * node that does not arrive resets the word by a store, which may be lost with the node. */
static bool may_have_held(const struct remo_lock *lock, uint64_t queue_word) {
    if (queue_word == 0)
        return true;
    if (!remo__queue_word_is_granted(queue_word) || (queue_word & REMO__QUEUE_WORD_SKIP) != 0)
        return false;
    bool is_from_home = queue_word >> REMO__QUEUE_WORD_GRANTER_SHIFT == REMO__GRANTER_RECOVERY + 1;
    return is_from_home || lock->node->mapped || remo__queue_word_waiter(queue_word) != UINT32_MAX;
}

/* Resolve the ticket that has been served since the scan. */
static int resolve_first(const struct resolve *resolve, uint32_t ticket, uint8_t claims) {
    struct remo_lock *lock = resolve->lock;
    uint64_t queue_word, word = 0;
    if (claims & REMO__CLAIM_HELD)
        return 0;
    int rc = read_word(resolve, remo__lock_queue_word(lock, ticket), &queue_word);
    if (rc == 0)
        rc = read_word(resolve, 0, &word);
    if (rc != 0 || (uint16_t)word != (uint16_t)ticket) /* a later ticket may have the queue word */
        return rc;
    bool is_granted = remo__queue_word_is_granted(queue_word);
    bool skipped = (queue_word & REMO__QUEUE_WORD_SKIP) != 0;
    if (claims == 0 || claims == SKIPPED_BEFORE) /* orphaned */
        return end_orphaned(resolve, ticket, queue_word, may_have_held(lock, queue_word));
    if (queue_word == 0 && (claims & REMO__CLAIM_WAITING)) /* a mapped word is 0 only after the acquire */
        return lock->node->mapped ? 0 : grant_cleared(resolve, ticket, word);
    if (queue_word == 0 && !confirm_skip(lock, resolve->index, ticket))
        return 0;
    /* A node that failed was about to skip the ticket of a node that is up. */
    if (queue_word == 0 || (is_granted && skipped))
        return end_orphaned(resolve, ticket, queue_word, false);
    if (!is_granted) { /* the node that released the ticket before failed before the grant */
        note_change(resolve);
        rc = remo__lock_grant(lock, resolve->index, resolve->thread, ticket, remo__word_flags(resolve->word),
                              true);
        return rc == REMO__LOCK_TICKET_SKIPPED ? end_orphaned(resolve, ticket, 0, false) : rc;
    }
    /* The granter has failed, or has answered since, so its write has ended. If the write was successful, the
     * waiter ignores the second grant word. */
    note_change(resolve);
    uint32_t waiter = remo__queue_word_waiter(queue_word);
    if (waiter == UINT32_MAX) /* a release made the word 0, and failed; the home granted the ticket since */
        waiter = claimant(lock, resolve->index, ticket);
    return waiter == REMO_NODES_MAX ? 0
                                    : remo__lock_send_grant(lock, resolve->index, resolve->thread, waiter,
                                                            remo__grant_of(queue_word, ticket), true);
}

static int resolve_lock(struct resolve *resolve, const struct held_lock *held, const uint8_t *claims) {
    resolve->index = index_of(resolve->lock, held->at);
    int rc = read_word(resolve, 0, &resolve->word);
    uint32_t done = (uint16_t)((uint32_t)(resolve->word & 0xffff) - held->first);
    if (rc != 0 || done >= held->span)
        return rc;
    for (uint32_t i = held->span - 1; rc == 0 && i > 0 && i >= done; i--)
        if (claims[i] == 0)
            rc = skip_orphaned(resolve, held->first + i);
    if (rc == 0 && done == 0)
        rc = resolve_first(resolve, held->first, claims[0]);
    return rc;
}

static void resolve_some(struct remo_lock *lock, struct remo__thread *thread) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint32_t end = (uint32_t)remo__min(recovery->count, recovery->resolved + LOCKS_PER_STEP);
    struct resolve resolve = {.lock = lock, .thread = thread};
    for (; recovery->resolved < end; recovery->resolved++) {
        const uint8_t *claims = &recovery->claims[(size_t)recovery->resolved * lock->places];
        if (resolve_lock(&resolve, &recovery->batch[recovery->resolved], claims) != 0)
            remo__log(&lock->node->log, REMO_LOG_ERROR, "cannot recover locks of %s: %s",
                      remo_channel_name(lock->channel), remo_last_error());
    }
    if (recovery->resolved < recovery->count) {
        continue_round(lock);
        return;
    }
    recovery->phase = SCANNING;
    recovery->round++;
    recovery->count = 0;
    if (recovery->scanned < recovery->locks)
        continue_round(lock);
    else
        end_round(lock);
}

/* ---- steps ---- */

static void scan_step(struct remo_lock *lock, struct remo__thread *thread) {
    struct remo__lock_recovery *recovery = lock->recovery;
    int rc = 0;
    if (recovery->drains) {
        query_all(lock);
        return;
    }
    for (uint32_t i = 0; rc == 0 && i < READS_PER_STEP && recovery->scanned < recovery->locks; i++)
        if (recovery->count < BATCH_LOCKS)
            rc = scan_some(lock, thread);
    if (rc != 0)
        remo__log(&lock->node->log, REMO_LOG_ERROR, "cannot recover locks of %s: %s",
                  remo_channel_name(lock->channel), remo_last_error());
    if (recovery->count == BATCH_LOCKS || (recovery->count > 0 && recovery->scanned == recovery->locks))
        query_all(lock);
    else if (recovery->scanned < recovery->locks)
        continue_round(lock);
    else
        end_round(lock);
}

static void on_continue(struct remo_lock *lock, struct remo__reader *reader) {
    struct remo__lock_recovery *recovery = lock->recovery;
    if (remo__get_u32(reader) != recovery->round || reader->bad)
        return;
    struct remo__thread *thread = remo__thread(lock->node);
    if (!thread) {
        recovery->is_paused = true;
        remo__log(&lock->node->log, REMO_LOG_ERROR, "cannot recover locks of %s: %s",
                  remo_channel_name(lock->channel), remo_last_error());
        return;
    }
    if (recovery->phase == SCANNING)
        scan_step(lock, thread);
    else if (recovery->phase == RESOLVING)
        resolve_some(lock, thread);
}

/* A round in progress ends first: its result is safe, since a node whose operation has an unknown outcome
 * answers only when the operation has ended. Otherwise a series of RECOUNTs could keep the round from
 * ending. */
static void recount(struct remo_lock *lock) {
    lock->recovery->remind_pause_ns = REMIND_PAUSE_MIN_NS;
    if (lock->recovery->phase == IDLE)
        begin_recount(lock);
    else
        lock->recovery->recount_due = true;
}

/* A node may wait because another one holds the lock for long, with no message missing. So the pauses between
 * the recounts grow. */
static void recount_for_remind(struct remo_lock *lock, uint64_t now_ns) {
    struct remo__lock_recovery *recovery = lock->recovery;
    if (recovery->recounted_at_ns != 0 && now_ns - recovery->recounted_at_ns < recovery->remind_pause_ns)
        return;
    recovery->recounted_at_ns = now_ns;
    recovery->remind_pause_ns = remo__min(2 * recovery->remind_pause_ns, REMIND_PAUSE_MAX_NS);
    begin_recount(lock);
}

/* Repeat messages that could not be sent for lack of memory. A query that has arrived is repeated too,
 * because its answer may not have been sent. In IDLE, a RECOUNT or a grant may be missing. */
static void remind(struct remo_lock *lock) {
    struct remo__lock_recovery *recovery = lock->recovery;
    uint64_t now_ns = remo__now_ns();
    if (now_ns - recovery->reminded_at_ns < REMO__LOCK_REMIND_NS / 2)
        return;
    recovery->reminded_at_ns = now_ns;
    if (recovery->phase == IDLE)
        recount_for_remind(lock, now_ns);
    else if (recovery->phase == QUERYING)
        query_unanswered(lock);
    else if (recovery->phase != IDLE && recovery->is_paused)
        continue_round(lock);
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
    else if (type == REMO__LOCK_REMIND)
        remind(lock);
    else if (type == REMO__LOCK_RECOVERY_CONTINUE && from == lock->rank)
        on_continue(lock, &reader);
}
