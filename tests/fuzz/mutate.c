/* mutate.c - runs a fuzz target without a fuzzer: its seeds, and mutations of them.
 * The mutations depend only on a number, so each run is the same. Usage: see below. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "fuzz.h"

/* fuzz_NAME_test            the seeds, then MUTATIONS mutations of them
 * fuzz_NAME_test NUMBER     NUMBER mutations, which begin at another random seed
 * fuzz_NAME_test FILE...    the inputs in these files, which a fuzzer has written */

#define MUTATIONS 30000u
#define CHANGES_MAX 6u

static uint8_t input[FUZZ_BYTES_MAX];

/* Copy the input to memory of its exact size, so that a sanitizer detects reads beyond it. */
static void run(const uint8_t *data, size_t bytes) {
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        exit(1);
    memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static size_t change(struct remo__random *dice, size_t bytes) {
    static const uint8_t edges[] = {0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, '\n', '=', ':'};
    size_t at = bytes ? (size_t)remo__random_below(dice, bytes) : 0;
    size_t span = 1 + (size_t)remo__random_below(dice, 16);
    switch (remo__random_below(dice, 6)) {
    case 0: input[at] ^= (uint8_t)(1u << remo__random_below(dice, 8)); return bytes ? bytes : 1;
    case 1: input[at] = edges[remo__random_below(dice, sizeof edges)]; return bytes ? bytes : 1;
    case 2: input[at] = (uint8_t)remo__random_next(dice); return bytes ? bytes : 1;
    case 3: /* cut */ return at;
    case 4: /* remove some bytes */
        if (at + span >= bytes)
            return bytes;
        memmove(input + at, input + at + span, bytes - at - span);
        return bytes - span;
    default: /* repeat some bytes */
        if (bytes + span > sizeof input || at + span > bytes)
            return bytes;
        memmove(input + at + span, input + at, bytes - at);
        return bytes + span;
    }
}

static void mutate(uint64_t count, uint64_t seed) {
    struct remo__random dice;
    uint32_t seeds = 0;
    remo__random_seed(&dice, seed);
    for (size_t bytes; (bytes = fuzz_seed(seeds, input)) > 0; seeds++)
        run(input, bytes);
    for (uint64_t i = 0; i < count; i++) {
        size_t bytes = fuzz_seed((uint32_t)(i % seeds), input);
        uint64_t changes = 1 + remo__random_below(&dice, CHANGES_MAX);
        while (changes-- > 0)
            bytes = change(&dice, bytes);
        run(input, bytes);
    }
    printf("%u inputs, %llu changes\n", seeds, (unsigned long long)count);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        mutate(MUTATIONS, 1);
    } else if (isdigit((unsigned char)argv[1][0])) {
        uint64_t count = strtoull(argv[1], NULL, 10);
        mutate(count, count);
    }
    for (int i = 1; i < argc && !isdigit((unsigned char)argv[1][0]); i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file) {
            perror(argv[i]);
            return 1;
        }
        size_t bytes = fread(input, 1, sizeof input, file);
        fclose(file);
        run(input, bytes);
    }
    return 0;
}
