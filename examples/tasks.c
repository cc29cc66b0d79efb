/* tasks.c - many waits in one thread: tasks that follow links through the memory of all nodes.
 *     remo run -n 4 -- ./tasks [TASKS]          Node 0 follows and checks the links.
 * Each read depends on the one before. While one task waits for its read, the others start theirs. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>

#define LINKS 4096u /* on each node */
#define STEPS 2000u /* of each task */
#define TASKS_MAX 256u

struct graph {
    struct remo_region *links;
    uint32_t nodes;
};

struct walk {
    const struct graph *graph;
    uint64_t place; /* of a link, among those of all nodes */
};

/* The link at each place: the place that follows it. */
static uint64_t next_of(const struct graph *graph, uint64_t place) {
    return (place * 2654435761u + 12345) % ((uint64_t)graph->nodes * LINKS);
}

static int fill(const struct graph *graph, uint32_t rank) {
    int rc = 0;
    for (uint64_t i = 0; i < LINKS && rc == 0; i++) {
        uint64_t next = next_of(graph, (uint64_t)rank * LINKS + i);
        rc = remo_region_write(graph->links, rank, 8 * i, &next, sizeof next, 0, NULL);
    }
    return rc;
}

/* The function of each task. */
static int follow_links(void *ctx) {
    struct walk *walk = ctx;
    int rc = 0;
    for (uint32_t i = 0; i < STEPS && rc == 0; i++)
        rc = remo_region_read(walk->graph->links, (uint32_t)(walk->place / LINKS), 8 * (walk->place % LINKS),
                              &walk->place, sizeof walk->place, NULL);
    return rc;
}

/* Run a walk in each task, and count those that end at the right place. */
static int run_tasks(struct remo_node *node, const struct graph *graph, uint32_t count, uint32_t *right) {
    static struct walk walks[TASKS_MAX];
    struct remo_scheduler *scheduler;
    remo_task_id tasks[TASKS_MAX];
    uint32_t spawned = 0;
    int rc = remo_scheduler_open(node, NULL, &scheduler), result = 0;
    for (; spawned < count && rc == 0; spawned += rc == 0) {
        walks[spawned] = (struct walk){.graph = graph, .place = spawned};
        rc = remo_task_spawn(scheduler, follow_links, &walks[spawned], &tasks[spawned]);
    }
    for (uint32_t i = 0; i < spawned; i++) {
        uint64_t expected = i;
        for (uint32_t step = 0; step < STEPS; step++)
            expected = next_of(graph, expected);
        (void)remo_task_join(scheduler, tasks[i], REMO_FOREVER, &result);
        rc = rc ? rc : result;
        *right += walks[i].place == expected;
    }
    (void)(spawned > 0 ? remo_scheduler_close(scheduler) : 0);
    return rc;
}

int main(int argc, char **argv) {
    struct remo_node *node;
    struct graph graph = {0};
    struct remo_barrier *all = NULL;
    uint32_t right = 0, count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 64;
    int rc = count >= 1 && count <= TASKS_MAX ? remo_node_open(NULL, &node) : -EINVAL;
    if (rc == 0) {
        uint32_t rank = remo_node_rank(node);
        graph.nodes = remo_node_size(node);
        rc = remo_region_open(remo_node_root(node), "links", 8 * LINKS, NULL, &graph.links);
        rc = rc ? rc : remo_barrier_open(remo_node_root(node), "all", NULL, &all);
        rc = rc ? rc : remo_channel_wait(remo_node_root(node), REMO_SECONDS(60));
        rc = rc ? rc : fill(&graph, rank);
        rc = rc ? rc : remo_barrier_wait(all, REMO_FOREVER);
        rc = rc || rank != 0 ? rc : run_tasks(node, &graph, count, &right);
        rc = rc ? rc : remo_barrier_wait(all, REMO_FOREVER);
        if (rc == 0 && rank == 0)
            printf("%u of %u tasks are at the end of %u links\n", right, count, STEPS);
        rc = rc == 0 && rank == 0 && right != count ? -EBADMSG : rc;
        remo_barrier_close(all);
        remo_region_close(graph.links);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "tasks: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
