/* fuzz.h - what a fuzz target is: one function that takes any bytes, and good inputs to begin with.
 *
 * Built twice. With clang each target is a libFuzzer program (fuzz_NAME, run by hand for as long as one
 * likes). With any compiler it is a short test: mutate.c runs the good inputs and some thousands of
 * pseudo-random changes of them, always the same ones. */
#ifndef REMO_TESTS_FUZZ_H
#define REMO_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_BYTES_MAX 16384u

/* Must survive anything; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
/* The n-th good input, at most FUZZ_BYTES_MAX bytes; 0 when there are no more. */
size_t fuzz_seed(uint32_t n, uint8_t *ret_data);

#endif
