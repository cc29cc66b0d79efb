/* fuzz.h - the interface of a fuzz target: a function that accepts any bytes, and seeds: good inputs.
 *
 * Each target is built twice. With clang it is a libFuzzer program (fuzz_NAME), which runs as long as
 * requested. With any compiler it is a short test (mutate.c), which runs the seeds and some thousands of
 * pseudo-random mutations, always the same ones. */
#ifndef REMO_TESTS_FUZZ_H
#define REMO_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_BYTES_MAX 16384u

/* Process any input without a failure. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
/* Write the n-th seed, at most FUZZ_BYTES_MAX bytes, and return its length; 0 after the last one. */
size_t fuzz_seed(uint32_t n, uint8_t *ret_data);

#endif
