/* rpc.c - the two processes and the points of a peer with calls (rpc.h).
 * The client is process 0. Both ends of the socket are closed when a process ends, so each notices the end of
 * the other. */
#include "rpc.h"

#include "base/clock.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A point of the client. */
struct point {
    const struct rpc_peer *peer;
    size_t bytes;
    unsigned window;
};

void rpc_fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

void rpc_send(int fd, const void *data, size_t size_bytes) {
    if (send(fd, data, size_bytes, MSG_NOSIGNAL) != (ssize_t)size_bytes)
        rpc_fail("the other process has ended");
}

void rpc_receive(int fd, void *ret_data, size_t size_bytes) {
    if (recv(fd, ret_data, size_bytes, MSG_WAITALL) != (ssize_t)size_bytes)
        rpc_fail("the other process has ended");
}

static double batch(void *ctx, uint64_t operations) {
    const struct point *point = ctx;
    uint64_t start_ns = remo__now_ns();
    point->peer->run(operations, point->bytes, point->window);
    return (double)(remo__now_ns() - start_ns);
}

static void measure_point(const struct rpc_peer *peer, const struct measure_options *options,
                          uint64_t default_bytes, unsigned window) {
    struct point point = {.peer = peer, .bytes = options->bytes ? options->bytes : default_bytes};
    struct measure_result result;
    point.window = window;
    point.bytes = point.bytes < 8 ? 8 : point.bytes > RPC_BYTES_MAX ? RPC_BYTES_MAX : point.bytes;
    measure_run(batch, &point, window, options->seconds, &result);
    struct measure_subject subject = {.bench = "rpc",
                                      .object = "rpc",
                                      .nodes = 2,
                                      .bytes = point.bytes,
                                      .window = window,
                                      .active = 1,
                                      .read_percent = -1};
    measure_print(options, &subject, &result);
}

/* The points with one caller, and a server that does nothing else. */
static void measure_all(const struct rpc_peer *peer, const struct measure_options *options) {
    static const uint64_t sizes_bytes[] = {32, 8, 256, 4096};
    size_t sizes = options->bytes ? 1 : sizeof sizes_bytes / sizeof *sizes_bytes;
    for (size_t i = 0; i < sizes && options->window <= 1; i++)
        measure_point(peer, options, sizes_bytes[i], 1);
    if (options->window != 1)
        measure_point(peer, options, sizes_bytes[0], options->window ? options->window : 16);
}

int rpc_main(const struct rpc_peer *peer, int argc, char **argv) {
    struct measure_options options;
    int fds[2];
    measure_parse(argc, argv, &options);
    if (options.active > 1) { /* the peer has no point in which both processes call */
        measure_print_end(0);
        return 0;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
        rpc_fail("cannot make a socket pair");
    pid_t pid = fork();
    if (pid < 0)
        rpc_fail("cannot start the server process");
    measure_settle(&options, pid == 0 ? 1 : 0);
    close(fds[pid == 0 ? 0 : 1]);
    if (pid == 0) {
        peer->serve(&options, fds[1]);
        _exit(0);
    }
    peer->connect(&options, fds[0]);
    measure_all(peer, &options);
    measure_print_end(0);
    peer->close();
    close(fds[0]);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    return 0;
}
