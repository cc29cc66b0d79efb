/* atomic_var.h - words that any node reads and changes atomically: one, or an array striped over the nodes.
 *
 * Model:   `count` words of 8 bytes. With one word, or REMO_ATOMIC_VAR_AT_HOME, all live at `home`; with
 *          REMO_ATOMIC_VAR_STRIPED word i lives at the (i mod n)-th participant. Zero at the beginning.
 * Layout:  8-byte words; at its home word i stands at place i (striped: i / n).
 * Cost:    load = 1 read; fetch_add, compare_swap = 1 atomic; store, exchange = 1 read + 1 atomic, and 1
 *          atomic more for each time that another node changed the word in between.
 * Order:   linearizable. Words change by network atomics only, at home too.
 * Caches:  where no hardware keeps them coherent (see region.h), opening it gives -EOPNOTSUPP.
 * Failure: -EHOSTDOWN when the home died; the operation may have happened.
 * Threads: any, at the same time.
 * Source:  LOCO 5.1.1. Differs in: store and exchange are made of compare-swap, since no network atomic
 *          stores; no cached copies, since owned_var has them.
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

/* Options must be the same on every participant. Errors: those of remo_region_open. */
REMO_API int remo_atomic_var_open(struct remo_channel *parent, const char *name,
                                  const struct remo_atomic_var_options *options,
                                  struct remo_atomic_var **ret_var);
REMO_API void remo_atomic_var_close(struct remo_atomic_var *var);
REMO_API struct remo_channel *remo_atomic_var_channel(struct remo_atomic_var *var);

/* Errors: -EINVAL (index), -EHOSTDOWN, -ENOTCONN, -ETIMEDOUT. `ret_old` may be NULL except in compare_swap,
 * which has swapped if *ret_old is `expected`. With an ack: see region.h. */
REMO_API int remo_atomic_var_load(struct remo_atomic_var *var, uint64_t index, uint64_t *ret_value,
                                  struct remo_ack *ack);
REMO_API int remo_atomic_var_fetch_add(struct remo_atomic_var *var, uint64_t index, uint64_t addend,
                                       uint64_t *ret_old, struct remo_ack *ack);
REMO_API int remo_atomic_var_compare_swap(struct remo_atomic_var *var, uint64_t index, uint64_t expected,
                                          uint64_t desired, uint64_t *ret_old, struct remo_ack *ack);
/* Lock-free: -ETIMEDOUT only after a million attempts that others spoilt. */
REMO_API int remo_atomic_var_store(struct remo_atomic_var *var, uint64_t index, uint64_t value);
REMO_API int remo_atomic_var_exchange(struct remo_atomic_var *var, uint64_t index, uint64_t value,
                                      uint64_t *ret_old);

REMO_END
