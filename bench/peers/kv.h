/* kv.h - a client for key-value servers: starts the server, fills it, and measures reads and updates.
 *
 * One connection over a Unix socket. With a window of W the client sends W requests in one write and reads
 * W replies (that is how both servers' own tools pipeline), so p50_ns is the time of such a round divided
 * by W. The client polls its socket instead of sleeping in it: it has a processor of its own, and the
 * wake-up would cost more than the rest. With --cpus A,A, where it has not, it sleeps. */
#pragma once

#include "measure.h"

#include <stddef.h>

#define KV_WORD_BYTES 8 /* keys and values; keys are printable */
#define KV_REQUEST_BYTES_MAX 64
#define KV_ARGUMENTS_MAX 24

struct kv_server {
    const char *program;

    /* The command line, NULL at its end; `texts` is room for what must be formatted. */
    void (*command)(const struct measure_options *options, const char *socket_path, char texts[2][32],
                    const char *ret_argv[KV_ARGUMENTS_MAX]);

    /* Write a request at `at`, which has room for KV_REQUEST_BYTES_MAX; returns its length. */
    size_t (*get)(char *at, const char key[KV_WORD_BYTES]);
    size_t (*set)(char *at, const char key[KV_WORD_BYTES], const char value[KV_WORD_BYTES]);

    /* What a reply looks like that means success: `get` is followed by the value and `get_end`. */
    const char *get_reply, *get_end, *set_reply;
};

/* The whole program. */
int kv_main(const struct kv_server *server, int argc, char **argv);
