/* imm.c - implements imm.h: the queue of arrived immediates.
 *
 * An immediate is delivered at most once, and only if its sender was not cut off since it was queued. */
#include "fabric/ofi/imm.h"

#include "fabric/mapped.h"

void remo__ofi_imms_init(struct ofi_imms *imms, _Atomic uint32_t *cut_off_counts) {
    imms->cut_off_counts = cut_off_counts;
    for (uint32_t i = 0; i < REMO__OFI_IMMS_MAX; i++)
        atomic_store_explicit(&imms->cells[i].turn, i, memory_order_relaxed);
}

bool remo__ofi_imms_claim(struct ofi_imms *imms, uint64_t *ret_at) {
    uint64_t at = atomic_load_explicit(&imms->tail, memory_order_relaxed);
    for (;;) { /* ends: each lost race is another thread's success, until the queue is full */
        struct ofi_imm_cell *cell = &imms->cells[at % REMO__OFI_IMMS_MAX];
        uint64_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
        if (turn < at)
            return false;
        if (turn > at) {
            at = atomic_load_explicit(&imms->tail, memory_order_relaxed);
            continue;
        }
        if (atomic_compare_exchange_weak_explicit(&imms->tail, &at, at + 1, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            *ret_at = at;
            return true;
        }
    }
}

void remo__ofi_imms_fill(struct ofi_imms *imms, uint64_t at, uint32_t peer, uint32_t cut_off_count,
                         uint32_t value) {
    struct ofi_imm_cell *cell = &imms->cells[at % REMO__OFI_IMMS_MAX];
    cell->imm = (struct remo__imm){.peer = peer, .value = value};
    cell->cut_off_count = cut_off_count;
    atomic_store_explicit(&cell->turn, at + 1, memory_order_release);
}

void remo__ofi_imms_notify(struct ofi_imms *imms) {
    remo__mapped_fence(); /* pairs with the sleeper's: it counts itself before its last check */
    if (atomic_load_explicit(&imms->bell.sleepers, memory_order_relaxed) != 0)
        remo__doorbell_notify(&imms->bell);
}

static bool imms_empty(struct ofi_imms *imms) {
    uint64_t head = imms->head;
    return atomic_load_explicit(&imms->cells[head % REMO__OFI_IMMS_MAX].turn, memory_order_acquire)
           != head + 1;
}

uint32_t remo__ofi_imms_take(struct ofi_imms *imms, struct remo__imm *ret_imms, uint32_t max) {
    uint32_t count = 0;
    while (count < max && !imms_empty(imms)) {
        struct ofi_imm_cell *cell = &imms->cells[imms->head % REMO__OFI_IMMS_MAX];
        if (cell->cut_off_count
            == atomic_load_explicit(&imms->cut_off_counts[cell->imm.peer], memory_order_acquire))
            ret_imms[count++] = cell->imm;
        atomic_store_explicit(&cell->turn, imms->head + REMO__OFI_IMMS_MAX, memory_order_release);
        imms->head++;
    }
    return count;
}

void remo__ofi_imms_wait(struct ofi_imms *imms, uint64_t timeout_ns) {
    uint32_t seen = atomic_load(&imms->bell.seq);
    remo__doorbell_add_sleeper(&imms->bell);
    if (imms_empty(imms) && !atomic_load(&imms->woken))
        remo__doorbell_sleep(&imms->bell, seen, timeout_ns);
    atomic_fetch_sub(&imms->bell.sleepers, 1);
    atomic_store(&imms->woken, 0);
}

void remo__ofi_imms_wake(struct ofi_imms *imms) {
    atomic_store(&imms->woken, 1);
    remo__doorbell_notify(&imms->bell);
}
