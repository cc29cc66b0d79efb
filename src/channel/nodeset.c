/* nodeset.c - implements the functions on sets of nodes of channel.h: count, search in rank order, compare,
 * and describe as text. A text is at most REMO__NODESET_TEXT_BYTES long, and then ends with "...". */
#include <stdio.h>
#include <string.h>

#include "channel/channel.h"

uint32_t remo__nodeset_next(const struct remo_nodeset *set, uint32_t from) {
    for (uint32_t node = from; node < REMO_NODES_MAX; node++)
        if (remo_nodeset_has(set, node))
            return node;
    return REMO_NODES_MAX;
}

uint32_t remo__nodeset_count(const struct remo_nodeset *set) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(set->word); i++)
        count += (uint32_t)__builtin_popcountll(set->word[i]);
    return count;
}

bool remo__nodeset_equal(const struct remo_nodeset *a, const struct remo_nodeset *b) {
    return memcmp(a->word, b->word, sizeof a->word) == 0;
}

/* The last node of the run that begins at `first`. */
static uint32_t last_of_run(const struct remo_nodeset *set, uint32_t first) {
    while (remo_nodeset_has(set, first + 1))
        first++;
    return first;
}

const char *remo__nodeset_text(const struct remo_nodeset *set, char ret_text[REMO__NODESET_TEXT_BYTES]) {
    static const char more[] = ",...";
    const size_t room = REMO__NODESET_TEXT_BYTES - sizeof more;
    size_t length = (size_t)snprintf(ret_text, room, remo__nodeset_count(set) == 1 ? "node" : "nodes");
    const char *before = " ";
    for (uint32_t node = remo__nodeset_next(set, 0); node < REMO_NODES_MAX;) {
        uint32_t last = last_of_run(set, node);
        char run[16];
        size_t bytes = (size_t)(last == node ? snprintf(run, sizeof run, "%s%u", before, node)
                                             : snprintf(run, sizeof run, "%s%u-%u", before, node, last));
        if (length + bytes >= room) {
            memcpy(ret_text + length, more, sizeof more);
            break;
        }
        memcpy(ret_text + length, run, bytes + 1);
        length += bytes;
        before = ",";
        node = remo__nodeset_next(set, last + 1);
    }
    return ret_text;
}
