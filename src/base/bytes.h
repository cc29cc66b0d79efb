/* bytes.h - cursors that decode and encode messages; input is never trusted.
 *
 * Numbers are little-endian on the wire and need no alignment. A string is a u16 length and that many bytes,
 * none of them 0. The first access that does not fit sets `bad`. From then on reads return zeros and writes
 * have no effect, so a decoder checks once, at the end. */
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

/* True if all reads were within the message and no bytes are left over. */
static inline bool remo__reader_complete(const struct remo__reader *reader) {
    return !reader->bad && reader->at == reader->end;
}

/* The next `size_bytes` bytes, not copied. NULL, and the reader is bad, if fewer are left. */
static inline const void *remo__get_span(struct remo__reader *reader, size_t size_bytes) {
    if (reader->bad || size_bytes > remo__reader_left(reader)) {
        reader->bad = 1;
        return NULL;
    }
    const void *span = reader->at;
    reader->at += size_bytes;
    return span;
}

/* Copy the next `size_bytes` bytes to `ret_data`; zeros if fewer are left. */
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

/* Read a string into `ret_string` of `size_bytes` > 0 bytes and terminate it. A string that does not fit or
 * contains a 0 yields "" and a bad reader. */
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

/* True if the next `size_bytes` bytes fit. If not, the writer is bad from now on. */
static inline bool remo__writer_fits(struct remo__writer *writer, size_t size_bytes) {
    if (size_bytes > (size_t)(writer->end - writer->at))
        writer->bad = 1;
    return !writer->bad;
}

/* Room for the next `size_bytes` bytes. NULL, and the writer is bad, if they do not fit. */
static inline void *remo__put_span(struct remo__writer *writer, size_t size_bytes) {
    if (!remo__writer_fits(writer, size_bytes))
        return NULL;
    void *span = writer->at;
    writer->at += size_bytes;
    return span;
}

/* Tests the writer and not a span: gcc 14 would warn of a copy to NULL. */
static inline void remo__put_bytes(struct remo__writer *writer, const void *data, size_t size_bytes) {
    if (size_bytes == 0 || !remo__writer_fits(writer, size_bytes))
        return;
    memcpy(writer->at, data, size_bytes);
    writer->at += size_bytes;
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

/* Write the whole string or nothing. A string of more than 65535 bytes makes the writer bad. */
static inline void remo__put_string(struct remo__writer *writer, const char *string) {
    size_t length = strlen(string);
    if (length > UINT16_MAX || length + sizeof(uint16_t) > (size_t)(writer->end - writer->at)) {
        writer->bad = 1;
        return;
    }
    remo__put_u16(writer, (uint16_t)length);
    remo__put_bytes(writer, string, length);
}
