/* verbs.h - internals of the verbs fabric: RoCE and InfiniBand by libibverbs, connected by librdmacm.
 *
 * Model:   an endpoint has a link to each peer that it has used: a reliable connection, made on first use.
 *          The target's end of a link is an inbound, a queue pair that only responds. The target thread
 *          creates it, so the program need not take part. All inbounds share one receive queue, from which
 *          immediates and notifications are taken. A node is also its own peer: its operations go through the
 *          device, because the device's atomics are atomic only with each other.
 *
 * Wire:    a write is one work request, also with a notification (write with immediate, whose value is
 *          unused). An immediate is a send without data, after the write if there is one. An operation is
 *          split at the end of a segment. Only the last work request of each post to a link is signalled.
 *
 * Order:   writes in the order posted; reads and atomics may be overtaken by later operations
 *          (REMO__OP_FENCE prevents it). The completion of a write does not mean placed; that of a later read
 *          does. Relaxed ordering is never requested.
 *
 * Failure: an operation that the target refuses (-EACCES) ends its link; later ones in flight get -ECANCELED.
 *          The next operation makes a new link; until it is up, post returns -EAGAIN. A read by the new link
 *          does not flush the writes of the ended one: a write that is complete, but not flushed, may be
 *          placed later. This is a limit of fences after -EACCES. Any other error means that the link to the
 *          peer is lost (fabric.h), for example no response after REMO__VERBS_RETRIES retries: about 70 ms,
 *          or seconds if the device is software.
 *
 * Safety:  a connection request must contain the target's secret, which is part of the description that
 *          authenticated members receive.
 *
 * Threads: a link and its endpoint belong to the endpoint's user; disconnect only sets a flag and wakes. The
 *          target thread, the control thread and the service thread share target.lock. Contacts are freed
 *          with the fabric. */
#pragma once

#include <pthread.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "fabric/fabric.h"
#include "fabric/verbs/library.h"

#define REMO__VERBS_MAGIC 0x52764202u
#define REMO__VERBS_DEPTH 128u /* operations of an endpoint, posted and not polled */
#define REMO__VERBS_BATCH_MAX 64u
#define REMO__VERBS_PIECES_MAX 4u /* work requests of an operation: parts in several segments, an immediate */
#define REMO__VERBS_SENDS_MAX 256u /* work requests in flight on a link: a power of 2 */
#define REMO__VERBS_COMPLETIONS_MAX 4096u
#define REMO__VERBS_RECEIVES_MAX 4096u /* arrivals that the service thread has not taken yet */
#define REMO__VERBS_MESSAGE_BYTES_MAX (UINT64_C(1) << 20)
#define REMO__VERBS_INLINE_BYTES 256u /* requested; devices may grant less */
#define REMO__VERBS_SECRET_BYTES 16u
#define REMO__VERBS_BUCKETS 256u /* of the table of inbounds: a power of 2 */

/* Operations that a queue pair must support for posts by ibv_wr_*. */
#define REMO__VERBS_NATIVE_OPS                                                                     \
    (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_IMM \
     | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

#define REMO__VERBS_ACK_TIMEOUT 12u          /* 4.096 us * 2^12 = 17 ms until a retransmission */
#define REMO__VERBS_ACK_TIMEOUT_SOFTWARE 18u /* 1.07 s */
#define REMO__VERBS_ACK_TIMEOUT_MAX 24u
#define REMO__VERBS_RETRIES 3u
#define REMO__VERBS_RNR_FOREVER 7u /* a full receive queue is not an error: its node has not failed */
#define REMO__VERBS_RNR_TIMER 12u  /* 0.64 ms until the next retry */
#define REMO__VERBS_READS_MAX 16u  /* reads and atomics in flight on a link */

/* The requested device and settings. */
struct verbs_options {
    char device[IBV_SYSFS_NAME_MAX]; /* "": any */
    uint32_t port;                   /* 0: any */
    int gid_index;                   /* -1: any */
    uint32_t mtu_bytes;              /* 0: the port's */
    uint32_t timeout_ms;             /* 0: the device's */
    bool paging;                     /* on demand */
    const char *address;             /* NULL: any */
};

/* The chosen device and its limits. */
struct verbs_device {
    char name[IBV_SYSFS_NAME_MAX];
    uint8_t port;
    int gid_index; /* -1: no GID has the address */
    uint32_t mtu_bytes;
    uint8_t ack_timeout;             /* an exponent: see remo__verbs_silence_ns */
    bool software;                   /* Soft-RoCE */
    bool paging;                     /* regions are paged in on demand */
    struct sockaddr_storage address; /* where the target listens, port included */
    bool atomics_global;
    uint32_t inline_bytes, receives, completions, sends;
    uint8_t reads;
    bool native_posts; /* post by ibv_wr_*, without a linked list of requests */
};

struct verbs_segment {
    uint64_t offset, bytes;
    uint32_t key;          /* rkey of a peer's segment, lkey of this node's */
    struct ibv_mr *region; /* this node's segments only */
};

/* Sorted by offset. One thread appends while others read; segments are never removed. */
struct verbs_segments {
    _Atomic uint32_t count;
    struct verbs_segment segment[REMO__SEGMENTS_MAX];
};

/* One incarnation of a peer, from its description. */
struct verbs_contact {
    uint32_t rank;
    uint64_t incarnation;
    uint8_t secret[REMO__VERBS_SECRET_BYTES];
    uint32_t mtu_bytes;
    struct sockaddr_storage address;
    struct verbs_segments segments;
    _Atomic bool is_lost;        /* a connection to it was lost */
    struct verbs_contact *older; /* list of all contacts, freed with the fabric */
};

/* The target's end of a peer's link. */
struct verbs_inbound {
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    uint32_t rank;
    struct verbs_inbound *next; /* in the same bucket */
};

struct verbs_target {
    pthread_t thread;
    bool started;
    _Atomic bool stop;
    int wake_fd; /* of the target thread */
    int imm_fd;  /* of the service thread */
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    struct ibv_comp_channel *events;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    pthread_mutex_t lock; /* of all fields below */
    struct verbs_inbound *inbounds[REMO__VERBS_BUCKETS];
    uint32_t kept_head, kept_count; /* immediates taken from the device, whose receive is not reposted yet */
    struct remo__imm kept[REMO__VERBS_RECEIVES_MAX];
};

struct verbs_fabric {
    struct remo__fabric base;
    struct verbs_device device;
    struct ibv_context *context; /* private: librdmacm never closes its own, which is unusable after a fork */
    struct ibv_pd *pd;
    char *arena;
    uint64_t arena_bytes, incarnation;
    uint8_t secret[REMO__VERBS_SECRET_BYTES];
    struct remo__doorbell bell;
    struct verbs_segments own;
    struct verbs_target target;
    struct verbs_contact *kept;     /* all contacts, the latest first */
    pthread_mutex_t endpoints_lock; /* of the next two fields */
    struct verbs_endpoint *endpoints;
    struct remo__fabric_wire closed;            /* traffic of closed endpoints */
    _Atomic(struct verbs_contact *) contacts[]; /* [size]; NULL: not connected */
};

/* A work request in flight. */
struct verbs_sent {
    uint64_t token;
    bool last; /* of its operation */
};

/* The stage of a connection: the event that it waits for, down, up, or lost. */
enum verbs_link_stage {
    VERBS_LINK_DOWN,
    VERBS_LINK_ADDRESS,
    VERBS_LINK_ROUTE,
    VERBS_LINK_ANSWER,
    VERBS_LINK_UP,
    VERBS_LINK_LOST /* the peer is not cut off yet */
};

struct verbs_link {
    struct verbs_contact *contact; /* the peer's incarnation at the other end */
    struct rdma_cm_id *id;         /* NULL: neither a connection nor an attempt */
    struct ibv_qp *qp;
    struct ibv_qp_ex *native; /* NULL: ibv_post_send */
    enum verbs_link_stage stage;
    uint16_t serial;         /* identifies this connection in completions */
    uint32_t head, tail;     /* work requests: the next number, and the oldest in flight */
    uint32_t attempts;       /* failed ones since the last success */
    int fatal;               /* a local error that retries cannot cure, not reported yet; 0: none */
    uint64_t retry_ns;       /* earliest start of the next attempt */
    uint64_t attempt_end_ns; /* deadline of the current attempt */
    uint64_t wait_end_ns;    /* a post waits for the link until then; 0: no post has waited yet */
    struct verbs_sent sent[REMO__VERBS_SENDS_MAX];
};

struct verbs_endpoint {
    struct verbs_fabric *verbs;
    struct verbs_endpoint *next;
    struct rdma_event_channel *channel;
    struct ibv_comp_channel *events;
    struct ibv_cq *cq;
    int wake_fd;          /* written when a peer is cut off */
    _Atomic uint32_t cut; /* a peer was cut off: check the links */
    uint32_t in_flight;   /* operations posted and not polled */
    uint32_t done_head, done_count;
    char why[REMO__SENTENCE_MAX]; /* why the last connection failed */
    struct remo__completion done[REMO__VERBS_DEPTH];
    struct remo__fabric_wire wire;
    struct ibv_send_wr requests[REMO__VERBS_BATCH_MAX * REMO__VERBS_PIECES_MAX];
    struct ibv_sge pieces[REMO__VERBS_BATCH_MAX * REMO__VERBS_PIECES_MAX];
    struct verbs_link *links[]; /* [size] NULL: never used */
};

/* Parameters on which both ends of a connection agree. */
struct verbs_terms {
    unsigned access; /* of the other end */
    uint8_t reads;
    uint32_t mtu_bytes;
};

/* The connection to a peer that is silent for this long is lost. */
static inline uint64_t remo__verbs_silence_ns(uint32_t ack_timeout) {
    return (UINT64_C(4096) << ack_timeout) * (1 + REMO__VERBS_RETRIES);
}

static inline struct verbs_fabric *verbs_of(struct remo__fabric *fabric) {
    return (struct verbs_fabric *)fabric; /* the first member */
}

/* The segment that contains `offset`, or NULL. */
static inline const struct verbs_segment *verbs_segment_at(const struct verbs_segments *segments,
                                                           uint64_t offset) {
    uint32_t low = 0, high = atomic_load_explicit(&segments->count, memory_order_acquire);
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct verbs_segment *segment = &segments->segment[middle];
        if (offset < segment->offset)
            high = middle;
        else if (offset - segment->offset >= segment->bytes)
            low = middle + 1;
        else
            return segment;
    }
    return NULL;
}

/* verbs/device.c */
/* Parse "device[:port[:gid]][:mtu=BYTES][:timeout=MS][:odp]", or several joined by ',', one for each rank in
 * turn. */
int remo__verbs_options_read(const struct remo__fabric_config *config, struct verbs_options *ret_options);
/* Set MTU, timeout and limits to the smallest of the device's, the port's, the requested and Remo's
 * values. */
void remo__verbs_device_settle(const struct ibv_device_attr *attr, const struct ibv_port_attr *port,
                               const struct verbs_options *options, struct verbs_device *device);
/* Find the device that `provider` and `address` (both may be NULL) name for this rank; bind `ret_id` of
 * `channel` to it. */
int remo__verbs_device_find(const struct remo__fabric_config *config, struct rdma_event_channel *channel,
                            struct rdma_cm_id **ret_id, struct verbs_device *ret_device);
/* Open an event channel. NULL, with the sentence set, if this machine has no RDMA device. */
struct rdma_event_channel *remo__verbs_channel_open(void);
/* Determine the limits of queue pairs by creating one in `pd`. */
int remo__verbs_device_limits(struct ibv_pd *pd, struct verbs_device *device);

/* Open the device that `id` is bound to, for this process. */
int remo__verbs_device_open(const struct rdma_cm_id *id, struct ibv_context **ret_context);
/* Check that the device supports all operations of objects. Errors: -ENODEV; the sentence names the missing
 * feature. */
int remo__verbs_device_check(const char *name, enum ibv_transport_type transport,
                             const struct ibv_device_attr *attr);
/* Move a queue pair of a connection to `state`. */
int remo__verbs_qp_step(const struct verbs_device *device, struct rdma_cm_id *id, struct ibv_qp *qp,
                        enum ibv_qp_state state, const struct verbs_terms *terms);

/* verbs/target.c */
int remo__verbs_target_open(struct verbs_fabric *verbs);
void remo__verbs_target_close(struct verbs_fabric *verbs);
/* Cut the peer off: after return none of its operations is executed, and none of its immediates delivered. */
void remo__verbs_target_cut_off(struct verbs_fabric *verbs, uint32_t rank);
int remo__verbs_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max);
void remo__verbs_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns);
void remo__verbs_imm_wake(struct remo__fabric *fabric);

/* verbs/endpoint.c */
void remo__verbs_no_block(int fd);
int remo__verbs_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint);
void remo__verbs_endpoint_close(struct remo__endpoint *endpoint);
int remo__verbs_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max);
/* Return whether the status means that the target refused the operation. */
bool remo__verbs_is_refusal(enum ibv_wc_status status);
void remo__verbs_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns);
/* A peer was cut off: make all endpoints check their links. */
void remo__verbs_endpoints_wake(struct verbs_fabric *verbs);

/* verbs/post.c */
int remo__verbs_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count);

/* verbs/connect.c */
/* Find the link to `contact`, or advance its connection. Errors: -EAGAIN if the link is not up yet and the
 * peer is connected, others if it failed. */
int remo__verbs_link_get(struct verbs_endpoint *endpoint, struct verbs_contact *contact,
                         struct verbs_link **ret_link);

/* verbs/link.c */
/* Complete all operations before the work request `end`. */
void remo__verbs_link_retire(struct verbs_endpoint *endpoint, struct verbs_link *link, uint32_t end);
/* End the connection or the attempt; operations in flight stay recorded. */
void remo__verbs_link_free(struct verbs_link *link);
/* The node has cut the peer off: end the connection with -EHOSTDOWN. */
void remo__verbs_link_cut(struct verbs_endpoint *endpoint, struct verbs_link *link);
/* The connection is lost: the operations in flight wait until the node cuts the peer off. */
void remo__verbs_link_lose(struct verbs_endpoint *endpoint, struct verbs_link *link);
/* End the connection: the oldest operation in flight gets `status`, the others get `others`. */
void remo__verbs_link_end(struct verbs_endpoint *endpoint, struct verbs_link *link, int status, int others);
/* End the links whose peer was cut off. */
void remo__verbs_links_check(struct verbs_endpoint *endpoint);
