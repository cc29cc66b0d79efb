/* table.c - owned_var and sst: values with one writer and copies at other nodes.
 * The last value of a point ends the readers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/bench.h"

#define SIZES 2u
#define LAST UINT64_MAX /* the value that ends a point */
static const uint64_t sizes_bytes[SIZES] = {8, 64};

/* ---- owned_var: only node 0 operates ---- */

struct vars {
    struct remo_owned_var *near[SIZES]; /* owned by node 0 */
    struct remo_owned_var *far[SIZES];  /* owned by the next node */
};

static uint32_t owned_var_list(const struct bench_options *options,
                               struct bench_point points[BENCH_POINTS_MAX]) {
    static const char *const variants[] = {"pull", "push"};
    (void)options;
    for (uint32_t i = 0; i < 2 * SIZES; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].variant = variants[i / SIZES];
        points[i].bytes = sizes_bytes[i % SIZES];
        points[i].active = 1;
    }
    return 2 * SIZES;
}

static int owned_var_open(struct bench_job *job) {
    struct vars *vars = calloc(1, sizeof *vars);
    if (!vars)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = vars;
    int rc = 0;
    for (uint32_t i = 0; i < SIZES && rc == 0; i++) {
        struct remo_owned_var_options near = {.owner = 0}, far = {.owner = 1 % job->size};
        char name[32];
        snprintf(name, sizeof name, "near-%u", i);
        rc = remo_owned_var_open(job->channel, name, sizes_bytes[i], &near, &vars->near[i]);
        snprintf(name, sizeof name, "far-%u", i);
        if (rc == 0)
            rc = remo_owned_var_open(job->channel, name, sizes_bytes[i], &far, &vars->far[i]);
    }
    return rc;
}

/* Store a value before it is pulled. */
static int owned_var_fill(struct bench_job *job) {
    const struct vars *vars = job->state;
    char value[64];
    memset(value, 7, sizeof value);
    int rc = 0;
    for (uint32_t i = 0; i < SIZES && rc == 0; i++) {
        if (job->rank == 0)
            rc = remo_owned_var_store(vars->near[i], value);
        if (rc == 0 && job->rank == 1 % job->size)
            rc = remo_owned_var_store(vars->far[i], value);
    }
    return rc;
}

static void owned_var_close(struct bench_job *job) {
    struct vars *vars = job->state;
    for (uint32_t i = 0; vars && i < SIZES; i++) {
        remo_owned_var_close(vars->near[i]);
        remo_owned_var_close(vars->far[i]);
    }
    free(vars);
    job->state = NULL;
}

static bool is_push(const struct bench_point *point) {
    return strcmp(point->variant, "push") == 0;
}

static int owned_var_operate(struct bench_thread *thread, uint64_t operations) {
    const struct vars *vars = thread->job->state;
    const struct bench_point *point = thread->job->point;
    uint32_t size = point->bytes == sizes_bytes[0] ? 0 : 1;
    struct remo_owned_var *near = vars->near[size], *far = vars->far[size];
    uint64_t value[8] = {0};
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        if (!is_push(point)) {
            rc = remo_owned_var_pull(far, value);
        } else {
            value[0]++;
            rc = remo_owned_var_store(near, value);
            rc = rc != 0 ? rc : remo_owned_var_push(near, thread->target, NULL);
        }
    }
    return rc;
}

/* Wait for each pushed value, until the last one. */
static int owned_var_attend(struct bench_thread *thread) {
    const struct vars *vars = thread->job->state;
    const struct bench_point *point = thread->job->point;
    struct remo_owned_var *near = vars->near[point->bytes == sizes_bytes[0] ? 0 : 1];
    uint64_t value[8] = {0}, next[8] = {0};
    int rc = 0;
    if (!is_push(point) || thread->job->rank != 1)
        return 0;
    while (rc == 0 && value[0] != LAST) {
        rc = remo_owned_var_wait(near, value, next, REMO_FOREVER);
        memcpy(value, next, sizeof value);
    }
    return rc;
}

static int owned_var_finish(struct bench_thread *thread) {
    const struct vars *vars = thread->job->state;
    const struct bench_point *point = thread->job->point;
    struct remo_owned_var *near = vars->near[point->bytes == sizes_bytes[0] ? 0 : 1];
    uint64_t value[8] = {LAST};
    if (!is_push(point) || thread->job->rank != 0)
        return 0;
    int rc = remo_owned_var_store(near, value);
    return rc != 0 ? rc : remo_owned_var_push(near, thread->target, NULL);
}

static double copy_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    limit_memcpy_name(job->point->bytes, ret_name);
    return limit_memcpy_ns(bench_scratch(job), BENCH_SCRATCH_BYTES, job->point->bytes);
}

const struct bench bench_owned_var = {
    .name = "owned_var",
    .object = "owned_var",
    .description =
        "one node pulls the value of another; then stores its own and pushes it to one that waits for it",
    .one_thread = true,
    .list = owned_var_list,
    .open = owned_var_open,
    .fill = owned_var_fill,
    .close = owned_var_close,
    .operate = owned_var_operate,
    .finish = owned_var_finish,
    .attend = owned_var_attend,
    .limit = copy_limit,
};

/* ---- sst: node 0 pushes its row to all ---- */

struct tables {
    struct remo_sst *rows[SIZES];
};

static uint32_t sst_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    (void)options;
    for (uint32_t i = 0; i < SIZES; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].variant = "push_all";
        points[i].bytes = sizes_bytes[i];
        points[i].active = 1;
    }
    return SIZES;
}

static int sst_open(struct bench_job *job) {
    struct tables *tables = calloc(1, sizeof *tables);
    if (!tables)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = tables;
    int rc = 0;
    for (uint32_t i = 0; i < SIZES && rc == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "rows-%u", i);
        rc = remo_sst_open(job->channel, name, sizes_bytes[i], NULL, &tables->rows[i]);
    }
    return rc;
}

static void sst_close(struct bench_job *job) {
    struct tables *tables = job->state;
    for (uint32_t i = 0; tables && i < SIZES; i++)
        remo_sst_close(tables->rows[i]);
    free(tables);
    job->state = NULL;
}

static int sst_operate(struct bench_thread *thread, uint64_t operations) {
    const struct tables *tables = thread->job->state;
    struct remo_sst *rows = tables->rows[thread->job->point->bytes == sizes_bytes[0] ? 0 : 1];
    uint64_t row[8] = {0};
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        row[0] = ++thread->number;
        rc = remo_sst_store(rows, row);
        rc = rc != 0 ? rc : remo_sst_push_all(rows, NULL);
    }
    return rc;
}

struct watch {
    uint64_t seen, row[8];
};

static int has_changed(void *ctx, struct remo_sst *rows) {
    struct watch *watch = ctx;
    return remo_sst_load(rows, 0, watch->row) == 0 && watch->row[0] != watch->seen;
}

/* The other nodes watch the row. */
static int sst_attend(struct bench_thread *thread) {
    const struct tables *tables = thread->job->state;
    struct remo_sst *rows = tables->rows[thread->job->point->bytes == sizes_bytes[0] ? 0 : 1];
    struct watch watch = {0};
    int rc = 0;
    while (rc == 0 && watch.row[0] != LAST) {
        watch.seen = watch.row[0];
        rc = remo_sst_wait(rows, has_changed, &watch, REMO_FOREVER);
    }
    return rc;
}

static int sst_finish(struct bench_thread *thread) {
    const struct tables *tables = thread->job->state;
    struct remo_sst *rows = tables->rows[thread->job->point->bytes == sizes_bytes[0] ? 0 : 1];
    uint64_t row[8] = {LAST};
    if (thread->job->rank != 0)
        return 0;
    int rc = remo_sst_store(rows, row);
    return rc != 0 ? rc : remo_sst_push_all(rows, NULL);
}

const struct bench bench_sst = {
    .name = "sst",
    .object = "sst",
    .one_thread = true,
    .description = "one node stores its row and pushes it to all others, which wait for it",
    .list = sst_list,
    .open = sst_open,
    .close = sst_close,
    .operate = sst_operate,
    .finish = sst_finish,
    .attend = sst_attend,
    .limit = copy_limit,
};
