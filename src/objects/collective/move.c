/* move.c - the reads of a collective: pieces of the blocks of all sources, several in flight.
 * Invariant: pieces are used in the order of ranks, so every participant reduces to the same bits.
 * The protocol is described in docs/internals/collective.md. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "objects/collective/collective.h"

/* The bytes to read: from each source the header at `at`, and bytes_of_source after it. */
struct move {
    struct remo_collective *collective;
    const struct remo__collective_call *call;
    uint64_t at;               /* offset of the header in the region */
    uint32_t sources, first;   /* participants [first, first + sources) */
    bool is_part, is_exchange; /* the first step of a large all-reduce; its second step */
};

/* One read: bytes [offset, offset + bytes) of the data of a source. */
struct piece {
    uint32_t source; /* index of the participant */
    uint64_t offset; /* in the data to be moved */
    size_t bytes;
    bool exists, with_header;
};

static uint64_t bytes_of_source(const struct move *move, uint32_t source) {
    const struct remo_collective *collective = move->collective;
    uint32_t part = move->is_part ? collective->index : source;
    bool is_whole = !move->is_part && !move->is_exchange;
    return is_whole ? move->call->bytes : remo__part_bytes(move->call->bytes, part, collective->count);
}

/* Return piece `number`. Pieces are ordered by offset, and then by source. */
static struct piece piece_at(const struct move *move, uint64_t number) {
    const struct remo_collective *collective = move->collective;
    struct piece piece = {.source = move->first + (uint32_t)(number % move->sources),
                          .offset = number / move->sources * collective->piece_bytes};
    uint64_t all = bytes_of_source(move, piece.source);
    piece.with_header = piece.offset == 0;
    piece.exists = piece.offset < all || piece.with_header;
    piece.bytes = piece.offset < all ? remo__min(all - piece.offset, collective->piece_bytes) : 0;
    return piece;
}

static uint64_t count_pieces(const struct move *move) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < move->sources; i++)
        most = remo__max(most, bytes_of_source(move, move->first + i));
    uint64_t piece_bytes = move->collective->piece_bytes;
    return remo__max((most + piece_bytes - 1) / piece_bytes, 1) * move->sources;
}

/* ---- reading ---- */

static uint64_t landing_at(const struct remo_collective *collective, uint32_t landing) {
    return collective->landing_at + (uint64_t)landing * collective->landing_bytes;
}

/* Wait for reads of an earlier attempt, which write to the landings until they are complete. Their results
 * are not used. */
static int drain_reads(struct remo_collective *collective) {
    for (uint32_t i = 0; i < REMO__COLLECTIVE_LANDINGS; i++) {
        int rc = remo_ack_wait(&collective->acks[i], collective->node->op_timeout_ns);
        if (rc == -ETIMEDOUT && remo_ack_test(&collective->acks[i]) == -EINPROGRESS)
            return remo__fail(rc, "%s: a read of an earlier attempt is still in flight; call again",
                              remo_channel_name(collective->channel));
        collective->acks[i] = (struct remo_ack)REMO_ACK_INIT;
    }
    return 0;
}

static int start_read(const struct move *move, const struct piece *piece, uint32_t landing) {
    struct remo_collective *collective = move->collective;
    uint32_t header = piece->with_header ? REMO__COLLECTIVE_HEADER_BYTES : 0;
    if (!piece->exists || piece->source == collective->index)
        return 0;
    return remo_region_read(collective->blocks, collective->nodes[piece->source],
                            move->at + REMO__COLLECTIVE_HEADER_BYTES - header + piece->offset,
                            collective->own + landing_at(collective, landing) + REMO__COLLECTIVE_HEADER_BYTES
                                - header,
                            header + piece->bytes, &collective->acks[landing]);
}

static int finish_read(const struct move *move, const struct piece *piece, uint32_t landing) {
    struct remo_collective *collective = move->collective;
    int rc = remo_ack_wait(&collective->acks[landing], collective->node->op_timeout_ns);
    if (rc == 0)
        return 0;
    return remo__fail(rc, "%s: cannot read the data of node %u: %s; %s",
                      remo_channel_name(collective->channel), collective->nodes[piece->source],
                      remo_error_text(rc), remo__is_departure(rc) ? "close the object" : "call again");
}

/* ---- using the data ---- */

static int check_header(const struct move *move, const struct piece *piece, const char *header) {
    const struct remo_collective *collective = move->collective;
    if (remo__load(header) == collective->current && remo__load(header + 8) == collective->round)
        return 0;
    return remo__fail(-EPROTO,
                      "%s: node %u made a different call than this node; all participants must make the same "
                      "calls in the same order, with the same root, size, type and operation",
                      remo_channel_name(collective->channel), collective->nodes[piece->source]);
}

/* Reduce a piece of one source into the sum. The piece of the last source completes the sum. */
static void reduce_piece(const struct move *move, const struct piece *piece, const char *data) {
    struct remo_collective *collective = move->collective;
    const struct remo__collective_call *call = move->call;
    if (piece->source == 0)
        remo__copy_from(collective->sum, data, piece->bytes);
    else
        remo__collective_combine(collective->sum, data, piece->bytes, call->number, call->reduction);
    if (piece->source + 1 < collective->count)
        return;
    if (move->is_part)
        remo__copy_to(collective->own + collective->result_at + REMO__COLLECTIVE_HEADER_BYTES + piece->offset,
                      collective->sum, piece->bytes);
    else
        memcpy(call->receive + piece->offset, collective->sum, piece->bytes);
}

static int take_piece(const struct move *move, const struct piece *piece, uint32_t landing) {
    struct remo_collective *collective = move->collective;
    const struct remo__collective_call *call = move->call;
    bool own = piece->source == collective->index;
    const char *header = collective->own + (own ? move->at + piece->offset : landing_at(collective, landing));
    const char *data = header + REMO__COLLECTIVE_HEADER_BYTES;
    if (piece->with_header && !own) {
        int rc = check_header(move, piece, header);
        if (rc != 0)
            return rc;
    }
    if (piece->bytes == 0)
        return 0;
    uint64_t to = piece->offset;
    if (move->is_exchange)
        to += remo__part_begin(call->bytes, piece->source, collective->count);
    else if (call->kind == REMO__CALL_GATHER || call->kind == REMO__CALL_ALL_GATHER)
        to += call->bytes * piece->source;
    else if (call->kind != REMO__CALL_BROADCAST) {
        reduce_piece(move, piece, data);
        return 0;
    }
    remo__copy_from(call->receive + to, data, piece->bytes);
    return 0;
}

static int move_all(const struct move *move) {
    uint64_t count = count_pieces(move);
    int rc = drain_reads(move->collective);
    for (uint64_t first = 0; first < count && rc == 0; first += REMO__COLLECTIVE_LANDINGS) {
        uint32_t batch = (uint32_t)remo__min(count - first, REMO__COLLECTIVE_LANDINGS);
        struct piece pieces[REMO__COLLECTIVE_LANDINGS];
        for (uint32_t i = 0; i < batch && rc == 0; i++) {
            pieces[i] = piece_at(move, first + i);
            rc = start_read(move, &pieces[i], i);
        }
        for (uint32_t i = 0; i < batch && rc == 0; i++) {
            rc = pieces[i].exists ? finish_read(move, &pieces[i], i) : 0;
            if (rc == 0 && pieces[i].exists)
                rc = take_piece(move, &pieces[i], i);
        }
    }
    return rc;
}

int remo__collective_read(struct remo_collective *collective, const struct remo__collective_call *call,
                          bool is_part) {
    bool needs_root = call->kind == REMO__CALL_BROADCAST;
    bool all_need = call->kind == REMO__CALL_ALL_REDUCE || call->kind == REMO__CALL_ALL_GATHER;
    bool is_root = call->root == collective->index;
    struct move move = {.collective = collective,
                        .call = call,
                        .at = remo__contribution_at(collective)
                              + (is_part ? remo__part_at(collective, call->bytes, collective->index) : 0),
                        .sources = needs_root ? 1 : collective->count,
                        .first = needs_root ? call->root : 0,
                        .is_part = is_part};
    return all_need || is_root != needs_root ? move_all(&move) : 0;
}

int remo__collective_read_parts(struct remo_collective *collective,
                                const struct remo__collective_call *call) {
    struct move move = {.collective = collective,
                        .call = call,
                        .at = collective->result_at,
                        .sources = collective->count,
                        .is_exchange = true};
    return move_all(&move);
}
