/* thread.c - the state of each thread in a map, and its buffers for slots.
 *
 * On fabrics that are not mapped the buffers are in the arena, so the network accesses them without a copy. A
 * buffer that an operation in flight may still access is not reused. */
#include <errno.h>
#include <stdlib.h>

#include "systems/kv/kv.h"

#define SPARE_BUFFERS 2u /* `outgoing` and `image` */

static int make_buffers(const struct remo_kv *kv, struct remo__kv_thread *mine) {
    uint64_t reads = remo__min(REMO__KV_READS_MAX, 1 + REMO__KV_READS_BYTES / kv->shape.slot_bytes);
    uint32_t count = (uint32_t)reads + SPARE_BUFFERS;
    mine->scratch = aligned_alloc(REMO__CACHE_LINE, kv->shape.slot_bytes);
    if (!mine->scratch)
        return remo__fail(-ENOMEM, "no memory for a slot of %llu bytes",
                          (unsigned long long)kv->shape.slot_bytes);
    mine->outgoing = mine->image = mine->scratch;
    if (kv->node->mapped)
        return 0;
    mine->buffers_bytes = count * kv->shape.slot_bytes;
    int rc = remo__arena_alloc(kv->node->arena, mine->buffers_bytes, &mine->buffers_offset);
    if (rc != 0)
        return rc;
    mine->buffers = remo__arena_base(kv->node->arena) + mine->buffers_offset;
    mine->buffers_free = (UINT64_C(2) << (count - 1)) - 1;
    remo__kv_buffer_replace(mine, &mine->outgoing);
    remo__kv_buffer_replace(mine, &mine->image);
    return 0;
}

/* Only the thread with this index calls this for its index, so there is no race. */
struct remo__kv_thread *remo__kv_thread_make(struct remo_kv *kv, struct remo__thread *thread) {
    struct remo__kv_thread *mine = calloc(1, sizeof *mine);
    if (!mine) {
        remo__fail(-ENOMEM, "no memory for the state of a thread in map %s", remo_channel_name(kv->channel));
        return NULL;
    }
    mine->kv = kv;
    int rc = make_buffers(kv, mine);
    if (rc != 0) {
        free(mine->scratch);
        free(mine);
        remo__fail_more(rc, "map %s: the buffers of a thread", remo_channel_name(kv->channel));
        return NULL;
    }
    mine->thread = thread;
    mine->stats = remo__channel_counters(kv->slots->channel, thread);
    atomic_store_explicit(&kv->threads[thread->index], mine, memory_order_release);
    return mine;
}

/* Buffers that a late operation may access stay allocated until the node closes. */
void remo__kv_threads_close(struct remo_kv *kv) {
    bool are_unused = remo__node_quiescent(kv->node);
    for (uint32_t i = 0; i < REMO__THREADS_MAX; i++) {
        struct remo__kv_thread *mine = atomic_load(&kv->threads[i]);
        if (!mine)
            continue;
        if (mine->buffers && are_unused)
            remo__arena_free(kv->node->arena, mine->buffers_offset, mine->buffers_bytes);
        free(mine->scratch);
        free(mine);
    }
}

int remo__kv_buffer_take(struct remo__kv_thread *mine) {
    if (mine->buffers_free == 0)
        return -1;
    int index = __builtin_ctzll(mine->buffers_free);
    mine->buffers_free &= mine->buffers_free - 1;
    return index;
}

void remo__kv_buffer_give(struct remo__kv_thread *mine, uint32_t index) {
    mine->buffers_free |= UINT64_C(1) << index;
}

char *remo__kv_buffer(const struct remo__kv_thread *mine, uint32_t index) {
    return mine->buffers + index * mine->kv->shape.slot_bytes;
}

void remo__kv_buffer_replace(struct remo__kv_thread *mine, char **buffer) {
    int other = remo__kv_buffer_take(mine);
    *buffer = other < 0 ? NULL : remo__kv_buffer(mine, (uint32_t)other);
}

int remo__kv_buffer_ensure(struct remo__kv_thread *mine, char **buffer) {
    if (remo__likely(*buffer != NULL))
        return 0;
    remo__kv_buffer_replace(mine, buffer);
    if (*buffer)
        return 0;
    return remo__fail(-ENOBUFS, "cannot access a slot: all buffers of this thread are in use, by operations "
                                "in flight or by operations that timed out; wait for those in flight");
}
