/* program.h - the file of this program, for commands that start themselves or related programs. */
#pragma once

#include <stddef.h>

/* Write the path of this program's file to `ret_path`; "" if it is unknown or longer than `cap`.
 * The kernel's link in /proc names it. A chroot without /proc leaves the name with which the program was
 * started; therefore call this before the working directory changes. */
void bench_program_path(char *ret_path, size_t cap);
