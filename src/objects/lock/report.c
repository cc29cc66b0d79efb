/* report.c - answers the home's query for this node's tickets, after a failure, a RECOUNT or a REMIND.
 * A local state is exact when it is read, unless it is BUSY or UNSETTLED. A report stops at such a state. The
 * thread that ends the state gives the report a state that was exact, even if the present one is BUSY again.
 * The state ends, because each operation on a home that is up ends. The control thread never waits for that.
 * docs/internals/lock.md has the protocol and the bound. */
#include "objects/lock/lock.h"

#include <stddef.h>
#include <stdlib.h>

#define LOCKS_PER_STEP 8192u
#define ANSWER_BYTES 8192u
#define CLAIMS_PER_LOCK 2u

/* After a sweep of the service thread: the operation for which a report waits may have ended. */
static bool on_swept(struct remo__thread_observer *observer) {
    struct remo_lock *lock =
        (struct remo_lock *)(void *)((char *)observer - offsetof(struct remo_lock, observer));
    bool waits = false;
    for (uint32_t slot = 0; slot < lock->home_count; slot++) {
        uint32_t index = atomic_load(&lock->reports[slot].next);
        if (index >= lock->count || !(atomic_load(&lock->locals[index].waiters) & REMO__LOCK_REPORT_WAITS))
            continue;
        remo__lock_reopen(lock, index);
        if (remo__state_kind(atomic_load(&lock->locals[index].state)) == REMO__LOCK_UNSETTLED)
            waits = true;
    }
    return waits;
}

int remo__lock_report_open(struct remo_lock *lock) {
    lock->reports = calloc(lock->home_count, sizeof *lock->reports);
    if (!lock->reports)
        return remo__fail(-ENOMEM, "no memory for the recovery of locks");
    lock->observer.swept = on_swept;
    remo__thread_observe(lock->node, &lock->observer);
    return 0;
}

void remo__lock_report_close(struct remo_lock *lock) {
    free(lock->reports);
}

/* ---- an answer ---- */

struct answer {
    struct remo__writer writer;
    uint32_t count;
    uint8_t message[ANSWER_BYTES];
};

#define HEAD_BYTES 8u /* type, round, last, count */

static void begin_answer(struct answer *answer) {
    answer->writer = remo__writer_of(answer->message, sizeof answer->message);
    (void)remo__put_span(&answer->writer, HEAD_BYTES);
    answer->count = 0;
}

static int send_answer(struct remo_lock *lock, uint32_t slot, struct answer *answer, bool last) {
    struct remo__writer head = remo__writer_of(answer->message, HEAD_BYTES);
    remo__put_u8(&head, REMO__LOCK_ANSWER);
    remo__put_u32(&head, lock->reports[slot].round);
    remo__put_u8(&head, last);
    remo__put_u16(&head, (uint16_t)answer->count);
    int rc = remo_channel_send(lock->channel, lock->homes[slot], answer->message,
                               (size_t)(answer->writer.at - answer->message));
    begin_answer(answer);
    return rc;
}

static void put_claim(struct answer *answer, uint32_t index, uint32_t ticket, uint8_t kind) {
    remo__put_u32(&answer->writer, index);
    remo__put_u32(&answer->writer, ticket);
    remo__put_u8(&answer->writer, kind);
    answer->count++;
}

/* ---- the state of a lock ---- */

/* Request that another thread finds a state, until end_wait. The fence pairs with remo__lock_store_state. If
 * the kernel has no such fence, the request may be overlooked, and the report continues when the home repeats
 * its query. */
static void begin_wait(struct remo_lock *lock, uint32_t slot) {
    struct remo__lock_report *report = &lock->reports[slot];
    report->waits = report->waits % REMO__FOUND_WAITS_MAX + 1;
    atomic_store(&report->found, (uint64_t)report->waits << REMO__FOUND_WAIT_SHIFT);
    atomic_fetch_or(&lock->locals[report->next].waiters, REMO__LOCK_REPORT_WAITS);
#ifndef REMO_SIM
    (void)remo__threads_fence();
#endif
}

static void end_wait(struct remo_lock *lock, uint32_t slot) {
    struct remo__lock_report *report = &lock->reports[slot];
    if (atomic_load(&report->found) == 0)
        return;
    atomic_store(&report->found, 0);
    atomic_fetch_and(&lock->locals[report->next].waiters, ~REMO__LOCK_REPORT_WAITS);
}

/* Return the state that another thread has found, or the present one. */
static uint64_t read_state(struct remo_lock *lock, uint32_t slot) {
    struct remo__lock_report *report = &lock->reports[slot];
    remo__lock_reopen(lock, report->next);
    uint64_t found = atomic_load(&report->found);
    return found & REMO__FOUND ? remo__found_state(found) : atomic_load(&lock->locals[report->next].state);
}

/* Return false if the report waits for the state. */
static bool find_state(struct remo_lock *lock, uint32_t slot, uint64_t *ret_state) {
    uint64_t state = read_state(lock, slot);
    if (!remo__state_is_exact(state) && atomic_load(&lock->reports[slot].found) == 0) {
        begin_wait(lock, slot);
        state = read_state(lock, slot);
    }
    if (!remo__state_is_exact(state)) {
        if (remo__state_kind(state) == REMO__LOCK_UNSETTLED)
            remo__request_sweeps(lock->node); /* its operation may have no other thread that drives it */
        return false;
    }
    end_wait(lock, slot);
    *ret_state = state;
    return true;
}

/* Return false if the report waits for the state. `last_skipped` is read after the state. The ticket may have
 * been skipped later, and is then another ticket of this node. */
static bool put_claims(struct answer *answer, struct remo_lock *lock, uint32_t slot) {
    uint32_t index = lock->reports[slot].next;
    const struct remo__lock_local *local = &lock->locals[index];
    uint64_t state = 0;
    if (!find_state(lock, slot, &state))
        return false;
    bool has_skipped = atomic_load(&local->has_skipped);
    uint32_t last_skipped = atomic_load(&local->last_skipped);
    switch (remo__state_kind(state)) {
    case REMO__LOCK_HELD: put_claim(answer, index, (uint32_t)state, REMO__CLAIM_HELD); break;
    case REMO__LOCK_WAITING: put_claim(answer, index, (uint32_t)state, REMO__CLAIM_WAITING); break;
    case REMO__LOCK_SKIPPED: put_claim(answer, index, (uint32_t)state, REMO__CLAIM_SKIPPED); break;
    case REMO__LOCK_FREE:
    case REMO__LOCK_GUARDED:
    case REMO__LOCK_UNSETTLED:
    case REMO__LOCK_BUSY: break;
    }
    if (has_skipped)
        put_claim(answer, index, last_skipped, REMO__CLAIM_SKIPPED);
    return true;
}

/* ---- steps ---- */

enum progress {
    COMPLETE, /* or the answer cannot be sent: the home repeats its query then */
    INCOMPLETE,
    WAITS /* for the state of a lock */
};

/* Report as many locks as possible now. */
static enum progress report_some(struct remo_lock *lock, uint32_t slot) {
    struct remo__lock_report *report = &lock->reports[slot];
    struct answer answer;
    begin_answer(&answer);
    for (uint32_t locks = 0; report->next < lock->count; locks++) {
        bool is_step = locks < LOCKS_PER_STEP;
        if (!is_step || !put_claims(&answer, lock, slot)) {
            if (answer.count == 0 || send_answer(lock, slot, &answer, false) == 0)
                return is_step ? WAITS : INCOMPLETE;
            end_wait(lock, slot); /* claims are lost: the next query begins again */
            return COMPLETE;
        }
        bool full = sizeof answer.message - (size_t)(answer.writer.at - answer.message)
                    < CLAIMS_PER_LOCK * REMO__CLAIM_BYTES;
        if (full && send_answer(lock, slot, &answer, false) != 0)
            return COMPLETE;
        atomic_fetch_add(&report->next, lock->home_count);
    }
    (void)send_answer(lock, slot, &answer, true);
    return COMPLETE;
}

static bool all_cut_off(const struct remo_lock *lock, const struct remo_nodeset *failed) {
    for (uint32_t node = remo__nodeset_next(failed, 0); node < lock->node->size;
         node = remo__nodeset_next(failed, node + 1))
        if (remo__lock_has_our_addresses(lock, node) && !remo__lock_is_cut_off(lock, node))
            return false;
    return true;
}

void remo__lock_report_continue(struct remo_lock *lock) {
    bool more = false;
    for (uint32_t slot = 0; slot < lock->home_count; slot++) {
        struct remo__lock_report *report = &lock->reports[slot];
        if (!report->is_requested || !all_cut_off(lock, &report->failed))
            continue; /* on_cut_off continues */
        enum progress progress = report_some(lock, slot);
        report->is_requested = progress != COMPLETE;
        more |= progress == INCOMPLETE;
    }
    if (!more || lock->report_continues)
        return;
    lock->report_continues = remo__lock_report_send_continue(lock) == 0;
    if (!lock->report_continues)
        remo__log(&lock->node->log, REMO_LOG_ERROR, "cannot recover locks of %s: %s",
                  remo_channel_name(lock->channel), remo_last_error());
}

static void on_query(struct remo_lock *lock, uint32_t from, struct remo__reader *reader) {
    struct remo_nodeset failed;
    uint32_t round = remo__get_u32(reader);
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(failed.word); i++)
        failed.word[i] = remo__get_u64(reader);
    if (!remo__reader_complete(reader))
        return;
    for (uint32_t slot = 0; slot < lock->home_count; slot++) {
        if (lock->homes[slot] != from)
            continue;
        struct remo__lock_report *report = &lock->reports[slot];
        if (!report->is_requested || report->round != round) { /* otherwise this query is a repetition */
            end_wait(lock, slot); /* a state found for the earlier query may be older than this one */
            report->is_requested = true;
            report->round = round;
            report->failed = failed;
            atomic_store(&report->next, slot);
        }
        remo__lock_report_continue(lock);
    }
}

static void on_grant(struct remo_lock *lock, uint32_t from, struct remo__reader *reader) {
    uint32_t index = remo__get_u32(reader);
    uint64_t grant = remo__get_u64(reader);
    if (!remo__reader_complete(reader) || index >= lock->count || lock->locals[index].home != from)
        return;
    atomic_store_explicit(&lock->locals[index].message_grant, grant, memory_order_release);
    remo__wake(lock->node);
}

void remo__lock_report_message(struct remo_lock *lock, uint32_t from, const void *data, size_t bytes) {
    struct remo__reader reader = remo__reader_of(data, bytes);
    switch (remo__get_u8(&reader)) {
    case REMO__LOCK_QUERY: on_query(lock, from, &reader); break;
    case REMO__LOCK_GRANT: on_grant(lock, from, &reader); break;
    case REMO__LOCK_REPORT_CONTINUE:
        if (from != lock->rank)
            break;
        lock->report_continues = false;
        remo__lock_report_continue(lock);
        break;
    default: break;
    }
}
