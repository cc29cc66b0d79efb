/* queue_slot.c - one push into a slot, one pop out of it; see objects/queue.h for why this is a queue. */
#include <string.h>
#include <xxhash.h>

#include "base/mutant.h"
#include "node/access.h"
#include "objects/queue.h"

#define ASK_AGAIN_MAX 2u

struct slot {
    uint64_t claim, checksum, meta;
    unsigned char data[REMO__QUEUE_BRIEF_BYTES];
};

static_assert(offsetof(struct slot, data) == REMO__SLOT_HEAD_BYTES, "as in the network");

/* ---- where things are ---- */

int remo__queue_find(struct remo_queue *queue, const struct remo__memory *memory, uint32_t node,
                     uint64_t offset, uint64_t *ret_at) {
    uint64_t at = remo__memory_at(memory, node, offset);
    if (remo__unlikely(at == REMO__NO_OFFSET)) {
        int rc = remo__channel_reach(queue->channel, node);
        if (rc != 0)
            return rc;
        at = remo__memory_at(memory, node, offset);
        if (at == REMO__NO_OFFSET)
            return remo__fail(-ENOTCONN, "node %u has just left %s", node, remo_channel_name(queue->channel));
    }
    *ret_at = at;
    return 0;
}

bool remo__queue_gone(const struct remo_queue *queue, uint32_t node) {
    enum remo_channel_peer state = remo_channel_peer(queue->channel, node);
    enum remo_peer_state life = remo_node_peer(queue->node, node);
    return state == REMO_CHANNEL_LEFT || state == REMO_CHANNEL_DOWN || life == REMO_PEER_DEAD
           || life == REMO_PEER_LEFT;
}

int remo__queue_news(struct remo__queue_op *op) {
    struct remo_queue *queue = op->queue;
    uint32_t deaths = atomic_load_explicit(&queue->deaths, memory_order_acquire);
    if (remo__likely(deaths == op->seen_deaths))
        return 0;
    atomic_store_explicit(&queue->told, deaths, memory_order_relaxed);
    return remo__fail(
        -EHOSTDOWN,
        "a participant of queue %s died or left; elements in its slots are lost, the others are "
        "in place: call again to go on without it",
        remo_channel_name(queue->channel));
}

static bool is_gone(int rc) {
    return rc == -EHOSTDOWN || rc == -ENOTCONN;
}

struct place {
    uint64_t ticket, lap;
    uint32_t owner;
    uint64_t at; /* of the slot in the owner's arena */
};

/* The place of a ticket, or of the first one after it whose owner is there. */
static int find_place(struct remo_queue *queue, uint64_t ticket, struct place *ret_place) {
    for (uint32_t i = 0; i <= queue->member_count; i++, ticket++) {
        uint64_t index = ticket % queue->capacity, at = 0;
        uint32_t owner = queue->members[index % queue->member_count];
        uint64_t offset = REMO__QUEUE_SLOTS + index / queue->member_count * queue->stride;
        int rc = remo__queue_find(queue, queue->slots_memory, owner, offset, &at);
        if (is_gone(rc))
            continue;
        *ret_place =
            (struct place){.ticket = ticket, .lap = ticket / queue->capacity, .owner = owner, .at = at};
        return rc;
    }
    return remo__fail(-EHOSTDOWN, "no participant of queue %s is left", remo_channel_name(queue->channel));
}

/* ---- operations on a slot ---- */

static uint64_t free_claim(uint64_t lap) {
    return lap << REMO__SLOT_LAP_SHIFT;
}

static uint64_t own_claim(const struct remo__queue_op *op, uint64_t lap) {
    return lap << REMO__SLOT_LAP_SHIFT | REMO__SLOT_CLAIMED | (uint64_t)(op->thread->index & 0xff) << 16
           | op->queue->node->rank;
}

static uint64_t make_meta(uint64_t ticket, size_t size) {
    return ticket << REMO__META_SIZE_BITS | size;
}

static uint64_t checksum(const void *data, size_t size, uint64_t meta) {
    return XXH3_64bits_withSeed(data, size, meta);
}

static struct remo_stats *counters(const struct remo__queue_op *op) {
    return remo__channel_counters(op->queue->channel, op->thread);
}

/* An operation on the network that timed out: not to be mistaken for a queue that stayed empty or full. */
static int hard(const struct remo__queue_op *op, int rc) {
    return rc == -ETIMEDOUT ? remo__fail_more(-EIO, "queue %s", remo_channel_name(op->queue->channel)) : rc;
}

static int swap_claim(struct remo__queue_op *op, const struct place *place, uint64_t expected,
                      uint64_t desired, uint64_t *ret_old) {
    return remo__compare_swap(op->thread, counters(op), place->owner, place->at, expected, desired, ret_old,
                              NULL);
}

/* 1: the slot is ours, 0: *ret_old says whose. When no answer comes, ask again: a claim that nobody knows of
 * would block the queue. */
static int claim(struct remo__queue_op *op, const struct place *place, uint64_t *ret_old) {
    uint64_t mine = own_claim(op, place->lap), free_before = free_claim(place->lap);
    int rc = swap_claim(op, place, free_before, mine, ret_old);
    for (uint32_t i = 0; rc == -ETIMEDOUT && i < ASK_AGAIN_MAX; i++) {
        rc = swap_claim(op, place, free_before, mine, ret_old);
        if (rc == 0 && *ret_old == mine)
            return 1;
    }
    return rc != 0 ? hard(op, rc) : *ret_old == free_before || REMO__MUTANT(queue_claim);
}

static int read_slot(struct remo__queue_op *op, const struct place *place, uint64_t skip, void *dst,
                     size_t size) {
    return remo__read(op->thread, counters(op), place->owner, place->at + skip, dst, size, NULL);
}

static int read_word(struct remo__queue_op *op, uint64_t *ret_word) {
    uint64_t at = 0;
    int rc =
        remo__queue_find(op->queue, op->queue->home_memory, op->queue->home, REMO__QUEUE_WORD(op->side), &at);
    return rc != 0 ? rc : remo__read(op->thread, counters(op), op->queue->home, at, ret_word, 8, NULL);
}

/* The ticket is behind the times: the search goes on where the word points, at least one further. */
static int search_on(struct remo__queue_op *op, uint64_t *word, uint64_t *ticket) {
    int rc = read_word(op, word);
    if (rc == 0)
        *ticket = remo__max(*ticket + 1, *word >> 1);
    return hard(op, rc);
}

static void remember(struct remo__queue_op *op, uint64_t ticket) {
    _Atomic uint64_t *hint = &op->queue->hint[op->side];
    if (ticket > atomic_load_explicit(hint, memory_order_relaxed))
        atomic_store_explicit(hint, ticket, memory_order_relaxed);
}

/* ---- push ---- */

/* Write the element, and wait until it is placed. 1: the owner went before anything was written. */
static int fill(struct remo__queue_op *op, const struct place *place) {
    struct slot slot; /* not initialised: it is large, and mostly not used */
    const struct remo__fabric_caps *caps = &op->queue->node->fabric->caps;
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t at = place->at + offsetof(struct slot, checksum);
    size_t head = offsetof(struct slot, data) - offsetof(struct slot, checksum), size = head;
    int rc = 0;
    slot.meta = make_meta(place->ticket, op->size);
    slot.checksum = checksum(op->data, op->size, slot.meta);
    if (op->size <= REMO__QUEUE_BRIEF_BYTES) {
        memcpy(slot.data, op->data, op->size);
        size += op->size;
    } else {
        rc = remo__write(op->thread, counters(op), place->owner, at + head, op->data, op->size,
                         REMO__WRITE_SETTLED, &ack);
    }
    if (rc == 0)
        rc = remo__write(op->thread, counters(op), place->owner, at, &slot.checksum, size,
                         REMO__WRITE_SETTLED, &ack);
    int started = rc;
    if (remo__ack_pending(&ack) && REMO__MUTANT(queue_written)) {
        remo_ack_cancel(&ack);
    } else if (remo__ack_pending(&ack)) {
        rc = remo_ack_wait(&ack, op->queue->node->op_timeout_ns);
        if (remo__ack_pending(&ack))
            remo_ack_cancel(&ack);
    }
    if (started != 0) /* without the header nobody takes it for an element */
        return is_gone(started) ? 1 : started;
    if (rc == 0 && !caps->completion_placed && !REMO__MUTANT(queue_flush))
        rc = read_slot(op, place, 0, &slot.claim, 8);
    return rc;
}

static int fail_unknown(struct remo__queue_op *op, const struct place *place, int rc) {
    return remo__fail(is_gone(rc) ? -EHOSTDOWN : -EIO,
                      "node %u went while an element was put into its slot of queue %s: whether it "
                      "was pushed is not known, and if it was, it may be lost",
                      place->owner, remo_channel_name(op->queue->channel));
}

/* The slot is ours: 1, or 0 to go on with the next ticket, or an error. */
static int push_claimed(struct remo__queue_op *op, const struct place *place, uint64_t word) {
    int rc = fill(op, place);
    if (rc == 1)
        return 0;
    if (rc != 0)
        return fail_unknown(op, place, rc);
    remember(op, place->ticket + 1);
    remo__queue_advance(op, word, place->ticket + 1);
    return 1;
}

int remo__queue_try_push(void *ctx) {
    struct remo__queue_op *op = ctx;
    struct remo_queue *queue = op->queue;
    uint64_t ticket = atomic_load_explicit(&queue->hint[op->side], memory_order_relaxed), word = ticket << 1,
             old;
    for (;;) { /* each turn has seen another push succeed, or a dead owner */
        struct place place;
        int rc = find_place(queue, ticket, &place);
        if (rc != 0)
            return hard(op, rc);
        ticket = place.ticket;
        rc = claim(op, &place, &old);
        if (rc == 1) {
            rc = push_claimed(op, &place, word);
            if (rc != 0)
                return rc;
        } else if (rc == 0 && old >> REMO__SLOT_LAP_SHIFT < place.lap) {
            remember(op, ticket);
            return remo__queue_news(op);
        } else if (rc == 0) {
            rc = search_on(op, &word, &ticket);
            if (rc != 0)
                return rc;
            continue;
        } else if (!is_gone(rc)) {
            return rc;
        }
        ticket++;
    }
}

/* ---- pop ---- */

/* Bring the element of a claimed slot, whose first part has been read, into the caller's buffer: 1, 0 (not
 * filled yet), or an error. */
static int take_out(struct remo__queue_op *op, const struct place *place, const struct slot *slot) {
    size_t size = slot->meta & ((1u << REMO__META_SIZE_BITS) - 1);
    if ((slot->meta != make_meta(place->ticket, size) && !REMO__MUTANT(queue_ticket))
        || size > op->queue->slot_bytes)
        return 0;
    const void *data = slot->data;
    if (op->queue->slot_bytes > REMO__QUEUE_BRIEF_BYTES) {
        int rc = read_slot(op, place, REMO__SLOT_HEAD_BYTES, op->buffer, size);
        if (rc != 0)
            return rc;
        data = op->buffer;
    }
    if (slot->checksum != checksum(data, size, slot->meta) && !REMO__MUTANT(queue_checksum))
        return 0;
    if (data != op->buffer)
        memcpy(op->buffer, data, size);
    op->size = size;
    return 1;
}

/* Has the slot's owner cut off the node that claimed it? Then what is not there by now will never be. */
static int is_cut_off(struct remo__queue_op *op, const struct place *place, uint32_t node, bool *ret_cut) {
    uint64_t word, at = 0;
    uint64_t offset = REMO__QUEUE_CUT_OFF + node / 64 * 8;
    int rc = remo__queue_find(op->queue, op->queue->slots_memory, place->owner, offset, &at);
    if (rc == 0)
        rc = remo__read(op->thread, counters(op), place->owner, at, &word, 8, NULL);
    if (rc == 0)
        *ret_cut = word >> node % 64 & 1;
    return rc;
}

/* A slot that is not whole may be one that is being filled, or one that was taken out and filled anew while
 * it was read: its claim, read after all the rest, tells which. Only the first says that there is nothing to
 * be had. */
static int is_claimed_still(struct remo__queue_op *op, const struct place *place, uint64_t claim,
                            bool *ret_same) {
    uint64_t now;
    int rc = read_slot(op, place, 0, &now, sizeof now);
    if (rc == 0)
        *ret_same = now == claim;
    return rc;
}

enum look { LOOK_FREE, LOOK_TAKEN, LOOK_FULL, LOOK_NOT_YET, LOOK_ABANDONED };

/* What is in the slot of a ticket; LOOK_FULL: an element, in the caller's buffer. */
static int look_at(struct remo__queue_op *op, const struct place *place, uint64_t *ret_claim,
                   enum look *ret_look) {
    struct slot slot;
    bool brief = op->queue->slot_bytes <= REMO__QUEUE_BRIEF_BYTES, cut = false;
    size_t size = REMO__SLOT_HEAD_BYTES + (brief ? op->queue->slot_bytes : 0);
    for (;;) {
        int rc = read_slot(op, place, 0, &slot, size);
        if (rc != 0)
            return rc;
        uint64_t lap = slot.claim >> REMO__SLOT_LAP_SHIFT;
        *ret_claim = slot.claim;
        *ret_look = lap > place->lap ? LOOK_TAKEN : LOOK_FREE;
        if ((lap != place->lap && !REMO__MUTANT(queue_lap)) || !(slot.claim & REMO__SLOT_CLAIMED))
            return 0;
        rc = take_out(op, place, &slot);
        if (rc == 0 && !REMO__MUTANT(queue_still_claimed)) {
            bool same = false;
            rc = is_claimed_still(op, place, slot.claim, &same);
            if (rc == 0 && !same)
                continue; /* a pop and a push went by: each turn has seen them */
        }
        if (rc < 0)
            return rc;
        uint32_t node = slot.claim & 0xffff;
        bool abandoned = cut && !REMO__MUTANT(queue_abandoned);
        *ret_look = rc == 1 ? LOOK_FULL : abandoned ? LOOK_ABANDONED : LOOK_NOT_YET;
        if (rc == 1 || cut || node >= op->queue->node->size || !remo__queue_gone(op->queue, node))
            return 0;
        rc = is_cut_off(op, place, node, &cut);
        cut = cut || REMO__MUTANT(queue_cut_off);
        if (rc != 0 || !cut)
            return rc;
    }
}

int remo__queue_try_pop(void *ctx) {
    struct remo__queue_op *op = ctx;
    struct remo_queue *queue = op->queue;
    uint64_t ticket = atomic_load_explicit(&queue->hint[op->side], memory_order_relaxed), word = ticket << 1,
             claimed, old;
    for (;;) { /* each turn has seen another pop succeed, a dead owner or an abandoned slot */
        struct place place;
        enum look look = LOOK_FREE;
        int rc = find_place(queue, ticket, &place);
        if (rc != 0)
            return hard(op, rc);
        ticket = place.ticket;
        rc = look_at(op, &place, &claimed, &look);
        if (rc == 0 && (look == LOOK_FREE || look == LOOK_NOT_YET)) {
            remember(op, ticket);
            return remo__queue_news(op);
        }
        if (rc == 0 && look != LOOK_TAKEN)
            rc = swap_claim(op, &place, claimed, free_claim(place.lap + 1), &old);
        if (rc != 0 && !is_gone(rc))
            return hard(op, rc);
        if (rc == 0 && look == LOOK_FULL && (old == claimed || REMO__MUTANT(queue_pop_once))) {
            remember(op, ticket + 1);
            remo__queue_advance(op, word, ticket + 1);
            return 1;
        }
        if (rc == 0 && look == LOOK_TAKEN) {
            rc = search_on(op, &word, &ticket);
            if (rc != 0)
                return rc;
        } else {
            ticket++;
        }
    }
}
