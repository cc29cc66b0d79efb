/* lock_message.c - fuzzes messages of the lock protocol: any bytes, to the home or to a participant. Input:
 * u8 flags, the message. The flags select the step of the recovery at which the message arrives, whether it
 * names that round, and whether a grant is unsent. The only node of the job holds two locks; its messages to
 * itself are dropped, and the test makes the steps. Invariant: nothing outside the tables is accessed, and
 * the table closes. */
#include "objects/lock/recovery.c" /* for the rounds of recovery */

#include <assert.h>
#include <string.h>

#include "fuzz.h"

#define LOCKS 20u
#define REOPEN_EVERY 20u
#define ROUND_AT 1u
#define STEPS_MAX 8u

#define TYPES (REMO__LOCK_RECOVERY_CONTINUE - REMO__LOCK_QUERY + 1u)

enum { START = 1, STEP = 2, MEND_ROUND = 4, STEP_AFTER = 8, UNSENT = 16, ALL_FLAGS = 31 };

static struct remo_node *node;
static struct remo_lock *lock;

static void close_node(void) {
    remo_lock_close(lock);
    remo_node_close(node);
}

static void open_lock(void) {
    struct remo_lock_options options = {.count = LOCKS};
    int rc = remo_lock_open(remo_node_root(node), "locks", &options, &lock);
    rc = rc ? rc : remo_lock_acquire(lock, 0, 1);
    rc = rc ? rc : remo_lock_acquire(lock, 7, 1);
    assert(rc == 0);
    atomic_store(&lock->channel->peers[0].state, REMO_CHANNEL_WAITING);
}

static void open_node(void) {
    struct remo_config config = {.fabric = "shm", .arena_bytes = 64u << 20, .segment_bytes = 2u << 20};
    int rc = remo_node_open(&config, &node);
    assert(rc == 0);
    open_lock();
    atexit(close_node);
}

static void step(void) {
    uint8_t message[5];
    struct remo__writer writer = remo__writer_of(message, sizeof message);
    remo__put_u8(&writer, REMO__LOCK_RECOVERY_CONTINUE);
    remo__put_u32(&writer, lock->recovery->round);
    remo__lock_recovery_message(lock, 0, message, sizeof message);
}

static void on_message(const uint8_t *data, size_t bytes) {
    if (bytes > 0
        && (data[0] == REMO__LOCK_QUERY || data[0] == REMO__LOCK_GRANT
            || data[0] == REMO__LOCK_REPORT_CONTINUE))
        remo__lock_report_message(lock, 0, data, bytes);
    else
        remo__lock_recovery_message(lock, 0, data, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static uint32_t inputs;
    uint8_t flags = bytes > 0 ? data[0] : 0;
    if (bytes == 0)
        return 0;
    if (!node)
        open_node();
    if (flags & START)
        remo__lock_recovery_start(lock);
    if (flags & STEP)
        step();
    uint8_t *message = malloc(bytes);
    assert(message);
    memcpy(message, data + 1, bytes - 1);
    if ((flags & MEND_ROUND) && bytes - 1 >= ROUND_AT + 4) {
        uint32_t round = htole32(lock->recovery->round);
        memcpy(message + ROUND_AT, &round, sizeof round);
    }
    lock->has_unsent_grant = (flags & UNSENT) != 0;
    lock->recovery->reminded_at_ns = lock->recovery->recounted_at_ns = 0; /* each REMIND has an effect */
    on_message(message, bytes - 1);
    free(message);
    for (uint32_t i = 0; (flags & STEP_AFTER) && i < STEPS_MAX; i++)
        step();
    if (++inputs % REOPEN_EVERY == 0) {
        remo_lock_close(lock);
        open_lock();
    }
    return 0;
}

/* Each kind of message, at each step of a round; answers with held tickets, and with others. */
size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    uint32_t flags = n & ALL_FLAGS, kind = n / (ALL_FLAGS + 1), type = kind % TYPES + REMO__LOCK_QUERY;
    uint32_t variant = kind / TYPES;
    static const uint8_t claims[2 * REMO__CLAIM_BYTES] = {0, 0, 0, 0, 0, 0, 0, 0, REMO__CLAIM_HELD,
                                                          7, 0, 0, 0, 1, 0, 0, 0, REMO__CLAIM_WAITING};
    uint8_t dead[32];
    struct remo__writer writer = remo__writer_of(ret_data + 2, FUZZ_BYTES_MAX - 2);
    if (variant == 3)
        return 0;
    memset(dead, (int)variant, sizeof dead);
    ret_data[0] = (uint8_t)flags;
    ret_data[1] = (uint8_t)type;
    remo__put_u32(&writer, variant); /* round; of a grant: index */
    if (type == REMO__LOCK_QUERY)
        remo__put_bytes(&writer, dead, sizeof dead);
    if (type == REMO__LOCK_GRANT)
        remo__put_u64(&writer, REMO__GRANT_VALID | variant);
    if (type == REMO__LOCK_ANSWER) {
        remo__put_u8(&writer, variant != 2);
        remo__put_u16(&writer, (uint16_t)variant);
        remo__put_bytes(&writer, claims, variant * REMO__CLAIM_BYTES);
    }
    return (size_t)(writer.at - ret_data);
}
