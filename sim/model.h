/* model.h - what things cost on the network whose time is simulated (timed.h): a list of parameters, each
 * with where its value comes from.
 *
 * Model:   every node has one network card, one link to one switch that is never the bottleneck, and a
 *          processor for each thread. A message costs a card that sends or receives it nic_message_ns, or
 *          nic_miss_ns and a PCIe round trip when the state of its connection is not in the card's cache
 *          (LRU); the link link_gbit_per_s each way; the way link_latency_ns. Cards move data over PCIe.
 *          Processors pay for touches of network memory, posts, looks while they wait and being woken;
 *          computing in between costs nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_model {
    uint64_t link_latency_ns, link_gbit_per_s, header_bytes;
    uint64_t nic_message_ns, nic_miss_ns, nic_cache_bytes, nic_connection_bytes, nic_atomic_ns, pcie_ns;
    uint64_t cpu_touch_ns, cpu_post_ns, cpu_look_ns, cpu_spin_ns, cpu_wake_ns, control_ns;
};

struct sim_parameter {
    const char *name, *source;
    size_t at; /* of its uint64_t in struct sim_model */
};

extern struct sim_model sim_model; /* the one in force */
extern const struct sim_parameter sim_parameters[];
extern const uint32_t sim_parameters_count;

uint64_t sim_model_get(const struct sim_parameter *parameter);
/* "name=value,name=value"; false: there is none of this name, or that is no number. */
bool sim_model_set(const char *text);
