/* key_claim.h - claims of keys, at their owner: a transaction that was in conflict often precedes younger
 * ones at the keys that it claims. A claim decides only which transaction is in conflict, so a lost, late or
 * unneeded one changes no result.
 *
 * Claim:   has one entry for each of its keys, in the list of the key's group. A claim of an absent key is
 *          for all keys of the group, because their changes are in conflict with the absence.
 * End:     claim.c removes the entries of a claim. A claim loses its effect earlier at its time limit, or
 *          once its node was cut off. The next thread that finds an entry of such a claim removes the entry.
 * Cost:    a change of a key whose group has no claim loads one word, next to the mutex of the group.
 *          Otherwise it reads the clock, and compares each entry of the group. */
#pragma once

#include "systems/tx/structure.h"

/* Constant while an entry is in a list. */
struct remo__key_claim {
    const void *space;              /* claimants of different spaces have the same numbers */
    uint32_t claimant;              /* not 0 */
    uint64_t age;                   /* less: older */
    uint64_t ends_at_ns;            /* no effect from then on */
    const _Atomic uint32_t *losses; /* of its node; no effect once there are more than: */
    uint32_t losses_before;
};

struct remo__key_claim_entry {
    struct remo__key_claim_entry *next, **link; /* in the list of the group, under its mutex; NULL: in none */
    struct remo__structure_group *group;
    const struct remo__key_claim *claim;
    uint64_t hash; /* of the key */
    bool is_for_group;
    bool changes; /* its transaction changes the key, as far as the last attempt shows */
};

/* Add the entry to the list of its group. The mutex of the group is held. */
void remo__key_claim_add(struct remo__key_claim_entry *entry);
/* Remove the entry, if it is in the list. The mutex of the group is not held. */
void remo__key_claim_remove(struct remo__key_claim_entry *entry);
/* Return whether a claimant that is older than `claimant` claims the key; if not `changes`, only claimants
 * that change the key count, because the transaction of `claimant` only reads it. A transaction that claims
 * no key of the group (`claimant`: 0, if it has no claim) is younger than all claimants. The mutex of the
 * group is held. */
bool remo__key_claim_precedes(struct remo__structure_group *group, uint64_t hash, const void *space,
                              uint32_t claimant, bool changes);
