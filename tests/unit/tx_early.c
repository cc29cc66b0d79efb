/* tx_early.c - unit tests of early locks: which messages an owner decodes, and what a commit does with owners
 * that the coordinator has lost since the first LOCK (docs/internals/tx.md, Early locks). */
#include <errno.h>
#include <string.h>

#include "systems/tx/finish.h"

#include "unit.h"

#define NODES 4u
#define COORDINATOR 3u
#define RANKS_MAX REMO_TX_ITEMS_MAX

static struct remo__peer node_peers[NODES];
static struct remo_node node = {.size = NODES, .peers = node_peers};
static struct remo__channel_peer pairs[NODES];
static struct remo_channel channel = {
    .node = &node, .slot = 1, .peers = pairs, .name = "space", .participants = {.word = {(1 << NODES) - 1}}};
static struct remo__tx_peer peers[NODES];
static struct remo_tx_space space = {.node = &node, .channel = &channel, .peers = peers};

/* ---- messages ---- */

/* Decode a LOCK, at node `own`. */
static bool decode(uint32_t own, const uint16_t *ranks, uint32_t count) {
    const struct remo__tx_prepare header = {.owners = count};
    const struct remo__tx_request request = {.items = 0};
    char message[sizeof header + (RANKS_MAX + 4) * sizeof *ranks + sizeof request] = {0};
    struct remo__tx_part part;
    size_t ranks_bytes = remo__align_up(count * sizeof *ranks, 8);
    node.rank = own;
    memcpy(message, &header, sizeof header);
    memcpy(message + sizeof header, ranks, count * sizeof *ranks);
    memcpy(message + sizeof header + ranks_bytes, &request, sizeof request);
    return remo__tx_decode(&space, COORDINATOR, message, sizeof header + ranks_bytes + sizeof request, &part);
}

static void test_owners(void **state) {
    static const uint16_t ranks[] = {1, 0, 2}, coordinator[] = {COORDINATOR, 2}, stranger[] = {NODES, 2};
    (void)state;
    assert_true(decode(2, ranks, 3));
    assert_true(decode(COORDINATOR, ranks, 2)); /* of its own items */
    assert_false(decode(2, ranks, 2));          /* it is no owner */
    assert_false(decode(2, coordinator, 2));
    assert_false(decode(2, stranger, 2));
}

/* An owner adds the other nodes of the space to the ranks, and has room for each node once. */
static void test_named_twice(void **state) {
    static const uint16_t twice[] = {1, 1, 2}, apart[] = {1, 0, 1, 2}, own[] = {2, 2};
    uint16_t many[RANKS_MAX] = {0};
    (void)state;
    assert_false(decode(2, twice, 3));
    assert_false(decode(2, apart, 4));
    assert_false(decode(2, own, 2));
    assert_false(decode(COORDINATOR, twice, 2));
    many[RANKS_MAX - 1] = 2;
    assert_false(decode(2, many, RANKS_MAX));
}

/* ---- owners that were lost ---- */

static struct remo__tx_commit commit;

/* The nodes 1 and 2 have locked items for a transaction of node 3. */
static int lock_items(void **state) {
    (void)state;
    node.rank = COORDINATOR;
    for (uint32_t i = 0; i < NODES; i++) {
        atomic_store(&node_peers[i].state, REMO_PEER_UP);
        atomic_store(&pairs[i].state, REMO_CHANNEL_CONNECTED);
        peers[i] = (struct remo__tx_peer){.losses = 1}; /* before the transaction */
    }
    commit = (struct remo__tx_commit){.space = &space, .is_early = true, .is_own = true};
    (void)remo__tx_add_participant(&commit, COORDINATOR);
    for (uint32_t i = 1; i <= 2; i++) {
        struct remo__tx_participant *owner = remo__tx_add_participant(&commit, i);
        owner->losses = 1;
        owner->needs_finish = true;
    }
    return 0;
}

static void check_informed(bool first, bool second) {
    assert_int_equal(commit.participants[1].is_informed, first);
    assert_int_equal(commit.participants[2].is_informed, second);
}

static void test_none_lost(void **state) {
    (void)state;
    assert_int_equal(remo__tx_check_owners(&commit), 0);
    check_informed(false, false);
}

static void test_owner_has_left(void **state) {
    (void)state;
    atomic_store(&peers[1].losses, 2);
    atomic_store(&pairs[1].state, REMO_CHANNEL_LEFT);
    assert_int_equal(remo__tx_check_owners(&commit), -EHOSTDOWN);
    assert_non_null(strstr(remo_last_error(), "node 1 has failed or closed space"));
    check_informed(true, false);
}

/* The owner has connected again, and may have locked an item since: it gets FINISH. */
static void test_owner_is_back(void **state) {
    (void)state;
    atomic_store(&peers[2].losses, 2);
    assert_int_equal(remo__tx_check_owners(&commit), -EHOSTDOWN);
    assert_non_null(strstr(remo_last_error(), "node 2 has failed or closed space"));
    check_informed(false, false);
}

/* The node has detected the failure of an owner, and the channel has not. */
static void test_owner_fails_now(void **state) {
    (void)state;
    atomic_store(&node_peers[1].state, REMO_PEER_DEAD);
    assert_int_equal(remo__tx_check_owners(&commit), -EHOSTDOWN);
    assert_non_null(strstr(remo_last_error(), "node 1 has failed or closed space"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_named_twice),
        cmocka_unit_test_setup(test_none_lost, lock_items),
        cmocka_unit_test_setup(test_owner_has_left, lock_items),
        cmocka_unit_test_setup(test_owner_is_back, lock_items),
        cmocka_unit_test_setup(test_owner_fails_now, lock_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
