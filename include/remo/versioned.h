/* versioned.h - tables of objects of any size: one node writes a table, and any node reads its objects
 * whole, without waiting for the writer.
 *
 * Model:   each owner has `objects` objects of object_bytes bytes, initially zero, and one version,
 *          initially 0. A commit changes ranges of one or several of its own objects and raises the
 *          version by one. A read returns one object after the last commit before it. A read of
 *          several objects, or of an older version, returns the objects of one owner as of one
 *          version.
 * Layout:  an object is in an extent: {header of 40 bytes; base[object_bytes]; records}. Each commit
 *          appends a record for each range: {u64 version; u32 offset, size; u64 seal; data}. One
 *          word of the header counts the records. When the extent is full, or the records of a
 *          commit exceed log_bytes, the owner moves the object: it writes a new base to another
 *          extent, and changes the object's word in the directory. Memory of an owner: 8 bytes for each object, and (objects + retain) extents
 *          of 40 + object_bytes + log_bytes; other nodes provide none. A node that reads has 8
 *          private bytes for each object of an owner, and each of its threads up to 16 buffers of
 *          an extent's size, if that is at most 64 KiB.
 * Cost:    commit: no network operation. A move copies object_bytes twice.
 *          read: none at the owner; at other nodes:
 *          - 1 read of the extent if this node has read the object before; 2 the first time; 3
 *            after the object has moved;
 *          - 1 read of 8 bytes more if the object is being changed; 2 reads of extents more if its
 *            records exceed log_bytes;
 *          - in mapped memory a read of the extent is 2 or 3 reads: the base, the records if there
 *            are any, and the extent's first word again.
 *          read_many: 1 read of the version, and then those of the objects, 16 at the same time.
 *          read_at: as read; 1 read more for each move of the object since `version`, and 1 read of
 *          8 bytes if no read of this node has found yet that the owner has reached `version`.
 *          read_many_at: the reads of read_at for all objects, 16 at the same time.
 *          Extents larger than 8 KiB may be split, as in region.h. Where memory is not mapped, a
 *          read transfers the complete extent, and checks the seals of all that it uses.
 * Order:   linearizable: commits and reads of one owner take effect in one order that agrees with
 *          time. A commit is visible to all nodes when it returns. Objects of several owners are
 *          independent.
 * Caches:  works without hardware coherence (see region.h): each line has one writer.
 * Failure: if the owner stops, even during a commit, reads continue and return the last visible
 *          commit. (On ofi, the owner's process serves reads.) If it has failed, its objects are lost, and
 *          reads return -EHOSTDOWN (-ENOTCONN if it closed the object). A failure of another
 *          participant has no effect.
 * Limit:   an extent that an object has left is used again in the `retain`-th move after that; a
 *          commit moves at most each object that it changes. A read during which that happens
 *          starts again; an object at a version that needs the extent cannot be read any more
 *          (-ESTALE). So a stopped reader neither delays the owner nor needs memory. An extent can
 *          be used 2^40 times.
 * Threads: any. Commits of several threads of the owner take turns. A thread that commits what
 *          depends on what it read excludes others itself.
 * Source:  ROMe, SPAA 2024: base, log, compaction. Differs in: 1 read instead of 2, because seals
 *          tell whole records from others; a directory, so that a moved object is found; versions,
 *          so that several objects can be read as of one instant; memory is used again. The
 *          protocol is described in docs/internals/versioned.md.
 */
#pragma once

#include <remo/region.h>

REMO_BEGIN

#define REMO_VERSIONED_BYTES_MAX (1u << 20)   /* of an object */
#define REMO_VERSIONED_OBJECTS_MAX (1u << 23) /* of an owner */
#define REMO_VERSIONED_NEWEST UINT64_MAX      /* as a version: the newest one */

struct remo_versioned;

struct remo_versioned_options {
    struct remo_nodeset participants; /* empty: the parent's */
    struct remo_nodeset owners;       /* participants that have objects; empty: all */
    uint32_t objects;                 /* of each owner; default 64 */
    uint32_t object_bytes;            /* of each object; default 1024 */
    /* Of the records of an extent: each has 24 bytes and its data, padded to 8. 32 to 2^25 - 8; default: 256
     * and a quarter of object_bytes. */
    uint32_t log_bytes;
    uint32_t retain; /* extents for older states; default 64; at most 2^24 - objects */
};

/* One change of a commit: `size_bytes` bytes at `offset` of an object. */
struct remo_versioned_change {
    uint32_t object;
    uint32_t offset;
    uint32_t size_bytes; /* at least 1 */
    const void *data;
};

/* One object of remo_versioned_read_many. */
struct remo_versioned_item {
    uint32_t object;
    void *value;      /* object_bytes bytes */
    uint64_t version; /* set by the call: of the last commit that changed the object; 0: none did */
};

/* Open the tables `name` below `parent`; `options` may be NULL. The options are the same on every
 * participant. Does not wait for peers to open.
 * Errors:
 *   -EINVAL  an option is out of range
 *   others   those of remo_channel_open, remo_channel_add_memory and remo_channel_join */
REMO_API int remo_versioned_open(struct remo_channel *parent, const char *name,
                                 const struct remo_versioned_options *options,
                                 struct remo_versioned **ret_versioned);
/* Close the tables. This node's objects are lost to all participants. NULL has no effect. */
REMO_API void remo_versioned_close(struct remo_versioned *versioned);
REMO_API struct remo_channel *remo_versioned_channel(struct remo_versioned *versioned);

/* Owner: make all changes at one instant, in their order. *ret_version (may be NULL) is the new version. Does
 * not block on the network. After an error nothing has changed.
 * Errors:
 *   -EPERM     this node has no objects
 *   -EINVAL    an argument is NULL, `count` is 0, or a range is empty or outside its object
 *   -EMSGSIZE  the records of more than `retain` objects exceed log_bytes
 *   -EPROTO    a participant has opened something else under this name */
REMO_API int remo_versioned_commit(struct remo_versioned *versioned,
                                   const struct remo_versioned_change *changes, uint32_t count,
                                   uint64_t *ret_version);
/* Read an object of `owner` into `value`, of object_bytes bytes. *ret_version (may be NULL) is the version of
 * the last commit that changed it. Blocks for op_timeout_ns at most for each of its reads, and while the
 * owner has not opened the object. After an error the contents of `value` are undefined.
 * Errors:
 *   -EINVAL     an argument is NULL, `owner` has no objects, or no such object
 *   -EHOSTDOWN  the owner has failed
 *   -ENOTCONN   the owner has closed the object
 *   -ETIMEDOUT  the owner does not answer, or has not opened the object; or for op_timeout_ns it has
 *               moved objects so fast that no read succeeded: use a larger `retain`
 *   -EPROTO     the owner's memory is damaged, or the owner has opened something else under this name
 *   -ENOMEM     no memory */
REMO_API int remo_versioned_read(struct remo_versioned *versioned, uint32_t owner, uint32_t object,
                                 void *value, uint64_t *ret_version);
/* Read `count` objects of `owner` as of one instant. *ret_version (may be NULL) is the owner's version then.
 * After an error, all values and versions are undefined.
 * Errors: those of remo_versioned_read. */
REMO_API int remo_versioned_read_many(struct remo_versioned *versioned, uint32_t owner,
                                      struct remo_versioned_item *items, uint32_t count,
                                      uint64_t *ret_version);
/* Read the version of `owner`. Cost: 1 read; at the owner none.
 * Errors: those of remo_versioned_read. */
REMO_API int remo_versioned_version(struct remo_versioned *versioned, uint32_t owner, uint64_t *ret_version);
/* Read an object as of `version`, which a call above returned on any node. So several nodes can read the same
 * state of an owner. Otherwise like remo_versioned_read.
 * Errors:
 *   -ESTALE  the owner has used an extent of this version again
 *   -EINVAL  also: the owner has not reached this version
 *   others   those of remo_versioned_read */
REMO_API int remo_versioned_read_at(struct remo_versioned *versioned, uint32_t owner, uint32_t object,
                                    uint64_t version, void *value, uint64_t *ret_version);
/* Read `count` objects of `owner` as of `version`. After an error, all values and versions are undefined.
 * Errors: those of remo_versioned_read_at. */
REMO_API int remo_versioned_read_many_at(struct remo_versioned *versioned, uint32_t owner, uint64_t version,
                                         struct remo_versioned_item *items, uint32_t count);

REMO_END
