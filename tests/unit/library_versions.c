/* library_versions.c - compares the versions of dynamically loaded functions with the linker's choice.
 *
 * This program is linked with the libraries, so the linker has chosen the version of each function. Exit 1
 * names the functions that differ. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/fabric.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

#include "base/bits.h"
#include "fabric/ofi/symbols.h"
#include "fabric/symbols/versions.h"
#include "fabric/verbs/symbols.h"

#define SYMBOL(type, name, parameters, arguments) {#name, REMO__VERSION_##name, (void *)(name)},

static const struct {
    const char *name, *version;
    void *linked;
} symbols[] = {REMO__OFI_SYMBOLS(SYMBOL, SYMBOL) REMO__VERBS_SYMBOLS(SYMBOL, SYMBOL)
                   REMO__RDMACM_SYMBOLS(SYMBOL, SYMBOL)};

int main(void) {
    int wrong = 0;
    for (size_t i = 0; i < REMO__ARRAY_COUNT(symbols); i++) {
        void *loaded = dlvsym(RTLD_DEFAULT, symbols[i].name, symbols[i].version);
        if (loaded == symbols[i].linked)
            continue;
        printf("%s: version %s is %p, but a program is linked with %p\n", symbols[i].name, symbols[i].version,
               loaded, symbols[i].linked);
        wrong++;
    }
    printf("%zu functions, %d of another version\n", REMO__ARRAY_COUNT(symbols), wrong);
    return wrong != 0;
}
