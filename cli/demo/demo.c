/* demo.c - `remo demo`: starts the nodes, and shows their output and progress.
 * The same program is started again as each node (node.c). */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "bench/program.h"
#include "cli/commands.h"
#include "cli/demo/demo.h"
#include "cli/launch/launch.h"
#include "fabric/fabric.h"

#define FILE_DEFAULT "/var/lib/dpkg/status"
#define NODES_DEFAULT 4u
#define NODES_MAX 64u
#define SECONDS_DEFAULT 5.0
#define SECONDS_MAX 3600.0
#define MARGIN_NS (120 * REMO__NS_PER_S) /* to start, load and read back, at worst */
#define BAR_WIDTH 40u

enum key { KEY_FILE = 256, KEY_NODES, KEY_SECONDS, KEY_FABRIC, KEY_WORKER };

static const struct argp_option option_list[] = {
    {"file", KEY_FILE, "FILE", 0, "data: a dpkg status file, or lines of key<TAB>value (" FILE_DEFAULT ")",
     0},
    {"nodes", KEY_NODES, "N", 0, "node processes to start here (4)", 0},
    {"seconds", KEY_SECONDS, "S", 0, "time to work on the data (5)", 0},
    {"fabric", KEY_FABRIC, "F", 0, "shm, ofi or verbs (shm)", 0},
    {"worker", KEY_WORKER, 0, OPTION_HIDDEN, 0, 0},
    {0},
};

static const char documentation[] =
    "Show Remo at work: start nodes on this machine, and load real data into a distributed map, a share per "
    "node. All nodes read, update, insert and delete for some seconds. Then each record is read back on "
    "another node than those that loaded and changed it, and every byte is compared."
    "\vThen the demo prints operations per second, their latencies, their network operations, and the limit "
    "of this machine for the same work. The exit status is 1 if an operation failed or a record was wrong.";

/* ---- arguments ---- */

static double parse_number(const char *text, double minimum, double maximum, struct argp_state *state) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= minimum && value <= maximum))
        argp_error(state, "'%s' is not a number from %g to %g", text, minimum, maximum);
    return value;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
    struct demo_options *options = state->input;
    switch (key) {
    case KEY_FILE: options->file = text; break;
    case KEY_NODES: {
        double nodes = parse_number(text, 1, NODES_MAX, state);
        if (nodes != floor(nodes))
            argp_error(state, "'%s' is not a whole number", text);
        options->nodes = (uint32_t)nodes;
        break;
    }
    case KEY_SECONDS: options->seconds = parse_number(text, 0.1, SECONDS_MAX, state); break;
    case KEY_FABRIC:
        if (!remo__fabric_find(text))
            argp_error(state, "there is no fabric '%s' in this build; try shm, ofi or verbs", text);
        options->fabric = text;
        break;
    case KEY_WORKER: options->worker = true; break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- output of the nodes ---- */

struct screen {
    bool terminal; /* standard error is a terminal: it shows a progress bar */
    bool bar;      /* a bar is visible */
};

static void clear_bar(struct screen *screen) {
    if (screen->bar)
        fputs("\r\033[K", stderr);
    screen->bar = false;
}

static void show_bar(struct screen *screen, const char *line) {
    char what[32], bar[BAR_WIDTH + 1];
    unsigned long long done, all;
    if (!screen->terminal || sscanf(line, "%31s %llu %llu", what, &done, &all) != 3 || all == 0)
        return;
    unsigned long long filled = done < all ? done * BAR_WIDTH / all : BAR_WIDTH;
    for (unsigned i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K%-12s [%s] %3llu %%", what, bar, done < all ? done * 100 / all : 100);
    fflush(stderr);
    screen->bar = true;
}

static void take_line(void *ctx, uint32_t rank, const char *line, size_t bytes) {
    struct screen *screen = ctx;
    (void)rank;
    if (bytes > 0 && line[0] == DEMO_PROGRESS) {
        show_bar(screen, line + 1);
        return;
    }
    clear_bar(screen);
    printf("%s\n", line);
    fflush(stdout);
}

/* ---- the nodes ---- */

static int start(const struct demo_options *options) {
    struct screen screen = {.terminal = isatty(STDERR_FILENO)};
    char *file, seconds[64], fabric[64];
    char program[PATH_MAX], demo[] = "demo", worker[] = "--worker", nodes[32];
    if (asprintf(&file, "--file=%s", options->file) < 0)
        return 1;
    bench_program_path(program, sizeof program);
    snprintf(seconds, sizeof seconds, "--seconds=%.3f", options->seconds);
    snprintf(nodes, sizeof nodes, "--nodes=%u", options->nodes);
    snprintf(fabric, sizeof fabric, "--fabric=%s", options->fabric);
    char *words[] = {program, demo, worker, file, seconds, nodes, fabric, NULL};
    struct launch_options launch = {.name = "remo demo",
                                    .argv = words,
                                    .nodes = options->nodes,
                                    .fabric = options->fabric,
                                    .kill_on_failure = true,
                                    .line = take_line,
                                    .ctx = &screen,
                                    .timeout_ns = MARGIN_NS + (uint64_t)(options->seconds * 1e9)};
    int status = 0, rc = launch_nodes(&launch, &status);
    clear_bar(&screen);
    free(file);
    if (rc != 0)
        fprintf(stderr, "remo demo: %s\n", remo_last_error());
    return rc != 0 ? 1 : status;
}

int cli_demo(int argc, char **argv) {
    static const struct argp parser = {option_list, parse_option, NULL, documentation, NULL, NULL, NULL};
    struct demo_options options = {
        .file = FILE_DEFAULT, .fabric = "shm", .nodes = NODES_DEFAULT, .seconds = SECONDS_DEFAULT};
    struct demo_records records;
    argp_err_exit_status = 2;
    if (argp_parse(&parser, argc, argv, 0, NULL, &options))
        return 2;
    if (options.worker)
        return demo_node(&options);
    if (demo_records_read(options.file, &records) != 0) { /* report the error once, not in every node */
        fprintf(stderr, "remo demo: %s\n", remo_last_error());
        return 1;
    }
    demo_records_free(&records);
    return start(&options);
}
