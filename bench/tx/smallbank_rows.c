/* smallbank_rows.c - the transactions of SmallBank on any store (smallbank_rows.h). Each body reads all rows
 * before it changes one, and notes in the transaction what it adds to the sum of all accounts. */
#include "bench/tx/smallbank_rows.h"

#define HOT_CUSTOMERS_PERCENT 4u
#define HOT_ACCESSES_PERCENT 90u

/* An attempt of a transaction. */
struct attempt {
    struct smallbank_call *call;
    const struct smallbank_store *store;
    void *tx;
};

static int read_rows(const struct attempt *attempt, const struct smallbank_account *accounts, uint32_t count,
                     struct smallbank_row *ret_rows) {
    int rc = attempt->store->read(attempt->tx, accounts, count, ret_rows);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (ret_rows[i].customer != accounts[i].customer)
            rc = attempt->store->fail(accounts[i].customer, ret_rows[i].customer);
    return rc;
}

static int read_row(const struct attempt *attempt, enum smallbank_table table,
                    struct smallbank_row *ret_row) {
    const struct smallbank_account account = {table, attempt->call->customers[0]};
    return read_rows(attempt, &account, 1, ret_row);
}

/* Add an amount to the balance of a row that was read. */
static int add_to(const struct attempt *attempt, enum smallbank_table table, struct smallbank_row *row,
                  int64_t amount) {
    row->balance += amount;
    attempt->call->added += amount;
    return attempt->store->update(attempt->tx, table, row);
}

/* Read both accounts of the first customer. */
static int read_both(const struct attempt *attempt, struct smallbank_row ret_rows[SMALLBANK_TABLES]) {
    const uint64_t customer = attempt->call->customers[0];
    const struct smallbank_account accounts[] = {[SMALLBANK_SAVINGS] = {SMALLBANK_SAVINGS, customer},
                                                 [SMALLBANK_CHECKING] = {SMALLBANK_CHECKING, customer}};
    return read_rows(attempt, accounts, SMALLBANK_TABLES, ret_rows);
}

static int amalgamate(const struct attempt *attempt) {
    const uint64_t *customers = attempt->call->customers;
    const struct smallbank_account accounts[] = {{SMALLBANK_SAVINGS, customers[0]},
                                                 {SMALLBANK_CHECKING, customers[0]},
                                                 {SMALLBANK_CHECKING, customers[1]}};
    struct smallbank_row rows[3];
    int rc = read_rows(attempt, accounts, 3, rows);
    if (rc != 0)
        return rc;
    int64_t all = rows[0].balance + rows[1].balance;
    rc = add_to(attempt, SMALLBANK_SAVINGS, &rows[0], -rows[0].balance);
    if (rc == 0)
        rc = add_to(attempt, SMALLBANK_CHECKING, &rows[1], -rows[1].balance);
    return rc == 0 ? add_to(attempt, SMALLBANK_CHECKING, &rows[2], all) : rc;
}

static int balance(const struct attempt *attempt) {
    struct smallbank_row rows[SMALLBANK_TABLES];
    return read_both(attempt, rows);
}

static int deposit_checking(const struct attempt *attempt) {
    struct smallbank_row row;
    int rc = read_row(attempt, SMALLBANK_CHECKING, &row);
    return rc == 0 ? add_to(attempt, SMALLBANK_CHECKING, &row, SMALLBANK_DEPOSIT) : rc;
}

static int send_payment(const struct attempt *attempt) {
    const uint64_t *customers = attempt->call->customers;
    const struct smallbank_account accounts[] = {{SMALLBANK_CHECKING, customers[0]},
                                                 {SMALLBANK_CHECKING, customers[1]}};
    struct smallbank_row rows[2];
    int rc = read_rows(attempt, accounts, 2, rows);
    attempt->call->is_refused = rc == 0 && rows[0].balance < SMALLBANK_PAYMENT;
    if (rc != 0 || attempt->call->is_refused)
        return rc;
    rc = add_to(attempt, SMALLBANK_CHECKING, &rows[0], -SMALLBANK_PAYMENT);
    return rc == 0 ? add_to(attempt, SMALLBANK_CHECKING, &rows[1], SMALLBANK_PAYMENT) : rc;
}

static int transact_savings(const struct attempt *attempt) {
    struct smallbank_row row;
    int rc = read_row(attempt, SMALLBANK_SAVINGS, &row);
    return rc == 0 ? add_to(attempt, SMALLBANK_SAVINGS, &row, SMALLBANK_SAVING) : rc;
}

static int write_check(const struct attempt *attempt) {
    struct smallbank_row rows[SMALLBANK_TABLES];
    int rc = read_both(attempt, rows);
    if (rc != 0)
        return rc;
    bool is_covered = rows[SMALLBANK_SAVINGS].balance + rows[SMALLBANK_CHECKING].balance >= SMALLBANK_CHECK;
    return add_to(attempt, SMALLBANK_CHECKING, &rows[SMALLBANK_CHECKING],
                  is_covered ? -SMALLBANK_CHECK : -SMALLBANK_CHECK - SMALLBANK_PENALTY);
}

static const struct kind {
    uint32_t percent;
    bool only_reads;
    int (*body)(const struct attempt *attempt);
} kinds[SMALLBANK_KINDS] = {
    [SMALLBANK_AMALGAMATE] = {15, false, amalgamate},
    [SMALLBANK_BALANCE] = {15, true, balance},
    [SMALLBANK_DEPOSIT_CHECKING] = {15, false, deposit_checking},
    [SMALLBANK_SEND_PAYMENT] = {25, false, send_payment},
    [SMALLBANK_TRANSACT_SAVINGS] = {15, false, transact_savings},
    [SMALLBANK_WRITE_CHECK] = {15, false, write_check},
};

static enum smallbank_kind draw_kind(struct remo__random *random) {
    uint64_t percent = remo__random_below(random, 100);
    uint32_t kind = 0;
    while (percent >= kinds[kind].percent)
        percent -= kinds[kind++].percent;
    return kind;
}

static uint64_t draw_customer(uint64_t customers, struct remo__random *random) {
    uint64_t hot = customers * HOT_CUSTOMERS_PERCENT / 100;
    bool is_hot = hot > 0 && remo__random_below(random, 100) < HOT_ACCESSES_PERCENT;
    return remo__random_below(random, is_hot ? hot : customers);
}

struct smallbank_call smallbank_draw(uint64_t customers, struct remo__random *random) {
    enum smallbank_kind kind = draw_kind(random);
    struct smallbank_call call = {.kind = kind, .only_reads = kinds[kind].only_reads};
    call.customers[0] = draw_customer(customers, random);
    call.customers[1] = draw_customer(customers, random);
    if (call.customers[1] == call.customers[0])
        call.customers[1] = (call.customers[1] + 1) % customers;
    return call;
}

int smallbank_execute(struct smallbank_call *call, const struct smallbank_store *store, void *tx) {
    struct attempt attempt = {call, store, tx};
    call->is_refused = false;
    call->added = 0;
    return kinds[call->kind].body(&attempt);
}

void smallbank_count(struct smallbank_counts *counts, const struct smallbank_call *call) {
    counts->tried++;
    counts->refused += call->is_refused;
    counts->added += call->added;
}

void smallbank_add_counts(struct smallbank_counts *to, const struct smallbank_counts *counts) {
    to->tried += counts->tried;
    to->refused += counts->refused;
    to->repeated += counts->repeated;
    to->added += counts->added;
}

int64_t smallbank_sum(uint64_t customers, const struct smallbank_counts *counts) {
    return (int64_t)customers * SMALLBANK_TABLES * SMALLBANK_INITIAL + counts->added;
}
