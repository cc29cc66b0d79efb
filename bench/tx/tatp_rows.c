/* tatp_rows.c - the rows of TATP, and its transactions on any store (tatp_rows.h). The generator of a
 * transaction and the check of its result are the same for each store, so that figures can be compared. A row
 * that does not exist is a result. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/bits.h"
#include "bench/tx/tatp_rows.h"

#define START_HOURS 8u /* from one start of call forwarding to the next */
/* The error that a share may have with 1 M subscribers, in addition to that of a random sample. */
#define SHARE_ERROR 0.005
#define SHARE_ERROR_SUBSCRIBERS 1000000u
#define DEVIATIONS 5.0

size_t tatp_row_bytes(enum tatp_table table) {
    static const size_t bytes[TATP_TABLES] = {
        [TATP_SUBSCRIBERS] = sizeof(struct tatp_subscriber),
        [TATP_ACCESS_INFOS] = sizeof(struct tatp_access_info),
        [TATP_FACILITIES] = sizeof(struct tatp_facility),
        [TATP_FORWARDINGS] = sizeof(struct tatp_forwarding),
        [TATP_NUMBERS] = sizeof(uint64_t),
    };
    return bytes[table];
}

void tatp_make_number(char ret_digits[TATP_NUMBER_DIGITS + 1], uint64_t subscriber) {
    snprintf(ret_digits, TATP_NUMBER_DIGITS + 1, "%015llu",
             (unsigned long long)(subscriber % 1000000000000000u));
}

/* ---- the population ---- */

/* The function that takes the rows. */
struct taker {
    int (*insert)(void *ctx, enum tatp_table table, const struct tatp_key *key, const void *row,
                  size_t bytes);
    void *ctx;
};

struct tatp_forwarding tatp_make_forwarding(struct remo__random *random, uint64_t end_time) {
    struct tatp_forwarding row = {.end_time = (uint8_t)end_time};
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

static int populate_facility(const struct taker *taker, struct remo__random *random, struct tatp_key key) {
    struct tatp_facility row = {.number = (uint32_t)key.subscriber,
                                .is_active = remo__random_below(random, 100) < 85};
    uint32_t starts = draw_set(random, TATP_STARTS, remo__random_below(random, TATP_STARTS + 1));
    int rc = taker->insert(taker->ctx, TATP_FACILITIES, &key, &row, sizeof row);
    for (uint32_t i = 0; i < TATP_STARTS && rc == 0; i++) {
        key.start = 1 + i;
        struct tatp_forwarding forwarding =
            tatp_make_forwarding(random, i * START_HOURS + 1 + remo__random_below(random, 8));
        if (starts & 1u << i)
            rc = taker->insert(taker->ctx, TATP_FORWARDINGS, &key, &forwarding, sizeof forwarding);
    }
    return rc;
}

int tatp_populate(uint64_t subscriber,
                  int (*insert)(void *ctx, enum tatp_table table, const struct tatp_key *key, const void *row,
                                size_t bytes),
                  void *ctx) {
    struct remo__random random;
    remo__random_seed(&random, subscriber);
    struct taker taker = {insert, ctx};
    struct tatp_key key = {.subscriber = subscriber};
    struct tatp_subscriber row = {.number = subscriber, .vlr_location = (uint32_t)remo__random_next(&random)};
    struct tatp_access_info access = {.number = (uint32_t)subscriber};
    uint32_t infos = draw_set(&random, TATP_TYPES, 1 + remo__random_below(&random, TATP_TYPES)),
             facilities = draw_set(&random, TATP_TYPES, 1 + remo__random_below(&random, TATP_TYPES));
    tatp_make_number(row.sub_nbr, subscriber);
    int rc = insert(ctx, TATP_SUBSCRIBERS, &key, &row, sizeof row);
    for (uint32_t type = 0; type < TATP_TYPES && rc == 0; type++) {
        key.type = 1 + type;
        if (infos & 1u << type)
            rc = insert(ctx, TATP_ACCESS_INFOS, &key, &access, sizeof access);
        if (rc == 0 && (facilities & 1u << type))
            rc = populate_facility(&taker, &random, key);
    }
    return rc;
}

/* ---- transactions ---- */

/* An attempt of a transaction. */
struct attempt {
    struct tatp_call *call;
    const struct tatp_store *store;
    void *tx;
};

/* Read a row. Returns 1, or 0 if it does not exist. */
static int read_row(const struct attempt *attempt, enum tatp_table table, struct tatp_key key, void *row,
                    size_t bytes) {
    int rc = attempt->store->read(attempt->tx, table, &key, row, bytes);
    return rc == 0 ? 1 : rc == -ENOENT ? 0 : rc;
}

static struct tatp_key key_of(const struct tatp_call *call, bool has_type) {
    return (struct tatp_key){.subscriber = call->key.subscriber, .type = has_type ? call->key.type : 0};
}

static int read_subscriber(const struct attempt *attempt, struct tatp_subscriber *ret_row) {
    const struct tatp_call *call = attempt->call;
    int rc = read_row(attempt, TATP_SUBSCRIBERS, key_of(call, false), ret_row, sizeof *ret_row);
    if (rc == 1 && ret_row->number != call->key.subscriber)
        return attempt->store->fail(call->key.subscriber, ret_row->number);
    return rc;
}

static int get_subscriber(const struct attempt *attempt) {
    struct tatp_subscriber row;
    int rc = read_subscriber(attempt, &row);
    attempt->call->found = rc == 1;
    return rc < 0 ? rc : 0;
}

static int get_access(const struct attempt *attempt) {
    struct tatp_call *call = attempt->call;
    struct tatp_access_info row;
    int rc = read_row(attempt, TATP_ACCESS_INFOS, key_of(call, true), &row, sizeof row);
    call->found = rc == 1;
    if (rc == 1 && row.number != (uint32_t)call->key.subscriber)
        return attempt->store->fail(call->key.subscriber, row.number);
    return rc < 0 ? rc : 0;
}

static int get_destination(const struct attempt *attempt) {
    struct tatp_call *call = attempt->call;
    struct tatp_facility facility;
    struct tatp_forwarding row;
    struct tatp_key key = key_of(call, true);
    int rc = read_row(attempt, TATP_FACILITIES, key, &facility, sizeof facility);
    if (rc <= 0 || !facility.is_active)
        return rc < 0 ? rc : 0;
    for (key.start = 1; key.start <= call->key.start && rc >= 0; key.start++) {
        rc = read_row(attempt, TATP_FORWARDINGS, key, &row, sizeof row);
        call->found = call->found || (rc == 1 && row.end_time > call->end_time);
    }
    return rc < 0 ? rc : 0;
}

static int update_subscriber(const struct attempt *attempt) {
    struct tatp_call *call = attempt->call;
    struct tatp_subscriber row;
    struct tatp_facility facility;
    struct tatp_key key = key_of(call, true), subscriber_key = key_of(call, false);
    int rc = read_row(attempt, TATP_FACILITIES, key, &facility, sizeof facility);
    call->found = rc == 1;
    if (rc == 1)
        rc = read_subscriber(attempt, &row);
    if (rc <= 0)
        return rc;
    row.bit[0] ^= 1;
    facility.data_a = (uint8_t)remo__random_next(call->random);
    rc = attempt->store->update(attempt->tx, TATP_SUBSCRIBERS, &subscriber_key, &row, sizeof row);
    if (rc == 0)
        rc = attempt->store->update(attempt->tx, TATP_FACILITIES, &key, &facility, sizeof facility);
    return rc;
}

static int update_location(const struct attempt *attempt) {
    struct tatp_call *call = attempt->call;
    struct tatp_subscriber row;
    struct tatp_key key = key_of(call, false);
    int rc = read_subscriber(attempt, &row);
    call->found = rc == 1;
    if (rc <= 0)
        return rc;
    row.vlr_location = (uint32_t)remo__random_next(call->random);
    return attempt->store->update(attempt->tx, TATP_SUBSCRIBERS, &key, &row, sizeof row);
}

/* The standard reads all special facilities of the subscriber, and inserts a row for one of them. */
static int insert_forwarding(const struct attempt *attempt) {
    struct tatp_call *call = attempt->call;
    struct tatp_facility facility;
    struct tatp_key key = key_of(call, false);
    int rc = 0;
    for (key.type = 1; key.type <= TATP_TYPES && rc >= 0; key.type++) {
        rc = read_row(attempt, TATP_FACILITIES, key, &facility, sizeof facility);
        call->found = call->found || (rc == 1 && key.type == call->key.type);
    }
    if (rc < 0 || !call->found)
        return rc < 0 ? rc : 0;
    struct tatp_forwarding row = tatp_make_forwarding(call->random, call->end_time);
    rc = attempt->store->insert(attempt->tx, TATP_FORWARDINGS, &call->key, &row, sizeof row);
    call->found = rc == 0;
    return rc == -EEXIST ? 0 : rc;
}

static int delete_forwarding(const struct attempt *attempt) {
    struct tatp_call *call = attempt->call;
    int rc = attempt->store->remove(attempt->tx, TATP_FORWARDINGS, &call->key);
    call->found = rc == 0;
    return rc == -ENOENT ? 0 : rc;
}

static const struct kind {
    uint32_t percent;
    bool only_reads, has_number;
    int (*body)(const struct attempt *attempt);
} kinds[TATP_KINDS] = {
    [TATP_GET_SUBSCRIBER] = {35, true, false, get_subscriber},
    [TATP_GET_DESTINATION] = {10, true, false, get_destination},
    [TATP_GET_ACCESS] = {35, true, false, get_access},
    [TATP_UPDATE_SUBSCRIBER] = {2, false, false, update_subscriber},
    [TATP_UPDATE_LOCATION] = {14, false, true, update_location},
    [TATP_INSERT_FORWARDING] = {2, false, true, insert_forwarding},
    [TATP_DELETE_FORWARDING] = {2, false, true, delete_forwarding},
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

static uint64_t draw_subscriber(uint64_t subscribers, struct remo__random *random) {
    uint64_t a = remo__random_next(random) & ((UINT64_C(1) << skewed_bits(subscribers)) - 1),
             b = 1 + remo__random_below(random, subscribers);
    return (a | b) % subscribers + 1;
}

struct tatp_call tatp_draw(uint64_t subscribers, struct remo__random *random) {
    enum tatp_kind kind = draw_kind(random);
    return (struct tatp_call){.kind = kind,
                              .key = {.subscriber = draw_subscriber(subscribers, random),
                                      .type = 1 + (uint32_t)remo__random_below(random, TATP_TYPES),
                                      .start = 1 + (uint32_t)remo__random_below(random, TATP_STARTS)},
                              .end_time = 1 + remo__random_below(random, 24),
                              .random = random,
                              .only_reads = kinds[kind].only_reads,
                              .has_number = kinds[kind].has_number};
}

int tatp_execute(struct tatp_call *call, const struct tatp_store *store, void *tx) {
    struct attempt attempt = {call, store, tx};
    call->found = false;
    return kinds[call->kind].body(&attempt);
}

/* ---- counts ---- */

void tatp_count(struct tatp_counts *counts, const struct tatp_call *call) {
    counts->tried[call->kind]++;
    counts->found[call->kind] += call->found;
}

void tatp_add_counts(struct tatp_counts *to, const struct tatp_counts *counts) {
    for (uint32_t kind = 0; kind < TATP_KINDS; kind++) {
        to->tried[kind] += counts->tried[kind];
        to->found[kind] += counts->found[kind];
    }
    to->repeated += counts->repeated;
}

/* Return the number of subscribers that would have the variance of the drawn ones, if all were drawn equally
 * often. */
static double spread_of(uint64_t subscribers) {
    return (double)subscribers * pow(0.8, skewed_bits(subscribers)); /* 1 / 0.8 = 2 * (0.75^2 + 0.25^2) */
}

/* The share of transactions that find their rows. Each subscriber has 1 to 4 of the 4 types: 62.5 %. Each
 * facility has 0 to 3 of the 3 call forwardings: half of them exist, and inserts and deletes keep this
 * share. */
static const struct share {
    enum tatp_kind kind;
    const char *name;
    double expected;
} shares[] = {{TATP_GET_SUBSCRIBER, "get subscriber data", 1},
              {TATP_GET_ACCESS, "get access data", 0.625},
              {TATP_UPDATE_SUBSCRIBER, "update subscriber data", 0.625},
              {TATP_UPDATE_LOCATION, "update location", 1},
              {TATP_INSERT_FORWARDING, "insert call forwarding", 0.3125},
              {TATP_DELETE_FORWARDING, "delete call forwarding", 0.3125}};

static bool is_share_right(const struct tatp_counts *counts, const struct share *expected,
                           double population_error, char ret_sentence[TATP_SENTENCE_BYTES]) {
    double tried = (double)counts->tried[expected->kind], p = expected->expected;
    if (tried == 0)
        return true;
    double share = (double)counts->found[expected->kind] / tried,
           deviation = sqrt(p * (1 - p) / tried) * DEVIATIONS;
    if (fabs(share - p) <= (p < 1 ? population_error + deviation : 0))
        return true;
    snprintf(ret_sentence, TATP_SENTENCE_BYTES,
             "the benchmark is wrong: %.2f %% of %.0f transactions \"%s\" found their rows, not %.2f %%",
             100 * share, tried, expected->name, 100 * p);
    return false;
}

bool tatp_check_shares(const struct tatp_counts *counts, uint64_t subscribers,
                       char ret_sentence[TATP_SENTENCE_BYTES]) {
    double error = SHARE_ERROR / fmin(1, sqrt(spread_of(subscribers) / spread_of(SHARE_ERROR_SUBSCRIBERS)));
    bool is_right = true;
    for (uint32_t i = 0; i < REMO__ARRAY_COUNT(shares) && is_right; i++)
        is_right = is_share_right(counts, &shares[i], error, ret_sentence);
    return is_right;
}
