/* claim.c - precedence of transactions that were in conflict often (docs/internals/tx.md, Precedence): they
 * claim their keys at the owners. Both sides, and the clock of ages.
 * Invariant: an owner replaces a claim by adding the new entries first, so a key that both have stays
 * claimed. */
#include <errno.h>

#include "systems/tx/finish.h"
#include "systems/tx/steps.h"

/* ---- ages ---- */

/* A Lamport clock: a transaction that claims keys after this node has received a claim, or a reply to one of
 * its claims, is younger than that claim. */
static uint64_t new_age(struct remo__tx_node *node) {
    return atomic_fetch_add(&node->claim_clock, 1) + 1;
}

static void advance_clock(struct remo__tx_node *node, uint64_t age) {
    uint64_t was = atomic_load(&node->claim_clock);
    while (was < age && !atomic_compare_exchange_weak(&node->claim_clock, &was, age))
        continue;
}

/* ---- the owner's side; the mutex of the peer is held ---- */

static void remove_set(struct remo__tx_claim_set *set) {
    for (uint32_t i = 0; i < set->count; i++)
        remo__key_claim_remove(&set->entries[i]);
    set->count = 0;
}

struct adding {
    struct remo__tx_claim_set *set;
    bool is_preceded;
};

/* Claim all keys of a request. The mutexes of the groups are held. */
static enum remo__tx_answer add_entries(struct remo__tx_steps *steps, void *ctx) {
    struct adding *adding = ctx;
    struct remo__tx_claim_set *set = adding->set;
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->step[i].op != REMO__TX_CHECK && steps->step[i].op != REMO__TX_KEEP)
            return REMO__TX_ANSWER_MALFORMED;
    for (uint32_t i = 0; i < steps->count; i++) {
        const struct remo__tx_step *step = &steps->step[i];
        bool changes = step->op == REMO__TX_KEEP;
        set->entries[i] = (struct remo__key_claim_entry){.group = step->group,
                                                         .claim = &set->claim,
                                                         .hash = step->key.hash,
                                                         .changes = changes,
                                                         .is_for_group = step->condition == REMO__TX_ABSENT};
        remo__key_claim_add(&set->entries[i]);
        adding->is_preceded |= remo__key_claim_precedes(step->group, step->key.hash, set->claim.space,
                                                        set->claim.claimant, changes);
    }
    set->count = steps->count;
    return REMO__TX_ANSWER_DONE;
}

static int claim_keys(struct remo_tx_space *space, uint32_t node, const struct remo__tx_claim_request *header,
                      const char *items, size_t bytes, struct remo__tx_claim_reply *ret_reply) {
    struct remo__tx_peer *peer = &space->peers[node];
    struct remo__tx_claim *claim = &peer->claims[header->number];
    struct remo__tx_claim_set *set = &claim->sets[!claim->current];
    struct adding adding = {.set = set};
    struct remo__tx_steps steps;
    if (atomic_load(&peer->is_cut_off) || atomic_load(&space->is_closing))
        return -ENOTCONN;
    set->claim = (struct remo__key_claim){.space = space,
                                          .claimant = remo__tx_claimant(node, header->number),
                                          .age = header->age,
                                          .ends_at_ns = remo__now_ns() + REMO__TX_CLAIM_NS,
                                          .losses = &peer->losses,
                                          .losses_before = atomic_load(&peer->losses)};
    enum remo__tx_answer answer = remo__tx_steps_run(space, items, bytes, add_entries, &adding, &steps);
    if (answer == REMO__TX_ANSWER_DONE) {
        remove_set(&claim->sets[claim->current]);
        claim->current = !claim->current;
    }
    ret_reply->is_preceded = adding.is_preceded;
    return (int)answer;
}

static void remove_claim(struct remo__tx_claim *claim) {
    remove_set(&claim->sets[0]);
    remove_set(&claim->sets[1]);
}

/* ---- CLAIM and UNCLAIM ---- */

/* Execute a CLAIM of `node`. The message must not change during the call. */
static int execute_claim(struct remo_tx_space *space, uint32_t node, const char *message, size_t bytes,
                         struct remo__tx_claim_reply *ret_reply) {
    struct remo__tx_claim_request header;
    if (bytes < sizeof header)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(&header, message, sizeof header);
    if (header.number >= REMO__TX_CLAIMS_MAX || header.age >= REMO__TX_AGE_MAX)
        return REMO__TX_ANSWER_MALFORMED;
    advance_clock(space->shared, header.age);
    ret_reply->clock = atomic_load(&space->shared->claim_clock);
    pthread_mutex_lock(&space->peers[node].mutex);
    int answer = claim_keys(space, node, &header, message + sizeof header, bytes - sizeof header, ret_reply);
    pthread_mutex_unlock(&space->peers[node].mutex);
    return answer;
}

static void execute_unclaim(struct remo_tx_space *space, uint32_t node, uint32_t number) {
    pthread_mutex_lock(&space->peers[node].mutex);
    remove_claim(&space->peers[node].claims[number]);
    pthread_mutex_unlock(&space->peers[node].mutex);
}

int remo__tx_handle_claim(void *ctx, const struct remo_rpc_request *request) {
    char copy[REMO_RPC_BYTES_MAX]; /* the caller could change the request in its ring */
    struct remo__tx_claim_reply reply = {0};
    if (request->bytes > sizeof copy)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(copy, request->data, request->bytes);
    int answer = execute_claim(ctx, request->node, copy, request->bytes, &reply);
    return answer == REMO__TX_ANSWER_DONE ? remo_rpc_reply(request, answer, &reply, sizeof reply) : answer;
}

int remo__tx_handle_unclaim(void *ctx, const struct remo_rpc_request *request) {
    struct remo__tx_claim_request header;
    if (request->bytes != sizeof header)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(&header, request->data, sizeof header);
    if (header.number >= REMO__TX_CLAIMS_MAX)
        return REMO__TX_ANSWER_MALFORMED;
    execute_unclaim(ctx, request->node, header.number);
    return REMO__TX_ANSWER_DONE;
}

void remo__tx_stop_claims(struct remo_tx_space *space) {
    for (uint32_t node = 0; node < space->node->size; node++)
        for (uint32_t number = 0; number < REMO__TX_CLAIMS_MAX; number++)
            execute_unclaim(space, node, number);
}

/* ---- the node that runs the transaction ---- */

/* Take a number for the claims of a transaction, if one is free, and fix its age. */
static bool begin(struct remo_tx *tx) {
    _Atomic uint32_t *numbers = &tx->space->claim_numbers;
    uint32_t was = atomic_load(numbers), number;
    do {
        number = (uint32_t)__builtin_ctz(~was);
        if (number >= REMO__TX_CLAIMS_MAX)
            return false;
    } while (!atomic_compare_exchange_weak(numbers, &was, was | 1u << number));
    tx->claimant = remo__tx_claimant(tx->space->node->rank, number);
    tx->claim = (struct remo__tx_claim_request){.number = number, .age = new_age(tx->space->shared)};
    tx->claim_owners = (struct remo_nodeset){{0}};
    return true;
}

static int unclaim_at(struct remo_tx *tx, uint32_t node) {
    struct remo_tx_space *space = tx->space;
    if (node != space->node->rank)
        return remo_rpc_post_queued(space->rpc, node, REMO__TX_UNCLAIM, &tx->claim, sizeof tx->claim);
    execute_unclaim(space, node, tx->claim.number);
    return 0;
}

/* End the claims at the owners that are not in `owners`. The end of the transaction repeats an UNCLAIM that
 * could not be sent. An UNCLAIM ends no later claim with the same number: a message that is queued precedes
 * all calls that start later, and the last CLAIM before the UNCLAIM has ended, so the CLAIM is not queued any
 * more (docs/internals/rpc.md, Order). */
static void unclaim_except(struct remo_tx *tx, const struct remo_nodeset *owners) {
    for (uint32_t node = 0; node < tx->space->node->size; node++)
        if (remo_nodeset_has(&tx->claim_owners, node) && !remo_nodeset_has(owners, node)
            && unclaim_at(tx, node) == 0)
            remo_nodeset_remove(&tx->claim_owners, node);
}

/* Make the request for an owner. Keys that have no room in it are not claimed. */
static void make_request(struct remo__tx_commit *entry, const struct remo_tx *tx,
                         struct remo__tx_participant *owner) {
    struct remo__tx_request items = {0};
    size_t at = entry->requests_bytes, bytes = at + sizeof tx->claim + sizeof items;
    size_t end = remo__min(at + REMO_RPC_BYTES_MAX, sizeof entry->requests);
    for (uint32_t i = 0; i < tx->items_count; i++) {
        const struct remo__tx_item *item = &tx->items[i];
        enum remo__tx_op op = remo__tx_op_of(item) == REMO__TX_CHECK ? REMO__TX_CHECK : REMO__TX_KEEP;
        items.items +=
            item->owner == owner->node && remo__tx_append(tx, item, op, entry->requests, end, &bytes);
    }
    memcpy(entry->requests + at, &tx->claim, sizeof tx->claim);
    memcpy(entry->requests + at + sizeof tx->claim, &items, sizeof items);
    owner->request_at = at;
    owner->request_bytes = bytes - at;
    entry->requests_bytes = remo__align_up(bytes, 8);
}

/* Return whether an older transaction claims a key of this node. */
static bool claim_here(struct remo_tx_space *space, const struct remo__tx_commit *entry) {
    const struct remo__tx_participant *own = &entry->participants[0];
    struct remo__tx_claim_reply reply = {0};
    (void)execute_claim(space, own->node, entry->requests + own->request_at, own->request_bytes, &reply);
    return reply.is_preceded;
}

/* The same for another owner, whose call has ended. After an error it is unknown whether the keys are claimed
 * (returns false): the next attempt finds the cause. */
static bool end_call(struct remo_tx_space *space, const struct remo__tx_participant *owner) {
    struct remo__tx_claim_reply reply;
    if (owner->call.status != REMO__TX_ANSWER_DONE || owner->call.reply_bytes != sizeof reply)
        return false;
    memcpy(&reply, owner->reply, sizeof reply);
    if (reply.clock >= REMO__TX_AGE_MAX)
        return false;
    advance_clock(space->shared, reply.clock);
    return reply.is_preceded;
}

/* Claim the keys of all owners at the same time, as a commit lets them prepare. */
static bool claim_all(struct remo_tx *tx, struct remo__tx_commit *entry, uint64_t deadline_ns) {
    struct remo_tx_space *space = tx->space;
    struct remo_nodeset owners = {{0}};
    bool is_preceded = false;
    remo__tx_find_participants(entry, tx, REMO__TX_OWNERS_OF_ALL);
    if (entry->count > entry->is_own && remo__tx_check_waits(space) != 0)
        return false;
    for (uint32_t i = 0; i < entry->count; i++) {
        make_request(entry, tx, &entry->participants[i]);
        remo_nodeset_add(&owners, entry->participants[i].node);
        remo_nodeset_add(&tx->claim_owners, entry->participants[i].node);
    }
    remo__tx_start_calls(entry, REMO__TX_CLAIM,
                         remo__min(space->node->op_timeout_ns, remo__remaining_ns(deadline_ns)));
    if (entry->is_own)
        is_preceded = claim_here(space, entry);
    remo__tx_await_calls(entry);
    for (uint32_t i = entry->is_own; i < entry->count; i++)
        is_preceded |= end_call(space, &entry->participants[i]);
    unclaim_except(tx, &owners); /* the attempt has not used the others */
    return is_preceded;
}

bool remo__tx_claim(struct remo_tx *tx, uint64_t deadline_ns) {
    if (tx->claimant == 0 && !begin(tx))
        return false;
    struct remo__tx_commit *entry = remo__tx_try_take_entry(tx->space);
    if (!entry)
        return false;
    bool is_preceded = claim_all(tx, entry, deadline_ns);
    remo__tx_drop(entry);
    return is_preceded;
}

/* A post that cannot be sent is not repeated any more: claims have a time limit. */
void remo__tx_unclaim(struct remo_tx *tx) {
    if (remo__likely(tx->claimant == 0))
        return;
    unclaim_except(tx, &(struct remo_nodeset){{0}});
    tx->claimant = 0;
    atomic_fetch_and(&tx->space->claim_numbers, ~(1u << tx->claim.number));
}
