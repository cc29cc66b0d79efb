/* test_versioned_reads.c - reads of versioned objects between real nodes: earlier versions, several owners,
 * an owner that is late or absent, threads that commit, many objects in a call, tasks whose reads overlap. */
#include "versioned_common.h"

/* ---- earlier versions ---- */

#define MORE 5u

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

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(old_versions, 3),
        CLUSTER_TEST(versions_between, 2),
        CLUSTER_TEST(owners, 3),
        CLUSTER_TEST(late_owner, 3),
        CLUSTER_TEST(absent_owner, 2),
        CLUSTER_TEST(owner_threads, 3),
        CLUSTER_TEST(many_objects, 3),
        CLUSTER_TEST(tasks, 2),
        {0},
    };
    return versioned_main(argc, argv, tests);
}
