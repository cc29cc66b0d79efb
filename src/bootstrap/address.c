/* address.c - implements address.h: parses addresses, resolves them, and opens their sockets.
 *
 * Input is untrusted: the parser accepts a fixed character set only, because `remo run` passes host names to
 * ssh. A Unix socket file is replaced only if no process accepts connections on it. */
#include "bootstrap/address.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"

#define LISTEN_BACKLOG 1024

/* ---- parsing ------------------------------------------------------------------------------------------- */

static int port_parse(const char *text, size_t bytes, uint16_t *ret_port) {
    uint32_t port = 0;
    if (bytes == 0 || bytes > 5)
        return -EINVAL;
    for (size_t i = 0; i < bytes; i++) {
        if (!isdigit((unsigned char)text[i]))
            return -EINVAL;
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    if (port == 0 || port > UINT16_MAX)
        return -EINVAL;
    *ret_port = (uint16_t)port;
    return 0;
}

static bool is_word(const char *text) {
    size_t legal = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
    return legal > 0 && text[legal] == '\0';
}

/* Accept only the characters of host names and numeric addresses, and no leading '-': the host may become an
 * argument of ssh. */
static bool host_is_legal(const char *host, bool bracketed) {
    struct in6_addr any;
    char numeric[INET6_ADDRSTRLEN];
    if (!bracketed)
        return host[0] != '-' && is_word(host);
    size_t bytes = strcspn(host, "%"); /* an interface may follow: fe80::1%eth0 */
    if (bytes >= sizeof numeric || (host[bytes] == '%' && !is_word(host + bytes + 1)))
        return false;
    memcpy(numeric, host, bytes);
    numeric[bytes] = '\0';
    return inet_pton(AF_INET6, numeric, &any) == 1;
}

int remo__host_parse(const char *text, size_t bytes, struct remo__form *ret_form) {
    struct remo__form form = {0};
    const char *end = text + bytes, *host = text, *host_end, *rest;
    bool bracketed = bytes > 0 && text[0] == '[';
    if (bracketed) {
        host = text + 1;
        host_end = memchr(host, ']', (size_t)(end - host));
        if (!host_end)
            return remo__fail(-EINVAL, "\"%.*s\": the ']' is missing; write [address]:port", (int)bytes,
                              text);
        rest = host_end + 1;
    } else {
        host_end = memchr(host, ':', bytes);
        host_end = host_end ? host_end : end;
        rest = host_end;
    }
    size_t host_bytes = (size_t)(host_end - host);
    if (host_bytes >= sizeof form.host)
        return remo__fail(-EINVAL, "a host name has %zu bytes, at most %zu are allowed", host_bytes,
                          sizeof form.host - 1);
    memcpy(form.host, host, host_bytes);
    if (strlen(form.host) != host_bytes || !host_is_legal(form.host, bracketed))
        return remo__fail(-EINVAL, "\"%.*s\" has no legal host name; write host:port, IPv6 as [address]:port",
                          (int)bytes, text);
    if (rest < end && (*rest != ':' || port_parse(rest + 1, (size_t)(end - rest - 1), &form.port) != 0))
        return remo__fail(-EINVAL, "\"%.*s\" has no legal port; write host:port with a port from 1 to 65535",
                          (int)bytes, text);
    *ret_form = form;
    return 0;
}

static int unix_parse(const char *text, size_t bytes, struct remo__form *ret_form) {
    struct remo__form form = {.is_unix = true};
    const struct sockaddr_un *limit = NULL;
    if (bytes < 2 || (text[0] != '/' && text[0] != '@'))
        return remo__fail(-EINVAL, "\"unix:%.*s\" is not a socket address; write unix:/absolute/path",
                          (int)bytes, text);
    if (bytes >= sizeof limit->sun_path)
        return remo__fail(-EINVAL,
                          "the socket path %.*s has %zu bytes, Unix allows %zu; use a shorter folder",
                          (int)bytes, text, bytes, sizeof limit->sun_path - 1);
    if (memchr(text, '\0', bytes))
        return remo__fail(-EINVAL, "the socket path %s contains a zero byte", text);
    memcpy(form.host, text, bytes);
    *ret_form = form;
    return 0;
}

int remo__form_parse(const char *text, size_t bytes, struct remo__form *ret_form) {
    if (bytes >= 5 && memcmp(text, "unix:", 5) == 0)
        return unix_parse(text + 5, bytes - 5, ret_form);
    if (bytes < 4 || memcmp(text, "tcp:", 4) != 0)
        return remo__fail(-EINVAL, "\"%.*s\" is not an address; write unix:/path or tcp:host:port",
                          (int)bytes, text);
    struct remo__form form;
    int rc = remo__host_parse(text + 4, bytes - 4, &form);
    if (rc != 0)
        return rc;
    if (form.port == 0)
        return remo__fail(-EINVAL, "\"%.*s\" has no port; write tcp:host:port", (int)bytes, text);
    *ret_form = form;
    return 0;
}

/* Take the next form off `*address`; false at the end. */
static bool form_next(const char **address, const char **ret_text, size_t *ret_bytes) {
    if (!*address)
        return false;
    *ret_text = *address;
    const char *comma = strchr(*address, ',');
    *ret_bytes = comma ? (size_t)(comma - *address) : strlen(*address);
    *address = comma ? comma + 1 : NULL;
    return true;
}

int remo__address_check(const char *address) {
    const char *text;
    size_t bytes;
    if (strlen(address) >= REMO__ADDRESS_BYTES_MAX)
        return remo__fail(-EINVAL, "an address has %zu bytes, at most %u are allowed", strlen(address),
                          REMO__ADDRESS_BYTES_MAX - 1);
    while (form_next(&address, &text, &bytes)) {
        struct remo__form form;
        int rc = remo__form_parse(text, bytes, &form);
        if (rc != 0)
            return rc;
    }
    return 0;
}

bool remo__address_has_tcp(const char *address) {
    const char *text;
    size_t bytes;
    while (form_next(&address, &text, &bytes)) {
        if (bytes >= 4 && memcmp(text, "tcp:", 4) == 0)
            return true;
    }
    return false;
}

/* ---- resolving ----------------------------------------------------------------------------------------- */

static bool sockaddr_is_loopback(const struct sockaddr *name) {
    if (name->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)name)->sin_addr.s_addr) >> 24) == 127;
    if (name->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)name)->sin6_addr);
    return name->sa_family == AF_UNIX;
}

static bool host_is_name(const char *host) {
    struct in6_addr any;
    return strcmp(host, "localhost") != 0 && inet_pton(AF_INET, host, &any) != 1
           && inet_pton(AF_INET6, host, &any) != 1 && !strchr(host, '%');
}

static int form_lookup(const struct remo__form *form, struct addrinfo **ret_list) {
    char port[8];
    snprintf(port, sizeof port, "%u", form->port);
    /* localhost needs no resolver, and must not depend on IPv6 being configured. */
    const char *host = strcmp(form->host, "localhost") == 0 ? "127.0.0.1" : form->host;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int rc = getaddrinfo(host, port, &hints, ret_list);
    if (rc != 0)
        return remo__fail(-EHOSTUNREACH, "host %s: %s; check the name, or write its IP address", form->host,
                          gai_strerror(rc));
    return 0;
}

static void place_of_unix(const struct remo__form *form, struct remo__place *ret_place) {
    struct sockaddr_un *name = (struct sockaddr_un *)&ret_place->name;
    size_t bytes = strlen(form->host);
    name->sun_family = AF_UNIX;
    memcpy(name->sun_path, form->host, bytes);
    ret_place->name_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + 1);
    if (form->host[0] == '@') {
        name->sun_path[0] = '\0';
        ret_place->name_bytes--; /* an abstract name has no terminator */
    }
    ret_place->is_unix = ret_place->is_loopback = true;
}

static int form_resolve(const char *text, size_t bytes, struct remo__place *places, uint32_t *count) {
    struct remo__form form;
    int rc = remo__form_parse(text, bytes, &form);
    if (rc != 0)
        return rc;
    struct remo__place place = {0};
    snprintf(place.text, sizeof place.text, "%.*s", (int)bytes, text);
    if (form.is_unix) {
        place_of_unix(&form, &place);
        if (*count < REMO__PLACES_MAX)
            places[(*count)++] = place;
        return 0;
    }
    struct addrinfo *list;
    rc = form_lookup(&form, &list);
    if (rc != 0)
        return rc;
    place.is_name = host_is_name(form.host);
    for (struct addrinfo *at = list; at && *count < REMO__PLACES_MAX; at = at->ai_next) {
        memcpy(&place.name, at->ai_addr, at->ai_addrlen);
        place.name_bytes = at->ai_addrlen;
        place.is_loopback = sockaddr_is_loopback(at->ai_addr);
        places[(*count)++] = place;
    }
    freeaddrinfo(list);
    return 0;
}

int remo__address_resolve(const char *address, struct remo__place ret_places[REMO__PLACES_MAX],
                          uint32_t *ret_count) {
    uint32_t count = 0;
    for (int want_unix = 1; want_unix >= 0; want_unix--) {
        const char *rest = address, *text;
        size_t bytes;
        while (form_next(&rest, &text, &bytes)) {
            if ((bytes >= 5 && memcmp(text, "unix:", 5) == 0) != want_unix)
                continue;
            int rc = form_resolve(text, bytes, ret_places, &count);
            if (rc != 0)
                return rc;
        }
    }
    *ret_count = count;
    return 0;
}

bool remo__address_is_local(const char *address) {
    const char *text;
    size_t bytes;
    while (form_next(&address, &text, &bytes)) {
        struct remo__place places[REMO__PLACES_MAX];
        uint32_t count = 0;
        if (form_resolve(text, bytes, places, &count) != 0)
            return false;
        for (uint32_t i = 0; i < count; i++) {
            if (!places[i].is_loopback)
                return false;
        }
    }
    return true;
}

bool remo__place_same_host(const struct remo__place *a, const struct remo__place *b) {
    if (a->name.ss_family != b->name.ss_family)
        return false;
    if (a->name.ss_family == AF_INET)
        return ((const struct sockaddr_in *)&a->name)->sin_addr.s_addr
               == ((const struct sockaddr_in *)&b->name)->sin_addr.s_addr;
    return a->name.ss_family == AF_INET6
           && IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)&a->name)->sin6_addr,
                                 &((const struct sockaddr_in6 *)&b->name)->sin6_addr);
}

/* ---- sockets ------------------------------------------------------------------------------------------- */

static int place_socket(const struct remo__place *place) {
    int fd = socket(place->name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int on = 1;
    if (place->is_unix) {
        fchmod(fd, 0600); /* the mode that bind gives to the file */
    } else {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (place->name.ss_family == AF_INET6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    return fd;
}

/* A socket file that refuses connections has no listener: its process has failed. */
static bool place_is_abandoned(const struct remo__place *place) {
    struct stat file;
    const char *path = ((const struct sockaddr_un *)&place->name)->sun_path;
    if (path[0] == '\0' || lstat(path, &file) != 0 || !S_ISSOCK(file.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool refused =
        connect(fd, (const struct sockaddr *)&place->name, place->name_bytes) != 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

static int place_bind(int fd, const struct remo__place *place) {
    if (bind(fd, (const struct sockaddr *)&place->name, place->name_bytes) == 0)
        return 0;
    int rc = -errno;
    if (rc != -EADDRINUSE || !place->is_unix || !place_is_abandoned(place))
        return rc;
    remo__place_unlink(place);
    return bind(fd, (const struct sockaddr *)&place->name, place->name_bytes) == 0 ? 0 : -errno;
}

static void place_widen(struct remo__place *place) {
    if (place->name.ss_family == AF_INET)
        ((struct sockaddr_in *)&place->name)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
        ((struct sockaddr_in6 *)&place->name)->sin6_addr = in6addr_any;
}

int remo__place_listen(const struct remo__place *place, bool anywhere, int *ret_fd) {
    struct remo__place wide = *place;
    if (anywhere && place->is_name && place->is_loopback)
        place_widen(&wide);
    int fd = place_socket(place), rc = fd;
    if (fd < 0)
        return remo__fail(rc, "cannot create a socket for %s: %s; see ulimit -n", place->text, strerror(-rc));
    rc = place_bind(fd, &wide);
    if (rc == 0 && listen(fd, LISTEN_BACKLOG) != 0)
        rc = -errno;
    if (rc == 0) {
        *ret_fd = fd;
        return 0;
    }
    close(fd);
    if (rc == -EADDRINUSE)
        return remo__fail(
            rc, "cannot listen on %s: another process uses it; stop that process, or choose another address",
            place->text);
    if (rc == -EADDRNOTAVAIL)
        return remo__fail(
            rc, "cannot listen on %s: not an address of this machine; check the rank and the address list",
            place->text);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return remo__fail(rc, "cannot listen on %s: its folder does not exist; create it", place->text);
    return remo__fail(rc, "cannot listen on %s: %s", place->text, strerror(-rc));
}

int remo__place_connect(const struct remo__place *place, int *ret_fd) {
    int fd = place_socket(place);
    if (fd < 0)
        return fd;
    int rc = connect(fd, (const struct sockaddr *)&place->name, place->name_bytes) == 0 ? 0 : -errno;
    if (rc != 0 && rc != -EINPROGRESS) {
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return rc;
}

void remo__place_unlink(const struct remo__place *place) {
    const struct sockaddr_un *name = (const struct sockaddr_un *)&place->name;
    if (place->is_unix && name->sun_path[0] != '\0')
        unlink(name->sun_path);
}
