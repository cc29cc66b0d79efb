/* rpc.h - common parts of the programs that measure calls: two processes, the points, the figures.
 * The server returns each request. A call's number is the first word of its request and reply. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "measure.h"

#define RPC_BYTES_MAX 4096u
#define RPC_WINDOW_MAX 1024u

/* Functions of a peer; each exits with an error message if it fails. */
struct rpc_peer {
    /* The server process: run until the client ends. `fd` is a socket whose other end the client has. */
    void (*serve)(const struct measure_options *options, int fd);
    /* The client process: connect; run `operations` calls of `bytes`, with up to `window` in flight. */
    void (*connect)(const struct measure_options *options, int fd);
    void (*run)(uint64_t operations, size_t bytes, unsigned window);
    void (*close)(void);
};

/* Run the program: parse the options, start the server, measure all points, and stop the server. */
int rpc_main(const struct rpc_peer *peer, int argc, char **argv);

/* Print the reason, and exit. */
__attribute__((noreturn, format(printf, 1, 2))) void rpc_fail(const char *format, ...);
/* Send and receive `size_bytes` through the socket between both processes. */
void rpc_send(int fd, const void *data, size_t size_bytes);
void rpc_receive(int fd, void *ret_data, size_t size_bytes);
