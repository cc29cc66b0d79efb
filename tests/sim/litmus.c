/* litmus.c - the simulated networks do what the memory model says: each row of its table of transitions as a small program, with an outcome
 * that must be reachable under some profiles and must never be seen under the others.
 */
#include <remo/ack.h>
#include <remo/region.h>
#include <stdio.h>
#include <string.h>

#include "node/access.h"
#include "sim/case.h"
#include "sim/net.h"
#include "sim/scheduler.h"

#define SCHEDULES 20000u
#define LOOKS     12u
#define X 0u
#define Y 64u      /* another line */

struct state {
    struct remo_region *regions[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    bool flag;             /* in private memory: one actor tells another */
    uint64_t seen[4];
    int odd;               /* the outcome in question */
};

static void open_region(void *state, struct remo_node *node, uint32_t rank) {
    struct state *s = state;
    s->nodes[rank] = node;
    sim_opened(remo_region_open(remo_node_root(node), "region", 512, NULL, &s->regions[rank]), "open");
    sim_opened(remo_channel_wait(remo_region_channel(s->regions[rank]), REMO_FOREVER), "wait");
}

static void put(struct state *s, uint32_t from, uint64_t at, uint64_t value, struct remo_ack *ack) {
    sim_require(remo_region_write(s->regions[from], 1, at, &value, 8, 0, ack) == 0, "put");
}

static void get(struct state *s, uint64_t at, uint64_t *value, struct remo_ack *ack) {
    sim_require(remo_region_read(s->regions[0], 1, at, value, 8, ack) == 0, "get");
}

static void add(struct state *s, uint32_t from, uint64_t at, uint64_t *old, struct remo_ack *ack) {
    sim_require(remo_region_fetch_add(s->regions[from], 1, at, 1, old, ack) == 0, "add");
}

static void finish(struct remo_ack *ack) {
    sim_require(remo_ack_wait(ack, REMO_FOREVER) == 0, "ack");
}

static uint64_t cpu_load(struct state *s, uint64_t at) {
    return remo__load((char *)remo_region_local(s->regions[1]) + at);
}

static void cpu_store(struct state *s, uint64_t at, uint64_t value) {
    remo__store((char *)remo_region_local(s->regions[1]) + at, value);
}

/* Node 1's CPU: who sees `second` before `first`? */
static void watch(struct state *s, uint64_t first, uint64_t second) {
    for (uint32_t look = 0; look < LOOKS; look++)
        if (cpu_load(s, second) != 0) {
            s->odd = cpu_load(s, first) == 0;
            return;
        }
}

static bool is_flag(void *ctx) {
    return ((struct state *)ctx)->flag;
}

/* ---- the rows ---- */

static void row1(struct state *s, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 1)
        watch(s, X, Y);
    if (rank == 0) {
        put(s, 0, X, 1, NULL);
        put(s, 0, Y, 1, NULL);
    }
}

static void row2(struct state *s, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0) {
        put(s, 0, X, 1, NULL);
        get(s, X, &s->seen[0], NULL);
        s->odd = s->seen[0] == 0;
    }
}

static void row3(struct state *s, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 1)
        watch(s, X, Y);
    if (rank == 0) {
        put(s, 0, X, 1, NULL);
        add(s, 0, Y, NULL, NULL);
    }
}

static void row4(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (rank == 0) {
        get(s, X, &s->seen[0], &ack);
        put(s, 0, X, 1, NULL);
        finish(&ack);
        s->odd = s->seen[0] == 1;
    }
}

static void row5(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (rank == 1) {
        cpu_store(s, Y, 1);
        remo__mapped_fence();
        cpu_store(s, X, 1);
    }
    if (rank == 0) {
        get(s, X, &s->seen[0], &ack);
        get(s, Y, &s->seen[1], &ack);
        finish(&ack);
        s->odd = s->seen[0] == 1 && s->seen[1] == 0;
    }
}

static void row6(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (rank == 1)
        watch(s, X, Y);
    if (rank == 0) {
        add(s, 0, X, &s->seen[0], &ack);
        put(s, 0, Y, 1, NULL);
        finish(&ack);
    }
}

static void row7(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (rank == 0) {
        add(s, 0, X, &s->seen[0], &ack);
        get(s, X, &s->seen[1], &ack);
        finish(&ack);
        s->odd = s->seen[1] == 0;
    }
}

/* Two connections: the completion of the first put was waited for. */
static void row8(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    if (rank == 1 && thread == 0)
        watch(s, X, Y);
    if (rank == 0 && thread == 0) {
        put(s, 0, X, 1, &ack);
        finish(&ack);
        s->flag = true;
    }
    if (rank == 0 && thread == 1) {
        sim_until(is_flag, s, "hear of the completion");
        put(s, 0, Y, 1, NULL);
    }
}

static void row10(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (rank == 0) {
        put(s, 0, X, 1, &ack);
        finish(&ack);
        s->flag = true;
    }
    if (rank == 1) {
        sim_until(is_flag, s, "hear of the completion");
        s->odd = cpu_load(s, X) == 0;
    }
}

static void row11(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (rank == 0) {
        s->seen[0] = 99;
        add(s, 0, X, &s->seen[0], &ack);
        finish(&ack);
        s->odd = s->seen[0] != 0;
    }
}

static void row12(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack first = REMO_ACK_INIT, second = REMO_ACK_INIT;
    (void)thread;
    if (rank == 0) {
        put(s, 0, X, 1, &first);
        put(s, 0, Y, 1, &second);
        while (second.pending > 0)
            (void)remo_ack_wait(&second, 100);
        s->odd = first.pending > 0;
        finish(&first);
    }
}

/* The source is a block of network memory, and in the network's hands until the ack is done. */
static void row14(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    void *buffer;
    (void)thread;
    if (rank == 0) {
        sim_require(remo_buffer_get(s->nodes[0], &buffer) == 0, "buffer");
        memset(buffer, 1, 128);
        sim_require(remo_region_write(s->regions[0], 1, 0, buffer, 128, 0, &ack) == 0, "put");
        sim_point("change the source");
        memset(buffer, 2, 128);
        finish(&ack);
        s->flag = true;
    }
    if (rank == 1)
        for (uint32_t look = 0; look < LOOKS; look++)
            s->odd |= (cpu_load(s, X) & 0xff) == 2;
}

static void row15(struct state *s, uint32_t rank, uint32_t thread) {
    char bytes[128];
    (void)thread;
    memset(bytes, 1, sizeof bytes);
    if (rank == 0)
        sim_require(remo_region_write(s->regions[0], 1, 0, bytes, sizeof bytes, 0, NULL) == 0, "put");
    if (rank == 1)
        watch(s, X, Y);
}

static void row16(struct state *s, uint32_t rank, uint32_t thread) {
    uint64_t words[16] = {0};
    (void)thread;
    if (rank == 1) {
        cpu_store(s, X, 1);
        remo__mapped_fence();
        cpu_store(s, Y, 1);
    }
    if (rank == 0) {
        sim_require(remo_region_read(s->regions[0], 1, 0, words, sizeof words, NULL) == 0, "get");
        s->odd = words[8] == 1 && words[0] == 0;
    }
}

static void row17(struct state *s, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 1)
        return;
    add(s, rank, X, &s->seen[rank], NULL);
    s->odd = s->seen[0] == s->seen[2] && ++s->seen[3] == 2;
    s->seen[3] = 1;
}

/* The put, or the store, is lost: the atomic had read before it and wrote after it. */
static void row18(struct state *s, uint32_t rank, uint32_t thread) {
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (rank == 0)
        add(s, 0, X, NULL, NULL);
    if (rank == 2) {
        put(s, 2, X, 10, &ack);
        finish(&ack);
        sim_require(remo_fence(s->nodes[2], REMO_FENCE_THREAD, 0) == 0, "fence");
    }
    s->seen[3]++;
    if (rank == 1)
        for (uint32_t look = 0; look < LOOKS && s->seen[3] < 3; look++)
            sim_point("wait for both");
    if (rank == 1 && s->seen[3] == 3)
        s->odd = cpu_load(s, X) == 1;
}

static void row19(struct state *s, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0) {
        add(s, 0, X, NULL, NULL);
        s->flag = true;
    }
    if (rank == 1) {
        cpu_store(s, X, 10);
        remo__mapped_fence();
        sim_until(is_flag, s, "the atomic");
        s->odd = cpu_load(s, X) == 1;
    }
}

static void row21(struct state *s, uint32_t rank, uint32_t thread) {
    char bytes[128];
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    memset(bytes, 1 + (int)rank, sizeof bytes);
    if (rank != 1) {
        sim_require(remo_region_write(s->regions[rank], 1, 0, bytes, sizeof bytes, 0, &ack) == 0, "put");
        finish(&ack);
        sim_require(remo_fence(s->nodes[rank], REMO_FENCE_THREAD, 0) == 0, "fence");
        if (++s->seen[3] == 2)
            s->flag = true;
    } else {
        sim_until(is_flag, s, "both puts");
        s->odd = (cpu_load(s, X) & 0xff) != (cpu_load(s, Y) & 0xff);
    }
}

/* A put that was sent lands after its node died. */
static void row22(struct state *s, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0) {
        put(s, 0, X, 1, NULL);
        s->flag = true;
        sim_point("die");
    } else if (rank == 1) {
        sim_until(is_flag, s, "the post");
        bool before = cpu_load(s, X) == 0;
        sim_crash(0);
        for (uint32_t look = 0; look < LOOKS; look++)
            s->odd |= before && cpu_load(s, X) == 1;
    }
}

/* But not after it was cut off. */
static bool is_cut_off(void *ctx) {
    const struct state *s = ctx;
    return atomic_load(&s->nodes[1]->fabric->peers[0].connected) == 0;
}

static void row22_cut(struct state *s, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0) {
        put(s, 0, X, 1, NULL);
        s->flag = true;
        sim_point("die");
    } else if (rank == 1) {
        sim_until(is_flag, s, "the post");
        sim_crash(0);
        sim_until(is_cut_off, s, "the cut");
        bool before = cpu_load(s, X) == 0;
        for (uint32_t look = 0; look < LOOKS; look++)
            s->odd |= before && cpu_load(s, X) == 1;
    }
}

/* ---- the table ---- */

struct litmus {
    const char *name;
    void (*body)(struct state *s, uint32_t rank, uint32_t thread);
    size_t forbids;       /* offset of the field of the profile that forbids it; ALWAYS, NEVER */
};

#define ALWAYS SIZE_MAX
#define NEVER  (SIZE_MAX - 1)
#define FIELD(name) offsetof(struct sim_profile, name)

static const struct litmus tests[] = {
    {"1 put; put", row1, FIELD(put_put)}, {"2 put; get", row2, FIELD(put_get)}, {"3 put; rmw", row3, FIELD(put_rmw)},
    {"4 get; put", row4, FIELD(get_put)}, {"5 get; get", row5, FIELD(get_get)}, {"6 rmw; put", row6, FIELD(get_rmw)},
    {"7 rmw; get", row7, FIELD(rmw_get)}, {"8 two connections", row8, FIELD(placed)},
    {"10 completion before placement", row10, FIELD(placed)}, {"11 result after completion", row11, NEVER},
    {"12 completions reversed", row12, FIELD(completion_order)}, {"14 source read late", row14, ALWAYS},
    {"15 put seen line by line", row15, ALWAYS}, {"16 get line by line", row16, ALWAYS}, {"17 rmw and rmw", row17, NEVER},
    {"18 rmw and put", row18, FIELD(rmw_one_step)}, {"19 rmw and CPU store", row19, FIELD(rmw_one_step)},
    {"21 puts that overlap", row21, ALWAYS}, {"22 zombie", row22, ALWAYS}, {"22 zombie after the cut", row22_cut, NEVER},
};

static const struct litmus *running;

static void body(void *state, uint32_t rank, uint32_t thread) {
    if (thread == 0 || running->body == row8)
        running->body(state, rank, thread);
}

const struct sim_case *const litmus_case = &(const struct sim_case){
    .object = "litmus", .name = "litmus", .nodes = 3, .threads = 2, .state_bytes = sizeof(struct state), .open = open_region, .body = body};

static bool reachable(const struct litmus *test, const struct sim_profile *profile) {
    if (test->forbids == ALWAYS || test->forbids == NEVER)
        return test->forbids == ALWAYS;
    return !*(const bool *)((const char *)profile + test->forbids);
}

/* How many schedules until the outcome; 0: not once. */
static uint32_t seek(const struct litmus *test) {
    running = test;
    for (uint32_t seed = 1; seed <= SCHEDULES; seed++) {
        struct sim_schedule schedule = sim_schedule_of(seed, 60, 6);
        sim_scheduler_begin(&schedule);
        if (!sim_world_run()) {
            printf("%s: seed %u: %s\n", test->name, seed, sim_failure());
            return UINT32_MAX;
        }
        if (((const struct state *)sim_world->state)->odd)
            return seed;
    }
    return 0;
}

int main(void) {
    uint32_t wrong = 0;
    for (uint32_t p = 0; p < sim_profiles_count; p++) {
        sim_profile = &sim_profiles[p];
        if (!sim_world_open(litmus_case)) {
            printf("set-up: %s\n", sim_failure());
            return 1;
        }
        for (uint32_t t = 0; t < REMO__ARRAY_COUNT(tests); t++) {
            bool expected = reachable(&tests[t], sim_profile);
            uint32_t found = seek(&tests[t]);
            bool good = found != UINT32_MAX && expected == (found != 0);
            wrong += !good;
            printf("%s %-12s %-32s %s, %s %u\n", good ? "ok   " : "WRONG", sim_profile->name, tests[t].name,
                   expected ? "reachable" : "forbidden", found ? "seen at schedule" : "not seen in", found ? found : SCHEDULES);
        }
        sim_world_close();
    }
    printf("%u wrong\n", wrong);
    return wrong > 0;
}
