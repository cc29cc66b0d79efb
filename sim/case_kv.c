/* case_kv.c - the map: each key is a register that may be there or not.
 *
 * After a fault: what was acknowledged on a node that lives is there, what was not happened once or not at
 * all (the history decides); keys on the dead are answered with an error, and so are changes whose lock was
 * there; nothing else may be.
 */
#include <errno.h>
#include <remo/kv.h>
#include <string.h>

#include "kv/kv.h"
#include "sim/case.h"
#include "sim/oracle.h"

#define FOREVER REMO_FOREVER
#define VALUE_WORDS 9u /* more than a line */
#define KEYS_MAX 16u
#define LONG_KEY_WORDS \
    15u                 /* with the head before it two lines; what tells keys apart is in the second one \
                         */
#define TELL_TURNS 100u /* until a node has heard of what others deleted */

struct kv_state {
    struct remo_kv *kvs[SIM_NODES_MAX];
    uint32_t words;      /* of a value */
    uint32_t key_words;  /* 0: 1 */
    bool alike;          /* keys, as far as the index can tell: any of them may lead to any node */
    bool there, deleted; /* private memory: one node tells the other */
    bool inserted[SIM_NODES_MAX][KEYS_MAX]; /* the node has tried to: the key may lie there */
};

static uint32_t key_bytes(const struct kv_state *s) {
    return 8 * remo__max(s->key_words, 1);
}

/* Zeros, and the number last. */
static const void *key_of(const struct kv_state *s, uint64_t number, uint64_t *words) {
    memset(words, 0, LONG_KEY_WORDS * sizeof *words);
    words[key_bytes(s) / 8 - 1] = number;
    return words;
}

static void open_map(void *state, struct remo_node *node, uint32_t rank, uint32_t capacity, uint32_t words) {
    struct kv_state *s = state;
    s->words = words;
    struct remo_kv_options options = {
        .capacity = capacity, .key_bytes_max = key_bytes(s), .value_bytes_max = words * 8, .stripes = 2};
    sim_opened(remo_kv_open(remo_node_root(node), "map", &options, &s->kvs[rank]), "open");
    sim_opened(remo_channel_wait(remo_kv_channel(s->kvs[rank]), FOREVER), "wait");
}

static void open_kv(void *state, struct remo_node *node, uint32_t rank) {
    open_map(state, node, rank, 8, VALUE_WORDS);
}

static void close_kv(void *state, uint32_t rank) {
    remo_kv_close(((struct kv_state *)state)->kvs[rank]);
}

/* ---- calls ---- */

static bool is_answer(uint32_t function, int rc) {
    return rc == 0 || (function == MAP_INSERT ? rc == -EEXIST : rc == -ENOENT);
}

/* Is the error of a call one that a death explains? The key's lock was there, or the key may have been. */
static bool is_lost(const struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key, int rc) {
    const struct remo_kv *kv = s->kvs[rank];
    uint64_t words[LONG_KEY_WORDS], hash = remo__kv_hash(key_of(s, key, words), key_bytes(s));
    uint32_t home = remo_lock_home(kv->locks, remo__kv_stripe_of(kv, hash));
    bool lost = function != MAP_GET && sim_excused(rank, home, rc);
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++)
        for (uint32_t i = 0; i < KEYS_MAX; i++)
            lost =
                lost
                || (s->inserted[node][i] && (s->alike || i == key % KEYS_MAX) && sim_excused(rank, node, rc));
    lost = lost || (function == MAP_INSERT && rc == -ENOSPC); /* the case says what is to come of it */
    return lost || ((sim_out(rank) || sim_hurt(rank)) && sim_excused(rank, SIM_ANY, rc));
}

static int call_kv(struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key, uint64_t number) {
    struct remo_kv *kv = s->kvs[rank];
    uint64_t value[VALUE_WORDS] = {0}, key_words[LONG_KEY_WORDS];
    size_t bytes = 0, size = s->words * 8, key_size = key_bytes(s);
    const void *at = key_of(s, key, key_words);
    for (uint32_t i = 0; i < s->words; i++)
        value[i] = number;
    s->inserted[rank][key % KEYS_MAX] |= function == MAP_INSERT;
    uint32_t call = sim_begin(function, key, number, 0);
    int rc = function == MAP_GET      ? remo_kv_get(kv, at, key_size, value, size, &bytes)
             : function == MAP_INSERT ? remo_kv_insert(kv, at, key_size, value, size)
             : function == MAP_UPDATE ? remo_kv_update(kv, at, key_size, value, size)
                                      : remo_kv_delete(kv, at, key_size);
    if (function == MAP_GET && rc == 0)
        for (uint32_t i = 1; i < s->words; i++)
            sim_require(value[i] == value[0] && bytes == size, "get returns a torn value");
    /* What a node sees that the others have given up counts for nothing, what it did may count. */
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

/* The survivors can do all that does not depend on the dead. */
static void kv_after(void *state, uint32_t rank) {
    for (uint64_t key = 1; key <= 2; key++) {
        (void)call_kv(state, rank, MAP_GET, key, 0);
        (void)call_kv(state, rank, MAP_UPDATE, key, 1000 + rank);
        (void)call_kv(state, rank, MAP_DELETE, key, 0);
        (void)call_kv(state, rank, MAP_INSERT, key, 2000 + rank);
        (void)call_kv(state, rank, MAP_GET, key, 0);
    }
}

/* ---- cases ---- */

/* Two nodes change one key, the third reads it. */
static void updates_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    if (rank == 0)
        (void)call_kv(state, rank, MAP_INSERT, 1, 10);
    for (uint32_t i = 0; i < 2; i++)
        (void)call_kv(state, rank, rank == 2 ? MAP_GET : MAP_UPDATE, 1, 100 * rank + i + 1);
    (void)call_kv(state, rank, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_updates = {.object = "kv",
                                             .name = "updates",
                                             .about = "an insert, updates of two nodes, and gets of one key",
                                             .nodes = 3,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct kv_state),
                                             .open = open_kv,
                                             .close = close_kv,
                                             .body = updates_body,
                                             .after = kv_after,
                                             .oracle = &oracle_map};

/* Inserts and deletes of one key by two nodes, and gets between. */
static void lives_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    (void)call_kv(state, rank, MAP_INSERT, 1, 10 * rank + 1);
    (void)call_kv(state, rank, MAP_GET, 1, 0);
    (void)call_kv(state, rank, MAP_DELETE, 1, 0);
    (void)call_kv(state, rank, MAP_GET, 1, 0);
    (void)call_kv(state, rank, MAP_INSERT, 1, 10 * rank + 2);
}

const struct sim_case sim_case_kv_lives = {.object = "kv",
                                           .name = "lives",
                                           .about = "two nodes insert, delete and get one key",
                                           .nodes = 2,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct kv_state),
                                           .open = open_kv,
                                           .close = close_kv,
                                           .body = lives_body,
                                           .after = kv_after,
                                           .oracle = &oracle_map};

static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    uint64_t key = thread + 1;
    (void)call_kv(state, rank, MAP_INSERT, key, 10 * rank + 1);
    (void)call_kv(state, rank, MAP_UPDATE, key, 10 * rank + 2);
    (void)call_kv(state, rank, MAP_GET, 3 - key, 0);
    if (rank == 0)
        (void)call_kv(state, rank, MAP_DELETE, key, 0);
}

const struct sim_case sim_case_kv_threads = {.object = "kv",
                                             .name = "threads",
                                             .about = "two threads of each node on two keys",
                                             .nodes = 2,
                                             .threads = 2,
                                             .state_bytes = sizeof(struct kv_state),
                                             .open = open_kv,
                                             .close = close_kv,
                                             .body = threads_body,
                                             .after = kv_after,
                                             .oracle = &oracle_map};

/* One node updates again and again what another reads: a read meets a slot in which two updates went by. One
 * line has the older copy and the head of the newer one, the next line the rest of that. */
static void open_short(void *state, struct remo_node *node, uint32_t rank) {
    open_map(state, node, rank, 8, 2);
}

static bool is_there(void *ctx) {
    return ((const struct kv_state *)ctx)->there || sim_out(0);
}

static void overtaken_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        (void)call_kv(s, rank, MAP_INSERT, 1, 1);
        (void)call_kv(s, rank, MAP_UPDATE, 1, 2);
        s->there = true;
    } else {
        sim_until(is_there, s, "wait for the key");
    }
    for (uint32_t i = 0; i < (rank == 0 ? 8u : 4u); i++)
        (void)call_kv(s, rank, rank == 0 ? MAP_UPDATE : MAP_GET, 1, 3 + i);
}

const struct sim_case sim_case_kv_overtaken = {.object = "kv",
                                               .name = "overtaken",
                                               .about = "gets that are slower than the updates of their key",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct kv_state),
                                               .open = open_short,
                                               .close = close_kv,
                                               .body = overtaken_body,
                                               .after = kv_after,
                                               .oracle = &oracle_map,
                                               .fault_first = 1};

/* A key that lives again in its old slot: a read may meet both of its lives. */
static void open_reborn(void *state, struct remo_node *node, uint32_t rank) {
    open_map(state, node, rank, 1, VALUE_WORDS);
}

static void reborn_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        (void)call_kv(s, 0, MAP_INSERT, 2, 1); /* one of the two slots */
        (void)call_kv(s, 0, MAP_INSERT, 1, 11);
        (void)call_kv(s, 0, MAP_UPDATE, 1, 12);
        (void)call_kv(s, 0, MAP_DELETE, 1, 0);
        s->there = true;
        (void)call_kv(s, 0, MAP_INSERT, 1, 21);
        return;
    }
    sim_until(is_there, state, "wait for the first life to end");
    (void)call_kv(s, 1, MAP_GET, 1, 0);
    (void)call_kv(s, 1, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_reborn = {
    .object = "kv",
    .name = "reborn",
    .about = "gets of a key that is deleted and inserted into its slot again",
    .nodes = 2,
    .threads = 1,
    .state_bytes = sizeof(struct kv_state),
    .open = open_reborn,
    .close = close_kv,
    .body = reborn_body,
    .oracle = &oracle_map,
    .fault_first = 1};

/* The slot of a key is used for another one, of which the first line is the same: a read may meet both. */
static void open_long_keys(void *state, struct remo_node *node, uint32_t rank) {
    ((struct kv_state *)state)->key_words = LONG_KEY_WORDS;
    open_map(state, node, rank, 1, 1);
}

static void long_keys_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        (void)call_kv(s, 0, MAP_INSERT, 2, 1); /* one of the two slots */
        (void)call_kv(s, 0, MAP_INSERT, 1, 11);
        s->there = true;
        (void)call_kv(s, 0, MAP_DELETE, 1, 0);
        (void)call_kv(s, 0, MAP_INSERT, 3, 21);
        return;
    }
    sim_until(is_there, state, "wait for the key");
    (void)call_kv(s, 1, MAP_GET, 1, 0);
    (void)call_kv(s, 1, MAP_GET, 1, 0);
}

const struct sim_case sim_case_kv_long_keys = {.object = "kv",
                                               .name = "long_keys",
                                               .about = "gets of a key whose slot goes to another one",
                                               .nodes = 2,
                                               .threads = 1,
                                               .state_bytes = sizeof(struct kv_state),
                                               .open = open_long_keys,
                                               .close = close_kv,
                                               .body = long_keys_body,
                                               .oracle = &oracle_map,
                                               .fault_first = 1};

/* All keys have one hash, as far as the index can tell; and two slots for each node. What one node deletes
 * the other inserts before it is told: then it hears of a slot that it has found out about itself. */
static void open_collide(void *state, struct remo_node *node, uint32_t rank) {
    ((struct kv_state *)state)->alike = true;
    open_map(state, node, rank, 2, 1);
    remo__kv_set_hash_mask(((struct kv_state *)state)->kvs[rank], 0);
}

static bool is_deleted(void *ctx) {
    return ((const struct kv_state *)ctx)->deleted || sim_out(1);
}

static void collide_body(void *state, uint32_t rank, uint32_t thread) {
    struct kv_state *s = state;
    (void)thread;
    if (rank == 0) {
        (void)call_kv(s, 0, MAP_INSERT, 2, 1);
        (void)call_kv(s, 0, MAP_INSERT, 1, 2);
        s->there = true;
        sim_until(is_deleted, s, "wait until it is deleted");
        (void)call_kv(s, 0, MAP_INSERT, 1, 3);
        (void)call_kv(s, 0, MAP_INSERT, 3, 4);
    } else {
        sim_until(is_there, s, "wait for the keys");
        (void)call_kv(s, 1, MAP_DELETE, 1, 0);
        s->deleted = true;
    }
    for (uint64_t key = 1; key <= 3; key++)
        (void)call_kv(s, rank, MAP_GET, key, 0);
}

const struct sim_case sim_case_kv_collide = {.object = "kv",
                                             .name = "collide",
                                             .about = "keys that the index cannot tell apart",
                                             .nodes = 2,
                                             .threads = 1,
                                             .state_bytes = sizeof(struct kv_state),
                                             .open = open_collide,
                                             .close = close_kv,
                                             .body = collide_body,
                                             .oracle = &oracle_map,
                                             .fault_first = 1};

/* Two slots for each node. Node 1 deletes what node 0 inserted, and may die before it has told it: the slots
 * must be found again. */
static void open_tight(void *state, struct remo_node *node, uint32_t rank) {
    open_map(state, node, rank, 2, VALUE_WORDS);
}

/* The n-th key, from 0, whose lock is at node 0: all is about that one, and the others may die. */
static uint64_t key_at_home(const struct kv_state *s, uint32_t rank, uint32_t n) {
    const struct remo_kv *kv = s->kvs[rank];
    for (uint64_t key = 1;; key++)
        if (remo_lock_home(kv->locks, remo__kv_stripe_of(kv, remo__kv_hash(&key, sizeof key))) == 0
            && n-- == 0)
            return key;
}

static void tight_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    for (uint32_t n = 0; n < 2; n++)
        (void)call_kv(state, rank, rank == 0 ? MAP_INSERT : MAP_DELETE, key_at_home(state, rank, n), 1);
    if (rank != 0)
        (void)call_kv(state, rank, MAP_DELETE, key_at_home(state, rank, 0), 0);
}

/* For each key that is not there any more node 0 must find room for another one, although nobody may have
 * told it. What others deleted comes back as it is told. */
static void tight_after(void *state, uint32_t rank) {
    uint32_t absent = 0;
    for (uint32_t n = 0; n < 2 && rank == 0; n++)
        absent += call_kv(state, 0, MAP_GET, key_at_home(state, 0, n), 0) == -ENOENT;
    for (uint32_t n = 0; n < absent; n++) {
        int rc = call_kv(state, 0, MAP_INSERT, key_at_home(state, 0, 2 + n), 2);
        for (uint32_t i = 0; i < TELL_TURNS && rc == -ENOSPC; i++) {
            sim_point("wait for a slot");
            rc = call_kv(state, 0, MAP_INSERT, key_at_home(state, 0, 2 + n), 2);
        }
        sim_require(rc == 0 || (rc == -ETIMEDOUT && sim_any_hurt()), "a slot was lost: %d (%s)", rc,
                    remo_last_error());
    }
}

const struct sim_case sim_case_kv_tight = {.object = "kv",
                                           .name = "tight",
                                           .about = "slots that a dead node left half deleted are used again",
                                           .nodes = 3,
                                           .threads = 1,
                                           .state_bytes = sizeof(struct kv_state),
                                           .open = open_tight,
                                           .close = close_kv,
                                           .body = tight_body,
                                           .after = tight_after,
                                           .oracle = &oracle_map};
