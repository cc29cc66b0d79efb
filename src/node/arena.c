/* arena.c - implements arena.h: segments of network memory, and allocation in them (memory/ranges.h).
 *
 * Memory at and above `zero_from` was never allocated, so it is zero; memory below is cleared when it is
 * allocated. A segment is published only after the fabric has registered it. */
#include "node/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "memory/ranges.h"
#include "memory/segment.h"
#include "fabric/access.h"

#define SEGMENT_ALIGN REMO__SEGMENT_ALIGN_BYTES
#define BIG_BYTES (1u << 20)       /* pieces of this size and more start on a huge page */
#define FLUSH_BYTES 64u            /* fences read in [private_bytes, private_bytes + FLUSH_BYTES) */
#define LEAST_BYTES (64ull << 20)  /* the smallest reservation, unless arena_bytes is set */
#define SPARE_BYTES (256ull << 20) /* address space left for stacks, heaps and libraries */
#define GROWTH 16u                 /* a new segment has at least 1/GROWTH of the committed size */

struct segment {
    uint64_t offset, bytes;
    int fd;
    bool mapped; /* by this node's fabric, as its own peer */
    uint32_t blob_bytes;
    uint8_t blob[REMO__BLOB_BYTES_MAX];
};

/* `growth` is held while a segment is made, which may take long; `lock` is held briefly, and may be taken
 * inside `growth`. */
struct remo__arena {
    struct remo_node *node;
    pthread_mutex_t growth;
    pthread_mutex_t lock;
    char *base;
    uint64_t reserved, segment_bytes;
    uint64_t limit;     /* the smallest reservation of the job; under lock until `frozen`, then constant */
    bool is_set;        /* `reserved` was set by the program or the user */
    bool frozen;        /* under lock */
    uint64_t committed; /* under growth */
    char *memory_dir;
    struct segment *segments[REMO__SEGMENTS_MAX];
    uint32_t segment_count;   /* changed under both */
    struct segment *pending;  /* the next one: registered, but not yet published; under growth */
    struct remo__ranges free; /* under lock */
    uint64_t zero_from;       /* memory from this offset on was never allocated, and is zero; under lock */
    bool announced[REMO_NODES_MAX];
};

static int send_segment(struct remo__arena *arena, uint32_t index, uint32_t peer) {
    const struct segment *segment = arena->segments[index];
    uint8_t frame[REMO__BLOB_BYTES_MAX + 64];
    struct remo__writer writer = remo__writer_of(frame, sizeof frame);
    remo__put_u32(&writer, index);
    remo__put_u64(&writer, segment->offset);
    remo__put_u64(&writer, segment->bytes);
    remo__put_u32(&writer, segment->blob_bytes);
    remo__put_bytes(&writer, segment->blob, segment->blob_bytes);
    return remo__control_send(arena->node->control, peer, REMO__NODE_FRAME_SEGMENT, frame,
                              (size_t)(writer.at - frame), segment->fd);
}

static int register_segment(struct remo__arena *arena, struct segment *segment) {
    struct remo_node *node = arena->node;
    size_t blob_bytes = 0;
    pthread_mutex_lock(&node->fabric_lock);
    int rc =
        node->fabric->ops->add_segment(node->fabric, arena->segment_count, segment->offset, segment->bytes,
                                       segment->fd, segment->blob, sizeof segment->blob, &blob_bytes);
    pthread_mutex_unlock(&node->fabric_lock);
    segment->blob_bytes = (uint32_t)blob_bytes;
    return rc;
}

/* Map a segment as this node's own peer. A second call has no effect. */
static int map_segment(struct remo__arena *arena, struct segment *segment) {
    struct remo_node *node = arena->node;
    if (segment->mapped)
        return 0;
    pthread_mutex_lock(&node->fabric_lock);
    int rc = node->fabric->ops->map_segment(node->fabric, node->rank, arena->segment_count, segment->offset,
                                            segment->bytes, segment->blob, segment->blob_bytes, segment->fd);
    pthread_mutex_unlock(&node->fabric_lock);
    segment->mapped = rc == 0;
    return rc;
}

/* Return the size of the next segment if `bytes` are needed; 0, with the sentence set: no room. */
static uint64_t growth_for(const struct remo__arena *arena, uint64_t bytes) {
    uint64_t room = arena->limit - arena->committed, need = remo__align_up(bytes, SEGMENT_ALIGN);
    uint64_t target = remo__max(need, remo__max(arena->segment_bytes, arena->committed / GROWTH));
    if (need <= room && arena->segment_count < REMO__SEGMENTS_MAX)
        return remo__align_up(remo__min(target, room), SEGMENT_ALIGN);
    remo__fail(
        -ENOSPC,
        "cannot allocate %llu bytes: the arena has grown to %llu of its %llu bytes, in %u of at most %u "
        "segments; raise arena_bytes or segment_bytes in struct remo_config",
        (unsigned long long)bytes, (unsigned long long)arena->committed, (unsigned long long)arena->limit,
        arena->segment_count, REMO__SEGMENTS_MAX);
    return 0;
}

/* Give a mapped segment to the allocator, and announce it to the peers. */
static int publish(struct remo__arena *arena, struct segment *segment) {
    struct remo_node *node = arena->node;
    pthread_mutex_lock(&arena->lock);
    uint32_t index = arena->segment_count;
    uint64_t keep = index == 0 ? remo__arena_first(arena) : 0;
    int rc = remo__ranges_add(&arena->free, segment->offset + keep, segment->bytes - keep);
    if (rc == 0) {
        arena->segment_count++;
        arena->segments[index] = segment;
        arena->committed += segment->bytes;
        atomic_store(&node->peers[node->rank].mapped_bytes, arena->committed);
        for (uint32_t peer = 0; peer < node->size; peer++)
            if (arena->announced[peer])
                (void)send_segment(arena, index, peer); /* fails only if the peer has left or failed */
    }
    pthread_mutex_unlock(&arena->lock);
    return rc;
}

/* Commit and register a segment of at least `least` bytes. */
static int make_segment(struct remo__arena *arena, uint64_t least, struct segment **ret_segment) {
    uint64_t bytes = growth_for(arena, least);
    if (bytes == 0)
        return -ENOSPC;
    struct segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return remo__fail(-ENOMEM, "no memory to describe a segment");
    bool huge;
    int rc = remo__segment_create(arena->memory_dir, bytes, &segment->fd, &huge);
    if (rc == -ENOSPC && bytes > remo__align_up(least, SEGMENT_ALIGN)) {
        /* there may still be memory for the requested bytes alone */
        bytes = remo__align_up(least, SEGMENT_ALIGN);
        rc = remo__segment_create(arena->memory_dir, bytes, &segment->fd, &huge);
    }
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
    *ret_segment = segment;
    return 0;
fail_unmap:
    mmap(arena->base + segment->offset, bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
fail_close:
    close(segment->fd);
fail_free:
    free(segment);
    return rc;
}

/* Make and publish a segment of at least `least` bytes. A fabric cannot undo a registration; so if an earlier
 * attempt failed after it, publish that segment instead, of whatever size. `growth` is held. */
static int grow(struct remo__arena *arena, uint64_t least) {
    int rc = arena->pending ? 0 : make_segment(arena, least, &arena->pending);
    if (rc == 0)
        rc = map_segment(arena, arena->pending);
    if (rc == 0)
        rc = publish(arena, arena->pending);
    if (rc == 0)
        arena->pending = NULL;
    return rc;
}

/* Return whether there is address space for `count` more reservations and SPARE_BYTES. All are released
 * again, because the fabric makes them when peers connect. */
static bool has_room(uint64_t bytes, uint32_t count) {
    void *taken[REMO_NODES_MAX];
    void *spare = remo__segment_reserve(SPARE_BYTES);
    uint32_t got = 0;
    while (spare && got < count && (taken[got] = remo__segment_reserve(bytes)))
        got++;
    for (uint32_t i = 0; i < got; i++)
        munmap(taken[i], bytes);
    if (spare)
        munmap(spare, SPARE_BYTES);
    return spare && got == count;
}

/* Reserve the arena. If the default exceeds what valgrind or a limit of address space allows, try a half of
 * it, then a quarter, and so on. */
static int reserve(struct remo__arena *arena, const struct remo__arena_config *config) {
    uint64_t bytes = remo__align_up(config->arena_bytes, SEGMENT_ALIGN);
    uint32_t windows = remo__min(config->peer_windows, REMO_NODES_MAX - 1);
    for (;; bytes /= 2) {
        bool is_last = config->is_set || bytes / 2 < LEAST_BYTES;
        arena->base = remo__segment_reserve(bytes);
        if (arena->base && (is_last || has_room(bytes, windows)))
            break;
        if (is_last)
            return -ENOMEM;
        if (arena->base)
            munmap(arena->base, bytes);
    }
    arena->reserved = arena->limit = bytes;
    if (bytes < config->arena_bytes)
        remo__log(&arena->node->log, REMO_LOG_INFO,
                  "the arena has %llu MiB, because there is no address space for the default of %llu MiB",
                  (unsigned long long)bytes >> 20, (unsigned long long)config->arena_bytes >> 20);
    return 0;
}

/* Copy the name of the memory directory, if there is one. */
static int copy_dir(struct remo__arena *arena, const char *dir) {
    arena->memory_dir = dir ? strdup(dir) : NULL;
    return !dir || arena->memory_dir ? 0
                                     : remo__fail(-ENOMEM, "no memory for the name of the memory directory");
}

int remo__arena_open(struct remo_node *node, const struct remo__arena_config *config,
                     struct remo__arena **ret_arena) {
    struct remo__arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return remo__fail(-ENOMEM, "no memory to describe the arena");
    arena->node = node;
    arena->is_set = config->is_set;
    if (copy_dir(arena, config->memory_dir) != 0 || reserve(arena, config) != 0) {
        free(arena->memory_dir);
        free(arena);
        return -ENOMEM;
    }
    arena->segment_bytes = remo__min(config->segment_bytes, arena->reserved);
    pthread_mutex_init(&arena->growth, NULL);
    pthread_mutex_init(&arena->lock, NULL);
    *ret_arena = arena;
    return 0;
}

int remo__arena_agree(struct remo__arena *arena, uint64_t bytes, bool is_set) {
    bool clash = (is_set && bytes > arena->reserved) || (arena->is_set && bytes < arena->reserved)
                 || (is_set && arena->is_set && bytes != arena->reserved);
    pthread_mutex_lock(&arena->lock);
    uint64_t least = arena->frozen ? arena->limit : arena->committed;
    clash = clash || bytes < least;
    if (!clash && bytes < arena->limit) /* false once it is frozen, when threads read it without the lock */
        arena->limit = bytes;
    pthread_mutex_unlock(&arena->lock);
    return clash ? -EPROTO : 0;
}

void remo__arena_freeze(struct remo__arena *arena) {
    pthread_mutex_lock(&arena->lock);
    arena->frozen = true;
    pthread_mutex_unlock(&arena->lock);
}

int remo__arena_start(struct remo__arena *arena) {
    pthread_mutex_lock(&arena->growth);
    int rc = grow(arena, remo__arena_first(arena) + REMO__CACHE_LINE);
    pthread_mutex_unlock(&arena->growth);
    return rc;
}

static void free_segment(struct segment *segment) {
    if (!segment)
        return;
    close(segment->fd);
    free(segment);
}

void remo__arena_close(struct remo__arena *arena) {
    if (!arena)
        return;
    for (uint32_t i = 0; i < arena->segment_count; i++)
        free_segment(arena->segments[i]);
    free_segment(arena->pending);
    remo__ranges_clear(&arena->free);
    munmap(arena->base, arena->reserved);
    pthread_mutex_destroy(&arena->lock);
    pthread_mutex_destroy(&arena->growth);
    free(arena->memory_dir);
    free(arena);
}

/* Zero memory by accesses to network memory (access.h), since peers have written there. */
static void clear(char *at, uint64_t bytes) {
    static const char zeros[4096];
    for (uint64_t done = 0; done < bytes; done += sizeof zeros)
        remo__copy_to(at + done, zeros, remo__min(bytes - done, sizeof zeros));
}

/* Take a zeroed range. It is cleared here, without the lock, and not when it is freed, because the control
 * thread frees memory too. */
static int take_zeroed(struct remo__arena *arena, uint64_t bytes, uint64_t alignment, uint64_t *ret_offset) {
    uint64_t offset = 0;
    pthread_mutex_lock(&arena->lock);
    int rc = remo__ranges_take(&arena->free, bytes, alignment, &offset);
    uint64_t zero_from = arena->zero_from;
    if (rc == 0)
        arena->zero_from = remo__max(zero_from, offset + bytes);
    pthread_mutex_unlock(&arena->lock);
    if (rc != 0)
        return rc;
#if defined REMO_SIM && !defined SIM_TIMED
    uint64_t zeros = remo__min(offset + bytes, zero_from); /* an earlier schedule may have used the rest */
    memset(arena->base + remo__max(offset, zeros), 0, offset + bytes - remo__max(offset, zeros));
#endif
    if (offset < zero_from)
        clear(arena->base + offset, remo__min(bytes, zero_from - offset));
    *ret_offset = offset;
    return 0;
}

int remo__arena_alloc_aligned(struct remo__arena *arena, uint64_t bytes, uint64_t alignment,
                              uint64_t *ret_offset) {
    if (bytes > arena->limit)
        return remo__fail(
            -ENOSPC,
            "cannot allocate %llu bytes: the arena is limited to %llu bytes; raise arena_bytes in struct "
            "remo_config",
            (unsigned long long)bytes, (unsigned long long)arena->limit);
    bytes = remo__align_up(remo__max(bytes, 1), REMO__CACHE_LINE);
    int rc = take_zeroed(arena, bytes, alignment, ret_offset);
    if (rc != -ENOSPC)
        return rc;
    pthread_mutex_lock(&arena->growth);
    do { /* other threads may take the new memory first; ends when the arena cannot grow */
        rc = take_zeroed(arena, bytes, alignment, ret_offset);
    } while (rc == -ENOSPC && (rc = grow(arena, bytes)) == 0);
    pthread_mutex_unlock(&arena->growth);
    return rc;
}

int remo__arena_alloc(struct remo__arena *arena, uint64_t bytes, uint64_t *ret_offset) {
    return remo__arena_alloc_aligned(arena, bytes, bytes >= BIG_BYTES ? SEGMENT_ALIGN : REMO__CACHE_LINE,
                                     ret_offset);
}

void remo__arena_free(struct remo__arena *arena, uint64_t offset, uint64_t bytes) {
    bytes = remo__align_up(remo__max(bytes, 1), REMO__CACHE_LINE);
    pthread_mutex_lock(&arena->lock);
    /* if there is no memory to record the range, it stays unused until the node closes */
    (void)remo__ranges_add(&arena->free, offset, bytes);
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

uint64_t remo__arena_first(const struct remo__arena *arena) {
    return remo__align_up(arena->node->fabric->private_bytes + FLUSH_BYTES, REMO__CACHE_LINE);
}

uint64_t remo__arena_reserved(const struct remo__arena *arena) {
    return arena->reserved;
}

bool remo__arena_is_set(const struct remo__arena *arena) {
    return arena->is_set;
}

#ifdef REMO_SIM
uint64_t remo__arena_used(const struct remo__arena *arena) {
    return arena->zero_from;
}
#endif
