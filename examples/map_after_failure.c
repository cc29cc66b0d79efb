/* map_after_failure.c - a map after the failure of a node: its remaining keys, and a new map with them.
 *     remo run -n 4 -- ./map_after_failure        Then kill one of the processes.
 * Keys on the failed node are lost (-EHOSTDOWN). All others can be read; keys whose lock was on the failed
 * node cannot be changed. The remaining nodes open a new map and copy the keys into it. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <unistd.h>

#define KEYS_PER_NODE 100u

static struct remo_barrier *open_barrier(struct remo_node *node, const char *name,
                                         const struct remo_nodeset *members) {
    struct remo_barrier_options options = {.participants = *members};
    struct remo_barrier *barrier = NULL;
    return remo_barrier_open(remo_node_root(node), name, &options, &barrier) == 0 ? barrier : NULL;
}

static int are_all_up(const struct remo_node *node) {
    for (uint32_t n = 0; n < remo_node_size(node); n++)
        if (remo_node_peer(node, n) != REMO_PEER_UP)
            return 0;
    return 1;
}

/* Each node inserts its keys: their slots are on that node. */
static int fill(struct remo_kv *map, uint32_t rank) {
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < KEYS_PER_NODE; i++) {
        uint32_t key = rank * KEYS_PER_NODE + i, value = 3 * key;
        rc = remo_kv_insert(map, &key, sizeof key, &value, sizeof value);
    }
    return rc;
}

/* Copy this node's part of the keys: every `up_count`-th. */
static int copy(struct remo_kv *from, struct remo_kv *to, uint32_t part, uint32_t up_count, uint32_t keys) {
    uint32_t value;
    int rc = 0;
    for (uint32_t key = part; rc == 0 && key < keys; key += up_count) {
        rc = remo_kv_get(from, &key, sizeof key, &value, sizeof value, NULL);
        if (rc == -EHOSTDOWN) /* the key was on the failed node */
            rc = 0;
        else if (rc == 0)
            rc = value == 3 * key ? remo_kv_insert(to, &key, sizeof key, &value, sizeof value) : -EBADMSG;
    }
    return rc;
}

static int copy_rest(struct remo_node *node, struct remo_kv *map) {
    struct remo_kv_options options = {0};
    struct remo_kv *rest = NULL;
    uint32_t up_count = 0, part = 0, size = remo_node_size(node);
    for (uint32_t n = 0; n < size; n++)
        if (remo_node_peer(node, n) == REMO_PEER_UP) {
            remo_nodeset_add(&options.participants, n);
            part += n < remo_node_rank(node);
            up_count++;
        }
    struct remo_barrier *barrier = open_barrier(node, "all-rest", &options.participants);
    int rc = barrier ? remo_kv_open(remo_node_root(node), "rest", &options, &rest) : -ENOMEM;
    rc = rc ? rc : copy(map, rest, part, up_count, size * KEYS_PER_NODE);
    rc = rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER);
    uint64_t kept = rest ? remo_kv_count(rest) : 0;
    if (rc == 0 && part == 0)
        printf("%u of %u nodes remain; their map has %llu keys\n", up_count, size, (unsigned long long)kept);
    rc = rc == 0 && kept != up_count * KEYS_PER_NODE ? -EBADMSG : rc;
    rc = rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER);
    remo_kv_close(rest);
    remo_barrier_close(barrier);
    return rc;
}

int main(void) {
    struct remo_nodeset all = {0};
    struct remo_node *node;
    struct remo_kv *map = NULL;
    int rc = remo_node_open(NULL, &node);
    if (rc == 0) {
        struct remo_barrier *barrier = open_barrier(node, "all", &all);
        rc = barrier ? remo_kv_open(remo_node_root(node), "map", NULL, &map) : -ENOMEM;
        rc = rc ? rc : fill(map, remo_node_rank(node));
        rc = rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER);
        printf("node %u is ready (process %d)\n", remo_node_rank(node), getpid());
        fflush(stdout);
        while (rc == 0 && are_all_up(node))
            usleep(10000);
        rc = rc ? rc : copy_rest(node, map);
        remo_kv_close(map);
        remo_barrier_close(barrier);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "map_after_failure: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
