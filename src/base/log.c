/* log.c - implements log.h: formats a message and passes it to the log function of the node.
 * A message above the level is neither formatted nor passed on. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void remo__log(const struct remo__log *log, int level, const char *format, ...) {
    if (!log || !log->fn || level > log->level)
        return;
    int saved_errno = errno;
    char message[REMO__LOG_MAX];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (length >= 0)
        log->fn(log->ctx, level, message);
    errno = saved_errno;
}
