/* fence.c - fences of a region whose writes are lost, or whose flush reads fail or are delayed.
 * A fence that returns 0 has placed all writes that it covers; a loss is returned once. */
#include <errno.h>
#include <string.h>

#include "objects/region.h"
#include "remote/fence.h"
#include "remote/slots.h"
#include "sim/cases/region.h"

#define FENCE_CASE(variable, ...)                                           \
    const struct sim_case sim_case_##variable = {.object = "region",        \
                                                 .open = sim_region_open,   \
                                                 .close = sim_region_close, \
                                                 .has_own_fault = true,     \
                                                 __VA_ARGS__}
#define NEED_FLUSHES "ibta_rc, rc_relaxed" /* the profiles whose fences flush by reads */

/* Node 0 writes a word to each node from 1 to `last`. */
static void write_to(const struct region_state *s, uint32_t last) {
    static const uint64_t word = 7;
    for (uint32_t to = 1; to <= last; to++)
        sim_require(remo_region_write(s->regions[0], to, 0, &word, sizeof word, 0, NULL) == 0, "write: %s",
                    remo_last_error());
}

/* A fence that times out returns none of the losses that it has found: each later fence that covers one
 * returns it. Writes to nodes 2 and 3 are lost with those nodes; the write to node 1 is delayed. */
static void losses_body(void *state, uint32_t rank, uint32_t thread) {
    struct region_state *s = state;
    (void)thread;
    if (rank != 0)
        return;
    sim_delay(0, 0, 3);
    write_to(s, 3);
    sim_crash(2);
    sim_crash(3);
    int rc = remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0);
    sim_require(rc == -ETIMEDOUT || rc == -EHOSTDOWN, "the fence returns %d while a write is in flight", rc);
    sim_delay_end();
    for (uint32_t to = 2; to < 4; to++)
        sim_require(remo_fence(s->nodes[0], REMO_FENCE_PAIR, to) != 0,
                    "a write to node %u is lost, and no fence has returned it", to);
    sim_require(remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0) == 0, "a loss is returned twice: %s",
                remo_last_error());
}

FENCE_CASE(fence_losses, .name = "fence_losses", .needs_flight = true,
           .about = "a fence that times out leaves lost writes to later ones", .nodes = 4, .threads = 1,
           .state_bytes = sizeof(struct region_state), .body = losses_body);

static uint64_t reads_of(struct remo_node *node) {
    struct remo_stats stats;
    remo_thread_stats(node, &stats);
    return stats.reads;
}

/* A fence that node 1 does not answer places the writes to node 2. While its read from node 1 is in flight,
 * later fences post no other one. */
static void peers_body(void *state, uint32_t rank, uint32_t thread) {
    struct region_state *s = state;
    (void)thread;
    if (rank != 0)
        return;
    sim_delay(0, 2, 1); /* of two writes and two reads, the read from node 1 */
    write_to(s, 2);
    int rc = remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0);
    sim_require(rc == -ETIMEDOUT && strstr(remo_last_error(), "node 1"), "fence: %d (%s)", rc,
                remo_last_error());
    sim_require(remo__peer_quiescent(s->nodes[0], 2), "the write to node 2 counts as unplaced");
    sim_require(!remo__peer_quiescent(s->nodes[0], 1), "the write to node 1 counts as placed");
    uint64_t reads = reads_of(s->nodes[0]);
    rc = remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0);
    sim_require(rc == -ETIMEDOUT, "second fence: %d (%s)", rc, remo_last_error());
    sim_delay_end();
    rc = remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0);
    sim_require(rc == 0, "fence: %s", remo_last_error());
    sim_require(reads_of(s->nodes[0]) == reads, "a fence has posted a second flush read to node 1");
}

FENCE_CASE(fence_peers, .name = "fence_peers", .about = "a peer that does not answer delays no other's flush",
           .nodes = 3, .threads = 1, .state_bytes = sizeof(struct region_state), .body = peers_body,
           .profiles = NEED_FLUSHES);

/* A write of thread 0 is lost. Of the global fences of threads 1 and 2 one returns the loss, and so does the
 * next fence of thread 0. */
struct reports_state {
    struct region_state base;
    bool written;
    uint32_t done, own_losses, other_losses;
};

static bool is_lost(void *ctx) {
    return ((struct reports_state *)ctx)->written;
}

static bool have_others_fenced(void *ctx) {
    return ((struct reports_state *)ctx)->done == 2;
}

/* Fence twice. Returns the number of fences that returned a loss. */
static uint32_t count_losses(const struct reports_state *s, enum remo_fence_scope scope) {
    struct remo_node *node = s->base.nodes[0];
    uint32_t losses = 0;
    for (uint32_t i = 0; i < 2; i++) {
        int loss = 0, rc = remo__fence_retry(remo__thread(node), scope, 0, &loss);
        sim_require(rc == 0, "fence: %d", rc);
        losses += loss != 0;
    }
    return losses;
}

static void reports_body(void *state, uint32_t rank, uint32_t thread) {
    struct reports_state *s = state;
    if (rank != 0)
        return;
    if (thread != 0) {
        sim_until(is_lost, s, "wait for the lost write");
        s->other_losses += count_losses(s, REMO_FENCE_GLOBAL);
        s->done++;
        return;
    }
    sim_delay(0, 0, 1);
    write_to(&s->base, 1);
    sim_crash(1);
    s->written = true;
    sim_until(have_others_fenced, s, "wait for the fences of the other threads");
    s->own_losses = count_losses(s, REMO_FENCE_THREAD);
}

static void reports_check(void *state) {
    const struct reports_state *s = state;
    sim_require(s->own_losses == 1, "the writing thread got the loss %u times", s->own_losses);
    sim_require(s->other_losses == 1, "the other threads got the loss %u times", s->other_losses);
}

FENCE_CASE(fence_reports, .name = "fence_reports", .needs_flight = true,
           .about = "a lost write, and global fences of two other threads", .nodes = 2, .threads = 3,
           .state_bytes = sizeof(struct reports_state), .body = reports_body, .check = reports_check);

static bool has_no_operation(void *ctx) {
    return remo__slots_progress(ctx) == 0;
}

/* No fence returns the failure of an exempt write, even if its ack was cancelled. */
static void exempt_body(void *state, uint32_t rank, uint32_t thread) {
    struct region_state *s = state;
    struct remo_region *region = s->regions[rank];
    struct remo__thread *self = remo__thread(s->nodes[rank]);
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t word = 7;
    int loss = 0;
    (void)thread;
    if (rank != 0)
        return;
    sim_delay(0, 0, 1);
    struct remo__ref ref;
    sim_require(remo__memory_find_now(region->memory, self, 1, 0, &ref), "node 1 is not connected");
    int rc = remo__write(ref, &word, sizeof word, REMO__WRITE_EXEMPT, &ack);
    sim_require(rc == 0, "write: %s", remo_last_error());
    remo_ack_cancel(&ack);
    sim_crash(1);
    sim_until(has_no_operation, self, "wait for the end of the write");
    rc = remo__fence_retry(self, REMO_FENCE_THREAD, 0, &loss);
    sim_require(rc == 0 && loss == 0, "fence: %d, loss %d", rc, loss);
}

FENCE_CASE(fence_exempt, .name = "fence_exempt", .about = "an exempt write whose ack was cancelled is lost",
           .nodes = 2, .threads = 1, .state_bytes = sizeof(struct region_state), .body = exempt_body);

/* The read that flushes an exempt write fails: the fence of a close repeats it. */
static void leave_body(void *state, uint32_t rank, uint32_t thread) {
    struct region_state *s = state;
    struct remo_node *node = s->nodes[rank];
    struct remo__thread *self = remo__thread(node);
    struct remo_ack ack = REMO_ACK_INIT;
    uint64_t word = 7, reads = reads_of(node);
    (void)thread;
    if (rank != 0)
        return;
    struct remo__ref ref;
    sim_require(remo__memory_find_now(s->regions[0]->memory, self, 1, 0, &ref), "node 1 is not connected");
    int rc = remo__write(ref, &word, sizeof word, REMO__WRITE_EXEMPT, &ack);
    rc = rc ? rc : remo_ack_wait(&ack, node->op_timeout_ns);
    sim_require(rc == 0, "write: %s", remo_last_error());
    sim_require(!remo__node_quiescent(node), "an exempt write that is not flushed counts as placed");
    sim_fail_next(SIM_FAIL_COMPLETION, 0, 0, 1);
    rc = remo__fence_leave(node);
    sim_require(rc == 0, "fence: %d (%s)", rc, remo_last_error());
    sim_require(remo__node_quiescent(node), "the write counts as unplaced after the fence");
    sim_require(reads_of(node) == reads + 2, "the fence has posted %llu reads",
                (unsigned long long)(reads_of(node) - reads));
}

FENCE_CASE(fence_leave, .name = "fence_leave", .about = "the flush of an exempt write fails, before a close",
           .nodes = 2, .threads = 1, .state_bytes = sizeof(struct region_state), .body = leave_body,
           .profiles = NEED_FLUSHES);

/* All slots of the thread are in use, so the flush read cannot be posted, and an atomic is in flight: the
 * fence takes op_timeout_ns, not twice that. */
static void full_body(void *state, uint32_t rank, uint32_t thread) {
    struct region_state *s = state;
    struct remo_node *node = s->nodes[rank];
    struct remo_ack ack = REMO_ACK_INIT;
    (void)thread;
    if (rank != 0)
        return;
    sim_delay(0, 0, REMO__SLOTS_MAX);
    int rc = remo_region_fetch_add(s->regions[0], 1, 8, 1, NULL, &ack);
    sim_require(rc == 0, "fetch_add: %s", remo_last_error());
    for (uint32_t i = 1; i < REMO__SLOTS_MAX; i++)
        write_to(s, 1);
    uint64_t start_ns = remo__now_ns();
    rc = remo_fence(node, REMO_FENCE_THREAD, 0);
    uint64_t ns = remo__now_ns() - start_ns;
    sim_require(rc == -ETIMEDOUT, "fence: %d (%s)", rc, remo_last_error());
    sim_require(ns < node->op_timeout_ns * 3 / 2, "the fence took %llu ns", (unsigned long long)ns);
    sim_delay_end();
    rc = remo_ack_wait(&ack, node->op_timeout_ns);
    sim_require(rc == 0, "wait: %s", remo_last_error());
}

FENCE_CASE(fence_full, .name = "fence_full", .about = "no slot is free for the flush read of a fence",
           .nodes = 2, .threads = 1, .state_bytes = sizeof(struct region_state), .body = full_body,
           .profiles = NEED_FLUSHES);

/* ---- writes during a flush ---- */

static bool have_all_completed(void *ctx) {
    const struct region_state *s = ctx;
    return remo__slots_progress(remo__thread(s->nodes[0])) == 0;
}

/* The flush read of a fence is in flight when the thread writes again. It completes later than that write is
 * posted, and does not place it: the next fence posts a flush read. */
static void later_body(void *state, uint32_t rank, uint32_t thread) {
    struct region_state *s = state;
    (void)thread;
    if (rank != 0)
        return;
    sim_delay(0, 1, 1); /* of a write and a read, the read */
    write_to(s, 1);
    int rc = remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0);
    sim_require(rc == -ETIMEDOUT, "the fence returns %d while its flush read is in flight", rc);
    write_to(s, 1);
    sim_delay_end();
    sim_until(have_all_completed, s, "wait for the operations");
    sim_require(!remo__peer_quiescent(s->nodes[0], 1), "the second write counts as placed");
    uint64_t reads = reads_of(s->nodes[0]);
    rc = remo_fence(s->nodes[0], REMO_FENCE_THREAD, 0);
    sim_require(rc == 0, "fence: %d (%s)", rc, remo_last_error());
    sim_require(reads_of(s->nodes[0]) == reads + 1, "no flush read follows the second write");
}

FENCE_CASE(fence_later, .name = "fence_later", .about = "a flush read does not place later writes",
           .nodes = 2, .threads = 1, .state_bytes = sizeof(struct region_state), .body = later_body,
           .profiles = NEED_FLUSHES);
