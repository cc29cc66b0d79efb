/* mix.c - draws operations of the workloads of YCSB (mix.h). The skew is that of the numbers of keys, which
 * are scrambled: frequent keys are spread over all owners. */
#include "bench/tree/mix.h"

#include <string.h>

const struct mix mixes[MIXES] = {
    {"a", {[MIX_READ] = 50, [MIX_UPDATE] = 50}, false},
    {"b", {[MIX_READ] = 95, [MIX_UPDATE] = 5}, false},
    {"c", {[MIX_READ] = 100}, false},
    {"d", {[MIX_READ] = 95, [MIX_INSERT] = 5}, true},
    {"e", {[MIX_SCAN] = 95, [MIX_INSERT] = 5}, false},
    {"f", {[MIX_READ] = 50, [MIX_MODIFY] = 50}, false},
};

const struct mix *mix_find(const char *name) {
    uint32_t mix = 0;
    while (strcmp(mixes[mix].name, name) != 0)
        mix++;
    return &mixes[mix];
}

uint64_t mix_new_number(const struct mix_worker *worker, uint64_t index) {
    return tree_new_number(worker->keys, index, worker->workers, worker->worker);
}

/* Return the number of the key that is the `age`-th latest one of the worker. */
static uint64_t latest(const struct mix_worker *worker, uint64_t age) {
    return age < worker->inserted ? mix_new_number(worker, worker->inserted - 1 - age)
                                  : worker->keys->count - 1 - (age - worker->inserted);
}

static enum mix_op draw_op(const struct mix *mix, struct remo__random *random) {
    uint64_t percent = remo__random_below(random, 100);
    unsigned op = 0;
    for (uint64_t sum = mix->percents[0]; percent >= sum; sum += mix->percents[op])
        op++;
    return (enum mix_op)op;
}

struct mix_call mix_draw(struct mix_worker *worker) {
    struct mix_call call = {.op = draw_op(worker->mix, worker->drawer.random)};
    if (call.op == MIX_INSERT) {
        call.number = mix_new_number(worker, worker->inserted);
        return call;
    }
    call.number = tree_draw(worker->keys, &worker->drawer, true);
    if (worker->mix->reads_latest)
        call.number = latest(worker, call.number);
    if (call.op == MIX_SCAN)
        call.entries = 1 + (uint32_t)remo__random_below(worker->drawer.random, MIX_ENTRIES_MAX);
    return call;
}
