/* world.h - the simulated world: nodes whose threads are coroutines, one step at a time.
 *
 * Model:   an actor is a thread of a node: the program's, the control thread, the service thread. It runs
 *          until its next scheduling point: a touch of network memory, the post of an operation, one turn of
 *          waiting, a mutex that another has. There the scheduler picks the next step among all that are
 *          possible: an actor, one store that leaves an actor's store buffer, one micro-step of an operation
 *          in flight.
 * Memory:  a CPU store lingers in its actor's buffer (total store order, own loads see it) until a step
 *          drains it, or the actor does something that orders it: a fence, an atomic, a post, a lock.
 * Waiting: an actor that waits is looked at again when something at its node changed (ready.h). When nothing
 *          can happen, time jumps: to the end of a sleep, then to the next deadline; when there is none, the
 *          world hangs, and that is a failure.
 * Lives:   sim_world_open sets nodes and objects up once; each schedule begins from a copy of that moment.
 */
#pragma once

#include <stdarg.h>

#include "node/node.h"
#include "sim/turn.h"

#ifdef SIM_TIMED /* the other world: timed.h */
#define SIM_NODES_MAX 128u
#else
#define SIM_NODES_MAX 4u
#endif
#define SIM_THREADS_MAX 3u /* of the program, per node */
#define SIM_ACTORS_MAX 24u
#define SIM_STORES_MAX 8u
#define SIM_STEPS_MAX 30000u /* of one schedule; more is a failure: no progress */
#define SIM_CALM_STEPS_MAX \
    6000u /* from the end of all faults to that of the schedule: who survived must get on with it */
#define SIM_ARENA_BYTES (2ull << 20)
#define SIM_OP_TIMEOUT_NS (10 * REMO__NS_PER_S)

enum sim_actor_state { SIM_UNUSED, SIM_READY, SIM_PAUSED, SIM_UNTIL, SIM_DONE, SIM_GONE };
enum sim_role { SIM_PROGRAM, SIM_CONTROL, SIM_SERVICE };

struct sim_store {
    uint64_t *word;
    uint64_t value;
};

struct sim_actor {
    struct coroutine coroutine;
    uint32_t index, node, thread;
    enum sim_role role;
    enum sim_actor_state state;
    bool looking;             /* inside a turn of waiting: looking changes nothing */
    uint64_t looked, wake_at; /* SIM_PAUSED */
    bool (*until)(void *ctx); /* SIM_UNTIL */
    void *until_ctx;
    void *(*run)(void *ctx);
    void *run_ctx;
    struct remo__tls tls;
    struct remo__thread *threads;
    struct sim_store stores[SIM_STORES_MAX];
    uint32_t stores_count;
    bool body_ended;
    uint64_t turns, posts; /* scheduling points and operations posted so far: for bounds that are claimed */
    const char *doing;     /* for the trace */
};

/* Masks of actors (ready.h). */
struct sim_ready {
    uint32_t able;
    uint32_t asleep;   /* SIM_PAUSED, and still so */
    uint32_t asking;   /* SIM_UNTIL */
    uint32_t news;     /* to be asked again */
    uint32_t programs; /* threads of the program */
    uint32_t gone;     /* of nodes that have crashed */
    uint32_t of_node[SIM_NODES_MAX];
    uint64_t wake_at; /* no sleep is over before */
};

struct sim_case;

struct sim_world { /* lies in the heap, like all that belongs to a schedule */
    const struct sim_case *test;
    uint32_t nodes_count;
    struct sim_actor actors[SIM_ACTORS_MAX];
    uint32_t actors_count;
    struct sim_ready ready;
    uint32_t lingering; /* actors with stores in their buffers, a bit each */
    uint64_t version[SIM_NODES_MAX];
    uint64_t now_ns, steps, idle_jumps, random_calls;
    bool running; /* a schedule, not the set-up */
    bool crashed[SIM_NODES_MAX], paused[SIM_NODES_MAX];
    bool lost[SIM_NODES_MAX];    /* its streams to the others have ended, although it may live */
    bool severed[SIM_NODES_MAX]; /* nor does anything else get through */
    bool hurt[SIM_NODES_MAX];    /* an operation of it was made to fail */
    uint64_t partings;           /* how often a stream was opened, closed, lost */
    bool fault_over;
    uint64_t allocations_before; /* the schedule */
    uint32_t programs_left, bodies_left, after_left;
    uint64_t calm_from; /* the step at which the last body ended, and with it all faults; 0: not yet */
    struct remo_node *nodes[SIM_NODES_MAX];
    void *state; /* the case's */
    struct sim_net *net;
    struct sim_cache *caches; /* [SIM_NODES_MAX] */
    struct sim_control *controls[SIM_NODES_MAX];
};

extern struct sim_world *sim_world;

/* Set up a world for a case under a profile; NULL-terminated failure text in sim_failure() when it cannot. */
bool sim_world_open(const struct sim_case *test);
void sim_world_close(void);
/* From the saved moment to the end of all programs; false: sim_failure() says why. */
bool sim_world_run(void);

/* ---- for the fabric and the control plane ---- */
/* A scheduling point of the current actor, about to do `what`. */
void sim_point(const char *what);
/* The current actor goes on when `until` is true. A thread of the library may wait only for what is at its
 * node, and for what is told there by sim_changed (ready.h). */
void sim_until(bool (*until)(void *ctx), void *ctx, const char *what);
/* A store goes into the actor's buffer, and lingers. */
void sim_linger(struct sim_actor *actor, uint64_t *word, uint64_t value);
void sim_drain(struct sim_actor *actor);
#ifdef SIM_TIMED
void sim_changed(uint32_t node);
#else
static inline void sim_changed(uint32_t node) {
    sim_world->version[node]++;
    sim_world->ready.news |= sim_world->ready.of_node[node];
}
#endif
/* The current actor's node closes all it has and leaves, and its body ends here. */
void sim_give_up(void) __attribute__((noreturn));
/* Stop a node at once. */
void sim_crash(uint32_t node);
void sim_spawn_control(uint32_t node, void *(*run)(void *ctx), void *ctx);

/* Have the bodies ended, and with them the faults? */
static inline bool sim_calm(void) {
    return sim_world->calm_from != 0;
}

/* ---- the trace ---- */
extern bool sim_tracing;
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define sim_trace(...) (__builtin_expect(sim_tracing, 0) ? sim_say(__VA_ARGS__) : (void)0)
/* "node 1 +0x40" of an address in an arena, the same on every run. */
const char *sim_place(const void *at);
