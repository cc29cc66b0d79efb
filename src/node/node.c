/* node.c - a node's life: joining the job, its peers' comings and goings, its service thread, leaving. */
#include "node/node.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/mutant.h"
#include "node/arena.h"
#include "node/op.h"
#include "node/wait.h"

#define ARENA_BYTES (64ull << 30)
#define SEGMENT_BYTES (16ull << 20)
#define JOIN_TIMEOUT_NS (30 * REMO__NS_PER_S)
#define OP_TIMEOUT_NS (10 * REMO__NS_PER_S)
#define THREADS_MAX 64u
#define SPINS 1000u       /* about 20 us: more than a message on one machine takes */
#define SPINS_CROWDED 20u /* more nodes than processors */
#define IMMS_PER_POLL 64u
#define SWEEP_NS REMO__NS_PER_MS /* between looks at operations that threads have left behind */

uint32_t remo_node_rank(const struct remo_node *node) {
    return node->rank;
}

uint32_t remo_node_size(const struct remo_node *node) {
    return node->size;
}

const char *remo_node_fabric(const struct remo_node *node) {
    return node->fabric->ops->name;
}

enum remo_peer_state remo_node_peer(const struct remo_node *node, uint32_t peer) {
    if (peer >= node->size)
        return REMO_PEER_DEAD;
    return (enum remo_peer_state)atomic_load(&node->peers[peer].state);
}

int remo__peer_fail(const struct remo_node *node, uint32_t peer, const char *what) {
    switch (remo_node_peer(node, peer)) {
    case REMO_PEER_LEFT:
        return remo__fail(-EHOSTDOWN, "cannot %s node %u: it has closed and said goodbye", what, peer);
    case REMO_PEER_COMING:
        return remo__fail(-EHOSTDOWN, "cannot %s node %u: it has not joined yet", what, peer);
    case REMO_PEER_UP:
        return remo__fail(-EHOSTDOWN,
                          "cannot %s node %u: the connection to it is lost, and it may have died just now",
                          what, peer);
    default:
        return remo__fail(-EHOSTDOWN, "cannot %s node %u: it has died; nodes that did not depend on it go on",
                          what, peer);
    }
}

int remo__peer_silent(const struct remo_node *node, uint32_t peer, const char *what) {
    return remo__fail(-ETIMEDOUT,
                      "cannot %s node %u within op_timeout_ns (%llu ms): it lives, but its machine or "
                      "network does not answer",
                      what, peer, (unsigned long long)(node->op_timeout_ns / REMO__NS_PER_MS));
}

/* ---- what comes over the control stream ---- */

static void refuse(struct remo_node *node, uint32_t peer, const char *why) {
    if (!atomic_load(&node->refused)) {
        snprintf(node->join_error, sizeof node->join_error, "node %u: %s", peer, why);
        atomic_store(&node->refused, true);
    }
    remo__log(&node->log, REMO_LOG_ERROR, "node %u cannot take part: %s", peer, why);
    remo__wake(node);
}

static void on_up(void *ctx, uint32_t peer, uint32_t incarnation, bool same_machine, const void *hello,
                  size_t hello_bytes) {
    struct remo_node *node = ctx;
    struct remo__reader reader = remo__reader_of(hello, hello_bytes);
    char fabric[16];
    remo__get_string(&reader, fabric, sizeof fabric);
    uint64_t arena_bytes = remo__get_u64(&reader);
    size_t blob_bytes = remo__reader_left(&reader);
    const void *blob = remo__get_span(&reader, blob_bytes);
    if (strcmp(fabric, node->fabric->ops->name) != 0) {
        refuse(node, peer, "it uses another fabric; start all nodes with the same one");
        return;
    }
    if (arena_bytes != remo__arena_reserved(node->arena)) {
        refuse(node, peer, "its arena_bytes differ; use the same on every node");
        return;
    }
    atomic_store(&node->peers[peer].incarnation, incarnation);
    node->peers[peer].same_machine = same_machine;
    atomic_store(&node->peers[peer].mapped_bytes, 0);
    pthread_mutex_lock(&node->fabric_lock);
    int rc = node->fabric->ops->connect(node->fabric, peer, blob, blob_bytes);
    pthread_mutex_unlock(&node->fabric_lock);
    if (rc == 0)
        rc = remo__arena_announce(node->arena, peer);
    if (rc == 0)
        rc = remo__node_send(node, peer, REMO__FRAME_READY, NULL, 0);
    if (rc != 0)
        refuse(node, peer, remo_last_error());
}

static int map_segment(struct remo_node *node, uint32_t peer, const void *data, size_t bytes, int fd) {
    struct remo__reader reader = remo__reader_of(data, bytes);
    uint32_t index = remo__get_u32(&reader);
    uint64_t offset = remo__get_u64(&reader), segment_bytes = remo__get_u64(&reader);
    uint32_t blob_bytes = remo__get_u32(&reader);
    const void *blob = remo__get_span(&reader, blob_bytes);
    uint64_t reserved = remo__arena_reserved(node->arena), end;
    if (!remo__reader_complete(&reader) || index >= REMO__SEGMENTS_MAX || blob_bytes > REMO__BLOB_BYTES_MAX
        || __builtin_add_overflow(offset, segment_bytes, &end) || end > reserved
        || offset != atomic_load(&node->peers[peer].mapped_bytes))
        return remo__fail(-EPROTO, "it announced a segment that makes no sense");
    pthread_mutex_lock(&node->fabric_lock);
    int rc = node->fabric->ops->map_segment(node->fabric, peer, index, offset, segment_bytes, blob,
                                            blob_bytes, fd);
    pthread_mutex_unlock(&node->fabric_lock);
    if (rc == 0)
        atomic_store(&node->peers[peer].mapped_bytes, end);
    return rc;
}

static void on_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes, int fd) {
    struct remo_node *node = ctx;
    if (type == REMO__FRAME_SEGMENT) {
        if (map_segment(node, peer, data, bytes, fd) != 0)
            refuse(node, peer, remo_last_error());
    } else if (type == REMO__FRAME_READY && atomic_load(&node->peers[peer].mapped_bytes) > 0) {
        atomic_store(&node->peers[peer].state, REMO_PEER_UP);
        remo__log(&node->log, REMO_LOG_INFO, "node %u is up", peer);
        node->hooks.peer_up(node->hooks.ctx, peer);
    } else if (type >= REMO__FRAME_CHANNELS) {
        node->hooks.frame(node->hooks.ctx, peer, type, data, bytes);
    }
    if (fd >= 0)
        close(fd);
    remo__wake(node);
}

/* The order matters: first nobody starts anything with it any more and waiters see it, then what is in flight
 * ends, then objects hear of it. What may wait for a lock comes late: somebody may be allocating memory. */
static void on_down(void *ctx, uint32_t peer, int reason) {
    struct remo_node *node = ctx;
    atomic_store(&node->peers[peer].state, reason == 0 ? REMO_PEER_LEFT : REMO_PEER_DEAD);
    remo__log(&node->log, reason == 0 ? REMO_LOG_INFO : REMO_LOG_WARNING, "node %u %s", peer,
              reason == 0 ? "has left" : "has died");
    remo__wake(node);
    pthread_mutex_lock(&node->fabric_lock);
    if (!REMO__MUTANT(node_cut_off))
        node->fabric->ops->disconnect(node->fabric, peer);
    pthread_mutex_unlock(&node->fabric_lock);
    remo__wake(node);
    node->hooks.peer_down(node->hooks.ctx, peer);
    remo__wake(node);
    remo__arena_forget(node->arena, peer);
}

/* ---- the service thread: sleeps until an immediate arrives, or operations are left to it ---- */

static void *serve(void *ctx) {
    struct remo_node *node = ctx;
    const struct remo__fabric_ops *ops = node->fabric->ops;
    struct remo__imm imms[IMMS_PER_POLL];
    uint32_t quiet = 0;
    while (!atomic_load(&node->closing)) {
        int count = ops->imm_poll(node->fabric, imms, IMMS_PER_POLL);
        for (int i = 0; i < count; i++)
            node->hooks.immediate(node->hooks.ctx, imms[i].peer, imms[i].value);
        if (count > 0)
            remo__wake(node);
        bool sweeping = atomic_load(&node->left_behind) && remo__slots_sweep(node, &quiet);
        if (count == 0)
            ops->imm_wait(node->fabric, sweeping ? SWEEP_NS : REMO_FOREVER);
    }
    return NULL;
}

/* ---- open ---- */

static const char *or_env(const char *said, const char *variable) {
    const char *value = said ? said : getenv(variable);
    return value && *value ? value : NULL;
}

static uint64_t or_default(uint64_t said, uint64_t otherwise) {
    return said ? said : otherwise;
}

static int open_roster(struct remo_node *node, const struct remo_config *config) {
    struct remo__bootstrap_config bootstrap = {.rank = config->rank,
                                               .size = config->size,
                                               .job = config->job,
                                               .addresses = config->addresses,
                                               .hosts_file = config->hosts_file,
                                               .key_file = config->key_file,
                                               .log = node->log,
                                               .timeout_ns =
                                                   or_default(config->join_timeout_ns, JOIN_TIMEOUT_NS)};
    int rc = remo__roster_open(&bootstrap, &node->roster);
    if (rc != 0)
        return rc;
    node->rank = node->roster->rank;
    node->size = node->roster->size;
    node->peers = calloc(node->size, sizeof *node->peers);
    return node->peers ? 0 : remo__fail(-ENOMEM, "no memory for %u peers", node->size);
}

static int open_fabric(struct remo_node *node, const struct remo_config *config) {
    const char *name = or_env(config->fabric, "REMO_FABRIC");
    const struct remo__fabric_ops *ops = remo__fabric_find(name ? name : "shm");
    if (!ops)
        return remo__fail(
            -EINVAL,
            "there is no fabric called \"%s\"; this build has shm, ofi and verbs (see `remo doctor`)", name);
    struct remo__fabric_config fabric = {.rank = node->rank,
                                         .size = node->size,
                                         .job = node->roster->job,
                                         .provider = or_env(config->provider, "REMO_PROVIDER"),
                                         .address = or_env(config->bind_address, "REMO_BIND"),
                                         .arena = remo__arena_base(node->arena),
                                         .arena_bytes = remo__arena_reserved(node->arena),
                                         .endpoints_max = node->threads_max,
                                         .log = node->log};
    int rc = ops->open(&fabric, &node->fabric);
    if (rc != 0)
        return rc;
    node->mapped = node->fabric->caps.mapped;
    return 0;
}

/* Our own fabric is one more peer. */
static int connect_self(struct remo_node *node, struct remo__writer *hello) {
    uint8_t blob[REMO__BLOB_BYTES_MAX];
    size_t blob_bytes = 0;
    int rc = node->fabric->ops->describe(node->fabric, blob, sizeof blob, &blob_bytes);
    if (rc == 0)
        rc = node->fabric->ops->connect(node->fabric, node->rank, blob, blob_bytes);
    remo__put_string(hello, node->fabric->ops->name);
    remo__put_u64(hello, remo__arena_reserved(node->arena));
    remo__put_bytes(hello, blob, blob_bytes);
    return rc;
}

/* Signals are for the program's own threads. */
static int start_service(struct remo_node *node) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&node->service, NULL, serve, node);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return remo__fail(-EAGAIN,
                          "cannot start the service thread (%s); raise the limit that `ulimit -u` shows",
                          strerror(rc));
    node->service_started = true;
    pthread_setname_np(node->service, "remo-service");
    return 0;
}

static int open_control(struct remo_node *node) {
    uint8_t hello[REMO__HELLO_BYTES_MAX];
    struct remo__writer writer = remo__writer_of(hello, sizeof hello);
    int rc = connect_self(node, &writer);
    if (rc == 0)
        rc = remo__arena_start(node->arena);
    if (rc != 0)
        return rc;
    node->doorbell = node->fabric->doorbell;
    atomic_store(&node->peers[node->rank].state, REMO_PEER_UP);
    atomic_store(&node->peers[node->rank].incarnation, node->roster->incarnation);
    node->peers[node->rank].same_machine = true;
    node->hooks.attach(node->hooks.ctx, node);
    struct remo__control_config control = {.roster = node->roster,
                                           .hello = hello,
                                           .hello_bytes = (size_t)(writer.at - hello),
                                           .log = node->log,
                                           .ctx = node,
                                           .up = on_up,
                                           .frame = on_frame,
                                           .down = on_down};
    rc = remo__control_open(&control, &node->control);
    if (rc != 0)
        return rc;
    return start_service(node);
}

static int all_up(void *ctx) {
    struct remo_node *node = ctx;
    if (atomic_load(&node->refused))
        return remo__fail(-EPROTO, "%s", node->join_error);
    int ready = 1;
    for (uint32_t peer = 0; peer < node->size; peer++) {
        uint32_t state = atomic_load(&node->peers[peer].state);
        if (state == REMO_PEER_DEAD)
            return remo__fail(-EHOSTDOWN,
                              "node %u died while the nodes of the job were joining; start the job again",
                              peer);
        if (state == REMO_PEER_LEFT && atomic_load(&node->peers[peer].mapped_bytes) == 0)
            return remo__fail(-EHOSTDOWN, "node %u gave up joining; its own error says why", peer);
        ready = state == REMO_PEER_COMING ? 0 : ready;
    }
    return ready;
}

/* Why the first of those who never came is not there; but if one was refused, why that one was. */
static void why_missing(struct remo_node *node, char *ret_text, size_t cap) {
    char why[256];
    enum remo__why kind = REMO__WHY_AWAY;
    ret_text[0] = '\0';
    for (uint32_t peer = 0; peer < node->size && kind == REMO__WHY_AWAY; peer++) {
        if (atomic_load(&node->peers[peer].state) != REMO_PEER_COMING)
            continue;
        kind = remo__control_why(node->control, peer, why, sizeof why);
        if (!ret_text[0] || kind == REMO__WHY_REFUSED)
            snprintf(ret_text, cap, "rank %u: %s", peer, why[0] ? why : "nothing was heard of it");
    }
}

static int fail_missing(struct remo_node *node, uint64_t timeout_ns) {
    char list[128] = "", why[288];
    size_t used = 0, missing = 0;
    for (uint32_t peer = 0; peer < node->size; peer++) {
        if (atomic_load(&node->peers[peer].state) != REMO_PEER_COMING)
            continue;
        missing++;
        if (used < sizeof list - 8)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", used ? ", " : "", peer);
    }
    why_missing(node, why, sizeof why);
    return remo__fail(
        -ETIMEDOUT,
        "%zu of %u nodes did not come within %llu ms: rank %s (%s); start them with the same size, job "
        "and addresses, or raise join_timeout_ns",
        missing, node->size, (unsigned long long)(timeout_ns / REMO__NS_PER_MS), list, why);
}

static void choose_spins(struct remo_node *node) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    long here = 0;
    for (uint32_t peer = 0; peer < node->size; peer++)
        here += node->peers[peer].same_machine;
    node->spins = here > processors ? SPINS_CROWDED : SPINS;
}

static int join(struct remo_node *node, uint64_t timeout_ns) {
    int rc = remo__wait(node, all_up, node, remo__deadline(timeout_ns));
    if (rc == -ETIMEDOUT)
        return fail_missing(node, timeout_ns);
    if (rc == 0)
        choose_spins(node);
    return rc;
}

static int check_config(const struct remo_config *config) {
    if (config->threads_max > REMO__THREADS_MAX)
        return remo__fail(-EINVAL, "threads_max is %u, at most %u are allowed", config->threads_max,
                          REMO__THREADS_MAX);
    if (config->arena_bytes > 1ull << REMO_ADDR_OFFSET_BITS)
        return remo__fail(-EINVAL, "arena_bytes is %llu, at most %llu fit an address",
                          (unsigned long long)config->arena_bytes, 1ull << REMO_ADDR_OFFSET_BITS);
    return 0;
}

int remo__node_open(const struct remo_config *given, const struct remo__node_hooks *hooks,
                    struct remo_node **ret_node) {
    static const struct remo_config all_default;
    const struct remo_config *config = given ? given : &all_default;
    int rc = check_config(config);
    if (rc != 0)
        return rc;
    struct remo_node *node = calloc(1, sizeof *node);
    if (!node)
        return remo__fail(-ENOMEM, "no memory for a node");
    if (getrandom(&node->id, sizeof node->id, 0) != sizeof node->id || node->id == 0)
        node->id = remo__now_ns() | 1;
    node->hooks = *hooks;
    node->log = (struct remo__log){.fn = config->log,
                                   .ctx = config->log_ctx,
                                   .level = config->log_level ? config->log_level : REMO_LOG_WARNING};
    node->op_timeout_ns = or_default(config->op_timeout_ns, OP_TIMEOUT_NS);
    node->threads_max = config->threads_max ? config->threads_max : THREADS_MAX;
    node->spins = SPINS_CROWDED;
    pthread_mutex_init(&node->threads_lock, NULL);
    pthread_mutex_init(&node->fabric_lock, NULL);
    rc = open_roster(node, config);
    if (rc == 0)
        rc = remo__arena_open(node, or_default(config->arena_bytes, ARENA_BYTES),
                              or_default(config->segment_bytes, SEGMENT_BYTES),
                              or_env(config->memory_dir, "REMO_MEMORY_DIR"), &node->arena);
    if (rc == 0)
        rc = open_fabric(node, config);
    if (rc == 0)
        rc = open_control(node);
    if (rc == 0)
        rc = join(node, or_default(config->join_timeout_ns, JOIN_TIMEOUT_NS));
    if (rc != 0) {
        remo__node_close(node);
        return rc;
    }
    *ret_node = node;
    return 0;
}

/* ---- close: goodbye first, so that nobody takes our silence for death ---- */

void remo__node_close_helpers(struct remo_node *node) {
    if (node->control)
        remo__control_close(node->control);
    node->control = NULL;
    atomic_store(&node->closing, true);
    if (node->service_started) {
        node->fabric->ops->imm_wake(node->fabric);
        pthread_join(node->service, NULL);
    }
    node->service_started = false;
}

void remo__node_close(struct remo_node *node) {
    remo__node_close_helpers(node);
    remo__threads_close(node);
    if (node->fabric)
        node->fabric->ops->close(node->fabric);
    remo__arena_close(node->arena);
    remo__roster_close(node->roster);
    pthread_mutex_destroy(&node->threads_lock);
    pthread_mutex_destroy(&node->fabric_lock);
    free(node->peers);
    free(node);
}
