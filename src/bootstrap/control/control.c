/* control.c - the thread of the control plane: events, timers, frames to this node, and the orderly end.
 *
 * One thread runs every callback, so callbacks need no lock among themselves. control.h describes the
 * service, connection.h its connections. */
#include "bootstrap/control/control.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/error.h"
#include "base/helper.h"
#include "bootstrap/control/connection.h"

#define HEARTBEAT_DEFAULT_NS (20 * REMO__NS_PER_MS)
#define SILENCE_DEFAULT_NS (500 * REMO__NS_PER_MS)
#define STALL_NS (2 * REMO__NS_PER_MS)
#define LEAVE_NS (1 * REMO__NS_PER_S)
#define EVENTS_MAX 64

void remo__control_wake(struct remo__control *control) {
    uint64_t one = 1;
    while (write(control->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* ---- frames to this node ------------------------------------------------------------------------------- */

static void note_free(struct remo__note *note) {
    if (note->fd >= 0)
        close(note->fd);
    free(note);
}

static int note_new(uint16_t type, const void *data, size_t bytes, int fd, struct remo__note **ret_note) {
    struct remo__note *note = malloc(sizeof *note + bytes);
    if (!note)
        return -ENOMEM;
    *note = (struct remo__note){.type = type, .bytes = bytes, .fd = -1};
    if (bytes > 0)
        memcpy(note->data, data, bytes);
    if (fd >= 0) {
        note->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (note->fd < 0) {
            int rc = -errno;
            free(note);
            return rc;
        }
    }
    *ret_note = note;
    return 0;
}

static int note_send(struct remo__control *control, uint16_t type, const void *data, size_t bytes, int fd) {
    struct remo__note *note = NULL;
    int rc = note_new(type, data, bytes, fd, &note);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&control->notes_lock);
    bool fits = control->notes_bytes + bytes <= REMO__SEND_QUEUE_BYTES_MAX;
    if (fits) {
        *control->notes_last = note;
        control->notes_last = &note->next;
        control->notes_bytes += bytes;
    }
    pthread_mutex_unlock(&control->notes_lock);
    if (!fits) {
        note_free(note);
        return -ENOBUFS;
    }
    remo__control_wake(control);
    return 0;
}

static struct remo__note *notes_take(struct remo__control *control) {
    pthread_mutex_lock(&control->notes_lock);
    struct remo__note *first = control->notes_first;
    control->notes_first = NULL;
    control->notes_last = &control->notes_first;
    control->notes_bytes = 0;
    pthread_mutex_unlock(&control->notes_lock);
    return first;
}

static void notes_deliver(struct remo__control *control) {
    const struct remo__control_config *config = &control->config;
    struct remo__note *next;
    for (struct remo__note *note = notes_take(control); note; note = next) {
        next = note->next;
        config->frame(config->ctx, control->rank, note->type, note->data, note->bytes, note->fd);
        free(note);
    }
}

/* ---- timers -------------------------------------------------------------------------------------------- */

/* Send a heartbeat over a network, and check that the peer has sent one. */
static void peer_heartbeat(struct remo__control *control, struct remo__member *peer, uint64_t now,
                           bool was_away) {
    struct remo__connection *connection = peer->connection;
    const struct remo__control_config *config = &control->config;
    if (!connection || !connection->has_heartbeats)
        return;
    if (now >= connection->heartbeat_at) {
        connection->heartbeat_at = now + config->heartbeat_ns;
        pthread_mutex_lock(&peer->lock);
        remo__connection_send(connection, REMO__FRAME_HEARTBEAT, REMO__FRAME_INTERNAL, NULL, 0, -1);
        pthread_mutex_unlock(&peer->lock);
    }
    remo__control_arm(control, connection->heartbeat_at);
    if (was_away)
        connection->received_at = now;
    uint64_t received_at = connection->received_at;
    if (now < received_at + config->silence_ns)
        return;
    /* Frames that wait in the socket count, although this thread has not read them yet. */
    remo__connection_receive(connection);
    if (connection->phase == REMO__PHASE_UP && connection->received_at == received_at)
        remo__end_silent(control, peer);
}

/* Retry after the kernel lacked memory or descriptors in flight (RLIMIT_NOFILE bounds them for each user). */
static void peer_retry_send(struct remo__control *control, struct remo__member *peer, uint64_t now) {
    pthread_mutex_lock(&peer->lock);
    struct remo__connection *connection = peer->connection;
    if (connection && connection->stalled) {
        remo__connection_flush(connection);
        if (connection->stalled)
            remo__control_arm(control, now + STALL_NS);
    }
    pthread_mutex_unlock(&peer->lock);
}

static void pending_expire(struct remo__control *control, uint64_t now) {
    struct remo__connection *next;
    for (struct remo__connection *connection = control->pending_first; connection; connection = next) {
        next = connection->next;
        if (now < connection->deadline)
            remo__control_arm(control, connection->deadline);
        else if (connection->phase == REMO__PHASE_DIALING)
            remo__connection_drop(connection, "no connection within %.0f s",
                                  (double)REMO__HANDSHAKE_NS / 1e9);
        else
            remo__connection_drop(connection, "no answer within %.0f s", (double)REMO__HANDSHAKE_NS / 1e9);
    }
}

static void timers_run(struct remo__control *control) {
    uint64_t now = remo__now_ns();
    if (now < control->timer_at)
        return;
    /* If this thread did not run (a stopped process, a paused machine), the silence is not the peers'. */
    bool was_away = now - control->timer_at > control->config.silence_ns / 2;
    control->timer_at = REMO_FOREVER;
    pending_expire(control, now);
    for (uint32_t i = 0; i < control->size; i++) {
        remo__member_dial_when_due(control, &control->peers[i], now);
        peer_heartbeat(control, &control->peers[i], now, was_away);
        peer_retry_send(control, &control->peers[i], now);
    }
    remo__end_decide(control, now, was_away);
    if (now >= control->listen_again_at) {
        remo__listeners_watch(control, EPOLL_CTL_ADD);
        control->listen_again_at = REMO_FOREVER;
    }
    remo__control_arm(control, control->listen_again_at);
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

static void closed_free(struct remo__control *control) {
    while (control->closed) {
        struct remo__connection *connection = control->closed;
        control->closed = connection->next;
        free(connection);
    }
}

static int wait_ms(uint64_t until) {
    uint64_t left = remo__remaining_ns(until);
    if (left == REMO_FOREVER)
        return -1;
    return (int)remo__min((left + REMO__NS_PER_MS - 1) / REMO__NS_PER_MS, 3600 * 1000);
}

static void wake_clear(struct remo__control *control) {
    uint64_t count;
    if (read(control->wake_fd, &count, sizeof count) <= 0)
        return;
    remo__control_arm(control, remo__now_ns()); /* a sender may have stalled */
    if (control->config.woken)
        control->config.woken(control->config.ctx);
}

static void serve_round(struct remo__control *control) {
    struct epoll_event events[EVENTS_MAX];
    uint64_t began_at = remo__now_ns();
    int count = epoll_wait(control->epoll_fd, events, EVENTS_MAX, wait_ms(control->timer_at));
    for (int i = 0; i < count; i++) {
        struct remo__watch *watch = events[i].data.ptr;
        if (watch->kind == REMO__WATCH_WAKE)
            wake_clear(control);
        else if (watch->kind == REMO__WATCH_LISTENER)
            remo__listener_event(control, (struct remo__listener *)watch);
        else
            remo__connection_event((struct remo__connection *)watch, events[i].events);
    }
    if (count >= 0 && count < EVENTS_MAX)
        control->read_until = began_at;
    notes_deliver(control);
    timers_run(control);
    closed_free(control);
}

/* Discard received data: the node is closing. False once the peer has closed its end. */
static bool leave_receive(const struct remo__connection *connection) {
    char scrap[4096];
    ssize_t got;
    do
        got = recv(connection->link.fd, scrap, sizeof scrap, MSG_DONTWAIT);
    while (got > 0 || (got < 0 && errno == EINTR));
    return got < 0 && errno == EAGAIN;
}

/* Send the queued frames; true when the connection is closed. Over a network the peer closes first: close()
 * with unread data sends a reset, which could discard the last frames at the peer. */
static bool leave_peer(struct remo__member *peer) {
    struct remo__connection *connection = peer->connection;
    bool is_open = leave_receive(connection);
    pthread_mutex_lock(&peer->lock);
    remo__connection_flush(connection);
    bool sent = !connection->link.first;
    if (sent && !connection->place.is_unix)
        shutdown(connection->link.fd, SHUT_WR);
    bool done = !is_open || (sent && connection->place.is_unix);
    if (done) {
        peer->connection = NULL;
        peer->presence = REMO__PEER_DOWN;
        remo__connection_close(connection);
    }
    pthread_mutex_unlock(&peer->lock);
    return done;
}

static void leave_round(struct remo__control *control, uint32_t *left, uint64_t deadline) {
    struct epoll_event events[EVENTS_MAX];
    for (uint32_t i = 0; i < control->size; i++) {
        struct remo__member *peer = &control->peers[i];
        if (peer->connection && leave_peer(peer))
            (*left)--;
    }
    if (*left > 0)
        epoll_wait(control->epoll_fd, events, EVENTS_MAX, (int)remo__min((uint64_t)wait_ms(deadline), 10));
}

static void leave(struct remo__control *control) {
    uint64_t deadline = remo__deadline(LEAVE_NS);
    uint32_t left = 0;
    remo__listeners_close(control);
    while (control->pending_first)
        remo__connection_close(control->pending_first);
    for (uint32_t i = 0; i < control->size; i++) {
        struct remo__member *peer = &control->peers[i];
        pthread_mutex_lock(&peer->lock);
        if (peer->connection) {
            remo__connection_send(peer->connection, REMO__FRAME_LEAVE, REMO__FRAME_INTERNAL, NULL, 0, -1);
            left++;
        }
        pthread_mutex_unlock(&peer->lock);
    }
    while (left > 0 && remo__remaining_ns(deadline) > 0)
        leave_round(control, &left, deadline);
}

static void *serve(void *argument) {
    struct remo__control *control = argument;
    while (!atomic_load(&control->closing))
        serve_round(control);
    leave(control);
    return NULL;
}

/* ---- opening and closing ------------------------------------------------------------------------------- */

static int places_open(struct remo__control *control, struct remo__member *peer) {
    peer->places = calloc(REMO__PLACES_MAX, sizeof *peer->places);
    if (!peer->places)
        return remo__fail(-ENOMEM, "no memory for the addresses of rank %u", peer->rank);
    int rc = remo__address_resolve(control->roster->addresses[peer->rank], peer->places, &peer->place_count);
    /* This node does not dial a higher rank. The places only serve is_plausible, so an error is ignored. */
    if (rc != 0 && peer->rank < control->rank)
        return remo__fail_more(rc, "rank %u", peer->rank);
    while (peer->unix_count < peer->place_count && peer->places[peer->unix_count].is_unix)
        peer->unix_count++;
    return 0;
}

static int peers_open(struct remo__control *control) {
    control->peers = calloc(control->size, sizeof *control->peers);
    struct remo__loss *losses = calloc(control->size, sizeof *losses);
    if (!control->peers || !losses) {
        free(losses);
        return remo__fail(-ENOMEM, "no memory for %u peers", control->size);
    }
    /* A peer that has really failed is detected within this time, by its socket or its silence. */
    remo__losses_init(&control->losses, control->rank, control->size, 2 * control->config.silence_ns, losses);
    control->machine_count = control->size; /* lower ones are those of losses_init */
    for (uint32_t i = 0; i < control->size; i++) {
        control->peers[i].rank = i;
        pthread_mutex_init(&control->peers[i].lock, NULL);
    }
    uint32_t known = control->roster->has_key ? control->size : control->rank;
    for (uint32_t i = 0; i < known; i++) {
        int rc = i == control->rank ? 0 : places_open(control, &control->peers[i]);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int events_open(struct remo__control *control) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &control->wake_watch};
    control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    control->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->epoll_fd < 0 || control->wake_fd < 0
        || epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->wake_fd, &event) != 0)
        return remo__fail(-errno, "cannot create an event queue: %s; see ulimit -n", strerror(errno));
    return 0;
}

static void control_free(struct remo__control *control) {
    remo__listeners_close(control);
    for (uint32_t i = 0; control->peers && i < control->size; i++) {
        struct remo__member *peer = &control->peers[i];
        if (peer->connection)
            remo__connection_close(peer->connection);
        pthread_mutex_destroy(&peer->lock);
        free(peer->places);
    }
    closed_free(control);
    struct remo__note *next;
    for (struct remo__note *note = notes_take(control); note; note = next) {
        next = note->next;
        note_free(note);
    }
    pthread_mutex_destroy(&control->notes_lock);
    if (control->wake_fd >= 0)
        close(control->wake_fd);
    if (control->epoll_fd >= 0)
        close(control->epoll_fd);
    free(control->losses.of);
    free(control->peers);
    free(control);
}

static void control_fill(struct remo__control *control, const struct remo__control_config *config) {
    control->config = *config;
    control->config.heartbeat_ns = config->heartbeat_ns ? config->heartbeat_ns : HEARTBEAT_DEFAULT_NS;
    control->config.silence_ns = config->silence_ns ? config->silence_ns : SILENCE_DEFAULT_NS;
    control->roster = config->roster;
    control->rank = config->roster->rank;
    control->size = config->roster->size;
    control->hello_bytes = config->hello_bytes;
    if (config->hello_bytes > 0)
        memcpy(control->hello, config->hello, config->hello_bytes);
    remo__boot_id(control->boot_id);
    control->epoll_fd = control->wake_fd = -1;
    control->wake_watch.kind = REMO__WATCH_WAKE;
    control->listen_again_at = REMO_FOREVER;
    control->notes_last = &control->notes_first;
    pthread_mutex_init(&control->notes_lock, NULL);
}

int remo__control_open(const struct remo__control_config *config, struct remo__control **ret_control) {
    assert(config->up && config->frame && config->down && config->roster->size > 0);
    if (config->hello_bytes > REMO__HELLO_BYTES_MAX)
        return remo__fail(-EINVAL, "the hello has %zu bytes, at most %u are allowed", config->hello_bytes,
                          REMO__HELLO_BYTES_MAX);
    struct remo__control *control = calloc(1, sizeof *control);
    if (!control)
        return remo__fail(-ENOMEM, "no memory for the control plane");
    control_fill(control, config);
    int rc = events_open(control);
    if (rc == 0)
        rc = peers_open(control);
    if (rc == 0)
        rc = remo__listeners_open(control);
    if (rc == 0) {
        *ret_control = control; /* before the first callback, which may send */
        rc = remo__helper_start(&control->thread, "remo-control", serve, control);
    }
    if (rc != 0) {
        control_free(control);
        *ret_control = NULL;
    }
    return rc;
}

void remo__control_close(struct remo__control *control) {
    if (!control)
        return;
    assert(!pthread_equal(pthread_self(), control->thread)); /* a callback must not close the control plane */
    atomic_store(&control->closing, true);
    remo__control_wake(control);
    pthread_join(control->thread, NULL);
    control_free(control);
}

/* ---- sending ------------------------------------------------------------------------------------------- */

static int peer_send(struct remo__control *control, struct remo__member *peer, uint16_t type,
                     const void *data, size_t bytes, int fd) {
    int rc = -EHOSTDOWN;
    bool stalled = false;
    pthread_mutex_lock(&peer->lock);
    struct remo__connection *connection = peer->connection;
    if (connection) {
        bool before = connection->stalled;
        rc = remo__connection_send(connection, type, 0, data, bytes, fd);
        stalled = connection->stalled && !before;
    } else if (peer->presence == REMO__PEER_NEVER) {
        rc = -ENOTCONN;
    }
    pthread_mutex_unlock(&peer->lock);
    if (stalled)
        remo__control_wake(control);
    return rc;
}

int remo__control_send(struct remo__control *control, uint32_t peer, uint16_t type, const void *data,
                       size_t bytes, int fd) {
    if (peer >= control->size)
        return remo__fail(-EINVAL, "cannot send to node %u: the job has %u nodes", peer, control->size);
    if (bytes > REMO__FRAME_BYTES_MAX)
        return remo__fail(-EMSGSIZE, "a control message has %zu bytes, at most %u are allowed", bytes,
                          REMO__FRAME_BYTES_MAX);
    int rc = peer == control->rank ? note_send(control, type, data, bytes, fd)
                                   : peer_send(control, &control->peers[peer], type, data, bytes, fd);
    switch (rc) {
    case 0: return 0;
    case -EHOSTDOWN: return remo__fail(rc, "node %u is down", peer);
    case -ENOTCONN: return remo__fail(rc, "node %u is not connected yet", peer);
    case -ENOBUFS:
        return remo__fail(rc, "%u MiB of control messages to node %u are not sent yet; retry later",
                          REMO__SEND_QUEUE_BYTES_MAX >> 20, peer);
    default: return remo__fail(rc, "cannot send a control message to node %u: %s", peer, strerror(-rc));
    }
}

enum remo__why remo__control_why(struct remo__control *control, uint32_t peer, char *ret_text, size_t cap) {
    ret_text[0] = '\0';
    if (peer >= control->size)
        return REMO__WHY_AWAY;
    pthread_mutex_lock(&control->peers[peer].lock);
    snprintf(ret_text, cap, "%s", control->peers[peer].why);
    enum remo__why kind = control->peers[peer].why_kind;
    pthread_mutex_unlock(&control->peers[peer].lock);
    return kind;
}
