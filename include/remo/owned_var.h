/* owned_var.h - a register of any size with one writer and a cached copy at every participant.
 *
 * Model:   the owner holds the value; every participant holds a copy. The owner pushes the value to
 *          one participant or to all; other participants pull it. Initially zero.
 * Layout:  two slots of {u64 sequence, u64 checksum over sequence and value, value}, written
 *          alternately. A reader detects a torn slot by its checksum and uses the other slot.
 *          Values up to 16 bytes: one cache line.
 * Cost:    store, load: none. push: 1 write of a slot per target (notify). pull: 1 read of both
 *          slots per attempt; a second attempt only after a store of the owner during the first.
 *          Data larger than 8 KiB may be split, as in region.h.
 * Order:   regular register. load returns a value not older than the last push that was placed
 *          here. pull returns a value not older than the last store before it. On each node the
 *          value never returns to an older one, across pushes, pulls and threads.
 * Caches:  works without hardware coherence (see region.h): each line has one writer.
 * Failure: -EAGAIN after REMO_OWNED_VAR_RETRIES torn reads; the caller's memory is unchanged. If
 *          the owner has failed, pull returns -EHOSTDOWN, and the copy stays readable, even after a
 *          failure during a push. A node that opens late has the value zero until a push or a pull.
 * Threads: load, pull, wait: any, concurrently. store, push: one at a time.
 * Source:  LOCO 5.1.1. Differs in: the checksum covers the sequence, so a stale copy is detected;
 *          two slots, so readers depend neither on the writer's speed nor on its survival; words
 *          carry a sequence too, because a bare word cannot order a late push and a newer pull.
 *          (Rows of an SST are never pulled, so there a word is bare.)
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_OWNED_VAR_RETRIES 64u
#define REMO_OWNED_VAR_BYTES_MAX (1u << 20)

struct remo_owned_var;

struct remo_owned_var_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint32_t owner;                   /* a participant; default 0 */
};

/* Open the variable `name` below `parent`; `options` may be NULL. `value_bytes` (at most
 * REMO_OWNED_VAR_BYTES_MAX) and the owner are the same on every participant. Does not wait for
 * peers to open.
 * Errors: those of remo_region_open. */
REMO_API int remo_owned_var_open(struct remo_channel *parent, const char *name, size_t value_bytes,
                                 const struct remo_owned_var_options *options,
                                 struct remo_owned_var **ret_var);
/* Close the variable; NULL has no effect. */
REMO_API void remo_owned_var_close(struct remo_owned_var *var);
REMO_API struct remo_channel *remo_owned_var_channel(struct remo_owned_var *var);

/* Owner: set the value. Other nodes get it by a push or a pull. Does not block.
 * Errors:
 *   -EPERM  this node is not the owner */
REMO_API int remo_owned_var_store(struct remo_owned_var *var, const void *value);
/* Copy the value from local memory. Does not block.
 * Errors:
 *   -EAGAIN  every attempt was a torn read */
REMO_API int remo_owned_var_load(struct remo_owned_var *var, void *ret_value);
/* Owner: write the value to `node`, or to all other participants that are up (push_all). The next
 * fence places it. Blocks for op_timeout_ns at most, while a participant has not opened the
 * variable.
 * Errors:
 *   -EPERM      this node is not the owner
 *   -EINVAL     `node` is not a participant
 *   -ETIMEDOUT  a participant has not opened the variable
 *   -EHOSTDOWN  push: `node` has failed
 *   -ENOTCONN   push: `node` has closed the variable */
REMO_API int remo_owned_var_push(struct remo_owned_var *var, uint32_t node, struct remo_ack *ack);
REMO_API int remo_owned_var_push_all(struct remo_owned_var *var, struct remo_ack *ack);
/* Read the owner's value into the local copy and into `ret_value` (may be NULL). Blocks for
 * op_timeout_ns at most for each attempt.
 * Errors:
 *   -EHOSTDOWN  the owner has failed
 *   -ENOTCONN   the owner has closed the variable
 *   -ETIMEDOUT  the owner does not answer, or has not opened the variable
 *   -EAGAIN     every attempt was a torn read */
REMO_API int remo_owned_var_pull(struct remo_owned_var *var, void *ret_value);
/* Wait until the local copy differs from `old`, and copy it to `ret_value` (may be NULL, or
 * `old`). A push, or a pull of another thread, wakes the caller. A wait at the owner detects
 * a store at the owner's next push, or within 20 ms. Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  the copy did not change
 *   -EHOSTDOWN  the owner has failed
 *   -ENOTCONN   the owner has closed the variable */
REMO_API int remo_owned_var_wait(struct remo_owned_var *var, const void *old, void *ret_value,
                                 uint64_t timeout_ns);

REMO_END
