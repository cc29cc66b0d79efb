/* list.c - the fabrics of this build, by name and by number.
 *
 * A fabric is one table of operations, and the list alone refers to all of them. fabric.h describes the
 * tables. */
#include <string.h>

#include "base/bits.h"
#include "fabric/fabric.h"

/* The fabrics of this build, the preferred one first. */
static const struct remo__fabric_ops *const fabrics[] = {
    &remo__fabric_shm,
#ifdef REMO_HAVE_OFI
    &remo__fabric_ofi,
#endif
#ifdef REMO_HAVE_VERBS
    &remo__fabric_verbs,
#endif
};

const struct remo__fabric_ops *remo__fabric_at(uint32_t n) {
    return n < REMO__ARRAY_COUNT(fabrics) ? fabrics[n] : NULL;
}

const struct remo__fabric_ops *remo__fabric_find(const char *name) {
    for (size_t i = 0; name && i < REMO__ARRAY_COUNT(fabrics); i++) {
        if (strcmp(fabrics[i]->name, name) == 0)
            return fabrics[i];
    }
    return NULL;
}
