/* ports.c - reserves TCP ports for tests (ports.h).
 * A bound socket is the reservation. */
#include "ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* The descriptor stays open on purpose: it is the reservation. */
uint16_t port_reserve(void) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0
        || bind(fd, (struct sockaddr *)&name, sizeof name) != 0
        || getsockname(fd, (struct sockaddr *)&name, &bytes) != 0)
        return 0;
    return ntohs(name.sin_port);
}
