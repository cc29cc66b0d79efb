/* output.c - output of nodes that passes through a pipe of the launcher, and its own messages.
 * Complete lines are passed on; a line longer than LAUNCH_LINE_BYTES_MAX is passed on in pieces. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/launch/node.h"

#define DRAIN_READS_MAX 1024

void launch_say(const struct launch *launch, const char *format, ...) {
    char text[512];
    va_list arguments;
    if (launch->options->quiet)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: %s\n", launch->name, text);
}

static void line_out(const struct launch *launch, const struct node *node, bool is_err, char *line,
                     size_t bytes) {
    const struct launch_options *options = launch->options;
    line[bytes] = '\0';
    if (options->line && !is_err) {
        options->line(options->ctx, node->rank, line, bytes);
        return;
    }
    FILE *to = is_err ? stderr : stdout;
    if (options->tag)
        fprintf(to, "[%u] ", node->rank);
    fwrite(line, 1, bytes, to);
    fputc('\n', to);
    fflush(to);
}

static void lines_out(const struct launch *launch, const struct node *node, bool is_err,
                      struct stream *stream, bool at_end) {
    char *start = stream->text, *end;
    size_t left = stream->bytes;
    while ((end = memchr(start, '\n', left))) {
        line_out(launch, node, is_err, start, (size_t)(end - start));
        left -= (size_t)(end - start) + 1;
        start = end + 1;
    }
    if (left > 0 && (at_end || left == sizeof stream->text - 1)) {
        line_out(launch, node, is_err, start, left);
        left = 0;
    }
    memmove(stream->text, start, left);
    stream->bytes = left;
}

static void stream_close(const struct launch *launch, const struct node *node, bool is_err,
                         struct stream *stream) {
    if (stream->fd < 0)
        return;
    lines_out(launch, node, is_err, stream, true);
    close(stream->fd);
    stream->fd = -1;
}

bool launch_stream_read(const struct launch *launch, const struct node *node, bool is_err,
                        struct stream *stream) {
    if (stream->fd < 0)
        return false;
    ssize_t got = read(stream->fd, stream->text + stream->bytes, sizeof stream->text - 1 - stream->bytes);
    if (got < 0)
        return errno == EINTR;
    if (got == 0) {
        stream_close(launch, node, is_err, stream);
        return false;
    }
    stream->bytes += (size_t)got;
    lines_out(launch, node, is_err, stream, false);
    return true;
}

void launch_streams_drain(const struct launch *launch, struct node *node) {
    for (int i = 0; i < DRAIN_READS_MAX && launch_stream_read(launch, node, false, &node->out); i++)
        ;
    for (int i = 0; i < DRAIN_READS_MAX && launch_stream_read(launch, node, true, &node->err); i++)
        ;
    stream_close(launch, node, false, &node->out);
    stream_close(launch, node, true, &node->err);
}
