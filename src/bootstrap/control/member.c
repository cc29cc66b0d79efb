/* member.c - why a peer is not connected, and when and where to dial it next.
 *
 * The places of a peer are tried in turn, with back-off after the last. A failed attempt never ends the
 * retries: the deadline of a join belongs to the node. */
#include "bootstrap/control/connection.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#define RETRY_FIRST_NS (1 * REMO__NS_PER_MS)
/* Before the first join retries are fast; a node that has left or failed may never rejoin. */
#define RETRY_JOIN_MAX_NS (50 * REMO__NS_PER_MS)
#define RETRY_REJOIN_MIN_NS (100 * REMO__NS_PER_MS)
#define RETRY_REJOIN_MAX_NS (1 * REMO__NS_PER_S)
#define UNIX_ATTEMPTS 8u

void remo__member_why(struct remo__control *control, struct remo__member *peer, enum remo__why kind,
                      const char *format, ...) {
    char text[REMO__WHY_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&peer->lock);
    bool is_new = kind >= peer->why_kind && strcmp(peer->why, text) != 0;
    if (is_new) {
        memcpy(peer->why, text, strlen(text) + 1);
        peer->why_kind = kind;
    }
    pthread_mutex_unlock(&peer->lock);
    if (is_new)
        remo__log(&control->config.log, REMO_LOG_DEBUG, "node %u is not connected: %s", peer->rank, text);
}

bool remo__member_switch_to_unix(struct remo__member *peer, const struct remo__connection *connection) {
    if (connection->place.is_unix || peer->unix_count == 0 || peer->unix_attempts > 0)
        return false;
    peer->unix_attempts = UNIX_ATTEMPTS;
    peer->next_place = peer->place_count; /* restart with the first place */
    return true;
}

void remo__member_dial_later(struct remo__control *control, struct remo__member *peer) {
    uint64_t first = peer->was_up ? RETRY_REJOIN_MIN_NS : RETRY_FIRST_NS;
    uint64_t last = peer->was_up ? RETRY_REJOIN_MAX_NS : RETRY_JOIN_MAX_NS;
    uint32_t places = peer->unix_attempts > 1 ? peer->unix_count : peer->place_count;
    peer->unix_attempts -= peer->unix_attempts > 1;
    peer->next_place++;
    peer->retry_at = remo__now_ns();
    if (peer->next_place >= places) {
        peer->next_place = 0;
        peer->retry_delay = remo__max(first, remo__min(2 * peer->retry_delay, last));
        peer->retry_at += peer->retry_delay;
    }
    remo__control_arm(control, peer->retry_at);
}

void remo__member_dial_failed(struct remo__control *control, struct remo__member *peer,
                              const struct remo__place *place, int rc) {
    bool network_next = place->is_unix && peer->place_count > peer->unix_count && peer->unix_attempts <= 1;
    if (network_next)
        ; /* the TCP attempt will give the better reason: the peer may be on another machine */
    else if (rc == -ECONNREFUSED)
        remo__member_why(control, peer, REMO__WHY_AWAY, "connection refused at %s", place->text);
    else if (rc == -ENOENT)
        remo__member_why(control, peer, REMO__WHY_AWAY, "no process listens at %s", place->text);
    else if (rc == -EPERM)
        remo__member_why(control, peer, REMO__WHY_REFUSED, "a process of another user listens at %s",
                         place->text);
    else
        remo__member_why(control, peer, REMO__WHY_AWAY, "%s: %s", place->text, strerror(-rc));
    remo__member_dial_later(control, peer);
}
