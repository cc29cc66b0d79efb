/* error.h - how Remo reports that something went wrong.
 *
 * Every function that can fail returns 0 or a negative errno code, and writes its outputs only on success.
 * The code says what a program may do about it; remo_last_error() has a sentence for a person, with the
 * remedy. Remo never prints, never exits and never aborts because of what a peer or a user did.
 *
 * The codes Remo returns, and what they mean:
 *   -EHOSTDOWN        a peer that the operation needs has died or left
 *   -ETIMEDOUT        the deadline passed first
 *   -EOWNERDEAD       the lock is yours, but its last owner died holding it
 *   -ENOTRECOVERABLE  what an owner left half done was given up; the object is lost
 *   -ESTALE           the address belongs to an earlier life of its node
 *   -EINVAL, -ERANGE, -EMSGSIZE, -ENAMETOOLONG   an argument is wrong, out of range, too large, too long
 *   -ENOENT, -EEXIST, -ENOSPC                    no such thing, already there, no room
 *   and the rest of the table in src/base/error.c; remo_error_text() has one line for each. */
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

/* A timeout that never ends. The death of the peer waited for still ends the wait. */
#define REMO_FOREVER UINT64_MAX

REMO_BEGIN

/* The sentence of this thread's most recent failure, or "" when it had none. A success does not clear it.
 * Valid until this thread's next failure. Threads: any. */
REMO_API const char *remo_last_error(void);

/* The name of a code: -EHOSTDOWN -> "EHOSTDOWN"; 0 -> "OK"; "unknown" for what is no errno code.
 * The sign does not matter. Threads: any. */
REMO_API const char *remo_error_name(int code);

/* What a code means in Remo, in one line without a full stop. The sign does not matter. Threads: any. */
REMO_API const char *remo_error_text(int code);

REMO_END
