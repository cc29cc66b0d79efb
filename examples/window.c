/* window.c - read the memory of a peer with many reads in flight: a window of acks.
 *     remo run -n 2 -- ./window [WINDOW]        Node 0 reads and checks the data of node 1.
 * A window of reads waits for the network about as long as a single read. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCKS 4096u
#define BLOCK_WORDS 64u
#define WINDOW_MAX 64u

struct slot { /* one read in flight: ack and result stay in place until the read is complete */
    struct remo_ack ack;
    uint64_t words[BLOCK_WORDS];
};

static uint64_t word_of(uint64_t block, uint64_t word) {
    return block * 1000003 + word;
}

/* Node 1 fills its share; the barrier makes it visible to node 0. */
static int fill(struct remo_region *region, uint32_t node) {
    uint64_t words[BLOCK_WORDS];
    int rc = 0;
    for (uint64_t block = 0; rc == 0 && block < BLOCKS; block++) {
        for (uint64_t i = 0; i < BLOCK_WORDS; i++)
            words[i] = word_of(block, i);
        rc = remo_region_write(region, node, block * sizeof words, words, sizeof words, 0, NULL);
    }
    return rc;
}

/* Wait for the read in a slot, and count its correct words. */
static int finish(struct slot *slot, uint64_t block, uint64_t *right) {
    int rc = remo_ack_wait(&slot->ack, REMO_SECONDS(10));
    for (uint64_t i = 0; rc == 0 && i < BLOCK_WORDS; i++)
        *right += slot->words[i] == word_of(block, i);
    return rc;
}

/* Slot b % window reads block b, after its previous read is complete. */
static int read_all(struct remo_region *region, uint32_t from, uint64_t window, uint64_t *right) {
    static struct slot slots[WINDOW_MAX];
    int rc = 0;
    for (uint64_t block = 0; rc == 0 && block < BLOCKS + window; block++) {
        struct slot *slot = &slots[block % window];
        if (block >= window)
            rc = finish(slot, block - window, right);
        if (rc == 0 && block < BLOCKS) {
            slot->ack = (struct remo_ack)REMO_ACK_INIT;
            rc = remo_region_read(region, from, block * sizeof slot->words, slot->words, sizeof slot->words,
                                  &slot->ack);
        }
    }
    for (uint64_t i = 0; rc != 0 && i < window; i++)
        remo_ack_cancel(&slots[i].ack);
    return rc;
}

int main(int argc, char **argv) {
    struct remo_node *node;
    struct remo_region *region = NULL;
    struct remo_barrier *barrier = NULL;
    uint64_t right = 0, window = argc > 1 ? strtoull(argv[1], NULL, 10) : 16;
    int rc = window >= 1 && window <= WINDOW_MAX ? remo_node_open(NULL, &node) : -EINVAL;
    if (rc == 0) {
        uint32_t last = remo_node_size(node) - 1, rank = remo_node_rank(node);
        rc = remo_region_open(remo_node_root(node), "blocks", BLOCKS * BLOCK_WORDS * 8, NULL, &region);
        rc = rc ? rc : remo_barrier_open(remo_node_root(node), "all", NULL, &barrier);
        rc = rc ? rc : remo_channel_wait(remo_node_root(node), REMO_SECONDS(60));
        rc = rc || rank != last ? rc : fill(region, last);
        rc = rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER);
        rc = rc || rank != 0 ? rc : read_all(region, last, window, &right);
        rc = rc ? rc : remo_barrier_wait(barrier, REMO_FOREVER);
        if (rc == 0 && rank == 0)
            printf("read %llu words in a window of %llu, %llu of them right\n",
                   (unsigned long long)BLOCKS * BLOCK_WORDS, (unsigned long long)window,
                   (unsigned long long)right);
        if (rc == 0 && rank == 0 && right != (uint64_t)BLOCKS * BLOCK_WORDS)
            rc = -EBADMSG;
        remo_barrier_close(barrier);
        remo_region_close(region);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "window: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
