/* test_task_waits.c - tasks of one thread whose waits affect each other: a mutex, deadlines, a pin, a fence,
 * operations on the node itself, an ack, a condition that calls the library, many tasks that are served in
 * turn, tasks that park all the time, the wait of the thread after its last task, a stack of the minimum
 * size. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/pause.h"
#include "remote/scheduler.h"
#include "remote/slots.h"

static int end_at_once(void *ctx) {
    (void)ctx;
    return 0;
}

static int run_two(struct remo_scheduler *scheduler, int (*first)(void *ctx), int (*second)(void *ctx),
                   void *ctx) {
    remo_task_id ids[2];
    CHECK_OK(remo_task_spawn(scheduler, first, ctx, &ids[0]));
    CHECK_OK(remo_task_spawn(scheduler, second, ctx, &ids[1]));
    for (int i = 0; i < 2; i++) {
        int result = -1;
        CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, &result));
        CHECK_CODE(result, 0);
    }
    return 0;
}

/* ---- mutex: a condition must not acquire it for a task that does not run ---- */

#define VALUE_BYTES (256u << 10) /* verified in a buffer that a mutex protects */
#define LOADS 2000u

struct loading {
    struct remo_owned_var *var;
    atomic_bool has_ended;
};

static void *load_in_thread(void *ctx) {
    struct loading *loading = ctx;
    char *value = malloc(VALUE_BYTES);
    while (value && !atomic_load(&loading->has_ended))
        (void)remo_owned_var_load(loading->var, value);
    free(value);
    return NULL;
}

static int load_in_task(void *ctx) {
    struct loading *loading = ctx;
    char *value = malloc(VALUE_BYTES);
    CHECK(value);
    for (uint32_t i = 0; i < LOADS; i++) {
        CHECK_OK(remo_owned_var_load(loading->var, value));
        remo_task_yield();
    }
    atomic_store(&loading->has_ended, true);
    free(value);
    return 0;
}

/* The value never changes. */
static int wait_for_change(void *ctx) {
    struct loading *loading = ctx;
    char *zero = calloc(1, VALUE_BYTES);
    CHECK(zero);
    while (!atomic_load(&loading->has_ended))
        CHECK_CODE(remo_owned_var_wait(loading->var, zero, NULL, 1000000), -ETIMEDOUT);
    free(zero);
    return 0;
}

static int mutex(struct remo_node *node, void *ctx) {
    struct loading loading = {.has_ended = false};
    struct remo_scheduler *scheduler;
    pthread_t thread;
    (void)ctx;
    CHECK_OK(remo_owned_var_open(remo_node_root(node), "var", VALUE_BYTES, NULL, &loading.var));
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK(pthread_create(&thread, NULL, load_in_thread, &loading) == 0);
    CHECK(run_two(scheduler, load_in_task, wait_for_change, &loading) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(remo_scheduler_close(scheduler));
    remo_owned_var_close(loading.var);
    return 0;
}

/* ---- deadlines: a condition that holds at its deadline has not timed out ---- */

#define WAITS 12u /* more than a check of the conditions includes */

struct flag {
    struct remo_sst *sst;
    bool is_set;
};

static int is_set(void *ctx, struct remo_sst *sst) {
    (void)sst;
    return ((const struct flag *)ctx)->is_set;
}

static int wait_for_flag(void *ctx) {
    struct flag *flag = ctx;
    return remo_sst_wait(flag->sst, is_set, flag, 2 * SECOND);
}

static int deadlines(struct remo_node *node, void *ctx) {
    struct flag flag = {.is_set = false};
    struct remo_scheduler *scheduler;
    remo_task_id ids[WAITS];
    (void)ctx;
    CHECK_OK(remo_sst_open(remo_node_root(node), "sst", 8, NULL, &flag.sst));
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    for (uint32_t i = 0; i < WAITS; i++)
        CHECK_OK(remo_task_spawn(scheduler, wait_for_flag, &flag, &ids[i]));
    remo_task_yield(); /* the tasks park */
    flag.is_set = true;
    usleep(2500000); /* without a check, until the deadlines have passed */
    for (uint32_t i = 0; i < WAITS; i++) {
        int result = -1;
        CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, &result));
        CHECK_CODE(result, 0);
    }
    CHECK_OK(remo_scheduler_close(scheduler));
    remo_sst_close(flag.sst);
    return 0;
}

/* ---- pins: a thread is pinned while one of its tasks is ---- */

static char buffer[1u << 20];

struct pinning {
    struct remo_heap *heap;
    struct remo_region *region;
    bool has_written, has_unpinned;
};

static int write_and_unpin(void *ctx) {
    struct pinning *pinning = ctx;
    CHECK_OK(remo_heap_pin(pinning->heap));
    for (int i = 0; i < 8; i++)
        CHECK_OK(remo_region_write(pinning->region, 1, 0, buffer, sizeof buffer, 0, NULL));
    pinning->has_written = true;
    CHECK_OK(remo_heap_unpin(pinning->heap)); /* parks in its fence */
    pinning->has_unpinned = true;
    return 0;
}

/* Pin while the other task unpins. */
static int pin_and_retire(void *ctx) {
    struct pinning *pinning = ctx;
    struct remo_addr block;
    CHECK_OK(remo_heap_alloc(pinning->heap, 64, 0, &block));
    while (!pinning->has_written)
        remo_task_yield();
    CHECK_OK(remo_heap_pin(pinning->heap));
    while (!pinning->has_unpinned)
        remo_task_yield();
    CHECK_OK(remo_heap_retire(pinning->heap, block));
    CHECK_CODE(remo_heap_reclaim(pinning->heap, 0), -ETIMEDOUT);
    CHECK_OK(remo_heap_unpin(pinning->heap));
    CHECK_OK(remo_heap_reclaim(pinning->heap, 100 * SECOND));
    CHECK_CODE(remo_heap_unpin(pinning->heap), -EINVAL);
    return 0;
}

static int pins(struct remo_node *node, void *ctx) {
    struct pinning pinning = {.has_written = false};
    struct remo_channel *root = remo_node_root(node);
    struct remo_scheduler *scheduler;
    (void)ctx;
    CHECK_OK(remo_heap_open(root, "heap", NULL, &pinning.heap));
    CHECK_OK(remo_region_open(root, "region", sizeof buffer, NULL, &pinning.region));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
        CHECK(run_two(scheduler, write_and_unpin, pin_and_retire, &pinning) == 0);
        CHECK_OK(remo_scheduler_close(scheduler));
    }
    CHECK_OK(cluster_meet());
    remo_region_close(pinning.region);
    remo_heap_close(pinning.heap);
    return 0;
}

/* ---- fences: a fence waits only for operations that precede it ---- */

#define FENCES 20u

struct fencing {
    struct remo_node *node;
    struct remo_region *region;
    bool has_ended;
};

/* Keep operations in flight until the other task has ended. */
static int read_on(void *ctx) {
    struct fencing *fencing = ctx;
    struct remo_ack acks[2] = {REMO_ACK_INIT, REMO_ACK_INIT};
    uint64_t words[2];
    for (uint32_t i = 0; !fencing->has_ended; i++) {
        CHECK_OK(remo_region_read(fencing->region, 1, 0, &words[i % 2], 8, &acks[i % 2]));
        CHECK_OK(remo_ack_wait(&acks[(i + 1) % 2], REMO_FOREVER));
        remo_task_yield(); /* a fabric that completes operations at once never parks the task */
    }
    CHECK_OK(remo_ack_wait(&acks[0], REMO_FOREVER));
    CHECK_OK(remo_ack_wait(&acks[1], REMO_FOREVER));
    return 0;
}

static int write_and_fence(void *ctx) {
    struct fencing *fencing = ctx;
    for (uint64_t i = 1; i <= FENCES; i++) {
        uint64_t word = 0;
        CHECK_OK(remo_region_write(fencing->region, 1, 8, &i, sizeof i, 0, NULL));
        CHECK_OK(remo_fence(fencing->node, REMO_FENCE_THREAD, 0));
        CHECK_OK(remo_region_read(fencing->region, 1, 8, &word, sizeof word, NULL));
        CHECK_EQUAL(word, i);
    }
    fencing->has_ended = true;
    return 0;
}

static int fences(struct remo_node *node, void *ctx) {
    struct fencing fencing = {.node = node};
    struct remo_scheduler *scheduler;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 16, NULL, &fencing.region));
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
        CHECK(run_two(scheduler, read_on, write_and_fence, &fencing) == 0);
        CHECK_OK(remo_scheduler_close(scheduler));
    }
    CHECK_OK(cluster_meet());
    remo_region_close(fencing.region);
    return 0;
}

/* ---- own: the node's operations on itself keep their order, although some are executed at once ---- */

static int write_to_itself(void *ctx) {
    struct fencing *fencing = ctx;
    uint32_t rank = remo_node_rank(fencing->node);
    for (uint64_t i = 1, word = 0; i <= 100; i++) {
        CHECK_OK(remo_region_write_immediate(fencing->region, rank, 0, &i, sizeof i, 1, NULL));
        CHECK_OK(remo_region_read(fencing->region, rank, 0, &word, sizeof word, NULL));
        CHECK_EQUAL(word, i);
        CHECK_OK(remo_region_write(fencing->region, rank, 0, &(uint64_t){0}, sizeof word, 0, NULL));
        CHECK_OK(remo_region_fetch_add(fencing->region, rank, 0, i, &word, NULL));
        CHECK_EQUAL(word, 0);
        CHECK_OK(remo_fence(fencing->node, REMO_FENCE_THREAD, 0));
    }
    return 0;
}

static int own(struct remo_node *node, void *ctx) {
    struct fencing fencing = {.node = node};
    struct remo_scheduler *scheduler;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", 16, NULL, &fencing.region));
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK(run_two(scheduler, write_to_itself, end_at_once, &fencing) == 0);
    CHECK_OK(remo_scheduler_close(scheduler));
    CHECK_OK(cluster_meet());
    remo_region_close(fencing.region);
    return 0;
}

/* ---- acks: another task joins or cancels the ack for which a task waits ---- */

struct acks {
    struct remo_region *region;
    struct remo_ack awaited, other;
};

static int wait_for_ack(void *ctx) {
    struct acks *acks = ctx;
    return remo_ack_wait(&acks->awaited, REMO_FOREVER);
}

static int cancel_ack(void *ctx) {
    struct acks *acks = ctx;
    remo_ack_cancel(&acks->awaited);
    return 0;
}

static int join_into_ack(void *ctx) {
    struct acks *acks = ctx;
    remo_ack_join(&acks->awaited, &acks->other);
    return 0;
}

static int join_from_ack(void *ctx) {
    struct acks *acks = ctx;
    remo_ack_join(&acks->other, &acks->awaited);
    return remo_ack_wait(&acks->other, REMO_FOREVER);
}

static int acks(struct remo_node *node, void *ctx) {
    static int (*const change[])(void *ctx) = {cancel_ack, join_into_ack, join_from_ack};
    struct acks acks = {.awaited = REMO_ACK_INIT, .other = REMO_ACK_INIT};
    struct remo_scheduler *scheduler;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", sizeof buffer, NULL, &acks.region));
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    for (uint32_t i = 0; i < 3 && remo_node_rank(node) == 0; i++) {
        CHECK_OK(remo_region_read(acks.region, 1, 0, buffer, 8, &acks.awaited));
        CHECK_OK(remo_region_read(acks.region, 1, 0, buffer + 8, 8, &acks.other));
        CHECK(run_two(scheduler, wait_for_ack, change[i], &acks) == 0);
        CHECK_OK(remo_ack_wait(&acks.other, REMO_FOREVER));
    }
    CHECK_OK(remo_scheduler_close(scheduler));
    CHECK_OK(cluster_meet());
    remo_region_close(acks.region);
    return 0;
}

/* ---- spawning: a condition, checked on the stack of a task that has ended, spawns a task ---- */

struct spawning {
    struct remo_scheduler *scheduler;
    uint32_t checks;
    bool has_run;
};

static int note_run(void *ctx) {
    ((struct spawning *)ctx)->has_run = true;
    remo_task_yield();
    return 0;
}

/* The first check is on the thread's own stack. */
static int spawn_in_check(void *ctx, struct remo_sst *sst) {
    struct spawning *spawning = ctx;
    (void)sst;
    if (++spawning->checks == 2)
        return remo_task_spawn(spawning->scheduler, note_run, spawning, NULL);
    return spawning->has_run;
}

static int spawning(struct remo_node *node, void *ctx) {
    struct spawning spawning = {.checks = 0};
    struct remo_sst *sst;
    (void)ctx;
    CHECK_OK(remo_sst_open(remo_node_root(node), "sst", 8, NULL, &sst));
    CHECK_OK(remo_scheduler_open(node, NULL, &spawning.scheduler));
    CHECK_OK(remo_task_spawn(spawning.scheduler, end_at_once, NULL, NULL));
    CHECK_OK(remo_sst_wait(sst, spawn_in_check, &spawning, REMO_FOREVER));
    while (remo_scheduler_close(spawning.scheduler) == -EBUSY)
        remo_task_yield();
    remo_sst_close(sst);
    return 0;
}

/* ---- windows: a task that polls its window does not wait for the operations of a parked task ---- */

#define KEYS 100u
#define ROUNDS 20u

struct windows {
    struct remo_kv *kv;
    bool has_ended;
};

static int update_keys(void *ctx) {
    struct windows *windows = ctx;
    uint64_t value = 1;
    for (uint64_t i = 0; !windows->has_ended; i++) {
        uint64_t key = i % KEYS;
        CHECK_OK(remo_kv_update(windows->kv, &key, sizeof key, &value, sizeof value));
        if (i % 64 == 63)
            remo_task_yield(); /* on shm an update does not park */
    }
    return 0;
}

/* A poll of gets never parks. */
static int poll_gets(void *ctx) {
    struct windows *windows = ctx;
    uint64_t keys[4], values[4];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct remo_kv_op ops[4];
        remo_task_yield();
        for (uint64_t i = 0; i < 4; i++) {
            keys[i] = 4 * round + i;
            ops[i] = (struct remo_kv_op){
                .kind = REMO_KV_GET, .key = &keys[i], .key_bytes = 8, .value = &values[i], .value_bytes = 8};
            CHECK_OK(remo_kv_start(windows->kv, &ops[i]));
        }
        while (remo_kv_poll(windows->kv) > 0)
            continue;
        for (uint32_t i = 0; i < 4; i++)
            CHECK_CODE(ops[i].status, 0);
    }
    windows->has_ended = true;
    return 0;
}

/* Node 1 has the keys. */
static int open_map(struct remo_node *node, struct remo_kv **ret_kv) {
    struct remo_kv_options options = {.capacity = 10 * KEYS, .key_bytes_max = 8, .value_bytes_max = 8};
    uint64_t zero = 0;
    CHECK_OK(remo_kv_open(remo_node_root(node), "map", &options, ret_kv));
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    for (uint64_t key = 0; key < KEYS && remo_node_rank(node) == 1; key++)
        CHECK_OK(remo_kv_insert(*ret_kv, &key, sizeof key, &zero, sizeof zero));
    CHECK_OK(cluster_meet());
    return 0;
}

static int windows(struct remo_node *node, void *ctx) {
    struct windows windows = {.has_ended = false};
    struct remo_scheduler *scheduler;
    (void)ctx;
    CHECK(open_map(node, &windows.kv) == 0);
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
        CHECK(run_two(scheduler, update_keys, poll_gets, &windows) == 0);
        CHECK_OK(remo_scheduler_close(scheduler));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(windows.kv);
    return 0;
}

/* ---- lost_reads: the buffers of reads that have timed out are used again ---- */

#define LOST 10u /* as many as a task has buffers */

static pid_t *pid_of_peer;

static int lose_reads(void *ctx) {
    uint64_t key = 5, value;
    size_t bytes;
    int rc;
    CHECK(process_pause(*pid_of_peer) == 0);
    for (uint32_t i = 0; i < LOST; i++) {
        rc = remo_kv_get(ctx, &key, sizeof key, &value, sizeof value, &bytes);
        if (rc != 0 && rc != -ENOBUFS)
            CHECK_CODE(rc, -ETIMEDOUT);
    }
    CHECK(kill(*pid_of_peer, SIGCONT) == 0);
    do
        rc = remo_kv_get(ctx, &key, sizeof key, &value, sizeof value, &bytes);
    while (rc == -ETIMEDOUT || rc == -ENOBUFS);
    CHECK_CODE(rc, 0);
    return 0;
}

static int lost_reads(struct remo_node *node, void *ctx) {
    struct remo_scheduler *scheduler;
    struct remo_kv *kv;
    remo_task_id id;
    int result = -1;
    (void)ctx;
    if (remo_node_rank(node) == 1)
        *pid_of_peer = getpid();
    CHECK(open_map(node, &kv) == 0);
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
        cluster_set_op_timeout(node, SECOND);
        CHECK_OK(remo_task_spawn(scheduler, lose_reads, kv, &id));
        CHECK_OK(remo_task_join(scheduler, id, REMO_FOREVER, &result));
        CHECK_CODE(result, 0);
        CHECK_OK(remo_scheduler_close(scheduler));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- last_task: the thread still waits for an operation when its last task has ended ---- */

struct holding {
    struct remo_node *node;
    struct remo__mutex *mutex;
    _Atomic bool is_held;
};

/* Hold the mutex for a while, in a thread of its own. */
static void *hold(void *ctx) {
    struct holding *holding = ctx;
    (void)remo__mutex_lock(holding->node, holding->mutex, REMO_FOREVER);
    atomic_store(&holding->is_held, true);
    cluster_sleep_ms(20);
    remo__mutex_unlock(holding->node, holding->mutex);
    return NULL;
}

/* The wait parks, because another thread uses the slots; meanwhile the last task ends. */
static int wait_while_held(struct remo_node *node, struct remo_scheduler *scheduler,
                           struct remo_region *region) {
    struct holding holding = {.node = node, .mutex = &remo__thread(node)->slots->lock};
    struct remo_ack ack = REMO_ACK_INIT;
    pthread_t thread;
    CHECK_OK(remo_task_spawn(scheduler, end_at_once, NULL, NULL));
    CHECK_OK(remo_region_read(region, 1, 0, buffer, sizeof buffer, &ack));
    CHECK(pthread_create(&thread, NULL, hold, &holding) == 0);
    while (!atomic_load(&holding.is_held))
        sched_yield();
    CHECK_OK(remo_ack_wait(&ack, REMO_FOREVER));
    CHECK(pthread_join(thread, NULL) == 0);
    remo_task_yield(); /* if the wait did not park */
    return 0;
}

static int last_task(struct remo_node *node, void *ctx) {
    struct remo_scheduler *scheduler;
    struct remo_region *region;
    struct remo_ack ack = REMO_ACK_INIT;
    (void)ctx;
    CHECK_OK(remo_region_open(remo_node_root(node), "region", sizeof buffer, NULL, &region));
    CHECK_OK(remo_channel_wait(remo_node_root(node), 100 * SECOND));
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
        /* as a completion that follows the end of its wait */
        remo__task_resume(&((struct remo__scheduler *)scheduler)->tasks[0]);
        CHECK_OK(remo_task_spawn(scheduler, end_at_once, NULL, NULL));
        CHECK_OK(remo_region_read(region, 1, 0, buffer, sizeof buffer, &ack));
        CHECK_OK(remo_ack_wait(&ack, REMO_FOREVER));
        remo_task_yield(); /* if the wait did not park */
        CHECK(wait_while_held(node, scheduler, region) == 0);
        CHECK_OK(remo_scheduler_close(scheduler));
    }
    CHECK_OK(cluster_meet());
    remo_region_close(region);
    return 0;
}

/* ---- turns: of many waiting tasks, the oldest is found by few checks ---- */

#define TURN_TASKS 1000u
#define CHECKS_PER_TURN_MAX 100u

struct turns {
    struct remo_node *node;
    uint32_t begun, next, checks;
};

struct turn {
    struct turns *turns;
    uint32_t number;
};

static int has_turn(void *ctx) {
    const struct turn *turn = ctx;
    turn->turns->checks++;
    return turn->turns->next == turn->number;
}

static int take_turn(void *ctx) {
    struct turns *turns = ctx;
    struct turn turn = {turns, turns->begun++};
    CHECK_OK(remo__wait(turns->node, has_turn, &turn, REMO_FOREVER));
    turns->next++;
    return 0;
}

static int turns(struct remo_node *node, void *ctx) {
    struct remo_scheduler_options options = {.task_count_max = TURN_TASKS};
    struct turns turns = {.node = node, .next = UINT32_MAX};
    static remo_task_id ids[TURN_TASKS];
    struct remo_scheduler *scheduler;
    (void)ctx;
    CHECK_OK(remo_scheduler_open(node, &options, &scheduler));
    for (uint32_t i = 0; i < TURN_TASKS; i++)
        CHECK_OK(remo_task_spawn(scheduler, take_turn, &turns, &ids[i]));
    while (turns.begun < TURN_TASKS)
        remo_task_yield();
    turns.checks = 0;
    turns.next = 0;
    for (uint32_t i = 0; i < TURN_TASKS; i++)
        CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, NULL));
    CHECK(turns.checks <= TURN_TASKS * CHECKS_PER_TURN_MAX);
    CHECK_OK(remo_scheduler_close(scheduler));
    return 0;
}

/* ---- busy: a task is found although others park all the time ---- */

#define BUSY_TASKS 12u
#define BUSY_WAITS 4000u

struct busy {
    struct remo_node *node;
    bool is_open, has_passed;
    uint32_t waits; /* of the other tasks, after is_open */
};

static int is_open(void *ctx) {
    return ((const struct busy *)ctx)->is_open;
}

static int at_second_check(void *ctx) {
    return ++*(uint32_t *)ctx > 1;
}

static int pass(void *ctx) {
    struct busy *busy = ctx;
    CHECK_OK(remo__wait(busy->node, is_open, busy, REMO_FOREVER));
    busy->has_passed = true;
    return 0;
}

/* The condition holds at once, except at the first check, so the task parks. */
static int park_often(void *ctx) {
    struct busy *busy = ctx;
    for (uint32_t i = 0; i < 100 || (!busy->has_passed && busy->waits < BUSY_WAITS); i++) {
        uint32_t checks = 0;
        CHECK_OK(remo__wait(busy->node, at_second_check, &checks, REMO_FOREVER));
        busy->is_open |= i == 50;
        busy->waits += busy->is_open;
    }
    return 0;
}

static int busy(struct remo_node *node, void *ctx) {
    struct busy busy = {.node = node};
    struct remo_scheduler *scheduler;
    remo_task_id ids[BUSY_TASKS];
    (void)ctx;
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    for (uint32_t i = 0; i < BUSY_TASKS; i++)
        CHECK_OK(remo_task_spawn(scheduler, i == 0 ? pass : park_often, &busy, &ids[i]));
    for (uint32_t i = 0; i < BUSY_TASKS; i++)
        CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, NULL));
    CHECK(busy.has_passed && busy.waits < BUSY_WAITS);
    CHECK_OK(remo_scheduler_close(scheduler));
    return 0;
}

/* ---- small_stacks: calls with large frames fit in the smallest stack ---- */

struct small {
    struct remo_kv *kv;
    struct remo_lock *lock;
    struct remo_queue *queue;
};

static int use_objects(void *ctx) {
    const struct small *small = ctx;
    uint64_t key = 5, element = 6;
    size_t bytes;
    for (int i = 0; i < 20; i++) {
        CHECK_OK(remo_kv_put(small->kv, &key, sizeof key, &element, sizeof element));
        CHECK_OK(remo_lock_acquire(small->lock, 0, REMO_FOREVER));
        CHECK_OK(remo_lock_release(small->lock, 0, REMO_FENCE_GLOBAL));
        CHECK_OK(remo_queue_push(small->queue, &element, sizeof element, 100 * SECOND));
        CHECK_OK(remo_queue_pop(small->queue, &element, sizeof element, &bytes, 100 * SECOND));
    }
    CHECK_CODE(remo_lock_acquire(small->lock, 1000, 0), -EINVAL); /* its sentence is formatted */
    return 0;
}

static int small_stacks(struct remo_node *node, void *ctx) {
    struct remo_scheduler_options options = {.stack_bytes = REMO_TASK_STACK_BYTES_MIN};
    struct remo_channel *root = remo_node_root(node);
    struct remo_scheduler *scheduler;
    struct small small;
    (void)ctx;
    CHECK_OK(remo_kv_open(root, "map", NULL, &small.kv));
    CHECK_OK(remo_lock_open(root, "lock", NULL, &small.lock));
    CHECK_OK(remo_queue_open(root, "queue", NULL, &small.queue));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    CHECK_OK(remo_scheduler_open(node, &options, &scheduler));
    CHECK(run_two(scheduler, use_objects, use_objects, &small) == 0);
    CHECK_OK(remo_scheduler_close(scheduler));
    CHECK_OK(cluster_meet());
    remo_queue_close(small.queue);
    remo_lock_close(small.lock);
    remo_kv_close(small.kv);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {CLUSTER_TEST(mutex, 1),
                                                CLUSTER_TEST(deadlines, 1),
                                                CLUSTER_TEST(pins, 2),
                                                CLUSTER_TEST(fences, 2),
                                                CLUSTER_TEST(own, 1),
                                                CLUSTER_TEST(acks, 2),
                                                CLUSTER_TEST(spawning, 1),
                                                CLUSTER_TEST(windows, 2, .op_timeout_ns = 10 * SECOND),
                                                CLUSTER_TEST(lost_reads, 2, .only_on = "ofi"),
                                                CLUSTER_TEST(turns, 1),
                                                CLUSTER_TEST(busy, 1),
                                                CLUSTER_TEST(last_task, 2),
                                                CLUSTER_TEST(small_stacks, 2),
                                                {0}};
    pid_of_peer = cluster_shared(sizeof *pid_of_peer);
    return cluster_main(argc, argv, tests, NULL);
}
