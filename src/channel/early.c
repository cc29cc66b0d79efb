/* early.c - see early.h. Entries are found by a 64-bit hash of the channel's name; a JOIN happens at set-up
 * only, so the table is searched from end to end. */
#include "channel/early.h"

#include <string.h>
#include <xxhash.h>

static uint64_t hash_of(const char *name) {
    return XXH3_64bits(name, strlen(name));
}

void remo__early_keep(struct remo__early *early, uint32_t peer, const char *name, uint32_t id) {
    early->joins[early->next++ % REMO__EARLY_JOINS_MAX] =
        (struct remo__early_join){.name_hash = hash_of(name), .peer = peer, .id = id};
}

bool remo__early_take(struct remo__early *early, const char *name, uint32_t *ret_peer, uint32_t *ret_id) {
    uint64_t hash = hash_of(name);
    for (uint32_t i = 0; i < REMO__EARLY_JOINS_MAX; i++) {
        struct remo__early_join *found = &early->joins[i];
        if (found->id == 0 || found->name_hash != hash)
            continue;
        *ret_peer = found->peer;
        *ret_id = found->id;
        found->id = 0;
        return true;
    }
    return false;
}

void remo__early_remove(struct remo__early *early, uint32_t peer, uint32_t id) {
    for (uint32_t i = 0; i < REMO__EARLY_JOINS_MAX; i++)
        if (early->joins[i].peer == peer && early->joins[i].id == id)
            early->joins[i].id = 0;
}

void remo__early_forget(struct remo__early *early, uint32_t peer) {
    for (uint32_t i = 0; i < REMO__EARLY_JOINS_MAX; i++)
        if (early->joins[i].peer == peer)
            early->joins[i].id = 0;
}
