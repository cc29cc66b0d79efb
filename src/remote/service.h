/* service.h - the service thread of a node: delivers immediates, and drives operations of threads that do not
 * poll. */
#pragma once

#include "remote/thread.h"

struct remo__service;

/* Errors: -ENOMEM, -EAGAIN. */
int remo__service_start(struct remo_node *node, struct remo__service **ret_service);
/* Stop the thread. It calls no hook after the return. NULL has no effect. */
void remo__service_stop(struct remo__service *service);
