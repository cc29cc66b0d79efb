/* The initiator's side: connections to peers, made on first use, ended by their first error. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/verbs_wire.h"

#define CONNECT_NS (3 * REMO__NS_PER_S)       /* to make one connection, with all that it takes */
#define NOT_YET_NAP_NS (10 * REMO__NS_PER_MS) /* the peer has not heard of us yet */
#define AGAIN_NS_MIN (20 * REMO__NS_PER_MS)   /* after a connection that could not be made */
#define AGAIN_DOUBLINGS_MAX 5u
#define RESOLVE_MS 1000
#define CONSUMER_REJECT 28 /* of InfiniBand's reasons: the program at the other end said no */

/* ---- operations under way ---- */

void remo__verbs_link_retire(struct verbs_endpoint *endpoint, struct verbs_link *link, uint32_t end) {
    for (; link->tail != end; link->tail++) {
        const struct verbs_sent *sent = &link->sent[link->tail % REMO__VERBS_SENDS_MAX];
        if (sent->last)
            remo__verbs_finish(endpoint, sent->token, 0);
    }
}

static void connection_free(struct verbs_link *link) {
    if (!link->id)
        return;
    if (link->qp) {
        rdma_disconnect(link->id);
        ibv_destroy_qp(link->qp);
    }
    rdma_destroy_id(link->id);
    link->id = NULL;
    link->qp = NULL;
    link->native = NULL;
    link->serial++;
}

void remo__verbs_link_end(struct verbs_endpoint *endpoint, struct verbs_link *link, int status, int others) {
    connection_free(link); /* from here on the device touches none of their buffers */
    for (; link->tail != link->head; link->tail++) {
        const struct verbs_sent *sent = &link->sent[link->tail % REMO__VERBS_SENDS_MAX];
        if (!sent->last)
            continue;
        remo__verbs_finish(endpoint, sent->token, status);
        status = others;
    }
}

void remo__verbs_links_check(struct verbs_endpoint *endpoint) {
    struct verbs_fabric *verbs = endpoint->verbs;
    for (uint32_t peer = 0; peer < verbs->base.size; peer++) {
        struct verbs_link *link = endpoint->links[peer];
        if (!link || !link->id || link->contact == atomic_load(&verbs->contacts[peer]))
            continue;
        snprintf(endpoint->why, sizeof endpoint->why, "node %u is not connected any more", peer);
        remo__verbs_link_end(endpoint, link, -EHOSTDOWN, -EHOSTDOWN);
    }
}

/* ---- connecting ---- */

struct attempt {
    struct verbs_endpoint *endpoint;
    struct verbs_contact *contact;
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    uint64_t deadline_ns;
    bool not_yet; /* refused, but may be accepted soon */
};

static bool still_connected(const struct attempt *attempt) {
    return atomic_load(&attempt->endpoint->verbs->contacts[attempt->contact->rank]) == attempt->contact;
}

static int attempt_fail(const struct attempt *attempt, const char *what, int code) {
    return remo__fail(-EHOSTDOWN, "node %u cannot be reached by device %s: %s (%s)", attempt->contact->rank,
                      attempt->endpoint->verbs->device.name, what,
                      code < 0 ? strerror(-code) : rdma_event_str((enum rdma_cm_event_type)code));
}

/* Is the event the one that we wait for? Events of older connections are none of our business. */
static int event_judge(struct attempt *attempt, const struct rdma_cm_event *event,
                       enum rdma_cm_event_type wanted) {
    if (event->id != attempt->id)
        return 0;
    if (event->event == wanted)
        return 1;
    attempt->not_yet = event->event == RDMA_CM_EVENT_REJECTED && event->status == CONSUMER_REJECT
                       && event->param.conn.private_data
                       && ((const char *)event->param.conn.private_data)[0] != '\0';
    char what[40];
    snprintf(what, sizeof what,
             event->event == RDMA_CM_EVENT_REJECTED ? "it refused, reason %d" : "no connection, status %d",
             event->status);
    return attempt_fail(attempt, what, event->event);
}

static int event_await(struct attempt *attempt, enum rdma_cm_event_type wanted) {
    struct verbs_endpoint *endpoint = attempt->endpoint;
    struct pollfd fds[2] = {{.fd = endpoint->channel->fd, .events = POLLIN},
                            {.fd = endpoint->wake_fd, .events = POLLIN}};
    for (;;) {
        uint64_t left_ms = remo__remaining_ns(attempt->deadline_ns) / REMO__NS_PER_MS;
        if (!still_connected(attempt))
            return remo__fail(-EHOSTDOWN, "node %u is not connected", attempt->contact->rank);
        if (left_ms == 0)
            return attempt_fail(attempt, "it does not answer", -ETIMEDOUT);
        /* The wake-up is for poll and wait to take; only its coming matters here, and then time passes in
         * short steps. */
        if (poll(fds, fds[1].revents ? 1 : 2, (int)remo__min(left_ms, fds[1].revents ? 10 : left_ms)) <= 0
            || !fds[0].revents)
            continue;
        struct rdma_cm_event *event;
        if (rdma_get_cm_event(endpoint->channel, &event) != 0)
            return attempt_fail(attempt, "no event", -errno);
        int rc = event_judge(attempt, event, wanted);
        rdma_ack_cm_event(event);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
}

static int qp_make(struct attempt *attempt) {
    struct verbs_endpoint *endpoint = attempt->endpoint;
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
        attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
                              | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ
                              | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
    if (strcmp(ibv_get_device_name(attempt->id->verbs->device), device->name) != 0)
        return attempt_fail(attempt, "its network is that of another device of this machine", -ENETUNREACH);
    attempt->qp = ibv_create_qp_ex(endpoint->verbs->context, &attr);
    return attempt->qp ? 0 : attempt_fail(attempt, "no queue pair", -errno);
}

/* Ready to send. The peer may do nothing in our memory by this connection: it has its own. */
static int qp_ready(struct attempt *attempt) {
    static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    const struct verbs_device *device = &attempt->endpoint->verbs->device;
    struct verbs_terms terms = {.reads = device->reads,
                                .mtu_bytes =
                                    (uint32_t)remo__min(device->mtu_bytes, attempt->contact->mtu_bytes)};
    for (size_t i = 0; i < REMO__ARRAY_COUNT(states); i++) {
        int rc = remo__verbs_qp_step(device, attempt->id, attempt->qp, states[i], &terms);
        if (rc < 0)
            return attempt_fail(attempt, "its queue pair does not match", rc);
    }
    return rdma_establish(attempt->id) == 0 ? 0 : attempt_fail(attempt, "no connection", -errno);
}

static int steps(struct attempt *attempt) {
    struct verbs_fabric *verbs = attempt->endpoint->verbs;
    struct sockaddr_storage from = verbs->device.address, to = attempt->contact->address;
    struct verbs_hello hello = {
        .rank = verbs->base.rank, .from_life = verbs->life, .to_life = attempt->contact->life};
    uint8_t data[REMO__VERBS_HELLO_BYTES];
    memcpy(hello.secret, attempt->contact->secret, sizeof hello.secret);
    verbs_hello_write(data, &hello);
    if (from.ss_family == AF_INET)
        ((struct sockaddr_in *)&from)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&from)->sin6_port = 0;
    if (rdma_resolve_addr(attempt->id, (struct sockaddr *)&from, (struct sockaddr *)&to, RESOLVE_MS) != 0)
        return attempt_fail(attempt, "its address does not resolve", -errno);
    int rc = event_await(attempt, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rc == 0 && rdma_resolve_route(attempt->id, RESOLVE_MS) != 0)
        rc = attempt_fail(attempt, "no route", -errno);
    if (rc == 0)
        rc = event_await(attempt, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (rc == 0)
        rc = qp_make(attempt);
    if (rc < 0)
        return rc;
    struct rdma_conn_param param = {.private_data = data,
                                    .private_data_len = sizeof data,
                                    .initiator_depth = verbs->device.reads,
                                    .responder_resources = 0,
                                    .retry_count = REMO__VERBS_RETRIES,
                                    .rnr_retry_count = REMO__VERBS_RNR_FOREVER,
                                    .qp_num = attempt->qp->qp_num};
    if (rdma_connect(attempt->id, &param) != 0)
        return attempt_fail(attempt, "no connection", -errno);
    rc = event_await(attempt, RDMA_CM_EVENT_CONNECT_RESPONSE);
    return rc < 0 ? rc : qp_ready(attempt);
}

static int connection_try(struct attempt *attempt, struct verbs_link *link) {
    attempt->not_yet = false;
    attempt->qp = NULL;
    if (rdma_create_id(attempt->endpoint->channel, &attempt->id, NULL, RDMA_PS_TCP) != 0)
        return attempt_fail(attempt, "no identifier", -errno);
    int rc = steps(attempt);
    link->id = attempt->id;
    link->qp = attempt->qp;
    if (rc < 0) {
        connection_free(link);
        return rc;
    }
    link->native = attempt->endpoint->verbs->device.native_posts ? ibv_qp_to_qp_ex(link->qp) : NULL;
    return 0;
}

static int connection_make(struct verbs_endpoint *endpoint, struct verbs_link *link) {
    struct attempt attempt = {
        .endpoint = endpoint, .contact = link->contact, .deadline_ns = remo__deadline(CONNECT_NS)};
    int rc;
    while ((rc = connection_try(&attempt, link)) < 0 && attempt.not_yet
           && still_connected(&attempt)) { /* ends by the deadline */
        struct timespec nap = {.tv_nsec = (long)NOT_YET_NAP_NS};
        nanosleep(&nap, NULL);
    }
    if (rc == 0) {
        link->failures = 0;
        return 0;
    }
    uint32_t doublings = (uint32_t)remo__min(link->failures++, AGAIN_DOUBLINGS_MAX);
    link->again_ns = remo__deadline(AGAIN_NS_MIN << doublings);
    return rc;
}

int remo__verbs_link_get(struct verbs_endpoint *endpoint, struct verbs_contact *contact,
                         struct verbs_link **ret_link) {
    struct verbs_link *link = endpoint->links[contact->rank];
    if (remo__likely(link && link->id && link->contact == contact)) {
        *ret_link = link;
        return 0;
    }
    if (!link && !(link = endpoint->links[contact->rank] = calloc(1, sizeof *link)))
        return remo__fail(-ENOMEM, "no memory for a connection to node %u", contact->rank);
    if (link->contact != contact) {
        if (link->id) {
            snprintf(endpoint->why, sizeof endpoint->why,
                     "node %u, as it was before, is not connected any more", contact->rank);
            remo__verbs_link_end(endpoint, link, -EHOSTDOWN, -EHOSTDOWN);
        }
        link->contact = contact;
        link->failures = 0;
        link->again_ns = 0;
    }
    if (link->again_ns && remo__now_ns() < link->again_ns)
        return remo__fail_static(-EHOSTDOWN, "the peer could not be reached just now");
    int rc = connection_make(endpoint, link);
    if (rc == 0)
        *ret_link = link;
    return rc;
}
