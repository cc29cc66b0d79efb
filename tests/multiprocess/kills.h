/* kills.h - what a node of test_kills does until it is killed, how that is recorded, and how it is judged. */
#pragma once

#include "../support/cluster.h"
#include "sim/history.h"

#define KILLS_NODES 4u
#define KILLS_VICTIMS_MAX 2u
#define KILLS_CALLS_MAX 16384u /* recorded, of a node and object */
#define KILLS_WORDS_MAX 2000u  /* it takes long to write them, so that somebody dies in the middle */
#define KILLS_RECOVERY_MAX 16u /* of one run */

/* The map: so many keys are worked on at a time, and then left alone, so that no key's history gets long. */
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

/* What a node is about; what it was about when it was killed. */
enum kills_state {
    KILLS_BETWEEN,
    KILLS_IN_MAP,
    KILLS_IN_QUEUE,
    KILLS_IN_ACQUIRE,
    KILLS_IN_SECTION,
    KILLS_STATES
};

struct kills_node {
    _Atomic uint64_t killed_ns; /* 0: not (yet) */
    _Atomic uint32_t state;
    struct history histories[KILLS_OBJECTS];
    struct call calls[KILLS_OBJECTS][KILLS_CALLS_MAX];
};

struct kills_lock {
    _Atomic uint32_t owner;    /* rank + 1, of who is between acquire and release */
    _Atomic uint32_t sections; /* begun */
    _Atomic uint32_t counter;  /* that the last one is about */
};

/* When a node is killed: so long after so many turns. */
struct kills_victim {
    uint32_t rank, turns;
    uint64_t delay_ns;
};

/* One run, in memory that all processes share. */
struct kills_run {
    /* the plan */
    uint64_t seed;
    uint32_t victim_count;
    struct kills_victim victims[KILLS_VICTIMS_MAX];
    uint32_t weight[KILLS_OBJECTS];
    uint32_t updates_percent; /* of the calls of the map */
    uint32_t words;           /* of the map's values and the queue's elements */
    /* the course */
    _Atomic uint64_t map_calls;
    _Atomic uint8_t lost_keys[KILLS_KEYS_MAX]; /* of which a change failed: they are only read from then on */
    _Atomic uint64_t settled_ns;               /* all that live know of the deaths */
    struct kills_lock locks[KILLS_NODES];
    _Atomic uint32_t recoveries;
    uint64_t recovery_ns[KILLS_RECOVERY_MAX]; /* from the kill of a holder to the next owner */
    struct kills_node nodes[KILLS_NODES];
};

/* What was found in a run. */
struct kills_verdict {
    uint64_t acknowledged; /* calls that changed something */
    uint64_t lost, repeated;
    uint64_t wrong; /* otherwise: histories that are not linearizable */
};

extern struct kills_run *kills_run;

static inline int kills_is_victim(uint32_t rank) {
    for (uint32_t i = 0; i < kills_run->victim_count; i++)
        if (kills_run->victims[i].rank == rank)
            return 1;
    return 0;
}

/* What each node runs. */
int kills_work(struct remo_node *node, void *ctx);
/* Judge the histories; says on stderr what is wrong. */
int kills_judge(struct kills_verdict *ret_verdict);
