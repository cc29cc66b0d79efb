/* queue_slot.c - one push into a slot, one pop out of it; see objects/queue.h for why this is a queue. */
#include <stdio.h>
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
    enum remo_channel_state state = remo_channel_peer(queue->channel, node);
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

/* The place of a ticket, or of the first one after it whose owner is there. */
static int find_place(struct remo_queue *queue, uint64_t ticket, struct remo__queue_place *ret_place) {
    for (uint32_t i = 0; i <= queue->member_count; i++, ticket++) {
        uint64_t index = ticket % queue->capacity, at = 0;
        uint32_t owner = queue->members[index % queue->member_count];
        uint64_t offset = REMO__QUEUE_SLOTS + index / queue->member_count * queue->stride;
        int rc = remo__queue_find(queue, queue->slots_memory, owner, offset, &at);
        if (is_gone(rc))
            continue;
        *ret_place = (struct remo__queue_place){
            .ticket = ticket, .lap = ticket / queue->capacity, .owner = owner, .at = at};
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

/* The slot is free, in an earlier lap than the place's. See "Skipped" in objects/queue.h. */
static bool is_behind(uint64_t claim, const struct remo__queue_place *place) {
    return !(claim & REMO__SLOT_CLAIMED) && claim >> REMO__SLOT_LAP_SHIFT < place->lap;
}

static int swap_claim(struct remo__queue_op *op, const struct remo__queue_place *place, uint64_t expected,
                      uint64_t desired, uint64_t *ret_old) {
    return remo__compare_swap(op->thread, counters(op), place->owner, place->at, expected, desired, ret_old,
                              NULL);
}

/* Claim a slot that holds `free_before`. 1: the slot is ours, 0: *ret_old says whose. When no answer comes,
 * ask again: a claim without a known owner would block the queue. */
static int claim_from(struct remo__queue_op *op, const struct remo__queue_place *place, uint64_t free_before,
                      uint64_t *ret_old) {
    uint64_t mine = own_claim(op, place->lap);
    int rc = swap_claim(op, place, free_before, mine, ret_old);
    for (uint32_t i = 0; rc != 0 && !is_gone(rc) && i < ASK_AGAIN_MAX; i++) {
        rc = swap_claim(op, place, free_before, mine, ret_old);
        if (rc == 0 && *ret_old == mine)
            return 1;
    }
    return rc != 0 ? hard(op, rc) : *ret_old == free_before || REMO__MUTANT(queue_claim);
}

/* The same from the lap that the slot is in, which only rises. */
static int claim(struct remo__queue_op *op, const struct remo__queue_place *place, uint64_t *ret_old) {
    int rc = claim_from(op, place, free_claim(place->lap), ret_old);
    while (rc == 0 && is_behind(*ret_old, place) && !REMO__MUTANT(queue_claim_behind))
        rc = claim_from(op, place, *ret_old, ret_old);
    return rc;
}

static int read_slot(struct remo__queue_op *op, const struct remo__queue_place *place, uint64_t skip,
                     void *dst, size_t size) {
    return remo__read(op->thread, counters(op), place->owner, place->at + skip, dst, size, NULL);
}

static int read_word(struct remo__queue_op *op, enum remo__queue_side side, uint64_t *ret_word) {
    uint64_t at = 0;
    int rc =
        remo__queue_find(op->queue, op->queue->home_memory, op->queue->home, REMO__QUEUE_WORD(side), &at);
    return rc != 0 ? rc : remo__read(op->thread, counters(op), op->queue->home, at, ret_word, 8, NULL);
}

/* The ticket is behind the times: the search goes on where the word points, at least one further. */
static int search_on(struct remo__queue_op *op, uint64_t *word, uint64_t *ticket) {
    int rc = read_word(op, op->side, word);
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

/* Write the element, and wait until it is placed. 1: the owner has failed before anything was written. After
 * an error a write may be in flight, for which *ack stands. */
static int fill(struct remo__queue_op *op, const struct remo__queue_place *place, struct remo_ack *ack) {
    struct slot slot; /* not initialised: it is large, and mostly not used */
    const struct remo__fabric_caps *caps = &op->queue->node->fabric->caps;
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
                         REMO__WRITE_SETTLED, ack);
    }
    if (rc == 0)
        rc = remo__write(op->thread, counters(op), place->owner, at, &slot.checksum, size,
                         REMO__WRITE_SETTLED, ack);
    int started = rc;
    if (remo__ack_pending(ack) && REMO__MUTANT(queue_written))
        remo_ack_cancel(ack);
    else if (remo__ack_pending(ack))
        rc = remo_ack_wait(ack, op->queue->node->op_timeout_ns);
    if (started != 0) /* without the header no pop takes it for an element */
        return is_gone(started) ? 1 : started;
    if (rc == 0 && !caps->completion_placed && !REMO__MUTANT(queue_flush))
        rc = read_slot(op, place, 0, &slot.claim, 8);
    return rc;
}

/* Free the slot of a claim that will not be filled. 0: it is free, and nothing was pushed; 1: a pop has taken
 * the element, or (is_unsure) the slot was free already. Errors: -EINPROGRESS, or that of an operation. */
static int retract(struct remo__queue_op *op, struct remo__queue_kept *kept) {
    const struct remo__queue_place *place = &kept->place;
    uint64_t old;
    if (remo__ack_pending(&kept->ack)) {
        int rc = remo_ack_test(&kept->ack);
        if (rc == -EINPROGRESS)
            return rc;
    }
    /* behind the writes, by their way: they are placed when it has completed */
    int rc = remo__read(kept->thread, counters(op), place->owner, place->at, &old, sizeof old, NULL);
    if (rc == 0 && old == kept->claim) {
        rc = swap_claim(op, place, kept->claim, free_claim(place->lap + 1), &old);
        kept->is_unsure = kept->is_unsure || rc != 0;
    }
    return rc != 0 ? rc : old != kept->claim;
}

/* To be retracted by a later call. If there is no room, it is never retracted: only threads that were past
 * the check of try_push can come here then. */
static void keep(struct remo_queue *queue, struct remo__queue_kept *kept) {
    (void)remo__mutex_lock(queue->node, &queue->kept_mutex, REMO_FOREVER);
    uint32_t count = atomic_load(&queue->kept_count);
    if (count < REMO__QUEUE_KEPT_MAX) {
        struct remo__queue_kept *place = &queue->kept[count];
        *place = *kept;
        place->ack = (struct remo_ack)REMO_ACK_INIT;
        remo_ack_join(&place->ack, &kept->ack);
        atomic_store(&queue->kept_count, count + 1);
    }
    remo__mutex_unlock(queue->node, &queue->kept_mutex);
    remo_ack_cancel(&kept->ack);
}

/* Retract now if possible, or else later. 1: a pop has taken the element; 0: nothing was pushed. Errors: those
 * of retract; whether the element was pushed is unknown. */
static int retract_or_keep(struct remo__queue_op *op, struct remo__queue_kept *kept) {
    int rc = -EINPROGRESS;
    if (REMO__MUTANT(queue_retract)) {
        remo_ack_cancel(&kept->ack);
        return -EIO;
    }
    for (uint32_t i = 0; i <= ASK_AGAIN_MAX && rc < 0 && !is_gone(rc); i++)
        rc = retract(op, kept);
    if (rc < 0 && !is_gone(rc))
        keep(op->queue, kept);
    else
        remo_ack_cancel(&kept->ack);
    return rc == 1 && kept->is_unsure ? -EIO : rc;
}

/* Retract what earlier calls could not. A claim is given up when its slot's owner has failed. */
static void retract_kept(struct remo__queue_op *op) {
    struct remo_queue *queue = op->queue;
    if (remo__mutex_lock(queue->node, &queue->kept_mutex, remo__deadline(0)) != 0)
        return; /* another thread is at it */
    uint32_t count = atomic_load(&queue->kept_count);
    for (uint32_t i = 0; i < count;) {
        struct remo__queue_kept *kept = &queue->kept[i];
        int rc = retract(op, kept);
        if (rc < 0 && !is_gone(rc)) {
            i++;
            continue;
        }
        remo_ack_cancel(&kept->ack);
        struct remo__queue_kept *last = &queue->kept[--count];
        if (last == kept)
            break;
        struct remo_ack ack = REMO_ACK_INIT;
        remo_ack_join(&ack, &last->ack);
        *kept = *last;
        kept->ack = (struct remo_ack)REMO_ACK_INIT;
        remo_ack_join(&kept->ack, &ack);
    }
    atomic_store(&queue->kept_count, count);
    remo__mutex_unlock(queue->node, &queue->kept_mutex);
}

void remo__queue_forget_kept(struct remo_queue *queue) {
    for (uint32_t i = 0; i < atomic_load(&queue->kept_count); i++)
        remo_ack_cancel(&queue->kept[i].ack);
}

/* In a call: what was kept comes first. */
static int begin_try(struct remo__queue_op *op) {
    if (remo__likely(atomic_load_explicit(&op->queue->kept_count, memory_order_relaxed) == 0))
        return 0;
    retract_kept(op);
    if (op->side == REMO__QUEUE_HEAD || atomic_load(&op->queue->kept_count) < REMO__QUEUE_KEPT_MAX)
        return 0;
    return remo__fail(-EIO,
                      "cannot push to queue %s: %u earlier pushes have failed and may still write to their "
                      "slots; push again when the owners of these slots answer",
                      remo_channel_name(op->queue->channel), REMO__QUEUE_KEPT_MAX);
}

static struct remo__queue_kept claim_of(struct remo__queue_op *op, const struct remo__queue_place *place) {
    return (struct remo__queue_kept){
        .thread = op->thread, .place = *place, .claim = own_claim(op, place->lap), .ack = REMO_ACK_INIT};
}

/* `reason`: the sentence of the first failure. */
static int fail_unknown(struct remo__queue_op *op, const struct remo__queue_place *place, int rc,
                        const char *reason) {
    return remo__fail(
        is_gone(rc) ? -EHOSTDOWN : -EIO,
        "cannot put an element into a slot at node %u of queue %s: %s; whether it was pushed is "
        "unknown, and if it was, it may be lost",
        place->owner, remo_channel_name(op->queue->channel), reason);
}

static int fail_retracted(struct remo__queue_op *op, const struct remo__queue_place *place,
                          const char *reason) {
    return remo__fail(
        -EIO,
        "cannot put an element into a slot at node %u of queue %s: %s; it was not pushed: push it "
        "again",
        place->owner, remo_channel_name(op->queue->channel), reason);
}

/* The claim failed in an unknown way: it must not block the queue. */
static int fail_claim(struct remo__queue_op *op, const struct remo__queue_place *place, int rc) {
    char reason[REMO__SENTENCE_MAX];
    struct remo__queue_kept kept = claim_of(op, place);
    snprintf(reason, sizeof reason, "%s", remo_last_error());
    (void)retract_or_keep(op, &kept);
    return remo__fail(rc, "%s", reason);
}

/* The slot is claimed, and filling it failed. 1: the element was pushed, or an error. */
static int end_failed_push(struct remo__queue_op *op, const struct remo__queue_place *place,
                           struct remo_ack *ack) {
    char reason[REMO__SENTENCE_MAX];
    struct remo__queue_kept kept = claim_of(op, place);
    snprintf(reason, sizeof reason, "%s", remo_last_error());
    remo_ack_join(&kept.ack, ack);
    int rc = retract_or_keep(op, &kept);
    if (rc == 1)
        return 1;
    return rc == 0 ? fail_retracted(op, place, reason) : fail_unknown(op, place, rc, reason);
}

/* The slot is ours: 1, or 0 to go on with the next ticket, or an error. */
static int push_claimed(struct remo__queue_op *op, const struct remo__queue_place *place, uint64_t word) {
    struct remo_ack ack = REMO_ACK_INIT;
    int rc = fill(op, place, &ack);
    if (rc == 1) {
        remo_ack_cancel(&ack);
        return 0;
    }
    if (remo__unlikely(rc != 0)) {
        rc = end_failed_push(op, place, &ack);
        if (rc != 1)
            return rc;
    }
    remember(op, place->ticket + 1);
    remo__queue_advance(op, word, place->ticket + 1);
    return 1;
}

int remo__queue_try_push(void *ctx) {
    struct remo__queue_op *op = ctx;
    struct remo_queue *queue = op->queue;
    uint64_t ticket = atomic_load_explicit(&queue->hint[op->side], memory_order_relaxed), word = ticket << 1,
             old;
    int begun = begin_try(op);
    if (remo__unlikely(begun != 0))
        return begun;
    for (;;) { /* each turn has seen another push succeed, or a dead owner */
        struct remo__queue_place place;
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
            return fail_claim(op, &place, rc);
        }
        ticket++;
    }
}

/* ---- pop ---- */

static int add_pieces(struct remo__queue_op *op, const struct remo__queue_place *place, size_t size,
                      XXH3_state_t *state) {
    unsigned char piece[REMO__QUEUE_BRIEF_BYTES];
    for (size_t at = 0; at < size; at += sizeof piece) {
        size_t bytes = remo__min(size - at, sizeof piece);
        int rc = read_slot(op, place, REMO__SLOT_HEAD_BYTES + at, piece, bytes);
        if (rc != 0)
            return rc;
        (void)XXH3_64bits_update(state, piece, bytes);
    }
    return 0;
}

/* The checksum of an element that the buffer cannot hold, read piece by piece: a size without it may be that
 * of a push that failed. It allocates, because the pop fails. */
static int sum_at_owner(struct remo__queue_op *op, const struct remo__queue_place *place, size_t size,
                        uint64_t meta, uint64_t *ret_sum) {
    XXH3_state_t *state = XXH3_createState();
    if (!state || XXH3_64bits_reset_withSeed(state, meta) != XXH_OK) {
        (void)XXH3_freeState(state);
        return remo__fail(-ENOMEM, "no memory to check an element that is too large for the buffer");
    }
    int rc = add_pieces(op, place, size, state);
    *ret_sum = XXH3_64bits_digest(state);
    (void)XXH3_freeState(state);
    return rc;
}

/* Bring the element of a claimed slot, whose first part has been read, into the caller's buffer: 1, 0 (not
 * filled yet), or an error. */
static int take_out(struct remo__queue_op *op, const struct remo__queue_place *place,
                    const struct slot *slot) {
    size_t size = slot->meta & ((1u << REMO__META_SIZE_BITS) - 1);
    if ((slot->meta != make_meta(place->ticket, size) && !REMO__MUTANT(queue_ticket))
        || size > op->queue->slot_bytes)
        return 0;
    bool brief = op->queue->slot_bytes <= REMO__QUEUE_BRIEF_BYTES;
    const void *data = brief ? slot->data : op->buffer;
    uint64_t sum = 0;
    int rc = 0;
    op->is_too_large = size > op->buffer_bytes;
    if (!brief && op->is_too_large)
        rc = sum_at_owner(op, place, size, slot->meta, &sum);
    else if (!brief)
        rc = read_slot(op, place, REMO__SLOT_HEAD_BYTES, op->buffer, size);
    if (rc != 0)
        return rc;
    if (brief || !op->is_too_large)
        sum = checksum(data, size, slot->meta);
    if (slot->checksum != sum && !REMO__MUTANT(queue_checksum))
        return 0;
    if (brief && !op->is_too_large)
        memcpy(op->buffer, data, size);
    op->size = size;
    return 1;
}

/* Has the slot's owner cut off the node that claimed it? Then what is not there by now will never be. */
static int is_cut_off(struct remo__queue_op *op, const struct remo__queue_place *place, uint32_t node,
                      bool *ret_cut) {
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
static int is_claimed_still(struct remo__queue_op *op, const struct remo__queue_place *place, uint64_t claim,
                            bool *ret_same) {
    uint64_t now;
    int rc = read_slot(op, place, 0, &now, sizeof now);
    if (rc == 0)
        *ret_same = now == claim;
    return rc;
}

enum look { LOOK_FREE, LOOK_TAKEN, LOOK_FULL, LOOK_NOT_YET, LOOK_ABANDONED };

/* The place of the ticket that the slot is claimed for: the same, or one of an earlier lap that was skipped. */
static void go_back(const struct remo_queue *queue, struct remo__queue_place *place, uint64_t lap) {
    place->ticket -= (place->lap - lap) * queue->capacity;
    place->lap = lap;
}

/* What is in the slot of a ticket; LOOK_FULL: an element, in the caller's buffer if that is large enough. */
static int look_at(struct remo__queue_op *op, struct remo__queue_place *place, uint64_t *ret_claim,
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
        bool later = lap > place->lap && !REMO__MUTANT(queue_lap);
        if (later || !(slot.claim & REMO__SLOT_CLAIMED))
            return 0;
        if (lap < place->lap && !REMO__MUTANT(queue_go_back))
            go_back(op->queue, place, lap);
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

/* The slot is free for the ticket. 0: the queue is empty; 1: look at the slot again, which is in the next lap
 * now, or has changed. Only a node that others take for failed skips slots of live nodes, so before a failure
 * the home is not asked. */
static int pass_skipped(struct remo__queue_op *op, const struct remo__queue_place *place, uint64_t claimed) {
    uint64_t tail = 0, old;
    if (atomic_load_explicit(&op->queue->deaths, memory_order_acquire) == 0 || REMO__MUTANT(queue_skipped))
        return 0;
    int rc = read_word(op, REMO__QUEUE_TAIL, &tail);
    if (rc != 0 || tail >> 1 <= place->ticket)
        return rc;
    rc = swap_claim(op, place, claimed, free_claim(place->lap + 1), &old);
    return rc == 0 || is_gone(rc) ? 1 : rc;
}

/* After an element of `place` was taken, in a search that had come to `ticket`. */
static void end_pop(struct remo__queue_op *op, const struct remo__queue_place *place, uint64_t ticket,
                    uint64_t word) {
    uint64_t next = place->ticket == ticket ? ticket + 1 : ticket; /* the same again after a skipped lap */
    remember(op, next);
    remo__queue_advance(op, word, next);
}

int remo__queue_try_pop(void *ctx) {
    struct remo__queue_op *op = ctx;
    struct remo_queue *queue = op->queue;
    uint64_t ticket = atomic_load_explicit(&queue->hint[op->side], memory_order_relaxed), word = ticket << 1,
             claimed, old;
    (void)begin_try(op);
    for (;;) { /* each turn has seen another pop succeed, a failed owner, or an abandoned or skipped slot */
        struct remo__queue_place place;
        enum look look = LOOK_FREE;
        int rc = find_place(queue, ticket, &place);
        if (rc != 0)
            return hard(op, rc);
        ticket = place.ticket;
        rc = look_at(op, &place, &claimed, &look);
        if (rc == 0 && look == LOOK_FREE) {
            rc = pass_skipped(op, &place, claimed);
            if (rc != 0 && rc != 1)
                return hard(op, rc);
            if (rc == 1)
                continue;
        }
        if (rc == 0 && (look == LOOK_FREE || look == LOOK_NOT_YET)) {
            remember(op, ticket);
            return remo__queue_news(op);
        }
        if (rc == 0 && look == LOOK_FULL && op->is_too_large)
            return -EMSGSIZE; /* the first element: all tickets before it are taken */
        if (rc == 0 && look != LOOK_TAKEN)
            rc = swap_claim(op, &place, claimed, free_claim(place.lap + 1), &old);
        if (rc != 0 && !is_gone(rc))
            return hard(op, rc);
        if (rc == 0 && look == LOOK_FULL && (old == claimed || REMO__MUTANT(queue_pop_once))) {
            end_pop(op, &place, ticket, word);
            return 1;
        }
        if (rc == 0 && look == LOOK_TAKEN) {
            rc = search_on(op, &word, &ticket);
            if (rc != 0)
                return rc;
        } else if (rc != 0 || place.ticket == ticket) {
            ticket++;
        }
    }
}
