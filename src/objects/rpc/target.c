/* target.c - checks the node and the arguments of a request.
 * Invariant: a request is sent only to a participant that has opened the service. */
#include "objects/rpc/rpc.h"

static int fail_target(const struct remo_rpc *rpc, uint32_t node, uint32_t number, size_t bytes) {
    const char *name = remo_channel_name(rpc->channel);
    if (bytes > REMO__RPC_DATA_MAX)
        return remo__fail(-EMSGSIZE,
                          "a message of %zu bytes is too long for service %s: the maximum is %u; use a "
                          "call, or write larger data into a region, and pass its offset",
                          bytes, name, REMO__RPC_DATA_MAX);
    if (number >= REMO_RPC_HANDLERS_MAX)
        return remo__fail(-EINVAL, "service %s has no handler %u: use a number below %u", name, number,
                          REMO_RPC_HANDLERS_MAX);
    return remo__fail(-EINVAL, "cannot call service %s: node %u is not a participant, or the data is NULL",
                      name, node);
}

int remo__rpc_check_connected(const struct remo_rpc *rpc, uint32_t node) {
    if (remo__likely(remo__channel_is_connected(rpc->channel, node) && remo__rpc_is_up(rpc->transport, node)))
        return 0;
    if (atomic_load(&rpc->channel->mismatched))
        return remo__fail(-EPROTO, "%s", rpc->channel->error_text);
    int rc = remo__channel_check_peer(rpc->channel, node);
    if (rc == 0)
        rc = remo__channel_check_peer(rpc->transport->channel, node);
    return rc != 0 ? rc
                   : remo__fail(-EAGAIN, "node %u has not opened service %s yet; see remo_channel_wait", node,
                                remo_channel_name(rpc->channel));
}

int remo__rpc_check_arguments(const struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data,
                              size_t bytes) {
    if (remo__likely(node < rpc->transport->size && remo_nodeset_has(&rpc->channel->participants, node)
                     && number < REMO_RPC_HANDLERS_MAX && bytes <= REMO__RPC_DATA_MAX
                     && (data || bytes == 0)))
        return 0;
    return fail_target(rpc, node, number, bytes);
}

int remo__rpc_check_target(const struct remo_rpc *rpc, uint32_t node, uint32_t number, const void *data,
                           size_t bytes) {
    int rc = remo__rpc_check_arguments(rpc, node, number, data, bytes);
    return rc == 0 ? remo__rpc_check_connected(rpc, node) : rc;
}

uint64_t remo__rpc_rest(const struct remo_rpc *rpc, uint32_t node, uint64_t deadline_ns) {
    uint64_t service = atomic_load_explicit(&rpc->channel->peers[node].id, memory_order_relaxed);
    if (remo__likely(deadline_ns == REMO_FOREVER))
        return service;
    uint64_t now = remo__now_coarse_ns();
    if (!rpc->transport->mapped || deadline_ns <= now + REMO__FAR_NS)
        now = remo__now_ns();
    uint64_t left = (deadline_ns > now ? deadline_ns - now : 0) >> REMO__RPC_TIME_SHIFT;
    if (left > INT32_MAX / 2)
        return service; /* 18 minutes or more: no limit */
    uint64_t start = rpc->transport->mapped ? now >> REMO__RPC_TIME_SHIFT : 0;
    uint32_t time = (uint32_t)(start + remo__max(left, 1));
    return service | (uint64_t)(time != 0 ? time : 1) << 32;
}
