/* text.c - wraps ASCII text to the width of the terminal (text.h).
 * A byte takes one column. */
#include "bench/report/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_MAX 1000

uint32_t text_columns(FILE *out, uint32_t otherwise) {
    struct winsize size;
    const char *set = getenv("COLUMNS");
    long columns = set ? strtol(set, NULL, 10) : 0;
    if (isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    if (columns <= 0 || columns > COLUMNS_MAX)
        return otherwise;
    return columns < TEXT_COLUMNS_MIN ? TEXT_COLUMNS_MIN : (uint32_t)columns;
}

size_t text_fitting(const char *text, uint32_t columns) {
    size_t length = strcspn(text, " ");
    for (;;) {
        size_t gap = strspn(text + length, " "), word = strcspn(text + length + gap, " ");
        if (word == 0 || length + gap + word > columns)
            return length;
        length += gap + word;
    }
}

void text_wrap(FILE *out, const char *text, uint32_t columns, uint32_t used, uint32_t indent) {
    while (*text) {
        size_t length = text_fitting(text, columns > used ? columns - used : 0);
        fprintf(out, "%.*s\n", (int)length, text);
        text += length;
        text += strspn(text, " ");
        if (*text)
            fprintf(out, "%*s", (int)indent, "");
        used = indent;
    }
}
