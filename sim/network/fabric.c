/* fabric.c - the simulated network as a fabric (struct remo__fabric_ops).
 * Opens, connects, cuts off, posts, polls, and takes immediates. Operations in flight are those of net.c. */
#include <assert.h>
#include <errno.h>

#include "base/error.h"
#include "sim/world/fault.h"
#include "sim/memory/heap.h"
#include "sim/network/inside.h"

#define DEPTH 16u
static_assert(DEPTH <= DONE_MAX, "what completes before it is polled has room");

static int sim_open(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric) {
    extern const struct remo__fabric_ops remo__fabric_sim;
    struct sim_fabric *fabric = sim_calloc(1, sizeof *fabric);
    if (!fabric)
        return remo__fail(-ENOMEM, "no memory for the simulated network");
    const struct sim_profile *p = sim_profile;
    struct remo__fabric_caps caps = {.mapped = p->mapped,
                                     .coherent = !p->cached,
                                     .atomics_coherent = p->rmw_one_step,
                                     .writes_ordered = p->put_put && p->put_rmw,
                                     .reads_ordered = p->get_get,
                                     .completion_placed = p->placed,
                                     .read_flushes = p->put_get,
                                     .local_registered = !p->mapped,
                                     .inline_bytes = p->inline_bytes,
                                     .batch_max = 1,
                                     .depth = DEPTH,
                                     .message_bytes_max = OP_BYTES_MAX};
    sim_fabric_init(fabric, &remo__fabric_sim, config, &caps);
    net()->arenas[config->rank] = config->arena;
    *ret_fabric = &fabric->base;
    return 0;
}

static void sim_close(struct remo__fabric *fabric) {
    sim_free(fabric);
}

static int sim_connect(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes) {
    if (sim_profile->mapped) {
        atomic_store(&fabric->peers[peer].doorbell, &sim_world->bells[peer].bell);
        atomic_store(&fabric->peers[peer].sleepers_fence, sim_sleepers_fence(fabric->rank, peer));
        atomic_store(&fabric->peers[peer].base, net()->arenas[peer]);
    }
    return sim_common_connect(fabric, peer, blob, blob_bytes);
}

static void sim_disconnect(struct remo__fabric *fabric, uint32_t peer) {
    atomic_store(&fabric->peers[peer].base, NULL);
    atomic_store(&fabric->peers[peer].connected, 0);
    sim_net_cut_off(fabric->rank, peer);
    sim_trace("cuts off node %u", peer);
}

static int sim_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint) {
    struct remo__endpoint *endpoint =
        net()->endpoints < ENDPOINTS_MAX ? sim_calloc(1, sizeof *endpoint) : NULL;
    if (!endpoint)
        return remo__fail(-ENOMEM, "no memory for an endpoint");
    endpoint->index = net()->endpoints++;
    endpoint->node = fabric->rank;
    endpoint->fabric = fabric;
    net()->endpoint[endpoint->index] = endpoint;
    *ret_endpoint = endpoint;
    return 0;
}

static void sim_endpoint_close(struct remo__endpoint *endpoint) {
    for (uint32_t i = net()->count; i-- > 0;)
        if (op_at(i)->endpoint == endpoint->index)
            sim_net_remove(i);
    net()->endpoint[endpoint->index] = NULL;
    sim_free(endpoint);
}

static uint32_t lines_of(const struct remo__op *op) {
    if (op->size_bytes == 0)
        return 0;
    uint64_t size = sim_profile->line_bytes;
    return (uint32_t)((op->remote % size + op->size_bytes + size - 1) / size);
}

/* Return whether the target has failed, has cut the poster off, or is severed. */
static bool is_unreachable(const struct op *op) {
    const struct sim_world *world = sim_world;
    bool severed = op->node != op->is.peer && (world->severed[op->node] || world->severed[op->is.peer]);
    return world->crashed[op->is.peer] || net()->cut[op->is.peer][op->node] || severed;
}

static void start(struct remo__endpoint *endpoint, const struct remo__op *is) {
    uint8_t slot = net()->unused[--net()->unused_count];
    struct op *op = &net()->ops[slot];
    uint32_t lines = lines_of(is);
    uint64_t all = lines == 64 ? UINT64_MAX : (1ull << lines) - 1;
    memset(op, 0, offsetof(struct op, bytes));
    op->is = *is;
    op->node = endpoint->node;
    op->endpoint = endpoint->index;
    op->lines = lines;
    op->variant = (uint32_t)(net()->posts % VARIANTS);
    op->source_todo = op->place_todo = is->kind == REMO__OP_READ || is->kind == REMO__OP_WRITE ? all : 0;
    op->delivered = !(is->flags & REMO__OP_IMM) && !(lines == 0 && (is->flags & REMO__OP_NOTIFY));
    if (is->kind == REMO__OP_WRITE && ((is->flags & REMO__OP_INLINE) || lines == 0)) {
        if (is->size_bytes > 0)
            memcpy(op->bytes, is->local, is->size_bytes);
        op->source_todo = 0;
        op->sent = true;
    }
    op->delayed = sim_delay_takes(op->node);
    if (is_unreachable(op))
        sim_net_fail(op);
    else if (!sim_profile->placed && sim_fault_hits(SIM_REFUSE, net()->posts, op->node))
        sim_net_refuse(op);
    net()->order[net()->count++] = slot;
    sim_trace("posts %s, %llu bytes at %s%s", name_of(op), (unsigned long long)is->size_bytes,
              sim_place(remote_of(op)), op->delayed ? ", delayed" : "");
    if (op->node != op->is.peer && sim_fault_hits(SIM_LOSE, net()->posts, op->node)) {
        sim_net_lose(op);
        uint32_t ends = remo__max(op->node, op->is.peer);
        sim_world->ends[ends] = true;
        sim_lose(ends);
    }
}

/* Execute an operation on mapped memory, and complete it. The fabric keeps immediates in private memory, so
 * the data is placed first. */
static int execute(struct remo__endpoint *endpoint, const struct remo__op *op) {
    struct remo__fabric_peer *peer = &endpoint->fabric->peers[op->peer];
    char *at = atomic_load(&peer->base) + op->remote;
    switch ((enum remo__op_kind)op->kind) {
    case REMO__OP_READ: remo__mapped_copy_from(op->local, at, op->size_bytes); break;
    case REMO__OP_WRITE: remo__mapped_copy_to(at, op->local, op->size_bytes); break;
    case REMO__OP_FETCH_ADD: *(remo__word64 *)op->local = remo__mapped_fetch_add(at, op->operand); break;
    case REMO__OP_COMPARE_SWAP:
        *(remo__word64 *)op->local = remo__mapped_compare_swap(at, op->compare, op->operand);
        break;
    }
    if (op->flags & (REMO__OP_NOTIFY | REMO__OP_IMM))
        sim_drain(sim_current());
    if (op->flags & REMO__OP_IMM)
        sim_net_deliver(op->peer, endpoint->node, op->imm);
    if (op->flags & (REMO__OP_NOTIFY | REMO__OP_IMM))
        remo__mapped_notify(peer);
    assert(endpoint->done_count < DONE_MAX);
    endpoint->done[endpoint->done_count++] = (struct remo__completion){.token = op->token};
    net()->completions++;
    sim_changed(endpoint->node);
    return 1;
}

static int sim_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count) {
    (void)count;
    sim_point("post");
    sim_drain(sim_current());
    net()->posts++;
    if (sim_current())
        sim_current()->posts++;
    if (net()->unused_count == 0)
        return -EAGAIN;
    if (sim_fault_hits(SIM_FAIL_POST, net()->posts, endpoint->node)
        || sim_fail_takes(SIM_FAIL_POST, endpoint->node))
        return remo__fail(-EIO, "cannot post the operation: the schedule injects a failure");
    if (!atomic_load(&endpoint->fabric->peers[ops[0].peer].connected))
        return remo__fail_static(-EHOSTDOWN, "cannot post the operation: the peer is cut off");
    if (sim_profile->mapped)
        return execute(endpoint, &ops[0]);
    if (endpoint->lost & 1u << ops[0].peer)
        return -EAGAIN;
    if (lines_of(&ops[0]) > LINES_MAX || ops[0].size_bytes > OP_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot post the operation: %llu bytes are too many",
                          (unsigned long long)ops[0].size_bytes);
    start(endpoint, &ops[0]);
    endpoint->poster = sim_current();
    sim_changed(endpoint->node);
    return 1;
}

static int sim_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max) {
    if (sim_profile->mapped)
        sim_drain(sim_current()); /* a completion means placed */
    uint32_t count = sim_take_completions(endpoint->done, &endpoint->done_count, done, max);
    if (count > 0)
        sim_changed(endpoint->node);
    return (int)count;
}

static int sim_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max) {
    struct imms *here = &net()->imms[fabric->rank];
    uint32_t count = (uint32_t)remo__min(max, here->count);
    memcpy(imms, here->imm, count * sizeof *imms);
    here->count -= count;
    memmove(here->imm, here->imm + count, here->count * sizeof *imms);
    return (int)count;
}

static bool imm_there(void *ctx) {
    const struct imms *here = ctx;
    return here->count > 0 || here->woken;
}

static void sim_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns) {
    struct imms *here = &net()->imms[fabric->rank];
    here->due_ns = timeout_ns != REMO_FOREVER ? sim_world->now_ns + timeout_ns : 0;
    sim_until(imm_there, here, "wait for an immediate");
    here->due_ns = 0;
    here->woken = false;
}

bool sim_net_sweep(uint64_t until_ns, bool (*needs)(uint32_t node)) {
    bool found = false;
    for (uint32_t node = 0; node < sim_world->nodes_count; node++) {
        struct imms *here = &net()->imms[node];
        if (here->due_ns == 0 || here->due_ns > until_ns || sim_world->crashed[node]
            || (needs && !needs(node)))
            continue;
        sim_world->now_ns = remo__max(sim_world->now_ns, here->due_ns);
        here->woken = found = true;
        sim_changed(node);
    }
    return found;
}

static void sim_imm_wake(struct remo__fabric *fabric) {
    net()->imms[fabric->rank].woken = true;
}

const struct remo__fabric_ops remo__fabric_sim = {
    .name = "sim",
    .probe = sim_common_probe,
    .open = sim_open,
    .close = sim_close,
    .add_segment = sim_common_add_segment,
    .map_segment = sim_common_map_segment,
    .describe = sim_common_describe,
    .connect = sim_connect,
    .disconnect = sim_disconnect,
    .is_lost = sim_common_is_lost,
    .endpoint_open = sim_endpoint_open,
    .endpoint_close = sim_endpoint_close,
    .post = sim_post,
    .poll = sim_poll,
    .wait = sim_common_wait,
    .imm_poll = sim_imm_poll,
    .imm_wait = sim_imm_wait,
    .imm_wake = sim_imm_wake,
    .take_arrivals = sim_common_take_arrivals,
    .wire = sim_common_wire,
};

const struct remo__fabric_ops *remo__fabric_find(const char *name) {
    return strcmp(name, remo__fabric_sim.name) == 0 ? &remo__fabric_sim : NULL;
}
