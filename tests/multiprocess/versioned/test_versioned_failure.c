/* test_versioned_failure.c - readers beside an owner at full speed: each read is whole, of one instant, and
 * not older than the last commit that had returned. Owners that close, fail or pause; readers that fail or
 * pause. */
#include "versioned_common.h"

#define OBJECTS 8u
#define TOTAL (1000u * OBJECTS) /* of all units */

/* Object 0 counts commits; each commit moves a unit between two of the others. */
struct unit_value {
    uint64_t number, units, copies[(VALUE_BYTES - 16) / 8]; /* each copy: number + units */
};

static void fill(struct unit_value *value, uint64_t number, uint64_t units) {
    value->number = number;
    value->units = units;
    for (uint32_t i = 0; i < sizeof value->copies / 8; i++)
        value->copies[i] = number + units;
}

static bool is_whole(const struct unit_value *value) {
    for (uint32_t i = 0; i < sizeof value->copies / 8; i++)
        if (value->copies[i] != value->number + value->units)
            return false;
    return true;
}

struct busy {
    uint32_t log_bytes, retain;
    uint32_t pause_every, pause_every_over_network; /* commits; 0: no pause */
};

/* Over a network the owner's process serves reads, and so competes with the thread that commits. With few
 * extents and no pause, a read would seldom succeed there. */
static struct busy quick = {.log_bytes = 8 * (VALUE_BYTES + 24),
                            .retain = 4000,
                            .pause_every_over_network = 2000},
                   few = {.log_bytes = VALUE_BYTES + 24,
                          .retain = 1,
                          .pause_every = 16,
                          .pause_every_over_network = 16};

static int open_busy(struct remo_node *node, const struct busy *busy, struct remo_versioned **ret_versioned) {
    struct remo_versioned_options options = {.objects = OBJECTS,
                                             .object_bytes = sizeof(struct unit_value),
                                             .log_bytes = busy->log_bytes,
                                             .retain = busy->retain};
    remo_nodeset_add(&options.owners, 0);
    return open_versioned(node, &options, ret_versioned);
}

/* ---- the owner ---- */

struct writer {
    struct remo_versioned *versioned;
    struct unit_value values[OBJECTS];
    uint64_t commits;
    uint32_t pause_every, pause_ms;
    uint64_t reads; /* of all nodes, at the last pause */
};

static int commit_units(struct writer *self, struct unit_value *first, struct unit_value *second) {
    struct unit_value *changed[] = {&self->values[0], first, second};
    struct remo_versioned_change changes[3];
    uint64_t version = 0, number = self->commits + 1;
    fill(&self->values[0], number, 0);
    for (uint32_t i = 0; i < 3; i++)
        changes[i] = (struct remo_versioned_change){.object = (uint32_t)(changed[i] - self->values),
                                                    .size_bytes = sizeof *changed[i],
                                                    .data = changed[i]};
    atomic_store(&shared->committing, number);
    CHECK_OK(remo_versioned_commit(self->versioned, changes, 3, &version));
    atomic_store(&shared->committed, number);
    CHECK_EQUAL(version, number);
    self->commits = number;
    return 0;
}

/* The first commits give all units to the objects. */
static int distribute(struct writer *self) {
    fill(&self->values[1], 1, TOTAL);
    fill(&self->values[2], 1, 0);
    return commit_units(self, &self->values[1], &self->values[2]);
}

static int move_unit(struct writer *self) {
    uint64_t n = self->commits;
    uint32_t from = 1 + (uint32_t)(n * 5 % (OBJECTS - 1)), to = 1 + (uint32_t)((n * 3 + 1) % (OBJECTS - 1));
    struct unit_value *giver = &self->values[from], *taker = &self->values[to];
    if (from == to || giver->units == 0) {
        giver = &self->values[1];
        taker = &self->values[2 + n % (OBJECTS - 2)];
    }
    if (giver->units == 0) {
        struct unit_value *other = giver;
        giver = taker;
        taker = other;
    }
    uint64_t moved = giver->units > 0;
    fill(giver, n + 1, giver->units - moved);
    fill(taker, n + 1, taker->units + moved);
    return commit_units(self, giver, taker);
}

static int begin_writing(struct writer *self, const struct remo_node *node, struct remo_versioned *versioned,
                         const struct busy *busy) {
    *self =
        (struct writer){.versioned = versioned,
                        .pause_every = is_mapped(node) ? busy->pause_every : busy->pause_every_over_network,
                        .pause_ms = 1};
    return distribute(self);
}

/* Pause longer if no read has succeeded since the last pause: the machine may be slow. */
static void pause_writing(struct writer *self) {
    uint64_t reads = 0;
    for (uint32_t i = 0; i < TURNS_NODES_MAX; i++)
        reads += atomic_load(&shared->reads[i]);
    self->pause_ms = reads != self->reads ? 1 : self->pause_ms < 100 ? 2 * self->pause_ms : 100;
    self->reads = reads;
    cluster_sleep_ms(self->pause_ms);
}

static int write_step(struct writer *self) {
    CHECK(move_unit(self) == 0);
    if (self->pause_every > 0 && self->commits % self->pause_every == 0)
        pause_writing(self);
    return 0;
}

/* Commit until `readers` nodes are done. */
static int write_on(const struct remo_node *node, struct remo_versioned *versioned, const struct busy *busy,
                    uint32_t readers) {
    struct writer writer;
    CHECK(begin_writing(&writer, node, versioned, busy) == 0);
    while (atomic_load(&shared->done) < readers)
        CHECK(write_step(&writer) == 0);
    return 0;
}

/* ---- readers ---- */

struct reader {
    struct remo_versioned *versioned;
    struct unit_value values[OBJECTS];
    struct remo_versioned_item items[OBJECTS];
    uint64_t newest; /* version that this reader has read */
    uint32_t rank;
};

static void begin_reading(struct reader *self, struct remo_versioned *versioned) {
    *self = (struct reader){.versioned = versioned,
                            .rank = remo_node_rank(remo_channel_node(remo_versioned_channel(versioned)))};
    for (uint32_t i = 0; i < OBJECTS; i++)
        self->items[i] = (struct remo_versioned_item){.object = i, .value = &self->values[i]};
}

/* Check all objects as of `version`. */
static int judge(const struct reader *self, uint64_t version) {
    uint64_t sum = 0;
    CHECK_EQUAL(self->values[0].number, version);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        CHECK(is_whole(&self->values[i]));
        CHECK(self->items[i].version <= version);
        CHECK_EQUAL(self->values[i].number, self->items[i].version);
        sum += self->values[i].units;
    }
    CHECK_EQUAL(sum, version > 0 ? TOTAL : 0);
    return 0;
}

static int read_all(struct reader *self) {
    uint64_t version = 0, committed = atomic_load(&shared->committed);
    CHECK_OK(remo_versioned_read_many(self->versioned, 0, self->items, OBJECTS, &version));
    CHECK(version >= committed && version >= self->newest && version <= atomic_load(&shared->committing));
    self->newest = version;
    atomic_fetch_add(&shared->reads[self->rank], 1);
    return judge(self, version);
}

/* Read one object; object 0 changes in each commit. */
static int read_one(struct reader *self, uint32_t object) {
    uint64_t version = 0, committed = atomic_load(&shared->committed);
    struct unit_value *value = &self->values[object];
    CHECK_OK(remo_versioned_read(self->versioned, 0, object, value, &version));
    CHECK(is_whole(value));
    CHECK_EQUAL(value->number, version);
    CHECK(version <= atomic_load(&shared->committing));
    CHECK(object != 0 || (version >= committed && version >= self->newest));
    if (object == 0)
        self->newest = version;
    atomic_fetch_add(&shared->reads[self->rank], 1);
    return 0;
}

/* The version is not older than one that a read has returned before, nor newer than one read afterwards. */
static int read_version(struct reader *self) {
    uint64_t version = 0, committed = atomic_load(&shared->committed);
    CHECK_OK(remo_versioned_version(self->versioned, 0, &version));
    CHECK(version >= committed && version >= self->newest && version <= atomic_load(&shared->committing));
    self->newest = version;
    return 0;
}

static int read_on(const struct remo_node *node, struct remo_versioned *versioned) {
    struct reader reader;
    begin_reading(&reader, versioned);
    for (uint32_t i = 0, reads = is_mapped(node) ? 3000 : 30; i < reads; i++) {
        CHECK(read_all(&reader) == 0);
        CHECK(read_one(&reader, 0) == 0);
        CHECK(read_version(&reader) == 0);
        CHECK(read_one(&reader, 1 + i % (OBJECTS - 1)) == 0);
    }
    return 0;
}

/* Node 0 writes at full speed, and the others read. */
static int busy_owner(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    CHECK(open_busy(node, ctx, &versioned) == 0);
    if (remo_node_rank(node) == 0) {
        CHECK(write_on(node, versioned, ctx, remo_node_size(node) - 1) == 0);
    } else {
        int result = read_on(node, versioned);
        atomic_fetch_add(&shared->done, 1);
        CHECK_EQUAL(result, 0);
    }
    return close_versioned(versioned);
}

struct writing {
    struct remo_node *node;
    struct remo_versioned *versioned;
    int result;
};

static void *write_in_thread(void *ctx) {
    struct writing *writing = ctx;
    writing->result = write_on(writing->node, writing->versioned, &quick, 1);
    return NULL;
}

/* A thread of the owner reads, beside one that commits. */
static int owner_reads(struct remo_node *node, void *ctx) {
    struct writing writing = {.node = node};
    pthread_t thread;
    (void)ctx;
    CHECK(open_busy(node, &quick, &writing.versioned) == 0);
    CHECK(pthread_create(&thread, NULL, write_in_thread, &writing) == 0);
    int rc = read_on(node, writing.versioned);
    atomic_fetch_add(&shared->done, 1);
    pthread_join(thread, NULL);
    CHECK(rc == 0 && writing.result == 0);
    return close_versioned(writing.versioned);
}

/* ---- a version that two nodes read ---- */

#define SHARED_READS 12u

/* Node 1 passes its version and the contents to node 2, which reads the same version. */
static int pass_version(struct remo_versioned *versioned) {
    struct reader reader;
    begin_reading(&reader, versioned);
    for (uint32_t i = 0; i < SHARED_READS; i++) {
        CHECK(read_all(&reader) == 0);
        memcpy(shared->values, reader.values, sizeof reader.values);
        atomic_store(&shared->version, reader.newest);
        begin_turn(&shared->turns, 2 * i + 1);
        CHECK(reach_turn(&shared->turns, 2 * i + 2) == 0);
    }
    return 0;
}

static int read_passed_version(struct remo_versioned *versioned, uint32_t *done) {
    struct reader reader;
    begin_reading(&reader, versioned);
    uint64_t version = atomic_load(&shared->version);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        int rc =
            remo_versioned_read_at(versioned, 0, i, version, &reader.values[i], &reader.items[i].version);
        CHECK(rc == 0 || rc == -ESTALE);
        if (rc == -ESTALE)
            return 0; /* the owner was faster */
    }
    CHECK(judge(&reader, version) == 0);
    CHECK(memcmp(shared->values, reader.values, sizeof reader.values) == 0);
    ++*done;
    return 0;
}

static int read_passed_versions(struct remo_versioned *versioned) {
    uint32_t done = 0;
    for (uint32_t i = 0; i < SHARED_READS; i++) {
        CHECK(reach_turn(&shared->turns, 2 * i + 1) == 0);
        CHECK(read_passed_version(versioned, &done) == 0);
        begin_turn(&shared->turns, 2 * i + 2);
    }
    CHECK(done > 0);
    return 0;
}

/* Node 0 writes at full speed. */
static int passed_versions(struct remo_node *node, void *ctx) {
    static const struct busy slower = {.log_bytes = 8 * (VALUE_BYTES + 24),
                                       .retain = 8000,
                                       .pause_every = 64,
                                       .pause_every_over_network = 64};
    struct remo_versioned *versioned;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK(open_busy(node, &slower, &versioned) == 0);
    if (rank == 0) {
        CHECK(write_on(node, versioned, &slower, 1) == 0);
    } else if (rank == 1) {
        int result = pass_version(versioned);
        atomic_fetch_add(&shared->done, 1);
        CHECK_EQUAL(result, 0);
    } else {
        CHECK(read_passed_versions(versioned) == 0);
    }
    return close_versioned(versioned);
}

/* ---- an owner that closes, or fails ---- */

static int owner_closes(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {.objects = 2, .object_bytes = VALUE_BYTES};
    struct remo_versioned *versioned;
    unsigned char value[VALUE_BYTES];
    struct remo_versioned_item item = {.value = value};
    uint64_t version = 0;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK(open_versioned(node, &options, &versioned) == 0);
    CHECK_OK(commit_value(versioned, 0, 1 + rank, NULL));
    CHECK_OK(cluster_meet());
    CHECK_OK(remo_versioned_read(versioned, 0, 0, value, NULL));
    CHECK(is_value(value, 0, 1));
    CHECK_OK(cluster_meet());
    if (rank == 0)
        remo_versioned_close(versioned);
    CHECK_OK(cluster_meet());
    if (rank > 0) {
        while (remo_channel_peer(remo_versioned_channel(versioned), 0) == REMO_CHANNEL_CONNECTED)
            cluster_sleep_ms(1);
        CHECK_SENTENCE(remo_versioned_read(versioned, 0, 0, value, NULL), -ENOTCONN, "node 0");
        CHECK_CODE(remo_versioned_read_many(versioned, 0, &item, 1, NULL), -ENOTCONN);
        CHECK_CODE(remo_versioned_read_at(versioned, 0, 0, 1, value, NULL), -ENOTCONN);
        CHECK_CODE(remo_versioned_version(versioned, 0, &version), -ENOTCONN);
        CHECK_OK(commit_value(versioned, 1, 9, NULL)); /* all others are unaffected */
        CHECK_OK(remo_versioned_read(versioned, 3 - rank, 0, value, NULL));
        CHECK(is_value(value, 0, 4 - rank));
        CHECK_OK(cluster_meet());
        remo_versioned_close(versioned);
    } else {
        CHECK_OK(cluster_meet());
    }
    CHECK_OK(cluster_meet());
    return 0;
}

/* Read until the owner is cut off: all values are whole and of one instant until then. */
static int read_until_failure(struct remo_node *node, struct remo_versioned *versioned) {
    struct reader reader;
    uint64_t version = 0;
    int rc;
    begin_reading(&reader, versioned);
    while ((rc = remo_versioned_read_many(versioned, 0, reader.items, OBJECTS, &version)) == 0) {
        CHECK(version >= reader.newest && version <= atomic_load(&shared->committing));
        CHECK(judge(&reader, version) == 0);
        reader.newest = version;
    }
    CHECK_CODE(rc, -EHOSTDOWN);
    cluster_await_cut_off(node, 0);
    CHECK_SENTENCE(remo_versioned_read(versioned, 0, 1, &reader.values[1], NULL), -EHOSTDOWN, "node 0");
    CHECK_CODE(remo_versioned_read_many(versioned, 0, reader.items, OBJECTS, &version), -EHOSTDOWN);
    CHECK_CODE(remo_versioned_read_at(versioned, 0, 1, 1, &reader.values[1], NULL), -EHOSTDOWN);
    CHECK_CODE(remo_versioned_version(versioned, 0, &version), -EHOSTDOWN);
    return 0;
}

/* Node 0 is killed while it commits. */
static int owner_fails(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    (void)ctx;
    CHECK(open_busy(node, &quick, &versioned) == 0);
    CHECK_OK(cluster_meet()); /* all nodes have opened before one fails */
    if (remo_node_rank(node) == 0)
        return write_on(node, versioned, &quick, UINT32_MAX);
    if (remo_node_rank(node) == 1) {
        struct reader reader;
        begin_reading(&reader, versioned);
        while (reader.newest < 1000)
            CHECK(read_all(&reader) == 0);
        CHECK_OK(cluster_kill(0));
    }
    CHECK(read_until_failure(node, versioned) == 0);
    CHECK_OK(cluster_meet());
    remo_versioned_close(versioned);
    return 0;
}

/* A reader fails: the owner and the other reader continue. */
static int reader_fails(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    struct reader reader;
    (void)ctx;
    CHECK(open_busy(node, &quick, &versioned) == 0);
    CHECK_OK(cluster_meet()); /* all nodes have opened before one fails */
    if (remo_node_rank(node) == 0) {
        CHECK(write_on(node, versioned, &quick, 1) == 0);
    } else if (remo_node_rank(node) == 1) {
        begin_reading(&reader, versioned);
        for (;;)
            CHECK(read_all(&reader) == 0);
    } else {
        while (atomic_load(&shared->reads[1]) < 10)
            cluster_sleep_ms(1);
        CHECK_OK(cluster_kill(1));
        int result = read_on(node, versioned);
        atomic_fetch_add(&shared->done, 1);
        CHECK_EQUAL(result, 0);
    }
    CHECK_OK(cluster_meet());
    remo_versioned_close(versioned);
    return 0;
}

/* ---- nodes that pause ---- */

#define STOPS 30u

/* The owner pauses anywhere in a commit: reads continue, and return the state after the last visible
 * commit. */
static int read_of_stopped(struct remo_versioned *versioned) {
    struct reader reader;
    begin_reading(&reader, versioned);
    for (uint32_t i = 0; i < STOPS; i++) {
        uint64_t begin = atomic_load(&shared->committed);
        while (atomic_load(&shared->committed) < begin + 50)
            CHECK(read_one(&reader, 0) == 0);
        pause_node(&shared->turns, 0);
        CHECK(read_all(&reader) == 0);
        uint64_t stopped = reader.newest;
        for (uint32_t k = 0; k < 20; k++) {
            CHECK(read_all(&reader) == 0);
            CHECK(read_one(&reader, 0) == 0);
            CHECK(read_version(&reader) == 0);
            CHECK_EQUAL(reader.newest, stopped);
            CHECK(read_one(&reader, 1 + k % (OBJECTS - 1)) == 0);
        }
        resume_node(&shared->turns, 0);
    }
    return 0;
}

static int owner_stopped(struct remo_node *node, void *ctx) {
    struct remo_versioned *versioned;
    CHECK(open_busy(node, ctx, &versioned) == 0);
    record_process(&shared->turns, remo_node_rank(node));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK(write_on(node, versioned, ctx, 1) == 0);
    } else {
        int result = read_of_stopped(versioned);
        resume_node(&shared->turns, 0);
        atomic_fetch_add(&shared->done, 1);
        CHECK_EQUAL(result, 0);
    }
    return close_versioned(versioned);
}

/* Over a network the owner's process serves reads, so they time out while it is paused. */
static int owner_silent(struct remo_node *node, void *ctx) {
    const struct remo_versioned_options options = {.objects = 2, .object_bytes = VALUE_BYTES};
    struct remo_versioned *versioned;
    unsigned char value[VALUE_BYTES];
    (void)ctx;
    CHECK(open_versioned(node, &options, &versioned) == 0);
    record_process(&shared->turns, remo_node_rank(node));
    if (remo_node_rank(node) == 0)
        CHECK_OK(commit_value(versioned, 0, 1, NULL));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        pause_node(&shared->turns, 0);
        cluster_set_op_timeout(node, SECOND);
        int rc = remo_versioned_read(versioned, 0, 0, value, NULL);
        resume_node(&shared->turns, 0);
        CHECK_CODE(rc, -ETIMEDOUT);
        while ((rc = remo_versioned_read(versioned, 0, 0, value, NULL)) == -ETIMEDOUT)
            continue; /* the owner resumes */
        CHECK_OK(rc);
        CHECK(is_value(value, 0, 1));
    }
    return close_versioned(versioned);
}

#define COMMITS_BESIDE 20000u

static int read_until_done(struct remo_versioned *versioned) {
    struct reader reader;
    unsigned char value[VALUE_BYTES];
    begin_reading(&reader, versioned);
    while (atomic_load(&shared->done) == 0)
        CHECK(read_all(&reader) == 0);
    CHECK(read_all(&reader) == 0);
    CHECK_EQUAL(reader.newest, atomic_load(&shared->committed));
    CHECK_CODE(remo_versioned_read_at(versioned, 0, 0, 1, value, NULL), -ESTALE);
    return 0;
}

/* Node 1 pauses, possibly during a read. Meanwhile the owner uses all its extents many times. No commit
 * fails, and the reader continues. */
static int reader_stopped(struct remo_node *node, void *ctx) {
    static const struct busy beside = {.log_bytes = 4 * (VALUE_BYTES + 24),
                                       .retain = 32,
                                       .pause_every = 256,
                                       .pause_every_over_network = 256};
    struct remo_versioned *versioned;
    struct writer writer;
    (void)ctx;
    CHECK(open_busy(node, &beside, &versioned) == 0);
    record_process(&shared->turns, remo_node_rank(node));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK(read_until_done(versioned) == 0);
        return close_versioned(versioned);
    }
    CHECK(begin_writing(&writer, node, versioned, &beside) == 0);
    for (uint32_t stop = 1; stop <= 4; stop++) {
        while (atomic_load(&shared->reads[1]) < 5 * stop)
            CHECK(write_step(&writer) == 0);
        pause_node(&shared->turns, 1);
        for (uint32_t i = 0; i < COMMITS_BESIDE; i++)
            CHECK(move_unit(&writer) == 0);
        resume_node(&shared->turns, 1);
    }
    atomic_store(&shared->done, 1);
    return close_versioned(versioned);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST_NAMED("busy owner", busy_owner, 3, .ctx = &quick),
        CLUSTER_TEST_NAMED("busy owner, few extents", busy_owner, 3, .ctx = &few),
        CLUSTER_TEST_NAMED("busy owner, one process", busy_owner, 2, .ctx = &quick, .as_threads = 1),
        CLUSTER_TEST(owner_reads, 1),
        CLUSTER_TEST(passed_versions, 3),
        CLUSTER_TEST(owner_closes, 3),
        CLUSTER_TEST(owner_fails, 3),
        CLUSTER_TEST(reader_fails, 3),
        CLUSTER_TEST_NAMED("owner stopped", owner_stopped, 2, .ctx = &quick, .only_on = "shm"),
        CLUSTER_TEST_NAMED("owner stopped, few extents", owner_stopped, 2, .ctx = &few, .only_on = "shm"),
        CLUSTER_TEST(owner_silent, 2, .only_on = "ofi"),
        CLUSTER_TEST(reader_stopped, 2),
        {0},
    };
    return versioned_main(argc, argv, tests);
}
