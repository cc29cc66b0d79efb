/* case_atomic.c - atomic_var and region: a counter, a word that is swapped, a register, and what is published through a region. */
#include <remo/atomic_var.h>
#include <remo/region.h>
#include <string.h>

#include "sim/case.h"
#include "sim/oracle.h"

#define FOREVER REMO_FOREVER

struct atomic_state {
    struct remo_atomic_var *vars[SIM_NODES_MAX];
};

static void open_var(void *state, struct remo_node *node, uint32_t rank) {
    struct atomic_state *s = state;
    sim_opened(remo_atomic_var_open(remo_node_root(node), "var", NULL, &s->vars[rank]), "open");
    sim_opened(remo_channel_wait(remo_atomic_var_channel(s->vars[rank]), FOREVER), "wait");
}

static void add(struct remo_atomic_var *var, uint64_t by) {
    uint64_t old = 0;
    uint32_t call = sim_begin(COUNTER_ADD, 0, by, 0);
    int rc = remo_atomic_var_fetch_add(var, 0, by, &old, NULL);
    if (rc == 0)
        sim_end(call, rc, old);
}

static void load(struct remo_atomic_var *var) {
    uint64_t value = 0;
    uint32_t call = sim_begin(WORD_LOAD, 0, 0, 0);
    int rc = remo_atomic_var_load(var, 0, &value, NULL);
    if (rc == 0)
        sim_end(call, rc, value);
    else
        sim_forget(call);
}

static void counter_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_atomic_var *var = ((struct atomic_state *)state)->vars[rank];
    add(var, 1 + rank);
    if (rank == 2)
        load(var);
    add(var, 10 + thread);
}

const struct sim_case sim_case_counter = {
    .object = "atomic_var", .name = "counter", .about = "fetch-and-add and load of one word by three nodes", .nodes = 3, .threads = 1,
    .state_bytes = sizeof(struct atomic_state), .open = open_var, .body = counter_body, .oracle = &oracle_word, .may_crash = true,
    .crash_first = 1};

static void swap(struct remo_atomic_var *var, uint64_t expected, uint64_t desired) {
    uint64_t old = 0;
    uint32_t call = sim_begin(WORD_SWAP, 0, expected, desired);
    int rc = remo_atomic_var_compare_swap(var, 0, expected, desired, &old, NULL);
    if (rc == 0)
        sim_end(call, rc, old);
}

static void store(struct remo_atomic_var *var, uint64_t value) {
    uint32_t call = sim_begin(WORD_STORE, 0, value, 0);
    int rc = remo_atomic_var_store(var, 0, value);
    if (rc == 0)
        sim_end(call, rc, 0);
}

static void word_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_atomic_var *var = ((struct atomic_state *)state)->vars[rank];
    swap(var, rank + thread, rank + thread + 1);
    if (thread == 0)
        store(var, 1 + rank);
    swap(var, 1, 2);
    load(var);
}

const struct sim_case sim_case_word = {
    .object = "atomic_var", .name = "word", .about = "compare-and-swap, store and load of one word by two nodes", .nodes = 2, .threads = 2,
    .state_bytes = sizeof(struct atomic_state), .open = open_var, .body = word_body, .oracle = &oracle_word, .may_crash = true,
    .crash_first = 1};

/* ---- region: a body is written and fenced, then a flag: who sees the flag sees the body ---- */

#define BODY_BYTES 200u
#define FLAG_AT    256u

struct region_state {
    struct remo_region *regions[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
};

static void open_region(void *state, struct remo_node *node, uint32_t rank) {
    struct region_state *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_region_open(remo_node_root(node), "region", 512, NULL, &s->regions[rank]), "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), FOREVER), "wait");
}

static void look_at_body(const char *body, uint64_t flag, const char *where) {
    for (uint32_t i = 0; i < BODY_BYTES && flag != 0; i++)
        sim_require(body[i] == (char)flag, "%s: the flag says %llu, but byte %u of the body is %d", where, (unsigned long long)flag, i,
                    body[i]);
}

/* Node 0 publishes at node 1 (same connection: pair fence), or the flag at node 2 (thread fence). */
static void publish(struct region_state *s, uint32_t flag_node, enum remo_fence_scope scope) {
    char body[BODY_BYTES];
    uint64_t flag = 7;
    memset(body, (int)flag, sizeof body);
    sim_require(remo_region_write(s->regions[0], 1, 0, body, sizeof body, 0, NULL) == 0, "write");
    memset(body, 0x55, sizeof body); /* the source was copied: what happens to it now does not matter */
    sim_require(remo_fence(s->nodes[0], scope, 1) == 0, "fence");
    sim_require(remo_region_write(s->regions[0], flag_node, FLAG_AT, &flag, sizeof flag, REMO_WRITE_NOTIFY, NULL) == 0, "flag");
}

static void read_published(struct region_state *s, uint32_t rank, uint32_t flag_node) {
    char body[BODY_BYTES];
    uint64_t flag = 0;
    for (uint32_t i = 0; i < 4 && flag == 0; i++)
        sim_require(remo_region_read(s->regions[rank], flag_node, FLAG_AT, &flag, sizeof flag, NULL) == 0, "read the flag");
    sim_require(remo_region_read(s->regions[rank], 1, 0, body, sizeof body, NULL) == 0, "read the body");
    look_at_body(body, flag, "read");
}

static void pair_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0)
        publish(state, 1, REMO_FENCE_PAIR);
    else
        read_published(state, rank, 1);
}

const struct sim_case sim_case_publish_pair = {
    .object = "region", .name = "publish", .about = "body, pair fence, flag at one node: who reads the flag reads the body", .nodes = 3,
    .threads = 1, .state_bytes = sizeof(struct region_state), .open = open_region, .body = pair_body};

static void thread_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0)
        publish(state, 2, REMO_FENCE_THREAD);
    else
        read_published(state, rank, 2);
}

const struct sim_case sim_case_publish_thread = {
    .object = "region", .name = "publish_elsewhere", .about = "body at one node, thread fence, flag at another", .nodes = 3, .threads = 1,
    .state_bytes = sizeof(struct region_state), .open = open_region, .body = thread_body};

/* Two threads of node 0: one writes, and tells the other in private memory, which fences for the node. */
struct global_state {
    struct region_state base;
    bool written;
};

static bool is_written(void *ctx) {
    return ((struct global_state *)ctx)->written;
}

static void global_body(void *state, uint32_t rank, uint32_t thread) {
    struct global_state *s = state;
    char body[BODY_BYTES];
    uint64_t flag = 7;
    memset(body, (int)flag, sizeof body);
    if (rank == 0 && thread == 0) {
        sim_require(remo_region_write(s->base.regions[0], 1, 0, body, sizeof body, 0, NULL) == 0, "write");
        s->written = true;
    } else if (rank == 0) {
        sim_until(is_written, s, "hear of the write");
        sim_require(remo_fence(s->base.nodes[0], REMO_FENCE_GLOBAL, 0) == 0, "fence");
        sim_require(remo_region_write(s->base.regions[0], 2, FLAG_AT, &flag, sizeof flag, 0, NULL) == 0, "flag");
    } else if (thread == 0) {
        read_published(state, rank, 2);
    }
}

const struct sim_case sim_case_publish_global = {
    .object = "region", .name = "publish_other_thread", .about = "one thread writes, another fences for the node and tells", .nodes = 3,
    .threads = 2, .state_bytes = sizeof(struct global_state), .open = open_region, .body = global_body};
