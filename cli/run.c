/* run.c - `remo run`: what is asked for. How it is done: launch.c. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/bootstrap.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include <remo/error.h>

#define STATUS_USAGE 2
#define STATUS_FAILED 125 /* as env(1), nohup(1), timeout(1): it is we who failed, not the program */
#define STATUS_ABSENT 127
#define SECONDS_MAX (365.0 * 86400)

enum key { KEY_HOSTS = 256, KEY_PIN, KEY_TAG, KEY_TIMEOUT, KEY_KILL };

static const struct argp_option option_list[] = {
    {"nodes", 'n', "N", 0, "start N nodes (default: as many as the hosts file has slots, else 1)", 0},
    {"fabric", 'f', "FABRIC", 0,
     "network between the nodes: shm, ofi or verbs (default: the program's choice, else shm)", 0},
    {"hosts", KEY_HOSTS, "FILE", 0, "start the nodes on these hosts: one a line, host[:port] [slots=N]", 0},
    {"pin", KEY_PIN, NULL, 0, "keep each node of this machine on one CPU", 0},
    {"tag", KEY_TAG, NULL, 0, "put the rank in front of each line of output", 0},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "stop all nodes after that time, with status 124", 0},
    {"kill-on-failure", KEY_KILL, NULL, 0, "stop the other nodes when one fails", 0},
    {0},
};

static const char documentation[] =
    "Start the nodes of a program and wait for all of them."
    "\vEnds with 0 when every node did, else with the status of the first that did not; a signal counts as "
    "128 plus its number. "
    "When a node dies the others are told by the library and go on, unless --kill-on-failure is given.\n\n"
    "Nodes on other hosts are started with ssh (or what REMO_SSH names), without passwords: `ssh HOST true` "
    "must work. "
    "The program must be there under the same path.";

static unsigned long parse_count(const char *text, unsigned long max, struct argp_state *state) {
    char *end;
    unsigned long count = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || count == 0 || count > max)
        argp_error(state, "\"%s\" is not a number from 1 to %lu", text, max);
    return count;
}

static uint64_t parse_seconds(const char *text, struct argp_state *state) {
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !(seconds > 0) || seconds > SECONDS_MAX)
        argp_error(state, "\"%s\" is not a number of seconds", text);
    return (uint64_t)(seconds * 1e9);
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
    struct launch_options *options = state->input;
    switch (key) {
    case 'n': options->nodes = (uint32_t)parse_count(text, REMO__NODES_MAX, state); break;
    case 'f': options->fabric = text; break;
    case KEY_HOSTS: options->hosts_file = text; break;
    case KEY_PIN: options->pin = true; break;
    case KEY_TAG: options->tag = true; break;
    case KEY_TIMEOUT: options->timeout_ns = parse_seconds(text, state); break;
    case KEY_KILL: options->kill_on_failure = true; break;
    case ARGP_KEY_ARG: /* the program; what follows is its own */
        options->argv = state->argv + state->next - 1;
        state->next = state->argc;
        break;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no program; try: remo run -n 2 -- PROGRAM"); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int cli_run(int argc, char **argv) {
    static const struct argp parser = {
        option_list, parse_option, "[--] PROGRAM [ARGUMENT...]", documentation, NULL, NULL, NULL};
    struct launch_options options = {.name = "remo run"};
    int status = 0;
    argp_err_exit_status = STATUS_USAGE;
    if (argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &options) != 0)
        return STATUS_USAGE;
    int rc = launch_nodes(&options, &status);
    if (rc == 0)
        return status;
    fprintf(stderr, "remo run: %s\n", remo_last_error());
    return rc == -ENOENT ? STATUS_ABSENT : STATUS_FAILED;
}
