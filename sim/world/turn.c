/* turn.c - the running actor and its failure (turn.h).
 * A switch saves and restores the library's thread-locals with the actor. */
#include "sim/world/turn.h"

#include <stdarg.h>
#include <stdio.h>

#include "remote/scheduler.h"
#include "sim/world/world.h"

struct sim_turn sim_turn;
struct sim_world *sim_world;
void (*sim_thread_exit)(void *value);

void sim_switch(struct sim_actor *to) {
    struct sim_actor *from = sim_turn.current;
    if (from == to)
        return;
    if (from) {
        from->tls = remo__tls;
        from->threads = remo__threads_of_os_thread;
        from->scheduler = remo__scheduler;
        from->last_error = remo__last_error_of_task;
    }
    sim_turn.current = to;
    if (to) {
        remo__tls = to->tls;
        remo__threads_of_os_thread = to->threads;
        remo__scheduler = to->scheduler;
        remo__last_error_of_task = to->last_error;
    }
    remo__context_switch(from ? &from->context : &sim_turn.itself, to ? &to->context : &sim_turn.itself);
}

void sim_fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!sim_turn.failed)
        vsnprintf(sim_turn.failure, sizeof sim_turn.failure, format, args);
    va_end(args);
    sim_turn.failed = true;
    if (sim_turn.current)
        sim_switch(NULL);
}

const char *sim_failure(void) {
    return sim_turn.failed ? sim_turn.failure : NULL;
}
