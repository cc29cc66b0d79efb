/* The conformance suite on the fabric ofi, over the provider that OFI_PROVIDER names, or TCP. */
#include "suite.h"

int main(int argc, char **argv) {
    struct suite suite = {.ops = &remo__fabric_ofi, .provider = getenv("OFI_PROVIDER")};
    return suite_main(&suite, argc, argv);
}
