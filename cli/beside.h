/* beside.h - the programs that belong to this one: those that contain the simulator. */
#pragma once

#include <stddef.h>

/* Write the path of a program beside this one (in a build folder) or at its place of
 * installation. */
void cli_beside(const char *name, char *ret_path, size_t cap);
