/* service.c - implements remo/rpc.h: services and their handlers.
 * Invariant: no handler of a service runs after it was removed from the table of services. */
#include <stdlib.h>

#include "objects/region.h"
#include "objects/rpc/rpc.h"

static int fail_handler(const struct remo_rpc *rpc, const struct remo_rpc_handler *handler, int code) {
    const char *name = remo_channel_name(rpc->channel);
    if (code == -EEXIST)
        return remo__fail(code, "service %s has handler %u already; use another number", name,
                          handler->number);
    return remo__fail(
        code,
        "cannot register a handler of service %s: its function is NULL, its kind is unknown, or "
        "its number is not below %u",
        name, REMO_RPC_HANDLERS_MAX);
}

int remo_rpc_handle(struct remo_rpc *rpc, const struct remo_rpc_handler *handler) {
    REMO__REQUIRE(rpc);
    REMO__REQUIRE(handler);
    if (!handler->run || handler->number >= REMO_RPC_HANDLERS_MAX || (uint32_t)handler->kind > REMO_RPC_LONG)
        return fail_handler(rpc, handler, -EINVAL);
    int rc = handler->kind == REMO_RPC_LONG ? remo__rpc_pool_start(rpc->transport) : 0;
    if (rc != 0)
        return rc;
    size_t bytes = sizeof(struct remo__rpc_entry) + rpc->node->threads_max * sizeof(struct remo__rpc_counts);
    struct remo__rpc_entry *entry = aligned_alloc(REMO__CACHE_LINE, remo__align_up(bytes, REMO__CACHE_LINE)),
                           *none = NULL;
    if (!entry)
        return remo__fail(-ENOMEM, "no memory for a handler");
    memset(entry, 0, bytes);
    entry->handler = *handler;
    if (atomic_compare_exchange_strong(&rpc->entries[handler->number], &none, entry))
        return 0;
    free(entry);
    return fail_handler(rpc, handler, -EEXIST);
}

static void free_service(struct remo_rpc *rpc) {
    for (uint32_t number = 0; number < REMO_RPC_HANDLERS_MAX; number++)
        free(atomic_load(&rpc->entries[number]));
    free(rpc);
}

static int add_handlers(struct remo_rpc *rpc, const struct remo_rpc_options *options) {
    int rc = 0;
    if (options && options->handler_count > 0 && !options->handlers)
        return remo__fail(-EINVAL, "cannot open service %s: it has %u handlers, but their array is NULL",
                          remo_channel_name(rpc->channel), options->handler_count);
    for (uint32_t i = 0; options && i < options->handler_count && rc == 0; i++)
        rc = remo_rpc_handle(rpc, &options->handlers[i]);
    return rc;
}

static int add_service(struct remo_rpc *rpc) {
    struct remo__rpc_transport *transport = rpc->transport;
    if (atomic_fetch_add(&transport->service_count, 1) >= REMO_RPC_SERVICES_MAX) {
        atomic_fetch_sub(&transport->service_count, 1);
        return remo__fail(-EMFILE, "this node has %u services; close some of them", REMO_RPC_SERVICES_MAX);
    }
    atomic_store(&transport->services[rpc->channel->slot], rpc);
    return 0;
}

/* Requests of the service are refused from now on, and none of its handlers runs any more. */
static void remove_service(struct remo_rpc *rpc) {
    struct remo__rpc_transport *transport = rpc->transport;
    if (atomic_load(&transport->services[rpc->channel->slot]) != rpc)
        return;
    atomic_store(&transport->services[rpc->channel->slot], NULL);
    atomic_fetch_sub(&transport->service_count, 1);
    for (uint32_t node = 0; node < transport->size; node++) {
        (void)remo__mutex_lock(rpc->node, &transport->peers[node].receive_mutex, REMO_FOREVER);
        remo__rpc_unlock_ring(transport, node);
    }
    struct remo__thread *thread = remo__thread(rpc->node);
    if (thread)
        remo__rpc_abandon_deferred(rpc, thread); /* a LONG handler may wait for such a reply */
    remo__rpc_pool_drain(rpc, thread);
    if (!thread)
        return;
    remo__rpc_abandon_deferred(rpc, thread);    /* those that LONG handlers have deferred since */
    if (remo__rpc_hold_done(transport, thread)) /* a `done` function may still use the service */
        remo__mutex_unlock(rpc->node, &transport->done_mutex);
}

static int open_service(struct remo_rpc *rpc, struct remo_channel *parent, const char *name,
                        const struct remo_rpc_options *options) {
    const struct remo_channel_options channel = {.participants = options ? options->participants
                                                                         : (struct remo_nodeset){{0}}};
    int rc = remo_channel_open(parent, name, "rpc", &channel, &rpc->channel);
    if (rc == 0)
        rc = remo__rpc_transport_get(rpc->node, &rpc->transport);
    if (rc == 0)
        rc = add_handlers(rpc, options);
    return rc == 0 ? add_service(rpc) : rc;
}

int remo_rpc_open(struct remo_channel *parent, const char *name, const struct remo_rpc_options *options,
                  struct remo_rpc **ret_rpc) {
    REMO__REQUIRE(parent);
    REMO__REQUIRE(ret_rpc);
    int rc = remo__require_coherence(parent, "a service");
    if (rc != 0)
        return rc;
    struct remo_rpc *rpc = calloc(1, sizeof *rpc);
    if (!rpc)
        return remo__fail(-ENOMEM, "no memory for a service");
    rpc->node = remo_channel_node(parent);
    rc = open_service(rpc, parent, name, options);
    if (rc == 0) {
        *ret_rpc = rpc; /* handlers may use it immediately */
        rc = remo_channel_join(rpc->channel);
    }
    if (rc != 0) {
        *ret_rpc = NULL;
        remo_rpc_close(rpc);
    }
    return rc;
}

void remo_rpc_close(struct remo_rpc *rpc) {
    if (!rpc)
        return;
    if (rpc->transport && rpc->channel)
        remove_service(rpc);
    remo_channel_close(rpc->channel);
    free_service(rpc);
}

struct remo_channel *remo_rpc_channel(struct remo_rpc *rpc) {
    return rpc ? rpc->channel : NULL;
}

/* Sum the counters of all threads; each writes its own. */
int remo_rpc_stats(const struct remo_rpc *rpc, uint32_t number, struct remo_rpc_handler_stats *ret_stats) {
    REMO__REQUIRE(rpc);
    REMO__REQUIRE(ret_stats);
    const struct remo__rpc_entry *entry =
        number < REMO_RPC_HANDLERS_MAX ? atomic_load(&rpc->entries[number]) : NULL;
    struct remo_rpc_handler_stats sum = {0};
    if (!entry)
        return remo__fail(-ENOENT, "service %s has no handler %u on this node", rpc->channel->name, number);
    for (uint32_t i = 0; i < rpc->node->threads_max; i++) {
        const struct remo__rpc_counts *counts = &entry->counts[i];
        sum.requests += __atomic_load_n(&counts->requests, __ATOMIC_RELAXED);
        sum.errors += __atomic_load_n(&counts->errors, __ATOMIC_RELAXED);
        sum.deferred += __atomic_load_n(&counts->deferred, __ATOMIC_RELAXED);
        sum.forwarded += __atomic_load_n(&counts->forwarded, __ATOMIC_RELAXED);
        sum.expired += __atomic_load_n(&counts->expired, __ATOMIC_RELAXED);
        sum.timed += __atomic_load_n(&counts->timed, __ATOMIC_RELAXED);
        sum.timed_ns += __atomic_load_n(&counts->timed_ns, __ATOMIC_RELAXED);
        uint64_t max_ns = __atomic_load_n(&counts->timed_ns_max, __ATOMIC_RELAXED);
        sum.timed_ns_max = remo__max(sum.timed_ns_max, max_ns);
    }
    sum.queued = atomic_load(&entry->queued);
    *ret_stats = sum;
    return 0;
}
