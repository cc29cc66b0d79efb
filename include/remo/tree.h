/* tree.h - an ordered map from byte strings to byte strings, divided by ranges of keys over its owners.
 *
 * Model:   keys are in the order of memcmp, a prefix before longer keys. Each owner holds one range of keys
 *          in a B+-tree. A change runs at the owner of its key. A scan returns the entries of a range of
 *          keys as of one instant, also if they have several owners.
 * Layout:  the nodes of an owner's tree are the versioned objects (versioned.h) of that owner, of node_bytes
 *          bytes. The root has index 0 for ever. A node has the limits of its range of keys (fences), and
 *          sorted entries, each with 6 bytes of its own. A split, a merge or another change of several nodes
 *          is one commit. Network memory: that of the versioned objects. Private memory of an owner: a copy
 *          of each inner node, and 34 nodes. Private memory of each thread that reads: up to 1024 inner
 *          nodes; and 16 nodes for each get or scan of its tasks at the same time.
 * Cost:    at other nodes than the owner, outside mapped memory. An object is read as in versioned.h: 1 read,
 *          2 the first time. The thread keeps inner nodes that it has read.
 *          - get: 1 object, the leaf. If the leaf has been split or merged, or was never read: also 1 inner
 *            node for each level, and the leaf again;
 *          - insert, update, upsert, remove: 1 call (rpc.h); at the owner no network operation;
 *          - scan of one owner: 1 read of the version, and the leaves, 15 at the same time, all below one
 *            parent. If inner nodes that the thread kept do not lead to a leaf: 1 inner node for each level;
 *          - scan of n owners, which are all owners of keys of the range: 2n reads of versions instead. With
 *            a limit, a scan begins with the first owner only, and often ends there. If versions change
 *            between the reads in three attempts: 1 call and 1 post more for each owner that changes. The
 *            reads of versions, and these calls, follow each other.
 * Order:   linearizable: all calls. A scan takes effect at one instant for all its owners.
 *          While a scan of several owners needs the versions not to change, it delays the changes of owners,
 *          for 100 ms at most. The delays of several scans may follow each other.
 * Failure: if an owner fails, its keys are lost: calls for them return -EHOSTDOWN. A change that ends with
 *          -ETIMEDOUT or -EHOSTDOWN was made once, or will be, or was not made. Gets and scans continue while
 *          an owner is paused, as the reads of versioned objects do. Changes at it time out.
 * Caches:  without hardware coherence (region.h) open returns -EOPNOTSUPP.
 * Threads: any. The changes of an owner run one at a time, each as a SHORT handler (rpc.h) or in the calling
 *          thread. Do not use the tree in SHORT handlers.
 * Source:  ROMe, SPAA 2024: a B-link tree of objects with a base and a log. Differs in: a split is one
 *          commit, so nodes need no link to their neighbour; a scan reads one version; merges; several
 *          owners. docs/internals/tree.md describes the protocol.
 */
#pragma once

#include <remo/channel.h>

REMO_BEGIN

#define REMO_TREE_KEY_BYTES_MAX 1024u
#define REMO_TREE_VALUE_BYTES_MAX 3072u

struct remo_tree;

struct remo_tree_key {
    const void *data;
    size_t bytes;
};

struct remo_tree_options {
    struct remo_nodeset participants; /* empty: the parent's */
    struct remo_nodeset owners;       /* participants that hold keys; empty: all */
    /* The first keys of all owners but the first, in the order of owners: ascending, one less than owners, at
     * most key_bytes_max bytes each. NULL: the first 8 bytes, as a big-endian number, are divided evenly. */
    const struct remo_tree_key *boundaries;
    uint32_t nodes;      /* nodes of each owner's tree: 1 to 2^23; default 1024 */
    uint32_t node_bytes; /* 512 to 32768; default 4096 */
    /* With value_bytes_max, at most an eighth of node_bytes, and 4090. Default 64. */
    uint32_t key_bytes_max;
    uint32_t value_bytes_max; /* default 256 */
    /* Extents for earlier versions, as in versioned.h: at least 34. Default: `nodes` / 4 + 64. */
    uint32_t retain;
};

/* Open the tree `name` below `parent`; `options` may be NULL. The options are the same on every participant.
 * Does not wait for peers to open.
 * Errors:
 *   -EINVAL  an option is out of range, or the boundaries do not ascend
 *   others   those of remo_versioned_open and remo_rpc_open
 * If the options differ, remo_channel_wait and all calls return -EPROTO. */
REMO_API int remo_tree_open(struct remo_channel *parent, const char *name,
                            const struct remo_tree_options *options, struct remo_tree **ret_tree);
/* Close the tree. This node's keys are lost for all participants. NULL has no effect. */
REMO_API void remo_tree_close(struct remo_tree *tree);
REMO_API struct remo_channel *remo_tree_channel(struct remo_tree *tree);
/* Return the owner of a key. */
REMO_API uint32_t remo_tree_owner(const struct remo_tree *tree, const void *key, size_t key_bytes);

/* Copy the value of `key` to `value`. *ret_value_bytes is its size, also after -EMSGSIZE.
 * Errors:
 *   -ENOENT    there is no such key
 *   -EMSGSIZE  the value has more than `value_cap` bytes
 *   -EINVAL    an argument is NULL, or the key is longer than key_bytes_max
 *   others     those of remo_versioned_read */
REMO_API int remo_tree_get(struct remo_tree *tree, const void *key, size_t key_bytes, void *value,
                           size_t value_cap, size_t *ret_value_bytes);
/* Change the entry of a key: insert requires that the key is absent, update and remove that it is present.
 * Errors:
 *   -EEXIST     insert: the key is present
 *   -ENOENT     update, remove: the key is absent
 *   -ENOSPC     the owner has no free node; removals and updates of the same size still work
 *   -EINVAL     an argument is NULL, or the key or the value is too long
 *   -EBUSY      for op_timeout_ns, scans have delayed the change; it was not made
 *   -ETIMEDOUT  the owner did not answer for op_timeout_ns (see Failure)
 *   -ENOMEM     also: no memory at the owner; the change was not made
 *   others      those of remo_rpc_call */
REMO_API int remo_tree_insert(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                              size_t value_bytes);
REMO_API int remo_tree_update(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                              size_t value_bytes);
REMO_API int remo_tree_upsert(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                              size_t value_bytes);
REMO_API int remo_tree_remove(struct remo_tree *tree, const void *key, size_t key_bytes);

/* A range of keys. Zero: all. */
struct remo_tree_range {
    struct remo_tree_key from; /* the first key; data NULL: from the first one of the tree */
    struct remo_tree_key to;   /* the key after the last; data NULL: to the last one of the tree */
    uint64_t limit;            /* entries; 0: no limit */
};

/* The entries that a scan has copied. */
struct remo_tree_result {
    uint64_t entries;
    size_t bytes;    /* of the buffer that are used */
    int is_complete; /* 0: the buffer or the limit ended the scan; continue after the last key */
};

struct remo_tree_entry {
    struct remo_tree_key key, value; /* in the buffer */
};

/* Copy the entries of a range, in ascending order, to `buffer` of `cap` bytes, as of one instant. An entry
 * takes 4 bytes, the key and the value. After an error the contents of the buffer are undefined.
 * Errors:
 *   -EMSGSIZE   the first entry does not fit into the buffer
 *   -ETIMEDOUT  also: for op_timeout_ns the owners have changed so much that no version was retained during
 *               the scan: use a larger `retain`, or a smaller range
 *   -EINVAL     an argument is NULL, or `from` is after `to`
 *   others      those of remo_versioned_read and remo_rpc_call */
REMO_API int remo_tree_scan(struct remo_tree *tree, const struct remo_tree_range *range, void *buffer,
                            size_t cap, struct remo_tree_result *ret_result);
/* Step through the buffer of a scan: set *entry to the next entry; *offset is 0 at first. Returns 0 after the
 * last one. */
REMO_API int remo_tree_result_next(const void *buffer, const struct remo_tree_result *result, size_t *offset,
                                   struct remo_tree_entry *ret_entry);

REMO_END
