/* pages.c - implements pages.h.
 * Invariant: map and unmap round the size in the same way. */
#include "base/pages.h"

#include <stddef.h>
#include <sys/mman.h>

#include "base/bits.h"

#define PAGE_BYTES UINT64_C(4096)
#ifdef REMO_SIM_SMALL
#define HUGE_PAGE_BYTES PAGE_BYTES /* the simulator copies the memory for each schedule */
#else
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#endif

static uint64_t round_up(uint64_t bytes) {
    return remo__align_up(bytes, bytes < HUGE_PAGE_BYTES / 2 ? PAGE_BYTES : HUGE_PAGE_BYTES);
}

void *remo__pages_map(uint64_t bytes) {
    uint64_t mapped = round_up(bytes);
    void *pages = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    if (mapped >= HUGE_PAGE_BYTES)
        (void)madvise(pages, mapped, MADV_HUGEPAGE); /* an error means small pages, which also work */
    return pages;
}

void remo__pages_unmap(void *pages, uint64_t bytes) {
    if (pages)
        munmap(pages, round_up(bytes));
}
