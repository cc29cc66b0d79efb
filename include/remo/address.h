/* address.h - one address for every byte of network memory.
 *
 * Model:   64 bits: node (10), incarnation of that node (10), offset in its arena (44). An address
 *          fits one atomic word, so it can be stored in network memory and changed by
 *          compare-and-swap. 0 is the null address. After a restart of its node, an old address
 *          carries the earlier incarnation and is refused with -ESTALE.
 */
#pragma once

#include <remo/error.h>

REMO_BEGIN

#define REMO_ADDR_OFFSET_BITS 44
#define REMO_ADDR_INCARNATION_BITS 10

struct remo_addr {
    uint64_t word;
};

static inline struct remo_addr remo_addr_make(uint32_t node, uint32_t incarnation, uint64_t offset) {
    struct remo_addr addr;
    addr.word = (uint64_t)node << (REMO_ADDR_OFFSET_BITS + REMO_ADDR_INCARNATION_BITS)
                | (uint64_t)(incarnation & ((1u << REMO_ADDR_INCARNATION_BITS) - 1)) << REMO_ADDR_OFFSET_BITS
                | (offset & ((1ull << REMO_ADDR_OFFSET_BITS) - 1));
    return addr;
}

static inline uint32_t remo_addr_node(struct remo_addr addr) {
    return (uint32_t)(addr.word >> (REMO_ADDR_OFFSET_BITS + REMO_ADDR_INCARNATION_BITS));
}

static inline uint32_t remo_addr_incarnation(struct remo_addr addr) {
    return (uint32_t)(addr.word >> REMO_ADDR_OFFSET_BITS) & ((1u << REMO_ADDR_INCARNATION_BITS) - 1);
}

static inline uint64_t remo_addr_offset(struct remo_addr addr) {
    return addr.word & ((1ull << REMO_ADDR_OFFSET_BITS) - 1);
}

REMO_END
