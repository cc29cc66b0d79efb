/* open.c - opens and closes a node: roster, fabric and arena (node/), threads and service (remote/), and the
 * root channel.
 *
 * The root channel exists before peers can join, and until the last hook has returned. */
#include <stdlib.h>

#include "channel/registry.h"
#include "remote/join.h"
#include "remote/service.h"

static struct remo__registry *make_registry(void) {
    struct remo__registry *registry = calloc(1, sizeof *registry);
    if (registry)
        registry->root = calloc(1, sizeof *registry->root);
    if (!registry || !registry->root) {
        free(registry);
        remo__fail(-ENOMEM, "no memory for the channels of a node");
        return NULL;
    }
    pthread_mutex_init(&registry->lock, NULL);
    pthread_mutex_init(&registry->shared_lock, NULL);
    pthread_cond_init(&registry->leaving.changed, NULL);
    registry->slots[0] = registry->root;
    registry->root->joined = true;
    return registry;
}

static void attach_registry(struct remo__registry *registry, struct remo_node *node) {
    registry->node = node;
    registry->root->node = node;
    for (uint32_t peer = 0; peer < node->size; peer++)
        remo_nodeset_add(&registry->root->participants, peer);
    node->channels = registry;
}

static void free_registry(struct remo__registry *registry) {
    free(registry->root);
    pthread_cond_destroy(&registry->leaving.changed);
    pthread_mutex_destroy(&registry->shared_lock);
    pthread_mutex_destroy(&registry->lock);
    free(registry);
}

static void free_channels(struct remo__registry *registry) {
    for (uint32_t slot = 1; slot < REMO__CHANNELS_MAX; slot++)
        if (registry->slots[slot])
            remo__registry_destroy(registry, registry->slots[slot]);
}

/* Leave the job first, so that peers do not detect a failure. No hook runs after that. */
static void close_node(struct remo_node *node) {
    struct remo__registry *registry = remo__registry(node);
    remo__node_leave(node);
    remo__service_stop(registry->service);
    free_channels(registry);
    remo__threads_close(node);
    remo__node_free(node);
    free_registry(registry);
}

/* Start the threads of the node, and wait until all nodes have joined. */
static int start_node(struct remo_node *node) {
    struct remo__registry *registry = remo__registry(node);
    struct remo__node_hooks hooks = {.ctx = registry,
                                     .peer_up = remo__join_peer_up,
                                     .peer_down = remo__join_peer_down,
                                     .frame = remo__join_frame,
                                     .immediate = remo__deliver_immediate};
    int rc = remo__threads_open(node);
    if (rc == 0)
        rc = remo__node_start(node, &hooks);
    if (rc == 0)
        rc = remo__service_start(node, &registry->service);
    if (rc == 0)
        rc = remo__join_wait(node);
    if (rc == 0) {
        remo__node_joined(node);
        remo__threads_choose_spins(node);
    }
    return rc;
}

int remo_node_open(const struct remo_config *config, struct remo_node **ret_node) {
    struct remo_node *node = NULL;
    if (!ret_node)
        return remo__fail(-EINVAL, "ret_node is NULL");
    struct remo__registry *registry = make_registry();
    if (!registry)
        return -ENOMEM;
    int rc = remo__node_open(config, &node);
    if (rc != 0) {
        free_registry(registry);
        return rc;
    }
    attach_registry(registry, node);
    rc = start_node(node);
    if (rc != 0) {
        close_node(node);
        return rc;
    }
    *ret_node = node;
    return 0;
}

void remo_node_close(struct remo_node *node) {
    if (!node)
        return;
    struct remo__registry *registry = remo__registry(node);
    remo__shared_close_all(registry);
    while (registry->root->first_child)
        remo_channel_close(registry->root->first_child);
    remo__leaving_stop(registry);
    close_node(node);
}

struct remo_channel *remo_node_root(struct remo_node *node) {
    return node ? remo__registry(node)->root : NULL;
}
