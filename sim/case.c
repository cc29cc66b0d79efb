/* case.c - the calls that the bodies of cases use: the history, bounds on cost, requirements.
 * Begin and end of a call are recorded as steps of the world, so the history orders calls of all nodes. */
#include "sim/case.h"

#include "base/error.h"

#define CALLS_MAX 256u

static struct call calls[CALLS_MAX];
struct history sim_history = {.calls = calls, .cap = CALLS_MAX};

uint32_t sim_begin(uint32_t function, uint64_t key, uint64_t argument, uint64_t second) {
    const struct sim_actor *actor = sim_current();
    struct call call = {.actor = actor ? actor->node * SIM_THREADS_MAX + actor->thread : 0,
                        .function = function,
                        .key = key,
                        .argument = argument,
                        .second = second};
    sim_trace("begins call %u: function %u of %llu, %llu", sim_history.count, function,
              (unsigned long long)argument, (unsigned long long)second);
    return history_begin(&sim_history, &call, sim_world->steps);
}

void sim_end(uint32_t index, int code, uint64_t result) {
    sim_trace("ends call %u: %d, %llu", index, code, (unsigned long long)result);
    history_end(&sim_history, index, code, result, sim_world->steps);
    sim_point("between calls");
}

void sim_forget(uint32_t index) {
    if (index < sim_history.count)
        sim_history.calls[index].end = HISTORY_NONE;
}

struct sim_bound sim_bound_begin(void) {
    const struct sim_actor *actor = sim_current();
    return (struct sim_bound){.posts = actor->posts, .turns = actor->turns};
}

void sim_bound_end(const struct sim_bound *begin, const char *what, uint64_t posts_max, uint64_t turns_max) {
    const struct sim_actor *actor = sim_current();
    uint64_t posts = actor->posts - begin->posts, turns = actor->turns - begin->turns;
    sim_require(posts <= posts_max, "%s took %llu network operations, at most %llu are claimed", what,
                (unsigned long long)posts, (unsigned long long)posts_max);
    sim_require(turns <= turns_max, "%s took %llu turns, at most %llu are claimed", what,
                (unsigned long long)turns, (unsigned long long)turns_max);
}

void sim_order_stores(void) {
    if (sim_world->is_mapped)
        sim_drain(sim_current());
}

void sim_opened(int rc, const char *what) {
    if (rc != 0)
        sim_fail("%s: %s (%s)", what, remo_error_name(rc), remo_last_error());
}
