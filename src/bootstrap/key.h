/* key.h - the job's credential: a key file that only its owner can read, or munge.
 *
 * Loopback and Unix sockets need no key: the kernel reports the user at the other end (user.h), and only
 * processes of the same user may join. All other addresses need a key.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/roster/roster.h"

/* Parse a key: 32 bytes, or 64 hexadecimal digits with or without a line end. Errors: -EINVAL (sets no
 * sentence). */
int remo__key_parse(const void *data, size_t bytes, uint8_t ret_key[REMO__KEY_BYTES]);
/* Read a key file. Errors: -ENOENT, -EACCES (other users can access it or own it), -EINVAL. */
int remo__key_read(const char *path, uint8_t ret_key[REMO__KEY_BYTES]);
void remo__key_format(const uint8_t key[REMO__KEY_BYTES], char ret_hex[2 * REMO__KEY_BYTES + 1]);

/* True if a munge daemon runs on this machine. */
bool remo__munge_present(void);
/* Create a credential that carries `data`; only this user can open it, and only once. Blocks for seconds if
 * the daemon is slow. The caller frees *ret_text. Errors: -EACCES with a sentence. */
int remo__munge_seal(const void *data, size_t bytes, char **ret_text);
/* Open a credential and return its data. The daemon verifies it; the sender must be this user. Errors, each
 * with a sentence:
 *   -EACCES  the credential is wrong
 *   -EAGAIN  the daemon cannot verify it now: it does not answer, or the credential has expired, is dated in
 *            the future, or was used before */
int remo__munge_open(const char *text, void *ret_data, size_t bytes);
