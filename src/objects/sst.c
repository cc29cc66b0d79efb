/* sst.c - implements remo/sst.h: the row of a node is a cell (objects/cell.h); all rows are in one region.
 * Invariant: a row has one writer, its node, which pushes it to the copies of all other participants. */
#include "objects/sst.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects/cell.h"

#define NO_ROW UINT64_MAX

struct remo_sst {
    struct remo_region *region;
    struct remo__cell own;
    uint64_t rows[]; /* [nodes] offset of the row of each node, or NO_ROW */
};

/* Place the rows in the order of ranks. Return the size of the table. */
static uint64_t place_rows(struct remo_sst *sst, const struct remo__cell_shape *shape, uint32_t nodes,
                           const struct remo_nodeset *participants) {
    uint64_t bytes = 0;
    for (uint32_t node = 0; node < nodes; node++) {
        sst->rows[node] = NO_ROW;
        if (!remo_nodeset_has(participants, node))
            continue;
        sst->rows[node] = bytes;
        bytes += shape->bytes;
    }
    return bytes;
}

static int open_rows(struct remo_sst *sst, struct remo_channel *parent, const char *name, size_t row_bytes,
                     const struct remo_channel_options *channel) {
    struct remo__cell_shape shape = remo__cell_shape(row_bytes, true);
    uint64_t bytes = place_rows(sst, &shape, parent->node->size, &channel->participants);
    char type[REMO__TYPE_BYTES_MAX + 1];
    snprintf(type, sizeof type, "sst(rows of %zu bytes)", row_bytes);
    int rc = remo__region_open(parent, name, type, "rows", bytes, channel, NULL, &sst->region);
    if (rc == 0)
        rc = remo__cell_open(&sst->own, sst->region, &shape, sst->rows[parent->node->rank]);
    return rc == 0 ? remo_channel_join(sst->region->channel) : rc;
}

int remo_sst_open(struct remo_channel *parent, const char *name, size_t row_bytes,
                  const struct remo_sst_options *options, struct remo_sst **ret_sst) {
    REMO__REQUIRE(ret_sst);
    struct remo_channel_options channel = {0};
    if (row_bytes == 0 || row_bytes > REMO_SST_ROW_BYTES_MAX)
        return remo__fail(-EINVAL, "cannot open an SST with rows of %zu bytes: the size must be from 1 to %u",
                          row_bytes, REMO_SST_ROW_BYTES_MAX);
    int rc =
        remo__select_participants(parent, options ? &options->participants : NULL, &channel.participants);
    if (rc != 0)
        return rc;
    struct remo_sst *sst = calloc(1, sizeof *sst + parent->node->size * sizeof sst->rows[0]);
    if (!sst)
        return remo__fail(-ENOMEM, "no memory for an SST");
    rc = open_rows(sst, parent, name, row_bytes, &channel);
    if (rc != 0) {
        remo_sst_close(sst);
        return rc;
    }
    *ret_sst = sst;
    return 0;
}

void remo_sst_close(struct remo_sst *sst) {
    if (!sst)
        return;
    remo_region_close(sst->region);
    remo__cell_close(&sst->own);
    free(sst);
}

struct remo_channel *remo_sst_channel(struct remo_sst *sst) {
    return sst ? remo_region_channel(sst->region) : NULL;
}

int remo_sst_store(struct remo_sst *sst, const void *row) {
    REMO__REQUIRE(sst);
    if (!row)
        return remo__fail(-EINVAL, "cannot store: the row is NULL");
    remo__cell_store(&sst->own, row);
    return 0;
}

/* Rows larger than a word are verified on the stack, so that a torn row never reaches the caller's memory. */
static int load_large(struct remo_sst *sst, const char *row, void *ret_row) {
    char scratch[REMO_SST_ROW_BYTES_MAX];
    uint64_t sequence;
    if (remo__cell_load(&sst->own.shape, row, scratch, &sequence) != 0)
        return remo__fail_static(-EAGAIN, "the row is being written faster than it can be read; try again");
    memcpy(ret_row, scratch, sst->own.shape.value_bytes);
    return 0;
}

int remo_sst_load(struct remo_sst *sst, uint32_t node, void *ret_row) {
    REMO__REQUIRE(sst);
    const struct remo_region *region = sst->region;
    if (remo__unlikely(node >= region->nodes || sst->rows[node] == NO_ROW || !ret_row))
        return remo__fail(-EINVAL, "cannot load: node %u has no row in %s, or ret_row is NULL", node,
                          remo_channel_name(region->channel));
    const char *row = region->memory->own + sst->rows[node];
    if (sst->own.shape.slot_bytes != 0)
        return load_large(sst, row, ret_row);
    remo__invalidate(row, sizeof(uint64_t));
    uint64_t word = remo__load(row);
    if (sst->own.shape.value_bytes == sizeof word)
        memcpy(ret_row, &word, sizeof word);
    else
        memcpy(ret_row, &word, sst->own.shape.value_bytes);
    return 0;
}

int remo_sst_push(struct remo_sst *sst, uint32_t node, struct remo_ack *ack) {
    REMO__REQUIRE(sst);
    return remo__cell_push(&sst->own, node, ack);
}

int remo_sst_push_all(struct remo_sst *sst, struct remo_ack *ack) {
    REMO__REQUIRE(sst);
    return remo__cell_push_all(&sst->own, ack);
}

int remo__sst_read(struct remo_sst *sst, uint32_t node, uint64_t *ret_row) {
    return remo_region_read(sst->region, node, sst->rows[node], ret_row, sizeof *ret_row, NULL);
}

uint32_t remo_sst_next(const struct remo_sst *sst, uint32_t from) {
    for (uint32_t node = from; sst && node < sst->region->nodes; node++)
        if (sst->rows[node] != NO_ROW)
            return node;
    return REMO_NODES_MAX;
}

struct sst_wait {
    struct remo_sst *sst;
    int (*ready)(void *ctx, struct remo_sst *sst);
    void *ctx;
};

static int is_ready(void *ctx) {
    const struct sst_wait *wait = ctx;
    return wait->ready(wait->ctx, wait->sst);
}

int remo_sst_wait(struct remo_sst *sst, int (*ready)(void *ctx, struct remo_sst *sst), void *ctx,
                  uint64_t timeout_ns) {
    REMO__REQUIRE(sst);
    struct sst_wait wait = {.sst = sst, .ready = ready, .ctx = ctx};
    if (!ready)
        return remo__fail(-EINVAL, "cannot wait: ready is NULL");
    return remo__wait_polling(sst->region->node, is_ready, &wait, remo__deadline(timeout_ns));
}
