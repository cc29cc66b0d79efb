/* keys.c - numbers of keys, uniform and skewed (keys.h). Skewed numbers are drawn in advance, because
 * a draw takes as long as a get. */
#include "bench/tree/keys.h"

#include <errno.h>
#include <stdlib.h>

#include "bench/peers/zipf.h"

#define DRAWS (1u << 22)

int tree_keys_prepare(struct tree_keys *keys, uint64_t count, double theta, uint64_t seed) {
    struct remo__random random;
    struct zipf zipf;
    *keys = (struct tree_keys){.count = count, .theta = theta};
    if (theta <= 0)
        return 0;
    keys->draws = malloc(DRAWS * sizeof keys->draws[0]);
    if (!keys->draws)
        return -ENOMEM;
    remo__random_seed(&random, UINT64_C(0x7ee5) + seed);
    zipf_prepare(&zipf, count, theta);
    for (uint32_t i = 0; i < DRAWS; i++)
        keys->draws[i] = (uint32_t)zipf_next(&zipf, &random);
    return 0;
}

void tree_keys_release(struct tree_keys *keys) {
    free(keys->draws);
    keys->draws = NULL;
}

void tree_drawer_begin(struct tree_drawer *drawer, struct remo__random *random) {
    *drawer = (struct tree_drawer){random, (uint32_t)remo__random_below(random, DRAWS)};
}

uint64_t tree_draw(const struct tree_keys *keys, struct tree_drawer *drawer, bool is_skewed) {
    return is_skewed && keys->draws ? keys->draws[drawer->next++ % DRAWS]
                                    : remo__random_below(drawer->random, keys->count);
}

bool tree_records_are_right(const struct tree_record *records, uint64_t count) {
    bool is_right = true;
    for (uint64_t i = 0; i < count && is_right; i++)
        is_right = tree_value_belongs(records[i].key, records[i].value)
                   && (i == 0 || tree_big_endian(records[i - 1].key) < tree_big_endian(records[i].key));
    return is_right;
}
