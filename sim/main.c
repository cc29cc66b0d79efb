/* main.c - the program behind `remo sim`. */
#include <argp.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "sim/explore.h"
#include "sim/mutant.h"

#define SCHEDULES        20000u
#define MUTANT_SCHEDULES 50000u

struct options {
    const char *object, *profile, *mutant, *replay, *test;
    uint64_t schedules, seed;
    enum sim_fault_mode mode;
    bool all, json, list, mutants, trace;
};

enum { KEY_ALL = 256, KEY_CRASH, KEY_PAUSE, KEY_FAIL, KEY_LIST, KEY_JSON, KEY_MUTANTS, KEY_TRACE };

static const struct argp_option arguments[] = {
    {"object", 'o', "OBJECT", 0, "only this object", 0},
    {"case", 'c', "CASE", 0, "only this case", 0},
    {"all", KEY_ALL, NULL, 0, "every object (the default)", 0},
    {"profile", 'p', "PROFILE", 0, "only this network: ibta_rc, rc_relaxed, efa, tcp, shm, cxl_nc", 0},
    {"schedules", 'n', "N", 0, "schedules of each case under each profile (default 20000)", 0},
    {"seed", 's', "S", 0, "the first one (default 1)", 0},
    {"mutant", 'm', "MUTANT", 0, "leave this step out, and expect to see it fail; \"all\": each of them in turn", 0},
    {"crash", KEY_CRASH, NULL, 0, "a node dies at some step", 0},
    {"pause", KEY_PAUSE, NULL, 0, "a node stands still for a while", 0},
    {"fail", KEY_FAIL, NULL, 0, "posts and completions fail", 0},
    {"replay", 'r', "FILE", 0, "run the schedule of a file and tell each step", 0},
    {"trace", KEY_TRACE, NULL, 0, "tell each step of the schedule of --seed (give --case and --profile)", 0},
    {"json", KEY_JSON, NULL, 0, "one JSON object per line and nothing else", 0},
    {"list", KEY_LIST, NULL, 0, "list cases, profiles and mutants", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case 'o': options->object = value; break;
    case 'c': options->test = value; break;
    case 'p': options->profile = value; break;
    case 'n': options->schedules = strtoull(value, NULL, 10); break;
    case 's': options->seed = strtoull(value, NULL, 10); break;
    case 'm': options->mutant = value; break;
    case 'r': options->replay = value; break;
    case KEY_ALL: options->all = true; break;
    case KEY_CRASH: options->mode = SIM_CRASH; break;
    case KEY_PAUSE: options->mode = SIM_PAUSE; break;
    case KEY_FAIL: options->mode = SIM_FAIL; break;
    case KEY_TRACE: options->trace = true; break;
    case KEY_JSON: options->json = true; break;
    case KEY_LIST: options->list = true; break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static bool wanted(const struct options *options, const struct sim_case *test) {
    return (!options->object || strcmp(options->object, test->object) == 0)
        && (!options->test || strcmp(options->test, test->name) == 0)
        && (options->mode == SIM_NO_FAULTS || options->mode == SIM_PAUSE || options->mode == SIM_FAIL || test->may_crash);
}

static bool claims(const struct sim_case *test, const struct sim_profile *profile) {
    if (profile->cached && !strstr("region owned_var sst barrier", test->object)) /* the others refuse to: case_coherence.c */
        return false;
    return !test->profiles || strstr(test->profiles, profile->name);
}

static int list(void) {
    const char *name;
    for (uint32_t i = 0; i < sim_cases_count; i++)
        printf("case     %-12s %-22s %u nodes, %u threads%s: %s\n", sim_cases[i]->object, sim_cases[i]->name, sim_cases[i]->nodes,
               sim_cases[i]->threads, sim_cases[i]->may_crash ? ", crashes" : "", sim_cases[i]->about);
    for (uint32_t i = 0; i < sim_profiles_count; i++)
        printf("profile  %-12s %s\n", sim_profiles[i].name, sim_profiles[i].about);
    for (uint32_t i = 0; (name = sim_mutant_at(i)) != NULL; i++)
        printf("mutant   %s\n", name);
    return 0;
}

/* ---- a failure, told ---- */

static void tell_failure(const struct sim_run *run, const struct sim_outcome *outcome) {
    static const char *const modes[] = {"", " --crash", " --pause", " --fail"};
    struct sim_replay replay;
    char path[96];
    fprintf(stderr, "%s %s, profile %s, seed %llu: %s\n", run->test->object, run->test->name, run->profile->name,
            (unsigned long long)outcome->first_failure, outcome->text);
    fprintf(stderr, "  again: remo sim --object %s --case %s --profile %s --seed %llu --schedules 1%s%s%s\n", run->test->object,
            run->test->name, run->profile->name, (unsigned long long)outcome->first_failure, modes[run->mode],
            run->mutant ? " --mutant " : "", run->mutant ? run->mutant : "");
    if (outcome->broken || !sim_shrink(run, outcome->first_failure, &replay))
        return;
    snprintf(path, sizeof path, "remo-sim-%s-%s.replay", run->test->object, run->test->name);
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    (void)sim_replay_write(&replay, file);
    fclose(file);
    fprintf(stderr, "  shrunk to %u choices, told step by step by: remo sim --replay %s\n", replay.schedule.choices_count, path);
}

static int run_replay(const char *path) {
    struct sim_replay replay;
    FILE *file = fopen(path, "r");
    int rc = file ? sim_replay_read(file, &replay) : -1;
    if (file)
        fclose(file);
    if (rc != 0) {
        fprintf(stderr, "remo sim: %s cannot be read, or is no replay of this version\n", path);
        return 2;
    }
    return sim_tell(&replay) ? 0 : 1;
}

/* One schedule, by its seed, as it was. */
static int trace(const struct options *options) {
    const struct sim_case *test = options->object && options->test ? sim_case_find(options->object, options->test) : NULL;
    const struct sim_profile *profile = sim_profile_find(options->profile ? options->profile : "ibta_rc");
    if (!test || !profile) {
        fprintf(stderr, "remo sim: --trace needs --object and --case (see --list), and a --profile that there is\n");
        return 2;
    }
    const struct sim_run run = {.test = test, .profile = profile, .mutant = options->mutant, .mode = options->mode, .seed = options->seed,
                                .schedules = 1};
    return sim_trace_seed(&run) ? 0 : 1;
}

/* ---- one line per object ---- */

struct sums {
    uint64_t schedules, failures, steps;
    double seconds;
    uint32_t mutants, caught;
};

static void print_sums(const struct options *options, const char *object, const struct sums *sums) {
    double rate = sums->seconds > 0 ? (double)sums->schedules / sums->seconds : 0;
    if (!options->json) {
        printf("%-12s %10llu schedules %6llu failures  %u/%u mutants caught  %8.0f schedules/s\n", object,
               (unsigned long long)sums->schedules, (unsigned long long)sums->failures, sums->caught, sums->mutants, rate);
        fflush(stdout);
        return;
    }
    json_t *line = json_pack("{s:s, s:I, s:I, s:i, s:i, s:f}", "object", object, "schedules", (json_int_t)sums->schedules, "failures",
                             (json_int_t)sums->failures, "mutants", (int)sums->mutants, "caught", (int)sums->caught,
                             "schedules_per_s", rate);
    json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(line);
    fflush(stdout);
}

static void run_cases(const struct options *options, const char *object, struct sums *sums) {
    for (uint32_t i = 0; i < sim_cases_count; i++)
        for (uint32_t p = 0; p < sim_profiles_count; p++) {
            struct sim_outcome outcome;
            struct sim_run run = {.test = sim_cases[i], .profile = &sim_profiles[p], .mode = options->mode, .seed = options->seed,
                                  .schedules = options->schedules, .failures_max = 0};
            if (strcmp(sim_cases[i]->object, object) != 0 || !wanted(options, sim_cases[i]) || !claims(sim_cases[i], run.profile)
                || (options->profile && strcmp(options->profile, run.profile->name) != 0))
                continue;
            sim_explore(&run, &outcome);
            sums->schedules += outcome.schedules;
            sums->failures += outcome.failures;
            sums->seconds += outcome.seconds;
            sums->steps += outcome.steps;
            if (!options->json)
                fprintf(stderr, "  %s %s %s: %llu schedules, %llu failures, %.0f/s, %.0f steps each, %llu bytes\n", object,
                        sim_cases[i]->name, run.profile->name, (unsigned long long)outcome.schedules,
                        (unsigned long long)outcome.failures, outcome.seconds > 0 ? (double)outcome.schedules / outcome.seconds : 0,
                        outcome.schedules ? (double)outcome.steps / (double)outcome.schedules : 0,
                        (unsigned long long)outcome.saved_bytes);
            if (outcome.failures > 0)
                tell_failure(&run, &outcome);
        }
}

/* Is the mutant seen by any case of the object, under any profile, with or without crashes, in so many schedules of each? */
static bool catch_within(const struct options *options, const char *object, const char *mutant, uint64_t schedules) {
    static const enum sim_fault_mode modes[] = {SIM_NO_FAULTS, SIM_CRASH};
    for (uint32_t mode = 0; mode < 2; mode++)
        for (uint32_t p = 0; p < sim_profiles_count; p++)
            for (uint32_t i = 0; i < sim_cases_count; i++) {
                struct sim_outcome outcome;
                struct sim_run run = {.test = sim_cases[i], .profile = &sim_profiles[p], .mode = modes[mode], .seed = options->seed,
                                      .mutant = mutant, .schedules = schedules, .failures_max = 1};
                if (strcmp(run.test->object, object) != 0 || !claims(run.test, run.profile)
                    || (options->test && strcmp(options->test, run.test->name) != 0)
                    || (options->profile && strcmp(options->profile, run.profile->name) != 0)
                    || (modes[mode] == SIM_CRASH && !run.test->may_crash))
                    continue;
                sim_explore(&run, &outcome);
                if (outcome.failures == 0)
                    continue;
                if (!options->json)
                    fprintf(stderr, "  mutant %s caught by %s %s under %s at schedule %llu%s: %s\n", mutant, object, run.test->name,
                            run.profile->name, (unsigned long long)(outcome.first_failure - options->seed + 1),
                            modes[mode] == SIM_CRASH ? " with crashes" : "", outcome.text);
                return true;
            }
    return false;
}

/* Most are seen soon by some case: try all for a while before any for long. */
static bool catch_mutant(const struct options *options, const char *object, const char *mutant) {
    uint64_t schedules = 300;
    for (; schedules < options->schedules; schedules *= 5)
        if (catch_within(options, object, mutant, schedules))
            return true;
    return catch_within(options, object, mutant, options->schedules);
}

static void run_mutants(const struct options *options, const char *object, struct sums *sums) {
    const char *name;
    for (uint32_t i = 0; (name = sim_mutant_at(i)) != NULL; i++) {
        if (!sim_mutant_concerns(name, object) || (strcmp(options->mutant, "all") != 0 && strcmp(options->mutant, name) != 0))
            continue;
        bool caught = catch_mutant(options, object, name);
        sums->mutants++;
        sums->caught += caught;
        sums->failures += !caught;
        if (!caught)
            fprintf(stderr, "  mutant %s of %s SURVIVES %llu schedules of each case\n", name, object,
                    (unsigned long long)options->schedules);
    }
}

static bool first_of_object(uint32_t index) {
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(sim_cases[i]->object, sim_cases[index]->object) == 0)
            return false;
    return true;
}

int main(int argc, char **argv) {
    static const struct argp argp = {arguments, parse, NULL,
                                     "Run objects under every behaviour that the memory model permits.", NULL, NULL, NULL};
    struct options options = {.seed = 1};
    uint64_t failures = 0;
    bool any = false;
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (options.list)
        return list();
    if (options.replay)
        return run_replay(options.replay);
    if (options.trace)
        return trace(&options);
    if (options.schedules == 0)
        options.schedules = options.mutant ? MUTANT_SCHEDULES : SCHEDULES;
    for (uint32_t i = 0; i < sim_cases_count; i++) {
        const char *object = sim_cases[i]->object;
        struct sums sums = {0};
        if (!first_of_object(i) || (options.object && strcmp(options.object, object) != 0))
            continue;
        any = true;
        if (options.mutant)
            run_mutants(&options, object, &sums);
        else
            run_cases(&options, object, &sums);
        if (sums.schedules > 0 || sums.mutants > 0)
            print_sums(&options, object, &sums);
        failures += sums.failures;
    }
    if (!any)
        fprintf(stderr, "remo sim: there is no object %s; see remo sim --list\n", options.object);
    return failures > 0 || !any;
}
