/* channel.c - fuzzes the frames of the channel protocol that an authenticated peer can send: JOIN, CONNECT,
 * REFUSE, LEAVE, ANSWERED, messages. Each frame is decoded; a valid one must encode to the same bytes. Then
 * node 1 sends it to node 0, which has channels open, connected and waiting. Afterwards channels still close
 * and open. Input: u8 type, u8 flags, the frame. A fuzzer does not guess ids, so flags replace them by right
 * ones. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "channel/message.h"
#include "channel/registry.h"
#include "fuzz.h"

#define PREFIX_BYTES 2u
#define REOPEN_EVERY 50u

enum { MEND_TO_ID = 1, MEND_ID = 2, MEND_MEMORY = 4, TO_PAIR = 8 };

static struct remo_node *nodes[2];
static struct remo_channel *pair[2]; /* opened by both nodes */
static struct remo_channel *alone;   /* opened by node 0 only */
static char folder[64];

/* ---- the job ---- */

static void *open_node(void *ctx) {
    uint32_t rank = ctx != NULL;
    char text[2][96];
    const char *addresses[2] = {text[0], text[1]};
    for (int i = 0; i < 2; i++)
        snprintf(text[i], sizeof text[i], "unix:%s/%d", folder, i);
    struct remo_config config = {.fabric = "shm",
                                 .rank = rank,
                                 .size = 2,
                                 .addresses = addresses,
                                 .job = "fuzz",
                                 .arena_bytes = 64u << 20,
                                 .segment_bytes = 2u << 20};
    if (remo_node_open(&config, &nodes[rank]) != 0) {
        fprintf(stderr, "node %u: %s\n", rank, remo_last_error());
        exit(1);
    }
    return NULL;
}

static void on_frame(void *ctx, uint32_t node, const void *data, size_t size_bytes) {
    (void)ctx, (void)node;
    if (size_bytes > 0)
        assert(memchr(data, ((const char *)data)[size_bytes - 1], size_bytes)
               != NULL); /* every byte can be read */
}

static void open_channel(struct remo_node *node, const char *name, struct remo_channel **ret_channel) {
    uint32_t memory;
    struct remo_channel_options options = {.on_message = on_frame};
    int rc = remo_channel_open(remo_node_root(node), name, "fuzz", &options, ret_channel);
    rc = rc ? rc : remo_channel_add_memory(*ret_channel, "a", 128, 128, NULL, &memory);
    rc = rc ? rc : remo_channel_add_memory(*ret_channel, "b", 64, 64, NULL, &memory);
    rc = rc ? rc : remo_channel_join(*ret_channel);
    assert(rc == 0);
}

static void open_pair(void) {
    open_channel(nodes[0], "pair", &pair[0]);
    open_channel(nodes[1], "pair", &pair[1]);
}

static void close_job(void) {
    remo_node_close(nodes[0]);
    remo_node_close(nodes[1]);
    rmdir(folder);
}

static void open_job(void) {
    const char *tmp = getenv("TMPDIR");
    pthread_t thread;
    snprintf(folder, sizeof folder, "%s/remo-fuzz-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    if (!mkdtemp(folder) || pthread_create(&thread, NULL, open_node, folder) != 0)
        exit(1);
    open_node(NULL);
    pthread_join(thread, NULL);
    open_pair();
    open_channel(nodes[0], "alone", &alone);
    atexit(close_job);
}

static void reopen(void) {
    remo_channel_close(pair[0]);
    remo_channel_close(pair[1]);
    remo_channel_close(alone);
    open_pair();
    open_channel(nodes[0], "alone", &alone);
}

/* ---- one frame ---- */

static uint8_t frame[REMO__MESSAGE_BYTES_MAX];

static void mend_join(struct remo__join *join, uint8_t mend, const struct remo_channel *target) {
    if (mend & MEND_ID)
        join->id = pair[1]->id;
    if (mend & MEND_TO_ID) {
        join->to_id = target->id;
        memcpy(join->name, target->name, sizeof join->name);
    }
    if (!(mend & MEND_MEMORY))
        return;
    memcpy(join->type, target->type, sizeof join->type);
    join->participants = target->participants;
    join->memory_count = target->memory_count;
    for (uint32_t i = 0; i < target->memory_count; i++) {
        memcpy(join->memories[i].name, target->memories[i].name, sizeof target->memories[i].name);
        join->memories[i].expected_bytes = target->memories[i].own_bytes;
        join->memories[i].providers = target->memories[i].providers;
    }
}

static void mend_connect(struct remo__connect *connect, uint8_t mend, const struct remo_channel *target) {
    if (mend & MEND_ID)
        connect->id = pair[1]->id;
    if (mend & MEND_TO_ID)
        connect->to_id = target->id;
    if (!(mend & MEND_MEMORY))
        return;
    connect->memory_count = target->memory_count;
    for (uint32_t i = 0; i < target->memory_count; i++)
        connect->memories[i].bytes = target->memories[i].expected_bytes;
}

/* Decode the frame, and encode it with the changes of `mend` into `frame`. Returns 0 if it is invalid. */
static size_t mend_frame(uint16_t type, uint8_t mend, const uint8_t *data, size_t bytes) {
    const struct remo_channel *target = mend & TO_PAIR ? pair[0] : alone;
    struct remo__join join;
    struct remo__connect connect;
    struct remo__refuse refuse;
    struct remo__leave leave;
    struct remo__answered answered;
    if (type == REMO__MESSAGE_JOIN && remo__join_decode(data, bytes, &join)) {
        assert(remo__join_encode(&join, frame) == bytes && memcmp(frame, data, bytes) == 0);
        mend_join(&join, mend, target);
        return remo__join_encode(&join, frame);
    }
    if (type == REMO__MESSAGE_CONNECT && remo__connect_decode(data, bytes, &connect)) {
        assert(remo__connect_encode(&connect, frame) == bytes && memcmp(frame, data, bytes) == 0);
        mend_connect(&connect, mend, target);
        return remo__connect_encode(&connect, frame);
    }
    if (type == REMO__MESSAGE_REFUSE && remo__refuse_decode(data, bytes, &refuse)) {
        assert(remo__refuse_encode(&refuse, frame) == bytes && memcmp(frame, data, bytes) == 0);
        refuse.to_id = mend & MEND_TO_ID ? target->id : refuse.to_id;
        return remo__refuse_encode(&refuse, frame);
    }
    if (type == REMO__MESSAGE_LEAVE && remo__leave_decode(data, bytes, &leave)) {
        assert(remo__leave_encode(&leave, frame) == bytes && memcmp(frame, data, bytes) == 0);
        leave.to_id = mend & MEND_TO_ID ? target->id : leave.to_id;
        leave.id = mend & MEND_ID ? pair[1]->id : leave.id;
        return remo__leave_encode(&leave, frame);
    }
    if (type == REMO__MESSAGE_ANSWERED && remo__answered_decode(data, bytes, &answered)) {
        assert(remo__answered_encode(&answered, frame) == bytes && memcmp(frame, data, bytes) == 0);
        answered.to_id = mend & MEND_TO_ID ? target->id : answered.to_id;
        return remo__answered_encode(&answered, frame);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static uint32_t inputs;
    if (bytes < PREFIX_BYTES)
        return 0;
    if (!nodes[0])
        open_job();
    uint16_t type = (uint16_t)(REMO__MESSAGE_JOIN + data[0] % 7);
    struct remo__registry *registry = remo__registry(nodes[0]);
    remo__join_frame(registry, 1, type, data + PREFIX_BYTES, bytes - PREFIX_BYTES);
    size_t length = data[1] ? mend_frame(type, data[1], data + PREFIX_BYTES, bytes - PREFIX_BYTES) : 0;
    if (length > 0)
        remo__join_frame(registry, 1, type, frame, length);
    if (++inputs % REOPEN_EVERY == 0)
        reopen();
    return 0;
}

/* Each kind of frame, with each change. */
size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    static const struct remo__join join = {.id = 4097,
                                           .name = "alone",
                                           .type = "fuzz",
                                           .participants = {{3}},
                                           .memory_count = 2,
                                           .memories = {{"a", 128, {{3}}}, {"b", 64, {{3}}}}};
    static const struct remo__connect connect = {
        .id = 4097, .to_id = 4098, .memory_count = 2, .memories = {{1u << 20, 128}, {(1u << 20) + 128, 64}}};
    static const struct remo__refuse refuse = {.to_id = 4098, .text = "channel alone is not what you think"};
    static const struct remo__leave leave = {.id = 4097, .to_id = 4098};
    static const struct remo__answered answered = {.to_id = 4098};
    if (n >= 6 * 16)
        return 0;
    ret_data[0] = (uint8_t)(n % 6);
    ret_data[1] = (uint8_t)(n / 6);
    switch (n % 6) {
    case 0: return PREFIX_BYTES + remo__join_encode(&join, ret_data + PREFIX_BYTES);
    case 1: return PREFIX_BYTES + remo__connect_encode(&connect, ret_data + PREFIX_BYTES);
    case 2: return PREFIX_BYTES + remo__refuse_encode(&refuse, ret_data + PREFIX_BYTES);
    case 3: return PREFIX_BYTES + remo__leave_encode(&leave, ret_data + PREFIX_BYTES);
    case 4: return PREFIX_BYTES + remo__answered_encode(&answered, ret_data + PREFIX_BYTES);
    default: memcpy(ret_data + PREFIX_BYTES, "\2\20\0\0 a message", 14); return PREFIX_BYTES + 14;
    }
}
