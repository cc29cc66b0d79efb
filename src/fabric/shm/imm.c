/* imm.c - immediates of the shm fabric.
 *
 * Each sender has a ring of words in the target's memory; the target's service thread sleeps while all rings
 * are empty. shm/layout.h describes the ring, and the order of the accesses by which no wake-up is lost. */
#include <errno.h>

#include "base/error.h"
#include "base/futex.h"
#include "fabric/mapped.h"
#include "fabric/shm/shm.h"

#define CLAIM_TRIES_MAX (4 * REMO__SHM_RING_SLOTS) /* lost races with sibling threads, in one send */
#define UNOPENED_SLEEP_NS (10 * REMO__NS_PER_MS)   /* imm_wait before segment 0 provides a word to sleep on */

/* ---- sending ---- */

static _Atomic uint64_t *ring_slot(struct remo__shm_ring *ring, uint64_t at) {
    return &ring->slots[at % REMO__SHM_RING_SLOTS];
}

/* Advance the tail past `at`, unless another thread has. */
static void ring_help(struct remo__shm_ring *ring, uint64_t at) {
    atomic_compare_exchange_strong(&ring->tail, &at, at + 1);
}

static int ring_full(void) {
    return remo__fail_static(-EAGAIN, "the peer's ring of immediates is full; retry");
}

static int ring_push(struct remo__shm_ring *ring, uint32_t value) {
    for (uint32_t tries = 0; tries < CLAIM_TRIES_MAX; tries++) {
        uint64_t at = atomic_load(&ring->tail);
        uint64_t seen = remo__shm_slot_free(at), free_turn = seen >> 32;
        if (atomic_compare_exchange_strong(ring_slot(ring, at), &seen, remo__shm_slot_full(at, value))) {
            ring_help(ring, at);
            return 0;
        }
        if ((int32_t)((uint32_t)(seen >> 32) - (uint32_t)free_turn) < 0)
            return ring_full(); /* still full from the previous lap */
        ring_help(ring, at);
    }
    return ring_full();
}

bool remo__shm_imm_room(struct shm_fabric *shm, struct remo__shm_header *header) {
    struct remo__shm_ring *ring = remo__shm_ring(header, shm->base.size, shm->base.rank);
    uint64_t at = atomic_load(&ring->tail);
    uint32_t turn = (uint32_t)(atomic_load(ring_slot(ring, at)) >> 32);
    return (int32_t)(turn - (uint32_t)(remo__shm_slot_free(at) >> 32)) >= 0;
}

int remo__shm_imm_send(struct shm_fabric *shm, struct remo__shm_header *header, uint32_t value) {
    uint32_t rank = shm->base.rank;
    int rc = ring_push(remo__shm_ring(header, shm->base.size, rank), value);
    if (rc < 0)
        return rc;
    _Atomic uint64_t *pending = &header->pending[rank / 64];
    uint64_t bit = UINT64_C(1) << (rank % 64);
    if (!(atomic_load(pending) & bit)) /* a set bit: the service thread clears it, then reads the ring */
        atomic_fetch_or(pending, bit);
    if (atomic_load(&header->service.sleeping)) {
        atomic_fetch_add(&header->service.seq, 1);
        remo__futex_wake_all(&header->service.seq);
    }
    return 0;
}

/* ---- receiving: the service thread ---- */

/* Take at most `max` immediates of `sender`. */
static uint32_t ring_drain(struct shm_fabric *shm, struct remo__shm_header *header, uint32_t sender,
                           struct remo__imm *imms, uint32_t max) {
    struct shm_peer *peer = &shm->peers[sender];
    struct remo__shm_ring *ring = remo__shm_ring(header, shm->base.size, sender);
    uint64_t drop = atomic_load_explicit(&peer->ring_drop, memory_order_acquire);
    uint32_t count = 0;
    /* Twice the slots: one dropped lap and one delivered lap. The bound limits what a fast sender can add. */
    for (uint32_t i = 0; i < 2 * REMO__SHM_RING_SLOTS && count < max; i++) {
        uint64_t at = peer->ring_head, word = atomic_load(ring_slot(ring, at));
        if (word >> 32 != remo__shm_slot_full(at, 0) >> 32)
            return count;
        atomic_store(ring_slot(ring, at), remo__shm_slot_free(at + REMO__SHM_RING_SLOTS));
        peer->ring_head++;
        /* A larger distance than the whole ring means a corrupt tail: drop nothing. */
        if (at >= drop || drop - at > REMO__SHM_RING_SLOTS)
            imms[count++] = (struct remo__imm){.peer = sender, .value = (uint32_t)word};
    }
    peer->ring_pending = true; /* the ring may hold more */
    return count;
}

/* Move the senders' pending bits to `ring_pending`. Returns true if any was set. */
static bool pending_gather(struct shm_fabric *shm, struct remo__shm_header *header) {
    bool any = false;
    for (uint32_t first = 0; first < shm->base.size; first += 64) {
        uint64_t bits = atomic_load(&header->pending[first / 64]);
        if (bits != 0)
            bits = atomic_exchange(&header->pending[first / 64], 0);
        for (; bits != 0; bits &= bits - 1) {
            uint32_t sender = first + (uint32_t)__builtin_ctzll(bits);
            if (sender < shm->base.size)
                any = shm->peers[sender].ring_pending = true;
        }
    }
    return any;
}

int remo__shm_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max) {
    struct shm_fabric *shm = shm_of(fabric);
    struct remo__shm_header *header = atomic_load(&shm->own);
    if (!header || max == 0)
        return 0;
    if (!pending_gather(shm, header) && !shm->rings_left)
        return 0;
    shm->rings_left = false;
    uint32_t count = 0;
    for (uint32_t i = 0; i < fabric->size; i++) {
        uint32_t sender = (shm->ring_next + i) % fabric->size;
        struct shm_peer *peer = &shm->peers[sender];
        if (!peer->ring_pending)
            continue;
        if (count == max) { /* rings_left is set: the ring that filled `imms` is still pending */
            shm->ring_next = sender;
            break;
        }
        peer->ring_pending = false;
        if (atomic_load_explicit(&fabric->peers[sender].connected, memory_order_acquire))
            count += ring_drain(shm, header, sender, imms + count, max - count);
        shm->rings_left |= peer->ring_pending;
    }
    return (int)count;
}

static bool pending_any(struct shm_fabric *shm, struct remo__shm_header *header) {
    for (uint32_t first = 0; first < shm->base.size; first += 64) {
        if (atomic_load(&header->pending[first / 64]) != 0)
            return true;
    }
    return shm->rings_left;
}

void remo__shm_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns) {
    struct shm_fabric *shm = shm_of(fabric);
    struct remo__shm_header *header = atomic_load(&shm->own);
    if (!header) {
        remo__futex_wait(&shm->woken, 0, remo__min(timeout_ns, UNOPENED_SLEEP_NS));
        atomic_store(&shm->woken, 0);
        return;
    }
    uint32_t seen = atomic_load(&header->service.seq);
    atomic_store(&header->service.sleeping, 1);
    if (!pending_any(shm, header) && !atomic_load(&shm->woken))
        remo__futex_wait(&header->service.seq, seen, timeout_ns);
    atomic_store(&header->service.sleeping, 0);
    atomic_store(&shm->woken, 0);
}

void remo__shm_imm_wake(struct remo__fabric *fabric) {
    struct shm_fabric *shm = shm_of(fabric);
    atomic_store(&shm->woken, 1);
    struct remo__shm_header *header = atomic_load(&shm->own);
    if (header)
        atomic_fetch_add(&header->service.seq, 1);
    remo__futex_wake_all(header ? &header->service.seq : &shm->woken);
}

/* ---- membership changes: the control thread ---- */

void remo__shm_imm_restart(struct shm_fabric *shm, uint32_t peer) {
    struct remo__shm_header *header = atomic_load(&shm->own);
    if (!header)
        return;
    struct remo__shm_ring *ring = remo__shm_ring(header, shm->base.size, peer);
    uint64_t end = atomic_load(&ring->tail);
    for (uint32_t i = 0; i < REMO__SHM_RING_SLOTS; i++, end++) { /* the tail may lag behind a killed sender */
        if (atomic_load(ring_slot(ring, end)) >> 32 != remo__shm_slot_full(end, 0) >> 32)
            break;
    }
    atomic_store_explicit(&shm->peers[peer].ring_drop, end, memory_order_release);
}

void remo__shm_imm_recall(struct shm_fabric *shm, uint32_t peer) {
    struct remo__shm_header *header = atomic_load(&shm->own);
    if (!header)
        return;
    atomic_fetch_or(&header->pending[peer / 64], UINT64_C(1) << (peer % 64));
    remo__shm_imm_wake(&shm->base);
}
