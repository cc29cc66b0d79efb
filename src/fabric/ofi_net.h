/* ofi_net.h - the little that the ofi fabric needs of libfabric: endpoints that write into each other's
 * memory.
 *
 * Model:   a net is a libfabric fabric. A port is one reliable-datagram endpoint with its queue, its address
 *          table, and one block of memory that the owners of its key may write. A port is used by one thread
 *          at a time; it shares nothing with other ports but the net, so it can be closed at any moment,
 *          whatever its peer does, and nothing lands in its block any more when that has returned.
 * Why not libfabric's own reads and atomics: measured over tcp;ofi_rxm 1.17, a request written into a ring
 * and
 *          an answer written back take as long as one fi_read (7.9 against 7.6 us), and many requests
 *          share a message. And TCP's reads and writes place bytes as they come: they tear aligned words,
 *          which this library promises not to do; its atomics are executed apart from them, out of order. */
#ifndef REMO_FABRIC_OFI_NET_H
#define REMO_FABRIC_OFI_NET_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "fabric/ofi_wire.h"

#define REMO__OFI_PROVIDER_DEFAULT "tcp;ofi_rxm"

struct ofi_net {
    struct fi_info *info;
    struct fid_fabric *fabric;
    uint32_t eager_bytes; /* ofi_rxm: must be the same everywhere; 0: another provider */
    bool again_is_lost;   /* a write that is told to try again has lost its connection (ofi_rxm) */
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
    int fd; /* of the queue; -1: it has none */
};

/* Memory that peers may write, and that our own writes come from. */
struct ofi_block {
    uint8_t *memory;
    size_t size_bytes;
    struct fid_mr *mr;
    uint64_t key, base; /* as peers name it */
};

/* Where a peer's block is. */
struct ofi_remote {
    fi_addr_t address;
    uint64_t key, base;
};

/* Is there such a provider? -ENODEV with the remedy if not. `address` NULL: loopback, where that has a
 * meaning. */
int remo__ofi_net_probe(const char *provider, const char *address);
int remo__ofi_net_open(struct ofi_net *net, const char *provider, const char *address,
                       const struct remo__log *log);
void remo__ofi_net_close(struct ofi_net *net);

/* `sleepable`: with a descriptor, which costs each arrival some 0.5 us. All zero is a closed port. */
int remo__ofi_port_open(struct ofi_port *port, struct ofi_net *net, bool sleepable);
void remo__ofi_port_close(struct ofi_port *port);
int remo__ofi_port_name(struct ofi_port *port, void *address, size_t cap, size_t *ret_bytes);
int remo__ofi_port_insert(struct ofi_port *port, const void *address, fi_addr_t *ret_address);

/* Zeroed memory, registered. All zero is a closed block; `forget` keeps the memory and lets nobody write it.
 * */
int remo__ofi_block_open(struct ofi_block *block, struct ofi_port *port, size_t size_bytes);
int remo__ofi_block_register(struct ofi_block *block, struct ofi_port *port);
void remo__ofi_block_forget(struct ofi_block *block);
void remo__ofi_block_close(struct ofi_block *block);

/* A write of `bytes` at `from`, inside `block`, to `at` of the remote block. */
struct ofi_write {
    const struct ofi_block *block;
    const void *from; /* must stay as it is until the peer has answered */
    size_t bytes;
    const struct ofi_remote *remote;
    uint64_t at;
    uint32_t data;  /* delivered to the peer's poll */
    bool silent;    /* but no data is to be delivered, unless the peer would sleep on otherwise */
    bool connected; /* something came from there before, so there must be a connection */
};

/* 0, -EAGAIN, or -EHOSTDOWN when the connection is lost. */
int remo__ofi_port_write(struct ofi_port *port, const struct ofi_write *write);
/* Drive the port. Returns how many immediates came, or an error: something sent before has failed. */
int remo__ofi_port_poll(struct ofi_port *port, uint32_t *ret_data, uint32_t max);
/* May the thread sleep on port->fd? Look at the memory once more after a yes. */
bool remo__ofi_port_may_sleep(struct ofi_port *port);

#endif
