/* test_task.c - tasks: spawn, join, yield, sleep; waits of tasks in each object; the failure of a peer; wrong
 * calls. No test compares times: orders and results do not depend on the speed of the machine. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/cluster.h"
#include "../../support/job.h"
#include "remote/thread.h"

#define TASKS 8u
#define ROUNDS 20u
#ifdef __SANITIZE_THREAD__
#define PARKED 1000u /* it supports 8128 threads and tasks */
#else
#define PARKED 10000u
#endif

/* One task of a test. */
struct part {
    struct remo_node *node;
    struct remo_scheduler *scheduler;
    void *shared;
    uint32_t number;
    remo_task_id id;
};

/* Run `run` in `count` tasks, and check that all return 0. */
static int run_tasks(struct remo_node *node, struct remo_scheduler *scheduler, uint32_t count,
                     int (*run)(void *ctx), void *shared) {
    struct part parts[64];
    for (uint32_t i = 0; i < count; i++) {
        parts[i] = (struct part){.node = node, .scheduler = scheduler, .shared = shared, .number = i};
        CHECK_OK(remo_task_spawn(scheduler, run, &parts[i], &parts[i].id));
    }
    for (uint32_t i = 0; i < count; i++) {
        int result = -1;
        CHECK_OK(remo_task_join(scheduler, parts[i].id, REMO_FOREVER, &result));
        CHECK_CODE(result, 0);
    }
    return 0;
}

/* ---- spawn, join, yield, sleep ---- */

static char order[64];

static int note_and_yield(void *ctx) {
    const struct part *part = ctx;
    CHECK(remo_task_current() == part->id);
    for (int i = 0; i < 3; i++) {
        strncat(order, &"ABCD"[part->number], 1);
        remo_task_yield();
    }
    return 0;
}

static int sleep_and_note(void *ctx) {
    static const uint64_t ms[] = {300, 100, 200};
    const struct part *part = ctx;
    CHECK_OK(remo_task_sleep(part->node, ms[part->number] * 1000000));
    strncat(order, &"ABCD"[part->number], 1);
    return 0;
}

static int seven(void *ctx) {
    *(int *)ctx += 1;
    return 7;
}

static int basics(struct remo_node *node, void *ctx) {
    struct remo_scheduler *scheduler;
    remo_task_id task;
    int calls = 0, result = 0;
    (void)ctx;
    CHECK(remo_task_current() == 0);
    remo_task_yield(); /* without effect */
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK_OK(remo_task_spawn(scheduler, seven, &calls, &task));
    CHECK_EQUAL(calls, 0);
    CHECK_OK(remo_task_join(scheduler, task, REMO_FOREVER, &result));
    CHECK_EQUAL(result, 7);
    CHECK_OK(remo_task_spawn(scheduler, seven, &calls, NULL));
    remo_task_yield();
    CHECK_EQUAL(calls, 2);
    order[0] = '\0';
    CHECK(run_tasks(node, scheduler, 3, note_and_yield, NULL) == 0);
    CHECK(strcmp(order, "ABCABCABC") == 0);
    order[0] = '\0';
    CHECK(run_tasks(node, scheduler, 3, sleep_and_note, NULL) == 0);
    CHECK(strlen(order) == 3 && strchr("AC", order[2])); /* the shortest sleep is not the last */
    CHECK_OK(remo_scheduler_close(scheduler));
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler)); /* again */
    CHECK_OK(remo_scheduler_close(scheduler));
    return 0;
}

/* ---- what belongs to a task ---- */

static int keep_errno_and_sentence(void *ctx) {
    const struct part *part = ctx;
    char own[32];
    snprintf(own, sizeof own, "%u", 1000 + part->number);
    CHECK(strcmp(remo_last_error(), "") == 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        CHECK_CODE(remo_lock_acquire(part->shared, 1000 + part->number, 0), -EINVAL);
        errno = (int)(100 + part->number);
        remo_task_yield();
        CHECK_EQUAL(errno, 100 + part->number);
        CHECK(strstr(remo_last_error(), own));
    }
    return 0;
}

struct counter {
    struct remo_lock *lock;
    struct remo_region *region;
    struct remo_scheduler *scheduler;
    bool is_held;
};

/* Read, change and write a word under the lock, with waits between. */
static int count_under_lock(void *ctx) {
    const struct part *part = ctx;
    struct counter *counter = part->shared;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t value;
        CHECK_OK(remo_lock_acquire(counter->lock, 0, REMO_FOREVER));
        CHECK(!counter->is_held); /* no other task of this thread holds it */
        counter->is_held = true;
        CHECK_CODE(remo_lock_acquire(counter->lock, 0, REMO_FOREVER), -EDEADLK);
        CHECK_OK(remo_region_read(counter->region, 0, 0, &value, sizeof value, NULL));
        remo_task_yield();
        value++;
        CHECK_OK(remo_region_write(counter->region, 0, 0, &value, sizeof value, 0, NULL));
        counter->is_held = false;
        CHECK_OK(remo_lock_release(counter->lock, 0, REMO_FENCE_PAIR));
        CHECK_CODE(remo_lock_release(counter->lock, 0, REMO_FENCE_PAIR), -EPERM);
    }
    return 0;
}

static int locks(struct remo_node *node, void *ctx) {
    struct remo_channel *root = remo_node_root(node);
    struct counter counter = {.is_held = false};
    struct remo_barrier *barrier;
    uint64_t value;
    (void)ctx;
    CHECK_OK(remo_scheduler_open(node, NULL, &counter.scheduler));
    CHECK_OK(remo_lock_open(root, "lock", NULL, &counter.lock));
    CHECK_OK(remo_region_open(root, "region", 8, NULL, &counter.region));
    CHECK_OK(remo_barrier_open(root, "barrier", NULL, &barrier));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    CHECK(run_tasks(node, counter.scheduler, TASKS, count_under_lock, &counter) == 0);
    CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    CHECK_OK(remo_region_read(counter.region, 0, 0, &value, sizeof value, NULL));
    CHECK_EQUAL(value, remo_node_size(node) * TASKS * ROUNDS);
    CHECK(run_tasks(node, counter.scheduler, 3, keep_errno_and_sentence, counter.lock) == 0);
    CHECK_OK(remo_barrier_wait(barrier, 100 * SECOND));
    CHECK_OK(remo_scheduler_close(counter.scheduler));
    remo_barrier_close(barrier);
    remo_region_close(counter.region);
    remo_lock_close(counter.lock);
    return 0;
}

/* ---- objects ---- */

struct objects {
    struct remo_queue *queue;
    struct remo_kv *kv;
    struct remo_ringbuffer *in, *out;
    struct remo_region *region;
    uint64_t popped;
    uint32_t pops;
};

/* Each element is popped once, by any task of any node. */
static int push_and_pop(void *ctx) {
    const struct part *part = ctx;
    struct objects *objects = part->shared;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t element = 1;
        size_t bytes;
        if (part->number % 2 == 0) {
            CHECK_OK(remo_queue_push(objects->queue, &element, sizeof element, 100 * SECOND));
            continue;
        }
        CHECK_OK(remo_queue_pop(objects->queue, &element, sizeof element, &bytes, 100 * SECOND));
        objects->popped += element;
    }
    return 0;
}

/* All tasks of all nodes add to the same keys, and insert and delete keys of their own. */
static int use_map(void *ctx) {
    const struct part *part = ctx;
    const struct objects *objects = part->shared;
    uint64_t own = remo_node_rank(part->node) * 100 + part->number + 10;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t shared = i % 3, old, got = 0;
        size_t bytes = 0;
        CHECK_OK(remo_kv_fetch_add(objects->kv, &shared, sizeof shared, 1, &old));
        CHECK_OK(remo_kv_put(objects->kv, &own, sizeof own, &i, sizeof i));
        CHECK_OK(remo_kv_get(objects->kv, &own, sizeof own, &got, sizeof got, &bytes));
        CHECK_EQUAL(got, i);
        if (i % 4 == 3)
            CHECK_OK(remo_kv_delete(objects->kv, &own, sizeof own));
    }
    return 0;
}

/* Task 0 sends, task 1 receives; the peer does the same. */
static int talk(void *ctx) {
    const struct part *part = ctx;
    const struct objects *objects = part->shared;
    for (uint64_t i = 0; i < 10 * ROUNDS; i++) {
        uint64_t got = UINT64_MAX;
        size_t bytes;
        if (part->number == 0) {
            CHECK_OK(remo_ringbuffer_send(objects->out, &i, sizeof i, 100 * SECOND, NULL));
            continue;
        }
        CHECK_OK(remo_ringbuffer_receive(objects->in, &got, sizeof got, &bytes, 100 * SECOND));
        CHECK_EQUAL(got, i);
    }
    return 0;
}

/* Read words of the peer, by acks and without. */
static int read_words(void *ctx) {
    const struct part *part = ctx;
    const struct objects *objects = part->shared;
    uint32_t peer = (remo_node_rank(part->node) + 1) % remo_node_size(part->node);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t a = 0, b = 0, c = 0;
        struct remo_ack ack = REMO_ACK_INIT, first = REMO_ACK_INIT, second = REMO_ACK_INIT;
        struct remo_ack *acks[] = {&first, NULL, &second};
        uint32_t which = UINT32_MAX;
        CHECK_OK(remo_region_read(objects->region, peer, 8ull * part->number, &a, sizeof a, &ack));
        CHECK_OK(remo_region_read(objects->region, peer, 8ull * part->number, &b, sizeof b, &first));
        CHECK_OK(remo_region_read(objects->region, peer, 8ull * part->number, &c, sizeof c, &second));
        CHECK_OK(remo_ack_wait(&ack, 100 * SECOND));
        CHECK_EQUAL(a, 1000 * peer + part->number);
        CHECK_OK(remo_ack_wait_any(acks, 3, 100 * SECOND, &which));
        CHECK(which == 0 || which == 2);
        CHECK_OK(remo_ack_wait(&first, 100 * SECOND));
        CHECK_OK(remo_ack_wait(&second, 100 * SECOND));
        CHECK_EQUAL(b, a);
        CHECK_EQUAL(c, a);
    }
    return 0;
}

static int open_objects(struct remo_node *node, struct objects *objects) {
    struct remo_channel *root = remo_node_root(node);
    struct remo_ringbuffer_options rings[] = {{.sender = 0}, {.sender = 1}};
    uint32_t rank = remo_node_rank(node);
    CHECK_OK(remo_queue_open(root, "queue", NULL, &objects->queue));
    CHECK_OK(remo_kv_open(root, "map", NULL, &objects->kv));
    CHECK_OK(remo_ringbuffer_open(root, "ring0", &rings[0], rank == 0 ? &objects->out : &objects->in));
    CHECK_OK(remo_ringbuffer_open(root, "ring1", &rings[1], rank == 1 ? &objects->out : &objects->in));
    CHECK_OK(remo_region_open(root, "region", 8ull * TASKS, NULL, &objects->region));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    for (uint64_t i = 0; i < TASKS; i++) {
        uint64_t word = 1000 * rank + i;
        CHECK_OK(remo_region_write(objects->region, rank, 8 * i, &word, sizeof word, 0, NULL));
    }
    CHECK_OK(remo_fence(node, REMO_FENCE_THREAD, 0));
    return 0;
}

static int objects(struct remo_node *node, void *ctx) {
    struct objects objects = {0};
    struct remo_scheduler *scheduler;
    uint64_t zero = 0;
    (void)ctx;
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK(open_objects(node, &objects) == 0);
    for (uint64_t key = 0; key < 3 && remo_node_rank(node) == 0; key++)
        CHECK_OK(remo_kv_insert(objects.kv, &key, sizeof key, &zero, sizeof zero));
    CHECK_OK(cluster_meet());
    CHECK(run_tasks(node, scheduler, TASKS, read_words, &objects) == 0);
    CHECK(run_tasks(node, scheduler, 2, talk, &objects) == 0);
    CHECK(run_tasks(node, scheduler, TASKS, push_and_pop, &objects) == 0);
    CHECK_EQUAL(objects.popped, TASKS / 2 * ROUNDS);
    CHECK(run_tasks(node, scheduler, TASKS, use_map, &objects) == 0);
    CHECK_OK(cluster_meet());
    for (uint64_t key = 0, sum = 0; key < 3; key++) {
        uint64_t value = 0;
        size_t bytes;
        CHECK_OK(remo_kv_get(objects.kv, &key, sizeof key, &value, sizeof value, &bytes));
        sum += value;
        CHECK(key < 2 || sum == (uint64_t)remo_node_size(node) * TASKS * ROUNDS);
    }
    CHECK_OK(cluster_meet()); /* the map is open until all nodes have read it */
    CHECK_OK(remo_scheduler_close(scheduler));
    remo_region_close(objects.region);
    remo_ringbuffer_close(objects.in);
    remo_ringbuffer_close(objects.out);
    remo_kv_close(objects.kv);
    remo_queue_close(objects.queue);
    return 0;
}

/* ---- the failure of a peer ---- */

static int wait_for_dead_peer(void *ctx) {
    const struct part *part = ctx;
    uint64_t message;
    size_t bytes;
    if (part->number == 0)
        CHECK_CODE(remo_ringbuffer_receive(part->shared, &message, sizeof message, &bytes, REMO_FOREVER),
                   -EHOSTDOWN);
    else
        CHECK_OK(remo_task_sleep(part->node, 1000000));
    return 0;
}

static int failure(struct remo_node *node, void *ctx) {
    struct remo_channel *root = remo_node_root(node);
    struct remo_ringbuffer_options options = {.sender = 1};
    struct remo_ringbuffer *ring;
    struct remo_scheduler *scheduler;
    (void)ctx;
    CHECK_OK(remo_ringbuffer_open(root, "ring", &options, &ring));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        cluster_expect_death();
        raise(SIGKILL);
    }
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK(run_tasks(node, scheduler, 3, wait_for_dead_peer, ring) == 0);
    CHECK_OK(remo_scheduler_close(scheduler));
    remo_ringbuffer_close(ring);
    return 0;
}

/* ---- many parked tasks ---- */

static struct {
    struct remo_queue *queue;
    uint32_t woken;
} many_state;

static int pop_one(void *ctx) {
    uint64_t element;
    size_t bytes;
    (void)ctx;
    CHECK_OK(remo_queue_pop(many_state.queue, &element, sizeof element, &bytes, REMO_FOREVER));
    many_state.woken++;
    return 0;
}

static int sleep_long(void *ctx) {
    CHECK_OK(remo_task_sleep(ctx, 2 * SECOND));
    return 0;
}

static int many(struct remo_node *node, void *ctx) {
    struct remo_scheduler_options options = {.task_count_max = PARKED, .stack_bytes = 64 << 10};
    struct remo_scheduler *scheduler;
    static remo_task_id ids[PARKED];
    struct rusage before, after;
    (void)ctx;
    CHECK_OK(remo_queue_open(remo_node_root(node), "queue", NULL, &many_state.queue));
    CHECK_OK(remo_scheduler_open(node, &options, &scheduler));
    for (uint32_t i = 0; i < PARKED; i++)
        CHECK_OK(remo_task_spawn(scheduler, i < 100 ? pop_one : sleep_long, node, &ids[i]));
    CHECK_CODE(remo_task_spawn(scheduler, pop_one, node, NULL), -EAGAIN);
    remo_task_yield();
    getrusage(RUSAGE_THREAD, &before);
    CHECK_OK(remo_task_sleep(node, SECOND));
    getrusage(RUSAGE_THREAD, &after);
    printf("     %u tasks parked for 1 s: %ld sleeps of the thread\n", PARKED,
           after.ru_nvcsw - before.ru_nvcsw);
    for (uint64_t i = 0; i < 100; i++)
        CHECK_OK(remo_queue_push(many_state.queue, &i, sizeof i, 100 * SECOND));
    for (uint32_t i = 0; i < PARKED; i++)
        CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, NULL));
    CHECK_EQUAL(many_state.woken, 100);
    CHECK_OK(remo_scheduler_close(scheduler));
    remo_queue_close(many_state.queue);
    return 0;
}

/* ---- wrong calls ---- */

static int wrong_calls_of_task(void *ctx) {
    const struct part *part = ctx;
    CHECK_SENTENCE(remo_task_join(part->scheduler, remo_task_current(), REMO_FOREVER, NULL), -EDEADLK,
                   "itself");
    CHECK_SENTENCE(remo_scheduler_close(part->scheduler), -EPERM, "one of its tasks");
    CHECK_OK(remo_task_sleep(part->node, 200000000));
    return 0;
}

static int join_first(void *ctx) {
    const struct part *part = ctx;
    return remo_task_join(part->scheduler, part[-1].id, REMO_FOREVER, NULL);
}

static void *call_from_other_thread(void *ctx) {
    static int codes[3];
    struct part *part = ctx;
    codes[0] = remo_task_spawn(part->scheduler, seven, NULL, NULL);
    codes[1] = remo_task_join(part->scheduler, part->id, 0, NULL);
    codes[2] = remo_scheduler_close(part->scheduler);
    return codes;
}

static int wrong_calls(struct remo_node *node, void *ctx) {
    struct remo_scheduler_options too_many = {.task_count_max = REMO_TASKS_MAX + 1};
    struct remo_scheduler_options too_small = {.stack_bytes = REMO_TASK_STACK_BYTES_MIN - 1};
    struct remo_scheduler *scheduler, *other;
    struct part parts[2] = {{.node = node}, {.node = node}};
    pthread_t thread;
    void *codes;
    int calls = 0;
    (void)ctx;
    CHECK_SENTENCE(remo_scheduler_open(node, &too_many, &scheduler), -EINVAL, "limit");
    CHECK_SENTENCE(remo_scheduler_open(node, &too_small, &scheduler), -EINVAL, "stack_bytes");
    CHECK_CODE(remo_scheduler_open(NULL, NULL, &scheduler), -EINVAL);
    CHECK_CODE(remo_scheduler_open(node, NULL, NULL), -EINVAL);
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK_SENTENCE(remo_scheduler_open(node, NULL, &other), -EBUSY, "one already");
    CHECK_CODE(remo_task_spawn(NULL, seven, &calls, NULL), -EINVAL);
    CHECK_CODE(remo_task_spawn(scheduler, NULL, &calls, NULL), -EINVAL);
    CHECK_CODE(remo_task_sleep(NULL, 1), -EINVAL);
    CHECK_CODE(remo_task_sleep(node, REMO_FOREVER), -EINVAL);
    CHECK_SENTENCE(remo_task_join(scheduler, 0, 0, NULL), -ESTALE, "no task");
    CHECK_CODE(remo_task_join(scheduler, UINT64_MAX, 0, NULL), -ESTALE);
    parts[0].scheduler = parts[1].scheduler = scheduler;
    CHECK_OK(remo_task_spawn(scheduler, wrong_calls_of_task, &parts[0], &parts[0].id));
    CHECK_CODE(remo_task_join(scheduler, parts[0].id, 0, NULL), -ETIMEDOUT);
    CHECK_CODE(remo_task_join(scheduler, parts[0].id, 1, NULL), -ETIMEDOUT);
    CHECK_SENTENCE(remo_scheduler_close(scheduler), -EBUSY, "join");
    CHECK(pthread_create(&thread, NULL, call_from_other_thread, &parts[0]) == 0);
    CHECK(pthread_join(thread, &codes) == 0);
    for (int i = 0; i < 3; i++)
        CHECK_CODE(((int *)codes)[i], -EPERM);
    CHECK_OK(remo_task_spawn(scheduler, join_first, &parts[1], &parts[1].id));
    remo_task_yield();
    CHECK_SENTENCE(remo_task_join(scheduler, parts[0].id, REMO_FOREVER, NULL), -EBUSY, "joining it");
    CHECK_OK(remo_task_join(scheduler, parts[1].id, REMO_FOREVER, &calls));
    CHECK_CODE(calls, 0);
    CHECK_CODE(remo_task_join(scheduler, parts[0].id, REMO_FOREVER, NULL), -ESTALE);
    CHECK_OK(remo_scheduler_close(scheduler));
    CHECK_OK(remo_scheduler_close(NULL));
    return 0;
}

/* ---- overflow ---- */

static int recurse(void *ctx) {
    volatile char use[4096];
    use[0] = 1;
    return ctx && use[0] ? recurse(ctx) + use[0] : 0;
}

/* In a child: overflow a task's stack, with the sentence on a pipe. */
static void overflow_in_child(struct remo_scheduler *scheduler, int output) {
    remo_task_id task;
    struct rlimit no_core = {0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(output, STDERR_FILENO);
    if (remo_task_spawn(scheduler, recurse, scheduler, &task) == 0)
        (void)remo_task_join(scheduler, task, REMO_FOREVER, NULL);
    _exit(0);
}

static int overflow(struct remo_node *node, void *ctx) {
    struct remo_scheduler *scheduler;
    struct sigaction before, after;
    stack_t stack_before, stack_after;
    char text[512] = "";
    int ends[2], status;
    (void)ctx;
    CHECK(sigaction(SIGSEGV, NULL, &before) == 0);
    CHECK(sigaltstack(NULL, &stack_before) == 0);
    if (before.sa_handler != SIG_DFL) {
        printf("     skipped: this build handles SIGSEGV itself\n");
        return 0;
    }
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        overflow_in_child(scheduler, ends[1]);
    close(ends[1]);
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK(strstr(text, "overflowed its stack of 131072 bytes"));
    CHECK_OK(remo_scheduler_close(scheduler));
    CHECK(sigaction(SIGSEGV, NULL, &after) == 0);
    CHECK(sigaltstack(NULL, &stack_after) == 0);
    CHECK(stack_after.ss_flags == stack_before.ss_flags && stack_after.ss_sp == stack_before.ss_sp);
    CHECK(after.sa_handler == SIG_DFL);
    return 0;
}

/* ---- a task that neither waits nor yields ---- */

static _Atomic int reports;

static void on_log(void *ctx, int level, const char *message) {
    (void)ctx;
    if (level == REMO_LOG_WARNING && strstr(message, "has neither waited nor yielded"))
        atomic_store(&reports, 1);
}

static int compute(void *ctx) {
    (void)ctx;
    while (atomic_load(&reports) == 0)
        continue;
    return 0;
}

static int never_yields(struct remo_node *node, void *ctx) {
    struct job job;
    struct remo_node *member;
    struct remo_scheduler *scheduler;
    remo_task_id task;
    const struct remo_config config = {.log = on_log, .log_level = REMO_LOG_WARNING};
    (void)ctx;
    CHECK_OK(job_make(&job, 1));
    CHECK_OK(job_open(&job, 0, remo_node_fabric(node), &config, &member));
    member->threads->watch.period_ns = 1000000;
    CHECK_OK(remo_scheduler_open(member, NULL, &scheduler));
    CHECK_OK(remo_task_spawn(scheduler, compute, NULL, &task));
    CHECK_OK(remo_task_join(scheduler, task, REMO_FOREVER, NULL));
    CHECK_OK(remo_scheduler_close(scheduler));
    remo_node_close(member);
    job_remove(&job);
    return 0;
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(basics, 1),   CLUSTER_TEST(locks, 2),        CLUSTER_TEST(objects, 2),
        CLUSTER_TEST(failure, 2),  CLUSTER_TEST(many, 1),         CLUSTER_TEST(wrong_calls, 1),
        CLUSTER_TEST(overflow, 1), CLUSTER_TEST(never_yields, 1), {0}};
    return cluster_main(argc, argv, tests, NULL);
}
