/* kills.h - the work of a node of test_kills until it is killed, the record of its calls, and the
 * judgement. */
#pragma once

#include "../../support/cluster.h"
#include "sim/history.h"

#define KILLS_NODES 4u
#define KILLS_VICTIMS_MAX 2u
#define KILLS_CALLS_MAX 16384u /* recorded for each node and object */
#define KILLS_WORDS_MAX 2000u  /* large, so that kills hit a write in progress */
#define KILLS_RECOVERY_MAX 16u /* recorded for one run */

/* The map: calls go to a few keys at a time, and then to the next ones, so that each key has a short
 * history. */
#define KILLS_KEYS_AT_ONCE 6u
#define KILLS_CALLS_A_KEY 60u
#define KILLS_KEYS_MAX (2 * KILLS_NODES * KILLS_CALLS_MAX / KILLS_CALLS_A_KEY)

/* The values: one lock at each node, which protects one counter after another. */
#define KILLS_SECTIONS_A_COUNTER 96u
#define KILLS_COUNTERS_MAX 1024u /* of a lock */

/* The queue is small, so that it is full and empty at times. */
#define KILLS_QUEUE_HOME 1u
#define KILLS_QUEUE_CAPACITY 16u

enum kills_object { KILLS_MAP, KILLS_QUEUE, KILLS_VALUE, KILLS_OBJECTS };

/* The present activity of a node, or that at its kill. */
enum kills_state {
    KILLS_BETWEEN,
    KILLS_IN_MAP,
    KILLS_IN_QUEUE,
    KILLS_IN_ACQUIRE,
    KILLS_IN_SECTION,
    KILLS_STATES
};

struct kills_node {
    _Atomic uint64_t killed_ns; /* 0: not killed */
    _Atomic uint32_t state;
    struct history histories[KILLS_OBJECTS];
    struct call calls[KILLS_OBJECTS][KILLS_CALLS_MAX];
};

struct kills_lock {
    _Atomic uint32_t owner;    /* rank + 1 of the node between acquire and release */
    _Atomic uint32_t sections; /* critical sections that have begun */
    _Atomic uint32_t counter;  /* the counter of the last one */
};

/* A node is killed `delay_ns` after it has done `turns` turns. */
struct kills_victim {
    uint32_t rank, turns;
    uint64_t delay_ns;
};

/* One run, in memory that all processes share. */
struct kills_run {
    /* The plan. */
    uint64_t seed;
    uint32_t victim_count;
    struct kills_victim victims[KILLS_VICTIMS_MAX];
    uint32_t weight[KILLS_OBJECTS];
    uint32_t updates_percent; /* share of the calls of the map */
    uint32_t words;           /* length of the map's values and the queue's elements */
    /* The results. */
    _Atomic uint64_t map_calls;
    _Atomic uint8_t lost_keys[KILLS_KEYS_MAX]; /* a change of the key failed: later calls only read it */
    _Atomic uint64_t settled_ns;               /* time at which all survivors had detected the failures */
    struct kills_lock locks[KILLS_NODES];
    _Atomic uint32_t recoveries;
    uint64_t recovery_ns[KILLS_RECOVERY_MAX]; /* from the kill of a holder to the next acquire */
    struct kills_node nodes[KILLS_NODES];
};

/* The judgement of a run. */
struct kills_verdict {
    uint64_t acknowledged; /* calls that changed something */
    uint64_t lost, repeated;
    uint64_t wrong; /* other errors: histories that are not linearizable */
};

extern struct kills_run *kills_run;

static inline int kills_is_victim(uint32_t rank) {
    for (uint32_t i = 0; i < kills_run->victim_count; i++)
        if (kills_run->victims[i].rank == rank)
            return 1;
    return 0;
}

/* The main function of each node. */
int kills_work(struct remo_node *node, void *ctx);
/* Judge the histories, and print the errors on stderr. */
int kills_judge(struct kills_verdict *ret_verdict);
