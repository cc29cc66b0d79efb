/* leaf_call.h - leaf calls: the inner interface of rpc for objects whose handlers are SHORT and send nothing.
 *
 * Depth:   leaf calls have a depth of their own, deeper than all other calls, with slots and queues of its
 *          own. So they need no slot that other calls hold, and work in handlers of any depth.
 * Order:   leaf requests from one node to another start in the order in which remo__rpc_start_leaf was
 *          called, in any threads. They are not ordered behind the writes of the caller, so no call waits.
 * Time:    a leaf call has no deadline, also in a handler whose request has one. It ends when the reply
 *          arrives, or the server fails, or leaves the job or the service. remo_rpc_cancel ends it too. */
#pragma once

#include <remo/rpc.h>

#ifdef REMO_SIM_SMALL
#define REMO__RPC_LEAF_BYTES_MAX 192u /* of a request */
#else
#define REMO__RPC_LEAF_BYTES_MAX 4096u
#endif

/* Start a call without `done`, or queue it. Never waits.
 * Errors: those of remo_rpc_start, except those of the fence; the call is not in flight then. */
int remo__rpc_start_leaf(struct remo_rpc *rpc, struct remo_rpc_op *call);
/* Return whether `node` can be called now, or has departed from the service. Keeps the sentence, unless it
 * fails.
 * Errors: -EPROTO. */
int remo__rpc_leaf_is_ready(const struct remo_rpc *rpc, uint32_t node);
/* Return whether a call has ended or was never started; end it if its reply has arrived or cannot arrive.
 * The reply keeps its slot until then. Serves nothing. Threads: one at a time for each call. */
bool remo__rpc_leaf_has_ended(struct remo_rpc_op *call);
/* Send queued requests and messages; on mapped fabrics, also serve requests that have arrived. A thread that
 * waits for leaf calls repeats this. Never waits. No effect in a SHORT handler or a `done` function. */
void remo__rpc_leaf_serve(struct remo_rpc *rpc);
/* Return whether a call is queued: its request was not written yet. */
bool remo__rpc_leaf_is_queued(const struct remo_rpc_op *call);
