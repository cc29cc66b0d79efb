/* versions.c - node 0 replaces a text many times; all others read the newest version by its address.
 *     remo run -n 3 -- ./versions [VERSIONS]
 * Old versions are retired, and their memory is reused when no reader is pinned. */
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    uint64_t version;
    uint64_t copies[31]; /* each one is the version: a reader finds whether they are of one text */
};

struct versions {
    struct remo_node *node;
    struct remo_heap *heap;
    struct remo_owned_var *newest; /* the address of the newest text; 0 before the first one */
    struct remo_barrier *end;
};

static int open_versions(struct versions *v) {
    struct remo_channel *root = remo_node_root(v->node);
    int rc = remo_heap_open(root, "texts", NULL, &v->heap);
    rc = rc ? rc : remo_owned_var_open(root, "newest", sizeof(struct remo_addr), NULL, &v->newest);
    rc = rc ? rc : remo_barrier_open(root, "end", NULL, &v->end);
    return rc ? rc : remo_channel_wait(root, REMO_SECONDS(60));
}

/* Write a new text, publish its address, and retire the text before it. */
static int publish(struct versions *v, uint64_t version, struct remo_addr *current) {
    struct text text = {.version = version};
    struct remo_addr old = *current;
    for (size_t i = 0; i < sizeof text.copies / sizeof text.copies[0]; i++)
        text.copies[i] = version;
    int rc = remo_heap_alloc(v->heap, sizeof text, 0, current);
    rc = rc ? rc : remo_write(v->node, *current, &text, sizeof text, NULL);
    rc = rc ? rc : remo_fence(v->node, REMO_FENCE_THREAD, 0);
    rc = rc ? rc : remo_owned_var_store(v->newest, current);
    rc = rc ? rc : remo_owned_var_push_all(v->newest, NULL);
    rc = rc ? rc : remo_fence(v->node, REMO_FENCE_THREAD, 0); /* no later pin finds the old address */
    return rc || old.word == 0 ? rc : remo_heap_retire(v->heap, old);
}

/* Read the newest text. The pin keeps its memory from being reused meanwhile. */
static int read_newest(struct versions *v, struct text *text) {
    struct remo_addr addr;
    int rc = remo_heap_pin(v->heap);
    if (rc != 0)
        return rc;
    rc = remo_owned_var_load(v->newest, &addr);
    if (rc == 0 && addr.word != 0)
        rc = remo_read(v->node, addr, text, sizeof *text, NULL);
    int unpinned = remo_heap_unpin(v->heap);
    return rc ? rc : unpinned;
}

static int read_until(struct versions *v, uint64_t last, uint64_t *mixed) {
    struct text text = {0};
    int rc = 0;
    while (rc == 0 && text.version < last) {
        rc = read_newest(v, &text);
        for (size_t i = 0; i < sizeof text.copies / sizeof text.copies[0]; i++)
            *mixed += text.copies[i] != text.version;
    }
    return rc;
}

int main(int argc, char **argv) {
    struct versions v = {0};
    struct remo_addr current = {0};
    struct remo_heap_sizes sizes = {0};
    uint64_t mixed = 0, last = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    int rc = remo_node_open(NULL, &v.node);
    rc = rc ? rc : open_versions(&v);
    if (rc == 0 && remo_node_rank(v.node) != 0)
        rc = read_until(&v, last, &mixed);
    for (uint64_t version = 1; rc == 0 && remo_node_rank(v.node) == 0 && version <= last; version++)
        rc = publish(&v, version, &current);
    rc = rc ? rc : remo_barrier_wait(v.end, REMO_SECONDS(60));
    rc = rc ? rc : remo_heap_reclaim(v.heap, REMO_SECONDS(60));
    remo_heap_stats(v.heap, &sizes);
    if (rc == 0 && remo_node_rank(v.node) == 0)
        printf("version %llu is the last; %llu bytes are in use\n", (unsigned long long)last,
               (unsigned long long)sizes.live_bytes);
    if (rc != 0 || mixed != 0)
        fprintf(stderr, "versions: %s: %s\n", remo_error_name(rc), mixed ? "mixed texts" : remo_last_error());
    remo_barrier_close(v.end);
    remo_owned_var_close(v.newest);
    remo_heap_close(v.heap);
    remo_node_close(v.node);
    return rc != 0 || mixed != 0;
}
