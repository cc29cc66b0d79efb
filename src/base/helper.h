/* helper.h - the library's own threads. */
#pragma once

#include <pthread.h>

/* Start a thread that runs `run(ctx)` with every signal blocked: signals are for the program's threads.
 * ps and debuggers show `name` (at most 15 bytes).
 * Errors: -EAGAIN or -ENOMEM, with a sentence that names the thread. */
int remo__helper_start(pthread_t *ret_thread, const char *name, void *(*run)(void *ctx), void *ctx);
