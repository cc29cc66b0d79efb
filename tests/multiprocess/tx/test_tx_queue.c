/* test_tx_queue.c - the queue for transactions between real nodes: order, each element once, a full and an
 * empty queue, elements of every length, pushes and pops of one transaction, conflicts, the cost of each
 * call, work that moves between a table and a queue, wrong arguments, the failure of a node. */
#include <stdlib.h>

#include "systems/tx/table.h"
#include "tx_place.h"

#define THREADS 2u
#define ELEMENTS 400u /* of each producer */
#define PRODUCERS 4u
#define ROWS 4u
#define TOKENS 40u

static struct shared {
    _Atomic uint32_t popped[PRODUCERS][ELEMENTS], popped_count;
    _Atomic uint32_t moved[2][2]; /* tokens: from a row, to a row; by the owner of the row */
} * shared;

/* ---- open, one push, one pop ---- */

/* Open a queue with these options, or with the default ones. */
static int open_place(struct remo_node *node, const struct remo_tx_queue_options *options,
                      struct place *ret_place) {
    static const struct remo_tx_queue_options none = {0};
    return open_objects(node, NULL, options ? options : &none, ret_place);
}

/* A transaction of one thread, and its numbers. */
struct worker {
    struct place place;
    uint32_t number;
    uint64_t element, row, count;
    bool is_empty, is_moved;
    int result;
};

static int push_word(const struct place *place, uint64_t element) {
    return remo_tx_queue_push(place->tx, place->queue, &element, sizeof element);
}

static int pop_word(const struct place *place, uint64_t *ret_element) {
    size_t bytes = 0;
    int rc = remo_tx_queue_pop(place->tx, place->queue, ret_element, sizeof *ret_element, &bytes);
    return rc == 0 && bytes != sizeof *ret_element ? -EBADMSG : rc;
}

static int push_body(void *ctx, struct remo_tx *tx) {
    struct worker *worker = ctx;
    (void)tx;
    return push_word(&worker->place, worker->element);
}

static int pop_body(void *ctx, struct remo_tx *tx) {
    struct worker *worker = ctx;
    (void)tx;
    int rc = pop_word(&worker->place, &worker->element);
    worker->is_empty = rc == -ENOENT;
    return worker->is_empty ? 0 : rc;
}

static int count_body(void *ctx, struct remo_tx *tx) {
    struct worker *worker = ctx;
    return remo_tx_queue_count(tx, worker->place.queue, &worker->count);
}

static int run(struct worker *worker, int (*body)(void *ctx, struct remo_tx *tx)) {
    return remo_tx_run(worker->place.tx, body, worker, LONG_TIME);
}

/* Push the element, when there is room. */
static int push_when_room(struct worker *worker, uint64_t element) {
    int rc;
    worker->element = element;
    while ((rc = run(worker, push_body)) == -ENOSPC)
        cluster_sleep_ms(1);
    return rc;
}

static int expect_count(const struct place *place, uint64_t count) {
    struct worker worker = {.place = *place};
    CHECK_OK(run(&worker, count_body));
    CHECK_EQUAL(worker.count, count);
    return 0;
}

static int expect_element(const struct place *place, uint64_t element) {
    struct worker worker = {.place = *place};
    CHECK_OK(run(&worker, pop_body));
    CHECK(!worker.is_empty);
    CHECK_EQUAL(worker.element, element);
    return 0;
}

static int expect_empty(const struct place *place) {
    struct worker worker = {.place = *place};
    CHECK_OK(run(&worker, pop_body));
    CHECK(worker.is_empty);
    return 0;
}

/* ---- order ---- */

/* Node 1 pushes, node 2 pops; node 0 owns the queue. Then node 0 pushes, and node 1 pops. */
static int order(struct remo_node *node, void *ctx) {
    const struct remo_tx_queue_options options = {.capacity = 7};
    struct worker worker = {0};
    (void)ctx;
    CHECK(open_place(node, &options, &worker.place) == 0);
    for (uint32_t round = 0; round < 2; round++) {
        bool pushes = remo_node_rank(node) == 1 - round, pops = remo_node_rank(node) == 2 - round;
        for (uint64_t i = 1; i <= ELEMENTS && pushes; i++)
            CHECK_OK(push_when_room(&worker, i));
        for (uint64_t i = 1; i <= ELEMENTS && pops; i += !worker.is_empty) {
            CHECK_OK(run(&worker, pop_body));
            CHECK(worker.is_empty || worker.element == i);
        }
        CHECK_OK(cluster_meet());
    }
    CHECK(expect_count(&worker.place, 0) == 0);
    return close_place(&worker.place);
}

/* ---- several producers and consumers ---- */

static int produce(struct worker *worker) {
    for (uint64_t i = 0; i < ELEMENTS; i++)
        CHECK_OK(push_when_room(worker, (uint64_t)worker->number << 32 | i));
    return 0;
}

/* The elements of each producer arrive in order. */
static int consume(struct worker *worker) {
    uint64_t next[PRODUCERS] = {0};
    while (atomic_load(&shared->popped_count) < PRODUCERS * ELEMENTS) {
        CHECK_OK(run(worker, pop_body));
        if (worker->is_empty)
            continue;
        uint64_t producer = worker->element >> 32, i = worker->element & UINT32_MAX;
        CHECK(producer < PRODUCERS && i < ELEMENTS && i >= next[producer]);
        next[producer] = i + 1;
        CHECK_EQUAL(atomic_fetch_add(&shared->popped[producer][i], 1), 0);
        atomic_fetch_add(&shared->popped_count, 1);
    }
    return 0;
}

static void *run_producer(void *ctx) {
    struct worker *worker = ctx;
    worker->result = produce(worker);
    return NULL;
}

static void *run_consumer(void *ctx) {
    struct worker *worker = ctx;
    worker->result = consume(worker);
    return NULL;
}

/* Two threads of each node: nodes 0 and 1 push, nodes 1 and 2 pop. */
static int crowd(struct remo_node *node, void *ctx) {
    const struct remo_tx_queue_options options = {.capacity = 16, .owner = 1};
    struct place place;
    struct worker workers[2 * THREADS];
    pthread_t ids[2 * THREADS];
    uint32_t rank = remo_node_rank(node), count = 0;
    (void)ctx;
    CHECK(open_place(node, &options, &place) == 0);
    for (uint32_t i = 0; i < 2 * THREADS; i++) {
        bool pushes = i < THREADS;
        if (pushes ? rank == 2 : rank == 0)
            continue;
        struct worker *worker = &workers[count];
        *worker = (struct worker){.place = place, .number = rank * THREADS + i};
        CHECK_OK(remo_tx_open(place.space, &worker->place.tx));
        CHECK_EQUAL(pthread_create(&ids[count++], NULL, pushes ? run_producer : run_consumer, worker), 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(ids[i], NULL);
        CHECK_EQUAL(workers[i].result, 0);
        remo_tx_close(workers[i].place.tx);
    }
    CHECK_OK(cluster_meet());
    CHECK(expect_empty(&place) == 0);
    CHECK_EQUAL(atomic_load(&shared->popped_count), PRODUCERS * ELEMENTS);
    return close_place(&place);
}

/* ---- a full queue, an empty queue ---- */

#define CAPACITY 3u

/* One lap: fill the queue, which is empty, and empty it. */
static int fill_and_empty(const struct place *place, uint64_t first) {
    struct worker worker = {.place = *place};
    for (uint64_t i = 0; i < CAPACITY; i++) {
        worker.element = first + i;
        CHECK_OK(run(&worker, push_body));
    }
    CHECK(expect_count(place, CAPACITY) == 0);
    CHECK_SENTENCE(run(&worker, push_body), -ENOSPC, "pop elements");
    CHECK_OK(remo_tx_begin(place->tx)); /* the element that it pops has its slot until the end */
    CHECK_OK(pop_word(place, &worker.element));
    CHECK_OK(push_word(place, 1));
    CHECK_CODE(remo_tx_commit(place->tx), -ENOSPC);
    for (uint64_t i = 0; i < CAPACITY; i++)
        CHECK(expect_element(place, first + i) == 0);
    return expect_empty(place);
}

static int full(struct remo_node *node, void *ctx) {
    const struct remo_tx_queue_options options = {.capacity = CAPACITY};
    struct place place;
    (void)ctx;
    CHECK(open_place(node, &options, &place) == 0);
    for (uint32_t rank = 0; rank < remo_node_size(node); rank++) {
        for (uint64_t lap = 0; lap < 5 && remo_node_rank(node) == rank; lap++)
            CHECK(fill_and_empty(&place, 10 * lap) == 0);
        CHECK_OK(cluster_meet());
    }
    return close_place(&place);
}

/* The table does not grow if only the queue has no room. */
static int full_beside_table(struct remo_node *node, void *ctx) {
    const struct remo_tx_queue_options options = {.capacity = 1};
    struct worker worker = {0};
    struct place *place = &worker.place;
    (void)ctx;
    CHECK(open_place(node, &options, place) == 0);
    CHECK(remo_node_rank(node) != 1 || run(&worker, push_body) == 0);
    for (uint32_t i = 0; i < 10 && remo_node_rank(node) == 1; i++) {
        uint64_t row = key_of(place, 0, i);
        CHECK_OK(remo_tx_begin(place->tx));
        CHECK_OK(remo_tx_put(place->tx, place->structure, &row, sizeof row, &row, sizeof row));
        CHECK_OK(push_word(place, 1));
        CHECK_CODE(remo_tx_commit(place->tx), -ENOSPC);
    }
    CHECK_OK(cluster_meet());
    CHECK_EQUAL((uint32_t)atomic_load(&place->table->extent), place->table->buckets);
    return close_place(place);
}

/* ---- elements of every length ---- */

static int one_size(const struct place *place, size_t bytes) {
    unsigned char value[REMO_TX_QUEUE_VALUE_BYTES_MAX], found[REMO_TX_QUEUE_VALUE_BYTES_MAX];
    size_t found_bytes = 12345;
    for (size_t i = 0; i < bytes; i++)
        value[i] = (unsigned char)(bytes + 7 * i);
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(remo_tx_queue_push(place->tx, place->queue, value, bytes));
    CHECK_OK(remo_tx_commit(place->tx));
    CHECK_OK(remo_tx_begin(place->tx));
    if (bytes > 0) {
        CHECK_SENTENCE(remo_tx_queue_pop(place->tx, place->queue, found, bytes - 1, &found_bytes), -EMSGSIZE,
                       "the first element has");
        CHECK_EQUAL(found_bytes, bytes);
        CHECK_OK(remo_tx_commit(place->tx)); /* it stays in the queue */
        CHECK_OK(remo_tx_begin(place->tx));
    }
    CHECK_OK(remo_tx_queue_pop(place->tx, place->queue, found, sizeof found, &found_bytes));
    CHECK_EQUAL(found_bytes, bytes);
    CHECK(memcmp(found, value, bytes) == 0);
    CHECK_OK(remo_tx_commit(place->tx));
    return 0;
}

/* `ctx`: the value_bytes_max. */
static int sizes(struct remo_node *node, void *ctx) {
    const struct remo_tx_queue_options options = {.value_bytes_max = (uint32_t)(uintptr_t)ctx, .capacity = 2};
    struct place place;
    char value[8] = {0};
    CHECK(open_place(node, &options, &place) == 0);
    for (size_t bytes = 0; bytes <= options.value_bytes_max && remo_node_rank(node) == 1;
         bytes += bytes < 70 ? 1 : 1945)
        CHECK(one_size(&place, bytes) == 0);
    CHECK_OK(remo_tx_begin(place.tx));
    CHECK_SENTENCE(remo_tx_queue_push(place.tx, place.queue, value, options.value_bytes_max + 1), -EMSGSIZE,
                   "value_bytes_max");
    CHECK_OK(remo_tx_commit(place.tx));
    return close_place(&place);
}

/* ---- several pushes and pops of one transaction ---- */

static int together(const struct place *place) {
    uint64_t element = 0, count = 0;
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_CODE(pop_word(place, &element), -ENOENT);
    CHECK_OK(push_word(place, 1));
    CHECK_OK(push_word(place, 2));
    CHECK_OK(push_word(place, 3));
    CHECK_OK(pop_word(place, &element));
    CHECK_EQUAL(element, 1);
    CHECK_OK(remo_tx_queue_count(place->tx, place->queue, &count));
    CHECK_EQUAL(count, 2);
    CHECK_OK(remo_tx_commit(place->tx));

    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(pop_word(place, &element));
    CHECK_EQUAL(element, 2);
    CHECK_OK(push_word(place, 4));
    remo_tx_abort(place->tx); /* this node now expects element 3 first */

    CHECK_OK(remo_tx_begin(place->tx));
    for (uint64_t i = 2; i <= 3; i++) {
        CHECK_OK(pop_word(place, &element));
        CHECK_EQUAL(element, i);
    }
    CHECK_CODE(pop_word(place, &element), -ENOENT);
    CHECK_OK(push_word(place, 5));
    CHECK_OK(pop_word(place, &element));
    CHECK_EQUAL(element, 5);
    CHECK_CODE(pop_word(place, &element), -ENOENT);
    CHECK_OK(remo_tx_commit(place->tx));
    return expect_count(place, 0);
}

static int within(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    for (uint32_t rank = 0; rank < remo_node_size(node); rank++) {
        if (remo_node_rank(node) == rank)
            CHECK(together(&place) == 0);
        CHECK_OK(cluster_meet());
    }
    return close_place(&place);
}

/* A push for which the transaction has no room aborts it, and leaves no gap in the queue. */
static int limits(struct remo_node *node, void *ctx) {
    const struct remo_tx_queue_options options = {.value_bytes_max = 3000};
    static const char value[3000];
    struct place place;
    uint32_t aborted = 0;
    (void)ctx;
    CHECK(open_place(node, &options, &place) == 0);
    for (size_t last = 1200; last < 1400 && remo_node_rank(node) == 1; last++) {
        CHECK_OK(remo_tx_begin(place.tx));
        for (uint32_t i = 0; i < 5; i++)
            CHECK_OK(remo_tx_queue_push(place.tx, place.queue, value, sizeof value));
        int rc = remo_tx_queue_push(place.tx, place.queue, value, last);
        CHECK(rc == 0 || rc == -EMSGSIZE);
        CHECK_CODE(remo_tx_commit(place.tx), rc == 0 ? -EMSGSIZE : -ESTALE);
        aborted += rc != 0;
    }
    CHECK(aborted > 0 || remo_node_rank(node) != 1);
    CHECK(expect_empty(&place) == 0);
    return close_place(&place);
}

/* Push `count` elements in one transaction. */
static int push_many(const struct place *place, uint32_t count, size_t bytes) {
    static const char value[80];
    int rc = remo_tx_begin(place->tx);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = remo_tx_queue_push(place->tx, place->queue, value, bytes);
    return rc ? rc : remo_tx_commit(place->tx);
}

/* Pop `count` elements in one transaction. The last pop has the result `expected`. */
static int pop_many(const struct place *place, uint32_t count, int expected) {
    char value[80];
    CHECK_OK(remo_tx_begin(place->tx));
    for (uint32_t i = 1; i <= count; i++)
        CHECK_CODE(remo_tx_queue_pop(place->tx, place->queue, value, sizeof value, NULL),
                   i < count ? 0 : expected);
    CHECK_CODE(remo_tx_commit(place->tx), expected == 0 ? 0 : -ESTALE);
    return 0;
}

/* The limits that the header states. Node 0 pops, so that node 1 expects another element. */
static int many(struct remo_node *node, void *ctx) {
    struct place place;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    if (remo_node_rank(node) == 1) {
        CHECK_OK(push_many(&place, 36, 80));
        CHECK_CODE(push_many(&place, 37, 80), -EMSGSIZE);
        CHECK_OK(push_many(&place, 63, 8));
        CHECK_CODE(push_many(&place, 64, 8), -ENOBUFS);
        CHECK_CODE(remo_tx_commit(place.tx), -ESTALE);
    }
    CHECK_OK(cluster_meet());
    CHECK(remo_node_rank(node) != 0 || pop_many(&place, 1, 0) == 0);
    CHECK_OK(cluster_meet());
    CHECK(remo_node_rank(node) != 1 || pop_many(&place, 63, -ENOBUFS) == 0);
    CHECK(remo_node_rank(node) != 1 || pop_many(&place, 63, 0) == 0); /* it expects the first element now */
    return close_place(&place);
}

/* ---- conflicts ---- */

/* Push element 2, of another transaction object, before the commit of a transaction that has popped. */
static int push_before_commit(const struct place *place, struct remo_tx *other, int expected) {
    uint64_t element = 0;
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(pop_word(place, &element));
    CHECK_EQUAL(element, 1);
    CHECK_OK(remo_tx_begin(other));
    CHECK_OK(remo_tx_queue_push(other, place->queue, &(uint64_t){2}, sizeof element));
    CHECK_OK(remo_tx_commit(other));
    CHECK_CODE(remo_tx_commit(place->tx), expected);
    return 0;
}

/* A push and a pop of a queue that is not empty are in conflict only if an earlier pop has not committed:
 * then the transaction expects the element that is pushed meanwhile. */
static int push_beside_pop(const struct place *place, struct remo_tx *other) {
    struct remo_tx_conflict conflict;
    struct worker worker = {.place = *place, .element = 1};
    CHECK_OK(run(&worker, push_body));
    CHECK(push_before_commit(place, other, 0) == 0);
    CHECK(expect_element(place, 2) == 0);
    worker.element = 1;
    CHECK_OK(run(&worker, push_body));
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_OK(pop_word(place, &worker.element));
    remo_tx_abort(place->tx);
    CHECK(push_before_commit(place, other, -EAGAIN) == 0);
    CHECK_OK(remo_tx_last_conflict(place->tx, &conflict));
    CHECK_EQUAL(conflict.kind, REMO_TX_APPEARED);
    for (uint64_t i = 1; i <= 2; i++)
        CHECK(expect_element(place, i) == 0);
    return expect_empty(place);
}

static int conflicts(struct remo_node *node, void *ctx) {
    struct place place;
    struct remo_tx *other;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    CHECK_OK(remo_tx_open(place.space, &other));
    for (uint32_t rank = 0; rank < remo_node_size(node); rank++) {
        if (remo_node_rank(node) == rank)
            CHECK(push_beside_pop(&place, other) == 0);
        CHECK_OK(cluster_meet());
    }
    remo_tx_close(other);
    return close_place(&place);
}

/* ---- costs ---- */

/* A write is a call: the owner's reply to it is a write of the owner. */
static int expect_cost(const struct place *place, struct cost before, uint64_t reads, uint64_t writes) {
    struct cost after = cost_of(place);
    CHECK_EQUAL(after.reads - before.reads, reads);
    CHECK_EQUAL(after.writes - before.writes, writes);
    CHECK_EQUAL(after.atomics - before.atomics, 0);
    return 0;
}

/* Run one transaction and check its cost. */
static int run_at_cost(struct worker *worker, int (*body)(void *ctx, struct remo_tx *tx), uint64_t reads,
                       uint64_t writes) {
    struct cost before = cost_of(&worker->place);
    CHECK_OK(run(worker, body));
    return expect_cost(&worker->place, before, reads, writes);
}

static int many_body(void *ctx, struct remo_tx *tx) {
    int rc = push_body(ctx, tx);
    rc = rc ? rc : push_body(ctx, tx);
    rc = rc ? rc : pop_body(ctx, tx);
    return rc ? rc : pop_body(ctx, tx);
}

/* Wrong arguments cost no operation. */
static int costs_of_errors(const struct place *place) {
    struct cost before = cost_of(place);
    CHECK_OK(remo_tx_begin(place->tx));
    CHECK_SENTENCE(remo_tx_queue_push(place->tx, place->queue, NULL, 1), -EINVAL, "NULL");
    CHECK_CODE(remo_tx_queue_pop(place->tx, place->queue, NULL, 1, NULL), -EINVAL);
    CHECK_CODE(remo_tx_queue_count(place->tx, place->queue, NULL), -EINVAL);
    CHECK_OK(remo_tx_commit(place->tx));
    return expect_cost(place, before, 0, 0);
}

static int costs_of_peer(struct worker *worker) {
    CHECK(run_at_cost(worker, pop_body, 4, 0) == 0); /* empty: both reads are validated */
    for (uint32_t i = 0; i < 4; i++)
        CHECK(run_at_cost(worker, push_body, 1, 1) == 0);
    for (uint32_t i = 0; i < 2; i++)
        CHECK(run_at_cost(worker, pop_body, 2, 1) == 0);
    CHECK(run_at_cost(worker, count_body, 4, 0) == 0);
    CHECK(run_at_cost(worker, many_body, 1 + 2 + 1, 1) == 0); /* pops the elements that were there before */
    for (uint32_t i = 0; i < 2; i++)
        CHECK(run_at_cost(worker, pop_body, 2, 1) == 0);
    CHECK(run_at_cost(worker, many_body, 1 + 1 + 2, 1) == 0); /* pops its own: the front, and their absence */
    return costs_of_errors(&worker->place);
}

/* Node 1 is not the owner. Then the owner pops, so that node 1 expects an element that is absent. */
static int costs(struct remo_node *node, void *ctx) {
    struct worker worker = {0};
    (void)ctx;
    CHECK(open_place(node, NULL, &worker.place) == 0);
    if (remo_node_rank(node) == 0) { /* first: it counts a reply to a peer late */
        CHECK(run_at_cost(&worker, push_body, 0, 0) == 0);
        CHECK(run_at_cost(&worker, pop_body, 0, 0) == 0);
        CHECK(run_at_cost(&worker, pop_body, 0, 0) == 0);
        CHECK(run_at_cost(&worker, push_body, 0, 0) == 0);
        CHECK(run_at_cost(&worker, push_body, 0, 0) == 0);
    }
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        CHECK(run_at_cost(&worker, pop_body, 3, 1) == 0); /* it expected element 0, and 1 is the first */
        CHECK(run_at_cost(&worker, pop_body, 2, 1) == 0);
        CHECK(costs_of_peer(&worker) == 0);
    }
    return close_place(&worker.place);
}

/* ---- a table and a queue ---- */

/* Move a token from a row to the queue; each element is a token. */
static int row_to_queue(void *ctx, struct remo_tx *tx) {
    struct worker *worker = ctx;
    struct place *place = &worker->place;
    uint64_t tokens = 0;
    int rc = remo_tx_read(tx, place->structure, &worker->row, 8, &tokens, 8, NULL);
    worker->is_moved = tokens > 0;
    if (rc != 0 || tokens == 0)
        return rc;
    tokens--;
    rc = remo_tx_update(tx, place->structure, &worker->row, 8, &tokens, 8);
    return rc ? rc : push_word(place, 1);
}

/* Move a token from the queue to a row. */
static int queue_to_row(void *ctx, struct remo_tx *tx) {
    struct worker *worker = ctx;
    struct place *place = &worker->place;
    uint64_t tokens = 0, element;
    int rc = pop_word(place, &element);
    worker->is_moved = rc == 0;
    if (rc != 0)
        return rc == -ENOENT ? 0 : rc;
    rc = remo_tx_read(tx, place->structure, &worker->row, 8, &tokens, 8, NULL);
    tokens += element;
    return rc ? rc : remo_tx_update(tx, place->structure, &worker->row, 8, &tokens, 8);
}

/* Count the tokens of all rows and of the queue. */
static int count_tokens(void *ctx, struct remo_tx *tx) {
    struct worker *worker = ctx;
    int rc = count_body(ctx, tx);
    for (uint32_t i = 0; i < 2 * ROWS && rc == 0; i++) {
        uint64_t tokens = 0, row = key_of(&worker->place, i / ROWS, i % ROWS);
        rc = remo_tx_read(tx, worker->place.structure, &row, 8, &tokens, 8, NULL);
        worker->count += tokens;
    }
    return rc;
}

/* Rows of nodes 0 and 1, which may be full; the queue belongs to node 0. So half of the transactions change
 * items of two owners. */
static int moves(struct remo_node *node, void *ctx) {
    const struct remo_tx_queue_options options = {.capacity = TOKENS};
    struct worker worker = {0};
    uint32_t rank = remo_node_rank(node);
    (void)ctx;
    CHECK(open_place(node, &options, &worker.place) == 0);
    for (uint32_t i = 0; i < ROWS && rank < 2; i++) {
        uint64_t row = key_of(&worker.place, rank, i), tokens = TOKENS / (2 * ROWS);
        CHECK_OK(remo_structure_insert(worker.place.structure, &row, 8, &tokens, 8));
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t random = (i * 7 + rank * 3) ^ i / 5, owner = random % 2;
        bool pops = i % 2 != rank % 2;
        worker.row = key_of(&worker.place, owner, random / 2 % ROWS);
        int rc = run(&worker, pops ? queue_to_row : row_to_queue);
        CHECK(rc == 0 || (rc == -ENOSPC && !pops)); /* a pop at two owners may not have ended */
        atomic_fetch_add(&shared->moved[pops][owner], rc == 0 && worker.is_moved);
        if (i % 16 == 0) {
            CHECK_OK(run(&worker, count_tokens));
            CHECK_EQUAL(worker.count, TOKENS);
        }
    }
    CHECK_OK(cluster_meet());
    for (uint32_t i = 0; i < 4; i++)
        CHECK(atomic_load(&shared->moved[i / 2][i % 2]) > 0);
    CHECK_OK(run(&worker, count_tokens));
    CHECK_EQUAL(worker.count, TOKENS);
    return close_place(&worker.place);
}

/* ---- wrong arguments, options that differ ---- */

static int bad_options(struct remo_channel *root) {
    struct remo_tx_queue *queue;
    CHECK_SENTENCE(
        remo_tx_queue_open(
            root, "x", &(struct remo_tx_queue_options){.capacity = REMO_TX_QUEUE_CAPACITY_MAX + 1}, &queue),
        -EINVAL, "the maximum is 16777216");
    CHECK_SENTENCE(remo_tx_queue_open(
                       root, "x",
                       &(struct remo_tx_queue_options){.value_bytes_max = REMO_TX_QUEUE_VALUE_BYTES_MAX + 1},
                       &queue),
                   -EINVAL, "the maximum is 3960");
    CHECK_SENTENCE(remo_tx_queue_open(root, "x", &(struct remo_tx_queue_options){.owner = 1}, &queue),
                   -EINVAL, "the rank of a participant");
    CHECK_CODE(remo_tx_queue_open(root, "x", &(struct remo_tx_queue_options){.owner = UINT32_MAX}, &queue),
               -EINVAL);
    return 0;
}

static int bad_input(struct remo_node *node, void *ctx) {
    struct place place;
    struct remo_tx_queue *other;
    uint64_t element = 1, count;
    (void)ctx;
    CHECK(open_place(node, NULL, &place) == 0);
    CHECK(bad_options(remo_node_root(node)) == 0);
    CHECK_OK(remo_tx_queue_open(remo_node_root(node), "other", NULL, &other));
    CHECK_SENTENCE(push_word(&place, 1), -ESTALE, "remo_tx_begin first");
    CHECK_CODE(pop_word(&place, &element), -ESTALE);
    CHECK_CODE(remo_tx_queue_count(place.tx, place.queue, &count), -ESTALE);
    CHECK_OK(remo_tx_begin(place.tx));
    CHECK_SENTENCE(remo_tx_queue_push(place.tx, other, &element, sizeof element), -EINVAL,
                   "not one of the 2 structures");
    CHECK_CODE(remo_tx_queue_pop(place.tx, other, &element, sizeof element, NULL), -EINVAL);
    CHECK_CODE(remo_tx_queue_push(place.tx, place.queue, NULL, 1), -EINVAL);
    CHECK_OK(push_word(&place, 5));
    CHECK_CODE(remo_tx_queue_pop(place.tx, place.queue, NULL, 1, NULL), -EINVAL);
    CHECK_CODE(remo_tx_queue_pop(place.tx, place.queue, NULL, 0, NULL), -EMSGSIZE);
    CHECK_OK(remo_tx_commit(place.tx));
    CHECK(expect_element(&place, 5) == 0);
    CHECK_OK(cluster_meet());
    remo_tx_queue_close(other);
    return close_place(&place);
}

/* Nodes that open different queues get an error. `ctx`: the option that differs. */
static int mismatch(struct remo_node *node, void *ctx) {
    struct remo_tx_queue_options options = {.capacity = 100};
    struct remo_tx_queue *queue;
    uint32_t rank = remo_node_rank(node);
    options.capacity += strcmp(ctx, "capacity") == 0 ? rank : 0;
    options.owner = strcmp(ctx, "owner") == 0 ? rank : 0;
    options.value_bytes_max = strcmp(ctx, "value_bytes_max") == 0 ? 1 + rank : 0;
    CHECK_OK(remo_tx_queue_open(remo_node_root(node), "queue", &options, &queue));
    CHECK_SENTENCE(remo_channel_wait(remo_structure_channel(remo_tx_queue_structure(queue)), LONG_TIME),
                   -EPROTO, "tx_queue 10");
    CHECK_OK(cluster_meet());
    remo_tx_queue_close(queue);
    return 0;
}

/* ---- the failure of a node ---- */

/* Node 1 fails; `ctx`: NULL if it is the owner. Otherwise the queue is usable, and has all elements. */
static int failing(struct remo_node *node, void *ctx) {
    const struct remo_tx_queue_options options = {.owner = ctx ? 0 : 1};
    struct worker worker = {.element = 7};
    CHECK(open_place(node, &options, &worker.place) == 0);
    CHECK_OK(run(&worker, push_body));
    CHECK_OK(cluster_meet());
    if (remo_node_rank(node) == 1) {
        cluster_sleep_ms(60000);
        return 1;
    }
    if (remo_node_rank(node) == 0)
        CHECK_OK(cluster_kill(1));
    cluster_await_cut_off(node, 1);
    if (ctx) {
        CHECK(expect_element(&worker.place, 7) == 0);
        CHECK_OK(cluster_meet());
        CHECK(expect_count(&worker.place, 1) == 0);
    } else {
        CHECK_CODE(run(&worker, push_body), -EHOSTDOWN);
        CHECK_CODE(run(&worker, pop_body), -EHOSTDOWN);
    }
    return close_place(&worker.place);
}

static const struct cluster_test tests[] = {
    CLUSTER_TEST(order, 3),
    CLUSTER_TEST(crowd, 3),
    CLUSTER_TEST(full, 2),
    CLUSTER_TEST(full_beside_table, 2),
    CLUSTER_TEST(sizes, 2, .ctx = (void *)(uintptr_t)REMO_TX_QUEUE_VALUE_BYTES_MAX),
    CLUSTER_TEST_NAMED("small sizes", sizes, 2, .ctx = (void *)3),
    CLUSTER_TEST(within, 2),
    CLUSTER_TEST(limits, 2),
    CLUSTER_TEST(many, 2),
    CLUSTER_TEST(conflicts, 2),
    CLUSTER_TEST(costs, 2),
    CLUSTER_TEST(moves, 3),
    CLUSTER_TEST(bad_input, 1),
    CLUSTER_TEST_NAMED("mismatch of capacity", mismatch, 2, .ctx = "capacity"),
    CLUSTER_TEST_NAMED("mismatch of owner", mismatch, 2, .ctx = "owner"),
    CLUSTER_TEST_NAMED("mismatch of value_bytes_max", mismatch, 2, .ctx = "value_bytes_max"),
    CLUSTER_TEST_NAMED("failing owner", failing, 3),
    CLUSTER_TEST_NAMED("failing node", failing, 3, .ctx = "not the owner"),
    {0},
};

static void clear_shared(void) {
    memset((void *)shared, 0, sizeof *shared);
}

int main(int argc, char **argv) {
    shared = cluster_shared(sizeof *shared);
    return cluster_main(argc, argv, tests, clear_shared);
}
