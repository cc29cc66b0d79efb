/* kills_work.c - one node of test_kills: it works on a map, a queue and values behind locks, and records each
 * call with its result, until it is killed or has detected all failures. Then the survivors read
 * everything. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "kills.h"
#include "objects/queue/queue.h"
#include "sim/oracle.h"

#define KEYS 2048u
#define COUNTER_WORDS 20u
#define COUNTER_BYTES (COUNTER_WORDS * 8u)
#define LINGER_NS_MAX 1000000u /* longest time in a critical section */
#define AFTERWARDS 100u        /* turns of the survivors after the failures */
#define CALLS_KEPT 4096u       /* space in each history for calls after the failures */

struct actor {
    struct remo_node *node;
    struct remo_kv *kv;
    struct remo_queue *queue;
    struct remo_lock *lock;
    struct remo_region *counters;
    struct kills_node *own;
    struct remo__random random;
    uint64_t last_value; /* the last value that a get returned */
    uint32_t rank;
    uint64_t number; /* of the last value or element that this node made */
};

static uint32_t dice(struct actor *actor, uint32_t limit) {
    return (uint32_t)remo__random_below(&actor->random, limit);
}

/* Return a number that no other call of any node uses. */
static uint64_t new_number(struct actor *actor) {
    return (uint64_t)(actor->rank + 1) << 32 | ++actor->number;
}

/* ---- recording ---- */

static void set_state(struct actor *actor, enum kills_state state) {
    atomic_store_explicit(&actor->own->state, state, memory_order_relaxed);
}

static uint32_t begin(struct actor *actor, enum kills_object object, const struct call *call) {
    struct call mine = *call;
    mine.actor = actor->rank;
    return history_begin(&actor->own->histories[object], &mine, cluster_now_ns());
}

static void end(struct actor *actor, enum kills_object object, uint32_t index, int code, uint64_t result) {
    history_end(&actor->own->histories[object], index, code, result, cluster_now_ns());
}

/* The call had no effect. (A call that is neither ended nor forgotten has been applied once, or not at
 * all.) */
static void forget(struct actor *actor, enum kills_object object, uint32_t index) {
    actor->own->histories[object].calls[index].end = HISTORY_NONE;
}

static int has_room(const struct actor *actor, enum kills_object object, uint32_t kept) {
    return actor->own->histories[object].count + kept < KILLS_CALLS_MAX;
}

/* Return whether `rc` is the error for a failed node, and a node was killed. */
static int is_down(int rc) {
    for (uint32_t i = 0; rc == -EHOSTDOWN && i < kills_run->victim_count; i++)
        if (atomic_load(&kills_run->nodes[kills_run->victims[i].rank].killed_ns) != 0)
            return 1;
    return 0;
}

static int has_failed(const struct actor *actor, uint32_t rank) {
    return remo_node_peer(actor->node, rank) == REMO_PEER_DEAD;
}

static int have_failed(const struct actor *actor) {
    for (uint32_t i = 0; i < kills_run->victim_count; i++)
        if (!has_failed(actor, kills_run->victims[i].rank))
            return 0;
    return 1;
}

/* ---- the map ---- */

/* Make the call. `value` is the argument and the result; *ret_bytes is the length of the result. */
static int do_map_call(struct actor *actor, const struct call *call, const uint64_t *expected,
                       uint64_t *value, size_t *ret_bytes) {
    uint64_t key = call->key;
    size_t size = kills_run->words * sizeof value[0];
    struct remo_kv *kv = actor->kv;
    *ret_bytes = size;
    switch (call->function) {
    case MAP_GET: return remo_kv_get(kv, &key, sizeof key, value, size, ret_bytes);
    case MAP_INSERT: return remo_kv_insert(kv, &key, sizeof key, value, size);
    case MAP_UPDATE: return remo_kv_update(kv, &key, sizeof key, value, size);
    case MAP_PUT: return remo_kv_put(kv, &key, sizeof key, value, size);
    case MAP_ADD: return remo_kv_fetch_add(kv, &key, sizeof key, call->argument, value);
    case MAP_COMPARE: return remo_kv_compare_put(kv, &key, sizeof key, expected, size, value, size);
    default: return remo_kv_delete(kv, &key, sizeof key);
    }
}

static int is_map_answer(uint32_t function, int rc) {
    if (rc == 0 || function == MAP_PUT)
        return rc == 0;
    return function == MAP_INSERT ? rc == -EEXIST
                                  : rc == -ENOENT || (function == MAP_COMPARE && rc == -ESTALE);
}

static int map_call(struct actor *actor, uint32_t function, uint64_t key) {
    uint64_t value[KILLS_WORDS_MAX], expected[KILLS_WORDS_MAX];
    struct call call = {.function = function, .key = key, .second = actor->last_value};
    size_t bytes;
    call.argument = function == MAP_GET ? 0 : new_number(actor);
    for (uint32_t i = 0; i < kills_run->words; i++) {
        value[i] = call.argument;
        expected[i] = call.second;
    }
    uint32_t index = begin(actor, KILLS_MAP, &call);
    int rc = do_map_call(actor, &call, expected, value, &bytes);
    CHECK(is_map_answer(function, rc) || is_down(rc));
    if (rc == 0 && function != MAP_ADD)
        for (uint32_t i = 0; i < kills_run->words; i++)
            CHECK(value[i] == value[0] && bytes == kills_run->words * sizeof value[0]);
    if (rc == 0 && function == MAP_GET)
        actor->last_value = value[0];
    if (!is_down(rc))
        end(actor, KILLS_MAP, index, rc, value[0]);
    else if (function == MAP_GET)
        forget(actor, KILLS_MAP, index);
    else
        atomic_store(&kills_run->lost_keys[key % KILLS_KEYS_MAX], 1);
    return 0;
}

/* fetch_add needs values of 8 bytes; with longer values a put replaces it. A compare_put follows a get of its
 * key, and expects the value that the get returned. */
static int map_change(struct actor *actor, uint32_t function, uint64_t key) {
    if (function == MAP_ADD && kills_run->words > 1)
        function = MAP_PUT;
    if (function == MAP_COMPARE && map_call(actor, MAP_GET, key))
        return 1;
    return map_call(actor, function, key);
}

static int map_turn(struct actor *actor) {
    static const uint8_t functions[] = {MAP_GET,    MAP_GET, MAP_GET, MAP_INSERT, MAP_INSERT,
                                        MAP_DELETE, MAP_PUT, MAP_ADD, MAP_COMPARE};
    static const uint8_t updates[] = {MAP_UPDATE, MAP_UPDATE, MAP_ADD, MAP_PUT};
    uint64_t drawn = atomic_fetch_add(&kills_run->map_calls, 1);
    uint64_t group = drawn / (KILLS_KEYS_AT_ONCE * KILLS_CALLS_A_KEY);
    uint64_t key = group * KILLS_KEYS_AT_ONCE + dice(actor, KILLS_KEYS_AT_ONCE);
    uint32_t function = dice(actor, 100) < kills_run->updates_percent
                            ? updates[dice(actor, sizeof updates)]
                            : functions[dice(actor, sizeof functions)];
    if (atomic_load(&kills_run->lost_keys[key % KILLS_KEYS_MAX]))
        function = MAP_GET;
    set_state(actor, KILLS_IN_MAP);
    return map_change(actor, function, key);
}

/* ---- the queue ---- */

/* The ticket of an element decides whether it may be lost: docs/internals/queue.md describes tickets, slots
 * and nodes. 0: unknown. */
static uint64_t last_ticket(const struct actor *actor, enum remo__queue_side side) {
    return atomic_load_explicit(&actor->queue->hint[side], memory_order_relaxed);
}

static int push(struct actor *actor, uint64_t timeout_ns) {
    uint64_t element[KILLS_WORDS_MAX], id = new_number(actor);
    for (uint32_t i = 0; i < kills_run->words; i++)
        element[i] = id;
    uint32_t call = begin(actor, KILLS_QUEUE, &(struct call){.function = QUEUE_PUSH, .argument = id});
    int rc = remo_queue_push(actor->queue, element, kills_run->words * sizeof element[0], timeout_ns);
    CHECK(rc == 0 || rc == -ETIMEDOUT || is_down(rc));
    if (rc == 0)
        actor->own->histories[KILLS_QUEUE].calls[call].second = last_ticket(actor, REMO__QUEUE_TAIL);
    if (!is_down(rc))
        end(actor, KILLS_QUEUE, call, rc, 0);
    return 0;
}

static int pop(struct actor *actor, uint64_t timeout_ns, int *ret_rc) {
    uint64_t element[KILLS_WORDS_MAX];
    size_t bytes = 0;
    uint32_t call = begin(actor, KILLS_QUEUE, &(struct call){.function = QUEUE_POP});
    int rc = remo_queue_pop(actor->queue, element, sizeof element, &bytes, timeout_ns);
    CHECK(rc == 0 || rc == -ETIMEDOUT || is_down(rc));
    *ret_rc = rc;
    if (rc == 0) {
        CHECK_EQUAL(bytes, kills_run->words * sizeof element[0]);
        for (uint32_t i = 0; i < kills_run->words; i++)
            CHECK_EQUAL(element[i], element[0]);
        actor->own->histories[KILLS_QUEUE].calls[call].second = last_ticket(actor, REMO__QUEUE_HEAD);
    }
    if (is_down(rc))
        forget(actor, KILLS_QUEUE, call);
    else
        end(actor, KILLS_QUEUE, call, rc, element[0]);
    return 0;
}

static int queue_turn(struct actor *actor) {
    uint64_t timeout_ns = dice(actor, 16) == 0 ? SECOND / 500 : 0;
    int rc;
    set_state(actor, KILLS_IN_QUEUE);
    return dice(actor, 2) ? push(actor, timeout_ns) : pop(actor, timeout_ns, &rc);
}

/* ---- values behind locks ---- */

/* A counter is an array of equal words, at the home of its lock or at the next node. */
static uint32_t counter_home(uint32_t lock) {
    return lock % 2 == 0 ? lock : (lock + 1) % KILLS_NODES;
}

static uint64_t counter_at(uint32_t lock, uint32_t counter) {
    return (uint64_t)(lock * KILLS_COUNTERS_MAX + counter) * COUNTER_BYTES;
}

static int read_counter(struct actor *actor, uint32_t lock, uint32_t counter, uint64_t *words) {
    return remo_region_read(actor->counters, counter_home(lock), counter_at(lock, counter), words,
                            COUNTER_BYTES, NULL);
}

static int write_counter(struct actor *actor, uint32_t lock, uint32_t counter, uint64_t value) {
    uint64_t words[COUNTER_WORDS];
    for (uint32_t i = 0; i < COUNTER_WORDS; i++)
        words[i] = value;
    return remo_region_write(actor->counters, counter_home(lock), counter_at(lock, counter), words,
                             COUNTER_BYTES, 0, NULL);
}

/* The last holder failed in its critical section: complete the change that it may have begun. */
static int repair(struct actor *actor, uint32_t lock) {
    uint32_t counter = atomic_load(&kills_run->locks[lock].counter);
    uint64_t words[COUNTER_WORDS], most = 0;
    int rc = read_counter(actor, lock, counter, words);
    for (uint32_t i = 0; rc == 0 && i < COUNTER_WORDS; i++)
        most = words[i] > most ? words[i] : most;
    if (rc == 0)
        rc = write_counter(actor, lock, counter, most);
    CHECK(rc == 0 || (is_down(rc) && kills_is_victim(counter_home(lock))));
    CHECK_OK(remo_lock_consistent(actor->lock, lock));
    return 0;
}

static void record_recovery(uint32_t holder) {
    uint64_t killed_ns = atomic_load(&kills_run->nodes[holder].killed_ns);
    uint32_t i = atomic_fetch_add(&kills_run->recoveries, 1);
    if (i < KILLS_RECOVERY_MAX)
        kills_run->recovery_ns[i] = cluster_now_ns() - killed_ns;
}

/* Enter the critical section: this thread is its only holder. */
static int enter(struct actor *actor, uint32_t lock, int acquired) {
    struct kills_lock *lock_state = &kills_run->locks[lock];
    uint32_t before = atomic_exchange(&lock_state->owner, actor->rank + 1);
    set_state(actor, KILLS_IN_SECTION);
    CHECK(before == 0 || (kills_is_victim(before - 1) && acquired == -EOWNERDEAD));
    if (before != 0)
        record_recovery(before - 1);
    return acquired == -EOWNERDEAD ? repair(actor, lock) : 0;
}

/* Stay in the critical section, which is short, so that kills hit it. */
static void stay_in_section(struct actor *actor) {
    uint64_t until =
        cluster_now_ns() + dice(actor, kills_is_victim(actor->rank) ? LINGER_NS_MAX : LINGER_NS_MAX / 20);
    while (cluster_now_ns() < until)
        continue;
}

/* Add 1 to the counter, or only read it (WORD_LOAD). The call is not acknowledged before the release has
 * fenced it. */
static int access_counter(struct actor *actor, uint32_t lock, uint32_t counter, uint32_t function,
                          uint32_t *ret_call, uint64_t *ret_before) {
    uint64_t words[COUNTER_WORDS], key = lock * KILLS_COUNTERS_MAX + counter;
    uint32_t call =
        begin(actor, KILLS_VALUE, &(struct call){.function = function, .key = key, .argument = 1});
    int rc = read_counter(actor, lock, counter, words);
    *ret_call = UINT32_MAX;
    CHECK(rc == 0 || (is_down(rc) && kills_is_victim(counter_home(lock))));
    if (rc != 0) {
        forget(actor, KILLS_VALUE, call);
        return 0;
    }
    for (uint32_t i = 1; i < COUNTER_WORDS; i++)
        CHECK_EQUAL(words[i], words[0]);
    if (function == COUNTER_ADD && dice(actor, 2) == 0)
        stay_in_section(actor);
    if (function == COUNTER_ADD)
        rc = write_counter(actor, lock, counter, words[0] + 1);
    CHECK(rc == 0 || (is_down(rc) && kills_is_victim(counter_home(lock))));
    *ret_call = rc == 0 ? call : UINT32_MAX;
    *ret_before = words[0];
    return 0;
}

static int acquire(struct actor *actor, uint32_t lock, uint64_t timeout_ns, int *ret_rc) {
    set_state(actor, KILLS_IN_ACQUIRE);
    int rc = remo_lock_acquire(actor->lock, lock, timeout_ns);
    *ret_rc = rc;
    if (rc == -EHOSTDOWN || (rc == -ETIMEDOUT && timeout_ns != REMO_FOREVER)) {
        CHECK(rc == -ETIMEDOUT || kills_is_victim(lock));
        return 0;
    }
    CHECK(rc == 0 || rc == -EOWNERDEAD);
    *ret_rc = 0;
    return enter(actor, lock, rc);
}

/* On fabrics that are not mapped, the fence also returns errors of earlier writes to a failed node. */
static int release(struct actor *actor, uint32_t lock, int *ret_rc) {
    enum remo_fence_scope fence = counter_home(lock) == lock ? REMO_FENCE_PAIR : REMO_FENCE_THREAD;
    CHECK_EQUAL(atomic_exchange(&kills_run->locks[lock].owner, 0), actor->rank + 1);
    *ret_rc = remo_lock_release(actor->lock, lock, fence);
    CHECK(*ret_rc == 0 || is_down(*ret_rc));
    return 0;
}

static int value_turn(struct actor *actor) {
    uint32_t lock = dice(actor, 3) ? (uint32_t)kills_run->seed % KILLS_NODES : dice(actor, KILLS_NODES), call;
    uint64_t timeout_ns = dice(actor, 4) ? REMO_FOREVER : dice(actor, 2) * SECOND / 1000, before;
    struct kills_lock *lock_state = &kills_run->locks[lock];
    int rc;
    if (acquire(actor, lock, timeout_ns, &rc))
        return 1;
    if (rc != 0)
        return 0;
    uint32_t counter = atomic_fetch_add(&lock_state->sections, 1) / KILLS_SECTIONS_A_COUNTER;
    CHECK(counter < KILLS_COUNTERS_MAX);
    atomic_store(&lock_state->counter, counter);
    if (access_counter(actor, lock, counter, COUNTER_ADD, &call, &before) || release(actor, lock, &rc))
        return 1;
    if (rc == 0 && call != UINT32_MAX)
        end(actor, KILLS_VALUE, call, 0, before);
    return 0;
}

static int read_counters(struct actor *actor, uint32_t lock) {
    uint32_t counters = atomic_load(&kills_run->locks[lock].sections) / KILLS_SECTIONS_A_COUNTER + 1, call;
    uint64_t before;
    int rc = 0;
    if (acquire(actor, lock, REMO_FOREVER, &rc))
        return 1;
    if (rc != 0)
        return 0;
    for (uint32_t counter = 0; counter < counters; counter++) {
        if (access_counter(actor, lock, counter, WORD_LOAD, &call, &before))
            return 1;
        if (call != UINT32_MAX)
            end(actor, KILLS_VALUE, call, 0, before);
    }
    return release(actor, lock, &rc);
}

/* ---- until the end ---- */

static int turn(struct actor *actor, uint32_t kept) {
    static int (*const turns[])(struct actor *) = {map_turn, queue_turn, value_turn};
    const uint32_t *weight = kills_run->weight;
    uint32_t all = weight[0] + weight[1] + weight[2], drawn = dice(actor, all), object = 0;
    while (drawn >= weight[object])
        drawn -= weight[object++];
    if (has_room(actor, object, kept))
        return turns[object](actor);
    set_state(actor, KILLS_BETWEEN); /* the history is full: on a busy machine the kill is late */
    cluster_sleep_ms(1);
    return 0;
}

/* ---- the kill ---- */

static void *kill_self(void *ctx) {
    struct kills_victim *victim = ctx;
    struct timespec delay = {.tv_nsec = (long)victim->delay_ns};
    nanosleep(&delay, NULL);
    atomic_store(&kills_run->nodes[victim->rank].killed_ns, cluster_now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Start the thread that kills this node, at the planned turn. It waits some time, so that the kill hits work
 * in progress on a slow machine too. */
static int start_kill(const struct actor *actor, uint32_t turns) {
    pthread_t thread;
    for (uint32_t i = 0; i < kills_run->victim_count; i++) {
        struct kills_victim *victim = &kills_run->victims[i];
        if (victim->rank != actor->rank || victim->turns != turns)
            continue;
        cluster_expect_death();
        CHECK(pthread_create(&thread, NULL, kill_self, victim) == 0);
    }
    return 0;
}

/* Read everything that survives, so that the judge can find lost changes. */
static int read_all(struct actor *actor) {
    uint64_t groups = atomic_load(&kills_run->map_calls) / (KILLS_KEYS_AT_ONCE * KILLS_CALLS_A_KEY) + 1;
    uint32_t first = 0;
    int rc = 0;
    for (uint64_t key = 0; key < groups * KILLS_KEYS_AT_ONCE; key++)
        if (map_call(actor, MAP_GET, key))
            return 1;
    for (uint32_t lock = 0; lock < KILLS_NODES; lock++)
        if (read_counters(actor, lock))
            return 1;
    while (kills_is_victim(first))
        first++;
    for (rc = 0; actor->rank == first && rc == 0;)
        if (pop(actor, 0, &rc))
            return 1;
    return 0;
}

/* All survivors detect the failures: then elements that a failed node was pushing are treated as such. */
static int await_detection(struct actor *actor) {
    CHECK_OK(cluster_meet());
    while (atomic_load(&actor->queue->departures) < kills_run->victim_count)
        cluster_sleep_ms(1);
    uint64_t element[KILLS_WORDS_MAX];
    size_t bytes;
    if (atomic_load(&actor->queue->reported_departures)
        < kills_run->victim_count) /* a call that reports a failure does nothing else */
        CHECK_CODE(remo_queue_pop(actor->queue, element, sizeof element, &bytes, 0), -EHOSTDOWN);
    CHECK_OK(cluster_meet());
    atomic_store(&kills_run->settled_ns, cluster_now_ns());
    CHECK_OK(cluster_meet());
    return 0;
}

static int open_all(struct actor *actor) {
    struct remo_channel *root = remo_node_root(actor->node);
    struct remo_kv_options map = {
        .capacity = KEYS, .key_bytes_max = 8, .value_bytes_max = kills_run->words * 8, .stripes = 16};
    struct remo_queue_options queue = {
        .home = KILLS_QUEUE_HOME, .slot_bytes = kills_run->words * 8, .capacity = KILLS_QUEUE_CAPACITY};
    struct remo_lock_options lock = {.count = KILLS_NODES};
    for (uint32_t node = 0; node < KILLS_NODES; node++)
        remo_nodeset_add(&lock.homes, node);
    CHECK_OK(remo_kv_open(root, "map", &map, &actor->kv));
    CHECK_OK(remo_queue_open(root, "queue", &queue, &actor->queue));
    CHECK_OK(remo_lock_open(root, "lock", &lock, &actor->lock));
    CHECK_OK(remo_region_open(root, "counters", counter_at(KILLS_NODES, 0), NULL, &actor->counters));
    CHECK_OK(remo_channel_wait(root, 100 * SECOND));
    CHECK_OK(cluster_meet());
    return 0;
}

static void close_all(struct actor *actor) {
    remo_region_close(actor->counters);
    remo_lock_close(actor->lock);
    remo_queue_close(actor->queue);
    remo_kv_close(actor->kv);
}

int kills_work(struct remo_node *node, void *ctx) {
    struct actor actor = {.node = node, .rank = remo_node_rank(node)};
    (void)ctx;
    actor.own = &kills_run->nodes[actor.rank];
    remo__random_seed(&actor.random, kills_run->seed * KILLS_NODES + actor.rank);
    if (open_all(&actor))
        return 1;
    for (uint32_t turns = 0; !have_failed(&actor); turns++)
        if (start_kill(&actor, turns) || turn(&actor, CALLS_KEPT))
            return 1;
    for (uint32_t i = 0; i < AFTERWARDS; i++)
        if (turn(&actor, CALLS_KEPT / 2))
            return 1;
    set_state(&actor, KILLS_BETWEEN);
    if (await_detection(&actor) || read_all(&actor))
        return 1;
    CHECK_OK(cluster_meet());
    close_all(&actor);
    return 0;
}
