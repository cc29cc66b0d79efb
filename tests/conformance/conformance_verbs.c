/* The conformance suite on the fabric verbs, over the device that REMO_PROVIDER names, or the first. */
#include "suite.h"

int main(int argc, char **argv) {
    struct suite suite = {.ops = &remo__fabric_verbs, .provider = getenv("REMO_PROVIDER")};
    return suite_main(&suite, argc, argv);
}
