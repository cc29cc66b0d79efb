/* rpc_large.h - shared declarations of the cases of large calls.
 *
 *   rpc_large.c         calls, also after the caller has stopped waiting; places of the program; faulty nodes
 *   rpc_large_blocks.c  the blocks of the caller's memory; reads that fail */
#pragma once

#include <errno.h>
#include <remo/region.h>
#include <remo/rpc.h>
#include <string.h>

#include "objects/rpc/rpc.h"
#include "sim/case.h"

#define FOREVER REMO_FOREVER
#define NUMBERS 64u
#define ROUNDS 3u
#define WORDS_MAX 80u /* of a large message: two pieces of a network that copies */
#define LARGE_WORDS 76u
#define SHORT_WORDS 3u
#define GUARD UINT64_C(0x5a5a5a5a5a5a5a5a)
#define SERVE_NS 5000u
#define FORGED 63u

enum large_handler { ANSWER, PASS_ON, KEEP, STOP, HANDLERS, TRY = HANDLERS };

struct large_state {
    struct remo_rpc *services[SIM_NODES_MAX];
    struct remo_region *regions[SIM_NODES_MAX];
    struct large_agent {
        struct large_state *state;
        uint32_t rank;
        struct remo_rpc_deferred kept;
        uint64_t kept_number;
        bool has_kept;
    } agents[SIM_NODES_MAX];
    uint32_t nodes;
    uint32_t runs[NUMBERS]; /* of the handler of each call */
    bool has_ended;
};

/* A call, and its buffers. */
struct large_call {
    struct remo_rpc_op op;
    uint64_t number;
    uint64_t request[WORDS_MAX], reply[WORDS_MAX];
};

/* ---- services ---- */

void sim_large_open(void *state, struct remo_node *node, uint32_t rank);
void sim_large_close(void *state, uint32_t rank);

/* ---- calls ---- */

/* Return the words of the reply to a call. */
uint32_t sim_large_reply_words(uint64_t number);
/* Fill a call with this number: the remainder by 4 determines the sizes. */
void sim_large_prepare(struct large_call *call, uint32_t to, enum large_handler handler, uint64_t number);
/* Judge a call that has ended with `rc`. Returns whether it has its reply. */
bool sim_large_judge(const struct large_state *s, const struct large_call *call, uint32_t rank,
                     const void *reply, int rc);
void sim_large_call(struct large_state *s, uint32_t rank, uint32_t to, enum large_handler handler,
                    uint64_t number);

#define LARGE_CASE(...)                                                                                     \
    {                                                                                                       \
        .object = "rpc", .state_bytes = sizeof(struct large_state), .threads = 1, .close = sim_large_close, \
        __VA_ARGS__                                                                                         \
    }
