/* scan.c - scans of a tree whose owners are all nodes: from a random key on, the next 5000 entries (--window)
 * in the order of keys. An operation is one entry. The first point runs after the population, the second
 * after random updates. Both leave records in the logs of the leaves, which readers apply: about half of the
 * room of a log is full. Each scan is checked, outside the measured time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/tree/map.h"
#include "systems/tree/tree.h"

static const char after_load[] = "after load", after_updates[] = "after updates";

/* ---- points ---- */

static uint32_t count_entries(const struct bench_options *options) {
    uint32_t entries = options->window ? options->window : TREE_SCAN_ENTRIES;
    return (uint32_t)remo__min(entries, tree_map_count_keys(options));
}

static uint32_t scan_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    static const char *const variants[] = {after_load, after_updates};
    for (uint32_t i = 0; i < 2; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].variant = variants[i];
        points[i].bytes = sizeof(struct tree_record);
        points[i].window = count_entries(options);
        points[i].active = tree_map_active(options);
        points[i].keys_count = tree_map_count_keys(options);
        points[i].zipf = options->zipf > 0 ? options->zipf : 0;
    }
    return 2;
}

/* ---- the job ---- */

static int scan_open(struct bench_job *job) {
    return tree_map_open_job(job, 0);
}

static int scan_fill(struct bench_job *job) {
    return tree_map_load(job, job->state, job->options->zipf > 0 ? job->options->zipf : 0);
}

/* Update random keys of this node, as many as it has. */
static int update_own(struct bench_job *job, const struct tree_map *map) {
    struct remo__random random;
    int rc = 0;
    remo__random_seed(&random, job->rank);
    for (uint64_t i = 0; i < map->own_count && rc == 0; i++)
        rc = tree_map_update(map, map->own[remo__random_below(&random, map->own_count)], i);
    return rc;
}

/* Between the two points, fill the logs. */
static int scan_check(struct bench_job *job) {
    const struct tree_map *map = job->state;
    int rc = tree_map_check(job, map);
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    return rc == 0 && job->point->variant == after_load ? update_own(job, map) : rc;
}

/* ---- operations ---- */

struct worker {
    struct tree_scanner scanner;
    struct tree_drawer drawer;
};

static int scan_begin(struct bench_thread *thread) {
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = worker;
    tree_drawer_begin(&worker->drawer, &thread->random);
    return tree_scanner_open(&worker->scanner, thread->job->point->window);
}

static int scan_finish(struct bench_thread *thread) {
    struct worker *worker = thread->state;
    if (worker)
        tree_scanner_close(&worker->scanner);
    free(worker);
    thread->state = NULL;
    return 0;
}

static int scan_operate(struct bench_thread *thread, uint64_t operations) {
    const struct tree_map *map = thread->job->state;
    struct worker *worker = thread->state;
    uint32_t entries = thread->job->point->window;
    int rc = 0;
    for (uint64_t done = 0; done < operations && rc == 0; done += entries) {
        uint64_t number = tree_draw(&map->keys, &worker->drawer, true);
        rc = tree_map_scan(map, &worker->scanner, number, entries);
        uint64_t now = remo__now_ns();
        rc = rc == 0 ? tree_scanner_check(&worker->scanner, number, entries) : rc;
        thread->paused_ns += remo__now_ns() - now;
    }
    return rc;
}

/* The time to copy the used nodes, each at a random place, per entry. */
static double scan_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    const struct tree_map *map = job->state;
    uint64_t arena_bytes, used = map->nodes - map->tree->own->free_count;
    const void *arena = bench_arena(job, &arena_bytes);
    if (!arena)
        return 0;
    snprintf(ret_name, LIMIT_NAME_BYTES, "leaf_copy: memcpy of leaves of %u B at random places",
             map->leaf_bytes);
    return limit_memcpy_random_ns(arena, arena_bytes, map->leaf_bytes) * (double)used
           / (double)map->own_count;
}

const struct bench bench_scan = {
    .name = "scan",
    .object = "tree",
    .description =
        "scans of 5000 entries (--window) of an ordered map of 1 M keys (--keys) whose owners are all nodes, "
        "from a random key on: after the load, and after random updates; an operation is one entry",
    .list = scan_list,
    .open = scan_open,
    .fill = scan_fill,
    .close = tree_map_close_job,
    .begin = scan_begin,
    .operate = scan_operate,
    .finish = scan_finish,
    .check = scan_check,
    .limit = scan_limit,
};
