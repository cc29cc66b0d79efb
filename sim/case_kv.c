/* case_kv.c - the map: each key is a register that may be there or not. */
#include <errno.h>
#include <remo/kv.h>
#include <string.h>

#include "sim/case.h"
#include "sim/oracle.h"

#define FOREVER     REMO_FOREVER
#define VALUE_WORDS 9u       /* more than a line */

struct kv_state {
    struct remo_kv *kvs[SIM_NODES_MAX];
};

static void open_kv(void *state, struct remo_node *node, uint32_t rank) {
    struct kv_state *s = state;
    struct remo_kv_options options = {.capacity = 8, .key_bytes_max = 8, .value_bytes_max = VALUE_WORDS * 8, .stripes = 2};
    sim_opened(remo_kv_open(remo_node_root(node), "map", &options, &s->kvs[rank]), "open");
    sim_opened(remo_channel_wait(remo_kv_channel(s->kvs[rank]), FOREVER), "wait");
}

static bool is_answer(uint32_t function, int rc) {
    return rc == 0 || (function == MAP_INSERT ? rc == -EEXIST : rc == -ENOENT);
}

static void call_kv(struct remo_kv *kv, uint32_t function, uint64_t key, uint64_t number) {
    uint64_t value[VALUE_WORDS] = {0};
    size_t bytes = 0;
    for (uint32_t i = 0; i < VALUE_WORDS; i++)
        value[i] = number;
    uint32_t call = sim_begin(function, key, number, 0);
    int rc = function == MAP_GET    ? remo_kv_get(kv, &key, sizeof key, value, sizeof value, &bytes)
           : function == MAP_INSERT ? remo_kv_insert(kv, &key, sizeof key, value, sizeof value)
           : function == MAP_UPDATE ? remo_kv_update(kv, &key, sizeof key, value, sizeof value)
                                    : remo_kv_delete(kv, &key, sizeof key);
    if (function == MAP_GET && rc == 0)
        for (uint32_t i = 1; i < VALUE_WORDS; i++)
            sim_require(value[i] == value[0] && bytes == sizeof value, "get returns a torn value");
    if (is_answer(function, rc)) {
        sim_end(call, rc, value[0]);
        return;
    }
    bool dead = sim_world->crashed[0] || sim_world->crashed[1] || sim_world->crashed[2];
    sim_require(dead && rc == -EHOSTDOWN, "function %u of the map: %d (%s)", function, rc, remo_last_error());
    if (function == MAP_GET)
        sim_forget(call);
}

/* Two nodes change one key, the third reads it. */
static void updates_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_kv *kv = ((struct kv_state *)state)->kvs[rank];
    (void)thread;
    if (rank == 0)
        call_kv(kv, MAP_INSERT, 1, 10);
    for (uint32_t i = 0; i < 2; i++)
        call_kv(kv, rank == 2 ? MAP_GET : MAP_UPDATE, 1, 100 * rank + i + 1);
    call_kv(kv, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_updates = {
    .object = "kv", .name = "updates", .about = "an insert, updates of two nodes, and gets of one key", .nodes = 3, .threads = 1,
    .state_bytes = sizeof(struct kv_state), .open = open_kv, .body = updates_body, .oracle = &oracle_map,
    .may_crash = true, .crash_first = 1};

/* Inserts and deletes of one key by two nodes, and gets between. */
static void lives_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_kv *kv = ((struct kv_state *)state)->kvs[rank];
    (void)thread;
    call_kv(kv, MAP_INSERT, 1, 10 * rank + 1);
    call_kv(kv, MAP_GET, 1, 0);
    call_kv(kv, MAP_DELETE, 1, 0);
    call_kv(kv, MAP_GET, 1, 0);
    call_kv(kv, MAP_INSERT, 1, 10 * rank + 2);
}

const struct sim_case sim_case_kv_lives = {
    .object = "kv", .name = "lives", .about = "two nodes insert, delete and get one key", .nodes = 2, .threads = 1,
    .state_bytes = sizeof(struct kv_state), .open = open_kv, .body = lives_body, .oracle = &oracle_map};

static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    struct remo_kv *kv = ((struct kv_state *)state)->kvs[rank];
    uint64_t key = thread + 1;
    call_kv(kv, MAP_INSERT, key, 10 * rank + 1);
    call_kv(kv, MAP_UPDATE, key, 10 * rank + 2);
    call_kv(kv, MAP_GET, 3 - key, 0);
    if (rank == 0)
        call_kv(kv, MAP_DELETE, key, 0);
}

const struct sim_case sim_case_kv_threads = {
    .object = "kv", .name = "threads", .about = "two threads of each node on two keys", .nodes = 2, .threads = 2,
    .state_bytes = sizeof(struct kv_state), .open = open_kv, .body = threads_body, .oracle = &oracle_map};
