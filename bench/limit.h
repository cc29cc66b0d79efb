/* limit.h - what this machine can do at best, measured in the process and on the mapping of a benchmark.
 *
 * A figure of a benchmark means little alone; beside the cheapest thing the hardware offers for the same
 * job it says how much the library adds. Each function runs its operation in short batches (a batch is far
 * shorter than a time slice, so that other load hits few of them) and returns the median over the batches,
 * in nanoseconds per operation; or 0 when it could not be measured (no memory, a processor that does not
 * exist). Each takes less than 200 ms, and less than 20 ms is enough for most. None needs another thread of
 * the caller.
 *
 * The mapping must be readable, writable and already touched: page faults are not what is measured.
 * Functions that take `void *line` use the 256 bytes at `line`, which must be 64-byte aligned, and leave
 * other values in them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Names, as `remo bench` prints them. */
#define LIMIT_LOAD "load 8 B from the same mapping"
#define LIMIT_FETCH_ADD "fetch-add, uncontended"
#define LIMIT_COMPARE_SWAP "compare-swap, uncontended"
#define LIMIT_STORE_FENCE "store 8 B and full fence"
#define LIMIT_LOCK "lock and unlock, uncontended"
#define LIMIT_FETCH_ADD_CONTENDED "fetch-add, contended by 2"
#define LIMIT_LOCK_CONTENDED "lock and unlock, contended by 2"
#define LIMIT_PINGPONG_1 "ping-pong round trip over one line"
#define LIMIT_PINGPONG_2 "ping-pong round trip over two lines"
#define LIMIT_BARRIER "barrier of 2 by two flags"
#define LIMIT_NAME_BYTES 80
#define LIMIT_LINE_BYTES 256

/* "memcpy 4 KiB from the same mapping", "memcpy 4 KiB at random offsets of the same mapping",
 * "transfer between 2 of 100 M accounts, no lock". */
void limit_memcpy_name(size_t size_bytes, char ret_name[LIMIT_NAME_BYTES]);
void limit_memcpy_random_name(size_t size_bytes, char ret_name[LIMIT_NAME_BYTES]);
void limit_transfer_name(size_t accounts_count, char ret_name[LIMIT_NAME_BYTES]);

/* One 8-byte load, the compiler knowing the size; a copy whose size is known at run time only, as behind any
 * interface that takes a length, always from the same place (hot), or from a new random place each time
 * (aligned to the size, at most to a line). */
double limit_load_ns(const void *mapping);
double limit_memcpy_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes);
double limit_memcpy_random_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes);

/* On one word that no other processor uses. The lock is the least one: a compare-swap, a release store. */
double limit_fetch_add_ns(void *line);
double limit_compare_swap_ns(void *line);
double limit_store_fence_ns(void *line);
double limit_lock_ns(void *line);

/* Two threads, pinned to `cpu_a` and `cpu_b`, which may be the same processor (they then yield to each
 * other). The contended ones are time per operation of one side while the other does the same; the lock
 * tests before it sets and guards one read-modify-write, so that it is the limit of the accounts benchmark
 * with one lock. A processor that other programs keep busy shows here. */
double limit_fetch_add_contended_ns(void *line, int cpu_a, int cpu_b);
double limit_lock_contended_ns(void *line, int cpu_a, int cpu_b);
double limit_pingpong_ns(void *line, int cpu_a, int cpu_b, int lines_count);
double limit_barrier_ns(void *line, int cpu_a, int cpu_b);

/* An amount moved between two random 8-byte accounts without any lock; keeps their sum. */
double limit_transfer_ns(uint64_t *accounts, size_t accounts_count);

struct limit_place {
    void *mapping; /* at least LIMIT_LINE_BYTES; its first LIMIT_LINE_BYTES are overwritten */
    size_t mapping_bytes;
    int cpu_a, cpu_b;   /* for those that need two threads */
    uint64_t *accounts; /* NULL: leave the transfer out. May lie in the mapping, behind its first line. */
    size_t accounts_count;
};

/* Measure all of them, and call `each` with the name and the figure of one as soon as it is known. A memcpy
 * that is larger than the mapping is left out. Takes about a second. Returns 0, -EINVAL for a mapping that
 * is too small or not aligned, or -EIO when one of them could not be measured (the others are still
 * reported). */
int limit_list(const struct limit_place *place, void (*each)(void *ctx, const char *name, double ns),
               void *ctx);
