/* node.h - a node: one member of a job, with its arena, its peers and its threads.
 *
 * Model:   `size` nodes with ranks 0..size-1 form a job. Each node has an arena of network memory,
 *          an authenticated control stream to every peer, and two helper threads (control,
 *          service), which sleep while idle. Every object belongs to a node. A process may open
 *          several nodes.
 * Threads: any thread may call any function. A thread is attached to the node at its first call and
 *          detached when it ends. At most `threads_max` threads are attached at a time. One thread
 *          can run many tasks that wait (task.h).
 * Failure: a node detects the failure of a peer by the peer's socket (same machine: immediately),
 *          or by a missing heartbeat. If a connection of the data plane is lost although both nodes
 *          are up, one of the two fails for all (docs/failures.md). Every wait for a failed
 *          peer, and every later operation on it, ends with -EHOSTDOWN. A peer that closes its node
 *          has left: REMO_PEER_LEFT, with the same error code. Until this node has cut the failed
 *          peer off, an operation may still succeed, even after remo_node_peer has returned
 *          REMO_PEER_DEAD. On shm the memory of a failed peer stays mapped, a read returns its last
 *          contents, and the cut-off comes microseconds after the socket closes. To detect a
 *          failure reliably, wait on the peer or acquire a lock; a successful read proves nothing.
 *          A forked child that does not call exec keeps the sockets of its parent open. While the
 *          child runs, peers do not detect the failure of the parent.
 * Errors:  functions return 0 or -errno; remo_last_error() explains the calling thread's last
 *          failure.
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

enum remo_peer_state { REMO_PEER_JOINING, REMO_PEER_UP, REMO_PEER_LEFT, REMO_PEER_DEAD };

/* A set of nodes. In options the empty set means the default: all nodes, or those of the parent. */
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

/* A field that is zero takes its value from the environment (remo run, mpirun, srun, or the
 * variable named), then from the default. `man remo-environment` describes the variables. */
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
    /* address space to reserve, the same on every node; default 64 GiB, or less if the system limits it
     * (ulimit -v, valgrind): then the smallest reservation of the job is the limit on every node;
     * environment REMO_ARENA_BYTES */
    uint64_t arena_bytes;
    /* least growth of the arena; default 16 MiB; environment REMO_SEGMENT_BYTES */
    uint64_t segment_bytes;
    /* limit for all nodes to join; default 30 s; environment REMO_JOIN_TIMEOUT, in seconds */
    uint64_t join_timeout_ns;
    /* limit for an operation without a timeout of its own; default 10 s; environment REMO_OP_TIMEOUT, in
     * seconds */
    uint64_t op_timeout_ns;
    uint32_t threads_max; /* default 64 */
    /* default: no messages; with REMO_LOG in the environment, messages on standard error */
    remo_log_fn log;
    void *log_ctx;
    int log_level; /* for `log`; default REMO_LOG_WARNING; environment REMO_LOG */
    /* Called for each membership change: `peer` has joined (REMO_PEER_UP), left or failed; default: none.
     * With REMO_PEER_LEFT and REMO_PEER_DEAD the peer is cut off: it can no longer change this node's memory.
     * Runs on the control thread, one call at a time. The first calls precede the return of remo_node_open;
     * none follows that of remo_node_close. The function must not block or close an object. */
    void (*on_peer)(void *ctx, uint32_t peer, enum remo_peer_state state);
    void *on_peer_ctx;
};

/* Join the job. Blocks until all nodes have joined, for join_timeout_ns at most. NULL takes all
 * settings from the environment; without any, the job has one node.
 * Errors:
 *   -ETIMEDOUT   a node did not join; the sentence names the missing ranks
 *   -EHOSTDOWN   a node failed or timed out while joining
 *   -EPROTO      a node has another fabric or other arena_bytes
 *   -EACCES      a node has another key, the key file is not private, or an address between
 *                machines has no key
 *   -EINVAL      a setting is wrong, or the launcher started several tasks without PMIx (srun
 *                without --mpi=pmix, MPICH's mpiexec)
 *   -EADDRINUSE  the address of this rank is in use
 *   -ENODEV      the fabric has no device or library
 *   -ENOSPC, -ENOMEM  no memory */
REMO_API int remo_node_open(const struct remo_config *config, struct remo_node **ret_node);
/* Leave the job and free the node. Close the node's channels first; no other thread may be inside a
 * call. Blocks for op_timeout_ns at most if operations of a closed channel are in flight. NULL has no
 * effect. */
REMO_API void remo_node_close(struct remo_node *node);

REMO_API uint32_t remo_node_rank(const struct remo_node *node);
REMO_API uint32_t remo_node_size(const struct remo_node *node);
REMO_API const char *remo_node_fabric(const struct remo_node *node);
/* Return the root channel: the ancestor of all channels. */
REMO_API struct remo_channel *remo_node_root(struct remo_node *node);

/* Return the state of `peer`. Does not block. */
REMO_API enum remo_peer_state remo_node_peer(const struct remo_node *node, uint32_t peer);

/* ---- fences (LOCO 5.3) ---- */

/* Order operations: those before the fence are complete and placed before those after it. The scope
 * selects operations:
 *   PAIR    of this thread, to `peer`;
 *   THREAD  of this thread, to all nodes;
 *   GLOBAL  of all threads of this node, if they happened before this call.
 * Blocks for op_timeout_ns at most, with any scope. Threads: any.
 * Cost: nothing if no operation is unfenced. Otherwise: shm, one CPU fence; ofi, no operation, a
 *       wait for those in flight; verbs, one read per unfenced peer. PAIR on ofi and verbs:
 *       nothing, since one connection keeps order.
 * Errors:
 *   -EHOSTDOWN  a peer has failed
 *   -ETIMEDOUT  a peer does not answer; the sentence names it
 *   others      that of the first write without an ack that failed since the last fence; GLOBAL
 *               includes writes of other threads, even of threads that have ended
 * The next fence of the writing thread that covers the write returns the failure, once. A GLOBAL
 * fence of another thread that runs earlier returns it too, once. A fence returns one error for all
 * failures that it covers. */
enum remo_fence_scope { REMO_FENCE_NONE, REMO_FENCE_PAIR, REMO_FENCE_THREAD, REMO_FENCE_GLOBAL };
REMO_API int remo_fence(struct remo_node *node, enum remo_fence_scope scope, uint32_t peer);

/* ---- operations by address ---- */

/* Read or write at an address that network memory holds. As in region.h; all operations by address
 * count as operations of the root channel.
 * Errors: those of region.h, and
 *   -ESTALE  the address belongs to an earlier incarnation of its node
 *   -EFAULT  the address is outside the node's arena */
REMO_API int remo_read(struct remo_node *node, struct remo_addr addr, void *dst, size_t size_bytes,
                       struct remo_ack *ack);
REMO_API int remo_write(struct remo_node *node, struct remo_addr addr, const void *src, size_t size_bytes,
                        struct remo_ack *ack);
/* Add to a word of 8 bytes, or replace it with `desired` if it equals `expected`. The offset of `addr`
 * is a multiple of 8. Change a word by atomics only, as region.h explains. *ret_old is the value before
 * the change; `ret_old` may be NULL. Cost: 1 atomic.
 * Errors: those of remo_read, and
 *   -EINVAL      the address is not a multiple of 8
 *   -EOPNOTSUPP  the fabric has no atomics (caps) */
REMO_API int remo_fetch_add(struct remo_node *node, struct remo_addr addr, uint64_t addend, uint64_t *ret_old,
                            struct remo_ack *ack);
REMO_API int remo_compare_swap(struct remo_node *node, struct remo_addr addr, uint64_t expected,
                               uint64_t desired, uint64_t *ret_old, struct remo_ack *ack);

/* ---- buffers (LOCO's mem_refs, A.2) ---- */

/* Take a block of REMO_BUFFER_BYTES of network memory from this thread's pool. An operation uses
 * the block without a copy, until its ack is complete. The same thread must give the block back
 * with remo_buffer_put. Does not block. Cost: no system call, no lock.
 * Errors:
 *   -ENOBUFS  all REMO_BUFFERS_PER_THREAD blocks of this thread are in use */
#define REMO_BUFFER_BYTES 8192u
#define REMO_BUFFERS_PER_THREAD 32u
REMO_API int remo_buffer_get(struct remo_node *node, void **ret_buffer);
REMO_API void remo_buffer_put(struct remo_node *node, void *buffer);

/* ---- statistics ---- */

/* Network operations since the start; headers state them under "Cost". `writes` counts every write;
 * `imms` counts the writes that also notify their target or carry an immediate. Operations on a
 * node's own memory count too. */
struct remo_stats {
    uint64_t reads, writes, atomics, imms, bytes;
};
REMO_API void remo_node_stats(struct remo_node *node, struct remo_stats *ret_stats);   /* all threads */
REMO_API void remo_thread_stats(struct remo_node *node, struct remo_stats *ret_stats); /* this thread */

REMO_END
