/* streams.c - frames in flight between simulated nodes, and their loss with a stream (streams.h).
 * A stream loses frames only from its end. */
#include "sim/network/streams.h"

#include "sim/memory/heap.h"
#include "sim/scheduler.h"

void sim_control_drop(struct sim_control *control, uint32_t peer, uint32_t kept) {
    struct inbox *inbox = &control->inboxes[peer];
    struct frame **link = &inbox->first;
    for (; kept > 0; kept--)
        link = &(*link)->next;
    while (*link) {
        struct frame *frame = *link;
        *link = frame->next;
        control->frames--;
        sim_free(frame);
    }
    inbox->last = link;
}

static void lose_tail(struct sim_control *control, uint32_t peer) {
    uint32_t count = 0;
    for (const struct frame *frame = control->inboxes[peer].first; frame; frame = frame->next)
        count++;
    sim_control_drop(control, peer, sim_choose(count + 1));
}

void sim_control_part(uint32_t node, uint32_t peer) {
    lose_tail(control_of(peer), node);
    lose_tail(control_of(node), peer);
    sim_world->partings++;
}

void sim_control_lose(uint32_t node) {
    for (uint32_t peer = 0; peer < SIM_NODES_MAX; peer++) {
        if (peer == node || !control_of(peer))
            continue;
        lose_tail(control_of(peer), node);
        lose_tail(control_of(node), peer);
    }
    sim_world->partings++;
}
