/* kv_slot.c - fuzzes slots of the map: any bytes, as another node's memory may contain.
 * Invariant: a read stays within the slot, and writes only within the value's buffers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "systems/kv/slot.h"

#define SEEDS 8u

static const uint32_t key_sizes[] = {1, 8, 13, 200};
static const uint32_t value_sizes[] = {1, 8, 30, 700};

/* The first byte of an input selects the maximum lengths of key and value, the second one the length of the
 * key to find; the slot follows. */
static struct remo__kv_shape shape_of(uint8_t which) {
    return remo__kv_shape_of(key_sizes[which % 4], value_sizes[which / 4 % 4]);
}

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    uint8_t which = (uint8_t)(n * 5 % 16), key_bytes[256], value[1024];
    struct remo__kv_shape shape = shape_of(which);
    if (n >= SEEDS)
        return 0;
    memset(key_bytes, 'k', sizeof key_bytes);
    memset(value, 'v', sizeof value);
    char *slot = aligned_alloc(64, shape.slot_bytes), *scratch = malloc(shape.copy_bytes);
    struct remo__kv_key key = {.bytes = key_bytes, .bytes_count = shape.key_bytes_max};
    key.hash = remo__kv_hash(key.bytes, key.bytes_count);
    memset(slot, 0, shape.slot_bytes);
    uint64_t head = remo__kv_slot_fill(&shape, slot, &key, value, shape.value_bytes_max, scratch);
    head = remo__kv_head_with(head, REMO__KV_VALID);
    memcpy(slot, &head, sizeof head);
    size_t bytes =
        remo__kv_copy_build(scratch, head, key.hash, remo__kv_meta_make(2, n % shape.value_bytes_max), value);
    if (n % 2 == 1)
        memcpy(slot + remo__kv_copy_at(&shape, 1), scratch, bytes);
    ret_data[0] = which;
    ret_data[1] = (uint8_t)(shape.key_bytes_max - 1);
    memcpy(ret_data + 2, slot, shape.slot_bytes);
    free(slot);
    free(scratch);
    return 2 + shape.slot_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 2)
        return 0;
    struct remo__kv_shape shape = shape_of(data[0]);
    uint8_t key_bytes[256];
    memset(key_bytes, 'k', sizeof key_bytes);
    struct remo__kv_key key = {.bytes = key_bytes, .bytes_count = data[1] % shape.key_bytes_max + 1};
    key.hash = remo__kv_hash(key.bytes, key.bytes_count);
    /* The exact size, so that a sanitizer detects reads beyond the end. */
    char *slot = aligned_alloc(64, shape.slot_bytes), *scratch = malloc(shape.copy_bytes),
         *value = malloc(shape.value_bytes_max);
    memset(slot, 0, shape.slot_bytes);
    memcpy(slot, data + 2, bytes - 2 < shape.slot_bytes ? bytes - 2 : shape.slot_bytes);
    struct remo__kv_snapshot sight;
    for (size_t cap = 0; cap <= shape.value_bytes_max; cap += shape.value_bytes_max) {
        enum remo__kv_verdict seen = remo__kv_slot_read(&shape, slot, &key, value, cap, scratch, &sight);
        if (seen != REMO__KV_VERDICT_GOOD && seen != REMO__KV_VERDICT_OLDER)
            continue;
        assert(remo__kv_head_state(sight.head) == REMO__KV_VALID);
        assert(remo__kv_head_key_bytes(sight.head) == key.bytes_count);
        assert(remo__kv_meta_value_bytes(sight.meta) <= shape.value_bytes_max);
        assert(sight.copy <= 1);
    }
    free(slot);
    free(scratch);
    free(value);
    return 0;
}
