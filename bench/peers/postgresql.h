/* postgresql.h - the parts of TATP and SmallBank that postgresql.c runs.
 * A function that fails prints a sentence, and ends the process. */
#pragma once

#include <libpq-fe.h>
#include <stdint.h>

#include "bench/peers/transactions.h"

#define POSTGRESQL_PARAMETERS_MAX 5u
#define POSTGRESQL_TEXT_BYTES 24u

/* The parameters of a statement, as texts. */
struct postgresql_parameters {
    char texts[POSTGRESQL_PARAMETERS_MAX][POSTGRESQL_TEXT_BYTES];
    unsigned count;
};

/* A table, and the generator of its rows. */
struct postgresql_table {
    const char *name, *columns, *keys; /* keys: its primary key */
    const char *index;                 /* columns of another index; NULL: none */
    /* Write the rows of a key, from 0, as lines of COPY. Returns their size in bytes. */
    size_t (*rows)(uint64_t key, char *ret_lines, size_t cap);
};

/* A benchmark. */
struct postgresql_workload {
    const struct postgresql_table *tables; /* the name of the one after the last is NULL */
    const char *functions;                 /* that statements call; NULL: none */
    const char *const *statements;         /* by kind, each a transaction */
    unsigned kinds;
    /* Draw transaction `i` of the window, and add its parameters. Returns its kind. */
    unsigned (*draw)(struct transactions *bench, unsigned i, struct postgresql_parameters *ret_parameters);
    /* Take the result of its statement, and count it. */
    void (*take)(struct transactions *bench, unsigned i, const PGresult *result);
};

extern const struct postgresql_workload postgresql_tatp, postgresql_smallbank;

void postgresql_add(struct postgresql_parameters *parameters, int64_t value);
void postgresql_add_text(struct postgresql_parameters *parameters, const char *text, size_t count);
/* Return an integer of the first row, of `bytes` bytes. */
int64_t postgresql_integer(const PGresult *result, int column, int bytes);
