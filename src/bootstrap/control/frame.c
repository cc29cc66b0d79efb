/* frame.c - implements frame.h: encodes, seals and decodes frames.
 *
 * The decoder checks a length against the current limit before it waits for data. Each direction counts its
 * frames, so a sealed frame opens at exactly one position of its stream. */
#include "bootstrap/control/frame.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sodium.h>

#include "base/bytes.h"

static void frame_mac(const struct remo__seal *seal, const uint8_t *wire, size_t bytes,
                      uint8_t ret_mac[REMO__FRAME_MAC_BYTES]) {
    crypto_generichash_state state;
    uint64_t number = htole64(seal->number);
    crypto_generichash_init(&state, seal->key, sizeof seal->key, REMO__FRAME_MAC_BYTES);
    crypto_generichash_update(&state, (const uint8_t *)&number, sizeof number);
    crypto_generichash_update(&state, wire, bytes);
    crypto_generichash_final(&state, ret_mac, REMO__FRAME_MAC_BYTES);
}

size_t remo__frame_wire_bytes(const struct remo__seal *seal, size_t bytes) {
    return REMO__FRAME_HEADER_BYTES + bytes + (seal->on ? REMO__FRAME_MAC_BYTES : 0);
}

void remo__frame_encode(struct remo__seal *seal, uint16_t type, uint16_t flags, const void *data,
                        uint32_t bytes, uint8_t *wire) {
    struct remo__writer writer = remo__writer_of(wire, REMO__FRAME_HEADER_BYTES + bytes);
    remo__put_u32(&writer, bytes);
    remo__put_u16(&writer, type);
    remo__put_u16(&writer, flags);
    remo__put_bytes(&writer, data, bytes);
    assert(!writer.bad);
    if (seal->on)
        frame_mac(seal, wire, REMO__FRAME_HEADER_BYTES + bytes, writer.at);
    seal->number++;
}

int remo__frame_decode(struct remo__seal *seal, const uint8_t *wire, size_t wire_bytes, uint32_t bytes_max,
                       struct remo__frame *ret_frame) {
    assert(bytes_max < INT_MAX / 2);
    struct remo__reader reader = remo__reader_of(wire, wire_bytes);
    struct remo__frame frame;
    frame.bytes = remo__get_u32(&reader);
    frame.type = remo__get_u16(&reader);
    frame.flags = remo__get_u16(&reader);
    if (frame.bytes > bytes_max) /* 0 while the header is incomplete */
        return -EBADMSG;
    if (reader.bad)
        return 0;
    size_t total = remo__frame_wire_bytes(seal, frame.bytes);
    if (wire_bytes < total)
        return 0;
    frame.data = remo__get_span(&reader, frame.bytes);
    if (seal->on) {
        uint8_t mac[REMO__FRAME_MAC_BYTES];
        frame_mac(seal, wire, REMO__FRAME_HEADER_BYTES + frame.bytes, mac);
        if (sodium_memcmp(mac, reader.at, sizeof mac) != 0)
            return -EBADMSG;
    }
    if (frame.flags & ~(REMO__FRAME_FD | REMO__FRAME_INTERNAL))
        return -EBADMSG;
    seal->number++;
    *ret_frame = frame;
    return (int)total;
}
