/* workers.h - tasks of the library in a thread of the program: they execute operations that the thread has
 * started and does not wait for yet.
 *
 * Model:  the workers of a thread are separate from its tasks (remo/task.h). They run only in
 *         remo__workers_run. A worker that waits is parked, as any task is, and the next ready worker runs.
 *         The call returns when no worker is ready. So the operations of all workers overlap, and the call
 *         blocks only if a condition blocks that it checks.
 * Memory: the stacks are reserved when the thread starts its first worker, and kept until the thread ends.
 * Fences: the fence of a worker need not cover operations of other workers, nor of the thread.
 * Errors: the sentence of a worker belongs to the worker; remo__worker_report copies it. */
#pragma once

#include "remote/scheduler.h"

#ifdef REMO_SIM_SMALL
#define REMO__WORKERS_MAX 4u
#else
#define REMO__WORKERS_MAX 128u
#endif

/* Start a worker of the calling thread, which is `thread`. It runs in the next remo__workers_run.
 * Errors: -EAGAIN (REMO__WORKERS_MAX workers have not ended), -ENOMEM. */
int remo__worker_start(struct remo__thread *thread, int (*run)(void *ctx), void *ctx);
/* Run the ready workers of the calling thread, which is `thread`, until none is ready. */
void remo__workers_run(struct remo__thread *thread);
/* Return the number of workers of the calling thread, which is `thread`, that have not ended. */
uint32_t remo__workers_count(const struct remo__thread *thread);
/* Copy the sentence of the calling worker to that of a task of the thread (NULL: of the thread itself). */
void remo__worker_report(struct remo__last_error *of_task);
