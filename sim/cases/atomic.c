/* atomic.c - atomic_var and region: a counter, a word that is swapped, a register, publication.
 * Calls on words must be linearizable (oracle_word); published data must be visible after its
 * flag. */
#include <errno.h>
#include <remo/atomic_var.h>
#include <remo/region.h>
#include <string.h>

#include "remote/fence.h"
#include "objects/region.h"
#include "remote/wait.h"
#include "sim/cases/region.h"
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

static void close_var(void *state, uint32_t rank) {
    remo_atomic_var_close(((struct atomic_state *)state)->vars[rank]);
}

/* Record the result of a call on a word, which lies at node 0. A call that failed may have been
 * applied or not. Reads of a node that was declared failed do not count. */
static void ended(uint32_t rank, uint32_t call, int rc, uint64_t result) {
    if (sim_out(rank))
        return;
    sim_require(rc == 0 || sim_excused(rank, 0, rc), "atomic_var: %d (%s)", rc, remo_last_error());
    if (rc == 0)
        sim_end(call, rc, result);
}

static void add(struct remo_atomic_var *var, uint32_t rank, uint64_t by) {
    uint64_t old = 0;
    uint32_t call = sim_begin(COUNTER_ADD, 0, by, 0);
    struct sim_bound bound = sim_bound_begin();
    int rc = remo_atomic_var_fetch_add(var, 0, by, &old, NULL);
    sim_bound_end(&bound, "fetch_add", 1, 2);
    ended(rank, call, rc, old);
}

static void load(struct remo_atomic_var *var, uint32_t rank) {
    uint64_t value = 0;
    uint32_t call = sim_begin(WORD_LOAD, 0, 0, 0);
    struct sim_bound bound = sim_bound_begin();
    int rc = remo_atomic_var_load(var, 0, &value, NULL);
    sim_bound_end(&bound, "load", 1, 2);
    if (rc != 0)
        sim_forget(call);
    ended(rank, call, rc, value);
}

static void counter_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_atomic_var *var = ((struct atomic_state *)state)->vars[rank];
    add(var, rank, 1 + rank);
    if (rank == 2)
        load(var, rank);
    add(var, rank, 10 + thread);
}

static void word_after(void *state, uint32_t rank) {
    struct remo_atomic_var *var = ((struct atomic_state *)state)->vars[rank];
    add(var, rank, 1000);
    load(var, rank);
}

const struct sim_case sim_case_counter = {.object = "atomic_var",
                                          .name = "counter",
                                          .about = "fetch-and-add and load of one word by three nodes",
                                          .nodes = 3,
                                          .threads = 1,
                                          .state_bytes = sizeof(struct atomic_state),
                                          .open = open_var,
                                          .close = close_var,
                                          .body = counter_body,
                                          .after = word_after,
                                          .oracle = &oracle_word};

static void swap(struct remo_atomic_var *var, uint32_t rank, uint64_t expected, uint64_t desired) {
    uint64_t old = 0;
    uint32_t call = sim_begin(WORD_SWAP, 0, expected, desired);
    struct sim_bound bound = sim_bound_begin();
    int rc = remo_atomic_var_compare_swap(var, 0, expected, desired, &old, NULL);
    sim_bound_end(&bound, "compare_swap", 1, 2);
    ended(rank, call, rc, old);
}

static void store(struct remo_atomic_var *var, uint32_t rank, uint64_t value) {
    uint32_t call = sim_begin(WORD_STORE, 0, value, 0);
    int rc = remo_atomic_var_store(var, 0, value);
    ended(rank, call, rc, 0);
}

static void word_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_atomic_var *var = ((struct atomic_state *)state)->vars[rank];
    swap(var, rank, rank + thread, rank + thread + 1);
    if (thread == 0)
        store(var, rank, 1 + rank);
    swap(var, rank, 1, 2);
    load(var, rank);
}

const struct sim_case sim_case_word = {.object = "atomic_var",
                                       .name = "word",
                                       .about = "compare-and-swap, store and load of one word by two nodes",
                                       .nodes = 2,
                                       .threads = 2,
                                       .state_bytes = sizeof(struct atomic_state),
                                       .open = open_var,
                                       .close = close_var,
                                       .body = word_body,
                                       .after = word_after,
                                       .oracle = &oracle_word};

/* ---- region: node 0 writes a body, fences, then writes a flag; a reader of the flag must read the
 * body ---- */

#define BODY_BYTES 200u
#define FLAG_AT 256u

void sim_region_open(void *state, struct remo_node *node, uint32_t rank) {
    struct region_state *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_region_open(remo_node_root(node), "region", 512, NULL, &s->regions[rank]), "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), FOREVER), "wait");
}

void sim_region_close(void *state, uint32_t rank) {
    remo_region_close(((struct region_state *)state)->regions[rank]);
}

static void check_body(const char *body, uint64_t flag, const char *where) {
    for (uint32_t i = 0; i < BODY_BYTES && flag != 0; i++)
        sim_require(body[i] == (char)flag, "%s: the flag is %llu, but byte %u of the body is %d", where,
                    (unsigned long long)flag, i, body[i]);
}

/* Return whether the call succeeded; false: it failed, and a fault excuses it. */
static bool succeeded(uint32_t rank, int rc, const char *what) {
    if (sim_out(rank) || sim_excused(rank, SIM_ANY, rc))
        return false;
    sim_require(rc == 0, "%s: %d (%s)", what, rc, remo_last_error());
    return true;
}

/* Surviving nodes reach each other. */
static void region_after(void *state, uint32_t rank) {
    const struct region_state *s = state;
    for (uint32_t node = 0; node < sim_world->test->nodes; node++) {
        uint64_t word = 1;
        int rc = remo_region_read(s->regions[rank], node, FLAG_AT + 8, &word, sizeof word, NULL);
        sim_require(rc == 0 || (sim_out(node) && rc == -EHOSTDOWN), "afterwards node %u gets %d from node %u",
                    rank, rc, node);
    }
}

/* Publish a body at node 1, with the flag there too (pair fence) or at node 2 (thread fence). */
static void publish(struct region_state *s, uint32_t flag_node, enum remo_fence_scope scope) {
    char body[BODY_BYTES];
    uint64_t flag = 7;
    memset(body, (int)flag, sizeof body);
    if (!succeeded(0, remo_region_write(s->regions[0], 1, 0, body, sizeof body, 0, NULL), "write"))
        return;
    memset(body, 0x55, sizeof body); /* the source was copied, so later changes have no effect */
    int rc = remo_fence(s->nodes[0], scope, 1);
    if (rc == 0 && scope == REMO_FENCE_THREAD && !sim_world->crashed[0] && !sim_world->crashed[1])
        check_body(remo_region_local(s->regions[1]), flag, "after a fence"); /* also if no reader is left */
    sim_require(rc != 0 || scope == REMO_FENCE_PAIR || !sim_hurt(0),
                "an operation failed, and the fence after it returned 0");
    if (succeeded(0, rc, "fence"))
        (void)succeeded(
            0,
            remo_region_write(s->regions[0], flag_node, FLAG_AT, &flag, sizeof flag, REMO_WRITE_NOTIFY, NULL),
            "flag");
}

static void read_published(struct region_state *s, uint32_t rank, uint32_t flag_node) {
    char body[BODY_BYTES];
    uint64_t flag = 0;
    for (uint32_t i = 0; i < 4 && flag == 0; i++)
        if (!succeeded(rank, remo_region_read(s->regions[rank], flag_node, FLAG_AT, &flag, sizeof flag, NULL),
                       "read the flag"))
            return;
    if (succeeded(rank, remo_region_read(s->regions[rank], 1, 0, body, sizeof body, NULL), "read the body")
        && !sim_out(1))
        check_body(body, flag, "read");
}

static void pair_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0)
        publish(state, 1, REMO_FENCE_PAIR);
    else
        read_published(state, rank, 1);
}

const struct sim_case sim_case_publish_pair = {
    .object = "region",
    .name = "publish",
    .about = "body, pair fence, flag at one node: readers of the flag read the body",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct region_state),
    .open = sim_region_open,
    .close = sim_region_close,
    .body = pair_body,
    .after = region_after};

/* Each of two nodes writes its own word at node 1, then reads the other's word. At least one must
 * read the other node's write. Without a fence both reads may pass the writes. */
struct cross_state {
    struct region_state base;
    bool missed[SIM_NODES_MAX];
};

static void cross_body(void *state, uint32_t rank, uint32_t thread) {
    struct cross_state *s = state;
    uint64_t one = 1, own = 64 * rank, other = 64 * (2 - rank);
    (void)thread;
    if (rank != 1
        && succeeded(rank, remo_region_write(s->base.regions[rank], 1, own, &one, 8, 0, NULL), "write")
        && succeeded(rank, remo_fence(s->base.nodes[rank], REMO_FENCE_PAIR, 1), "fence")) {
        uint64_t seen = 1;
        int rc = remo_region_read(s->base.regions[rank], 1, other, &seen, 8, NULL);
        s->missed[rank] = succeeded(rank, rc, "read") && seen == 0;
    }
}

static void cross_check(void *state) {
    const struct cross_state *s = state;
    sim_require(!s->missed[0] || !s->missed[2], "neither node read the other's write");
}

const struct sim_case sim_case_cross = {.object = "region",
                                        .name = "cross",
                                        .about = "two nodes write, fence and read the other's word",
                                        .nodes = 3,
                                        .threads = 1,
                                        .state_bytes = sizeof(struct cross_state),
                                        .open = sim_region_open,
                                        .close = sim_region_close,
                                        .body = cross_body,
                                        .after = region_after,
                                        .check = cross_check};

static void thread_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0)
        publish(state, 2, REMO_FENCE_THREAD);
    else
        read_published(state, rank, 2);
}

const struct sim_case sim_case_publish_thread = {.object = "region",
                                                 .name = "publish_elsewhere",
                                                 .about = "body at one node, thread fence, flag at another",
                                                 .nodes = 3,
                                                 .threads = 1,
                                                 .state_bytes = sizeof(struct region_state),
                                                 .open = sim_region_open,
                                                 .close = sim_region_close,
                                                 .body = thread_body,
                                                 .after = region_after};

/* Node 0 changes the condition of node 1 in private memory. Only an empty write notifies node 1. */
struct notify_state {
    struct region_state base;
    bool is_changed;
    const struct sim_actor *waiter;
};

static bool is_waiter_asleep(void *ctx) {
    const struct notify_state *s = ctx;
    return s->waiter && s->waiter->is_sleeping;
}

static int is_changed(void *ctx) {
    return ((const struct notify_state *)ctx)->is_changed;
}

static void notify_body(void *state, uint32_t rank, uint32_t thread) {
    struct notify_state *s = state;
    (void)thread;
    if (rank == 0) {
        sim_until(is_waiter_asleep, s, "wait for node 1");
        s->is_changed = true;
        int rc = remo_region_write(s->base.regions[0], 1, 0, "", 0, REMO_WRITE_NOTIFY, NULL);
        sim_require(rc == 0, "write: %s", remo_last_error());
    } else {
        s->waiter = sim_current();
        int rc = remo__wait(s->base.nodes[1], is_changed, s, REMO_FOREVER);
        sim_require(rc == 0, "wait: %s", remo_last_error());
    }
}

const struct sim_case sim_case_notify_empty = {.object = "region",
                                               .name = "notify_empty",
                                               .about = "a write of 0 bytes notifies its target",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct notify_state),
                                               .open = sim_region_open,
                                               .close = sim_region_close,
                                               .body = notify_body,
                                               .has_own_fault = true};

/* A write that is several operations notifies its target after all of them are placed. Node 1 reads the
 * first word, which another operation carries than the notification. */
#define PIECES_BYTES (REMO__BOUNCE_BYTES + 8u)

static void pieces_open(void *state, struct remo_node *node, uint32_t rank) {
    struct region_state *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_region_open(remo_node_root(node), "region", PIECES_BYTES, NULL, &s->regions[rank]),
               "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), FOREVER), "wait");
}

static int is_first_word(void *ctx) {
    struct region_state *s = ctx;
    const void *word = remo_region_local(s->regions[1]);
    remo__invalidate(word, sizeof(uint64_t));
    return remo__load(word) != 0;
}

static void pieces_body(void *state, uint32_t rank, uint32_t thread) {
    struct region_state *s = state;
    (void)thread;
    if (rank == 0) {
        char data[PIECES_BYTES];
        memset(data, 7, sizeof data);
        int rc = remo_region_write(s->regions[0], 1, 0, data, sizeof data, REMO_WRITE_NOTIFY, NULL);
        sim_require(rc == 0, "write: %s", remo_last_error());
    } else {
        int rc = remo__wait(s->nodes[1], is_first_word, s, REMO_FOREVER);
        sim_require(rc == 0, "wait: %s", remo_last_error());
    }
}

const struct sim_case sim_case_notify_pieces = {.object = "region",
                                                .name = "notify_pieces",
                                                .about = "a write of several operations notifies after them",
                                                .nodes = 2,
                                                .threads = 1,
                                                .state_bytes = sizeof(struct region_state),
                                                .open = pieces_open,
                                                .close = sim_region_close,
                                                .body = pieces_body,
                                                .has_own_fault = true};

/* Two threads of node 0: one writes and signals the other in private memory; the other fences for
 * the node. */
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
        (void)succeeded(0, remo_region_write(s->base.regions[0], 1, 0, body, sizeof body, 0, NULL), "write");
        sim_order_stores();
        s->written = true;
    } else if (rank == 0) {
        sim_until(is_written, s, "wait for the write");
        if (succeeded(0, remo_fence(s->base.nodes[0], REMO_FENCE_GLOBAL, 0), "fence") && !sim_hurt(0))
            (void)succeeded(0, remo_region_write(s->base.regions[0], 2, FLAG_AT, &flag, sizeof flag, 0, NULL),
                            "flag");
    } else if (thread == 0) {
        read_published(state, rank, 2);
    }
}

const struct sim_case sim_case_publish_global = {
    .object = "region",
    .name = "publish_other_thread",
    .about = "one thread writes, another fences for the node and sets the flag",
    .nodes = 3,
    .threads = 2,
    .state_bytes = sizeof(struct global_state),
    .open = sim_region_open,
    .close = sim_region_close,
    .body = global_body,
    .after = region_after};

/* Repeat a failed fence until it succeeds. A node whose write failed publishes nothing. */
static void again_body(void *state, uint32_t rank, uint32_t thread) {
    struct region_state *s = state;
    char body[BODY_BYTES];
    uint64_t flag = 7;
    (void)thread;
    if (rank != 0) {
        read_published(s, rank, 2);
        return;
    }
    memset(body, (int)flag, sizeof body);
    int rc = remo_region_write(s->regions[0], 1, 0, body, sizeof body, 0, NULL);
    bool written = succeeded(0, rc, "write");
    do {
        rc = remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0);
        written = written && (rc == 0 || !strstr(remo_last_error(), "whether it was applied"));
    } while (rc != 0 && sim_hurt(0) && !sim_any_out());
    if (succeeded(0, rc, "fence") && written)
        (void)succeeded(0, remo_region_write(s->regions[0], 2, FLAG_AT, &flag, sizeof flag, 0, NULL), "flag");
}

const struct sim_case sim_case_fence_again = {.object = "region",
                                              .name = "fence_again",
                                              .about = "as publish_elsewhere, with a fence until it succeeds",
                                              .nodes = 3,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct region_state),
                                              .open = sim_region_open,
                                              .close = sim_region_close,
                                              .body = again_body,
                                              .after = region_after,
                                              .continues_after_failure = true};

/* Operations that began before a fence have ended after it. */
static void ends_body(void *state, uint32_t rank, uint32_t thread) {
    struct region_state *s = state;
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t words[8];
    (void)thread;
    if (!succeeded(rank, remo_region_read(s->regions[rank], 1 - rank, 0, words, sizeof words, &ack),
                   "read")) {
        remo_ack_cancel(&ack); /* a node that its peers declared failed has posted it nevertheless */
        return;
    }
    int rc = remo_fence(s->nodes[rank], REMO_FENCE_THREAD, 0);
    sim_require(rc != 0 || remo_ack_test(&ack) != -EINPROGRESS, "a read outlives the fence after it");
    remo_ack_cancel(&ack);
    (void)succeeded(rank, rc, "fence");
}

const struct sim_case sim_case_fence_ends = {.object = "region",
                                             .name = "fence_ends",
                                             .about = "reads that began before a fence end before it",
                                             .nodes = 2,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct region_state),
                                             .open = sim_region_open,
                                             .close = sim_region_close,
                                             .body = ends_body,
                                             .after = region_after};
