/* test_wire.c - the cost of calls on the wire of fabric verbs: work requests, posts (doorbells), signalled
 * completions and inline sends. Also calls that the device refuses. Times under emulation have no meaning,
 * but these counts hold on every device. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <string.h>

#include "../../support/cluster.h"
#include "fabric/verbs/verbs.h"
#include "systems/kv/kv.h"
#include "node/node.h"

#define WAIT (100 * SECOND)

static struct remo__fabric_wire wire(struct remo_node *node) {
    struct remo__fabric_wire now;
    node->fabric->ops->wire(node->fabric, &now);
    return now;
}

/* Count what a statement of this node puts on the wire; all other threads of the node are idle meanwhile. */
#define CHECK_WIRE(node, statement, requests_, posts_, signalled_, inlined_) \
    do {                                                                     \
        struct remo__fabric_wire before_ = wire(node), after_;               \
        statement;                                                           \
        after_ = wire(node);                                                 \
        CHECK_EQUAL(after_.requests - before_.requests, requests_);          \
        CHECK_EQUAL(after_.posts - before_.posts, posts_);                   \
        CHECK_EQUAL(after_.signalled - before_.signalled, signalled_);       \
        CHECK_EQUAL(after_.inlined - before_.inlined, inlined_);             \
    } while (0)

static int region(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    char buffer[64] = "";
    uint64_t old;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 65536, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), WAIT));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_region_read(region, 1, 0, buffer, 8, NULL)); /* connects */
        CHECK_WIRE(node, CHECK_OK(remo_region_read(region, 1, 0, buffer, 8, NULL)), 1, 1, 1, 0);
        CHECK_WIRE(node, CHECK_OK(remo_region_write(region, 1, 0, buffer, 8, 0, NULL)), 1, 1, 1, 1);
        CHECK_WIRE(node, CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, 1)), 0, 0, 0, 0);
        CHECK_WIRE(node, CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0)), 1, 1, 1,
                   0); /* the read that confirms the write */
        CHECK_WIRE(node, CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0)), 0, 0, 0, 0);
        CHECK_WIRE(node, CHECK_OK(remo_region_write(region, 1, 0, buffer, 8, REMO_WRITE_NOTIFY, NULL)), 1, 1,
                   1, 1);
        CHECK_WIRE(node, CHECK_OK(remo_region_fetch_add(region, 1, 8, 1, &old, NULL)), 1, 1, 1, 0);
        CHECK_WIRE(node, CHECK_OK(remo_region_compare_swap(region, 1, 8, 1, 2, &old, NULL)), 1, 1, 1, 0);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* n - 1 inline writes, and no read if no write is in flight. */
static int barrier(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_barrier *barrier;
    uint32_t others = remo_node_size(node) - 1;
    CHECK_OK(remo_barrier_open(remo_node_root(node), "barrier", NULL, &barrier));
    CHECK_OK(remo_channel_wait(remo_barrier_channel(barrier), WAIT));
    for (uint32_t round = 0; round < 3; round++)
        CHECK_OK(remo_barrier_wait(barrier, WAIT));
    CHECK_OK(cluster_meet());
    struct remo__fabric_wire before = wire(node);
    for (uint32_t round = 0; round < 10; round++)
        CHECK_OK(remo_barrier_wait(barrier, WAIT));
    struct remo__fabric_wire after = wire(node);
    CHECK_EQUAL(after.inlined - before.inlined, 10 * others);
    CHECK_EQUAL(after.requests - before.requests, 10 * others);
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

static int lock(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_lock *lock;
    struct remo_lock_options options = {.count = 1, .homes.word[0] = 2}; /* node 1 */
    CHECK_OK(remo_lock_open(remo_node_root(node), "lock", &options, &lock));
    CHECK_OK(remo_channel_wait(remo_lock_channel(lock), WAIT));
    CHECK_OK(cluster_meet());
    struct remo_region *data;
    uint64_t word = 7;
    CHECK_OK(remo_region_open(remo_node_root(node), "data", 64, NULL, &data));
    CHECK_OK(remo_channel_wait(remo_region_channel(data), WAIT));
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_lock_acquire(lock, 0, WAIT));
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
        CHECK_WIRE(node, CHECK_OK(remo_lock_acquire(lock, 0, WAIT)), 1, 1, 1, 0);
        CHECK_WIRE(node, CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_PAIR)), 1, 1, 1, 0);
        /* The write precedes the release on the same connection: the fence in between costs nothing, and does
         * not wait. */
        CHECK_OK(remo_lock_acquire(lock, 0, WAIT));
        CHECK_WIRE(node, CHECK_OK(remo_region_write(data, 1, 0, &word, 8, 0, NULL));
                   CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_PAIR)), 2, 2, 2, 1);
    }
    CHECK_OK(cluster_meet());
    remo_region_close(data);
    remo_lock_close(lock);
    return 0;
}

/* A message is one write to each receiver, without a wait. */
static int ring(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_ringbuffer *ring;
    struct remo_ringbuffer_options options = {.sender = 0};
    uint32_t receivers = remo_node_size(node) - 1;
    char message[40] = "";
    CHECK_OK(remo_ringbuffer_open(remo_node_root(node), "ring", &options, &ring));
    CHECK_OK(remo_channel_wait(remo_ringbuffer_channel(ring), WAIT));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_ringbuffer_send(ring, message, sizeof message, WAIT, NULL)); /* connects */
        CHECK_WIRE(node, CHECK_OK(remo_ringbuffer_send(ring, message, sizeof message, WAIT, NULL)), receivers,
                   receivers, receivers, receivers);
    }
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    return 0;
}

/* A push claims a slot, writes, flushes and notifies; a pop reads, and updates two words. */
static int queue(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_queue *queue;
    struct remo_queue_options options = {.slot_bytes = 8, .capacity = 8, .home = 1};
    uint64_t element = 5;
    size_t size;
    CHECK_OK(remo_queue_open(remo_node_root(node), "queue", &options, &queue));
    CHECK_OK(remo_channel_wait(remo_queue_channel(queue), WAIT));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        for (int lap = 0; lap < 8; lap++) { /* connects, and reads the words of the queue */
            CHECK_OK(remo_queue_push(queue, &element, sizeof element, WAIT));
            CHECK_OK(remo_queue_pop(queue, &element, sizeof element, &size, WAIT));
        }
        CHECK_WIRE(node, CHECK_OK(remo_queue_push(queue, &element, sizeof element, WAIT)), 4, 4, 4, 1);
        CHECK_WIRE(node, CHECK_OK(remo_queue_pop(queue, &element, sizeof element, &size, WAIT)), 3, 3, 3, 0);
    }
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    return 0;
}

/* ---- refused operations ---- */

static struct verbs_contact *contact_of(struct remo_node *node, uint32_t peer) {
    return atomic_load(&((struct verbs_fabric *)node->fabric)->contacts[peer]);
}

static void keys_spoil(struct verbs_contact *contact) {
    for (uint32_t i = 0; i < atomic_load(&contact->segments.count); i++)
        contact->segments.segment[i].key ^= 0x5a5a00;
}

/* An operation with a wrong key ends the connection, and with it the operations in flight. The next operation
 * makes a new connection. */
static int refused(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    uint64_t word = 1, old;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 64, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), WAIT));
    CHECK_OK(cluster_meet());
    for (uint32_t turn = 0; remo_node_rank(node) == 0 && turn < 3; turn++) {
        CHECK_OK(remo_region_fetch_add(region, 1, 0, 1, &old, NULL));
        CHECK_EQUAL(old, turn);
        CHECK_OK(remo_region_fetch_add(region, 2, 0, 1, &old, NULL));
        keys_spoil(contact_of(node, 1));
        if (turn == 0)
            CHECK_SENTENCE(remo_region_read(region, 1, 0, &word, 8, NULL), -EACCES, "vendor code");
        if (turn == 1)
            CHECK_SENTENCE(remo_region_fetch_add(region, 1, 0, 1, &old, NULL), -EACCES, "vendor code");
        if (turn == 2) {
            struct remo_ack ack = REMO_ACK_INIT;
            CHECK_OK(remo_region_write(region, 1, 8, &word, 8, 0, &ack));
            CHECK_SENTENCE(remo_ack_wait(&ack, WAIT), -EACCES, "vendor code");
        }
        keys_spoil(contact_of(node, 1)); /* restore them */
        CHECK_WIRE(node, CHECK_OK(remo_region_read(region, 2, 0, &word, 8, NULL)), 1, 1, 1, 0);
        CHECK_EQUAL(word, turn + 1);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_region_read(region, 1, 0, &word, 8, NULL));
        CHECK_EQUAL(word, 3);
    }
    CHECK_EQUAL(remo_node_peer(node, (remo_node_rank(node) + 1) % 3), REMO_PEER_UP);
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* The next fence returns the error of a write without an ack. */
static int fence_returns_error(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    uint64_t word = 1;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 64, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), WAIT));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_region_write(region, 1, 8, &word, 8, 0, NULL));
        CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
        keys_spoil(contact_of(node, 1));
        CHECK_OK(remo_region_write(region, 1, 8, &word, 8, 0, NULL));
        keys_spoil(contact_of(node, 1));
        /* The flush fails with the connection. Then the next fence returns the lost write. */
        int first = remo_fence(node, REMO_FENCE_GLOBAL, 0), next = remo_fence(node, REMO_FENCE_GLOBAL, 0);
        CHECK(first < 0 && (first == -EACCES || next == -EACCES));
        CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0));
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

static int window_of_gets(struct remo_node *node, struct remo_kv *kv) {
    enum { WINDOW = 16 };
    struct remo_kv_op ops[WINDOW];
    uint64_t values[WINDOW];
    for (uint32_t i = 0; i < WINDOW; i++) {
        ops[i] = (struct remo_kv_op){
            .kind = REMO_KV_GET, .key = "theirs", .key_bytes = 6, .value = &values[i], .value_bytes = 8};
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    CHECK_WIRE(node, for (uint32_t i = 0; i < WINDOW; i++) CHECK_OK(remo_kv_wait(kv, &ops[i])), WINDOW, 1, 1,
               0);
    return 0;
}

#define KEYS 100u

static void make_key(char key[2], uint32_t number) {
    key[0] = (char)('k' + number / 26);
    key[1] = (char)('a' + number % 26);
}

/* Return whether the lock of this key is at node 1. */
static bool is_locked_there(struct remo_kv *kv, const char key[2]) {
    return remo_lock_home(kv->locks, remo__kv_stripe_of(kv, remo__kv_hash(key, 2))) == 1;
}

/* Return whether the stripe of this key is that of one of the first `count` keys. */
static bool shares_stripe(const struct remo_kv *kv, char keys[][2], uint32_t count, const char key[2]) {
    for (uint32_t i = 0; i < count; i++)
        if (remo__kv_stripe_of(kv, remo__kv_hash(keys[i], 2))
            == remo__kv_stripe_of(kv, remo__kv_hash(key, 2)))
            return true;
    return false;
}

/* The changes of a window share the posts of each of their three round trips. */
static int window_of_updates(struct remo_node *node, struct remo_kv *kv) {
    enum { WINDOW = 16, POSTS_MAX = 3 * 4 };
    struct remo_kv_op ops[WINDOW];
    char keys[WINDOW][2];
    uint32_t found = 0;
    for (uint32_t i = 0; i < KEYS && found < WINDOW; i++) {
        make_key(keys[found], i);
        found += is_locked_there(kv, keys[found]) && !shares_stripe(kv, keys, found, keys[found]);
    }
    CHECK_EQUAL(found, WINDOW);
    struct remo__fabric_wire before = wire(node);
    for (uint32_t i = 0; i < WINDOW; i++) {
        ops[i] = (struct remo_kv_op){
            .kind = REMO_KV_UPDATE, .key = keys[i], .key_bytes = 2, .value = "87654321", .value_bytes = 8};
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        CHECK_OK(remo_kv_wait(kv, &ops[i]));
    struct remo__fabric_wire after = wire(node);
    CHECK_EQUAL(after.requests - before.requests, 4 * WINDOW);
    printf("     %llu posts of %u updates\n", (unsigned long long)(after.posts - before.posts), WINDOW);
    CHECK(after.posts - before.posts <= POSTS_MAX);
    return 0;
}

static int map(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 1000, .key_bytes_max = 8, .value_bytes_max = 8};
    char key[8] = "theirs";
    uint64_t value;
    CHECK_OK(remo_kv_open(remo_node_root(node), "map", &options, &kv));
    CHECK_OK(remo_channel_wait(remo_kv_channel(kv), WAIT));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_kv_insert(kv, key, 6, "12345678", 8));
        for (uint32_t i = 0; i < KEYS; i++) { /* some have their locks on the node of their slots */
            char more[2];
            make_key(more, i);
            CHECK_OK(remo_kv_insert(kv, more, 2, "12345678", 8));
        }
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        char same[2];
        uint32_t i = 0;
        do
            make_key(same, i);
        while (!is_locked_there(kv, same) && ++i < KEYS);
        CHECK_OK(remo_kv_get(kv, key, 6, &value, 8, NULL));
        CHECK_OK(remo_kv_update(kv, same, 2, "87654321", 8));
        CHECK_WIRE(node, CHECK_OK(remo_kv_get(kv, key, 6, &value, 8, NULL)), 1, 1, 1, 0);
        /* Lock; read; write and, in the same post, unlock: three round trips. */
        struct remo__fabric_wire before = wire(node);
        CHECK_OK(remo_kv_update(kv, same, 2, "12345678", 8));
        struct remo__fabric_wire after = wire(node);
        CHECK_EQUAL(after.requests - before.requests, 4);
        CHECK_EQUAL(after.posts - before.posts, 3);
        CHECK_EQUAL(after.signalled - before.signalled, 3);
        CHECK_OK(window_of_gets(node, kv));
        CHECK_OK(window_of_updates(node, kv));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(region, 2, .only_on = "verbs"),
        CLUSTER_TEST(barrier, 3, .only_on = "verbs"),
        CLUSTER_TEST(lock, 2, .only_on = "verbs"),
        CLUSTER_TEST(map, 2, .only_on = "verbs"),
        CLUSTER_TEST(ring, 3, .only_on = "verbs"),
        CLUSTER_TEST(queue, 2, .only_on = "verbs"),
        CLUSTER_TEST(refused, 3, .only_on = "verbs"),
        CLUSTER_TEST(fence_returns_error, 2, .only_on = "verbs"),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
