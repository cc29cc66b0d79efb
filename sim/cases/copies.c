/* copies.c - owned_var and sst: registers with one writer and copies at every node.
 * They are weaker than linearizable, so they are checked against their own promises. A load
 * returns a whole value, never an older one than before. After a fenced push, no node loads an
 * older value. */
#include <errno.h>
#include <remo/owned_var.h>
#include <remo/sst.h>
#include <string.h>

#include "sim/case.h"
#include "sim/network/net.h"

#define FOREVER REMO_FOREVER
#define VALUE_BYTES 120u
#define STORES 4u
#define LAST 99          /* a value of the liveness phase */
#define LOAD_TURNS 1000u /* attempts of a load, of several accesses each */

/* Return the number of a value, whose bytes all equal it, or -1 if the value is torn. */
static int number_of(const unsigned char *value) {
    for (uint32_t i = 1; i < VALUE_BYTES; i++)
        if (value[i] != value[0])
            return -1;
    return value[0];
}

/* Check the result of a read. Returns its number, or the last one if a fault excuses the error. */
static int check_value(uint32_t rank, int rc, const unsigned char *value, int *last, const char *how) {
    if (rc == -EAGAIN || sim_excused(rank, SIM_ANY, rc))
        return *last;
    sim_require(rc == 0, "%s: %d", how, rc);
    int number = number_of(value);
    sim_require(number >= 0, "%s: a torn value", how);
    sim_require(number >= *last, "%s: value %d after value %d", how, number, *last);
    *last = number;
    return number;
}

/* ---- owned_var ---- */

struct var_state {
    struct remo_owned_var *vars[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    int stored; /* the owner has stored this value */
    int pushed; /* every node has it, or a newer one */
};

static void open_var(void *state, struct remo_node *node, uint32_t rank) {
    struct var_state *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_owned_var_open(remo_node_root(node), "var", VALUE_BYTES, NULL, &s->vars[rank]), "open");
    sim_opened(remo_channel_wait(remo_owned_var_channel(s->vars[rank]), FOREVER), "wait");
}

static void close_var(void *state, uint32_t rank) {
    remo_owned_var_close(((struct var_state *)state)->vars[rank]);
}

/* Return whether the call succeeded; false: it failed, and a fault excuses it. */
static bool succeeded(uint32_t rank, int rc, const char *what) {
    if (rc != 0 && sim_excused(rank, SIM_ANY, rc))
        return false;
    sim_require(rc == 0, "%s: %d (%s)", what, rc, remo_last_error());
    return true;
}

static void write_var(struct var_state *s) {
    unsigned char value[VALUE_BYTES];
    for (int number = 1; number <= (int)STORES; number++) {
        memset(value, number, sizeof value);
        sim_require(remo_owned_var_store(s->vars[0], value) == 0, "store");
        if (!sim_profile->mapped) /* else the store may be in the owner's store buffer until its next fence */
            s->stored = number;
        bool pushed = number != 1, fenced = true;
        do { /* repeat operations that were made to fail */
            pushed = pushed && succeeded(0, remo_owned_var_push_all(s->vars[0], NULL), "push");
            fenced = number % 2 != 0 || succeeded(0, remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0), "fence");
        } while (!fenced && sim_hurt(0) && !sim_out(0));
        if (number != 1)
            s->stored = number;
        if (number % 2 == 0 && pushed && fenced && !sim_out(0))
            s->pushed = number;
    }
}

static void load_var(struct var_state *s, uint32_t rank, int *last) {
    unsigned char value[VALUE_BYTES];
    int before = s->pushed;
    struct sim_bound bound = sim_bound_begin();
    int rc = remo_owned_var_load(s->vars[rank], value);
    sim_bound_end(&bound, "load", 0, LOAD_TURNS);
    int number = check_value(rank, rc, value, last, "load");
    sim_require(number >= before || sim_out(rank), "load: value %d although %d was pushed and fenced before",
                number, before);
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
        load_var(s, rank, &last);
        int before = s->stored;
        int rc = rank == 2 ? remo_owned_var_pull(s->vars[rank], value) : -EAGAIN;
        int number = check_value(rank, rc, value, &last, "pull");
        sim_require(rc != 0 || number >= before, "pull: value %d although %d was stored before", number,
                    before);
    }
}

/* The last value stays whole, whichever node failed. If the owner has not failed, all nodes receive
 * its next value. */
static void var_after(void *state, uint32_t rank) {
    struct var_state *s = state;
    unsigned char value[VALUE_BYTES];
    int last = 0;
    sim_require(remo_owned_var_load(s->vars[rank], value) == 0,
                "no node writes, and a load finds no whole value");
    load_var(s, rank, &last);
    if (rank == 0) {
        memset(value, LAST, sizeof value);
        sim_require(remo_owned_var_store(s->vars[0], value) == 0, "store");
        sim_require(remo_owned_var_push_all(s->vars[0], NULL) == 0, "push");
    } else if (!sim_out(0)) {
        while (last != LAST) {
            int rc = remo_owned_var_wait(s->vars[rank], value, value, FOREVER);
            (void)check_value(rank, rc, value, &last, "wait");
        }
    }
}

const struct sim_case sim_case_owned_var = {
    .object = "owned_var",
    .name = "copies",
    .about = "stores and pushes of the owner; loads and pulls never torn, never going back",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct var_state),
    .open = open_var,
    .close = close_var,
    .body = var_body,
    .after = var_after};

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
        int rc = remo_owned_var_wait(s->vars[rank], seen, value, FOREVER);
        (void)check_value(rank, rc, value, &last, "wait");
        sim_require(rc == 0 || rc == -EAGAIN || sim_out(rank) || last >= s->pushed,
                    "the owner has failed, and its value %d, pushed "
                    "and fenced, was not received",
                    s->pushed);
        if (rc != 0 && rc != -EAGAIN)
            return;
        memcpy(seen, value, sizeof seen);
    }
}

const struct sim_case sim_case_owned_var_wait = {.object = "owned_var",
                                                 .name = "changes",
                                                 .about = "waiting for changes until the last value",
                                                 .nodes = 2,
                                                 .threads = 1,
                                                 .state_bytes = sizeof(struct var_state),
                                                 .open = open_var,
                                                 .close = close_var,
                                                 .body = var_wait_body,
                                                 .after = var_after};

/* On each reader node one thread pulls and one loads: neither may return an older value than the
 * other saw. */
static void var_threads_body(void *state, uint32_t rank, uint32_t thread) {
    struct var_state *s = state;
    unsigned char value[VALUE_BYTES];
    int last = 0;
    if (rank == 0 && thread == 0)
        write_var(s);
    for (uint32_t i = 0; i < 5 && rank != 0; i++)
        if (thread == 0)
            (void)check_value(rank, remo_owned_var_pull(s->vars[rank], value), value, &last, "pull");
        else
            load_var(s, rank, &last);
}

const struct sim_case sim_case_owned_var_threads = {.object = "owned_var",
                                                    .name = "pull_and_load",
                                                    .about = "one thread of a node pulls, another loads",
                                                    .nodes = 2,
                                                    .threads = 2,
                                                    .state_bytes = sizeof(struct var_state),
                                                    .open = open_var,
                                                    .close = close_var,
                                                    .body = var_threads_body,
                                                    .after = var_after};

/* Both threads of the owner store and push in turn: a push is placed before the other thread's next
 * push. */
struct pushers_state {
    struct var_state base;
    int turn; /* the number stored and pushed last */
};

struct turn_wait {
    const struct pushers_state *state;
    int number;
};

static bool is_turn(void *ctx) {
    const struct turn_wait *mine = ctx;
    return mine->state->turn + 1 == mine->number;
}

static void pushers_body(void *state, uint32_t rank, uint32_t thread) {
    struct pushers_state *s = state;
    unsigned char value[VALUE_BYTES];
    int last = 0;
    for (struct turn_wait mine = {.state = s, .number = (int)thread + 1}; rank == 0 && mine.number <= 6;
         mine.number += 2) {
        sim_until(is_turn, &mine, "wait for the other thread");
        memset(value, mine.number, sizeof value);
        sim_require(remo_owned_var_store(s->base.vars[0], value) == 0, "store");
        (void)succeeded(0, remo_owned_var_push_all(s->base.vars[0], NULL), "push");
        s->turn = mine.number;
    }
    for (uint32_t i = 0; i < 6 && rank != 0; i++)
        load_var(&s->base, rank, &last);
}

const struct sim_case sim_case_owned_var_pushers = {.object = "owned_var",
                                                    .name = "pushers",
                                                    .about = "two threads of the owner push in turn",
                                                    .nodes = 3,
                                                    .threads = 2,
                                                    .state_bytes = sizeof(struct pushers_state),
                                                    .open = open_var,
                                                    .close = close_var,
                                                    .body = pushers_body,
                                                    .after = var_after};

/* A push fails. The next one succeeds, and leaves the loss to the fence after it. */
static void lost_body(void *state, uint32_t rank, uint32_t thread) {
    struct var_state *s = state;
    struct remo_node *node = remo_channel_node(remo_owned_var_channel(s->vars[rank]));
    (void)thread;
    if (rank != 0)
        return;
    sim_fail_next(SIM_FAIL_COMPLETION, 0, 0, 1);
    for (uint32_t i = 0; i < 2; i++) {
        int rc = remo_owned_var_push(s->vars[0], 1, NULL);
        sim_require(rc == 0, "push %u: %d (%s)", i, rc, remo_last_error());
    }
    sim_require(remo_fence(node, REMO_FENCE_THREAD, 0) != 0, "no fence has returned the loss");
    sim_require(remo_fence(node, REMO_FENCE_THREAD, 0) == 0, "a loss is returned twice: %s",
                remo_last_error());
}

const struct sim_case sim_case_owned_var_lost = {.object = "owned_var",
                                                 .name = "lost",
                                                 .needs_flight = true,
                                                 .about = "a push fails, then another one",
                                                 .nodes = 2,
                                                 .threads = 1,
                                                 .state_bytes = sizeof(struct var_state),
                                                 .open = open_var,
                                                 .close = close_var,
                                                 .body = lost_body,
                                                 .has_own_fault = true};

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

static void close_sst(void *state, uint32_t rank) {
    struct sst_state *s = state;
    remo_sst_close(s->large[rank]);
    remo_sst_close(s->small[rank]);
}

static void read_rows(struct sst_state *s, uint32_t rank, int *last, uint64_t *last_small) {
    unsigned char value[VALUE_BYTES];
    for (uint32_t node = 0; node < sim_world->test->nodes; node++) {
        uint64_t word = 0;
        int before = s->pushed[node];
        struct sim_bound bound = sim_bound_begin();
        int rc = remo_sst_load(s->large[rank], node, value);
        sim_bound_end(&bound, "load of a row", 0, LOAD_TURNS);
        int number = check_value(rank, rc, value, &last[node], "row");
        sim_require(number >= before || sim_out(rank) || sim_out(node),
                    "row of node %u: %d although %d was pushed and fenced before", node, number, before);
        bound = sim_bound_begin();
        sim_require(remo_sst_load(s->small[rank], node, &word) == 0, "load");
        sim_bound_end(&bound, "load of a small row", 0, 2);
        sim_require(word >= last_small[node], "small row of node %u: %llu after %llu", node,
                    (unsigned long long)word, (unsigned long long)last_small[node]);
        sim_require(word >= (uint64_t)before || sim_out(rank) || sim_out(node),
                    "small row of node %u: %llu although %d was pushed and fenced "
                    "before",
                    node, (unsigned long long)word, before);
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
        sim_require(remo_sst_store(s->large[rank], value) == 0
                        && remo_sst_store(s->small[rank], &number) == 0,
                    "store");
        bool pushed = succeeded(rank, remo_sst_push_all(s->large[rank], NULL), "push_all")
                      && succeeded(rank, remo_sst_push_all(s->small[rank], NULL), "push_all");
        if (number == 2 && succeeded(rank, remo_fence(s->nodes[rank], REMO_FENCE_THREAD, 0), "fence")
            && pushed && !sim_out(rank) && !sim_hurt(rank))
            s->pushed[rank] = (int)number;
        read_rows(s, rank, last, last_small);
    }
}

struct rows_wait {
    uint64_t value;
    uint32_t nodes;
};

static int all_rows(void *ctx, struct remo_sst *sst) {
    const struct rows_wait *wait = ctx;
    uint64_t word = 0;
    for (uint32_t node = 0; node < wait->nodes; node++)
        if (!sim_out(node) && (remo_sst_load(sst, node, &word) != 0 || word != wait->value))
            return 0;
    return 1;
}

/* Rows of failed nodes are whole, and the surviving nodes receive each other's rows. */
static void sst_after(void *state, uint32_t rank) {
    struct sst_state *s = state;
    struct rows_wait wait = {.value = LAST, .nodes = sim_world->test->nodes};
    unsigned char value[VALUE_BYTES];
    for (uint32_t node = 0; node < wait.nodes; node++)
        sim_require(remo_sst_load(s->large[rank], node, value) == 0 && number_of(value) >= 0,
                    "no node writes, and a row is not whole");
    sim_require(remo_sst_store(s->small[rank], &wait.value) == 0, "store");
    int rc = remo_sst_push_all(s->small[rank], NULL);
    if (rc != 0 && sim_hurt(rank)) /* the failure of an earlier push is reported once */
        rc = remo_sst_push_all(s->small[rank], NULL);
    sim_require(rc == 0, "push_all: %d (%s)", rc, remo_last_error());
    sim_require(remo_sst_wait(s->small[rank], all_rows, &wait, FOREVER) == 0,
                "wait for the rows of all surviving nodes");
}

const struct sim_case sim_case_sst = {.object = "sst",
                                      .name = "rows",
                                      .about = "pushes of large and small rows; never torn, never going back",
                                      .nodes = 3,
                                      .threads = 1,
                                      .state_bytes = sizeof(struct sst_state),
                                      .open = open_sst,
                                      .close = close_sst,
                                      .body = sst_body,
                                      .after = sst_after};

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

const struct sim_case sim_case_sst_readers = {.object = "sst",
                                              .name = "readers",
                                              .about = "as rows, with a thread of each node that only reads",
                                              .nodes = 2,
                                              .threads = 2,
                                              .state_bytes = sizeof(struct sst_state),
                                              .open = open_sst,
                                              .close = close_sst,
                                              .body = sst_reader_body,
                                              .after = sst_after};
