/* tx.c - fuzzes the messages that commit transactions, as an owner decodes and executes them: any bytes.
 * Invariant: an owner accesses nothing beyond the message and its share, accepts only participants, and
 * afterwards no item is locked or reserved, unless the transaction is prepared. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "systems/tx/tx.h"

#define KEY_BYTES_MAX 13u
#define VALUE_BYTES_MAX 100u
#define ITEMS 4u
#define SEEDS 12u
#define NODES 3u

static struct remo_structure structure;

/* ---- a structure: few items, in any of which a key may be ---- */

static uint32_t owner(void *ctx, const struct remo_structure_key *key) {
    (void)ctx;
    return key->bytes % 8 == 7; /* some keys have another owner */
}

static uint32_t group(void *ctx, const struct remo_structure_key *key) {
    (void)ctx;
    return (uint32_t)key->bytes;
}

static uint64_t find_item(const struct remo_structure_key *key, enum remo_item_state wanted) {
    for (uint32_t i = 0; i < ITEMS; i++)
        if (remo_item_state_of(&structure, key, i * structure.item_bytes) == wanted)
            return i * structure.item_bytes;
    return REMO_STRUCTURE_NOWHERE;
}

static uint64_t find(void *ctx, const struct remo_structure_key *key) {
    (void)ctx;
    return find_item(key, REMO_ITEM_MATCHES);
}

static int make(void *ctx, const struct remo_structure_key *key, uint64_t *ret_offset) {
    (void)ctx;
    *ret_offset = find_item(key, REMO_ITEM_FREE);
    return *ret_offset == REMO_STRUCTURE_NOWHERE ? -1 : 0;
}

static void do_nothing(void *ctx, const struct remo_structure_key *key, uint64_t offset) {
    (void)ctx;
    (void)key;
    (void)offset;
}

static const struct remo_structure_type type = {
    .owner = owner, .group = group, .find = find, .make = make, .link = do_nothing, .unlink = do_nothing};
static struct remo_region share;
static struct remo_structure structure = {
    .type = &type, .share = &share, .key_bytes_max = KEY_BYTES_MAX, .value_bytes_max = VALUE_BYTES_MAX};
static struct remo_node node = {.size = NODES};
static struct remo__tx_record records[NODES * REMO__TX_COMMITS_MAX];
static struct remo__tx_peer peers[NODES] = {
    {.mutex = PTHREAD_MUTEX_INITIALIZER, .was_connected = true, .records = records},
    {.mutex = PTHREAD_MUTEX_INITIALIZER, .was_connected = true, .records = records + REMO__TX_COMMITS_MAX},
    {.mutex = PTHREAD_MUTEX_INITIALIZER,
     .was_connected = true,
     .records = records + 2 * REMO__TX_COMMITS_MAX}};
static struct remo_channel channel = {.participants = {.word = {3}}}; /* nodes 0, which is this one, and 1 */
static struct remo_tx_space space = {
    .node = &node, .channel = &channel, .peers = peers, .structures = {&structure}, .structure_count = 1};

/* ---- requests ---- */

static size_t append(uint8_t *at, uint32_t n) {
    struct remo__tx_item_request header = {.op = (uint8_t)(n % REMO__TX_OPS),
                                           .condition = (uint8_t)(n / 2 % REMO__TX_CONDITIONS),
                                           .key_bytes = (uint16_t)(1 + n % 6),
                                           .value_bytes = (uint16_t)(n * 13 % VALUE_BYTES_MAX)};
    if (header.op == REMO__TX_INSERT)
        header.condition = REMO__TX_ABSENT;
    else if (header.op == REMO__TX_UPDATE || header.op == REMO__TX_DELETE)
        header.condition = REMO__TX_SAME;
    memcpy(at, &header, sizeof header);
    memset(at + sizeof header, 'k', (size_t)header.key_bytes + header.value_bytes);
    return sizeof header + header.key_bytes + header.value_bytes;
}

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    struct remo__tx_request header = {.items = 1 + n % 3};
    size_t bytes = sizeof header;
    if (n >= SEEDS)
        return 0;
    if (n >= SEEDS / 2) { /* a PREPARE, with one other owner */
        struct remo__tx_prepare prepare = {.id = {.sequence = n, .coordinator = 1}, .owners = 1};
        memcpy(ret_data, &prepare, sizeof prepare);
        memset(ret_data + sizeof prepare, 0, 8);
        ret_data += sizeof prepare + 8;
    }
    memcpy(ret_data, &header, sizeof header);
    for (uint32_t i = 0; i < header.items; i++)
        bytes += append(ret_data + bytes, n + i);
    return n >= SEEDS / 2 ? bytes + sizeof(struct remo__tx_prepare) + 8 : bytes;
}

/* The items 0 and 1 have the keys "k" and "kk". */
static void fill_share(void) {
    share = (struct remo_region){.bytes = ITEMS * structure.item_bytes, .nodes = 1};
    structure.own = calloc(1, share.bytes); /* the exact size, so that a sanitizer detects accesses beyond */
    for (uint32_t i = 0; i < 2; i++) {
        struct remo_structure_key key = {.data = "kk", .bytes = i + 1};
        struct remo__owner_found found = {0};
        enum remo__item_answer answer =
            remo__owner_execute(&structure, REMO__ITEM_INSERT, &key, "value", 5, &found);
        assert(answer == REMO__ANSWER_DONE);
        (void)answer;
    }
}

static void check_unlocked(void) {
    for (uint32_t i = 0; i < ITEMS; i++)
        assert(!(remo__load(structure.own + i * structure.item_bytes) & REMO__ITEM_LOCKED));
}

static void execute(const char *request, size_t bytes) {
    struct remo__tx_conflict conflict = {0};
    enum remo__tx_answer answer = remo__tx_execute(&space, request, bytes, &conflict);
    assert(answer != REMO__TX_ANSWER_CONFLICT || conflict.item < REMO_TX_ITEMS_MAX);
    (void)answer;
    check_unlocked();
}

/* Return the answer to a question. It has no changes without early locks. */
static enum remo__tx_outcome ask(const struct remo__tx_question *question) {
    char message[REMO_RPC_BYTES_MAX];
    uint32_t bytes = 1;
    enum remo__tx_outcome outcome = remo__tx_answer_question(&space, 0, question, message, &bytes);
    assert(bytes == 0);
    return outcome;
}

/* Lock an item; commit with the message, or abort. */
static void lock(const char *message, size_t bytes) {
    char value[VALUE_BYTES_MAX];
    struct remo__tx_locked locked = {.found = {.value = value, .cap = sizeof value}};
    int rc = remo__tx_execute_lock(&space, 1, message, bytes, &locked);
    if (rc == REMO__TX_ANSWER_DONE) {
        struct remo__tx_prepare header;
        memcpy(&header, message, sizeof header);
        assert(locked.found.value_bytes <= sizeof value);
        assert(remo__tx_execute_lock(&space, 1, message, bytes, &locked) != REMO__TX_ANSWER_DONE);
        struct remo__tx_finish finish = {.id = header.id, .commits = false};
        bool commits = message[bytes - 1] & 1;
        /* the item of the message is kept, so a commit changes nothing */
        assert(!commits || remo__tx_execute_commit(&space, 1, message, bytes) == REMO__TX_ANSWER_DONE);
        assert(commits || remo__tx_finish(&space, 1, &finish) == REMO__TX_ANSWER_DONE);
    }
    assert(atomic_load(&space.unsettled) == 0);
    check_unlocked();
}

/* Send any bytes as a COMMIT of the transaction. Returns whether it is committed. */
static bool commit_as(const struct remo__tx_id *id, const char *message, size_t bytes) {
    char copy[REMO_RPC_BYTES_MAX];
    if (bytes > sizeof copy || bytes < sizeof(struct remo__tx_prepare))
        return false;
    memcpy(copy, message, bytes);
    memcpy(copy + offsetof(struct remo__tx_prepare, id), id, sizeof *id);
    enum remo__tx_answer answer = remo__tx_execute_commit(&space, 1, copy, bytes);
    assert(answer == REMO__TX_ANSWER_DONE || answer == REMO__TX_ANSWER_MALFORMED);
    return answer == REMO__TX_ANSWER_DONE;
}

/* A COMMIT of another transaction, from any bytes, leaves an item locked; its own one unlocks it. Any bytes
 * as its own one change this item only, or nothing. */
static void commit(const char *message, size_t bytes) {
    static const char key[] = "k";
    const struct remo__tx_prepare prepare = {.id = {.sequence = UINT64_C(0x51ee7c0ffee), .coordinator = 1},
                                             .owners = 1};
    const struct remo__tx_request header = {.items = 1};
    const struct remo__tx_item_request item = {.op = REMO__TX_KEEP, .key_bytes = 1};
    struct remo__tx_locked locked = {.found = {.cap = 0}};
    char own[sizeof prepare + 8 + sizeof header + sizeof item + 1] = {0}, *at = own;
    memcpy(at, &prepare, sizeof prepare);
    at += sizeof prepare + 8; /* the rank of this node is 0 */
    memcpy(at, &header, sizeof header);
    memcpy(at + sizeof header, &item, sizeof item);
    memcpy(at + sizeof header + sizeof item, key, 1);
    if (remo__tx_execute_lock(&space, 1, own, sizeof own, &locked) != REMO__TX_ANSWER_DONE)
        return; /* no room */
    struct remo_rpc_request request = {.node = 1, .data = message, .bytes = bytes};
    assert(remo__tx_handle_commit(&space, &request) == REMO__TX_ANSWER_MALFORMED);
    if (!commit_as(&prepare.id, message, bytes))
        assert(remo__tx_execute_commit(&space, 1, own, sizeof own) == REMO__TX_ANSWER_DONE);
    assert(atomic_load(&space.unsettled) == 0);
    check_unlocked();
}

/* Prepare, ask for the outcome, and finish; the last byte selects how. */
static void prepare(const char *message, size_t bytes) {
    struct remo__tx_conflict conflict = {0};
    uint64_t deletes[REMO_TX_ITEMS_MAX];
    uint32_t count = 0;
    int answer = remo__tx_prepare(&space, 1, message, bytes, &conflict, deletes, &count);
    assert(count <= REMO_TX_ITEMS_MAX);
    if (answer != REMO__TX_ANSWER_DONE) {
        check_unlocked();
        return;
    }
    struct remo__tx_prepare header;
    memcpy(&header, message, sizeof header);
    assert(header.owners == 1); /* this node: node 1 is the coordinator, and node 2 no participant */
    struct remo__tx_finish finish = {.id = header.id, .commits = message[bytes - 1] & 1};
    struct remo__tx_question question = {.id = header.id, .is_decisive = message[bytes - 1] >> 1 & 1};
    question.id.coordinator = 1;
    assert(remo__tx_prepare(&space, 1, message, bytes, &conflict, deletes, &count)
           == REMO__TX_ANSWER_MALFORMED);
    assert(ask(&question) == REMO__TX_PENDING);
    assert(remo__tx_finish(&space, 1, &finish) == REMO__TX_ANSWER_DONE);
    assert(ask(&question) == (finish.commits ? REMO__TX_COMMITTED : REMO__TX_PENDING));
    assert(atomic_load(&space.unsettled) == 0);
    check_unlocked();
}

/* Messages of one size, from any bytes: with this size, and with the size of the input. */
static void handle(remo_rpc_handler_fn handler, const char *message, size_t bytes, size_t size) {
    struct remo_rpc_request request = {.node = 1, .data = message, .bytes = bytes};
    assert(handler(&space, &request) >= 0);
    request.bytes = size;
    if (bytes > size)
        assert(handler(&space, &request) >= 0);
    check_unlocked();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    structure.item_bytes = remo_structure_item_bytes(KEY_BYTES_MAX, VALUE_BYTES_MAX);
    fill_share();
    char *request = malloc(bytes + 1);
    memcpy(request, data, bytes);
    execute(request, bytes);
    prepare(request, bytes);
    lock(request, bytes);
    commit(request, bytes);
    handle(remo__tx_handle_finish, request, bytes, sizeof(struct remo__tx_finish));
    handle(remo__tx_handle_resolve, request, bytes, sizeof(struct remo__tx_question));
    handle(remo__tx_handle_confirm, request, bytes, sizeof(struct remo__tx_loss));
    free(request);
    free(structure.own);
    return 0;
}
