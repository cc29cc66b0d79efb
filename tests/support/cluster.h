/* cluster.h - a job of real nodes for a test: N processes or threads of this machine, started, watched and,
 * on request, killed.
 *
 * A test is a function that every node runs. It returns 0, or reports a failure by CHECK, which prints the
 * place, the node and remo_last_error(). A program of tests has a table of them and calls cluster_main with
 *     --fabric NAME   shm (default), ofi or verbs
 *     --only NAME     one test (may be repeated)
 *     --repeat N      each test N times
 *     --list          list the tests
 * It exits with 0, 1, or 77 if this machine has no such fabric. Nodes connect over Unix sockets in a new
 * folder of $TMPDIR; the only other shared memory is that of cluster_shared. */
#pragma once

#include "patience.h"

#include <remo/remo.h>
#include <stdio.h>

#define SECOND 1000000000ull

struct cluster_test {
    const char *name;
    uint32_t nodes;
    int (*body)(struct remo_node *node, void *ctx);
    int as_threads;         /* all nodes in one process */
    uint64_t op_timeout_ns; /* 0: 50 s */
    uint64_t timeout_ns;    /* of the whole test; 0: 150 s */
    void *ctx;
    const char *only_on; /* a fabric; NULL: all */
};

/* A line of the table: the body, the number of nodes, and further members (.op_timeout_ns = ...,
 * ...). */
#define CLUSTER_TEST(body_, nodes_, ...) \
    { .name = #body_, .body = (body_), .nodes = (nodes_), ##__VA_ARGS__ }
#define CLUSTER_TEST_NAMED(name_, body_, nodes_, ...) \
    { .name = (name_), .body = (body_), .nodes = (nodes_), ##__VA_ARGS__ }

/* Run the tests; `tests` ends with an entry without a name. `setup` (may be NULL) is called before
 * each test, to clear shared state. */
int cluster_main(int argc, char **argv, const struct cluster_test *tests, void (*setup)(void));
/* Run one test on `fabric`. Returns 0, 1 or 77; prints on stderr which node failed and how. */
int cluster_run(const struct cluster_test *test, const char *fabric);

/* Allocate zeroed memory shared by all processes; call it before cluster_run. */
void *cluster_shared(size_t bytes);

/* ---- in a node's body ---- */

/* Kill a node with SIGKILL; the test then expects its failure. -EINVAL for nodes that are
 * threads. */
int cluster_kill(uint32_t rank);
/* Expect that this node does not return 0 from its body (it kills itself, for example). */
void cluster_expect_death(void);
/* Wait until all live nodes of the test arrive, without Remo. Returns 0, or 1 at the deadline. */
int cluster_meet(void);
/* Wait until this node has cut the failed peer off: from now on every operation on it fails. Before, one may
 * succeed although remo_node_peer reports the failure. */
void cluster_await_cut_off(struct remo_node *node, uint32_t peer);
/* Set the timeout of operations of this node, for calls that must time out, and return the one before. Open
 * objects with the long timeout: on a busy machine the answer of a peer may take seconds. */
uint64_t cluster_set_op_timeout(struct remo_node *node, uint64_t timeout_ns);
void cluster_sleep_ms(uint32_t ms);
uint64_t cluster_now_ns(void);
/* Return the processor time of this process. */
uint64_t cluster_processor_ns(void);
/* Record the place of this node, for the report of a hang. */
void cluster_at(const char *file, int line);
/* Print a failure, and return 1. */
int cluster_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Check that the condition holds, or end the body with 1. */
#define CHECK(condition)                                                       \
    do {                                                                       \
        cluster_at(__FILE__, __LINE__);                                        \
        if (!(condition))                                                      \
            return cluster_fail(__FILE__, __LINE__, "not so: %s", #condition); \
    } while (0)

/* Check that two unsigned numbers are equal. */
#define CHECK_EQUAL(found, expected)                                                                         \
    do {                                                                                                     \
        cluster_at(__FILE__, __LINE__);                                                                      \
        unsigned long long found_ = (unsigned long long)(found), expected_ = (unsigned long long)(expected); \
        if (found_ != expected_)                                                                             \
            return cluster_fail(__FILE__, __LINE__, "%s is %llu, not %llu", #found, found_, expected_);      \
    } while (0)

/* Check that the call returns this code. */
#define CHECK_CODE(call, code)                                                            \
    do {                                                                                  \
        cluster_at(__FILE__, __LINE__);                                                   \
        int rc_ = (call), code_ = (code);                                                 \
        if (rc_ != code_)                                                                 \
            return cluster_fail(__FILE__, __LINE__, "%s is %d %s, not %d %s", #call, rc_, \
                                remo_error_name(rc_), code_, remo_error_name(code_));     \
    } while (0)

#define CHECK_OK(call) CHECK_CODE(call, 0)

/* Check that a count of events becomes equal to a number; the call reads it. A node may count an event after
 * others have seen its result. */
#define CHECK_REACHES(call, count, expected)                           \
    do {                                                               \
        for (uint32_t i_ = 0; i_ == 0 || (count) < (expected); i_++) { \
            if (i_ > 0)                                                \
                cluster_sleep_ms(1);                                   \
            CHECK(i_ < 50000);                                         \
            call;                                                      \
        }                                                              \
        CHECK_EQUAL(count, expected);                                  \
    } while (0)

/* Check that the call returns this code, with a sentence that contains `words`. */
#define CHECK_SENTENCE(call, code, words)                                                            \
    do {                                                                                             \
        CHECK_CODE(call, code);                                                                      \
        if (!strstr(remo_last_error(), words))                                                       \
            return cluster_fail(__FILE__, __LINE__, "%s: the sentence has no \"%s\"", #call, words); \
    } while (0)

/* Check the network cost of a statement in a channel: reads, writes, atomics, writes that wake. */
#define CHECK_COST(channel, statement, reads_, writes_, atomics_, imms_) \
    do {                                                                 \
        struct remo_stats before_, after_;                               \
        remo_channel_stats(channel, &before_);                           \
        statement;                                                       \
        remo_channel_stats(channel, &after_);                            \
        CHECK_EQUAL(after_.reads - before_.reads, reads_);               \
        CHECK_EQUAL(after_.writes - before_.writes, writes_);            \
        CHECK_EQUAL(after_.atomics - before_.atomics, atomics_);         \
        CHECK_EQUAL(after_.imms - before_.imms, imms_);                  \
    } while (0)
