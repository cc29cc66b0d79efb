/* log.h - messages about a node at run time.
 *
 * A program sets a function and the most detailed level when it opens a node. Without a function,
 * messages are discarded, or written to standard error if the environment has REMO_LOG.
 * Threads of the program and of the library may call the function concurrently. The function must
 * not call Remo. */
#pragma once

enum remo_log_level {
    REMO_LOG_NONE = 0,
    REMO_LOG_ERROR = 1,   /* data or a connection was lost */
    REMO_LOG_WARNING = 2, /* everything works, but a setting should change */
    REMO_LOG_INFO = 3,    /* membership changes, and settings that Remo selected */
    REMO_LOG_DEBUG = 4    /* for developers of Remo */
};

/* `message` is one line without a line end, valid during the call. */
typedef void (*remo_log_fn)(void *ctx, int level, const char *message);
