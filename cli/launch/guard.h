/* guard.h - a process that cleans up if the launcher is killed.
 *
 * Model:   the guard holds the read end of a pipe; only the launcher has the write end. The launcher writes
 *          the processes or process groups that it starts. If the pipe ends without a dismissal, the guard
 *          ends them (SIGTERM, then SIGKILL), removes the job's folder and exits.
 * Limits:  a process that left its group (setsid, setpgid) is not reached. After SIGKILL to the guard itself,
 *          or a power failure, the folder remains until the sweep of the next launcher. */
#pragma once

#include <sys/types.h>

#include "cli/launch/job.h"

#define LAUNCH_GRACE_NS (2 * REMO__NS_PER_S) /* from SIGTERM to SIGKILL */

struct launch_guard {
    pid_t pid;
    int fd;
};

/* Start the guard of a job whose folder is open. Signals must be blocked. Errors: those of pipe and fork. */
int launch_guard_open(const struct launch_job *job, struct launch_guard *ret_guard);
/* Let the guard watch a process, or the group -target. Blocks only briefly. */
void launch_guard_watch(struct launch_guard *guard, pid_t target);
/* Dismiss the guard and wait for its end. */
void launch_guard_close(struct launch_guard *guard);
