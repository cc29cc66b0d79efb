/* error.h - error codes, and sentences that explain them.
 *
 * Every function that can fail returns 0 or a negative errno code, and writes its outputs only on
 * success. A program handles the code; remo_last_error() returns a sentence for a person, with the
 * remedy. The sentence is one line; control characters of names in it become '?'. If a required
 * pointer is NULL, functions return -EINVAL; functions without a code return NULL or 0, or have no
 * effect. Remo never prints, exits or aborts because of a peer or a caller's argument.
 *
 * Codes:
 *   -EHOSTDOWN        a peer that the operation needs has failed or left
 *   -ETIMEDOUT        the deadline passed first
 *   -EOWNERDEAD       the caller holds the lock, but its previous holder failed while it held the
 *                     lock
 *   -ENOTRECOVERABLE  a holder of the lock failed, and its data was not repaired; the lock is lost
 *   -ESTALE           the address belongs to an earlier incarnation of its node, or the value has
 *                     changed
 *   -EINVAL           an argument is wrong
 *   -ERANGE           an argument is out of range
 *   -EMSGSIZE         an argument is too large, or a buffer too small
 *   -ENAMETOOLONG     a name is too long
 *   -ENOENT           not found
 *   -EEXIST           exists already
 *   -ENOSPC           no room
 *
 * The full list is in src/base/error.c; remo_error_text() has one line for each code. */
#pragma once

#include <stdint.h>

#define REMO_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define REMO_BEGIN extern "C" {
#define REMO_END }
#else
#define REMO_BEGIN
#define REMO_END
#endif

/* A timeout that never expires. The failure of a peer that the wait depends on still ends the
 * wait. */
#define REMO_FOREVER UINT64_MAX

/* Convert seconds or milliseconds to nanoseconds: REMO_SECONDS(10), REMO_MS(250). `n` is a whole
 * number, not negative, and is evaluated twice. A result that does not fit is REMO_FOREVER.
 * The result is constant if `n` is. */
#define REMO_SECONDS(n) REMO__NANOSECONDS(n, UINT64_C(1000000000))
#define REMO_MS(n) REMO__NANOSECONDS(n, UINT64_C(1000000))
#define REMO__NANOSECONDS(n, unit) \
    ((uint64_t)(n) / (REMO_FOREVER / (unit) + 1) ? REMO_FOREVER : (uint64_t)(n) * (unit))

REMO_BEGIN

/* Return the sentence of the most recent failure of this thread or task, or "" if there was none. A
 * success does not clear it. Valid until the next failure of the thread or task. Threads: any. */
REMO_API const char *remo_last_error(void);

/* Return the name of a code: -EHOSTDOWN -> "EHOSTDOWN"; 0 -> "OK"; "unknown" for other numbers. The
 * sign of `code` has no effect. Threads: any. */
REMO_API const char *remo_error_name(int code);

/* Return the meaning of a code, in one line without a full stop. The sign of `code` has no effect.
 * Threads: any. */
REMO_API const char *remo_error_text(int code);

REMO_END
