/* message.c - encodes operations as requests, and decodes answers as results.
 *
 * Answers arrive in the order of the requests, so the oldest fragment in flight belongs to the next result.
 * An operation completes when its last fragment is answered. ofi/wire.h describes the messages. */
#include "base/clock.h"
#include "base/error.h"
#include "fabric/ofi/ofi.h"

#define CHECK_BYTES 8u

/* A request under construction. */
struct draft {
    uint8_t *out;
    size_t room, answer_room; /* left, in the request and in its answer */
    uint32_t count;
    bool is_unawaited; /* the target may withhold the answer */
};

static bool is_atomic(const struct remo__op *op) {
    return op->kind == REMO__OP_FETCH_ADD || op->kind == REMO__OP_COMPARE_SWAP;
}

/* The size of an operation's next fragment. Fragments meet at multiples of 8, so no word is split. */
static uint64_t fragment_bytes(const struct ofi_slot *slot) {
    uint64_t left = slot->op.size_bytes - slot->sent_bytes;
    if (left <= REMO__OFI_FRAGMENT_BYTES)
        return left;
    return REMO__OFI_FRAGMENT_BYTES - (slot->op.remote + slot->sent_bytes) % 8;
}

static void put(struct draft *draft, const void *from, size_t bytes) {
    if (bytes > 0)
        memcpy(draft->out, from, bytes);
    draft->out += bytes;
    draft->room -= bytes;
}

static void put_word(struct draft *draft, uint64_t word) {
    put(draft, &word, sizeof word);
}

/* The room that a fragment needs in the request and in the answer, besides its record. */
static void fragment_needs(const struct remo__op *op, uint64_t bytes, bool last, size_t *ret_request,
                           size_t *ret_answer) {
    *ret_request = *ret_answer = 0;
    if (op->kind == REMO__OP_READ)
        *ret_answer = remo__ofi_padded(bytes);
    else if (op->kind == REMO__OP_WRITE)
        *ret_request = remo__ofi_padded(bytes) + (last && (op->flags & REMO__OP_IMM) ? 8 : 0);
    else
        *ret_answer = 8, *ret_request = op->kind == REMO__OP_COMPARE_SWAP ? 16 : 8;
}

static void fragment_put(struct draft *draft, struct ofi_slot *slot, uint64_t bytes, bool last) {
    static const uint64_t zeros;
    const struct remo__op *op = &slot->op;
    struct remo__ofi_record record = {
        .offset = op->remote + slot->sent_bytes,
        .size_bytes = (uint32_t)bytes,
        .kind = op->kind,
        .flags = last ? (uint8_t)(op->flags & (REMO__OP_NOTIFY | REMO__OP_IMM)) : 0,
    };
    if (draft->is_unawaited)
        record.flags |= REMO__OP_UNAWAITED;
    put(draft, &record, sizeof record);
    if (op->kind == REMO__OP_WRITE) {
        put(draft, (const char *)op->local + slot->sent_bytes, bytes);
        put(draft, &zeros, remo__ofi_padded(bytes) - bytes);
        if (record.flags & REMO__OP_IMM)
            put_word(draft, op->imm);
    } else if (is_atomic(op)) {
        if (op->kind == REMO__OP_COMPARE_SWAP)
            put_word(draft, op->compare);
        put_word(draft, op->operand);
    }
}

/* Add the next fragment of the first queued operation. False if it does not fit. */
static bool draft_add(struct ofi_link *link, struct draft *draft) {
    uint16_t index = link->queue.head;
    struct ofi_slot *slot = &link->endpoint->slots[index];
    uint64_t bytes = fragment_bytes(slot);
    bool last = slot->sent_bytes + bytes == slot->op.size_bytes;
    size_t request, answer;
    fragment_needs(&slot->op, bytes, last, &request, &answer);
    request += sizeof(struct remo__ofi_record);
    answer += sizeof(struct remo__ofi_failure); /* the record may fail */
    if (request > draft->room || answer > draft->answer_room)
        return false;
    draft->answer_room -= answer;
    fragment_put(draft, slot, bytes, last);
    draft->count++;
    link->flights[link->flight_tail++ % REMO__OFI_FLIGHTS_MAX] =
        (struct ofi_flight){.size_bytes = (uint32_t)bytes, .slot = index};
    slot->sent_bytes += bytes;
    link->queue_bytes -= bytes + (last ? sizeof(struct remo__ofi_record) : 0);
    slot->unanswered++;
    slot->all_sent = last;
    if (last)
        remo__ofi_slot_unqueue(link);
    return true;
}

/* Return whether the target may withhold the answer to the next request. Otherwise the answer comes at once,
 * and releases the slots of all requests: of many operations, or when no other slot is free. */
static bool is_unawaited(const struct ofi_link *link) {
    const struct ofi_slot *slot = &link->endpoint->slots[link->queue.head];
    return link->queue.count == 1 && (slot->op.flags & REMO__OP_UNAWAITED)
           && slot->op.size_bytes <= REMO__OFI_FRAGMENT_BYTES
           && link->next - link->answered < REMO__OFI_WINDOW;
}

size_t remo__ofi_request_make(struct ofi_link *link, uint8_t *message, uint32_t seq) {
    size_t frame = sizeof(struct remo__ofi_head) + CHECK_BYTES;
    struct draft draft = {
        .out = message + sizeof(struct remo__ofi_head),
        .room = REMO__OFI_MESSAGE_BYTES - frame,
        .answer_room = REMO__OFI_MESSAGE_BYTES - frame,
        .is_unawaited = is_unawaited(link),
    };
    while (link->queue.count > 0 && draft_add(link, &draft))
        ;
    if (draft.count == 0)
        return 0;
    link->records[seq % REMO__OFI_WINDOW] = (uint16_t)draft.count;
    link->unawaited_ns[seq % REMO__OFI_WINDOW] = draft.is_unawaited ? remo__now_ns() : 0;
    return remo__ofi_seal(message, (size_t)(draft.out - message), seq, draft.count, link->seed);
}

/* ---- answers ---- */

/* Take the result of one record from `at`, of `left` bytes. Returns its size, or SIZE_MAX. */
static size_t result_take(struct ofi_link *link, const struct ofi_flight *flight, const uint8_t *at,
                          size_t left) {
    struct ofi_slot *slot = &link->endpoint->slots[flight->slot];
    size_t bytes = 0;
    if (slot->op.kind == REMO__OP_READ)
        bytes = flight->size_bytes;
    else if (is_atomic(&slot->op))
        bytes = 8;
    if (remo__ofi_padded(bytes) > left)
        return SIZE_MAX;
    /* Fragments are answered in order, so this one begins at the end of the answered ones. */
    uint64_t answered = 0;
    if (slot->op.kind == REMO__OP_READ)
        answered = slot->op.size_bytes - slot->left_bytes;
    if (bytes > 0)
        memcpy((char *)slot->op.local + answered, at, bytes);
    slot->left_bytes -= flight->size_bytes;
    return remo__ofi_padded(bytes);
}

static void flight_land(struct ofi_link *link, const struct ofi_flight *flight) {
    struct ofi_slot *slot = &link->endpoint->slots[flight->slot];
    slot->unanswered--;
    if (slot->all_sent && slot->unanswered == 0)
        remo__ofi_slot_finish(link->endpoint, flight->slot, slot->status);
}

/* Take the failures before the results, so that no operation completes before its status is known. */
static bool failures_take(struct ofi_link *link, const uint8_t *failures, uint32_t count, uint32_t records) {
    for (uint32_t i = 0; i < count; i++) {
        struct remo__ofi_failure failure;
        memcpy(&failure, failures + i * sizeof failure, sizeof failure);
        if (failure.record >= records || failure.status >= 0)
            return false;
        struct ofi_flight *flight =
            &link->flights[(link->flight_head + failure.record) % REMO__OFI_FLIGHTS_MAX];
        struct ofi_slot *slot = &link->endpoint->slots[flight->slot];
        if (slot->status == 0)
            slot->status = failure.status;
    }
    return true;
}

/* The number of records of all requests that an answer answers. */
static uint32_t records_of(const struct ofi_link *link, uint32_t last) {
    uint32_t count = 0;
    for (uint32_t seq = link->answered; seq != last;)
        count += link->records[++seq % REMO__OFI_WINDOW];
    return count;
}

bool remo__ofi_answer_take(struct ofi_link *link, const uint8_t *message, size_t bytes,
                           const struct remo__ofi_head *head) {
    uint32_t records = records_of(link, head->seq);
    size_t failure_bytes = head->count * sizeof(struct remo__ofi_failure);
    if (head->count > records || bytes - sizeof *head < failure_bytes)
        return false;
    const uint8_t *at = message + sizeof *head;
    size_t left = bytes - sizeof *head - failure_bytes;
    if (!failures_take(link, at + left, head->count, records))
        return false;
    for (uint32_t i = 0; i < records; i++) {
        struct ofi_flight flight = link->flights[link->flight_head % REMO__OFI_FLIGHTS_MAX];
        size_t taken = result_take(link, &flight, at, left);
        if (taken == SIZE_MAX)
            return false;
        at += taken;
        left -= taken;
        link->flight_head++;
        flight_land(link, &flight);
    }
    return left == 0;
}
