/* node.c - opens and closes a node, handles membership changes, and runs the service thread.
 *
 * Only the control thread changes the state of a peer. After a failure it takes the steps of on_down in their
 * order, which docs/architecture.md ("One way to fail") describes. */
#include "node/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/helper.h"
#include "base/mutant.h"
#include "bootstrap/roster/ended.h"
#include "node/arena.h"
#include "remote/op.h"
#include "node/settings.h"
#include "remote/wait.h"

#define SPINS 1000u       /* about 20 us, longer than a message takes on one machine */
#define SPINS_CROWDED 20u /* if a machine has more nodes than processors */
#define IMMS_PER_POLL 64u
#define ENDED_POLL_NS (50 * REMO__NS_PER_MS) /* between reads of the launcher's record of ended nodes */
#define SWEEP_NS REMO__NS_PER_MS             /* between sweeps (op.c) */
#define SWEEP_DOUBLINGS_MAX 3u               /* of that time, while a sweep completes no operation */

uint32_t remo_node_rank(const struct remo_node *node) {
    return node ? node->rank : 0;
}

uint32_t remo_node_size(const struct remo_node *node) {
    return node ? node->size : 0;
}

const char *remo_node_fabric(const struct remo_node *node) {
    return node ? node->fabric->ops->name : "";
}

enum remo_peer_state remo_node_peer(const struct remo_node *node, uint32_t peer) {
    if (!node || peer >= node->size)
        return REMO_PEER_DEAD;
    return (enum remo_peer_state)atomic_load(&node->peers[peer].state);
}

int remo__peer_fail(const struct remo_node *node, uint32_t peer, const char *what) {
    switch (remo_node_peer(node, peer)) {
    case REMO_PEER_LEFT: return remo__fail(-EHOSTDOWN, "cannot %s node %u: it has left the job", what, peer);
    case REMO_PEER_COMING:
        return remo__fail(-EHOSTDOWN, "cannot %s node %u: it has not joined yet", what, peer);
    case REMO_PEER_UP:
        return remo__fail(-EHOSTDOWN,
                          "cannot %s node %u: the connection to it was lost; the node may have failed", what,
                          peer);
    default:
        return remo__fail(-EHOSTDOWN,
                          "cannot %s node %u: it has failed; operations on other nodes are unaffected", what,
                          peer);
    }
}

int remo__peer_timeout(const struct remo_node *node, uint32_t peer, const char *what) {
    return remo__fail(-ETIMEDOUT,
                      "cannot %s node %u within op_timeout_ns (%llu ms): the node has not failed, but its "
                      "machine or network does not respond",
                      what, peer, (unsigned long long)(node->op_timeout_ns / REMO__NS_PER_MS));
}

/* ---- callbacks of the control plane ---- */

/* Record why a peer cannot join, for remo_node_open, and wake it. The first reason remains. */
static void refuse(struct remo_node *node, uint32_t peer, int rc, const char *why) {
    if (!atomic_load(&node->refused)) {
        snprintf(node->join_error, sizeof node->join_error, "node %u: %s", peer, why);
        node->join_rc = rc;
        atomic_store(&node->refused, true);
    }
    remo__log(&node->log, REMO_LOG_ERROR, "node %u cannot join: %s", peer, why);
    remo__wake(node);
}

static void refuse_arena(struct remo_node *node, uint32_t peer, uint64_t arena_bytes) {
    char why[160];
    snprintf(why, sizeof why,
             "it has reserved %llu MiB for its arena, this node %llu; set the same arena_bytes "
             "(REMO_ARENA_BYTES) on every node, or see ulimit -v",
             (unsigned long long)arena_bytes >> 20,
             (unsigned long long)remo__arena_reserved(node->arena) >> 20);
    refuse(node, peer, -EPROTO, why);
}

static void on_up(void *ctx, uint32_t peer, uint32_t incarnation, bool same_machine, const void *hello,
                  size_t hello_bytes) {
    struct remo_node *node = ctx;
    struct remo__reader reader = remo__reader_of(hello, hello_bytes);
    char fabric[16];
    atomic_store(&node->peers[peer].was_connected, true);
    remo__get_string(&reader, fabric, sizeof fabric);
    uint64_t arena_bytes = remo__get_u64(&reader);
    bool arena_is_set = remo__get_u32(&reader) != 0;
    size_t blob_bytes = remo__reader_left(&reader);
    const void *blob = remo__get_span(&reader, blob_bytes);
    if (strcmp(fabric, node->fabric->ops->name) != 0) {
        refuse(node, peer, -EPROTO, "it uses another fabric; start all nodes with the same one");
        return;
    }
    if (remo__arena_agree(node->arena, arena_bytes, arena_is_set) != 0) {
        refuse_arena(node, peer, arena_bytes);
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
        rc = remo__node_send(node, peer, REMO__NODE_FRAME_READY, NULL, 0);
    if (rc != 0)
        refuse(node, peer, -EPROTO, remo_last_error());
}

static void on_denied(void *ctx, uint32_t peer, const char *why) {
    struct remo_node *node = ctx;
    if (!atomic_load(&node->refused))
        refuse(node, peer, -EACCES, why);
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
        return remo__fail(-EPROTO, "it announced an invalid segment");
    pthread_mutex_lock(&node->fabric_lock);
    int rc = node->fabric->ops->map_segment(node->fabric, peer, index, offset, segment_bytes, blob,
                                            blob_bytes, fd);
    pthread_mutex_unlock(&node->fabric_lock);
    if (rc == 0)
        atomic_store(&node->peers[peer].mapped_bytes, end);
    return rc;
}

static void report_peer(struct remo_node *node, uint32_t peer) {
    if (!node->on_peer)
        return;
    atomic_store(&node->reporting, true);
    node->on_peer(node->on_peer_ctx, peer, remo_node_peer(node, peer));
    atomic_store(&node->reporting, false);
}

static void on_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes, int fd) {
    struct remo_node *node = ctx;
    if (type == REMO__NODE_FRAME_SEGMENT) {
        if (map_segment(node, peer, data, bytes, fd) != 0)
            refuse(node, peer, -EPROTO, remo_last_error());
    } else if (type == REMO__NODE_FRAME_READY && atomic_load(&node->peers[peer].mapped_bytes) > 0) {
        atomic_store(&node->peers[peer].state, REMO_PEER_UP);
        remo__log(&node->log, REMO_LOG_INFO, "node %u is up", peer);
        node->hooks.peer_up(node->hooks.ctx, peer);
        report_peer(node, peer);
        atomic_store(&node->peers[peer].reported, true);
    } else if (type >= REMO__NODE_FRAME_CHANNELS) {
        node->hooks.frame(node->hooks.ctx, peer, type, data, bytes);
    }
    if (fd >= 0)
        close(fd);
    remo__wake(node);
}

/* The order is essential. First the state: no new operation starts, and waiters detect the change. Then the
 * cut-off: operations in flight end. Then the hooks: channels and objects are notified. The arena comes last,
 * because another thread may hold its lock. */
static void on_down(void *ctx, uint32_t peer, int reason) {
    struct remo_node *node = ctx;
    atomic_store(&node->peers[peer].state, reason == 0 ? REMO_PEER_LEFT : REMO_PEER_DEAD);
    remo__log(&node->log, reason == 0 ? REMO_LOG_INFO : REMO_LOG_WARNING, "node %u %s", peer,
              reason == 0 ? "has left" : "has failed");
    remo__wake(node);
    pthread_mutex_lock(&node->fabric_lock);
    if (!REMO__MUTANT(node_cut_off))
        node->fabric->ops->disconnect(node->fabric, peer);
    pthread_mutex_unlock(&node->fabric_lock);
    remo__wake(node);
    node->hooks.peer_down(node->hooks.ctx, peer);
    report_peer(node, peer);
    remo__wake(node);
    remo__arena_forget(node->arena, peer);
}

/* ---- the service thread: sleeps until an immediate arrives, or operations need to be driven ---- */

static void *serve(void *ctx) {
    struct remo_node *node = ctx;
    const struct remo__fabric_ops *ops = node->fabric->ops;
    struct remo__imm imms[IMMS_PER_POLL];
    uint32_t quiet = 0, doublings = 0;
    while (!atomic_load(&node->closing)) {
        int count = ops->imm_poll(node->fabric, imms, IMMS_PER_POLL);
        for (int i = 0; i < count; i++)
            node->hooks.immediate(node->hooks.ctx, imms[i].peer, imms[i].value);
        if (count > 0)
            remo__wake(node);
        bool completed = false;
        bool sweeping = atomic_load(&node->is_sweeping) && remo__slots_sweep(node, &quiet, &completed);
        if (count == 0)
            ops->imm_wait(node->fabric, sweeping ? SWEEP_NS << doublings : REMO_FOREVER);
        doublings = sweeping && !completed ? (uint32_t)remo__min(doublings + 1, SWEEP_DOUBLINGS_MAX) : 0;
    }
    return NULL;
}

/* ---- open ---- */

static int open_roster(struct remo_node *node, const struct remo_config *config,
                       const struct remo__settings *settings) {
    struct remo__bootstrap_config bootstrap = {.rank = config->rank,
                                               .size = config->size,
                                               .job = config->job,
                                               .addresses = config->addresses,
                                               .hosts_file = config->hosts_file,
                                               .key_file = config->key_file,
                                               .log = node->log,
                                               .timeout_ns = settings->join_timeout_ns};
    int rc = remo__roster_open(&bootstrap, &node->roster);
    if (rc != 0)
        return rc;
    node->rank = node->roster->rank;
    node->size = node->roster->size;
    node->peers = calloc(node->size, sizeof *node->peers);
    return node->peers ? 0 : remo__fail(-ENOMEM, "no memory for %u peers", node->size);
}

static int find_fabric(const struct remo__settings *settings, const struct remo__fabric_ops **ret_ops) {
    const char *name = settings->fabric;
    const struct remo__fabric_ops *ops = remo__fabric_find(name ? name : "shm");
    if (!ops)
        return remo__fail(
            -EINVAL,
            "there is no fabric called \"%s\"; this build has shm, ofi and verbs (see `remo doctor`)", name);
    *ret_ops = ops;
    return 0;
}

static int open_arena(struct remo_node *node, const struct remo__settings *settings,
                      const struct remo__fabric_ops *ops) {
    struct remo__arena_config arena = {.arena_bytes = settings->arena_bytes,
                                       .segment_bytes = settings->segment_bytes,
                                       .is_set = settings->arena_is_set,
                                       .peer_windows = ops->maps_peers ? node->size - 1 : 0,
                                       .memory_dir = settings->memory_dir};
    return remo__arena_open(node, &arena, &node->arena);
}

static int open_fabric(struct remo_node *node, const struct remo__settings *settings,
                       const struct remo__fabric_ops *ops) {
    struct remo__fabric_config fabric = {.rank = node->rank,
                                         .size = node->size,
                                         .job = node->roster->job,
                                         .provider = settings->provider,
                                         .address = settings->bind_address,
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

/* A node is also its own peer. Write the hello that peers get: the fabric, the arena and the description. */
static int connect_self(struct remo_node *node, struct remo__writer *hello) {
    uint8_t blob[REMO__BLOB_BYTES_MAX];
    size_t blob_bytes = 0;
    int rc = node->fabric->ops->describe(node->fabric, blob, sizeof blob, &blob_bytes);
    if (rc == 0)
        rc = node->fabric->ops->connect(node->fabric, node->rank, blob, blob_bytes);
    remo__put_string(hello, node->fabric->ops->name);
    remo__put_u64(hello, remo__arena_reserved(node->arena));
    remo__put_u32(hello, remo__arena_is_set(node->arena));
    remo__put_bytes(hello, blob, blob_bytes);
    return rc;
}

static int start_service(struct remo_node *node) {
    int rc = remo__helper_start(&node->service, "remo-service", serve, node);
    node->service_started = rc == 0;
    return rc;
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
    atomic_store(&node->peers[node->rank].reported, true);
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
                                           .down = on_down,
                                           .denied = on_denied};
    rc = remo__control_open(&control, &node->control);
    if (rc != 0)
        return rc;
    return start_service(node);
}

/* A wait condition: all nodes have joined. */
static int all_up(void *ctx) {
    struct remo_node *node = ctx;
    if (atomic_load(&node->refused))
        return remo__fail(node->join_rc, "%s", node->join_error);
    int ready = 1;
    for (uint32_t peer = 0; peer < node->size; peer++) {
        uint32_t state = atomic_load(&node->peers[peer].state);
        if (state == REMO_PEER_DEAD)
            return remo__fail(
                -EHOSTDOWN,
                "cannot join: node %u failed while the nodes of the job were joining; start the "
                "job again",
                peer);
        if (state == REMO_PEER_LEFT && atomic_load(&node->peers[peer].mapped_bytes) == 0)
            return remo__fail(-EHOSTDOWN, "cannot join: node %u failed to join; see its own error", peer);
        ready = state == REMO_PEER_COMING || !atomic_load(&node->peers[peer].reported) ? 0 : ready;
    }
    return ready;
}

/* Describe why the first missing node, or the first refused one, is not connected. */
static void describe_missing(struct remo_node *node, char *ret_text, size_t cap) {
    char why[256];
    enum remo__why kind = REMO__WHY_AWAY;
    ret_text[0] = '\0';
    for (uint32_t peer = 0; peer < node->size && kind == REMO__WHY_AWAY; peer++) {
        if (atomic_load(&node->peers[peer].state) != REMO_PEER_COMING)
            continue;
        kind = remo__control_why(node->control, peer, why, sizeof why);
        if (!ret_text[0] || kind == REMO__WHY_REFUSED)
            snprintf(ret_text, cap, "rank %u: %s", peer, why[0] ? why : "nothing was received from it");
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
    describe_missing(node, why, sizeof why);
    return remo__fail(
        -ETIMEDOUT,
        "cannot join: %zu of %u nodes did not join within %llu ms: rank %s (%s); start them with the same "
        "size, job and addresses, or raise join_timeout_ns",
        missing, node->size, (unsigned long long)(timeout_ns / REMO__NS_PER_MS), list, why);
}

static void choose_spins(struct remo_node *node) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    long local_count = 0;
    for (uint32_t peer = 0; peer < node->size; peer++)
        local_count += node->peers[peer].same_machine;
    node->spins = local_count > processors ? SPINS_CROWDED : SPINS;
}

/* A node joins only after it has connected to this node. So it never joins if the launcher has recorded its
 * end, and it was not connected after the record was read. */
static int find_ended(struct remo_node *node) {
    char text[REMO__ENDED_BYTES_MAX];
    const char *at = text, *end = text + remo__ended_read(node->roster, text);
    uint32_t peer, status;
    while (remo__ended_next(&at, end, &peer, &status)) {
        if (peer < node->size && peer != node->rank && !atomic_load(&node->peers[peer].was_connected))
            return remo__fail(-EHOSTDOWN,
                              "cannot join: node %u ended with status %u before it joined; see its own "
                              "error, then start the job again",
                              peer, status);
    }
    return 0;
}

/* Wait until all nodes have joined. Without the launcher's folder there is no record to poll. */
static int wait_all_up(struct remo_node *node, uint64_t deadline) {
    int rc;
    do {
        uint64_t poll_at = node->roster->job_dir ? remo__deadline(ENDED_POLL_NS) : REMO_FOREVER;
        rc = remo__wait(node, all_up, node, remo__min(poll_at, deadline));
        int ended = rc == -ETIMEDOUT ? find_ended(node) : 0;
        if (ended != 0)
            return ended;
    } while (rc == -ETIMEDOUT && remo__remaining_ns(deadline) > 0);
    return rc;
}

static int join(struct remo_node *node, uint64_t timeout_ns) {
    int rc = wait_all_up(node, remo__deadline(timeout_ns));
    if (rc == -ETIMEDOUT)
        return fail_missing(node, timeout_ns);
    if (rc == 0) {
        remo__arena_freeze(node->arena);
        choose_spins(node);
    }
    return rc;
}

int remo__node_open(const struct remo_config *given, const struct remo__node_hooks *hooks,
                    struct remo_node **ret_node) {
    static const struct remo_config all_default;
    const struct remo_config *config = given ? given : &all_default;
    const struct remo__fabric_ops *ops = NULL;
    struct remo__settings settings;
    int rc = remo__settings_read(config, &settings);
    if (rc != 0)
        return rc;
    struct remo_node *node = calloc(1, sizeof *node);
    if (!node)
        return remo__fail(-ENOMEM, "no memory for a node");
    if (getrandom(&node->id, sizeof node->id, 0) != sizeof node->id || node->id == 0)
        node->id = remo__now_ns() | 1;
    node->hooks = *hooks;
    node->log = settings.log;
    if (!config->log)
        node->log.ctx = node;
    node->op_timeout_ns = settings.op_timeout_ns;
    node->threads_max = settings.threads_max;
    node->on_peer = config->on_peer;
    node->on_peer_ctx = config->on_peer_ctx;
    node->spins = SPINS_CROWDED;
    pthread_mutex_init(&node->threads_lock, NULL);
    pthread_mutex_init(&node->fabric_lock, NULL);
    rc = open_roster(node, config, &settings);
    if (rc == 0)
        rc = find_fabric(&settings, &ops);
    if (rc == 0)
        rc = open_arena(node, &settings, ops);
    if (rc == 0)
        rc = open_fabric(node, &settings, ops);
    if (rc == 0)
        rc = open_control(node);
    if (rc == 0)
        rc = join(node, settings.join_timeout_ns);
    if (rc != 0) {
        remo__node_close(node);
        return rc;
    }
    *ret_node = node;
    return 0;
}

/* ---- close: leave the job first, so that peers do not detect a failure ---- */

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
