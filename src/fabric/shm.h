/* shm.h - the inside of the shm fabric: processes of one machine, their memory mapped into each other.
 *
 * Model:   each node reserves a window of arena size for each peer it meets and maps the peer's segments into
 *          it, so that offset o of peer p is at peers[p].base + o. Operations are executed when they are
 *          posted; completions wait in a ring of the endpoint until they are polled.
 * Failure: a peer that is cut off loses its base at once; its window stays as it is, because threads may
 *          still be inside. When the peer comes back, its new life gets another window: who has not noticed
 *          writes into the memory of the dead, never into that of the living. One dead life is kept; of those
 *          before it only the addresses are, with nothing behind them. A peer that is cut off but lives
 *          cannot be kept from writing here: it holds the mapping. */
#ifndef REMO_FABRIC_SHM_H
#define REMO_FABRIC_SHM_H

#include "fabric/fabric.h"
#include "fabric/shm_layout.h"

#define REMO__SHM_RANGES_MAX 16u /* parts of an arena, when its segments do not join up */
#define REMO__SHM_LIVES_KEPT 8u  /* lives of a peer whose addresses are not used for anything else */
#define REMO__SHM_DEPTH 1024u    /* completions of an endpoint that nobody has polled yet */
#define REMO__SHM_BATCH_MAX 128u
#define REMO__SHM_MESSAGE_BYTES_MAX (UINT64_C(1) << 40)

/* Part of a peer's arena that can be reached. `bytes` grows when the next segment joins on. */
struct shm_range {
    uint64_t offset;
    _Atomic uint64_t bytes;
};

/* Where one life of a peer is mapped: address space as large as the arena; our own is the arena itself. */
struct shm_window {
    char *base;
    _Atomic uint32_t range_count;
    struct shm_range ranges[REMO__SHM_RANGES_MAX];
};

struct shm_peer {
    _Atomic(struct shm_window *) reachable; /* as peers[].base of the public part: NULL while it is */
    uint32_t lives;                         /* how often it was connected */
    struct shm_window windows[REMO__SHM_LIVES_KEPT]; /* by life; control thread, but for `reachable` */
    /* What the service thread knows of the peer's ring here. */
    uint64_t ring_head;
    _Atomic uint64_t ring_drop; /* entries before this position are of an earlier life */
    bool ring_pending;
};

struct shm_fabric {
    struct remo__fabric base;
    char *arena;
    uint64_t arena_bytes;
    _Atomic(struct remo__shm_header *) own; /* NULL until segment 0 is added */
    _Atomic uint32_t woken;                 /* imm_wake was called, and imm_wait has not seen it yet */
    uint32_t ring_next;                     /* whose ring is looked at first: fairness among senders */
    bool rings_left;                        /* the last imm_poll stopped before the rings were empty */
    struct shm_peer peers[];                /* [size] */
};

struct remo__endpoint {
    struct shm_fabric *fabric;
    bool unfenced; /* wrote since the last full fence */
    uint32_t done_head, done_tail;
    struct remo__completion done[REMO__SHM_DEPTH];
};

static inline struct shm_fabric *shm_of(struct remo__fabric *fabric) {
    return (struct shm_fabric *)fabric; /* the first member */
}

/* shm_endpoint.c */
int remo__shm_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint);
void remo__shm_endpoint_close(struct remo__endpoint *endpoint);
int remo__shm_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count);
int remo__shm_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max);
void remo__shm_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns);

/* shm_imm.c */
/* Is there room for one immediate to the owner of `header`? A hint: other threads send too. */
bool remo__shm_imm_room(struct shm_fabric *shm, struct remo__shm_header *header);
/* Send one and wake who waits for it. Errors: -EAGAIN when the ring is full. */
int remo__shm_imm_send(struct shm_fabric *shm, struct remo__shm_header *header, uint32_t value);
/* The peer starts a new life: what its last one left in its ring here is dropped. */
void remo__shm_imm_restart(struct shm_fabric *shm, uint32_t peer);
/* The peer is connected: what it sent before that may be delivered now. */
void remo__shm_imm_recall(struct shm_fabric *shm, uint32_t peer);
int remo__shm_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max);
void remo__shm_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns);
void remo__shm_imm_wake(struct remo__fabric *fabric);

#endif
