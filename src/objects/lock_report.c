/* lock_report.c - everybody's part when a participant dies: say which tickets this node has. On the control
 * thread, without waiting.
 *
 * What a seat says is true at the instant it is read, unless it is BUSY. A BUSY one is looked at again and
 * again: briefly at once, then after other work of the control thread. Its thread is within an operation on a
 * live home, which ends. */
#include "base/mutant.h"
#include "objects/lock.h"

#include <sched.h>
#include <stdlib.h>

#define LOOKS_MAX 2000u  /* at one busy seat in a row */
#define LOOKS_EAGER 200u /* of them: before we let its thread run */
#define SEATS_A_STEP 8192u
#define ANSWER_BYTES 8192u
#define CLAIMS_A_SEAT 3u

struct remo__lock_report {
    bool wanted;
    uint32_t round;
    uint32_t next;            /* lock to look at */
    struct remo_nodeset dead; /* we answer when we too have cut them off */
};

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

static void claim(struct answer *answer, uint32_t index, uint32_t ticket, uint8_t kind) {
    remo__put_u32(&answer->writer, index);
    remo__put_u32(&answer->writer, ticket);
    remo__put_u8(&answer->writer, kind);
    answer->count++;
}

/* False: the seat stays BUSY, or is UNSETTLED. */
static bool stable_place(struct remo_lock *lock, uint32_t index, uint64_t *ret_place) {
    const struct remo__lock_seat *seat = &lock->seats[index];
    remo__lock_reopen(lock, index);
    for (uint32_t look = 0; look < LOOKS_MAX; look++) {
        *ret_place = atomic_load(&seat->place);
        if (remo__place_state(*ret_place) == REMO__LOCK_UNSETTLED) {
            sched_yield();
            return false;
        }
        if (remo__place_state(*ret_place) != REMO__LOCK_BUSY || REMO__MUTANT(lock_report_busy))
            return true;
        if (look >= LOOKS_EAGER)
            sched_yield();
    }
    return false;
}

/* `passed` is read after the place: it may belong to a later moment, and then names a ticket that was ours as
 * well. */
static bool claim_seat(struct answer *answer, struct remo_lock *lock, uint32_t index) {
    const struct remo__lock_seat *seat = &lock->seats[index];
    uint64_t place;
    if (!stable_place(lock, index, &place))
        return false;
    uint64_t passed = atomic_load(&seat->passed);
    if (seat->is_untold)
        claim(answer, index, seat->untold, REMO__CLAIM_UNTOLD);
    switch (remo__place_state(place)) {
    case REMO__LOCK_HELD: claim(answer, index, (uint32_t)place, REMO__CLAIM_HOLD); break;
    case REMO__LOCK_WAITING: claim(answer, index, (uint32_t)place, REMO__CLAIM_WAIT); break;
    case REMO__LOCK_SKIPPED: claim(answer, index, (uint32_t)place, REMO__CLAIM_GIVEN_UP); break;
    case REMO__LOCK_FREE:
    case REMO__LOCK_UNSETTLED:
    case REMO__LOCK_BUSY: break;
    }
    if (passed != 0)
        claim(answer, index, (uint32_t)passed, REMO__CLAIM_GIVEN_UP);
    return true;
}

/* ---- steps ---- */

/* As far as it goes now; true when the answer is complete, or nobody is there to have it. */
static bool report_some(struct remo_lock *lock, uint32_t slot) {
    struct remo__lock_report *report = &lock->reports[slot];
    struct answer answer;
    begin_answer(&answer);
    for (uint32_t seats = 0; report->next < lock->count; report->next += lock->home_count, seats++) {
        if (seats == SEATS_A_STEP || !claim_seat(&answer, lock, report->next)) {
            if (answer.count > 0)
                (void)send_answer(lock, slot, &answer, false);
            return false;
        }
        bool full = sizeof answer.message - (size_t)(answer.writer.at - answer.message)
                    < CLAIMS_A_SEAT * REMO__CLAIM_BYTES;
        if (full && send_answer(lock, slot, &answer, false) != 0)
            return true;
    }
    (void)send_answer(lock, slot, &answer, true);
    return true;
}

static bool all_cut_off(const struct remo_lock *lock, const struct remo_nodeset *dead) {
    for (uint32_t node = remo__nodeset_next(dead, 0); node < lock->node->size;
         node = remo__nodeset_next(dead, node + 1))
        if (remo__lock_knows_us(lock, node) && !remo__lock_gone(lock, node))
            return false;
    return true;
}

void remo__lock_report_on(struct remo_lock *lock) {
    bool more = false;
    for (uint32_t slot = 0; slot < lock->home_count; slot++) {
        struct remo__lock_report *report = &lock->reports[slot];
        if (!report->wanted || (!all_cut_off(lock, &report->dead) && !REMO__MUTANT(lock_report_cut_off)))
            continue; /* on_leave brings us here again */
        report->wanted = !report_some(lock, slot);
        more |= report->wanted;
    }
    const uint8_t message[] = {REMO__LOCK_REPORT_ON};
    if (more && remo_channel_send(lock->channel, lock->rank, message, sizeof message) != 0)
        remo__log(&lock->node->log, REMO_LOG_ERROR, "recovery of %s: %s", remo_channel_name(lock->channel),
                  remo_last_error());
}

static void on_query(struct remo_lock *lock, uint32_t from, struct remo__reader *reader) {
    struct remo__lock_report asked = {.wanted = true, .round = remo__get_u32(reader)};
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(asked.dead.word); i++)
        asked.dead.word[i] = remo__get_u64(reader);
    if (!remo__reader_complete(reader))
        return;
    for (uint32_t slot = 0; slot < lock->home_count; slot++) {
        if (lock->homes[slot] != from)
            continue;
        asked.next = slot;
        lock->reports[slot] = asked;
        remo__lock_report_on(lock);
    }
}

static void on_grant(struct remo_lock *lock, uint32_t from, struct remo__reader *reader) {
    uint32_t index = remo__get_u32(reader);
    uint64_t grant = remo__get_u64(reader);
    if (!remo__reader_complete(reader) || index >= lock->count || lock->seats[index].home != from)
        return;
    atomic_store_explicit(&lock->seats[index].told, grant, memory_order_release);
    remo__wake(lock->node);
}

void remo__lock_report_message(struct remo_lock *lock, uint32_t from, const void *data, size_t bytes) {
    struct remo__reader reader = remo__reader_of(data, bytes);
    switch (remo__get_u8(&reader)) {
    case REMO__LOCK_QUERY: on_query(lock, from, &reader); break;
    case REMO__LOCK_GRANT: on_grant(lock, from, &reader); break;
    case REMO__LOCK_REPORT_ON:
        if (from == lock->rank)
            remo__lock_report_on(lock);
        break;
    default: break;
    }
}
