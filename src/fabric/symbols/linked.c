/* linked.c - a program linked with the network libraries as a program without Remo would be. find-versions
 * reads from it the version of each function that the linker chooses. It is never run. */
#include <infiniband/verbs.h>
#include <rdma/fabric.h>
#include <rdma/rdma_cma.h>

#include "fabric/ofi/symbols.h"
#include "fabric/verbs/symbols.h"

#define ADDRESS(type, name, parameters, arguments) (void *)(name),

__attribute__((used)) void *const linked[] = {REMO__OFI_SYMBOLS(ADDRESS, ADDRESS) REMO__VERBS_SYMBOLS(
    ADDRESS, ADDRESS) REMO__RDMACM_SYMBOLS(ADDRESS, ADDRESS)};

int main(void) {
    return linked[0] == 0;
}
