/* channel.c - open and close endpoints, add memory, wait for participants.
 * Invariant: the registry's lock protects the tree of channels. No wait and no callback runs under it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel/registry.h"
#include "node/arena.h"
#include "remote/stats.h"

#define NAME_PART_BYTES_MAX 63u

/* ---- open ---- */

static int check_name(const char *what, const char *name, size_t most) {
    size_t length = name ? strlen(name) : 0;
    if (length == 0)
        return remo__fail(-EINVAL, "the name of a %s is empty; give 1 to %zu characters of [A-Za-z0-9_-]",
                          what, most);
    if (length > most)
        return remo__fail(-ENAMETOOLONG,
                          "the name \"%.20s...\" of a %s has %zu characters, at most %zu are allowed", name,
                          what, length, most);
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '_' && *at != '-')
            return remo__fail(-EINVAL, "the name \"%s\" of a %s has a character other than [A-Za-z0-9_-]",
                              name, what);
    return 0;
}

static int check_participants(const struct remo_channel *parent, const struct remo_nodeset *set,
                              const char *name) {
    const struct remo_node *node = parent->node;
    uint32_t beyond = remo__nodeset_next(set, node->size);
    if (beyond < REMO_NODES_MAX)
        return remo__fail(-EINVAL, "channel %s: participant %u is not a node of this job of %u nodes", name,
                          beyond, node->size);
    if (!remo_nodeset_has(set, node->rank))
        return remo__fail(
            -EINVAL,
            "channel %s: this node (%u) is not among the participants; do not open it here, or add it", name,
            node->rank);
    return 0;
}

static int make(struct remo_channel *parent, const char *name, const char *type,
                const struct remo_channel_options *options, struct remo_channel **ret_channel) {
    struct remo_channel *channel = calloc(1, sizeof *channel);
    if (channel)
        channel->peers = calloc(parent->node->size, sizeof *channel->peers);
    if (!channel || !channel->peers) {
        free(channel);
        return remo__fail(-ENOMEM, "no memory for channel %s", name);
    }
    channel->node = parent->node;
    channel->parent = parent;
    if (options)
        channel->options = *options;
    channel->participants = remo_nodeset_empty(&channel->options.participants)
                                ? parent->participants
                                : channel->options.participants;
    snprintf(channel->type, sizeof channel->type, "%s", type);
    int length = snprintf(channel->name, sizeof channel->name, "%s%s%s", parent->name,
                          parent->parent ? "/" : "", name);
    int rc = check_participants(parent, &channel->participants, channel->name);
    if (length >= (int)sizeof channel->name)
        rc = remo__fail(-ENAMETOOLONG,
                        "the full name of channel %s below %s has %d characters, at most %u are allowed",
                        name, parent->name, length, REMO_CHANNEL_NAME_BYTES_MAX);
    if (rc != 0) {
        free(channel->peers);
        free(channel);
        return rc;
    }
    *ret_channel = channel;
    return 0;
}

static int fail_exists(const struct remo_channel *there, const char *type) {
    if (strcmp(there->type, type) != 0)
        return remo__fail(
            -EEXIST,
            "channel %s is open on this node as a %s and cannot be opened as a %s too; choose another name",
            there->name, there->type, type);
    return remo__fail(-EEXIST, "channel %s is open on this node already; use that one, or close it first",
                      there->name);
}

int remo_channel_open(struct remo_channel *parent, const char *name, const char *type,
                      const struct remo_channel_options *options, struct remo_channel **ret_channel) {
    if (!parent || !ret_channel)
        return remo__fail(-EINVAL, "remo_channel_open needs a parent and a place for the channel");
    int rc = check_name("channel", name, NAME_PART_BYTES_MAX);
    if (rc == 0 && (!type || !*type || strlen(type) > REMO__TYPE_BYTES_MAX))
        rc = remo__fail(-EINVAL, "channel %s: a type has 1 to %u characters", name, REMO__TYPE_BYTES_MAX);
    struct remo_channel *channel = NULL;
    if (rc == 0)
        rc = make(parent, name, type, options, &channel);
    if (rc != 0)
        return rc;
    struct remo__registry *registry = remo__registry(parent->node);
    pthread_mutex_lock(&registry->lock);
    const struct remo_channel *there = remo__registry_by_name(registry, channel->name);
    rc = there ? fail_exists(there, type) : remo__registry_insert(registry, channel);
    if (rc == 0) {
        channel->next_sibling = parent->first_child;
        parent->first_child = channel;
    }
    pthread_mutex_unlock(&registry->lock);
    if (rc != 0) {
        free(channel->peers);
        free(channel);
        return rc;
    }
    *ret_channel = channel;
    return 0;
}

/* ---- memory ---- */

static int alloc_offsets(struct remo_channel *channel, struct remo__memory *memory) {
    memory->offsets = malloc(channel->node->size * sizeof *memory->offsets);
    if (!memory->offsets)
        return remo__fail(-ENOMEM, "no memory for channel %s.%s", channel->name, memory->name);
    for (uint32_t peer = 0; peer < channel->node->size; peer++)
        atomic_init(&memory->offsets[peer], REMO__NO_OFFSET);
    return 0;
}

int remo_channel_add_memory(struct remo_channel *channel, const char *name, uint64_t own_bytes,
                            uint64_t expected_bytes, const struct remo_nodeset *providers,
                            uint32_t *ret_memory) {
    if (!channel || !ret_memory)
        return remo__fail(-EINVAL,
                          "remo_channel_add_memory needs a channel and a place for the memory's index");
    if (channel->joined || channel->memory_count == REMO_CHANNEL_MEMORIES_MAX)
        return remo__fail(-EINVAL, "channel %s: memory is added before join, at most %u pieces",
                          channel->name, REMO_CHANNEL_MEMORIES_MAX);
    int rc = check_name("memory", name, REMO__MEMORY_NAME_BYTES_MAX);
    if (rc != 0)
        return rc;
    struct remo__memory *memory = &channel->memories[channel->memory_count];
    *memory = (struct remo__memory){.channel = channel,
                                    .own_bytes = own_bytes,
                                    .expected_bytes = expected_bytes,
                                    .own_offset = REMO__NO_OFFSET};
    snprintf(memory->name, sizeof memory->name, "%s", name);
    memory->providers = providers && !remo_nodeset_empty(providers) ? *providers : channel->participants;
    rc = alloc_offsets(channel, memory);
    if (rc == 0 && own_bytes > 0)
        rc = remo__arena_alloc(channel->node->arena, own_bytes, &memory->own_offset);
    if (rc != 0) {
        free(memory->offsets);
        return remo__fail_more(rc, "memory %s of channel %s", name, channel->name);
    }
    if (own_bytes > 0) {
        memory->own = remo__arena_base(channel->node->arena) + memory->own_offset;
        atomic_store(&memory->offsets[channel->node->rank], memory->own_offset);
    }
    *ret_memory = channel->memory_count++;
    return 0;
}

int remo__memory_extend(struct remo__memory *memory, uint64_t bytes, uint64_t *ret_offset) {
    uint64_t offset = 0;
    if (!memory->extensions)
        memory->extensions = calloc(REMO__MEMORY_EXTENSIONS_MAX, sizeof *memory->extensions);
    if (!memory->extensions || memory->extensions_count == REMO__MEMORY_EXTENSIONS_MAX)
        return remo__fail(-ENOMEM, "no memory to extend memory %s of channel %s", memory->name,
                          memory->channel->name);
    int rc = remo__arena_alloc(memory->channel->node->arena, bytes, &offset);
    if (rc != 0)
        return remo__fail_more(rc, "extending memory %s of channel %s", memory->name, memory->channel->name);
    memory->extensions[memory->extensions_count++] =
        (struct remo__memory_extension){.offset = offset, .bytes = bytes};
    *ret_offset = offset - memory->own_offset;
    return 0;
}

/* Return the first participant that has not answered our JOIN, or REMO_NODES_MAX. */
static uint32_t unanswered(const struct remo_channel *channel) {
    for (uint32_t peer = 0; peer < channel->node->size; peer++)
        if (atomic_load(&channel->peers[peer].awaited) && remo__peer_is_up(channel->node, peer))
            return peer;
    return REMO_NODES_MAX;
}

static int all_answered(void *ctx) {
    return unanswered(ctx) == REMO_NODES_MAX;
}

/* A child of an object that has not joined does not wait: the join of the object does. A callback on the
 * control thread cannot wait for frames, which that thread receives. */
static bool waits_for_answers(const struct remo_channel *channel, struct remo__registry *registry) {
    for (const struct remo_channel *above = channel->parent; above; above = above->parent)
        if (!above->joined)
            return false;
    bool is_in_callback = atomic_load(&registry->handling) || atomic_load(&channel->node->reporting);
    return !is_in_callback || !pthread_equal(atomic_load(&registry->control_thread), pthread_self());
}

/* After a mismatch no memory of the tree is reachable, not even the local one: two nodes could otherwise each
 * use their own. */
static void forget_mismatched(struct remo_channel *channel) {
    for (uint32_t i = 0; i < channel->memory_count && atomic_load(&channel->mismatched); i++)
        for (uint32_t node = 0; node < channel->node->size; node++)
            atomic_store(&channel->memories[i].offsets[node], REMO__NO_OFFSET);
    for (struct remo_channel *child = channel->first_child; child; child = child->next_sibling)
        forget_mismatched(child);
}

static int wait_for_answers(struct remo_channel *channel, struct remo__registry *registry) {
    int rc = remo__wait(channel->node, all_answered, channel, remo__deadline(channel->node->op_timeout_ns));
    pthread_mutex_lock(&registry->lock);
    forget_mismatched(channel);
    pthread_mutex_unlock(&registry->lock);
    if (rc == -ETIMEDOUT)
        return remo__fail(rc,
                          "node %u did not compare channel %s with its own within %llu ms; it is stopped or "
                          "overloaded: continue it, or increase op_timeout_ns",
                          unanswered(channel) % REMO_NODES_MAX, channel->name,
                          (unsigned long long)(channel->node->op_timeout_ns / REMO__NS_PER_MS));
    return rc;
}

int remo_channel_join(struct remo_channel *channel) {
    if (!channel || channel->slot == 0)
        return remo__fail(-EINVAL, "the root channel is joined already; give a channel of remo_channel_open");
    struct remo__registry *registry = remo__registry(channel->node);
    int rc = 0;
    pthread_mutex_lock(&registry->lock);
    channel->joined = true;
    struct remo__channel_peer *self = &channel->peers[channel->node->rank];
    atomic_store(&self->id, channel->id);
    atomic_store(&self->state, REMO_CHANNEL_CONNECTED);
    for (uint32_t peer = 0; peer < channel->node->size && rc == 0; peer++)
        if (remo_nodeset_has(&channel->participants, peer) && peer != channel->node->rank) {
            atomic_store(&channel->peers[peer].awaited, remo__peer_is_up(channel->node, peer));
            rc = remo__join_send(channel, peer, 0);
        }
    if (rc == 0)
        rc = remo__join_answer_early(channel);
    bool waits = waits_for_answers(channel, registry);
    pthread_mutex_unlock(&registry->lock);
    remo__registry_changed(registry);
    if (rc != 0)
        return remo__fail_more(rc, "cannot announce channel %s to all participants; close it", channel->name);
    return waits ? wait_for_answers(channel, registry) : 0;
}

/* ---- waiting for participants ---- */

/* A peer that has refused this endpoint may have closed its own since: the mismatch is the cause. */
static int peer_problem(const struct remo_channel *channel, uint32_t node, enum remo_channel_state state) {
    if (atomic_load(&channel->peers[node].refused) && atomic_load(&channel->mismatched))
        return remo__fail(-EPROTO, "%s", channel->error_text);
    if (state == REMO_CHANNEL_LEFT)
        return remo__fail(-ENOTCONN, "node %u has closed channel %s", node, channel->name);
    return remo__fail(-EHOSTDOWN, "channel %s: node %u has %s", channel->name, node,
                      remo_node_peer(channel->node, node) == REMO_PEER_LEFT ? "left the job" : "failed");
}

/* Return 1 if the peer is connected, or was and has left; 0 if not yet; or an error. */
static int peer_verdict(const struct remo_channel *channel, uint32_t node) {
    enum remo_channel_state state = remo_channel_peer(channel, node);
    if (state == REMO_CHANNEL_CONNECTED || (state == REMO_CHANNEL_LEFT && channel->peers[node].met))
        return 1;
    return state == REMO_CHANNEL_WAITING ? 0 : peer_problem(channel, node, state);
}

/* A wait for a tree, and its first part that is not ready, for the sentence. The name is a copy because the
 * channel may be closed meanwhile. */
struct tree_wait {
    struct remo_channel *channel;
    char waits_for[REMO_CHANNEL_NAME_BYTES_MAX + 1];
    uint32_t node;
    uint64_t examined_changes; /* of the registry, when the tree was last examined */
};

/* Record the part that is not ready. */
static int not_yet(struct tree_wait *wait, const struct remo_channel *channel, uint32_t node) {
    memcpy(wait->waits_for, channel->name, sizeof wait->waits_for);
    wait->node = node;
    return 0;
}

static int tree_verdict(struct tree_wait *wait, const struct remo_channel *channel) {
    if (atomic_load(&channel->mismatched))
        return remo__fail(-EPROTO, "%s", channel->error_text);
    if (!channel->joined)
        return not_yet(wait, channel, channel->node->rank);
    for (uint32_t node = 0; channel->parent && node < channel->node->size; node++) {
        int rc = remo_nodeset_has(&channel->participants, node) ? peer_verdict(channel, node) : 1;
        if (rc != 1)
            return rc == 0 ? not_yet(wait, channel, node) : rc;
    }
    for (const struct remo_channel *child = channel->first_child; child; child = child->next_sibling) {
        int rc = child->is_shared ? 1 : tree_verdict(wait, child);
        if (rc != 1)
            return rc;
    }
    return 1;
}

/* A wait condition. Examines the tree only after a change. */
static int tree_ready(void *ctx) {
    struct tree_wait *wait = ctx;
    struct remo__registry *registry = remo__registry(wait->channel->node);
    uint64_t changes = atomic_load(&registry->changes);
    if (changes == wait->examined_changes)
        return 0;
    wait->examined_changes = changes;
    pthread_mutex_lock(&registry->lock);
    int rc = tree_verdict(wait, wait->channel);
    pthread_mutex_unlock(&registry->lock);
    return rc;
}

int remo_channel_wait(struct remo_channel *channel, uint64_t timeout_ns) {
    REMO__REQUIRE(channel);
    struct tree_wait wait = {.channel = channel, .examined_changes = UINT64_MAX};
    int rc = remo__wait(channel->node, tree_ready, &wait, remo__deadline(timeout_ns));
    if (rc == -ETIMEDOUT && wait.node == channel->node->rank)
        return remo__fail(rc, "channel %s was opened here but not joined; call remo_channel_join",
                          wait.waits_for);
    if (rc == -ETIMEDOUT)
        return remo__fail(rc,
                          "node %u has not opened channel %s within %llu ms; every participant must, with "
                          "the same participants",
                          wait.node, wait.waits_for, (unsigned long long)(timeout_ns / REMO__NS_PER_MS));
    return rc;
}

struct one_peer {
    const struct remo_channel *channel;
    uint32_t node;
};

static int peer_ready(void *ctx) {
    const struct one_peer *one = ctx;
    if (atomic_load(&one->channel->mismatched))
        return remo__fail(-EPROTO, "%s", one->channel->error_text);
    enum remo_channel_state state = remo_channel_peer(one->channel, one->node);
    if (state == REMO_CHANNEL_CONNECTED)
        return 1;
    return state == REMO_CHANNEL_WAITING ? 0 : peer_problem(one->channel, one->node, state);
}

/* Wait until `node` is connected, for op_timeout_ns at most. */
static int wait_connected(const struct remo_channel *channel, uint32_t node) {
    struct one_peer one = {.channel = channel, .node = node};
    if (node >= channel->node->size || !remo_nodeset_has(&channel->participants, node))
        return remo__fail(-EINVAL, "node %u is not a participant of channel %s", node, channel->name);
    int rc = remo__wait(channel->node, peer_ready, &one, remo__deadline(channel->node->op_timeout_ns));
    if (rc == -ETIMEDOUT)
        return remo__fail(rc, "node %u has not opened channel %s yet; wait for it with remo_channel_wait",
                          node, channel->name);
    return rc;
}

int remo__memory_wait(const struct remo__memory *memory, uint32_t node, uint64_t *ret_start) {
    const struct remo_channel *channel = memory->channel;
    int rc = wait_connected(channel, node);
    if (rc != 0)
        return rc;
    *ret_start = atomic_load(&memory->offsets[node]);
    if (*ret_start != REMO__NO_OFFSET)
        return 0;
    if (!remo_nodeset_has(&memory->providers, node))
        return remo__fail(-EINVAL, "node %u provides no memory to %s", node, channel->name);
    rc = remo__channel_check_peer(channel, node);
    return rc != 0 ? rc : remo__fail(-ENOTCONN, "node %u has just left %s", node, channel->name);
}

int remo__memory_address(const struct remo__memory *memory, uint32_t node, uint64_t offset,
                         struct remo_addr *ret_addr) {
    const struct remo_node *self = memory->channel->node;
    uint64_t start = atomic_load_explicit(&memory->offsets[node], memory_order_relaxed);
    int rc = start != REMO__NO_OFFSET ? 0 : remo__memory_wait(memory, node, &start);
    if (rc == 0)
        *ret_addr = remo_addr_make(node, atomic_load(&self->peers[node].incarnation), start + offset);
    return rc;
}

int remo__channel_check_peer(const struct remo_channel *channel, uint32_t node) {
    enum remo_channel_state state = (enum remo_channel_state)atomic_load(&channel->peers[node].state);
    if (remo__unlikely(state == REMO_CHANNEL_LEFT))
        return peer_problem(channel, node, state);
    enum remo_peer_state node_state = remo_node_peer(channel->node, node);
    if (remo__unlikely(state == REMO_CHANNEL_DOWN || node_state == REMO_PEER_DEAD
                       || node_state == REMO_PEER_LEFT))
        return peer_problem(channel, node, REMO_CHANNEL_DOWN);
    return 0;
}

bool remo__channel_may_have_opened(const struct remo_channel *channel, uint32_t node) {
    struct remo__registry *registry = remo__registry(channel->node);
    pthread_mutex_lock(&registry->lock);
    bool is_granted = channel->peers[node].granted_id != 0;
    pthread_mutex_unlock(&registry->lock);
    return is_granted;
}

/* ---- close ---- */

static int idle(void *ctx) {
    const struct remo_channel *channel = ctx;
    return atomic_load(&channel->busy) == 0;
}

static void unlink_from_parent(struct remo_channel *channel) {
    for (struct remo_channel **link = &channel->parent->first_child; *link; link = &(*link)->next_sibling) {
        if (*link != channel)
            continue;
        *link = channel->next_sibling;
        return;
    }
}

/* Under the lock: a callback may open a child at the same time. */
static struct remo_channel *first_child(struct remo__registry *registry, const struct remo_channel *channel) {
    pthread_mutex_lock(&registry->lock);
    struct remo_channel *child = channel->first_child;
    pthread_mutex_unlock(&registry->lock);
    return child;
}

/* `is_fenced`: no fence of this close has failed yet. After a failure the next ones would fail too, slowly.
 * Return the new value. */
static bool close_tree(struct remo_channel *channel, bool is_fenced) {
    struct remo__registry *registry = remo__registry(channel->node);
    for (struct remo_channel *child; (child = first_child(registry, channel)) != NULL;)
        is_fenced = close_tree(child, is_fenced);
    is_fenced = is_fenced && remo__leaving_fence(channel->node);
    pthread_mutex_lock(&registry->lock);
    channel->closing = true;
    remo__registry_unname(registry, channel);
    unlink_from_parent(channel);
    if (channel->joined) {
        remo__join_leave(channel, is_fenced);
        if (!is_fenced)
            remo__leaving_add(registry, channel);
    }
    pthread_mutex_unlock(&registry->lock);
    (void)remo__wait(channel->node, idle, channel, REMO_FOREVER); /* cannot fail: the condition never does */
    pthread_mutex_lock(&registry->lock);
    channel->parent = NULL; /* from here on the end of the last grant destroys it (join.c) */
    if (channel->grants == 0)
        remo__registry_destroy(registry, channel);
    pthread_mutex_unlock(&registry->lock);
    remo__registry_changed(registry);
    return is_fenced;
}

void remo_channel_close(struct remo_channel *channel) {
    if (channel && channel->parent)
        (void)close_tree(channel, true);
}

/* ---- attributes ---- */

struct remo_node *remo_channel_node(const struct remo_channel *channel) {
    return channel ? channel->node : NULL;
}

const char *remo_channel_name(const struct remo_channel *channel) {
    return channel ? channel->name : "";
}

const struct remo_nodeset *remo_channel_participants(const struct remo_channel *channel) {
    return channel ? &channel->participants : NULL;
}

/* A channel has no state of a node that had failed or left before the open. The root channel has the states
 * of the nodes. */
enum remo_channel_state remo_channel_peer(const struct remo_channel *channel, uint32_t node) {
    if (!channel || node >= channel->node->size)
        return REMO_CHANNEL_DOWN;
    enum remo_peer_state node_state = remo_node_peer(channel->node, node);
    if (channel->slot == 0)
        return node_state == REMO_PEER_UP        ? REMO_CHANNEL_CONNECTED
               : node_state == REMO_PEER_JOINING ? REMO_CHANNEL_WAITING
                                                 : REMO_CHANNEL_DOWN;
    enum remo_channel_state state = (enum remo_channel_state)atomic_load(&channel->peers[node].state);
    return state == REMO_CHANNEL_WAITING && node_state > REMO_PEER_UP ? REMO_CHANNEL_DOWN : state;
}

void *remo_channel_memory(const struct remo_channel *channel, uint32_t memory) {
    return channel && memory < channel->memory_count ? channel->memories[memory].own : NULL;
}

static void add_tree(const struct remo_channel *channel, struct remo_stats *sum) {
    struct remo_stats own;
    remo__stats_of_slot(channel->node, channel->slot, &own);
    remo__stats_subtract(&own, &channel->stats_at_open);
    remo__stats_add(sum, &own);
    for (const struct remo_channel *child = channel->first_child; child; child = child->next_sibling)
        add_tree(child, sum);
}

void remo_channel_stats(const struct remo_channel *channel, struct remo_stats *ret_stats) {
    if (!channel || !ret_stats)
        return;
    struct remo__registry *registry = remo__registry(channel->node);
    struct remo_stats sum = {0};
    pthread_mutex_lock(&registry->lock);
    add_tree(channel, &sum);
    pthread_mutex_unlock(&registry->lock);
    *ret_stats = sum;
}
