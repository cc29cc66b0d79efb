/* outbox.c - the outbox pattern: a transaction changes a row, and pushes a message about it into a queue.
 *     remo run -n 3 -- ./outbox        At least 2 nodes.
 * The last node pops the messages, and applies them to a copy of the row: none is lost, applied twice, or
 * sent without its change. Each commit is one call. The nodes sleep while the queue is empty, or full. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>

#define CHANGES 1000u                    /* of each node but the last */
#define CAPACITY 256u                    /* of the queue */
#define KEY(row) ((uint64_t)(row) << 32) /* the first 4 bytes, 0 in all keys, select the owner */

enum row { SUM, COPY, ROWS };

struct outbox {
    struct remo_table *table;
    struct remo_tx_queue *queue;
    struct remo_structure *structures[2]; /* of the table, of the queue */
    struct remo_tx_space *space;
    struct remo_tx *tx;
    struct remo_barrier *all;
    uint64_t amount; /* of the next change, or of the last message */
};

static int open_all(struct outbox *o, struct remo_channel *root) {
    const struct remo_table_options table = {.capacity = ROWS * REMO_NODES_MAX, .partition_bytes = 4};
    int rc = remo_table_open(root, "rows", &table, &o->table);
    const struct remo_tx_queue_options queue = {.owner = remo_table_owner(o->table, &(uint64_t){0}, 8),
                                                .capacity = CAPACITY};
    rc = rc ? rc : remo_tx_queue_open(root, "messages", &queue, &o->queue);
    o->structures[0] = remo_table_structure(o->table);
    o->structures[1] = remo_tx_queue_structure(o->queue);
    const struct remo_tx_space_options space = {.structures = o->structures, .structure_count = 2};
    rc = rc ? rc : remo_tx_space_open(root, "outbox", &space, &o->space);
    rc = rc ? rc : remo_tx_open(o->space, &o->tx);
    rc = rc ? rc : remo_barrier_open(root, "all", NULL, &o->all);
    return rc ? rc : remo_channel_wait(root, REMO_SECONDS(60));
}

/* Add an amount to a row; an absent row is 0. */
static int add(struct outbox *o, enum row row, uint64_t amount) {
    uint64_t key = KEY(row), sum = 0;
    int rc = remo_tx_read(o->tx, o->structures[0], &key, sizeof key, &sum, sizeof sum, NULL);
    sum += amount;
    rc = rc == -ENOENT ? 0 : rc;
    return rc ? rc : remo_tx_put(o->tx, o->structures[0], &key, sizeof key, &sum, sizeof sum);
}

/* A transaction: change the row, and push a message, when there is room for it. */
static int change(void *ctx, struct remo_tx *tx) {
    struct outbox *o = ctx;
    uint64_t count = 0;
    int rc = remo_tx_queue_count(tx, o->queue, &count);
    if (rc == 0 && count == CAPACITY)
        return REMO_TX_WAIT; /* the function runs again when the queue has changed */
    rc = rc ? rc : add(o, SUM, o->amount);
    return rc ? rc : remo_tx_queue_push(tx, o->queue, &o->amount, sizeof o->amount);
}

/* A transaction: pop a message, when there is one, and apply it to the copy. */
static int apply(void *ctx, struct remo_tx *tx) {
    struct outbox *o = ctx;
    int rc = remo_tx_queue_pop(tx, o->queue, &o->amount, sizeof o->amount, NULL);
    return rc == -ENOENT ? REMO_TX_WAIT : rc ? rc : add(o, COPY, o->amount);
}

/* Make the changes of this node, or apply all messages. */
static int work(struct outbox *o, const struct remo_node *node, uint32_t last) {
    bool is_last = remo_node_rank(node) == last;
    int rc = 0;
    for (uint32_t left = is_last ? last * CHANGES : CHANGES; rc == 0 && left > 0; left--) {
        o->amount = left;
        rc = remo_tx_run(o->tx, is_last ? apply : change, o, REMO_SECONDS(30));
    }
    for (uint64_t row = SUM; rc == 0 && is_last && row < ROWS; row++) {
        uint64_t sum = 0, key = KEY(row);
        rc = remo_structure_lookup(o->structures[0], &key, sizeof key, &sum, sizeof sum, NULL, NULL);
        printf("after %u changes the %s has %llu\n", last * CHANGES, row == SUM ? "row" : "copy",
               (unsigned long long)sum);
    }
    return rc ? rc : remo_barrier_wait(o->all, REMO_FOREVER); /* then all may close */
}

int main(void) {
    struct outbox o = {0};
    struct remo_node *node = NULL;
    int rc = remo_node_open(NULL, &node);
    rc = rc ? rc : open_all(&o, remo_node_root(node));
    rc = rc ? rc : work(&o, node, remo_node_size(node) - 1);
    if (rc != 0)
        fprintf(stderr, "outbox: %s: %s\n", remo_error_name(rc), remo_last_error());
    remo_tx_close(o.tx);
    remo_tx_space_close(o.space);
    remo_barrier_close(o.all);
    remo_tx_queue_close(o.queue);
    remo_table_close(o.table);
    remo_node_close(node);
    return rc != 0;
}
