/* verbs.c - fuzzes input of fabric verbs from other processes: a peer's description of itself and of its
 * segments, and the connection request, which any process can send. Needs no device. Input: u8 0: a
 * description; 1: a segment of a connected peer, as u32 index, u64 offset, u64 bytes, description; 2: a
 * request. */
#include <assert.h>
#include <stdlib.h>

#include "fabric/verbs/wire.h"
#include "fuzz.h"

#define ARENA_BYTES (UINT64_C(1) << 20)
#define NODES 2u

static struct verbs_fabric *fabric_make(void) {
    struct verbs_fabric *verbs = calloc(1, sizeof *verbs + NODES * sizeof verbs->contacts[0]);
    assert(verbs);
    verbs->base = (struct remo__fabric){
        .ops = &remo__fabric_verbs, .size = NODES, .peers = calloc(NODES, sizeof(struct remo__fabric_peer))};
    assert(verbs->base.peers);
    verbs->arena_bytes = ARENA_BYTES;
    verbs->device.mtu_bytes = 1024;
    verbs->device.address.ss_family = AF_INET;
    return verbs;
}

static void fabric_free(struct verbs_fabric *verbs) {
    free(verbs->kept);
    free(verbs->base.peers);
    free(verbs);
}

/* Write the description of the other node, 1. */
static size_t describe(uint8_t *out) {
    struct verbs_fabric *peer = fabric_make();
    size_t bytes = 0;
    peer->base.rank = 1;
    int rc = remo__fabric_verbs.describe(&peer->base, out, REMO__BLOB_BYTES_MAX, &bytes);
    assert(rc == 0);
    fabric_free(peer);
    return bytes;
}

static void description(const uint8_t *data, size_t bytes) {
    struct verbs_fabric *verbs = fabric_make();
    int rc = remo__fabric_verbs.connect(&verbs->base, 1, data, bytes);
    struct verbs_contact *contact = atomic_load(&verbs->contacts[1]);
    assert((rc == 0) == (contact != NULL) && (rc == 0) == (verbs->kept != NULL));
    if (contact) {
        sa_family_t family = contact->address.ss_family;
        assert(contact->rank == 1 && (family == AF_INET || family == AF_INET6));
    }
    fabric_free(verbs);
}

static void segment(const uint8_t *data, size_t bytes) {
    struct verbs_fabric *verbs = fabric_make();
    uint8_t blob[REMO__BLOB_BYTES_MAX];
    size_t blob_bytes = describe(blob);
    int rc = remo__fabric_verbs.connect(&verbs->base, 1, blob, blob_bytes);
    assert(rc == 0);
    struct remo__reader reader = remo__reader_of(data, bytes);
    uint32_t index = remo__get_u32(&reader);
    uint64_t offset = remo__get_u64(&reader), size_bytes = remo__get_u64(&reader);
    if (!reader.bad) {
        size_t left = (size_t)(reader.end - reader.at);
        rc = remo__fabric_verbs.map_segment(&verbs->base, 1, index, offset, size_bytes, reader.at, left, -1);
        const struct verbs_segments *segments = &verbs->contacts[1]->segments;
        assert(atomic_load(&segments->count) == (rc == 0));
        assert(rc != 0 || (offset < ARENA_BYTES && size_bytes <= ARENA_BYTES - offset));
        assert(rc != 0 || verbs_segment_at(segments, offset + size_bytes - 1));
        assert(!verbs_segment_at(segments, ARENA_BYTES));
    }
    fabric_free(verbs);
}

static void request(const uint8_t *data, size_t bytes) {
    struct verbs_hello hello;
    uint8_t again[REMO__VERBS_HELLO_BYTES];
    if (!verbs_hello_read(data, bytes, &hello))
        return;
    verbs_hello_write(again, &hello);
    assert(memcmp(again, data, 4 + 4 + 8 + 8 + REMO__VERBS_SECRET_BYTES) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static void (*const targets[])(const uint8_t *, size_t) = {description, segment, request};
    if (bytes > 0)
        targets[data[0] % 3](data + 1, bytes - 1);
    return 0;
}

static size_t seed_segment(uint8_t *out) {
    struct remo__writer writer = remo__writer_of(out, REMO__BLOB_BYTES_MAX);
    uint64_t offset = 65536, bytes = 65536;
    for (int twice = 0; twice < 2; twice++) { /* as the node announces it, and as the fabric does */
        if (twice)
            remo__put_u32(&writer, REMO__VERBS_MAGIC);
        remo__put_u32(&writer, 3);
        remo__put_u64(&writer, offset);
        remo__put_u64(&writer, bytes);
    }
    remo__put_u32(&writer, 0x1234);
    return (size_t)(writer.at - out);
}

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    struct verbs_hello hello = {.rank = 1, .from_incarnation = 2, .to_incarnation = 3, .secret = "secret"};
    ret_data[0] = (uint8_t)n;
    switch (n) {
    case 0: return 1 + describe(ret_data + 1);
    case 1: return 1 + seed_segment(ret_data + 1);
    case 2: verbs_hello_write(ret_data + 1, &hello); return 1 + REMO__VERBS_HELLO_BYTES;
    default: return 0;
    }
}
