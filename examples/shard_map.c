/* shard_map.c - a routing table: node 0 rebalances shards over servers, and all nodes route by the table.
 *     remo run -n 3 -- ./shard_map [REBALANCINGS]
 * A rebalancing exchanges the slots of two shards in one commit. To route, a node reads one object. The nodes
 * also read all objects as of one instant, and verify that no slot has two shards. */
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SERVERS 4u
#define SLOTS 8u /* of each server */
#define SHARDS (SERVERS * SLOTS)

struct place { /* of a shard: one object of the table */
    uint32_t server, slot;
};

struct shard_map {
    struct remo_node *node;
    struct remo_versioned *table;
    struct remo_barrier *end;
    uint64_t routed[SERVERS], faults; /* counts of this node */
};

static int open_map(struct shard_map *map) {
    struct remo_versioned_options options = {.objects = SHARDS, .object_bytes = sizeof(struct place)};
    remo_nodeset_add(&options.owners, 0);
    struct remo_channel *root = remo_node_root(map->node);
    int rc = remo_versioned_open(root, "shards", &options, &map->table);
    rc = rc ? rc : remo_barrier_open(root, "end", NULL, &map->end);
    return rc ? rc : remo_channel_wait(root, REMO_SECONDS(60));
}

/* Node 0: place all shards, then exchange the slots of two at a time. */
static int rebalance(struct shard_map *map, uint64_t rebalancings) {
    struct place places[SHARDS];
    struct remo_versioned_change all[SHARDS];
    for (uint32_t i = 0; i < SHARDS; i++) {
        places[i] = (struct place){i % SERVERS, i / SERVERS};
        all[i] = (struct remo_versioned_change){i, 0, sizeof places[i], &places[i]};
    }
    int rc = remo_versioned_commit(map->table, all, SHARDS, NULL);
    for (uint64_t i = 0; rc == 0 && i < rebalancings; i++) {
        uint32_t a = i % SHARDS, b = (a + 1 + i / SHARDS % (SHARDS - 1)) % SHARDS;
        struct place moved = places[a];
        places[a] = places[b];
        places[b] = moved;
        rc = remo_versioned_commit(map->table, (struct remo_versioned_change[]){all[a], all[b]}, 2, NULL);
        usleep(50);
    }
    return rc;
}

/* Find the server of a shard. A client would now call this server. */
static int route(struct shard_map *map, uint32_t shard) {
    struct place place = {0};
    int rc = remo_versioned_read(map->table, 0, shard, &place, NULL);
    map->routed[place.server % SERVERS] += rc == 0;
    return rc;
}

/* Read all places as of one instant. Before version 1 no shard is placed. */
static int verify(struct shard_map *map, uint64_t *version) {
    struct remo_versioned_item items[SHARDS];
    struct place places[SHARDS];
    uint32_t seen[SERVERS][SLOTS] = {0};
    for (uint32_t i = 0; i < SHARDS; i++)
        items[i] = (struct remo_versioned_item){.object = i, .value = &places[i]};
    int rc = remo_versioned_read_many(map->table, 0, items, SHARDS, version);
    for (uint32_t i = 0; rc == 0 && *version > 0 && i < SHARDS; i++)
        map->faults += seen[places[i].server % SERVERS][places[i].slot % SLOTS]++ > 0;
    return rc;
}

int main(int argc, char **argv) {
    struct shard_map map = {0};
    uint64_t version = 0, rebalancings = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    int rc = remo_node_open(NULL, &map.node);
    rc = rc ? rc : open_map(&map);
    if (rc == 0 && remo_node_rank(map.node) == 0)
        rc = rebalance(&map, rebalancings);
    for (uint32_t i = 0; rc == 0 && version < 1 + rebalancings; i++) {
        rc = route(&map, i % SHARDS);
        rc = rc ? rc : verify(&map, &version);
    }
    rc = rc ? rc : remo_barrier_wait(map.end, REMO_FOREVER); /* all may close */
    if (rc == 0 && remo_node_rank(map.node) == 0)
        printf("version %llu is the last\n", (unsigned long long)version);
    if (rc != 0 || map.faults > 0)
        fprintf(stderr, "shard_map: %s: %s\n", remo_error_name(rc),
                rc == 0 ? "a slot had two shards" : remo_last_error());
    remo_barrier_close(map.end);
    remo_versioned_close(map.table);
    remo_node_close(map.node);
    return rc != 0 || map.faults > 0;
}
