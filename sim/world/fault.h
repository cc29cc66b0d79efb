/* fault.h - the fault that a schedule injects into a node.
 *
 * Crash:   the node stops at once. Unsent data vanishes; sent data may still land until its target has cut
 *          the node off.
 * Pause:   the node pauses for some steps, undetected.
 * Zombie:  the node pauses, is declared failed, and resumes: it must not be able to do harm.
 * Cut:     no traffic passes between the node and its peers; each side declares the other failed.
 * Lose:    the connection of the n-th operation is lost: the one of its nodes with the higher rank is
 *          declared failed, and continues. Operations in flight on the connection may still take effect.
 * Fail:    the n-th post, completion or allocation of the schedule fails, at any node. The call must return
 *          an error with a sentence. The node then closes all objects and leaves; its peers continue, and
 *          no memory may leak.
 * Refuse:  the n-th operation of the schedule is refused by its target: it is not executed. Later operations
 *          are, on a new connection, as on verbs. Otherwise as Fail. Only on networks whose completions do
 *          not mean placement: on the others no connection is made again.
 * Faults end with the last body. After that, the surviving nodes must complete all calls within a bound of
 * steps. */
#pragma once

#include "sim/world/world.h"

enum sim_fault_kind {
    SIM_NO_FAULT,
    SIM_CRASH,
    SIM_PAUSE,
    SIM_ZOMBIE,
    SIM_CUT,
    SIM_LOSE,
    SIM_FAIL_POST,
    SIM_FAIL_COMPLETION,
    SIM_FAIL_ALLOCATION,
    SIM_REFUSE,
    SIM_FAULT_KINDS
};

/* Of the next schedule. */
struct sim_fault {
    enum sim_fault_kind kind;
    uint32_t node;
    uint64_t
        at; /* before this step; of SIM_LOSE, SIM_FAIL_*, SIM_REFUSE: this post, completion or allocation */
    uint64_t pause_steps; /* SIM_PAUSE, SIM_ZOMBIE */
};
extern struct sim_fault sim_fault;

extern const char *const sim_fault_names[SIM_FAULT_KINDS]; /* "crash", ...; "" for none */

/* ---- strike.c: for the world ---- */
/* Apply the fault if it is due before the next step. */
void sim_fault_due(void);
/* Note the end of a program's body. The end of the last body ends all faults; the liveness phase follows. */
void sim_body_ended(struct sim_actor *actor);

/* ---- fault.c: for the heap and the network ---- */
/* Return whether the n-th post (completion, allocation) must fail, and note the node as hurt. */
bool sim_fault_hits(enum sim_fault_kind kind, uint64_t n, uint32_t node);

/* Return whether sim_fail_next demands that the post, completion or allocation of the node fails now. */
bool sim_fail_takes(enum sim_fault_kind kind, uint32_t node);

/* Return whether the fault makes a call fail. Then all nodes close at the end, and leaks are
 * counted. */
static inline bool sim_fault_fails(void) {
    return sim_fault.kind >= SIM_FAIL_POST;
}

/* ---- for cases ---- */
/* Return whether the node has crashed, is cut off, or was declared failed. */
bool sim_out(uint32_t node);
bool sim_any_out(void);
/* Return whether an operation of this node was made to fail. */
bool sim_hurt(uint32_t node);
bool sim_any_hurt(void);
/* Crash a node at once. */
void sim_crash(uint32_t node);
/* Make the peers detect a failure of the node, each at its own time, and the node a failure of its
 * peers. The node itself continues. */
void sim_lose(uint32_t node);
/* End the streams between two nodes only: each detects a failure of the other one at its own time, and
 * both are up for all others. After so many steps the node `ends` ends its streams, and fails for all
 * (docs/internals/membership.md); it counts as out at once. No effect if another node is out already, or
 * after SIM_PARTED_MAX calls. */
void sim_part(uint32_t stays, uint32_t ends, uint32_t steps);
/* Delay operations of the node: skip the next `skip` that it posts, then let the following `count` make no
 * step until sim_delay_end. They may time out meanwhile, and take effect later. One delay at a time. */
void sim_delay(uint32_t node, uint32_t skip, uint32_t count);
void sim_delay_end(void);
/* Skip the next `skip` posts (SIM_FAIL_POST), completions (SIM_FAIL_COMPLETION) or allocations
 * (SIM_FAIL_ALLOCATION) of the node, then let the following `count` fail. An operation whose completion fails
 * was applied. */
void sim_fail_next(enum sim_fault_kind kind, uint32_t node, uint32_t skip, uint32_t count);
/* Return whether an operation was delayed since the last sim_delay. */
bool sim_delay_hit(void);
