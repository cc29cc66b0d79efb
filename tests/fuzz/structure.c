/* structure.c - fuzzes items that a lookup has read, and requests to the owner: any bytes.
 * Invariant: reading an item accesses nothing beyond its maximum length; a request that is accepted has a key
 * and a value within its bytes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "systems/tx/structure.h"

#define KEY_BYTES_MAX 13u
#define VALUE_BYTES_MAX 100u
#define SEEDS 8u

static uint32_t owner(void *ctx, const struct remo_structure_key *key) {
    (void)ctx;
    return key->bytes % 4 == 3; /* some keys have another owner */
}

static const struct remo_structure_type type = {.owner = owner};
static struct remo_structure structure = {
    .type = &type, .key_bytes_max = KEY_BYTES_MAX, .value_bytes_max = VALUE_BYTES_MAX};

/* The first byte of an input selects: an item, or a request. */
size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    uint32_t key_bytes = 1 + n % KEY_BYTES_MAX, value_bytes = n * 13 % VALUE_BYTES_MAX;
    if (n >= SEEDS)
        return 0;
    ret_data[0] = n % 2;
    uint8_t *at = ret_data + 1;
    if (n % 2 == 1) {
        struct remo__item_request header = {
            .op = n % REMO__ITEM_OPS, .key_bytes = (uint16_t)key_bytes, .value_bytes = (uint16_t)value_bytes};
        memcpy(at, &header, sizeof header);
        memset(at + sizeof header, 'k', key_bytes + value_bytes);
        return 1 + sizeof header + key_bytes + value_bytes;
    }
    uint64_t header[3] = {REMO__ITEM_VERSION + REMO__ITEM_VALID, 0, remo__item_sizes(key_bytes, value_bytes)};
    size_t bytes = remo__item_value_at(key_bytes) + remo__align_up(value_bytes, 8);
    memset(at, 0, bytes);
    memcpy(at + REMO__ITEM_KEY_AT, "kkkkkkkkkkkkk", key_bytes);
    memcpy(at, header, sizeof header);
    header[1] = remo__item_seal(header[0], at + REMO__ITEM_SIZES_AT, bytes - REMO__ITEM_SIZES_AT);
    memcpy(at, header, sizeof header);
    return 1 + bytes;
}

static void read_item(const uint8_t *data, size_t bytes) {
    size_t item_bytes = remo_structure_item_bytes(KEY_BYTES_MAX, VALUE_BYTES_MAX);
    struct remo_item item;
    char *memory =
        calloc(1, item_bytes); /* the exact size, so that a sanitizer detects reads beyond the end */
    memcpy(memory, data, remo__min(bytes, item_bytes));
    for (size_t key_bytes = 1; key_bytes <= KEY_BYTES_MAX; key_bytes++) {
        struct remo_structure_key key = {.data = "kkkkkkkkkkkkk", .bytes = key_bytes};
        if (remo_item_read(&structure, &key, memory, 64, &item) != REMO_ITEM_MATCHES)
            continue;
        assert(item.key_bytes == key.bytes && item.value_bytes <= VALUE_BYTES_MAX);
        assert((const char *)item.value + item.value_bytes <= memory + item_bytes);
    }
    free(memory);
}

static void decode_request(const uint8_t *data, size_t bytes) {
    struct remo__item_request header;
    struct remo_structure_key key;
    const char *value;
    char *request = malloc(bytes + 1);
    memcpy(request, data, bytes);
    if (remo__owner_decode(&structure, request, bytes, &header, &key, &value)) {
        assert(header.op < REMO__ITEM_OPS && key.bytes > 0 && key.bytes <= KEY_BYTES_MAX);
        assert(value + header.value_bytes == request + bytes && header.value_bytes <= VALUE_BYTES_MAX);
    }
    free(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 1)
        return 0;
    if (data[0] % 2 == 0)
        read_item(data + 1, bytes - 1);
    else
        decode_request(data + 1, bytes - 1);
    return 0;
}
