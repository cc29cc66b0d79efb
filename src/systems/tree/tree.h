/* tree.h - declarations that the files of the tree share. The public header is remo/tree.h.
 *
 *   tree.c      open and close
 *   change.c    changes, at the calling node: made at once, or by a call to the owner
 *   cache.c     inner nodes that a thread has read
 *   read.c      gets: from the root to a leaf
 *   seek_leaf.c the entry of a key in a leaf, in a visit; seek_direct.c: by a direct read
 *   range.c     limits of ranges of keys
 *   remove.c    removals of ranges, at the calling node and at the owner
 *   scan.c      scans: from leaf to leaf
 *   scan_leaf.c the entries of one leaf
 *   cursor.c    cursors
 *   window.c    operations in flight: a window of each thread or task
 *   cut.c       versions of several owners at one instant
 *   owner.c     changes, at the owner; owner.h lists the files of their parts
 *   load.c      the load of sorted entries, at the owner
 *   overlay.c   the nodes that several writes of one commit have changed, at the owner
 *   serve.c     handlers of calls, at the owner; freezes; statistics
 *   node.h      one node of the tree, in private memory: node_*.c
 *
 * docs/internals/tree.md describes the protocol. */
#pragma once

#include <string.h>

#include <remo/rpc.h>
#include <remo/tree.h>
#include <remo/versioned.h>

#include "channel/remote.h"
#include "systems/tree/node.h"

#ifdef REMO_SIM_SMALL
#define TREE_FROZEN_PAUSE_NS (100 * REMO__NS_PER_US) /* fewer steps while the scan's node has failed */
#else
#define TREE_FROZEN_PAUSE_NS (20 * REMO__NS_PER_US) /* before a delayed change is tried again */
#endif
#define TREE_FREEZE_NS_MAX (100 * REMO__NS_PER_MS)
#define TREE_ROOT 0u           /* the index of the root */
#define TREE_CHANGED_RANGES 8u /* of one node in an overlay; with more, the complete node is committed */
#define REMO_TREE_FLAGS \
    (REMO_TREE_DESCENDING | REMO_TREE_KEYS_ONLY | REMO_TREE_FROM_EXCLUDED | REMO_TREE_TO_INCLUDED)
#ifdef REMO_SIM_SMALL
#define TREE_DEPTH_MAX 4u /* levels */
#define TREE_CACHE_SLOTS 2u
#define TREE_CACHE_WAYS 2u
#define TREE_OVERLAY_MAX 16u
#define TREE_LOAD_LEAVES 2u
#define TREE_SAMPLES 1u
#define TREE_WINDOW 3u /* nodes in a buffer: the leaves of gets; a scan visits one leaf less in one call */
#else
#define TREE_DEPTH_MAX 16u
#define TREE_CACHE_SLOTS 1024u
#define TREE_CACHE_WAYS 4u    /* slots where a node may be */
#define TREE_OVERLAY_MAX 256u /* nodes that the writes of one apply change */
#define TREE_LOAD_LEAVES 16u  /* that a load collects, and commits at one instant */
#define TREE_WINDOW 16u
#define TREE_SAMPLES 15u /* keys of a cached node that a search compares first */
#endif
#define TREE_AVERAGED 16u /* leaves: for the number that a scan reads at a time */

/* The handlers of the service. A freeze delays changes for a limited time, and replies with the version. A
 * thaw ends the delay. */
enum tree_handler { TREE_CHANGE, TREE_FREEZE, TREE_THAW, TREE_APPLY, TREE_REMOVE_RANGE, TREE_HANDLERS };

/* A status beyond all errno codes: the owner delays changes. */
#define TREE_FROZEN 4096

/* The numbers are those of enum remo_tree_kind. */
enum tree_op { TREE_INSERT, TREE_UPDATE, TREE_UPSERT, TREE_REMOVE, TREE_COMPARE_PUT, TREE_OPS };

struct tree_write {
    enum tree_op op;
    struct tree_bytes key, value, expected;
};

/* A request of TREE_CHANGE: this header, the key, the value, and in the rest the expected value. */
struct tree_request {
    uint8_t op, zero;
    uint16_t key_bytes, value_bytes;
};

/* One write of a request of TREE_APPLY: this header, the key, the value and the expected value. */
struct tree_part {
    uint8_t op, zero;
    uint16_t key_bytes, value_bytes, expected_bytes;
};

/* A request of TREE_REMOVE_RANGE: this header, `from` and, to its end, `to`. */
struct tree_range_request {
    uint16_t limit, from_bytes;
    uint8_t has_to, zero;
};

/* The reply, and to its end the key with which the next request begins. */
struct tree_range_reply {
    uint32_t count, is_done;
};

/* Keys to remove: from <= key < to. */
struct tree_removal {
    struct tree_bytes from, to;
    bool has_to;
    uint64_t limit;
};

struct tree_removed {
    uint32_t count;
    bool is_done; /* the owner has no more keys of the range */
    uint32_t next_bytes;
    char next[REMO_TREE_KEY_BYTES_MAX + 1]; /* where the rest of the range begins */
};

/* A node on the path from the root to a leaf, at the owner. */
struct tree_step {
    uint32_t object, child; /* its index, and the position of its entry for the next node */
    void *image;            /* the buffer, or a kept inner node, which own_copy copies before a change */
    void *buffer;
    uint32_t right; /* the index of a new right neighbour, in right_image; 0: none */
    void *right_image;
    bool is_whole; /* commit the complete node */
    struct tree_ranges ranges;
};

/* A node that writes of an apply have changed. */
struct tree_changed {
    uint32_t object;
    bool is_whole;   /* commit the complete node */
    bool is_new;     /* its index was unused before the apply */
    bool is_dropped; /* it becomes unused */
    uint32_t range_count;
    struct tree_range ranges[TREE_CHANGED_RANGES];
    void *image; /* node_bytes; it stays for the next apply */
};

struct tree_overlay {
    struct tree_changed nodes[TREE_OVERLAY_MAX];
    uint32_t count; /* 0: no apply */
    struct remo_versioned_change changes[TREE_OVERLAY_MAX * TREE_CHANGED_RANGES];
};

/* The owner's state. Protected by the mutex. */
struct tree_owner {
    struct remo__mutex mutex;
    uint64_t frozen_until_ns;
    uint32_t freezes; /* freezes that no thaw has ended */
    uint32_t *free;   /* a stack of unused indices */
    uint32_t free_count;
    void **kept; /* [nodes]: copies of inner nodes; NULL: read the node */
    struct tree_step steps[TREE_DEPTH_MAX];
    uint32_t depth;
    void *sibling, *scratch;
    uint32_t taken[2 * TREE_DEPTH_MAX], taken_count;     /* indices of new nodes */
    uint32_t dropped[TREE_DEPTH_MAX + 1], dropped_count; /* indices of dropped nodes */
    struct tree_overlay overlay;
};

#define TREE_BUFFER_SPARE 64u /* bytes after the nodes of a buffer, for loads that pass the end of a node */

/* Memory for the nodes that one get or scan reads. Tasks of a thread may read at the same time, each with its
 * own buffer. */
struct tree_buffer {
    struct tree_buffer *next;
    uint64_t bytes[];
};

/* An inner node that a thread has read. */
struct tree_cached {
    uint32_t owner, object;
    uint32_t count, level; /* entries; 0: the slot is empty */
    bool has_high;
    uint32_t stride, sample_count;  /* of the samples: the distance, and how many are of entries */
    uint64_t low_first, high_first; /* the first 8 bytes of the fences, as numbers */
    uint64_t samples[TREE_SAMPLES]; /* firsts[stride], firsts[2 * stride], ...; then UINT64_MAX */
    uint64_t *firsts;               /* [count]: of the keys */
    uint32_t *children;             /* [count] */
    void *image;                    /* the node */
};

/* A change in flight: the call, and its request. */
struct tree_call {
    struct tree_call *next; /* unused ones */
    struct remo_rpc_op rpc;
    char request[];
};

/* The operations of a thread or task, in the order of their start. */
struct tree_window {
    struct tree_window *next; /* of other tasks of the thread */
    uint32_t holder;          /* the thread or task of the operations; if there are none, any may take it */
    uint32_t count;
    struct remo_tree_op *first, *last;
};

/* Inner nodes, and unused buffers. */
struct tree_cache {
    struct tree_cached slots[TREE_CACHE_SLOTS];
    struct tree_buffer *buffers;
    struct tree_window *windows;
    struct tree_call *calls;  /* unused */
    uint32_t calls_count;     /* with those in flight */
    uint32_t entries, leaves; /* of the last leaves that scans have used (scan_leaf.c) */
};

struct remo_tree {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo_versioned *nodes;
    struct remo_rpc *rpc;
    uint32_t node_bytes, node_count, key_bytes_max, value_bytes_max;
    uint32_t owner_count;
    uint16_t owners[REMO_NODES_MAX];
    struct tree_bytes *boundaries; /* [owner_count - 1] */
    struct tree_owner *own;        /* NULL: not an owner */
    struct tree_cache *caches[REMO__THREADS_MAX];
};

/* ---- owner.c ---- */

int remo__tree_owner_open(struct remo_tree *tree, uint32_t position);
void remo__tree_owner_close(struct remo_tree *tree);
/* Change the entry of a key that this node owns. Does not wait for the network. Returns TREE_FROZEN if scans
 * delay changes. Errors: -EEXIST, -ENOENT, -ESTALE and -ENOSPC without sentences; -EPROTO: the tree is
 * damaged; and those of remo_versioned_commit and remo_versioned_read. */
int remo__tree_change(struct remo_tree *tree, const struct tree_write *write);
/* Make all writes in one commit, or none. After an error *ret_failed is the index of the write that caused
 * it, or `count`. Otherwise as remo__tree_change. Errors: also -EMSGSIZE, perhaps without a sentence, and
 * -ENOMEM without a sentence. */
int remo__tree_apply(struct remo_tree *tree, const struct tree_write *writes, uint32_t count,
                     uint32_t *ret_failed);

/* The parts of changes, for load.c and remove.c. The caller holds the mutex. */

/* Load the nodes from the root to the leaf of a key. */
int remo__tree_descend(struct remo_tree *tree, struct tree_bytes key);
/* Insert own->sibling, a leaf with entries, behind the leaf of the path. Its low fence becomes the high fence
 * of that leaf. Returns 1 if that leaf has no room for the fence, or -ENOSPC; then the change must be
 * abandoned. */
int remo__tree_insert_leaf(struct remo_tree *tree);
/* Make a change in the overlay. Errors: those of remo__tree_change, and of remo__tree_overlay_take. */
int remo__tree_change_in_overlay(struct remo_tree *tree, const struct tree_write *write);
/* Move the nodes that a change has prepared to the overlay. If `rc` is an error, or there is no room, abandon
 * the change. Returns `rc`, or an error of remo__tree_overlay_take. */
int remo__tree_to_overlay(struct remo_tree *tree, int rc);
/* Commit the nodes of the overlay, or discard them if `rc` is an error. Returns `rc`, or an error of the
 * commit. */
int remo__tree_end_overlay(struct remo_tree *tree, int rc);
/* Return -EPROTO with a sentence. */
int remo__tree_fail_damaged(const struct remo_tree *tree);

/* ---- remove.c ---- */

/* Remove the first keys of a range that this node owns, REMO_TREE_WRITES_MAX at most, in one commit.
 * Otherwise as remo__tree_change. Errors: -EPROTO, -ENOMEM, and those of remo_versioned_commit and
 * remo_versioned_read. */
int remo__tree_remove_some(struct remo_tree *tree, const struct tree_removal *removal,
                           struct tree_removed *ret_removed);

/* ---- overlay.c ---- */

/* Return the node as the writes of the current apply have left it, or NULL if they have not changed it. */
struct tree_changed *remo__tree_overlay_find(struct tree_owner *own, uint32_t object);
/* Move the changes of the steps to the overlay. Returns -EMSGSIZE if it has no room, or -ENOMEM. Then the
 * apply must fail. */
int remo__tree_overlay_take(const struct remo_tree *tree);
/* List the changes of all nodes in overlay.changes. Returns their number. */
uint32_t remo__tree_overlay_list(const struct remo_tree *tree);
void remo__tree_overlay_close(struct tree_owner *own);

/* ---- change.c ---- */

/* Call `attempt` until it does not return TREE_FROZEN. Errors: -EBUSY, and those of `attempt`. */
int remo__tree_until_thawed(struct remo_tree *tree, uint32_t owner,
                            int (*attempt)(struct remo_tree *, void *ctx), void *ctx);
/* Between parts of a long change at this node: serve, and let other threads and tasks have the mutex. */
void remo__tree_let_others(const struct remo_tree *tree);
/* Set the sentence of an error of a change, and return it. */
int remo__tree_fail_change(const struct remo_tree *tree, int rc, uint32_t owner);
/* Set the sentence of a change that scans have delayed for op_timeout_ns, and return -EBUSY. */
int remo__tree_fail_frozen(const struct remo_tree *tree, uint32_t owner);
/* Check a write of an apply, and set *ret_write to it. */
int remo__tree_take_write(const struct remo_tree *tree, const struct remo_tree_write *from,
                          struct tree_write *ret_write);
/* The same for a single change, which must fit into one request. */
int remo__tree_take_change(const struct remo_tree *tree, const struct remo_tree_write *from,
                           struct tree_write *ret_write);
/* Store a request of TREE_CHANGE, and return its size. */
size_t remo__tree_encode_change(const struct tree_write *write, char *request);
/* Return the code for the status of a call of TREE_CHANGE, with its sentence, or TREE_FROZEN. */
int remo__tree_end_call(const struct remo_tree *tree, int rc, uint32_t owner);
/* Make a change of a key that this node owns, or return TREE_FROZEN. */
int remo__tree_change_own(struct remo_tree *tree, const struct tree_write *write);

/* ---- range.c ---- */

/* The range from <= key < to. */
struct tree_limits {
    struct tree_bytes from, to;
    bool has_to;
    char extended[2][REMO_TREE_KEY_BYTES_MAX + 1];
};
/* Check a range and find its limits. Errors: -EINVAL; -EPROTO: the options of participants differ. */
int remo__tree_limits(const struct remo_tree *tree, const struct remo_tree_range *range,
                      struct tree_limits *ret_limits);

/* ---- scan.c ---- */

/* Return -EINVAL if `snapshot` is not NULL and not a snapshot. */
int remo__tree_check_snapshot(const struct remo_tree *tree, const uint64_t *snapshot);

/* Set *ret_entry to the entry at a place of the buffer of a scan. Returns the size of the entry. */
static inline size_t remo__tree_result_entry(const char *place, struct remo_tree_entry *ret_entry) {
    uint16_t sizes[2];
    memcpy(sizes, place, sizeof sizes);
    ret_entry->key = (struct remo_tree_key){place + TREE_ENTRY_BYTES, sizes[0]};
    ret_entry->value = (struct remo_tree_key){place + TREE_ENTRY_BYTES + sizes[0], sizes[1]};
    return (size_t)TREE_ENTRY_BYTES + sizes[0] + sizes[1];
}

/* ---- serve.c ---- */

/* Serve what has arrived, after a piece of work: on shm a call to this node first waits for its busy threads
 * (remo_rpc_serve). */
static inline void remo__tree_serve_now(const struct remo_tree *tree) {
    if (tree->node->mapped)
        (void)remo_rpc_serve(tree->rpc, 0);
}

/* The handlers of TREE_CHANGE and TREE_APPLY. The status is 0, TREE_FROZEN or a positive errno code: negative
 * statuses are errors of the call. The reply to TREE_APPLY, except for TREE_FROZEN and EPROTO, has 4 bytes:
 * the index of the write that caused an error, or the number of writes. */
int remo__tree_serve(void *ctx, const struct remo_rpc_request *request);
int remo__tree_serve_apply(void *ctx, const struct remo_rpc_request *request);
/* Decode a request of TREE_APPLY. Returns the number of writes, or 0 if the request is not valid. */
uint32_t remo__tree_decode_apply(const struct remo_tree *tree, const void *data, size_t bytes,
                                 struct tree_write writes[REMO_TREE_WRITES_MAX]);
/* The handler of TREE_REMOVE_RANGE. */
int remo__tree_serve_remove(void *ctx, const struct remo_rpc_request *request);
/* Return false if the request is not valid. */
bool remo__tree_decode_remove(const struct remo_tree *tree, const void *data, size_t bytes,
                              struct tree_removal *ret_removal);
/* The handlers of TREE_FREEZE and TREE_THAW. */
int remo__tree_serve_freeze(void *ctx, const struct remo_rpc_request *request);
int remo__tree_serve_thaw(void *ctx, const struct remo_rpc_request *request);
/* Delay changes at this node, an owner, and return the version. */
int remo__tree_freeze(struct remo_tree *tree, uint64_t freeze_ns, uint64_t *ret_version);
void remo__tree_thaw(struct remo_tree *tree);

/* ---- cache.c ---- */

/* Make a cache for a thread. Returns NULL with a sentence if there is no memory. */
struct tree_cache *remo__tree_make_cache(struct remo_tree *tree, const struct remo__thread *thread);
/* Return the calling thread's cache, or NULL with a sentence. */
static inline struct tree_cache *remo__tree_cache(struct remo_tree *tree) {
    const struct remo__thread *thread = remo__thread(tree->node);
    if (remo__unlikely(!thread))
        return NULL;
    struct tree_cache *cache = tree->caches[thread->index];
    return remo__likely(cache != NULL) ? cache : remo__tree_make_cache(tree, thread);
}
void remo__tree_caches_close(struct remo_tree *tree);
/* Return a buffer of TREE_WINDOW nodes, or NULL with a sentence. */
struct tree_buffer *remo__tree_take_buffer(struct remo_tree *tree, struct tree_cache *cache);
void remo__tree_put_buffer(struct tree_cache *cache, struct tree_buffer *buffer);
/* Return a cached inner node, or NULL. It is valid until the thread blocks. */
const struct tree_cached *remo__tree_cached(struct tree_cache *cache, uint32_t owner, uint32_t object);
/* Cache a node that was read, if it is a valid inner node. Otherwise remove it from the cache. */
void remo__tree_cache_node(const struct remo_tree *tree, struct tree_cache *cache, uint32_t owner,
                           uint32_t object, const void *node);
/* Find the child of a cached node whose range contains `key`. Returns false if the key is not between the
 * fences of the node. */
bool remo__tree_cached_child(const struct tree_cached *node, uint32_t bytes, struct tree_bytes key,
                             uint32_t *ret_child);
/* Find the leaf of a key by cached inner nodes. Returns false if not all of them are cached, or if they do
 * not fit together. */
bool remo__tree_cached_leaf(struct tree_cache *cache, uint32_t bytes, uint32_t owner, struct tree_bytes key,
                            uint32_t *ret_leaf);

/* ---- read.c ---- */

/* Set the sentence for a tree whose options differ, and return -EPROTO. */
int remo__tree_fail_options(const struct remo_tree *tree);
/* Set the sentence for a key that cannot be in the tree, and return -EINVAL. */
int remo__tree_fail_key(const struct remo_tree *tree, const void *key, size_t key_bytes);

/* Return -EPROTO if a participant has opened the tree with other options. The channels below that of the tree
 * connect to a node only after the options have been compared. */
static inline int remo__tree_check_options(const struct remo_tree *tree) {
    return remo__likely(!atomic_load(&tree->channel->mismatched)) ? 0 : remo__tree_fail_options(tree);
}

/* Return -EINVAL if a key cannot be in the tree. */
static inline int remo__tree_check_key(const struct remo_tree *tree, const void *key, size_t key_bytes) {
    bool is_valid = key_bytes <= tree->key_bytes_max && (key || key_bytes == 0);
    return remo__likely(is_valid) ? 0 : remo__tree_fail_key(tree, key, key_bytes);
}

/* Return the position of the owner of a key, of several owners. */
uint32_t remo__tree_search_position(const struct remo_tree *tree, struct tree_bytes key);
/* Return the position of the owner of a key. */
static inline uint32_t remo__tree_position(const struct remo_tree *tree, struct tree_bytes key) {
    return tree->owner_count == 1 ? 0 : remo__tree_search_position(tree, key);
}

/* Make up to TREE_WINDOW gets at the same time. Sets statuses[i] to the result of ops[i] and, if the key was
 * found, ops[i]->value_bytes to the length of the value. Does not set ops[i]->status. Returns 0, or the error
 * of a thread without memory. */
int remo__tree_get_each(struct remo_tree *tree, struct remo_tree_op *const *ops, int *statuses,
                        uint32_t count);

/* ---- cut.c ---- */

/* Versions of the owners at `count` positions from `first` on. */
struct tree_cut {
    uint32_t first, count;
    uint64_t *versions, *again;   /* [count] */
    struct remo_nodeset changing; /* owners whose versions have changed between two reads */
    struct remo_nodeset frozen;   /* those that were asked to delay changes */
    bool has_all;                 /* each owner has made its root */
    bool is_instant;              /* all owners had the versions at one instant of the call */
};
/* Try to find versions of one instant. The number of attempts before this one is `attempt`. */
int remo__tree_find_cut(struct remo_tree *tree, struct tree_cut *cut, uint32_t attempt);
/* After an attempt that did not find all roots: wait for a moment. */
void remo__tree_await_roots(struct remo_tree *tree, uint64_t deadline_ns);
int remo__tree_fail_outrun(const struct remo_tree *tree);
