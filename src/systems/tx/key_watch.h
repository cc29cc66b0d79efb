/* key_watch.h - watches of keys, at their owner: the next change of a watched key reports its watch.
 *
 * Watch:   has one entry for each of its keys, in the list of the key's group. Several watches may have the
 *          same key. A change of a key marks its watches as due, under the mutex of the group. The thread
 *          that made the change reports them when it has released its mutexes.
 * Cost:    a change of a key whose group has no watch loads one word, next to the mutex of the group.
 * Growth:  the division of a bucket changes no value and no group, so it reports no watch. */
#pragma once

#include "systems/tx/structure.h"

struct remo__key_watch {
    _Atomic bool is_due;              /* in the list `due` of a structure */
    struct remo__key_watch *next_due; /* in this list */
    /* Called without a mutex, after a change; perhaps several times, and even if the watch has no entry any
     * more. Concurrent calls are possible. */
    void (*report)(struct remo__key_watch *watch);
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
/* Report the watch, unless it is due already: once more, by the next call of remo__key_watch_report. */
void remo__key_watch_make_due(struct remo_structure *structure, struct remo__key_watch *watch);
/* Report all watches that are due. No mutex is held. */
void remo__key_watch_report_due(struct remo_structure *structure);
static inline void remo__key_watch_report(struct remo_structure *structure) {
    if (remo__unlikely(atomic_load_explicit(&structure->due, memory_order_relaxed) != NULL))
        remo__key_watch_report_due(structure);
}
/* Report all watches that are due, and wait until no other thread reports any. Afterwards a watch that has no
 * entries is not used any more. */
void remo__key_watch_drain(struct remo_structure *structure);
