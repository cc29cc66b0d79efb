/* kv_cursor.c - a walk over the map while other nodes change it.
 * Each key that stays is met once, and each returned pair was in the map: it is judged as a get of
 * its key. */
#include <errno.h>
#include <remo/kv.h>

#include "sim/case.h"
#include "sim/oracle.h"

#define VALUE_WORDS 9u /* more than a cache line */
#define FILLER 5u      /* stays at node 1, and is updated */
#define FIRST 3u       /* is deleted */
#define SECOND 4u      /* takes the slot of FIRST, and stays */
#define KEYS 6u
#define RETRIES 100u /* until node 1 has received the delete */

struct cursor_state {
    struct remo_kv *kvs[SIM_NODES_MAX];
    bool inserted, deleted, ready; /* private memory: one node signals the next */
};

/* Two slots at each node. */
static void open_cursor(void *state, struct remo_node *node, uint32_t rank) {
    struct cursor_state *s = state;
    struct remo_kv_options options = {
        .capacity = 3, .key_bytes_max = 8, .value_bytes_max = VALUE_WORDS * 8, .stripes = 2};
    sim_opened(remo_kv_open(remo_node_root(node), "map", &options, &s->kvs[rank]), "open");
    sim_opened(remo_channel_wait(remo_kv_channel(s->kvs[rank]), REMO_FOREVER), "wait");
}

static void close_cursor(void *state, uint32_t rank) {
    remo_kv_close(((struct cursor_state *)state)->kvs[rank]);
}

static bool excused(uint32_t rank, int rc) {
    return sim_out(rank) || sim_excused(rank, SIM_ANY, rc);
}

static int change(struct cursor_state *s, uint32_t rank, uint32_t function, uint64_t key, uint64_t number) {
    uint64_t value[VALUE_WORDS];
    for (uint32_t i = 0; i < VALUE_WORDS; i++)
        value[i] = number;
    uint32_t call = sim_begin(function, key, number, 0);
    int rc = function == MAP_DELETE ? remo_kv_delete(s->kvs[rank], &key, sizeof key)
                                    : remo_kv_put(s->kvs[rank], &key, sizeof key, value, sizeof value);
    if (!sim_out(rank) && (rc == 0 || (rc == -ENOENT && function == MAP_DELETE)))
        sim_end(call, rc, number);
    else if (rc == -ENOSPC)
        sim_forget(call);
    else
        sim_require(excused(rank, rc), "function %u of the map: %d (%s)", function, rc, remo_last_error());
    return rc;
}

/* ---- the walk ---- */

/* Make one step of the walk; returns false at its end. */
static bool step(struct cursor_state *s, uint32_t rank, struct remo_kv_cursor *cursor, uint32_t *met) {
    uint64_t key = 0, value[VALUE_WORDS];
    size_t key_bytes, value_bytes;
    uint32_t call = sim_begin(MAP_GET, 0, 0, 0);
    int rc =
        remo_kv_next(s->kvs[rank], cursor, &key, sizeof key, &key_bytes, value, sizeof value, &value_bytes);
    sim_forget(call);
    if (rc != 0) {
        sim_require(rc == -ENOENT || excused(rank, rc), "next: %d (%s)", rc, remo_last_error());
        return rc == -EHOSTDOWN || rc == -ENOTCONN;
    }
    sim_require(key_bytes == 8 && key < KEYS && value_bytes == sizeof value, "next returns a broken key");
    for (uint32_t i = 1; i < VALUE_WORDS; i++)
        sim_require(value[i] == value[0], "next returns a torn value");
    met[key]++;
    if (sim_out(rank))
        return true;
    sim_history.calls[call].key = key;
    sim_end(call, 0, value[0]);
    return true;
}

static void walk(struct cursor_state *s, uint32_t rank) {
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    uint32_t met[KEYS] = {0};
    while (step(s, rank, &cursor, met))
        continue;
    for (uint32_t key = FIRST; key < KEYS; key++)
        sim_require(met[key] <= 1, "key %u is met %u times", key, met[key]);
    if (!sim_any_out() && !sim_any_hurt())
        sim_require(met[FIRST] == 0 && met[SECOND] == 1 && met[FILLER] == 1, "a key that stays is not met");
}

/* ---- the nodes ---- */

static bool is_inserted(void *ctx) {
    return ((const struct cursor_state *)ctx)->inserted || sim_out(1);
}

static bool is_deleted(void *ctx) {
    return ((const struct cursor_state *)ctx)->deleted || sim_out(0);
}

static bool is_ready(void *ctx) {
    return ((const struct cursor_state *)ctx)->ready || sim_out(1);
}

static void insert_body(struct cursor_state *s) {
    (void)change(s, 1, MAP_PUT, FILLER, 1);
    (void)change(s, 1, MAP_PUT, FIRST, 2);
    s->inserted = true;
    sim_until(is_deleted, s, "wait for the delete");
    int rc = change(s, 1, MAP_PUT, SECOND, 3);
    for (uint32_t i = 0; i < RETRIES && rc == -ENOSPC && !sim_any_out(); i++) {
        sim_point("wait for the slot");
        rc = change(s, 1, MAP_PUT, SECOND, 3);
    }
    sim_require(rc != -ENOSPC || sim_any_out() || sim_any_hurt(), "the slot was not given back");
    s->ready = true;
}

static void cursor_body(void *state, uint32_t rank, uint32_t thread) {
    struct cursor_state *s = state;
    (void)thread;
    if (rank == 1) {
        insert_body(s);
        return;
    }
    if (rank == 0) {
        sim_until(is_inserted, s, "wait for the keys");
        (void)change(s, 0, MAP_DELETE, FIRST, 0);
        s->deleted = true;
    }
    sim_until(is_ready, s, "wait for the second key");
    if (rank == 2)
        walk(s, rank);
    else
        for (uint64_t number = 10; number < 12; number++)
            (void)change(s, rank, MAP_PUT, FILLER, number);
}

static void cursor_after(void *state, uint32_t rank) {
    walk(state, rank);
}

const struct sim_case sim_case_kv_cursor = {.object = "kv",
                                            .name = "cursor",
                                            .about = "a walk over keys that others update, delete and insert",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct cursor_state),
                                            .open = open_cursor,
                                            .close = close_cursor,
                                            .body = cursor_body,
                                            .after = cursor_after,
                                            .oracle = &oracle_map};
