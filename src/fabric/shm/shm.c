/* shm.c - implements shm.h: segments, windows of peers, connecting and cutting off.
 *
 * A window is published only after its first segment is mapped and verified, and is never unmapped while a
 * thread may use it. docs/memory-model.md describes the order of operations. */
#include "fabric/shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/threads_fence.h"
#include "memory/segment.h"

static const struct remo__fabric_caps shm_caps = {
    .mapped = true,
    .coherent = true,
    .atomics_coherent = true,
    .writes_ordered = true,
    .reads_ordered = true,
    .completion_placed = true,
    .read_flushes = false, /* a load passes earlier stores to other words in this CPU's store buffer */
    .local_registered = false,
    .inline_bytes = UINT32_MAX,
    .batch_max = REMO__SHM_BATCH_MAX,
    .depth = REMO__SHM_DEPTH,
    .message_bytes_max = REMO__SHM_MESSAGE_BYTES_MAX,
};

static int shm_probe(const struct remo__fabric_config *config) {
    (void)config;
    int fd = memfd_create("remo", MFD_CLOEXEC);
    if (fd < 0 && errno == ENOSYS)
        return remo__fail(-ENOSYS,
                          "cannot use fabric shm: the kernel lacks memfd_create; use Linux 3.17 or newer");
    if (fd >= 0)
        close(fd);
    return 0;
}

static int shm_open_fabric(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric) {
    uint64_t private_bytes = remo__shm_private_bytes(config->size);
    if (config->size == 0 || config->rank >= config->size || private_bytes > REMO__PRIVATE_BYTES_MAX)
        return remo__fail(-EINVAL, "fabric shm does not support node %u of %u", config->rank, config->size);
    if (config->arena_bytes < private_bytes || (uintptr_t)config->arena % REMO__SHM_PAGE_BYTES != 0)
        return remo__fail(-EINVAL,
                          "cannot use an arena of %llu bytes at %p: fabric shm needs whole pages, and %llu "
                          "bytes for its own state",
                          (unsigned long long)config->arena_bytes, (void *)config->arena,
                          (unsigned long long)private_bytes);
    struct shm_fabric *shm = calloc(1, sizeof *shm + config->size * sizeof shm->peers[0]);
    struct remo__fabric_peer *peers =
        aligned_alloc(REMO__CACHE_LINE, config->size * sizeof(struct remo__fabric_peer));
    if (!shm || !peers) {
        free(shm);
        free(peers);
        return remo__fail(-ENOMEM, "no memory for %u peers", config->size);
    }
    memset(peers, 0, config->size * sizeof *peers);
    shm->base = (struct remo__fabric){
        .ops = &remo__fabric_shm,
        .caps = shm_caps,
        .rank = config->rank,
        .size = config->size,
        .private_bytes = private_bytes,
        .peers = peers,
        .log = config->log,
    };
    shm->arena = config->arena;
    shm->arena_bytes = config->arena_bytes;
    *ret_fabric = &shm->base;
    return 0;
}

static void window_unmap(struct shm_fabric *shm, struct shm_window *window) {
    if (window->base)
        munmap(window->base, shm->arena_bytes);
    window->base = NULL;
}

static void shm_close(struct remo__fabric *fabric) {
    if (!fabric)
        return;
    struct shm_fabric *shm = shm_of(fabric);
    for (uint32_t i = 0; i < fabric->size; i++) {
        for (uint32_t w = 0; i != fabric->rank && w < REMO__SHM_WINDOWS_KEPT; w++)
            window_unmap(shm, &shm->peers[i].windows[w]);
    }
    free(fabric->peers);
    free(shm);
}

/* ---- segments ---- */

/* Write the description by which peers verify a segment. */
static int segment_describe(uint32_t index, uint64_t offset, uint64_t bytes, void *blob, size_t blob_cap,
                            size_t *ret_blob_bytes) {
    struct remo__writer writer = remo__writer_of(blob, blob_cap);
    remo__put_u64(&writer, REMO__SHM_MAGIC);
    remo__put_u32(&writer, index);
    remo__put_u64(&writer, offset);
    remo__put_u64(&writer, bytes);
    if (writer.bad)
        return remo__fail(-EINVAL, "the description of a segment does not fit into %zu bytes", blob_cap);
    *ret_blob_bytes = blob_cap - (size_t)(writer.end - writer.at);
    return 0;
}

static bool segment_fits(const struct shm_fabric *shm, uint64_t offset, uint64_t bytes) {
    return bytes > 0 && offset % REMO__SHM_PAGE_BYTES == 0 && bytes % REMO__SHM_PAGE_BYTES == 0
           && offset <= shm->arena_bytes && bytes <= shm->arena_bytes - offset;
}

static int segment_outside(uint32_t index, uint64_t offset, uint64_t bytes) {
    return remo__fail(-EINVAL,
                      "segment %u, %llu bytes at offset %#llx, does not consist of whole pages of the arena",
                      index, (unsigned long long)bytes, (unsigned long long)offset);
}

static int shm_add_segment(struct remo__fabric *fabric, uint32_t index, uint64_t offset, uint64_t bytes,
                           int fd, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    struct shm_fabric *shm = shm_of(fabric);
    if (index >= REMO__SEGMENTS_MAX || !segment_fits(shm, offset, bytes) || fd < 0)
        return segment_outside(index, offset, bytes);
    if (index == 0 && (offset != 0 || bytes < fabric->private_bytes))
        return remo__fail(-EINVAL, "segment 0 must begin at 0 and have at least %llu bytes",
                          (unsigned long long)fabric->private_bytes);
    int rc = segment_describe(index, offset, bytes, blob, blob_cap, ret_blob_bytes);
    if (rc < 0)
        return rc;
    remo__segment_populate(shm->arena + offset, bytes);
    if (index == 0) {
        struct remo__shm_header *header = (struct remo__shm_header *)shm->arena; /* fresh: all zero */
        header->magic = REMO__SHM_MAGIC;
        header->size = fabric->size;
        atomic_store(&header->bell.sleepers_fence, remo__machine_fence_register());
        fabric->doorbell = &header->bell;
        atomic_store(&shm->own, header);
    }
    return 0;
}

/* The window of the peer's current or last incarnation. */
static struct shm_window *window_of(struct shm_fabric *shm, uint32_t peer) {
    struct shm_peer *shm_peer = &shm->peers[peer];
    return &shm_peer->windows[(shm_peer->connect_count - 1) % REMO__SHM_WINDOWS_KEPT];
}

/* Check a peer's description of a segment against the announced values and the segments mapped before. */
static int segment_verify(struct shm_fabric *shm, uint32_t peer, uint32_t index, uint64_t offset,
                          uint64_t bytes, const void *blob, size_t blob_bytes) {
    struct remo__reader reader = remo__reader_of(blob, blob_bytes);
    uint64_t magic = remo__get_u64(&reader);
    uint32_t blob_index = remo__get_u32(&reader);
    uint64_t blob_offset = remo__get_u64(&reader), blob_size_bytes = remo__get_u64(&reader);
    if (!remo__reader_complete(&reader) || magic != REMO__SHM_MAGIC || blob_index != index
        || blob_offset != offset || blob_size_bytes != bytes || index >= REMO__SEGMENTS_MAX)
        return remo__fail(-EBADMSG, "node %u sent a malformed description of its segment %u", peer, index);
    if (!segment_fits(shm, offset, bytes))
        return segment_outside(index, offset, bytes);
    const struct shm_window *window = window_of(shm, peer);
    uint32_t count = atomic_load(&window->range_count);
    if (count == 0 && (offset != 0 || bytes < shm->base.private_bytes))
        return remo__fail(-EBADMSG, "the first segment of node %u does not begin its arena", peer);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t from = window->ranges[i].offset, have = atomic_load(&window->ranges[i].bytes);
        if (offset < from + have && from < offset + bytes)
            return remo__fail(-EEXIST, "segment %u of node %u overlaps an earlier segment", index, peer);
    }
    return 0;
}

/* Check that the first segment of a peer has the layout of this version and job. */
static int header_verify(struct shm_fabric *shm, uint32_t peer) {
    const struct remo__shm_header *header = (const void *)window_of(shm, peer)->base;
    if (header->magic == REMO__SHM_MAGIC && header->size == shm->base.size)
        return 0;
    return remo__fail(-EPROTO,
                      "the memory of node %u has the layout of another version or job; start all nodes from "
                      "the same build",
                      peer);
}

/* Only a Unix socket carries descriptors. */
static int no_descriptor(uint32_t peer) {
    return remo__fail(-EINVAL,
                      "cannot map the memory of node %u: no Unix socket connects the nodes, so they are on "
                      "different machines or in different containers; set REMO_FABRIC=ofi on all nodes",
                      peer);
}

/* Publish the mapped range [offset, offset + bytes) to posting threads. */
static int range_add(struct shm_window *window, uint64_t offset, uint64_t bytes) {
    uint32_t count = atomic_load(&window->range_count);
    struct shm_range *last = count > 0 ? &window->ranges[count - 1] : NULL;
    if (last && last->offset + atomic_load(&last->bytes) == offset) {
        atomic_fetch_add(&last->bytes, bytes);
        return 0;
    }
    if (count == REMO__SHM_RANGES_MAX)
        return remo__fail(-ENOSPC, "the arena of a peer has more than %u gaps", REMO__SHM_RANGES_MAX);
    window->ranges[count].offset = offset;
    atomic_store(&window->ranges[count].bytes, bytes);
    atomic_store(&window->range_count, count + 1);
    return 0;
}

/* Make the peer reachable. `base` is stored last: a reader that sees it also sees the doorbell. */
static void peer_publish(struct shm_fabric *shm, uint32_t peer) {
    struct shm_window *window = window_of(shm, peer);
    struct remo__shm_header *header = (struct remo__shm_header *)window->base;
    struct remo__fabric_peer *public = &shm->base.peers[peer];
    bool sleepers_fence =
        atomic_load(&header->bell.sleepers_fence) != 0 && shm->base.doorbell->sleepers_fence;
    atomic_store_explicit(&public->doorbell, &header->bell, memory_order_relaxed);
    atomic_store_explicit(&public->sleepers_fence, sleepers_fence, memory_order_relaxed);
    atomic_store_explicit(&shm->peers[peer].reachable, window, memory_order_release);
    atomic_store_explicit(&public->base, window->base, memory_order_release);
}

static int shm_map_segment(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset,
                           uint64_t bytes, const void *blob, size_t blob_bytes, int fd) {
    struct shm_fabric *shm = shm_of(fabric);
    if (peer >= fabric->size)
        return remo__fail(-EINVAL, "no peer %u in a job of %u nodes", peer, fabric->size);
    if (!atomic_load(&fabric->peers[peer].connected))
        return remo__fail(-EHOSTDOWN, "node %u is not connected", peer);
    int rc = segment_verify(shm, peer, index, offset, bytes, blob, blob_bytes);
    if (rc < 0)
        return rc;
    struct shm_window *window = window_of(shm, peer);
    if (peer != fabric->rank) {
        if (fd < 0)
            return no_descriptor(peer);
        rc = remo__segment_check(fd, offset, bytes);
        if (rc < 0)
            return remo__fail_more(rc, "segment %u of node %u", index, peer);
        if (!remo__segment_map(window->base + offset, bytes, fd))
            return -ENOMEM;
        madvise(window->base + offset, bytes, MADV_DONTDUMP); /* keeps peers' memory out of core files */
    }
    bool first = atomic_load(&window->range_count) == 0;
    if (first && (rc = header_verify(shm, peer)) < 0)
        return rc;
    rc = range_add(window, offset, bytes);
    if (rc == 0 && first)
        peer_publish(shm, peer);
    return rc;
}

/* ---- peers ---- */

static int shm_describe(struct remo__fabric *fabric, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    struct remo__writer writer = remo__writer_of(blob, blob_cap);
    remo__put_u64(&writer, REMO__SHM_MAGIC);
    remo__put_u32(&writer, fabric->rank);
    remo__put_u32(&writer, fabric->size);
    if (writer.bad)
        return remo__fail(-EINVAL, "the description of fabric shm does not fit into %zu bytes", blob_cap);
    *ret_blob_bytes = blob_cap - (size_t)(writer.end - writer.at);
    return 0;
}

static int peer_verify(struct shm_fabric *shm, uint32_t peer, const void *blob, size_t blob_bytes) {
    struct remo__reader reader = remo__reader_of(blob, blob_bytes);
    uint64_t magic = remo__get_u64(&reader);
    uint32_t rank = remo__get_u32(&reader), size = remo__get_u32(&reader);
    if (!remo__reader_complete(&reader) || magic != REMO__SHM_MAGIC)
        return remo__fail(-EPROTO,
                          "node %u uses another version of fabric shm; start all nodes from the "
                          "same build",
                          peer);
    if (rank != peer || size != shm->base.size)
        return remo__fail(-EPROTO, "node %u describes itself as node %u of %u, but this job has %u nodes",
                          peer, rank, size, shm->base.size);
    return 0;
}

/* A thread may still access the window of an earlier incarnation, and must not fault there. Private memory
 * replaces the failed peer's memory, which is then freed. If mmap fails, the window stays unchanged. */
static void window_blank(struct shm_fabric *shm, struct shm_window *window) {
    mmap(window->base, shm->arena_bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Open a window for the next incarnation of a peer. */
static int window_open(struct shm_fabric *shm, struct shm_peer *peer) {
    char *base = remo__segment_reserve(shm->arena_bytes);
    if (!base)
        return -ENOMEM;
    if (peer->connect_count >= 2)
        window_blank(shm, &peer->windows[(peer->connect_count - 2) % REMO__SHM_WINDOWS_KEPT]);
    struct shm_window *window = &peer->windows[peer->connect_count % REMO__SHM_WINDOWS_KEPT];
    window_unmap(shm, window);
    window->base = base;
    return 0;
}

static int shm_connect(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes) {
    struct shm_fabric *shm = shm_of(fabric);
    if (peer >= fabric->size)
        return remo__fail(-EINVAL, "no peer %u in a job of %u nodes", peer, fabric->size);
    if (atomic_load(&fabric->peers[peer].connected))
        return remo__fail(-EALREADY, "node %u is already connected", peer);
    int rc = peer_verify(shm, peer, blob, blob_bytes);
    if (rc < 0)
        return rc;
    struct shm_peer *shm_peer = &shm->peers[peer];
    if (peer == fabric->rank)
        shm_peer->windows[shm_peer->connect_count % REMO__SHM_WINDOWS_KEPT].base = shm->arena;
    else if ((rc = window_open(shm, shm_peer)) < 0)
        return rc;
    if (shm_peer->connect_count > 0)
        remo__shm_imm_restart(shm, peer);
    shm_peer->connect_count++;
    atomic_store(&window_of(shm, peer)->range_count, 0);
    atomic_store_explicit(&fabric->peers[peer].connected, 1, memory_order_release);
    remo__shm_imm_recall(shm, peer);
    return 0;
}

static void shm_disconnect(struct remo__fabric *fabric, uint32_t peer) {
    if (peer >= fabric->size)
        return;
    atomic_store(&fabric->peers[peer].base, NULL);
    atomic_store(&shm_of(fabric)->peers[peer].reachable, NULL);
    atomic_store(&fabric->peers[peer].connected, 0);
}

const struct remo__fabric_ops remo__fabric_shm = {
    .name = "shm",
    .maps_peers = true,
    .probe = shm_probe,
    .open = shm_open_fabric,
    .close = shm_close,
    .add_segment = shm_add_segment,
    .map_segment = shm_map_segment,
    .describe = shm_describe,
    .connect = shm_connect,
    .disconnect = shm_disconnect,
    .is_lost = remo__fabric_never_lost,
    .endpoint_open = remo__shm_endpoint_open,
    .endpoint_close = remo__shm_endpoint_close,
    .post = remo__shm_post,
    .poll = remo__shm_poll,
    .wait = remo__shm_wait,
    .imm_poll = remo__shm_imm_poll,
    .imm_wait = remo__shm_imm_wait,
    .imm_wake = remo__shm_imm_wake,
    .take_arrivals = remo__fabric_takes_none,
    .wire = remo__fabric_wire_none,
};
