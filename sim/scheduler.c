/* scheduler.c - the policies of scheduler.h.
 * Every policy takes a step that was possible for too many picks, so polling cannot starve the world. */
#include "sim/scheduler.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"

#define DEPTH_MAX 5u
#define STEPS_IN_A_ROW 400u       /* steps of one line while others are possible; then it drops */
#define WAIT_PICKS_MAX 400u       /* picks for which a possible step may wait; then it comes next */
#define WAIT_PICKS_MAX_STARVE 64u /* the same for a starving policy, and for a replay without choices left */
#define HELD_BACK_MAX 64u         /* lines at change points, each with its own priority */
#define POLICIES 7u
#define STARVED_ENDPOINTS 9u

struct line {
    uint32_t priority; /* 0: not assigned yet */
    uint32_t possible; /* the pick at which it was possible last; 0: never */
    uint32_t since;    /* the pick since which it has been possible without being taken */
};

static struct {
    struct sim_schedule is;
    struct remo__random random;
    uint32_t picks;
    uint64_t changes[DEPTH_MAX];
    uint32_t changes_count;
    struct line lines[SIM_LINES_MAX];
    uint32_t lowest;    /* the priority of the next line that polls without effect */
    uint32_t held_back; /* the priority of the next line that drops at a change point; lower still */
    uint32_t last_line, in_a_row;
    uint32_t turn;
    uint16_t choices[SIM_CHOICES_MAX];
    uint32_t choices_count;
    uint32_t replayed;
    uint64_t hash;
} at;

struct sim_schedule sim_schedule_of(uint64_t seed, uint64_t expected_steps, uint32_t programs) {
    struct sim_schedule schedule = {.policy = SIM_RANDOM, .seed = seed, .expected_steps = expected_steps};
    uint32_t kind = (uint32_t)(seed % POLICIES);
    if (kind >= 1 && kind <= 5) {
        schedule.policy = SIM_PCT;
        schedule.depth = kind;
        schedule.holds_back = seed / POLICIES % 2 == 1;
    } else if (kind == 6) {
        schedule.policy = SIM_STARVE;
        uint32_t turn = (uint32_t)(seed / POLICIES);
        schedule.starved = turn / 2 % programs;
        schedule.starved_end = schedule.starved + 1;
        if (turn % 2 == 1) {
            schedule.starved = SIM_NET_LINES + turn / 2 % STARVED_ENDPOINTS * SIM_NET_LINES_ENDPOINT;
            schedule.starved_end = schedule.starved + SIM_NET_LINES_ENDPOINT;
        }
    }
    return schedule;
}

const char *sim_schedule_name(const struct sim_schedule *schedule) {
    static const char *const pct[] = {"", "PCT 1", "PCT 2", "PCT 3", "PCT 4", "PCT 5"};
    switch (schedule->policy) {
    case SIM_PCT: return pct[schedule->depth];
    case SIM_STARVE: return "starve one";
    case SIM_REPLAY: return "replay";
    case SIM_IN_TURN: return "in turn";
    default: return "random";
    }
}

void sim_scheduler_begin(const struct sim_schedule *schedule) {
    at.is = *schedule;
    remo__random_seed(&at.random, schedule->seed);
    memset(at.lines, 0, sizeof at.lines);
    at.lowest = HELD_BACK_MAX + SIM_CHOICES_MAX;
    at.held_back = HELD_BACK_MAX;
    at.picks = 0, at.choices_count = 0, at.replayed = 0, at.in_a_row = 0, at.turn = 0, at.hash = 0;
    at.last_line = UINT32_MAX;
    at.changes_count = schedule->policy == SIM_PCT ? schedule->depth - 1 : 0;
    for (uint32_t i = 0; i < at.changes_count; i++)
        at.changes[i] =
            remo__random_below(&at.random, schedule->expected_steps ? schedule->expected_steps : 1);
}

void sim_scheduler_end_faults(void) {
    if (at.is.policy == SIM_PCT || at.is.policy == SIM_STARVE)
        at.is.policy = SIM_RANDOM;
}

static struct line *line_of(const struct sim_step *step) {
    return &at.lines[step->line % SIM_LINES_MAX];
}

static uint32_t priority_of(const struct sim_step *step) {
    struct line *line = line_of(step);
    if (line->priority == 0)
        line->priority = (uint32_t)remo__random_next(&at.random) | 0x80000000u;
    return line->priority;
}

/* Drop the line below all lines that have run, but above those held back. */
static void drop(uint32_t line) {
    at.lowest -= at.lowest > HELD_BACK_MAX + 1;
    at.lines[line % SIM_LINES_MAX].priority = at.lowest;
}

static void hold_back(uint32_t line) {
    at.held_back -= at.held_back > 1;
    at.lines[line % SIM_LINES_MAX].priority = at.held_back;
}

void sim_scheduler_yield(uint32_t line) {
    if (at.is.policy == SIM_PCT)
        drop(line);
}

static uint32_t highest(const struct sim_step *steps, uint32_t count) {
    uint32_t best = 0, best_priority = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t priority = priority_of(&steps[i]);
        if (priority > best_priority)
            best = i, best_priority = priority;
    }
    return best;
}

static uint32_t pick_pct(const struct sim_step *steps, uint32_t count) {
    uint32_t best = highest(steps, count);
    bool change = false;
    for (uint32_t i = 0; i < at.changes_count; i++)
        change |= at.changes[i] == at.picks;
    at.in_a_row = steps[best].line == at.last_line && count > 1 ? at.in_a_row + 1 : 0;
    if (change || at.in_a_row > STEPS_IN_A_ROW) {
        at.in_a_row = 0;
        if (change && at.is.holds_back)
            hold_back(steps[best].line);
        else
            drop(steps[best].line);
        best = highest(steps, count);
    }
    at.last_line = steps[best].line;
    return best;
}

static uint32_t pick_starving(const struct sim_step *steps, uint32_t count) {
    uint32_t picked = (uint32_t)remo__random_below(&at.random, count);
    if (steps[picked].line >= at.is.starved && steps[picked].line < at.is.starved_end && count > 1)
        picked = (picked + 1 + (uint32_t)remo__random_below(&at.random, count - 1)) % count;
    return picked;
}

static uint32_t replay(uint32_t count) {
    uint32_t choice = at.replayed < at.is.choices_count ? at.is.choices[at.replayed] : 0;
    at.replayed++;
    return choice % count;
}

/* Return a step that has waited for too long, or `count`. */
static uint32_t neglected(const struct sim_step *steps, uint32_t count) {
    uint32_t found = count, picks = at.picks,
             most = at.is.policy == SIM_RANDOM || at.is.policy == SIM_PCT ? WAIT_PICKS_MAX
                                                                          : WAIT_PICKS_MAX_STARVE;
    for (uint32_t i = 0; i < count; i++) {
        struct line *line = line_of(&steps[i]);
        if (line->possible + 1 < picks || line->possible == 0)
            line->since = picks;
        line->possible = picks;
        if (picks - line->since > most)
            found = i;
    }
    return found;
}

static uint32_t note(uint32_t choice, uint32_t among) {
    at.hash = (at.hash ^ ((uint64_t)among << 32 | choice)) * 0x9e3779b97f4a7c15u;
    if (at.choices_count < SIM_CHOICES_MAX)
        at.choices[at.choices_count++] = (uint16_t)choice;
    return choice;
}

uint32_t sim_scheduler_pick(const struct sim_step *steps, uint32_t count) {
    uint32_t picked = 0;
    at.picks++;
    uint32_t waited = neglected(steps, count);
    bool free_choice =
        at.is.policy != SIM_IN_TURN && (at.is.policy != SIM_REPLAY || at.replayed >= at.is.choices_count);
    if (waited < count && count > 1 && free_choice) {
        line_of(&steps[waited])->since = at.picks;
        return note(waited, count << 16 | steps[waited].line);
    }
    switch (at.is.policy) {
    case SIM_RANDOM: picked = (uint32_t)remo__random_below(&at.random, count); break;
    case SIM_PCT: picked = pick_pct(steps, count); break;
    case SIM_STARVE: picked = pick_starving(steps, count); break;
    case SIM_REPLAY: picked = count > 1 ? replay(count) : 0; break;
    case SIM_IN_TURN: return at.turn++ % count;
    }
    line_of(&steps[picked])->since = at.picks;
    return count > 1 ? note(picked, count << 16 | steps[picked].line) : picked;
}

uint32_t sim_choose(uint32_t count) {
    if (count <= 1)
        return 0;
    if (at.is.policy == SIM_IN_TURN)
        return 0;
    return note(at.is.policy == SIM_REPLAY ? replay(count) : (uint32_t)remo__random_below(&at.random, count),
                count);
}

uint64_t sim_scheduler_hash(void) {
    return at.hash;
}

const uint16_t *sim_scheduler_choices(uint32_t *ret_count) {
    *ret_count = at.choices_count;
    return at.choices;
}
