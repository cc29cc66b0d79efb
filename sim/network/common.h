/* common.h - the parts of a fabric that both simulated networks share.
 *
 * All nodes share one process, so every arena is already mapped: segments and peers need no description.
 * Waits end at once, since the caller waits for a change of the world. */
#pragma once

#include "fabric/fabric.h"
#include "sim/world/world.h"

/* The first member of each simulated fabric. */
struct sim_fabric {
    struct remo__fabric base;
    struct remo__fabric_peer peers[SIM_NODES_MAX];
};

/* Initialize the public part of a zeroed fabric. */
void sim_fabric_init(struct sim_fabric *fabric, const struct remo__fabric_ops *ops,
                     const struct remo__fabric_config *config, const struct remo__fabric_caps *caps);
/* Move at most `max` completions from the array `from`, which has *count, to `done`. Returns their number. */
uint32_t sim_take_completions(struct remo__completion *from, uint32_t *count, struct remo__completion *done,
                              uint32_t max);

/* Entries of struct remo__fabric_ops. */
int sim_common_probe(const struct remo__fabric_config *config);
int sim_common_add_segment(struct remo__fabric *fabric, uint32_t index, uint64_t offset, uint64_t bytes,
                           int fd, void *blob, size_t blob_cap, size_t *ret_blob_bytes);
int sim_common_map_segment(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset,
                           uint64_t bytes, const void *blob, size_t blob_bytes, int fd);
int sim_common_describe(struct remo__fabric *fabric, void *blob, size_t blob_cap, size_t *ret_blob_bytes);
int sim_common_connect(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes);
bool sim_common_is_lost(struct remo__fabric *fabric, uint32_t peer);
void sim_common_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns);
void sim_common_take_arrivals(struct remo__fabric *fabric, bool is_first);
void sim_common_wire(struct remo__fabric *fabric, struct remo__fabric_wire *ret_wire);
