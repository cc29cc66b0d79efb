/* driver.c - runs one point on one node: threads start together, warm up, measure, and stop together.
 * Each timing starts at the end of the previous one, so every delay is in the figures. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/bench.h"
#include "node/node.h"
#include "remote/stats.h"

#define WARM_UP_NS (100 * REMO__NS_PER_MS)
/* Time between two commands of the leader of a collective benchmark; less for short points. */
#define ROUND_NS (5 * REMO__NS_PER_MS)
#define ROUNDS 8u
#define BATCH_OPERATIONS_MAX (1u << 22)
#define PS_PER_NS 1000

/* The start signal of a node's threads, so that all measure during the same time. */
struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    int state; /* 0: closed; 1: open; -1: closed for good, after an error */
    uint64_t warm_until_ns, until_ns;
};

struct worker {
    struct bench_thread *thread;
    struct gate *gate;
    pthread_t id;
    int (*body)(struct bench_thread *thread, const struct gate *gate);
};

/* Return the time from `before` to `now` without the pauses of the thread. */
static uint64_t take_time(struct bench_thread *thread, uint64_t before, uint64_t now) {
    uint64_t paused_ns = thread->paused_ns;
    thread->paused_ns = 0;
    return now - before - paused_ns;
}

static int operate(struct bench_thread *thread, uint64_t operations) {
    thread->started += operations;
    return thread->job->bench->operate(thread, operations);
}

static uint64_t step_of(const struct bench_thread *thread) {
    return thread->job->point->window ? thread->job->point->window : 1;
}

/* Return how many operations to time together, given the time of `operations` of them. */
static uint32_t batch_for(uint64_t operations, uint64_t took_ns, uint64_t step) {
    if (took_ns / operations >= BENCH_SINGLE_NS)
        return (uint32_t)step;
    uint64_t wanted = operations * BENCH_BATCH_NS / remo__max(took_ns, 1);
    wanted = remo__min(remo__max(wanted, 1), BATCH_OPERATIONS_MAX);
    return (uint32_t)((wanted + step - 1) / step * step);
}

/* Warm up and find the batch size: double it until a batch is long enough, then continue with
 * it. */
static int warm_up(struct bench_thread *thread, uint64_t until_ns) {
    uint64_t step = step_of(thread), operations = step, now = remo__now_ns();
    uint64_t best_ns = UINT64_MAX; /* of a batch of this size */
    do {
        uint64_t start = now;
        int rc = operate(thread, operations);
        if (rc != 0)
            return rc;
        now = remo__now_ns();
        uint64_t took_ns = take_time(thread, start, now);
        if (took_ns < BENCH_BATCH_NS && operations < BATCH_OPERATIONS_MAX) {
            operations *= 2;
            best_ns = UINT64_MAX;
        } else {
            best_ns = remo__min(best_ns, took_ns);
        }
    } while (now < until_ns || best_ns == UINT64_MAX);
    thread->batch = batch_for(operations, best_ns, step);
    return 0;
}

/* Measure until `until_ns`, at least one batch. */
static int measure(struct bench_thread *thread, uint64_t until_ns) {
    uint32_t batch = thread->batch;
    uint64_t before = remo__now_ns(), now;
    remo__histogram_reset(thread->histogram);
    do {
        int rc = operate(thread, batch);
        if (rc != 0)
            return rc;
        now = remo__now_ns();
        uint64_t took_ns = take_time(thread, before, now);
        remo__histogram_record(thread->histogram, took_ns * PS_PER_NS / batch);
        thread->measured += batch;
        thread->elapsed_ns += took_ns;
        before = now;
    } while (now < until_ns);
    return 0;
}

static int run_alone(struct bench_thread *thread, const struct gate *gate) {
    int rc = warm_up(thread, gate->warm_until_ns);
    return rc != 0 ? rc : measure(thread, gate->until_ns);
}

/* ---- collective ---- */

/* A command of the leader: how many operations come next; 0 is the end. Followers receive every
 * command, since the leader completes the operations of one only together with them. */
struct round_command {
    uint64_t number, operations;
};

static int command(struct bench_thread *thread, uint64_t operations) {
    struct bench_job *job = thread->job;
    struct round_command round_command = {.number = ++job->commands, .operations = operations};
    int rc = remo_sst_store(job->rounds, &round_command);
    return rc != 0 ? rc : remo_sst_push_all(job->rounds, NULL);
}

static void reset_figures(struct bench_thread *thread) {
    remo__histogram_reset(thread->histogram);
    thread->measured = 0;
    thread->elapsed_ns = 0;
}

/* Run a round of `count` timings of thread->batch operations each. The fence places the writes of the
 * command: the fence of the first operation would do so otherwise. */
static int lead_round(struct bench_thread *thread, uint64_t count) {
    uint32_t batch = thread->batch;
    int rc = command(thread, count * batch);
    if (rc == 0)
        rc = remo_fence(thread->job->node, REMO_FENCE_THREAD, 0);
    uint64_t start = remo__now_ns(), before = start, now = start;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        rc = operate(thread, batch);
        now = remo__now_ns();
        remo__histogram_record(thread->histogram, (now - before) * PS_PER_NS / batch);
        before = now;
    }
    thread->measured += count * batch;
    thread->elapsed_ns += now - start;
    return rc;
}

/* As warm_up, in rounds. */
static int lead_warm_up(struct bench_thread *thread, uint64_t until_ns) {
    uint64_t best_ns = UINT64_MAX;
    int rc = 0;
    thread->batch = 1;
    do {
        reset_figures(thread);
        rc = lead_round(thread, 1);
        if (thread->elapsed_ns < BENCH_BATCH_NS && thread->batch < BATCH_OPERATIONS_MAX) {
            thread->batch *= 2;
            best_ns = UINT64_MAX;
        } else {
            best_ns = remo__min(best_ns, thread->elapsed_ns);
        }
    } while (rc == 0 && (remo__now_ns() < until_ns || best_ns == UINT64_MAX));
    if (rc != 0)
        return rc;
    uint32_t operations = thread->batch;
    thread->batch = batch_for(operations, best_ns, 1);
    thread->elapsed_ns = best_ns / operations * thread->batch; /* of a batch */
    return 0;
}

static int lead(struct bench_thread *thread, const struct gate *gate) {
    int rc = lead_warm_up(thread, gate->warm_until_ns);
    uint64_t round_ns = remo__min(ROUND_NS, (uint64_t)(thread->job->options->seconds * 1e9) / ROUNDS);
    uint64_t count = remo__max(round_ns / remo__max(thread->elapsed_ns, 1), 1);
    reset_figures(thread);
    while (rc == 0 && (thread->measured == 0 || remo__now_ns() < gate->until_ns))
        rc = lead_round(thread, count);
    return rc != 0 ? rc : command(thread, 0);
}

struct listener {
    struct bench_job *job;
    struct round_command round_command;
};

static int has_command(void *ctx, struct remo_sst *rounds) {
    struct listener *listener = ctx;
    return remo_sst_load(rounds, 0, &listener->round_command) == 0
           && listener->round_command.number > listener->job->commands;
}

static int follow(struct bench_thread *thread, const struct gate *gate) {
    (void)gate;
    struct listener listener = {.job = thread->job};
    int rc;
    do {
        rc = remo_sst_wait(thread->job->rounds, has_command, &listener, REMO_FOREVER);
        thread->job->commands = listener.round_command.number;
        if (rc == 0 && listener.round_command.operations > 0)
            rc = operate(thread, listener.round_command.operations);
    } while (rc == 0 && listener.round_command.operations > 0);
    return rc;
}

/* ---- threads ---- */

static int attend(struct bench_thread *thread, const struct gate *gate) {
    (void)gate;
    return thread->job->bench->attend(thread);
}

static void keep_error(struct bench_thread *thread, int rc) {
    if (rc == 0 || thread->status != 0)
        return;
    thread->status = rc;
    const char *sentence = remo_last_error();
    snprintf(thread->error, sizeof thread->error, "%s", sentence[0] ? sentence : remo_error_text(rc));
}

static int pass(struct gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    while (gate->state == 0)
        pthread_cond_wait(&gate->opened, &gate->mutex);
    int state = gate->state;
    pthread_mutex_unlock(&gate->mutex);
    return state;
}

static void open_gate(struct gate *gate, const struct bench_options *options, int state) {
    uint64_t duration_ns = (uint64_t)(options->seconds * 1e9);
    pthread_mutex_lock(&gate->mutex);
    gate->warm_until_ns = remo__now_ns() + remo__min(WARM_UP_NS, duration_ns / 2);
    gate->until_ns = gate->warm_until_ns + duration_ns;
    gate->state = state;
    pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->mutex);
}

static void work(struct worker *worker) {
    struct bench_thread *thread = worker->thread;
    const struct bench *bench = thread->job->bench;
    if (bench->begin)
        keep_error(thread, bench->begin(thread));
    if (thread->status == 0)
        keep_error(thread, worker->body(thread, worker->gate));
    if (bench->finish)
        keep_error(thread, bench->finish(thread));
}

static void *worker_main(void *argument) {
    struct worker *worker = argument;
    bench_pin(worker->thread->job->options, worker->thread->job->rank, worker->thread->index);
    if (pass(worker->gate) > 0)
        work(worker);
    return NULL;
}

/* The first worker is the calling thread. */
static int run_workers(struct worker *workers, uint32_t count, struct gate *gate,
                       const struct bench_options *options) {
    uint32_t started = 1;
    int rc = 0;
    while (started < count && rc == 0) {
        rc = pthread_create(&workers[started].id, NULL, worker_main, &workers[started]);
        started += rc == 0;
    }
    open_gate(gate, options, rc == 0 ? 1 : -1);
    if (rc == 0)
        work(&workers[0]);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(workers[i].id, NULL);
    if (rc != 0)
        return remo__fail(-rc, "cannot start thread %u of %u (%s); reduce --threads, or raise ulimit -u",
                          started, count, strerror(rc));
    for (uint32_t i = 0; i < count; i++)
        if (workers[i].thread->status != 0)
            return remo__fail(workers[i].thread->status, "%s", workers[i].thread->error);
    return 0;
}

/* ---- a point ---- */

static void prepare(struct bench_job *job, struct bench_thread *thread, uint32_t index) {
    struct remo__histogram *histogram = thread->histogram;
    *thread = (struct bench_thread){
        .job = job, .index = index, .target = bench_target(job), .histogram = histogram};
    remo__histogram_reset(histogram);
    remo__random_seed(&thread->random, ((uint64_t)job->rank << 32) + index);
}

/* Return how many threads of this node take part in the point, and set their function. */
static uint32_t cast(const struct bench_job *job,
                     int (**ret_body)(struct bench_thread *, const struct gate *)) {
    const struct bench *bench = job->bench;
    if (bench->collective) {
        *ret_body = job->rank == 0 ? lead : follow;
        return 1;
    }
    if (job->rank < job->point->active) {
        *ret_body = run_alone;
        return bench->one_thread ? 1 : job->options->threads;
    }
    *ret_body = attend;
    return bench->attend ? 1 : 0;
}

int bench_drive(struct bench_job *job, struct bench_thread *threads, struct remo_stats *ret_stats,
                struct remo__fabric_wire *ret_wire) {
    struct gate gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    struct worker workers[BENCH_THREADS_MAX];
    struct remo_stats before, after;
    struct remo__fabric_wire wire;
    int (*body)(struct bench_thread *, const struct gate *);
    uint32_t count = cast(job, &body);
    struct remo__fabric *fabric = job->node->fabric;
    for (uint32_t i = 0; i < job->options->threads; i++) {
        prepare(job, &threads[i], i);
        workers[i] = (struct worker){.thread = &threads[i], .gate = &gate, .body = body};
    }
    remo_channel_stats(job->channel, &before);
    fabric->ops->wire(fabric, &wire);
    int rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    if (rc == 0 && count > 0)
        rc = run_workers(workers, count, &gate, job->options);
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    remo_channel_stats(job->channel, &after);
    fabric->ops->wire(fabric, ret_wire);
    remo__stats_subtract(&after, &before);
    *ret_stats = after;
    ret_wire->requests -= wire.requests;
    ret_wire->posts -= wire.posts;
    ret_wire->signalled -= wire.signalled;
    ret_wire->inlined -= wire.inlined;
    ret_wire->bytes -= wire.bytes;
    if (body == attend && job->bench->attends_apart) {
        *ret_stats = (struct remo_stats){0};
        *ret_wire = (struct remo__fabric_wire){0};
    }
    return rc;
}
