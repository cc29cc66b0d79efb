/* handshake.h - how two nodes convince each other, as pure functions on bytes: no sockets, no clock.
 *
 *     connector                                   acceptor
 *     HELLO version job ranks size incarnation nonce ->
 *                            <- HELLO version job ranks size incarnation nonce
 *     PROOF of the connector over both hellos ->
 *                            <- PROOF of the acceptor over both hellos; BLOB
 *     BLOB ->                                     both are up
 *
 * Proof:   key file, PMIx: HMAC-SHA256 of (role, both hellos). Munge: a credential that carries that and a
 *          random share of the session's secret. The role inside keeps a proof from being sent back to its
 *          maker, the nonces from being used again.
 * Sealing: what follows the proofs is sealed with keys made of the secret and both hellos (frame.h), one for
 *          each direction. Without a credential (Unix sockets, loopback) the proof shows only that both saw
 *          the same two hellos.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/frame.h"

#define REMO__HELLO_WIRE_MAX 256u
#define REMO__PROOF_WIRE_MAX 4096u
#define REMO__NONCE_BYTES 32u

/* Why a peer was turned away; on the wire as a number, so only append. */
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

/* "the keys differ", ...: to follow "node 3 at tcp:...: ". Any number is fine. */
const char *remo__refusal_text(uint16_t refusal);

/* The connector begins with the rank it calls; the acceptor has read the other's hello, and answers. */
void remo__handshake_begin(struct remo__handshake *handshake, const struct remo__roster *roster,
                           bool connector);
/* Write our hello to `handshake->ours`. */
void remo__handshake_greet(struct remo__handshake *handshake, uint32_t to);
/* Their hello: REMO__REFUSAL_NONE when this may be our peer. A connector has greeted already. */
enum remo__refusal remo__handshake_hear(struct remo__handshake *handshake, const void *data, size_t bytes);
/* Both hellos are there. Errors: -EACCES (munge, with a sentence). */
int remo__handshake_prove(struct remo__handshake *handshake, uint8_t ret_proof[REMO__PROOF_WIRE_MAX],
                          size_t *ret_bytes);
/* Errors: -EACCES with a sentence. Time does not depend on where a wrong proof differs. */
int remo__handshake_verify(struct remo__handshake *handshake, const void *proof, size_t bytes);
/* Both proofs are verified, or, on munge, ours is made and theirs is verified. */
void remo__handshake_seals(const struct remo__handshake *handshake, struct remo__seal *ret_send,
                           struct remo__seal *ret_receive);
/* Forget the secrets. */
void remo__handshake_end(struct remo__handshake *handshake);
