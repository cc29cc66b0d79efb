/* heap.h - all memory of the simulated world in one range, so that a schedule can start from a saved state.
 *
 * Model:   blocks of fixed sizes in one range that only grows; the allocator's state lies in it too.
 *          sim_heap_save copies the used part; sim_heap_restore copies it back. Of arenas (network memory)
 *          the used part is saved.
 * Cost:    restore = one memcpy of the used part, about 10 GB/s. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef SIM_TIMED /* many nodes of full size */
#define SIM_HEAP_BYTES (64ull << 30)
#else
#define SIM_HEAP_BYTES (512ull << 20)
#endif

void sim_heap_open(void);
void sim_heap_close(void);

void *sim_malloc(size_t bytes);
void *sim_calloc(size_t count, size_t bytes);
void *sim_realloc(void *at, size_t bytes);
void *sim_aligned_alloc(size_t alignment, size_t bytes);
char *sim_strdup(const char *text);
void sim_free(void *at);
void *sim_mmap(size_t bytes);
int sim_munmap(void *at, size_t bytes);

/* Reserve zeroed address space for an arena, outside the heap proper. Its first `used` bytes are
 * saved; `used` is 0 until sim_heap_arena_used sets it. */
char *sim_heap_arena(size_t bytes);
void sim_heap_arena_used(const char *arena, size_t used);

/* A range outside the heap (a stack) that is saved and restored. */
struct sim_extent {
    char *from;
    size_t bytes;
};

void sim_heap_save(const struct sim_extent *extras, uint32_t extras_count);
void sim_heap_restore(void);
/* Return how many bytes a restore copies. */
size_t sim_heap_saved_bytes(void);
/* Return the number of blocks in use, for leak checks. */
uint64_t sim_heap_blocks(void);
/* Return the number of allocations so far. */
uint64_t sim_heap_allocations(void);
