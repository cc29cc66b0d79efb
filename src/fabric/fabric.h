/* fabric.h - what every network must offer: one struct of operations, capabilities as data.
 *
 * Model:   a fabric belongs to one node. It knows peers by rank and memory by (rank, arena offset). It moves
 *          bytes and executes atomics one-sidedly, delivers 32-bit immediates, and rings the doorbell of a
 *          peer that may be asleep. It knows nothing of channels, acks, fences or deadlines: those are the
 *          node's.
 *
 * Memory:  the arena of each node is one range of offsets, backed by segments. A segment is registered by its
 *          owner (`add_segment`), described by a blob and, on one machine, a file descriptor, and made
 *          reachable by each peer (`map_segment`) before any address inside it is given away.
 *
 * Order:   only what `caps` says. Nothing above may assume more. See docs/memory-model.md.
 *
 * Threads: `open`, `close`, `add_segment`, `map_segment`, `connect`, `disconnect` are called by one thread at
 *          a time. An endpoint is used by one thread at a time (the node holds its lock). Immediates are
 *          polled by one thread.
 *
 * Errors:  0 or -errno with the sentence set (remo__fail). A missing operation is filled with a stub that
 *          returns -EOPNOTSUPP, so callers never test for NULL.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

#define REMO__BLOB_BYTES_MAX 1024u         /* description of a fabric or of a segment, as sent to peers */
#define REMO__SEGMENTS_MAX 1024u           /* segments of one arena */
#define REMO__PRIVATE_BYTES_MAX (8u << 20) /* what a fabric may ask for at the start of the arena */

/* What the network promises. All false is the weakest network, and always a correct description. */
struct remo__fabric_caps {
    bool mapped;   /* peers' memory has a CPU address: operations are plain loads, stores and atomics */
    bool coherent; /* CPUs see what was placed in their node's memory, and there are atomics: not so where
                      machines share memory and no hardware keeps their caches coherent */
    bool atomics_coherent;  /* network atomics are atomic with CPU atomics on the same word */
    bool writes_ordered;    /* writes of one endpoint to one peer are placed in the order posted */
    bool reads_ordered;     /* reads of one endpoint from one peer are executed in the order posted */
    bool completion_placed; /* the completion of a write means that it is placed and visible at the target */
    bool read_flushes; /* a read completes after all earlier writes of the endpoint to that peer are placed */
    bool driven_by_device;      /* what was posted goes on and ends although nobody polls */
    bool local_registered;      /* local buffers must lie in the arena */
    uint32_t inline_bytes;      /* writes up to this size are copied when posted; 0: none is */
    uint32_t batch_max;         /* operations per post */
    uint32_t depth;             /* operations in flight per endpoint */
    uint64_t message_bytes_max; /* one read or write; the node splits larger ones */
};

/* Sleep and wake-up word of a node. A waiter adds itself to `sleepers`, looks once more, then sleeps on `seq`
 * (futex). Whoever changes what it may wait for does a full fence, looks at `sleepers`, and only then rings.
 */
struct remo__doorbell {
    _Atomic uint32_t seq;
    _Atomic uint32_t sleepers;
};
void remo__doorbell_ring(struct remo__doorbell *bell);
/* Returns after a ring, `timeout_ns`, or at any moment: the caller looks at its condition again. */
void remo__doorbell_sleep(struct remo__doorbell *bell, uint32_t seen_seq, uint64_t timeout_ns);

enum remo__op_kind { REMO__OP_READ, REMO__OP_WRITE, REMO__OP_FETCH_ADD, REMO__OP_COMPARE_SWAP };

enum remo__op_flags {
    REMO__OP_NOTIFY = 1, /* write: ring the target's doorbell once the data is placed */
    REMO__OP_IMM = 2,    /* write: deliver `imm` to the target once the data is placed; implies NOTIFY */
    REMO__OP_FENCE = 4,  /* start only after earlier reads and atomics to this peer are done */
    REMO__OP_INLINE = 8, /* write: `local` may be reused at once (size <= caps.inline_bytes) */
};

/* One operation. `local` is read (write) or filled (others; atomics store the old value) until its
 * completion. */
struct remo__op {
    uint8_t kind, flags;
    uint16_t peer;
    uint32_t imm;
    void *local;
    uint64_t remote;     /* arena offset at the peer; atomics: a multiple of 8 */
    uint64_t size_bytes; /* atomics: 8. 0 moves nothing, yet orders and completes like any other */
    uint64_t operand;    /* fetch-add: addend; compare-swap: the new value */
    uint64_t compare;
    uint64_t token; /* given back in the completion */
};

struct remo__completion {
    uint64_t token;
    int status;      /* 0, -EHOSTDOWN, -EACCES, -ETIMEDOUT, -EIO, -ECANCELED */
    const char *why; /* status < 0: a sentence, valid until the endpoint is polled again; NULL: there is no
                        more to say */
};

struct remo__imm {
    uint32_t peer;
    uint32_t value;
};

/* What all endpoints of a fabric have put on the wire, where the fabric counts it: verbs. */
struct remo__fabric_wire {
    uint64_t requests;  /* work requests */
    uint64_t posts;     /* calls that ring the device's doorbell once */
    uint64_t signalled; /* work requests that asked for a completion */
    uint64_t inlined;   /* work requests that carried their data themselves */
    uint64_t bytes;     /* of data, both ways */
};

struct remo__fabric;
struct remo__endpoint; /* each fabric has its own */

struct remo__fabric_config {
    uint32_t rank, size;
    const char *job;      /* name of the job, unique on this machine */
    const char *provider; /* ofi: libfabric provider, NULL = "tcp;ofi_rxm"; verbs: see verbs_device.c, NULL =
                             the first */
    const char *address;  /* network address to bind the data path to, NULL = loopback */
    char *arena;          /* own arena, reserved by the node: CPU address of offset 0 */
    uint64_t arena_bytes; /* size of the reservation: the same on every node */
    uint32_t endpoints_max;
    struct remo__log log;
};

struct remo__fabric_ops {
    const char *name;
    /* 0, or -ENODEV / -ENOSYS with a sentence when this machine has no such network. Opens nothing. */
    int (*probe)(const struct remo__fabric_config *config);
    int (*open)(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric);
    /* All endpoints are closed already. Operations of peers on our memory may go on until disconnect. */
    void (*close)(struct remo__fabric *fabric);

    /* Own memory [offset, offset + bytes) is committed at arena + offset and backed by `fd` (from 0). */
    int (*add_segment)(struct remo__fabric *fabric, uint32_t index, uint64_t offset, uint64_t bytes, int fd,
                       void *blob, size_t blob_cap, size_t *ret_blob_bytes);
    /* A peer's segment, as its owner described it. `fd` is -1 between machines; the caller closes it
     * afterwards. */
    int (*map_segment)(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset,
                       uint64_t bytes, const void *blob, size_t blob_bytes, int fd);

    /* How peers reach this fabric: sent to each peer after authentication. */
    int (*describe)(struct remo__fabric *fabric, void *blob, size_t blob_cap, size_t *ret_blob_bytes);
    /* Peer `peer` described itself; its segments follow. Self is connected like any other. */
    int (*connect)(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes);
    /* Cut the peer off: later operations to it fail with -EHOSTDOWN, those in flight complete with an error
     * in bounded time, and after return none of the peer's own operations is executed here any more (as far
     * as the network can). */
    void (*disconnect)(struct remo__fabric *fabric, uint32_t peer);

    int (*endpoint_open)(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint);
    void (*endpoint_close)(struct remo__endpoint *endpoint); /* outstanding operations are cancelled */
    /* Post in order; returns how many were taken (>= 1), -EAGAIN when ops[0] finds no room, or its peer lives
     * but is not reached yet (poll, then try again), or why ops[0] cannot be: -EHOSTDOWN, -EINVAL. What was
     * taken completes exactly once. */
    int (*post)(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count);
    /* Completions, at most `max`; 0 when none. Never sleeps. Drives progress of this endpoint. */
    int (*poll)(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max);
    /* Sleep until a completion may be there or `timeout_ns` passed. */
    void (*wait)(struct remo__endpoint *endpoint, uint64_t timeout_ns);

    /* Immediates sent to this node, at most `max`; NOTIFY-only arrivals are not returned but ring
     * `fabric->doorbell`. */
    int (*imm_poll)(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max);
    /* Sleep until an immediate (or notification) may be there, `timeout_ns`, or imm_wake; at once if one is
     * there, or if imm_wake was called since the last imm_wait returned. Called by the service thread only.
     */
    void (*imm_wait)(struct remo__fabric *fabric, uint64_t timeout_ns);
    void (*imm_wake)(struct remo__fabric *fabric); /* any thread, also signal-free teardown */

    /* Statistics; any thread. All zero where nothing is counted. */
    void (*wire)(struct remo__fabric *fabric, struct remo__fabric_wire *ret_wire);
};

/* What the node reads on every operation; one line a peer. */
struct remo__fabric_peer {
    _Atomic(char *) base; /* mapped fabrics: CPU address of the peer's offset 0; NULL while unreachable */
    _Atomic(struct remo__doorbell *) doorbell; /* mapped fabrics: the peer's doorbell, valid while base is */
    _Atomic uint32_t connected;
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
};

extern const struct remo__fabric_ops remo__fabric_shm;
extern const struct remo__fabric_ops remo__fabric_ofi;
extern const struct remo__fabric_ops remo__fabric_verbs;

/* The `wire` of fabrics that do not count. */
void remo__fabric_wire_none(struct remo__fabric *fabric, struct remo__fabric_wire *ret_wire);
/* Every operation does nothing and returns -EOPNOTSUPP, or just returns. */
extern const struct remo__fabric_ops remo__fabric_stubs;
/* `ops`, with stubs for the operations that it lacks. The tables of find and at are complete already. */
struct remo__fabric_ops remo__fabric_complete(const struct remo__fabric_ops *ops);

/* The fabric called `name` ("shm", "ofi", "verbs"), or NULL. */
const struct remo__fabric_ops *remo__fabric_find(const char *name);
/* The n-th fabric of this build, or NULL: for listings. */
const struct remo__fabric_ops *remo__fabric_at(uint32_t n);
