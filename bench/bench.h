/* bench.h - the interface of a benchmark.
 *
 * `remo bench` starts one job of nodes per benchmark; each node runs bench_work (work.c). It opens the
 * objects of the benchmark and runs its points in order; during a point, threads operate for some time
 * (driver.c). Node 0 merges the figures of all nodes and sends them to the starting process, one JSON
 * object a line.
 *
 * Timing: reading the clock takes 20 ns. An operation shorter than BENCH_SINGLE_NS is therefore timed in
 * batches of about BENCH_BATCH_NS, and percentiles are those of batch means: the median is the usual cost of
 * an operation, the tail shows interruptions. A longer operation is timed alone, from the end of its
 * predecessor. With a window, the figures are time per operation, not from its start to its end. */
#pragma once

#include <remo/remo.h>
#include <stdbool.h>

#include "base/histogram.h"
#include "base/random.h"
#include "bench/limit/limit.h"
#include "bench/report/result.h"
#include "fabric/fabric.h"

#define BENCH_POINTS_MAX 32u
#define BENCH_THREADS_MAX 64u
#define BENCH_CPUS_MAX 256u
#define BENCH_BATCH_NS 20000u
#define BENCH_SINGLE_NS 500u
#define BENCH_WINDOW_MAX 1024u
#define BENCH_BYTES_MAX (1u << 20)
#ifndef BENCH_SCRATCH_BYTES            /* the simulator measures no limits */
#define BENCH_SCRATCH_BYTES (2u << 20) /* memory of each node for measuring limits */
#endif

/* Options of the user. Zero, or -1 where zero is a value, selects the benchmark's default. */
struct bench_options {
    const char *fabric;
    uint32_t nodes, threads; /* per node */
    uint32_t active;         /* nodes that operate at once where one is enough; the others sleep */
    double seconds;          /* per figure */
    bool pin;                /* thread t of node r to cpus[(t * nodes + r) % cpus_count] */
    /* processors that the process may use, found by bench_find_cpus before pinning */
    int cpus[BENCH_CPUS_MAX];
    uint32_t cpus_count;
    uint64_t bytes;
    uint32_t window;
    uint64_t keys_count, accounts_count;
    int read_percent;    /* -1 */
    double zipf;         /* -1; 0 is uniform */
    const char *variant; /* NULL: all */
};

/* One figure to measure. Members that do not apply are zero, NULL or -1. */
struct bench_point {
    const char *variant; /* the operation */
    const char *object;  /* NULL: the benchmark's */
    uint64_t bytes;
    uint32_t window;
    uint32_t active; /* nodes that operate */
    uint64_t keys_count, accounts_count;
    int read_percent; /* -1 */
    double zipf;      /* -1 */
};

/* The operation of libfabric alone that a point is compared with, on fabrics that are not
 * mapped. */
enum bench_network {
    BENCH_NETWORK_NONE, /* none is comparable */
    BENCH_NETWORK_READ, /* a read of the point's size: a round trip */
    BENCH_NETWORK_WRITE
};

struct bare_ofi;

/* One node of the job. */
struct bench_job {
    const struct bench *bench;
    const struct bench_options *options;
    const struct bench_point *point;
    struct remo_node *node;
    struct remo_channel *channel; /* parent of its objects; their network operations are counted here */
    uint32_t rank, size;
    bool mapped;          /* the fabric is mapped: peers' memory has a CPU address */
    void *state;          /* the benchmark's */
    int fd;               /* destination of results */
    _Atomic bool done;    /* all is measured: departures of peers are expected */
    uint64_t progress_ns; /* time of the last progress report */
    struct remo_region *scratch;
    struct remo_barrier *barrier;
    struct remo_sst *rounds; /* node 0 leads a collective benchmark with it */
    uint64_t commands;       /* commands sent or received */
    struct remo_region *results;
    struct bare_ofi *bare; /* limit/network.c */
    uint64_t bare_rounds;
    /* Of the point, set by `check`; 0: none. See result.h. */
    double reserved_per_live, repeats;
};

/* One operating thread. */
struct bench_thread {
    struct bench_job *job;
    uint32_t index;   /* in its node */
    uint32_t target;  /* the node whose memory it uses: the next one */
    uint64_t started; /* operations of this point so far, including the warm-up */
    struct remo__random random;
    void *state;                       /* the benchmark's; `begin` allocates it, `finish` frees it */
    uint64_t number;                   /* the benchmark's, 0 at first */
    struct remo__histogram *histogram; /* of picoseconds */
    uint64_t measured;                 /* operations recorded in the histogram */
    uint64_t elapsed_ns;
    uint64_t paused_ns; /* set by `operate`: time since the last timing that is not counted */
    uint32_t batch;
    int status;
    char error[256];
};

struct bench {
    const char *name, *object, *description;
    /* All nodes run the same number of operations together, one thread each, led by node 0. */
    bool collective;
    bool one_thread; /* per node */
    /* List the points to measure; returns their number, on every node and in the starting process
     * alike. */
    uint32_t (*list)(const struct bench_options *options, struct bench_point ret_points[BENCH_POINTS_MAX]);
    /* Open objects below job->channel, on every node. The driver then waits until all are
     * connected, and calls `fill` (may be NULL). */
    int (*open)(struct bench_job *job);
    int (*fill)(struct bench_job *job);
    void (*close)(struct bench_job *job);
    /* Before and after each point, per thread; may be NULL. `finish` runs even if `operate`
     * failed. */
    int (*begin)(struct bench_thread *thread);
    int (*finish)(struct bench_thread *thread);
    /* Run `operations`, a multiple of the point's window, in windows or with the window kept
     * full. */
    int (*operate)(struct bench_thread *thread, uint64_t operations);
    /* Run on the first thread of a node that does not operate, until the operating side ends it.
     * NULL: sleep. */
    int (*attend)(struct bench_thread *thread);
    bool attends_apart; /* network operations of nodes that attend are not counted */
    /* Check the results after each point, on every node, while no operation runs; may be NULL. */
    int (*check)(struct bench_job *job);
    /* Measure the hardware's limit for one operation, on node 0, on mapped fabrics, while all peers
     * sleep. May be NULL. */
    double (*limit)(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]);
    enum bench_network network; /* of points without a variant or a window */
    /* Replaces all of these, on node 0: a report without points (limits). */
    int (*report)(struct bench_job *job);
};

/* All benchmarks; the array ends with NULL. */
extern const struct bench *const bench_list[];
const struct bench *bench_find(const char *name);

/* Run one node of the job of a benchmark; results go to `fd`. Returns 0, or -errno after sending
 * the error. */
int bench_work(const struct bench *bench, const struct bench_options *options, int fd);

/* ---- processors.c ---- */
/* Find the processors that this process may use. */
void bench_find_cpus(struct bench_options *options);
/* Return the processor of a thread of a node, whether pinned or not. */
int bench_cpu(const struct bench_options *options, uint32_t rank, uint32_t thread);
/* Pin the calling thread, if requested and possible. */
void bench_pin(const struct bench_options *options, uint32_t rank, uint32_t thread);

/* ---- for benchmarks ---- */

/* Report progress of a long step, `done` of `all`. Cheap enough to be called often. */
void bench_progress(struct bench_job *job, const char *what, uint64_t done, uint64_t all);
/* Send a result that the driver did not make, after filling in bench, fabric, nodes and threads. */
void bench_emit(struct bench_job *job, struct bench_result *result);
/* Return the CPU address of `offset` in the memory that `node` provides; NULL if the fabric is not
 * mapped. */
void *bench_mapping(struct bench_job *job, struct remo_region *region, uint32_t node, uint64_t offset);
/* Return the target's scratch memory; return the target's whole arena, up to *ret_bytes, for
 * reading. */
void *bench_scratch(struct bench_job *job);
const void *bench_arena(struct bench_job *job, uint64_t *ret_bytes);
/* Read a word of each page of the memory of all nodes, on mapped fabrics. So no measured operation waits for
 * the first access of this process to a page. */
void bench_touch(const struct bench_job *job);
/* List the points of a benchmark that the options select. Returns their number. */
uint32_t bench_points(const struct bench *bench, const struct bench_options *options,
                      struct bench_point ret_points[BENCH_POINTS_MAX]);
/* Return the next node. */
uint32_t bench_target(const struct bench_job *job);
/* Return how many nodes operate where one is enough. */
uint32_t bench_active(const struct bench_options *options);
/* The tasks of a thread, BENCH_WINDOW_MAX at most, or the thread itself. They operate until the point ends:
 * if each timing waited for its last operation, the tasks would be idle for much of it. */
struct bench_tasks {
    struct remo_node *node;
    struct remo_scheduler *scheduler; /* NULL: the thread operates itself */
    remo_task_id ids[BENCH_WINDOW_MAX];
    uint32_t count, spawned, started;
    uint64_t ended, goal;      /* operations; the thread waits until `goal` of them have ended */
    struct remo__task *waiter; /* the thread, while it waits */
    bool stops;
    int rc;
    /* Run one operation in task number `task`. Returns 0, or the error that ends the point. */
    int (*run)(struct bench_tasks *tasks, uint32_t task);
};
/* Begin a point with `count` tasks. Errors: those of remo_scheduler_open. */
int bench_tasks_open(struct bench_tasks *tasks, struct remo_node *node, uint32_t count,
                     int (*run)(struct bench_tasks *tasks, uint32_t task));
/* Wait until so many further operations have ended. Returns 0, or the first error of `run` or
 * remo_task_spawn. */
int bench_tasks_operate(struct bench_tasks *tasks, uint64_t operations);
/* End the operations in flight. Also after bench_tasks_open has failed, and of zeros. Errors: those of
 * remo_scheduler_close and of these operations. */
int bench_tasks_close(struct bench_tasks *tasks);

#define BENCH_POINT_DEFAULT \
    { .read_percent = -1, .zipf = -1 }

/* driver.c: run the current point on this node, between barriers of the job. `ret_threads` has
 * options->threads entries. */
int bench_drive(struct bench_job *job, struct bench_thread *ret_threads, struct remo_stats *ret_stats,
                struct remo__fabric_wire *ret_wire);

/* limit/network.c: measure the limit before a point, on every node of a fabric that is not mapped. Sets
 * *ret_ns on node 0 if the limit could be measured. */
int bench_network_limit(struct bench_job *job, double *ret_ns, char ret_name[LIMIT_NAME_BYTES]);
void bench_network_close(struct bench_job *job);
