/* munge_library.c - implements munge_library.h: the table of libmunge's functions.
 * The table is written once, under the lock of library.c. */
#include "bootstrap/munge_library.h"

static struct remo__munge table;

int remo__munge_library_load(const struct remo__munge **ret_munge) {
    static const char *const files[] = {"libmunge.so.2", NULL};
    static const struct remo__library_symbol symbols[] = {
        REMO__MUNGE_SYMBOLS(REMO__LIBRARY_SYMBOL, REMO__LIBRARY_SYMBOL)};
    static struct remo__library library = {.name = "libmunge",
                                           .package = "libmunge2",
                                           .files = files,
                                           .symbols = symbols,
                                           .symbol_count = REMO__ARRAY_COUNT(symbols)};
    int rc = remo__library_load(&library);
    if (rc == 0)
        *ret_munge = &table;
    return rc;
}
