/* test_history_tx.c - random transactions of one to four keys in two tables, with one or several owners. Each
 * attempt to commit is an operation of the history (history.h), and so is a lookup or an insert outside
 * transactions. After a failure remo_tx_settle states the outcome. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"

#define TABLES 2u
#define KEYS_OF_OWNER 16u /* in each table */
#define KEYS (TABLES * HISTORY_NODES * KEYS_OF_OWNER)
#define PRIVATE_KEYS (TABLES * HISTORY_NODES)
#define HOT_KEYS 3u         /* of an owner, in each table: used by half of the transactions */
#define KEYS_AT_ONCE 4u     /* and one key that is put without a read */
#define ATTEMPTS_MAX 60000u /* to change a key at the end, with 1 ms in between */

struct place {
    struct remo_table *tables[TABLES];
    struct remo_structure *structures[TABLES];
    struct remo_tx_space *space;
    uint64_t names[KEYS]; /* the keys, as the tables have them */
};

/* The key that only this actor puts, without a read: the actor has the version from its last put. */
struct own {
    struct remo_tx *tx;
    uint32_t key, version; /* key KEYS: none */
    bool is_lost;          /* the outcome of a put is unknown */
};

/* A transaction in progress. */
struct attempt {
    struct history_actor *actor;
    struct remo_tx *tx;
    uint32_t changes_percent;
    bool puts_own, is_last; /* is_last: no other actor works any more */
    uint32_t count, keys[KEYS_AT_ONCE];
};

/* ---- objects ---- */

static uint32_t table_of(uint32_t key) {
    return key % TABLES;
}

static uint32_t owner_of(uint32_t key) {
    return key / TABLES % HISTORY_NODES;
}

static bool is_private(uint32_t key) {
    return key >= KEYS - PRIVATE_KEYS;
}

static struct remo_structure *structure_of(const struct history_actor *actor, uint32_t key) {
    return ((const struct place *)actor->place)->structures[table_of(key)];
}

static const uint64_t *name_of(const struct history_actor *actor, uint32_t key) {
    return &((const struct place *)actor->place)->names[key];
}

/* Find a name for each key, such that its owner is the intended one. */
static void name_keys(struct place *place) {
    for (uint32_t key = 0; key < KEYS; key++) {
        uint32_t before = key < TABLES * HISTORY_NODES ? UINT32_MAX : key - TABLES * HISTORY_NODES;
        uint64_t name = before == UINT32_MAX ? 1 : place->names[before] + 1;
        while (remo_table_owner(place->tables[table_of(key)], &name, sizeof name) != owner_of(key))
            name++;
        place->names[key] = name;
        history_run->owners[key] = owner_of(key);
    }
}

/* The second table is so small that it grows, and has overflow chains. */
static int open_place(struct remo_node *node, void **ret_place) {
    static const char *const names[TABLES] = {"large", "small"};
    static const struct remo_table_options small[3] = {
        {.capacity = 16, .overflow_percent = 400},
        {.capacity = 16, .width = 4, .slots_percent = 100},
        {.capacity = 64, .width = 2, .lookups = REMO_TABLE_CALLS_ONLY}};
    struct place *place = calloc(1, sizeof *place);
    CHECK(place);
    for (uint32_t i = 0; i < TABLES; i++) {
        const struct remo_table_options *options = i == 0 ? NULL : &small[history_run->seed % 3];
        CHECK_OK(remo_table_open(remo_node_root(node), names[i], options, &place->tables[i]));
        place->structures[i] = remo_table_structure(place->tables[i]);
    }
    const struct remo_tx_space_options space = {.structures = place->structures, .structure_count = TABLES};
    CHECK_OK(remo_tx_space_open(remo_node_root(node), "tx", &space, &place->space));
    CHECK_OK(remo_channel_wait(remo_node_root(node), HISTORY_LONG_TIME));
    CHECK_OK(remo_channel_wait(remo_tx_space_channel(place->space), HISTORY_LONG_TIME));
    for (uint32_t i = 0; i < TABLES; i++)
        CHECK_OK(remo_channel_wait(remo_structure_channel(place->structures[i]), HISTORY_LONG_TIME));
    name_keys(place);
    *ret_place = place;
    return 0;
}

static void close_place(void *ctx) {
    struct place *place = ctx;
    remo_tx_space_close(place->space);
    for (uint32_t i = 0; i < TABLES; i++)
        remo_table_close(place->tables[i]);
    free(place);
}

/* The last key of each owner in each table belongs to one actor. */
static int start(struct history_actor *actor) {
    uint32_t number = actor->rank * HISTORY_TASKS + actor->number;
    struct own *own = calloc(1, sizeof *own);
    CHECK(own);
    actor->own = own;
    own->key = number < PRIVATE_KEYS ? KEYS - PRIVATE_KEYS + number : KEYS;
    CHECK_OK(remo_tx_open(((struct place *)actor->place)->space, &own->tx));
    return 0;
}

static void stop(struct history_actor *actor) {
    struct own *own = actor->own;
    if (own)
        remo_tx_close(own->tx);
    free(own);
}

/* ---- the use of a key in a transaction ---- */

/* Set *ret_seen to the version of the result of a read. */
static int version_of(uint32_t key, int rc, const unsigned char *value, size_t bytes, uint32_t *ret_seen) {
    *ret_seen = CYCLES_ABSENT;
    if (rc != 0)
        return 0;
    *ret_seen = history_id_of(value, bytes, key);
    CHECK(*ret_seen != CYCLES_ABSENT);
    return 0;
}

static int check_error(int rc, uint32_t key) {
    CHECK(rc == 0 || rc == -ENOENT || (history_is_down(rc) && history_is_victim(owner_of(key))));
    return 0;
}

/* The transaction sees its own change. */
static int check_own(const struct attempt *attempt, uint32_t key, bool is_deleted) {
    unsigned char value[HISTORY_VALUE_BYTES_MAX];
    size_t bytes = 0;
    const uint64_t *name = name_of(attempt->actor, key);
    int rc = remo_tx_read(attempt->tx, structure_of(attempt->actor, key), name, sizeof *name, value,
                          sizeof value, &bytes);
    CHECK_CODE(rc, is_deleted ? -ENOENT : 0);
    CHECK(is_deleted || history_id_of(value, bytes, key) == history_id(attempt->actor));
    return 0;
}

/* Change a key that the transaction has read. A key that is present is updated, put or deleted; one that is
 * absent is inserted or put. */
static int change(const struct attempt *attempt, uint32_t key, uint32_t seen) {
    unsigned char value[HISTORY_VALUE_BYTES_MAX];
    struct history_actor *actor = attempt->actor;
    struct remo_structure *structure = structure_of(actor, key);
    const uint64_t *name = name_of(actor, key);
    uint32_t bytes = history_make_value(value, key, history_id(actor));
    bool deletes = seen != CYCLES_ABSENT && history_dice(actor, 3) == 0;
    history_use(actor, key, deletes ? CYCLES_DELETE : CYCLES_WRITE, seen);
    if (deletes)
        CHECK_OK(remo_tx_delete(attempt->tx, structure, name, sizeof *name));
    else if (history_dice(actor, 3) == 0)
        CHECK_OK(remo_tx_put(attempt->tx, structure, name, sizeof *name, value, bytes));
    else if (seen == CYCLES_ABSENT)
        CHECK_OK(remo_tx_insert(attempt->tx, structure, name, sizeof *name, value, bytes));
    else
        CHECK_OK(remo_tx_update(attempt->tx, structure, name, sizeof *name, value, bytes));
    return history_dice(actor, 8) == 0 ? check_own(attempt, key, deletes) : 0;
}

static int use(const struct attempt *attempt, uint32_t key, uint32_t seen) {
    uint32_t percent = is_private(key) && !attempt->is_last ? 0 : attempt->changes_percent;
    if (history_dice(attempt->actor, 100) < percent)
        return change(attempt, key, seen);
    history_use(attempt->actor, key, CYCLES_READ, seen);
    return 0;
}

/* Read all keys at the same time, then use them. *ret_rc is an error for a failed node. */
static int use_together(const struct attempt *attempt, int *ret_rc) {
    unsigned char values[KEYS_AT_ONCE][HISTORY_VALUE_BYTES_MAX];
    struct remo_tx_lookup lookups[KEYS_AT_ONCE];
    for (uint32_t i = 0; i < attempt->count; i++)
        lookups[i] = (struct remo_tx_lookup){.structure = structure_of(attempt->actor, attempt->keys[i]),
                                             .key = name_of(attempt->actor, attempt->keys[i]),
                                             .key_bytes = sizeof(uint64_t),
                                             .value = values[i],
                                             .cap = sizeof values[i]};
    *ret_rc = remo_tx_read_many(attempt->tx, lookups, attempt->count);
    CHECK(*ret_rc == 0 || history_is_down(*ret_rc));
    for (uint32_t i = 0; i < attempt->count && *ret_rc == 0; i++) {
        uint32_t seen, key = attempt->keys[i];
        CHECK(check_error(lookups[i].status, key) == 0);
        CHECK(version_of(key, lookups[i].status, values[i], lookups[i].value_bytes, &seen) == 0);
        CHECK(use(attempt, key, seen) == 0);
    }
    return 0;
}

/* Read and use one key after another. */
static int use_each(const struct attempt *attempt, int *ret_rc) {
    *ret_rc = 0;
    for (uint32_t i = 0; i < attempt->count; i++) {
        unsigned char value[HISTORY_VALUE_BYTES_MAX];
        size_t bytes = 0;
        uint32_t seen, key = attempt->keys[i];
        const uint64_t *name = name_of(attempt->actor, key);
        int rc = remo_tx_read(attempt->tx, structure_of(attempt->actor, key), name, sizeof *name, value,
                              sizeof value, &bytes);
        CHECK(check_error(rc, key) == 0);
        if (rc == -EHOSTDOWN) {
            *ret_rc = rc;
            return 0;
        }
        CHECK(version_of(key, rc, value, bytes, &seen) == 0);
        CHECK(use(attempt, key, seen) == 0);
    }
    return 0;
}

/* Put the key of this actor, which the transaction has not read. */
static int put_own(const struct attempt *attempt) {
    unsigned char value[HISTORY_VALUE_BYTES_MAX];
    const struct own *own = attempt->actor->own;
    const uint64_t *name = name_of(attempt->actor, own->key);
    history_use(attempt->actor, own->key, CYCLES_WRITE, own->version);
    uint32_t bytes = history_make_value(value, own->key, history_id(attempt->actor));
    CHECK_OK(
        remo_tx_put(attempt->tx, structure_of(attempt->actor, own->key), name, sizeof *name, value, bytes));
    return 0;
}

static void end_put(const struct attempt *attempt, enum cycles_outcome outcome) {
    struct own *own = attempt->actor->own;
    if (outcome == CYCLES_COMMITTED)
        own->version = history_id(attempt->actor);
    own->is_lost = outcome == CYCLES_UNKNOWN;
}

/* ---- one transaction ---- */

/* A commit failed because a node did. The outcome is unknown only if the only owner has failed. */
static int settle(const struct attempt *attempt, enum cycles_outcome *ret_outcome) {
    enum remo_tx_fate fate;
    bool is_lost = true;
    CHECK_OK(remo_tx_settle(attempt->tx, HISTORY_LONG_TIME, &fate));
    for (uint32_t i = 0; i < attempt->count; i++)
        is_lost &= history_is_victim(owner_of(attempt->keys[i]));
    if (attempt->puts_own)
        is_lost &= history_is_victim(owner_of(((const struct own *)attempt->actor->own)->key));
    CHECK(fate == REMO_TX_COMMITTED || fate == REMO_TX_NOT_COMMITTED || (fate == REMO_TX_UNKNOWN && is_lost));
    *ret_outcome = fate == REMO_TX_COMMITTED ? CYCLES_COMMITTED
                   : fate == REMO_TX_UNKNOWN ? CYCLES_UNKNOWN
                                             : CYCLES_NOT_COMMITTED;
    return 0;
}

static int commit(const struct attempt *attempt, int *ret_rc) {
    enum cycles_outcome outcome = CYCLES_NOT_COMMITTED;
    *ret_rc = remo_tx_commit(attempt->tx);
    CHECK(*ret_rc == 0 || *ret_rc == -EAGAIN || history_is_down(*ret_rc));
    if (*ret_rc == 0)
        outcome = CYCLES_COMMITTED;
    else if (*ret_rc != -EAGAIN && settle(attempt, &outcome))
        return 1;
    history_end(attempt->actor, outcome);
    if (attempt->puts_own)
        end_put(attempt, outcome);
    return 0;
}

/* Begin, use the keys, and commit. *ret_rc is the result of the commit, or an error before it. */
static int run_attempt(const struct attempt *attempt, bool is_together, int *ret_rc) {
    history_begin(attempt->actor);
    CHECK_OK(remo_tx_begin(attempt->tx));
    if (is_together ? use_together(attempt, ret_rc) : use_each(attempt, ret_rc))
        return 1;
    if (*ret_rc == 0 && attempt->puts_own && put_own(attempt))
        return 1;
    if (*ret_rc == 0 && history_dice(attempt->actor, 16) == 0) {
        *ret_rc = remo_tx_check(attempt->tx);
        CHECK(*ret_rc == 0 || *ret_rc == -EAGAIN || history_is_down(*ret_rc));
    }
    if (*ret_rc == 0)
        return commit(attempt, ret_rc);
    remo_tx_abort(attempt->tx);
    history_end(attempt->actor, CYCLES_NOT_COMMITTED);
    return 0;
}

static uint32_t choose_key(struct history_actor *actor, uint32_t owner, bool is_hot) {
    uint32_t index = history_dice(actor, is_hot ? HOT_KEYS : KEYS_OF_OWNER);
    return (index * HISTORY_NODES + owner) * TABLES + history_dice(actor, TABLES);
}

/* Choose different keys, of one owner or of any. */
static void choose_keys(struct history_actor *actor, struct attempt *attempt) {
    uint32_t wanted = 1 + history_dice(actor, KEYS_AT_ONCE), owner = history_dice(actor, HISTORY_NODES);
    bool is_hot = history_dice(actor, 2), has_one_owner = history_dice(actor, 2);
    attempt->count = 0;
    while (attempt->count < wanted) {
        uint32_t key = choose_key(actor, has_one_owner ? owner : history_dice(actor, HISTORY_NODES), is_hot);
        bool is_new = true;
        for (uint32_t i = 0; i < attempt->count; i++)
            is_new &= attempt->keys[i] != key;
        if (is_new)
            attempt->keys[attempt->count++] = key;
    }
}

static int transaction(struct history_actor *actor) {
    const struct own *own = actor->own;
    struct attempt attempt = {
        .actor = actor, .tx = own->tx, .changes_percent = history_dice(actor, 3) ? 60 : 0};
    int rc;
    choose_keys(actor, &attempt);
    attempt.puts_own = own->key < KEYS && !own->is_lost && history_dice(actor, 4) == 0;
    for (uint32_t i = 0; i < attempt.count; i++)
        attempt.puts_own &= attempt.keys[i] != own->key; /* one use of each key */
    return run_attempt(&attempt, history_dice(actor, 3) == 0, &rc);
}

/* ---- outside transactions ---- */

static int look_up(struct history_actor *actor, uint32_t key) {
    unsigned char value[HISTORY_VALUE_BYTES_MAX];
    size_t bytes = 0;
    uint32_t seen;
    uint64_t begin = cluster_now_ns();
    int rc = remo_structure_lookup(structure_of(actor, key), name_of(actor, key), sizeof(uint64_t), value,
                                   sizeof value, &bytes, NULL);
    CHECK(check_error(rc, key) == 0);
    if (rc == -EHOSTDOWN)
        return 0;
    CHECK(version_of(key, rc, value, bytes, &seen) == 0);
    history_begin_at(actor, begin);
    history_use(actor, key, CYCLES_READ, seen);
    history_end(actor, CYCLES_COMMITTED);
    return 0;
}

static int insert(struct history_actor *actor, uint32_t key) {
    unsigned char value[HISTORY_VALUE_BYTES_MAX];
    history_begin(actor);
    history_use(actor, key, CYCLES_WRITE, CYCLES_ABSENT);
    uint32_t bytes = history_make_value(value, key, history_id(actor));
    int rc =
        remo_structure_insert(structure_of(actor, key), name_of(actor, key), sizeof(uint64_t), value, bytes);
    CHECK(rc == 0 || rc == -EEXIST || (history_is_down(rc) && history_is_victim(owner_of(key))));
    history_end(actor, rc == 0 ? CYCLES_COMMITTED : rc == -EEXIST ? CYCLES_NOT_COMMITTED : CYCLES_UNKNOWN);
    return 0;
}

static int turn(struct history_actor *actor) {
    uint32_t kind = history_dice(actor, 8);
    if (kind > 1)
        return transaction(actor);
    uint32_t key = choose_key(actor, history_dice(actor, HISTORY_NODES), history_dice(actor, 2));
    return kind == 0 || is_private(key) ? look_up(actor, key) : insert(actor, key);
}

/* ---- the end ---- */

/* No lock remains, so a transaction that changes the key succeeds. */
static int change_key(struct history_actor *actor, uint32_t key) {
    struct attempt attempt = {.actor = actor,
                              .tx = ((struct own *)actor->own)->tx,
                              .changes_percent = 100,
                              .is_last = true,
                              .count = 1,
                              .keys = {key}};
    int rc = -EAGAIN;
    for (uint32_t i = 0; i < ATTEMPTS_MAX && rc == -EAGAIN; i++) {
        if (i > 0)
            remo_task_sleep(actor->node, SECOND / 1000);
        CHECK(run_attempt(&attempt, false, &rc) == 0);
    }
    CHECK_OK(rc);
    return 0;
}

int main(int argc, char **argv) {
    static const struct history_test test = {.name = "transactions",
                                             .keys = KEYS,
                                             .accesses = KEYS_AT_ONCE + 1,
                                             .forgets_seen = true,
                                             .open = open_place,
                                             .start = start,
                                             .stop = stop,
                                             .turn = turn,
                                             .read_key = look_up,
                                             .change_key = change_key,
                                             .close = close_place};
    return history_main(argc, argv, &test);
}
