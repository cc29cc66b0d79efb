/* test_tx_many.c - transactions that read several keys at the same time, between real nodes: results, costs,
 * and calls that do not wait for each other. */
#include "../../support/turns.h"
#include "tx_words.h"

static struct turns *turns; /* shared by all processes */

static int open_place(struct remo_node *node, const struct remo_table_options *options,
                      struct place *ret_place) {
    return open_objects(node, options, NULL, ret_place);
}

#define MANY 20u

static void set_lookups(struct place *place, const uint64_t *keys, uint64_t *values,
                        struct remo_tx_lookup *ret_lookups) {
    for (uint32_t i = 0; i < MANY; i++)
        ret_lookups[i] = (struct remo_tx_lookup){.structure = place->structure,
                                                 .key = &keys[i],
                                                 .key_bytes = sizeof keys[i],
                                                 .value = &values[i],
                                                 .cap = sizeof values[i]};
}

/* The keys of node 0, at node 1: some absent, one twice, one changed by the transaction, one for which there
 * is no room. Then keys of both nodes. */
static int many_of_peer(struct place *place) {
    uint64_t keys[MANY], values[MANY];
    struct remo_tx_lookup lookups[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        keys[i] = key_of(place, 0, i);
        if (i % 5 != 0)
            CHECK_OK(plain_put(place, keys[i], i));
    }
    keys[7] = keys[6];
    set_lookups(place, keys, values, lookups);
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(put_word(place, keys[1], 100));
    CHECK_OK(read_word(place, keys[2], &values[2]));
    struct cost before = cost_of(place);
    CHECK_OK(remo_tx_read_many(place->tx, lookups, MANY));
    CHECK(expect_cost(place, before, MANY - 3, 0) == 0); /* not keys 1, 2 and 7 */
    for (uint32_t i = 0; i < MANY; i++) {
        CHECK_EQUAL(lookups[i].status, i % 5 == 0 ? -ENOENT : 0);
        CHECK(i % 5 == 0 || values[i] == (i == 1 ? 100 : i == 7 ? 6 : i));
    }
    lookups[3].cap = 7;
    CHECK_SENTENCE(remo_tx_read_many(place->tx, lookups, MANY), -EMSGSIZE, "value_bytes");
    CHECK(lookups[3].status == -EMSGSIZE && lookups[3].value_bytes == 8 && lookups[4].status == 0);
    remo_tx_abort(place->tx);

    lookups[3].cap = 8;
    CHECK_OK(remo_tx_begin(place->tx));
    before = cost_of(place);
    CHECK_OK(remo_tx_read_many(place->tx, &lookups[1], 4));
    CHECK_OK(remo_tx_commit(place->tx)); /* validates each */
    CHECK(expect_cost(place, before, 8, 0) == 0);
    CHECK_OK(remo_tx_begin(place->tx));
    before = cost_of(place);
    CHECK_OK(remo_tx_read_many(place->tx, &lookups[1], 4));
    CHECK_OK(remo_tx_read_many(place->tx, &lookups[8], 1)); /* the last lookup is alone */
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK(expect_cost(place, before, 9, 0) == 0);

    uint64_t own = key_of(place, 1, 0);
    CHECK_OK(plain_put(place, own, 50));
    keys[2] = own;
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(remo_tx_read_many(place->tx, &lookups[1], 3));
    CHECK_EQUAL(values[2], 50);
    CHECK_OK(plain_put(place, keys[3], 51));
    CHECK(expect_conflict(place, remo_tx_commit(place->tx), keys[3], REMO_TX_CHANGED) == 0);
    CHECK_OK(remo_tx_begin(place->tx));
    lookups[2].key_bytes = 0;
    CHECK_SENTENCE(remo_tx_read_many(place->tx, lookups, MANY), -EINVAL, "empty");
    CHECK(lookups[0].status == -EINVAL && lookups[MANY - 1].status == -EINVAL);
    remo_tx_abort(place->tx);
    return 0;
}

static int many(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    if (remo_node_rank(node) == 1)
        CHECK(many_of_peer(&place) == 0);
    return close_place(&place);
}

/* The keys of node 0 are read by node 1: `reads` reads. */
static int many_values(struct place *place, uint64_t reads) {
    uint64_t keys[MANY], values[MANY];
    struct remo_tx_lookup lookups[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        keys[i] = key_of(place, 0, i);
        CHECK_OK(plain_put(place, keys[i], i));
    }
    set_lookups(place, keys, values, lookups);
    struct cost before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(remo_tx_read_many(place->tx, lookups, MANY));
    CHECK_EQUAL(cost_of(place).reads - before.reads, reads);
    for (uint32_t i = 0; i < MANY; i++)
        CHECK(lookups[i].status == 0 && values[i] == i);
    CHECK_OK(remo_tx_commit(place->tx));
    return 0;
}

/* Places of about 7500 bytes, so that two are read at the same time; and keys that need a call each. */
static int many_large(struct remo_node *node, void *ctx) {
    const struct remo_table_options options[] = {{.capacity = 1000, .value_bytes_max = 900, .width = 8},
                                                 {.lookups = REMO_TABLE_CALLS_ONLY}};
    struct place place;
    (void)ctx;
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(open_place(node, &options[i], &place) == 0);
        if (remo_node_rank(node) == 1)
            CHECK(many_values(&place, i == 0 ? MANY : 0) == 0);
        CHECK(close_place(&place) == 0);
    }
    return 0;
}

/* ---- calls ---- */

#define NOT_READ 1
#define TOGETHER 16u /* calls of one transaction that are in flight at the same time */

struct reader {
    struct place *place;
    uint64_t keys[MANY], values[MANY];
    struct remo_tx_lookup lookups[MANY];
    _Atomic int rc; /* passes the reader to another thread and back */
};

static void *read_in_thread(void *ctx) {
    struct reader *reader = ctx;
    reader->rc = remo_tx_read_many(reader->place->tx, reader->lookups, MANY);
    return NULL;
}

static void *commit_in_thread(void *ctx) {
    struct reader *reader = ctx;
    reader->rc = remo_tx_commit(reader->place->tx);
    return NULL;
}

/* Run a function while its owner is paused: it makes its first calls before any reply. */
static int run_paused(struct reader *reader, void *(*run)(void *)) {
    struct place *place = reader->place;
    struct cost before = cost_of(place), after;
    pthread_t thread;
    pause_node(turns, 1);
    CHECK(pthread_create(&thread, NULL, run, reader) == 0);
    CHECK_REACHES(after = cost_of(place), after.writes - before.writes, TOGETHER);
    resume_node(turns, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(reader->rc);
    return expect_cost(place, before, 0, MANY);
}

/* The keys of node 1, at node 0. Each needs a call. A commit validates absent ones by calls. */
static int read_by_calls(struct place *place) {
    struct reader reader = {.place = place};
    for (uint32_t i = 0; i < MANY; i++)
        reader.keys[i] = key_of(place, 1, i);
    set_lookups(place, reader.keys, reader.values, reader.lookups);
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK(run_paused(&reader, read_in_thread) == 0);
    for (uint32_t i = 0; i < MANY; i++)
        CHECK_EQUAL(reader.lookups[i].status, -ENOENT);
    CHECK(run_paused(&reader, commit_in_thread) == 0);

    for (uint32_t i = 0; i < MANY; i += 2)
        CHECK_OK(plain_put(place, reader.keys[i], i));
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK(run_paused(&reader, read_in_thread) == 0);
    for (uint32_t i = 0; i < MANY; i++)
        CHECK(reader.lookups[i].status == (i % 2 ? -ENOENT : 0) && (i % 2 || reader.values[i] == i));
    CHECK_OK(plain_put(place, reader.keys[7], 1));
    return expect_conflict(place, remo_tx_commit(place->tx), reader.keys[7], REMO_TX_APPEARED);
}

/* A SHORT handler must not wait: the function sends nothing. */
static int read_in_handler(void *ctx, const struct remo_rpc_request *request) {
    struct reader *reader = ctx;
    (void)request;
    if (atomic_load(&reader->rc) != NOT_READ)
        return -EALREADY;
    struct cost before = cost_of(reader->place);
    int rc = remo_tx_read_many(reader->place->tx, reader->lookups, MANY);
    bool is_silent = cost_of(reader->place).writes == before.writes;
    atomic_store(&reader->rc, rc);
    return is_silent ? 0 : -EBADMSG;
}

static int many_calls(struct remo_node *node, void *ctx) {
    const struct remo_table_options options = {.lookups = REMO_TABLE_CALLS_ONLY};
    struct place place;
    struct reader reader = {.place = &place};
    const struct remo_rpc_handler handler = {1, read_in_handler, &reader, REMO_RPC_SHORT};
    const struct remo_rpc_options service = {.handlers = &handler, .handler_count = 1};
    struct remo_rpc *rpc;
    (void)ctx;
    CHECK(open_place(node, &options, &place) == 0);
    CHECK_OK(remo_rpc_open(remo_node_root(node), "service", &service, &rpc));
    record_process(turns, remo_node_rank(node));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK(read_by_calls(&place) == 0);
        for (uint32_t i = 0; i < MANY; i++)
            reader.keys[i] = key_of(&place, 1, i);
        set_lookups(&place, reader.keys, reader.values, reader.lookups);
        CHECK_OK(remo_tx_begin(place.tx));
        atomic_store(&reader.rc, NOT_READ);
        CHECK_OK(remo_rpc_call(rpc, 0, 1, NULL, 0, NULL, 0, NULL, LONG_TIME));
        CHECK_EQUAL(reader.rc, -EDEADLK);
        remo_tx_abort(place.tx);
    }
    CHECK_OK(cluster_meet());
    remo_rpc_close(rpc);
    return close_place(&place);
}

static const struct cluster_test tests[] = {
    CLUSTER_TEST(many, 2),
    CLUSTER_TEST(many_large, 2),
    CLUSTER_TEST(many_calls, 2),
    {0},
};

int main(int argc, char **argv) {
    turns = cluster_shared(sizeof *turns);
    return cluster_main(argc, argv, tests, NULL);
}
