/* history.c - runs nodes that record a history, kills some of them, and judges the history (history.h). An
 * operation is recorded with an unknown outcome before it can take effect, so a killed process leaves a
 * complete record. */
#include "history.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "remote/op.h"

#define KILL_OPS_MAX 16384u /* recorded for each actor, in a run with kills */
#define OPS_KEPT 2048u      /* space for the operations at the end */
#define TURNS_MAX 250u      /* before a kill */
#define DELAY_NS_MAX (SECOND / 1000)
#define AFTERWARDS 30u            /* turns of the survivors after the failures */
#define TIMEOUT_NS (150 * SECOND) /* of a run */
#define TIMEOUT_OF_CALL_NS (SECOND / 250)

struct history_run *history_run;
static const struct history_test *running;

struct arguments {
    const char *fabric;
    uint64_t calls, seed;
    uint32_t kills;
};

/* ---- records ---- */

void history_begin_at(struct history_actor *actor, uint64_t begin) {
    struct cycles_history *history = &actor->log->history;
    if (history->op_count == actor->log->op_cap) {
        fprintf(stderr, "the history of an actor has no room\n");
        abort();
    }
    history->ops[history->op_count] = (struct cycles_op){.begin = begin,
                                                         .end = CYCLES_NEVER,
                                                         .first_access = history->access_count,
                                                         .outcome = CYCLES_UNKNOWN};
    atomic_signal_fence(memory_order_seq_cst);
    history->op_count++;
    atomic_signal_fence(memory_order_seq_cst);
}

void history_begin(struct history_actor *actor) {
    history_begin_at(actor, cluster_now_ns());
}

static struct cycles_op *last_op(const struct history_actor *actor) {
    return &actor->log->history.ops[actor->log->history.op_count - 1];
}

void history_use(struct history_actor *actor, uint32_t key, enum cycles_kind kind, uint32_t seen) {
    struct cycles_history *history = &actor->log->history;
    if (history->access_count == actor->log->access_cap) {
        fprintf(stderr, "the history of an actor has no room for keys\n");
        abort();
    }
    history->accesses[history->access_count] = (struct cycles_access){.key = key, .kind = kind, .seen = seen};
    atomic_signal_fence(memory_order_seq_cst);
    history->access_count++;
    last_op(actor)->access_count++;
    atomic_signal_fence(memory_order_seq_cst);
}

void history_end_at(struct history_actor *actor, enum cycles_outcome outcome, uint64_t end) {
    struct cycles_op *op = last_op(actor);
    atomic_signal_fence(memory_order_seq_cst);
    if (outcome == CYCLES_COMMITTED) {
        op->end = end;
        atomic_fetch_add_explicit(&history_run->committed, 1, memory_order_relaxed);
    } else if (outcome == CYCLES_NOT_COMMITTED) {
        actor->log->history.access_count -= op->access_count;
        op->access_count = 0;
    }
    atomic_signal_fence(memory_order_seq_cst);
    op->outcome = outcome;
}

void history_end(struct history_actor *actor, enum cycles_outcome outcome) {
    history_end_at(actor, outcome, cluster_now_ns());
}

uint32_t history_id(const struct history_actor *actor) {
    return cycles_id((uint32_t)(actor->log - history_run->logs), actor->log->history.op_count - 1);
}

static bool has_room(const struct history_actor *actor, uint32_t kept) {
    const struct history_log *log = actor->log;
    return log->history.op_count + kept < log->op_cap
           && log->history.access_count + (uint64_t)kept * running->accesses < log->access_cap;
}

/* ---- values ---- */

uint32_t history_make_value(unsigned char *value, uint32_t key, uint32_t id) {
    uint32_t bytes = 8 + (id * 7 + key) % (HISTORY_VALUE_BYTES_MAX - 7);
    memcpy(value, &id, sizeof id);
    memcpy(value + 4, &key, sizeof key);
    for (uint32_t i = 8; i < bytes; i++)
        value[i] = (unsigned char)(id * 31 + key + i);
    return bytes;
}

uint32_t history_id_of(const void *value, size_t bytes, uint32_t key) {
    unsigned char expected[HISTORY_VALUE_BYTES_MAX];
    uint32_t id = 0;
    if (bytes >= 8)
        memcpy(&id, value, sizeof id);
    return history_make_value(expected, key, id) == bytes && memcmp(expected, value, bytes) == 0
               ? id
               : CYCLES_ABSENT;
}

/* ---- failures ---- */

bool history_is_victim(uint32_t rank) {
    for (uint32_t i = 0; i < history_run->victim_count; i++)
        if (history_run->victims[i].rank == rank)
            return true;
    return false;
}

bool history_is_down(int rc) {
    return rc == -EHOSTDOWN && atomic_load(&history_run->killed) != 0;
}

static void *kill_self(void *ctx) {
    const struct history_victim *victim = ctx;
    struct timespec delay = {.tv_nsec = (long)victim->delay_ns};
    nanosleep(&delay, NULL);
    atomic_fetch_or(&history_run->killed, 1u << victim->rank);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Start the thread that kills this node, at the planned turn of its first actor. */
static int start_kill(const struct history_actor *actor, uint32_t turns) {
    pthread_t thread;
    for (uint32_t i = 0; i < history_run->victim_count && actor->number == 0; i++) {
        struct history_victim *victim = &history_run->victims[i];
        if (victim->rank != actor->rank || victim->turns != turns)
            continue;
        cluster_expect_death();
        CHECK(pthread_create(&thread, NULL, kill_self, victim) == 0);
    }
    return 0;
}

static bool all_cut_off(struct remo_node *node) {
    for (uint32_t i = 0; i < history_run->victim_count; i++) {
        uint32_t rank = history_run->victims[i].rank;
        if (remo_node_peer(node, rank) == REMO_PEER_UP || remo__peer_base(node, rank))
            return false;
    }
    return true;
}

/* ---- the work of a node ---- */

static bool has_ended(const struct history_actor *actor, uint32_t *afterwards) {
    if (history_run->calls > 0)
        return atomic_load_explicit(&history_run->committed, memory_order_relaxed) >= history_run->calls;
    return (*afterwards > 0 || all_cut_off(actor->node)) && ++*afterwards > AFTERWARDS;
}

static int turns_of(struct history_actor *actor) {
    uint32_t afterwards = 0;
    for (uint32_t turns = 0; !has_ended(actor, &afterwards); turns++) {
        if (start_kill(actor, turns))
            return 1;
        if (!has_room(actor, OPS_KEPT)) {
            if (history_run->calls > 0)
                return 0;                                /* the others do the rest */
            remo_task_sleep(actor->node, SECOND / 1000); /* the kill is late, on a busy machine */
        } else if (running->turn(actor)) {
            return 1;
        }
        remo_task_yield();
    }
    return 0;
}

static int run_actor(void *ctx) {
    struct history_actor *actor = ctx;
    int result = running->start(actor) || turns_of(actor);
    running->stop(actor);
    return result;
}

static void *run_thread(void *ctx) {
    return run_actor(ctx) == 0 ? NULL : ctx;
}

static int run_threads(struct history_actor *actors) {
    pthread_t threads[HISTORY_TASKS];
    int result = 0;
    for (uint32_t i = 0; i < HISTORY_TASKS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_thread, &actors[i]) == 0);
    for (uint32_t i = 0; i < HISTORY_TASKS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        result |= failed != NULL;
    }
    return result;
}

static int run_tasks(struct remo_node *node, struct history_actor *actors) {
    struct remo_scheduler *scheduler;
    remo_task_id tasks[HISTORY_TASKS];
    int result = 0;
    CHECK_OK(remo_scheduler_open(node, NULL, &scheduler));
    for (uint32_t i = 0; i < HISTORY_TASKS; i++)
        CHECK_OK(remo_task_spawn(scheduler, run_actor, &actors[i], &tasks[i]));
    for (uint32_t i = 0; i < HISTORY_TASKS; i++) {
        int one;
        CHECK_OK(remo_task_join(scheduler, tasks[i], REMO_FOREVER, &one));
        result |= one;
    }
    CHECK_OK(remo_scheduler_close(scheduler));
    return result;
}

static bool is_live(uint32_t key) {
    return !history_is_victim(history_run->owners[key]);
}

static uint32_t first_survivor(void) {
    uint32_t rank = 0;
    while (history_is_victim(rank))
        rank++;
    return rank;
}

/* All nodes have ended their work: each key whose owner is up can be read and changed. Keys are read again,
 * so that an operation of which only a half was done contradicts the first reads. */
static int use_all(struct history_actor *actor) {
    for (uint32_t pass = 0; pass < 3; pass++) {
        for (uint32_t key = 0; key < running->keys; key++) {
            bool changes = pass == 1 && actor->rank == first_survivor();
            if (is_live(key) && pass != 1 && running->read_key(actor, key))
                return 1;
            if (is_live(key) && changes && running->change_key(actor, key))
                return 1;
        }
        CHECK_OK(cluster_meet());
    }
    return 0;
}

static int work(struct remo_node *node, void *ctx) {
    struct history_actor actors[HISTORY_TASKS];
    void *place;
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK(running->open(node, &place) == 0);
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < HISTORY_TASKS; i++) {
        uint32_t number = rank * HISTORY_TASKS + i;
        actors[i] = (struct history_actor){
            .log = &history_run->logs[number], .node = node, .place = place, .rank = rank, .number = i};
        remo__random_seed(&actors[i].random, history_run->seed * HISTORY_ACTORS + number);
    }
    if (rank % 2 ? run_threads(actors) : run_tasks(node, actors))
        return 1;
    while (!all_cut_off(node))
        cluster_sleep_ms(1);
    CHECK_OK(cluster_meet());
    CHECK(running->start(&actors[0]) == 0);
    CHECK(use_all(&actors[0]) == 0);
    running->stop(&actors[0]);
    CHECK_OK(cluster_meet());
    running->close(place);
    CHECK_OK(cluster_meet());
    return 0;
}

/* ---- runs ---- */

static void plan(uint64_t seed, uint64_t calls) {
    struct remo__random random;
    history_run->seed = seed;
    history_run->calls = calls;
    history_run->victim_count = 0;
    atomic_store(&history_run->committed, 0);
    atomic_store(&history_run->killed, 0);
    for (uint32_t i = 0; i < HISTORY_ACTORS; i++) {
        history_run->logs[i].history.op_count = 0;
        history_run->logs[i].history.access_count = 0;
    }
    if (calls > 0)
        return;
    remo__random_seed(&random, seed);
    history_run->victim_count = remo__random_below(&random, 4) == 0 ? 2 : 1;
    history_run->victims[0].rank = (uint32_t)(seed % HISTORY_NODES);
    history_run->victims[1].rank =
        (uint32_t)(seed + 1 + remo__random_below(&random, HISTORY_NODES - 1)) % HISTORY_NODES;
    for (uint32_t i = 0; i < history_run->victim_count; i++) {
        history_run->victims[i].turns = (uint32_t)remo__random_below(&random, TURNS_MAX);
        history_run->victims[i].delay_ns = remo__random_below(&random, DELAY_NS_MAX);
    }
}

static void allocate(uint64_t calls) {
    uint64_t ops = calls > 0 ? calls / 3 + KILL_OPS_MAX : KILL_OPS_MAX;
    history_run = cluster_shared(sizeof *history_run);
    for (uint32_t i = 0; i < HISTORY_ACTORS; i++) {
        struct history_log *log = &history_run->logs[i];
        log->op_cap = (uint32_t)ops;
        log->access_cap = ops * running->accesses;
        log->history.ops = cluster_shared(ops * sizeof log->history.ops[0]);
        log->history.accesses = cluster_shared(log->access_cap * sizeof log->history.accesses[0]);
    }
}

/* Return whether the version is on a failed node, and the outcome of its operation is unknown. */
static bool may_be_lost(const struct cycles_access *access) {
    if (is_live(access->key) || access->seen == CYCLES_ABSENT)
        return false;
    uint32_t actor = (access->seen - 1) / CYCLES_OPS_MAX, index = (access->seen - 1) % CYCLES_OPS_MAX;
    const struct cycles_history *writer = &history_run->logs[actor % HISTORY_ACTORS].history;
    return index < writer->op_count && writer->ops[index].outcome == CYCLES_UNKNOWN;
}

/* Forget the keys with such versions. */
static void forget_lost(void) {
    bool is_lost[HISTORY_KEYS_MAX] = {false};
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < HISTORY_ACTORS; i++) {
            struct cycles_history *history = &history_run->logs[i].history;
            for (uint64_t j = 0; j < history->access_count; j++) {
                struct cycles_access *access = &history->accesses[j];
                is_lost[access->key] |= may_be_lost(access);
                if (pass == 1 && is_lost[access->key])
                    access->kind = CYCLES_IGNORED;
            }
        }
    }
}

static int judge(struct cycles_report *ret_report) {
    struct cycles_history actors[HISTORY_ACTORS];
    if (running->forgets_seen && history_run->victim_count > 1)
        forget_lost();
    for (uint32_t i = 0; i < HISTORY_ACTORS; i++)
        actors[i] = history_run->logs[i].history;
    return cycles_judge(actors, HISTORY_ACTORS, stderr, ret_report);
}

static int run_one(const struct arguments *arguments, uint64_t seed, struct cycles_report *ret_report) {
    const struct cluster_test test =
        CLUSTER_TEST_NAMED(running->name, work, HISTORY_NODES, .op_timeout_ns = 600 * SECOND,
                           .timeout_ns = TIMEOUT_NS + arguments->calls * TIMEOUT_OF_CALL_NS);
    plan(seed, arguments->calls);
    *ret_report = (struct cycles_report){0};
    int result = cluster_run(&test, arguments->fabric);
    if (result != 77)
        result |= judge(ret_report);
    if (result != 0 && result != 77 && arguments->calls > 0)
        fprintf(stderr, "failed with --fabric %s --calls %llu --seed %llu\n", arguments->fabric,
                (unsigned long long)arguments->calls, (unsigned long long)seed);
    else if (result != 0 && result != 77)
        fprintf(stderr, "repeat with --fabric %s --kills 1 --seed %llu (kills node %u, and %u more)\n",
                arguments->fabric, (unsigned long long)seed, history_run->victims[0].rank,
                history_run->victim_count - 1);
    return result;
}

static int run_calls(const struct arguments *arguments) {
    struct cycles_report report;
    uint64_t begin = cluster_now_ns(), aborted = 0;
    int result = run_one(arguments, arguments->seed, &report);
    if (result == 0 && report.ops < arguments->calls) {
        fprintf(stderr, "no actor has room for more operations\n");
        result = 1;
    }
    for (uint32_t i = 0; i < HISTORY_ACTORS; i++)
        for (uint32_t j = 0; j < history_run->logs[i].history.op_count; j++)
            aborted += history_run->logs[i].history.ops[j].outcome == CYCLES_NOT_COMMITTED;
    printf("%-4s %s %s: %llu operations on %llu keys took effect, %llu did not; %llu presences of keys, %llu "
           "without an order; %llu ms\n",
           result == 0    ? "ok"
           : result == 77 ? "skip"
                          : "FAIL",
           arguments->fabric, running->name, (unsigned long long)report.ops,
           (unsigned long long)report.accesses, (unsigned long long)aborted,
           (unsigned long long)report.presences, (unsigned long long)report.unordered,
           (unsigned long long)((cluster_now_ns() - begin) / 1000000));
    return result;
}

/* Operations of killed nodes that had not ended. */
static uint32_t interrupted(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < HISTORY_ACTORS; i++) {
        const struct cycles_history *history = &history_run->logs[i].history;
        count += history_is_victim(i / HISTORY_TASKS) && history->op_count > 0
                 && history->ops[history->op_count - 1].outcome == CYCLES_UNKNOWN;
    }
    return count;
}

static int run_kills(const struct arguments *arguments) {
    struct cycles_report report, sum = {0};
    uint32_t failed = 0, kills = 0, in_progress = 0;
    for (uint32_t run = 0; run < arguments->kills; run++) {
        int result = run_one(arguments, arguments->seed + run, &report);
        if (result == 77)
            return 77;
        failed += result != 0;
        kills += history_run->victim_count;
        in_progress += interrupted();
        sum.ops += report.ops;
        sum.unknown += report.unknown;
        sum.proven += report.proven;
    }
    printf("%-4s %s %s: %u runs, %u failed; %u kills interrupted %u operations; %llu operations took effect; "
           "the outcome of %llu was unknown, of which others have seen %llu\n",
           failed == 0 ? "ok" : "FAIL", arguments->fabric, running->name, arguments->kills, failed, kills,
           in_progress, (unsigned long long)sum.ops, (unsigned long long)sum.unknown,
           (unsigned long long)sum.proven);
    return failed > 0;
}

static int parse(int argc, char **argv, struct arguments *arguments) {
    static const struct option options[] = {{"fabric", required_argument, NULL, 'f'},
                                            {"calls", required_argument, NULL, 'c'},
                                            {"kills", required_argument, NULL, 'k'},
                                            {"seed", required_argument, NULL, 's'},
                                            {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'f': arguments->fabric = optarg; break;
        case 'c': arguments->calls = strtoull(optarg, NULL, 10); break;
        case 'k': arguments->kills = (uint32_t)atoi(optarg); break;
        case 's': arguments->seed = strtoull(optarg, NULL, 10); break;
        default: return 1;
        }
    }
    return arguments->calls == 0 && arguments->kills == 0;
}

int history_main(int argc, char **argv, const struct history_test *test) {
    struct arguments arguments = {.fabric = "shm", .seed = 1};
    if (parse(argc, argv, &arguments) != 0)
        return 2;
    running = test;
    allocate(arguments.calls);
    int result = arguments.calls > 0 ? run_calls(&arguments) : 0;
    arguments.calls = 0;
    return result == 0 && arguments.kills > 0 ? run_kills(&arguments) : result;
}
