/* barrier.h - what an object that is made of a barrier needs beside its public interface. */
#pragma once

#include <remo/barrier.h>

/* Announce that this node comes to no further round, since a participant has failed: each peer that waits for
 * this node in a later round gets -EHOSTDOWN. Between two rounds, or in one that has ended with an error; the
 * last sentence of the thread stays. */
void remo__barrier_give_up(struct remo_barrier *barrier);
