/* rpc_large_blocks.c - the blocks of large calls: a block is used again only after no node uses it any
 * more; free blocks of other sizes give back their bytes. Also: reads of requests that fail. */
#include "sim/cases/rpc_large.h"

#include "sim/scheduler.h"

#define UNREAD_MAX 8u /* posts that fail: more than the attempts of a read */

/* ---- all blocks are in use ---- */

/* Two calls take all blocks. When they have ended, a call takes a block of another size. */
static void large_full_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct large_call calls[3] = {0};
    int rc = 0;
    (void)thread;
    static_assert(16 * WORDS_MAX > REMO__RPC_BLOCKS_BYTES_MAX / 4, "a block takes half of the limit");
    for (uint32_t i = 0; i < 3 && rank == 0 && rc == 0; i++) {
        sim_large_prepare(&calls[i], 1, ANSWER, i == 0 ? 1 : 3 + i);
        rc = remo_rpc_start(s->services[0], &calls[i].op);
        sim_require(rc == (i < 2 ? 0 : -ENOBUFS) || (rc < 0 && sim_excused(0, 1, rc)),
                    "start of call %u: %d (%s)", i, rc, remo_last_error());
    }
    if (rc == -ENOBUFS && sim_large_judge(s, &calls[0], 0, calls[0].reply, remo_rpc_wait(&calls[0].op))
        && sim_large_judge(s, &calls[1], 0, calls[1].reply, remo_rpc_wait(&calls[1].op)))
        sim_large_call(s, 0, 1, ANSWER, 3);
    for (uint32_t i = 0; i < 2; i++)
        remo_rpc_cancel(&calls[i].op);
}

const struct sim_case sim_case_rpc_large_full =
    LARGE_CASE(.name = "large_full", .about = "the blocks of large calls reach their limit", .nodes = 2,
               .open = sim_large_open, .body = large_full_body);

/* Two calls that have taken all blocks are cancelled. After their late replies another call takes one. */
static void large_late_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct large_call calls[2] = {0};
    int rc = 0;
    (void)thread;
    for (uint32_t i = 0; i < 2 && rank == 0 && rc == 0; i++) {
        sim_large_prepare(&calls[i], 1, ANSWER, 1 + 3 * i);
        rc = remo_rpc_start(s->services[0], &calls[i].op);
    }
    for (uint32_t i = 0; i < 2; i++)
        remo_rpc_cancel(&calls[i].op);
    for (uint32_t i = 0; i < 2 && rank == 0 && rc == 0; i++)
        rc = remo_rpc_settle(&calls[i].op, FOREVER);
    sim_require(rc == 0 || sim_excused(0, 1, rc), "start or settle: %d (%s)", rc, remo_last_error());
    if (rank == 0 && rc == 0)
        sim_large_call(s, 0, 1, ANSWER, 5);
}

const struct sim_case sim_case_rpc_large_late =
    LARGE_CASE(.name = "large_late", .about = "late replies free the blocks of cancelled calls", .nodes = 2,
               .open = sim_large_open, .body = large_late_body);

/* ---- requests ---- */

/* Two large requests, whose replies are discarded. Each has its block until its reply has arrived. */
static void large_requests_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct large_call calls[2] = {0};
    int rc = 0;
    (void)thread;
    for (uint32_t i = 0; i < 2 && rank == 0 && rc == 0; i++) {
        sim_large_prepare(&calls[i], 1, ANSWER, 1 + 4 * i);
        calls[i].op.reply = NULL;
        calls[i].op.reply_cap = 0;
        rc = remo_rpc_start(s->services[0], &calls[i].op);
    }
    for (uint32_t i = 0; i < 2 && rank == 0 && rc == 0; i++) {
        rc = remo_rpc_wait(&calls[i].op);
        rc = rc == 5 ? 0 : rc;
    }
    for (uint32_t i = 0; i < 2; i++)
        remo_rpc_cancel(&calls[i].op);
    bool is_hurt = rc < 0 && sim_any_hurt() && !sim_hurt(rank);
    sim_require(rc == 0 || is_hurt || (rc < 0 && sim_excused(0, 1, rc)), "call: %d (%s)", rc,
                remo_last_error());
}

const struct sim_case sim_case_rpc_large_requests =
    LARGE_CASE(.name = "large_requests", .about = "two large requests, with short replies or none",
               .nodes = 2, .open = sim_large_open, .body = large_requests_body);

/* Reads of a request fail while posts of the server fail. Then no handler gets the request. */
static void large_unread_body(void *state, uint32_t rank, uint32_t thread) {
    struct large_state *s = state;
    struct large_call call;
    (void)thread;
    if (rank != 0)
        return;
    sim_large_call(s, 0, 1, ANSWER, 5); /* another request is in the memory of the server */
    sim_large_prepare(&call, 1, ANSWER, 1);
    sim_fail_next(SIM_FAIL_POST, 1, 0, 1 + sim_choose(UNREAD_MAX));
    int rc = remo_rpc_start(s->services[0], &call.op);
    rc = rc == 0 ? remo_rpc_wait(&call.op) : rc;
    sim_fail_next(SIM_FAIL_POST, 1, 0, 0);
    sim_require(rc == 5 || call.op.fate == REMO_RPC_NOT_SENT, "call: %d (%s)", rc, remo_last_error());
    if (rc == 5)
        (void)sim_large_judge(s, &call, 0, call.reply, rc);
    else
        sim_require(s->runs[1] == 0, "a handler has run, without its request");
}

const struct sim_case sim_case_rpc_large_unread =
    LARGE_CASE(.name = "large_unread", .about = "reads of a large request fail", .nodes = 2,
               .open = sim_large_open, .body = large_unread_body, .needs_flight = true,
               .has_own_fault = true);
