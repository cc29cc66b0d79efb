/* conformance_verbs.c - the conformance suite on the fabric verbs.
 * REMO_PROVIDER names the device; the default is the first device. */
#include "suite.h"

int main(int argc, char **argv) {
    struct suite suite = {.ops = &remo__fabric_verbs, .provider = getenv("REMO_PROVIDER")};
    return suite_main(&suite, argc, argv);
}
