/* litmus.c - tests of the simulated networks against the memory model: each row of its table of transitions
 * (bench/litmus/rows.c; here, those that need a failed node or a broken connection, or that show how order is
 * restored). Each row has an outcome that some profiles can reach, and that others exclude. */
#include <remo/ack.h>
#include <stdio.h>
#include <string.h>

#include "bench/litmus/litmus.h"
#include "fabric/access.h"
#include "sim/case.h"
#include "sim/network/net.h"
#include "sim/scheduler.h"

#define SCHEDULES 20000u
#define LOOKS 12u
#define X LITMUS_X

static const struct litmus_row *running;

/* ---- functions that the programs call ---- */

void litmus_point(const char *what) {
    sim_point(what);
}

void litmus_until(bool (*is)(void *ctx), void *ctx, const char *what) {
    sim_until(is, ctx, what);
}

void litmus_signal(struct litmus *s) {
    sim_drain(sim_current()); /* a store of a CPU: it follows the earlier ones */
    s->flag = true;
}

bool litmus_again(uint32_t attempt) {
    return attempt < LOOKS;
}

void litmus_fail(const char *what, int rc) {
    sim_fail("%s: %d", what, rc);
}

static void open_region(void *state, struct remo_node *node, uint32_t rank) {
    struct litmus *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_region_open(remo_node_root(node), "region", LITMUS_BYTES, NULL, &s->regions[rank]),
               "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), REMO_FOREVER), "wait");
}

/* ---- rows with a failure or an error ---- */

static bool is_flag(void *ctx) {
    return ((struct litmus *)ctx)->flag;
}

static uint64_t cpu_load(struct litmus *s) {
    return remo__load((char *)remo_region_local(s->regions[1]) + X);
}

static void put_and_fail(struct litmus *s) {
    uint64_t one = 1;
    sim_require(remo_region_write(s->regions[0], 1, X, &one, 8, 0, NULL) == 0, "put");
    litmus_signal(s);
    sim_point("fail");
}

static void await_zombie(struct litmus *s) {
    bool before = cpu_load(s) == 0;
    for (uint32_t attempt = 0; attempt < LOOKS; attempt++)
        if (before && cpu_load(s) == 1)
            s->odd = 1;
}

/* A put that was sent is placed after its node failed. */
static void zombie(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 0)
        put_and_fail(s);
    if (node == 1) {
        sim_until(is_flag, s, "the post");
        sim_crash(0);
        await_zombie(s);
    }
}

/* The put is not placed after the node was cut off. */
static bool is_cut_off(void *ctx) {
    const struct litmus *s = ctx;
    return atomic_load(&s->nodes[1]->fabric->peers[0].connected) == 0;
}

static void zombie_cut(struct litmus *s, uint32_t node, uint32_t thread) {
    (void)thread;
    if (node == 0)
        put_and_fail(s);
    if (node == 1) {
        sim_until(is_flag, s, "the post");
        sim_crash(0);
        sim_until(is_cut_off, s, "the cut");
        await_zombie(s);
    }
}

/* A connection breaks while an atomic is in flight, and each end cuts the other off: the call returns an
 * error or not, and the atomic was applied or not. */
enum end { ENDED_OK = 1, ENDED_IN_ERROR };

static uint64_t add_and_cut(struct litmus *s, uint32_t node) {
    struct remo_ack ack = REMO_ACK_INIT;
    if (node == 0) {
        int rc = remo_region_fetch_add(s->regions[0], 1, X, 1, NULL, &ack);
        rc = rc ? rc : remo_ack_wait(&ack, REMO_FOREVER);
        s->seen[0] = rc == 0 ? ENDED_OK : ENDED_IN_ERROR;
        litmus_signal(s);
    }
    if (node != 1)
        return 0;
    struct remo__fabric *fabric = s->nodes[1]->fabric;
    sim_point("break the connection");
    fabric->ops->disconnect(fabric, 0);
    sim_point("the other end detects it");
    fabric = s->nodes[0]->fabric;
    fabric->ops->disconnect(fabric, 1);
    sim_changed(0);
    sim_until(is_flag, s, "the end of the atomic");
    return cpu_load(s);
}

static void error_and_done(struct litmus *s, uint32_t node, uint32_t thread) {
    uint64_t value = add_and_cut(s, node);
    (void)thread;
    if (node == 1)
        s->odd = s->seen[0] == ENDED_IN_ERROR && value == 1;
}

static void error_and_not_done(struct litmus *s, uint32_t node, uint32_t thread) {
    uint64_t value = add_and_cut(s, node);
    (void)thread;
    if (node == 1)
        s->odd = s->seen[0] == ENDED_IN_ERROR && value == 0;
}

static void not_once(struct litmus *s, uint32_t node, uint32_t thread) {
    uint64_t value = add_and_cut(s, node);
    (void)thread;
    if (node == 1)
        s->odd = value > 1 || (s->seen[0] == ENDED_OK && value != 1);
}

/* ---- row 24, with flush and invalidate ---- */

static void store_flushed(struct litmus *s, uint32_t node, uint32_t thread) {
    char *word = (char *)remo_region_local(s->regions[1]) + X;
    uint64_t value = 0;
    (void)thread;
    if (node == 1) {
        remo__store(word, 1);
        remo__flush(word, sizeof value);
        litmus_signal(s);
    }
    if (node == 0) {
        sim_until(is_flag, s, "wait for the store");
        sim_require(remo_region_read(s->regions[0], 1, X, &value, sizeof value, NULL) == 0, "get");
        s->odd = value == 0;
    }
}

static void load_invalidated(struct litmus *s, uint32_t node, uint32_t thread) {
    uint64_t one = 1;
    (void)thread;
    if (node == 0) {
        sim_require(remo_region_write(s->regions[0], 1, X, &one, 8, 0, NULL) == 0, "put");
        sim_require(remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0) == 0, "fence");
        litmus_signal(s);
    }
    if (node == 1) {
        (void)cpu_load(s);
        sim_until(is_flag, s, "wait for the put");
        remo__invalidate((char *)remo_region_local(s->regions[1]) + X, 8);
        s->odd = cpu_load(s) == 0;
    }
}

static const struct litmus_row own_rows[] = {
    {"22", "put; its node fails", "it lands after the failure", zombie, LITMUS_FLIGHT, false, false},
    {"22", "put; its node fails; is cut off", "it lands after the cut", zombie_cut, LITMUS_NEVER, false,
     false},
    {"23", "rmw X; its connection breaks", "an error, and it was applied", error_and_done, LITMUS_FLIGHT,
     false, true},
    {"23", "rmw X; its connection breaks", "an error, and it was not applied", error_and_not_done,
     LITMUS_ALWAYS, false, true},
    {"23", "rmw X; its connection breaks", "twice, or not at all and no error", not_once, LITMUS_NEVER, false,
     true},
    {"24", "CPU stores X; flush | signalled: get X", "the get misses the store", store_flushed, LITMUS_NEVER,
     false, false},
    {"24", "CPU has loaded X | put | signalled: invalidate; load", "the load misses the put",
     load_invalidated, LITMUS_NEVER, false, false},
};

/* ---- running the rows ---- */

static void body(void *state, uint32_t rank, uint32_t thread) {
    if (thread == 0 || running->threads)
        running->body(state, rank, thread);
}

static const struct sim_case litmus_case = {.object = "litmus",
                                            .name = "litmus",
                                            .nodes = LITMUS_NODES,
                                            .threads = 2,
                                            .state_bytes = sizeof(struct litmus),
                                            .open = open_region,
                                            .body = body};

static bool reachable(const struct litmus_row *row, const struct sim_profile *p) {
    const bool excluded[LITMUS_RULES] = {[LITMUS_ALWAYS] = false,
                                         [LITMUS_FLIGHT] = p->mapped,
                                         [LITMUS_NEVER] = true,
                                         [LITMUS_PUT_PUT] = p->put_put,
                                         [LITMUS_PUT_GET] = p->put_get || p->put_get_same,
                                         [LITMUS_PUT_GET_OTHER] = p->put_get,
                                         [LITMUS_PUT_RMW] = p->put_rmw,
                                         [LITMUS_GET_PUT] = p->get_put,
                                         [LITMUS_GET_GET] = p->get_get,
                                         [LITMUS_RMW_PUT] = p->get_rmw,
                                         [LITMUS_RMW_GET] = p->rmw_get,
                                         [LITMUS_PLACED] = p->placed,
                                         [LITMUS_COMPLETIONS] = p->completion_order,
                                         [LITMUS_COHERENT] = p->rmw_one_step,
                                         [LITMUS_CACHED] = !p->cached};
    return !excluded[row->rule];
}

/* Return the number of schedules until the outcome; 0 if it does not occur. */
static uint32_t find_outcome(const struct litmus_row *row) {
    running = row;
    for (uint32_t seed = 1; seed <= SCHEDULES; seed++) {
        struct sim_schedule schedule = sim_schedule_of(seed, 60, 6);
        sim_scheduler_begin(&schedule);
        if (!sim_world_run()) {
            printf("%s: seed %u: %s\n", row->program, seed, sim_failure());
            return UINT32_MAX;
        }
        if (((const struct litmus *)sim_world->state)->odd)
            return seed;
    }
    return 0;
}

static uint32_t check_rows(const struct litmus_row *rows, uint32_t count) {
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].atomics && sim_profile->cached)
            continue;
        bool expected = reachable(&rows[i], sim_profile);
        uint32_t found = find_outcome(&rows[i]);
        bool is_right = found != UINT32_MAX && expected == (found != 0);
        wrong += !is_right;
        printf("%s %-10s %2s  %-46s %-36s %s, %s %u\n", is_right ? "ok   " : "WRONG", sim_profile->name,
               rows[i].row, rows[i].program, rows[i].outcome, expected ? "reachable" : "forbidden",
               found ? "reached at schedule" : "not reached in", found ? found : SCHEDULES);
    }
    return wrong;
}

int main(void) {
    uint32_t wrong = 0;
    for (uint32_t p = 0; p < sim_profiles_count; p++) {
        sim_profile = &sim_profiles[p];
        if (!sim_world_open(&litmus_case)) {
            printf("set-up: %s\n", sim_failure());
            return 1;
        }
        wrong += check_rows(litmus_rows, litmus_rows_count);
        wrong += check_rows(own_rows, sizeof own_rows / sizeof own_rows[0]);
        sim_world_close();
    }
    printf("%u wrong\n", wrong);
    return wrong > 0;
}
