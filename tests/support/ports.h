/* ports.h - TCP ports of the loopback interface for tests, chosen by the kernel. */
#pragma once

#include <stdint.h>

/* Reserve a port until this process ends; 0 if there is none. The port is bound with SO_REUSEADDR
 * and does not listen. The kernel assigns it to no other socket, but a process may bind it by
 * number with SO_REUSEADDR, as Remo does. */
uint16_t port_reserve(void);
