/* structure.c - opens the structure of directory.h, and uses it in lookups and in a transaction.
 *     remo run -n 3 -- ./structure
 * Each node inserts keys of its own, and looks up those of the next node. Then it renames one of them. */
#include <stdio.h>

#include "directory.h"

#define KEYS 32u /* of each node */

struct program {
    struct directory directory;
    struct remo_structure *structure; /* the directory's */
    struct remo_tx_space *space;
    struct remo_tx *tx;
    struct remo_barrier *all;
    uint32_t rank, next;
};

static int open_all(struct program *p, struct remo_node *node) {
    struct remo_channel *root = remo_node_root(node);
    int rc = directory_open(root, "directory", &p->directory);
    p->structure = p->directory.structure;
    p->rank = remo_node_rank(node);
    p->next = (p->rank + 1) % remo_node_size(node);
    const struct remo_tx_space_options space = {.structures = &p->structure, .structure_count = 1};
    rc = rc ? rc : remo_tx_space_open(root, "renames", &space, &p->space);
    rc = rc ? rc : remo_tx_open(p->space, &p->tx);
    rc = rc ? rc : remo_barrier_open(root, "all", NULL, &p->all);
    return rc ? rc : remo_channel_wait(root, REMO_SECONDS(60));
}

static size_t print_key(char key[KEY_BYTES_MAX], uint32_t owner, uint32_t number) {
    return (size_t)snprintf(key, KEY_BYTES_MAX, "%u/user %u", owner, number);
}

static int insert_own(struct program *p) {
    char key[KEY_BYTES_MAX];
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < KEYS; i++)
        rc = remo_structure_insert(p->structure, key, print_key(key, p->rank, (uint32_t)i), &i, sizeof i);
    return rc;
}

/* Look up the keys of the next node. Count how the lookups end: enum remo_lookup_way. */
static int look_up_next(const struct program *p) {
    char key[KEY_BYTES_MAX];
    uint32_t ways[3] = {0};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < KEYS; i++) {
        enum remo_lookup_way way = REMO_LOOKUP_WAY_LOCAL;
        uint64_t value, bytes = print_key(key, p->next, i);
        rc = remo_structure_lookup(p->structure, key, bytes, &value, sizeof value, NULL, &way);
        ways[way]++;
    }
    if (rc == 0 && p->rank == 0)
        printf("%u keys of node %u: %u local, %u by a read, %u by a call\n", KEYS, p->next, ways[0], ways[1],
               ways[2]);
    return rc;
}

/* A transaction: both keys have one owner, so it commits by one call. */
static int rename_key(void *ctx, struct remo_tx *tx) {
    struct program *p = ctx;
    char old[KEY_BYTES_MAX], new[KEY_BYTES_MAX];
    size_t old_bytes = print_key(old, p->next, 0), new_bytes = print_key(new, p->next, KEYS);
    uint64_t value;
    int rc = remo_tx_read(tx, p->structure, old, old_bytes, &value, sizeof value, NULL);
    rc = rc ? rc : remo_tx_delete(tx, p->structure, old, old_bytes);
    return rc ? rc : remo_tx_insert(tx, p->structure, new, new_bytes, &value, sizeof value);
}

static int work(struct program *p) {
    int rc = insert_own(p);
    rc = rc ? rc : remo_barrier_wait(p->all, REMO_FOREVER);
    rc = rc ? rc : look_up_next(p); /* learns where moved keys are */
    rc = rc ? rc : look_up_next(p);
    rc = rc ? rc : remo_tx_run(p->tx, rename_key, p, REMO_SECONDS(30));
    if (rc == 0 && look_up_next(p) == -ENOENT && p->rank == 0)
        printf("key 0 of node %u is absent: it has a new name\n", p->next);
    return rc ? rc : remo_barrier_wait(p->all, REMO_FOREVER); /* all may close */
}

int main(void) {
    struct program p = {0};
    struct remo_node *node;
    int rc = remo_node_open(NULL, &node);
    if (rc == 0) {
        rc = open_all(&p, node);
        rc = rc ? rc : work(&p);
        remo_tx_close(p.tx);
        remo_tx_space_close(p.space);
        remo_barrier_close(p.all);
        remo_structure_close(p.structure);
        remo_node_close(node);
    }
    if (rc != 0)
        fprintf(stderr, "structure: %s: %s\n", remo_error_name(rc), remo_last_error());
    return rc != 0;
}
