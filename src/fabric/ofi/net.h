/* net.h - the part of libfabric that the ofi fabric uses: endpoints that write into each other's memory.
 *
 * Model:   a net is a libfabric fabric. A port is one reliable-datagram endpoint with its queue, its address
 *          table, and blocks of memory that the owners of their keys may write. A port reaches any number of
 *          peers. One thread at a time uses it. It shares only the net with other ports. So it can be closed
 *          at any time, whatever its peers do, and no write reaches its blocks afterwards.
 * Failure: a write that fails is reported with its owner, so the loss of one peer does not affect the others.
 *          libfabric can neither cancel a write nor close the connection to one peer. So the memory of a
 *          block must stay mapped until its port is closed.
 * Cost:    a port takes 2.5 MB and 9 descriptors, and 2 ms to open; each peer 60 KB and 1 descriptor.
 * Why:     libfabric's own reads and atomics are not used. Measured over tcp;ofi_rxm 1.17, a request written
 *          into a ring and an answer written back take as long as one fi_read (7.9 against 7.6 us), and many
 *          requests share a message. TCP's reads and writes place bytes as they arrive, so they tear aligned
 *          words, which Remo guarantees not to do. Its atomics are executed out of order with them. */
#pragma once

#include "fabric/ofi/library.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "fabric/ofi/wire.h"

#define REMO__OFI_PROVIDER_DEFAULT "tcp;ofi_rxm"

struct ofi_net {
    struct fi_info *info;
    struct fid_fabric *fabric;
    uint32_t eager_bytes; /* ofi_rxm: must be the same everywhere; 0: another provider */
    uint32_t writes_max;  /* of a port, in flight: with more, libfabric refuses the next */
    bool again_is_lost;   /* -FI_EAGAIN for a write means that its connection is lost (ofi_rxm) */
    /* Byte streams that remo__ofi_port_poll itself reads: what arrives makes the descriptor of the queue
     * readable, and is placed in order. */
    bool stream;
};

struct ofi_port {
    struct ofi_net *net;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
    uint32_t writes; /* in flight: posted, and not yet reported by a poll */
    int fd;          /* of the queue; -1: it has none */
};

/* Memory that peers may write, and the source of this node's writes. */
struct ofi_block {
    uint8_t *memory;
    size_t size_bytes;
    struct fid_mr *mr;
    uint64_t key, base; /* for peers */
};

/* The position of a peer's block. */
struct ofi_remote {
    fi_addr_t address;
    uint64_t key, base;
};

/* Check that the provider exists. `address` NULL: loopback, for providers with IP addresses. Errors:
 * -ENODEV. */
int remo__ofi_net_probe(const char *provider, const char *address);
int remo__ofi_net_open(struct ofi_net *net, const char *provider, const char *address,
                       const struct remo__log *log);
void remo__ofi_net_close(struct ofi_net *net);

/* Open a port. `sleepable`: with a descriptor, which adds 0.5 us to each message. All zero is a closed
 * port. */
int remo__ofi_port_open(struct ofi_port *port, struct ofi_net *net, bool sleepable);
void remo__ofi_port_close(struct ofi_port *port);
int remo__ofi_port_name(struct ofi_port *port, void *address, size_t cap, size_t *ret_bytes);
int remo__ofi_port_insert(struct ofi_port *port, const void *address, fi_addr_t *ret_address);

/* Zeroed, registered memory. All zero is a closed block. `unregister` makes later writes fail, and keeps the
 * memory, because a write that has begun may continue until the port is closed. */
int remo__ofi_block_open(struct ofi_block *block, struct ofi_port *port, size_t size_bytes);
int remo__ofi_block_register(struct ofi_block *block, struct ofi_port *port);
void remo__ofi_block_unregister(struct ofi_block *block);
void remo__ofi_block_close(struct ofi_block *block);

/* A write of `bytes` at `from`, inside `block`, to `at` of the remote block. */
struct ofi_write {
    const struct ofi_block *block;
    uint64_t owner;   /* reported with the end of the write */
    const void *from; /* must not change until the peer has answered */
    size_t bytes;
    const struct ofi_remote *remote;
    uint64_t at;
    uint32_t data;      /* delivered to the peer's poll */
    bool omits_data;    /* do not deliver `data`, unless the provider needs it to wake the peer */
    bool was_connected; /* the peer has answered before, so there was a connection */
};

/* Post a write. Errors: -EAGAIN, or -EHOSTDOWN if the connection is lost. */
int remo__ofi_port_write(struct ofi_port *port, const struct ofi_write *write);

enum ofi_event_kind {
    OFI_EVENT_ARRIVED, /* a peer's write with `data` is placed */
    OFI_EVENT_SENT,    /* a write of `owner` is sent; it may still be lost */
    OFI_EVENT_FAILED,  /* a write of `owner` has failed; the sentence is set */
};

struct ofi_event {
    enum ofi_event_kind kind;
    uint32_t data;
    uint64_t owner;
};

/* Drive the port. Returns the number of events; 0: none is left. A failed write is the only event
 * of its call.
 * Errors: -EIO (the port is unusable). */
int remo__ofi_port_poll(struct ofi_port *port, struct ofi_event *ret_events, uint32_t max);
/* Return whether the thread may sleep on port->fd. Check the memory once more after true. */
bool remo__ofi_port_may_sleep(struct ofi_port *port);
