/* power_controller.c - LOCO, appendix B: node 0 controls DC/DC converters in series, one on each other node.
 * Every LOOP us it computes duty cycles and prints the total voltage; a converter computes every 10 us.
 *     remo run -n 5 -- ./power_controller LOOP MS SLOWER     for MS ms, SLOWER times slower than real time */
#include <errno.h>
#include <math.h>
#include <remo/remo.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CONVERTERS_MAX 64u
/* A buck converter: time step, coil, capacitor, load, input and target voltage, gains of the PI control. */
static const double step = 10e-6, henry = 20e-6, farad = 20e-6, ohm = 0.5, input = 48, target = 12,
                    proportional = 0.034, integral = 100;

enum { DUTY, VOLTAGE };   /* of converter i, which is node i + 1: node 0 owns DUTY, the converter VOLTAGE */
struct power_controller { /* Cost: a step of a converter = 1 write; of the controller = 1 for each of them. */
    struct remo_channel *channel;
    struct remo_barrier *barrier;
    struct remo_owned_var *var[CONVERTERS_MAX][2];
    uint32_t rank, converters;
    double loop, sums[CONVERTERS_MAX], current, voltage; /* controller: two, converter: two */
};

static int open_all(struct remo_node *node, struct power_controller *p) {
    int rc = remo_channel_open(remo_node_root(node), "power", "power_controller", NULL, &p->channel);
    rc = rc ? rc : remo_channel_join(p->channel);
    rc = rc ? rc : remo_barrier_open(p->channel, "all", NULL, &p->barrier);
    for (uint32_t i = 0; rc == 0 && i < 2 * p->converters; i++) {
        struct remo_owned_var_options options = {.owner = i % 2 == DUTY ? 0 : i / 2 + 1};
        char name[32];
        remo_nodeset_add(&options.participants, 0);
        remo_nodeset_add(&options.participants, i / 2 + 1);
        snprintf(name, sizeof name, "%s-%u", i % 2 == DUTY ? "duty" : "voltage", i / 2);
        if (remo_nodeset_has(&options.participants, p->rank))
            rc = remo_owned_var_open(p->channel, name, sizeof(double), &options, &p->var[i / 2][i % 2]);
    }
    return rc ? rc : remo_channel_wait(p->channel, REMO_SECONDS(30));
}

static void close_all(struct power_controller *p) {
    for (uint32_t i = 0; i < 2 * CONVERTERS_MAX; i++)
        remo_owned_var_close(p->var[i / 2][i % 2]);
    remo_barrier_close(p->barrier);
    remo_channel_close(p->channel);
}

static int convert(struct power_controller *p, struct remo_owned_var **var) {
    double duty = 0;
    int rc = remo_owned_var_load(var[DUTY], &duty);
    p->current += step / henry * (duty * input - p->voltage);
    p->voltage += step / farad * (p->current - p->voltage / ohm);
    rc = rc ? rc : remo_owned_var_store(var[VOLTAGE], &p->voltage);
    return rc ? rc : remo_owned_var_push(var[VOLTAGE], 0, NULL);
}

static int control(struct power_controller *p, double now) {
    double total = 0, voltage;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < p->converters; i++) {
        rc = remo_owned_var_load(p->var[i][VOLTAGE], &voltage);
        p->sums[i] += integral * p->loop * (target - voltage);
        double duty = fmin(fmax(proportional * (target - voltage) + p->sums[i], 0), 1);
        rc = rc ? rc : remo_owned_var_store(p->var[i][DUTY], &duty);
        rc = rc ? rc : remo_owned_var_push(p->var[i][DUTY], i + 1, NULL);
        total += voltage;
    }
    printf("%.1f %.3f\n", now * 1e6, total);
    return rc;
}

static int run(struct power_controller *p, double seconds, double slower) {
    struct timespec start;
    int rc = remo_barrier_wait(p->barrier, REMO_FOREVER);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (double now = 0; rc == 0 && now < seconds; now += p->rank == 0 ? p->loop : step) {
        long long ns = start.tv_nsec + (long long)(now * slower * 1e9);
        struct timespec at = {start.tv_sec + (time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        rc = p->rank == 0 ? control(p, now) : convert(p, p->var[p->rank - 1]);
    }
    return rc ? rc : remo_barrier_wait(p->barrier, REMO_FOREVER);
}

int main(int argc, char **argv) {
    struct power_controller p = {.loop = argc > 1 ? atof(argv[1]) * 1e-6 : 40e-6};
    struct remo_node *node = NULL;
    int rc = argc < 3 ? -EINVAL : remo_node_open(NULL, &node);
    if (rc == 0) {
        p.rank = remo_node_rank(node), p.converters = remo_node_size(node) - 1;
        rc = p.converters > CONVERTERS_MAX ? -EINVAL : open_all(node, &p);
        rc = rc ? rc : run(&p, atof(argv[2]) * 1e-3, argc > 3 ? atof(argv[3]) : 1);
        close_all(&p);
    }
    if (rc != 0)
        fprintf(stderr, "power_controller LOOP MS SLOWER: %s: %s\n", remo_error_name(rc), remo_last_error());
    remo_node_close(node);
    return rc != 0;
}
