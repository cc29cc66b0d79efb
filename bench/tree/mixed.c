/* mixed.c - ROMe's figure 1: local workers beside remote scans. Node 0 owns an ordered map, and its threads
 * run a workload of YCSB on it. Each other node is a client, whose one thread meanwhile scans 5000 to 10,000
 * entries (--window) from a key that is drawn like those of the workers. One point gives two figures: the
 * operations of the workers, and the entries of all scans. In place of scans, copies of as many bytes from
 * random places of node 0's memory show the cost of any reader for the workers. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/tree/map.h"
#include "bench/tree/mix.h"
#include "remote/op.h"
#include "remote/stats.h"

#define ENTRIES_MIN 5000u
#define ENTRIES_MAX 10000u /* of a scan */
#define CHECKED_SCANS 16u  /* of so many scans, one is checked */
#define ENTRY_BYTES 20u    /* of a scan's buffer; copies have as many bytes */
#define PS_PER_NS 1000u

enum beside { NOTHING, SCANS, COPIES };

static const struct mix updates = {"updates", {[MIX_UPDATE] = 100}, false};

/* A point of the benchmark. */
static const struct kind {
    const char *variant, *mix;
    enum beside beside;
    const char *scans; /* the variant of the second figure */
} kinds[] = {
    {"b", "b", NOTHING, NULL},
    {"b beside scans", "b", SCANS, "scans beside b"},
    {"b beside copies", "b", COPIES, NULL},
    {"a", "a", NOTHING, NULL},
    {"a beside scans", "a", SCANS, "scans beside a"},
    {"a beside copies", "a", COPIES, NULL},
    {"gets beside scans", "c", SCANS, "scans beside gets"},
    {"updates beside scans", NULL, SCANS, "scans beside updates"},
};

#define KINDS (sizeof kinds / sizeof kinds[0])

/* The scans of one client in a point. The times in the histogram are ps for each entry. */
struct share {
    uint64_t entries, elapsed_ns;
    struct remo_stats net;
    struct remo__histogram histogram;
};

struct state {
    struct tree_map *map;
    struct remo_sst *ended;     /* of node 0: how many points have ended */
    struct remo_region *shares; /* at node 0, one for each node */
    _Atomic uint32_t finished;  /* workers of node 0 that have finished the point */
    uint64_t points;            /* of node 0: ended points; of a client: attended points */
};

/* A worker or a client. */
struct actor {
    struct mix_worker mix;
    struct tree_scanner scanner;
    struct share share;
    size_t copied; /* bytes of the buffer that the last copies have filled */
};

/* ---- points ---- */

static double skew(const struct bench_options *options) {
    return options->zipf >= 0 ? options->zipf : TREE_ZIPF;
}

static uint32_t mixed_list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    bool is_mapped = strcmp(options->fabric, "shm") == 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < KINDS; i++) {
        if ((kinds[i].beside != NOTHING && options->nodes == 1) || (kinds[i].beside == COPIES && !is_mapped))
            continue;
        points[count] = (struct bench_point)BENCH_POINT_DEFAULT;
        points[count].variant = kinds[i].variant;
        points[count].active = 1;
        points[count].keys_count = tree_map_count_keys(options);
        points[count].zipf = skew(options);
        count++;
    }
    return count;
}

static const struct kind *find_kind(const struct bench_point *point) {
    uint32_t i = 0;
    while (strcmp(kinds[i].variant, point->variant) != 0)
        i++;
    return &kinds[i];
}

/* ---- the job ---- */

static int mixed_open(struct bench_job *job) {
    struct remo_region_options at_zero = {0};
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = state;
    remo_nodeset_add(&at_zero.providers, 0);
    int rc = tree_map_open(job, 1, 0, &state->map);
    if (rc == 0)
        rc = remo_sst_open(job->channel, "ended", sizeof(uint64_t), NULL, &state->ended);
    if (rc == 0)
        rc = remo_region_open(job->channel, "shares", job->size * sizeof(struct share), &at_zero,
                              &state->shares);
    return rc;
}

static void mixed_close(struct bench_job *job) {
    struct state *state = job->state;
    if (!state)
        return;
    remo_region_close(state->shares);
    remo_sst_close(state->ended);
    tree_map_close(state->map);
    free(state);
    job->state = NULL;
}

static int mixed_fill(struct bench_job *job) {
    const struct state *state = job->state;
    return tree_map_load(job, state->map, skew(job->options));
}

/* ---- workers ---- */

static int mixed_begin(struct bench_thread *thread) {
    const struct kind *kind = find_kind(thread->job->point);
    const struct state *state = thread->job->state;
    struct actor *actor = calloc(1, sizeof *actor);
    if (!actor)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = actor;
    actor->mix =
        (struct mix_worker){.mix = kind->mix ? mix_find(kind->mix) : &updates, .keys = &state->map->keys};
    tree_drawer_begin(&actor->mix.drawer, &thread->random);
    remo__histogram_reset(&actor->share.histogram);
    return thread->job->rank == 0 ? 0 : tree_scanner_open(&actor->scanner, ENTRIES_MAX);
}

static int mixed_operate(struct bench_thread *thread, uint64_t operations) {
    const struct state *state = thread->job->state;
    struct actor *actor = thread->state;
    uint64_t value;
    int rc = 0;
    for (uint64_t i = 0; i < operations && rc == 0; i++) {
        struct mix_call call = mix_draw(&actor->mix);
        rc = call.op == MIX_READ ? tree_map_get(state->map, call.number, &value)
                                 : tree_map_update(state->map, call.number, ++thread->number);
    }
    return rc;
}

/* The last worker ends the point for the clients. */
static int end_point(struct bench_job *job) {
    struct state *state = job->state;
    if (atomic_fetch_add(&state->finished, 1) + 1 < job->options->threads)
        return 0;
    atomic_store(&state->finished, 0);
    state->points++;
    int rc = remo_sst_store(state->ended, &state->points);
    return rc != 0 ? rc : remo_sst_push_all(state->ended, NULL);
}

static int mixed_finish(struct bench_thread *thread) {
    struct actor *actor = thread->state;
    if (actor)
        tree_scanner_close(&actor->scanner);
    free(actor);
    thread->state = NULL;
    return thread->job->rank == 0 ? end_point(thread->job) : 0;
}

/* ---- clients ---- */

static uint32_t draw_entries(const struct bench_job *job, struct actor *actor) {
    uint64_t entries = job->options->window;
    if (entries <= 1) /* 1 is the default of the simulated network */
        entries = ENTRIES_MIN + remo__random_below(actor->mix.drawer.random, ENTRIES_MAX - ENTRIES_MIN + 1);
    return (uint32_t)remo__min(entries, tree_map_count_keys(job->options));
}

static int scan_once(struct bench_thread *thread, struct actor *actor, uint64_t number) {
    const struct state *state = thread->job->state;
    uint32_t entries = draw_entries(thread->job, actor);
    uint64_t start = remo__now_ns();
    int rc = tree_map_scan(state->map, &actor->scanner, number, entries);
    uint64_t took_ns = remo__now_ns() - start;
    actor->share.entries += entries;
    actor->share.elapsed_ns += took_ns;
    remo__histogram_record(&actor->share.histogram, took_ns * PS_PER_NS / entries);
    if (rc == 0 && thread->number++ % CHECKED_SCANS == 0)
        rc = tree_scanner_check(&actor->scanner, number, entries);
    return rc;
}

/* Copy blocks of a node's size from random places of node 0's arena: as many bytes as a scan returns. */
static void copy_once(const struct bench_job *job, struct actor *actor) {
    const struct state *state = job->state;
    const char *arena = remo__peer_base(job->node, 0);
    uint64_t leaf_bytes = state->map->leaf_bytes,
             leaves = atomic_load(&job->node->peers[0].mapped_bytes) / leaf_bytes;
    uint64_t bytes = (uint64_t)draw_entries(job, actor) * ENTRY_BYTES;
    for (uint64_t done = 0; done < bytes; done += leaf_bytes) {
        uint64_t leaf = remo__random_below(actor->mix.drawer.random, leaves);
        if (actor->copied + leaf_bytes > actor->scanner.cap)
            actor->copied = 0;
        memcpy(actor->scanner.buffer + actor->copied, arena + leaf * leaf_bytes, leaf_bytes);
        actor->copied += leaf_bytes;
    }
}

static bool has_ended(const struct state *state) {
    uint64_t ended;
    return remo_sst_load(state->ended, 0, &ended) == 0 && ended >= state->points;
}

/* Scan or copy until the workers have ended the point. */
static int run_client(struct bench_thread *thread, enum beside beside) {
    struct bench_job *job = thread->job;
    const struct state *state = job->state;
    struct actor *actor = thread->state;
    int rc = 0;
    do {
        if (beside == COPIES)
            copy_once(job, actor);
        else
            rc = scan_once(thread, actor, tree_draw(&state->map->keys, &actor->mix.drawer, true));
    } while (rc == 0 && !has_ended(state));
    return rc;
}

static int mixed_attend(struct bench_thread *thread) {
    struct bench_job *job = thread->job;
    enum beside beside = find_kind(job->point)->beside;
    struct state *state = job->state;
    struct share *share = &((struct actor *)thread->state)->share;
    struct remo_stats before;
    state->points++;
    remo_channel_stats(job->channel, &before);
    int rc = beside == NOTHING ? 0 : run_client(thread, beside);
    if (rc != 0 || beside != SCANS)
        return rc;
    remo_channel_stats(job->channel, &share->net);
    remo__stats_subtract(&share->net, &before);
    return remo_region_write(state->shares, 0, job->rank * sizeof *share, share, sizeof *share, 0, NULL);
}

/* ---- the second figure ---- */

static void add_share(struct bench_result *result, const struct share *share) {
    double seconds = (double)share->elapsed_ns / 1e9;
    result->ops += (double)share->entries;
    result->ops_per_s += (double)share->entries / seconds;
    result->seconds = fmax(result->seconds, seconds);
    result->reads += (double)share->net.reads;
    result->writes += (double)share->net.writes;
    result->atomics += (double)share->net.atomics;
    result->imms += (double)share->net.imms;
    result->net_bytes += (double)share->net.bytes;
}

/* Add up the shares of all clients. */
static void merge_shares(const struct bench_job *job, struct bench_result *result) {
    const struct state *state = job->state;
    const struct share *shares = remo_region_local(state->shares);
    result->ops = result->ops_per_s = result->seconds = 0;
    result->reads = result->writes = result->atomics = result->imms = result->net_bytes = 0;
    for (uint32_t node = 1; node < job->size; node++)
        add_share(result, &shares[node]);
    result->reads /= result->ops;
    result->writes /= result->ops;
    result->atomics /= result->ops;
    result->imms /= result->ops;
    result->net_bytes /= result->ops;
}

static int merge_times(const struct bench_job *job, struct bench_result *result) {
    const struct state *state = job->state;
    const struct share *shares = remo_region_local(state->shares);
    struct remo__histogram *all = malloc(sizeof *all);
    if (!all)
        return remo__fail(-ENOMEM, "no memory for the figures");
    remo__histogram_reset(all);
    for (uint32_t node = 1; node < job->size; node++)
        remo__histogram_merge(all, &shares[node].histogram);
    result->p50_ns = (double)remo__histogram_percentile(all, 50) / PS_PER_NS;
    result->p99_ns = (double)remo__histogram_percentile(all, 99) / PS_PER_NS;
    result->p999_ns = (double)remo__histogram_percentile(all, 99.9) / PS_PER_NS;
    free(all);
    return 0;
}

/* Report the scans of all clients. */
static int emit_scans(struct bench_job *job, const char *variant) {
    struct bench_result result;
    bench_result_reset(&result);
    snprintf(result.object, sizeof result.object, "%s", job->bench->object);
    snprintf(result.variant, sizeof result.variant, "%s", variant);
    snprintf(result.distribution, sizeof result.distribution, job->point->zipf > 0 ? "zipf %.2f" : "uniform",
             job->point->zipf);
    result.active = job->size - 1;
    result.bytes = sizeof(struct tree_record);
    result.keys_count = job->point->keys_count;
    merge_shares(job, &result);
    int rc = merge_times(job, &result);
    if (rc == 0)
        bench_emit(job, &result);
    return rc;
}

static int mixed_check(struct bench_job *job) {
    const struct state *state = job->state;
    const char *scans = find_kind(job->point)->scans;
    int rc = tree_map_check(job, state->map);
    return rc == 0 && job->rank == 0 && scans ? emit_scans(job, scans) : rc;
}

const struct bench bench_mixed = {
    .name = "mixed",
    .object = "tree",
    .description =
        "ROMe's figure 1: workloads A and B of YCSB in node 0 on its own ordered map, and at the same time "
        "scans of 5000 to 10,000 entries (--window) from each other node; an operation of a scan is one "
        "entry",
    .list = mixed_list,
    .open = mixed_open,
    .fill = mixed_fill,
    .close = mixed_close,
    .begin = mixed_begin,
    .operate = mixed_operate,
    .finish = mixed_finish,
    .attend = mixed_attend,
    .attends_apart = true,
    .check = mixed_check,
};
