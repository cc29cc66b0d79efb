/* zipf.h - skewed random numbers: rank r of n is drawn with a probability proportional to 1 / (r +
 * 1)^theta. Source: Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, as
 * YCSB uses it. */
#pragma once

#include "base/random.h"

#include <math.h>
#include <stdint.h>

struct zipf {
    uint64_t count;
    double theta, alpha, zeta, eta, second;
};

/* `theta` in (0, 1). Takes 20 ns per rank once, for the sum of all weights. */
static inline void zipf_prepare(struct zipf *zipf, uint64_t count, double theta) {
    double zeta = 0;
    for (uint64_t i = 1; i <= count; i++)
        zeta += pow((double)i, -theta);
    double zeta_2 = 1 + pow(2, -theta);
    *zipf = (struct zipf){
        .count = count, .theta = theta, .alpha = 1 / (1 - theta), .zeta = zeta, .second = zeta_2};
    zipf->eta = (1 - pow(2 / (double)count, 1 - theta)) / (1 - zeta_2 / zeta);
}

/* A rank in [0, count); 0 is the most frequent. */
static inline uint64_t zipf_next(const struct zipf *zipf, struct remo__random *random) {
    double u = remo__random_unit(random), weight = u * zipf->zeta;
    if (weight < 1)
        return 0;
    if (weight < zipf->second)
        return 1;
    uint64_t rank = (uint64_t)((double)zipf->count * pow(zipf->eta * u - zipf->eta + 1, zipf->alpha));
    return rank < zipf->count ? rank : zipf->count - 1;
}
