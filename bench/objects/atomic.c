/* atomic.c - fetch_add and compare_swap on words of another node.
 * Each thread has its own word; the contended fetch_add runs on one word for all nodes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "bench/bench.h"

/* Distance between the words of two threads: two cache lines, since processors fetch them in
 * pairs. */
#define SPACING_WORDS 16u

/* Return the index of a home's word with this number: words are dealt to the nodes in turn. */
static uint64_t word_index(const struct bench_job *job, uint32_t home, uint64_t number) {
    return number * SPACING_WORDS * job->size + home;
}

static uint64_t own_word(const struct bench_thread *thread) {
    const struct bench_job *job = thread->job;
    uint64_t number = 1 + (uint64_t)job->rank * job->options->threads + thread->index;
    return word_index(job, thread->target, number);
}

static int open_words(struct bench_job *job) {
    uint64_t threads = (uint64_t)job->size * job->options->threads;
    struct remo_atomic_var_options options = {.count = (threads + 2) * SPACING_WORDS * job->size,
                                              .place = REMO_ATOMIC_VAR_STRIPED};
    struct remo_atomic_var *var = NULL;
    int rc = remo_atomic_var_open(job->channel, "words", &options, &var);
    job->state = var;
    return rc;
}

static void close_words(struct bench_job *job) {
    remo_atomic_var_close(job->state);
    job->state = NULL;
}

static bool is_contended(const struct bench_point *point) {
    return point->variant && strcmp(point->variant, "contended") == 0;
}

/* ---- fetch_add ---- */

static uint32_t fetch_add_list(const struct bench_options *options,
                               struct bench_point points[BENCH_POINTS_MAX]) {
    points[0] = (struct bench_point)BENCH_POINT_DEFAULT;
    points[0].bytes = 8;
    points[0].window = options->window ? options->window : 1;
    points[0].active = bench_active(options);
    points[1] = points[0];
    points[1].variant = "contended";
    points[1].active = options->nodes;
    return options->nodes * options->threads > 1 ? 2 : 1;
}

static int fetch_add_operate(struct bench_thread *thread, uint64_t operations) {
    struct remo_atomic_var *var = thread->job->state;
    uint32_t window = thread->job->point->window;
    uint64_t index = is_contended(thread->job->point) ? word_index(thread->job, 0, 0) : own_word(thread);
    uint64_t old[BENCH_WINDOW_MAX];
    int rc = 0;
    if (window == 1) {
        for (uint64_t i = 0; i < operations && rc == 0; i++)
            rc = remo_atomic_var_fetch_add(var, index, 1, old, NULL);
        return rc;
    }
    for (uint64_t i = 0; i < operations && rc == 0; i += window) {
        struct remo_ack ack = REMO_ACK_INIT;
        for (uint32_t k = 0; k < window && rc == 0; k++)
            rc = remo_atomic_var_fetch_add(var, index, 1, &old[k], &ack);
        int waited = remo_ack_wait(&ack, REMO_FOREVER);
        rc = rc != 0 ? rc : waited;
    }
    return rc;
}

static double fetch_add_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    if (!is_contended(job->point)) {
        snprintf(ret_name, LIMIT_NAME_BYTES, "%s", LIMIT_FETCH_ADD);
        return limit_fetch_add_ns(bench_scratch(job));
    }
    snprintf(ret_name, LIMIT_NAME_BYTES, "%s", LIMIT_FETCH_ADD_CONTENDED);
    return limit_fetch_add_contended_ns(bench_scratch(job), bench_cpu(job->options, 0, 0),
                                        bench_cpu(job->options, 1, 0));
}

const struct bench bench_fetch_add = {
    .name = "fetch_add",
    .object = "atomic_var",
    .description = "add to a word of another node; then all nodes to one word",
    .list = fetch_add_list,
    .open = open_words,
    .close = close_words,
    .operate = fetch_add_operate,
    .network = BENCH_NETWORK_READ,
    .limit = fetch_add_limit,
};

/* ---- compare_swap ---- */

static uint32_t compare_swap_list(const struct bench_options *options,
                                  struct bench_point points[BENCH_POINTS_MAX]) {
    points[0] = (struct bench_point)BENCH_POINT_DEFAULT;
    points[0].bytes = 8;
    points[0].window = 1; /* each needs the result of its predecessor */
    points[0].active = bench_active(options);
    return 1;
}

static int compare_swap_begin(struct bench_thread *thread) {
    return remo_atomic_var_load(thread->job->state, own_word(thread), &thread->number, NULL);
}

static int compare_swap_operate(struct bench_thread *thread, uint64_t operations) {
    struct remo_atomic_var *var = thread->job->state;
    uint64_t index = own_word(thread), expected = thread->number, old;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        rc = remo_atomic_var_compare_swap(var, index, expected, expected + 1, &old, NULL);
        if (rc == 0 && old != expected)
            rc = remo__fail(-EIO, "the benchmark is wrong: an uncontended compare-swap found %llu, not %llu",
                            (unsigned long long)old, (unsigned long long)expected);
        expected++;
    }
    thread->number = expected;
    return rc;
}

static double compare_swap_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    snprintf(ret_name, LIMIT_NAME_BYTES, "%s", LIMIT_COMPARE_SWAP);
    return limit_compare_swap_ns(bench_scratch(job));
}

const struct bench bench_compare_swap = {
    .name = "compare_swap",
    .object = "atomic_var",
    .description = "swap a word of another node, always with success",
    .list = compare_swap_list,
    .open = open_words,
    .close = close_words,
    .begin = compare_swap_begin,
    .operate = compare_swap_operate,
    .network = BENCH_NETWORK_READ,
    .limit = compare_swap_limit,
};
