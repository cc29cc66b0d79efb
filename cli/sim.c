/* sim.c - `remo sim`: starts the simulator.
 * It is a separate program, because it contains the library a second time, compiled for the
 * simulator. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/programs.h"
#include "cli/commands.h"

int cli_sim(int argc, char **argv) {
    char path[PATH_MAX];
    (void)argc;
    cli_beside("remo-sim", path, sizeof path);
    execv(path, argv);
    fprintf(stderr, "remo sim: cannot start %s: %s; build Remo with -Dsim=true\n", path, strerror(errno));
    return 2;
}
