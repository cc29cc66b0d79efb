/* inside.h - internals that the files of the simulated network share.
 *
 *   net.c     operations in flight, and the possible steps of each
 *   fabric.c  the network as the library uses it: struct remo__fabric_ops */
#pragma once

#include <string.h>

#include "sim/network/common.h"
#include "sim/network/net.h"
#include "sim/world/fault.h"
#include "sim/world/world.h"

#define OPS_MAX 96u
#define VARIANTS 3u /* times SIM_NODES_MAX peers and 3 stages: SIM_NET_LINES_ENDPOINT */
#define LINES_MAX 64u
#define ENDPOINTS_MAX 24u
#define OP_BYTES_MAX 2048u
#define DONE_MAX 32u
#define IMMS_MAX 128u

enum stage { STAGE_MOVE, STAGE_PLACE, STAGE_COMPLETE, STAGE_CACHE };

struct op {
    struct remo__op is;
    uint32_t node; /* its poster */
    uint32_t endpoint;
    uint64_t source_todo; /* write: lines to read; read: lines to read at the target */
    uint64_t place_todo;  /* write: lines to place; read: lines to put into the destination */
    uint32_t lines;
    /* operations of one connection have different priorities, so that one may overtake another */
    uint32_t variant;
    bool sent;      /* no longer revocable */
    bool placing;   /* write: a line of it is placed */
    bool executed;  /* atomic: written */
    bool reading;   /* atomic: read, not yet written; occupies the card of its target */
    bool delivered; /* the immediate is delivered, or there is none */
    bool completed;
    bool delayed;         /* makes no step until sim_delay_end */
    bool outcome_unknown; /* it may take effect; its poster gets an error when it cuts the target off */
    int status;
    uint64_t old;
    char bytes[OP_BYTES_MAX]; /* in flight */
};

struct remo__endpoint {
    uint32_t index, node;
    struct remo__fabric *fabric;
    struct remo__completion done[DONE_MAX];
    uint32_t done_count;
    uint32_t lost;            /* mask of the peers whose connection is lost */
    struct sim_actor *poster; /* the actor that posted last; each completion wakes it */
};

struct imms {
    struct remo__imm imm[IMMS_MAX];
    uint32_t count;
    bool woken;
    uint64_t due_ns; /* the time limit of the service thread, which waits; 0: none */
};

struct sim_net {
    struct op *ops;         /* [OPS_MAX] */
    uint8_t order[OPS_MAX]; /* those in flight, oldest first */
    uint8_t unused[OPS_MAX];
    uint32_t count, unused_count, endpoints;
    uint32_t card_busy[SIM_NODES_MAX];              /* atomics between their read and their write */
    struct remo__endpoint *endpoint[ENDPOINTS_MAX]; /* NULL: closed */
    uint64_t posts, completions;
    char *arenas[SIM_NODES_MAX];            /* also of nodes that have closed */
    bool cut[SIM_NODES_MAX][SIM_NODES_MAX]; /* [target][from]: disconnected there */
    struct imms imms[SIM_NODES_MAX];
    struct { /* sim_delay */
        uint32_t node, skip, count;
        bool hit;
    } delay;
};

static inline struct sim_net *net(void) {
    return sim_world->net;
}

static inline struct op *op_at(uint32_t place) {
    return &net()->ops[net()->order[place]];
}

static inline bool is_read(const struct op *op) {
    return op->is.kind == REMO__OP_READ;
}

static inline bool is_write(const struct op *op) {
    return op->is.kind == REMO__OP_WRITE;
}

static inline bool is_placed(const struct op *op) {
    return is_write(op) ? op->sent && op->place_todo == 0 : is_read(op) ? op->source_todo == 0 : op->executed;
}

static inline bool has_result(const struct op *op) {
    return is_write(op) ? op->sent : is_read(op) ? op->source_todo == 0 && op->place_todo == 0 : op->executed;
}

static inline bool same_line(const struct op *a, const struct op *b) {
    return a->endpoint == b->endpoint && a->is.peer == b->is.peer;
}

static inline const char *name_of(const struct op *op) {
    static const char *const names[] = {"read", "write", "fetch-add", "compare-swap"};
    return names[op->is.kind];
}

static inline char *remote_of(const struct op *op) {
    return net()->arenas[op->is.peer] + op->is.remote;
}

static inline struct remo__endpoint *endpoint_of(const struct op *op) {
    return net()->endpoint[op->endpoint];
}

/* Make the operation fail. Its poster, if it has not failed, is notified by a completion. */
void sim_net_fail(struct op *op);
/* Let the target refuse the operation: its poster gets -EACCES. */
void sim_net_refuse(struct op *op);
/* The node cuts the peer off: unplaced data of the peer never lands here, and all operations on the peer
 * fail. If the peer has not failed, they may still land there, until it cuts this node off. */
void sim_net_cut_off(uint32_t node, uint32_t peer);
/* Lose the connection of the operation: some operations in flight on it vanish, others may still land. */
void sim_net_lose(const struct op *op);
/* Deliver an immediate to `node`, unless it has crashed. */
void sim_net_deliver(uint32_t node, uint32_t from, uint32_t value);
void sim_net_end_if_over(uint32_t place);
void sim_net_remove(uint32_t place);
/* Return whether the operation that the node posts now is to be delayed. */
bool sim_delay_takes(uint32_t node);
