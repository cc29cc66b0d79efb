/* cycles.h - judges whether a history of operations on keys is strictly serializable.
 *
 * An operation reads and changes keys: a transaction, or a call on an ordered map, such as a scan. For each
 * key that it changes, the history has the version that it replaces: the operation has read it, or no other
 * actor changes the key. A value contains the id of the operation that wrote it. So the history contains the
 * order of the versions of each key. It is strictly serializable if this graph of
 * its operations has no cycle:
 *   - the writer of a version precedes its readers, and the operation that replaces it;
 *   - the readers of a version precede the operation that replaces it;
 *   - an operation that ended before another one began precedes it.
 *
 * A key that is absent has no version. The versions of a key from an insert to a delete are a *presence*. The
 * order of two presences follows from times, if the insert of one ended before the delete of the other began.
 * Presences whose order does not follow have no edges between them, and a reader that found the key absent is
 * between the presences that its times permit. So the judge raises no false alarm, and misses few violations.
 *
 * An operation whose outcome is unknown counts if another operation has seen its effect. Otherwise it has
 * none. 10^6 operations take some seconds and about 200 MB. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CYCLES_ABSENT 0u /* as an id: no operation wrote a value, the key is absent */
#define CYCLES_NEVER UINT64_MAX
#define CYCLES_ACTORS_MAX 64u
#define CYCLES_OPS_MAX (1u << 26) /* of one actor */
#define CYCLES_KEYS_MAX (1u << 24)

enum cycles_outcome {
    CYCLES_UNKNOWN, /* the operation took effect once, or not at all */
    CYCLES_COMMITTED,
    CYCLES_NOT_COMMITTED
};

enum cycles_kind {
    CYCLES_READ,
    CYCLES_WRITE, /* of a new value, which contains the id of the operation */
    CYCLES_DELETE,
    CYCLES_IGNORED /* does not count */
};

/* The use of one key by an operation, which uses each key once. */
struct cycles_access {
    uint32_t key : 30, kind : 2;
    uint32_t seen; /* the id in the value that was read, or CYCLES_ABSENT */
};

struct cycles_op {
    uint64_t begin, end;   /* of one clock; `end` is CYCLES_NEVER if the outcome is unknown */
    uint64_t first_access; /* in the accesses of its history */
    uint32_t access_count;
    enum cycles_outcome outcome;
};

/* The operations of one actor, in any order. */
struct cycles_history {
    struct cycles_op *ops;
    struct cycles_access *accesses;
    uint32_t op_count;
    uint64_t access_count;
};

struct cycles_report {
    uint64_t ops, accesses;        /* that count */
    uint64_t unknown, proven;      /* operations with an unknown outcome; those that have taken effect */
    uint64_t presences, unordered; /* of keys; those whose order does not follow from times */
    uint32_t errors;               /* results that no order explains, each by itself */
    uint32_t cycle;                /* operations of the cycle that was found; 0: none */
};

/* The id of an operation, by the number of its actor and its index. */
static inline uint32_t cycles_id(uint32_t actor, uint32_t index) {
    return actor * CYCLES_OPS_MAX + index + 1;
}

/* Judge a history, and print errors and a cycle to `out`. Returns 0 if there are none, 1 if there are, or
 * -ENOMEM. */
int cycles_judge(const struct cycles_history *actors, uint32_t actor_count, FILE *out,
                 struct cycles_report *ret_report);
