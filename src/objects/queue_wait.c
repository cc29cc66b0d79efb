/* queue_wait.c - the words `tail` and `head`, and waiting until there is something to pop, or room to push.
 *
 * Who waits says so in two steps, its node's bit in the set of waiters and bit 0 of the word, then looks once
 * more, and sleeps until its bell is rung. Who changes what is waited for (fills a slot, frees a slot) does
 * so before it moves the word, and learns from the word's old value whether anybody waits; so either the
 * waiter's last look sees the change, or the changer sees the bit. It clears the bit and rings all bells of
 * the set; those who still have to wait set it again. If the changer dies in between, on_leave lets everybody
 * look again. */
#include "node/access.h"
#include "objects/queue.h"

#define SWAPS_MAX 8u /* of a word in one go; whoever made them fail has moved it instead */
/* Look again and again for so long before saying that we wait. */
#ifdef REMO_SIM_SMALL
#define BRIEF_NS REMO__NS_PER_US /* a hundred looks there, since one takes 10 ns */
#else
#define BRIEF_NS (100 * REMO__NS_PER_US)
#endif
#define LOOK_NS (20 * REMO__NS_PER_MS) /* look at least so often while waiting */

static struct remo_stats *counters(const struct remo__queue_op *op) {
    return remo__channel_counters(op->queue->channel, op->thread);
}

static int swap_word(struct remo__queue_op *op, enum remo__queue_side side, uint64_t expected,
                     uint64_t desired, uint64_t *ret_old) {
    struct remo_queue *queue = op->queue;
    uint64_t at = 0;
    int rc = remo__queue_find(queue, queue->home_memory, queue->home, REMO__QUEUE_WORD(side), &at);
    if (rc != 0)
        return rc;
    return remo__compare_swap(op->thread, counters(op), queue->home, at, expected, desired, ret_old, NULL);
}

/* ---- bells ---- */

static void ring(struct remo__queue_op *op, enum remo__queue_side side, uint32_t node, struct remo_ack *ack) {
    struct remo_queue *queue = op->queue;
    uint64_t stamp = (uint64_t)queue->node->rank << 48 | (atomic_fetch_add(&queue->stamps, 1) + 1);
    uint64_t at = remo__memory_at(queue->slots_memory, node, REMO__QUEUE_BELL(side));
    if (at != REMO__NO_OFFSET)
        (void)remo__write(op->thread, counters(op), node, at, &stamp, 8,
                          REMO__WRITE_NOTIFY | REMO__WRITE_SETTLED, ack);
}

/* Everybody who waits at the side. What goes wrong here goes wrong because somebody is gone, and that wakes
 * people too. The writes must have been done before we return: this thread may not come back to the library
 * to see them on their way. */
static void ring_all(struct remo__queue_op *op, enum remo__queue_side side) {
    struct remo_queue *queue = op->queue;
    struct remo_ack ack = REMO_ACK_INIT;
    struct remo_nodeset waiters;
    uint64_t at = 0;
    int rc = remo__queue_find(queue, queue->home_memory, queue->home, REMO__QUEUE_WAITERS(side), &at);
    if (rc == 0)
        rc = remo__read(op->thread, counters(op), queue->home, at, &waiters, sizeof waiters, NULL);
    if (rc != 0)
        return;
    for (uint32_t i = 0; i < queue->member_count; i++)
        if (remo_nodeset_has(&waiters, queue->members[i]))
            ring(op, side, queue->members[i], &ack);
    if (remo__ack_pending(&ack))
        (void)remo_ack_wait(&ack, queue->node->op_timeout_ns);
    if (remo__ack_pending(&ack))
        remo_ack_cancel(&ack);
}

void remo__queue_advance(struct remo__queue_op *op, uint64_t expected, uint64_t to) {
    bool somebody_waits = false;
    uint64_t old;
    for (uint32_t i = 0; i < SWAPS_MAX; i++) {
        if (swap_word(op, op->side, expected, to << 1, &old) != 0)
            return; /* the home is gone; what was done is done */
        somebody_waits = old & 1;
        if (old == expected || old >> 1 >= to)
            break;
        expected = old;
    }
    if (remo__unlikely(somebody_waits))
        ring_all(op, op->side);
}

/* ---- waiting ---- */

static uint64_t add_own_bit(struct remo__queue_op *op, enum remo__queue_side side, bool set) {
    struct remo_queue *queue = op->queue;
    uint32_t rank = queue->node->rank;
    uint64_t bit = UINT64_C(1) << rank % 64, at = 0;
    int rc = remo__queue_find(queue, queue->home_memory, queue->home,
                              REMO__QUEUE_WAITERS(side) + rank / 64 * 8, &at);
    if (rc != 0)
        return rc;
    return remo__fetch_add(op->thread, counters(op), queue->home, at, set ? bit : -bit, NULL, NULL);
}

/* One bit stands for all waiting threads of the node. */
static int begin_wait(struct remo__queue_op *op, enum remo__queue_side side) {
    struct remo__queue_waiting *waiting = &op->queue->waiting[side];
    int rc = remo__mutex_lock(op->queue->node, &waiting->mutex, REMO_FOREVER);
    if (rc != 0)
        return rc;
    if (waiting->threads == 0)
        rc = add_own_bit(op, side, true);
    waiting->threads += rc == 0;
    remo__mutex_unlock(op->queue->node, &waiting->mutex);
    return rc;
}

static void end_wait(struct remo__queue_op *op, enum remo__queue_side side) {
    struct remo__queue_waiting *waiting = &op->queue->waiting[side];
    if (remo__mutex_lock(op->queue->node, &waiting->mutex, REMO_FOREVER) != 0)
        return;
    if (--waiting->threads == 0)
        (void)add_own_bit(op, side, false);
    remo__mutex_unlock(op->queue->node, &waiting->mutex);
}

/* Bit 0 of the word is set now, or the word moves so fast that there is no point in waiting. */
static int raise_flag(struct remo__queue_op *op, enum remo__queue_side side) {
    uint64_t expected = atomic_load_explicit(&op->queue->hint[side], memory_order_relaxed) << 1, old;
    for (uint32_t i = 0; i < SWAPS_MAX; i++) {
        int rc = swap_word(op, side, expected, expected | 1, &old);
        if (rc != 0)
            return rc;
        if (old == expected || (old & 1))
            break;
        expected = old;
    }
    return 0;
}

struct bell_wait {
    struct remo__queue_op *op;
    const void *bell;
    uint64_t seen;
};

static int rung(void *ctx) {
    const struct bell_wait *wait = ctx;
    struct remo_queue *queue = wait->op->queue;
    if (remo__load(wait->bell) != wait->seen)
        return 1;
    int rc = remo__channel_check_peer(queue->channel, queue->home);
    return rc != 0 ? rc : atomic_load_explicit(&queue->deaths, memory_order_acquire) != wait->op->seen_deaths;
}

/* The bit of our node is set. Between the flag and the sleep there is one more try, which must not be left
 * out. */
static int wait_at_bell(struct remo__queue_op *op, int (*attempt)(void *ctx), enum remo__queue_side side,
                        uint64_t deadline_ns) {
    struct bell_wait wait = {.op = op, .bell = op->queue->slots_memory->own + REMO__QUEUE_BELL(side)};
    for (;;) {
        wait.seen = remo__load(wait.bell);
        int rc = raise_flag(op, side);
        if (rc == 0)
            rc = attempt(op);
        if (rc != 0)
            return rc;
        uint64_t look_at = remo__deadline(LOOK_NS);
        rc = remo__wait(op->queue->node, rung, &wait, remo__min(look_at, deadline_ns));
        if (rc != 0 && (rc != -ETIMEDOUT || deadline_ns <= look_at))
            return rc;
    }
}

int remo__queue_wait(struct remo__queue_op *op, int (*attempt)(void *ctx), uint64_t deadline_ns) {
    enum remo__queue_side side =
        op->side == REMO__QUEUE_TAIL ? REMO__QUEUE_HEAD : REMO__QUEUE_TAIL; /* a push waits for pops */
    int rc = remo__wait(op->queue->node, attempt, op, remo__min(deadline_ns, remo__deadline(BRIEF_NS)));
    if (rc != -ETIMEDOUT || remo__remaining_ns(deadline_ns) == 0)
        return rc;
    rc = begin_wait(op, side);
    if (rc != 0)
        return rc;
    rc = wait_at_bell(op, attempt, side, deadline_ns);
    end_wait(op, side);
    return rc > 0 ? 0 : rc;
}
