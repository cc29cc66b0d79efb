/* run.c - implements sim_timed_run: opens the world with a clock and its network, and runs all nodes.
 * It is above timed.c and net.c, because the network uses the clock of the world. */
#include "sim/network/net.h"
#include "sim/timed/timed.h"

bool sim_timed_run(uint32_t nodes, void (*program)(void *ctx, uint32_t node), void *ctx) {
    if (!sim_timed_open(nodes, program, ctx))
        return false;
    sim_net_open();
    return sim_timed_start();
}
