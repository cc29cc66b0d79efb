/* redis.c - Redis without persistence, over a Unix socket or TCP loopback, pipelined: its map (kv.h), and
 * transactions (redis_tx.c), and an ordered map (redis_tree.c). */
#include "bench/peers/redis_tx.h"

#include <string.h>

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
    if (ordered_has(options.bench))
        return ordered_main(&redis_ordered, argc, argv);
    if (strcmp(options.bench, "kv") != 0)
        return transactions_main(&redis_transactions, argc, argv);
    return kv_main(&redis, argc, argv);
}
