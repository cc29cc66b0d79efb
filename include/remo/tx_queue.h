/* tx_queue.h - a FIFO queue for transactions, which push and pop elements and change other items.
 *
 * Model:   a structure (structure.h), all of whose items belong to one owner: two counters, the front and
 *          the back, and one item for each element. Elements have ascending numbers. A push gives its element
 *          the number in the back, and increments the back. A pop deletes the element whose number is in the
 *          front, and increments the front. Both take effect when their transaction commits, together with
 *          its changes of tables and other queues. So an element is pushed only if the transaction's other
 *          changes take effect, and it is popped at most once.
 *          The queue of queue.h differs: it is not part of a transaction, its elements are distributed over
 *          all nodes, and its calls can wait.
 * Use:     remo_tx_queue_open, then remo_channel_wait on
 *          remo_structure_channel(remo_tx_queue_structure(queue)). Open a transaction space (tx.h) with
 *          remo_tx_queue_structure(queue) among its structures. Then push and pop between remo_tx_begin and
 *          remo_tx_commit, or in the function that remo_tx_run calls. If a pop returns -ENOENT there, choose:
 *          return 0, and the commit confirms that the queue was empty, for 2 more reads. Or return -ENOENT,
 *          which aborts the transaction: this suffices if the pop is repeated later. Or, in that function,
 *          return REMO_TX_WAIT: the function runs again after a push (examples/outbox.c).
 *          remo_tx_run does not repeat a transaction after -ENOSPC: pop elements, or try again later. Or call
 *          remo_tx_queue_count before a push, and return REMO_TX_WAIT if the queue is full: the function runs
 *          again after a push or pop. The commit may still return -ENOSPC, if pops change items of several
 *          owners (see Failure).
 *          Change the structure only by the functions below.
 * Layout:  share = {item of the front; item of the back; slots for elements}, each aligned to 64 bytes.
 *          Element n is in slot n modulo `capacity`. Its key is n, in 8 bytes; the keys of the front and the
 *          back are 2^64 - 1 and 2^64 - 2. The value of a counter has 8 bytes; an absent counter is 0.
 *          Numbers never wrap around.
 * Cost:    network operations, if this node is not the owner:
 *          - push: 1 read, for the first push of a transaction;
 *          - pop: 2 reads at the same time: the front, and the element that this node expects there. It
 *            expects the one after its last pop. 1 more read follows if other nodes have popped since, or if
 *            that pop has not committed. Further pops of a transaction: 1 read each. If the transaction has
 *            pushed the element itself, the reads are not at the same time;
 *          - count: 2 reads at the same time;
 *          - commit: as tx.h states. If all items of the transaction have one owner: 1 call. So let the
 *            owner of the queue own the rows that change with it: see `owner`.
 *          Each element is a key of the transaction; so are the back, for all pushes together, and the front,
 *          for all pops. If 1 more read followed, the expected element is a key too. Its value, if it is
 *          present, counts in REMO_TX_BYTES_MAX. So REMO_TX_ITEMS_MAX suffices for 63 pushes, or 62 pops.
 *          The request of a commit has 8 bytes, 40 for each counter that changes, 32 for each pop, 32 and its
 *          length for each push, and at most 32 for the expected element. So REMO_RPC_BYTES_MAX suffices for
 *          36 pushes of 80 bytes. An element of REMO_TX_QUEUE_VALUE_BYTES_MAX leaves 56 bytes for the other
 *          items of that owner.
 *          Memory of each participant: the share, although only that of the owner is in use.
 * Order:   strictly serializable (tx.h). Elements are popped in the order in which the transactions that
 *          pushed them took effect, and those of one transaction in the order of its pushes.
 *          Before the commit, the result of a pop or count is as provisional as that of remo_tx_read: -ENOENT
 *          is certain only when remo_tx_commit or remo_tx_check has returned 0.
 * Conflict: of two transactions that push at the same time, one is in conflict; likewise of two that pop. A
 *          push and a pop are in conflict if the queue is empty; otherwise only if the pop needed 1 more read
 *          (see Cost): the commit of the pop also validates the element that was expected. A push of that
 *          element is in conflict; it can follow a pop of this node that has not committed. If the commit is
 *          not one call (tx.h), each push into its slot is in conflict. A count is in conflict with both.
 * Caches:  see structure.h.
 * Failure: if the owner fails, all elements are lost, and calls return -EHOSTDOWN. If another node fails,
 *          its transaction has pushed and popped all its elements, or none: see tx.h.
 *          A full queue: if the slot of a new element is not free, the commit returns -ENOSPC. Nothing has
 *          changed, and the values that the transaction has read or popped are not confirmed. An element that
 *          was in the queue before has its slot until the commit, even if the transaction pops it. So a
 *          transaction that pops an element and pushes another one cannot commit while the queue is full:
 *          keep room. An element that the transaction has pushed, and pops itself, needs no slot. After a
 *          commit with changes at several owners, the slot of a popped element may become free later than the
 *          commit returns.
 *          After most errors of a push or pop the transaction is aborted (see the functions): a later
 *          remo_tx_commit returns -ESTALE.
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

/* Append an element, when the transaction commits. Copied on return; `value` may be NULL if `value_bytes` is
 * 0. Blocks as remo_tx_read. If the queue is full, remo_tx_commit returns -ENOSPC, or this function if the
 * space has REMO_TX_EARLY. After an error that is not -EINVAL the transaction is aborted, unless the element
 * is longer than value_bytes_max.
 * Errors:
 *   -EMSGSIZE  the element is longer than value_bytes_max, or as remo_tx_put
 *   -EINVAL    an argument is NULL, or the queue is not one of the space
 *   others     those of remo_tx_read and remo_tx_put */
REMO_API int remo_tx_queue_push(struct remo_tx *tx, struct remo_tx_queue *queue, const void *value,
                                size_t value_bytes);
/* Copy the first element to `value`, and remove it when the transaction commits. *ret_value_bytes (may be
 * NULL) is its length. `value` may be NULL if `cap` is 0; its contents are undefined after an error. Blocks
 * as remo_tx_read_many. After an error that is not -EINVAL or -ENOENT the transaction is aborted, unless the
 * element is longer than `cap`.
 * Errors:
 *   -ENOENT    the queue is empty; the commit validates that
 *   -EMSGSIZE  the element is longer than `cap`: it is not removed, and *ret_value_bytes is its length. Or as
 *              remo_tx_read and remo_tx_put: then *ret_value_bytes is not set
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
