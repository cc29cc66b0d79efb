/* kv_internal.h - what the tests share that use the map from inside. */
#pragma once

#include "systems/kv/kv.h"
#include "kv_common.h"

/* Open a map of small keys and values on every node, and wait for all nodes. */
static inline int kv_open_small(struct remo_node *node, struct remo_kv **ret_kv) {
    struct remo_kv_options options = {.capacity = 1000, .key_bytes_max = 8, .value_bytes_max = 8};
    return kv_open(node, &options, ret_kv);
}

static inline struct remo_kv_op kv_op_of(enum remo_kv_kind kind, uint64_t *key, uint64_t *value) {
    return (struct remo_kv_op){.kind = kind, .key = key, .key_bytes = 8, .value = value, .value_bytes = 8};
}

static inline uint32_t kv_stripe_of(const struct remo_kv *kv, uint64_t key) {
    return remo__kv_stripe_of(kv, remo__kv_hash(&key, 8));
}
