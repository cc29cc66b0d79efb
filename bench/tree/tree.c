/* tree.c - gets, updates, and inserts with removals of a tree whose owners are all nodes. The keys of most
 * points are those of all owners; "local" points use the keys that the node owns. Invariant: each value
 * belongs to its key, and after each point the tree has the keys of the population. */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "bench/tree/map.h"

static const char get[] = "get", update[] = "update", insert_remove[] = "insert, remove",
                  get_local[] = "get local", update_local[] = "update local";

/* ---- points ---- */

static uint32_t add_points(const struct bench_options *options, struct bench_point *points, double zipf) {
    static const char *const variants[] = {get, update, insert_remove, get_local, update_local};
    uint32_t count = zipf > 0 ? 2 : 5; /* skewed keys: get and update only */
    for (uint32_t i = 0; i < count; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].variant = variants[i];
        points[i].active = tree_map_active(options);
        points[i].keys_count = tree_map_count_keys(options);
        points[i].zipf = zipf;
    }
    return count;
}

static uint32_t tree_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    if (options->zipf >= 0)
        return add_points(options, points, options->zipf);
    uint32_t count = add_points(options, points, 0);
    return count + add_points(options, points + count, TREE_ZIPF);
}

/* ---- the job ---- */

static int tree_open(struct bench_job *job) {
    return tree_map_open(job, 0);
}

static int tree_fill(struct bench_job *job) {
    double zipf = job->options->zipf;
    return tree_map_load(job, job->state, zipf >= 0 ? zipf : TREE_ZIPF);
}

static int tree_check(struct bench_job *job) {
    return tree_map_check(job, job->state);
}

/* ---- operations ---- */

static int tree_begin(struct bench_thread *thread) {
    struct tree_drawer *drawer = malloc(sizeof *drawer);
    if (!drawer)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = drawer;
    tree_drawer_begin(drawer, &thread->random);
    return 0;
}

static int tree_finish(struct bench_thread *thread) {
    free(thread->state);
    thread->state = NULL;
    return 0;
}

static uint64_t draw_own(struct bench_thread *thread, const struct tree_map *map) {
    return map->own[remo__random_below(&thread->random, map->own_count)];
}

static int run_insert_remove(struct bench_thread *thread, const struct tree_map *map) {
    uint64_t threads = (uint64_t)thread->job->size * thread->job->options->threads,
             own = (uint64_t)thread->job->rank * thread->job->options->threads + thread->index,
             number = tree_new_number(&map->keys, thread->number++, threads, own);
    int rc = tree_map_insert(map, number);
    return rc == 0 ? tree_map_remove(map, number) : rc;
}

static int run_one(struct bench_thread *thread) {
    const struct bench_point *point = thread->job->point;
    const struct tree_map *map = thread->job->state;
    uint64_t value;
    if (point->variant == get)
        return tree_map_get(map, tree_draw(&map->keys, thread->state, point->zipf > 0), &value);
    if (point->variant == get_local)
        return tree_map_get(map, draw_own(thread, map), &value);
    if (point->variant == update_local)
        return tree_map_update(map, draw_own(thread, map), ++thread->number);
    if (point->variant == update)
        return tree_map_update(map, tree_draw(&map->keys, thread->state, point->zipf > 0), ++thread->number);
    return run_insert_remove(thread, map);
}

static int tree_operate(struct bench_thread *thread, uint64_t operations) {
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++)
        rc = run_one(thread);
    return rc;
}

const struct bench bench_tree = {
    .name = "tree",
    .object = "tree",
    .description =
        "gets and updates of an ordered map of 1 M keys (--keys) whose owners are all nodes; an insert of a "
        "new key and its removal; keys of all owners, uniform and Zipf 0.99, and keys of the node itself",
    .list = tree_list,
    .open = tree_open,
    .fill = tree_fill,
    .close = tree_map_close,
    .begin = tree_begin,
    .operate = tree_operate,
    .finish = tree_finish,
    .check = tree_check,
};
