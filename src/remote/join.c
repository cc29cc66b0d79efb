/* join.c - waits until all nodes of the job have joined.
 *
 * A node that ended before it joined never joins. The record of the launcher names such nodes (ended.h), so
 * the wait fails immediately instead of at its deadline. */
#include "remote/join.h"

#include <errno.h>
#include <stdio.h>

#include "bootstrap/roster/ended.h"
#include "remote/wait.h"

#define ENDED_POLL_NS (50 * REMO__NS_PER_MS) /* between reads of the launcher's record of ended nodes */

/* A wait condition: all nodes have joined. */
static int all_up(void *ctx) {
    struct remo_node *node = ctx;
    if (atomic_load(&node->refused))
        return remo__fail(node->join_rc, "%s", node->join_error);
    int ready = 1;
    for (uint32_t peer = 0; peer < node->size; peer++) {
        uint32_t state = atomic_load(&node->peers[peer].state);
        if (state == REMO_PEER_DEAD)
            return remo__fail(
                -EHOSTDOWN,
                "cannot join: node %u failed while the nodes of the job were joining; start the "
                "job again",
                peer);
        if (state == REMO_PEER_LEFT && atomic_load(&node->peers[peer].mapped_bytes) == 0)
            return remo__fail(-EHOSTDOWN, "cannot join: node %u failed to join; see its own error", peer);
        ready = state == REMO_PEER_JOINING || !atomic_load(&node->peers[peer].reported) ? 0 : ready;
    }
    return ready;
}

/* Describe why the first missing node, or the first refused one, is not connected. */
static void describe_missing(struct remo_node *node, char *ret_text, size_t cap) {
    char why[256];
    enum remo__why kind = REMO__WHY_AWAY;
    ret_text[0] = '\0';
    for (uint32_t peer = 0; peer < node->size && kind == REMO__WHY_AWAY; peer++) {
        if (atomic_load(&node->peers[peer].state) != REMO_PEER_JOINING)
            continue;
        kind = remo__control_why(node->control, peer, why, sizeof why);
        if (!ret_text[0] || kind == REMO__WHY_REFUSED)
            snprintf(ret_text, cap, "rank %u: %s", peer, why[0] ? why : "nothing was received from it");
    }
}

static int fail_missing(struct remo_node *node, uint64_t timeout_ns) {
    char list[128] = "", why[288];
    size_t used = 0, missing = 0;
    for (uint32_t peer = 0; peer < node->size; peer++) {
        if (atomic_load(&node->peers[peer].state) != REMO_PEER_JOINING)
            continue;
        missing++;
        if (used < sizeof list - 8)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", used ? ", " : "", peer);
    }
    describe_missing(node, why, sizeof why);
    return remo__fail(
        -ETIMEDOUT,
        "cannot join: %zu of %u nodes did not join within %llu ms: rank %s (%s); start them with the same "
        "size, job and addresses, or raise join_timeout_ns",
        missing, node->size, (unsigned long long)(timeout_ns / REMO__NS_PER_MS), list, why);
}

/* A node joins only after it has connected to this node. So it never joins if the launcher has recorded its
 * end, and it was not connected after the record was read. */
static int find_ended(struct remo_node *node) {
    char text[REMO__ENDED_BYTES_MAX];
    const char *at = text, *end = text + remo__ended_read(node->roster, text);
    uint32_t peer, status;
    while (remo__ended_next(&at, end, &peer, &status)) {
        if (peer < node->size && peer != node->rank && !atomic_load(&node->peers[peer].was_connected))
            return remo__fail(-EHOSTDOWN,
                              "cannot join: node %u ended with status %u before it joined; see its own "
                              "error, then start the job again",
                              peer, status);
    }
    return 0;
}

/* Wait until all nodes have joined. Without the launcher's folder there is no record to poll. If a node fails
 * because another one ended before it joined, that end is the cause to report. */
static int wait_all_up(struct remo_node *node, uint64_t deadline) {
    int rc;
    do {
        uint64_t poll_at = node->roster->job_dir ? remo__deadline(ENDED_POLL_NS) : REMO_FOREVER;
        rc = remo__wait(node, all_up, node, remo__min(poll_at, deadline));
        int ended = rc == -ETIMEDOUT || rc == -EHOSTDOWN ? find_ended(node) : 0;
        if (ended != 0)
            return ended;
    } while (rc == -ETIMEDOUT && remo__remaining_ns(deadline) > 0);
    return rc;
}

int remo__join_wait(struct remo_node *node) {
    int rc = wait_all_up(node, remo__deadline(node->join_timeout_ns));
    return rc == -ETIMEDOUT ? fail_missing(node, node->join_timeout_ns) : rc;
}
