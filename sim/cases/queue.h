/* queue.h - the state of the queue's cases, calls with their checks, and other parts that the files share.
 *
 *   queue.c           the calls with their checks, and cases in which the nodes compete
 *   queue_notify.c    cases in which a node waits until it is notified
 *   queue_recovery.c  cases whose nodes fail or leave, or whose operations take effect late */
#pragma once

#include <errno.h>
#include <remo/queue.h>

#include "objects/queue/queue.h"
#include "sim/case.h"
#include "sim/network/net.h"
#include "sim/oracle.h"
#include "sim/scheduler.h"

#define FOREVER REMO_FOREVER
#define ELEMENT_WORDS 15u
#define LARGE_WORDS 18u /* of an element that is not inline */
#define VALUES_MAX 64u
#define DRAIN_MAX 64u

/* COPIED: returned by a pop whose outcome is unknown; one later pop may return it again. */
enum fate { NOT_PUSHED, PUSHING, PUSHED, COPIED, POPPED };

struct queue_state {
    struct remo_queue *queues[SIM_NODES_MAX];
    uint32_t element_words;
    enum fate fate[VALUES_MAX];
    uint32_t owner[VALUES_MAX];      /* of its slot */
    bool filled;                     /* private memory: a signal between nodes */
    uint32_t pops_begun, pops_ended; /* a pop that never ended may have taken an element */
    bool is_outrunning;              /* node 1 pushes and pops */
    const struct sim_actor *outrun;  /* the thread of node 0, and its posts that node 1 has seen */
    uint64_t seen_posts;
    const struct sim_actor *waiter; /* a thread that waits until it is notified */
    const struct sim_actor *first; /* the thread whose push is delayed first, and its posts before the push */
    uint64_t first_posts;
};

/* A case of the queue. The arguments are members of struct sim_case. */
#define QUEUE_CASE(...)                                                                       \
    {                                                                                         \
        .object = "queue", .state_bytes = sizeof(struct queue_state), .open = sim_queue_open, \
        .close = sim_queue_close, .check = sim_queue_check_lost, __VA_ARGS__                  \
    }

/* Open and close the queue. Its elements have ELEMENT_WORDS, or `element_words` if that is set before. */
void sim_queue_open(void *state, struct remo_node *node, uint32_t rank);
void sim_queue_close(void *state, uint32_t rank);

/* ---- calls and their checks ---- */
/* Return the owner of the slot of the last push; only one thread of the node may push. */
uint32_t sim_queue_owner_of_last(const struct remo_queue *queue);
/* Return the number of operations of an uncontended push, before it moves the word: claim, write, and
 * flush. */
static inline uint32_t sim_queue_posts_before_advance(void) {
    return sim_profile->placed ? 2 : 3;
}
/* Return word `i` of an element. */
uint64_t sim_queue_word_of(uint64_t number, uint32_t i);
/* Push or pop an element, record the call, and check its result. */
int sim_queue_push(struct queue_state *s, uint32_t rank, uint64_t number, uint64_t timeout_ns);
int sim_queue_pop(struct queue_state *s, uint32_t rank, uint64_t timeout_ns);
/* Check an element that was popped, and record its fate. */
void sim_queue_note_popped(struct queue_state *s, const uint64_t *element, size_t size, enum fate fate);

/* ---- after the bodies ---- */
/* Pop all remaining elements; the failure of a node is reported once. With a timeout the pops wait also for
 * elements behind a claim of a failed node, which the slot's owner has not cut off yet. */
void sim_queue_drain_within(void *state, uint32_t rank, uint64_t timeout_ns);
/* The same without a timeout. */
void sim_queue_drain(void *state, uint32_t rank);
/* Check that acknowledged elements in slots of surviving nodes were popped, except one per unended pop. */
void sim_queue_check_lost(void *state);

/* ---- bodies and conditions ---- */
/* Two pushes and pops of a node that do not wait. */
void sim_queue_tries_body(void *state, uint32_t rank, uint32_t thread);
/* For sim_until: `filled`, or node 1 has failed. */
bool sim_queue_is_filled(void *ctx);
