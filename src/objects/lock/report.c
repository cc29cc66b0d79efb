/* report.c - answers the home's query for this node's tickets, after a failure or a RECOUNT.
 * A local state is exact when it is read, unless it is BUSY or UNSETTLED. Such a state is read again, first
 * immediately, then after other work of the control thread. The state changes, because each operation on a
 * home that is up ends. The control thread never waits for that. docs/internals/lock.md has the protocol. */
#include "base/mutant.h"
#include "objects/lock/lock.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define READS_MAX 2000u  /* of one BUSY state in a row */
#define READS_EAGER 200u /* of them, before the control thread yields the processor */
#define REPORT_PAUSE_NS (100 * REMO__NS_PER_US)
#define LOCKS_PER_STEP 8192u
#define ANSWER_BYTES 8192u
#define CLAIMS_PER_LOCK 3u

int remo__lock_report_open(struct remo_lock *lock) {
    lock->reports = calloc(lock->home_count, sizeof *lock->reports);
    return lock->reports ? 0 : remo__fail(-ENOMEM, "no memory for the recovery of locks");
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

/* An UNSETTLED state lasts as long as a peer is paused: leave the processor to other threads. */
static void pause_report(void) {
#ifndef REMO_SIM
    nanosleep(&(struct timespec){.tv_nsec = REPORT_PAUSE_NS}, NULL);
#endif
}

/* Return false if the state stays BUSY or UNSETTLED. */
static bool read_state(struct remo_lock *lock, uint32_t index, uint64_t *ret_state) {
    const struct remo__lock_local *local = &lock->locals[index];
    remo__lock_reopen(lock, index);
    for (uint32_t reads = 0; reads < READS_MAX; reads++) {
        *ret_state = atomic_load(&local->state);
        if (remo__state_kind(*ret_state) == REMO__LOCK_UNSETTLED) {
            pause_report();
            return false;
        }
        if (remo__state_kind(*ret_state) != REMO__LOCK_BUSY || REMO__MUTANT(lock_report_busy))
            return true;
        if (reads >= READS_EAGER)
            sched_yield();
    }
    return false;
}

/* `last_skipped` is read after the state. The ticket may have been skipped later, and is then another ticket
 * of this node. */
static bool put_claims(struct answer *answer, struct remo_lock *lock, uint32_t index) {
    const struct remo__lock_local *local = &lock->locals[index];
    uint64_t state;
    if (!read_state(lock, index, &state))
        return false;
    uint64_t last_skipped = atomic_load(&local->last_skipped);
    if (atomic_load_explicit(&local->has_failed_grant, memory_order_acquire))
        put_claim(answer, index, atomic_load_explicit(&local->failed_grant, memory_order_relaxed),
                  REMO__CLAIM_FAILED_GRANT);
    switch (remo__state_kind(state)) {
    case REMO__LOCK_HELD: put_claim(answer, index, (uint32_t)state, REMO__CLAIM_HELD); break;
    case REMO__LOCK_WAITING: put_claim(answer, index, (uint32_t)state, REMO__CLAIM_WAITING); break;
    case REMO__LOCK_SKIPPED: put_claim(answer, index, (uint32_t)state, REMO__CLAIM_SKIPPED); break;
    case REMO__LOCK_FREE:
    case REMO__LOCK_GUARDED:
    case REMO__LOCK_UNSETTLED:
    case REMO__LOCK_BUSY: break;
    }
    if (last_skipped != 0)
        put_claim(answer, index, (uint32_t)last_skipped, REMO__CLAIM_SKIPPED);
    return true;
}

/* ---- steps ---- */

/* Report as many locks as possible now. Return true if the answer is complete, or cannot be sent; the home
 * repeats its query then. */
static bool report_some(struct remo_lock *lock, uint32_t slot) {
    struct remo__lock_report *report = &lock->reports[slot];
    struct answer answer;
    begin_answer(&answer);
    for (uint32_t locks = 0; report->next < lock->count; report->next += lock->home_count, locks++) {
        if (locks == LOCKS_PER_STEP || !put_claims(&answer, lock, report->next)) {
            if (answer.count > 0)
                (void)send_answer(lock, slot, &answer, false);
            return false;
        }
        bool full = sizeof answer.message - (size_t)(answer.writer.at - answer.message)
                    < CLAIMS_PER_LOCK * REMO__CLAIM_BYTES;
        if (full && send_answer(lock, slot, &answer, false) != 0)
            return true;
    }
    (void)send_answer(lock, slot, &answer, true);
    return true;
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
        if (!report->is_requested
            || (!all_cut_off(lock, &report->failed) && !REMO__MUTANT(lock_report_cut_off)))
            continue; /* on_cut_off continues */
        report->is_requested = !report_some(lock, slot);
        more |= report->is_requested;
    }
    const uint8_t message[] = {REMO__LOCK_REPORT_CONTINUE};
    if (!more || lock->report_continues)
        return;
    lock->report_continues = remo_channel_send(lock->channel, lock->rank, message, sizeof message) == 0;
    if (!lock->report_continues)
        remo__log(&lock->node->log, REMO_LOG_ERROR, "cannot recover locks of %s: %s",
                  remo_channel_name(lock->channel), remo_last_error());
}

static void on_query(struct remo_lock *lock, uint32_t from, struct remo__reader *reader) {
    struct remo__lock_report request = {.is_requested = true, .round = remo__get_u32(reader)};
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(request.failed.word); i++)
        request.failed.word[i] = remo__get_u64(reader);
    if (!remo__reader_complete(reader))
        return;
    for (uint32_t slot = 0; slot < lock->home_count; slot++) {
        if (lock->homes[slot] != from)
            continue;
        request.next = slot;
        if (!lock->reports[slot].is_requested || lock->reports[slot].round != request.round)
            lock->reports[slot] = request; /* otherwise this query is a repetition */
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
