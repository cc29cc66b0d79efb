/* test_channel_close.c - closes of endpoints, and the memory of their peers.
 * Memory is reused after the close of all endpoints, when no operation of a peer is in flight. */
#include <errno.h>
#include <remo/barrier.h>
#include <remo/region.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/pause.h"

#define NODES 3u
#define WRITER 0u
#define TARGET 1u
#define PAUSED 2u
#define BYTES (1u << 20) /* its free range is the first that fits */

static struct shared { _Atomic pid_t paused; } * shared;

static struct remo_nodeset set_of(uint32_t node) {
    struct remo_nodeset set = {0};
    remo_nodeset_add(&set, node);
    return set;
}

static struct remo_nodeset two(void) {
    struct remo_nodeset set = set_of(WRITER);
    remo_nodeset_add(&set, TARGET);
    return set;
}

/* Open `data`, of two nodes, with memory at the target, and `stuck`, of all nodes. */
static int open_regions(struct remo_node *node, struct remo_region **ret_data,
                        struct remo_region **ret_stuck) {
    struct remo_region_options options = {.participants = two(), .providers = set_of(TARGET)};
    *ret_data = NULL;
    if (remo_node_rank(node) == PAUSED)
        atomic_store(&shared->paused, getpid());
    CHECK_OK(remo_region_open(remo_node_root(node), "stuck", 64, NULL, ret_stuck));
    CHECK_OK(remo_channel_wait(remo_region_channel(*ret_stuck), 100 * SECOND));
    if (remo_node_rank(node) != PAUSED) {
        CHECK_OK(remo_region_open(remo_node_root(node), "data", BYTES, &options, ret_data));
        CHECK_OK(remo_channel_wait(remo_region_channel(*ret_data), 100 * SECOND));
    }
    return cluster_meet();
}

/* Pause a node with a write of this node in flight to it: then no close of this node completes. */
static int get_stuck(struct remo_node *node, struct remo_region *stuck) {
    uint64_t word = 7;
    CHECK_OK(remo_region_write(stuck, PAUSED, 0, &word, 8, 0, NULL));
    CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0)); /* connects */
    CHECK(process_pause(atomic_load(&shared->paused)) == 0);
    CHECK_OK(remo_region_write(stuck, PAUSED, 0, &word, 8, 0, NULL));
    return 0;
}

/* Open another region, and return whether it has the memory `before`. */
static int reopen(struct remo_node *node, const void *before, bool *ret_same) {
    struct remo_region_options options = {.participants = set_of(TARGET)};
    struct remo_region *next;
    CHECK_OK(remo_region_open(remo_node_root(node), "next", BYTES, &options, &next));
    *ret_same = remo_region_local(next) == before;
    remo_region_close(next);
    return 0;
}

/* Close the region after the writer. */
static const void *close_second(struct remo_region *data) {
    const void *before = remo_region_local(data);
    while (remo_channel_peer(remo_region_channel(data), WRITER) != REMO_CHANNEL_LEFT)
        cluster_sleep_ms(1);
    remo_region_close(data);
    return before;
}

/* Close the regions that are still open, after all nodes have ended the test. */
static int finish(struct remo_region *data, struct remo_region *stuck) {
    int rc = cluster_meet();
    remo_region_close(data);
    remo_region_close(stuck);
    return rc;
}

static int memory_is_reused(struct remo_node *node, void *ctx) {
    struct remo_region *data, *stuck;
    bool same = false;
    uint64_t word = 7;
    (void)ctx;
    if (open_regions(node, &data, &stuck) != 0)
        return 1;
    if (remo_node_rank(node) == WRITER) {
        CHECK_OK(remo_region_write(data, TARGET, 0, &word, 8, 0, NULL));
        remo_region_close(data);
    } else if (remo_node_rank(node) == TARGET) {
        CHECK(reopen(node, close_second(data), &same) == 0);
        CHECK(same);
    }
    return finish(NULL, stuck);
}

/* The memory stays reserved while an operation of the writer is in flight, and no longer. */
static int memory_is_kept(struct remo_node *node, void *ctx) {
    struct remo_region *data, *stuck;
    bool same = true;
    (void)ctx;
    if (open_regions(node, &data, &stuck) != 0)
        return 1;
    if (remo_node_rank(node) == WRITER) {
        CHECK(get_stuck(node, stuck) == 0);
        remo_region_close(data);
    } else if (remo_node_rank(node) == TARGET) {
        const void *before = close_second(data);
        CHECK(reopen(node, before, &same) == 0);
        CHECK(!same);
        kill(atomic_load(&shared->paused), SIGCONT);
        while (!same)
            CHECK(reopen(node, before, &same) == 0);
    }
    return finish(NULL, stuck);
}

/* A wait for the writer ends when it has closed, although its operations are in flight. */
static int wait_ends(struct remo_node *node, void *ctx) {
    struct remo_barrier_options options = {.participants = two()};
    struct remo_barrier *barrier = NULL;
    struct remo_region *data, *stuck;
    (void)ctx;
    if (open_regions(node, &data, &stuck) != 0)
        return 1;
    if (remo_node_rank(node) != PAUSED) {
        CHECK_OK(remo_barrier_open(remo_node_root(node), "barrier", &options, &barrier));
        CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    }
    if (remo_node_rank(node) == WRITER) {
        CHECK(get_stuck(node, stuck) == 0);
        remo_barrier_close(barrier);
    } else if (remo_node_rank(node) == TARGET) {
        CHECK_CODE(remo_barrier_wait(barrier, 100 * SECOND), -ENOTCONN);
        kill(atomic_load(&shared->paused), SIGCONT);
        remo_barrier_close(barrier);
    }
    return finish(data, stuck);
}

/* The writer leaves the job with an operation in flight: its peers cut it off, and reuse the memory. */
static int node_close_ends(struct remo_node *node, void *ctx) {
    struct remo_region *data, *stuck;
    bool same = false;
    (void)ctx;
    if (open_regions(node, &data, &stuck) != 0)
        return 1;
    if (remo_node_rank(node) == WRITER) {
        int rc = get_stuck(node, stuck);
        remo_region_close(data);
        remo_region_close(stuck);
        return rc; /* then the node closes */
    }
    if (remo_node_rank(node) == TARGET) {
        const void *before = remo_region_local(data);
        while (remo_node_peer(node, WRITER) != REMO_PEER_LEFT)
            cluster_sleep_ms(1);
        remo_region_close(data);
        while (!same)
            CHECK(reopen(node, before, &same) == 0);
        kill(atomic_load(&shared->paused), SIGCONT);
    }
    return finish(NULL, stuck);
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(memory_is_reused, NODES),
        CLUSTER_TEST(memory_is_kept, NODES, .op_timeout_ns = 5 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(wait_ends, NODES, .op_timeout_ns = 5 * SECOND, .only_on = "ofi"),
        CLUSTER_TEST(node_close_ends, NODES, .op_timeout_ns = 5 * SECOND, .only_on = "ofi"),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
