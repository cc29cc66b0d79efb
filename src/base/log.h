/* log.h - log messages: passed to the program's function, or printed as REMO_LOG specifies. */
#pragma once

#include <remo/log.h>

/* The longest message, its terminator included; longer messages are truncated. */
#define REMO__LOG_MAX 1024

/* All zero is valid and silent. remo_node_open fills it; the layers below hold a pointer or a copy. */
struct remo__log {
    remo_log_fn fn; /* NULL: silent */
    void *ctx;
    int level; /* messages above this level are dropped */
};

/* Log one message at `level`. `log` may be NULL. Keeps errno. Threads: any. */
void remo__log(const struct remo__log *log, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
