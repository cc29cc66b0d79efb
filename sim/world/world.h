/* world.h - the simulated world: nodes whose threads are contexts of one real thread (base/context.h); the
 * scheduler takes one step at a time.
 *
 * Model:   an actor is one thread of a node: a program thread, the control thread or the service thread. It
 *          runs until its next scheduling point: an access to network memory, a post, one iteration of a
 *          wait, or a held mutex. There the scheduler picks one of all possible steps: an actor, one store
 *          that leaves an actor's store buffer, or one micro-step of an operation in flight.
 * Memory:  a CPU store stays in its actor's buffer (total store order; the actor's own loads see it) until a
 *          step drains it, or until the actor executes a fence, an atomic, a post or a lock.
 * Waiting: a wait first spins: its actor is checked again after any change at its node (ready.h). Then it
 *          sleeps until its node is notified, until an operation of the actor completes, or until its
 *          deadline. A condition that holds after a sleep that only the deadline has ended is a failure: a
 *          notification is missing. A wait that polls (remote/wait.h) does not sleep. If no step is possible,
 *          time jumps to the next check of a wait that spins or polls, then to the next deadline. Without a
 *          deadline the world hangs, which is a failure. A retry (remote/wait.h) that succeeds is a failure
 *          too, if only actors in a retry (and service threads) ran since time passed: nothing was about to
 *          notify its actor.
 * Restore: sim_world_open sets up nodes and objects once; each schedule starts from a copy of that state. */
#pragma once

#include <stdarg.h>

#include "remote/thread.h"
#include "sim/world/turn.h"

#ifdef SIM_TIMED /* the other world: timed.h */
#define SIM_NODES_MAX 128u
#else
#define SIM_NODES_MAX 4u
#endif
#define SIM_THREADS_MAX 3u /* program threads per node */
#define SIM_ACTORS_MAX 24u
#define SIM_STORES_MAX 8u
#define SIM_STEPS_MAX 30000u /* per schedule; more is a failure: no progress */
#define SIM_RECOVERY_STEPS_MAX \
    6000u /* from the end of all faults to the end of the schedule: surviving nodes must make progress */
#define SIM_ARENA_BYTES (2ull << 20)
#define SIM_OP_TIMEOUT_NS (10 * REMO__NS_PER_S)

enum sim_actor_state { SIM_UNUSED, SIM_READY, SIM_PAUSED, SIM_UNTIL, SIM_DONE, SIM_CRASHED };
enum sim_role { SIM_PROGRAM, SIM_CONTROL, SIM_SERVICE };

/* Failures that a case injects at a node: skip some operations, then let some fail. */
struct sim_failing {
    uint32_t node, skip, count;
};

struct sim_actor {
    struct remo__context context;
    uint32_t index, node, thread;
    enum sim_role role;
    enum sim_actor_state state;
    bool is_checking;               /* checks the condition of a wait: changes nothing */
    uint64_t seen_version, wake_at; /* SIM_PAUSED */
    uint64_t wakes, seen_wakes;     /* notifications of the node, and completions of the actor */
    bool is_sleeping;               /* a change that notifies nothing does not end the pause */
    const void *awaits;             /* the endpoint whose completions end its sleep */
    bool has_slept;                 /* the pause before the present check was a sleep */
    uint64_t woken_version;         /* of the node, when a time ended the pause */
    uint64_t slept_wakes;           /* `wakes` at the check before that sleep */
    bool (*until)(void *ctx);       /* SIM_UNTIL */
    void *until_ctx;
    void *(*run)(void *ctx);
    void *run_ctx;
    struct remo__tls tls;
    struct remo__thread *threads;
    struct remo__scheduler *scheduler; /* the tasks of the thread, and their sentences */
    struct remo__last_error *last_error;
    uint32_t stores_count; /* in its store buffer (actor.c) */
    bool is_counted;       /* mapped memory: as a sleeper of its node's doorbell */
    bool counts_next;      /* the next check of the wait is the last before a sleep */
    bool body_ended;
    uint64_t turns, posts; /* scheduling points and operations posted so far, for claimed bounds */
    const char *doing;     /* for the trace */
};

/* Masks of actors (ready.h). */
struct sim_ready {
    uint32_t able;
    uint32_t paused;   /* in state SIM_PAUSED */
    uint32_t in_until; /* in state SIM_UNTIL */
    uint32_t recheck;  /* to be checked again */
    uint32_t programs; /* program threads */
    uint32_t crashed;  /* actors of crashed nodes */
    uint32_t of_node[SIM_NODES_MAX];
    uint64_t wake_at; /* the earliest end of a sleep */
};

/* A node's doorbell. Where memory is not mapped, `sleepers` is never 0: each notification is sent. */
struct sim_bell {
    struct remo__doorbell bell;
    uint32_t node;
};

struct sim_case;

#define SIM_PARTED_MAX 2u

struct sim_world { /* allocated in the simulated heap, as all state of a schedule */
    const struct sim_case *test;
    uint32_t nodes_count;
    struct sim_actor actors[SIM_ACTORS_MAX];
    uint32_t actors_count;
    struct sim_ready ready;
    uint32_t lingering; /* mask of the actors with stores in their buffers */
    uint32_t stirred;   /* mask of the actors that ran since time passed; all if an operation was in flight */
    uint32_t retrying;  /* mask of the actors in a retry (remote/wait.h) */
    uint64_t version[SIM_NODES_MAX];
    uint64_t now_ns, steps, idle_jumps, random_calls;
    bool is_mapped; /* peers' memory */
    bool running;   /* a schedule runs, not the set-up */
    bool crashed[SIM_NODES_MAX], paused[SIM_NODES_MAX];
    bool was_busy[SIM_NODES_MAX]; /* a thread, at the last sweep of the node (actor.c) */
    bool lost[SIM_NODES_MAX];     /* its streams to all peers have ended; the node itself may still run */
    uint32_t parted_count;
    struct sim_parted {
        uint32_t stays, ends;
        uint64_t until;          /* this step */
    } parted[SIM_PARTED_MAX];    /* arguments of sim_part */
    bool ends[SIM_NODES_MAX];    /* it is lost because it ends its streams */
    bool severed[SIM_NODES_MAX]; /* all its other traffic has ended too */
    bool hurt[SIM_NODES_MAX];    /* one of its operations was made to fail */
    struct sim_bell bells[SIM_NODES_MAX];
    uint64_t partings; /* number of streams opened, closed or lost */
    bool fault_over;
    struct sim_failing failing[3]; /* sim_fail_next: posts, completions, allocations */
    uint64_t allocations_before;   /* before the schedule */
    uint32_t programs_left, bodies_left, after_left;
    uint64_t
        faults_over_step; /* the step at which the last body, and with it all faults, ended; 0: not yet */
    struct remo_node *nodes[SIM_NODES_MAX];
    void *state; /* state of the case */
    struct sim_net *net;
    struct sim_cache *caches; /* [SIM_NODES_MAX] */
    struct sim_control *controls[SIM_NODES_MAX];
};

extern struct sim_world *sim_world; /* defined in turn.c, for both worlds */

/* Set up a world for a case under the current profile. Returns false on failure; see
 * sim_failure(). */
bool sim_world_open(const struct sim_case *test);
void sim_world_close(void);
/* Run from the saved state to the end of all programs. Returns false on failure; see
 * sim_failure(). */
bool sim_world_run(void);

/* ---- for the fabric and the control plane ---- */
/* A scheduling point of the current actor; `what` describes the next action. */
void sim_point(const char *what);
/* Suspend the current actor until `until` returns true. A library thread may wait only for state of
 * its own node, and for changes that sim_changed reports there (ready.h). */
void sim_until(bool (*until)(void *ctx), void *ctx, const char *what);
void sim_drain(struct sim_actor *actor);
/* Return whether sleepers of node `to` execute the fence of notifications by node `from`: in one direction,
 * so that both ways are explored. */
static inline bool sim_sleepers_fence(uint32_t from, uint32_t to) {
    return from < to;
}
#ifdef SIM_TIMED
void sim_changed(uint32_t node);
#else
static inline void sim_changed(uint32_t node) {
    sim_world->version[node]++;
    sim_world->ready.recheck |= sim_world->ready.of_node[node];
}
#endif
/* Notify a node: its sleeping actors check their conditions again. */
void sim_notify(uint32_t node);
void sim_spawn_control(uint32_t node, void *(*run)(void *ctx), void *ctx);

/* Return whether all bodies, and with them all faults, have ended. */
static inline bool sim_faults_over(void) {
    return sim_world->faults_over_step != 0;
}

/* ---- the trace ---- */
extern bool sim_tracing;
void sim_trace_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define sim_trace(...) (__builtin_expect(sim_tracing, 0) ? sim_trace_print(__VA_ARGS__) : (void)0)
/* Describe an address in an arena, as in "node 1 +0x40"; the text is the same in every run. */
const char *sim_place(const void *at);
