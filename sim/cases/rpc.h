/* rpc.h - the state of the cases of calls, and what their files share.
 *
 *   rpc.c           handlers, one call at a time, forwarded calls
 *   rpc_window.c    several calls in flight, and full rings
 *   rpc_long.c      LONG handlers, and services that close meanwhile
 *   rpc_overtake.c  posts that overtake calls; the mutex of a queue; one of several calls
 *   rpc_late.c      messages whose words are placed late; order of messages and writes
 *   rpc_forged.c    a faulty node */
#pragma once

#include <errno.h>
#include <remo/region.h>
#include <remo/rpc.h>
#include <string.h>

#include "objects/rpc/rpc.h"
#include "sim/case.h"

#define FOREVER REMO_FOREVER
#define NUMBERS 96u
#define ROUNDS 3u
#define WRITE_FAILED 8 /* status of the handler READ, after a fault */
#define GATE_NS 5000u  /* timeout of a call whose request waits for a task */

enum rpc_handler {
    ECHO,
    KEEP,
    PASS_ON,
    COUNT,
    CIRCLE,
    READ,
    HANDLERS,
    LONG_CIRCLE = HANDLERS,
    GATE,
    OPEN,
    LATE,
    HOLD,
    RELEASE
};

#define FORGED 80u /* numbers from here on are those of a faulty node */

struct rpc_state {
    struct remo_node *members[SIM_NODES_MAX]; /* of the case `departed` */
    struct remo_rpc *services[SIM_NODES_MAX];
    struct remo_region
        *regions[SIM_NODES_MAX]; /* of the case `order`: a word for each caller, and for each number */
    struct rpc_agent {
        struct rpc_state *state;
        uint32_t rank;
        struct remo_rpc_deferred kept;
        bool has_kept;
        struct remo_rpc_deferred held[REMO__RPC_RETIRED_MAX];
        uint32_t held_count;
    } agents[SIM_NODES_MAX];
    uint32_t nodes;
    uint32_t runs[NUMBERS];                               /* of the handler of each number */
    uint32_t expected[SIM_NODES_MAX][SIM_NODES_MAX];      /* next number at a node, of each caller */
    struct remo_rpc_op nested[SIM_NODES_MAX][2 * ROUNDS]; /* calls of handlers */
    struct remo_rpc_deferred waiting[SIM_NODES_MAX][2 * ROUNDS];
    uint32_t nested_count[SIM_NODES_MAX];
    bool is_closing[SIM_NODES_MAX], is_closed[SIM_NODES_MAX];
    bool is_open;                               /* of the cases with a gate */
    uint32_t stage, forged_slot, forged_serial; /* of the case `forged` */
};

/* Calls that are cancelled: their slots are retired. */
#define CANCELLED REMO__RPC_RETIRED_MAX

/* A case of calls. The arguments are members of struct sim_case. */
#define RPC_CASE(...)                                                                   \
    {                                                                                   \
        .object = "rpc", .state_bytes = sizeof(struct rpc_state), .open = sim_rpc_open, \
        .close = sim_rpc_close, __VA_ARGS__                                             \
    }

/* ---- messages: a number, and words that are computed from it ---- */

/* Fill a message. Returns its bytes. */
size_t sim_rpc_make(uint64_t *message, uint64_t number);
/* Return the number of a request, which must not be damaged. */
uint64_t sim_rpc_number(const struct remo_rpc_request *request);
/* Return the number of a call, which no other call of the bodies has. */
uint64_t sim_rpc_number_at(uint32_t rank, uint32_t thread, uint32_t round);

/* ---- services ---- */

/* Open and close the service of a node, with the handlers before HANDLERS. */
void sim_rpc_open(void *state, struct remo_node *node, uint32_t rank);
void sim_rpc_close(void *state, uint32_t rank);
/* The same with the handlers GATE, which is LONG and waits, and OPEN, which ends this wait. */
void sim_rpc_open_gate(void *state, struct remo_node *node, uint32_t rank);
/* In a handler: check that the caller is not cut off, and that no handler has run for the number. */
void sim_rpc_count_run(const struct rpc_agent *agent, const struct remo_rpc_request *request,
                       uint64_t number);
/* Return a word of the region of node `rank`: that of node `of`, or SIM_NODES_MAX + the number of a call. */
uint64_t sim_rpc_word(const struct rpc_state *s, uint32_t rank, uint32_t of);

/* ---- calls ---- */

/* Call, and check that the outcome agrees with what the handler has done. */
void sim_rpc_call(struct rpc_state *s, uint32_t rank, uint32_t to, enum rpc_handler handler,
                  uint32_t depends_on, uint64_t number);
/* Call each node in turn. */
void sim_rpc_calls_body(void *state, uint32_t rank, uint32_t thread);
/* Call each node that is not out. */
void sim_rpc_calls_after(void *state, uint32_t rank);
