/* message.c - encode and decode the frames of the channel protocol; see message.h.
 * Invariant: a decoder accepts exactly the frames that the encoder writes for valid fields. */
#include "channel/message.h"

#include "base/bytes.h"

static size_t written(const struct remo__writer *writer, const uint8_t *frame) {
    assert(!writer->bad); /* REMO__MESSAGE_BYTES_MAX suffices for fields of the largest size */
    return (size_t)(writer->at - frame);
}

static void put_nodeset(struct remo__writer *writer, const struct remo_nodeset *set) {
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(set->word); i++)
        remo__put_u64(writer, set->word[i]);
}

static struct remo_nodeset get_nodeset(struct remo__reader *reader) {
    struct remo_nodeset set;
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(set.word); i++)
        set.word[i] = remo__get_u64(reader);
    return set;
}

size_t remo__join_encode(const struct remo__join *join, uint8_t *ret_frame) {
    struct remo__writer writer = remo__writer_of(ret_frame, REMO__MESSAGE_BYTES_MAX);
    remo__put_u32(&writer, join->id);
    remo__put_u32(&writer, join->to_id);
    remo__put_string(&writer, join->name);
    remo__put_string(&writer, join->type);
    put_nodeset(&writer, &join->participants);
    assert(join->memory_count <= REMO_CHANNEL_MEMORIES_MAX);
    remo__put_u32(&writer, join->memory_count);
    for (uint32_t i = 0; i < join->memory_count; i++) {
        remo__put_string(&writer, join->memories[i].name);
        remo__put_u64(&writer, join->memories[i].expected_bytes);
        put_nodeset(&writer, &join->memories[i].providers);
    }
    return written(&writer, ret_frame);
}

bool remo__join_decode(const void *frame, size_t bytes, struct remo__join *ret_join) {
    struct remo__reader reader = remo__reader_of(frame, bytes);
    struct remo__join join = {.id = remo__get_u32(&reader)};
    join.to_id = remo__get_u32(&reader);
    remo__get_string(&reader, join.name, sizeof join.name);
    remo__get_string(&reader, join.type, sizeof join.type);
    join.participants = get_nodeset(&reader);
    join.memory_count = remo__get_u32(&reader);
    if (join.memory_count > REMO_CHANNEL_MEMORIES_MAX)
        return false;
    for (uint32_t i = 0; i < join.memory_count; i++) {
        remo__get_string(&reader, join.memories[i].name, sizeof join.memories[i].name);
        join.memories[i].expected_bytes = remo__get_u64(&reader);
        join.memories[i].providers = get_nodeset(&reader);
    }
    *ret_join = join;
    return remo__reader_complete(&reader) && join.id != 0;
}

size_t remo__connect_encode(const struct remo__connect *connect, uint8_t *ret_frame) {
    struct remo__writer writer = remo__writer_of(ret_frame, REMO__MESSAGE_BYTES_MAX);
    remo__put_u32(&writer, connect->id);
    remo__put_u32(&writer, connect->to_id);
    assert(connect->memory_count <= REMO_CHANNEL_MEMORIES_MAX);
    remo__put_u32(&writer, connect->memory_count);
    for (uint32_t i = 0; i < connect->memory_count; i++) {
        remo__put_u64(&writer, connect->memories[i].offset);
        remo__put_u64(&writer, connect->memories[i].bytes);
    }
    return written(&writer, ret_frame);
}

bool remo__connect_decode(const void *frame, size_t bytes, struct remo__connect *ret_connect) {
    struct remo__reader reader = remo__reader_of(frame, bytes);
    struct remo__connect connect = {.id = remo__get_u32(&reader)};
    connect.to_id = remo__get_u32(&reader);
    connect.memory_count = remo__get_u32(&reader);
    if (connect.memory_count > REMO_CHANNEL_MEMORIES_MAX)
        return false;
    for (uint32_t i = 0; i < connect.memory_count; i++) {
        connect.memories[i].offset = remo__get_u64(&reader);
        connect.memories[i].bytes = remo__get_u64(&reader);
    }
    *ret_connect = connect;
    return remo__reader_complete(&reader) && connect.id != 0 && connect.to_id != 0;
}

size_t remo__refuse_encode(const struct remo__refuse *refuse, uint8_t *ret_frame) {
    struct remo__writer writer = remo__writer_of(ret_frame, REMO__MESSAGE_BYTES_MAX);
    remo__put_u32(&writer, refuse->to_id);
    remo__put_string(&writer, refuse->text);
    return written(&writer, ret_frame);
}

bool remo__refuse_decode(const void *frame, size_t bytes, struct remo__refuse *ret_refuse) {
    struct remo__reader reader = remo__reader_of(frame, bytes);
    ret_refuse->to_id = remo__get_u32(&reader);
    remo__get_string(&reader, ret_refuse->text, sizeof ret_refuse->text);
    return remo__reader_complete(&reader) && ret_refuse->to_id != 0;
}

size_t remo__answered_encode(const struct remo__answered *answered, uint8_t *ret_frame) {
    struct remo__writer writer = remo__writer_of(ret_frame, REMO__MESSAGE_BYTES_MAX);
    remo__put_u32(&writer, answered->to_id);
    return written(&writer, ret_frame);
}

bool remo__answered_decode(const void *frame, size_t bytes, struct remo__answered *ret_answered) {
    struct remo__reader reader = remo__reader_of(frame, bytes);
    ret_answered->to_id = remo__get_u32(&reader);
    return remo__reader_complete(&reader) && ret_answered->to_id != 0;
}

size_t remo__leave_encode(const struct remo__leave *leave, uint8_t *ret_frame) {
    struct remo__writer writer = remo__writer_of(ret_frame, REMO__MESSAGE_BYTES_MAX);
    remo__put_u32(&writer, leave->id);
    remo__put_u32(&writer, leave->to_id);
    remo__put_u32(&writer, leave->in_flight);
    return written(&writer, ret_frame);
}

bool remo__leave_decode(const void *frame, size_t bytes, struct remo__leave *ret_leave) {
    struct remo__reader reader = remo__reader_of(frame, bytes);
    ret_leave->id = remo__get_u32(&reader);
    ret_leave->to_id = remo__get_u32(&reader);
    uint32_t in_flight = remo__get_u32(&reader);
    ret_leave->in_flight = in_flight != 0;
    return remo__reader_complete(&reader) && ret_leave->id != 0 && in_flight <= (ret_leave->to_id != 0);
}

bool remo__user_decode(const void *frame, size_t bytes, uint32_t *ret_to_id, const void **ret_data,
                       size_t *ret_bytes) {
    struct remo__reader reader = remo__reader_of(frame, bytes);
    *ret_to_id = remo__get_u32(&reader);
    *ret_bytes = remo__reader_left(&reader);
    *ret_data = remo__get_span(&reader, *ret_bytes);
    return !reader.bad && *ret_bytes <= REMO_CHANNEL_MESSAGE_BYTES_MAX;
}
