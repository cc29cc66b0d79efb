/* link.c - links: the initiator's connections to peers, made on first use and ended by their first
 * error.
 *
 * When a link ends, its queue pair is destroyed before its operations complete, so the device no longer
 * touches their buffers. verbs/connect.c makes the connection. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/verbs/verbs.h"

/* ---- operations in flight ---- */

void remo__verbs_link_retire(struct verbs_endpoint *endpoint, struct verbs_link *link, uint32_t end) {
    for (; link->tail != end; link->tail++) {
        const struct verbs_sent *sent = &link->sent[link->tail % REMO__VERBS_SENDS_MAX];
        if (sent->last)
            remo__verbs_finish(endpoint, sent->token, 0);
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
        snprintf(endpoint->why, sizeof endpoint->why, "node %u is no longer connected", peer);
        remo__verbs_link_end(endpoint, link, -EHOSTDOWN, -EHOSTDOWN);
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
        if (link->id) {
            snprintf(endpoint->why, sizeof endpoint->why,
                     "an earlier incarnation of node %u is no longer connected", contact->rank);
            remo__verbs_link_end(endpoint, link, -EHOSTDOWN, -EHOSTDOWN);
        }
        link->contact = contact;
        link->attempts = 0;
        link->retry_ns = link->wait_end_ns = 0;
        link->fatal = 0;
    }
    int rc = remo__verbs_link_connect(endpoint, link);
    if (rc == 0)
        *ret_link = link;
    return rc;
}
