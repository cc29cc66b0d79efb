/* receive.c - handles what arrives on a connection: the handshake, then frames for the node.
 *
 * The phase only advances (connection.h); each handshake frame is accepted in exactly one phase. No frame of
 * a peer reaches the node before the proof is verified. handshake.h describes the messages. */
#include "bootstrap/control/connection.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "bootstrap/control/user.h"

#define BLOB_BYTES_MAX (REMO__BOOT_ID_BYTES + 1 + REMO__HELLO_BYTES_MAX)

static bool send_internal(struct remo__connection *connection, enum remo__frame_type type, const void *data,
                          size_t bytes) {
    int rc = remo__connection_send(connection, (uint16_t)type, REMO__FRAME_INTERNAL, data, bytes, -1);
    if (rc != 0)
        remo__connection_drop(connection, "sending failed: %s", strerror(-rc));
    return rc == 0;
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

/* True if, without a credential, nothing contradicts the rank that the other end claims. A dialed address
 * comes from the roster. */
static bool is_plausible(const struct remo__connection *connection) {
    const struct remo__member *peer = connection->peer;
    int rc = connection->connector ? 0 : remo__peer_check_user(connection->link.fd);
    if (rc == 0)
        return true;
    if (rc == -EPERM || connection->place.is_loopback)
        return false;
    for (uint32_t i = 0; i < peer->place_count; i++) {
        if (remo__place_same_host(&peer->places[i], &connection->place))
            return true;
    }
    return false;
}

/* A wrong credential stays wrong: return whether to report it at once. A munge daemon that cannot verify one
 * may recover, so the peer retries. */
static bool is_denied(const struct remo__connection *connection, enum remo__refusal refusal) {
    const struct remo__control *control = connection->control;
    const struct remo__member *peer = connection->peer;
    bool has_credential = control->roster->has_key || control->roster->use_munge;
    bool final =
        refusal == REMO__REFUSAL_CREDENTIAL_KIND || (refusal == REMO__REFUSAL_CREDENTIAL && has_credential);
    return final && control->config.denied && peer && !peer->was_up && is_plausible(connection);
}

static void denied_report(const struct remo__connection *connection, enum remo__refusal refusal) {
    const struct remo__control_config *config = &connection->control->config;
    config->denied(config->ctx, connection->peer->rank, remo__refusal_text((uint16_t)refusal));
}

/* The other end closes its socket when it gets the frame. Then the kernel no longer tells whose it was, so
 * that is determined before. */
static void refuse(struct remo__connection *connection, enum remo__refusal refusal) {
    uint8_t code[2] = {(uint8_t)refusal, 0};
    bool must_report = is_denied(connection, refusal);
    remo__connection_send(connection, REMO__FRAME_REFUSE, REMO__FRAME_INTERNAL, code, sizeof code, -1);
    connection->why = REMO__WHY_REFUSED;
    if (must_report)
        denied_report(connection, refusal);
    if (connection->peer)
        remo__connection_drop(connection, "as rank %u: %s", connection->peer->rank,
                              remo__refusal_text((uint16_t)refusal));
    else
        remo__connection_drop(connection, "%s", remo__refusal_text((uint16_t)refusal));
}

/* ---- the handshake ------------------------------------------------------------------------------------- */

/* A rank rejoins only with a higher incarnation. This also rejects a second process that claims the rank. */
static bool is_new_incarnation(const struct remo__connection *connection) {
    const struct remo__member *peer = connection->peer;
    return !peer->was_up || connection->handshake->peer.incarnation > peer->incarnation;
}

/* Return whether this node has not yet read the end of the earlier stream of the same incarnation. */
static bool is_still_up(const struct remo__connection *connection) {
    const struct remo__member *peer = connection->peer;
    return peer->connection && connection->handshake->peer.incarnation == peer->incarnation;
}

static bool send_hello(struct remo__connection *connection, uint32_t to) {
    remo__handshake_hello_write(connection->handshake, to);
    return send_internal(connection, REMO__FRAME_HELLO, connection->handshake->ours,
                         connection->handshake->ours_bytes);
}

static bool prove(struct remo__connection *connection) {
    uint8_t proof[REMO__PROOF_WIRE_MAX];
    size_t bytes = 0;
    if (remo__handshake_prove(connection->handshake, proof, &bytes) != 0) {
        connection->why = REMO__WHY_REFUSED;
        remo__connection_drop(connection, "%s", remo_last_error());
        return false;
    }
    return send_internal(connection, REMO__FRAME_PROOF, proof, bytes);
}

/* True if, by its addresses, the connection crosses a network. */
static bool is_outside(const struct remo__connection *connection) {
    return !connection->place.is_unix && !connection->place.is_loopback;
}

static bool send_blob(struct remo__connection *connection) {
    const struct remo__control *control = connection->control;
    uint8_t blob[BLOB_BYTES_MAX];
    struct remo__writer writer = remo__writer_of(blob, sizeof blob);
    remo__put_bytes(&writer, control->boot_id, sizeof control->boot_id);
    remo__put_u8(&writer, is_outside(connection));
    remo__put_bytes(&writer, control->hello, control->hello_bytes);
    return send_internal(connection, REMO__FRAME_BLOB, blob, (size_t)(writer.at - blob));
}

/* Without a credential, only processes of this user may join. For a Unix socket the user was checked on
 * connect or accept. */
static int check_user(const struct remo__connection *connection) {
    const struct remo__roster *roster = connection->control->roster;
    if (connection->place.is_unix || roster->has_key || roster->use_munge)
        return 0;
    return remo__peer_check_user(connection->link.fd);
}

static void on_hello(struct remo__connection *connection, const struct remo__frame *frame) {
    struct remo__handshake *handshake = connection->handshake;
    enum remo__refusal refusal = remo__handshake_hello_read(handshake, frame->data, frame->bytes);
    int rc = check_user(connection);
    if (rc == -ENOTCONN) {
        remo__connection_drop(connection, "closed during the handshake");
        return;
    }
    if (rc != 0 && refusal == REMO__REFUSAL_NONE)
        refusal = REMO__REFUSAL_USER;
    if (refusal == REMO__REFUSAL_NONE && connection->connector
        && handshake->peer.rank != connection->peer->rank)
        refusal = REMO__REFUSAL_RANK;
    if (refusal != REMO__REFUSAL_NONE) {
        /* A join that waits for the claimed rank reports this reason. */
        if (!connection->connector && refusal >= REMO__REFUSAL_SIZE
            && handshake->peer.rank < connection->control->size)
            connection->peer = &connection->control->peers[handshake->peer.rank];
        refuse(connection, refusal);
        return;
    }
    connection->peer = &connection->control->peers[handshake->peer.rank];
    connection->phase = REMO__PHASE_PROOF;
    if (connection->connector)
        prove(connection);
    else
        send_hello(connection, handshake->peer.rank);
}

static void on_proof(struct remo__connection *connection, const struct remo__frame *frame) {
    struct remo__handshake *handshake = connection->handshake;
    struct remo__seal send_seal, receive_seal;
    int rc = remo__handshake_verify(handshake, frame->data, frame->bytes);
    if (rc != 0) {
        remo__log(&connection->control->config.log, REMO_LOG_DEBUG, "rank %u: %s", connection->peer->rank,
                  remo_last_error());
        refuse(connection, rc == -EAGAIN ? REMO__REFUSAL_MUNGE : REMO__REFUSAL_CREDENTIAL);
        return;
    }
    if (connection->control->has_ended_all) {
        remo__connection_drop(connection, "this node has ended all its connections");
        return;
    }
    /* SILENT may precede the end. Without the proof of this node the connector tries again (end.c). */
    if (!connection->connector && is_still_up(connection)) {
        refuse(connection, REMO__REFUSAL_INCARNATION);
        return;
    }
    if (!connection->connector && !prove(connection))
        return;
    if (remo__link_widen(&connection->link, REMO__FRAME_BYTES_MAX) != 0) {
        remo__connection_drop(connection, "no memory for the receive buffer");
        return;
    }
    remo__handshake_seals(handshake, &send_seal, &receive_seal);
    connection->link.send_seal = send_seal;
    connection->link.receive_seal = receive_seal;
    connection->phase = REMO__PHASE_BLOB;
    connection->deadline = remo__now_ns() + REMO__HANDSHAKE_LAST_NS;
    if (connection->connector)
        return; /* it checks the incarnation when the blob arrives */
    if (is_new_incarnation(connection))
        send_blob(connection);
    else
        refuse(connection, REMO__REFUSAL_INCARNATION); /* sealed: the connector may have to end (end.c) */
}

/* Read the peer's boot id, and whether its end crosses a network. Both ends must agree about heartbeats, but
 * a forwarded port looks like loopback from one end only: one end that crosses a network is enough. */
static bool blob_read(struct remo__connection *connection, struct remo__reader *reader) {
    remo__get_bytes(reader, connection->boot_id, sizeof connection->boot_id);
    bool outside = remo__get_u8(reader) != 0;
    connection->same_machine =
        memcmp(connection->boot_id, connection->control->boot_id, sizeof connection->boot_id) == 0;
    connection->has_heartbeats =
        !connection->place.is_unix && (outside || is_outside(connection) || !connection->same_machine);
    return !reader->bad && remo__reader_left(reader) <= REMO__HELLO_BYTES_MAX;
}

/* Both proofs are verified. The connector is up when it has sent its blob, the acceptor when that arrives. */
static void on_blob(struct remo__connection *connection, const struct remo__frame *frame) {
    struct remo__reader reader = remo__reader_of(frame->data, frame->bytes);
    if (!blob_read(connection, &reader)) {
        refuse(connection, REMO__REFUSAL_GARBAGE);
        return;
    }
    if (!is_new_incarnation(connection)) {
        refuse(connection, REMO__REFUSAL_INCARNATION);
        return;
    }
    if (connection->connector && connection->same_machine
        && remo__member_switch_to_unix(connection->peer, connection)) {
        remo__connection_drop(connection, "the node is on this machine; continuing over its Unix socket");
        return;
    }
    if (connection->control->has_ended_all) { /* since the proof */
        remo__connection_drop(connection, "this node has ended all its connections");
        return;
    }
    if (connection->connector && !send_blob(connection))
        return;
    if (connection->peer->connection)
        remo__connection_down(connection->peer->connection, -EHOSTDOWN); /* the earlier incarnation */
    remo__connection_up(connection, reader.at, remo__reader_left(&reader));
}

static void on_handshake_frame(struct remo__connection *connection, const struct remo__frame *frame) {
    static const enum remo__phase expected[] = {
        [REMO__FRAME_HELLO] = REMO__PHASE_HELLO,
        [REMO__FRAME_PROOF] = REMO__PHASE_PROOF,
        [REMO__FRAME_BLOB] = REMO__PHASE_BLOB,
    };
    bool internal = frame->flags & REMO__FRAME_INTERNAL;
    if (internal && frame->type == REMO__FRAME_REFUSE && connection->connector) {
        struct remo__reader reader = remo__reader_of(frame->data, frame->bytes);
        uint16_t refusal = remo__get_u16(&reader);
        connection->why = REMO__WHY_REFUSED;
        if (is_denied(connection, (enum remo__refusal)refusal))
            denied_report(connection, (enum remo__refusal)refusal);
        if (refusal == REMO__REFUSAL_INCARNATION && connection->phase == REMO__PHASE_BLOB)
            remo__end_refused(connection->control, connection->peer);
        remo__connection_drop(connection, "the node refused the connection: %s", remo__refusal_text(refusal));
    } else if (!internal || frame->type < REMO__FRAME_HELLO || frame->type > REMO__FRAME_BLOB
               || frame->type == REMO__FRAME_REFUSE || expected[frame->type] != connection->phase) {
        refuse(connection, REMO__REFUSAL_GARBAGE);
    } else if (frame->type == REMO__FRAME_HELLO) {
        on_hello(connection, frame);
    } else if (frame->type == REMO__FRAME_PROOF) {
        on_proof(connection, frame);
    } else {
        on_blob(connection, frame);
    }
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

/* Owns `fd`. */
static void on_frame(struct remo__connection *connection, const struct remo__frame *frame, int fd) {
    const struct remo__control_config *config = &connection->control->config;
    bool internal = frame->flags & REMO__FRAME_INTERNAL;
    if (connection->phase == REMO__PHASE_UP && !internal) {
        config->frame(config->ctx, connection->peer->rank, frame->type, frame->data, frame->bytes, fd);
        return;
    }
    if (fd >= 0)
        close(fd);
    if (connection->phase != REMO__PHASE_UP)
        on_handshake_frame(connection, frame);
    else if (frame->type == REMO__FRAME_LEAVE)
        remo__connection_down(connection, 0);
    else if (frame->type == REMO__FRAME_LOST)
        remo__end_reported(connection->control, connection->peer->rank);
    else if (frame->type == REMO__FRAME_END)
        remo__end_demanded(connection->control, connection->peer->rank);
    else if (frame->type == REMO__FRAME_SILENT)
        remo__end_as_failed(connection->control, connection->peer->rank);
    else if (frame->type != REMO__FRAME_HEARTBEAT)
        remo__log(&config->log, REMO_LOG_DEBUG, "node %u sent an unknown message of type %u",
                  connection->peer->rank, frame->type);
}

static void on_end(struct remo__connection *connection, int rc) {
    const struct remo__log *log = &connection->control->config.log;
    if (connection->phase != REMO__PHASE_UP) {
        if (rc == -EBADMSG)
            refuse(connection, REMO__REFUSAL_GARBAGE);
        else
            remo__connection_drop(connection, "%s", rc == 0 ? "closed during the handshake" : strerror(-rc));
        return;
    }
    if (rc == -EBADMSG)
        remo__log(log, REMO_LOG_ERROR, "node %u sent malformed data; its connection is closed",
                  connection->peer->rank);
    else if (rc == -EMFILE)
        remo__log(log, REMO_LOG_ERROR,
                  "a descriptor of node %u was lost: too many files are open; raise ulimit -n",
                  connection->peer->rank);
    remo__connection_down(connection, -EHOSTDOWN);
}

void remo__connection_receive(struct remo__connection *connection) {
    int got = remo__link_fill(&connection->link);
    if (got == -EAGAIN)
        return;
    if (got <= 0) {
        on_end(connection, got);
        return;
    }
    connection->received_at = remo__now_ns();
    while (connection->phase != REMO__PHASE_CLOSED) {
        struct remo__frame frame;
        int fd, rc = remo__link_next(&connection->link, &frame, &fd);
        if (rc < 0)
            on_end(connection, rc);
        if (rc <= 0)
            return;
        on_frame(connection, &frame, fd);
    }
}

/* ---- events -------------------------------------------------------------------------------------------- */

static void on_connected(struct remo__connection *connection) {
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(connection->link.fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) {
        struct remo__member *peer = connection->peer;
        struct remo__place place = connection->place;
        remo__connection_close(connection);
        remo__member_dial_failed(connection->control, peer, &place, -error);
        return;
    }
    connection->phase = REMO__PHASE_HELLO;
    remo__connection_watch(connection, EPOLL_CTL_MOD, REMO__READ_EVENTS);
    send_hello(connection, connection->peer->rank);
}

void remo__connection_event(struct remo__connection *connection, uint32_t events) {
    if (connection->phase == REMO__PHASE_DIALING) {
        on_connected(connection);
        return;
    }
    if (connection->phase != REMO__PHASE_CLOSED && (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
        remo__connection_receive(connection);
    if (connection->phase == REMO__PHASE_CLOSED || !(events & EPOLLOUT))
        return;
    if (connection->phase == REMO__PHASE_UP)
        pthread_mutex_lock(&connection->peer->lock);
    remo__connection_flush(connection);
    if (connection->phase == REMO__PHASE_UP)
        pthread_mutex_unlock(&connection->peer->lock);
}

int remo__connection_accepted(struct remo__control *control, int fd, const struct remo__place *place) {
    struct remo__connection *connection;
    int rc = remo__connection_new(control, fd, place, false, &connection);
    if (rc == 0) {
        rc = remo__connection_watch(connection, EPOLL_CTL_ADD, REMO__READ_EVENTS);
        if (rc != 0)
            remo__connection_close(connection);
    }
    return rc;
}

int remo__connection_dialed(struct remo__control *control, struct remo__member *peer, int fd,
                            const struct remo__place *place, bool established) {
    struct remo__connection *connection;
    int rc = remo__connection_new(control, fd, place, true, &connection);
    if (rc != 0)
        return rc;
    connection->peer = peer;
    peer->attempt = connection;
    connection->phase = established ? REMO__PHASE_HELLO : REMO__PHASE_DIALING;
    rc = remo__connection_watch(connection, EPOLL_CTL_ADD, established ? REMO__READ_EVENTS : EPOLLOUT);
    if (rc != 0) {
        remo__connection_close(connection);
        return rc;
    }
    if (established)
        send_hello(connection, peer->rank);
    return 0;
}
