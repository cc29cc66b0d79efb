/* postgresql_tatp.c - the transactions of TATP on PostgreSQL (postgresql.h), each as one statement of SQL.
 * The members of a row that transactions use are columns; the rest of the row is one column. */
#include "bench/peers/postgresql.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

/* ---- the population ---- */

/* The lines of one table. */
struct lines {
    enum tatp_table table;
    char *at;
    size_t cap, used;
};

__attribute__((format(printf, 2, 3))) static void append(struct lines *lines, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int count = vsnprintf(lines->at + lines->used, lines->cap - lines->used, format, values);
    va_end(values);
    if (count < 0 || (size_t)count >= lines->cap - lines->used)
        processes_fail("the rows of a subscriber exceed their buffer");
    lines->used += (size_t)count;
}

/* End a line with bytes. */
static void append_bytes(struct lines *lines, const void *bytes, size_t count) {
    append(lines, "\t\\\\x");
    for (size_t i = 0; i < count; i++)
        append(lines, "%02x", ((const unsigned char *)bytes)[i]);
    append(lines, "\n");
}

static void append_subscriber(struct lines *lines, const struct tatp_subscriber *row) {
    append(lines, "%llu\t%.*s\t%u\t%d", (unsigned long long)row->number, (int)TATP_NUMBER_DIGITS,
           row->sub_nbr, row->bit[0], (int32_t)row->vlr_location);
    append_bytes(lines, &row->bit[1], sizeof row->bit - 1 + sizeof row->hex + sizeof row->byte2);
}

static int append_row(void *ctx, enum tatp_table table, const struct tatp_key *key, const void *row,
                      size_t bytes) {
    struct lines *lines = ctx;
    const struct tatp_facility *facility = row;
    const struct tatp_forwarding *forwarding = row;
    (void)bytes;
    if (table != lines->table)
        return 0;
    if (table == TATP_SUBSCRIBERS) {
        append_subscriber(lines, row);
        return 0;
    }
    append(lines, "%llu\t%u", (unsigned long long)key->subscriber, key->type);
    if (table == TATP_ACCESS_INFOS) {
        append_bytes(lines, &((const struct tatp_access_info *)row)->data1, 10);
    } else if (table == TATP_FACILITIES) {
        append(lines, "\t%u\t%u", facility->is_active, facility->data_a);
        append_bytes(lines, facility->data_b, sizeof facility->data_b);
    } else {
        append(lines, "\t%u\t%u\t%.*s\n", key->start, forwarding->end_time, (int)sizeof forwarding->numberx,
               forwarding->numberx);
    }
    return 0;
}

static size_t rows_of(enum tatp_table table, uint64_t key, char *ret_lines, size_t cap) {
    struct lines lines = {.table = table, .at = ret_lines, .cap = cap};
    (void)tatp_populate(key + 1, append_row, &lines); /* append_row does not fail */
    return lines.used;
}

static size_t subscribers(uint64_t key, char *ret_lines, size_t cap) {
    return rows_of(TATP_SUBSCRIBERS, key, ret_lines, cap);
}

static size_t access_infos(uint64_t key, char *ret_lines, size_t cap) {
    return rows_of(TATP_ACCESS_INFOS, key, ret_lines, cap);
}

static size_t facilities(uint64_t key, char *ret_lines, size_t cap) {
    return rows_of(TATP_FACILITIES, key, ret_lines, cap);
}

static size_t forwardings(uint64_t key, char *ret_lines, size_t cap) {
    return rows_of(TATP_FORWARDINGS, key, ret_lines, cap);
}

static const struct postgresql_table tables[] = {
    {"subscriber", "s_id bigint, sub_nbr text, bit_1 smallint, vlr_location integer, rest bytea", "s_id",
     "sub_nbr", subscribers},
    {"access_info", "s_id bigint, ai_type smallint, data bytea", "s_id, ai_type", NULL, access_infos},
    {"facility", "s_id bigint, sf_type smallint, is_active smallint, data_a smallint, data_b bytea",
     "s_id, sf_type", NULL, facilities},
    {"forwarding", "s_id bigint, sf_type smallint, start_time smallint, end_time smallint, numberx text",
     "s_id, sf_type, start_time", NULL, forwardings},
    {0}};

/* ---- transactions ---- */

static const char *const statements[TATP_KINDS] = {
    [TATP_GET_SUBSCRIBER] = "SELECT * FROM subscriber WHERE s_id = $1",
    [TATP_GET_DESTINATION] =
        "SELECT c.s_id, c.numberx FROM facility f, forwarding c WHERE f.s_id = $1 AND f.sf_type = $2 "
        "AND f.is_active = 1 AND c.s_id = f.s_id AND c.sf_type = f.sf_type AND c.start_time <= $3 "
        "AND c.end_time > $4",
    [TATP_GET_ACCESS] = "SELECT s_id, data FROM access_info WHERE s_id = $1 AND ai_type = $2",
    [TATP_UPDATE_SUBSCRIBER] =
        "WITH f AS (UPDATE facility SET data_a = $3 WHERE s_id = $1 AND sf_type = $2 RETURNING s_id) "
        "UPDATE subscriber s SET bit_1 = 1 - bit_1 FROM f WHERE s.s_id = f.s_id RETURNING s.s_id",
    [TATP_UPDATE_LOCATION] = "UPDATE subscriber SET vlr_location = $2 WHERE sub_nbr = $1 RETURNING s_id",
    [TATP_INSERT_FORWARDING] =
        "INSERT INTO forwarding SELECT s.s_id, f.sf_type, $3, $4, $5 FROM subscriber s, facility f "
        "WHERE s.sub_nbr = $1 AND f.s_id = s.s_id AND f.sf_type = $2 ON CONFLICT DO NOTHING RETURNING s_id",
    [TATP_DELETE_FORWARDING] =
        "DELETE FROM forwarding c USING subscriber s WHERE s.sub_nbr = $1 AND c.s_id = s.s_id "
        "AND c.sf_type = $2 AND c.start_time = $3 RETURNING c.s_id",
};

static unsigned draw(struct transactions *bench, unsigned i, struct postgresql_parameters *ret_parameters) {
    char digits[TATP_NUMBER_DIGITS + 1];
    struct tatp_forwarding row;
    struct tatp_call *call = &bench->calls[i].tatp;
    *call = tatp_draw(bench->keys, &bench->random);
    tatp_make_number(digits, call->key.subscriber);
    if (call->has_number)
        postgresql_add_text(ret_parameters, digits, TATP_NUMBER_DIGITS);
    else
        postgresql_add(ret_parameters, (int64_t)call->key.subscriber);
    if (call->kind == TATP_UPDATE_LOCATION)
        postgresql_add(ret_parameters, (int32_t)remo__random_next(call->random));
    else if (call->kind != TATP_GET_SUBSCRIBER)
        postgresql_add(ret_parameters, call->key.type);
    switch (call->kind) {
    case TATP_UPDATE_SUBSCRIBER:
        postgresql_add(ret_parameters, (uint8_t)remo__random_next(call->random));
        break;
    case TATP_GET_DESTINATION:
        postgresql_add(ret_parameters, call->key.start);
        postgresql_add(ret_parameters, (int64_t)call->end_time);
        break;
    case TATP_INSERT_FORWARDING:
        row = tatp_make_forwarding(call->random, call->end_time);
        postgresql_add(ret_parameters, call->key.start);
        postgresql_add(ret_parameters, row.end_time);
        postgresql_add_text(ret_parameters, row.numberx, sizeof row.numberx);
        break;
    case TATP_DELETE_FORWARDING: postgresql_add(ret_parameters, call->key.start); break;
    default: break;
    }
    return call->kind;
}

/* Each statement returns the subscriber of the rows that it has found. */
static void take(struct transactions *bench, unsigned i, const PGresult *result) {
    struct tatp_call *call = &bench->calls[i].tatp;
    call->found = PQntuples(result) > 0;
    uint64_t owner = call->found ? (uint64_t)postgresql_integer(result, 0, sizeof owner) : 0;
    if (call->found && owner != call->key.subscriber)
        processes_fail("the benchmark is wrong: the row of subscriber %llu belongs to %llu",
                       (unsigned long long)call->key.subscriber, (unsigned long long)owner);
    tatp_count(&bench->counts.tatp, call);
}

const struct postgresql_workload postgresql_tatp = {
    .tables = tables, .statements = statements, .kinds = TATP_KINDS, .draw = draw, .take = take};
