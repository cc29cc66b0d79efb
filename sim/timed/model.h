/* model.h - the costs of the simulated network with a clock (timed.h): parameters, each with its source.
 *
 * Model:   every node has one network card, one link to one switch that is never the bottleneck, and a
 *          processor per thread. A message occupies the sending or receiving card for nic_message_ns; if
 *          its connection is not in the card's cache (LRU), for nic_miss_ns and a PCIe round trip. It
 *          occupies the link at link_gbit_per_s each way, and travels for link_latency_ns. Cards move data
 *          over PCIe. Processors pay for lines of network memory, posts, polls while waiting, and
 *          wake-ups; computation in between is free. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_model {
    uint64_t link_latency_ns, link_gbit_per_s, header_bytes;
    uint64_t nic_message_ns, nic_miss_ns, nic_cache_bytes, nic_connection_bytes, nic_atomic_ns, nic_imm_ns,
        pcie_ns;
    uint64_t cpu_touch_ns, cpu_post_ns, cpu_look_ns, cpu_spin_ns, cpu_wake_ns, control_ns;
};

struct sim_parameter {
    const char *name, *source;
    size_t at; /* offset of its uint64_t in struct sim_model */
};

extern struct sim_model sim_model; /* the current one */
extern const struct sim_parameter sim_parameters[];
extern const uint32_t sim_parameters_count;

uint64_t sim_model_get(const struct sim_parameter *parameter);
/* Set parameters from "name=value,name=value". Returns false for an unknown name or a bad
 * number. */
bool sim_model_set(const char *text);
