/* test_ringbuffer.c - messages of mixed sizes from one node to many: each once, in order, whole. A full ring
 * and a slow receiver block the sender, a failed receiver does not. All messages of a failed sender are
 * received. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"
#include "channel/registry.h"

#define CAPACITY 4096u
#define MAX_BYTES 1008u /* a quarter of the capacity, less 16 */
#define NODES_MAX 8u

static struct shared {
    _Atomic uint64_t sent; /* by the sender, after the call returned */
    _Atomic uint64_t received[NODES_MAX];
    _Atomic bool has_timed_out; /* the first send in `late` */
} * shared;

/* Message n: its size and its bytes are computed from n. Every 50th is empty, some have the maximum size. */
static size_t make_message(unsigned char *message, uint64_t n) {
    uint64_t mixed = (n + 1) * 0x9e3779b97f4a7c15ull;
    size_t size = n % 50 == 49   ? 0
                  : n % 50 == 48 ? MAX_BYTES
                  : n % 7 == 0   ? mixed >> 32 & 1023
                                 : mixed >> 40 & 63;
    size = size > MAX_BYTES ? MAX_BYTES : size;
    for (size_t i = 0; i < size; i++)
        message[i] = (unsigned char)(mixed >> 8 * (i % 8)) ^ (unsigned char)(i / 8);
    return size;
}

static int open_ring(struct remo_node *node, uint64_t capacity, struct remo_ringbuffer **ret_ring) {
    struct remo_ringbuffer_options options = {.capacity_bytes = capacity, .sender = 0};
    CHECK_OK(remo_ringbuffer_open(remo_node_root(node), "ring", &options, ret_ring));
    CHECK_OK(remo_channel_wait(remo_ringbuffer_channel(*ret_ring), 100 * SECOND));
    return 0;
}

static int send_message(struct remo_ringbuffer *ring, uint64_t n, uint64_t timeout_ns) {
    unsigned char message[MAX_BYTES];
    size_t size = make_message(message, n);
    int rc = remo_ringbuffer_send(ring, message, size, timeout_ns, NULL);
    if (rc == 0)
        atomic_store(&shared->sent, n + 1);
    return rc;
}

/* Receive the next message, which must be number n. */
static int receive_message(struct remo_ringbuffer *ring, uint64_t n, uint64_t timeout_ns) {
    unsigned char message[MAX_BYTES], expected[MAX_BYTES];
    size_t size = 0, should = make_message(expected, n);
    int rc = remo_ringbuffer_receive(ring, message, sizeof message, &size, timeout_ns);
    if (rc != 0)
        return rc;
    CHECK_EQUAL(size, should);
    CHECK(memcmp(message, expected, size) == 0);
    return 0;
}

static int none_left(struct remo_ringbuffer *ring) {
    unsigned char message[MAX_BYTES];
    size_t size;
    CHECK_CODE(remo_ringbuffer_receive(ring, message, sizeof message, &size, SECOND / 50), -ETIMEDOUT);
    return 0;
}

/* ---- order; no message is lost or repeated ---- */

#define MESSAGES 20000u

static int stream(struct remo_node *node, uint32_t pause_every) {
    struct remo_ringbuffer *ring;
    if (open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    CHECK_EQUAL(remo_ringbuffer_message_bytes_max(ring), MAX_BYTES);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        if (remo_node_rank(node) == 0) {
            CHECK_OK(send_message(ring, n, 100 * SECOND));
            continue;
        }
        CHECK_OK(receive_message(ring, n, 100 * SECOND));
        if (pause_every && remo_node_rank(node) == 1 && n % pause_every == 0)
            cluster_sleep_ms(1);
    }
    if (remo_node_rank(node) != 0 && none_left(ring) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    return 0;
}

static int order(struct remo_node *node, void *ctx) {
    (void)ctx;
    return stream(node, 0);
}

static int slow_receiver(struct remo_node *node, void *ctx) {
    (void)ctx;
    return stream(node, 200);
}

/* Rings of every small size, with messages of every size that fits: every way in which a lap can end. */
static int laps(struct remo_node *node, void *ctx) {
    unsigned char message[MAX_BYTES], found[MAX_BYTES];
    (void)ctx;
    for (uint64_t capacity = 256; capacity <= 1024; capacity += 64) {
        struct remo_ringbuffer *ring;
        if (open_ring(node, capacity, &ring) != 0)
            return 1;
        size_t most = remo_ringbuffer_message_bytes_max(ring), size;
        for (uint32_t n = 0; n < 2000; n++) {
            size_t length = (n * 7 + n / 13) % (most + 1);
            memset(message, (int)n, sizeof message);
            if (remo_node_rank(node) == 0) {
                CHECK_OK(remo_ringbuffer_send(ring, message, length, 100 * SECOND, NULL));
            } else {
                CHECK_OK(remo_ringbuffer_receive(ring, found, sizeof found, &size, 100 * SECOND));
                CHECK_EQUAL(size, length);
                CHECK(memcmp(message, found, size) == 0);
            }
        }
        CHECK_OK(cluster_meet());
        remo_ringbuffer_close(ring);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

/* ---- costs ---- */

static int sender_costs(struct remo_ringbuffer *ring, struct remo_channel *channel) {
    unsigned char message[MAX_BYTES] = "";
    uint64_t position;
    for (uint32_t i = 0; i < 7; i++) /* 7 * 512 bytes */
        CHECK_COST(channel, CHECK_OK(remo_ringbuffer_send(ring, message, 496, 0, &position)), 0, 3, 0, 3);
    CHECK_EQUAL(position, 7 * 512);
    CHECK_CODE(remo_ringbuffer_wait_received(ring, position, 0), -ETIMEDOUT);
    CHECK_OK(cluster_meet());
    CHECK_COST(channel, CHECK_OK(remo_ringbuffer_wait_received(ring, position, 100 * SECOND)), 0, 0, 0, 0);
    /* 512 bytes are left in the lap: too few, so a filler precedes the message. */
    CHECK_COST(channel, CHECK_OK(remo_ringbuffer_send(ring, message, 1000, 0, &position)), 0, 6, 0, 6);
    CHECK_EQUAL(position, 4096 + 1024);
    return 0;
}

static int receiver_costs(struct remo_ringbuffer *ring, struct remo_channel *channel) {
    unsigned char message[MAX_BYTES];
    size_t size;
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 7; i++) /* the fourth one completes half a ring: one write acknowledges it */
        CHECK_COST(channel, CHECK_OK(remo_ringbuffer_receive(ring, message, sizeof message, &size, SECOND)),
                   0, i == 3, 0, i == 3);
    CHECK_COST(channel, CHECK_OK(remo_ringbuffer_acknowledge(ring)), 0, 1, 0, 1);
    CHECK_COST(channel, CHECK_OK(remo_ringbuffer_acknowledge(ring)), 0, 0, 0, 0);
    CHECK_COST(channel, CHECK_OK(remo_ringbuffer_receive(ring, message, sizeof message, &size, 100 * SECOND)),
               0, 0, 0, 0);
    CHECK_EQUAL(size, 1000);
    CHECK_COST(channel,
               CHECK_CODE(remo_ringbuffer_receive(ring, message, sizeof message, &size, 0), -ETIMEDOUT), 0, 0,
               0, 0);
    return 0;
}

static int costs(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *ring;
    (void)ctx;
    if (open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    struct remo_channel *channel = remo_ringbuffer_channel(ring);
    if ((remo_node_rank(node) == 0 ? sender_costs(ring, channel) : receiver_costs(ring, channel)) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    return 0;
}

/* ---- loans and peeks ---- */

#define LOANS 300u

static int send_loans(struct remo_ringbuffer *ring) {
    unsigned char message[MAX_BYTES];
    void *loan;
    uint64_t position = 0;
    for (uint64_t n = 0; n < LOANS; n++) {
        size_t size = make_message(message, n);
        CHECK_OK(remo_ringbuffer_loan(ring, MAX_BYTES, 100 * SECOND, &loan));
        CHECK((uintptr_t)loan % 16 == 0);
        CHECK_CODE(remo_ringbuffer_loan(ring, 8, 0, &loan), -EBUSY);
        CHECK_CODE(remo_ringbuffer_send(ring, message, 8, 0, NULL), -EBUSY);
        CHECK_CODE(remo_ringbuffer_commit(ring, MAX_BYTES + 1, NULL), -EMSGSIZE);
        memcpy(loan, message, size);
        if (n % 3 == 2) { /* the next message is at the same place */
            CHECK_OK(remo_ringbuffer_cancel(ring));
            CHECK_OK(remo_ringbuffer_cancel(ring));
            CHECK_SENTENCE(remo_ringbuffer_commit(ring, size, NULL), -EINVAL, "none is loaned");
            CHECK(send_message(ring, n, 100 * SECOND) == 0);
        } else {
            CHECK_OK(remo_ringbuffer_commit(ring, size, &position));
        }
    }
    CHECK(position > 0);
    CHECK_CODE(remo_ringbuffer_consume(ring), -EPERM);
    return 0;
}

static int receive_loans(struct remo_ringbuffer *ring) {
    unsigned char message[MAX_BYTES];
    const void *found, *again;
    size_t found_bytes;
    for (uint64_t n = 0; n < LOANS; n++) {
        size_t size = make_message(message, n);
        if (n % 5 == 4) {
            CHECK(receive_message(ring, n, 100 * SECOND) == 0);
            CHECK_SENTENCE(remo_ringbuffer_consume(ring), -EINVAL, "none was peeked");
            continue;
        }
        CHECK_OK(remo_ringbuffer_peek(ring, &found, &found_bytes, 100 * SECOND));
        CHECK_OK(remo_ringbuffer_peek(ring, &again, &found_bytes, 0));
        CHECK(found == again);
        CHECK_EQUAL(found_bytes, size);
        CHECK(memcmp(found, message, size) == 0);
        if (n % 5 == 3) /* a receive removes the message too */
            CHECK(receive_message(ring, n, 0) == 0);
        else
            CHECK_OK(remo_ringbuffer_consume(ring));
        CHECK_SENTENCE(remo_ringbuffer_consume(ring), -EINVAL, "none was peeked");
    }
    CHECK_OK(remo_ringbuffer_acknowledge(ring));
    CHECK_CODE(remo_ringbuffer_peek(ring, &found, &found_bytes, 0), -ETIMEDOUT);
    CHECK_CODE(remo_ringbuffer_commit(ring, 0, NULL), -EPERM);
    CHECK_CODE(remo_ringbuffer_cancel(ring), -EPERM);
    return 0;
}

static int loans(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *ring;
    (void)ctx;
    if (open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    if ((remo_node_rank(node) == 0 ? send_loans(ring) : receive_loans(ring)) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    return 0;
}

/* ---- a thread that cannot be attached ---- */

#define OTHERS 63u /* with the main thread, as many as a node attaches */

static struct {
    struct remo_ringbuffer *ring;
    struct remo_atomic_var *word;
    pthread_barrier_t attached, ended;
    int result;
} unattached;

static void *attach(void *ctx) {
    uint64_t old;
    (void)ctx;
    int rc = remo_atomic_var_fetch_add(unattached.word, 0, 1, &old, NULL);
    pthread_barrier_wait(&unattached.attached);
    pthread_barrier_wait(&unattached.ended);
    return rc == 0 ? NULL : &unattached;
}

static void *send_unattached(void *ctx) {
    (void)ctx;
    unattached.result = send_message(unattached.ring, 1, 0);
    return NULL;
}

static int send_by_threads(void) {
    pthread_t threads[OTHERS], last;
    pthread_barrier_init(&unattached.attached, NULL, OTHERS + 1);
    pthread_barrier_init(&unattached.ended, NULL, OTHERS + 1);
    CHECK(send_message(unattached.ring, 0, 100 * SECOND) == 0);
    for (uint32_t i = 0; i < OTHERS; i++)
        CHECK(pthread_create(&threads[i], NULL, attach, NULL) == 0);
    pthread_barrier_wait(&unattached.attached);
    CHECK(pthread_create(&last, NULL, send_unattached, NULL) == 0);
    CHECK(pthread_join(last, NULL) == 0);
    CHECK(unattached.result == 0); /* it counts as sent: the next call repeats its write */
    pthread_barrier_wait(&unattached.ended);
    for (uint32_t i = 0; i < OTHERS; i++) {
        void *failed = NULL;
        CHECK(pthread_join(threads[i], &failed) == 0 && !failed);
    }
    return send_message(unattached.ring, 2, 100 * SECOND);
}

static int too_many_threads(struct remo_node *node, void *ctx) {
    (void)ctx;
    CHECK_OK(remo_atomic_var_open(remo_node_root(node), "word", NULL, &unattached.word));
    if (open_ring(node, CAPACITY, &unattached.ring) != 0)
        return 1;
    if (remo_node_rank(node) == 0)
        CHECK(send_by_threads() == 0);
    for (uint64_t n = 0; n < 3 && remo_node_rank(node) != 0; n++)
        CHECK(receive_message(unattached.ring, n, 100 * SECOND) == 0);
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(unattached.ring);
    remo_atomic_var_close(unattached.word);
    return 0;
}

/* ---- a full ring ---- */

static int full(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *ring;
    uint64_t n = 0, received = 0;
    (void)ctx;
    if (open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    if (remo_node_rank(node) == 0) {
        int rc;
        while ((rc = send_message(ring, n, 0)) == 0)
            n++;
        CHECK_EQUAL(-rc, ETIMEDOUT);
        CHECK(n > 10);
        CHECK_SENTENCE(send_message(ring, n, SECOND / 50), -ETIMEDOUT, "ring is full");
    }
    CHECK_OK(cluster_meet());
    uint64_t fit = atomic_load(&shared->sent);
    if (remo_node_rank(node) == 1) /* one receiver does not free space for the sender */
        for (; received < fit; received++)
            CHECK_OK(receive_message(ring, received, 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0)
        CHECK_CODE(send_message(ring, n, SECOND / 50), -ETIMEDOUT);
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0)
        for (; n < fit + 500; n++)
            CHECK_OK(send_message(ring, n, 100 * SECOND));
    else
        for (; received < fit + 500; received++)
            CHECK_OK(receive_message(ring, received, 100 * SECOND));
    if (remo_node_rank(node) != 0 && none_left(ring) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    return 0;
}

/* ---- the service thread receives ---- */

struct inbox {
    struct remo_ringbuffer *ring;
    _Atomic uint64_t received;
    _Atomic int result;
};

static void on_arrival(void *ctx) {
    struct inbox *inbox = ctx;
    for (;;) {
        int rc = inbox->ring ? receive_message(inbox->ring, inbox->received, 0) : -EFAULT;
        if (rc != 0) {
            if (rc != -ETIMEDOUT && rc != -ENOTCONN)
                atomic_store(&inbox->result, rc);
            return;
        }
        atomic_fetch_add(&inbox->received, 1);
    }
}

static int arrivals(struct remo_node *node, void *ctx) {
    struct inbox inbox = {0};
    struct remo_ringbuffer_options options = {
        .capacity_bytes = CAPACITY, .ctx = &inbox, .on_arrival = on_arrival};
    (void)ctx;
    if (remo_node_rank(node) == 2)
        cluster_sleep_ms(50);
    /* Do not wait for the peers: messages may arrive while the ring is being opened. */
    CHECK_OK(remo_ringbuffer_open(remo_node_root(node), "ring", &options, &inbox.ring));
    for (uint64_t n = 0; remo_node_rank(node) == 0 && n < 5000; n++)
        CHECK_OK(send_message(inbox.ring, n, 100 * SECOND));
    for (uint32_t ms = 0; remo_node_rank(node) != 0 && ms < 100000 && atomic_load(&inbox.received) < 5000;
         ms++) {
        CHECK_OK(atomic_load(&inbox.result));
        cluster_sleep_ms(1);
    }
    CHECK_EQUAL(inbox.received, remo_node_rank(node) == 0 ? 0 : 5000);
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(inbox.ring);
    return 0;
}

/* ---- wrong calls ---- */

static int wrong_open(struct remo_channel *root) {
    struct remo_ringbuffer *ring;
    struct remo_ringbuffer_options options = {.capacity_bytes = 100};
    CHECK_SENTENCE(remo_ringbuffer_open(root, "r", &options, &ring), -EINVAL, "100 bytes");
    options.capacity_bytes = 192;
    CHECK_SENTENCE(remo_ringbuffer_open(root, "r", &options, &ring), -EINVAL, "multiple of 64");
    options.capacity_bytes = 1ull << 33;
    CHECK_CODE(remo_ringbuffer_open(root, "r", &options, &ring), -EINVAL);
    options = (struct remo_ringbuffer_options){.sender = 9};
    CHECK_SENTENCE(remo_ringbuffer_open(root, "r", &options, &ring), -EINVAL, "node 9");
    CHECK_SENTENCE(remo_ringbuffer_open(NULL, "r", NULL, &ring), -EINVAL, "parent");
    remo_ringbuffer_close(NULL);
    return 0;
}

static int errors(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *ring;
    unsigned char message[MAX_BYTES + 1] = "hello";
    size_t size = 0;
    (void)ctx;
    if (wrong_open(remo_node_root(node)) != 0 || open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    if (remo_node_rank(node) == 0) {
        CHECK_SENTENCE(remo_ringbuffer_receive(ring, message, 8, &size, 0), -EPERM, "sender");
        CHECK_CODE(remo_ringbuffer_acknowledge(ring), -EPERM);
        CHECK_SENTENCE(remo_ringbuffer_send(ring, message, MAX_BYTES + 1, 0, NULL), -EMSGSIZE, "1008");
        CHECK_CODE(remo_ringbuffer_send(ring, NULL, 5, 0, NULL), -EINVAL);
        CHECK_CODE(remo_ringbuffer_wait_received(ring, 1, 0), -EINVAL);
        CHECK_OK(remo_ringbuffer_wait_received(ring, 0, 0));
        CHECK_OK(remo_ringbuffer_send(ring, NULL, 0, 0, NULL));
        CHECK_OK(remo_ringbuffer_send(ring, message, 100, 0, NULL));
    } else {
        CHECK_SENTENCE(remo_ringbuffer_send(ring, message, 5, 0, NULL), -EPERM, "node 0 is the sender");
        CHECK_CODE(remo_ringbuffer_wait_received(ring, 0, 0), -EPERM);
        CHECK_CODE(remo_ringbuffer_receive(ring, message, 8, NULL, 0), -EINVAL);
        CHECK_OK(remo_ringbuffer_receive(ring, NULL, 0, &size, 100 * SECOND));
        CHECK_EQUAL(size, 0);
        CHECK_SENTENCE(remo_ringbuffer_receive(ring, message, 99, &size, 100 * SECOND), -EMSGSIZE,
                       "100 bytes");
        CHECK_EQUAL(size, 100);
        CHECK_CODE(remo_ringbuffer_receive(ring, NULL, 1000, &size, 0), -EMSGSIZE);
        memset(message, 0, sizeof message);
        CHECK_OK(remo_ringbuffer_receive(ring, message, 100, &size, 0));
        CHECK(strcmp((char *)message, "hello") == 0);
    }
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_ringbuffer_open(remo_node_root(node), "r",
                                  &(struct remo_ringbuffer_options){.sender = remo_node_rank(node)}, &ring));
    CHECK_SENTENCE(remo_channel_wait(remo_node_root(node), 100 * SECOND), -EPROTO, "sender 1");
    CHECK_CODE(remo_ringbuffer_send(ring, message, 5, SECOND, NULL), -EPROTO);
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    return 0;
}

/* ---- late, leaving and failing nodes ---- */

static int late(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *ring;
    struct remo_ringbuffer_options options = {.capacity_bytes = CAPACITY};
    (void)ctx;
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.participants, 1);
    remo_nodeset_add(&options.participants, 2);
    while (remo_node_rank(node) == 2 && !atomic_load(&shared->has_timed_out))
        cluster_sleep_ms(1);
    if (remo_node_rank(node) < 3) {
        CHECK_OK(remo_ringbuffer_open(remo_node_root(node), "ring", &options, &ring));
        for (uint64_t n = 0; n < 300; n++) {
            if (remo_node_rank(node) == 0 && n == 0) {
                CHECK_SENTENCE(send_message(ring, n, 0), -ETIMEDOUT, "has not opened ring");
                atomic_store(&shared->has_timed_out, true);
            }
            CHECK_OK(remo_node_rank(node) == 0 ? send_message(ring, n, 100 * SECOND)
                                               : receive_message(ring, n, 100 * SECOND));
        }
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) < 3)
        remo_ringbuffer_close(ring);
    return 0;
}

/* The sender closes after its last send: all messages are received, then the error. Repeated many times. */
static int sender_leaves(struct remo_node *node, void *ctx) {
    (void)ctx;
    for (uint32_t turn = 0; turn < 30; turn++) {
        struct remo_ringbuffer *ring;
        uint64_t n = 0;
        if (open_ring(node, 65536, &ring) != 0)
            return 1;
        for (; n < 100; n++)
            CHECK_OK(remo_node_rank(node) == 0 ? send_message(ring, n, 100 * SECOND)
                                               : receive_message(ring, n, 100 * SECOND));
        if (remo_node_rank(node) != 0)
            CHECK_SENTENCE(receive_message(ring, n, 100 * SECOND), -ENOTCONN, "has closed channel ring");
        remo_ringbuffer_close(ring);
        CHECK_OK(cluster_meet());
    }
    return 0;
}

static int receiver_leaves(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *ring;
    (void)ctx;
    if (open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    for (uint64_t n = 0; n < 2000; n++) {
        if (remo_node_rank(node) == 1 && n == 100)
            break;
        CHECK_OK(remo_node_rank(node) == 0 ? send_message(ring, n, 100 * SECOND)
                                           : receive_message(ring, n, 100 * SECOND));
    }
    remo_ringbuffer_close(ring);
    CHECK_OK(cluster_meet());
    return 0;
}

/* A receiver is killed while it keeps the ring full: the sender continues as soon as the failure is
 * detected. */
static int receiver_fails(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *ring;
    uint32_t rank = remo_node_rank(node);
    uint64_t n = 0;
    (void)ctx;
    if (open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    if (rank == 1) { /* receives some messages, then no more */
        for (; n < 10; n++)
            CHECK_OK(receive_message(ring, n, 100 * SECOND));
        CHECK_OK(cluster_meet());
        cluster_sleep_ms(60000);
        return 1;
    }
    if (rank == 0)
        while (send_message(ring, n, n < 10 ? 100 * SECOND : SECOND / 20) == 0)
            n++;
    CHECK_OK(cluster_meet());
    if (rank == 2)
        CHECK_OK(cluster_kill(1));
    uint64_t begin = cluster_now_ns();
    for (; n < 3000; n++) {
        CHECK_OK(rank == 0 ? send_message(ring, n, 100 * SECOND) : receive_message(ring, n, 100 * SECOND));
        if (rank == 0 && begin)
            CHECK(in_time(cluster_now_ns() - begin, SECOND / 10));
        begin = 0;
    }
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    return 0;
}

/* The sender is killed while it sends: each receiver gets a prefix of the messages, in order, with all
 * messages whose call had returned. */
static int sender_fails(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *ring;
    uint32_t rank = remo_node_rank(node);
    uint64_t n = 0;
    int rc = 0;
    (void)ctx;
    if (open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    CHECK_OK(cluster_meet());
    while (rank == 0)
        CHECK_OK(send_message(ring, n++, 100 * SECOND));
    while (rc == 0) {
        rc = receive_message(ring, n, 100 * SECOND);
        n += rc == 0;
        if (rank == 1 && rc == 0 && n == 500)
            CHECK_OK(cluster_kill(0));
    }
    CHECK_EQUAL(-rc, EHOSTDOWN);
    CHECK(strcmp(remo_node_fabric(node), "shm") != 0 || n >= atomic_load(&shared->sent));
    CHECK_CODE(receive_message(ring, n, REMO_FOREVER), -EHOSTDOWN);
    atomic_store(&shared->received[rank], n);
    CHECK_OK(cluster_meet());
    /* The prefixes differ by messages in flight. */
    for (uint32_t other = 1; other < remo_node_size(node); other++)
        CHECK(atomic_load(&shared->received[other]) + CAPACITY / 16 > n);
    remo_ringbuffer_close(ring);
    return 0;
}

/* ---- a peer that writes wrong data ---- */

enum { RECORDS, CONSUMED }; /* memories of a ring's channel */

/* Return the address of a memory of the ring at a peer, which only the library has. */
static int find_memory(struct remo_node *node, uint32_t memory, uint32_t peer, struct remo_addr *ret_addr) {
    struct remo__registry *registry = remo__registry(node);
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *channel = remo__registry_by_name(registry, "ring");
    uint64_t offset = channel ? atomic_load(&channel->memories[memory].offsets[peer]) : REMO__NO_OFFSET;
    pthread_mutex_unlock(&registry->lock);
    CHECK(offset != REMO__NO_OFFSET);
    *ret_addr = remo_addr_make(peer, node->peers[peer].incarnation, offset);
    return 0;
}

/* A receiver reports more consumed bytes than were sent: the sender ignores the report, and accepts a right
 * one later. */
static int wrong_report_of_receiver(struct remo_node *node, void *ctx) {
    static const uint64_t lies[] = {UINT64_MAX, 1ull << 40, CAPACITY + 16};
    struct remo_ringbuffer *ring;
    struct remo_addr row;
    uint64_t n = 0;
    (void)ctx;
    if (open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        if (remo_node_rank(node) == 1) {
            if (find_memory(node, CONSUMED, 0, &row) != 0)
                return 1;
            row.word += 64; /* a line of each node */
            CHECK_OK(remo_write(node, row, &lies[i], 8, NULL));
            CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, 0));
        }
        CHECK_OK(cluster_meet());
        uint64_t begin = n;
        while (remo_node_rank(node) == 0 && send_message(ring, n, 0) == 0)
            CHECK(++n < begin + CAPACITY / 16); /* no more than fit */
        CHECK_OK(cluster_meet());
        for (; remo_node_rank(node) == 1 && n < atomic_load(&shared->sent); n++)
            CHECK_OK(receive_message(ring, n, 100 * SECOND));
        if (remo_node_rank(node) == 1)
            CHECK_OK(remo_ringbuffer_acknowledge(ring));
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(cluster_meet());
    remo_ringbuffer_close(ring);
    return 0;
}

/* A sender writes random bytes into the ring: the receiver returns no message, and reads only the ring. */
static int random_bytes_of_sender(struct remo_node *node, void *ctx) {
    struct remo_ringbuffer *ring;
    struct remo_addr memory;
    static uint64_t noise[CAPACITY / 8];
    (void)ctx;
    if (open_ring(node, CAPACITY, &ring) != 0)
        return 1;
    for (uint32_t turn = 0; turn < 100; turn++) {
        if (remo_node_rank(node) == 0) {
            if (find_memory(node, RECORDS, 1, &memory) != 0)
                return 1;
            for (uint32_t i = 0; i < CAPACITY / 8; i++)
                noise[i] = (turn * 1000 + i + 1) * 0x9e3779b97f4a7c15ull;
            noise[0] = 1ull << 32
                       | (turn % 4 == 0   ? UINT32_MAX
                          : turn % 4 == 1 ? MAX_BYTES + 1
                                          : turn * 10); /* lap 1 */
            CHECK_OK(remo_write(node, memory, noise, sizeof noise, NULL));
            CHECK_OK(remo_fence(node, REMO_FENCE_PAIR, 1));
        }
        CHECK_OK(cluster_meet());
        if (remo_node_rank(node) == 1)
            CHECK_CODE(receive_message(ring, 0, 0), -ETIMEDOUT);
        CHECK_OK(cluster_meet());
    }
    remo_ringbuffer_close(ring);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(order, 4),
        CLUSTER_TEST_NAMED("order_threads", order, 3, .as_threads = 1),
        CLUSTER_TEST_NAMED("order_alone", order, 1),
        CLUSTER_TEST(slow_receiver, 3),
        CLUSTER_TEST(laps, 2),
        CLUSTER_TEST(costs, 4),
        CLUSTER_TEST(loans, 2),
        CLUSTER_TEST_NAMED("loans_3", loans, 3),
        CLUSTER_TEST(too_many_threads, 2),
        CLUSTER_TEST(full, 3),
        CLUSTER_TEST(arrivals, 3),
        CLUSTER_TEST(errors, 2),
        CLUSTER_TEST(late, 4),
        CLUSTER_TEST(sender_leaves, 3),
        CLUSTER_TEST(receiver_leaves, 3),
        CLUSTER_TEST(receiver_fails, 3),
        CLUSTER_TEST(sender_fails, 3),
        CLUSTER_TEST_NAMED("sender_fails_4", sender_fails, 4),
        CLUSTER_TEST(wrong_report_of_receiver, 2),
        CLUSTER_TEST(random_bytes_of_sender, 2),
        {0}};
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
