/* suite.h - the requirements on every fabric, checked through struct remo__fabric_ops alone.
 *
 * A case is a function in one of the cases_*.c. It runs in its own process, so it may hang, crash or leak
 * without affecting others. It opens nodes, in this process or in forked ones, and passes descriptions and
 * file descriptors between them, as the control plane does in production. It reads the capabilities only to
 * skip checks. To run the suite on a fabric, call suite_main and add a line to meson.build. */
#ifndef SUITE_H
#define SUITE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "fabric/fabric.h"
#include "../support/patience.h"

#define SUITE_NODES_MAX 16u
#define SUITE_SEGMENTS_MAX 4u
#define SUITE_ARENA_BYTES (UINT64_C(64) << 20)
#define SUITE_ZONE_BYTES \
    (UINT64_C(6) << 20)       /* each node has two: one for peers' operations, one for its buffers */
#define SUITE_IMMS_MAX 65536u /* stored by a service thread */
#define SUITE_LIMIT_NS (100 * REMO__NS_PER_S) /* a longer operation counts as hung */

/* A fabric under test. */
struct suite {
    const struct remo__fabric_ops *ops;
    const char *provider; /* as in struct remo__fabric_config */
};

/* The description of a node for its peers. */
struct suite_segment {
    uint64_t offset, size_bytes;
    uint8_t blob[REMO__BLOB_BYTES_MAX];
    size_t blob_bytes;
    int fd;
};

struct suite_card {
    uint32_t rank, segment_count;
    uint8_t blob[REMO__BLOB_BYTES_MAX];
    size_t blob_bytes;
    struct suite_segment segments[SUITE_SEGMENTS_MAX];
};

struct suite_node {
    const struct suite *suite;
    struct remo__fabric *fabric;
    char *arena;
    uint64_t zone; /* arena offset of the zone for peers' operations; the zone for buffers follows */
    struct suite_card card;
    /* The service thread, if one was started, and the immediates that it received. */
    pthread_t service;
    bool served;
    _Atomic bool service_stop;
    _Atomic uint32_t imm_count;
    struct remo__imm *imms; /* [SUITE_IMMS_MAX] */
};

struct suite_cluster {
    uint32_t size;
    struct suite_node nodes[SUITE_NODES_MAX];
};

/* One of several processes, each a node. */
struct suite_process {
    struct suite_node node;
    uint32_t rank, size;
    int hub;
};

typedef void (*suite_case_fn)(const struct suite *suite);

struct suite_case {
    const char *name;
    suite_case_fn run;
};

/* Each cases_*.c ends with its list, which ends with a NULL. */
extern const struct suite_case suite_cases_ops[], suite_cases_queue[], suite_cases_order[], suite_cases_imm[],
    suite_cases_threads[], suite_cases_errors[], suite_cases_processes[];

/* Without arguments: run all cases, print the result of each, and "N passed, N failed, N skipped". With the
 * name of a case: run it, exit 0, 1 or 77. With --listed NAME...: fail unless these are the names of all
 * cases. */
int suite_main(const struct suite *suite, int argc, char **argv);

/* ---- verdicts: end the process of the case ---- */

_Noreturn void suite_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void suite_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CHECK(condition)                                                                                    \
    do {                                                                                                    \
        if (!(condition))                                                                                   \
            suite_fail(__FILE__, __LINE__, "not true: %s (last error: %s)", #condition, remo_last_error()); \
    } while (0)
#define CHECK_EQ(left, right)                                                                                \
    do {                                                                                                     \
        long long left_value = (long long)(left), right_value = (long long)(right);                          \
        if (left_value != right_value)                                                                       \
            suite_fail(__FILE__, __LINE__, "%s is %lld, not %lld as %s (last error: %s)", #left, left_value, \
                       right_value, #right, remo_last_error());                                              \
    } while (0)

/* ---- nodes ---- */

struct remo__fabric_config suite_config(const struct suite *suite, uint32_t rank, uint32_t size);
void suite_node_open(struct suite_node *node, const struct suite *suite, uint32_t rank, uint32_t size);
void suite_node_close(struct suite_node *node);
/* Back `size_bytes` more of the arena; the card grows by a segment. */
void suite_node_grow(struct suite_node *node, uint64_t size_bytes);
/* Connect to the owner of a card and map its segments. */
void suite_node_meet(struct suite_node *node, const struct suite_card *card);
void suite_node_map(struct suite_node *node, const struct suite_card *card, uint32_t segment);
/* Receive immediates in a separate thread, as the node's service thread does. */
void suite_service_start(struct suite_node *node);
void suite_service_stop(struct suite_node *node);
/* Wait until that thread received `count` immediates in all. */
void suite_service_expect(struct suite_node *node, uint32_t count);

/* Open all nodes in this process, each connected to each, itself included. */
void suite_cluster_open(struct suite_cluster *cluster, const struct suite *suite, uint32_t size);
void suite_cluster_close(struct suite_cluster *cluster);

/* Open each node in a separate process, all connected. Only the process `victim` may end by SIGKILL. */
void suite_processes(const struct suite *suite, uint32_t size, uint32_t victim,
                     void (*body)(struct suite_process *process));
#define SUITE_NO_VICTIM UINT32_MAX
/* Barrier of all running processes. */
void suite_process_barrier(struct suite_process *process);

/* ---- memory ---- */

/* Position `at` of the zone for peers' operations: as an offset, and as the owner's CPU address. */
uint64_t suite_offset(const struct suite_node *node, uint64_t at);
char *suite_memory(const struct suite_node *node, uint64_t at);
/* The node's own buffers. They are in the arena, which every fabric accepts. */
char *suite_buffer(const struct suite_node *node, uint64_t at);
/* Bytes that identify their origin and round. */
void suite_fill(char *bytes, uint64_t size_bytes, uint64_t seed);
bool suite_filled(const char *bytes, uint64_t size_bytes, uint64_t seed);
/* CPU access to a word that peers write. */
uint64_t suite_load(const void *word);
void suite_store(void *word, uint64_t value);

/* ---- operations ---- */

struct remo__endpoint *suite_endpoint(struct suite_node *node);
struct remo__op suite_op(struct suite_node *node, uint8_t kind, uint32_t peer, uint64_t at, void *local,
                         uint64_t size_bytes);
/* Post one operation; poll while the queue is full. Returns 1 or an error. */
int suite_post(struct suite_node *node, struct remo__endpoint *endpoint, const struct remo__op *op);
/* The next completion; it must come within the limit. */
struct remo__completion suite_complete(struct suite_node *node, struct remo__endpoint *endpoint);
/* Post one operation, with nothing else in flight, and wait. Returns its status, or the error of the post. */
int suite_run(struct suite_node *node, struct remo__endpoint *endpoint, struct remo__op op);

/* These must succeed. Transfers above the fabric's limit are split, as the node does. */
void suite_read(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer, uint64_t at,
                void *local, uint64_t size_bytes);
void suite_write(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer, uint64_t at,
                 const void *local, uint64_t size_bytes);
uint64_t suite_fetch_add(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer, uint64_t at,
                         uint64_t addend);
uint64_t suite_compare_swap(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer,
                            uint64_t at, uint64_t compare, uint64_t value);
/* The number of repetitions: `rounds` on a network, more if an operation takes only a few instructions. */
uint32_t suite_rounds(const struct suite_node *node, uint32_t rounds);
/* A lost wake-up shows as a sleep of a second, to its timeout. A machine that pauses shows the same: a few
 * stalls, counted in `stalls` (initially 0), are tolerated. */
bool suite_woken(uint32_t *stalls, uint64_t since_ns);
/* Wait until all earlier writes of this endpoint to the peer are placed, by the means of the fabric. */
void suite_flush(struct suite_node *node, struct remo__endpoint *endpoint, uint32_t peer);

#endif
