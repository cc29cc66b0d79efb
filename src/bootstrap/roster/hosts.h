/* hosts.h - the hosts file: one line for each host or address; ranks follow the order of the lines.
 *
 *     # comment
 *     node1:7000                          one node
 *     node2:7000 slots=4                  four nodes, on ports 7000 to 7003
 *     tcp:node3:7000                      the same as node3:7000
 *     unix:/run/demo/5.sock,tcp:node4:7000
 *
 * Without a port, `remo run` chooses one; a program that reads the file itself uses REMO__PORT_DEFAULT.
 */
#pragma once

#include <stdint.h>

#include "bootstrap/address.h"

#define REMO__HOSTS_FILE_BYTES_MAX (256u << 10)
#define REMO__HOSTS_LINE_BYTES_MAX 1024u
#define REMO__PORT_DEFAULT 7470u

struct remo__host {
    uint32_t line;
    uint32_t slot;                         /* 0 for the first node of its line */
    uint16_t port;                         /* of this slot; 0: not given */
    char host[REMO__HOST_BYTES_MAX];       /* "" if the line has a whole address */
    char address[REMO__ADDRESS_BYTES_MAX]; /* the whole address, or "" */
};

struct remo__hosts {
    uint32_t count;
    struct remo__host *entries; /* [count], one for each rank; the caller frees it */
};

/* Parse a hosts file. `name` is its name in error sentences. Errors: -EINVAL (the sentence begins with
 * name:line), -ENOMEM. */
int remo__hosts_parse(const char *name, const char *text, size_t bytes, struct remo__hosts *ret_hosts);
/* Read and parse the file `path`. Errors: those of remo__hosts_parse, -ENOENT, -EACCES, -EIO. */
int remo__hosts_read(const char *path, struct remo__hosts *ret_hosts);
/* The address of one entry: as written, or composed of host and port (by default REMO__PORT_DEFAULT +
 * slot). */
void remo__host_address(const struct remo__host *host, char ret_address[REMO__ADDRESS_BYTES_MAX]);
