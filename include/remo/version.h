/* version.h - the version of Remo.
 *
 * Until 1.0 each minor version may change the interface. So each minor version has its own shared
 * library name (libremo.so.0.1) and symbol versions (REMO_0.1), and a program loads the minor
 * version that it was linked with. A patch version changes neither the interface nor the layout of
 * exchanged data. */
#pragma once

#include <remo/error.h>

REMO_BEGIN

/* The version of the headers. */
#define REMO_VERSION_MAJOR 0
#define REMO_VERSION_MINOR 1
#define REMO_VERSION_PATCH 0
#define REMO_VERSION "0.1.0"

/* Return the version of the loaded library, in the form of REMO_VERSION. Threads: any. */
REMO_API const char *remo_version(void);

REMO_END
