/* test_channel_turns.c - tests every order in which two nodes can open and close a channel of one name. Also
 * that memory of a closed channel is reused only after every peer with its address has closed.
 * Both nodes are in this process, and one thread makes their steps, so the order is exact. Between steps the
 * control threads get no time, some time, or enough. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"
#include "../../support/job.h"

#define STEPS 5u         /* of each node: open, close, open, close, open */
#define BYTES (1u << 20) /* large, so that a leak soon exhausts the arena */

struct side {
    struct remo_node *node;
    struct remo_channel *channel;
    uint32_t other;
};

static int open_side(struct side *side) {
    uint32_t memory;
    CHECK_OK(remo_channel_open(remo_node_root(side->node), "turn", "test", NULL, &side->channel));
    CHECK_OK(remo_channel_add_memory(side->channel, "data", BYTES, BYTES, NULL, &memory));
    CHECK_OK(remo_channel_join(side->channel));
    return 0;
}

static int step(struct side *side) {
    if (!side->channel)
        return open_side(side);
    remo_channel_close(side->channel);
    side->channel = NULL;
    return 0;
}

static enum remo_channel_state state_of(const struct side *side) {
    return remo_channel_peer(side->channel, side->other);
}

static void pause_for(uint32_t how) {
    if (how == 1)
        sched_yield();
    else if (how == 2)
        cluster_sleep_ms(1);
}

/* Both are open. They are connected, or become connected. If the partner of one has closed, that one closes
 * and opens again. */
static int end_connected(struct side *sides) {
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t ms = 0; ms < 100000; ms++) {
            enum remo_channel_state a = state_of(&sides[0]), b = state_of(&sides[1]);
            if (a == REMO_CHANNEL_CONNECTED && b == REMO_CHANNEL_CONNECTED) {
                CHECK_OK(remo_channel_wait(sides[0].channel, 0));
                CHECK_OK(remo_channel_wait(sides[1].channel, 0));
                return 0;
            }
            if (a == REMO_CHANNEL_LEFT || b == REMO_CHANNEL_LEFT)
                break;
            CHECK(ms < 99999);
            if (ms > 3)
                cluster_sleep_ms(1);
        }
        for (uint32_t i = 0; i < 2; i++)
            if (state_of(&sides[i]) == REMO_CHANNEL_LEFT && (step(&sides[i]) || step(&sides[i])))
                return 1;
    }
    return cluster_fail(__FILE__, __LINE__, "the two nodes do not connect");
}

static int one_order(struct side *sides, uint32_t order, uint32_t how) {
    for (uint32_t i = 0; i < 2 * STEPS; i++) {
        if (step(&sides[order >> i & 1]))
            return 1;
        pause_for(how == 3 ? (order * 7 + i) % 3 : how);
    }
    if (end_connected(sides)) {
        fprintf(stderr, "order 0x%x, pauses %u: states %d and %d\n", order, how, (int)state_of(&sides[0]),
                (int)state_of(&sides[1]));
        return 1;
    }
    if (step(&sides[order & 1]))
        return 1;
    return step(&sides[1 - (order & 1)]);
}

static int open_job(struct remo_node *node, struct job *job, struct job_node *nodes, struct side *sides) {
    static const struct remo_config options = {.arena_bytes = 64u << 20, .segment_bytes = 2u << 20};
    CHECK_OK(job_make(job, 2));
    for (uint32_t i = 0; i < 2; i++)
        nodes[i] =
            (struct job_node){.job = job, .rank = i, .fabric = remo_node_fabric(node), .options = &options};
    CHECK_OK(job_open_all(nodes, 2));
    for (uint32_t i = 0; i < 2; i++)
        sides[i] = (struct side){.node = nodes[i].node, .other = 1 - i};
    return 0;
}

static int all_orders(struct remo_node *node, void *ctx) {
    struct job_node nodes[2];
    struct side sides[2];
    struct job job;
    uint32_t orders = 0;
    (void)ctx;
    if (open_job(node, &job, nodes, sides))
        return 1;
    for (uint32_t order = 0; order < 1u << 2 * STEPS; order++) {
        if (__builtin_popcount(order) != STEPS)
            continue;
        for (uint32_t how = 0; how < 4; how++)
            if (one_order(sides, order, how))
                return 1;
        orders++;
    }
    CHECK_EQUAL(orders, 252);
    job_close_all(nodes, 2);
    job_remove(&job);
    return 0;
}

/* ---- memory of closed channels ---- */

static int open_region(struct remo_node *node, const char *name, struct remo_region **ret_region) {
    CHECK_OK(remo_region_open(remo_node_root(node), name, BYTES, NULL, ret_region));
    return 0;
}

static int is_filled_with(const struct remo_region *region, unsigned char value) {
    const volatile unsigned char *own = remo_region_local(region);
    for (uint64_t i = 0; i < BYTES; i++)
        if (own[i] != value)
            return 0;
    return 1;
}

/* Node 0 closes, node 1 does not, and writes to the memory by an address that it has. No region that node 0
 * opens meanwhile contains the data. When node 1 has closed too, the memory is reused, and contains zeros. */
static int reuse_once(struct side *sides, unsigned char *data, uint32_t turn) {
    struct remo_region *held[2], *other[3];
    struct remo_addr before, now;
    char name[16];
    for (uint32_t i = 0; i < 2; i++)
        if (open_region(sides[i].node, "held", &held[i]))
            return 1;
    CHECK_OK(remo_channel_wait(remo_region_channel(held[0]), 100 * SECOND));
    CHECK_OK(remo_channel_wait(remo_region_channel(held[1]), 100 * SECOND));
    CHECK(is_filled_with(held[0], 0));
    CHECK_OK(remo_region_address(held[1], 0, 0, &before));
    memset(data, 0xaa, BYTES);
    CHECK_OK(remo_write(sides[1].node, before, data, BYTES, NULL));
    CHECK_OK(remo_fence(sides[1].node, REMO_FENCE_THREAD, 0));
    CHECK(is_filled_with(held[0], 0xaa));
    remo_region_close(held[0]);
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "other%u", i);
        if (open_region(sides[0].node, name, &other[i]))
            return 1;
        CHECK_OK(remo_region_address(other[i], 0, 0, &now));
        CHECK(now.word != before.word);
    }
    CHECK_OK(remo_write(sides[1].node, before, data, BYTES, NULL));
    CHECK_OK(remo_fence(sides[1].node, REMO_FENCE_THREAD, 0));
    for (uint32_t i = 0; i < 3; i++)
        CHECK(is_filled_with(other[i], 0));
    if (turn % 2) /* nor does a region with the same name contain it */
        if (open_region(sides[0].node, "held", &held[0]))
            return 1;
    remo_region_close(held[1]);
    for (uint32_t i = 0; i < 3; i++)
        remo_region_close(other[i]);
    if (turn % 2)
        remo_region_close(held[0]);
    return 0;
}

static int reuse_of_memory(struct remo_node *node, void *ctx) {
    unsigned char *data = malloc(BYTES);
    struct remo_region *last = NULL;
    struct job_node nodes[2];
    struct side sides[2];
    struct job job;
    (void)ctx;
    if (open_job(node, &job, nodes, sides))
        return 1;
    for (uint32_t turn = 0; turn < 40; turn++) /* 40 turns need far more than 64 MiB */
        if (reuse_once(sides, data, turn))
            return 1;
    /* All memory is free once the last messages have arrived: nearly all of the arena can be allocated. */
    for (uint32_t ms = 0; ms < 100000; ms++) {
        if (remo_region_open(remo_node_root(sides[0].node), "last", 20u << 20, NULL, &last) == 0)
            break;
        cluster_sleep_ms(1);
    }
    CHECK(last);
    const volatile unsigned char *own = remo_region_local(last);
    for (uint64_t i = 0; i < 20u << 20; i += 61)
        CHECK_EQUAL(own[i], 0);
    remo_region_close(last);
    job_close_all(nodes, 2);
    job_remove(&job);
    free(data);
    return 0;
}

/* A peer that leaves reserves no memory: 20 incarnations, each of which gets the address of a part of a small
 * arena. */
static int memory_of_earlier_incarnations(struct remo_node *node, void *ctx) {
    struct job_node nodes[2];
    struct side sides[2];
    struct job job;
    (void)ctx;
    if (open_job(node, &job, nodes, sides))
        return 1;
    for (uint32_t turn = 1; turn <= 20; turn++) {
        struct remo_region *a, *b;
        CHECK_OK(remo_region_open(remo_node_root(nodes[0].node), "a", 8u << 20, NULL, &a));
        CHECK_OK(remo_region_open(remo_node_root(nodes[1].node), "a", 8u << 20, NULL, &b));
        CHECK_OK(remo_channel_wait(remo_region_channel(a), 100 * SECOND));
        if (turn % 2) /* reserved for b */
            remo_region_close(a);
        remo_region_close(b);
        remo_node_close(nodes[1].node);
        if (turn % 2 == 0)
            remo_region_close(a);
        CHECK_OK(job_rejoin(&nodes[1], turn, nodes[0].node));
    }
    job_close_all(nodes, 2);
    job_remove(&job);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(all_orders, 1),
                                                CLUSTER_TEST(reuse_of_memory, 1),
                                                CLUSTER_TEST(memory_of_earlier_incarnations, 1),
                                                {0}};
    return cluster_main(argc, argv, tests, NULL);
}
