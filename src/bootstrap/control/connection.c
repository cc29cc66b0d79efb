/* connection.c - one connection of the control plane: from its socket to its end, and sending.
 *
 * Events of the same round may still refer to a closed connection, so control.c frees it at the end of the
 * round. receive.c handles what arrives. */
#include "bootstrap/control/connection.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define DROP_LOG_NS REMO__NS_PER_S

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

int remo__connection_watch(struct remo__connection *connection, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = &connection->watch};
    return epoll_ctl(connection->control->epoll_fd, operation, connection->link.fd, &event) == 0 ? 0 : -errno;
}

int remo__connection_new(struct remo__control *control, int fd, const struct remo__place *place,
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
        remo__connection_watch(connection, EPOLL_CTL_MOD, REMO__READ_EVENTS | (wanted ? EPOLLOUT : 0));
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

/* ---- up and down --------------------------------------------------------------------------------------- */

/* Record the machine of a peer that is up. Nodes of this machine, which reach each other without a network
 * device, count as machines of their own. */
static void record_machine(struct remo__control *control, const struct remo__connection *connection) {
    struct remo__member *peer = connection->peer;
    uint32_t machine = control->machine_count++;
    for (uint32_t i = 0; i < control->size && !connection->same_machine; i++) {
        const struct remo__member *other = &control->peers[i];
        if (other != peer && other->was_up
            && memcmp(other->boot_id, connection->boot_id, sizeof other->boot_id) == 0)
            machine = control->losses.of[i].machine;
    }
    memcpy(peer->boot_id, connection->boot_id, sizeof peer->boot_id);
    control->losses.of[peer->rank].machine = machine;
}

void remo__connection_up(struct remo__connection *connection, const void *hello, size_t hello_bytes) {
    struct remo__control *control = connection->control;
    struct remo__member *peer = connection->peer;
    uint64_t now = remo__now_ns();
    peer->was_up = true;
    peer->incarnation = connection->handshake->peer.incarnation;
    record_machine(control, connection);
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

void remo__connection_down(struct remo__connection *connection, int reason) {
    struct remo__control *control = connection->control;
    struct remo__member *peer = connection->peer;
    assert(connection->phase == REMO__PHASE_UP && peer->connection == connection);
    pthread_mutex_lock(&peer->lock);
    peer->presence = REMO__PEER_DOWN;
    peer->connection = NULL;
    remo__connection_close(connection);
    pthread_mutex_unlock(&peer->lock);
    remo__losses_remove(&control->losses, peer->rank);
    remo__member_why(control, peer, REMO__WHY_AWAY, reason == 0 ? "it has left" : "its connection ended");
    remo__log(&control->config.log, REMO_LOG_INFO, "node %u is %s", peer->rank,
              reason == 0 ? "leaving" : "down");
    peer->retry_delay = 0;
    if (peer->rank < control->rank)
        remo__member_dial_later(control, peer);
    control->config.down(control->config.ctx, peer->rank, reason);
}
