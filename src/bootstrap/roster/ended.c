/* ended.c - implements ended.h: reads the launcher's record of ended nodes.
 *
 * A record counts only with its line end, because the launcher may write while a node reads. */
#include "bootstrap/roster/ended.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STATUS_MAX 255u
#define DIGITS_MAX 3u /* of a rank, and of a status */

static bool number_take(const char **at, const char *end, uint32_t *ret_number) {
    uint32_t number = 0, digits = 0;
    while (*at < end && **at >= '0' && **at <= '9' && digits < DIGITS_MAX) {
        number = 10 * number + (uint32_t)(*(*at)++ - '0');
        digits++;
    }
    *ret_number = number;
    return digits > 0;
}

static bool line_parse(const char *at, const char *end, uint32_t *ret_rank, uint32_t *ret_status) {
    return number_take(&at, end, ret_rank) && at < end && *at++ == ' ' && number_take(&at, end, ret_status)
           && at == end && *ret_rank < REMO__NODES_MAX && *ret_status <= STATUS_MAX;
}

bool remo__ended_next(const char **at, const char *end, uint32_t *ret_rank, uint32_t *ret_status) {
    const char *stop;
    while (*at < end && (stop = memchr(*at, '\n', (size_t)(end - *at)))) {
        const char *line = *at;
        *at = stop + 1;
        uint32_t rank, status;
        if (line_parse(line, stop, &rank, &status)) {
            *ret_rank = rank;
            *ret_status = status;
            return true;
        }
    }
    return false;
}

static int file_open(const char *folder, const char *prefix) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s" REMO__ENDED_FILE, folder, prefix) >= (int)sizeof path)
        return -1;
    return open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

size_t remo__ended_read(const struct remo__roster *roster, char text[REMO__ENDED_BYTES_MAX]) {
    char own[16];
    size_t bytes = 0;
    ssize_t got;
    if (!roster->job_dir || roster->incarnation > 0)
        return 0;
    snprintf(own, sizeof own, "%u.", roster->rank);
    int fd = file_open(roster->job_dir, own);
    if (fd < 0)
        fd = file_open(roster->job_dir, "");
    if (fd < 0)
        return 0;
    while (bytes < REMO__ENDED_BYTES_MAX
           && (got = read(fd, text + bytes, REMO__ENDED_BYTES_MAX - bytes)) != 0) {
        if (got < 0 && errno != EINTR)
            break;
        bytes += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    return bytes;
}
