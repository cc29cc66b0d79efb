/* handshake.h - mutual authentication of two nodes, as pure functions on bytes: no sockets, no clock.
 *
 *     connector                                   acceptor
 *     HELLO version job ranks size incarnation nonce ->
 *                            <- HELLO version job ranks size incarnation nonce
 *     PROOF of the connector over both hellos ->
 *                            <- PROOF of the acceptor over both hellos; BLOB
 *     BLOB ->                                     both are up
 *
 * The acceptor checks the incarnation of the connector after both proofs, and sends a sealed refusal instead
 * of its BLOB if the incarnation has already joined. If the acceptor has not read the end of an earlier
 * stream of this incarnation, it refuses before its own proof, and the connector tries again.
 *
 * Proof:   key file, PMIx: HMAC-SHA256 of (role, both hellos). Munge: a credential that carries this HMAC and
 *          a random share of the session's secret. The role prevents reflection of a proof to its maker; the
 *          nonces prevent replay.
 * Users:   without a credential the kernel identifies both ends: receive.c drops a connection whose other
 *          end belongs to another user, before the proofs.
 * Sealing: all frames after the proofs are sealed (frame.h). The keys are derived from the secret and both
 *          hellos, one for each direction. Without a credential (Unix sockets, loopback) the proof shows only
 *          that both ends received the same two hellos.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/roster/roster.h"
#include "bootstrap/control/frame.h"

#define REMO__HELLO_WIRE_MAX 256u
#define REMO__PROOF_WIRE_MAX 4096u
#define REMO__NONCE_BYTES 32u

/* Why a peer was refused. The wire carries the number, so only append. */
enum remo__refusal {
    REMO__REFUSAL_NONE,
    REMO__REFUSAL_GARBAGE,
    REMO__REFUSAL_VERSION,
    REMO__REFUSAL_JOB,
    REMO__REFUSAL_SIZE,
    REMO__REFUSAL_RANK,
    REMO__REFUSAL_CREDENTIAL_KIND,
    REMO__REFUSAL_CREDENTIAL,
    REMO__REFUSAL_INCARNATION,
    REMO__REFUSAL_USER,
    REMO__REFUSAL_MUNGE,
    REMO__REFUSAL_COUNT
};

struct remo__hello {
    uint8_t credential;
    uint32_t rank, to, size, incarnation;
    char job[REMO__JOB_BYTES_MAX];
    uint8_t nonce[REMO__NONCE_BYTES];
};

struct remo__handshake {
    const struct remo__roster *roster;
    bool connector;
    size_t ours_bytes, theirs_bytes;
    uint8_t ours[REMO__HELLO_WIRE_MAX], theirs[REMO__HELLO_WIRE_MAX];
    uint8_t share_ours[REMO__KEY_BYTES], share_theirs[REMO__KEY_BYTES]; /* munge */
    struct remo__hello peer;
};

/* The cause of a refusal, to follow "node 3 at tcp:...: ". Accepts any number. */
const char *remo__refusal_text(uint16_t refusal);

/* Begin a handshake. The connector sends its hello first; the acceptor answers. */
void remo__handshake_begin(struct remo__handshake *handshake, const struct remo__roster *roster,
                           bool connector);
/* Write this node's hello, addressed to rank `to`, to `handshake->ours`. */
void remo__handshake_hello_write(struct remo__handshake *handshake, uint32_t to);
/* Read the peer's hello. Returns REMO__REFUSAL_NONE if it fits this job and rank. */
enum remo__refusal remo__handshake_hello_read(struct remo__handshake *handshake, const void *data,
                                              size_t bytes);
/* Make this node's proof. Requires both hellos. Errors: -EACCES (munge, with a sentence). */
int remo__handshake_prove(struct remo__handshake *handshake, uint8_t ret_proof[REMO__PROOF_WIRE_MAX],
                          size_t *ret_bytes);
/* Verify the peer's proof, in constant time. Errors, each with a sentence:
 *   -EACCES  the proof is wrong
 *   -EAGAIN  the munge daemon cannot verify it now */
int remo__handshake_verify(struct remo__handshake *handshake, const void *proof, size_t bytes);
/* Derive the seals of both directions. Requires this node's proof and the verified proof of the peer. */
void remo__handshake_seals(const struct remo__handshake *handshake, struct remo__seal *ret_send,
                           struct remo__seal *ret_receive);
/* Erase the secrets. */
void remo__handshake_end(struct remo__handshake *handshake);
