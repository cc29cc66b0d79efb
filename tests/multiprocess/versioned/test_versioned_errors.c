/* test_versioned_errors.c - wrong arguments of the calls of versioned objects, each with its code and its
 * sentence, and an owner whose memory is damaged. */
#include "objects/versioned/versioned.h"

#include "versioned_common.h"

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

/* The list of moves names objects that do not exist, and the directory a used part that is longer than the
 * base. Neither has an effect. */
static int damaged_hints(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {.objects = 3, .object_bytes = VALUE_BYTES, .retain = 1};
    struct remo_versioned *versioned;
    unsigned char value[VALUE_BYTES];
    uint64_t version;
    (void)ctx;
    CHECK(open_versioned(node, &options, &versioned) == 0);
    if (remo_node_rank(node) == 0) {
        CHECK_OK(commit_value(versioned, 1, 7, NULL));
        char *memory = remo_channel_memory(remo_versioned_channel(versioned), 0);
        struct remo__versioned_front *front = (struct remo__versioned_front *)memory;
        struct remo__versioned_entry *entries =
            (struct remo__versioned_entry *)(memory + remo__versioned_directory_at(0));
        for (uint32_t i = 0; i < REMO__VERSIONED_MOVES; i++)
            front->moves[i] =
                remo__versioned_move(entries[1].location, i == 0 ? 3 : REMO_VERSIONED_OBJECTS_MAX - i);
        for (uint32_t i = 0; i < 3; i++)
            entries[i].note =
                remo__versioned_note(entries[i].location, (1u << REMO__VERSIONED_NOTE_BITS) - 2 - i);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 3 && remo_node_rank(node) == 1; i++) {
        CHECK_OK(remo_versioned_read(versioned, 0, i, value, NULL));
        CHECK_OK(remo_versioned_version(versioned, 0, &version));
        CHECK_EQUAL(version, 1);
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
    /* the used part is from the directory, and then from the header */
    for (uint32_t i = 0; i < 2 && !base; i++) {
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
        CLUSTER_TEST(errors, 2),
        CLUSTER_TEST(damaged, 2),
        CLUSTER_TEST(damaged_hints, 2),
        CLUSTER_TEST(damaged_base, 2, .only_on = "ofi"),
        {0},
    };
    return versioned_main(argc, argv, tests);
}
