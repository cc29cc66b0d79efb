/* connection.c - one connection of the control plane, from the handshake to its end.
 *
 * The phase only advances (connection.h); each handshake frame is accepted in exactly one phase. No frame of
 * a peer reaches the node before the proof is verified. handshake.h describes the messages. */
#include "bootstrap/control/connection.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "bootstrap/control/user.h"

#define DROP_LOG_NS REMO__NS_PER_S
#define READ_EVENTS (EPOLLIN | EPOLLRDHUP)
#define BLOB_BYTES_MAX (REMO__BOOT_ID_BYTES + 1 + REMO__HELLO_BYTES_MAX)

/* ---- creation and release ------------------------------------------------------------------------------ */

static void pending_add(struct remo__connection *connection) {
    struct remo__control *control = connection->control;
    connection->previous = control->pending_last;
    connection->next = NULL;
    if (control->pending_last)
        control->pending_last->next = connection;
    else
        control->pending_first = connection;
    control->pending_last = connection;
    control->pending_accepted += !connection->connector;
}

static void pending_remove(struct remo__connection *connection) {
    struct remo__control *control = connection->control;
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        control->pending_first = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    else
        control->pending_last = connection->previous;
    control->pending_accepted -= !connection->connector;
}

static int connection_watch(struct remo__connection *connection, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = &connection->watch};
    return epoll_ctl(connection->control->epoll_fd, operation, connection->link.fd, &event) == 0 ? 0 : -errno;
}

static int connection_new(struct remo__control *control, int fd, const struct remo__place *place,
                          bool connector, struct remo__connection **ret_connection) {
    struct remo__connection *connection = calloc(1, sizeof *connection);
    struct remo__handshake *handshake = calloc(1, sizeof *handshake);
    if (!connection || !handshake) {
        close(fd);
        goto fail;
    }
    *connection = (struct remo__connection){.watch.kind = REMO__WATCH_CONNECTION,
                                            .control = control,
                                            .connector = connector,
                                            .place = *place,
                                            .handshake = handshake,
                                            .phase = REMO__PHASE_HELLO};
    if (remo__link_open(&connection->link, fd, place->is_unix, REMO__PROOF_WIRE_MAX) != 0)
        goto fail;
    remo__handshake_begin(handshake, control->roster, connector);
    connection->deadline = remo__now_ns() + REMO__HANDSHAKE_NS;
    remo__control_arm(control, connection->deadline);
    pending_add(connection);
    *ret_connection = connection;
    return 0;
fail:
    free(handshake);
    free(connection);
    return -ENOMEM;
}

void remo__connection_close(struct remo__connection *connection) {
    struct remo__control *control = connection->control;
    assert(connection->phase != REMO__PHASE_CLOSED);
    if (connection->phase != REMO__PHASE_UP)
        pending_remove(connection);
    if (connection->peer && connection->peer->attempt == connection)
        connection->peer->attempt = NULL;
    if (connection->handshake) {
        remo__handshake_end(connection->handshake);
        free(connection->handshake);
        connection->handshake = NULL;
    }
    /* close() alone does not remove the descriptor from epoll while a forked child also holds it. */
    epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, connection->link.fd, NULL);
    remo__link_close(&connection->link);
    connection->phase = REMO__PHASE_CLOSED;
    connection->next = control->closed;
    control->closed = connection;
}

/* Any process that connects can cause these lines, so at most one a second is a warning. */
static void dropped_log(struct remo__control *control, const struct remo__connection *connection,
                        const char *text) {
    uint64_t now = remo__now_ns();
    int level = now >= control->drop_log_at ? REMO_LOG_WARNING : REMO_LOG_DEBUG;
    if (level == REMO_LOG_WARNING)
        control->drop_log_at = now + DROP_LOG_NS;
    remo__log(&control->config.log, level, "a connection from %s was dropped: %s", connection->place.text,
              text);
}

void remo__connection_drop(struct remo__connection *connection, const char *format, ...) {
    char text[REMO__WHY_BYTES_MAX];
    struct remo__control *control = connection->control;
    struct remo__member *peer = connection->peer;
    bool connector = connection->connector;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!connector)
        dropped_log(control, connection, text);
    if (peer && !peer->connection)
        remo__member_why(control, peer, connection->why, "%s: %s", connection->place.text, text);
    remo__connection_close(connection);
    if (connector)
        remo__member_dial_later(control, peer);
}

/* ---- sending ------------------------------------------------------------------------------------------- */

void remo__connection_flush(struct remo__connection *connection) {
    int rc = remo__link_flush(&connection->link);
    bool wanted = rc == -EAGAIN;
    if (wanted != connection->writable_wanted) {
        connection->writable_wanted = wanted;
        connection_watch(connection, EPOLL_CTL_MOD, READ_EVENTS | (wanted ? EPOLLOUT : 0));
    }
    connection->stalled = rc == -EBUSY;
    /* The control thread detects the end by reading, after all frames that the peer sent before. */
    if (rc == -EPIPE)
        shutdown(connection->link.fd, SHUT_RDWR);
}

int remo__connection_send(struct remo__connection *connection, uint16_t type, uint16_t flags,
                          const void *data, size_t bytes, int fd) {
    if (connection->link.send_broken)
        return -EHOSTDOWN;
    int rc = remo__link_queue(&connection->link, type, flags, data, bytes, fd);
    /* While epoll waits for room, or the kernel lacks resources, an attempt would only cost a system call. */
    if (rc == 0 && !connection->writable_wanted && !connection->stalled)
        remo__connection_flush(connection);
    return rc;
}

static bool send_internal(struct remo__connection *connection, enum remo__frame_type type, const void *data,
                          size_t bytes) {
    int rc = remo__connection_send(connection, (uint16_t)type, REMO__FRAME_INTERNAL, data, bytes, -1);
    if (rc != 0)
        remo__connection_drop(connection, "sending failed: %s", strerror(-rc));
    return rc == 0;
}

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

/* Different keys stay different: report them at once. A munge daemon may recover, so munge is retried. */
static void denied_report(struct remo__connection *connection, enum remo__refusal refusal) {
    const struct remo__control *control = connection->control;
    const struct remo__member *peer = connection->peer;
    bool final = refusal == REMO__REFUSAL_CREDENTIAL_KIND
                 || (refusal == REMO__REFUSAL_CREDENTIAL && control->roster->has_key);
    if (final && control->config.denied && peer && !peer->was_up && is_plausible(connection))
        control->config.denied(control->config.ctx, peer->rank, remo__refusal_text((uint16_t)refusal));
}

static void refuse(struct remo__connection *connection, enum remo__refusal refusal) {
    uint8_t code[2] = {(uint8_t)refusal, 0};
    remo__connection_send(connection, REMO__FRAME_REFUSE, REMO__FRAME_INTERNAL, code, sizeof code, -1);
    connection->why = REMO__WHY_REFUSED;
    denied_report(connection, refusal);
    if (connection->peer)
        remo__connection_drop(connection, "as rank %u: %s", connection->peer->rank,
                              remo__refusal_text((uint16_t)refusal));
    else
        remo__connection_drop(connection, "%s", remo__refusal_text((uint16_t)refusal));
}

/* ---- the end of an established connection -------------------------------------------------------------- */

void remo__connection_down(struct remo__connection *connection, int reason) {
    struct remo__control *control = connection->control;
    struct remo__member *peer = connection->peer;
    assert(connection->phase == REMO__PHASE_UP && peer->connection == connection);
    pthread_mutex_lock(&peer->lock);
    peer->presence = REMO__PEER_DOWN;
    peer->connection = NULL;
    remo__connection_close(connection);
    pthread_mutex_unlock(&peer->lock);
    remo__member_why(control, peer, REMO__WHY_AWAY, reason == 0 ? "it has left" : "its connection ended");
    remo__log(&control->config.log, REMO_LOG_INFO, "node %u is %s", peer->rank,
              reason == 0 ? "leaving" : "down");
    peer->retry_delay = 0;
    if (peer->rank < control->rank)
        remo__member_dial_later(control, peer);
    control->config.down(control->config.ctx, peer->rank, reason);
}

/* ---- the handshake ------------------------------------------------------------------------------------- */

/* A rank rejoins only with a higher incarnation. This also rejects a second process that claims the rank. */
static bool is_new_incarnation(const struct remo__connection *connection) {
    const struct remo__member *peer = connection->peer;
    return !peer->was_up || connection->handshake->peer.incarnation > peer->incarnation;
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
    if (remo__handshake_verify(handshake, frame->data, frame->bytes) != 0) {
        remo__log(&connection->control->config.log, REMO_LOG_DEBUG, "rank %u: %s", connection->peer->rank,
                  remo_last_error());
        refuse(connection, REMO__REFUSAL_CREDENTIAL);
        return;
    }
    if (!is_new_incarnation(connection)) {
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
    if (!connection->connector)
        send_blob(connection);
}

static void connection_up(struct remo__connection *connection, const void *hello, size_t hello_bytes) {
    struct remo__control *control = connection->control;
    struct remo__member *peer = connection->peer;
    uint64_t now = remo__now_ns();
    peer->was_up = true;
    peer->incarnation = connection->handshake->peer.incarnation;
    pending_remove(connection);
    remo__handshake_end(connection->handshake);
    free(connection->handshake);
    connection->handshake = NULL;
    peer->attempt = NULL;
    peer->unix_attempts = 0;
    connection->received_at = connection->heartbeat_at = now;
    if (connection->has_heartbeats)
        remo__control_arm(control, now);
    pthread_mutex_lock(&peer->lock);
    connection->phase = REMO__PHASE_UP;
    peer->connection = connection;
    peer->presence = REMO__PEER_UP;
    peer->why[0] = '\0';
    peer->why_kind = REMO__WHY_AWAY;
    pthread_mutex_unlock(&peer->lock);
    remo__log(&control->config.log, REMO_LOG_DEBUG, "node %u is up over %s", peer->rank,
              connection->place.text);
    control->config.up(control->config.ctx, peer->rank, peer->incarnation, connection->same_machine, hello,
                       hello_bytes);
}

/* Read the peer's boot id, and whether its end crosses a network. Both ends must agree about heartbeats, but
 * a forwarded port looks like loopback from one end only: one end that crosses a network is enough. */
static bool blob_read(struct remo__connection *connection, struct remo__reader *reader) {
    uint8_t boot_id[REMO__BOOT_ID_BYTES];
    remo__get_bytes(reader, boot_id, sizeof boot_id);
    bool outside = remo__get_u8(reader) != 0;
    connection->same_machine = memcmp(boot_id, connection->control->boot_id, sizeof boot_id) == 0;
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
    if (connection->connector && !send_blob(connection))
        return;
    if (connection->peer->connection)
        remo__connection_down(connection->peer->connection, -EHOSTDOWN); /* the earlier incarnation */
    connection_up(connection, reader.at, remo__reader_left(&reader));
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
        denied_report(connection, (enum remo__refusal)refusal);
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
    connection_watch(connection, EPOLL_CTL_MOD, READ_EVENTS);
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
    int rc = connection_new(control, fd, place, false, &connection);
    if (rc == 0) {
        rc = connection_watch(connection, EPOLL_CTL_ADD, READ_EVENTS);
        if (rc != 0)
            remo__connection_close(connection);
    }
    return rc;
}

int remo__connection_dialed(struct remo__control *control, struct remo__member *peer, int fd,
                            const struct remo__place *place, bool established) {
    struct remo__connection *connection;
    int rc = connection_new(control, fd, place, true, &connection);
    if (rc != 0)
        return rc;
    connection->peer = peer;
    peer->attempt = connection;
    connection->phase = established ? REMO__PHASE_HELLO : REMO__PHASE_DIALING;
    rc = connection_watch(connection, EPOLL_CTL_ADD, established ? READ_EVENTS : EPOLLOUT);
    if (rc != 0) {
        remo__connection_close(connection);
        return rc;
    }
    if (established)
        send_hello(connection, peer->rank);
    return 0;
}
