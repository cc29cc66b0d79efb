/* test_channel_close.c - closes of endpoints, and the memory of their peers.
 * Memory is reused after the close of all endpoints, unless a peer's write may still arrive. */
#include <remo/region.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "../support/cluster.h"

#define NODES 2u
#define WRITER 0u
#define TARGET 1u
#define BYTES (1u << 20) /* its free range is the first that fits */

static struct shared { _Atomic pid_t target; } * shared;

static struct remo_nodeset set_of(uint32_t node) {
    struct remo_nodeset set = {0};
    remo_nodeset_add(&set, node);
    return set;
}

static int open_data(struct remo_node *node, struct remo_region **ret_data) {
    struct remo_nodeset providers = set_of(TARGET);
    struct remo_region_options options = {.providers = providers};
    CHECK_OK(remo_region_open(remo_node_root(node), "data", BYTES, &options, ret_data));
    CHECK_OK(remo_channel_wait(remo_region_channel(*ret_data), 100 * SECOND));
    return cluster_meet();
}

/* The target closes after the writer, and opens another region. Set *ret_same if it has the same memory. */
static int reopen(struct remo_node *node, struct remo_region *data, bool *ret_same) {
    struct remo_nodeset self = set_of(TARGET);
    struct remo_region_options options = {.participants = self};
    struct remo_region *next;
    const void *before = remo_region_local(data);
    while (remo_channel_peer(remo_region_channel(data), WRITER) != REMO_CHANNEL_LEFT)
        cluster_sleep_ms(1);
    remo_region_close(data);
    CHECK_OK(remo_region_open(remo_node_root(node), "next", BYTES, &options, &next));
    *ret_same = remo_region_local(next) == before;
    remo_region_close(next);
    return 0;
}

static int memory_is_reused(struct remo_node *node, void *ctx) {
    struct remo_region *data;
    bool same = false;
    uint64_t word = 7;
    (void)ctx;
    if (open_data(node, &data) != 0)
        return 1;
    if (remo_node_rank(node) == WRITER) {
        CHECK_OK(remo_region_write(data, TARGET, 0, &word, 8, 0, NULL));
        remo_region_close(data);
    } else {
        if (reopen(node, data, &same) != 0)
            return 1;
        CHECK(same);
    }
    return cluster_meet();
}

/* The target is paused with a write in flight until the writer has closed. */
static int memory_is_kept(struct remo_node *node, void *ctx) {
    struct remo_region *data;
    bool same = true;
    uint64_t word = 7;
    (void)ctx;
    if (remo_node_rank(node) == TARGET)
        atomic_store(&shared->target, getpid());
    if (open_data(node, &data) != 0)
        return 1;
    if (remo_node_rank(node) == WRITER) {
        CHECK_OK(remo_region_write(data, TARGET, 0, &word, 8, 0, NULL));
        CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0)); /* connects */
        kill(atomic_load(&shared->target), SIGSTOP);
        cluster_sleep_ms(20);
        CHECK_OK(remo_region_write(data, TARGET, 0, &word, 8, 0, NULL));
        remo_region_close(data);
        kill(atomic_load(&shared->target), SIGCONT);
    } else {
        if (reopen(node, data, &same) != 0)
            return 1;
        CHECK(!same);
    }
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_fence(node, REMO_FENCE_GLOBAL, 0)); /* the late write is placed */
    return cluster_meet();
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(memory_is_reused, NODES),
        CLUSTER_TEST(memory_is_kept, NODES, .op_timeout_ns = 5 * SECOND, .only_on = "ofi"),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
