/* link.h - one non-blocking stream socket that carries frames and, on one machine, descriptors. Knows
 * nothing of peers.
 *
 * Threads: the sending half (queue, flush) is used under a lock of the owner, by any thread. The receiving
 *          half belongs to the control thread. Neither touches the other's fields.
 * Bounds:  the queue holds REMO__SEND_QUEUE_BYTES_MAX; the receive buffer one frame of the largest size that
 *          is allowed now.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/frame.h"

#define REMO__LINK_FDS_MAX 8u /* received, but their frame is not complete yet */

struct remo__packet { /* a frame that waits to be sent */
    struct remo__packet *next;
    int fd; /* goes with the first byte; -1: none */
    size_t bytes, sent;
    uint8_t wire[];
};

struct remo__link {
    int fd;
    bool carries_fds; /* a Unix socket */

    /* sending */
    struct remo__seal send_seal;
    struct remo__packet *first, **last;
    size_t queued_bytes;
    bool send_broken; /* nothing more leaves; the reader finds out why */

    /* receiving */
    struct remo__seal receive_seal;
    uint8_t *buffer;
    size_t buffer_bytes, buffer_start, buffer_end;
    uint32_t frame_bytes_max;
    uint32_t fd_count;
    int fds[REMO__LINK_FDS_MAX];
};

/* The link owns `fd` afterwards, also when this fails. Errors: -ENOMEM. */
int remo__link_open(struct remo__link *link, int fd, bool carries_fds, uint32_t frame_bytes_max);
void remo__link_close(struct remo__link *link);
/* Allow larger frames from now on. Errors: -ENOMEM. */
int remo__link_widen(struct remo__link *link, uint32_t frame_bytes_max);

/* Append one frame; `fd` is duplicated, or dropped where it cannot travel. Errors: -ENOBUFS, -ENOMEM,
 * -EMFILE. */
int remo__link_queue(struct remo__link *link, uint16_t type, uint16_t flags, const void *data, size_t bytes,
                     int fd);
/* Send what the socket takes. 0: all is sent; -EAGAIN: when the socket is writable again; -EBUSY: try again a
 * little later (the kernel's limits on memory or on descriptors in flight); -EPIPE: broken, the queue is
 * dropped. */
int remo__link_flush(struct remo__link *link);

/* Receive once. Returns bytes (> 0), 0 at the end of the stream, or -EAGAIN, -EMFILE, -EBADMSG,
 * -ECONNRESET... */
int remo__link_fill(struct remo__link *link);
/* The next whole frame: 1 with *ret_frame valid until the next fill, and *ret_fd (or -1) now the caller's. 0:
 * none. -EBADMSG. */
int remo__link_next(struct remo__link *link, struct remo__frame *ret_frame, int *ret_fd);
