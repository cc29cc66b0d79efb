/* bare_ofi.c - one libfabric endpoint without the library, to measure the cost of the network (bare_ofi.h).
 * It uses the same provider and memory registration modes as fabric `ofi`. */
#include "bench/limit/bare_ofi.h"

#include "fabric/ofi/library.h"

#include <errno.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"

#define PROVIDER_DEFAULT "tcp;ofi_rxm"
#define API_VERSION FI_VERSION(1, 17)
#define MR_MODES (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED)
#define MEMORY_KEY 0x5e30
#define OPERATION_NS (2 * REMO__NS_PER_S) /* limit of one operation */
#define SAMPLES_MAX 20000u
#define SAMPLES_MIN 16u
#define WARM_UP 64u /* operations: the first one connects */
#define MEMORY_ALIGN_BYTES 4096u

struct bare_ofi {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *addresses;
    struct fid_cq *completions;
    struct fid_ep *endpoint;
    struct fid_mr *registration;
    char *memory; /* the first half for the other side's operations, the second for our own */
    fi_addr_t peer;
    uint64_t peer_key, peer_base;
};

/* The description on the wire. */
struct blob {
    uint64_t key, base;
    uint64_t name_bytes;
    char name[BARE_OFI_BLOB_BYTES - 24];
};
_Static_assert(sizeof(struct blob) == BARE_OFI_BLOB_BYTES, "a blob has no padding");

static int fail(const char *what, long rc) {
    return remo__fail(-EIO, "cannot measure libfabric: %s failed: %s", what, fi_strerror((int)-rc));
}

static int find_provider(const char *provider, struct fi_info **ret_info) {
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        return remo__fail(-ENOMEM, "cannot measure libfabric: no memory");
    hints->caps = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = MR_MODES;
    hints->fabric_attr->prov_name = strdup(provider);
    /* Providers without Internet addresses take no node. */
    int rc = fi_getinfo(API_VERSION, "127.0.0.1", NULL, FI_SOURCE, hints, ret_info);
    if (rc != 0)
        rc = fi_getinfo(API_VERSION, NULL, NULL, 0, hints, ret_info);
    fi_freeinfo(hints);
    return rc == 0 ? 0
                   : remo__fail(-ENODEV, "cannot measure libfabric: no provider %s: %s; set REMO_PROVIDER",
                                provider, fi_strerror(-rc));
}

static int open_domain(struct bare_ofi *bare) {
    int rc = fi_fabric(bare->info->fabric_attr, &bare->fabric, NULL);
    if (rc != 0)
        return fail("fi_fabric", rc);
    rc = fi_domain(bare->fabric, bare->info, &bare->domain, NULL);
    return rc == 0 ? 0 : fail("fi_domain", rc);
}

static int open_endpoint(struct bare_ofi *bare) {
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE, .size = 128};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    int rc = fi_cq_open(bare->domain, &cq, &bare->completions, NULL);
    if (rc == 0)
        rc = fi_av_open(bare->domain, &av, &bare->addresses, NULL);
    if (rc == 0)
        rc = fi_endpoint(bare->domain, bare->info, &bare->endpoint, NULL);
    if (rc == 0)
        rc = fi_ep_bind(bare->endpoint, &bare->completions->fid, FI_TRANSMIT | FI_RECV);
    if (rc == 0)
        rc = fi_ep_bind(bare->endpoint, &bare->addresses->fid, 0);
    if (rc == 0)
        rc = fi_enable(bare->endpoint);
    return rc == 0 ? 0 : fail("opening an endpoint", rc);
}

static int open_memory(struct bare_ofi *bare) {
    bare->memory = aligned_alloc(MEMORY_ALIGN_BYTES, 2 * BARE_OFI_BYTES);
    if (!bare->memory)
        return remo__fail(-ENOMEM, "cannot measure libfabric: no memory");
    memset(bare->memory, 0, 2 * BARE_OFI_BYTES);
    uint64_t access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    int rc = fi_mr_reg(bare->domain, bare->memory, 2 * BARE_OFI_BYTES, access, 0, MEMORY_KEY, 0,
                       &bare->registration, NULL);
    return rc == 0 ? 0 : fail("fi_mr_reg", rc);
}

int bare_ofi_open(const char *provider, struct bare_ofi **ret_bare) {
    struct bare_ofi *bare = calloc(1, sizeof *bare);
    if (!bare)
        return remo__fail(-ENOMEM, "cannot measure libfabric: no memory");
    int rc = remo__ofi_library_load();
    if (rc == 0)
        rc = find_provider(provider && provider[0] ? provider : PROVIDER_DEFAULT, &bare->info);
    if (rc == 0)
        rc = open_domain(bare);
    if (rc == 0)
        rc = open_endpoint(bare);
    if (rc == 0)
        rc = open_memory(bare);
    if (rc == 0)
        *ret_bare = bare;
    else
        bare_ofi_close(bare);
    return rc;
}

static void close_fid(struct fid *fid) {
    if (fid)
        fi_close(fid);
}

void bare_ofi_close(struct bare_ofi *bare) {
    if (!bare)
        return;
    close_fid(bare->endpoint ? &bare->endpoint->fid : NULL);
    close_fid(bare->registration ? &bare->registration->fid : NULL);
    close_fid(bare->addresses ? &bare->addresses->fid : NULL);
    close_fid(bare->completions ? &bare->completions->fid : NULL);
    close_fid(bare->domain ? &bare->domain->fid : NULL);
    close_fid(bare->fabric ? &bare->fabric->fid : NULL);
    if (bare->info)
        fi_freeinfo(bare->info);
    free(bare->memory);
    free(bare);
}

int bare_ofi_describe(struct bare_ofi *bare, char ret_blob[BARE_OFI_BLOB_BYTES]) {
    struct blob blob = {.key = fi_mr_key(bare->registration)};
    size_t name_bytes = sizeof blob.name;
    bool by_address = bare->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
    int rc = fi_getname(&bare->endpoint->fid, blob.name, &name_bytes);
    if (rc != 0)
        return fail("fi_getname", rc);
    blob.base = by_address ? (uintptr_t)bare->memory : 0;
    blob.name_bytes = name_bytes;
    memcpy(ret_blob, &blob, sizeof blob);
    return 0;
}

int bare_ofi_connect(struct bare_ofi *bare, const char text[BARE_OFI_BLOB_BYTES]) {
    struct blob blob;
    memcpy(&blob, text, sizeof blob);
    if (blob.name_bytes == 0 || blob.name_bytes > sizeof blob.name)
        return remo__fail(-EINVAL, "cannot measure libfabric: the other node has no endpoint");
    if (fi_av_insert(bare->addresses, blob.name, 1, &bare->peer, 0, NULL) != 1)
        return fail("fi_av_insert", -FI_EINVAL);
    bare->peer_key = blob.key;
    bare->peer_base = blob.base;
    return 0;
}

/* ---- measuring ---- */

void bare_ofi_poll(struct bare_ofi *bare) {
    struct fi_cq_entry entries[8];
    fi_cq_read(bare->completions, entries, REMO__ARRAY_COUNT(entries));
}

typedef ssize_t (*start_fn)(struct bare_ofi *bare, size_t size_bytes);

static ssize_t start_read(struct bare_ofi *bare, size_t size_bytes) {
    return fi_read(bare->endpoint, bare->memory + BARE_OFI_BYTES, size_bytes, fi_mr_desc(bare->registration),
                   bare->peer, bare->peer_base, bare->peer_key, NULL);
}

static ssize_t start_write(struct bare_ofi *bare, size_t size_bytes) {
    return fi_write(bare->endpoint, bare->memory + BARE_OFI_BYTES, size_bytes, fi_mr_desc(bare->registration),
                    bare->peer, bare->peer_base, bare->peer_key, NULL);
}

/* Run one operation to its completion. Returns 0, or -1 if it failed or timed out. */
static int operate(struct bare_ofi *bare, start_fn start, size_t size_bytes) {
    uint64_t deadline = 0;
    bool started = false;
    for (uint32_t turn = 1;; turn++) {
        struct fi_cq_entry entry;
        ssize_t rc = started ? 0 : start(bare, size_bytes);
        if (rc != 0 && rc != -FI_EAGAIN)
            return -1;
        started = started || rc == 0;
        rc = fi_cq_read(bare->completions, &entry, 1);
        if (rc == 1)
            return 0;
        if (rc != -FI_EAGAIN)
            return -1;
        if (turn % 4096 != 0)
            continue;
        deadline = deadline ? deadline : remo__deadline(OPERATION_NS);
        if (remo__remaining_ns(deadline) == 0)
            return -1;
    }
}

static int compare_counts(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double measure(struct bare_ofi *bare, start_fn start, size_t size_bytes, double seconds) {
    uint64_t *samples = size_bytes <= BARE_OFI_BYTES ? malloc(SAMPLES_MAX * sizeof *samples) : NULL;
    uint32_t count = 0;
    bool failed = !samples;
    for (uint32_t i = 0; i < WARM_UP && !failed; i++)
        failed = operate(bare, start, size_bytes) != 0;
    uint64_t before = remo__now_ns(), until = before + (uint64_t)(seconds * 1e9);
    while (!failed && count < SAMPLES_MAX && (count < SAMPLES_MIN || before < until)) {
        failed = operate(bare, start, size_bytes) != 0;
        uint64_t now = remo__now_ns();
        samples[count++] = now - before;
        before = now;
    }
    if (!failed)
        qsort(samples, count, sizeof *samples, compare_counts);
    double median = failed ? 0 : (double)samples[count / 2];
    free(samples);
    return median;
}

double bare_ofi_read_ns(struct bare_ofi *bare, size_t size_bytes, double seconds) {
    return measure(bare, start_read, size_bytes, seconds);
}

double bare_ofi_write_ns(struct bare_ofi *bare, size_t size_bytes, double seconds) {
    return measure(bare, start_write, size_bytes, seconds);
}
