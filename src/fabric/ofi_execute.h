/* ofi_execute.h - executes the requests of peers on our own memory.
 *
 * Model:   records are executed one after the other by the CPU, by whoever calls. Aligned words are moved
 *          whole (mapped.h), atomics are those of the CPU.
 * Order:   what a record reads or writes comes after all that the records before it did.
 * Safety:  the bytes come from a peer. Each is fetched once and checked before it is used; nothing outside
 *          the ranges of the memory is touched, and nothing beyond the answer is written. No libfabric in
 *          here. */
#ifndef REMO_FABRIC_OFI_EXECUTE_H
#define REMO_FABRIC_OFI_EXECUTE_H

#include "fabric/ofi_imm.h"
#include "fabric/ofi_wire.h"

#define REMO__OFI_RANGES_MAX 16u /* parts of an arena, when its segments do not join up */

/* Part of an arena that is network memory. `bytes` grows when the next segment joins on. */
struct ofi_range {
    uint64_t offset;
    _Atomic uint64_t bytes;
};

/* Added to by one thread, looked at by all. */
struct ofi_ranges {
    _Atomic uint32_t count;
    struct ofi_range of[REMO__OFI_RANGES_MAX];
};

int remo__ofi_ranges_add(struct ofi_ranges *ranges, uint64_t offset, uint64_t bytes);
bool remo__ofi_ranges_cover(struct ofi_ranges *ranges, uint64_t offset, uint64_t bytes);

/* Our memory, and whom to tell that it has changed. */
struct ofi_memory {
    char *arena;
    struct ofi_ranges ranges;
    struct remo__doorbell bell;
    struct ofi_imms imms;
};

enum ofi_run_state {
    OFI_RUN_DONE,
    OFI_RUN_STALLED, /* the queue of immediates is full: go on later */
    OFI_RUN_BAD,     /* the request makes no sense */
};

/* A request that is being executed. */
struct ofi_run {
    const uint8_t *at, *end; /* what is left of it */
    uint8_t *answer, *out;   /* the answer: its start, and where the next result goes */
    uint8_t *failures;       /* grow downwards from the end of the room */
    uint32_t record, count;
    uint32_t failure_count;
    uint32_t peer, life;         /* whose it is */
    bool unfenced, notify, imms; /* to be done at the end, or before the next read */
};

/* `request` has `bytes` bytes, the check left off; `answer` has room for REMO__OFI_MESSAGE_BYTES. */
void remo__ofi_run_start(struct ofi_run *run, const uint8_t *request, size_t bytes, uint32_t count,
                         uint8_t *answer);
/* Execute what is left, for a peer and a life of it, which send the immediates. */
enum ofi_run_state remo__ofi_run(struct ofi_run *run, struct ofi_memory *memory, uint32_t peer,
                                 uint32_t life);
/* After OFI_RUN_DONE: the size of head, results and failures, which remo__ofi_seal takes. */
size_t remo__ofi_run_finish(struct ofi_run *run);

#endif
