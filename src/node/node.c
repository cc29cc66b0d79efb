/* node.c - opens and closes the parts of a node: roster, fabric, arena and control streams.
 *
 * Peers can join from remo__node_start on; peer.c handles what they send. The layers above add the data plane
 * and the channels (remo_node_open in channel/open.c). */
#include "node/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/bytes.h"
#include "node/arena.h"
#include "node/peer.h"
#include "node/settings.h"

uint32_t remo_node_rank(const struct remo_node *node) {
    return node ? node->rank : 0;
}

uint32_t remo_node_size(const struct remo_node *node) {
    return node ? node->size : 0;
}

const char *remo_node_fabric(const struct remo_node *node) {
    return node ? node->fabric->ops->name : "";
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

/* Any thread. The control thread handles the loss. */
static void on_loss(void *ctx) {
    struct remo_node *node = ctx;
    atomic_store(&node->has_loss, true);
    pthread_mutex_lock(&node->leave_lock);
    if (!node->is_leaving)
        remo__control_wake(node->control);
    pthread_mutex_unlock(&node->leave_lock);
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
    node->fabric->lost = on_loss;
    node->fabric->lost_ctx = node;
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
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(node->processors.word); i++)
        remo__put_u64(hello, node->processors.word[i]);
    remo__put_u64(hello, node->processors.quota_group);
    remo__put_bytes(hello, blob, blob_bytes);
    return rc;
}

int remo__node_open(const struct remo_config *given, struct remo_node **ret_node) {
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
    node->log = settings.log;
    if (!config->log)
        node->log.ctx = node;
    node->join_timeout_ns = settings.join_timeout_ns;
    node->op_timeout_ns = settings.op_timeout_ns;
    node->threads_max = settings.threads_max;
    node->processors = remo__processors_available();
    node->on_peer = config->on_peer;
    node->on_peer_ctx = config->on_peer_ctx;
    pthread_mutex_init(&node->fabric_lock, NULL);
    pthread_mutex_init(&node->leave_lock, NULL);
    rc = open_roster(node, config, &settings);
    if (rc == 0)
        rc = find_fabric(&settings, &ops);
    if (rc == 0)
        rc = open_arena(node, &settings, ops);
    if (rc == 0)
        rc = open_fabric(node, &settings, ops);
    if (rc != 0) {
        remo__node_free(node);
        return rc;
    }
    *ret_node = node;
    return 0;
}

int remo__node_start(struct remo_node *node, const struct remo__node_hooks *hooks) {
    uint8_t hello[REMO__HELLO_BYTES_MAX];
    struct remo__writer writer = remo__writer_of(hello, sizeof hello);
    node->hooks = *hooks;
    int rc = connect_self(node, &writer);
    if (rc == 0)
        rc = remo__arena_start(node->arena);
    if (rc != 0)
        return rc;
    node->doorbell = node->fabric->doorbell;
    atomic_store(&node->peers[node->rank].state, REMO_PEER_UP);
    atomic_store(&node->peers[node->rank].reported, true);
    atomic_store(&node->peers[node->rank].incarnation, node->roster->incarnation);
    node->peers[node->rank].shares_processors = node->peers[node->rank].shares_quota = true;
    struct remo__control_config control = {.roster = node->roster,
                                           .hello = hello,
                                           .hello_bytes = (size_t)(writer.at - hello),
                                           .log = node->log,
                                           .ctx = node,
                                           .up = remo__peer_on_up,
                                           .frame = remo__peer_on_frame,
                                           .down = remo__peer_on_down,
                                           .ended = remo__peer_on_end,
                                           .woken = remo__peer_on_wake,
                                           .denied = remo__peer_on_denied};
    return remo__control_open(&control, &node->control);
}

void remo__node_joined(struct remo_node *node) {
    remo__arena_freeze(node->arena);
}

void remo__node_leave(struct remo_node *node) {
    pthread_mutex_lock(&node->leave_lock);
    node->is_leaving = true;
    pthread_mutex_unlock(&node->leave_lock);
    if (node->fabric) { /* afterwards peers cut this node off, and operations without a completion fail */
        atomic_store(&node->fabric->is_leaving, true);
        node->fabric->ops->take_arrivals(node->fabric, false);
    }
    if (node->control)
        remo__control_close(node->control);
    node->control = NULL;
}

void remo__node_free(struct remo_node *node) {
    if (node->fabric)
        node->fabric->ops->close(node->fabric);
    remo__arena_close(node->arena);
    remo__roster_close(node->roster);
    pthread_mutex_destroy(&node->fabric_lock);
    pthread_mutex_destroy(&node->leave_lock);
    free(node->peers);
    free(node);
}
