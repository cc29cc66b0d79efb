/* merge.c - updates of one key in a window, on a network: a worker makes one of them, and the others are
 * merged into it. Otherwise each would wait for the lock, and for the write of the one before.
 * Invariant: an update is merged only before the worker chooses the value, and before it releases the lock if
 * the key is absent. So the write, or the search without a result, takes effect between the start and the end
 * of all these updates. "Windows" in docs/internals/kv.md. */
#include "systems/kv/kv.h"

void remo__kv_offer_update(struct remo__kv_thread *own, struct remo_kv_op *op) {
    if (op->kind != REMO_KV_UPDATE)
        return;
    own->update = op;
    own->window->updates[remo__kv_op_state(op)->hash % REMO__KV_UPDATES] = own;
}

static bool have_same_key(struct remo_kv_op *a, struct remo_kv_op *b) {
    return remo__kv_op_state(a)->hash == remo__kv_op_state(b)->hash && a->key_bytes == b->key_bytes
           && memcmp(a->key, b->key, a->key_bytes) == 0;
}

/* The worker may have ended since, or work for another window. */
bool remo__kv_try_merge(struct remo__kv_thread *mine, struct remo_kv_op *op) {
    struct remo__kv_op_state *state = remo__kv_op_state(op);
    struct remo__kv_thread *own = mine->updates[state->hash % REMO__KV_UPDATES];
    if (op->kind != REMO_KV_UPDATE || !own || own->window != mine || !own->update
        || !have_same_key(own->update, op))
        return false;
    state->step = REMO__KV_STEP_MERGED;
    state->next_change = NULL;
    if (own->last_merged)
        remo__kv_op_state(own->last_merged)->next_change = op;
    else
        own->first_merged = op;
    own->last_merged = op;
    return true;
}

struct remo_kv_op *remo__kv_choose_update(struct remo__kv_thread *own, struct remo_kv_op *op) {
    if (own->update != op)
        return op;
    own->update = NULL;
    return own->last_merged ? own->last_merged : op;
}

struct remo_kv_op *remo__kv_take_merged(struct remo__kv_thread *own) {
    struct remo_kv_op *first = own->first_merged;
    own->update = own->first_merged = own->last_merged = NULL;
    return first;
}
