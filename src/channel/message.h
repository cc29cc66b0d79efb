/* message.h - encode and decode the frames of the channel protocol (docs/internals/join.md). Pure functions.
 *
 *     JOIN     id, to_id (0: to the endpoint of that name), name, type, participants, and for each memory its
 *              name, its providers and the bytes that the sender expects of each provider
 *     CONNECT  id, to_id, and for each memory its offset in the sender's arena and its bytes
 *     REFUSE   to_id, and the sentence
 *     ANSWERED to_id: its JOIN has been compared; the CONNECT or REFUSE, if any, came before
 *     LEAVE    id, to_id (0: to the node, which may have kept the JOIN of `id`), and whether writes of the
 *              sender to the receiver may be in flight
 *     MESSAGE  to_id, and bytes of the user
 *
 * `id` is the sender's endpoint, `to_id` the receiver's; no id is 0. A decoder returns false for a malformed
 * frame; the result is undefined then.
 */
#pragma once

#include "channel/channel.h"

enum remo__message_type {
    REMO__MESSAGE_JOIN = REMO__NODE_FRAME_CHANNELS,
    REMO__MESSAGE_CONNECT,
    REMO__MESSAGE_REFUSE,
    REMO__MESSAGE_LEAVE,
    REMO__MESSAGE_ANSWERED,
    REMO__MESSAGE_USER
};

#define REMO__MESSAGE_BYTES_MAX 2048u /* of all but a user's */
#define REMO__MESSAGE_USER_HEAD_BYTES 4u

struct remo__join {
    uint32_t id, to_id;
    char name[REMO_CHANNEL_NAME_BYTES_MAX + 1];
    char type[REMO__TYPE_BYTES_MAX + 1];
    struct remo_nodeset participants;
    uint32_t memory_count;
    struct {
        char name[REMO__MEMORY_NAME_BYTES_MAX + 1];
        uint64_t expected_bytes;
        struct remo_nodeset providers;
    } memories[REMO_CHANNEL_MEMORIES_MAX];
};

struct remo__connect {
    uint32_t id, to_id;
    uint32_t memory_count;
    struct {
        uint64_t offset, bytes;
    } memories[REMO_CHANNEL_MEMORIES_MAX];
};

struct remo__refuse {
    uint32_t to_id;
    char text[REMO__MISMATCH_BYTES];
};

struct remo__answered {
    uint32_t to_id;
};

struct remo__leave {
    uint32_t id, to_id;
    bool in_flight;
};

/* Write at most REMO__MESSAGE_BYTES_MAX bytes to `ret_frame` and return their number. */
size_t remo__join_encode(const struct remo__join *join, uint8_t *ret_frame);
size_t remo__connect_encode(const struct remo__connect *connect, uint8_t *ret_frame);
size_t remo__refuse_encode(const struct remo__refuse *refuse, uint8_t *ret_frame);
size_t remo__answered_encode(const struct remo__answered *answered, uint8_t *ret_frame);
size_t remo__leave_encode(const struct remo__leave *leave, uint8_t *ret_frame);

bool remo__join_decode(const void *frame, size_t bytes, struct remo__join *ret_join);
bool remo__connect_decode(const void *frame, size_t bytes, struct remo__connect *ret_connect);
bool remo__refuse_decode(const void *frame, size_t bytes, struct remo__refuse *ret_refuse);
bool remo__answered_decode(const void *frame, size_t bytes, struct remo__answered *ret_answered);
bool remo__leave_decode(const void *frame, size_t bytes, struct remo__leave *ret_leave);
/* *ret_data points into `frame`. */
bool remo__user_decode(const void *frame, size_t bytes, uint32_t *ret_to_id, const void **ret_data,
                       size_t *ret_bytes);
