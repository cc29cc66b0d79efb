/* settings.h - the settings of a node: fields of struct remo_config that the program sets, else variables
 * of the environment (man remo-environment), else defaults. */
#pragma once

#include <remo/node.h>
#include <stdbool.h>

#include "base/log.h"

struct remo__settings {
    const char *fabric, *provider, *bind_address, *memory_dir; /* NULL: the fabric's default */
    uint64_t arena_bytes, segment_bytes, join_timeout_ns, op_timeout_ns;
    uint32_t threads_max;
    bool arena_is_set;    /* arena_bytes is not the default */
    struct remo__log log; /* without ctx for the default function; its ctx is the node */
};

/* Determine all settings. The strings belong to `config` or to the environment.
 * Errors: -EINVAL (a value is out of range; the sentence names the field or the variable). */
int remo__settings_read(const struct remo_config *config, struct remo__settings *ret_settings);

/* Parse a number of bytes (digits, then optionally K, M, G or T, powers of 1024), or a time in seconds with
 * at most nine decimals. Returns false if `text` is malformed, zero or out of range. */
bool remo__bytes_parse(const char *text, uint64_t *ret_bytes);
bool remo__seconds_parse(const char *text, uint64_t *ret_ns);
