/* sensors.c - a log of readings, ordered by sensor and number. Each node inserts the readings of one sensor.
 *     remo run -n 3 -- ./sensors [READINGS]
 * Each node owns the keys of its sensor, so an insertion takes no network operation. A sensor inserts a
 * reading only after the sensor before it has inserted the one of this number. So at each instant, no sensor
 * is ahead of the one before it. Each scan of all sensors verifies this. */
#include <errno.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SENSORS_MAX 64u
#define KEY_BYTES 5u

struct log {
    struct remo_node *node;
    struct remo_tree *tree;
    struct remo_barrier *end;
    uint64_t faults, scans;
    char buffer[1 << 20];
};

/* A key: the sensor, and the number of the reading, big-endian, so that keys are in the order of numbers. */
static void make_key(unsigned char key[KEY_BYTES], uint32_t sensor, uint32_t number) {
    key[0] = (unsigned char)sensor;
    for (uint32_t i = 1; i < KEY_BYTES; i++)
        key[i] = (unsigned char)(number >> (8 * (KEY_BYTES - 1 - i)));
}

static int open_log(struct log *log) {
    struct remo_channel *root = remo_node_root(log->node);
    uint32_t sensors = remo_node_size(log->node);
    if (sensors > SENSORS_MAX)
        return -EINVAL;
    struct remo_tree_key boundaries[SENSORS_MAX];
    unsigned char keys[SENSORS_MAX];
    for (uint32_t i = 0; i + 1 < sensors; i++) {
        keys[i] = (unsigned char)(i + 1);
        boundaries[i] = (struct remo_tree_key){&keys[i], 1};
    }
    struct remo_tree_options options = {
        .boundaries = sensors > 1 ? boundaries : NULL, .key_bytes_max = KEY_BYTES, .value_bytes_max = 8};
    int rc = remo_tree_open(root, "readings", &options, &log->tree);
    rc = rc ? rc : remo_barrier_open(root, "end", NULL, &log->end);
    return rc ? rc : remo_channel_wait(root, REMO_SECONDS(60));
}

/* Count the readings of each sensor, as of one instant. */
static int scan(struct log *log) {
    uint64_t counts[SENSORS_MAX] = {0};
    struct remo_tree_result result;
    struct remo_tree_entry entry;
    size_t offset = 0;
    int rc = remo_tree_scan(log->tree, NULL, log->buffer, sizeof log->buffer, &result);
    while (rc == 0 && remo_tree_result_next(log->buffer, &result, &offset, &entry))
        counts[((const unsigned char *)entry.key.data)[0] % SENSORS_MAX]++;
    for (uint32_t i = 1; rc == 0 && i < remo_node_size(log->node); i++)
        log->faults += counts[i] > counts[i - 1];
    log->faults += rc == 0 && !result.is_complete;
    log->scans++;
    return rc;
}

/* Wait until the sensor before this one has inserted reading `number`. */
static int await_turn(struct log *log, uint32_t sensor, uint32_t number) {
    unsigned char key[KEY_BYTES];
    double value;
    size_t bytes;
    make_key(key, sensor - 1, number);
    for (;;) {
        int rc = remo_tree_get(log->tree, key, sizeof key, &value, sizeof value, &bytes);
        if (rc != -ENOENT)
            return rc;
        usleep(20);
    }
}

static int insert_readings(struct log *log, uint32_t readings) {
    uint32_t sensor = remo_node_rank(log->node);
    unsigned char key[KEY_BYTES];
    int rc = 0;
    for (uint32_t number = 0; rc == 0 && number < readings; number++) {
        double value = 20 + 0.01 * (number % 100);
        if (sensor > 0)
            rc = await_turn(log, sensor, number);
        make_key(key, sensor, number);
        rc = rc ? rc : remo_tree_insert(log->tree, key, sizeof key, &value, sizeof value);
        if (rc == 0 && number % 16 == 0)
            rc = scan(log);
    }
    return rc;
}

int main(int argc, char **argv) {
    static struct log log;
    uint32_t readings = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000;
    int rc = remo_node_open(NULL, &log.node);
    rc = rc ? rc : open_log(&log);
    rc = rc ? rc : insert_readings(&log, readings);
    rc = rc ? rc : remo_barrier_wait(log.end, REMO_FOREVER);
    rc = rc ? rc : scan(&log);
    rc = rc ? rc : remo_barrier_wait(log.end, REMO_FOREVER); /* all may close */
    if (rc == 0 && remo_node_rank(log.node) == 0)
        printf("node 0 made %llu scans: no sensor was ahead of the one before it\n",
               (unsigned long long)log.scans);
    if (rc != 0 || log.faults > 0)
        fprintf(stderr, "sensors: %s: %s\n", remo_error_name(rc),
                rc == 0 ? "a scan is wrong" : remo_last_error());
    remo_barrier_close(log.end);
    remo_tree_close(log.tree);
    remo_node_close(log.node);
    return rc != 0 || log.faults > 0;
}
