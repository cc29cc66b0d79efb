/* library.c - implements library.h: the table and the stubs of libibverbs and librdmacm.
 * A stub is valid only after remo__verbs_library_load has returned 0. */
#include "fabric/verbs/library.h"

#include "fabric/symbols/versions.h"

static struct {
    REMO__VERBS_SYMBOLS(REMO__LIBRARY_MEMBER, REMO__LIBRARY_MEMBER)
    REMO__RDMACM_SYMBOLS(REMO__LIBRARY_MEMBER, REMO__LIBRARY_MEMBER)
} table;

REMO__VERBS_SYMBOLS(REMO__LIBRARY_CALL, REMO__LIBRARY_LOAD)
REMO__RDMACM_SYMBOLS(REMO__LIBRARY_CALL, REMO__LIBRARY_LOAD)

static int ibverbs_load(void) {
    static const char *const files[] = {"libibverbs.so.1", NULL};
    static const struct remo__library_symbol symbols[] = {
        REMO__VERBS_SYMBOLS(REMO__LIBRARY_SYMBOL_VERSION, REMO__LIBRARY_SYMBOL_VERSION)};
    static struct remo__library library = {.name = "libibverbs",
                                           .package = "libibverbs1",
                                           .files = files,
                                           .symbols = symbols,
                                           .symbol_count = REMO__ARRAY_COUNT(symbols)};
    return remo__library_load(&library);
}

static int rdmacm_load(void) {
    static const char *const files[] = {"librdmacm.so.1", NULL};
    static const struct remo__library_symbol symbols[] = {
        REMO__RDMACM_SYMBOLS(REMO__LIBRARY_SYMBOL_VERSION, REMO__LIBRARY_SYMBOL_VERSION)};
    static struct remo__library library = {.name = "librdmacm",
                                           .package = "librdmacm1",
                                           .files = files,
                                           .symbols = symbols,
                                           .symbol_count = REMO__ARRAY_COUNT(symbols)};
    return remo__library_load(&library);
}

int remo__verbs_library_load(void) {
    int rc = ibverbs_load();
    return rc == 0 ? rdmacm_load() : rc;
}
