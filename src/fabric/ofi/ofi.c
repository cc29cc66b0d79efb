/* ofi.c - implements ofi.h: the fabric's capabilities, segments and peers.
 *
 * A contact is published once, after its description is verified, and freed only with the fabric, because
 * endpoints may still refer to it. ofi/wire.h describes the messages. */
#include "fabric/ofi/ofi.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/bytes.h"
#include "base/error.h"

static const struct remo__fabric_caps ofi_caps = {
    .mapped = false,
    .coherent = true,
    .atomics_coherent = true,
    .writes_ordered = true,
    .reads_ordered = true,
    .completion_placed = true,
    .read_flushes = true,
    .local_registered = false,
    .inline_bytes = REMO__OFI_INLINE_BYTES,
    .batch_max = REMO__OFI_BATCH_MAX,
    .depth = REMO__OFI_DEPTH,
    .message_bytes_max = REMO__OFI_MESSAGE_BYTES_MAX,
};

static int ofi_probe(const struct remo__fabric_config *config) {
    return remo__ofi_net_probe(config->provider, config->address);
}

/* ---- open and close ---- */

static void ofi_close(struct remo__fabric *fabric) {
    if (!fabric)
        return;
    struct ofi_fabric *ofi = ofi_of(fabric);
    remo__ofi_target_close(ofi);
    remo__ofi_net_close(&ofi->net);
    while (ofi->kept) {
        struct ofi_contact *contact = ofi->kept;
        ofi->kept = contact->older;
        free(contact);
    }
    pthread_mutex_destroy(&ofi->target.lock);
    pthread_mutex_destroy(&ofi->endpoints_lock);
    free(ofi->endpoints);
    free(ofi->cut_off_counts);
    free(ofi->memory);
    free(fabric->peers);
    free(ofi);
}

static void *alloc_aligned(size_t bytes) {
    void *memory = aligned_alloc(REMO__CACHE_LINE, remo__align_up(bytes, REMO__CACHE_LINE));
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

/* Allocate a fabric that ofi_close can release at any later point. */
static struct ofi_fabric *ofi_alloc(const struct remo__fabric_config *config) {
    struct ofi_fabric *ofi = calloc(1, sizeof *ofi + config->size * sizeof ofi->contacts[0]);
    if (!ofi)
        return NULL;
    ofi->target.wake_fd = -1;
    ofi->target.port.fd = -1;
    pthread_mutex_init(&ofi->target.lock, NULL);
    pthread_mutex_init(&ofi->endpoints_lock, NULL);
    ofi->base.peers = alloc_aligned(config->size * sizeof(struct remo__fabric_peer));
    ofi->memory = alloc_aligned(sizeof *ofi->memory);
    ofi->endpoints = calloc(config->endpoints_max, sizeof(struct ofi_endpoint *));
    ofi->cut_off_counts = calloc(config->size, sizeof *ofi->cut_off_counts);
    if (ofi->base.peers && ofi->memory && ofi->endpoints && ofi->cut_off_counts)
        return ofi;
    ofi_close(&ofi->base);
    return NULL;
}

static void ofi_init(struct ofi_fabric *ofi, const struct remo__fabric_config *config) {
    ofi->base.ops = &remo__fabric_ofi;
    ofi->base.caps = ofi_caps;
    ofi->base.rank = config->rank;
    ofi->base.size = config->size;
    ofi->base.doorbell = &ofi->memory->bell;
    ofi->base.log = config->log;
    ofi->arena = config->arena;
    ofi->arena_bytes = config->arena_bytes;
    ofi->endpoints_max = config->endpoints_max;
    ofi->memory->arena = config->arena;
    remo__ofi_imms_init(&ofi->memory->imms, ofi->cut_off_counts);
}

static int ofi_open(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric) {
    if (config->size == 0 || config->rank >= config->size || config->size > UINT16_MAX
        || config->endpoints_max == 0
        || (uint64_t)config->size * config->endpoints_max > REMO__OFI_ENTRIES_MAX)
        return remo__fail(-EINVAL, "fabric ofi does not support node %u of %u with %u endpoints",
                          config->rank, config->size, config->endpoints_max);
    struct ofi_fabric *ofi = ofi_alloc(config);
    if (!ofi)
        return remo__fail(-ENOMEM, "no memory for %u peers", config->size);
    ofi_init(ofi, config);
    int rc = 0;
    if (getrandom(&ofi->incarnation, sizeof ofi->incarnation, 0) != sizeof ofi->incarnation)
        rc = remo__fail(-EIO, "cannot read random numbers from the kernel");
    if (rc == 0)
        rc = remo__ofi_net_open(&ofi->net, config->provider, config->address, &config->log);
    if (rc == 0)
        rc = remo__ofi_target_open(ofi);
    if (rc == 0)
        rc = remo__ofi_target_start(ofi);
    if (rc < 0) {
        ofi_close(&ofi->base);
        return remo__fail_more(rc, "cannot open fabric ofi");
    }
    *ret_fabric = &ofi->base;
    return 0;
}

/* ---- segments ---- */

static bool segment_fits(const struct ofi_fabric *ofi, uint64_t offset, uint64_t bytes) {
    return bytes > 0 && offset % 8 == 0 && bytes % 8 == 0 && offset <= ofi->arena_bytes
           && bytes <= ofi->arena_bytes - offset;
}

static int segment_outside(uint32_t index, uint64_t offset, uint64_t bytes) {
    return remo__fail(-EINVAL, "segment %u, %llu bytes at offset %#llx, does not lie in the arena", index,
                      (unsigned long long)bytes, (unsigned long long)offset);
}

/* A description contains only the position of the memory: requests address it by offset. */
static int ofi_add_segment(struct remo__fabric *fabric, uint32_t index, uint64_t offset, uint64_t bytes,
                           int fd, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    (void)fd;
    struct ofi_fabric *ofi = ofi_of(fabric);
    if (index >= REMO__SEGMENTS_MAX || !segment_fits(ofi, offset, bytes))
        return segment_outside(index, offset, bytes);
    struct remo__writer writer = remo__writer_of(blob, blob_cap);
    remo__put_u32(&writer, REMO__OFI_MAGIC);
    remo__put_u32(&writer, index);
    remo__put_u64(&writer, offset);
    remo__put_u64(&writer, bytes);
    if (writer.bad)
        return remo__fail(-EINVAL, "the description of a segment does not fit into %zu bytes", blob_cap);
    int rc = remo__ofi_ranges_add(&ofi->memory->ranges, offset, bytes);
    if (rc == 0)
        *ret_blob_bytes = blob_cap - (size_t)(writer.end - writer.at);
    return rc;
}

static int ofi_map_segment(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset,
                           uint64_t bytes, const void *blob, size_t blob_bytes, int fd) {
    (void)fd;
    struct ofi_fabric *ofi = ofi_of(fabric);
    struct ofi_contact *contact = peer < fabric->size ? atomic_load(&ofi->contacts[peer]) : NULL;
    if (peer >= fabric->size)
        return remo__fail(-EINVAL, "no peer %u in a job of %u nodes", peer, fabric->size);
    if (!contact)
        return remo__fail(-EHOSTDOWN, "node %u is not connected", peer);
    struct remo__reader reader = remo__reader_of(blob, blob_bytes);
    uint32_t magic = remo__get_u32(&reader), blob_index = remo__get_u32(&reader);
    uint64_t blob_offset = remo__get_u64(&reader), blob_size_bytes = remo__get_u64(&reader);
    if (!remo__reader_complete(&reader) || magic != REMO__OFI_MAGIC || blob_index != index
        || blob_offset != offset || blob_size_bytes != bytes || index >= REMO__SEGMENTS_MAX)
        return remo__fail(-EBADMSG, "node %u sent a malformed description of its segment %u", peer, index);
    if (!segment_fits(ofi, offset, bytes))
        return segment_outside(index, offset, bytes);
    int rc = remo__ofi_ranges_add(&contact->ranges, offset, bytes);
    return rc < 0 ? remo__fail_more(rc, "node %u", peer) : 0;
}

/* ---- peers ---- */

static int ofi_describe(struct remo__fabric *fabric, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    struct ofi_fabric *ofi = ofi_of(fabric);
    uint8_t address[REMO__OFI_ADDRESS_BYTES_MAX];
    size_t address_bytes = 0;
    int rc = remo__ofi_port_name(&ofi->target.port, address, sizeof address, &address_bytes);
    if (rc < 0)
        return rc;
    struct remo__writer writer = remo__writer_of(blob, blob_cap);
    uint32_t magic = REMO__OFI_MAGIC;
    remo__put_bytes(&writer, &magic, sizeof magic); /* native byte order: reveals a mismatch */
    remo__put_string(&writer, ofi->net.info->fabric_attr->prov_name);
    remo__put_u32(&writer, ofi->net.eager_bytes);
    remo__put_u32(&writer, fabric->rank);
    remo__put_u32(&writer, fabric->size);
    remo__put_u32(&writer, ofi->endpoints_max);
    remo__put_u64(&writer, ofi->incarnation);
    remo__put_u64(&writer, ofi->target.table.key);
    remo__put_u64(&writer, ofi->target.table.base);
    remo__put_u32(&writer, (uint32_t)address_bytes);
    remo__put_bytes(&writer, address, address_bytes);
    if (writer.bad)
        return remo__fail(-EINVAL, "the description of fabric ofi does not fit into %zu bytes", blob_cap);
    *ret_blob_bytes = blob_cap - (size_t)(writer.end - writer.at);
    return 0;
}

/* Check version, byte order and provider of a peer: the first part of its description. */
static int peer_check_net(const struct ofi_fabric *ofi, uint32_t peer, struct remo__reader *reader) {
    uint32_t magic = 0;
    char provider[64];
    remo__get_bytes(reader, &magic, sizeof magic);
    if (reader->bad || magic != REMO__OFI_MAGIC)
        return remo__fail(
            -EPROTO,
            "node %u uses another version of fabric ofi or another byte order; start all nodes from the "
            "same build",
            peer);
    remo__get_string(reader, provider, sizeof provider);
    uint32_t eager_bytes = remo__get_u32(reader);
    const char *own = ofi->net.info->fabric_attr->prov_name;
    if (reader->bad || strcmp(provider, own) != 0)
        return remo__fail(-EPROTO, "node %u uses provider \"%s\", this node \"%s\"; choose the same", peer,
                          provider, own);
    if (eager_bytes != ofi->net.eager_bytes)
        return remo__fail(
            -EPROTO,
            "node %u configures libfabric differently: set FI_OFI_RXM_BUFFER_SIZE to the same value (%u on "
            "this node, %u on the peer) in the environment of all nodes",
            peer, ofi->net.eager_bytes, eager_bytes);
    return 0;
}

static int peer_check(const struct ofi_fabric *ofi, uint32_t peer, const void *blob, size_t blob_bytes,
                      struct ofi_contact *contact) {
    struct remo__reader reader = remo__reader_of(blob, blob_bytes);
    int rc = peer_check_net(ofi, peer, &reader);
    if (rc < 0)
        return rc;
    uint32_t rank = remo__get_u32(&reader), size = remo__get_u32(&reader);
    contact->rank = rank;
    contact->endpoints_max = remo__get_u32(&reader);
    contact->incarnation = remo__get_u64(&reader);
    contact->table_key = remo__get_u64(&reader);
    contact->table_base = remo__get_u64(&reader);
    uint32_t address_bytes = remo__get_u32(&reader);
    if (address_bytes <= sizeof contact->address)
        remo__get_bytes(&reader, contact->address, address_bytes);
    if (!remo__reader_complete(&reader) || contact->endpoints_max == 0)
        return remo__fail(-EPROTO, "node %u sent a malformed description", peer);
    if (rank != peer || size != ofi->base.size)
        return remo__fail(-EPROTO, "node %u describes itself as node %u of %u, but this job has %u nodes",
                          peer, rank, size, ofi->base.size);
    return 0;
}

static int ofi_connect(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes) {
    struct ofi_fabric *ofi = ofi_of(fabric);
    if (peer >= fabric->size)
        return remo__fail(-EINVAL, "no peer %u in a job of %u nodes", peer, fabric->size);
    if (atomic_load(&ofi->contacts[peer]))
        return remo__fail(-EALREADY, "node %u is already connected", peer);
    struct ofi_contact *contact = calloc(1, sizeof *contact);
    if (!contact)
        return remo__fail(-ENOMEM, "no memory for node %u", peer);
    int rc = peer_check(ofi, peer, blob, blob_bytes, contact);
    if (rc < 0) {
        free(contact);
        return rc;
    }
    contact->older = ofi->kept;
    ofi->kept = contact;
    atomic_store(&ofi->contacts[peer], contact);
    atomic_store(&fabric->peers[peer].connected, 1);
    if (peer != fabric->rank) {
        remo__ofi_target_admit(ofi, peer);
        return 0;
    }
    atomic_store(&fabric->peers[peer].doorbell, &ofi->memory->bell);
    atomic_store(&fabric->peers[peer].base, ofi->arena);
    return 0;
}

static void ofi_disconnect(struct remo__fabric *fabric, uint32_t peer) {
    struct ofi_fabric *ofi = ofi_of(fabric);
    if (peer >= fabric->size)
        return;
    atomic_store(&fabric->peers[peer].connected, 0);
    atomic_store(&fabric->peers[peer].base, NULL);
    atomic_store(&ofi->contacts[peer], NULL);
    remo__ofi_target_cut_off(ofi, peer);
    remo__ofi_endpoints_wake(ofi); /* their operations in flight to the peer fail at the next poll */
}

static bool ofi_is_lost(struct remo__fabric *fabric, uint32_t peer) {
    struct ofi_contact *contact = peer < fabric->size ? atomic_load(&ofi_of(fabric)->contacts[peer]) : NULL;
    return contact && atomic_load(&contact->is_lost);
}

/* ---- immediates ---- */

static int ofi_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max) {
    return (int)remo__ofi_imms_take(&ofi_of(fabric)->memory->imms, imms, max);
}

static void ofi_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns) {
    remo__ofi_imms_wait(&ofi_of(fabric)->memory->imms, timeout_ns);
}

static void ofi_imm_wake(struct remo__fabric *fabric) {
    remo__ofi_imms_wake(&ofi_of(fabric)->memory->imms);
}

const struct remo__fabric_ops remo__fabric_ofi = {
    .name = "ofi",
    .probe = ofi_probe,
    .open = ofi_open,
    .close = ofi_close,
    .add_segment = ofi_add_segment,
    .map_segment = ofi_map_segment,
    .describe = ofi_describe,
    .connect = ofi_connect,
    .disconnect = ofi_disconnect,
    .is_lost = ofi_is_lost,
    .endpoint_open = remo__ofi_endpoint_open,
    .endpoint_close = remo__ofi_endpoint_close,
    .post = remo__ofi_post,
    .poll = remo__ofi_poll,
    .wait = remo__ofi_wait,
    .imm_poll = ofi_imm_poll,
    .imm_wait = ofi_imm_wait,
    .imm_wake = ofi_imm_wake,
    .take_arrivals = remo__ofi_take_arrivals,
    .wire = remo__fabric_wire_none,
};
