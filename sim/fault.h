/* fault.h - what befalls a node in a schedule.
 *
 * Crash:   it stops at once. What it had not sent vanishes; what it had sent may still land, until its target
 *          has cut it off.
 * Pause:   it stands still for a while, and nobody notices.
 * Zombie:  it stands still, is taken for dead, and comes back: it must be able to harm nobody.
 * Cut:     nothing gets through between it and the others, of which each side takes the other for dead.
 * Fail:    the n-th post, completion or allocation of the schedule fails, at whichever node that is. The call
 *          that it makes fail must say so in a sentence; that node then closes all it has and leaves, the
 *          others go on, and in the end nothing may have leaked.
 * Faults end when the last body has ended: then the survivors must do all they are asked for, within a bound
 * of steps.
 */
#pragma once

#include "sim/world.h"

enum sim_fault_kind {
    SIM_NO_FAULT,
    SIM_CRASH,
    SIM_PAUSE,
    SIM_ZOMBIE,
    SIM_CUT,
    SIM_FAIL_POST,
    SIM_FAIL_COMPLETION,
    SIM_FAIL_ALLOCATION,
    SIM_FAULT_KINDS
};

/* Of the schedule to come. */
struct sim_fault {
    enum sim_fault_kind kind;
    uint32_t node;
    uint64_t at;          /* before this step; of SIM_FAIL_*: this post, this completion */
    uint64_t pause_steps; /* SIM_PAUSE, SIM_ZOMBIE */
};
extern struct sim_fault sim_fault;

extern const char *const sim_fault_names[SIM_FAULT_KINDS]; /* "crash", ...; "" for none */

/* Do what is due before the step that comes. */
void sim_fault_due(void);
/* Is it the n-th post's (completion's) turn to fail? Notes whom it hurts. */
bool sim_fault_hits(enum sim_fault_kind kind, uint64_t n, uint32_t node);

/* Does the fault make something fail? Then all is closed in the end, and counted. */
static inline bool sim_fault_fails(void) {
    return sim_fault.kind >= SIM_FAIL_POST;
}

/* ---- for cases ---- */
/* Dead, cut off, or taken for dead. */
bool sim_out(uint32_t node);
bool sim_any_out(void);
/* An operation of this node was made to fail. */
bool sim_hurt(uint32_t node);
bool sim_any_hurt(void);
#define SIM_ANY UINT32_MAX
/* Did the call on node `rank` have a right to fail with `rc`, since `depends_on` (SIM_ANY: any) is out, or
 * the node itself is, or was hurt? An error without a sentence is never excused. A node that was hurt ends
 * here: this does not return to it. */
bool sim_excused(uint32_t rank, uint32_t depends_on, int rc);
