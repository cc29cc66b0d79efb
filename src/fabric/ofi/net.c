/* net.c - implements net.h: the provider, ports, registered memory, writes and polls.
 *
 * It works around defects of libfabric 1.17: settings that make ports large, providers that crash when a peer
 * fails, and injected writes that crash the process. */
#include "fabric/ofi/net.h"

#include <errno.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/error.h"

#define API_VERSION FI_VERSION(1, 17)
#define POLL_MAX 16u
#define KEY_TRIES_MAX 8 /* attempts to find an unused random key */
#define MR_MODES (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED)

/* ---- choosing a provider ---- */

/* libfabric reads its settings once per process, from the environment. With the defaults of ofi_rxm an
 * endpoint takes 70 MB and 30 to 200 ms to open, and checks for new connections every 10 ms. Remo needs no
 * message buffers; with these settings an endpoint takes 2 MB and 1 ms. The user's settings have
 * precedence. */
static void environment_prepare(void) {
    static const char *const settings[][2] = {
        {"FI_OFI_RXM_BUFFER_SIZE", "512"},
        {"FI_OFI_RXM_MSG_RX_SIZE", "64"},
        {"FI_OFI_RXM_MSG_TX_SIZE", "32"},
        {"FI_OFI_RXM_CM_PROGRESS_INTERVAL", "200"},
    };
    for (size_t i = 0; i < REMO__ARRAY_COUNT(settings); i++)
        setenv(settings[i][0], settings[i][1], 0);
}

/* True if the provider's addresses include loopback. */
static bool speaks_ip(const char *provider) {
    static const char *const names[] = {"tcp", "net", "udp", "sockets"};
    for (size_t i = 0; i < REMO__ARRAY_COUNT(names); i++) {
        if (strncmp(provider, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

static struct fi_info *hints_make(const char *provider, int mr_mode) {
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        return NULL;
    hints->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->mr_mode = mr_mode;
    hints->fabric_attr->prov_name = strdup(provider);
    if (!hints->fabric_attr->prov_name) {
        fi_freeinfo(hints);
        return NULL;
    }
    return hints;
}

/* True if memory or descriptors are exhausted: a different query would fail too. */
static bool is_short(int rc) {
    return rc == -FI_ENOMEM || rc == -FI_EMFILE;
}

static int fail_short(const char *provider, int rc) {
    return remo__fail(rc, "cannot query libfabric for provider \"%s\": %s", provider, fi_strerror(-rc));
}

static int getinfo(const char *provider, const char *address, int mr_mode, struct fi_info **ret_info) {
    struct fi_info *hints = hints_make(provider, mr_mode);
    if (!hints)
        return -FI_ENOMEM;
    const char *node = address ? address : speaks_ip(provider) ? "127.0.0.1" : NULL;
    int rc = fi_getinfo(API_VERSION, node, NULL, node ? FI_SOURCE : 0, hints, ret_info);
    fi_freeinfo(hints);
    return rc;
}

/* Refuse providers of libfabric 1.17 that crash the process when a peer fails or leaves. */
static int refuse_unsafe(const char *provider) {
    if (strcmp(provider, "shm") == 0)
        return remo__fail(
            -ENODEV, "provider \"shm\" crashes when a peer fails or leaves; use fabric shm, which is faster");
    if (strcmp(provider, "net;ofi_rxm") == 0)
        return remo__fail(-ENODEV, "provider \"net;ofi_rxm\" crashes when a peer fails or leaves; use tcp");
    return 0;
}

/* Find the best mode of the provider: memory addressed by offset and by keys that Remo chooses, if
 * supported. */
static int net_info(const char *provider, const char *address, struct fi_info **ret_info) {
    struct fi_info *info = NULL;
    int rc = refuse_unsafe(provider);
    if (rc < 0)
        return rc;
    environment_prepare();
    if ((rc = remo__ofi_library_load()) < 0)
        return rc;
    rc = getinfo(provider, address, 0, &info);
    if (rc != 0 && !is_short(rc))
        rc = getinfo(provider, address, MR_MODES, &info);
    if (is_short(rc))
        return fail_short(provider, rc);
    if (rc != 0)
        return remo__fail(
            -ENODEV,
            "libfabric has no provider \"%s\"%s%s (%s); see `fi_info -l` (package libfabric-bin), or set no "
            "provider for TCP (package libfabric1)",
            provider, address ? " on address " : "", address ? address : "", fi_strerror(-rc));
    if (info->domain_attr->cq_data_size < sizeof(uint32_t)) {
        fi_freeinfo(info);
        return remo__fail(-ENODEV, "provider \"%s\" cannot notify a peer of a write; choose another provider",
                          provider);
    }
    *ret_info = info;
    return 0;
}

int remo__ofi_net_probe(const char *provider, const char *address) {
    struct fi_info *info = NULL;
    int rc = net_info(provider ? provider : REMO__OFI_PROVIDER_DEFAULT, address, &info);
    if (rc == 0)
        fi_freeinfo(info);
    return rc;
}

/* The size of ofi_rxm's eager messages is its inject size when it has to copy. */
static int rxm_eager_bytes(const char *provider, const char *address, uint32_t *ret_bytes) {
    struct fi_info *info = NULL;
    int rc = getinfo(provider, address, FI_MR_LOCAL, &info);
    if (is_short(rc))
        return fail_short(provider, rc);
    *ret_bytes = rc == 0 ? (uint32_t)info->tx_attr->inject_size : 0;
    fi_freeinfo(info);
    return 0;
}

int remo__ofi_net_open(struct ofi_net *net, const char *provider, const char *address,
                       const struct remo__log *log) {
    provider = provider ? provider : REMO__OFI_PROVIDER_DEFAULT;
    *net = (struct ofi_net){0};
    int rc = net_info(provider, address, &net->info);
    if (rc < 0)
        return rc;
    const char *name = net->info->fabric_attr->prov_name;
    bool rxm = strstr(name, "ofi_rxm") != NULL, tcp = strncmp(name, "tcp", 3) == 0;
    net->again_is_lost = rxm;
    net->writes_max = (uint32_t)remo__min(net->info->tx_attr->size, UINT32_MAX);
    net->stream = tcp && rxm;
    rc = rxm ? rxm_eager_bytes(provider, address, &net->eager_bytes) : 0;
    if (rc < 0)
        goto fail;
    if (net->eager_bytes > 4096)
        remo__log(
            log, REMO_LOG_WARNING,
            "libfabric was in use before Remo opened it, so each connection takes about 70 MB; set "
            "FI_OFI_RXM_BUFFER_SIZE=512 and FI_OFI_RXM_MSG_RX_SIZE=64 in the environment, on all nodes");
    rc = fi_fabric(net->info->fabric_attr, &net->fabric, NULL);
    if (rc == 0)
        return 0;
    rc = remo__fail(rc, "cannot open provider \"%s\" of libfabric: %s", provider, fi_strerror(-rc));
fail:
    fi_freeinfo(net->info);
    net->info = NULL;
    return rc;
}

void remo__ofi_net_close(struct ofi_net *net) {
    if (net->fabric)
        fi_close(&net->fabric->fid);
    if (net->info)
        fi_freeinfo(net->info);
    *net = (struct ofi_net){0};
}

/* ---- ports ---- */

static int port_queue(struct ofi_port *port, bool sleepable) {
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_DATA, .wait_obj = sleepable ? FI_WAIT_FD : FI_WAIT_NONE};
    int rc = fi_cq_open(port->domain, &attr, &port->cq, NULL);
    if (rc != 0 && sleepable && !is_short(rc)) {
        attr.wait_obj = FI_WAIT_NONE;
        return fi_cq_open(port->domain, &attr, &port->cq, NULL);
    }
    if (rc == 0 && sleepable && fi_control(&port->cq->fid, FI_GETWAIT, &port->fd) != 0)
        port->fd = -1;
    return rc;
}

static int port_endpoint(struct ofi_port *port) {
    int rc = fi_endpoint(port->domain, port->net->info, &port->ep, NULL);
    if (rc == 0)
        rc = fi_ep_bind(port->ep, &port->cq->fid, FI_TRANSMIT | FI_RECV);
    if (rc == 0)
        rc = fi_ep_bind(port->ep, &port->av->fid, 0);
    return rc == 0 ? fi_enable(port->ep) : rc;
}

int remo__ofi_port_open(struct ofi_port *port, struct ofi_net *net, bool sleepable) {
    *port = (struct ofi_port){.net = net, .fd = -1};
    struct fi_av_attr av = {.type = FI_AV_UNSPEC};
    int rc = fi_domain(net->fabric, net->info, &port->domain, NULL);
    if (rc == 0)
        rc = port_queue(port, sleepable);
    if (rc == 0)
        rc = fi_av_open(port->domain, &av, &port->av, NULL);
    if (rc == 0)
        rc = port_endpoint(port);
    if (rc == 0)
        return 0;
    remo__ofi_port_close(port);
    return remo__fail(
        rc,
        "cannot open an endpoint of libfabric: %s; if descriptors or memory are exhausted, raise the limits "
        "(ulimit -n, ulimit -l)",
        fi_strerror(-rc));
}

void remo__ofi_port_close(struct ofi_port *port) {
    if (port->ep)
        fi_close(&port->ep->fid);
    if (port->av)
        fi_close(&port->av->fid);
    if (port->cq)
        fi_close(&port->cq->fid);
    if (port->domain)
        fi_close(&port->domain->fid);
    *port = (struct ofi_port){.fd = -1};
}

int remo__ofi_port_name(struct ofi_port *port, void *address, size_t cap, size_t *ret_bytes) {
    size_t bytes = cap;
    int rc = fi_getname(&port->ep->fid, address, &bytes);
    if (rc != 0)
        return remo__fail(rc, "cannot get the address of an endpoint from libfabric: %s", fi_strerror(-rc));
    *ret_bytes = bytes;
    return 0;
}

int remo__ofi_port_insert(struct ofi_port *port, const void *address, fi_addr_t *ret_address) {
    int rc = fi_av_insert(port->av, address, 1, ret_address, 0, NULL);
    if (rc == 1)
        return 0;
    return remo__fail(-EINVAL, "libfabric rejects the address of a peer: %s",
                      fi_strerror(rc < 0 ? -rc : FI_EINVAL));
}

/* ---- memory ---- */

/* Keys must not be guessable: on some networks they alone protect the memory. */
static int block_key(const struct ofi_port *port, uint64_t *ret_key) {
    size_t bytes = port->net->info->domain_attr->mr_key_size;
    *ret_key = 0;
    return getrandom(ret_key, bytes < sizeof *ret_key ? bytes : sizeof *ret_key, 0) > 0 ? 0 : -errno;
}

int remo__ofi_block_register(struct ofi_block *block, struct ofi_port *port) {
    int mode = port->net->info->domain_attr->mr_mode, rc = -FI_ENOKEY;
    uint64_t access = FI_REMOTE_WRITE | FI_WRITE;
    for (int i = 0; i < KEY_TRIES_MAX && rc == -FI_ENOKEY; i++) {
        uint64_t key = 0;
        rc = (mode & FI_MR_PROV_KEY) ? 0 : block_key(port, &key);
        if (rc == 0)
            rc = fi_mr_reg(port->domain, block->memory, block->size_bytes, access, 0, key, 0, &block->mr,
                           NULL);
    }
    if (rc != 0)
        return remo__fail(
            rc, "libfabric cannot register %zu bytes: %s; raise the limit of locked memory (ulimit -l)",
            block->size_bytes, fi_strerror(-rc));
    block->key = fi_mr_key(block->mr);
    block->base = (mode & FI_MR_VIRT_ADDR) ? (uintptr_t)block->memory : 0;
    return 0;
}

int remo__ofi_block_open(struct ofi_block *block, struct ofi_port *port, size_t size_bytes) {
    *block = (struct ofi_block){.size_bytes = size_bytes};
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return remo__fail(-ENOMEM, "no memory for %zu bytes of messages", size_bytes);
    block->memory = memory;
    int rc = remo__ofi_block_register(block, port);
    if (rc < 0)
        remo__ofi_block_close(block);
    return rc;
}

void remo__ofi_block_unregister(struct ofi_block *block) {
    if (block->mr)
        fi_close(&block->mr->fid);
    block->mr = NULL;
}

void remo__ofi_block_close(struct ofi_block *block) {
    remo__ofi_block_unregister(block);
    if (block->memory)
        munmap(block->memory, block->size_bytes);
    *block = (struct ofi_block){0};
}

/* ---- writing and polling ---- */

/* Never fi_inject_write, although it is 0.4 us cheaper: over tcp;ofi_rxm 1.17 a failure crashes the process,
 * because its error has no context. */
static ssize_t write_post(struct ofi_port *port, const struct ofi_write *write) {
    const struct ofi_remote *to = write->remote;
    void *desc = fi_mr_desc(write->block->mr), *context = (void *)(uintptr_t)write->owner;
    uint64_t at = to->base + write->at;
    if (!write->omits_data || !port->net->stream)
        return fi_writedata(port->ep, write->from, write->bytes, desc, write->data, to->address, at, to->key,
                            context);
    return fi_write(port->ep, write->from, write->bytes, desc, to->address, at, to->key, context);
}

int remo__ofi_port_write(struct ofi_port *port, const struct ofi_write *write) {
    /* libfabric would return -FI_EAGAIN, which must not be taken for a lost connection */
    if (remo__unlikely(port->writes >= port->net->writes_max && port->net->again_is_lost))
        return -EAGAIN;
    ssize_t rc = write_post(port, write);
    if (remo__likely(rc == 0)) {
        port->writes++;
        return 0;
    }
    if (rc == -FI_EAGAIN && !(write->was_connected && port->net->again_is_lost))
        return -EAGAIN;
    return remo__fail(-EHOSTDOWN, "the connection to a peer is lost%s%s", rc == -FI_EAGAIN ? "" : ": ",
                      rc == -FI_EAGAIN ? "" : fi_strerror((int)-rc));
}

static void count_ended(struct ofi_port *port) {
    if (port->writes > 0)
        port->writes--;
}

static int port_error(struct ofi_port *port, struct ofi_event *ret_event) {
    struct fi_cq_err_entry entry = {0};
    if (fi_cq_readerr(port->cq, &entry, 0) < 0)
        return 0;
    count_ended(port);
    *ret_event = (struct ofi_event){.kind = OFI_EVENT_FAILED, .owner = (uintptr_t)entry.op_context};
    remo__fail(-EHOSTDOWN, "a message to a peer failed: %s (%s)", fi_strerror(entry.err),
               fi_cq_strerror(port->cq, entry.prov_errno, entry.err_data, NULL, 0));
    return 1;
}

static struct ofi_event event_of(struct ofi_port *port, const struct fi_cq_data_entry *entry) {
    if ((entry->flags & FI_REMOTE_CQ_DATA) && !(entry->flags & FI_WRITE))
        return (struct ofi_event){.kind = OFI_EVENT_ARRIVED, .data = (uint32_t)entry->data};
    count_ended(port);
    return (struct ofi_event){.kind = OFI_EVENT_SENT, .owner = (uintptr_t)entry->op_context};
}

int remo__ofi_port_poll(struct ofi_port *port, struct ofi_event *ret_events, uint32_t max) {
    struct fi_cq_data_entry entries[POLL_MAX];
    ssize_t count = fi_cq_read(port->cq, entries, max < POLL_MAX ? max : POLL_MAX);
    if (remo__likely(count == -FI_EAGAIN))
        return 0;
    if (count < 0)
        return count == -FI_EAVAIL ? port_error(port, ret_events)
                                   : remo__fail(-EIO, "libfabric fails: %s", fi_strerror((int)-count));
    for (ssize_t i = 0; i < count; i++)
        ret_events[i] = event_of(port, &entries[i]);
    return (int)count;
}

bool remo__ofi_port_may_sleep(struct ofi_port *port) {
    struct fid *fids[1] = {&port->cq->fid};
    return port->fd >= 0 && fi_trywait(port->net->fabric, fids, 1) == 0;
}
