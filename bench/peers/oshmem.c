/* oshmem.c - OpenSHMEM: symmetric memory, blocking gets, puts with a quiet, atomics, and its own locks.
 * Idle processes wait in a barrier. OpenSHMEM of Debian 12 (OpenMPI 4.1.4) crashes in
 * shmem_finalize, so the program ends without calling it. */
#include "measure.h"

#include "base/clock.h"
#include "base/random.h"

#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_BYTES (1u << 20)
#define NODES_MAX 64
#define LOCKS_PER_NODE 341 /* LOCO 7.1 */
#define OPENING_BALANCE 1000
#define HEAP_SPARE_BYTES (64u << 20)

struct padded_lock {
    long lock;
    char padding[64 - sizeof(long)];
};

/* All memory that peers access is symmetric: at the same address everywhere. */
struct symmetric {
    uint64_t data[DATA_BYTES / 8];
    struct padded_lock locks[LOCKS_PER_NODE * NODES_MAX];
    struct measure_result results[NODES_MAX]; /* in the first process: results of all */
    uint64_t sums[NODES_MAX];
    uint64_t operations; /* of the next batch of barriers */
};

struct bench {
    const struct measure_options *options;
    int rank, nodes;
    int target;
    struct symmetric *shared;
    char *buffer;
    size_t bytes;
    unsigned outstanding;
    uint64_t expected;
    /* of the accounts */
    uint64_t *accounts;
    uint64_t slots_count, rows_count;
    uint64_t done;
    struct remo__random random;
};

/* Run `batch` in the first `active` processes, and print the figure. */
static void run_point(struct bench *bench, measure_batch batch, struct measure_subject subject, int active) {
    struct measure_result mine = {0}, merged;
    shmem_barrier_all();
    if (bench->rank < active)
        measure_run(batch, bench, subject.window ? subject.window : 1, bench->options->seconds, &mine);
    shmem_putmem(&bench->shared->results[bench->rank], &mine, sizeof mine, 0);
    shmem_barrier_all();
    if (bench->rank != 0)
        return;
    measure_merge(bench->shared->results, active, &merged);
    subject.nodes = bench->nodes;
    subject.active = (unsigned)active;
    measure_print(bench->options, &subject, &merged);
}

/* Return the sum of `mine` over all processes, in the first one. */
static uint64_t sum_up(struct bench *bench, uint64_t mine) {
    uint64_t sum = 0;
    shmem_putmem(&bench->shared->sums[bench->rank], &mine, sizeof mine, 0);
    shmem_barrier_all();
    for (int i = 0; i < bench->nodes; i++)
        sum += bench->shared->sums[i];
    return sum;
}

/* ---- read, write, atomics ---- */

static double read_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++)
        shmem_getmem(bench->buffer, bench->shared->data, bench->bytes, bench->target);
    return (double)(remo__now_ns() - start_ns);
}

static double read_many_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i += bench->outstanding) {
        for (unsigned k = 0; k < bench->outstanding; k++)
            shmem_getmem_nbi(bench->buffer, bench->shared->data, bench->bytes, bench->target);
        shmem_quiet();
    }
    return (double)(remo__now_ns() - start_ns);
}

static double write_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i += bench->outstanding) {
        for (unsigned k = 0; k < bench->outstanding; k++)
            shmem_putmem_nbi(bench->shared->data, bench->buffer, bench->bytes, bench->target);
        shmem_quiet();
    }
    return (double)(remo__now_ns() - start_ns);
}

static double fetch_add_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++)
        shmem_ulong_atomic_fetch_add(bench->shared->data, 1, bench->target);
    return (double)(remo__now_ns() - start_ns);
}

static double compare_swap_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t found = shmem_ulong_atomic_compare_swap(bench->shared->data, bench->expected,
                                                         bench->expected + 1, bench->target);
        bench->expected = found == bench->expected ? found + 1 : found;
    }
    return (double)(remo__now_ns() - start_ns);
}

static void run_data(struct bench *bench, measure_batch batch, struct measure_subject subject) {
    bench->bytes = subject.bytes;
    bench->outstanding = subject.window;
    bench->expected = 0;
    memset(bench->shared->data, 0, sizeof bench->shared->data);
    run_point(bench, batch, subject, (int)bench->options->active);
}

static void run_sizes(struct bench *bench, measure_batch batch, const char *name, uint64_t last_bytes) {
    struct measure_subject subject = {.bench = name, .object = "region", .window = 1, .read_percent = -1};
    if (bench->options->window)
        subject.window = bench->options->window;
    for (uint64_t bytes = 8; bytes <= last_bytes; bytes *= 512) {
        subject.bytes = bench->options->bytes ? bench->options->bytes : bytes;
        run_data(bench, batch, subject);
        if (bench->options->bytes)
            return;
    }
}

static void run_read(struct bench *bench) {
    run_sizes(bench, bench->options->window > 1 ? read_many_batch : read_batch, "read", 4096);
}

static void run_write(struct bench *bench) {
    run_sizes(bench, write_batch, "write", 8);
}

static void run_fetch_add(struct bench *bench) {
    struct measure_subject subject = {
        .bench = "fetch_add", .object = "atomic_var", .bytes = 8, .window = 1, .read_percent = -1};
    run_data(bench, fetch_add_batch, subject);
}

static void run_compare_swap(struct bench *bench) {
    struct measure_subject subject = {
        .bench = "compare_swap", .object = "atomic_var", .bytes = 8, .window = 1, .read_percent = -1};
    run_data(bench, compare_swap_batch, subject);
}

/* ---- lock, barrier ---- */

static double lock_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    long *lock = &bench->shared->locks[bench->rank].lock;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++) {
        shmem_set_lock(lock);
        shmem_clear_lock(lock);
    }
    return (double)(remo__now_ns() - start_ns);
}

static void run_lock(struct bench *bench) {
    struct measure_subject subject = {.bench = "lock", .object = "lock", .read_percent = -1};
    run_point(bench, lock_batch, subject, (int)bench->options->active);
}

/* The first process chooses the number of barriers in a batch, and broadcasts it before the clock
 * runs. */
static void announce(struct bench *bench, uint64_t operations) {
    shmem_barrier_all();
    for (int i = 0; i < bench->nodes; i++)
        shmem_uint64_p(&bench->shared->operations, operations, i);
    shmem_barrier_all();
}

static double barrier_batch(void *ctx, uint64_t operations) {
    announce(ctx, operations);
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++)
        shmem_barrier_all();
    return (double)(remo__now_ns() - start_ns);
}

static void run_barrier(struct bench *bench) {
    struct measure_subject subject = {
        .bench = "barrier", .object = "barrier", .nodes = bench->nodes, .read_percent = -1};
    if (bench->rank == 0) {
        struct measure_result result;
        measure_run(barrier_batch, bench, 1, bench->options->seconds, &result);
        announce(bench, 0);
        measure_print(bench->options, &subject, &result);
        return;
    }
    uint64_t operations;
    do {
        shmem_barrier_all();
        shmem_barrier_all();
        operations = *(volatile uint64_t *)&bench->shared->operations;
        for (uint64_t i = 0; i < operations; i++)
            shmem_barrier_all();
    } while (operations > 0);
}

/* ---- accounts (LOCO 7.1) ---- */

static double one_lock_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    long *lock = &bench->shared->locks[0].lock;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++) {
        shmem_set_lock(lock);
        uint64_t value = shmem_uint64_g(bench->shared->data, 0);
        shmem_uint64_p(bench->shared->data, value + 1, 0);
        shmem_clear_lock(lock); /* completes the put first */
    }
    bench->done += operations;
    return (double)(remo__now_ns() - start_ns);
}

static void run_one_lock(struct bench *bench) {
    struct measure_subject subject = {
        .bench = "accounts", .object = "one_lock", .nodes = bench->nodes, .read_percent = -1};
    memset(bench->shared->data, 0, sizeof bench->shared->data);
    bench->done = 0;
    run_point(bench, one_lock_batch, subject, bench->nodes);
    uint64_t done = sum_up(bench, bench->done);
    if (bench->rank == 0 && bench->shared->data[0] != done)
        measure_print_error(bench->options, &subject, "updates were lost under the lock");
}

/* Return account a, protected by lock a % slots of node slot % nodes. Locks are acquired in their
 * order. */
static uint64_t *find_account(const struct bench *bench, uint64_t account, int *ret_node) {
    uint64_t slot = account % bench->slots_count, nodes = (uint64_t)bench->nodes;
    *ret_node = (int)(slot % nodes);
    return bench->accounts + slot / nodes * bench->rows_count + account / bench->slots_count;
}

static double transfer_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    struct padded_lock *locks = bench->shared->locks;
    uint64_t count = bench->options->accounts_count, slots = bench->slots_count;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t a = remo__random_below(&bench->random, count);
        uint64_t b = remo__random_below(&bench->random, count - 1);
        uint64_t amount = remo__random_below(&bench->random, 100);
        b += b >= a;
        uint64_t first = a % slots < b % slots ? a % slots : b % slots;
        uint64_t second = a % slots < b % slots ? b % slots : a % slots;
        int node_a, node_b;
        uint64_t *account_a = find_account(bench, a, &node_a), *account_b = find_account(bench, b, &node_b);
        shmem_set_lock(&locks[first].lock);
        if (first != second)
            shmem_set_lock(&locks[second].lock);
        uint64_t balance_a = shmem_uint64_g(account_a, node_a), balance_b = shmem_uint64_g(account_b, node_b);
        shmem_uint64_p(account_a, balance_a - amount, node_a);
        shmem_uint64_p(account_b, balance_b + amount, node_b);
        shmem_clear_lock(&locks[first].lock);
        if (first != second)
            shmem_clear_lock(&locks[second].lock);
    }
    return (double)(remo__now_ns() - start_ns);
}

static void run_transfer(struct bench *bench) {
    struct measure_subject subject = {.bench = "accounts",
                                      .object = "transfer",
                                      .nodes = bench->nodes,
                                      .read_percent = -1,
                                      .accounts_count = bench->options->accounts_count};
    bench->slots_count = LOCKS_PER_NODE * (uint64_t)bench->nodes;
    bench->rows_count = (bench->options->accounts_count + bench->slots_count - 1) / bench->slots_count;
    uint64_t mine_count = LOCKS_PER_NODE * bench->rows_count, sum = 0;
    bench->accounts = shmem_malloc(mine_count * sizeof *bench->accounts);
    if (!bench->accounts) {
        if (bench->rank == 0)
            measure_print_error(bench->options, &subject, "the symmetric heap has no room for the accounts");
        return;
    }
    for (uint64_t i = 0; i < mine_count; i++)
        bench->accounts[i] = OPENING_BALANCE;
    run_point(bench, transfer_batch, subject, bench->nodes);
    for (uint64_t i = 0; i < mine_count; i++)
        sum += bench->accounts[i];
    sum = sum_up(bench, sum);
    if (bench->rank == 0 && sum != bench->slots_count * bench->rows_count * OPENING_BALANCE)
        measure_print_error(bench->options, &subject, "the sum of all accounts changed");
}

static void run_accounts(struct bench *bench) {
    remo__random_seed(&bench->random, (uint64_t)bench->rank);
    run_one_lock(bench);
    run_transfer(bench);
}

/* shmem_init allocates the symmetric heap; its size is needed earlier than the number of nodes. */
static void size_heap(const struct measure_options *options) {
    char size[32];
    int accounts = strcmp(options->bench, "accounts") == 0;
    const char *nodes = getenv("OMPI_COMM_WORLD_SIZE");
    uint64_t share = nodes && atoi(nodes) > 1 ? (uint64_t)atoi(nodes) : 1;
    uint64_t bytes = HEAP_SPARE_BYTES + (accounts ? options->accounts_count * sizeof(uint64_t) / share : 0);
    snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
    setenv("SHMEM_SYMMETRIC_SIZE", size, 1);
    setenv("SHMEM_SYMMETRIC_HEAP_SIZE", size, 1); /* read by OpenMPI 4.1.4 */
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(struct bench *bench);
    } benches[] = {
        {"read", run_read},           {"write", run_write},
        {"fetch_add", run_fetch_add}, {"compare_swap", run_compare_swap},
        {"lock", run_lock},           {"barrier", run_barrier},
        {"accounts", run_accounts},
    };
    struct measure_options options;
    struct bench bench = {.options = &options};
    measure_parse(argc, argv, &options);
    size_heap(&options);
    shmem_init();
    bench.rank = shmem_my_pe();
    bench.nodes = shmem_n_pes();
    measure_settle(&options, bench.rank);
    if (options.active > (unsigned)bench.nodes)
        options.active = (unsigned)bench.nodes;
    bench.target = (bench.rank + 1) % bench.nodes;
    bench.buffer = calloc(1, DATA_BYTES);
    bench.shared = shmem_calloc(1, sizeof *bench.shared);
    if (!bench.buffer || !bench.shared || bench.nodes > NODES_MAX)
        shmem_global_exit(2);
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
        if (strcmp(benches[i].name, options.bench) == 0)
            benches[i].run(&bench);
    measure_print_end(bench.rank);
    shmem_barrier_all();
    _exit(0);
}
