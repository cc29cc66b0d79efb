/* large.c - large requests and replies: the places of a call, the server's read of the request, and its write
 * of the reply.
 * Invariant: when a function that writes a reply has returned, none of its writes is in flight, or the
 * caller's node has failed. "Large requests and replies" in docs/internals/rpc.md. */
#include <stdlib.h>

#include "objects/rpc/rpc.h"

#define TRIES 3u /* of a read or a write that fails, although its node is up */

/* ---- the caller ---- */

static char *own_memory(const struct remo__rpc_transport *transport, uint64_t place) {
    return remo__arena_base(transport->node->arena) + remo_addr_offset((struct remo_addr){place});
}

static uint64_t own_place(const struct remo__rpc_transport *transport, uint64_t offset) {
    const struct remo__peer *self = &transport->node->peers[transport->rank];
    return remo_addr_make(transport->rank, atomic_load(&self->incarnation), offset).word;
}

static int check_large(const struct remo_rpc_op *call) {
    if (call->request_bytes > REMO__RPC_LARGE_MAX)
        return remo__fail(-EMSGSIZE,
                          "a request of %zu bytes is too long for service %s: the maximum is %u; divide it, "
                          "or write the data into a region, and pass its offset",
                          call->request_bytes, remo_channel_name(call->own.rpc->channel),
                          REMO__RPC_LARGE_MAX);
    bool has_request = call->request != NULL, has_request_place = call->request_place.word != 0;
    bool is_wrong =
        has_request_place ? has_request || call->request_bytes == 0 : !has_request && call->request_bytes > 0;
    if (!is_wrong && !(call->reply_place.word != 0 && call->reply))
        return 0;
    return remo__fail(-EINVAL, "cannot start a large call: its request is NULL or empty, or it has both a "
                               "buffer and a place");
}

/* Check that a place that the program has named lies in committed memory of this node. */
static int check_own_place(const struct remo__rpc_transport *transport, struct remo_addr place,
                           uint64_t bytes) {
    const struct remo_node *node = transport->node;
    uint64_t offset = remo_addr_offset(place), reserved = remo__arena_reserved(node->arena);
    if (place.word == 0
        || (place.word == own_place(transport, offset) && bytes <= reserved && offset <= reserved - bytes
            && offset >= remo__arena_first(node->arena)
            && offset + bytes <= atomic_load(&node->peers[transport->rank].mapped_bytes)))
        return 0;
    return remo__fail(-EFAULT,
                      "the %llu bytes at 0x%llx are not in the network memory of this node; use an address "
                      "of remo_heap_alloc, or of remo_region_address for this node",
                      (unsigned long long)bytes, (unsigned long long)place.word);
}

int remo__rpc_large_prepare(struct remo__rpc_transport *transport, struct remo_rpc_op *call) {
    struct remo__rpc_places places = {.request = call->request_place.word,
                                      .reply = call->reply_place.word,
                                      .request_bytes = (uint32_t)call->request_bytes,
                                      .reply_bytes =
                                          (uint32_t)remo__min(call->reply_cap, REMO__RPC_LARGE_MAX)};
    struct remo__rpc_block *block = NULL;
    int rc = check_large(call);
    if (rc == 0)
        rc = check_own_place(transport, call->request_place, places.request_bytes);
    if (rc == 0)
        rc = check_own_place(transport, call->reply_place, places.reply_bytes);
    bool needs_request = places.request == 0 && call->request_bytes > REMO__RPC_DATA_MAX;
    bool needs_reply = places.reply == 0 && call->reply && call->reply_cap > REMO__RPC_DATA_MAX;
    uint64_t request_bytes = needs_request ? remo__align_up(places.request_bytes, REMO__RPC_LINE) : 0;
    if (rc == 0 && (needs_request || needs_reply))
        rc = remo__rpc_block_take(transport, request_bytes + (needs_reply ? places.reply_bytes : 0), &block);
    if (rc != 0)
        return rc;
    if (needs_request) {
        places.request = own_place(transport, block->offset);
        remo__copy_to(own_memory(transport, places.request), call->request, call->request_bytes);
    }
    if (needs_reply)
        places.reply = own_place(transport, block->offset + request_bytes);
    memcpy(call->own.places, &places, sizeof places);
    call->own.block = block;
    size_t record_bytes = sizeof places + (places.request != 0 ? 0 : call->request_bytes);
    call->own.head = (call->own.head & ~UINT64_C(0xffff)) | record_bytes
                     | (uint64_t)REMO__RPC_HAS_PLACES << REMO__RPC_FLAGS_SHIFT;
    return 0;
}

void remo__rpc_large_compose(const struct remo__rpc_places *places, const void *data, uint64_t *ret_image) {
    memcpy(ret_image, places, sizeof *places);
    if (places->request == 0 && places->request_bytes > 0)
        memcpy((char *)ret_image + sizeof *places, data, places->request_bytes);
}

bool remo__rpc_large_take(const struct remo__rpc_transport *transport, const struct remo_rpc_op *call,
                          const struct remo__rpc_reply *reply, size_t *ret_bytes) {
    struct remo__rpc_places places = {0};
    uint64_t bytes;
    memcpy(&bytes, reply->data, sizeof bytes);
    *ret_bytes = bytes;
    if (remo__rpc_flags(call->own.head) & REMO__RPC_HAS_PLACES)
        memcpy(&places, call->own.places, sizeof places);
    if (places.reply == 0 || bytes > places.reply_bytes)
        return !call->reply && call->reply_place.word == 0; /* the reply is discarded */
    if (call->reply)
        remo__copy_from(call->reply, own_memory(transport, places.reply), bytes);
    return true;
}

void *remo__rpc_large_buffer(const struct remo__rpc_transport *transport, const struct remo_rpc_op *call) {
    return call->reply_place.word != 0 ? own_memory(transport, call->reply_place.word) : call->reply;
}

/* ---- the server ---- */

static bool is_place_of(uint64_t place, uint32_t node, uint64_t bytes) {
    return remo_addr_node((struct remo_addr){place}) == node && bytes <= REMO__RPC_LARGE_MAX;
}

bool remo__rpc_large_decode(const struct remo__rpc_words *words, const void *data,
                            struct remo__rpc_places *ret_places) {
    size_t bytes = remo__rpc_bytes(words->head);
    uint32_t origin = remo__rpc_origin(words->call);
    if (bytes < sizeof *ret_places)
        return false;
    remo__copy_from(ret_places, data, sizeof *ret_places);
    size_t rest = bytes - sizeof *ret_places;
    if (ret_places->reply != 0 && !is_place_of(ret_places->reply, origin, ret_places->reply_bytes))
        return false;
    if (ret_places->request == 0)
        return ret_places->request_bytes == rest;
    return rest == 0 && ret_places->request_bytes > 0
           && is_place_of(ret_places->request, origin, ret_places->request_bytes);
}

static int find_place(const struct remo__rpc_transport *transport, const struct remo_rpc *rpc, uint64_t place,
                      uint64_t bytes, struct remo__ref *ret_ref) {
    int rc = remo__address_find(transport->node, (struct remo_addr){place}, bytes, ret_ref);
    if (rc == 0)
        ret_ref->stats = remo__channel_counters(rpc->channel, ret_ref->thread);
    return rc;
}

int remo__rpc_large_read(const struct remo__rpc_turn *turn, void **ret_data) {
    const struct remo__rpc_places *places = turn->places;
    struct remo__ref ref;
    void *data = malloc(places->request_bytes);
    if (!data)
        return remo__fail(-ENOMEM, "no memory to receive a request of %u bytes", places->request_bytes);
    int rc = find_place(turn->transport, turn->rpc, places->request, places->request_bytes, &ref);
    bool is_found = rc == 0;
    for (uint32_t i = 0; is_found && i < TRIES; i++)
        if ((rc = remo__read(ref, data, places->request_bytes, NULL)) == 0 || remo__is_departure(rc))
            break;
    if (rc != 0) {
        free(data);
        return rc;
    }
    *ret_data = data;
    return 0;
}

/* A write has failed. Wait until it is no longer in flight, also if this takes long: otherwise it could
 * damage what the caller has there later. */
static void settle(const struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node) {
    while (!remo__rpc_has_departed(transport, node)
           && remo__fence_retry_peer(thread, node, transport->node->op_timeout_ns, NULL) != 0)
        continue;
}

static int write_once(struct remo__ref ref, struct remo__thread *thread, const void *data, uint64_t bytes,
                      uint64_t timeout_ns) {
    struct remo_ack ack = remo__ack_awaited(thread);
    int rc = remo__write(ref, data, bytes, 0, &ack);
    int status = remo__ack_await(&ack, timeout_ns);
    if (rc != 0 || status != 0)
        remo_ack_cancel(&ack);
    return rc != 0 ? rc : status;
}

int remo__rpc_large_write(const struct remo__rpc_transport *transport, const struct remo_rpc *rpc,
                          uint64_t place, const void *data, uint64_t bytes) {
    struct remo__ref ref;
    uint32_t node = remo_addr_node((struct remo_addr){place});
    int rc = find_place(transport, rpc, place, bytes, &ref);
    if (rc != 0 && (rc == -ESTALE || remo__rpc_has_departed(transport, node)))
        return remo__fail(-EHOSTDOWN, "cannot reply to node %u: it has failed or left", node);
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < TRIES; i++) {
        rc = write_once(ref, ref.thread, data, bytes, transport->node->op_timeout_ns);
        if (rc == 0)
            return 0;
        settle(transport, ref.thread, node);
        if (remo__rpc_has_departed(transport, node))
            return remo__fail(-EHOSTDOWN, "cannot reply to node %u: it has failed or left", node);
    }
    return remo__is_departure(rc) ? remo__fail(-EIO, "the reply cannot be written to node %u", node) : rc;
}
