/* key_claim.c - the owner's side of claims of keys (key_claim.h): lists of entries in the groups of a
 * structure. Invariant: entries are added, compared and removed only under the mutex of their group. */
#include "systems/tx/key_claim.h"

void remo__key_claim_add(struct remo__key_claim_entry *entry) {
    struct remo__key_claim_entry **first = &entry->group->claims;
    entry->next = *first;
    entry->link = first;
    if (entry->next)
        entry->next->link = &entry->next;
    *first = entry;
}

static void unlink_entry(struct remo__key_claim_entry *entry) {
    *entry->link = entry->next;
    if (entry->next)
        entry->next->link = entry->link;
    entry->link = NULL;
}

void remo__key_claim_remove(struct remo__key_claim_entry *entry) {
    pthread_mutex_lock(&entry->group->mutex);
    if (entry->link)
        unlink_entry(entry);
    pthread_mutex_unlock(&entry->group->mutex);
}

static bool has_ended(const struct remo__key_claim *claim, uint64_t now_ns) {
    return now_ns >= claim->ends_at_ns || atomic_load(claim->losses) != claim->losses_before;
}

static bool is_older(const struct remo__key_claim *claim, const struct remo__key_claim *than) {
    return claim->age != than->age ? claim->age < than->age : claim->claimant < than->claimant;
}

bool remo__key_claim_precedes(struct remo__structure_group *group, uint64_t hash, const void *space,
                              uint32_t claimant, bool changes) {
    const struct remo__key_claim *own = NULL, *oldest = NULL;
    struct remo__key_claim_entry *next;
    uint64_t now_ns = remo__now_ns();
    for (struct remo__key_claim_entry *entry = group->claims; entry; entry = next) {
        const struct remo__key_claim *claim = entry->claim;
        next = entry->next;
        if (has_ended(claim, now_ns))
            unlink_entry(entry);
        else if (claim->space == space && claim->claimant == claimant)
            own = claim;
        else if ((entry->hash == hash || entry->is_for_group) && (changes || entry->changes)
                 && (!oldest || is_older(claim, oldest)))
            oldest = claim;
    }
    return oldest && !(own && is_older(own, oldest));
}
