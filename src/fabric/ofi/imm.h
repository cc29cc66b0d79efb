/* imm.h - arrived immediates: a bounded queue from any thread to the service thread.
 *
 * Source: the bounded queue of D. Vyukov, with one consumer. The turn of the cell at position `at` is `at`
 *         while the cell is free for the producer, and `at + 1` while it is full. */
#pragma once

#include "base/bits.h"
#include "fabric/fabric.h"

#define REMO__OFI_IMMS_MAX 16384u /* not taken by the service thread yet; above this senders wait */

struct ofi_imm_cell {
    _Atomic uint64_t turn;
    struct remo__imm imm;
    uint32_t cut_off_count; /* of the sender, when this arrived */
};

struct ofi_imms {
    REMO__CACHE_ALIGNED _Atomic uint64_t tail;
    REMO__CACHE_ALIGNED uint64_t head; /* private to the service thread */
    struct remo__doorbell bell;        /* the service thread sleeps here */
    _Atomic uint32_t woken;            /* set by imm_wake, cleared by imm_wait */
    /* [size] how many times each peer was cut off; immediates from before the last time are dropped */
    _Atomic uint32_t *cut_off_counts;
    struct ofi_imm_cell cells[REMO__OFI_IMMS_MAX];
};

void remo__ofi_imms_init(struct ofi_imms *imms, _Atomic uint32_t *cut_off_counts);
/* Claim the place of the next immediate. False if the queue is full. The caller places the data of the
 * immediate afterwards: if it did so before, and then repeated a write that found no place, it could
 * overwrite newer data. */
bool remo__ofi_imms_claim(struct ofi_imms *imms, uint64_t *ret_at);
/* Append the immediate at a claimed place, without a wake-up of the service thread. */
void remo__ofi_imms_fill(struct ofi_imms *imms, uint64_t at, uint32_t peer, uint32_t cut_off_count,
                         uint32_t value);
/* Wake the service thread if it sleeps. */
void remo__ofi_imms_notify(struct ofi_imms *imms);
uint32_t remo__ofi_imms_take(struct ofi_imms *imms, struct remo__imm *ret_imms, uint32_t max);
void remo__ofi_imms_wait(struct ofi_imms *imms, uint64_t timeout_ns);
void remo__ofi_imms_wake(struct ofi_imms *imms);
