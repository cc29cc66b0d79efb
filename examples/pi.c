/* pi.c - all nodes integrate one function together, by collective operations.
 *     remo run -n 4 -- ./pi [STEPS]
 * Node 0 broadcasts the number of steps; each node sums every n-th one; all nodes get the total. */
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>

/* The steps rank, rank + size, ... of the integral of 4 / (1 + x^2) from 0 to 1. */
static double integrate(uint64_t steps, uint32_t rank, uint32_t size) {
    double sum = 0, width = 1.0 / (double)steps;
    for (uint64_t i = rank; i < steps; i += size) {
        double x = ((double)i + 0.5) * width;
        sum += width * 4 / (1 + x * x);
    }
    return sum;
}

static int run(struct remo_node *node, uint64_t steps) {
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    struct remo_collective *all = NULL;
    struct remo_barrier *end = NULL;
    double pi = 0;
    int rc = remo_collective_open(remo_node_root(node), "all", NULL, &all);
    rc = rc ? rc : remo_barrier_open(remo_node_root(node), "end", NULL, &end);
    rc = rc ? rc : remo_collective_broadcast(all, 0, &steps, sizeof steps, REMO_FOREVER);
    if (rc == 0) {
        double part = integrate(steps, rank, size);
        rc = remo_collective_all_reduce(all, &part, &pi, 1, REMO_NUMBER_DOUBLE, REMO_REDUCTION_SUM,
                                        REMO_FOREVER);
    }
    if (rc == 0 && rank == 0)
        printf("pi is %.9f after %llu steps on %u nodes\n", pi, (unsigned long long)steps, size);
    rc = rc ? rc : remo_barrier_wait(end, REMO_FOREVER); /* no node reads this one any more: it may close */
    remo_barrier_close(end);
    remo_collective_close(all);
    return rc;
}

int main(int argc, char **argv) {
    struct remo_node *node;
    int rc = remo_node_open(NULL, &node);
    if (rc == 0) {
        /* Only the argument of node 0 has an effect. */
        rc = run(node, argc > 1 && remo_node_rank(node) == 0 ? strtoull(argv[1], NULL, 10) : 1000000);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "pi: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
