/* wire.h - the private data of a connection request: an endpoint's identity and the target's secret. */
#pragma once

#include "base/bytes.h"
#include "fabric/verbs/verbs.h"

#define REMO__VERBS_HELLO_BYTES 48u /* a request has room for 56; received data may be padded */

struct verbs_hello {
    uint32_t rank;
    uint64_t from_incarnation, to_incarnation;
    uint8_t secret[REMO__VERBS_SECRET_BYTES]; /* of the target */
};

static inline void verbs_hello_write(uint8_t data[REMO__VERBS_HELLO_BYTES], const struct verbs_hello *hello) {
    struct remo__writer writer = remo__writer_of(data, REMO__VERBS_HELLO_BYTES);
    memset(data, 0, REMO__VERBS_HELLO_BYTES);
    remo__put_u32(&writer, REMO__VERBS_MAGIC);
    remo__put_u32(&writer, hello->rank);
    remo__put_u64(&writer, hello->from_incarnation);
    remo__put_u64(&writer, hello->to_incarnation);
    remo__put_bytes(&writer, hello->secret, sizeof hello->secret);
}

static inline bool verbs_hello_read(const void *data, size_t bytes, struct verbs_hello *ret_hello) {
    struct remo__reader reader = remo__reader_of(data, bytes);
    uint32_t magic = remo__get_u32(&reader);
    ret_hello->rank = remo__get_u32(&reader);
    ret_hello->from_incarnation = remo__get_u64(&reader);
    ret_hello->to_incarnation = remo__get_u64(&reader);
    remo__get_bytes(&reader, ret_hello->secret, sizeof ret_hello->secret);
    return !reader.bad && magic == REMO__VERBS_MAGIC;
}
