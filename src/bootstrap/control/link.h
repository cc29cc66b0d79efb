/* link.h - one non-blocking stream socket that carries frames and, on one machine, descriptors.
 *
 * Threads: any thread may use the sending half (queue, flush) under a lock of the owner. The receiving half
 *          belongs to the control thread. The halves share no fields.
 * Bounds:  the queue holds REMO__SEND_QUEUE_BYTES_MAX; the receive buffer holds one frame of the largest size
 *          allowed now.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/control/frame.h"

#define REMO__LINK_FDS_MAX 8u /* received descriptors of incomplete frames */

struct remo__packet { /* a queued frame */
    struct remo__packet *next;
    int fd; /* sent with the first byte; -1: none */
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
    bool send_broken; /* sending has failed; the receiving half detects the cause */

    /* receiving */
    struct remo__seal receive_seal;
    uint8_t *buffer;
    size_t buffer_bytes, buffer_start, buffer_end;
    uint32_t frame_bytes_max;
    uint32_t fd_count;
    int fds[REMO__LINK_FDS_MAX];
};

/* Open a link. It owns `fd`, also on failure. Errors: -ENOMEM. */
int remo__link_open(struct remo__link *link, int fd, bool carries_fds, uint32_t frame_bytes_max);
void remo__link_close(struct remo__link *link);
/* Allow larger frames from now on. Errors: -ENOMEM. */
int remo__link_widen(struct remo__link *link, uint32_t frame_bytes_max);

/* Append one frame. `fd` is duplicated, or ignored if the link carries no descriptors. Errors: -ENOBUFS,
 * -ENOMEM, -EMFILE. */
int remo__link_queue(struct remo__link *link, uint16_t type, uint16_t flags, const void *data, size_t bytes,
                     int fd);
/* Send queued frames until the socket is full. Returns
 *     0        all frames are sent
 *     -EAGAIN  call again when the socket is writable
 *     -EBUSY   retry soon: the kernel's limit on memory, or on descriptors in flight, is reached
 *     -EPIPE   the connection is lost; the queue is dropped */
int remo__link_flush(struct remo__link *link);

/* Receive once. Returns the number of bytes, 0 at the end of the stream, or -EAGAIN, -EMFILE, -EBADMSG,
 * -ECONNRESET... */
int remo__link_fill(struct remo__link *link);
/* Take the next complete frame. Returns 1, 0 if there is none, or -EBADMSG. *ret_frame is valid until the
 * next fill; the caller owns *ret_fd (or -1). */
int remo__link_next(struct remo__link *link, struct remo__frame *ret_frame, int *ret_fd);
