/* sim.c - `remo sim`: the simulator is a program of its own, because it has the library's floors in it a second time. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

/* Beside this program (in a build folder), or where it was installed. */
static void try_beside(char **argv) {
    static const char *const places[] = {"remo-sim", "../sim/remo-sim", "../libexec/remo/remo-sim"};
    char self[PATH_MAX], path[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", self, places[i]);
        execv(path, argv);
    }
}

int cli_sim(int argc, char **argv) {
    (void)argc;
    try_beside(argv);
    execv(REMO_LIBEXEC "/remo-sim", argv);
    fprintf(stderr, "remo sim: %s/remo-sim cannot be started: %s; build Remo with -Dsim=true\n", REMO_LIBEXEC, strerror(errno));
    return 2;
}
