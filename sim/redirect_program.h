/* redirect_program.h - included before a user's program that runs on the simulated network with a
 * clock. Its threads are contexts, its clock is the simulated one, and its main runs once per
 * node (timed/main.c). */
#pragma once

#include <time.h>

#include "sim/redirect_threads.h"

int sim_program_main(int argc, char **argv);
int sim_clock_gettime(clockid_t clock, struct timespec *ret_now);
/* Sleep until an absolute time; relative times fail. */
int sim_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *ret_left);

#define main sim_program_main
#define clock_gettime(clock, now) sim_clock_gettime(clock, now)
#define clock_nanosleep(clock, flags, until, left) sim_clock_nanosleep(clock, flags, until, left)
