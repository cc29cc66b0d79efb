/* connection.h - the inside of the control plane: its peers, and connections from the first byte to the
 * last.
 *
 * Threads: all of it belongs to the control thread, but for what is marked (L): that is read and written
 *          under the peer's lock, so that remo__control_send can put frames on an established connection
 *          from any thread.
 * Life:    dialing or accepted -> hello -> proof -> blob -> up -> closed. A connection that is closed while
 *          events of the same round may still name it is buried: freed at the end of the round.
 * Bounds:  one attempt to each peer, REMO__STRANGERS_EXTRA + size accepted connections that have not proved
 *          themselves (the oldest gives way), REMO__HANDSHAKE_NS for the proof, and a buffer of one page and
 *          a bit until then.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "bootstrap/address.h"
#include "bootstrap/boot_id.h"
#include "bootstrap/control.h"
#include "bootstrap/handshake.h"
#include "bootstrap/link.h"

#define REMO__HANDSHAKE_NS (3 * REMO__NS_PER_S)
#define REMO__HANDSHAKE_LAST_NS (30 * REMO__NS_PER_S) /* for the last step, after the proofs */
#define REMO__STRANGERS_EXTRA 64u
#define REMO__LISTENERS_MAX (REMO__PLACES_MAX + 2u)
#define REMO__WHY_BYTES_MAX 384u

/* What an epoll event points to. */
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
    struct remo__member *peer; /* NULL: a stranger that has not said hello */
    bool connector;            /* we called */
    bool same_machine;
    bool beats;                        /* crosses a network: heartbeats both ways */
    bool writable_wanted;              /* (L) epoll watches for room in the socket */
    bool stalled;                      /* (L) the kernel was short of something: try again soon */
    enum remo__why why;                /* should it not come up */
    struct remo__link link;            /* sending half (L) once up */
    struct remo__handshake *handshake; /* NULL once up */
    struct remo__place place;          /* where it leads, or who came */
    uint64_t deadline;                 /* of the handshake */
    uint64_t heard_at, beat_at;
    struct remo__connection *previous, *next; /* in `pending`, oldest first; `next` alone in `buried` */
};

enum remo__member_presence { REMO__PEER_NEVER, REMO__PEER_HERE, REMO__PEER_GONE };

struct remo__member {
    uint32_t rank;
    pthread_mutex_t lock;
    enum remo__member_presence presence; /* (L) */
    struct remo__connection *connection; /* (L) while here */
    char why[REMO__WHY_BYTES_MAX];       /* (L) */
    enum remo__why why_kind;             /* (L) */

    bool seen;
    uint32_t incarnation; /* of the last life seen */
    /* for lower ranks, which we call: */
    struct remo__connection *attempt;
    struct remo__place *places;
    uint32_t place_count, unix_count; /* Unix places come first */
    uint32_t next_place;
    uint32_t unix_attempts; /* 0: any place; n > 1: n - 1 more by Unix socket only; 1: these are used up */
    uint64_t retry_at, retry_delay;
};

/* A frame to ourselves. */
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
    uint32_t strangers; /* accepted ones among them */
    struct remo__connection *buried;
    uint64_t timer_at;
    uint64_t complain_at; /* strangers fill no logs */

    pthread_mutex_t notes_lock;
    struct remo__note *notes_first, **notes_last; /* under notes_lock */
    size_t notes_bytes;
};

/* ---- connection.c -------------------------------------------------------------------------------------- */

/* Both own `fd` afterwards. 0, or -errno when there is no memory: then nothing remains. */
int remo__connection_accepted(struct remo__control *control, int fd, const struct remo__place *place);
int remo__connection_called(struct remo__control *control, struct remo__member *peer, int fd,
                            const struct remo__place *place, bool established);
void remo__connection_event(struct remo__connection *connection, uint32_t events);
/* Read what is there; used before a peer is declared silent. */
void remo__connection_receive(struct remo__connection *connection);
/* End a connection that never came up, with the reason for the peer's `why` and the log. */
void remo__connection_drop(struct remo__connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* End an established one: `down` with `reason`. */
void remo__connection_retire(struct remo__connection *connection, int reason);
/* Close and free at the end of the round; no callback. */
void remo__connection_bury(struct remo__connection *connection);
/* Queue and send; (L) is held once up. As remo__control_send. */
int remo__connection_send(struct remo__connection *connection, uint16_t type, uint16_t flags,
                          const void *data, size_t bytes, int fd);
/* Send what is queued; (L) is held once up. */
void remo__connection_flush(struct remo__connection *connection);

/* ---- dial.c -------------------------------------------------------------------------------------------- */

/* Do we call this peer, and is it time? Lowers the timer otherwise. */
void remo__member_dial_when_due(struct remo__control *control, struct remo__member *peer, uint64_t now);
/* Nobody could be reached at `place`: note why, and go on as below. */
void remo__member_dial_failed(struct remo__control *control, struct remo__member *peer,
                              const struct remo__place *place, int rc);
/* An attempt has failed, or a peer is gone: go on with its next place, now or later. */
void remo__member_dial_later(struct remo__control *control, struct remo__member *peer);
/* The peer is on this machine, yet was reached by network: if it has a Unix socket, dial that from now on
 * (for a while: the same kernel does not mean the same file system), because only there can descriptors
 * travel. */
bool remo__member_turn_to_unix(struct remo__member *peer, const struct remo__connection *connection);
/* Note why the peer is not there; logged when it is news. That it was refused is never replaced by less,
 * since whoever was refused gives up, and then is just away. */
void remo__member_why(struct remo__control *control, struct remo__member *peer, enum remo__why kind,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- listen.c ------------------------------------------------------------------------------------------ */

int remo__listeners_open(struct remo__control *control);
void remo__listeners_close(struct remo__control *control);
/* EPOLL_CTL_ADD or EPOLL_CTL_DEL */
void remo__listeners_watch(struct remo__control *control, int operation);
void remo__listener_event(struct remo__control *control, struct remo__listener *listener);
/* Is the other end of this Unix socket a process of our own user? */
bool remo__socket_is_ours(int fd);

/* ---- control.c ----------------------------------------------------------------------------------------- */

/* The thread looks at its timers at `when` at the latest. */
void remo__control_arm(struct remo__control *control, uint64_t when);
