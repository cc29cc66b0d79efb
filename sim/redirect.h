/* redirect.h - included before every library file that is compiled for the simulator. Memory comes
 * from the simulated heap, threads and mutexes are contexts, and external inputs (environment,
 * random numbers, mappings) are replaced. */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "sim/memory/heap.h"
#include "sim/redirect_threads.h"

#define malloc(bytes) sim_malloc(bytes)
#define calloc(count, bytes) sim_calloc(count, bytes)
#define realloc(at, bytes) sim_realloc(at, bytes)
#define aligned_alloc(alignment, bytes) sim_aligned_alloc(alignment, bytes)
#define strdup(text) sim_strdup(text)
/* Not a macro with an argument: `free` is the name of a member too. */
#define free sim_free
#define mmap(at, bytes, protection, flags, fd, offset) sim_mmap(bytes)
#define munmap(at, bytes) sim_munmap(at, bytes)
