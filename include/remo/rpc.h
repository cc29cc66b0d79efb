/* rpc.h - remote procedure calls: a handler runs at another node, and its reply returns to the caller.
 *
 * Model:   a service is a channel. Each participant registers handlers by number, and calls those of
 *          any participant, its own too. Each node has one ring for the requests of each peer, and
 *          512 slots for the replies to its own calls. All services of the node share them. The
 *          caller writes the request into its ring at the server, with the index of a free slot. The
 *          server writes the reply into that slot.
 * Use:     open the service with its handlers, remo_channel_wait, remo_rpc_call. For a window of calls:
 *          remo_rpc_start and remo_rpc_wait. examples/rpc.c has both sides.
 * Data:    one write carries a request or a reply of up to REMO_RPC_BYTES_MAX bytes. A longer one is large.
 * Large:   a request of a call, and a reply, have at most REMO_RPC_LARGE_BYTES_MAX bytes. The data of a large
 *          request lies in the caller's network memory, and the server reads it before it starts the handler.
 *          A large reply is written to a place in the caller's network memory, and is complete there when
 *          the caller receives the reply. The server has no buffer for it.
 *          The library takes a block of the node's arena for a call with a large request, or with `reply`
 *          and a `reply_cap` of more than REMO_RPC_BYTES_MAX. It copies the request to the block at the
 *          start, and a large reply from the block at the end. The start of such a call may grow the arena
 *          (node.h), and the copy takes time. A program that names places of its own (request_place and
 *          reply_place of struct remo_rpc_op) spares blocks and copies.
 *          Reading a large request and writing a large reply wait. So a SHORT handler accepts no large
 *          request (-EMSGSIZE, fate NOT_SENT), and sends no large reply. It may defer; another thread or a
 *          LONG handler then sends the large reply. Posts and forwards are never large.
 *          Keep: while a call is late (see Failure), its server may still read the request and write the
 *          reply. So the block stays with the slot until the late reply has arrived. If a node that had the
 *          request fails, the library never uses the block again: the failed node may still run. Places that
 *          the program has named follow the same rule, and remo_rpc_settle waits for it.
 *          The blocks of calls in flight and of late calls have REMO_RPC_BLOCKS_BYTES_MAX bytes in total;
 *          further calls that need a block return -ENOBUFS.
 * Layout:  request = 32 bytes and its data, at a multiple of 64 bytes; 24 bytes more if the call has a place.
 *          Reply = 24 bytes and its data; 32 bytes if the data is in a place. A block has 64 bytes or a
 *          greater power of two. A free block stays reserved for later large calls until other calls need its
 *          memory.
 *          The first service of a node opens the channel "remo-rpc", which stays open until the node
 *          closes. It takes 69 KiB of the node's arena per node of the job, and 4.4 MiB once, with the spare
 *          slots; and 9 KiB of private memory per node of the job. The first LONG handler of a node reserves
 *          address space: 4.4 MiB per node of the job, and the stacks of 64 tasks. A page of it takes memory
 *          from its first use on.
 * Cost:    network operations, the same on every fabric:
 *          - call: 2 writes, the request and the reply, each with a notification or immediate;
 *          - post: 1 write; the receiver returns room in its ring by 1 write for each half of the
 *            ring. The replies to calls return room too, and then need no further write;
 *          - forward: 2 writes, to the next node and to the caller; its reply: 1 write;
 *          - large request: 1 read more, by the server. Large reply: 1 write more. On fabrics without mapped
 *            memory, data outside the arena takes one operation for each REMO_BUFFER_BYTES (node.h).
 *          On fabrics that do not order writes, each request and reply first fences the earlier writes of
 *          its thread to that node, and so waits for them. On shm a call between two threads that poll
 *          makes no system call, takes no lock that another thread holds for long, and allocates no
 *          memory.
 * Serving: SHORT handlers of all services run in threads that wait in remo_rpc_call, remo_rpc_wait,
 *          remo_rpc_serve or another function of rpc.h that waits, or that call remo_rpc_test. Such a thread
 *          polls for a short time, then sleeps. If none is awake, the service thread of the node runs the
 *          handlers, after a wake-up.
 *          If other threads of the node have just run handlers, a request waits up to 1 ms for this, on
 *          networks up to 2 ms.
 *          If calls are frequent and latency matters, let a thread call remo_rpc_serve: for long, or with
 *          a timeout of 0 beside each piece of other work, as the calls of tree.h, structure.h and tx.h do
 *          and, on shared memory, the changes of kv.h (kv.h, Model). Waits of other objects run no handler.
 *          SHORT requests from one sending node run one at a time, so a slow SHORT handler delays all
 *          requests from that node: those to other services, to LONG handlers, and those of maps (kv.h).
 *          Requests from different nodes run concurrently.
 * SHORT:   the default kind of a handler. It runs to completion in the serving thread. It must be short and
 *          must not wait: rpc calls that would wait return -EDEADLK; waits on other objects are not
 *          detected. It replies, defers its reply or forwards the request. It may post, and start calls with
 *          `done`. It must not use tasks (task.h), close a channel, or acquire a lock that a serving thread
 *          may hold. A handler cannot be unregistered, so its `ctx` must stay valid until remo_rpc_close has
 *          returned.
 * LONG:    a handler that may wait: for rpc calls, locks and all other objects. It replies, defers or
 *          forwards as a SHORT handler does, and its `ctx` must stay valid as long. It runs in a task
 *          (task.h) of one helper thread of the node, "remo-long". A wait parks only its task; then other
 *          LONG handlers run. A system call that blocks delays all LONG handlers of the node. It must
 *          release the locks that it acquires before it returns, and must not close the service. Its stack
 *          has REMO_TASK_STACK_BYTES_DEFAULT bytes, of which the request takes REMO_RPC_BYTES_MAX. A large
 *          request is in private memory, allocated while its handler runs; without memory the server refuses
 *          the request with -ENOMEM (NOT_SENT). The first
 *          LONG handler of a node starts the thread, which counts in threads_max (node.h). The thread sleeps
 *          while there is no LONG request.
 *          At most REMO_RPC_LONG_MAX LONG handlers of each depth (see Depth) run at the same time on a node.
 *          Further requests wait in private memory of the server, at most one for each reply slot of each
 *          caller. So LONG requests never fill a ring. Each depth has tasks of its own, so LONG handlers
 *          that call each other in a cycle do not deadlock. A LONG handler must not wait for anything else
 *          that another LONG request of its depth at this node provides: that request may not have started.
 *          LONG and SHORT calls share the reply slots of the caller. 320 LONG calls in flight from a node
 *          delay its SHORT calls to all nodes. 32 LONG calls to one server that were cancelled, or timed out
 *          while their handlers ran, delay its SHORT calls to that server (see Failure).
 *          LONG requests, also of one thread, may start in any order. The server discards a post to a LONG
 *          handler, and counts it in `errors` of remo_rpc_stats, because no slot limits the posts that wait:
 *          use a call. The sender of the post gets no error.
 *          Cost: that of a SHORT handler, a copy of the request and, if the thread sleeps, a wake-up. While a
 *          LONG handler waits, messages to its node wake its thread.
 * Done:    `done` functions run in the threads that serve (Serving), one at a time on each node. The rules
 *          for SHORT handlers apply. Calls that they start have depth 1, and inherit no deadline.
 * Order:   a handler sees what the calling thread wrote to that node before the call. Requests and posts of
 *          one thread to one node start in the order of their calls, except LONG requests, and those that a
 *          handler, a `done` function or remo_rpc_post_queued sends while messages or calls to that node are
 *          queued. The caller sees what the handler's thread wrote to the caller's node before the reply.
 * Once:    a request is sent at most once, and its handler runs at most once. Requests of a node that
 *          was cut off (channel.h) are not executed, even if it still writes them.
 * Time:    the deadline of a call travels with its request, if it is less than 18 minutes away. On shm a
 *          request whose deadline has passed is not executed. On other fabrics the remaining time counts
 *          from the execution of the request, so a late request is executed. A call started in a handler
 *          has at most the remaining time of the handler's request. If a LONG request has not started by
 *          its deadline, the server refuses it at that time, on all fabrics: the handler never
 *          runs. A post has no deadline.
 * Depth:   a call made outside handlers has depth 1. A call, post or forward in a handler is one deeper
 *          than the handler's request. Beyond REMO_RPC_DEPTH_MAX it returns -ELOOP. Each depth has slots of
 *          its own, so handlers that call each other in a cycle do not deadlock.
 * Failure: if the server fails or leaves, or a node to which the request was forwarded, the call
 *          returns -EHOSTDOWN at once, although another of these nodes may still execute it. `fate` states
 *          whether a handler may have run. After a timeout or a cancel the slot is not used again until
 *          the late reply has arrived.
 *          If a caller fails or leaves, its LONG requests that have not started are discarded. Handlers
 *          that have started run to their end.
 *          If a node fails or leaves, slots that await its reply are not used again. Each is replaced by one
 *          of 512 spare slots. Without spare slots, fewer calls can be in flight. The blocks of such slots
 *          are not used again either.
 *          If a node pauses, calls already sent to it keep their slots, also after a timeout, until it
 *          resumes or fails. Further calls to it queue at the caller until their timeout if its ring is
 *          full, or if 32 calls of their depth to it have ended without a reply that may still arrive.
 *          All peers share the slots: 320 calls that are in flight to such a node at the same time delay the
 *          calls to all nodes. All maps of a node (kv.h) share 64 further slots.
 *          A node that starts again after a failure cannot use rpc with the nodes that stayed: "remo-rpc" is
 *          still open there. Their calls to it return -EHOSTDOWN. Of its calls to them, remo_rpc_call
 *          returns -ETIMEDOUT, and remo_rpc_start -EAGAIN.
 * Caches:  without hardware coherence (region.h) open returns -EOPNOTSUPP.
 * Threads: any. One thread at a time uses a call. -EAGAIN: too many threads use the node (node.h). A wait in
 *          a task (task.h) parks the task. Handlers then run in its thread when the scheduler checks the
 *          wait, and in the service thread.
 * Source:  Storm 4.1, 5.2: write with immediate, and a ring for each sender. Differs in: rings belong
 *          to the node instead of a pair of threads; replies need no credit, because they have slots;
 *          deferred and forwarded replies, deadlines, failures. The protocol: docs/internals/rpc.md.
 */
#pragma once

#include <remo/channel.h>
#include <stdbool.h>

REMO_BEGIN

#define REMO_RPC_BYTES_MAX 4096u                 /* of a request or a reply that one write carries */
#define REMO_RPC_LARGE_BYTES_MAX (16u << 20)     /* of a large request or a large reply */
#define REMO_RPC_BLOCKS_BYTES_MAX (512ull << 20) /* of the blocks of large calls on one node */
#define REMO_RPC_HANDLERS_MAX 64u                /* numbers 0 .. REMO_RPC_HANDLERS_MAX - 1 */
#define REMO_RPC_SERVICES_MAX 64u                /* open on one node */
/* Calls in flight from one node: 320 outside handlers, and 64 at each greater depth. More calls queue at the
 * caller, in any number. */
#define REMO_RPC_CALLS_MAX 512u
#define REMO_RPC_DEPTH_MAX 4u
/* Posts and forwards that are queued for one node. */
#define REMO_RPC_QUEUED_MAX 1024u
#define REMO_RPC_LONG_MAX 16u /* LONG handlers of one depth that run on one node */

struct remo_rpc;

/* A request, inside its handler. It is valid until the handler returns. */
struct remo_rpc_request {
    uint32_t node;   /* the node that made the call, even if another node forwarded it */
    uint32_t number; /* of the handler */
    const void *data;
    size_t bytes;
    void *state; /* the library's */
};

/* Run a request. If the handler has not replied, deferred or forwarded, its return value is the
 * status of an empty reply. Otherwise the value is ignored. The return value for a post is discarded; if
 * negative, it counts as an error. `request->data` is aligned to 8 bytes; do not change it. */
typedef int (*remo_rpc_handler_fn)(void *ctx, const struct remo_rpc_request *request);

enum remo_rpc_kind {
    REMO_RPC_SHORT, /* must not wait */
    REMO_RPC_LONG   /* may wait */
};

struct remo_rpc_handler {
    uint32_t number;
    remo_rpc_handler_fn run;
    void *ctx;
    enum remo_rpc_kind kind; /* 0: REMO_RPC_SHORT */
};

struct remo_rpc_options {
    struct remo_nodeset participants; /* empty: the parent's */
    /* Handlers that exist before the first request can arrive. remo_rpc_handle adds more. */
    const struct remo_rpc_handler *handlers;
    uint32_t handler_count;
};

/* Open the service `name` below `parent`; `options` may be NULL. Nodes may register different
 * handlers. *ret_rpc is set before the first handler runs. Blocks as remo_channel_join; does not wait for
 * peers to open.
 * Errors:
 *   -EINVAL      a handler is invalid
 *   -EEXIST      two handlers have the same number
 *   -EMFILE      this node has REMO_RPC_SERVICES_MAX services
 *   -ENOMEM      no memory
 *   -EAGAIN      as remo_rpc_handle
 *   -EOPNOTSUPP  no hardware coherence (see Caches)
 *   others       those of remo_channel_open, remo_channel_add_memory and remo_channel_join */
REMO_API int remo_rpc_open(struct remo_channel *parent, const char *name,
                           const struct remo_rpc_options *options, struct remo_rpc **ret_rpc);
/* Close the service; not in a handler or a `done` function. First complete or cancel its calls. Waits,
 * without a timeout, until its handlers and all running `done` functions have returned, also LONG handlers
 * that wait. Replies -ENOTCONN to deferred and later requests, and to LONG requests that have not started.
 * NULL has no effect. */
REMO_API void remo_rpc_close(struct remo_rpc *rpc);
REMO_API struct remo_channel *remo_rpc_channel(struct remo_rpc *rpc);
/* Register a handler. Requests that arrived before are refused with -ENOSYS. Does not block, except that the
 * first LONG handler of the node waits until its thread has started.
 * Errors:
 *   -EINVAL  an argument is NULL, or the number or the kind is invalid
 *   -EEXIST  the number has a handler
 *   -ENOMEM  no memory
 *   -EAGAIN  the thread of the LONG handlers cannot be started, or too many threads use the node (node.h)
 *   others   the endpoint of that thread cannot be opened */
REMO_API int remo_rpc_handle(struct remo_rpc *rpc, const struct remo_rpc_handler *handler);

/* ---- calls ---- */

/* The outcome of a call that has ended. */
enum remo_rpc_fate {
    REMO_RPC_IN_FLIGHT, /* it has not ended */
    REMO_RPC_NOT_SENT,  /* no handler has run or will run */
    /* The handler has replied. The status is the handler's, or -EMSGSIZE if `reply` is not NULL and
     * reply_bytes > reply_cap. */
    REMO_RPC_DONE,
    REMO_RPC_UNKNOWN /* a handler may have run, or may run later */
};

/* A call. The caller sets the first part, starts the call, and keeps the struct and its buffers in
 * place until the call has ended. Zero the struct before its first use. */
struct remo_rpc_op {
    uint32_t node, number;
    const void *request;
    size_t request_bytes; /* at most REMO_RPC_LARGE_BYTES_MAX */
    void *reply;          /* written only when the call ends with a reply, never later; NULL: discard it */
    size_t reply_cap;
    /* Places in the network memory of this node (see Large), each 0: none. request_place has request_bytes
     * bytes, and `request` is NULL: the server reads the data there, also if it is short. reply_place has
     * reply_cap bytes, and `reply` is NULL: the reply is there when the call has ended with a reply. Do not
     * change the request, use the place of the reply, or free either, before the call has ended with a reply
     * or remo_rpc_settle has returned 0. */
    struct remo_addr request_place, reply_place;
    uint64_t timeout_ns; /* from the start; REMO_FOREVER: no limit; 0: send it, and time out almost at once */
    /* Set it if the thread waits for the call next. The thread may first start other calls with `waits`, if
     * it then waits for all of them by one remo_rpc_wait_all, or for one of them by remo_rpc_wait_any. On shm
     * the call wakes its server as late as remo_rpc_call does (see remo_rpc_serve). So its request may not be
     * executed until the thread waits for this call, tests it or cancels it. No effect with `done`. */
    bool waits;
    /* Called when the call has ended, once, by a thread that serves (see Done); NULL: not called. The
     * function may start the call again, or free it. */
    void (*done)(struct remo_rpc_op *call);
    void *ctx; /* of the caller; the library does not use it */

    /* results, valid when the call has ended */
    int status; /* the handler's, or an error of remo_rpc_call */
    enum remo_rpc_fate fate;
    size_t reply_bytes; /* of the reply, also if it is longer than reply_cap */

    /* the library's */
    struct {
        struct remo_rpc *rpc;
        void *thread;
        struct remo_rpc_op *next, *previous;           /* in a queue */
        struct remo_rpc_op *done_next, *done_previous; /* in the list of calls with `done` */
        uint64_t deadline_ns;
        uint64_t head, rest; /* of the request */
        uint64_t mark[2];    /* the writes of the thread before the call, while it is queued */
        uint32_t slot;
        uint32_t state;     /* atomic */
        uint32_t wake;      /* when to wake the service thread of the server */
        uint32_t serial;    /* of a call that has ended without a reply; 0: nothing is late */
        void *block;        /* of a call that has not been sent */
        uint64_t places[3]; /* of a large call */
    } own;
};

/* Call handler `number` of `node`, and wait for its reply: at most `cap` bytes are copied to `reply`.
 * Waits until the node has opened the service. Returns the status of the handler. To distinguish library
 * errors from handler errors, use remo_rpc_start and read `fate`. *ret_reply_bytes (may be NULL) is also
 * set after -EMSGSIZE. Blocks up to `timeout_ns`.
 * Errors:
 *   -ETIMEDOUT  no reply in time: the handler may have run, or may run later. Or the node did not open
 *               the service in time
 *   -EHOSTDOWN  the server, or a node to which the request was forwarded, has failed or left
 *   -ENOTCONN   one of these nodes has closed the service
 *   -ENOSYS     one of these nodes has no handler of the number
 *   -EMSGSIZE   the request is longer than REMO_RPC_LARGE_BYTES_MAX, or it is large and the handler is
 *               SHORT: not executed. Or the reply is longer than `cap`: it is discarded
 *   -ELOOP      the call is deeper than REMO_RPC_DEPTH_MAX
 *   -EDEADLK    the caller is a SHORT handler or a `done` function
 *   -EINVAL     an argument is wrong
 *   -EPROTO     the node opened another object under this name. Or a message was malformed: a node is faulty
 *   others      those of remo_rpc_start */
REMO_API int remo_rpc_call(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *request,
                           size_t request_bytes, void *reply, size_t cap, size_t *ret_reply_bytes,
                           uint64_t timeout_ns);
/* Start a call. A call that finds no room at the server, or no free slot, queues until there is. Waits only
 * for the fence (see Cost). After an error except -EBUSY the call is not in flight, its fate is
 * NOT_SENT, and `done` is not called.
 * Errors:
 *   -EAGAIN     `node` has not opened the service yet; see remo_channel_wait. Or as in Threads
 *   -EBUSY      the call is in flight, and stays so
 *   -EHOSTDOWN  the node has failed or left
 *   -ENOTCONN   the node has closed the service
 *   -EMSGSIZE   the request is longer than REMO_RPC_LARGE_BYTES_MAX
 *   -EFAULT     a place is not in the network memory of this node
 *   -ENOBUFS    the blocks of large calls have REMO_RPC_BLOCKS_BYTES_MAX bytes: end some of the calls, or
 *               name places
 *   -ENOSPC, -ENOMEM  no memory for the block of a large call
 *   -ELOOP, -EINVAL, -EPROTO  as in remo_rpc_call
 *   others      never on shm: those of the fence, also -ETIMEDOUT, and of the network */
REMO_API int remo_rpc_start(struct remo_rpc *rpc, struct remo_rpc_op *call);
/* Wait until a call without `done` has ended, and return its status. The call's timeout is the
 * limit.
 * Errors: those of remo_rpc_call, and
 *   -EINVAL  `call` is NULL, has `done`, or was never started */
REMO_API int remo_rpc_wait(struct remo_rpc_op *call);
/* Wait for a call without `done` for `timeout_ns` at most, even beyond the call's timeout, and return its
 * status. After -EINPROGRESS the call stays in flight, so its late reply can still be received. If a request
 * was not executed because the call's timeout had passed, the status is -ETIMEDOUT, and the fate NOT_SENT.
 * Errors: those of remo_rpc_wait, and
 *   -EINPROGRESS  the call has not ended */
REMO_API int remo_rpc_wait_for(struct remo_rpc_op *call, uint64_t timeout_ns);
/* Wait until several calls of this node without `done` have ended, each by its own timeout at the latest,
 * and return 0: their statuses are in the structs. Use it for calls that were started together: while a
 * thread waits for one call that is queued, its other calls keep their slots, also if their replies have
 * arrived. Takes time in proportion to `count` at each check.
 * Errors: -EDEADLK and -EAGAIN as in remo_rpc_wait, and
 *   -EINVAL  a call is NULL, has `done`, was never started, or was started by another node */
REMO_API int remo_rpc_wait_all(struct remo_rpc_op *const *calls, uint32_t count);
/* Wait until at least one of several calls of this node without `done` has ended, for `timeout_ns` at most,
 * even beyond the timeouts of the calls. Return the index of the first call in the list that has ended. Its
 * status is in the struct, and others may have ended too. The function ends no call because of a timeout: the
 * calls that have not ended stay in flight, so their late replies can still be received. Use it if the first
 * reply suffices, then cancel the other calls; or to process the replies in the order of their arrival, then
 * remove the call from the list. It may be repeated with the same calls, and returns at once while one of
 * them has ended. Blocks as remo_rpc_wait_for. Takes time in proportion to `count` at each check.
 * Errors: -EDEADLK and -EAGAIN as in remo_rpc_wait, and
 *   -EINVAL       `count` is 0 or larger than INT_MAX; or a call is NULL, has `done`, was never started, or
 *                 was started by another node
 *   -EINPROGRESS  no call has ended */
REMO_API int remo_rpc_wait_any(struct remo_rpc_op *const *calls, uint32_t count, uint64_t timeout_ns);
/* Serve requests of this node, and return the status of a call without `done`. Does not wait. In a SHORT
 * handler or a `done` function it serves nothing.
 * Errors: those of remo_rpc_call, and
 *   -EINVAL       `call` is NULL, has `done`, or was never started
 *   -EINPROGRESS  the call has not ended */
REMO_API int remo_rpc_test(struct remo_rpc_op *call);
/* Cancel a call. Afterwards `done` is not called, and the struct and its buffers may be reused. The status of
 * a call in flight becomes -ECANCELED, its fate NOT_SENT or UNKNOWN. For a call with `done`, waits while
 * another thread runs a `done` function. No effect on NULL, a zeroed call, or a call that has ended. */
REMO_API void remo_rpc_cancel(struct remo_rpc_op *call);
/* Wait until no node can read or write the places that the program has named for a call that has ended (see
 * Large). Returns 0 at once if the call ended with a reply, or was not sent. Serves meanwhile, as
 * remo_rpc_wait does. `timeout_ns` 0: check once. If the call is started again, the places of its earlier use
 * can no longer be settled.
 * Errors:
 *   -ETIMEDOUT  the reply has not arrived: the server may still use the places
 *   -EHOSTDOWN  a node that had the request has failed or left, and may still use the places on shm: do not
 *               use them again before this node closes
 *   -EDEADLK    the caller is a SHORT handler or a `done` function, and `timeout_ns` is not 0
 *   -EBUSY      the call is in flight
 *   -EINVAL     `call` is NULL */
REMO_API int remo_rpc_settle(struct remo_rpc_op *call, uint64_t timeout_ns);
/* Run handler `number` of `node` without a reply. The data is copied before the return. Waits for room in the
 * ring of the node, for op_timeout_ns at most. In a SHORT handler or a `done` function it does not wait: the
 * post queues. A success does not prove that the handler runs: `node` may fail, close the service or have no
 * such handler. If this node leaves the job first, its unexecuted requests are discarded. Before leaving,
 * use a call.
 * Errors: those of remo_rpc_start except -EBUSY, and
 *   -EMSGSIZE   the data is longer than REMO_RPC_BYTES_MAX
 *   -ETIMEDOUT  the ring of the node is full, or the fence timed out; nothing was sent
 *   -ENOBUFS    the caller is a handler or a `done` function: REMO_RPC_QUEUED_MAX posts and forwards are
 *               queued for the node already
 *   -ENOMEM     the same: no memory to queue the post */
REMO_API int remo_rpc_post(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data,
                           size_t bytes);
/* The same, but never wait for room, in any thread: if the ring of the node is full, or messages or calls to
 * the node are queued, the post queues. It goes before all calls that are queued, also earlier ones of this
 * thread (see Order). So it reaches the node even if these calls are queued until the node has executed it:
 * for example, if it makes the node reply to calls that were cancelled (see Failure). Threads that serve, and
 * the service thread, send a queued post. It is dropped if the node fails or leaves. Waits only for the fence
 * (see Cost).
 * Errors: those of remo_rpc_start except -EBUSY, and
 *   -ENOBUFS  REMO_RPC_QUEUED_MAX posts and forwards are queued for the node already; send fewer, or use
 *             remo_rpc_post
 *   -ENOMEM   no memory to queue the post */
REMO_API int remo_rpc_post_queued(struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data,
                                  size_t bytes);
/* Serve the requests of all services of this node in this thread, for `timeout_ns`; 0: those that have
 * arrived. With REMO_FOREVER it never returns. Returns 0.
 * With 0, on shm, the call is cheap if nothing has arrived: one load for each of up to 8 nodes. A thread that
 * makes it every few microseconds spares this node most wake-ups of its service thread. A peer that waits in
 * remo_rpc_call, or for a call with `waits`, then waits up to 3 us for the thread before it wakes the service
 * thread. Other requests (other calls, posts, forwarded ones) still wake it at once. In a SHORT handler or a
 * `done` function a call with 0 serves nothing.
 * Errors:
 *   -EDEADLK  the caller is a SHORT handler or a `done` function, and `timeout_ns` is not 0
 *   -EINVAL   `rpc` is NULL */
REMO_API int remo_rpc_serve(struct remo_rpc *rpc, uint64_t timeout_ns);
/* Return the time that is left for the request whose handler calls this: 0 after its deadline. REMO_FOREVER
 * for a request without a deadline, outside handlers, in a `done` function, and if `rpc` is NULL. The calls
 * of a LONG handler have no more time than this in any case; use it as the timeout of its other waits. `rpc`
 * is any service of the node. */
REMO_API uint64_t remo_rpc_remaining_ns(const struct remo_rpc *rpc);
/* Return the number of late calls of this node: calls that have ended without a reply, after a timeout or a
 * cancel, and keep their slots because the reply may still arrive (see Failure). They are those to all nodes,
 * of all services. In a handler, count only the calls of the depth that the handler's calls have; elsewhere
 * those of depth 1. Use it before calls that may end without a reply, to leave slots to others. 0 if `rpc` is
 * NULL. Sends nothing; if there are such calls, looks for their replies: some microseconds. */
REMO_API uint32_t remo_rpc_late_count(const struct remo_rpc *rpc);

/* ---- replies ---- */

/* Identifies a request whose reply is deferred. */
struct remo_rpc_deferred {
    uint64_t word[4];
};

/* In the handler: reply with a status and data. The status is the handler's own; negative codes of
 * errno.h are usual for errors. The data is copied before the return. Waits only for the fence (see Cost),
 * and until a large reply is written. If writes of it time out, it waits until none of them is in flight, or
 * the caller's node has failed.
 * If a large reply is longer than the place of the call, the caller gets -EMSGSIZE and the length.
 * Cost: 1 write; 2 if the reply is large (see Cost).
 * Errors:
 *   -EALREADY   the request was replied to, deferred or forwarded
 *   -EMSGSIZE   `bytes` is more than REMO_RPC_LARGE_BYTES_MAX, or in a SHORT handler or a `done` function
 *               more than REMO_RPC_BYTES_MAX; nothing was sent
 *   -EINVAL     an argument is NULL, or the request is a post
 *   -EHOSTDOWN  the caller's node has failed or left
 *   -EFAULT     the caller has named a place outside its network memory; the request still needs its reply
 *   others      never on shm: no memory to queue the reply, or a fence has failed (see Cost). Nothing
 *               was sent, and the request still needs its reply */
REMO_API int remo_rpc_reply(const struct remo_rpc_request *request, int status, const void *data,
                            size_t bytes);
/* In the handler: reply later, by remo_rpc_reply_later.
 * Errors: -EALREADY and -EINVAL, as in remo_rpc_reply. */
REMO_API int remo_rpc_defer(const struct remo_rpc_request *request, struct remo_rpc_deferred *ret_deferred);
/* Reply to a deferred request, once, in any thread, also in a handler or a `done` function. Errors: those of
 * remo_rpc_reply; -EALREADY also if the caller's node was cut off. */
REMO_API int remo_rpc_reply_later(struct remo_rpc *rpc, struct remo_rpc_deferred deferred, int status,
                                  const void *data, size_t bytes);
/* In the handler: pass the request to handler `number` of another node of this service, with other
 * data, of at most REMO_RPC_BYTES_MAX bytes. The handler there replies to the caller directly. Each forward
 * adds 1 to the depth, so a call made outside handlers can be forwarded REMO_RPC_DEPTH_MAX - 1 times. A post
 * cannot be forwarded (-EINVAL). Waits only for the fence (see Cost). After an error the request still needs
 * its reply.
 * Errors: those of remo_rpc_reply, and
 *   -ELOOP      the request is too deep
 *   -EHOSTDOWN, -ENOTCONN, -EAGAIN, -EPROTO  `node` is not connected to this service
 *   -ENOBUFS    REMO_RPC_QUEUED_MAX posts and forwards are queued for the node already
 *   -ENOMEM     no memory to queue the request */
REMO_API int remo_rpc_forward(const struct remo_rpc_request *request, uint32_t node, uint32_t number,
                              const void *data, size_t bytes);

/* ---- statistics ---- */

/* Of one handler on this node, since it was registered. */
struct remo_rpc_handler_stats {
    uint64_t requests; /* handlers that have started, for calls and posts */
    uint64_t errors;   /* of these, those whose immediate reply, or return value for a post, was negative */
    uint64_t deferred, forwarded;
    uint64_t expired; /* requests not executed because their deadline had passed */
    uint64_t queued;  /* LONG requests that have not started */
    /* Run times, with the time that LONG handlers wait: of every LONG request, and of 1 in 64 SHORT ones.
     * `timed` is the number of measured runs, `timed_ns` their sum, `timed_ns_max` the longest, in ns. */
    uint64_t timed, timed_ns, timed_ns_max;
};
/* Errors:
 *   -ENOENT  there is no such handler
 *   -EINVAL  an argument is NULL */
REMO_API int remo_rpc_stats(const struct remo_rpc *rpc, uint32_t number,
                            struct remo_rpc_handler_stats *ret_stats);

REMO_END
