/* reduce.c - the arithmetic of reductions, on numbers of 8 bytes.
 * Invariant: network memory is copied to a small buffer first, so the loops work on private memory and can be
 * vectorised. */
#include <string.h>

#include "objects/collective/collective.h"

#define BUFFER_WORDS 512u

/* The loop of one type and operation. `expression` combines the numbers `a` and `b`. */
#define LOOP(type, expression)           \
    for (size_t i = 0; i < count; i++) { \
        type a, b, c;                    \
        memcpy(&a, &sum[i], sizeof a);   \
        memcpy(&b, &words[i], sizeof b); \
        c = (expression);                \
        memcpy(&sum[i], &c, sizeof c);   \
    }

static void combine_u64(uint64_t *sum, const uint64_t *words, size_t count, enum remo_reduction reduction) {
    switch (reduction) {
    case REMO_REDUCTION_SUM: LOOP(uint64_t, a + b) break;
    case REMO_REDUCTION_MIN: LOOP(uint64_t, b < a ? b : a) break;
    case REMO_REDUCTION_MAX: LOOP(uint64_t, b > a ? b : a) break;
    case REMO_REDUCTION_AND: LOOP(uint64_t, a & b) break;
    case REMO_REDUCTION_OR: LOOP(uint64_t, a | b) break;
    case REMO_REDUCTION_XOR: LOOP(uint64_t, a ^ b) break;
    }
}

static void combine_i64(uint64_t *sum, const uint64_t *words, size_t count, enum remo_reduction reduction) {
    if (reduction == REMO_REDUCTION_MIN)
        LOOP(int64_t, b < a ? b : a)
    else if (reduction == REMO_REDUCTION_MAX)
        LOOP(int64_t, b > a ? b : a)
    else
        combine_u64(sum, words, count, reduction); /* the same bits */
}

static void combine_double(uint64_t *sum, const uint64_t *words, size_t count,
                           enum remo_reduction reduction) {
    if (reduction == REMO_REDUCTION_MIN)
        LOOP(double, b < a ? b : a)
    else if (reduction == REMO_REDUCTION_MAX)
        LOOP(double, b > a ? b : a)
    else
        LOOP(double, a + b)
}

void remo__collective_combine(uint64_t *sum, const char *from, size_t bytes, enum remo_number number,
                              enum remo_reduction reduction) {
    uint64_t words[BUFFER_WORDS];
    for (size_t done = 0; done < bytes; done += sizeof words) {
        size_t size = bytes - done < sizeof words ? bytes - done : sizeof words;
        remo__copy_from(words, from + done, size);
        if (number == REMO_NUMBER_DOUBLE)
            combine_double(sum + done / 8, words, size / 8, reduction);
        else if (number == REMO_NUMBER_I64)
            combine_i64(sum + done / 8, words, size / 8, reduction);
        else
            combine_u64(sum + done / 8, words, size / 8, reduction);
    }
}
