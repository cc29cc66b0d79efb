/* streams.h - the streams of frames between simulated nodes: the state of each node's control plane. */
#pragma once

#include "bootstrap/control/control.h"
#include "sim/world/world.h"

struct frame {
    struct frame *next;
    uint16_t type;
    uint32_t bytes;
    uint8_t data[];
};

struct inbox {
    struct frame *first, **last;
    bool up;   /* `up` was called */
    bool down; /* `down` was called */
};

struct sim_control {
    struct remo__control_config config;
    uint8_t hello[REMO__HELLO_BYTES_MAX];
    uint32_t rank, size;
    struct inbox inboxes[SIM_NODES_MAX];
    uint32_t frames; /* in all inboxes */
    bool closed;
    bool has_ended;      /* `ended` was called */
    bool has_peer_event; /* a peer has come up or gone down, as found at .. */
    uint64_t partings;   /* .. this count of the world; 0: not checked yet */
    uint32_t last;       /* the peer whose event was delivered last */
};

static inline struct sim_control *control_of(uint32_t node) {
    return sim_world->controls[node];
}

/* Drop the frames of `peer` that wait at the node, except the first `kept`. */
void sim_control_drop(struct sim_control *control, uint32_t peer, uint32_t kept);
/* End the streams between this node and all peers at once. The last frames in flight may be lost;
 * both sides are notified of the end. */
void sim_control_lose(uint32_t node);
/* The same for the stream between two nodes. */
void sim_control_part(uint32_t node, uint32_t peer);
