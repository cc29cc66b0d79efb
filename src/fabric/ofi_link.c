/* Links: from an endpoint to a peer. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/ofi.h"

#define SLOW_NS (5 * REMO__NS_PER_S)    /* without a connection and a welcome: worth a line in the log */
#define PROBE_NS (10 * REMO__NS_PER_MS) /* of silence, with a request under way */
#define QUIET_POLLS_PER_CLOCK 64u       /* polls that found nothing, for one look at the clock */
#define FLIGHTS_SMALL 4u                /* requests under way before small operations wait to share one */
#define FULL_BYTES 8192u                /* in the queue: worth a request in any case */
#define ANSWERS_AT REMO__OFI_RING_BYTES
#define GREETING_AT (2 * REMO__OFI_RING_BYTES)
#define PROBE_AT (GREETING_AT + sizeof(struct remo__ofi_greeting))
#define BLOCK_BYTES (PROBE_AT + sizeof(uint64_t))

/* ---- active links: those that the endpoint polls ---- */

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

/* ---- the end of a link ---- */

static void link_shut(struct ofi_link *link) {
    remo__ofi_block_forget(&link->block);
    remo__ofi_port_close(&link->port); /* from here on nothing is written into the block */
    remo__ofi_block_close(&link->block);
}

/* Whatever is in flight or in the queue fails. It may have been executed or not. */
static void link_break(struct ofi_link *link, int status, const char *why) {
    struct ofi_endpoint *endpoint = link->endpoint;
    remo__log(&endpoint->ofi->base.log, REMO_LOG_WARNING, "the link of endpoint %u to node %u is broken: %s",
              endpoint->index, link->contact->rank, why);
    link_shut(link);
    while (link->flight_head != link->flight_tail) {
        uint16_t index = link->flights[link->flight_head++ % REMO__OFI_FLIGHTS_MAX].slot;
        struct ofi_slot *slot = &endpoint->slots[index];
        if (--slot->unanswered == 0 && slot->all_sent)
            remo__ofi_slot_finish(endpoint, index, slot->status ? slot->status : status);
    }
    while (link->queue.count > 0)
        remo__ofi_slot_finish(endpoint, remo__ofi_link_unqueue(link), status);
    link->state = OFI_LINK_BROKEN;
    deactivate(link);
}

void remo__ofi_link_close(struct ofi_link *link) {
    if (!link)
        return;
    link_shut(link);
    deactivate(link);
    while (link->queue.count > 0)
        remo__ofi_link_unqueue(link);
    link->endpoint->links[link->contact->rank] = NULL;
    free(link);
}

/* ---- the beginning of a link ---- */

static int greeting_write(struct ofi_link *link) {
    struct remo__ofi_greeting *greeting = (void *)(link->block.memory + GREETING_AT);
    size_t address_bytes = 0;
    int rc = remo__ofi_port_name(&link->port, greeting->address, sizeof greeting->address, &address_bytes);
    if (rc < 0)
        return rc;
    greeting->life = link->endpoint->ofi->life;
    greeting->seed = link->seed;
    greeting->key = link->block.key;
    greeting->base = link->block.base + ANSWERS_AT;
    greeting->endpoint = link->endpoint->index;
    greeting->address_bytes = (uint32_t)address_bytes;
    greeting->check = XXH3_64bits(greeting, offsetof(struct remo__ofi_greeting, check));
    return 0;
}

static int link_open(struct ofi_link *link) {
    struct ofi_fabric *ofi = link->endpoint->ofi;
    struct ofi_contact *contact = link->contact;
    if (link->endpoint->index >= contact->places)
        return remo__fail(-ENOSPC,
                          "node %u serves %u endpoints of each peer, this is number %u: open all nodes with "
                          "the same number of threads",
                          contact->rank, contact->places, link->endpoint->index + 1);
    if (getrandom(&link->seed, sizeof link->seed, 0) != sizeof link->seed)
        return remo__fail(-EIO, "the kernel has no random numbers");
    int rc = remo__ofi_port_open(&link->port, &ofi->net, false);
    if (rc == 0)
        rc = remo__ofi_port_insert(&link->port, contact->address, &link->table.address);
    if (rc == 0)
        rc = remo__ofi_block_open(&link->block, &link->port, BLOCK_BYTES);
    if (rc == 0)
        rc = greeting_write(link);
    if (rc < 0) {
        link_shut(link);
        return rc;
    }
    link->table.key = contact->table_key;
    link->table.base = contact->table_base;
    link->next = 1;
    link->queue = (struct ofi_fifo){.head = REMO__OFI_NONE, .tail = REMO__OFI_NONE};
    link->state = OFI_LINK_GREETING;
    link->since_ns = remo__now_ns();
    return 0;
}

int remo__ofi_link_get(struct ofi_endpoint *endpoint, struct ofi_contact *contact,
                       struct ofi_link **ret_link) {
    struct ofi_link *link = endpoint->links[contact->rank];
    if (link && link->contact != contact) {
        if (link->active)
            remo__ofi_link_progress(link); /* an earlier life: this ends it */
        remo__ofi_link_close(link);
        link = NULL;
    }
    if (link && link->state == OFI_LINK_BROKEN)
        return remo__fail(-EHOSTDOWN, "the connection to node %u was lost", contact->rank);
    if (!link) {
        link = calloc(1, sizeof *link);
        if (!link)
            return remo__fail(-ENOMEM, "no memory for a link to node %u", contact->rank);
        link->endpoint = endpoint;
        link->contact = contact;
        int rc = link_open(link);
        if (rc < 0) {
            free(link);
            return remo__fail_more(rc, "connecting to node %u", contact->rank);
        }
        endpoint->links[contact->rank] = link;
    }
    *ret_link = link;
    return 0;
}

/* Of this endpoint in the peer's table of greetings. */
static uint32_t place_of(const struct ofi_link *link) {
    return link->endpoint->ofi->base.rank * link->contact->places + link->endpoint->index;
}

static int greet(struct ofi_link *link) {
    struct ofi_write write = {
        .block = &link->block,
        .from = link->block.memory + GREETING_AT,
        .bytes = sizeof(struct remo__ofi_greeting),
        .remote = &link->table,
        .data = place_of(link),
    };
    write.at = (uint64_t)write.data * sizeof(struct remo__ofi_greeting);
    int rc = remo__ofi_port_write(&link->port, &write);
    if (rc == 0)
        link->state = OFI_LINK_GREETED;
    return rc == -EAGAIN ? 0 : rc;
}

static void welcome_take(struct ofi_link *link) {
    struct remo__ofi_head head;
    struct remo__ofi_welcome welcome;
    const uint8_t *message = link->block.memory + ANSWERS_AT;
    size_t bytes;
    if (!remo__ofi_arrived(message, 0, link->seed, link->port.net->stream, &link->placed, &head, &bytes)
        || bytes != sizeof head + sizeof welcome)
        return;
    memcpy(&welcome, message + sizeof head, sizeof welcome);
    link->ring =
        (struct ofi_remote){.address = link->table.address, .key = welcome.key, .base = welcome.base};
    link->state = OFI_LINK_UP;
}

/* ---- requests ---- */

static void count_queued(struct ofi_endpoint *endpoint, int32_t more) {
    uint32_t queued = atomic_load_explicit(&endpoint->queued, memory_order_relaxed);
    atomic_store_explicit(&endpoint->queued, queued + (uint32_t)more, memory_order_relaxed);
}

uint16_t remo__ofi_link_unqueue(struct ofi_link *link) {
    count_queued(link->endpoint, -1);
    return remo__ofi_fifo_pop(link->endpoint, &link->queue);
}

void remo__ofi_link_queue(struct ofi_link *link, uint16_t slot) {
    count_queued(link->endpoint, 1);
    remo__ofi_fifo_push(link->endpoint, &link->queue, slot);
    link->queue_bytes += sizeof(struct remo__ofi_record) + link->endpoint->slots[slot].op.size_bytes;
    activate(link);
}

static int request_send(struct ofi_link *link, uint32_t seq, size_t bytes) {
    struct ofi_write write = {
        .block = &link->block,
        .from = link->block.memory + remo__ofi_slot_at(seq),
        .bytes = bytes,
        .remote = &link->ring,
        .at = remo__ofi_slot_at(seq),
        .data = remo__ofi_immediate(bytes, link->port.net->stream, place_of(link), seq),
        .connected = true,
    };
    write.silent = write.data == REMO__OFI_WOKEN;
    int rc = remo__ofi_port_write(&link->port, &write);
    link->unsent_bytes = rc == -EAGAIN ? bytes : 0;
    return rc;
}

/* Few requests under way: send at once. Many: let operations gather, until one is answered or they fill one.
 * */
static bool may_send(const struct ofi_link *link) {
    uint32_t under_way = link->next - 1 - link->answered;
    return link->queue.count > 0
           && under_way < (link->queue_bytes >= FULL_BYTES ? REMO__OFI_WINDOW : FLIGHTS_SMALL);
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
    link->touched = false;
    int rc = 0;
    if (link->state == OFI_LINK_UP)
        rc = link_send(link);
    else if (link->state == OFI_LINK_GREETING)
        rc = greet(link);
    if (rc < 0)
        link_break(link, -EHOSTDOWN, remo_last_error());
}

/* ---- answers ---- */

static int answers_take(struct ofi_link *link) {
    while (link->answered != link->next - 1) {
        uint32_t seq = link->answered + 1;
        struct remo__ofi_head head;
        size_t bytes;
        const uint8_t *message = link->block.memory + ANSWERS_AT + remo__ofi_slot_at(seq);
        if (!remo__ofi_arrived(message, seq, link->seed, link->port.net->stream, &link->placed, &head,
                               &bytes))
            return 0;
        if (!remo__ofi_answer_take(link, message, bytes, &head))
            return remo__fail(-EPROTO, "node %u sent an answer that makes no sense", link->contact->rank);
        link->answered = seq;
        link->quiet_polls = 0;
    }
    return 0;
}

/* No welcome yet. However long that takes, the peer may just have no processor to itself: whether it lives is
 * not ours to decide, and what is queued waits until it is cut off. */
static void slow_tell(struct ofi_link *link, uint64_t quiet_ns) {
    if (link->slow_told || quiet_ns < SLOW_NS)
        return;
    link->slow_told = true;
    remo__log(&link->endpoint->ofi->base.log, REMO_LOG_WARNING,
              "node %u has not answered for %llu s on the network of the data: it is very busy, or a "
              "firewall lets only the other connection through",
              link->contact->rank, (unsigned long long)(quiet_ns / REMO__NS_PER_S));
}

/* With something under way and nothing heard: is there still a connection? A write tells. */
static int probe(struct ofi_link *link) {
    uint64_t quiet_ns = remo__now_ns() - link->since_ns;
    if (link->state != OFI_LINK_UP) {
        slow_tell(link, quiet_ns);
        return 0;
    }
    if (quiet_ns < PROBE_NS)
        return 0;
    struct ofi_write write = {
        .block = &link->block,
        .from = link->block.memory + PROBE_AT,
        .bytes = sizeof(uint64_t),
        .remote = &link->ring,
        .at = REMO__OFI_PROBE_AT,
        .silent = true,
        .connected = true,
    };
    link->since_ns += quiet_ns;
    int rc = remo__ofi_port_write(&link->port, &write);
    return rc == -EAGAIN ? 0 : rc;
}

static int link_drive(struct ofi_link *link) {
    uint32_t news[REMO__OFI_WINDOW];
    int rc = remo__ofi_port_poll(&link->port, news, REMO__OFI_WINDOW);
    if (rc < 0)
        return rc;
    for (int i = 0; i < rc; i++) {
        if (news[i] != REMO__OFI_WOKEN)
            link->placed |= UINT32_C(1) << news[i] % REMO__OFI_WINDOW;
    }
    if (link->state == OFI_LINK_GREETED)
        welcome_take(link);
    uint32_t answered = link->answered;
    rc = answers_take(link);
    if (rc == 0 && link->answered != answered)
        link->since_ns = remo__now_ns();
    else if (rc == 0 && ++link->quiet_polls % QUIET_POLLS_PER_CLOCK == 0)
        rc = probe(link);
    return rc;
}

void remo__ofi_link_progress(struct ofi_link *link) {
    struct ofi_fabric *ofi = link->endpoint->ofi;
    int rc = link_drive(link); /* first, so that what was answered before the end counts as done */
    if (rc < 0)
        link_break(link, -EHOSTDOWN, remo_last_error());
    else if (atomic_load_explicit(&ofi->contacts[link->contact->rank], memory_order_acquire) != link->contact)
        link_break(link, -EHOSTDOWN, "the peer was cut off");
    else if (link->queue.count == 0 && link->flight_head == link->flight_tail)
        deactivate(link);
    else if (link->state == OFI_LINK_GREETING || link->queue.count > 0 || link->unsent_bytes > 0)
        remo__ofi_link_push(link);
}
