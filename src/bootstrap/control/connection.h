/* connection.h - internals of the control plane: its peers and their connections.
 *
 * Threads: fields marked (L) are accessed under the peer's lock, so that remo__control_send can queue frames
 *          from any thread. All other fields belong to the control thread.
 * Phases:  dialing or accepted -> hello -> proof -> blob -> up -> closed. Events of the same round may still
 *          refer to a closed connection, so it is freed at the end of the round.
 * Bounds:  one attempt for each peer; REMO__PENDING_EXTRA + size accepted connections that are not
 *          authenticated (the oldest is dropped); REMO__HANDSHAKE_NS for the proof. Until the proof the
 *          receive buffer holds one frame of REMO__PROOF_WIRE_MAX bytes.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/bits.h"
#include "base/clock.h"
#include "bootstrap/address.h"
#include "bootstrap/boot_id.h"
#include "bootstrap/control/control.h"
#include "bootstrap/control/handshake.h"
#include "bootstrap/control/link.h"
#include "bootstrap/control/loss.h"

#define REMO__HANDSHAKE_NS (3 * REMO__NS_PER_S)
#define REMO__HANDSHAKE_LAST_NS (30 * REMO__NS_PER_S) /* for the last step, after the proofs */
#define REMO__PENDING_EXTRA 64u
#define REMO__LISTENERS_MAX (REMO__PLACES_MAX + 2u)
#define REMO__WHY_BYTES_MAX 384u
#define REMO__READ_EVENTS (EPOLLIN | EPOLLRDHUP)

/* The target of an epoll event. */
struct remo__watch {
    enum remo__watch_kind { REMO__WATCH_WAKE, REMO__WATCH_LISTENER, REMO__WATCH_CONNECTION } kind;
};

struct remo__listener {
    struct remo__watch watch;
    int fd;
    bool made_file; /* remove the Unix socket's file at the end */
    struct remo__place place;
};

enum remo__phase {
    REMO__PHASE_DIALING,
    REMO__PHASE_HELLO,
    REMO__PHASE_PROOF,
    REMO__PHASE_BLOB,
    REMO__PHASE_UP,
    REMO__PHASE_CLOSED
};

struct remo__connection {
    struct remo__watch watch;
    enum remo__phase phase;
    struct remo__control *control;
    struct remo__member *peer; /* NULL: accepted, and no hello received yet */
    bool connector;            /* this node dialed */
    bool same_machine;
    uint8_t boot_id[REMO__BOOT_ID_BYTES]; /* of the peer's machine */
    bool has_heartbeats;                  /* crosses a network: heartbeats both ways */
    bool writable_wanted;                 /* (L) epoll watches for room in the socket */
    bool stalled;                         /* (L) the kernel lacked resources: retry soon */
    enum remo__why why;                   /* the kind of reason, if the handshake fails */
    struct remo__link link;               /* sending half (L) once up */
    struct remo__handshake *handshake;    /* NULL once up */
    struct remo__place place;             /* the dialed place, or the caller's address */
    uint64_t deadline;                    /* of the handshake */
    uint64_t received_at, heartbeat_at;
    struct remo__connection *previous, *next; /* in `pending`, oldest first; `next` alone in `closed` */
};

enum remo__member_presence { REMO__PEER_NEVER, REMO__PEER_UP, REMO__PEER_DOWN };

struct remo__member {
    uint32_t rank;
    pthread_mutex_t lock;
    enum remo__member_presence presence; /* (L) */
    struct remo__connection *connection; /* (L) while up */
    char why[REMO__WHY_BYTES_MAX];       /* (L) */
    enum remo__why why_kind;             /* (L) */

    bool was_up;
    uint32_t incarnation;                 /* the last one that was up */
    uint8_t boot_id[REMO__BOOT_ID_BYTES]; /* of the machine of that incarnation */
    struct remo__place *places; /* to dial lower ranks; with a key, plausible origins of higher ranks */
    /* Lower ranks only, which this node dials: */
    struct remo__connection *attempt;
    uint32_t place_count, unix_count; /* Unix places come first */
    uint32_t next_place;
    uint32_t unix_attempts; /* 0: any place; n > 1: n - 1 more attempts by Unix socket only; 1: none left */
    uint64_t retry_at, retry_delay;
};

/* A frame from this node to itself. */
struct remo__note {
    struct remo__note *next;
    uint16_t type;
    int fd;
    size_t bytes;
    uint8_t data[];
};

struct remo__control {
    struct remo__control_config config;
    const struct remo__roster *roster;
    uint32_t rank, size;
    size_t hello_bytes;
    uint8_t hello[REMO__HELLO_BYTES_MAX];
    uint8_t boot_id[REMO__BOOT_ID_BYTES];

    pthread_t thread;
    int epoll_fd, wake_fd;
    struct remo__watch wake_watch;
    atomic_bool closing;

    struct remo__member *peers; /* [size] */
    uint32_t listener_count;
    struct remo__listener listeners[REMO__LISTENERS_MAX];
    uint64_t listen_again_at; /* REMO_FOREVER: listening */

    struct remo__connection *pending_first, *pending_last;
    uint32_t pending_accepted; /* accepted connections among them */
    struct remo__connection *closed;
    uint64_t timer_at;
    uint64_t read_until;  /* what had arrived at this time has been handled */
    uint64_t drop_log_at; /* limits warnings that any process can cause */

    struct remo__losses losses; /* only peers that are up have an open loss */
    uint32_t machine_count;     /* the next number of a machine, for `losses` */
    bool has_ended_all;         /* this node has ended all its streams: it counts as failed (end.c) */

    pthread_mutex_t notes_lock;
    struct remo__note *notes_first, **notes_last; /* under notes_lock */
    size_t notes_bytes;
};

/* Run the timers no later than `when`. */
static inline void remo__control_arm(struct remo__control *control, uint64_t when) {
    control->timer_at = remo__min(control->timer_at, when);
}

/* ---- connection.c -------------------------------------------------------------------------------------- */

/* Create a connection that is not watched yet; it owns `fd`, also on failure. Errors: -ENOMEM. */
int remo__connection_new(struct remo__control *control, int fd, const struct remo__place *place,
                         bool connector, struct remo__connection **ret_connection);
/* Add the connection to epoll (EPOLL_CTL_ADD), or replace its events (EPOLL_CTL_MOD). */
int remo__connection_watch(struct remo__connection *connection, int operation, uint32_t events);
/* The handshake is complete: establish the connection and call `up` with the peer's blob. */
void remo__connection_up(struct remo__connection *connection, const void *hello, size_t hello_bytes);
/* Close an established connection and call `down` with `reason`. */
void remo__connection_down(struct remo__connection *connection, int reason);
/* Close a connection that is not up, with the reason for the peer's `why` and the log. */
void remo__connection_drop(struct remo__connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Close the connection and free it at the end of the round; no callback. */
void remo__connection_close(struct remo__connection *connection);
/* Queue and send a frame, as remo__control_send. The caller holds the peer's lock once up. */
int remo__connection_send(struct remo__connection *connection, uint16_t type, uint16_t flags,
                          const void *data, size_t bytes, int fd);
/* Send queued frames. The caller holds the peer's lock once up. */
void remo__connection_flush(struct remo__connection *connection);

/* ---- receive.c ----------------------------------------------------------------------------------------- */

/* Create a connection from a socket, and begin the handshake; it owns `fd`, also on failure. Errors: -ENOMEM,
 * those of epoll_ctl. */
int remo__connection_accepted(struct remo__control *control, int fd, const struct remo__place *place);
int remo__connection_dialed(struct remo__control *control, struct remo__member *peer, int fd,
                            const struct remo__place *place, bool established);
void remo__connection_event(struct remo__connection *connection, uint32_t events);
/* Read the available data; also called before a peer is declared silent. */
void remo__connection_receive(struct remo__connection *connection);

/* ---- end.c --------------------------------------------------------------------------------------------- */

/* The peer has reported that it has lost the connection of the data plane. */
void remo__end_reported(struct remo__control *control, uint32_t rank);
/* The peer has demanded that this node ends: call `ended`, then end the streams of all peers. A demand of a
 * higher rank is discarded. */
void remo__end_demanded(struct remo__control *control, uint32_t rank);
/* The peer counts this node as failed: call `ended`, then end the streams of all peers. */
void remo__end_as_failed(struct remo__control *control, uint32_t rank);
/* A peer that has proved its credential refused the incarnation of this node. Has the effect of
 * remo__end_as_failed if the two were connected. */
void remo__end_refused(struct remo__control *control, const struct remo__member *peer);
/* The peer was silent for too long: end its stream, and report this to the peer. */
void remo__end_silent(struct remo__control *control, struct remo__member *peer);
/* Decide the losses whose time has come. `was_away`: this thread did not run for a while. */
void remo__end_decide(struct remo__control *control, uint64_t now, bool was_away);

/* ---- member.c ------------------------------------------------------------------------------------------ */

/* Dialing `place` failed: record the reason, then continue as remo__member_dial_later. */
void remo__member_dial_failed(struct remo__control *control, struct remo__member *peer,
                              const struct remo__place *place, int rc);
/* An attempt or a connection has ended: schedule the next place, now or after a back-off. */
void remo__member_dial_later(struct remo__control *control, struct remo__member *peer);
/* Switch a peer of this machine from TCP to its Unix socket, which alone carries descriptors. Returns false
 * if there is none. The attempts are limited: one kernel does not imply one file system. */
bool remo__member_switch_to_unix(struct remo__member *peer, const struct remo__connection *connection);
/* Record why the peer is not connected; log a new reason. A refusal is never replaced by a weaker reason: a
 * refused peer may exit, and is then merely unreachable. */
void remo__member_why(struct remo__control *control, struct remo__member *peer, enum remo__why kind,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- dial.c -------------------------------------------------------------------------------------------- */

/* Dial the peer if this node dials it and the retry time has come; else arm the timer. */
void remo__member_dial_when_due(struct remo__control *control, struct remo__member *peer, uint64_t now);

/* ---- listen.c ------------------------------------------------------------------------------------------ */

int remo__listeners_open(struct remo__control *control);
void remo__listeners_close(struct remo__control *control);
/* EPOLL_CTL_ADD or EPOLL_CTL_DEL */
void remo__listeners_watch(struct remo__control *control, int operation);
void remo__listener_event(struct remo__control *control, struct remo__listener *listener);
