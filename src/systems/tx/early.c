/* early.c - early locks, at the node that runs the transaction: LOCK at the owner of an item before the
 * commit, and the commit, which needs no PREPARE (docs/internals/tx.md, Early locks).
 * Invariant: the participants of the entry are all owners that may have locked an item for the transaction,
 * in the order of their first LOCK. */
#include <errno.h>

#include "systems/tx/finish.h"

/* ---- participants ---- */

static int take_entry(struct remo_tx *tx) {
    if (tx->held)
        return 0;
    int rc = remo__tx_take_entry(tx->space, &tx->held);
    if (rc != 0)
        return rc;
    tx->held->is_early = tx->held->is_own = true;
    (void)remo__tx_add_participant(tx->held, tx->space->node->rank);
    return 0;
}

static struct remo__tx_participant *participant_of(struct remo__tx_commit *commit, uint32_t node) {
    for (uint32_t i = 0; i < commit->count; i++)
        if (commit->participants[i].node == node)
            return &commit->participants[i];
    struct remo__tx_participant *participant = remo__tx_add_participant(commit, node);
    participant->losses = atomic_load(&commit->space->peers[node].losses);
    return participant;
}

/* Append the header of a message, and the ranks of the first `owners` participants but this node. */
static void append_header(const struct remo__tx_commit *commit, uint32_t owners, uint32_t parts,
                          char *message, size_t *bytes) {
    struct remo__tx_prepare header = {.id = commit->id, .owners = owners, .parts = parts};
    uint16_t ranks[REMO__TX_ITEMS_MAX + 4] = {0};
    for (uint32_t i = 0; i < owners; i++)
        ranks[i] = (uint16_t)commit->participants[i + 1].node;
    size_t ranks_bytes = remo__align_up(owners * sizeof ranks[0], 8);
    memcpy(message + *bytes, &header, sizeof header);
    memcpy(message + *bytes + sizeof header, ranks, ranks_bytes);
    *bytes += sizeof header + ranks_bytes;
}

/* ---- LOCK ---- */

/* Return the bytes of the LOCKs of an owner, as one. */
static size_t locks_bytes(const struct remo_tx *tx, uint32_t owner) {
    size_t bytes = sizeof(struct remo__tx_prepare) + REMO__TX_ITEMS_MAX * sizeof(uint16_t)
                   + sizeof(struct remo__tx_request);
    for (uint32_t i = 0; i < tx->items_count; i++)
        if (tx->items[i].is_held && tx->items[i].owner == owner)
            bytes += sizeof(struct remo__tx_item_request) + tx->items[i].key.bytes;
    return bytes;
}

/* Make the LOCK of an item in tx->request. Its owner is the last of the ranks. */
static int make_lock(struct remo_tx *tx, const struct remo__tx_participant *owner,
                     const struct remo__tx_item *item, size_t *ret_bytes) {
    const struct remo__tx_request header = {.items = 1, .claimant = tx->claimant};
    uint32_t place = (uint32_t)(owner - tx->held->participants);
    size_t at = locks_bytes(tx, item->owner), bytes = 0;
    if (!remo__tx_append(tx, item, REMO__TX_KEEP, tx->request, sizeof tx->request, &at))
        return remo__fail(-EMSGSIZE,
                          "cannot lock a key: those of the transaction at node %u need more than %u bytes "
                          "together: divide it",
                          item->owner, REMO_RPC_BYTES_MAX);
    append_header(tx->held, place == 0 ? tx->held->count - 1 : place, 0, tx->request, &bytes);
    memcpy(tx->request + bytes, &header, sizeof header);
    bytes += sizeof header;
    (void)remo__tx_append(tx, item, REMO__TX_KEEP, tx->request, sizeof tx->request, &bytes);
    *ret_bytes = bytes;
    return 0;
}

static int lock_here(struct remo_tx *tx, size_t bytes, struct remo__tx_locked *locked) {
    int rc = remo__tx_check_shares(tx);
    if (rc == 0)
        rc = remo__tx_execute_lock(tx->space, tx->space->node->rank, tx->request, bytes, locked);
    return rc == -ENOTCONN ? remo__fail(rc, "cannot lock a key: %s is being closed",
                                        remo_channel_name(tx->space->channel))
                           : rc;
}

/* Call the owner. Returns its answer, or an error. */
static int call_owner(struct remo_tx *tx, uint32_t owner, size_t bytes, struct remo__tx_locked *locked) {
    char reply[sizeof locked->found.item + REMO_ITEM_BYTES_MAX];
    size_t reply_bytes = 0;
    int rc = remo_rpc_call(tx->space->rpc, owner, REMO__TX_LOCK, tx->request, bytes, reply, sizeof reply,
                           &reply_bytes, tx->space->node->op_timeout_ns);
    if (rc < 0)
        return remo__fail_more(rc == -EAGAIN ? -ETIMEDOUT : rc, "%s", remo_channel_name(tx->space->channel));
    if (rc == REMO__TX_ANSWER_CONFLICT && reply_bytes == sizeof locked->conflict)
        memcpy(&locked->conflict, reply, sizeof locked->conflict);
    if (rc != REMO__TX_ANSWER_DONE)
        return rc;
    if (reply_bytes < sizeof locked->found.item
        || reply_bytes - sizeof locked->found.item > locked->found.cap)
        return REMO__TX_ANSWER_MALFORMED;
    memcpy(&locked->found.item, reply, sizeof locked->found.item);
    locked->found.value_bytes = reply_bytes - sizeof locked->found.item;
    memcpy(locked->found.value, reply + sizeof locked->found.item, locked->found.value_bytes);
    return rc;
}

/* Perhaps the owner has locked the item even if its reply does not arrive. But a call to an owner that is not
 * connected was not sent, and a FINISH would be repeated until the owner opens the space. */
static int lock_there(struct remo_tx *tx, struct remo__tx_participant *owner, size_t bytes,
                      struct remo__tx_locked *locked) {
    int rc = call_owner(tx, owner->node, bytes, locked);
    if (rc >= 0 || remo_channel_peer(tx->space->channel, owner->node) != REMO_CHANNEL_WAITING)
        owner->needs_finish = true;
    return rc;
}

static int lock(struct remo_tx *tx, struct remo__tx_item *item, struct remo__tx_locked *locked) {
    const uint8_t items[REMO__TX_ITEMS_MAX] = {(uint8_t)(item - tx->items)};
    bool is_own = item->owner == tx->space->node->rank;
    size_t bytes = 0;
    int rc = is_own ? 0 : remo__tx_check_waits(tx->space);
    if (rc == 0)
        rc = take_entry(tx);
    if (rc != 0)
        return rc;
    struct remo__tx_participant *owner = participant_of(tx->held, item->owner);
    rc = make_lock(tx, owner, item, &bytes);
    if (rc != 0)
        return rc;
    if (is_own)
        owner->needs_finish = true;
    rc = is_own ? lock_here(tx, bytes, locked) : lock_there(tx, owner, bytes, locked);
    return rc < 0 ? rc : remo__tx_result(tx, (enum remo__tx_answer)rc, &locked->conflict, items);
}

int remo__tx_lock(struct remo_tx *tx, struct remo__tx_item *item, void *value, size_t cap,
                  size_t *ret_value_bytes, struct remo__evidence *ret_evidence) {
    struct remo__tx_locked locked = {.found = {.value = value, .cap = cap}};
    if (tx->lock_error != 0)
        return remo__fail(tx->lock_error, "a key could not be locked before: abort the transaction");
    tx->lock_error = lock(tx, item, &locked);
    if (tx->lock_error != 0)
        return tx->lock_error;
    const struct remo__item_reply *found = &locked.found.item;
    item->is_held = true;
    tx->last = (uint32_t)(item - tx->items); /* so the key that was looked up last before is validated */
    *ret_value_bytes = locked.found.value_bytes;
    if (found->offset == REMO_STRUCTURE_NOWHERE) {
        *ret_evidence = (struct remo__evidence){.proof = REMO__PROOF_DELETES, .word = found->deletes};
        return -ENOENT;
    }
    *ret_evidence = (struct remo__evidence){
        .proof = REMO__PROOF_HEAD, .offset = found->offset, .word = found->head & ~REMO__ITEM_LOCKED};
    return 0;
}

/* ---- COMMIT ---- */

/* Make the message for this node's part. */
static int make_own(struct remo_tx *tx, struct remo__tx_commit *commit) {
    struct remo__tx_participant *own = &commit->participants[0];
    own->request_at = 0;
    if (!own->needs_finish)
        return 0;
    append_header(commit, commit->count - 1, 0, commit->requests, &commit->requests_bytes);
    int rc = remo__tx_request(tx, own->node, true, commit->requests, REMO_RPC_BYTES_MAX,
                              &commit->requests_bytes, own->items);
    own->request_bytes = commit->requests_bytes;
    commit->requests_bytes = remo__align_up(commit->requests_bytes, 8);
    return rc;
}

/* Make the message for all other owners: each may have to pass it to others. */
static int make_others(struct remo_tx *tx, struct remo__tx_commit *commit) {
    uint32_t owners = commit->count - 1;
    uint16_t sizes[REMO__TX_ITEMS_MAX + 4] = {0};
    size_t at = commit->requests_bytes, *bytes = &commit->requests_bytes;
    append_header(commit, owners, owners, commit->requests, bytes);
    size_t sizes_at = *bytes, sizes_bytes = remo__align_up(owners * sizeof sizes[0], 8);
    *bytes += sizes_bytes;
    for (uint32_t i = 0; i < owners; i++) {
        size_t before = *bytes;
        int rc = remo__tx_request(tx, commit->participants[i + 1].node, true, commit->requests,
                                  at + REMO_RPC_BYTES_MAX, bytes, commit->participants[i + 1].items);
        if (rc != 0)
            return rc;
        sizes[i] = (uint16_t)(*bytes - before);
    }
    memcpy(commit->requests + sizes_at, sizes, sizes_bytes);
    for (uint32_t i = 1; i < commit->count; i++) {
        commit->participants[i].request_at = at;
        commit->participants[i].request_bytes = *bytes - at;
    }
    return 0;
}

/* The channel may detect a failure later than the node. */
static bool has_failed(const struct remo_tx_space *space, const struct remo__tx_participant *owner) {
    return atomic_load(&space->peers[owner->node].losses) != owner->losses
           || remo_node_peer(space->node, owner->node) != REMO_PEER_UP;
}

/* An owner that is not connected any more gets no message. One that has connected since gets FINISH: it may
 * have locked an item. */
int remo__tx_check_owners(struct remo__tx_commit *commit) {
    const struct remo__tx_participant *lost = NULL;
    for (uint32_t i = 1; i < commit->count; i++) {
        struct remo__tx_participant *owner = &commit->participants[i];
        if (!has_failed(commit->space, owner))
            continue;
        owner->is_informed = remo_channel_peer(commit->space->channel, owner->node) != REMO_CHANNEL_CONNECTED;
        lost = owner;
    }
    return lost ? remo__fail(-EHOSTDOWN,
                             "node %u has failed or closed %s, so the transaction's locks are lost: "
                             "nothing has changed; run the transaction again",
                             lost->node, remo_channel_name(commit->space->channel))
                : 0;
}

static int commit_changes(struct remo_tx *tx, struct remo__tx_commit *commit) {
    int rc = make_own(tx, commit);
    if (rc == 0 && commit->count > 1)
        rc = make_others(tx, commit);
    if (rc == 0 && commit->count > 1)
        rc = remo__tx_check_waits(tx->space);
    if (rc == 0)
        rc = remo__tx_validate(tx, REMO__TX_READ_ONLY);
    if (rc == 0)
        rc = remo__tx_check_owners(commit);
    if (rc == 0)
        return remo__tx_decide(commit);
    remo__tx_finish_all(commit, false, NULL);
    return rc;
}

/* No item changes: the locks are not needed after the validation. */
static int commit_reads(struct remo_tx *tx, struct remo__tx_commit *commit) {
    int rc = remo__tx_validate(tx, REMO__TX_ALL_BUT_LAST);
    if (rc == 0)
        rc = remo__tx_check_owners(commit);
    remo__tx_finish_all(commit, false, NULL);
    return rc;
}

int remo__tx_commit_held(struct remo_tx *tx, bool has_changes) {
    struct remo__tx_commit *commit = tx->held;
    if (tx->lock_error != 0) {
        remo__tx_release_held(tx);
        return remo__fail(tx->lock_error, "cannot commit: a key could not be locked; nothing has changed");
    }
    int rc = has_changes ? commit_changes(tx, commit) : commit_reads(tx, commit);
    tx->held = NULL;
    return remo__tx_end_commit(tx, commit, rc);
}

void remo__tx_release_held(struct remo_tx *tx) {
    struct remo__tx_commit *commit = tx->held;
    if (!commit)
        return;
    tx->held = NULL;
    remo__tx_finish_all(commit, false, NULL);
    remo__tx_drop(commit);
}
