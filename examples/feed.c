/* feed.c - node 0 sends lines to all other nodes, in order, through a ring buffer.
 *     remo run -n 3 -- ./feed [LINES]
 * The sender waits for the slowest receiver when the ring is full, and skips failed receivers. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 200u

/* Line i has between 1 and LINE_BYTES - 1 bytes, so every node can compute what it must receive. */
static size_t line_of(uint64_t i, char line[LINE_BYTES]) {
    size_t bytes = 1 + i * 37 % (LINE_BYTES - 1);
    memset(line, 'a' + (int)(i % 26), bytes);
    return bytes;
}

static int send_all(struct remo_ringbuffer *ring, uint64_t lines) {
    char line[LINE_BYTES];
    uint64_t position = 0;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < lines; i++)
        rc = remo_ringbuffer_send(ring, line, line_of(i, line), REMO_FOREVER, &position);
    return rc ? rc : remo_ringbuffer_wait_received(ring, position, REMO_FOREVER);
}

static int receive_all(struct remo_ringbuffer *ring, uint64_t lines) {
    char line[LINE_BYTES], expected[LINE_BYTES];
    size_t bytes;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < lines; i++) {
        rc = remo_ringbuffer_receive(ring, line, sizeof line, &bytes, REMO_FOREVER);
        if (rc == 0 && (bytes != line_of(i, expected) || memcmp(line, expected, bytes) != 0))
            rc = -EBADMSG;
    }
    return rc ? rc : remo_ringbuffer_acknowledge(ring); /* the sender waits for it */
}

int main(int argc, char **argv) {
    struct remo_node *node;
    struct remo_ringbuffer *ring = NULL;
    uint64_t lines = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    int rc = remo_node_open(NULL, &node);
    if (rc == 0) {
        rc = remo_ringbuffer_open(remo_node_root(node), "lines", NULL, &ring);
        rc = rc ? rc : remo_channel_wait(remo_node_root(node), REMO_SECONDS(60));
        if (rc == 0 && remo_node_rank(node) == 0)
            rc = send_all(ring, lines);
        else if (rc == 0)
            rc = receive_all(ring, lines);
        if (rc == 0 && remo_node_rank(node) == 0)
            printf("%u nodes received %llu lines in order\n", remo_node_size(node) - 1,
                   (unsigned long long)lines);
        remo_ringbuffer_close(ring);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "feed: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
