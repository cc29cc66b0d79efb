/* cycles_judge.h - declarations that the files of the judge share (cycles.h): operations, presences of keys,
 * and the graph. */
#pragma once

#include "cycles.h"
#include "graph.h"

#define NONE GRAPH_NONE
#define NO_ACCESS UINT64_MAX

struct op {
    uint64_t begin, end; /* `end` of one that is proven: that of the first operation that has seen it */
    const struct cycles_access *accesses;
    uint64_t first_access; /* among those of all actors */
    uint32_t access_count;
    uint8_t actor, outcome;
    bool counts;
};

/* From the insert of a key to its delete. */
struct presence {
    uint32_t key, insert; /* an operation */
    uint32_t remove;      /* a node; NONE: never */
    uint32_t possible;    /* deletes with an unknown outcome, one of which may have ended it */
    uint32_t possible_op; /* the last one of them */
    uint64_t last;        /* the access that wrote the last version */
    uint64_t insert_end, remove_begin;
    uint64_t later_removes; /* the earliest begin of a remove of this presence and later ones */
};

/* Presences of a key whose order is unknown: usually one. All are between the nodes `before` and `after`. */
struct group {
    uint32_t before, after; /* `after` NONE: the key was not deleted any more */
    uint32_t presence, count;
    uint64_t first_insert_end, last_insert_end;
    uint64_t first_remove; /* the earliest begin of a remove of the group */
    uint64_t last_remove;  /* the latest one of this and all earlier groups of the key */
};

struct judge {
    FILE *out;
    struct cycles_report report;
    uint32_t base[CYCLES_ACTORS_MAX + 1]; /* the first operation of each actor */
    uint32_t actor_count, op_count, key_count, auxiliary_count;
    uint64_t access_count;
    struct op *ops;
    uint32_t *next; /* of each access that wrote a version: the node that replaced it */
    struct presence *presences;
    struct group *groups;
    uint32_t presence_count;
    uint32_t *key_presences, *key_groups; /* of each key: its first one; key_count + 1 entries */
    uint32_t *by_end, *by_begin;          /* operations that count */
    uint32_t ended_count, counted;
    struct graph graph;
};

/* Set *ret_op to the number of the operation with this id. Returns 0 or -ENOENT. */
int cycles_index_of(const struct judge *judge, uint32_t id, uint32_t *ret_op);
/* Return the use of the key by the operation, or NULL. */
const struct cycles_access *cycles_access_of(const struct op *op, uint32_t key);
/* Return the access that wrote the version with this id, or NO_ACCESS if no operation that counts did. */
uint64_t cycles_writer_of(const struct judge *judge, uint32_t id, uint32_t key);

/* Print results that no order explains, and count them. */
void cycles_print_errors(struct judge *judge);
/* Print a cycle of the graph. */
void cycles_print_cycle(struct judge *judge, const uint32_t *nodes, uint32_t count);
