/* slot.c - tries to push an element to a slot, and to pop one from a slot.
 * Invariant: tickets are claimed in order and freed in order. A search passes a ticket in two cases: the
 * ticket was claimed (push) or freed (pop), or the owner of its slot has failed or left.
 * docs/internals/queue.md describes the protocol. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/random.h"
#include "objects/queue/queue.h"

#define RETRIES_MAX 2u /* of an atomic whose outcome is unknown */
/* The home's word is read first while this count of overtaken searches is at least the minimum. */
#define OVERTAKEN_MIN 2u
#define OVERTAKEN_MAX 4u
/* Searches that other nodes outrun, after which a try returns if its deadline has passed. */
#ifdef REMO_SIM_SMALL
#define PASSES_MAX 8u
#else
#define PASSES_MAX 64u
#endif

/* The contents of a slot, in the order of network memory. */
struct snapshot {
    uint64_t claim, checksum, meta;              /* the checksum: of an inline element only */
    uint64_t data[REMO__QUEUE_INLINE_BYTES / 8]; /* of an inline element: masked */
};

static_assert(offsetof(struct snapshot, data) == REMO__SLOT_HEAD_BYTES,
              "the layout of a slot in network memory");

/* ---- find slots ---- */

/* Set *ret_slot to the slot of a ticket. Inlined, because it sets a reference (op.h). */
static inline __attribute__((always_inline)) int
find_slot_of(const struct remo__queue_op *op, uint64_t ticket, struct remo__queue_slot *ret_slot) {
    const struct remo_queue *queue = op->queue;
    uint64_t lap = ticket / queue->capacity, index = ticket - lap * queue->capacity;
    uint64_t row = index / queue->member_count;
    uint32_t owner = queue->members[index - row * queue->member_count];
    ret_slot->ticket = ticket;
    ret_slot->lap = lap;
    return remo__memory_find(queue->slots_memory, op->thread, owner, REMO__QUEUE_SLOTS + row * queue->stride,
                             &ret_slot->ref);
}

/* Find the slot of the first ticket after `ticket` whose owner still participates. */
static __attribute__((noinline, cold)) int find_later_slot(const struct remo__queue_op *op, uint64_t ticket,
                                                           struct remo__queue_slot *ret_slot) {
    const struct remo_queue *queue = op->queue;
    for (uint32_t i = 1; i <= queue->member_count; i++) {
        int rc = find_slot_of(op, ticket + i, ret_slot);
        if (!remo__is_departure(rc))
            return rc;
    }
    return remo__fail(-EHOSTDOWN, "all participants of queue %s have failed or left",
                      remo_channel_name(queue->channel));
}

/* Find the slot of `ticket`, or of the first ticket after it whose owner still participates. */
static inline __attribute__((always_inline)) int find_slot(const struct remo__queue_op *op, uint64_t ticket,
                                                           struct remo__queue_slot *ret_slot) {
    int rc = find_slot_of(op, ticket, ret_slot);
    return remo__likely(!remo__is_departure(rc)) ? rc : find_later_slot(op, ticket, ret_slot);
}

/* ---- operations on a slot ---- */

static uint64_t own_claim(const struct remo__queue_op *op, uint64_t lap) {
    return lap << REMO__SLOT_LAP_SHIFT | REMO__SLOT_CLAIMED | (uint64_t)(op->thread->index & 0xff) << 16
           | op->queue->node->rank;
}

/* Not 0, which the memory of a new queue holds. */
static uint64_t make_meta(uint64_t ticket, size_t size) {
    return (ticket + 1) << REMO__META_SIZE_BITS | size;
}

static uint64_t checksum(const void *data, size_t size, uint64_t meta) {
    return XXH3_64bits_withSeed(data, size, meta);
}

/* Return whether an element is written and read together with its header. In mapped memory a second access
 * costs less than a checksum. */
static bool is_inline(const struct remo_queue *queue, size_t size) {
    return size <= REMO__QUEUE_INLINE_BYTES && !queue->node->mapped;
}

/* The bytes that an inline element occupies in its slot. */
static size_t inline_bytes(size_t size) {
    return remo__align_up(size, 8);
}

/* The mask of the words of an inline element. It depends on the ticket, so a word of an earlier lap differs
 * from the expected word: see "Masked elements" in docs/internals/queue.md. */
static uint64_t mask_of(uint64_t ticket) {
    return remo__random_mix(ticket);
}

/* Copy an element into masked words. The last word is padded with zeros. */
static void copy_in(uint64_t *words, const unsigned char *data, size_t size, uint64_t mask) {
    size_t i = 0;
    for (; i < size / 8; i++) {
        uint64_t word;
        memcpy(&word, data + 8 * i, 8);
        words[i] = word ^ mask;
    }
    if (size % 8 != 0) {
        uint64_t word = 0;
        memcpy(&word, data + 8 * i, size % 8);
        words[i] = word ^ mask;
    }
}

/* Copy an element out of masked words. */
static void copy_out(unsigned char *data, const uint64_t *words, size_t size, uint64_t mask) {
    size_t i = 0;
    for (; i < size / 8; i++) {
        uint64_t word = words[i] ^ mask;
        memcpy(data + 8 * i, &word, 8);
    }
    if (size % 8 != 0) {
        uint64_t word = words[i] ^ mask;
        memcpy(data + 8 * i, &word, size % 8);
    }
}

/* Return whether `claim` is free in an earlier lap than `slot`: a node has skipped the slot. See "Skipped
 * slots" in docs/internals/queue.md. */
static bool is_free_earlier(uint64_t claim, const struct remo__queue_slot *slot) {
    return !(claim & REMO__SLOT_CLAIMED) && claim >> REMO__SLOT_LAP_SHIFT < slot->lap;
}

/* Claim a slot whose claim word is `free_before`. Returns 1 if this call claimed the slot, 0 if not (*ret_old
 * is the claim word that was found), or an error. An attempt with an unknown outcome is repeated, because a
 * claim that no push fills would block the queue. */
static int claim_slot_from(struct remo__queue_op *op, const struct remo__queue_slot *slot,
                           uint64_t free_before, uint64_t *ret_old) {
    uint64_t mine = own_claim(op, slot->lap);
    int rc = remo__compare_swap(slot->ref, free_before, mine, ret_old, NULL);
    for (uint32_t i = 0; rc != 0 && !remo__is_departure(rc) && i < RETRIES_MAX; i++) {
        rc = remo__compare_swap(slot->ref, free_before, mine, ret_old, NULL);
        if (rc == 0 && *ret_old == mine) /* of this call: a thread that keeps a claim does not push */
            return 1;
    }
    return rc != 0 ? remo__queue_convert_timeout(op, rc) : *ret_old == free_before;
}

/* Claim a slot, even one that is free in an earlier lap. The loop ends, because the lap of a slot only
 * increases. */
static int claim_slot(struct remo__queue_op *op, const struct remo__queue_slot *slot, uint64_t *ret_old) {
    int rc = claim_slot_from(op, slot, remo__queue_free_claim(slot->lap), ret_old);
    while (rc == 0 && is_free_earlier(*ret_old, slot))
        rc = claim_slot_from(op, slot, *ret_old, ret_old);
    return rc;
}

static int read_slot(const struct remo__queue_slot *slot, uint64_t skip, void *dst, size_t size) {
    return remo__read(remo__ref_after(slot->ref, skip), dst, size, NULL);
}

/* Read the header of a slot, with the data if all slots are inline. */
static inline int read_snapshot(const struct remo_queue *queue, const struct remo__queue_slot *slot,
                                struct snapshot *snapshot) {
    if (is_inline(queue, queue->slot_bytes))
        return read_slot(slot, 0, snapshot, REMO__SLOT_HEAD_BYTES + inline_bytes(queue->slot_bytes));
    return remo__read(slot->ref, snapshot, REMO__SLOT_HEAD_BYTES, NULL);
}

static int read_word(struct remo__queue_op *op, enum remo__queue_side side, uint64_t *ret_word) {
    struct remo__ref ref;
    int rc = remo__queue_find_home(op, REMO__QUEUE_WORD(side), &ref);
    return rc != 0 ? rc : remo__read(ref, ret_word, 8, NULL);
}

/* Count a search that another node has overtaken, or one that none has. Only mapped memory uses the count. */
static void count_overtaken(struct remo__queue_op *op, bool is_overtaken) {
    _Atomic uint32_t *overtaken = &op->queue->overtaken[op->side];
    uint32_t count = atomic_load_explicit(overtaken, memory_order_relaxed);
    count = is_overtaken ? remo__min(count + 1, OVERTAKEN_MAX) : count - (count > 0);
    if (op->queue->node->mapped)
        atomic_store_explicit(overtaken, count, memory_order_relaxed);
}

/* Continue the search after `*ticket`, at the position that the home's word gives if that is further. */
static int continue_search(struct remo__queue_op *op, uint64_t *word, uint64_t *ticket) {
    int rc = read_word(op, op->side, word);
    count_overtaken(op, true);
    if (rc == 0)
        *ticket = remo__max(*ticket + 1, *word >> 1);
    return remo__queue_convert_timeout(op, rc);
}

/* Set the ticket at which a search begins, and the probable value of the home's word. In mapped memory, while
 * other nodes overtake the searches of this node, read the word first. The attempt at the ticket of the hint
 * would probably fail, and take the line of the slot from the node that is filling it or copying its
 * element. */
static inline __attribute__((always_inline)) void begin_search(struct remo__queue_op *op, uint64_t *ret_word,
                                                               uint64_t *ret_ticket) {
    struct remo_queue *queue = op->queue;
    uint64_t ticket = atomic_load_explicit(&queue->hint[op->side], memory_order_relaxed), word = ticket << 1;
    if (remo__unlikely(atomic_load_explicit(&queue->overtaken[op->side], memory_order_relaxed)
                       >= OVERTAKEN_MIN)) {
        (void)read_word(op, op->side, &word); /* if that fails, begin at the hint */
        count_overtaken(op, word >> 1 > ticket);
        ticket = remo__max(ticket, word >> 1);
    }
    *ret_word = word;
    *ret_ticket = ticket;
}

/* Let the next search begin at `ticket`. A concurrent call may lower the hint again, at the cost of reads. */
static void raise_hint(struct remo__queue_op *op, uint64_t ticket) {
    _Atomic uint64_t *hint = &op->queue->hint[op->side];
    if (ticket > atomic_load_explicit(hint, memory_order_relaxed))
        atomic_store_explicit(hint, ticket, memory_order_relaxed);
}

/* Return whether a search ends without a result. A pass repeats only after progress of another node, so the
 * queue as a whole makes progress; but a slow node may be outrun in each pass. */
static bool is_outrun(const struct remo__queue_op *op, uint32_t passes) {
    return passes >= PASSES_MAX && remo__remaining_ns(op->deadline_ns) == 0;
}

static void begin_try(struct remo__queue_op *op) {
    if (remo__unlikely(atomic_load_explicit(&op->queue->kept_count, memory_order_relaxed) != 0))
        remo__queue_retract_kept_claims(op);
}

/* ---- push ---- */

/* Wait until the writes of *ack are placed. The flush read follows the writes at once, so it uses their
 * connection: no other operation of the thread comes between, whose refusal could end the connection. It also
 * saves a round trip. */
static int place_writes(struct remo__queue_op *op, const struct remo__queue_slot *slot,
                        struct remo_ack *ack) {
    const struct remo_node *node = op->queue->node;
    struct remo_ack flush = REMO_ACK_INIT;
    uint64_t flushed;
    int rc = 0, flush_rc = 0;
    if (!node->fabric->caps.completion_placed)
        flush_rc = remo__read(slot->ref, &flushed, sizeof flushed, &flush);
    if (remo__ack_pending(ack) || ack->status != 0) /* another thread may have completed a failed write */
        rc = remo_ack_wait(ack, node->op_timeout_ns);
    if (rc == 0 && flush_rc == 0 && (remo__ack_pending(&flush) || flush.status != 0))
        flush_rc = remo_ack_wait(&flush, node->op_timeout_ns);
    remo_ack_cancel(&flush);
    return rc != 0 ? rc : flush_rc;
}

/* Set data and checksum of an inline element. */
static void encode_inline(const struct remo__queue_op *op, uint64_t ticket, struct snapshot *snapshot) {
    copy_in(snapshot->data, op->data, op->size_bytes, mask_of(ticket));
    snapshot->checksum = checksum(snapshot->data, inline_bytes(op->size_bytes), snapshot->meta);
}

/* Write the data of an element that is not inline. Place it, if the fabric's order does not suffice, before
 * the caller writes the meta word: see "Elements that are not inline" in docs/internals/queue.md. */
static int write_data(struct remo__queue_op *op, const struct remo__queue_slot *slot, struct remo_ack *ack) {
    const struct remo__fabric_caps *caps = &op->queue->node->fabric->caps;
    int rc = remo__write(remo__ref_after(slot->ref, op->queue->data_at), op->data, op->size_bytes,
                         REMO__WRITE_EXEMPT, ack);
    if (rc == 0 && !(caps->writes_ordered && caps->completion_placed))
        rc = place_writes(op, slot, ack);
    return rc;
}

/* Write the element, and wait until it is placed. Returns 0, 1 if the owner failed before the header was
 * posted, or an error. After an error, writes may be in flight until *ack is complete. */
static int fill_slot(struct remo__queue_op *op, const struct remo__queue_slot *slot, struct remo_ack *ack) {
    struct snapshot snapshot; /* not initialised: large, and used only in part */
    struct remo__ref ref = slot->ref;
    int rc;
    snapshot.meta = make_meta(slot->ticket, op->size_bytes);
    if (is_inline(op->queue, op->size_bytes)) {
        encode_inline(op, slot->ticket, &snapshot);
        rc = remo__write(remo__ref_after(ref, offsetof(struct snapshot, checksum)), &snapshot.checksum,
                         offsetof(struct snapshot, data) - offsetof(struct snapshot, checksum)
                             + inline_bytes(op->size_bytes),
                         REMO__WRITE_EXEMPT, ack);
    } else {
        rc = write_data(op, slot, ack);
        if (rc == 0)
            rc = remo__write(remo__ref_after(ref, offsetof(struct snapshot, meta)), &snapshot.meta, 8,
                             REMO__WRITE_EXEMPT, ack);
    }
    if (rc != 0) { /* a slot without its header is not filled */
        if (remo__ack_pending(ack))
            (void)remo_ack_wait(ack, op->queue->node->op_timeout_ns);
        return remo__is_departure(rc) ? 1 : rc;
    }
    return place_writes(op, slot, ack);
}

static struct remo__queue_kept_claim make_kept_claim(struct remo__queue_op *op,
                                                     const struct remo__queue_slot *slot) {
    return (struct remo__queue_kept_claim){
        .slot = *slot, .claim = own_claim(op, slot->lap), .ack = REMO_ACK_INIT};
}

/* Set the sentence of a push whose outcome is unknown. `reason` is the sentence of the failure. */
static int fail_unknown(struct remo__queue_op *op, const struct remo__queue_slot *slot, int rc,
                        const char *reason) {
    return remo__fail(
        remo__is_departure(rc) ? -EHOSTDOWN : -EIO,
        "cannot put an element into a slot at node %u of queue %s: %s; whether it was pushed is "
        "unknown, and if it was, it may be lost",
        slot->ref.node, remo_channel_name(op->queue->channel), reason);
}

static int fail_not_pushed(struct remo__queue_op *op, const struct remo__queue_slot *slot,
                           const char *reason) {
    return remo__fail(
        -EIO,
        "cannot put an element into a slot at node %u of queue %s: %s; it was not pushed: push it again",
        slot->ref.node, remo_channel_name(op->queue->channel), reason);
}

/* End a push whose claim has an unknown outcome: retract the claim, so that it does not block the queue. */
static int fail_claim(struct remo__queue_op *op, const struct remo__queue_slot *slot) {
    char reason[REMO__SENTENCE_MAX];
    struct remo__queue_kept_claim kept = make_kept_claim(op, slot);
    snprintf(reason, sizeof reason, "%s", remo_last_error());
    (void)remo__queue_retract_or_keep(op, &kept);
    return fail_not_pushed(op, slot, reason);
}

/* End a push that claimed its slot, and whose writes failed. Returns 1 if the element was pushed, else an
 * error. */
static int end_failed_push(struct remo__queue_op *op, const struct remo__queue_slot *slot,
                           struct remo_ack *ack) {
    char reason[REMO__SENTENCE_MAX];
    struct remo__queue_kept_claim kept = make_kept_claim(op, slot);
    snprintf(reason, sizeof reason, "%s", remo_last_error());
    remo_ack_join(&kept.ack, ack);
    int rc = remo__queue_retract_or_keep(op, &kept);
    if (rc == 1)
        return 1;
    return rc == 0 ? fail_not_pushed(op, slot, reason) : fail_unknown(op, slot, rc, reason);
}

/* Fill the claimed slot and move the word. Returns 1 if the element was pushed, 0 to continue with the next
 * ticket, or an error. */
static int push_claimed(struct remo__queue_op *op, const struct remo__queue_slot *slot, uint64_t word) {
    struct remo_ack ack = REMO_ACK_INIT;
    int rc = fill_slot(op, slot, &ack);
    if (rc == 1) {
        remo_ack_cancel(&ack);
        return 0;
    }
    if (remo__unlikely(rc != 0)) {
        rc = end_failed_push(op, slot, &ack);
        if (rc != 1)
            return rc;
    }
    raise_hint(op, slot->ticket + 1);
    remo__queue_advance(op, word, slot->ticket + 1);
    return 1;
}

int remo__queue_try_push(void *ctx) {
    struct remo__queue_op *op = ctx;
    uint64_t ticket, word, old;
    begin_try(op);
    begin_search(op, &word, &ticket);
    /* Each pass finds a ticket that another push claimed, or a failed owner. */
    for (uint32_t passes = 0; !is_outrun(op, passes); passes++) {
        struct remo__queue_slot slot;
        int rc = find_slot(op, ticket, &slot);
        if (rc != 0)
            return remo__queue_convert_timeout(op, rc);
        ticket = slot.ticket;
        rc = claim_slot(op, &slot, &old);
        if (rc == 1) {
            rc = push_claimed(op, &slot, word);
            if (rc != 0)
                return rc;
        } else if (rc == 0 && old >> REMO__SLOT_LAP_SHIFT < slot.lap) {
            raise_hint(op, ticket);
            return remo__queue_report_departure(op);
        } else if (rc == 0) {
            rc = continue_search(op, &word, &ticket);
            if (rc != 0)
                return rc;
            continue;
        } else if (!remo__is_departure(rc)) {
            return fail_claim(op, &slot);
        }
        ticket++;
    }
    return remo__queue_report_departure(op);
}

/* ---- pop ---- */

/* Copy an inline element to the caller's buffer, if it fits. Returns 1, 0 if the checksum does not match, or
 * an error. */
static int copy_inline(struct remo__queue_op *op, const struct remo__queue_slot *slot,
                       struct snapshot *snapshot) {
    size_t size = inline_bytes(op->size_bytes);
    int rc = 0;
    if (!is_inline(op->queue, op->queue->slot_bytes)) /* the header was read alone */
        rc = read_slot(slot, REMO__SLOT_HEAD_BYTES, snapshot->data, size);
    if (rc != 0)
        return rc;
    if (snapshot->checksum != checksum(snapshot->data, size, snapshot->meta))
        return 0;
    if (!op->is_too_large)
        copy_out(op->buffer, snapshot->data, op->size_bytes, mask_of(slot->ticket));
    return 1;
}

/* Copy the element of a claimed slot to the caller's buffer. `snapshot` is the slot's header, with the data
 * if all slots are inline. Returns 1 if the element was copied or is too large for the buffer, 0 if the slot
 * is not filled, or an error. An element that is not inline is read after its header, so it is complete. If
 * another pop frees the slot during the read, this pop cannot free it, and discards the copy. */
static int copy_element(struct remo__queue_op *op, const struct remo__queue_slot *slot,
                        struct snapshot *snapshot) {
    size_t size = snapshot->meta & ((1u << REMO__META_SIZE_BITS) - 1);
    if (snapshot->meta != make_meta(slot->ticket, size) || size > op->queue->slot_bytes)
        return 0;
    op->size_bytes = size;
    op->is_too_large = size > op->buffer_bytes;
    if (is_inline(op->queue, size))
        return copy_inline(op, slot, snapshot);
    int rc = op->is_too_large ? 0 : read_slot(slot, op->queue->data_at, op->buffer, size);
    return rc == 0 ? 1 : rc;
}

/* Read whether the slot's owner has cut off `node`, which claimed the slot. After the cut-off no write of
 * `node` reaches the slot. */
static int read_cut_off(struct remo__queue_op *op, const struct remo__queue_slot *slot, uint32_t node,
                        bool *ret_cut) {
    uint64_t word, offset = REMO__QUEUE_CUT_OFF + node / 64 * 8;
    struct remo__ref ref;
    int rc = remo__memory_find(op->queue->slots_memory, op->thread, slot->ref.node, offset, &ref);
    if (rc == 0)
        rc = remo__read(ref, &word, 8, NULL);
    if (rc == 0)
        *ret_cut = word >> node % 64 & 1;
    return rc;
}

/* A slot without the meta word of its ticket, or whose checksum does not match, is being filled, or was freed
 * and filled again during the read. The claim word, read again after the data, distinguishes the two cases.
 * *ret_same is true if the slot is being filled, so there is no element to pop yet. */
static int compare_claim(const struct remo__queue_slot *slot, uint64_t claim, bool *ret_same) {
    uint64_t now;
    int rc = read_slot(slot, 0, &now, sizeof now);
    if (rc == 0)
        *ret_same = now == claim;
    return rc;
}

enum verdict { VERDICT_FREE, VERDICT_TAKEN, VERDICT_FILLED, VERDICT_UNFILLED, VERDICT_ABANDONED };

/* Set `slot` to the ticket of `lap` for which the slot is claimed. A node has skipped that ticket. */
static void move_to_lap(const struct remo_queue *queue, struct remo__queue_slot *slot, uint64_t lap) {
    slot->ticket -= (slot->lap - lap) * queue->capacity;
    slot->lap = lap;
}

/* Read the slot of a ticket and judge it. VERDICT_FILLED: the element is in the caller's buffer if it fits.
 * If the slot is claimed for an earlier lap, `slot` changes to that lap. VERDICT_ABANDONED requires one more
 * read of the slot, after the read of the owner's record of cut-off nodes. The failed node may have filled
 * the slot just before the cut-off. */
static int probe_slot(struct remo__queue_op *op, struct remo__queue_slot *slot, uint64_t *ret_claim,
                      enum verdict *ret_verdict) {
    struct snapshot snapshot;
    bool cut = false;
    for (;;) {
        int rc = read_snapshot(op->queue, slot, &snapshot);
        if (rc != 0)
            return rc;
        uint64_t lap = snapshot.claim >> REMO__SLOT_LAP_SHIFT;
        *ret_claim = snapshot.claim;
        *ret_verdict = lap > slot->lap ? VERDICT_TAKEN : VERDICT_FREE;
        if (lap > slot->lap || !(snapshot.claim & REMO__SLOT_CLAIMED))
            return 0;
        if (lap < slot->lap)
            move_to_lap(op->queue, slot, lap);
        rc = copy_element(op, slot, &snapshot);
        if (rc == 0) {
            bool same = false;
            rc = compare_claim(slot, snapshot.claim, &same);
            if (rc == 0 && !same)
                continue; /* a pop freed the slot during the read, so the next pass finds a later lap */
        }
        if (rc < 0)
            return rc;
        uint32_t node = snapshot.claim & 0xffff;
        *ret_verdict = rc == 1 ? VERDICT_FILLED : cut ? VERDICT_ABANDONED : VERDICT_UNFILLED;
        if (rc == 1 || cut || node >= op->queue->node->size || !remo__queue_has_departed(op->queue, node))
            return 0;
        rc = read_cut_off(op, slot, node, &cut);
        if (rc != 0 || !cut)
            return rc;
    }
}

/* Move a free slot to the next lap if its ticket was skipped. Returns 0 if the queue is empty, or 1 if the
 * slot has changed and must be probed again. Tickets are skipped only after a failure or a leave, so the
 * home's word is not read before the first departure. */
static int free_skipped_slot(struct remo__queue_op *op, const struct remo__queue_slot *slot,
                             uint64_t claimed) {
    uint64_t tail = 0, old;
    if (atomic_load_explicit(&op->queue->departures, memory_order_acquire) == 0)
        return 0;
    int rc = read_word(op, REMO__QUEUE_TAIL, &tail);
    if (rc != 0 || tail >> 1 <= slot->ticket)
        return rc;
    rc = remo__compare_swap(slot->ref, claimed, remo__queue_free_claim(slot->lap + 1), &old, NULL);
    return rc == 0 || remo__is_departure(rc) ? 1 : rc;
}

/* Return whether no later element was written to the slot before the copy of its element was complete: no
 * push has claimed the slot since. The checksum of an inline element proves it too. */
static bool is_copy_whole(const struct remo__queue_op *op, const struct remo__queue_slot *slot,
                          uint64_t claimed) {
    uint64_t now;
    if (is_inline(op->queue, op->size_bytes))
        return true;
    return read_slot(slot, 0, &now, sizeof now) == 0
           && (now == claimed || now == remo__queue_free_claim(slot->lap + 1));
}

/* End a pop whose removal of the element has an unknown outcome: notify the pushes that wait for the slot. */
static int fail_removal(struct remo__queue_op *op, const struct remo__queue_slot *slot, uint64_t claimed) {
    char reason[REMO__SENTENCE_MAX];
    snprintf(reason, sizeof reason, "%s", remo_last_error());
    op->has_copy = is_copy_whole(op, slot, claimed);
    remo__queue_notify_waiters(op, REMO__QUEUE_HEAD);
    return remo__fail(
        -EIO,
        "cannot remove the first element of queue %s from its slot at node %u: %s; whether it was "
        "removed is unknown, and if it was, %s",
        remo_channel_name(op->queue->channel), slot->ref.node, reason,
        op->has_copy ? "no other pop returns it" : "it may be lost");
}

/* Move the hint and the word after a pop of `slot`, by a search that had reached `ticket`. If `slot` was of
 * an earlier lap, the next search begins at `ticket` again. */
static void finish_pop(struct remo__queue_op *op, const struct remo__queue_slot *slot, uint64_t ticket,
                       uint64_t word) {
    uint64_t next = slot->ticket == ticket ? ticket + 1 : ticket;
    raise_hint(op, next);
    remo__queue_advance(op, word, next);
}

int remo__queue_try_pop(void *ctx) {
    struct remo__queue_op *op = ctx;
    uint64_t ticket, word, claimed, old;
    begin_try(op);
    begin_search(op, &word, &ticket);
    /* Each pass finds a ticket that another pop freed, a failed owner, or an abandoned or skipped slot. */
    for (uint32_t passes = 0; !is_outrun(op, passes); passes++) {
        struct remo__queue_slot slot;
        enum verdict verdict = VERDICT_FREE;
        int rc = find_slot(op, ticket, &slot);
        if (rc != 0)
            return remo__queue_convert_timeout(op, rc);
        ticket = slot.ticket;
        rc = probe_slot(op, &slot, &claimed, &verdict);
        if (rc == 0 && verdict == VERDICT_FREE) {
            rc = free_skipped_slot(op, &slot, claimed);
            if (rc != 0 && rc != 1)
                return remo__queue_convert_timeout(op, rc);
            if (rc == 1)
                continue;
        }
        if (rc == 0 && (verdict == VERDICT_FREE || verdict == VERDICT_UNFILLED)) {
            raise_hint(op, ticket);
            return remo__queue_report_departure(op);
        }
        if (rc == 0 && verdict == VERDICT_FILLED && op->is_too_large)
            return -EMSGSIZE; /* for the first element: all earlier tickets have been freed */
        if (rc == 0 && verdict != VERDICT_TAKEN) {
            rc = remo__compare_swap(slot.ref, claimed, remo__queue_free_claim(slot.lap + 1), &old, NULL);
            if (rc != 0 && !remo__is_departure(rc) && verdict == VERDICT_FILLED)
                return fail_removal(op, &slot, claimed);
        }
        if (rc != 0 && !remo__is_departure(rc))
            return remo__queue_convert_timeout(op, rc);
        if (rc == 0 && verdict == VERDICT_FILLED && old == claimed) {
            finish_pop(op, &slot, ticket, word);
            return 1;
        }
        if (rc == 0 && verdict == VERDICT_TAKEN && slot.ticket != ticket)
            continue; /* another pop has removed the element of an earlier lap */
        if (rc == 0 && verdict == VERDICT_TAKEN) {
            rc = continue_search(op, &word, &ticket);
            if (rc != 0)
                return rc;
        } else if (rc != 0 || slot.ticket == ticket) {
            ticket++;
        }
    }
    return remo__queue_report_departure(op);
}
