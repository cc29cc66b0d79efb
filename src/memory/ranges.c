/* ranges.c - implements ranges.h.
 * Only free ranges are recorded: none is empty, and none touches the next one. The caller records the sizes
 * of the ranges in use. */
#include "memory/ranges.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/error.h"

struct remo__range {
    uint64_t offset, bytes;
    struct remo__range *next;
};

int remo__ranges_add(struct remo__ranges *ranges, uint64_t offset, uint64_t bytes) {
    struct remo__range **link = &ranges->first, *before = NULL;
    while (*link && (*link)->offset < offset) {
        before = *link;
        link = &(*link)->next;
    }
    struct remo__range *after = *link;
    if (before && before->offset + before->bytes == offset) {
        before->bytes += bytes;
        if (after && before->offset + before->bytes == after->offset) {
            before->bytes += after->bytes;
            before->next = after->next;
            free(after);
        }
        return 0;
    }
    if (after && offset + bytes == after->offset) {
        after->offset = offset;
        after->bytes += bytes;
        return 0;
    }
    struct remo__range *range = malloc(sizeof *range);
    if (!range)
        return remo__fail(-ENOMEM, "cannot record a free range: no memory is left");
    *range = (struct remo__range){.offset = offset, .bytes = bytes, .next = after};
    *link = range;
    return 0;
}

int remo__ranges_take(struct remo__ranges *ranges, uint64_t bytes, uint64_t align, uint64_t *ret_offset) {
    for (struct remo__range **link = &ranges->first; *link; link = &(*link)->next) {
        struct remo__range *range = *link;
        uint64_t start = remo__align_up(range->offset, align);
        uint64_t end = range->offset + range->bytes;
        if (start > end || bytes > end - start)
            continue;
        uint64_t head = start - range->offset, tail = end - start - bytes;
        if (head && tail) {
            struct remo__range *rest = malloc(sizeof *rest);
            if (!rest)
                return remo__fail(-ENOMEM, "cannot record a free range: no memory is left");
            *rest = (struct remo__range){.offset = start + bytes, .bytes = tail, .next = range->next};
            range->next = rest;
            range->bytes = head;
        } else if (head) {
            range->bytes = head;
        } else if (tail) {
            range->offset = start + bytes;
            range->bytes = tail;
        } else {
            *link = range->next;
            free(range);
        }
        *ret_offset = start;
        return 0;
    }
    return -ENOSPC;
}

void remo__ranges_clear(struct remo__ranges *ranges) {
    while (ranges->first) {
        struct remo__range *range = ranges->first;
        ranges->first = range->next;
        free(range);
    }
}
