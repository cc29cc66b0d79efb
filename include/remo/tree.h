/* tree.h - an ordered map from byte strings to byte strings, divided by ranges of keys over its owners.
 *
 * Model:   keys are in the order of memcmp; a prefix is before longer keys. Each owner holds one range of
 *          keys in a B+-tree. The owner of a key executes the changes of that key. A scan returns the
 *          entries of a range of keys as of one instant, even if the range has several owners.
 * Use:     open the tree on all participants; remo_channel_wait; then get, change and scan from any of them.
 *          Make keys of numbers and several components with key.h. See examples/sensors.c.
 * Layout:  the nodes of an owner's tree are versioned objects (versioned.h) of that owner, of node_bytes
 *          bytes each. The root always has index 0. A node contains a header of 20 bytes, the limits of its
 *          range of keys (fences), and entries. If all entries of a leaf have the same sizes, it is compact:
 *          each entry has 9 bits of overhead, a hash of the key (fingerprint) and a mark. Otherwise each
 *          entry has 7 bytes: two sizes, an offset (slot), and a fingerprint. The entries are sorted, except
 *          those in the tail of a leaf: at most the last 8 new entries, in the order of their insertion, each
 *          with 6 bytes of overhead. A split, a merge or any
 *          other change of several nodes is one commit.
 *          Network memory: that of the versioned objects, and of rpc. Their log_bytes is node_bytes / 8, or
 *          three quarters of it if node_bytes is at least 4096 and memory is not mapped.
 *          Private memory, besides theirs: of an owner, a copy of each inner node, 34 more nodes, 12 bytes
 *          for each of `nodes`, 64 KiB, and copies of as many nodes as one apply or one call of remove_range
 *          has changed so far; of a load, 32 nodes; of each thread that reads, 2.1 node_bytes for each of up
 *          to 1024 inner nodes, and 16 nodes for each get or scan that its tasks run at the same time.
 * Cost:    network operations, where memory is not mapped. At the owner itself there are none. Reading a
 *          node of the tree takes 1 read, 2 the first time, and 3 after a move, or 2 if a scan has found the
 *          move with the version (versioned.h). Each thread caches the inner nodes that it reads.
 *          - get: 1 node, the leaf; also each inner node on the path that is not cached. If the cached nodes
 *            lead to a wrong leaf, after a split or a merge: all nodes on the path, again. In mapped memory
 *            a get reads only parts of the leaf: header, marks, fingerprints and fences, the entries whose
 *            fingerprint is that of the key, and the tail if the key is not among them;
 *          - get_many: as get for each key, with the leaves of up to 16 keys of one owner at the same time;
 *          - insert, update, upsert, remove, compare_put: 1 call (rpc.h), which is repeated while scans delay
 *            the change;
 *          - apply: 1 call for all its writes, repeated in the same way;
 *          - load: none, since an owner loads its own keys;
 *          - remove_range: 1 call for each 64 keys, and for the last keys of each owner;
 *          - start, poll, wait: as the single calls, at the same time;
 *          - cursor: a scan of one owner for each page;
 *          - scan of one owner: 1 read of the version, and the leaves, up to 15 below one parent at the same
 *            time. If the inner nodes are not cached, or lead to a wrong leaf: also 1 node for each level;
 *          - scan of a range of n owners: 2n reads of versions instead of 1. With a limit, a scan tries the
 *            first owner alone, which often suffices. If versions change between the reads in three
 *            attempts: also 1 call and 1 post for each owner whose version changes. The reads of versions
 *            and these calls run one after another;
 *          - scan or get as of a snapshot: the same without reads of versions; and 1 more read for each move
 *            of a node since the snapshot.
 * Order:   all calls are linearizable, except those as of a snapshot; of get_many and remove_range, each key
 *          is. A scan takes effect at one instant for all its owners.
 *          If the versions change in three attempts, a scan of several owners delays the changes of these
 *          owners, for 100 ms at most. The delays of several scans may follow one another.
 * Failure: if an owner fails, its keys are lost: calls for them return -EHOSTDOWN. If an owner has closed the
 *          tree, they return -ENOTCONN. After -ETIMEDOUT or -EHOSTDOWN the outcome of a change is unknown:
 *          the owner may have made it, or may still make it, once.
 *          While an owner is paused, changes of its keys time out. Gets and scans continue, as reads of
 *          versioned objects do: on ofi they wait for the owner, and can time out. A scan of several owners
 *          may wait op_timeout_ns / 8 for an owner that pauses during the scan.
 * Caches:  without hardware coherence (region.h) open returns -EOPNOTSUPP.
 * Threads: any. An owner executes one change at a time, in a SHORT handler (rpc.h) or in the calling thread.
 *          SHORT handlers and `done` functions must not use the tree. On shm gets, scans and changes of the
 *          caller's own keys also serve requests (remo_rpc_serve), so a call to a busy node needs no wake-up.
 *          Other changes, poll and wait serve on all fabrics while calls are in flight. So all of them may
 *          run SHORT handlers and `done` functions of all services: the caller must not hold a mutex that one
 *          of these acquires.
 * Source:  ROMe, SPAA 2024: a B-link tree of objects with a base and a log. Differs in: a split is one
 *          commit, so nodes need no link to their neighbour; a scan reads one version; nodes merge; a tree
 *          has several owners. docs/internals/tree.md describes the protocol.
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
    /* The first key of each owner except the first, in the order of the owners' ranks: ascending, and at most
     * key_bytes_max bytes each. The keys are copied. NULL: the values of a key's first 8 bytes,
     * as a big-endian number, are divided evenly among the owners. */
    const struct remo_tree_key *boundaries;
    uint32_t nodes;      /* nodes of each owner's tree: 1 to 2^23; default 1024 */
    uint32_t node_bytes; /* 512 to 32768; default 4096 */
    /* At most REMO_TREE_KEY_BYTES_MAX; default 64. The sum of key_bytes_max and value_bytes_max is at most
     * node_bytes / 8, and at most 4090. */
    uint32_t key_bytes_max;
    uint32_t value_bytes_max; /* at most REMO_TREE_VALUE_BYTES_MAX; default 256 */
    /* Extents for earlier versions (versioned.h), which scans read: 34 to 2^24 - `nodes`. Default:
     * `nodes` / 2 + 64. */
    uint32_t retain;
};

/* Open the tree `name` below `parent`; `options` may be NULL. The options are the same on every participant.
 * Does not wait for peers to open.
 * Errors:
 *   -EINVAL  `parent` or `ret_tree` is NULL, an option is out of range, or the boundaries do not ascend
 *   others   those of remo_versioned_open and remo_rpc_open
 * If the options of two participants differ, remo_channel_wait and all calls return -EPROTO. */
REMO_API int remo_tree_open(struct remo_channel *parent, const char *name,
                            const struct remo_tree_options *options, struct remo_tree **ret_tree);
/* Close the tree. This node's keys are lost for all participants: calls for them return -ENOTCONN. NULL has
 * no effect. */
REMO_API void remo_tree_close(struct remo_tree *tree);
REMO_API struct remo_channel *remo_tree_channel(struct remo_tree *tree);
/* Return the rank of the owner of a key, whether the key is present or not. */
REMO_API uint32_t remo_tree_owner(const struct remo_tree *tree, const void *key, size_t key_bytes);

/* One key of remo_tree_get_many. */
struct remo_tree_item {
    struct remo_tree_key key;
    void *value; /* has value_cap bytes */
    size_t value_cap;
    size_t value_bytes; /* set by the call; 0 if the key is absent */
    int status;         /* set by the call: 0, -ENOENT or -EMSGSIZE (see remo_tree_get) */
};

/* Copy the value of `key` to `value`. *ret_value_bytes is its size, also after -EMSGSIZE. Blocks as
 * remo_versioned_read does.
 * Errors:
 *   -ENOENT    the key is absent
 *   -EMSGSIZE  the value has more than `value_cap` bytes
 *   -EINVAL    an argument is NULL, or the key is longer than key_bytes_max
 *   others     those of remo_versioned_read */
REMO_API int remo_tree_get(struct remo_tree *tree, const void *key, size_t key_bytes, void *value,
                           size_t value_cap, size_t *ret_value_bytes);
/* Get several keys, each as of an instant of its own, and set value_bytes and status of each item. Read the
 * leaves of up to 16 keys at the same time, if they have the same owner and the inner nodes are cached;
 * otherwise one after another. In mapped memory the keys may have several owners: the CPU loads parts of
 * several leaves at the same time.
 * Blocks as remo_tree_get does.
 * Errors, after which the items are undefined: those of remo_tree_get except -ENOENT and -EMSGSIZE. */
REMO_API int remo_tree_get_many(struct remo_tree *tree, struct remo_tree_item *items, uint32_t count);
/* Change the entry of a key: insert requires that the key is absent, update and remove that it is present.
 * upsert inserts an absent key and updates a present one. Blocks until the owner has replied.
 * Errors:
 *   -EEXIST     insert: the key is present
 *   -ENOENT     update, remove: the key is absent
 *   -ENOSPC     the owner has no free node, or its tree has 16 levels. Removals, and updates by a value of
 *               the same size, still succeed; an update by a value of another size, also a shorter one, may
 *               need a free node
 *   -EINVAL     an argument is NULL, or the key or the value is too long
 *   -EBUSY      scans delayed the change for op_timeout_ns; it was not made
 *   -ETIMEDOUT  the owner did not reply for op_timeout_ns (see Failure)
 *   -ENOMEM     also: the owner has no memory; the change was not made
 *   others      those of remo_rpc_call */
REMO_API int remo_tree_insert(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                              size_t value_bytes);
REMO_API int remo_tree_update(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                              size_t value_bytes);
REMO_API int remo_tree_upsert(struct remo_tree *tree, const void *key, size_t key_bytes, const void *value,
                              size_t value_bytes);
REMO_API int remo_tree_remove(struct remo_tree *tree, const void *key, size_t key_bytes);
/* Replace the value of a key by `value` if it equals `expected`, in length and in every byte, as
 * remo_kv_compare_put does. The call compares values, not versions. To detect a value that changed and
 * changed back, keep a counter in it. Blocks as an update does.
 * Errors: those of remo_tree_update, and
 *   -ESTALE    the value differs from `expected`; nothing has changed
 *   -EMSGSIZE  the key and both values together have more than 4090 bytes; nothing has changed */
REMO_API int remo_tree_compare_put(struct remo_tree *tree, const void *key, size_t key_bytes,
                                   const void *expected, size_t expected_bytes, const void *value,
                                   size_t value_bytes);

enum remo_tree_kind {
    REMO_TREE_INSERT,
    REMO_TREE_UPDATE,
    REMO_TREE_UPSERT,
    REMO_TREE_REMOVE,
    REMO_TREE_COMPARE_PUT,
    REMO_TREE_GET /* only of a window, not of an apply */
};

#define REMO_TREE_WRITES_MAX 64u /* of one remo_tree_apply */

/* One write of remo_tree_apply: the change of the function with the same name. */
struct remo_tree_write {
    enum remo_tree_kind kind;
    struct remo_tree_key key;
    struct remo_tree_key value;    /* not of a remove */
    struct remo_tree_key expected; /* only of a compare_put */
};

/* Make all writes at one instant, or none. All keys must have the same owner (remo_tree_owner). The writes
 * are made in the order of the array: each write sees the effects of the writes before it. A scan, a get or a
 * snapshot sees all of them or none. Blocks as an update does. *ret_failed (may be NULL) is the index of the
 * write that caused an error, otherwise `count`.
 * The owner makes the writes in one SHORT handler, so their size is limited. All keys, values and expected
 * values, and 8 bytes for each write, have at most 4096 bytes together. The writes change at most 256 nodes.
 * At most `retain` nodes can have changes that exceed their log. These are each node that is new, split or
 * merged, the parent of a node that is split or merged, and each leaf whose entries are sorted again to make
 * room. Changes of entries of more than node_bytes / 16 bytes can also exceed the log, and with nodes of 512
 * bytes most inserts do. For example, 64 writes that split 64 leaves make at least 129 such nodes. A node
 * that a write drops can be used again only after the apply.
 * Errors: after an error other than -ETIMEDOUT and -EHOSTDOWN (see Failure), nothing has changed.
 *   -EEXIST, -ENOENT, -ESTALE, -ENOSPC  write *ret_failed fails, as in the function of the same name
 *   -EXDEV     the owner of the key of write *ret_failed is not that of the first key
 *   -EMSGSIZE  the writes are too large, or change too many nodes; apply fewer at once
 *   -EINVAL    an argument is NULL, `count` is 0 or more than REMO_TREE_WRITES_MAX, or in write *ret_failed
 *              the kind is unknown, or a key or value is NULL or too long
 *   others     those of remo_tree_update */
REMO_API int remo_tree_apply(struct remo_tree *tree, const struct remo_tree_write *writes, uint32_t count,
                             uint32_t *ret_failed);

struct remo_tree_entry {
    struct remo_tree_key key, value; /* of a scan, both point into the buffer */
};

/* Load sorted data at their owner: insert the entries that `next` returns. `next` sets *ret_entry to the next
 * entry and returns 1, or returns 0 after the last one; a negative code ends the load. Keys ascend, belong to
 * this node, and are absent. *ret_count (may be NULL) is the number of entries that were loaded, also after
 * an error: those are the first entries of the input.
 * Shape: the load collects entries for up to 16 leaves, copies them, and makes these leaves at one instant.
 * So a scan or a snapshot sees the first entries of the input, up to the end of some leaf. A leaf is filled
 * to fill_percent of its room, 50 to 100 (0: 90), so that later inserts of entries of the same sizes do not
 * split it. An entry of another size may split it: then it needs a free node. Inner nodes are full. If the
 * tree has keys between the first and the last key of a new leaf, its entries are inserted one by one. So a
 * load into an empty tree, or behind the last key, is fastest.
 * Memory: if all entries of a leaf have the same sizes, an entry of 8 + 8 bytes takes 17.2 bytes of a leaf.
 * With nodes of 4096 bytes, with all headers, inner nodes and logs, it takes 19.9 bytes of network memory at
 * 100 percent, and 22.2 at 90, besides `retain`.
 * Threads: any, even several loads at once. `next` runs in the calling thread, and may block and use the
 * tree. The load holds the owner's mutex while it makes up to 16 leaves, but never while `next` runs: other
 * changes wait for that time at most. The load waits as an insert does while scans delay changes.
 * Each commit moves up to 16 leaves and their inner nodes (versioned.h): for long scans beside a load, open
 * the tree with a larger `retain`.
 * Errors:
 *   -EINVAL    an argument is NULL, fill_percent is out of range, a key is not above the one before, or a key
 *              or a value is NULL or too long. The sentence has the key and its position in the input
 *   -EPERM     this node is not an owner
 *   -EXDEV     another node owns the key of the next entry; load it there
 *   -EEXIST    the tree has the key of the next entry
 *   -ENOSPC    no node is free for the next leaf, or the tree has 16 levels: remove keys and load the rest,
 *              or open the tree with more nodes
 *   -EMSGSIZE  16 leaves and their inner nodes are more than `retain` nodes: open with a larger `retain`
 *   -EBUSY     scans delayed the load for op_timeout_ns
 *   -ENOMEM    this node has no memory
 *   others     the negative code of `next`, and those of remo_versioned_commit */
REMO_API int remo_tree_load(struct remo_tree *tree, int (*next)(void *ctx, struct remo_tree_entry *ret_entry),
                            void *ctx, uint32_t fill_percent, uint64_t *ret_count);

enum {
    REMO_TREE_DESCENDING = 1,    /* from the last key of the range to the first */
    REMO_TREE_KEYS_ONLY = 2,     /* copy keys without values */
    REMO_TREE_FROM_EXCLUDED = 4, /* `from` itself is not in the range */
    REMO_TREE_TO_INCLUDED = 8    /* `to` itself is in the range */
};

/* The present keys k with from <= k < to, or as the flags state. A zeroed struct is the range of all keys. */
struct remo_tree_range {
    struct remo_tree_key from; /* data NULL: begin at the first key of the tree */
    struct remo_tree_key to;   /* data NULL: end after the last key of the tree */
    uint64_t limit;            /* the maximum number of entries; 0: no limit */
    uint32_t flags;            /* REMO_TREE_... */
    const uint64_t *snapshot;  /* of remo_tree_snapshot; NULL: scan as of an instant of the call */
};

/* The entries that a scan has copied. */
struct remo_tree_result {
    uint64_t entries;
    size_t bytes;    /* used in the buffer */
    int is_complete; /* 0: the buffer or the limit ended the scan before the end of the range */
};

/* Copy the entries of a range, in the order of keys, to `buffer` of `cap` bytes, as of one instant. `range`
 * may be NULL: all keys, ascending. An entry takes 4 bytes more than its key and value. To continue an
 * incomplete scan, set `from` to the last key that was copied, with REMO_TREE_FROM_EXCLUDED; descending, set
 * `to` to it. The continuation is as of a later instant, or with a snapshot as of the same one. Blocks as
 * remo_versioned_read does, and repeats attempts for op_timeout_ns. Bytes of the buffer after the entries may
 * be overwritten, up to `cap`. After an error the contents of the buffer are undefined.
 * Errors:
 *   -EMSGSIZE   the first entry does not fit into the buffer
 *   -ETIMEDOUT  also: for op_timeout_ns an owner had not opened the tree, or owners changed so fast that no
 *               attempt succeeded: use a larger `retain`, or a smaller range
 *   -ESTALE     an owner does not retain its version of the snapshot any more
 *   -EINVAL     `tree`, `buffer` or `ret_result` is NULL, `from` is after `to`, one of them is longer than
 *               key_bytes_max, a flag is unknown, or the snapshot is not one of this tree
 *   others      those of remo_versioned_read and remo_rpc_call */
REMO_API int remo_tree_scan(struct remo_tree *tree, const struct remo_tree_range *range, void *buffer,
                            size_t cap, struct remo_tree_result *ret_result);
/* Remove the keys of a range, `limit` at most, ascending. `range` has no snapshot, and of the flags only
 * REMO_TREE_FROM_EXCLUDED and REMO_TREE_TO_INCLUDED. *ret_count (may be NULL) is the number of keys that
 * were removed, also after an error. The owners of the range are called one after another. An owner removes
 * up to 64 keys at one instant, those that are present when it executes the call. So the range is not
 * removed at one instant, and a key that another caller inserts meanwhile may remain. Needs no free node.
 * Cost: 1 call for each 64 keys and for the last of an owner. A call removes fewer keys if their nodes exceed
 * the limits of an apply.
 * Errors, after which keys up to some place of the range are removed:
 *   -EINVAL     `tree` or `range` is NULL, or the range is wrong
 *   -EBUSY      scans delayed a call for op_timeout_ns
 *   -ETIMEDOUT  an owner did not reply: it has removed up to 64 keys more than *ret_count, or will do so
 *   -ENOMEM     also: an owner has no memory; as after -ETIMEDOUT
 *   others      those of remo_rpc_call */
REMO_API int remo_tree_remove_range(struct remo_tree *tree, const struct remo_tree_range *range,
                                    uint64_t *ret_count);
/* Count the entries of a range, `limit` at most, as of one instant. Cost: that of a scan.
 * Errors: those of remo_tree_scan. */
REMO_API int remo_tree_count(struct remo_tree *tree, const struct remo_tree_range *range,
                             uint64_t *ret_count);
/* Step through the buffer of a scan: set *ret_entry to the next entry and return 1, or return 0 after the
 * last entry. Set *offset to 0 before the first call. */
REMO_API int remo_tree_result_next(const void *buffer, const struct remo_tree_result *result, size_t *offset,
                                   struct remo_tree_entry *ret_entry);

/* ---- cursors ----
 *
 * A cursor returns the entries of a range one by one. It reads them by scans into its buffer, in pages of 32,
 * 128, 512 entries and so on, buffer_bytes / 16 at most, as far as they fit. The first page after a seek, or
 * in the other direction, has 32 entries again.
 * A page is as of one instant of the call that reads it. If the range has a snapshot, all pages are as of the
 * snapshot, and a step can fail with -ESTALE. Without a snapshot no step returns -ESTALE. In steps of one
 * direction, a key that is present from the first step to the last is returned exactly once, unless its owner
 * fails. A key that is inserted or removed meanwhile is returned at most once.
 * Cost:    a step inside a page: no network operation, and about 6 ns. Another page: a scan of one owner,
 *          even if the range has several. A page has entries of one owner; an owner without entries in the
 *          range costs a scan too.
 * Memory:  a cursor allocates all its memory when it is opened: buffer_bytes, a quarter more, four times
 *          key_bytes_max, and a copy of the snapshot.
 * Threads: one at a time for each cursor. The tree must stay open. */

struct remo_tree_cursor;

/* Open a cursor over a range; `range` may be NULL: all keys, ascending. The cursor has copies of the keys and
 * the snapshot of the range. It returns `limit` entries at most, in both directions together. After them each
 * step returns 0, and does not move the cursor. buffer_bytes is at most 2^30; 0: 65536. A buffer of
 * 4 + key_bytes_max + value_bytes_max bytes has room for any entry. Does not block.
 * Errors:
 *   -EINVAL  `tree` or `ret_cursor` is NULL, the range is wrong (remo_tree_scan), or the buffer is too large
 *   -ENOMEM  no memory */
REMO_API int remo_tree_cursor_open(struct remo_tree *tree, const struct remo_tree_range *range,
                                   size_t buffer_bytes, struct remo_tree_cursor **ret_cursor);
/* Move to the next entry of the range and return 1, or return 0 after the last entry. `prev` moves to the
 * previous entry, or returns 0 before the first one. In a range with REMO_TREE_DESCENDING, `next` moves to
 * smaller keys. After an open, `next` moves to the first entry, and `prev` to the last. After a step beyond
 * the last or first entry, a step in the other direction returns that entry.
 * The key and the value of *ret_entry are in the buffer, and valid until the next call for the cursor. Blocks
 * as remo_tree_scan does.
 * Errors: except after -EHOSTDOWN and -ENOTCONN, the cursor has not moved, so the next call tries again.
 *   -EHOSTDOWN, -ENOTCONN  the owner of the next keys has failed, or has closed the tree. The cursor moves
 *                          beyond the keys of this owner: the next call continues with the next owner, or
 *                          returns 0
 *   -EMSGSIZE              the next entry does not fit into the buffer
 *   -ESTALE                the owner does not retain its version of the snapshot any more
 *   others                 those of remo_tree_scan */
REMO_API int remo_tree_cursor_next(struct remo_tree_cursor *cursor, struct remo_tree_entry *ret_entry);
REMO_API int remo_tree_cursor_prev(struct remo_tree_cursor *cursor, struct remo_tree_entry *ret_entry);
/* Move just before `key`, so that `next` returns its entry or, if the key is absent, the first one after it.
 * `prev` returns the entry before `key`. If `key` is outside the range, move to the nearer end of the range.
 * NULL with key_bytes = 0: as after the open. Does not block. The next step reads a page of 32 entries at
 * most.
 * Errors:
 *   -EINVAL  `cursor` is NULL, or the key is longer than key_bytes_max, or NULL while key_bytes is not 0 */
REMO_API int remo_tree_cursor_seek(struct remo_tree_cursor *cursor, const void *key, size_t key_bytes);
/* Close the cursor, also after the tree was closed. NULL has no effect. */
REMO_API void remo_tree_cursor_close(struct remo_tree_cursor *cursor);

/* ---- a window of operations ----
 *
 * An operation, its key and its values are in the caller's memory, and must stay in place while the status of
 * the operation is -EINPROGRESS. A thread may start any number of operations. Only poll and wait advance
 * them: all operations of the thread on the tree together. They are concurrent with each other. A thread must
 * complete its operations before it ends, and before the tree closes. A task counts as a thread here.
 * Poll until all are complete: a change whose owner has replied still takes one of the 320 calls in flight of
 * this node (rpc.h) until a poll, and one of the 64 of this thread. So 64 changes at an owner that does not
 * answer delay the changes at other owners, and a task must not wait for a change while it waits, in another
 * way, for a task that has 64 in flight and does not poll.
 * Cost:   that of the single calls. The calls of up to 64 changes of keys of other nodes overlap: 64 for a
 *         thread with its tasks. They are in flight while gets are read. Gets are read as those of
 *         remo_tree_get_many, 16 at a time.
 * Memory: a thread with its tasks allocates up to 64 requests, when it first has as many changes in flight.
 *         Each has key_bytes_max + 2 * value_bytes_max bytes, 4096 at most, and about 210 bytes. They are
 *         freed when the tree closes. */

struct remo_tree_op {
    enum remo_tree_kind kind; /* in */
    const void *key;          /* in */
    size_t key_bytes;         /* in */
    void *value;              /* in (changes) or out (get) */
    size_t value_bytes;       /* in: length, or capacity (get); out (get): length */
    int status;               /* out: -EINPROGRESS until the operation is complete */
    uint64_t internal[8];     /* the library's */
    const void *expected;     /* in (compare_put) */
    size_t expected_bytes;    /* in (compare_put) */
};

/* Start an operation: the single call of the same name. Does not block.
 * Errors (op->status has them too):
 *   -EINVAL    an argument is NULL, the kind is unknown, or the key or a value is too long
 *   -EMSGSIZE  compare_put: the key and both values are too long
 *   -EPROTO    the options of participants differ
 *   -EAGAIN    too many threads use the node
 *   -ENOMEM    no memory for the state of the thread */
REMO_API int remo_tree_start(struct remo_tree *tree, struct remo_tree_op *op);
/* Advance this thread's operations on the tree: start the calls of changes, make the changes of this node's
 * own keys, complete the gets, and complete the changes whose owners have replied. Blocks for the gets, as
 * remo_tree_get_many does. Does not wait for replies to changes. Later polls repeat changes that scans
 * delay.
 * Returns the number of operations in flight, or -errno.
 * Errors:
 *   -EAGAIN  too many threads use the node
 *   -ENOMEM  no memory for the state of the thread */
REMO_API int remo_tree_poll(struct remo_tree *tree);
/* Wait until `op` is complete, and return its status. Advances all operations of the thread, as poll does.
 * Errors: those of the single call and of remo_tree_poll, and
 *   -EPERM  another thread or task has started it */
REMO_API int remo_tree_wait(struct remo_tree *tree, struct remo_tree_op *op);

/* Return the number of owners. */
REMO_API uint32_t remo_tree_owners(const struct remo_tree *tree);
/* Make a snapshot: the versions of all owners at one instant, remo_tree_owners words. They are plain data,
 * which other nodes can use too. The tree can be read as of this instant until an owner has moved `retain`
 * of its nodes. A node moves when its log is full, and when it is split or merged.
 * Cost: 2 reads for each owner; with a single owner 1 read. If versions change meanwhile: as for a scan.
 * Errors: those of remo_tree_scan. */
REMO_API int remo_tree_snapshot(struct remo_tree *tree, uint64_t *ret_versions);
/* Copy the value of `key` as of a snapshot. Errors: those of remo_tree_get, and
 *   -ESTALE  the owner does not retain its version of the snapshot any more */
REMO_API int remo_tree_get_at(struct remo_tree *tree, const uint64_t *snapshot, const void *key,
                              size_t key_bytes, void *value, size_t value_cap, size_t *ret_value_bytes);

struct remo_tree_owner_stats {
    uint32_t nodes, nodes_max; /* of this owner: used, and available */
    uint32_t levels;
    uint64_t version; /* grows by 1 with each change */
};
/* Set *ret_stats to the state of this node's keys.
 * Errors:
 *   -EPERM   this node is not an owner
 *   -EINVAL  an argument is NULL */
REMO_API int remo_tree_stats(struct remo_tree *tree, struct remo_tree_owner_stats *ret_stats);

REMO_END
