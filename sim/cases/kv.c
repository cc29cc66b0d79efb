/* kv.c - the map: each key is a register that may be absent.
 * After a fault, acknowledged changes on surviving nodes persist; unacknowledged ones happened once
 * or not at all, as the history decides. Calls fail only for keys of failed nodes, or changes whose
 * lock was there. */
#include "sim/cases/kv.h"

#include <string.h>

static uint32_t key_bytes(const struct kv_state *s) {
    return 8 * remo__max(s->key_words, 1);
}

/* Return the key with this number: zeros, and the number last. */
static const void *key_of(const struct kv_state *s, uint64_t number, uint64_t *words) {
    memset(words, 0, LONG_KEY_WORDS * sizeof *words);
    words[key_bytes(s) / 8 - 1] = number;
    return words;
}

void sim_kv_open(void *state, struct remo_node *node, uint32_t rank, uint32_t capacity, uint32_t words) {
    struct kv_state *s = state;
    s->words = words;
    struct remo_kv_options options = {
        .capacity = capacity, .key_bytes_max = key_bytes(s), .value_bytes_max = words * 8, .stripes = 2};
    sim_opened(remo_kv_open(remo_node_root(node), "map", &options, &s->kvs[rank]), "open");
    sim_opened(remo_channel_wait(remo_kv_channel(s->kvs[rank]), FOREVER), "wait");
}

static void open_kv(void *state, struct remo_node *node, uint32_t rank) {
    sim_kv_open(state, node, rank, 8, VALUE_WORDS);
}

void sim_kv_close(void *state, uint32_t rank) {
    remo_kv_close(((struct kv_state *)state)->kvs[rank]);
}

/* ---- calls ---- */

static bool is_answer(uint32_t function, int rc) {
    if (rc == 0 || function == MAP_PUT)
        return rc == 0;
    return function == MAP_INSERT ? rc == -EEXIST
                                  : rc == -ENOENT || (function == MAP_COMPARE && rc == -ESTALE);
}

static bool inserts(uint32_t function) {
    return function == MAP_INSERT || function == MAP_PUT;
}

/* Return the node that has the lock of a key. */
static uint32_t lock_home_of(const struct kv_state *s, uint32_t rank, uint64_t key) {
    const struct remo_kv *kv = s->kvs[rank];
    uint64_t words[LONG_KEY_WORDS], hash = remo__kv_hash(key_of(s, key, words), key_bytes(s));
    return remo_lock_home(kv->locks, remo__kv_stripe_of(kv, hash));
}

/* Return whether a failure explains the error: the failed node was home of the key's lock, or may
 * hold the key. */
static bool is_lost(const struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key, int rc) {
    bool lost = function != MAP_GET && sim_excused(rank, lock_home_of(s, rank, key), rc);
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++)
        for (uint32_t i = 0; i < KEYS_MAX; i++)
            lost =
                lost
                || (s->inserted[node][i] && (s->alike || i == key % KEYS_MAX) && sim_excused(rank, node, rc));
    lost = lost || (inserts(function) && rc == -ENOSPC); /* the case checks the consequences */
    return lost || ((sim_out(rank) || sim_hurt(rank)) && sim_excused(rank, SIM_ANY, rc));
}

/* Make the call. `value` is the value to put, and the result. */
static int do_call(struct kv_state *s, struct remo_kv *kv, uint32_t function, uint64_t key, uint64_t expected,
                   uint64_t *value) {
    uint64_t key_words[LONG_KEY_WORDS], compared[VALUE_WORDS];
    size_t bytes = s->words * 8, size = s->words * 8, key_size = key_bytes(s);
    const void *at = key_of(s, key, key_words);
    int rc;
    for (uint32_t i = 0; i < s->words; i++)
        compared[i] = expected;
    switch (function) {
    case MAP_GET: rc = remo_kv_get(kv, at, key_size, value, size, &bytes); break;
    case MAP_INSERT: return remo_kv_insert(kv, at, key_size, value, size);
    case MAP_UPDATE: return remo_kv_update(kv, at, key_size, value, size);
    case MAP_DELETE: return remo_kv_delete(kv, at, key_size);
    case MAP_PUT: return remo_kv_put(kv, at, key_size, value, size);
    case MAP_ADD: return remo_kv_fetch_add(kv, at, key_size, value[0], value);
    default: return remo_kv_compare_put(kv, at, key_size, compared, size, value, size);
    }
    sim_require(rc != 0 || bytes == size, "get returns a value of %zu bytes", bytes);
    return rc;
}

static void require_whole(const struct kv_state *s, const uint64_t *value) {
    for (uint32_t i = 1; i < s->words; i++)
        sim_require(value[i] == value[0], "a torn value was returned");
}

int sim_kv_end(struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key, uint32_t call, int rc,
               const uint64_t *value) {
    if (function == MAP_GET && rc == 0)
        require_whole(s, value);
    /* Reads of a node that was declared failed do not count; its changes may count. */
    if (is_answer(function, rc) && !sim_out(rank)) {
        sim_end(call, rc, value[0]);
        return rc;
    }
    sim_require(sim_out(rank) || is_lost(s, rank, function, key, rc), "function %u of the map: %d (%s)",
                function, rc, remo_last_error());
    if (function == MAP_GET)
        sim_forget(call);
    return rc;
}

uint32_t sim_kv_begin(struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key, uint64_t number,
                      uint64_t expected) {
    s->inserted[rank][key % KEYS_MAX] |= inserts(function);
    return sim_begin(function, key, number, expected);
}

static int call_kv_expecting(struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key,
                             uint64_t number, uint64_t expected) {
    uint64_t value[VALUE_WORDS] = {0};
    for (uint32_t i = 0; i < s->words; i++)
        value[i] = number;
    uint32_t call = sim_kv_begin(s, rank, function, key, number, expected);
    int rc = do_call(s, s->kvs[rank], function, key, expected, value);
    return sim_kv_end(s, rank, function, key, call, rc, value);
}

int sim_kv_call(struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key, uint64_t number) {
    return call_kv_expecting(s, rank, function, key, number, 0);
}

/* The surviving nodes can make all calls that do not depend on failed nodes. */
void sim_kv_after(void *state, uint32_t rank) {
    for (uint64_t key = 1; key <= 2; key++) {
        (void)sim_kv_call(state, rank, MAP_GET, key, 0);
        (void)sim_kv_call(state, rank, MAP_UPDATE, key, 1000 + rank);
        (void)sim_kv_call(state, rank, MAP_DELETE, key, 0);
        (void)sim_kv_call(state, rank, MAP_INSERT, key, 2000 + rank);
        (void)sim_kv_call(state, rank, MAP_GET, key, 0);
    }
}

/* ---- conditions for sim_until ---- */

bool sim_kv_is_there(void *ctx) {
    return ((const struct kv_state *)ctx)->there || sim_out(0);
}

bool sim_kv_is_deleted(void *ctx) {
    return ((const struct kv_state *)ctx)->deleted || sim_out(1);
}

/* ---- cases ---- */

/* Two nodes change one key, the third reads it. */
static void updates_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0)
        (void)sim_kv_call(state, rank, MAP_INSERT, 1, 10);
    for (uint32_t i = 0; i < 2; i++)
        (void)sim_kv_call(state, rank, rank == 2 ? MAP_GET : MAP_UPDATE, 1, 100 * rank + i + 1);
    (void)sim_kv_call(state, rank, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_updates = {.object = "kv",
                                             .name = "updates",
                                             .about = "an insert, updates of two nodes, and gets of one key",
                                             .nodes = 3,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct kv_state),
                                             .open = open_kv,
                                             .close = sim_kv_close,
                                             .body = updates_body,
                                             .after = sim_kv_after,
                                             .oracle = &oracle_map};

/* Two nodes insert, delete and get one key. */
static void deletes_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    (void)sim_kv_call(state, rank, MAP_INSERT, 1, 10 * rank + 1);
    (void)sim_kv_call(state, rank, MAP_GET, 1, 0);
    (void)sim_kv_call(state, rank, MAP_DELETE, 1, 0);
    (void)sim_kv_call(state, rank, MAP_GET, 1, 0);
    (void)sim_kv_call(state, rank, MAP_INSERT, 1, 10 * rank + 2);
}

const struct sim_case sim_case_kv_deletes = {.object = "kv",
                                             .name = "deletes",
                                             .about = "two nodes insert, delete and get one key",
                                             .nodes = 2,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct kv_state),
                                             .open = open_kv,
                                             .close = sim_kv_close,
                                             .body = deletes_body,
                                             .after = sim_kv_after,
                                             .oracle = &oracle_map};

/* Node 0 deletes more keys in succession than it has messages. Node 1 sends records meanwhile. */
static void messages_body(void *state, uint32_t rank, uint32_t thread) {
    const uint64_t keys = REMO__KV_MESSAGES_MAX + 2;
    (void)thread;
    for (uint64_t key = 1; rank == 0 && key <= keys; key++)
        (void)sim_kv_call(state, rank, MAP_INSERT, key, key);
    for (uint64_t key = 1; rank == 0 && key <= keys; key++)
        (void)sim_kv_call(state, rank, MAP_DELETE, key, 0);
    (void)sim_kv_call(state, rank, MAP_INSERT, keys + 1, rank);
    (void)sim_kv_call(state, rank, MAP_GET, 1, 0);
    (void)sim_kv_call(state, rank, MAP_INSERT, 1, 10 + rank);
    (void)sim_kv_call(state, rank, MAP_GET, keys, 0);
}

const struct sim_case sim_case_kv_messages = {.object = "kv",
                                              .name = "messages",
                                              .about =
                                                  "deletes in succession, until all messages are in flight",
                                              .nodes = 2,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct kv_state),
                                              .open = open_kv,
                                              .close = sim_kv_close,
                                              .body = messages_body,
                                              .after = sim_kv_after,
                                              .oracle = &oracle_map};

static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    uint64_t key = thread + 1;
    (void)sim_kv_call(state, rank, MAP_INSERT, key, 10 * rank + 1);
    (void)sim_kv_call(state, rank, MAP_UPDATE, key, 10 * rank + 2);
    (void)sim_kv_call(state, rank, MAP_GET, 3 - key, 0);
    if (rank == 0)
        (void)sim_kv_call(state, rank, MAP_DELETE, key, 0);
}

const struct sim_case sim_case_kv_threads = {.object = "kv",
                                             .name = "threads",
                                             .about = "two threads of each node on two keys",
                                             .nodes = 2,
                                             .threads = 2,
                                             .state_bytes = sizeof(struct kv_state),
                                             .open = open_kv,
                                             .close = sim_kv_close,
                                             .body = threads_body,
                                             .after = sim_kv_after,
                                             .oracle = &oracle_map};

/* ---- put, fetch_add, compare_put ---- */

static void open_word(void *state, struct remo_node *node, uint32_t rank) {
    sim_kv_open(state, node, rank, 8, 1);
}

/* Two nodes add to a counter, and one replaces it if it has not changed since the read. */
static void counter_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t i = 0; i < 2; i++) {
        if (rank == 0 && i == 0)
            (void)sim_kv_call(state, rank, MAP_PUT, 1, 100);
        (void)sim_kv_call(state, rank, MAP_ADD, 1, rank + 1);
        (void)call_kv_expecting(state, rank, MAP_COMPARE, 1, 1000 * (rank + 1), 100 + rank + 1);
    }
    (void)sim_kv_call(state, rank, MAP_GET, 1, 0);
}

static void counter_after(void *state, uint32_t rank) {
    (void)sim_kv_call(state, rank, MAP_PUT, 1, 5000 + rank);
    (void)sim_kv_call(state, rank, MAP_ADD, 1, 1);
    (void)call_kv_expecting(state, rank, MAP_COMPARE, 1, 6000, 5001 + rank);
    (void)sim_kv_call(state, rank, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_counter = {.object = "kv",
                                             .name = "counter",
                                             .about = "put, fetch_add and compare_put of one key",
                                             .nodes = 3,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct kv_state),
                                             .open = open_word,
                                             .close = sim_kv_close,
                                             .body = counter_body,
                                             .after = counter_after,
                                             .oracle = &oracle_map};

/* ---- the outcome of a delete ---- */

#define DELETE_OPERATIONS 9u /* more than a delete posts */

static int call_once(struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key) {
    uint64_t value[VALUE_WORDS] = {0};
    return do_call(s, s->kvs[rank], function, key, 0, value);
}

static bool is_present(struct kv_state *s, uint64_t key) {
    int rc = call_once(s, 1, MAP_GET, key);
    sim_require(rc == 0 || rc == -ENOENT, "get: %d (%s)", rc, remo_last_error());
    return rc == 0;
}

static bool is_kept(void *ctx) {
    return ((const struct kv_state *)ctx)->is_kept || sim_kv_is_deleted(ctx);
}

static bool has_tried(void *ctx) {
    return ((const struct kv_state *)ctx)->has_tried;
}

/* One operation of each delete may fail to post; it has no effect. So an error means that the key is present.
 * A record that cannot be posted is sent later. */
static void delete_unposted(struct kv_state *s) {
    for (uint64_t key = 1; key <= 2; key++) {
        sim_fail_next(SIM_FAIL_POST, 1, sim_choose(DELETE_OPERATIONS), 1);
        int rc = call_once(s, 1, MAP_DELETE, key);
        sim_fail_next(SIM_FAIL_POST, 1, 0, 0);
        sim_require(is_present(s, key) == (rc != 0), "delete: %d, and the key is %s", rc,
                    rc ? "absent" : "present");
    }
}

/* An operation of the delete is delayed. If it is the write to the slot, no node can change the key until the
 * write has taken effect. Then the next delete states the outcome. */
static void delete_delayed(struct kv_state *s) {
    sim_delay(1, sim_choose(DELETE_OPERATIONS), 1);
    int rc = call_once(s, 1, MAP_DELETE, 1);
    s->is_kept = remo__kv_thread(s->kvs[1])->is_kept;
    sim_require(rc == 0 || rc == -ETIMEDOUT, "delete: %d (%s)", rc, remo_last_error());
    sim_require(rc != 0 || !is_present(s, 1), "the key is present after its delete");
    if (s->is_kept)
        sim_until(has_tried, s, "wait until the other node has tried to change the key");
    sim_delay_end();
    while (rc == -ETIMEDOUT)
        rc = call_once(s, 1, MAP_DELETE, 1);
    sim_require(rc == (s->is_kept ? -ENOENT : 0), "delete again: %d", rc);
}

/* Return the sum of the generations of all slots of a node, as entries contain them. */
static uint64_t sum_generations(const struct remo_kv *kv) {
    uint64_t sum = 0;
    for (uint32_t slot = 0; slot < kv->slots_per_node; slot++)
        sum += remo__kv_head_generation(remo__load(kv->own + remo__kv_slot_at(kv, slot)))
               & REMO__KV_GENERATION_MASK;
    return sum;
}

/* An insert that is not sent uses no generation of a slot: a record that removes an earlier one is perhaps
 * deferred. */
static void insert_unsent(struct kv_state *s, uint64_t key) {
    uint64_t before = sum_generations(s->kvs[1]);
    int rc = call_once(s, 1, MAP_INSERT, key);
    bool is_delayed = !s->kvs[1]->node->mapped; /* elsewhere messages cannot be delayed */
    sim_require(rc == (is_delayed ? -ETIMEDOUT : 0), "insert without a free message: %d (%s)", rc,
                remo_last_error());
    sim_require(!is_delayed || sum_generations(s->kvs[1]) == before,
                "an insert that was not sent has changed a slot");
}

/* A message is delayed, so all messages are in flight. A delete that needs no other node has taken effect,
 * although its record is sent later. */
static void delete_unsent(struct kv_state *s) {
    const struct remo__kv_record nothing = {.hash = 1, .entry = REMO__KV_RECORD_REMOVE << 48};
    uint64_t key = 3, number;
    uint32_t count;
    while (lock_home_of(s, 1, key) != 1)
        key++;
    sim_require(call_once(s, 1, MAP_INSERT, key) == 0, "insert: %s", remo_last_error());
    sim_delay(1, 0, 1);
    for (uint32_t i = 0; i < REMO__KV_MESSAGES_MAX; i++)
        (void)remo__kv_send_records(s->kvs[1], &nothing, 1, &count, &number);
    int rc = call_once(s, 1, MAP_DELETE, key);
    sim_require(rc == 0 && !is_present(s, key), "delete without a free message: %d (%s)", rc,
                remo_last_error());
    insert_unsent(s, key);
    sim_delay_end();
}

static void outcome_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        for (uint64_t key = 1; key <= 2; key++)
            sim_require(call_once(s, 0, MAP_INSERT, key) == 0, "insert: %s", remo_last_error());
        s->there = true;
        sim_until(is_kept, s, "wait for the delete");
        if (s->is_kept)
            sim_require(call_once(s, 0, MAP_UPDATE, 1) == -ETIMEDOUT,
                        "update while a delete may take effect");
        s->has_tried = true;
        return;
    }
    sim_until(sim_kv_is_there, s, "wait for the key");
    switch (sim_choose(3)) {
    case 0: delete_unposted(s); break;
    case 1: delete_delayed(s); break;
    default: delete_unsent(s); break;
    }
    s->deleted = true;
}

const struct sim_case sim_case_kv_outcome = {.object = "kv",
                                             .name = "outcome",
                                             .about = "a delete states whether it took effect",
                                             .nodes = 2,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct kv_state),
                                             .open = open_kv,
                                             .close = sim_kv_close,
                                             .body = outcome_body,
                                             .has_own_fault = true};

/* The counter lies at another node than its lock. An addition that is written late undoes those of
 * peers. */
static void continues_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    uint32_t home = lock_home_of(s, rank, 1);
    (void)thread;
    if (rank == (home + 1) % 3)
        (void)sim_kv_call(state, rank, MAP_PUT, 1, 1000);
    for (uint32_t i = 0; i < 2; i++)
        (void)sim_kv_call(state, rank, MAP_ADD, 1, rank + 1);
}

/* Additions with unknown outcome multiply the search of the judge: none follow the failure of a
 * node. */
static void continues_after(void *state, uint32_t rank) {
    if (!sim_any_out())
        (void)sim_kv_call(state, rank, MAP_ADD, 1, rank + 1);
    (void)sim_kv_call(state, rank, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_continues = {
    .object = "kv",
    .name = "continues",
    .about = "fetch_add of three nodes; a node continues after a failed operation",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct kv_state),
    .open = open_word,
    .close = sim_kv_close,
    .body = continues_body,
    .after = continues_after,
    .oracle = &oracle_map,
    .continues_after_failure = true};

/* Puts of a key that peers delete: each put inserts or updates. */
static void puts_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    (void)sim_kv_call(state, rank, MAP_PUT, 1, 10 * rank + 1);
    (void)sim_kv_call(state, rank, MAP_DELETE, 1, 0);
    (void)sim_kv_call(state, rank, MAP_PUT, 1, 10 * rank + 2);
    (void)call_kv_expecting(state, rank, MAP_COMPARE, 1, 10 * rank + 3, 10 * rank + 2);
    (void)sim_kv_call(state, rank, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_puts = {.object = "kv",
                                          .name = "puts",
                                          .about = "two nodes put, delete and compare one key",
                                          .nodes = 2,
                                          .threads = 1,
                                          .state_bytes = sizeof(struct kv_state),
                                          .open = open_kv,
                                          .close = sim_kv_close,
                                          .body = puts_body,
                                          .after = sim_kv_after,
                                          .oracle = &oracle_map};
