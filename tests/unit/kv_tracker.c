/* kv_tracker.c - unit tests of the trackers of a map: a receiver ends although its peer sends on. The ring is
 * replaced by one that always has a further message. */
#include <stdlib.h>

#include "unit.h"

#include "systems/kv/kv.h"

#define TRACKER_BYTES 4096u
#define RECEIVES_MAX 100000u

static struct remo_node node;
static struct remo__threads threads;
static struct remo_kv kv;
static struct remo_nodeset participants;
static struct remo__ring_set_options options;
static uint32_t received, acknowledged;

int __wrap_remo__ring_set_open(struct remo_channel *parent, const char *name, const char *type,
                               const struct remo__ring_set_options *given, struct remo__ring_set **ret_set);
int __wrap_remo__ring_set_open(struct remo_channel *parent, const char *name, const char *type,
                               const struct remo__ring_set_options *given, struct remo__ring_set **ret_set) {
    (void)parent, (void)name, (void)type;
    options = *given;
    struct remo__ring_set *set = calloc(1, sizeof *set + 2 * sizeof set->rings[0]);
    assert_non_null(set);
    set->rings[0] = set->rings[1] = (struct remo_ringbuffer *)set; /* not NULL */
    *ret_set = set;
    return 0;
}

void __wrap_remo__ring_set_close(struct remo__ring_set *set);
void __wrap_remo__ring_set_close(struct remo__ring_set *set) {
    free(set);
}

int __wrap_remo_channel_join(struct remo_channel *channel);
int __wrap_remo_channel_join(struct remo_channel *channel) {
    (void)channel;
    return 0;
}

const struct remo_nodeset *__wrap_remo_channel_participants(const struct remo_channel *channel);
const struct remo_nodeset *__wrap_remo_channel_participants(const struct remo_channel *channel) {
    (void)channel;
    return &participants;
}

int __wrap_remo_ringbuffer_receive(struct remo_ringbuffer *ring, void *buffer, size_t buffer_bytes,
                                   size_t *ret_size_bytes, uint64_t timeout_ns);
int __wrap_remo_ringbuffer_receive(struct remo_ringbuffer *ring, void *buffer, size_t buffer_bytes,
                                   size_t *ret_size_bytes, uint64_t timeout_ns) {
    (void)ring, (void)buffer, (void)buffer_bytes, (void)timeout_ns;
    assert_true(++received < RECEIVES_MAX);
    *ret_size_bytes = 0;
    return 0;
}

int __wrap_remo_ringbuffer_acknowledge(struct remo_ringbuffer *ring);
int __wrap_remo_ringbuffer_acknowledge(struct remo_ringbuffer *ring) {
    (void)ring;
    acknowledged++;
    return 0;
}

static int open_trackers(void **state) {
    (void)state;
    node = (struct remo_node){.size = 2, .threads = &threads};
    kv = (struct remo_kv){.node = &node, .tracker_bytes = TRACKER_BYTES};
    participants = (struct remo_nodeset){0};
    remo_nodeset_add(&participants, 0);
    remo_nodeset_add(&participants, 1);
    atomic_store(&threads.relieved, 0);
    received = acknowledged = 0;
    return remo__kv_trackers_open(&kv);
}

static int close_trackers(void **state) {
    (void)state;
    remo__kv_trackers_close(&kv);
    return 0;
}

/* A thread that waits receives a few messages in each poll. */
static void test_waiting_thread(void **state) {
    (void)state;
    struct remo__kv_thread mine = {.kv = &kv};
    for (uint32_t polls = 1; polls <= 3; polls++) {
        remo__kv_receive_records(&kv, &mine);
        assert_in_range(received, polls, 10 * polls);
        assert_int_equal(atomic_load(&threads.relieved), polls);
    }
    assert_int_equal(acknowledged, received);
}

/* The service thread receives at least all messages that the ring can hold, of at least one record each. */
static void test_service_thread(void **state) {
    (void)state;
    options.on_arrival((char *)options.ctx + options.ctx_bytes); /* of sender 1 */
    assert_in_range(received, TRACKER_BYTES / 32, 4 * TRACKER_BYTES / 32);
    assert_int_equal(acknowledged, received);
    struct remo__kv_thread mine = {.kv = &kv};
    uint32_t before = received;
    remo__kv_receive_records(&kv, &mine); /* the mutex is free again */
    assert_true(received > before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_waiting_thread, open_trackers, close_trackers),
        cmocka_unit_test_setup_teardown(test_service_thread, open_trackers, close_trackers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
