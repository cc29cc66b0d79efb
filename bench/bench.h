/* bench.h - what a benchmark is.
 *
 * `remo bench` starts one job of nodes for each benchmark, and each node runs bench_work (work.c): it opens
 * what the benchmark needs, takes its points one after the other, and for each one has the threads operate
 * for a while (driver.c). Node 0 puts the figures of all nodes together and sends them, one JSON object a
 * line, to the process that started the job.
 *
 * How time is taken: reading the clock takes 20 ns. An operation shorter than BENCH_SINGLE_NS is therefore
 * timed in batches of about BENCH_BATCH_NS, and a percentile is that of the batches' means: the median says
 * what an operation usually costs, the tail shows interruptions. A longer one is timed by itself, from the
 * moment at which the one before it ended. With a window, the figures are time per operation, not from the
 * start of one to its end. */
#pragma once

#include <remo/remo.h>
#include <stdbool.h>

#include "base/histogram.h"
#include "base/random.h"
#include "bench/limit.h"
#include "bench/result.h"
#include "fabric/fabric.h"

#define BENCH_POINTS_MAX 32u
#define BENCH_THREADS_MAX 64u
#define BENCH_CPUS_MAX 256u
#define BENCH_BATCH_NS 20000u
#define BENCH_SINGLE_NS 500u
#define BENCH_WINDOW_MAX 1024u
#define BENCH_BYTES_MAX (1u << 20)
#ifndef BENCH_SCRATCH_BYTES            /* the simulator has no limits to measure */
#define BENCH_SCRATCH_BYTES (2u << 20) /* each node provides this much for limits to be measured on */
#endif

/* What the user asked for. Zero, and -1 where zero means something: what the benchmark thinks right. */
struct bench_options {
    const char *fabric;
    uint32_t nodes, threads;  /* threads of each node */
    uint32_t active;          /* nodes that work at once where one is enough; the others sleep */
    double seconds;           /* for each figure */
    bool pin;                 /* thread t of node r to cpus[(t * nodes + r) % cpus_count] */
    int cpus[BENCH_CPUS_MAX]; /* that we may use; bench_find_cpus fills them in before anything is pinned */
    uint32_t cpus_count;
    uint64_t bytes;
    uint32_t window;
    uint64_t keys_count, accounts_count;
    int read_percent; /* -1 */
    double zipf;      /* -1; 0 is uniform */
};

/* One figure. What does not apply is zero, NULL or -1. */
struct bench_point {
    const char *variant; /* what is done to the object */
    const char *object;  /* NULL: the benchmark's */
    uint64_t bytes;
    uint32_t window;
    uint32_t active; /* nodes that operate */
    uint64_t keys_count, accounts_count;
    int read_percent; /* -1 */
    double zipf;      /* -1 */
};

/* What libfabric alone does for one operation, where the fabric is not mapped. */
enum bench_network {
    BENCH_NETWORK_NONE, /* nothing that would compare */
    BENCH_NETWORK_READ, /* a read of the point's size: a round trip */
    BENCH_NETWORK_WRITE
};

struct bare_ofi;

/* One node of the job, as a benchmark sees it. */
struct bench_job {
    const struct bench *bench;
    const struct bench_options *options;
    const struct bench_point *point;
    struct remo_node *node;
    struct remo_channel *channel; /* parent of its objects; their network operations are counted here */
    uint32_t rank, size;
    bool mapped;          /* the fabric is: peers' memory has a CPU address */
    void *state;          /* the benchmark's */
    int fd;               /* where results go */
    _Atomic bool done;    /* all is measured: peers that go are no news */
    uint64_t progress_ns; /* when the last word about progress went there */
    struct remo_region *scratch;
    struct remo_barrier *barrier;
    struct remo_sst *rounds; /* in which node 0 leads a collective benchmark */
    uint64_t words;          /* that it said, or that were heard */
    struct remo_region *results;
    struct bare_ofi *bare; /* network.c */
    uint64_t bare_rounds;
};

/* One thread that operates. */
struct bench_thread {
    struct bench_job *job;
    uint32_t index;   /* in its node */
    uint32_t target;  /* the node whose memory it works on: the next one */
    uint64_t started; /* operations so far in this point, those of the warm-up too */
    struct remo__random random;
    void *state;                       /* the benchmark's; begin makes it, finish frees it */
    uint64_t number;                   /* the benchmark's, 0 at first */
    struct remo__histogram *histogram; /* of picoseconds */
    uint64_t measured;                 /* operations in the histogram's time */
    uint64_t elapsed_ns;
    uint32_t batch;
    int status;
    char error[256];
};

struct bench {
    const char *name, *object, *description;
    /* All nodes do the same number of operations together, led by node 0, and one thread of each. */
    bool collective;
    bool one_thread; /* of each node operates */
    /* The points to measure: returns how many. On every node and in the starting process alike. */
    uint32_t (*list)(const struct bench_options *options, struct bench_point ret_points[BENCH_POINTS_MAX]);
    /* Open objects below job->channel; called on every node. The driver then waits until all are connected,
     * and calls fill (may be NULL). */
    int (*open)(struct bench_job *job);
    int (*fill)(struct bench_job *job);
    void (*close)(struct bench_job *job);
    /* Per point and thread, before and after; may be NULL. finish is called even when operate failed. */
    int (*begin)(struct bench_thread *thread);
    int (*finish)(struct bench_thread *thread);
    /* Do `operations`, a multiple of the point's window, or as many with the window kept full. */
    int (*operate)(struct bench_thread *thread, uint64_t operations);
    /* What the first thread of a node that does not operate does, until the operating side ends it; NULL: it
     * sleeps. */
    int (*attend)(struct bench_thread *thread);
    /* After each point, on every node, with nothing going on; may be NULL. */
    int (*check)(struct bench_job *job);
    /* On node 0, with all others asleep: what the hardware needs for one operation on a mapped fabric. May be
     * NULL. */
    double (*limit)(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]);
    enum bench_network network; /* of points without a variant */
    /* Instead of all these, on node 0: a benchmark that is none (limits). */
    int (*report)(struct bench_job *job);
};

/* All of them; the array ends with NULL. */
extern const struct bench *const bench_list[];
const struct bench *bench_find(const char *name);

/* Be one node of the job of this benchmark; it sends its results to `fd`. Returns 0, or -errno after sending
 * the reason. */
int bench_work(const struct bench *bench, const struct bench_options *options, int fd);

void bench_find_cpus(struct bench_options *options);
/* The processor of a thread of a node, whether it is pinned to it or not. */
int bench_cpu(const struct bench_options *options, uint32_t rank, uint32_t thread);
/* Pin the calling thread, if that is wanted and possible. */
void bench_pin(const struct bench_options *options, uint32_t rank, uint32_t thread);

/* ---- for benchmarks ---- */

/* Send a line about what takes long; `done` of `all`. Cheap enough to be called often. */
void bench_progress(struct bench_job *job, const char *what, uint64_t done, uint64_t all);
/* Send a result that the driver did not make. Its bench, fabric, nodes and threads are filled in. */
void bench_emit(struct bench_job *job, struct bench_result *result);
/* CPU address of `offset` in what `node` provides of the region; NULL on a fabric that is not mapped. */
void *bench_mapping(struct bench_job *job, struct remo_region *region, uint32_t node, uint64_t offset);
/* The target's scratch memory; the target's whole arena, up to *ret_bytes, for reading. */
void *bench_scratch(struct bench_job *job);
const void *bench_arena(struct bench_job *job, uint64_t *ret_bytes);
/* The next node. */
uint32_t bench_target(const struct bench_job *job);
/* How many nodes operate where one is enough. */
uint32_t bench_active(const struct bench_options *options);

#define BENCH_POINT_DEFAULT \
    { .read_percent = -1, .zipf = -1 }

/* driver.c: run the current point on this node between the job's barriers. `ret_threads` has options->threads
 * entries. */
int bench_drive(struct bench_job *job, struct bench_thread *ret_threads, struct remo_stats *ret_stats,
                struct remo__fabric_wire *ret_wire);

/* network.c: on every node, before a point on a fabric that is not mapped. *ret_ns on node 0; untouched where
 * it cannot be measured. */
int bench_network_limit(struct bench_job *job, double *ret_ns, char ret_name[LIMIT_NAME_BYTES]);
void bench_network_close(struct bench_job *job);
