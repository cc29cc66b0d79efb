/* remote.h - the interface of objects and systems to the layers below: the only header of the layers above
 * base/ that they include (tests/check/layers).
 *
 * Place:     a reference, from remo__memory_find (the memory of a channel) or an address (remo/node.h).
 * Operation: remo__read, remo__write, remo__fetch_add, remo__compare_swap (op.h), with or without an ack.
 *            Between remo__cork and remo__uncork they are posted together. remo__ack_settle waits for an ack,
 *            and cancels what is still in flight.
 * Order:     remo__fence_retry and the other fences of fence.h.
 * Wait:      remo__wait, or remo__wait_polling if a condition can change without a notification, and
 *            remo__is_departure for a peer that has failed or left.
 * Service:   remo__service_relieve, after the caller has received what the service thread would receive.
 * Workers:   tasks that execute operations for which the thread does not wait yet (workers.h).
 * CPU:       the CPU accesses network memory by access.h.
 * Memory:    that of a channel, or blocks of this node's arena (arena.h). */
#pragma once

#include "channel/channel.h"
#include "fabric/access.h"
#include "node/arena.h"
#include "remote/fence.h"
#include "remote/service.h"
#include "remote/workers.h"
