/* slots.h - the operations in flight of one thread; shared by op.c, ack.c and fence.c. */
#pragma once

#include "node/op.h"
#include "node/wait.h"

struct remo__slot {
    struct remo_ack *ack;      /* NULL: nobody waits, or nobody any more */
    void *dst;                 /* reads and atomics: where the result is copied to; NULL: nowhere */
    char *bounce;
    uint64_t word;             /* bounce block on mapped fabrics */
    uint32_t bytes;
    uint16_t peer;
    uint8_t kind;
    bool busy;
};

struct remo__slots_peer {
    uint32_t writes, others;   /* in flight */
    int error;                 /* of a write that nobody waited for; told by the next fence */
    bool unflushed;            /* writes completed or not, but not known to be placed */
};

struct remo__slots {
    struct remo__mutex lock;
    struct remo_node *node;
    struct remo__endpoint *endpoint;
    uint64_t bounce_offset;
    uint32_t depth, in_flight, free_count;
    uint16_t free[REMO__SLOTS_MAX];
    struct remo__slot slot[REMO__SLOTS_MAX];
    struct remo__slots_peer peers[]; /* [size] */
};
