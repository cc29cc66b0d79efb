/* tatp_rows.c - the rows and the transactions of TATP. All rows of a subscriber have the same owner, so each
 * transaction with changes is committed by one call. A row that does not exist is a result: the commit
 * validates it too. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "bench/objects/tatp.h"

struct row_key {
    uint64_t subscriber;
    uint32_t type, start; /* 0: the key does not have it */
};

struct subscriber {
    uint64_t number;
    char sub_nbr[16]; /* 15 digits */
    uint32_t msc_location, vlr_location;
    uint8_t bit[10], hex[10], byte2[10], unused[2];
};

struct access_info {
    uint32_t number;
    uint8_t data1, data2;
    char data3[3], data4[5], unused[2];
};

struct facility {
    uint32_t number;
    uint8_t is_active, error_cntrl, data_a;
    char data_b[5], unused[4];
};

struct forwarding {
    uint8_t end_time;
    char numberx[15];
};

#define NUMBER_DIGITS 15u

static void make_number(char digits[NUMBER_DIGITS + 1], uint64_t subscriber) {
    snprintf(digits, NUMBER_DIGITS + 1, "%015llu", (unsigned long long)(subscriber % 1000000000000000u));
}

static struct remo_structure *structure_of(const struct tatp_tables *tables, enum tatp_table table) {
    return remo_table_structure(tables->of[table]);
}

/* ---- open and close ---- */

int tatp_open(struct remo_channel *parent, const char *name, uint64_t subscribers,
              enum remo_table_lookups lookups, struct tatp_tables *ret_tables) {
    static const struct {
        const char *name;
        uint32_t rows, key_bytes, value_bytes; /* rows: the mean for each subscriber, rounded up */
    } kinds[TATP_TABLES] = {{"subscribers", 1, 8, sizeof(struct subscriber)},
                            {"access", 3, sizeof(struct row_key), sizeof(struct access_info)},
                            {"facilities", 3, sizeof(struct row_key), sizeof(struct facility)},
                            {"forwardings", 4, sizeof(struct row_key), sizeof(struct forwarding)},
                            {"numbers", 1, NUMBER_DIGITS, 8}};
    struct remo_structure *structures[TATP_TABLES];
    int rc = 0;
    ret_tables->subscribers = subscribers;
    for (uint32_t i = 0; i < TATP_TABLES && rc == 0; i++) {
        char table[40];
        snprintf(table, sizeof table, "%s-%s", name, kinds[i].name);
        struct remo_table_options options = {.capacity = subscribers * kinds[i].rows,
                                             .key_bytes_max = kinds[i].key_bytes,
                                             .value_bytes_max = kinds[i].value_bytes,
                                             .partition_bytes = i == TATP_NUMBERS ? 0 : sizeof(uint64_t),
                                             .lookups = lookups};
        rc = remo_table_open(parent, table, &options, &ret_tables->of[i]);
        structures[i] = structure_of(ret_tables, i);
    }
    const struct remo_tx_space_options options = {.structures = structures, .structure_count = TATP_NUMBERS};
    return rc == 0 ? remo_tx_space_open(parent, name, &options, &ret_tables->space) : rc;
}

void tatp_close(struct tatp_tables *tables) {
    remo_tx_space_close(tables->space);
    for (uint32_t i = 0; i < TATP_TABLES; i++)
        remo_table_close(tables->of[i]);
}

/* ---- the population ---- */

static struct forwarding make_forwarding(struct remo__random *random, uint64_t end_time) {
    struct forwarding row = {.end_time = (uint8_t)end_time};
    for (uint32_t i = 0; i < sizeof row.numberx; i++)
        row.numberx[i] = (char)('0' + remo__random_below(random, 10));
    return row;
}

/* Return a set of `count` of the numbers below `of`, as bits. */
static uint32_t draw_set(struct remo__random *random, uint32_t of, uint64_t count) {
    uint32_t set = 0;
    while (count > 0) {
        uint32_t bit = 1u << remo__random_below(random, of);
        count -= (set & bit) == 0;
        set |= bit;
    }
    return set;
}

static int insert_row(const struct tatp_tables *tables, enum tatp_table table, struct row_key key,
                      const void *row, size_t bytes) {
    size_t key_bytes = table == TATP_SUBSCRIBERS ? sizeof key.subscriber : sizeof key;
    return remo_structure_insert(structure_of(tables, table), &key, key_bytes, row, bytes);
}

static int insert_facility(const struct tatp_tables *tables, struct remo__random *random,
                           struct row_key key) {
    struct facility row = {.number = (uint32_t)key.subscriber,
                           .is_active = remo__random_below(random, 100) < 85};
    uint32_t starts = draw_set(random, TATP_STARTS, remo__random_below(random, TATP_STARTS + 1));
    int rc = insert_row(tables, TATP_FACILITIES, key, &row, sizeof row);
    for (uint32_t i = 0; i < TATP_STARTS && rc == 0; i++) {
        key.start = 1 + i;
        struct forwarding forwarding =
            make_forwarding(random, i * TATP_START_HOURS + 1 + remo__random_below(random, 8));
        if (starts & 1u << i)
            rc = insert_row(tables, TATP_FORWARDINGS, key, &forwarding, sizeof forwarding);
    }
    return rc;
}

static int insert_rows(const struct tatp_tables *tables, struct remo__random *random, uint64_t subscriber) {
    struct row_key key = {.subscriber = subscriber};
    struct subscriber row = {.number = subscriber, .vlr_location = (uint32_t)remo__random_next(random)};
    struct access_info access = {.number = (uint32_t)subscriber};
    uint32_t infos = draw_set(random, TATP_TYPES, 1 + remo__random_below(random, TATP_TYPES)),
             facilities = draw_set(random, TATP_TYPES, 1 + remo__random_below(random, TATP_TYPES));
    make_number(row.sub_nbr, subscriber);
    int rc = insert_row(tables, TATP_SUBSCRIBERS, key, &row, sizeof row);
    for (uint32_t type = 0; type < TATP_TYPES && rc == 0; type++) {
        key.type = 1 + type;
        if (infos & 1u << type)
            rc = insert_row(tables, TATP_ACCESS_INFOS, key, &access, sizeof access);
        if (rc == 0 && (facilities & 1u << type))
            rc = insert_facility(tables, random, key);
    }
    return rc;
}

int tatp_insert(const struct tatp_tables *tables, uint32_t rank, uint64_t subscriber) {
    struct remo__random random;
    char digits[NUMBER_DIGITS + 1];
    int rc = 0;
    make_number(digits, subscriber);
    remo__random_seed(&random, subscriber);
    if (remo_table_owner(tables->of[TATP_NUMBERS], digits, NUMBER_DIGITS) == rank)
        rc = remo_structure_insert(structure_of(tables, TATP_NUMBERS), digits, NUMBER_DIGITS, &subscriber,
                                   sizeof subscriber);
    if (rc == 0 && remo_table_owner(tables->of[TATP_SUBSCRIBERS], &subscriber, sizeof subscriber) == rank)
        rc = insert_rows(tables, &random, subscriber);
    return rc;
}

/* ---- transactions ---- */

struct call {
    const struct tatp_tables *tables;
    struct remo__random *random;
    struct row_key key; /* of its subscriber, with the type and start that it uses */
    uint64_t end_time;
    uint64_t attempts;
    bool found;
};

/* Read a row. Returns 1, or 0 if it does not exist. */
static int read_row(const struct call *call, struct remo_tx *tx, enum tatp_table table, struct row_key key,
                    void *row, size_t bytes) {
    size_t key_bytes = table == TATP_SUBSCRIBERS ? sizeof key.subscriber : sizeof key, row_bytes = 0;
    int rc = remo_tx_read(tx, structure_of(call->tables, table), &key, key_bytes, row, bytes, &row_bytes);
    if (rc == 0 && row_bytes != bytes)
        return remo__fail(-EIO, "the benchmark is wrong: a row of %zu bytes instead of %zu", row_bytes,
                          bytes);
    return rc == 0 ? 1 : rc == -ENOENT ? 0 : rc;
}

static struct row_key key_of(const struct call *call, bool has_type, bool has_start) {
    return (struct row_key){call->key.subscriber, has_type ? call->key.type : 0,
                            has_start ? call->key.start : 0};
}

static int wrong_row(const struct call *call, uint64_t number) {
    return remo__fail(-EIO, "the benchmark is wrong: the row of subscriber %llu belongs to %llu",
                      (unsigned long long)call->key.subscriber, (unsigned long long)number);
}

static int read_subscriber(struct call *call, struct remo_tx *tx, struct subscriber *ret_row) {
    int rc = read_row(call, tx, TATP_SUBSCRIBERS, key_of(call, false, false), ret_row, sizeof *ret_row);
    if (rc == 1 && ret_row->number != call->key.subscriber)
        return wrong_row(call, ret_row->number);
    return rc;
}

static int get_subscriber(void *ctx, struct remo_tx *tx) {
    struct call *call = ctx;
    struct subscriber row;
    int rc = read_subscriber(call, tx, &row);
    call->found = rc == 1;
    return rc < 0 ? rc : 0;
}

static int get_access(void *ctx, struct remo_tx *tx) {
    struct call *call = ctx;
    struct access_info row;
    int rc = read_row(call, tx, TATP_ACCESS_INFOS, key_of(call, true, false), &row, sizeof row);
    call->found = rc == 1;
    if (rc == 1 && row.number != (uint32_t)call->key.subscriber)
        return wrong_row(call, row.number);
    return rc < 0 ? rc : 0;
}

static int get_destination(void *ctx, struct remo_tx *tx) {
    struct call *call = ctx;
    struct facility facility;
    struct forwarding row;
    struct row_key key = key_of(call, true, false);
    call->found = false;
    int rc = read_row(call, tx, TATP_FACILITIES, key, &facility, sizeof facility);
    if (rc <= 0 || !facility.is_active)
        return rc < 0 ? rc : 0;
    for (key.start = 1; key.start <= call->key.start && rc >= 0; key.start++) {
        rc = read_row(call, tx, TATP_FORWARDINGS, key, &row, sizeof row);
        call->found = call->found || (rc == 1 && row.end_time > call->end_time);
    }
    return rc < 0 ? rc : 0;
}

static int update_subscriber(void *ctx, struct remo_tx *tx) {
    struct call *call = ctx;
    struct subscriber row;
    struct facility facility;
    struct row_key key = key_of(call, true, false);
    int rc = read_row(call, tx, TATP_FACILITIES, key, &facility, sizeof facility);
    call->found = rc == 1;
    if (rc == 1)
        rc = read_subscriber(call, tx, &row);
    if (rc <= 0)
        return rc;
    row.bit[0] ^= 1;
    facility.data_a = (uint8_t)remo__random_next(call->random);
    rc = remo_tx_update(tx, structure_of(call->tables, TATP_SUBSCRIBERS), &key, sizeof key.subscriber, &row,
                        sizeof row);
    if (rc == 0)
        rc = remo_tx_update(tx, structure_of(call->tables, TATP_FACILITIES), &key, sizeof key, &facility,
                            sizeof facility);
    return rc;
}

static int update_location(void *ctx, struct remo_tx *tx) {
    struct call *call = ctx;
    struct subscriber row;
    int rc = read_subscriber(call, tx, &row);
    call->found = rc == 1;
    if (rc <= 0)
        return rc;
    row.vlr_location = (uint32_t)remo__random_next(call->random);
    return remo_tx_update(tx, structure_of(call->tables, TATP_SUBSCRIBERS), &call->key.subscriber,
                          sizeof call->key.subscriber, &row, sizeof row);
}

/* The standard reads all special facilities of the subscriber, and inserts a row for one of them. */
static int insert_forwarding(void *ctx, struct remo_tx *tx) {
    struct call *call = ctx;
    struct facility facility;
    struct row_key key = key_of(call, false, false);
    int rc = 0;
    call->found = false;
    for (key.type = 1; key.type <= TATP_TYPES && rc >= 0; key.type++) {
        rc = read_row(call, tx, TATP_FACILITIES, key, &facility, sizeof facility);
        call->found = call->found || (rc == 1 && key.type == call->key.type);
    }
    if (rc < 0 || !call->found)
        return rc < 0 ? rc : 0;
    struct forwarding row = make_forwarding(call->random, call->end_time);
    rc = remo_tx_insert(tx, structure_of(call->tables, TATP_FORWARDINGS), &call->key, sizeof call->key, &row,
                        sizeof row);
    call->found = rc == 0;
    return rc == -EEXIST ? 0 : rc;
}

static int delete_forwarding(void *ctx, struct remo_tx *tx) {
    struct call *call = ctx;
    int rc = remo_tx_delete(tx, structure_of(call->tables, TATP_FORWARDINGS), &call->key, sizeof call->key);
    call->found = rc == 0;
    return rc == -ENOENT ? 0 : rc;
}

static const struct kind {
    uint32_t percent;
    bool has_number; /* it finds its subscriber by number */
    int (*body)(void *ctx, struct remo_tx *tx);
} kinds[TATP_KINDS] = {
    [TATP_GET_SUBSCRIBER] = {35, false, get_subscriber},
    [TATP_GET_DESTINATION] = {10, false, get_destination},
    [TATP_GET_ACCESS] = {35, false, get_access},
    [TATP_UPDATE_SUBSCRIBER] = {2, false, update_subscriber},
    [TATP_UPDATE_LOCATION] = {14, true, update_location},
    [TATP_INSERT_FORWARDING] = {2, true, insert_forwarding},
    [TATP_DELETE_FORWARDING] = {2, true, delete_forwarding},
};

static enum tatp_kind draw_kind(struct remo__random *random) {
    uint64_t percent = remo__random_below(random, 100);
    uint32_t kind = 0;
    while (percent >= kinds[kind].percent)
        percent -= kinds[kind++].percent;
    return kind;
}

/* Return the number of low bits in the standard's distribution that are more often 1 than 0. The standard
 * states it for 1 M subscribers and more. */
static uint32_t skewed_bits(uint64_t subscribers) {
    uint32_t bits = subscribers > 10000000 ? 21 : subscribers > 1000000 ? 20 : 16;
    while (subscribers < 1000000 && bits > 0 && subscribers >> bits < 1000000 >> 16)
        bits--;
    return bits;
}

double tatp_spread(uint64_t subscribers) {
    return (double)subscribers * pow(0.8, skewed_bits(subscribers)); /* 1 / 0.8 = 2 * (0.75^2 + 0.25^2) */
}

static uint64_t draw_subscriber(uint64_t subscribers, struct remo__random *random) {
    uint64_t a = remo__random_next(random) & ((UINT64_C(1) << skewed_bits(subscribers)) - 1),
             b = 1 + remo__random_below(random, subscribers);
    return (a | b) % subscribers + 1;
}

static struct call draw_call(const struct tatp_tables *tables, struct remo__random *random) {
    return (struct call){.tables = tables,
                         .random = random,
                         .key = {.subscriber = draw_subscriber(tables->subscribers, random),
                                 .type = 1 + (uint32_t)remo__random_below(random, TATP_TYPES),
                                 .start = 1 + (uint32_t)remo__random_below(random, TATP_STARTS)},
                         .end_time = 1 + remo__random_below(random, 24)};
}

/* Numbers never change, so this lookup is no part of the transaction. */
static int find_by_number(struct call *call) {
    char digits[NUMBER_DIGITS + 1];
    uint64_t subscriber = 0;
    make_number(digits, call->key.subscriber);
    int rc = remo_structure_lookup(structure_of(call->tables, TATP_NUMBERS), digits, NUMBER_DIGITS,
                                   &subscriber, sizeof subscriber, NULL, NULL);
    return rc == 0 && subscriber != call->key.subscriber ? wrong_row(call, subscriber) : rc;
}

struct attempt {
    struct call call;
    const struct kind *kind;
};

static int run_attempt(void *ctx, struct remo_tx *tx) {
    struct attempt *attempt = ctx;
    attempt->call.attempts++;
    return attempt->kind->body(&attempt->call, tx);
}

int tatp_run(const struct tatp_tables *tables, struct remo_tx *tx, struct remo__random *random,
             struct tatp_counts *counts) {
    enum tatp_kind kind = draw_kind(random);
    struct attempt attempt = {.call = draw_call(tables, random), .kind = &kinds[kind]};
    int rc = kinds[kind].has_number ? find_by_number(&attempt.call) : 0;
    if (rc == 0)
        rc = remo_tx_run(tx, run_attempt, &attempt, REMO_FOREVER);
    if (rc != 0)
        return rc;
    counts->tried[kind]++;
    counts->found[kind] += attempt.call.found;
    counts->repeated += attempt.call.attempts - 1;
    return 0;
}
