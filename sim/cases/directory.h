/* directory.h - the structure of docs/tutorial.md, whose accesses to its share the simulator schedules. */
#pragma once

#define XXH_INLINE_ALL
#include <stdatomic.h>
#include <xxhash.h>

#include "fabric/access.h"

#undef atomic_fetch_add
#define atomic_fetch_add(word, add) \
    remo__store((void *)(word), remo__load((const void *)(word)) + (uint64_t)(add))
#include "examples/directory.h"

#define DIRECTORY_VALUE_WORDS (VALUE_BYTES_MAX / 8)

/* Return the next key above `key` with this owner and this own slot. The first byte of a key is the digit of
 * its owner. */
static inline uint64_t directory_key_after(uint64_t key, uint32_t owner, uint32_t slot) {
    do
        key = (key & ~UINT64_C(255)) + 256 + '0' + owner;
    while (XXH3_64bits(&key, sizeof key) % SLOTS != slot);
    return key;
}
