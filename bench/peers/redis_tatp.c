/* redis_tatp.c - the transactions of TATP on Redis (redis_tx.h). A subscriber is a hash with a field for each
 * of its rows: Redis keeps such a hash in one block of memory. The index by number is a key for each number.
 * A transaction that reads one row is a single command; the others are scripts. */
#include "bench/peers/redis_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

#define FIELD_BYTES 3u /* a letter, the type, the start */
#define NUMBER_BYTES (1 + TATP_NUMBER_DIGITS)

/* Positions in rows, from 1. */
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define BIT 33
#define VLR_LOCATION 29
#define DATA_A 7
#define IS_ACTIVE 5
#define BIT_TEXT TEXT(BIT)
#define VLR_LOCATION_TEXT TEXT(VLR_LOCATION)
#define DATA_A_TEXT TEXT(DATA_A)
#define IS_ACTIVE_TEXT TEXT(IS_ACTIVE)
_Static_assert(BIT == offsetof(struct tatp_subscriber, bit) + 1, "position of a member");
_Static_assert(VLR_LOCATION == offsetof(struct tatp_subscriber, vlr_location) + 1, "position of a member");
_Static_assert(DATA_A == offsetof(struct tatp_facility, data_a) + 1, "position of a member");
_Static_assert(IS_ACTIVE == offsetof(struct tatp_facility, is_active) + 1, "position of a member");
_Static_assert(offsetof(struct tatp_forwarding, end_time) == 0, "position of a member");

/* Those that find their subscriber by number return it, and its negative if another row is missing. */
static const char *const scripts[TATP_KINDS] = {
    [TATP_GET_DESTINATION] =
        "local r = redis.call('HMGET', KEYS[1], unpack(ARGV, 2)) "
        "if not r[1] or string.byte(r[1], " IS_ACTIVE_TEXT ") == 0 then return false end "
        "local time = tonumber(ARGV[1]) "
        "for i = 2, #ARGV - 1 do "
        "  if r[i] and string.byte(r[i]) > time then return string.sub(r[i], 2) end "
        "end "
        "return false",
    [TATP_UPDATE_SUBSCRIBER] =
        "local r = redis.call('HMGET', KEYS[1], 's', ARGV[1]) "
        "local s, f = r[1], r[2] "
        "if not f then return 0 end "
        "local bit = string.char(1 - string.byte(s, " BIT_TEXT ")) "
        "s = string.sub(s, 1, " BIT_TEXT " - 1) .. bit .. string.sub(s, " BIT_TEXT " + 1) "
        "f = string.sub(f, 1, " DATA_A_TEXT " - 1) .. ARGV[2] .. string.sub(f, " DATA_A_TEXT " + 1) "
        "redis.call('HSET', KEYS[1], 's', s, ARGV[1], f) "
        "return 1",
    [TATP_UPDATE_LOCATION] = "local id = redis.call('GET', KEYS[1]) "
                             "local s = redis.call('HGET', id, 's') "
                             "if not s then return -id end "
                             "s = string.sub(s, 1, " VLR_LOCATION_TEXT
                             " - 1) .. ARGV[1] .. string.sub(s, " VLR_LOCATION_TEXT " + 4) "
                             "redis.call('HSET', id, 's', s) "
                             "return tonumber(id)",
    [TATP_INSERT_FORWARDING] =
        "local id = redis.call('GET', KEYS[1]) "
        "local r = redis.call('HMGET', id, 'f1', 'f2', 'f3', 'f4') "
        "if not r[tonumber(ARGV[1])] or redis.call('HSETNX', id, ARGV[2], ARGV[3]) == 0 then return -id end "
        "return tonumber(id)",
    [TATP_DELETE_FORWARDING] = "local id = redis.call('GET', KEYS[1]) "
                               "if redis.call('HDEL', id, ARGV[1]) == 0 then return -id end "
                               "return tonumber(id)",
};

/* ---- rows ---- */

/* Write the field of a row, such as "c23" for start 3 of type 2. */
static struct redis_word field_of(char text[FIELD_BYTES], enum tatp_table table, const struct tatp_key *key) {
    static const char letters[TATP_TABLES] = {[TATP_SUBSCRIBERS] = 's',
                                              [TATP_ACCESS_INFOS] = 'a',
                                              [TATP_FACILITIES] = 'f',
                                              [TATP_FORWARDINGS] = 'c'};
    text[0] = letters[table];
    text[1] = (char)('0' + key->type);
    text[2] = (char)('0' + key->start);
    return redis_bytes(text, table == TATP_SUBSCRIBERS ? 1 : table == TATP_FORWARDINGS ? 3 : 2);
}

static struct redis_word number_of(char text[NUMBER_BYTES + 1], uint64_t subscriber) {
    text[0] = 'n';
    tatp_make_number(text + 1, subscriber);
    return redis_bytes(text, NUMBER_BYTES);
}

/* ---- the population: a command inserts a subscriber ---- */

#define ROWS_MAX (1 + 2 * TATP_TYPES + TATP_TYPES * TATP_STARTS)

struct population {
    struct redis_word words[2 + 2 * ROWS_MAX];
    size_t count;
    char fields[ROWS_MAX][FIELD_BYTES], rows[ROWS_MAX][sizeof(struct tatp_subscriber)];
};

static int insert_row(void *ctx, enum tatp_table table, const struct tatp_key *key, const void *row,
                      size_t bytes) {
    struct population *population = ctx;
    size_t i = (population->count - 2) / 2;
    memcpy(population->rows[i], row, bytes);
    population->words[population->count++] = field_of(population->fields[i], table, key);
    population->words[population->count++] = redis_bytes(population->rows[i], bytes);
    return 0;
}

static unsigned insert(struct redis_client *client, uint64_t key) {
    uint64_t subscriber = key + 1;
    char id_text[REDIS_NUMBER_BYTES], number[NUMBER_BYTES + 1];
    const struct redis_word id = redis_number(id_text, 0, subscriber);
    struct population population = {.words = {{"HSET", 4}, id}, .count = 2};
    (void)tatp_populate(subscriber, insert_row, &population); /* insert_row does not fail */
    redis_add(client, population.words, population.count);
    redis_add(client, (struct redis_word[]){{"SET", 3}, number_of(number, subscriber), id}, 3);
    return 2;
}

/* ---- transactions ---- */

static void send_read(struct redis_state *state, const struct tatp_call *call, enum tatp_table table) {
    char id[REDIS_NUMBER_BYTES], field[FIELD_BYTES];
    const struct redis_word words[] = {
        {"HGET", 4}, redis_number(id, 0, call->key.subscriber), field_of(field, table, &call->key)};
    redis_add(state->client, words, REMO__ARRAY_COUNT(words));
}

static void send_destination(struct redis_state *state, const struct tatp_call *call) {
    char id[REDIS_NUMBER_BYTES], time[REDIS_NUMBER_BYTES], fields[1 + TATP_STARTS][FIELD_BYTES];
    struct redis_word words[3 + TATP_STARTS] = {redis_number(id, 0, call->key.subscriber),
                                                redis_number(time, 0, call->end_time),
                                                field_of(fields[0], TATP_FACILITIES, &call->key)};
    size_t count = 3;
    struct tatp_key key = call->key;
    for (key.start = 1; key.start <= call->key.start; key.start++)
        words[count++] = field_of(fields[key.start], TATP_FORWARDINGS, &key);
    redis_add_script(state->client, state->scripts[call->kind], words, count, 1);
}

static void send_update(struct redis_state *state, const struct tatp_call *call) {
    char id[REDIS_NUMBER_BYTES], field[FIELD_BYTES], data_a = (char)remo__random_next(call->random);
    const struct redis_word words[] = {redis_number(id, 0, call->key.subscriber),
                                       field_of(field, TATP_FACILITIES, &call->key), redis_bytes(&data_a, 1)};
    redis_add_script(state->client, state->scripts[call->kind], words, REMO__ARRAY_COUNT(words), 1);
}

static void send_location(struct redis_state *state, const struct tatp_call *call) {
    char number[NUMBER_BYTES + 1];
    uint32_t location = (uint32_t)remo__random_next(call->random);
    const struct redis_word words[] = {number_of(number, call->key.subscriber),
                                       redis_bytes(&location, sizeof location)};
    redis_add_script(state->client, state->scripts[call->kind], words, REMO__ARRAY_COUNT(words), 1);
}

static void send_forwarding(struct redis_state *state, const struct tatp_call *call) {
    char number[NUMBER_BYTES + 1], field[FIELD_BYTES], type = (char)('0' + call->key.type);
    const struct redis_word by_number = number_of(number, call->key.subscriber),
                            start = field_of(field, TATP_FORWARDINGS, &call->key);
    if (call->kind == TATP_DELETE_FORWARDING) {
        redis_add_script(state->client, state->scripts[call->kind], (struct redis_word[]){by_number, start},
                         2, 1);
        return;
    }
    const struct tatp_forwarding row = tatp_make_forwarding(call->random, call->end_time);
    const struct redis_word words[] = {by_number, redis_bytes(&type, 1), start,
                                       redis_bytes(&row, sizeof row)};
    redis_add_script(state->client, state->scripts[call->kind], words, REMO__ARRAY_COUNT(words), 1);
}

static void send(struct transactions *bench, struct redis_state *state, unsigned i) {
    struct tatp_call *call = &bench->calls[i].tatp;
    *call = tatp_draw(bench->keys, &bench->random);
    switch (call->kind) {
    case TATP_GET_SUBSCRIBER: send_read(state, call, TATP_SUBSCRIBERS); break;
    case TATP_GET_ACCESS: send_read(state, call, TATP_ACCESS_INFOS); break;
    case TATP_GET_DESTINATION: send_destination(state, call); break;
    case TATP_UPDATE_SUBSCRIBER: send_update(state, call); break;
    case TATP_UPDATE_LOCATION: send_location(state, call); break;
    default: send_forwarding(state, call);
    }
}

static void check_owner(const struct tatp_call *call, uint64_t owner) {
    if (owner != call->key.subscriber)
        processes_fail("the benchmark is wrong: the row of subscriber %llu belongs to %llu",
                       (unsigned long long)call->key.subscriber, (unsigned long long)owner);
}

/* Check a row that was read, which begins with its subscriber. */
static void check_row(const struct tatp_call *call, const struct redis_reply *reply) {
    uint64_t owner = 0;
    bool is_subscriber = call->kind == TATP_GET_SUBSCRIBER;
    if (reply->count != tatp_row_bytes(is_subscriber ? TATP_SUBSCRIBERS : TATP_ACCESS_INFOS))
        processes_fail("the benchmark is wrong: a row of %zu bytes", reply->count);
    memcpy(&owner, reply->bytes, is_subscriber ? sizeof(uint64_t) : sizeof(uint32_t));
    check_owner(call, owner);
}

static void receive(struct transactions *bench, struct redis_state *state, unsigned i) {
    struct tatp_call *call = &bench->calls[i].tatp;
    struct redis_reply reply;
    redis_receive(state->client, &reply);
    call->found = reply.is_integer ? reply.integer > 0 : !reply.is_missing;
    if (call->has_number)
        check_owner(call, (uint64_t)llabs(reply.integer));
    else if (call->kind != TATP_GET_DESTINATION && reply.bytes)
        check_row(call, &reply);
    tatp_count(&bench->counts.tatp, call);
}

const struct redis_workload redis_tatp = {
    .scripts = scripts, .kinds = TATP_KINDS, .insert = insert, .send = send, .receive = receive};
