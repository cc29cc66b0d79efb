/* fabric.h - the interface of all networks: a table of operations, and capabilities as data.
 *
 * Model:   a fabric belongs to one node. It addresses peers by rank and memory by (rank, arena offset). It
 *          moves bytes and executes atomics one-sidedly, delivers 32-bit immediates, and wakes a peer through
 *          its doorbell. Channels, acks, fences and deadlines belong to the node.
 *
 * Memory:  the arena of each node is one range of offsets, backed by segments. The owner registers a segment
 *          (`add_segment`) and describes it by a blob and, on one machine, a file descriptor. Each peer makes
 *          it reachable (`map_segment`) before the owner gives away an address inside it.
 *
 * Order:   as `caps` states; callers must not assume more. See docs/memory-model.md.
 *
 * Threads: one thread at a time calls `open`, `close`, `add_segment`, `map_segment`, `connect` and
 *          `disconnect`. One thread at a time uses an endpoint (the node holds its lock). One thread polls
 *          immediates.
 *
 * Loss:    a connection that is lost is not made again, because the order of operations and the outcome of
 *          those in flight would be unknown. The fabric calls `lost`; until the node cuts the peer off,
 *          operations on it do not complete, and posts return -EAGAIN.
 *
 * Errors:  0 or -errno with the sentence set (remo__fail). Every table is complete: no entry is NULL.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

#define REMO__BLOB_BYTES_MAX 1024u         /* description of a fabric or of a segment, as sent to peers */
#define REMO__SEGMENTS_MAX 1024u           /* segments of one arena */
#define REMO__PRIVATE_BYTES_MAX (8u << 20) /* limit of a fabric's own memory at the start of the arena */

/* The guarantees of the network. All false describes the weakest network, and is always correct. */
struct remo__fabric_caps {
    bool mapped;   /* peers' memory has a CPU address: operations are plain loads, stores and atomics */
    bool coherent; /* CPUs see data placed in their node's memory, and atomics exist. False where machines
                      share memory without hardware cache coherence */
    bool atomics_coherent;  /* network atomics are atomic with CPU atomics on the same word */
    bool writes_ordered;    /* writes of one endpoint to one peer are placed in the order posted */
    bool reads_ordered;     /* reads of one endpoint from one peer are executed in the order posted */
    bool completion_placed; /* the completion of a write means that it is placed and visible at the target */
    bool read_flushes; /* a read is executed after all earlier writes of the endpoint to that peer are placed,
                          also if it reads other words */
    bool driven_by_device;      /* posted operations complete without polling */
    bool local_registered;      /* local buffers must lie in the arena */
    uint32_t inline_bytes;      /* writes up to this size are copied when posted; 0: none */
    uint32_t batch_max;         /* operations per post */
    uint32_t depth;             /* operations in flight per endpoint */
    uint64_t message_bytes_max; /* one read or write; the node splits larger ones */
};

/* Sleep and wake-up words of a node. A waiter reads `seq`, counts itself, checks its condition once more,
 * then sleeps on `seq` (futex). A writer changes the condition, executes a full fence, reads `sleepers`, and
 * notifies if it is not 0. If `sleepers_fence`, the waiter executes the fence for writers of other processes
 * too (base/threads_fence.h): writes are frequent, and sleeps are rare. */
struct remo__doorbell {
    _Atomic uint32_t seq;
    _Atomic uint32_t sleepers;
    _Atomic uint32_t sleepers_fence; /* set before peers can reach the doorbell; then constant */
};
void remo__doorbell_notify(struct remo__doorbell *bell);
/* Count the caller as a sleeper, with a full fence after it. The caller lowers `sleepers` after its sleep. */
void remo__doorbell_add_sleeper(struct remo__doorbell *bell);
/* Sleep until a notification or `timeout_ns`; may return early. The caller checks its condition again. */
void remo__doorbell_sleep(struct remo__doorbell *bell, uint32_t seen_seq, uint64_t timeout_ns);

enum remo__op_kind { REMO__OP_READ, REMO__OP_WRITE, REMO__OP_FETCH_ADD, REMO__OP_COMPARE_SWAP };

enum remo__op_flags {
    REMO__OP_NOTIFY = 1,  /* write: notify the target after the data is placed */
    REMO__OP_IMM = 2,     /* write: deliver `imm` to the target after the data is placed; implies NOTIFY */
    REMO__OP_FENCE = 4,   /* start only after earlier reads and atomics to this peer have completed */
    REMO__OP_INLINE = 8,  /* write: `local` may be reused on return (size <= caps.inline_bytes) */
    REMO__OP_GATHER = 16, /* read: the caller does not wait yet, so the fabric may defer it and batch it with
                             other operations until the next poll */
    REMO__OP_UNAWAITED =
        32, /* write: no caller waits for the completion, so the fabric may report it later */
};

/* One operation. Until its completion a write reads `local`; other kinds fill it (atomics: with the old
 * value). */
struct remo__op {
    uint8_t kind, flags;
    uint16_t peer;
    uint32_t imm;
    void *local;
    uint64_t remote;     /* arena offset at the peer; atomics: a multiple of 8 */
    uint64_t size_bytes; /* atomics: 8. 0 moves nothing, but orders and completes like any other size */
    uint64_t operand;    /* fetch-add: addend; compare-swap: the new value */
    uint64_t compare;
    uint64_t token; /* returned in the completion */
};

/* `status` is 0, or
 *   -EHOSTDOWN  this node has cut the peer off
 *   -EACCES     the target refused the operation, or this node's device refused its local buffer
 *   -ECANCELED  the operation was not executed, because an earlier one of its connection was refused
 *   -EIO        this node's own device failed, in an operation on the node itself */
struct remo__completion {
    uint64_t token;
    int status;
    const char *why; /* status < 0: a sentence, valid until the endpoint is polled again; NULL: none */
};

struct remo__imm {
    uint32_t peer;
    uint32_t value;
};

/* Traffic of all endpoints of a fabric. Only verbs counts it. */
struct remo__fabric_wire {
    uint64_t requests;  /* work requests */
    uint64_t posts;     /* calls that write the device's doorbell once */
    uint64_t signalled; /* work requests with a completion */
    uint64_t inlined;   /* work requests that carried their data inline */
    uint64_t bytes;     /* of data, in both directions */
};

struct remo__fabric;
struct remo__endpoint; /* each fabric has its own */

struct remo__fabric_config {
    uint32_t rank, size;
    const char *job;      /* name of the job, unique on this machine */
    const char *provider; /* ofi: libfabric provider, NULL = "tcp;ofi_rxm"; verbs: see verbs/device.c, NULL =
                             the first */
    const char *address;  /* network address to bind the data path to, NULL = loopback */
    char *arena;          /* own arena, reserved by the node: CPU address of offset 0 */
    uint64_t arena_bytes; /* size of the reservation; peers announce no segment beyond the smallest one */
    uint32_t endpoints_max;
    struct remo__log log;
};

struct remo__fabric_ops {
    const char *name;
    bool maps_peers; /* connect reserves address space of arena_bytes for the peer */
    /* Check that this machine has the network; open nothing. Errors: -ENODEV, -ENOSYS. */
    int (*probe)(const struct remo__fabric_config *config);
    int (*open)(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric);
    /* The caller has closed all endpoints. Operations of peers on this node's memory may continue until
     * disconnect. */
    void (*close)(struct remo__fabric *fabric);

    /* Register own memory [offset, offset + bytes), committed at arena + offset and backed by `fd` (from
     * 0). */
    int (*add_segment)(struct remo__fabric *fabric, uint32_t index, uint64_t offset, uint64_t bytes, int fd,
                       void *blob, size_t blob_cap, size_t *ret_blob_bytes);
    /* Make a peer's segment reachable, as its owner described it. `fd` is -1 between machines; the caller
     * closes it. */
    int (*map_segment)(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset,
                       uint64_t bytes, const void *blob, size_t blob_bytes, int fd);

    /* Describe how peers reach this fabric. The node sends the blob to each peer after authentication. */
    int (*describe)(struct remo__fabric *fabric, void *blob, size_t blob_cap, size_t *ret_blob_bytes);
    /* Connect a peer by its description; its segments follow. A node also connects itself. */
    int (*connect)(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes);
    /* Cut the peer off. Later operations to it fail with -EHOSTDOWN. Operations in flight complete with an
     * error in bounded time. After return, no operation of the peer is executed here (if the network can
     * prevent it). */
    void (*disconnect)(struct remo__fabric *fabric, uint32_t peer);

    /* Return whether a connection to the peer was lost since the last connect. Only the thread that calls
     * connect and disconnect calls it. */
    bool (*is_lost)(struct remo__fabric *fabric, uint32_t peer);

    int (*endpoint_open)(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint);
    void (*endpoint_close)(struct remo__endpoint *endpoint); /* cancels operations in flight */
    /* Post in order. Returns the number of accepted operations (>= 1), or the error of ops[0]. An accepted
     * operation completes exactly once.
     * Errors: -EAGAIN     no room, or the peer is not reachable yet, or its connection is lost: poll, then
     *                     retry
     *         -EHOSTDOWN  the peer is cut off
     *         -EINVAL     malformed
     *         -EMSGSIZE   too large
     *         -EFAULT     `remote`, or `local` if local_registered, is not network memory
     *         -ENOMEM     no memory for the connection to the peer
     *         -ENOSPC     no room for the connection to the peer
     *         -EIO        the connection cannot be made, because this node's own device or library failed */
    int (*post)(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count);
    /* Take completions, at most `max`; returns their number. Never sleeps. Drives this endpoint. */
    int (*poll)(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max);
    /* Sleep until a completion may be available, or `timeout_ns`. */
    void (*wait)(struct remo__endpoint *endpoint, uint64_t timeout_ns);

    /* Take immediates sent to this node, at most `max`. A write with NOTIFY alone is not returned; it
     * notifies `fabric->doorbell`. */
    int (*imm_poll)(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max);
    /* Sleep until an immediate or a notification may be available, `timeout_ns`, or imm_wake. Return at once
     * if imm_wake was called since the last imm_wait returned. Only the service thread calls it. */
    void (*imm_wait)(struct remo__fabric *fabric, uint64_t timeout_ns);
    void (*imm_wake)(struct remo__fabric *fabric); /* any thread */

    /* Execute operations of peers that have arrived, unless another thread is executing them. Never sleeps. A
     * thread that waits calls it in each iteration while `leaves_arrivals` is set, otherwise in a few
     * iterations. A thread that polls may call it too. `is_first`: this is the first iteration of the wait,
     * or the program has computed since its last poll. */
    void (*take_arrivals)(struct remo__fabric *fabric, bool is_first);

    /* Statistics; any thread. All zero if the fabric does not count. */
    void (*wire)(struct remo__fabric *fabric, struct remo__fabric_wire *ret_wire);
};

/* Fields that the node reads on every operation; one cache line per peer. */
struct remo__fabric_peer {
    /* CPU address of offset 0 of a peer whose memory loads, stores and CPU atomics may access; NULL: none.
     * Mapped fabrics: each peer that is reachable. Others: the node itself, if its operations on itself are
     * complete when they are posted, and atomics_coherent. */
    _Atomic(char *) base;
    _Atomic(struct remo__doorbell *) doorbell; /* the peer's doorbell, valid while base is */
    _Atomic uint32_t connected;
    /* The peer's sleepers execute the fence of this node's notifications; valid while base is. */
    _Atomic bool sleepers_fence;
} __attribute__((aligned(64)));

/* The public part, first member of each fabric's own struct. */
struct remo__fabric {
    const struct remo__fabric_ops *ops;
    struct remo__fabric_caps caps;
    uint32_t rank, size;
    uint64_t private_bytes; /* the node keeps [0, private_bytes) of segment 0 for the fabric; set by open */
    struct remo__fabric_peer *peers; /* [size] */
    struct remo__doorbell *doorbell; /* own doorbell; usable after add_segment(0) */
    struct remo__log log;
    /* A fabric whose helper thread executes operations of peers may leave them to threads that wait.
     * The node counts threads that wait and do not sleep. The fabric sets and clears `leaves_arrivals`. */
    _Atomic uint32_t waiting_threads;
    _Atomic bool leaves_arrivals;
    _Atomic uint64_t arrivals_taken; /* calls of take_arrivals that have executed an operation */
    _Atomic bool arrivals_polled;    /* a thread that polls has called take_arrivals; the fabric clears it */
    _Atomic bool is_leaving; /* the node leaves: take_arrivals reports all executed operations to peers */
    /* Called by any thread after a connection was lost (is_lost). Set by the node after open. */
    void (*lost)(void *ctx);
    void *lost_ctx;
};

static inline void remo__fabric_report_loss(const struct remo__fabric *fabric) {
    if (fabric->lost)
        fabric->lost(fabric->lost_ctx);
}

extern const struct remo__fabric_ops remo__fabric_shm;
extern const struct remo__fabric_ops remo__fabric_ofi;
extern const struct remo__fabric_ops remo__fabric_verbs;

/* `take_arrivals` of fabrics that leave no operations of peers to waiting threads. */
void remo__fabric_takes_none(struct remo__fabric *fabric, bool is_first);
/* `wire` of fabrics that do not count. */
void remo__fabric_wire_none(struct remo__fabric *fabric, struct remo__fabric_wire *ret_wire);
/* Check an operation against the interface and the limits in `caps`, for `post`. The fabric itself checks
 * that the peer is connected and the memory is mapped.
 * Errors: -EINVAL    malformed
 *         -EMSGSIZE  too large */
int remo__fabric_check_op(const struct remo__fabric *fabric, const struct remo__op *op);
/* `is_lost` of fabrics without connections. */
bool remo__fabric_never_lost(struct remo__fabric *fabric, uint32_t peer);

/* fabric/list.c */
/* The fabric called `name` ("shm", "ofi", "verbs"), or NULL. */
const struct remo__fabric_ops *remo__fabric_find(const char *name);
/* The n-th fabric of this build, or NULL: for listings. */
const struct remo__fabric_ops *remo__fabric_at(uint32_t n);
