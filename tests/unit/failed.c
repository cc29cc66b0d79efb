/* failed.c - unit tests of operations that fail: an ack has the status of the first one, keeps it when it is
 * joined, and the sentence is that of the fabric if it has one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#include "remote/op.h"
#include "remote/slots.h"
#include "remote/start.h"

#define DEPTH 8u

/* A fabric that completes an operation at the next poll. */
static struct remo__completion next;
static bool has_next;

static int post_one(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count) {
    (void)endpoint, (void)count;
    next.token = ops->token;
    return 1;
}

static int poll_one(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max) {
    (void)endpoint, (void)max;
    if (!has_next)
        return 0;
    has_next = false;
    *done = next;
    return 1;
}

static const struct remo__fabric_ops ops = {.name = "test", .post = post_one, .poll = poll_one};
static struct remo__fabric_peer fabric_peers[1]; /* not mapped */
static struct remo__fabric fabric = {.ops = &ops, .caps.batch_max = 1, .peers = fabric_peers};
static struct remo_node node;
static struct remo__thread thread;

static int open_thread(void **state) {
    (void)state;
    node = (struct remo_node){.size = 1, .fabric = &fabric};
    struct remo__slots *slots = calloc(1, sizeof *slots + sizeof slots->peers[0]);
    if (!slots)
        return -1;
    slots->node = &node;
    slots->depth = slots->free_count = DEPTH;
    for (uint32_t i = 0; i < DEPTH; i++)
        slots->free[i] = (uint16_t)i;
    thread = (struct remo__thread){.node = &node, .slots = slots};
    return 0;
}

static int close_thread(void **state) {
    (void)state;
    free(thread.slots);
    return 0;
}

/* Start an operation, and complete it. */
static void complete(struct remo_ack *ack, int status, const char *why) {
    struct remo__start start = {
        .slots = thread.slots, .thread = &thread, .ack = ack, .op = {.kind = REMO__OP_FETCH_ADD}};
    remo__ack_set_thread(ack, &thread);
    ack->pending++;
    assert_int_equal(remo__slots_try_start(&start), 1);
    next.status = status;
    next.why = why;
    has_next = true;
    remo__slots_progress(&thread);
}

static void test_first(void **state) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)state;
    complete(&ack, 0, NULL);
    assert_int_equal(remo_ack_test(&ack), 0);
    complete(&ack, -EHOSTDOWN, NULL);
    complete(&ack, -EIO, NULL);
    complete(&ack, 0, NULL);
    assert_int_equal(remo_ack_test(&ack), -EHOSTDOWN);
}

static void test_join(void **state) {
    struct remo_ack good = REMO_ACK_INIT, bad = REMO_ACK_INIT, worse = REMO_ACK_INIT;
    (void)state;
    complete(&good, 0, NULL);
    complete(&bad, -EHOSTDOWN, NULL);
    complete(&worse, -EIO, NULL);
    remo_ack_join(&good, &bad);
    assert_int_equal(remo_ack_test(&good), -EHOSTDOWN);
    assert_int_equal(remo_ack_test(&bad), 0);
    remo_ack_join(&good, &worse); /* the first failure stays */
    assert_int_equal(remo_ack_test(&good), -EHOSTDOWN);
    assert_int_equal(remo_ack_test(&worse), 0);
    remo_ack_join(&good, &bad);
    assert_int_equal(remo_ack_test(&good), -EHOSTDOWN);
}

static void test_join_unused(void **state) {
    struct remo_ack unused = REMO_ACK_INIT, bad = REMO_ACK_INIT;
    (void)state;
    complete(&bad, -EIO, "the card is on fire");
    remo_ack_join(&unused, &bad);
    assert_int_equal(remo_ack_test(&unused), -EIO);
    assert_non_null(strstr(remo_last_error(), "the card is on fire"));
}

static void test_sentence(void **state) {
    struct remo_ack ack = REMO_ACK_INIT, other = REMO_ACK_INIT;
    (void)state;
    complete(&ack, -EIO, "the card is on fire");
    assert_int_equal(remo_ack_test(&ack), -EIO);
    assert_non_null(strstr(remo_last_error(), "the card is on fire"));
    complete(&other, -EHOSTDOWN, NULL); /* the sentence is not this operation's */
    assert_int_equal(remo_ack_test(&other), -EHOSTDOWN);
    assert_null(strstr(remo_last_error(), "fire"));
    assert_int_equal(remo_ack_test(&ack), -EIO);
    assert_non_null(strstr(remo_last_error(), "an operation failed"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_first, open_thread, close_thread),
        cmocka_unit_test_setup_teardown(test_join, open_thread, close_thread),
        cmocka_unit_test_setup_teardown(test_join_unused, open_thread, close_thread),
        cmocka_unit_test_setup_teardown(test_sentence, open_thread, close_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
