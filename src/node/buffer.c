/* buffer.c - implements buffers (LOCO's mem_refs, A.2) and operations by address of remo/node.h.
 *
 * A buffer belongs to a thread, so taking and returning it needs no lock. An operation by address begins only
 * when the address is known to lie in a segment that the peer has announced. */
#include <errno.h>

#include "node/arena.h"
#include "node/op.h"
#include "node/wait.h"

int remo_buffer_get(struct remo_node *node, void **ret_buffer) {
    REMO__REQUIRE(node);
    REMO__REQUIRE(ret_buffer);
    struct remo__thread *thread = remo__thread(node);
    if (!thread)
        return remo__last_code();
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
        return remo__fail_static(-ENOBUFS,
                                 "all buffers of this thread are in use; return some with remo_buffer_put");
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
                  "cannot return buffer %p: it is not a buffer of this thread; return it in the thread that "
                  "took it",
                  buffer);
    else
        thread->buffers_free |= 1u << at / REMO_BUFFER_BYTES;
}

/* ---- operations by address ---- */

struct reach {
    struct remo_node *node;
    uint32_t peer;
    uint64_t end;
};

/* A wait condition: the peer has announced its arena up to `end`. */
static int is_announced(void *ctx) {
    const struct reach *reach = ctx;
    if (!remo__peer_is_up(reach->node, reach->peer))
        return remo__peer_fail(reach->node, reach->peer, "access memory of");
    return atomic_load_explicit(&reach->node->peers[reach->peer].mapped_bytes, memory_order_acquire)
           >= reach->end;
}

/* Check the address, and wait until its segment is announced: the address may arrive through a third node
 * earlier than the announcement. The start of an arena belongs to the fabric. */
static int check_address(struct remo_node *node, struct remo_addr addr, const void *local, size_t bytes) {
    struct reach reach = {.node = node, .peer = remo_addr_node(addr)};
    uint64_t offset = remo_addr_offset(addr);
    if (!local && bytes > 0)
        return remo__fail(-EINVAL, "cannot move %zu bytes: the buffer is NULL", bytes);
    if (addr.word == 0 || reach.peer >= node->size)
        return remo__fail(-EFAULT, "0x%llx is not an address in this job", (unsigned long long)addr.word);
    uint32_t incarnation =
        atomic_load(&node->peers[reach.peer].incarnation) & ((1u << REMO_ADDR_INCARNATION_BITS) - 1);
    if (remo_addr_incarnation(addr) != incarnation)
        return remo__fail(
            -ESTALE, "the address is stale: it has incarnation %u of node %u, whose incarnation is now %u",
            remo_addr_incarnation(addr), reach.peer, incarnation);
    uint64_t reserved = remo__arena_reserved(node->arena);
    if (bytes > reserved || offset > reserved - bytes || offset < remo__arena_first(node->arena))
        return remo__fail(-EFAULT, "offset %llu and %zu bytes are outside the arena of node %u",
                          (unsigned long long)offset, bytes, reach.peer);
    reach.end = offset + bytes;
    if (remo__likely(is_announced(&reach) == 1))
        return 0;
    int rc = remo__wait(node, is_announced, &reach, remo__deadline(node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(-EFAULT, "node %u has not announced memory at offset %llu within op_timeout_ns",
                          reach.peer, (unsigned long long)offset);
    return rc;
}

int remo_read(struct remo_node *node, struct remo_addr addr, void *dst, size_t size_bytes,
              struct remo_ack *ack) {
    REMO__REQUIRE(node);
    int rc = check_address(node, addr, dst, size_bytes);
    struct remo__thread *thread = rc == 0 ? remo__thread(node) : NULL;
    if (!thread)
        return rc ? rc : remo__last_code();
    return remo__read(thread, &thread->stats[0], remo_addr_node(addr), remo_addr_offset(addr), dst,
                      size_bytes, ack);
}

int remo_write(struct remo_node *node, struct remo_addr addr, const void *src, size_t size_bytes,
               struct remo_ack *ack) {
    REMO__REQUIRE(node);
    int rc = check_address(node, addr, src, size_bytes);
    struct remo__thread *thread = rc == 0 ? remo__thread(node) : NULL;
    if (!thread)
        return rc ? rc : remo__last_code();
    return remo__write(thread, &thread->stats[0], remo_addr_node(addr), remo_addr_offset(addr), src,
                       size_bytes, 0, ack);
}
