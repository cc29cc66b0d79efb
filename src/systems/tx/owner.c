/* owner.c - the owner's side of a structure: it alone changes the items of its share.
 * Invariant: one thread at a time changes the items of a group, or searches it. */
#include <errno.h>

#include "systems/tx/key_watch.h"

/* ---- items of this node's share ---- */

/* Return whether the item at `at` has the key; it is not free. */
static bool has_key(const char *at, const struct remo_structure_key *key) {
    const char *there = at + REMO__ITEM_KEY_AT, *here = key->data;
    size_t left = key->bytes;
    if ((uint32_t)remo__load(at + REMO__ITEM_SIZES_AT) != left)
        return false;
    while (left > 0) {
        uint64_t word = 0;
        size_t bytes = remo__min(left, 8);
        memcpy(&word, here, bytes);
        if (remo__load(there) != word)
            return false;
        there += 8;
        here += bytes;
        left -= bytes;
    }
    return true;
}

enum remo_item_state remo_item_state_of(const struct remo_structure *structure,
                                        const struct remo_structure_key *key, uint64_t offset) {
    const char *at = remo__own_at(structure, offset);
    if (remo__item_is_free(remo__load(at)))
        return REMO_ITEM_FREE;
    return has_key(at, key) ? REMO_ITEM_MATCHES : REMO_ITEM_OTHER;
}

/* Store sizes, key, value and seal of the next version. Returns its head, which the caller stores to complete
 * the change. */
static uint64_t write_item(char *at, const struct remo_structure_key *key, const void *value,
                           size_t value_bytes) {
    uint64_t head = (remo__load(at) & ~REMO__ITEM_STATE) + REMO__ITEM_VERSION + REMO__ITEM_VALID;
    char image[REMO__ITEM_IMAGE_BYTES_MAX];
    size_t value_at = remo__item_value_at(key->bytes) - REMO__ITEM_SIZES_AT;
    size_t bytes = value_at + remo__align_up(value_bytes, 8);
    uint64_t sizes = remo__item_sizes(key->bytes, value_bytes);
    memset(image + 8, 0, bytes - 8); /* the padding is part of the seal */
    memcpy(image, &sizes, 8);
    memcpy(image + 8, key->data, key->bytes);
    if (value_bytes > 0)
        memcpy(image + value_at, value, value_bytes);
    remo__copy_to(at + REMO__ITEM_SIZES_AT, image, bytes);
    remo__store(at + REMO__ITEM_SEAL_AT, remo__item_seal(head, image, bytes));
    return head;
}

/* Copy the value of an item that has the key. Returns false if the item is damaged: only this thread may
 * change it now, so a wrong seal is not a torn read. */
static bool copy_value(const struct remo_structure *structure, const struct remo_structure_key *key,
                       const char *at, struct remo__owner_found *found) {
    uint64_t sizes = remo__load(at + REMO__ITEM_SIZES_AT), is = 0;
    char image[REMO__ITEM_IMAGE_BYTES_MAX];
    size_t bytes = sizes >> 32, value_at = remo__item_value_at(key->bytes) - REMO__ITEM_SIZES_AT;
    if ((uint32_t)sizes != key->bytes || bytes > structure->value_bytes_max)
        return false;
    size_t sealed_bytes = value_at + remo__align_up(bytes, 8);
    remo__copy_from(image, at + REMO__ITEM_SIZES_AT, sealed_bytes);
    memcpy(&is, image, sizeof is);
    if (is != sizes
        || remo__item_seal(found->item.head, image, sealed_bytes) != remo__load(at + REMO__ITEM_SEAL_AT))
        return false;
    if (bytes > 0 && found->cap > 0)
        memcpy(found->value, image + value_at, remo__min(bytes, found->cap));
    found->value_bytes = bytes;
    return true;
}

/* ---- steps of a change, for a key whose group is locked ---- */

/* Return whether an offset that a function of the type has returned is that of an item in the share. */
static bool is_item(const struct remo_structure *structure, uint64_t offset) {
    return offset % 8 == 0
           && remo__structure_contains(structure, structure->rank, offset, structure->item_bytes);
}

struct remo__structure_group *remo__owner_group(struct remo_structure *structure,
                                                const struct remo_structure_key *key) {
    return &structure->groups[structure->type->group(structure->ctx, key) % REMO__STRUCTURE_GROUPS];
}

bool remo__owner_search(struct remo_structure *structure, const struct remo_structure_key *key,
                        uint64_t *ret_offset) {
    *ret_offset = structure->type->find(structure->ctx, key);
    return *ret_offset == REMO_STRUCTURE_NOWHERE || is_item(structure, *ret_offset);
}

void remo__owner_lock(struct remo_structure *structure, uint64_t offset) {
    char *at = remo__own_at(structure, offset);
    remo__store(at, remo__load(at) | REMO__ITEM_LOCKED);
}

void remo__owner_unlock(struct remo_structure *structure, uint64_t offset) {
    char *at = remo__own_at(structure, offset);
    remo__store(at, remo__load(at) & ~REMO__ITEM_LOCKED);
}

enum remo__item_answer remo__owner_reserve(struct remo_structure *structure,
                                           const struct remo_structure_key *key, const void *value,
                                           size_t value_bytes, uint64_t *ret_offset) {
    if (structure->type->make(structure->ctx, key, ret_offset) != 0)
        return REMO__ANSWER_NO_ROOM;
    if (!is_item(structure, *ret_offset))
        return REMO__ANSWER_MALFORMED;
    char *at = remo__own_at(structure, *ret_offset);
    uint64_t head = write_item(at, key, value, value_bytes);
    remo__store(at, (head & ~REMO__ITEM_STATE) | REMO__ITEM_LOCKED);
    structure->type->link(structure->ctx, key, *ret_offset);
    return REMO__ANSWER_DONE;
}

void remo__owner_complete(struct remo_structure *structure, uint64_t offset) {
    char *at = remo__own_at(structure, offset);
    remo__store(at, (remo__load(at) & ~REMO__ITEM_STATE) | REMO__ITEM_VALID);
}

void remo__owner_release(struct remo_structure *structure, const struct remo_structure_key *key,
                         uint64_t offset) {
    char *at = remo__own_at(structure, offset);
    remo__store(at, (remo__load(at) & ~REMO__ITEM_STATE) + REMO__ITEM_VERSION);
    structure->type->unlink(structure->ctx, key, offset);
}

void remo__owner_replace(struct remo_structure *structure, const struct remo_structure_key *key,
                         uint64_t offset, const void *value, size_t value_bytes) {
    char *at = remo__own_at(structure, offset);
    remo__store(at, write_item(at, key, value, value_bytes));
}

void remo__owner_delete(struct remo_structure *structure, const struct remo_structure_key *key,
                        uint64_t offset) {
    remo__owner_release(structure, key, offset);
    remo__owner_group(structure, key)->deletes++;
}

/* ---- operations, for a key whose group is locked ---- */

static enum remo__item_answer insert(struct remo_structure *structure, const struct remo_structure_key *key,
                                     const void *value, size_t value_bytes) {
    uint64_t offset;
    enum remo__item_answer answer = remo__owner_reserve(structure, key, value, value_bytes, &offset);
    if (answer == REMO__ANSWER_DONE)
        remo__owner_complete(structure, offset);
    return answer;
}

enum remo__item_answer remo__owner_read(const struct remo_structure *structure,
                                        const struct remo_structure_key *key,
                                        struct remo__owner_found *found) {
    const char *at = remo__own_at(structure, found->item.offset);
    found->item.head = remo__load(at);
    return copy_value(structure, key, at, found) ? REMO__ANSWER_DONE : REMO__ANSWER_MALFORMED;
}

static enum remo__item_answer execute(struct remo_structure *structure, enum remo__item_op op,
                                      const struct remo_structure_key *key, const void *value,
                                      size_t value_bytes, struct remo__owner_found *found) {
    uint64_t offset;
    if (!remo__owner_search(structure, key, &offset))
        return REMO__ANSWER_MALFORMED;
    bool is_present = offset != REMO_STRUCTURE_NOWHERE;
    found->item.offset = offset;
    if (is_present && (remo__load(remo__own_at(structure, offset)) & REMO__ITEM_LOCKED))
        return REMO__ANSWER_BUSY;
    if (op == REMO__ITEM_INSERT && is_present)
        return REMO__ANSWER_PRESENT;
    if (op == REMO__ITEM_INSERT || (op == REMO__ITEM_PUT && !is_present))
        return insert(structure, key, value, value_bytes);
    if (!is_present)
        return REMO__ANSWER_ABSENT;
    if (op == REMO__ITEM_LOOKUP)
        return remo__owner_read(structure, key, found);
    if (op == REMO__ITEM_DELETE)
        remo__owner_delete(structure, key, offset);
    else
        remo__owner_replace(structure, key, offset, value, value_bytes);
    return REMO__ANSWER_DONE;
}

/* *ret_is_watched: the change may have made watches due. */
static enum remo__item_answer execute_in_group(struct remo_structure *structure, enum remo__item_op op,
                                               const struct remo_structure_key *key, const void *value,
                                               size_t value_bytes, struct remo__owner_found *ret_found,
                                               bool *ret_is_watched) {
    struct remo__structure_group *group = remo__owner_group(structure, key);
    pthread_mutex_lock(&group->mutex);
    enum remo__item_answer answer = execute(structure, op, key, value, value_bytes, ret_found);
    ret_found->item.deletes = group->deletes;
    if (op != REMO__ITEM_LOOKUP)
        remo__mapped_fence(); /* place the change before this thread, or a caller, reads what others change */
    *ret_is_watched = group->watches && op != REMO__ITEM_LOOKUP && answer == REMO__ANSWER_DONE;
    if (remo__unlikely(*ret_is_watched))
        remo__key_watch_change(structure, group, key->hash);
    pthread_mutex_unlock(&group->mutex);
    return answer;
}

enum remo__item_answer remo__owner_execute(struct remo_structure *structure, enum remo__item_op op,
                                           const struct remo_structure_key *key, const void *value,
                                           size_t value_bytes, struct remo__owner_found *ret_found) {
    bool is_watched;
    enum remo__item_answer answer =
        execute_in_group(structure, op, key, value, value_bytes, ret_found, &is_watched);
    for (uint32_t i = 0;
         answer == REMO__ANSWER_NO_ROOM && i < REMO__ROOM_ATTEMPTS_MAX && remo__owner_make_room(structure);
         i++)
        answer = execute_in_group(structure, op, key, value, value_bytes, ret_found, &is_watched);
    if (remo__unlikely(is_watched))
        remo__key_watch_report(structure);
    if (op == REMO__ITEM_INSERT || op == REMO__ITEM_PUT)
        remo__owner_grow(structure);
    return answer;
}

/* ---- growth ---- */

#define DIVISIONS_MAX 4u /* after one insert */

/* Lock a group that is divided next. If a table is loaded, a later insert may divide it. */
static int lock_group(struct remo__structure_group *next, enum remo__growth_reason reason) {
    return reason == REMO__GROWTH_LOAD ? pthread_mutex_trylock(&next->mutex)
                                       : pthread_mutex_lock(&next->mutex);
}

/* Divide the next parts of the share. Returns how many. */
static uint32_t divide(struct remo_structure *structure, enum remo__growth_reason reason) {
    const struct remo__structure_growth *growth = structure->growth;
    uint32_t count = 0, group;
    for (; growth && count < DIVISIONS_MAX && growth->next(structure->ctx, reason, &group); count++) {
        struct remo__structure_group *locked = &structure->groups[group % REMO__STRUCTURE_GROUPS];
        if (lock_group(locked, reason) != 0)
            break;
        growth->divide(structure->ctx, group);
        pthread_mutex_unlock(&locked->mutex);
    }
    return count;
}

void remo__owner_grow(struct remo_structure *structure) {
    (void)divide(structure, REMO__GROWTH_LOAD);
}

bool remo__owner_make_room(struct remo_structure *structure) {
    return divide(structure, REMO__GROWTH_NO_ROOM) > 0;
}

/* Copy sizes, key and value to `image`. Returns their bytes: at most those of the largest item, even if the
 * memory is damaged. */
static size_t copy_image(const struct remo_structure *structure, uint64_t offset, char *image) {
    const char *at = remo__own_at(structure, offset);
    uint64_t sizes = remo__load(at + REMO__ITEM_SIZES_AT);
    size_t key_bytes = remo__min((uint32_t)sizes, structure->key_bytes_max);
    size_t value_bytes = remo__min(sizes >> 32, structure->value_bytes_max);
    size_t bytes = remo__item_value_at(key_bytes) - REMO__ITEM_SIZES_AT + remo__align_up(value_bytes, 8);
    remo__copy_from(image, at + REMO__ITEM_SIZES_AT, bytes);
    return bytes;
}

void remo__owner_copy(struct remo_structure *structure, uint64_t from, uint64_t to, uint64_t mark) {
    char image[REMO__ITEM_IMAGE_BYTES_MAX];
    const char *was = remo__own_at(structure, from);
    char *at = remo__own_at(structure, to);
    size_t bytes = copy_image(structure, from, image);
    uint64_t damage = remo__load(was + REMO__ITEM_SEAL_AT) ^ remo__item_seal(remo__load(was), image, bytes);
    uint64_t state = remo__load(was) & REMO__ITEM_STATE;
    uint64_t head = (remo__load(at) & ~(REMO__ITEM_STATE | REMO__ITEM_MARK)) + REMO__ITEM_VERSION
                    + (mark << REMO__ITEM_MARK_SHIFT) + state;
    remo__copy_to(at + REMO__ITEM_SIZES_AT, image, bytes);
    remo__store(at + REMO__ITEM_SEAL_AT, remo__item_seal(head, image, bytes) ^ damage);
    remo__store(at, head);
}

void remo__owner_clear(struct remo_structure *structure, uint64_t offset, uint64_t mark) {
    char *at = remo__own_at(structure, offset);
    uint64_t version = (remo__load(at) & ~(REMO__ITEM_STATE | REMO__ITEM_MARK)) + REMO__ITEM_VERSION;
    remo__store(at, version | mark << REMO__ITEM_MARK_SHIFT);
}

void remo__owner_mark(struct remo_structure *structure, uint64_t offset, uint64_t mark) {
    char *at = remo__own_at(structure, offset);
    remo__store(at, (remo__load(at) & ~REMO__ITEM_MARK) | mark << REMO__ITEM_MARK_SHIFT);
}

uint64_t remo__owner_hash(const struct remo_structure *structure, uint64_t offset) {
    char key[REMO__ITEM_IMAGE_BYTES_MAX];
    const char *at = remo__own_at(structure, offset);
    size_t bytes = remo__min((uint32_t)remo__load(at + REMO__ITEM_SIZES_AT), structure->key_bytes_max);
    remo__copy_from(key, at + REMO__ITEM_KEY_AT, remo__align_up(bytes, 8));
    return XXH3_64bits(key, bytes);
}

/* ---- calls ---- */

bool remo__owner_decode(const struct remo_structure *structure, const void *request, size_t bytes,
                        struct remo__item_request *ret_header, struct remo_structure_key *ret_key,
                        const char **ret_value) {
    struct remo__item_request header;
    if (bytes < sizeof header)
        return false;
    memcpy(&header, request, sizeof header);
    if (header.op >= REMO__ITEM_OPS || header.key_bytes == 0 || header.key_bytes > structure->key_bytes_max
        || header.value_bytes > structure->value_bytes_max
        || bytes != sizeof header + header.key_bytes + header.value_bytes)
        return false;
    const char *key = (const char *)request + sizeof header;
    *ret_header = header;
    *ret_key = (struct remo_structure_key){
        .data = key, .bytes = header.key_bytes, .hash = XXH3_64bits(key, header.key_bytes)};
    *ret_value = key + header.key_bytes;
    return structure->type->owner(structure->ctx, ret_key) == structure->rank;
}

int remo__owner_handle(void *ctx, const struct remo_rpc_request *request) {
    struct remo_structure *structure = ctx;
    struct remo__item_request header;
    struct remo_structure_key key;
    const char *value;
    char copy[sizeof header
              + REMO_ITEM_BYTES_MAX]; /* of the request: the caller could change it in its ring */
    char reply[sizeof(struct remo__item_reply) + REMO_ITEM_BYTES_MAX];
    struct remo__owner_found found = {.value = reply + sizeof found.item, .cap = REMO_ITEM_BYTES_MAX};
    if (request->bytes > sizeof copy)
        return REMO__ANSWER_MALFORMED;
    memcpy(copy, request->data, request->bytes);
    if (!remo__owner_decode(structure, copy, request->bytes, &header, &key, &value))
        return REMO__ANSWER_MALFORMED;
    enum remo__item_answer answer =
        remo__owner_execute(structure, header.op, &key, value, header.value_bytes, &found);
    if (header.op != REMO__ITEM_LOOKUP || answer == REMO__ANSWER_MALFORMED)
        return answer;
    memcpy(reply, &found.item, sizeof found.item);
    return remo_rpc_reply(request, answer, reply, sizeof found.item + found.value_bytes);
}
