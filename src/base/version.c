/* version.c - implements remo/version.h: the version of the library at run time.
 * A program compares it with REMO_VERSION, the version of the headers that it was compiled with. */
#include <remo/version.h>

const char *remo_version(void) {
    return REMO_VERSION;
}
