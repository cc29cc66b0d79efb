/* conformance_ofi.c - the conformance suite on the fabric ofi.
 * OFI_PROVIDER names the provider; the default is TCP. */
#include "suite.h"

int main(int argc, char **argv) {
    struct suite suite = {.ops = &remo__fabric_ofi, .provider = getenv("OFI_PROVIDER")};
    return suite_main(&suite, argc, argv);
}
