/* queue_notify.c - the queue's notifications: no waiter sleeps until its retry.
 * A schedule fails if a retry succeeds although nothing was about to notify the waiter (remote/wait.h). So
 * most cases only arrange that one certain notification is the last one. */
#include "sim/cases/queue.h"

/* For sim_until: the waiter sleeps, and no notification is about to end its sleep. */
static bool is_asleep(void *ctx) {
    const struct sim_actor *waiter = ((const struct queue_state *)ctx)->waiter;
    return waiter && waiter->is_sleeping && waiter->wakes == waiter->seen_wakes;
}

/* ---- failed operations ---- */

#define PUSHES 4u /* then LAST, and the next numbers until one is pushed */
#define LAST 40u  /* the consumer ends at an element from here on */

static bool has_last(const struct queue_state *s) {
    for (uint32_t number = LAST; number < VALUES_MAX; number++)
        if (s->fate[number] == COPIED || s->fate[number] == POPPED)
            return true;
    return false;
}

/* A producer and a consumer wait for each other. One operation fails, and its node continues. */
static void resumes_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    uint64_t number = 1;
    (void)thread;
    for (;;) {
        int rc = rank == 0 ? sim_queue_push(s, rank, number, FOREVER) : sim_queue_pop(s, rank, FOREVER);
        if ((rc != 0 && sim_any_out()) || (rank == 0 ? rc == 0 && number >= LAST : has_last(s)))
            return;
        number += number == PUSHES ? LAST - PUSHES : 1;
    }
}

const struct sim_case sim_case_queue_resumes =
    QUEUE_CASE(.name = "resumes", .about = "as waits, and a node goes on after an operation has failed",
               .nodes = 2, .threads = 1, .body = resumes_body, .after = sim_queue_drain,
               .continues_after_failure = true);

/* Node 1 waits for the only push. Operation `skip` of the push after it has filled the slot fails (`is_late`:
 * times out). */
static void only_push_body(struct queue_state *s, uint32_t rank, uint32_t skip, bool is_late) {
    if (rank != 0) {
        s->waiter = sim_current();
        (void)sim_queue_pop(s, rank, FOREVER);
        return;
    }
    sim_until(is_asleep, s, "wait for the pop");
    if (is_late) {
        s->queues[rank]->node->op_timeout_ns = REMO_MS(500); /* shorter than the time to the waiter's retry */
        sim_delay(rank, sim_queue_posts_before_advance() + skip, 1);
    } else {
        sim_fail_next(SIM_FAIL_POST, rank, sim_queue_posts_before_advance() + skip, 1);
    }
    (void)sim_queue_push(s, rank, 1, 0);
    sim_delay_end();
}

static void unmoved_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    only_push_body(state, rank, 0, false);
}

/* After two attempts to move the word, of which the first one finds the flag. */
static void unread_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    only_push_body(state, rank, 2, true);
}

static void unsent_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    only_push_body(state, rank, 3, false);
}

#define ONLY_PUSH_CASE(...) \
    QUEUE_CASE(.nodes = 2, .threads = 1, .after = sim_queue_drain, .has_own_fault = true, __VA_ARGS__)

const struct sim_case sim_case_queue_unmoved =
    ONLY_PUSH_CASE(.name = "unmoved", .about = "a push cannot move the word at which a pop waits",
                   .body = unmoved_body);
const struct sim_case sim_case_queue_unread =
    ONLY_PUSH_CASE(.name = "unread", .about = "a push cannot read the set of waiters", .body = unread_body);
const struct sim_case sim_case_queue_unsent =
    ONLY_PUSH_CASE(.name = "unsent", .about = "a push cannot write the doorbell of the waiter",
                   .body = unsent_body);

/* A pop removes an element from a full queue, and its compare-swap reports an error. A push waits for the
 * slot, and no later pop notifies it. */
static void removal_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    uint64_t element[ELEMENT_WORDS] = {0};
    size_t size = 0;
    (void)thread;
    if (rank != 0) {
        sim_until(sim_queue_is_filled, s, "wait until the queue is full");
        s->waiter = sim_current();
        int rc = sim_queue_push(s, rank, 3, FOREVER);
        sim_require(rc == 0, "push: %d (%s)", rc, remo_last_error());
        return;
    }
    (void)sim_queue_push(s, rank, 1, 0);
    (void)sim_queue_push(s, rank, 2, 0);
    s->filled = true;
    sim_until(is_asleep, s, "wait for the push");
    sim_fail_next(SIM_FAIL_COMPLETION, rank, 1, 1); /* the compare-swap, after the read */
    int rc = remo_queue_pop(s->queues[rank], element, sizeof element, &size, 0);
    sim_require(rc == -EIO && size != REMO_QUEUE_NO_ELEMENT, "pop with a failed removal: %d", rc);
    sim_queue_note_popped(s, element, size, COPIED);
}

const struct sim_case sim_case_queue_removal =
    QUEUE_CASE(.name = "removal", .needs_flight = true,
               .about = "a push waits for the slot of a pop whose outcome is unknown", .nodes = 2,
               .threads = 1, .body = removal_body, .after = sim_queue_drain, .has_own_fault = true);

/* ---- retractions ---- */

/* The nodes of a case in which a push fails. */
enum { FAILING, PUSHING_BEHIND, WAITING };

static bool is_delayed(void *ctx) {
    (void)ctx;
    return sim_delay_hit();
}

static bool has_written(void *ctx) {
    const struct queue_state *s = ctx;
    struct remo_queue *queue = s->queues[FAILING];
    return remo_ack_test(&queue->kept[remo__thread(queue->node)->index].ack) != -EINPROGRESS;
}

/* Fill the slots behind the failed push. Then only its retraction lets the waiter continue. */
static void push_behind(struct queue_state *s) {
    sim_until(is_delayed, s, "wait for the failing push");
    (void)sim_queue_push(s, PUSHING_BEHIND, 11, 0);
    (void)sim_queue_push(s, PUSHING_BEHIND, 12, 0);
    s->filled = true;
}

static void wait_behind(struct queue_state *s, enum remo__queue_side side) {
    sim_until(is_delayed, s, "wait for the failing push");
    if (side == REMO__QUEUE_HEAD)
        sim_until(sim_queue_is_filled, s, "wait until the queue is full");
    s->waiter = sim_current();
    int rc = side == REMO__QUEUE_TAIL ? sim_queue_pop(s, WAITING, FOREVER)
                                      : sim_queue_push(s, WAITING, 21, FOREVER);
    sim_require(rc == 0, "a call behind a failed push: %d (%s)", rc, remo_last_error());
}

/* For sim_until: the slots behind the failed push are filled, and the waiter sleeps. */
static bool is_blocked(void *ctx) {
    return sim_queue_is_filled(ctx) && is_asleep(ctx);
}

/* A push fails, and retracts its claim at once. */
static void retracted_body(struct queue_state *s, uint32_t rank, enum remo__queue_side side) {
    if (rank == WAITING) {
        wait_behind(s, side);
    } else if (rank == PUSHING_BEHIND) {
        push_behind(s);
        sim_until(is_blocked, s, "wait for the waiter");
        sim_delay_end();
    } else {
        sim_fail_next(SIM_FAIL_POST, FAILING, 1, 1); /* the write, after the claim */
        sim_delay(FAILING, 1, 1);                    /* the read of the retraction */
        int rc = sim_queue_push(s, FAILING, 1, 0);
        sim_require(rc == -EIO && s->queues[FAILING]->kept_count == 0, "push with a failed write: %d", rc);
    }
}

static void retracted_pops_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    retracted_body(state, rank, REMO__QUEUE_TAIL);
}

static void retracted_pushes_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    retracted_body(state, rank, REMO__QUEUE_HEAD);
}

/* A push fails and keeps its claim. A later call, which changes nothing itself, retracts the claim. */
static void kept_body(struct queue_state *s, uint32_t rank, enum remo__queue_side side) {
    uint64_t word;
    size_t size;
    if (rank == WAITING) {
        wait_behind(s, side);
    } else if (rank == PUSHING_BEHIND) {
        push_behind(s);
    } else {
        sim_delay(FAILING, 1, 1); /* the write, after the claim */
        int rc = sim_queue_push(s, FAILING, 1, 0);
        sim_require(rc == -EIO && s->queues[FAILING]->kept_count == 1, "push with a delayed write: %d", rc);
        sim_until(is_blocked, s, "wait for the waiter");
        sim_delay_end();
        sim_until(has_written, s, "wait for the write");
        while (s->queues[FAILING]->kept_count != 0) {
            rc = remo_queue_pop(s->queues[FAILING], &word, sizeof word, &size, 0);
            sim_require(rc == -EMSGSIZE || rc == -ETIMEDOUT, "pop to a small buffer: %d", rc);
        }
    }
}

static void kept_pops_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    kept_body(state, rank, REMO__QUEUE_TAIL);
}

static void kept_pushes_body(void *state, uint32_t rank, uint32_t thread) {
    (void)thread;
    kept_body(state, rank, REMO__QUEUE_HEAD);
}

#define RETRACTION_CASE(...) \
    QUEUE_CASE(.nodes = 3, .threads = 1, .after = sim_queue_drain, .has_own_fault = true, __VA_ARGS__)

const struct sim_case sim_case_queue_retracted_pops =
    RETRACTION_CASE(.name = "retracted_pops", .needs_flight = true,
                    .about = "a pop waits behind a push that fails", .body = retracted_pops_body);
const struct sim_case sim_case_queue_retracted_pushes =
    RETRACTION_CASE(.name = "retracted_pushes", .needs_flight = true,
                    .about = "a push waits for the slot of a push that fails", .body = retracted_pushes_body);
const struct sim_case sim_case_queue_kept_pops =
    RETRACTION_CASE(.name = "kept_pops", .needs_flight = true,
                    .about = "a pop waits behind the kept claim of a failed push", .body = kept_pops_body);
const struct sim_case sim_case_queue_kept_pushes =
    RETRACTION_CASE(.name = "kept_pushes", .needs_flight = true,
                    .about = "a push waits for the slot of a kept claim", .body = kept_pushes_body);

static bool is_kept(void *ctx) {
    return ((const struct queue_state *)ctx)->queues[FAILING]->kept_count == 1;
}

/* A thread waits behind a claim that its own node keeps. No other call of the node retracts the claim. */
static void kept_own_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    if (rank == PUSHING_BEHIND && thread == 0) {
        push_behind(s);
        sim_until(is_kept, s, "wait for the claim");
        sim_until(is_blocked, s, "wait for the waiter");
        sim_delay_end();
    } else if (rank == FAILING && thread == 0) {
        sim_delay(FAILING, 1, 1); /* the write, after the claim */
        int rc = sim_queue_push(s, FAILING, 1, 0);
        sim_require(rc == -EIO, "push with a delayed write: %d", rc);
    } else if (rank == FAILING) {
        sim_until(sim_choose(2) == 0 ? is_delayed : is_kept, s, "wait for the failing push");
        s->waiter = sim_current();
        int rc = sim_queue_pop(s, FAILING, FOREVER);
        sim_require(rc == 0, "pop behind a claim of its node: %d (%s)", rc, remo_last_error());
    }
}

const struct sim_case sim_case_queue_kept_own =
    QUEUE_CASE(.name = "kept_own", .needs_flight = true,
               .about = "a node waits behind a claim that it keeps itself", .nodes = 2, .threads = 2,
               .body = kept_own_body, .after = sim_queue_drain, .has_own_fault = true);

/* ---- the set of waiters ---- */

/* For sim_until: a second wait has begun, after the clear of the first one timed out. */
static bool waits_again(void *ctx) {
    return sim_queue_is_filled(ctx) && is_asleep(ctx);
}

static bool is_network_idle(void *ctx) {
    (void)ctx;
    return sim_net_count() == 0;
}

/* At the end of a wait of node 1 the clear of its bit times out. It is applied after a wait of another
 * thread, which has a connection of its own, has set the bit again. */
static void late_clear_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    if (rank == 0 && thread == 0) {
        sim_until(is_asleep, s, "wait for the first wait");
        sim_delay(1, 0, 1); /* the clear */
        sim_until(waits_again, s, "wait for the second wait");
        sim_delay_end();
        sim_until(is_network_idle, s, "wait for the clear");
        (void)sim_queue_push(s, rank, 1, 0);
    } else if (rank == 1 && thread == 0) {
        s->waiter = sim_current();
        int rc = sim_queue_pop(s, rank, REMO_MS(100)); /* it polls at first */
        sim_require(rc == -ETIMEDOUT && sim_delay_hit(), "pop from an empty queue: %d", rc);
        s->waiter = NULL;
        s->filled = true;
    } else if (rank == 1) {
        sim_until(sim_queue_is_filled, s, "wait for the first wait");
        s->waiter = sim_current();
        int rc = sim_queue_pop(s, rank, FOREVER);
        sim_require(rc == 0, "pop: %d (%s)", rc, remo_last_error());
    }
}

const struct sim_case sim_case_queue_late_clear =
    QUEUE_CASE(.name = "late_clear", .needs_flight = true,
               .about = "the end of a wait takes effect in a later wait", .nodes = 2, .threads = 2,
               .body = late_clear_body, .after = sim_queue_drain, .has_own_fault = true);
