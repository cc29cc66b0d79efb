/* rpc_slot.c - unit tests of the slots for replies: each depth has its own, also after slots were lost; no
 * two calls in a slot have the same serial; a slot and its block are free again after the late reply; slots
 * of leaf calls are counted; a poll checks only the slots that it needs; a malformed reply is detected. */
#include <stdlib.h>

#include "unit.h"

#include "objects/rpc/rpc.h"

#define NODES 3u

static struct remo__peer peers[NODES];
static struct remo_node node = {.size = NODES, .peers = peers};
static struct remo__channel_peer pairs[NODES];
static struct remo_channel channel = {.node = &node, .slot = 1, .peers = pairs};
static struct remo__memory memory;
static struct remo__rpc_peer rings[NODES];
static struct remo__rpc_transport *transport;

static int open_slots(void **state) {
    (void)state;
    transport = aligned_alloc(REMO__CACHE_LINE, remo__align_up(sizeof *transport, REMO__CACHE_LINE));
    if (!transport)
        return -1;
    memset(transport, 0, sizeof *transport);
    memset(rings, 0, sizeof rings);
    for (uint32_t i = 0; i < NODES; i++) {
        atomic_store(&peers[i].state, REMO_PEER_UP);
        atomic_store(&pairs[i].state, REMO_CHANNEL_CONNECTED);
    }
    transport->node = &node;
    transport->channel = &channel;
    transport->peers = rings;
    transport->mapped = true;
    transport->size = NODES;
    transport->slots = &memory;
    memory.own = calloc(REMO__RPC_SLOTS_TOTAL, REMO__RPC_SLOT_BYTES);
    remo__rpc_slots_init(transport);
    return memory.own ? 0 : -1;
}

static int close_slots(void **state) {
    (void)state;
    remo__rpc_blocks_free(transport);
    free(memory.own);
    free(transport);
    return 0;
}

/* Take all slots of a depth, lose them if `is_lost`, give them back otherwise, and return how many there
 * were. */
static uint32_t take_all(uint32_t depth, bool is_lost) {
    static uint32_t slots[REMO__RPC_SLOTS_TOTAL];
    uint32_t count = 0, serial, slot;
    while ((slot = remo__rpc_slot_take(transport, 0, depth, &serial)) != REMO__RPC_NO_SLOT) {
        assert_true(count < REMO__RPC_SLOTS_TOTAL && slot < REMO__RPC_SLOTS_TOTAL && serial != 0);
        slots[count++] = slot;
    }
    for (uint32_t i = 0; i < count; i++)
        if (is_lost)
            remo__rpc_slot_abandon(transport, slots[i], true);
        else
            remo__rpc_slot_return(transport, slots[i]);
    return count;
}

static uint32_t slots_of(uint32_t depth) {
    if (depth == REMO__RPC_LEAF_DEPTH)
        return REMO__RPC_LEAF_SLOTS;
    return depth > 1 ? REMO__RPC_SLOTS_OF_DEPTH
                     : REMO__RPC_SLOTS - (REMO_RPC_DEPTH_MAX - 1) * REMO__RPC_SLOTS_OF_DEPTH;
}

static void test_depths(void **state) {
    (void)state;
    for (uint32_t turn = 0; turn < 2; turn++)
        for (uint32_t depth = 1; depth <= REMO__RPC_DEPTHS; depth++)
            assert_int_equal(take_all(depth, false), slots_of(depth));
}

static void test_lost(void **state) {
    (void)state;
    for (uint32_t depth = 1; depth <= REMO_RPC_DEPTH_MAX; depth++)
        assert_int_equal(take_all(depth, true), slots_of(depth));
    for (uint32_t depth = 1; depth <= REMO_RPC_DEPTH_MAX; depth++)
        assert_int_equal(take_all(depth, false), slots_of(depth));
    assert_int_equal(take_all(2, true), slots_of(2)); /* no spare slot is left */
    assert_int_equal(take_all(2, false), 0);
}

static void test_serials(void **state) {
    uint32_t serial, last, slot;
    (void)state;
    slot = remo__rpc_slot_take(transport, 0, 3, &last);
    for (uint32_t turn = 0; turn < 3; turn++) {
        remo__rpc_slot_return(transport, slot);
        assert_int_equal(remo__rpc_slot_take(transport, 0, 3, &serial), slot);
        assert_int_equal(serial, last + 1);
        last = serial;
    }
    transport->slot[slot].serial = UINT32_MAX;
    remo__rpc_slot_return(transport, slot);
    assert_int_equal(remo__rpc_slot_take(transport, 0, 3, &serial), slot);
    assert_int_equal(serial, 1);
}

/* ---- leaf calls ---- */

static uint32_t take_leaf(uint32_t *ret_serial) {
    uint32_t slot = remo__rpc_slot_take(transport, 2, REMO__RPC_LEAF_DEPTH, ret_serial);
    assert_int_not_equal(slot, REMO__RPC_NO_SLOT);
    assert_int_equal(rings[2].leaf_slots, 1);
    return slot;
}

/* The count of a node has exactly the slots that a leaf call has, or whose reply is late. */
static void test_leaf(void **state) {
    uint32_t serial, slot;
    (void)state;
    remo__rpc_slot_return(transport, take_leaf(&serial));
    assert_int_equal(rings[2].leaf_slots, 0);
    remo__rpc_slot_give(transport, take_leaf(&serial), 0);
    assert_int_equal(rings[2].leaf_slots, 0);
    remo__rpc_slot_abandon(transport, take_leaf(&serial), true);
    assert_int_equal(rings[2].leaf_slots, 0);
    slot = take_leaf(&serial);
    remo__rpc_slot_abandon(transport, slot, false);
    remo__rpc_slots_reclaim(transport);
    assert_int_equal(rings[2].leaf_slots, 1);
    const uint64_t head = remo__rpc_reply_head(0, 0, REMO__RPC_REPLIED, 2, serial);
    memcpy(remo__rpc_slot_memory(transport, slot) + REMO__RPC_NOTES, &head, sizeof head);
    remo__rpc_slots_reclaim(transport);
    assert_int_equal(rings[2].leaf_slots, 0);
    assert_int_equal(take_all(REMO__RPC_LEAF_DEPTH, false), slots_of(REMO__RPC_LEAF_DEPTH));
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(rings[i].leaf_slots, 0);
}

/* A call to `node` at `depth` was cancelled, and its reply has arrived. */
static uint32_t make_replied(uint32_t to, uint32_t depth) {
    uint32_t serial, slot = remo__rpc_slot_take(transport, to, depth, &serial);
    assert_int_not_equal(slot, REMO__RPC_NO_SLOT);
    remo__rpc_slot_abandon(transport, slot, false);
    const uint64_t head = remo__rpc_reply_head(0, 0, REMO__RPC_REPLIED, to, serial);
    memcpy(remo__rpc_slot_memory(transport, slot) + REMO__RPC_NOTES, &head, sizeof head);
    return slot;
}

/* A poll that needs a slot for a call checks no slots of other nodes and depths, and no further slots after
 * those that are retired. Spare slots are checked too. */
static void test_reclaim_of(void **state) {
    (void)state;
    uint32_t serial, lost = remo__rpc_slot_take(transport, 0, REMO__RPC_LEAF_DEPTH, &serial);
    remo__rpc_slot_abandon(transport, lost, true); /* a spare slot replaces it, and is the next one */
    uint32_t slots[] = {make_replied(2, REMO__RPC_LEAF_DEPTH), make_replied(2, REMO__RPC_LEAF_DEPTH),
                        make_replied(1, REMO__RPC_LEAF_DEPTH), make_replied(2, 1)};
    assert_int_equal(slots[0], REMO__RPC_SLOTS + REMO__RPC_LEAF_SLOTS);
    atomic_fetch_sub(&rings[2].retired[REMO__RPC_LEAF_DEPTH - 1], 1);
    remo__rpc_slots_reclaim_of(transport, 2, REMO__RPC_LEAF_DEPTH);
    assert_int_equal(transport->slot[slots[0]].state, REMO__RPC_SLOT_RETIRED);
    assert_int_equal(transport->slot[slots[1]].state, REMO__RPC_SLOT_FREE);
    atomic_fetch_add(&rings[2].retired[REMO__RPC_LEAF_DEPTH - 1], 1);
    remo__rpc_slots_reclaim_of(transport, 2, REMO__RPC_LEAF_DEPTH);
    assert_int_equal(transport->slot[slots[0]].state, REMO__RPC_SLOT_FREE);
    for (uint32_t i = 2; i < 4; i++)
        assert_int_equal(transport->slot[slots[i]].state, REMO__RPC_SLOT_RETIRED);
    remo__rpc_slots_reclaim_of(transport, 1, REMO__RPC_LEAF_DEPTH);
    remo__rpc_slots_reclaim_of(transport, 2, 1);
    assert_int_equal(transport->retired_count, 0);
}

static void test_malformed(void **state) {
    (void)state;
    uint32_t serial, slot = remo__rpc_slot_take(transport, 1, 1, &serial);
    uint64_t head = remo__rpc_reply_head(REMO__RPC_DATA_MAX + 1, 0, REMO__RPC_REPLIED, 1, serial - 1);
    struct remo__rpc_reply reply;
    memcpy(remo__rpc_slot_memory(transport, slot) + REMO__RPC_NOTES, &head, sizeof head);
    assert_false(remo__rpc_slot_is_malformed(transport, slot)); /* of an earlier call */
    head = remo__rpc_reply_head(REMO__RPC_DATA_MAX + 1, 0, REMO__RPC_REPLIED, 1, serial);
    memcpy(remo__rpc_slot_memory(transport, slot) + REMO__RPC_NOTES, &head, sizeof head);
    assert_true(remo__rpc_slot_is_malformed(transport, slot));
    assert_false(remo__rpc_slot_probe(transport, slot, NULL, &reply));
    head = remo__rpc_reply_head(REMO__RPC_DATA_MAX, 0, REMO__RPC_REPLIED, 1, serial);
    memcpy(remo__rpc_slot_memory(transport, slot) + REMO__RPC_NOTES, &head, sizeof head);
    assert_false(remo__rpc_slot_is_malformed(transport, slot));
    assert_true(remo__rpc_slot_probe(transport, slot, NULL, &reply));
}

/* ---- late replies ---- */

/* A call to node 1 with a block has timed out. */
struct late {
    uint32_t slot, serial;
    struct remo__rpc_block *block;
};

static struct late make_late(void) {
    struct late late = {.block = calloc(1, sizeof *late.block)};
    assert_non_null(late.block);
    late.slot = remo__rpc_slot_take(transport, 1, 1, &late.serial);
    assert_int_not_equal(late.slot, REMO__RPC_NO_SLOT);
    transport->blocks_bytes = REMO__RPC_BLOCK_BYTES_MIN;
    transport->slot[late.slot].block = late.block;
    remo__rpc_slot_abandon(transport, late.slot, false);
    remo__rpc_slots_reclaim(transport);
    assert_int_equal(transport->slot[late.slot].state, REMO__RPC_SLOT_RETIRED);
    assert_ptr_equal(transport->slot[late.slot].block, late.block);
    assert_int_equal(transport->retired_count, 1);
    return late;
}

/* The reply to the call arrives, which was forwarded `hops` times. */
static void reply(const struct late *late, uint32_t hops) {
    const uint64_t head = remo__rpc_reply_head(0, hops, REMO__RPC_REPLIED, 1, late->serial);
    memcpy(remo__rpc_slot_memory(transport, late->slot) + REMO__RPC_NOTES, &head, sizeof head);
    remo__rpc_slots_reclaim(transport);
}

/* The note arrives that node 1 has forwarded the call to node 2. */
static void note(const struct late *late) {
    const uint64_t word = (uint64_t)late->serial << 32 | 2;
    memcpy(remo__rpc_slot_memory(transport, late->slot), &word, sizeof word);
    remo__rpc_slots_reclaim(transport);
}

static void fail_node_1(void) {
    atomic_store(&pairs[1].state, REMO_CHANNEL_DOWN);
    atomic_store(&transport->has_departures, true);
}

static void check_is_free(const struct late *late) {
    assert_null(transport->slot[late->slot].block);
    assert_ptr_equal(transport->free_blocks[0], late->block);
    assert_int_equal(transport->blocks_bytes, REMO__RPC_BLOCK_BYTES_MIN);
}

static void test_late(void **state) {
    (void)state;
    const struct late late = make_late();
    reply(&late, 0);
    check_is_free(&late);
    assert_int_equal(transport->slot[late.slot].state, REMO__RPC_SLOT_FREE);
    assert_int_equal(transport->retired_count, 0);
    assert_int_equal(take_all(1, false), slots_of(1));
}

/* The reply proves that no node uses the block any more. A note may still be written into the slot. */
static void test_late_note(void **state) {
    (void)state;
    const struct late late = make_late();
    reply(&late, 1);
    check_is_free(&late);
    assert_int_equal(transport->slot[late.slot].state, REMO__RPC_SLOT_RETIRED);
    note(&late);
    check_is_free(&late);
    assert_int_equal(transport->slot[late.slot].state, REMO__RPC_SLOT_FREE);
    assert_int_equal(take_all(1, false), slots_of(1));
}

/* After the reply, a node that owes a note fails: the slot is lost, the block is not. */
static void test_late_failure(void **state) {
    (void)state;
    const struct late late = make_late();
    reply(&late, 1);
    fail_node_1();
    remo__rpc_slots_reclaim(transport);
    check_is_free(&late);
    assert_int_equal(transport->slot[late.slot].state, REMO__RPC_SLOT_LOST);
    assert_int_equal(transport->retired_count, 0);
}

/* Reply and failure are found together. */
static void test_late_both(void **state) {
    (void)state;
    const struct late late = make_late();
    fail_node_1();
    reply(&late, 1);
    check_is_free(&late);
    assert_int_equal(transport->slot[late.slot].state, REMO__RPC_SLOT_LOST);
}

/* The node that has the request fails: slot and block are lost. */
static void test_late_lost(void **state) {
    (void)state;
    const struct late late = make_late();
    fail_node_1();
    remo__rpc_slots_reclaim(transport);
    assert_null(transport->slot[late.slot].block);
    assert_null(transport->free_blocks[0]);
    assert_int_equal(transport->blocks_bytes, 0);
    assert_int_equal(transport->slot[late.slot].state, REMO__RPC_SLOT_LOST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_depths, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_lost, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_serials, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_leaf, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_reclaim_of, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_malformed, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_late, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_late_note, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_late_failure, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_late_both, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_late_lost, open_slots, close_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
