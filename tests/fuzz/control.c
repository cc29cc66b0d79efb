/* control.c - fuzzes the bytes that any process can send to a control socket: frames, hellos, proofs. The
 * first byte of the input selects the decoder. */
#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/control/handshake.h"
#include "bootstrap/control/link.h"
#include "fuzz.h"

enum kind { KIND_STREAM, KIND_SEALED_STREAM, KIND_HELLO, KIND_PROOF, KIND_COUNT };

static const struct remo__roster acceptor = {.rank = 0, .size = 2, .job = "job", .has_key = 1, .key = {7}};
static const struct remo__roster connector = {.rank = 1, .size = 2, .job = "job", .has_key = 1, .key = {7}};

/* ---- good inputs --------------------------------------------------------------------------------------- */

static size_t seed_stream(uint8_t *data, bool sealed) {
    static const uint8_t inside[400];
    struct remo__seal seal = {.on = sealed, .key = {1}};
    size_t at = 0;
    for (uint32_t bytes = 0; bytes < sizeof inside; bytes = 3 * bytes + 1) {
        remo__frame_encode(&seal, REMO__FRAME_HELLO, REMO__FRAME_INTERNAL, inside, bytes, data + at);
        at += remo__frame_wire_bytes(&seal, bytes);
    }
    return at;
}

static size_t seed_hello(uint8_t *data) {
    struct remo__handshake handshake;
    remo__handshake_begin(&handshake, &connector, true);
    remo__handshake_hello_write(&handshake, 0);
    memcpy(data, handshake.ours, handshake.ours_bytes);
    return handshake.ours_bytes;
}

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    if (n >= KIND_COUNT)
        return 0;
    ret_data[0] = (uint8_t)n;
    uint8_t *data = ret_data + 1;
    switch ((enum kind)n) {
    case KIND_STREAM:
    case KIND_SEALED_STREAM: return 1 + seed_stream(data, n == KIND_SEALED_STREAM);
    case KIND_HELLO: return 1 + seed_hello(data);
    default: memset(data, 3, 32); return 1 + 32;
    }
}

/* ---- targets ------------------------------------------------------------------------------------------- */

/* Send the bytes through a socket in uneven pieces, as a network may deliver them. */
static void try_stream(const uint8_t *data, size_t bytes, bool sealed) {
    struct remo__link link;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0)
        return;
    if (remo__link_open(&link, pair[0], true, REMO__PROOF_WIRE_MAX) != 0)
        abort();
    link.receive_seal = (struct remo__seal){.on = sealed, .key = {1}};
    for (size_t at = 0, piece = 1; at < bytes; at += piece, piece = 1 + (piece * 7) % 300) {
        struct remo__frame frame;
        int fd, rc = 0;
        piece = piece < bytes - at ? piece : bytes - at;
        if (write(pair[1], data + at, piece) != (ssize_t)piece || remo__link_fill(&link) <= 0)
            break;
        while ((rc = remo__link_next(&link, &frame, &fd)) > 0) {
            assert(frame.bytes <= REMO__PROOF_WIRE_MAX && fd == -1);
            assert(frame.data >= link.buffer && frame.data + frame.bytes <= link.buffer + link.buffer_end);
        }
        if (rc < 0)
            break;
    }
    remo__link_close(&link);
    close(pair[1]);
}

static void try_hello(const uint8_t *data, size_t bytes) {
    struct remo__handshake handshake;
    remo__handshake_begin(&handshake, &acceptor, false);
    if (remo__handshake_hello_read(&handshake, data, bytes) != REMO__REFUSAL_NONE)
        return;
    assert(handshake.peer.rank == 1 && strcmp(handshake.peer.job, "job") == 0);
    remo__handshake_hello_write(&handshake, handshake.peer.rank);
    if (remo__handshake_verify(&handshake, data, bytes) == 0)
        abort();
}

static void try_proof(const uint8_t *data, size_t bytes) {
    struct remo__handshake ours, theirs;
    remo__handshake_begin(&ours, &acceptor, false);
    remo__handshake_begin(&theirs, &connector, true);
    remo__handshake_hello_write(&theirs, 0);
    if (remo__handshake_hello_read(&ours, theirs.ours, theirs.ours_bytes) != REMO__REFUSAL_NONE)
        abort();
    remo__handshake_hello_write(&ours, 1);
    if (remo__handshake_verify(&ours, data, bytes) == 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes == 0 || sodium_init() < 0)
        return 0;
    switch ((enum kind)(data[0] % KIND_COUNT)) {
    case KIND_STREAM:
    case KIND_SEALED_STREAM:
        try_stream(data + 1, bytes - 1, data[0] % KIND_COUNT == KIND_SEALED_STREAM);
        break;
    case KIND_HELLO: try_hello(data + 1, bytes - 1); break;
    default: try_proof(data + 1, bytes - 1);
    }
    return 0;
}
