/* test_open_fails.c - opening a node or an object, with one failure of a call of the system or of the fabric:
 * the first allocation, then the second, and so on; the same for registrations, set-up of the network,
 * threads, mappings and descriptors. The open returns an error with a sentence, leaks nothing, and succeeds
 * the next time. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "../../support/cluster.h"
#include "../../support/failing.h"
#include "../../support/job.h"
#include "base/error.h"

/* Calls are counted in one thread, where their order is always the same. An open may succeed without some
 * descriptors and mappings; every other failed call must be an error. */

#define NEEDS_MAX 2000u /* of one kind, in one open */
#define ARENA_BYTES (32ull << 20)
#define SETTLE_MS 10000u
#define BIG_BYTES (6ull << 20) /* larger than the first segment: the arena grows, and registers memory */

struct subject {
    const char *name;
    /* Returns 0 and the open object, or an error. */
    int (*open)(struct remo_node *node, void **ret_object);
    void (*close)(struct remo_node *node, void *object);
};

/* ---- the objects to open ---- */

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
static const struct remo_tree_options tree_options = {
    .nodes = 4, .node_bytes = 512, .key_bytes_max = 8, .value_bytes_max = 8};
static const struct remo_kv_options kv_options = {.capacity = 4096, .stripes = 16};

SUBJECT(region, BIG_BYTES, NULL)
SUBJECT(atomic_var, NULL)
SUBJECT(owned_var, 100, NULL)
SUBJECT(sst, 100, NULL)
SUBJECT(barrier, NULL)
SUBJECT(lock, &lock_options)
SUBJECT(ringbuffer, NULL)
SUBJECT(queue, NULL)
SUBJECT(heap, NULL)
SUBJECT(kv, &kv_options)
SUBJECT(versioned, NULL)
SUBJECT(tree, &tree_options)

/* A block of the heap, and the state that a thread needs in it. */
static int open_block(struct remo_node *node, void **ret_object) {
    static struct remo_heap *heap; /* stays open if the call fails */
    struct remo_addr addr;
    if (!heap && open_heap(node, (void **)&heap) != 0)
        return -ENOTRECOVERABLE;
    int rc = remo_heap_alloc(heap, 64, 0, &addr);
    *ret_object = heap;
    if (rc == 0)
        heap = NULL;
    return rc;
}

/* The state that a thread needs in a node. */
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

#define MAP_NOT_OPENED (-ENOTRECOVERABLE) /* of open_kv_thread */

/* The state that a thread needs in a map. */
static int open_kv_thread(struct remo_node *node, void **ret_object) {
    static struct remo_kv *kv; /* stays open if the call fails */
    uint64_t key = 1, value = 2;
    if (!kv && open_kv(node, (void **)&kv) != 0)
        return MAP_NOT_OPENED;
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
static const struct subject objects[] = {ENTRY(thread),     ENTRY(buffer),
                                         ENTRY(region),     ENTRY(atomic_var),
                                         ENTRY(owned_var),  ENTRY(sst),
                                         ENTRY(barrier),    ENTRY(lock),
                                         ENTRY(ringbuffer), ENTRY(queue),
                                         ENTRY(kv),         {"kv_thread", open_kv_thread, close_kv},
                                         ENTRY(heap),       {"block", open_block, close_heap},
                                         ENTRY(versioned),  ENTRY(tree)};

/* ---- one attempt, in a new thread, whose state in a node ends with it ---- */

struct attempt {
    const struct subject *subject;
    enum failing kind;
    uint32_t n;                   /* the n-th call fails; 0: no call fails */
    struct remo_node *given_node; /* NULL: the attempt opens a node */
    bool hit;
    int rc;                               /* of the open with the failed call */
    int has_printed_error;                /* 1: an error was printed */
    struct failing_held held_after_close; /* resources after all except the node was closed */
};

static const struct job *job;
static const char *fabric;
static const char *memory_dir; /* of the nodes; NULL: none */

static int open_node(struct remo_node *unused, void **ret_object) {
    /* Small, for speed: segments have the smallest size. */
    const struct remo_config options = {
        .arena_bytes = ARENA_BYTES, .segment_bytes = 1, .memory_dir = memory_dir};
    struct remo_node *node = NULL;
    (void)unused;
    int rc = job_open(job, 0, fabric, &options, &node);
    *ret_object = node;
    return rc;
}

/* Return whether the subject is a thread's first use of a node or a map. */
static bool is_first_use(const struct subject *subject) {
    return subject->open == open_thread || subject->open == open_buffer || subject->open == open_kv_thread;
}

static int judge(const struct attempt *attempt) {
    bool may_succeed = attempt->kind == FAILING_MEMORY || attempt->kind == FAILING_DESCRIPTOR;
    if (!attempt->hit)
        CHECK_EQUAL(attempt->rc, 0);
    else if (attempt->rc == 0)
        CHECK(may_succeed);
    else
        CHECK(attempt->rc < 0 && remo_last_error()[0] != '\0');
    if (attempt->hit && attempt->kind == FAILING_ALLOCATION && is_first_use(attempt->subject)
        && attempt->rc != MAP_NOT_OPENED)
        CHECK_EQUAL(attempt->rc, -ENOMEM);
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
    if (attempt->rc != 0) /* now it must succeed */
        CHECK_OK(subject->open(node, &object));
    subject->close(node, object);
    return 0;
}

static void *run_attempt(void *ctx) {
    struct attempt *attempt = ctx;
    void *node = attempt->given_node;
    if (!node && attempt->subject != &node_subject && open_node(NULL, &node) != 0) {
        attempt->has_printed_error = cluster_fail(__FILE__, __LINE__, "no node: %s", remo_last_error());
        return NULL;
    }
    attempt->has_printed_error = try_open(attempt, node);
    attempt->held_after_close = failing_held();
    if (!attempt->given_node)
        remo_node_close(node);
    return NULL;
}

/* Return 0, or 1 after an error. */
static int attempt_once(struct attempt *attempt) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_attempt, attempt) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    if (attempt->has_printed_error)
        fprintf(stderr, "... %s, %s %u\n", attempt->subject->name, failing_names[attempt->kind], attempt->n);
    return attempt->has_printed_error;
}

static int check_equal(const struct attempt *attempt, const char *when, const struct failing_held *was,
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

/* Repeat the open, until no call is left to fail. */
static int sweep(const struct subject *subject, enum failing kind, uint64_t *ret_refused) {
    struct attempt plain = {.subject = subject};
    if (attempt_once(&plain)) /* also allocates what libraries allocate once */
        return 1;
    struct failing_held before = failing_held();
    for (uint32_t n = 1; n <= NEEDS_MAX; n++) {
        struct attempt attempt = {.subject = subject, .kind = kind, .n = n};
        if (attempt_once(&attempt))
            return 1;
        struct failing_held after = failing_held();
        if (check_equal(&attempt, "in the node", &plain.held_after_close, &attempt.held_after_close)
            || check_equal(&attempt, "when all is closed", &before, &after))
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

/* ---- tests: the cluster's own node only selects the fabric ---- */

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

/* With a memory directory, there is its name to copy, and a file to open. */
static int nodes(struct remo_node *node, void *ctx) {
    uint64_t refused[FAILING_KINDS] = {0}, with_dir[FAILING_KINDS] = {0};
    struct job made;
    (void)ctx;
    if (begin(node, &made) || sweep_kinds(&node_subject, refused))
        return 1;
    memory_dir = "/dev/shm";
    if (sweep_kinds(&node_subject, with_dir))
        return 1;
    memory_dir = NULL;
    job_remove(&made);
    CHECK(refused[FAILING_ALLOCATION] >= 5 && refused[FAILING_REGISTRATION] >= 2);
    return print("node", refused) || print("node with a memory directory", with_dir);
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

/* Messages in flight hold memory for a while: in the end no more is held than before. */
static int await_release(const struct attempt *attempt, struct failing_held *held) {
    struct failing_held is = failing_held();
    for (uint32_t ms = 0; ms < SETTLE_MS && (is.blocks > held->blocks || is.descriptors > held->descriptors);
         ms++) {
        cluster_sleep_ms(1);
        is = failing_held();
    }
    if (is.blocks > held->blocks || is.descriptors > held->descriptors)
        return check_equal(attempt, "when it is closed", held, &is);
    *held = is;
    return 0;
}

/* The same objects with failing allocations, if a peer is notified, which has none of these objects. */
static int sweep_with_peer(const struct subject *subject, struct remo_node *node, uint64_t *ret_refused) {
    struct attempt plain = {.subject = subject, .given_node = node};
    if (attempt_once(&plain))
        return 1;
    struct failing_held held = failing_held();
    for (uint32_t n = 1; n <= NEEDS_MAX; n++) {
        struct attempt attempt = {.subject = subject, .kind = FAILING_ALLOCATION, .n = n, .given_node = node};
        if (attempt_once(&attempt) || await_release(&attempt, &held))
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
