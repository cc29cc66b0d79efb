/* collective.h - broadcast, reduce, all-reduce, gather and all-gather among participants.
 *
 * Model:   each participant copies its contribution to its own network memory and waits in a
 *          barrier; then each node that needs a contribution reads it. A large all-reduce takes two
 *          such steps: each node reduces one n-th of the elements, then reads the results of all
 *          other nodes.
 * Layout:  each participant has two blocks {u64 call, u64 round, data} for contributions, used
 *          alternately. It also has one such block for a part of a result, and room for 8 reads in
 *          flight. In a large all-reduce each part of a contribution has its own header
 *          {call, round}.
 * Cost:    for each node, with n participants. A read moves at most 64 KiB; k is bytes / 64 KiB,
 *          rounded up, and at least 1.
 *          - every call: the writes of one barrier (barrier.h): n-1 up to 16 participants;
 *          - broadcast: k reads, except at the root;
 *          - reduce, gather: (n-1) k reads at the root;
 *          - all_gather: (n-1) k reads;
 *          - all_reduce: (n-1) k reads up to 16 KiB, or with n <= 2. Otherwise the writes of two
 *            barriers instead of one, and 2 (n-1) k reads, with k for bytes / n.
 * Order:   as in a barrier, no participant returns before all have called. Operations of a node
 *          before its call are visible to each other node after the call of that other node. Calls
 *          need no barrier between them. A reduction combines contributions in the order of ranks,
 *          so all participants get the same bits, even for doubles.
 * Caches:  without hardware coherence (see region.h) open returns -EOPNOTSUPP.
 * Failure: if a participant fails (or leaves) before its call, every other participant gets
 *          -EHOSTDOWN (or -ENOTCONN) as soon as the failure is detected. If it fails later, nodes
 *          that still need its data, or its arrival at the barrier (barrier.h), get that error. So
 *          do nodes that wait for such a node. The others return 0, and get the error in the next
 *          call at the latest. After that error, and after -EPROTO, every call returns the error:
 *          close the object. After any other error (-ETIMEDOUT, -EIO, ...) the call is incomplete.
 *          Repeat it with the same arguments until it returns 0 or one of those three errors.
 * Threads: one thread of a node at a time.
 * Source:  Thakur, Rabenseifner and Gropp 2005 (reduce-scatter and all-gather). Differs in: nodes
 *          read instead of sending, so no call needs a receive buffer at its peer.
 *
 * All participants make the same calls in the same order, with the same root, sizes, element type
 * and operation, as in MPI. A node that reads data of a different call returns -EPROTO. `send` is
 * copied before any data arrives, so `send` and `receive` may overlap.
 */
#pragma once

#include <remo/channel.h>

REMO_BEGIN

struct remo_collective;

struct remo_collective_options {
    struct remo_nodeset participants; /* empty: the parent's */
    uint32_t bytes_max; /* of one contribution; default 1 MiB, at most 1 GiB; the same on every participant */
};

/* The element type of a reduction: 8 bytes, in the byte order of the machine. */
enum remo_number { REMO_NUMBER_U64, REMO_NUMBER_I64, REMO_NUMBER_DOUBLE };

/* The operation of a reduction. Integer sums wrap. AND, OR and XOR require integers. If a double is
 * NaN, the result of MIN and MAX is one of the contributions. */
enum remo_reduction {
    REMO_REDUCTION_SUM,
    REMO_REDUCTION_MIN,
    REMO_REDUCTION_MAX,
    REMO_REDUCTION_AND,
    REMO_REDUCTION_OR,
    REMO_REDUCTION_XOR
};

/* Open the object `name` below `parent`; `options` may be NULL. Does not wait for peers to open.
 * Memory per node: 2 * bytes_max, with n > 2 participants another bytes_max / n + 32 n, and 0.5 MiB for
 * reads (less if bytes_max is below 64 KiB).
 * Errors:
 *   -EINVAL      an option is out of range
 *   -EOPNOTSUPP  the memory has no hardware coherence
 *   others       those of remo_region_open and remo_barrier_open */
REMO_API int remo_collective_open(struct remo_channel *parent, const char *name,
                                  const struct remo_collective_options *options,
                                  struct remo_collective **ret_collective);
/* Close the object; NULL has no effect. A peer in the last call may still read the contribution of
 * this node, and gets -ENOTCONN then: wait for all participants before, for example in a barrier. */
REMO_API void remo_collective_close(struct remo_collective *collective);
REMO_API struct remo_channel *remo_collective_channel(struct remo_collective *collective);

/* For all calls: `root` is the rank of a participant. Blocks: `timeout_ns` limits each wait of a
 * barrier, as in remo_barrier_wait, and the node's op_timeout_ns each read. `receive` is undefined
 * after an error.
 * Errors:
 *   -EINVAL     an argument is wrong, or another call must be repeated first
 *   -EMSGSIZE   a contribution is longer than bytes_max
 *   -ETIMEDOUT  a participant has not called, or does not answer
 *   -EHOSTDOWN  a participant has failed
 *   -ENOTCONN   a participant has closed the object
 *   -EPROTO     the participants made different calls
 *   -EIO        a read failed */

/* Copy `bytes` from `data` of the root to `data` of every other participant. */
REMO_API int remo_collective_broadcast(struct remo_collective *collective, uint32_t root, void *data,
                                       size_t bytes, uint64_t timeout_ns);
/* Combine `count` numbers of each participant, element by element, into `receive` of the root. At
 * other nodes `receive` is unused and may be NULL. */
REMO_API int remo_collective_reduce(struct remo_collective *collective, uint32_t root, const void *send,
                                    void *receive, size_t count, enum remo_number number,
                                    enum remo_reduction reduction, uint64_t timeout_ns);
/* As reduce, into `receive` of every participant. */
REMO_API int remo_collective_all_reduce(struct remo_collective *collective, const void *send, void *receive,
                                        size_t count, enum remo_number number, enum remo_reduction reduction,
                                        uint64_t timeout_ns);
/* Copy `bytes` of each participant, in the order of ranks, into `receive` of the root, which has
 * room for n * bytes. At other nodes `receive` is unused and may be NULL. */
REMO_API int remo_collective_gather(struct remo_collective *collective, uint32_t root, const void *send,
                                    void *receive, size_t bytes, uint64_t timeout_ns);
/* As gather, into `receive` of every participant. */
REMO_API int remo_collective_all_gather(struct remo_collective *collective, const void *send, void *receive,
                                        size_t bytes, uint64_t timeout_ns);

REMO_END
