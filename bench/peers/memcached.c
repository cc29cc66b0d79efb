/* memcached.c - memcached with one worker thread, over a Unix socket or TCP loopback.
 * It uses pipelined meta commands, the protocol that its authors recommend, with the shortest
 * replies. */
#include "kv.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ITEM_BYTES 120 /* server memory for an item of 16 bytes, with a margin */
#define MEMORY_MIB_MIN 64

static void command(const struct measure_options *options, const struct server_endpoint *endpoint,
                    char texts[2][32], const char *ret_argv[KV_ARGUMENTS_MAX]) {
    unsigned power = 16; /* of the hash table, so that it does not grow during the measurement */
    while (power < 31 && 1ull << power < options->keys_count)
        power++;
    snprintf(texts[0], 32, "%llu",
             (unsigned long long)(options->keys_count * ITEM_BYTES >> 20) + MEMORY_MIB_MIN);
    snprintf(texts[1], 32, "hashpower=%u", power);
    const char *const over_tcp[] = {"memcached", "-l", "127.0.0.1", "-p", endpoint->port};
    const char *const over_unix[] = {"memcached", "-s", endpoint->socket_path, "-a", "0700"};
    /* memcached refuses to run as root unless the user is named. */
    const char *const common[] = {"-t",   "1",  "-m",   texts[0], "-M",     "-U",
                                  "0",    "-R", "1000", "-o",     texts[1], geteuid() == 0 ? "-u" : NULL,
                                  "root", NULL};
    size_t count = sizeof over_tcp / sizeof *over_tcp;
    _Static_assert(sizeof over_tcp == sizeof over_unix, "one count for both");
    memcpy(ret_argv, endpoint->is_tcp ? over_tcp : over_unix, sizeof over_tcp);
    memcpy(ret_argv + count, common, sizeof common);
}

static size_t get(char *at, const char key[KV_WORD_BYTES]) {
    memcpy(at, "mg ", 3);
    memcpy(at + 3, key, KV_WORD_BYTES);
    memcpy(at + 3 + KV_WORD_BYTES, " v\r\n", 4);
    return 3 + KV_WORD_BYTES + 4;
}

static size_t set(char *at, const char key[KV_WORD_BYTES], const char value[KV_WORD_BYTES]) {
    char *to = at;
    to = (char *)memcpy(to, "ms ", 3) + 3;
    to = (char *)memcpy(to, key, KV_WORD_BYTES) + KV_WORD_BYTES;
    to = (char *)memcpy(to, " 8\r\n", 4) + 4;
    to = (char *)memcpy(to, value, KV_WORD_BYTES) + KV_WORD_BYTES;
    memcpy(to, "\r\n", 2);
    return (size_t)(to + 2 - at);
}

int main(int argc, char **argv) {
    static const struct kv_server memcached = {.program = "memcached",
                                               .command = command,
                                               .get = get,
                                               .set = set,
                                               .get_reply = "VA 8\r\n",
                                               .get_end = "\r\n",
                                               .set_reply = "HD\r\n"};
    return kv_main(&memcached, argc, argv);
}
