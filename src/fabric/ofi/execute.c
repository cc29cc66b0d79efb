/* execute.c - implements execute.h: ranges of network memory, and the records of a request.
 *
 * Every offset and size of a record is checked against the ranges and the request before it is used. A record
 * that fails reports a status; a malformed request ends the whole run. */
#include "fabric/ofi/execute.h"

#include <errno.h>

#include "base/error.h"
#include "fabric/mapped.h"

/* ---- ranges ---- */

int remo__ofi_ranges_add(struct ofi_ranges *ranges, uint64_t offset, uint64_t bytes) {
    uint32_t count = atomic_load(&ranges->count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t from = ranges->of[i].offset, have = atomic_load(&ranges->of[i].bytes);
        if (offset < from + have && from < offset + bytes)
            return remo__fail(-EEXIST, "a segment at offset %#llx overlaps an earlier segment",
                              (unsigned long long)offset);
    }
    struct ofi_range *last = count > 0 ? &ranges->of[count - 1] : NULL;
    if (last && last->offset + atomic_load(&last->bytes) == offset) {
        atomic_fetch_add(&last->bytes, bytes);
        return 0;
    }
    if (count == REMO__OFI_RANGES_MAX)
        return remo__fail(-ENOSPC, "an arena has more than %u gaps", REMO__OFI_RANGES_MAX);
    ranges->of[count].offset = offset;
    atomic_store(&ranges->of[count].bytes, bytes);
    atomic_store(&ranges->count, count + 1);
    return 0;
}

bool remo__ofi_ranges_cover(struct ofi_ranges *ranges, uint64_t offset, uint64_t bytes) {
    uint32_t count = atomic_load_explicit(&ranges->count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t have = atomic_load_explicit(&ranges->of[i].bytes, memory_order_acquire);
        uint64_t at = offset - ranges->of[i].offset; /* wraps to a huge value if it lies before */
        if (at <= have && bytes <= have - at)
            return true;
    }
    return false;
}

/* ---- one record ---- */

/* Take the next `bytes` of the request, or NULL. */
static const uint8_t *run_take(struct ofi_run *run, uint64_t bytes) {
    if (bytes > (uint64_t)(run->end - run->at))
        return NULL;
    const uint8_t *at = run->at;
    run->at += bytes;
    return at;
}

/* Room for a result of `bytes`, or NULL. */
static uint8_t *run_room(struct ofi_run *run, uint64_t bytes) {
    if (bytes > (uint64_t)(run->failures - run->out))
        return NULL;
    uint8_t *out = run->out;
    run->out += bytes;
    return out;
}

static bool run_fail(struct ofi_run *run, int status) {
    struct remo__ofi_failure failure = {.record = run->first_record + run->record, .status = status};
    run->is_awaited = true;
    if ((size_t)(run->failures - run->out) < sizeof failure)
        return false;
    run->failures -= sizeof failure;
    memcpy(run->failures, &failure, sizeof failure);
    run->failure_count++;
    return true;
}

/* A later access must not overtake a store that is still in this CPU's store buffer. */
static void run_fence(struct ofi_run *run) {
    if (run->unfenced)
        remo__mapped_fence();
    run->unfenced = false;
}

static enum ofi_run_state run_read(struct ofi_run *run, struct ofi_memory *memory,
                                   const struct remo__ofi_record *record) {
    uint64_t padded = remo__ofi_padded(record->size_bytes);
    uint8_t *out = run_room(run, padded);
    if (!out || record->size_bytes > REMO__OFI_FRAGMENT_BYTES)
        return OFI_RUN_BAD;
    if (padded > 0)
        memset(out + padded - 8, 0, 8);
    if (!remo__ofi_ranges_cover(&memory->ranges, record->offset, record->size_bytes))
        return run_fail(run, -EACCES) ? OFI_RUN_DONE : OFI_RUN_BAD;
    run_fence(run);
    remo__mapped_copy_from(out, memory->arena + record->offset, record->size_bytes);
    return OFI_RUN_DONE;
}

static enum ofi_run_state run_write(struct ofi_run *run, struct ofi_memory *memory,
                                    const struct remo__ofi_record *record) {
    const uint8_t *data = run_take(run, remo__ofi_padded(record->size_bytes));
    const uint8_t *imm = data && (record->flags & REMO__OP_IMM) ? run_take(run, 8) : NULL;
    if (!data || (!imm && (record->flags & REMO__OP_IMM)))
        return OFI_RUN_BAD;
    if (!remo__ofi_ranges_cover(&memory->ranges, record->offset, record->size_bytes))
        return run_fail(run, -EACCES) ? OFI_RUN_DONE : OFI_RUN_BAD;
    uint64_t claimed;
    if (imm && !remo__ofi_imms_claim(&memory->imms, &claimed))
        return OFI_RUN_STALLED;
    remo__mapped_copy_to(memory->arena + record->offset, data, record->size_bytes);
    run->unfenced = true;
    if (record->flags & (REMO__OP_IMM | REMO__OP_NOTIFY))
        run->notify = true;
    if (imm) {
        uint32_t value;
        memcpy(&value, imm, sizeof value);
        remo__ofi_imms_fill(&memory->imms, claimed, run->peer, run->cut_off_count, value);
        run->imms = true;
    }
    return OFI_RUN_DONE;
}

static enum ofi_run_state run_atomic(struct ofi_run *run, struct ofi_memory *memory,
                                     const struct remo__ofi_record *record) {
    uint64_t operands[2] = {0, 0};
    size_t bytes = record->kind == REMO__OP_COMPARE_SWAP ? 16 : 8;
    const uint8_t *from = run_take(run, bytes);
    uint8_t *out = run_room(run, 8);
    if (!from || !out)
        return OFI_RUN_BAD;
    memcpy(operands, from, bytes);
    memset(out, 0, 8);
    if (record->size_bytes != 8 || record->offset % 8 != 0)
        return run_fail(run, -EINVAL) ? OFI_RUN_DONE : OFI_RUN_BAD;
    if (!remo__ofi_ranges_cover(&memory->ranges, record->offset, 8))
        return run_fail(run, -EACCES) ? OFI_RUN_DONE : OFI_RUN_BAD;
    char *word = memory->arena + record->offset;
    uint64_t old = record->kind == REMO__OP_COMPARE_SWAP
                       ? remo__mapped_compare_swap(word, operands[0], operands[1])
                       : remo__mapped_fetch_add(word, operands[0]);
    run->unfenced = false; /* an atomic is a full fence */
    memcpy(out, &old, sizeof old);
    return OFI_RUN_DONE;
}

static enum ofi_run_state run_record(struct ofi_run *run, struct ofi_memory *memory) {
    struct remo__ofi_record record;
    const uint8_t *from = run_take(run, sizeof record);
    if (!from)
        return OFI_RUN_BAD;
    memcpy(&record, from, sizeof record);
    run->is_awaited |= record.kind != REMO__OP_WRITE || !(record.flags & REMO__OP_UNAWAITED);
    switch (record.kind) {
    case REMO__OP_READ: return run_read(run, memory, &record);
    case REMO__OP_WRITE: return run_write(run, memory, &record);
    case REMO__OP_FETCH_ADD:
    case REMO__OP_COMPARE_SWAP: return run_atomic(run, memory, &record);
    }
    return OFI_RUN_BAD;
}

/* ---- a request ---- */

void remo__ofi_run_start(struct ofi_run *run, const uint8_t *request, size_t bytes, uint32_t count,
                         uint8_t *answer, uint32_t first_record) {
    *run = (struct ofi_run){
        .at = request + sizeof(struct remo__ofi_head),
        .end = request + bytes,
        .answer = answer,
        .out = answer + sizeof(struct remo__ofi_head),
        .failures = answer + REMO__OFI_MESSAGE_BYTES - 8, /* the check */
        .count = count,
        .first_record = first_record,
    };
}

/* All data is placed: wake sleepers, once for all records that notify. */
static void run_notify(struct ofi_run *run, struct ofi_memory *memory) {
    run_fence(run);
    if (run->imms)
        remo__ofi_imms_notify(&memory->imms);
    if (run->notify) {
        /* pairs with the sleeper's: it counts itself before its last check */
        remo__mapped_fence();
        if (atomic_load_explicit(&memory->bell.sleepers, memory_order_relaxed) != 0)
            remo__doorbell_notify(&memory->bell);
    }
    run->imms = run->notify = false;
}

enum ofi_run_state remo__ofi_run(struct ofi_run *run, struct ofi_memory *memory, uint32_t peer,
                                 uint32_t cut_off_count) {
    enum ofi_run_state state = OFI_RUN_DONE;
    run->peer = peer;
    run->cut_off_count = cut_off_count;
    for (; run->record < run->count; run->record++) {
        const uint8_t *at = run->at;
        state = run_record(run, memory);
        if (state == OFI_RUN_STALLED)
            run->at = at; /* repeat this record next time */
        if (state != OFI_RUN_DONE)
            break;
    }
    run_notify(run, memory);
    if (state == OFI_RUN_DONE && run->at != run->end)
        state = OFI_RUN_BAD;
    return state;
}

size_t remo__ofi_run_finish(struct ofi_run *run) {
    size_t bytes = run->failure_count * sizeof(struct remo__ofi_failure);
    if (bytes > 0)
        memmove(run->out, run->failures, bytes);
    return (size_t)(run->out - run->answer) + bytes;
}
