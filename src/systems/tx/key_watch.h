/* key_watch.h - watches of keys, at their owner: the next change of a watched key reports its watch.
 *
 * Watch:   has one entry for each of its keys, in the list of the key's group. Several watches may have the
 *          same key. A change of a key marks its watches as due, under the mutex of the group. The thread
 *          that made the change reports them when it has released its mutexes, or sweeps do.
 * Cost:    a change of a key whose group has no watch loads one word, next to the mutex of the group.
 *          Otherwise it compares the hash of each entry of the group.
 * Growth:  the division of a bucket changes no value and no group, so it reports no watch. */
#pragma once

#include "systems/tx/structure.h"

struct remo__key_watch {
    /* Called without a mutex after a change, perhaps several times, even if the watch has no entry any more,
     * or has other ones. Concurrent calls are possible. */
    void (*report)(struct remo__key_watch *watch);
    _Atomic uint32_t *reporters; /* counts the threads that report such watches */
    _Atomic bool has_changed;    /* a key of the entries has: the user clears it before it adds entries */
    _Atomic bool is_due;         /* in the list of a structure, or about to be */
    struct remo__key_watch *next_due, *previous_due;
};

struct remo__key_watch_entry {
    struct remo__key_watch_entry *next, **link; /* in the list of the group, under its mutex */
    struct remo__structure_group *group;
    struct remo__key_watch *watch;
    uint64_t hash; /* of the key */
};

/* Add the entry to the list of its group. The mutex of the group is held. */
void remo__key_watch_add(struct remo__key_watch_entry *entry);
/* Remove the entry. The mutex of the group is not held. */
void remo__key_watch_remove(struct remo__key_watch_entry *entry);
/* A key of the group has changed: its watches are due. The mutex of the group is held. */
void remo__key_watch_change(struct remo_structure *structure, const struct remo__structure_group *group,
                            uint64_t hash);
/* Report watches that are due, at most `limit`. No mutex is held. Returns whether any is left. */
bool remo__key_watch_report_due(struct remo_structure *structure, uint32_t limit);
/* Report watches that are due after a change; some may be left to sweeps. No mutex is held. */
void remo__key_watch_report_some(struct remo_structure *structure);
static inline void remo__key_watch_report(struct remo_structure *structure) {
    if (remo__unlikely(atomic_load_explicit(&structure->due.first, memory_order_relaxed) != NULL))
        remo__key_watch_report_some(structure);
}
/* Discard the watches that are due and have this counter of reporters. They have no entries. */
void remo__key_watch_discard(struct remo_structure *structure, const _Atomic uint32_t *reporters);
