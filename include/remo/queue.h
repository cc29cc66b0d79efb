/* queue.h - bounded FIFO queue in network memory: any node pushes, any node pops.
 *
 * Model:   `capacity` slots striped over the participants. The claim word of a slot states the lap
 *          for which the slot is free, or the node that claimed it. It changes by compare-and-swap
 *          only. A push claims the first free slot and then fills it. A pop copies the first filled
 *          slot and then frees it. Two words at the home approximate both positions, and have a
 *          flag for waiters.
 * Layout:  slot = {u64 claim; u64 checksum; u64 ticket and size; data[slot_bytes]}, cache-line
 *          aligned. With slot_bytes of 4096 or more, data begins at byte 64 of the slot, except elements of
 *          at most 1000 bytes where memory is not mapped. Home: 256 bytes. Each participant: 192 bytes more,
 *          for doorbells and the set of nodes that it has cut off.
 * Cost:    uncontended:
 *          - push, not full: 2 atomics and 1 write; elements above 1000 bytes, and on shm all
 *            elements: 1 write more; on fabrics where a completed write may not be placed: 1 read
 *            more for each write;
 *          - pop, not empty: 1 read and 2 atomics; elements above 1000 bytes, and on shm all
 *            elements: 1 read more;
 *          - push, full: 1 atomic;
 *          - pop, empty: 1 read, or 2 while a push fills a slot, and 1 more after a participant
 *            failed or left.
 *          Further operations:
 *          - after pushes (pops) of other nodes: 1 read and 1 atomic (2 reads) more, and 1 atomic
 *            with concurrent ones. On shm, after several such calls: 1 read more each, until at
 *            most 3 of them have followed no call of another node;
 *          - with waiting nodes: 1 read, 1 atomic, and 1 write (notify) to each of them;
 *          - a wait: 3 to 5 atomics for its beginning and end, and one retry every 5 s. The retries
 *            come every 20 ms in three cases: a participant has failed or left; a failed push of this
 *            node keeps its slot; concurrent calls or a failed operation prevented the announcement;
 *          - after a failed push that frees its slot: 2 reads, and 1 write (notify) to each waiting node.
 * Order:   FIFO and linearizable. A push happens before the pop that returns its element.
 * Caches:  without hardware coherence (see region.h) open returns -EOPNOTSUPP.
 * Failure: if the home fails, calls return -EHOSTDOWN (-ENOTCONN if it closed the queue). If
 *          another participant fails or closes the queue, waiting calls and the next call of each
 *          node return -EHOSTDOWN, once and without effect. The elements in its slots are lost; the
 *          others stay in the queue, in order. A node that fails during a push has pushed its
 *          element or not; during a pop, it may have removed the element. Completed pushes into
 *          slots of nodes that are up are never lost, and no element is returned twice. A call that
 *          times out has no effect. After -EIO the outcome may be unknown: see push and pop. A pop
 *          waits for a push that has claimed its slot and has not filled it. Without time to wait,
 *          the pop returns -ETIMEDOUT, as if the queue were empty. On shm a process that was declared
 *          failed and resumes may destroy one element (docs/memory-model.md, "Failure").
 * Limit:   a slot holds 2^39 elements in its lifetime: at full speed half a day with capacity 1, and a
 *          year with the default.
 * Threads: any. On fabrics that are not mapped, pushes of one thread's tasks (task.h) to a queue
 *          take turns.
 * Source:  LOCO 5.4; Morrison and Afek, PPoPP 2013. Differs in: slots are claimed by
 *          compare-and-swap instead of tickets by fetch-and-add, so no failed or timed-out
 *          operation holds a ticket. The protocol is described in docs/internals/queue.md.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_QUEUE_SLOT_BYTES_MAX (1u << 20)
#define REMO_QUEUE_NO_ELEMENT SIZE_MAX /* *ret_size_bytes of a failed pop that returns no element */

struct remo_queue;

struct remo_queue_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint32_t home;                    /* a participant; default 0 */
    uint32_t slot_bytes;              /* largest element; default 56, at most REMO_QUEUE_SLOT_BYTES_MAX */
    uint64_t capacity;                /* slots, rounded up to a multiple of the participants; default 1024 */
};

/* Open the queue `name` below `parent`; `options` may be NULL. The options are the same on every
 * participant. Does not wait for peers to open.
 * Errors:
 *   -EINVAL  an option is out of range
 *   others   those of remo_channel_open and remo_channel_add_memory */
REMO_API int remo_queue_open(struct remo_channel *parent, const char *name,
                             const struct remo_queue_options *options, struct remo_queue **ret_queue);
/* Close the queue. The elements in this node's slots are lost to all participants. NULL has no
 * effect. */
REMO_API void remo_queue_close(struct remo_queue *queue);
REMO_API struct remo_channel *remo_queue_channel(struct remo_queue *queue);

/* Append the `size_bytes` bytes at `data` (0 to slot_bytes). `data` may be reused on return. Blocks
 * up to `timeout_ns` (0: try once). If the owner of the slot fails, or the network reports an
 * error, the element was pushed at most once, and the sentence states whether the outcome is
 * unknown. If the owner is up, pops wait at the slot until the owner answers and a later call on
 * this node frees the slot. The next push of this thread frees the slot first, and blocks for
 * op_timeout_ns longer at most. If the owner does not answer, it returns -EIO without effect.
 * Errors:
 *   -ETIMEDOUT  the queue is full, or other nodes were faster until the timeout
 *   -EMSGSIZE   the element is longer than slot_bytes
 *   -EHOSTDOWN  the home, or a participant, has failed or left
 *   -ENOTCONN   the home has closed the queue
 *   -EIO        the network reported an error; the sentence states the outcome. Or an earlier push
 *               of this thread failed, and may still write to its slot: no element was pushed
 *   -EINVAL     an argument is NULL */
REMO_API int remo_queue_push(struct remo_queue *queue, const void *data, size_t size_bytes,
                             uint64_t timeout_ns);
/* Remove the first element and copy it to `buffer`. The contents of `buffer` are undefined after an
 * error other than -EIO. Blocks up to `timeout_ns` (0: try once).
 * Errors:
 *   -ETIMEDOUT  the queue is empty, or other nodes were faster until the timeout
 *   -EMSGSIZE   the first element has *ret_size_bytes, more than `buffer_bytes`; it stays in the
 *               queue
 *   -EHOSTDOWN  the home, or a participant, has failed or left
 *   -ENOTCONN   the home has closed the queue
 *   -EIO        the network reported an error. If *ret_size_bytes is not REMO_QUEUE_NO_ELEMENT,
 *               `buffer` has the first element, and the outcome is unknown: no other pop returns
 *               the element, or it stays in the queue. Otherwise `buffer` has no element, and none was
 *               removed; only an element above 1000 bytes may have been removed and lost, as the
 *               sentence then states
 *   -EINVAL     an argument is NULL */
REMO_API int remo_queue_pop(struct remo_queue *queue, void *buffer, size_t buffer_bytes,
                            size_t *ret_size_bytes, uint64_t timeout_ns);

REMO_END
