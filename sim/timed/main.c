/* main.c - runs a user's program on the simulated network with a clock.
 * PROGRAM NODES [--model NAME=VALUE,...] ARGUMENT... runs it on NODES nodes, each with the same
 * arguments. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "sim/timed/model.h"
#include "sim/timed/timed.h"

int sim_program_main(int argc, char **argv);
int sim_clock_gettime(clockid_t clock, struct timespec *ret_now);
int sim_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *ret_left);

struct command {
    int argc;
    char **argv;
    int status;
};

int sim_clock_gettime(clockid_t clock, struct timespec *ret_now) {
    uint64_t now = remo__now_ns();
    (void)clock;
    *ret_now =
        (struct timespec){.tv_sec = (time_t)(now / REMO__NS_PER_S), .tv_nsec = (long)(now % REMO__NS_PER_S)};
    return 0;
}

int sim_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *ret_left) {
    (void)clock, (void)ret_left;
    if (flags != TIMER_ABSTIME)
        return EINVAL;
    sim_timed_sleep_until((uint64_t)until->tv_sec * REMO__NS_PER_S + (uint64_t)until->tv_nsec);
    return 0;
}

static void run(void *ctx, uint32_t node) {
    struct command *command = ctx;
    int status = sim_program_main(command->argc, command->argv);
    if (status != 0)
        sim_fail("the program on node %u ended with %d", node, status);
}

int main(int argc, char **argv) {
    uint32_t nodes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    int skip = 1;
    if (argc > 3 && strcmp(argv[2], "--model") == 0 && sim_model_set(argv[3]))
        skip = 3;
    if (nodes == 0 || nodes > SIM_NODES_MAX || (argc > 2 && strcmp(argv[2], "--model") == 0 && skip == 1)) {
        fprintf(stderr, "usage: %s NODES [--model NAME=VALUE,...] ARGUMENT...\n", argv[0]);
        return 2;
    }
    argv[skip] = argv[0];
    struct command command = {.argc = argc - skip, .argv = argv + skip};
    if (!sim_timed_run(nodes, run, &command)) {
        fprintf(stderr, "%s: %s\n", argv[0], sim_failure());
        return 1;
    }
    return 0;
}
