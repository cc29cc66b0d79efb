/* dial.c - dials peers of lower rank when their retry time has come.
 *
 * A peer has at most one attempt at a time. member.c decides when and where the next one begins. */
#include "bootstrap/control/connection.h"

#include <errno.h>
#include <unistd.h>

#include "bootstrap/control/user.h"

static void dial(struct remo__control *control, struct remo__member *peer) {
    const struct remo__place *place = &peer->places[peer->next_place];
    int fd = -1, rc = remo__place_connect(place, &fd);
    if (rc == 0 && place->is_unix && remo__peer_check_user(fd) != 0) {
        close(fd);
        rc = -EPERM;
    }
    if (rc == 0 || rc == -EINPROGRESS)
        rc = remo__connection_dialed(control, peer, fd, place, rc == 0);
    if (rc != 0)
        remo__member_dial_failed(control, peer, place, rc);
}

void remo__member_dial_when_due(struct remo__control *control, struct remo__member *peer, uint64_t now) {
    if (peer->rank >= control->rank || peer->connection || peer->attempt || control->has_ended_all)
        return;
    if (now >= peer->retry_at)
        dial(control, peer);
    else
        remo__control_arm(control, peer->retry_at);
}
