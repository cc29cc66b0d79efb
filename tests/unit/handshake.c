/* handshake.c - unit tests of the handshake and of sealed frames as bytes.
 * Every change of any message must be detected: truncation, bit flips, replay, reflection, reordering. */
#include "unit.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/control/frame.h"
#include "bootstrap/control/handshake.h"

struct pair {
    struct remo__roster rosters[2]; /* rank 0 accepts, rank 1 connects */
    struct remo__handshake sides[2];
    uint8_t proofs[2][REMO__PROOF_WIRE_MAX];
    size_t proof_bytes[2];
};

static void pair_init(struct pair *pair) {
    for (uint32_t i = 0; i < 2; i++) {
        pair->rosters[i] = (struct remo__roster){.rank = i, .size = 2, .job = "job", .has_key = 1};
        memset(pair->rosters[i].key, 7, sizeof pair->rosters[i].key);
    }
}

static void begin(struct pair *pair) {
    remo__handshake_begin(&pair->sides[1], &pair->rosters[1], true);
    remo__handshake_begin(&pair->sides[0], &pair->rosters[0], false);
    remo__handshake_hello_write(&pair->sides[1], 0);
}

/* The acceptor's verdict on the connector's hello, then the connector's on the acceptor's. */
static enum remo__refusal exchange_hellos(struct pair *pair) {
    enum remo__refusal refusal =
        remo__handshake_hello_read(&pair->sides[0], pair->sides[1].ours, pair->sides[1].ours_bytes);
    if (refusal != REMO__REFUSAL_NONE)
        return refusal;
    remo__handshake_hello_write(&pair->sides[0], 1);
    return remo__handshake_hello_read(&pair->sides[1], pair->sides[0].ours, pair->sides[0].ours_bytes);
}

static void make_proofs(struct pair *pair) {
    for (int i = 0; i < 2; i++)
        assert_int_equal(remo__handshake_prove(&pair->sides[i], pair->proofs[i], &pair->proof_bytes[i]), 0);
}

static int verify(struct pair *pair, int verifier) {
    return remo__handshake_verify(&pair->sides[verifier], pair->proofs[1 - verifier],
                                  pair->proof_bytes[1 - verifier]);
}

static void agree(struct pair *pair) {
    begin(pair);
    assert_int_equal(exchange_hellos(pair), REMO__REFUSAL_NONE);
    make_proofs(pair);
    assert_int_equal(verify(pair, 0), 0);
    assert_int_equal(verify(pair, 1), 0);
}

static void two_agree(void **state) {
    (void)state;
    struct pair pair;
    struct remo__seal send[2], receive[2];
    pair_init(&pair);
    pair.rosters[1].incarnation = 9;
    agree(&pair);
    assert_int_equal(pair.sides[0].peer.rank, 1);
    assert_int_equal(pair.sides[0].peer.incarnation, 9);
    for (int i = 0; i < 2; i++)
        remo__handshake_seals(&pair.sides[i], &send[i], &receive[i]);
    assert_true(send[0].on);
    assert_memory_equal(send[0].key, receive[1].key, sizeof send[0].key);
    assert_memory_equal(send[1].key, receive[0].key, sizeof send[0].key);
    assert_memory_not_equal(send[0].key, send[1].key, sizeof send[0].key);
}

static enum remo__refusal refusal_of(struct pair *pair) {
    begin(pair);
    return exchange_hellos(pair);
}

static void strangers_are_refused(void **state) {
    (void)state;
    struct pair pair;
    pair_init(&pair);
    strcpy(pair.rosters[1].job, "jo");
    assert_int_equal(refusal_of(&pair), REMO__REFUSAL_JOB);
    pair_init(&pair);
    pair.rosters[1].size = 3;
    assert_int_equal(refusal_of(&pair), REMO__REFUSAL_SIZE);
    pair_init(&pair);
    pair.rosters[1].rank = 0; /* this node's rank */
    assert_int_equal(refusal_of(&pair), REMO__REFUSAL_RANK);
    pair_init(&pair);
    pair.rosters[1].rank = 2; /* beyond the job */
    assert_int_equal(refusal_of(&pair), REMO__REFUSAL_RANK);
    pair_init(&pair);
    pair.rosters[1].has_key = 0;
    assert_int_equal(refusal_of(&pair), REMO__REFUSAL_CREDENTIAL_KIND);
    for (uint16_t i = 0; i < 2 * REMO__REFUSAL_COUNT; i++)
        assert_true(strlen(remo__refusal_text(i)) > 0);
}

static void wrong_key_fails_both_ways(void **state) {
    (void)state;
    struct pair pair;
    pair_init(&pair);
    pair.rosters[1].key[31] ^= 1;
    begin(&pair);
    assert_int_equal(exchange_hellos(&pair), REMO__REFUSAL_NONE);
    make_proofs(&pair);
    assert_int_equal(verify(&pair, 0), -EACCES);
    assert_int_equal(verify(&pair, 1), -EACCES);
}

/* One bit of any message changed in transit: neither end accepts. */
static void every_bit_counts(void **state) {
    (void)state;
    struct pair pair;
    pair_init(&pair);
    begin(&pair);
    size_t hello_bits = pair.sides[1].ours_bytes * 8;
    for (size_t bit = 0; bit < hello_bits; bit++) {
        begin(&pair);
        uint8_t hello[REMO__HELLO_WIRE_MAX];
        memcpy(hello, pair.sides[1].ours, pair.sides[1].ours_bytes);
        hello[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (remo__handshake_hello_read(&pair.sides[0], hello, pair.sides[1].ours_bytes) != REMO__REFUSAL_NONE)
            continue;
        remo__handshake_hello_write(&pair.sides[0], pair.sides[0].peer.rank);
        if (remo__handshake_hello_read(&pair.sides[1], pair.sides[0].ours, pair.sides[0].ours_bytes)
            != REMO__REFUSAL_NONE)
            continue;
        make_proofs(&pair);
        assert_int_equal(verify(&pair, 0), -EACCES);
        assert_int_equal(verify(&pair, 1), -EACCES);
    }
    agree(&pair);
    for (size_t bit = 0; bit < pair.proof_bytes[1] * 8; bit++) {
        pair.proofs[1][bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(verify(&pair, 0), -EACCES);
        pair.proofs[1][bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t bytes = 0; bytes < pair.proof_bytes[1]; bytes++)
        assert_int_equal(remo__handshake_verify(&pair.sides[0], pair.proofs[1], bytes), -EACCES);
}

/* A reflected or replayed proof is rejected. */
static void reflection_and_replay_fail(void **state) {
    (void)state;
    struct pair pair, later;
    pair_init(&pair);
    agree(&pair);
    assert_int_equal(remo__handshake_verify(&pair.sides[0], pair.proofs[0], pair.proof_bytes[0]), -EACCES);
    assert_int_equal(remo__handshake_verify(&pair.sides[1], pair.proofs[1], pair.proof_bytes[1]), -EACCES);
    pair_init(&later);
    remo__handshake_begin(&later.sides[0], &later.rosters[0], false);
    assert_int_equal(
        remo__handshake_hello_read(&later.sides[0], pair.sides[1].ours, pair.sides[1].ours_bytes), 0);
    remo__handshake_hello_write(&later.sides[0], 1);
    assert_int_equal(remo__handshake_verify(&later.sides[0], pair.proofs[1], pair.proof_bytes[1]), -EACCES);
}

/* ---- frames -------------------------------------------------------------------------------------------- */

#define BYTES_MAX 100u

static void seals_init(struct remo__seal *send, struct remo__seal *receive, bool on) {
    *send = (struct remo__seal){.on = on, .key = {1, 2, 3}};
    *receive = *send;
}

static void frames_go_through(void **state) {
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct remo__seal send, receive;
        uint8_t wire[256], data[BYTES_MAX] = "some data";
        struct remo__frame frame;
        seals_init(&send, &receive, on);
        for (uint32_t bytes = 0; bytes <= BYTES_MAX; bytes++) {
            size_t total = remo__frame_wire_bytes(&send, bytes);
            remo__frame_encode(&send, (uint16_t)(1000 + bytes), REMO__FRAME_FD, data, bytes, wire);
            for (size_t there = 0; there < total; there++)
                assert_int_equal(remo__frame_decode(&receive, wire, there, BYTES_MAX, &frame), 0);
            assert_int_equal(remo__frame_decode(&receive, wire, sizeof wire, BYTES_MAX, &frame), total);
            assert_int_equal(frame.type, 1000 + bytes);
            assert_int_equal(frame.flags, REMO__FRAME_FD);
            assert_int_equal(frame.bytes, bytes);
            assert_memory_equal(frame.data, data, bytes);
        }
    }
}

static void frames_are_bounded(void **state) {
    (void)state;
    struct remo__seal send, receive;
    uint8_t wire[256], data[BYTES_MAX] = {0};
    struct remo__frame frame;
    seals_init(&send, &receive, false);
    remo__frame_encode(&send, 1, 0, data, BYTES_MAX, wire);
    assert_int_equal(remo__frame_decode(&receive, wire, 4, BYTES_MAX - 1, &frame), -EBADMSG);
    wire[6] = 0x80; /* an unknown flag */
    assert_int_equal(remo__frame_decode(&receive, wire, sizeof wire, BYTES_MAX, &frame), -EBADMSG);
}

/* Sealed frames that are changed, repeated, dropped or swapped are rejected. */
static void sealed_frames_hold(void **state) {
    (void)state;
    struct remo__seal send, receive;
    uint8_t first[64], second[64], data[16] = "0123456789abcde";
    struct remo__frame frame;
    seals_init(&send, &receive, true);
    int total = (int)remo__frame_wire_bytes(&send, sizeof data);
    remo__frame_encode(&send, 1, 0, data, sizeof data, first);
    remo__frame_encode(&send, 1, 0, data, sizeof data, second);
    for (int bit = 0; bit < total * 8; bit++) {
        struct remo__seal seal = receive;
        first[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_true(remo__frame_decode(&seal, first, (size_t)total, BYTES_MAX, &frame) <= 0);
        first[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(remo__frame_decode(&receive, second, (size_t)total, BYTES_MAX, &frame), -EBADMSG);
    assert_int_equal(remo__frame_decode(&receive, first, (size_t)total, BYTES_MAX, &frame), total);
    assert_int_equal(remo__frame_decode(&receive, first, (size_t)total, BYTES_MAX, &frame), -EBADMSG);
    assert_int_equal(remo__frame_decode(&receive, second, (size_t)total, BYTES_MAX, &frame), total);
}

int main(void) {
    if (sodium_init() < 0)
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_agree),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(wrong_key_fails_both_ways),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(reflection_and_replay_fail),
        cmocka_unit_test(frames_go_through),
        cmocka_unit_test(frames_are_bounded),
        cmocka_unit_test(sealed_frames_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
