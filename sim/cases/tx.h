/* tx.h - what the cases of transactions share. */
#pragma once

#include <remo/table.h>
#include <remo/tx_queue.h>

#include "sim/case.h"
#include "sim/oracle.h"

#define STEPS_MAX 4u
#define TX_DECIDER 0u /* of fails_twice */
#define TX_COORDINATOR 3u
#define STEP(step, key, value) ((uint64_t)(step) << 12 | (uint64_t)(key) << 8 | (uint64_t)(value))

struct tx_state {
    struct remo_table *tables[SIM_NODES_MAX];
    struct remo_structure *structures[SIM_NODES_MAX]; /* of the tables */
    struct remo_tx_queue *queues[SIM_NODES_MAX];      /* opened before sim_tx_open; NULL: none */
    uint32_t queue_owner;
    bool is_full_exact; /* -ENOSPC is judged, because keys and queue have one owner */
    struct remo_tx_space *spaces[SIM_NODES_MAX];
    struct remo_tx *txs[SIM_NODES_MAX][SIM_THREADS_MAX];
    uint64_t keys[ORACLE_KEYS];
    uint32_t value_words; /* of keys and elements */
    bool is_wait_exact;   /* a wait ends only if the results of the transaction change */
    bool reads_together;  /* a transaction that begins with several reads: by remo_tx_read_many */
    bool is_early;        /* locks are REMO_TX_EARLY; set before sim_tx_open */
    bool fails_twice;     /* if TX_COORDINATOR or TX_DECIDER fails, so does the other one */
};

/* Open a table, and the transactions of all threads of a node on it. The keys are chosen afterwards. */
void sim_tx_open(void *state, struct remo_node *node, uint32_t rank, uint32_t width, uint32_t slots_percent,
                 uint64_t capacity);
void sim_tx_close(void *state, uint32_t rank);

/* The cases of several owners: keys of two and of three, and what follows. */
void sim_tx_open_pairs(void *state, struct remo_node *node, uint32_t rank);
void sim_tx_open_three(void *state, struct remo_node *node, uint32_t rank);
void sim_tx_open_growing(void *state, struct remo_node *node, uint32_t rank);
void sim_tx_both_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_skew_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_gone_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_beside_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_busy_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_three_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_moved_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_two_fail_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_apart_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_two_apart_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_both_apart_body(void *state, uint32_t rank, uint32_t thread);
void sim_tx_owners_after(void *state, uint32_t rank);
void sim_tx_two_fail_after(void *state, uint32_t rank);

/* Run a transaction, up to three times if it is in conflict. Returns the result of the last attempt. */
int sim_tx_transact(void *state, uint32_t rank, uint32_t thread, const uint64_t *steps);
/* Execute a step of a transaction, or of the structure if `tx` is NULL. Adds its outcome to *results, shifted
 * by `shift`. Returns the codes that are no outcome. */
int sim_tx_step(struct tx_state *s, uint32_t rank, struct remo_tx *tx, uint64_t step, uint32_t shift,
                uint64_t *results);
/* Return the fate of a transaction that has ended with a result. A node that is out may be wrong about it. */
enum remo_tx_fate sim_tx_settle(struct remo_tx *tx, uint32_t rank, int result);
/* Execute one step as a call of the structure. A failure is excused if `depends_on` is out. */
void sim_tx_call(void *state, uint32_t rank, uint64_t step, uint32_t depends_on);
