/* tx_queue.h - a FIFO queue for transactions, which push and pop elements and change other items.
 *
 * Model:   a structure (structure.h), all of whose items belong to one owner: two counters, the front and
 *          the back, and one item for each element. Elements have ascending numbers. A push gives its element
 *          the number in the back, and increments the back. A pop deletes the element whose number is in the
 *          front, and increments the front. Both take effect when their transaction commits, together with
 *          its changes of tables and other queues. So an element is pushed only if the transaction's other
 *          changes take effect, and it is popped exactly once.
 *          The queue of queue.h differs: it is not part of a transaction, its elements are distributed over
 *          all nodes, and its calls can wait.
 * Use:     remo_tx_queue_open, then remo_channel_wait on
 *          remo_structure_channel(remo_tx_queue_structure(queue)). Open a transaction space (tx.h) with
 *          remo_tx_queue_structure(queue) among its structures. Then push and pop between remo_tx_begin and
 *          remo_tx_commit, or in the function that remo_tx_run calls. If a pop in that function returns
 *          -ENOENT, return 0: the commit then confirms that the queue was empty. See examples/outbox.c.
 *          Change the structure only by the functions below.
 * Layout:  share = {item of the front; item of the back; slots for elements}, each aligned to 64 bytes.
 *          Element n is in slot n modulo `capacity`. Its key is n, in 8 bytes; the keys of the front and the
 *          back are 2^64 - 1 and 2^64 - 2. The value of a counter has 8 bytes; an absent counter is 0.
 *          Numbers never wrap around.
 * Cost:    network operations, if this node is not the owner:
 *          - push: 1 read, for the first push of a transaction;
 *          - pop: 2 reads at the same time: the front, and the element that this node expects there. If other
 *            nodes have popped since the last pop of this node, or that pop was not committed, 1 more read
 *            follows. Further pops of a transaction: 1 read each. If the transaction has pushed the element
 *            itself, the reads are one after another;
 *          - commit: as tx.h states. If all items of the transaction have one owner: 1 call. So let the
 *            owner of the queue own the rows that change with it: see `owner`.
 *          A push uses two keys of the transaction, and a pop two, or three if the read of the expected
 *          element does not suffice. All pushes of a transaction share the key of the back, and all pops that
 *          of the front.
 *          Memory of each participant: the share, although only that of the owner is in use.
 * Order:   strictly serializable (tx.h). Elements are popped in the order in which the transactions that
 *          pushed them took effect, and those of one transaction in the order of its pushes.
 *          Before the commit, the result of a pop or count is as provisional as that of remo_tx_read: -ENOENT
 *          is certain only when remo_tx_commit or remo_tx_check has returned 0.
 * Conflict: of two transactions that push at the same time, one is in conflict; likewise of two that pop. A
 *          push and a pop are in conflict if the queue is empty; otherwise only if the pop needed a further
 *          read (see Cost). A count is in conflict with both.
 * Caches:  see structure.h.
 * Failure: if the owner fails, all elements are lost, and calls return -EHOSTDOWN. If another node fails,
 *          its transaction has pushed and popped all its elements, or none: see tx.h.
 *          A full queue: the commit returns -ENOSPC, and nothing has changed. The elements that the same
 *          transaction pops count as present. So does an element whose pop the owner has not applied yet:
 *          with changes at several owners, the commit can return before that.
 *          If the second of its two changes fails, a push or pop aborts the transaction: a later
 *          remo_tx_commit returns -ESTALE. Causes: the transaction has no room for the key or value, or a
 *          read of an element that it has pushed fails.
 * Threads: any, concurrently. Each has a transaction object of its own.
 * Source:  Storm 5.5 mentions a queue whose head and tail are cached at the caller. Differs in: only the
 *          front is cached. It selects what to read along with the front; the commit validates both.
 */
#pragma once

#include <remo/tx.h>

REMO_BEGIN

#define REMO_TX_QUEUE_CAPACITY_MAX (1u << 24)
#define REMO_TX_QUEUE_VALUE_BYTES_MAX (REMO_ITEM_BYTES_MAX - 8u)

struct remo_tx_queue;

struct remo_tx_queue_options {        /* 0 selects the default of a number */
    struct remo_nodeset participants; /* empty: the parent's */
    uint32_t owner;                   /* a participant; 0: the first one */
    uint32_t capacity;                /* elements, at most REMO_TX_QUEUE_CAPACITY_MAX; default 1024 */
    uint32_t value_bytes_max;         /* largest element; default 80; at most REMO_TX_QUEUE_VALUE_BYTES_MAX */
};

/* Open the queue `name` below `parent`; `options` may be NULL. The options are the same on every participant;
 * otherwise remo_channel_wait on the structure's channel returns -EPROTO. Does not wait for peers to open.
 * Errors:
 *   -EINVAL  an option is out of range; the sentence names it
 *   others   those of remo_structure_open */
REMO_API int remo_tx_queue_open(struct remo_channel *parent, const char *name,
                                const struct remo_tx_queue_options *options,
                                struct remo_tx_queue **ret_queue);
/* Close the queue and its structure, after the transaction spaces that use it; NULL has no effect. Waits as
 * remo_structure_close does. */
REMO_API void remo_tx_queue_close(struct remo_tx_queue *queue);
/* Return the structure of the queue, for remo_tx_space_options; NULL if `queue` is NULL. remo_tx_queue_close
 * closes it: do not call remo_structure_close. */
REMO_API struct remo_structure *remo_tx_queue_structure(struct remo_tx_queue *queue);

/* Append an element, when the transaction commits. `value` is copied; it may be NULL if `value_bytes` is 0.
 * Blocks as remo_tx_read. If the queue is full, remo_tx_commit returns -ENOSPC.
 * Errors:
 *   -EMSGSIZE  the element is longer than value_bytes_max, or as remo_tx_put (see Failure)
 *   -EINVAL    an argument is NULL, or the queue is not one of the space
 *   others     those of remo_tx_put */
REMO_API int remo_tx_queue_push(struct remo_tx *tx, struct remo_tx_queue *queue, const void *value,
                                size_t value_bytes);
/* Copy the first element to `value`, and remove it when the transaction commits. *ret_value_bytes (may be
 * NULL) is its length. `value` may be NULL if `cap` is 0; its contents are undefined after an error. Blocks
 * as remo_tx_read_many.
 * Errors:
 *   -ENOENT    the queue is empty; the commit validates that
 *   -EMSGSIZE  the element is longer than `cap`: it is not removed, and *ret_value_bytes is its length. Or as
 *              remo_tx_read and remo_tx_put (see Failure): then *ret_value_bytes is not set
 *   -EINVAL    an argument is NULL, or the queue is not one of the space
 *   others     those of remo_tx_read_many and remo_tx_put */
REMO_API int remo_tx_queue_pop(struct remo_tx *tx, struct remo_tx_queue *queue, void *value, size_t cap,
                               size_t *ret_value_bytes);
/* Set *ret_count to the number of elements, with those that the transaction has pushed, and without those
 * that it has popped. Blocks as remo_tx_read_many.
 * Errors:
 *   -EINVAL  an argument is NULL, or the queue is not one of the space
 *   others   those of remo_tx_read_many */
REMO_API int remo_tx_queue_count(struct remo_tx *tx, struct remo_tx_queue *queue, uint64_t *ret_count);

REMO_END
