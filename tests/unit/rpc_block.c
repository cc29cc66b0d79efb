/* rpc_block.c - unit tests of the blocks of large calls: the limit of their bytes, and free blocks of other
 * sizes, which leave room if the limit is reached or the arena is full. The linker replaces the arena
 * (meson.build) by one that only counts its bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#include "objects/rpc/rpc.h"

#define MIB (UINT64_C(1) << 20)

static struct remo_node node;
static struct remo__rpc_transport *transport;
static uint64_t arena_max, arena_bytes; /* the arena has room for so many bytes, and these are in use */
static int full_rc;                     /* of an allocation without room */

int __wrap_remo__arena_alloc(struct remo__arena *arena, uint64_t bytes, uint64_t *ret_offset);
int __wrap_remo__arena_alloc(struct remo__arena *arena, uint64_t bytes, uint64_t *ret_offset) {
    (void)arena;
    if (arena_bytes + bytes > arena_max)
        return full_rc;
    arena_bytes += bytes;
    *ret_offset = arena_bytes;
    return 0;
}

void __wrap_remo__arena_free(struct remo__arena *arena, uint64_t offset, uint64_t bytes);
void __wrap_remo__arena_free(struct remo__arena *arena, uint64_t offset, uint64_t bytes) {
    (void)arena;
    (void)offset;
    assert_true(bytes <= arena_bytes);
    arena_bytes -= bytes;
}

static int open_blocks(void **state) {
    (void)state;
    transport = aligned_alloc(REMO__CACHE_LINE, remo__align_up(sizeof *transport, REMO__CACHE_LINE));
    if (!transport)
        return -1;
    memset(transport, 0, sizeof *transport);
    transport->node = &node;
    arena_max = UINT64_MAX;
    arena_bytes = 0;
    full_rc = -ENOSPC;
    return 0;
}

static int close_blocks(void **state) {
    (void)state;
    remo__rpc_blocks_free(transport);
    free(transport);
    return 0;
}

static struct remo__rpc_block *take(uint64_t bytes) {
    struct remo__rpc_block *block = NULL;
    assert_int_equal(remo__rpc_block_take(transport, bytes, &block), 0);
    assert_non_null(block);
    return block;
}

/* A block has the next power of two, and is used again. */
static void test_again(void **state) {
    (void)state;
    struct remo__rpc_block *block = take(5000);
    assert_int_equal(arena_bytes, 8192);
    remo__rpc_block_give(transport, block);
    assert_ptr_equal(take(8192), block);
    assert_int_equal(arena_bytes, 8192);
    remo__rpc_block_give(transport, block);
}

/* The limit is reached: only free blocks leave room. */
static void test_limit(void **state) {
    struct remo__rpc_block *blocks[REMO__RPC_BLOCKS_BYTES_MAX / MIB], *none = NULL;
    const uint32_t count = REMO__RPC_BLOCKS_BYTES_MAX / MIB;
    (void)state;
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = take(MIB);
    assert_int_equal(remo__rpc_block_take(transport, 64, &none), -ENOBUFS);
    remo__rpc_block_give(transport, blocks[0]);
    remo__rpc_block_give(transport, blocks[1]);
    remo__rpc_block_give(transport, take(2 * MIB));
    assert_int_equal(arena_bytes, REMO__RPC_BLOCKS_BYTES_MAX);
    for (uint32_t i = 2; i < count; i++)
        remo__rpc_block_give(transport, blocks[i]);
}

/* The arena is full, far below the limit: all free blocks return to it. Blocks in use stay. */
static void check_full(int rc) {
    struct remo__rpc_block *small[4], *used = take(MIB), *none = NULL;
    for (uint32_t i = 0; i < 4; i++)
        small[i] = take(MIB / 4);
    arena_max = arena_bytes;
    full_rc = rc;
    assert_int_equal(remo__rpc_block_take(transport, MIB, &none), rc);
    for (uint32_t i = 0; i < 4; i++)
        remo__rpc_block_give(transport, small[i]);
    struct remo__rpc_block *block = take(MIB);
    assert_int_equal(arena_bytes, 2 * MIB);
    assert_int_equal(transport->blocks_bytes, 2 * MIB);
    assert_int_equal(remo__rpc_block_take(transport, 64, &none), rc); /* nothing is left to give back */
    assert_int_equal(transport->blocks_bytes, 2 * MIB);
    remo__rpc_block_give(transport, used);
    remo__rpc_block_give(transport, block);
}

static void test_full(void **state) {
    (void)state;
    check_full(-ENOSPC);
}

static void test_no_memory(void **state) {
    (void)state;
    check_full(-ENOMEM);
}

/* A lost block is no part of the limit, and stays allocated. */
static void test_lost(void **state) {
    (void)state;
    remo__rpc_block_lose(transport, take(MIB));
    assert_int_equal(transport->blocks_bytes, 0);
    assert_int_equal(arena_bytes, MIB);
    remo__rpc_block_give(transport, take(MIB));
    assert_int_equal(arena_bytes, 2 * MIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_again, open_blocks, close_blocks),
        cmocka_unit_test_setup_teardown(test_limit, open_blocks, close_blocks),
        cmocka_unit_test_setup_teardown(test_full, open_blocks, close_blocks),
        cmocka_unit_test_setup_teardown(test_no_memory, open_blocks, close_blocks),
        cmocka_unit_test_setup_teardown(test_lost, open_blocks, close_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
