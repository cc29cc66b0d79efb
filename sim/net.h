/* net.h - the simulated network: operations in flight, and what may happen to each of them next. */
#pragma once

#include "fabric/fabric.h"
#include "sim/scheduler.h"

/* What a network may do, as data: true means that the network forbids the reordering (memory model, table of
 * transitions). */
struct sim_profile {
    const char *name, *about;
    bool put_put;          /* 1: puts are placed in order */
    bool put_get;          /* 2: a get comes after earlier puts */
    bool put_rmw;          /* 3 */
    bool get_put;          /* 4 */
    bool get_get;          /* 5 */
    bool get_rmw;          /* 6: also rmw;put and rmw;rmw */
    bool rmw_get;          /* 7 */
    bool placed;           /* 10: completion comes after placement */
    bool completion_order; /* 12 */
    bool rmw_one_step;     /* 17-19: atomics are atomic with everything */
    uint32_t line_bytes;   /* what is moved whole */
    uint32_t inline_bytes;
    bool whole_put; /* shm: not torn between lines by the network; never used for claims */
    bool cached;    /* 24: CPUs have caches that nobody keeps coherent (cache.h), and there are no atomics */
};

extern const struct sim_profile sim_profiles[];
extern const uint32_t sim_profiles_count;
extern const struct sim_profile *sim_profile; /* the one in force */
const struct sim_profile *sim_profile_find(const char *name);

/* Possible micro-steps are appended to `steps`; how many. */
uint32_t sim_net_steps(struct sim_step *steps, uint32_t cap);
void sim_net_do(const struct sim_step *step);
/* The node is dead: what it had not sent vanishes; operations on it end with an error. */
void sim_net_crash(uint32_t node);
/* Nothing gets through any more between the node and the others: what was sent may still land, and its poster
 * hears of an error. */
void sim_net_sever(uint32_t node);
/* Operations posted and completed so far. */
uint64_t sim_net_posts(void);
uint64_t sim_net_completions(void);
/* Operations in flight, for the end of a schedule. */
uint32_t sim_net_count(void);
void sim_net_open(void);
/* Before the world is saved: no operation is in flight, and what old ones left behind need not be copied. */
void sim_net_forget(void);
