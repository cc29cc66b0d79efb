/* end.c - the messages about lost connections of the data plane, and the end of all streams of this node.
 *
 * Both nodes of a pair record a loss (LOST); the one with the lower rank decides (loss.h), and may demand the
 * end of the other (END). A message that cannot be sent is repeated at the next decision. A node that a peer
 * counts as failed although both are up ends too. docs/internals/membership.md describes both. */
#include <errno.h>
#include <stdio.h>

#include "bootstrap/control/connection.h"

static void send_to(struct remo__member *peer, enum remo__frame_type type) {
    pthread_mutex_lock(&peer->lock);
    (void)remo__connection_send(peer->connection, (uint16_t)type, REMO__FRAME_INTERNAL, NULL, 0, -1);
    pthread_mutex_unlock(&peer->lock);
}

void remo__control_lose(struct remo__control *control, uint32_t rank) {
    struct remo__member *peer = &control->peers[rank];
    if (!peer->connection || !remo__losses_add(&control->losses, rank, remo__now_ns()))
        return;
    remo__log(&control->config.log, REMO_LOG_INFO, "the data connection to node %u is lost", rank);
    remo__control_arm(control, control->losses.decide_at);
    send_to(peer, REMO__FRAME_LOST);
}

void remo__end_reported(struct remo__control *control, uint32_t rank) {
    if (!remo__losses_add(&control->losses, rank, remo__now_ns()))
        return;
    remo__log(&control->config.log, REMO_LOG_INFO, "node %u has lost the data connection to this node", rank);
    remo__control_arm(control, control->losses.decide_at);
}

/* Call `ended`, then end the streams of all peers. */
static void end_all(struct remo__control *control, const char *why) {
    remo__log(&control->config.log, REMO_LOG_ERROR,
              "%s: this node ends all its connections, so that all nodes agree on which node has failed; "
              "restart it",
              why);
    control->has_ended_all = true;
    if (control->config.ended)
        control->config.ended(control->config.ctx);
    for (uint32_t i = 0; i < control->size; i++)
        if (control->peers[i].connection)
            remo__connection_down(control->peers[i].connection, -EHOSTDOWN);
}

/* The rules send END to higher ranks only. */
void remo__end_demanded(struct remo__control *control, uint32_t rank) {
    char why[REMO__WHY_BYTES_MAX];
    if (rank > control->rank) {
        remo__log(&control->config.log, REMO_LOG_ERROR,
                  "node %u sent a malformed demand; it was discarded; start all nodes from the same build",
                  rank);
        return;
    }
    snprintf(why, sizeof why, "node %u has lost the data connection to this node", rank);
    end_all(control, why);
}

/* Other nodes may still be connected to both nodes, so this node must fail for them too. */
void remo__end_as_failed(struct remo__control *control, uint32_t rank) {
    char why[REMO__WHY_BYTES_MAX];
    snprintf(why, sizeof why, "node %u counts this node as failed, although both are up", rank);
    end_all(control, why);
}

void remo__end_refused(struct remo__control *control, const struct remo__member *peer) {
    if (peer->was_up && !peer->connection && !control->has_ended_all)
        remo__end_as_failed(control, peer->rank);
}

void remo__end_silent(struct remo__control *control, struct remo__member *peer) {
    remo__log(&control->config.log, REMO_LOG_WARNING, "node %u was silent for %.0f ms", peer->rank,
              (double)control->config.silence_ns / (double)REMO__NS_PER_MS);
    send_to(peer, REMO__FRAME_SILENT);
    remo__connection_down(peer->connection, -EHOSTDOWN);
}

static void send_decision(struct remo__control *control, uint32_t rank, bool is_demanded) {
    if (is_demanded)
        remo__log(&control->config.log, REMO_LOG_WARNING,
                  "node %u must end its connections and restart: it is up, but its data connection is lost",
                  rank);
    send_to(&control->peers[rank], is_demanded ? REMO__FRAME_END : REMO__FRAME_LOST);
}

static void decide(struct remo__control *control, uint64_t now) {
    enum remo__loss_action action = remo__losses_decide(&control->losses, now);
    if (action == REMO__LOSS_END) {
        end_all(control, "this node has lost data connections to peers on several machines");
        return;
    }
    for (uint32_t i = 0; i < control->size; i++)
        if (control->losses.of[i].is_open)
            send_decision(control, i, action == REMO__LOSS_DEMAND && i > control->rank);
}

void remo__end_decide(struct remo__control *control, uint64_t now, bool was_away) {
    if (was_away)
        remo__losses_postpone(&control->losses, now);
    if (control->read_until >= control->losses.decide_at) /* later ends of streams need not be read */
        decide(control, now);
    remo__control_arm(control, control->losses.decide_at);
}
