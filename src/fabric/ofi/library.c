/* library.c - implements library.h: the table and the stubs of libfabric.
 * A stub is valid only after remo__ofi_library_load has returned 0. */
#include "fabric/ofi/library.h"

#include "fabric/symbols/versions.h"

static struct { REMO__OFI_SYMBOLS(REMO__LIBRARY_MEMBER, REMO__LIBRARY_MEMBER) } table;

REMO__OFI_SYMBOLS(REMO__LIBRARY_CALL, REMO__LIBRARY_LOAD)

int remo__ofi_library_load(void) {
    static const char *const files[] = {"libfabric.so.1", NULL};
    static const struct remo__library_symbol symbols[] = {
        REMO__OFI_SYMBOLS(REMO__LIBRARY_SYMBOL_VERSION, REMO__LIBRARY_SYMBOL_VERSION)};
    static struct remo__library library = {.name = "libfabric",
                                           .package = "libfabric1",
                                           .files = files,
                                           .symbols = symbols,
                                           .symbol_count = REMO__ARRAY_COUNT(symbols)};
    return remo__library_load(&library);
}
