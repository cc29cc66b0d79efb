/* target.c - the target: accepts offers, and executes requests of peers.
 *
 * It executes the requests of an inbound in order. It answers one before the next, or withholds the answer. A
 * thread that holds target.lock may call it: the target thread (ofi/thread.c), or a thread that waits
 * (ofi/arrivals.c). docs/internals/ofi.md describes the protocol. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/ofi/ofi.h"

#define REUSE_NS REMO__NS_PER_S /* memory of a link that its owner has closed gets no late writes */
#define POLL_MAX 16u
#define WITHHELD_ENOUGH (REMO__OFI_WINDOW / 2) /* requests whose answers are withheld, before an answer */
#define WITHHELD_NS (40 * REMO__NS_PER_US)     /* time before it if there are fewer */
#define PROBE_BYTES 64u
#define ANSWERS_AT (REMO__OFI_RING_BYTES + PROBE_BYTES)
#define BLOCK_BYTES (ANSWERS_AT + REMO__OFI_RING_BYTES)

/* ---- peers' endpoints ---- */

static void inbound_free(struct ofi_inbound *inbound) {
    remo__ofi_block_close(&inbound->block);
    free(inbound);
}

/* Stop executing an inbound. Its memory is kept, because writes in flight may still reach it. */
static void inbound_retire(struct ofi_target *target, uint32_t i, bool closed_by_owner) {
    struct ofi_inbound *inbound = target->inbounds[i];
    remo__ofi_block_unregister(&inbound->block);
    /* a peer that was cut off may write at any later time */
    inbound->retired_ns = closed_by_owner ? remo__now_ns() : UINT64_MAX;
    inbound->older = target->retired;
    target->retired = inbound;
    target->inbounds[i] = target->inbounds[--target->inbound_count];
}

/* Reuse an inbound that was retired long ago, or allocate one. */
static struct ofi_inbound *inbound_make(struct ofi_target *target) {
    uint64_t now = remo__now_ns();
    for (struct ofi_inbound **at = &target->retired; *at; at = &(*at)->older) {
        struct ofi_inbound *inbound = *at;
        if (inbound->retired_ns > now || now - inbound->retired_ns < REUSE_NS)
            continue;
        *at = inbound->older;
        struct ofi_block block = inbound->block;
        *inbound = (struct ofi_inbound){.block = block};
        memset(block.memory, 0, block.size_bytes);
        if (remo__ofi_block_register(&inbound->block, &target->port) == 0)
            return inbound;
        inbound_free(inbound);
        return NULL;
    }
    struct ofi_inbound *inbound = calloc(1, sizeof *inbound);
    if (inbound && remo__ofi_block_open(&inbound->block, &target->port, BLOCK_BYTES) == 0)
        return inbound;
    free(inbound);
    return NULL;
}

static bool inbounds_room(struct ofi_target *target) {
    if (target->inbound_count < target->inbound_cap)
        return true;
    uint32_t cap = target->inbound_cap * 2 + 8;
    struct ofi_inbound **grown = realloc(target->inbounds, cap * sizeof *grown);
    if (!grown)
        return false;
    target->inbounds = grown;
    target->inbound_cap = cap;
    return true;
}

/* Send answer `seq` of `bytes` bytes from its slot in the block. */
static int answer_send(struct ofi_fabric *ofi, struct ofi_inbound *inbound, uint32_t seq, size_t bytes) {
    struct ofi_target *target = &ofi->target;
    struct ofi_write write = {
        .block = &inbound->block,
        .from = inbound->block.memory + ANSWERS_AT + remo__ofi_slot_at(seq),
        .bytes = bytes,
        .remote = &inbound->answers,
        .at = remo__ofi_slot_at(seq),
        .data = remo__ofi_immediate(bytes, ofi->net.stream, ofi->base.rank, seq),
        .was_connected = true,
    };
    write.omits_data = write.data == REMO__OFI_WOKEN;
    int rc = remo__ofi_port_write(&target->port, &write);
    inbound->unsent_bytes = rc == -EAGAIN ? bytes : 0;
    inbound->unsent_seq = seq;
    if (rc == -EAGAIN)
        target->stalled = true;
    else if (rc < 0)
        inbound->is_broken = true; /* its owner has failed, or detects the loss itself */
    return rc;
}

static void acceptance_send(struct ofi_fabric *ofi, struct ofi_inbound *inbound) {
    struct remo__ofi_acceptance acceptance = {.key = inbound->block.key, .base = inbound->block.base};
    uint8_t *message = inbound->block.memory + ANSWERS_AT;
    memcpy(message + sizeof(struct remo__ofi_head), &acceptance, sizeof acceptance);
    size_t bytes =
        remo__ofi_seal(message, sizeof(struct remo__ofi_head) + sizeof acceptance, 0, 0, inbound->seed);
    answer_send(ofi, inbound, 0, bytes);
}

/* The acceptance may be lost with its connection. A second acceptance is placed before all answers if the
 * network keeps the order of writes; elsewhere it could replace an answer. */
static void offer_repeated(struct ofi_fabric *ofi, struct ofi_inbound *inbound) {
    if (inbound->next != 1 || !ofi->net.stream)
        return;
    inbound->is_broken = false;
    acceptance_send(ofi, inbound);
}

static int inbound_open(struct ofi_fabric *ofi, uint32_t rank, const struct remo__ofi_offer *offer) {
    struct ofi_target *target = &ofi->target;
    for (uint32_t i = 0; i < target->inbound_count; i++) {
        struct ofi_inbound *inbound = target->inbounds[i];
        if (inbound->rank != rank || inbound->endpoint != offer->endpoint)
            continue;
        if (inbound->seed == offer->seed) {
            offer_repeated(ofi, inbound);
            return 0;
        }
        inbound_retire(target, i, true);
        break;
    }
    struct ofi_inbound *inbound = inbounds_room(target) ? inbound_make(target) : NULL;
    if (!inbound)
        return remo__fail(-ENOMEM, "no memory for an endpoint of node %u", rank);
    inbound->rank = rank;
    inbound->cut_off_count = atomic_load(&ofi->cut_off_counts[rank]);
    inbound->endpoint = offer->endpoint;
    inbound->seed = offer->seed;
    inbound->answers = (struct ofi_remote){.key = offer->key, .base = offer->base};
    inbound->next = 1;
    int rc = remo__ofi_port_insert(&target->port, offer->address, &inbound->answers.address);
    if (rc < 0) {
        inbound_free(inbound);
        return rc;
    }
    target->inbounds[target->inbound_count++] = inbound;
    acceptance_send(ofi, inbound);
    return 0;
}

/* ---- offers ---- */

/* Accept the offer in an entry of the table, if it is complete and from the connected incarnation of a
 * peer. */
static void offer_take(struct ofi_fabric *ofi, uint32_t rank, uint32_t endpoint) {
    struct remo__ofi_offer offer;
    size_t entry = (size_t)rank * ofi->endpoints_max + endpoint;
    memcpy(&offer, ofi->target.table.memory + entry * sizeof offer, sizeof offer);
    struct ofi_contact *contact = atomic_load(&ofi->contacts[rank]);
    if (!contact || offer.incarnation != contact->incarnation || offer.endpoint != endpoint
        || offer.address_bytes > sizeof offer.address
        || offer.check != XXH3_64bits(&offer, offsetof(struct remo__ofi_offer, check)))
        return;
    if (inbound_open(ofi, rank, &offer) < 0)
        remo__log(&ofi->base.log, REMO_LOG_ERROR, "cannot serve endpoint %u of node %u: %s", endpoint, rank,
                  remo_last_error());
}

void remo__ofi_target_admit(struct ofi_fabric *ofi, uint32_t rank) {
    pthread_mutex_lock(&ofi->target.lock);
    for (uint32_t endpoint = 0; endpoint < ofi->endpoints_max; endpoint++)
        offer_take(ofi, rank, endpoint);
    pthread_mutex_unlock(&ofi->target.lock);
}

void remo__ofi_target_cut_off(struct ofi_fabric *ofi, uint32_t rank) {
    struct ofi_target *target = &ofi->target;
    pthread_mutex_lock(&target->lock);
    atomic_fetch_add(&ofi->cut_off_counts[rank], 1);
    for (uint32_t i = target->inbound_count; i-- > 0;) {
        if (target->inbounds[i]->rank == rank)
            inbound_retire(target, i, false);
    }
    /* An acceptance to a link that has ended would break the connection, which later links may share. */
    size_t bytes = ofi->endpoints_max * sizeof(struct remo__ofi_offer);
    memset(target->table.memory + rank * bytes, 0, bytes);
    pthread_mutex_unlock(&target->lock);
}

/* ---- requests ---- */

/* Answer the last request, and all whose answers are withheld. Only the last one has results. */
static void requests_answer(struct ofi_fabric *ofi, struct ofi_inbound *inbound) {
    uint8_t *answer = inbound->run.answer;
    size_t bytes = remo__ofi_seal(answer, remo__ofi_run_finish(&inbound->run), inbound->next - 1,
                                  inbound->run.failure_count, inbound->seed);
    uint32_t first = inbound->next - inbound->withheld;
    inbound->withheld = inbound->withheld_records = 0;
    answer_send(ofi, inbound, first, bytes);
}

/* The request is executed: count it as withheld, or answer it. */
static void request_end(struct ofi_fabric *ofi, struct ofi_inbound *inbound, uint64_t now) {
    inbound->next++;
    inbound->withheld_records += inbound->run.count;
    if (inbound->withheld++ == 0)
        inbound->withheld_ns = now;
    if (now == REMO__OFI_AT_ONCE || inbound->run.is_awaited)
        requests_answer(ofi, inbound);
}

/* No request has arrived: send the withheld answer if it is due. Returns whether it was sent at once: then
 * the port has a write in flight. */
static bool withheld_send(struct ofi_fabric *ofi, struct ofi_inbound *inbound, uint64_t now) {
    bool at_once = now == REMO__OFI_AT_ONCE;
    if (inbound->withheld == 0
        || (!at_once && inbound->withheld < WITHHELD_ENOUGH && now - inbound->withheld_ns < WITHHELD_NS))
        return false;
    requests_answer(ofi, inbound);
    return at_once;
}

static void inbound_execute(struct ofi_fabric *ofi, struct ofi_inbound *inbound, uint64_t now) {
    enum ofi_run_state state =
        remo__ofi_run(&inbound->run, ofi->memory, inbound->rank, inbound->cut_off_count);
    inbound->running = state == OFI_RUN_STALLED;
    if (state == OFI_RUN_STALLED) {
        ofi->target.stalled = true;
    } else if (state == OFI_RUN_BAD) {
        inbound->is_broken = true;
        remo__log(&ofi->base.log, REMO_LOG_ERROR, "node %u sent a malformed request; it is no longer served",
                  inbound->rank);
    } else {
        request_end(ofi, inbound, now);
    }
}

/* Serve one inbound. Returns true if a request was executed, or an answer was sent that was unsent or
 * withheld. */
static bool inbound_serve(struct ofi_fabric *ofi, struct ofi_inbound *inbound, uint64_t now) {
    if (inbound->is_broken)
        return false;
    if (inbound->unsent_bytes > 0)
        return answer_send(ofi, inbound, inbound->unsent_seq, inbound->unsent_bytes) != -EAGAIN;
    if (!inbound->running) {
        const uint8_t *request = inbound->block.memory + remo__ofi_slot_at(inbound->next);
        struct remo__ofi_head head;
        size_t bytes;
        if (!remo__ofi_arrived(request, inbound->next, inbound->next, inbound->seed, ofi->net.stream,
                               &inbound->placed, &head, &bytes))
            return withheld_send(ofi, inbound, now);
        uint8_t *answer =
            inbound->block.memory + ANSWERS_AT + remo__ofi_slot_at(inbound->next - inbound->withheld);
        remo__ofi_run_start(&inbound->run, request, bytes, head.count, answer, inbound->withheld_records);
    }
    inbound_execute(ofi, inbound, now);
    return !inbound->running;
}

static bool serve_all(struct ofi_fabric *ofi, uint64_t now) {
    struct ofi_target *target = &ofi->target;
    bool busy = false;
    target->stalled = false;
    for (uint32_t i = 0; i < target->inbound_count; i++)
        busy |= inbound_serve(ofi, target->inbounds[i], now);
    return busy;
}

/* ---- events ---- */

/* A large request is completely placed in its slot. */
static void request_placed(struct ofi_fabric *ofi, uint32_t entry, uint32_t slot) {
    struct ofi_target *target = &ofi->target;
    for (uint32_t i = 0; i < target->inbound_count; i++) {
        struct ofi_inbound *inbound = target->inbounds[i];
        if (inbound->rank * ofi->endpoints_max + inbound->endpoint == entry)
            inbound->placed |= UINT32_C(1) << slot;
    }
}

/* Handle the immediate of a message (ofi/wire.h). */
static void arrival_take(struct ofi_fabric *ofi, uint32_t data) {
    uint32_t id = data & ~REMO__OFI_PLACED;
    if (data == REMO__OFI_WOKEN)
        return;
    if (data & REMO__OFI_PLACED)
        request_placed(ofi, id / REMO__OFI_WINDOW, id % REMO__OFI_WINDOW);
    else if (id < ofi->base.size * ofi->endpoints_max)
        offer_take(ofi, id / ofi->endpoints_max, id % ofi->endpoints_max);
}

/* An error is about an answer whose asker has failed; the next answer to it detects that. Returns true if
 * there was an event. */
static bool events_take(struct ofi_fabric *ofi) {
    struct ofi_event events[POLL_MAX];
    int count = 1;
    bool found = false;
    for (uint32_t reads = 0; count > 0 && reads < POLL_MAX; reads++) {
        count = remo__ofi_port_poll(&ofi->target.port, events, POLL_MAX);
        found |= count > 0;
        for (int i = 0; i < count; i++) {
            if (events[i].kind == OFI_EVENT_ARRIVED)
                arrival_take(ofi, events[i].data);
        }
        if (ofi->target.port.writes <= REMO__OFI_WINDOW) /* see remo__ofi_links_poll */
            break;
    }
    return found;
}

bool remo__ofi_target_serve(struct ofi_fabric *ofi, uint64_t now, bool *ret_has_events) {
    *ret_has_events = events_take(ofi);
    return serve_all(ofi, now);
}

bool remo__ofi_target_may_sleep(struct ofi_fabric *ofi) {
    struct ofi_target *target = &ofi->target;
    bool may = target->port.fd < 0 || remo__ofi_port_may_sleep(&target->port);
    return !serve_all(ofi, REMO__OFI_AT_ONCE) && may; /* may_sleep may have received messages */
}

/* ---- open and close ---- */

int remo__ofi_target_open(struct ofi_fabric *ofi) {
    struct ofi_target *target = &ofi->target;
    target->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (target->wake_fd < 0)
        return remo__fail(-errno, "cannot open an event descriptor: too many open files; raise ulimit -n");
    int rc = remo__ofi_port_open(&target->port, &ofi->net, true);
    if (rc < 0)
        return rc;
    size_t entries = (size_t)ofi->base.size * ofi->endpoints_max;
    return remo__ofi_block_open(&target->table, &target->port, entries * sizeof(struct remo__ofi_offer));
}

static void target_stop(struct ofi_target *target) {
    if (!target->started)
        return;
    atomic_store(&target->stop, true);
    remo__ofi_target_wake(target);
    pthread_join(target->thread, NULL);
    target->started = false;
}

void remo__ofi_target_close(struct ofi_fabric *ofi) {
    struct ofi_target *target = &ofi->target;
    target_stop(target);
    for (uint32_t i = target->inbound_count; i-- > 0;)
        inbound_retire(target, i, false);
    remo__ofi_block_unregister(&target->table);
    remo__ofi_port_close(&target->port); /* afterwards libfabric does not access the blocks */
    while (target->retired) {
        struct ofi_inbound *inbound = target->retired;
        target->retired = inbound->older;
        inbound_free(inbound);
    }
    remo__ofi_block_close(&target->table);
    free(target->inbounds);
    if (target->wake_fd >= 0)
        close(target->wake_fd);
}
