/* test_kv_window.c - windows of the map whose steps interleave in a way that is rare: between the tasks of a
 * thread, between a change and a get of one thread, with the service thread, and in handlers of calls. Also
 * messages to a node that pauses, or has started again. Tests that hold a mutex of the map make the other
 * thread or task pause at a known place. */
#include <pthread.h>
#include <unistd.h>

#include "../../support/job.h"
#include "../../support/pause.h"
#include "kv_common.h"
#include "kv_internal.h"
#include "remote/workers.h"

struct window {
    _Atomic bool is_held[2], is_released[2]; /* the service thread of each node */
    _Atomic uint64_t inserted;               /* the key that the last handler has inserted */
    _Atomic pid_t pid;                       /* of node 1 */
};
static struct window *window;

static enum remo__kv_step step_of(struct remo_kv_op *op) {
    return op->status == -EINPROGRESS ? remo__kv_op_state(op)->step : REMO__KV_STEP_SETTLED;
}

/* ---- the service threads ---- */

static void hold(void *ctx) {
    const uint32_t *rank = ctx;
    atomic_store(&window->is_held[*rank], true);
    while (!atomic_load(&window->is_released[*rank]))
        cluster_sleep_ms(1);
}

struct holding {
    struct remo_ringbuffer *rings[2];
    uint32_t rank;
};

/* Hold the service threads of both nodes. */
static int hold_services(struct remo_node *node, struct holding *holding) {
    holding->rank = remo_node_rank(node);
    for (uint32_t sender = 0; sender < 2; sender++) {
        struct remo_ringbuffer_options options = {
            .sender = sender, .ctx = &holding->rank, .on_arrival = hold};
        CHECK_OK(remo_ringbuffer_open(remo_node_root(node), sender == 0 ? "ring-0" : "ring-1", &options,
                                      &holding->rings[sender]));
        CHECK_OK(remo_channel_wait(remo_ringbuffer_channel(holding->rings[sender]), 100 * SECOND));
    }
    CHECK_OK(remo_ringbuffer_send(holding->rings[holding->rank], "", 1, 100 * SECOND, NULL));
    while (!atomic_load(&window->is_held[holding->rank]))
        cluster_sleep_ms(1);
    CHECK_OK(cluster_meet());
    return 0;
}

static void release_service(const struct holding *holding) {
    atomic_store(&window->is_released[holding->rank], true);
}

static int close_rings(const struct holding *holding) {
    release_service(holding);
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 2; i++)
        remo_ringbuffer_close(holding->rings[i]);
    return 0;
}

/* ---- records: a change of the window gets its record while others are being sent ---- */

struct sending {
    struct remo_kv *kv;
    uint64_t keys[2];
    struct remo_kv_op ops[2];
    bool is_locked;
};

/* Two inserts. The second one alone is at step SEND when this task begins to send. */
static int insert_two(void *ctx) {
    struct sending *sending = ctx;
    while (!sending->is_locked)
        remo_task_yield();
    for (uint32_t i = 0; i < 2; i++) {
        sending->ops[i] = kv_op_of(REMO_KV_INSERT, &sending->keys[i], &sending->keys[i]);
        CHECK_OK(remo_kv_start(sending->kv, &sending->ops[i]));
    }
    CHECK_OK(remo_kv_wait(sending->kv, &sending->ops[1]));
    CHECK_OK(remo_kv_wait(sending->kv, &sending->ops[0]));
    return 0;
}

/* Hold the stripe of the first insert until the other task waits for the mutex of the messages. Then let the
 * first insert advance to step SEND before that task continues. */
static int delay_first(void *ctx) {
    struct sending *sending = ctx;
    struct remo_kv *kv = sending->kv;
    CHECK_OK(remo_lock_acquire(kv->locks, kv_stripe_of(kv, sending->keys[0]), 100 * SECOND));
    CHECK_OK(remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER));
    sending->is_locked = true;
    while (atomic_load(&kv->send_mutex.state) != 2)
        remo_task_yield();
    CHECK_EQUAL(step_of(&sending->ops[1]), REMO__KV_STEP_SEND);
    CHECK_OK(remo_lock_release(kv->locks, kv_stripe_of(kv, sending->keys[0]), REMO_FENCE_NONE));
    while (step_of(&sending->ops[0]) != REMO__KV_STEP_SEND) {
        CHECK(remo_kv_poll(kv) == 0); /* runs the workers of the thread */
        remo_task_yield();
    }
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    return 0;
}

static int records_while_sending(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct sending sending = {.keys = {1, 2}};
    struct remo_scheduler *scheduler;
    remo_task_id ids[2];
    uint64_t value = 0;
    if (kv_open_small(node, &sending.kv) != 0)
        return 1;
    while (kv_stripe_of(sending.kv, sending.keys[1]) == kv_stripe_of(sending.kv, sending.keys[0]))
        sending.keys[1]++;
    if (remo_node_rank(node) == 0) {
        CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
        CHECK_OK(remo_task_spawn(scheduler, insert_two, &sending, &ids[0]));
        CHECK_OK(remo_task_spawn(scheduler, delay_first, &sending, &ids[1]));
        for (uint32_t i = 0; i < 2; i++) {
            int result = -1;
            CHECK_OK(remo_task_join(scheduler, ids[i], REMO_FOREVER, &result));
            CHECK_OK(result);
        }
        CHECK_OK(remo_scheduler_close(scheduler));
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(remo_kv_get(sending.kv, &sending.keys[i], 8, &value, 8, NULL));
        CHECK_EQUAL(value, sending.keys[i]);
    }
    CHECK_EQUAL(remo_kv_count(sending.kv), 2);
    CHECK_OK(cluster_meet());
    remo_kv_close(sending.kv);
    return 0;
}

/* ---- buffers: a worker uses the state of its window, and the thread reads meanwhile ---- */

static uint64_t reads_of(struct remo_kv *kv) {
    struct remo_stats stats;
    remo_channel_stats(remo_kv_channel(kv), &stats);
    return stats.reads;
}

static int check_other(struct remo_kv *kv, uint64_t other, bool with_cursor) {
    uint64_t key, value = 0;
    size_t bytes;
    CHECK_OK(remo_kv_get(kv, &other, 8, &value, 8, NULL));
    CHECK_EQUAL(value, other);
    struct remo_kv_cursor cursor = REMO_KV_CURSOR_INIT;
    for (uint32_t i = 0; with_cursor && i < 2; i++) {
        CHECK_OK(remo_kv_next(kv, &cursor, &key, 8, &bytes, &value, 8, NULL));
        CHECK_EQUAL(value, key);
    }
    return 0;
}

static int reads_beside_change(struct remo_node *node, void *ctx) {
    (void)ctx;
    enum { LAPS = 20 };
    struct remo_kv *kv;
    uint64_t keys[] = {1, 2};
    if (kv_open_small(node, &kv) != 0)
        return 1;
    for (uint32_t i = 0; i < 2 && remo_node_rank(node) == 1; i++)
        CHECK_OK(remo_kv_insert(kv, &keys[i], 8, &keys[i], 8));
    CHECK_OK(cluster_meet());
    kv->workers_max = 0; /* as if all workers of the thread had changes of other windows */
    for (uint32_t lap = 0; lap < LAPS && remo_node_rank(node) == 0; lap++) {
        struct remo_kv_op op = kv_op_of(REMO_KV_UPDATE, &keys[0], &keys[0]);
        uint64_t before = reads_of(kv);
        CHECK_OK(remo_kv_start(kv, &op));
        while (reads_of(kv) == before)
            CHECK(remo_kv_poll(kv) == 1);
        CHECK(check_other(kv, keys[1], lap % 2 == 1) == 0); /* while the worker's read is in flight */
        CHECK_OK(remo_kv_wait(kv, &op));
        CHECK_OK(remo_kv_get(kv, &keys[0], 8, &before, 8, NULL));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- sentences: an operation in flight does not replace the sentence of one that has failed ---- */

struct locking {
    struct remo_kv *kv;
    uint32_t stripe;
    _Atomic bool is_locked, is_done;
    int rc;
};

static void *hold_stripe(void *ctx) {
    struct locking *locking = ctx;
    locking->rc = remo_lock_acquire(locking->kv->locks, locking->stripe, 100 * SECOND);
    atomic_store(&locking->is_locked, true);
    while (!atomic_load(&locking->is_done))
        cluster_sleep_ms(1);
    if (locking->rc == 0)
        locking->rc = remo_lock_release(locking->kv->locks, locking->stripe, REMO_FENCE_NONE);
    return NULL;
}

/* Send records that remove nothing until all messages are in flight. */
static int fill_messages(struct remo_kv *kv) {
    const struct remo__kv_record record = {.hash = 1, .entry = REMO__KV_RECORD_REMOVE << 48};
    uint32_t count;
    uint64_t number;
    int rc = 0;
    while (rc == 0)
        rc = remo__kv_send_records(kv, &record, 1, &count, &number);
    CHECK_EQUAL(rc, -ETIMEDOUT);
    return 0;
}

/* An insert fails. An earlier and a later one are not acknowledged, because the service thread of the peer is
 * held, and the last one is not sent. */
static int fail_between(struct remo_kv *kv) {
    uint64_t keys[] = {2, 1, 3, 4};
    struct remo_kv_op ops[4];
    struct locking locking = {.kv = kv, .stripe = kv_stripe_of(kv, keys[1])};
    pthread_t thread;
    while (kv_stripe_of(kv, keys[0]) == locking.stripe)
        keys[0] += 2;
    while (kv_stripe_of(kv, keys[2]) == locking.stripe
           || kv_stripe_of(kv, keys[2]) == kv_stripe_of(kv, keys[0]))
        keys[2] += 2;
    while (kv_stripe_of(kv, keys[3]) == locking.stripe
           || kv_stripe_of(kv, keys[3]) == kv_stripe_of(kv, keys[0])
           || kv_stripe_of(kv, keys[3]) == kv_stripe_of(kv, keys[2]) || keys[3] == keys[0])
        keys[3] += 2;
    CHECK(pthread_create(&thread, NULL, hold_stripe, &locking) == 0);
    while (!atomic_load(&locking.is_locked))
        cluster_sleep_ms(1);
    for (uint32_t i = 0; i < 3; i++) {
        ops[i] = kv_op_of(REMO_KV_INSERT, &keys[i], &keys[i]);
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    while (step_of(&ops[0]) != REMO__KV_STEP_ACK || step_of(&ops[2]) != REMO__KV_STEP_ACK)
        CHECK(remo_kv_poll(kv) == 3);
    CHECK(fill_messages(kv) == 0);
    ops[3] = kv_op_of(REMO_KV_INSERT, &keys[3], &keys[3]);
    CHECK_OK(remo_kv_start(kv, &ops[3]));
    while (step_of(&ops[3]) != REMO__KV_STEP_SEND)
        CHECK(remo_kv_poll(kv) == 4);
    atomic_store(&locking.is_done, true);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(locking.rc);
    CHECK_SENTENCE(remo_kv_wait(kv, &ops[1]), -EEXIST, "it is present");
    atomic_store(&window->is_released[1], true);
    CHECK_OK(remo_kv_wait(kv, &ops[0]));
    CHECK_OK(remo_kv_wait(kv, &ops[2]));
    CHECK_OK(remo_kv_wait(kv, &ops[3]));
    return 0;
}

static int sentences(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct holding holding;
    uint64_t key = 1;
    if (kv_open_small(node, &kv) != 0)
        return 1;
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_kv_insert(kv, &key, 8, &key, 8));
    CHECK_OK(cluster_meet());
    if (hold_services(node, &holding) != 0)
        return 1;
    if (remo_node_rank(node) == 0 && (release_service(&holding), fail_between(kv) != 0))
        return 1;
    while (!atomic_load(&window->is_released[1]))
        cluster_sleep_ms(1);
    if (close_rings(&holding) != 0)
        return 1;
    remo_kv_close(kv);
    return 0;
}

/* ---- late gets ---- */

enum { LATE = 100 }; /* more reads in flight than a word has bits */

static int start_gets(struct remo_kv *kv, struct remo_kv_op ops[LATE], uint64_t *key, uint64_t values[LATE]) {
    for (uint32_t i = 0; i < LATE; i++) {
        ops[i] = kv_op_of(REMO_KV_GET, key, &values[i]);
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    return 0;
}

/* All reads have ended, so no buffer is in use or lost. */
static int count_buffers(struct remo_kv *kv) {
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    uint32_t count = 0;
    CHECK_EQUAL(mine->reads_count, 0);
    while (remo__kv_buffer_take(mine) >= 0)
        count++;
    CHECK_EQUAL(count, REMO__KV_READS_MAX);
    return 0;
}

/* Gets time out, because their node is paused. Later gets use their buffers again. */
static int late_gets(struct remo_node *node, void *ctx) {
    (void)ctx;
    struct remo_kv *kv;
    struct remo_kv_op ops[LATE];
    uint64_t key = 1, values[LATE], before = node->op_timeout_ns;
    if (kv_open_small(node, &kv) != 0)
        return 1;
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_kv_insert(kv, &key, 8, &key, 8));
        atomic_store(&window->pid, getpid());
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK(process_pause(atomic_load(&window->pid)) == 0);
        node->op_timeout_ns = 10000000;
        CHECK(start_gets(kv, ops, &key, values) == 0);
        for (uint32_t i = 0; i < LATE; i++)
            CHECK_SENTENCE(remo_kv_wait(kv, &ops[i]), -ETIMEDOUT, "its slot could not be read");
        node->op_timeout_ns = before;
        CHECK(kill(atomic_load(&window->pid), SIGCONT) == 0);
        CHECK(start_gets(kv, ops, &key, values) == 0);
        for (uint32_t i = 0; i < LATE; i++) {
            CHECK_OK(remo_kv_wait(kv, &ops[i]));
            CHECK_EQUAL(values[i], key);
        }
        CHECK(count_buffers(kv) == 0);
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- inserts in handlers ---- */

struct chain {
    struct remo_kv *kv;
    struct remo_rpc *rpc;
    uint32_t rank;
};

static struct remo_rpc_op call_of(uint32_t node, const uint64_t *key, uint64_t timeout_ns) {
    return (struct remo_rpc_op){
        .node = node, .request = key, .request_bytes = sizeof *key, .timeout_ns = timeout_ns};
}

/* A LONG handler. It calls the handler of the other node until no deeper call is possible. Then it waits
 * until its request has no time left, if it has a deadline, and inserts the key. */
static int insert_deepest(void *ctx, const struct remo_rpc_request *request) {
    struct chain *chain = ctx;
    uint64_t key;
    memcpy(&key, request->data, sizeof key);
    struct remo_rpc_op call = call_of(1 - chain->rank, &key, REMO_FOREVER);
    int rc = remo_rpc_start(chain->rpc, &call);
    if (rc == 0)
        return remo_rpc_wait(&call);
    if (rc != -ELOOP)
        return rc;
    while (remo_rpc_remaining_ns(chain->rpc) > 0 && remo_rpc_remaining_ns(chain->rpc) != REMO_FOREVER)
        remo_task_yield();
    rc = remo_kv_insert(chain->kv, &key, sizeof key, &key, sizeof key);
    atomic_store(&window->inserted, key);
    return rc;
}

/* An insert needs no calls of the depth of its handler, and no time of the handler's request. */
static int inserts_in_handlers(struct remo_node *node, void *ctx) {
    struct chain chain = {.rank = remo_node_rank(node)};
    const struct remo_rpc_handler handler = {.run = insert_deepest, .ctx = &chain, .kind = REMO_RPC_LONG};
    const struct remo_rpc_options options = {.handlers = &handler, .handler_count = 1};
    uint64_t keys[] = {1, 2}, value = 0;
    (void)ctx;
    CHECK(kv_open_small(node, &chain.kv) == 0);
    CHECK_OK(remo_rpc_open(remo_node_root(node), "chain", &options, &chain.rpc));
    CHECK_OK(remo_channel_wait(remo_rpc_channel(chain.rpc), 100 * SECOND));
    CHECK_OK(cluster_meet());
    if (chain.rank == 0) {
        CHECK_OK(remo_rpc_call(chain.rpc, 1, 0, &keys[0], sizeof keys[0], NULL, 0, NULL, REMO_FOREVER));
        CHECK_CODE(remo_rpc_call(chain.rpc, 1, 0, &keys[1], sizeof keys[1], NULL, 0, NULL, SECOND),
                   -ETIMEDOUT);
        while (atomic_load(&window->inserted) != 2) /* ends at the timeout of the test */
            cluster_sleep_ms(1);
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(remo_kv_get(chain.kv, &keys[i], 8, &value, 8, NULL));
        CHECK_EQUAL(value, keys[i]);
    }
    CHECK_OK(cluster_meet());
    remo_rpc_close(chain.rpc);
    remo_kv_close(chain.kv);
    return 0;
}

/* ---- replies that no thread takes ---- */

/* Delete keys one by one, and do not use the map again. */
static int leave_deletes(struct remo_kv *kv) {
    for (uint64_t key = 1; key <= REMO__KV_MESSAGES_MAX; key++)
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
    for (uint64_t key = 1; key <= REMO__KV_MESSAGES_MAX; key++)
        CHECK_OK(remo_kv_delete(kv, &key, sizeof key));
    return 0;
}

/* Maps whose deletes together need more reply slots than there are do not delay another map. */
static int idle_maps(struct remo_node *node, void *ctx) {
    enum { MAPS = 6 };
    static const char *const names[MAPS] = {"a", "b", "c", "d", "e", "f"};
    struct remo_kv_options options = {.capacity = 100, .key_bytes_max = 8, .value_bytes_max = 8};
    struct remo_kv *kvs[MAPS];
    uint64_t key = 1;
    (void)ctx;
    for (uint32_t i = 0; i < MAPS; i++) {
        CHECK_OK(remo_kv_open(remo_node_root(node), names[i], &options, &kvs[i]));
        CHECK_OK(remo_channel_wait(remo_kv_channel(kvs[i]), 100 * SECOND));
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        for (uint32_t i = 1; i < MAPS; i++)
            CHECK(leave_deletes(kvs[i]) == 0);
        CHECK_OK(remo_kv_insert(kvs[0], &key, sizeof key, &key, sizeof key));
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < MAPS; i++)
        remo_kv_close(kvs[i]);
    return 0;
}

/* ---- a participant that pauses ---- */

/* Open a map of two nodes. */
static int open_pair(struct remo_node *node, const char *name, uint32_t other, struct remo_kv **ret_kv) {
    struct remo_kv_options options = {.capacity = 100, .key_bytes_max = 8, .value_bytes_max = 8};
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.participants, other);
    CHECK_OK(remo_kv_open(remo_node_root(node), name, &options, ret_kv));
    CHECK_OK(remo_channel_wait(remo_kv_channel(*ret_kv), 100 * SECOND));
    return 0;
}

/* Node 2 pauses. The messages of five maps to it need more reply slots than there are. They do not stop a map
 * in which it does not take part. */
static int paused_elsewhere(struct remo_node *node, void *ctx) {
    enum { MAPS = 5, PAUSED = 2 };
    static const char *const names[MAPS] = {"a", "b", "c", "d", "e"};
    struct remo_kv *kvs[MAPS] = {0}, *kv = NULL;
    uint32_t rank = remo_node_rank(node);
    uint64_t key = 1;
    (void)ctx;
    for (uint32_t i = 0; i < MAPS && rank != 1; i++)
        CHECK(open_pair(node, names[i], PAUSED, &kvs[i]) == 0);
    if (rank != PAUSED)
        CHECK(open_pair(node, "other", 1, &kv) == 0);
    else
        atomic_store(&window->pid, getpid());
    CHECK_OK(cluster_meet());
    if (rank == 0) {
        CHECK(process_pause(atomic_load(&window->pid)) == 0);
        for (uint32_t i = 0; i < MAPS; i++)
            CHECK(fill_messages(kvs[i]) == 0);
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
        CHECK(kill(atomic_load(&window->pid), SIGCONT) == 0);
        for (uint32_t i = 0; i < MAPS; i++)
            CHECK_OK(remo_kv_insert(kvs[i], &key, sizeof key, &key, sizeof key));
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < MAPS; i++)
        remo_kv_close(kvs[i]);
    remo_kv_close(kv);
    return 0;
}

/* ---- a participant that starts again ---- */

static int open_both(const struct job_node *nodes, const char *name, struct remo_kv **kvs) {
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_kv_open(remo_node_root(nodes[i].node), name, NULL, &kvs[i]));
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(remo_channel_wait(remo_kv_channel(kvs[i]), 100 * SECOND));
    return 0;
}

/* No insert returns 0 without the acknowledgement of the node that has started again. */
static int started_again(struct remo_node *node, void *ctx) {
    struct job_node nodes[2] = {{0}};
    struct remo_kv *kvs[2];
    struct job job;
    uint64_t key = 1, value = 2;
    (void)ctx;
    CHECK_OK(job_make(&job, 2));
    for (uint32_t i = 0; i < 2; i++)
        nodes[i] = (struct job_node){.job = &job, .rank = i, .fabric = remo_node_fabric(node)};
    CHECK_OK(job_open_all(nodes, 2));
    CHECK(open_both(nodes, "before", kvs) == 0);
    CHECK_OK(remo_kv_insert(kvs[0], &key, sizeof key, &value, sizeof value));
    remo_kv_close(kvs[1]);
    remo_node_close(nodes[1].node);
    CHECK_OK(job_rejoin(&nodes[1], 1, nodes[0].node));
    remo_kv_close(kvs[0]);
    CHECK(open_both(nodes, "after", kvs) == 0);
    for (uint32_t i = 0; i < 2; i++) {
        nodes[i].node->op_timeout_ns = SECOND / 10;
        CHECK_CODE(remo_kv_insert(kvs[i], &key, sizeof key, &value, sizeof value), -ETIMEDOUT);
    }
    for (uint32_t i = 0; i < 2; i++)
        CHECK_CODE(remo_kv_get(kvs[i], &key, sizeof key, &value, sizeof value, NULL), -ENOENT);
    for (uint32_t i = 0; i < 2; i++)
        remo_kv_close(kvs[i]);
    job_close_all(nodes, 2);
    job_remove(&job);
    return 0;
}

static void setup(void) {
    for (uint32_t i = 0; i < 2; i++) {
        atomic_store(&window->is_held[i], false);
        atomic_store(&window->is_released[i], false);
    }
    atomic_store(&window->inserted, 0);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(records_while_sending, 2, .only_on = "ofi"),
        CLUSTER_TEST(reads_beside_change, 2, .only_on = "ofi"),
        CLUSTER_TEST(sentences, 2),
        CLUSTER_TEST(late_gets, 2, .only_on = "ofi"),
        CLUSTER_TEST(inserts_in_handlers, 2),
        CLUSTER_TEST(idle_maps, 2),
        CLUSTER_TEST(paused_elsewhere, 3),
        CLUSTER_TEST(started_again, 1),
        {0},
    };
    window = cluster_shared(sizeof *window);
    return cluster_main(argc, argv, tests, setup);
}
