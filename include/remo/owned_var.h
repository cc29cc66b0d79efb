/* owned_var.h - a register of any size with one writer and a cached copy at every participant.
 *
 * Model:   the owner holds the value; every participant holds a copy. The owner pushes to one or all; others pull.
 * Layout:  up to 8 bytes: one aligned word. Larger: {u64 sequence, u64 checksum over sequence and value, value}, so that a torn
 *          copy is recognised and read again.
 * Cost:    store, load: none. push: 1 write per target (woken when asleep). pull: 1 read per attempt; a retry only when torn.
 * Order:   regular register; a copy never goes back to an older value. Up to 8 bytes: atomic by alignment.
 * Failure: load and pull of a value that stays torn for REMO_OWNED_VAR_RETRIES attempts: -EAGAIN (the last good value is untouched in
 *          `dst`). Dead owner: pull gives -EHOSTDOWN; the cached copy stays readable.
 * Source:  LOCO 5.1.1. Differs in: the sequence is under the checksum, so that an old copy cannot pass for a new one.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_OWNED_VAR_RETRIES 64u
#define REMO_OWNED_VAR_BYTES_MAX (1u << 20)

struct remo_owned_var;

struct remo_owned_var_options {
    struct remo_nodeset participants;
    uint32_t owner;
};

REMO_API int remo_owned_var_open(struct remo_channel *parent, const char *name, size_t value_bytes,
                                 const struct remo_owned_var_options *options, struct remo_owned_var **ret_var);
REMO_API void remo_owned_var_close(struct remo_owned_var *var);
REMO_API struct remo_channel *remo_owned_var_channel(struct remo_owned_var *var);

/* Owner: set the value here. Nobody else sees it before a push or a pull. Errors: -EPERM (not the owner). Threads: one at a time. */
REMO_API int remo_owned_var_store(struct remo_owned_var *var, const void *value);
/* The value as known here. Never touches the network. Errors: -EAGAIN (torn). */
REMO_API int remo_owned_var_load(struct remo_owned_var *var, void *ret_value);
/* Owner: write the value to `node`, or to every other live participant. Errors: -EPERM, -EHOSTDOWN, -ENOTCONN. */
REMO_API int remo_owned_var_push(struct remo_owned_var *var, uint32_t node, struct remo_ack *ack);
REMO_API int remo_owned_var_push_all(struct remo_owned_var *var, struct remo_ack *ack);
/* Read the owner's value into the copy here and into `ret_value` (may be NULL). */
REMO_API int remo_owned_var_pull(struct remo_owned_var *var, void *ret_value);
/* Until the copy here differs from `than`. Errors: -ETIMEDOUT, -EHOSTDOWN (owner). */
REMO_API int remo_owned_var_wait_change(struct remo_owned_var *var, const void *than, void *ret_value, uint64_t timeout_ns);

REMO_END
