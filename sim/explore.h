/* explore.h - run a case under many schedules; when one fails, make it as short as it can be and tell it. */
#pragma once

#include <stdio.h>

#include "sim/case.h"
#include "sim/fault.h"
#include "sim/net.h"
#include "sim/scheduler.h"

struct sim_run {
    const struct sim_case *test;
    const struct sim_profile *profile;
    const char *mutant; /* NULL: none */
    enum sim_fault_kind fault;
    bool somewhere; /* the fault comes at one place of each seed's schedule; else at every place in turn */
    uint64_t at;    /* it comes here; 0: see `somewhere` */
    uint64_t seed, schedules;                        /* as many, from this seed on */
    uint64_t failures_max;                           /* stop after so many; 0: never */
    void (*progress)(void *ctx, uint64_t schedules); /* now and then; or NULL */
    void *progress_ctx;
};

struct sim_outcome {
    uint64_t schedules, failures, steps;
    uint64_t seed, at;      /* of the first failure */
    uint64_t seeds;         /* how many were used: a sweep of faults takes many schedules for one */
    uint64_t until_failure; /* schedules up to the first one, and with it */
    uint64_t hash;          /* of every choice that was made: the same on every machine */
    uint64_t saved_bytes;
    double cpu_seconds;           /* of this process: other programs may be at work too */
    char text[SIM_FAILURE_BYTES]; /* of the first failure; of the set-up if it failed */
    bool broken;                  /* the set-up failed: nothing ran */
};

void sim_explore(const struct sim_run *run, struct sim_outcome *ret_outcome);

/* One schedule to be told: by seed, or by choices. */
struct sim_replay {
    const struct sim_case *test;
    const struct sim_profile *profile;
    char mutant[64]; /* "": none */
    struct sim_schedule schedule;
    struct sim_fault fault;
};

/* The schedule of run->seed with the fault at run->at, shrunk; choices lie in memory of this file until the
 * next call. False: it does not fail. */
bool sim_shrink(const struct sim_run *run, struct sim_replay *ret_replay);
/* The same, unshrunk, told on standard output; false: it fails. */
bool sim_trace_seed(const struct sim_run *run);
/* Run it, telling each step on standard output; false: it fails (sim_failure). */
bool sim_tell(const struct sim_replay *replay);
int sim_replay_write(const struct sim_replay *replay, FILE *file);
/* 0, or -EINVAL. */
int sim_replay_read(FILE *file, struct sim_replay *ret_replay);
const struct sim_case *sim_case_find(const char *object, const char *name);
