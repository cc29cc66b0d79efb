/* nng.c - nng: req/rep over ipc, messages without copies between the program and nng.
 * The server answers in the callbacks of as many contexts as calls can be in flight. The client has one
 * context per call in flight. The requests have no time after which they are sent again. */
#include "rpc.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERVER_CONTEXTS 16u

/* A context of the server: it receives a request, sends it back, and begins again. */
struct worker {
    nng_ctx ctx;
    nng_aio *aio;
    int is_sending;
};

/* A call of the client. */
struct call {
    nng_ctx ctx;
    nng_aio *aio;
};

static struct {
    nng_socket socket;
    struct call calls[RPC_WINDOW_MAX];
    unsigned calls_count;
    uint64_t sent, received;
} client;

static void check(int rc, const char *what) {
    if (rc)
        rpc_fail("%s: %s", what, nng_strerror(rc));
}

static void format_url(int process, char ret_url[64]) {
    snprintf(ret_url, 64, "ipc:///tmp/remo-bench-nng-%d", process);
}

static void step(void *ctx) {
    struct worker *worker = ctx;
    int rc = nng_aio_result(worker->aio);
    if (rc == NNG_ECLOSED || rc == NNG_ECANCELED)
        return;
    check(rc, "the server cannot go on");
    worker->is_sending = !worker->is_sending;
    if (worker->is_sending) /* the message of the aio is the request */
        nng_ctx_send(worker->ctx, worker->aio);
    else
        nng_ctx_recv(worker->ctx, worker->aio);
}

static void serve(const struct measure_options *options, int fd) {
    static struct worker workers[SERVER_CONTEXTS];
    char url[64], unused;
    nng_socket socket;
    (void)options;
    format_url(getpid(), url);
    check(nng_rep0_open(&socket), "no socket");
    check(nng_listen(socket, url, NULL, 0), "cannot listen");
    for (unsigned i = 0; i < SERVER_CONTEXTS; i++) {
        check(nng_ctx_open(&workers[i].ctx, socket), "no context");
        check(nng_aio_alloc(&workers[i].aio, step, &workers[i]), "no memory");
        nng_ctx_recv(workers[i].ctx, workers[i].aio);
    }
    rpc_send(fd, url, sizeof url);
    (void)!read(fd, &unused, 1); /* until the client ends */
    nng_close(socket);
}

static void connect_client(const struct measure_options *options, int fd) {
    char url[64];
    (void)options;
    rpc_receive(fd, url, sizeof url);
    check(nng_req0_open(&client.socket), "no socket");
    check(nng_socket_set_ms(client.socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE), "no option");
    check(nng_dial(client.socket, url, NULL, 0), "cannot connect");
    unlink(url + strlen("ipc://")); /* a server that is stopped leaves it behind */
}

/* Send a request, and begin to receive its reply. */
static void start_call(const struct call *call, size_t bytes) {
    nng_msg *message;
    check(nng_msg_alloc(&message, bytes), "no memory");
    memcpy(nng_msg_body(message), &client.sent, sizeof client.sent);
    nng_aio_set_msg(call->aio, message);
    nng_ctx_send(call->ctx, call->aio);
    nng_aio_wait(call->aio);
    check(nng_aio_result(call->aio), "cannot send");
    nng_ctx_recv(call->ctx, call->aio);
    client.sent++;
}

static void end_call(const struct call *call, size_t bytes) {
    uint64_t number;
    nng_aio_wait(call->aio);
    check(nng_aio_result(call->aio), "no reply");
    nng_msg *message = nng_aio_get_msg(call->aio);
    memcpy(&number, nng_msg_body(message), sizeof number);
    if (number != client.received || nng_msg_len(message) != bytes)
        rpc_fail("a wrong reply");
    nng_msg_free(message);
    client.received++;
}

static void run(uint64_t operations, size_t bytes, unsigned window) {
    uint64_t end = client.sent + operations;
    for (; client.calls_count < window; client.calls_count++) {
        struct call *call = &client.calls[client.calls_count];
        check(nng_ctx_open(&call->ctx, client.socket), "no context");
        check(nng_aio_alloc(&call->aio, NULL, NULL), "no memory");
    }
    while (client.received < end) {
        while (client.sent < end && client.sent - client.received < window)
            start_call(&client.calls[client.sent % window], bytes);
        end_call(&client.calls[client.received % window], bytes);
    }
}

static void close_client(void) {
    for (unsigned i = 0; i < client.calls_count; i++)
        nng_aio_free(client.calls[i].aio);
    nng_close(client.socket);
}

int main(int argc, char **argv) {
    static const struct rpc_peer peer = {
        .serve = serve, .connect = connect_client, .run = run, .close = close_client};
    return rpc_main(&peer, argc, argv);
}
