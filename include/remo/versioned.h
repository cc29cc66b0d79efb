/* versioned.h - tables of objects of up to 1 MiB: one node changes the objects of its table, and any
 * node reads them, whole or in part, without waiting for that node.
 *
 * Model:   each owner has a table of `objects` objects of object_bytes bytes, initially zero. The
 *          version of an owner is the number of its commits. A commit changes ranges of one or
 *          several objects of its owner at one instant. A read returns an object as of the owner's
 *          newest version. A read of several objects returns all of them as of one version of their
 *          owner. A read can also return an object as of an earlier version.
 * Layout:  an extent is memory for one object: {header of 64 bytes; records; base[object_bytes]}. The
 *          base is the contents of the object at one version. A commit appends a record for each
 *          range: {u64 version, range, seal; data}. A seal is a checksum of a base or a record. The
 *          head, the first word of the header, counts the words of records. The directory has two
 *          words for each object: the location of its extent, and how much of the base is used. If the
 *          records of a commit do not fit, the owner moves the object: it writes the contents as the
 *          base of another extent, and stores the location of that extent in the directory. The former
 *          extent is superseded. It is retained, so that earlier versions can be read, until it is used
 *          again (see Limit).
 *          Memory of an owner: 512 bytes with the version and the last 63 moves; 16 bytes for each object;
 *          and (objects + retain) extents of 64 + object_bytes + log_bytes bytes, rounded up to 64. Other
 *          nodes provide none. Private memory of an owner: 40 bytes for each object, 8 for each
 *          extent, 4 for each retained extent, and 1 extent.
 *          Private memory of a reader: 16 bytes for each object of an owner from which it reads; in
 *          each thread, a buffer of an extent's size for each object that is read at the same time,
 *          up to 16 for each call. A thread keeps the buffers if an extent has at most 64 KiB.
 * Cost:    commit: no network operation. A move copies the object and its records twice.
 *          read: no network operation at the owner. At other nodes:
 *          - 1 read, of the extent, if this node has read the object before;
 *          - 2 reads the first time: the directory and the extent;
 *          - 3 reads after a move: the superseded extent, the directory and the current extent;
 *          - 1 more read of 8 bytes if a commit is changing the object, and 1 more of an extent if the
 *            records of this commit exceed log_bytes.
 *          In mapped memory, a read of an extent counts as 1 read. It copies the header and the records,
 *          and then the base, or the parts of it that a visitor needs. After each of these two steps it
 *          reads the head again.
 *          read_many: as version, and then as read for each object, 16 objects at the same time.
 *          visit, visit_many: as read_at and read_many_at. visit_each: as read for each object, 16 objects at
 *          the same time. In mapped memory, visit_many also loads the first 2 KiB of the next object and 384
 *          bytes of its header and records into the cache during the visit of one. visit_each loads the first
 *          256 bytes of each base, and 384 bytes of header and records, before it reads them.
 *          read_at: as read; at most 1 more read of an extent for each move of the object since
 *          `version`; and 1 read of 8 bytes if this node has not found yet that the owner has reached
 *          `version`.
 *          read_many_at: as read_at for each object, 16 objects at the same time.
 *          version: 1 read; at the owner none. Where memory is not mapped, this read also has the last 63
 *          moves of the owner. The next read of an object whose known extent is in this list takes 2 reads
 *          instead of 3: it does not read the superseded extent.
 *          A read that starts again (see Limit) repeats these reads. A read of more than 8 KiB may be
 *          split, as in region.h. Where memory is not mapped, a read transfers the whole extent, with
 *          the space that no record uses yet, but without the zeros at the end of the base: they do not
 *          change until the object moves. An extent of an earlier version is transferred with these zeros,
 *          and one whose object moves while its directory entry is read. The read verifies the seals
 *          of the base and of the records that it uses.
 * Order:   linearizable: the commits of an owner, and read, read_many and version of it, take effect
 *          in one order, which agrees with real time. A commit is visible to all nodes when it
 *          returns. A read of several objects has one owner: no call reads the objects of several
 *          owners as of one instant.
 * Caches:  works without hardware coherence (see region.h): each line has one writer.
 * Failure: if the owner's process is paused, even during a commit, reads continue and return the
 *          state after the last visible commit. On ofi the owner's process serves reads: there they
 *          wait for it, and can time out. If the owner has failed, its objects are lost, and reads
 *          return -EHOSTDOWN. If the owner has closed the table, they return -ENOTCONN. A failure of
 *          another participant has no effect.
 * Limit:   the `retain`-th move after the one that superseded an extent uses the extent again. The
 *          moves of all objects of the owner count; a commit moves each object that it changes once
 *          at most. If an extent is used again during a read of it, the read starts again. If
 *          the extent of an earlier version has been used again, the object cannot be read as of that
 *          version any more (-ESTALE). So a paused reader neither delays the owner nor occupies
 *          memory. An extent can be used 2^40 - 1 times.
 * Threads: any, concurrently. The threads of an owner commit one at a time. If a commit depends on an
 *          earlier read, the program must prevent commits of other threads in between.
 * Source:  ROMe, SPAA 2024: base, log, compaction. Differs in: 1 read instead of 2, because seals
 *          distinguish whole records from others; a directory, by which a reader finds an object that
 *          has moved; versions, by which several objects are read as of one instant; extents are used
 *          again. docs/internals/versioned.md describes the protocol.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_VERSIONED_BYTES_MAX (1u << 20)   /* of an object */
#define REMO_VERSIONED_OBJECTS_MAX (1u << 23) /* of an owner */
#define REMO_VERSIONED_NEWEST UINT64_MAX      /* for remo_versioned_read_at: the newest version */

struct remo_versioned;

struct remo_versioned_options {
    struct remo_nodeset participants; /* empty: the parent's */
    struct remo_nodeset owners;       /* participants that have objects; empty: all */
    uint32_t objects;                 /* of each owner; default 64 */
    uint32_t object_bytes;            /* of each object; default 1024 */
    /* Bytes for the records of an extent: 32 to 2^25 - 8; default: 256 and a quarter of object_bytes. A
     * record has 24 bytes and its data, padded to 8. */
    uint32_t log_bytes;
    uint32_t retain; /* extents for earlier versions; default 64; at most 2^24 - objects */
};

/* One change of a commit: `size_bytes` bytes at `offset` of an object. */
struct remo_versioned_change {
    uint32_t object;
    uint32_t offset;
    uint32_t size_bytes; /* at least 1 */
    const void *data;
};

/* One object of remo_versioned_read_many, remo_versioned_read_many_at, remo_versioned_visit_many and
 * remo_versioned_visit_each. */
struct remo_versioned_item {
    uint32_t object;
    void *value;      /* object_bytes bytes; for the visits: the `ctx` of the visitor */
    uint64_t version; /* set by the call: of the last commit that changed the object; 0: none */
};

/* Open the owners' tables `name` below `parent`; `options` may be NULL. The options are the same on every
 * participant. Does not wait for peers to open.
 * Errors:
 *   -EINVAL  an option is out of range
 *   others   those of remo_channel_open, remo_channel_add_memory and remo_channel_join */
REMO_API int remo_versioned_open(struct remo_channel *parent, const char *name,
                                 const struct remo_versioned_options *options,
                                 struct remo_versioned **ret_versioned);
/* Close the tables. This node's objects are lost for all participants. NULL has no effect. */
REMO_API void remo_versioned_close(struct remo_versioned *versioned);
REMO_API struct remo_channel *remo_versioned_channel(struct remo_versioned *versioned);

/* Make all changes at one instant; where ranges overlap, the later change applies. Only an owner calls this.
 * *ret_version (may be NULL) is the new version. Waits for commits of other threads of this node, but not for
 * the network. After an error nothing has changed.
 * Errors:
 *   -EPERM     this node is not an owner
 *   -EINVAL    an argument is NULL, `count` is 0, there is no such object, or a range is empty or outside its
 *              object
 *   -EMSGSIZE  the records of more than `retain` objects exceed log_bytes
 *   -EPROTO    a participant has opened something else under this name */
REMO_API int remo_versioned_commit(struct remo_versioned *versioned,
                                   const struct remo_versioned_change *changes, uint32_t count,
                                   uint64_t *ret_version);
/* Read an object of `owner` into `value`, which has object_bytes bytes. *ret_version (may be NULL) is the
 * version of the last commit that changed the object, or 0. Blocks until its reads are complete; each waits
 * for op_timeout_ns at most, also for an owner that has not opened the table. After an error the contents of
 * `value` are undefined.
 * Errors:
 *   -EINVAL     an argument is NULL, node `owner` is not an owner, or there is no such object
 *   -EHOSTDOWN  the owner has failed
 *   -ENOTCONN   the owner has closed the table
 *   -ETIMEDOUT  the owner does not answer, or has not opened the table; or for op_timeout_ns the owner has
 *               moved objects so fast that no read succeeded: use a larger `retain`
 *   -EPROTO     the owner's memory is damaged, or the owner has opened something else under this name
 *   -EAGAIN     too many threads use the node
 *   -ENOMEM     no memory for a buffer or for locations */
REMO_API int remo_versioned_read(struct remo_versioned *versioned, uint32_t owner, uint32_t object,
                                 void *value, uint64_t *ret_version);
/* Read `count` objects of `owner` as of one instant. *ret_version (may be NULL) is the owner's version at
 * this instant. Blocks as remo_versioned_read does. After an error, all values and versions are undefined.
 * Errors: those of remo_versioned_read. */
REMO_API int remo_versioned_read_many(struct remo_versioned *versioned, uint32_t owner,
                                      struct remo_versioned_item *items, uint32_t count,
                                      uint64_t *ret_version);
/* Read the version of `owner`. Cost: 1 read of 512 bytes; in mapped memory of 8 bytes; at the owner none.
 * Errors: those of remo_versioned_read. */
REMO_API int remo_versioned_version(struct remo_versioned *versioned, uint32_t owner, uint64_t *ret_version);
/* Read an object as of `version`: a version that any call above has returned on any node, or
 * REMO_VERSIONED_NEWEST. So several nodes can read the same state of an owner. Otherwise like
 * remo_versioned_read.
 * Errors:
 *   -ESTALE  the owner has used the extent of this version again
 *   -EINVAL  also: the owner has not reached this version
 *   others   those of remo_versioned_read */
REMO_API int remo_versioned_read_at(struct remo_versioned *versioned, uint32_t owner, uint32_t object,
                                    uint64_t version, void *value, uint64_t *ret_version);
/* Read `count` objects of `owner` as of `version`, which is not REMO_VERSIONED_NEWEST. After an error, all
 * values and versions are undefined.
 * Errors: those of remo_versioned_read_at. */
REMO_API int remo_versioned_read_many_at(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                                         struct remo_versioned_item *items, uint32_t count);

/* The contents of an object, for the duration of a visit. */
struct remo_versioned_view;

/* A visitor: remo_versioned_visit calls it with the object as of one instant. It copies the parts that it
 * needs by remo_versioned_view_..., and returns. It must not call other functions of the library. If the
 * extent is used again during a call, the parts that it copies may not belong together. Then it is called
 * again, and only its last call counts. So it must check each offset that it copies before it uses the
 * offset, and must not loop without limit. */
typedef void remo_versioned_visitor(void *ctx, const struct remo_versioned_view *view);

/* Read parts of an object: call `visit`. For example, a program can search an object without copying it.
 * Otherwise like remo_versioned_read_at, also in cost. In mapped memory the call reads only the header, the
 * records, and the parts that the visitor copies. After an error, the parts that it has copied are undefined.
 * Errors: those of remo_versioned_read_at. */
REMO_API int remo_versioned_visit(struct remo_versioned *versioned, uint32_t owner, uint32_t object,
                                  uint64_t version, remo_versioned_visitor *visit, void *ctx,
                                  uint64_t *ret_version);
/* Visit `count` objects of `owner`: read 16 of them at the same time, and call `visit` for one after another,
 * in the order of the items, with items[i].value as `ctx`. The last call for an item precedes the first call
 * for the next one. All objects are read as of `version`, or with REMO_VERSIONED_NEWEST each as of an instant
 * of its own. The call sets the version of each item.
 * Errors: those of remo_versioned_read_at. */
REMO_API int remo_versioned_visit_many(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                                       remo_versioned_visitor *visit, struct remo_versioned_item *items,
                                       uint32_t count);
/* Visit `count` objects of `owner`, each as of an instant of its own, in two steps: call `prepare` and later
 * `visit` for each of them, with items[i].value as `ctx`. Both see the same state of the object. Between the
 * two calls, other objects are prepared and visited. So if `prepare` announces what `visit` copies
 * (remo_versioned_view_prefetch), the CPU loads parts of several objects at the same time, in mapped memory.
 * Both may be called again for an object: the last call of `visit`, and the last call of `prepare` before it,
 * count. The order of the objects is undefined. The call sets the version of each item.
 * Errors: those of remo_versioned_read. */
REMO_API int remo_versioned_visit_each(struct remo_versioned *versioned, uint32_t owner,
                                       remo_versioned_visitor *prepare, remo_versioned_visitor *visit,
                                       struct remo_versioned_item *items, uint32_t count);
/* Copy `bytes` bytes at `offset` of the object to `dst`. No effect if they are outside the object. */
REMO_API void remo_versioned_view_copy(const struct remo_versioned_view *view, uint32_t offset, void *dst,
                                       size_t bytes);
/* Announce that the visitor will copy bytes at `offset`. In mapped memory, the CPU can then load the bytes at
 * several offsets at the same time. */
REMO_API void remo_versioned_view_prefetch(const struct remo_versioned_view *view, uint32_t offset);
/* Return the version of the last commit that changed the object, or 0. */
REMO_API uint64_t remo_versioned_view_version(const struct remo_versioned_view *view);

REMO_END
