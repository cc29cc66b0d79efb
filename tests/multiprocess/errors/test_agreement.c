/* test_agreement.c - nodes that open one name with different options get -EPROTO and both descriptions.
 *
 * The tests cover, for every object, every option that determines where state is or how it is laid out:
 * homes, owners, senders, providers, sizes, counts, and participants. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "../../support/cluster.h"

#define ROUNDS 50u

/* Open the object in one of two variants, which differ in one option. */
typedef int open_variant(struct remo_channel *parent, uint32_t variant, void **ret_object);

static struct remo_nodeset set_of(uint64_t nodes) {
    return (struct remo_nodeset){.word = {nodes}};
}

/* Nodes 0 and 1 only, or all three. */
static struct remo_nodeset group_of(uint32_t variant) {
    return set_of(variant ? 7 : 3);
}

static int region_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_region_options options = {.participants = group_of(variant)};
    return remo_region_open(parent, "odd", 64, &options, (struct remo_region **)ret);
}

static int region_providers(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_region_options options = {.providers = set_of(1u << variant)};
    return remo_region_open(parent, "odd", 64, &options, (struct remo_region **)ret);
}

static int lock_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_lock_options options = {.participants = group_of(variant)};
    return remo_lock_open(parent, "odd", &options, (struct remo_lock **)ret);
}

static int lock_homes(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_lock_options options = {.homes = set_of(1u << variant)};
    return remo_lock_open(parent, "odd", &options, (struct remo_lock **)ret);
}

static int lock_count(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_lock_options options = {.count = 8 + variant};
    return remo_lock_open(parent, "odd", &options, (struct remo_lock **)ret);
}

static int queue_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_queue_options options = {.participants = group_of(variant)};
    return remo_queue_open(parent, "odd", &options, (struct remo_queue **)ret);
}

static int queue_home(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_queue_options options = {.home = variant};
    return remo_queue_open(parent, "odd", &options, (struct remo_queue **)ret);
}

static int queue_capacity(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_queue_options options = {.capacity = 300 << variant};
    return remo_queue_open(parent, "odd", &options, (struct remo_queue **)ret);
}

static int owned_var_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_owned_var_options options = {.participants = group_of(variant)};
    return remo_owned_var_open(parent, "odd", 64, &options, (struct remo_owned_var **)ret);
}

static int owned_var_owner(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_owned_var_options options = {.owner = variant};
    return remo_owned_var_open(parent, "odd", 64, &options, (struct remo_owned_var **)ret);
}

static int atomic_var_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_atomic_var_options options = {.participants = group_of(variant)};
    return remo_atomic_var_open(parent, "odd", &options, (struct remo_atomic_var **)ret);
}

static int atomic_var_home(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_atomic_var_options options = {.home = variant};
    return remo_atomic_var_open(parent, "odd", &options, (struct remo_atomic_var **)ret);
}

static int atomic_var_place(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_atomic_var_options options = {.count = 12, .place = (enum remo_atomic_var_place)variant};
    return remo_atomic_var_open(parent, "odd", &options, (struct remo_atomic_var **)ret);
}

static int sst_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_sst_options options = {.participants = group_of(variant)};
    return remo_sst_open(parent, "odd", 8, &options, (struct remo_sst **)ret);
}

static int barrier_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_barrier_options options = {.participants = group_of(variant)};
    return remo_barrier_open(parent, "odd", &options, (struct remo_barrier **)ret);
}

static int ringbuffer_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_ringbuffer_options options = {.participants = group_of(variant)};
    return remo_ringbuffer_open(parent, "odd", &options, (struct remo_ringbuffer **)ret);
}

static int ringbuffer_sender(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_ringbuffer_options options = {.sender = variant};
    return remo_ringbuffer_open(parent, "odd", &options, (struct remo_ringbuffer **)ret);
}

static int ringbuffer_capacity(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_ringbuffer_options options = {.capacity_bytes = 4096u << variant};
    return remo_ringbuffer_open(parent, "odd", &options, (struct remo_ringbuffer **)ret);
}

static int versioned_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_versioned_options options = {.participants = group_of(variant)};
    return remo_versioned_open(parent, "odd", &options, (struct remo_versioned **)ret);
}

static int versioned_owners(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_versioned_options options = {.owners = set_of(1u << variant)};
    return remo_versioned_open(parent, "odd", &options, (struct remo_versioned **)ret);
}

static int versioned_objects(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_versioned_options options = {.objects = 8 + variant};
    return remo_versioned_open(parent, "odd", &options, (struct remo_versioned **)ret);
}

/* The extents have the same size. */
static int versioned_bytes(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_versioned_options options = {.object_bytes = 101 + variant, .log_bytes = 256};
    return remo_versioned_open(parent, "odd", &options, (struct remo_versioned **)ret);
}

static int versioned_log(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_versioned_options options = {.log_bytes = 2048 << variant};
    return remo_versioned_open(parent, "odd", &options, (struct remo_versioned **)ret);
}

static int versioned_retain(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_versioned_options options = {.retain = 5 + variant};
    return remo_versioned_open(parent, "odd", &options, (struct remo_versioned **)ret);
}

static int tree_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_tree_options options = {.participants = group_of(variant), .owners = set_of(1)};
    return remo_tree_open(parent, "odd", &options, (struct remo_tree **)ret);
}

static int tree_owners(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_tree_options options = {.owners = set_of(1u << variant)};
    return remo_tree_open(parent, "odd", &options, (struct remo_tree **)ret);
}

static int tree_boundaries(struct remo_channel *parent, uint32_t variant, void **ret) {
    const struct remo_tree_key boundary = {variant ? "a" : "b", 1};
    struct remo_tree_options options = {.owners = set_of(3), .boundaries = &boundary};
    return remo_tree_open(parent, "odd", &options, (struct remo_tree **)ret);
}

static int tree_nodes(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_tree_options options = {.nodes = 64 + variant, .retain = 100};
    return remo_tree_open(parent, "odd", &options, (struct remo_tree **)ret);
}

static int tree_node_bytes(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_tree_options options = {.nodes = 64, .node_bytes = 4096 << variant};
    return remo_tree_open(parent, "odd", &options, (struct remo_tree **)ret);
}

static int tree_sizes(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_tree_options options = {
        .nodes = 64, .key_bytes_max = 8 + variant, .value_bytes_max = 9 - variant};
    return remo_tree_open(parent, "odd", &options, (struct remo_tree **)ret);
}

static int tree_retain(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_tree_options options = {.nodes = 64, .retain = 100 + variant};
    return remo_tree_open(parent, "odd", &options, (struct remo_tree **)ret);
}

static int kv_groups(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_kv_options options = {.participants = group_of(variant)};
    return remo_kv_open(parent, "odd", &options, (struct remo_kv **)ret);
}

static int kv_stripes(struct remo_channel *parent, uint32_t variant, void **ret) {
    struct remo_kv_options options = {.stripes = 16 << variant};
    return remo_kv_open(parent, "odd", &options, (struct remo_kv **)ret);
}

#define CLOSER(object)                     \
    static void close_##object(void *it) { \
        remo_##object##_close(it);         \
    }
CLOSER(region)
CLOSER(lock)
CLOSER(queue)
CLOSER(owned_var)
CLOSER(atomic_var)
CLOSER(sst)
CLOSER(barrier)
CLOSER(ringbuffer)
CLOSER(kv)
CLOSER(versioned)
CLOSER(tree)

/* Node 0 opens variant 0, all others variant 1; the sentence names both. */
static const struct disagreement {
    const char *what;
    open_variant *open;
    void (*close)(void *object);
    const char *words[2];
} disagreements[] = {
    {"region participants", region_groups, close_region, {"nodes 0-1", "nodes 0-2"}},
    {"region providers", region_providers, close_region, {"node 0 on", "node 1 on"}},
    {"lock participants", lock_groups, close_lock, {"nodes 0-1", "nodes 0-2"}},
    {"lock homes", lock_homes, close_lock, {"node 0 on", "node 1 on"}},
    {"lock count", lock_count, close_lock, {"8 locks", "9 locks"}},
    {"queue participants", queue_groups, close_queue, {"nodes 0-1", "nodes 0-2"}},
    {"queue home", queue_home, close_queue, {"node 0 on", "node 1 on"}},
    {"queue capacity", queue_capacity, close_queue, {"300 elements", "600 elements"}},
    {"owned_var participants", owned_var_groups, close_owned_var, {"nodes 0-1", "nodes 0-2"}},
    {"owned_var owner", owned_var_owner, close_owned_var, {"of node 0", "of node 1"}},
    {"atomic_var participants", atomic_var_groups, close_atomic_var, {"nodes 0-1", "nodes 0-2"}},
    {"atomic_var home", atomic_var_home, close_atomic_var, {"at node 0", "at node 1"}},
    {"atomic_var place", atomic_var_place, close_atomic_var, {"at node 0", "striped"}},
    {"sst participants", sst_groups, close_sst, {"nodes 0-1", "nodes 0-2"}},
    {"barrier participants", barrier_groups, close_barrier, {"nodes 0-1", "nodes 0-2"}},
    {"ringbuffer participants", ringbuffer_groups, close_ringbuffer, {"nodes 0-1", "nodes 0-2"}},
    {"ringbuffer sender", ringbuffer_sender, close_ringbuffer, {"sender 0", "sender 1"}},
    {"ringbuffer capacity", ringbuffer_capacity, close_ringbuffer, {"4096", "8192"}},
    {"kv participants", kv_groups, close_kv, {"nodes 0-1", "nodes 0-2"}},
    {"kv stripes", kv_stripes, close_kv, {", 16)", ", 32)"}},
    {"versioned participants", versioned_groups, close_versioned, {"nodes 0-1", "nodes 0-2"}},
    {"versioned owners", versioned_owners, close_versioned, {"node 0 on", "node 1 on"}},
    {"versioned objects", versioned_objects, close_versioned, {"(8 of", "(9 of"}},
    {"versioned object_bytes", versioned_bytes, close_versioned, {"of 101 B", "of 102 B"}},
    {"versioned log_bytes", versioned_log, close_versioned, {"log 2048", "log 4096"}},
    {"versioned retain", versioned_retain, close_versioned, {"retain 5", "retain 6"}},
    {"tree participants", tree_groups, close_tree, {"nodes 0-1", "nodes 0-2"}},
    {"tree owners", tree_owners, close_tree, {"options ", "tree("}},
    {"tree boundaries", tree_boundaries, close_tree, {"options ", "tree("}},
    {"tree nodes", tree_nodes, close_tree, {"(64 nodes", "(65 nodes"}},
    {"tree node_bytes", tree_node_bytes, close_tree, {"of 4096 B", "of 8192 B"}},
    {"tree sizes", tree_sizes, close_tree, {"8+9 B", "9+8 B"}},
    {"tree retain", tree_retain, close_tree, {"options ", "tree("}},
};

static int disagree(struct remo_node *node, const struct disagreement *of) {
    void *object;
    CHECK_OK(of->open(remo_node_root(node), remo_node_rank(node) > 0, &object));
    CHECK_SENTENCE(remo_channel_wait(remo_node_root(node), 100 * SECOND), -EPROTO, "channel odd");
    CHECK(strstr(remo_last_error(), of->words[0]) && strstr(remo_last_error(), of->words[1]));
    CHECK_OK(cluster_meet());
    of->close(object);
    CHECK_OK(cluster_meet()); /* so that the next object does not connect to this one */
    return 0;
}

static int every_option(struct remo_node *node, void *ctx) {
    (void)ctx;
    for (size_t i = 0; i < sizeof disagreements / sizeof disagreements[0]; i++)
        if (disagree(node, &disagreements[i]))
            return fprintf(stderr, "with %s\n", disagreements[i].what), 1;
    return 0;
}

/* ---- mutual exclusion ---- */

static struct { _Atomic uint32_t holders[ROUNDS]; } * shared;

/* Both nodes name themselves as home of the lock, open it at the same time, and acquire it: not both
 * succeed. */
static int never_both(struct remo_node *node, void *ctx) {
    struct remo_channel *root = remo_node_root(node);
    (void)ctx;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        void *lock;
        CHECK_OK(cluster_meet());
        CHECK_OK(lock_homes(root, remo_node_rank(node), &lock));
        int rc = remo_lock_acquire(lock, 0, round % 2 ? 0 : 100 * SECOND);
        CHECK(rc == 0 || rc == -EPROTO);
        if (rc == 0)
            atomic_fetch_add(&shared->holders[round], 1);
        CHECK_SENTENCE(remo_channel_wait(root, 100 * SECOND), -EPROTO, "channel odd");
        CHECK_OK(cluster_meet());
        CHECK(atomic_load(&shared->holders[round]) <= 1);
        CHECK_CODE(remo_lock_release(lock, 0, REMO_FENCE_NONE), rc == 0 ? 0 : -EPERM);
        remo_lock_close(lock);
    }
    return 0;
}

/* Node 1 opens last: none of its calls uses its own memory. Node 0 continues. */
static int late_is_refused(struct remo_node *node, void *ctx) {
    struct remo_channel *root = remo_node_root(node);
    uint32_t rank = remo_node_rank(node);
    void *lock, *queue, *words, *region;
    uint64_t word = 1;
    (void)ctx;
    if (rank == 1)
        CHECK_OK(cluster_meet());
    struct remo_channel *parts[4];
    const char *const names[4] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) { /* one parent each, because all objects have the same name */
        CHECK_OK(remo_channel_open(root, names[i], "test", NULL, &parts[i]));
        CHECK_OK(remo_channel_join(parts[i]));
    }
    CHECK_OK(lock_homes(parts[0], rank, &lock));
    CHECK_OK(queue_home(parts[1], rank, &queue));
    CHECK_OK(atomic_var_home(parts[2], rank, &words));
    CHECK_OK(region_providers(parts[3], rank, &region));
    if (rank == 0)
        CHECK_OK(cluster_meet());
    int code = rank == 0 ? 0 : -EPROTO;
    CHECK_CODE(remo_lock_acquire(lock, 0, 0), code);
    CHECK_CODE(remo_lock_acquire(lock, 0, 100 * SECOND), rank == 0 ? -EDEADLK : -EPROTO);
    CHECK_CODE(remo_atomic_var_fetch_add(words, 0, 1, NULL, NULL), code);
    CHECK_CODE(remo_region_write(region, rank, 0, &word, 8, 0, NULL), code);
    if (rank == 1)
        CHECK_CODE(remo_queue_push(queue, &word, 8, 0), -EPROTO);
    CHECK_OK(cluster_meet());
    for (int i = 0; i < 4; i++)
        CHECK_SENTENCE(remo_channel_wait(parts[i], 100 * SECOND), -EPROTO, "node 0");
    CHECK_OK(cluster_meet());
    if (rank == 0)
        CHECK_OK(remo_lock_release(lock, 0, REMO_FENCE_NONE));
    remo_lock_close(lock);
    remo_queue_close(queue);
    remo_atomic_var_close(words);
    remo_region_close(region);
    return 0;
}

static void setup(void) {
    memset(shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    static const struct cluster_test tests[] = {
        CLUSTER_TEST(every_option, 3),
        CLUSTER_TEST(never_both, 2),
        CLUSTER_TEST(late_is_refused, 2),
        {0},
    };
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, setup);
}
