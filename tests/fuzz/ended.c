/* ended.c - fuzzes the launcher's record of ended nodes, a file that a node reads while it joins.
 * Invariant: each accepted record is in range, and on its own line. */
#include <assert.h>
#include <string.h>

#include "bootstrap/roster/ended.h"
#include "fuzz.h"

static const char *const seeds[] = {"0 0\n", "1 7\n0 137\n255 255\n", "12 3\n12", "x\n4 4\n",
                                    "256 1\n1 256\n"};

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    if (n >= sizeof seeds / sizeof seeds[0])
        return 0;
    memcpy(ret_data, seeds[n], strlen(seeds[n]));
    return strlen(seeds[n]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const char *at = (const char *)data, *end = at + bytes, *before = at;
    uint32_t rank, status;
    while (remo__ended_next(&at, end, &rank, &status)) {
        assert(at > before && at <= end && at[-1] == '\n');
        assert(rank < REMO__NODES_MAX && status <= 255);
        before = at;
    }
    return 0;
}
