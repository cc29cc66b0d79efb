/* verbs.c - `remo doctor --verbs`: the attributes and limits of each RDMA device.
 * The report is meant to be sent back by users with hardware devices. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/doctor/doctor.h"
#include "fabric/verbs/library.h"

static const char *atomics_name(enum ibv_atomic_cap cap) {
    return cap == IBV_ATOMIC_GLOB ? "global" : cap == IBV_ATOMIC_HCA ? "the device's own" : "none";
}

static void say_port(struct doctor *doctor, struct ibv_context *context, const char *name, uint8_t number) {
    struct ibv_port_attr port;
    char subject[32];
    snprintf(subject, sizeof subject, "%.20s:%u", name, number);
    if (ibv_query_port(context, number, &port) != 0)
        return;
    doctor_say(doctor, port.state == IBV_PORT_ACTIVE ? DOCTOR_OK : DOCTOR_NOTE, subject, "",
               "%s, %s, MTU %u of %u, %d GIDs, messages to %u bytes", ibv_port_state_str(port.state),
               port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
               128u << port.active_mtu, 128u << port.max_mtu, port.gid_tbl_len, port.max_msg_sz);
}

static void say_device(struct doctor *doctor, struct ibv_context *context) {
    const char *name = ibv_get_device_name(context->device);
    struct ibv_device_attr_ex attr = {0};
    if (ibv_query_device_ex(context, NULL, &attr) != 0) {
        doctor_say(doctor, DOCTOR_BAD, name, "", "does not answer");
        return;
    }
    const struct ibv_device_attr *base = &attr.orig_attr;
    doctor_say(
        doctor, base->atomic_cap == IBV_ATOMIC_NONE ? DOCTOR_BAD : DOCTOR_OK, name, "",
        "vendor %#x part %u firmware %s; atomics: %s; queue pairs %d of %d sends, completions %d, shared "
        "receives %d, "
        "reads and atomics under way %d here and %d there, device memory %llu bytes, on-demand paging %s",
        base->vendor_id, base->vendor_part_id, base->fw_ver[0] ? base->fw_ver : "unknown",
        atomics_name(base->atomic_cap), base->max_qp, base->max_qp_wr, base->max_cqe, base->max_srq_wr,
        base->max_qp_init_rd_atom, base->max_qp_rd_atom, (unsigned long long)attr.max_dm_size,
        attr.odp_caps.general_caps & IBV_ODP_SUPPORT ? "offered, not used" : "none");
    for (uint8_t port = 1; port <= base->phys_port_cnt; port++)
        say_port(doctor, context, name, port);
}

/* Print the device that a node would use; the node itself reports it. */
static void say_choice(void *ctx, int level, const char *message) {
    static const char prefix[] = "fabric verbs uses ";
    const char *choice = strstr(message, prefix);
    (void)level;
    if (choice)
        doctor_say(ctx, DOCTOR_OK, "verbs uses",
                   "REMO_PROVIDER=device:port:gid:mtu=BYTES:timeout=MS chooses otherwise", "%s",
                   choice + sizeof prefix - 1);
}

void doctor_check_verbs(struct doctor *doctor) {
    int count = 0;
    if (remo__verbs_library_load() != 0) {
        doctor_say(doctor, DOCTOR_CHANGE, "verbs", "", "%s", remo_last_error());
        return;
    }
    struct ibv_device **devices = ibv_get_device_list(&count);
    for (int i = 0; devices && i < count; i++) {
        struct ibv_context *context = ibv_open_device(devices[i]);
        if (!context) {
            doctor_say(doctor, DOCTOR_BAD, ibv_get_device_name(devices[i]),
                       "ask for the rights to /dev/infiniband/uverbs*", "does not open");
            continue;
        }
        say_device(doctor, context);
        ibv_close_device(context);
    }
    if (devices)
        ibv_free_device_list(devices);
    if (count == 0)
        doctor_say(doctor, DOCTOR_NOTE, "verbs", "", "no RDMA device to report on");
    else if (doctor_probe("verbs", say_choice, doctor) != 0)
        doctor_say(doctor, DOCTOR_CHANGE, "verbs uses", "", "%s", remo_last_error());
}
