/* key.h - the job's secret: read from a file that only its owner can read, or vouched for by munge.
 *
 * Loopback and Unix sockets need no key (the kernel tells who is at the other end of a Unix socket).
 * Anything else does.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/bootstrap.h"

/* 32 bytes as they are, or 64 hexadecimal digits with or without a line end. Errors: -EINVAL (sets no
 * sentence). */
int remo__key_parse(const void *data, size_t bytes, uint8_t ret_key[REMO__KEY_BYTES]);
/* Errors: -ENOENT, -EACCES (readable by others, or another's), -EINVAL. */
int remo__key_read(const char *path, uint8_t ret_key[REMO__KEY_BYTES]);
void remo__key_format(const uint8_t key[REMO__KEY_BYTES], char ret_hex[2 * REMO__KEY_BYTES + 1]);

/* Is there a munge daemon on this machine? */
bool remo__munge_present(void);
/* A credential that only our user can open, and only once; it carries `data`. Up to seconds when the daemon
 * is ill. Errors: -EACCES with a sentence. The caller frees. */
int remo__munge_seal(const void *data, size_t bytes, char **ret_text);
/* What it carries, once the daemon has vouched for it and for its sender being our own user. Errors: -EACCES.
 */
int remo__munge_open(const char *text, void *ret_data, size_t bytes);
