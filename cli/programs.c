/* programs.c - finds the programs that belong to this one, and commands of the system (programs.h).
 * A build folder is searched first, then the place of installation. */
#include "cli/programs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/program.h"

void cli_beside(const char *name, char *ret_path, size_t cap) {
    static const char *const folders[] = {".", "../sim", "../libexec/remo"};
    char self[PATH_MAX];
    bench_program_path(self, sizeof self);
    char *slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < sizeof folders / sizeof folders[0]; i++) {
        *slash = '\0';
        snprintf(ret_path, cap, "%s/%s/%s", self, folders[i], name);
        if (access(ret_path, X_OK) == 0)
            return;
    }
    snprintf(ret_path, cap, "%s/%s", REMO_LIBEXEC, name);
}

bool cli_is_in_path(const char *command) {
    const char *path = getenv("PATH");
    char file[PATH_MAX];
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)length, at, command);
        if (length > 0 && access(file, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}
