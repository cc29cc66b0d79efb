/* execute.c - the owner's side of a transaction whose keys have one owner: it checks the conditions and
 * applies the changes in one call. */
#include "systems/tx/steps.h"

static enum remo__tx_answer execute(struct remo__tx_steps *steps, void *ctx) {
    enum remo__tx_answer answer = remo__tx_steps_check(steps, ctx);
    if (answer == REMO__TX_ANSWER_DONE) /* one change alone needs no lock */
        answer = remo__tx_steps_hold(steps, steps->changes > 1);
    if (answer != REMO__TX_ANSWER_DONE)
        return answer;
    remo__tx_steps_apply(steps);
    remo__mapped_fence(); /* place the changes before this thread, or a caller, reads what others change */
    return REMO__TX_ANSWER_DONE;
}

enum remo__tx_answer remo__tx_execute(struct remo_tx_space *space, const void *request, size_t bytes,
                                      struct remo__tx_conflict *ret_conflict) {
    struct remo__tx_steps steps;
    enum remo__tx_answer answer = remo__tx_steps_run(space, request, bytes, execute, ret_conflict, &steps);
    if (answer == REMO__TX_ANSWER_DONE) {
        remo__tx_steps_report(&steps);
        remo__tx_steps_grow(&steps);
    }
    return answer;
}

int remo__tx_handle_execute(void *ctx, const struct remo_rpc_request *request) {
    char copy[REMO_RPC_BYTES_MAX]; /* the caller could change the request in its ring */
    struct remo__tx_conflict conflict = {0};
    if (request->bytes > sizeof copy)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(copy, request->data, request->bytes);
    enum remo__tx_answer answer = remo__tx_execute(ctx, copy, request->bytes, &conflict);
    if (answer != REMO__TX_ANSWER_CONFLICT)
        return answer;
    return remo_rpc_reply(request, answer, &conflict, sizeof conflict);
}
