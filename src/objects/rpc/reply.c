/* reply.c - replies to requests: at once, deferred, or by the node to which the request is forwarded.
 * Invariant: each request has at most one reply, and the reply is the last message into its slot, except the
 * notes of nodes that forwarded it. */
#include "base/relax.h"
#include "objects/rpc/rpc.h"

#define WRITE_TRIES 32u /* before a reply that cannot be posted is queued */

/* Return the word {u32 status, u32 lines}: the position up to which this node has consumed requests of
 * `node`, in lines. The request whose handler runs is not consumed yet. */
static uint64_t result_of(struct remo__rpc_transport *transport, uint32_t node, int status) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    uint64_t position = atomic_load_explicit(&peer->consumed, memory_order_acquire);
    if (position > atomic_load_explicit(&peer->credited, memory_order_relaxed))
        atomic_store_explicit(&peer->credited, position, memory_order_relaxed);
    return (uint32_t)status | position / REMO__RPC_LINE << 32;
}

/* ---- writing ---- */

static void mark_ended(const struct remo__rpc_transport *transport, uint32_t node, uint32_t slot) {
    char *state = (char *)(uintptr_t)remo__memory_mapped(transport->state, node, 0);
    if (state)
        (void)remo__rpc_set_bit(state, REMO__RPC_AT_ENDED, slot);
}

/* The head is stored last: it proves that the rest is complete. The reply counts before that. */
static void write_mapped(struct remo__rpc_transport *transport, struct remo__thread *thread,
                         uint32_t counters, uint32_t node, uint32_t slot, char *to, uint64_t head,
                         uint64_t result, const void *data, bool has_done) {
    size_t bytes = head & 0xffff;
    struct remo_stats *stats = &thread->stats[counters];
    remo__count(&stats->writes, 1);
    remo__count(&stats->imms, 1);
    remo__count(&stats->bytes, REMO__RPC_REPLY_BYTES + bytes);
    remo__copy_to(to + REMO__RPC_REPLY_BYTES, data, bytes);
    remo__store(to + 16, result);
    remo__store(to, head);
    if (remo__unlikely(has_done))
        mark_ended(transport, node, slot);
    if (remo__mapped_notify(&transport->node->fabric->peers[node]))
        thread->unfenced = false;
    if (remo__unlikely(has_done))
        remo__rpc_wake(transport, thread, node);
}

/* Write `image` into the slots of `node`, or queue it. Try several times first: another thread may use the
 * endpoint for a short time, and a queued write waits much longer, for the service thread. */
static int write_slots(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t counters,
                       uint32_t node, uint64_t offset, const void *image, size_t bytes, uint32_t immediate) {
    struct remo__ref ref;
    int rc = -ETIMEDOUT;
    if (remo__memory_find_now(transport->slots, thread, node, offset, &ref)) {
        ref.stats = &thread->stats[counters];
        for (uint32_t i = 0; i < WRITE_TRIES && rc == -ETIMEDOUT; i++) {
            rc = remo__rpc_try_write(transport, thread, ref, image, bytes, immediate);
            if (remo__unlikely(rc == -ETIMEDOUT))
                remo__relax();
        }
    }
    if (rc == 0)
        return 0;
    if (remo__is_departure(rc) || remo__rpc_has_departed(transport, node))
        return remo__fail(-EHOSTDOWN, "cannot reply to node %u: it has failed or left", node);
    return remo__rpc_queue_write(transport, thread, counters, node, offset, image, bytes, immediate);
}

static __attribute__((noinline)) int write_unmapped(struct remo__rpc_transport *transport,
                                                    struct remo__thread *thread, uint32_t counters,
                                                    const struct remo__rpc_words *words, uint64_t head,
                                                    uint64_t result, const void *data, bool has_done) {
    uint64_t image[REMO__RPC_REPLY_MAX / sizeof(uint64_t)];
    uint32_t slot = remo__rpc_slot(words->call), node = remo__rpc_origin(words->call);
    uint64_t key = remo__rpc_reply_key(slot, remo__rpc_serial(words->call));
    size_t bytes = remo__rpc_encode_reply(image, head, result, data, key);
    bool is_refused = (head >> 20 & 0xf) == REMO__RPC_REFUSED; /* no handler has written anything */
    int rc = is_refused ? 0 : remo__rpc_order(transport, thread, node);
    if (rc != 0)
        return rc;
    return write_slots(transport, thread, counters, node, remo__rpc_reply_offset(slot), image, bytes,
                       has_done ? slot + 1 : 0);
}

int remo__rpc_send_reply(struct remo__rpc_transport *transport, struct remo__thread *thread,
                         const struct remo_rpc *rpc, const struct remo__rpc_words *words,
                         enum remo__rpc_kind kind, int status, const void *data, size_t bytes) {
    uint32_t slot = remo__rpc_slot(words->call), node = remo__rpc_origin(words->call);
    bool has_done = remo__rpc_flags(words->head) & REMO__RPC_HAS_DONE;
    uint64_t result = result_of(transport, node, status);
    uint64_t head = remo__rpc_reply_head(bytes, remo__rpc_hops(words->head), kind, transport->rank,
                                         remo__rpc_serial(words->call));
    uint32_t counters = (rpc ? rpc->channel : transport->channel)->slot;
    if (remo__unlikely(!transport->mapped))
        return write_unmapped(transport, thread, counters, words, head, result, data, has_done);
    char *to = (char *)(uintptr_t)remo__memory_mapped(transport->slots, node, remo__rpc_reply_offset(slot));
    if (remo__unlikely(!to || remo__rpc_has_departed(transport, node)))
        return remo__fail(-EHOSTDOWN, "cannot reply to node %u: it has failed or left", node);
    write_mapped(transport, thread, counters, node, slot, to, head, result, data, has_done);
    return 0;
}

/* ---- in a handler ---- */

static int fail_long(size_t bytes, uint32_t max) {
    if (max == REMO__RPC_LARGE_MAX)
        return remo__fail(-EMSGSIZE, "a reply of %zu bytes is too long: the maximum is %u; divide it", bytes,
                          max);
    return remo__fail(-EMSGSIZE,
                      "a message of %zu bytes is too long: the maximum is %u, unless a LONG handler, or a "
                      "thread outside handlers, replies; register the handler as LONG, or write the data "
                      "into a region, and pass its offset",
                      bytes, max);
}

static int check_request(const struct remo_rpc_request *request, const void *data, size_t bytes, uint32_t max,
                         struct remo__rpc_turn **ret_turn) {
    struct remo__rpc_turn *turn = request ? request->state : NULL;
    if (!turn || (!data && bytes > 0))
        return remo__fail(-EINVAL, "cannot reply to, defer or forward a request: it is NULL, or its data");
    if (remo__rpc_flags(turn->words.head) & REMO__RPC_POST)
        return remo__fail(-EINVAL, "cannot reply to, defer or forward a post: it has no reply; use a call");
    if (turn->is_replied)
        return remo__fail(-EALREADY, "the request was replied to, deferred or forwarded already");
    if (remo__unlikely(bytes > max))
        return fail_long(bytes, max);
    *ret_turn = turn;
    return 0;
}

/* Return the length of a reply that this thread may send: a large one waits. */
static uint32_t reply_max(const struct remo__thread *thread) {
    return thread->handling ? REMO__RPC_DATA_MAX : REMO__RPC_LARGE_MAX;
}

/* Send a reply that may be large. `place`: of the reply, with `place_bytes` bytes; 0: none. */
static inline int send_any(struct remo__rpc_transport *transport, struct remo__thread *thread,
                           const struct remo_rpc *rpc, const struct remo__rpc_words *words, uint64_t place,
                           uint64_t place_bytes, int status, const void *data, size_t bytes) {
    const uint64_t length = bytes;
    if (remo__likely(bytes <= REMO__RPC_DATA_MAX))
        return remo__rpc_send_reply(transport, thread, rpc, words, REMO__RPC_REPLIED, status, data, bytes);
    int rc = place != 0 && bytes <= place_bytes ? remo__rpc_large_write(transport, rpc, place, data, bytes)
                                                : 0; /* too long: the caller gets the length only */
    if (rc != 0)
        return rc;
    return remo__rpc_send_reply(transport, thread, rpc, words, REMO__RPC_REPLIED_IN_PLACE, status, &length,
                                sizeof length);
}

int remo_rpc_reply(const struct remo_rpc_request *request, int status, const void *data, size_t bytes) {
    struct remo__rpc_turn *turn = NULL;
    const struct remo__rpc_turn *in = request ? request->state : NULL;
    int rc = check_request(request, data, bytes, in ? reply_max(in->thread) : REMO__RPC_DATA_MAX, &turn);
    if (rc == 0)
        rc = send_any(turn->transport, turn->thread, turn->rpc, &turn->words,
                      turn->places ? turn->places->reply : 0, turn->places ? turn->places->reply_bytes : 0,
                      status, data, bytes);
    if (rc == 0 || rc == -EHOSTDOWN)
        turn->is_replied = true;
    if (rc == 0 && status < 0)
        remo__rpc_count(&turn->counts->errors);
    return rc;
}

static _Atomic uint64_t *deferred_entry(const struct remo__rpc_transport *transport, uint64_t call) {
    return &transport->deferred[remo__rpc_origin(call)][remo__rpc_slot(call)];
}

#define SERVICE_MAX 0xffffffu /* more than any id of a channel */
static_assert(REMO_CHANNEL_IMMEDIATE_MAX >= 0xff, "an id has at most 24 bits");

static uint64_t deferred_word(uint64_t head, uint64_t call, uint32_t service) {
    return (uint64_t)remo__rpc_hops(head) << 56 | (uint64_t)service << 32 | remo__rpc_serial(call);
}

int remo_rpc_defer(const struct remo_rpc_request *request, struct remo_rpc_deferred *ret_deferred) {
    REMO__REQUIRE(ret_deferred);
    struct remo__rpc_turn *turn = NULL;
    int rc = check_request(request, NULL, 0, REMO__RPC_DATA_MAX, &turn);
    if (rc != 0)
        return rc;
    turn->is_replied = true;
    atomic_store(deferred_entry(turn->transport, turn->words.call),
                 deferred_word(turn->words.head, turn->words.call, turn->rpc->channel->id));
    remo__rpc_count(&turn->counts->deferred);
    ret_deferred->word[0] = turn->words.call;
    ret_deferred->word[1] = turn->words.head;
    ret_deferred->word[2] = turn->places ? turn->places->reply : 0;
    ret_deferred->word[3] = turn->places ? turn->places->reply_bytes : 0;
    return 0;
}

int remo_rpc_reply_later(struct remo_rpc *rpc, struct remo_rpc_deferred deferred, int status,
                         const void *data, size_t bytes) {
    REMO__REQUIRE(rpc);
    struct remo__rpc_words words = {.call = deferred.word[0], .head = deferred.word[1]};
    uint32_t node = remo__rpc_origin(words.call);
    if ((!data && bytes > 0) || node >= rpc->transport->size
        || remo__rpc_slot(words.call) >= REMO__RPC_SLOTS_TOTAL)
        return remo__fail(-EINVAL, "cannot reply to a deferred request: the data is NULL, or "
                                   "remo_rpc_defer did not return this value");
    struct remo__thread *thread = remo__thread(rpc->node);
    if (!thread)
        return remo__last_code();
    if (remo__unlikely(bytes > reply_max(thread)))
        return fail_long(bytes, reply_max(thread));
    _Atomic uint64_t *entry = deferred_entry(rpc->transport, words.call);
    uint64_t word = deferred_word(words.head, words.call, rpc->channel->id), expected = word;
    if (!atomic_compare_exchange_strong(entry, &expected, 0))
        return remo__fail(-EALREADY,
                          "the deferred request of node %u was replied to already, or the node "
                          "has failed or left",
                          node);
    int rc = send_any(rpc->transport, thread, rpc, &words, deferred.word[2], deferred.word[3], status, data,
                      bytes);
    if (remo__unlikely(rc != 0 && rc != -EHOSTDOWN))
        atomic_store(entry, word); /* nothing was sent */
    return rc;
}

/* The handlers have run, so the fate of the calls is unknown. */
void remo__rpc_abandon_deferred(const struct remo_rpc *rpc, struct remo__thread *thread) {
    struct remo__rpc_transport *transport = rpc->transport;
    for (uint32_t node = 0; node < transport->size; node++)
        for (uint32_t slot = 0; slot < REMO__RPC_SLOTS_TOTAL; slot++) {
            uint64_t word = atomic_load(&transport->deferred[node][slot]);
            if (word == 0 || (word >> 32 & SERVICE_MAX) != rpc->channel->id
                || !atomic_compare_exchange_strong(&transport->deferred[node][slot], &word, 0))
                continue;
            /* whether the call has `done` is not known either: wake its node in any case */
            uint32_t hops = (uint32_t)(word >> 56);
            struct remo__rpc_words words = {.head = remo__rpc_head_make(0, 0, 0, hops, REMO__RPC_HAS_DONE),
                                            .call = remo__rpc_call_make(node, slot, (uint32_t)word)};
            (void)remo__rpc_send_reply(transport, thread, NULL, &words, REMO__RPC_ABANDONED, -ENOTCONN, NULL,
                                       0);
        }
}

/* ---- forwarding ---- */

/* Write to the caller which node has its request now: if that node fails, the call ends. */
static int send_note(struct remo__rpc_turn *turn, uint32_t node) {
    uint32_t origin = remo__rpc_origin(turn->words.call), slot = remo__rpc_slot(turn->words.call);
    uint32_t hop = remo__rpc_hops(turn->words.head);
    uint64_t note = (uint64_t)remo__rpc_serial(turn->words.call) << 32 | node;
    uint64_t offset = (uint64_t)slot * REMO__RPC_SLOT_BYTES + hop * sizeof note;
    struct remo__ref ref;
    if (!turn->transport->mapped)
        return write_slots(turn->transport, turn->thread, turn->rpc->channel->slot, origin, offset, &note,
                           sizeof note, 0);
    if (!remo__memory_find_now(turn->transport->slots, turn->thread, origin, offset, &ref))
        return remo__fail(-EHOSTDOWN, "cannot forward the request of node %u: it has failed or left", origin);
    ref.stats = remo__channel_counters(turn->rpc->channel, turn->thread);
    return remo__write(ref, &note, sizeof note, REMO__WRITE_NOTIFY, NULL);
}

/* The place of the reply goes along. Returns as remo__rpc_send_message. */
static __attribute__((noinline)) int forward_with_places(const struct remo__rpc_turn *turn, uint32_t node,
                                                         struct remo__rpc_words words, const void *data,
                                                         size_t bytes) {
    uint64_t image[REMO__RPC_RECORD_MAX / sizeof(uint64_t)];
    const struct remo__rpc_places places = {.reply = turn->places->reply,
                                            .request_bytes = (uint32_t)bytes,
                                            .reply_bytes = turn->places->reply_bytes};
    remo__rpc_large_compose(&places, data, image);
    return remo__rpc_send_message(turn->thread, turn->rpc, node, words, image, true);
}

int remo_rpc_forward(const struct remo_rpc_request *request, uint32_t node, uint32_t number, const void *data,
                     size_t bytes) {
    struct remo__rpc_turn *turn = NULL;
    int rc = check_request(request, data, bytes, REMO__RPC_DATA_MAX, &turn);
    if (rc == 0)
        rc = remo__rpc_check_target(turn->rpc, node, number, data, bytes);
    if (rc != 0)
        return rc;
    uint32_t hops = remo__rpc_hops(turn->words.head), depth = turn->depth + 1;
    if (depth > REMO_RPC_DEPTH_MAX || hops >= REMO_RPC_DEPTH_MAX)
        return remo__fail(-ELOOP, "a request cannot be forwarded to a depth of %u: the maximum is %u", depth,
                          REMO_RPC_DEPTH_MAX);
    uint32_t flags = remo__rpc_flags(turn->words.head);
    size_t record_bytes = bytes + (turn->places ? sizeof *turn->places : 0);
    struct remo__rpc_words words = {
        .head = remo__rpc_head_make(record_bytes, number, depth, hops + 1, flags),
        .call = turn->words.call,
        .rest = remo__rpc_rest(turn->rpc, node, turn->deadline_ns),
    };
    rc = send_note(turn, node);
    if (rc != 0)
        return rc;
    /* also if the request cannot be sent: the slot is not used again before the note has arrived */
    turn->words.head = remo__rpc_head_make(remo__rpc_bytes(turn->words.head),
                                           remo__rpc_number(turn->words.head), turn->depth, hops + 1, flags);
    remo__rpc_count(&turn->counts->forwarded); /* first: the reply may precede the next line */
    rc = remo__unlikely(turn->places != NULL)
             ? forward_with_places(turn, node, words, data, bytes)
             : remo__rpc_send_message(turn->thread, turn->rpc, node, words, data, true);
    turn->is_replied = rc >= 0;
    if (rc < 0)
        remo__count(&turn->counts->forwarded, UINT64_MAX);
    return rc < 0 ? rc : 0;
}
