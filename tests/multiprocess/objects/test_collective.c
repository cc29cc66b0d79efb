/* test_collective.c - collectives: results of every size, type and operation, costs, calls that follow each
 * other, wrong calls, late nodes, and nodes that fail. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"

#define NODES_MAX 8u
#define WAIT (100 * SECOND)
#define BYTES_MAX (1u << 20)

static int open_collective(struct remo_node *node, uint32_t bytes_max,
                           struct remo_collective **ret_collective) {
    struct remo_collective_options options = {.bytes_max = bytes_max};
    CHECK_OK(remo_collective_open(remo_node_root(node), "collective", &options, ret_collective));
    CHECK_OK(remo_channel_wait(remo_collective_channel(*ret_collective), WAIT));
    CHECK_OK(cluster_meet());
    return 0;
}

static int close_collective(struct remo_collective *collective) {
    CHECK_OK(cluster_meet());
    remo_collective_close(collective);
    return 0;
}

/* ---- bytes ---- */

static unsigned char byte_of(uint32_t rank, size_t at, uint32_t round) {
    return (unsigned char)(at * 7 + rank * 31 + round * 13 + at / 256);
}

static void fill(unsigned char *data, size_t bytes, uint32_t rank, uint32_t round) {
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_of(rank, i, round);
}

static int check_bytes(const unsigned char *data, size_t bytes, uint32_t rank, uint32_t round) {
    for (size_t i = 0; i < bytes; i++)
        CHECK_EQUAL(data[i], byte_of(rank, i, round));
    return 0;
}

static int move_bytes(struct remo_node *node, struct remo_collective *collective, size_t bytes,
                      unsigned char *data, unsigned char *all) {
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    for (uint32_t root = 0; root < size; root++) {
        fill(data, bytes, rank, root);
        CHECK_OK(remo_collective_broadcast(collective, root, data, bytes, WAIT));
        if (check_bytes(data, bytes, root, root))
            return 1;
        memset(all, 0xee, size * bytes + 1);
        fill(data, bytes, rank, root);
        CHECK_OK(remo_collective_gather(collective, root, data, rank == root ? all : NULL, bytes, WAIT));
        for (uint32_t from = 0; rank == root && from < size; from++)
            if (check_bytes(all + from * bytes, bytes, from, root))
                return 1;
        CHECK(all[size * bytes] == 0xee && (rank == root || all[0] == 0xee));
    }
    fill(all + rank * bytes, bytes, rank, 77); /* in place */
    CHECK_OK(remo_collective_all_gather(collective, all + rank * bytes, all, bytes, WAIT));
    for (uint32_t from = 0; from < size; from++)
        if (check_bytes(all + from * bytes, bytes, from, 77))
            return 1;
    return 0;
}

static int bytes(struct remo_node *node, void *ctx) {
    (void)ctx;
    static const size_t sizes[] = {0, 1, 13, 64, 4096, 65535, 65536, 65537, BYTES_MAX};
    struct remo_collective *collective;
    unsigned char *data = malloc(BYTES_MAX), *all = malloc((size_t)NODES_MAX * BYTES_MAX + 1);
    CHECK(data && all);
    if (open_collective(node, 0, &collective))
        return 1;
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (move_bytes(node, collective, sizes[i], data, all))
            return 1;
    free(data);
    free(all);
    return close_collective(collective);
}

/* ---- numbers ---- */

/* Return a small number of either sign for a rank, so that sums of doubles are exact. */
static int64_t number_of(uint32_t rank, size_t at) {
    return (int64_t)((at * 2654435761u + rank * 40503u) % 2001) - 1000;
}

static int64_t combine(int64_t a, int64_t b, enum remo_number number, enum remo_reduction reduction) {
    bool less = number == REMO_NUMBER_U64 ? (uint64_t)a < (uint64_t)b : a < b;
    switch (reduction) {
    case REMO_REDUCTION_SUM: return a + b;
    case REMO_REDUCTION_MIN: return less ? a : b;
    case REMO_REDUCTION_MAX: return less ? b : a;
    case REMO_REDUCTION_AND: return a & b;
    case REMO_REDUCTION_OR: return a | b;
    default: return a ^ b;
    }
}

static void store(uint64_t *words, size_t at, int64_t value, enum remo_number number) {
    double real = (double)value;
    if (number == REMO_NUMBER_DOUBLE)
        memcpy(&words[at], &real, sizeof real);
    else
        words[at] = (uint64_t)value;
}

static int check_numbers(const uint64_t *words, size_t count, uint32_t size, enum remo_number number,
                         enum remo_reduction reduction) {
    for (size_t i = 0; i < count; i++) {
        int64_t expected = number_of(0, i);
        uint64_t word;
        for (uint32_t rank = 1; rank < size; rank++)
            expected = combine(expected, number_of(rank, i), number, reduction);
        store(&word, 0, expected, number);
        CHECK_EQUAL(words[i], word);
    }
    return 0;
}

static int reduce_numbers(struct remo_node *node, struct remo_collective *collective, size_t count,
                          uint64_t *words, uint64_t *result) {
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    for (enum remo_number number = REMO_NUMBER_U64; number <= REMO_NUMBER_DOUBLE; number++) {
        for (enum remo_reduction reduction = REMO_REDUCTION_SUM; reduction <= REMO_REDUCTION_XOR;
             reduction++) {
            if (number == REMO_NUMBER_DOUBLE && reduction >= REMO_REDUCTION_AND)
                continue;
            uint32_t root = (uint32_t)(number + reduction) % size;
            for (size_t i = 0; i < count; i++)
                store(words, i, number_of(rank, i), number);
            CHECK_OK(remo_collective_reduce(collective, root, words, rank == root ? result : NULL, count,
                                            number, reduction, WAIT));
            if (rank == root && check_numbers(result, count, size, number, reduction))
                return 1;
            CHECK_OK(remo_collective_all_reduce(collective, words, words, count, number, reduction, WAIT));
            if (check_numbers(words, count, size, number, reduction))
                return 1;
        }
    }
    return 0;
}

static int numbers(struct remo_node *node, void *ctx) {
    (void)ctx;
    static const size_t counts[] = {1, 7, 2048, 2049, 10001, BYTES_MAX / 8};
    struct remo_collective *collective;
    uint64_t *words = malloc(BYTES_MAX), *result = malloc(BYTES_MAX);
    CHECK(words && result);
    if (open_collective(node, BYTES_MAX, &collective))
        return 1;
    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (reduce_numbers(node, collective, counts[i], words, result))
            return 1;
    free(words);
    free(result);
    return close_collective(collective);
}

/* The sum of these doubles depends on the order: all nodes get the same bits, for each size. */
static int same_bits(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { COUNT = 5000 };
    struct remo_collective *collective;
    static double numbers_of[COUNT], expected[COUNT], all[NODES_MAX * COUNT];
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    if (open_collective(node, COUNT * 8, &collective))
        return 1;
    for (uint32_t i = 0; i < COUNT; i++)
        numbers_of[i] = 1.0 / (i + 3 + rank * 7) * (rank % 2 ? 1e16 : 1);
    CHECK_OK(remo_collective_all_gather(collective, numbers_of, all, sizeof numbers_of, WAIT));
    for (uint32_t i = 0; i < COUNT; i++) {
        expected[i] = all[i];
        for (uint32_t from = 1; from < size; from++)
            expected[i] = expected[i] + all[from * COUNT + i];
    }
    static const size_t counts[] = {1, 2048, COUNT};
    for (uint32_t i = 0; i < 3; i++) {
        double result[COUNT];
        CHECK_OK(remo_collective_all_reduce(collective, numbers_of, result, counts[i], REMO_NUMBER_DOUBLE,
                                            REMO_REDUCTION_SUM, WAIT));
        CHECK(memcmp(result, expected, counts[i] * 8) == 0);
    }
    return close_collective(collective);
}

/* ---- consecutive calls ---- */

static int sequence(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { ROUNDS = 400, WORDS = 3000 };
    struct remo_collective *collective;
    static uint64_t words[WORDS];
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    if (open_collective(node, WORDS * 8, &collective))
        return 1;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint32_t root = (uint32_t)(round / 3 % size);
        size_t count = round % 5 == 0 ? WORDS : 9;
        if ((round + rank * 37) % 101 == 0)
            cluster_sleep_ms(2); /* one node is late */
        for (size_t i = 0; i < count; i++)
            words[i] = round * 1000 + rank;
        if (round % 2) {
            CHECK_OK(remo_collective_broadcast(collective, root, words, count * 8, WAIT));
            for (size_t i = 0; i < count; i++)
                CHECK_EQUAL(words[i], round * 1000 + root);
        } else {
            CHECK_OK(remo_collective_all_reduce(collective, words, words, count, REMO_NUMBER_U64,
                                                REMO_REDUCTION_MAX, WAIT));
            for (size_t i = 0; i < count; i++)
                CHECK_EQUAL(words[i], round * 1000 + size - 1);
        }
    }
    return close_collective(collective);
}

/* Writes before a call are visible after it. */
static int visibility(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_collective *collective;
    struct remo_region *region;
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    CHECK_OK(remo_region_open(remo_node_root(node), "data", 64 * NODES_MAX, NULL, &region));
    if (open_collective(node, 64, &collective))
        return 1;
    CHECK_OK(remo_channel_wait(remo_region_channel(region), WAIT));
    for (uint64_t round = 1; round <= 100; round++) {
        uint64_t word = round * 100 + rank, found;
        for (uint32_t to = 0; to < size; to++)
            CHECK_OK(remo_region_write(region, to, rank * 64, &word, 8, 0, NULL));
        CHECK_OK(remo_collective_broadcast(collective, 0, &word, 8, WAIT));
        for (uint32_t from = 0; from < size; from++) {
            CHECK_OK(remo_region_read(region, rank, from * 64, &found, 8, NULL));
            CHECK_EQUAL(found, round * 100 + from);
        }
        CHECK_OK(remo_collective_broadcast(collective, 1, &word, 8, WAIT));
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return close_collective(collective);
}

/* ---- costs ---- */

static int costs(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { LARGE = 200 * 1024 }; /* 4 reads */
    struct remo_collective *collective;
    static char data[NODES_MAX * LARGE], own[LARGE];
    uint32_t rank = remo_node_rank(node), others = remo_node_size(node) - 1, root = 1;
    if (open_collective(node, LARGE, &collective))
        return 1;
    struct remo_channel *channel = remo_collective_channel(collective);
    CHECK_OK(remo_collective_broadcast(collective, root, data, 1, WAIT));
    bool is_root = rank == root;
#define COST(call, reads, writes)                                      \
    do {                                                               \
        CHECK_COST(channel, CHECK_OK(call), reads, writes, 0, writes); \
        CHECK_OK(cluster_meet());                                      \
    } while (0)
    COST(remo_collective_broadcast(collective, root, data, 8, WAIT), !is_root, others);
    COST(remo_collective_broadcast(collective, root, data, LARGE, WAIT), is_root ? 0 : 4, others);
    COST(remo_collective_gather(collective, root, own, data, 8, WAIT), is_root ? others : 0, others);
    COST(remo_collective_gather(collective, root, own, data, LARGE, WAIT), is_root ? 4 * others : 0, others);
    COST(remo_collective_all_gather(collective, own, data, 8, WAIT), others, others);
    COST(remo_collective_reduce(collective, root, own, data, 1, REMO_NUMBER_I64, REMO_REDUCTION_SUM, WAIT),
         is_root ? others : 0, others);
    COST(remo_collective_all_reduce(collective, own, data, 2048, REMO_NUMBER_I64, REMO_REDUCTION_SUM, WAIT),
         others, others);
    if (others == 1)
        COST(remo_collective_all_reduce(collective, own, data, LARGE / 8, REMO_NUMBER_I64, REMO_REDUCTION_SUM,
                                        WAIT),
             4, 1);
    else /* three parts of 66.7 KiB: two reads each; the first one includes the header of the part */
        COST(remo_collective_all_reduce(collective, own, data, LARGE / 8, REMO_NUMBER_I64, REMO_REDUCTION_SUM,
                                        WAIT),
             4 * others, 2 * others);
#undef COST
    return close_collective(collective);
}

/* ---- invalid and mismatching calls ---- */

static int bad_arguments(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_collective *c = NULL;
    struct remo_collective_options options = {.bytes_max = (1u << 30) + 1};
    struct remo_channel *root = remo_node_root(node);
    uint64_t word = 0, room[2];
    CHECK_SENTENCE(remo_collective_open(NULL, "c", NULL, &c), -EINVAL, "parent");
    CHECK_SENTENCE(remo_collective_open(root, "c", NULL, NULL), -EINVAL, "ret_collective");
    CHECK_SENTENCE(remo_collective_open(root, "c", &options, &c), -EINVAL, "bytes_max");
    CHECK_SENTENCE(remo_collective_open(root, "no/name", NULL, &c), -EINVAL, "no/name");
    CHECK(c == NULL);
    remo_collective_close(NULL);
    if (open_collective(node, 64, &c))
        return 1;
    CHECK_SENTENCE(remo_collective_broadcast(NULL, 0, &word, 8, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_collective_reduce(NULL, 0, &word, room, 1, 0, 0, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_collective_all_reduce(NULL, &word, room, 1, 0, 0, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_collective_gather(NULL, 0, &word, room, 1, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_collective_all_gather(NULL, &word, room, 1, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_collective_broadcast(c, 2, &word, 8, 0), -EINVAL, "root");
    CHECK_SENTENCE(remo_collective_broadcast(c, 0, NULL, 8, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_collective_gather(c, 0, NULL, room, 8, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_collective_gather(c, remo_node_rank(node), &word, NULL, 8, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_collective_all_gather(c, &word, NULL, 8, 0), -EINVAL, "NULL");
    CHECK_SENTENCE(remo_collective_broadcast(c, 0, &word, 65, 0), -EMSGSIZE, "bytes_max = 64");
    CHECK_SENTENCE(remo_collective_all_reduce(c, &word, room, 9, 0, 0, 0), -EMSGSIZE, "bytes_max = 64");
    CHECK_CODE(remo_collective_all_reduce(c, &word, room, SIZE_MAX / 8 + 1, 0, 0, 0), -EMSGSIZE);
    CHECK_SENTENCE(remo_collective_all_reduce(c, &word, room, 1, REMO_NUMBER_DOUBLE, REMO_REDUCTION_XOR, 0),
                   -EINVAL, "doubles");
    CHECK_SENTENCE(remo_collective_all_reduce(c, &word, room, 1, (enum remo_number)3, 0, 0), -EINVAL, "3");
    CHECK_SENTENCE(remo_collective_all_reduce(c, &word, room, 1, 0, (enum remo_reduction)6, 0), -EINVAL, "6");
    return close_collective(c);
}

static int mismatch(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_collective *collective;
    struct remo_collective_options options = {.bytes_max = remo_node_rank(node) == 0 ? 64 : 128};
    uint64_t words[2] = {0};
    CHECK_OK(remo_collective_open(remo_node_root(node), "sizes", &options, &collective));
    CHECK_SENTENCE(remo_channel_wait(remo_collective_channel(collective), WAIT), -EPROTO, "sizes");
    if (close_collective(collective) || open_collective(node, 64, &collective))
        return 1;
    /* Node 0 passes 8 bytes, node 1 16 bytes. */
    CHECK_SENTENCE(remo_collective_all_gather(collective, words, words, 8u << remo_node_rank(node), WAIT),
                   -EPROTO, "a different call");
    CHECK_SENTENCE(remo_collective_all_gather(collective, words, words, 8, WAIT), -EPROTO, "close it");
    return close_collective(collective);
}

/* In a large all-reduce each node reads one part only: node 1 requests MAX, all others SUM. */
static int mismatch_in_parts(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { WORDS = 8192 };
    static uint64_t words[WORDS], result[WORDS];
    struct remo_collective *collective;
    bool differs = remo_node_rank(node) == 1;
    if (open_collective(node, sizeof words, &collective))
        return 1;
    CHECK_SENTENCE(remo_collective_all_reduce(collective, words, result, WORDS, REMO_NUMBER_U64,
                                              differs ? REMO_REDUCTION_MAX : REMO_REDUCTION_SUM, WAIT),
                   -EPROTO, "a different call");
    return close_collective(collective);
}

/* A small all-reduce has one barrier, a large one two: the rounds of node 1 differ from those of its
 * peers. */
static int mismatch_of_steps(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { WORDS = 8192 };
    static uint64_t words[WORDS], result[WORDS];
    struct remo_collective *collective;
    size_t count = remo_node_rank(node) == 1 ? 8 : WORDS;
    if (open_collective(node, sizeof words, &collective))
        return 1;
    for (uint32_t round = 0; round < 3; round++)
        CHECK_OK(remo_collective_all_reduce(collective, words, result, WORDS, REMO_NUMBER_U64,
                                            REMO_REDUCTION_SUM, WAIT));
    CHECK_CODE(remo_collective_all_reduce(collective, words, result, count, REMO_NUMBER_U64,
                                          REMO_REDUCTION_SUM, WAIT),
               -EPROTO);
    return close_collective(collective);
}

/* ---- a node that is late ---- */

static int late(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_collective *collective;
    uint64_t word = remo_node_rank(node) + 1, sum = 0;
    if (open_collective(node, 64, &collective))
        return 1;
    if (remo_node_rank(node) != 1) {
        CHECK_CODE(remo_collective_all_reduce(collective, &word, &sum, 1, REMO_NUMBER_U64, REMO_REDUCTION_SUM,
                                              SECOND / 100),
                   -ETIMEDOUT);
        CHECK_SENTENCE(remo_collective_broadcast(collective, 0, &word, 8, 0), -EINVAL, "repeat");
        word = 1000; /* the first attempt has copied the contribution */
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(
        remo_collective_all_reduce(collective, &word, &sum, 1, REMO_NUMBER_U64, REMO_REDUCTION_SUM, WAIT));
    CHECK_EQUAL(sum, 1 + 2 + 3);
    return close_collective(collective);
}

/* ---- a node that fails, and one that leaves ---- */

static int any_call(struct remo_collective *collective, uint32_t kind, uint64_t *words, uint64_t *room,
                    size_t count) {
    switch (kind) {
    case 0: return remo_collective_broadcast(collective, 0, words, count * 8, WAIT);
    case 1: return remo_collective_gather(collective, 0, words, room, count * 8, WAIT);
    case 2: return remo_collective_all_gather(collective, words, room, count * 8, WAIT);
    case 3:
        return remo_collective_reduce(collective, 0, words, room, count, REMO_NUMBER_U64, REMO_REDUCTION_SUM,
                                      WAIT);
    default:
        return remo_collective_all_reduce(collective, words, room, count, REMO_NUMBER_U64, REMO_REDUCTION_SUM,
                                          WAIT);
    }
}

enum { FAILURE_WORDS = 20000 };
static struct shared { _Atomic uint32_t calls; /* of the node that is killed */ } * shared;

/* One node is killed in the middle of calls of each kind: all other nodes get -EHOSTDOWN, also from the next
 * call. */
static int killed_in(struct remo_node *node, uint32_t kind) {
    struct remo_collective *collective;
    uint32_t rank = remo_node_rank(node), victim = remo_node_size(node) - 1;
    uint64_t *words = calloc(FAILURE_WORDS, 8), *room = calloc(NODES_MAX * FAILURE_WORDS, 8);
    int rc = 0;
    CHECK(words && room);
    if (open_collective(node, FAILURE_WORDS * 8, &collective))
        return 1;
    if (rank == victim)
        cluster_expect_death();
    while (rc == 0) {
        rc = any_call(collective, kind, words, room, FAILURE_WORDS);
        if (rank == victim)
            atomic_fetch_add(&shared->calls, 1);
        if (rank == 0 && atomic_load(&shared->calls) >= 20)
            (void)cluster_kill(victim);
    }
    CHECK_CODE(rc, -EHOSTDOWN);
    CHECK_CODE(any_call(collective, kind, words, room, FAILURE_WORDS), -EHOSTDOWN);
    free(words);
    free(room);
    return close_collective(collective);
}

static int killed(struct remo_node *node, void *ctx) {
    return killed_in(node, (uint32_t)(uintptr_t)ctx);
}

static int leaves(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_collective *collective;
    uint64_t word = 1, sum = 0;
    int rc;
    if (open_collective(node, 64, &collective))
        return 1;
    CHECK_OK(
        remo_collective_all_reduce(collective, &word, &sum, 1, REMO_NUMBER_U64, REMO_REDUCTION_SUM, WAIT));
    CHECK_OK(cluster_meet()); /* all nodes have read */
    if (remo_node_rank(node) == 2)
        remo_collective_close(collective);
    rc = remo_node_rank(node) == 2 ? -ENOTCONN : remo_collective_broadcast(collective, 0, &word, 8, WAIT);
    CHECK(rc == -ENOTCONN || rc == -EHOSTDOWN);
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) != 2)
        remo_collective_close(collective);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST_NAMED("bytes of one", bytes, 1),
        CLUSTER_TEST_NAMED("bytes of two", bytes, 2),
        CLUSTER_TEST_NAMED("bytes of five", bytes, 5),
        CLUSTER_TEST_NAMED("numbers of one", numbers, 1),
        CLUSTER_TEST_NAMED("numbers of two", numbers, 2),
        CLUSTER_TEST_NAMED("numbers of three", numbers, 3),
        CLUSTER_TEST(same_bits, 4),
        CLUSTER_TEST(sequence, 3),
        CLUSTER_TEST(visibility, 3),
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST_NAMED("costs of three", costs, 3),
        CLUSTER_TEST(bad_arguments, 2),
        CLUSTER_TEST(mismatch, 2),
        CLUSTER_TEST(mismatch_in_parts, 3),
        CLUSTER_TEST(mismatch_of_steps, 3),
        CLUSTER_TEST(late, 3),
        CLUSTER_TEST_NAMED("killed in broadcast", killed, 3),
        CLUSTER_TEST_NAMED("killed in gather", killed, 3, .ctx = (void *)1),
        CLUSTER_TEST_NAMED("killed in all_gather", killed, 3, .ctx = (void *)2),
        CLUSTER_TEST_NAMED("killed in reduce", killed, 3, .ctx = (void *)3),
        CLUSTER_TEST_NAMED("killed in all_reduce", killed, 4, .ctx = (void *)4),
        CLUSTER_TEST(leaves, 3),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
