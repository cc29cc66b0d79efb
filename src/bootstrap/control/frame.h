/* frame.h - frames of a control stream, and their seal.
 *
 * Wire:   {u32 bytes; u16 type; u16 flags} little-endian, then `bytes` bytes. Once the stream is sealed, a
 *         16-byte MAC (keyed BLAKE2b) follows. It covers the frame's number in its direction, the header and
 *         the data, so the decoder rejects a changed, dropped, repeated or moved frame. The data is not
 *         encrypted.
 * Trust:  the input is untrusted. A length beyond the current limit is rejected before its data arrives.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REMO__FRAME_HEADER_BYTES 8u
#define REMO__FRAME_MAC_BYTES 16u
#define REMO__SEAL_KEY_BYTES 32u

enum remo__frame_flags {
    REMO__FRAME_FD = 1,       /* a descriptor accompanies the frame */
    REMO__FRAME_INTERNAL = 2, /* `type` is one of remo__frame_type; else it is the node's */
};

enum remo__frame_type {
    REMO__FRAME_HELLO = 1, /* the sender's rank and job, and a nonce */
    REMO__FRAME_PROOF,     /* of knowledge of the secret */
    REMO__FRAME_REFUSE,    /* u16 remo__refusal: why the connection ends now */
    REMO__FRAME_BLOB,      /* boot id and the node's hello; the peer is up */
    REMO__FRAME_HEARTBEAT,
    REMO__FRAME_LEAVE,
    REMO__FRAME_LOST,   /* the sender has lost its connection of the data plane to the receiver */
    REMO__FRAME_END,    /* the receiver must end all its streams (end.c) */
    REMO__FRAME_SILENT, /* the receiver was silent, and counts as failed: it must end all its streams */
};

struct remo__seal {
    bool on;
    uint64_t number; /* of the next frame */
    uint8_t key[REMO__SEAL_KEY_BYTES];
};

struct remo__frame {
    uint16_t type, flags;
    uint32_t bytes;
    const uint8_t *data; /* inside the buffer that was decoded */
};

size_t remo__frame_wire_bytes(const struct remo__seal *seal, size_t bytes);
/* Encode and seal one frame. `wire` has room for remo__frame_wire_bytes. */
void remo__frame_encode(struct remo__seal *seal, uint16_t type, uint16_t flags, const void *data,
                        uint32_t bytes, uint8_t *wire);
/* Decode the first frame of `wire`. Returns the bytes of the frame, 0 if it is incomplete, or -EBADMSG if it
 * is malformed. */
int remo__frame_decode(struct remo__seal *seal, const uint8_t *wire, size_t wire_bytes, uint32_t bytes_max,
                       struct remo__frame *ret_frame);
