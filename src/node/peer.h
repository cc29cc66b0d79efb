/* peer.h - the callbacks of the control thread: a peer joins, sends a frame, leaves or fails, or a
 * connection of the data plane is lost. `ctx` is the node. */
#pragma once

#include "node/node.h"

void remo__peer_on_up(void *ctx, uint32_t peer, uint32_t incarnation, bool same_machine, const void *hello,
                      size_t hello_bytes);
void remo__peer_on_frame(void *ctx, uint32_t peer, uint16_t type, const void *data, size_t bytes, int fd);
/* `reason` is 0 if the peer has left. */
void remo__peer_on_down(void *ctx, uint32_t peer, int reason);
/* The fabric has reported a loss, and woken the control thread. */
void remo__peer_on_wake(void *ctx);
/* This node counts as failed: all peers go down. */
void remo__peer_on_end(void *ctx);
void remo__peer_on_denied(void *ctx, uint32_t peer, const char *why);
