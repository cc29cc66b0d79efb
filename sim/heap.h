/* heap.h - all memory of the simulated world, in one range: a schedule can begin where the last one began.
 *
 * Model:   blocks of some sizes from one range that only grows; its own notes lie in it too. sim_heap_save
 *          copies what is in use, sim_heap_restore copies it back; arenas (network memory) are saved as far
 *          as they are in use.
 * Cost:    restore = one memcpy of what is in use, about 10 GB/s.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef SIM_TIMED /* many nodes, of full size */
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

/* Address space for an arena, zero; not part of the heap proper. Of it the first `used` bytes are saved; 0
 * until said. */
char *sim_heap_arena(size_t bytes);
void sim_heap_arena_used(const char *arena, size_t used);

/* A range whose content matters from `from` to `to` at the moment of the save (a stack). */
struct sim_extent {
    char *from;
    size_t bytes;
};

void sim_heap_save(const struct sim_extent *extras, uint32_t extras_count);
void sim_heap_restore(void);
/* Bytes that a restore copies. */
size_t sim_heap_saved_bytes(void);
/* Blocks in use: for leak checks. */
uint64_t sim_heap_blocks(void);
/* So many so far. */
uint64_t sim_heap_allocations(void);
