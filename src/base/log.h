/* log.h - the one way the library speaks: through the program's function, or not at all. */
#pragma once

#include <remo/log.h>

/* The longest message, its end included; longer ones are cut. */
#define REMO__LOG_MAX 1024

/* All zero is valid and silent. Whoever opens a node fills it; everything below holds a pointer to it. */
struct remo__log {
    remo_log_fn fn; /* NULL: silent */
    void *ctx;
    int level; /* the most detailed level that is passed on */
};

/* Pass one message on if somebody listens at `level`. `log` may be NULL. Keeps errno. Threads: any. */
void remo__log(const struct remo__log *log, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
