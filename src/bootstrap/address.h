/* address.h - addresses of nodes: parse, resolve, listen, connect.
 *
 * An address is one or more forms joined by ','. A form is "unix:/path", "unix:@name" (a Linux abstract name,
 * which vanishes with its owner), or "tcp:host:port". A host is a name, an IPv4 address or an IPv6 address
 * in [ ]. A place is one socket address that a form resolves to.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "bootstrap/roster/roster.h"

#define REMO__HOST_BYTES_MAX 240u
#define REMO__PLACES_MAX 8u /* of one node, after names are resolved */

struct remo__form {
    bool is_unix;
    uint16_t port;                   /* 0: not given (remo__host_parse only) */
    char host[REMO__HOST_BYTES_MAX]; /* or the path; [ ] removed */
};

struct remo__place {
    bool is_unix;
    bool is_loopback; /* true for Unix sockets too */
    bool is_name;     /* the host was a name other than localhost */
    socklen_t name_bytes;
    struct sockaddr_storage name;
    char text[REMO__ADDRESS_BYTES_MAX];
};

/* Parse one form of `bytes` bytes. Errors: -EINVAL. */
int remo__form_parse(const char *text, size_t bytes, struct remo__form *ret_form);
/* Parse "host" or "host:port", without "tcp:". Errors: -EINVAL. */
int remo__host_parse(const char *text, size_t bytes, struct remo__form *ret_form);

/* Check that all forms of `address` are well formed. Errors: -EINVAL. */
int remo__address_check(const char *address);
/* True if only this machine can reach the address. Resolves names; an unknown name counts as outside. */
bool remo__address_is_local(const char *address);
bool remo__address_has_tcp(const char *address);
/* Resolve all forms: Unix places first, then TCP places in the order written. Places beyond REMO__PLACES_MAX
 * are omitted. Errors: -EINVAL, -EHOSTUNREACH (an unknown name). */
int remo__address_resolve(const char *address, struct remo__place ret_places[REMO__PLACES_MAX],
                          uint32_t *ret_count);

/* True if both places have the same IP address; ports are not compared. Unix sockets have no IP address. */
bool remo__place_same_host(const struct remo__place *a, const struct remo__place *b);

/* Listen on a non-blocking socket. The socket file of a failed process is replaced; only the owner may use
 * the file. `anywhere`: a host name that resolves to loopback (Debian's 127.0.1.1) listens on all interfaces.
 * Errors: -EADDRINUSE, -EACCES, -ENOENT, -EADDRNOTAVAIL...; the sentence names the place. */
int remo__place_listen(const struct remo__place *place, bool anywhere, int *ret_fd);
/* Start to connect. Returns 0 or -EINPROGRESS and sets *ret_fd, or another -errno. Sets no sentence: failure
 * is ordinary here. */
int remo__place_connect(const struct remo__place *place, int *ret_fd);
/* Remove the file of a Unix socket on which this node listened. */
void remo__place_unlink(const struct remo__place *place);
