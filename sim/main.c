/* main.c - the program behind `remo sim`: its options.
 * It runs a campaign (campaign.h), or prints the steps of one schedule (explore.h). */
#include <argp.h>
#include <remo/version.h>
#include <stdlib.h>
#include <string.h>

#include "sim/campaign.h"

#define STATUS_USAGE 2
#define SCHEDULES 20000u
#define SEARCH_SCHEDULES 50000u
#define NIGHTLY_SCHEDULES 100000u

struct options {
    struct sim_campaign campaign;
    const char *replay;
    bool list, trace, nightly, all_faults;
};

enum { KEY_ALL = 256, KEY_LIST, KEY_JSON, KEY_TRACE, KEY_SEARCH, KEY_NIGHTLY, KEY_AT, KEY_FAULTS, KEY_FAULT };

static const struct argp_option arguments[] = {
    {"object", 'o', "OBJECT", 0, "only this object", 0},
    {"case", 'c', "CASE", 0, "only this case", 0},
    {"all", KEY_ALL, NULL, 0, "every object (the default)", 0},
    {"profile", 'p', "PROFILE", 0, "only this network: ibta_rc, rc_relaxed, efa, tcp, ofi, shm, cxl_nc", 0},
    {"schedules", 'n', "N", 0,
     "schedules of each case under each profile with each fault (default 20000); for a search, in total "
     "(50000)",
     0},
    {"seed", 's', "S", 0, "the first one (default 1)", 0},
    {"crash", KEY_FAULT + SIM_CRASH, NULL, 0,
     "a node fails: at every step of some seeds, and at one step of many", 0},
    {"pause", KEY_FAULT + SIM_PAUSE, NULL, 0, "a node pauses for some steps", 0},
    {"zombie", KEY_FAULT + SIM_ZOMBIE, NULL, 0, "a node pauses, is declared failed, and resumes", 0},
    {"cut", KEY_FAULT + SIM_CUT, NULL, 0, "a node is cut off from its peers", 0},
    {"lose", KEY_FAULT + SIM_LOSE, NULL, 0,
     "the connection of the n-th operation is lost, and one of its nodes counts as failed", 0},
    {"fail-post", KEY_FAULT + SIM_FAIL_POST, NULL, 0,
     "the n-th operation cannot be posted: for every n of some seeds, and one n of many", 0},
    {"fail-completion", KEY_FAULT + SIM_FAIL_COMPLETION, NULL, 0,
     "the n-th operation ends with an error, although it was applied", 0},
    {"fail-allocation", KEY_FAULT + SIM_FAIL_ALLOCATION, NULL, 0, "the n-th allocation fails", 0},
    {"refuse", KEY_FAULT + SIM_REFUSE, NULL, 0,
     "the target refuses the n-th operation, and later ones use a new connection", 0},
    {"faults", KEY_FAULTS, NULL, 0, "each of these in turn, and none", 0},
    {"at", KEY_AT, "N", 0, "the fault comes at this step (post, completion) only", 0},
    {"search", KEY_SEARCH, NULL, 0,
     "stop at the first failure of an object: run all cases briefly, then for longer, up to --schedules "
     "in total",
     0},
    {"nightly", KEY_NIGHTLY, NULL, 0,
     "--faults with 100000 schedules each: about twenty hours of one processor", 0},
    {"replay", 'r', "FILE", 0, "run the schedule of a file and print each step", 0},
    {"trace", KEY_TRACE, NULL, 0, "print each step of the schedule of --seed (requires --object and --case)",
     0},
    {"json", KEY_JSON, NULL, 0, "one JSON object per line and nothing else", 0},
    {"list", KEY_LIST, NULL, 0, "list cases and profiles", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
    struct options *options = state->input;
    struct sim_campaign *campaign = &options->campaign;
    switch (key) {
    case 'o': campaign->object = value; break;
    case 'c': campaign->test = value; break;
    case 'p': campaign->profile = value; break;
    case 'n': campaign->schedules = strtoull(value, NULL, 10); break;
    case 's': campaign->seed = strtoull(value, NULL, 10); break;
    case 'r': options->replay = value; break;
    case KEY_ALL: break;
    case KEY_AT: campaign->at = strtoull(value, NULL, 10); break;
    case KEY_FAULTS: options->all_faults = true; break;
    case KEY_SEARCH: campaign->is_search = true; break;
    case KEY_NIGHTLY: options->nightly = true; break;
    case KEY_TRACE: options->trace = true; break;
    case KEY_JSON: campaign->json = true; break;
    case KEY_LIST: options->list = true; break;
    default:
        if (key <= KEY_FAULT || key >= KEY_FAULT + SIM_FAULT_KINDS)
            return ARGP_ERR_UNKNOWN;
        campaign->faults[key - KEY_FAULT] = true;
    }
    return 0;
}

static int run_replay(const char *path) {
    struct sim_replay replay;
    FILE *file = fopen(path, "r");
    int rc = file ? sim_replay_read(file, &replay) : -1;
    if (file)
        fclose(file);
    if (rc != 0) {
        fprintf(stderr, "remo sim: cannot replay %s: it is unreadable, or not a replay of this version\n",
                path);
        return 2;
    }
    return sim_replay_run(&replay) ? 0 : 1;
}

static enum sim_fault_kind first_fault(const struct sim_campaign *campaign) {
    for (uint32_t fault = 1; fault < SIM_FAULT_KINDS; fault++)
        if (campaign->faults[fault])
            return (enum sim_fault_kind)fault;
    return SIM_NO_FAULT;
}

/* Print the steps of one schedule, given by its seed. */
static int trace(const struct sim_campaign *campaign) {
    const struct sim_case *test =
        campaign->object && campaign->test ? sim_case_find(campaign->object, campaign->test) : NULL;
    const struct sim_profile *profile = sim_profile_find(campaign->profile ? campaign->profile : "ibta_rc");
    if (!test || !profile) {
        fprintf(
            stderr,
            "remo sim: bad arguments: --trace needs a known --object, --case and --profile; see --list\n");
        return 2;
    }
    const struct sim_run run = {.test = test,
                                .profile = profile,
                                .fault = first_fault(campaign),
                                .seed = campaign->seed,
                                .at = campaign->at,
                                .schedules = 1};
    return sim_trace_seed(&run) ? 0 : 1;
}

int main(int argc, char **argv) {
    static const struct argp argp = {
        arguments, parse, NULL, "Run objects under every behaviour that the memory model permits.",
        NULL,      NULL,  NULL};
    struct options options = {.campaign = {.seed = 1}};
    struct sim_campaign *campaign = &options.campaign;
    argp_program_version = "remo " REMO_VERSION;
    argp_err_exit_status = STATUS_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (options.list)
        return sim_campaign_list();
    if (options.replay)
        return run_replay(options.replay);
    if (options.trace)
        return trace(campaign);
    if (campaign->schedules == 0)
        campaign->schedules = options.nightly       ? NIGHTLY_SCHEDULES
                              : campaign->is_search ? SEARCH_SCHEDULES
                                                    : SCHEDULES;
    for (uint32_t fault = 0; fault < SIM_FAULT_KINDS && (options.all_faults || options.nightly); fault++)
        campaign->faults[fault] = true;
    campaign->faults[SIM_NO_FAULT] |= first_fault(campaign) == SIM_NO_FAULT;
    return !sim_campaign(campaign);
}
