/* test_null_arguments.c - every public function with NULL for each of its pointers: an error code and a
 * sentence that names the argument, or NULL or 0 if the function returns no code. No call crashes. */
#include <errno.h>
#include <string.h>

#include "../../support/cluster.h"

#define CHECK_NULL(call) CHECK_SENTENCE(call, -EINVAL, "NULL")
#define CHECK_INVALID(call) CHECK_CODE(call, -EINVAL)

/* ---- without an object ---- */

static int nodes(struct remo_node *node) {
    struct remo_addr addr = {0};
    struct remo_stats stats;
    struct remo_ack *ack = NULL;
    uint32_t index;
    uint64_t word = 0;
    CHECK_NULL(remo_fence(NULL, REMO_FENCE_GLOBAL, 0));
    CHECK_NULL(remo_read(NULL, addr, &word, 8, NULL));
    CHECK_NULL(remo_write(NULL, addr, &word, 8, NULL));
    CHECK_NULL(remo_fetch_add(NULL, addr, 1, &word, NULL));
    CHECK_NULL(remo_compare_swap(NULL, addr, 0, 1, &word, NULL));
    CHECK_NULL(remo_buffer_get(NULL, &(void *){NULL}));
    CHECK_NULL(remo_buffer_get(node, NULL));
    CHECK_NULL(remo_ack_test(NULL));
    CHECK_NULL(remo_ack_wait(NULL, 0));
    CHECK(remo_node_root(NULL) == NULL && remo_node_rank(NULL) == 0 && remo_node_size(NULL) == 0);
    CHECK(strcmp(remo_node_fabric(NULL), "") == 0 && remo_node_peer(NULL, 0) == REMO_PEER_DEAD);
    CHECK_INVALID(remo_ack_wait_any(NULL, 1, 0, &index));
    CHECK_INVALID(remo_ack_wait_any(&ack, 1, 0, &index));
    CHECK_NULL(remo_ack_wait_any(&(struct remo_ack *){&(struct remo_ack)REMO_ACK_INIT}, 1, 0, NULL));
    remo_buffer_put(NULL, &word);
    remo_buffer_put(node, NULL);
    remo_node_stats(NULL, &stats);
    remo_node_stats(node, NULL);
    remo_thread_stats(NULL, &stats);
    remo_thread_stats(node, NULL);
    remo_ack_join(NULL, &(struct remo_ack)REMO_ACK_INIT);
    remo_ack_join(&(struct remo_ack)REMO_ACK_INIT, NULL);
    remo_ack_cancel(NULL);
    return 0;
}

static int events(struct remo_node *node) {
    struct remo_event *event;
    CHECK_NULL(remo_event_open(NULL, &event));
    CHECK_NULL(remo_event_open(node, NULL));
    CHECK_NULL(remo_event_arm(NULL));
    CHECK_NULL(remo_event_fd(NULL));
    remo_event_close(NULL);
    return 0;
}

static int tasks(struct remo_node *node) {
    struct remo_scheduler *scheduler;
    CHECK_NULL(remo_scheduler_open(NULL, NULL, &scheduler));
    CHECK_NULL(remo_scheduler_open(node, NULL, NULL));
    CHECK_NULL(remo_task_spawn(NULL, NULL, NULL, NULL));
    CHECK_NULL(remo_task_join(NULL, 1, 0, NULL));
    CHECK_NULL(remo_task_sleep(NULL, 1));
    CHECK_OK(remo_scheduler_close(NULL));
    return 0;
}

static int channels(struct remo_channel *root) {
    struct remo_stats stats;
    struct remo_channel *channel;
    uint32_t memory;
    CHECK_INVALID(remo_channel_open(NULL, "x", "test", NULL, &channel));
    CHECK_INVALID(remo_channel_open(root, "x", "test", NULL, NULL));
    CHECK_INVALID(remo_channel_add_memory(NULL, "m", 8, 8, NULL, &memory));
    CHECK_INVALID(remo_channel_join(NULL));
    CHECK_NULL(remo_channel_wait(NULL, 0));
    CHECK_NULL(remo_channel_send(NULL, 0, "", 0));
    CHECK(!remo_channel_node(NULL) && !remo_channel_participants(NULL) && !remo_channel_memory(NULL, 0));
    CHECK(strcmp(remo_channel_name(NULL), "") == 0 && remo_channel_peer(NULL, 0) == REMO_CHANNEL_DOWN);
    remo_channel_stats(NULL, &stats);
    remo_channel_stats(root, NULL);
    remo_channel_close(NULL);
    return 0;
}

/* ---- each object: its results for NULL, and NULL for each result ---- */

static int regions(struct remo_channel *root) {
    struct remo_region *region;
    struct remo_addr addr;
    uint64_t word = 0;
    CHECK_NULL(remo_region_open(NULL, "x", 64, NULL, &region));
    CHECK_NULL(remo_region_open(root, "x", 64, NULL, NULL));
    CHECK_OK(remo_region_open(root, "x", 64, NULL, &region));
    CHECK_NULL(remo_region_address(NULL, 0, 0, &addr));
    CHECK_NULL(remo_region_address(region, 0, 0, NULL));
    CHECK_NULL(remo_region_read(NULL, 0, 0, &word, 8, NULL));
    CHECK_NULL(remo_region_read(region, 0, 0, NULL, 8, NULL));
    CHECK_NULL(remo_region_write(NULL, 0, 0, &word, 8, 0, NULL));
    CHECK_NULL(remo_region_write(region, 0, 0, NULL, 8, 0, NULL));
    CHECK_NULL(remo_region_write_immediate(NULL, 0, 0, &word, 8, 0, NULL));
    CHECK_NULL(remo_region_write_immediate(region, 0, 0, NULL, 8, 0, NULL));
    CHECK_NULL(remo_region_fetch_add(NULL, 0, 0, 1, NULL, NULL));
    CHECK_NULL(remo_region_compare_swap(NULL, 0, 0, 0, 1, NULL, NULL));
    CHECK_OK(remo_region_fetch_add(region, 0, 0, 1, NULL, NULL));
    CHECK(!remo_region_channel(NULL) && !remo_region_local(NULL) && remo_region_bytes(NULL) == 0);
    remo_region_prefetch(NULL, 0, 0, 8);
    remo_region_close(NULL);
    remo_region_close(region);
    return 0;
}

static int atomic_vars(struct remo_channel *root) {
    struct remo_atomic_var *var;
    uint64_t word;
    CHECK_NULL(remo_atomic_var_open(NULL, "x", NULL, &var));
    CHECK_NULL(remo_atomic_var_open(root, "x", NULL, NULL));
    CHECK_OK(remo_atomic_var_open(root, "x", NULL, &var));
    CHECK_NULL(remo_atomic_var_load(NULL, 0, &word, NULL));
    CHECK_NULL(remo_atomic_var_load(var, 0, NULL, NULL));
    CHECK_NULL(remo_atomic_var_fetch_add(NULL, 0, 1, NULL, NULL));
    CHECK_NULL(remo_atomic_var_compare_swap(NULL, 0, 0, 1, &word, NULL));
    CHECK_INVALID(remo_atomic_var_compare_swap(var, 0, 0, 1, NULL, NULL));
    CHECK_NULL(remo_atomic_var_store(NULL, 0, 1));
    CHECK_NULL(remo_atomic_var_exchange(NULL, 0, 1, &word));
    CHECK(!remo_atomic_var_channel(NULL));
    remo_atomic_var_close(NULL);
    remo_atomic_var_close(var);
    return 0;
}

static int owned_vars(struct remo_channel *root) {
    struct remo_owned_var *var;
    uint64_t word = 0;
    CHECK_NULL(remo_owned_var_open(NULL, "x", 8, NULL, &var));
    CHECK_NULL(remo_owned_var_open(root, "x", 8, NULL, NULL));
    CHECK_OK(remo_owned_var_open(root, "x", 8, NULL, &var));
    CHECK_NULL(remo_owned_var_store(NULL, &word));
    CHECK_NULL(remo_owned_var_store(var, NULL));
    CHECK_NULL(remo_owned_var_load(NULL, &word));
    CHECK_INVALID(remo_owned_var_load(var, NULL));
    CHECK_NULL(remo_owned_var_push(NULL, 0, NULL));
    CHECK_NULL(remo_owned_var_push_all(NULL, NULL));
    CHECK_NULL(remo_owned_var_pull(NULL, &word));
    CHECK_OK(remo_owned_var_pull(var, NULL));
    CHECK_NULL(remo_owned_var_wait(NULL, &word, NULL, 0));
    CHECK_INVALID(remo_owned_var_wait(var, NULL, NULL, 0));
    CHECK(!remo_owned_var_channel(NULL));
    remo_owned_var_close(NULL);
    remo_owned_var_close(var);
    return 0;
}

static int never(void *ctx, struct remo_sst *sst) {
    (void)ctx, (void)sst;
    return 0;
}

static int ssts_and_barriers(struct remo_channel *root) {
    struct remo_barrier *barrier;
    struct remo_sst *sst;
    uint64_t word = 0;
    CHECK_NULL(remo_sst_open(NULL, "x", 8, NULL, &sst));
    CHECK_NULL(remo_sst_open(root, "x", 8, NULL, NULL));
    CHECK_OK(remo_sst_open(root, "x", 8, NULL, &sst));
    CHECK_NULL(remo_sst_store(NULL, &word));
    CHECK_NULL(remo_sst_store(sst, NULL));
    CHECK_NULL(remo_sst_load(NULL, 0, &word));
    CHECK_INVALID(remo_sst_load(sst, 0, NULL));
    CHECK_NULL(remo_sst_push(NULL, 0, NULL));
    CHECK_NULL(remo_sst_push_all(NULL, NULL));
    CHECK_NULL(remo_sst_wait(NULL, never, NULL, 0));
    CHECK_NULL(remo_sst_wait(sst, NULL, NULL, 0));
    CHECK(!remo_sst_channel(NULL) && remo_sst_next(NULL, 0) == REMO_NODES_MAX);
    remo_sst_close(NULL);
    remo_sst_close(sst);
    CHECK_INVALID(remo_barrier_open(NULL, "x", NULL, &barrier));
    CHECK_NULL(remo_barrier_open(root, "x", NULL, NULL));
    CHECK_NULL(remo_barrier_wait(NULL, 0));
    CHECK(!remo_barrier_channel(NULL));
    remo_barrier_close(NULL);
    return 0;
}

static int locks_and_queues(struct remo_channel *root) {
    struct remo_lock *lock;
    struct remo_queue *queue;
    uint64_t word = 0;
    size_t bytes;
    CHECK_NULL(remo_lock_open(NULL, "x", NULL, &lock));
    CHECK_NULL(remo_lock_open(root, "x", NULL, NULL));
    CHECK_NULL(remo_lock_acquire(NULL, 0, 0));
    CHECK_NULL(remo_lock_release(NULL, 0, REMO_FENCE_NONE));
    CHECK_NULL(remo_lock_consistent(NULL, 0));
    CHECK(!remo_lock_channel(NULL) && remo_lock_home(NULL, 0) == REMO_NODES_MAX);
    remo_lock_close(NULL);
    CHECK_NULL(remo_queue_open(NULL, "x", NULL, &queue));
    CHECK_NULL(remo_queue_open(root, "x", NULL, NULL));
    CHECK_OK(remo_queue_open(root, "x", NULL, &queue));
    CHECK_INVALID(remo_queue_push(NULL, &word, 8, 0));
    CHECK_INVALID(remo_queue_push(queue, NULL, 8, 0));
    CHECK_INVALID(remo_queue_pop(NULL, &word, 8, &bytes, 0));
    CHECK_INVALID(remo_queue_pop(queue, NULL, 8, &bytes, 0));
    CHECK_INVALID(remo_queue_pop(queue, &word, 8, NULL, 0));
    CHECK(!remo_queue_channel(NULL));
    remo_queue_close(NULL);
    remo_queue_close(queue);
    return 0;
}

static int ringbuffers(struct remo_channel *root) {
    struct remo_ringbuffer *ring;
    const void *found;
    void *message;
    uint64_t word = 0;
    size_t bytes;
    CHECK_NULL(remo_ringbuffer_open(NULL, "x", NULL, &ring));
    CHECK_NULL(remo_ringbuffer_open(root, "x", NULL, NULL));
    CHECK_OK(remo_ringbuffer_open(root, "x", NULL, &ring));
    CHECK_NULL(remo_ringbuffer_send(NULL, &word, 8, 0, NULL));
    CHECK_NULL(remo_ringbuffer_send(ring, NULL, 8, 0, NULL));
    CHECK_NULL(remo_ringbuffer_loan(NULL, 8, 0, &message));
    CHECK_NULL(remo_ringbuffer_loan(ring, 8, 0, NULL));
    CHECK_NULL(remo_ringbuffer_commit(NULL, 8, NULL));
    CHECK_NULL(remo_ringbuffer_cancel(NULL));
    CHECK_NULL(remo_ringbuffer_peek(NULL, &found, &bytes, 0));
    CHECK_NULL(remo_ringbuffer_peek(ring, NULL, &bytes, 0));
    CHECK_NULL(remo_ringbuffer_peek(ring, &found, NULL, 0));
    CHECK_NULL(remo_ringbuffer_consume(NULL));
    CHECK_NULL(remo_ringbuffer_wait_received(NULL, 0, 0));
    CHECK_NULL(remo_ringbuffer_receive(NULL, &word, 8, &bytes, 0));
    CHECK_NULL(remo_ringbuffer_acknowledge(NULL));
    CHECK(!remo_ringbuffer_channel(NULL) && remo_ringbuffer_message_bytes_max(NULL) == 0);
    remo_ringbuffer_close(NULL);
    remo_ringbuffer_close(ring);
    return 0;
}

static int maps(struct remo_channel *root) {
    struct remo_kv *kv;
    struct remo_kv_op op = {.kind = REMO_KV_GET};
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    uint64_t key = 1, value = 0;
    size_t bytes;
    CHECK_INVALID(remo_kv_open(NULL, "x", NULL, &kv));
    CHECK_INVALID(remo_kv_open(root, "x", NULL, NULL));
    CHECK_OK(remo_kv_open(root, "x", &(struct remo_kv_options){.capacity = 100, .value_bytes_max = 8}, &kv));
    CHECK_NULL(remo_kv_get(NULL, &key, 8, &value, 8, NULL));
    CHECK_INVALID(remo_kv_get(kv, NULL, 8, &value, 8, NULL));
    CHECK_NULL(remo_kv_insert(NULL, &key, 8, &value, 8));
    CHECK_INVALID(remo_kv_insert(kv, NULL, 8, &value, 8));
    CHECK_INVALID(remo_kv_insert(kv, &key, 8, NULL, 8));
    CHECK_OK(remo_kv_insert(kv, &key, 8, &value, 8));
    CHECK_INVALID(remo_kv_get(kv, &key, 8, NULL, 8, NULL));
    CHECK_NULL(remo_kv_update(NULL, &key, 8, &value, 8));
    CHECK_INVALID(remo_kv_update(kv, NULL, 8, &value, 8));
    CHECK_INVALID(remo_kv_update(kv, &key, 8, NULL, 8));
    CHECK_NULL(remo_kv_delete(NULL, &key, 8));
    CHECK_INVALID(remo_kv_delete(kv, NULL, 8));
    CHECK_NULL(remo_kv_start(NULL, &op));
    CHECK_NULL(remo_kv_start(kv, NULL));
    CHECK_NULL(remo_kv_poll(NULL));
    CHECK_NULL(remo_kv_wait(NULL, &op));
    CHECK_NULL(remo_kv_wait(kv, NULL));
    CHECK(!remo_kv_channel(NULL) && remo_kv_count(NULL) == 0);
    CHECK_NULL(remo_kv_put(NULL, &key, 8, &value, 8));
    CHECK_INVALID(remo_kv_put(kv, NULL, 8, &value, 8));
    CHECK_INVALID(remo_kv_put(kv, &key, 8, NULL, 8));
    CHECK_NULL(remo_kv_fetch_add(NULL, &key, 8, 1, &value));
    CHECK_INVALID(remo_kv_fetch_add(kv, NULL, 8, 1, &value));
    CHECK_OK(remo_kv_fetch_add(kv, &key, 8, 1, NULL));
    CHECK_NULL(remo_kv_compare_put(NULL, &key, 8, &value, 8, &value, 8));
    CHECK_INVALID(remo_kv_compare_put(kv, NULL, 8, &value, 8, &value, 8));
    CHECK_INVALID(remo_kv_compare_put(kv, &key, 8, NULL, 8, &value, 8));
    CHECK_INVALID(remo_kv_compare_put(kv, &key, 8, &value, 8, NULL, 8));
    CHECK_NULL(remo_kv_next(NULL, &cursor, &key, 8, &bytes, &value, 8, &bytes));
    CHECK_NULL(remo_kv_next(kv, NULL, &key, 8, &bytes, &value, 8, &bytes));
    CHECK_NULL(remo_kv_next(kv, &cursor, NULL, 8, &bytes, &value, 8, &bytes));
    CHECK_NULL(remo_kv_next(kv, &cursor, &key, 8, NULL, &value, 8, &bytes));
    CHECK_NULL(remo_kv_next(kv, &cursor, &key, 8, &bytes, NULL, 8, &bytes));
    CHECK_OK(remo_kv_next(kv, &cursor, &key, 8, &bytes, NULL, 0, NULL));
    remo_kv_close(NULL);
    remo_kv_close(kv);
    return 0;
}

static int collectives(struct remo_channel *root) {
    struct remo_collective_options options = {.bytes_max = 64};
    struct remo_collective *all;
    uint64_t word = 0, sum;
    CHECK_INVALID(remo_collective_open(NULL, "x", &options, &all));
    CHECK_NULL(remo_collective_open(root, "x", &options, NULL));
    CHECK_OK(remo_collective_open(root, "x", &options, &all));
    CHECK_NULL(remo_collective_broadcast(NULL, 0, &word, 8, 0));
    CHECK_NULL(remo_collective_broadcast(all, 0, NULL, 8, 0));
    CHECK_NULL(remo_collective_reduce(NULL, 0, &word, &sum, 1, REMO_NUMBER_U64, REMO_REDUCTION_SUM, 0));
    CHECK_NULL(remo_collective_reduce(all, 0, NULL, &sum, 1, REMO_NUMBER_U64, REMO_REDUCTION_SUM, 0));
    CHECK_NULL(remo_collective_reduce(all, 0, &word, NULL, 1, REMO_NUMBER_U64, REMO_REDUCTION_SUM, 0));
    CHECK_NULL(remo_collective_all_reduce(NULL, &word, &sum, 1, REMO_NUMBER_U64, REMO_REDUCTION_SUM, 0));
    CHECK_NULL(remo_collective_all_reduce(all, NULL, &sum, 1, REMO_NUMBER_U64, REMO_REDUCTION_SUM, 0));
    CHECK_NULL(remo_collective_all_reduce(all, &word, NULL, 1, REMO_NUMBER_U64, REMO_REDUCTION_SUM, 0));
    CHECK_NULL(remo_collective_gather(NULL, 0, &word, &sum, 8, 0));
    CHECK_NULL(remo_collective_gather(all, 0, NULL, &sum, 8, 0));
    CHECK_NULL(remo_collective_gather(all, 0, &word, NULL, 8, 0));
    CHECK_NULL(remo_collective_all_gather(NULL, &word, &sum, 8, 0));
    CHECK_NULL(remo_collective_all_gather(all, NULL, &sum, 8, 0));
    CHECK_NULL(remo_collective_all_gather(all, &word, NULL, 8, 0));
    CHECK(!remo_collective_channel(NULL));
    remo_collective_close(NULL);
    remo_collective_close(all);
    return 0;
}

static int heaps(struct remo_channel *root) {
    struct remo_heap *heap;
    struct remo_addr addr = {0};
    struct remo_heap_sizes sizes;
    CHECK_NULL(remo_heap_open(NULL, "x", NULL, &heap));
    CHECK_NULL(remo_heap_open(root, "x", NULL, NULL));
    CHECK_OK(remo_heap_open(root, "x", NULL, &heap));
    CHECK_NULL(remo_heap_alloc(NULL, 8, 0, &addr));
    CHECK_NULL(remo_heap_alloc(heap, 8, 0, NULL));
    CHECK_NULL(remo_heap_free(NULL, addr));
    CHECK_NULL(remo_heap_retire(NULL, addr));
    CHECK_NULL(remo_heap_reclaim(NULL, 0));
    CHECK_NULL(remo_heap_pin(NULL));
    CHECK_NULL(remo_heap_unpin(NULL));
    CHECK(!remo_heap_channel(NULL) && !remo_heap_local(NULL, addr));
    remo_heap_stats(NULL, &sizes);
    remo_heap_stats(heap, NULL);
    remo_heap_close(NULL);
    remo_heap_close(heap);
    return 0;
}

static int services(struct remo_channel *root) {
    struct remo_rpc *rpc;
    struct remo_rpc_handler handler = {0};
    struct remo_rpc_handler_stats stats;
    struct remo_rpc_deferred deferred = {{0}};
    CHECK_NULL(remo_rpc_open(NULL, "x", NULL, &rpc));
    CHECK_NULL(remo_rpc_open(root, "x", NULL, NULL));
    CHECK_OK(remo_rpc_open(root, "x", NULL, &rpc));
    CHECK_NULL(remo_rpc_handle(NULL, &handler));
    CHECK_NULL(remo_rpc_handle(rpc, NULL));
    CHECK_NULL(remo_rpc_call(NULL, 0, 0, NULL, 0, NULL, 0, NULL, 0));
    CHECK_NULL(remo_rpc_call(rpc, 0, 0, NULL, 1, NULL, 0, NULL, 0));
    CHECK_NULL(remo_rpc_start(NULL, &(struct remo_rpc_op){0}));
    CHECK_NULL(remo_rpc_start(rpc, NULL));
    CHECK_NULL(remo_rpc_wait(NULL));
    CHECK_NULL(remo_rpc_wait_for(NULL, 0));
    CHECK_NULL(remo_rpc_settle(NULL, 0));
    CHECK_NULL(remo_rpc_wait_all(NULL, 1));
    CHECK_NULL(remo_rpc_wait_any(NULL, 1, 0));
    CHECK_NULL(remo_rpc_test(NULL));
    CHECK_NULL(remo_rpc_post(NULL, 0, 0, NULL, 0));
    CHECK_NULL(remo_rpc_post(rpc, 0, 0, NULL, 1));
    CHECK_NULL(remo_rpc_post_queued(NULL, 0, 0, NULL, 0));
    CHECK_NULL(remo_rpc_post_queued(rpc, 0, 0, NULL, 1));
    CHECK_NULL(remo_rpc_serve(NULL, 0));
    CHECK(remo_rpc_remaining_ns(NULL) == REMO_FOREVER);
    CHECK(remo_rpc_late_count(NULL) == 0);
    CHECK_NULL(remo_rpc_reply(NULL, 0, NULL, 0));
    CHECK_NULL(remo_rpc_defer(NULL, &deferred));
    CHECK_NULL(remo_rpc_reply_later(NULL, deferred, 0, NULL, 0));
    CHECK_NULL(remo_rpc_forward(NULL, 0, 0, NULL, 0));
    CHECK_NULL(remo_rpc_stats(NULL, 0, &stats));
    CHECK_NULL(remo_rpc_stats(rpc, 0, NULL));
    CHECK(!remo_rpc_channel(NULL));
    remo_rpc_cancel(NULL);
    remo_rpc_close(NULL);
    remo_rpc_close(rpc);
    return 0;
}

static int structures(struct remo_channel *root) {
    static const struct remo_structure_type type;
    const struct remo_structure_options options = {.share_bytes = 64, .key_bytes_max = 8};
    struct remo_structure *structure;
    struct remo_table *table;
    uint64_t key = 1;
    CHECK_NULL(remo_structure_open(NULL, "x", &type, &options, &structure));
    CHECK_NULL(remo_structure_open(root, "x", NULL, &options, &structure));
    CHECK_NULL(remo_structure_open(root, "x", &type, NULL, &structure));
    CHECK_NULL(remo_structure_open(root, "x", &type, &options, NULL));
    CHECK_SENTENCE(remo_structure_open(root, "x", &type, &options, &structure), -EINVAL, "lacks a function");
    CHECK_NULL(remo_table_open(NULL, "x", NULL, &table));
    CHECK_NULL(remo_table_open(root, "x", NULL, NULL));
    CHECK_OK(remo_table_open(root, "x", NULL, &table));
    structure = remo_table_structure(table);
    CHECK_NULL(remo_structure_lookup(NULL, &key, sizeof key, &key, sizeof key, NULL, NULL));
    CHECK_NULL(remo_structure_lookup(structure, NULL, sizeof key, &key, sizeof key, NULL, NULL));
    CHECK_NULL(remo_structure_lookup(structure, &key, sizeof key, NULL, sizeof key, NULL, NULL));
    CHECK_NULL(remo_structure_insert(NULL, &key, sizeof key, &key, sizeof key));
    CHECK_NULL(remo_structure_insert(structure, &key, sizeof key, NULL, sizeof key));
    CHECK_NULL(remo_structure_update(structure, NULL, sizeof key, &key, sizeof key));
    CHECK_NULL(remo_structure_put(NULL, &key, sizeof key, &key, sizeof key));
    CHECK_NULL(remo_structure_delete(structure, NULL, sizeof key));
    CHECK(!remo_structure_channel(NULL) && !remo_table_structure(NULL));
    CHECK_EQUAL(remo_table_owner(NULL, &key, sizeof key), UINT32_MAX);
    CHECK_EQUAL(remo_table_owner(table, NULL, sizeof key), UINT32_MAX);
    remo_structure_close(NULL);
    remo_table_close(NULL);
    remo_table_close(table);
    return 0;
}

static int tx_queues(struct remo_channel *root) {
    struct remo_tx_queue *queue;
    struct remo_tx *tx;
    struct remo_tx_space *space;
    uint64_t word = 1;
    CHECK_NULL(remo_tx_queue_open(NULL, "x", NULL, &queue));
    CHECK_NULL(remo_tx_queue_open(root, "x", NULL, NULL));
    CHECK_OK(remo_tx_queue_open(root, "x", NULL, &queue));
    struct remo_structure *structure = remo_tx_queue_structure(queue);
    const struct remo_tx_space_options options = {.structures = &structure, .structure_count = 1};
    CHECK_OK(remo_tx_space_open(root, "y", &options, &space));
    CHECK_OK(remo_tx_open(space, &tx));
    CHECK_OK(remo_tx_begin(tx));
    CHECK_NULL(remo_tx_queue_push(NULL, queue, &word, sizeof word));
    CHECK_NULL(remo_tx_queue_push(tx, NULL, &word, sizeof word));
    CHECK_NULL(remo_tx_queue_push(tx, queue, NULL, sizeof word));
    CHECK_NULL(remo_tx_read_for_update(NULL, structure, &word, sizeof word, &word, sizeof word, NULL));
    CHECK_INVALID(remo_tx_read_for_update(tx, NULL, &word, sizeof word, &word, sizeof word, NULL));
    CHECK_NULL(remo_tx_read_for_update(tx, structure, NULL, sizeof word, &word, sizeof word, NULL));
    CHECK_NULL(remo_tx_read_for_update(tx, structure, &word, sizeof word, NULL, sizeof word, NULL));
    CHECK_NULL(remo_tx_queue_pop(NULL, queue, &word, sizeof word, NULL));
    CHECK_NULL(remo_tx_queue_pop(tx, NULL, &word, sizeof word, NULL));
    CHECK_NULL(remo_tx_queue_pop(tx, queue, NULL, sizeof word, NULL));
    CHECK_NULL(remo_tx_queue_count(NULL, queue, &word));
    CHECK_NULL(remo_tx_queue_count(tx, NULL, &word));
    CHECK_NULL(remo_tx_queue_count(tx, queue, NULL));
    CHECK(!remo_tx_queue_structure(NULL));
    remo_tx_close(tx);
    remo_tx_space_close(space);
    remo_tx_queue_close(NULL);
    remo_tx_queue_close(queue);
    return 0;
}

static void visit(void *ctx, const struct remo_versioned_view *view) {
    (void)ctx, (void)view;
}

static int versioned_objects(struct remo_channel *root) {
    struct remo_versioned *versioned;
    struct remo_versioned_options options = {.objects = 1, .object_bytes = 8};
    uint64_t word = 1, version;
    struct remo_versioned_change change = {.size_bytes = sizeof word, .data = &word};
    struct remo_versioned_item item = {.value = &word};
    CHECK_NULL(remo_versioned_open(NULL, "x", NULL, &versioned));
    CHECK_NULL(remo_versioned_open(root, "x", NULL, NULL));
    CHECK_OK(remo_versioned_open(root, "x", &options, &versioned));
    CHECK_NULL(remo_versioned_commit(NULL, &change, 1, NULL));
    CHECK_NULL(remo_versioned_commit(versioned, NULL, 1, NULL));
    CHECK_OK(remo_versioned_commit(versioned, &change, 1, NULL));
    change.data = NULL;
    CHECK_INVALID(remo_versioned_commit(versioned, &change, 1, NULL));
    CHECK_NULL(remo_versioned_read(NULL, 0, 0, &word, NULL));
    CHECK_NULL(remo_versioned_read(versioned, 0, 0, NULL, NULL));
    CHECK_OK(remo_versioned_read(versioned, 0, 0, &word, NULL));
    CHECK_NULL(remo_versioned_read_many(NULL, 0, &item, 1, NULL));
    CHECK_NULL(remo_versioned_read_many(versioned, 0, NULL, 1, NULL));
    CHECK_OK(remo_versioned_read_many(versioned, 0, &item, 1, NULL));
    CHECK_NULL(remo_versioned_visit(NULL, 0, 0, 1, visit, NULL, NULL));
    CHECK_NULL(remo_versioned_visit(versioned, 0, 0, 1, NULL, NULL, NULL));
    CHECK_OK(remo_versioned_visit(versioned, 0, 0, 1, visit, NULL, NULL));
    CHECK_NULL(remo_versioned_visit_many(NULL, 0, 1, visit, &item, 1));
    CHECK_NULL(remo_versioned_visit_many(versioned, 0, 1, NULL, &item, 1));
    CHECK_NULL(remo_versioned_visit_many(versioned, 0, 1, visit, NULL, 1));
    CHECK_NULL(remo_versioned_visit_each(NULL, 0, visit, visit, &item, 1));
    CHECK_NULL(remo_versioned_visit_each(versioned, 0, NULL, visit, &item, 1));
    CHECK_NULL(remo_versioned_visit_each(versioned, 0, visit, NULL, &item, 1));
    CHECK_NULL(remo_versioned_visit_each(versioned, 0, visit, visit, NULL, 1));
    CHECK_OK(remo_versioned_visit_each(versioned, 0, visit, visit, &item, 1));
    CHECK_NULL(remo_versioned_read_many_at(NULL, 0, 1, &item, 1));
    CHECK_NULL(remo_versioned_read_many_at(versioned, 0, 1, NULL, 1));
    CHECK_OK(remo_versioned_read_many_at(versioned, 0, 1, &item, 1));
    item.value = NULL;
    CHECK_INVALID(remo_versioned_read_many_at(versioned, 0, 1, &item, 1));
    CHECK_INVALID(remo_versioned_read_many(versioned, 0, &item, 1, NULL));
    CHECK_NULL(remo_versioned_version(NULL, 0, &version));
    CHECK_NULL(remo_versioned_version(versioned, 0, NULL));
    CHECK_NULL(remo_versioned_read_at(NULL, 0, 0, 1, &word, NULL));
    CHECK_NULL(remo_versioned_read_at(versioned, 0, 0, 1, NULL, NULL));
    CHECK_OK(remo_versioned_read_at(versioned, 0, 0, 1, &word, NULL));
    CHECK(!remo_versioned_channel(NULL));
    remo_versioned_close(NULL);
    remo_versioned_close(versioned);
    return 0;
}

static int tree_changes(struct remo_tree *tree) {
    CHECK_NULL(remo_tree_insert(NULL, "k", 1, "v", 1));
    CHECK_NULL(remo_tree_insert(tree, NULL, 1, "v", 1));
    CHECK_NULL(remo_tree_insert(tree, "k", 1, NULL, 1));
    CHECK_NULL(remo_tree_update(NULL, "k", 1, "v", 1));
    CHECK_NULL(remo_tree_update(tree, NULL, 1, "v", 1));
    CHECK_NULL(remo_tree_update(tree, "k", 1, NULL, 1));
    CHECK_NULL(remo_tree_upsert(NULL, "k", 1, "v", 1));
    CHECK_NULL(remo_tree_upsert(tree, NULL, 1, "v", 1));
    CHECK_NULL(remo_tree_upsert(tree, "k", 1, NULL, 1));
    CHECK_NULL(remo_tree_remove(NULL, "k", 1));
    CHECK_NULL(remo_tree_remove(tree, NULL, 1));
    CHECK_NULL(remo_tree_compare_put(NULL, "k", 1, "e", 1, "v", 1));
    CHECK_NULL(remo_tree_compare_put(tree, NULL, 1, "e", 1, "v", 1));
    CHECK_NULL(remo_tree_compare_put(tree, "k", 1, NULL, 1, "v", 1));
    CHECK_NULL(remo_tree_compare_put(tree, "k", 1, "e", 1, NULL, 1));
    const struct remo_tree_write wrong[] = {
        {.kind = REMO_TREE_UPSERT, .key = {NULL, 1}, .value = {"v", 1}},
        {.kind = REMO_TREE_UPSERT, .key = {"k", 1}, .value = {NULL, 1}},
        {.kind = REMO_TREE_COMPARE_PUT, .key = {"k", 1}, .value = {"v", 1}, .expected = {NULL, 1}}};
    CHECK_NULL(remo_tree_apply(NULL, wrong, 1, NULL));
    CHECK_NULL(remo_tree_apply(tree, NULL, 1, NULL));
    for (uint32_t i = 0; i < 3; i++)
        CHECK_NULL(remo_tree_apply(tree, &wrong[i], 1, NULL));
    CHECK_OK(remo_tree_insert(tree, NULL, 0, NULL, 0)); /* the empty key */
    CHECK_OK(remo_tree_update(tree, NULL, 0, NULL, 0));
    return 0;
}

static int tree_reads(struct remo_tree *tree) {
    char buffer[8];
    size_t bytes = 9, offset = 0;
    struct remo_tree_range range = {.limit = 1};
    struct remo_tree_result result = {0};
    struct remo_tree_entry entry;
    struct remo_tree_owner_stats stats;
    struct remo_tree_item item = {.key = {"k", 1}};
    uint64_t count;
    CHECK_NULL(remo_tree_get(NULL, "k", 1, buffer, sizeof buffer, &bytes));
    CHECK_NULL(remo_tree_get(tree, NULL, 1, buffer, sizeof buffer, &bytes));
    CHECK_NULL(remo_tree_get(tree, "k", 1, NULL, sizeof buffer, &bytes));
    CHECK_NULL(remo_tree_get(tree, "k", 1, buffer, sizeof buffer, NULL));
    CHECK_OK(remo_tree_get(tree, NULL, 0, buffer, sizeof buffer, &bytes));
    CHECK_EQUAL(bytes, 0);
    CHECK_NULL(remo_tree_remove_range(NULL, &range, &count));
    CHECK_NULL(remo_tree_remove_range(tree, NULL, &count));
    CHECK_NULL(remo_tree_get_many(NULL, &item, 1));
    CHECK_NULL(remo_tree_get_many(tree, NULL, 1));
    CHECK_NULL(remo_tree_get_many(tree, &item, 1)); /* the value is NULL */
    CHECK_NULL(remo_tree_scan(NULL, &range, buffer, sizeof buffer, &result));
    CHECK_NULL(remo_tree_scan(tree, &range, NULL, sizeof buffer, &result));
    CHECK_NULL(remo_tree_scan(tree, &range, buffer, sizeof buffer, NULL));
    CHECK_NULL(remo_tree_count(NULL, &range, &count));
    CHECK_NULL(remo_tree_count(tree, &range, NULL));
    CHECK_OK(remo_tree_count(tree, NULL, &count));
    CHECK_NULL(remo_tree_snapshot(NULL, &count));
    CHECK_NULL(remo_tree_snapshot(tree, NULL));
    CHECK_OK(remo_tree_snapshot(tree, &count)); /* of one owner */
    CHECK_NULL(remo_tree_get_at(NULL, &count, "k", 1, buffer, sizeof buffer, &bytes));
    CHECK_NULL(remo_tree_get_at(tree, NULL, "k", 1, buffer, sizeof buffer, &bytes));
    CHECK_NULL(remo_tree_get_at(tree, &count, NULL, 1, buffer, sizeof buffer, &bytes));
    CHECK_NULL(remo_tree_get_at(tree, &count, "k", 1, NULL, sizeof buffer, &bytes));
    CHECK_NULL(remo_tree_get_at(tree, &count, "k", 1, buffer, sizeof buffer, NULL));
    CHECK_OK(remo_tree_get_at(tree, &count, NULL, 0, buffer, sizeof buffer, &bytes));
    CHECK_NULL(remo_tree_stats(NULL, &stats));
    CHECK_NULL(remo_tree_stats(tree, NULL));
    CHECK(remo_tree_owners(NULL) == 0);
    CHECK_OK(remo_tree_scan(tree, NULL, buffer, sizeof buffer, &result));
    CHECK(!remo_tree_result_next(NULL, &result, &offset, &entry));
    CHECK(!remo_tree_result_next(buffer, NULL, &offset, &entry));
    CHECK(!remo_tree_result_next(buffer, &result, NULL, &entry));
    CHECK(!remo_tree_result_next(buffer, &result, &offset, NULL));
    CHECK(remo_tree_result_next(buffer, &result, &offset, &entry) && entry.key.bytes == 0);
    return 0;
}

static int tree_cursors(struct remo_tree *tree) {
    struct remo_tree_cursor *cursor;
    struct remo_tree_entry entry;
    CHECK_NULL(remo_tree_cursor_open(NULL, NULL, 0, &cursor));
    CHECK_NULL(remo_tree_cursor_open(tree, NULL, 0, NULL));
    CHECK_OK(remo_tree_cursor_open(tree, NULL, 0, &cursor));
    CHECK_NULL(remo_tree_cursor_next(NULL, &entry));
    CHECK_NULL(remo_tree_cursor_next(cursor, NULL));
    CHECK_NULL(remo_tree_cursor_prev(NULL, &entry));
    CHECK_NULL(remo_tree_cursor_prev(cursor, NULL));
    CHECK_NULL(remo_tree_cursor_seek(NULL, "k", 1));
    CHECK_NULL(remo_tree_cursor_seek(cursor, NULL, 1));
    CHECK_OK(remo_tree_cursor_seek(cursor, NULL, 0));
    CHECK(remo_tree_cursor_next(cursor, &entry) == 1 && entry.key.bytes == 0);
    remo_tree_cursor_close(NULL);
    remo_tree_cursor_close(cursor);
    return 0;
}

static int tree_windows(struct remo_tree *tree) {
    struct remo_tree_op op = {.kind = REMO_TREE_GET, .key_bytes = 1};
    CHECK_NULL(remo_tree_start(NULL, &op));
    CHECK_NULL(remo_tree_start(tree, NULL));
    CHECK_NULL(remo_tree_start(tree, &op)); /* the key is NULL */
    CHECK_NULL(remo_tree_poll(NULL));
    CHECK_NULL(remo_tree_wait(NULL, &op));
    CHECK_NULL(remo_tree_wait(tree, NULL));
    CHECK(remo_tree_poll(tree) == 0);
    return 0;
}

static int trees(struct remo_channel *root) {
    struct remo_tree *tree;
    CHECK_NULL(remo_tree_open(NULL, "t", NULL, &tree));
    CHECK_INVALID(remo_tree_open(root, NULL, NULL, &tree));
    CHECK_NULL(remo_tree_open(root, "t", NULL, NULL));
    CHECK_OK(remo_tree_open(root, "t", NULL, &tree));
    CHECK(tree_changes(tree) == 0);
    CHECK(tree_reads(tree) == 0);
    CHECK(tree_cursors(tree) == 0);
    CHECK(tree_windows(tree) == 0);
    CHECK(!remo_tree_channel(NULL) && remo_tree_owner(NULL, "k", 1) == 0);
    CHECK_EQUAL(remo_tree_owner(tree, NULL, 0), 0);
    remo_tree_close(NULL);
    remo_tree_close(tree);
    return 0;
}

static int null_arguments(struct remo_node *node, void *ctx) {
    struct remo_channel *root = remo_node_root(node);
    (void)ctx;
    CHECK_INVALID(remo_node_open(NULL, NULL));
    remo_node_close(NULL);
    return nodes(node) || events(node) || tasks(node) || channels(root) || regions(root) || atomic_vars(root)
           || owned_vars(root) || ssts_and_barriers(root) || locks_and_queues(root) || ringbuffers(root)
           || maps(root) || collectives(root) || heaps(root) || services(root) || structures(root)
           || trees(root) || tx_queues(root) || versioned_objects(root);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(null_arguments, 1),
        {0},
    };
    return cluster_main(argc, argv, tests, NULL);
}
