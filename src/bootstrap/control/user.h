/* user.h - the user that owns the other end of a connection.
 *
 * Model:   the kernel reports the owner of the socket at the other end: by SO_PEERCRED for Unix sockets, by
 *          NETLINK_SOCK_DIAG for TCP within one machine. Neither needs /proc or a privilege.
 * Failure: an owner that the kernel does not report counts as another user.
 */
#pragma once

/* Check that a process of this process's effective user holds the other end of the connected socket `fd`.
 * For TCP, call it only after the other end has sent data: a connection that is not accepted yet has no
 * owner. A user id without a mapping in this user namespace counts as another user.
 * Blocking: no. Cost: one system call for a Unix socket, four for TCP. Sets no sentence.
 * Errors: -EPERM       the other end belongs to another user
 *         -ENOTCONN    the other end is closed, or no socket of this machine
 *         -EOPNOTSUPP  the kernel does not report owners (no NETLINK_SOCK_DIAG) */
int remo__peer_check_user(int fd);
