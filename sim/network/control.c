/* control.c - the control plane of simulated nodes (bootstrap/control/control.h), the roster, and memory
 * segments. Frames of one pair of nodes arrive in order, frames of different pairs in any order. All nodes
 * share one process, so every arena is already mapped. */
#include "bootstrap/control/control.h"
#include "bootstrap/roster/ended.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "memory/segment.h"
#include "sim/network/common.h"
#include "sim/network/streams.h"
#include "sim/memory/heap.h"
#include "sim/scheduler.h"
#include "sim/world/world.h"

/* Return whether the stream between two nodes has ended without an orderly close. */
static bool is_lost(uint32_t node, uint32_t peer) {
    const struct sim_world *world = sim_world;
    bool is_parted = false;
    for (uint32_t i = 0; i < world->parted_count; i++)
        is_parted |= (node == world->parted[i].stays && peer == world->parted[i].ends)
                     || (node == world->parted[i].ends && peer == world->parted[i].stays);
    if (node == peer || !(world->crashed[peer] || world->lost[node] || world->lost[peer] || is_parted))
        return false;
    return !control_of(peer)->closed && !control_of(node)->closed;
}

/* Return whether an event of `peer` must be delivered. */
static bool has_event(const struct sim_control *control, uint32_t peer) {
    const struct inbox *inbox = &control->inboxes[peer];
    const struct sim_control *other = control_of(peer);
    if (inbox->down || !other)
        return false;
    if (inbox->first)
        return true;
    return peer != control->rank && (!inbox->up || other->closed || is_lost(control->rank, peer));
}

/* Called at nearly every step; peers are checked only after a stream was opened, closed or lost. */
static bool any_event(void *ctx) {
    struct sim_control *control = ctx;
    if (control->frames > 0 || control->closed)
        return true;
    if (control->partings == sim_world->partings)
        return control->has_peer_event;
    control->partings = sim_world->partings;
    control->has_peer_event = false;
    for (uint32_t peer = 0; peer < control->size && !control->has_peer_event; peer++)
        control->has_peer_event = has_event(control, peer);
    return control->has_peer_event;
}

/* With many nodes and no choice to make, continue with the same peer while it has events. */
static uint32_t choose_peer(struct sim_control *control) {
    uint32_t peers[SIM_NODES_MAX], count = 0;
#ifdef SIM_TIMED
    if (has_event(control, control->last))
        return control->last;
#endif
    for (uint32_t peer = 0; peer < control->size; peer++)
        if (has_event(control, peer))
            peers[count++] = peer;
    control->last = peers[sim_choose(count)];
    return control->last;
}

static void deliver_event(struct sim_control *control, uint32_t peer) {
    const struct remo__control_config *config = &control->config;
    struct inbox *inbox = &control->inboxes[peer];
    control->partings = 0;
    if (!inbox->up && peer != control->rank) {
        const struct sim_control *other = control_of(peer);
        inbox->up = true;
        config->up(config->ctx, peer, 0, true, other->hello, other->config.hello_bytes);
        return;
    }
    struct frame *frame = inbox->first;
    if (!frame) {
        inbox->down = true;
        if (sim_world->ends[control->rank] && !control->has_ended) {
            control->has_ended = true;
            config->ended(config->ctx);
        }
        sim_trace("detects that node %u has failed or left", peer);
        config->down(config->ctx, peer, is_lost(control->rank, peer) ? -EHOSTDOWN : 0);
        return;
    }
    inbox->first = frame->next;
    control->frames--;
    if (!inbox->first)
        inbox->last = &inbox->first;
    sim_trace("gets a frame of type %u from node %u", frame->type, peer);
    config->frame(config->ctx, peer, frame->type, frame->data, frame->bytes, -1);
    sim_free(frame);
}

static void *run(void *ctx) {
    struct sim_control *control = ctx;
    for (;;) {
        sim_until(any_event, control, "wait for a frame");
        if (control->closed)
            return NULL;
        deliver_event(control, choose_peer(control));
        sim_point("frame done");
    }
}

int remo__control_open(const struct remo__control_config *config, struct remo__control **ret_control) {
    struct sim_control *control = sim_calloc(1, sizeof *control);
    if (!control)
        return remo__fail(-ENOMEM, "no memory for the control plane");
    control->config = *config;
    control->rank = config->roster->rank;
    control->size = config->roster->size;
    memcpy(control->hello, config->hello, config->hello_bytes);
    for (uint32_t peer = 0; peer < SIM_NODES_MAX; peer++)
        control->inboxes[peer].last = &control->inboxes[peer].first;
    sim_world->controls[control->rank] = control;
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++)
        sim_changed(node); /* peers must call `up` */
    sim_world->partings++;
    *ret_control = (struct remo__control *)control;
    sim_spawn_control(control->rank, run, control);
    return 0;
}

void remo__control_close(struct remo__control *closed) {
    struct sim_control *control = (struct sim_control *)closed;
    control->closed = true;
    for (uint32_t peer = 0; peer < SIM_NODES_MAX; peer++)
        sim_control_drop(control, peer, 0);
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++)
        sim_changed(node);
    sim_world->partings++;
}

int remo__control_send(struct remo__control *sender, uint32_t peer, uint16_t type, const void *data,
                       size_t bytes, int fd) {
    const struct sim_control *from = (const struct sim_control *)sender;
    struct sim_control *to = control_of(peer);
    (void)fd;
    if (sim_world->is_mapped) /* a system call also places the stores of the CPU */
        sim_drain(sim_current());
    if (from->inboxes[peer].down)
        return remo__fail_static(-EHOSTDOWN, "cannot send a frame: the peer has failed or left");
    if (!to)
        return remo__fail_static(-ENOTCONN, "cannot send a frame: the peer is not connected yet");
    if (is_lost(from->rank, peer) || to->closed || to->inboxes[from->rank].down)
        return 0; /* the sender has not been notified yet that the frame has no reader */
    struct frame *frame = sim_malloc(sizeof *frame + bytes);
    if (!frame)
        return remo__fail(-ENOMEM, "no memory for a frame");
    *frame = (struct frame){.type = type, .bytes = (uint32_t)bytes};
    if (bytes > 0)
        memcpy(frame->data, data, bytes);
    struct inbox *inbox = &to->inboxes[from->rank];
    *inbox->last = frame;
    inbox->last = &frame->next;
    to->frames++;
    sim_changed(peer);
    sim_trace("sends a frame of type %u to node %u", type, peer);
    return 0;
}

/* The simulated networks report no loss: the world declares the nodes failed. */
void remo__control_wake(struct remo__control *control) {
    (void)control;
}

void remo__control_lose(struct remo__control *control, uint32_t peer) {
    (void)control, (void)peer;
}

enum remo__why remo__control_why(struct remo__control *control, uint32_t peer, char *ret_text, size_t cap) {
    (void)control;
    snprintf(ret_text, cap, "node %u has not started", peer);
    return REMO__WHY_AWAY;
}

/* ---- the roster ---- */

/* Simulated nodes have no launcher. */
size_t remo__ended_read(const struct remo__roster *roster, char text[REMO__ENDED_BYTES_MAX]) {
    (void)roster, (void)text;
    return 0;
}

bool remo__ended_next(const char **at, const char *end, uint32_t *ret_rank, uint32_t *ret_status) {
    (void)at, (void)end, (void)ret_rank, (void)ret_status;
    return false;
}

int remo__roster_open(const struct remo__bootstrap_config *config, struct remo__roster **ret_roster) {
    struct remo__roster *roster = sim_calloc(1, sizeof *roster);
    if (!roster)
        return remo__fail(-ENOMEM, "no memory for a roster");
    roster->rank =
        /* the node where the program runs */
        config->size ? config->rank : sim_current()->node;
    roster->size = config->size ? config->size : sim_world->nodes_count;
    snprintf(roster->job, sizeof roster->job, "sim");
    *ret_roster = roster;
    return 0;
}

void remo__roster_close(struct remo__roster *roster) {
    sim_free(roster);
}

/* ---- segments: the arena is already mapped ---- */

int remo__segment_create(const char *dir, uint64_t bytes, int *ret_fd, bool *ret_huge) {
    (void)dir, (void)bytes;
    *ret_fd = -1;
    *ret_huge = false;
    return 0;
}

void *remo__segment_map(void *at, uint64_t bytes, int fd) {
    (void)bytes, (void)fd;
    return at;
}

void *remo__segment_reserve(uint64_t bytes) {
    return sim_heap_arena(bytes);
}

/* ---- doorbells ---- */

void remo__doorbell_notify(struct remo__doorbell *bell) {
    const struct sim_bell *of = (const struct sim_bell *)((char *)bell - offsetof(struct sim_bell, bell));
    atomic_fetch_add(&bell->seq, 1);
    sim_trace("notifies node %u", of->node);
    sim_notify(of->node);
}

void remo__doorbell_add_sleeper(struct remo__doorbell *bell) {
    atomic_fetch_add(&bell->sleepers, 1);
}

void remo__doorbell_sleep(struct remo__doorbell *bell, uint32_t seen_seq, uint64_t timeout_ns) {
    (void)bell, (void)seen_seq, (void)timeout_ns;
}
