/* device.c - finds the RDMA device, and determines its limits.
 *
 * A device is acceptable only if it supports every operation of objects; the sentence of a rejection names
 * the missing feature and an alternative. verbs.h describes the settings. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/verbs/verbs.h"

#define CM_DEVICE "/dev/infiniband/rdma_cm"
#define OPTIONS_BYTES_MAX 192u

#define SOFTWARE_VENDOR 0xffffffu /* the vendor id of Soft-RoCE */

static int number(const char *text, uint32_t min, uint32_t max, uint32_t *ret_value) {
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < min || value > max)
        return -EINVAL;
    *ret_value = (uint32_t)value;
    return 0;
}

/* Parse one field. `place` counts the positional fields. */
static int option_parse(struct verbs_options *options, const char *field, uint32_t *place) {
    uint32_t gid_index = 0;
    if (strcmp(field, "odp") == 0 && *place > 0) {
        options->paging = true;
        return 0;
    }
    if (strncmp(field, "mtu=", 4) == 0)
        return number(field + 4, 256, 4096, &options->mtu_bytes)
                       || (options->mtu_bytes & (options->mtu_bytes - 1))
                   ? -EINVAL
                   : 0;
    if (strncmp(field, "timeout=", 8) == 0)
        return number(field + 8, 1, 60000, &options->timeout_ms);
    switch ((*place)++) {
    case 0:
        return (size_t)snprintf(options->device, sizeof options->device, "%s", field) < sizeof options->device
                   ? 0
                   : -EINVAL;
    case 1: return number(field, 1, UINT8_MAX, &options->port);
    case 2:
        if (number(field, 0, UINT16_MAX, &gid_index) != 0)
            return -EINVAL;
        options->gid_index = (int)gid_index;
        return 0;
    default: return -EINVAL;
    }
}

int remo__verbs_options_read(const struct remo__fabric_config *config, struct verbs_options *ret_options) {
    struct verbs_options options = (struct verbs_options){.gid_index = -1, .address = config->address};
    const char *text = config->provider ? config->provider : "";
    uint32_t count = 1, place = 0;
    for (const char *at = text; (at = strchr(at, ',')); at++)
        count++;
    for (uint32_t skip = config->rank % count; skip > 0; skip--)
        text = strchr(text, ',') + 1;
    char copy[OPTIONS_BYTES_MAX], *save = NULL;
    size_t length = strcspn(text, ",");
    int rc = length < sizeof copy ? 0 : -EINVAL;
    if (rc == 0) {
        memcpy(copy, text, length);
        copy[length] = '\0';
        for (char *field = strtok_r(copy, ":", &save); field && rc == 0; field = strtok_r(NULL, ":", &save))
            rc = option_parse(&options, field, &place);
    }
    if (rc < 0)
        return remo__fail(
            rc,
            "\"%s\" is not an RDMA device; write device[:port[:gid index]] as `ibv_devinfo -v` shows them, "
            "for example rxe0:1:1, optionally followed by :mtu=BYTES, :timeout=MS or :odp",
            config->provider);
    *ret_options = options;
    return 0;
}

static int fail_none(void) {
    return remo__fail(
        -ENODEV,
        "this machine has no RDMA device; install the driver of an RDMA network card, or emulate one on any "
        "card: `modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev eth0` (package iproute2)");
}

/* librdmacm would print errors, so check first. */
struct rdma_event_channel *remo__verbs_channel_open(void) {
    int count = 0;
    if (remo__verbs_library_load() < 0)
        return NULL;
    struct ibv_device **devices = ibv_get_device_list(&count);
    if (devices)
        ibv_free_device_list(devices);
    if (!devices || count == 0) {
        fail_none();
        return NULL;
    }
    if (access(CM_DEVICE, R_OK | W_OK) != 0) {
        remo__fail(-ENODEV, "cannot use " CM_DEVICE ": %s; run `modprobe rdma_ucm` as root, or obtain access",
                   errno == EACCES ? "no permission" : "it does not exist");
        return NULL;
    }
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (!channel)
        remo__fail(-ENODEV, "cannot start librdmacm: %s", strerror(errno));
    return channel;
}

static socklen_t address_bytes(const struct sockaddr *address) {
    return address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* The GID of an address: an IPv4 address is mapped into IPv6. */
static void address_gid(const struct sockaddr *address, union ibv_gid *ret_gid) {
    memset(ret_gid, 0, sizeof *ret_gid);
    if (address->sa_family == AF_INET6) {
        memcpy(ret_gid->raw, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
        return;
    }
    ret_gid->raw[10] = ret_gid->raw[11] = 0xff;
    memcpy(ret_gid->raw + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
}

/* The index of the address among the GIDs of the port, preferably of RoCE version 2; -1 if no GID has it. */
static int gid_find(struct ibv_context *context, uint8_t port, const struct sockaddr *address) {
    union ibv_gid wanted;
    address_gid(address, &wanted);
    struct ibv_port_attr attr;
    int found = -1;
    if (ibv_query_port(context, port, &attr) != 0)
        return -1;
    for (int i = 0; i < attr.gid_tbl_len; i++) {
        struct ibv_gid_entry entry;
        if (ibv_query_gid_ex(context, port, (uint32_t)i, &entry, 0) != 0
            || memcmp(&entry.gid, &wanted, sizeof wanted) != 0)
            continue;
        if (found < 0 || entry.gid_type == IBV_GID_TYPE_ROCE_V2)
            found = i;
    }
    return found;
}

static uint32_t mtu_bytes(enum ibv_mtu mtu) {
    return 128u << mtu;
}

int remo__verbs_device_check(const char *name, enum ibv_transport_type transport,
                             const struct ibv_device_attr *attr) {
    if (transport == IBV_TRANSPORT_IWARP)
        return remo__fail(
            -ENODEV,
            "device %s is iWARP, which lacks the remote atomics and immediates that objects need; use RoCE "
            "or InfiniBand, or fabric ofi over its interface",
            name);
    if (transport != IBV_TRANSPORT_IB)
        return remo__fail(
            -ENODEV, "device %s is neither RoCE nor InfiniBand; use fabric ofi, which supports more networks",
            name);
    if (attr->atomic_cap == IBV_ATOMIC_NONE)
        return remo__fail(
            -ENODEV,
            "device %s lacks the remote atomics (atomic_cap NONE) that locks need; use another device, or "
            "fabric ofi over its interface",
            name);
    if (attr->max_srq == 0)
        return remo__fail(-ENODEV,
                          "device %s lacks the shared receive queues (max_srq 0) that immediates need; use "
                          "another device, or fabric ofi over its interface",
                          name);
    return 0;
}

/* The exponent of the time until a silent peer has failed. A software device responds as slowly as the
 * processors of its machine. */
static uint8_t ack_timeout(uint32_t timeout_ms, bool software) {
    if (timeout_ms == 0)
        return software ? REMO__VERBS_ACK_TIMEOUT_SOFTWARE : REMO__VERBS_ACK_TIMEOUT;
    uint8_t exponent = 1;
    while (exponent < REMO__VERBS_ACK_TIMEOUT_MAX
           && remo__verbs_silence_ns(exponent + 1) <= (uint64_t)timeout_ms * REMO__NS_PER_MS)
        exponent++;
    return exponent;
}

/* Enable on-demand paging if requested. The device must support it for all operations. Soft-RoCE reports
 * support, but corrupts data (kernel 7.2). */
static int paging_enable(struct ibv_context *context, const struct verbs_options *options,
                         struct verbs_device *device) {
    const uint32_t needed =
        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    struct ibv_device_attr_ex attr = {0};
    if (!options->paging)
        return 0;
    if (device->software || ibv_query_device_ex(context, NULL, &attr) != 0
        || !(attr.odp_caps.general_caps & IBV_ODP_SUPPORT)
        || (attr.odp_caps.per_transport_caps.rc_odp_caps & needed) != needed)
        return remo__fail(-ENODEV, "device %s does not support on-demand paging reliably; omit :odp",
                          device->name);
    device->paging = true;
    return 0;
}

static uint32_t least(int granted, uint32_t wanted) {
    return granted > 0 && (uint32_t)granted < wanted ? (uint32_t)granted : wanted;
}

void remo__verbs_device_settle(const struct ibv_device_attr *attr, const struct ibv_port_attr *port,
                               const struct verbs_options *options, struct verbs_device *device) {
    device->software = attr->vendor_id == SOFTWARE_VENDOR;
    device->ack_timeout = ack_timeout(options->timeout_ms, device->software);
    device->mtu_bytes = mtu_bytes(port->active_mtu);
    if (options->mtu_bytes)
        device->mtu_bytes = (uint32_t)remo__min(device->mtu_bytes, options->mtu_bytes);
    device->atomics_global = attr->atomic_cap == IBV_ATOMIC_GLOB;
    device->receives = least(attr->max_srq_wr, REMO__VERBS_RECEIVES_MAX);
    device->completions = least(attr->max_cqe, REMO__VERBS_COMPLETIONS_MAX);
    device->sends = least(attr->max_qp_wr, REMO__VERBS_SENDS_MAX);
    device->reads =
        (uint8_t)least(attr->max_qp_init_rd_atom, least(attr->max_qp_rd_atom, REMO__VERBS_READS_MAX));
}

/* Describe the device that `id` is bound to. Errors: -ENODEV, with the sentence set, if it is unsuitable. */
static int device_take(struct rdma_cm_id *id, const struct sockaddr *address,
                       const struct verbs_options *options, struct verbs_device *device) {
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    *device = (struct verbs_device){.port = id->port_num};
    snprintf(device->name, sizeof device->name, "%s", ibv_get_device_name(id->verbs->device));
    if (ibv_query_device(id->verbs, &attr) != 0 || ibv_query_port(id->verbs, device->port, &port) != 0)
        return remo__fail(-ENODEV, "cannot query device %s: %s", device->name, strerror(errno));
    int rc = remo__verbs_device_check(device->name, id->verbs->device->transport_type, &attr);
    if (rc < 0)
        return rc;
    if (port.state != IBV_PORT_ACTIVE)
        return remo__fail(-ENODEV, "port %u of device %s is not active; check its interface and its cable",
                          device->port, device->name);
    memcpy(&device->address, address, address_bytes(address));
    device->gid_index = gid_find(id->verbs, device->port, address);
    remo__verbs_device_settle(&attr, &port, options, device);
    return paging_enable(id->verbs, options, device);
}

/* Try one address of the machine. */
static int address_try(const struct verbs_options *options, struct rdma_event_channel *channel,
                       const struct sockaddr *address, struct rdma_cm_id **ret_id,
                       struct verbs_device *device) {
    struct sockaddr_storage any_port = {0};
    memcpy(&any_port, address, address_bytes(address));
    struct rdma_cm_id *id = NULL;
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
        return remo__fail(-ENODEV, "cannot create an identifier of librdmacm: %s", strerror(errno));
    int rc = -ENODEV;
    if (rdma_bind_addr(id, (struct sockaddr *)&any_port) != 0 || !id->verbs)
        goto fail;
    if (options->device[0] && strcmp(options->device, ibv_get_device_name(id->verbs->device)) != 0)
        goto fail;
    if ((rc = device_take(id, address, options, device)) < 0)
        goto fail;
    rc = -ENODEV;
    if ((options->port && options->port != device->port)
        || (options->gid_index >= 0 && options->gid_index != device->gid_index))
        goto fail;
    *ret_id = id;
    return 0;
fail:
    rdma_destroy_id(id);
    return rc;
}

static bool address_usable(const struct ifaddrs *interface, const struct verbs_options *options, int family) {
    const struct sockaddr *address = interface->ifa_addr;
    if (!address || address->sa_family != family || !(interface->ifa_flags & IFF_UP))
        return false;
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr))
        return false;
    if (!options->address)
        return !(interface->ifa_flags & IFF_LOOPBACK);
    char text[INET6_ADDRSTRLEN] = "";
    const void *bytes = family == AF_INET ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                                          : (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr;
    inet_ntop(family, bytes, text, sizeof text);
    return strcmp(text, options->address) == 0;
}

static int fail_not_found(const struct verbs_options *options) {
    if (options->address)
        return remo__fail(
            -ENODEV,
            "no RDMA device of this machine%s%s has the address %s; `rdma link` shows their interfaces",
            options->device[0] ? " called " : "", options->device, options->address);
    if (options->device[0])
        return remo__fail(
            -ENODEV,
            "no RDMA device %s%s has an IP address on an interface that is up; `rdma link` shows the devices",
            options->device, options->port || options->gid_index >= 0 ? " with that port and GID" : "");
    return remo__fail(
        -ENODEV,
        "no RDMA device of this machine has an IP address on an interface that is up; `rdma link` shows "
        "their interfaces: give one an address (InfiniBand: to its ib0, IP over InfiniBand)");
}

int remo__verbs_device_find(const struct remo__fabric_config *config, struct rdma_event_channel *channel,
                            struct rdma_cm_id **ret_id, struct verbs_device *ret_device) {
    struct verbs_options options;
    struct ifaddrs *interfaces = NULL;
    int rc = remo__verbs_options_read(config, &options);
    if (rc < 0)
        return rc;
    if (getifaddrs(&interfaces) != 0)
        return remo__fail(-ENODEV, "cannot list the addresses of this machine: %s", strerror(errno));
    static const int families[] = {AF_INET, AF_INET6};
    remo__fail_static(-ENODEV, "");
    rc = -ENODEV;
    for (size_t f = 0; f < REMO__ARRAY_COUNT(families) && rc != 0; f++) {
        for (struct ifaddrs *at = interfaces; at && rc != 0; at = at->ifa_next) {
            if (address_usable(at, &options, families[f]))
                rc = address_try(&options, channel, at->ifa_addr, ret_id, ret_device);
        }
    }
    freeifaddrs(interfaces);
    return rc != 0 && remo_last_error()[0] == '\0' ? fail_not_found(&options) : rc;
}

int remo__verbs_device_open(const struct rdma_cm_id *id, struct ibv_context **ret_context) {
    const char *name = ibv_get_device_name(id->verbs->device);
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;
    for (struct ibv_device **at = devices; at && *at && !context; at++) {
        if (strcmp(ibv_get_device_name(*at), name) == 0)
            context = ibv_open_device(*at);
    }
    if (devices)
        ibv_free_device_list(devices);
    if (!context)
        return remo__fail(-ENODEV, "cannot open device %s: %s", name, strerror(errno));
    *ret_context = context;
    return 0;
}

int remo__verbs_qp_step(const struct verbs_device *device, struct rdma_cm_id *id, struct ibv_qp *qp,
                        enum ibv_qp_state state, const struct verbs_terms *terms) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask = 0;
    if (rdma_init_qp_attr(id, &attr, &mask) != 0)
        return -errno;
    attr.qp_access_flags = terms->access;
    attr.timeout = device->ack_timeout;
    attr.retry_cnt = REMO__VERBS_RETRIES;
    attr.rnr_retry = REMO__VERBS_RNR_FOREVER;
    attr.min_rnr_timer = REMO__VERBS_RNR_TIMER;
    attr.max_dest_rd_atomic = terms->reads;
    attr.max_rd_atomic = terms->reads;
    while (attr.path_mtu > IBV_MTU_256 && mtu_bytes(attr.path_mtu) > terms->mtu_bytes)
        attr.path_mtu--;
    return -ibv_modify_qp(qp, &attr, mask);
}

/* ---- limits of queue pairs, which only creating one reveals ---- */

static struct ibv_qp *qp_try(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t inline_bytes, uint32_t sends,
                             bool native) {
    struct ibv_qp_init_attr_ex attr = {.send_cq = cq,
                                       .recv_cq = cq,
                                       .qp_type = IBV_QPT_RC,
                                       .pd = pd,
                                       .cap = {.max_send_wr = sends,
                                               .max_recv_wr = 1,
                                               .max_send_sge = 1,
                                               .max_recv_sge = 1,
                                               .max_inline_data = inline_bytes},
                                       .comp_mask = IBV_QP_INIT_ATTR_PD
                                                    | (native ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
                                       .send_ops_flags = native ? REMO__VERBS_NATIVE_OPS : 0};
    return ibv_create_qp_ex(pd->context, &attr);
}

int remo__verbs_device_limits(struct ibv_pd *pd, struct verbs_device *device) {
    struct ibv_cq *cq = ibv_create_cq(pd->context, 1, NULL, NULL, 0);
    if (!cq)
        return remo__fail(-ENODEV, "cannot create a completion queue on device %s: %s", device->name,
                          strerror(errno));
    struct ibv_qp *qp = NULL;
    uint32_t inline_bytes = REMO__VERBS_INLINE_BYTES;
    for (; !qp; inline_bytes /= 2) { /* ends: halving it reaches 0 */
        for (int native = 1; native >= 0 && !qp; native--) {
            qp = qp_try(pd, cq, inline_bytes, device->sends, native);
            device->native_posts = native;
        }
        device->inline_bytes = inline_bytes;
        if (inline_bytes == 0)
            break;
    }
    int error = errno;
    if (qp)
        ibv_destroy_qp(qp);
    ibv_destroy_cq(cq);
    return qp ? 0
              : remo__fail(-ENODEV, "cannot create a queue pair with %u sends on device %s: %s%s",
                           device->sends, device->name, strerror(error),
                           error == ENOMEM ? "; raise the memlock limit (ulimit -l unlimited)" : "");
}
