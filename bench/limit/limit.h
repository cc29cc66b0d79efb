/* limit.h - the limits of this machine, measured in the process and on the mapping of a benchmark.
 *
 * The limit beside a figure shows how much time the library adds. Each function runs its operation in short
 * batches and returns the median over the batches, in nanoseconds per operation. A batch is far shorter than
 * a time slice, so other load hits few of them. The result is 0 if the limit could not be measured: no
 * memory, or a processor that does not exist. Each function takes less than 500 ms, most less than 20 ms.
 * None needs another thread of the caller.
 *
 * The mapping must be readable, writable and already touched, so that page faults are not measured.
 * Functions that take `void *line` overwrite the 256 bytes at `line`, which must be 64-byte aligned. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Names, as printed by `remo bench`. */
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
#define LIMIT_RING_MESSAGE_BYTES 64
#define LIMIT_WAKE "wake-up of a sleeping thread, there and back"
#define LIMIT_WAKE_POLLED "wake-up of a sleeping thread, its answer polled"
#define LIMIT_EXCHANGE_BYTES 32
#define LIMIT_SEALED_BYTES 128
#define LIMIT_UNSEALED_BYTES 24 /* of them: two versions and the seal */
#define LIMIT_SEALED_BYTES_MAX 4096
#define LIMIT_IN_FLIGHT_MAX 64
#define LIMIT_NAME_BYTES 80
#define LIMIT_LINE_BYTES 256

/* Format the names "memcpy 4 KiB from the same mapping", "memcpy 4 KiB at random offsets of the same
 * mapping", "copy and hash 128 B at random offsets, 8 in flight", "ring of 1 sender and 1 receiver, 64 B",
 * "exchange of 32 B through slots, window 16" and "transfer between 2 of 100 M accounts, no lock". */
void limit_memcpy_name(size_t size_bytes, char ret_name[LIMIT_NAME_BYTES]);
void limit_memcpy_random_name(size_t size_bytes, char ret_name[LIMIT_NAME_BYTES]);
void limit_read_sealed_name(size_t size_bytes, size_t in_flight, char ret_name[LIMIT_NAME_BYTES]);
void limit_ring_name(size_t message_bytes, char ret_name[LIMIT_NAME_BYTES]);
void limit_exchange_name(size_t size_bytes, size_t window, char ret_name[LIMIT_NAME_BYTES]);
void limit_transfer_name(size_t accounts_count, char ret_name[LIMIT_NAME_BYTES]);

/* One 8-byte load of a size known to the compiler; copies of a size known only at run time, always
 * from the same place (hot), or from random places aligned to the size, at most to a line. A copy
 * is one memcpy, or several of 2 KiB where these are faster. */
double limit_load_ns(const void *mapping);
double limit_memcpy_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes);
double limit_memcpy_random_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes);

/* Copy `size_bytes` (LIMIT_UNSEALED_BYTES to LIMIT_SEALED_BYTES_MAX) from a random line, and hash the sealed
 * bytes of the copy: the least that a reader of an item with a seal does. Each line depends on the reads
 * before its prefetch. So with 1 in flight (at most LIMIT_IN_FLIGHT_MAX) the reads do not overlap. */
double limit_read_sealed_ns(const void *mapping, size_t mapping_bytes, size_t size_bytes, size_t in_flight);

/* Operations on one word that no other processor uses. The lock is a compare-swap and a release
 * store. */
double limit_fetch_add_ns(void *line);
double limit_compare_swap_ns(void *line);
double limit_store_fence_ns(void *line);
double limit_lock_ns(void *line);

/* Two threads, pinned to `cpu_a` and `cpu_b`. On one processor they yield to each other. The contended
 * functions return the time per operation of one side while the other does the same. The lock tests before
 * it sets, and guards one read-modify-write. On two processors, only batches count during which the other
 * side worked. Load by other programs shows here. */
double limit_fetch_add_contended_ns(void *line, int cpu_a, int cpu_b);
double limit_lock_contended_ns(void *line, int cpu_a, int cpu_b);
double limit_pingpong_ns(void *line, int cpu_a, int cpu_b, int lines_count);
double limit_barrier_ns(void *line, int cpu_a, int cpu_b);

/* The same for messages of a size of at least 8 bytes, streamed through a ring by plain stores: the time per
 * message of the sender. Each side publishes its index once per batch of messages, or once per message if
 * they are long, and has its own line for it. The receiver copies and checks each message; the result is 0 if
 * one was wrong. */
double limit_ring_ns(void *line, size_t message_bytes, int cpu_a, int cpu_b);

/* Send a message of `size_bytes` (at least 8) through a slot of `window`, and receive one of that size
 * through another slot: the least that a remote procedure call does if both sides poll. Each side copies
 * the message, publishes it by one store, and then, once per half a window, makes a full fence and reads
 * whether the other side sleeps. The window is kept at least half full. The result is 0 if a message was
 * wrong. */
double limit_exchange_ns(size_t size_bytes, size_t window, int cpu_a, int cpu_b);

/* Wake the other thread, which sleeps in a futex, and sleep until it wakes this one, or poll its answer.
 * Each operation follows a pause of LIMIT_WAKE_PAUSE_NS, which is not counted: the processor of the
 * sleeping thread is then idle. Only operations count in which both threads slept; or the other one, if
 * this one polls or both share a processor. */
#define LIMIT_WAKE_PAUSE_NS 200000
double limit_wake_ns(void *line, int cpu_a, int cpu_b);
double limit_wake_polled_ns(void *line, int cpu_a, int cpu_b);

/* Move amounts between two random 8-byte accounts without a lock; their sum is kept. */
double limit_transfer_ns(uint64_t *accounts, size_t accounts_count);

struct limit_place {
    void *mapping; /* its first LIMIT_LINE_BYTES are overwritten */
    size_t mapping_bytes;
    int cpu_a, cpu_b;   /* for limits with two threads */
    uint64_t *accounts; /* NULL: skip the transfer; may lie in the mapping, behind its first line */
    size_t accounts_count;
};

/* Measure all limits, and call `each` with the name and figure of each. A memcpy larger than the mapping is
 * skipped. Takes about a second.
 * Errors: -EINVAL (mapping too small or not aligned), -EIO (one limit could not be measured; all others are
 * reported). */
int limit_list(const struct limit_place *place, void (*each)(void *ctx, const char *name, double ns),
               void *ctx);
