/* campaign.c - the campaign of `remo sim`: selects cases, profiles and faults.
 * It prints one line per object and, on a terminal, progress. A request that runs nothing is an
 * error with an explanation. */
#include "sim/campaign.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define FIRST_ROUND 30u /* schedules of each case, in a search */

struct sums {
    uint64_t schedules, failures, hash;
    double cpu_seconds;
    uint32_t runs; /* combinations of a case, a profile and a fault */
};

static bool wanted(const struct sim_campaign *campaign, const struct sim_case *test) {
    return (!campaign->object || strcmp(campaign->object, test->object) == 0)
           && (!campaign->test || strcmp(campaign->test, test->name) == 0);
}

/* Objects that refuse to open if hardware does not keep caches coherent, and the reasons:
 * cases/coherence.c. */
static const struct {
    const char *object, *why;
} incoherent[] = {
    {"atomic_var", "it is an atomic of the network"},
    {"lock", "it is made of atomics of the network"},
    {"ringbuffer",
     "two nodes write to one of its lines, and a cache that writes it back undoes the other node's write"},
    {"rpc", "a node and its peers write to lines of one memory"},
    {"queue", "it is made of atomics of the network"},
    {"kv", "its locks are made of atomics of the network"},
    {"table", "its owner answers calls"},
    {"tx", "owners answer calls"},
    {"structure", "its owner answers calls"},
    {"tree", "its owner answers calls"},
    {"task", "its cases use atomics and locks"},
    {"collective", "every node reads blocks that the CPU of another node wrote"},
};

/* Return why the object does not claim the profile, or NULL if it does. */
static const char *why_not(const char *object, const struct sim_profile *profile) {
    for (uint32_t i = 0; profile->cached && i < sizeof incoherent / sizeof incoherent[0]; i++)
        if (strcmp(incoherent[i].object, object) == 0)
            return incoherent[i].why;
    return NULL;
}

static bool claims(const struct sim_campaign *campaign, const struct sim_case *test,
                   const struct sim_profile *profile) {
    return !why_not(test->object, profile) && !(profile->mapped && test->needs_flight)
           && (!test->profiles || strstr(test->profiles, profile->name))
           && (!campaign->profile || strcmp(campaign->profile, profile->name) == 0);
}

/* The objects whose calls wait for each of their operations. A call of another object may return before, and
 * later operations take effect although an earlier one was refused. */
static const char *const bearing_refusals[] = {"atomic_var", "queue", "kv", "heap", "task", "versioned"};

/* Only networks whose completions do not mean placement refuse operations (fault.h). */
static bool bears_refusals(const struct sim_case *test, const struct sim_profile *profile) {
    for (uint32_t i = 0; i < sizeof bearing_refusals / sizeof bearing_refusals[0]; i++)
        if (strcmp(bearing_refusals[i], test->object) == 0)
            return !profile->placed;
    return false;
}

/* Return whether the fault can occur on mapped memory. There no operation is in flight. Nothing prevents a
 * process from writing memory that it has mapped, and CPUs execute the atomics. So these objects rely on the
 * end of the process: on one machine a node does not fail before (bootstrap/control/control.h). */
static bool occurs_mapped(const struct sim_case *test, uint32_t fault) {
    static const char *const rely_on_end[] = {"lock", "queue", "kv", "heap"};
    bool is_harmed = test->relies_on_end;
    for (uint32_t i = 0; i < sizeof rely_on_end / sizeof rely_on_end[0]; i++)
        is_harmed = is_harmed || strcmp(rely_on_end[i], test->object) == 0;
    bool resumes = fault == SIM_ZOMBIE || fault == SIM_CUT;
    return fault != SIM_LOSE && fault != SIM_FAIL_COMPLETION && !(resumes && is_harmed);
}

/* A node closes after a failed operation, unless it continues: then it must have no other
 * thread. */
static bool bears(const struct sim_case *test, const struct sim_profile *profile, uint32_t fault) {
    if (profile->mapped && !occurs_mapped(test, fault))
        return false;
    bool may_fail = test->threads == 1 || test->continues_after_failure;
    return fault == SIM_NO_FAULT
           || (!test->has_own_fault && (fault < SIM_FAIL_POST || may_fail)
               && (fault != SIM_REFUSE || bears_refusals(test, profile)));
}

int sim_campaign_list(void) {
    for (uint32_t i = 0; i < sim_cases_count; i++)
        printf("case     %-12s %-22s %u nodes, %u threads: %s\n", sim_cases[i]->object, sim_cases[i]->name,
               sim_cases[i]->nodes, sim_cases[i]->threads, sim_cases[i]->about);
    for (uint32_t i = 0; i < sim_profiles_count; i++)
        printf("profile  %-12s %s\n", sim_profiles[i].name, sim_profiles[i].about);
    return 0;
}

/* ---- progress: one line on a terminal, overwritten each time ---- */

static void print_progress(void *ctx, uint64_t schedules) {
    const struct sim_run *run = ctx;
    fprintf(stderr, "\r  %s %s, %s%s%s: %llu of %llu \033[K", run->test->object, run->test->name,
            run->profile->name, run->fault == SIM_NO_FAULT ? "" : ", ", sim_fault_names[run->fault],
            (unsigned long long)schedules, (unsigned long long)run->schedules);
}

static void watch(struct sim_run *run) {
    if (!isatty(STDERR_FILENO))
        return;
    run->progress = print_progress;
    run->progress_ctx = run;
}

static void clear_progress(const struct sim_run *run) {
    if (run->progress)
        fprintf(stderr, "\r\033[K");
}

/* ---- report of a failure ---- */

static void print_again(const struct sim_run *run, const struct sim_outcome *outcome) {
    fprintf(stderr, "  repeat with: remo sim --object %s --case %s --profile %s --seed %llu --schedules 1",
            run->test->object, run->test->name, run->profile->name, (unsigned long long)outcome->seed);
    if (outcome->at != 0)
        fprintf(stderr, " --%s --at %llu", sim_fault_names[run->fault], (unsigned long long)outcome->at);
    fprintf(stderr, "\n");
}

static void report_failure(const struct sim_run *run, const struct sim_outcome *outcome) {
    struct sim_run one = *run;
    struct sim_replay replay;
    char path[96];
    one.seed = outcome->seed;
    one.at = outcome->at;
    fprintf(stderr, "%s %s, profile %s, seed %llu%s%s: %s\n", run->test->object, run->test->name,
            run->profile->name, (unsigned long long)outcome->seed, run->fault == SIM_NO_FAULT ? "" : ", ",
            sim_fault_names[run->fault], outcome->text);
    if (outcome->broken)
        return;
    print_again(run, outcome);
    if (!sim_shrink(&one, &replay))
        return;
    snprintf(path, sizeof path, "remo-sim-%s-%s.replay", run->test->object, run->test->name);
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    (void)sim_replay_write(&replay, file);
    fclose(file);
    fprintf(stderr, "  shrunk to %u choices; show each step with: remo sim --replay %s\n",
            replay.schedule.choices_count, path);
}

/* ---- cases ---- */

static void run_one(const struct sim_campaign *campaign, const struct sim_case *test,
                    const struct sim_profile *profile, enum sim_fault_kind fault, struct sums *sums) {
    struct sim_outcome outcome;
    struct sim_run run = {.test = test,
                          .profile = profile,
                          .fault = fault,
                          .seed = campaign->seed,
                          .at = campaign->at,
                          .schedules = campaign->schedules};
    watch(&run);
    sim_explore(&run, &outcome);
    clear_progress(&run);
    sums->runs++;
    sums->schedules += outcome.schedules;
    sums->failures += outcome.failures;
    sums->cpu_seconds += outcome.cpu_seconds;
    sums->hash = (sums->hash ^ outcome.hash) * 0x9e3779b97f4a7c15u;
    if (run.progress)
        fprintf(stderr, "  %s %s, %s%s%s: %llu schedules of %llu seeds, %.0f steps each, %.0f/s\n",
                test->object, test->name, profile->name, fault == SIM_NO_FAULT ? "" : ", ",
                sim_fault_names[fault], (unsigned long long)outcome.schedules,
                (unsigned long long)outcome.seeds,
                (double)outcome.steps / (double)(outcome.schedules + !outcome.schedules),
                outcome.cpu_seconds > 0 ? (double)outcome.schedules / outcome.cpu_seconds : 0);
    if (outcome.failures > 0)
        report_failure(&run, &outcome);
}

static void run_cases(const struct sim_campaign *campaign, const char *object, struct sums *sums) {
    for (uint32_t i = 0; i < sim_cases_count; i++)
        for (uint32_t p = 0; p < sim_profiles_count; p++)
            for (uint32_t fault = 0; fault < SIM_FAULT_KINDS; fault++)
                if (strcmp(sim_cases[i]->object, object) == 0 && wanted(campaign, sim_cases[i])
                    && claims(campaign, sim_cases[i], &sim_profiles[p]) && campaign->faults[fault]
                    && bears(sim_cases[i], &sim_profiles[p], fault))
                    run_one(campaign, sim_cases[i], &sim_profiles[p], (enum sim_fault_kind)fault, sums);
}

/* ---- search: all cases briefly, then for longer, until the first failure ---- */

struct search {
    const struct sim_campaign *campaign;
    const char *object;
    uint64_t left, each; /* schedules: of all cases together, and of each case in a round */
    uint64_t seed;       /* each round continues where the last one ended */
};

static bool fails_with(struct search *search, const struct sim_case *test, const struct sim_profile *profile,
                       enum sim_fault_kind fault, struct sums *sums) {
    struct sim_outcome outcome;
    struct sim_run run = {.test = test,
                          .profile = profile,
                          .fault = fault,
                          .somewhere = true,
                          .seed = search->seed,
                          .schedules = search->each < search->left ? search->each : search->left,
                          .failures_max = 1};
    if (run.schedules == 0)
        return false;
    watch(&run);
    sim_explore(&run, &outcome);
    clear_progress(&run);
    search->left -= outcome.schedules < search->left ? outcome.schedules : search->left;
    sums->runs++;
    sums->failures += outcome.failures;
    if (outcome.failures == 0)
        return false;
    printf("%s %s %s %s at schedule %llu: %s\n", search->object, test->name, profile->name,
           fault == SIM_NO_FAULT ? "none" : sim_fault_names[fault],
           (unsigned long long)(search->campaign->schedules - search->left), outcome.text);
    return true;
}

static bool fails_in_round(struct search *search, struct sums *sums) {
    for (uint32_t fault = 0; fault < SIM_FAULT_KINDS; fault++)
        for (uint32_t i = 0; i < sim_cases_count; i++)
            for (uint32_t p = 0; p < sim_profiles_count; p++)
                if (strcmp(sim_cases[i]->object, search->object) == 0
                    && wanted(search->campaign, sim_cases[i])
                    && claims(search->campaign, sim_cases[i], &sim_profiles[p])
                    && search->campaign->faults[fault] && bears(sim_cases[i], &sim_profiles[p], fault)
                    && fails_with(search, sim_cases[i], &sim_profiles[p], (enum sim_fault_kind)fault, sums))
                    return true;
    return false;
}

static void run_search(const struct sim_campaign *campaign, const char *object, struct sums *sums) {
    struct search search = {.campaign = campaign,
                            .object = object,
                            .left = campaign->schedules,
                            .each = FIRST_ROUND,
                            .seed = campaign->seed};
    uint64_t before = 0; /* a round that runs nothing is the last */
    for (bool found = false; !found && search.left > 0 && search.left != before;
         search.seed += search.each, search.each *= 3) {
        before = search.left;
        found = fails_in_round(&search, sums);
    }
}

/* ---- one line for each object ---- */

static void print_sums(const struct sim_campaign *campaign, const char *object, const struct sums *sums) {
    double rate = sums->cpu_seconds > 0 ? (double)sums->schedules / sums->cpu_seconds : 0;
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)sums->hash);
    if (!campaign->json) {
        printf("%-12s %10llu schedules %6llu failures %8.0f schedules/s of CPU  trace %s\n", object,
               (unsigned long long)sums->schedules, (unsigned long long)sums->failures, rate, hash);
    } else {
        json_t *line =
            json_pack("{s:s, s:I, s:I, s:f, s:s}", "object", object, "schedules", (json_int_t)sums->schedules,
                      "failures", (json_int_t)sums->failures, "schedules_per_s", rate, "trace", hash);
        json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        printf("\n");
        json_decref(line);
    }
    fflush(stdout);
}

static bool first_of_object(uint32_t index) {
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(sim_cases[i]->object, sim_cases[index]->object) == 0)
            return false;
    return true;
}

/* ---- a request that selects nothing ---- */

static void print_claimed(const char *object) {
    const char *separator = " ";
    fprintf(stderr, "; it claims");
    for (uint32_t p = 0; p < sim_profiles_count; p++) {
        if (why_not(object, &sim_profiles[p]))
            continue;
        fprintf(stderr, "%s%s", separator, sim_profiles[p].name);
        separator = ", ";
    }
}

/* Explain why nothing ran for this object. */
static void explain_nothing(const struct sim_campaign *campaign, const char *object) {
    const struct sim_profile *profile = campaign->profile ? sim_profile_find(campaign->profile) : NULL;
    const char *why = profile ? why_not(object, profile) : NULL;
    fprintf(stderr, "remo sim: nothing to run for %s: ", object);
    if (why) {
        fprintf(stderr, "it does not claim %s, because %s", profile->name, why);
        print_claimed(object);
    } else if (campaign->test && !sim_case_find(object, campaign->test)) {
        fprintf(stderr, "it has no case %s", campaign->test);
    } else {
        fprintf(stderr, "none of its cases is for this profile and fault");
    }
    fprintf(stderr, "; see remo sim --list\n");
}

static bool run_object(const struct sim_campaign *campaign, const char *object, uint64_t *failures) {
    struct sums sums = {0};
    if (campaign->is_search)
        run_search(campaign, object, &sums);
    else
        run_cases(campaign, object, &sums);
    bool ran = sums.runs > 0;
    if (ran && !campaign->is_search)
        print_sums(campaign, object, &sums);
    else if (!ran && (campaign->object || (campaign->profile && !campaign->test)))
        explain_nothing(campaign, object);
    *failures += sums.failures;
    return ran;
}

bool sim_campaign(const struct sim_campaign *campaign) {
    uint64_t failures = 0;
    bool known = false, ran = false;
    if (campaign->profile && !sim_profile_find(campaign->profile)) {
        fprintf(stderr, "remo sim: there is no profile %s; see remo sim --list\n", campaign->profile);
        return false;
    }
    for (uint32_t i = 0; i < sim_cases_count; i++) {
        const char *object = sim_cases[i]->object;
        if (!first_of_object(i) || (campaign->object && strcmp(campaign->object, object) != 0))
            continue;
        known = true;
        ran |= run_object(campaign, object, &failures);
    }
    if (!known)
        fprintf(stderr, "remo sim: there is no object %s; see remo sim --list\n", campaign->object);
    else if (!ran && !campaign->object)
        fprintf(stderr, "remo sim: no object has such a case; see remo sim --list\n");
    return ran && failures == 0;
}
