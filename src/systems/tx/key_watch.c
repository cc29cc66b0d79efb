/* key_watch.c - the owner's side of watches of keys (key_watch.h): lists of entries in the groups of a
 * structure, and the watches that are due. Invariant: a watch that a change has marked is in the list `due`
 * of a structure, until a thread that holds no mutex reports it. */
#include "systems/tx/key_watch.h"

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

void remo__key_watch_make_due(struct remo_structure *structure, struct remo__key_watch *watch) {
    if (atomic_exchange(&watch->is_due, true))
        return;
    watch->next_due = atomic_load(&structure->due);
    while (!atomic_compare_exchange_weak(&structure->due, &watch->next_due, watch)) {
    }
}

void remo__key_watch_change(struct remo_structure *structure, const struct remo__structure_group *group,
                            uint64_t hash) {
    for (struct remo__key_watch_entry *entry = group->watches; entry; entry = entry->next)
        if (entry->hash == hash)
            remo__key_watch_make_due(structure, entry->watch);
}

/* A watch that becomes due again during its report is reported again. */
void remo__key_watch_report_due(struct remo_structure *structure) {
    atomic_fetch_add(&structure->reporters, 1); /* before the watches are taken: see remo__key_watch_drain */
    struct remo__key_watch *watch = atomic_exchange(&structure->due, NULL);
    while (watch) {
        struct remo__key_watch *next = watch->next_due;
        atomic_store(&watch->is_due, false);
        watch->report(watch);
        watch = next;
    }
    atomic_fetch_sub(&structure->reporters, 1);
}

static int has_no_reporter(void *ctx) {
    struct remo_structure *structure = ctx;
    return atomic_load(&structure->reporters) == 0;
}

void remo__key_watch_drain(struct remo_structure *structure) {
    remo__key_watch_report_due(structure);
    (void)remo__wait_polling(structure->node, has_no_reporter, structure, REMO_FOREVER);
}
