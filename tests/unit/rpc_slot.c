/* rpc_slot.c - unit tests of the slots for replies: each depth has its own, also after slots were lost, and
 * no two calls in a slot have the same serial. */
#include <stdlib.h>

#include "unit.h"

#include "objects/rpc/rpc.h"

static struct remo_node node;
static struct remo__rpc_transport *transport;

static int open_slots(void **state) {
    (void)state;
    transport = aligned_alloc(REMO__CACHE_LINE, remo__align_up(sizeof *transport, REMO__CACHE_LINE));
    if (!transport)
        return -1;
    memset(transport, 0, sizeof *transport);
    transport->node = &node;
    transport->size = 1;
    remo__rpc_slots_init(transport);
    return 0;
}

static int close_slots(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_depths, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_lost, open_slots, close_slots),
        cmocka_unit_test_setup_teardown(test_serials, open_slots, close_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
