/* net.c - see net.h. An operation is a few sets of lines still to be moved, and stages that hold each other back as the profile says.
 *
 *   write   lines are read from the source (late: any time until then it may change), then it is sent; completion, placement of each line, and the
 *           immediate behind it are apart
 *   read    lines are read at the target, each in any order, then put into the destination, then it completes
 *   atomic  read, write (between them the target's network card lets no other atomic in; writes and CPUs come and go), result, completion
 */
#include "sim/net.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "sim/cache.h"
#include "sim/heap.h"
#include "sim/world.h"

#define OPS_MAX        96u
#define VARIANTS       3u
#define LINES_MAX      64u
#define ENDPOINTS_MAX  24u
#define OP_BYTES_MAX   2048u
#define DONE_MAX       128u
#define IMMS_MAX       128u

enum stage { STAGE_MOVE, STAGE_PLACE, STAGE_COMPLETE, STAGE_CACHE };

struct op {
    struct remo__op is;
    uint32_t node;                  /* who posted it */
    uint32_t endpoint;
    uint64_t source_todo;           /* write: lines to read; read: lines to read at the target */
    uint64_t place_todo;            /* write: lines to place; read: lines to put into the destination */
    uint32_t lines;
    uint32_t variant;               /* operations of one connection have priorities of their own, so that they may overtake */
    bool sent;                      /* beyond recall */
    bool executed;                  /* atomic: written */
    bool reading;                   /* atomic: read, not yet written: has the card of its target */
    bool delivered;                 /* immediate or nothing to deliver */
    bool completed;
    int status;
    uint64_t old;
    char bytes[OP_BYTES_MAX];       /* under way */
};

struct remo__endpoint {
    uint32_t index, node;
    struct remo__fabric *fabric;
    struct remo__completion done[DONE_MAX];
    uint32_t done_count;
};

struct imms {
    struct remo__imm imm[IMMS_MAX];
    uint32_t count;
    bool woken;
};

struct fabric {
    struct remo__fabric base;
    struct remo__doorbell bell;
    struct remo__fabric_peer peers[SIM_NODES_MAX];
    char *arena;
};

struct sim_net {
    struct op *ops;                 /* [OPS_MAX] */
    uint8_t order[OPS_MAX];         /* those in flight, oldest first */
    uint8_t unused[OPS_MAX];
    uint32_t count, unused_count, endpoints;
    uint32_t card_busy[SIM_NODES_MAX]; /* atomics between their read and their write */
    uint64_t posts, completions;
    struct fabric *fabrics[SIM_NODES_MAX];
    bool cut[SIM_NODES_MAX][SIM_NODES_MAX]; /* [target][from]: disconnected there */
    struct imms imms[SIM_NODES_MAX];
};

static struct sim_net *net(void) {
    return sim_world->net;
}

static struct op *op_at(uint32_t place) {
    return &net()->ops[net()->order[place]];
}

uint32_t sim_net_count(void) {
    return net()->count;
}

void sim_net_open(void) {
    struct sim_net *made = sim_calloc(1, sizeof *made);
    made->ops = (struct op *)sim_heap_arena(OPS_MAX * sizeof *made->ops); /* an op is written whole when it is posted: no need to restore */
    for (uint32_t i = 0; i < OPS_MAX; i++)
        made->unused[made->unused_count++] = (uint8_t)(OPS_MAX - 1 - i);
    sim_world->net = made;
    sim_cache_open();
}

void sim_net_forget(void) {
    memset(net()->ops, 0, OPS_MAX * sizeof *net()->ops);
}

/* ---- who holds back whom ---- */

static bool is_read(const struct op *op) {
    return op->is.kind == REMO__OP_READ;
}

static bool is_write(const struct op *op) {
    return op->is.kind == REMO__OP_WRITE;
}

static bool is_placed(const struct op *op) {
    return is_write(op) ? op->sent && op->place_todo == 0 : is_read(op) ? op->source_todo == 0 : op->executed;
}

static bool has_result(const struct op *op) {
    return is_write(op) ? op->sent : is_read(op) ? op->source_todo == 0 && op->place_todo == 0 : op->executed;
}

static bool same_line(const struct op *a, const struct op *b) {
    return a->endpoint == b->endpoint && a->is.peer == b->is.peer;
}

/* Must `later` wait at its target until `earlier` (same connection) has been there? */
static bool holds_back(const struct op *earlier, const struct op *later) {
    const struct sim_profile *p = sim_profile;
    if (is_placed(earlier))
        return (later->is.flags & REMO__OP_FENCE) && !is_write(earlier) && !has_result(earlier);
    if ((later->is.flags & REMO__OP_FENCE) && !is_write(earlier))
        return true;
    if (is_write(earlier))
        return is_write(later) ? p->put_put : is_read(later) ? p->put_get : p->put_rmw;
    if (is_read(earlier))
        return is_write(later) ? p->get_put : is_read(later) ? p->get_get : p->get_rmw;
    return is_read(later) ? p->rmw_get : p->get_rmw;
}

static bool may_arrive(uint32_t place) {
    const struct op *op = op_at(place);
    for (uint32_t i = 0; i < place; i++)
        if (same_line(op_at(i), op) && holds_back(op_at(i), op))
            return false;
    return true;
}

static bool may_complete(uint32_t place) {
    const struct op *op = op_at(place);
    if (op->status == 0 && (!has_result(op) || (is_write(op) && sim_profile->placed && op->place_todo != 0)))
        return false;
    for (uint32_t i = 0; sim_profile->completion_order && i < place; i++)
        if (same_line(op_at(i), op) && !op_at(i)->completed)
            return false;
    return true;
}

/* Immediates of one connection arrive in order, each behind its data. */
static bool may_deliver(uint32_t place) {
    const struct op *op = op_at(place);
    for (uint32_t i = 0; i < place; i++)
        if (same_line(op_at(i), op) && !op_at(i)->delivered)
            return false;
    return is_placed(op);
}

/* What operation number `place` may do at its target or source now: 0 nothing, or a stage. */
static bool may_move(uint32_t place) {
    const struct op *op = op_at(place);
    if (op->status != 0)
        return false;
    if (is_write(op))
        return op->source_todo != 0;
    if (is_read(op))
        return op->source_todo != 0 && may_arrive(place);
    return !op->executed && (op->reading || (may_arrive(place) && net()->card_busy[op->is.peer] == 0));
}

static bool may_place(uint32_t place) {
    const struct op *op = op_at(place);
    if (op->status != 0)
        return false;
    if (is_write(op))
        return op->sent && ((op->place_todo != 0 && may_arrive(place)) || (op->place_todo == 0 && !op->delivered && may_deliver(place)));
    return is_read(op) && (op->place_todo & ~op->source_todo) != 0;
}

uint32_t sim_net_steps(struct sim_step *steps, uint32_t cap) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < net()->count && count + 3 <= cap; i++) {
        const struct op *op = op_at(i);
        uint16_t line = (uint16_t)(2 * SIM_ACTORS_MAX + ((op->endpoint * SIM_NODES_MAX + op->is.peer) * VARIANTS + op->variant) * 3);
        if (may_move(i))
            steps[count++] = (struct sim_step){.stage = STAGE_MOVE, .index = (uint16_t)i, .line = line};
        if (may_place(i))
            steps[count++] = (struct sim_step){.stage = STAGE_PLACE, .index = (uint16_t)i, .line = (uint16_t)(line + 1)};
        if (!op->completed && may_complete(i))
            steps[count++] = (struct sim_step){.stage = STAGE_COMPLETE, .index = (uint16_t)i, .line = (uint16_t)(line + 2)};
    }
    for (uint16_t node = 0; node < SIM_NODES_MAX && count < cap; node++)
        if (sim_cache_lines(node) > 0)
            steps[count++] = (struct sim_step){.stage = STAGE_CACHE, .index = node, .line = (uint16_t)(SIM_LINES_MAX - 1 - node)};
    return count;
}

/* ---- doing it ---- */

static const char *name_of(const struct op *op) {
    static const char *const names[] = {"read", "write", "fetch-add", "compare-swap"};
    return names[op->is.kind];
}

static char *remote_of(const struct op *op) {
    return net()->fabrics[op->is.peer]->arena + op->is.remote;
}

/* One of the lines in `todo`, taken out of it. */
static uint32_t take_line(uint64_t *todo) {
    uint32_t nth = sim_choose((uint32_t)__builtin_popcountll(*todo));
    uint64_t rest = *todo;
    while (nth-- > 0)
        rest &= rest - 1;
    uint32_t line = (uint32_t)__builtin_ctzll(rest);
    *todo &= ~(1ull << line);
    return line;
}

/* Lines are those of the target's memory: the first and the last may be short. */
static void span_of(const struct op *op, uint32_t line, size_t *ret_from, size_t *ret_bytes) {
    size_t size = sim_profile->line_bytes, skew = op->is.remote % size;
    size_t from = line == 0 ? 0 : line * size - skew, to = (line + 1) * size - skew;
    *ret_from = from;
    *ret_bytes = remo__min(to, op->is.size_bytes) - from;
}

static void remove_op(uint32_t place) {
    uint8_t slot = net()->order[place];
    net()->count--;
    memmove(net()->order + place, net()->order + place + 1, net()->count - place);
    net()->unused[net()->unused_count++] = slot;
}

static void end_if_over(uint32_t place) {
    const struct op *op = op_at(place);
    if (op->completed && (op->status != 0 || (is_placed(op) && op->delivered)))
        remove_op(place);
}

static void move_atomic(struct op *op) {
    uint64_t *word = (uint64_t *)remote_of(op), value;
    bool all = sim_profile->rmw_one_step;
    if (!op->reading || all) {
        op->old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (!op->reading)
            net()->card_busy[op->is.peer]++;
        op->reading = true;
        sim_trace("  %s of node %u reads %s = 0x%llx", name_of(op), op->node, sim_place(word), (unsigned long long)op->old);
        if (!all)
            return;
    }
    value = op->is.kind == REMO__OP_FETCH_ADD ? op->old + op->is.operand : op->old == op->is.compare ? op->is.operand : op->old;
    if (op->is.kind == REMO__OP_FETCH_ADD || op->old == op->is.compare) {
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
        sim_trace("  %s of node %u writes %s = 0x%llx", name_of(op), op->node, sim_place(word), (unsigned long long)value);
    }
    net()->card_busy[op->is.peer]--;
    op->executed = true;
    sim_changed(op->is.peer);
}

static void do_move(uint32_t place) {
    struct op *op = op_at(place);
    size_t from, bytes;
    if (!is_read(op) && !is_write(op)) {
        move_atomic(op);
        return;
    }
    uint32_t line = take_line(&op->source_todo);
    span_of(op, line, &from, &bytes);
    if (is_read(op)) {
        sim_cache_invalidate(op->node, remote_of(op) + from, bytes);
        sim_cache_read(op->node, op->bytes + from, remote_of(op) + from, bytes);
        sim_trace("  read of node %u gets %zu bytes at %s", op->node, bytes, sim_place(remote_of(op) + from));
        return;
    }
    sim_cache_source(op->node, op->bytes + from, (const char *)op->is.local + from, bytes);
    op->sent = op->source_todo == 0;
    if (op->sent)
        sim_trace("  write of node %u to %s is sent", op->node, sim_place(remote_of(op)));
}

static void deliver(struct op *op) {
    struct imms *imms = &net()->imms[op->is.peer];
    op->delivered = true;
    if (!(op->is.flags & REMO__OP_IMM) || sim_world->crashed[op->is.peer])
        return;
    if (imms->count == IMMS_MAX) {
        sim_fail("more than %u immediates wait at node %u", IMMS_MAX, op->is.peer);
        return;
    }
    imms->imm[imms->count++] = (struct remo__imm){.peer = op->node, .value = op->is.imm};
    sim_changed(op->is.peer);
    sim_trace("  immediate 0x%x of node %u arrives at node %u", op->is.imm, op->node, op->is.peer);
}

static void do_place(uint32_t place) {
    struct op *op = op_at(place);
    size_t from, bytes;
    if (is_write(op) && op->place_todo == 0) {
        deliver(op);
        end_if_over(place);
        return;
    }
    uint64_t ready = is_write(op) ? op->place_todo : op->place_todo & ~op->source_todo, left = ready;
    uint32_t line = take_line(&left);
    op->place_todo &= ~(1ull << line);
    span_of(op, line, &from, &bytes);
    char *to = is_write(op) ? remote_of(op) + from : (char *)op->is.local + from;
    sim_cache_write(op->node, to, op->bytes + from, bytes);
    sim_cache_flush(op->node, to, bytes);
    sim_changed(is_write(op) ? op->is.peer : op->node);
    sim_trace("  %s of node %u: %zu bytes placed at %s", name_of(op), op->node, bytes, sim_place(to));
    if (is_write(op) && op->place_todo == 0 && !(op->is.flags & REMO__OP_IMM))
        op->delivered = true;
    end_if_over(place);
}

static struct remo__endpoint *endpoint_of(const struct op *op);

static void do_complete(uint32_t place) {
    struct op *op = op_at(place);
    struct remo__endpoint *endpoint = endpoint_of(op);
    if (!is_read(op) && !is_write(op) && op->status == 0)
        memcpy(op->is.local, &op->old, sizeof op->old);
    op->completed = true;
    net()->completions++;
    if (sim_faults.fail_completion != 0 && net()->completions == sim_faults.fail_completion)
        op->status = -EIO;
    if (endpoint && endpoint->done_count < DONE_MAX)
        endpoint->done[endpoint->done_count++] = (struct remo__completion){.token = op->is.token, .status = op->status};
    sim_changed(op->node);
    sim_trace("  %s of node %u at node %u completes%s", name_of(op), op->node, op->is.peer, op->status ? " with an error" : "");
    end_if_over(place);
}

void sim_net_do(const struct sim_step *step) {
    switch (step->stage) {
    case STAGE_MOVE:
        do_move(step->index);
        break;
    case STAGE_PLACE:
        do_place(step->index);
        break;
    case STAGE_CACHE:
        sim_cache_lose_one(step->index);
        break;
    default:
        do_complete(step->index);
        break;
    }
}

/* ---- death ---- */

static void release_card(struct op *op) {
    if (op->reading && !op->executed)
        net()->card_busy[op->is.peer]--;
    op->reading = false;
}

/* Operations that will not end well: posted by `from` (or anybody) at `target`. The poster learns of it by a completion, if it lives. */
static void fail_op(struct op *op) {
    release_card(op);
    if (!op->completed)
        op->status = -EHOSTDOWN;
    op->source_todo = 0, op->place_todo = 0, op->sent = true, op->executed = true, op->delivered = true;
}

void sim_net_crash(uint32_t node) {
    for (uint32_t i = net()->count; i-- > 0;) {
        struct op *op = op_at(i);
        bool unsent = is_write(op) ? !op->sent : is_read(op) || (!op->reading && sim_choose(2) == 0);
        if (op->node == node && (unsent || op->is.peer == node)) {
            release_card(op);
            remove_op(i);
        } else if (op->node == node) {
            op->completed = true; /* nobody is left to hear of it, but it may still land: a zombie */
            end_if_over(i);
        } else if (op->is.peer == node) {
            fail_op(op);
            end_if_over(i);
        }
    }
}

/* ---- the table of operations ---- */

static struct remo__endpoint *endpoints_of_world[ENDPOINTS_MAX]; /* addresses stay the same from schedule to schedule */

static struct remo__endpoint *endpoint_of(const struct op *op) {
    return endpoints_of_world[op->endpoint];
}

static int sim_probe(const struct remo__fabric_config *config) {
    (void)config;
    return 0;
}

static int sim_open(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric) {
    extern const struct remo__fabric_ops remo__fabric_sim;
    struct fabric *fabric = sim_calloc(1, sizeof *fabric);
    if (!fabric)
        return remo__fail(-ENOMEM, "no memory for the simulated network");
    const struct sim_profile *p = sim_profile;
    fabric->base = (struct remo__fabric){
        .ops = &remo__fabric_sim, .rank = config->rank, .size = config->size, .private_bytes = 64, .peers = fabric->peers,
        .doorbell = &fabric->bell, .log = config->log,
        .caps = {.coherent = !p->cached, .atomics_coherent = p->rmw_one_step, .writes_ordered = p->put_put && p->put_rmw, .reads_ordered = p->get_get,
                 .completion_placed = p->placed, .read_flushes = p->put_get, .local_registered = true,
                 .inline_bytes = p->inline_bytes, .batch_max = 1, .depth = 16, .message_bytes_max = OP_BYTES_MAX}};
    fabric->arena = config->arena;
    net()->fabrics[config->rank] = fabric;
    *ret_fabric = &fabric->base;
    return 0;
}

static void sim_close(struct remo__fabric *fabric) {
    sim_free(fabric);
}

static int sim_add_segment(struct remo__fabric *fabric, uint32_t index, uint64_t offset, uint64_t bytes, int fd, void *blob,
                           size_t blob_cap, size_t *ret_blob_bytes) {
    (void)fabric, (void)index, (void)offset, (void)bytes, (void)fd, (void)blob, (void)blob_cap;
    *ret_blob_bytes = 0;
    return 0;
}

static int sim_map_segment(struct remo__fabric *fabric, uint32_t peer, uint32_t index, uint64_t offset, uint64_t bytes,
                           const void *blob, size_t blob_bytes, int fd) {
    (void)fabric, (void)peer, (void)index, (void)offset, (void)bytes, (void)blob, (void)blob_bytes, (void)fd;
    return 0;
}

static int sim_describe(struct remo__fabric *fabric, void *blob, size_t blob_cap, size_t *ret_blob_bytes) {
    (void)fabric, (void)blob, (void)blob_cap;
    *ret_blob_bytes = 0;
    return 0;
}

static int sim_connect(struct remo__fabric *fabric, uint32_t peer, const void *blob, size_t blob_bytes) {
    (void)blob, (void)blob_bytes;
    atomic_store(&fabric->peers[peer].connected, 1);
    return 0;
}

/* What the peer had sent here and is not placed yet never will be; what we sent there fails. */
static void sim_disconnect(struct remo__fabric *fabric, uint32_t peer) {
    atomic_store(&fabric->peers[peer].connected, 0);
    net()->cut[fabric->rank][peer] = true;
    for (uint32_t i = net()->count; i-- > 0;) {
        struct op *op = op_at(i);
        if ((op->node == peer && op->is.peer == fabric->rank) || (op->node == fabric->rank && op->is.peer == peer)) {
            fail_op(op);
            end_if_over(i);
        }
    }
    sim_trace("cuts off node %u", peer);
}

static int sim_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint) {
    struct remo__endpoint *endpoint = net()->endpoints < ENDPOINTS_MAX ? sim_calloc(1, sizeof *endpoint) : NULL;
    if (!endpoint)
        return remo__fail(-ENOMEM, "no memory for an endpoint");
    endpoint->index = net()->endpoints++;
    endpoint->node = fabric->rank;
    endpoint->fabric = fabric;
    endpoints_of_world[endpoint->index] = endpoint;
    *ret_endpoint = endpoint;
    return 0;
}

static void sim_endpoint_close(struct remo__endpoint *endpoint) {
    for (uint32_t i = net()->count; i-- > 0;)
        if (op_at(i)->endpoint == endpoint->index)
            remove_op(i);
    endpoints_of_world[endpoint->index] = NULL;
    sim_free(endpoint);
}

static uint32_t lines_of(const struct remo__op *op) {
    if (op->size_bytes == 0)
        return 0;
    uint64_t size = sim_profile->line_bytes;
    return (uint32_t)((op->remote % size + op->size_bytes + size - 1) / size);
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
    op->delivered = !(is->flags & REMO__OP_IMM);
    if (is->kind == REMO__OP_WRITE && ((is->flags & REMO__OP_INLINE) || lines == 0)) {
        if (is->size_bytes > 0)
            memcpy(op->bytes, is->local, is->size_bytes);
        op->source_todo = 0;
        op->sent = true;
    }
    if (sim_world->crashed[is->peer])
        fail_op(op);
    net()->order[net()->count++] = slot;
    sim_trace("posts %s, %llu bytes at %s", name_of(op), (unsigned long long)is->size_bytes, sim_place(remote_of(op)));
}

static int sim_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count) {
    (void)count;
    sim_point("post");
    sim_drain(sim_current());
    net()->posts++;
    if (net()->unused_count == 0 || (sim_faults.fail_post != 0 && net()->posts == sim_faults.fail_post))
        return -EAGAIN;
    if (!atomic_load(&endpoint->fabric->peers[ops[0].peer].connected))
        return remo__fail_static(-EHOSTDOWN, "the peer is cut off");
    if (lines_of(&ops[0]) > LINES_MAX || ops[0].size_bytes > OP_BYTES_MAX)
        return remo__fail(-EINVAL, "%llu bytes are too many for one operation", (unsigned long long)ops[0].size_bytes);
    start(endpoint, &ops[0]);
    sim_changed(endpoint->node);
    return 1;
}

static int sim_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max) {
    uint32_t count = (uint32_t)remo__min(max, endpoint->done_count);
    if (count == 0)
        return 0;
    memcpy(done, endpoint->done, count * sizeof *done);
    endpoint->done_count -= count;
    memmove(endpoint->done, endpoint->done + count, endpoint->done_count * sizeof *done);
    sim_changed(endpoint->node);
    return (int)count;
}

static void sim_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns) {
    (void)endpoint, (void)timeout_ns;
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
    (void)timeout_ns;
    sim_until(imm_there, &net()->imms[fabric->rank], "wait for an immediate");
    net()->imms[fabric->rank].woken = false;
}

static void sim_imm_wake(struct remo__fabric *fabric) {
    net()->imms[fabric->rank].woken = true;
}

const struct remo__fabric_ops remo__fabric_sim = {
    .name = "sim", .probe = sim_probe, .open = sim_open, .close = sim_close, .add_segment = sim_add_segment,
    .map_segment = sim_map_segment, .describe = sim_describe, .connect = sim_connect, .disconnect = sim_disconnect,
    .endpoint_open = sim_endpoint_open, .endpoint_close = sim_endpoint_close, .post = sim_post, .poll = sim_poll, .wait = sim_wait,
    .imm_poll = sim_imm_poll, .imm_wait = sim_imm_wait, .imm_wake = sim_imm_wake,
};

const struct remo__fabric_ops *remo__fabric_find(const char *name) {
    return strcmp(name, remo__fabric_sim.name) == 0 ? &remo__fabric_sim : NULL;
}
