/* user.c - implements user.h: SO_PEERCRED for Unix sockets, NETLINK_SOCK_DIAG for TCP.
 *
 * The other end of a TCP connection within one machine is a socket of the same network namespace, found by
 * its exact pair of addresses. A socket that is closed, or not accepted yet, reports user 0 and inode 0; so
 * only an answer with an inode counts. */
#include "bootstrap/control/user.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OVERFLOW_USER 65534u                       /* the id of users that a namespace does not map */
#define INITIAL_USER_NAMESPACE "user:[4026531837]" /* PROC_USER_INIT_INO: it maps every user */
#define STATES_ALL UINT32_MAX

struct request {
    struct nlmsghdr header;
    struct inet_diag_req_v2 body;
};

union answer {
    struct nlmsghdr header;
    uint8_t bytes[4096];
};

/* ---- TCP ----------------------------------------------------------------------------------------------- */

static bool end_of(const struct sockaddr_storage *name, uint8_t *ret_family, __be16 *ret_port,
                   __be32 ret_address[4]) {
    const struct sockaddr_in *name4 = (const struct sockaddr_in *)name;
    const struct sockaddr_in6 *name6 = (const struct sockaddr_in6 *)name;
    *ret_family = (uint8_t)name->ss_family;
    if (name->ss_family == AF_INET) {
        *ret_port = name4->sin_port;
        ret_address[0] = name4->sin_addr.s_addr;
        return true;
    }
    *ret_port = name6->sin6_port;
    memcpy(ret_address, &name6->sin6_addr, sizeof name6->sin6_addr);
    return name->ss_family == AF_INET6;
}

/* Fill a request for the socket at `source` that is connected to `destination`. */
static bool request_fill(struct request *request, const struct sockaddr_storage *source,
                         const struct sockaddr_storage *destination) {
    struct inet_diag_sockid *id = &request->body.id;
    *request = (struct request){
        .header = {.nlmsg_len = sizeof *request,
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = STATES_ALL,
                 .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}},
    };
    return end_of(source, &request->body.sdiag_family, &id->idiag_sport, id->idiag_src)
           && end_of(destination, &request->body.sdiag_family, &id->idiag_dport, id->idiag_dst);
}

static int answer_read(const union answer *answer, ssize_t bytes, const struct request *request,
                       uid_t *ret_user) {
    const struct inet_diag_msg *found = NLMSG_DATA(&answer->header);
    if (bytes < (ssize_t)sizeof answer->header)
        return -EOPNOTSUPP;
    if (answer->header.nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *failure = NLMSG_DATA(&answer->header);
        return bytes >= (ssize_t)NLMSG_LENGTH(sizeof *failure) && failure->error == -ENOENT ? -ENOTCONN
                                                                                            : -EOPNOTSUPP;
    }
    if (answer->header.nlmsg_type != SOCK_DIAG_BY_FAMILY || bytes < (ssize_t)NLMSG_LENGTH(sizeof *found))
        return -EOPNOTSUPP;
    /* A lookup also matches a listening socket of that port after the connection has closed. */
    bool connected = found->id.idiag_sport == request->body.id.idiag_sport
                     && found->id.idiag_dport == request->body.id.idiag_dport;
    if (!connected || found->idiag_inode == 0)
        return -ENOTCONN;
    *ret_user = found->idiag_uid;
    return 0;
}

static int socket_user(const struct sockaddr_storage *source, const struct sockaddr_storage *destination,
                       uid_t *ret_user) {
    struct request request;
    union answer answer;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    socklen_t kernel_bytes = sizeof kernel;
    if (!request_fill(&request, source, destination))
        return -ENOTCONN;
    int diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (diag < 0)
        return -EOPNOTSUPP;
    int rc = -EOPNOTSUPP;
    /* The kernel queues the answer before sendto returns. */
    if (sendto(diag, &request, sizeof request, 0, (struct sockaddr *)&kernel, sizeof kernel)
        == (ssize_t)sizeof request) {
        ssize_t bytes =
            recvfrom(diag, &answer, sizeof answer, MSG_DONTWAIT, (struct sockaddr *)&kernel, &kernel_bytes);
        if (kernel.nl_pid == 0)
            rc = answer_read(&answer, bytes, &request, ret_user);
    }
    close(diag);
    return rc;
}

static int tcp_user(int fd, uid_t *ret_user) {
    struct sockaddr_storage ours, theirs;
    socklen_t ours_bytes = sizeof ours, theirs_bytes = sizeof theirs;
    uid_t own;
    if (getsockname(fd, (struct sockaddr *)&ours, &ours_bytes) != 0
        || getpeername(fd, (struct sockaddr *)&theirs, &theirs_bytes) != 0)
        return -ENOTCONN;
    int rc = socket_user(&theirs, &ours, ret_user);
    /* A kernel without this service gives the answer of a closed socket, so check that it finds this
     * node's. */
    if (rc == -ENOTCONN && socket_user(&ours, &theirs, &own) != 0)
        rc = -EOPNOTSUPP;
    return rc;
}

/* ---- both ---------------------------------------------------------------------------------------------- */

static int unix_user(int fd, uid_t *ret_user) {
    struct ucred user;
    socklen_t bytes = sizeof user;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &bytes) != 0)
        return -ENOTCONN;
    *ret_user = user.uid;
    return 0;
}

/* True if the id denotes one user. In a user namespace several users may map to the overflow user. */
static bool is_one_user(uid_t user) {
    char name[64] = "";
    return user != OVERFLOW_USER
           || (readlink("/proc/self/ns/user", name, sizeof name - 1) > 0
               && strcmp(name, INITIAL_USER_NAMESPACE) == 0);
}

int remo__peer_check_user(int fd) {
    int family = 0;
    socklen_t bytes = sizeof family;
    uid_t user = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) != 0)
        return -ENOTCONN;
    int rc = family == AF_UNIX ? unix_user(fd, &user) : tcp_user(fd, &user);
    if (rc != 0)
        return rc;
    return user == geteuid() && is_one_user(user) ? 0 : -EPERM;
}
