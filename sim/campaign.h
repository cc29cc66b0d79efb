/* campaign.h - many runs of the simulator, object by object, and their report. */
#pragma once

#include "sim/explore.h"

struct sim_campaign {
    const char *object, *test, *profile; /* NULL: all */
    uint64_t schedules, seed, at;
    bool faults[SIM_FAULT_KINDS]; /* faults to inject; SIM_NO_FAULT is one of them */
    bool is_search; /* stop at the first failure; `schedules` limits those of an object together */
    bool json;
};

/* Run a campaign. Returns false if a case failed, or nothing could run. */
bool sim_campaign(const struct sim_campaign *campaign);
int sim_campaign_list(void);
