/* cases.c - all cases, object by object. */
#include "sim/case.h"

#define CASES(X)                                                                                              \
    X(refusals) X(publish_pair) X(publish_thread) X(publish_global) X(counter) X(word) X(owned_var) X(owned_var_wait)     \
    X(sst) X(sst_readers) X(barrier) X(barrier_crash) X(lock) X(lock_elsewhere) X(lock_threads)               \
    X(lock_late) X(lock_timed) X(lock_laps) X(lock_turns)X(ringbuffer) X(queue) X(queue_threads) X(queue_wait) X(kv_updates)           \
    X(kv_lives) X(kv_threads)

#define DECLARE(name) extern const struct sim_case sim_case_##name;
CASES(DECLARE)

#define ENTRY(name) &sim_case_##name,
const struct sim_case *const sim_cases[] = {CASES(ENTRY)};
const uint32_t sim_cases_count = sizeof sim_cases / sizeof sim_cases[0];
