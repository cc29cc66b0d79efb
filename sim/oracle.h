/* oracle.h - what each kind of object would do if calls came one at a time. */
#pragma once

#include "sim/history.h"

enum { COUNTER_ADD = 1, WORD_LOAD, WORD_SWAP, WORD_STORE }; /* a word: result is the old value */
enum { QUEUE_PUSH = 20, QUEUE_POP }; /* -ETIMEDOUT: full, empty; result of a pop: the element */
enum { MAP_GET = 30, MAP_INSERT, MAP_UPDATE, MAP_DELETE }; /* one key; result of a get: the value */

extern const struct oracle oracle_word;
extern const struct oracle oracle_queue; /* `second` of the first call's key: capacity; see queue_capacity */
extern const struct oracle oracle_map;

#define ORACLE_QUEUE_CAPACITY 2u
