/* redis_tx.c - transactions on Redis (transactions.h): several processes are clients of one server, over a
 * Unix socket. Redis executes one command or script at a time, so each is a transaction. A process sends the
 * transactions of a window together. Server and clients share the processors of the benchmark. */
#include "bench/peers/redis_tx.h"

#include <stdio.h>
#include <stdlib.h>

#define FILL_COMMANDS 256u /* in flight, while the store is filled or checked */

/* ---- the benchmark ---- */

static void start(struct transactions *bench) {
    redis_start(bench->options);
}

static const struct redis_workload *workload_of(const struct transactions *bench) {
    return bench->is_tatp ? &redis_tatp : &redis_smallbank;
}

static void open_client(struct transactions *bench) {
    const struct redis_workload *workload = workload_of(bench);
    struct redis_state *state = calloc(1, sizeof *state);
    if (!state)
        processes_fail("no memory for the transactions");
    server_share_processors(bench->options);
    bench->state = state;
    state->client = redis_open();
    for (unsigned i = 0; i < workload->kinds; i++)
        if (workload->scripts[i])
            redis_load(state->client, workload->scripts[i], state->scripts[i]);
}

static void fill(struct transactions *bench) {
    const struct redis_state *state = bench->state;
    struct redis_reply reply;
    unsigned in_flight = 0;
    for (uint64_t key = 0; key < bench->keys; key++) {
        in_flight += workload_of(bench)->insert(state->client, key);
        for (; in_flight >= FILL_COMMANDS || (in_flight > 0 && key + 1 == bench->keys); in_flight--)
            redis_receive(state->client, &reply);
    }
}

static void run(struct transactions *bench) {
    const struct redis_workload *workload = workload_of(bench);
    struct redis_state *state = bench->state;
    for (unsigned i = 0; i < bench->window; i++)
        workload->send(bench, state, i);
    for (unsigned i = 0; i < bench->window; i++)
        workload->receive(bench, state, i);
}

static int64_t receive_balances(struct redis_client *client, uint64_t customer) {
    int64_t all = 0;
    redis_receive_array(client, SMALLBANK_TABLES);
    for (unsigned i = 0; i < SMALLBANK_TABLES; i++) {
        struct redis_reply reply;
        redis_receive(client, &reply);
        if (!reply.bytes)
            processes_fail("the benchmark is wrong: customer %llu has no account",
                           (unsigned long long)customer);
        all += strtoll(reply.bytes, NULL, 10);
    }
    return all;
}

static int64_t sum(struct transactions *bench) {
    const struct redis_state *state = bench->state;
    int64_t all = 0;
    uint64_t received = 0;
    for (uint64_t customer = 0; customer < bench->keys; customer++) {
        redis_smallbank_add_balance(state->client, customer);
        while (customer + 1 - received >= FILL_COMMANDS
               || (customer + 1 == bench->keys && received <= customer))
            all += receive_balances(state->client, received++);
    }
    return all;
}

const struct transactions_store redis_transactions = {.name = "Redis",
                                                      .windows = {1, 8, 128},
                                                      .start = start,
                                                      .open = open_client,
                                                      .fill = fill,
                                                      .run = run,
                                                      .sum = sum};
