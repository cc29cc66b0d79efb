/* shared.c - objects that belong to a node: the first user opens one, and remo_node_close closes it.
 * Invariant: an object is in the list before its channel joins, so a second user does not wait for the join
 * of the first, and a callback of the control thread can be that user. After a join that failed the object
 * stays: a participant that was paused connects later. */
#include "channel/registry.h"

static struct remo__shared *find(struct remo__registry *registry, const void *key) {
    struct remo__shared *shared = registry->shared;
    while (shared && shared->key != key)
        shared = shared->next;
    return shared;
}

int remo__shared_get(struct remo_node *node, const void *key,
                     int (*open)(struct remo_node *node, struct remo__shared **ret_shared),
                     struct remo__shared **ret_shared) {
    struct remo__registry *registry = remo__registry(node);
    int rc = 0;
    pthread_mutex_lock(&registry->shared_lock);
    struct remo__shared *shared = find(registry, key);
    bool is_new = !shared;
    if (is_new)
        rc = open(node, &shared);
    if (is_new && rc == 0) {
        shared->key = key;
        if (shared->channel)
            shared->channel->is_shared = true;
        shared->next = registry->shared;
        registry->shared = shared;
    }
    pthread_mutex_unlock(&registry->shared_lock);
    if (is_new && rc == 0 && shared->channel)
        rc = remo_channel_join(shared->channel);
    if (rc == 0)
        *ret_shared = shared;
    return rc;
}

void remo__shared_close_all(struct remo__registry *registry) {
    while (registry->shared) {
        struct remo__shared *shared = registry->shared;
        registry->shared = shared->next;
        shared->close(shared);
    }
}
