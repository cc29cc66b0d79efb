/* wait.c - moves the words `tail` and `head`, and waits for an element to pop or room to push.
 * Invariant: a waiter sets bit 0 of the word before its last try, and a call moves the word after it changed
 * a slot; so the waiter observes the change, or the call observes the bit and notifies the waiters. The
 * protocol is described in docs/internals/queue.md, "Waiting". */
#include "objects/queue/queue.h"

#define SWAPS_MAX 8u /* of a word in one call; a failed one means that another node has moved the word */
#define BIT_SWAPS_MAX \
    64u /* of the set of waiters; a failed one means that another node began or ended a wait */
/* Retry this long before the wait is announced at the home. */
#ifdef REMO_SIM_SMALL
#define SPIN_NS REMO__NS_PER_US /* about a hundred tries: one takes 10 ns there */
#else
#define SPIN_NS (100 * REMO__NS_PER_US)
#endif
#define RETRY_NS REMO__SLEEP_NS_MAX           /* a notification may be lost with the write that carries it */
#define RETRY_UNNOTIFIED_NS REMO__POLL_NS_MAX /* a change may not notify this waiter */

static int swap_word(struct remo__queue_op *op, enum remo__queue_side side, uint64_t expected,
                     uint64_t desired, uint64_t *ret_old) {
    struct remo__ref ref;
    int rc = remo__queue_find_home(op, REMO__QUEUE_WORD(side), &ref);
    return rc != 0 ? rc : remo__compare_swap(ref, expected, desired, ret_old, NULL);
}

/* ---- doorbells ---- */

static void notify_waiter(struct remo__queue_op *op, enum remo__queue_side side, uint32_t node,
                          struct remo_ack *ack) {
    struct remo_queue *queue = op->queue;
    uint64_t value = (uint64_t)queue->node->rank << 48 | (atomic_fetch_add(&queue->notify_count, 1) + 1);
    struct remo__ref ref;
    if (remo__memory_find_now(queue->slots_memory, op->thread, node, REMO__QUEUE_DOORBELL(side), &ref))
        (void)remo__write(ref, &value, sizeof value, REMO__WRITE_NOTIFY | REMO__WRITE_EXEMPT, ack);
}

/* Notify all nodes that wait at the side. Errors are ignored: a failure wakes all waiters, and
 * a waiter retries after RETRY_NS. The writes complete before the return, because this thread may make no
 * further call that completes them. */
static void ring_waiters(struct remo__queue_op *op, enum remo__queue_side side) {
    struct remo_queue *queue = op->queue;
    struct remo_ack ack = REMO_ACK_INIT;
    struct remo_nodeset waiters;
    struct remo__ref ref;
    int rc = remo__queue_find_home(op, REMO__QUEUE_WAITERS(side), &ref);
    if (rc == 0)
        rc = remo__read(ref, &waiters, sizeof waiters, NULL);
    if (rc != 0)
        return;
    for (uint32_t i = 0; i < queue->member_count; i++)
        if (remo_nodeset_has(&waiters, queue->members[i]))
            notify_waiter(op, side, queue->members[i], &ack);
    if (remo__ack_pending(&ack))
        (void)remo__ack_settle(&ack, queue->node->op_timeout_ns);
}

void remo__queue_advance(struct remo__queue_op *op, uint64_t expected, uint64_t to) {
    bool has_waiters = false;
    uint64_t old;
    for (uint32_t i = 0; i < SWAPS_MAX; i++) {
        if (swap_word(op, op->side, expected, to << 1, &old) != 0)
            return; /* the home has failed or left; the push or pop itself is complete */
        has_waiters = old & 1;
        if (old == expected || old >> 1 >= to)
            break;
        expected = old;
    }
    if (remo__unlikely(has_waiters))
        ring_waiters(op, op->side);
}

/* ---- waiting ---- */

/* Set or clear this node's bit in the set of waiters. Not by fetch-add: an atomic whose outcome is unknown is
 * repeated, and would change another node's bit. If peers change the word during every attempt, the bit stays
 * as it is. Then this node retries every RETRY_UNNOTIFIED_NS, or peers notify it without need. */
static int change_own_bit(struct remo__queue_op *op, enum remo__queue_side side, bool set,
                          bool *ret_changed) {
    uint32_t rank = op->queue->node->rank;
    uint64_t bit = UINT64_C(1) << rank % 64, expected = set ? 0 : bit, old;
    struct remo__ref ref;
    int rc = remo__queue_find_home(op, REMO__QUEUE_WAITERS(side) + rank / 64 * 8, &ref);
    *ret_changed = false;
    for (uint32_t i = 0; i < BIT_SWAPS_MAX && rc == 0; i++) {
        rc = remo__compare_swap(ref, expected, set ? expected | bit : expected & ~bit, &old, NULL);
        *ret_changed = rc == 0 && old == expected;
        if (rc != 0 || old == expected)
            break;
        expected = old;
    }
    return rc;
}

/* The node's bit is set while at least one of its threads waits. */
static int begin_wait(struct remo__queue_op *op, enum remo__queue_side side) {
    struct remo__queue_waiters *waiters = &op->queue->waiters[side];
    bool is_bit_set;
    int rc = remo__mutex_lock(op->queue->node, &waiters->mutex, REMO_FOREVER);
    if (rc != 0)
        return rc;
    if (waiters->thread_count == 0) {
        rc = change_own_bit(op, side, true, &is_bit_set);
        atomic_store(&waiters->is_bit_set, is_bit_set);
    }
    waiters->thread_count += rc == 0;
    remo__mutex_unlock(op->queue->node, &waiters->mutex);
    return rc;
}

static void end_wait(struct remo__queue_op *op, enum remo__queue_side side) {
    struct remo__queue_waiters *waiters = &op->queue->waiters[side];
    bool is_cleared;
    if (remo__mutex_lock(op->queue->node, &waiters->mutex, REMO_FOREVER) != 0)
        return;
    if (--waiters->thread_count == 0)
        (void)change_own_bit(op, side, false, &is_cleared);
    remo__mutex_unlock(op->queue->node, &waiters->mutex);
}

/* Set bit 0 of the word. *ret_set is false if other nodes moved the word during every attempt. */
static int set_wait_flag(struct remo__queue_op *op, enum remo__queue_side side, bool *ret_set) {
    uint64_t expected = atomic_load_explicit(&op->queue->hint[side], memory_order_relaxed) << 1, old;
    *ret_set = false;
    for (uint32_t i = 0; i < SWAPS_MAX; i++) {
        int rc = swap_word(op, side, expected, expected | 1, &old);
        if (rc != 0)
            return rc;
        *ret_set = old == expected || (old & 1);
        if (*ret_set)
            break;
        expected = old;
    }
    return 0;
}

struct doorbell_wait {
    struct remo__queue_op *op;
    const void *doorbell;
    uint64_t seen;
};

static int was_rung(void *ctx) {
    const struct doorbell_wait *wait = ctx;
    struct remo_queue *queue = wait->op->queue;
    if (remo__load(wait->doorbell) != wait->seen)
        return 1;
    int rc = remo__channel_check_peer(queue->channel, queue->home);
    return rc != 0
               ? rc
               : atomic_load_explicit(&queue->departures, memory_order_acquire) != wait->op->seen_departures;
}

/* Wait until a try succeeds. This node's bit is set if `is_bit_set`. The try between the flag and the sleep
 * is essential: a push or pop that moved the word before the flag was set notifies no waiter. */
static int wait_at_doorbell(struct remo__queue_op *op, int (*attempt)(void *ctx),
                            enum remo__queue_side side) {
    struct doorbell_wait wait = {.op = op,
                                 .doorbell = op->queue->slots_memory->own + REMO__QUEUE_DOORBELL(side)};
    for (;;) {
        wait.seen = remo__load(wait.doorbell);
        bool is_flag_set;
        int rc = remo__queue_convert_timeout(op, set_wait_flag(op, side, &is_flag_set));
        if (rc == 0)
            rc = attempt(op);
        if (rc != 0)
            return rc;
        bool expects_notify = is_flag_set && atomic_load(&op->queue->waiters[side].is_bit_set)
                              && atomic_load(&op->queue->departures) == 0;
        uint64_t retry_at = remo__deadline(expects_notify ? RETRY_NS : RETRY_UNNOTIFIED_NS);
        rc = remo__wait(op->queue->node, was_rung, &wait, remo__min(retry_at, op->deadline_ns));
        if (rc != 0 && (rc != -ETIMEDOUT || op->deadline_ns <= retry_at))
            return rc;
    }
}

int remo__queue_wait(struct remo__queue_op *op, int (*attempt)(void *ctx)) {
    uint64_t deadline_ns = op->deadline_ns;
    enum remo__queue_side side =
        op->side == REMO__QUEUE_TAIL ? REMO__QUEUE_HEAD : REMO__QUEUE_TAIL; /* a push waits for pops */
    int rc =
        remo__wait_polling(op->queue->node, attempt, op, remo__min(deadline_ns, remo__deadline(SPIN_NS)));
    if (rc != -ETIMEDOUT || remo__remaining_ns(deadline_ns) == 0)
        return rc;
    rc = remo__queue_convert_timeout(op, begin_wait(op, side));
    if (rc != 0)
        return rc;
    rc = wait_at_doorbell(op, attempt, side);
    end_wait(op, side);
    return rc > 0 ? 0 : rc;
}
