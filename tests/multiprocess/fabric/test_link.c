/* test_link.c - a link that is interrupted while both nodes run; only the guest of tests/verbs can produce
 * it. When the device reports the failure, both nodes count as failed for each other, and operations end.
 * REMO_TEST_LINK names the interface. */
#include <errno.h>
#include <remo/remo.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/cluster.h"
#include "../../support/patience.h"

#define WAIT (100 * SECOND)

static int link_set(const char *state) {
    char command[128];
    snprintf(command, sizeof command, "tc qdisc %s dev %s root netem loss 100%%", state,
             getenv("REMO_TEST_LINK"));
    return system(command);
}

static int wait_dead(struct remo_node *node, uint32_t peer) {
    uint64_t deadline = cluster_now_ns() + WAIT;
    while (remo_node_peer(node, peer) != REMO_PEER_DEAD && cluster_now_ns() < deadline)
        cluster_sleep_ms(1);
    return remo_node_peer(node, peer) == REMO_PEER_DEAD ? 0 : 1;
}

static int interrupted_link(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_region *region;
    uint64_t word = 7;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 64, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_region_channel(region), WAIT));
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_region_write(region, 1, 0, &word, 8, 0, NULL));
        CHECK_OK(remo_region_read(region, 1, 0, &word, 8, NULL));
        CHECK(link_set("add") == 0);
        uint64_t begin = cluster_now_ns();
        CHECK_SENTENCE(remo_region_read(region, 1, 0, &word, 8, NULL), -EHOSTDOWN, "it has failed");
        uint64_t took = cluster_now_ns() - begin;
        CHECK(link_set("del") == 0);
        printf("     the connection to the silent peer fails after %.1f ms\n", (double)took / 1e6);
        CHECK(in_time(took, 2 * SECOND));
    }
    CHECK_OK(wait_dead(node, 1 - remo_node_rank(node)));
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(interrupted_link, 2, .only_on = "verbs"), {0}};
    return getenv("REMO_TEST_LINK") ? cluster_main(argc, argv, tests, NULL) : 77;
}
