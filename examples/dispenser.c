/* dispenser.c - a user's own object, which hands out the iterations of a loop to nodes (docs/tutorial.md).
 *
 *     remo run -n 4 -- ./dispenser 2000000
 */
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>

/* [object] */
struct dispenser { /* Cost: next = 1 atomic; done = n-1 writes. Failure: -EHOSTDOWN if the home fails. */
    struct remo_channel *channel; /* the parent of both parts */
    struct remo_atomic_var *next; /* the first iteration that no node has taken */
    struct remo_sst *found;       /* one row per node: its result */
    uint64_t end;
};

static void dispenser_close(struct dispenser *d) {
    remo_sst_close(d->found); /* close functions accept NULL: half-built objects close too */
    remo_atomic_var_close(d->next);
    remo_channel_close(d->channel);
    *d = (struct dispenser){0};
}

static int dispenser_open(struct remo_channel *in, const char *name, uint64_t end, struct dispenser *ret) {
    struct dispenser d = {.end = end};
    int rc = remo_channel_open(in, name, "dispenser", NULL, &d.channel);
    rc = rc ? rc : remo_channel_join(d.channel);
    rc = rc ? rc : remo_atomic_var_open(d.channel, "next", NULL, &d.next);
    rc = rc ? rc : remo_sst_open(d.channel, "found", sizeof(uint64_t), NULL, &d.found);
    rc = rc ? rc : remo_channel_wait(d.channel, REMO_SECONDS(10));
    if (rc != 0)
        dispenser_close(&d);
    else
        *ret = d;
    return rc;
}

/* Take `chunk` iterations, from *ret_first to *ret_end - 1. If none is left, both are the end. */
static int dispenser_next(struct dispenser *d, uint64_t chunk, uint64_t *ret_first, uint64_t *ret_end) {
    uint64_t first;
    int rc = remo_atomic_var_fetch_add(d->next, 0, chunk, &first, NULL);
    if (rc != 0)
        return rc;
    *ret_first = first < d->end ? first : d->end;
    *ret_end = d->end - *ret_first < chunk ? d->end : *ret_first + chunk;
    return 0;
}

/* Send this node's result to all nodes. */
static int dispenser_done(struct dispenser *d, uint64_t found) {
    int rc = remo_sst_store(d->found, &found);
    return rc ? rc : remo_sst_push_all(d->found, NULL);
}
/* [object] */

static int is_prime(uint64_t n) {
    for (uint64_t divisor = 2; divisor * divisor <= n; divisor++)
        if (n % divisor == 0)
            return 0;
    return n >= 2;
}

static int count_primes(struct remo_node *node, struct dispenser *d, struct remo_barrier *barrier) {
    uint64_t found = 0, first = 0, end = 1, row, total = 0;
    int rc = 0;
    while (rc == 0 && first < end) {
        rc = dispenser_next(d, 1000, &first, &end);
        for (uint64_t n = first; rc == 0 && n < end; n++)
            found += (uint64_t)is_prime(n);
    }
    rc = rc ? rc : dispenser_done(d, found);
    rc = rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER);
    for (uint32_t n = 0; rc == 0 && (n = remo_sst_next(d->found, n)) < REMO_NODES_MAX; n++) {
        rc = remo_sst_load(d->found, n, &row);
        total += row;
    }
    if (rc == 0 && remo_node_rank(node) == 0)
        printf("%llu primes below %llu\n", (unsigned long long)total, (unsigned long long)d->end);
    return rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER);
}

int main(int argc, char **argv) {
    struct remo_node *node;
    struct remo_barrier *barrier = NULL;
    struct dispenser d = {0};
    int rc = remo_node_open(NULL, &node);
    if (rc == 0) {
        uint64_t end = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
        rc = dispenser_open(remo_node_root(node), "loop", end, &d);
        rc = rc ? rc : remo_barrier_open(remo_node_root(node), "all", NULL, &barrier);
        rc = rc ? rc : count_primes(node, &d, barrier);
        remo_barrier_close(barrier);
        dispenser_close(&d);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "dispenser: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
