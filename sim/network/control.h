/* control.h - the streams between simulated nodes. */
#pragma once

#include <stdint.h>

/* End the streams between this node and all peers at once. The last frames in flight may be lost;
 * both sides are notified of the end. */
void sim_control_lose(uint32_t node);
