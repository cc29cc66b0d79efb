/* bytes.h - cursors that take apart and put together messages, without trusting anybody.
 *
 * Numbers are little-endian on the wire and need no alignment. A string is a u16 length and that many bytes,
 * none of them 0. The first read or write that does not fit sets `bad`, yields zeros or writes nothing, and
 * so do all that follow: a decoder reads everything and asks once, at the end. */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct remo__reader {
    const uint8_t *at;
    const uint8_t *end;
    int bad;
};

struct remo__writer {
    uint8_t *at;
    uint8_t *end;
    int bad;
};

static inline struct remo__reader remo__reader_of(const void *data, size_t size_bytes) {
    return (struct remo__reader){.at = data, .end = (const uint8_t *)data + size_bytes};
}

static inline size_t remo__reader_left(const struct remo__reader *reader) {
    return (size_t)(reader->end - reader->at);
}

/* Did everything read so far fit, and is nothing left over? */
static inline bool remo__reader_complete(const struct remo__reader *reader) {
    return !reader->bad && reader->at == reader->end;
}

/* The next `size_bytes` bytes where they lie, or NULL (only then is the reader bad). */
static inline const void *remo__get_span(struct remo__reader *reader, size_t size_bytes) {
    if (reader->bad || size_bytes > remo__reader_left(reader)) {
        reader->bad = 1;
        return NULL;
    }
    const void *span = reader->at;
    reader->at += size_bytes;
    return span;
}

/* Copy the next `size_bytes` bytes to `ret_data`; zeros if they are not there. */
static inline void remo__get_bytes(struct remo__reader *reader, void *ret_data, size_t size_bytes) {
    const void *span = remo__get_span(reader, size_bytes);
    if (size_bytes == 0)
        return;
    if (span)
        memcpy(ret_data, span, size_bytes);
    else
        memset(ret_data, 0, size_bytes);
}

static inline uint8_t remo__get_u8(struct remo__reader *reader) {
    uint8_t value;
    remo__get_bytes(reader, &value, sizeof value);
    return value;
}

static inline uint16_t remo__get_u16(struct remo__reader *reader) {
    uint16_t value;
    remo__get_bytes(reader, &value, sizeof value);
    return le16toh(value);
}

static inline uint32_t remo__get_u32(struct remo__reader *reader) {
    uint32_t value;
    remo__get_bytes(reader, &value, sizeof value);
    return le32toh(value);
}

static inline uint64_t remo__get_u64(struct remo__reader *reader) {
    uint64_t value;
    remo__get_bytes(reader, &value, sizeof value);
    return le64toh(value);
}

/* A string and its end into `ret_string` of `size_bytes` > 0 bytes; "" and bad if it does not fit there or
 * holds a 0. */
static inline void remo__get_string(struct remo__reader *reader, char *ret_string, size_t size_bytes) {
    size_t length = remo__get_u16(reader);
    const void *span = remo__get_span(reader, length);
    if (!span || length >= size_bytes || memchr(span, 0, length)) {
        reader->bad = 1;
        length = 0;
    } else {
        memcpy(ret_string, span, length);
    }
    ret_string[length] = '\0';
}

static inline struct remo__writer remo__writer_of(void *data, size_t size_bytes) {
    return (struct remo__writer){.at = data, .end = (uint8_t *)data + size_bytes};
}

/* Room for the next `size_bytes` bytes, or NULL (only then is the writer bad). */
static inline void *remo__put_span(struct remo__writer *writer, size_t size_bytes) {
    if (writer->bad || size_bytes > (size_t)(writer->end - writer->at)) {
        writer->bad = 1;
        return NULL;
    }
    void *span = writer->at;
    writer->at += size_bytes;
    return span;
}

static inline void remo__put_bytes(struct remo__writer *writer, const void *data, size_t size_bytes) {
    void *span = remo__put_span(writer, size_bytes);
    if (span && size_bytes > 0)
        memcpy(span, data, size_bytes);
}

static inline void remo__put_u8(struct remo__writer *writer, uint8_t value) {
    remo__put_bytes(writer, &value, sizeof value);
}

static inline void remo__put_u16(struct remo__writer *writer, uint16_t value) {
    value = htole16(value);
    remo__put_bytes(writer, &value, sizeof value);
}

static inline void remo__put_u32(struct remo__writer *writer, uint32_t value) {
    value = htole32(value);
    remo__put_bytes(writer, &value, sizeof value);
}

static inline void remo__put_u64(struct remo__writer *writer, uint64_t value) {
    value = htole64(value);
    remo__put_bytes(writer, &value, sizeof value);
}

/* All of it or nothing; bad also if it is longer than 65535 bytes. */
static inline void remo__put_string(struct remo__writer *writer, const char *string) {
    size_t length = strlen(string);
    if (length > UINT16_MAX || length + sizeof(uint16_t) > (size_t)(writer->end - writer->at)) {
        writer->bad = 1;
        return;
    }
    remo__put_u16(writer, (uint16_t)length);
    remo__put_bytes(writer, string, length);
}
