/* item.h - an item in network memory: header, key and value (remo/structure.h, Layout).
 *
 * Writer: the CPU of the owner, one thread at a time. It stores key and value, then the seal, then the head.
 *         A read may see these stores in any order. The seal covers the version, so a mixture of two versions
 *         has a wrong seal.
 * Reader: a copy of the memory, made by a read. If the head is free, the other words have no meaning. */
#pragma once

#include <remo/structure.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bits.h"
#include "channel/remote.h"

/* States: free is 0. Valid and locked: a transaction is changing the item. Locked and not valid: reserved for
 * a new key. The key is still absent, and the seal is that of the new item. */
#define REMO__ITEM_VALID UINT64_C(1)
#define REMO__ITEM_LOCKED UINT64_C(2)
#define REMO__ITEM_VERSION UINT64_C(0x100) /* one version, in a head */
#define REMO__ITEM_STATE UINT64_C(7)       /* the bits of the state, in a head */
#define REMO__ITEM_MARK UINT64_C(0xf8)     /* a mark of the type; the steps of a change keep it */
#define REMO__ITEM_MARK_SHIFT 3u
#define REMO__ITEM_SEAL_AT 8u /* offsets in an item */
#define REMO__ITEM_SIZES_AT 16u
#define REMO__ITEM_KEY_AT REMO_ITEM_HEADER_BYTES
#define REMO__ITEM_IMAGE_BYTES_MAX (REMO_ITEM_BYTES_MAX + 32u) /* sizes, key and value, with padding */

static inline uint64_t remo__item_sizes(size_t key_bytes, size_t value_bytes) {
    return (uint64_t)value_bytes << 32 | key_bytes;
}

static inline size_t remo__item_value_at(size_t key_bytes) {
    return REMO__ITEM_KEY_AT + remo__align_up(key_bytes, 8);
}

static inline bool remo__item_is_valid(uint64_t head) {
    return (head & REMO__ITEM_VALID) != 0;
}

static inline bool remo__item_is_free(uint64_t head) {
    return (head & REMO__ITEM_STATE) == 0;
}

/* Return the seal of `bytes` of sizes, key and value, for the version of the head. */
static inline uint64_t remo__item_seal(uint64_t head, const void *sizes, size_t bytes) {
    return XXH3_64bits_withSeed(sizes, bytes, head & ~(REMO__ITEM_STATE | REMO__ITEM_MARK));
}
