/* explore.h - run a case under many schedules; shrink a failing schedule, and print its steps. */
#pragma once

#include <stdio.h>

#include "sim/case.h"
#include "sim/world/fault.h"
#include "sim/network/net.h"
#include "sim/scheduler.h"

struct sim_run {
    const struct sim_case *test;
    const struct sim_profile *profile;
    enum sim_fault_kind fault;
    /* one place for the fault per seed; otherwise half of the schedules sweep all places */
    bool somewhere;
    uint64_t at;                                     /* the fault comes here; 0: see `somewhere` */
    uint64_t seed, schedules;                        /* number of schedules, from this seed on */
    uint64_t failures_max;                           /* stop after this number; 0: never */
    void (*progress)(void *ctx, uint64_t schedules); /* called now and then; NULL: never */
    void *progress_ctx;
};

struct sim_outcome {
    uint64_t schedules, failures, steps;
    uint64_t seed, at;      /* of the first failure */
    uint64_t seeds;         /* seeds used; a sweep of faults takes many schedules per seed */
    uint64_t until_failure; /* schedules up to and including the first failure */
    uint64_t hash;          /* of every choice made: equal on every machine */
    uint64_t saved_bytes;
    double cpu_seconds;           /* of this process */
    char text[SIM_FAILURE_BYTES]; /* of the first failure, or of the failed set-up */
    bool broken;                  /* the set-up failed: nothing ran */
};

void sim_explore(const struct sim_run *run, struct sim_outcome *ret_outcome);

/* One schedule to be printed, given by seed or by choices. */
struct sim_replay {
    const struct sim_case *test;
    const struct sim_profile *profile;
    struct sim_schedule schedule;
    struct sim_fault fault;
};

/* Shrink the schedule of run->seed with the fault at run->at. The choices lie in static memory
 * until the next call. Returns false if the schedule does not fail. */
bool sim_shrink(const struct sim_run *run, struct sim_replay *ret_replay);
/* Print each step of the unshrunk schedule on standard output. Returns false if it fails. */
bool sim_trace_seed(const struct sim_run *run);
/* Run a schedule, and print each step on standard output. Returns false if it fails
 * (sim_failure). */
bool sim_replay_run(const struct sim_replay *replay);
int sim_replay_write(const struct sim_replay *replay, FILE *file);
/* Read a schedule from a file. Errors: -EINVAL. */
int sim_replay_read(FILE *file, struct sim_replay *ret_replay);
const struct sim_case *sim_case_find(const char *object, const char *name);
