/* threads_fence.h - an asymmetric memory fence: its caller executes it for all threads of the process,
 * or of several processes.
 *
 * Use:  a hot path stores A and then loads B, with a compiler fence between the two. A slow path stores B,
 *       calls remo__threads_fence, and then loads A. At least one of the loads returns the other's store, as
 *       if the hot path had a fence too. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

/* Execute a full memory fence on each running thread of the process. Cost: a system call of microseconds.
 * Returns false if the kernel has no such call; the caller's wait must then be bounded. */
bool remo__threads_fence(void);

/* The same for several processes of the machine. The processes of the hot paths register once; so does that
 * of the slow path, to find out whether the call works. Returns false if it does not; the hot paths then need
 * a fence. */
bool remo__machine_fence_register(void);
/* Execute a full memory fence on each running thread of all processes that have registered. Cost: a system
 * call of microseconds. It may fail if the kernel has no memory left: limit the time of the sleep that
 * follows. */
void remo__machine_fence(void);

/* The hot path's part: the compiler must not exchange the store and the load. */
static inline void remo__threads_fence_hot(void) {
    atomic_signal_fence(memory_order_seq_cst);
}
