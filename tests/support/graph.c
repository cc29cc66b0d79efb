/* graph.c - a graph in two arrays (graph.h). A depth-first search finds a cycle if there is one. From nodes
 * of that cycle a breadth-first search then finds a short one: nodes without a name have no length. */
#include "graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STARTS_MAX 24u /* of the search for a short cycle */

/* ---- build ---- */

void graph_edge(struct graph *graph, uint32_t from, uint32_t to) {
    if (from == to)
        return;
    if (graph->counts)
        graph->first[from + 1]++;
    else
        graph->to[graph->first[from]++] = to;
}

int graph_build(struct graph *graph, uint32_t nodes, uint32_t named, void (*emit)(void *ctx), void *ctx) {
    *graph = (struct graph){.nodes = nodes, .named = named, .counts = true};
    graph->first = calloc((size_t)nodes + 2, sizeof graph->first[0]);
    if (!graph->first)
        return -ENOMEM;
    emit(ctx);
    for (uint32_t node = 0; node < nodes; node++)
        graph->first[node + 1] += graph->first[node];
    graph->to = malloc(((size_t)graph->first[nodes] + 1) * sizeof graph->to[0]);
    if (!graph->to)
        return -ENOMEM;
    graph->counts = false;
    emit(ctx); /* advances each entry of `first` to the next one */
    memmove(&graph->first[1], &graph->first[0], nodes * sizeof graph->first[0]);
    graph->first[0] = 0;
    return 0;
}

void graph_free(struct graph *graph) {
    free(graph->first);
    free(graph->to);
    *graph = (struct graph){0};
}

/* ---- any cycle ---- */

enum { WHITE, GREY, BLACK };

struct search {
    uint8_t *colour;
    uint32_t *path, *edge; /* the nodes on the path, and the next edge of each */
    uint32_t depth;
};

static void push(const struct graph *graph, struct search *search, uint32_t node) {
    search->colour[node] = GREY;
    search->path[search->depth] = node;
    search->edge[search->depth++] = graph->first[node];
}

/* Search from one node. Returns the position on the path where a cycle begins, or GRAPH_NONE. */
static uint32_t descend(const struct graph *graph, struct search *search, uint32_t root) {
    push(graph, search, root);
    while (search->depth > 0) {
        uint32_t node = search->path[search->depth - 1], *edge = &search->edge[search->depth - 1];
        if (*edge == graph->first[node + 1]) {
            search->colour[node] = BLACK;
            search->depth--;
            continue;
        }
        uint32_t next = graph->to[(*edge)++];
        if (search->colour[next] == WHITE)
            push(graph, search, next);
        else if (search->colour[next] == GREY)
            for (uint32_t i = search->depth; i-- > 0;)
                if (search->path[i] == next)
                    return i;
    }
    return GRAPH_NONE;
}

/* ---- a short one ---- */

struct breadth {
    uint32_t *distance, *parent, *queue;
};

/* A queue for lengths 0 and 1: two arrays, of this distance and of the next one. */
static uint32_t shortest_from(const struct graph *graph, struct breadth *breadth, uint32_t start) {
    uint32_t *now = breadth->queue, *later = breadth->queue + graph->nodes, count = 1, later_count = 0;
    memset(breadth->distance, 0xff, graph->nodes * sizeof breadth->distance[0]);
    now[0] = start;
    for (uint32_t distance = 0; count > 0; distance++) {
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t edge = graph->first[now[i]]; edge < graph->first[now[i] + 1]; edge++) {
                uint32_t next = graph->to[edge];
                if (breadth->distance[next] != GRAPH_NONE)
                    continue;
                breadth->distance[next] = distance;
                breadth->parent[next] = now[i];
                if (next == start)
                    return distance;
                if (next < graph->named)
                    later[later_count++] = next;
                else
                    now[count++] = next;
            }
        }
        uint32_t *swap = now;
        now = later;
        later = swap;
        count = later_count;
        later_count = 0;
    }
    return GRAPH_NONE;
}

/* Replace the nodes of the cycle by those of the path that `parent` contains. */
static void follow(const struct breadth *breadth, uint32_t start, uint32_t *nodes, uint32_t *count) {
    uint32_t length = 0, node = start;
    do {
        node = breadth->parent[node];
        nodes[length++] = node;
    } while (node != start);
    for (uint32_t i = 0; i < length / 2; i++) {
        uint32_t swap = nodes[i];
        nodes[i] = nodes[length - 1 - i];
        nodes[length - 1 - i] = swap;
    }
    *count = length;
}

/* `nodes` has room for all nodes, and contains a cycle. */
static int shorten(const struct graph *graph, uint32_t *nodes, uint32_t *count) {
    size_t bytes = graph->nodes * sizeof(uint32_t);
    struct breadth breadth = {malloc(bytes), malloc(bytes), malloc(2 * bytes)};
    uint32_t starts[STARTS_MAX], start_count = 0, best = GRAPH_NONE;
    bool is_complete = breadth.distance && breadth.parent && breadth.queue;
    for (uint32_t i = 0; i < *count && start_count < STARTS_MAX; i++)
        if (nodes[i] < graph->named)
            starts[start_count++] = nodes[i];
    for (uint32_t i = 0; is_complete && i < start_count; i++) {
        uint32_t length = shortest_from(graph, &breadth, starts[i]);
        if (length >= best)
            continue;
        best = length;
        follow(&breadth, starts[i], nodes, count);
    }
    free(breadth.distance);
    free(breadth.parent);
    free(breadth.queue);
    return is_complete ? 0 : -ENOMEM;
}

int graph_find_cycle(const struct graph *graph, uint32_t **ret_nodes, uint32_t *ret_count) {
    size_t nodes = (size_t)graph->nodes + 1;
    struct search search = {calloc(nodes, 1), malloc(nodes * sizeof(uint32_t)),
                            malloc(nodes * sizeof(uint32_t)), 0};
    uint32_t begin = GRAPH_NONE;
    int rc = search.colour && search.path && search.edge ? 0 : -ENOMEM;
    for (uint32_t node = 0; rc == 0 && node < graph->nodes && begin == GRAPH_NONE; node++)
        if (search.colour[node] == WHITE)
            begin = descend(graph, &search, node);
    *ret_nodes = NULL;
    *ret_count = 0;
    if (rc == 0 && begin != GRAPH_NONE) {
        *ret_count = search.depth - begin;
        memmove(search.path, &search.path[begin], *ret_count * sizeof search.path[0]);
        rc = shorten(graph, search.path, ret_count);
    }
    if (rc == 0 && *ret_count > 0)
        *ret_nodes = search.path;
    else
        free(search.path);
    free(search.colour);
    free(search.edge);
    return rc;
}
