/* postgresql_smallbank.c - the transactions of SmallBank on PostgreSQL (postgresql.h). Those with several
 * statements are functions of the server. They lock all rows that they read before they use them: savings
 * first, then checking accounts by customer, so that no two of them wait for each other. */
#include "bench/peers/postgresql.h"

#include <stdio.h>

#include "base/bits.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define PAYMENT TEXT(SMALLBANK_PAYMENT)
#define CHECK TEXT(SMALLBANK_CHECK)
#define PENALTY TEXT(SMALLBANK_PENALTY)
#define DEPOSIT TEXT(SMALLBANK_DEPOSIT)
#define SAVING TEXT(SMALLBANK_SAVING)

static size_t rows(uint64_t key, char *ret_lines, size_t cap) {
    return (size_t)snprintf(ret_lines, cap, "%llu\t%d\n", (unsigned long long)key, SMALLBANK_INITIAL);
}

static const struct postgresql_table tables[] = {
    {"savings", "customer bigint, balance bigint", "customer", NULL, rows},
    {"checking", "customer bigint, balance bigint", "customer", NULL, rows},
    {0}};

static const char functions[] =
    "CREATE FUNCTION amalgamate(a bigint, b bigint) RETURNS bigint LANGUAGE plpgsql AS $$ "
    "DECLARE s bigint; c bigint; BEGIN "
    "SELECT balance INTO s FROM savings WHERE customer = a FOR UPDATE; "
    "PERFORM FROM checking WHERE customer IN (a, b) ORDER BY customer FOR UPDATE; "
    "SELECT balance INTO c FROM checking WHERE customer = a; "
    "UPDATE savings SET balance = 0 WHERE customer = a; "
    "UPDATE checking SET balance = 0 WHERE customer = a; "
    "UPDATE checking SET balance = balance + s + c WHERE customer = b; "
    "RETURN 0; END $$;"
    "CREATE FUNCTION send_payment(a bigint, b bigint) RETURNS bigint LANGUAGE plpgsql AS $$ "
    "DECLARE c bigint; BEGIN "
    "PERFORM FROM checking WHERE customer IN (a, b) ORDER BY customer FOR UPDATE; "
    "SELECT balance INTO c FROM checking WHERE customer = a; "
    "IF c < " PAYMENT " THEN RETURN 0; END IF; "
    "UPDATE checking SET balance = balance - " PAYMENT " WHERE customer = a; "
    "UPDATE checking SET balance = balance + " PAYMENT " WHERE customer = b; "
    "RETURN 1; END $$;"
    "CREATE FUNCTION write_check(a bigint) RETURNS bigint LANGUAGE plpgsql AS $$ "
    "DECLARE s bigint; c bigint; amount bigint := " CHECK "; BEGIN "
    "SELECT balance INTO s FROM savings WHERE customer = a FOR UPDATE; "
    "SELECT balance INTO c FROM checking WHERE customer = a FOR UPDATE; "
    "IF s + c < amount THEN amount := amount + " PENALTY "; END IF; "
    "UPDATE checking SET balance = balance - amount WHERE customer = a; "
    "RETURN amount; END $$;";

static const char *const statements[SMALLBANK_KINDS] = {
    [SMALLBANK_AMALGAMATE] = "SELECT amalgamate($1, $2)",
    [SMALLBANK_BALANCE] = "SELECT s.balance, c.balance FROM savings s, checking c "
                          "WHERE s.customer = $1 AND c.customer = $1",
    [SMALLBANK_DEPOSIT_CHECKING] = "UPDATE checking SET balance = balance + " DEPOSIT " WHERE customer = $1",
    [SMALLBANK_SEND_PAYMENT] = "SELECT send_payment($1, $2)",
    [SMALLBANK_TRANSACT_SAVINGS] = "UPDATE savings SET balance = balance + " SAVING " WHERE customer = $1",
    [SMALLBANK_WRITE_CHECK] = "SELECT write_check($1)",
};

static unsigned draw(struct transactions *bench, unsigned i, struct postgresql_parameters *ret_parameters) {
    struct smallbank_call *call = &bench->calls[i].smallbank;
    *call = smallbank_draw(bench->keys, &bench->random);
    postgresql_add(ret_parameters, (int64_t)call->customers[0]);
    if (call->kind == SMALLBANK_AMALGAMATE || call->kind == SMALLBANK_SEND_PAYMENT)
        postgresql_add(ret_parameters, (int64_t)call->customers[1]);
    return call->kind;
}

static void take(struct transactions *bench, unsigned i, const PGresult *result) {
    struct smallbank_call *call = &bench->calls[i].smallbank;
    bool is_update = call->kind == SMALLBANK_DEPOSIT_CHECKING || call->kind == SMALLBANK_TRANSACT_SAVINGS;
    if (is_update && PQcmdTuples((PGresult *)(uintptr_t)result)[0] != '1')
        processes_fail("the benchmark is wrong: customer %llu has no account",
                       (unsigned long long)call->customers[0]);
    int64_t value = is_update ? 0 : postgresql_integer(result, 0, sizeof value);
    call->is_refused = call->kind == SMALLBANK_SEND_PAYMENT && value == 0;
    switch (call->kind) {
    case SMALLBANK_DEPOSIT_CHECKING: call->added = SMALLBANK_DEPOSIT; break;
    case SMALLBANK_TRANSACT_SAVINGS: call->added = SMALLBANK_SAVING; break;
    case SMALLBANK_WRITE_CHECK: call->added = -value; break;
    default: call->added = 0;
    }
    smallbank_count(&bench->counts.smallbank, call);
}

const struct postgresql_workload postgresql_smallbank = {.tables = tables,
                                                         .functions = functions,
                                                         .statements = statements,
                                                         .kinds = SMALLBANK_KINDS,
                                                         .draw = draw,
                                                         .take = take};
