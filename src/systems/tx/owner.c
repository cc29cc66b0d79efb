/* owner.c - the owner's side of a structure: it alone changes the items of its share.
 * Invariant: one thread at a time changes the items of a group, or searches it. */
#include "systems/tx/structure.h"

#include <errno.h>

/* ---- items of this node's share ---- */

/* Return whether the item at `at` has the key; the head is valid. */
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
    const char *at = structure->own + offset;
    if (!remo__item_is_valid(remo__load(at)))
        return REMO_ITEM_FREE;
    return has_key(at, key) ? REMO_ITEM_MATCHES : REMO_ITEM_OTHER;
}

/* Store sizes, key, value and seal of the next version. Returns its head: the item has it when the head is
 * stored. */
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

/* Copy the value of the item that find has returned. Returns false if the item is damaged: only this thread
 * may change it now, so a wrong seal is not a torn read. */
static bool copy_value(const struct remo_structure *structure, const struct remo_structure_key *key,
                       const char *at, void *found, size_t cap, size_t *ret_bytes) {
    uint64_t sizes = remo__load(at + REMO__ITEM_SIZES_AT), is = 0;
    char image[REMO__ITEM_IMAGE_BYTES_MAX];
    size_t bytes = sizes >> 32, value_at = remo__item_value_at(key->bytes) - REMO__ITEM_SIZES_AT;
    if ((uint32_t)sizes != key->bytes || bytes > structure->value_bytes_max)
        return false;
    size_t sealed_bytes = value_at + remo__align_up(bytes, 8);
    remo__copy_from(image, at + REMO__ITEM_SIZES_AT, sealed_bytes);
    memcpy(&is, image, sizeof is);
    if (is != sizes
        || remo__item_seal(remo__load(at), image, sealed_bytes) != remo__load(at + REMO__ITEM_SEAL_AT))
        return false;
    if (bytes > 0 && cap > 0)
        memcpy(found, image + value_at, remo__min(bytes, cap));
    *ret_bytes = bytes;
    return true;
}

/* ---- operations, for a key whose group is locked ---- */

/* Return whether an offset that a function of the type has returned is that of an item in the share. */
static bool is_item(const struct remo_structure *structure, uint64_t offset) {
    return offset % 8 == 0
           && remo__region_contains(structure->share, structure->rank, offset, structure->item_bytes);
}

static enum remo__item_answer insert(struct remo_structure *structure, const struct remo_structure_key *key,
                                     const void *value, size_t value_bytes, uint64_t *ret_offset) {
    if (structure->type->make(structure->ctx, key, ret_offset) != 0)
        return REMO__ANSWER_NO_ROOM;
    if (!is_item(structure, *ret_offset))
        return REMO__ANSWER_MALFORMED;
    char *at = structure->own + *ret_offset;
    uint64_t head = write_item(at, key, value, value_bytes);
    structure->type->link(structure->ctx, key, *ret_offset);
    remo__store(at, head);
    return REMO__ANSWER_DONE;
}

static void delete_item(struct remo_structure *structure, const struct remo_structure_key *key,
                        uint64_t offset) {
    char *at = structure->own + offset;
    remo__store(at, (remo__load(at) & ~REMO__ITEM_STATE) + REMO__ITEM_VERSION);
    structure->type->unlink(structure->ctx, key, offset);
}

static enum remo__item_answer execute(struct remo_structure *structure, enum remo__item_op op,
                                      const struct remo_structure_key *key, const void *value,
                                      size_t value_bytes, uint64_t *ret_offset, void *found, size_t cap,
                                      size_t *ret_found_bytes) {
    uint64_t offset = structure->type->find(structure->ctx, key);
    bool is_present = offset != REMO_STRUCTURE_NOWHERE;
    *ret_offset = offset;
    if (op == REMO__ITEM_INSERT && is_present)
        return REMO__ANSWER_PRESENT;
    if (op == REMO__ITEM_INSERT || (op == REMO__ITEM_PUT && !is_present))
        return insert(structure, key, value, value_bytes, ret_offset);
    if (!is_present)
        return REMO__ANSWER_ABSENT;
    if (!is_item(structure, offset))
        return REMO__ANSWER_MALFORMED;
    if (op == REMO__ITEM_LOOKUP)
        return copy_value(structure, key, structure->own + offset, found, cap, ret_found_bytes)
                   ? REMO__ANSWER_DONE
                   : REMO__ANSWER_MALFORMED;
    if (op == REMO__ITEM_DELETE)
        delete_item(structure, key, offset);
    else
        remo__store(structure->own + offset, write_item(structure->own + offset, key, value, value_bytes));
    return REMO__ANSWER_DONE;
}

enum remo__item_answer remo__owner_execute(struct remo_structure *structure, enum remo__item_op op,
                                           const struct remo_structure_key *key, const void *value,
                                           size_t value_bytes, uint64_t *ret_offset, void *found, size_t cap,
                                           size_t *ret_found_bytes) {
    uint32_t group = structure->type->group(structure->ctx, key) % REMO__STRUCTURE_GROUPS;
    pthread_mutex_lock(&structure->groups[group].mutex);
    enum remo__item_answer answer =
        execute(structure, op, key, value, value_bytes, ret_offset, found, cap, ret_found_bytes);
    if (op != REMO__ITEM_LOOKUP)
        remo__mapped_fence(); /* place the change before this thread, or a caller, reads what others change */
    pthread_mutex_unlock(&structure->groups[group].mutex);
    return answer;
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
    char reply[REMO__ITEM_REPLY_BYTES + REMO_ITEM_BYTES_MAX];
    uint64_t offset;
    size_t found_bytes = 0;
    if (request->bytes > sizeof copy)
        return REMO__ANSWER_MALFORMED;
    memcpy(copy, request->data, request->bytes);
    if (!remo__owner_decode(structure, copy, request->bytes, &header, &key, &value))
        return REMO__ANSWER_MALFORMED;
    enum remo__item_answer answer =
        remo__owner_execute(structure, header.op, &key, value, header.value_bytes, &offset,
                            reply + REMO__ITEM_REPLY_BYTES, REMO_ITEM_BYTES_MAX, &found_bytes);
    if (header.op != REMO__ITEM_LOOKUP || answer != REMO__ANSWER_DONE)
        return answer;
    memcpy(reply, &offset, sizeof offset);
    return remo_rpc_reply(request, answer, reply, REMO__ITEM_REPLY_BYTES + found_bytes);
}
