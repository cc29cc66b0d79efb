/* scheduler.h - which of the possible steps comes next.
 *
 * Random:  each step as likely as any other.
 * PCT:     each line (an actor, a store buffer, a stage of a connection) has a random priority and the
 *          highest goes on; at depth-1 random moments the one that goes on drops to the bottom (Burckhardt
 *          et al., ASPLOS 2010). Who waits in vain drops too, so that nobody starves: with every other seed
 *          even below what dropped at such a moment, which therefore goes on when anybody waits; else not
 *          below it, so that it is overtaken until nothing else can happen, or it has waited for too long.
 * Starve:  one thread of the program, or the operations of one, take a step only when nothing else can, or
 *          has been able to for long.
 * Replay:  the choices of a file; when they run out, the first step each time: the actor that ran last, if
 *          it can.
 * Choices are numbered among the possible steps in an order that depends on nothing but the schedule so far.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SIM_CHOICES_MAX (1u << 16)
#define SIM_LINES_MAX 1024u
#define SIM_NET_LINES 48u          /* the first one of the network: actors and their stores come before */
#define SIM_NET_LINES_ENDPOINT 36u /* lines of one endpoint: peers, variants, stages */

enum sim_policy { SIM_RANDOM, SIM_PCT, SIM_STARVE, SIM_REPLAY, SIM_IN_TURN };

enum sim_step_kind { SIM_STEP_ACTOR, SIM_STEP_STORE, SIM_STEP_NET };

struct sim_step {
    uint8_t kind, stage; /* the stage: of an operation */
    uint16_t index;
    uint16_t line; /* PCT's thread */
};

/* Field by field: a whole one would be read back before its parts are written. */
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
    uint32_t depth;                /* PCT */
    bool holds_back;               /* PCT: what drops at a change point stays below all that wait and go on */
    uint64_t expected_steps;       /* PCT: change points lie in this range */
    uint32_t starved, starved_end; /* lines [starved, starved_end) */
    const uint16_t *choices;       /* replay */
    uint32_t choices_count;
};

/* The policy that `seed` stands for: random, PCT 1 to 5, starve-one in turn. */
struct sim_schedule sim_schedule_of(uint64_t seed, uint64_t expected_steps, uint32_t programs);
const char *sim_schedule_name(const struct sim_schedule *schedule);

void sim_scheduler_begin(const struct sim_schedule *schedule);
/* One of steps[0, count), count > 0. */
uint32_t sim_scheduler_pick(const struct sim_step *steps, uint32_t count);
/* From here on nobody is starved or held back for long: random. */
void sim_scheduler_calm(void);
/* A number below `count`, for choices inside a step. */
uint32_t sim_choose(uint32_t count);
/* The line looked in vain. */
void sim_scheduler_yield(uint32_t line);
/* Of every choice so far, and of what there was to choose from. */
uint64_t sim_scheduler_hash(void);
/* What was chosen so far. */
const uint16_t *sim_scheduler_choices(uint32_t *ret_count);
