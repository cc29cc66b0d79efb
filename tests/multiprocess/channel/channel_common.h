/* channel_common.h - functions that the tests of channels share: callbacks that record events, opening a
 * channel with them, waiting for a number of events, and sending messages. */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"
#include "channel/channel.h"

/* The events of one channel that its callbacks have recorded. */
struct events {
    struct remo_channel *channel;
    _Atomic uint32_t joins[8], connects[8], lefts[8], downs[8], messages[8], immediates[8];
    _Atomic uint64_t bytes;
    _Atomic uint32_t wrong;
};

static inline void on_join(void *ctx, uint32_t node) {
    atomic_fetch_add(&((struct events *)ctx)->joins[node], 1);
}

static inline void on_connect(void *ctx, uint32_t node) {
    atomic_fetch_add(&((struct events *)ctx)->connects[node], 1);
}

static inline void on_leave(void *ctx, uint32_t node, enum remo_channel_state state) {
    struct events *events = ctx;
    atomic_fetch_add(state == REMO_CHANNEL_LEFT ? &events->lefts[node] : &events->downs[node], 1);
}

/* Messages are numbered by their sender. Each of their bytes is the low byte of the number. */
static inline void on_message(void *ctx, uint32_t node, const void *data, size_t size_bytes) {
    struct events *events = ctx;
    const unsigned char *bytes = data;
    uint32_t number = atomic_load(&events->messages[node]);
    if (atomic_load(&events->connects[node]) == 0
        && node != remo_node_rank(remo_channel_node(events->channel)))
        atomic_fetch_add(&events->wrong, 1); /* otherwise the callback could not answer */
    for (size_t i = 0; i < size_bytes; i++)
        if (bytes[i] != (unsigned char)number)
            atomic_fetch_add(&events->wrong, 1);
    atomic_fetch_add(&events->bytes, size_bytes);
    atomic_fetch_add(&events->messages[node], 1); /* last, because the test reads the other fields after it */
}

static inline void on_immediate(void *ctx, uint32_t node, uint32_t value) {
    struct events *events = ctx;
    if (value != atomic_fetch_add(&events->immediates[node], 1) % (REMO_CHANNEL_IMMEDIATE_MAX + 1))
        atomic_fetch_add(&events->wrong, 1);
}

static inline int open_channel(struct remo_channel *parent, const char *name, uint64_t bytes,
                               struct events *events, struct remo_channel **ret_channel) {
    struct remo_channel_options options = {.ctx = events,
                                           .on_join = on_join,
                                           .on_connect = on_connect,
                                           .on_leave = on_leave,
                                           .on_message = on_message,
                                           .on_immediate = on_immediate};
    uint32_t memory;
    CHECK_OK(remo_channel_open(parent, name, "test", events ? &options : NULL, ret_channel));
    if (events)
        events->channel = *ret_channel;
    if (bytes > 0) {
        CHECK_OK(remo_channel_add_memory(*ret_channel, "data", bytes, bytes, NULL, &memory));
        CHECK_EQUAL(memory, 0);
    }
    CHECK_OK(remo_channel_join(*ret_channel));
    return 0;
}

/* Wait until the number is reached: callbacks are asynchronous. */
static inline int await_count(_Atomic uint32_t *number, uint32_t expected) {
    for (uint32_t ms = 0; atomic_load(number) < expected && ms < 100000; ms++)
        cluster_sleep_ms(1);
    CHECK_EQUAL(atomic_load(number), expected);
    return 0;
}

/* Send `count` messages of up to `most` bytes, with the contents that on_message expects. Add their sizes to
 * *sum. */
static inline int send_all(struct remo_channel *channel, uint32_t to, uint32_t count, size_t most,
                           uint64_t *sum) {
    unsigned char *data = malloc(most);
    for (uint32_t i = 0; i < count; i++) {
        size_t size = i % 5 == 0 ? most : (size_t)i * 37 % (most + 1);
        int rc;
        memset(data, (int)(i & 0xff), size);
        while ((rc = remo_channel_send(channel, to, data, size)) == -ENOBUFS)
            cluster_sleep_ms(1);
        CHECK_OK(rc);
        *sum += size;
    }
    free(data);
    return 0;
}
