/* net.c - the network of the world with a clock: the path of each operation, by the costs of model.h.
 * It makes the promises of the fabric `verbs`. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/error.h"
#include "fabric/fabric.h"
#include "sim/network/common.h"
#include "sim/network/net.h"
#include "sim/timed/model.h"
#include "sim/timed/timed.h"

#define ENDPOINTS_MAX 64u /* per node */
#define DEPTH 128u
#define BATCH_MAX 64u
#define INLINE_BYTES 256u
#define MESSAGE_BYTES (1u << 20)
#define IMMS_MAX 65536u
#define CONNECTIONS (SIM_NODES_MAX * ENDPOINTS_MAX * 2) /* that a card may have */

struct op {
    struct remo__op is;
    struct remo__endpoint *from;
    struct op *next; /* while it is unused */
    char *data;      /* in flight, or a result */
    int status;
};

struct remo__endpoint {
    uint32_t index, node;
    struct remo__fabric *fabric;
    struct remo__completion done[DEPTH];
    uint32_t done_count, in_flight;
};

/* The connections in a card's cache, the most recently used first. */
struct cache {
    uint32_t next[CONNECTIONS + 1], before[CONNECTIONS + 1]; /* a ring; entry CONNECTIONS is its end */
    bool is_cached[CONNECTIONS];
    uint32_t count;
};

struct card {
    uint64_t send_ns, receive_ns; /* when it is free again to send, and to receive */
    uint64_t out_ns, in_ns;       /* the same of its link, out and in */
    uint64_t atomic_ns;
    /* placement of the last write of each connection; later operations follow it */
    uint64_t placed_ns[CONNECTIONS];
    struct cache cache;
};

struct fabric {
    struct sim_fabric is;
    char *arena;
    uint32_t endpoints;
    struct card card;
    struct remo__imm *imms; /* a ring of IMMS_MAX */
    uint64_t imms_head, imms_tail;
    bool woken;
    uint64_t due_ns; /* the end of the service thread's wait; 0: it does not wait, or without a limit */
};

static struct fabric *fabrics[SIM_NODES_MAX];
static struct op *unused;

void sim_net_open(void) {
    unused = NULL;
}

/* ---- cards and links ---- */

static void unlink_entry(struct cache *cache, uint32_t entry) {
    cache->next[cache->before[entry]] = cache->next[entry];
    cache->before[cache->next[entry]] = cache->before[entry];
}

static void link_first(struct cache *cache, uint32_t entry) {
    cache->next[entry] = cache->next[CONNECTIONS];
    cache->before[entry] = CONNECTIONS;
    cache->before[cache->next[entry]] = entry;
    cache->next[CONNECTIONS] = entry;
}

/* Look a connection up and make it the most recent one. A miss may evict another connection. */
static bool cache_hit(struct cache *cache, uint32_t entry) {
    uint64_t room = sim_model.nic_connection_bytes
                        ? sim_model.nic_cache_bytes / sim_model.nic_connection_bytes
                        : CONNECTIONS;
    bool hit = cache->is_cached[entry];
    if (hit)
        unlink_entry(cache, entry);
    else if (cache->count >= remo__max(room, 1)) {
        uint32_t oldest = cache->before[CONNECTIONS];
        unlink_entry(cache, oldest);
        cache->is_cached[oldest] = false;
        cache->count--;
    }
    link_first(cache, entry);
    cache->count += !hit;
    cache->is_cached[entry] = true;
    return hit;
}

/* Pass a message through one side of the card, which is free from *free_ns on, at `at_ns` or later. It takes
 * `more_ns` in addition to its usual time. Returns the time when the message is through. */
static uint64_t pass_card(struct card *card, uint64_t *free_ns, uint32_t connection, uint64_t at_ns,
                          uint64_t more_ns) {
    bool hit = cache_hit(&card->cache, connection);
    uint64_t start = remo__max(at_ns, *free_ns) + more_ns;
    *free_ns = start + (hit ? sim_model.nic_message_ns : sim_model.nic_miss_ns);
    return start + (hit ? sim_model.nic_message_ns : remo__max(sim_model.nic_miss_ns, sim_model.pcie_ns));
}

static uint64_t pass_link(uint64_t *free_ns, uint64_t bytes, uint64_t at_ns) {
    uint64_t start = remo__max(at_ns, *free_ns);
    *free_ns = start + (bytes + sim_model.header_bytes) * 8 / sim_model.link_gbit_per_s;
    return *free_ns;
}

static uint64_t latency(const struct op *op) {
    return op->is.peer == op->from->node ? 0 : sim_model.link_latency_ns;
}

static struct card *card_of(uint32_t node) {
    return &fabrics[node]->card;
}

/* Return the connection that carries the operations of this node's thread to a peer. */
static uint32_t connection_to(uint32_t peer, uint32_t thread) {
    return (peer * ENDPOINTS_MAX + thread) * 2;
}

/* Return the connection that carries the operations of a peer's thread to this node. */
static uint32_t connection_from(uint32_t peer, uint32_t thread) {
    return connection_to(peer, thread) + 1;
}

/* ---- path of an operation ----
 *
 *   post      doorbell over PCIe; the payload, unless it is inline; the card and the link of the poster
 *   arrive    the link and the card of the target; then PCIe to memory, or the card's one unit for atomics
 *   respond   reads and atomics: link and card of the target, link and card of the poster
 *   complete  PCIe
 *
 * A card sends one message and receives one at a time; a link carries one each way. A pair of threads of the
 * same number on two nodes has two connections, one for the operations of each (Storm 3.4; the fabric
 * `verbs`). Each card that a message passes looks the state of its connection up in its cache. An immediate
 * takes a receive from the queue of the card and adds a completion. */

static bool is_write(const struct op *op) {
    return op->is.kind == REMO__OP_WRITE;
}

static void complete(void *ctx) {
    struct op *op = ctx;
    struct remo__endpoint *from = op->from;
    if (!is_write(op) && op->status == 0)
        memcpy(op->is.local, op->data, op->is.size_bytes);
    from->done[from->done_count++] = (struct remo__completion){.token = op->is.token, .status = op->status};
    sim_changed(from->node);
    free(op->data);
    op->next = unused;
    unused = op;
}

static void respond_arrives(void *ctx) {
    struct op *op = ctx;
    struct card *card = card_of(op->from->node);
    uint64_t now = pass_link(&card->in_ns, op->is.size_bytes, sim_timed_now());
    now = pass_card(card, &card->receive_ns, connection_to(op->is.peer, op->from->index), now, 0);
    sim_timed_at(now + sim_model.pcie_ns / 2, complete, op);
}

static void respond(struct op *op) {
    struct card *card = card_of(op->is.peer);
    uint64_t now =
        pass_card(card, &card->send_ns, connection_from(op->from->node, op->from->index), sim_timed_now(), 0);
    now = pass_link(&card->out_ns, op->is.size_bytes, now);
    sim_timed_at(now + latency(op), respond_arrives, op);
}

static void deliver(const struct op *op) {
    struct fabric *target = fabrics[op->is.peer];
    if (!(op->is.flags & REMO__OP_IMM))
        return;
    if (target->imms_tail - target->imms_head == IMMS_MAX) {
        sim_fail("more than %u immediates wait at node %u", IMMS_MAX, op->is.peer);
        return;
    }
    target->imms[target->imms_tail++ % IMMS_MAX] =
        (struct remo__imm){.peer = op->from->node, .value = op->is.imm};
}

static void execute(void *ctx) {
    struct op *op = ctx;
    char *at = fabrics[op->is.peer]->arena + op->is.remote;
    if (is_write(op)) {
        memcpy(at, op->data, op->is.size_bytes);
        deliver(op);
        sim_changed(op->is.peer);
        return;
    }
    memcpy(op->data, at, op->is.size_bytes);
    uint64_t old, *word = (uint64_t *)at;
    memcpy(&old, op->data, op->is.kind == REMO__OP_READ ? 0 : sizeof old);
    if (op->is.kind == REMO__OP_FETCH_ADD)
        *word = old + op->is.operand;
    else if (op->is.kind == REMO__OP_COMPARE_SWAP && old == op->is.compare)
        *word = op->is.operand;
    if (op->is.kind != REMO__OP_READ)
        sim_changed(op->is.peer);
    respond(op);
}

static void arrive(void *ctx) {
    struct op *op = ctx;
    struct card *card = card_of(op->is.peer);
    uint32_t mine = connection_from(op->from->node, op->from->index);
    uint64_t now = pass_link(&card->in_ns, is_write(op) ? op->is.size_bytes : 0, sim_timed_now());
    bool has_imm = op->is.flags & (REMO__OP_IMM | REMO__OP_NOTIFY); /* as on the fabric `verbs` */
    now = pass_card(card, &card->receive_ns, mine, now, has_imm ? sim_model.nic_imm_ns : 0);
    now += has_imm ? sim_model.pcie_ns : 0; /* the card reads the receive from memory */
    if (is_write(op)) {
        uint64_t placed = remo__max(now + sim_model.pcie_ns / 2, card->placed_ns[mine]);
        card->placed_ns[mine] = placed;
        sim_timed_at(placed, execute, op);
        sim_timed_at(remo__max(now + latency(op) + sim_model.pcie_ns / 2, placed + 1), complete, op);
        return;
    }
    now = remo__max(now, card->placed_ns[mine]);
    if (op->is.kind != REMO__OP_READ) {
        now = remo__max(now, card->atomic_ns);
        card->atomic_ns = now + sim_model.nic_atomic_ns;
        sim_timed_at(card->atomic_ns, execute, op);
    } else {
        sim_timed_at(now + sim_model.pcie_ns, execute, op);
    }
}

static void start(struct remo__endpoint *from, const struct remo__op *is) {
    struct op *op = unused ? unused : malloc(sizeof *op);
    struct card *card = card_of(from->node);
    if (unused)
        unused = unused->next;
    *op = (struct op){.is = *is, .from = from, .data = malloc(is->size_bytes + 8)};
    if (is_write(op) && is->size_bytes > 0)
        memcpy(op->data, is->local, is->size_bytes);
    bool fetched = is_write(op) && is->size_bytes > INLINE_BYTES;
    uint64_t now = sim_timed_now() + sim_model.pcie_ns / 2 + (fetched ? sim_model.pcie_ns : 0);
    now = pass_card(card, &card->send_ns, connection_to(is->peer, from->index), now, 0);
    now = pass_link(&card->out_ns, is_write(op) ? is->size_bytes : 0, now);
    sim_timed_at(now + latency(op), arrive, op);
}

/* ---- the table of operations ---- */

static int timed_open(const struct remo__fabric_config *config, struct remo__fabric **ret_fabric) {
    extern const struct remo__fabric_ops remo__fabric_sim;
    struct fabric *fabric = calloc(1, sizeof *fabric);
    if (!fabric || !(fabric->imms = calloc(IMMS_MAX, sizeof *fabric->imms))) {
        free(fabric);
        return remo__fail(-ENOMEM, "no memory for the simulated network");
    }
    struct remo__fabric_caps caps = {.coherent = true,
                                     .writes_ordered = true,
                                     .read_flushes = true,
                                     .driven_by_device = true,
                                     .local_registered = true,
                                     .inline_bytes = INLINE_BYTES,
                                     .batch_max = BATCH_MAX,
                                     .depth = DEPTH,
                                     .message_bytes_max = MESSAGE_BYTES};
    sim_fabric_init(&fabric->is, &remo__fabric_sim, config, &caps);
    fabric->arena = config->arena;
    fabric->card.cache.next[CONNECTIONS] = fabric->card.cache.before[CONNECTIONS] = CONNECTIONS;
    fabrics[config->rank] = fabric;
    *ret_fabric = &fabric->is.base;
    return 0;
}

/* Free nothing: operations in flight may still use the fabric. */
static void timed_close(struct remo__fabric *fabric) {
    (void)fabric;
}

static void timed_disconnect(struct remo__fabric *fabric, uint32_t peer) {
    atomic_store(&fabric->peers[peer].connected, 0);
}

/* Set up the connections of an endpoint with the same thread of each peer: this loads their state. Without
 * it, short runs would measure the first use of each connection. */
static void load_connections(const struct remo__endpoint *endpoint) {
    for (uint32_t peer = 0; peer < sim_world->nodes_count; peer++)
        if (fabrics[peer]) {
            (void)cache_hit(&card_of(endpoint->node)->cache, connection_to(peer, endpoint->index));
            (void)cache_hit(&card_of(peer)->cache, connection_from(endpoint->node, endpoint->index));
        }
}

static int timed_endpoint_open(struct remo__fabric *fabric, struct remo__endpoint **ret_endpoint) {
    struct fabric *mine = (struct fabric *)fabric;
    struct remo__endpoint *endpoint = mine->endpoints < ENDPOINTS_MAX ? calloc(1, sizeof *endpoint) : NULL;
    if (!endpoint)
        return remo__fail(-ENOMEM, "cannot open an endpoint: no memory, or more than %u endpoints",
                          ENDPOINTS_MAX);
    endpoint->index = mine->endpoints++;
    endpoint->node = fabric->rank;
    endpoint->fabric = fabric;
    load_connections(endpoint);
    *ret_endpoint = endpoint;
    return 0;
}

/* Free nothing, as for the fabric. */
static void timed_endpoint_close(struct remo__endpoint *endpoint) {
    (void)endpoint;
}

static int timed_post(struct remo__endpoint *endpoint, const struct remo__op *ops, uint32_t count) {
    uint32_t posted = 0;
    sim_timed_work();
    sim_timed_spend(sim_model.cpu_post_ns);
    if (!atomic_load(&endpoint->fabric->peers[ops[0].peer].connected))
        return remo__fail_static(-EHOSTDOWN, "cannot post the operation: the peer is cut off");
    while (posted < count && endpoint->in_flight < DEPTH) {
        endpoint->in_flight++;
        start(endpoint, &ops[posted++]);
    }
    return posted > 0 ? (int)posted : -EAGAIN;
}

static int timed_poll(struct remo__endpoint *endpoint, struct remo__completion *done, uint32_t max) {
    uint32_t seen = endpoint->done_count; /* others may arrive while this thread spends time */
    sim_timed_spend(sim_model.cpu_touch_ns);
    uint32_t count = sim_take_completions(endpoint->done, &endpoint->done_count, done, remo__min(max, seen));
    endpoint->in_flight -= count;
    return (int)count;
}

static int timed_imm_poll(struct remo__fabric *fabric, struct remo__imm *imms, uint32_t max) {
    struct fabric *mine = (struct fabric *)fabric;
    uint32_t count = 0;
    sim_timed_spend(sim_model.cpu_touch_ns);
    while (count < max && mine->imms_head < mine->imms_tail)
        imms[count++] = mine->imms[mine->imms_head++ % IMMS_MAX];
    return (int)count;
}

static bool imm_there(void *ctx) {
    const struct fabric *mine = ctx;
    return mine->imms_head < mine->imms_tail || mine->woken;
}

/* The thread may have ended this wait, and may be in a longer one. */
static void end_imm_wait(void *ctx) {
    struct fabric *mine = ctx;
    if (mine->due_ns == 0 || mine->due_ns > sim_timed_now())
        return;
    mine->woken = true;
    sim_changed(mine->is.base.rank);
}

static void timed_imm_wait(struct remo__fabric *fabric, uint64_t timeout_ns) {
    struct fabric *mine = (struct fabric *)fabric;
    mine->due_ns = timeout_ns == REMO_FOREVER ? 0 : sim_timed_now() + timeout_ns;
    if (mine->due_ns != 0)
        sim_timed_at(mine->due_ns, end_imm_wait, mine);
    sim_until(imm_there, mine, "wait for an immediate");
    mine->due_ns = 0;
    mine->woken = false;
}

static void timed_imm_wake(struct remo__fabric *fabric) {
    ((struct fabric *)fabric)->woken = true;
    sim_changed(fabric->rank);
}

const struct remo__fabric_ops remo__fabric_sim = {
    .name = "sim",
    .probe = sim_common_probe,
    .open = timed_open,
    .close = timed_close,
    .add_segment = sim_common_add_segment,
    .map_segment = sim_common_map_segment,
    .describe = sim_common_describe,
    .connect = sim_common_connect,
    .disconnect = timed_disconnect,
    .is_lost = sim_common_is_lost,
    .endpoint_open = timed_endpoint_open,
    .endpoint_close = timed_endpoint_close,
    .post = timed_post,
    .poll = timed_poll,
    .wait = sim_common_wait,
    .imm_poll = timed_imm_poll,
    .imm_wait = timed_imm_wait,
    .imm_wake = timed_imm_wake,
    .take_arrivals = sim_common_take_arrivals,
    .wire = sim_common_wire,
};

/* Every name finds the simulated network. */
const struct remo__fabric_ops *remo__fabric_find(const char *name) {
    (void)name;
    return &remo__fabric_sim;
}
