/* early.h - a table of JOINs that arrived before this node opened their channel.
 *
 * The open sends its own JOIN to the senders that it does not count as participants. Their endpoints, if
 * still open, then detect the mismatch. Without the table these nodes would wait until the timeout.
 * Participants need no entry: the open sends them a JOIN. The table is bounded: a new entry replaces the
 * oldest, whose sender times out. */
#pragma once

#include "channel/message.h"

#ifdef REMO_SIM_SMALL
#define REMO__EARLY_JOINS_MAX 8u
#else
#define REMO__EARLY_JOINS_MAX 256u
#endif

struct remo__early_join {
    uint64_t name_hash;
    uint32_t peer, id; /* id 0: no entry */
};

struct remo__early {
    uint32_t next;
    struct remo__early_join joins[REMO__EARLY_JOINS_MAX];
};

/* Add the JOIN of the endpoint `id` of `peer`. The registry's lock is held, here and below. */
void remo__early_keep(struct remo__early *early, uint32_t peer, const char *name, uint32_t id);
/* Remove one JOIN for the channel `name`, and return its sender and endpoint. False: the table has none. */
bool remo__early_take(struct remo__early *early, const char *name, uint32_t *ret_peer, uint32_t *ret_id);
/* Remove the JOIN of the endpoint `id` of `peer`, which has closed. */
void remo__early_remove(struct remo__early *early, uint32_t peer, uint32_t id);
/* Remove the JOINs of a peer that has failed. */
void remo__early_forget(struct remo__early *early, uint32_t peer);
