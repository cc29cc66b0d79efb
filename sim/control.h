/* control.h - the streams between simulated nodes. */
#pragma once

#include <stdint.h>

/* The streams between this node and the others end now: the last of what was sent may not arrive, and both
 * sides hear of the end. */
void sim_control_lose(uint32_t node);
