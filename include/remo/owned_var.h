/* owned_var.h - a register of any size with one writer and a cached copy at every participant.
 *
 * Model:   the owner holds the value; every participant holds a copy. The owner pushes to one or all; others
 *          pull. Zero at the beginning.
 * Layout:  two slots of {u64 sequence, u64 checksum over sequence and value, value}, written in turn, so that
 *          a torn one is recognised and the other one is still whole. Values up to 16 bytes: one cache line.
 * Cost:    store, load: none. push: 1 write of a slot per target (woken when asleep). pull: 1 read of both
 *          slots per attempt; a second attempt only when the owner was storing during the first. What is
 *          larger than 8 KiB may be split, as region.h says.
 * Order:   regular register: load returns a value that is not older than the last push that was placed here,
 *          and pull one that is not older than the last store before it. Pushed or pulled, by whichever
 *          thread, what is known on a node never goes back to an older value.
 * Caches:  works where no hardware keeps them coherent (see region.h): each line has one writer.
 * Failure: no slot whole in REMO_OWNED_VAR_RETRIES attempts: -EAGAIN, and the caller's memory is untouched. A
 *          dead owner: pull gives -EHOSTDOWN, and the copy stays readable, even when it died in the middle of
 *          a push. A node that opens late knows nothing until a push or a pull.
 * Threads: load, pull, wait_change: any, at the same time. store, push: one at a time.
 * Source:  LOCO 5.1.1. Differs in: the sequence is under the checksum, so that an old copy cannot pass for a
 *          new one; two slots, so that readers depend neither on the writer's speed nor on its life; words
 *          carry a sequence too, because a bare word cannot tell a push that was late from a pull that was
 *          newer (rows of an SST are never pulled: there a word is a word).
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

/* Size and owner must be the same on every participant. Errors: those of remo_region_open. */
REMO_API int remo_owned_var_open(struct remo_channel *parent, const char *name, size_t value_bytes,
                                 const struct remo_owned_var_options *options,
                                 struct remo_owned_var **ret_var);
REMO_API void remo_owned_var_close(struct remo_owned_var *var);
REMO_API struct remo_channel *remo_owned_var_channel(struct remo_owned_var *var);

/* Owner: set the value here. Nobody else sees it before a push or a pull. Errors: -EPERM (not the owner). */
REMO_API int remo_owned_var_store(struct remo_owned_var *var, const void *value);
/* The value as known here. Never touches the network. Errors: -EAGAIN (torn). */
REMO_API int remo_owned_var_load(struct remo_owned_var *var, void *ret_value);
/* Owner: write the value to `node`, or to every other participant that lives; one that has not opened the
 * variable yet is waited for. Pushed, it is placed after the next fence. Errors: -EPERM, -EINVAL, -ETIMEDOUT;
 * push alone: -EHOSTDOWN, -ENOTCONN. */
REMO_API int remo_owned_var_push(struct remo_owned_var *var, uint32_t node, struct remo_ack *ack);
REMO_API int remo_owned_var_push_all(struct remo_owned_var *var, struct remo_ack *ack);
/* Read the owner's value into the copy here and into `ret_value` (may be NULL). Errors: -EHOSTDOWN,
 * -ENOTCONN, -ETIMEDOUT, -EAGAIN (torn). */
REMO_API int remo_owned_var_pull(struct remo_owned_var *var, void *ret_value);
/* Until the copy here differs from `than`. A push or another thread's pull wakes it; a store of the owner is
 * seen there with its next push, or within 20 ms. `ret_value` may be NULL, or `than`.
 * Errors: -ETIMEDOUT, -EHOSTDOWN and -ENOTCONN (owner). */
REMO_API int remo_owned_var_wait_change(struct remo_owned_var *var, const void *than, void *ret_value,
                                        uint64_t timeout_ns);

REMO_END
