/* kv.h - a client for key-value servers: starts the server, fills it, and measures reads and updates.
 *
 * It uses one connection, over a Unix socket or TCP loopback (--transport). With a window of W the client
 * sends W requests in one write and reads W replies, as both servers' own tools do. p50_ns is the time of
 * such a round divided by W. The client polls its socket on its own processor, since a wake-up would
 * dominate the time. With --cpus A,A, on the server's processor, it sleeps instead. */
#pragma once

#include "measure.h"
#include "server.h"

#include <stdbool.h>
#include <stddef.h>

#define KV_WORD_BYTES 8 /* keys and values; keys are printable */
#define KV_REQUEST_BYTES_MAX 64
#define KV_ARGUMENTS_MAX 40

struct kv_server {
    const char *program;

    /* Write the command line, NULL at its end; `texts` is memory for formatted arguments. */
    void (*command)(const struct measure_options *options, const struct server_endpoint *endpoint,
                    char texts[2][32], const char *ret_argv[KV_ARGUMENTS_MAX]);

    /* Write a request at `at`, which has room for KV_REQUEST_BYTES_MAX; returns its length. */
    size_t (*get)(char *at, const char key[KV_WORD_BYTES]);
    size_t (*set)(char *at, const char key[KV_WORD_BYTES], const char value[KV_WORD_BYTES]);

    /* A successful reply: `get_reply` is followed by the value and `get_end`. */
    const char *get_reply, *get_end, *set_reply;
};

/* Run the whole program. */
int kv_main(const struct kv_server *server, int argc, char **argv);
