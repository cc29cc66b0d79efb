/* shm.h - internals of the shm fabric: processes of one machine that map each other's memory.
 *
 * Model:   each node reserves a window of arena size for each connected peer and maps the peer's segments
 *          into it: offset o of peer p is at peers[p].base + o. A post executes its operations; their
 *          completions stay in a ring of the endpoint until they are polled.
 * Failure: the cut-off clears the peer's base immediately. Its window stays mapped, because threads may still
 *          access it. When the peer rejoins, its new incarnation gets another window, so a late access
 *          reaches only memory of the failed incarnation. Memory of one earlier incarnation is kept; the
 *          windows of those before it stay reserved and hold private memory. A process that is cut off but
 *          still runs can write here, because it holds the mapping. */
#pragma once

#include "fabric/fabric.h"
#include "fabric/shm/layout.h"

#define REMO__SHM_RANGES_MAX 16u  /* parts of an arena whose segments are not contiguous */
#define REMO__SHM_WINDOWS_KEPT 8u /* incarnations of a peer whose address ranges stay reserved */
#define REMO__SHM_DEPTH 1024u     /* completions of an endpoint that are not polled yet */
#define REMO__SHM_BATCH_MAX 128u
#define REMO__SHM_MESSAGE_BYTES_MAX (UINT64_C(1) << 40)

/* A reachable part of a peer's arena. `bytes` grows when the next segment is contiguous. */
struct shm_range {
    uint64_t offset;
    _Atomic uint64_t bytes;
};

/* Address space of arena size where one incarnation of a peer is mapped. This node's own window is its
 * arena. */
struct shm_window {
    char *base;
    _Atomic uint32_t range_count;
    struct shm_range ranges[REMO__SHM_RANGES_MAX];
};

struct shm_peer {
    _Atomic(struct shm_window *) reachable; /* set and cleared with peers[].base of the public part */
    uint32_t connect_count;
    struct shm_window windows[REMO__SHM_WINDOWS_KEPT]; /* by connect_count; written by the control thread */
    /* The service thread's position in the peer's ring here. */
    uint64_t ring_head;
    _Atomic uint64_t ring_drop; /* entries before this position are from an earlier incarnation */
    bool ring_pending;
};

struct shm_fabric {
    struct remo__fabric base;
    char *arena;
    uint64_t arena_bytes;
    _Atomic(struct remo__shm_header *) own; /* NULL until segment 0 is added */
    _Atomic uint32_t woken;                 /* set by imm_wake, cleared by imm_wait */
    uint32_t ring_next;                     /* the sender whose ring is read first: fairness among senders */
    bool rings_left;                        /* the last imm_poll stopped before the rings were empty */
    struct shm_peer peers[];                /* [size] */
};

struct remo__endpoint {
    struct shm_fabric *fabric;
    bool unfenced; /* has written since the last full fence */
    uint32_t done_head, done_tail;
    struct remo__completion done[REMO__SHM_DEPTH];
};

static inline struct shm_fabric *shm_of(struct remo__fabric *fabric) {
    return (struct shm_fabric *)fabric; /* the first member */
}

/* shm/endpoint.c */
int remo__shm_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint);
void remo__shm_endpoint_close(struct remo__endpoint *endpoint);
int remo__shm_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count);
int remo__shm_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max);
void remo__shm_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns);

/* shm/imm.c */
/* True if there is room for one immediate to the owner of `header`. A hint: other threads send too. */
bool remo__shm_imm_room(struct shm_fabric *shm, struct remo__shm_header *header);
/* Send one immediate and wake the target's service thread. Errors: -EAGAIN if the ring is full. */
int remo__shm_imm_send(struct shm_fabric *shm, struct remo__shm_header *header, uint32_t value);
/* Drop the entries that the peer's last incarnation left in its ring here. */
void remo__shm_imm_restart(struct shm_fabric *shm, uint32_t peer);
/* Deliver immediates that the peer sent before it was connected here. */
void remo__shm_imm_recall(struct shm_fabric *shm, uint32_t peer);
int remo__shm_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max);
void remo__shm_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns);
void remo__shm_imm_wake(struct remo__fabric *fabric);
