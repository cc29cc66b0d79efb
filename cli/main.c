/* main.c - `remo`: finds the command and calls it.
 * A new command is a line of the table. */
#include <argp.h>
#include <remo/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"demo", cli_demo, "the main job on real data, on this machine"},
    {"run", cli_run, "start the nodes of a program, here or on other hosts"},
#ifdef REMO_BENCH
    {"bench", cli_bench, "measure, beside the limits of the hardware and other systems"},
#endif
    {"sim", cli_sim, "run objects under every behaviour of the memory model"},
    {"doctor", cli_doctor, "what this machine offers, and what to change"},
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static const struct command *find(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static void usage(FILE *to) {
    fprintf(to, "Usage: remo COMMAND [ARGUMENT...]\n\nObjects in the memory of many processes.\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-15s %s\n", commands[i].name, commands[i].help);
    fprintf(to,
            "  %-15s this text, or the help of a command\n\n`remo COMMAND --help` explains a command; "
            "`remo --version` prints the version.\n",
            "help [COMMAND]");
}

static int unknown(const char *name) {
    fprintf(stderr, "remo: there is no command \"%s\"; try: remo help\n", name);
    return 2;
}

static int run(const struct command *command, int argc, char **argv) {
    char name[64];
    snprintf(name, sizeof name, "remo %s", command->name);
    argv[0] = name;
    argp_program_version = "remo " REMO_VERSION; /* each command understands --version */
    return command->run(argc, argv);
}

static int help(int argc, char **argv) {
    if (argc < 2) {
        usage(stdout);
        return 0;
    }
    char *words[] = {argv[1], "--help", NULL};
    const struct command *command = find(argv[1]);
    return command ? run(command, 2, words) : unknown(argv[1]);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("remo %s\n", REMO_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(argc - 1, argv + 1);
    const struct command *command = find(argv[1]);
    return command ? run(command, argc - 1, argv + 1) : unknown(argv[1]);
}
