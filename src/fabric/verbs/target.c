/* target.c - the target's end: queue pairs that only respond, and the arriving immediates.
 *
 * An inbound exists only for a connected peer whose request contained this node's secret. A queue pair is in
 * the error state before its inbound is freed, so no operation of the peer is executed later. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/helper.h"
#include "fabric/mapped.h"
#include "fabric/verbs/wire.h"

#define BACKLOG 1024
#define RECEIVES_PER_POST 64u
#define REJECT_NOT_YET "later"

/* ---- receives: without buffers, because the completion contains the immediate ---- */

static int receives_post(struct verbs_target *target, uint32_t count) {
    struct ibv_recv_wr requests[RECEIVES_PER_POST], *bad;
    while (count > 0) {
        uint32_t chunk = (uint32_t)remo__min(count, RECEIVES_PER_POST);
        for (uint32_t i = 0; i < chunk; i++)
            requests[i] = (struct ibv_recv_wr){.next = i + 1 < chunk ? &requests[i + 1] : NULL};
        int error = ibv_post_srq_recv(target->srq, requests, &bad);
        if (error != 0)
            return remo__fail(-EIO, "the device rejects receives: %s", strerror(error));
        count -= chunk;
    }
    return 0;
}

/* ---- inbounds; the caller holds the lock ---- */

static struct verbs_inbound **bucket_of(struct verbs_target *target, uint32_t qp_number) {
    return &target->inbounds[qp_number * 2654435761u >> 24 & (REMO__VERBS_BUCKETS - 1)];
}

static struct verbs_inbound *inbound_find(struct verbs_target *target, uint32_t qp_number) {
    struct verbs_inbound *inbound = *bucket_of(target, qp_number);
    while (inbound && inbound->qp->qp_num != qp_number)
        inbound = inbound->next;
    return inbound;
}

static void keep(struct verbs_target *target, uint32_t rank, uint32_t value) {
    assert(target->kept_count < REMO__VERBS_RECEIVES_MAX); /* each holds a receive; their number is bounded */
    uint32_t at = (target->kept_head + target->kept_count++) % REMO__VERBS_RECEIVES_MAX;
    target->kept[at] = (struct remo__imm){.peer = rank, .value = value};
}

/* Take all arrivals from the device. Returns their number. */
static uint32_t drain(struct verbs_fabric *verbs) {
    struct verbs_target *target = &verbs->target;
    struct ibv_wc done[32];
    uint32_t arrived = 0, spent = 0;
    int count;
    do {
        count = ibv_poll_cq(target->cq, (int)REMO__ARRAY_COUNT(done), done);
        for (int i = 0; i < count; i++) {
            const struct verbs_inbound *inbound = inbound_find(target, done[i].qp_num);
            bool good = done[i].status == IBV_WC_SUCCESS && inbound;
            bool imm = good && done[i].opcode == IBV_WC_RECV && (done[i].wc_flags & IBV_WC_WITH_IMM);
            arrived += good;
            spent += !imm;
            if (imm)
                keep(target, inbound->rank, ntohl(done[i].imm_data));
        }
    } while (count == (int)REMO__ARRAY_COUNT(done));
    if (spent > 0 && receives_post(target, spent) != 0)
        remo__log(&verbs->base.log, REMO_LOG_ERROR, "%s", remo_last_error());
    if (arrived > 0) {
        remo__mapped_fence(); /* pairs with the sleeper's: it counts itself before its last check */
        if (atomic_load_explicit(&verbs->bell.sleepers, memory_order_relaxed) != 0)
            remo__doorbell_notify(&verbs->bell);
    }
    return arrived;
}

/* End an inbound. In the error state its queue pair executes nothing more. Earlier arrivals are drained
 * first, while inbound_find can still map the queue pair's number to the rank. */
static void inbound_end(struct verbs_fabric *verbs, struct verbs_inbound **link) {
    struct verbs_inbound *inbound = *link;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    ibv_modify_qp(inbound->qp, &attr, IBV_QP_STATE);
    drain(verbs);
    *link = inbound->next;
    rdma_disconnect(inbound->id);
    ibv_destroy_qp(inbound->qp);
    rdma_destroy_id(inbound->id);
    free(inbound);
}

/* End all inbounds of a rank, and the inbound with the identifier `id`. */
static void inbounds_end(struct verbs_fabric *verbs, uint32_t rank, const struct rdma_cm_id *id) {
    for (uint32_t i = 0; i < REMO__VERBS_BUCKETS; i++) {
        struct verbs_inbound **link = &verbs->target.inbounds[i];
        while (*link) {
            if ((*link)->rank == rank || (*link)->id == id)
                inbound_end(verbs, link);
            else
                link = &(*link)->next;
        }
    }
}

void remo__verbs_target_cut_off(struct verbs_fabric *verbs, uint32_t rank) {
    struct verbs_target *target = &verbs->target;
    pthread_mutex_lock(&target->lock);
    inbounds_end(verbs, rank, NULL);
    uint32_t count = target->kept_count, dropped = 0;
    target->kept_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct remo__imm imm = target->kept[(target->kept_head + i) % REMO__VERBS_RECEIVES_MAX];
        if (imm.peer != rank)
            keep(target, imm.peer, imm.value);
        else
            dropped++;
    }
    if (dropped > 0 && receives_post(target, dropped) != 0)
        remo__log(&verbs->base.log, REMO_LOG_ERROR, "%s", remo_last_error());
    pthread_mutex_unlock(&target->lock);
}

/* ---- connections ---- */

static bool same_secret(const uint8_t *one, const uint8_t *other) {
    uint8_t differ = 0;
    for (uint32_t i = 0; i < REMO__VERBS_SECRET_BYTES; i++) /* in constant time */
        differ |= one[i] ^ other[i];
    return differ == 0;
}

/* The contact of a valid request, or NULL. Valid means: to this incarnation, with its secret, from the
 * connected incarnation of a member. */
static struct verbs_contact *hello_verify(struct verbs_fabric *verbs, const struct verbs_hello *hello,
                                          bool *ret_not_yet) {
    if (hello->to_incarnation != verbs->incarnation || !same_secret(hello->secret, verbs->secret)
        || hello->rank >= verbs->base.size)
        return NULL;
    struct verbs_contact *contact = atomic_load(&verbs->contacts[hello->rank]);
    *ret_not_yet = !contact;
    return contact && contact->incarnation == hello->from_incarnation ? contact : NULL;
}

/* Create a queue pair that only responds. The peer may execute all operations in segments whose keys it
 * has. */
static struct ibv_qp *inbound_qp(struct verbs_fabric *verbs, struct rdma_cm_id *id,
                                 const struct verbs_terms *terms) {
    static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    struct verbs_target *target = &verbs->target;
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
                                    .send_cq = target->cq,
                                    .recv_cq = target->cq,
                                    .srq = target->srq,
                                    .cap = {.max_send_wr = 1, .max_send_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(verbs->pd, &attr);
    for (size_t i = 0; qp && i < REMO__ARRAY_COUNT(states); i++) {
        int rc = remo__verbs_qp_step(&verbs->device, id, qp, states[i], terms);
        if (rc == 0)
            continue;
        ibv_destroy_qp(qp);
        qp = NULL;
        errno = -rc;
    }
    return qp;
}

static int inbound_make(struct verbs_fabric *verbs, struct rdma_cm_id *id,
                        const struct verbs_contact *contact, const struct rdma_conn_param *asked) {
    struct verbs_target *target = &verbs->target;
    struct verbs_inbound *inbound = calloc(1, sizeof *inbound);
    uint32_t rank = contact->rank;
    struct verbs_terms terms = {
        .access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
        .reads = (uint8_t)remo__min(asked->responder_resources, verbs->device.reads),
        .mtu_bytes = (uint32_t)remo__min(verbs->device.mtu_bytes, contact->mtu_bytes)};
    struct ibv_qp *qp = inbound ? inbound_qp(verbs, id, &terms) : NULL;
    if (!qp)
        goto fail;
    struct rdma_conn_param param = {.responder_resources = terms.reads,
                                    .rnr_retry_count = REMO__VERBS_RNR_FOREVER,
                                    .qp_num = qp->qp_num,
                                    .srq = 1};
    struct verbs_inbound **bucket = bucket_of(target, qp->qp_num);
    *inbound = (struct verbs_inbound){.id = id, .qp = qp, .rank = rank, .next = *bucket};
    if (rdma_accept(id, &param) != 0)
        goto fail;
    *bucket = inbound;
    return 0;
fail:
    if (qp)
        ibv_destroy_qp(qp);
    remo__log(&verbs->base.log, REMO_LOG_WARNING, "cannot connect a thread of node %u: %s", rank,
              strerror(errno));
    free(inbound);
    return -EIO;
}

static void request_answer(struct verbs_fabric *verbs, struct rdma_cm_id *id,
                           const struct rdma_conn_param *asked, const struct verbs_hello *hello) {
    bool not_yet = false;
    pthread_mutex_lock(&verbs->target.lock);
    const struct verbs_contact *contact = hello_verify(verbs, hello, &not_yet);
    int rc = contact ? inbound_make(verbs, id, contact, asked) : -EACCES;
    pthread_mutex_unlock(&verbs->target.lock);
    if (rc == 0)
        return;
    rdma_reject(id, REJECT_NOT_YET, not_yet ? sizeof REJECT_NOT_YET : 0);
    rdma_destroy_id(id);
}

/* Take one event. It is acknowledged first, because rdma_destroy_id waits for the acknowledgement. */
static void event_take(struct verbs_fabric *verbs) {
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(verbs->target.channel, &event) != 0)
        return;
    enum rdma_cm_event_type type = event->event;
    struct rdma_cm_id *id = event->id;
    struct rdma_conn_param asked = {0};
    struct verbs_hello hello = {0};
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        asked = event->param.conn;
        if (!asked.private_data || !verbs_hello_read(asked.private_data, asked.private_data_len, &hello))
            hello = (struct verbs_hello){.rank = UINT32_MAX};
    }
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        request_answer(verbs, id, &asked, &hello);
    } else if (type != RDMA_CM_EVENT_ESTABLISHED && id != verbs->target.listener) {
        pthread_mutex_lock(&verbs->target.lock); /* disconnected or failed; the inbound may not exist */
        inbounds_end(verbs, UINT32_MAX, id);
        pthread_mutex_unlock(&verbs->target.lock);
    }
}

static void *target_run(void *ctx) {
    struct verbs_fabric *verbs = ctx;
    struct pollfd fds[2] = {{.fd = verbs->target.channel->fd, .events = POLLIN},
                            {.fd = verbs->target.wake_fd, .events = POLLIN}};
    while (!atomic_load(&verbs->target.stop)) {
        if (poll(fds, 2, -1) > 0 && fds[0].revents)
            event_take(verbs);
    }
    return NULL;
}

/* ---- open and close ---- */

static int queues_open(struct verbs_fabric *verbs) {
    struct verbs_target *target = &verbs->target;
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = verbs->device.receives, .max_sge = 1}};
    target->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    target->imm_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    target->events = ibv_create_comp_channel(verbs->context);
    if (target->wake_fd < 0 || target->imm_fd < 0 || !target->events)
        return remo__fail(-EMFILE, "cannot open event descriptors: too many open files; raise ulimit -n");
    remo__verbs_no_block(target->events->fd);
    target->cq = ibv_create_cq(verbs->context, (int)verbs->device.completions, NULL, target->events, 0);
    target->srq = ibv_create_srq(verbs->pd, &attr);
    if (!target->cq || !target->srq)
        return remo__fail(-ENOMEM, "cannot create a queue for %u immediates on device %s: %s",
                          verbs->device.receives, verbs->device.name, strerror(errno));
    return receives_post(target, (uint32_t)remo__min(verbs->device.receives, verbs->device.completions));
}

int remo__verbs_target_open(struct verbs_fabric *verbs) {
    struct verbs_target *target = &verbs->target;
    int rc = queues_open(verbs);
    if (rc < 0)
        return rc;
    /* An event that poll has reported is discarded if its identifier is destroyed before the event is
     * taken. */
    remo__verbs_no_block(target->channel->fd);
    if (rdma_listen(target->listener, BACKLOG) != 0)
        return remo__fail(-errno, "cannot listen on device %s: %s", verbs->device.name, strerror(errno));
    struct sockaddr_in *four = (void *)&verbs->device.address;
    struct sockaddr_in6 *six = (void *)&verbs->device.address;
    if (four->sin_family == AF_INET)
        four->sin_port = rdma_get_src_port(target->listener);
    else
        six->sin6_port = rdma_get_src_port(target->listener);
    rc = remo__helper_start(&target->thread, "remo-target", target_run, verbs);
    target->started = rc == 0;
    return rc;
}

static void notify(int fd) {
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* fails only if the counter is full: the wake-up is pending then */
}

void remo__verbs_target_close(struct verbs_fabric *verbs) {
    struct verbs_target *target = &verbs->target;
    atomic_store(&target->stop, true);
    if (target->started) {
        notify(target->wake_fd);
        pthread_join(target->thread, NULL);
    }
    for (uint32_t i = 0; i < REMO__VERBS_BUCKETS; i++) {
        while (target->inbounds[i])
            inbound_end(verbs, &target->inbounds[i]);
    }
    if (target->srq)
        ibv_destroy_srq(target->srq);
    if (target->cq)
        ibv_destroy_cq(target->cq);
    if (target->events)
        ibv_destroy_comp_channel(target->events);
    if (target->wake_fd >= 0)
        close(target->wake_fd);
    if (target->imm_fd >= 0)
        close(target->imm_fd);
}

/* ---- immediates ---- */

int remo__verbs_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max) {
    struct verbs_fabric *verbs = verbs_of(fabric);
    struct verbs_target *target = &verbs->target;
    uint32_t count = 0;
    pthread_mutex_lock(&target->lock);
    drain(verbs);
    for (; count < max && target->kept_count > 0; count++) {
        imms[count] = target->kept[target->kept_head];
        target->kept_head = (target->kept_head + 1) % REMO__VERBS_RECEIVES_MAX;
        target->kept_count--;
    }
    if (count > 0 && receives_post(target, count) != 0)
        remo__log(&fabric->log, REMO_LOG_ERROR, "%s", remo_last_error());
    pthread_mutex_unlock(&target->lock);
    return (int)count;
}

/* Arm the notification before the poll: a later arrival then raises an event. */
void remo__verbs_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns) {
    struct verbs_fabric *verbs = verbs_of(fabric);
    struct verbs_target *target = &verbs->target;
    struct ibv_cq *cq;
    void *context;
    uint64_t count;
    ibv_req_notify_cq(target->cq, 0);
    pthread_mutex_lock(&target->lock);
    bool arrived = drain(verbs) > 0 || target->kept_count > 0;
    pthread_mutex_unlock(&target->lock);
    uint64_t sleep_ns = arrived ? 0 : remo__min(timeout_ns, REMO__NS_PER_S);
    struct timespec sleep = {.tv_sec = (time_t)(sleep_ns / REMO__NS_PER_S),
                             .tv_nsec = (long)(sleep_ns % REMO__NS_PER_S)};
    struct pollfd fds[2] = {{.fd = target->events->fd, .events = POLLIN},
                            {.fd = target->imm_fd, .events = POLLIN}};
    if (ppoll(fds, 2, &sleep, NULL) <= 0)
        return;
    if (fds[0].revents && ibv_get_cq_event(target->events, &cq, &context) == 0)
        ibv_ack_cq_events(cq, 1);
    if (fds[1].revents && read(target->imm_fd, &count, sizeof count) < 0)
        return; /* read already */
}

void remo__verbs_imm_wake(struct remo__fabric *fabric) {
    notify(verbs_of(fabric)->target.imm_fd);
}
