/* node.h - a node: one member of a job, its arena, its peers, its threads. Everything hangs off it.
 *
 * Model:   `size` nodes with ranks 0..size-1 form a job. Each has an arena of network memory, an
 *          authenticated control stream to every other, and sleeping helper threads (control, service). A
 *          process may hold several nodes.
 * Threads: every function of the library may be called from any thread; a thread is attached to the node at
 *          its first call and detached when it ends. At most `threads_max` at a time.
 * Failure: a peer that dies is noticed by its socket (same machine: at once) or its heartbeat. Every wait on
 *          it ends with -EHOSTDOWN, as does every later operation on it. A peer that closes its node says
 *          goodbye and is told apart (REMO_PEER_LEFT), with the same result code. Between the death and the
 *          moment this node has cut the peer off (shm: microseconds after its socket ended; others: until
 *          what is in flight has failed) an operation may still succeed, also when remo_node_peer says
 *          REMO_PEER_DEAD already: on shm the memory of the dead stays mapped, and a read gives what was
 *          there last. Who must know asks a wait or a lock, not a read. A child that was forked and runs no
 *          other program keeps the sockets of its parent: while it lives, the parent's death is not noticed.
 * Errors:  0 or -errno everywhere; remo_last_error() gives the sentence for the calling thread.
 * Source:  LOCO 4.2 (manager), A.1, A.2.
 */
#pragma once

#include <remo/ack.h>
#include <remo/address.h>
#include <remo/log.h>
#include <stddef.h>

REMO_BEGIN

#define REMO_NODES_MAX 256u

struct remo_node;
struct remo_channel;

/* A set of nodes; all zero is "not said", which means everybody or the parent's. */
struct remo_nodeset {
    uint64_t word[REMO_NODES_MAX / 64];
};

static inline void remo_nodeset_add(struct remo_nodeset *set, uint32_t node) {
    set->word[node / 64 % (REMO_NODES_MAX / 64)] |= 1ull << node % 64;
}

static inline void remo_nodeset_remove(struct remo_nodeset *set, uint32_t node) {
    set->word[node / 64 % (REMO_NODES_MAX / 64)] &= ~(1ull << node % 64);
}

static inline int remo_nodeset_has(const struct remo_nodeset *set, uint32_t node) {
    return node < REMO_NODES_MAX && (set->word[node / 64] >> node % 64 & 1);
}

static inline int remo_nodeset_empty(const struct remo_nodeset *set) {
    uint64_t any = 0;
    for (uint32_t i = 0; i < REMO_NODES_MAX / 64; i++)
        any |= set->word[i];
    return any == 0;
}

/* Every field may be zero: then it comes from the environment (remo run, mpirun, srun), or is the default
 * named. */
struct remo_config {
    const char *fabric; /* "shm" (default), "ofi" or "verbs"; environment REMO_FABRIC */
    /* ofi: "tcp;ofi_rxm" (default); verbs: device[:port[:gid]][:mtu=BYTES][:timeout=MS][:odp]; environment
     * REMO_PROVIDER */
    const char *provider;
    /* ofi: address of the data path; default loopback; environment REMO_BIND */
    const char *bind_address;
    uint32_t rank, size;          /* with `addresses` or `hosts_file` */
    const char *const *addresses; /* [size] "unix:/path" or "tcp:host:port" */
    const char *hosts_file;       /* one address a line */
    const char *job;              /* name shared by the nodes; default from the launcher, else "remo" */
    const char *key_file;         /* 0600 file with the job's secret; environment REMO_KEY_FILE */
    /* tmpfs or hugetlbfs folder for segments; default anonymous memory; environment REMO_MEMORY_DIR */
    const char *memory_dir;
    uint64_t arena_bytes;     /* address space reserved, the same on every node; default 64 GiB */
    uint64_t segment_bytes;   /* least growth of the arena; default 16 MiB */
    uint64_t join_timeout_ns; /* for every node to appear; default 30 s */
    uint64_t op_timeout_ns;   /* for one operation without a timeout of its own; default 10 s */
    uint32_t threads_max;     /* default 64 */
    remo_log_fn log;          /* default: silent */
    void *log_ctx;
    int log_level; /* default REMO_LOG_WARNING */
};

/* Join the job; returns when all nodes are there. NULL: everything from the environment; with nothing there,
 * a job of one node.
 * Errors: -ETIMEDOUT (the sentence names the ranks that never came), -EHOSTDOWN (one died or gave up
 *         meanwhile), -EPROTO (one has
 * another fabric or arena_bytes), -EINVAL, -EACCES, -EADDRINUSE, -ENODEV, -ENOSPC, -ENOMEM. */
REMO_API int remo_node_open(const struct remo_config *config, struct remo_node **ret_node);
/* Say goodbye and free everything. Close the node's channels first; no other thread may be inside a call.
 * NULL is fine. */
REMO_API void remo_node_close(struct remo_node *node);

REMO_API uint32_t remo_node_rank(const struct remo_node *node);
REMO_API uint32_t remo_node_size(const struct remo_node *node);
REMO_API const char *remo_node_fabric(const struct remo_node *node);
/* The parent of all channels. */
REMO_API struct remo_channel *remo_node_root(struct remo_node *node);

enum remo_peer_state { REMO_PEER_COMING, REMO_PEER_UP, REMO_PEER_LEFT, REMO_PEER_DEAD };
REMO_API enum remo_peer_state remo_node_peer(const struct remo_node *node, uint32_t peer);

/* ---- fences (LOCO 5.3)
 * ------------------------------------------------------------------------------------------- Operations
 * before the fence are complete and placed before operations after it, for
 *   PAIR    operations of this thread to `peer`;
 *   THREAD  operations of this thread to anybody;
 *   GLOBAL  operations of this node: all threads whose operations happened before this call.
 * Cost: nothing while nothing is unfenced; else what the fabric needs: shm one CPU fence; ofi none, it waits
 *       for what is in
 * flight; verbs one read per unfenced peer (ofi and verbs, PAIR: nothing, since one connection keeps order).
 * Waits for op_timeout_ns at most, whatever the scope.
 * Errors: that of the first unacknowledged write that failed since the last fence; GLOBAL tells those of
 *         other threads too,
 * which may have ended; -EHOSTDOWN, -ETIMEDOUT (names a node that does not answer). */
enum remo_fence_scope { REMO_FENCE_NONE, REMO_FENCE_PAIR, REMO_FENCE_THREAD, REMO_FENCE_GLOBAL };
REMO_API int remo_fence(struct remo_node *node, enum remo_fence_scope scope, uint32_t peer);

/* ---- operations by address
 * --------------------------------------------------------------------------------------- As in region.h, for
 * addresses kept in network memory. The address is checked: -ESTALE for an earlier life of its node, -EFAULT
 * outside the node's arena. Counted as operations of the root channel. */
REMO_API int remo_read(struct remo_node *node, struct remo_addr addr, void *dst, size_t size_bytes,
                       struct remo_ack *ack);
REMO_API int remo_write(struct remo_node *node, struct remo_addr addr, const void *src, size_t size_bytes,
                        struct remo_ack *ack);

/* ---- buffers (LOCO's mem_refs, A.2)
 * ------------------------------------------------------------------------------ A block of network memory of
 * this thread's pool, for use as source or destination without a copy: the operation then uses it until its
 * ack is done. Blocks are REMO_BUFFER_BYTES long; the same thread gives them back.
 * Errors: -ENOBUFS when all REMO_BUFFERS_PER_THREAD are in use. Cost: no system call, no lock. */
#define REMO_BUFFER_BYTES 8192u
#define REMO_BUFFERS_PER_THREAD 32u
REMO_API int remo_buffer_get(struct remo_node *node, void **ret_buffer);
REMO_API void remo_buffer_put(struct remo_node *node, void *buffer);

/* ---- statistics
 * -------------------------------------------------------------------------------------------------- Network
 * operations since the start: what headers promise under "Cost". `writes` counts every write, `imms` those of
 * them that also woke their target or carried an immediate. Operations on a node's own memory count like any
 * other. */
struct remo_stats {
    uint64_t reads, writes, atomics, imms, bytes;
};
REMO_API void remo_node_stats(struct remo_node *node, struct remo_stats *ret_stats);   /* all threads */
REMO_API void remo_thread_stats(struct remo_node *node, struct remo_stats *ret_stats); /* this thread */

REMO_END
