/* workers.c - a work queue whose workers fail. Node 0 hands out tasks and adds up the results.
 *     remo run -n 4 -- ./workers        Then kill workers.
 * If a worker fails, its task is lost, and so are tasks and results in its slots of the queues. Node 0 gets
 * -EHOSTDOWN once, and pushes each task without a result again. A task done twice counts once. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <unistd.h>

#define TASKS 1000u
struct result {
    uint64_t task, value;
};

static struct remo_queue *tasks, *results; /* both with home 0 */
static struct result done[TASKS + 1];      /* node 0: a task of 0 stands for "no result" */

/* Push tasks without a result, from *next on, until the queue is full. */
static int hand_out(uint64_t *next) {
    for (; *next <= TASKS; (*next)++) {
        int rc = done[*next].task ? 0 : remo_queue_push(tasks, next, sizeof *next, 0);
        if (rc != 0)
            return rc == -ETIMEDOUT ? 0 : rc;
    }
    return 0;
}

static int collect(const struct remo_node *node, uint64_t *ret_sum) {
    struct result result;
    uint64_t next = 1, missing = TASKS;
    size_t bytes;
    while (missing > 0) {
        int rc = hand_out(&next);
        uint64_t timeout_ns = next <= TASKS ? 1000000 : REMO_FOREVER;
        rc = rc ? rc : remo_queue_pop(results, &result, sizeof result, &bytes, timeout_ns);
        if (rc == 0 && result.task >= 1 && result.task <= TASKS && done[result.task].task == 0) {
            done[result.task] = result;
            *ret_sum += result.value;
            missing--;
        }
        uint32_t peer = 1; /* the first worker that is up */
        while (rc == -EHOSTDOWN && peer < remo_node_size(node) && remo_node_peer(node, peer) != REMO_PEER_UP)
            peer++;
        if ((rc != 0 && rc != -ETIMEDOUT && rc != -EHOSTDOWN) || peer == remo_node_size(node))
            return rc;
        next = rc == -EHOSTDOWN ? 1 : next; /* a worker has failed, and tasks are lost */
    }
    return 0;
}

/* Work until node 0 leaves. If another worker fails, a call ends without effect: repeat it. */
static int work(const struct remo_node *node) {
    struct result result;
    size_t bytes;
    int rc = 0, is_done = 1; /* the current task */
    printf("node %u works (process %d)\n", remo_node_rank(node), getpid());
    fflush(stdout);
    while ((rc == 0 || rc == -EHOSTDOWN) && remo_node_peer(node, 0) == REMO_PEER_UP) {
        if (is_done) {
            rc = remo_queue_pop(tasks, &result, sizeof result, &bytes, REMO_FOREVER);
            is_done = rc != 0;
        } else {
            usleep(1000); /* the work */
            result.value = result.task * result.task;
            rc = remo_queue_push(results, &result, sizeof result, REMO_FOREVER);
            is_done = rc == 0;
        }
    }
    return remo_channel_peer(remo_queue_channel(tasks), 0) == REMO_CHANNEL_CONNECTED ? rc : 0;
}

static int run(struct remo_node *node) {
    struct remo_queue_options options = {.slot_bytes = sizeof(struct result)};
    uint64_t sum = 0;
    int rc = remo_queue_open(remo_node_root(node), "tasks", &options, &tasks);
    rc = rc ? rc : remo_queue_open(remo_node_root(node), "results", &options, &results);
    rc = rc ? rc : remo_channel_wait(remo_node_root(node), REMO_SECONDS(60));
    if (rc == 0 && remo_node_rank(node) != 0)
        return work(node);
    rc = rc ? rc : collect(node, &sum);
    if (rc == 0)
        printf("the squares of 1 to %u add up to %llu\n", TASKS, (unsigned long long)sum);
    return rc ? rc : sum == TASKS * (TASKS + 1ull) * (2 * TASKS + 1) / 6 ? 0 : -EBADMSG;
}

int main(void) {
    struct remo_node *node;
    int rc = remo_node_open(NULL, &node);
    if (rc == 0) {
        rc = run(node);
        remo_queue_close(results);
        remo_queue_close(tasks);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "workers: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
