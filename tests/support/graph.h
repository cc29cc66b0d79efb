/* graph.h - a directed graph of millions of edges, and the search for a cycle in it.
 *
 * The edges are generated twice by a function of the caller, first to count and then to store them. So they
 * take 4 bytes each. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define GRAPH_NONE UINT32_MAX

struct graph {
    uint32_t nodes, named; /* the first `named` nodes are of interest: a short cycle has few of them */
    uint32_t *first;       /* of each node: where its edges begin */
    uint32_t *to;
    bool counts; /* during the build: the first pass */
};

/* Build a graph. `emit` calls graph_edge for each edge, in the same order in both passes. Returns 0 or
 * -ENOMEM. */
int graph_build(struct graph *graph, uint32_t nodes, uint32_t named, void (*emit)(void *ctx), void *ctx);
void graph_edge(struct graph *graph, uint32_t from, uint32_t to);
void graph_free(struct graph *graph);
/* Find a cycle with few named nodes. Sets *ret_nodes to its nodes in order, which the caller frees, or to
 * NULL if there is no cycle. Returns 0 or -ENOMEM. Takes linear time if there is none. */
int graph_find_cycle(const struct graph *graph, uint32_t **ret_nodes, uint32_t *ret_count);
