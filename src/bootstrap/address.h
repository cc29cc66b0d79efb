/* address.h - the places where a node listens: reading them, resolving them, listening there.
 *
 * One place is a form: "unix:/path", "unix:@name" (Linux's abstract names, which vanish with their owner),
 * or "tcp:host:port" with host a name, an IPv4 address or an IPv6 address in [ ]. An address is one or more
 * forms joined by ','.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "bootstrap/bootstrap.h"

#define REMO__HOST_BYTES_MAX 240u
#define REMO__PLACES_MAX 8u /* of one node, after names are resolved */

struct remo__form {
    bool is_unix;
    uint16_t port;                   /* 0: not said (remo__host_parse only) */
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

/* One form of `bytes` bytes. Errors: -EINVAL. */
int remo__form_parse(const char *text, size_t bytes, struct remo__form *ret_form);
/* "host" or "host:port", without "tcp:". Errors: -EINVAL. */
int remo__host_parse(const char *text, size_t bytes, struct remo__form *ret_form);

/* Are all forms of `address` well formed? Errors: -EINVAL. */
int remo__address_check(const char *address);
/* Can nobody outside this machine reach it? Asks the resolver for names; one that is unknown counts as
 * outside. */
bool remo__address_is_local(const char *address);
bool remo__address_has_tcp(const char *address);
/* Unix places first, then the others in the order written; those beyond REMO__PLACES_MAX are left out.
 * Errors: -EINVAL, -EHOSTUNREACH (an unknown name). */
int remo__address_resolve(const char *address, struct remo__place ret_places[REMO__PLACES_MAX],
                          uint32_t *ret_count);

/* Listen, non-blocking. A Unix socket left behind by a dead process is replaced; the file is only for its
 * owner. `anywhere`: a host name that stands for loopback here (Debian's 127.0.1.1) listens on all interfaces
 * instead. Errors: -EADDRINUSE, -EACCES, -ENOENT, -EADDRNOTAVAIL...; the sentence names the place. */
int remo__place_listen(const struct remo__place *place, bool anywhere, int *ret_fd);
/* Start to connect: 0 or -EINPROGRESS with *ret_fd set; others without. Sets no sentence: failing is ordinary
 * here. */
int remo__place_connect(const struct remo__place *place, int *ret_fd);
/* Remove the file of a Unix socket that we listened on. */
void remo__place_forget(const struct remo__place *place);
