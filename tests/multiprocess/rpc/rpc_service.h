/* rpc_service.h - the service that the tests of rpc open on each node, and the counters of its
 * handlers. */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "../../support/cluster.h"

#define NODES_MAX 8u
#define LONG_TIME (100 * SECOND)

enum handler { ECHO, ADD, KEEP, ANSWER, PASS_ON, RECORD, CIRCLE, HANDLERS };

/* Shared by all processes. */
struct service_shared {
    _Atomic uint64_t sum[NODES_MAX];                 /* of the numbers that ADD got, at each node */
    _Atomic uint64_t runs[NODES_MAX];                /* of all handlers */
    _Atomic uint64_t expected[NODES_MAX][NODES_MAX]; /* RECORD: next number at a node, of each caller */
    _Atomic uint64_t wrong_count;
};

/* The state of one node. */
struct service {
    struct remo_rpc *rpc;
    uint32_t rank, size;
    struct service_shared *shared;
    _Atomic uint32_t kept_count;
    struct remo_rpc_deferred kept[64];
};

/* Open the service "service", and wait for all nodes. */
int service_open(struct remo_node *node, struct service_shared *shared, struct service *ret_service);
