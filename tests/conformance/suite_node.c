/* suite_node.c - nodes for the cases: an arena, a fabric and a segment.
 * The suite passes descriptions between nodes, as the control plane does in production. */
#include "suite.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/mapped.h"
#include "memory/segment.h"

#define SEGMENT_BYTES REMO__SEGMENT_ALIGN_BYTES

struct remo__fabric_config suite_config(const struct suite *suite, uint32_t rank, uint32_t size) {
    return (struct remo__fabric_config){
        .rank = rank,
        .size = size,
        .job = "conformance",
        .provider = suite->provider,
        .arena_bytes = SUITE_ARENA_BYTES,
        .endpoints_max = 64,
    };
}

void suite_node_open(struct suite_node *node, const struct suite *suite, uint32_t rank, uint32_t size) {
    memset(node, 0, sizeof *node);
    node->suite = suite;
    node->arena = remo__segment_reserve(SUITE_ARENA_BYTES);
    CHECK(node->arena != NULL);
    struct remo__fabric_config config = suite_config(suite, rank, size);
    config.arena = node->arena;
    CHECK_EQ(suite->ops->open(&config, &node->fabric), 0);
    CHECK(node->fabric->ops == suite->ops);
    CHECK_EQ(node->fabric->rank, rank);
    CHECK_EQ(node->fabric->size, size);
    CHECK(node->fabric->private_bytes <= REMO__PRIVATE_BYTES_MAX);
    node->zone = remo__align_up(node->fabric->private_bytes, 4096);
    node->card.rank = rank;
    CHECK_EQ(
        suite->ops->describe(node->fabric, node->card.blob, sizeof node->card.blob, &node->card.blob_bytes),
        0);
    suite_node_grow(node, remo__align_up(node->zone + 2 * SUITE_ZONE_BYTES, SEGMENT_BYTES));
    CHECK(node->fabric->doorbell != NULL);
}

void suite_node_grow(struct suite_node *node, uint64_t size_bytes) {
    uint32_t index = node->card.segment_count;
    CHECK(index < SUITE_SEGMENTS_MAX);
    struct suite_segment *segment = &node->card.segments[index];
    if (index > 0)
        segment->offset = segment[-1].offset + segment[-1].size_bytes;
    segment->size_bytes = size_bytes;
    bool huge;
    CHECK_EQ(remo__segment_create(NULL, size_bytes, &segment->fd, &huge), 0);
    CHECK(remo__segment_map(node->arena + segment->offset, size_bytes, segment->fd) != NULL);
    CHECK_EQ(node->suite->ops->add_segment(node->fabric, index, segment->offset, size_bytes, segment->fd,
                                           segment->blob, sizeof segment->blob, &segment->blob_bytes),
             0);
    node->card.segment_count++;
}

void suite_node_map(struct suite_node *node, const struct suite_card *card, uint32_t index) {
    const struct suite_segment *segment = &card->segments[index];
    CHECK_EQ(node->suite->ops->map_segment(node->fabric, card->rank, index, segment->offset,
                                           segment->size_bytes, segment->blob, segment->blob_bytes,
                                           segment->fd),
             0);
}

void suite_node_meet(struct suite_node *node, const struct suite_card *card) {
    CHECK_EQ(node->suite->ops->connect(node->fabric, card->rank, card->blob, card->blob_bytes), 0);
    for (uint32_t i = 0; i < card->segment_count; i++)
        suite_node_map(node, card, i);
}

void suite_node_close(struct suite_node *node) {
    suite_service_stop(node);
    for (uint32_t peer = 0; peer < node->fabric->size; peer++)
        node->suite->ops->disconnect(node->fabric, peer);
    node->suite->ops->close(node->fabric);
    for (uint32_t i = 0; i < node->card.segment_count; i++)
        close(node->card.segments[i].fd);
    munmap(node->arena, SUITE_ARENA_BYTES);
    free(node->imms);
}

void suite_cluster_open(struct suite_cluster *cluster, const struct suite *suite, uint32_t size) {
    CHECK(size <= SUITE_NODES_MAX);
    cluster->size = size;
    for (uint32_t i = 0; i < size; i++)
        suite_node_open(&cluster->nodes[i], suite, i, size);
    for (uint32_t i = 0; i < size; i++) {
        for (uint32_t j = 0; j < size; j++)
            suite_node_meet(&cluster->nodes[i], &cluster->nodes[j].card);
    }
}

void suite_cluster_close(struct suite_cluster *cluster) {
    for (uint32_t i = 0; i < cluster->size; i++)
        suite_service_stop(&cluster->nodes[i]);
    for (uint32_t i = 0; i < cluster->size; i++)
        suite_node_close(&cluster->nodes[i]);
}

/* ---- the service thread ---- */

static void *service_run(void *arg) {
    struct suite_node *node = arg;
    const struct remo__fabric_ops *ops = node->suite->ops;
    struct remo__imm imms[16];
    while (!atomic_load(&node->service_stop)) {
        ops->imm_wait(node->fabric, REMO_FOREVER);
        for (int count; (count = ops->imm_poll(node->fabric, imms, REMO__ARRAY_COUNT(imms))) != 0;) {
            CHECK(count > 0 && count <= (int)REMO__ARRAY_COUNT(imms));
            uint32_t had = atomic_load(&node->imm_count);
            CHECK(had + (uint32_t)count <= SUITE_IMMS_MAX);
            memcpy(node->imms + had, imms, (size_t)count * sizeof imms[0]);
            atomic_store(&node->imm_count, had + (uint32_t)count);
        }
    }
    return NULL;
}

void suite_service_start(struct suite_node *node) {
    node->imms = calloc(SUITE_IMMS_MAX, sizeof *node->imms);
    CHECK(node->imms != NULL);
    atomic_store(&node->service_stop, false);
    CHECK_EQ(pthread_create(&node->service, NULL, service_run, node), 0);
    node->served = true;
}

void suite_service_stop(struct suite_node *node) {
    if (!node->served)
        return;
    atomic_store(&node->service_stop, true);
    node->suite->ops->imm_wake(node->fabric);
    pthread_join(node->service, NULL);
    node->served = false;
}

void suite_service_expect(struct suite_node *node, uint32_t count) {
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    while (atomic_load(&node->imm_count) < count) {
        CHECK(remo__now_ns() < limit);
        usleep(100);
    }
    CHECK_EQ(atomic_load(&node->imm_count), count);
}

/* ---- memory ---- */

uint64_t suite_offset(const struct suite_node *node, uint64_t at) {
    return node->zone + at;
}

char *suite_memory(const struct suite_node *node, uint64_t at) {
    return node->arena + node->zone + at;
}

char *suite_buffer(const struct suite_node *node, uint64_t at) {
    return node->arena + node->zone + SUITE_ZONE_BYTES + at;
}

static uint8_t fill_byte(uint64_t seed, uint64_t i) {
    return (uint8_t)((seed * 2654435761u + i * 40503u + (i >> 8)) >> 3);
}

void suite_fill(char *bytes, uint64_t size_bytes, uint64_t seed) {
    for (uint64_t i = 0; i < size_bytes; i++)
        bytes[i] = (char)fill_byte(seed, i);
}

bool suite_filled(const char *bytes, uint64_t size_bytes, uint64_t seed) {
    for (uint64_t i = 0; i < size_bytes; i++) {
        if ((uint8_t)bytes[i] != fill_byte(seed, i))
            return false;
    }
    return true;
}

uint64_t suite_load(const void *word) {
    return atomic_load_explicit((const _Atomic uint64_t *)word, memory_order_acquire);
}

void suite_store(void *word, uint64_t value) {
    atomic_store_explicit((_Atomic uint64_t *)word, value, memory_order_release);
}

/* ---- operations ---- */

struct remo__endpoint *suite_endpoint(struct suite_node *node) {
    struct remo__endpoint *endpoint = NULL;
    CHECK_EQ(node->suite->ops->endpoint_open(node->fabric, &endpoint), 0);
    return endpoint;
}

struct remo__op suite_op(struct suite_node *node, uint8_t kind, uint32_t peer, uint64_t at, void *local,
                         uint64_t size_bytes) {
    return (struct remo__op){.kind = kind,
                             .peer = (uint16_t)peer,
                             .local = local,
                             .remote = suite_offset(node, at),
                             .size_bytes = size_bytes,
                             .token = UINT64_C(0x70cee) + at};
}

int suite_post(struct suite_node *node, struct remo__endpoint *endpoint, const struct remo__op *op) {
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    for (;;) {
        int rc = node->suite->ops->post(endpoint, op, 1);
        if (rc != -EAGAIN)
            return rc;
        CHECK(remo__now_ns() < limit);
        sched_yield();
    }
}

struct remo__completion suite_complete(struct suite_node *node, struct remo__endpoint *endpoint) {
    uint64_t limit = remo__deadline(SUITE_LIMIT_NS);
    struct remo__completion done;
    int count;
    while ((count = node->suite->ops->poll(endpoint, &done, 1)) == 0) {
        CHECK(remo__now_ns() < limit);
        node->suite->ops->wait(endpoint, 10 * REMO__NS_PER_MS);
    }
    CHECK_EQ(count, 1);
    return done;
}

int suite_run(struct suite_node *node, struct remo__endpoint *endpoint, struct remo__op op) {
    int rc = suite_post(node, endpoint, &op);
    if (rc < 0)
        return rc;
    CHECK_EQ(rc, 1);
    struct remo__completion done = suite_complete(node, endpoint);
    CHECK_EQ(done.token, op.token);
    return done.status;
}

static void run_split(struct suite_node *node, struct remo__endpoint *endpoint, struct remo__op op) {
    uint64_t left = op.size_bytes, most = node->fabric->caps.message_bytes_max;
    do {
        op.size_bytes = remo__min(left, most);
        CHECK_EQ(suite_run(node, endpoint, op), 0);
        left -= op.size_bytes;
        op.remote += op.size_bytes;
        op.local = (char *)op.local + op.size_bytes;
    } while (left > 0);
}

void suite_read(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer, uint64_t at,
                void *local, uint64_t size_bytes) {
    run_split(node, endpoint, suite_op(node, REMO__OP_READ, peer, at, local, size_bytes));
}

void suite_write(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer, uint64_t at,
                 const void *local, uint64_t size_bytes) {
    run_split(node, endpoint, suite_op(node, REMO__OP_WRITE, peer, at, (void *)local, size_bytes));
}

/* A private word of this thread in the node's buffers. */
static uint64_t *word_buffer(struct suite_node *node) {
    static _Atomic uint32_t threads;
    static _Thread_local uint32_t mine;
    if (mine == 0)
        mine = atomic_fetch_add(&threads, 1) + 1;
    uint64_t *word = (uint64_t *)suite_buffer(node, SUITE_ZONE_BYTES - UINT64_C(64) * mine);
    *word = ~UINT64_C(0);
    return word;
}

uint64_t suite_fetch_add(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer, uint64_t at,
                         uint64_t addend) {
    uint64_t *old = word_buffer(node);
    struct remo__op op = suite_op(node, REMO__OP_FETCH_ADD, peer, at, old, 8);
    op.operand = addend;
    CHECK_EQ(suite_run(node, endpoint, op), 0);
    return *old;
}

uint64_t suite_compare_swap(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer,
                            uint64_t at, uint64_t compare, uint64_t value) {
    uint64_t *old = word_buffer(node);
    struct remo__op op = suite_op(node, REMO__OP_COMPARE_SWAP, peer, at, old, 8);
    op.compare = compare;
    op.operand = value;
    CHECK_EQ(suite_run(node, endpoint, op), 0);
    return *old;
}

uint32_t suite_rounds(const struct suite_node *node, uint32_t rounds) {
    return node->fabric->caps.mapped ? rounds * 20 : rounds;
}

bool suite_woken(uint32_t *stalls, uint64_t since_ns) {
    *stalls += remo__now_ns() - since_ns >= 900 * REMO__NS_PER_MS;
    return *stalls <= 2;
}

void suite_flush(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer) {
    if (node->fabric->caps.completion_placed)
        return;
    if (!node->fabric->caps.read_flushes)
        suite_skip("fabric %s offers no way to know that a write is placed", node->suite->ops->name);
    suite_read(node, endpoint, peer, SUITE_ZONE_BYTES - 8, word_buffer(node), 8);
}
