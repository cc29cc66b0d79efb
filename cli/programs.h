/* programs.h - the programs that belong to this one (those that contain the simulator), and commands of the
 * system. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Write the path of a program beside this one (in a build folder) or at its place of
 * installation. */
void cli_beside(const char *name, char *ret_path, size_t cap);
/* Return whether PATH contains the command. */
bool cli_is_in_path(const char *command);
