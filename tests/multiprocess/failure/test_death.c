/* test_death.c - four nodes, of which one is killed in the middle of a barrier, or of lock, map or queue
 * operations: each survivor detects the failure, and every operation ends with a correct result. Also the
 * processor time of nodes that only wait. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../support/cluster.h"

/* test_death [--fabric F] [--runs N] [--only barrier|lock|map|queue|idle] [--seconds S] [--seed N]
 *
 * N kills of each kind (default 3), of all four nodes in turn, at random moments. Limits: every survivor
 * detects the failure within 100 ms; four nodes that wait in a barrier use together at most 4 % of one core.
 * Both figures are printed. REMO_TEST_BARS=1 enforces the limits. Without it, the test fails if a call hangs
 * or spins, or a result is wrong. */

#define NODES 4u
#define RUNS_MAX 10000u
#define DETECTION_BAR_NS (SECOND / 10)
#define CPU_BAR 0.04
#define AFTERWARDS 50u /* operations of each survivor after it has detected the failure */

static struct shared {
    uint32_t victim;
    uint64_t delay_ns;
    _Atomic uint64_t killed_ns;
    _Atomic uint64_t detected_ns[NODES]; /* after the kill */
    _Atomic uint32_t owner;              /* of the lock: rank + 1 */
    _Atomic uint64_t cpu_ns, blocked_ns;
    _Atomic uint32_t blocked;
} * shared;

/* ---- the kill ---- */

static void *kill_self(void *ctx) {
    uint64_t at = cluster_now_ns() + shared->delay_ns;
    (void)ctx;
    while (cluster_now_ns() < at)
        continue;
    atomic_store(&shared->killed_ns, cluster_now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}

/* All nodes are up. From here on the victim runs for delay_ns. */
static int begin(struct remo_node *node) {
    pthread_t thread;
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) != shared->victim)
        return 0;
    cluster_expect_death();
    CHECK(pthread_create(&thread, NULL, kill_self, NULL) == 0);
    return 0;
}

static int has_failed(const struct remo_node *node) {
    return remo_node_peer(node, shared->victim) == REMO_PEER_DEAD;
}

static void record_detection(const struct remo_node *node) {
    atomic_store(&shared->detected_ns[remo_node_rank(node)],
                 cluster_now_ns() - atomic_load(&shared->killed_ns));
}

/* ---- barrier ---- */

static int in_barrier(struct remo_node *node, void *ctx) {
    struct remo_barrier *barrier;
    int rc;
    (void)ctx;
    CHECK_OK(remo_barrier_open(remo_node_root(node), "all", NULL, &barrier));
    if (begin(node))
        return 1;
    while ((rc = remo_barrier_wait(barrier, REMO_FOREVER)) == 0)
        continue;
    record_detection(node);
    CHECK_CODE(rc, -EHOSTDOWN);
    CHECK(has_failed(node));
    CHECK_CODE(remo_barrier_wait(barrier, REMO_FOREVER), -EHOSTDOWN);
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* ---- lock ---- */

/* One acquire and release: *ret_rc is 0, or -EHOSTDOWN if the home has failed. The holder is alone, and is
 * notified if the last holder failed. */
static int lock_turn(struct remo_node *node, struct remo_lock *lock, int *ret_rc) {
    uint32_t me = remo_node_rank(node) + 1, before = 0;
    int rc = remo_lock_acquire(lock, 0, REMO_FOREVER);
    *ret_rc = rc;
    if (rc == -EHOSTDOWN) {
        CHECK_EQUAL(shared->victim, remo_lock_home(lock, 0));
        return 0;
    }
    if (rc == -EOWNERDEAD) {
        before = atomic_exchange(&shared->owner, me);
        CHECK(before == 0 || before == shared->victim + 1);
        CHECK_OK(remo_lock_consistent(lock, 0));
    } else {
        CHECK_OK(rc);
        CHECK(atomic_compare_exchange_strong(&shared->owner, &before, me));
    }
    for (volatile uint32_t i = 0; i < 200; i++)
        continue;
    CHECK_EQUAL(atomic_exchange(&shared->owner, 0), me);
    rc = remo_lock_release(lock, 0, REMO_FENCE_NONE);
    CHECK(rc == 0 || (rc == -EHOSTDOWN && shared->victim == remo_lock_home(lock, 0)));
    *ret_rc = rc;
    return 0;
}

static int in_lock(struct remo_node *node, void *ctx) {
    struct remo_lock *lock;
    int rc = 0;
    (void)ctx;
    CHECK_OK(remo_lock_open(remo_node_root(node), "one", NULL, &lock));
    if (begin(node))
        return 1;
    while (rc == 0 && !has_failed(node))
        if (lock_turn(node, lock, &rc))
            return 1;
    record_detection(node);
    for (uint32_t i = 0; i < AFTERWARDS; i++)
        if (lock_turn(node, lock, &rc))
            return 1;
    CHECK_OK(cluster_meet());
    remo_lock_close(lock);
    return 0;
}

/* ---- map ---- */

#define KEYS 64u

/* The keys that only this node changes. */
struct own_keys {
    struct remo_kv *kv;
    uint32_t rank, state;
    uint64_t value[KEYS];            /* 0: absent */
    bool is_unknown[KEYS];           /* an error left it unknown whether the last change was applied */
    uint64_t value_if_applied[KEYS]; /* the value if it was */
};

static uint32_t dice(uint32_t *state, uint32_t limit) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % limit;
}

static int check_value(struct own_keys *own_keys, uint32_t i) {
    uint32_t key[2] = {own_keys->rank, i};
    uint64_t value = 0;
    size_t bytes = 0;
    int rc = remo_kv_get(own_keys->kv, key, sizeof key, &value, sizeof value, &bytes);
    if (rc == -EHOSTDOWN && own_keys->is_unknown[i])
        return 0;
    CHECK(rc == 0 || rc == -ENOENT);
    if (rc == -ENOENT)
        value = 0;
    CHECK(value == own_keys->value[i] || (own_keys->is_unknown[i] && value == own_keys->value_if_applied[i]));
    if (own_keys->is_unknown[i] && value == own_keys->value_if_applied[i])
        own_keys->value[i] = value;
    return 0;
}

static int change_value(struct own_keys *own_keys, uint32_t i) {
    uint32_t key[2] = {own_keys->rank, i};
    uint64_t value = (uint64_t)own_keys->rank << 32 | dice(&own_keys->state, 1u << 20) | 1u << 20;
    bool is_present = own_keys->value[i] != 0, delete = is_present && dice(&own_keys->state, 3) == 0;
    int rc;
    if (own_keys->is_unknown[i])
        return 0; /* its stripe or its slot was lost with the failed node */
    if (delete)
        rc = remo_kv_delete(own_keys->kv, key, sizeof key);
    else if (is_present)
        rc = remo_kv_update(own_keys->kv, key, sizeof key, &value, sizeof value);
    else
        rc = remo_kv_insert(own_keys->kv, key, sizeof key, &value, sizeof value);
    CHECK(rc == 0 || rc == -EHOSTDOWN);
    own_keys->is_unknown[i] = rc != 0;
    own_keys->value_if_applied[i] = delete ? 0 : value;
    if (rc == 0)
        own_keys->value[i] = own_keys->value_if_applied[i];
    return 0;
}

/* Change a key of this node, get it, and get a key of any node. */
static int map_turn(struct own_keys *own_keys) {
    uint32_t i = dice(&own_keys->state, KEYS), key[2] = {dice(&own_keys->state, NODES), i};
    uint64_t value;
    size_t bytes;
    if (change_value(own_keys, i) || check_value(own_keys, i))
        return 1;
    int rc = remo_kv_get(own_keys->kv, key, sizeof key, &value, sizeof value, &bytes);
    CHECK(rc == 0 || rc == -ENOENT || rc == -EHOSTDOWN);
    CHECK(rc != 0 || value >> 32 == key[0]);
    return 0;
}

static int in_map(struct remo_node *node, void *ctx) {
    struct own_keys *own_keys = calloc(1, sizeof *own_keys);
    struct remo_kv_options options = {
        .capacity = 2048, .key_bytes_max = 8, .value_bytes_max = 8, .stripes = 16};
    (void)ctx;
    own_keys->rank = remo_node_rank(node);
    own_keys->state = (uint32_t)shared->delay_ns + own_keys->rank;
    CHECK_OK(remo_kv_open(remo_node_root(node), "map", &options, &own_keys->kv));
    if (begin(node))
        return 1;
    while (!has_failed(node))
        if (map_turn(own_keys))
            return 1;
    record_detection(node);
    for (uint32_t i = 0; i < AFTERWARDS; i++)
        if (map_turn(own_keys))
            return 1;
    for (uint32_t i = 0; i < KEYS; i++) /* acknowledged values are present: their slots are on this node */
        if (check_value(own_keys, i))
            return 1;
    CHECK_OK(cluster_meet());
    remo_kv_close(own_keys->kv);
    free(own_keys);
    return 0;
}

/* ---- queue ---- */

/* Push and pop one element. Unless a node fails, neither call waits for long. */
static int queue_turn(struct remo_queue *queue, uint64_t number, int *ret_rc) {
    uint64_t element[2] = {number, ~number};
    size_t bytes = 0;
    int rc = remo_queue_push(queue, element, sizeof element, REMO_FOREVER);
    CHECK(rc == 0 || rc == -EHOSTDOWN);
    *ret_rc = rc;
    if (rc != 0)
        return 0;
    uint8_t buffer[64];
    rc = remo_queue_pop(queue, buffer, sizeof buffer, &bytes, SECOND);
    CHECK(rc == 0 || rc == -EHOSTDOWN
          || rc == -ETIMEDOUT); /* the element may have been lost with the failed node */
    *ret_rc = rc == -EHOSTDOWN ? rc : 0;
    if (rc != 0)
        return 0;
    memcpy(element, buffer, sizeof element);
    CHECK(bytes == sizeof element && element[1] == ~element[0]);
    return 0;
}

static int in_queue(struct remo_node *node, void *ctx) {
    struct remo_queue *queue;
    uint64_t number = (uint64_t)remo_node_rank(node) << 32;
    int rc = 0;
    (void)ctx;
    CHECK_OK(remo_queue_open(remo_node_root(node), "work", NULL, &queue));
    if (begin(node))
        return 1;
    while (rc == 0 && !has_failed(node))
        if (queue_turn(queue, number++, &rc))
            return 1;
    record_detection(node);
    for (uint32_t i = 0; i < AFTERWARDS; i++)
        if (queue_turn(queue, number++, &rc))
            return 1;
    if (shared->victim != 0)
        CHECK_OK(rc); /* after one error, the queue continues without the slots of the failed node */
    else
        CHECK_CODE(rc, -EHOSTDOWN);
    CHECK_OK(cluster_meet());
    remo_queue_close(queue);
    return 0;
}

/* ---- idle ---- */

/* Four nodes wait in a barrier for a fifth, which sleeps. */
static int idle(struct remo_node *node, void *ctx) {
    const uint32_t *seconds = ctx;
    struct remo_barrier *barrier;
    bool sleeper = remo_node_rank(node) == NODES;
    CHECK_OK(remo_barrier_open(remo_node_root(node), "all", NULL, &barrier));
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    CHECK_OK(remo_barrier_wait(barrier, REMO_FOREVER));
    CHECK_OK(cluster_meet());
    uint64_t cpu = cluster_processor_ns(), start = cluster_now_ns();
    if (sleeper)
        cluster_sleep_ms(1000 * *seconds);
    CHECK_OK(remo_barrier_wait(barrier, REMO_FOREVER));
    atomic_fetch_add(&shared->cpu_ns, cluster_processor_ns() - cpu);
    atomic_store(&shared->blocked_ns, cluster_now_ns() - start);
    CHECK_OK(cluster_meet());
    remo_barrier_close(barrier);
    return 0;
}

/* ---- the program ---- */

struct arguments {
    const char *fabric, *only;
    uint32_t runs, seconds, seed;
};

static int parse(int argc, char **argv, struct arguments *arguments) {
    static const struct option options[] = {
        {"fabric", required_argument, NULL, 'f'}, {"runs", required_argument, NULL, 'r'},
        {"only", required_argument, NULL, 'o'},   {"seconds", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, 'd'},   {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'f': arguments->fabric = optarg; break;
        case 'o': arguments->only = optarg; break;
        case 'r': arguments->runs = (uint32_t)atoi(optarg); break;
        case 's': arguments->seconds = (uint32_t)atoi(optarg); break;
        case 'd': arguments->seed = (uint32_t)atoi(optarg); break;
        default: return 1;
        }
    }
    return arguments->runs > RUNS_MAX;
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int run_kind(const struct cluster_test *test, const struct arguments *arguments) {
    static uint64_t worst[RUNS_MAX];
    uint32_t state = arguments->seed, beyond = 0;
    if (arguments->only && strcmp(arguments->only, test->name) != 0)
        return 0;
    for (uint32_t run = 0; run < arguments->runs; run++) {
        memset(shared, 0, sizeof *shared);
        shared->victim = (run + state) % NODES;
        shared->delay_ns = dice(&state, 1u << 22); /* up to 4 ms */
        int result = cluster_run(test, arguments->fabric);
        if (result != 0) {
            fprintf(stderr, "run %u, of node %u after %llu ns\n", run, shared->victim,
                    (unsigned long long)shared->delay_ns);
            return result;
        }
        worst[run] = 0;
        for (uint32_t rank = 0; rank < NODES; rank++)
            worst[run] = shared->detected_ns[rank] > worst[run] ? shared->detected_ns[rank] : worst[run];
        beyond += worst[run] > DETECTION_BAR_NS;
    }
    qsort(worst, arguments->runs, sizeof worst[0], by_size);
    uint64_t last = arguments->runs ? worst[arguments->runs - 1] : 0;
    printf("%-4s %s %s: %u kills; the last survivor detected the failure after %.2f ms (median), %.2f ms "
           "(worst); %u beyond the limit of %.0f ms\n",
           in_time(last, DETECTION_BAR_NS) ? "ok" : "FAIL", arguments->fabric, test->name, arguments->runs,
           (double)worst[arguments->runs / 2] / 1e6, (double)last / 1e6, beyond,
           (double)DETECTION_BAR_NS / 1e6);
    fflush(stdout);
    return !in_time(last, DETECTION_BAR_NS);
}

static int run_idle(struct arguments *arguments) {
    struct cluster_test test = CLUSTER_TEST(idle, NODES + 1, .ctx = &arguments->seconds,
                                            .timeout_ns = (150 + arguments->seconds) * SECOND);
    if (arguments->only && strcmp(arguments->only, test.name) != 0)
        return 0;
    memset(shared, 0, sizeof *shared);
    int result = cluster_run(&test, arguments->fabric);
    if (result != 0)
        return result;
    double part = (double)shared->cpu_ns / (double)shared->blocked_ns;
    bool slept = slept_through(shared->cpu_ns, shared->blocked_ns, CPU_BAR);
    printf("%-4s %s idle: %u nodes blocked in a barrier for %u s used %.2f %% of one core; the limit is %.0f "
           "%%\n",
           slept ? "ok" : "FAIL", arguments->fabric, NODES, arguments->seconds, 100 * part, 100 * CPU_BAR);
    return !slept;
}

int main(int argc, char **argv) {
    static const struct cluster_test kinds[] = {
        CLUSTER_TEST_NAMED("barrier", in_barrier, NODES), CLUSTER_TEST_NAMED("lock", in_lock, NODES),
        CLUSTER_TEST_NAMED("map", in_map, NODES), CLUSTER_TEST_NAMED("queue", in_queue, NODES)};
    struct arguments arguments = {.fabric = "shm", .runs = 3, .seconds = 2, .seed = 1};
    if (parse(argc, argv, &arguments) != 0)
        return 2;
    shared = cluster_shared(sizeof *shared);
    int result = 0;
    for (uint32_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int one = run_kind(&kinds[i], &arguments);
        if (one == 77)
            return 77;
        result |= one;
    }
    return result | run_idle(&arguments);
}
