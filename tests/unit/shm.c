/* shm.c - unit tests of the internals of fabric shm: windows of a peer's incarnations, rings of immediates,
 * checks of mapped memory. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "memory/segment.h"
#include "fabric/shm/shm.h"

#include "unit.h"

#define ARENA_BYTES (UINT64_C(16) << 20)
#define SEGMENT_BYTES (UINT64_C(2) << 20)
#define SIZE 3u

static const struct remo__fabric_ops *const ops = &remo__fabric_shm;

struct node {
    struct remo__fabric *fabric;
    char *arena;
    int fd;
    uint8_t card[REMO__BLOB_BYTES_MAX], segment[REMO__BLOB_BYTES_MAX];
    size_t card_bytes, segment_bytes;
};

static void node_open(struct node *node, uint32_t rank) {
    node->arena = remo__segment_reserve(ARENA_BYTES);
    assert_non_null(node->arena);
    struct remo__fabric_config config = {
        .rank = rank, .size = SIZE, .arena = node->arena, .arena_bytes = ARENA_BYTES};
    assert_int_equal(ops->open(&config, &node->fabric), 0);
    bool huge;
    assert_int_equal(remo__segment_create(NULL, SEGMENT_BYTES, &node->fd, &huge), 0);
    assert_non_null(remo__segment_map(node->arena, SEGMENT_BYTES, node->fd));
    assert_int_equal(ops->add_segment(node->fabric, 0, 0, SEGMENT_BYTES, node->fd, node->segment,
                                      sizeof node->segment, &node->segment_bytes),
                     0);
    assert_int_equal(ops->describe(node->fabric, node->card, sizeof node->card, &node->card_bytes), 0);
}

static void node_close(struct node *node) {
    ops->close(node->fabric);
    munmap(node->arena, ARENA_BYTES);
    close(node->fd);
}

static int node_map(struct node *node, uint32_t peer, const struct node *from) {
    return ops->map_segment(node->fabric, peer, 0, 0, SEGMENT_BYTES, from->segment, from->segment_bytes,
                            from->fd);
}

static void node_meet(struct node *node, uint32_t peer, const struct node *from) {
    assert_int_equal(ops->connect(node->fabric, peer, from->card, from->card_bytes), 0);
    assert_null(atomic_load(&node->fabric->peers[peer].base)); /* not before its memory is mapped */
    assert_int_equal(node_map(node, peer, from), 0);
    assert_non_null(atomic_load(&node->fabric->peers[peer].base));
}

/* Each incarnation has its own window. The last one stays readable; the memory of those before it is
 * freed. */
static void test_lives(void **state) {
    (void)state;
    struct node node, peer;
    char *bases[3 * REMO__SHM_WINDOWS_KEPT];
    node_open(&node, 0);
    for (uint32_t life = 0; life < 3 * REMO__SHM_WINDOWS_KEPT; life++) {
        node_open(&peer, 1);
        strcpy(peer.arena + SEGMENT_BYTES - 64, "alive");
        node_meet(&node, 1, &peer);
        char *base = bases[life] = atomic_load(&node.fabric->peers[1].base);
        for (uint32_t i = 1; i < REMO__SHM_WINDOWS_KEPT && i <= life; i++)
            assert_ptr_not_equal(base, bases[life - i]);
        assert_string_equal(base + SEGMENT_BYTES - 64, "alive");
        ops->disconnect(node.fabric, 1);
        assert_null(atomic_load(&node.fabric->peers[1].base));
        node_close(&peer);
        assert_string_equal(base + SEGMENT_BYTES - 64, "alive"); /* for threads that still access it */
        strcpy(base + SEGMENT_BYTES - 64, "zombie");
        if (life > 0)
            assert_string_equal(bases[life - 1] + SEGMENT_BYTES - 64, "zombie");
        if (life > 1) {
            assert_string_equal(bases[life - 2] + SEGMENT_BYTES - 64, "");
            bases[life - 2][ARENA_BYTES - 1] = 1; /* every page is accessible */
        }
    }
    node_close(&node);
}

static void test_segments(void **state) {
    (void)state;
    struct node node, peer;
    node_open(&node, 0);
    node_open(&peer, 1);
    assert_int_equal(node_map(&node, 1, &peer), -EHOSTDOWN);
    assert_int_equal(ops->connect(node.fabric, 1, peer.card, peer.card_bytes), 0);
    assert_int_equal(ops->connect(node.fabric, 1, peer.card, peer.card_bytes), -EALREADY);
    peer.card[0] ^= 1; /* another version */
    assert_int_equal(ops->connect(node.fabric, 2, peer.card, peer.card_bytes), -EPROTO);
    peer.card[0] ^= 1;
    assert_int_equal(ops->connect(node.fabric, 2, peer.card, peer.card_bytes), -EPROTO); /* it is node 1 */
    peer.segment[0] ^= 1;
    assert_int_equal(node_map(&node, 1, &peer), -EBADMSG);
    peer.segment[0] ^= 1;

    struct remo__shm_header *header = (struct remo__shm_header *)peer.arena;
    header->size++; /* a job of another size: its rings lie elsewhere */
    assert_int_equal(node_map(&node, 1, &peer), -EPROTO);
    header->size--;
    assert_null(atomic_load(&node.fabric->peers[1].base));

    int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(unsealed, SEGMENT_BYTES), 0);
    assert_int_equal(posix_fallocate(unsealed, 0, SEGMENT_BYTES), 0);
    assert_int_equal(
        ops->map_segment(node.fabric, 1, 0, 0, SEGMENT_BYTES, peer.segment, peer.segment_bytes, unsealed),
        -EACCES);
    assert_int_equal(
        ops->map_segment(node.fabric, 1, 0, 0, SEGMENT_BYTES, peer.segment, peer.segment_bytes, -1), -EINVAL);
    assert_int_equal(node_map(&node, 1, &peer), 0);
    assert_int_equal(node_map(&node, 1, &peer), -EEXIST);
    close(unsealed);
    node_close(&node);
    node_close(&peer);
}

/* An arena with a hole: mapped ranges are reachable, the hole is not. */
static void test_hole(void **state) {
    (void)state;
    struct node node;
    node_open(&node, 0);
    node_meet(&node, 0, &node);
    uint8_t blob[REMO__BLOB_BYTES_MAX];
    size_t blob_bytes;
    assert_non_null(remo__segment_map(node.arena + 2 * SEGMENT_BYTES, SEGMENT_BYTES, node.fd));
    assert_int_equal(ops->add_segment(node.fabric, 1, 2 * SEGMENT_BYTES, SEGMENT_BYTES, node.fd, blob,
                                      sizeof blob, &blob_bytes),
                     0);
    assert_int_equal(
        ops->map_segment(node.fabric, 0, 1, 2 * SEGMENT_BYTES, SEGMENT_BYTES, blob, blob_bytes, node.fd), 0);
    struct remo__endpoint *endpoint;
    assert_int_equal(ops->endpoint_open(node.fabric, &endpoint), 0);
    char buffer[16];
    struct remo__op op = {.kind = REMO__OP_READ, .local = buffer, .size_bytes = 16};
    static const struct {
        uint64_t offset;
        int rc;
    } reads[] = {{SEGMENT_BYTES - 16, 1},          {SEGMENT_BYTES - 8, -EFAULT},
                 {SEGMENT_BYTES, -EFAULT},         {2 * SEGMENT_BYTES - 16, -EFAULT},
                 {2 * SEGMENT_BYTES - 1, -EFAULT}, {2 * SEGMENT_BYTES, 1},
                 {3 * SEGMENT_BYTES - 16, 1},      {3 * SEGMENT_BYTES - 15, -EFAULT}};
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        op.remote = reads[i].offset;
        assert_int_equal(ops->post(endpoint, &op, 1), reads[i].rc);
    }
    ops->endpoint_close(endpoint);
    node_close(&node);
}

static int send_imm(struct remo__endpoint *endpoint, uint32_t value) {
    struct remo__op op = {.kind = REMO__OP_WRITE, .flags = REMO__OP_IMM, .peer = 0, .imm = value};
    int rc = ops->post(endpoint, &op, 1);
    struct remo__completion done;
    while (rc == 1 && ops->poll(endpoint, &done, 1) == 1)
        assert_int_equal(done.status, 0);
    return rc;
}

/* A full ring blocks only its sender, and a busy ring does not delay others. */
static void test_ring(void **state) {
    (void)state;
    struct node nodes[SIZE];
    struct remo__endpoint *endpoints[SIZE];
    for (uint32_t i = 0; i < SIZE; i++)
        node_open(&nodes[i], i);
    for (uint32_t i = 0; i < SIZE; i++) {
        node_meet(&nodes[0], i, &nodes[i]);
        if (i > 0)
            node_meet(&nodes[i], 0, &nodes[0]);
        assert_int_equal(ops->endpoint_open(nodes[i].fabric, &endpoints[i]), 0);
    }
    struct remo__imm imms[8];
    for (uint32_t lap = 0; lap < 5; lap++) {
        for (uint32_t i = 0; i < REMO__SHM_RING_SLOTS; i++)
            assert_int_equal(send_imm(endpoints[1], i), 1);
        assert_int_equal(send_imm(endpoints[1], 1), -EAGAIN);
        assert_int_equal(send_imm(endpoints[2], 7), 1);
        uint32_t count = 0, polls = 0, polls_until_2 = 0;
        for (int got; (got = ops->imm_poll(nodes[0].fabric, imms, 8)) > 0; polls++) {
            for (int i = 0; i < got; i++) {
                if (imms[i].peer == 2)
                    polls_until_2 = polls;
                else
                    assert_int_equal(imms[i].value, count++);
            }
        }
        assert_int_equal(count, REMO__SHM_RING_SLOTS);
        assert_true(polls_until_2 <= 2);
    }
    /* A peer that overwrites all shared state can cause only immediates. */
    struct remo__shm_header *header = (struct remo__shm_header *)nodes[0].arena;
    memset((char *)header + offsetof(struct remo__shm_header, pending), 0xff,
           nodes[0].fabric->private_bytes - offsetof(struct remo__shm_header, pending));
    for (uint32_t i = 0; i < 100; i++) {
        int got = ops->imm_poll(nodes[0].fabric, imms, 8);
        assert_true(got >= 0 && got <= 8);
    }
    assert_int_equal(send_imm(endpoints[1], 1), -EAGAIN);
    for (uint32_t i = 0; i < SIZE; i++) {
        ops->endpoint_close(endpoints[i]);
    }
    for (uint32_t i = 0; i < SIZE; i++)
        node_close(&nodes[i]);
}

/* A sender that was killed after it filled a slot and before it advanced the tail. */
static void test_killed_sender(void **state) {
    (void)state;
    struct node node, peer;
    struct remo__endpoint *endpoint;
    node_open(&node, 0);
    node_open(&peer, 1);
    node_meet(&node, 1, &peer);
    node_meet(&peer, 0, &node);
    struct remo__shm_header *header = (struct remo__shm_header *)node.arena;
    struct remo__shm_ring *ring = remo__shm_ring(header, SIZE, 1);
    atomic_store(&ring->slots[0], remo__shm_slot_full(0, 111));
    assert_int_equal(ops->endpoint_open(peer.fabric, &endpoint), 0);
    assert_int_equal(send_imm(endpoint, 222), 1); /* another thread, or the next incarnation, advances it */
    struct remo__imm imms[4];
    assert_int_equal(ops->imm_poll(node.fabric, imms, 4), 2);
    assert_int_equal(imms[0].value, 111);
    assert_int_equal(imms[1].value, 222);
    /* The same without a later send: the immediate is not delivered as one of the next incarnation. */
    atomic_store(&ring->slots[2], remo__shm_slot_full(2, 333));
    ops->endpoint_close(endpoint);
    ops->disconnect(node.fabric, 1);
    node_close(&peer);
    node_open(&peer, 1);
    node_meet(&node, 1, &peer);
    node_meet(&peer, 0, &node);
    assert_int_equal(ops->endpoint_open(peer.fabric, &endpoint), 0);
    assert_int_equal(send_imm(endpoint, 444), 1);
    assert_int_equal(ops->imm_poll(node.fabric, imms, 4), 1);
    assert_int_equal(imms[0].value, 444);
    ops->endpoint_close(endpoint);
    node_close(&peer);
    node_close(&node);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lives), cmocka_unit_test(test_segments),      cmocka_unit_test(test_hole),
        cmocka_unit_test(test_ring),  cmocka_unit_test(test_killed_sender),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
