/* lock.h - the state of the lock's cases, the judge of holders, and what the files of cases share.
 *
 *   lock.c           the judge, and cases with data under the lock
 *   lock_turns.c     cases of the lock alone
 *   lock_recovery.c  cases whose operations take effect late, and whose nodes fail repeatedly
 *   lock_release.c   cases whose releases fail
 *   lock_ahead.c     cases whose holders have a hint about the next waiter
 *   lock_report.c    cases whose queries arrive while a node changes its ticket */
#pragma once

#include <errno.h>
#include <remo/lock.h>
#include <remo/region.h>

#include "objects/lock/lock.h"
#include "sim/case.h"
#include "sim/scheduler.h"

#define FOREVER REMO_FOREVER
#define HOME 0u
#define SLOW 2u /* the node whose operations are delayed */

struct lock_state {
    struct remo_lock *locks[SIM_NODES_MAX];
    struct remo_region *data[SIM_NODES_MAX];
    struct remo_node *nodes[SIM_NODES_MAX];
    uint32_t inside;        /* live threads that hold the lock */
    int holder;             /* node; -1: none */
    bool torn_by_failure;   /* a holder failed in its section */
    bool repaired;          /* the one fault of the schedule has been repaired */
    bool giving_away;       /* a thread releases the lock with -EOWNERDEAD unrepaired */
    bool given_away;        /* .. and has released it */
    uint64_t done;          /* increments in sections that ended */
    uint64_t last;          /* the last holder's value; 0: none yet */
    uint32_t ticket, turns; /* the ticket of the last holder; its number of turns */
    uint32_t round;         /* of the last query that node 1 has seen */
    bool posed;             /* the node of the case has reached the state under test */
    bool ended;             /* .. and has ended its test */
    uint32_t threads_ended; /* threads of the node that have ended their test */
    /* odd: in an acquire; incremented at each begin and end */
    uint32_t asking[SIM_NODES_MAX][SIM_THREADS_MAX];
};

/* A case of the lock. `variable` is its name in cases.c; the other arguments are members of struct sim_case.
 */
#define LOCK_CASE(variable, ...) LOCK_CASE_OPENED(variable, sim_lock_open, __VA_ARGS__)
/* The same, with another function that opens the lock. */
#define LOCK_CASE_OPENED(variable, opens, ...)                                             \
    const struct sim_case sim_case_##variable = {.object = "lock",                         \
                                                 .state_bytes = sizeof(struct lock_state), \
                                                 .open = opens,                            \
                                                 .close = sim_lock_close,                  \
                                                 __VA_ARGS__}

/* Open and close the lock and its data. */
void sim_lock_open(void *state, struct remo_node *node, uint32_t rank);
void sim_lock_close(void *state, uint32_t rank);

/* ---- the judge ---- */
/* Acquire the lock, and check that no thread is overtaken and that a lost lock has no holder. */
int sim_lock_acquire(struct lock_state *s, uint32_t rank, uint64_t timeout_ns);
/* Record that the node holds the lock, and check that it is the only one, and its turn. */
void sim_lock_enter(struct lock_state *s, uint32_t rank);
/* Record the end of a section, before the release. */
void sim_lock_leave(struct lock_state *s, uint32_t rank);
/* Call remo_lock_consistent, unless the thread is careless. */
void sim_lock_repair(struct lock_state *s, uint32_t rank, bool careless);

/* ---- sections ---- */
struct section {
    uint32_t home; /* of the data */
    enum remo_fence_scope fence;
    uint64_t timeout_ns;
    bool careless; /* does not repair the state after -EOWNERDEAD */
};
extern const struct section sim_lock_at_home;   /* data at the lock's home: a pair fence is enough */
extern const struct section sim_lock_elsewhere; /* data at node 1 */

/* Read all words of the data at `home`, and write them incremented. Returns whether both succeeded. */
bool sim_lock_increment(struct lock_state *s, uint32_t rank, uint32_t home, bool owner_failed);
/* Acquire, increment, release. */
void sim_lock_section(struct lock_state *s, uint32_t rank, const struct section *is);
/* The same for a body: two sections with data at home. */
void sim_lock_pair_body(void *state, uint32_t rank, uint32_t thread);

/* ---- only the lock (lock_turns.c) ---- */
/* Acquire and release, without data. */
void sim_lock_take(struct lock_state *s, uint32_t rank, uint64_t timeout_ns);
/* The same without a timeout; the grant must arrive before the node sends a reminder. */
void sim_lock_take_soon(struct lock_state *s, uint32_t rank);
/* On node SLOW: release the lock, while one of the operations is delayed beyond its timeout. */
void sim_lock_release_delayed(struct lock_state *s);
void sim_lock_take_after(void *state, uint32_t rank);
/* Three turns of a node. */
void sim_lock_turns_body(void *state, uint32_t rank, uint32_t thread);

/* ---- one step under test (lock_recovery.c) ---- */
/* Conditions for sim_until: `posed` and `ended`. */
bool sim_lock_is_posed(void *ctx);
bool sim_lock_has_ended(void *ctx);
/* Return the local state of the lock. */
uint64_t sim_lock_state_of(const struct lock_state *s, uint32_t rank);
/* Wait some time until the local state is of this kind. */
void sim_lock_until_state(const struct lock_state *s, uint32_t rank, enum remo__lock_state kind);
/* Pause until no node can make a step: time advances only then. Drives the operations of the thread. */
void sim_lock_until_idle(const struct lock_state *s, uint32_t rank);
/* Send RECOUNT to the home. */
void sim_lock_request_recount(struct lock_state *s, uint32_t rank);
/* On node SLOW: acquire the lock, and release it while a write is in flight until sim_delay_end. The release
 * waits for the write. Sets `posed`. */
void sim_lock_release_after_write(struct lock_state *s);
