/* oracle.c - sequential specifications of a word, a bounded queue, one key of a map, transactions (oracle.h).
 * A step returns whether the recorded result is possible in the given state. */
#include "sim/oracle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool ended(const struct call *call) {
    return call->end != HISTORY_NEVER;
}

/* ---- a word ---- */

static void word_init(void *state, uint64_t key) {
    (void)key;
    memset(state, 0, sizeof(uint64_t));
}

static bool word_step(void *state, const struct call *call) {
    uint64_t *word = state, old = *word;
    bool possible = !ended(call) || call->function == WORD_STORE || call->result == old;
    if (call->function == COUNTER_ADD)
        *word += call->argument;
    else if (call->function == WORD_STORE)
        *word = call->argument;
    else if (call->function == WORD_SWAP && old == call->argument)
        *word = call->second;
    return possible;
}

static void word_print(const struct call *call, char *text, size_t cap) {
    static const char *const names[] = {"?", "fetch_add", "load", "compare_swap", "store"};
    snprintf(text, cap, "%s(%llu, %llu) = %llu", names[call->function % 5],
             (unsigned long long)call->argument, (unsigned long long)call->second,
             (unsigned long long)call->result);
}

const struct oracle oracle_word = {"word", sizeof(uint64_t), word_init, word_step, word_print};

/* ---- a bounded queue of small numbers ---- */

/* A pop without a timeout may find the first element claimed but not yet written, and report
 * "empty". It may do so only if that push had not returned when the pop began, so each element
 * records the end of its push. */
struct queue_state {
    uint32_t count;
    uint16_t elements[ORACLE_QUEUE_CAPACITY];
    uint64_t pushed[ORACLE_QUEUE_CAPACITY];
};

static void queue_init(void *state, uint64_t key) {
    (void)key;
    memset(state, 0, sizeof(struct queue_state));
}

static bool queue_step(void *state, const struct call *call) {
    struct queue_state *queue = state;
    bool failed = ended(call) && call->code != 0;
    if (call->function == QUEUE_PUSH) {
        if (failed || queue->count == ORACLE_QUEUE_CAPACITY)
            return failed && queue->count == ORACLE_QUEUE_CAPACITY;
        queue->pushed[queue->count] = call->end;
        queue->elements[queue->count++] = (uint16_t)call->argument;
        return true;
    }
    if (failed || queue->count == 0)
        return failed && (queue->count == 0 || queue->pushed[0] > call->begin);
    if (ended(call) && queue->elements[0] != call->result)
        return false;
    queue->count--;
    memmove(queue->elements, queue->elements + 1, queue->count * sizeof queue->elements[0]);
    memmove(queue->pushed, queue->pushed + 1, queue->count * sizeof queue->pushed[0]);
    queue->elements[queue->count] = 0;
    queue->pushed[queue->count] = 0;
    return true;
}

static void queue_print(const struct call *call, char *text, size_t cap) {
    if (call->function == QUEUE_PUSH)
        snprintf(text, cap, "push(%llu)%s", (unsigned long long)call->argument, call->code ? " full" : "");
    else
        snprintf(text, cap, "pop = %llu%s", (unsigned long long)call->result, call->code ? " empty" : "");
}

const struct oracle oracle_queue = {"bounded FIFO queue", sizeof(struct queue_state), queue_init, queue_step,
                                    queue_print};

/* ---- one key of a map ---- */

struct map_state {
    uint64_t there, value;
};

static void map_init(void *state, uint64_t key) {
    (void)key;
    memset(state, 0, sizeof(struct map_state));
}

/* Return the code that the call returns in this state. */
static int map_code(const struct map_state *map, const struct call *call) {
    if (call->function == MAP_PUT)
        return 0;
    if (call->function == MAP_INSERT)
        return map->there ? -EEXIST : 0;
    if (!map->there)
        return -ENOENT;
    return call->function == MAP_COMPARE && map->value != call->second ? -ESTALE : 0;
}

static bool map_step(void *state, const struct call *call) {
    struct map_state *map = state;
    int code = map_code(map, call);
    uint64_t old = map->value;
    if (ended(call) && call->code != code)
        return false;
    if (code != 0)
        return true;
    if (call->function != MAP_GET) {
        map->there = call->function != MAP_DELETE;
        map->value = !map->there ? 0 : call->function == MAP_ADD ? old + call->argument : call->argument;
    }
    bool returns_old = call->function == MAP_GET || call->function == MAP_ADD;
    return !ended(call) || !returns_old || call->result == old;
}

static void map_print(const struct call *call, char *text, size_t cap) {
    static const char *const names[] = {"get", "insert",    "update",     "delete",
                                        "put", "fetch_add", "compare_put"};
    const char *name = names[(call->function - MAP_GET) % (sizeof names / sizeof names[0])];
    snprintf(text, cap, "%s(key %llu, %llu, %llu) = %llu%s", name, (unsigned long long)call->key,
             (unsigned long long)call->argument, (unsigned long long)call->second,
             (unsigned long long)call->result,
             call->code == 0         ? ""
             : call->code == -ENOENT ? " absent"
             : call->code == -ESTALE ? " another value"
             : call->code == -EEXIST ? " exists already"
                                     : " failed");
}

const struct oracle oracle_map = {"map", sizeof(struct map_state), map_init, map_step, map_print};

/* ---- transactions on a few keys ---- */

struct tx_state {
    uint8_t there[ORACLE_KEYS], value[ORACLE_KEYS];
};

static void tx_init(void *state, uint64_t key) {
    (void)key;
    memset(state, 0, sizeof(struct tx_state));
}

/* Apply one step, and return its {outcome:8, value:8}. */
static uint64_t tx_apply(struct tx_state *keys, uint64_t step) {
    uint64_t kind = step >> 12 & 15, key = step >> 8 & (ORACLE_KEYS - 1), value = step & 255;
    bool there = keys->there[key];
    if (kind == TX_INSERT && there)
        return TX_PRESENT << 8;
    if (!there && kind != TX_INSERT && kind != TX_PUT)
        return TX_ABSENT << 8;
    if (kind == TX_READ)
        return TX_DONE << 8 | keys->value[key];
    keys->there[key] = kind != TX_DELETE;
    keys->value[key] = kind != TX_DELETE ? (uint8_t)value : 0;
    return TX_DONE << 8;
}

static bool tx_step(void *state, const struct call *call) {
    uint64_t result = 0;
    for (uint32_t shift = 0; shift < 64 && (call->argument >> shift & 0xffff) != 0; shift += 16)
        result |= tx_apply(state, call->argument >> shift & 0xffff) << shift;
    return !ended(call) || result == call->result;
}

static void tx_print(const struct call *call, char *text, size_t cap) {
    static const char *const names[] = {"", "read", "insert", "update", "put", "delete", "push", "pop"};
    static const char *const outcomes[] = {"", " absent", " present"};
    size_t used = (size_t)snprintf(text, cap, "transaction%s", call->code == -ENOSPC ? " without room" : "");
    for (uint32_t shift = 0; shift < 64 && (call->argument >> shift & 0xffff) != 0 && used < cap;
         shift += 16) {
        uint64_t step = call->argument >> shift, result = call->result >> shift;
        used += (size_t)snprintf(text + used, cap - used, ", %s(%llu, %llu) = %llu%s", names[step >> 12 & 7],
                                 (unsigned long long)(step >> 8 & 15), (unsigned long long)(step & 255),
                                 (unsigned long long)(result & 255), outcomes[(result >> 8 & 255) % 3]);
    }
}

const struct oracle oracle_tx = {"transactions", sizeof(struct tx_state), tx_init, tx_step, tx_print};

/* ---- transactions on a few keys and a queue ---- */

#define STEPS_MAX 4u

struct tx_queue_state {
    struct tx_state keys;
    uint8_t count, elements[ORACLE_QUEUE_CAPACITY];
};

/* The queue during a transaction: the elements from `popped` to `count`. */
struct open_queue {
    uint32_t popped, count;
    uint8_t elements[ORACLE_QUEUE_CAPACITY + STEPS_MAX];
};

static void tx_queue_init(void *state, uint64_t key) {
    (void)key;
    memset(state, 0, sizeof(struct tx_queue_state));
}

/* Apply one step on the queue, and return its {outcome:8, value:8}. */
static uint64_t queue_apply(struct open_queue *queue, uint64_t step) {
    if ((step >> 12 & 15) == TX_PUSH) {
        queue->elements[queue->count++] = (uint8_t)step;
        return TX_DONE << 8;
    }
    return queue->popped == queue->count ? TX_ABSENT << 8 : TX_DONE << 8 | queue->elements[queue->popped++];
}

/* Return whether an element that remains has no slot: one that was in the queue before the transaction has it
 * until the commit, or one that the transaction has pushed before, and that remains. */
static bool is_full(const struct open_queue *queue, uint32_t count_before) {
    uint32_t first = queue->popped > count_before ? queue->popped : count_before;
    for (uint32_t i = first; i < queue->count; i++)
        if (i >= ORACLE_QUEUE_CAPACITY
            && (i % ORACLE_QUEUE_CAPACITY < count_before || i - ORACLE_QUEUE_CAPACITY >= first))
            return true;
    return false;
}

static void close_queue(struct tx_queue_state *state, const struct open_queue *queue) {
    state->count = (uint8_t)(queue->count - queue->popped);
    memset(state->elements, 0, sizeof state->elements);
    memcpy(state->elements, queue->elements + queue->popped, state->count);
}

static bool tx_queue_step(void *state, const struct call *call) {
    struct tx_queue_state *all = state;
    struct tx_state keys = all->keys;
    struct open_queue queue = {.count = all->count};
    uint64_t result = 0;
    memcpy(queue.elements, all->elements, sizeof all->elements);
    for (uint32_t shift = 0; shift < 64 && (call->argument >> shift & 0xffff) != 0; shift += 16) {
        uint64_t step = call->argument >> shift & 0xffff;
        result |= (step >> 12 >= TX_PUSH ? queue_apply(&queue, step) : tx_apply(&keys, step)) << shift;
    }
    bool has_no_room = is_full(&queue, all->count);
    if (has_no_room || (ended(call) && call->code != 0))
        return has_no_room && ended(call) && call->code != 0;
    all->keys = keys;
    close_queue(all, &queue);
    return !ended(call) || result == call->result;
}

const struct oracle oracle_tx_queue = {"transactions with a queue", sizeof(struct tx_queue_state),
                                       tx_queue_init, tx_queue_step, tx_print};
