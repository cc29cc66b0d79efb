/* ofi_imm.h - immediates that have arrived: a bounded queue from any thread to the service thread.
 *
 * Source: the bounded queue of D. Vyukov, with one consumer. Each cell has a turn, which says whose it is:
 *         the producer's at `at`, the consumer's at `at + 1`. */
#ifndef REMO_FABRIC_OFI_IMM_H
#define REMO_FABRIC_OFI_IMM_H

#include "base/bits.h"
#include "fabric/fabric.h"

#define REMO__OFI_IMMS_MAX 16384u /* that the service thread has not taken yet; then senders wait */

struct ofi_imm_cell {
    _Atomic uint64_t turn;
    struct remo__imm imm;
    uint32_t life; /* of the sender */
};

struct ofi_imms {
    REMO__CACHE_ALIGNED _Atomic uint64_t tail;
    REMO__CACHE_ALIGNED uint64_t head; /* the service thread's */
    struct remo__doorbell bell;        /* the service thread sleeps here */
    _Atomic uint32_t woken;            /* by imm_wake, and not seen yet */
    /* [size] how often each peer was cut off; what it sent before is dropped */
    _Atomic uint32_t *lives;
    struct ofi_imm_cell cells[REMO__OFI_IMMS_MAX];
};

void remo__ofi_imms_init(struct ofi_imms *imms, _Atomic uint32_t *lives);
/* False when the queue is full. The service thread is not woken: remo__ofi_imms_ring. */
bool remo__ofi_imms_push(struct ofi_imms *imms, uint32_t peer, uint32_t life, uint32_t value);
void remo__ofi_imms_ring(struct ofi_imms *imms);
uint32_t remo__ofi_imms_take(struct ofi_imms *imms, struct remo__imm *ret_imms, uint32_t max);
void remo__ofi_imms_wait(struct ofi_imms *imms, uint64_t timeout_ns);
void remo__ofi_imms_wake(struct ofi_imms *imms);

#endif
