/* member.c - the smallest member of a job, for tests of the launchers.
 *
 * It joins by the settings of its environment, connects to all peers, prints "rank R of S, job J", and leaves
 * when all peers are ready. Options change that: see below. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/control/control.h"
#include <remo/barrier.h>
#include <remo/node.h>
#include <remo/region.h>

/* member --size N     the program sets N nodes, which must agree with the launcher
 * member --fail R     rank R kills itself when all are ready; each peer prints "rank X detected the failure
 *                     of R", and exits with 0
 * member --open N     opens and closes a node instead, after N ms; prints "rank R opened"
 * member --region N   opens a node and a region of N MiB per rank instead; prints "rank R: " and the code */

#define WAIT_NS (100 * REMO__NS_PER_S)

static atomic_uint ups, readies, failures;
static atomic_int failed_rank = -1;

static void on_up(void *ctx, uint32_t peer, uint32_t incarnation, bool same_machine, const void *hello,
                  size_t bytes) {
    (void)ctx;
    (void)peer;
    (void)incarnation;
    (void)same_machine;
    (void)hello;
    (void)bytes;
    atomic_fetch_add(&ups, 1);
}

static void on_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes, int fd) {
    (void)ctx;
    (void)peer;
    (void)type;
    (void)data;
    (void)bytes;
    if (fd >= 0)
        close(fd);
    atomic_fetch_add(&readies, 1);
}

/* A peer that has detected the failure may leave before this node detects it. */
static void on_down(void *ctx, uint32_t peer, int reason) {
    (void)ctx;
    if (reason == 0)
        return;
    atomic_store(&failed_rank, (int)peer);
    atomic_fetch_add(&failures, 1);
}

static int wait_for(atomic_uint *counter, uint32_t count) {
    uint64_t deadline = remo__deadline(WAIT_NS);
    while (atomic_load(counter) < count) {
        if (remo__remaining_ns(deadline) == 0)
            return -ETIMEDOUT;
        usleep(1000);
    }
    return 0;
}

static void print_missing(struct remo__control *control, const struct remo__roster *roster) {
    for (uint32_t i = 0; i < roster->size; i++) {
        char why[256];
        remo__control_why(control, i, why, sizeof why);
        if (why[0] != '\0')
            fprintf(stderr, "rank %u is not connected to %u: %s\n", roster->rank, i, why);
    }
}

static int take_part(struct remo__control *control, const struct remo__roster *roster, int failing_rank) {
    uint32_t others = roster->size - 1;
    if (wait_for(&ups, others) != 0) {
        print_missing(control, roster);
        return 1;
    }
    printf("rank %u of %u, job %s\n", roster->rank, roster->size, roster->job);
    fflush(stdout);
    for (uint32_t i = 0; i < roster->size; i++) {
        if (i != roster->rank && remo__control_send(control, i, 1, NULL, 0, -1) != 0)
            return 1;
    }
    if (wait_for(&readies, others) != 0)
        return 1;
    if (failing_rank == (int)roster->rank)
        kill(getpid(), SIGKILL);
    if (failing_rank >= 0) {
        if (wait_for(&failures, 1) != 0)
            return 1;
        printf("rank %u detected the failure of %d\n", roster->rank, atomic_load(&failed_rank));
    }
    return 0;
}

static int open_node(unsigned int after_ms) {
    struct remo_node *node;
    usleep(after_ms * 1000);
    int rc = remo_node_open(NULL, &node);
    if (rc != 0) {
        fprintf(stderr, "member: %s: %s\n", remo_error_name(rc), remo_last_error());
        return 3;
    }
    printf("rank %u opened\n", remo_node_rank(node));
    remo_node_close(node);
    return 0;
}

/* Write the last word of the next node's memory, and read it back. */
static int use_region(struct remo_node *node, struct remo_region *region, uint64_t size_bytes) {
    uint32_t next = (remo_node_rank(node) + 1) % remo_node_size(node);
    uint64_t word = 1 + remo_node_rank(node), back = 0, offset = size_bytes - sizeof word;
    int rc = remo_region_write(region, next, offset, &word, sizeof word, 0, NULL);
    rc = rc ? rc : remo_fence(node, REMO_FENCE_THREAD, 0);
    rc = rc ? rc : remo_region_read(region, next, offset, &back, sizeof back, NULL);
    return rc == 0 && back != word ? -EIO : rc;
}

static int open_region(uint64_t size_bytes) {
    struct remo_node *node;
    struct remo_barrier *barrier = NULL;
    struct remo_region *region = NULL;
    int rc = remo_node_open(NULL, &node);
    if (rc != 0) {
        fprintf(stderr, "member: %s: %s\n", remo_error_name(rc), remo_last_error());
        return 3;
    }
    uint32_t rank = remo_node_rank(node);
    rc = remo_region_open(remo_node_root(node), "region", size_bytes, NULL, &region);
    rc = rc ? rc : use_region(node, region, size_bytes);
    printf("rank %u: %s\n", rank, rc == 0 ? "opened" : remo_error_name(rc));
    rc = remo_barrier_open(remo_node_root(node), "all", NULL, &barrier);
    rc = rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER); /* no node leaves while peers use its memory */
    remo_barrier_close(barrier);
    remo_region_close(region);
    remo_node_close(node);
    return rc != 0;
}

int main(int argc, char **argv) {
    struct remo__bootstrap_config config = {0};
    struct remo__control_config plane = {.up = on_up, .frame = on_frame, .down = on_down};
    struct remo__roster *roster;
    struct remo__control *control;
    int failing_rank = -1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--size") == 0)
            config.size = (uint32_t)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--fail") == 0)
            failing_rank = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--region") == 0)
            return open_region((uint64_t)atoi(argv[i + 1]) << 20);
        if (strcmp(argv[i], "--open") == 0)
            return open_node((unsigned int)atoi(argv[i + 1]));
    }
    int rc = remo__roster_open(&config, &roster);
    if (rc == 0) {
        plane.roster = roster;
        rc = remo__control_open(&plane, &control);
    }
    if (rc != 0) {
        fprintf(stderr, "member: %s\n", remo_last_error());
        return 3;
    }
    rc = take_part(control, roster, failing_rank);
    remo__control_close(control);
    remo__roster_close(roster);
    return rc;
}
