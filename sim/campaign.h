/* campaign.h - many runs of the simulator, object by object, and their report. */
#pragma once

#include "sim/explore.h"
#include "sim/mutant.h"

struct sim_campaign {
    const char *object, *test, *profile; /* NULL: all */
    const char *mutant;                  /* NULL: none; "all": each mutant in turn must be caught */
    uint64_t schedules, seed, at;
    bool faults[SIM_FAULT_KINDS]; /* faults to inject; SIM_NO_FAULT is one of them */
    bool is_search; /* stop at the first failure; `schedules` limits those of an object together */
    bool json;
};

/* Run a campaign. Returns false if a case failed, a mutant survived, or nothing could run. */
bool sim_campaign(const struct sim_campaign *campaign);
int sim_campaign_list(void);
/* Return whether mutant, case and profile of a hint exist; otherwise print a sentence. */
bool sim_hint_check(const struct sim_hint *hint);
