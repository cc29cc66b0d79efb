/* history.h - long histories of real processes: several nodes with several tasks or threads each use one
 * object, and record what they read and change. The judge decides whether the history is strictly
 * serializable (tests/support/cycles.h). Nodes may be killed at random moments.
 *
 * A program of such tests describes its object by a struct history_test, and calls history_main with
 *     --fabric NAME   shm (default), ofi or verbs
 *     --calls N       one run until N operations have taken effect, in which no node fails
 *     --kills N       N runs in each of which one or two nodes are killed
 *     --seed S        of the first run
 * A failed run prints its seed; --seed S --kills 1 repeats its plan. */
#pragma once

#include "../../support/cluster.h"
#include "../../support/cycles.h"
#include "base/random.h"

#define HISTORY_NODES 4u
#define HISTORY_TASKS 3u /* of each node: tasks at the nodes of even rank, threads at the others */
#define HISTORY_ACTORS (HISTORY_NODES * HISTORY_TASKS)
#define HISTORY_VICTIMS_MAX 2u
#define HISTORY_KEYS_MAX 256u
#define HISTORY_VALUE_BYTES_MAX 40u
#define HISTORY_LONG_TIME (100 * SECOND)

/* The record of one task or thread, in shared memory. */
struct history_log {
    struct cycles_history history;
    uint32_t op_cap;
    uint64_t access_cap;
};

struct history_victim {
    uint32_t rank, turns; /* it is killed `delay_ns` after its first task has done so many turns */
    uint64_t delay_ns;
};

/* One run, in memory that all processes share. */
struct history_run {
    uint64_t seed, calls; /* the operations after which it ends; 0: nodes are killed */
    uint32_t victim_count;
    struct history_victim victims[HISTORY_VICTIMS_MAX];
    _Atomic uint64_t committed;
    _Atomic uint32_t killed;           /* bits of ranks */
    uint32_t owners[HISTORY_KEYS_MAX]; /* of each key */
    struct history_log logs[HISTORY_ACTORS];
};

extern struct history_run *history_run;

/* A task or a thread. */
struct history_actor {
    struct history_log *log;
    struct remo__random random;
    struct remo_node *node;
    void *place; /* the objects of the node */
    void *own;   /* of the actor */
    uint32_t rank, number;
};

struct history_test {
    const char *name;
    uint32_t keys;
    uint32_t accesses; /* of an average operation, at most: for the memory of the history */
    /* If two nodes fail, versions on them whose operations have an unknown outcome may be lost although
     * others have seen them. */
    bool forgets_seen;
    /* Open the objects of a node, and set `owners`. */
    int (*open)(struct remo_node *node, void **ret_place);
    /* Begin and end an actor. */
    int (*start)(struct history_actor *actor);
    void (*stop)(struct history_actor *actor);
    /* Execute one or more operations. */
    int (*turn)(struct history_actor *actor);
    /* Read or change the key; both must succeed. The calls follow the turns of all nodes that are up. */
    int (*read_key)(struct history_actor *actor, uint32_t key);
    int (*change_key)(struct history_actor *actor, uint32_t key);
    void (*close)(void *place);
};

int history_main(int argc, char **argv, const struct history_test *test);

/* ---- for the functions of a test ---- */

static inline uint32_t history_dice(struct history_actor *actor, uint32_t limit) {
    return (uint32_t)remo__random_below(&actor->random, limit);
}

/* Begin to record an operation that began at `begin`. Its outcome is unknown until history_end. */
void history_begin_at(struct history_actor *actor, uint64_t begin);
void history_begin(struct history_actor *actor);
/* Record that the operation uses a key: before it takes effect, if it changes the key. */
void history_use(struct history_actor *actor, uint32_t key, enum cycles_kind kind, uint32_t seen);
void history_end(struct history_actor *actor, enum cycles_outcome outcome);
/* The operation took effect before the time `end`. */
void history_end_at(struct history_actor *actor, enum cycles_outcome outcome, uint64_t end);
/* Return the id of the operation that is recorded. */
uint32_t history_id(const struct history_actor *actor);

/* Return whether this is an error of a call that needs a node that has failed. */
bool history_is_down(int rc);
bool history_is_victim(uint32_t rank);

/* Make the value of a key that contains the id of its writer, and return its size. */
uint32_t history_make_value(unsigned char *value, uint32_t key, uint32_t id);
/* Return the id that a value contains, or CYCLES_ABSENT if it is not a complete value of the key. */
uint32_t history_id_of(const void *value, size_t bytes, uint32_t key);
