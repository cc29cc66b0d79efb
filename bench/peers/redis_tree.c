/* redis_tree.c - the ordered map on Redis (ordered.h): each entry is a key of its own, and a member of one
 * sorted set, whose members are in the order of their bytes. A get and an update use the key only, so each is
 * one command. The others are scripts: Redis executes a script atomically. */
#include "bench/peers/redis_client.h"

#include <stdlib.h>
#include <string.h>

#include "bench/peers/ordered.h"

#define FILL_COMMANDS 256u /* in flight, while the map is filled */
#define SLICE_ENTRIES 1000 /* of one MGET: a script has room for some thousand arguments */

enum script { INSERT, REMOVE, SCAN, SCRIPTS };

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

static const char *const scripts[SCRIPTS] = {
    [INSERT] = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('ZADD', 'map', 0, KEYS[1])",
    [REMOVE] = "redis.call('DEL', KEYS[1]) return redis.call('ZREM', 'map', KEYS[1])",
    [SCAN] =
        "local keys = redis.call('ZRANGEBYLEX', 'map', ARGV[1], '+', 'LIMIT', 0, ARGV[2]) "
        "local texts = {} "
        "for i = 1, #keys, " TEXT(
            SLICE_ENTRIES) " do "
                           "  local last = math.min(i + " TEXT(
                               SLICE_ENTRIES) " - 1, #keys) "
                                              "  local values = redis.call('MGET', unpack(keys, i, last)) "
                                              "  texts[#texts + 1] = table.concat(keys, '', i, last) "
                                              "  texts[#texts + 1] = table.concat(values) "
                                              "end "
                                              "return table.concat(texts)",
};

struct connection {
    struct redis_client *client;
    char scripts[SCRIPTS][REDIS_SHA_BYTES];
    unsigned in_flight; /* of the population */
};

static struct redis_client *client_of(const struct ordered *map) {
    return ((const struct connection *)map->state)->client;
}

static void start(struct ordered *map) {
    redis_start(map->options);
}

static void open_client(struct ordered *map) {
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        processes_fail("cannot connect to Redis: no memory");
    if (map->entries >= REDIS_BUFFER_BYTES / sizeof(struct tree_record))
        processes_fail("Redis cannot return %u entries of a scan together; give a smaller --window",
                       map->entries);
    server_share_processors(map->options);
    map->state = connection;
    connection->client = redis_open();
    for (unsigned i = 0; i < SCRIPTS; i++)
        redis_load(connection->client, scripts[i], connection->scripts[i]);
}

/* ---- the population ---- */

static void receive_fill(struct connection *connection, unsigned most) {
    struct redis_reply reply;
    for (; connection->in_flight > most; connection->in_flight--)
        redis_receive(connection->client, &reply);
}

static void add(struct ordered *map, uint64_t key, uint64_t value) {
    struct connection *connection = map->state;
    const struct redis_word name = redis_bytes(&key, sizeof key);
    const struct redis_word words[] = {name, redis_bytes(&value, sizeof value)};
    redis_add_script(connection->client, connection->scripts[INSERT], words, 2, 1);
    connection->in_flight++;
    receive_fill(connection, FILL_COMMANDS);
}

static void flush(struct ordered *map) {
    receive_fill(map->state, 0);
}

/* ---- operations ---- */

static void get(struct ordered *map, struct tree_record *records, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const struct redis_word words[] = {{"GET", 3}, redis_bytes(&records[i].key, sizeof records[i].key)};
        redis_add(client_of(map), words, 2);
    }
    for (unsigned i = 0; i < count; i++) {
        struct redis_reply reply;
        redis_receive(client_of(map), &reply);
        if (reply.count != sizeof records[i].value)
            processes_fail("the benchmark is wrong: Redis has no value of 8 bytes for a key");
        memcpy(&records[i].value, reply.bytes, sizeof records[i].value);
    }
}

static void update(struct ordered *map, const struct tree_record *records, unsigned count) {
    struct redis_reply reply;
    for (unsigned i = 0; i < count; i++) {
        const struct redis_word words[] = {{"SET", 3},
                                           redis_bytes(&records[i].key, sizeof records[i].key),
                                           redis_bytes(&records[i].value, sizeof records[i].value),
                                           {"XX", 2}}; /* only if it exists */
        redis_add(client_of(map), words, 4);
    }
    for (unsigned i = 0; i < count; i++) {
        redis_receive(client_of(map), &reply);
        if (!reply.is_integer)
            processes_fail("the benchmark is wrong: Redis has no key to update");
    }
}

/* Run a script that changes one member of the set. */
static void change(struct ordered *map, enum script script, const struct redis_word *words, size_t count) {
    const struct connection *connection = map->state;
    struct redis_reply reply;
    redis_add_script(connection->client, connection->scripts[script], words, count, 1);
    redis_receive(connection->client, &reply);
    if (!reply.is_integer || reply.integer != 1)
        processes_fail("the benchmark is wrong: a key to insert is present, or one to remove is absent");
}

static void insert(struct ordered *map, const struct tree_record *record) {
    const struct redis_word words[] = {redis_bytes(&record->key, sizeof record->key),
                                       redis_bytes(&record->value, sizeof record->value)};
    change(map, INSERT, words, 2);
}

static void remove_key(struct ordered *map, uint64_t key) {
    const struct redis_word word = redis_bytes(&key, sizeof key);
    change(map, REMOVE, &word, 1);
}

/* The reply has slices: the keys, and then their values. */
static unsigned take_records(const struct redis_reply *reply, struct tree_record *records) {
    unsigned all = (unsigned)(reply->count / sizeof *records);
    const char *at = reply->bytes;
    for (unsigned done = 0; done < all;) {
        unsigned slice = all - done < SLICE_ENTRIES ? all - done : SLICE_ENTRIES;
        for (unsigned i = 0; i < slice; i++) {
            memcpy(&records[done + i].key, at + 8 * i, 8);
            memcpy(&records[done + i].value, at + 8 * (slice + i), 8);
        }
        at += 16 * slice;
        done += slice;
    }
    return all;
}

static unsigned scan(struct ordered *map, uint64_t from, struct tree_record *records, unsigned count) {
    const struct connection *connection = map->state;
    struct redis_reply reply;
    char first[1 + sizeof from] = "[", number[REDIS_NUMBER_BYTES];
    memcpy(first + 1, &from, sizeof from);
    const struct redis_word words[] = {redis_bytes(first, sizeof first), redis_number(number, 0, count)};
    redis_add_script(connection->client, connection->scripts[SCAN], words, 2, 0);
    redis_receive(connection->client, &reply);
    if (reply.is_missing || reply.is_integer || reply.count > count * sizeof *records)
        processes_fail("the benchmark is wrong: Redis returned %zu bytes to a scan of %u entries",
                       reply.count, count);
    return take_records(&reply, records);
}

static uint64_t count_entries(struct ordered *map) {
    const struct redis_word words[] = {{"ZCARD", 5}, {"map", 3}};
    struct redis_reply reply;
    redis_add(client_of(map), words, 2);
    redis_receive(client_of(map), &reply);
    return (uint64_t)reply.integer;
}

const struct ordered_store redis_ordered = {.name = "Redis",
                                            .is_pipelined = true,
                                            .start = start,
                                            .open = open_client,
                                            .add = add,
                                            .flush = flush,
                                            .get = get,
                                            .update = update,
                                            .insert = insert,
                                            .remove = remove_key,
                                            .scan = scan,
                                            .count = count_entries};
