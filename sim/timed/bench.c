/* bench.c - the program behind `remo bench --fabric sim`.
 * It runs the unmodified benchmarks of bench/ on nodes with a simulated network and clock
 * (timed.h). It sends the messages of nodes, one JSON object per line, after the parameters of the
 * model. */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "sim/timed/model.h"
#include "sim/timed/timed.h"

struct request {
    const struct bench *bench;
    struct bench_options options;
};

enum key {
    KEY_NODES = 256,
    KEY_THREADS,
    KEY_ACTIVE,
    KEY_SECONDS,
    KEY_BYTES,
    KEY_WINDOW,
    KEY_KEYS,
    KEY_READS,
    KEY_ZIPF,
    KEY_VARIANT,
    KEY_MODEL
};

/* The options that `remo bench` passes; it has checked the values. */
static const struct argp_option option_list[] = {{"nodes", KEY_NODES, "N", 0, 0, 0},
                                                 {"threads", KEY_THREADS, "T", 0, 0, 0},
                                                 {"active", KEY_ACTIVE, "N", 0, 0, 0},
                                                 {"seconds", KEY_SECONDS, "S", 0, 0, 0},
                                                 {"bytes", KEY_BYTES, "B", 0, 0, 0},
                                                 {"window", KEY_WINDOW, "W", 0, 0, 0},
                                                 {"keys", KEY_KEYS, "K", 0, 0, 0},
                                                 {"reads", KEY_READS, "P", 0, 0, 0},
                                                 {"zipf", KEY_ZIPF, "THETA", 0, 0, 0},
                                                 {"variant", KEY_VARIANT, "NAME", 0, 0, 0},
                                                 {"model", KEY_MODEL, "NAME=VALUE,...", 0, 0, 0},
                                                 {0}};

static void send_model(void) {
    json_t *model = json_array();
    for (uint32_t i = 0; i < sim_parameters_count; i++)
        json_array_append_new(model, json_pack("{s:s, s:I, s:s}", "name", sim_parameters[i].name, "value",
                                               (json_int_t)sim_model_get(&sim_parameters[i]), "source",
                                               sim_parameters[i].source));
    json_t *line = json_pack("{s:o}", "model", model);
    char *text = json_dumps(line, JSON_COMPACT);
    dprintf(STDOUT_FILENO, "%s\n", text);
    free(text);
    json_decref(line);
}

static error_t parse(int key, char *text, struct argp_state *state) {
    struct request *request = state->input;
    struct bench_options *options = &request->options;
    switch (key) {
    case KEY_NODES: options->nodes = (uint32_t)strtoul(text, NULL, 10); break;
    case KEY_THREADS: options->threads = (uint32_t)strtoul(text, NULL, 10); break;
    case KEY_ACTIVE: options->active = (uint32_t)strtoul(text, NULL, 10); break;
    case KEY_SECONDS: options->seconds = strtod(text, NULL); break;
    case KEY_BYTES: options->bytes = strtoull(text, NULL, 10); break;
    case KEY_WINDOW: options->window = (uint32_t)strtoul(text, NULL, 10); break;
    case KEY_KEYS: options->keys_count = strtoull(text, NULL, 10); break;
    case KEY_READS: options->read_percent = atoi(text); break;
    case KEY_ZIPF: options->zipf = strtod(text, NULL); break;
    case KEY_VARIANT: options->variant = text; break;
    case KEY_MODEL:
        if (!sim_model_set(text))
            argp_error(
                state,
                "cannot use --model %s: use NAME=VALUE,... with names that `remo bench --fabric sim` prints",
                text);
        break;
    case ARGP_KEY_ARG: request->bench = bench_find(text); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The network's limit is the model itself. */
int bench_network_limit(struct bench_job *job, double *ret_ns, char ret_name[LIMIT_NAME_BYTES]) {
    (void)job, (void)ret_ns, (void)ret_name;
    return 0;
}

void bench_network_close(struct bench_job *job) {
    (void)job;
}

static void node(void *ctx, uint32_t rank) {
    const struct request *request = ctx;
    if (bench_work(request->bench, &request->options, STDOUT_FILENO) != 0)
        sim_fail("node %u failed: %s", rank, remo_last_error());
}

int main(int argc, char **argv) {
    static const struct argp parser = {option_list, parse, "NAME", NULL, NULL, NULL, NULL};
    struct request request = {.options = {.fabric = "sim",
                                          .nodes = 2,
                                          .threads = 1,
                                          .seconds = 0.001,
                                          .read_percent = -1,
                                          .zipf = 0,
                                          .window = 1}};
    argp_parse(&parser, argc, argv, 0, NULL, &request);
    if (!request.bench || request.options.nodes < 2 || request.options.nodes > SIM_NODES_MAX
        || request.options.threads == 0) {
        fprintf(stderr, "remo bench: bad arguments: give the name of a benchmark, and 2 to %u nodes\n",
                SIM_NODES_MAX);
        return 2;
    }
    send_model();
    if (!sim_timed_run(request.options.nodes, node, &request)) {
        fprintf(stderr, "remo bench: %s\n", sim_failure());
        return 1;
    }
    return 0;
}
