/* accounts.c - LOCO 7.1: one contended lock, and transfers between accounts.
 * All nodes take one lock around a read-modify-write. Transfers move an amount between two of 100 M
 * accounts, each under its lock, with LOCKS_PER_THREAD locks per thread of the job.
 * bench/peers/mpi_rma.c does the same. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "bench/bench.h"

#define LOCKS_PER_THREAD 341u
#define OPENING_BALANCE 1000u
#define AMOUNT_MAX 100u
#define ACCOUNTS_MAPPED 100000000u
#define ACCOUNTS_OTHER 1000000u /* on a network 800 MB are no faster, and take long to set up */

/* Account a is protected by lock a mod locks_count, and lies in a row of that lock, at the same
 * node. */
struct accounts {
    struct remo_region *balances;
    struct remo_region *counter; /* of the single lock, at node 0 */
    struct remo_lock *locks;     /* the last one is the single lock */
    uint64_t count, rows_count;  /* accounts; accounts per lock */
    uint32_t locks_count;
    _Atomic uint64_t done; /* operations under the single lock, of this node, over all points */
};

static bool is_transfer(const struct bench_point *point) {
    return strcmp(point->object, "transfer") == 0;
}

static uint64_t accounts_count(const struct bench_options *options) {
    if (options->accounts_count)
        return options->accounts_count;
    return strcmp(options->fabric, "shm") == 0 ? ACCOUNTS_MAPPED : ACCOUNTS_OTHER;
}

static uint32_t list(const struct bench_options *options, struct bench_point points[BENCH_POINTS_MAX]) {
    points[0] = (struct bench_point)BENCH_POINT_DEFAULT;
    points[0].object = "one_lock";
    points[0].active = options->active ? bench_active(options) : options->nodes;
    points[1] = points[0];
    points[1].object = "transfer";
    points[1].accounts_count = accounts_count(options);
    return 2;
}

static int open_objects(struct bench_job *job, struct accounts *accounts) {
    struct remo_lock_options locks = {.count = accounts->locks_count + 1};
    for (uint32_t node = 0; node < job->size; node++)
        remo_nodeset_add(&locks.homes, node);
    uint64_t share = accounts->locks_count / job->size * accounts->rows_count * sizeof(uint64_t);
    int rc = remo_lock_open(job->channel, "locks", &locks, &accounts->locks);
    if (rc == 0)
        rc = remo_region_open(job->channel, "balances", share, NULL, &accounts->balances);
    if (rc == 0)
        rc = remo_region_open(job->channel, "counter", sizeof(uint64_t), NULL, &accounts->counter);
    return rc;
}

static int open_accounts(struct bench_job *job) {
    struct accounts *accounts = calloc(1, sizeof *accounts);
    if (!accounts)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = accounts;
    accounts->count = accounts_count(job->options);
    accounts->locks_count = LOCKS_PER_THREAD * job->size * job->options->threads;
    accounts->rows_count = (accounts->count + accounts->locks_count - 1) / accounts->locks_count;
    return open_objects(job, accounts);
}

static int fill(struct bench_job *job) {
    const struct accounts *accounts = job->state;
    uint64_t *balances = remo_region_local(accounts->balances);
    uint64_t count = remo_region_bytes(accounts->balances) / sizeof *balances;
    for (uint64_t i = 0; i < count; i++)
        balances[i] = OPENING_BALANCE;
    return 0;
}

static void close_accounts(struct bench_job *job) {
    struct accounts *accounts = job->state;
    if (!accounts)
        return;
    remo_lock_close(accounts->locks);
    remo_region_close(accounts->counter);
    remo_region_close(accounts->balances);
    free(accounts);
    job->state = NULL;
}

/* ---- one lock ---- */

static int add_one(struct accounts *accounts) {
    uint64_t value;
    int rc = remo_lock_acquire(accounts->locks, accounts->locks_count, REMO_FOREVER);
    if (rc != 0)
        return rc;
    rc = remo_region_read(accounts->counter, 0, 0, &value, sizeof value, NULL);
    value++;
    if (rc == 0)
        rc = remo_region_write(accounts->counter, 0, 0, &value, sizeof value, 0, NULL);
    int released = remo_lock_release(accounts->locks, accounts->locks_count, REMO_FENCE_PAIR);
    return rc != 0 ? rc : released;
}

/* ---- transfer ---- */

struct place {
    uint32_t lock, node;
    uint64_t offset;
};

static inline struct place find_place(const struct accounts *accounts, uint32_t size, uint64_t account) {
    struct place place = {.lock = (uint32_t)(account % accounts->locks_count)};
    uint64_t row = account / accounts->locks_count;
    place.node = place.lock % size;
    place.offset = (place.lock / size * accounts->rows_count + row) * sizeof(uint64_t);
    return place;
}

static int move_money(struct accounts *accounts, const struct place *from, const struct place *to,
                      uint64_t amount) {
    uint64_t from_balance, to_balance;
    struct remo_ack ack = REMO_ACK_INIT;
    int rc = remo_region_read(accounts->balances, from->node, from->offset, &from_balance, 8, &ack);
    if (rc == 0)
        rc = remo_region_read(accounts->balances, to->node, to->offset, &to_balance, 8, &ack);
    int waited = remo_ack_wait(&ack, REMO_FOREVER);
    if (rc != 0 || waited != 0)
        return rc != 0 ? rc : waited;
    from_balance -= amount;
    to_balance += amount;
    rc = remo_region_write(accounts->balances, from->node, from->offset, &from_balance, 8, 0, NULL);
    if (rc == 0)
        rc = remo_region_write(accounts->balances, to->node, to->offset, &to_balance, 8, 0, NULL);
    return rc;
}

/* A thread draws the next transfers in advance, as a server with queued requests, so that the
 * processor can prefetch their accounts. MPI has no such hint. */
#define TRANSFERS_AHEAD 8u

struct transfer {
    struct place from, to;
    uint64_t amount;
};

static void draw(const struct accounts *accounts, uint32_t size, struct remo__random *random,
                 struct transfer *ret_transfer) {
    uint64_t a = remo__random_below(random, accounts->count);
    uint64_t b = remo__random_below(random, accounts->count - 1);
    b += b >= a;
    ret_transfer->amount = remo__random_below(random, AMOUNT_MAX);
    ret_transfer->from = find_place(accounts, size, a);
    ret_transfer->to = find_place(accounts, size, b);
    remo_region_prefetch(accounts->balances, ret_transfer->from.node, ret_transfer->from.offset, 8);
    remo_region_prefetch(accounts->balances, ret_transfer->to.node, ret_transfer->to.offset, 8);
}

/* Both accounts lie at the homes of their locks: a pair fence at each release is enough. */
static int transfer(struct accounts *accounts, const struct transfer *what) {
    const struct place *from = &what->from, *to = &what->to;
    uint32_t first = from->lock < to->lock ? from->lock : to->lock,
             second = from->lock < to->lock ? to->lock : from->lock;
    int rc = remo_lock_acquire(accounts->locks, first, REMO_FOREVER);
    if (rc != 0)
        return rc;
    int taken = first == second ? 0 : remo_lock_acquire(accounts->locks, second, REMO_FOREVER);
    if (taken == 0)
        rc = move_money(accounts, from, to, what->amount);
    if (taken == 0 && first != second)
        taken = remo_lock_release(accounts->locks, second, REMO_FENCE_PAIR);
    int released = remo_lock_release(accounts->locks, first, REMO_FENCE_PAIR);
    rc = rc != 0 ? rc : taken;
    return rc != 0 ? rc : released;
}

static int transfer_many(struct accounts *accounts, uint32_t size, struct remo__random *random,
                         uint64_t operations) {
    struct transfer next[TRANSFERS_AHEAD];
    int rc = 0;
    for (uint64_t i = 0; i < operations + TRANSFERS_AHEAD && rc == 0; i++) {
        struct transfer *slot = &next[i % TRANSFERS_AHEAD];
        if (i >= TRANSFERS_AHEAD)
            rc = transfer(accounts, slot);
        if (i < operations)
            draw(accounts, size, random, slot);
    }
    return rc;
}

static int operate(struct bench_thread *thread, uint64_t operations) {
    struct bench_job *job = thread->job;
    struct accounts *accounts = job->state;
    int rc = 0;
    if (is_transfer(job->point))
        return transfer_many(accounts, job->size, &thread->random, operations);
    for (uint64_t i = 0; i < operations && rc == 0; i++)
        rc = add_one(accounts);
    thread->number += operations;
    return rc;
}

static int finish(struct bench_thread *thread) {
    struct accounts *accounts = thread->job->state;
    atomic_fetch_add(&accounts->done, thread->number);
    return 0;
}

/* ---- check: no update was lost ---- */

static uint64_t sum_here(struct bench_job *job) {
    struct accounts *accounts = job->state;
    if (!is_transfer(job->point))
        return atomic_load(&accounts->done);
    const uint64_t *balances = remo_region_local(accounts->balances);
    uint64_t count = remo_region_bytes(accounts->balances) / sizeof *balances, sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += balances[i];
    return sum;
}

/* Collect the sums of all nodes at node 0, in its scratch memory. */
static int check(struct bench_job *job) {
    const struct accounts *accounts = job->state;
    uint64_t sum = sum_here(job), value = 0;
    int rc = remo_region_write(job->scratch, 0, job->rank * sizeof sum, &sum, sizeof sum, 0, NULL);
    if (rc == 0)
        rc = remo_barrier_wait(job->barrier, REMO_FOREVER);
    if (rc != 0 || job->rank != 0)
        return rc;
    const uint64_t *sums = remo_region_local(job->scratch);
    sum = 0;
    for (uint32_t node = 0; node < job->size; node++)
        sum += sums[node];
    if (is_transfer(job->point)) {
        if (sum != accounts->locks_count * accounts->rows_count * OPENING_BALANCE)
            return remo__fail(-EIO, "the benchmark is wrong: the sum of all accounts has changed");
        return 0;
    }
    rc = remo_region_read(accounts->counter, 0, 0, &value, sizeof value, NULL);
    if (rc == 0 && value != sum)
        rc = remo__fail(-EIO, "the benchmark is wrong: %llu updates under the lock, but a count of %llu",
                        (unsigned long long)sum, (unsigned long long)value);
    return rc;
}

static double limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    const struct accounts *accounts = job->state;
    if (is_transfer(job->point)) {
        uint64_t count = remo_region_bytes(accounts->balances) / sizeof(uint64_t);
        limit_transfer_name(count, ret_name);
        return limit_transfer_ns(bench_mapping(job, accounts->balances, bench_target(job), 0), count);
    }
    snprintf(ret_name, LIMIT_NAME_BYTES, "%s", LIMIT_LOCK);
    return limit_lock_ns(bench_scratch(job));
}

const struct bench bench_accounts = {
    .name = "accounts",
    .object = "lock",
    .description =
        "LOCO 7.1: one lock for all; transfers between 2 of 100 M accounts (--accounts), 341 locks per "
        "thread",
    .list = list,
    .open = open_accounts,
    .fill = fill,
    .close = close_accounts,
    .finish = finish,
    .operate = operate,
    .check = check,
    .limit = limit,
};
