/* test_versioned.c - versioned objects between real nodes: initial zeros, commits of one and of many ranges,
 * moves, visits of parts. Each node computes what the owner commits. */
#include "base/bits.h"
#include "base/random.h"

#include "versioned_common.h"

#define RANGES_MAX 24u /* of a commit */

/* ---- before the first commit ---- */

static int read_zeros(struct remo_versioned *versioned, uint32_t owner, uint32_t objects, size_t bytes) {
    struct remo_versioned_item items[16];
    unsigned char *values = malloc(objects * bytes), *zeros = calloc(objects, bytes);
    uint64_t version = 99;
    CHECK(values && zeros && objects <= 16);
    for (uint32_t i = 0; i < objects; i++) {
        memset(values, 1, bytes);
        CHECK_OK(remo_versioned_read(versioned, owner, i, values, &version));
        CHECK_EQUAL(version, 0);
        CHECK(memcmp(values, zeros, bytes) == 0);
        items[i] = (struct remo_versioned_item){.object = i, .value = values + i * bytes, .version = 99};
    }
    memset(values, 1, objects * bytes);
    version = 99;
    CHECK_OK(remo_versioned_read_many(versioned, owner, items, objects, &version));
    CHECK_EQUAL(version, 0);
    CHECK(memcmp(values, zeros, objects * bytes) == 0);
    for (uint32_t i = 0; i < objects; i++)
        CHECK_EQUAL(items[i].version, 0);
    CHECK_OK(remo_versioned_version(versioned, owner, &version));
    CHECK_EQUAL(version, 0);
    CHECK_OK(remo_versioned_read_at(versioned, owner, objects - 1, 0, values, &version));
    CHECK_EQUAL(version, 0);
    CHECK(memcmp(values, zeros, bytes) == 0);
    free(values);
    free(zeros);
    return 0;
}

static int zeros(struct remo_node *node, void *ctx) {
    static const uint32_t sizes[] = {1, 8, 1000, 1024};
    (void)ctx;
    for (uint32_t i = 0; i < 4; i++) {
        const struct remo_versioned_options options = {.objects = 3, .object_bytes = sizes[i], .retain = 1};
        struct remo_versioned *versioned;
        CHECK(open_versioned(node, &options, &versioned) == 0);
        for (uint32_t owner = 0; owner < remo_node_size(node); owner++)
            CHECK(read_zeros(versioned, owner, 3, sizes[i]) == 0);
        CHECK(close_versioned(versioned) == 0);
    }
    return 0;
}

/* ---- commits: each node computes what the owner commits ---- */

struct model {
    struct remo__random dice;
    uint32_t objects, object_bytes, ranges_max; /* ranges_max: of an object in a commit */
    unsigned char *values;                      /* [objects * object_bytes] */
    uint64_t *versions, version;
    struct remo_versioned_change changes[RANGES_MAX];
    unsigned char *data; /* of the changes */
    uint32_t count;
};

static int open_model(struct model *model, const struct remo_versioned_options *options,
                      uint32_t ranges_max) {
    *model = (struct model){
        .objects = options->objects, .object_bytes = options->object_bytes, .ranges_max = ranges_max};
    remo__random_seed(&model->dice, 1 + options->object_bytes);
    model->values = calloc(options->objects, options->object_bytes);
    model->versions = calloc(options->objects, sizeof model->versions[0]);
    model->data = malloc((size_t)RANGES_MAX * options->object_bytes);
    CHECK(model->values && model->versions && model->data);
    return 0;
}

static void close_model(struct model *model) {
    free(model->values);
    free(model->versions);
    free(model->data);
}

/* Add a change of a range, or of the whole object, and apply it. */
static void add_change(struct model *model, uint32_t object) {
    uint32_t bytes = model->object_bytes;
    struct remo_versioned_change *change = &model->changes[model->count];
    unsigned char *data = model->data + (size_t)model->count++ * bytes;
    *change = (struct remo_versioned_change){.object = object, .size_bytes = bytes, .data = data};
    if (remo__random_below(&model->dice, 4) > 0) {
        change->offset = (uint32_t)remo__random_below(&model->dice, bytes);
        change->size_bytes = 1 + (uint32_t)remo__random_below(&model->dice, bytes - change->offset);
    }
    uint64_t first = remo__random_next(&model->dice);
    for (uint32_t i = 0; i < change->size_bytes; i++)
        data[i] = (unsigned char)(first + i * (first >> 32));
    memcpy(model->values + (size_t)object * bytes + change->offset, data, change->size_bytes);
    model->versions[object] = model->version;
}

/* Make the next commit: ranges of some objects, in any order; those of one object may overlap. */
static void next_commit(struct model *model) {
    uint32_t objects = 1 + (uint32_t)remo__random_below(&model->dice, 3);
    model->count = 0;
    model->version++;
    uint32_t first = (uint32_t)remo__random_below(&model->dice, model->objects);
    for (uint32_t pass = 0; pass < model->ranges_max; pass++)
        for (uint32_t i = 0; i < objects && i < model->objects; i++)
            if (pass == 0 || remo__random_below(&model->dice, 2) == 0)
                add_change(model, (first + i) % model->objects);
}

static int expect_model(struct remo_versioned *versioned, uint32_t owner, const struct model *model) {
    unsigned char *value = malloc(model->object_bytes);
    uint64_t version = 0;
    CHECK(value);
    for (uint32_t i = 0; i < model->objects; i++) {
        CHECK_OK(remo_versioned_read(versioned, owner, i, value, &version));
        CHECK_EQUAL(version, model->versions[i]);
        CHECK(memcmp(value, model->values + (size_t)i * model->object_bytes, model->object_bytes) == 0);
    }
    CHECK_OK(remo_versioned_version(versioned, owner, &version));
    CHECK_EQUAL(version, model->version);
    free(value);
    return 0;
}

static int expect_model_many(struct remo_versioned *versioned, uint32_t owner, const struct model *model) {
    struct remo_versioned_item items[16];
    unsigned char *values = malloc((size_t)model->objects * model->object_bytes);
    uint64_t version = 0;
    CHECK(values && model->objects <= 16);
    for (uint32_t i = 0; i < model->objects; i++)
        items[i] =
            (struct remo_versioned_item){.object = i, .value = values + (size_t)i * model->object_bytes};
    CHECK_OK(remo_versioned_read_many(versioned, owner, items, model->objects, &version));
    CHECK_EQUAL(version, model->version);
    for (uint32_t i = 0; i < model->objects; i++)
        CHECK_EQUAL(items[i].version, model->versions[i]);
    CHECK(memcmp(values, model->values, (size_t)model->objects * model->object_bytes) == 0);
    free(values);
    return 0;
}

/* ---- visits: parts of objects ---- */

#define PART_BYTES_MAX 3000u

struct visited {
    const unsigned char *expected; /* of the object */
    uint32_t object_bytes;
    uint64_t version, seed;
    uint32_t different; /* parts, in the last call */
    uint64_t prepared;  /* the version in the last call of prepare_parts */
};

/* The visitor copies parts of random sizes. */
static void visit_parts(void *ctx, const struct remo_versioned_view *view) {
    struct visited *visited = ctx;
    unsigned char part[PART_BYTES_MAX + 1];
    struct remo__random dice;
    remo__random_seed(&dice, visited->seed);
    visited->different = 0;
    visited->version = remo_versioned_view_version(view);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t offset = (uint32_t)remo__random_below(&dice, visited->object_bytes),
                 most = (uint32_t)remo__min(visited->object_bytes - offset, PART_BYTES_MAX),
                 bytes = 1 + (uint32_t)remo__random_below(&dice, i % 2 ? most : remo__min(most, 40));
        part[bytes] = 0xa5;
        remo_versioned_view_prefetch(view, offset);
        remo_versioned_view_copy(view, offset, part, bytes);
        visited->different += memcmp(part, visited->expected + offset, bytes) != 0 || part[bytes] != 0xa5;
    }
    memset(part, 0xa5, sizeof part);
    remo_versioned_view_prefetch(view, UINT32_MAX);
    remo_versioned_view_copy(view, visited->object_bytes, part, 1); /* outside: no effect */
    remo_versioned_view_copy(view, 1, part, visited->object_bytes);
    remo_versioned_view_copy(view, UINT32_MAX, part, SIZE_MAX);
    remo_versioned_view_copy(view, 0, part, 0);
    visited->different += part[0] != 0xa5;
}

/* The first step of a visit in two steps; the second one is visit_parts. */
static void prepare_parts(void *ctx, const struct remo_versioned_view *view) {
    struct visited *visited = ctx;
    visit_parts(ctx, view);
    visited->prepared = visited->version;
}

/* Visit all objects in two steps, each several times in one call. */
static int expect_model_steps(struct remo_versioned *versioned, uint32_t owner, const struct model *model,
                              struct visited *visited) {
    struct visited copies[40];
    struct remo_versioned_item items[40];
    for (uint32_t i = 0; i < 40; i++) {
        copies[i] = visited[i % model->objects];
        copies[i].different = 1;
        copies[i].seed += i;
        copies[i].prepared = UINT64_MAX;
        items[i] = (struct remo_versioned_item){.object = i % model->objects, .value = &copies[i]};
    }
    CHECK_OK(remo_versioned_visit_each(versioned, owner, prepare_parts, visit_parts, items, 40));
    for (uint32_t i = 0; i < 40; i++) {
        CHECK_EQUAL(copies[i].different, 0);
        CHECK(copies[i].prepared == copies[i].version && items[i].version == copies[i].version);
        CHECK_EQUAL(items[i].version, model->versions[i % model->objects]);
    }
    items[39].object = model->objects;
    CHECK_CODE(remo_versioned_visit_each(versioned, owner, prepare_parts, visit_parts, items, 40), -EINVAL);
    return 0;
}

static int expect_model_parts(struct remo_versioned *versioned, uint32_t owner, const struct model *model) {
    struct visited visited[16];
    struct remo_versioned_item items[16];
    CHECK(model->objects <= 16);
    for (uint32_t i = 0; i < model->objects; i++) {
        uint64_t version = 0;
        visited[i] = (struct visited){.expected = model->values + (size_t)i * model->object_bytes,
                                      .object_bytes = model->object_bytes,
                                      .seed = model->version + i,
                                      .different = 1};
        CHECK_OK(remo_versioned_visit(versioned, owner, i, i % 2 ? model->version : REMO_VERSIONED_NEWEST,
                                      visit_parts, &visited[i], &version));
        CHECK_EQUAL(visited[i].different, 0);
        CHECK(version == model->versions[i] && visited[i].version == version);
        visited[i].different = 1;
        visited[i].seed++;
        items[i] = (struct remo_versioned_item){.object = i, .value = &visited[i]};
    }
    CHECK_OK(remo_versioned_visit_many(versioned, owner, REMO_VERSIONED_NEWEST, visit_parts, items,
                                       model->objects));
    for (uint32_t i = 0; i < model->objects; i++)
        CHECK(visited[i].different == 0 && items[i].version == model->versions[i]);
    CHECK(expect_model_steps(versioned, owner, model, visited) == 0);
    items[0].object = model->objects;
    CHECK_CODE(remo_versioned_visit_many(versioned, owner, model->version, visit_parts, items, 1), -EINVAL);
    items[0].object = 0;
    CHECK_CODE(remo_versioned_visit_many(versioned, owner, model->version + 1, visit_parts, items, 1),
               -EINVAL);
    CHECK_CODE(remo_versioned_visit(versioned, owner, model->objects, 0, visit_parts, visited, NULL),
               -EINVAL);
    return 0;
}

struct commits {
    struct remo_versioned_options options;
    uint32_t ranges_max, rounds, commits; /* commits of each round */
};

/* Node 1 is the owner. Each variant moves objects many times `retain` times. */
static int commits(struct remo_node *node, void *ctx) {
    const struct commits *of = ctx;
    struct remo_versioned *versioned;
    struct model model;
    CHECK(open_model(&model, &of->options, of->ranges_max) == 0);
    CHECK(open_versioned(node, &of->options, &versioned) == 0);
    for (uint32_t round = 0; round < of->rounds; round++) {
        for (uint32_t i = 0; i < of->commits; i++) {
            uint64_t version = 0;
            next_commit(&model);
            if (remo_node_rank(node) != 1)
                continue;
            CHECK_OK(remo_versioned_commit(versioned, model.changes, model.count, i % 2 ? &version : NULL));
            CHECK(i % 2 == 0 || version == model.version);
        }
        CHECK_OK(cluster_meet());
        CHECK(expect_model(versioned, 1, &model) == 0);
        CHECK(expect_model_many(versioned, 1, &model) == 0);
        CHECK(expect_model_parts(versioned, 1, &model) == 0);
        CHECK_OK(cluster_meet());
    }
    close_model(&model);
    return close_versioned(versioned);
}

static struct commits
    one_byte = {{.objects = 1, .object_bytes = 1}, 1, 10, 40},
    small = {{.objects = 5, .object_bytes = 13, .log_bytes = 250, .retain = 1}, 3, 12, 40},
    whole = {{.objects = 4, .object_bytes = 1024, .retain = 3}, 1, 10, 20},
    ranges = {{.objects = 8, .object_bytes = 1000, .log_bytes = 4096, .retain = 2}, 4, 10, 20},
    large = {{.objects = 3, .object_bytes = 50001, .log_bytes = 200100, .retain = 2}, 3, 5, 8},
    largest = {{.objects = 2, .object_bytes = REMO_VERSIONED_BYTES_MAX, .retain = 2}, 1, 4, 3},
    rewritten = {{.objects = 5, .object_bytes = 1000, .log_bytes = 128, .retain = 3}, 3, 12, 40};

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(zeros, 3),
        CLUSTER_TEST_NAMED("one byte", commits, 3, .ctx = &one_byte),
        CLUSTER_TEST_NAMED("small objects", commits, 3, .ctx = &small),
        CLUSTER_TEST_NAMED("whole objects", commits, 3, .ctx = &whole),
        CLUSTER_TEST_NAMED("ranges", commits, 3, .ctx = &ranges),
        CLUSTER_TEST_NAMED("large objects", commits, 3, .ctx = &large),
        CLUSTER_TEST_NAMED("largest objects", commits, 2, .ctx = &largest),
        CLUSTER_TEST_NAMED("rewritten objects", commits, 2, .ctx = &rewritten),
        CLUSTER_TEST_NAMED("nodes of a process", commits, 3, .ctx = &small, .as_threads = 1),
        {0},
    };
    return versioned_main(argc, argv, tests);
}
