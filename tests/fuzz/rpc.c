/* rpc.c - fuzzes the messages of rpc: any bytes in a ring of requests, and in the slot of a call. Input: u8
 * flags, u8 position in lines before the end of the ring, the message. The only node of the job is its own
 * peer. Handlers reply, defer, forward and post; one is LONG. Invariant: nothing outside ring, slot and
 * buffers is accessed, and no handler or caller gets more data than a message may have. */
#include "objects/rpc/rpc.h"

#include <assert.h>
#include <remo/region.h>
#include <remo/task.h>
#include <sched.h>
#include <stdlib.h>

#include "fuzz.h"

#define PREFIX_BYTES 2u
#define POLLS_MAX 32u
#define LARGE_CAP 65536u /* of a call with a place for its reply */

enum { REPLY = 1, MEND_HEAD = 2, MEND_PROOF = 4, MEND_SERVICE = 8, ALL_FLAGS = 15 };
enum { HAS_PLACE = MEND_PROOF }; /* of a reply */
enum { ECHO, DEFER, FORWARD, POST, LONG, HANDLERS };

static struct remo_node *node;
static struct remo_rpc *rpc;
static struct remo__rpc_transport *transport;
static struct remo_region *region; /* for places */
static char reply[LARGE_CAP + 8];

static int run(void *ctx, const struct remo_rpc_request *request) {
    struct remo_rpc_deferred deferred;
    (void)ctx;
    size_t max = request->number == LONG ? REMO_RPC_LARGE_BYTES_MAX : REMO_RPC_BYTES_MAX;
    assert(request->bytes <= max && request->node == 0 && request->number < HANDLERS);
    switch (request->number) {
    case LONG:
        remo_task_yield(); /* and then as ECHO */
        __attribute__((fallthrough));
    case ECHO: return remo_rpc_reply(request, 0, request->data, request->bytes);
    case DEFER:
        if (remo_rpc_defer(request, &deferred) == 0 && request->bytes % 2)
            (void)remo_rpc_reply_later(rpc, deferred, 1, request->data, request->bytes);
        return 0;
    case FORWARD: return remo_rpc_forward(request, 0, FORWARD, request->data, request->bytes);
    default: return remo_rpc_post(rpc, 0, POST, request->data, request->bytes);
    }
}

static void close_node(void) {
    remo_rpc_close(rpc);
    remo_region_close(region);
    remo_node_close(node);
}

static void open_node(void) {
    struct remo_config config = {.fabric = "shm", .arena_bytes = 64u << 20, .segment_bytes = 2u << 20};
    struct remo_rpc_handler handlers[HANDLERS];
    for (uint32_t i = 0; i < HANDLERS; i++)
        handlers[i] = (struct remo_rpc_handler){
            .number = i, .run = run, .kind = i == LONG ? REMO_RPC_LONG : REMO_RPC_SHORT};
    struct remo_rpc_options options = {.handlers = handlers, .handler_count = HANDLERS};
    int rc = remo_node_open(&config, &node);
    rc = rc ? rc : remo_rpc_open(remo_node_root(node), "service", &options, &rpc);
    rc = rc ? rc : remo_rpc_call(rpc, 0, ECHO, NULL, 0, NULL, 0, NULL, REMO_FOREVER);
    rc = rc ? rc : remo_region_open(remo_node_root(node), "places", REMO_RPC_LARGE_BYTES_MAX, NULL, &region);
    assert(rc == 0);
    transport = rpc->transport;
    atexit(close_node);
}

static void poll_all(void) {
    struct remo__thread *thread = remo__thread(node);
    assert(thread);
    for (uint32_t i = 0; i < POLLS_MAX && remo__rpc_poll(transport, thread); i++)
        continue;
    while (atomic_load(&rpc->long_count) > 0)
        sched_yield();
}

/* ---- requests ---- */

/* The ring is empty, and the next record begins at `position`. The service thread loads heads without the
 * mutex. */
static void empty_ring(uint64_t position) {
    static const char zeros[REMO__RPC_RING_SPAN];
    struct remo__rpc_peer *peer = &transport->peers[0];
    (void)remo__mutex_lock(node, &peer->receive_mutex, REMO_FOREVER);
    remo__copy_to(transport->rings->own, zeros, sizeof zeros);
    remo__store(remo__rpc_own_state(transport, REMO__RPC_AT_CREDITS), 0);
    atomic_store(&peer->position, position);
    atomic_store(&peer->credit, position);
    atomic_store(&peer->consumed, position);
    atomic_store(&peer->credited, position);
    peer->key = remo__rpc_key(position);
    peer->is_broken = false;
    remo__mutex_unlock(node, &peer->receive_mutex);
}

/* A node may let its own memory be overwritten. Here this must not damage the transport: any place in the
 * memory of node 0 becomes that of the region. */
static void aim_places(char *data) {
    struct remo__rpc_places places;
    struct remo_addr addr = {0};
    memcpy(&places, data, sizeof places);
    int rc = remo_region_address(region, 0, 0, &addr);
    assert(rc == 0);
    if (places.request != 0 && remo_addr_node((struct remo_addr){places.request}) == 0)
        places.request = addr.word;
    if (places.reply != 0 && remo_addr_node((struct remo_addr){places.reply}) == 0)
        places.reply = addr.word;
    memcpy(data, &places, sizeof places);
}

static void write_request(const uint8_t *message, size_t bytes, uint32_t flags, uint64_t position) {
    char *record = transport->rings->own + remo__rpc_offset(position);
    uint64_t words[4] = {0};
    memcpy(words, message, remo__min(bytes, sizeof words));
    (void)remo__mutex_lock(node, &transport->peers[0].receive_mutex, REMO_FOREVER);
    if (bytes > sizeof words)
        memcpy(record + sizeof words, message + sizeof words,
               remo__min(bytes, REMO__RPC_REQUEST_MAX) - sizeof words);
    aim_places(record + sizeof words);
    if (flags & MEND_HEAD)
        words[0] = (words[0] & ~UINT64_C(0xffff0000)) | remo__rpc_lap_of(position) << 16;
    if (flags & MEND_PROOF)
        words[1] = words[0] ^ remo__rpc_key(position);
    if (flags & MEND_SERVICE)
        words[3] = (words[3] & ~UINT64_C(0xffffffff)) | rpc->channel->id;
    for (size_t i = sizeof words / sizeof words[0]; i-- > 0;)
        remo__store(record + 8 * i, words[i]);
    /* what the handlers send themselves follows the record */
    if (remo__rpc_bytes(words[0]) <= REMO__RPC_RECORD_MAX)
        atomic_store(&transport->peers[0].position,
                     remo__rpc_position_after(position, remo__rpc_bytes(words[0])));
    remo__mutex_unlock(node, &transport->peers[0].receive_mutex);
}

/* The decoder of fabrics without mapping: a record that passes has the checksum of its words. */
static void decode_request(const uint8_t *message, size_t bytes, uint32_t flags) {
    uint64_t record[REMO__RPC_REQUEST_MAX / 8] = {0}, image[REMO__RPC_REQUEST_MAX / 8];
    const uint64_t key = remo__rpc_key(64);
    memcpy(record, message, remo__min(bytes, sizeof record));
    size_t data_bytes = remo__rpc_bytes(record[0]), count = 2 + remo__rpc_words_of(data_bytes);
    if (data_bytes > REMO__RPC_RECORD_MAX)
        return;
    if (flags & MEND_PROOF) {
        remo__rpc_mask(record + 2, count, key);
        record[1] = remo__rpc_sum(record + 2, count, record[0], key);
        remo__rpc_mask(record + 2, count, key);
    }
    bool is_good = remo__rpc_decode_request((const char *)record, record[0], key, image);
    assert(is_good || !(flags & MEND_PROOF));
    if (is_good)
        assert(record[1] == remo__rpc_sum(image, count, record[0], key));
}

static void fuzz_request(const uint8_t *message, size_t bytes, uint32_t flags, uint32_t lines) {
    uint64_t position = 2 * REMO__RPC_RING_BYTES - REMO__RPC_LINE * (1 + (uint64_t)lines);
    empty_ring(position);
    write_request(message, bytes, flags, position);
    poll_all();
    decode_request(message, bytes, flags);
    empty_ring(0);
}

/* ---- replies ---- */

static void fuzz_reply(const uint8_t *message, size_t bytes, uint32_t flags) {
    struct remo_rpc_op call = {
        .number = DEFER, .reply = reply, .reply_cap = REMO_RPC_BYTES_MAX, .timeout_ns = REMO_FOREVER};
    if (flags & HAS_PLACE)
        call.reply_cap = LARGE_CAP;
    size_t cap = call.reply_cap;
    empty_ring(0);
    int rc = remo_rpc_start(rpc, &call);
    assert(rc == 0);
    assert(remo_rpc_test(&call) == -EINPROGRESS);
    char *slot = remo__rpc_slot_memory(transport, call.own.slot);
    uint64_t head = 0;
    size_t room = remo__min(bytes, REMO__RPC_SLOT_BYTES);
    uint32_t serial = atomic_load(&transport->slot[call.own.slot].serial);
    memcpy(slot, message, room);
    memcpy(&head, slot + REMO__RPC_NOTES, sizeof head);
    if (flags & MEND_HEAD)
        head = (uint32_t)head | (uint64_t)serial << 32;
    memset(reply + cap, 0x5a, 8);
    remo__store(slot + REMO__RPC_NOTES, head);
    rc = remo_rpc_test(&call);
    if (rc == -EINPROGRESS)
        remo_rpc_cancel(&call);
    assert(call.fate != REMO_RPC_IN_FLIGHT
           && (rc == -EINPROGRESS || rc == -EMSGSIZE || call.reply_bytes <= cap));
    for (size_t i = 0; i < 8; i++)
        assert(reply[cap + i] == 0x5a);
    /* the node never sends the reply of this call: let the slot be used again */
    memset(slot, 0, REMO__RPC_SLOT_BYTES);
    remo__store(slot + REMO__RPC_NOTES, (uint64_t)serial << 32);
    remo__rpc_slots_reclaim(transport);
    poll_all();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < PREFIX_BYTES)
        return 0;
    if (!node)
        open_node();
    if (data[0] & REPLY)
        fuzz_reply(data + PREFIX_BYTES, bytes - PREFIX_BYTES, data[0]);
    else
        fuzz_request(data + PREFIX_BYTES, bytes - PREFIX_BYTES, data[0], data[1]);
    return 0;
}

/* Requests of each handler, posts and calls, of some sizes and depths, at the end of the ring and elsewhere;
 * each with and without the mends. Replies of each kind. */
size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    uint32_t flags = n & ALL_FLAGS, kind = n / (ALL_FLAGS + 1), number = kind % (HANDLERS + 1),
             variant = kind / (HANDLERS + 1);
    static const size_t sizes[] = {0, 9, 200, REMO_RPC_BYTES_MAX};
    uint64_t words[4] = {0};
    if (variant == sizeof sizes / sizeof sizes[0])
        return 0;
    size_t bytes = sizes[variant], at = PREFIX_BYTES;
    ret_data[0] = (uint8_t)flags;
    ret_data[1] = (uint8_t)(variant == 2 ? 100 : variant);
    memset(ret_data + PREFIX_BYTES, (int)n, FUZZ_BYTES_MAX / 2);
    if (flags & REPLY) {
        memset(ret_data + at, 0, REMO__RPC_NOTES);
        at += REMO__RPC_NOTES;
        bool is_large = number % 4 == REMO__RPC_REPLIED_IN_PLACE;
        words[0] = remo__rpc_reply_head(is_large ? 8 : bytes, number == FORWARD, number % 4, 0, 1);
        words[3] = sizes[variant] * 10; /* of a large reply */
        memcpy(ret_data + at, words, sizeof words);
        return at + REMO__RPC_REPLY_BYTES + remo__max(bytes, 8);
    }
    /* every second variant has places: of the reply, or of both */
    bool has_places = variant % 2 != 0;
    struct remo__rpc_places places = {.request = variant == 3 ? remo_addr_make(0, 0, 64).word : 0,
                                      .reply = remo_addr_make(variant == 1 ? 0 : number % 2, 0, 64).word,
                                      .request_bytes = variant == 3 ? 100000 : (uint32_t)bytes,
                                      .reply_bytes = LARGE_CAP};
    if (has_places)
        bytes = sizeof places + (variant == 3 ? 0 : bytes);
    words[0] =
        remo__rpc_head_make(bytes, number, 1 + variant, variant,
                            (number == POST ? REMO__RPC_POST : 0) | (has_places ? REMO__RPC_HAS_PLACES : 0));
    words[2] = remo__rpc_call_make(0, number + 1, n);
    memcpy(ret_data + at, words, sizeof words);
    if (has_places)
        memcpy(ret_data + at + sizeof words, &places, sizeof places);
    return at + sizeof words + bytes;
}
