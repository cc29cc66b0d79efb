/* redis_client.h - a connection to Redis with commands in flight, for its benchmarks of transactions
 * and of the ordered map.
 * A function that fails prints a sentence, and ends the process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/peers/kv.h"
#include "bench/peers/ordered.h"

#define REDIS_BUFFER_BYTES (1u << 20) /* the longest reply, and the longest commands of a window */
#define REDIS_SHA_BYTES 41            /* of a script, as text */
#define REDIS_NUMBER_BYTES 24         /* of a number, as text */
#define REDIS_WORDS_MAX 16            /* of a call of a script */

struct redis_client;

extern const struct ordered_store redis_ordered; /* redis_tree.c */

/* An argument of a command. */
struct redis_word {
    const void *bytes;
    size_t count;
};

/* A reply. Its bytes are valid until the next reply is received. */
struct redis_reply {
    bool is_integer, is_missing; /* neither: `bytes` */
    int64_t integer;
    const char *bytes;
    size_t count;
};

/* Write the command line of the server. */
void redis_command_line(const struct measure_options *options, const struct server_endpoint *endpoint,
                        char texts[2][32], const char *ret_argv[KV_ARGUMENTS_MAX]);

/* Start the server for several processes, on a Unix socket. */
void redis_start(const struct measure_options *options);
/* Connect to the server that this program has started. */
struct redis_client *redis_open(void);
/* Add a command to those that the next redis_receive sends. */
void redis_add(struct redis_client *client, const struct redis_word *words, size_t count);
/* Receive the reply to the oldest command without a reply. An error reply ends the process. */
void redis_receive(struct redis_client *client, struct redis_reply *ret_reply);
/* Receive a reply with `count` elements, before the elements. */
void redis_receive_array(struct redis_client *client, size_t count);
/* Load a script. */
void redis_load(struct redis_client *client, const char *script, char ret_sha[REDIS_SHA_BYTES]);

/* Add a call of a script. The first `keys` of the words are keys, the others arguments. */
void redis_add_script(struct redis_client *client, const char sha[REDIS_SHA_BYTES],
                      const struct redis_word *words, size_t count, unsigned keys);
/* Write a number as text, after `letter`; 0: without a letter. */
struct redis_word redis_number(char text[REDIS_NUMBER_BYTES], char letter, uint64_t number);

static inline struct redis_word redis_bytes(const void *bytes, size_t count) {
    return (struct redis_word){bytes, count};
}
