/* queue.h - the queue from inside: slots that are claimed by compare-and-swap, two words that say where to
 * look, and bells.
 *
 * Ticket t belongs to slot t % capacity, in lap t / capacity. The slot lives at participant number
 * (t % capacity) % participants. A slot is
 *     u64 claim             lap:39 | claimed:1 | thread:8 | node:16, network atomics only
 *     u64 checksum          of meta and data
 *     u64 meta              ticket:40 | size:24
 *     data                  from checksum on written by whoever claimed it, without atomics
 *
 * A push claims the slot of its ticket, FREE(lap) -> CLAIMED(lap, who), and fills it. A pop finds it claimed
 * and filled (a torn or older content does not have the checksum), and frees it, CLAIMED(lap, who) ->
 * FREE(lap + 1).
 *
 * Order. Let F be the first ticket that was never claimed, H the first that was never freed. A claim of t
 * succeeds only at t = F: every push starts at a ticket <= F and goes on from t only when it has seen that t
 * is claimed; and for t < F the swap fails, because the slot is claimed or in a later lap. Likewise a pop
 * frees t only at t = H. So claims happen in the order of tickets, and so do frees, and H <= F <= H +
 * capacity. A push takes effect at its claim and a pop at its free; "empty" is true when FREE(lap of H) was
 * read at H, for then H = F; "full" is true when the slot of F was found in an earlier lap, for then F = H +
 * capacity. A pop that finds a claim that is not filled waits: the element is in the queue already, but not
 * yet to be had.
 *
 * Death. What a dead node has claimed and not filled by the time when the slot's owner has cut it off (and
 * says so in its own memory) never will be filled: the slot is freed, and that push has not happened. Slots
 * of a dead owner are passed over by pushes and pops. Nobody holds a ticket, so nothing else is left behind,
 * neither by a death nor by a timeout. While a death becomes known, those who do not know of it yet may still
 * use the dead node's slots: such elements may be lost, or come out late.
 *
 * Failed pushes. A push that has claimed its slot and cannot fill it retracts the claim: it frees the slot as a
 * pop does, CLAIMED(lap, node) -> FREE(lap + 1), and pops skip the ticket. It does so when no write of its own
 * to the slot is in flight, because that write would overwrite the slot's next element. A claim that cannot be
 * retracted yet is kept, and each later call on the node tries again; pops wait at it. The order remains: the
 * slot is claimed again for ticket t + capacity, which a push reaches after t + capacity - 1 was claimed, and
 * so after H has passed t.
 *
 * Skipped slots. A node that some participants take for failed may itself take them for failed: it skips their
 * slots and claims, or frees, tickets behind them. Such a slot stays in a lap that is over. A push claims it
 * for its own lap, FREE(earlier) -> CLAIMED(lap). A pop takes the element of an earlier lap out, late; if the
 * slot is free but `tail` is past its ticket, it moves the slot on, FREE(lap or earlier) -> FREE(lap + 1).
 * Without such a node neither happens: a search never comes to a ticket whose slot is in an earlier lap,
 * except for a push that finds the queue full, and that finds the slot claimed.
 *
 * The words `tail` and `head` at the home say where about F and H are, never more. They are moved after the
 * fact, and may lag; together with what a node remembers they are where a search begins. Bit 0 of `tail` says
 * that some node waits to pop, bit 0 of `head` to push: see queue_wait.c. */
#pragma once

#include <remo/queue.h>

#include "channel/channel.h"

#define REMO__QUEUE_BRIEF_BYTES 1000u /* up to this an element is moved with its header in one piece */

#define REMO__SLOT_HEAD_BYTES 24u
#define REMO__SLOT_CLAIMED (UINT64_C(1) << 24)
#define REMO__SLOT_LAP_SHIFT 25
#define REMO__META_SIZE_BITS 24

/* Offsets in the memory of the home, and at the start of each participant's slots. */
#define REMO__QUEUE_WORD(side) (64u * (side))
#define REMO__QUEUE_WAITERS(side) (128u + 64u * (side)) /* bit sets of nodes, network atomics only */
#define REMO__QUEUE_HOME_BYTES 256u
#define REMO__QUEUE_CUT_OFF 0u                      /* bit set of nodes; stored by the owner */
#define REMO__QUEUE_BELL(side) (64u + 64u * (side)) /* words that peers write to wake this node */
#define REMO__QUEUE_SLOTS 192u

/* What waits, and the word whose flag says so: pops wait at the tail (for pushes), pushes at the head. */
enum remo__queue_side { REMO__QUEUE_TAIL = 0, REMO__QUEUE_HEAD = 1 };

#define REMO__QUEUE_KEPT_MAX 4u /* claims of failed pushes; when there are more, pushes fail */

struct remo__queue_place {
    uint64_t ticket, lap;
    uint32_t owner;
    uint64_t at; /* of the slot in the owner's arena */
};

/* A claim to retract. */
struct remo__queue_kept {
    struct remo__thread *thread; /* that claimed it */
    struct remo__queue_place place;
    uint64_t claim;
    struct remo_ack ack; /* of its writes to the slot */
    bool is_unsure;      /* the slot may be retracted already */
};

struct remo__queue_waiting {
    struct remo__mutex mutex; /* around `threads` and our bit at the home */
    uint32_t threads;
};

struct remo_queue {
    struct remo_node *node;
    struct remo_channel *channel;
    struct remo__memory *home_memory, *slots_memory;
    uint64_t capacity;
    uint32_t slot_bytes;
    uint32_t stride; /* of slots */
    uint32_t home;
    uint32_t member_count;
    uint16_t members[REMO_NODES_MAX];
    _Atomic uint32_t deaths; /* participants that died or left */
    _Atomic uint32_t told;   /* of these, callers have been told */
    _Atomic uint64_t stamps; /* so that no two rings of a bell are alike */
    struct remo__queue_waiting waiting[2];
    struct remo__mutex kept_mutex; /* around `kept` */
    struct remo__queue_kept kept[REMO__QUEUE_KEPT_MAX];
    _Atomic uint32_t kept_count;
    _Atomic uint64_t hint[2] REMO__CACHE_ALIGNED; /* by side: where our last push and pop were */
};

/* One call of push or pop. */
struct remo__queue_op {
    struct remo_queue *queue;
    struct remo__thread *thread;
    enum remo__queue_side side; /* the word that it moves */
    uint32_t seen_deaths;
    const void *data; /* push */
    void *buffer;     /* pop */
    size_t buffer_bytes;
    size_t size;       /* of the element */
    bool is_too_large; /* pop: for the buffer */
};

/* ---- queue_slot.c ---- */

/* Wait conditions, and at the same time all there is to a call that need not wait: 1 done, 0 full or empty,
 * or an error. */
int remo__queue_try_push(void *ctx);
int remo__queue_try_pop(void *ctx);
/* The queue closes: claims that are kept are left to its owners, which cut this node off. */
void remo__queue_forget_kept(struct remo_queue *queue);

/* Where an offset of a node's memory is; waits for a participant that has not opened the queue yet. */
int remo__queue_find(struct remo_queue *queue, const struct remo__memory *memory, uint32_t node,
                     uint64_t offset, uint64_t *ret_at);
/* -EHOSTDOWN, once, to whoever calls first after a participant went; 0 when there is nothing to tell. */
int remo__queue_news(struct remo__queue_op *op);
/* Does the node still take part? */
bool remo__queue_gone(const struct remo_queue *queue, uint32_t node);

/* ---- queue_wait.c ---- */

/* The side's word is at least `to` now, if not `expected` was its value; ring those who wait for that. */
void remo__queue_advance(struct remo__queue_op *op, uint64_t expected, uint64_t to);
/* Try until done or the deadline. */
int remo__queue_wait(struct remo__queue_op *op, int (*attempt)(void *ctx), uint64_t deadline_ns);
