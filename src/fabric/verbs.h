/* verbs.h - the inside of the verbs fabric: RoCE and InfiniBand by libibverbs, joined by librdmacm.
 *
 * Model:   each endpoint has a link, which is a reliable connection, to each peer that it has used; made on
 *          first use. Of a link the peer's side is an inbound: a queue pair that only answers, made by the
 *          peer's target thread, which sleeps on its listener and needs nothing of the program. All inbounds
 *          share one receive queue, from which immediates and notifications are taken. A node is a peer of
 *          its own: its operations go through the device too, since the device's atomics are atomic only
 *          with each other.
 *
 * Wire:    a write is one work request, and so is one that notifies (write with immediate; the immediate says
 *          nothing). An immediate is a send without data behind the write, alone where there is nothing to
 *          write. What crosses the end of a segment is cut there. Of each post to a link only the last work
 *          request asks for a completion.
 *
 * Order:   writes in the order posted; reads and atomics may overtake later ones (REMO__OP_FENCE forbids it).
 *          A completion does not mean placed; a later read's does. Relaxed ordering is never asked for.
 *
 * Failure: the first error completion ends a link: it gets its own error, the others in flight -ECANCELED
 *          (-EHOSTDOWN when the peer does not answer). The next operation makes a new link: as long as the
 *          peer is connected, post says -EAGAIN until there is one. A peer that does not answer is given up
 *          after REMO__VERBS_RETRIES times-out: about 70 ms; seconds where the device is software.
 *
 * Safety:  who connects must know the secret that the target gave to authenticated members with its
 *          description.
 *
 * Threads: a link and its endpoint belong to whoever uses the endpoint; disconnect only marks, and wakes. The
 *          target thread, the control thread and the service thread share target.lock. Contacts are freed
 *          with the fabric. */
#ifndef REMO_FABRIC_VERBS_H
#define REMO_FABRIC_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/error.h"
#include "fabric/fabric.h"

#define REMO__VERBS_MAGIC 0x52764202u
#define REMO__VERBS_DEPTH 128u /* operations of an endpoint, posted and not polled */
#define REMO__VERBS_BATCH_MAX 64u
#define REMO__VERBS_PIECES_MAX 4u  /* work requests of an operation: cut at segments' ends; an immediate */
#define REMO__VERBS_SENDS_MAX 256u /* work requests in flight on a link: a power of 2 */
#define REMO__VERBS_COMPLETIONS_MAX 4096u
#define REMO__VERBS_RECEIVES_MAX 4096u /* arrivals that the service thread has not taken */
#define REMO__VERBS_MESSAGE_BYTES_MAX (UINT64_C(1) << 20)
#define REMO__VERBS_INLINE_BYTES 256u /* asked for; devices may grant less */
#define REMO__VERBS_SECRET_BYTES 16u
#define REMO__VERBS_BUCKETS 256u /* of the table of inbounds: a power of 2 */

/* What queue pairs must offer where they are posted to by ibv_wr_*. */
#define REMO__VERBS_NATIVE_OPS                                                                     \
    (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_IMM \
     | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

#define REMO__VERBS_ACK_TIMEOUT 12u          /* 4.096 us * 2^12 = 17 ms until something is sent again */
#define REMO__VERBS_ACK_TIMEOUT_SOFTWARE 18u /* 1.07 s */
#define REMO__VERBS_ACK_TIMEOUT_MAX 24u
#define REMO__VERBS_RETRIES 3u
#define REMO__VERBS_RNR_FOREVER 7u /* a full receive queue is no error: its node lives */
#define REMO__VERBS_RNR_TIMER 12u  /* 0.64 ms until it is tried again */
#define REMO__VERBS_READS_MAX 16u  /* reads and atomics under way on a link */

/* What the configuration asks for. */
struct verbs_wish {
    char device[IBV_SYSFS_NAME_MAX]; /* "": any */
    uint32_t port;                   /* 0: any */
    int gid_index;                   /* -1: any */
    uint32_t mtu_bytes;              /* 0: the port's */
    uint32_t timeout_ms;             /* 0: the device's */
    bool paging;                     /* on demand */
    const char *address;             /* NULL: any */
};

/* What a device grants, and which one it is. */
struct verbs_device {
    char name[IBV_SYSFS_NAME_MAX];
    uint8_t port;
    int gid_index; /* -1: none has the address */
    uint32_t mtu_bytes;
    uint8_t ack_timeout;             /* an exponent: see remo__verbs_silence_ns */
    bool software;                   /* Soft-RoCE */
    bool paging;                     /* regions are paged in on demand */
    struct sockaddr_storage address; /* where the target listens; the port is in it */
    bool atomics_global;
    uint32_t inline_bytes, receives, completions, sends;
    uint8_t reads;
    bool native_posts; /* ibv_wr_*: no linked list is walked */
};

struct verbs_segment {
    uint64_t offset, bytes;
    uint32_t key;          /* a peer's: for remote use; our own: for local use */
    struct ibv_mr *region; /* our own only */
};

/* Sorted by offset; segments are only added, by one thread, while others look. */
struct verbs_segments {
    _Atomic uint32_t count;
    struct verbs_segment segment[REMO__SEGMENTS_MAX];
};

/* One life of a peer, as it described itself. */
struct verbs_contact {
    uint32_t rank;
    uint64_t life;
    uint8_t secret[REMO__VERBS_SECRET_BYTES];
    uint32_t mtu_bytes;
    struct sockaddr_storage address;
    struct verbs_segments segments;
    struct verbs_contact *older; /* of any peer: freed with the fabric */
};

/* The side of the target of a peer's link. */
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
    pthread_mutex_t lock; /* over all that follows */
    struct verbs_inbound *inbounds[REMO__VERBS_BUCKETS];
    uint32_t kept_head, kept_count; /* immediates taken from the device, still without a new receive */
    struct remo__imm kept[REMO__VERBS_RECEIVES_MAX];
};

struct verbs_fabric {
    struct remo__fabric base;
    struct verbs_device device;
    struct ibv_context *context; /* our own: librdmacm's stays open for ever, and is of no use after a fork */
    struct ibv_pd *pd;
    char *arena;
    uint64_t arena_bytes, life;
    uint8_t secret[REMO__VERBS_SECRET_BYTES];
    struct remo__doorbell bell;
    struct verbs_segments own;
    struct verbs_target target;
    struct verbs_contact *kept;     /* all contacts, the latest first */
    pthread_mutex_t endpoints_lock; /* over the two that follow */
    struct verbs_endpoint *endpoints;
    struct remo__fabric_wire closed;            /* what endpoints that are closed have sent */
    _Atomic(struct verbs_contact *) contacts[]; /* [size]; NULL: not connected */
};

/* A work request under way. */
struct verbs_sent {
    uint64_t token;
    bool last; /* of its operation */
};

/* How far a connection has come, and what it waits for. */
enum verbs_link_stage {
    VERBS_LINK_DOWN,
    VERBS_LINK_ADDRESS,
    VERBS_LINK_ROUTE,
    VERBS_LINK_ANSWER,
    VERBS_LINK_UP
};

struct verbs_link {
    struct verbs_contact *contact; /* the life of the peer that it leads to */
    struct rdma_cm_id *id;         /* NULL: there is no connection, nor an attempt */
    struct ibv_qp *qp;
    struct ibv_qp_ex *native; /* NULL: ibv_post_send */
    enum verbs_link_stage stage;
    uint16_t serial;         /* in the completions of this connection */
    uint32_t head, tail;     /* work requests: the next one's number, the oldest under way */
    uint32_t attempts;       /* that failed, since the last connection that worked */
    int broken;              /* why no attempt can work, until that is told; 0: nothing known */
    uint64_t again_ns;       /* no attempt is begun before */
    uint64_t attempt_end_ns; /* the present one is given up */
    uint64_t quick_end_ns;   /* until then it is waited for; 0: nobody has asked for it yet */
    struct verbs_sent sent[REMO__VERBS_SENDS_MAX];
};

struct verbs_endpoint {
    struct verbs_fabric *verbs;
    struct verbs_endpoint *next;
    struct rdma_event_channel *channel;
    struct ibv_comp_channel *events;
    struct ibv_cq *cq;
    int wake_fd;          /* written when a peer is cut off */
    _Atomic uint32_t cut; /* a peer was: look for links to it */
    uint32_t in_flight;   /* operations posted and not polled */
    uint32_t done_head, done_count;
    char why[REMO__SENTENCE_MAX]; /* the last connection that failed did */
    struct remo__completion done[REMO__VERBS_DEPTH];
    struct remo__fabric_wire wire;
    struct ibv_send_wr requests[REMO__VERBS_BATCH_MAX * REMO__VERBS_PIECES_MAX];
    struct ibv_sge pieces[REMO__VERBS_BATCH_MAX * REMO__VERBS_PIECES_MAX];
    struct verbs_link *links[]; /* [size] NULL: never used */
};

/* What both ends of a connection settle. */
struct verbs_terms {
    unsigned access; /* for the other end */
    uint8_t reads;
    uint32_t mtu_bytes;
};

/* A peer that is silent for so long is given up. */
static inline uint64_t remo__verbs_silence_ns(uint32_t ack_timeout) {
    return (UINT64_C(4096) << ack_timeout) * (1 + REMO__VERBS_RETRIES);
}

static inline struct verbs_fabric *verbs_of(struct remo__fabric *fabric) {
    return (struct verbs_fabric *)fabric; /* the first member */
}

/* The segment that has `offset`, or NULL. */
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

/* verbs_device.c */
/* "device[:port[:gid]][:mtu=BYTES][:timeout=MS][:odp]", or several with commas between, of which the ranks
 * take theirs in turn. */
int remo__verbs_wish_read(const struct remo__fabric_config *config, struct verbs_wish *ret_wish);
/* MTU, patience and limits: what the device has and its port is set to, as far as we use it, or less as
 * wished. */
void remo__verbs_device_settle(const struct ibv_device_attr *attr, const struct ibv_port_attr *port,
                               const struct verbs_wish *wish, struct verbs_device *device);
/* The device that `provider` and `address` (both may be NULL) name for this rank, bound to `ret_id` of
 * `channel`. */
int remo__verbs_device_find(const struct remo__fabric_config *config, struct rdma_event_channel *channel,
                            struct rdma_cm_id **ret_id, struct verbs_device *ret_device);
/* NULL with the sentence set when this machine cannot have one. */
struct rdma_event_channel *remo__verbs_channel_open(void);
/* What queue pairs may have: asks the device. Needs its protection domain. */
int remo__verbs_device_limits(struct ibv_pd *pd, struct verbs_device *device);

/* The calling process's own opening of the device that `id` is bound to. */
int remo__verbs_device_open(const struct rdma_cm_id *id, struct ibv_context **ret_context);
/* Can it do what every object needs? -ENODEV with a sentence that names what is missing. */
int remo__verbs_device_check(const char *name, enum ibv_transport_type transport,
                             const struct ibv_device_attr *attr);
/* Bring a queue pair of a connection into its next state. */
int remo__verbs_qp_step(const struct verbs_device *device, struct rdma_cm_id *id, struct ibv_qp *qp,
                        enum ibv_qp_state state, const struct verbs_terms *terms);

/* verbs_target.c */
int remo__verbs_target_open(struct verbs_fabric *verbs);
void remo__verbs_target_close(struct verbs_fabric *verbs);
/* After return nothing of the peer is executed, nor anything delivered that it sent. */
void remo__verbs_target_expel(struct verbs_fabric *verbs, uint32_t rank);
int remo__verbs_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max);
void remo__verbs_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns);
void remo__verbs_imm_wake(struct remo__fabric *fabric);

/* verbs_endpoint.c */
int remo__verbs_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint);
void remo__verbs_endpoint_close(struct remo__endpoint *endpoint);
int remo__verbs_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max);
/* What becomes of an operation whose work request ended so. */
int remo__verbs_status_of(enum ibv_wc_status status);
void remo__verbs_wait(struct remo__endpoint *endpoint, uint64_t timeout_ns);
/* The operation is over: it waits to be polled. */
void remo__verbs_finish(struct verbs_endpoint *endpoint, uint64_t token, int status);
/* A peer was cut off: let all endpoints look. */
void remo__verbs_endpoints_wake(struct verbs_fabric *verbs);

/* verbs_post.c */
int remo__verbs_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count);

/* verbs_connect.c */
/* 0: it is up. -EAGAIN: not yet, but the peer lives, so try again. Other errors: it cannot be. */
int remo__verbs_link_connect(struct verbs_endpoint *endpoint, struct verbs_link *link);

/* verbs_link.c */
/* A link that works, made if need be; errors as above. */
int remo__verbs_link_get(struct verbs_endpoint *endpoint, struct verbs_contact *contact,
                         struct verbs_link **ret_link);
/* Everything up to the work request `end` (not included) was executed. */
void remo__verbs_link_retire(struct verbs_endpoint *endpoint, struct verbs_link *link, uint32_t end);
/* End the connection, or the attempt; operations under way are left alone. */
void remo__verbs_link_free(struct verbs_link *link);
/* End the connection: the oldest operation under way gets `status`, the others `others`. */
void remo__verbs_link_end(struct verbs_endpoint *endpoint, struct verbs_link *link, int status, int others);
/* End those whose peer was cut off. */
void remo__verbs_links_check(struct verbs_endpoint *endpoint);

#endif
