/* kv.h - the state of the map's cases, and what the files of cases share.
 *
 *   kv.c        the calls with their checks, and cases in which nodes change the same keys
 *   kv_window.c cases with several operations of a thread in flight
 *   kv_slots.c  cases whose slots change or are reused while another node uses them
 *
 * kv_cursor.c and kv_forged.c have states of their own. */
#pragma once

#include <errno.h>
#include <remo/kv.h>

#include "systems/kv/kv.h"
#include "sim/case.h"
#include "sim/oracle.h"
#include "sim/scheduler.h"

#define FOREVER REMO_FOREVER
#define VALUE_WORDS 9u /* more than a cache line */
#define KEYS_MAX 16u
#define LONG_KEY_WORDS 15u /* with the slot header two cache lines; keys differ in the second one */

struct kv_state {
    struct remo_kv *kvs[SIM_NODES_MAX];
    uint32_t words;     /* of a value */
    uint32_t key_words; /* 0: 1 */
    bool alike;         /* the index cannot distinguish the keys: any key may lead to any node */
    /* private memory: signals between nodes */
    bool there, deleted, is_kept, has_tried, has_ended;
    bool deletes, has_changed; /* case lost: the kind of the change, and whether it returned 0 */
    /* the node has tried to insert the key, which may lie there */
    bool inserted[SIM_NODES_MAX][KEYS_MAX];
};

/* Open a map for `capacity` keys, with values of `words`; close it. */
void sim_kv_open(void *state, struct remo_node *node, uint32_t rank, uint32_t capacity, uint32_t words);
void sim_kv_close(void *state, uint32_t rank);

/* Call a function of the map with the key of this number. Record the call, and check its result. */
int sim_kv_call(struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key, uint64_t number);
/* The two halves of such a call: record its begin; record its end, and check its result. */
uint32_t sim_kv_begin(struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key, uint64_t number,
                      uint64_t expected);
int sim_kv_end(struct kv_state *s, uint32_t rank, uint32_t function, uint64_t key, uint32_t call, int rc,
               const uint64_t *value);
/* For the end of a case: make all calls that do not depend on failed nodes. */
void sim_kv_after(void *state, uint32_t rank);

/* Conditions for sim_until: `there`, or node 0 has failed; `deleted`, or node 1 has failed. */
bool sim_kv_is_there(void *ctx);
bool sim_kv_is_deleted(void *ctx);
