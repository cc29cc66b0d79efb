/* versioned.c - reads and commits of versioned objects. Reads are of random objects of the next node, one
 * by one and several as of one instant; a commit changes one word of an object of this node. For
 * comparison, a pull of an owned variable of the same size. Invariant: the versions that a thread reads of
 * an object never decrease. The limit of a read is a copy of object_bytes from a random address, in memory
 * of similar size. */
#include <errno.h>
#include <remo/versioned.h>
#include <stdlib.h>

#include "base/error.h"
#include "bench/bench.h"

#define BYTES_DEFAULT 1024u
#define WINDOW_DEFAULT 16u
#define WINDOW_MAX 64u
#define OBJECTS_MAPPED 4096u /* of each node */
#define OBJECTS_NETWORK 256u
#define OBJECTS_BYTES_MAX (16u << 20)

static const char read_one[] = "read", read_many[] = "read_many", commit[] = "commit", pull[] = "pull";

struct state {
    struct remo_versioned *versioned;
    struct remo_owned_var *var; /* of node 1 */
    uint32_t objects;
};

struct reader {
    unsigned char *values; /* of the objects of a window */
    uint64_t *seen;        /* the version of each object, as last read */
};

static uint64_t bytes_of(const struct bench_options *options) {
    uint64_t bytes = options->bytes ? options->bytes : BYTES_DEFAULT;
    return bytes < 8 ? 8 : bytes;
}

static uint32_t window_of(const struct bench_options *options) {
    uint32_t window = options->window ? options->window : WINDOW_DEFAULT;
    return window > WINDOW_MAX ? WINDOW_MAX : window;
}

static uint32_t versioned_list(const struct bench_options *options,
                               struct bench_point points[BENCH_POINTS_MAX]) {
    static const char *const variants[] = {read_one, read_many, commit, pull};
    for (uint32_t i = 0; i < 4; i++) {
        struct bench_point *point = &points[i];
        *point = (struct bench_point)BENCH_POINT_DEFAULT;
        point->variant = variants[i];
        point->object = variants[i] == pull ? "owned_var" : NULL;
        point->bytes = variants[i] == commit ? 8 : bytes_of(options);
        point->window = variants[i] == read_many ? window_of(options) : 1;
        point->active = bench_active(options);
    }
    return 4;
}

static int versioned_open(struct bench_job *job) {
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    job->state = state;
    uint64_t bytes = bytes_of(job->options);
    uint64_t most = job->mapped ? OBJECTS_MAPPED : OBJECTS_NETWORK, objects = OBJECTS_BYTES_MAX / bytes;
    state->objects = (uint32_t)(objects < most ? objects : most);
    struct remo_versioned_options options = {.objects = state->objects, .object_bytes = (uint32_t)bytes};
    int rc = remo_versioned_open(job->channel, "versioned", &options, &state->versioned);
    struct remo_owned_var_options var = {.owner = 1};
    return rc == 0 ? remo_owned_var_open(job->channel, "var", bytes, &var, &state->var) : rc;
}

static void versioned_close(struct bench_job *job) {
    struct state *state = job->state;
    if (!state)
        return;
    remo_owned_var_close(state->var);
    remo_versioned_close(state->versioned);
    free(state);
    job->state = NULL;
}

static int versioned_begin(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return remo__fail(-ENOMEM, "no memory for the benchmark");
    thread->state = reader;
    reader->values = malloc(WINDOW_MAX * bytes_of(thread->job->options));
    reader->seen = calloc(state->objects, sizeof reader->seen[0]);
    return reader->values && reader->seen ? 0 : remo__fail(-ENOMEM, "no memory for the benchmark");
}

static int versioned_finish(struct bench_thread *thread) {
    struct reader *reader = thread->state;
    if (reader) {
        free(reader->values);
        free(reader->seen);
    }
    free(reader);
    thread->state = NULL;
    return 0;
}

static uint32_t draw_object(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    return (uint32_t)remo__random_below(&thread->random, state->objects);
}

static int check_seen(struct reader *reader, uint32_t object, uint64_t version) {
    if (version < reader->seen[object])
        return remo__fail(-EIO, "the benchmark is wrong: object %u has version %llu after %llu", object,
                          (unsigned long long)version, (unsigned long long)reader->seen[object]);
    reader->seen[object] = version;
    return 0;
}

static int run_read(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    struct reader *reader = thread->state;
    uint32_t object = draw_object(thread);
    uint64_t version = 0;
    int rc = remo_versioned_read(state->versioned, thread->target, object, reader->values, &version);
    return rc == 0 ? check_seen(reader, object, version) : rc;
}

static int run_read_many(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    struct reader *reader = thread->state;
    struct remo_versioned_item items[WINDOW_MAX];
    uint32_t count = thread->job->point->window;
    for (uint32_t i = 0; i < count; i++)
        items[i] = (struct remo_versioned_item){.object = draw_object(thread),
                                                .value = reader->values + i * bytes_of(thread->job->options)};
    int rc = remo_versioned_read_many(state->versioned, thread->target, items, count, NULL);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = check_seen(reader, items[i].object, items[i].version);
    return rc;
}

static int run_commit(struct bench_thread *thread) {
    const struct state *state = thread->job->state;
    uint64_t words = bytes_of(thread->job->options) / 8, data = thread->started;
    struct remo_versioned_change change = {.object = draw_object(thread),
                                           .offset = 8 * (uint32_t)remo__random_below(&thread->random, words),
                                           .size_bytes = sizeof data,
                                           .data = &data};
    return remo_versioned_commit(state->versioned, &change, 1, NULL);
}

static int versioned_operate(struct bench_thread *thread, uint64_t operations) {
    const struct state *state = thread->job->state;
    const struct bench_point *point = thread->job->point;
    int rc = 0;
    for (uint64_t done = 0; done < operations && rc == 0; done += point->window) {
        if (point->variant == read_one)
            rc = run_read(thread);
        else if (point->variant == read_many)
            rc = run_read_many(thread);
        else if (point->variant == commit)
            rc = run_commit(thread);
        else
            rc = remo_owned_var_pull(state->var, NULL);
    }
    return rc;
}

static double versioned_limit(struct bench_job *job, char ret_name[LIMIT_NAME_BYTES]) {
    const struct state *state = job->state;
    uint64_t arena_bytes, used_bytes = state->objects * 2 * bytes_of(job->options);
    const void *arena = bench_arena(job, &arena_bytes);
    if ((job->point->variant != read_one && job->point->variant != read_many) || !arena)
        return 0;
    limit_memcpy_random_name(job->point->bytes, ret_name);
    return limit_memcpy_random_ns(arena, used_bytes < arena_bytes ? used_bytes : arena_bytes,
                                  job->point->bytes);
}

const struct bench bench_versioned = {
    .name = "versioned",
    .object = "versioned",
    .description =
        "versioned objects: read random objects of the next node, one by one and 16 as of one instant "
        "(--window); commit 8 bytes; for comparison, pull an owned variable",
    .list = versioned_list,
    .open = versioned_open,
    .close = versioned_close,
    .begin = versioned_begin,
    .operate = versioned_operate,
    .finish = versioned_finish,
    .limit = versioned_limit,
};
