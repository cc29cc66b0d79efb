/* heap.c - fuzzes the run-time allocator against a model: any sequence of calls, with right and wrong
 * addresses. Blocks never overlap, every wrong call is refused, and nothing is lost. Input: units of 4 bytes:
 * u8 call, u8 slot, u16 size or distance. */
#include <assert.h>
#include <errno.h>
#include <remo/heap.h>
#include <stdbool.h>
#include <string.h>

#include "fuzz.h"

#define SLOTS 64u
#define UNIT_BYTES 4u
#define CALLS 8u
#define BYTES_MAX 256u /* of an input; the rest has no effect */
#define EDGE_BYTES 64u /* of a block that are filled, at each end */

enum state { FREE, LIVE, RETIRED };

struct slot {
    struct remo_addr addr;
    uint64_t bytes;
    enum state state;
};

struct model {
    struct remo_heap *heap;
    struct slot slots[SLOTS];
    uint32_t pins;
};

/* One node for all inputs: its open is slow. */
static struct remo_heap *heap_of_test(void) {
    static struct remo_heap *heap;
    static const struct remo_config config = {.fabric = "shm", .arena_bytes = 64u << 20};
    struct remo_node *node;
    if (heap)
        return heap;
    int rc = remo_node_open(&config, &node);
    rc = rc ? rc : remo_heap_open(remo_node_root(node), "heap", NULL, &heap);
    assert(rc == 0);
    return heap;
}

static int tag_of(const struct model *model, const struct slot *slot) {
    return (int)(slot - model->slots) + 1;
}

/* No other block overlaps the block of the slot. */
static void check_apart(const struct model *model, const struct slot *slot) {
    uint64_t start = remo_addr_offset(slot->addr);
    for (const struct slot *other = model->slots; other < model->slots + SLOTS; other++) {
        uint64_t other_start = remo_addr_offset(other->addr);
        assert(other == slot || other->state != LIVE || start + slot->bytes <= other_start
               || other_start + other->bytes <= start);
    }
}

static void take(struct model *model, struct slot *slot, uint32_t number) {
    uint64_t bytes = number % 64 == 0 ? 1 + (uint64_t)number * 40 : 1 + number % 1000;
    uint64_t alignment = number % 5 == 0 ? 1u << number % 13 : 0;
    if (slot->state == LIVE)
        return;
    int rc = remo_heap_alloc(model->heap, bytes, alignment, &slot->addr);
    assert(rc == 0 || rc == -ENOSPC);
    if (rc != 0)
        return;
    slot->state = LIVE;
    slot->bytes = bytes;
    assert(alignment == 0 || remo_addr_offset(slot->addr) % alignment == 0);
    check_apart(model, slot);
    char *at = remo_heap_local(model->heap, slot->addr);
    uint64_t edge = bytes < EDGE_BYTES ? bytes : EDGE_BYTES;
    memset(at, tag_of(model, slot), edge);
    memset(at + bytes - edge, tag_of(model, slot), edge);
}

/* The edges of a block are as its owner wrote them: the allocator has not used them. */
static void check(const struct model *model, const struct slot *slot) {
    const unsigned char *at = remo_heap_local(model->heap, slot->addr);
    for (uint64_t i = 0; i < slot->bytes && i < EDGE_BYTES; i++)
        assert(at[i] == tag_of(model, slot) && at[slot->bytes - 1 - i] == tag_of(model, slot));
}

static bool is_live(const struct model *model, struct remo_addr addr) {
    for (uint32_t i = 0; i < SLOTS; i++)
        if (model->slots[i].state == LIVE && model->slots[i].addr.word == addr.word)
            return true;
    return false;
}

static void end(struct model *model, struct slot *slot, bool retire) {
    if (slot->addr.word == 0)
        return;
    if (slot->state == LIVE)
        check(model, slot);
    else if (is_live(model, slot->addr)) /* the block has been allocated again */
        return;
    int rc = retire ? remo_heap_retire(model->heap, slot->addr) : remo_heap_free(model->heap, slot->addr);
    assert(slot->state == LIVE ? rc == 0 : rc == -EALREADY || rc == -EFAULT || rc == -EINVAL);
    if (slot->state == LIVE)
        slot->state = retire ? RETIRED : FREE;
}

static void free_wrong(struct model *model, const struct slot *slot, uint32_t number) {
    struct remo_addr addr = {slot->addr.word + number};
    if (addr.word == 0 || is_live(model, addr))
        return;
    assert(remo_heap_free(model->heap, addr) != 0);
}

static void call(struct model *model, const uint8_t *unit) {
    struct slot *slot = &model->slots[unit[1] % SLOTS];
    uint32_t number = (uint32_t)(unit[2] | unit[3] << 8);
    switch (unit[0] % CALLS) {
    case 0:
    case 1: take(model, slot, number); break;
    case 2: end(model, slot, false); break;
    case 3: end(model, slot, true); break;
    case 4: free_wrong(model, slot, number); break;
    case 5: (void)remo_heap_reclaim(model->heap, 0); break;
    case 6: model->pins += remo_heap_pin(model->heap) == 0; break;
    case 7:
        assert((remo_heap_unpin(model->heap) == 0) == (model->pins > 0));
        model->pins -= model->pins > 0;
        break;
    default: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct model model = {.heap = heap_of_test()};
    struct remo_heap_sizes sizes;
    for (size_t at = 0; at + UNIT_BYTES <= bytes && at < BYTES_MAX; at += UNIT_BYTES)
        call(&model, data + at);
    for (; model.pins > 0; model.pins--)
        assert(remo_heap_unpin(model.heap) == 0);
    for (uint32_t i = 0; i < SLOTS; i++)
        if (model.slots[i].state == LIVE)
            end(&model, &model.slots[i], i % 2);
    assert(remo_heap_reclaim(model.heap, 0) == 0);
    remo_heap_stats(model.heap, &sizes);
    assert(sizes.live_bytes == 0 && sizes.retired_bytes == 0);
    return 0;
}

/* Sequences of many calls, with few and many slots. */
size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    uint32_t state = n + 1;
    if (n >= 6)
        return 0;
    for (uint32_t i = 0; i < BYTES_MAX; i++) {
        state = state * 1664525u + 1013904223u;
        ret_data[i] = (uint8_t)(state >> 24);
        if (i % UNIT_BYTES == 1)
            ret_data[i] %= 1u << n;
    }
    return BYTES_MAX;
}
