/* server.h - a server that a program starts for itself, in a folder of its own. The server ends, and its
 * folder is removed, when the program ends, also by SIGTERM, SIGINT, SIGHUP or SIGPIPE. If SIGKILL ends the
 * program, the server ends too, but the folder remains.
 * Threads: one. A function that fails prints a sentence, unless stated otherwise. */
#pragma once

#include <stdbool.h>

#include "bench/peers/measure.h"

#define SERVER_PATH_BYTES 96

/* An address: a Unix socket, or a port of 127.0.0.1. */
struct server_endpoint {
    bool is_tcp;
    const char *socket_path, *port;
};

/* Make the folder of the server in `parent`; NULL: in the folder for temporary files. Returns the folder's
 * name, or NULL. */
const char *server_make_folder(const char *parent);
/* Choose an address: a socket in the folder, or a free port. Returns 0 or -1. */
int server_choose_endpoint(bool is_tcp, struct server_endpoint *ret_endpoint);
/* Start the server in its folder. server_stop sends `stop_signal`, and SIGKILL after 2 s. `settle` is called
 * in the server's process first, for example to pin it. */
void server_launch(const char *const argv[], int stop_signal, void (*settle)(const void *ctx),
                   const void *ctx);
/* Let this process use all processors of the benchmark. A server that several processes use needs this, and
 * so do its clients: the busier ones get more of the processors. */
void server_share_processors(const struct measure_options *options);
/* Return whether the server has not ended. Prints nothing. */
bool server_is_running(void);
/* Connect to the chosen address. Returns a socket that does not block, or -1. Prints nothing. */
int server_connect(void);
/* Connect while the server starts. Returns a socket that does not block, or -1. */
int server_await(void);
/* Stop the server and remove its folder. Without effect in a process that has not made the folder. */
void server_stop(void);
