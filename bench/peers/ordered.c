/* ordered.c - the points of the benchmarks of the ordered map on a store (ordered.h). The population is put
 * in the order of numbers, as in the benchmark of the tree. After each point worker 0 counts the entries. */
#include "bench/peers/ordered.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"

#define BENCHES 3u
#define POINTS_MAX 6u

/* A figure to measure. */
struct ordered_point {
    const char *variant;
    void (*run)(struct ordered *map); /* a window of operations; of a scan: of entries */
    bool is_uniform;                  /* not measured with --zipf */
    bool is_scan;                     /* an operation is an entry */
    unsigned window;                  /* above 1: only of a store that is pipelined; 0: as 1 */
};

struct ordered_bench {
    const char *name;
    void (*begin)(struct ordered *map);  /* before each point, in each worker */
    void (*finish)(struct ordered *map); /* after it; may be NULL */
    struct ordered_point points[POINTS_MAX];
};

/* ---- operations ---- */

static unsigned window_of(const struct ordered *map) {
    return map->point->is_scan ? map->entries : map->point->window ? map->point->window : 1;
}

static struct tree_record record_of(uint64_t number, uint64_t version) {
    uint64_t key = tree_key(number);
    return (struct tree_record){.key = key, .value = tree_value(key, version)};
}

static void get(struct ordered *map, struct tree_record *records, unsigned count) {
    map->store->get(map, records, count);
    for (unsigned i = 0; i < count; i++)
        if (!tree_value_belongs(records[i].key, records[i].value))
            processes_fail("the benchmark is wrong: the value %016llx is not one of key %016llx",
                           (unsigned long long)records[i].value,
                           (unsigned long long)tree_big_endian(records[i].key));
}

static void update_one(struct ordered *map, uint64_t number, uint64_t version) {
    const struct tree_record record = record_of(number, version);
    map->store->update(map, &record, 1);
}

static void insert_one(struct ordered *map, uint64_t number) {
    const struct tree_record record = record_of(number, 0);
    map->store->insert(map, &record);
}

/* Check the records of a scan, of which the first `first` precede the end of the map. */
static void check_records(const struct ordered *map, uint64_t number, unsigned first, unsigned entries) {
    const struct tree_record *records = map->records;
    if (records[0].key != tree_key(number) || !tree_records_are_right(records, first)
        || !tree_records_are_right(records + first, entries - first))
        processes_fail("the benchmark is wrong: a scan returned wrong entries");
}

/* Scan entries from a key on, and continue from the beginning of the map. */
static void scan(struct ordered *map, uint64_t number, unsigned entries) {
    unsigned first = map->store->scan(map, tree_key(number), map->records, entries), all = first;
    if (all < entries)
        all += map->store->scan(map, 0, map->records + all, entries - all);
    uint64_t now = remo__now_ns();
    if (all != entries)
        processes_fail("the benchmark is wrong: a scan returned %u entries, not %u", all, entries);
    check_records(map, number, first, entries);
    map->paused_ns += remo__now_ns() - now;
}

/* ---- points ---- */

static uint64_t draw(struct ordered *map) {
    return tree_draw(&map->keys, &map->worker.drawer, true);
}

static void run_gets(struct ordered *map) {
    struct tree_record records[ORDERED_WINDOW_MAX];
    unsigned window = window_of(map);
    for (unsigned i = 0; i < window; i++)
        records[i].key = tree_key(draw(map));
    get(map, records, window);
}

static void run_updates(struct ordered *map) {
    struct tree_record records[ORDERED_WINDOW_MAX];
    unsigned window = window_of(map);
    for (unsigned i = 0; i < window; i++)
        records[i] = record_of(draw(map), ++map->changes);
    map->store->update(map, records, window);
}

static void run_insert_remove(struct ordered *map) {
    uint64_t number = mix_new_number(&map->worker, map->changes++);
    insert_one(map, number);
    map->store->remove(map, tree_key(number));
}

static void run_scan(struct ordered *map) {
    scan(map, draw(map), map->entries);
}

static void modify(struct ordered *map, uint64_t number) {
    struct tree_record record = record_of(number, 0);
    get(map, &record, 1);
    update_one(map, number, (record.value >> 32) + 1);
}

static void run_mix(struct ordered *map) {
    struct mix_call call = mix_draw(&map->worker);
    struct tree_record record = record_of(call.number, 0);
    switch (call.op) {
    case MIX_READ: get(map, &record, 1); break;
    case MIX_UPDATE: update_one(map, call.number, ++map->changes); break;
    case MIX_SCAN: scan(map, call.number, (unsigned)remo__min(call.entries, map->keys.count)); break;
    case MIX_MODIFY: modify(map, call.number); break;
    default: insert_one(map, call.number); map->worker.inserted++;
    }
}

static void begin(struct ordered *map) {
    map->worker = (struct mix_worker){
        .keys = &map->keys, .workers = map->processes.count, .worker = map->processes.index};
    tree_drawer_begin(&map->worker.drawer, &map->random);
    map->changes = 0;
}

/* Before the second point worker 0 updates as many random keys as there are. */
static void begin_scan(struct ordered *map) {
    begin(map);
    if (strcmp(map->point->variant, "after updates") != 0 || map->processes.index != 0)
        return;
    for (uint64_t i = 0; i < map->keys.count; i++) {
        struct tree_record record = record_of(remo__random_below(&map->random, map->keys.count), i);
        map->store->add(map, record.key, record.value);
    }
    map->store->flush(map);
}

static void begin_mix(struct ordered *map) {
    begin(map);
    map->worker.mix = mix_find(map->point->variant);
}

/* Remove the keys that this worker has inserted. */
static void finish_mix(struct ordered *map) {
    for (uint64_t i = 0; i < map->worker.inserted; i++)
        map->store->remove(map, tree_key(mix_new_number(&map->worker, i)));
}

static const struct ordered_bench benches[BENCHES] = {
    {"tree",
     begin,
     NULL,
     {{.variant = "get", .run = run_gets},
      {.variant = "update", .run = run_updates},
      {.variant = "get", .run = run_gets, .window = ORDERED_WINDOW_MAX},
      {.variant = "update", .run = run_updates, .window = ORDERED_WINDOW_MAX},
      {.variant = "insert, remove", .run = run_insert_remove, .is_uniform = true}}},
    {"scan",
     begin_scan,
     NULL,
     {{.variant = "after load", .run = run_scan, .is_scan = true},
      {.variant = "after updates", .run = run_scan, .is_scan = true}}},
    {"ycsb",
     begin_mix,
     finish_mix,
     {{.variant = "a", .run = run_mix},
      {.variant = "b", .run = run_mix},
      {.variant = "c", .run = run_mix},
      {.variant = "d", .run = run_mix},
      {.variant = "e", .run = run_mix},
      {.variant = "f", .run = run_mix}}},
};

static const struct ordered_bench *find_bench(const char *name) {
    for (size_t i = 0; i < BENCHES; i++)
        if (strcmp(benches[i].name, name) == 0)
            return &benches[i];
    return NULL;
}

bool ordered_has(const char *bench) {
    return find_bench(bench) != NULL;
}

/* ---- measurement ---- */

static double batch(void *ctx, uint64_t operations) {
    struct ordered *map = ctx;
    uint64_t start_ns = remo__now_ns();
    map->paused_ns = 0;
    for (uint64_t done = 0; done < operations; done += window_of(map))
        map->point->run(map);
    return (double)(remo__now_ns() - start_ns - map->paused_ns);
}

static void report(struct ordered *map) {
    struct measure_result all;
    char distribution[32] = "uniform";
    bool is_one = map->store->has_one_process;
    unsigned workers = map->processes.count;
    uint64_t count = map->store->count(map);
    if (count != map->keys.count)
        processes_fail("the benchmark is wrong: the map has %llu entries instead of %llu",
                       (unsigned long long)count, (unsigned long long)map->keys.count);
    if (map->options->zipf > 0)
        snprintf(distribution, sizeof distribution, "zipf %.2f", map->options->zipf);
    processes_merge(&map->processes, &all);
    struct measure_subject subject = {
        .bench = map->options->bench,
        .object = "tree",
        .variant = map->point->variant,
        .window = map->point->is_scan || map->store->is_pipelined ? window_of(map) : 0,
        .nodes = is_one ? 1 : (int)workers,
        .threads = is_one ? workers : 1,
        .active = workers,
        .keys_count = map->keys.count,
        .keys = distribution,
        .read_percent = -1};
    measure_print(map->options, &subject, &all);
}

static void run_point(struct ordered *map, const struct ordered_bench *bench) {
    struct measure_result result;
    bench->begin(map);
    processes_barrier(&map->processes);
    measure_run(batch, map, window_of(map), map->options->seconds, &result);
    if (bench->finish)
        bench->finish(map);
    processes_share(&map->processes, &result, &(const union transaction_counts){0});
    processes_barrier(&map->processes);
    if (map->processes.index == 0)
        report(map);
    processes_barrier(&map->processes);
}

static bool is_measured(const struct ordered *map, const struct ordered_point *point) {
    return (!point->is_uniform || map->options->zipf <= 0)
           && (point->window <= 1 || map->store->is_pipelined);
}

static void run_points(struct ordered *map) {
    const struct ordered_bench *bench = find_bench(map->options->bench);
    for (size_t i = 0; i < POINTS_MAX && bench->points[i].run; i++) {
        map->point = &bench->points[i];
        if (is_measured(map, map->point))
            run_point(map, bench);
    }
    measure_print_end((int)map->processes.index);
}

/* ---- workers ---- */

static void fill(struct ordered *map) {
    for (uint64_t number = 0; number < map->keys.count; number++) {
        struct tree_record record = record_of(number, 0);
        map->store->add(map, record.key, record.value);
    }
    map->store->flush(map);
}

static void prepare(struct ordered *map) {
    const struct measure_options *options = map->options;
    map->entries = options->window ? options->window : TREE_SCAN_ENTRIES;
    map->entries = (unsigned)remo__min(map->entries, options->keys_count);
    map->records = calloc(remo__max(map->entries, MIX_ENTRIES_MAX), sizeof map->records[0]);
    if (!map->records
        || tree_keys_prepare(&map->keys, options->keys_count, options->zipf, map->processes.index) != 0)
        processes_fail("no memory for the keys and records of a worker");
    remo__random_seed(&map->random, map->processes.index + 1);
}

/* The workers are processes. */
static void run_process(struct ordered *map) {
    bool is_first = map->processes.index == 0;
    prepare(map);
    if (is_first)
        map->store->open(map);
    processes_barrier(&map->processes);
    if (!is_first)
        map->store->open(map);
    processes_barrier(&map->processes);
    if (is_first)
        fill(map);
    processes_barrier(&map->processes);
    if (map->store->begin)
        map->store->begin(map);
    run_points(map);
}

static void *run_thread(void *ctx) {
    struct ordered *map = ctx;
    measure_settle(map->options, (int)map->processes.index);
    prepare(map);
    run_points(map);
    return NULL;
}

/* The workers are threads of this process. */
static void run_threads(struct ordered *map) {
    struct ordered workers[PROCESSES_MAX];
    pthread_t threads[PROCESSES_MAX];
    prepare(map);
    map->store->open(map);
    fill(map);
    if (map->store->begin)
        map->store->begin(map);
    for (unsigned i = 0; i < map->processes.count; i++) {
        workers[i] = *map;
        workers[i].processes.index = i;
        int rc = pthread_create(&threads[i], NULL, run_thread, &workers[i]);
        if (rc != 0)
            processes_fail("cannot start a thread: %s", strerror(rc));
    }
    for (unsigned i = 0; i < map->processes.count; i++)
        (void)pthread_join(threads[i], NULL);
}

int ordered_main(const struct ordered_store *store, int argc, char **argv) {
    struct measure_options options;
    struct ordered map = {.store = store, .options = &options};
    measure_parse(argc, argv, &options);
    if (!ordered_has(options.bench))
        processes_fail("%s is not a benchmark of %s", options.bench, store->name);
    processes_prepare(&map.processes, &options);
    store->start(&map);
    if (store->has_one_process) {
        run_threads(&map);
    } else {
        processes_start(&map.processes, &options);
        run_process(&map);
    }
    if (store->close)
        store->close(&map);
    return 0;
}
