/* test_open_fails.c - what a node and each object need from below to open is refused once, each time another
 * piece of it: the first allocation, then the second, and so on until all are through; the same with
 * registrations of memory, with the network's set-up, threads, mappings and descriptors. An error with a
 * sentence comes out, nothing is lost, and what failed to open opens the next time.
 *
 * Counted are the calls of one thread, which are the same each time. Of a descriptor or a mapping the library
 * may do without some: all else must be an error. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "../support/cluster.h"
#include "../support/failing.h"
#include "../support/job.h"
#include "base/error.h"

#define NEEDS_MAX 2000u /* of one kind, for one open */
#define ARENA_BYTES (32ull << 20)
#define SETTLE_MS 10000u
#define BIG_BYTES (6ull << 20) /* more than the first segment: the arena grows, and registers */

struct subject {
    const char *name;
    /* 0: *ret_object is open. Or an error. */
    int (*open)(struct remo_node *node, void **ret_object);
    void (*close)(struct remo_node *node, void *object);
};

/* ---- what is opened ---- */

#define SUBJECT(object, ...)                                                                 \
    static int open_##object(struct remo_node *node, void **ret_object) {                    \
        struct remo_##object *object = NULL;                                                 \
        int rc = remo_##object##_open(remo_node_root(node), "name", ##__VA_ARGS__, &object); \
        *ret_object = object;                                                                \
        return rc;                                                                           \
    }                                                                                        \
    static void close_##object(struct remo_node *node, void *object) {                       \
        (void)node;                                                                          \
        remo_##object##_close(object);                                                       \
    }

static const struct remo_lock_options lock_options = {.count = 100};
static const struct remo_kv_options kv_options = {.capacity = 4096, .stripes = 16};

SUBJECT(region, BIG_BYTES, NULL)
SUBJECT(atomic_var, NULL)
SUBJECT(owned_var, 100, NULL)
SUBJECT(sst, 100, NULL)
SUBJECT(barrier, NULL)
SUBJECT(lock, &lock_options)
SUBJECT(ringbuffer, NULL)
SUBJECT(queue, NULL)
SUBJECT(kv, &kv_options)

/* What a thread needs at a node. */
static int open_thread(struct remo_node *node, void **ret_object) {
    *ret_object = node;
    return remo_fence(node, REMO_FENCE_THREAD, 0);
}

static void close_thread(struct remo_node *node, void *object) {
    (void)node, (void)object;
}

static int open_buffer(struct remo_node *node, void **ret_object) {
    return remo_buffer_get(node, ret_object);
}

static void close_buffer(struct remo_node *node, void *object) {
    remo_buffer_put(node, object);
}

/* What a thread needs at a map. */
static int open_kv_thread(struct remo_node *node, void **ret_object) {
    static struct remo_kv *kv; /* stays open where the call fails */
    uint64_t key = 1, value = 2;
    if (!kv && open_kv(node, (void **)&kv) != 0)
        return -ENOTRECOVERABLE;
    int rc = remo_kv_insert(kv, &key, sizeof key, &value, sizeof value);
    *ret_object = kv;
    if (rc == 0)
        kv = NULL;
    return rc;
}

static int open_node(struct remo_node *unused, void **ret_object);

static void close_node(struct remo_node *unused, void *object) {
    (void)unused;
    remo_node_close(object);
}

#define ENTRY(object) \
    { #object, open_##object, close_##object }
static const struct subject node_subject = ENTRY(node);
static const struct subject objects[] = {
    ENTRY(thread),     ENTRY(buffer), ENTRY(region),  ENTRY(atomic_var),
    ENTRY(owned_var),  ENTRY(sst),    ENTRY(barrier), ENTRY(lock),
    ENTRY(ringbuffer), ENTRY(queue),  ENTRY(kv),      {"kv_thread", open_kv_thread, close_kv}};

/* ---- one attempt, in a thread of its own, whose part of a node ends with it ---- */

struct attempt {
    const struct subject *subject;
    enum failing kind;
    uint32_t n;              /* 0: nothing fails */
    struct remo_node *given; /* NULL: the attempt has a node of its own */
    bool hit;
    int rc;                     /* of the open that something was refused */
    int problem;                /* 1: told already */
    struct failing_held inside; /* when all but the node was closed again */
};

static const struct job *job;
static const char *fabric;

static int open_node(struct remo_node *unused, void **ret_object) {
    /* Small, since it is done often: segments are the smallest there are. */
    const struct remo_config options = {.arena_bytes = ARENA_BYTES, .segment_bytes = 1};
    struct remo_node *node = NULL;
    (void)unused;
    int rc = job_open(job, 0, fabric, &options, &node);
    *ret_object = node;
    return rc;
}

static int judge(const struct attempt *attempt) {
    bool may_do_without = attempt->kind == FAILING_MEMORY || attempt->kind == FAILING_DESCRIPTOR;
    if (!attempt->hit)
        CHECK_EQUAL(attempt->rc, 0);
    else if (attempt->rc == 0)
        CHECK(may_do_without);
    else
        CHECK(attempt->rc < 0 && remo_last_error()[0] != '\0');
    return 0;
}

static int try_open(struct attempt *attempt, struct remo_node *node) {
    const struct subject *subject = attempt->subject;
    void *object = NULL;
    (void)remo__fail_static(-EIO, "");
    failing_arm(attempt->kind, attempt->n);
    attempt->rc = subject->open(node, &object);
    attempt->hit = failing_disarm();
    if (judge(attempt) != 0)
        return 1;
    if (attempt->rc != 0) /* now it must open */
        CHECK_OK(subject->open(node, &object));
    subject->close(node, object);
    return 0;
}

static void *run_attempt(void *ctx) {
    struct attempt *attempt = ctx;
    void *node = attempt->given;
    if (!node && attempt->subject != &node_subject && open_node(NULL, &node) != 0) {
        attempt->problem = cluster_fail(__FILE__, __LINE__, "no node: %s", remo_last_error());
        return NULL;
    }
    attempt->problem = try_open(attempt, node);
    attempt->inside = failing_held();
    if (!attempt->given)
        remo_node_close(node);
    return NULL;
}

/* 0, or 1 when something is wrong. */
static int attempt_once(struct attempt *attempt) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_attempt, attempt) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    if (attempt->problem)
        fprintf(stderr, "... %s, %s %u\n", attempt->subject->name, failing_names[attempt->kind], attempt->n);
    return attempt->problem;
}

static int same(const struct attempt *attempt, const char *when, const struct failing_held *was,
                const struct failing_held *is) {
    if (was->blocks == is->blocks && was->mapped_bytes == is->mapped_bytes
        && was->descriptors == is->descriptors)
        return 0;
    return cluster_fail(
        __FILE__, __LINE__,
        "%s, %s %u, %s: %llu blocks, %llu bytes mapped, %u descriptors; before: %llu, %llu, %u",
        attempt->subject->name, failing_names[attempt->kind], attempt->n, when,
        (unsigned long long)is->blocks, (unsigned long long)is->mapped_bytes, is->descriptors,
        (unsigned long long)was->blocks, (unsigned long long)was->mapped_bytes, was->descriptors);
}

/* Until there is nothing left to refuse. */
static int sweep(const struct subject *subject, enum failing kind, uint64_t *ret_refused) {
    struct attempt plain = {.subject = subject};
    if (attempt_once(&plain)) /* also: what libraries make once */
        return 1;
    struct failing_held before = failing_held();
    for (uint32_t n = 1; n <= NEEDS_MAX; n++) {
        struct attempt attempt = {.subject = subject, .kind = kind, .n = n};
        if (attempt_once(&attempt))
            return 1;
        struct failing_held after = failing_held();
        if (same(&attempt, "in the node", &plain.inside, &attempt.inside)
            || same(&attempt, "when all is closed", &before, &after))
            return 1;
        if (!attempt.hit)
            return 0;
        ++*ret_refused;
    }
    return cluster_fail(__FILE__, __LINE__, "%s needs more than %u of %s", subject->name, NEEDS_MAX,
                        failing_names[kind]);
}

static int sweep_kinds(const struct subject *subject, uint64_t refused[FAILING_KINDS]) {
    for (uint32_t kind = 1; kind < FAILING_KINDS; kind++)
        if (sweep(subject, (enum failing)kind, &refused[kind]))
            return 1;
    return 0;
}

/* ---- tests: the cluster's own node only says which fabric ---- */

static int begin(struct remo_node *node, struct job *made) {
    CHECK_OK(job_make(made, 1));
    job = made;
    fabric = remo_node_fabric(node);
    return 0;
}

static int print(const char *name, const uint64_t refused[FAILING_KINDS]) {
    printf("%s:", name);
    for (uint32_t kind = 1; kind < FAILING_KINDS; kind++)
        printf(" %llu %ss", (unsigned long long)refused[kind], failing_names[kind]);
    printf(" refused\n");
    return 0;
}

static int nodes(struct remo_node *node, void *ctx) {
    uint64_t refused[FAILING_KINDS] = {0};
    struct job made;
    (void)ctx;
    if (begin(node, &made) || sweep_kinds(&node_subject, refused))
        return 1;
    job_remove(&made);
    CHECK(refused[FAILING_ALLOCATION] >= 5 && refused[FAILING_REGISTRATION] >= 2);
    return print("node", refused);
}

static int all_objects(struct remo_node *node, void *ctx) {
    uint64_t refused[FAILING_KINDS] = {0};
    struct job made;
    (void)ctx;
    if (begin(node, &made))
        return 1;
    for (uint32_t i = 0; i < sizeof objects / sizeof objects[0]; i++)
        if (sweep_kinds(&objects[i], refused))
            return 1;
    job_remove(&made);
    CHECK(refused[FAILING_ALLOCATION] >= 50 && refused[FAILING_REGISTRATION] >= 4);
    return print("objects", refused);
}

/* Messages that are on their way hold memory for a while: no more than before is held in the end. */
static int settle(const struct attempt *attempt, struct failing_held *held) {
    struct failing_held is = failing_held();
    for (uint32_t ms = 0; ms < SETTLE_MS && (is.blocks > held->blocks || is.descriptors > held->descriptors);
         ms++) {
        cluster_sleep_ms(1);
        is = failing_held();
    }
    if (is.blocks > held->blocks || is.descriptors > held->descriptors)
        return same(attempt, "when it is closed", held, &is);
    *held = is;
    return 0;
}

/* The same objects where there is a peer to be told, which has none of them: allocations. */
static int sweep_with_peer(const struct subject *subject, struct remo_node *node, uint64_t *ret_refused) {
    struct attempt plain = {.subject = subject, .given = node};
    if (attempt_once(&plain))
        return 1;
    struct failing_held held = failing_held();
    for (uint32_t n = 1; n <= NEEDS_MAX; n++) {
        struct attempt attempt = {.subject = subject, .kind = FAILING_ALLOCATION, .n = n, .given = node};
        if (attempt_once(&attempt) || settle(&attempt, &held))
            return 1;
        if (!attempt.hit)
            return 0;
        ++*ret_refused;
    }
    return cluster_fail(__FILE__, __LINE__, "%s needs more than %u", subject->name, NEEDS_MAX);
}

static int with_peer(struct remo_node *node, void *ctx) {
    const struct remo_config options = {.arena_bytes = ARENA_BYTES, .segment_bytes = 1};
    struct job_node nodes[2];
    uint64_t refused[FAILING_KINDS] = {0};
    struct job made;
    (void)ctx;
    CHECK_OK(job_make(&made, 2));
    for (uint32_t i = 0; i < 2; i++)
        nodes[i] =
            (struct job_node){.job = &made, .rank = i, .fabric = remo_node_fabric(node), .options = &options};
    CHECK_OK(job_open_all(nodes, 2));
    for (uint32_t i = 0; i < sizeof objects / sizeof objects[0]; i++)
        if (objects[i].open != open_kv_thread
            && sweep_with_peer(&objects[i], nodes[0].node, &refused[FAILING_ALLOCATION]))
            return 1;
    job_close_all(nodes, 2);
    job_remove(&made);
    CHECK(refused[FAILING_ALLOCATION] >= 50);
    return print("objects with a peer", refused);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(nodes, 1), CLUSTER_TEST(all_objects, 1), CLUSTER_TEST(with_peer, 1), {0}};
    return cluster_main(argc, argv, tests, NULL);
}
