/* buffer.c - implements the buffers of remo/node.h (LOCO's mem_refs, A.2). A buffer belongs to a thread, so
 * taking and returning it needs no lock. */
#include <errno.h>

#include "node/arena.h"
#include "remote/thread.h"

int remo_buffer_get(struct remo_node *node, void **ret_buffer) {
    REMO__REQUIRE(node);
    REMO__REQUIRE(ret_buffer);
    struct remo__thread *thread = remo__thread(node);
    if (!thread)
        return remo__last_code();
    if (remo__unlikely(!thread->buffers)) {
        uint64_t offset;
        int rc =
            remo__arena_alloc(node->arena, (uint64_t)REMO_BUFFERS_PER_THREAD * REMO_BUFFER_BYTES, &offset);
        if (rc != 0)
            return rc;
        thread->buffers = remo__arena_base(node->arena) + offset;
        thread->buffers_free = UINT32_MAX;
    }
    if (remo__unlikely(thread->buffers_free == 0))
        return remo__fail_static(-ENOBUFS,
                                 "all buffers of this thread are in use; return some with remo_buffer_put");
    uint32_t index = (uint32_t)__builtin_ctz(thread->buffers_free);
    thread->buffers_free &= thread->buffers_free - 1;
    *ret_buffer = thread->buffers + (uint64_t)index * REMO_BUFFER_BYTES;
    return 0;
}

void remo_buffer_put(struct remo_node *node, void *buffer) {
    struct remo__thread *thread = node ? remo__thread(node) : NULL;
    if (!buffer || !thread)
        return;
    uint64_t at = (uint64_t)((uintptr_t)buffer - (uintptr_t)thread->buffers);
    if (!thread->buffers || at >= (uint64_t)REMO_BUFFERS_PER_THREAD * REMO_BUFFER_BYTES
        || at % REMO_BUFFER_BYTES != 0)
        remo__log(&node->log, REMO_LOG_ERROR,
                  "cannot return buffer %p: it is not a buffer of this thread; return it in the thread that "
                  "took it",
                  buffer);
    else
        thread->buffers_free |= 1u << at / REMO_BUFFER_BYTES;
}
