/* early.h - a table of JOINs that arrived before this node opened their channel.
 *
 * The open answers JOINs of nodes that it does not count as participants; without the table their senders
 * would wait until the timeout. Participants need no entry: the open sends them a JOIN. The table is bounded:
 * a new entry replaces the oldest, whose sender times out. */
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
    struct remo_nodeset participants;
};

struct remo__early {
    uint32_t next;
    struct remo__early_join joins[REMO__EARLY_JOINS_MAX];
};

/* Add the JOIN of `peer`. The registry's lock is held, here and below. */
void remo__early_keep(struct remo__early *early, uint32_t peer, const struct remo__join *join);
/* Remove one JOIN for the channel `name` and return its sender, and id and participants in `ret_join`. False:
 * the table has none. */
bool remo__early_take(struct remo__early *early, const char *name, uint32_t *ret_peer,
                      struct remo__join *ret_join);
/* Remove the JOINs of a peer that has failed. */
void remo__early_forget(struct remo__early *early, uint32_t peer);
