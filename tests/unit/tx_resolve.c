/* tx_resolve.c - unit tests of the answers to an owner that asks for the outcome of a transaction whose
 * coordinator has failed: each row of the table in docs/internals/tx.md, "Recovery". */
#include "systems/tx/tx.h"

#include "unit.h"

#define NODES 4u
#define COORDINATOR 3u
#define SEQUENCE 7u

static struct remo_node node = {.size = NODES};
static struct remo_channel channel = {.participants = {.word = {(1 << NODES) - 1}}};
static struct remo__tx_record records[REMO__TX_COMMITS_MAX]; /* of the coordinator */
static struct remo__tx_peer peers[NODES];
static struct remo_tx_space space = {.node = &node, .channel = &channel, .peers = peers};

static int setup(void **state) {
    (void)state;
    memset(records, 0, sizeof records);
    for (uint32_t i = 0; i < NODES; i++)
        peers[i] = (struct remo__tx_peer){
            .mutex = PTHREAD_MUTEX_INITIALIZER, .was_connected = true, .records = records};
    return 0;
}

static void lose(uint32_t rank) {
    atomic_store(&peers[rank].is_cut_off, true);
}

/* This node has prepared a transaction without items, whose owners are the nodes 0, 1 and 2. */
static struct remo__tx_record *prepare(uint32_t own) {
    static const uint16_t owners[4] = {0, 1, 2};
    const struct remo__tx_prepare header = {.owners = 3};
    const struct remo__tx_request request = {.items = 0};
    struct remo__tx_record *record = &records[0];
    node.rank = own;
    record->space = &space;
    record->id = (struct remo__tx_id){.sequence = SEQUENCE, .coordinator = COORDINATOR};
    record->state = REMO__TX_RECORD_PREPARED;
    memcpy(record->message, &header, sizeof header);
    memcpy(record->message + sizeof header, owners, sizeof owners);
    memcpy(record->message + sizeof header + sizeof owners, &request, sizeof request);
    record->message_bytes = sizeof header + sizeof owners + sizeof request;
    atomic_store(&space.unsettled, 1);
    return record;
}

/* Return the answer to a node; `is_decisive`: this node precedes it. */
static enum remo__tx_outcome answer(uint32_t asker, bool is_decisive, uint64_t sequence) {
    const struct remo__tx_question question = {.id = {.sequence = sequence, .coordinator = COORDINATOR},
                                               .is_decisive = is_decisive};
    char message[REMO_RPC_BYTES_MAX];
    uint32_t bytes = 1;
    enum remo__tx_outcome outcome = remo__tx_answer_question(&space, asker, &question, message, &bytes);
    assert_int_equal(bytes, 0);
    return outcome;
}

static void test_committed(void **state) {
    (void)state;
    prepare(1)->state = REMO__TX_RECORD_COMMITTED;
    assert_int_equal(answer(2, true, SEQUENCE), REMO__TX_COMMITTED);
    lose(COORDINATOR);
    assert_int_equal(answer(2, true, SEQUENCE), REMO__TX_COMMITTED);
    assert_int_equal(answer(0, false, SEQUENCE), REMO__TX_COMMITTED);
}

static void test_coordinator_is_up(void **state) {
    (void)state;
    prepare(0);
    assert_int_equal(answer(1, true, SEQUENCE), REMO__TX_PENDING);
    assert_int_equal(answer(1, true, SEQUENCE + 1), REMO__TX_PENDING);
}

static void test_no_record(void **state) {
    (void)state;
    prepare(1);
    lose(COORDINATOR);
    assert_int_equal(answer(2, true, SEQUENCE + 1), REMO__TX_ABORTED);
    records[0].state = REMO__TX_RECORD_NONE;
    assert_int_equal(answer(2, true, SEQUENCE), REMO__TX_ABORTED);
}

static void test_decider(void **state) {
    (void)state;
    struct remo__tx_record *record = prepare(0);
    lose(COORDINATOR);
    assert_int_equal(answer(1, true, SEQUENCE), REMO__TX_ABORTED);
    assert_int_equal(record->state, REMO__TX_RECORD_NONE);
    assert_int_equal(atomic_load(&space.unsettled), 0);
}

/* The decider may have committed, and a later owner may have the outcome. */
static void test_not_the_decider(void **state) {
    (void)state;
    struct remo__tx_record *record = prepare(1);
    lose(COORDINATOR);
    lose(0);
    assert_int_equal(answer(2, true, SEQUENCE), REMO__TX_PENDING);
    assert_int_equal(record->state, REMO__TX_RECORD_PREPARED);
}

static void test_asked_by_an_earlier_one(void **state) {
    (void)state;
    struct remo__tx_record *record = prepare(2);
    lose(COORDINATOR);
    assert_int_equal(answer(1, false, SEQUENCE), REMO__TX_PENDING); /* node 0 is up for this one */
    lose(0);
    assert_int_equal(answer(1, false, SEQUENCE), REMO__TX_UNKNOWN);
    record->is_asking = true;
    record->asked = 0; /* its answer may be about to arrive */
    assert_int_equal(answer(1, false, SEQUENCE), REMO__TX_PENDING);
    record->asked = 1;
    assert_int_equal(answer(1, false, SEQUENCE), REMO__TX_UNKNOWN);
    assert_int_equal(record->state, REMO__TX_RECORD_PREPARED);
}

static void test_wrong_id(void **state) {
    (void)state;
    prepare(1);
    lose(COORDINATOR);
    char message[REMO_RPC_BYTES_MAX];
    uint32_t bytes;
    struct remo__tx_question question = {.id = {.sequence = SEQUENCE, .coordinator = NODES}};
    assert_int_equal(remo__tx_answer_question(&space, 2, &question, message, &bytes), REMO__TX_PENDING);
    question.id = (struct remo__tx_id){
        .sequence = SEQUENCE, .coordinator = COORDINATOR, .number = REMO__TX_COMMITS_MAX};
    assert_int_equal(remo__tx_answer_question(&space, 2, &question, message, &bytes), REMO__TX_PENDING);
}

/* ---- early locks ---- */

/* This node has locked items for a transaction; it has the ranks of the owners up to itself. */
static struct remo__tx_record *lock_early(uint32_t own) {
    struct remo__tx_record *record = prepare(own);
    const struct remo__tx_prepare header = {.owners = own + 1};
    record->is_early = true;
    memcpy(record->message, &header, sizeof header);
    return record;
}

static enum remo__tx_outcome answer_all(uint32_t asker, char *ret_message, uint32_t *ret_bytes) {
    const struct remo__tx_question question = {.id = {.sequence = SEQUENCE, .coordinator = COORDINATOR},
                                               .is_for_all = true};
    return remo__tx_answer_question(&space, asker, &question, ret_message, ret_bytes);
}

/* A node without a record may be no owner: it proves nothing, but will never commit. */
static void test_early_no_owner(void **state) {
    (void)state;
    char message[REMO_RPC_BYTES_MAX];
    uint32_t bytes;
    prepare(2)->state = REMO__TX_RECORD_NONE;
    assert_int_equal(answer_all(1, message, &bytes), REMO__TX_PENDING);
    lose(COORDINATOR);
    assert_int_equal(answer_all(1, message, &bytes), REMO__TX_UNKNOWN);
    assert_int_equal(answer(1, true, SEQUENCE), REMO__TX_ABORTED); /* it precedes the asking owner */
}

/* The outcome comes with the changes, which the asking owner does not have. */
static void test_early_committed(void **state) {
    (void)state;
    char message[REMO_RPC_BYTES_MAX];
    uint32_t bytes = 0;
    struct remo__tx_record *record = lock_early(1);
    record->state = REMO__TX_RECORD_COMMITTED;
    assert_int_equal(answer_all(2, message, &bytes), REMO__TX_COMMITTED);
    assert_int_equal(bytes, record->message_bytes);
    assert_memory_equal(message, record->message, bytes);
}

/* An owner has no ranks of later owners: it asks all other nodes. */
static void test_early_owners(void **state) {
    (void)state;
    uint16_t owners[REMO_NODES_MAX];
    struct remo__tx_record *record = lock_early(1);
    assert_int_equal(remo__tx_record_owners(record, owners), 3);
    for (uint16_t i = 0; i < 3; i++)
        assert_int_equal(owners[i], i);
    record->is_early = false;
    assert_int_equal(remo__tx_record_owners(record, owners), 2);
    record->is_early = true;
    record->state = REMO__TX_RECORD_COMMITTED; /* the message is a COMMIT, with all owners */
    assert_int_equal(remo__tx_record_owners(record, owners), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_committed, setup),
        cmocka_unit_test_setup(test_coordinator_is_up, setup),
        cmocka_unit_test_setup(test_no_record, setup),
        cmocka_unit_test_setup(test_decider, setup),
        cmocka_unit_test_setup(test_not_the_decider, setup),
        cmocka_unit_test_setup(test_asked_by_an_earlier_one, setup),
        cmocka_unit_test_setup(test_wrong_id, setup),
        cmocka_unit_test_setup(test_early_no_owner, setup),
        cmocka_unit_test_setup(test_early_committed, setup),
        cmocka_unit_test_setup(test_early_owners, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
