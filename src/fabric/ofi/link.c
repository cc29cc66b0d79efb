/* link.c - links from an endpoint to its peers: the initiator's part of docs/internals/ofi.md.
 *
 * Answers are placed in the memory of the requesting link. Events of the port identify the link by `owner`,
 * which an endpoint never reuses. The memory of a link is kept until the port is closed, because libfabric
 * may access it even after the link has ended. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/ofi/ofi.h"

#define SLOW_NS (5 * REMO__NS_PER_S)    /* after this time without an acceptance, log a warning */
#define PROBE_NS (10 * REMO__NS_PER_MS) /* after this time without an answer, probe the connection */
#define OFFER_AGAIN_NS REMO__NS_PER_S   /* after this time without an acceptance, repeat the offer */
#define EVENTS_PER_READ 16u
#define READS_PER_POLL 64u        /* libfabric may report one event for each read, with room for more */
#define QUIET_POLLS_PER_CLOCK 64u /* polls without an answer for each read of the clock */
#define FLIGHTS_SMALL 2u          /* with this many requests in flight, small operations wait to share one */
#define FLIGHTS_GATHERED 1u       /* the same for reads that are deferred to the next poll (ofi/endpoint.c) */
#define FLIGHTS_MANY 1u           /* the same while OPERATIONS_MANY or more are in flight */
#define OPERATIONS_MANY 32u
#define EXECUTED_NS (10 * REMO__NS_PER_US) /* after which an unawaited request counts as executed */
#define FULL_BYTES 8192u /* with this many bytes queued, operations do not wait to share a request */
#define ANSWERS_AT REMO__OFI_RING_BYTES
#define OFFER_AT (2 * REMO__OFI_RING_BYTES)
#define PROBE_AT (OFFER_AT + sizeof(struct remo__ofi_offer))
#define BLOCK_BYTES (PROBE_AT + sizeof(uint64_t))

/* ---- active links: the endpoint polls them ---- */

static void activate(struct ofi_link *link) {
    struct ofi_endpoint *endpoint = link->endpoint;
    if (link->active)
        return;
    link->active = true;
    link->active_at = endpoint->active_count;
    endpoint->active[endpoint->active_count++] = link;
    link->since_ns = remo__now_ns();
    link->quiet_polls = 0;
}

static void deactivate(struct ofi_link *link) {
    struct ofi_endpoint *endpoint = link->endpoint;
    if (!link->active)
        return;
    link->active = false;
    struct ofi_link *last = endpoint->active[--endpoint->active_count];
    endpoint->active[link->active_at] = last;
    last->active_at = link->active_at;
}

/* ---- closing a link ---- */

/* The connection is lost. The operations wait until the node cuts the peer off. */
static void link_lose(struct ofi_link *link, const char *why) {
    struct ofi_endpoint *endpoint = link->endpoint;
    remo__log(&endpoint->ofi->base.log, REMO_LOG_WARNING, "the link of endpoint %u to node %u is lost: %s",
              endpoint->index, link->contact->rank, why);
    remo__ofi_block_unregister(&link->block);
    link->state = OFI_LINK_LOST;
    activate(link);
    atomic_store(&link->contact->is_lost, true);
    remo__fabric_report_loss(&endpoint->ofi->base);
}

/* The peer was cut off. Operations in flight or queued fail; their outcome is unknown. */
static void link_end(struct ofi_link *link) {
    struct ofi_endpoint *endpoint = link->endpoint;
    remo__ofi_block_unregister(&link->block);
    while (link->flight_head != link->flight_tail) {
        uint16_t index = link->flights[link->flight_head++ % REMO__OFI_FLIGHTS_MAX].slot;
        struct ofi_slot *slot = &endpoint->slots[index];
        if (--slot->unanswered == 0 && slot->all_sent)
            remo__ofi_slot_finish(endpoint, index, slot->status ? slot->status : -EHOSTDOWN);
    }
    while (link->queue.count > 0)
        remo__ofi_slot_finish(endpoint, remo__ofi_slot_unqueue(link), -EHOSTDOWN);
    link->state = OFI_LINK_ENDED;
    deactivate(link);
}

/* Remove the link from its peer, and keep its memory until the port is closed. */
static void link_retire(struct ofi_link *link) {
    struct ofi_endpoint *endpoint = link->endpoint;
    remo__ofi_block_unregister(&link->block);
    deactivate(link);
    while (link->queue.count > 0)
        remo__ofi_slot_unqueue(link);
    endpoint->links[link->contact->rank] = NULL;
    link->older = endpoint->retired;
    endpoint->retired = link;
}

void remo__ofi_links_close(struct ofi_endpoint *endpoint) {
    for (uint32_t peer = 0; peer < endpoint->ofi->base.size; peer++) {
        if (endpoint->links[peer])
            link_retire(endpoint->links[peer]);
    }
    remo__ofi_port_close(&endpoint->port); /* afterwards libfabric does not access the blocks */
    while (endpoint->retired) {
        struct ofi_link *link = endpoint->retired;
        endpoint->retired = link->older;
        remo__ofi_block_close(&link->block);
        free(link);
    }
}

/* ---- opening a link ---- */

static int offer_write(struct ofi_link *link) {
    struct remo__ofi_offer *offer = (void *)(link->block.memory + OFFER_AT);
    size_t address_bytes = 0;
    int rc =
        remo__ofi_port_name(&link->endpoint->port, offer->address, sizeof offer->address, &address_bytes);
    if (rc < 0)
        return rc;
    offer->incarnation = link->endpoint->ofi->incarnation;
    offer->seed = link->seed;
    offer->key = link->block.key;
    offer->base = link->block.base + ANSWERS_AT;
    offer->endpoint = link->endpoint->index;
    offer->address_bytes = (uint32_t)address_bytes;
    offer->check = XXH3_64bits(offer, offsetof(struct remo__ofi_offer, check));
    return 0;
}

static int link_memory_open(struct ofi_link *link) {
    struct ofi_endpoint *endpoint = link->endpoint;
    int rc = endpoint->port.ep ? 0 : remo__ofi_port_open(&endpoint->port, &endpoint->ofi->net, false);
    if (rc == 0)
        rc = remo__ofi_port_insert(&endpoint->port, link->contact->address, &link->table.address);
    if (rc == 0)
        rc = remo__ofi_block_open(&link->block, &endpoint->port, BLOCK_BYTES);
    if (rc == 0)
        rc = offer_write(link);
    if (rc < 0)
        remo__ofi_block_close(&link->block);
    return rc;
}

static int link_open(struct ofi_link *link) {
    struct ofi_endpoint *endpoint = link->endpoint;
    struct ofi_contact *contact = link->contact;
    if (endpoint->index >= contact->endpoints_max)
        return remo__fail(
            -ENOSPC,
            "node %u serves only %u endpoints of each peer, and this is number %u; set the same "
            "threads_max on all nodes",
            contact->rank, contact->endpoints_max, endpoint->index + 1);
    if (getrandom(&link->seed, sizeof link->seed, 0) != sizeof link->seed)
        return remo__fail(-EIO, "cannot read random numbers from the kernel");
    int rc = link_memory_open(link);
    if (rc < 0)
        return rc;
    link->owner = (uint64_t)++endpoint->link_count << 32 | contact->rank;
    link->table.key = contact->table_key;
    link->table.base = contact->table_base;
    link->next = 1;
    link->queue = (struct ofi_fifo){.head = REMO__OFI_NONE, .tail = REMO__OFI_NONE};
    link->state = OFI_LINK_OFFERING;
    link->since_ns = remo__now_ns();
    return 0;
}

int remo__ofi_link_get(struct ofi_endpoint *endpoint, struct ofi_contact *contact,
                       struct ofi_link **ret_link) {
    struct ofi_link *link = endpoint->links[contact->rank];
    if (link && link->contact != contact) {
        if (link->active)
            remo__ofi_link_progress(link); /* an earlier incarnation: this ends the link */
        link_retire(link);
        link = NULL;
    }
    if (link && link->state == OFI_LINK_LOST)
        return remo__fail_static(-EAGAIN, "the connection to the peer is lost; poll until it is cut off");
    if (!link) {
        link = calloc(1, sizeof *link);
        if (!link)
            return remo__fail(-ENOMEM, "no memory for a link to node %u", contact->rank);
        link->endpoint = endpoint;
        link->contact = contact;
        int rc = link_open(link);
        if (rc < 0) {
            free(link);
            return remo__fail_more(rc, "cannot connect to node %u", contact->rank);
        }
        endpoint->links[contact->rank] = link;
    }
    *ret_link = link;
    return 0;
}

/* Return the index of this endpoint's entry in the peer's table of offers. */
static uint32_t table_entry(const struct ofi_link *link) {
    return link->endpoint->ofi->base.rank * link->contact->endpoints_max + link->endpoint->index;
}

static bool is_stream(const struct ofi_link *link) {
    return link->endpoint->ofi->net.stream;
}

/* Returns 0, -EAGAIN, or -EHOSTDOWN if the connection is lost. */
static int link_write(struct ofi_link *link, struct ofi_write *write) {
    write->block = &link->block;
    write->owner = link->owner;
    int rc = remo__ofi_port_write(&link->endpoint->port, write);
    link->writes += rc == 0;
    return rc;
}

static int offer_send(struct ofi_link *link) {
    struct ofi_write write = {
        .from = link->block.memory + OFFER_AT,
        .bytes = sizeof(struct remo__ofi_offer),
        .remote = &link->table,
        .data = table_entry(link),
    };
    write.at = (uint64_t)write.data * sizeof(struct remo__ofi_offer);
    int rc = link_write(link, &write);
    if (rc == 0) {
        link->state = OFI_LINK_OFFERED;
        link->offered_ns = remo__now_ns();
    }
    return rc == -EAGAIN ? 0 : rc;
}

static void acceptance_take(struct ofi_link *link) {
    struct remo__ofi_head head;
    struct remo__ofi_acceptance acceptance;
    const uint8_t *message = link->block.memory + ANSWERS_AT;
    size_t bytes;
    if (!remo__ofi_arrived(message, 0, 0, link->seed, is_stream(link), &link->placed, &head, &bytes)
        || bytes != sizeof head + sizeof acceptance)
        return;
    memcpy(&acceptance, message + sizeof head, sizeof acceptance);
    link->ring =
        (struct ofi_remote){.address = link->table.address, .key = acceptance.key, .base = acceptance.base};
    link->state = OFI_LINK_UP;
}

/* ---- requests ---- */

void remo__ofi_link_queue(struct ofi_link *link, uint16_t slot) {
    remo__ofi_slot_queue(link, slot);
    activate(link);
}

static int request_send(struct ofi_link *link, uint32_t seq, size_t bytes) {
    struct ofi_write write = {
        .from = link->block.memory + remo__ofi_slot_at(seq),
        .bytes = bytes,
        .remote = &link->ring,
        .at = remo__ofi_slot_at(seq),
        .data = remo__ofi_immediate(bytes, is_stream(link), table_entry(link), seq),
        .was_connected = true,
    };
    write.omits_data = write.data == REMO__OFI_WOKEN;
    int rc = link_write(link, &write);
    link->unsent_bytes = rc == -EAGAIN ? bytes : 0;
    return rc;
}

/* Return the number of requests in flight from which on operations wait to share the next one, until one is
 * answered or FULL_BYTES are queued. A request costs both ends about as much as 50 small reads. So reads for
 * which no thread waits share the next one even if one is in flight, if the thread polls often. Measured:
 * gets of a map in windows of 16 and 128 have 1.1 to 1.2 times the rate; updates in windows of 16 would have
 * 0.97 times. While many operations are in flight, this holds for all operations: the answer brings the
 * results of many callers, whose next operations share a request again (measured on loopback only). */
static uint32_t flights_max(const struct ofi_link *link) {
    if (link->queue_bytes >= FULL_BYTES)
        return REMO__OFI_WINDOW;
    if (link->flight_tail - link->flight_head >= OPERATIONS_MANY)
        return FLIGHTS_MANY;
    return link->urgent_count > 0 || !link->endpoint->gathers ? FLIGHTS_SMALL : FLIGHTS_GATHERED;
}

bool remo__ofi_link_is_unawaited(const struct ofi_link *link) {
    if (link->state != OFI_LINK_UP || link->queue.count > 0 || link->unsent_bytes > 0
        || atomic_load_explicit(&link->endpoint->ofi->contacts[link->contact->rank], memory_order_relaxed)
               != link->contact)
        return false;
    for (uint32_t seq = link->answered + 1; seq != link->next; seq++)
        if (link->unawaited_ns[seq % REMO__OFI_WINDOW] == 0)
            return false;
    return true;
}

/* Return the number of requests without an answer for which the target has probably executed the request, and
 * withholds the answer. */
static uint32_t withheld_count(const struct ofi_link *link) {
    uint64_t now = remo__now_ns();
    uint32_t count = 0;
    for (uint32_t seq = link->answered + 1; seq != link->next; seq++) {
        uint64_t sent_ns = link->unawaited_ns[seq % REMO__OFI_WINDOW];
        count += sent_ns != 0 && now - sent_ns >= EXECUTED_NS;
    }
    return count;
}

static bool may_send(const struct ofi_link *link) {
    uint32_t flights = link->next - 1 - link->answered, max = flights_max(link);
    return link->queue.count > 0 && flights < REMO__OFI_WINDOW
           && (flights < max || flights - withheld_count(link) < max);
}

bool remo__ofi_link_may_gather(const struct ofi_link *link) {
    return link->state == OFI_LINK_UP && link->queue_bytes < FULL_BYTES;
}

static int link_send(struct ofi_link *link) {
    int rc = link->unsent_bytes > 0 ? request_send(link, link->next - 1, link->unsent_bytes) : 0;
    while (rc == 0 && may_send(link)) {
        uint8_t *message = link->block.memory + remo__ofi_slot_at(link->next);
        size_t bytes = remo__ofi_request_make(link, message, link->next);
        if (bytes == 0)
            break;
        rc = request_send(link, link->next++, bytes);
    }
    return rc == -EAGAIN ? 0 : rc;
}

void remo__ofi_link_push(struct ofi_link *link) {
    link->needs_push = false;
    int rc = 0;
    if (link->state == OFI_LINK_UP)
        rc = link_send(link);
    else if (link->state == OFI_LINK_OFFERING)
        rc = offer_send(link);
    if (rc < 0)
        link_lose(link, remo_last_error());
}

/* ---- answers ---- */

static int answers_take(struct ofi_link *link) {
    while (link->answered != link->next - 1) {
        uint32_t seq = link->answered + 1;
        struct remo__ofi_head head;
        size_t bytes;
        const uint8_t *message = link->block.memory + ANSWERS_AT + remo__ofi_slot_at(seq);
        if (!remo__ofi_arrived(message, seq, link->next - 1, link->seed, is_stream(link), &link->placed,
                               &head, &bytes))
            return 0;
        if (!remo__ofi_answer_take(link, message, bytes, &head))
            return remo__fail(-EPROTO, "node %u sent a malformed answer", link->contact->rank);
        link->answered = head.seq;
        link->quiet_polls = 0;
    }
    return 0;
}

/* Log once that an acceptance is missing. The link does not fail, because the peer may only lack processor
 * time. The control plane detects failures; queued operations wait until the peer is cut off. */
static void slow_log(struct ofi_link *link, uint64_t quiet_ns) {
    if (link->slow_logged || quiet_ns < SLOW_NS)
        return;
    link->slow_logged = true;
    remo__log(&link->endpoint->ofi->base.log, REMO_LOG_WARNING,
              "node %u has not answered for %llu s on the data network; it is very busy, or a firewall "
              "permits only the control connection",
              link->contact->rank, (unsigned long long)(quiet_ns / REMO__NS_PER_S));
}

/* An offer may be lost with an old connection: a peer that restarts may get the address of its earlier
 * incarnation. A repeated offer is harmless. */
static void offer_again(struct ofi_link *link, uint64_t now) {
    if (link->state == OFI_LINK_OFFERED && now - link->offered_ns >= OFFER_AGAIN_NS)
        link->state = OFI_LINK_OFFERING;
}

/* Detect a lost connection by a write, while requests are in flight and no answer arrives. If another write
 * is in flight, that write detects the loss. More writes would only fill the queue to a paused peer. */
static int probe(struct ofi_link *link) {
    uint64_t now = remo__now_ns(), quiet_ns = now - link->since_ns;
    if (link->state != OFI_LINK_UP) {
        slow_log(link, quiet_ns);
        offer_again(link, now);
        return 0;
    }
    if (quiet_ns < PROBE_NS || link->writes > 0)
        return 0;
    struct ofi_write write = {
        .from = link->block.memory + PROBE_AT,
        .bytes = sizeof(uint64_t),
        .remote = &link->ring,
        .at = REMO__OFI_PROBE_AT,
        .omits_data = true,
        .was_connected = true,
    };
    link->since_ns = now;
    int rc = link_write(link, &write);
    return rc == -EAGAIN ? 0 : rc;
}

/* ---- events of the port ---- */

static struct ofi_link *link_at(const struct ofi_endpoint *endpoint, uint32_t peer) {
    return peer < endpoint->ofi->base.size ? endpoint->links[peer] : NULL;
}

/* A large answer is completely placed in its slot. */
static void answer_placed(struct ofi_endpoint *endpoint, uint32_t data) {
    uint32_t id = data & ~REMO__OFI_PLACED;
    struct ofi_link *link = data == REMO__OFI_WOKEN ? NULL : link_at(endpoint, id / REMO__OFI_WINDOW);
    if (link)
        link->placed |= UINT32_C(1) << id % REMO__OFI_WINDOW;
}

/* If a write fails, a link that is up is lost. In state OFFERED the link repeats the offer, because the peer
 * may still be starting; the control plane detects failures. */
static void write_ended(struct ofi_endpoint *endpoint, const struct ofi_event *event) {
    struct ofi_link *link = link_at(endpoint, (uint32_t)event->owner);
    if (!link || link->owner != event->owner)
        return;
    link->writes--;
    if (event->kind == OFI_EVENT_SENT)
        return;
    if (link->state == OFI_LINK_UP)
        link_lose(link, remo_last_error());
    else if (link->state == OFI_LINK_OFFERED)
        link->state = OFI_LINK_OFFERING;
}

/* The port has failed. */
static void links_lose(struct ofi_endpoint *endpoint) {
    for (uint32_t peer = 0; peer < endpoint->ofi->base.size; peer++) {
        if (endpoint->links[peer] && endpoint->links[peer]->state < OFI_LINK_LOST)
            link_lose(endpoint->links[peer], remo_last_error());
    }
}

/* libfabric polls the network only after all its events are read, and may report one event for each read. So
 * a poll reads until few writes remain to be reported; otherwise events of writes to many peers would delay
 * answers. The last few remain for later polls, because a read without an event costs system calls. A thread
 * that alternates between post and poll would execute them for each operation. */
void remo__ofi_links_poll(struct ofi_endpoint *endpoint) {
    struct ofi_event events[EVENTS_PER_READ];
    int count = endpoint->port.ep ? 1 : 0;
    for (uint32_t reads = 0; count > 0 && reads < READS_PER_POLL; reads++) {
        count = remo__ofi_port_poll(&endpoint->port, events, EVENTS_PER_READ);
        for (int i = 0; i < count; i++) {
            if (events[i].kind == OFI_EVENT_ARRIVED)
                answer_placed(endpoint, events[i].data);
            else
                write_ended(endpoint, &events[i]);
        }
        if (endpoint->port.writes <= REMO__OFI_WINDOW)
            break;
    }
    if (count < 0)
        links_lose(endpoint);
}

/* ---- progress ---- */

static int link_drive(struct ofi_link *link) {
    if (link->state < OFI_LINK_UP)
        acceptance_take(link);
    uint32_t answered = link->answered;
    int rc = answers_take(link);
    if (rc == 0 && link->answered != answered)
        link->since_ns = remo__now_ns();
    else if (rc == 0 && ++link->quiet_polls % QUIET_POLLS_PER_CLOCK == 0)
        rc = probe(link);
    return rc;
}

void remo__ofi_link_progress(struct ofi_link *link) {
    struct ofi_fabric *ofi = link->endpoint->ofi;
    bool is_lost = link->state == OFI_LINK_LOST;
    int rc = is_lost ? 0 : link_drive(link); /* first: operations answered before the cut-off complete */
    if (atomic_load_explicit(&ofi->contacts[link->contact->rank], memory_order_acquire) != link->contact)
        link_end(link);
    else if (rc < 0)
        link_lose(link, remo_last_error());
    else if (is_lost)
        return;
    else if (link->queue.count == 0 && link->flight_head == link->flight_tail)
        deactivate(link);
    else if (link->state == OFI_LINK_UP && (link->queue.count > 0 || link->unsent_bytes > 0))
        remo__ofi_link_push(link);
}
