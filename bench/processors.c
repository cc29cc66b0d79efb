/* processors.c - the processor of each thread of a benchmark's job.
 * The threads of one node are spread over the processors first, so that nodes do not share one. */
#include <sched.h>

#include "bench/bench.h"

void bench_find_cpus(struct bench_options *options) {
    cpu_set_t set;
    options->cpus_count = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE && options->cpus_count < BENCH_CPUS_MAX; cpu++)
        if (CPU_ISSET(cpu, &set))
            options->cpus[options->cpus_count++] = cpu;
}

int bench_cpu(const struct bench_options *options, uint32_t rank, uint32_t thread) {
    if (options->cpus_count == 0)
        return 0;
    return options->cpus[(thread * options->nodes + rank) % options->cpus_count];
}

void bench_pin(const struct bench_options *options, uint32_t rank, uint32_t thread) {
    cpu_set_t set;
    if (!options->pin || options->cpus_count == 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(bench_cpu(options, rank, thread), &set);
    sched_setaffinity(0, sizeof set, &set);
}
