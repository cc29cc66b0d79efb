/* error.h - setting the sentence that remo_last_error() returns.
 *
 * Whoever first decides that something failed describes it:
 *     return remo__fail(-EINVAL, "the name has %zu bytes, at most %d are allowed", length, REMO_NAME_MAX);
 * A caller that knows more puts it in front ("opening queue jobs: the name has ...") and passes the code on:
 *     return remo__fail_more(rc, "opening queue %s", name); */
#pragma once

#include <remo/error.h>

/* The longest sentence, its end included; longer ones are cut. */
#define REMO__SENTENCE_MAX 512

/* Set this thread's sentence; return `code` (negative). Keeps errno. The arguments may include
 * remo_last_error(). */
int remo__fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put "<context>: " in front of this thread's sentence; return `code`. */
int remo__fail_more(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As remo__fail, for results that are frequent and ordinary (an empty queue, a missing key): keeps the
 * pointer, formats and copies nothing. `sentence` must live for ever. */
int remo__fail_static(int code, const char *sentence);
