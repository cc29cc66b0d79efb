/* test_many_nodes.c - a job of 64 nodes on one machine. Each node writes to all others in a barrier, so all
 * pairs of nodes connect. */
#include "../../support/cluster.h"

#define NODES 64u
#define WAIT_NS (280 * SECOND) /* about 15 s on a quiet machine with two processors */

static int meet(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    (void)ctx;
    CHECK_OK(remo_barrier_open(remo_node_root(node), "barrier", NULL, &barrier));
    CHECK_OK(remo_channel_wait(remo_barrier_channel(barrier), WAIT_NS));
    for (uint32_t round = 0; round < 2; round++)
        CHECK_OK(remo_barrier_wait(barrier, WAIT_NS));
    remo_barrier_close(barrier);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(meet, NODES, .op_timeout_ns = WAIT_NS, .timeout_ns = WAIT_NS), {0}};
    return cluster_main(argc, argv, tests, NULL);
}
