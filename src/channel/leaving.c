/* leaving.c - completes the operations of a node before its closed endpoints leave their peers.
 * If they do not complete in time, a helper thread continues, and sends the final LEAVE.
 * Invariant: a final LEAVE follows a fence that began after the close (docs/internals/join.md). */
#include "base/helper.h"
#include "channel/registry.h"
#include "remote/fence.h"

#define RETRY_NS REMO__NS_PER_MS /* between fences: one that cannot be posted fails immediately */

/* A lost write is no obstacle, because it is no longer in flight; a later fence returns the loss. */
bool remo__leaving_fence(struct remo_node *node) {
    return remo__fence_leave(node) == 0;
}

/* Send the final LEAVE of the channels whose operations `fence` has completed. The lock is held. */
static void leave_finally(struct remo__registry *registry, uint64_t fence) {
    for (uint32_t slot = 1; slot < REMO__CHANNELS_MAX; slot++) {
        struct remo_channel *channel = registry->slots[slot];
        if (!channel || channel->leaving_fence == 0 || channel->leaving_fence > fence)
            continue;
        registry->leaving.count--;
        remo__join_leave_finally(channel);
    }
}

static int is_stopped(void *ctx) {
    const struct remo__leaving *leaving = ctx;
    return atomic_load(&leaving->stops);
}

static void *help(void *ctx) {
    struct remo__registry *registry = ctx;
    struct remo__leaving *leaving = &registry->leaving;
    pthread_mutex_lock(&registry->lock);
    while (!atomic_load(&leaving->stops)) {
        if (leaving->count == 0) {
            pthread_cond_wait(&leaving->changed, &registry->lock);
            continue;
        }
        uint64_t fence = ++leaving->fences;
        pthread_mutex_unlock(&registry->lock);
        bool is_complete = remo__leaving_fence(registry->node);
        if (!is_complete)
            (void)remo__wait(registry->node, is_stopped, leaving, remo__deadline(RETRY_NS));
        pthread_mutex_lock(&registry->lock);
        if (is_complete)
            leave_finally(registry, fence);
    }
    pthread_mutex_unlock(&registry->lock);
    return NULL;
}

void remo__leaving_add(struct remo__registry *registry, struct remo_channel *channel) {
    struct remo__leaving *leaving = &registry->leaving;
    channel->leaving_fence = leaving->fences + 1;
    leaving->count++;
    if (!leaving->has_helper)
        leaving->has_helper = remo__helper_start(&leaving->helper, "remo-leave", help, registry) == 0;
    if (!leaving->has_helper)
        remo__log(&registry->node->log, REMO_LOG_ERROR,
                  "peers wait for the operations of channel %s until this node closes: %s", channel->name,
                  remo_last_error());
    pthread_cond_broadcast(&leaving->changed);
}

void remo__leaving_stop(struct remo__registry *registry) {
    struct remo__leaving *leaving = &registry->leaving;
    pthread_mutex_lock(&registry->lock);
    atomic_store(&leaving->stops, true);
    pthread_cond_broadcast(&leaving->changed);
    pthread_mutex_unlock(&registry->lock);
    remo__wake(registry->node); /* the helper may pause between two fences */
    if (leaving->has_helper)
        pthread_join(leaving->helper, NULL);
}
