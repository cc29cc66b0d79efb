/* node.c - one node of the demo: loads its share, works, reads records back, and reports to node 0.
 * Record i is loaded by node i mod n, changed by the next node, and read back by the one after
 * that. So the reader has neither the slot nor the last value; the writer publishes its number of
 * changes through a region. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "bench/limit/limit.h"
#include "channel/channel.h"
#include "cli/demo/demo.h"

#define LOAD_WINDOW 64u
#define EXTRAS 16u /* keys that each node inserts and deletes while it works */
#define EXTRA_KEY_BYTES 32u
#define EXTRA_ONE_IN 4u /* chance to start one, if one is idle */
#define UPDATE_ONE_IN 8u
#define COST_OPERATIONS 64u
#define WAIT_NS (60 * REMO__NS_PER_S)
#define REPORT_NS (100 * REMO__NS_PER_MS)
#define SCRATCH_BYTES_MIN (1u << 20)
#define SCRATCH_BYTES_MAX (64u << 20)

/* A key that is inserted and deleted in turn. */
struct extra {
    struct remo_kv_op op;
    char key[EXTRA_KEY_BYTES];
    bool present, busy;
    uint64_t began_ns;
};

struct demo {
    const struct demo_options *options;
    struct demo_records records;
    struct remo_node *node;
    uint32_t rank, size;
    struct remo_kv *kv;
    struct remo_barrier *barrier;
    struct remo_sst *progress;    /* records loaded or read back in this phase */
    struct remo_region *versions; /* at each node: u64 per record that it reads back */
    struct remo_region *results;  /* at node 0: demo_results of each node */
    struct remo_region *nets;     /* at node 0: remo_stats of each node */
    struct remo_region *scratch;  /* the memory for measuring limits */
    struct demo_results *mine;
    uint64_t *version; /* of the records that this node changes */
    struct remo__random random;
    char *buffer, *other; /* room for a value */
    size_t buffer_bytes;
    struct extra extras[EXTRAS];
    uint64_t reported_ns;
    struct demo_cost costs[DEMO_KINDS];
};

static uint32_t writer_of(const struct demo *demo, uint32_t record) {
    return (record + 1) % demo->size;
}

static uint32_t reader_of(const struct demo *demo, uint32_t record) {
    return (record + (demo->size > 2 ? 2 : 1)) % demo->size;
}

/* ---- progress ---- */

static void print_progress(struct demo *demo, const char *what, uint64_t done, uint64_t all, bool now) {
    uint64_t time = remo__now_ns();
    if (demo->rank != 0 || (!now && time - demo->reported_ns < REPORT_NS))
        return;
    demo->reported_ns = time;
    printf("%c%s %llu %llu\n", DEMO_PROGRESS, what, (unsigned long long)done, (unsigned long long)all);
    fflush(stdout);
}

/* Publish this node's progress, and let node 0 print the sum of all nodes. */
static void publish_progress(struct demo *demo, const char *what, uint64_t done, uint64_t all) {
    uint64_t sum = 0;
    if (remo__now_ns() - demo->reported_ns < REPORT_NS)
        return;
    (void)remo_sst_store(demo->progress, &done);
    if (demo->rank != 0) {
        (void)remo_sst_push(demo->progress, 0, NULL);
        demo->reported_ns = remo__now_ns();
        return;
    }
    for (uint32_t node = 0; node < demo->size; node++) {
        uint64_t row = 0;
        if (remo_sst_load(demo->progress, node, &row) == 0)
            sum += row;
    }
    print_progress(demo, what, sum < all ? sum : all, all, true);
}

/* Wait for all nodes, and reset the progress. */
static int next_phase(struct demo *demo) {
    uint64_t none = 0;
    (void)remo_sst_store(demo->progress, &none);
    (void)remo_sst_push(demo->progress, 0, NULL);
    return remo_barrier_wait(demo->barrier, WAIT_NS);
}

/* ---- load ---- */

static int finish_load(struct demo *demo, struct remo_kv_op *op) {
    int rc = remo_kv_wait(demo->kv, op);
    if (rc == 0)
        demo->mine->loaded++;
    return rc == 0 ? 0 : remo__fail_more(rc, "loading %.*s", (int)op->key_bytes, (const char *)op->key);
}

static int load(struct demo *demo) {
    struct remo_kv_op ops[LOAD_WINDOW];
    uint32_t started = 0, finished = 0;
    uint64_t began = remo__now_ns();
    int rc = 0;
    for (uint32_t i = demo->rank; i < demo->records.count && rc == 0; i += demo->size) {
        const struct demo_record *record = &demo->records.all[i];
        if (started - finished == LOAD_WINDOW)
            rc = finish_load(demo, &ops[finished++ % LOAD_WINDOW]);
        if (rc != 0)
            break;
        struct remo_kv_op *op = &ops[started % LOAD_WINDOW];
        *op = (struct remo_kv_op){.kind = REMO_KV_INSERT,
                                  .key = record->key,
                                  .key_bytes = record->key_bytes,
                                  .value = (void *)(uintptr_t)record->value,
                                  .value_bytes = record->value_bytes};
        rc = remo_kv_start(demo->kv, op);
        started += rc == 0;
        publish_progress(demo, "loading", demo->mine->loaded, demo->records.count);
    }
    while (finished < started) {
        struct remo_kv_op *op = &ops[finished++ % LOAD_WINDOW];
        if (rc == 0)
            rc = finish_load(demo, op);
        else
            (void)remo_kv_wait(demo->kv, op); /* its memory will be freed */
    }
    demo->mine->load_seconds = (double)(remo__now_ns() - began) / 1e9;
    return rc;
}

/* ---- work ---- */

static void note(struct demo *demo, enum demo_kind kind, uint64_t began_ns) {
    remo__histogram_record(&demo->mine->histograms[kind], remo__now_ns() - began_ns);
}

static int wrong(struct demo *demo, const struct demo_record *record, const char *how) {
    demo->mine->wrong++;
    return remo__fail(-EIO, "node %u: the value of %.*s %s", demo->rank, (int)record->key_bytes, record->key,
                      how);
}

/* Read any record, possibly during its update by another node. */
static int read_one(struct demo *demo) {
    uint32_t i = (uint32_t)remo__random_below(&demo->random, demo->records.count);
    const struct demo_record *record = &demo->records.all[i];
    size_t bytes;
    uint64_t began = remo__now_ns();
    int rc = remo_kv_get(demo->kv, record->key, record->key_bytes, demo->buffer, demo->buffer_bytes, &bytes);
    note(demo, DEMO_GET, began);
    if (rc != 0)
        return remo__fail_more(rc, "reading %.*s", (int)record->key_bytes, record->key);
    uint32_t version = demo_version(record, demo->buffer, bytes);
    if (version == UINT32_MAX)
        return wrong(demo, record, "was never written");
    if (writer_of(demo, i) == demo->rank && version != demo->version[i])
        return wrong(demo, record, "is not the last value");
    return 0;
}

/* Update a record of this node. */
static int update_one(struct demo *demo) {
    uint32_t mine = (demo->rank + demo->size - 1) % demo->size;
    if (mine >= demo->records.count)
        return 0;
    uint32_t count = (demo->records.count - mine - 1) / demo->size + 1;
    uint32_t i = mine + (uint32_t)remo__random_below(&demo->random, count) * demo->size;
    const struct demo_record *record = &demo->records.all[i];
    size_t bytes = demo_value(record, (uint32_t)++demo->version[i], demo->buffer);
    uint64_t began = remo__now_ns();
    int rc = remo_kv_update(demo->kv, record->key, record->key_bytes, demo->buffer, bytes);
    note(demo, DEMO_UPDATE, began);
    return rc == 0 ? 0 : remo__fail_more(rc, "updating %.*s", (int)record->key_bytes, record->key);
}

static int start_extra(struct demo *demo, struct extra *extra) {
    uint64_t i = remo__random_below(&demo->random, demo->records.count);
    const struct demo_record *record = &demo->records.all[i];
    extra->op = (struct remo_kv_op){.kind = extra->present ? REMO_KV_DELETE : REMO_KV_INSERT,
                                    .key = extra->key,
                                    .key_bytes = strlen(extra->key)};
    if (!extra->present) {
        extra->op.value = (void *)(uintptr_t)record->value;
        extra->op.value_bytes = record->value_bytes;
    }
    extra->began_ns = remo__now_ns();
    extra->busy = true;
    return remo_kv_start(demo->kv, &extra->op);
}

/* Poll the extra operations: an insert waits for all nodes, so it overlaps with other work. */
static int tend_extras(struct demo *demo) {
    if (remo_kv_poll(demo->kv) < 0)
        return -EAGAIN;
    for (uint32_t i = 0; i < EXTRAS; i++) {
        struct extra *extra = &demo->extras[i];
        if (!extra->busy || extra->op.status == -EINPROGRESS)
            continue;
        if (extra->op.status != 0)
            return remo__fail_more(extra->op.status, "%s %s", extra->present ? "deleting" : "inserting",
                                   extra->key);
        note(demo, extra->present ? DEMO_DELETE : DEMO_INSERT, extra->began_ns);
        extra->present = !extra->present;
        extra->busy = false;
    }
    struct extra *extra = &demo->extras[remo__random_below(&demo->random, EXTRAS)];
    return extra->busy || remo__random_below(&demo->random, EXTRA_ONE_IN) != 0 ? 0 : start_extra(demo, extra);
}

/* Wait for operations in flight, and delete the remaining extra keys. */
static int end_extras(struct demo *demo) {
    int rc = 0;
    for (uint32_t i = 0; i < EXTRAS; i++) {
        struct extra *extra = &demo->extras[i];
        if (extra->busy) {
            int one = remo_kv_wait(demo->kv, &extra->op);
            rc = rc ? rc : one;
            extra->present ^= one == 0;
            extra->busy = false;
        }
        if (rc == 0 && extra->present)
            rc = remo_kv_delete(demo->kv, extra->key, strlen(extra->key));
    }
    return rc;
}

static int work(struct demo *demo) {
    uint64_t began = remo__now_ns(), length = (uint64_t)(demo->options->seconds * 1e9), now = began;
    int rc = 0;
    while (rc == 0 && now - began < length) {
        print_progress(demo, "working", (now - began) / REMO__NS_PER_MS, length / REMO__NS_PER_MS, false);
        for (uint32_t i = 0; rc == 0 && i < 2 * UPDATE_ONE_IN; i++) {
            rc = remo__random_below(&demo->random, UPDATE_ONE_IN) == 0 ? update_one(demo) : read_one(demo);
            if (rc == 0 && i % UPDATE_ONE_IN == 0)
                rc = tend_extras(demo);
        }
        now = remo__now_ns();
    }
    demo->mine->work_seconds = (double)(now - began) / 1e9;
    int ended = end_extras(demo);
    return rc ? rc : ended;
}

/* ---- read back ---- */

/* Send each record's reader the number of its changes. */
static int publish_versions(struct demo *demo) {
    for (uint32_t i = 0; i < demo->records.count; i++) {
        int rc = 0;
        if (writer_of(demo, i) == demo->rank)
            rc = remo_region_write(demo->versions, reader_of(demo, i), 8 * (uint64_t)i, &demo->version[i], 8,
                                   0, NULL);
        if (rc != 0)
            return rc;
    }
    return remo_fence(demo->node, REMO_FENCE_GLOBAL, 0);
}

static int read_back(struct demo *demo) {
    const uint64_t *versions = remo_region_local(demo->versions);
    uint64_t began = remo__now_ns();
    for (uint32_t i = 0; i < demo->records.count; i++) {
        const struct demo_record *record = &demo->records.all[i];
        size_t bytes;
        if (reader_of(demo, i) != demo->rank)
            continue;
        int rc =
            remo_kv_get(demo->kv, record->key, record->key_bytes, demo->buffer, demo->buffer_bytes, &bytes);
        if (rc != 0)
            return remo__fail_more(rc, "reading %.*s back", (int)record->key_bytes, record->key);
        size_t expected = demo_value(record, (uint32_t)versions[i], demo->other);
        if (bytes != expected || memcmp(demo->buffer, demo->other, bytes) != 0)
            return wrong(demo, record, "is not the last value");
        demo->mine->checked++;
        publish_progress(demo, "reading-back", demo->mine->checked, demo->records.count);
    }
    demo->mine->check_seconds = (double)(remo__now_ns() - began) / 1e9;
    return 0;
}

/* ---- network operations per operation ---- */

static int cost_operation(struct demo *demo, enum demo_kind kind, uint32_t turn) {
    char key[EXTRA_KEY_BYTES];
    int length = snprintf(key, sizeof key, "cost~%u", turn);
    switch (kind) {
    case DEMO_GET: return remo_kv_get(demo->kv, key, (size_t)length, demo->buffer, demo->buffer_bytes, NULL);
    case DEMO_UPDATE: return remo_kv_update(demo->kv, key, (size_t)length, "other", 5);
    case DEMO_INSERT: return remo_kv_insert(demo->kv, key, (size_t)length, "value", 5);
    default: return remo_kv_delete(demo->kv, key, (size_t)length);
    }
}

/* Node 0 operates while its peers are idle; the network operations of all nodes are the cost. */
static int cost_of(struct demo *demo, enum demo_kind kind) {
    struct remo_stats before, after, sum = {0};
    int rc = remo_barrier_wait(demo->barrier, WAIT_NS);
    remo_channel_stats(remo_kv_channel(demo->kv), &before);
    rc = rc ? rc : remo_barrier_wait(demo->barrier, WAIT_NS);
    for (uint32_t i = 0; rc == 0 && demo->rank == 0 && i < COST_OPERATIONS; i++)
        rc = cost_operation(demo, kind, i);
    rc = rc ? rc : remo_barrier_wait(demo->barrier, WAIT_NS);
    remo_channel_stats(remo_kv_channel(demo->kv), &after);
    struct remo_stats net = {.reads = after.reads - before.reads,
                             .writes = after.writes - before.writes,
                             .atomics = after.atomics - before.atomics,
                             .imms = after.imms - before.imms};
    rc = rc ? rc : remo_region_write(demo->nets, 0, demo->rank * sizeof net, &net, sizeof net, 0, NULL);
    rc = rc ? rc : remo_fence(demo->node, REMO_FENCE_GLOBAL, 0);
    rc = rc ? rc : remo_barrier_wait(demo->barrier, WAIT_NS);
    const struct remo_stats *all = remo_region_local(demo->nets);
    for (uint32_t i = 0; rc == 0 && all && i < demo->size; i++) {
        sum.reads += all[i].reads;
        sum.writes += all[i].writes;
        sum.atomics += all[i].atomics;
        sum.imms += all[i].imms;
    }
    demo->costs[kind] =
        (struct demo_cost){(double)sum.reads / COST_OPERATIONS, (double)sum.writes / COST_OPERATIONS,
                           (double)sum.atomics / COST_OPERATIONS, (double)sum.imms / COST_OPERATIONS};
    return rc;
}

static int find_costs(struct demo *demo) {
    static const enum demo_kind order[DEMO_KINDS] = {DEMO_INSERT, DEMO_GET, DEMO_UPDATE, DEMO_DELETE};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < DEMO_KINDS; i++)
        rc = cost_of(demo, order[i]);
    return rc;
}

/* ---- limits of the machine ---- */

static void two_processors(int ret_cpu[2]) {
    cpu_set_t allowed;
    int found = 0;
    ret_cpu[0] = ret_cpu[1] = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            ret_cpu[found++] = cpu;
    if (found == 1)
        ret_cpu[1] = ret_cpu[0];
}

/* Return the memory of the last node as this node's CPU sees it, or NULL. */
static char *scratch_mapping(struct demo *demo) {
    struct remo_addr addr;
    if (remo_region_address(demo->scratch, demo->size - 1, 0, &addr) != 0)
        return NULL;
    char *base = remo__peer_base(demo->node, demo->size - 1);
    return base ? base + remo_addr_offset(addr) : NULL;
}

/* Measure the limits on node 0 while its peers sleep. */
static void find_limits(struct demo *demo, struct demo_limit limits[DEMO_KINDS]) {
    char *mapping = scratch_mapping(demo), name[LIMIT_NAME_BYTES];
    size_t bytes = demo->records.bytes / demo->records.count;
    int cpu[2];
    memset(limits, 0, DEMO_KINDS * sizeof limits[0]);
    if (!mapping)
        return;
    two_processors(cpu);
    memset(mapping, 1, remo_region_bytes(demo->scratch));
    double copy = limit_memcpy_random_ns(mapping, remo_region_bytes(demo->scratch), bytes);
    double lock = limit_lock_ns(mapping), trip = limit_pingpong_ns(mapping, cpu[0], cpu[1], 2);
    limit_memcpy_random_name(bytes, name);
    limits[DEMO_GET].ns = copy;
    snprintf(limits[DEMO_GET].what, sizeof limits[0].what, "%s", name);
    limits[DEMO_UPDATE].ns = copy + lock;
    snprintf(limits[DEMO_UPDATE].what, sizeof limits[0].what, "the same, and lock and unlock");
    limits[DEMO_INSERT].ns = copy + lock + trip;
    snprintf(limits[DEMO_INSERT].what, sizeof limits[0].what,
             "the same, and a round trip to another processor");
    limits[DEMO_DELETE].ns = lock;
    snprintf(limits[DEMO_DELETE].what, sizeof limits[0].what, "lock and unlock");
}

/* ---- the whole node ---- */

static int open_objects(struct demo *demo) {
    struct remo_channel *root = remo_node_root(demo->node);
    const struct demo_records *records = &demo->records;
    struct remo_region_options at_first = {0}, at_last = {0};
    uint64_t share = (records->count + demo->size - 1) / demo->size + EXTRAS + COST_OPERATIONS;
    struct remo_kv_options map = {.capacity = share * demo->size,
                                  .key_bytes_max =
                                      (uint32_t)remo__max(records->key_bytes_max, EXTRA_KEY_BYTES),
                                  .value_bytes_max = records->value_bytes_max + DEMO_UPDATE_BYTES};
    remo_nodeset_add(&at_first.providers, 0);
    remo_nodeset_add(&at_last.providers, demo->size - 1);
    uint64_t scratch = remo__min(remo__max(records->bytes, SCRATCH_BYTES_MIN), SCRATCH_BYTES_MAX);
    scratch = remo__align_up(remo__max(scratch, records->value_bytes_max), 4096);
    int rc = remo_kv_open(root, "records", &map, &demo->kv);
    rc = rc ? rc : remo_barrier_open(root, "phase", NULL, &demo->barrier);
    rc = rc ? rc : remo_sst_open(root, "progress", sizeof(uint64_t), NULL, &demo->progress);
    rc = rc ? rc : remo_region_open(root, "versions", 8 * (uint64_t)records->count, NULL, &demo->versions);
    rc = rc ? rc
            : remo_region_open(root, "results", demo->size * sizeof *demo->mine, &at_first, &demo->results);
    rc = rc ? rc
            : remo_region_open(root, "nets", demo->size * sizeof(struct remo_stats), &at_first, &demo->nets);
    rc = rc ? rc : remo_region_open(root, "scratch", scratch, &at_last, &demo->scratch);
    return rc ? rc : remo_channel_wait(root, WAIT_NS);
}

static int open_all(struct demo *demo) {
    int rc = remo_node_open(NULL, &demo->node);
    if (rc != 0)
        return rc;
    demo->rank = remo_node_rank(demo->node);
    demo->size = remo_node_size(demo->node);
    remo__random_seed(&demo->random, demo->rank + 1);
    demo->mine = calloc(1, sizeof *demo->mine);
    demo->version = calloc(demo->records.count, sizeof *demo->version);
    demo->buffer_bytes = demo->records.value_bytes_max + DEMO_UPDATE_BYTES;
    demo->buffer = malloc(demo->buffer_bytes);
    demo->other = malloc(demo->buffer_bytes);
    if (!demo->mine || !demo->version || !demo->buffer || !demo->other)
        return remo__fail(-ENOMEM, "no memory for the demo");
    for (uint32_t i = 0; i < DEMO_KINDS; i++)
        remo__histogram_reset(&demo->mine->histograms[i]);
    for (uint32_t i = 0; i < EXTRAS; i++)
        snprintf(demo->extras[i].key, EXTRA_KEY_BYTES, "extra~%u~%u", demo->rank, i);
    return open_objects(demo);
}

static void close_all(struct demo *demo) {
    remo_region_close(demo->scratch);
    remo_region_close(demo->nets);
    remo_region_close(demo->results);
    remo_region_close(demo->versions);
    remo_sst_close(demo->progress);
    remo_barrier_close(demo->barrier);
    remo_kv_close(demo->kv);
    remo_node_close(demo->node);
    free(demo->mine);
    free(demo->version);
    free(demo->buffer);
    free(demo->other);
    demo_records_free(&demo->records);
}

/* Send each node's results to node 0 through a region, and merge them there. */
static int merge(struct demo *demo, struct demo_results *sum) {
    int rc = remo_region_write(demo->results, 0, demo->rank * sizeof *demo->mine, demo->mine,
                               sizeof *demo->mine, 0, NULL);
    rc = rc ? rc : remo_fence(demo->node, REMO_FENCE_GLOBAL, 0);
    rc = rc ? rc : remo_barrier_wait(demo->barrier, WAIT_NS);
    const struct demo_results *all = remo_region_local(demo->results);
    memset(sum, 0, sizeof *sum);
    for (uint32_t kind = 0; kind < DEMO_KINDS; kind++)
        remo__histogram_reset(&sum->histograms[kind]);
    for (uint32_t i = 0; rc == 0 && all && i < demo->size; i++) {
        sum->loaded += all[i].loaded;
        sum->checked += all[i].checked;
        sum->wrong += all[i].wrong;
        sum->load_seconds = all[i].load_seconds > sum->load_seconds ? all[i].load_seconds : sum->load_seconds;
        sum->work_seconds = all[i].work_seconds > sum->work_seconds ? all[i].work_seconds : sum->work_seconds;
        sum->check_seconds =
            all[i].check_seconds > sum->check_seconds ? all[i].check_seconds : sum->check_seconds;
        for (uint32_t kind = 0; kind < DEMO_KINDS; kind++)
            remo__histogram_merge(&sum->histograms[kind], &all[i].histograms[kind]);
    }
    return rc;
}

static int run(struct demo *demo) {
    struct demo_limit limits[DEMO_KINDS];
    int rc = next_phase(demo);
    rc = rc ? rc : load(demo);
    rc = rc ? rc : next_phase(demo);
    rc = rc ? rc : find_costs(demo);
    rc = rc ? rc : next_phase(demo);
    rc = rc ? rc : work(demo);
    rc = rc ? rc : publish_versions(demo);
    rc = rc ? rc : next_phase(demo);
    rc = rc ? rc : read_back(demo);
    struct demo_results *sum = malloc(sizeof *sum);
    if (!sum)
        rc = rc ? rc : remo__fail(-ENOMEM, "no memory for the results");
    rc = rc ? rc : merge(demo, sum);
    if (rc == 0 && demo->rank == 0) {
        find_limits(demo, limits);
        demo_report_table(sum, demo->costs, limits);
    }
    free(sum);
    return rc ? rc : remo_barrier_wait(demo->barrier, WAIT_NS);
}

int demo_node(const struct demo_options *options) {
    struct demo *demo = calloc(1, sizeof *demo);
    if (!demo)
        return 1;
    demo->options = options;
    int rc = demo_records_read(options->file, &demo->records);
    rc = rc ? rc : open_all(demo);
    if (rc == 0 && demo->rank == 0)
        demo_report_start(options, &demo->records);
    rc = rc ? rc : run(demo);
    if (rc != 0)
        fprintf(stderr, "remo demo: %s\n", remo_last_error());
    close_all(demo);
    free(demo);
    return rc == 0 ? 0 : 1;
}
