/* scheduler.h - the choice of the next step among all possible steps.
 *
 * Random:  each step is equally likely.
 * PCT:     each line (an actor, a store buffer, a stage of a connection) has a random priority; the highest
 *          one runs. At depth-1 random steps, the running line drops to the lowest priority (Burckhardt et
 *          al., ASPLOS 2010). A line that polls without effect drops too, to prevent starvation. With every
 *          other seed it drops even below the lines dropped at such a step, which then run whenever another
 *          line waits. Otherwise it stays above them, and they run only if no other step is possible or
 *          after a limit.
 * Starve:  one program thread, or the operations of one endpoint, runs only if no other step is possible or
 *          after a limit.
 * Replay:  the choices of a file; after their end, the first step: the actor that ran last, if possible.
 * Choices are indices of possible steps, in an order that depends only on the schedule so far. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SIM_CHOICES_MAX (1u << 16)
#define SIM_LINES_MAX 1024u
/* the first line of the network; actors and their stores come before */
#define SIM_NET_LINES 48u
#define SIM_NET_LINES_ENDPOINT 36u /* lines of one endpoint: peers, variants, stages */

enum sim_policy { SIM_RANDOM, SIM_PCT, SIM_STARVE, SIM_REPLAY, SIM_IN_TURN };

enum sim_step_kind { SIM_STEP_ACTOR, SIM_STEP_STORE, SIM_STEP_NET };

struct sim_step {
    uint8_t kind, stage; /* of an operation */
    uint16_t index;
    uint16_t line; /* the thread of PCT */
};

/* Assign field by field: a whole struct would be read back before its parts are written. */
static inline void sim_step_set(struct sim_step *step, enum sim_step_kind kind, uint32_t stage,
                                uint32_t index, uint32_t line) {
    step->kind = (uint8_t)kind;
    step->stage = (uint8_t)stage;
    step->index = (uint16_t)index;
    step->line = (uint16_t)line;
}

struct sim_schedule {
    enum sim_policy policy;
    uint64_t seed;
    uint32_t depth; /* PCT */
    /* PCT: lines dropped at change points stay lowest */
    bool holds_back;
    uint64_t expected_steps;       /* PCT: change points lie in this range */
    uint32_t starved, starved_end; /* lines [starved, starved_end) */
    const uint16_t *choices;       /* replay */
    uint32_t choices_count;
};

/* Return the schedule of `seed`: random, PCT 1 to 5 and starve in turn. */
struct sim_schedule sim_schedule_of(uint64_t seed, uint64_t expected_steps, uint32_t programs);
const char *sim_schedule_name(const struct sim_schedule *schedule);

void sim_scheduler_begin(const struct sim_schedule *schedule);
/* Pick one of steps[0, count), count > 0. */
uint32_t sim_scheduler_pick(const struct sim_step *steps, uint32_t count);
/* Continue at random; no line is starved or held back any longer. */
void sim_scheduler_end_faults(void);
/* Return a number below `count`, for choices inside a step. */
uint32_t sim_choose(uint32_t count);
/* Note that the line polled without effect. */
void sim_scheduler_yield(uint32_t line);
/* Return a hash of all choices so far and of their alternatives. */
uint64_t sim_scheduler_hash(void);
/* Return the choices so far. */
const uint16_t *sim_scheduler_choices(uint32_t *ret_count);
