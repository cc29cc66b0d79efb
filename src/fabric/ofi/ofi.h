/* ofi.h - internals of the ofi fabric: nodes on any machines, connected by libfabric; TCP by default.
 *
 * Model:   an endpoint has a link to each peer that it has used; all its links share one port. A link queues
 *          operations, encodes as many as fit into a message, and writes the message into a ring at the peer.
 *          There the target thread executes them on its node's memory and writes the answers back. It sleeps
 *          while no message arrives, and needs no call of the program. While threads of the program wait,
 *          they execute the operations, and the target thread rests (ofi/arrivals.c).
 * Why:     fi_read and fi_atomic are not used. Over tcp;ofi_rxm, those to a failed peer cannot be cancelled,
 *          connections are remade silently, words tear, and atomics overtake writes. docs/architecture.md
 *          describes the price on devices with real RMA.
 * Order:   a CPU executes all operations of an endpoint to a peer one after the other, in the order posted.
 *          So atomics are atomic with the CPU's, fences need no operation, and a completion means placed.
 *          Operations on the node itself are executed when they are posted, and the node may execute them
 *          by its CPU instead (`base` of the node itself in fabric.h).
 * Failure: a link whose connection is lost is not made again, because messages in between would be missing.
 *          Its operations end when the node cuts the peer off (fabric.h). After that the target thread
 *          executes none of the peer's requests. A new incarnation of the peer gets a new link.
 * Cost:    an operation alone takes two writes of libfabric, one to the peer and one back. Up to some
 *          hundreds of operations share them. Reads whose caller does not wait yet are sent by the next poll,
 *          if that usually follows soon (ofi/endpoint.c). An endpoint takes 2.5 MB and 10 descriptors on
 *          first use, and each link 0.1 MB and 1 descriptor at each end.
 * Threads: the target thread, the control thread and threads that wait share target.lock. A link belongs to
 *          the thread that holds its endpoint: its own thread, or the target thread. The target thread sends
 *          queued operations that the own thread does not drive. A published contact does not change, except
 *          that ranges are added, and is freed with the fabric. */
#pragma once

#include <pthread.h>

#include "fabric/fabric.h"
#include "fabric/ofi/execute.h"
#include "fabric/ofi/net.h"

#define REMO__OFI_DEPTH 512u /* operations of an endpoint, posted and not polled */
#define REMO__OFI_BATCH_MAX 128u
#define REMO__OFI_INLINE_BYTES 128u
#define REMO__OFI_MESSAGE_BYTES_MAX (UINT64_C(1) << 20) /* of one operation, sent in several messages */
#define REMO__OFI_FLIGHTS_MAX 1024u   /* fragments in flight: a power of 2 above depth + window */
#define REMO__OFI_NONE UINT16_MAX     /* no slot */
#define REMO__OFI_AT_ONCE UINT64_MAX  /* no time: send answers at once */
#define REMO__OFI_LEASE_NS 100000     /* of one rest of the target thread, which may be renewed */
#define REMO__OFI_LEASE_NS_MAX 400000 /* of one that is renewed: see next_lease_ns */

static_assert(REMO__OFI_FLIGHTS_MAX >= REMO__OFI_DEPTH + REMO__OFI_WINDOW,
              "each message continues at most one operation");

/* One incarnation of a peer, from its description. */
struct ofi_contact {
    uint32_t rank;
    uint32_t endpoints_max; /* entries for each peer in its table of offers */
    uint64_t incarnation;
    uint64_t table_key, table_base;
    uint8_t address[REMO__OFI_ADDRESS_BYTES_MAX];
    struct ofi_ranges ranges;
    _Atomic bool is_lost;      /* a connection to it was lost */
    struct ofi_contact *older; /* list of all contacts, freed with the fabric */
};

/* A peer's endpoint that accesses this node's memory. */
struct ofi_inbound {
    uint32_t rank, endpoint;
    uint32_t cut_off_count; /* of the peer, when the inbound was opened */
    uint64_t seed;
    struct ofi_block block; /* the ring; the word for probes; the answers as they are written */
    struct ofi_remote answers;
    uint32_t next;                       /* number of the next request */
    uint32_t placed;                     /* bits of slots whose large requests are placed */
    size_t unsent_bytes;                 /* size of an answer that is ready but not sent yet */
    uint32_t unsent_seq;                 /* number of its slot */
    bool running;                        /* the request has stalled */
    uint32_t withheld, withheld_records; /* requests whose answers are withheld, and their records */
    uint64_t withheld_ns;                /* time of the first one */
    bool is_broken; /* no longer served: its connection is lost, or a request was malformed */
    struct ofi_run run;
    uint64_t retired_ns;       /* time of the replacement */
    struct ofi_inbound *older; /* in the list of retired inbounds */
};

struct ofi_target {
    pthread_t thread;
    bool started;
    _Atomic bool stop;
    int wake_fd;
    pthread_mutex_t lock; /* of all fields below */
    struct ofi_port port;
    struct ofi_block table; /* offers: [size][endpoints_max] */
    struct ofi_inbound **inbounds;
    uint32_t inbound_count, inbound_cap;
    struct ofi_inbound *retired; /* not executed; late writes may still reach their memory */
    bool stalled;                /* an inbound waits for an event without a wake-up */
    _Atomic bool is_watching;    /* the thread checks for endpoints that are not driven */
    uint32_t idle_checks;        /* consecutive checks at which no endpoint needed help */
    uint32_t watch_doublings;    /* of the time between two checks */
    /* ofi/arrivals.c */
    _Atomic uint64_t taken_ns;       /* time of the last take_arrivals, or of the begin of the first lease */
    _Atomic uint64_t keeps_until_ns; /* until then the target thread does not rest */
};

struct ofi_fabric {
    struct remo__fabric base;
    char *arena;
    uint64_t arena_bytes;
    uint64_t incarnation;
    uint32_t endpoints_max;
    struct ofi_net net;
    struct ofi_memory *memory;
    _Atomic uint32_t *cut_off_counts; /* [size] how many times each peer was cut off */
    struct ofi_target target;
    struct ofi_contact *kept; /* all contacts, the latest first */
    pthread_mutex_t endpoints_lock;
    struct ofi_endpoint **endpoints;          /* [endpoints_max] */
    _Atomic(struct ofi_contact *) contacts[]; /* [size]; NULL: not connected */
};

/* One operation, from post to poll. */
struct ofi_slot {
    struct remo__op op;
    uint64_t sent_bytes, left_bytes; /* of op.size_bytes: sent in requests; not answered yet */
    uint32_t unanswered;             /* fragments */
    int status;
    uint16_t next;
    bool all_sent;
    _Alignas(8) uint8_t copy[REMO__OFI_INLINE_BYTES];
};

/* First in, first out, through ofi_slot.next. */
struct ofi_fifo {
    uint16_t head, tail;
    uint32_t count;
};

enum ofi_link_state {
    OFI_LINK_OFFERING, /* the offer is not sent yet: the connection is being established */
    OFI_LINK_OFFERED,  /* the offer is sent, and not accepted yet */
    OFI_LINK_UP,
    OFI_LINK_LOST,  /* the connection is lost; the peer is not cut off yet */
    OFI_LINK_ENDED, /* the peer was cut off */
};

struct ofi_flight {
    uint32_t size_bytes;
    uint16_t slot;
};

struct ofi_link {
    struct ofi_endpoint *endpoint;
    struct ofi_contact *contact; /* the peer's incarnation to which it is connected */
    enum ofi_link_state state;
    uint64_t owner;         /* identifies its writes: unique in its endpoint */
    uint32_t writes;        /* number in flight */
    struct ofi_block block; /* requests as they are written; answers; the offer; the word for probes */
    struct ofi_remote table, ring;
    uint64_t seed;
    uint32_t next, answered;            /* numbers of the next request, and of the last answered one */
    uint32_t placed;                    /* bits of slots whose large answers are placed */
    uint16_t records[REMO__OFI_WINDOW]; /* number of records of each request in flight */
    /* Times at which requests in flight were sent whose answers may be withheld; 0: an awaited request. */
    uint64_t unawaited_ns[REMO__OFI_WINDOW];
    size_t unsent_bytes;   /* size of request `next - 1` if it is ready but not sent yet */
    struct ofi_fifo queue; /* operations that are not completely sent */
    uint32_t urgent_count; /* those that are not REMO__OP_GATHER */
    uint64_t queue_bytes;  /* approximate size of their requests and answers */
    uint32_t flight_head, flight_tail;
    struct ofi_flight flights[REMO__OFI_FLIGHTS_MAX];
    uint64_t since_ns; /* time of activation, or of the last answer or probe */
    uint64_t offered_ns;
    uint32_t quiet_polls;
    uint32_t active_at; /* index in endpoint->active while `active` */
    bool active, needs_push, slow_logged;
    struct ofi_link *older; /* in the list of retired links */
};

struct ofi_endpoint {
    struct ofi_fabric *ofi;
    uint32_t index;
    int wake_fd;             /* written when a peer is cut off */
    _Atomic bool held;       /* held by its own thread or by the target thread */
    _Atomic uint32_t queued; /* operations that are not completely sent */
    _Atomic uint32_t drives; /* number of calls by its own thread */
    uint32_t drives_seen;    /* `drives` when the target thread last found a new value */
    uint64_t drives_seen_ns; /* time of that check */
    uint32_t sleeps;         /* number since the last completion */
    bool gathers;            /* defer reads to the next poll, because the last one followed soon */
    uint64_t gather_ns;      /* post time of the first deferrable read since the last poll; 0: none */
    uint64_t gather_last_ns; /* post time of the last one */
    uint64_t polled_ns;      /* time of the last poll while no answer was awaited */
    uint32_t free_count, active_count;
    uint32_t offer_at;        /* index in `active`, plus 1, of the link whose offer is sent next */
    uint32_t link_count;      /* links opened so far */
    struct ofi_port port;     /* closed until the first link is opened */
    struct ofi_fifo done;     /* complete, and not polled yet */
    struct ofi_link **active; /* [size] with something to do */
    struct ofi_link **links;  /* [size] NULL: never used */
    struct ofi_link
        *retired; /* replaced by a link to a later incarnation; a peer may still write their memory */
    uint16_t free[REMO__OFI_DEPTH];
    struct ofi_slot slots[REMO__OFI_DEPTH];
};

static inline struct ofi_fabric *ofi_of(struct remo__fabric *fabric) {
    return (struct ofi_fabric *)fabric; /* the first member */
}

/* ofi/target.c */
int remo__ofi_target_open(struct ofi_fabric *ofi);
void remo__ofi_target_close(struct ofi_fabric *ofi);
/* Accept earlier offers of a peer that has been connected. */
void remo__ofi_target_admit(struct ofi_fabric *ofi, uint32_t rank);
/* Cut a peer off: after return none of its requests is executed. */
void remo__ofi_target_cut_off(struct ofi_fabric *ofi, uint32_t rank);

/* Take events of the port, and execute requests that have arrived. `now`: answers may be withheld, for a
 * while from this time on; REMO__OFI_AT_ONCE: they are sent. The lock is held. Returns true if a request was
 * executed. */
bool remo__ofi_target_serve(struct ofi_fabric *ofi, uint64_t now, bool *ret_has_events);
/* Prepare a sleep on the descriptor of the port, and execute requests that are received already. The lock is
 * held. Returns false if there was work. */
bool remo__ofi_target_may_sleep(struct ofi_fabric *ofi);

/* ofi/thread.c */
int remo__ofi_target_start(struct ofi_fabric *ofi);

/* ofi/arrivals.c */
void remo__ofi_take_arrivals(struct remo__fabric *fabric, bool is_first);
/* Leave requests to waiting threads, if there are any, unless a request was delayed less than 5 ms ago.
 * Threads: the target thread. */
void remo__ofi_arrivals_leave(struct ofi_fabric *ofi);
/* A lease has ended. Return whether the next one begins: waiting threads have executed a request during the
 * lease, and none was delayed. `seen`: the value of `arrivals_taken` when the lease began; updated. Threads:
 * the target thread. */
bool remo__ofi_arrivals_renew(struct ofi_fabric *ofi, uint64_t *seen);

/* ofi/endpoint.c */
int remo__ofi_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint);
void remo__ofi_endpoint_close(struct remo__endpoint *endpoint);
int remo__ofi_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count);
int remo__ofi_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max);
void remo__ofi_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns);
/* Drive the endpoints with queued operations whose threads do not. Returns true if any endpoint has queued
 * operations. */
bool remo__ofi_endpoints_help(struct ofi_fabric *ofi);

/* ofi/link.c */
/* Find or open the link of an endpoint to a connected peer. Errors: -EAGAIN (the connection is lost),
 * -ENOSPC, -ENOMEM, -EIO, those of libfabric. */
int remo__ofi_link_get(struct ofi_endpoint *endpoint, struct ofi_contact *contact,
                       struct ofi_link **ret_link);
/* Append an operation to the queue, and activate the link. */
void remo__ofi_link_queue(struct ofi_link *link, uint16_t slot);
/* True if reads in the queue may wait for other operations, to share a request. */
bool remo__ofi_link_may_gather(const struct ofi_link *link);
/* Return whether only answers are missing that the target may withhold. */
bool remo__ofi_link_is_unawaited(const struct ofi_link *link);
/* Send the offer or queued operations, as far as possible now. */
void remo__ofi_link_push(struct ofi_link *link);
/* Drive the link, except for its offer: take answers, send requests, detect a lost connection. */
void remo__ofi_link_progress(struct ofi_link *link);
/* Drive the port of the endpoint, so that arrived answers are placed in the memory of the links. */
void remo__ofi_links_poll(struct ofi_endpoint *endpoint);
/* Close the port and free all links. Operations in flight are not completed. */
void remo__ofi_links_close(struct ofi_endpoint *endpoint);

/* ofi/message.c */
/* Encode the first queued operations as a request. Returns its size; 0 if there is nothing to send. */
size_t remo__ofi_request_make(struct ofi_link *link, uint8_t *message, uint32_t seq);
/* Complete the operations of an answer. False if the answer is malformed. */
bool remo__ofi_answer_take(struct ofi_link *link, const uint8_t *message, size_t bytes,
                           const struct remo__ofi_head *head);

/* ofi/slot.c */
/* Take a free slot for an operation; at least one is free. */
uint16_t remo__ofi_slot_take(struct ofi_endpoint *endpoint, const struct remo__op *op);
/* Append a slot to the queue of a link; remove the first slot. */
void remo__ofi_slot_queue(struct ofi_link *link, uint16_t slot);
uint16_t remo__ofi_slot_unqueue(struct ofi_link *link);
/* Queue the completion of an operation for the next poll. */
void remo__ofi_slot_finish(struct ofi_endpoint *endpoint, uint16_t slot, int status);
/* Take the oldest completion, and free its slot. False if there is none. */
bool remo__ofi_slot_poll(struct ofi_endpoint *endpoint, struct remo__completion *ret_done);

/* ofi/wake.c */
/* Wake the target thread. */
void remo__ofi_target_wake(struct ofi_target *target);
/* An operation is queued: make the target thread drive the endpoint if its own thread does not. */
void remo__ofi_target_watch(struct ofi_fabric *ofi);
/* Wake all threads that sleep in remo__ofi_wait. */
void remo__ofi_endpoints_wake(struct ofi_fabric *ofi);
