/* listen.c - listens on the node's addresses and accepts connections.
 *
 * Accepted connections that are not authenticated are bounded (connection.h): the oldest is dropped, so idle
 * connections cannot keep peers out. */
#include "bootstrap/control/connection.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "bootstrap/control/user.h"

#define LISTEN_AGAIN_NS (100 * REMO__NS_PER_MS)
#define ACCEPTS_PER_EVENT 64

/* ---- listening ----------------------------------------------------------------------------------------- */

static void listener_add(struct remo__control *control, int fd, const struct remo__place *place,
                         bool made_file) {
    assert(control->listener_count < REMO__LISTENERS_MAX);
    control->listeners[control->listener_count++] = (struct remo__listener){
        .watch.kind = REMO__WATCH_LISTENER, .fd = fd, .place = *place, .made_file = made_file};
}

/* The roster keeps the sockets that it has bound; this node listens on duplicates. */
static int listeners_adopt(struct remo__control *control) {
    for (int i = 0; i < 2; i++) {
        struct remo__place place = {.name_bytes = sizeof place.name};
        if (control->roster->listen_fd[i] < 0)
            continue;
        int fd = fcntl(control->roster->listen_fd[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return remo__fail(-errno, "cannot take over a listening socket: %s; see ulimit -n",
                              strerror(errno));
        getsockname(fd, (struct sockaddr *)&place.name, &place.name_bytes);
        place.is_unix = place.name.ss_family == AF_UNIX;
        listener_add(control, fd, &place, false);
    }
    return 0;
}

/* True if the place is dispensable when another works. A name may resolve to an address that this machine
 * lacks (such as IPv6), and any process may use an abstract name. A port or path in use is an error. */
static bool is_dispensable(const struct remo__place *place, int rc) {
    bool abstract = place->is_unix && ((const struct sockaddr_un *)&place->name)->sun_path[0] == '\0';
    return rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT || (abstract && rc == -EADDRINUSE);
}

static int listeners_open(struct remo__control *control) {
    const struct remo__roster *roster = control->roster;
    struct remo__place places[REMO__PLACES_MAX];
    uint32_t count = 0;
    int rc = remo__address_resolve(roster->addresses[roster->rank], places, &count), lacking = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        int fd = -1, failed = remo__place_listen(&places[i], roster->has_key || roster->use_munge, &fd);
        if (failed == 0)
            listener_add(control, fd, &places[i], true);
        else if (is_dispensable(&places[i], failed))
            lacking = failed;
        else
            rc = failed;
    }
    return rc == 0 && control->listener_count == 0 ? lacking : rc;
}

void remo__listeners_watch(struct remo__control *control, int operation) {
    for (uint32_t i = 0; i < control->listener_count; i++) {
        struct remo__listener *listener = &control->listeners[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listener->watch};
        epoll_ctl(control->epoll_fd, operation, listener->fd, &event);
    }
}

int remo__listeners_open(struct remo__control *control) {
    if (control->size == 1)
        return 0; /* no peer exists */
    int rc = listeners_adopt(control);
    if (rc == 0 && control->listener_count == 0)
        rc = listeners_open(control);
    if (rc != 0)
        return remo__fail_more(rc, "rank %u", control->rank);
    remo__listeners_watch(control, EPOLL_CTL_ADD);
    return 0;
}

void remo__listeners_close(struct remo__control *control) {
    for (uint32_t i = 0; i < control->listener_count; i++) {
        close(control->listeners[i].fd);
        if (control->listeners[i].made_file)
            remo__place_unlink(&control->listeners[i].place);
    }
    control->listener_count = 0;
}

/* ---- accepting ----------------------------------------------------------------------------------------- */

static void place_of_caller(int fd, struct remo__place *place, const struct ucred *user) {
    char host[INET6_ADDRSTRLEN] = "?";
    if (place->is_unix) {
        snprintf(place->text, sizeof place->text, "process %d by Unix socket", (int)user->pid);
        place->is_loopback = true;
        return;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const struct sockaddr_in *name4 = (const struct sockaddr_in *)&place->name;
    const struct sockaddr_in6 *name6 = (const struct sockaddr_in6 *)&place->name;
    bool is4 = place->name.ss_family == AF_INET;
    inet_ntop(place->name.ss_family, is4 ? (const void *)&name4->sin_addr : &name6->sin6_addr, host,
              sizeof host);
    snprintf(place->text, sizeof place->text, is4 ? "tcp:%s:%u" : "tcp:[%s]:%u", host,
             ntohs(is4 ? name4->sin_port : name6->sin6_port));
    place->is_loopback =
        is4 ? ntohl(name4->sin_addr.s_addr) >> 24 == 127
            : IN6_IS_ADDR_LOOPBACK(&name6->sin6_addr)
                  || (IN6_IS_ADDR_V4MAPPED(&name6->sin6_addr) && name6->sin6_addr.s6_addr[12] == 127);
}

/* The user of a TCP connection is checked when its hello arrives: see remo__peer_check_user. */
static void caller_accept(struct remo__control *control, int fd, struct remo__place *place) {
    struct ucred user = {0};
    socklen_t bytes = sizeof user;
    if (place->is_unix)
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &bytes);
    if (place->is_unix && remo__peer_check_user(fd) != 0) {
        remo__log(&control->config.log, REMO_LOG_DEBUG,
                  "a connection of user %u was dropped: this node runs as another user", user.uid);
        close(fd);
        return;
    }
    place_of_caller(fd, place, &user);
    int rc = remo__connection_accepted(control, fd, place);
    if (rc != 0)
        remo__log(&control->config.log, REMO_LOG_WARNING, "a connection from %s was dropped: %s", place->text,
                  strerror(-rc));
}

/* Drop the oldest connection that is not authenticated, so that idle connections cannot keep peers out. */
static bool oldest_accepted_drop(struct remo__control *control) {
    struct remo__connection *connection = control->pending_first;
    while (connection && (connection->connector || connection->phase == REMO__PHASE_BLOB))
        connection = connection->next;
    if (connection)
        remo__connection_drop(connection, "too many connections are pending; this was the oldest");
    return connection;
}

static void pause_listening(struct remo__control *control) {
    remo__log(&control->config.log, REMO_LOG_WARNING, "cannot accept connections: %s; raise ulimit -n",
              strerror(errno));
    remo__listeners_watch(control, EPOLL_CTL_DEL);
    control->listen_again_at = remo__now_ns() + LISTEN_AGAIN_NS;
    remo__control_arm(control, control->listen_again_at);
}

void remo__listener_event(struct remo__control *control, struct remo__listener *listener) {
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct remo__place place = {.is_unix = listener->place.is_unix, .name_bytes = sizeof place.name};
        int fd = accept4(listener->fd, (struct sockaddr *)&place.name, &place.name_bytes,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            if (control->pending_accepted >= control->size + REMO__PENDING_EXTRA)
                oldest_accepted_drop(control);
            caller_accept(control, fd, &place);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!oldest_accepted_drop(control)) {
                pause_listening(control);
                return;
            }
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return; /* EAGAIN, or a queued connection has failed; epoll reports the next */
        }
    }
}
