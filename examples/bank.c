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
#define KEY(account) ((uint64_t)(account) << 32) /* the first 4 bytes, 0 in all keys, select the owner */

struct bank {
    struct remo_node *node;
    struct remo_table *table;
    struct remo_structure *accounts; /* the table's */
    struct remo_tx_space *space;
    struct remo_tx *tx;
    uint32_t owner;
    int64_t sum;
};

static int open_bank(struct bank *bank) {
    struct remo_channel *root = remo_node_root(bank->node);
    struct remo_table_options table = {.capacity = ACCOUNTS * REMO_NODES_MAX, .partition_bytes = 4};
    uint64_t key = KEY(0);
    int rc = remo_table_open(root, "accounts", &table, &bank->table);
    bank->accounts = remo_table_structure(bank->table);
    struct remo_tx_space_options space = {.structures = &bank->accounts, .structure_count = 1};
    rc = rc ? rc : remo_tx_space_open(root, "bank", &space, &bank->space);
    rc = rc ? rc : remo_tx_open(bank->space, &bank->tx);
    rc = rc ? rc : remo_channel_wait(root, REMO_SECONDS(60));
    bank->owner = remo_table_owner(bank->table, &key, sizeof key);
    for (; rc == 0 && bank->owner == remo_node_rank(bank->node) && key < KEY(ACCOUNTS); key += KEY(1))
        rc = remo_structure_insert(bank->accounts, &key, sizeof key, &(int64_t){100}, sizeof(int64_t));
    return rc;
}

/* A transaction: move 1 from one account to another. After a conflict it runs again. */
static int transfer(void *ctx, struct remo_tx *tx) {
    struct remo_structure *accounts = ((struct bank *)ctx)->accounts;
    uint32_t from = (uint32_t)rand() % ACCOUNTS, further = 1 + (uint32_t)rand() % (ACCOUNTS - 1);
    uint64_t keys[2] = {KEY(from), KEY((from + further) % ACCOUNTS)};
    int64_t balance = 0;
    int rc = 0;
    for (int i = 0; rc == 0 && i < 2; i++) {
        rc = remo_tx_read(tx, accounts, &keys[i], sizeof keys[i], &balance, sizeof balance, NULL);
        balance += i == 0 ? -1 : 1;
        rc = rc ? rc : remo_tx_update(tx, accounts, &keys[i], sizeof keys[i], &balance, sizeof balance);
    }
    return rc;
}

/* A transaction: add up all accounts, at one moment. */
static int add_up(void *ctx, struct remo_tx *tx) {
    struct bank *bank = ctx;
    int64_t balance = 0;
    int rc = 0;
    bank->sum = 0;
    for (uint64_t key = KEY(0); rc == 0 && key < KEY(ACCOUNTS); key += KEY(1)) {
        rc = remo_tx_read(tx, bank->accounts, &key, sizeof key, &balance, sizeof balance, NULL);
        bank->sum += balance;
    }
    return rc;
}

/* Make transfers until a node fails, then check the sum. */
static int run(struct bank *bank) {
    uint32_t size = remo_node_size(bank->node), rank = remo_node_rank(bank->node);
    int rc = 0;
    printf("node %u transfers, node %u is the owner (process %d)\n", rank, bank->owner, getpid());
    for (uint32_t n = 0; rc == 0 && remo_node_peer(bank->node, n) == REMO_PEER_UP; n = (n + 1) % size) {
        rc = remo_tx_run(bank->tx, transfer, bank, REMO_SECONDS(30));
        rc = rc == -ENOENT ? 0 : rc; /* the owner has not inserted the account yet */
    }
    rc = rc ? rc : remo_tx_run(bank->tx, add_up, bank, REMO_SECONDS(30));
    if (rc == 0)
        printf("node %u: the accounts have %lld in all\n", rank, (long long)bank->sum);
    for (uint32_t n = 0; rank == bank->owner && n < size; n++) /* it leaves last */
        while (n != rank && remo_node_peer(bank->node, n) == REMO_PEER_UP)
            usleep(1000);
    return rc;
}

int main(void) {
    struct bank bank = {0};
    int rc = remo_node_open(NULL, &bank.node);
    setlinebuf(stdout);
    rc = rc ? rc : open_bank(&bank);
    rc = rc ? rc : run(&bank);
    if (rc != 0)
        fprintf(stderr, "bank: %s: %s\n", remo_error_name(rc), remo_last_error());
    remo_tx_close(bank.tx);
    remo_tx_space_close(bank.space);
    remo_table_close(bank.table);
    remo_node_close(bank.node);
    return rc != 0;
}
