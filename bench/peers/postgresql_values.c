/* postgresql_values.c - parameters and results of statements of PostgreSQL (postgresql.h). Parameters are
 * texts; results are binary. */
#include "bench/peers/postgresql.h"

#include <stdio.h>

void postgresql_add(struct postgresql_parameters *parameters, int64_t value) {
    snprintf(parameters->texts[parameters->count++], POSTGRESQL_TEXT_BYTES, "%lld", (long long)value);
}

/* Integers arrive with their most significant byte first. */
int64_t postgresql_integer(const PGresult *result, int column, int bytes) {
    const unsigned char *at = (const unsigned char *)PQgetvalue(result, 0, column);
    uint64_t value = 0;
    if (PQntuples(result) < 1 || PQgetlength(result, 0, column) != bytes)
        processes_fail("the benchmark is wrong: PostgreSQL returned no integer of %d bytes", bytes);
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return (int64_t)value;
}

void postgresql_add_text(struct postgresql_parameters *parameters, const char *text, size_t count) {
    snprintf(parameters->texts[parameters->count++], POSTGRESQL_TEXT_BYTES, "%.*s", (int)count, text);
}
