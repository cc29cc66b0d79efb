/* run.c - `remo run`: its options.
 * The launcher itself is launch.c. */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/roster/roster.h"
#include "cli/commands.h"
#include "cli/launch/launch.h"
#include "cli/launch/job.h"
#include <remo/error.h>

#define STATUS_USAGE 2
/* As of env(1), nohup(1), timeout(1). */
#define STATUS_FAILED 125 /* of the launcher, not of the program */
#define STATUS_NOT_EXECUTABLE 126
#define STATUS_ABSENT 127
#define SECONDS_MAX (365.0 * 86400)

enum key { KEY_HOSTS = 256, KEY_PIN, KEY_TAG, KEY_TIMEOUT, KEY_KILL, KEY_ENV, KEY_OUTPUT };

#define VARIABLES_MAX 256u

struct arguments {
    struct launch_options options;
    char *variables[VARIABLES_MAX + 1]; /* "NAME=value", allocated, ended by NULL */
    uint32_t variable_count;
};

static const struct argp_option option_list[] = {
    {"nodes", 'n', "N", 0, "start N nodes (default: as many as the hosts file has slots, else 1)", 0},
    {"fabric", 'f', "FABRIC", 0,
     "network between the nodes: shm, ofi or verbs (default: the program's choice, else shm)", 0},
    {"hosts", KEY_HOSTS, "FILE", 0, "start the nodes on these hosts: one a line, host[:port] [slots=N]", 0},
    {"pin", KEY_PIN, NULL, 0, "keep each node of this machine on one CPU", 0},
    {"tag", KEY_TAG, NULL, 0, "put the rank in front of each line of output", 0},
    {"output", KEY_OUTPUT, "DIR", 0,
     "write the output of rank R, errors included, to DIR/rank-R.log; DIR is made if needed", 0},
    {"env", KEY_ENV, "NAME[=VALUE]", 0,
     "set a variable for every node, also on other hosts; without a value, copy the launcher's", 0},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "stop all nodes after that time, with status 124", 0},
    {"kill-on-failure", KEY_KILL, NULL, 0, "stop the other nodes when one fails", 0},
    {0},
};

static const char documentation[] =
    "Start the nodes of a program and wait for all of them."
    "\vEnds with 0 when every node did, else with the status of the first that did not; a signal counts as "
    "128 plus its number. "
    "125: remo run itself failed; 126: the program cannot be executed; 127: there is no such program. "
    "If a node fails, the library reports the failure to its peers, which continue unless "
    "--kill-on-failure is given. "
    "A job that is stopped (--timeout, --kill-on-failure, an end of remo run itself) ends with the process "
    "groups of its nodes; children in sessions of their own are not reached.\n\n"
    "Nodes on other hosts are started with ssh (or what REMO_SSH names), without passwords: `ssh HOST true` "
    "must work. "
    "The program must be there under the same path. "
    "Variables whose names begin with REMO_ go to other hosts, and those of --env. "
    "remo-environment(7) lists what the library reads.";

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

/* Return "NAME=value", with this process's value if `text` has none. */
static char *variable_make(const char *text, struct argp_state *state) {
    bool has_value = strchr(text, '=');
    const char *value = has_value ? "" : getenv(text);
    char *variable = NULL;
    if (!value)
        argp_error(state, "--env=%s: there is no such variable here; write --env=%s=VALUE", text, text);
    else if (asprintf(&variable, has_value ? "%s%s" : "%s=%s", text, value) < 0)
        argp_failure(state, STATUS_FAILED, ENOMEM, "--env=%s", text);
    return variable;
}

static void variable_add(struct arguments *arguments, const char *text, struct argp_state *state) {
    size_t bytes = strcspn(text, "=");
    bool is_name = bytes > 0 && !isdigit((unsigned char)text[0]);
    for (size_t i = 0; i < bytes; i++)
        is_name = is_name && (isalnum((unsigned char)text[i]) || text[i] == '_');
    if (!is_name)
        argp_error(state, "--env=%s: a name has letters, digits and _, and begins with no digit", text);
    if (launch_environment_is_ours(text))
        argp_error(state, "--env=%s: remo run itself sets this variable", text);
    if (strchr(text, '\n'))
        argp_error(state, "--env=%s: a value with a line end cannot go to other hosts", text);
    if (arguments->variable_count == VARIABLES_MAX)
        argp_error(state, "--env: at most %u variables can be set", VARIABLES_MAX);
    arguments->variables[arguments->variable_count++] = variable_make(text, state);
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
    struct arguments *arguments = state->input;
    struct launch_options *options = &arguments->options;
    switch (key) {
    case 'n': options->nodes = (uint32_t)parse_count(text, REMO__NODES_MAX, state); break;
    case 'f': options->fabric = text; break;
    case KEY_HOSTS: options->hosts_file = text; break;
    case KEY_PIN: options->pin = true; break;
    case KEY_TAG: options->tag = true; break;
    case KEY_TIMEOUT: options->timeout_ns = parse_seconds(text, state); break;
    case KEY_KILL: options->kill_on_failure = true; break;
    case KEY_OUTPUT: options->output_folder = text; break;
    case KEY_ENV: variable_add(arguments, text, state); break;
    case ARGP_KEY_ARG: /* the program; all further arguments are its own */
        options->argv = state->argv + state->next - 1;
        state->next = state->argc;
        break;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no program; try: remo run -n 2 -- PROGRAM"); break;
    case ARGP_KEY_END:
        if (options->tag && options->output_folder)
            argp_error(state, "--tag and --output exclude each other: the files are named after the rank");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static int failure_status(int exec_error) {
    if (exec_error == 0)
        return STATUS_FAILED;
    return exec_error == -ENOENT ? STATUS_ABSENT : STATUS_NOT_EXECUTABLE;
}

int cli_run(int argc, char **argv) {
    static const struct argp parser = {
        option_list, parse_option, "[--] PROGRAM [ARGUMENT...]", documentation, NULL, NULL, NULL};
    struct arguments arguments = {.options = {.name = "remo run"}};
    int status = 0, exec_error = 0;
    argp_err_exit_status = STATUS_USAGE;
    if (argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &arguments) != 0)
        return STATUS_USAGE;
    arguments.options.ret_exec_error = &exec_error;
    arguments.options.environment = (const char *const *)arguments.variables;
    int rc = launch_nodes(&arguments.options, &status);
    for (uint32_t i = 0; i < arguments.variable_count; i++)
        free(arguments.variables[i]);
    if (rc == 0)
        return status;
    fprintf(stderr, "remo run: %s\n", remo_last_error());
    return failure_status(exec_error);
}
