/* coherence.c - objects that refuse to open without coherent CPU caches (profile cxl_nc).
 * Each refusal is -EOPNOTSUPP with a sentence that names the object. */
#include <errno.h>
#include <remo/remo.h>
#include <string.h>

#include "sim/case.h"

struct state {
    struct remo_node *nodes[SIM_NODES_MAX];
    struct remo_region *regions[SIM_NODES_MAX];
};

static void open_region(void *state, struct remo_node *node, uint32_t rank) {
    struct state *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_region_open(remo_node_root(node), "region", 64, NULL, &s->regions[rank]), "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), REMO_FOREVER), "wait");
}

static void refused(int rc, const char *what) {
    sim_require(rc == -EOPNOTSUPP && strstr(remo_last_error(), what), "%s: %d (%s)", what, rc,
                remo_last_error());
}

static void body(void *state, uint32_t rank, uint32_t thread) {
    struct state *s = state;
    struct remo_channel *root = remo_node_root(s->nodes[rank]);
    struct remo_atomic_var *var = NULL;
    struct remo_lock *lock = NULL;
    struct remo_queue *queue = NULL;
    struct remo_ringbuffer *ring = NULL;
    struct remo_rpc *rpc = NULL;
    struct remo_kv *map = NULL;
    struct remo_collective *collective = NULL;
    struct remo_table *table = NULL;
    uint64_t old;
    (void)thread;
    refused(remo_atomic_var_open(root, "var", NULL, &var), "an atomic variable");
    refused(remo_lock_open(root, "lock", NULL, &lock), "a lock");
    refused(remo_queue_open(root, "queue", NULL, &queue), "a queue");
    refused(remo_ringbuffer_open(root, "ring", NULL, &ring), "a ring buffer");
    refused(remo_rpc_open(root, "service", NULL, &rpc), "a service");
    refused(remo_kv_open(root, "map", NULL, &map), "a map");
    refused(remo_collective_open(root, "collective", NULL, &collective), "a collective");
    refused(remo_table_open(root, "table", NULL, &table), "a structure");
    refused(remo_region_fetch_add(s->regions[rank], 0, 0, 1, &old, NULL), "no atomics");
    refused(remo_region_compare_swap(s->regions[rank], 0, 0, 0, 1, &old, NULL), "no atomics");
    sim_require(!var && !lock && !queue && !ring && !rpc && !map && !collective && !table,
                "something was opened");
}

const struct sim_case sim_case_refusals = {.object = "region",
                                           .name = "refusals",
                                           .about = "without coherent caches, opens fail with an explanation",
                                           .nodes = 2,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct state),
                                           .open = open_region,
                                           .body = body,
                                           .profiles = "cxl_nc",
                                           .has_own_fault = true};
