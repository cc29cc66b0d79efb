/* link.c - operations in flight on a link, and the end or the loss of a link.
 *
 * When a link ends, its queue pair is destroyed before its operations complete, so the device no longer
 * touches their buffers. verbs/connect.c makes the connection. */
#include <errno.h>
#include <stdio.h>

#include "fabric/verbs/verbs.h"

/* ---- operations in flight ---- */

/* Queue the completion of an operation for the next poll. */
static void finish(struct verbs_endpoint *endpoint, uint64_t token, int status) {
    assert(endpoint->done_count < REMO__VERBS_DEPTH);
    uint32_t at = (endpoint->done_head + endpoint->done_count++) % REMO__VERBS_DEPTH;
    endpoint->done[at] =
        (struct remo__completion){.token = token, .status = status, .why = status < 0 ? endpoint->why : NULL};
}

void remo__verbs_link_retire(struct verbs_endpoint *endpoint, struct verbs_link *link, uint32_t end) {
    for (; link->tail != end; link->tail++) {
        const struct verbs_sent *sent = &link->sent[link->tail % REMO__VERBS_SENDS_MAX];
        if (sent->last)
            finish(endpoint, sent->token, 0);
    }
}

void remo__verbs_link_free(struct verbs_link *link) {
    link->stage = VERBS_LINK_DOWN;
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
    remo__verbs_link_free(link); /* from here on the device does not touch the buffers */
    for (; link->tail != link->head; link->tail++) {
        const struct verbs_sent *sent = &link->sent[link->tail % REMO__VERBS_SENDS_MAX];
        if (!sent->last)
            continue;
        finish(endpoint, sent->token, status);
        status = others;
    }
}

void remo__verbs_link_cut(struct verbs_endpoint *endpoint, struct verbs_link *link) {
    snprintf(endpoint->why, sizeof endpoint->why, "node %u is no longer connected", link->contact->rank);
    remo__verbs_link_end(endpoint, link, -EHOSTDOWN, -EHOSTDOWN);
}

void remo__verbs_link_lose(struct verbs_endpoint *endpoint, struct verbs_link *link) {
    if (link->contact->rank == endpoint->verbs->base.rank) { /* a node cannot cut itself off */
        remo__verbs_link_end(endpoint, link, -EIO, -EIO);
        return;
    }
    link->stage = VERBS_LINK_LOST;
    atomic_store(&link->contact->is_lost, true);
    remo__fabric_report_loss(&endpoint->verbs->base);
}

void remo__verbs_links_check(struct verbs_endpoint *endpoint) {
    struct verbs_fabric *verbs = endpoint->verbs;
    for (uint32_t peer = 0; peer < verbs->base.size; peer++) {
        struct verbs_link *link = endpoint->links[peer];
        if (link && link->id && link->contact != atomic_load(&verbs->contacts[peer]))
            remo__verbs_link_cut(endpoint, link);
    }
}
