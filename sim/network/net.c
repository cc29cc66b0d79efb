/* net.c - operations in flight: sets of lines still to be moved, and stages ordered as the profile demands.
 * A write reads its source lines (without inline, any time until it is sent), then it is sent. Its
 * completion, the placement of each line, and its immediate are separate steps. A read reads lines
 * at the target in any order, places them, then completes. An atomic reads, then writes; in between
 * the target's card admits no other atomic, but writes and CPUs may intervene. */
#include "sim/network/inside.h"

#include <assert.h>
#include <errno.h>

#include "sim/memory/cache.h"
#include "sim/world/fault.h"
#include "sim/memory/heap.h"

static_assert(SIM_NET_LINES == 2 * SIM_ACTORS_MAX && SIM_NET_LINES_ENDPOINT == SIM_NODES_MAX * VARIANTS * 3,
              "the lines of the scheduler");

uint32_t sim_net_count(void) {
    return net()->count;
}

void sim_net_open(void) {
    struct sim_net *made = sim_calloc(1, sizeof *made);
    made->ops = (struct op *)sim_heap_arena(
        OPS_MAX * sizeof *made->ops); /* never restored: a post writes the whole op */
    for (uint32_t i = 0; i < OPS_MAX; i++)
        made->unused[made->unused_count++] = (uint8_t)(OPS_MAX - 1 - i);
    sim_world->net = made;
    sim_cache_open();
}

void sim_net_forget(void) {
    memset(net()->ops, 0, OPS_MAX * sizeof *net()->ops);
}

/* ---- ordering between operations ---- */

static bool overlap(const struct op *a, const struct op *b) {
    return a->is.remote < b->is.remote + b->is.size_bytes && b->is.remote < a->is.remote + a->is.size_bytes;
}

/* Return whether the read `later` may end before the write `earlier` is placed. */
static bool passes(const struct op *earlier, const struct op *later) {
    return sim_profile->put_get_same && is_write(earlier) && is_read(later) && !overlap(earlier, later);
}

/* Return whether `later` must wait at its target for `earlier` of the same connection. */
static bool holds_back(const struct op *earlier, const struct op *later) {
    const struct sim_profile *p = sim_profile;
    if (is_placed(earlier))
        return (later->is.flags & REMO__OP_FENCE) && !is_write(earlier) && !has_result(earlier);
    if ((later->is.flags & REMO__OP_FENCE) && !is_write(earlier))
        return true;
    if (is_write(earlier) && is_read(later))
        return p->put_get || (p->put_get_same && !passes(earlier, later));
    if (is_write(earlier))
        return is_write(later) ? p->put_put : p->put_rmw;
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
    bool has_failed = op->status != 0 || op->outcome_unknown;
    bool waits_for_cut = has_failed && op->status != -EACCES && op->node != op->is.peer;
    if (waits_for_cut && !net()->cut[op->node][op->is.peer])
        return false;
    if (!has_failed && (!has_result(op) || (is_write(op) && sim_profile->placed && op->place_todo != 0)))
        return false;
    for (uint32_t i = 0; sim_profile->completion_order && i < place; i++)
        if (same_line(op_at(i), op) && !op_at(i)->completed && !passes(op_at(i), op))
            return false;
    return true;
}

/* Immediates of one connection arrive in order, each after its data. */
static bool may_deliver(uint32_t place) {
    const struct op *op = op_at(place);
    for (uint32_t i = 0; i < place; i++)
        if (same_line(op_at(i), op) && !op_at(i)->delivered)
            return false;
    return is_placed(op);
}

/* Return whether operation number `place` can move data at its target or source now. */
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
        return op->sent
               && ((op->place_todo != 0 && may_arrive(place))
                   || (op->place_todo == 0 && !op->delivered && may_deliver(place)));
    return is_read(op) && (op->place_todo & ~op->source_todo) != 0;
}

uint32_t sim_net_steps(struct sim_step *steps, uint32_t cap) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < net()->count && count + 3 <= cap; i++) {
        const struct op *op = op_at(i);
        if (op->delayed)
            continue;
        uint32_t line =
            SIM_NET_LINES + ((op->endpoint * SIM_NODES_MAX + op->is.peer) * VARIANTS + op->variant) * 3;
        if (may_move(i))
            sim_step_set(&steps[count++], SIM_STEP_NET, STAGE_MOVE, i, line);
        if (may_place(i))
            sim_step_set(&steps[count++], SIM_STEP_NET, STAGE_PLACE, i, line + 1);
        if (!op->completed && may_complete(i))
            sim_step_set(&steps[count++], SIM_STEP_NET, STAGE_COMPLETE, i, line + 2);
    }
    for (uint32_t node = 0; sim_profile->cached && node < SIM_NODES_MAX && count < cap; node++)
        if (sim_cache_lines(node) > 0)
            sim_step_set(&steps[count++], SIM_STEP_NET, STAGE_CACHE, node, SIM_LINES_MAX - 1 - node);
    return count;
}

/* ---- execution of a step ---- */

/* Remove one of the lines from `todo`, and return it. */
static uint32_t take_line(uint64_t *todo) {
    uint32_t nth = sim_choose((uint32_t)__builtin_popcountll(*todo));
    uint64_t rest = *todo;
    while (nth-- > 0)
        rest &= rest - 1;
    uint32_t line = (uint32_t)__builtin_ctzll(rest);
    *todo &= ~(1ull << line);
    return line;
}

/* Return the bytes of a line of the target's memory; the first and the last line may be short. */
static void span_of(const struct op *op, uint32_t line, size_t *ret_from, size_t *ret_bytes) {
    size_t size = sim_profile->line_bytes, skew = op->is.remote % size;
    size_t from = line == 0 ? 0 : line * size - skew, to = (line + 1) * size - skew;
    *ret_from = from;
    *ret_bytes = remo__min(to, op->is.size_bytes) - from;
}

static void release_card(struct op *op) {
    if (op->reading && !op->executed)
        net()->card_busy[op->is.peer]--;
    op->reading = false;
}

/* An atomic between its read and its write vanishes if its node closes the endpoint. */
void sim_net_remove(uint32_t place) {
    uint8_t slot = net()->order[place];
    release_card(op_at(place));
    net()->count--;
    memmove(net()->order + place, net()->order + place + 1, net()->count - place);
    net()->unused[net()->unused_count++] = slot;
}

void sim_net_end_if_over(uint32_t place) {
    const struct op *op = op_at(place);
    if (op->completed && (op->status != 0 || (is_placed(op) && op->delivered)))
        sim_net_remove(place);
}

static void move_atomic(struct op *op) {
    uint64_t *word = (uint64_t *)remote_of(op), value;
    bool all = sim_profile->rmw_one_step;
    if (!op->reading || all) {
        op->old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (!op->reading)
            net()->card_busy[op->is.peer]++;
        op->reading = true;
        sim_trace("  %s of node %u reads %s = 0x%llx", name_of(op), op->node, sim_place(word),
                  (unsigned long long)op->old);
        if (!all)
            return;
    }
    value = op->is.kind == REMO__OP_FETCH_ADD ? op->old + op->is.operand
            : op->old == op->is.compare       ? op->is.operand
                                              : op->old;
    if (op->is.kind == REMO__OP_FETCH_ADD || op->old == op->is.compare) {
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
        sim_trace("  %s of node %u writes %s = 0x%llx", name_of(op), op->node, sim_place(word),
                  (unsigned long long)value);
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

void sim_net_deliver(uint32_t node, uint32_t from, uint32_t value) {
    struct imms *imms = &net()->imms[node];
    if (sim_world->crashed[node])
        return;
    if (imms->count == IMMS_MAX) {
        sim_fail("more than %u immediates wait at node %u", IMMS_MAX, node);
        return;
    }
    imms->imm[imms->count++] = (struct remo__imm){.peer = from, .value = value};
    sim_changed(node);
    sim_trace("  immediate 0x%x of node %u arrives at node %u", value, from, node);
}

/* Deliver the immediate of a write, or the notification of an empty write. */
static void deliver(struct op *op) {
    op->delivered = true;
    if (op->is.flags & REMO__OP_NOTIFY)
        sim_notify(op->is.peer);
    if (op->is.flags & REMO__OP_IMM)
        sim_net_deliver(op->is.peer, op->node, op->is.imm);
}

static void do_place(uint32_t place) {
    struct op *op = op_at(place);
    size_t from, bytes;
    if (is_write(op) && op->place_todo == 0) {
        deliver(op);
        sim_net_end_if_over(place);
        return;
    }
    uint64_t ready = is_write(op) ? op->place_todo : op->place_todo & ~op->source_todo, left = ready;
    uint32_t line = take_line(&left);
    op->place_todo &= ~(1ull << line);
    op->placing = true;
    span_of(op, line, &from, &bytes);
    char *to = is_write(op) ? remote_of(op) + from : (char *)op->is.local + from;
    sim_cache_write(op->node, to, op->bytes + from, bytes);
    sim_cache_flush(op->node, to, bytes);
    sim_changed(is_write(op) ? op->is.peer : op->node);
    sim_trace("  %s of node %u: %zu bytes placed at %s", name_of(op), op->node, bytes, sim_place(to));
    if (is_write(op) && op->place_todo == 0 && !(op->is.flags & REMO__OP_IMM))
        op->delivered = true;
    if (is_write(op) && op->place_todo == 0 && (op->is.flags & REMO__OP_NOTIFY))
        sim_notify(op->is.peer);
    sim_net_end_if_over(place);
}

/* Wake the actor that posted last, and those that wait for completions of the endpoint. */
static void wake(const struct remo__endpoint *endpoint) {
    for (uint32_t left = sim_world->ready.of_node[endpoint->node]; left != 0; left &= left - 1) {
        struct sim_actor *actor = &sim_world->actors[__builtin_ctz(left)];
        if (actor == endpoint->poster || actor->awaits == endpoint)
            actor->wakes++;
    }
}

static void do_complete(uint32_t place) {
    struct op *op = op_at(place);
    struct remo__endpoint *endpoint = endpoint_of(op);
    if (!is_read(op) && !is_write(op) && op->status == 0 && !op->outcome_unknown)
        memcpy(op->is.local, &op->old, sizeof op->old);
    op->completed = true;
    net()->completions++;
    int status = op->outcome_unknown ? -EHOSTDOWN : op->status;
    if (sim_fault_hits(SIM_FAIL_COMPLETION, net()->completions, op->node)
        || sim_fail_takes(SIM_FAIL_COMPLETION, op->node))
        status = -EIO;
    if (endpoint && endpoint->done_count < DONE_MAX)
        endpoint->done[endpoint->done_count++] =
            (struct remo__completion){.token = op->is.token, .status = status};
    if (endpoint)
        wake(endpoint);
    sim_changed(op->node);
    sim_trace("  %s of node %u at node %u completes%s", name_of(op), op->node, op->is.peer,
              status ? " with an error" : "");
    sim_net_end_if_over(place);
}

void sim_net_do(const struct sim_step *step) {
    switch (step->stage) {
    case STAGE_MOVE: do_move(step->index); break;
    case STAGE_PLACE: do_place(step->index); break;
    case STAGE_CACHE: sim_cache_lose_one(step->index); break;
    default: do_complete(step->index); break;
    }
}

/* ---- failure ---- */

/* Make an operation fail. Its poster, if it has not failed, is notified by a completion with an
 * error. */
void sim_net_fail(struct op *op) {
    release_card(op);
    op->delayed = false;
    if (!op->completed)
        op->status = -EHOSTDOWN;
    op->source_todo = 0, op->place_todo = 0, op->sent = true, op->executed = true, op->delivered = true;
}

void sim_net_refuse(struct op *op) {
    sim_net_fail(op);
    op->status = -EACCES;
}

/* Choose whether operation number `place`, not yet sent, vanishes. On a connection that sends in
 * order, all operations behind a lost one vanish too. An inline write has been copied; it may have
 * been sent or not. */
static bool vanishes(uint32_t place, const bool *vanished) {
    const struct op *op = op_at(place);
    bool began = is_write(op)  ? op->place_todo == 0 || op->placing
                 : is_read(op) ? false
                               : op->reading || op->executed;
    for (uint32_t i = 0; i < place && sim_profile->completion_order && !began; i++)
        if (vanished[i] && same_line(op_at(i), op))
            return true;
    return !began && (is_read(op) || (is_write(op) && !op->sent) || sim_choose(2) == 0);
}

static void choose_vanishing(uint32_t node, bool outgoing, bool *ret_vanished) {
    for (uint32_t i = 0; i < net()->count; i++)
        ret_vanished[i] = op_at(i)->node == node
                              ? vanishes(i, ret_vanished)
                              : !outgoing && op_at(i)->is.peer == node && vanishes(i, ret_vanished);
}

void sim_net_crash(uint32_t node) {
    bool vanished[OPS_MAX] = {0};
    choose_vanishing(node, true, vanished);
    for (uint32_t i = net()->count; i-- > 0;) {
        struct op *op = op_at(i);
        if (op->node == node && (vanished[i] || op->is.peer == node)) {
            sim_net_remove(i);
        } else if (op->node == node) {
            op->completed = true; /* its poster has failed, but it may still land: a zombie write */
            sim_net_end_if_over(i);
        } else if (op->is.peer == node) {
            sim_net_fail(op);
            sim_net_end_if_over(i);
        }
    }
}

void sim_net_sever(uint32_t node) {
    bool vanished[OPS_MAX] = {0};
    choose_vanishing(node, false, vanished);
    for (uint32_t i = net()->count; i-- > 0;) {
        struct op *op = op_at(i);
        if ((op->node == node) == (op->is.peer == node) || op->completed)
            continue;
        op->outcome_unknown = true;
        if (vanished[i])
            sim_net_fail(op);
    }
}

/* Fail the operations for which `does` returns true: they complete when their poster cuts the target off, and
 * some of them vanish. */
static void fail_matching(bool (*does)(const struct op *op, const void *ctx), const void *ctx) {
    bool vanished[OPS_MAX] = {0};
    for (uint32_t i = 0; i < net()->count; i++) {
        struct op *op = op_at(i);
        if (op->completed || !does(op, ctx))
            continue;
        vanished[i] = op->status != 0 || vanishes(i, vanished);
        op->outcome_unknown = true;
        op->delayed = false;
        if (vanished[i])
            sim_net_fail(op);
    }
}

static bool is_of_line(const struct op *op, const void *line) {
    return same_line(op, line);
}

void sim_net_lose(const struct op *lost) {
    endpoint_of(lost)->lost |= 1u << lost->is.peer;
    sim_trace("* the connection of node %u to node %u is lost", lost->node, lost->is.peer);
    fail_matching(is_of_line, lost);
}

struct pair {
    uint32_t from, to;
};

static bool is_of_pair(const struct op *op, const void *ctx) {
    const struct pair *pair = ctx;
    return op->node == pair->from && op->is.peer == pair->to;
}

void sim_net_cut_off(uint32_t node, uint32_t peer) {
    const struct pair own = {.from = node, .to = peer};
    bool is_reachable = !sim_world->crashed[peer] && !net()->cut[peer][node];
    net()->cut[node][peer] = true;
    if (is_reachable)
        fail_matching(is_of_pair, &own);
    for (uint32_t i = net()->count; i-- > 0;) {
        struct op *op = op_at(i);
        if ((op->node == peer && op->is.peer == node) || (!is_reachable && is_of_pair(op, &own)))
            sim_net_fail(op);
        sim_net_end_if_over(i);
    }
}

/* ---- delay ---- */

void sim_delay(uint32_t node, uint32_t skip, uint32_t count) {
    net()->delay.node = node;
    net()->delay.skip = skip;
    net()->delay.count = count;
    net()->delay.hit = false;
}

bool sim_delay_takes(uint32_t node) {
    if (node != net()->delay.node || net()->delay.count == 0)
        return false;
    if (net()->delay.skip > 0) {
        net()->delay.skip--;
        return false;
    }
    net()->delay.count--;
    net()->delay.hit = true;
    return true;
}

bool sim_delay_hit(void) {
    return net()->delay.hit;
}

void sim_delay_end(void) {
    net()->delay.count = 0;
    for (uint32_t i = 0; i < net()->count; i++)
        op_at(i)->delayed = false;
    sim_trace("* no operation is delayed any longer");
}

uint64_t sim_net_posts(void) {
    return net()->posts;
}

uint64_t sim_net_completions(void) {
    return net()->completions;
}
