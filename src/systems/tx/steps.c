/* steps.c - the owner's side of transactions: the steps of a request, under the mutexes of their groups.
 * Invariant: while an item has its new value and another one of the same transaction its old value, the item
 * with the old value is locked or reserved, so a read of both shows that the transaction is not complete. */
#include "systems/tx/steps.h"

#include "systems/tx/key_claim.h"
#include "systems/tx/key_watch.h"

/* ---- decode ---- */

static bool is_twice(const struct remo__tx_steps *steps, const struct remo__tx_step *step) {
    for (uint32_t i = 0; i < steps->count; i++) {
        const struct remo__tx_step *other = &steps->step[i];
        if (other->key.hash == step->key.hash && other->structure == step->structure
            && other->key.bytes == step->key.bytes
            && memcmp(other->key.data, step->key.data, step->key.bytes) == 0)
            return true;
    }
    return false;
}

/* Decode the item at *at of a request, and advance *at. */
static bool decode_item(const struct remo_tx_space *space, const char *request, size_t bytes, size_t *at,
                        struct remo__tx_step *ret_step) {
    struct remo__tx_item_request header;
    if (bytes - *at < sizeof header)
        return false;
    memcpy(&header, request + *at, sizeof header);
    *at += sizeof header;
    if (header.op >= REMO__TX_OPS || header.condition >= REMO__TX_CONDITIONS
        || header.structure >= space->structure_count
        || (size_t)header.key_bytes + header.value_bytes > bytes - *at)
        return false;
    struct remo_structure *structure = space->structures[header.structure];
    const char *key = request + *at;
    *at += (size_t)header.key_bytes + header.value_bytes;
    if (header.key_bytes == 0 || header.key_bytes > structure->key_bytes_max
        || header.value_bytes > structure->value_bytes_max)
        return false;
    *ret_step = (struct remo__tx_step){
        .structure = structure,
        .key = {.data = key, .bytes = header.key_bytes, .hash = XXH3_64bits(key, header.key_bytes)},
        .value = key + header.key_bytes,
        .was_at = header.offset,
        .had_head = header.head,
        .value_bytes = header.value_bytes,
        .op = header.op,
        .condition = header.condition};
    return structure->type->owner(structure->ctx, &ret_step->key) == structure->rank;
}

/* Prefetch what the step accesses first: the caller has read the item, so it is probably in the cache of
 * another processor. */
static void prefetch(const struct remo__tx_step *step) {
    struct remo_structure *structure = step->structure;
    if (step->op != REMO__TX_CHECK && step->condition == REMO__TX_SAME)
        remo__mapped_prefetch_write(remo__own_at(structure, step->was_at));
    if (structure->prefetch)
        (void)structure->prefetch(structure->ctx, &step->key, structure->rank);
}

/* An insert needs an absent key, and an update or a delete a present one. */
static bool is_consistent(const struct remo__tx_step *step) {
    switch ((enum remo__tx_op)step->op) {
    case REMO__TX_INSERT: return step->condition == REMO__TX_ABSENT;
    case REMO__TX_UPDATE:
    case REMO__TX_DELETE: return step->condition == REMO__TX_SAME;
    default: return true;
    }
}

static bool decode(const struct remo_tx_space *space, const char *request, size_t bytes,
                   struct remo__tx_steps *ret_steps) {
    struct remo__tx_request header;
    size_t at = sizeof header;
    if (bytes < sizeof header)
        return false;
    memcpy(&header, request, sizeof header);
    if (header.items > REMO__TX_ITEMS_MAX)
        return false;
    ret_steps->count = ret_steps->changes = ret_steps->mutexes_count = 0;
    ret_steps->is_watched = false;
    ret_steps->space = space;
    ret_steps->claimant = header.claimant;
    while (ret_steps->count < header.items) {
        struct remo__tx_step *step = &ret_steps->step[ret_steps->count];
        if (!decode_item(space, request, bytes, &at, step) || !is_consistent(step)
            || is_twice(ret_steps, step))
            return false;
        prefetch(step);
        ret_steps->changes += step->op != REMO__TX_CHECK;
        ret_steps->count++;
    }
    return at == bytes;
}

/* ---- the mutexes of all groups ---- */

static void add_mutex(struct remo__tx_steps *steps, pthread_mutex_t *mutex) {
    uint32_t at = steps->mutexes_count;
    while (at > 0 && (uintptr_t)steps->mutexes[at - 1] > (uintptr_t)mutex)
        at--;
    if (at > 0 && steps->mutexes[at - 1] == mutex)
        return;
    memmove(&steps->mutexes[at + 1], &steps->mutexes[at],
            (steps->mutexes_count - at) * sizeof steps->mutexes[0]);
    steps->mutexes[at] = mutex;
    steps->mutexes_count++;
}

/* Lock the mutexes in the order of their addresses, so that two transactions never wait for each other, even
 * if their spaces have the same structures in different orders. */
static void lock_groups(struct remo__tx_steps *steps) {
    for (uint32_t i = 0; i < steps->count; i++) {
        struct remo__tx_step *step = &steps->step[i];
        step->group = remo__owner_group(step->structure, &step->key);
        add_mutex(steps, &step->group->mutex);
    }
    for (uint32_t i = 0; i < steps->mutexes_count; i++)
        pthread_mutex_lock(steps->mutexes[i]);
}

static void unlock_groups(const struct remo__tx_steps *steps) {
    for (uint32_t i = steps->mutexes_count; i-- > 0;)
        pthread_mutex_unlock(steps->mutexes[i]);
}

/* ---- conditions ---- */

static bool refuse(struct remo__tx_conflict *ret_conflict, uint32_t item, enum remo_tx_conflict_kind kind) {
    *ret_conflict = (struct remo__tx_conflict){.item = item, .kind = kind};
    return false;
}

/* Return whether the step changes a key that an older transaction claims. */
static bool is_preceded(const struct remo__tx_steps *steps, const struct remo__tx_step *step) {
    return remo__unlikely(step->group->claims != NULL) && step->op != REMO__TX_CHECK
           && remo__key_claim_precedes(step->group, step->key.hash, steps->space, steps->claimant, true);
}

/* Return whether the condition of a step is true, no other transaction is changing its item, and none
 * precedes this one. The owner has searched for the item. */
static bool is_met(const struct remo__tx_steps *steps, uint32_t index,
                   struct remo__tx_conflict *ret_conflict) {
    const struct remo__tx_step *step = &steps->step[index];
    bool is_present = step->offset != REMO_STRUCTURE_NOWHERE;
    uint64_t head = is_present ? remo__load(remo__own_at(step->structure, step->offset)) : 0;
    if (is_preceded(steps, step))
        return refuse(ret_conflict, index, REMO_TX_LOCKED);
    if (head & REMO__ITEM_LOCKED)
        return refuse(ret_conflict, index, REMO_TX_LOCKED);
    if (step->condition == REMO__TX_ABSENT)
        return !is_present || refuse(ret_conflict, index, REMO_TX_APPEARED);
    if (step->condition == REMO__TX_ALWAYS)
        return true;
    return (is_present && step->offset == step->was_at && head == step->had_head)
           || refuse(ret_conflict, index, REMO_TX_CHANGED);
}

enum remo__tx_answer remo__tx_steps_check(struct remo__tx_steps *steps,
                                          struct remo__tx_conflict *ret_conflict) {
    for (uint32_t i = 0; i < steps->count; i++) {
        struct remo__tx_step *step = &steps->step[i];
        if (!remo__owner_search(step->structure, &step->key, &step->offset))
            return REMO__TX_ANSWER_MALFORMED;
        if (!is_met(steps, i, ret_conflict))
            return REMO__TX_ANSWER_CONFLICT;
    }
    return REMO__TX_ANSWER_DONE;
}

/* ---- changes ---- */

static bool is_insert(const struct remo__tx_step *step) {
    return step->op == REMO__TX_INSERT
           || ((step->op == REMO__TX_PUT || step->op == REMO__TX_KEEP)
               && step->offset == REMO_STRUCTURE_NOWHERE);
}

/* Reserve the items of new keys. A failure frees those that were reserved. */
static enum remo__tx_answer reserve(struct remo__tx_steps *steps) {
    for (uint32_t i = 0; i < steps->count; i++) {
        struct remo__tx_step *step = &steps->step[i];
        if (!is_insert(step))
            continue;
        enum remo__item_answer answer =
            remo__owner_reserve(step->structure, &step->key, step->value, step->value_bytes, &step->offset);
        if (answer == REMO__ANSWER_DONE) {
            step->op = REMO__TX_INSERT;
            continue;
        }
        while (i-- > 0)
            if (steps->step[i].op == REMO__TX_INSERT)
                remo__owner_release(steps->step[i].structure, &steps->step[i].key, steps->step[i].offset);
        steps->full = step->structure;
        return answer == REMO__ANSWER_NO_ROOM ? REMO__TX_ANSWER_NO_ROOM : REMO__TX_ANSWER_MALFORMED;
    }
    return REMO__TX_ANSWER_DONE;
}

enum remo__tx_answer remo__tx_steps_hold(struct remo__tx_steps *steps, bool locks) {
    enum remo__tx_answer answer = reserve(steps);
    for (uint32_t i = 0; i < steps->count && locks && answer == REMO__TX_ANSWER_DONE; i++)
        if (steps->step[i].op != REMO__TX_CHECK && steps->step[i].op != REMO__TX_INSERT)
            remo__owner_lock(steps->step[i].structure, steps->step[i].offset);
    return answer;
}

/* Unlock the item, or release it if it is reserved. */
static void let_go(const struct remo__tx_step *step) {
    if (remo__item_is_valid(remo__load(remo__own_at(step->structure, step->offset))))
        remo__owner_unlock(step->structure, step->offset);
    else
        remo__owner_release(step->structure, &step->key, step->offset);
}

static void notice_change(struct remo__tx_steps *steps, const struct remo__tx_step *step) {
    steps->is_watched = true;
    remo__key_watch_change(step->structure, step->group, step->key.hash);
}

void remo__tx_steps_apply(struct remo__tx_steps *steps) {
    for (uint32_t i = 0; i < steps->count; i++) {
        const struct remo__tx_step *step = &steps->step[i];
        switch ((enum remo__tx_op)step->op) {
        case REMO__TX_INSERT: remo__owner_complete(step->structure, step->offset); break;
        case REMO__TX_UPDATE:
        case REMO__TX_PUT:
            remo__owner_replace(step->structure, &step->key, step->offset, step->value, step->value_bytes);
            break;
        case REMO__TX_DELETE: remo__owner_delete(step->structure, &step->key, step->offset); break;
        case REMO__TX_KEEP: let_go(step); continue;
        default: continue;
        }
        if (remo__unlikely(step->group->watches != NULL))
            notice_change(steps, step);
    }
}

static void undo(const struct remo__tx_steps *steps) {
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->step[i].op != REMO__TX_CHECK)
            let_go(&steps->step[i]);
}

/* Find the items again: the structure may have moved them. A reserved item still belongs to an insert, a
 * locked item to another change. */
static void find_held(struct remo__tx_steps *steps) {
    for (uint32_t i = 0; i < steps->count; i++) {
        struct remo__tx_step *step = &steps->step[i];
        if (step->op == REMO__TX_CHECK)
            continue;
        if (!remo__owner_search(step->structure, &step->key, &step->offset)
            || step->offset == REMO_STRUCTURE_NOWHERE)
            step->op = REMO__TX_CHECK; /* the memory is damaged */
        else if (step->op == REMO__TX_PUT
                 && !remo__item_is_valid(remo__load(remo__own_at(step->structure, step->offset))))
            step->op = REMO__TX_INSERT;
    }
}

bool remo__tx_steps_are_held(struct remo__tx_steps *steps) {
    for (uint32_t i = 0; i < steps->count; i++) {
        struct remo__tx_step *step = &steps->step[i];
        if (step->op == REMO__TX_CHECK || !remo__owner_search(step->structure, &step->key, &step->offset)
            || step->offset == REMO_STRUCTURE_NOWHERE
            || !(remo__load(remo__own_at(step->structure, step->offset)) & REMO__ITEM_LOCKED))
            return false;
    }
    return true;
}

void remo__tx_steps_finish(struct remo__tx_steps *steps, bool applies) {
    find_held(steps);
    if (applies)
        remo__tx_steps_apply(steps);
    else
        undo(steps);
}

void remo__tx_steps_report(const struct remo__tx_steps *steps) {
    for (uint32_t i = 0; i < steps->count && steps->is_watched; i++)
        if (i == 0 || steps->step[i].structure != steps->step[i - 1].structure)
            remo__key_watch_report(steps->step[i].structure);
}

void remo__tx_steps_grow(const struct remo__tx_steps *steps) {
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->step[i].op == REMO__TX_INSERT)
            remo__owner_grow(steps->step[i].structure);
}

enum remo__tx_answer remo__tx_steps_run(const struct remo_tx_space *space, const char *request, size_t bytes,
                                        enum remo__tx_answer (*run)(struct remo__tx_steps *steps, void *ctx),
                                        void *ctx, struct remo__tx_steps *ret_steps) {
    enum remo__tx_answer answer;
    uint32_t attempts = 0;
    do { /* decode again: an attempt changes the steps */
        if (!decode(space, request, bytes, ret_steps))
            return REMO__TX_ANSWER_MALFORMED;
        lock_groups(ret_steps);
        answer = run(ret_steps, ctx);
        unlock_groups(ret_steps);
    } while (answer == REMO__TX_ANSWER_NO_ROOM && attempts++ < REMO__ROOM_ATTEMPTS_MAX
             && remo__owner_make_room(ret_steps->full));
    return answer;
}
