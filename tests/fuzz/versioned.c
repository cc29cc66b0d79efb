/* versioned.c - fuzzes the verdict on a copy of an extent (extent.c), and the direct read of an extent: any
 * bytes, and valid copies with changes. Invariants: only the copy and the value are accessed; each verdict is
 * defined; with seals, an accepted state is one that the owner has written; a direct read copies the base
 * with the records. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "objects/versioned/versioned.h"

#define SEEDS 6u
#define RECORDS 4u
#define OBJECT 1u
#define GENERATION 5u
#define BASE_VERSION 2u

static struct remo__versioned_shape shape_of(uint8_t which) {
    /* The bases differ in length, and so in their seals. */
    static const uint32_t sizes[] = {1, 13, 24, 100};
    uint32_t object_bytes = sizes[which % 4];
    struct remo__versioned_shape shape = {
        .objects = 2,
        .extents = 4,
        .object_bytes = object_bytes,
        .base_bytes = (uint32_t)remo__align_up(object_bytes, 8),
        .log_words = RECORDS * remo__versioned_record_words(object_bytes),
        .part_bits = remo__versioned_part_bits(object_bytes),
    };
    shape.extent_bytes = remo__align_up(sizeof(struct remo__versioned_header) + shape.base_bytes
                                            + UINT64_C(8) * shape.log_words,
                                        REMO__CACHE_LINE);
    return shape;
}

/* ---- the states that the owner has written ---- */

/* Make record i at word `at`, and return the word after it. Records 1 and 2 are of one commit. */
static uint32_t add_record(const struct remo__versioned_shape *shape, struct remo__versioned_image *image,
                           uint32_t i, uint32_t at, bool has_seals) {
    static const uint64_t versions[RECORDS] = {3, 5, 5, 9};
    uint32_t offset = shape->object_bytes / 3 * (i % 3), size = shape->object_bytes - offset;
    uint64_t *place = image->records + at;
    struct remo__versioned_record record = {.version = versions[i], .place = (uint64_t)offset << 32 | size};
    if (i != 1)
        record.place |= REMO__VERSIONED_ENDS;
    memset(place + REMO__VERSIONED_RECORD_BYTES / 8, (int)(0x20 + i), size);
    if (has_seals)
        record.seal = remo__versioned_seal_record(GENERATION, at, &record,
                                                  place + REMO__VERSIONED_RECORD_BYTES / 8, size);
    memcpy(place, &record, sizeof record);
    return at + remo__versioned_record_words(size);
}

/* Make an extent with the first `records` records. */
static struct remo__versioned_image *make_extent(const struct remo__versioned_shape *shape, uint32_t records,
                                                 uint64_t flags, bool has_seals) {
    struct remo__versioned_image *image = calloc(1, shape->extent_bytes);
    uint32_t used = 0;
    uint32_t zeros = shape->object_bytes / 3; /* at the end of the base */
    memset(remo__versioned_base(shape, image), 0x11, shape->object_bytes - zeros);
    image->header =
        (struct remo__versioned_header){.base_version = BASE_VERSION,
                                        .previous = 3ull << 24 | 2,
                                        .object = OBJECT,
                                        .used = (uint32_t)remo__align_up(shape->object_bytes - zeros, 8) / 8};
    for (uint32_t i = 0; i < records; i++)
        used = add_record(shape, image, i, used, has_seals);
    image->header.head = remo__versioned_head(GENERATION, used, flags);
    if (has_seals)
        image->header.seal = remo__versioned_seal_base(shape, image);
    return image;
}

/* Set `value` to the base and the first `words` words of records. */
static void apply(const struct remo__versioned_shape *shape, struct remo__versioned_image *image,
                  uint32_t words, unsigned char *value) {
    memcpy(value, remo__versioned_base(shape, image), shape->object_bytes);
    remo__versioned_overlay(image->records, words, 0, value, shape->object_bytes);
}

/* Return whether the value is that of the state that ends with `version`. */
static bool is_written(const struct remo__versioned_shape *shape, uint64_t version,
                       const unsigned char *value) {
    static const struct {
        uint64_t version;
        uint32_t records;
    } states[] = {{BASE_VERSION, 0}, {3, 1}, {5, 3}, {9, 4}};
    bool is_equal = false;
    for (uint32_t i = 0; i < 4; i++) {
        if (states[i].version != version)
            continue;
        struct remo__versioned_image *image = make_extent(shape, states[i].records, 0, true);
        unsigned char *expected = malloc(shape->object_bytes);
        apply(shape, image, remo__versioned_used(image->header.head), expected);
        is_equal = memcmp(expected, value, shape->object_bytes) == 0;
        free(expected);
        free(image);
    }
    return is_equal;
}

/* ---- inputs: {shape; seals; version; the copy} ---- */

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    if (n >= 2 * SEEDS)
        return 0;
    struct remo__versioned_shape shape = shape_of((uint8_t)n);
    bool has_seals = n < SEEDS;
    struct remo__versioned_image *image =
        make_extent(&shape, n % (RECORDS + 1), n % 3 == 0 ? REMO__VERSIONED_PENDING : 0, has_seals);
    if (n % 2) { /* the lead of all records, or of more */
        image->header.lead =
            remo__versioned_lead("\1\2\3\4\5", remo__versioned_used(image->header.head) + n / 2 % 2);
        image->header.hull = remo__versioned_hull(n % 4, shape.object_bytes / 2);
    }
    ret_data[0] = (uint8_t)n;
    ret_data[1] = has_seals;
    ret_data[2] = n % 2 ? 0xff : 4;
    memcpy(ret_data + 3, image, shape.extent_bytes);
    free(image);
    return 3 + shape.extent_bytes;
}

/* Copy the state in parts, which must be the same as those of `value`. */
static void use_view(const struct remo__versioned_shape *shape, struct remo__versioned_image *image,
                     const struct remo__versioned_state *state, const unsigned char *value) {
    uint64_t copied = 0;
    struct remo_versioned_view view = {.shape = shape,
                                       .base = (const char *)remo__versioned_base(shape, image),
                                       .records = image->records,
                                       .words = state->words,
                                       .parts = state->parts,
                                       .copied = &copied};
    for (uint32_t bytes = 1; bytes <= shape->object_bytes; bytes += bytes / 2 + 1) {
        unsigned char *part = malloc(bytes);
        for (uint32_t offset = 0; offset <= shape->object_bytes - bytes; offset += bytes / 3 + 1) {
            remo_versioned_view_copy(&view, offset, part, bytes);
            assert(memcmp(part, value + offset, bytes) == 0);
        }
        free(part);
    }
}

/* Apply the state to a value of the exact size. */
static void use_state(const struct remo__versioned_shape *shape, struct remo__versioned_image *image,
                      const struct remo__versioned_state *state, uint64_t version, bool has_seals) {
    unsigned char *value = malloc(shape->object_bytes);
    assert(state->words <= shape->log_words);
    assert(state->words <= remo__versioned_used(image->header.head));
    if (has_seals) /* as a get does, which may have copied no more */
        remo__versioned_fill(shape, image);
    apply(shape, image, state->words, value);
    use_view(shape, image, state, value);
    if (has_seals)
        assert(state->version <= version && is_written(shape, state->version, value));
    free(value);
}

/* Copy parts of the object by a direct read. They are those of the base with all records. */
static void read_directly(const struct remo__versioned_shape *shape, struct remo__versioned_image *image) {
    struct remo__versioned_direct direct = {
        .shape = shape, .extent = (const char *)image, .generation = GENERATION};
    struct remo__versioned_patch patch;
    char lead[REMO__VERSIONED_LEAD_BYTES];
    if (!remo__versioned_direct_open(&direct))
        return;
    struct remo__versioned_walk walk = remo__versioned_direct_walk(&direct);
    while (walk.left > 0) {
        if (!remo__versioned_direct_next(&walk, &patch))
            return;
    }
    unsigned char *value = malloc(shape->object_bytes), *part = malloc(shape->object_bytes);
    bool is_counted = 8 * remo__versioned_lead_words(image->header.lead) <= direct.record_bytes;
    assert(remo__versioned_direct_lead(&direct, lead) == is_counted);
    remo__versioned_direct_copy(&direct, 0, part, shape->object_bytes); /* with any hull */
    direct.low = 0;
    direct.high = shape->object_bytes;
    apply(shape, image, direct.record_bytes / 8, value);
    for (uint32_t offset = 0; offset < shape->object_bytes; offset += 1 + offset / 3)
        for (uint32_t size = 1; size <= shape->object_bytes - offset; size += 1 + size / 2) {
            remo__versioned_direct_copy(&direct, offset, part, size);
            assert(memcmp(part, value + offset, size) == 0);
        }
    assert(remo__versioned_direct_end(&direct, 0)
           == (remo__versioned_generation(image->header.head) == GENERATION));
    free(part);
    free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 3)
        return 0;
    struct remo__versioned_shape shape = shape_of(data[0]);
    bool has_seals = data[1] % 2 == 1;
    uint64_t version = data[2] == 0xff ? REMO_VERSIONED_NEWEST : data[2];
    /* The exact size, so that a sanitizer detects accesses beyond the end. */
    struct remo__versioned_image *image = calloc(1, shape.extent_bytes);
    struct remo__versioned_state state;
    memcpy(image, data + 3, remo__min(bytes - 3, shape.extent_bytes));
    memset(&state, 0xff, sizeof state);
    read_directly(&shape, image);
    switch (remo__versioned_judge(&shape, image, OBJECT, GENERATION, version, has_seals, &state)) {
    case REMO__VERSIONED_STATE: use_state(&shape, image, &state, version, has_seals); break;
    case REMO__VERSIONED_LATER: assert(image->header.base_version > version); break;
    case REMO__VERSIONED_REUSED: assert(remo__versioned_generation(image->header.head) != GENERATION); break;
    case REMO__VERSIONED_DAMAGED: break;
    default: assert(!"a verdict");
    }
    free(image);
    return 0;
}
