/* transport.c - the transport of a node: rings, slots and state in one channel, which all services share.
 * Invariant: the transport stays open until the node closes, so the endpoints of two nodes connect once. */
#include <stdlib.h>

#include "objects/rpc/rpc.h"

#define POLL_NS REMO__NS_PER_MS /* between two polls of the service thread for chores */

static const char transport_key;

/* The thread that set REMO__RPC_AT_NEAR was not near, or its bit was not set yet. */
static void note_woken(struct remo__rpc_transport *transport, uint32_t node) {
    char *state = transport->state->own;
    (void)remo__rpc_clear_bit(state, REMO__RPC_AT_WOKEN, node);
    if (remo__rpc_has_bit(state, REMO__RPC_AT_NEAR, 0))
        (void)remo__rpc_clear_bit(state, REMO__RPC_AT_NEAR, 0);
    atomic_store_explicit(&transport->was_woken, true, memory_order_relaxed);
}

/* `value`: 0, or 1 + the slot of a call with `done` whose reply has arrived. */
static void on_immediate(void *ctx, uint32_t node, uint32_t value) {
    struct remo__rpc_transport *transport = ctx;
    char *state = transport->state->own;
    bool is_marked = true; /* the bits may show a poller what has arrived */
    /* These changes precede the load of the pollers: a poller that leaves polls again after it has left. */
    if (transport->mapped)
        note_woken(transport, node);
    else if (value > 0 && value <= REMO__RPC_SLOTS_TOTAL)
        (void)remo__rpc_set_bit(state, REMO__RPC_AT_ENDED, value - 1);
    else if (transport->size > REMO__RPC_DIRECT_NODES)
        (void)remo__rpc_set_bit(state, REMO__RPC_AT_PENDING, node);
    else
        is_marked = false;
    remo__mapped_fence_after_atomic();
    struct remo__thread *thread = remo__thread(transport->node);
    bool has_pollers = remo__rpc_has_pollers(transport);
    bool found = thread && !has_pollers && remo__rpc_poll_all(transport, thread);
    if (!found && (transport->mapped || !is_marked))
        remo__service_count_needless(transport->node);
    if (!thread && !has_pollers)
        remo__log(&transport->node->log, REMO_LOG_ERROR, "cannot serve the requests of node %u: %s", node,
                  remo_last_error());
}

/* Requests of the node may have arrived before. They stay in their ring until replies can be sent. */
static void on_connect(void *ctx, uint32_t node) {
    struct remo__rpc_transport *transport = ctx;
    if (transport->size > REMO__RPC_DIRECT_NODES)
        (void)remo__rpc_set_bit(transport->state->own, REMO__RPC_AT_PENDING, node);
    remo__rpc_request_poll(transport);
}

/* Calls to this node fail, and queued messages are dropped. */
static void on_leave(void *ctx, uint32_t node, enum remo_channel_state state) {
    struct remo__rpc_transport *transport = ctx;
    (void)node, (void)state;
    atomic_store(&transport->has_departures, true); /* before must_scan: the scan checks the calls */
    atomic_store(&transport->must_scan, true);
    if (atomic_load(&transport->done_count) > 0 || atomic_load(&transport->chores) > 0)
        remo__rpc_request_poll(transport);
}

/* Deferred requests of the node can no longer be replied to. */
static void on_cut_off(void *ctx, uint32_t node) {
    struct remo__rpc_transport *transport = ctx;
    for (uint32_t slot = 0; slot < REMO__RPC_SLOTS_TOTAL; slot++)
        atomic_store(&transport->deferred[node][slot], 0);
}

/* Returns false if the immediate cannot be sent now. */
static bool send_to_self(struct remo__rpc_transport *transport) {
    struct remo__thread *thread = remo__thread(transport->node);
    struct remo__ref ref;
    struct remo_stats discarded = {0};
    if (!thread || !remo__memory_find_now(transport->state, thread, transport->rank, 0, &ref))
        return false;
    ref.stats = &discarded;
    return remo__channel_write_immediate_flags(transport->channel, ref, NULL, 0, 0, REMO__WRITE_TRY, NULL)
           == 0;
}

/* Runs in the service thread, which must not wait here: it serves when it receives the immediate. */
static bool on_swept(struct remo__thread_observer *observer) {
    struct remo__rpc_transport *transport =
        remo__container_of(observer, struct remo__rpc_transport, observer);
    bool has_done = atomic_load(&transport->done_count) > 0; /* also in case a mark of a reply was missed */
    uint64_t now = remo__now_ns();
    if (now < transport->next_poll_ns) /* the immediate itself is an operation, and causes a sweep */
        return true;
    bool is_due = has_done || atomic_load(&transport->chores) > 0;
    if (has_done)
        atomic_store(&transport->must_scan, true);
    if (!atomic_exchange(&transport->must_poll, false) && !is_due)
        return false;
    transport->next_poll_ns = now + POLL_NS;
    if (send_to_self(transport))
        return is_due;
    atomic_store(&transport->must_poll, true);
    return true;
}

/* ---- open and close ---- */

static void close_transport(struct remo__shared *shared) {
    struct remo__rpc_transport *transport = remo__container_of(shared, struct remo__rpc_transport, shared);
    remo__rpc_pool_stop(transport);
    remo__thread_unobserve(transport->node, &transport->observer);
    remo_channel_close(transport->channel);
    if (transport->peers)
        remo__rpc_queues_free(transport);
    remo__rpc_blocks_free(transport);
    free(transport->peers);
    free(transport->services);
    free(transport->deferred);
    pthread_mutex_destroy(&transport->pool_mutex);
    free(transport);
}

static int add_memory(struct remo__rpc_transport *transport, const char *name, uint64_t bytes,
                      struct remo__memory **ret_memory) {
    uint32_t index;
    int rc = remo_channel_add_memory(transport->channel, name, bytes, bytes, NULL, &index);
    if (rc == 0)
        *ret_memory = &transport->channel->memories[index];
    return rc;
}

static int open_channel(struct remo__rpc_transport *transport) {
    const struct remo_channel_options options = {.ctx = transport,
                                                 .on_connect = on_connect,
                                                 .on_immediate = on_immediate,
                                                 .on_leave = on_leave,
                                                 .on_cut_off = on_cut_off};
    uint64_t rings_bytes = (uint64_t)transport->size * REMO__RPC_RING_SPAN;
    int rc = remo_channel_open(remo_node_root(transport->node), "remo-rpc", "rpc-transport", &options,
                               &transport->channel);
    if (rc == 0)
        rc = add_memory(transport, "rings", rings_bytes, &transport->rings);
    if (rc == 0)
        rc = add_memory(transport, "slots", (uint64_t)REMO__RPC_SLOTS_TOTAL * REMO__RPC_SLOT_BYTES,
                        &transport->slots);
    if (rc == 0)
        rc = add_memory(transport, "state", REMO__RPC_AT_CREDITS + UINT64_C(8) * transport->size,
                        &transport->state);
    return rc;
}

/* on_leave is not called for a node that failed or left before the channel was opened. A request may still be
 * forwarded to it. */
static void find_departures(struct remo__rpc_transport *transport) {
    for (uint32_t node = 0; node < transport->size; node++)
        if (remo__rpc_has_departed(transport, node))
            atomic_store(&transport->has_departures, true);
}

static int open_private(struct remo__rpc_transport *transport) {
    uint32_t size = transport->size;
    size_t peers_bytes = size * sizeof *transport->peers;
    transport->peers = aligned_alloc(REMO__CACHE_LINE, peers_bytes);
    if (transport->peers)
        memset(transport->peers, 0, peers_bytes);
    transport->services = calloc(REMO__COUNTERS_MAX, sizeof *transport->services);
    transport->deferred = calloc(size, sizeof *transport->deferred);
    if (!transport->peers || !transport->services || !transport->deferred)
        return remo__fail(-ENOMEM, "no memory for the rings of %u nodes", size);
    for (uint32_t node = 0; node < size; node++)
        transport->peers[node].key = remo__rpc_key(0);
    remo__rpc_slots_init(transport);
    return 0;
}

static int open_transport(struct remo_node *node, struct remo__shared **ret_shared) {
    struct remo__rpc_transport *transport =
        aligned_alloc(REMO__CACHE_LINE, remo__align_up(sizeof *transport, REMO__CACHE_LINE));
    if (!transport)
        return remo__fail(-ENOMEM, "no memory for remote procedure calls");
    memset(transport, 0, sizeof *transport);
    pthread_mutex_init(&transport->pool_mutex, NULL);
    transport->node = node;
    transport->size = node->size;
    transport->rank = node->rank;
    transport->mapped = node->mapped;
    transport->fences = !node->mapped && !node->fabric->caps.writes_ordered;
    transport->observer.swept = on_swept;
    transport->shared.close = close_transport;
    int rc = open_private(transport);
    if (rc == 0)
        rc = open_channel(transport);
    if (rc != 0) {
        close_transport(&transport->shared);
        return rc;
    }
    find_departures(transport);
    transport->shared.channel = transport->channel;
    remo__thread_observe(node, &transport->observer);
    *ret_shared = &transport->shared;
    return 0;
}

int remo__rpc_transport_get(struct remo_node *node, struct remo__rpc_transport **ret_transport) {
    struct remo__shared *shared;
    int rc = remo__shared_get(node, &transport_key, open_transport, &shared);
    if (rc == 0)
        *ret_transport = remo__container_of(shared, struct remo__rpc_transport, shared);
    return rc;
}
