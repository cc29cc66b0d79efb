/* key_watch.c - the owner's side of watches of keys (key_watch.h): lists of entries in the groups of a
 * structure, and the watches that are due. Invariant: a watch that a change has marked is in the list `due`
 * of a structure until a thread, which then holds no mutex, removes it to report it. */
#include "systems/tx/key_watch.h"

#define REPORTS_PER_CHANGE 16u /* a thread that changes a key sends no more replies */

/* ---- entries ---- */

void remo__key_watch_add(struct remo__key_watch_entry *entry) {
    struct remo__key_watch_entry **first = &entry->group->watches;
    entry->next = *first;
    entry->link = first;
    if (entry->next)
        entry->next->link = &entry->next;
    *first = entry;
}

void remo__key_watch_remove(struct remo__key_watch_entry *entry) {
    pthread_mutex_lock(&entry->group->mutex);
    *entry->link = entry->next;
    if (entry->next)
        entry->next->link = entry->link;
    pthread_mutex_unlock(&entry->group->mutex);
}

/* ---- watches that are due ---- */

/* A watch may have keys of several structures: it is in the list of the first one that changes. */
static void make_due(struct remo__structure_due *due, struct remo__key_watch *watch) {
    atomic_store(&watch->has_changed, true);
    if (atomic_exchange(&watch->is_due, true))
        return;
    pthread_mutex_lock(&due->mutex);
    watch->next_due = NULL;
    watch->previous_due = due->last;
    if (due->last)
        due->last->next_due = watch;
    else
        atomic_store(&due->first, watch);
    due->last = watch;
    pthread_mutex_unlock(&due->mutex);
}

/* The mutex of `due` is held. Afterwards the watch can become due again. */
static void remove_due(struct remo__structure_due *due, struct remo__key_watch *watch) {
    if (watch->previous_due)
        watch->previous_due->next_due = watch->next_due;
    else
        atomic_store(&due->first, watch->next_due);
    if (watch->next_due)
        watch->next_due->previous_due = watch->previous_due;
    else
        due->last = watch->previous_due;
    atomic_store(&watch->is_due, false);
}

void remo__key_watch_change(struct remo_structure *structure, const struct remo__structure_group *group,
                            uint64_t hash) {
    for (struct remo__key_watch_entry *entry = group->watches; entry; entry = entry->next)
        if (entry->hash == hash)
            make_due(&structure->due, entry->watch);
}

static struct remo__key_watch *take_due(struct remo__structure_due *due) {
    pthread_mutex_lock(&due->mutex);
    struct remo__key_watch *watch = atomic_load(&due->first);
    if (watch) {
        atomic_fetch_add(watch->reporters, 1);
        remove_due(due, watch);
    }
    pthread_mutex_unlock(&due->mutex);
    return watch;
}

/* The memory of the watch, and of the counter, may be freed when the counter is 0. */
bool remo__key_watch_report_due(struct remo_structure *structure, uint32_t limit) {
    struct remo__key_watch *watch;
    for (uint32_t i = 0; i < limit && (watch = take_due(&structure->due)) != NULL; i++) {
        _Atomic uint32_t *reporters = watch->reporters;
        watch->report(watch);
        atomic_fetch_sub(reporters, 1);
    }
    return atomic_load(&structure->due.first) != NULL;
}

void remo__key_watch_report_some(struct remo_structure *structure) {
    if (remo__key_watch_report_due(structure, REPORTS_PER_CHANGE))
        remo__request_sweeps(structure->node);
}

void remo__key_watch_discard(struct remo_structure *structure, const _Atomic uint32_t *reporters) {
    pthread_mutex_lock(&structure->due.mutex);
    struct remo__key_watch *next, *watch = atomic_load(&structure->due.first);
    for (; watch; watch = next) {
        next = watch->next_due;
        if (watch->reporters == reporters)
            remove_due(&structure->due, watch);
    }
    pthread_mutex_unlock(&structure->due.mutex);
}
