/* test_versioned.c - versioned objects between real nodes: initial zeros, commits of one and of many ranges,
 * moves, earlier versions, several owners and threads, the cost of each call, tasks, and wrong arguments. */
#include "base/random.h"
#include "objects/versioned/versioned.h"

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

/* ---- earlier versions ---- */

#define RETAIN 8u
#define MORE 5u

/* A commit to the object fills its extent, so each commit but the first moves the object. */
static const struct remo_versioned_options old_options = {
    .objects = 1, .object_bytes = VALUE_BYTES, .log_bytes = VALUE_BYTES + 24, .retain = RETAIN};

/* After `last` commits, the versions from last - 1 - RETAIN can be read. */
static int expect_versions(struct remo_versioned *versioned, uint64_t last) {
    unsigned char value[VALUE_BYTES];
    uint64_t version = 0, first = last > RETAIN + 1 ? last - 1 - RETAIN : 0;
    for (uint64_t at = 0; at <= last; at++) {
        if (at < first) {
            CHECK_SENTENCE(remo_versioned_read_at(versioned, 0, 0, at, value, &version), -ESTALE, "retain");
            continue;
        }
        CHECK_OK(remo_versioned_read_at(versioned, 0, 0, at, value, &version));
        CHECK_EQUAL(version, at);
        CHECK(is_value(value, 0, at));
    }
    CHECK_OK(remo_versioned_read_at(versioned, 0, 0, REMO_VERSIONED_NEWEST, value, &version));
    CHECK_EQUAL(version, last);
    CHECK(is_value(value, 0, last));
    CHECK_SENTENCE(remo_versioned_read_at(versioned, 0, 0, last + 1, value, &version), -EINVAL, "version");
    return 0;
}

static int old_versions(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    (void)ctx;
    CHECK(open_versioned(node, &old_options, &versioned) == 0);
    for (uint64_t i = 1; i <= 3 * RETAIN + MORE; i++) {
        uint64_t version = 0;
        if (remo_node_rank(node) == 0) {
            CHECK_OK(commit_value(versioned, 0, i, &version));
            CHECK_EQUAL(version, i);
        }
        CHECK_OK(cluster_meet());
        /* node 2 reads seldom, so that its location is out of date by several moves */
        if (remo_node_rank(node) < 2 || i % MORE == 0)
            CHECK(expect_versions(versioned, i) == 0);
        CHECK_OK(cluster_meet());
    }
    return close_versioned(versioned);
}

/* Commits to other objects do not change the version of an object. */
static int versions_between(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {.objects = 2, .object_bytes = VALUE_BYTES};
    struct remo_versioned *versioned;
    unsigned char value[VALUE_BYTES], other[VALUE_BYTES];
    struct remo_versioned_item items[] = {{.object = 0, .value = value}, {.object = 1, .value = other}};
    uint64_t version = 0;
    (void)ctx;
    CHECK(open_versioned(node, &options, &versioned) == 0);
    for (uint64_t i = 1; i <= 20 && remo_node_rank(node) == 0; i++)
        CHECK_OK(commit_value(versioned, i % 5 == 0, i, NULL));
    CHECK_OK(cluster_meet());
    for (uint64_t at = 0; at <= 20; at++) {
        CHECK_OK(remo_versioned_read_at(versioned, 0, 1, at, value, &version));
        CHECK_EQUAL(version, at / 5 * 5);
        CHECK(is_value(value, 1, at / 5 * 5));
        CHECK_OK(remo_versioned_read_at(versioned, 0, 0, at, value, NULL));
        CHECK(is_value(value, 0, at - (at > 0 && at % 5 == 0)));
        memset(value, 0, sizeof value);
        CHECK_OK(remo_versioned_read_many_at(versioned, 0, at, items, 2));
        CHECK_EQUAL(items[1].version, at / 5 * 5);
        CHECK(is_value(value, 0, at - (at > 0 && at % 5 == 0)) && is_value(other, 1, at / 5 * 5));
    }
    return close_versioned(versioned);
}

/* ---- several owners ---- */

static int owners(struct remo_node *node, void *ctx) {
    struct remo_versioned_options options = {.objects = 2, .object_bytes = VALUE_BYTES};
    struct remo_versioned *versioned;
    unsigned char value[VALUE_BYTES];
    uint32_t rank = remo_node_rank(node);
    uint64_t version = 0;
    (void)ctx;
    remo_nodeset_add(&options.owners, 0);
    remo_nodeset_add(&options.owners, 2);
    CHECK(open_versioned(node, &options, &versioned) == 0);
    for (uint64_t i = 1; i <= 100 + rank && rank != 1; i++)
        CHECK_OK(commit_value(versioned, i % 2, 1000 * rank + i, NULL));
    if (rank == 1)
        CHECK_SENTENCE(commit_value(versioned, 0, 1, NULL), -EPERM, "owners");
    CHECK_OK(cluster_meet());
    for (uint32_t owner = 0; owner <= 2; owner += 2) {
        uint64_t last = 100 + owner;
        CHECK_OK(remo_versioned_version(versioned, owner, &version));
        CHECK_EQUAL(version, last);
        for (uint32_t i = 0; i < 2; i++) {
            uint64_t expected = last - (last % 2 != i);
            CHECK_OK(remo_versioned_read(versioned, owner, i, value, &version));
            CHECK_EQUAL(version, expected);
            CHECK(is_value(value, i, 1000 * owner + expected));
        }
    }
    CHECK_CODE(remo_versioned_read(versioned, 1, 0, value, &version), -EINVAL);
    return close_versioned(versioned);
}

/* A reader waits until the owner has opened the objects. */
static int late_owner(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {.objects = 2, .object_bytes = VALUE_BYTES};
    struct remo_versioned *versioned;
    unsigned char value[VALUE_BYTES];
    uint64_t version = 0;
    (void)ctx;
    if (remo_node_rank(node) == 0)
        cluster_sleep_ms(100);
    CHECK_OK(remo_versioned_open(remo_node_root(node), "objects", &options, &versioned));
    if (remo_node_rank(node) == 0)
        CHECK_OK(commit_value(versioned, 1, 1, NULL));
    else
        do
            CHECK_OK(remo_versioned_read(versioned, 0, 1, value, &version));
        while (version == 0);
    CHECK(remo_node_rank(node) == 0 || is_value(value, 1, 1));
    return close_versioned(versioned);
}

static int absent_owner(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    struct remo_versioned_item item = {0};
    unsigned char value[1024];
    (void)ctx;
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_versioned_open(remo_node_root(node), "objects", NULL, &versioned));
        cluster_set_op_timeout(node, SECOND / 5);
        CHECK_SENTENCE(remo_versioned_read(versioned, 0, 0, value, NULL), -ETIMEDOUT, "node 0");
        item.value = value;
        CHECK_CODE(remo_versioned_read_many(versioned, 0, &item, 1, NULL), -ETIMEDOUT);
        CHECK_CODE(remo_versioned_version(versioned, 0, &item.version), -ETIMEDOUT);
        CHECK_OK(remo_versioned_read(versioned, 1, 0, value, NULL)); /* its own */
        remo_versioned_close(versioned);
    }
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- threads of the owner ---- */

#define THREADS 2u
#define THREAD_COMMITS 400u

struct committer {
    struct remo_versioned *versioned;
    uint32_t number;
    uint64_t versions[THREAD_COMMITS];
    int result;
};

/* Commit i of a thread: value i of the object of the thread, and of the object that all change. */
static int commit_in_turn(struct committer *self) {
    unsigned char own[VALUE_BYTES], common[VALUE_BYTES];
    const struct remo_versioned_change changes[] = {
        {.object = self->number, .size_bytes = sizeof own, .data = own},
        {.object = THREADS, .size_bytes = sizeof common, .data = common}};
    for (uint64_t i = 0; i < THREAD_COMMITS; i++) {
        make_value(own, self->number, i + 1);
        make_value(common, THREADS, (i + 1) * THREADS + self->number);
        CHECK_OK(remo_versioned_commit(self->versioned, changes, 2, &self->versions[i]));
        CHECK(i == 0 || self->versions[i] > self->versions[i - 1]);
        if (i % 64 == 0)
            sched_yield();
    }
    return 0;
}

static void *run_committer(void *ctx) {
    struct committer *self = ctx;
    self->result = commit_in_turn(self);
    return NULL;
}

/* Each version belongs to one commit. */
static int check_committers(const struct committer *committers) {
    uint32_t seen[THREADS * THREAD_COMMITS + 1] = {0};
    for (uint32_t i = 0; i < THREADS; i++)
        for (uint32_t k = 0; k < THREAD_COMMITS; k++) {
            CHECK(committers[i].versions[k] <= THREADS * THREAD_COMMITS);
            CHECK_EQUAL(seen[committers[i].versions[k]]++, 0);
        }
    CHECK_EQUAL(seen[0], 0);
    return 0;
}

/* At each instant the common value is that of the thread that committed last. */
static int read_committers(struct remo_versioned *versioned) {
    static unsigned char values[THREADS + 1][VALUE_BYTES];
    struct remo_versioned_item items[THREADS + 1];
    for (uint32_t i = 0; i <= THREADS; i++)
        items[i] = (struct remo_versioned_item){.object = i, .value = values[i]};
    for (uint64_t version = 0; version < THREADS * THREAD_COMMITS;) {
        CHECK_OK(remo_versioned_read_many(versioned, 0, items, THREADS + 1, &version));
        uint64_t common = number_of(values[THREADS]), sum = 0;
        for (uint32_t i = 0; i < THREADS; i++) {
            CHECK(is_value(values[i], i, number_of(values[i])));
            sum += number_of(values[i]);
        }
        CHECK_EQUAL(sum, version);
        CHECK(is_value(values[THREADS], THREADS, common));
        CHECK(version == 0 || number_of(values[common % THREADS]) == common / THREADS);
        CHECK_EQUAL(items[THREADS].version, version);
    }
    return 0;
}

static int owner_threads(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {
        .objects = THREADS + 1, .object_bytes = VALUE_BYTES, .retain = 1000};
    struct committer committers[THREADS];
    pthread_t threads[THREADS];
    struct remo_versioned *versioned;
    (void)ctx;
    CHECK(open_versioned(node, &options, &versioned) == 0);
    if (remo_node_rank(node) == 0) {
        for (uint32_t i = 0; i < THREADS; i++) {
            committers[i] = (struct committer){.versioned = versioned, .number = i};
            CHECK(pthread_create(&threads[i], NULL, run_committer, &committers[i]) == 0);
        }
        for (uint32_t i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            CHECK_EQUAL(committers[i].result, 0);
        }
        CHECK(check_committers(committers) == 0);
    }
    CHECK(read_committers(versioned) == 0);
    return close_versioned(versioned);
}

/* ---- costs ---- */

#define COST_OBJECTS 6u

/* As old_options: each commit to an object, except the first, moves it. */
static const struct remo_versioned_options cost_options = {
    .objects = COST_OBJECTS, .object_bytes = VALUE_BYTES, .log_bytes = VALUE_BYTES + 24, .retain = 8};

/* Commit to each object, without a network operation. */
static int commit_to_all(struct remo_versioned *versioned, uint64_t number) {
    struct remo_channel *channel = remo_versioned_channel(versioned);
    for (uint32_t i = 0; i < COST_OBJECTS; i++)
        CHECK_COST(channel, CHECK_OK(commit_value(versioned, i, number, NULL)), 0, 0, 0, 0);
    return 0;
}

/* Read all objects at the same time, at this cost. */
static int read_all_at_cost(struct remo_versioned *versioned, uint64_t reads, uint64_t number) {
    unsigned char values[COST_OBJECTS][VALUE_BYTES];
    struct remo_versioned_item items[COST_OBJECTS];
    for (uint32_t i = 0; i < COST_OBJECTS; i++)
        items[i] = (struct remo_versioned_item){.object = i, .value = values[i]};
    CHECK_COST(remo_versioned_channel(versioned),
               CHECK_OK(remo_versioned_read_many(versioned, 0, items, COST_OBJECTS, NULL)), reads, 0, 0, 0);
    for (uint32_t i = 0; i < COST_OBJECTS; i++)
        CHECK(is_value(values[i], i, number));
    return 0;
}

static int read_at_cost(struct remo_versioned *versioned, uint32_t object, uint64_t reads, uint64_t number) {
    unsigned char value[VALUE_BYTES];
    CHECK_COST(remo_versioned_channel(versioned),
               CHECK_OK(remo_versioned_read(versioned, 0, object, value, NULL)), reads, 0, 0, 0);
    CHECK(is_value(value, object, number));
    return 0;
}

static int costs_of_owner(struct remo_versioned *versioned) {
    struct remo_channel *channel = remo_versioned_channel(versioned);
    unsigned char value[VALUE_BYTES];
    uint64_t version = 0;
    CHECK(commit_to_all(versioned, 1) == 0);
    CHECK_COST(channel, CHECK_OK(remo_versioned_version(versioned, 0, &version)), 0, 0, 0, 0);
    CHECK_EQUAL(version, COST_OBJECTS);
    CHECK(read_at_cost(versioned, 0, 0, 1) == 0);
    CHECK(read_all_at_cost(versioned, 0, 1) == 0);
    CHECK_COST(channel, CHECK_OK(remo_versioned_read_at(versioned, 0, 0, 0, value, NULL)), 0, 0, 0, 0);
    CHECK(is_value(value, 0, 0));
    return 0;
}

/* A call with a wrong argument costs no operation. */
static int costs_of_errors(struct remo_versioned *versioned) {
    struct remo_channel *channel = remo_versioned_channel(versioned);
    unsigned char value[VALUE_BYTES];
    CHECK_COST(channel, CHECK_CODE(remo_versioned_read(versioned, 0, COST_OBJECTS, value, NULL), -EINVAL), 0,
               0, 0, 0);
    CHECK_COST(channel, CHECK_CODE(remo_versioned_read(versioned, 9, 0, value, NULL), -EINVAL), 0, 0, 0, 0);
    CHECK_COST(channel, CHECK_CODE(remo_versioned_read(versioned, 0, 0, NULL, NULL), -EINVAL), 0, 0, 0, 0);
    return 0;
}

/* Node 1 reads. The steps of both nodes are the same. */
static int costs(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    uint64_t version = 0;
    bool is_owner = remo_node_rank(node) == 0;
    (void)ctx;
    CHECK(open_versioned(node, &cost_options, &versioned) == 0);
    struct remo_channel *channel = remo_versioned_channel(versioned);
    CHECK(!is_owner || costs_of_owner(versioned) == 0);
    CHECK_OK(cluster_meet());
    if (!is_owner) {
        CHECK(read_at_cost(versioned, 0, 2, 1) == 0); /* the first time */
        CHECK(read_at_cost(versioned, 0, 1, 1) == 0);
        CHECK_COST(channel, CHECK_OK(remo_versioned_version(versioned, 0, &version)), 1, 0, 0, 0);
        CHECK_EQUAL(version, COST_OBJECTS);
        CHECK(read_all_at_cost(versioned, 1 + 1 + (COST_OBJECTS - 1) * 2, 1) == 0);
        CHECK(read_all_at_cost(versioned, 1 + COST_OBJECTS, 1) == 0);
        CHECK(costs_of_errors(versioned) == 0);
    }
    CHECK_OK(cluster_meet());
    CHECK(!is_owner || commit_to_all(versioned, 2) == 0); /* each commit moves an object */
    CHECK_OK(cluster_meet());
    if (!is_owner) {
        CHECK(read_at_cost(versioned, 0, 3, 2) == 0);
        CHECK(read_at_cost(versioned, 0, 1, 2) == 0);
        CHECK(read_all_at_cost(versioned, 1 + 1 + (COST_OBJECTS - 1) * 3, 2) == 0);
    }
    CHECK_OK(cluster_meet());
    return close_versioned(versioned);
}

/* A commit that does not move the object does not change the cost. Initially there is no record. */
static int costs_without_move(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {
        .objects = 1, .object_bytes = VALUE_BYTES, .log_bytes = 4 * (VALUE_BYTES + 24)};
    struct remo_versioned *versioned;
    (void)ctx;
    CHECK(open_versioned(node, &options, &versioned) == 0);
    for (uint64_t i = 0; i <= 4; i++) {
        if (remo_node_rank(node) == 0 && i > 0)
            CHECK_OK(commit_value(versioned, 0, i, NULL));
        CHECK_OK(cluster_meet());
        if (remo_node_rank(node) == 1 && i == 0)
            CHECK(read_at_cost(versioned, 0, 2, i) == 0);
        if (remo_node_rank(node) == 1)
            CHECK(read_at_cost(versioned, 0, 1, i) == 0);
        CHECK_OK(cluster_meet());
    }
    return close_versioned(versioned);
}

/* Read a version of an object of old_options. */
static int version_at_cost(struct remo_versioned *versioned, uint64_t version, uint64_t reads) {
    unsigned char value[VALUE_BYTES];
    CHECK_COST(remo_versioned_channel(versioned),
               CHECK_OK(remo_versioned_read_at(versioned, 0, 0, version, value, NULL)), reads, 0, 0, 0);
    CHECK(is_value(value, 0, version));
    return 0;
}

static int costs_of_versions(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    uint64_t last = 5, version = 0;
    (void)ctx;
    CHECK(open_versioned(node, &old_options, &versioned) == 0);
    for (uint64_t i = 1; i <= last && remo_node_rank(node) == 0; i++)
        CHECK_OK(commit_value(versioned, 0, i, NULL));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK(version_at_cost(versioned, last, 3) == 0); /* version, directory, extent */
        for (version = 0; version <= last; version++) {
            uint64_t moves = version == last ? 0 : last - 1 - version;
            CHECK(version_at_cost(versioned, version, 1 + moves) == 0);
        }
        CHECK(version_at_cost(versioned, last, 1) == 0);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0)
        CHECK_OK(commit_value(versioned, 0, last + 1, NULL));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        /* The known extent has all records of this version, although the object has moved since. */
        CHECK(version_at_cost(versioned, last - 1, 1) == 0);
        CHECK(version_at_cost(versioned, last, 3) == 0);
    }
    return close_versioned(versioned);
}

/* ---- more objects than remo_versioned_read_many reads at the same time ---- */

#define MANY 40u

static int commit_to_many(struct remo_versioned *versioned, uint64_t number) {
    static unsigned char values[MANY][VALUE_BYTES];
    struct remo_versioned_change changes[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        make_value(values[i], i, number);
        changes[i] =
            (struct remo_versioned_change){.object = i, .size_bytes = sizeof values[i], .data = values[i]};
    }
    CHECK_OK(remo_versioned_commit(versioned, changes, MANY, NULL));
    return 0;
}

/* Each object twice, in different orders. */
static int read_many_twice(struct remo_versioned *versioned, uint64_t number) {
    static unsigned char values[2 * MANY][VALUE_BYTES];
    struct remo_versioned_item items[2 * MANY];
    uint64_t version = 0;
    for (uint32_t i = 0; i < 2 * MANY; i++)
        items[i] = (struct remo_versioned_item){.object = i * 3 % MANY, .value = values[i]};
    CHECK_OK(remo_versioned_read_many(versioned, 0, items, 2 * MANY, &version));
    CHECK_EQUAL(version, number);
    for (uint32_t i = 0; i < 2 * MANY; i++) {
        CHECK_EQUAL(items[i].version, number);
        CHECK(is_value(values[i], items[i].object, number));
    }
    return 0;
}

/* Each commit but the first moves all objects, so it uses the spare extent many times. */
static int many_objects(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {
        .objects = MANY, .object_bytes = VALUE_BYTES, .log_bytes = VALUE_BYTES + 24, .retain = 1};
    struct remo_versioned *versioned;
    (void)ctx;
    CHECK(open_versioned(node, &options, &versioned) == 0);
    for (uint64_t i = 0; i < 10; i++) {
        CHECK(read_many_twice(versioned, i) == 0);
        CHECK_OK(cluster_meet());
        if (remo_node_rank(node) == 0)
            CHECK(commit_to_many(versioned, i + 1) == 0);
        CHECK_OK(cluster_meet());
    }
    return close_versioned(versioned);
}

/* ---- tasks: the reads of several tasks of one thread overlap ---- */

#define TASKS 8u
#define TASK_READS 50u

struct reading {
    struct remo_versioned *versioned;
    uint32_t next, in_flight, in_flight_max;
};

static int read_in_task(void *ctx) {
    struct reading *reading = ctx;
    unsigned char value[VALUE_BYTES];
    uint32_t object = reading->next++;
    for (uint32_t i = 0; i < TASK_READS; i++) {
        reading->in_flight++;
        if (reading->in_flight > reading->in_flight_max)
            reading->in_flight_max = reading->in_flight;
        CHECK_OK(remo_versioned_read(reading->versioned, 0, object, value, NULL));
        reading->in_flight--;
        CHECK(is_value(value, object, object + 1));
        remo_task_yield();
    }
    return 0;
}

static int tasks(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {.objects = TASKS, .object_bytes = VALUE_BYTES};
    struct reading reading = {0};
    struct remo_scheduler *scheduler;
    remo_task_id ids[TASKS];
    (void)ctx;
    CHECK(open_versioned(node, &options, &reading.versioned) == 0);
    for (uint32_t i = 0; i < TASKS && remo_node_rank(node) == 0; i++)
        CHECK_OK(commit_value(reading.versioned, i, i + 1, NULL));
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    for (uint32_t i = 0; i < TASKS; i++)
        CHECK_OK(remo_task_spawn(scheduler, read_in_task, &reading, &ids[i]));
    for (uint32_t i = 0; i < TASKS; i++) {
        int result = -1;
        CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, &result));
        CHECK_CODE(result, 0);
    }
    CHECK(is_mapped(node) || remo_node_rank(node) == 0 || reading.in_flight_max == TASKS);
    CHECK_OK(remo_scheduler_close(scheduler));
    return close_versioned(reading.versioned);
}

/* ---- wrong arguments ---- */

static int wrong_options(struct remo_channel *root, uint32_t rank) {
    struct remo_versioned *versioned;
    struct remo_versioned_options options = {.objects = REMO_VERSIONED_OBJECTS_MAX + 1};
    CHECK_SENTENCE(remo_versioned_open(root, "v", &options, &versioned), -EINVAL, "8388609");
    options = (struct remo_versioned_options){.object_bytes = REMO_VERSIONED_BYTES_MAX + 1};
    CHECK_SENTENCE(remo_versioned_open(root, "v", &options, &versioned), -EINVAL, "1048577");
    options = (struct remo_versioned_options){.object_bytes = UINT32_MAX};
    CHECK_CODE(remo_versioned_open(root, "v", &options, &versioned), -EINVAL);
    options = (struct remo_versioned_options){.object_bytes = 100, .log_bytes = 31};
    CHECK_SENTENCE(remo_versioned_open(root, "v", &options, &versioned), -EINVAL, "log_bytes");
    options = (struct remo_versioned_options){.object_bytes = 100, .log_bytes = UINT32_MAX};
    CHECK_SENTENCE(remo_versioned_open(root, "v", &options, &versioned), -EINVAL, "log_bytes");
    options = (struct remo_versioned_options){.retain = UINT32_MAX};
    CHECK_SENTENCE(remo_versioned_open(root, "v", &options, &versioned), -EINVAL, "retain");
    options = (struct remo_versioned_options){.retain = (1u << 24) - 63};
    CHECK_SENTENCE(remo_versioned_open(root, "v", &options, &versioned), -EINVAL, "retain");
    options = (struct remo_versioned_options){0};
    remo_nodeset_add(&options.participants, rank);
    remo_nodeset_add(&options.owners, 1 - rank);
    CHECK_SENTENCE(remo_versioned_open(root, "v", &options, &versioned), -EINVAL, "owner");
    CHECK_SENTENCE(remo_versioned_open(NULL, "v", NULL, &versioned), -EINVAL, "parent");
    CHECK_CODE(remo_versioned_open(root, "a/b", NULL, &versioned), -EINVAL);
    return 0;
}

static int wrong_commits(struct remo_versioned *versioned) {
    unsigned char data[104] = {1};
    struct remo_versioned_change changes[] = {{.object = 0, .size_bytes = 1, .data = data},
                                              {.object = 1, .size_bytes = 1, .data = data}};
    struct remo_versioned_change *bad = &changes[1];
    CHECK_SENTENCE(remo_versioned_commit(versioned, changes, 0, NULL), -EINVAL, "count is 0");
    *bad = (struct remo_versioned_change){.object = 2, .size_bytes = 1, .data = data};
    CHECK_SENTENCE(remo_versioned_commit(versioned, changes, 2, NULL), -EINVAL, "object 2");
    *bad = (struct remo_versioned_change){.object = 1, .size_bytes = 101, .data = data};
    CHECK_SENTENCE(remo_versioned_commit(versioned, changes, 2, NULL), -EINVAL, "101 bytes");
    *bad = (struct remo_versioned_change){.object = 1, .offset = 100, .size_bytes = 1, .data = data};
    CHECK_SENTENCE(remo_versioned_commit(versioned, changes, 2, NULL), -EINVAL, "at 100");
    *bad = (struct remo_versioned_change){.object = 1, .offset = UINT32_MAX, .size_bytes = 1, .data = data};
    CHECK_CODE(remo_versioned_commit(versioned, changes, 2, NULL), -EINVAL);
    *bad = (struct remo_versioned_change){.object = 1, .size_bytes = 0, .data = data};
    CHECK_CODE(remo_versioned_commit(versioned, changes, 2, NULL), -EINVAL);
    *bad = (struct remo_versioned_change){.object = 1, .size_bytes = 1};
    CHECK_CODE(remo_versioned_commit(versioned, changes, 2, NULL), -EINVAL);
    return 0;
}

/* log_bytes is 256: an extent has room for eight changes of at most 8 bytes. A ninth one rewrites the object.
 * One object can be rewritten in a commit, because retain is 1. */
static int long_commits(struct remo_versioned *versioned) {
    struct remo_versioned_change changes[20];
    uint64_t word = 0, version = 0;
    for (uint32_t i = 0; i < 20; i++)
        changes[i] = (struct remo_versioned_change){
            .object = i % 2, .offset = i, .size_bytes = 1 + i % 8, .data = &word};
    CHECK_SENTENCE(remo_versioned_commit(versioned, changes, 18, NULL), -EMSGSIZE, "log_bytes");
    CHECK_SENTENCE(remo_versioned_commit(versioned, changes, 20, NULL), -EMSGSIZE, "2 objects");
    CHECK_OK(remo_versioned_version(versioned, 0, &version));
    CHECK_EQUAL(version, 0); /* no error has changed anything */
    for (uint64_t i = 1; i <= 10; i++) {
        CHECK_OK(remo_versioned_commit(versioned, changes, 16 + i % 2, &version));
        CHECK_EQUAL(version, i);
    }
    return 0;
}

static int wrong_reads(struct remo_versioned *versioned, uint64_t last) {
    unsigned char value[100];
    struct remo_versioned_item items[] = {{.object = 0, .value = value}, {.object = 2, .value = value}};
    CHECK_SENTENCE(remo_versioned_read(versioned, 0, 2, value, NULL), -EINVAL, "object 2");
    CHECK_SENTENCE(remo_versioned_read(versioned, 1, 0, value, NULL), -EINVAL, "1");
    CHECK_CODE(remo_versioned_read(versioned, 2, 0, value, NULL), -EINVAL);
    CHECK_CODE(remo_versioned_read(versioned, UINT32_MAX, 0, value, NULL), -EINVAL);
    CHECK_CODE(remo_versioned_read(versioned, 0, UINT32_MAX, value, NULL), -EINVAL);
    CHECK_CODE(remo_versioned_read(versioned, 0, 0, NULL, NULL), -EINVAL);
    CHECK_CODE(remo_versioned_read_many(versioned, 0, items, 2, NULL), -EINVAL);
    items[1] = (struct remo_versioned_item){.object = 1};
    CHECK_CODE(remo_versioned_read_many(versioned, 0, items, 2, NULL), -EINVAL);
    CHECK_CODE(remo_versioned_read_many(versioned, 1, items, 1, NULL), -EINVAL);
    CHECK_OK(remo_versioned_read_many(versioned, 0, items, 1, NULL));
    CHECK_CODE(remo_versioned_version(versioned, 1, &last), -EINVAL);
    CHECK_SENTENCE(remo_versioned_read_at(versioned, 0, 0, last + 1, value, NULL), -EINVAL, "version");
    CHECK_CODE(remo_versioned_read_at(versioned, 0, 0, REMO_VERSIONED_NEWEST - 1, value, NULL), -EINVAL);
    CHECK_CODE(remo_versioned_read_at(versioned, 0, 2, last, value, NULL), -EINVAL);
    CHECK_CODE(remo_versioned_read_many_at(versioned, 0, last + 1, items, 1), -EINVAL);
    CHECK_SENTENCE(remo_versioned_read_many_at(versioned, 0, REMO_VERSIONED_NEWEST, items, 1), -EINVAL,
                   "remo_versioned_read_many");
    CHECK_CODE(remo_versioned_read_many_at(versioned, 1, last, items, 1), -EINVAL);
    return 0;
}

static int errors(struct remo_node *node, void *ctx) {
    struct remo_versioned_options options = {
        .objects = 2, .object_bytes = 100, .log_bytes = 256, .retain = 1};
    struct remo_versioned *versioned;
    unsigned char value[100];
    (void)ctx;
    CHECK(wrong_options(remo_node_root(node), remo_node_rank(node)) == 0);
    remo_nodeset_add(&options.owners, 0);
    CHECK(open_versioned(node, &options, &versioned) == 0);
    if (remo_node_rank(node) == 0) {
        CHECK(wrong_commits(versioned) == 0);
        CHECK(long_commits(versioned) == 0);
    } else {
        CHECK_SENTENCE(
            remo_versioned_commit(versioned, &(struct remo_versioned_change){0, 0, 1, value}, 1, NULL),
            -EPERM, "owners");
    }
    CHECK_OK(cluster_meet());
    CHECK(wrong_reads(versioned, 10) == 0);
    return close_versioned(versioned);
}

/* The contents of the owner's memory are damaged. */
static int damaged(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {.objects = 3, .object_bytes = VALUE_BYTES, .retain = 1};
    struct remo_versioned *versioned;
    struct remo_versioned_item item = {.object = 1};
    unsigned char value[VALUE_BYTES];
    (void)ctx;
    CHECK(open_versioned(node, &options, &versioned) == 0);
    struct remo_channel *channel = remo_versioned_channel(versioned);
    if (remo_node_rank(node) == 1)
        CHECK_OK(remo_versioned_read(versioned, 0, 0, value, NULL)); /* so its location is recorded */
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0)
        memset(remo_channel_memory(channel, 0), 0xff, (size_t)3 * (VALUE_BYTES + VALUE_BYTES));
    CHECK_OK(cluster_meet());
    item.value = value;
    if (remo_node_rank(node) == 1) {
        for (uint32_t i = 0; i < 3; i++)
            CHECK_SENTENCE(remo_versioned_read(versioned, 0, i, value, NULL), -EPROTO, "node 0");
        CHECK_CODE(remo_versioned_read_many(versioned, 0, &item, 1, NULL), -EPROTO);
    }
    return close_versioned(versioned);
}

/* One byte of a base is damaged: its seal detects that, or the byte is behind the used part and has no
 * effect. Mapped memory has no seals. The first half of the object is not zero, and its commit rewrites it
 * in the second extent. */
static int damaged_base(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {
        .objects = 1, .object_bytes = VALUE_BYTES, .log_bytes = 32, .retain = 1};
    struct remo_versioned *versioned;
    unsigned char expected[VALUE_BYTES] = "", value[VALUE_BYTES];
    (void)ctx;
    memset(expected, 1, VALUE_BYTES / 2);
    CHECK(open_versioned(node, &options, &versioned) == 0);
    const struct remo__versioned_shape *shape = &versioned->shape;
    const struct remo_versioned_change change = {.size_bytes = VALUE_BYTES, .data = expected};
    char *base = NULL;
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_versioned_commit(versioned, &change, 1, NULL));
        base = (char *)remo_channel_memory(remo_versioned_channel(versioned), 0) + shape->extents_at
               + shape->extent_bytes + remo__versioned_base_at(shape);
        CHECK(memcmp(base, expected, VALUE_BYTES) == 0);
        base[VALUE_BYTES - 1] ^= 1;
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 2 && !base; i++) { /* a copy of all, and one of the used part */
        CHECK_OK(remo_versioned_read(versioned, 0, 0, value, NULL));
        CHECK(memcmp(value, expected, VALUE_BYTES) == 0);
    }
    CHECK_OK(cluster_meet());
    if (base)
        base[0] ^= 1;
    CHECK_OK(cluster_meet());
    if (!base)
        CHECK_SENTENCE(remo_versioned_read(versioned, 0, 0, value, NULL), -EPROTO, "object 0");
    return close_versioned(versioned);
}

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
        CLUSTER_TEST(old_versions, 3),
        CLUSTER_TEST(versions_between, 2),
        CLUSTER_TEST(owners, 3),
        CLUSTER_TEST(late_owner, 3),
        CLUSTER_TEST(absent_owner, 2),
        CLUSTER_TEST(owner_threads, 3),
        CLUSTER_TEST(costs, 2),
        CLUSTER_TEST(costs_without_move, 2),
        CLUSTER_TEST(costs_of_versions, 2),
        CLUSTER_TEST(many_objects, 3),
        CLUSTER_TEST(tasks, 2),
        CLUSTER_TEST(errors, 2),
        CLUSTER_TEST(damaged, 2),
        CLUSTER_TEST(damaged_base, 2, .only_on = "ofi"),
        {0},
    };
    return versioned_main(argc, argv, tests);
}
