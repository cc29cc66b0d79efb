/* slot.c - the slots into which peers write the replies to the calls of this node.
 * Invariant: a slot is used again only when no message of its last call can still be written into it. */
#include "objects/rpc/rpc.h"

/* ---- free slots: a stack, whose word also counts its changes ---- */

static uint32_t pop(struct remo__rpc_transport *transport, uint32_t depth) {
    _Atomic uint64_t *stack = &transport->free_slots[depth - 1];
    uint64_t seen = atomic_load_explicit(stack, memory_order_acquire), next;
    uint32_t first;
    do {
        first = seen & 0xffff;
        if (first == 0)
            return REMO__RPC_NO_SLOT;
        next = (seen & ~UINT64_C(0xffff)) + 0x10000
               + atomic_load_explicit(&transport->slot[first - 1].next, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(stack, &seen, next, memory_order_acquire,
                                                    memory_order_acquire));
    return first - 1;
}

static void add_free(struct remo__rpc_transport *transport, uint32_t slot) {
    _Atomic uint64_t *stack = &transport->free_slots[transport->slot[slot].depth];
    uint64_t seen = atomic_load_explicit(stack, memory_order_relaxed), next;
    atomic_store_explicit(&transport->slot[slot].state, REMO__RPC_SLOT_FREE, memory_order_relaxed);
    do {
        atomic_store_explicit(&transport->slot[slot].next, seen & 0xffff, memory_order_relaxed);
        next = (seen & ~UINT64_C(0xffff)) + 0x10000 + slot + 1;
    } while (!atomic_compare_exchange_weak_explicit(stack, &seen, next, memory_order_release,
                                                    memory_order_relaxed));
}

/* Change the count of leaf calls to the node of the slot that keep their slots: by 1 or -1. */
static inline void count_leaf(struct remo__rpc_transport *transport, uint32_t slot, uint32_t change) {
    if (transport->slot[slot].depth == REMO__RPC_LEAF_DEPTH - 1)
        atomic_fetch_add(&transport->peers[transport->slot[slot].node].leaf_slots, change);
}

void remo__rpc_slot_return(struct remo__rpc_transport *transport, uint32_t slot) {
    count_leaf(transport, slot, -1u); /* first: the next call of the slot sets another node */
    add_free(transport, slot);
}

static void wake_queued(const struct remo__rpc_transport *transport) {
    if (remo__unlikely(atomic_load_explicit(&transport->chores, memory_order_relaxed) > 0))
        remo__wake(transport->node); /* a queued call may wait for the slot */
}

static void push(struct remo__rpc_transport *transport, uint32_t slot) {
    remo__rpc_slot_return(transport, slot);
    wake_queued(transport);
}

void remo__rpc_slots_init(struct remo__rpc_transport *transport) {
    const uint32_t reserved = (REMO_RPC_DEPTH_MAX - 1) * REMO__RPC_SLOTS_OF_DEPTH;
    transport->next_spare = REMO__RPC_SLOTS + REMO__RPC_LEAF_SLOTS;
    for (uint32_t slot = transport->next_spare; slot-- > 0;) {
        transport->slot[slot].depth = (uint8_t)(slot >= REMO__RPC_SLOTS ? REMO__RPC_LEAF_DEPTH - 1
                                                : slot < reserved       ? 1 + slot / REMO__RPC_SLOTS_OF_DEPTH
                                                                        : 0);
        add_free(transport, slot);
    }
}

static uint32_t serial_of(const struct remo__rpc_transport *transport, uint32_t slot) {
    return atomic_load_explicit(&transport->slot[slot].serial, memory_order_relaxed);
}

/* A serial is never 0, so that zeroed memory is no reply. */
uint32_t remo__rpc_slot_take(struct remo__rpc_transport *transport, uint32_t node, uint32_t depth,
                             uint32_t *ret_serial) {
    uint32_t index = pop(transport, depth);
    if (remo__unlikely(index == REMO__RPC_NO_SLOT) && atomic_load(&transport->retired_count) > 0) {
        remo__rpc_slots_reclaim(transport);
        index = pop(transport, depth);
    }
    if (remo__unlikely(index == REMO__RPC_NO_SLOT))
        return REMO__RPC_NO_SLOT;
    struct remo__rpc_slot *slot = &transport->slot[index];
    uint32_t serial = serial_of(transport, index) + 1;
    serial = serial != 0 ? serial : 1;
    atomic_store_explicit(&slot->node, (uint16_t)node, memory_order_relaxed);
    atomic_store_explicit(&slot->serial, serial, memory_order_relaxed);
    atomic_store_explicit(&slot->state, REMO__RPC_SLOT_BUSY, memory_order_release);
    count_leaf(transport, index, 1);
    *ret_serial = serial;
    return index;
}

/* ---- what has arrived ---- */

/* Return the word that node number `hop` wrote when it forwarded the call, or 0. */
static uint64_t note_of(const struct remo__rpc_transport *transport, uint32_t slot, uint32_t hop) {
    uint64_t note = remo__load(remo__rpc_slot_memory(transport, slot) + hop * sizeof note);
    return note >> 32 == serial_of(transport, slot) ? note : 0;
}

/* Return the node that writes note number `hop`. */
static uint32_t writer_of(const struct remo__rpc_transport *transport, uint32_t slot, uint32_t hop) {
    uint32_t node =
        hop > 0 ? (uint32_t)note_of(transport, slot, hop - 1) & 0xffff : transport->slot[slot].node;
    return node < transport->size ? node : transport->rank;
}

/* Return the number of notes in succession, at most `hops`. */
static uint32_t count_notes(const struct remo__rpc_transport *transport, uint32_t slot, uint32_t hops) {
    uint32_t hop = 0;
    while (hop < hops && note_of(transport, slot, hop) != 0)
        hop++;
    return hop;
}

/* A node executes no request of a node that it has cut off. So if a node fails that has forwarded the
 * request, the next one may have it, or not. */
bool remo__rpc_slot_is_orphaned(const struct remo__rpc_transport *transport, uint32_t slot) {
    /* Each check of a pending call is here. Acquire: then the states of nodes are visible. */
    if (remo__likely(!atomic_load_explicit(&transport->has_departures, memory_order_acquire)))
        return false;
    if (remo__rpc_has_departed(transport, transport->slot[slot].node))
        return true;
    for (uint32_t hop = 0; hop < REMO_RPC_DEPTH_MAX; hop++)
        if (note_of(transport, slot, hop) != 0
            && remo__rpc_has_departed(transport, writer_of(transport, slot, hop + 1)))
            return true;
    return false;
}

/* The position is known modulo 2^32 lines. */
static void take_credit(struct remo__rpc_transport *transport, uint64_t head, uint64_t result) {
    uint32_t node = head >> 24 & 0xff;
    if (node >= transport->size)
        return;
    struct remo__rpc_peer *peer = &transport->peers[node];
    uint64_t known = atomic_load_explicit(&peer->credit, memory_order_relaxed);
    int32_t more = (int32_t)((uint32_t)(result >> 32) - (uint32_t)(known / REMO__RPC_LINE));
    if (more > 0)
        remo__rpc_add_credit(peer, known + (uint64_t)more * REMO__RPC_LINE);
}

/* The length of a reply is wrong: its node is faulty. */
static bool is_malformed(uint64_t head) {
    uint64_t bytes = head & 0xffff;
    return bytes > REMO__RPC_DATA_MAX || ((head >> 20 & 3) == REMO__RPC_REPLIED_IN_PLACE && bytes != 8);
}

bool remo__rpc_slot_is_malformed(const struct remo__rpc_transport *transport, uint32_t slot) {
    uint64_t head = remo__load(remo__rpc_slot_memory(transport, slot) + REMO__RPC_NOTES);
    return head >> 32 == serial_of(transport, slot) && is_malformed(head);
}

bool remo__rpc_slot_probe(struct remo__rpc_transport *transport, uint32_t slot, uint64_t *image,
                          struct remo__rpc_reply *ret_reply) {
    const char *reply = remo__rpc_slot_memory(transport, slot) + REMO__RPC_NOTES;
    uint64_t head = remo__load(reply);
    uint32_t serial = serial_of(transport, slot);
    if (head >> 32 != serial)
        return false;
    if (remo__unlikely(is_malformed(head)))
        return false;
    if (transport->mapped) {
        *ret_reply = (struct remo__rpc_reply){head, remo__load(reply + 16), reply + REMO__RPC_REPLY_BYTES};
    } else {
        if (!remo__rpc_decode_reply(reply, head, remo__rpc_reply_key(slot, serial), image))
            return false;
        *ret_reply = (struct remo__rpc_reply){head, image[0], image + 1};
    }
    /* Another thread may have given and taken the slot: then the result may be of the next reply. */
    if (remo__unlikely(serial_of(transport, slot) != serial))
        return false;
    take_credit(transport, head, ret_reply->result);
    return true;
}

void remo__rpc_slot_recheck(struct remo__rpc_transport *transport, uint32_t slot, uint32_t serial) {
    if (remo__load(remo__rpc_slot_memory(transport, slot) + REMO__RPC_NOTES) >> 32 != serial)
        return;
    (void)remo__rpc_set_bit(transport->state->own, REMO__RPC_AT_ENDED, slot);
    remo__rpc_request_poll(transport);
}

/* ---- retired slots ---- */

/* Replace a slot by a spare one. slots_mutex is held. */
static void lose(struct remo__rpc_transport *transport, uint32_t slot) {
    if (transport->slot[slot].block)
        remo__rpc_block_lose(transport, transport->slot[slot].block);
    transport->slot[slot].block = NULL;
    atomic_store(&transport->slot[slot].state, REMO__RPC_SLOT_LOST);
    count_leaf(transport, slot, -1u);
    if (transport->next_spare < REMO__RPC_SLOTS_TOTAL) {
        uint32_t spare = transport->next_spare++;
        transport->slot[spare].depth = transport->slot[slot].depth;
        add_free(transport, spare);
        wake_queued(transport);
        return;
    }
    remo__log(&transport->node->log, REMO_LOG_WARNING,
              "no spare reply slot is left: this node can have fewer calls in flight from now on");
}

static _Atomic uint32_t *retired_of(struct remo__rpc_transport *transport, uint32_t slot) {
    return &transport->peers[transport->slot[slot].node].retired[transport->slot[slot].depth];
}

static void retire(struct remo__rpc_transport *transport, uint32_t slot) {
    atomic_fetch_add(retired_of(transport, slot), 1);
    atomic_fetch_add(&transport->retired_count, 1);
    atomic_store(&transport->slot[slot].state, REMO__RPC_SLOT_RETIRED);
}

void remo__rpc_slot_give(struct remo__rpc_transport *transport, uint32_t slot, uint32_t hops) {
    if (remo__likely(hops == 0) || count_notes(transport, slot, hops) == hops)
        push(transport, slot);
    else
        retire(transport, slot);
}

void remo__rpc_slot_abandon(struct remo__rpc_transport *transport, uint32_t slot, bool is_lost) {
    if (!is_lost) {
        retire(transport, slot);
        return;
    }
    remo__rpc_lock(transport, &transport->slots_mutex);
    lose(transport, slot);
    remo__rpc_unlock(transport, &transport->slots_mutex);
}

/* Free the slot if its reply and all notes have arrived. If a node has failed that would write one of
 * them, the slot is lost. slots_mutex is held. */
static void reclaim(struct remo__rpc_transport *transport, uint32_t slot, uint64_t *image) {
    struct remo__rpc_reply reply;
    bool is_orphaned = remo__rpc_slot_is_orphaned(transport, slot), is_complete = false;
    if (remo__rpc_slot_probe(transport, slot, image, &reply)) {
        uint32_t hops = reply.head >> 16 & 0xf, count = count_notes(transport, slot, hops);
        is_complete = count == hops;
        remo__rpc_slot_release(transport, slot); /* the reply proves that no node uses its places */
    }
    if (is_complete || is_orphaned) {
        atomic_fetch_sub(retired_of(transport, slot), 1);
        atomic_fetch_sub(&transport->retired_count, 1);
    }
    if (is_complete)
        push(transport, slot);
    else if (is_orphaned)
        lose(transport, slot);
}

void remo__rpc_slots_reclaim(struct remo__rpc_transport *transport) {
    uint64_t image[REMO__RPC_REPLY_MAX / sizeof(uint64_t)];
    remo__rpc_lock(transport, &transport->slots_mutex);
    for (uint32_t slot = 0; slot < REMO__RPC_SLOTS_TOTAL; slot++)
        if (atomic_load(&transport->slot[slot].state) == REMO__RPC_SLOT_RETIRED)
            reclaim(transport, slot, image);
    remo__rpc_unlock(transport, &transport->slots_mutex);
}

void remo__rpc_slots_reclaim_of(struct remo__rpc_transport *transport, uint32_t node, uint32_t depth) {
    uint64_t image[REMO__RPC_REPLY_MAX / sizeof(uint64_t)];
    uint32_t first = depth == REMO__RPC_LEAF_DEPTH ? REMO__RPC_SLOTS : 0;
    remo__rpc_lock(transport, &transport->slots_mutex);
    uint32_t left = atomic_load(&transport->peers[node].retired[depth - 1]);
    for (uint32_t slot = first; left > 0 && slot < transport->next_spare; slot++)
        if (atomic_load(&transport->slot[slot].state) == REMO__RPC_SLOT_RETIRED
            && transport->slot[slot].node == node && transport->slot[slot].depth == depth - 1) {
            reclaim(transport, slot, image);
            left--;
        }
    remo__rpc_unlock(transport, &transport->slots_mutex);
}

/* A reply may wait in the slot of a thread that computes, or in a lost one. A slot that is given and taken
 * meanwhile has another serial; its new call has no reply yet, or one that is as good. */
void remo__rpc_slots_collect(struct remo__rpc_transport *transport, uint32_t node) {
    uint64_t image[REMO__RPC_REPLY_MAX / sizeof(uint64_t)];
    struct remo__rpc_reply reply;
    for (uint32_t slot = 0; slot < REMO__RPC_SLOTS_TOTAL; slot++) {
        uint64_t head = remo__load(remo__rpc_slot_memory(transport, slot) + REMO__RPC_NOTES);
        if (head >> 32 != 0 && (head >> 24 & 0xff) == node) /* which need not be the node of the call */
            (void)remo__rpc_slot_probe(transport, slot, image, &reply);
    }
}
