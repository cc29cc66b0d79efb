/* kv_window.c - the map: several operations of one thread are in flight together.
 * There are two stripes, so operations of a window also wait for each other's locks, and for those of other
 * nodes. The oracle is that of kv.c: operations in flight together are concurrent calls. */
#include "sim/cases/kv.h"

#define WINDOW 4u
#define POLLS 3u       /* an update has three steps: acquire the lock, read the slot, write */
#define POLLS_MAX 100u /* until the lock is acquired */

struct entry {
    struct remo_kv_op op;
    uint64_t key, value;
    uint32_t function, call;
    bool has_ended;
};

static enum remo_kv_kind kind_of(uint32_t function) {
    static const enum remo_kv_kind kinds[] = {
        [MAP_GET] = REMO_KV_GET,       [MAP_INSERT] = REMO_KV_INSERT, [MAP_UPDATE] = REMO_KV_UPDATE,
        [MAP_DELETE] = REMO_KV_DELETE, [MAP_PUT] = REMO_KV_PUT,       [MAP_ADD] = REMO_KV_FETCH_ADD};
    return kinds[function];
}

static void start(struct kv_state *s, uint32_t rank, struct entry *entry) {
    entry->op = (struct remo_kv_op){.kind = kind_of(entry->function),
                                    .key = &entry->key,
                                    .key_bytes = sizeof entry->key,
                                    .value = &entry->value,
                                    .value_bytes = sizeof entry->value,
                                    .delta = entry->value};
    entry->has_ended = false;
    entry->call = sim_kv_begin(s, rank, entry->function, entry->key, entry->value, 0);
    int rc = remo_kv_start(s->kvs[rank], &entry->op);
    sim_require(rc == 0 || sim_excused(rank, SIM_ANY, rc), "start: %d (%s)", rc, remo_last_error());
}

/* Record the ends of all operations that are complete. */
static void end_complete(struct kv_state *s, uint32_t rank, struct entry *entries) {
    for (uint32_t i = 0; i < WINDOW; i++) {
        struct entry *entry = &entries[i];
        if (entry->has_ended || entry->op.status == -EINPROGRESS)
            continue;
        entry->has_ended = true;
        (void)sim_kv_end(s, rank, entry->function, entry->key, entry->call, entry->op.status, &entry->value);
    }
}

static uint32_t stripe_of(const struct kv_state *s, uint32_t rank, uint64_t key) {
    return remo__kv_stripe_of(s->kvs[rank], remo__kv_hash(&key, sizeof key));
}

/* Return a key whose stripe is not that of key 1. */
static uint64_t other_key(const struct kv_state *s, uint32_t rank) {
    uint64_t key = 2;
    while (stripe_of(s, rank, key) == stripe_of(s, rank, 1))
        key++;
    return key;
}

/* Each node changes the same two keys, all in one window. Node 0 inserts both before, if it is first. */
static void window_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    uint64_t keys[] = {1, other_key(s, rank)};
    struct entry entries[WINDOW] = {
        {.function = MAP_PUT, .key = keys[0], .value = 100 * (rank + 1)},
        {.function = MAP_PUT, .key = keys[1], .value = 200 * (rank + 1)},
        {.function = MAP_ADD, .key = keys[0], .value = rank + 1},
        {.function = rank == 0 ? MAP_DELETE : MAP_ADD, .key = keys[1], .value = 1},
    };
    (void)thread;
    for (uint32_t i = 0; i < 2 && rank == 0; i++)
        (void)sim_kv_call(s, rank, MAP_INSERT, keys[i], 10 * (i + 1));
    for (uint32_t i = 0; i < WINDOW; i++)
        start(s, rank, &entries[i]);
    for (uint32_t i = 0; i < WINDOW; i++) {
        (void)remo_kv_wait(s->kvs[rank], &entries[i].op);
        end_complete(s, rank, entries);
    }
    for (uint32_t i = 0; i < 2; i++)
        (void)sim_kv_call(s, rank, MAP_GET, keys[i], 0);
}

/* Return a key whose hash has the same lowest bits as that of key 1. */
static uint64_t neighbour_of_1(void) {
    uint64_t key = 2, first = 1;
    while ((remo__kv_hash(&key, sizeof key) ^ remo__kv_hash(&first, sizeof first)) % REMO__KV_UPDATES != 0)
        key++;
    return key;
}

/* Start an update, wait for it, and read its key. */
static void update_and_get(struct kv_state *s, uint32_t rank, struct entry *entries, uint32_t number) {
    start(s, rank, &entries[number]);
    (void)remo_kv_wait(s->kvs[rank], &entries[number].op);
    end_complete(s, rank, entries);
    (void)sim_kv_call(s, rank, MAP_GET, entries[number].key, 0);
}

/* Each node updates the same key several times in one window, so the updates are merged. The thread reads the
 * key while the first update is in flight; the value of an update that starts later is newer. */
static void merged_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    uint64_t other = neighbour_of_1();
    struct entry entries[WINDOW] = {
        {.function = MAP_UPDATE, .key = 1, .value = 100 * (rank + 1)},
        {.function = MAP_UPDATE, .key = other, .value = 200 * (rank + 1)},
        {.function = MAP_UPDATE, .key = 1, .value = 300 * (rank + 1)},
        {.function = MAP_UPDATE, .key = 1, .value = 400 * (rank + 1)},
    };
    (void)thread;
    for (uint32_t i = 0; i < WINDOW; i++)
        entries[i].has_ended = true; /* not started */
    if (rank == 0) {
        (void)sim_kv_call(s, rank, MAP_INSERT, 1, 10);
        (void)sim_kv_call(s, rank, MAP_INSERT, other, 20);
    }
    start(s, rank, &entries[0]);
    for (uint32_t i = 0; i < POLLS && entries[0].op.status == -EINPROGRESS; i++) {
        (void)remo_kv_poll(s->kvs[rank]);
        (void)sim_kv_call(s, rank, MAP_GET, 1, 0);
    }
    start(s, rank, &entries[1]);
    for (uint32_t i = 2; i < WINDOW; i++)
        update_and_get(s, rank, entries, i);
    for (uint32_t i = 0; i < WINDOW; i++)
        (void)remo_kv_wait(s->kvs[rank], &entries[i].op);
    end_complete(s, rank, entries);
    (void)sim_kv_call(s, rank, MAP_GET, other, 0);
}

static bool has_tried(void *ctx) {
    const struct kv_state *s = ctx;
    return s->has_tried || sim_out(1);
}

static uint64_t atomics_of(struct remo_kv *kv) {
    struct remo_stats stats;
    remo_channel_stats(remo_kv_channel(kv), &stats);
    return stats.atomics;
}

/* Node 1 updates an absent key. While it releases the lock, node 0 inserts the key. Then node 1 updates the
 * key again, in the same window. */
static void merged_late_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    uint64_t key = 1;
    (void)thread;
    while (remo_lock_home(s->kvs[rank]->locks, stripe_of(s, rank, key)) != 0)
        key++;
    if (rank == 0) {
        sim_until(has_tried, s, "wait for the first update");
        (void)sim_kv_call(s, rank, MAP_INSERT, key, 10);
        s->there = true;
        return;
    }
    struct entry entries[WINDOW] = {{.function = MAP_UPDATE, .key = key, .value = 20},
                                    {.function = MAP_UPDATE, .key = key, .value = 30}};
    for (uint32_t i = 0; i < WINDOW; i++)
        entries[i].has_ended = true; /* not started */
    start(s, rank, &entries[0]);
    uint64_t before = atomics_of(s->kvs[rank]);
    for (uint32_t i = 0; i < POLLS_MAX && atomics_of(s->kvs[rank]) < before + 2; i++) {
        (void)remo_kv_poll(s->kvs[rank]);
        remo__sim_turn("poll");
    }
    if (atomics_of(s->kvs[rank]) < before + 2) /* it may hold the lock, for which node 0 waits */
        (void)remo_kv_wait(s->kvs[rank], &entries[0].op);
    s->has_tried = true;
    /* Not until the insert has ended: its wait for the lock may need a poll. */
    for (uint32_t i = 0; i < POLLS_MAX && !s->there; i++)
        remo__sim_turn("wait for the insert");
    update_and_get(s, rank, entries, 1);
    (void)remo_kv_wait(s->kvs[rank], &entries[0].op);
    end_complete(s, rank, entries);
}

static void open_words(void *state, struct remo_node *node, uint32_t rank) {
    sim_kv_open(state, node, rank, 8, 1);
}

const struct sim_case sim_case_kv_window = {.object = "kv",
                                            .name = "window",
                                            .about = "changes of two keys, in flight together on each node",
                                            .nodes = 2,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct kv_state),
                                            .open = open_words,
                                            .close = sim_kv_close,
                                            .body = window_body,
                                            .after = sim_kv_after,
                                            .oracle = &oracle_map};

const struct sim_case sim_case_kv_merged = {.object = "kv",
                                            .name = "merged",
                                            .about = "updates of one key, in flight together on each node",
                                            .nodes = 2,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct kv_state),
                                            .open = open_words,
                                            .close = sim_kv_close,
                                            .body = merged_body,
                                            .after = sim_kv_after,
                                            .oracle = &oracle_map};

const struct sim_case sim_case_kv_merged_late = {.object = "kv",
                                                 .name = "merged_late",
                                                 .about = "an update after one that does not find its key",
                                                 .nodes = 2,
                                                 .threads = 1,
                                                 .state_bytes = sizeof(struct kv_state),
                                                 .open = open_words,
                                                 .close = sim_kv_close,
                                                 .body = merged_late_body,
                                                 .after = sim_kv_after,
                                                 .oracle = &oracle_map};
