/* trace.c - prints the trace of a schedule: one action a line, with the number of its step and its actor.
 * Addresses are printed as places in an arena, so the text is the same in every run. */
#include <stdio.h>

#include "node/arena.h"
#include "sim/world/world.h"

bool sim_tracing;

void sim_trace_print(const char *format, ...) {
    const struct sim_actor *actor = sim_current();
    va_list args;
    va_start(args, format);
    printf("%5llu ", (unsigned long long)sim_world->steps);
    if (format[0] != ' ' && format[0] != '*' && actor)
        printf("node %u %s%u: ", actor->node,
               actor->role == SIM_PROGRAM   ? "thread "
               : actor->role == SIM_CONTROL ? "control "
                                            : "service ",
               actor->thread);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

const char *sim_place(const void *at) {
    static char text[2][40];
    static unsigned turn;
    turn = !turn;
    for (uint32_t node = 0; node < SIM_NODES_MAX; node++) {
        const char *base = sim_world->nodes[node] ? remo__arena_base(sim_world->nodes[node]->arena) : NULL;
        if (base && (const char *)at >= base && (const char *)at < base + SIM_ARENA_BYTES) {
            snprintf(text[turn], sizeof text[turn], "node %u +0x%zx", node,
                     (size_t)((const char *)at - base));
            return text[turn];
        }
    }
    return "private memory";
}
