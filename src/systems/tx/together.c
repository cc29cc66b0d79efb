/* together.c - lookups of a transaction that are in flight at the same time: reads of places, and calls of
 * owners.
 * Invariant: all operations have ended when a function returns. */
#include "systems/tx/tx.h"

#define CALLS_MAX 16u

/* ---- reads ---- */

bool remo__tx_add_read(struct remo__tx_reads *reads, struct remo__tx_item *item,
                       const struct remo_structure_place *place) {
    if (place->bytes > sizeof reads->data - reads->bytes)
        return false;
    struct remo__tx_read *read = &reads->reads[reads->count++];
    *read = (struct remo__tx_read){.item = item, .place = *place, .data = reads->data + reads->bytes};
    reads->bytes += remo__align_up(place->bytes, REMO__CACHE_LINE);
    return true;
}

int remo__tx_read_all(const struct remo_tx *tx, struct remo__tx_reads *reads) {
    struct remo_node *node = tx->space->node;
    struct remo__thread *thread = remo__thread(node);
    struct remo_ack ack = {0};
    int rc = 0;
    if (!thread)
        return remo__last_code();
    remo__cork(thread);
    for (uint32_t i = 0; i < reads->count && rc == 0; i++) {
        const struct remo__tx_item *item = reads->reads[i].item;
        rc = remo__lookup_read(tx->space->structures[item->structure], item->owner, &reads->reads[i].place,
                               reads->reads[i].data, &ack);
    }
    remo__uncork(thread);
    int settled = remo__ack_settle(&ack, node->op_timeout_ns);
    return rc != 0 ? rc : settled;
}

/* ---- calls ---- */

/* Calls in flight. */
struct calls {
    uint32_t count;
    size_t bytes;
    struct remo__tx_item *items[CALLS_MAX];
    struct remo_rpc_op calls[CALLS_MAX];
    char data[REMO__TX_TOGETHER_BYTES];
};

/* Let the owner of one item look it up, and wait. */
static __attribute__((noinline)) int find_alone(struct remo_tx *tx, struct remo__tx_item *item,
                                                remo__tx_end_fn *end, void *ctx) {
    char value[REMO_ITEM_BYTES_MAX];
    struct remo__tx_found found = {.value = value};
    found.rc = remo__structure_find_by_owner(tx->space->structures[item->structure], item->owner, &item->key,
                                             value, sizeof value, &found.bytes, &found.evidence);
    return end(tx, item, &found, ctx);
}

/* Start calls for items of the set `left`, and remove these from it. Items whose calls cannot start move to
 * the set `alone`. */
static void start_calls(struct remo_tx *tx, struct calls *calls, uint64_t *left, uint64_t *alone) {
    calls->count = 0;
    calls->bytes = 0;
    while (*left != 0 && calls->count < CALLS_MAX) {
        struct remo__tx_item *item = &tx->items[__builtin_ctzll(*left)];
        struct remo_structure *structure = tx->space->structures[item->structure];
        size_t bytes = remo__align_up(remo__lookup_call_bytes(structure, &item->key), 8);
        if (bytes > sizeof calls->data - calls->bytes)
            return;
        uint64_t bit = *left & -*left;
        *left &= ~bit;
        if (remo__lookup_call_start(structure, item->owner, &item->key, calls->data + calls->bytes,
                                    &calls->calls[calls->count])
            != 0) {
            *alone |= bit;
            continue;
        }
        calls->items[calls->count++] = item;
        calls->bytes += bytes;
    }
}

static void await_calls(struct calls *calls) {
    struct remo_rpc_op *started[CALLS_MAX];
    for (uint32_t i = 0; i < calls->count; i++)
        started[i] = &calls->calls[i];
    (void)remo_rpc_wait_all(started, calls->count); /* not refused: no handler gets here */
}

static int end_call(struct remo_tx *tx, struct calls *calls, uint32_t index, remo__tx_end_fn *end,
                    void *ctx) {
    struct remo__tx_item *item = calls->items[index];
    struct remo__tx_found found = {0};
    found.rc = remo__lookup_call_end(tx->space->structures[item->structure], &item->key, &calls->calls[index],
                                     &found.value, &found.bytes, &found.evidence);
    return end(tx, item, &found, ctx);
}

static __attribute__((noinline)) int find_some(struct remo_tx *tx, uint64_t *left, uint64_t *alone,
                                               remo__tx_end_fn *end, void *ctx) {
    struct calls calls;
    int rc = 0;
    start_calls(tx, &calls, left, alone);
    await_calls(&calls);
    for (uint32_t i = 0; i < calls.count && rc == 0; i++)
        rc = end_call(tx, &calls, i, end, ctx);
    return rc;
}

/* Return the items of a set that this node owns. */
static uint64_t own_items(const struct remo_tx *tx, uint64_t set) {
    uint64_t own = 0;
    for (; set != 0; set &= set - 1)
        if (tx->items[__builtin_ctzll(set)].owner == tx->space->node->rank)
            own |= set & -set;
    return own;
}

/* A call that could not be started is made alone: it waits until it can, or returns the error. So is each
 * call in a SHORT handler: it returns -EDEADLK, and sends nothing. */
int remo__tx_find_by_owners(struct remo_tx *tx, uint64_t set, remo__tx_end_fn *end, void *ctx) {
    const struct remo__thread *thread = remo__thread(tx->space->node);
    if (!thread)
        return remo__last_code();
    uint64_t alone = own_items(tx, set), left = set & ~alone;
    int rc = 0;
    if ((left & (left - 1)) == 0 || thread->handling) {
        alone |= left;
        left = 0;
    }
    while (left != 0 && rc == 0)
        rc = find_some(tx, &left, &alone, end, ctx);
    for (; alone != 0 && rc == 0; alone &= alone - 1)
        rc = find_alone(tx, &tx->items[__builtin_ctzll(alone)], end, ctx);
    return rc;
}
