/* conformance_shm.c - the conformance suite on the fabric shm.
 * suite.h describes the suite. */
#include "suite.h"

int main(int argc, char **argv) {
    static const struct suite suite = {.ops = &remo__fabric_shm};
    return suite_main(&suite, argc, argv);
}
