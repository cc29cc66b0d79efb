/* kv.c - the client of key-value servers (kv.h): starts a server, fills it, measures reads and updates.
 * Every reply is checked. */
#include "kv.h"

#include "base/clock.h"
#include "base/random.h"
#include "zipf.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WINDOW_MAX 1024
#define REPLY_BYTES_MAX 32
#define REPLY_NS (10 * REMO__NS_PER_S)

struct client {
    const struct kv_server *server;
    const struct measure_options *options;
    int fd;
    int shares_processor; /* with the server: then the client must sleep, or the server would not run */
    unsigned window;
    int read_percent;
    struct remo__random random;
    struct zipf zipf;
    char requests[WINDOW_MAX * KV_REQUEST_BYTES_MAX];
    char replies[WINDOW_MAX * REPLY_BYTES_MAX];
    char keys[WINDOW_MAX][KV_WORD_BYTES];
    char is_get[WINDOW_MAX];
};

/* ---- the server's process ---- */

static void settle_server(const void *ctx) {
    const struct measure_options *options = ctx;
    measure_settle(options, 1);
}

/* Returns the connected socket, or -1 after printing the error. */
static int start_server(const struct kv_server *server, const struct measure_options *options) {
    char texts[2][32];
    const char *argv[KV_ARGUMENTS_MAX];
    struct server_endpoint endpoint;
    bool is_tcp = options->transport && strcmp(options->transport, MEASURE_TCP) == 0;
    if (!server_make_folder(NULL) || server_choose_endpoint(is_tcp, &endpoint) != 0)
        return -1;
    server->command(options, &endpoint, texts, argv);
    server_launch(argv, SIGTERM, settle_server, options);
    return server_await();
}

/* ---- requests and replies ---- */

/* Six bits of the index per character. */
static void make_key(uint64_t index, char ret_key[KV_WORD_BYTES]) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
    for (int i = 0; i < KV_WORD_BYTES; i++)
        ret_key[i] = digits[index >> (6 * i) & 63];
}

/* Return whether the received part of a reply differs from `expected`. */
static int differs(const char *reply, size_t have_bytes, const char *expected, size_t expected_bytes) {
    return memcmp(reply, expected, have_bytes < expected_bytes ? have_bytes : expected_bytes) != 0;
}

/* Return the length of the reply to request `i` once it is complete, 0 before, and -1 if it is
 * wrong: every key exists, and its value is the key. */
static ssize_t check_reply(const struct client *client, unsigned i, const char *reply, size_t have_bytes) {
    const struct kv_server *server = client->server;
    const char *head = client->is_get[i] ? server->get_reply : server->set_reply;
    size_t head_bytes = strlen(head), whole_bytes = head_bytes;
    if (differs(reply, have_bytes, head, head_bytes))
        return -1;
    if (client->is_get[i]) {
        whole_bytes += KV_WORD_BYTES + strlen(server->get_end);
        if (have_bytes > head_bytes
            && differs(reply + head_bytes, have_bytes - head_bytes, client->keys[i], KV_WORD_BYTES))
            return -1;
    }
    return have_bytes < whole_bytes ? 0 : (ssize_t)whole_bytes;
}

static void give_up(const struct client *client, const char *why, const char *detail, size_t detail_bytes) {
    fprintf(stderr, "%s: %s %.*s\n", client->server->program, why,
            (int)(detail_bytes < 40 ? detail_bytes : 40), detail);
    server_stop();
    exit(1);
}

static size_t send_some(struct client *client, const char *bytes, size_t count) {
    ssize_t sent = count ? send(client->fd, bytes, count, MSG_NOSIGNAL) : 0;
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        give_up(client, "the connection broke:", strerror(errno), 40);
    return sent > 0 ? (size_t)sent : 0;
}

static size_t receive_some(struct client *client, char *into, size_t room) {
    ssize_t got = recv(client->fd, into, room, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        give_up(client, "the server closed the connection", "", 0);
    if (got < 0 && client->shares_processor)
        poll(&(struct pollfd){client->fd, POLLIN, 0}, 1, 1000);
    return got > 0 ? (size_t)got : 0;
}

/* Send `requests_bytes` of requests and take `count` replies. */
static void exchange(struct client *client, size_t requests_bytes, unsigned count) {
    size_t sent = 0, have = 0, used = 0;
    uint64_t polls = 0, deadline = 0;
    for (unsigned done = 0; done < count;) {
        sent += send_some(client, client->requests + sent, requests_bytes - sent);
        size_t got = receive_some(client, client->replies + have, sizeof client->replies - have);
        have += got;
        for (ssize_t length = 1; got && done < count && length > 0 && used < have;) {
            length = check_reply(client, done, client->replies + used, have - used);
            if (length < 0)
                give_up(client, "an unexpected reply:", client->replies + used, have - used);
            used += (size_t)length;
            done += length > 0;
        }
        if (++polls % 65536 == 0) {
            deadline = deadline ? deadline : remo__deadline(REPLY_NS);
            if (remo__remaining_ns(deadline) == 0)
                give_up(client, "no reply for too long", "", 0);
        }
    }
}

static size_t add_request(struct client *client, unsigned i, size_t at, uint64_t index, int is_get) {
    const struct kv_server *server = client->server;
    char *key = client->keys[i], *request = client->requests + at;
    make_key(index, key);
    client->is_get[i] = (char)is_get;
    return at + (is_get ? server->get(request, key) : server->set(request, key, key));
}

static void fill(struct client *client) {
    uint64_t count = client->options->keys_count;
    for (uint64_t first = 0; first < count; first += 128) {
        size_t bytes = 0;
        unsigned requests = 0;
        for (; requests < 128 && first + requests < count; requests++)
            bytes = add_request(client, requests, bytes, first + requests, 0);
        exchange(client, bytes, requests);
    }
}

static double batch(void *ctx, uint64_t operations) {
    struct client *client = ctx;
    uint64_t start_ns = remo__now_ns();
    for (uint64_t done = 0; done < operations; done += client->window) {
        size_t bytes = 0;
        for (unsigned i = 0; i < client->window; i++) {
            uint64_t index = client->options->zipf > 0
                                 ? zipf_next(&client->zipf, &client->random)
                                 : remo__random_below(&client->random, client->options->keys_count);
            int is_get = client->read_percent == 100
                         || remo__random_below(&client->random, 100) < (uint64_t)client->read_percent;
            bytes = add_request(client, i, bytes, index, is_get);
        }
        exchange(client, bytes, client->window);
    }
    return (double)(remo__now_ns() - start_ns);
}

/* ---- the figures ---- */

static void measure_point(struct client *client, int read_percent, unsigned window) {
    const struct measure_options *options = client->options;
    struct measure_result result;
    client->read_percent = read_percent;
    client->window = window;
    measure_run(batch, client, window, options->seconds, &result);
    char distribution[32] = "uniform";
    if (options->zipf > 0)
        snprintf(distribution, sizeof distribution, "zipf %.2f", options->zipf);
    struct measure_subject subject = {.bench = "kv",
                                      .object = "kv",
                                      .nodes = 1,
                                      .bytes = KV_WORD_BYTES,
                                      .window = window,
                                      .keys_count = options->keys_count,
                                      .read_percent = read_percent,
                                      .keys = distribution};
    measure_print(options, &subject, &result);
}

static void measure_all(struct client *client) {
    static const int read_percents[] = {100, 50, 0};
    static const unsigned windows[] = {1, 3, 128};
    const struct measure_options *options = client->options;
    for (int r = 0; r < 3; r++)
        for (int w = 0; w < 3; w++) {
            /* A given option replaces all default values. */
            if ((options->read_percent >= 0 && r > 0) || (options->window && w > 0))
                continue;
            measure_point(client, options->read_percent >= 0 ? options->read_percent : read_percents[r],
                          options->window ? options->window : windows[w]);
        }
}

int kv_main(const struct kv_server *server, int argc, char **argv) {
    struct measure_options options;
    measure_parse(argc, argv, &options);
    measure_settle(&options, 0);
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return 1;
    client->server = server;
    client->options = &options;
    client->shares_processor = options.cpus[0] == options.cpus[1];
    remo__random_seed(&client->random, 1);
    if (options.zipf > 0)
        zipf_prepare(&client->zipf, options.keys_count, options.zipf);
    client->fd = start_server(server, &options);
    int started = client->fd >= 0;
    if (started) {
        fill(client);
        measure_all(client);
        measure_print_end(0);
        close(client->fd);
    }
    server_stop();
    free(client);
    return started ? 0 : 1;
}
