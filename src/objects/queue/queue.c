/* queue.c - opens the queue, and implements the calls of remo/queue.h: one try, then a wait.
 * Invariant: after a participant failed or left, a call of this node returns -EHOSTDOWN before another call
 * uses the queue. The protocol is described in docs/internals/queue.md. */
#include "objects/queue/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects/region.h"

#define SLOT_BYTES_DEFAULT 56u
#define CAPACITY_DEFAULT 1024u
#define CAPACITY_MAX (UINT64_C(1) << 32)

/* ---- open ---- */

static void on_leave(void *ctx, uint32_t node, enum remo_channel_state state) {
    struct remo_queue *queue = ctx;
    (void)node, (void)state;
    atomic_fetch_add_explicit(&queue->departures, 1, memory_order_release);
    remo__wake(queue->node);
}

/* Runs on the control thread. The stored bit allows pops to free the slots that `node` has claimed and not
 * filled. The bit is not set while a later endpoint of the node may connect. */
static void on_cut_off(void *ctx, uint32_t node) {
    struct remo_queue *queue = ctx;
    if (!remo__channel_is_cut_off(queue->channel, node))
        return;
    char *word = queue->slots_memory->own + REMO__QUEUE_CUT_OFF + node / 64 * 8;
    remo__store(word, remo__load(word) | UINT64_C(1) << node % 64);
    remo__wake(queue->node);
}

static int check_options(const struct remo_queue *queue, const struct remo_nodeset *participants) {
    if (!remo_nodeset_has(participants, queue->home))
        return remo__fail(-EINVAL, "cannot open a queue with node %u as its home: the node is no participant",
                          queue->home);
    if (queue->slot_bytes > REMO_QUEUE_SLOT_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open a queue with slot_bytes = %u: the maximum is %u",
                          queue->slot_bytes, REMO_QUEUE_SLOT_BYTES_MAX);
    if (queue->capacity > CAPACITY_MAX)
        return remo__fail(-EINVAL, "cannot open a queue with a capacity of %llu slots: the maximum is %llu",
                          (unsigned long long)queue->capacity, (unsigned long long)CAPACITY_MAX);
    return 0;
}

static void lay_out(struct remo_queue *queue, const struct remo_nodeset *participants) {
    for (uint32_t node = remo__nodeset_next(participants, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(participants, node + 1))
        queue->members[queue->member_count++] = (uint16_t)node;
    uint64_t per_node = (queue->capacity + queue->member_count - 1) / queue->member_count;
    queue->capacity = per_node * queue->member_count;
    /* Copies of large elements take less time if source and destination have the same alignment. */
    queue->data_at =
        queue->slot_bytes >= REMO__QUEUE_ALIGNED_BYTES ? REMO__CACHE_LINE : REMO__SLOT_HEAD_BYTES;
    queue->stride = (uint32_t)remo__align_up(queue->data_at + queue->slot_bytes, REMO__CACHE_LINE);
}

static int open_channel(struct remo_queue *queue, struct remo_channel *parent, const char *name,
                        const struct remo_nodeset *participants) {
    char type[REMO__TYPE_BYTES_MAX + 1];
    struct remo_nodeset home = {0};
    struct remo_channel_options options = {
        .participants = *participants, .ctx = queue, .on_leave = on_leave, .on_cut_off = on_cut_off};
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
    const struct remo_queue_options *chosen = options ? options : &all_default;
    struct remo_nodeset participants;
    int rc = remo__select_participants(parent, &chosen->participants, &participants);
    if (rc == 0)
        rc = remo__require_coherence(parent, "a queue");
    if (rc != 0)
        return rc;
    struct remo_queue *queue = aligned_alloc(REMO__CACHE_LINE, sizeof *queue);
    if (!queue)
        return remo__fail(-ENOMEM, "no memory for queue %s", name ? name : "");
    memset(queue, 0, sizeof *queue);
    queue->home = chosen->home;
    queue->slot_bytes = chosen->slot_bytes ? chosen->slot_bytes : SLOT_BYTES_DEFAULT;
    queue->capacity = chosen->capacity ? chosen->capacity : CAPACITY_DEFAULT;
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
    remo__queue_drop_kept_claims(queue);
    remo_channel_close(queue->channel);
    free(queue);
}

struct remo_channel *remo_queue_channel(struct remo_queue *queue) {
    return queue ? queue->channel : NULL;
}

/* ---- push, pop ---- */

static int begin_op(struct remo_queue *queue, enum remo__queue_side side, struct remo__queue_op *op) {
    *op = (struct remo__queue_op){
        .queue = queue,
        .side = side,
        .thread = remo__thread(queue->node),
        .seen_departures = atomic_load_explicit(&queue->reported_departures, memory_order_relaxed)};
    if (remo__unlikely(!op->thread))
        return remo__last_code();
    int rc = remo__queue_report_departure(op);
    if (rc != 0 || remo__likely(remo__channel_is_connected(queue->channel, queue->home)))
        return rc;
    return remo__channel_check_peer(queue->channel, queue->home);
}

/* Try once, then wait up to `timeout_ns`. `sentence` explains -ETIMEDOUT. */
static int run_op(struct remo__queue_op *op, int (*attempt)(void *ctx), uint64_t timeout_ns,
                  const char *sentence) {
    int rc = attempt(op);
    if (remo__likely(rc == 1))
        return 0;
    if (rc == 0 && timeout_ns > 0) {
        op->deadline_ns = remo__deadline(timeout_ns);
        rc = remo__queue_wait(op, attempt);
    } else if (rc == 0) {
        rc = -ETIMEDOUT;
    }
    return rc == -ETIMEDOUT ? remo__fail_static(rc, sentence) : rc;
}

static int push(struct remo__queue_op *op, uint64_t timeout_ns) {
    int rc = remo__queue_retract_own_claim(op);
    return rc != 0
               ? rc
               : run_op(op, remo__queue_try_push, timeout_ns,
                        "cannot push: the queue was full, or other nodes pushed first, until the timeout");
}

/* A claim names its thread, so the pushes of a thread's tasks to one queue take turns. On a mapped fabric no
 * push waits while it has a claim. */
static int push_in_turn(struct remo__queue_op *op, uint64_t timeout_ns) {
    struct remo_queue *queue = op->queue;
    struct remo__task_lock *turn = &queue->turns[op->thread->index];
    uint64_t deadline_ns = turn->is_held ? remo__deadline(timeout_ns) : 0;
    int rc = remo__task_lock(queue->node, turn, deadline_ns);
    if (rc == -ETIMEDOUT)
        return remo__fail_static(rc, "cannot push: another task of this thread pushed until the timeout");
    if (rc != 0)
        return rc;
    rc = push(op, deadline_ns == 0 ? timeout_ns : remo__remaining_ns(deadline_ns));
    remo__task_unlock(turn);
    return rc;
}

int remo_queue_push(struct remo_queue *queue, const void *data, size_t size_bytes, uint64_t timeout_ns) {
    struct remo__queue_op op;
    if (remo__unlikely(!queue || (!data && size_bytes > 0)))
        return remo__fail(-EINVAL, "cannot push: the queue or the element is NULL");
    if (remo__unlikely(size_bytes > queue->slot_bytes))
        return remo__fail(-EMSGSIZE,
                          "cannot push %zu bytes to queue %s: its elements have at most %u; open it with a "
                          "larger slot_bytes",
                          size_bytes, remo_channel_name(queue->channel), queue->slot_bytes);
    int rc = begin_op(queue, REMO__QUEUE_TAIL, &op);
    if (rc != 0)
        return rc;
    op.data = data ? data : "";
    op.size_bytes = size_bytes;
    return remo__likely(queue->node->mapped) ? push(&op, timeout_ns) : push_in_turn(&op, timeout_ns);
}

int remo_queue_pop(struct remo_queue *queue, void *buffer, size_t buffer_bytes, size_t *ret_size_bytes,
                   uint64_t timeout_ns) {
    struct remo__queue_op op;
    if (remo__unlikely(!queue || !buffer || !ret_size_bytes))
        return remo__fail(-EINVAL, "cannot pop: the queue, the buffer or ret_size_bytes is NULL");
    int rc = begin_op(queue, REMO__QUEUE_HEAD, &op);
    if (rc != 0)
        return rc;
    op.buffer = buffer;
    op.buffer_bytes = buffer_bytes;
    rc = run_op(&op, remo__queue_try_pop, timeout_ns,
                "cannot pop: the queue was empty, or other nodes popped first, until the timeout");
    if (rc == 0 || rc == -EMSGSIZE)
        *ret_size_bytes = op.size_bytes;
    if (remo__unlikely(rc == -EIO))
        *ret_size_bytes = op.has_copy ? op.size_bytes : REMO_QUEUE_NO_ELEMENT;
    if (remo__unlikely(rc == -EMSGSIZE))
        return remo__fail(rc,
                          "cannot pop from queue %s: its first element has %zu bytes, the buffer %zu; "
                          "use a larger buffer",
                          remo_channel_name(queue->channel), op.size_bytes, buffer_bytes);
    return rc;
}
