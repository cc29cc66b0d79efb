/* net.h - the simulated network: operations in flight, and the possible next steps of each. */
#pragma once

#include "fabric/fabric.h"
#include "sim/scheduler.h"

/* Reorderings that a network may do, as data. True means that the network forbids the reordering
 * (memory model, table of transitions). */
struct sim_profile {
    const char *name, *about;
    bool put_put; /* 1: puts are placed in order */
    bool put_get; /* 2: a get comes after earlier puts */
    /* 2, if both touch a common byte; other gets may pass, as in a CPU's store buffer */
    bool put_get_same;
    bool put_rmw;          /* 3 */
    bool get_put;          /* 4 */
    bool get_get;          /* 5 */
    bool get_rmw;          /* 6: also rmw;put and rmw;rmw */
    bool rmw_get;          /* 7 */
    bool placed;           /* 10: completion comes after placement */
    bool completion_order; /* 12 */
    bool rmw_one_step;     /* 17-19: atomics are atomic with all accesses */
    uint32_t line_bytes;   /* unit that is moved whole */
    uint32_t inline_bytes;
    bool whole_put; /* shm: the network does not tear puts between lines; never used for claims */
    bool mapped;    /* peers' memory has an address: operations are accesses of the poster's CPU (access.c) */
    bool cached;    /* 24: no hardware keeps CPU caches coherent (cache.h), and there are no atomics */
};

extern const struct sim_profile sim_profiles[];
extern const uint32_t sim_profiles_count;
extern const struct sim_profile *sim_profile; /* the current one */
const struct sim_profile *sim_profile_find(const char *name);

/* Append the possible micro-steps to `steps`, and return their number. */
uint32_t sim_net_steps(struct sim_step *steps, uint32_t cap);
void sim_net_do(const struct sim_step *step);
/* Crash a node: unsent data vanishes; operations on the node end with an error. */
void sim_net_crash(uint32_t node);
/* Cut all traffic between the node and its peers. Data already sent may still land, but its poster
 * gets an error. */
void sim_net_sever(uint32_t node);
/* Return the number of operations posted and completed so far. */
uint64_t sim_net_posts(void);
uint64_t sim_net_completions(void);
/* Return the number of operations in flight. */
uint32_t sim_net_count(void);
/* Wake the service threads whose time limit passes until `until_ns`; `needs`: only of these nodes, or NULL.
 * Returns whether there is any. */
bool sim_net_sweep(uint64_t until_ns, bool (*needs)(uint32_t node));
void sim_net_open(void);
/* Clear finished operations before the world is saved, so that no stale data is copied. */
void sim_net_forget(void);
