/* explore.c - explores schedules of a case, sweeps faults over them, shrinks and prints failures.
 * A schedule depends only on its case, profile, seed and fault, so every failure can be
 * repeated. */
#include "sim/explore.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "sim/memory/heap.h"
#include "sim/linear.h"

#define LINEAR_BUDGET_NODES 200000u
#define SHRINK_RUNS_MAX 4000u

static struct linear *linear;
static uint16_t kept_choices[SIM_CHOICES_MAX];

static double cpu_seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

const struct sim_case *sim_case_find(const char *object, const char *name) {
    for (uint32_t i = 0; i < sim_cases_count; i++)
        if (strcmp(sim_cases[i]->object, object) == 0 && strcmp(sim_cases[i]->name, name) == 0)
            return sim_cases[i];
    return NULL;
}

/* ---- one schedule ---- */

static bool judge(const struct sim_case *test, char *text, size_t cap) {
    struct linear_report report;
    if (!linear)
        linear = linear_open(LINEAR_BUDGET_NODES);
    enum verdict verdict = linear_check(linear, &sim_history, test->oracle, &report);
    if (verdict == LINEAR_YES)
        return true;
    size_t used = (size_t)snprintf(
        text, cap, "%s", verdict == LINEAR_NO ? "not linearizable:" : "no verdict within the budget:");
    for (uint32_t i = 0; i < sim_history.count && used < cap; i++) {
        const struct call *call = &sim_history.calls[i];
        char what[96];
        if (call->key != report.key || call->end == HISTORY_NONE)
            continue;
        test->oracle->print(call, what, sizeof what);
        used += (size_t)snprintf(text + used, cap - used, " %u:%s [%" PRIu64 "-%s%" PRIu64 "]", call->actor,
                                 what, call->begin, call->end == HISTORY_NEVER ? "never " : "",
                                 call->end == HISTORY_NEVER ? 0 : call->end);
    }
    return false;
}

/* Run one schedule. Returns true if nothing is wrong. */
static bool run_once(const struct sim_case *test, const struct sim_schedule *schedule, char *text,
                     size_t cap) {
    sim_scheduler_begin(schedule);
    if (!sim_world_run()) {
        snprintf(text, cap, "%s", sim_failure());
        return false;
    }
    return !test->oracle || (test->whole_only && (sim_any_out() || sim_any_hurt())) || judge(test, text, cap);
}

static uint64_t calibrate(const struct sim_case *test) {
    const struct sim_schedule schedule = {.policy = SIM_RANDOM, .seed = 0};
    char text[SIM_FAILURE_BYTES];
    sim_fault = (struct sim_fault){0};
    (void)run_once(test, &schedule, text, sizeof text);
    return sim_world->steps;
}

/* Return the fault of a schedule; it depends only on the arguments. `steps` and `places` are
 * estimates of the schedule's length and of its places for the fault. If `at` is 0, one of the
 * places is chosen. */
static struct sim_fault fault_of(const struct sim_run *run, uint64_t seed, uint64_t at, uint64_t steps,
                                 uint64_t places) {
    const struct sim_case *test = run->test;
    struct sim_fault fault = {.kind = run->fault, .at = at};
    uint64_t chance = remo__random_mix(seed ^ 0xc0ffee);
    fault.node = test->fault_first + (uint32_t)((chance >> 40) % (test->nodes - test->fault_first));
    if (run->fault == SIM_PAUSE || run->fault == SIM_ZOMBIE)
        fault.pause_steps = 1 + chance % (steps + 1);
    if (at == 0)
        fault.at = 1 + (chance >> 8) % (places + places / 4 + 1);
    return fault;
}

static bool open_world(const struct sim_run *run) {
    sim_profile = run->profile;
    return sim_world_open(run->test);
}

/* ---- many schedules ---- */

struct exploring {
    const struct sim_run *run;
    struct sim_outcome outcome;
    uint64_t steps;  /* estimated steps per schedule */
    uint64_t places; /* estimated places for the fault */
    uint64_t blocks; /* in use when all is closed; 0: not known yet */
    uint64_t sweeps; /* number of sweeping schedules; they run first */
};

#define PROGRESS_SCHEDULES 256u

static bool is_over(const struct exploring *exploring) {
    const struct sim_outcome *outcome = &exploring->outcome;
    uint64_t most = exploring->run->failures_max;
    return outcome->schedules >= exploring->run->schedules || (most != 0 && outcome->failures >= most);
}

/* Return whether, after closing, as many blocks are in use as after the first schedule, which has
 * no fault. */
static bool nothing_leaks(struct exploring *exploring, char *text, size_t cap) {
    uint64_t blocks = sim_heap_blocks();
    if (exploring->blocks == 0)
        exploring->blocks = blocks;
    if (exploring->blocks == blocks)
        return true;
    snprintf(text, cap,
             "%" PRIu64 " blocks of memory are in use after closing, %" PRIu64 " without a failure", blocks,
             exploring->blocks);
    return false;
}

static void explore_one(struct exploring *exploring, uint64_t seed, const struct sim_fault *fault) {
    const struct sim_run *run = exploring->run;
    struct sim_outcome *outcome = &exploring->outcome;
    char text[SIM_FAILURE_BYTES];
    struct sim_schedule schedule =
        sim_schedule_of(seed, exploring->steps, run->test->nodes * run->test->threads);
    sim_fault = *fault;
    bool good = run_once(run->test, &schedule, text, sizeof text);
    if (good && sim_fault_fails())
        good = nothing_leaks(exploring, text, sizeof text);
    outcome->schedules++;
    outcome->steps += sim_world->steps;
    outcome->hash = (outcome->hash ^ sim_scheduler_hash()) * 0x9e3779b97f4a7c15u;
    if (run->progress && outcome->schedules % PROGRESS_SCHEDULES == 0)
        run->progress(run->progress_ctx, outcome->schedules);
    if (good || outcome->failures++ > 0)
        return;
    outcome->seed = seed;
    outcome->at = fault->kind == SIM_NO_FAULT ? 0 : fault->at;
    outcome->until_failure = outcome->schedules;
    memcpy(outcome->text, text, sizeof outcome->text);
}

/* Return how many places for the fault the last schedule had. */
static uint64_t places(enum sim_fault_kind kind) {
    return kind == SIM_FAIL_POST         ? sim_net_posts()
           : kind == SIM_LOSE            ? sim_net_posts()
           : kind == SIM_REFUSE          ? sim_net_posts()
           : kind == SIM_FAIL_COMPLETION ? sim_net_completions()
           : kind == SIM_FAIL_ALLOCATION ? sim_heap_allocations() - sim_world->allocations_before
           : sim_faults_over()           ? sim_world->faults_over_step
                                         : sim_world->steps;
}

static bool is_sweeping(const struct exploring *exploring) {
    return exploring->outcome.schedules < exploring->sweeps && !is_over(exploring);
}

/* Run a seed without the fault, then with the fault at each place. */
static void explore_every(struct exploring *exploring, uint64_t seed) {
    const struct sim_fault none = {.kind = exploring->run->fault}; /* at 0: never */
    explore_one(exploring, seed, &none);
    uint64_t last = places(exploring->run->fault);
    for (uint64_t at = 1; at <= last && is_sweeping(exploring); at++) {
        struct sim_fault fault = fault_of(exploring->run, seed, at, exploring->steps, 0);
        explore_one(exploring, seed, &fault);
    }
}

/* Return how many schedules sweep. A sweep takes many schedules per seed and misses rare seeds. So
 * it gets half of the schedules; each of the others takes the next seed, with the fault at one
 * place. */
static uint64_t sweeps_of(const struct sim_run *run) {
    bool sweeps = run->fault != SIM_NO_FAULT && !run->somewhere && run->at == 0;
    return sweeps ? run->schedules - run->schedules / 2 : 0;
}

void sim_explore(const struct sim_run *run, struct sim_outcome *ret_outcome) {
    struct exploring exploring = {.run = run};
    struct sim_outcome *outcome = &exploring.outcome;
    double begin = cpu_seconds_now();
    sim_fault = (struct sim_fault){0};
    if (!open_world(run)) {
        outcome->broken = true;
        outcome->failures = 1;
        snprintf(outcome->text, sizeof outcome->text, "set-up: %s", sim_failure());
        *ret_outcome = *outcome;
        return;
    }
    exploring.steps = calibrate(run->test);
    exploring.places = places(run->fault);
    exploring.sweeps = sweeps_of(run);
    outcome->saved_bytes = sim_heap_saved_bytes();
    for (uint64_t seed = run->seed; !is_over(&exploring); seed++) {
        struct sim_fault fault = fault_of(run, seed, run->at, exploring.steps, exploring.places);
        outcome->seeds++;
        if (is_sweeping(&exploring))
            explore_every(&exploring, seed);
        else
            explore_one(&exploring, seed, &fault);
    }
    outcome->cpu_seconds = cpu_seconds_now() - begin;
    sim_world_close();
    *ret_outcome = *outcome;
}

/* ---- shrinking: a replay with the fewest choices that still fails ---- */

static bool fails_with(const struct sim_run *run, const uint16_t *choices, uint32_t count, uint32_t *budget) {
    const struct sim_schedule schedule = {.policy = SIM_REPLAY, .choices = choices, .choices_count = count};
    char text[SIM_FAILURE_BYTES];
    if (*budget == 0)
        return false;
    --*budget;
    return !run_once(run->test, &schedule, text, sizeof text);
}

/* Cut pieces out, then replace choices by the first one (0), while the schedule still fails. */
static uint32_t shrink_choices(const struct sim_run *run, uint16_t *choices, uint32_t count) {
    static uint16_t tried[SIM_CHOICES_MAX];
    uint32_t budget = SHRINK_RUNS_MAX;
    for (uint32_t piece = count; piece > 0; piece /= 2)
        for (uint32_t from = 0; from < count;) {
            uint32_t cut = piece < count - from ? piece : count - from;
            memcpy(tried, choices, from * sizeof *tried);
            memcpy(tried + from, choices + from + cut, (count - from - cut) * sizeof *tried);
            if (fails_with(run, tried, count - cut, &budget)) {
                count -= cut;
                memcpy(choices, tried, count * sizeof *tried);
            } else {
                from += cut;
            }
        }
    for (uint32_t i = 0; i < count; i++) {
        uint16_t was = choices[i];
        choices[i] = 0;
        if (was != 0 && !fails_with(run, choices, count, &budget))
            choices[i] = was;
    }
    uint32_t used = count; /* without zeros at the end, the scheduler chooses freely earlier */
    while (used > 0 && choices[used - 1] == 0)
        used--;
    return used < count && fails_with(run, choices, used, &budget) ? used : count;
}

/* Return the fault of a run of one schedule; without a place for it, none. */
static struct sim_fault fault_of_one(const struct sim_run *run, uint64_t steps) {
    struct sim_fault none = {0};
    return run->at != 0 ? fault_of(run, run->seed, run->at, steps, 0) : none;
}

bool sim_shrink(const struct sim_run *run, struct sim_replay *ret_replay) {
    char text[SIM_FAILURE_BYTES];
    uint32_t count;
    sim_fault = (struct sim_fault){0};
    if (!open_world(run))
        return false;
    uint64_t steps = calibrate(run->test);
    struct sim_schedule schedule = sim_schedule_of(run->seed, steps, run->test->nodes * run->test->threads);
    struct sim_replay replay = {
        .test = run->test, .profile = run->profile, .fault = fault_of_one(run, steps)};
    sim_fault = replay.fault;
    bool fails = !run_once(run->test, &schedule, text, sizeof text);
    if (fails) {
        const uint16_t *choices = sim_scheduler_choices(&count);
        memcpy(kept_choices, choices, count * sizeof *choices);
        count = shrink_choices(run, kept_choices, count);
        replay.schedule = (struct sim_schedule){
            .policy = SIM_REPLAY, .seed = run->seed, .choices = kept_choices, .choices_count = count};
    }
    sim_world_close();
    *ret_replay = replay;
    return fails;
}

static bool print_steps(const struct sim_case *test, const struct sim_schedule *schedule) {
    char text[SIM_FAILURE_BYTES];
    sim_tracing = true;
    bool good = run_once(test, schedule, text, sizeof text);
    sim_tracing = false;
    printf("%s\n", good ? "no failure" : text);
    sim_world_close();
    return good;
}

bool sim_trace_seed(const struct sim_run *run) {
    sim_fault = (struct sim_fault){0};
    if (!open_world(run))
        return false;
    uint64_t steps = calibrate(run->test);
    const struct sim_schedule schedule =
        sim_schedule_of(run->seed, steps, run->test->nodes * run->test->threads);
    sim_fault = fault_of_one(run, steps);
    return print_steps(run->test, &schedule);
}

bool sim_replay_run(const struct sim_replay *replay) {
    const struct sim_run run = {.test = replay->test, .profile = replay->profile};
    sim_fault = (struct sim_fault){0};
    if (!open_world(&run)) {
        printf("set-up: %s\n", sim_failure());
        return false;
    }
    sim_fault = replay->fault;
    return print_steps(replay->test, &replay->schedule);
}

/* ---- files ---- */

int sim_replay_write(const struct sim_replay *replay, FILE *file) {
    const struct sim_fault *fault = &replay->fault;
    fprintf(file, "remo-sim 3\ncase %s %s\nprofile %s\nseed %" PRIu64 "\n", replay->test->object,
            replay->test->name, replay->profile->name, replay->schedule.seed);
    fprintf(file, "fault %u node %u at %" PRIu64 " pause %" PRIu64 "\nchoices %u\n", (unsigned)fault->kind,
            fault->node, fault->at, fault->pause_steps, replay->schedule.choices_count);
    for (uint32_t i = 0; i < replay->schedule.choices_count; i++)
        fprintf(file, "%u%c", replay->schedule.choices[i], i % 20 == 19 ? '\n' : ' ');
    fprintf(file, "\n");
    return ferror(file) ? -EIO : 0;
}

int sim_replay_read(FILE *file, struct sim_replay *ret_replay) {
    struct sim_replay replay = {0};
    struct sim_fault *fault = &replay.fault;
    char object[32], name[32], profile[32];
    uint32_t count = 0, kind = 0;
    if (fscanf(file, "remo-sim 3 case %31s %31s profile %31s seed %" SCNu64, object, name, profile,
               &replay.schedule.seed)
            != 4
        || fscanf(file, " fault %u node %u at %" SCNu64 " pause %" SCNu64 " choices %u", &kind, &fault->node,
                  &fault->at, &fault->pause_steps, &count)
               != 5
        || count > SIM_CHOICES_MAX || kind >= SIM_FAULT_KINDS || fault->node >= SIM_NODES_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < count; i++)
        if (fscanf(file, "%hu", &kept_choices[i]) != 1)
            return -EINVAL;
    fault->kind = (enum sim_fault_kind)kind;
    replay.test = sim_case_find(object, name);
    replay.profile = sim_profile_find(profile);
    replay.schedule.policy = SIM_REPLAY;
    replay.schedule.choices = kept_choices;
    replay.schedule.choices_count = count;
    *ret_replay = replay;
    return replay.test && replay.profile ? 0 : -EINVAL;
}
