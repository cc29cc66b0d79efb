/* text.h - plain text that fits the terminal. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#define TEXT_COLUMNS_DEFAULT 100u
#define TEXT_COLUMNS_MIN 40u

/* Return the columns of the terminal behind `out`. For a pipe or a file, return COLUMNS of the
 * environment, else `otherwise`. At least TEXT_COLUMNS_MIN. */
uint32_t text_columns(FILE *out, uint32_t otherwise);

/* Return how many bytes of `text` fit in `columns`: whole words, and at least one. */
size_t text_fitting(const char *text, uint32_t columns);

/* Print `text` and a line end, wrapped between words to `columns`. On the first line, `used`
 * columns are taken; further lines start with `indent` spaces. A word longer than a line is not
 * broken. */
void text_wrap(FILE *out, const char *text, uint32_t columns, uint32_t used, uint32_t indent);
