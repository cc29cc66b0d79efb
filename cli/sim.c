/* sim.c - `remo sim`: the simulator is a program of its own, because it has the library's floors in it a
 * second time. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/beside.h"
#include "cli/commands.h"

int cli_sim(int argc, char **argv) {
    char path[PATH_MAX];
    (void)argc;
    cli_beside("remo-sim", path, sizeof path);
    execv(path, argv);
    fprintf(stderr, "remo sim: %s cannot be started: %s; build Remo with -Dsim=true\n", path,
            strerror(errno));
    return 2;
}
