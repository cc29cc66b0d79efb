/* hello.c - every node adds its rank to a shared word; node 0 prints the sum.
 *     remo run -n 4 -- ./hello */
#include <remo/remo.h>
#include <stdio.h>

static int work(struct remo_node *node) {
    struct remo_atomic_var *sum = NULL;
    struct remo_barrier *barrier = NULL;
    uint64_t total = 0;
    int rc = remo_atomic_var_open(remo_node_root(node), "sum", NULL, &sum);
    rc = rc ? rc : remo_barrier_open(remo_node_root(node), "all", NULL, &barrier);
    rc = rc ? rc : remo_atomic_var_fetch_add(sum, 0, remo_node_rank(node), NULL, NULL);
    rc = rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER);
    rc = rc ? rc : remo_atomic_var_load(sum, 0, &total, NULL);
    if (rc == 0 && remo_node_rank(node) == 0)
        printf("the ranks of %u nodes add up to %llu\n", remo_node_size(node), (unsigned long long)total);
    rc = rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER); /* node 0 has read the sum: all may close */
    remo_barrier_close(barrier);
    remo_atomic_var_close(sum);
    return rc;
}

int main(void) {
    struct remo_node *node;
    int rc = remo_node_open(NULL, &node);
    if (rc == 0) {
        rc = work(node);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "hello: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
