/* program.c - the path of this program's file (program.h).
 * Read from /proc/self/exe, or from the auxiliary vector if /proc is missing. */
#include "bench/program.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

void bench_program_path(char *ret_path, size_t cap) {
    char path[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    const char *started_as = (const char *)getauxval(AT_EXECFN); /* NOLINT: the kernel passes a pointer */
    if (length <= 0 && (!started_as || !realpath(started_as, path)))
        path[0] = '\0';
    else if (length > 0)
        path[length] = '\0';
    if ((size_t)snprintf(ret_path, cap, "%s", path) >= cap)
        ret_path[0] = '\0';
}
