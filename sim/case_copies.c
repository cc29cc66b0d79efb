/* case_copies.c - owned_var and sst: registers with one writer and copies everywhere; weaker than linearizable, so checked against what they
 * promise: a value that was stored whole, never one older than was seen before, and after a push that was fenced not an older one either.
 */
#include <errno.h>
#include <remo/owned_var.h>
#include <remo/sst.h>
#include <string.h>

#include "sim/case.h"

#define FOREVER     REMO_FOREVER
#define VALUE_BYTES 120u
#define STORES      4u

/* Every byte of a value is its number; the number, or -1 when it is torn. */
static int number_of(const unsigned char *value) {
    for (uint32_t i = 1; i < VALUE_BYTES; i++)
        if (value[i] != value[0])
            return -1;
    return value[0];
}

static int look(int rc, const unsigned char *value, int *last, const char *how) {
    if (rc == -EAGAIN)
        return *last;
    sim_require(rc == 0, "%s: %d", how, rc);
    int number = number_of(value);
    sim_require(number >= 0, "%s: a torn value", how);
    sim_require(number >= *last, "%s: value %d after %d was seen", how, number, *last);
    *last = number;
    return number;
}

/* ---- owned_var ---- */

struct var_state {
    struct remo_owned_var *vars[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    int stored;                          /* the owner has this one, or a newer one */
    int pushed;                          /* everybody has */
};

static void open_var(void *state, struct remo_node *node, uint32_t rank) {
    struct var_state *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_owned_var_open(remo_node_root(node), "var", VALUE_BYTES, NULL, &s->vars[rank]), "open");
    sim_opened(remo_channel_wait(remo_owned_var_channel(s->vars[rank]), FOREVER), "wait");
}

static void write_var(struct var_state *s) {
    unsigned char value[VALUE_BYTES];
    for (int number = 1; number <= (int)STORES; number++) {
        memset(value, number, sizeof value);
        sim_require(remo_owned_var_store(s->vars[0], value) == 0, "store");
        s->stored = number;
        if (number % 2 == 0 || number == 3)
            sim_require(remo_owned_var_push_all(s->vars[0], NULL) == 0, "push");
        if (number % 2 == 0) {
            sim_require(remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0) == 0, "fence");
            s->pushed = number;
        }
    }
}

static void var_body(void *state, uint32_t rank, uint32_t thread) {
    struct var_state *s = state;
    unsigned char value[VALUE_BYTES];
    int last = 0;
    (void)thread;
    if (rank == 0) {
        write_var(s);
        return;
    }
    for (uint32_t i = 0; i < 4; i++) {
        int before = s->pushed;
        int number = look(remo_owned_var_load(s->vars[rank], value), value, &last, "load");
        sim_require(number >= before, "load: value %d although %d was pushed and fenced before", number, before);
        before = s->stored;
        int rc = rank == 2 ? remo_owned_var_pull(s->vars[rank], value) : -EAGAIN;
        number = look(rc, value, &last, "pull");
        sim_require(rc != 0 || number >= before, "pull: value %d although %d was stored before", number, before);
    }
}

const struct sim_case sim_case_owned_var = {
    .object = "owned_var", .name = "copies", .about = "stores and pushes of the owner; loads and pulls never torn, never going back",
    .nodes = 3, .threads = 1, .state_bytes = sizeof(struct var_state), .open = open_var, .body = var_body};

static void var_wait_body(void *state, uint32_t rank, uint32_t thread) {
    struct var_state *s = state;
    unsigned char value[VALUE_BYTES], seen[VALUE_BYTES] = {0};
    int last = 0;
    (void)thread;
    if (rank == 0) {
        write_var(s);
        return;
    }
    while (last < (int)STORES) {
        int rc = remo_owned_var_wait_change(s->vars[rank], seen, value, FOREVER);
        (void)look(rc, value, &last, "wait_change");
        memcpy(seen, value, sizeof seen);
    }
}

const struct sim_case sim_case_owned_var_wait = {
    .object = "owned_var", .name = "changes", .about = "waiting for changes until the last value", .nodes = 2, .threads = 1,
    .state_bytes = sizeof(struct var_state), .open = open_var, .body = var_wait_body};

/* ---- sst ---- */

struct sst_state {
    struct remo_sst *large[SIM_NODES_MAX], *small[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    int pushed[SIM_NODES_MAX];
};

static void open_sst(void *state, struct remo_node *node, uint32_t rank) {
    struct sst_state *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_sst_open(remo_node_root(node), "large", VALUE_BYTES, NULL, &s->large[rank]), "open");
    sim_opened(remo_sst_open(remo_node_root(node), "small", sizeof(uint64_t), NULL, &s->small[rank]), "open");
    sim_opened(remo_channel_wait(remo_sst_channel(s->large[rank]), FOREVER), "wait");
    sim_opened(remo_channel_wait(remo_sst_channel(s->small[rank]), FOREVER), "wait");
}

static void read_rows(struct sst_state *s, uint32_t rank, int *last, uint64_t *last_small) {
    unsigned char value[VALUE_BYTES];
    for (uint32_t node = 0; node < sim_world->test->nodes; node++) {
        uint64_t word = 0;
        int before = s->pushed[node];
        int number = look(remo_sst_load(s->large[rank], node, value), value, &last[node], "row");
        sim_require(number >= before, "row of node %u: %d although %d was pushed and fenced before", node, number, before);
        sim_require(remo_sst_load(s->small[rank], node, &word) == 0, "load");
        sim_require(word >= last_small[node], "small row of node %u: %llu after %llu", node, (unsigned long long)word,
                    (unsigned long long)last_small[node]);
        last_small[node] = word;
    }
}

static void sst_body(void *state, uint32_t rank, uint32_t thread) {
    struct sst_state *s = state;
    unsigned char value[VALUE_BYTES];
    int last[SIM_NODES_MAX] = {0};
    uint64_t last_small[SIM_NODES_MAX] = {0};
    (void)thread;
    for (uint64_t number = 1; number <= 3; number++) {
        memset(value, (int)number, sizeof value);
        sim_require(remo_sst_store(s->large[rank], value) == 0 && remo_sst_broadcast(s->large[rank], NULL) == 0, "broadcast");
        sim_require(remo_sst_store(s->small[rank], &number) == 0 && remo_sst_broadcast(s->small[rank], NULL) == 0, "broadcast");
        if (number == 2) {
            sim_require(remo_fence(s->nodes[rank], REMO_FENCE_THREAD, 0) == 0, "fence");
            s->pushed[rank] = (int)number;
        }
        read_rows(s, rank, last, last_small);
    }
}

const struct sim_case sim_case_sst = {
    .object = "sst", .name = "rows", .about = "broadcasts of large and small rows; never torn, never going back", .nodes = 2, .threads = 1,
    .state_bytes = sizeof(struct sst_state), .open = open_sst, .body = sst_body};

static void sst_reader_body(void *state, uint32_t rank, uint32_t thread) {
    struct sst_state *s = state;
    int last[SIM_NODES_MAX] = {0};
    uint64_t last_small[SIM_NODES_MAX] = {0};
    if (thread == 0)
        sst_body(state, rank, thread);
    else
        for (uint32_t i = 0; i < 4; i++)
            read_rows(s, rank, last, last_small);
}

const struct sim_case sim_case_sst_readers = {
    .object = "sst", .name = "readers", .about = "as rows, with a thread of each node that only reads", .nodes = 2, .threads = 2,
    .state_bytes = sizeof(struct sst_state), .open = open_sst, .body = sst_reader_body};
