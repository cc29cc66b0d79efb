/* service.h - the service thread of a node: delivers immediates, and drives operations of threads that do not
 * poll. */
#pragma once

#include "remote/thread.h"

struct remo__service;

#define REMO__SERVICE_REST_NS (100 * REMO__NS_PER_US)

/* Errors: -ENOMEM, -EAGAIN. */
int remo__service_start(struct remo_node *node, struct remo__service **ret_service);
/* Stop the thread. It calls no hook after the return. NULL has no effect. */
void remo__service_stop(struct remo__service *service);

/* The caller, not the service thread, has received what peers had sent to this node. While threads do so, the
 * service thread rests for REMO__SERVICE_REST_NS at a time, so that no peer has to wake it; up to 8 times as
 * long while they receive often. */
static inline void remo__service_relieve(struct remo_node *node) {
    _Atomic uint32_t *relieved = &node->threads->relieved; /* of concurrent increments one may be lost */
    atomic_store_explicit(relieved, atomic_load_explicit(relieved, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* The service thread has found nothing to do for the immediate that it delivers: other threads have
 * received, or will receive, what the peer has sent. */
static inline void remo__service_count_needless(struct remo_node *node) {
    node->threads->needless++;
}
