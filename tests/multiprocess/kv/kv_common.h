/* kv_common.h - functions that the tests of the map share: opening a map, and values that contain their key
 * and a counter. */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"
#include "base/random.h"

/* A value of at least 16 bytes: key, counter, and filler computed from both. */
struct kv_value {
    uint64_t key, counter;
};

static inline void kv_value_make(unsigned char *value, size_t bytes, uint64_t key, uint64_t counter) {
    struct kv_value head = {key, counter};
    memcpy(value, &head, sizeof head);
    uint64_t seed = remo__random_mix(key ^ remo__random_mix(counter));
    for (size_t i = sizeof head; i < bytes; i++)
        value[i] = (unsigned char)(seed >> i % 8 * 8) + (unsigned char)i;
}

/* Return whether this is a whole value of the key, and its counter. */
static inline int kv_value_check(const unsigned char *value, size_t bytes, uint64_t key,
                                 uint64_t *ret_counter) {
    struct kv_value head;
    if (bytes < sizeof head)
        return 0;
    memcpy(&head, value, sizeof head);
    uint64_t seed = remo__random_mix(key ^ remo__random_mix(head.counter));
    for (size_t i = sizeof head; i < bytes; i++)
        if (value[i] != (unsigned char)((unsigned char)(seed >> i % 8 * 8) + (unsigned char)i))
            return 0;
    *ret_counter = head.counter;
    return head.key == key;
}

/* Open a map on every node, and wait for all nodes. */
static inline int kv_open(struct remo_node *node, const struct remo_kv_options *options,
                          struct remo_kv **ret_kv) {
    CHECK_OK(remo_kv_open(remo_node_root(node), "map", options, ret_kv));
    CHECK_OK(remo_channel_wait(remo_kv_channel(*ret_kv), 20 * SECOND));
    CHECK_OK(cluster_meet());
    return 0;
}

/* Wait until this node has applied the deletes of its peers: a delete does not wait for that. */
static inline int kv_wait_for_count(const struct remo_kv *kv, uint64_t count) {
    for (uint32_t i = 0; i < 100000 && remo_kv_count(kv) != count; i++)
        cluster_sleep_ms(1);
    CHECK_EQUAL(remo_kv_count(kv), count);
    return 0;
}
