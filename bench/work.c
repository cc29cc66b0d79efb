/* work.c - one node of a benchmark's job: opens objects, runs the points, merges figures at node 0.
 * All nodes run the same points in the same order, with a barrier after each. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/bench.h"
#include "remote/op.h"

#define PROGRESS_NS (200 * REMO__NS_PER_MS)
#define CONNECT_NS (60 * REMO__NS_PER_S)
#define PS_PER_NS 1000.0

/* The figures of a node, sent to node 0 after each point. */
struct figures {
    uint64_t started, measured;
    double ops_per_s, seconds;
    uint32_t batch;
    struct remo_stats net;
    struct remo__fabric_wire wire;
    struct remo__histogram histogram;
};

/* ---- output ---- */

/* Write a whole line at once, so that lines of several nodes do not mix. A closed pipe is not an
 * error here. */
static void send_text(int fd, char *text) {
    if (!text)
        return;
    size_t length = strlen(text);
    text[length] = '\n'; /* in place of its terminator */
    ssize_t written = write(fd, text, length + 1);
    (void)written;
    free(text);
}

static void send_object(int fd, json_t *object) {
    send_text(fd, object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL);
    json_decref(object);
}

static void send_error(int fd, const char *bench, uint32_t rank, const char *sentence) {
    send_object(fd, json_pack("{s:s, s:i, s:s}", "bench", bench, "rank", (int)rank, "error", sentence));
}

void bench_progress(struct bench_job *job, const char *what, uint64_t done, uint64_t all) {
    uint64_t now = remo__now_ns();
    if (job->rank != 0 || (now < job->progress_ns + PROGRESS_NS && done < all))
        return;
    job->progress_ns = now;
    send_object(job->fd,
                json_pack("{s:s, s:f}", "progress", what, "done", all ? (double)done / (double)all : 1.0));
}

static void fill_subject(const struct bench_job *job, struct bench_result *result) {
    snprintf(result->bench, sizeof result->bench, "%s", job->bench->name);
    snprintf(result->fabric, sizeof result->fabric, "%s", remo_node_fabric(job->node));
    result->nodes = job->size;
    result->threads = job->options->threads;
}

void bench_emit(struct bench_job *job, struct bench_result *result) {
    fill_subject(job, result);
    send_text(job->fd, bench_result_format(result));
}

/* ---- points ---- */

static void gather(const struct bench_thread *threads, uint32_t count, const struct remo_stats *net,
                   const struct remo__fabric_wire *wire, struct figures *ret_figures) {
    memset(ret_figures, 0, sizeof *ret_figures);
    remo__histogram_reset(&ret_figures->histogram);
    ret_figures->net = *net;
    ret_figures->wire = *wire;
    for (uint32_t i = 0; i < count; i++) {
        const struct bench_thread *thread = &threads[i];
        ret_figures->started += thread->started;
        ret_figures->measured += thread->measured;
        ret_figures->batch = thread->batch > ret_figures->batch ? thread->batch : ret_figures->batch;
        if (thread->elapsed_ns == 0)
            continue;
        double seconds = (double)thread->elapsed_ns / 1e9;
        ret_figures->seconds = fmax(ret_figures->seconds, seconds);
        ret_figures->ops_per_s += (double)thread->measured / seconds;
        remo__histogram_merge(&ret_figures->histogram, thread->histogram);
    }
}

static void merge(struct figures *into, const struct figures *from) {
    into->started += from->started;
    into->measured += from->measured;
    into->ops_per_s += from->ops_per_s;
    into->seconds = fmax(into->seconds, from->seconds);
    into->batch = from->batch > into->batch ? from->batch : into->batch;
    into->net.reads += from->net.reads;
    into->net.writes += from->net.writes;
    into->net.atomics += from->net.atomics;
    into->net.imms += from->net.imms;
    into->net.bytes += from->net.bytes;
    into->wire.requests += from->wire.requests;
    into->wire.posts += from->wire.posts;
    into->wire.signalled += from->wire.signalled;
    into->wire.inlined += from->wire.inlined;
    into->wire.bytes += from->wire.bytes;
    remo__histogram_merge(&into->histogram, &from->histogram);
}

static double percentile_ns(const struct figures *figures, double percent) {
    return (double)remo__histogram_percentile(&figures->histogram, percent) / PS_PER_NS;
}

static void describe_keys(const struct bench_point *point, struct bench_result *result) {
    if (point->zipf > 0)
        snprintf(result->distribution, sizeof result->distribution, "zipf %.2f", point->zipf);
    else if (point->zipf == 0)
        snprintf(result->distribution, sizeof result->distribution, "uniform");
}

static void put_wire(struct bench_result *result, const struct remo__fabric_wire *wire, double started) {
    result->wire_requests = (double)wire->requests / started;
    result->wire_posts = (double)wire->posts / started;
    result->wire_signalled = (double)wire->signalled / started;
    result->wire_inlined = (double)wire->inlined / started;
    result->wire_bytes = (double)wire->bytes / started;
}

static void emit_point(struct bench_job *job, const struct figures *all, double limit_ns, const char *limit) {
    const struct bench_point *point = job->point;
    double started = (double)all->started;
    struct bench_result result;
    bench_result_reset(&result);
    snprintf(result.object, sizeof result.object, "%s", point->object ? point->object : job->bench->object);
    snprintf(result.variant, sizeof result.variant, "%s", point->variant ? point->variant : "");
    result.active = point->active;
    result.bytes = point->bytes;
    result.window = point->window;
    result.keys_count = point->keys_count;
    result.accounts_count = point->accounts_count;
    result.read_percent = point->read_percent;
    describe_keys(point, &result);
    result.batch = all->batch;
    result.seconds = all->seconds;
    result.ops = (double)all->measured;
    result.ops_per_s = all->ops_per_s;
    result.p50_ns = percentile_ns(all, 50);
    result.p99_ns = percentile_ns(all, 99);
    result.p999_ns = percentile_ns(all, 99.9);
    if (limit_ns > 0) {
        result.limit_ns = limit_ns;
        snprintf(result.limit, sizeof result.limit, "%s", limit);
        result.ratio = result.p50_ns / limit_ns;
    }
    result.reads = (double)all->net.reads / started;
    result.writes = (double)all->net.writes / started;
    result.atomics = (double)all->net.atomics / started;
    result.imms = (double)all->net.imms / started;
    result.net_bytes = (double)all->net.bytes / started;
    if (job->reserved_per_live > 0)
        result.reserved_per_live = job->reserved_per_live;
    if (job->repeats > 0)
        result.repeats = job->repeats;
    if (strcmp(job->options->fabric, "verbs") == 0)
        put_wire(&result, &all->wire, started);
    bench_emit(job, &result);
}

/* Every node writes its figures to node 0, which merges them after the barrier. */
static int exchange(struct bench_job *job, struct figures *mine, double limit_ns, const char *limit) {
    int rc = remo_region_write(job->results, 0, job->rank * sizeof *mine, mine, sizeof *mine, 0, NULL);
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    if (rc != 0 || job->rank != 0)
        return rc;
    const struct figures *all = remo_region_local(job->results);
    *mine = all[0];
    for (uint32_t node = 1; node < job->size; node++)
        merge(mine, &all[node]);
    emit_point(job, mine, limit_ns, limit);
    return 0;
}

/* Measure the limit of the point, and set *limit_ns to the smaller of the old and the new value.
 * Zero means that there is none. */
static int lower_limit(struct bench_job *job, double *limit_ns, char ret_name[LIMIT_NAME_BYTES]) {
    const struct bench *bench = job->bench;
    double ns = 0;
    int rc = 0;
    if (job->rank == 0 && bench->limit && job->mapped)
        ns = bench->limit(job, ret_name);
    if (bench->network != BENCH_NETWORK_NONE && !job->mapped && !job->point->variant
        && job->point->window <= 1)
        rc = bench_network_limit(job, &ns, ret_name);
    if (ns > 0 && (*limit_ns == 0 || ns < *limit_ns))
        *limit_ns = ns;
    return rc;
}

/* The limit is measured before and after the point. The speed of a processor changes over seconds
 * (other load, virtual machines), and a limit from a slow phase does not bound a point from a fast
 * one. */
static int run_point(struct bench_job *job, struct bench_thread *threads, struct figures *figures) {
    const struct bench *bench = job->bench;
    char limit[LIMIT_NAME_BYTES] = "";
    double limit_ns = 0;
    struct remo_stats net;
    struct remo__fabric_wire wire;
    int rc = lower_limit(job, &limit_ns, limit);
    if (rc == 0)
        rc = bench_drive(job, threads, &net, &wire);
    if (rc == 0 && bench->check)
        rc = bench->check(job);
    if (rc == 0)
        rc = lower_limit(job, &limit_ns, limit);
    if (rc != 0)
        return rc;
    gather(threads, job->options->threads, &net, &wire, figures);
    return exchange(job, figures, limit_ns, limit);
}

static int run_points(struct bench_job *job) {
    struct bench_point points[BENCH_POINTS_MAX];
    uint32_t count = bench_points(job->bench, job->options, points), threads_count = job->options->threads;
    struct bench_thread *threads = calloc(threads_count, sizeof *threads);
    struct remo__histogram *histograms = calloc(threads_count, sizeof *histograms);
    struct figures *figures = malloc(sizeof *figures);
    int rc = threads && histograms && figures ? 0 : remo__fail(-ENOMEM, "no memory for the figures");
    if (rc == 0 && count == 0)
        rc = remo__fail(-EINVAL, "%s has no variant '%s'; run it without --variant to see its variants",
                        job->bench->name, job->options->variant ? job->options->variant : "");
    for (uint32_t i = 0; i < threads_count && rc == 0; i++)
        threads[i].histogram = &histograms[i];
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        job->point = &points[i];
        job->reserved_per_live = job->repeats = 0;
        rc = run_point(job, threads, figures);
    }
    free(figures);
    free(histograms);
    free(threads);
    return rc;
}

/* ---- the job ---- */

static void log_line(void *ctx, int level, const char *message) {
    const struct bench_job *job = ctx;
    if (job->done)
        return;
    fprintf(stderr, "remo bench: node %u: %s: %s\n", job->rank, level <= REMO_LOG_ERROR ? "error" : "warning",
            message);
}

static int open_own(struct bench_job *job) {
    struct remo_channel *root = remo_node_root(job->node);
    struct remo_region_options at_zero = {0};
    remo_nodeset_add(&at_zero.providers, 0);
    uint64_t results_bytes = job->size * sizeof(struct figures);
    int rc = remo_barrier_open(root, "barrier", NULL, &job->barrier);
    if (rc == 0)
        rc = remo_sst_open(root, "rounds", 2 * sizeof(uint64_t), NULL, &job->rounds);
    if (rc == 0)
        rc = remo_region_open(root, "results", results_bytes, &at_zero, &job->results);
    if (rc == 0)
        rc = remo_region_open(root, "scratch", BENCH_SCRATCH_BYTES, NULL, &job->scratch);
    if (rc == 0)
        rc = remo_channel_open(root, "bench", "bench", NULL, &job->channel);
    return rc == 0 ? remo_channel_join(job->channel) : rc;
}

static int open_all(struct bench_job *job) {
    int rc = open_own(job);
    if (rc == 0) /* touch it, so that page faults are not measured */
        memset(remo_region_local(job->scratch), 0, BENCH_SCRATCH_BYTES);
    if (rc == 0 && job->bench->open)
        rc = job->bench->open(job);
    if (rc == 0)
        rc = remo_channel_wait(remo_node_root(job->node), CONNECT_NS);
    if (rc == 0 && job->bench->fill)
        rc = job->bench->fill(job);
    return rc;
}

static void close_all(struct bench_job *job) {
    if (job->bench->close)
        job->bench->close(job);
    bench_network_close(job);
    remo_channel_close(job->channel);
    remo_region_close(job->scratch);
    remo_region_close(job->results);
    remo_sst_close(job->rounds);
    remo_barrier_close(job->barrier);
}

static int run_job(struct bench_job *job) {
    job->rank = remo_node_rank(job->node);
    job->size = remo_node_size(job->node);
    job->mapped = job->node->mapped;
    int rc = open_all(job);
    if (rc == 0)
        rc = !job->bench->report ? run_points(job) : job->rank == 0 ? job->bench->report(job) : 0;
    job->done = true;
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    if (rc != 0)
        send_error(job->fd, job->bench->name, job->rank, remo_last_error());
    close_all(job);
    return rc;
}

/* Pin before the node starts its own threads: they inherit the processor. */
int bench_work(const struct bench *bench, const struct bench_options *options, int fd) {
    struct bench_job job = {.bench = bench, .options = options, .fd = fd};
    struct remo_config config = {.fabric = options->fabric,
                                 .join_timeout_ns = 120 * REMO__NS_PER_S, /* a busy machine starts slowly */
                                 .log = log_line,
                                 .log_ctx = &job};
    const char *rank = getenv("REMO_RANK");
    job.rank = rank ? (uint32_t)strtoul(rank, NULL, 10) : 0;
    bench_pin(options, job.rank, 0);
    int rc = remo_node_open(&config, &job.node);
    if (rc == 0)
        rc = run_job(&job);
    else
        send_error(fd, bench->name, job.rank, remo_last_error());
    remo_node_close(job.node);
    return rc;
}
