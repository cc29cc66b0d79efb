/* versioned.h - the state of the cases of versioned objects, and what their files share.
 *
 *   versioned_judge.c  the replay of commits, and the judge of reads
 *   versioned_calls.c  calls with their costs, each judged
 *   versioned.c        cases of the table: one thread commits
 *   versioned_race.c   objects that move during a read; commits of two threads */
#pragma once

#include <errno.h>
#include <remo/versioned.h>
#include <string.h>

#include "sim/case.h"

#define OWNER 0u
#define VALUE_BYTES 152u /* of an object, at most: three cache lines */
#define OBJECTS_MAX 3u
#define RANGES_MAX 3u  /* of a commit */
#define ENTRIES_MAX 9u /* of a plan */
#define COMMITS_MAX 24u
#define RESULTS_MAX 32u
#define NO_INSTANT UINT64_MAX

struct range {
    uint8_t object, offset, size_bytes;
};

/* The changes of commit n are those of entry (n - 1) % count. A range of size 0 ends an entry. */
struct plan {
    uint32_t objects, object_bytes, retain, count;
    uint32_t log_bytes; /* 0: a record of a whole object */
    struct range entries[ENTRIES_MAX][RANGES_MAX];
};

/* Objects that are read in two steps. */
#define HALVED_BYTES 152u
#define FIRST_HALF 70u

/* The result of a read. */
struct result {
    uint32_t rank, object;
    uint64_t seen;    /* the newest version that a call had returned when the read began */
    uint64_t begun;   /* the number of commits that had begun when the read ended */
    uint64_t version; /* of the object */
    uint64_t instant; /* the version of the whole read; NO_INSTANT: it read one object */
    unsigned char value[VALUE_BYTES];
};

struct versioned_state {
    struct remo_versioned *tables[SIM_NODES_MAX];
    const struct plan *plan;
    uint64_t begun, ended;             /* the number of commits */
    uint64_t seen;                     /* the newest version that a call has returned on any node */
    uint32_t numbers[COMMITS_MAX + 1]; /* of the commit of each version; 0: unknown */
    uint32_t running[SIM_THREADS_MAX]; /* the number of the commit of each thread; 0: none */
    uint64_t instant;                  /* a version that node 1 has obtained for others */
    bool is_late;                      /* judge the results after all commits have versions */
    uint32_t results_count;
    struct result results[RESULTS_MAX];
    const struct sim_actor *reader; /* the owner commits after it has posted wanted_posts more operations */
    uint64_t seen_posts, wanted_posts; /* seen_posts: its operations before the last commit */
    bool has_read;
    uint64_t known[SIM_NODES_MAX][OBJECTS_MAX]; /* 1 + the commits before the last read without a commit */
};

/* ---- the plan ---- */

/* Return the ranges of a commit. */
const struct range *sim_versioned_ranges_of(const struct plan *plan, uint32_t number);
/* Return the byte that a commit writes at this offset. */
unsigned char sim_versioned_byte_of(uint32_t number, uint32_t range, uint32_t at);
uint32_t sim_versioned_log_bytes(const struct plan *plan);
/* Return how often the object has moved since `version`. */
uint64_t sim_versioned_moves_since(const struct versioned_state *s, uint32_t object, uint64_t version);
/* Return whether the extent of an object's state at `version` may have been used again: a commit has moved
 * the object from this extent, and since then objects have moved `retain` times. */
bool sim_versioned_may_be_stale(const struct versioned_state *s, uint32_t object, uint64_t version);

/* ---- the judge ---- */

/* Note a version that a call has returned. */
void sim_versioned_note_seen(struct versioned_state *s, uint64_t version);
/* Return the error in a result, or NULL. */
const char *sim_versioned_wrong_with(const struct versioned_state *s, const struct result *result);
void sim_versioned_require_right(const struct versioned_state *s, const struct result *result);
/* Judge the result of a read: now, or at the end if the versions of commits are not known yet. */
void sim_versioned_judge(struct versioned_state *s, const struct result *result);

/* ---- calls ---- */

/* Open the objects of a plan, and close them. */
void sim_versioned_open(struct versioned_state *s, struct remo_node *node, uint32_t rank,
                        const struct plan *plan);
void sim_versioned_close(void *state, uint32_t rank);
/* Make the commit of this number. */
void sim_versioned_commit(struct versioned_state *s, uint32_t thread, uint32_t number);
void sim_versioned_read_one(struct versioned_state *s, uint32_t rank, uint32_t object);
/* The same without a private copy, if the memory is mapped and no commit is changing the object. */
void sim_versioned_read_directly(struct versioned_state *s, uint32_t rank, uint32_t object);
/* Read all objects as of one instant. Returns its version, or NO_INSTANT if a fault excuses the error. */
uint64_t sim_versioned_read_all(struct versioned_state *s, uint32_t rank);
/* Read each object as of an instant of its own, in two steps. */
void sim_versioned_read_each(struct versioned_state *s, uint32_t rank);
/* Read the version. Returns the version, or NO_INSTANT if a fault excuses the error. */
uint64_t sim_versioned_read_version(struct versioned_state *s, uint32_t rank);
/* Read an object as of a version that a call has returned. */
void sim_versioned_read_at(struct versioned_state *s, uint32_t rank, uint32_t object, uint64_t instant);
/* Read all objects as of a version that a call has returned. */
void sim_versioned_read_all_at(struct versioned_state *s, uint32_t rank, uint64_t instant);
/* The nodes that have not failed read. The owner makes further commits, which move objects. */
void sim_versioned_after(void *state, uint32_t rank);

/* A case of the table. The arguments are members of struct sim_case. */
#define VERSIONED_CASE(...)                                                                                 \
    {                                                                                                       \
        .object = "versioned", .state_bytes = sizeof(struct versioned_state), .close = sim_versioned_close, \
        __VA_ARGS__                                                                                         \
    }
