/* structure.c - implements remo/structure.h: lookups by reads and by calls, changes by calls.
 * Invariant: a lookup trusts nothing that it reads before the seal or the owner confirms it. */
#include "systems/tx/structure.h"

#include <errno.h>

#define PAUSE_NS_MIN UINT64_C(1000) /* of a caller that finds an item locked */
#define PAUSE_NS_MAX UINT64_C(1000000)
/* The steps of a lookup are inline: calls with many arguments would add an eighth to its instructions. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* ---- items that were read ---- */

enum remo_item_state remo_item_read(const struct remo_structure *structure,
                                    const struct remo_structure_key *key, const void *data, uint64_t offset,
                                    struct remo_item *ret_item) {
    const char *item = data;
    uint64_t header[REMO_ITEM_HEADER_BYTES / 8];
    memcpy(header, item, sizeof header);
    uint64_t head = header[0], seal = header[1], sizes = header[2];
    if (remo__item_is_free(head))
        return REMO_ITEM_FREE;
    size_t key_bytes = (uint32_t)sizes, value_bytes = sizes >> 32;
    if (key_bytes > structure->key_bytes_max || value_bytes > structure->value_bytes_max)
        return REMO_ITEM_TORN;
    size_t value_at = remo__item_value_at(key_bytes);
    size_t sealed_bytes = value_at + remo__align_up(value_bytes, 8) - REMO__ITEM_SIZES_AT;
    if (remo__item_seal(head, item + REMO__ITEM_SIZES_AT, sealed_bytes) != seal)
        return REMO_ITEM_TORN;
    if (key_bytes != key->bytes || memcmp(item + REMO__ITEM_KEY_AT, key->data, key_bytes) != 0)
        return REMO_ITEM_OTHER;
    if (!remo__item_is_valid(head))
        return REMO_ITEM_TORN; /* reserved for the key: call the owner until its transaction has ended */
    *ret_item = (struct remo_item){.offset = offset,
                                   .head = head,
                                   .key = item + REMO__ITEM_KEY_AT,
                                   .value = item + value_at,
                                   .key_bytes = key_bytes,
                                   .value_bytes = value_bytes};
    return REMO_ITEM_MATCHES;
}

/* ---- arguments and results ---- */

static ALWAYS_INLINE int check_key(const struct remo_structure *structure, const void *key,
                                   size_t key_bytes) {
    if (!structure || !key || key_bytes == 0)
        return remo__fail(-EINVAL, "cannot use a structure: the structure or the key is NULL, or the key is "
                                   "empty");
    if (key_bytes > structure->key_bytes_max)
        return remo__fail(-EMSGSIZE, "cannot use a key of %zu bytes: %s has key_bytes_max = %u", key_bytes,
                          remo_channel_name(structure->share->channel), structure->key_bytes_max);
    return 0;
}

static ALWAYS_INLINE int find_owner(const struct remo_structure *structure,
                                    const struct remo_structure_key *key, uint32_t *ret_owner) {
    *ret_owner = structure->type->owner(structure->ctx, key);
    if (*ret_owner < structure->node->size
        && remo_nodeset_has(remo_channel_participants(structure->share->channel), *ret_owner))
        return 0;
    return remo__fail(-EINVAL,
                      "cannot use %s: its function `owner` returned node %u, which is no participant",
                      remo_channel_name(structure->share->channel), *ret_owner);
}

int remo__structure_key(const struct remo_structure *structure, const void *key, size_t key_bytes,
                        struct remo_structure_key *ret_key, uint32_t *ret_owner) {
    int rc = check_key(structure, key, key_bytes);
    if (rc != 0)
        return rc;
    *ret_key =
        (struct remo_structure_key){.data = key, .bytes = key_bytes, .hash = XXH3_64bits(key, key_bytes)};
    return find_owner(structure, ret_key, ret_owner);
}

static int result_of(const struct remo_structure *structure, enum remo__item_answer answer) {
    const char *name = remo_channel_name(structure->share->channel);
    switch (answer) {
    case REMO__ANSWER_DONE: return 0;
    case REMO__ANSWER_ABSENT: return remo__fail_static(-ENOENT, "the key is absent");
    case REMO__ANSWER_PRESENT: return remo__fail_static(-EEXIST, "the key is present");
    case REMO__ANSWER_BUSY: return remo__fail_static(-EBUSY, "a transaction has locked the key");
    case REMO__ANSWER_NO_ROOM:
        return remo__fail(-ENOSPC,
                          "no room in %s at the owner of the key: delete keys, or open it with more "
                          "memory",
                          name);
    default:
        return remo__fail(-EPROTO,
                          "the owner cannot execute a request to %s: its memory is damaged, or the "
                          "functions of the structure differ between nodes; start all nodes from the same "
                          "build",
                          name);
    }
}

static int return_value(const void *from, size_t bytes, void *value, size_t cap, size_t *ret_value_bytes) {
    if (ret_value_bytes)
        *ret_value_bytes = bytes;
    if (bytes > cap)
        return remo__fail(-EMSGSIZE, "the value has %zu bytes, and there is room for %zu", bytes, cap);
    if (bytes > 0)
        memcpy(value, from, bytes);
    return 0;
}

/* ---- calls ---- */

/* Encode a request. Returns its bytes. */
static size_t encode_request(char *request, enum remo__item_op op, const struct remo_structure_key *key,
                             const void *value, size_t value_bytes) {
    struct remo__item_request header = {
        .op = op, .key_bytes = (uint16_t)key->bytes, .value_bytes = (uint16_t)value_bytes};
    memcpy(request, &header, sizeof header);
    memcpy(request + sizeof header, key->data, key->bytes);
    if (value_bytes > 0)
        memcpy(request + sizeof header + key->bytes, value, value_bytes);
    return sizeof header + key->bytes + value_bytes;
}

/* Return 0 and the answer of a call with the status `rc`, or an error. */
static int answer_of(const struct remo_structure *structure, int rc, enum remo__item_answer *ret_answer) {
    if (rc == -EMSGSIZE) { /* no valid reply is longer than the buffer */
        *ret_answer = REMO__ANSWER_MALFORMED;
        return 0;
    }
    if (rc < 0)
        return remo__fail_more(rc, "%s", remo_channel_name(structure->share->channel));
    *ret_answer = (enum remo__item_answer)rc;
    return 0;
}

/* Call the owner once. Returns 0 and its answer, or an error. */
static int call_once(struct remo_structure *structure, uint32_t owner, enum remo__item_op op,
                     const struct remo_structure_key *key, const void *value, size_t value_bytes, void *reply,
                     size_t cap, size_t *ret_reply_bytes, enum remo__item_answer *ret_answer) {
    char request[sizeof(struct remo__item_request) + REMO_ITEM_BYTES_MAX];
    size_t bytes = encode_request(request, op, key, value, value_bytes);
    int rc = remo_rpc_call(structure->rpc, owner, REMO__STRUCTURE_HANDLER, request, bytes, reply, cap,
                           ret_reply_bytes, structure->node->op_timeout_ns);
    return answer_of(structure, rc, ret_answer);
}

/* The item of the key is locked or reserved. Pause before the next call. */
static int pause_for(const struct remo_structure *structure, uint64_t *pause_ns, uint64_t deadline_ns) {
    if (remo__now_ns() >= deadline_ns)
        return remo__fail(
            -ETIMEDOUT, "a transaction has locked the key for op_timeout_ns: its node is slow or paused (%s)",
            remo_channel_name(structure->share->channel));
    int rc = remo_task_sleep(structure->node, *pause_ns);
    *pause_ns = remo__min(2 * *pause_ns, PAUSE_NS_MAX);
    return rc;
}

/* Call the owner, again while the item of the key is busy. Returns 0 and its answer, or an error. */
static int call(struct remo_structure *structure, uint32_t owner, enum remo__item_op op,
                const struct remo_structure_key *key, const void *value, size_t value_bytes, void *reply,
                size_t cap, size_t *ret_reply_bytes, enum remo__item_answer *ret_answer) {
    uint64_t deadline_ns = 0, pause_ns = PAUSE_NS_MIN;
    for (;;) {
        int rc =
            call_once(structure, owner, op, key, value, value_bytes, reply, cap, ret_reply_bytes, ret_answer);
        if (rc != 0 || remo__likely(*ret_answer != REMO__ANSWER_BUSY))
            return rc;
        if (deadline_ns == 0)
            deadline_ns = remo__deadline(structure->node->op_timeout_ns);
        rc = pause_for(structure, &pause_ns, deadline_ns);
        if (rc != 0)
            return rc;
    }
}

static bool is_item_of(const struct remo_structure *structure, uint32_t owner, uint64_t offset) {
    return offset % 8 == 0 && remo__structure_contains(structure, owner, offset, structure->item_bytes);
}

/* Set the result of an owner's answer. */
static int return_found(const struct remo_structure *structure, enum remo__item_answer answer,
                        const struct remo__item_reply *item, struct remo__evidence *ret_evidence) {
    if (answer == REMO__ANSWER_DONE)
        *ret_evidence =
            (struct remo__evidence){.proof = REMO__PROOF_HEAD, .offset = item->offset, .word = item->head};
    else if (answer == REMO__ANSWER_ABSENT)
        *ret_evidence = (struct remo__evidence){.proof = REMO__PROOF_DELETES, .word = item->deletes};
    return result_of(structure, answer);
}

/* Decode the reply to a lookup. The value is part of it. */
static int end_lookup(struct remo_structure *structure, uint32_t owner, const struct remo_structure_key *key,
                      enum remo__item_answer answer, const char *reply, size_t reply_bytes,
                      const void **ret_value, size_t *ret_value_bytes, struct remo__evidence *ret_evidence) {
    struct remo__item_reply item = {0};
    if (reply_bytes < sizeof item)
        answer = REMO__ANSWER_MALFORMED;
    else
        memcpy(&item, reply, sizeof item);
    if (answer == REMO__ANSWER_DONE && !is_item_of(structure, owner, item.offset)
        && (!structure->growth || item.offset % 8 != 0)) /* the segment may not be announced yet */
        answer = REMO__ANSWER_MALFORMED;
    int rc = return_found(structure, answer, &item, ret_evidence);
    if (rc != 0)
        return rc;
    if (structure->type->learn)
        structure->type->learn(structure->ctx, key, owner, item.offset);
    *ret_value = reply + sizeof item;
    *ret_value_bytes = reply_bytes - sizeof item;
    return 0;
}

/* If the item is locked or reserved: wait if `waits`, otherwise return -EBUSY. */
static int lookup_by_call(struct remo_structure *structure, uint32_t owner,
                          const struct remo_structure_key *key, void *value, size_t cap,
                          size_t *ret_value_bytes, bool waits, struct remo__evidence *ret_evidence) {
    char reply[sizeof(struct remo__item_reply) + REMO_ITEM_BYTES_MAX];
    size_t reply_bytes = 0, found_bytes = 0;
    const void *found = NULL;
    enum remo__item_answer answer;
    int rc = (waits ? call : call_once)(structure, owner, REMO__ITEM_LOOKUP, key, NULL, 0, reply,
                                        sizeof reply, &reply_bytes, &answer);
    if (rc == 0)
        rc =
            end_lookup(structure, owner, key, answer, reply, reply_bytes, &found, &found_bytes, ret_evidence);
    return rc != 0 ? rc : return_value(found, found_bytes, value, cap, ret_value_bytes);
}

size_t remo__lookup_call_bytes(const struct remo_structure *structure, const struct remo_structure_key *key) {
    return sizeof(struct remo__item_reply) + structure->value_bytes_max + sizeof(struct remo__item_request)
           + key->bytes;
}

int remo__lookup_call_start(struct remo_structure *structure, uint32_t owner,
                            const struct remo_structure_key *key, char *buffer, struct remo_rpc_op *call) {
    size_t cap = sizeof(struct remo__item_reply) + structure->value_bytes_max;
    *call =
        (struct remo_rpc_op){.node = owner,
                             .number = REMO__STRUCTURE_HANDLER,
                             .request = buffer + cap,
                             .request_bytes = encode_request(buffer + cap, REMO__ITEM_LOOKUP, key, NULL, 0),
                             .reply = buffer,
                             .reply_cap = cap,
                             .timeout_ns = structure->node->op_timeout_ns,
                             .waits = true};
    return remo_rpc_start(structure->rpc, call);
}

int remo__lookup_call_end(struct remo_structure *structure, const struct remo_structure_key *key,
                          struct remo_rpc_op *call, const void **ret_value, size_t *ret_value_bytes,
                          struct remo__evidence *ret_evidence) {
    enum remo__item_answer answer = REMO__ANSWER_MALFORMED;
    int rc = answer_of(structure, remo_rpc_wait(call), &answer);
    return rc != 0 ? rc
                   : end_lookup(structure, call->node, key, answer, call->reply, call->reply_bytes, ret_value,
                                ret_value_bytes, ret_evidence);
}

/* ---- lookups ---- */

/* Return the place that the lookup reads, if it is a place of the share. */
static ALWAYS_INLINE bool find_place(const struct remo_structure *structure, uint32_t owner,
                                     const struct remo_structure_key *key,
                                     struct remo_structure_place *ret_place) {
    return structure->type->lookup_start(structure->ctx, key, owner, ret_place) && ret_place->offset % 8 == 0
           && ret_place->bytes > 0 && ret_place->bytes <= REMO_PLACE_BYTES_MAX
           && remo__structure_contains(structure, owner, ret_place->offset, ret_place->bytes);
}

bool remo__lookup_start(const struct remo_structure *structure, uint32_t owner,
                        const struct remo_structure_key *key, struct remo_structure_place *ret_place) {
    return find_place(structure, owner, key, ret_place);
}

uint64_t remo__lookup_prefetch(const struct remo_structure *structure, uint32_t owner,
                               const struct remo_structure_key *key) {
    struct remo_structure_place place;
    if (structure->prefetch)
        return structure->prefetch(structure->ctx, key, owner);
    if (owner == structure->rank || !find_place(structure, owner, key, &place))
        return REMO_STRUCTURE_NOWHERE;
    remo__region_prefetch_read(structure->share, owner, place.offset, place.bytes);
    return place.offset;
}

uint64_t remo__lookup_prepare(const struct remo_structure *structure, uint32_t owner,
                              const struct remo_structure_key *key) {
    if (!remo__lookup_yields(structure->node))
        return REMO_STRUCTURE_NOWHERE;
    uint64_t prefetched = remo__lookup_prefetch(structure, owner, key);
    if (prefetched != REMO_STRUCTURE_NOWHERE)
        remo_task_yield();
    return prefetched;
}

static ALWAYS_INLINE int start_read(const struct remo_structure *structure, uint32_t owner,
                                    const struct remo_structure_place *place, void *data,
                                    struct remo_ack *ack) {
    struct remo__ref ref;
    int rc = remo__region_find(structure->share, owner, place->offset, &ref);
    return remo__unlikely(rc != 0) ? rc : remo__read(ref, data, place->bytes, ack);
}

int remo__lookup_read(const struct remo_structure *structure, uint32_t owner,
                      const struct remo_structure_place *place, void *data, struct remo_ack *ack) {
    return start_read(structure, owner, place, data, ack);
}

/* Read the place, in a task after a prefetch: other tasks run during the cache miss. */
static ALWAYS_INLINE int read_place(const struct remo_structure *structure, uint32_t owner,
                                    const struct remo_structure_place *place, bool is_prefetched,
                                    void *data) {
    if (!is_prefetched && remo__lookup_yields(structure->node)) {
        remo__region_prefetch_read(structure->share, owner, place->offset, place->bytes);
        remo_task_yield();
    }
    return start_read(structure, owner, place, data, NULL);
}

/* Return whether the value that lookup_end has found is in the place that was read. */
static bool is_within(const struct remo_item *item, const char *data, size_t bytes) {
    const char *value = item->value;
    return value >= data && value <= data + bytes && item->value_bytes <= (size_t)(data + bytes - value);
}

/* Judge a place that was read. `takes_locked`: accept a locked item; its transaction may have changed another
 * key already, so only a transaction may, which validates. */
static ALWAYS_INLINE int judge(struct remo_structure *structure, uint32_t owner,
                               const struct remo_structure_key *key, const struct remo_structure_place *place,
                               const void *data, void *value, size_t cap, size_t *ret_value_bytes, bool is_tx,
                               bool takes_locked, struct remo__evidence *ret_evidence) {
    struct remo_item item = {0};
    switch (structure->type->lookup_end(structure->ctx, key, owner, place, data, &item)) {
    case REMO_LOOKUP_FOUND:
        if (!is_within(&item, data, place->bytes) || (is_tx && !is_item_of(structure, owner, item.offset)))
            return REMO__CALL_OWNER;
        if ((item.head & REMO__ITEM_LOCKED) && !takes_locked)
            return REMO__READ_AGAIN;
        *ret_evidence =
            (struct remo__evidence){.proof = REMO__PROOF_HEAD, .offset = item.offset, .word = item.head};
        return return_value(item.value, item.value_bytes, value, cap, ret_value_bytes);
    case REMO_LOOKUP_ABSENT:
        *ret_evidence = (struct remo__evidence){
            .proof = REMO__PROOF_PLACE, .offset = place->offset, .bytes = (uint32_t)place->bytes};
        if (is_tx)
            ret_evidence->word = XXH3_64bits(data, place->bytes);
        return result_of(structure, REMO__ANSWER_ABSENT);
    case REMO_LOOKUP_TORN: return REMO__READ_AGAIN;
    default: return REMO__CALL_OWNER;
    }
}

int remo__lookup_end(struct remo_structure *structure, uint32_t owner, const struct remo_structure_key *key,
                     const struct remo_structure_place *place, const void *data, void *value, size_t cap,
                     size_t *ret_value_bytes, struct remo__evidence *ret_evidence) {
    return judge(structure, owner, key, place, data, value, cap, ret_value_bytes, true, false, ret_evidence);
}

/* Look the key up by reads. Returns 1 if the owner must be called. Otherwise 0 or an error: the lookup has
 * ended. */
static int lookup_by_reads(struct remo_structure *structure, uint32_t owner,
                           const struct remo_structure_key *key, uint64_t prefetched, void *value, size_t cap,
                           size_t *ret_value_bytes, bool is_tx, struct remo__evidence *ret_evidence) {
    char data[REMO_PLACE_BYTES_MAX] __attribute__((aligned(REMO__CACHE_LINE)));
    int rc = REMO__READ_AGAIN;
    for (uint32_t i = 0; i < REMO_LOOKUP_READS_MAX && rc == REMO__READ_AGAIN; i++) {
        struct remo_structure_place place;
        if (!find_place(structure, owner, key, &place))
            return 1;
        rc = read_place(structure, owner, &place, i == 0 && place.offset == prefetched, data);
        if (rc == 0)
            rc = judge(structure, owner, key, &place, data, value, cap, ret_value_bytes, is_tx,
                       is_tx && i + 1 == REMO_LOOKUP_READS_MAX, ret_evidence);
    }
    return rc > 0 ? 1 : rc;
}

int remo__structure_check_share(const struct remo_structure *structure) {
    struct remo__ref ref;
    return remo__region_find(structure->share, structure->rank, 0, &ref);
}

/* Returns -EBUSY if the item is locked or reserved. */
static int lookup_local(struct remo_structure *structure, const struct remo_structure_key *key, void *value,
                        size_t cap, size_t *ret_value_bytes, struct remo__evidence *ret_evidence) {
    char copy[REMO_ITEM_BYTES_MAX];
    struct remo__owner_found found = {.value = copy, .cap = sizeof copy};
    int rc = remo__structure_check_share(structure);
    if (rc != 0)
        return rc;
    enum remo__item_answer answer = remo__owner_execute(structure, REMO__ITEM_LOOKUP, key, NULL, 0, &found);
    rc = return_found(structure, answer, &found.item, ret_evidence);
    return rc != 0 ? rc : return_value(copy, found.value_bytes, value, cap, ret_value_bytes);
}

static ALWAYS_INLINE int find(struct remo_structure *structure, uint32_t owner,
                              const struct remo_structure_key *key, uint64_t prefetched, void *value,
                              size_t cap, size_t *ret_value_bytes, bool waits, enum remo_lookup_way *ret_way,
                              struct remo__evidence *ret_evidence) {
    struct remo__evidence unused;
    struct remo__evidence *evidence = ret_evidence ? ret_evidence : &unused;
    bool is_local = owner == structure->rank;
    *ret_way = is_local ? REMO_LOOKUP_WAY_LOCAL : REMO_LOOKUP_WAY_READ;
    int rc = is_local ? lookup_local(structure, key, value, cap, ret_value_bytes, evidence)
                      : lookup_by_reads(structure, owner, key, prefetched, value, cap, ret_value_bytes,
                                        ret_evidence != NULL, evidence);
    if (rc != 1 && (rc != -EBUSY || !waits))
        return rc;
    *ret_way = REMO_LOOKUP_WAY_CALL;
    return lookup_by_call(structure, owner, key, value, cap, ret_value_bytes, waits, evidence);
}

int remo__structure_find(struct remo_structure *structure, uint32_t owner,
                         const struct remo_structure_key *key, uint64_t prefetched, void *value, size_t cap,
                         size_t *ret_value_bytes, bool waits, enum remo_lookup_way *ret_way,
                         struct remo__evidence *ret_evidence) {
    return find(structure, owner, key, prefetched, value, cap, ret_value_bytes, waits, ret_way, ret_evidence);
}

int remo__structure_find_by_owner(struct remo_structure *structure, uint32_t owner,
                                  const struct remo_structure_key *key, void *value, size_t cap,
                                  size_t *ret_value_bytes, struct remo__evidence *ret_evidence) {
    return owner == structure->rank
               ? lookup_local(structure, key, value, cap, ret_value_bytes, ret_evidence)
               : lookup_by_call(structure, owner, key, value, cap, ret_value_bytes, false, ret_evidence);
}

int remo_structure_lookup(struct remo_structure *structure, const void *key, size_t key_bytes, void *value,
                          size_t cap, size_t *ret_value_bytes, enum remo_lookup_way *ret_way) {
    struct remo_structure_key wanted;
    uint32_t owner;
    int rc = remo__structure_key(structure, key, key_bytes, &wanted, &owner);
    if (rc == 0 && !value && cap > 0)
        rc = remo__fail(-EINVAL, "cannot look a key up: `value` is NULL, and `cap` is not 0");
    if (rc != 0)
        return rc;
    enum remo_lookup_way way;
    uint64_t prefetched = remo__lookup_prepare(structure, owner, &wanted);
    remo__structure_serve_now(structure);
    rc = find(structure, owner, &wanted, prefetched, value, cap, ret_value_bytes, true, &way, NULL);
    if (ret_way)
        *ret_way = way;
    return rc;
}

/* ---- changes ---- */

int remo__structure_check_value(const struct remo_structure *structure, const void *value,
                                size_t value_bytes) {
    if (!value && value_bytes > 0)
        return remo__fail(-EINVAL, "cannot change a key: `value` is NULL, and `value_bytes` is not 0");
    if (value_bytes > structure->value_bytes_max)
        return remo__fail(-EMSGSIZE, "cannot use a value of %zu bytes: %s has value_bytes_max = %u",
                          value_bytes, remo_channel_name(structure->share->channel),
                          structure->value_bytes_max);
    return 0;
}

static int change(struct remo_structure *structure, enum remo__item_op op, const void *key, size_t key_bytes,
                  const void *value, size_t value_bytes) {
    struct remo_structure_key wanted;
    uint32_t owner;
    int rc = remo__structure_key(structure, key, key_bytes, &wanted, &owner);
    if (rc == 0)
        rc = remo__structure_check_value(structure, value, value_bytes);
    if (rc != 0)
        return rc;
    enum remo__item_answer answer = REMO__ANSWER_BUSY;
    if (owner == structure->rank) {
        struct remo__owner_found found = {0};
        remo__structure_serve_now(structure);
        rc = remo__structure_check_share(structure);
        if (rc == 0)
            answer = remo__owner_execute(structure, op, &wanted, value, value_bytes, &found);
    }
    if (rc == 0 && answer == REMO__ANSWER_BUSY)
        rc = call(structure, owner, op, &wanted, value, value_bytes, NULL, 0, NULL, &answer);
    return rc != 0 ? rc : result_of(structure, answer);
}

int remo_structure_insert(struct remo_structure *structure, const void *key, size_t key_bytes,
                          const void *value, size_t value_bytes) {
    return change(structure, REMO__ITEM_INSERT, key, key_bytes, value, value_bytes);
}

int remo_structure_update(struct remo_structure *structure, const void *key, size_t key_bytes,
                          const void *value, size_t value_bytes) {
    return change(structure, REMO__ITEM_UPDATE, key, key_bytes, value, value_bytes);
}

int remo_structure_put(struct remo_structure *structure, const void *key, size_t key_bytes, const void *value,
                       size_t value_bytes) {
    return change(structure, REMO__ITEM_PUT, key, key_bytes, value, value_bytes);
}

int remo_structure_delete(struct remo_structure *structure, const void *key, size_t key_bytes) {
    return change(structure, REMO__ITEM_DELETE, key, key_bytes, NULL, 0);
}
