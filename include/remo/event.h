/* event.h - a file descriptor for poll, epoll and event loops.
 *
 * Model:   an event belongs to a node and has one descriptor. Arm the event, check for work with
 *          calls that do not block, and poll the descriptor if there was none. The descriptor
 *          becomes readable, once for each arming, when the state of this node may have changed
 *          since the event was armed:
 *          - a peer has written and notified: a message of a ring buffer, a pushed row of an SST, a
 *            pushed value of an owned variable;
 *          - a message or an immediate of a channel has arrived, or a channel has connected;
 *          - a peer has joined, left or failed;
 *          - an operation that the arming thread had in flight is complete.
 *          Queues and locks notify only threads that wait in a call. For them an armed event
 *          becomes readable after 20 ms at the latest. Spurious readiness is possible at any time.
 * Use:     for (;;) {
 *              remo_event_arm(event);
 *              if (!work_that_does_not_wait())
 *                  poll(descriptors, count, -1);
 *          }
 * Cost:    no network operation. An armed event costs peers of the same machine one system call for
 *          their next notification; an event that is not armed costs nothing. Each event has a
 *          thread, which sleeps.
 * Failure: a failed peer makes the descriptor readable; the calls of the loop return the error.
 * Threads: any thread may arm. Do not call open, arm and close of one event concurrently.
 * Source:  libibverbs' ibv_req_notify_cq: arm, poll once more, then sleep. Not in LOCO.
 */
#pragma once

#include <remo/node.h>

REMO_BEGIN

struct remo_event;

/* Open an event of `node`. It is not armed. Does not block.
 * Errors:
 *   -EINVAL           an argument is NULL
 *   -EMFILE, -ENFILE  no descriptor is free
 *   -EAGAIN           no thread can be started
 *   -ENOMEM           no memory */
REMO_API int remo_event_open(struct remo_node *node, struct remo_event **ret_event);
/* Close the event and its descriptor. Close events before their node. NULL has no effect. */
REMO_API void remo_event_close(struct remo_event *event);
/* Return the descriptor. Poll it for input (POLLIN, EPOLLIN); do not read, write or close it.
 * Errors:
 *   -EINVAL  `event` is NULL */
REMO_API int remo_event_fd(const struct remo_event *event);
/* Arm the event: the descriptor becomes unreadable until the next change. Changes before the call
 * are not reported, so check for work after arming and before polling. An armed event may be armed
 * again. Does not block.
 * Errors:
 *   -EINVAL  `event` is NULL
 *   -EAGAIN  too many threads use the node
 *   -ENOMEM  no memory for the state of the thread */
REMO_API int remo_event_arm(struct remo_event *event);

REMO_END
