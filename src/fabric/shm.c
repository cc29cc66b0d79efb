#include "fabric/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "fabric/segment.h"

static const struct remo__fabric_caps shm_caps = {
    .mapped = true,
    .coherent = true,
    .atomics_coherent = true,
    .writes_ordered = true,
    .reads_ordered = true,
    .completion_placed = true,
    .read_flushes = true,
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
        return remo__fail(-ENOSYS, "this kernel has no memfd_create: fabric shm needs Linux 3.17 or newer");
    if (fd >= 0)
        close(fd);
    return 0;
}

static int shm_open_fabric(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric) {
    uint64_t private_bytes = remo__shm_private_bytes(config->size);
    if (config->size == 0 || config->rank >= config->size || private_bytes > REMO__PRIVATE_BYTES_MAX)
        return remo__fail(-EINVAL, "fabric shm cannot be node %u of %u", config->rank, config->size);
    if (config->arena_bytes < private_bytes || (uintptr_t)config->arena % REMO__SHM_PAGE_BYTES != 0)
        return remo__fail(-EINVAL,
                          "an arena of %llu bytes at %p does not do: fabric shm needs whole pages, and %llu "
                          "bytes for itself",
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
        for (uint32_t life = 0; i != fabric->rank && life < REMO__SHM_LIVES_KEPT; life++)
            window_unmap(shm, &shm->peers[i].windows[life]);
    }
    free(fabric->peers);
    free(shm);
}

/* ---- segments ---- */

/* Of a segment, the owner tells what its peers need to recognise it. */
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
                      "segment %u, %llu bytes at offset %#llx, is not made of whole pages of the arena",
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
        fabric->doorbell = &header->bell;
        atomic_store(&shm->own, header);
    }
    return 0;
}

/* Of the life that is connected, or was last. */
static struct shm_window *window_of(struct shm_fabric *shm, uint32_t peer) {
    struct shm_peer *shm_peer = &shm->peers[peer];
    return &shm_peer->windows[(shm_peer->lives - 1) % REMO__SHM_LIVES_KEPT];
}

/* What a peer says about a segment, against what the caller was told and what the file is. */
static int segment_verify(struct shm_fabric *shm, uint32_t peer, uint32_t index, uint64_t offset,
                          uint64_t bytes, const void *blob, size_t blob_bytes) {
    struct remo__reader reader = remo__reader_of(blob, blob_bytes);
    uint64_t magic = remo__get_u64(&reader);
    uint32_t told_index = remo__get_u32(&reader);
    uint64_t told_offset = remo__get_u64(&reader), told_bytes = remo__get_u64(&reader);
    if (!remo__reader_complete(&reader) || magic != REMO__SHM_MAGIC || told_index != index
        || told_offset != offset || told_bytes != bytes || index >= REMO__SEGMENTS_MAX)
        return remo__fail(-EBADMSG, "node %u describes its segment %u in a way that makes no sense", peer,
                          index);
    if (!segment_fits(shm, offset, bytes))
        return segment_outside(index, offset, bytes);
    const struct shm_window *window = window_of(shm, peer);
    uint32_t count = atomic_load(&window->range_count);
    if (count == 0 && (offset != 0 || bytes < shm->base.private_bytes))
        return remo__fail(-EBADMSG, "the first segment of node %u does not begin its arena", peer);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t from = window->ranges[i].offset, have = atomic_load(&window->ranges[i].bytes);
        if (offset < from + have && from < offset + bytes)
            return remo__fail(-EEXIST, "segment %u of node %u overlaps one that came before", index, peer);
    }
    return 0;
}

/* The first segment of a peer is mapped: is it one, and of a job like ours? */
static int header_verify(struct shm_fabric *shm, uint32_t peer) {
    const struct remo__shm_header *header = (const void *)window_of(shm, peer)->base;
    if (header->magic == REMO__SHM_MAGIC && header->size == shm->base.size)
        return 0;
    return remo__fail(-EPROTO,
                      "the memory of node %u is laid out for another version or job: start all nodes from "
                      "the same build",
                      peer);
}

/* Make [offset, offset + bytes) known to those who post: it is mapped now. */
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

/* From now on the peer can be reached. */
static void peer_publish(struct shm_fabric *shm, uint32_t peer) {
    struct shm_window *window = window_of(shm, peer);
    struct remo__shm_header *header = (struct remo__shm_header *)window->base;
    struct remo__fabric_peer *public = &shm->base.peers[peer];
    atomic_store_explicit(&public->doorbell, &header->bell, memory_order_relaxed);
    atomic_store_explicit(&shm->peers[peer].reachable, window, memory_order_release);
    atomic_store_explicit(&public->base, window->base, memory_order_release);
}

static int shm_map_segment(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset,
                           uint64_t bytes, const void *blob, size_t blob_bytes, int fd) {
    struct shm_fabric *shm = shm_of(fabric);
    if (peer >= fabric->size)
        return remo__fail(-EINVAL, "there is no peer %u in a job of %u nodes", peer, fabric->size);
    if (!atomic_load(&fabric->peers[peer].connected))
        return remo__fail(-EHOSTDOWN, "node %u is not connected", peer);
    int rc = segment_verify(shm, peer, index, offset, bytes, blob, blob_bytes);
    if (rc < 0)
        return rc;
    struct shm_window *window = window_of(shm, peer);
    if (peer != fabric->rank) {
        rc = remo__segment_check(fd, offset, bytes);
        if (rc < 0)
            return remo__fail_more(rc, "segment %u of node %u", index, peer);
        if (!remo__segment_map(window->base + offset, bytes, fd))
            return -ENOMEM;
        madvise(window->base + offset, bytes, MADV_DONTDUMP); /* a core file is large enough without it */
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
    remo__put_u64(&writer, shm_of(fabric)->arena_bytes);
    if (writer.bad)
        return remo__fail(-EINVAL, "the description of fabric shm does not fit into %zu bytes", blob_cap);
    *ret_blob_bytes = blob_cap - (size_t)(writer.end - writer.at);
    return 0;
}

static int peer_verify(struct shm_fabric *shm, uint32_t peer, const void *blob, size_t blob_bytes) {
    struct remo__reader reader = remo__reader_of(blob, blob_bytes);
    uint64_t magic = remo__get_u64(&reader);
    uint32_t rank = remo__get_u32(&reader), size = remo__get_u32(&reader);
    uint64_t arena_bytes = remo__get_u64(&reader);
    if (!remo__reader_complete(&reader) || magic != REMO__SHM_MAGIC)
        return remo__fail(-EPROTO, "node %u does not speak this version of fabric shm", peer);
    if (rank != peer || size != shm->base.size)
        return remo__fail(-EPROTO, "node %u says it is node %u of %u, but this job has %u nodes", peer, rank,
                          size, shm->base.size);
    if (arena_bytes != shm->arena_bytes)
        return remo__fail(-EPROTO,
                          "node %u has an arena of %llu bytes, this node one of %llu: give all nodes "
                          "the same",
                          peer, (unsigned long long)arena_bytes, (unsigned long long)shm->arena_bytes);
    return 0;
}

/* A thread may still be inside the window of an earlier life, and must not fault there: memory of our own
 * takes the place of the dead peer's, which is free then. If the kernel refuses, all stays as it is. */
static void window_blank(struct shm_fabric *shm, struct shm_window *window) {
    mmap(window->base, shm->arena_bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Address space for one more life of a peer. */
static int window_open(struct shm_fabric *shm, struct shm_peer *peer) {
    char *base = remo__segment_reserve(shm->arena_bytes);
    if (!base)
        return -ENOMEM;
    if (peer->lives >= 2)
        window_blank(shm, &peer->windows[(peer->lives - 2) % REMO__SHM_LIVES_KEPT]);
    struct shm_window *window = &peer->windows[peer->lives % REMO__SHM_LIVES_KEPT];
    window_unmap(shm, window);
    window->base = base;
    return 0;
}

static int shm_connect(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes) {
    struct shm_fabric *shm = shm_of(fabric);
    if (peer >= fabric->size)
        return remo__fail(-EINVAL, "there is no peer %u in a job of %u nodes", peer, fabric->size);
    if (atomic_load(&fabric->peers[peer].connected))
        return remo__fail(-EALREADY, "node %u is connected already", peer);
    int rc = peer_verify(shm, peer, blob, blob_bytes);
    if (rc < 0)
        return rc;
    struct shm_peer *shm_peer = &shm->peers[peer];
    if (peer == fabric->rank)
        shm_peer->windows[shm_peer->lives % REMO__SHM_LIVES_KEPT].base = shm->arena;
    else if ((rc = window_open(shm, shm_peer)) < 0)
        return rc;
    if (shm_peer->lives > 0)
        remo__shm_imm_restart(shm, peer);
    shm_peer->lives++;
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
    .probe = shm_probe,
    .open = shm_open_fabric,
    .close = shm_close,
    .add_segment = shm_add_segment,
    .map_segment = shm_map_segment,
    .describe = shm_describe,
    .connect = shm_connect,
    .disconnect = shm_disconnect,
    .endpoint_open = remo__shm_endpoint_open,
    .endpoint_close = remo__shm_endpoint_close,
    .post = remo__shm_post,
    .poll = remo__shm_poll,
    .wait = remo__shm_wait,
    .imm_poll = remo__shm_imm_poll,
    .imm_wait = remo__shm_imm_wait,
    .imm_wake = remo__shm_imm_wake,
    .wire = remo__fabric_wire_none,
};
