/* finish.c - the end of a commit with several owners, at the coordinator (finish.h), which sends the outcome
 * to the participants, and asks all nodes whether they have lost the participants that it has lost.
 * Invariant: if the coordinator loses a participant before the transaction is applied, no participant applies
 * it until all nodes that are connected to the coordinator have confirmed the loss, unless the decider has
 * applied it. */
#include "systems/tx/finish.h"

#define PAUSE_NS REMO__NS_PER_MS /* before a question is repeated */

void remo__tx_drop(struct remo__tx_commit *commit) {
    if (atomic_fetch_sub(&commit->unfinished, 1) == 1)
        atomic_store(&commit->phase, REMO__TX_FREE);
}

struct remo__tx_participant *remo__tx_add_participant(struct remo__tx_commit *commit, uint32_t node) {
    struct remo__tx_participant *participant = &commit->participants[commit->count++];
    participant->node = node;
    participant->needs_finish = participant->is_informed = false;
    participant->commit = commit;
    memset(participant->items, 0, sizeof participant->items);
    atomic_store(&participant->delivery, REMO__TX_NOTHING_DUE);
    return participant;
}

void remo__tx_set_outcome_call(struct remo__tx_participant *participant, bool commits) {
    struct remo__tx_commit *commit = participant->commit;
    bool has_changes = commits && commit->is_early; /* PREPARE had them otherwise */
    participant->finish = (struct remo__tx_finish){.id = commit->id, .commits = commits};
    participant->call = (struct remo_rpc_op){
        .node = participant->node,
        .number = has_changes ? REMO__TX_COMMIT : REMO__TX_FINISH,
        .request =
            has_changes ? (const void *)(commit->requests + participant->request_at) : &participant->finish,
        .request_bytes = has_changes ? participant->request_bytes : sizeof participant->finish};
}

/* Return whether this thread is to make the call. */
static bool begin_delivery(_Atomic uint32_t *delivery) {
    uint32_t expected = REMO__TX_DUE;
    return atomic_load(delivery) == REMO__TX_DUE
           && atomic_compare_exchange_strong(delivery, &expected, REMO__TX_IN_FLIGHT);
}

/* If the call cannot start now, `done` makes a sweep try again. */
static void start_call(struct remo__tx_commit *commit, struct remo_rpc_op *call) {
    call->timeout_ns = REMO_FOREVER;
    int rc = remo_rpc_start(commit->space->rpc, call);
    if (rc == 0)
        return;
    call->status = rc;
    call->done(call);
}

/* ---- losses; the mutex is held ---- */

static bool is_loss(const struct remo__tx_commit *commit, uint32_t node) {
    for (uint32_t i = 0; i < commit->losses_count; i++)
        if (commit->losses[i] == node)
            return true;
    return false;
}

/* Add a participant to the losses, and let all nodes confirm its loss. */
static void add_loss(struct remo__tx_commit *commit, struct remo__tx_participant *lost) {
    struct remo__tx_confirmation *confirmation = &commit->confirmation;
    lost->is_informed = true;
    if (!commit->commits)
        return;
    commit->losses[commit->losses_count++] = lost->node;
    if (atomic_load(&confirmation->delivery) != REMO__TX_NOTHING_DUE)
        return;
    confirmation->loss = commit->losses_count - 1;
    confirmation->node = 0;
    confirmation->asks_at_ns = 0;
    atomic_fetch_add(&commit->unfinished, 1);
    atomic_store(&confirmation->delivery, REMO__TX_DUE);
}

/* A node that has not opened the space, or has closed it, has no part in its transactions. */
static bool must_confirm(const struct remo__tx_commit *commit, uint32_t node) {
    return node != commit->id.coordinator && !is_loss(commit, node)
           && remo_channel_peer(commit->space->channel, node) == REMO_CHANNEL_CONNECTED;
}

/* Before the transaction is applied: add participants that were lost meanwhile. They get no questions, so
 * they may abort. */
static void add_losses(struct remo__tx_commit *commit) {
    for (uint32_t i = commit->is_own; i < commit->count; i++) {
        struct remo__tx_participant *participant = &commit->participants[i];
        if (participant->needs_finish && !participant->is_informed
            && remo_channel_peer(commit->space->channel, participant->node) != REMO_CHANNEL_CONNECTED)
            add_loss(commit, participant);
    }
}

/* Find the next question. Returns false if all losses are confirmed. */
static bool find_question(struct remo__tx_commit *commit) {
    struct remo__tx_confirmation *at = &commit->confirmation;
    if (atomic_load(&commit->phase) == REMO__TX_CONFIRMING)
        add_losses(commit);
    for (; at->loss < commit->losses_count; at->loss++, at->node = 0)
        for (; at->node < commit->space->node->size; at->node++)
            if (must_confirm(commit, at->node))
                return true;
    return false;
}

/* The asked node has been lost too. */
static void lose_asked(struct remo__tx_commit *commit) {
    for (uint32_t i = commit->is_own; i < commit->count; i++) {
        struct remo__tx_participant *participant = &commit->participants[i];
        if (participant->node == commit->confirmation.node && participant->needs_finish
            && !participant->is_informed && atomic_load(&participant->delivery) == REMO__TX_NOTHING_DUE)
            add_loss(commit, participant);
    }
}

/* ---- FINISH ---- */

/* Take the status of a FINISH. Returns whether the participant has finished. The mutex is held. */
static bool take_status(struct remo__tx_commit *commit, struct remo__tx_participant *participant,
                        int status) {
    if (remo__is_departure(status)) {
        add_loss(commit, participant);
        return true;
    }
    if (status < 0)
        return false;
    if (status != REMO__TX_ANSWER_DONE)
        remo__log(&commit->space->node->log, REMO_LOG_WARNING,
                  "node %u has lost a transaction of %s: its memory is damaged", participant->node,
                  remo_channel_name(commit->space->channel));
    participant->is_informed = true;
    return true;
}

/* The call has ended. If a participant that is up has not answered, a sweep repeats the call. */
static void on_finished(struct remo_rpc_op *call) {
    struct remo__tx_participant *participant = call->ctx;
    struct remo__tx_commit *commit = participant->commit;
    struct remo_node *node = commit->space->node;
    int status = call->status;
    pthread_mutex_lock(&commit->mutex);
    bool is_late = atomic_load(&commit->phase) == REMO__TX_DECIDING
                   && (status >= 0 || remo__is_departure(status)); /* the call to the decider */
    bool has_finished = !is_late && take_status(commit, participant, status);
    atomic_store(&participant->delivery, has_finished || is_late ? REMO__TX_NOTHING_DUE : REMO__TX_DUE);
    if (is_late && status >= 0)
        participant->is_informed = status == REMO__TX_ANSWER_DONE;
    pthread_mutex_unlock(&commit->mutex);
    if (is_late)
        remo__tx_finish_all(commit, status <= REMO__TX_ANSWER_DONE, status < 0 ? participant : NULL);
    if (has_finished || is_late)
        remo__tx_drop(commit);
    remo__request_sweeps(node); /* for the calls that are due */
}

static void send_finish(struct remo__tx_participant *participant) {
    if (!begin_delivery(&participant->delivery)) /* a thread may use the entry for the next commit */
        return;
    struct remo__tx_commit *commit = participant->commit;
    remo__tx_set_outcome_call(participant, commit->commits);
    participant->call.done = on_finished;
    participant->call.ctx = participant;
    start_call(commit, &participant->call);
}

/* The mutex is held. */
static void begin_finish(struct remo__tx_commit *commit) {
    atomic_store(&commit->phase, REMO__TX_FINISHING);
    for (uint32_t i = commit->is_own; i < commit->count; i++) {
        struct remo__tx_participant *participant = &commit->participants[i];
        if (!participant->needs_finish || participant->is_informed)
            continue;
        atomic_fetch_add(&commit->unfinished, 1);
        atomic_store(&participant->delivery, REMO__TX_DUE);
    }
}

/* Apply the outcome to this node's part. */
static void finish_here(struct remo__tx_commit *commit) {
    const struct remo__tx_participant *own = &commit->participants[0];
    const struct remo__tx_finish finish = {.id = commit->id, .commits = commit->commits};
    if (commit->is_early && commit->commits)
        (void)remo__tx_execute_commit(commit->space, own->node, commit->requests + own->request_at,
                                      own->request_bytes);
    else
        (void)remo__tx_finish(commit->space, own->node, &finish);
}

/* The caller is counted in `unfinished`. */
static void send_all(struct remo__tx_commit *commit) {
    for (uint32_t i = commit->is_own; i < commit->count; i++)
        send_finish(&commit->participants[i]);
    if (commit->is_own && commit->participants[0].needs_finish)
        finish_here(commit);
}

/* ---- CONFIRM ---- */

/* The call has ended: continue with the next node, or repeat the question after a pause. */
static void on_confirmed(struct remo_rpc_op *call) {
    struct remo__tx_commit *commit = call->ctx;
    struct remo__tx_confirmation *confirmation = &commit->confirmation;
    struct remo_node *node = commit->space->node;
    pthread_mutex_lock(&commit->mutex);
    if (remo__is_departure(call->status))
        lose_asked(commit);
    if (call->status == REMO__TX_ANSWER_DONE || remo__is_departure(call->status))
        confirmation->node++;
    else
        confirmation->asks_at_ns = remo__now_ns() + PAUSE_NS;
    atomic_store(&confirmation->delivery, REMO__TX_DUE);
    pthread_mutex_unlock(&commit->mutex);
    remo__request_sweeps(node);
}

/* All nodes have confirmed all losses. */
static void end_confirmation(struct remo__tx_commit *commit, bool was_confirming) {
    if (was_confirming)
        send_all(commit);
    remo__tx_drop(commit);
}

static void send_confirm(struct remo__tx_commit *commit) {
    struct remo__tx_confirmation *confirmation = &commit->confirmation;
    if (!begin_delivery(&confirmation->delivery))
        return;
    pthread_mutex_lock(&commit->mutex);
    if (remo__now_ns() < confirmation->asks_at_ns) {
        atomic_store(&confirmation->delivery, REMO__TX_DUE);
        pthread_mutex_unlock(&commit->mutex);
        return;
    }
    bool is_question = find_question(commit);
    bool was_confirming = !is_question && atomic_load(&commit->phase) == REMO__TX_CONFIRMING;
    if (was_confirming)
        begin_finish(commit);
    if (is_question)
        confirmation->message = (struct remo__tx_loss){.node = commit->losses[confirmation->loss]};
    else
        atomic_store(&confirmation->delivery, REMO__TX_NOTHING_DUE);
    pthread_mutex_unlock(&commit->mutex);
    if (!is_question) {
        end_confirmation(commit, was_confirming);
        return;
    }
    confirmation->call = (struct remo_rpc_op){.node = confirmation->node,
                                              .number = REMO__TX_CONFIRM,
                                              .request = &confirmation->message,
                                              .request_bytes = sizeof confirmation->message,
                                              .done = on_confirmed,
                                              .ctx = commit};
    start_call(commit, &confirmation->call);
}

/* ---- the outcome ---- */

void remo__tx_finish_all(struct remo__tx_commit *commit, bool commits, struct remo__tx_participant *lost) {
    pthread_mutex_lock(&commit->mutex);
    commit->commits = commits;
    if (lost) {
        add_loss(commit, lost);
        atomic_store(&commit->phase, REMO__TX_CONFIRMING);
    } else {
        begin_finish(commit);
    }
    pthread_mutex_unlock(&commit->mutex);
    if (lost)
        send_confirm(commit);
    else
        send_all(commit);
}

void remo__tx_decide_later(struct remo__tx_commit *commit) {
    struct remo__tx_participant *decider = &commit->participants[commit->is_own];
    pthread_mutex_lock(&commit->mutex);
    commit->commits = true;
    atomic_fetch_add(&commit->unfinished, 1);
    atomic_store(&commit->phase, REMO__TX_DECIDING);
    atomic_store(&decider->delivery, REMO__TX_DUE);
    pthread_mutex_unlock(&commit->mutex);
    send_finish(decider);
}

bool remo__tx_continue_all(struct remo_tx_space *space) {
    bool is_left = false;
    for (uint32_t number = 0; number < REMO__TX_COMMITS_MAX; number++) {
        struct remo__tx_commit *commit = &space->commits[number];
        if (atomic_load(&commit->phase) < REMO__TX_DECIDING)
            continue;
        is_left = true;
        for (uint32_t i = 0; i < REMO__TX_PARTICIPANTS_MAX; i++)
            send_finish(&commit->participants[i]);
        send_confirm(commit);
    }
    return is_left;
}
