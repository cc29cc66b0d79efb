/* kv_forged.c - a faulty node: it is not a participant of a map, but sends a record to a participant. The
 * record would remove a key from the index of the participant. The participant drops the record. */
#include "objects/rpc/rpc.h"
#include "sim/cases/kv.h"

#define FAULTY 2u

enum stage { OPENED, INSERTED, FORGED };

struct forged_state {
    struct remo_kv *kvs[FAULTY];
    struct remo_rpc *services[SIM_NODES_MAX]; /* opens the transport, also on the faulty node */
    struct remo__kv_record record;            /* removes the key */
    enum stage stage;
};

static int do_nothing(void *ctx, const struct remo_rpc_request *request) {
    (void)ctx;
    (void)request;
    return 0;
}

static void open_forged(void *state, struct remo_node *node, uint32_t rank) {
    struct forged_state *s = state;
    const struct remo_rpc_handler handler = {.run = do_nothing};
    const struct remo_rpc_options services = {.handlers = &handler, .handler_count = 1};
    struct remo_kv_options options = {.capacity = 8, .key_bytes_max = 8, .value_bytes_max = 8, .stripes = 2};
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.participants, 1);
    sim_opened(remo_rpc_open(remo_node_root(node), "service", &services, &s->services[rank]), "open");
    sim_opened(remo_channel_wait(remo_rpc_channel(s->services[rank]), FOREVER), "wait");
    if (rank == FAULTY)
        return;
    sim_opened(remo_kv_open(remo_node_root(node), "map", &options, &s->kvs[rank]), "open");
    sim_opened(remo_channel_wait(remo_kv_channel(s->kvs[rank]), FOREVER), "wait");
}

static void close_forged(void *state, uint32_t rank) {
    struct forged_state *s = state;
    if (rank != FAULTY)
        remo_kv_close(s->kvs[rank]);
    remo_rpc_close(s->services[rank]);
}

static bool is_inserted(void *ctx) {
    return ((const struct forged_state *)ctx)->stage >= INSERTED;
}

static bool is_forged(void *ctx) {
    return ((const struct forged_state *)ctx)->stage >= FORGED;
}

static const uint64_t the_key = 1;

static void insert_key(struct forged_state *s) {
    struct remo_kv *kv = s->kvs[0];
    uint64_t hash = remo__kv_index_hash(kv, remo__kv_hash(&the_key, sizeof the_key));
    int rc = remo_kv_insert(kv, &the_key, sizeof the_key, &the_key, sizeof the_key);
    sim_require(rc == 0, "insert: %d (%s)", rc, remo_last_error());
    struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, hash);
    uint64_t entry = remo__kv_index_first(&kv->index, &cursor);
    s->record = (struct remo__kv_record){
        .hash = hash, .entry = (entry & ~(UINT64_C(0xffff) << 48)) | REMO__KV_RECORD_REMOVE << 48};
    s->stage = INSERTED;
}

/* Send the record to node 1. A call of the same ring ends after it has been executed. */
static void forge(struct forged_state *s) {
    struct remo_rpc *rpc = s->services[FAULTY];
    const struct remo__rpc_words words = {
        .head = remo__rpc_head_make(sizeof s->record, 0, REMO__RPC_LEAF_DEPTH, 0, REMO__RPC_POST),
        .call = remo__rpc_call_make(FAULTY, 0, 0),
        .rest = s->kvs[1]->trackers->channel->id};
    int rc = remo__rpc_send_message(remo__thread(rpc->node), rpc, 1, words, &s->record, true);
    sim_require(rc == 1, "send: %d (%s)", rc, remo_last_error());
    rc = remo_rpc_call(rpc, 1, 0, NULL, 0, NULL, 0, NULL, FOREVER);
    sim_require(rc == 0, "call: %d (%s)", rc, remo_last_error());
    s->stage = FORGED;
}

static void forged_body(void *state, uint32_t rank, uint32_t thread) {
    struct forged_state *s = state;
    uint64_t value;
    (void)thread;
    if (rank == 0)
        insert_key(s);
    if (rank == FAULTY) {
        sim_until(is_inserted, s, "wait for the key");
        forge(s);
    }
    if (rank != 1)
        return;
    sim_until(is_forged, s, "wait for the record");
    int rc = remo_kv_get(s->kvs[1], &the_key, sizeof the_key, &value, sizeof value, NULL);
    sim_require(rc == 0, "get: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_kv_forged = {.object = "kv",
                                            .name = "forged",
                                            .about = "a node that is not a participant sends a removal",
                                            .nodes = 3,
                                            .threads = 1,
                                            .state_bytes = sizeof(struct forged_state),
                                            .open = open_forged,
                                            .close = close_forged,
                                            .body = forged_body,
                                            .has_own_fault = true};
