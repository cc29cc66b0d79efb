/* common.c - the parts of a fabric that both simulated networks share (common.h).
 * No function here makes a step of a schedule or takes simulated time. */
#include "sim/network/common.h"

#include <string.h>

#include "base/bits.h"

#define PRIVATE_BYTES 64u /* the network has no memory of its own; offset 0 stays unused */

void sim_fabric_init(struct sim_fabric *fabric, const struct remo__fabric_ops *ops,
                     const struct remo__fabric_config *config, const struct remo__fabric_caps *caps) {
    struct sim_bell *bell = &sim_world->bells[config->rank];
    fabric->base = (struct remo__fabric){.ops = ops,
                                         .caps = *caps,
                                         .rank = config->rank,
                                         .size = config->size,
                                         .private_bytes = PRIVATE_BYTES,
                                         .peers = fabric->peers,
                                         .doorbell = &bell->bell,
                                         .log = config->log};
    sim_world->is_mapped = caps->mapped;
    bell->node = config->rank;
    bell->bell.sleepers = !caps->mapped;
}

uint32_t sim_take_completions(struct remo__completion *from, uint32_t *count, struct remo__completion *done,
                              uint32_t max) {
    uint32_t taken = (uint32_t)remo__min(max, *count);
    if (taken == 0)
        return 0;
    memcpy(done, from, taken * sizeof *done);
    *count -= taken;
    memmove(from, from + taken, *count * sizeof *from);
    return taken;
}

int sim_common_probe(const struct remo__fabric_config *config) {
    (void)config;
    return 0;
}

int sim_common_add_segment(struct remo__fabric *fabric, uint32_t index, uint64_t offset, uint64_t bytes,
                           int fd, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    (void)fabric, (void)index, (void)offset, (void)bytes, (void)fd, (void)blob, (void)blob_cap;
    *ret_blob_bytes = 0;
    return 0;
}

int sim_common_map_segment(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset,
                           uint64_t bytes, const void *blob, size_t blob_bytes, int fd) {
    (void)fabric, (void)peer, (void)index, (void)offset, (void)bytes, (void)blob, (void)blob_bytes, (void)fd;
    return 0;
}

int sim_common_describe(struct remo__fabric *fabric, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    (void)fabric, (void)blob, (void)blob_cap;
    *ret_blob_bytes = 0;
    return 0;
}

int sim_common_connect(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes) {
    (void)blob, (void)blob_bytes;
    atomic_store(&fabric->peers[peer].connected, 1);
    return 0;
}

/* The world declares nodes failed, not the fabric. */
bool sim_common_is_lost(struct remo__fabric *fabric, uint32_t peer) {
    (void)fabric, (void)peer;
    return false;
}

void sim_common_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns) {
    (void)endpoint, (void)timeout_ns;
}

/* The world executes operations. */
void sim_common_take_arrivals(struct remo__fabric *fabric, bool is_first) {
    (void)fabric, (void)is_first;
}

/* The library counts its operations itself. */
void sim_common_wire(struct remo__fabric *fabric, struct remo__fabric_wire *ret_wire) {
    (void)fabric;
    *ret_wire = (struct remo__fabric_wire){0};
}
