/* handshake.c - implements handshake.h: hellos, proofs and the keys of the seals.
 *
 * Every MAC covers both hellos and a label of the role, so neither a replay nor a reflection verifies.
 * Secrets are erased after use. */
#include "bootstrap/control/handshake.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "bootstrap/key.h"

#define MAGIC 0x4f4d4552u /* "REMO" */
#define VERSION 4u

enum credential { CREDENTIAL_NONE, CREDENTIAL_KEY, CREDENTIAL_MUNGE };

/* The content of a munge credential. */
struct munge_load {
    uint8_t proof[crypto_auth_hmacsha256_BYTES];
    uint8_t share[REMO__KEY_BYTES];
};

static const char *const refusal_texts[REMO__REFUSAL_COUNT] = {
    [REMO__REFUSAL_NONE] = "no reason given",
    [REMO__REFUSAL_GARBAGE] = "the data is not Remo's protocol; check whether another program uses this "
                              "address",
    [REMO__REFUSAL_VERSION] = "the nodes run different versions of Remo; install one version",
    [REMO__REFUSAL_JOB] = "the nodes belong to different jobs",
    [REMO__REFUSAL_SIZE] = "the nodes disagree about the number of nodes; start all with the same list",
    [REMO__REFUSAL_RANK] = "the nodes disagree about their ranks; give every node the same list and its own "
                           "rank",
    [REMO__REFUSAL_CREDENTIAL_KIND] = "one node has a key file, the other uses munge or no credential; give "
                                      "all nodes the same credential",
    [REMO__REFUSAL_CREDENTIAL] = "the credential is wrong; give all nodes the same key file, or all munge "
                                 "daemons the same munge.key",
    [REMO__REFUSAL_INCARNATION] = "this rank has already joined with this incarnation or a later one; check "
                                  "whether it was started twice",
    [REMO__REFUSAL_USER] =
        "the nodes belong to different users, or the kernel does not report the users of TCP "
        "connections; start all nodes as one user, or give all the same key file",
    [REMO__REFUSAL_MUNGE] = "the munge daemon cannot verify the credential; check the clocks of both "
                            "machines, and the daemon with: munge -n | unmunge",
};

const char *remo__refusal_text(uint16_t refusal) {
    return refusal_texts[refusal < REMO__REFUSAL_COUNT ? refusal : REMO__REFUSAL_NONE];
}

static uint8_t credential_of(const struct remo__roster *roster) {
    return roster->has_key ? CREDENTIAL_KEY : roster->use_munge ? CREDENTIAL_MUNGE : CREDENTIAL_NONE;
}

void remo__handshake_begin(struct remo__handshake *handshake, const struct remo__roster *roster,
                           bool connector) {
    *handshake = (struct remo__handshake){.roster = roster, .connector = connector};
    randombytes_buf(handshake->share_ours, sizeof handshake->share_ours);
}

/* ---- hello --------------------------------------------------------------------------------------------- */

void remo__handshake_hello_write(struct remo__handshake *handshake, uint32_t to) {
    const struct remo__roster *roster = handshake->roster;
    struct remo__writer writer = remo__writer_of(handshake->ours, sizeof handshake->ours);
    uint8_t nonce[REMO__NONCE_BYTES];
    randombytes_buf(nonce, sizeof nonce);
    remo__put_u32(&writer, MAGIC);
    remo__put_u16(&writer, VERSION);
    remo__put_u8(&writer, credential_of(roster));
    remo__put_u32(&writer, roster->rank);
    remo__put_u32(&writer, to);
    remo__put_u32(&writer, roster->size);
    remo__put_u32(&writer, roster->incarnation);
    remo__put_string(&writer, roster->job);
    remo__put_bytes(&writer, nonce, sizeof nonce);
    assert(!writer.bad);
    handshake->ours_bytes = (size_t)(writer.at - handshake->ours);
}

/* The version determines the layout of the rest, so it is checked first. */
static enum remo__refusal hello_decode(const void *data, size_t bytes, struct remo__hello *ret_hello) {
    struct remo__reader reader = remo__reader_of(data, bytes);
    struct remo__hello hello;
    if (bytes > REMO__HELLO_WIRE_MAX || remo__get_u32(&reader) != MAGIC)
        return REMO__REFUSAL_GARBAGE;
    if (remo__get_u16(&reader) != VERSION)
        return REMO__REFUSAL_VERSION;
    hello.credential = remo__get_u8(&reader);
    hello.rank = remo__get_u32(&reader);
    hello.to = remo__get_u32(&reader);
    hello.size = remo__get_u32(&reader);
    hello.incarnation = remo__get_u32(&reader);
    remo__get_string(&reader, hello.job, sizeof hello.job);
    remo__get_bytes(&reader, hello.nonce, sizeof hello.nonce);
    if (!remo__reader_complete(&reader))
        return REMO__REFUSAL_GARBAGE;
    *ret_hello = hello;
    return REMO__REFUSAL_NONE;
}

enum remo__refusal remo__handshake_hello_read(struct remo__handshake *handshake, const void *data,
                                              size_t bytes) {
    const struct remo__roster *roster = handshake->roster;
    struct remo__hello hello;
    enum remo__refusal refusal = hello_decode(data, bytes, &hello);
    if (refusal != REMO__REFUSAL_NONE)
        return refusal;
    handshake->peer = hello;
    if (strcmp(hello.job, roster->job) != 0)
        return REMO__REFUSAL_JOB;
    if (hello.size != roster->size)
        return REMO__REFUSAL_SIZE;
    /* The higher rank dials the lower. */
    bool right = handshake->connector ? hello.rank < roster->rank : hello.rank > roster->rank;
    if (!right || hello.rank >= roster->size || hello.to != roster->rank)
        return REMO__REFUSAL_RANK;
    if (hello.credential != credential_of(roster))
        return REMO__REFUSAL_CREDENTIAL_KIND;
    memcpy(handshake->theirs, data, bytes);
    handshake->theirs_bytes = bytes;
    return REMO__REFUSAL_NONE;
}

/* ---- proof --------------------------------------------------------------------------------------------- */

/* HMAC of (label, the connector's hello, the acceptor's hello). A hello contains the lengths of its fields,
 * so the concatenation is unambiguous. */
static void transcript_mac(const struct remo__handshake *handshake, const char *label,
                           const uint8_t key[REMO__KEY_BYTES],
                           uint8_t ret_mac[crypto_auth_hmacsha256_BYTES]) {
    crypto_auth_hmacsha256_state state;
    const uint8_t *first = handshake->connector ? handshake->ours : handshake->theirs;
    const uint8_t *second = handshake->connector ? handshake->theirs : handshake->ours;
    size_t first_bytes = handshake->connector ? handshake->ours_bytes : handshake->theirs_bytes;
    size_t second_bytes = handshake->connector ? handshake->theirs_bytes : handshake->ours_bytes;
    crypto_auth_hmacsha256_init(&state, key, REMO__KEY_BYTES);
    crypto_auth_hmacsha256_update(&state, (const uint8_t *)label, strlen(label) + 1);
    crypto_auth_hmacsha256_update(&state, first, first_bytes);
    crypto_auth_hmacsha256_update(&state, second, second_bytes);
    crypto_auth_hmacsha256_final(&state, ret_mac);
    sodium_memzero(&state, sizeof state);
}

static void proof_make(const struct remo__handshake *handshake, bool by_connector,
                       uint8_t ret_mac[crypto_auth_hmacsha256_BYTES]) {
    transcript_mac(handshake, by_connector ? "remo proof of the connector" : "remo proof of the acceptor",
                   handshake->roster->key, ret_mac);
}

int remo__handshake_prove(struct remo__handshake *handshake, uint8_t ret_proof[REMO__PROOF_WIRE_MAX],
                          size_t *ret_bytes) {
    struct munge_load load;
    proof_make(handshake, handshake->connector, load.proof);
    if (!handshake->roster->use_munge) {
        memcpy(ret_proof, load.proof, sizeof load.proof);
        *ret_bytes = sizeof load.proof;
        return 0;
    }
    char *text;
    memcpy(load.share, handshake->share_ours, sizeof load.share);
    int rc = remo__munge_seal(&load, sizeof load, &text);
    sodium_memzero(&load, sizeof load);
    if (rc != 0)
        return rc;
    size_t bytes = strlen(text) + 1;
    if (bytes > REMO__PROOF_WIRE_MAX) {
        rc = remo__fail(-EACCES, "munge made a credential of %zu bytes, expected at most %u", bytes,
                        REMO__PROOF_WIRE_MAX);
    } else {
        memcpy(ret_proof, text, bytes);
        *ret_bytes = bytes;
    }
    free(text);
    return rc;
}

int remo__handshake_verify(struct remo__handshake *handshake, const void *proof, size_t bytes) {
    struct munge_load load = {0};
    uint8_t expected[crypto_auth_hmacsha256_BYTES];
    int rc = 0;
    if (handshake->roster->use_munge) {
        const char *text = proof;
        if (bytes == 0 || memchr(text, '\0', bytes) != text + bytes - 1)
            return remo__fail(-EACCES, "the peer's proof is not a munge credential");
        rc = remo__munge_open(text, &load, sizeof load);
    } else if (bytes == sizeof load.proof) {
        memcpy(load.proof, proof, bytes);
    }
    if (rc != 0)
        return rc;
    proof_make(handshake, !handshake->connector, expected);
    if (sodium_memcmp(expected, load.proof, sizeof expected) != 0)
        rc = remo__fail(-EACCES, "%s", refusal_texts[REMO__REFUSAL_CREDENTIAL]);
    memcpy(handshake->share_theirs, load.share, sizeof load.share);
    sodium_memzero(&load, sizeof load);
    return rc;
}

/* ---- sealing ------------------------------------------------------------------------------------------- */

/* With a key file the secret is the key; with munge it is the HMAC of both shares. */
static void secret_of(const struct remo__handshake *handshake, uint8_t ret_secret[REMO__KEY_BYTES]) {
    const struct remo__handshake *h = handshake;
    if (h->roster->use_munge)
        crypto_auth_hmacsha256(ret_secret, h->connector ? h->share_theirs : h->share_ours, REMO__KEY_BYTES,
                               h->connector ? h->share_ours : h->share_theirs);
    else
        memcpy(ret_secret, h->roster->key, REMO__KEY_BYTES);
}

void remo__handshake_seals(const struct remo__handshake *handshake, struct remo__seal *ret_send,
                           struct remo__seal *ret_receive) {
    static const char from_connector[] = "remo frames of the connector",
                      from_acceptor[] = "remo frames of the acceptor";
    uint8_t secret[REMO__KEY_BYTES];
    bool on = credential_of(handshake->roster) != CREDENTIAL_NONE;
    *ret_send = *ret_receive = (struct remo__seal){.on = on};
    if (!on)
        return;
    secret_of(handshake, secret);
    transcript_mac(handshake, handshake->connector ? from_connector : from_acceptor, secret, ret_send->key);
    transcript_mac(handshake, handshake->connector ? from_acceptor : from_connector, secret,
                   ret_receive->key);
    sodium_memzero(secret, sizeof secret);
}

void remo__handshake_end(struct remo__handshake *handshake) {
    sodium_memzero(handshake, sizeof *handshake);
}
