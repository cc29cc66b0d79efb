/* tree.c - gets, updates, inserts with removals, and loads of a tree whose owners are all nodes. The keys of
 * most points are those of all owners; "local" points use the keys that the node owns. A load inserts entries
 * behind the population of the node, and removes them outside the measured time. Invariant: each value
 * belongs to its key, and after each point the tree has the keys of the population. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "bench/tree/map.h"

static const char get[] = "get", update[] = "update", insert_remove[] = "insert, remove",
                  get_local[] = "get local", update_local[] = "update local", load[] = "load";

#define LOAD_ENTRIES 16384u /* of one load */
#define WINDOW 16u          /* operations in flight together */

/* ---- points ---- */

static uint32_t add_points(const struct bench_options *options, struct bench_point *points, double zipf) {
    static const char *const variants[] = {get,           update,    get,          update,
                                           insert_remove, get_local, update_local, load};
    uint32_t count = zipf > 0 ? 4 : 8; /* skewed keys: get and update only */
    for (uint32_t i = 0; i < count; i++) {
        points[i] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[i].variant = variants[i];
        points[i].active = tree_map_active(options);
        points[i].keys_count = tree_map_count_keys(options);
        points[i].zipf = zipf;
        points[i].window = variants[i] == load ? LOAD_ENTRIES : i / 2 == 1 ? WINDOW : 1;
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
    return tree_map_open_job(job, (uint64_t)LOAD_ENTRIES * job->size * job->options->threads);
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

/* Entries of keys [next, end), which are numbers in the order of keys. */
struct load_input {
    uint64_t next, end, key, value;
};

static int next_entry(void *ctx, struct remo_tree_entry *ret_entry) {
    struct load_input *input = ctx;
    if (input->next == input->end)
        return 0;
    input->key = tree_big_endian(input->next++);
    input->value = tree_value(input->key, 0);
    *ret_entry = (struct remo_tree_entry){.key = {&input->key, sizeof input->key},
                                          .value = {&input->value, sizeof input->value}};
    return 1;
}

/* Load entries with the last keys of this node's range. Threads use different keys. */
static int run_load(struct bench_thread *thread, const struct tree_map *map, uint64_t operations) {
    const struct bench_job *job = thread->job;
    uint64_t end = (uint64_t)(((unsigned __int128)(job->rank + 1) << 64) / job->size) - 1,
             first = end - (uint64_t)(thread->index + 1) * LOAD_ENTRIES;
    int rc = 0;
    for (uint64_t done = 0; done < operations && rc == 0; done += LOAD_ENTRIES) {
        struct load_input input = {.next = first, .end = first + LOAD_ENTRIES};
        rc = remo_tree_load(map->tree, next_entry, &input, 0, NULL);
        uint64_t now = remo__now_ns(), from = tree_big_endian(first), to = tree_big_endian(input.end);
        const struct remo_tree_range range = {.from = {&from, sizeof from}, .to = {&to, sizeof to}};
        rc = rc == 0 ? remo_tree_remove_range(map->tree, &range, NULL) : rc;
        thread->paused_ns += remo__now_ns() - now;
    }
    return rc;
}

struct flight {
    struct remo_tree_op op;
    uint64_t key, value;
};

/* Start a get or an update of a random key. */
static int start_flight(struct bench_thread *thread, const struct tree_map *map, struct flight *flight) {
    const struct bench_point *point = thread->job->point;
    bool gets = point->variant == get;
    flight->key = tree_key(tree_draw(&map->keys, thread->state, point->zipf > 0));
    flight->value = gets ? 0 : tree_value(flight->key, ++thread->number);
    flight->op = (struct remo_tree_op){.kind = gets ? REMO_TREE_GET : REMO_TREE_UPDATE,
                                       .key = &flight->key,
                                       .key_bytes = sizeof flight->key,
                                       .value = &flight->value,
                                       .value_bytes = sizeof flight->value};
    return remo_tree_start(map->tree, &flight->op);
}

static int finish_flight(const struct flight *flight) {
    if (flight->op.status == 0 && !tree_value_belongs(flight->key, flight->value))
        return remo__fail(-EIO, "the benchmark is wrong: a get in a window returns the value of another key");
    return flight->op.status;
}

/* Keep the window full until all operations have started, then complete it. */
static int run_window(struct bench_thread *thread, const struct tree_map *map, uint64_t operations) {
    struct flight flights[WINDOW];
    uint64_t started = 0;
    int rc = 0, left = 1;
    for (; started < WINDOW && started < operations && rc == 0; started++)
        rc = start_flight(thread, map, &flights[started]);
    for (uint64_t count = started; left > 0 && rc == 0;) {
        left = rc = remo_tree_poll(map->tree);
        for (uint64_t i = 0; i < count && rc >= 0; i++) {
            if (flights[i].op.status == -EINPROGRESS)
                continue;
            rc = finish_flight(&flights[i]);
            if (rc == 0 && started < operations) {
                rc = start_flight(thread, map, &flights[i]);
                started++;
                left = 1;
            }
        }
        rc = rc < 0 ? rc : 0;
    }
    while (left > 0) /* after an error, too: the operations are on this stack */
        left = remo_tree_poll(map->tree);
    return rc;
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
    if (thread->job->point->variant == load)
        return run_load(thread, thread->job->state, operations);
    if (thread->job->point->window > 1)
        return run_window(thread, thread->job->state, operations);
    for (uint64_t i = 0; i < operations && rc == 0; i++)
        rc = run_one(thread);
    return rc;
}

const struct bench bench_tree = {
    .name = "tree",
    .object = "tree",
    .description =
        "gets and updates of an ordered map of 1 M keys (--keys) whose owners are all nodes, one by one and "
        "16 "
        "in flight; an insert of a new key and its removal; keys of all owners, uniform and Zipf 0.99, and "
        "keys of the node itself; a load of 16384 entries, each",
    .list = tree_list,
    .open = tree_open,
    .fill = tree_fill,
    .close = tree_map_close_job,
    .begin = tree_begin,
    .operate = tree_operate,
    .finish = tree_finish,
    .check = tree_check,
};
