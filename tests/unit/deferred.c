/* deferred.c - unit tests of deferred operations: none to the same peer is posted before them, although the
 * fabric has refused their post, and those to another peer need not wait for them. */
#include <stdlib.h>

#include "unit.h"

#include "remote/slots.h"

#define PEERS 2u
#define DEPTH 8u
#define POSTS_MAX 16u

/* A fabric that refuses the next posts to a peer, and records the others. */
static struct network {
    uint32_t refusals[PEERS];
    uint64_t posted[POSTS_MAX]; /* the operands, which number the operations */
    uint32_t posted_count;
} network;

static int post_recorded(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count) {
    (void)endpoint, (void)count;
    if (network.refusals[ops->peer] > 0) {
        network.refusals[ops->peer]--;
        return -EAGAIN;
    }
    assert_true(network.posted_count < POSTS_MAX);
    network.posted[network.posted_count++] = ops->operand;
    return 1;
}

static int poll_nothing(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max) {
    (void)endpoint, (void)done, (void)max;
    return 0;
}

static const struct remo__fabric_ops ops = {.name = "test", .post = post_recorded, .poll = poll_nothing};
static struct remo__fabric_peer fabric_peers[PEERS]; /* none is mapped */
static struct remo__fabric fabric = {.ops = &ops, .caps.batch_max = 1, .peers = fabric_peers};
static struct remo_node node;
static struct remo__slots *slots;

static int open_slots(void **state) {
    (void)state;
    network = (struct network){0};
    node = (struct remo_node){.size = PEERS, .fabric = &fabric};
    slots = calloc(1, sizeof *slots + PEERS * sizeof slots->peers[0]);
    if (!slots)
        return -1;
    slots->node = &node;
    slots->depth = slots->free_count = DEPTH;
    for (uint32_t i = 0; i < DEPTH; i++)
        slots->free[i] = (uint16_t)i;
    return 0;
}

static int close_slots(void **state) {
    (void)state;
    free(slots);
    return 0;
}

static int start(uint16_t peer, uint64_t number) {
    struct remo__start start = {.slots = slots,
                                .op = {.kind = REMO__OP_FETCH_ADD, .peer = peer, .operand = number}};
    return remo__slots_try_start(&start);
}

/* Defer an operation, and let the fabric refuse its first post. */
static void defer_and_refuse(uint16_t peer, uint64_t number) {
    slots->cork_depth = 1;
    assert_int_equal(start(peer, number), 1);
    slots->cork_depth = 0;
    assert_int_equal(network.posted_count, 0);
    network.refusals[peer] = 1;
}

static void test_order(void **state) {
    (void)state;
    defer_and_refuse(0, 1);
    assert_int_equal(start(0, 2), 0); /* the fabric would accept it now */
    assert_int_equal(network.posted_count, 0);
    assert_int_equal(start(0, 2), 1);
    assert_int_equal(network.posted_count, 2);
    assert_int_equal(network.posted[0], 1);
    assert_int_equal(network.posted[1], 2);
}

static void test_other_peer(void **state) {
    (void)state;
    defer_and_refuse(0, 1);
    assert_int_equal(start(1, 2), 1);
    assert_int_equal(network.posted_count, 1);
    assert_int_equal(network.posted[0], 2);
    assert_int_equal(slots->deferred_count, 1);
}

/* Operations to one peer are posted together, in the order of their starts. */
static void test_sort(void **state) {
    static const uint64_t expected[] = {2, 4, 1, 3, 5};
    (void)state;
    slots->cork_depth = 1;
    for (uint64_t number = 1; number <= 4; number++)
        assert_int_equal(start(number % 2 == 1, number), 1);
    slots->cork_depth = 0;
    assert_int_equal(start(1, 5), 1);
    assert_int_equal(network.posted_count, REMO__ARRAY_COUNT(expected));
    assert_memory_equal(network.posted, expected, sizeof expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_other_peer, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_sort, open_slots, close_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
