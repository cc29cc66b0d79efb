/* ofi.c - fuzzes messages that a peer writes into the rings of fabric ofi: requests to execute, and answers.
 * A request accesses only network memory and its answer; an answer accesses only the buffers of its
 * operations. Input: u8 0: a request, from its head on, without the check; 1: an answer to a request; 2: an
 * answer to several requests. */
#include <assert.h>
#include <stdlib.h>

#include "fabric/ofi/ofi.h"
#include "fuzz.h"

#define ARENA_BYTES 65536u
#define SHARED_FROM 8192u /* the network memory in the arena: whole pages, and uneven ends */
#define SHARED_BYTES 40008u
#define OPS 4u

static bool is_unchanged(const char *from, size_t bytes, char mark) {
    for (size_t i = 0; i < bytes; i++) {
        if (from[i] != mark)
            return false;
    }
    return true;
}

static void request(const uint8_t *data, size_t bytes) {
    static _Atomic uint32_t lives[1];
    static struct ofi_memory *memory;
    static char *arena;
    if (!memory) {
        memory = aligned_alloc(64, remo__align_up(sizeof *memory, 64));
        arena = aligned_alloc(4096, ARENA_BYTES);
        assert(memory && arena);
    }
    memset(memory, 0, sizeof *memory);
    memset(arena, 'a', ARENA_BYTES);
    memory->arena = arena;
    remo__ofi_imms_init(&memory->imms, lives);
    assert(remo__ofi_ranges_add(&memory->ranges, SHARED_FROM, SHARED_BYTES) == 0);
    struct remo__ofi_head head;
    bytes -= bytes % 8;
    if (bytes < sizeof head || bytes > REMO__OFI_MESSAGE_BYTES - 8)
        return;
    uint8_t *copy = malloc(bytes),
            *answer = malloc(REMO__OFI_MESSAGE_BYTES); /* the exact size, for sanitizers */
    assert(copy && answer);
    memcpy(copy, data, bytes);
    memcpy(&head, copy, sizeof head);
    struct ofi_run run;
    remo__ofi_run_start(&run, copy, bytes, head.count, answer, 0);
    enum ofi_run_state state = remo__ofi_run(&run, memory, 0, 0);
    if (state == OFI_RUN_DONE)
        assert(remo__ofi_run_finish(&run) <= REMO__OFI_MESSAGE_BYTES - 8);
    assert(is_unchanged(arena, SHARED_FROM, 'a'));
    assert(is_unchanged(arena + SHARED_FROM + SHARED_BYTES, ARENA_BYTES - SHARED_FROM - SHARED_BYTES, 'a'));
    free(copy);
    free(answer);
}

/* A read, a write and two atomics, in the state after their request was sent, or a request of each. Returns
 * the number of requests. */
static uint32_t ops_send(struct ofi_endpoint *endpoint, struct ofi_link *link, char *local, uint8_t *message,
                         bool are_apart) {
    uint32_t requests = 0;
    static const uint8_t kinds[OPS] = {REMO__OP_READ, REMO__OP_WRITE, REMO__OP_FETCH_ADD,
                                       REMO__OP_COMPARE_SWAP};
    static const uint64_t sizes[OPS] = {101, 16, 8, 8};
    endpoint->active = calloc(1, sizeof endpoint->active[0]);
    assert(endpoint->active);
    link->endpoint = endpoint;
    for (uint16_t i = 0; i < OPS; i++) {
        endpoint->slots[i] =
            (struct ofi_slot){.op = {.kind = kinds[i], .local = local + 128 * i, .size_bytes = sizes[i]},
                              .left_bytes = sizes[i]};
        remo__ofi_link_queue(link, i);
        if (are_apart || i + 1 == OPS)
            assert(remo__ofi_request_make(link, message, ++requests) > 0);
    }
    return requests;
}

static void answer(const uint8_t *data, size_t bytes, bool are_apart) {
    struct ofi_endpoint *endpoint = calloc(1, sizeof *endpoint);
    struct ofi_link *link = calloc(1, sizeof *link);
    char local[128 * OPS];
    uint8_t *message = malloc(REMO__OFI_MESSAGE_BYTES);
    assert(endpoint && link && message);
    memset(local, 'l', sizeof local);
    uint32_t last = ops_send(endpoint, link, local, message, are_apart);
    struct remo__ofi_head head;
    bytes -= bytes % 8;
    if (bytes >= sizeof head && bytes <= REMO__OFI_MESSAGE_BYTES - 8) {
        uint8_t *copy = malloc(bytes);
        assert(copy);
        memcpy(copy, data, bytes);
        memcpy(&head, copy, sizeof head);
        head.seq = last; /* the caller has already checked that such a request is in flight */
        if (remo__ofi_answer_take(link, copy, bytes, &head))
            assert(endpoint->done.count == OPS);
        assert(endpoint->done.count <= OPS);
        free(copy);
    }
    assert(is_unchanged(local + 101, 27 + 128, 'l'));
    assert(is_unchanged(local + 2 * 128 + 8, 120, 'l') && is_unchanged(local + 3 * 128 + 8, 120, 'l'));
    free(endpoint->active);
    free(message);
    free(endpoint);
    free(link);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes > 0 && data[0] % 3 == 0)
        request(data + 1, bytes - 1);
    else if (bytes > 0)
        answer(data + 1, bytes - 1, data[0] % 3 == 2);
    return 0;
}

/* A request with every kind of operation, within the network memory or, if `strays`, across its end. */
static size_t seed_request(uint8_t *out, bool strays) {
    static const uint8_t kinds[6] = {REMO__OP_READ, REMO__OP_WRITE,        REMO__OP_WRITE,
                                     REMO__OP_READ, REMO__OP_COMPARE_SWAP, REMO__OP_FETCH_ADD};
    static const uint8_t tails[6] = {0, 24, 16,
                                     0, 16, 8}; /* the write of 20 bytes, that of 8 with an immediate, ... */
    static const uint32_t sizes[6] = {100, 20, 8, 0, 8, 8};
    struct remo__ofi_head head = {.seq = 1, .count = 6};
    uint8_t *at = out + sizeof head;
    for (uint32_t i = 0; i < 6; i++) {
        struct remo__ofi_record record = {.offset = SHARED_FROM
                                                    + (strays ? SHARED_BYTES - 8 + 8 * (i % 2) : 64 * i),
                                          .size_bytes = sizes[i],
                                          .kind = kinds[i],
                                          .flags = i == 2   ? REMO__OP_IMM
                                                   : i == 1 ? REMO__OP_NOTIFY
                                                            : 0};
        memcpy(at, &record, sizeof record);
        memset(at + sizeof record, 'd', tails[i]);
        at += sizeof record + tails[i];
    }
    head.units = (uint16_t)((size_t)(at - out) / 8 + 1);
    memcpy(out, &head, sizeof head);
    return (size_t)(at - out);
}

/* The answer to a read of 101 bytes and two atomics, with one failure or none. */
static size_t seed_answer(uint8_t *out, bool failure) {
    struct remo__ofi_head head = {.seq = 1, .count = failure};
    struct remo__ofi_failure said = {.record = 1, .status = -13};
    size_t bytes = sizeof head + 104 + 8 + 8;
    memset(out, 'r', bytes);
    if (failure) {
        memcpy(out + bytes, &said, sizeof said);
        bytes += sizeof said;
    }
    head.units = (uint16_t)(bytes / 8 + 1);
    memcpy(out, &head, sizeof head);
    return bytes;
}

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    if (n >= 6)
        return 0;
    ret_data[0] = (uint8_t)(n / 2);
    return 1 + (n < 2 ? seed_request(ret_data + 1, n == 1) : seed_answer(ret_data + 1, n % 2 == 1));
}
