/* redis_smallbank.c - the transactions of SmallBank on Redis (redis_tx.h). A balance is a decimal number, so
 * deposits are single commands; a customer has a key in each table. The transactions with conditions are
 * scripts, and return what the sum of all accounts depends on. */
#include "bench/peers/redis_tx.h"

#include <string.h>

#include "base/bits.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define PAYMENT TEXT(SMALLBANK_PAYMENT)
#define CHECK TEXT(SMALLBANK_CHECK)
#define PENALTY TEXT(SMALLBANK_PENALTY)

static const char *const scripts[SMALLBANK_KINDS] = {
    [SMALLBANK_AMALGAMATE] = "local r = redis.call('MGET', KEYS[1], KEYS[2]) "
                             "redis.call('MSET', KEYS[1], '0', KEYS[2], '0') "
                             "return redis.call('INCRBY', KEYS[3], r[1] + r[2])",
    [SMALLBANK_SEND_PAYMENT] = "if tonumber(redis.call('GET', KEYS[1])) < " PAYMENT " then return 0 end "
                               "redis.call('DECRBY', KEYS[1], " PAYMENT ") "
                               "redis.call('INCRBY', KEYS[2], " PAYMENT ") "
                               "return 1",
    [SMALLBANK_WRITE_CHECK] = "local r = redis.call('MGET', KEYS[1], KEYS[2]) "
                              "local amount = " CHECK " "
                              "if r[1] + r[2] < amount then amount = amount + " PENALTY " end "
                              "redis.call('DECRBY', KEYS[2], amount) "
                              "return amount",
};

static unsigned insert(struct redis_client *client, uint64_t key) {
    char savings[REDIS_NUMBER_BYTES], checking[REDIS_NUMBER_BYTES], balance[REDIS_NUMBER_BYTES];
    const struct redis_word initial = redis_number(balance, 0, SMALLBANK_INITIAL);
    const struct redis_word words[] = {
        {"MSET", 4}, redis_number(savings, 's', key), initial, redis_number(checking, 'c', key), initial};
    redis_add(client, words, REMO__ARRAY_COUNT(words));
    return 1;
}

void redis_smallbank_add_balance(struct redis_client *client, uint64_t customer) {
    char savings[REDIS_NUMBER_BYTES], checking[REDIS_NUMBER_BYTES];
    const struct redis_word words[] = {
        {"MGET", 4}, redis_number(savings, 's', customer), redis_number(checking, 'c', customer)};
    redis_add(client, words, REMO__ARRAY_COUNT(words));
}

static void send(struct transactions *bench, struct redis_state *state, unsigned i) {
    char texts[4][REDIS_NUMBER_BYTES];
    struct smallbank_call *call = &bench->calls[i].smallbank;
    *call = smallbank_draw(bench->keys, &bench->random);
    const struct redis_word savings = redis_number(texts[0], 's', call->customers[0]),
                            checking = redis_number(texts[1], 'c', call->customers[0]),
                            other = redis_number(texts[2], 'c', call->customers[1]);
    switch (call->kind) {
    case SMALLBANK_BALANCE: redis_smallbank_add_balance(state->client, call->customers[0]); break;
    case SMALLBANK_DEPOSIT_CHECKING:
        redis_add(
            state->client,
            (struct redis_word[]){{"INCRBY", 6}, checking, redis_number(texts[3], 0, SMALLBANK_DEPOSIT)}, 3);
        break;
    case SMALLBANK_TRANSACT_SAVINGS:
        redis_add(state->client,
                  (struct redis_word[]){{"INCRBY", 6}, savings, redis_number(texts[3], 0, SMALLBANK_SAVING)},
                  3);
        break;
    case SMALLBANK_AMALGAMATE:
        redis_add_script(state->client, state->scripts[call->kind],
                         (struct redis_word[]){savings, checking, other}, 3, 3);
        break;
    case SMALLBANK_SEND_PAYMENT:
        redis_add_script(state->client, state->scripts[call->kind], (struct redis_word[]){checking, other}, 2,
                         2);
        break;
    default:
        redis_add_script(state->client, state->scripts[call->kind], (struct redis_word[]){savings, checking},
                         2, 2);
    }
}

static void receive(struct transactions *bench, struct redis_state *state, unsigned i) {
    struct smallbank_call *call = &bench->calls[i].smallbank;
    bool is_balance = call->kind == SMALLBANK_BALANCE;
    struct redis_reply reply;
    if (is_balance)
        redis_receive_array(state->client, SMALLBANK_TABLES);
    for (unsigned r = 0; r < (is_balance ? SMALLBANK_TABLES : 1u); r++) {
        redis_receive(state->client, &reply);
        if (reply.is_missing || reply.is_integer == is_balance)
            processes_fail("the benchmark is wrong: customer %llu has no account",
                           (unsigned long long)call->customers[0]);
    }
    call->is_refused = call->kind == SMALLBANK_SEND_PAYMENT && reply.integer == 0;
    switch (call->kind) {
    case SMALLBANK_DEPOSIT_CHECKING: call->added = SMALLBANK_DEPOSIT; break;
    case SMALLBANK_TRANSACT_SAVINGS: call->added = SMALLBANK_SAVING; break;
    case SMALLBANK_WRITE_CHECK: call->added = -reply.integer; break;
    default: call->added = 0;
    }
    smallbank_count(&bench->counts.smallbank, call);
}

const struct redis_workload redis_smallbank = {
    .scripts = scripts, .kinds = SMALLBANK_KINDS, .insert = insert, .send = send, .receive = receive};
