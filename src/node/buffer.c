/* buffer.c - per-thread blocks of the arena (LOCO's mem_refs), and operations by address. */
#include <errno.h>

#include "node/arena.h"
#include "node/op.h"
#include "node/wait.h"

int remo_buffer_get(struct remo_node *node, void **ret_buffer) {
    REMO__REQUIRE(node);
    REMO__REQUIRE(ret_buffer);
    struct remo__thread *thread = remo__thread(node);
    if (!thread)
        return -EAGAIN;
    if (remo__unlikely(!thread->buffers)) {
        uint64_t offset;
        int rc =
            remo__arena_alloc(node->arena, (uint64_t)REMO_BUFFERS_PER_THREAD * REMO_BUFFER_BYTES, &offset);
        if (rc != 0)
            return rc;
        thread->buffers = remo__arena_base(node->arena) + offset;
        thread->buffers_free = UINT32_MAX;
    }
    if (remo__unlikely(thread->buffers_free == 0))
        return remo__fail_static(
            -ENOBUFS, "all buffers of this thread are in use; give some back with remo_buffer_put");
    uint32_t index = (uint32_t)__builtin_ctz(thread->buffers_free);
    thread->buffers_free &= thread->buffers_free - 1;
    *ret_buffer = thread->buffers + (uint64_t)index * REMO_BUFFER_BYTES;
    return 0;
}

void remo_buffer_put(struct remo_node *node, void *buffer) {
    struct remo__thread *thread = node ? remo__thread(node) : NULL;
    if (!buffer || !thread)
        return;
    uint64_t at = (uint64_t)((uintptr_t)buffer - (uintptr_t)thread->buffers);
    if (!thread->buffers || at >= (uint64_t)REMO_BUFFERS_PER_THREAD * REMO_BUFFER_BYTES
        || at % REMO_BUFFER_BYTES != 0)
        remo__log(&node->log, REMO_LOG_ERROR,
                  "%p is no buffer of this thread: give a buffer back in the thread that got it", buffer);
    else
        thread->buffers_free |= 1u << at / REMO_BUFFER_BYTES;
}

/* ---- by address ---- */

struct reach {
    struct remo_node *node;
    uint32_t peer;
    uint64_t end;
};

static int mapped_far_enough(void *ctx) {
    const struct reach *reach = ctx;
    if (!remo__peer_alive(reach->node, reach->peer))
        return remo__peer_fail(reach->node, reach->peer, "reach memory of");
    return atomic_load_explicit(&reach->node->peers[reach->peer].mapped_bytes, memory_order_acquire)
           >= reach->end;
}

/* The start of an arena is the fabric's own. An address may reach us by way of a third node before its
 * owner's announcement of the segment does: wait for that. */
static int check_address(struct remo_node *node, struct remo_addr addr, const void *local, size_t bytes) {
    struct reach reach = {.node = node, .peer = remo_addr_node(addr)};
    uint64_t offset = remo_addr_offset(addr);
    if (!local && bytes > 0)
        return remo__fail(-EINVAL, "%zu bytes from or to NULL: give the buffer", bytes);
    if (addr.word == 0 || reach.peer >= node->size)
        return remo__fail(-EFAULT, "0x%llx is no address of a node of this job",
                          (unsigned long long)addr.word);
    uint32_t life =
        atomic_load(&node->peers[reach.peer].incarnation) & ((1u << REMO_ADDR_INCARNATION_BITS) - 1);
    if (remo_addr_incarnation(addr) != life)
        return remo__fail(-ESTALE, "the address belongs to life %u of node %u, which is in life %u now",
                          remo_addr_incarnation(addr), reach.peer, life);
    uint64_t reserved = remo__arena_reserved(node->arena);
    if (bytes > reserved || offset > reserved - bytes || offset < remo__arena_first(node->arena))
        return remo__fail(-EFAULT, "offset %llu and %zu bytes are outside the arena of node %u",
                          (unsigned long long)offset, bytes, reach.peer);
    reach.end = offset + bytes;
    if (remo__likely(mapped_far_enough(&reach) == 1))
        return 0;
    int rc = remo__wait(node, mapped_far_enough, &reach, remo__deadline(node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(
            -EFAULT, "node %u has no memory at offset %llu, and has not announced any within op_timeout_ns",
            reach.peer, (unsigned long long)offset);
    return rc;
}

int remo_read(struct remo_node *node, struct remo_addr addr, void *dst, size_t size_bytes,
              struct remo_ack *ack) {
    REMO__REQUIRE(node);
    int rc = check_address(node, addr, dst, size_bytes);
    struct remo__thread *thread = rc == 0 ? remo__thread(node) : NULL;
    if (!thread)
        return rc ? rc : -EAGAIN;
    return remo__read(thread, &thread->stats[0], remo_addr_node(addr), remo_addr_offset(addr), dst,
                      size_bytes, ack);
}

int remo_write(struct remo_node *node, struct remo_addr addr, const void *src, size_t size_bytes,
               struct remo_ack *ack) {
    REMO__REQUIRE(node);
    int rc = check_address(node, addr, src, size_bytes);
    struct remo__thread *thread = rc == 0 ? remo__thread(node) : NULL;
    if (!thread)
        return rc ? rc : -EAGAIN;
    return remo__write(thread, &thread->stats[0], remo_addr_node(addr), remo_addr_offset(addr), src,
                       size_bytes, 0, ack);
}
