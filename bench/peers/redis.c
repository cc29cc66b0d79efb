/* redis.c - Redis without persistence, over a Unix socket or TCP loopback, pipelined.
 * Every user of the machine can connect to the TCP port during the benchmark. Therefore commands
 * are removed that let clients write files or load code. */
#include "bench/peers/redis_tx.h"

#include <string.h>

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

static size_t get(char *at, const char key[KV_WORD_BYTES]) {
    static const char head[] = "*2\r\n$3\r\nGET\r\n$8\r\n";
    memcpy(at, head, sizeof head - 1);
    memcpy(at + sizeof head - 1, key, KV_WORD_BYTES);
    memcpy(at + sizeof head - 1 + KV_WORD_BYTES, "\r\n", 2);
    return sizeof head - 1 + KV_WORD_BYTES + 2;
}

static size_t set(char *at, const char key[KV_WORD_BYTES], const char value[KV_WORD_BYTES]) {
    static const char head[] = "*3\r\n$3\r\nSET\r\n$8\r\n", middle[] = "\r\n$8\r\n";
    char *to = at;
    to = (char *)memcpy(to, head, sizeof head - 1) + sizeof head - 1;
    to = (char *)memcpy(to, key, KV_WORD_BYTES) + KV_WORD_BYTES;
    to = (char *)memcpy(to, middle, sizeof middle - 1) + sizeof middle - 1;
    to = (char *)memcpy(to, value, KV_WORD_BYTES) + KV_WORD_BYTES;
    memcpy(to, "\r\n", 2);
    return (size_t)(to + 2 - at);
}

int main(int argc, char **argv) {
    static const struct kv_server redis = {.program = "redis-server",
                                           .command = redis_command_line,
                                           .get = get,
                                           .set = set,
                                           .get_reply = "$8\r\n",
                                           .get_end = "\r\n",
                                           .set_reply = "+OK\r\n"};
    struct measure_options options;
    measure_parse(argc, argv, &options);
    if (strcmp(options.bench, "kv") != 0)
        return transactions_main(&redis_transactions, argc, argv);
    return kv_main(&redis, argc, argv);
}
