/* test_kv_window.c - windows of the map whose steps interleave in a way that is rare: between the tasks of a
 * thread, between a change and a get of one thread, with the service thread, and in handlers of calls. Also
 * messages to a node that pauses, or has started again. Tests that hold a mutex of the map make the other
 * thread or task pause at a known place. */
#include <pthread.h>
#include <unistd.h>

#include "../../support/job.h"
#include "../../support/pause.h"
#include "systems/kv/kv.h"
#include "kv_common.h"
#include "remote/workers.h"

struct window {
    _Atomic bool is_held[2], is_released[2]; /* the service thread of each node */
    _Atomic uint64_t inserted;               /* the key that the last handler has inserted */
    _Atomic pid_t pid;                       /* of node 1 */
};
static struct window *window;

static int open_small(struct remo_node *node, struct remo_kv **ret_kv) {
    struct remo_kv_options options = {.capacity = 1000, .key_bytes_max = 8, .value_bytes_max = 8};
    return kv_open(node, &options, ret_kv);
}

static struct remo_kv_op op_of(enum remo_kv_kind kind, uint64_t *key, uint64_t *value) {
    return (struct remo_kv_op){.kind = kind, .key = key, .key_bytes = 8, .value = value, .value_bytes = 8};
}

static enum remo__kv_step step_of(struct remo_kv_op *op) {
    return op->status == -EINPROGRESS ? remo__kv_op_state(op)->step : REMO__KV_STEP_SETTLED;
}

static uint32_t stripe_of(const struct remo_kv *kv, uint64_t key) {
    return remo__kv_stripe_of(kv, remo__kv_hash(&key, 8));
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
        sending->ops[i] = op_of(REMO_KV_INSERT, &sending->keys[i], &sending->keys[i]);
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
    CHECK_OK(remo_lock_acquire(kv->locks, stripe_of(kv, sending->keys[0]), 100 * SECOND));
    CHECK_OK(remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER));
    sending->is_locked = true;
    while (atomic_load(&kv->send_mutex.state) != 2)
        remo_task_yield();
    CHECK_EQUAL(step_of(&sending->ops[1]), REMO__KV_STEP_SEND);
    CHECK_OK(remo_lock_release(kv->locks, stripe_of(kv, sending->keys[0]), REMO_FENCE_NONE));
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
    if (open_small(node, &sending.kv) != 0)
        return 1;
    while (stripe_of(sending.kv, sending.keys[1]) == stripe_of(sending.kv, sending.keys[0]))
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
    if (open_small(node, &kv) != 0)
        return 1;
    for (uint32_t i = 0; i < 2 && remo_node_rank(node) == 1; i++)
        CHECK_OK(remo_kv_insert(kv, &keys[i], 8, &keys[i], 8));
    CHECK_OK(cluster_meet());
    kv->workers_max = 0; /* as if all workers of the thread had changes of other windows */
    for (uint32_t lap = 0; lap < LAPS && remo_node_rank(node) == 0; lap++) {
        struct remo_kv_op op = op_of(REMO_KV_UPDATE, &keys[0], &keys[0]);
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
    struct locking locking = {.kv = kv, .stripe = stripe_of(kv, keys[1])};
    pthread_t thread;
    while (stripe_of(kv, keys[0]) == locking.stripe)
        keys[0] += 2;
    while (stripe_of(kv, keys[2]) == locking.stripe || stripe_of(kv, keys[2]) == stripe_of(kv, keys[0]))
        keys[2] += 2;
    while (stripe_of(kv, keys[3]) == locking.stripe || stripe_of(kv, keys[3]) == stripe_of(kv, keys[0])
           || stripe_of(kv, keys[3]) == stripe_of(kv, keys[2]) || keys[3] == keys[0])
        keys[3] += 2;
    CHECK(pthread_create(&thread, NULL, hold_stripe, &locking) == 0);
    while (!atomic_load(&locking.is_locked))
        cluster_sleep_ms(1);
    for (uint32_t i = 0; i < 3; i++) {
        ops[i] = op_of(REMO_KV_INSERT, &keys[i], &keys[i]);
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    while (step_of(&ops[0]) != REMO__KV_STEP_ACK || step_of(&ops[2]) != REMO__KV_STEP_ACK)
        CHECK(remo_kv_poll(kv) == 3);
    CHECK(fill_messages(kv) == 0);
    ops[3] = op_of(REMO_KV_INSERT, &keys[3], &keys[3]);
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
    if (open_small(node, &kv) != 0)
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
        ops[i] = op_of(REMO_KV_GET, key, &values[i]);
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
    if (open_small(node, &kv) != 0)
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
    CHECK(open_small(node, &chain.kv) == 0);
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

/* ---- an insert that is not sent ---- */

/* Its slot is free at once, and its key is absent and not locked. */
static int unsent(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key = 1, value = 2;
    (void)ctx;
    CHECK(open_small(node, &kv) == 0);
    struct remo__kv_thread *mine = remo__kv_thread(kv);
    uint32_t free_count = remo__kv_pool_free(&kv->pool);
    struct remo_kv_op op = op_of(REMO_KV_INSERT, &key, &value);
    uint64_t hash = remo__kv_hash(&key, sizeof key);
    *remo__kv_op_state(&op) = (struct remo__kv_op_state){.owner = mine, .hash = hash};
    CHECK_OK(remo__kv_lock(kv, mine, hash, 100 * SECOND));
    CHECK_CODE(remo__kv_change(kv, mine, &op), -EINPROGRESS);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count - 1);
    mine->to_send_count--;
    CHECK_CODE(remo__kv_change_abort(kv, &op, false, -ETIMEDOUT), -ETIMEDOUT);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count);
    CHECK_CODE(remo_kv_get(kv, &key, sizeof key, &value, sizeof value, NULL), -ENOENT);
    CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &value, sizeof value));
    remo_kv_close(kv);
    return 0;
}

/* ---- a slot whose record was lost ---- */

/* The slot is freed only with a record for all nodes, so not while there is no room to defer it. */
static int stale_slot(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key = 1, value = 2, hash = remo__kv_hash(&key, sizeof key);
    (void)ctx;
    CHECK(open_small(node, &kv) == 0);
    CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &value, sizeof value));
    struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, hash);
    uint64_t entry = remo__kv_index_first(&kv->index, &cursor);
    uint32_t free_count = remo__kv_pool_free(&kv->pool);
    CHECK_OK(remo__mutex_lock(kv->node, &kv->send_mutex, REMO_FOREVER));
    kv->deferred_count = REMO__KV_DEFERRED_MAX;
    CHECK(!remo__kv_free_stale(kv, hash, entry));
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count);
    CHECK_EQUAL(remo_kv_count(kv), 1);
    kv->deferred_count = 0;
    CHECK(remo__kv_free_stale(kv, hash, entry));
    CHECK(!remo__kv_free_stale(kv, hash, entry));
    CHECK_EQUAL(kv->deferred_count, 1);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count + 1);
    CHECK_EQUAL(remo_kv_count(kv), 0);
    remo__kv_send_deferred(kv);
    CHECK_EQUAL(kv->deferred_count, 0);
    remo__mutex_unlock(kv->node, &kv->send_mutex);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), free_count + 1);
    remo_kv_close(kv);
    return 0;
}

/* Make a slot of this node DELETED, with an entry that no record removes. */
static int add_deleted(struct remo_kv *kv, uint64_t key, uint32_t slot) {
    char *at = kv->own + remo__kv_slot_at(kv, slot);
    uint64_t hash = remo__kv_hash(&key, sizeof key);
    remo__store(at, remo__kv_head_make(1, sizeof key, REMO__KV_DELETED));
    remo__store(at + 8, key);
    CHECK_OK(remo__kv_index_add(&kv->index, hash, remo__kv_entry_make(hash, kv->rank, slot, 1)));
    return 0;
}

/* A scan that has no room for a record does not count as one. After a scan that finds nothing, a bounded
 * number of further ones finds a slot, without a pause. The peer opens no map, so no record is sent. */
static int reclaims(struct remo_node *node, void *ctx) {
    enum { CAPACITY = 1000, SCANS = 20 };
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = CAPACITY, .key_bytes_max = 8, .value_bytes_max = 8};
    (void)ctx;
    if (remo_node_rank(node) != 0)
        return cluster_meet();
    node->op_timeout_ns = SECOND / 10; /* of the close */
    CHECK_OK(remo_kv_open(remo_node_root(node), "kv", &options, &kv));
    CHECK(kv->slots_per_node < SCANS * 64);
    CHECK_OK(remo__mutex_lock(node, &kv->index_mutex, REMO_FOREVER));
    while (remo__kv_pool_take(&kv->pool) != REMO__KV_NO_SLOT)
        ;
    remo__mutex_unlock(node, &kv->index_mutex);
    CHECK(add_deleted(kv, 1, kv->slots_per_node - 1) == 0);
    CHECK_OK(remo__mutex_lock(node, &kv->send_mutex, REMO_FOREVER));
    kv->deferred_count = REMO__KV_DEFERRED_MAX;
    remo__mutex_unlock(node, &kv->send_mutex);
    remo__kv_reclaim(kv);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), 0);
    CHECK_OK(remo__mutex_lock(node, &kv->send_mutex, REMO_FOREVER));
    kv->deferred_count = 0;
    remo__mutex_unlock(node, &kv->send_mutex);
    remo__kv_reclaim(kv);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), 1);
    CHECK(add_deleted(kv, 2, kv->slots_per_node - 2) == 0);
    for (uint32_t scans = 0; scans < SCANS && remo__kv_pool_free(&kv->pool) == 1; scans++)
        remo__kv_reclaim(kv);
    CHECK_EQUAL(remo__kv_pool_free(&kv->pool), 2);
    remo_kv_close(kv);
    return cluster_meet();
}

/* Inserts of a window find no free slot. On a network, workers scan the slots on their small stacks. */
static int full_window(struct remo_node *node, void *ctx) {
    enum { WINDOW = 4 };
    struct remo_kv *kv;
    struct remo_kv_options options = {.capacity = 10, .value_bytes_max = 8};
    struct remo_kv_op ops[WINDOW];
    uint64_t keys[WINDOW], key = 0;
    (void)ctx;
    if (kv_open(node, &options, &kv) != 0)
        return 1;
    for (; remo_node_rank(node) == 0 && remo__kv_pool_free(&kv->pool) > 0; key++)
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
    for (uint32_t i = 0; i < WINDOW && remo_node_rank(node) == 0; i++) {
        struct remo__kv_cursor cursor =
            remo__kv_index_seek(&kv->index, remo__kv_hash(&(uint64_t){i}, sizeof key));
        char *slot =
            kv->own + remo__kv_slot_at(kv, remo__kv_entry_slot(remo__kv_index_first(&kv->index, &cursor)));
        remo__store(slot, remo__kv_head_with(remo__load(slot), REMO__KV_DELETED));
        keys[i] = key + i;
        ops[i] = op_of(REMO_KV_INSERT, &keys[i], &keys[i]);
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    for (uint32_t i = 0; i < WINDOW && remo_node_rank(node) == 0; i++)
        CHECK_OK(remo_kv_wait(kv, &ops[i]));
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

/* ---- updates of one key ---- */

/* A window of updates of one key takes the operations of one update on a network. All of them start before a
 * worker begins, so the last one wins. */
static int merged(struct remo_node *node, void *ctx) {
    enum { WINDOW = 8 };
    struct remo_kv *kv;
    struct remo_kv_op ops[WINDOW];
    struct remo_stats before, after;
    uint64_t key = 1, values[WINDOW], value = 0;
    (void)ctx;
    CHECK(open_small(node, &kv) == 0);
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &value, sizeof value));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_kv_update(kv, &key, sizeof key, &value, sizeof value)); /* connects */
        remo_channel_stats(remo_kv_channel(kv), &before);
        for (uint32_t i = 0; i < WINDOW; i++) {
            values[i] = i + 1;
            ops[i] = op_of(REMO_KV_UPDATE, &key, &values[i]);
            CHECK_OK(remo_kv_start(kv, &ops[i]));
        }
        for (uint32_t i = 0; i < WINDOW; i++)
            CHECK_OK(remo_kv_wait(kv, &ops[i]));
        remo_channel_stats(remo_kv_channel(kv), &after);
        CHECK_EQUAL(after.reads - before.reads, 1);
        CHECK(after.writes - before.writes <= 2); /* the reply to the insert may be counted only now */
        CHECK_EQUAL(after.atomics - before.atomics, 2);
        CHECK_OK(remo_kv_get(kv, &key, sizeof key, &value, sizeof value, NULL));
        CHECK_EQUAL(value, WINDOW);
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

/* Merged updates of an absent key have the error of the one into which they are merged. */
static int merged_absent(struct remo_node *node, void *ctx) {
    enum { WINDOW = 4 };
    struct remo_kv *kv;
    struct remo_kv_op ops[WINDOW];
    uint64_t key = 1;
    (void)ctx;
    CHECK(open_small(node, &kv) == 0);
    for (uint32_t i = 0; i < WINDOW; i++) {
        ops[i] = op_of(REMO_KV_UPDATE, &key, &key);
        CHECK_OK(remo_kv_start(kv, &ops[i]));
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        CHECK_SENTENCE(remo_kv_wait(kv, &ops[i]), -ENOENT, "key");
    CHECK_EQUAL(remo_kv_poll(kv), 0);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

/* Advance an update of an absent key until its worker has found no slot, and waits for the release of the
 * lock, whose home is node 0. */
static int advance_to_release(struct remo_kv *kv, struct remo_kv_op *op) {
    struct remo_stats before, after;
    remo_channel_stats(remo_kv_channel(kv), &before);
    CHECK_OK(remo_kv_start(kv, op));
    do {
        (void)remo_kv_poll(kv);
        remo_channel_stats(remo_kv_channel(kv), &after);
    } while (after.atomics < before.atomics + 2);
    return 0;
}

/* Wait until node 1 has released the lock of the key, without a ticket: a grant would need a poll there. */
static int await_release(struct remo_kv *kv, uint64_t key) {
    int rc;
    while ((rc = remo_lock_acquire(kv->locks, stripe_of(kv, key), 0)) == -ETIMEDOUT)
        cluster_sleep_ms(1);
    CHECK_OK(rc);
    CHECK_OK(remo_lock_release(kv->locks, stripe_of(kv, key), REMO_FENCE_NONE));
    return 0;
}

/* An update finds no slot. While it releases the lock, node 0 inserts the key. An update that starts after
 * the insert is not merged into the first one. */
static int merged_late(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key = 1;
    (void)ctx;
    CHECK(open_small(node, &kv) == 0);
    while (remo_lock_home(kv->locks, stripe_of(kv, key)) != 0)
        key++;
    struct remo_kv_op early = op_of(REMO_KV_UPDATE, &key, &key), late = early;
    if (remo_node_rank(node) == 1) {
        CHECK_CODE(remo_kv_update(kv, &key, sizeof key, &key, sizeof key), -ENOENT); /* connects */
        CHECK(advance_to_release(kv, &early) == 0);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 0) {
        CHECK(await_release(kv, key) == 0);
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK_OK(remo_kv_start(kv, &late));
        CHECK_CODE(remo_kv_wait(kv, &early), -ENOENT);
        CHECK_OK(remo_kv_wait(kv, &late));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

/* ---- deferred records ---- */

/* Node 1 deletes a key, and its record is deferred. It makes no further change, but its service thread sends
 * the record. */
static int deferred(struct remo_node *node, void *ctx) {
    struct remo_kv *kv;
    uint64_t key = 1, hash = remo__kv_hash(&key, sizeof key);
    (void)ctx;
    CHECK(open_small(node, &kv) == 0);
    if (remo_node_rank(node) == 0)
        CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        struct remo__kv_cursor cursor = remo__kv_index_seek(&kv->index, hash);
        uint64_t entry = remo__kv_index_first(&kv->index, &cursor);
        const struct remo__kv_record record = {
            .hash = hash, .entry = (entry & ~(UINT64_C(0xffff) << 48)) | REMO__KV_RECORD_REMOVE << 48};
        remo__kv_defer_record(kv, &record);
    }
    CHECK(kv_wait_for_count(kv, 0) == 0);
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return 0;
}

/* ---- stale entries of other keys with the same fingerprint ---- */

#define NEIGHBOUR_KEYS (REMO__KV_LINE_ENTRIES + 1)

/* Return key number `n` whose entry belongs into the line. */
static uint64_t key_of_line(const struct remo_kv *kv, uint32_t line, uint32_t n) {
    for (uint64_t key = 1;; key++) {
        uint64_t hash = remo__kv_index_hash(kv, remo__kv_hash(&key, sizeof key));
        if (remo__kv_index_line_of(&kv->index, hash) == line && n-- == 0)
            return key;
    }
}

/* Set the head of the slot of `key`, which is on this node. */
static int set_head(struct remo_kv *kv, uint64_t key, uint32_t generation, enum remo__kv_state state) {
    struct remo__kv_cursor cursor =
        remo__kv_index_seek(&kv->index, remo__kv_index_hash(kv, remo__kv_hash(&key, sizeof key)));
    for (uint64_t entry; (entry = remo__kv_index_next(&kv->index, &cursor)) != 0;) {
        char *slot = kv->own + remo__kv_slot_at(kv, remo__kv_entry_slot(entry));
        if (remo__load(slot + 8) != key)
            continue;
        remo__store(slot, remo__kv_head_make(generation, sizeof key, state));
        return 0;
    }
    return 1;
}

/* All fingerprints are equal. A line is full, and one of its keys is in the next line. There a search for an
 * absent key of the first line meets the entry of a neighbour, whose slot is deleted, or has another
 * generation. Afterwards all keys of the line are still found. */
static int neighbour(struct remo_node *node, uint32_t searcher, uint32_t generation) {
    struct remo_kv *kv;
    uint32_t rank = remo_node_rank(node);
    uint64_t value;
    if (open_small(node, &kv) != 0)
        return 1;
    remo__kv_set_hash_mask(kv, ~UINT64_C(0xffff));
    CHECK_OK(cluster_meet());
    uint64_t stale = key_of_line(kv, 2, 0), absent = key_of_line(kv, 1, NEIGHBOUR_KEYS);
    if (rank == 0) {
        CHECK_OK(remo_kv_insert(kv, &stale, sizeof stale, &stale, sizeof stale));
        for (uint32_t i = 0; i < NEIGHBOUR_KEYS; i++) {
            uint64_t key = key_of_line(kv, 1, i);
            CHECK_OK(remo_kv_insert(kv, &key, sizeof key, &key, sizeof key));
        }
        CHECK(set_head(kv, stale, generation, REMO__KV_DELETED) == 0);
    }
    CHECK_OK(cluster_meet());
    if (rank == searcher)
        CHECK_CODE(remo_kv_delete(kv, &absent, sizeof absent), -ENOENT);
    for (uint32_t i = 0; i < NEIGHBOUR_KEYS; i++) {
        uint64_t key = key_of_line(kv, 1, i);
        CHECK_OK(remo_kv_get(kv, &key, sizeof key, &value, sizeof value, NULL));
    }
    if (rank == searcher) /* a record of the node of the slot removes the entry */
        CHECK_EQUAL(remo_kv_count(kv), NEIGHBOUR_KEYS + (searcher != 0));
    CHECK_OK(cluster_meet());
    if (rank == 0)
        CHECK_OK(remo_kv_insert(kv, &absent, sizeof absent, &value, sizeof value));
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i <= NEIGHBOUR_KEYS; i++) {
        uint64_t key = key_of_line(kv, 1, i);
        CHECK_OK(remo_kv_get(kv, &key, sizeof key, &value, sizeof value, NULL));
    }
    CHECK_OK(cluster_meet());
    remo_kv_close(kv);
    return cluster_meet();
}

static int neighbours(struct remo_node *node, void *ctx) {
    (void)ctx;
    int rc = neighbour(node, 0, 1);
    rc = rc ? rc : neighbour(node, 1, 1);
    return rc ? rc : neighbour(node, 1, 2);
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
        CLUSTER_TEST(unsent, 1),
        CLUSTER_TEST(stale_slot, 1),
        CLUSTER_TEST(reclaims, 2),
        CLUSTER_TEST(full_window, 2),
        CLUSTER_TEST(merged, 2, .only_on = "ofi"),
        CLUSTER_TEST(merged_absent, 2),
        CLUSTER_TEST(merged_late, 2, .only_on = "ofi"),
        CLUSTER_TEST(deferred, 2),
        CLUSTER_TEST(neighbours, 2),
        {0},
    };
    window = cluster_shared(sizeof *window);
    return cluster_main(argc, argv, tests, setup);
}
