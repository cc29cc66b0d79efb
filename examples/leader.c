/* leader.c - leader election that survives the failure of leaders and of the lock's home.
 *     remo run -n 4 -- ./leader        Then kill processes, in any order, until one remains.
 * The leader holds a lock whose home is the first node. If the leader fails, the next waiter gets
 * -EOWNERDEAD and leads. If the home fails, all nodes use the lock of the next node. A leader whose home has
 * failed may overlap briefly with its successor, so each leadership has a term: obey the highest only. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <unistd.h>

struct election {
    struct remo_node *node;
    struct remo_lock *locks; /* the home of lock i is node i */
    struct remo_sst *terms;  /* the last term that each node led */
    uint32_t home;           /* of the lock in use */
};

static uint32_t up_count(const struct election *e) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < remo_node_size(e->node); n++)
        count += remo_node_peer(e->node, n) == REMO_PEER_UP;
    return count;
}

/* A leadership ends when the home fails, or when no other node remains. */
static int is_over(void *ctx, struct remo_sst *terms) {
    const struct election *e = ctx;
    (void)terms;
    return up_count(e) == 1 || remo_node_peer(e->node, e->home) != REMO_PEER_UP;
}

/* Select the next term, announce it to all nodes, and lead until the leadership ends. */
static int lead(struct election *e) {
    uint64_t term = 0, row;
    int rc = 0;
    for (uint32_t n = 0; rc == 0 && n < remo_node_size(e->node); n++) {
        rc = remo_sst_load(e->terms, n, &row);
        term = rc == 0 && row > term ? row : term;
    }
    term++;
    rc = rc ? rc : remo_sst_store(e->terms, &term);
    rc = rc ? rc : remo_sst_push_all(e->terms, NULL);
    rc = rc ? rc : remo_fence(e->node, REMO_FENCE_THREAD, 0);
    if (rc == -EHOSTDOWN) /* a node has failed, and does not read the term */
        rc = 0;
    if (rc != 0)
        return rc;
    printf("node %u leads term %llu with home %u (process %d)\n", remo_node_rank(e->node),
           (unsigned long long)term, e->home, getpid());
    fflush(stdout);
    return remo_sst_wait(e->terms, is_over, e, REMO_FOREVER);
}

static int elect(struct election *e) {
    int rc = remo_channel_wait(remo_node_root(e->node), REMO_SECONDS(60));
    printf("node %u has joined (process %d)\n", remo_node_rank(e->node), getpid());
    fflush(stdout);
    while (rc == 0) {
        rc = remo_lock_acquire(e->locks, e->home, REMO_FOREVER);
        if (rc == -EOWNERDEAD) /* nothing to repair: the terms are in the table */
            rc = remo_lock_consistent(e->locks, e->home);
        if (rc == 0)
            rc = lead(e);
        if (rc == 0 && up_count(e) == 1)
            return 0;
        if ((rc == 0 || rc == -EHOSTDOWN) && remo_node_peer(e->node, e->home) != REMO_PEER_UP) {
            e->home++; /* the loop ends at this node's own lock at the latest: its home is up */
            rc = 0;
        }
    }
    return rc;
}

int main(void) {
    struct election e = {0};
    int rc = remo_node_open(NULL, &e.node);
    if (rc == 0) {
        struct remo_lock_options options = {.count = remo_node_size(e.node)};
        for (uint32_t n = 0; n < options.count; n++)
            remo_nodeset_add(&options.homes, n);
        rc = remo_lock_open(remo_node_root(e.node), "leader", &options, &e.locks);
        rc = rc ? rc : remo_sst_open(remo_node_root(e.node), "terms", sizeof(uint64_t), NULL, &e.terms);
        rc = rc ? rc : elect(&e);
        if (rc == 0)
            printf("node %u is the last\n", remo_node_rank(e.node));
        remo_sst_close(e.terms);
        remo_lock_close(e.locks);
        remo_node_close(e.node);
    }
    if (rc != 0)
        fprintf(stderr, "leader: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
