/* connect.c - finds or connects the link to a peer, step by step, as the connection manager reports events.
 *
 * A post waits only for the usual time of a connection; a later post continues the attempt. So retries end
 * with the caller's deadline or the peer's failure, and no thread holds an endpoint for long. An attempt
 * without an event times out. Each further attempt gets twice the time, for slow machines. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/verbs/wire.h"

#define POST_WAIT_NS (50 * REMO__NS_PER_MS) /* a post waits this long for a connection */
#define CHECK_NS (10 * REMO__NS_PER_MS)     /* between two checks that the peer is still connected */
#define ATTEMPT_NS (2 * REMO__NS_PER_S)     /* timeout of the first attempt */
#define RETRY_NS (20 * REMO__NS_PER_MS)     /* between the first two attempts */
#define NOT_YET_NS (10 * REMO__NS_PER_MS)   /* retry if the peer has not connected this node yet */
#define DOUBLINGS_MAX 5u
#define CONSUMER_REJECT 28 /* InfiniBand's reason: the program at the other end refused */

static bool still_connected(const struct verbs_endpoint *endpoint, const struct verbs_link *link) {
    return atomic_load(&endpoint->verbs->contacts[link->contact->rank]) == link->contact;
}

static uint64_t doubled(uint64_t time_ns, const struct verbs_link *link) {
    return time_ns << remo__min(link->attempts, DOUBLINGS_MAX);
}

/* ---- failed attempts ---- */

static void attempt_end(struct verbs_endpoint *endpoint, struct verbs_link *link, const char *what,
                        const char *why) {
    snprintf(endpoint->why, sizeof endpoint->why, "cannot reach node %u by device %s: %s (%s)",
             link->contact->rank, endpoint->verbs->device.name, what, why);
    remo__verbs_link_free(link);
    link->retry_ns = remo__deadline(doubled(RETRY_NS, link));
    if (link->attempts++ == 0)
        remo__log(&endpoint->verbs->base.log, REMO_LOG_WARNING, "%s; retrying", endpoint->why);
}

/* A local error does not go away by itself, so the next post reports it. */
static void attempt_break(struct verbs_endpoint *endpoint, struct verbs_link *link, const char *what,
                          int code) {
    attempt_end(endpoint, link, what, strerror(code));
    link->fatal = code == ENOMEM ? -ENOMEM : -EIO;
}

static void attempt_refused(struct verbs_endpoint *endpoint, struct verbs_link *link, int reason,
                            bool not_yet) {
    char what[40];
    if (!not_yet) {
        snprintf(what, sizeof what, "it refused, reason %d", reason);
        attempt_end(endpoint, link, what, "not a member, or another incarnation");
        return;
    }
    remo__verbs_link_free(link);
    link->retry_ns = remo__deadline(NOT_YET_NS);
}

/* ---- the steps ---- */

static void attempt_begin(struct verbs_endpoint *endpoint, struct verbs_link *link) {
    struct sockaddr_storage from = endpoint->verbs->device.address, to = link->contact->address;
    uint64_t time_ns = doubled(ATTEMPT_NS, link);
    if (from.ss_family == AF_INET)
        ((struct sockaddr_in *)&from)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&from)->sin6_port = 0;
    link->attempt_end_ns = remo__deadline(time_ns);
    link->stage = VERBS_LINK_ADDRESS;
    if (rdma_create_id(endpoint->channel, &link->id, link, RDMA_PS_TCP) != 0)
        attempt_break(endpoint, link, "cannot create an identifier", errno);
    else if (rdma_resolve_addr(link->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
                               (int)(time_ns / REMO__NS_PER_MS))
             != 0)
        attempt_end(endpoint, link, "its address does not resolve", strerror(errno));
}

static void route_resolve(struct verbs_endpoint *endpoint, struct verbs_link *link) {
    link->stage = VERBS_LINK_ROUTE;
    if (rdma_resolve_route(link->id, (int)(doubled(ATTEMPT_NS, link) / REMO__NS_PER_MS)) != 0)
        attempt_end(endpoint, link, "no route", strerror(errno));
}

static struct ibv_qp *qp_create(const struct verbs_endpoint *endpoint) {
    const struct verbs_device *device = &endpoint->verbs->device;
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC,
                                       .send_cq = endpoint->cq,
                                       .recv_cq = endpoint->cq,
                                       .pd = endpoint->verbs->pd,
                                       .cap = {.max_send_wr = device->sends,
                                               .max_recv_wr = 1,
                                               .max_send_sge = 1,
                                               .max_recv_sge = 1,
                                               .max_inline_data = device->inline_bytes},
                                       .comp_mask = IBV_QP_INIT_ATTR_PD};
    if (device->native_posts) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = REMO__VERBS_NATIVE_OPS;
    }
    return ibv_create_qp_ex(endpoint->verbs->context, &attr);
}

static void request_send(struct verbs_endpoint *endpoint, struct verbs_link *link) {
    const struct verbs_fabric *verbs = endpoint->verbs;
    struct verbs_hello hello = {.rank = verbs->base.rank,
                                .from_incarnation = verbs->incarnation,
                                .to_incarnation = link->contact->incarnation};
    uint8_t data[REMO__VERBS_HELLO_BYTES];
    memcpy(hello.secret, link->contact->secret, sizeof hello.secret);
    verbs_hello_write(data, &hello);
    link->stage = VERBS_LINK_ANSWER;
    if (strcmp(ibv_get_device_name(link->id->verbs->device), verbs->device.name) != 0) {
        attempt_break(endpoint, link, "its network belongs to another device of this machine", ENETUNREACH);
        return;
    }
    link->qp = qp_create(endpoint);
    if (!link->qp) {
        attempt_break(endpoint, link, "cannot create a queue pair", errno);
        return;
    }
    struct rdma_conn_param param = {.private_data = data,
                                    .private_data_len = sizeof data,
                                    .initiator_depth = verbs->device.reads,
                                    .responder_resources = 0,
                                    .retry_count = REMO__VERBS_RETRIES,
                                    .rnr_retry_count = REMO__VERBS_RNR_FOREVER,
                                    .qp_num = link->qp->qp_num};
    if (rdma_connect(link->id, &param) != 0)
        attempt_end(endpoint, link, "no connection", strerror(errno));
}

/* Make the queue pair ready to send. This connection gives the peer no access to this node's memory: the peer
 * has its own connection. */
static void answer_take(struct verbs_endpoint *endpoint, struct verbs_link *link) {
    static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    const struct verbs_device *device = &endpoint->verbs->device;
    struct verbs_terms terms = {.reads = device->reads,
                                .mtu_bytes =
                                    (uint32_t)remo__min(device->mtu_bytes, link->contact->mtu_bytes)};
    for (size_t i = 0; i < REMO__ARRAY_COUNT(states); i++) {
        int rc = remo__verbs_qp_step(device, link->id, link->qp, states[i], &terms);
        if (rc < 0) {
            attempt_end(endpoint, link, "its queue pair does not match", strerror(-rc));
            return;
        }
    }
    if (rdma_establish(link->id) != 0) {
        attempt_end(endpoint, link, "no connection", strerror(errno));
        return;
    }
    link->native = device->native_posts ? ibv_qp_to_qp_ex(link->qp) : NULL;
    link->stage = VERBS_LINK_UP;
    link->attempts = 0;
    link->wait_end_ns = 0;
}

/* ---- events of the connection manager ---- */

struct cm_event {
    enum rdma_cm_event_type type;
    int status;
    bool not_yet; /* refused, but may be accepted soon */
};

static bool is_connecting(const struct verbs_link *link) {
    return link->stage == VERBS_LINK_ADDRESS || link->stage == VERBS_LINK_ROUTE
           || link->stage == VERBS_LINK_ANSWER;
}

static void cm_event_take(struct verbs_endpoint *endpoint, struct verbs_link *link,
                          const struct cm_event *event) {
    static const struct {
        enum rdma_cm_event_type awaited;
        void (*next)(struct verbs_endpoint *, struct verbs_link *);
    } stages[] = {
        [VERBS_LINK_ADDRESS] = {RDMA_CM_EVENT_ADDR_RESOLVED, route_resolve},
        [VERBS_LINK_ROUTE] = {RDMA_CM_EVENT_ROUTE_RESOLVED, request_send},
        [VERBS_LINK_ANSWER] = {RDMA_CM_EVENT_CONNECT_RESPONSE, answer_take},
    };
    if (!is_connecting(link))
        return; /* the completions of an established connection report its end */
    if (event->type == stages[link->stage].awaited) {
        stages[link->stage].next(endpoint, link);
    } else if (event->type == RDMA_CM_EVENT_REJECTED) {
        attempt_refused(endpoint, link, event->status, event->not_yet);
    } else {
        char what[40];
        snprintf(what, sizeof what, "no connection, status %d", event->status);
        attempt_end(endpoint, link, what, rdma_event_str(event->type));
    }
}

/* Take the events of all links of the endpoint. Each event is acknowledged first, because rdma_destroy_id
 * waits for the acknowledgement. */
static void events_take(struct verbs_endpoint *endpoint) {
    struct rdma_cm_event *received;
    while (rdma_get_cm_event(endpoint->channel, &received) == 0) { /* does not block; a link has few events */
        const char *reply = received->param.conn.private_data;
        struct verbs_link *link = received->id->context;
        struct cm_event event = {.type = received->event, .status = received->status};
        if (event.type == RDMA_CM_EVENT_REJECTED)
            event.not_yet = event.status == CONSUMER_REJECT && reply && reply[0] != '\0';
        bool current = link->id == received->id;
        rdma_ack_cm_event(received);
        if (current)
            cm_event_take(endpoint, link, &event);
    }
}

static void link_advance(struct verbs_endpoint *endpoint, struct verbs_link *link) {
    uint64_t now_ns = remo__now_ns();
    events_take(endpoint);
    if (is_connecting(link) && now_ns >= link->attempt_end_ns)
        attempt_end(endpoint, link, "it does not answer", strerror(ETIMEDOUT));
    if (link->stage == VERBS_LINK_DOWN && now_ns >= link->retry_ns && !link->fatal)
        attempt_begin(endpoint, link);
}

/* ---- the link for a post ---- */

static void events_await(const struct verbs_endpoint *endpoint, uint64_t until_ns) {
    struct pollfd fd = {.fd = endpoint->channel->fd, .events = POLLIN};
    uint64_t left_ns = remo__min(remo__remaining_ns(until_ns), CHECK_NS);
    struct timespec rest = {.tv_nsec = (long)left_ns};
    ppoll(&fd, 1, &rest, NULL);
}

/* Advance the connection of a link. Returns 0 if it is up, -EAGAIN if it is not up yet and the peer is
 * connected, or another error if it failed. */
static int link_connect(struct verbs_endpoint *endpoint, struct verbs_link *link) {
    if (link->wait_end_ns == 0)
        link->wait_end_ns = remo__deadline(POST_WAIT_NS);
    for (;;) { /* ends at wait_end_ns */
        link_advance(endpoint, link);
        int fatal = link->fatal;
        link->fatal = 0;
        if (link->stage == VERBS_LINK_UP)
            return 0;
        if (fatal)
            return remo__fail(fatal, "%s", endpoint->why);
        if (!still_connected(endpoint, link))
            return remo__fail(-EHOSTDOWN, "node %u is not connected", link->contact->rank);
        if (remo__now_ns() >= link->wait_end_ns)
            return remo__fail_static(-EAGAIN, "the peer is not connected yet; poll, then retry");
        events_await(endpoint, link->wait_end_ns);
    }
}

int remo__verbs_link_get(struct verbs_endpoint *endpoint, struct verbs_contact *contact,
                         struct verbs_link **ret_link) {
    struct verbs_link *link = endpoint->links[contact->rank];
    if (remo__likely(link && link->stage == VERBS_LINK_UP && link->contact == contact)) {
        *ret_link = link;
        return 0;
    }
    if (!link && !(link = endpoint->links[contact->rank] = calloc(1, sizeof *link)))
        return remo__fail(-ENOMEM, "no memory for a connection to node %u", contact->rank);
    if (link->contact != contact) {
        if (link->id)
            remo__verbs_link_cut(endpoint, link); /* an earlier incarnation */
        link->contact = contact;
        link->attempts = 0;
        link->retry_ns = link->wait_end_ns = 0;
        link->fatal = 0;
    }
    if (link->stage == VERBS_LINK_LOST)
        return remo__fail_static(-EAGAIN, "the connection to the peer is lost; poll until it is cut off");
    int rc = link_connect(endpoint, link);
    if (rc == 0)
        *ret_link = link;
    return rc;
}
