/* sensors.c - a log of readings, ordered by sensor and number. Each node inserts the readings of one sensor.
 *     remo run -n 3 -- ./sensors [READINGS]
 * Each node owns the keys of its sensor, so an insertion takes no network operation. A sensor inserts reading
 * k only after the previous sensor has inserted reading k. So at each instant, no sensor has more readings
 * than the previous one. Each scan of all sensors verifies this. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SENSORS_MAX 64u

struct log {
    struct remo_node *node;
    struct remo_tree *tree;
    struct remo_barrier *end;
    uint64_t scans, faults;
    char buffer[1 << 20]; /* of a scan */
};

struct key { /* the sensor and the number of the reading */
    unsigned char data[5];
};

static struct key key_of(uint32_t sensor, uint32_t number) {
    struct key made = {{0}};
    struct remo_key key = {.data = made.data, .cap = sizeof made.data};
    remo_key_put_unsigned(&key, sensor, 1, REMO_KEY_ASCENDING);
    remo_key_put_unsigned(&key, number, 4, REMO_KEY_ASCENDING);
    return made;
}

static int open_log(struct log *log) {
    struct remo_tree_key boundaries[SENSORS_MAX] = {{NULL, 0}};
    struct key keys[SENSORS_MAX];
    for (uint32_t i = 1; i < remo_node_size(log->node) && i < SENSORS_MAX; i++) {
        keys[i] = key_of(i, 0); /* the first key of node i */
        boundaries[i - 1] = (struct remo_tree_key){&keys[i], sizeof keys[i]};
    }
    struct remo_channel *root = remo_node_root(log->node);
    struct remo_tree_options options = {.boundaries = boundaries, .key_bytes_max = 5, .value_bytes_max = 8};
    int rc = remo_tree_open(root, "readings", &options, &log->tree);
    rc = rc ? rc : remo_barrier_open(root, "end", NULL, &log->end);
    return rc ? rc : remo_channel_wait(root, REMO_SECONDS(60));
}

/* Count the readings of each sensor, as of one instant. */
static int scan(struct log *log) {
    uint64_t counts[256] = {0};
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    size_t offset = 0;
    int rc = remo_tree_scan(log->tree, NULL, log->buffer, sizeof log->buffer, &result);
    while (rc == 0 && remo_tree_result_next(log->buffer, &result, &offset, &entry))
        counts[((const struct key *)entry.key.data)->data[0]]++;
    for (uint32_t i = 1; rc == 0 && i < remo_node_size(log->node); i++)
        log->faults += counts[i] > counts[i - 1];
    log->faults += rc == 0 && !result.is_complete;
    log->scans++;
    return rc;
}

/* Insert a reading, after the previous sensor has inserted its reading of the same number. */
static int insert(struct log *log, uint32_t sensor, uint32_t number) {
    double value = 20 + 0.01 * (number % 100), other;
    struct key mine = key_of(sensor, number), before = key_of(sensor - 1, number);
    size_t bytes;
    int rc = sensor == 0 ? 0 : -ENOENT;
    while (rc == -ENOENT) {
        rc = remo_tree_get(log->tree, &before, sizeof before, &other, sizeof other, &bytes);
        usleep(rc == -ENOENT ? 20 : 0);
    }
    return rc ? rc : remo_tree_insert(log->tree, &mine, sizeof mine, &value, sizeof value);
}

int main(int argc, char **argv) {
    static struct log log;
    uint32_t readings = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000;
    int rc = remo_node_open(NULL, &log.node);
    rc = rc ? rc : open_log(&log);
    for (uint32_t i = 0; rc == 0 && i < readings; i++) {
        rc = insert(&log, remo_node_rank(log.node), i);
        rc = rc || i % 16 != 0 ? rc : scan(&log);
    }
    rc = rc ? rc : remo_barrier_wait(log.end, REMO_FOREVER); /* before any node closes */
    if (rc == 0 && log.faults == 0 && remo_node_rank(log.node) == 0)
        printf("no sensor was ahead of the one before it in %llu scans\n", (unsigned long long)log.scans);
    if (rc != 0 || log.faults > 0)
        fprintf(stderr, "sensors: %s: %s\n", remo_error_name(rc),
                rc == 0 ? "a scan is wrong" : remo_last_error());
    remo_barrier_close(log.end);
    remo_tree_close(log.tree);
    remo_node_close(log.node);
    return rc != 0 || log.faults > 0;
}
