/* explore.h - run a case under many schedules; when one fails, make it as short as it can be and tell it. */
#pragma once

#include <stdio.h>

#include "sim/case.h"
#include "sim/net.h"
#include "sim/scheduler.h"

enum sim_fault_mode { SIM_NO_FAULTS, SIM_CRASH, SIM_PAUSE, SIM_FAIL };

struct sim_run {
    const struct sim_case *test;
    const struct sim_profile *profile;
    const char *mutant;               /* NULL: none */
    enum sim_fault_mode mode;
    uint64_t seed, schedules;         /* seeds [seed, seed + schedules) */
    uint64_t failures_max;            /* stop after so many; 0: never */
};

struct sim_outcome {
    uint64_t schedules, failures, steps;
    uint64_t first_failure;           /* its seed */
    uint64_t saved_bytes;
    double seconds;
    char text[SIM_FAILURE_BYTES];     /* of the first failure; of the set-up if it failed */
    bool broken;                      /* the set-up failed: nothing ran */
};

void sim_explore(const struct sim_run *run, struct sim_outcome *ret_outcome);

/* One schedule to be told: by seed, or by choices. */
struct sim_replay {
    const struct sim_case *test;
    const struct sim_profile *profile;
    char mutant[64];                  /* "": none */
    struct sim_schedule schedule;
    struct sim_faults faults;
};

/* The schedule that `seed` stands for, shrunk; choices lie in memory of this file until the next call. False: it does not fail. */
bool sim_shrink(const struct sim_run *run, uint64_t seed, struct sim_replay *ret_replay);
/* The schedule of run->seed, unshrunk, told on standard output; false: it fails. */
bool sim_trace_seed(const struct sim_run *run);
/* Run it, telling each step on standard output; false: it fails (sim_failure). */
bool sim_tell(const struct sim_replay *replay);
int sim_replay_write(const struct sim_replay *replay, FILE *file);
/* 0, or -EINVAL. */
int sim_replay_read(FILE *file, struct sim_replay *ret_replay);
const struct sim_case *sim_case_find(const char *object, const char *name);
