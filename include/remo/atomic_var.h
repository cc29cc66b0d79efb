/* atomic_var.h - words that any node reads and changes atomically: one word, or an array.
 *
 * Model:   `count` words of 8 bytes, initially zero. With one word, or REMO_ATOMIC_VAR_AT_HOME, all
 *          words are at `home`. With REMO_ATOMIC_VAR_STRIPED, word i is at the (i mod n)-th of n
 *          participants.
 * Layout:  8-byte words. Word i is the i-th word of its home's memory (striped: the (i / n)-th).
 * Cost:    load = 1 read; fetch_add, compare_swap = 1 atomic; store, exchange = 1 read + 1 atomic.
 *          store and exchange take 1 more atomic each time another node changes the word between
 *          these two.
 * Order:   linearizable. Words change by network atomics only, even at their home.
 * Caches:  without hardware coherence (see region.h) open returns -EOPNOTSUPP.
 * Failure: -EHOSTDOWN when the home has failed; the outcome of the operation is unknown.
 * Threads: any, concurrently.
 * Source:  LOCO 5.1.1. Differs in: store and exchange use compare-and-swap, since network atomics
 *          offer no store; no cached copies (owned_var has them).
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

struct remo_atomic_var;

enum remo_atomic_var_place { REMO_ATOMIC_VAR_AT_HOME, REMO_ATOMIC_VAR_STRIPED };

struct remo_atomic_var_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint64_t count;                   /* default 1 */
    enum remo_atomic_var_place place;
    uint32_t home; /* a participant; default 0 */
};

/* Open the words `name` below `parent`. The options are the same on every participant; NULL means
 * the defaults. Does not wait for peers to open. Errors: those of remo_region_open. */
REMO_API int remo_atomic_var_open(struct remo_channel *parent, const char *name,
                                  const struct remo_atomic_var_options *options,
                                  struct remo_atomic_var **ret_var);
/* Close the object; NULL has no effect. */
REMO_API void remo_atomic_var_close(struct remo_atomic_var *var);
REMO_API struct remo_channel *remo_atomic_var_channel(struct remo_atomic_var *var);

/* Read word `index`, add to it, or replace it by `desired` if it equals `expected`. *ret_old is the
 * value before the change: compare_swap has swapped if it equals `expected`. `ret_old` may be NULL
 * except in compare_swap. With ack = NULL the call blocks until the result is in place, up to
 * op_timeout_ns; see region.h.
 * Errors:
 *   -EINVAL     there is no such word, or a pointer is NULL
 *   -EHOSTDOWN  the home has failed
 *   -ENOTCONN   the home has closed the object
 *   -ETIMEDOUT  the home did not answer, or has not opened the object */
REMO_API int remo_atomic_var_load(struct remo_atomic_var *var, uint64_t index, uint64_t *ret_value,
                                  struct remo_ack *ack);
REMO_API int remo_atomic_var_fetch_add(struct remo_atomic_var *var, uint64_t index, uint64_t addend,
                                       uint64_t *ret_old, struct remo_ack *ack);
REMO_API int remo_atomic_var_compare_swap(struct remo_atomic_var *var, uint64_t index, uint64_t expected,
                                          uint64_t desired, uint64_t *ret_old, struct remo_ack *ack);
/* Set word `index` to `value`. Lock-free. Also returns -ETIMEDOUT after a million attempts, each of
 * which failed because another node changed the word. Other errors as above. */
REMO_API int remo_atomic_var_store(struct remo_atomic_var *var, uint64_t index, uint64_t value);
/* As store; *ret_old is the previous value. */
REMO_API int remo_atomic_var_exchange(struct remo_atomic_var *var, uint64_t index, uint64_t value,
                                      uint64_t *ret_old);

REMO_END
