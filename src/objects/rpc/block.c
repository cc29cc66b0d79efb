/* block.c - blocks of this node's network memory, for its calls with a large request or a large reply.
 * Invariant: a block is free, or belongs to a call that has not been sent, or to the slot of a call that was
 * sent. The block of a lost slot is never used again. docs/internals/rpc.md, "Large requests and replies". */
#include <stdlib.h>

#include "objects/rpc/rpc.h"

static uint32_t class_of(uint64_t bytes) {
    uint32_t class = 0;
    while (REMO__RPC_BLOCK_BYTES_MIN << class < bytes)
        class ++;
    return class;
}

static uint64_t bytes_of(uint32_t class) {
    return REMO__RPC_BLOCK_BYTES_MIN << class;
}

/* ---- free blocks, by class; blocks_mutex is held ---- */

static struct remo__rpc_block *pop(struct remo__rpc_transport *transport, uint32_t class) {
    struct remo__rpc_block *block = transport->free_blocks[class];
    if (block)
        transport->free_blocks[class] = block->next;
    return block;
}

static void push(struct remo__rpc_transport *transport, struct remo__rpc_block *block) {
    block->next = transport->free_blocks[block->class];
    transport->free_blocks[block->class] = block;
}

/* Give free blocks back to the arena until all blocks have at most `bytes` bytes. */
static void trim(struct remo__rpc_transport *transport, uint64_t bytes) {
    struct remo__rpc_block *block;
    for (uint32_t class = 0; class < REMO__RPC_BLOCK_CLASSES; class ++)
        while (transport->blocks_bytes > bytes && (block = pop(transport, class)) != NULL) {
            transport->blocks_bytes -= bytes_of(class);
            remo__arena_free(transport->node->arena, block->offset, bytes_of(class));
            free(block);
        }
}

/* Return whether there is room for another block, after free blocks were given back for it. */
static bool make_room(struct remo__rpc_transport *transport, uint32_t class) {
    trim(transport, REMO__RPC_BLOCKS_BYTES_MAX - bytes_of(class));
    return transport->blocks_bytes + bytes_of(class) <= REMO__RPC_BLOCKS_BYTES_MAX;
}

static void trim_all(struct remo__rpc_transport *transport) {
    remo__rpc_lock(transport, &transport->blocks_mutex);
    trim(transport, 0);
    remo__rpc_unlock(transport, &transport->blocks_mutex);
}

/* ---- blocks ---- */

/* Take a free block, or reserve room for a new one: then *ret_block is NULL. */
static int take_or_reserve(struct remo__rpc_transport *transport, uint32_t class,
                           struct remo__rpc_block **ret_block) {
    bool has_room = true;
    remo__rpc_lock(transport, &transport->blocks_mutex);
    *ret_block = pop(transport, class);
    if (!*ret_block && (has_room = make_room(transport, class)))
        transport->blocks_bytes += bytes_of(class);
    remo__rpc_unlock(transport, &transport->blocks_mutex);
    if (has_room)
        return 0;
    return remo__fail(-ENOBUFS,
                      "no block of %llu bytes for a large call: the blocks of this node's large calls have "
                      "%llu bytes in total; end some of these calls, or name places of your own",
                      (unsigned long long)bytes_of(class), (unsigned long long)REMO__RPC_BLOCKS_BYTES_MAX);
}

static int allocate(struct remo__rpc_transport *transport, uint32_t class,
                    struct remo__rpc_block **ret_block) {
    struct remo__rpc_block *block = malloc(sizeof *block);
    if (!block)
        return remo__fail(-ENOMEM, "no memory for a large call");
    block->class = class;
    int rc = remo__arena_alloc(transport->node->arena, bytes_of(class), &block->offset);
    if (rc != 0) {
        free(block);
        return rc;
    }
    *ret_block = block;
    return 0;
}

int remo__rpc_block_take(struct remo__rpc_transport *transport, uint64_t bytes,
                         struct remo__rpc_block **ret_block) {
    uint32_t class = class_of(bytes);
    int rc = take_or_reserve(transport, class, ret_block);
    if (rc != 0 || *ret_block)
        return rc;
    rc = allocate(transport, class, ret_block);
    if (rc == -ENOSPC || rc == -ENOMEM) { /* free blocks of other classes may have taken the arena */
        trim_all(transport);
        rc = allocate(transport, class, ret_block);
    }
    if (rc == 0)
        return 0;
    remo__rpc_lock(transport, &transport->blocks_mutex);
    transport->blocks_bytes -= bytes_of(class);
    remo__rpc_unlock(transport, &transport->blocks_mutex);
    return rc;
}

void remo__rpc_block_give(struct remo__rpc_transport *transport, struct remo__rpc_block *block) {
    remo__rpc_lock(transport, &transport->blocks_mutex);
    push(transport, block);
    remo__rpc_unlock(transport, &transport->blocks_mutex);
}

void remo__rpc_block_lose(struct remo__rpc_transport *transport, struct remo__rpc_block *block) {
    remo__rpc_lock(transport, &transport->blocks_mutex);
    transport->blocks_bytes -= bytes_of(block->class);
    remo__rpc_unlock(transport, &transport->blocks_mutex);
    free(block); /* its memory stays allocated until the node closes */
}

/* No call is in flight any more, but some may be late. The arena closes after the transport. */
void remo__rpc_blocks_free(struct remo__rpc_transport *transport) {
    struct remo__rpc_block *block;
    for (uint32_t class = 0; class < REMO__RPC_BLOCK_CLASSES; class ++)
        while ((block = pop(transport, class)) != NULL)
            free(block);
    for (uint32_t slot = 0; slot < REMO__RPC_SLOTS_TOTAL; slot++)
        free(transport->slot[slot].block);
}
