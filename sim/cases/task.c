/* task.c - tasks: two or three of them on each node wait in atomics, fences, a lock, a map and a queue.
 * Two tasks of one thread may do at the same time whatever two threads may do. No task misses a notification
 * because its thread runs another task, or waits for one. */
#include <errno.h>
#include <remo/atomic_var.h>
#include <remo/kv.h>
#include <remo/lock.h>
#include <remo/queue.h>
#include <remo/region.h>
#include <remo/task.h>

#include "sim/case.h"
#include "sim/oracle.h"

#define FOREVER REMO_FOREVER
#define TASKS_MAX 3u
#define STACK_BYTES (64u << 10)

struct tasks_state {
    struct remo_atomic_var *vars[SIM_NODES_MAX];
    struct remo_lock *locks[SIM_NODES_MAX];
    struct remo_region *regions[SIM_NODES_MAX];
    struct remo_queue *queues[SIM_NODES_MAX];
    struct remo_kv *maps[SIM_NODES_MAX];
    uint64_t last[SIM_NODES_MAX]; /* greatest value of the shared key that a task has read */
    uint32_t holder;              /* the task that holds the lock, or 0 */
    uint32_t pushed, popped;
    uint64_t sum;
    bool has_fenced[SIM_NODES_MAX];
};

/* One task. */
struct part {
    struct tasks_state *state;
    int (*run)(void *part);
    uint32_t rank, number;
};

/* Run the task. Its error must be excused, and have a sentence. */
static int run_part(void *ctx) {
    const struct part *part = ctx;
    int error = part->run(ctx);
    sim_require(error == 0 || sim_excused(part->rank, SIM_ANY, error), "a task: %d", error);
    return 0;
}

/* Run `run` in `count` tasks of the calling thread, and wait for their ends. */
static void run_tasks(struct tasks_state *state, struct remo_node *node, uint32_t count,
                      int (*run)(void *part)) {
    struct remo_scheduler_options options = {.task_count_max = TASKS_MAX, .stack_bytes = STACK_BYTES};
    struct remo_scheduler *scheduler;
    struct part parts[TASKS_MAX];
    remo_task_id ids[TASKS_MAX];
    uint32_t rank = remo_node_rank(node);
    int error = remo_scheduler_open(node, &options, &scheduler);
    sim_require(error == 0 || sim_excused(rank, SIM_ANY, error), "remo_scheduler_open: %d", error);
    if (error != 0)
        return;
    for (uint32_t i = 0; i < count; i++) {
        parts[i] = (struct part){.state = state, .run = run, .rank = rank, .number = i};
        int rc = remo_task_spawn(scheduler, run_part, &parts[i], &ids[i]);
        sim_require(rc == 0, "remo_task_spawn: %d", rc);
    }
    for (uint32_t i = 0; i < count; i++) {
        int rc = remo_task_join(scheduler, ids[i], FOREVER, NULL);
        sim_require(rc == 0, "remo_task_join: %d", rc);
    }
    int rc = remo_scheduler_close(scheduler);
    sim_require(rc == 0, "remo_scheduler_close: %d", rc);
}

/* ---- atomics: completions resume tasks ---- */

static void open_var(void *state, struct remo_node *node, uint32_t rank) {
    struct tasks_state *s = state;
    sim_opened(remo_atomic_var_open(remo_node_root(node), "var", NULL, &s->vars[rank]), "open");
    sim_opened(remo_channel_wait(remo_atomic_var_channel(s->vars[rank]), FOREVER), "wait");
}

static void close_var(void *state, uint32_t rank) {
    remo_atomic_var_close(((struct tasks_state *)state)->vars[rank]);
}

static int add_twice(void *ctx) {
    const struct part *part = ctx;
    for (uint64_t i = 1; i <= 2; i++) {
        uint64_t old = 0, by = i + 10 * part->number + 100 * part->rank;
        struct remo_ack ack = REMO_ACK_INIT;
        uint32_t call = sim_begin(COUNTER_ADD, 0, by, 0);
        int rc = remo_atomic_var_fetch_add(part->state->vars[part->rank], 0, by, &old, &ack);
        if (rc == 0)
            rc = remo_ack_wait(&ack, FOREVER);
        if (sim_out(part->rank) || rc != 0)
            return rc;
        sim_end(call, rc, old);
    }
    return 0;
}

static void atomics_body(void *state, uint32_t rank, uint32_t thread) {
    struct tasks_state *s = state;
    (void)thread;
    run_tasks(s, remo_channel_node(remo_atomic_var_channel(s->vars[rank])), 2, add_twice);
}

const struct sim_case sim_case_task_atomics = {.object = "task",
                                               .name = "atomics",
                                               .about = "two tasks on each of two nodes add to one word",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct tasks_state),
                                               .open = open_var,
                                               .close = close_var,
                                               .body = atomics_body,
                                               .oracle = &oracle_word,
                                               .continues_after_failure = true};

/* ---- fences: the writes and reads of another task do not delay a fence for ever ---- */

static void open_region(void *state, struct remo_node *node, uint32_t rank) {
    struct tasks_state *s = state;
    sim_opened(remo_region_open(remo_node_root(node), "region", 16, NULL, &s->regions[rank]), "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), FOREVER), "wait");
}

static void close_region(void *state, uint32_t rank) {
    remo_region_close(((struct tasks_state *)state)->regions[rank]);
}

/* Task 0 writes, fences and reads. Tasks 1 and 2 keep a read in flight until it has ended. */
static int fence_or_read(void *ctx) {
    const struct part *part = ctx;
    struct tasks_state *s = part->state;
    struct remo_region *region = s->regions[part->rank];
    uint32_t peer = 1 - part->rank;
    uint64_t word = 7, read = 0;
    int rc = 0;
    while (part->number > 0 && rc == 0 && !s->has_fenced[part->rank]) {
        rc = remo_region_read(region, peer, 0, &read, 8, NULL);
        remo_task_yield();
    }
    if (part->number > 0)
        return rc;
    rc = remo_region_write(region, peer, 8, &word, 8, 0, NULL);
    if (rc == 0)
        rc = remo_fence(remo_channel_node(remo_region_channel(region)), REMO_FENCE_THREAD, 0);
    s->has_fenced[part->rank] = true;
    if (rc == 0)
        rc = remo_region_read(region, peer, 8, &read, 8, NULL);
    sim_require(rc != 0 || read == word, "read %llu after the fence", (unsigned long long)read);
    return rc;
}

static void fences_body(void *state, uint32_t rank, uint32_t thread) {
    struct tasks_state *s = state;
    (void)thread;
    run_tasks(s, remo_channel_node(remo_region_channel(s->regions[rank])), 3, fence_or_read);
}

const struct sim_case sim_case_task_fences = {
    .object = "task",
    .name = "fences",
    .about = "on each of two nodes a task writes and fences while two others read",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct tasks_state),
    .open = open_region,
    .close = close_region,
    .body = fences_body,
    .continues_after_failure = true};

/* ---- lock: tasks of one thread exclude each other ---- */

static void open_lock(void *state, struct remo_node *node, uint32_t rank) {
    struct tasks_state *s = state;
    struct remo_channel *root = remo_node_root(node);
    sim_opened(remo_lock_open(root, "lock", NULL, &s->locks[rank]), "open the lock");
    sim_opened(remo_region_open(root, "region", 8, NULL, &s->regions[rank]), "open the region");
    sim_opened(remo_channel_wait(remo_lock_channel(s->locks[rank]), FOREVER), "wait");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), FOREVER), "wait");
}

static void close_lock(void *state, uint32_t rank) {
    remo_region_close(((struct tasks_state *)state)->regions[rank]);
    remo_lock_close(((struct tasks_state *)state)->locks[rank]);
}

static int add_under_lock(void *ctx) {
    const struct part *part = ctx;
    struct tasks_state *s = part->state;
    struct remo_lock *lock = s->locks[part->rank];
    uint32_t self = 1 + TASKS_MAX * part->rank + part->number;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t value = 0;
        int rc = remo_lock_acquire(lock, 0, FOREVER);
        sim_require(rc == 0 && s->holder == 0, "acquire: %d; task %u holds the lock", rc, s->holder);
        s->holder = self;
        rc = remo_lock_acquire(lock, 0, FOREVER);
        sim_require(rc == -EDEADLK, "acquire again: %d", rc);
        rc = remo_region_read(s->regions[part->rank], 0, 0, &value, 8, NULL);
        value++;
        if (rc == 0)
            rc = remo_region_write(s->regions[part->rank], 0, 0, &value, 8, 0, NULL);
        remo_task_yield();
        sim_require(rc == 0 && s->holder == self, "read or write: %d; task %u holds the lock", rc, s->holder);
        s->holder = 0;
        rc = remo_lock_release(lock, 0, REMO_FENCE_PAIR);
        sim_require(rc == 0, "release: %d (%s)", rc, remo_last_error());
    }
    return 0;
}

static void lock_body(void *state, uint32_t rank, uint32_t thread) {
    struct tasks_state *s = state;
    uint64_t value = 0;
    (void)thread;
    run_tasks(s, remo_channel_node(remo_lock_channel(s->locks[rank])), 2, add_under_lock);
    int rc = remo_region_read(s->regions[rank], 0, 0, &value, 8, NULL);
    sim_require(rc == 0 && value >= 4 && value <= 8, "read: %d, the count is %llu", rc,
                (unsigned long long)value);
}

const struct sim_case sim_case_task_lock = {.object = "task",
                                            .name = "lock",
                                            .about = "two tasks on each of two nodes count under one lock",
                                            .nodes = 2,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct tasks_state),
                                            .open = open_lock,
                                            .close = close_lock,
                                            .body = lock_body,
                                            .has_own_fault = true};

/* ---- map: each task has a window of its own ---- */

static void open_map(void *state, struct remo_node *node, uint32_t rank) {
    struct tasks_state *s = state;
    struct remo_kv_options options = {.capacity = 16, .key_bytes_max = 8, .value_bytes_max = 8, .stripes = 2};
    sim_opened(remo_kv_open(remo_node_root(node), "map", &options, &s->maps[rank]), "open");
    sim_opened(remo_channel_wait(remo_kv_channel(s->maps[rank]), FOREVER), "wait");
}

static void close_map(void *state, uint32_t rank) {
    remo_kv_close(((struct tasks_state *)state)->maps[rank]);
}

/* Put and read a key of this task, and add to the key that all share, in a window of two operations. */
static int change_map(void *ctx) {
    const struct part *part = ctx;
    struct remo_kv *map = part->state->maps[part->rank];
    uint64_t shared = 100, own = 10 * part->rank + part->number, value = own + 1, found = 0, zero = 0, old;
    size_t bytes = 0;
    int rc = remo_kv_put(map, &own, sizeof own, &value, sizeof value);
    sim_require(rc == 0, "put: %d (%s)", rc, remo_last_error());
    rc = remo_kv_insert(map, &shared, sizeof shared, &zero, sizeof zero);
    sim_require(rc == 0 || rc == -EEXIST, "insert: %d (%s)", rc, remo_last_error());
    struct remo_kv_op add = {.kind = REMO_KV_FETCH_ADD,
                             .key = &shared,
                             .key_bytes = sizeof shared,
                             .value = &old,
                             .value_bytes = sizeof old,
                             .delta = 1};
    struct remo_kv_op get = {.kind = REMO_KV_GET,
                             .key = &own,
                             .key_bytes = sizeof own,
                             .value = &found,
                             .value_bytes = sizeof found};
    rc = remo_kv_start(map, &add) == 0 && remo_kv_start(map, &get) == 0 ? 0 : -EINVAL;
    sim_require(rc == 0 && remo_kv_wait(map, &add) == 0 && remo_kv_wait(map, &get) == 0 && found == value,
                "the window: %d, %d, found %llu (%s)", add.status, get.status, (unsigned long long)found,
                remo_last_error());
    rc = remo_kv_get(map, &shared, sizeof shared, &found, sizeof found, &bytes);
    sim_require(rc == 0 && found > old && found <= 4, "get: %d, %llu", rc, (unsigned long long)found);
    part->state->last[part->rank] = remo__max(part->state->last[part->rank], found);
    return 0;
}

static void map_body(void *state, uint32_t rank, uint32_t thread) {
    struct tasks_state *s = state;
    (void)thread;
    run_tasks(s, remo_channel_node(remo_kv_channel(s->maps[rank])), 2, change_map);
}

static void map_check(void *state) {
    const struct tasks_state *s = state;
    sim_require(s->last[0] == 4 || s->last[1] == 4, "the last values are %llu and %llu instead of 4",
                (unsigned long long)s->last[0], (unsigned long long)s->last[1]);
}

const struct sim_case sim_case_task_map = {.object = "task",
                                           .name = "map",
                                           .about = "two tasks on each of two nodes change a map",
                                           .nodes = 2,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct tasks_state),
                                           .open = open_map,
                                           .close = close_map,
                                           .body = map_body,
                                           .check = map_check,
                                           .has_own_fault = true};

/* ---- queue: tasks that are parked are notified ---- */

static void open_queue(void *state, struct remo_node *node, uint32_t rank) {
    struct tasks_state *s = state;
    struct remo_queue_options options = {.capacity = 2, .slot_bytes = 8};
    sim_opened(remo_queue_open(remo_node_root(node), "queue", &options, &s->queues[rank]), "open");
    sim_opened(remo_channel_wait(remo_queue_channel(s->queues[rank]), FOREVER), "wait");
}

static void close_queue(void *state, uint32_t rank) {
    remo_queue_close(((struct tasks_state *)state)->queues[rank]);
}

/* Tasks 0 and 1 push three elements each, task 2 pops six. */
static int push_or_pop(void *ctx) {
    const struct part *part = ctx;
    struct tasks_state *s = part->state;
    struct remo_queue *queue = s->queues[part->rank];
    for (uint32_t i = 0; i < (part->number < 2 ? 3 : 6); i++) {
        uint64_t element = 1;
        size_t bytes = 0;
        int rc = part->number < 2 ? remo_queue_push(queue, &element, sizeof element, FOREVER)
                                  : remo_queue_pop(queue, &element, sizeof element, &bytes, FOREVER);
        sim_require(rc == 0, "task %u: %d (%s)", part->number, rc, remo_last_error());
        s->pushed += part->number < 2;
        s->popped += part->number == 2;
        s->sum += part->number == 2 ? element : 0;
    }
    return 0;
}

static void queue_body(void *state, uint32_t rank, uint32_t thread) {
    struct tasks_state *s = state;
    (void)thread;
    run_tasks(s, remo_channel_node(remo_queue_channel(s->queues[rank])), 3, push_or_pop);
}

static void queue_check(void *state) {
    const struct tasks_state *s = state;
    sim_require(s->pushed == 12 && s->popped == 12 && s->sum == 12, "%u pushed, %u popped", s->pushed,
                s->popped);
}

const struct sim_case sim_case_task_queue = {.object = "task",
                                             .name = "queue",
                                             .about = "on each of two nodes two tasks push and one pops",
                                             .nodes = 2,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct tasks_state),
                                             .open = open_queue,
                                             .close = close_queue,
                                             .body = queue_body,
                                             .check = queue_check,
                                             .has_own_fault = true};
