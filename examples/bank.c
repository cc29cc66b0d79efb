/* bank.c - transactions: transfers between the accounts of a bank, while a node fails.
 *     remo run -n 4 -- ./bank        Then kill a process, but not that of the owner.
 * All accounts have one owner, so a transfer commits by one call to it. The failed node has made its last
 * transfer completely or not at all: the sum of all accounts stays. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ACCOUNTS 64u
#define BALANCE 100 /* of each account, at first */

struct key {
    uint32_t bank, account; /* the bank, here always 0, selects the owner */
};
struct bank {
    struct remo_node *node;
    struct remo_table *table;
    struct remo_structure *accounts; /* the table's */
    struct remo_tx_space *space;
    struct remo_tx *tx;
    uint32_t owner, from, to;
    int64_t sum;
};

static int open_bank(struct bank *bank) {
    struct remo_channel *root = remo_node_root(bank->node);
    struct remo_table_options table = {.capacity = ACCOUNTS * remo_node_size(bank->node),
                                       .key_bytes_max = sizeof(struct key),
                                       .value_bytes_max = sizeof(int64_t),
                                       .partition_bytes = sizeof(uint32_t)};
    const int64_t balance = BALANCE;
    struct key key = {0};
    int rc = remo_table_open(root, "accounts", &table, &bank->table);
    bank->accounts = remo_table_structure(bank->table);
    struct remo_tx_space_options space = {.structures = &bank->accounts, .structure_count = 1};
    rc = rc ? rc : remo_tx_space_open(root, "bank", &space, &bank->space);
    rc = rc ? rc : remo_tx_open(bank->space, &bank->tx);
    rc = rc ? rc : remo_channel_wait(root, REMO_SECONDS(60));
    bank->owner = remo_table_owner(bank->table, &key, sizeof key);
    for (; rc == 0 && bank->owner == remo_node_rank(bank->node) && key.account < ACCOUNTS; key.account++)
        rc = remo_structure_insert(bank->accounts, &key, sizeof key, &balance, sizeof balance);
    return rc;
}

/* A transaction: move 1. After a conflict it runs again. */
static int transfer(void *ctx, struct remo_tx *tx) {
    const struct bank *bank = ctx;
    struct key from = {.account = bank->from}, to = {.account = bank->to};
    int64_t less = 0, more = 0;
    int rc = remo_tx_read(tx, bank->accounts, &from, sizeof from, &less, sizeof less, NULL);
    rc = rc ? rc : remo_tx_read(tx, bank->accounts, &to, sizeof to, &more, sizeof more, NULL);
    less--;
    more++;
    rc = rc ? rc : remo_tx_update(tx, bank->accounts, &from, sizeof from, &less, sizeof less);
    return rc ? rc : remo_tx_update(tx, bank->accounts, &to, sizeof to, &more, sizeof more);
}

/* A transaction: add up all accounts, at one moment. */
static int add_up(void *ctx, struct remo_tx *tx) {
    struct bank *bank = ctx;
    int64_t balance = 0;
    int rc = 0;
    bank->sum = 0;
    for (struct key key = {0}; rc == 0 && key.account < ACCOUNTS; key.account++) {
        rc = remo_tx_read(tx, bank->accounts, &key, sizeof key, &balance, sizeof balance, NULL);
        bank->sum += balance;
    }
    return rc;
}

/* Make transfers until a node fails, then check the sum. The owner leaves last. */
static int run(struct bank *bank) {
    uint32_t size = remo_node_size(bank->node), rank = remo_node_rank(bank->node), n;
    int rc = 0;
    printf("node %u transfers, node %u is the owner (process %d)\n", rank, bank->owner, getpid());
    fflush(stdout);
    for (n = 0; rc == 0 && remo_node_peer(bank->node, n) == REMO_PEER_UP; n = (n + 1) % size) {
        bank->from = (uint32_t)rand() % ACCOUNTS;
        bank->to = (bank->from + 1 + (uint32_t)rand() % (ACCOUNTS - 1)) % ACCOUNTS;
        rc = remo_tx_run(bank->tx, transfer, bank, REMO_SECONDS(30));
        rc = rc == -ENOENT ? 0 : rc; /* the owner has not inserted the account yet */
    }
    rc = rc ? rc : remo_tx_run(bank->tx, add_up, bank, REMO_SECONDS(30));
    if (rc == 0)
        printf("node %u: the accounts have %lld in all\n", rank, (long long)bank->sum);
    for (n = 0; rank == bank->owner && n < size; n++)
        while (n != rank && remo_node_peer(bank->node, n) == REMO_PEER_UP)
            usleep(1000);
    return rc;
}

int main(void) {
    struct bank bank = {0};
    int rc = remo_node_open(NULL, &bank.node);
    if (rc == 0) {
        rc = open_bank(&bank);
        rc = rc ? rc : run(&bank);
        remo_tx_close(bank.tx);
        remo_tx_space_close(bank.space);
        remo_table_close(bank.table);
        remo_node_close(bank.node);
    }
    if (rc != 0)
        fprintf(stderr, "bank: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
