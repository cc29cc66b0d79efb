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
#define NOTIFY_TRIES_MAX 3u                   /* of the operations that notify waiters, if one fails */
#define RETRY_NS (5 * REMO__NS_PER_S)         /* an operation that timed out may be applied after its call */
#define RETRY_UNNOTIFIED_NS REMO__POLL_NS_MAX /* a change may not notify this waiter */

static int swap_word(struct remo__queue_op *op, enum remo__queue_side side, uint64_t expected,
                     uint64_t desired, uint64_t *ret_old) {
    struct remo__ref ref;
    int rc = remo__queue_find_home(op, REMO__QUEUE_WORD(side), &ref);
    return rc != 0 ? rc : remo__compare_swap(ref, expected, desired, ret_old, NULL);
}

/* ---- doorbells ---- */

/* Write the doorbell of a node. Blocks if the node has not connected yet: a node can wait before all its
 * peers have its addresses. */
static int notify_node(struct remo__queue_op *op, enum remo__queue_side side, uint32_t node,
                       struct remo_ack *ack) {
    struct remo_queue *queue = op->queue;
    uint64_t value = (uint64_t)queue->node->rank << 48 | (atomic_fetch_add(&queue->notify_count, 1) + 1);
    struct remo__ref ref;
    int rc = remo__memory_find(queue->slots_memory, op->thread, node, REMO__QUEUE_DOORBELL(side), &ref);
    if (rc == 0)
        rc = remo__write(ref, &value, sizeof value, REMO__WRITE_NOTIFY | REMO__WRITE_EXEMPT, ack);
    return remo__is_departure(rc) ? 0 : rc; /* the bit of a failed node may stay in the set */
}

/* Set the set of waiters to the participants that have connected: each of them may wait. */
static void assume_all_wait(const struct remo_queue *queue, struct remo_nodeset *ret_waiters) {
    *ret_waiters = (struct remo_nodeset){0};
    for (uint32_t i = 0; i < queue->member_count; i++)
        if (remo__memory_is_reachable(queue->slots_memory, queue->members[i]))
            remo_nodeset_add(ret_waiters, queue->members[i]);
}

/* Notify all nodes that wait at the side, or all participants if the read of the set of waiters fails. The
 * writes complete before the return, because this thread may make no further call that completes them.
 * Returns the first error of an operation. */
static int notify_once(struct remo__queue_op *op, enum remo__queue_side side) {
    struct remo_queue *queue = op->queue;
    struct remo_ack ack = REMO_ACK_INIT;
    struct remo_nodeset waiters;
    struct remo__ref ref;
    int rc = remo__queue_find_home(op, REMO__QUEUE_WAITERS(side), &ref);
    if (rc == 0)
        rc = remo__read(ref, &waiters, sizeof waiters, NULL);
    if (remo__is_departure(rc))
        return rc;
    if (rc != 0)
        assume_all_wait(queue, &waiters);
    for (uint32_t i = 0; i < queue->member_count; i++) {
        if (!remo_nodeset_has(&waiters, queue->members[i]))
            continue;
        int write_rc = notify_node(op, side, queue->members[i], &ack);
        rc = rc == 0 ? write_rc : rc;
    }
    int settle_rc = remo__ack_settle(&ack, queue->node->op_timeout_ns);
    return rc == 0 ? settle_rc : rc;
}

/* A departure wakes all waiters. After a timeout the write is still in flight, so it is not repeated. */
void remo__queue_notify_waiters(struct remo__queue_op *op, enum remo__queue_side side) {
    int rc = notify_once(op, side);
    for (uint32_t i = 1; i < NOTIFY_TRIES_MAX && rc != 0 && rc != -ETIMEDOUT && !remo__is_departure(rc); i++)
        rc = notify_once(op, side);
}

void remo__queue_advance(struct remo__queue_op *op, uint64_t expected, uint64_t to) {
    bool has_waiters = false;
    uint64_t old;
    for (uint32_t i = 0; i < SWAPS_MAX; i++) {
        int rc = swap_word(op, op->side, expected, to << 1, &old);
        if (remo__is_departure(rc))
            return; /* the departure wakes all waiters; the push or pop itself is complete */
        if (remo__unlikely(rc != 0)) {
            has_waiters = true; /* the flag is unknown */
            break;
        }
        has_waiters = old & 1;
        if (old == expected || old >> 1 >= to)
            break;
        expected = old;
    }
    if (remo__unlikely(has_waiters))
        remo__queue_notify_waiters(op, op->side);
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
        /* A clear that failed may be applied after this begin sets the bit again. */
        if (waiters->is_clear_in_flight)
            waiters->is_clear_in_flight = remo__op_abandoned(op->queue->node, op->queue->home);
        rc = change_own_bit(op, side, true, &is_bit_set);
        atomic_store(&waiters->is_bit_set, is_bit_set && !waiters->is_clear_in_flight);
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
    if (--waiters->thread_count == 0 && change_own_bit(op, side, false, &is_cleared) != 0)
        waiters->is_clear_in_flight = true;
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
    uint32_t seen_kept; /* kept claims of this node */
};

static int is_notified(void *ctx) {
    const struct doorbell_wait *wait = ctx;
    struct remo_queue *queue = wait->op->queue;
    if (remo__load(wait->doorbell) != wait->seen || atomic_load(&queue->kept_count) > wait->seen_kept)
        return 1;
    int rc = remo__channel_check_peer(queue->channel, queue->home);
    return rc != 0
               ? rc
               : atomic_load_explicit(&queue->departures, memory_order_acquire) != wait->op->seen_departures;
}

/* Return whether a set flag guarantees a notification: every change that lets a waiter of this node succeed
 * then writes its doorbell. False while this node keeps a claim, because the waiter itself advances the
 * retraction. */
static bool is_notification_certain(struct remo_queue *queue, enum remo__queue_side side,
                                    uint32_t kept_count) {
    return atomic_load(&queue->waiters[side].is_bit_set) && atomic_load(&queue->departures) == 0
           && kept_count == 0;
}

/* Wait until a try succeeds. This node's bit is set if `is_bit_set`. The try between the flag and the sleep
 * is essential: a push or pop that moved the word before the flag was set notifies no waiter. */
static int wait_at_doorbell(struct remo__queue_op *op, int (*attempt)(void *ctx),
                            enum remo__queue_side side) {
    struct doorbell_wait wait = {.op = op,
                                 .doorbell = op->queue->slots_memory->own + REMO__QUEUE_DOORBELL(side)};
    for (;;) {
        wait.seen = remo__load(wait.doorbell);
        wait.seen_kept = atomic_load(&op->queue->kept_count);
        bool is_flag_set;
        int rc = remo__queue_convert_timeout(op, set_wait_flag(op, side, &is_flag_set));
        if (rc == 0)
            rc = attempt(op);
        remo__retry_end(rc == 1);
        if (rc != 0)
            return rc;
        bool expects_notify = is_flag_set && is_notification_certain(op->queue, side, wait.seen_kept);
        uint64_t retry_at = remo__deadline(expects_notify ? RETRY_NS : RETRY_UNNOTIFIED_NS);
        rc = remo__wait(op->queue->node, is_notified, &wait, remo__min(retry_at, op->deadline_ns));
        if (rc != 0 && (rc != -ETIMEDOUT || op->deadline_ns <= retry_at))
            return rc;
        if (rc == -ETIMEDOUT && expects_notify)
            remo__retry_begin();
    }
}

int remo__queue_wait(struct remo__queue_op *op, int (*attempt)(void *ctx)) {
    uint64_t deadline_ns = op->deadline_ns;
    enum remo__queue_side side =
        op->side == REMO__QUEUE_TAIL ? REMO__QUEUE_HEAD : REMO__QUEUE_TAIL; /* a push waits for pops */
    int rc =
        remo__wait_attempt(op->queue->node, attempt, op, remo__min(deadline_ns, remo__deadline(SPIN_NS)));
    if (rc != -ETIMEDOUT || remo__remaining_ns(deadline_ns) == 0)
        return rc;
    rc = remo__queue_convert_timeout(op, begin_wait(op, side));
    if (rc != 0)
        return rc;
    rc = wait_at_doorbell(op, attempt, side);
    end_wait(op, side);
    return rc > 0 ? 0 : rc;
}
