/* arena.c - segments of network memory and a first-fit allocator over them. */
#include "node/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "fabric/segment.h"

#define SEGMENT_ALIGN REMO__SEGMENT_ALIGN_BYTES
#define BIG_BYTES     (1u << 20)   /* pieces from here on start on a huge page */
#define FLUSH_BYTES   64u          /* [private_bytes, +64) is what fences read */

struct segment {
    uint64_t offset, bytes;
    int fd;
    uint32_t blob_bytes;
    uint8_t blob[REMO__BLOB_BYTES_MAX];
};

struct piece { /* free memory, sorted by offset, never adjacent */
    uint64_t offset, bytes;
    struct piece *next;
};

struct remo__arena {
    struct remo_node *node;
    pthread_mutex_t lock;
    char *base;
    uint64_t reserved, segment_bytes, committed;
    char *memory_dir;
    struct segment *segments[REMO__SEGMENTS_MAX];
    uint32_t segment_count;
    struct piece *free;
    bool announced[REMO_NODES_MAX];
};

static int add_free(struct remo__arena *arena, uint64_t offset, uint64_t bytes) {
    struct piece **link = &arena->free, *before = NULL;
    while (*link && (*link)->offset < offset) {
        before = *link;
        link = &(*link)->next;
    }
    struct piece *after = *link;
    if (before && before->offset + before->bytes == offset) {
        before->bytes += bytes;
        if (after && before->offset + before->bytes == after->offset) {
            before->bytes += after->bytes;
            before->next = after->next;
            free(after);
        }
        return 0;
    }
    if (after && offset + bytes == after->offset) {
        after->offset = offset;
        after->bytes += bytes;
        return 0;
    }
    struct piece *piece = malloc(sizeof *piece);
    if (!piece)
        return -ENOMEM;
    *piece = (struct piece){.offset = offset, .bytes = bytes, .next = after};
    *link = piece;
    return 0;
}

/* Cut `bytes` out of a free piece; false when none fits. */
static int take_free(struct remo__arena *arena, uint64_t bytes, uint64_t align, uint64_t *ret_offset) {
    for (struct piece **link = &arena->free; *link; link = &(*link)->next) {
        struct piece *piece = *link;
        uint64_t start = remo__align_up(piece->offset, align);
        uint64_t end = piece->offset + piece->bytes;
        if (start > end || bytes > end - start)
            continue;
        uint64_t head = start - piece->offset, tail = end - start - bytes;
        if (head && tail) {
            struct piece *rest = malloc(sizeof *rest);
            if (!rest)
                return -ENOMEM;
            *rest = (struct piece){.offset = start + bytes, .bytes = tail, .next = piece->next};
            piece->next = rest;
            piece->bytes = head;
        } else if (head) {
            piece->bytes = head;
        } else if (tail) {
            piece->offset = start + bytes;
            piece->bytes = tail;
        } else {
            *link = piece->next;
            free(piece);
        }
        *ret_offset = start;
        return 0;
    }
    return -ENOSPC;
}

static int send_segment(struct remo__arena *arena, uint32_t index, uint32_t peer) {
    const struct segment *segment = arena->segments[index];
    uint8_t frame[REMO__BLOB_BYTES_MAX + 64];
    struct remo__writer writer = remo__writer_of(frame, sizeof frame);
    remo__put_u32(&writer, index);
    remo__put_u64(&writer, segment->offset);
    remo__put_u64(&writer, segment->bytes);
    remo__put_u32(&writer, segment->blob_bytes);
    remo__put_bytes(&writer, segment->blob, segment->blob_bytes);
    return remo__control_send(arena->node->control, peer, REMO__FRAME_SEGMENT, frame, (size_t)(writer.at - frame),
                              segment->fd);
}

/* With our own fabric, and as our own peer. */
static int register_segment(struct remo__arena *arena, struct segment *segment) {
    struct remo_node *node = arena->node;
    const struct remo__fabric_ops *ops = node->fabric->ops;
    size_t blob_bytes = 0;
    pthread_mutex_lock(&node->fabric_lock);
    int rc = ops->add_segment(node->fabric, arena->segment_count, segment->offset, segment->bytes, segment->fd,
                              segment->blob, sizeof segment->blob, &blob_bytes);
    segment->blob_bytes = (uint32_t)blob_bytes;
    if (rc == 0)
        rc = ops->map_segment(node->fabric, node->rank, arena->segment_count, segment->offset, segment->bytes,
                              segment->blob, blob_bytes, segment->fd);
    pthread_mutex_unlock(&node->fabric_lock);
    return rc;
}

/* Commit `bytes` more, register them, tell the peers, add them to the free list. The lock is held. */
static int grow(struct remo__arena *arena, uint64_t bytes) {
    struct remo_node *node = arena->node;
    bytes = remo__align_up(remo__max(bytes, arena->segment_bytes), SEGMENT_ALIGN);
    if (arena->segment_count == REMO__SEGMENTS_MAX || bytes > arena->reserved - arena->committed)
        return remo__fail(-ENOSPC, "the arena has %llu of %llu bytes in use and cannot grow by %llu more; raise arena_bytes "
                          "in struct remo_config", (unsigned long long)arena->committed,
                          (unsigned long long)arena->reserved, (unsigned long long)bytes);
    struct segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return remo__fail(-ENOMEM, "no memory to describe a segment");
    bool huge;
    int rc = remo__segment_create(arena->memory_dir, bytes, &segment->fd, &huge);
    if (rc != 0)
        goto fail_free;
    segment->offset = arena->committed;
    segment->bytes = bytes;
    if (!remo__segment_map(arena->base + segment->offset, bytes, segment->fd)) {
        rc = -ENOMEM;
        goto fail_close;
    }
    rc = register_segment(arena, segment);
    if (rc != 0)
        goto fail_unmap;
    uint32_t index = arena->segment_count++;
    arena->segments[index] = segment;
    arena->committed += bytes;
    atomic_store(&node->peers[node->rank].mapped_bytes, arena->committed);
    for (uint32_t peer = 0; peer < node->size; peer++)
        if (arena->announced[peer])
            (void)send_segment(arena, index, peer); /* it can only fail for a peer that is gone */
    uint64_t keep = index == 0 ? remo__align_up(node->fabric->private_bytes + FLUSH_BYTES, REMO__CACHE_LINE) : 0;
    return add_free(arena, segment->offset + keep, bytes - keep);
fail_unmap:
    mmap(arena->base + segment->offset, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
fail_close:
    close(segment->fd);
fail_free:
    free(segment);
    return rc;
}

int remo__arena_open(struct remo_node *node, uint64_t arena_bytes, uint64_t segment_bytes, const char *memory_dir,
                     struct remo__arena **ret_arena) {
    struct remo__arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return remo__fail(-ENOMEM, "no memory for the arena's description");
    arena->node = node;
    arena->reserved = remo__align_up(arena_bytes, SEGMENT_ALIGN);
    arena->segment_bytes = segment_bytes;
    arena->memory_dir = memory_dir ? strdup(memory_dir) : NULL;
    arena->base = remo__segment_reserve(arena->reserved);
    if (!arena->base || (memory_dir && !arena->memory_dir)) {
        if (arena->base)
            munmap(arena->base, arena->reserved);
        free(arena->memory_dir);
        free(arena);
        return -ENOMEM;
    }
    pthread_mutex_init(&arena->lock, NULL);
    *ret_arena = arena;
    return 0;
}

int remo__arena_start(struct remo__arena *arena) {
    pthread_mutex_lock(&arena->lock);
    int rc = grow(arena, arena->node->fabric->private_bytes + FLUSH_BYTES + SEGMENT_ALIGN);
    pthread_mutex_unlock(&arena->lock);
    return rc;
}

void remo__arena_close(struct remo__arena *arena) {
    if (!arena)
        return;
    for (uint32_t i = 0; i < arena->segment_count; i++) {
        close(arena->segments[i]->fd);
        free(arena->segments[i]);
    }
    while (arena->free) {
        struct piece *piece = arena->free;
        arena->free = piece->next;
        free(piece);
    }
    munmap(arena->base, arena->reserved);
    pthread_mutex_destroy(&arena->lock);
    free(arena->memory_dir);
    free(arena);
}

int remo__arena_alloc(struct remo__arena *arena, uint64_t bytes, uint64_t *ret_offset) {
    if (bytes > arena->reserved)
        return remo__fail(-ENOSPC, "%llu bytes were asked for, but the arena has room for %llu; raise arena_bytes in struct "
                          "remo_config", (unsigned long long)bytes, (unsigned long long)arena->reserved);
    bytes = remo__align_up(remo__max(bytes, 1), REMO__CACHE_LINE);
    uint64_t align = bytes >= BIG_BYTES ? SEGMENT_ALIGN : REMO__CACHE_LINE;
    pthread_mutex_lock(&arena->lock);
    int rc = take_free(arena, bytes, align, ret_offset);
    if (rc == -ENOSPC) {
        rc = grow(arena, bytes + (align > REMO__CACHE_LINE ? 0 : align));
        if (rc == 0)
            rc = take_free(arena, bytes, align, ret_offset);
    }
    pthread_mutex_unlock(&arena->lock);
    return rc;
}

void remo__arena_free(struct remo__arena *arena, uint64_t offset, uint64_t bytes) {
    bytes = remo__align_up(remo__max(bytes, 1), REMO__CACHE_LINE);
    memset(arena->base + offset, 0, bytes); /* what is given out is zeroed */
    pthread_mutex_lock(&arena->lock);
    (void)add_free(arena, offset, bytes); /* without memory for the note the piece stays unused until the node closes */
    pthread_mutex_unlock(&arena->lock);
}

int remo__arena_announce(struct remo__arena *arena, uint32_t peer) {
    int rc = 0;
    pthread_mutex_lock(&arena->lock);
    for (uint32_t i = 0; i < arena->segment_count && rc == 0; i++)
        rc = send_segment(arena, i, peer);
    arena->announced[peer] = rc == 0;
    pthread_mutex_unlock(&arena->lock);
    return rc;
}

void remo__arena_forget(struct remo__arena *arena, uint32_t peer) {
    pthread_mutex_lock(&arena->lock);
    arena->announced[peer] = false;
    pthread_mutex_unlock(&arena->lock);
}

char *remo__arena_base(const struct remo__arena *arena) {
    return arena->base;
}

uint64_t remo__arena_reserved(const struct remo__arena *arena) {
    return arena->reserved;
}
