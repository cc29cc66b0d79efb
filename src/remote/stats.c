/* stats.c - implements stats.h, and remo_node_stats. Only its own thread writes a counter, so
 * sums read all counters with relaxed loads, and are exact when the threads are quiescent. */
#include <string.h>

#include "remote/stats.h"

static uint64_t get(const uint64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

void remo__stats_add(struct remo_stats *sum, const struct remo_stats *part) {
    sum->reads += get(&part->reads);
    sum->writes += get(&part->writes);
    sum->atomics += get(&part->atomics);
    sum->imms += get(&part->imms);
    sum->bytes += get(&part->bytes);
}

void remo__stats_subtract(struct remo_stats *sum, const struct remo_stats *part) {
    sum->reads -= part->reads;
    sum->writes -= part->writes;
    sum->atomics -= part->atomics;
    sum->imms -= part->imms;
    sum->bytes -= part->bytes;
}

void remo__stats_of_slot(struct remo_node *node, uint32_t slot, struct remo_stats *ret_sum) {
    struct remo_stats sum = {0};
    uint32_t count = atomic_load(&node->threads->count);
    for (uint32_t i = 0; i < count; i++)
        remo__stats_add(&sum, &node->threads->of[i]->stats[slot]);
    *ret_sum = sum;
}

static void add_thread(struct remo_stats *sum, const struct remo__thread *thread) {
    for (uint32_t slot = 0; slot < REMO__COUNTERS_MAX; slot++)
        remo__stats_add(sum, &thread->stats[slot]);
}

void remo__stats_of_thread(const struct remo__thread *thread, struct remo_stats *ret_sum) {
    struct remo_stats sum = {0};
    add_thread(&sum, thread);
    *ret_sum = sum;
}

void remo_node_stats(struct remo_node *node, struct remo_stats *ret_stats) {
    struct remo_stats sum = {0};
    uint32_t count = node ? atomic_load(&node->threads->count) : 0;
    for (uint32_t i = 0; i < count; i++)
        add_thread(&sum, node->threads->of[i]);
    if (ret_stats)
        *ret_stats = sum;
}
