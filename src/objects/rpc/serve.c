/* serve.c - finds requests in the rings of this node, and runs their handlers.
 * Invariants: a request is executed under receive_mutex of its ring, once, if its sender is not cut off. A
 * thread that stops serving announces it, then probes the rings again, so every request is found. */
#include <stdlib.h>

#include "objects/rpc/rpc.h"

#define PREFETCHED_LINES 2u           /* of a request, besides the first one */
#define REQUESTS_PER_PASS 64u         /* of one ring, before the other rings are probed */
#define NEAR_NS (3 * REMO__NS_PER_US) /* for which a caller waits before it wakes the service thread */
#define POLLS_PER_LOOK 8u             /* at the clock */
#define FAR_TIME ((int32_t)(REMO__FAR_NS >> REMO__RPC_TIME_SHIFT))
#define PASSES_PER_RING 3u /* while other threads leave requests to this one; then a sweep causes a poll */
#define PASSES_MAX (2 * REMO__RPC_RING_BYTES / REMO__RPC_LINE / REQUESTS_PER_PASS + 1)
#define FOUND_PER_CHECK 64u /* requests that a wait serves between two checks of its deadline */
#define RUNS_PER_TIMED 64u  /* of a SHORT handler in one thread */
#ifdef REMO_SIM
#define SPINS_BEFORE_WAIT(node) 1u /* the simulator has no clock that a spinning thread would drive */
#else
#define SPINS_BEFORE_WAIT(node) remo__min((node)->threads->spins, 200u) /* without the cost of remo__wait */
#endif

/* ---- one request ---- */

/* Return the present time; if the deadline of a request is far, perhaps an earlier one, which costs less. */
static uint64_t find_now(const struct remo__rpc_transport *transport, uint32_t time) {
    uint64_t coarse = transport->mapped ? remo__now_coarse_ns() : 0;
    int32_t left = (int32_t)(time - (uint32_t)(coarse >> REMO__RPC_TIME_SHIFT));
    return coarse != 0 && left > FAR_TIME ? coarse : remo__now_ns();
}

/* Return whether a request may still be executed, and set the deadline of its handler. */
static bool is_in_time(struct remo__rpc_turn *turn, uint32_t time) {
    turn->deadline_ns = REMO_FOREVER;
    if (remo__likely(time == 0))
        return true;
    uint64_t now = find_now(turn->transport, time);
    uint32_t start = turn->transport->mapped ? (uint32_t)(now >> REMO__RPC_TIME_SHIFT) : 0;
    int32_t left = (int32_t)(time - start);
    if (left <= 0)
        return false;
    turn->deadline_ns = now + ((uint64_t)left << REMO__RPC_TIME_SHIFT);
    return true;
}

/* Send the reply that the handler has left to this thread, or that refuses the request. Returns false if
 * it cannot be sent or queued now: then the request stays in its ring, and the next poll sends the reply. */
static bool send_status(struct remo__rpc_turn *turn, struct remo__rpc_peer *peer, enum remo__rpc_kind kind,
                        int status) {
    if (turn->is_replied || (remo__rpc_flags(turn->words.head) & REMO__RPC_POST))
        return true;
    int rc =
        remo__rpc_send_reply(turn->transport, turn->thread, turn->rpc, &turn->words, kind, status, NULL, 0);
    if (remo__likely(rc == 0 || rc == -EHOSTDOWN))
        return true;
    peer->owed_kind = kind;
    peer->owed_status = status;
    peer->owed_head = turn->words.head;
    peer->owes_reply = true;
    remo__rpc_request_poll(turn->transport);
    return false;
}

static bool run_handler(struct remo__rpc_turn *turn, struct remo__rpc_peer *peer,
                        struct remo__rpc_entry *entry, const void *data) {
    bool is_post = remo__rpc_flags(turn->words.head) & REMO__RPC_POST;
    bool is_timed = turn->counts->requests % RUNS_PER_TIMED == 0;
    remo__rpc_count(&turn->counts->requests);
    turn->thread->handling = turn;
    int status = remo__rpc_run_handler(turn, entry, data, is_timed);
    turn->thread->handling = NULL;
    if (status < 0 && (is_post || !turn->is_replied))
        remo__rpc_count(&turn->counts->errors);
    return send_status(turn, peer, REMO__RPC_REPLIED, status);
}

/* Stop reading a ring: its sender wrote a malformed record. */
static void break_ring(struct remo__rpc_transport *transport, struct remo__rpc_peer *peer) {
    peer->is_broken = true;
    remo__log(&transport->node->log, REMO_LOG_ERROR,
              "node %u sent a malformed request; its requests are no longer served; start all nodes from the "
              "same build",
              (uint32_t)(peer - transport->peers));
}

/* The request of a LONG handler leaves the ring. */
static __attribute__((noinline)) void leave_ring(const struct remo__rpc_turn *turn,
                                                 struct remo__rpc_peer *peer, struct remo__rpc_entry *entry,
                                                 const void *data) {
    if (remo__rpc_flags(turn->words.head) & REMO__RPC_POST) {
        remo__rpc_count(&turn->counts->errors);
        if (!atomic_exchange(&entry->discards_posts, true))
            remo__log(&turn->transport->node->log, REMO_LOG_WARNING,
                      "discarded a post of node %u to handler %u of service %s, which is LONG; use a call",
                      remo__rpc_origin(turn->words.call), entry->handler.number,
                      remo_channel_name(turn->rpc->channel));
    } else if (!remo__rpc_pool_add(turn, entry, data) && !peer->has_conflict) {
        peer->has_conflict = true;
        remo__log(
            &turn->transport->node->log, REMO_LOG_ERROR,
            "discarded one of two LONG requests for the same reply to node %u, the second one from node "
            "%u: a node is faulty; start all nodes from the same build",
            remo__rpc_origin(turn->words.call), (uint32_t)(peer - turn->transport->peers));
    }
}

/* All services are known by the slot of their channel. A service that closes waits until this thread releases
 * receive_mutex. */
static struct remo_rpc *find_service(const struct remo__rpc_transport *transport, uint32_t id) {
    struct remo_rpc *rpc =
        atomic_load_explicit(&transport->services[id % REMO__COUNTERS_MAX], memory_order_acquire);
    return rpc && rpc->channel->id == id ? rpc : NULL;
}

/* Returns whether the request has left its ring. */
static bool execute(struct remo__rpc_transport *transport, struct remo__thread *thread,
                    struct remo__rpc_peer *peer, const struct remo__rpc_words *words, const void *data,
                    const struct remo__rpc_places *places) {
    struct remo__rpc_turn turn = {.transport = transport,
                                  .thread = thread,
                                  .words = *words,
                                  .places = places,
                                  .depth = remo__rpc_depth(words->head),
                                  .rpc = find_service(transport, remo__rpc_service(words->rest))};
    if (remo__unlikely(peer->owes_reply)) {
        peer->owes_reply = false;
        turn.words.head = peer->owed_head;
        return send_status(&turn, peer, peer->owed_kind, peer->owed_status);
    }
    if (remo__unlikely(!turn.rpc))
        return send_status(&turn, peer, REMO__RPC_REFUSED, -ENOTCONN);
    uint32_t number = remo__rpc_number(words->head);
    struct remo__rpc_entry *entry =
        number < REMO_RPC_HANDLERS_MAX
            ? atomic_load_explicit(&turn.rpc->entries[number], memory_order_acquire)
            : NULL;
    bool is_leaf = turn.depth == REMO__RPC_LEAF_DEPTH;
    if (remo__unlikely(!entry || (is_leaf && entry->handler.kind == REMO_RPC_LONG)))
        return send_status(&turn, peer, REMO__RPC_REFUSED, -ENOSYS);
    turn.counts = &entry->counts[thread->index];
    if (remo__unlikely(!is_in_time(&turn, remo__rpc_time(words->rest)))) {
        remo__rpc_count(&turn.counts->expired);
        return send_status(&turn, peer, REMO__RPC_REFUSED, -ETIMEDOUT);
    }
    if (remo__unlikely(entry->handler.kind != REMO_RPC_SHORT)) {
        leave_ring(&turn, peer, entry, data);
        return true;
    }
    if (remo__likely(!places))
        return run_handler(&turn, peer, entry, data);
    if (places->request != 0)
        return send_status(&turn, peer, REMO__RPC_REFUSED, -EMSGSIZE);
    return run_handler(&turn, peer, entry, (const char *)data + REMO__RPC_PLACES_BYTES);
}

/* ---- one ring ---- */

static bool is_valid(const struct remo__rpc_transport *transport, uint32_t node,
                     const struct remo__rpc_words *words) {
    uint32_t origin = remo__rpc_origin(words->call);
    return origin < transport->size && (origin == node || remo__rpc_hops(words->head) > 0)
           && remo__rpc_slot(words->call) < REMO__RPC_SLOTS_TOTAL
           && (remo__rpc_bytes(words->head) <= REMO__RPC_DATA_MAX
               || (remo__rpc_flags(words->head) & REMO__RPC_HAS_PLACES))
           && remo__rpc_hops(words->head) <= REMO_RPC_DEPTH_MAX && remo__rpc_depth(words->head) > 0
           && remo__rpc_depth(words->head) <= REMO__RPC_DEPTHS
           && (remo__rpc_depth(words->head) != REMO__RPC_LEAF_DEPTH || remo__rpc_hops(words->head) == 0);
}

/* Execute the next request of a ring, if it is complete. receive_mutex is held. */
static bool serve_next(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    uint64_t position = atomic_load_explicit(&peer->consumed, memory_order_relaxed);
    const char *record = remo__rpc_next_record(transport, node, position), *data;
    uint64_t image[REMO__RPC_REQUEST_MAX / sizeof(uint64_t)];
    struct remo__rpc_words words = {.head = remo__load(record)};
    if (remo__rpc_lap(words.head) != remo__rpc_lap_of(position)
        || remo__unlikely(remo__rpc_bytes(words.head) > REMO__RPC_RECORD_MAX))
        return false;
    if (remo__likely(transport->mapped)) {
        if (remo__load(record + 8) != (words.head ^ peer->key))
            return false;
        words.call = remo__load(record + 16);
        words.rest = remo__load(record + 24);
        data = record + REMO__RPC_REQUEST_BYTES;
    } else {
        if (!remo__rpc_decode_request(record, words.head, peer->key, image))
            return false;
        words.call = image[0];
        words.rest = image[1];
        data = (const char *)(image + 2);
    }
    bool has_places = remo__rpc_flags(words.head) & REMO__RPC_HAS_PLACES;
    struct remo__rpc_places places;
    bool is_malformed = remo__unlikely(has_places) && !remo__rpc_large_decode(&words, data, &places);
    if (remo__unlikely(!remo__rpc_is_up(transport, node) || peer->is_broken))
        return false; /* cut off; or not connected yet, then on_connect causes a poll */
    if (remo__unlikely(!is_valid(transport, node, &words) || is_malformed)) {
        break_ring(transport, peer);
        return false;
    }
    uint32_t origin = remo__rpc_origin(words.call);
    bool has_caller = remo__likely(origin == node) || remo__rpc_is_up(transport, origin);
    if (remo__unlikely(!has_caller && !remo__rpc_has_departed(transport, origin)))
        return false; /* forwarded here before its caller has connected */
    if (remo__likely(has_caller)
        && !execute(transport, thread, peer, &words, data, has_places ? &places : NULL))
        return false;
    peer->owes_reply = false; /* also if the caller has failed meanwhile */
    position = remo__rpc_position_after(position, remo__rpc_bytes(words.head));
    peer->key = remo__rpc_key(position);
    atomic_store_explicit(&peer->consumed, position, memory_order_release);
    return true;
}

/* receive_mutex is held. */
static uint32_t serve_some(struct remo__rpc_transport *transport, struct remo__thread *thread,
                           uint32_t node) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    uint32_t count = 0;
    while (count < REQUESTS_PER_PASS && serve_next(transport, thread, node))
        count++;
    uint64_t uncredited = atomic_load_explicit(&peer->consumed, memory_order_relaxed)
                          - atomic_load_explicit(&peer->credited, memory_order_relaxed);
    if (remo__unlikely((int64_t)uncredited >= REMO__RPC_RING_BYTES / 2))
        remo__rpc_return_credit(transport, thread, node);
    return count;
}

/* Acquire the mutex, or leave the ring to its holder, which probes it again after the release. The second
 * attempt is necessary: the holder may have released the mutex before the store. */
static bool lock_ring(struct remo__rpc_peer *peer) {
    if (remo__likely(remo__mutex_try_lock(&peer->receive_mutex)))
        return true;
    atomic_store(&peer->is_missed, true);
    return remo__mutex_try_lock(&peer->receive_mutex);
}

/* Returns false if another thread has the mutex: it finds the mark of this one. */
static bool serve_pass(struct remo__rpc_transport *transport, struct remo__thread *thread, uint32_t node,
                       uint32_t *count) {
    uint32_t first = *count, more;
    do {
        if (!lock_ring(&transport->peers[node]))
            return false;
        more = serve_some(transport, thread, node);
        remo__mutex_unlock(transport->node, &transport->peers[node].receive_mutex);
        *count += more;
    } while (more > 0 && *count - first < REQUESTS_PER_PASS && remo__rpc_has_record(transport, node));
    return true;
}

/* Return whether another thread has left a request to this one. It may be complete now even if this thread
 * has found it incomplete, and no other event follows. */
static bool was_missed(const struct remo__rpc_transport *transport, uint32_t node) {
    struct remo__rpc_peer *peer = &transport->peers[node];
    return remo__unlikely(atomic_load(&peer->is_missed)) && atomic_exchange(&peer->is_missed, false)
           && remo__rpc_has_record(transport, node) && remo__rpc_is_up(transport, node);
}

/* Prefetch the lines of the next request behind its first one, which is in the cache. */
static void prefetch_rest(const struct remo__rpc_transport *transport, uint32_t node) {
    uint64_t position = atomic_load_explicit(&transport->peers[node].consumed, memory_order_relaxed);
    const char *record = remo__rpc_next_record(transport, node, position);
    for (uint32_t line = 1; line <= PREFETCHED_LINES; line++)
        __builtin_prefetch(record + (size_t)line * REMO__RPC_LINE);
}

/* Returns whether a request was executed. */
static __attribute__((noinline)) bool serve_ring(struct remo__rpc_transport *transport,
                                                 struct remo__thread *thread, uint32_t node) {
    struct remo__last_error discarded, *before = remo__errors_discard(&discarded);
    uint32_t count = 0;
    prefetch_rest(transport, node);
    for (uint32_t passes = 1; serve_pass(transport, thread, node, &count) && was_missed(transport, node);
         passes++)
        if (passes == PASSES_PER_RING) {
            remo__rpc_request_poll(transport);
            break;
        }
    remo__errors_restore(before);
    return count > 0;
}

/* ---- all rings ---- */

/* In large jobs a bit for each ring states where a request may be. A bit whose ring has more stays set; that
 * of a node that is not connected yet is set when it connects. */
static bool serve_pending(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    bool found = false;
    for (uint32_t first = 0; first < transport->size; first += 64) {
        char *word = remo__rpc_own_state(transport, REMO__RPC_AT_PENDING + first / 64 * 8);
        for (uint64_t bits = remo__load(word); bits != 0; bits &= bits - 1) {
            uint32_t node = first + (uint32_t)__builtin_ctzll(bits);
            (void)remo__mapped_fetch_and(word, ~(bits & -bits)); /* one by one: others serve other rings */
            if (node >= transport->size || !remo__rpc_has_record(transport, node))
                continue;
            if (serve_ring(transport, thread, node))
                found = true;
            if (remo__rpc_has_record(transport, node) && remo__rpc_is_up(transport, node))
                (void)remo__mapped_fetch_or(word, bits & -bits);
        }
    }
    return found;
}

static inline bool serve_rings(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    bool found = false;
    if (remo__unlikely(transport->size > REMO__RPC_DIRECT_NODES))
        return serve_pending(transport, thread);
    for (uint32_t node = 0; node < transport->size; node++)
        if (remo__unlikely(remo__rpc_has_record(transport, node)) && serve_ring(transport, thread, node))
            found = true;
    return found;
}

static __attribute__((noinline)) bool serve_others(struct remo__rpc_transport *transport,
                                                   struct remo__thread *thread) {
    struct remo__last_error discarded, *before = remo__errors_discard(&discarded);
    bool found = atomic_load(&transport->done_count) > 0 && remo__rpc_complete_done(transport, thread);
    /* afterwards: a queued call may wait for the slot of a call that has ended now */
    if (atomic_load(&transport->chores) > 0)
        remo__rpc_do_chores(transport, thread);
    remo__errors_restore(before);
    return found;
}

static inline bool serve_all(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    bool found = serve_rings(transport, thread);
    if (remo__unlikely(remo__rpc_has_others(transport)))
        found |= serve_others(transport, thread);
    return found;
}

/* A handler that waits for a fence must not park the task on whose stack it runs: `handling` belongs to the
 * thread, and another task would be taken for a part of the handler. */
static __attribute__((noinline)) bool serve_in_task(struct remo__rpc_transport *transport,
                                                    struct remo__thread *thread) {
    struct remo__scheduler *scheduler = remo__scheduler;
    bool was_checking = scheduler->is_checking;
    scheduler->is_checking = true;
    bool found = serve_all(transport, thread);
    scheduler->is_checking = was_checking;
    return found;
}

static inline bool poll(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    if (remo__unlikely(thread->handling != NULL))
        return false;
    return remo__unlikely(remo__scheduler != NULL) ? serve_in_task(transport, thread)
                                                   : serve_all(transport, thread);
}

bool remo__rpc_poll(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    bool found = poll(transport, thread);
    if (found)
        remo__service_relieve(transport->node);
    return found;
}

/* A sender that does not pause does not keep the service thread: requests that arrive later have another
 * immediate. */
bool remo__rpc_poll_all(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    uint32_t passes = 0;
    while (passes < PASSES_MAX && poll(transport, thread))
        passes++;
    return passes > 0;
}

/* A caller whose thread waits may wake the service thread later if a busy thread serves often: this one.
 * Nothing depends on the bit but the time of the wake-up. */
void remo__rpc_serve_arrived(struct remo__rpc_transport *transport, struct remo__thread *thread) {
    bool has_served = remo__rpc_poll_all(transport, thread);
    if (!has_served && !atomic_load_explicit(&transport->was_woken, memory_order_relaxed))
        return;
    atomic_store_explicit(&transport->was_woken, false, memory_order_relaxed);
    char *state = transport->state->own;
    if (!remo__rpc_has_bit(state, REMO__RPC_AT_NEAR, 0))
        (void)remo__rpc_set_bit(state, REMO__RPC_AT_NEAR, 0);
    if (has_served)
        remo__service_relieve(transport->node);
}

/* ---- waiting ---- */

static char *pollers(const struct remo__rpc_transport *transport) {
    return remo__rpc_own_state(transport, REMO__RPC_AT_POLLERS);
}

/* A sender that finds the thread counted wakes no thread, so the thread polls again after it has left. The
 * atomic is a full fence, which pairs with that of remo__rpc_wake. */
static void leave_pollers(struct remo__rpc_wait *wait) {
    if (!wait->is_poller)
        return;
    wait->is_poller = false;
    (void)remo__mapped_fetch_add(pollers(wait->transport), -UINT64_C(1));
    remo__mapped_fence_after_atomic();
    (void)remo__rpc_poll_all(wait->transport, wait->thread);
}

static void join_pollers(struct remo__rpc_wait *wait) {
    if (wait->is_poller)
        return;
    wait->is_poller = true;
    (void)remo__mapped_fetch_add(pollers(wait->transport), 1);
}

/* A wait condition. A task does not count: its thread may run another one for long. */
static int serve_and_check(void *ctx) {
    struct remo__rpc_wait *wait = ctx;
    if (remo__wait_is_last_check())
        leave_pollers(wait);
    else if (!remo__scheduler)
        join_pollers(wait);
    bool found = remo__rpc_poll(wait->transport, wait->thread);
    int rc = wait->is_over(wait->ctx);
    if (found && !wait->transport->mapped)
        remo__wait_extend();
    wait->has_served = rc == 0 && found && wait->transport->mapped && wait->spins > 0;
    return wait->has_served ? 1 : rc;
}

static void pay_wakes(struct remo__rpc_wait *wait) {
    uint32_t count = wait->owing_count;
    wait->owing_count = 0;
    for (uint32_t i = 0; i < count; i++)
        remo__rpc_wake_late(wait->transport, wait->thread, wait->owing[i]);
}

/* Serve until the condition holds, or no request has arrived for a short time. */
static int spin(struct remo__rpc_wait *wait, uint64_t deadline_ns) {
    uint32_t found = 0;
    int rc = 0;
    if (wait->spins > 0)
        join_pollers(wait);
    for (uint32_t i = 0, polls = 0; i < wait->spins && rc == 0; i++, polls++) {
        rc = wait->is_over(wait->ctx);
        if (rc != 0)
            break;
        /* also while requests keep arriving: no other thread sends the wake-up */
        if (remo__unlikely(wait->owing_count > 0) && polls % POLLS_PER_LOOK == POLLS_PER_LOOK - 1
            && remo__now_ns() >= wait->wake_ns)
            pay_wakes(wait);
        if (!remo__rpc_poll(wait->transport, wait->thread)) {
            remo__relax();
            continue;
        }
        if (++found % FOUND_PER_CHECK == 0 && remo__remaining_ns(deadline_ns) == 0)
            break;
        i = 0;
    }
    return rc;
}

static inline int wait_until(struct remo__rpc_wait *wait, uint64_t deadline_ns) {
    struct remo__rpc_transport *transport = wait->transport;
    int rc;
    if (!remo__scheduler)
        wait->spins = SPINS_BEFORE_WAIT(transport->node);
    do {
        wait->has_served = false;
        rc = transport->mapped ? spin(wait, deadline_ns) : 0;
        if (rc != 0)
            break;
        pay_wakes(wait);
        rc = remo__wait(transport->node, serve_and_check, wait, deadline_ns);
    } while (rc == 0 && wait->has_served && remo__remaining_ns(deadline_ns) > 0);
    rc = rc > 0 ? 0 : rc == 0 && wait->has_served ? -ETIMEDOUT : rc;
    leave_pollers(wait);
    if (remo__unlikely(atomic_load_explicit(&transport->chores, memory_order_relaxed) > 0))
        (void)remo__rpc_poll(transport, wait->thread); /* a queued call may wait for the slot of this call */
    return rc;
}

int remo__rpc_wait(struct remo__rpc_transport *transport, struct remo__thread *thread,
                   int (*is_over)(void *ctx), void *ctx, uint64_t deadline_ns) {
    struct remo__rpc_wait wait = {.transport = transport, .thread = thread, .is_over = is_over, .ctx = ctx};
    return wait_until(&wait, deadline_ns);
}

static inline bool owes_wake(struct remo_rpc_op *const *calls, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (remo__unlikely(calls[i]->own.wake == REMO__RPC_WAKE_OWED))
            return true;
    return false;
}

int remo__rpc_wait_calls(struct remo__rpc_transport *transport, struct remo__thread *thread,
                         int (*is_over)(void *ctx), void *ctx, struct remo_rpc_op *const *calls,
                         uint32_t count, uint64_t deadline_ns) {
    struct remo__rpc_wait wait = {.transport = transport, .thread = thread, .is_over = is_over, .ctx = ctx};
    if (owes_wake(calls, count)) {
        wait.owing = calls;
        wait.owing_count = count;
        wait.wake_ns = remo__scheduler ? 0 : remo__now_ns() + NEAR_NS; /* a task wakes it first */
    }
    return wait_until(&wait, deadline_ns);
}
