/* collective.c - opens and closes a collective, and executes its rounds.
 * Invariant: each call is one round with one barrier, or with two in a large all-reduce.
 * The protocol is described in docs/internals/collective.md. */
#include "objects/collective/collective.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

#define BYTES_DEFAULT (1u << 20)
#define BYTES_MAX (1u << 30)

/* ---- open ---- */

/* Lay out the region, and return its size. */
static uint64_t lay_out(struct remo_collective *collective) {
    uint64_t bytes = remo__align_up(collective->bytes_max, 8);
    uint32_t parts = collective->count > 2 ? collective->count : 1;
    uint64_t part = parts > 1 ? REMO__COLLECTIVE_HEADER_BYTES + remo__align_up(bytes / parts + 8, 8) : 0;
    collective->piece_bytes = (uint32_t)remo__min(bytes, REMO__COLLECTIVE_PIECE_BYTES);
    collective->landing_bytes = (uint32_t)remo__align_up(
        REMO__COLLECTIVE_HEADER_BYTES + (uint64_t)collective->piece_bytes, REMO__CACHE_LINE);
    collective->contribution_bytes =
        remo__align_up(parts * (uint64_t)REMO__COLLECTIVE_HEADER_BYTES + bytes, REMO__CACHE_LINE);
    collective->result_at = 2 * collective->contribution_bytes;
    collective->landing_at = collective->result_at + remo__align_up(part, REMO__CACHE_LINE);
    return collective->landing_at + (uint64_t)REMO__COLLECTIVE_LANDINGS * collective->landing_bytes;
}

static void find_participants(struct remo_collective *collective) {
    const struct remo_nodeset *set = remo_channel_participants(collective->channel);
    for (uint32_t node = remo__nodeset_next(set, 0); node < REMO_NODES_MAX;
         node = remo__nodeset_next(set, node + 1)) {
        if (node == collective->node->rank)
            collective->index = collective->count;
        collective->nodes[collective->count++] = (uint16_t)node;
    }
}

static int open_objects(struct remo_collective *collective) {
    int rc = remo_region_open(collective->channel, "blocks", lay_out(collective), NULL, &collective->blocks);
    if (rc == 0)
        rc = remo_barrier_open(collective->channel, "barrier", NULL, &collective->barrier);
    if (rc != 0)
        return rc;
    collective->own = remo_region_local(collective->blocks);
    collective->sum = malloc(remo__align_up(collective->piece_bytes, 8));
    if (!collective->sum)
        return remo__fail(-ENOMEM, "no memory for the sums of a collective");
    return remo_channel_join(collective->channel);
}

int remo_collective_open(struct remo_channel *parent, const char *name,
                         const struct remo_collective_options *options,
                         struct remo_collective **ret_collective) {
    static const struct remo_collective_options all_default;
    const struct remo_collective_options *chosen = options ? options : &all_default;
    struct remo_channel_options channel = {.participants = chosen->participants};
    uint32_t bytes_max = chosen->bytes_max ? chosen->bytes_max : BYTES_DEFAULT;
    char type[64];
    if (!parent || !ret_collective)
        return remo__fail(-EINVAL, "cannot open a collective: parent or ret_collective is NULL");
    if (bytes_max > BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open a collective with bytes_max = %u: the maximum is %u",
                          bytes_max, BYTES_MAX);
    int rc = remo__require_coherence(parent, "a collective");
    if (rc != 0)
        return rc;
    struct remo_collective *collective = calloc(1, sizeof *collective);
    if (!collective)
        return remo__fail(-ENOMEM, "no memory for a collective");
    collective->bytes_max = bytes_max;
    snprintf(type, sizeof type, "collective(%u)", bytes_max);
    rc = remo_channel_open(parent, name, type, &channel, &collective->channel);
    if (rc == 0) {
        collective->node = remo_channel_node(collective->channel);
        find_participants(collective);
        rc = open_objects(collective);
    }
    if (rc != 0) {
        remo_collective_close(collective);
        return remo__fail_more(rc, "collective %s", name ? name : "");
    }
    *ret_collective = collective;
    return 0;
}

void remo_collective_close(struct remo_collective *collective) {
    if (!collective)
        return;
    for (uint32_t i = 0; i < REMO__COLLECTIVE_LANDINGS; i++)
        remo_ack_cancel(&collective->acks[i]);
    remo_barrier_close(collective->barrier);
    remo_region_close(collective->blocks); /* waits until no read of this node is in flight */
    remo_channel_close(collective->channel);
    free(collective->sum);
    free(collective);
}

struct remo_channel *remo_collective_channel(struct remo_collective *collective) {
    return collective ? collective->channel : NULL;
}

/* ---- a round ---- */

/* Pack the arguments that must be the same at every participant. `bytes` has at most 31 bits. */
static uint64_t pack(const struct remo__collective_call *call) {
    return (uint64_t)call->bytes << 32 | (uint64_t)call->root << 16 | (uint64_t)call->number << 12
           | (uint64_t)call->reduction << 8 | (uint64_t)call->kind << 4 | 1;
}

/* Return whether the call has a second step, which exchanges parts of the result. */
static bool has_parts(const struct remo_collective *collective, const struct remo__collective_call *call) {
    return call->kind == REMO__CALL_ALL_REDUCE && collective->count > 2
           && call->bytes > REMO__COLLECTIVE_WHOLE_BYTES;
}

static bool contributes(const struct remo_collective *collective, const struct remo__collective_call *call) {
    return call->kind != REMO__CALL_BROADCAST || call->root == collective->index;
}

static void store_header(const struct remo_collective *collective, char *header) {
    remo__store(header, collective->current);
    remo__store(header + 8, collective->round);
}

static void publish_parts(const struct remo_collective *collective, const struct remo__collective_call *call,
                          char *block) {
    for (uint32_t i = 0; i < collective->count; i++) {
        uint64_t begin = remo__part_begin(call->bytes, i, collective->count);
        char *part = block + remo__part_at(collective, call->bytes, i);
        store_header(collective, part);
        remo__copy_to(part + REMO__COLLECTIVE_HEADER_BYTES, (const char *)call->send + begin,
                      remo__part_bytes(call->bytes, i, collective->count));
    }
}

static void publish(struct remo_collective *collective, const struct remo__collective_call *call) {
    collective->round++;
    collective->current = pack(call);
    char *block = collective->own + remo__contribution_at(collective);
    if (has_parts(collective, call)) {
        publish_parts(collective, call, block);
    } else {
        store_header(collective, block);
        if (contributes(collective, call) && call->bytes > 0)
            remo__copy_to(block + REMO__COLLECTIVE_HEADER_BYTES, call->send, call->bytes);
    }
    collective->state = REMO__ROUND_PUBLISHED;
}

static bool is_final(int rc) {
    return remo__is_departure(rc) || rc == -EPROTO;
}

/* The round has failed at this node only. Abandon the barrier, because peers may wait for this node in it:
 * see "Failure" in docs/internals/collective.md. */
static int fail_finally(struct remo_collective *collective, int rc) {
    collective->ended = rc;
    remo__barrier_abandon(collective->barrier);
    return rc;
}

static int wait_barrier(struct remo_collective *collective, enum remo__round_state next,
                        uint64_t timeout_ns) {
    int rc = remo_barrier_wait(collective->barrier, timeout_ns);
    if (rc == 0)
        collective->state = next;
    else if (is_final(rc))
        collective->ended = rc; /* remo_barrier_wait has abandoned the barrier */
    return rc;
}

/* Execute a large all-reduce from the state ALL_PUBLISHED. */
static int exchange_parts(struct remo_collective *collective, const struct remo__collective_call *call,
                          uint64_t timeout_ns) {
    int rc = 0;
    if (collective->state == REMO__ROUND_ALL_PUBLISHED) {
        rc = remo__collective_read(collective, call, true);
        if (rc != 0)
            return rc;
        store_header(collective, collective->own + collective->result_at);
        collective->state = REMO__ROUND_REDUCED;
    }
    if (collective->state == REMO__ROUND_REDUCED)
        rc = wait_barrier(collective, REMO__ROUND_ALL_REDUCED, timeout_ns);
    return rc != 0 ? rc : remo__collective_read_parts(collective, call);
}

static int run_round(struct remo_collective *collective, const struct remo__collective_call *call,
                     uint64_t timeout_ns) {
    int rc = 0;
    if (collective->state == REMO__ROUND_IDLE)
        publish(collective, call);
    if (collective->state == REMO__ROUND_PUBLISHED)
        rc = wait_barrier(collective, REMO__ROUND_ALL_PUBLISHED, timeout_ns);
    if (rc != 0)
        return rc;
    rc = has_parts(collective, call) ? exchange_parts(collective, call, timeout_ns)
                                     : remo__collective_read(collective, call, false);
    if (rc == 0)
        collective->state = REMO__ROUND_IDLE;
    else if (is_final(rc) && collective->ended == 0)
        return fail_finally(collective, rc);
    return rc;
}

/* ---- calls ---- */

static bool reduces(const struct remo__collective_call *call) {
    return call->kind == REMO__CALL_REDUCE || call->kind == REMO__CALL_ALL_REDUCE;
}

static int check_numbers(const struct remo__collective_call *call) {
    if ((uint32_t)call->number > REMO_NUMBER_DOUBLE || (uint32_t)call->reduction > REMO_REDUCTION_XOR)
        return remo__fail(-EINVAL, "cannot reduce: number type %u or reduction %u is unknown",
                          (uint32_t)call->number, (uint32_t)call->reduction);
    if (call->number == REMO_NUMBER_DOUBLE && call->reduction >= REMO_REDUCTION_AND)
        return remo__fail(-EINVAL, "cannot reduce doubles by AND, OR or XOR: these need integers");
    return 0;
}

static int check_call(const struct remo_collective *collective, const struct remo__collective_call *call) {
    const char *name = remo_channel_name(collective->channel);
    bool receives = call->kind == REMO__CALL_ALL_REDUCE || call->kind == REMO__CALL_ALL_GATHER
                    || (call->root == collective->index) == (call->kind != REMO__CALL_BROADCAST);
    if (call->root >= collective->count)
        return remo__fail(-EINVAL, "cannot call %s: the root is no participant", name);
    if (call->bytes > collective->bytes_max)
        return remo__fail(-EMSGSIZE, "%zu bytes are too many for %s: it was opened with bytes_max = %u",
                          call->bytes, name, collective->bytes_max);
    if (call->bytes > 0 && ((!call->send && contributes(collective, call)) || (receives && !call->receive)))
        return remo__fail(-EINVAL, "cannot call %s: the data to send or the buffer to receive is NULL", name);
    return reduces(call) ? check_numbers(call) : 0;
}

static int call_collective(struct remo_collective *collective, const struct remo__collective_call *call,
                           uint64_t timeout_ns) {
    if (!collective)
        return remo__fail(-EINVAL, "cannot call a collective: it is NULL");
    int rc = check_call(collective, call);
    if (rc != 0)
        return rc;
    if (collective->ended != 0)
        return remo__fail(collective->ended, "%s has failed in an earlier call; close it",
                          remo_channel_name(collective->channel));
    if (collective->state != REMO__ROUND_IDLE && collective->current != pack(call))
        return remo__fail(-EINVAL, "the last call on %s is incomplete: repeat it with the same arguments",
                          remo_channel_name(collective->channel));
    return run_round(collective, call, timeout_ns);
}

/* Return the index of a rank among the participants; `count` if it is no participant. `collective` may be
 * NULL. */
static uint32_t index_of(const struct remo_collective *collective, uint32_t rank) {
    uint32_t index = 0;
    while (collective && index < collective->count && collective->nodes[index] != rank)
        index++;
    return index;
}

/* Return SIZE_MAX for too many numbers, so that the product never wraps to a valid size. */
static size_t bytes_of_numbers(size_t count) {
    return count <= SIZE_MAX / 8 ? count * 8 : SIZE_MAX;
}

int remo_collective_broadcast(struct remo_collective *collective, uint32_t root, void *data, size_t bytes,
                              uint64_t timeout_ns) {
    struct remo__collective_call call = {.kind = REMO__CALL_BROADCAST,
                                         .root = index_of(collective, root),
                                         .send = data,
                                         .receive = data,
                                         .bytes = bytes};
    return call_collective(collective, &call, timeout_ns);
}

int remo_collective_reduce(struct remo_collective *collective, uint32_t root, const void *send, void *receive,
                           size_t count, enum remo_number number, enum remo_reduction reduction,
                           uint64_t timeout_ns) {
    struct remo__collective_call call = {.kind = REMO__CALL_REDUCE,
                                         .root = index_of(collective, root),
                                         .number = number,
                                         .reduction = reduction,
                                         .send = send,
                                         .receive = receive,
                                         .bytes = bytes_of_numbers(count)};
    return call_collective(collective, &call, timeout_ns);
}

int remo_collective_all_reduce(struct remo_collective *collective, const void *send, void *receive,
                               size_t count, enum remo_number number, enum remo_reduction reduction,
                               uint64_t timeout_ns) {
    struct remo__collective_call call = {.kind = REMO__CALL_ALL_REDUCE,
                                         .number = number,
                                         .reduction = reduction,
                                         .send = send,
                                         .receive = receive,
                                         .bytes = bytes_of_numbers(count)};
    return call_collective(collective, &call, timeout_ns);
}

int remo_collective_gather(struct remo_collective *collective, uint32_t root, const void *send, void *receive,
                           size_t bytes, uint64_t timeout_ns) {
    struct remo__collective_call call = {.kind = REMO__CALL_GATHER,
                                         .root = index_of(collective, root),
                                         .send = send,
                                         .receive = receive,
                                         .bytes = bytes};
    return call_collective(collective, &call, timeout_ns);
}

int remo_collective_all_gather(struct remo_collective *collective, const void *send, void *receive,
                               size_t bytes, uint64_t timeout_ns) {
    struct remo__collective_call call = {
        .kind = REMO__CALL_ALL_GATHER, .send = send, .receive = receive, .bytes = bytes};
    return call_collective(collective, &call, timeout_ns);
}
