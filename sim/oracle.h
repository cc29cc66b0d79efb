/* oracle.h - sequential specifications of the objects: the results of calls that run one at a
 * time. */
#pragma once

#include "sim/history.h"

enum { COUNTER_ADD = 1, WORD_LOAD, WORD_SWAP, WORD_STORE }; /* a word: result is the old value */
enum { QUEUE_PUSH = 20, QUEUE_POP }; /* -ETIMEDOUT: full or empty; result of a pop: the element */
/* One key. The result of a get is the value, of an add the value before. MAP_COMPARE puts
 * `argument` if the value is `second`; otherwise it returns -ESTALE. */
enum { MAP_GET = 30, MAP_INSERT, MAP_UPDATE, MAP_DELETE, MAP_PUT, MAP_ADD, MAP_COMPARE };

/* A transaction on ORACLE_KEYS keys, which is one call of key 0. `argument` has up to four steps of 16 bits:
 * {step:4, key:4, value:8}; the first is in the low bits. `result` has the same number of
 * {outcome:8, value:8}. */
enum { TX_RUN = 40 };
enum { TX_END, TX_READ, TX_INSERT, TX_UPDATE, TX_PUT, TX_DELETE, TX_PUSH, TX_POP }; /* steps */
enum { TX_DONE, TX_ABSENT, TX_PRESENT };                                            /* outcomes */
#define ORACLE_KEYS 4u

extern const struct oracle oracle_word;
extern const struct oracle oracle_queue; /* capacity: ORACLE_QUEUE_CAPACITY */
extern const struct oracle oracle_map;
extern const struct oracle oracle_tx;
/* The same, and a queue of transactions. The code is -ENOSPC if an element that was pushed found no slot (see
 * tx_queue.h, Failure). Capacity: ORACLE_QUEUE_CAPACITY. */
extern const struct oracle oracle_tx_queue;

#define ORACLE_QUEUE_CAPACITY 2u
