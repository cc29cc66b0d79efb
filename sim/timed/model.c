/* model.c - the parameters of model.h and their defaults.
 * Each default names its source, or is marked as assumed. */
#include "sim/timed/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sim_model sim_model = {.link_latency_ns = 385,
                              .link_gbit_per_s = 100,
                              .header_bytes = 42,
                              .nic_message_ns = 25,
                              .nic_miss_ns = 100,
                              .nic_cache_bytes = 1000000,
                              .nic_connection_bytes = 375,
                              .nic_atomic_ns = 350,
                              .nic_imm_ns = 10,
                              .pcie_ns = 350,
                              .cpu_touch_ns = 35,
                              .cpu_post_ns = 100,
                              .cpu_look_ns = 50,
                              .cpu_spin_ns = 20000,
                              .cpu_wake_ns = 3000,
                              .control_ns = 20000};

#define PARAMETER(name_, source_) \
    { .name = #name_, .source = (source_), .at = offsetof(struct sim_model, name_) }

const struct sim_parameter sim_parameters[] = {
    PARAMETER(link_latency_ns,
              "one way; so that an idle 128-byte read takes 1.8 us (Storm, table 5, ConnectX-4 InfiniBand)"),
    PARAMETER(link_gbit_per_s, "InfiniBand EDR (Storm, section 6)"),
    PARAMETER(header_bytes, "of each message: LRH, BTH, RETH and CRCs of InfiniBand"),
    PARAMETER(nic_message_ns,
              "40 M messages/s each way (Storm 3.3, ConnectX-5, 40 M reads/s without contention)"),
    PARAMETER(nic_miss_ns, "10 M messages/s when no connection is cached (Storm 3.3, ConnectX-5)"),
    PARAMETER(nic_cache_bytes,
              "of 2 MB (Storm 3.3, ConnectX-4 and 5), for connections; fitted to Storm's figure 7, 96 nodes "
              "with 20 threads"),
    PARAMETER(nic_connection_bytes, "375 B of a reliable connection (Storm 3.3)"),
    PARAMETER(nic_atomic_ns, "assumed: one atomic at a time in a card, each a PCIe round trip"),
    PARAMETER(nic_imm_ns, "assumed: of an immediate at the receiving card, in addition"),
    PARAMETER(pcie_ns, "a PCIe round trip, 300 to 400 ns unloaded (Storm 3.1); a posted write: half of it; "
                       "before an immediate the card reads a receive from memory"),
    PARAMETER(cpu_touch_ns,
              "an access to a line of network memory; fitted to Storm's figure 4, perfect over calls only on "
              "32 nodes"),
    PARAMETER(cpu_post_ns, "assumed: a post, that is, writing requests and the doorbell"),
    PARAMETER(cpu_look_ns, "assumed: until a waiting thread detects a change"),
    PARAMETER(cpu_spin_ns, "Remo: a thread that waited for longer sleeps"),
    PARAMETER(cpu_wake_ns, "assumed: interrupt and wake-up of a sleeping thread"),
    PARAMETER(control_ns, "assumed: a frame of the control plane, over TCP"),
};
const uint32_t sim_parameters_count = sizeof sim_parameters / sizeof sim_parameters[0];

static uint64_t *value_of(const struct sim_parameter *parameter) {
    return (uint64_t *)((char *)&sim_model + parameter->at);
}

uint64_t sim_model_get(const struct sim_parameter *parameter) {
    return *value_of(parameter);
}

static bool set_one(const char *text, size_t length) {
    const char *sign = memchr(text, '=', length);
    if (!sign)
        return false;
    for (uint32_t i = 0; i < sim_parameters_count; i++) {
        const struct sim_parameter *parameter = &sim_parameters[i];
        if (strlen(parameter->name) != (size_t)(sign - text)
            || strncmp(parameter->name, text, (size_t)(sign - text)) != 0)
            continue;
        char *end;
        errno = 0;
        unsigned long long value = strtoull(sign + 1, &end, 10);
        if (errno || end == sign + 1 || end != text + length || sign[1] == '-')
            return false;
        *value_of(parameter) = value;
        return true;
    }
    return false;
}

bool sim_model_set(const char *text) {
    while (*text) {
        size_t length = strcspn(text, ",");
        if (!set_one(text, length))
            return false;
        text += length + (text[length] == ',');
    }
    return sim_model.link_gbit_per_s > 0;
}
