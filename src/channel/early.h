/* early.h - JOINs that came before this node opened their channel.
 *
 * A JOIN of a participant can be forgotten: this node sends its own when it opens. A JOIN of a node that this
 * node does not count as a participant must be answered then, or its sender waits until its timeout. The
 * table is bounded: the oldest entry makes room, and its sender times out. */
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

/* Keep the JOIN of `peer`. The registry's lock is held, here and below. */
void remo__early_keep(struct remo__early *early, uint32_t peer, const struct remo__join *join);
/* Take the next JOIN for the channel `name` out of the table: its sender, id and participants are put into
 * `ret_join`. False: there is none. */
bool remo__early_take(struct remo__early *early, const char *name, uint32_t *ret_peer,
                      struct remo__join *ret_join);
/* The peer has failed: forget its JOINs. */
void remo__early_forget(struct remo__early *early, uint32_t peer);
