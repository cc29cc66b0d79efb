/* execute.h - execute requests of peers on this node's memory, without libfabric.
 *
 * Model:   the calling thread executes the records one after the other. Aligned words are moved whole
 *          (mapped.h); atomics are CPU atomics.
 * Order:   the accesses of a record follow all accesses of earlier records.
 * Safety:  the request is untrusted. Each byte is read once and checked before use. No access is outside the
 *          ranges of the memory, and no write is outside the answer. */
#pragma once

#include "fabric/ofi/imm.h"
#include "fabric/ofi/wire.h"

#define REMO__OFI_RANGES_MAX 16u /* parts of an arena whose segments are not contiguous */

/* A part of an arena that is network memory. `bytes` grows when the next segment is contiguous. */
struct ofi_range {
    uint64_t offset;
    _Atomic uint64_t bytes;
};

/* One thread appends; all threads read. */
struct ofi_ranges {
    _Atomic uint32_t count;
    struct ofi_range of[REMO__OFI_RANGES_MAX];
};

int remo__ofi_ranges_add(struct ofi_ranges *ranges, uint64_t offset, uint64_t bytes);
bool remo__ofi_ranges_cover(struct ofi_ranges *ranges, uint64_t offset, uint64_t bytes);

/* This node's memory, and its notifications of changes. */
struct ofi_memory {
    char *arena;
    struct ofi_ranges ranges;
    struct remo__doorbell bell;
    struct ofi_imms imms;
};

enum ofi_run_state {
    OFI_RUN_DONE,
    OFI_RUN_STALLED, /* the queue of immediates is full: continue later */
    OFI_RUN_BAD,     /* the request is malformed */
};

/* A request that is being executed. */
struct ofi_run {
    const uint8_t *at, *end; /* the rest of the request */
    uint8_t *answer, *out;   /* the answer: its start, and the position of the next result */
    uint8_t *failures;       /* grow downwards from the end of the answer */
    uint32_t record, count;
    uint32_t first_record; /* index of the first record in all requests of the answer */
    uint32_t failure_count;
    uint32_t peer, cut_off_count; /* the sender, and how many times it was cut off */
    bool unfenced, notify, imms;  /* pending until the end, or (the fence) until the next read */
    bool is_awaited;              /* a record was no UNAWAITED write, or has failed */
};

/* Start a request of `bytes` bytes without its check. `answer` has room for REMO__OFI_MESSAGE_BYTES; it also
 * answers `first_record` records of earlier requests, which have no results. */
void remo__ofi_run_start(struct ofi_run *run, const uint8_t *request, size_t bytes, uint32_t count,
                         uint8_t *answer, uint32_t first_record);
/* Execute the remaining records. Immediates carry `peer` and `cut_off_count`. */
enum ofi_run_state remo__ofi_run(struct ofi_run *run, struct ofi_memory *memory, uint32_t peer,
                                 uint32_t cut_off_count);
/* After OFI_RUN_DONE: assemble the answer. Returns the size of head, results and failures, for
 * remo__ofi_seal. */
size_t remo__ofi_run_finish(struct ofi_run *run);
