/* queue.c - see remo/queue.h and objects/queue.h: opening, and the calls. */
#include "objects/queue.h"

#include <stdio.h>
#include <stdlib.h>

#include "node/access.h"
#include "objects/region.h"

#define SLOT_BYTES_DEFAULT 56u
#define CAPACITY_DEFAULT 1024u
#define CAPACITY_MAX (UINT64_C(1) << 32)

/* ---- open ---- */

/* Control thread; the node is cut off from our memory. */
static void on_leave(void *ctx, uint32_t node, enum remo_channel_state state) {
    struct remo_queue *queue = ctx;
    char *word = queue->slots_memory->own + REMO__QUEUE_CUT_OFF + node / 64 * 8;
    (void)state;
    remo__store(word, remo__load(word) | UINT64_C(1) << node % 64);
    atomic_fetch_add_explicit(&queue->deaths, 1, memory_order_release);
    remo__wake(queue->node);
}

static int check_options(const struct remo_queue *queue, const struct remo_nodeset *participants) {
    if (!remo_nodeset_has(participants, queue->home))
        return remo__fail(-EINVAL, "node %u is to be the home of a queue but does not participate",
                          queue->home);
    if (queue->slot_bytes > REMO_QUEUE_SLOT_BYTES_MAX)
        return remo__fail(-EINVAL, "slot_bytes is %u, at most %u are allowed", queue->slot_bytes,
                          REMO_QUEUE_SLOT_BYTES_MAX);
    if (queue->capacity > CAPACITY_MAX)
        return remo__fail(-EINVAL, "a capacity of %llu is too large, at most %llu are allowed",
                          (unsigned long long)queue->capacity, (unsigned long long)CAPACITY_MAX);
    return 0;
}

static void lay_out(struct remo_queue *queue, const struct remo_nodeset *participants) {
    for (uint32_t node = remo__nodeset_next(participants, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(participants, node + 1))
        queue->members[queue->member_count++] = (uint16_t)node;
    uint64_t per_node = (queue->capacity + queue->member_count - 1) / queue->member_count;
    queue->capacity = per_node * queue->member_count;
    queue->stride = (uint32_t)remo__align_up(REMO__SLOT_HEAD_BYTES + queue->slot_bytes, REMO__CACHE_LINE);
}

static int open_channel(struct remo_queue *queue, struct remo_channel *parent, const char *name,
                        const struct remo_nodeset *participants) {
    char type[REMO__TYPE_BYTES_MAX + 1];
    struct remo_nodeset home = {0};
    struct remo_channel_options options = {.participants = *participants, .ctx = queue, .on_leave = on_leave};
    uint64_t slots_bytes = REMO__QUEUE_SLOTS + queue->capacity / queue->member_count * queue->stride;
    uint32_t home_index = 0, slots_index = 0;
    snprintf(type, sizeof type, "queue of %llu elements of %u bytes at node %u",
             (unsigned long long)queue->capacity, queue->slot_bytes, queue->home);
    remo_nodeset_add(&home, queue->home);
    int rc = remo_channel_open(parent, name, type, &options, &queue->channel);
    if (rc != 0)
        return rc;
    queue->node = remo_channel_node(queue->channel);
    uint64_t own_home_bytes = queue->node->rank == queue->home ? REMO__QUEUE_HOME_BYTES : 0;
    rc = remo_channel_add_memory(queue->channel, "home", own_home_bytes, REMO__QUEUE_HOME_BYTES, &home,
                                 &home_index);
    if (rc == 0)
        rc = remo_channel_add_memory(queue->channel, "slots", slots_bytes, slots_bytes, NULL, &slots_index);
    queue->home_memory = &queue->channel->memories[home_index];
    queue->slots_memory = &queue->channel->memories[slots_index];
    return rc;
}

int remo_queue_open(struct remo_channel *parent, const char *name, const struct remo_queue_options *options,
                    struct remo_queue **ret_queue) {
    REMO__REQUIRE(ret_queue);
    static const struct remo_queue_options all_default;
    const struct remo_queue_options *asked = options ? options : &all_default;
    struct remo_nodeset participants;
    int rc = remo__participants_of(parent, &asked->participants, &participants);
    if (rc == 0)
        rc = remo__needs_coherence(parent, "a queue");
    if (rc != 0)
        return rc;
    struct remo_queue *queue = aligned_alloc(REMO__CACHE_LINE, sizeof *queue);
    if (!queue)
        return remo__fail(-ENOMEM, "no memory for queue %s", name ? name : "");
    *queue = (struct remo_queue){.home = asked->home,
                                 .slot_bytes = asked->slot_bytes ? asked->slot_bytes : SLOT_BYTES_DEFAULT,
                                 .capacity = asked->capacity ? asked->capacity : CAPACITY_DEFAULT};
    rc = check_options(queue, &participants);
    if (rc == 0) {
        lay_out(queue, &participants);
        rc = open_channel(queue, parent, name, &participants);
    }
    if (rc != 0) {
        remo_queue_close(queue);
        return rc;
    }
    *ret_queue = queue;
    rc = remo_channel_join(queue->channel);
    if (rc != 0) {
        *ret_queue = NULL;
        remo_queue_close(queue);
    }
    return rc;
}

void remo_queue_close(struct remo_queue *queue) {
    if (!queue)
        return;
    remo__queue_forget_kept(queue);
    remo_channel_close(queue->channel);
    free(queue);
}

struct remo_channel *remo_queue_channel(struct remo_queue *queue) {
    return queue ? queue->channel : NULL;
}

/* ---- push, pop ---- */

static int begin(struct remo_queue *queue, enum remo__queue_side side, struct remo__queue_op *op) {
    *op = (struct remo__queue_op){.queue = queue,
                                  .side = side,
                                  .thread = remo__thread(queue->node),
                                  .seen_deaths = atomic_load_explicit(&queue->told, memory_order_relaxed)};
    if (remo__unlikely(!op->thread))
        return -EAGAIN;
    int rc = remo__queue_news(op);
    return rc != 0 ? rc : remo__channel_check_peer(queue->channel, queue->home);
}

/* Try at once; wait if that is not possible and allowed. */
static int finish(struct remo__queue_op *op, int (*attempt)(void *ctx), uint64_t timeout_ns,
                  const char *sentence) {
    int rc = attempt(op);
    if (remo__likely(rc == 1))
        return 0;
    if (rc == 0)
        rc = timeout_ns == 0 ? -ETIMEDOUT : remo__queue_wait(op, attempt, remo__deadline(timeout_ns));
    return rc == -ETIMEDOUT ? remo__fail_static(rc, sentence) : rc;
}

int remo_queue_push(struct remo_queue *queue, const void *data, size_t size_bytes, uint64_t timeout_ns) {
    struct remo__queue_op op;
    if (remo__unlikely(!queue || (!data && size_bytes > 0)))
        return remo__fail(-EINVAL, "a push needs a queue and an element");
    if (remo__unlikely(size_bytes > queue->slot_bytes))
        return remo__fail(
            -EMSGSIZE,
            "an element of queue %s has at most %u bytes, not %zu; open it with a larger slot_bytes",
            remo_channel_name(queue->channel), queue->slot_bytes, size_bytes);
    int rc = begin(queue, REMO__QUEUE_TAIL, &op);
    if (rc != 0)
        return rc;
    op.data = data ? data : "";
    op.size = size_bytes;
    return finish(&op, remo__queue_try_push, timeout_ns,
                  "the queue is full, and stayed so until the timeout");
}

int remo_queue_pop(struct remo_queue *queue, void *buffer, size_t buffer_bytes, size_t *ret_size_bytes,
                   uint64_t timeout_ns) {
    struct remo__queue_op op;
    if (remo__unlikely(!queue || !buffer || !ret_size_bytes))
        return remo__fail(-EINVAL, "a pop needs a queue, a buffer and a place for the size");
    int rc = begin(queue, REMO__QUEUE_HEAD, &op);
    if (rc != 0)
        return rc;
    op.buffer = buffer;
    op.buffer_bytes = buffer_bytes;
    rc = finish(&op, remo__queue_try_pop, timeout_ns, "the queue is empty, and stayed so until the timeout");
    if (rc == 0 || rc == -EMSGSIZE)
        *ret_size_bytes = op.size;
    if (remo__unlikely(rc == -EMSGSIZE))
        return remo__fail(rc,
                          "cannot pop from queue %s: its first element has %zu bytes, and the buffer %zu; "
                          "pop it with a larger buffer",
                          remo_channel_name(queue->channel), op.size, buffer_bytes);
    return rc;
}
