/* redis_client.c - the server's command line, and commands and replies of its protocol, RESP 2
 * (redis_client.h). Commands are sent together when the program waits for a reply. The client sleeps
 * meanwhile: it shares the processors with the server. */
#include "bench/peers/redis_client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "bench/peers/processes.h"

#define REPLY_SECONDS 30

struct redis_client {
    int fd;
    size_t to_send;       /* bytes of `commands` */
    size_t used, present; /* of `replies`: bytes that were returned, and received */
    char commands[REDIS_BUFFER_BYTES], replies[REDIS_BUFFER_BYTES];
};

/* ---- the server ---- */

/* Every user of the machine can connect to a TCP port during the benchmark. Therefore commands are removed
 * that let clients write files or load code. */
void redis_command_line(const struct measure_options *options, const struct server_endpoint *endpoint,
                        char texts[2][32], const char *ret_argv[KV_ARGUMENTS_MAX]) {
    static const char *const common[] = {"--save",
                                         "",
                                         "--appendonly",
                                         "no",
                                         "--daemonize",
                                         "no",
                                         "--loglevel",
                                         "warning",
                                         "--rename-command",
                                         "CONFIG",
                                         "",
                                         "--rename-command",
                                         "MODULE",
                                         "",
                                         "--rename-command",
                                         "DEBUG",
                                         "",
                                         "--rename-command",
                                         "REPLICAOF",
                                         "",
                                         "--rename-command",
                                         "SLAVEOF",
                                         "",
                                         NULL};
    const char *const over_tcp[] = {"redis-server", "--bind", "127.0.0.1", "--port", endpoint->port};
    const char *const over_unix[] = {"redis-server",        "--port",           "0",  "--unixsocket",
                                     endpoint->socket_path, "--unixsocketperm", "700"};
    size_t count =
        endpoint->is_tcp ? sizeof over_tcp / sizeof *over_tcp : sizeof over_unix / sizeof *over_unix;
    (void)options;
    (void)texts;
    memcpy(ret_argv, endpoint->is_tcp ? over_tcp : over_unix, count * sizeof *ret_argv);
    memcpy(ret_argv + count, common, sizeof common);
}

static void settle(const void *ctx) {
    server_share_processors(ctx);
}

void redis_start(const struct measure_options *options) {
    char texts[2][32];
    const char *argv[KV_ARGUMENTS_MAX];
    struct server_endpoint endpoint;
    if (!server_make_folder(NULL) || server_choose_endpoint(false, &endpoint) != 0)
        exit(1);
    redis_command_line(options, &endpoint, texts, argv);
    server_launch(argv, SIGTERM, settle, options);
    int fd = server_await();
    if (fd < 0)
        exit(1);
    close(fd);
}

struct redis_client *redis_open(void) {
    struct redis_client *client = calloc(1, sizeof *client);
    if (!client)
        processes_fail("no memory for the connection");
    client->fd = server_connect();
    if (client->fd < 0)
        processes_fail("cannot connect to Redis: %s", strerror(errno));
    fcntl(client->fd, F_SETFL, 0);
    setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = REPLY_SECONDS},
               sizeof(struct timeval));
    return client;
}

/* ---- commands ---- */

static void send_all(struct redis_client *client) {
    for (size_t sent = 0; sent < client->to_send;) {
        ssize_t count = send(client->fd, client->commands + sent, client->to_send - sent, MSG_NOSIGNAL);
        if (count < 0 && errno != EINTR)
            processes_fail("cannot send to Redis: %s", strerror(errno));
        sent += count > 0 ? (size_t)count : 0;
    }
    client->to_send = 0;
}

static void append(struct redis_client *client, const void *bytes, size_t count) {
    if (count > REDIS_BUFFER_BYTES - client->to_send)
        processes_fail("the commands of a window exceed %u bytes; give a smaller --window",
                       REDIS_BUFFER_BYTES);
    memcpy(client->commands + client->to_send, bytes, count);
    client->to_send += count;
}

/* Append a line of a letter and a number. */
static void append_count(struct redis_client *client, char letter, size_t count) {
    char line[24];
    char *at = line + sizeof line;
    *--at = '\n';
    *--at = '\r';
    do
        *--at = (char)('0' + count % 10);
    while ((count /= 10) > 0);
    *--at = letter;
    append(client, at, (size_t)(line + sizeof line - at));
}

void redis_add(struct redis_client *client, const struct redis_word *words, size_t count) {
    append_count(client, '*', count);
    for (size_t i = 0; i < count; i++) {
        append_count(client, '$', words[i].count);
        append(client, words[i].bytes, words[i].count);
        append(client, "\r\n", 2);
    }
}

void redis_add_script(struct redis_client *client, const char sha[REDIS_SHA_BYTES],
                      const struct redis_word *words, size_t count, unsigned keys) {
    const char digit = (char)('0' + keys);
    struct redis_word all[REDIS_WORDS_MAX] = {{"EVALSHA", 7}, {sha, REDIS_SHA_BYTES - 1}, {&digit, 1}};
    if (count > REDIS_WORDS_MAX - 3)
        processes_fail("a call of a script has at most %d words", REDIS_WORDS_MAX);
    memcpy(all + 3, words, count * sizeof *words);
    redis_add(client, all, 3 + count);
}

struct redis_word redis_number(char text[REDIS_NUMBER_BYTES], char letter, uint64_t number) {
    char *at = text + REDIS_NUMBER_BYTES;
    do
        *--at = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    if (letter)
        *--at = letter;
    return redis_bytes(at, (size_t)(text + REDIS_NUMBER_BYTES - at));
}

/* ---- replies ---- */

static void receive_some(struct redis_client *client) {
    if (client->to_send > 0)
        send_all(client);
    if (client->used > 0) {
        client->present -= client->used;
        memmove(client->replies, client->replies + client->used, client->present);
        client->used = 0;
    }
    ssize_t count =
        recv(client->fd, client->replies + client->present, REDIS_BUFFER_BYTES - client->present, 0);
    if (count == 0 || (count < 0 && errno != EINTR))
        processes_fail("no reply of Redis: %s",
                       count == 0 ? "it has closed the connection" : strerror(errno));
    client->present += count > 0 ? (size_t)count : 0;
}

/* Return bytes that end with CR LF; `count` includes the end, or is 0 for a line. */
static const char *take(struct redis_client *client, size_t count, size_t *ret_count) {
    for (;;) {
        const char *at = client->replies + client->used, *end = NULL;
        size_t present = client->present - client->used;
        if (count == 0)
            end = memchr(at, '\n', present);
        else if (present >= count)
            end = at + count - 1;
        if (end) {
            client->used += (size_t)(end + 1 - at);
            *ret_count = (size_t)(end - 1 - at);
            return at;
        }
        receive_some(client);
    }
}

/* Take a line with a number. Returns its letter. */
static char take_number(struct redis_client *client, int64_t *ret_number) {
    size_t count;
    const char *line = take(client, 0, &count);
    if (line[0] != ':' && line[0] != '$' && line[0] != '*' && line[0] != '+')
        processes_fail("Redis reports: %.*s", (int)count, line);
    *ret_number = line[0] == '+' ? 0 : strtoll(line + 1, NULL, 10);
    return line[0];
}

void redis_receive(struct redis_client *client, struct redis_reply *ret_reply) {
    int64_t number;
    char letter = take_number(client, &number);
    *ret_reply = (struct redis_reply){.is_integer = letter == ':' || letter == '+', .integer = number};
    if (letter == '*')
        processes_fail("Redis returned an array");
    if (letter != '$')
        return;
    ret_reply->is_missing = number < 0;
    if (number >= 0)
        ret_reply->bytes = take(client, (size_t)number + 2, &ret_reply->count);
}

void redis_receive_array(struct redis_client *client, size_t count) {
    int64_t number;
    if (take_number(client, &number) != '*' || number != (int64_t)count)
        processes_fail("Redis did not return an array of %zu elements", count);
}

void redis_load(struct redis_client *client, const char *script, char ret_sha[REDIS_SHA_BYTES]) {
    const struct redis_word words[] = {{"SCRIPT", 6}, {"LOAD", 4}, {script, strlen(script)}};
    struct redis_reply reply;
    redis_add(client, words, sizeof words / sizeof *words);
    redis_receive(client, &reply);
    if (reply.count != REDIS_SHA_BYTES - 1)
        processes_fail("Redis did not return the hash of a script");
    memcpy(ret_sha, reply.bytes, reply.count);
    ret_sha[reply.count] = '\0';
}
