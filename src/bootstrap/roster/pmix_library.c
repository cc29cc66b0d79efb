/* pmix_library.c - implements pmix_library.h: the table and the stubs of libpmix.
 * A stub is valid only after remo__pmix_library_load has returned 0. */
#include "bootstrap/roster/pmix_library.h"

static struct { REMO__PMIX_SYMBOLS(REMO__LIBRARY_MEMBER, REMO__LIBRARY_MEMBER) } table;

REMO__PMIX_SYMBOLS(REMO__LIBRARY_CALL, REMO__LIBRARY_LOAD)

/* Distributions install libpmix in its own folder, which the loader may not search. Try the folder that
 * pkg-config named at build time, then the loader's folders. */
int remo__pmix_library_load(void) {
    static const char *const files[] = {REMO_PMIX_FOLDER "/libpmix.so.2", "libpmix.so.2", NULL};
    static const struct remo__library_symbol symbols[] = {
        REMO__PMIX_SYMBOLS(REMO__LIBRARY_SYMBOL, REMO__LIBRARY_SYMBOL)};
    static struct remo__library library = {.name = "libpmix",
                                           .package = "libpmix2",
                                           .files = files,
                                           .symbols = symbols,
                                           .symbol_count = REMO__ARRAY_COUNT(symbols)};
    return remo__library_load(&library);
}
