/* collective.c - collectives: every participant gets the contributions of all participants.
 * Calls follow each other without a barrier, and the failure of a node ends them for all. */
#include <errno.h>
#include <remo/collective.h>
#include <remo/region.h>
#include <string.h>

#include "sim/case.h"

#define WORDS_MAX 13u /* the simulator's library reads 8 at a time, and reduces more than 4 in parts */
#define ROUNDS 3u

struct collective_state {
    struct remo_collective *collectives[SIM_NODES_MAX];
    uint64_t called[SIM_NODES_MAX]; /* calls begun */
};

static void open_collective(void *state, struct remo_node *node, uint32_t rank) {
    struct collective_state *s = state;
    struct remo_collective_options options = {.bytes_max = WORDS_MAX * 8};
    sim_opened(remo_collective_open(remo_node_root(node), "collective", &options, &s->collectives[rank]),
               "open");
    sim_opened(remo_channel_wait(remo_collective_channel(s->collectives[rank]), REMO_FOREVER), "wait");
}

static void close_collective(void *state, uint32_t rank) {
    remo_collective_close(((struct collective_state *)state)->collectives[rank]);
}

/* Return the value of word `at` of a node in a round. */
static uint64_t word_of(uint32_t rank, uint64_t round, uint32_t at) {
    return round * 10000 + at * 100 + rank + 1;
}

enum kind { BROADCAST, GATHER, ALL_GATHER, ALL_REDUCE, ALL_REDUCE_LARGE, KINDS };

static uint32_t words_of(enum kind kind) {
    return kind == GATHER || kind == ALL_GATHER ? 2 : kind == ALL_REDUCE ? 3 : WORDS_MAX;
}

static int call(struct remo_collective *collective, enum kind kind, uint32_t root, uint64_t *words,
                uint64_t *result) {
    size_t count = words_of(kind);
    switch (kind) {
    case BROADCAST: return remo_collective_broadcast(collective, root, words, count * 8, REMO_FOREVER);
    case GATHER: return remo_collective_gather(collective, root, words, result, count * 8, REMO_FOREVER);
    case ALL_GATHER: return remo_collective_all_gather(collective, words, result, count * 8, REMO_FOREVER);
    default:
        return remo_collective_all_reduce(collective, words, result, count, REMO_NUMBER_U64,
                                          REMO_REDUCTION_SUM, REMO_FOREVER);
    }
}

static void check_result(enum kind kind, uint32_t rank, uint32_t root, uint64_t round, const uint64_t *words,
                         const uint64_t *result) {
    uint32_t nodes = sim_world->test->nodes, count = words_of(kind);
    for (uint32_t at = 0; at < count; at++) {
        uint64_t sum = 0;
        for (uint32_t node = 0; node < nodes; node++) {
            uint64_t word = word_of(node, round, at);
            sum += word;
            if (kind == ALL_GATHER || (kind == GATHER && rank == root))
                sim_require(result[node * count + at] == word, "round %llu: word %u of node %u is %llu",
                            (unsigned long long)round, at, node,
                            (unsigned long long)result[node * count + at]);
        }
        if (kind == BROADCAST)
            sim_require(words[at] == word_of(root, round, at), "round %llu: word %u of the root is %llu",
                        (unsigned long long)round, at, (unsigned long long)words[at]);
        if (kind >= ALL_REDUCE)
            sim_require(result[at] == sum, "round %llu: sum %u is %llu, not %llu", (unsigned long long)round,
                        at, (unsigned long long)result[at], (unsigned long long)sum);
    }
}

/* Make one call, and repeat it after a transient error. Returns false if a participant has
 * failed. */
static bool round_of(struct collective_state *s, uint32_t rank, enum kind kind, uint64_t round) {
    uint32_t root = (uint32_t)(round % sim_world->test->nodes);
    uint64_t words[WORDS_MAX], result[WORDS_MAX * SIM_NODES_MAX];
    int rc;
    for (uint32_t at = 0; at < WORDS_MAX; at++)
        words[at] = word_of(rank, round, at);
    s->called[rank] = round;
    do
        rc = call(s->collectives[rank], kind, root, words, result);
    while (rc != 0 && sim_hurt(rank) && rc != -EHOSTDOWN && rc != -ENOTCONN && rc != -EPROTO
           && sim_excused(rank, SIM_ANY, rc));
    if (sim_out(rank) || sim_excused(rank, SIM_ANY, rc))
        return false;
    sim_require(rc == 0, "call of kind %u: %d (%s)", kind, rc, remo_last_error());
    for (uint32_t node = 0; node < sim_world->test->nodes; node++)
        sim_require(s->called[node] >= round, "node %u returns from round %llu before node %u has called",
                    rank, (unsigned long long)round, node);
    check_result(kind, rank, root, round, words, result);
    return true;
}

/* ---- cases ---- */

static void rounds_of(void *state, uint32_t rank, enum kind first, enum kind second) {
    for (uint64_t round = 1; round <= ROUNDS; round++)
        if (!round_of(state, rank, round % 2 ? first : second, round))
            return;
}

/* With all participants, one more call succeeds. After a failure every other participant gets an
 * error. */
static void after(void *state, uint32_t rank) {
    bool done = round_of(state, rank, BROADCAST, ROUNDS + 1);
    sim_require(done != sim_any_out(), "a call after the end: %s",
                done ? "a participant has failed, and it returns 0"
                     : "no participant has failed, and it fails");
}

/* One large all-reduce as all others, then one with another operation at node 1. */
static void differ(struct collective_state *s, uint32_t rank) {
    uint64_t words[WORDS_MAX] = {0}, result[WORDS_MAX];
    int rc;
    if (!round_of(s, rank, ALL_REDUCE_LARGE, 1))
        return;
    do
        rc = remo_collective_all_reduce(s->collectives[rank], words, result, WORDS_MAX, REMO_NUMBER_U64,
                                        rank == 1 ? REMO_REDUCTION_MAX : REMO_REDUCTION_SUM, REMO_FOREVER);
    while (rc != 0 && sim_hurt(rank) && rc != -EHOSTDOWN && rc != -ENOTCONN && rc != -EPROTO
           && sim_excused(rank, SIM_ANY, rc));
    sim_require(sim_out(rank) || rc == -EPROTO || rc == -EHOSTDOWN || sim_excused(rank, SIM_ANY, rc),
                "different calls: %d (%s)", rc, remo_last_error());
}

#define CASE(id, text, title)                                                                         \
    const struct sim_case sim_case_collective_##id = {.object = "collective",                         \
                                                      .name = text,                                   \
                                                      .about = title,                                 \
                                                      .nodes = 3,                                     \
                                                      .threads = 1,                                   \
                                                      .state_bytes = sizeof(struct collective_state), \
                                                      .open = open_collective,                        \
                                                      .close = close_collective,                      \
                                                      .body = id##_body,                              \
                                                      .after = after,                                 \
                                                      .continues_after_failure = true}

static void moves_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    rounds_of(state, rank, BROADCAST, GATHER);
}
CASE(moves, "moves", "broadcasts and gathers with changing roots");

static void sums_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    rounds_of(state, rank, ALL_REDUCE, ALL_GATHER);
}
CASE(sums, "sums", "small all-reduces and all-gathers");

static void parts_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    rounds_of(state, rank, ALL_REDUCE_LARGE, BROADCAST);
}
CASE(parts, "parts", "large all-reduces, whose parts are exchanged, and broadcasts");

/* The object is of no use afterwards: no call comes after it. */
static void differ_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    differ(state, rank);
}
const struct sim_case sim_case_collective_differ = {.object = "collective",
                                                    .name = "differ",
                                                    .about = "participants make different calls",
                                                    .nodes = 3,
                                                    .threads = 1,
                                                    .state_bytes = sizeof(struct collective_state),
                                                    .open = open_collective,
                                                    .close = close_collective,
                                                    .body = differ_body};
