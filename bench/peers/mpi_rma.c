/* mpi_rma.c - one-sided MPI at its best: passive target, MPI_Win_allocate, and truthful info keys.
 * One epoch covers all reads, writes and atomics, with a flush where completion is needed. Idle
 * processes wait in a barrier, which drives MPI's progress; a passive target that computes is not
 * measured. */
#include "measure.h"

#include "base/clock.h"
#include "base/random.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#define DATA_BYTES (1u << 20)
#define NODES_MAX 64
#define WINDOWS_MAX 341 /* LOCO 7.1: as many windows as OpenMPI supports, each with one lock per rank */
#define OPENING_BALANCE 1000

struct bench {
    const struct measure_options *options;
    int rank, nodes;
    int target; /* the process whose memory this process uses */
    MPI_Win window;
    uint64_t *memory; /* this process's part */
    char *buffer;
    int bytes;
    unsigned outstanding;
    uint64_t expected;
};

static void open_window(MPI_Aint bytes, MPI_Win *ret_window, uint64_t **ret_memory) {
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "same_size", "true");
    MPI_Info_set(info, "same_disp_unit", "true");
    MPI_Info_set(info, "accumulate_ordering", "none");
    MPI_Win_allocate(bytes, 1, info, MPI_COMM_WORLD, ret_memory, ret_window);
    MPI_Info_free(&info);
    memset(*ret_memory, 0, (size_t)bytes);
}

/* Run `batch` in the first `active` processes, and print the figure. */
static void run_point(struct bench *bench, measure_batch batch, struct measure_subject subject, int active) {
    struct measure_result mine = {0}, all[NODES_MAX], merged;
    MPI_Barrier(MPI_COMM_WORLD);
    if (bench->rank < active)
        measure_run(batch, bench, subject.window ? subject.window : 1, bench->options->seconds, &mine);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Gather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (bench->rank != 0)
        return;
    measure_merge(all, active, &merged);
    subject.nodes = bench->nodes;
    subject.active = (unsigned)active;
    measure_print(bench->options, &subject, &merged);
}

/* ---- read, write, atomics ---- */

static double read_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i += bench->outstanding) {
        for (unsigned k = 0; k < bench->outstanding; k++)
            MPI_Get(bench->buffer, bench->bytes, MPI_BYTE, bench->target, 0, bench->bytes, MPI_BYTE,
                    bench->window);
        MPI_Win_flush(bench->target, bench->window);
    }
    return (double)(remo__now_ns() - start_ns);
}

static double write_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i += bench->outstanding) {
        for (unsigned k = 0; k < bench->outstanding; k++)
            MPI_Put(bench->buffer, bench->bytes, MPI_BYTE, bench->target, 0, bench->bytes, MPI_BYTE,
                    bench->window);
        MPI_Win_flush(bench->target, bench->window);
    }
    return (double)(remo__now_ns() - start_ns);
}

static double fetch_add_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    uint64_t one = 1, old;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++) {
        MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, bench->target, 0, MPI_SUM, bench->window);
        MPI_Win_flush(bench->target, bench->window);
    }
    return (double)(remo__now_ns() - start_ns);
}

static double compare_swap_batch(void *ctx, uint64_t operations) {
    struct bench *bench = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t next = bench->expected + 1, found;
        MPI_Compare_and_swap(&next, &bench->expected, &found, MPI_UINT64_T, bench->target, 0, bench->window);
        MPI_Win_flush(bench->target, bench->window);
        bench->expected = found == bench->expected ? next : found;
    }
    return (double)(remo__now_ns() - start_ns);
}

static void run_data(struct bench *bench, measure_batch batch, struct measure_subject subject) {
    bench->bytes = (int)subject.bytes;
    bench->outstanding = subject.window;
    bench->expected = 0;
    open_window(DATA_BYTES, &bench->window, &bench->memory);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, bench->window);
    run_point(bench, batch, subject, (int)bench->options->active);
    MPI_Win_unlock_all(bench->window);
    MPI_Win_free(&bench->window);
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
    run_sizes(bench, read_batch, "read", 4096);
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
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, bench->target, 0, bench->window);
        MPI_Win_unlock(bench->target, bench->window);
    }
    return (double)(remo__now_ns() - start_ns);
}

static void run_lock(struct bench *bench) {
    struct measure_subject subject = {.bench = "lock", .object = "lock", .read_percent = -1};
    open_window(4096, &bench->window, &bench->memory);
    run_point(bench, lock_batch, subject, (int)bench->options->active);
    MPI_Win_free(&bench->window);
}

/* The first process chooses the number of barriers in a batch, and broadcasts it before the clock
 * runs. */
static double barrier_batch(void *ctx, uint64_t operations) {
    (void)ctx;
    MPI_Bcast(&operations, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    return (double)(remo__now_ns() - start_ns);
}

static void run_barrier(struct bench *bench) {
    struct measure_subject subject = {
        .bench = "barrier", .object = "barrier", .nodes = bench->nodes, .read_percent = -1};
    uint64_t operations = 1;
    if (bench->rank == 0) {
        struct measure_result result;
        measure_run(barrier_batch, bench, 1, bench->options->seconds, &result);
        operations = 0;
        MPI_Bcast(&operations, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
        measure_print(bench->options, &subject, &result);
        return;
    }
    while (operations > 0) {
        MPI_Bcast(&operations, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
        for (uint64_t i = 0; i < operations; i++)
            MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* ---- accounts (LOCO 7.1) ---- */

struct accounts {
    struct bench bench; /* first, so that run_point's context is both */
    MPI_Win windows[WINDOWS_MAX];
    uint64_t *memory[WINDOWS_MAX];
    uint64_t slots_count; /* locks: one per window and rank */
    uint64_t rows_count;  /* accounts under one lock */
    uint64_t done;        /* operations of this process, including the warm-up */
    struct remo__random random;
};

static double one_lock_batch(void *ctx, uint64_t operations) {
    struct accounts *accounts = ctx;
    MPI_Win window = accounts->windows[0];
    uint64_t value;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(&value, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, window);
        MPI_Win_flush(0, window);
        value++;
        MPI_Put(&value, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, window);
        MPI_Win_unlock(0, window);
    }
    accounts->done += operations;
    return (double)(remo__now_ns() - start_ns);
}

static void run_one_lock(struct accounts *accounts) {
    struct measure_subject subject = {.bench = "accounts", .object = "one_lock", .read_percent = -1};
    struct bench *bench = &accounts->bench;
    uint64_t total = 0;
    accounts->done = 0;
    open_window(4096, &accounts->windows[0], &accounts->memory[0]);
    run_point(bench, one_lock_batch, subject, bench->nodes);
    MPI_Reduce(&accounts->done, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    subject.nodes = bench->nodes;
    if (bench->rank == 0 && *accounts->memory[0] != total)
        measure_print_error(bench->options, &subject, "updates were lost under the lock");
    MPI_Win_free(&accounts->windows[0]);
}

/* The place of an account: a row under a slot. Slot s is the lock of rank s % nodes in window s /
 * nodes. */
struct place {
    MPI_Win window;
    int rank;
    MPI_Aint offset;
};

static struct place find_place(const struct accounts *accounts, uint64_t account) {
    uint64_t slot = account % accounts->slots_count, nodes = (uint64_t)accounts->bench.nodes;
    return (struct place){.window = accounts->windows[slot / nodes],
                          .rank = (int)(slot % nodes),
                          .offset = (MPI_Aint)(account / accounts->slots_count * sizeof(uint64_t))};
}

static void move_money(const struct place *from, const struct place *to, uint64_t amount, int one_lock) {
    uint64_t balances[2];
    MPI_Get(&balances[0], 8, MPI_BYTE, from->rank, from->offset, 8, MPI_BYTE, from->window);
    MPI_Get(&balances[1], 8, MPI_BYTE, to->rank, to->offset, 8, MPI_BYTE, to->window);
    MPI_Win_flush(from->rank, from->window);
    if (!one_lock)
        MPI_Win_flush(to->rank, to->window);
    balances[0] -= amount;
    balances[1] += amount;
    MPI_Put(&balances[0], 8, MPI_BYTE, from->rank, from->offset, 8, MPI_BYTE, from->window);
    MPI_Put(&balances[1], 8, MPI_BYTE, to->rank, to->offset, 8, MPI_BYTE, to->window);
    MPI_Win_unlock(from->rank, from->window);
    if (!one_lock)
        MPI_Win_unlock(to->rank, to->window);
}

static double transfer_batch(void *ctx, uint64_t operations) {
    struct accounts *accounts = ctx;
    uint64_t count = accounts->bench.options->accounts_count, slots = accounts->slots_count;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t a = remo__random_below(&accounts->random, count);
        uint64_t b = remo__random_below(&accounts->random, count - 1);
        uint64_t amount = remo__random_below(&accounts->random, 100);
        b += b >= a;
        struct place from = find_place(accounts, a), to = find_place(accounts, b);
        int ordered = a % slots <= b % slots, one_lock = a % slots == b % slots;
        const struct place *first = ordered ? &from : &to, *second = ordered ? &to : &from;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, first->rank, 0, first->window);
        if (!one_lock)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, second->rank, 0, second->window);
        move_money(&from, &to, amount, one_lock);
    }
    return (double)(remo__now_ns() - start_ns);
}

/* Return the sum of all accounts, modulo 2^64, in the first process. */
static uint64_t sum_accounts(const struct accounts *accounts) {
    uint64_t mine = 0, all = 0;
    for (int w = 0; w < WINDOWS_MAX; w++)
        for (uint64_t row = 0; row < accounts->rows_count; row++)
            mine += accounts->memory[w][row];
    MPI_Reduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    return all;
}

static void run_transfer(struct accounts *accounts) {
    struct bench *bench = &accounts->bench;
    struct measure_subject subject = {.bench = "accounts",
                                      .object = "transfer",
                                      .read_percent = -1,
                                      .accounts_count = bench->options->accounts_count};
    accounts->slots_count = WINDOWS_MAX * (uint64_t)bench->nodes;
    accounts->rows_count =
        (bench->options->accounts_count + accounts->slots_count - 1) / accounts->slots_count;
    for (int w = 0; w < WINDOWS_MAX; w++) {
        open_window((MPI_Aint)(accounts->rows_count * 8), &accounts->windows[w], &accounts->memory[w]);
        for (uint64_t row = 0; row < accounts->rows_count; row++)
            accounts->memory[w][row] = OPENING_BALANCE;
    }
    run_point(bench, transfer_batch, subject, bench->nodes);
    uint64_t sum = sum_accounts(accounts);
    subject.nodes = bench->nodes;
    if (bench->rank == 0 && sum != accounts->slots_count * accounts->rows_count * OPENING_BALANCE)
        measure_print_error(bench->options, &subject, "the sum of all accounts changed");
    for (int w = 0; w < WINDOWS_MAX; w++)
        MPI_Win_free(&accounts->windows[w]);
}

static void run_accounts(struct bench *bench) {
    struct accounts *accounts = calloc(1, sizeof *accounts);
    if (!accounts)
        MPI_Abort(MPI_COMM_WORLD, 1);
    accounts->bench = *bench;
    remo__random_seed(&accounts->random, (uint64_t)bench->rank);
    run_one_lock(accounts);
    run_transfer(accounts);
    free(accounts);
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
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.nodes);
    if (bench.nodes > NODES_MAX)
        MPI_Abort(MPI_COMM_WORLD, 2);
    measure_settle(&options, bench.rank);
    if (options.active > (unsigned)bench.nodes)
        options.active = (unsigned)bench.nodes;
    bench.target = (bench.rank + 1) % bench.nodes;
    bench.buffer = calloc(1, DATA_BYTES);
    if (!bench.buffer)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
        if (strcmp(benches[i].name, options.bench) == 0)
            benches[i].run(&bench);
    measure_print_end(bench.rank);
    free(bench.buffer);
    MPI_Finalize();
    return 0;
}
