/* ucx.c - UCX active messages over POSIX shared memory: a request, and a reply of the same size.
 * Each side polls its worker. The callback of a request sends the reply, from a buffer that stays valid if
 * UCX queues it: the data of a message is valid only inside its callback. */
#include "rpc.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define POLLS_BEFORE_YIELD 10000u
#define ADDRESS_BYTES_MAX 4096u
#define BUFFERS (2 * RPC_WINDOW_MAX) /* more than can be in flight */

enum message { REQUEST, REPLY };

static struct {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h endpoint;
    char (*buffers)[RPC_BYTES_MAX];
    uint64_t sent, received;
    unsigned polls_before_yield;
} side;

static void check(ucs_status_t status, const char *what) {
    if (status != UCS_OK)
        rpc_fail("%s: %s", what, ucs_status_string(status));
}

static void free_request(void *request, ucs_status_t status, void *ctx) {
    (void)ctx;
    check(status, "a message was not sent");
    ucp_request_free(request);
}

/* Send `bytes` of the next buffer. */
static void post(enum message message, size_t bytes) {
    static const ucp_request_param_t param = {.op_attr_mask =
                                                  UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS,
                                              .flags = UCP_AM_SEND_FLAG_EAGER,
                                              .cb.send = free_request};
    const char *buffer = side.buffers[side.sent++ % BUFFERS];
    ucs_status_ptr_t rc = ucp_am_send_nbx(side.endpoint, message, NULL, 0, buffer, bytes, &param);
    if (UCS_PTR_IS_ERR(rc))
        check(UCS_PTR_STATUS(rc), "cannot send");
}

static ucs_status_t take_request(void *ctx, const void *header, size_t header_bytes, void *data, size_t bytes,
                                 const ucp_am_recv_param_t *param) {
    (void)ctx, (void)header, (void)header_bytes, (void)param;
    memcpy(side.buffers[side.sent % BUFFERS], data, bytes);
    post(REPLY, bytes);
    return UCS_OK;
}

/* Replies arrive in the order of the requests. */
static ucs_status_t take_reply(void *ctx, const void *header, size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param) {
    static char copy[RPC_BYTES_MAX];
    uint64_t number;
    (void)ctx, (void)header, (void)header_bytes, (void)param;
    memcpy(copy, data, bytes);
    memcpy(&number, copy, sizeof number);
    if (number != side.received++)
        rpc_fail("a wrong reply");
    return UCS_OK;
}

static void poll_worker(void) {
    static unsigned empty;
    if (ucp_worker_progress(side.worker))
        empty = 0;
    else if (++empty % side.polls_before_yield == 0)
        sched_yield();
}

static void open_worker(const struct measure_options *options) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;
    side.polls_before_yield = options->cpus[0] == options->cpus[1] ? 1 : POLLS_BEFORE_YIELD;
    side.buffers = calloc(BUFFERS, sizeof *side.buffers);
    if (!side.buffers)
        rpc_fail("no memory");
    check(ucp_config_read(NULL, NULL, &config), "no configuration");
    check(ucp_config_modify(config, "TLS", "posix,self"), "no POSIX shared memory");
    check(ucp_init(&params, config, &side.context), "cannot initialize");
    ucp_config_release(config);
    check(ucp_worker_create(side.context, &worker, &side.worker), "cannot create a worker");
}

static void handle(enum message message, ucp_am_recv_callback_t callback) {
    ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID
                                                  | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                                                  | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                    .id = message,
                                    .flags = UCP_AM_FLAG_WHOLE_MSG,
                                    .cb = callback};
    check(ucp_worker_set_am_recv_handler(side.worker, &param), "cannot register a handler");
}

/* Exchange the addresses of both workers, and connect. */
static void connect_worker(int fd) {
    char theirs[ADDRESS_BYTES_MAX];
    ucp_address_t *own;
    size_t own_bytes, their_bytes;
    check(ucp_worker_get_address(side.worker, &own, &own_bytes), "no address");
    rpc_send(fd, &own_bytes, sizeof own_bytes);
    rpc_send(fd, own, own_bytes);
    rpc_receive(fd, &their_bytes, sizeof their_bytes);
    if (their_bytes > sizeof theirs)
        rpc_fail("an address of %zu bytes is too long", their_bytes);
    rpc_receive(fd, theirs, their_bytes);
    ucp_worker_release_address(side.worker, own);
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = (const ucp_address_t *)(const void *)theirs};
    check(ucp_ep_create(side.worker, &params, &side.endpoint), "cannot connect");
}

/* The client stops this process. */
static void serve(const struct measure_options *options, int fd) {
    open_worker(options);
    handle(REQUEST, take_request);
    connect_worker(fd);
    for (;;)
        poll_worker();
}

static void connect_client(const struct measure_options *options, int fd) {
    open_worker(options);
    handle(REPLY, take_reply);
    connect_worker(fd);
}

static void run(uint64_t operations, size_t bytes, unsigned window) {
    uint64_t end = side.sent + operations;
    while (side.received < end) {
        while (side.sent < end && side.sent - side.received < window) {
            memcpy(side.buffers[side.sent % BUFFERS], &side.sent, sizeof side.sent);
            post(REQUEST, bytes);
        }
        poll_worker();
    }
}

/* The connection is not closed: the server is stopped. */
static void close_client(void) {
    ucp_worker_destroy(side.worker);
    ucp_cleanup(side.context);
    free(side.buffers);
}

int main(int argc, char **argv) {
    static const struct rpc_peer ucx = {
        .serve = serve, .connect = connect_client, .run = run, .close = close_client};
    return rpc_main(&ucx, argc, argv);
}
