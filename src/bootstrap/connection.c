#include "bootstrap/connection.h"

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

#define COMPLAIN_NS REMO__NS_PER_S
#define READ_EVENTS (EPOLLIN | EPOLLRDHUP)
#define BLOB_BYTES_MAX (REMO__BOOT_ID_BYTES + 1 + REMO__HELLO_BYTES_MAX)

/* ---- lists and life ------------------------------------------------------------------------------------ */

static void pending_add(struct remo__connection *connection) {
    struct remo__control *control = connection->control;
    connection->previous = control->pending_last;
    connection->next = NULL;
    if (control->pending_last)
        control->pending_last->next = connection;
    else
        control->pending_first = connection;
    control->pending_last = connection;
    control->strangers += !connection->connector;
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
    control->strangers -= !connection->connector;
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

void remo__connection_bury(struct remo__connection *connection) {
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
    /* Closing does not end epoll's interest while a forked child has the descriptor too. */
    epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, connection->link.fd, NULL);
    remo__link_close(&connection->link);
    connection->phase = REMO__PHASE_CLOSED;
    connection->next = control->buried;
    control->buried = connection;
}

/* Whoever knocks can cause these lines, so at most one a second is loud. */
static void complain(struct remo__control *control, const struct remo__connection *connection,
                     const char *text) {
    uint64_t now = remo__now_ns();
    int level = now >= control->complain_at ? REMO_LOG_WARNING : REMO_LOG_DEBUG;
    if (level == REMO_LOG_WARNING)
        control->complain_at = now + COMPLAIN_NS;
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
        complain(control, connection, text);
    if (peer && !peer->connection)
        remo__member_why(control, peer, connection->why, "%s: %s", connection->place.text, text);
    remo__connection_bury(connection);
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
    /* The thread learns the end by reading, after all that the peer sent before it. */
    if (rc == -EPIPE)
        shutdown(connection->link.fd, SHUT_RDWR);
}

int remo__connection_send(struct remo__connection *connection, uint16_t type, uint16_t flags,
                          const void *data, size_t bytes, int fd) {
    if (connection->link.send_broken)
        return -EHOSTDOWN;
    int rc = remo__link_queue(&connection->link, type, flags, data, bytes, fd);
    /* While epoll watches for room, or the kernel is short of something, trying would only cost a call. */
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

static void refuse(struct remo__connection *connection, enum remo__refusal refusal) {
    uint8_t code[2] = {(uint8_t)refusal, 0};
    remo__connection_send(connection, REMO__FRAME_REFUSE, REMO__FRAME_INTERNAL, code, sizeof code, -1);
    connection->why = REMO__WHY_REFUSED;
    if (connection->peer)
        remo__connection_drop(connection, "as rank %u: %s", connection->peer->rank,
                              remo__refusal_text((uint16_t)refusal));
    else
        remo__connection_drop(connection, "%s", remo__refusal_text((uint16_t)refusal));
}

/* ---- the end of an established one --------------------------------------------------------------------- */

void remo__connection_retire(struct remo__connection *connection, int reason) {
    struct remo__control *control = connection->control;
    struct remo__member *peer = connection->peer;
    assert(connection->phase == REMO__PHASE_UP && peer->connection == connection);
    pthread_mutex_lock(&peer->lock);
    peer->presence = REMO__PEER_GONE;
    peer->connection = NULL;
    remo__connection_bury(connection);
    pthread_mutex_unlock(&peer->lock);
    remo__member_why(control, peer, REMO__WHY_AWAY, reason == 0 ? "it said goodbye" : "its connection ended");
    remo__log(&control->config.log, REMO_LOG_INFO, "node %u is %s", peer->rank,
              reason == 0 ? "leaving" : "down");
    peer->retry_delay = 0;
    if (peer->rank < control->rank)
        remo__member_dial_later(control, peer);
    control->config.down(control->config.ctx, peer->rank, reason);
}

/* ---- the handshake ------------------------------------------------------------------------------------- */

/* A node that was seen comes back only in a later life; this also settles two processes that claim one rank.
 */
static bool is_new_life(const struct remo__connection *connection) {
    const struct remo__member *peer = connection->peer;
    return !peer->seen || connection->handshake->peer.incarnation > peer->incarnation;
}

static bool greet(struct remo__connection *connection, uint32_t to) {
    remo__handshake_greet(connection->handshake, to);
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

/* Does the connection cross a network, as far as addresses tell? */
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

static void on_hello(struct remo__connection *connection, const struct remo__frame *frame) {
    struct remo__handshake *handshake = connection->handshake;
    enum remo__refusal refusal = remo__handshake_hear(handshake, frame->data, frame->bytes);
    if (refusal == REMO__REFUSAL_NONE && connection->connector
        && handshake->peer.rank != connection->peer->rank)
        refusal = REMO__REFUSAL_RANK;
    if (refusal != REMO__REFUSAL_NONE) {
        /* Whoever waits for the rank that it claims wants to know why it does not come. */
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
        greet(connection, handshake->peer.rank);
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
    if (!is_new_life(connection)) {
        refuse(connection, REMO__REFUSAL_INCARNATION);
        return;
    }
    if (!connection->connector && !prove(connection))
        return;
    if (remo__link_widen(&connection->link, REMO__FRAME_BYTES_MAX) != 0) {
        remo__connection_drop(connection, "no memory for its buffer");
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

static void come_up(struct remo__connection *connection, const void *hello, size_t hello_bytes) {
    struct remo__control *control = connection->control;
    struct remo__member *peer = connection->peer;
    uint64_t now = remo__now_ns();
    peer->seen = true;
    peer->incarnation = connection->handshake->peer.incarnation;
    pending_remove(connection);
    remo__handshake_end(connection->handshake);
    free(connection->handshake);
    connection->handshake = NULL;
    peer->attempt = NULL;
    peer->unix_attempts = 0;
    connection->heard_at = connection->beat_at = now;
    if (connection->beats)
        remo__control_arm(control, now);
    pthread_mutex_lock(&peer->lock);
    connection->phase = REMO__PHASE_UP;
    peer->connection = connection;
    peer->presence = REMO__PEER_HERE;
    peer->why[0] = '\0';
    peer->why_kind = REMO__WHY_AWAY;
    pthread_mutex_unlock(&peer->lock);
    remo__log(&control->config.log, REMO_LOG_DEBUG, "node %u is up over %s", peer->rank,
              connection->place.text);
    control->config.up(control->config.ctx, peer->rank, peer->incarnation, connection->same_machine, hello,
                       hello_bytes);
}

/* Where the other side is. Both must agree about heartbeats, yet a forwarded port looks like loopback from
 * one side only: so either wish is enough. */
static bool blob_read(struct remo__connection *connection, struct remo__reader *reader) {
    uint8_t boot_id[REMO__BOOT_ID_BYTES];
    remo__get_bytes(reader, boot_id, sizeof boot_id);
    bool outside = remo__get_u8(reader) != 0;
    connection->same_machine = memcmp(boot_id, connection->control->boot_id, sizeof boot_id) == 0;
    connection->beats =
        !connection->place.is_unix && (outside || is_outside(connection) || !connection->same_machine);
    return !reader->bad && remo__reader_left(reader) <= REMO__HELLO_BYTES_MAX;
}

/* Both sides are proved. The connector decides last: it is up when it has sent its blob, the acceptor when
 * that arrives. */
static void on_blob(struct remo__connection *connection, const struct remo__frame *frame) {
    struct remo__reader reader = remo__reader_of(frame->data, frame->bytes);
    if (!blob_read(connection, &reader)) {
        refuse(connection, REMO__REFUSAL_GARBAGE);
        return;
    }
    if (!is_new_life(connection)) {
        refuse(connection, REMO__REFUSAL_INCARNATION);
        return;
    }
    if (connection->connector && connection->same_machine
        && remo__member_turn_to_unix(connection->peer, connection)) {
        remo__connection_drop(connection, "it is on this machine; going on by its Unix socket");
        return;
    }
    if (connection->connector && !send_blob(connection))
        return;
    if (connection->peer->connection)
        remo__connection_retire(connection->peer->connection, -EHOSTDOWN); /* its earlier life */
    come_up(connection, reader.at, remo__reader_left(&reader));
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
        connection->why = REMO__WHY_REFUSED;
        remo__connection_drop(connection, "it refuses us: %s", remo__refusal_text(remo__get_u16(&reader)));
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

/* Takes `fd`. */
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
    else if (frame->type == REMO__FRAME_GOODBYE)
        remo__connection_retire(connection, 0);
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
        remo__log(log, REMO_LOG_ERROR, "node %u sent bytes that make no sense; its connection is closed",
                  connection->peer->rank);
    else if (rc == -EMFILE)
        remo__log(log, REMO_LOG_ERROR,
                  "a descriptor of node %u was lost: too many files are open; raise ulimit -n",
                  connection->peer->rank);
    remo__connection_retire(connection, -EHOSTDOWN);
}

void remo__connection_receive(struct remo__connection *connection) {
    int got = remo__link_fill(&connection->link);
    if (got == -EAGAIN)
        return;
    if (got <= 0) {
        on_end(connection, got);
        return;
    }
    connection->heard_at = remo__now_ns();
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
        remo__connection_bury(connection);
        remo__member_dial_failed(connection->control, peer, &place, -error);
        return;
    }
    connection->phase = REMO__PHASE_HELLO;
    connection_watch(connection, EPOLL_CTL_MOD, READ_EVENTS);
    greet(connection, connection->peer->rank);
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
            remo__connection_bury(connection);
    }
    return rc;
}

int remo__connection_called(struct remo__control *control, struct remo__member *peer, int fd,
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
        remo__connection_bury(connection);
        return rc;
    }
    if (established)
        greet(connection, peer->rank);
    return 0;
}
