/* campaign.h - many runs of the simulator, object by object, and what to print about them. */
#pragma once

#include "sim/explore.h"

struct sim_campaign {
    const char *object, *test, *profile; /* NULL: all */
    const char *mutant;                  /* NULL: none; "all": each in turn, expected to be caught */
    uint64_t schedules, seed, at;
    bool faults[SIM_FAULT_KINDS]; /* which; SIM_NO_FAULT too */
    bool json;
};

/* False: something failed, or a mutant survived, or there is no such object. */
bool sim_campaign(const struct sim_campaign *campaign);
int sim_campaign_list(void);
