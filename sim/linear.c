/* linear.c - the search of linear.h over a list of begins and ends.
 * A call may be placed next if its begin precedes every end still in the list. Placing lifts its
 * two entries out of the list. An end of an unplaced call is a dead end: the search takes the last
 * call back. */
#include "sim/linear.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT16_MAX

struct entry {     /* a begin or an end, in order of time */
    uint16_t call; /* index among the calls of this key */
    bool is_end;
    uint16_t partner; /* the other entry of the call; NONE for a begin without end */
    uint16_t next, previous;
};

struct placed {
    uint16_t entry;
    uint8_t state_before[LINEAR_STATE_BYTES_MAX];
};

struct configuration { /* one cached (calls placed, state) */
    uint64_t bits[LINEAR_CALLS_MAX / 64];
    uint8_t state[LINEAR_STATE_BYTES_MAX];
    uint32_t generation; /* of the search that cached it */
};

struct linear {
    uint32_t budget, generation;
    uint32_t cache_mask;
    struct configuration *cache;
    const struct call *calls[LINEAR_CALLS_MAX];
    struct entry entries[2 * LINEAR_CALLS_MAX + 2];
    struct placed stack[LINEAR_CALLS_MAX];
    uint64_t bits[LINEAR_CALLS_MAX / 64];
    uint8_t state[LINEAR_STATE_BYTES_MAX];
    uint16_t head, call_count, ended_count;
};

struct linear *linear_open(uint32_t budget_nodes) {
    struct linear *linear = calloc(1, sizeof *linear);
    uint32_t slots = 64;
    while (slots < 2 * budget_nodes)
        slots *= 2;
    if (linear)
        linear->cache = calloc(slots, sizeof *linear->cache);
    if (!linear || !linear->cache) {
        free(linear);
        return NULL;
    }
    linear->budget = budget_nodes;
    linear->cache_mask = slots - 1;
    return linear;
}

void linear_close(struct linear *linear) {
    if (!linear)
        return;
    free(linear->cache);
    free(linear);
}

static uint64_t hash_of(const struct linear *linear) {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < LINEAR_CALLS_MAX / 64; i++)
        hash = (hash ^ linear->bits[i]) * 0xff51afd7ed558ccdu, hash ^= hash >> 32;
    for (uint32_t i = 0; i < LINEAR_STATE_BYTES_MAX; i += 8) {
        uint64_t word;
        memcpy(&word, linear->state + i, sizeof word);
        hash = (hash ^ word) * 0xc4ceb9fe1a85ec53u, hash ^= hash >> 32;
    }
    return hash;
}

/* Cache this configuration; returns whether it is new. The cache is twice the budget, so it never
 * fills up. */
static bool remember(struct linear *linear) {
    for (uint32_t slot = (uint32_t)hash_of(linear);; slot++) {
        struct configuration *cached = &linear->cache[slot & linear->cache_mask];
        if (cached->generation != linear->generation) {
            memcpy(cached->bits, linear->bits, sizeof cached->bits);
            memcpy(cached->state, linear->state, sizeof cached->state);
            cached->generation = linear->generation;
            return true;
        }
        if (memcmp(cached->bits, linear->bits, sizeof cached->bits) == 0
            && memcmp(cached->state, linear->state, sizeof cached->state) == 0)
            return false;
    }
}

static uint64_t time_of(const struct linear *linear, const struct entry *entry) {
    const struct call *call = linear->calls[entry->call];
    return entry->is_end ? call->end : call->begin;
}

/* Begins precede ends of the same time: such calls overlap. */
static bool comes_before(const struct linear *linear, const struct entry *a, const struct entry *b) {
    uint64_t a_time = time_of(linear, a), b_time = time_of(linear, b);
    return a_time != b_time ? a_time < b_time : !a->is_end && b->is_end;
}

static void link_entries(struct linear *linear, const uint16_t *order, uint16_t count) {
    linear->head = count > 0 ? order[0] : NONE;
    for (uint16_t i = 0; i < count; i++) {
        linear->entries[order[i]].previous = i > 0 ? order[i - 1] : NONE;
        linear->entries[order[i]].next = i + 1 < count ? order[i + 1] : NONE;
    }
}

static void make_list(struct linear *linear) {
    uint16_t order[2 * LINEAR_CALLS_MAX], count = 0;
    linear->ended_count = 0;
    for (uint16_t call = 0; call < linear->call_count; call++) {
        bool ended = linear->calls[call]->end != HISTORY_NEVER;
        linear->entries[count] =
            (struct entry){.call = call, .partner = ended ? (uint16_t)(count + 1) : NONE};
        order[count] = count;
        count++;
        if (!ended)
            continue;
        linear->entries[count] =
            (struct entry){.call = call, .is_end = true, .partner = (uint16_t)(count - 1)};
        order[count] = count;
        count++;
        linear->ended_count++;
    }
    for (uint16_t i = 1; i < count; i++) /* insertion sort: histories are nearly sorted, and short */
        for (uint16_t j = i;
             j > 0 && comes_before(linear, &linear->entries[order[j]], &linear->entries[order[j - 1]]); j--) {
            uint16_t other = order[j];
            order[j] = order[j - 1];
            order[j - 1] = other;
        }
    link_entries(linear, order, count);
}

static void unlink_entry(struct linear *linear, uint16_t index) {
    const struct entry *entry = &linear->entries[index];
    if (entry->previous == NONE)
        linear->head = entry->next;
    else
        linear->entries[entry->previous].next = entry->next;
    if (entry->next != NONE)
        linear->entries[entry->next].previous = entry->previous;
}

static void relink_entry(struct linear *linear, uint16_t index) {
    const struct entry *entry = &linear->entries[index];
    if (entry->previous == NONE)
        linear->head = index;
    else
        linear->entries[entry->previous].next = index;
    if (entry->next != NONE)
        linear->entries[entry->next].previous = index;
}

static void lift(struct linear *linear, uint16_t begin) {
    unlink_entry(linear, begin);
    if (linear->entries[begin].partner != NONE)
        unlink_entry(linear, linear->entries[begin].partner);
}

static void unlift(struct linear *linear, uint16_t begin) {
    if (linear->entries[begin].partner != NONE)
        relink_entry(linear, linear->entries[begin].partner);
    relink_entry(linear, begin);
}

/* Try to place the call that begins at `begin`; on success, advance the state. */
static bool place(struct linear *linear, const struct oracle *oracle, uint16_t begin, struct placed *placed) {
    uint16_t call = linear->entries[begin].call;
    memcpy(placed->state_before, linear->state, sizeof placed->state_before);
    placed->entry = begin;
    if (oracle->step(linear->state, linear->calls[call])) {
        linear->bits[call / 64] |= 1ull << call % 64;
        if (remember(linear))
            return true;
        linear->bits[call / 64] &= ~(1ull << call % 64);
    }
    memcpy(linear->state, placed->state_before, sizeof linear->state);
    return false;
}

static enum verdict search(struct linear *linear, const struct oracle *oracle, uint64_t *nodes) {
    uint16_t depth = 0, ended_placed = 0, at = linear->head;
    uint32_t visited = 0;
    while (ended_placed < linear->ended_count) {
        bool dead_end = at == NONE || linear->entries[at].is_end;
        if (!dead_end && place(linear, oracle, at, &linear->stack[depth])) {
            depth++;
            ended_placed += linear->entries[at].partner != NONE;
            lift(linear, at);
            at = linear->head;
            (*nodes)++;
            if (++visited >= linear->budget)
                return LINEAR_BUDGET;
        } else if (!dead_end) {
            at = linear->entries[at].next;
        } else {
            if (depth == 0)
                return LINEAR_NO;
            const struct placed *last = &linear->stack[--depth];
            uint16_t call = linear->entries[last->entry].call;
            memcpy(linear->state, last->state_before, sizeof linear->state);
            linear->bits[call / 64] &= ~(1ull << call % 64);
            ended_placed -= linear->entries[last->entry].partner != NONE;
            unlift(linear, last->entry);
            at = linear->entries[last->entry].next;
        }
    }
    return LINEAR_YES;
}

static enum verdict check_key(struct linear *linear, const struct history *history,
                              const struct oracle *oracle, uint64_t key, uint64_t *nodes) {
    linear->call_count = 0;
    for (uint32_t i = 0; i < history->count; i++) {
        if (history->calls[i].key != key || history->calls[i].end == HISTORY_NONE)
            continue;
        if (linear->call_count == LINEAR_CALLS_MAX)
            return LINEAR_BUDGET;
        linear->calls[linear->call_count++] = &history->calls[i];
    }
    linear->generation++;
    memset(linear->bits, 0, sizeof linear->bits);
    memset(linear->state, 0, sizeof linear->state);
    oracle->init(linear->state, key);
    make_list(linear);
    return search(linear, oracle, nodes);
}

static bool is_repeated_key(const struct history *history, uint32_t index) {
    for (uint32_t i = 0; i < index; i++)
        if (history->calls[i].key == history->calls[index].key)
            return true;
    return false;
}

enum verdict linear_check(struct linear *linear, const struct history *history, const struct oracle *oracle,
                          struct linear_report *ret_report) {
    *ret_report = (struct linear_report){0};
    if (history->full)
        return LINEAR_BUDGET;
    for (uint32_t i = 0; i < history->count; i++) {
        if (is_repeated_key(history, i))
            continue;
        ret_report->key = history->calls[i].key;
        enum verdict verdict = check_key(linear, history, oracle, ret_report->key, &ret_report->nodes);
        if (verdict != LINEAR_YES)
            return verdict;
    }
    return LINEAR_YES;
}
