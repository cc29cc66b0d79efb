/* beside.h - the programs that belong to this one: those with the simulator in them. */
#pragma once

#include <stddef.h>

/* Beside this program (in a build folder), or where it was installed. */
void cli_beside(const char *name, char *ret_path, size_t cap);
