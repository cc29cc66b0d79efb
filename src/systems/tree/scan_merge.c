/* scan_merge.c - the merge of run and tail of a compact leaf, for entries of TREE_MERGED_BYTES.
 * The positions of a tail are random, so a CPU would mispredict most branches that depend on them. Here no
 * branch does: first all entries of the run are copied, in groups, each group to the place of its first
 * entry. Then each entry of the tail is inserted: the entries of the run after it are copied again, to their
 * places. */
#include "systems/tree/scan.h"

#define PLACE_BYTES (TREE_ENTRY_BYTES + TREE_MERGED_BYTES) /* of an entry in the result */
#define GROUPS_MAX (TREE_NODE_BYTES_MAX / (TREE_MERGED_BYTES * TREE_MERGED_GROUP) + 1)

/* A merge may read a group behind the leaf: from the third place of scan->nodes. */
_Static_assert(TREE_WINDOW >= 3 && TREE_MERGED_GROUP * TREE_MERGED_BYTES <= TREE_NODE_BYTES_MIN,
               "the memory behind the leaf has room for a group");

struct merge {
    const struct tree_walk *walk;
    const char *run; /* the first entry that is merged */
    uint16_t sizes[2];
    char *place; /* of the result */
};

static void copy_group(const struct merge *merge, const char *from, char *place) {
    remo__tree_spread(place, from, TREE_MERGED_GROUP, TREE_MERGED_BYTES, merge->sizes);
}

/* Return the bytes of an entry of the tail in the result. */
static uint32_t tail_bytes(const struct tree_walk *walk, uint32_t index) {
    uint16_t sizes[2];
    memcpy(sizes, (const char *)walk->node + walk->offsets[index], sizeof sizes);
    return TREE_ENTRY_BYTES + (uint32_t)sizes[0] + sizes[1];
}

/* Return the number of merged entries of the run that precede an entry of the tail. In a damaged leaf, the
 * position may be before the walk. */
static uint32_t place_in_run(const struct tree_walk *walk, uint32_t index) {
    return remo__max(walk->positions[index], walk->index) - walk->index;
}

/* Copy `count` entries of the run. Each group is behind the entries of the tail, up to `tail_end`, that
 * precede its first entry. */
static void copy_run(const struct merge *merge, uint32_t count, uint32_t tail_end) {
    uint16_t shifts[GROUPS_MAX + 1]; /* the bytes of the tail that precede a group, but not the one before */
    uint32_t groups = (count + TREE_MERGED_GROUP - 1) / TREE_MERGED_GROUP;
    const char *from = merge->run;
    char *place = merge->place;
    memset(shifts, 0, (groups + 1) * sizeof shifts[0]);
    for (uint32_t i = merge->walk->tail; i < tail_end; i++) {
        uint32_t group = (place_in_run(merge->walk, i) + TREE_MERGED_GROUP - 1) / TREE_MERGED_GROUP;
        shifts[group] = (uint16_t)(shifts[group] + tail_bytes(merge->walk, i));
    }
    for (uint32_t group = 0; group < groups; group++) {
        place += shifts[group];
        copy_group(merge, from, place);
        from += TREE_MERGED_GROUP * TREE_MERGED_BYTES;
        place += TREE_MERGED_GROUP * PLACE_BYTES;
    }
}

/* Insert the entries of the tail before `tail_end`. Returns their bytes. If another entry of the tail belongs
 * into the group that is copied again, those after it are at wrong places until it is inserted. */
static size_t insert_tail(const struct merge *merge, uint32_t tail_end) {
    const struct tree_walk *walk = merge->walk;
    size_t shift = 0;
    for (uint32_t i = walk->tail; i < tail_end; i++) {
        uint32_t position = place_in_run(walk, i), bytes = tail_bytes(walk, i);
        const char *entry = (const char *)walk->node + walk->offsets[i];
        char *place = merge->place + position * PLACE_BYTES + shift;
        if (bytes == PLACE_BYTES) /* usually: needs no call of memcpy */
            memcpy(place, entry, PLACE_BYTES);
        else
            memcpy(place, entry, bytes);
        copy_group(merge, merge->run + position * TREE_MERGED_BYTES, place + bytes);
        shift += bytes;
    }
    return shift;
}

uint32_t remo__tree_scan_merge(struct tree_walk *walk, uint32_t end, char *place, size_t *ret_bytes) {
    const struct tree_header *header = &walk->header;
    const struct merge merge = {.walk = walk,
                                .run = (const char *)walk->node
                                       + remo__tree_offset(walk->node, header, walk->index),
                                .sizes = {header->key_bytes, header->value_bytes},
                                .place = place};
    uint32_t count = end - walk->index, tail_end = walk->tail;
    while (tail_end < walk->tail_count && walk->positions[tail_end] < end)
        tail_end++;
    copy_run(&merge, count, tail_end);
    *ret_bytes = count * (size_t)PLACE_BYTES + insert_tail(&merge, tail_end);
    count += tail_end - walk->tail;
    walk->index = end;
    walk->tail = tail_end;
    return count;
}
