/* link.c - implements link.h: sends and receives frames and descriptors on one socket.
 *
 * A descriptor travels with the first byte of its frame, exactly once. Received descriptors wait in a bounded
 * list until their frame is complete. */
#include "bootstrap/control/link.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/control/control.h"

static size_t buffer_bytes_for(uint32_t frame_bytes_max) {
    return REMO__FRAME_HEADER_BYTES + (size_t)frame_bytes_max + REMO__FRAME_MAC_BYTES;
}

int remo__link_open(struct remo__link *link, int fd, bool carries_fds, uint32_t frame_bytes_max) {
    *link = (struct remo__link){.fd = fd, .carries_fds = carries_fds};
    link->last = &link->first;
    int rc = remo__link_widen(link, frame_bytes_max);
    if (rc != 0)
        remo__link_close(link);
    return rc;
}

int remo__link_widen(struct remo__link *link, uint32_t frame_bytes_max) {
    size_t bytes = buffer_bytes_for(frame_bytes_max);
    uint8_t *buffer = realloc(link->buffer, bytes);
    if (!buffer)
        return -ENOMEM;
    link->buffer = buffer;
    link->buffer_bytes = bytes;
    link->frame_bytes_max = frame_bytes_max;
    return 0;
}

/* ---- sending ------------------------------------------------------------------------------------------- */

static void packet_drop_first(struct remo__link *link) {
    struct remo__packet *packet = link->first;
    link->first = packet->next;
    if (!link->first)
        link->last = &link->first;
    link->queued_bytes -= packet->bytes;
    if (packet->fd >= 0)
        close(packet->fd);
    free(packet);
}

int remo__link_queue(struct remo__link *link, uint16_t type, uint16_t flags, const void *data, size_t bytes,
                     int fd) {
    size_t wire_bytes = remo__frame_wire_bytes(&link->send_seal, bytes);
    assert(bytes <= REMO__FRAME_BYTES_MAX);
    if (link->queued_bytes + wire_bytes > REMO__SEND_QUEUE_BYTES_MAX)
        return -ENOBUFS;
    struct remo__packet *packet = malloc(sizeof *packet + wire_bytes);
    if (!packet)
        return -ENOMEM;
    *packet = (struct remo__packet){.fd = -1, .bytes = wire_bytes};
    if (fd >= 0 && link->carries_fds) {
        packet->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (packet->fd < 0) {
            int rc = -errno;
            free(packet);
            return rc;
        }
        flags |= REMO__FRAME_FD;
    }
    remo__frame_encode(&link->send_seal, type, flags, data, (uint32_t)bytes, packet->wire);
    *link->last = packet;
    link->last = &packet->next;
    link->queued_bytes += wire_bytes;
    return 0;
}

static ssize_t packet_send(int socket_fd, struct remo__packet *packet) {
    struct iovec span = {.iov_base = packet->wire + packet->sent, .iov_len = packet->bytes - packet->sent};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } ancillary = {0};
    struct msghdr message = {.msg_iov = &span, .msg_iovlen = 1};
    if (packet->fd >= 0) {
        message.msg_control = ancillary.bytes;
        message.msg_controllen = sizeof ancillary.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &packet->fd, sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

int remo__link_flush(struct remo__link *link) {
    while (link->first) {
        struct remo__packet *packet = link->first;
        ssize_t sent = packet_send(link->fd, packet);
        if (sent == -EAGAIN)
            return -EAGAIN;
        if (sent == -ETOOMANYREFS || sent == -ENOBUFS || sent == -ENOMEM)
            return -EBUSY;
        if (sent < 0) {
            link->send_broken = true;
            while (link->first)
                packet_drop_first(link);
            return -EPIPE;
        }
        packet->sent += (size_t)sent;
        if (packet->fd >= 0 && sent > 0) {
            close(packet->fd); /* sent with the first byte; must not be sent again */
            packet->fd = -1;
        }
        if (packet->sent == packet->bytes)
            packet_drop_first(link);
    }
    return link->send_broken ? -EPIPE : 0;
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

/* Store every received descriptor, so that none leaks. Too many descriptors, or a descriptor that the kernel
 * dropped, end the link. */
static int fds_take(struct remo__link *link, struct msghdr *message) {
    int rc = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (link->fd_count < REMO__LINK_FDS_MAX) {
                link->fds[link->fd_count++] = fd;
            } else {
                close(fd);
                rc = -EBADMSG;
            }
        }
    }
    if (rc == 0 && (message->msg_flags & MSG_CTRUNC))
        rc = -EMFILE;
    return rc;
}

static void buffer_compact(struct remo__link *link) {
    if (link->buffer_start == 0)
        return;
    memmove(link->buffer, link->buffer + link->buffer_start, link->buffer_end - link->buffer_start);
    link->buffer_end -= link->buffer_start;
    link->buffer_start = 0;
}

int remo__link_fill(struct remo__link *link) {
    union {
        char bytes[CMSG_SPACE(REMO__LINK_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } ancillary;
    buffer_compact(link);
    assert(link->buffer_end < link->buffer_bytes);
    struct iovec span = {.iov_base = link->buffer + link->buffer_end,
                         .iov_len = link->buffer_bytes - link->buffer_end};
    struct msghdr message = {.msg_iov = &span, .msg_iovlen = 1};
    if (link->carries_fds) {
        message.msg_control = ancillary.bytes;
        message.msg_controllen = sizeof ancillary.bytes;
    }
    ssize_t got;
    do
        got = recvmsg(link->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    int rc = fds_take(link, &message);
    if (rc != 0)
        return rc;
    link->buffer_end += (size_t)got;
    return (int)got;
}

int remo__link_next(struct remo__link *link, struct remo__frame *ret_frame, int *ret_fd) {
    struct remo__frame frame;
    int taken = remo__frame_decode(&link->receive_seal, link->buffer + link->buffer_start,
                                   link->buffer_end - link->buffer_start, link->frame_bytes_max, &frame);
    if (taken <= 0)
        return taken;
    int fd = -1;
    if (frame.flags & REMO__FRAME_FD) {
        if (link->fd_count == 0)
            return -EBADMSG;
        fd = link->fds[0];
        memmove(link->fds, link->fds + 1, --link->fd_count * sizeof link->fds[0]);
    }
    link->buffer_start += (size_t)taken;
    *ret_frame = frame;
    *ret_fd = fd;
    return 1;
}

void remo__link_close(struct remo__link *link) {
    while (link->first)
        packet_drop_first(link);
    while (link->fd_count > 0)
        close(link->fds[--link->fd_count]);
    free(link->buffer);
    if (link->fd >= 0)
        close(link->fd);
    *link = (struct remo__link){.fd = -1};
}
