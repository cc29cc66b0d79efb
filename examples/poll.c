/* poll.c - one thread of node 0 receives from all other nodes, and waits with poll, as event loops do.
 *     remo run -n 3 -- ./poll [LINES]      (1 at least: node 0 opens a ring before its sender leaves)
 * An event has a descriptor, so a loop can wait for Remo and for others: here, for a timer. */
#include <errno.h>
#include <poll.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define LINE_BYTES 64u

static struct remo_ringbuffer *rings[REMO_NODES_MAX]; /* one for each sender */

/* Node `sender` sends to node 0 only. */
static int open_ring(struct remo_node *node, uint32_t sender) {
    struct remo_ringbuffer_options options = {.sender = sender};
    char name[32];
    remo_nodeset_add(&options.participants, 0);
    remo_nodeset_add(&options.participants, sender);
    snprintf(name, sizeof name, "lines-%u", sender);
    return remo_ringbuffer_open(remo_node_root(node), name, &options, &rings[sender]);
}

static int send_all(struct remo_ringbuffer *ring, uint64_t lines) {
    char line[LINE_BYTES] = "a line";
    uint64_t position = 0;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && (i == 0 || i < lines); i++)
        rc = remo_ringbuffer_send(ring, line, sizeof line, REMO_FOREVER, &position);
    return rc ? rc : remo_ringbuffer_wait_received(ring, position, REMO_FOREVER);
}

/* Receive and acknowledge what has arrived. Close the ring if the sender has closed it. */
static int drain(struct remo_ringbuffer **ring, uint64_t *received) {
    char line[LINE_BYTES];
    size_t bytes;
    int rc;
    while ((rc = remo_ringbuffer_receive(*ring, line, sizeof line, &bytes, 0)) == 0)
        ++*received;
    if (rc != -ENOTCONN)
        return rc == -ETIMEDOUT ? remo_ringbuffer_acknowledge(*ring) : rc;
    remo_ringbuffer_close(*ring);
    *ring = NULL;
    return 0;
}

/* Arm the event, then check all rings, then wait: a change after the check makes the descriptor of the event
 * readable. The timer expires if no line arrives for a minute. */
static int serve(struct remo_event *event, uint32_t size, int timer) {
    static const struct itimerspec minute = {.it_value.tv_sec = 60};
    struct pollfd fds[] = {{.fd = remo_event_fd(event), .events = POLLIN}, {.fd = timer, .events = POLLIN}};
    uint64_t received = 0, before = UINT64_MAX;
    int rc = 0, open = 1;
    while (rc == 0 && open) {
        if (received != before)
            timerfd_settime(timer, 0, &minute, NULL);
        before = received;
        rc = remo_event_arm(event);
        open = 0;
        for (uint32_t i = 1; rc == 0 && i < size; i++) {
            rc = rings[i] ? drain(&rings[i], &received) : 0;
            open |= rings[i] != NULL;
        }
        if (rc == 0 && open && received == before && (poll(fds, 2, -1) < 0 || fds[1].revents))
            rc = -ETIMEDOUT;
    }
    if (rc == 0)
        printf("node 0 received %llu lines from %u nodes\n", (unsigned long long)received, size - 1);
    return rc;
}

static int run(struct remo_node *node, uint64_t lines) {
    uint32_t rank = remo_node_rank(node), size = remo_node_size(node);
    struct remo_event *event = NULL;
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), rc = remo_event_open(node, &event);
    for (uint32_t i = 1; rc == 0 && i < size; i++)
        rc = rank == 0 || rank == i ? open_ring(node, i) : 0;
    if (rc == 0)
        rc = rank == 0 ? serve(event, size, timer) : send_all(rings[rank], lines);
    for (uint32_t i = 1; i < size; i++)
        remo_ringbuffer_close(rings[i]);
    remo_event_close(event);
    close(timer);
    return rc;
}

int main(int argc, char **argv) {
    struct remo_node *node;
    int rc = remo_node_open(NULL, &node);
    if (rc == 0) {
        rc = run(node, argc > 1 ? strtoull(argv[1], NULL, 10) : 10000);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "poll: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
