/* hosts.c - implements hosts.h: parses the hosts file line by line.
 *
 * The file is untrusted: its size, the length of lines and the number of nodes are bounded. Every error names
 * file and line. */
#include "bootstrap/roster/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

struct line {
    const char *name; /* of the file */
    uint32_t number;
    char text[REMO__HOSTS_LINE_BYTES_MAX];
};

static int slots_parse(const struct line *line, const char *word, uint32_t *ret_slots) {
    if (strncmp(word, "slots=", 6) != 0)
        return remo__fail(-EINVAL, "%s:%u: \"%s\" is not an option; only slots=N may follow the host",
                          line->name, line->number, word);
    char *end;
    errno = 0;
    unsigned long slots = strtoul(word + 6, &end, 10);
    if (word[6] < '0' || word[6] > '9' || *end != '\0' || errno != 0 || slots == 0 || slots > REMO__NODES_MAX)
        return remo__fail(-EINVAL, "%s:%u: \"%s\": the number of nodes must be from 1 to %u", line->name,
                          line->number, word, REMO__NODES_MAX);
    *ret_slots = (uint32_t)slots;
    return 0;
}

/* A single tcp form is stored as host and port, because slots= increments its port. Any other address is
 * stored as written. */
static int place_parse(const struct line *line, const char *word, struct remo__host *ret_host) {
    struct remo__host host = {.line = line->number};
    struct remo__form form = {0};
    size_t bytes = strlen(word);
    int rc;
    if (strncmp(word, "unix:", 5) == 0 || strchr(word, ',')) {
        rc = remo__address_check(word);
        snprintf(host.address, sizeof host.address, "%s", word);
    } else {
        size_t skip = strncmp(word, "tcp:", 4) == 0 ? 4 : 0;
        rc = remo__host_parse(word + skip, bytes - skip, &form);
    }
    if (rc != 0)
        return remo__fail_more(rc, "%s:%u", line->name, line->number);
    memcpy(host.host, form.host, sizeof host.host);
    host.port = form.port;
    *ret_host = host;
    return 0;
}

static int slots_add(const struct line *line, struct remo__host host, uint32_t slots,
                     struct remo__hosts *hosts) {
    if (slots > 1 && host.address[0] != '\0')
        return remo__fail(-EINVAL, "%s:%u: slots= needs host or host:port; write one line for each address",
                          line->name, line->number);
    if (hosts->count + slots > REMO__NODES_MAX)
        return remo__fail(-EINVAL, "%s:%u: more than %u nodes in the file", line->name, line->number,
                          REMO__NODES_MAX);
    if (host.port != 0 && host.port + slots - 1 > UINT16_MAX)
        return remo__fail(-EINVAL, "%s:%u: port %u and %u slots go beyond port %u", line->name, line->number,
                          host.port, slots, UINT16_MAX);
    for (uint32_t i = 0; i < slots; i++) {
        hosts->entries[hosts->count++] = host;
        host.slot++;
        host.port += host.port != 0;
    }
    return 0;
}

static int line_parse(struct line *line, struct remo__hosts *hosts) {
    static const char space[] = " \t\r";
    char *comment = strchr(line->text, '#'), *rest;
    if (comment)
        *comment = '\0';
    const char *place = strtok_r(line->text, space, &rest);
    if (!place)
        return 0;
    const char *option = strtok_r(NULL, space, &rest), *excess = option ? strtok_r(NULL, space, &rest) : NULL;
    struct remo__host host;
    uint32_t slots = 1;
    int rc = place_parse(line, place, &host);
    if (rc == 0 && option)
        rc = slots_parse(line, option, &slots);
    if (rc == 0 && excess)
        rc = remo__fail(-EINVAL, "%s:%u: unexpected \"%s\"; write host[:port] [slots=N]", line->name,
                        line->number, excess);
    return rc == 0 ? slots_add(line, host, slots, hosts) : rc;
}

static int lines_parse(struct line *line, const char *text, size_t bytes, struct remo__hosts *hosts) {
    const char *end = text + bytes;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        size_t length = (size_t)(stop - text);
        line->number++;
        if (length >= sizeof line->text)
            return remo__fail(-EINVAL, "%s:%u: the line has %zu bytes, at most %zu are allowed", line->name,
                              line->number, length, sizeof line->text - 1);
        if (memchr(text, '\0', length))
            return remo__fail(-EINVAL, "%s:%u: the line contains a zero byte; give a text file", line->name,
                              line->number);
        memcpy(line->text, text, length);
        line->text[length] = '\0';
        int rc = line_parse(line, hosts);
        if (rc != 0)
            return rc;
        text = stop + 1;
    }
    if (hosts->count == 0)
        return remo__fail(-EINVAL, "%s: the file lists no hosts; write one host:port a line", line->name);
    return 0;
}

int remo__hosts_parse(const char *name, const char *text, size_t bytes, struct remo__hosts *ret_hosts) {
    struct line line = {.name = name};
    struct remo__hosts hosts = {.entries = calloc(REMO__NODES_MAX, sizeof *hosts.entries)};
    if (!hosts.entries)
        return remo__fail(-ENOMEM, "%s: no memory for the list of hosts", name);
    int rc = lines_parse(&line, text, bytes, &hosts);
    if (rc != 0) {
        free(hosts.entries);
        return rc;
    }
    *ret_hosts = hosts;
    return 0;
}

static int text_read(const char *path, char *text, size_t cap, size_t *ret_bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return remo__fail(-errno, "cannot read the hosts file %s: %s", path, strerror(errno));
    size_t bytes = 0;
    ssize_t got;
    int rc = 0;
    while (bytes < cap && (got = read(fd, text + bytes, cap - bytes)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            rc = remo__fail(-errno, "cannot read the hosts file %s: %s", path, strerror(errno));
            break;
        }
        bytes += (size_t)got;
    }
    close(fd);
    if (rc == 0 && bytes == cap)
        rc = remo__fail(-EINVAL, "the hosts file %s has more than %u bytes; check the path", path,
                        REMO__HOSTS_FILE_BYTES_MAX);
    if (rc == 0)
        *ret_bytes = bytes;
    return rc;
}

int remo__hosts_read(const char *path, struct remo__hosts *ret_hosts) {
    size_t cap = REMO__HOSTS_FILE_BYTES_MAX + 1, bytes = 0;
    char *text = malloc(cap);
    if (!text)
        return remo__fail(-ENOMEM, "no memory to read the hosts file %s", path);
    int rc = text_read(path, text, cap, &bytes);
    if (rc == 0)
        rc = remo__hosts_parse(path, text, bytes, ret_hosts);
    free(text);
    return rc;
}

void remo__host_address(const struct remo__host *host, char ret_address[REMO__ADDRESS_BYTES_MAX]) {
    if (host->address[0] != '\0') {
        memcpy(ret_address, host->address, REMO__ADDRESS_BYTES_MAX);
        return;
    }
    uint32_t port = host->port ? host->port : REMO__PORT_DEFAULT + host->slot;
    bool bracketed = strchr(host->host, ':');
    snprintf(ret_address, REMO__ADDRESS_BYTES_MAX, bracketed ? "tcp:[%s]:%u" : "tcp:%s:%u", host->host, port);
}
