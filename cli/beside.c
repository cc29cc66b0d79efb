/* beside.c - finds programs that belong to this one (beside.h).
 * A build folder is searched first, then the place of installation. */
#include "cli/beside.h"

#include <limits.h>
#include <stdio.h>
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
