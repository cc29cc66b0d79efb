/* rpc.h - remote procedure calls: a handler runs at another node, and its reply returns to the caller.
 *
 * Model:   a service is a channel. Each participant registers handlers by number, and calls those of
 *          any participant, its own too. Each node has one ring for the requests of each peer, and
 *          512 slots for the replies to its own calls. All services of the node share them. The
 *          caller writes the request into its ring at the server, with the index of a free slot. The
 *          server writes the reply into that slot.
 * Layout:  request = 32 bytes and its data, at a multiple of 64 bytes. Reply = 24 bytes and its data.
 *          The first service of a node opens the channel "remo-rpc", which stays open until the node
 *          closes. It takes 70 KiB per node of the job, and 4.2 MiB, which includes spare slots.
 * Cost:    network operations, the same on every fabric:
 *          - call: 2 writes, the request and the reply, each with a notification or immediate;
 *          - post: 1 write; the receiver returns room in its ring by 1 write for each half of the
 *            ring. The replies to calls return room too, and then need no further write;
 *          - forward: 2 writes, to the next node and to the caller; its reply: 1 write.
 *          On fabrics that do not order writes, each request and reply also fences the earlier writes
 *          of its thread to that node. On shm a call between two threads that poll makes no system
 *          call, takes no lock that another thread holds for long, and allocates no memory.
 * Serving: requests of all services are served by the threads that wait in remo_rpc_call,
 *          remo_rpc_wait or remo_rpc_serve, and by those that call remo_rpc_test. If no thread does,
 *          the service thread of the node serves them. No handler runs inside another wait.
 *          Handlers run concurrently for different calling nodes.
 * Handler: runs to completion in the thread that found the request. It must be short, and must not
 *          wait: rpc calls that would wait return -EDEADLK there; waits of other objects are not
 *          detected. It replies, defers its reply, or forwards the request. It may start calls whose
 *          `done` is set, and post. It must not use tasks (task.h), or close a channel. The thread
 *          that runs it may hold locks of its own.
 * Order:   a handler sees what the calling thread wrote to that node before the call. Requests and
 *          posts of one thread to one node start in the order of their calls. The caller sees what
 *          the handler's thread wrote to the caller's node before the reply.
 * Once:    a request is sent at most once, and its handler runs at most once. Requests of a node that
 *          was cut off (channel.h) are not executed, even if it still writes them.
 * Time:    the deadline of a call travels with its request. A request whose time is over is not
 *          executed. On shm the deadline is a time of the machine's clock. On other fabrics the rest
 *          of the time counts from the arrival at the server. A call started in a handler has at most
 *          the rest of the time of the handler's request.
 * Depth:   a call started in a handler is one deeper than the handler's request. Calls deeper than
 *          REMO_RPC_DEPTH_MAX return -ELOOP. A post in a handler counts as a call. Each depth has slots of
 *          its own, so handlers that call each other in a circle do not deadlock.
 * Failure: if the server fails or leaves, or a node to which the request was forwarded, the call
 *          returns -EHOSTDOWN at once, although another of these nodes may still execute it. `fate` states
 *          whether the handler has run. After a timeout or a cancel the slot is not used again until
 *          the late reply has arrived. If a node is cut off, the slots that it may still write are
 *          not used again; each takes one of 512 spare slots.
 *          A request finds no room in the ring of a node that has stopped serving: calls then queue
 *          here and time out, and other nodes are unaffected.
 * Caches:  without hardware coherence (region.h) open returns -EOPNOTSUPP.
 * Threads: any. One thread at a time uses a call.
 * Source:  Storm 4.1, 5.2: write with immediate, and a ring for each sender. Differs in: rings belong
 *          to the node instead of a pair of threads; replies need no credit, because they have slots;
 *          deferred and forwarded replies, deadlines, failures. Requests and replies have at most
 *          REMO_RPC_BYTES_MAX bytes; larger data goes by an address in network memory. The protocol:
 *          docs/internals/rpc.md.
 */
#pragma once

#include <remo/channel.h>

REMO_BEGIN

#define REMO_RPC_BYTES_MAX 4096u  /* of a request or a reply */
#define REMO_RPC_HANDLERS_MAX 64u /* numbers 0 .. REMO_RPC_HANDLERS_MAX - 1 */
#define REMO_RPC_SERVICES_MAX 64u /* open on one node */
/* Calls of one node, in flight; further ones queue in their node. 320 are for calls outside handlers,
 * and 64 for the calls of handlers at each depth. */
#define REMO_RPC_CALLS_MAX 512u
#define REMO_RPC_DEPTH_MAX 4u
#define REMO_RPC_QUEUED_MAX 1024u /* posts and forwards of handlers that wait for room, per node */

struct remo_rpc;

/* A request, inside its handler. It is valid until the handler returns. */
struct remo_rpc_request {
    uint32_t node;   /* that made the call, also if another node forwarded it */
    uint32_t number; /* of the handler */
    const void *data;
    size_t bytes;
    void *state; /* the library's */
};

/* Run a request. If the handler has not replied, deferred or forwarded, its return value is the
 * status of an empty reply. `request->data` is aligned to 8 bytes; do not change it. The return
 * value of a post is only counted. */
typedef int (*remo_rpc_handler_fn)(void *ctx, const struct remo_rpc_request *request);

struct remo_rpc_handler {
    uint32_t number;
    remo_rpc_handler_fn run;
    void *ctx;
};

struct remo_rpc_options {
    struct remo_nodeset participants; /* empty: the parent's */
    /* Handlers that exist before the first request can arrive. remo_rpc_handle adds others. */
    const struct remo_rpc_handler *handlers;
    uint32_t handler_count;
};

/* Open the service `name` below `parent`; `options` may be NULL. Nodes may register different
 * handlers. *ret_rpc is set before the first handler runs. Does not wait for peers to open.
 * Errors:
 *   -EINVAL  a handler is invalid
 *   -EEXIST  two handlers have the same number
 *   -EMFILE  this node has REMO_RPC_SERVICES_MAX services
 *   others   those of remo_channel_open and remo_channel_add_memory */
REMO_API int remo_rpc_open(struct remo_channel *parent, const char *name,
                           const struct remo_rpc_options *options, struct remo_rpc **ret_rpc);
/* Close the service; not in a handler. First complete or cancel its calls. Waits until its handlers,
 * and functions `done`, have returned. Later and deferred requests are answered with -ENOTCONN. NULL has
 * no effect. */
REMO_API void remo_rpc_close(struct remo_rpc *rpc);
REMO_API struct remo_channel *remo_rpc_channel(struct remo_rpc *rpc);
/* Register a handler. A request that arrived before is answered with -ENOSYS. Does not block.
 * Errors:
 *   -EINVAL  an argument is NULL, or the number is too large
 *   -EEXIST  the number has a handler */
REMO_API int remo_rpc_handle(struct remo_rpc *rpc, const struct remo_rpc_handler *handler);

/* ---- calls ---- */

/* The outcome of a call that has ended. */
enum remo_rpc_fate {
    REMO_RPC_IN_FLIGHT, /* it has not ended */
    REMO_RPC_NOT_SENT,  /* no handler has run, or will run */
    REMO_RPC_DONE,      /* the handler has replied; the status is the handler's, unless it is -EMSGSIZE */
    REMO_RPC_UNKNOWN    /* a handler may have run, or may run later */
};

/* A call. The caller sets the first part, starts the call, and keeps the struct and its buffers in
 * place until the call has ended. Zero the struct before its first use. */
struct remo_rpc_op {
    uint32_t node, number;
    const void *request;
    size_t request_bytes; /* at most REMO_RPC_BYTES_MAX */
    void *reply;          /* the data of the reply is copied here; NULL: discard it */
    size_t reply_cap;
    uint64_t timeout_ns; /* from the start; REMO_FOREVER: no limit */
    /* Called when the call has ended, once, by a thread that serves; NULL: not called. The call may
     * be started again, or freed, in the function, which must not wait. */
    void (*done)(struct remo_rpc_op *call);
    void *ctx; /* of the caller; the library does not use it */

    /* results, valid when the call has ended */
    int status; /* the handler's, or an error of remo_rpc_call */
    enum remo_rpc_fate fate;
    size_t reply_bytes; /* also if it is more than reply_cap */

    /* the library's */
    struct {
        struct remo_rpc *rpc;
        void *thread;
        struct remo_rpc_op *next, *previous;           /* in a queue */
        struct remo_rpc_op *done_next, *done_previous; /* in the list of calls with `done` */
        uint64_t deadline_ns;
        uint64_t head, rest; /* of the request */
        uint32_t slot;
        uint32_t state; /* atomic */
    } own;
};

/* Call handler `number` of `node`, and wait for its reply: at most `cap` bytes are copied to `reply`.
 * Waits until the node has opened the service. Returns the status of the handler. If the caller must
 * tell errors of the library from those of the handler, it uses remo_rpc_start. *ret_reply_bytes
 * (may be NULL) is also set after -EMSGSIZE. Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  no reply in time; the handler may have run, or may run later
 *   -EHOSTDOWN  the node that has the request has failed or left
 *   -ENOTCONN   the node has closed the service
 *   -ENOSYS     the node has no handler of this number
 *   -EMSGSIZE   the request is longer than REMO_RPC_BYTES_MAX: not sent. Or the reply is longer than
 *               `cap`: it is discarded
 *   -ELOOP      the call is deeper than REMO_RPC_DEPTH_MAX
 *   -EDEADLK    the caller is a handler
 *   -EINVAL     an argument is wrong
 *   -EPROTO     the node opened another object under this name */
REMO_API int remo_rpc_call(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *request,
                           size_t request_bytes, void *reply, size_t cap, size_t *ret_reply_bytes,
                           uint64_t timeout_ns);
/* Start a call. A call that finds no room at the server, or no free slot, queues until there is. Does
 * not wait for another node. After an error the call is not in flight, its fate is NOT_SENT, and
 * `done` is not called.
 * Errors: those of remo_rpc_call, except -ETIMEDOUT and -EDEADLK, and
 *   -EAGAIN  the node has not opened the service yet; see remo_channel_wait
 *   -EBUSY   the call is in flight
 *   others   those of the fence (see Cost), never on shm */
REMO_API int remo_rpc_start(struct remo_rpc *rpc, struct remo_rpc_op *call);
/* Wait until a call without `done` has ended, and return its status. The call's timeout is the
 * limit.
 * Errors: those of remo_rpc_call, and
 *   -EINVAL  the call has `done`, or was never started */
REMO_API int remo_rpc_wait(struct remo_rpc_op *call);
/* Serve requests of this node, and return the status of the call. Does not wait.
 * Errors: those of remo_rpc_wait, and
 *   -EINPROGRESS  the call has not ended */
REMO_API int remo_rpc_test(struct remo_rpc_op *call);
/* End a call; then `done` is not called, and the struct and its buffers may be reused. If the call is
 * in flight, its status becomes -ECANCELED, and its fate NOT_SENT or UNKNOWN. Waits for a `done` that
 * runs in another thread. Not for a call without a start. */
REMO_API void remo_rpc_cancel(struct remo_rpc_op *call);
/* Run handler `number` of `node`, without a reply. Copied on return. Waits for room in the ring of
 * the node, for op_timeout_ns at most; in a handler it does not wait. A success does not prove that the
 * handler runs: the node may fail, close the service, or have no such handler.
 * Errors: those of remo_rpc_start, and
 *   -ETIMEDOUT  the ring of the node is full; nothing was sent
 *   -ENOBUFS    the ring is full, and the caller is a handler: REMO_RPC_QUEUED_MAX messages of
 *               handlers wait already */
REMO_API int remo_rpc_post(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data,
                           size_t bytes);
/* Serve the requests of all services of this node in this thread, for `timeout_ns`. Returns 0.
 * Errors:
 *   -EDEADLK  the caller is a handler
 *   -EINVAL   `rpc` is NULL */
REMO_API int remo_rpc_serve(struct remo_rpc *rpc, uint64_t timeout_ns);

/* ---- replies ---- */

/* Identifies a request whose reply is deferred. */
struct remo_rpc_deferred {
    uint64_t word[2];
};

/* In the handler: reply with a status and data. The status is the handler's own; negative codes of
 * errno.h are usual for errors. Copied on return. Does not wait for another node. Cost: 1 write.
 * Errors:
 *   -EALREADY   the request was replied to, deferred or forwarded
 *   -EMSGSIZE   `bytes` is more than REMO_RPC_BYTES_MAX; nothing was sent
 *   -EINVAL     an argument is NULL, or the request is a post
 *   -EHOSTDOWN  the caller's node has failed or left
 *   others      never on shm: no memory to queue the reply, or a fence has failed (see Cost). Nothing
 *               was sent, and the request still needs its reply */
REMO_API int remo_rpc_reply(const struct remo_rpc_request *request, int status, const void *data,
                            size_t bytes);
/* In the handler: reply later, by remo_rpc_reply_later. Errors: those of remo_rpc_reply. */
REMO_API int remo_rpc_defer(const struct remo_rpc_request *request, struct remo_rpc_deferred *ret_deferred);
/* Reply to a deferred request, once, in any thread. Errors: those of remo_rpc_reply; -EALREADY also
 * if the caller's node was cut off. */
REMO_API int remo_rpc_reply_later(struct remo_rpc *rpc, struct remo_rpc_deferred deferred, int status,
                                  const void *data, size_t bytes);
/* In the handler: pass the request to handler `number` of another node of this service, with other
 * data. The handler there replies to the caller directly. Does not wait for another node. A request can be
 * forwarded REMO_RPC_DEPTH_MAX times; each time counts as one of its depth.
 * Errors: those of remo_rpc_reply, and
 *   -ELOOP      the request is too deep
 *   -EHOSTDOWN, -ENOTCONN, -EAGAIN  `node` is not connected to this service: reply instead
 *   -ENOBUFS    the ring is full, and REMO_RPC_QUEUED_MAX messages of handlers wait already */
REMO_API int remo_rpc_forward(const struct remo_rpc_request *request, uint32_t node, uint32_t number,
                              const void *data, size_t bytes);

/* ---- statistics ---- */

/* Of one handler on this node, since it was registered. */
struct remo_rpc_handler_stats {
    uint64_t requests; /* handlers that have started, for calls and posts */
    uint64_t errors;   /* of these, handlers that returned a negative status, or replied with one */
    uint64_t deferred, forwarded;
    uint64_t expired; /* requests that were not executed, because their time was over */
};
/* Errors:
 *   -ENOENT  there is no such handler
 *   -EINVAL  an argument is NULL */
REMO_API int remo_rpc_stats(const struct remo_rpc *rpc, uint32_t number,
                            struct remo_rpc_handler_stats *ret_stats);

REMO_END
