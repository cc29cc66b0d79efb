/* barrier.h - the part of a barrier that objects made of a barrier use beside remo/barrier.h. */
#pragma once

#include <remo/barrier.h>

/* Announce that this node arrives in no later round, because a participant has failed: each peer that waits
 * for this node in a later round gets -EHOSTDOWN. Called between two rounds, or after a round that ended with
 * an error. The thread's last sentence remains. Cost: one write to each peer; later calls have no effect. */
void remo__barrier_abandon(struct remo_barrier *barrier);
