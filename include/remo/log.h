/* log.h - what Remo tells a program while it runs.
 *
 * The library never prints. A program that wants to hear gives a function and the most detailed level it
 * wants when it opens a node; without one, nothing is formatted. The function may be called from any thread
 * that uses the node, and from the library's own threads, at the same time; it must not call Remo. */
#pragma once

enum remo_log_level {
    REMO_LOG_NONE = 0,
    REMO_LOG_ERROR = 1,   /* something was lost */
    REMO_LOG_WARNING = 2, /* something should be changed, but all still works */
    REMO_LOG_INFO = 3,    /* peers come and go, choices that were made */
    REMO_LOG_DEBUG = 4    /* for those who work on Remo */
};

/* `message` is one line without a line end, valid during the call. */
typedef void (*remo_log_fn)(void *ctx, int level, const char *message);
