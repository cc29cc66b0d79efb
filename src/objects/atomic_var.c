/* atomic_var.c - implements remo/atomic_var.h: the words are a region to which only the homes provide memory.
 * Invariant: words change by network atomics only, also at their home. */
#include <remo/atomic_var.h>

#include <stdio.h>
#include <stdlib.h>

#include "objects/region.h"

/* Attempts of a store or an exchange; each fails because another node changed the word. */
#define ATTEMPTS_MAX 1000000u

/* Limits the words so that index / home_count is one multiplication by `inverse`: it is exact while
 * index * error < 2^64, and the error of `inverse` is below 256. */
#define COUNT_MAX (UINT64_C(1) << 48)

struct remo_atomic_var {
    struct remo_region *region;
    uint64_t count;
    uint64_t inverse; /* 2^64 / home_count, rounded up; 0: one home */
    uint32_t home_count;
    uint16_t homes[REMO_NODES_MAX]; /* word i is at homes[i % home_count] */
};

static int check_options(const struct remo_atomic_var_options *options,
                         const struct remo_nodeset *participants) {
    if (options->count > COUNT_MAX)
        return remo__fail(-EINVAL, "cannot open %llu words: the maximum is %llu",
                          (unsigned long long)options->count, (unsigned long long)COUNT_MAX);
    if ((uint32_t)options->place > REMO_ATOMIC_VAR_STRIPED)
        return remo__fail(-EINVAL, "place %d is neither REMO_ATOMIC_VAR_AT_HOME nor REMO_ATOMIC_VAR_STRIPED",
                          (int)options->place);
    if (!remo_nodeset_has(participants, options->home))
        return remo__fail(-EINVAL, "cannot open words with node %u as their home: the node is no participant",
                          options->home);
    return 0;
}

/* Select the homes, and describe the layout in `type`, which peers compare. */
static void place_words(struct remo_atomic_var *var, const struct remo_atomic_var_options *options,
                        const struct remo_nodeset *participants, struct remo_nodeset *ret_homes, char *type,
                        size_t cap) {
    bool striped = options->place == REMO_ATOMIC_VAR_STRIPED && var->count > 1;
    struct remo_nodeset home = {0};
    remo_nodeset_add(&home, options->home);
    *ret_homes = striped ? *participants : home;
    for (uint32_t node = 0; node < REMO_NODES_MAX; node++)
        if (remo_nodeset_has(ret_homes, node))
            var->homes[var->home_count++] = (uint16_t)node;
    if (var->home_count > 1)
        var->inverse = UINT64_MAX / var->home_count + 1;
    if (striped)
        snprintf(type, cap, "atomic_var(%llu words, striped)", (unsigned long long)var->count);
    else
        snprintf(type, cap, "atomic_var(%llu words at node %u)", (unsigned long long)var->count,
                 options->home);
}

int remo_atomic_var_open(struct remo_channel *parent, const char *name,
                         const struct remo_atomic_var_options *options, struct remo_atomic_var **ret_var) {
    REMO__REQUIRE(ret_var);
    static const struct remo_atomic_var_options all_default;
    const struct remo_atomic_var_options *chosen = options ? options : &all_default;
    struct remo_channel_options channel = {0};
    struct remo_nodeset homes;
    char type[REMO__TYPE_BYTES_MAX + 1];
    int rc = remo__select_participants(parent, &chosen->participants, &channel.participants);
    if (rc == 0)
        rc = remo__require_coherence(parent, "an atomic variable");
    if (rc == 0)
        rc = check_options(chosen, &channel.participants);
    if (rc != 0)
        return rc;
    struct remo_atomic_var *var = calloc(1, sizeof *var);
    if (!var)
        return remo__fail(-ENOMEM, "no memory for an atomic variable");
    var->count = chosen->count ? chosen->count : 1;
    place_words(var, chosen, &channel.participants, &homes, type, sizeof type);
    uint64_t share = (var->count + var->home_count - 1) / var->home_count * sizeof(uint64_t);
    rc = remo__region_open(parent, name, type, "words", share, &channel, &homes, &var->region);
    if (rc == 0)
        rc = remo_channel_join(var->region->channel);
    if (rc != 0) {
        remo_atomic_var_close(var);
        return rc;
    }
    *ret_var = var;
    return 0;
}

void remo_atomic_var_close(struct remo_atomic_var *var) {
    if (!var)
        return;
    remo_region_close(var->region);
    free(var);
}

struct remo_channel *remo_atomic_var_channel(struct remo_atomic_var *var) {
    return var ? remo_region_channel(var->region) : NULL;
}

/* Return the home of a word, and its offset there. */
static inline uint32_t home_of_word(const struct remo_atomic_var *var, uint64_t index, uint64_t *ret_offset) {
    uint64_t row = var->inverse ? (uint64_t)((unsigned __int128)index * var->inverse >> 64) : index;
    *ret_offset = row * sizeof(uint64_t);
    return var->homes[var->inverse ? index - row * var->home_count : 0];
}

/* Set *ret_ref to a word, whose index the caller has checked. Errors: those of remo__region_find. */
static inline __attribute__((always_inline)) int find_word(const struct remo_atomic_var *var, uint64_t index,
                                                           struct remo__ref *ret_ref) {
    uint64_t offset;
    uint32_t home = home_of_word(var, index, &offset);
    return remo__region_find(var->region, home, offset, ret_ref);
}

static int fail_index(const struct remo_atomic_var *var, uint64_t index) {
    return remo__fail(-EINVAL, "%s has no word %llu: it has %llu", remo_channel_name(var->region->channel),
                      (unsigned long long)index, (unsigned long long)var->count);
}

int remo_atomic_var_load(struct remo_atomic_var *var, uint64_t index, uint64_t *ret_value,
                         struct remo_ack *ack) {
    REMO__REQUIRE(var);
    uint64_t offset;
    if (remo__unlikely(index >= var->count))
        return fail_index(var, index);
    uint32_t home = home_of_word(var, index, &offset);
    return remo_region_read(var->region, home, offset, ret_value, sizeof *ret_value, ack);
}

int remo_atomic_var_fetch_add(struct remo_atomic_var *var, uint64_t index, uint64_t addend, uint64_t *ret_old,
                              struct remo_ack *ack) {
    REMO__REQUIRE(var);
    struct remo__ref ref;
    if (remo__unlikely(index >= var->count))
        return fail_index(var, index);
    int rc = find_word(var, index, &ref);
    if (remo__unlikely(rc != 0))
        return rc;
    return remo__fetch_add(ref, addend, ret_old, ack);
}

int remo_atomic_var_compare_swap(struct remo_atomic_var *var, uint64_t index, uint64_t expected,
                                 uint64_t desired, uint64_t *ret_old, struct remo_ack *ack) {
    REMO__REQUIRE(var);
    struct remo__ref ref;
    if (remo__unlikely(index >= var->count))
        return fail_index(var, index);
    if (remo__unlikely(!ret_old))
        return remo__fail(
            -EINVAL, "cannot compare and swap: ret_old is NULL; it returns whether the word was swapped");
    int rc = find_word(var, index, &ref);
    if (remo__unlikely(rc != 0))
        return rc;
    return remo__compare_swap(ref, expected, desired, ret_old, ack);
}

int remo_atomic_var_exchange(struct remo_atomic_var *var, uint64_t index, uint64_t value, uint64_t *ret_old) {
    REMO__REQUIRE(var);
    uint64_t expected, old = 0;
    int rc = remo_atomic_var_load(var, index, &expected, NULL);
    for (uint32_t attempt = 0; rc == 0 && attempt < ATTEMPTS_MAX; attempt++) {
        rc = remo_atomic_var_compare_swap(var, index, expected, value, &old, NULL);
        if (rc != 0)
            break;
        if (old == expected) {
            if (ret_old)
                *ret_old = old;
            return 0;
        }
        expected = old;
    }
    if (rc != 0)
        return rc;
    return remo__fail(-ETIMEDOUT,
                      "cannot change word %llu of %s: other calls changed it during each of %u attempts",
                      (unsigned long long)index, remo_channel_name(var->region->channel), ATTEMPTS_MAX);
}

int remo_atomic_var_store(struct remo_atomic_var *var, uint64_t index, uint64_t value) {
    REMO__REQUIRE(var);
    return remo_atomic_var_exchange(var, index, value, NULL);
}
