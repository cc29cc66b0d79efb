/* endpoint.c - endpoints of the verbs fabric: open, close, poll, and sleep until a completion.
 *
 * Every accepted operation gets exactly one completion: from the device, or from the end of its link. Room
 * for it is reserved by the bound on operations in flight (REMO__VERBS_DEPTH). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric/verbs/verbs.h"

static struct verbs_endpoint *endpoint_of(struct remo__endpoint *endpoint) {
    return (struct verbs_endpoint *)endpoint; /* remo__endpoint is an incomplete type here */
}

/* ---- open and close ---- */

static void endpoint_free(struct verbs_endpoint *endpoint) {
    if (endpoint->cq)
        ibv_destroy_cq(endpoint->cq);
    if (endpoint->events)
        ibv_destroy_comp_channel(endpoint->events);
    if (endpoint->channel)
        rdma_destroy_event_channel(endpoint->channel);
    if (endpoint->wake_fd >= 0)
        close(endpoint->wake_fd);
    free(endpoint);
}

void remo__verbs_no_block(int fd) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int remo__verbs_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint) {
    struct verbs_fabric *verbs = verbs_of(fabric);
    struct verbs_endpoint *endpoint = calloc(1, sizeof *endpoint + fabric->size * sizeof endpoint->links[0]);
    if (!endpoint)
        return remo__fail(-ENOMEM, "no memory for an endpoint of %zu bytes", sizeof *endpoint);
    endpoint->verbs = verbs;
    endpoint->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    endpoint->channel = rdma_create_event_channel();
    endpoint->events = ibv_create_comp_channel(verbs->context);
    if (endpoint->events)
        endpoint->cq =
            ibv_create_cq(verbs->context, (int)verbs->device.completions, NULL, endpoint->events, 0);
    if (endpoint->wake_fd < 0 || !endpoint->channel || !endpoint->events || !endpoint->cq) {
        int rc = remo__fail(errno == EMFILE ? -EMFILE : -ENOMEM,
                            "cannot create a completion queue for one more thread on device %s: %s; raise "
                            "the limits of descriptors (ulimit -n) and of locked memory (ulimit -l)",
                            verbs->device.name, strerror(errno));
        endpoint_free(endpoint);
        return rc;
    }
    remo__verbs_no_block(endpoint->events->fd);
    remo__verbs_no_block(endpoint->channel->fd);
    pthread_mutex_lock(&verbs->endpoints_lock);
    endpoint->next = verbs->endpoints;
    verbs->endpoints = endpoint;
    pthread_mutex_unlock(&verbs->endpoints_lock);
    *ret_endpoint = (struct remo__endpoint *)endpoint;
    return 0;
}

static void endpoint_unlist(struct verbs_endpoint *endpoint) {
    struct verbs_fabric *verbs = endpoint->verbs;
    pthread_mutex_lock(&verbs->endpoints_lock);
    struct verbs_endpoint **link = &verbs->endpoints;
    while (*link != endpoint)
        link = &(*link)->next;
    *link = endpoint->next;
    verbs->closed.requests += endpoint->wire.requests;
    verbs->closed.posts += endpoint->wire.posts;
    verbs->closed.signalled += endpoint->wire.signalled;
    verbs->closed.inlined += endpoint->wire.inlined;
    verbs->closed.bytes += endpoint->wire.bytes;
    pthread_mutex_unlock(&verbs->endpoints_lock);
}

void remo__verbs_endpoint_close(struct remo__endpoint *public) {
    struct verbs_endpoint *endpoint = endpoint_of(public);
    if (!endpoint)
        return;
    endpoint_unlist(endpoint);
    for (uint32_t peer = 0; peer < endpoint->verbs->base.size; peer++) {
        if (endpoint->links[peer])
            remo__verbs_link_end(endpoint, endpoint->links[peer], -ECANCELED, -ECANCELED);
        free(endpoint->links[peer]);
    }
    endpoint_free(endpoint);
}

void remo__verbs_endpoints_wake(struct verbs_fabric *verbs) {
    uint64_t one = 1;
    pthread_mutex_lock(&verbs->endpoints_lock);
    for (struct verbs_endpoint *endpoint = verbs->endpoints; endpoint; endpoint = endpoint->next) {
        atomic_store(&endpoint->cut, 1);
        ssize_t written = write(endpoint->wake_fd, &one, sizeof one);
        (void)written; /* fails only if the counter is full: the wake-up is pending then */
    }
    pthread_mutex_unlock(&verbs->endpoints_lock);
}

/* ---- completions ---- */

bool remo__verbs_is_refusal(enum ibv_wc_status status) {
    return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_LOC_ACCESS_ERR
           || status == IBV_WC_LOC_PROT_ERR;
}

/* Handle the first error of a connection. Earlier operations were executed. */
static void completion_fail(struct verbs_endpoint *endpoint, struct verbs_link *link,
                            const struct ibv_wc *done) {
    struct verbs_fabric *verbs = endpoint->verbs;
    uint32_t peer = link->contact->rank;
    remo__verbs_link_retire(endpoint, link, (uint32_t)done->wr_id);
    if (atomic_load(&verbs->contacts[peer]) != link->contact) {
        remo__verbs_link_cut(endpoint, link);
        return;
    }
    snprintf(endpoint->why, sizeof endpoint->why,
             "device %s: an operation on node %u failed: %s (status %d, vendor code %#x)", verbs->device.name,
             peer, ibv_wc_status_str(done->status), (int)done->status, done->vendor_err);
    remo__log(&verbs->base.log, REMO_LOG_WARNING, "%s", endpoint->why);
    if (remo__verbs_is_refusal(done->status))
        remo__verbs_link_end(endpoint, link, -EACCES, -ECANCELED);
    else
        remo__verbs_link_lose(endpoint, link);
}

static void completion_take(struct verbs_endpoint *endpoint, const struct ibv_wc *done) {
    uint32_t peer = (uint32_t)(done->wr_id >> 48);
    struct verbs_link *link = peer < endpoint->verbs->base.size ? endpoint->links[peer] : NULL;
    if (!link || link->stage != VERBS_LINK_UP || link->serial != (uint16_t)(done->wr_id >> 32))
        return; /* from a connection that has ended */
    if (done->status == IBV_WC_SUCCESS)
        remo__verbs_link_retire(endpoint, link, (uint32_t)done->wr_id + 1);
    else
        completion_fail(endpoint, link, done);
}

static int device_poll(struct verbs_endpoint *endpoint) {
    struct ibv_wc done[16];
    int count = ibv_poll_cq(endpoint->cq, (int)REMO__ARRAY_COUNT(done), done);
    for (int i = 0; i < count; i++)
        completion_take(endpoint, &done[i]);
    return count;
}

int remo__verbs_poll(struct remo__endpoint *public, struct remo__completion *done, uint32_t max) {
    struct verbs_endpoint *endpoint = endpoint_of(public);
    if (remo__unlikely(atomic_load_explicit(&endpoint->cut, memory_order_relaxed))) {
        atomic_store(&endpoint->cut, 0);
        remo__verbs_links_check(endpoint);
    }
    if (endpoint->done_count < max && endpoint->in_flight > endpoint->done_count)
        device_poll(endpoint);
    uint32_t count = 0;
    for (; count < max && endpoint->done_count > 0; count++) {
        done[count] = endpoint->done[endpoint->done_head];
        endpoint->done_head = (endpoint->done_head + 1) % REMO__VERBS_DEPTH;
        endpoint->done_count--;
    }
    endpoint->in_flight -= count;
    return (int)count;
}

/* Arm the notification before the poll: a later completion then raises an event. */
void remo__verbs_wait(struct remo__endpoint *public, uint64_t timeout_ns) {
    struct verbs_endpoint *endpoint = endpoint_of(public);
    struct ibv_cq *cq;
    void *context;
    uint64_t count;
    if (endpoint->done_count > 0)
        return;
    ibv_req_notify_cq(endpoint->cq, 0);
    if (device_poll(endpoint) > 0)
        return;
    uint64_t sleep_ns = remo__min(timeout_ns, REMO__NS_PER_S);
    struct timespec sleep = {.tv_sec = (time_t)(sleep_ns / REMO__NS_PER_S),
                             .tv_nsec = (long)(sleep_ns % REMO__NS_PER_S)};
    struct pollfd fds[2] = {{.fd = endpoint->events->fd, .events = POLLIN},
                            {.fd = endpoint->wake_fd, .events = POLLIN}};
    if (ppoll(fds, 2, &sleep, NULL) <= 0)
        return;
    if (fds[0].revents && ibv_get_cq_event(endpoint->events, &cq, &context) == 0)
        ibv_ack_cq_events(cq, 1);
    if (fds[1].revents && read(endpoint->wake_fd, &count, sizeof count) < 0)
        return; /* read already */
}
