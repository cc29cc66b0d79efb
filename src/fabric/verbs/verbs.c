/* verbs.c - implements verbs.h: the device, segments, peers and statistics of the fabric.
 *
 * Offsets of the arena are the addresses of its memory regions, so the wire carries no virtual address. A
 * contact is freed only with the fabric, because endpoints may still refer to it. */
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/bytes.h"

static int verbs_probe(const struct remo__fabric_config *config) {
    struct rdma_event_channel *channel = remo__verbs_channel_open();
    struct rdma_cm_id *id = NULL;
    struct verbs_device device;
    if (!channel)
        return -ENODEV;
    int rc = remo__verbs_device_find(config, channel, &id, &device);
    if (rc == 0)
        rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    return rc;
}

/* ---- open and close ---- */

static void verbs_close(struct remo__fabric *fabric) {
    if (!fabric)
        return;
    struct verbs_fabric *verbs = verbs_of(fabric);
    remo__verbs_target_close(verbs);
    for (uint32_t i = 0; i < atomic_load(&verbs->own.count); i++)
        ibv_dereg_mr(verbs->own.segment[i].region);
    if (verbs->pd)
        ibv_dealloc_pd(verbs->pd);
    if (verbs->context)
        ibv_close_device(verbs->context);
    if (verbs->target.listener)
        rdma_destroy_id(verbs->target.listener);
    if (verbs->target.channel)
        rdma_destroy_event_channel(verbs->target.channel);
    while (verbs->kept) {
        struct verbs_contact *contact = verbs->kept;
        verbs->kept = contact->older;
        free(contact);
    }
    pthread_mutex_destroy(&verbs->target.lock);
    pthread_mutex_destroy(&verbs->endpoints_lock);
    free(fabric->peers);
    free(verbs);
}

/* Allocate a fabric that verbs_close can release at any later point. */
static struct verbs_fabric *verbs_alloc(const struct remo__fabric_config *config) {
    size_t peers_bytes = config->size * sizeof(struct remo__fabric_peer);
    struct verbs_fabric *verbs = calloc(1, sizeof *verbs + config->size * sizeof verbs->contacts[0]);
    struct remo__fabric_peer *peers = aligned_alloc(REMO__CACHE_LINE, peers_bytes);
    if (!verbs || !peers) {
        free(verbs);
        free(peers);
        return NULL;
    }
    memset(peers, 0, peers_bytes);
    verbs->target.wake_fd = verbs->target.imm_fd = -1;
    pthread_mutex_init(&verbs->target.lock, NULL);
    pthread_mutex_init(&verbs->endpoints_lock, NULL);
    verbs->base = (struct remo__fabric){.ops = &remo__fabric_verbs,
                                        .rank = config->rank,
                                        .size = config->size,
                                        .peers = peers,
                                        .doorbell = &verbs->bell,
                                        .log = config->log};
    verbs->arena = config->arena;
    verbs->arena_bytes = config->arena_bytes;
    return verbs;
}

static int device_open(struct verbs_fabric *verbs, const struct remo__fabric_config *config) {
    struct verbs_device *device = &verbs->device;
    verbs->target.channel = remo__verbs_channel_open();
    if (!verbs->target.channel)
        return -ENODEV;
    int rc = remo__verbs_device_find(config, verbs->target.channel, &verbs->target.listener, device);
    if (rc < 0)
        return rc;
    rc = remo__verbs_device_open(verbs->target.listener, &verbs->context);
    if (rc < 0)
        return rc;
    verbs->pd = ibv_alloc_pd(verbs->context);
    if (!verbs->pd)
        return remo__fail(-ENOMEM, "cannot create a protection domain on device %s: %s", device->name,
                          strerror(errno));
    return remo__verbs_device_limits(verbs->pd, device);
}

static void caps_set(struct verbs_fabric *verbs) {
    verbs->base.caps = (struct remo__fabric_caps){
        .mapped = false,
        .coherent = true,
        .atomics_coherent = verbs->device.atomics_global,
        .writes_ordered = true, /* one connection, and relaxed ordering is never requested */
        .reads_ordered = false,
        .completion_placed = false,
        .read_flushes = true,
        .driven_by_device = true,
        .local_registered = true,
        .inline_bytes = verbs->device.inline_bytes,
        .batch_max = REMO__VERBS_BATCH_MAX,
        .depth = REMO__VERBS_DEPTH,
        .message_bytes_max = REMO__VERBS_MESSAGE_BYTES_MAX,
    };
}

static int verbs_open(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric) {
    if (config->size == 0 || config->rank >= config->size || config->size > UINT16_MAX)
        return remo__fail(-EINVAL, "fabric verbs does not support node %u of %u", config->rank, config->size);
    struct verbs_fabric *verbs = verbs_alloc(config);
    if (!verbs)
        return remo__fail(-ENOMEM, "no memory for %u peers", config->size);
    int rc = 0;
    if (getrandom(&verbs->incarnation, sizeof verbs->incarnation, 0) != sizeof verbs->incarnation
        || getrandom(verbs->secret, sizeof verbs->secret, 0) != sizeof verbs->secret)
        rc = remo__fail(-EIO, "cannot read random numbers from the kernel");
    if (rc == 0)
        rc = device_open(verbs, config);
    if (rc == 0)
        rc = remo__verbs_target_open(verbs);
    if (rc < 0) {
        verbs_close(&verbs->base);
        return remo__fail_more(rc, "cannot open fabric verbs");
    }
    caps_set(verbs);
    const struct verbs_device *device = &verbs->device;
    remo__log(&verbs->base.log, REMO_LOG_INFO,
              "fabric verbs uses device %s, port %u, GID %d, MTU %u; %u bytes inline, %u sends per "
              "connection, %u receives, %u completions, %u reads and atomics in flight, posts by %s, %s "
              "atomics; a peer that is silent for %llu ms has failed",
              device->name, device->port, device->gid_index, device->mtu_bytes, device->inline_bytes,
              device->sends, device->receives, device->completions, device->reads,
              device->native_posts ? "ibv_wr_*" : "ibv_post_send",
              device->atomics_global ? "global" : "device-local",
              (unsigned long long)(remo__verbs_silence_ns(device->ack_timeout) / REMO__NS_PER_MS));
    *ret_fabric = &verbs->base;
    return 0;
}

/* ---- segments ---- */

static int segments_add(const struct verbs_fabric *verbs, struct verbs_segments *segments, uint32_t index,
                        const struct verbs_segment *segment) {
    uint32_t count = atomic_load(&segments->count);
    const struct verbs_segment *last = count > 0 ? &segments->segment[count - 1] : NULL;
    uint64_t from = last ? last->offset + last->bytes : 0;
    if (index >= REMO__SEGMENTS_MAX || count >= REMO__SEGMENTS_MAX || segment->bytes == 0
        || segment->offset < from || segment->offset > verbs->arena_bytes
        || segment->bytes > verbs->arena_bytes - segment->offset)
        return remo__fail(-EINVAL,
                          "segment %u, %llu bytes at offset %#llx, is not the next segment of an arena",
                          index, (unsigned long long)segment->bytes, (unsigned long long)segment->offset);
    segments->segment[count] = *segment;
    atomic_store_explicit(&segments->count, count + 1, memory_order_release);
    return 0;
}

/* Register memory with the access rights that operations need and no others; relaxed ordering stays off.
 * Offsets of the arena are the addresses of the region, so peers see no address of this process. */
static struct ibv_mr *region_register(struct verbs_fabric *verbs, uint64_t offset, uint64_t bytes) {
    unsigned access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if (verbs->device.paging)
        access |= IBV_ACCESS_ON_DEMAND;
    struct ibv_mr *region = ibv_reg_mr_iova(verbs->pd, verbs->arena + offset, bytes, offset, access);
    if (!region)
        remo__fail(
            errno == ENOMEM || errno == EAGAIN ? -ENOMEM : -EIO,
            "device %s cannot register %llu bytes: %s; if the limit of locked memory is too low, raise "
            "it: ulimit -l unlimited",
            verbs->device.name, (unsigned long long)bytes, strerror(errno));
    return region;
}

static int verbs_add_segment(struct remo__fabric *fabric, uint32_t index, uint64_t offset, uint64_t bytes,
                             int fd, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    (void)fd;
    struct verbs_fabric *verbs = verbs_of(fabric);
    struct verbs_segment segment = {.offset = offset, .bytes = bytes};
    struct remo__writer writer = remo__writer_of(blob, blob_cap);
    if (offset > verbs->arena_bytes || bytes > verbs->arena_bytes - offset || bytes == 0
        || index >= REMO__SEGMENTS_MAX)
        return remo__fail(-EINVAL, "segment %u, %llu bytes at offset %#llx, does not lie in the arena", index,
                          (unsigned long long)bytes, (unsigned long long)offset);
    segment.region = region_register(verbs, offset, bytes);
    if (!segment.region)
        return errno == ENOMEM || errno == EAGAIN ? -ENOMEM : -EIO;
    segment.key = segment.region->lkey;
    remo__put_u32(&writer, REMO__VERBS_MAGIC);
    remo__put_u32(&writer, index);
    remo__put_u64(&writer, offset);
    remo__put_u64(&writer, bytes);
    remo__put_u32(&writer, segment.region->rkey);
    int rc = writer.bad
                 ? remo__fail(-EINVAL, "the description of a segment does not fit into %zu bytes", blob_cap)
                 : segments_add(verbs, &verbs->own, index, &segment);
    if (rc == 0)
        *ret_blob_bytes = blob_cap - (size_t)(writer.end - writer.at);
    else
        ibv_dereg_mr(segment.region);
    return rc;
}

static int verbs_map_segment(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset,
                             uint64_t bytes, const void *blob, size_t blob_bytes, int fd) {
    (void)fd;
    struct verbs_fabric *verbs = verbs_of(fabric);
    if (peer >= fabric->size)
        return remo__fail(-EINVAL, "no peer %u in a job of %u nodes", peer, fabric->size);
    struct verbs_contact *contact = atomic_load(&verbs->contacts[peer]);
    if (!contact)
        return remo__fail(-EHOSTDOWN, "node %u is not connected", peer);
    struct remo__reader reader = remo__reader_of(blob, blob_bytes);
    uint32_t magic = remo__get_u32(&reader), blob_index = remo__get_u32(&reader);
    uint64_t blob_offset = remo__get_u64(&reader), blob_size_bytes = remo__get_u64(&reader);
    struct verbs_segment segment = {.offset = offset, .bytes = bytes, .key = remo__get_u32(&reader)};
    if (!remo__reader_complete(&reader) || magic != REMO__VERBS_MAGIC || blob_index != index
        || blob_offset != offset || blob_size_bytes != bytes)
        return remo__fail(-EBADMSG, "node %u sent a malformed description of its segment %u", peer, index);
    int rc = segments_add(verbs, &contact->segments, index, &segment);
    return rc < 0 ? remo__fail_more(rc, "node %u", peer) : 0;
}

/* ---- peers ---- */

static void address_put(struct remo__writer *writer, const struct sockaddr_storage *address) {
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;
    bool is_four = address->ss_family == AF_INET;
    remo__put_u8(writer, is_four ? 4 : 6);
    remo__put_u16(writer, ntohs(is_four ? four->sin_port : six->sin6_port));
    if (is_four)
        remo__put_bytes(writer, &four->sin_addr, 4);
    else
        remo__put_bytes(writer, &six->sin6_addr, 16);
}

static void address_get(struct remo__reader *reader, struct sockaddr_storage *ret_address) {
    struct sockaddr_in *four = (void *)ret_address;
    struct sockaddr_in6 *six = (void *)ret_address;
    uint8_t family = remo__get_u8(reader);
    uint16_t port = htons(remo__get_u16(reader));
    memset(ret_address, 0, sizeof *ret_address);
    if (family == 4) {
        *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
        remo__get_bytes(reader, &four->sin_addr, 4);
    } else if (family == 6) {
        *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
        remo__get_bytes(reader, &six->sin6_addr, 16);
    } else {
        reader->bad = 1;
    }
}

static int verbs_describe(struct remo__fabric *fabric, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    struct verbs_fabric *verbs = verbs_of(fabric);
    struct remo__writer writer = remo__writer_of(blob, blob_cap);
    uint32_t magic = REMO__VERBS_MAGIC;
    remo__put_bytes(&writer, &magic, sizeof magic); /* native byte order: reveals a mismatch */
    remo__put_u32(&writer, fabric->rank);
    remo__put_u32(&writer, fabric->size);
    remo__put_u64(&writer, verbs->incarnation);
    remo__put_bytes(&writer, verbs->secret, sizeof verbs->secret);
    remo__put_u32(&writer, verbs->device.mtu_bytes);
    address_put(&writer, &verbs->device.address);
    if (writer.bad)
        return remo__fail(-EINVAL, "the description of fabric verbs does not fit into %zu bytes", blob_cap);
    *ret_blob_bytes = blob_cap - (size_t)(writer.end - writer.at);
    return 0;
}

static int contact_read(const struct verbs_fabric *verbs, uint32_t peer, const void *blob, size_t blob_bytes,
                        struct verbs_contact *contact) {
    struct remo__reader reader = remo__reader_of(blob, blob_bytes);
    uint32_t magic = 0;
    remo__get_bytes(&reader, &magic, sizeof magic);
    if (reader.bad || magic != REMO__VERBS_MAGIC)
        return remo__fail(
            -EPROTO,
            "node %u uses another version of fabric verbs or another byte order; start all nodes from the "
            "same build",
            peer);
    uint32_t rank = remo__get_u32(&reader), size = remo__get_u32(&reader);
    contact->rank = rank;
    contact->incarnation = remo__get_u64(&reader);
    remo__get_bytes(&reader, contact->secret, sizeof contact->secret);
    contact->mtu_bytes = remo__get_u32(&reader);
    address_get(&reader, &contact->address);
    if (!remo__reader_complete(&reader))
        return remo__fail(-EPROTO, "node %u sent a malformed description", peer);
    if (rank != peer || size != verbs->base.size)
        return remo__fail(-EPROTO, "node %u describes itself as node %u of %u, but this job has %u nodes",
                          peer, rank, size, verbs->base.size);
    return 0;
}

static int verbs_connect(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes) {
    struct verbs_fabric *verbs = verbs_of(fabric);
    if (peer >= fabric->size)
        return remo__fail(-EINVAL, "no peer %u in a job of %u nodes", peer, fabric->size);
    if (atomic_load(&verbs->contacts[peer]))
        return remo__fail(-EALREADY, "node %u is already connected", peer);
    struct verbs_contact *contact = calloc(1, sizeof *contact);
    if (!contact)
        return remo__fail(-ENOMEM, "no memory for node %u", peer);
    int rc = contact_read(verbs, peer, blob, blob_bytes, contact);
    if (rc < 0) {
        free(contact);
        return rc;
    }
    contact->older = verbs->kept;
    verbs->kept = contact;
    atomic_store(&verbs->contacts[peer], contact);
    atomic_store(&fabric->peers[peer].connected, 1);
    return 0;
}

static void verbs_disconnect(struct remo__fabric *fabric, uint32_t peer) {
    struct verbs_fabric *verbs = verbs_of(fabric);
    if (peer >= fabric->size)
        return;
    atomic_store(&fabric->peers[peer].connected, 0);
    atomic_store(&verbs->contacts[peer], NULL);
    remo__verbs_target_cut_off(verbs, peer);
    remo__verbs_endpoints_wake(verbs); /* their operations in flight to the peer fail at the next poll */
}

static bool verbs_is_lost(struct remo__fabric *fabric, uint32_t peer) {
    struct verbs_contact *contact =
        peer < fabric->size ? atomic_load(&verbs_of(fabric)->contacts[peer]) : NULL;
    return contact && atomic_load(&contact->is_lost);
}

/* ---- statistics ---- */

static uint64_t counter(const uint64_t *at) {
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static void verbs_wire(struct remo__fabric *fabric, struct remo__fabric_wire *ret_wire) {
    struct verbs_fabric *verbs = verbs_of(fabric);
    pthread_mutex_lock(&verbs->endpoints_lock);
    struct remo__fabric_wire sum = verbs->closed;
    for (const struct verbs_endpoint *endpoint = verbs->endpoints; endpoint; endpoint = endpoint->next) {
        sum.requests += counter(&endpoint->wire.requests);
        sum.posts += counter(&endpoint->wire.posts);
        sum.signalled += counter(&endpoint->wire.signalled);
        sum.inlined += counter(&endpoint->wire.inlined);
        sum.bytes += counter(&endpoint->wire.bytes);
    }
    pthread_mutex_unlock(&verbs->endpoints_lock);
    *ret_wire = sum;
}

const struct remo__fabric_ops remo__fabric_verbs = {
    .name = "verbs",
    .probe = verbs_probe,
    .open = verbs_open,
    .close = verbs_close,
    .add_segment = verbs_add_segment,
    .map_segment = verbs_map_segment,
    .describe = verbs_describe,
    .connect = verbs_connect,
    .disconnect = verbs_disconnect,
    .is_lost = verbs_is_lost,
    .endpoint_open = remo__verbs_endpoint_open,
    .endpoint_close = remo__verbs_endpoint_close,
    .post = remo__verbs_post,
    .poll = remo__verbs_poll,
    .wait = remo__verbs_wait,
    .imm_poll = remo__verbs_imm_poll,
    .imm_wait = remo__verbs_imm_wait,
    .imm_wake = remo__verbs_imm_wake,
    .take_arrivals = remo__fabric_takes_none,
    .wire = verbs_wire,
};
