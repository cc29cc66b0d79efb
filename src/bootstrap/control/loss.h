/* loss.h - lost connections of the data plane: which of two nodes must end its streams. Pure functions on a
 * record: no sockets, no clock. end.c carries the messages; docs/internals/membership.md has the protocol and
 * its proof.
 *
 * Model:   a loss is open at this node from its detection, here or at the peer, until the stream of the peer
 *          ends. Of two nodes, the one with the lower rank decides. If the peers that it has lost are on
 *          more than one machine, it ends itself. Otherwise it demands that those with higher ranks end,
 *          unless one with a lower rank decides about this node.
 * Time:    losses are decided when none has been added for `wait_ns`. A peer that has really failed or left
 *          is detected within this time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A demand counts as a loss of this node for this many times `wait_ns`. A node whose own network has failed
 * would otherwise end each peer that it uses, one after the other. */
#define REMO__LOSS_DEMAND_WAITS 30u

/* Pauses of this node postpone a decision so often. A node that gets too little processor time would
 * otherwise never decide, and operations on the lost peer would wait. */
#define REMO__LOSS_POSTPONES_MAX 8u

struct remo__loss {
    uint32_t machine;        /* peers with the same number share a machine, and perhaps its network device */
    uint32_t demand_machine; /* that of the peer when its end was last demanded */
    bool is_open;
    uint64_t demand_counts_until; /* 0: no demand */
};

struct remo__losses {
    uint32_t rank, size;
    uint64_t wait_ns;
    uint64_t decide_at;    /* REMO_FOREVER: no loss is open */
    uint32_t postponed;    /* times since the last decision, or since no loss was open */
    struct remo__loss *of; /* [size] */
};

enum remo__loss_action {
    REMO__LOSS_WAIT,
    REMO__LOSS_DEMAND, /* each peer with an open loss and a higher rank must end its streams */
    REMO__LOSS_END     /* this node must end its streams */
};

/* `of` has `size` zeroed elements, and belongs to the caller. Each peer is on a machine of its own, with its
 * rank as the number, until the caller changes that. */
void remo__losses_init(struct remo__losses *losses, uint32_t rank, uint32_t size, uint64_t wait_ns,
                       struct remo__loss *of);
/* Open the loss of the connection to `peer`, whose stream is up. Returns false if it is open already. */
bool remo__losses_add(struct remo__losses *losses, uint32_t peer, uint64_t now);
/* The stream of `peer` has ended. */
void remo__losses_remove(struct remo__losses *losses, uint32_t peer);
/* This node was paused: ends of streams may not have been read yet. No effect after
 * REMO__LOSS_POSTPONES_MAX calls in succession. */
void remo__losses_postpone(struct remo__losses *losses, uint64_t now);
/* Decide the open losses if their time has come, and set the time of the next decision. A demand is repeated
 * until the stream of the peer ends. */
enum remo__loss_action remo__losses_decide(struct remo__losses *losses, uint64_t now);
