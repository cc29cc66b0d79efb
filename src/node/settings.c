/* settings.c - implements settings.h. A field of the program has precedence over a variable, and a variable
 * over the default. Numbers are parsed by hand, because strtod depends on the locale. */
#include "node/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/roster/environment.h"
#include "node/node.h"

#define ARENA_BYTES (64ull << 30)
#define SEGMENT_BYTES (16ull << 20)
#define JOIN_TIMEOUT_NS (30 * REMO__NS_PER_S)
#define OP_TIMEOUT_NS (10 * REMO__NS_PER_S)
#define THREADS_MAX 64u

static const char *variable(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL; /* an empty variable counts as unset */
}

/* Return the program's string, else the variable; NULL if the one that is set is empty. */
static const char *or_variable(const char *given, const char *name) {
    if (given)
        return *given ? given : NULL;
    return variable(name);
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

/* Parse one or more digits. Returns false if there is none, or the number is too large. */
static bool digits_take(const char **at, uint64_t *ret_number) {
    const char *first = *at;
    uint64_t number = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (__builtin_mul_overflow(number, 10, &number)
            || __builtin_add_overflow(number, (uint64_t)(**at - '0'), &number))
            return false;
    }
    *ret_number = number;
    return *at > first;
}

bool remo__bytes_parse(const char *text, uint64_t *ret_bytes) {
    static const char units[] = "KMGT";
    uint64_t bytes;
    if (!digits_take(&text, &bytes))
        return false;
    const char *unit = *text ? strchr(units, *text) : NULL;
    unsigned int shift = unit ? 10 * (unsigned int)(unit - units + 1) : 0;
    if ((*text && (!unit || text[1])) || bytes == 0 || bytes > UINT64_MAX >> shift)
        return false;
    *ret_bytes = bytes << shift;
    return true;
}

bool remo__seconds_parse(const char *text, uint64_t *ret_ns) {
    uint64_t seconds, ns;
    if (!digits_take(&text, &seconds) || __builtin_mul_overflow(seconds, REMO__NS_PER_S, &ns))
        return false;
    if (*text == '.') {
        uint64_t digit_ns = REMO__NS_PER_S / 10;
        for (text++; *text >= '0' && *text <= '9' && digit_ns > 0; text++, digit_ns /= 10) {
            if (__builtin_add_overflow(ns, (uint64_t)(*text - '0') * digit_ns, &ns))
                return false;
        }
        if (text[-1] == '.')
            return false;
    }
    if (*text != '\0' || ns == 0 || ns == REMO_FOREVER)
        return false;
    *ret_ns = ns;
    return true;
}

/* The program's value, else the variable, else the default. */
static int bytes_choose(uint64_t given, const char *name, uint64_t otherwise, uint64_t *ret_bytes) {
    const char *text = variable(name);
    *ret_bytes = given ? given : otherwise;
    if (given || !text || remo__bytes_parse(text, ret_bytes))
        return 0;
    return remo__fail(
        -EINVAL,
        "cannot open the node: %s=\"%s\" is no number of bytes; write digits, then K, M, G, T or nothing, "
        "such as 512M",
        name, text);
}

static int time_choose(uint64_t given, const char *name, uint64_t otherwise, uint64_t *ret_ns) {
    const char *text = variable(name);
    *ret_ns = given ? given : otherwise;
    if (given || !text || remo__seconds_parse(text, ret_ns))
        return 0;
    return remo__fail(-EINVAL,
                      "cannot open the node: %s=\"%s\" is no number of seconds above 0; write for example 30 "
                      "or 0.5",
                      name, text);
}

/* ---- log ----------------------------------------------------------------------------------------------- */

static const char *const levels[] = {[REMO_LOG_NONE] = "none",
                                     [REMO_LOG_ERROR] = "error",
                                     [REMO_LOG_WARNING] = "warning",
                                     [REMO_LOG_INFO] = "info",
                                     [REMO_LOG_DEBUG] = "debug"};
#define LEVELS (int)(sizeof levels / sizeof levels[0])

/* Standard error is not buffered, so each message is one write. */
static void print(void *ctx, int level, const char *message) {
    const struct remo_node *node = ctx;
    fprintf(stderr, "remo: node %u: %s: %s\n", node->rank, levels[level], message);
}

static int log_choose(const struct remo_config *config, struct remo__log *ret_log) {
    const char *text = variable(REMO__ENV_LOG);
    int level = 0;
    while (text && level < LEVELS && strcmp(text, levels[level]) != 0)
        level++;
    if (level == LEVELS)
        return remo__fail(-EINVAL,
                          "cannot open the node: " REMO__ENV_LOG
                          "=\"%s\" is no level; write none, error, warning, info or debug",
                          text);
    *ret_log = (struct remo__log){.fn = config->log, .ctx = config->log_ctx, .level = config->log_level};
    if (text && !config->log)
        *ret_log = (struct remo__log){.fn = print, .level = level};
    else if (!config->log_level)
        ret_log->level = text ? level : REMO_LOG_WARNING;
    return 0;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static int check(const struct remo_config *config, const struct remo__settings *settings) {
    if (config->threads_max > REMO__THREADS_MAX)
        return remo__fail(-EINVAL, "threads_max is %u, at most %u are allowed", config->threads_max,
                          REMO__THREADS_MAX);
    if (settings->arena_bytes > 1ull << REMO_ADDR_OFFSET_BITS)
        return remo__fail(-EINVAL, "arena_bytes is %llu, at most %llu fit an address",
                          (unsigned long long)settings->arena_bytes, 1ull << REMO_ADDR_OFFSET_BITS);
    return 0;
}

int remo__settings_read(const struct remo_config *config, struct remo__settings *ret_settings) {
    struct remo__settings settings = {
        .fabric = or_variable(config->fabric, REMO__ENV_FABRIC),
        .provider = or_variable(config->provider, REMO__ENV_PROVIDER),
        .bind_address = or_variable(config->bind_address, REMO__ENV_BIND),
        .memory_dir = or_variable(config->memory_dir, REMO__ENV_MEMORY_DIR),
        .threads_max = config->threads_max ? config->threads_max : THREADS_MAX,
        .arena_is_set = config->arena_bytes > 0 || variable(REMO__ENV_ARENA_BYTES),
    };
    int rc = bytes_choose(config->arena_bytes, REMO__ENV_ARENA_BYTES, ARENA_BYTES, &settings.arena_bytes);
    if (rc == 0)
        rc = bytes_choose(config->segment_bytes, REMO__ENV_SEGMENT_BYTES, SEGMENT_BYTES,
                          &settings.segment_bytes);
    if (rc == 0)
        rc = time_choose(config->join_timeout_ns, REMO__ENV_JOIN_TIMEOUT, JOIN_TIMEOUT_NS,
                         &settings.join_timeout_ns);
    if (rc == 0)
        rc = time_choose(config->op_timeout_ns, REMO__ENV_OP_TIMEOUT, OP_TIMEOUT_NS, &settings.op_timeout_ns);
    if (rc == 0)
        rc = log_choose(config, &settings.log);
    if (rc == 0)
        rc = check(config, &settings);
    if (rc == 0)
        *ret_settings = settings;
    return rc;
}
