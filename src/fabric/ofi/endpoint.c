/* endpoint.c - endpoints of the ofi fabric: post, poll, wait, and operations on the node itself.
 *
 * One thread at a time holds an endpoint: its own thread, or the target thread that helps. ofi/slot.c keeps
 * the operations, ofi/link.c sends them. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/mapped.h"
#include "fabric/ofi/ofi.h"

#define HELP_NS (100 * REMO__NS_PER_US) /* if its thread does not drive an endpoint, the target thread does */
#define GATHER_NS (50 * REMO__NS_PER_US) /* the longest that a read waits for others */
#define UNAWAITED_POLL_NS (20 * REMO__NS_PER_US)
#define OFFERS_PER_POLL 8u
#define ACQUIRE_SPINS 64u
#define SLEEP_NS_MIN (20 * REMO__NS_PER_US)
#define SLEEP_DOUBLINGS_MAX 5u /* 640 us and what the kernel adds */

static struct ofi_endpoint *endpoint_of(struct remo__endpoint *endpoint) {
    return (struct ofi_endpoint *)endpoint; /* remo__endpoint is an incomplete type here */
}

/* ---- acquiring an endpoint: it is nearly always free, because one thread uses it ---- */

static bool endpoint_try_acquire(struct ofi_endpoint *endpoint) {
    return !atomic_exchange_explicit(&endpoint->held, true, memory_order_acquire);
}

static void endpoint_acquire(struct ofi_endpoint *endpoint) {
    /* the target thread helps, and releases the endpoint soon */
    for (uint32_t spins = 0; !endpoint_try_acquire(endpoint); spins++) {
        if (spins >= ACQUIRE_SPINS)
            sched_yield();
    }
    atomic_store_explicit(&endpoint->drives,
                          atomic_load_explicit(&endpoint->drives, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void endpoint_release(struct ofi_endpoint *endpoint) {
    bool queued = atomic_load_explicit(&endpoint->queued, memory_order_relaxed) > 0;
    atomic_store_explicit(&endpoint->held, false, memory_order_release);
    if (!queued)
        return;
    /* pairs with the exchange in help(), which clears `is_watching` and then checks again */
    remo__mapped_fence();
    remo__ofi_target_watch(endpoint->ofi);
}

/* An offer that finds no connection yet costs system calls. Nodes that wait for connections to all peers poll
 * at least once a millisecond. With all offers in each poll, n nodes on one machine would make n * n calls in
 * that time, and starve the connections. */
static void links_offer(struct ofi_endpoint *endpoint) {
    uint32_t count = remo__min(endpoint->active_count, OFFERS_PER_POLL);
    for (uint32_t i = 0; i < count && endpoint->active_count > 0; i++) {
        if (endpoint->offer_at == 0 || endpoint->offer_at > endpoint->active_count)
            endpoint->offer_at = endpoint->active_count;
        struct ofi_link *link = endpoint->active[--endpoint->offer_at];
        if (link->state == OFI_LINK_OFFERING)
            remo__ofi_link_push(link);
    }
}

/* Return whether an operation is missing besides answers that targets may withhold. */
static bool is_awaited(const struct ofi_endpoint *endpoint) {
    for (uint32_t i = 0; i < endpoint->active_count; i++)
        if (!remo__ofi_link_is_unawaited(endpoint->active[i]))
            return true;
    return false;
}

/* A poll costs system calls. Polls are rare while only withheld answers are missing. */
static bool is_due(struct ofi_endpoint *endpoint) {
    if (is_awaited(endpoint))
        return true;
    uint64_t now = remo__now_ns();
    if (now - endpoint->polled_ns < UNAWAITED_POLL_NS)
        return false;
    endpoint->polled_ns = now;
    return true;
}

static void links_progress(struct ofi_endpoint *endpoint) {
    if (endpoint->active_count == 0 || !is_due(endpoint))
        return;
    remo__ofi_links_poll(endpoint);
    /* backwards: a link that ends is replaced by the last */
    for (uint32_t i = endpoint->active_count; i-- > 0;)
        remo__ofi_link_progress(endpoint->active[i]);
    links_offer(endpoint);
}

static bool needs_help(struct ofi_endpoint *endpoint) {
    uint32_t drives = atomic_load_explicit(&endpoint->drives, memory_order_relaxed);
    uint64_t now = remo__now_ns();
    if (drives == endpoint->drives_seen)
        return now - endpoint->drives_seen_ns > HELP_NS;
    endpoint->drives_seen = drives;
    endpoint->drives_seen_ns = now;
    return false;
}

bool remo__ofi_endpoints_help(struct ofi_fabric *ofi) {
    bool queued = false;
    pthread_mutex_lock(&ofi->endpoints_lock);
    for (uint32_t i = 0; i < ofi->endpoints_max; i++) {
        struct ofi_endpoint *endpoint = ofi->endpoints[i];
        if (!endpoint || atomic_load_explicit(&endpoint->queued, memory_order_relaxed) == 0)
            continue;
        queued = true;
        if (!needs_help(endpoint) || !endpoint_try_acquire(endpoint))
            continue;
        links_progress(endpoint);
        atomic_store_explicit(&endpoint->held, false, memory_order_release);
    }
    pthread_mutex_unlock(&ofi->endpoints_lock);
    return queued;
}

/* ---- open and close ---- */

static int index_take(struct ofi_fabric *ofi, struct ofi_endpoint *endpoint) {
    int rc = -EMFILE;
    pthread_mutex_lock(&ofi->endpoints_lock);
    for (uint32_t i = 0; i < ofi->endpoints_max && rc != 0; i++) {
        if (ofi->endpoints[i])
            continue;
        ofi->endpoints[i] = endpoint;
        endpoint->index = i;
        rc = 0;
    }
    pthread_mutex_unlock(&ofi->endpoints_lock);
    return rc == 0 ? 0 : remo__fail(rc, "all %u endpoints of this node are open", ofi->endpoints_max);
}

static void index_release(struct ofi_fabric *ofi, struct ofi_endpoint *endpoint) {
    pthread_mutex_lock(&ofi->endpoints_lock);
    ofi->endpoints[endpoint->index] = NULL;
    pthread_mutex_unlock(&ofi->endpoints_lock);
}

static void endpoint_free(struct ofi_endpoint *endpoint) {
    if (endpoint->wake_fd >= 0)
        close(endpoint->wake_fd);
    free(endpoint->links);
    free(endpoint->active);
    free(endpoint);
}

int remo__ofi_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint) {
    struct ofi_fabric *ofi = ofi_of(fabric);
    struct ofi_endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (!endpoint)
        return remo__fail(-ENOMEM, "no memory for an endpoint of %zu bytes", sizeof *endpoint);
    endpoint->ofi = ofi;
    endpoint->gathers = true;
    endpoint->links = calloc(fabric->size, sizeof(struct ofi_link *));
    endpoint->active = calloc(fabric->size, sizeof(struct ofi_link *));
    endpoint->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = 0;
    if (!endpoint->links || !endpoint->active)
        rc = remo__fail(-ENOMEM, "no memory for an endpoint with %u peers", fabric->size);
    else if (endpoint->wake_fd < 0)
        rc = remo__fail(-errno, "cannot open an event descriptor: too many open files; raise ulimit -n");
    else
        rc = index_take(ofi, endpoint);
    if (rc < 0) {
        endpoint_free(endpoint);
        return rc;
    }
    for (uint32_t i = 0; i < REMO__OFI_DEPTH; i++)
        endpoint->free[endpoint->free_count++] = (uint16_t)(REMO__OFI_DEPTH - 1 - i);
    *ret_endpoint = (struct remo__endpoint *)endpoint;
    return 0;
}

void remo__ofi_endpoint_close(struct remo__endpoint *public) {
    struct ofi_endpoint *endpoint = endpoint_of(public);
    if (!endpoint)
        return;
    index_release(endpoint->ofi, endpoint); /* the target thread no longer helps it */
    remo__ofi_links_close(endpoint);
    endpoint_free(endpoint);
}

/* ---- operations on the node itself: executed immediately ---- */

static int self_write(struct ofi_fabric *ofi, const struct remo__op *op) {
    struct ofi_memory *memory = ofi->memory;
    uint64_t claimed;
    if ((op->flags & REMO__OP_IMM) && !remo__ofi_imms_claim(&memory->imms, &claimed))
        return remo__fail_static(-EAGAIN, "this node's queue of immediates is full; retry");
    remo__mapped_copy_to(ofi->arena + op->remote, op->local, op->size_bytes);
    if (op->flags & REMO__OP_IMM) {
        uint32_t rank = ofi->base.rank;
        remo__ofi_imms_fill(&memory->imms, claimed, rank, atomic_load(&ofi->cut_off_counts[rank]), op->imm);
        remo__ofi_imms_notify(&memory->imms);
    }
    remo__mapped_fence(); /* a completion means placed; also pairs with the sleeper's fence */
    if ((op->flags & (REMO__OP_NOTIFY | REMO__OP_IMM))
        && atomic_load_explicit(&memory->bell.sleepers, memory_order_relaxed) != 0)
        remo__doorbell_notify(&memory->bell);
    return 0;
}

static int self_execute(struct ofi_fabric *ofi, const struct remo__op *op) {
    char *at = ofi->arena + op->remote;
    uint64_t old;
    switch ((enum remo__op_kind)op->kind) {
    case REMO__OP_READ: remo__mapped_copy_from(op->local, at, op->size_bytes); return 0;
    case REMO__OP_WRITE: return self_write(ofi, op);
    case REMO__OP_FETCH_ADD:
        old = remo__mapped_fetch_add(at, op->operand);
        memcpy(op->local, &old, sizeof old);
        return 0;
    case REMO__OP_COMPARE_SWAP:
        old = remo__mapped_compare_swap(at, op->compare, op->operand);
        memcpy(op->local, &old, sizeof old);
        return 0;
    }
    return -EINVAL;
}

/* ---- post ---- */

static int op_check(struct ofi_fabric *ofi, const struct remo__op *op, struct ofi_contact **ret_contact) {
    int rc = remo__fabric_check_op(&ofi->base, op);
    if (rc < 0)
        return rc;
    struct ofi_contact *contact = atomic_load_explicit(&ofi->contacts[op->peer], memory_order_acquire);
    if (!contact)
        return remo__fail(-EHOSTDOWN, "node %u is not connected", op->peer);
    if (!remo__ofi_ranges_cover(&contact->ranges, op->remote, op->size_bytes))
        return remo__fail(-EFAULT, "%llu bytes at offset %#llx of node %u are not network memory",
                          (unsigned long long)op->size_bytes, (unsigned long long)op->remote, op->peer);
    *ret_contact = contact;
    return 0;
}

static int post_one(struct ofi_endpoint *endpoint, const struct remo__op *op) {
    struct ofi_fabric *ofi = endpoint->ofi;
    struct ofi_contact *contact = NULL;
    struct ofi_link *link = NULL;
    int rc = op_check(ofi, op, &contact);
    if (rc < 0)
        return rc;
    if (endpoint->free_count == 0)
        return remo__fail_static(-EAGAIN, "too many operations in flight; poll first");
    rc = op->peer == ofi->base.rank ? self_execute(ofi, op) : remo__ofi_link_get(endpoint, contact, &link);
    if (rc < 0)
        return rc;
    uint16_t slot = remo__ofi_slot_take(endpoint, op);
    if (!link) {
        remo__ofi_slot_finish(endpoint, slot, 0);
        return 0;
    }
    remo__ofi_link_queue(link, slot);
    link->needs_push = true;
    return 0;
}

/* A request costs both ends several system calls, about as much time as its travel, so separate requests
 * hardly overlap. Reads whose caller does not wait yet are therefore deferred until the thread polls, and
 * share a request. A thread that computes between its posts and its poll would lose time. So reads are
 * deferred only if the thread's polls follow closely, and for at most GATHER_NS while the thread posts. If
 * the thread computes nevertheless, the target thread sends the deferred reads.
 * Measured on two busy cores: four reads take 3 to 4 times as long as one without, 0.9 to 1.4 times with
 * this. */
static bool may_gather(struct ofi_endpoint *endpoint, const struct ofi_link *link, uint64_t now) {
    endpoint->gather_last_ns = now;
    if (endpoint->gather_ns == 0)
        endpoint->gather_ns = now;
    return endpoint->gathers && now - endpoint->gather_ns < GATHER_NS && remo__ofi_link_may_gather(link);
}

/* Send the operations of a post. All of them are queued before the first is sent, so they share messages. */
static void queued_push(struct ofi_endpoint *endpoint, const struct remo__op *ops, uint32_t count) {
    uint64_t now = 0; /* read at the first read, for all of them */
    for (uint32_t i = 0; i < count; i++) {
        struct ofi_link *link = endpoint->links[ops[i].peer];
        if (!link || !link->needs_push)
            continue;
        bool gathers = ops[i].flags & REMO__OP_GATHER;
        if (gathers && now == 0)
            now = remo__now_ns();
        if (!gathers || !may_gather(endpoint, link, now))
            remo__ofi_link_push(link);
    }
}

static void gathered_push(struct ofi_endpoint *endpoint) {
    if (endpoint->gather_ns == 0)
        return;
    endpoint->gathers = remo__now_ns() - endpoint->gather_last_ns < GATHER_NS;
    endpoint->gather_ns = 0;
    /* backwards: a link that ends is replaced by the last */
    for (uint32_t i = endpoint->active_count; i-- > 0;) {
        if (endpoint->active[i]->needs_push)
            remo__ofi_link_push(endpoint->active[i]);
    }
}

int remo__ofi_post(struct remo__endpoint *public, const struct remo__op *ops, uint32_t count) {
    struct ofi_endpoint *endpoint = endpoint_of(public);
    uint32_t taken = 0;
    int rc = 0;
    endpoint_acquire(endpoint);
    while (taken < count && (rc = post_one(endpoint, &ops[taken])) == 0)
        taken++;
    queued_push(endpoint, ops, taken);
    endpoint_release(endpoint);
    return taken > 0 || count == 0 ? (int)taken : rc;
}

/* ---- poll and wait ---- */

int remo__ofi_poll(struct remo__endpoint *public, struct remo__completion *done, uint32_t max) {
    struct ofi_endpoint *endpoint = endpoint_of(public);
    uint32_t count = 0;
    endpoint_acquire(endpoint);
    if (endpoint->done.count < max) {
        gathered_push(endpoint);
        links_progress(endpoint);
    }
    while (count < max && remo__ofi_slot_poll(endpoint, &done[count]))
        count++;
    if (count > 0)
        endpoint->sleeps = 0;
    endpoint_release(endpoint);
    return (int)count;
}

/* Sleep for increasing times and not on a descriptor, which would add 1 us to each completion. A thread that
 * sleeps here has polled for a long time already. It does not sleep on its doorbell: so sleeps stay short
 * while only withheld answers are missing, because it probably waits for something else. */
void remo__ofi_wait(struct remo__endpoint *public, uint64_t timeout_ns) {
    struct ofi_endpoint *endpoint = endpoint_of(public);
    endpoint_acquire(endpoint);
    gathered_push(endpoint);
    bool done = endpoint->done.count > 0, active = endpoint->active_count > 0;
    bool awaited = is_awaited(endpoint);
    endpoint_release(endpoint);
    if (done)
        return;
    uint64_t sleep_ns = active ? SLEEP_NS_MIN << (awaited ? endpoint->sleeps : 0) : REMO__NS_PER_S;
    if (awaited && endpoint->sleeps < SLEEP_DOUBLINGS_MAX)
        endpoint->sleeps++;
    sleep_ns = remo__min(sleep_ns, timeout_ns);
    struct timespec timeout = {.tv_sec = (time_t)(sleep_ns / REMO__NS_PER_S),
                               .tv_nsec = (long)(sleep_ns % REMO__NS_PER_S)};
    struct pollfd woken = {.fd = endpoint->wake_fd, .events = POLLIN};
    uint64_t count;
    if (ppoll(&woken, 1, &timeout, NULL) > 0 && read(endpoint->wake_fd, &count, sizeof count) < 0)
        return; /* read already */
}
