/* coordinate.c - commit of a transaction that uses items of several owners, and changes some, at the node
 * that runs it: the coordinator (docs/internals/tx.md). It lets the participants prepare, validates, and
 * decides; finish.c applies the outcome. */
#include <errno.h>
#include <stdlib.h>

#include "systems/tx/finish.h"

/* ---- entries ---- */

static struct remo__tx_commit *find_free(struct remo_tx_space *space) {
    for (uint32_t number = 0; number < REMO__TX_COMMITS_MAX; number++) {
        uint32_t expected = REMO__TX_FREE;
        if (atomic_load(&space->commits[number].phase) == REMO__TX_FREE
            && atomic_compare_exchange_strong(&space->commits[number].phase, &expected, REMO__TX_PREPARING))
            return &space->commits[number];
    }
    return NULL;
}

struct remo__tx_commit *remo__tx_try_take_entry(struct remo_tx_space *space) {
    struct remo__tx_commit *commit = find_free(space);
    if (!commit)
        return NULL;
    commit->id.sequence++;
    commit->count = 0;
    commit->is_own = false;
    commit->is_early = false;
    commit->requests_bytes = 0;
    commit->losses_count = 0;
    atomic_store(&commit->unfinished, 1);
    return commit;
}

int remo__tx_take_entry(struct remo_tx_space *space, struct remo__tx_commit **ret_commit) {
    uint64_t deadline_ns = 0;
    while (!(*ret_commit = remo__tx_try_take_entry(space))) {
        deadline_ns = deadline_ns ? deadline_ns : remo__deadline(space->node->op_timeout_ns);
        if (remo__remaining_ns(deadline_ns) == 0)
            return remo__fail(-ETIMEDOUT,
                              "%u commits of this node at several owners have not ended: an owner is slow "
                              "or paused; nothing has changed",
                              REMO__TX_COMMITS_MAX);
        int rc = remo__tx_serve(space);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- participants ---- */

static bool has_participant(const struct remo__tx_commit *commit, uint32_t node) {
    for (uint32_t i = 0; i < commit->count; i++)
        if (commit->participants[i].node == node)
            return true;
    return false;
}

static void add_owners(struct remo__tx_commit *commit, const struct remo_tx *tx, enum remo__tx_owners which,
                       bool is_own) {
    for (uint32_t i = 0; i < tx->items_count; i++) {
        uint32_t owner = tx->items[i].owner;
        bool is_needed = which == REMO__TX_OWNERS_OF_ALL || remo__tx_op_of(&tx->items[i]) != REMO__TX_CHECK;
        if (is_needed && (owner == commit->id.coordinator) == is_own && !has_participant(commit, owner))
            (void)remo__tx_add_participant(commit, owner);
    }
}

/* The decider is not this node: an outcome that only this node has would be lost with it. */
void remo__tx_find_participants(struct remo__tx_commit *commit, const struct remo_tx *tx,
                                enum remo__tx_owners which) {
    add_owners(commit, tx, which, true);
    commit->is_own = commit->count > 0;
    add_owners(commit, tx, which, false);
}

/* Append the header of a PREPARE, and the ranks of all participants but this node. */
static void append_header(struct remo__tx_commit *commit) {
    struct remo__tx_prepare header = {.id = commit->id, .owners = commit->count - commit->is_own};
    uint16_t ranks[REMO__TX_ITEMS_MAX + 4] = {0};
    for (uint32_t i = 0; i < header.owners; i++)
        ranks[i] = (uint16_t)commit->participants[commit->is_own + i].node;
    size_t ranks_bytes = remo__align_up(header.owners * sizeof ranks[0], 8);
    memcpy(commit->requests + commit->requests_bytes, &header, sizeof header);
    memcpy(commit->requests + commit->requests_bytes + sizeof header, ranks, ranks_bytes);
    commit->requests_bytes += sizeof header + ranks_bytes;
}

static int make_request(struct remo__tx_commit *commit, const struct remo_tx *tx,
                        struct remo__tx_participant *participant) {
    size_t at = commit->requests_bytes;
    append_header(commit);
    int rc = remo__tx_request(tx, participant->node, false, commit->requests,
                              remo__min(at + REMO_RPC_BYTES_MAX, sizeof commit->requests),
                              &commit->requests_bytes, participant->items);
    participant->request_at = at;
    participant->request_bytes = commit->requests_bytes - at;
    commit->requests_bytes = remo__align_up(commit->requests_bytes, 8);
    return rc;
}

static int make_requests(struct remo__tx_commit *commit, const struct remo_tx *tx) {
    int rc = 0;
    remo__tx_find_participants(commit, tx, REMO__TX_OWNERS_OF_CHANGES);
    for (uint32_t i = 0; i < commit->count && rc == 0; i++)
        rc = make_request(commit, tx, &commit->participants[i]);
    return rc;
}

/* ---- calls that start together ---- */

void remo__tx_start_calls(struct remo__tx_commit *commit, enum remo__tx_handler number, uint64_t timeout_ns) {
    for (uint32_t i = commit->is_own; i < commit->count; i++) {
        struct remo__tx_participant *participant = &commit->participants[i];
        participant->call = (struct remo_rpc_op){.node = participant->node,
                                                 .number = number,
                                                 .request = commit->requests + participant->request_at,
                                                 .request_bytes = participant->request_bytes,
                                                 .reply = participant->reply,
                                                 .reply_cap = sizeof participant->reply,
                                                 .timeout_ns = timeout_ns,
                                                 .waits = !commit->is_own}; /* this node works meanwhile */
        int rc = remo_rpc_start(commit->space->rpc, &participant->call);
        if (rc != 0) /* -EAGAIN, which would mean a conflict: the node has not opened the space */
            participant->call.status = rc == -EAGAIN ? -ETIMEDOUT : rc;
    }
}

void remo__tx_await_calls(struct remo__tx_commit *commit) {
    struct remo_rpc_op *calls[REMO__TX_ITEMS_MAX] = {NULL};
    uint32_t count = 0;
    for (uint32_t i = commit->is_own; i < commit->count; i++)
        if (commit->participants[i].call.fate != REMO_RPC_NOT_SENT)
            calls[count++] = &commit->participants[i].call;
    (void)remo_rpc_wait_all(calls, count); /* not refused: see remo__tx_check_waits */
}

/* ---- PREPARE ---- */

/* Return the status of a PREPARE that has ended. */
static int end_prepare(struct remo__tx_participant *participant) {
    struct remo_rpc_op *call = &participant->call;
    int status = call->status;
    /* even if the reply could not be sent, or is too long */
    bool is_unknown = status < 0 && call->fate != REMO_RPC_NOT_SENT && !remo__is_departure(status);
    participant->needs_finish = is_unknown || status == REMO__TX_ANSWER_DONE;
    participant->count = (uint32_t)(call->reply_bytes / sizeof participant->reply[0]);
    return status;
}

static int result_of(struct remo_tx *tx, const struct remo__tx_participant *participant, int status) {
    struct remo__tx_conflict found = {0};
    if (status < 0)
        return remo__fail(status, "node %u cannot prepare a transaction of %s", participant->node,
                          remo_channel_name(tx->space->channel));
    memcpy(&found, participant->reply, sizeof found);
    if (status == REMO__TX_ANSWER_CONFLICT && participant->call.reply_bytes != sizeof found)
        status = REMO__TX_ANSWER_MALFORMED;
    return remo__tx_result(tx, (enum remo__tx_answer)status, &found, participant->items);
}

static int prepare_here(struct remo_tx *tx, struct remo__tx_commit *commit,
                        struct remo__tx_participant *participant) {
    struct remo__tx_conflict found = {0};
    int rc = remo__tx_check_shares(tx);
    if (rc != 0)
        return rc;
    rc = remo__tx_prepare(commit->space, participant->node, commit->requests + participant->request_at,
                          participant->request_bytes, &found, participant->reply, &participant->count);
    participant->needs_finish = rc == REMO__TX_ANSWER_DONE;
    if (rc < 0)
        return remo__fail(rc, "cannot commit: %s is being closed", remo_channel_name(commit->space->channel));
    return remo__tx_result(tx, (enum remo__tx_answer)rc, &found, participant->items);
}

/* The participant has found these keys absent, after their lookups. */
static void take_evidence(struct remo_tx *tx, const struct remo__tx_participant *participant) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < tx->items_count; i++) {
        struct remo__tx_item *item = &tx->items[i];
        if (item->owner == participant->node && remo__tx_is_absence(item)
            && remo__tx_op_of(item) == REMO__TX_CHECK && next < participant->count)
            item->evidence =
                (struct remo__evidence){.proof = REMO__PROOF_DELETES, .word = participant->reply[next++]};
    }
}

/* Let all participants prepare at the same time. */
static int prepare(struct remo_tx *tx, struct remo__tx_commit *commit) {
    int rc = 0;
    remo__tx_start_calls(commit, REMO__TX_PREPARE, tx->space->node->op_timeout_ns);
    if (commit->is_own)
        rc = prepare_here(tx, commit, &commit->participants[0]);
    remo__tx_await_calls(commit);
    for (uint32_t i = commit->is_own; i < commit->count; i++) {
        int status = end_prepare(&commit->participants[i]);
        if (status != REMO__TX_ANSWER_DONE && (rc == 0 || rc == -EAGAIN))
            rc = result_of(tx, &commit->participants[i], status);
    }
    for (uint32_t i = 0; i < commit->count && rc == 0; i++)
        take_evidence(tx, &commit->participants[i]);
    return rc;
}

/* ---- the decision ---- */

/* Let the decider commit. Returns the status of the call. */
static int call_decider(struct remo__tx_commit *commit, struct remo__tx_participant *decider) {
    struct remo_tx_space *space = commit->space;
    remo__tx_set_outcome_call(decider, true);
    decider->call.timeout_ns = space->node->op_timeout_ns;
    decider->call.waits = true;
    int status = remo_rpc_start(space->rpc, &decider->call);
    if (status == 0)
        status = remo_rpc_wait(&decider->call);
    remo_rpc_cancel(&decider->call); /* no effect, unless the wait was refused */
    return status;
}

/* The decider does not answer: the commit returns, and the call continues. */
static int leave_undecided(struct remo__tx_commit *commit, const struct remo__tx_participant *decider) {
    remo__tx_decide_later(commit);
    return remo__fail(-ETIMEDOUT,
                      "node %u does not answer: the transaction will be committed when it does, or fails; "
                      "remo_tx_settle waits for that",
                      decider->node);
}

/* Return whether this node has no peer in the space any more. Perhaps it is this node that was cut off. */
static bool is_alone(const struct remo_tx_space *space) {
    for (uint32_t node = 0; node < space->node->size; node++)
        if (node != space->node->rank && remo_channel_peer(space->channel, node) == REMO_CHANNEL_CONNECTED)
            return false;
    return true;
}

/* The decider was lost: wait until all nodes have confirmed the loss. */
static int commit_without(struct remo__tx_commit *commit, struct remo__tx_participant *decider, int status) {
    uint64_t deadline_ns = remo__deadline(commit->space->node->op_timeout_ns);
    remo__tx_finish_all(commit, true, decider);
    while (atomic_load(&commit->phase) == REMO__TX_CONFIRMING && remo__remaining_ns(deadline_ns) > 0)
        if (remo__tx_serve(commit->space) != 0)
            break;
    if (atomic_load(&commit->phase) == REMO__TX_CONFIRMING)
        return remo__fail(-ETIMEDOUT,
                          "node %u has failed or closed %s: the transaction will be committed when all nodes "
                          "have detected this; remo_tx_settle waits for that",
                          decider->node, remo_channel_name(commit->space->channel));
    if (is_alone(commit->space))
        return remo__fail(status,
                          "all other nodes have failed or closed %s: the transaction is committed at this "
                          "node; if this node counts as failed for the others, then nowhere else",
                          remo_channel_name(commit->space->channel));
    return remo__fail(
        status,
        "the transaction is committed, but node %u has failed or closed %s: the keys that it owned are lost",
        decider->node, remo_channel_name(commit->space->channel));
}

/* Only this node, while it is up, or the decider can decide. So once the decider was asked, the transaction
 * is committed even if it has failed. */
int remo__tx_decide(struct remo__tx_commit *commit) {
    struct remo__tx_participant *decider = &commit->participants[commit->is_own];
    const char *name = remo_channel_name(commit->space->channel);
    if (commit->count == commit->is_own) {
        remo__tx_finish_all(commit, true, NULL);
        return 0;
    }
    int status = call_decider(commit, decider);
    if (status == REMO__TX_ANSWER_DONE) {
        decider->is_informed = true;
        remo__tx_finish_all(commit, true, NULL);
        return 0;
    }
    if (status < 0 && decider->call.fate != REMO_RPC_NOT_SENT)
        return remo__is_departure(status) ? commit_without(commit, decider, status)
                                          : leave_undecided(commit, decider);
    remo__tx_finish_all(commit, false, NULL);
    return status < 0 ? remo__fail(status, "node %u cannot commit a transaction of %s", decider->node, name)
                      : remo__fail(-EPROTO, "node %u has lost a transaction of %s: its memory is damaged",
                                   decider->node, name);
}

static int run(struct remo_tx *tx, struct remo__tx_commit *commit) {
    int rc = make_requests(commit, tx);
    if (rc == 0 && commit->count > commit->is_own)
        rc = remo__tx_check_waits(tx->space);
    if (rc == 0)
        rc = prepare(tx, commit);
    if (rc == 0)
        rc = remo__tx_validate(tx, REMO__TX_READ_ONLY);
    if (rc == 0)
        return remo__tx_decide(commit);
    remo__tx_finish_all(commit, false, NULL);
    return rc;
}

/* The transaction object counts in `unfinished`. */
static enum remo_tx_fate find_fate(struct remo__tx_commit *commit) {
    pthread_mutex_lock(&commit->mutex);
    bool is_pending = atomic_load(&commit->phase) != REMO__TX_FINISHING, commits = commit->commits,
         has_lost = commit->losses_count > 0;
    pthread_mutex_unlock(&commit->mutex);
    if (is_pending)
        return REMO_TX_PENDING;
    if (!commits)
        return REMO_TX_NOT_COMMITTED;
    return has_lost && is_alone(commit->space) ? REMO_TX_UNKNOWN : REMO_TX_COMMITTED;
}

static void release(struct remo_tx *tx) {
    remo__tx_drop(tx->pending);
    tx->pending = NULL;
}

int remo__tx_await_outcome(struct remo_tx *tx, uint64_t deadline_ns) {
    while ((tx->fate = find_fate(tx->pending)) == REMO_TX_PENDING) {
        if (remo__remaining_ns(deadline_ns) == 0)
            return remo__fail(-ETIMEDOUT,
                              "the outcome is not known: an owner, or a node that must detect the "
                              "failure of one, does not answer");
        int rc = remo__tx_serve(tx->space);
        if (rc != 0)
            return rc;
    }
    release(tx);
    return 0;
}

int remo__tx_coordinate(struct remo_tx *tx) {
    struct remo__tx_commit *commit = NULL;
    int rc = remo__tx_take_entry(tx->space, &commit);
    return rc != 0 ? rc : remo__tx_end_commit(tx, commit, run(tx, commit));
}

int remo__tx_end_commit(struct remo_tx *tx, struct remo__tx_commit *commit, int rc) {
    tx->fate = find_fate(commit);
    tx->pending = commit;
    if (tx->fate != REMO_TX_PENDING)
        release(tx);
    if (rc != -EAGAIN)
        tx->conflict_item = REMO__TX_NONE; /* after a conflict at one owner, another one may have failed */
    return rc;
}

/* ---- open and close ---- */

int remo__tx_serve(struct remo_tx_space *space) {
    (void)remo__tx_continue_all(space);
    return remo_rpc_serve(space->rpc, REMO__NS_PER_MS);
}

int remo__tx_open_commits(struct remo_tx_space *space) {
    space->commits = calloc(REMO__TX_COMMITS_MAX, sizeof *space->commits);
    if (!space->commits)
        return remo__fail(-ENOMEM, "no memory for a transaction space");
    for (uint32_t number = 0; number < REMO__TX_COMMITS_MAX; number++) {
        space->commits[number].space = space;
        pthread_mutex_init(&space->commits[number].mutex, NULL);
        space->commits[number].id = (struct remo__tx_id){
            .sequence = remo__now_ns(), .coordinator = space->node->rank, .number = number};
    }
    return 0;
}

static bool are_ended(const struct remo_tx_space *space) {
    for (uint32_t number = 0; number < REMO__TX_COMMITS_MAX; number++)
        if (atomic_load(&space->commits[number].phase) != REMO__TX_FREE)
            return false;
    return true;
}

void remo__tx_await_commits(struct remo_tx_space *space) {
    while (space->rpc && !are_ended(space))
        (void)remo__tx_serve(space);
}

void remo__tx_free_commits(struct remo_tx_space *space) {
    for (uint32_t number = 0; space->commits && number < REMO__TX_COMMITS_MAX; number++)
        pthread_mutex_destroy(&space->commits[number].mutex);
    free(space->commits);
}
