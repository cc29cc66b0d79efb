/* address.c - implements the operations by address of remo/node.h. An operation begins only when the address
 * is known to lie in a segment that the peer has announced. */
#include <errno.h>

#include "node/arena.h"
#include "remote/op.h"
#include "remote/wait.h"

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

/* Check the address of `bytes` bytes and of their local buffer, and find the calling thread. */
static inline __attribute__((always_inline)) int find(struct remo_node *node, struct remo_addr addr,
                                                      const void *local, size_t bytes,
                                                      struct remo__ref *ret_ref) {
    int rc = check_address(node, addr, local, bytes);
    if (remo__unlikely(rc != 0))
        return rc;
    struct remo__thread *thread = remo__thread(node);
    if (remo__unlikely(!thread))
        return remo__last_code();
    *ret_ref = remo__ref_make(thread, &thread->stats[0], remo_addr_node(addr), remo_addr_offset(addr));
    return 0;
}

int remo__address_find(struct remo_node *node, struct remo_addr addr, size_t bytes,
                       struct remo__ref *ret_ref) {
    return find(node, addr, node, bytes, ret_ref); /* any buffer */
}

static inline __attribute__((always_inline)) int find_word(struct remo_node *node, struct remo_addr addr,
                                                           struct remo__ref *ret_ref) {
    if (remo__unlikely(addr.word % 8 != 0))
        return remo__fail(-EINVAL, "cannot execute an atomic at 0x%llx: its address must be a multiple of 8",
                          (unsigned long long)addr.word);
    return find(node, addr, node, 8, ret_ref);
}

int remo_read(struct remo_node *node, struct remo_addr addr, void *dst, size_t size_bytes,
              struct remo_ack *ack) {
    REMO__REQUIRE(node);
    struct remo__ref ref = {0};
    int rc = find(node, addr, dst, size_bytes, &ref);
    return rc != 0 ? rc : remo__read(ref, dst, size_bytes, ack);
}

int remo_write(struct remo_node *node, struct remo_addr addr, const void *src, size_t size_bytes,
               struct remo_ack *ack) {
    REMO__REQUIRE(node);
    struct remo__ref ref = {0};
    int rc = find(node, addr, src, size_bytes, &ref);
    return rc != 0 ? rc : remo__write(ref, src, size_bytes, 0, ack);
}

int remo_fetch_add(struct remo_node *node, struct remo_addr addr, uint64_t addend, uint64_t *ret_old,
                   struct remo_ack *ack) {
    REMO__REQUIRE(node);
    struct remo__ref ref = {0};
    int rc = find_word(node, addr, &ref);
    return rc != 0 ? rc : remo__fetch_add(ref, addend, ret_old, ack);
}

int remo_compare_swap(struct remo_node *node, struct remo_addr addr, uint64_t expected, uint64_t desired,
                      uint64_t *ret_old, struct remo_ack *ack) {
    REMO__REQUIRE(node);
    struct remo__ref ref = {0};
    int rc = find_word(node, addr, &ref);
    return rc != 0 ? rc : remo__compare_swap(ref, expected, desired, ret_old, ack);
}
