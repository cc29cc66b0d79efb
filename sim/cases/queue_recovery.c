/* queue_recovery.c - the queue when nodes fail or leave, and when operations of a push take effect late.
 * A claim of a failed push is kept until it is retracted; it never blocks the queue. */
#include "sim/cases/queue.h"

/* Three nodes push and pop without waiting; one may fail between. The slots of all other nodes keep
 * working. */
static void failures_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    for (uint64_t i = 1; i <= 3; i++) {
        (void)sim_queue_push(s, rank, 10 * rank + i, 0);
        if (i % 2 == 0)
            (void)sim_queue_pop(s, rank, 0);
    }
}

/* A surviving node can push. The first push may report the failure; the queue may be full. */
static void push_again(struct queue_state *s, uint32_t rank) {
    uint64_t number = 40 + rank;
    for (uint32_t i = 0; i < DRAIN_MAX && !sim_out(0); i++) {
        if (sim_queue_push(s, rank, number, 0) == 0)
            break;
        (void)sim_queue_pop(s, rank, 0);
    }
    sim_require(sim_out(0) || s->fate[number] >= PUSHED, "node %u can no longer push", rank);
}

static void failures_after(void *state, uint32_t rank) {
    push_again(state, rank);
    sim_queue_drain(state, rank);
}

const struct sim_case sim_case_queue_failures =
    QUEUE_CASE(.name = "failures", .about = "three nodes push and pop; surviving nodes continue", .nodes = 3,
               .threads = 1, .body = failures_body, .after = failures_after);

/* The slot of a push that failed does not block the queue; the pops wait while its claim is retracted. */
static void continues_after(void *state, uint32_t rank) {
    push_again(state, rank);
    sim_queue_drain_within(state, rank, REMO_MS(1));
}

const struct sim_case sim_case_queue_continues =
    QUEUE_CASE(.name = "continues", .about = "as tries, and a node goes on after an operation has failed",
               .nodes = 2, .threads = 1, .body = sim_queue_tries_body, .after = continues_after,
               .continues_after_failure = true);

static void open_large(void *state, struct remo_node *node, uint32_t rank) {
    ((struct queue_state *)state)->element_words = LARGE_WORDS;
    sim_queue_open(state, node, rank);
}

/* An element that is not inline is popped complete, or not at all if a write of its push has failed. */
const struct sim_case sim_case_queue_large = {.object = "queue",
                                              .name = "large",
                                              .about = "as continues, with elements that are not inline",
                                              .nodes = 2,
                                              .threads = 1,
                                              .state_bytes = sizeof(struct queue_state),
                                              .open = open_large,
                                              .close = sim_queue_close,
                                              .body = sim_queue_tries_body,
                                              .after = continues_after,
                                              .check = sim_queue_check_lost,
                                              .oracle = &oracle_queue,
                                              .whole_only = true,
                                              .continues_after_failure = true};

/* Node 2 is declared failed, goes round the queue, and skips the slots of a node that has cut it
 * off. */
static void skipped_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    uint32_t lost_at = sim_choose(4);
    (void)thread;
    for (uint32_t i = 0; i < (rank == 2 ? 9u : 1u); i++) {
        if (rank == 2 && i == lost_at)
            sim_lose(rank);
        (void)sim_queue_push(s, rank, 10 * rank + i, 0);
        if (sim_choose(2) == 0)
            (void)sim_queue_pop(s, rank, 0);
    }
}

/* An element pushed to an empty queue is popped, whichever slots were skipped. */
static void skipped_after(void *state, uint32_t rank) {
    struct queue_state *s = state;
    if (rank != 0)
        return;
    for (uint64_t number = 40; number < 46; number++) {
        sim_queue_drain_within(state, rank, REMO_MS(1));
        /* the failure is reported once */
        bool pushed = sim_queue_push(s, rank, number, 0) == 0 || sim_queue_push(s, rank, number, 0) == 0;
        sim_require(pushed, "an empty queue refuses element %llu", (unsigned long long)number);
        sim_queue_drain_within(state, rank, REMO_MS(1));
        sim_require(s->fate[number] == POPPED, "element %llu is not found", (unsigned long long)number);
    }
}

const struct sim_case sim_case_queue_skipped =
    QUEUE_CASE(.name = "skipped", .needs_flight = true,
               .about = "a node that was cut off skips the slots of its peers", .nodes = 3, .threads = 1,
               .body = skipped_body, .after = skipped_after, .has_own_fault = true);

/* Nodes 0 and 1 search one lap further than the element of node 2, as after a cut-off. Node 1 pops that
 * element and pushes the next one to the same slot, while node 0 reads the slot. */
static void behind_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    if (rank == 2) {
        (void)sim_queue_push(s, rank, 1, 0);
        return;
    }
    for (uint32_t side = 0; side < 2; side++)
        atomic_store(&s->queues[rank]->hint[side], s->queues[rank]->capacity);
    (void)sim_queue_pop(s, rank, rank == 0 ? 0 : REMO_MS(1));
    if (rank == 1)
        (void)sim_queue_push(s, rank, 11, REMO_MS(1));
}

static void behind_after(void *state, uint32_t rank) {
    if (rank == 0)
        sim_queue_drain(state, rank);
}

const struct sim_case sim_case_queue_behind =
    QUEUE_CASE(.name = "behind",
               .about = "an element of an earlier lap is popped while another node reads it", .nodes = 3,
               .threads = 1, .body = behind_body, .after = behind_after, .has_own_fault = true);

static struct remo__queue_kept_claim *kept_of_thread(struct remo_queue *queue) {
    return &queue->kept[remo__thread(queue->node)->index];
}

static bool has_written(void *ctx) {
    return remo_ack_test(&kept_of_thread(ctx)->ack) != -EINPROGRESS;
}

/* While a claim of a failed push is retracted, a pop without a timeout returns the element before it and
 * waits for no operation of the retraction. */
static void kept_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    if (rank != 0) {
        sim_until(sim_queue_is_filled, s, "wait for the pop");
        (void)sim_queue_push(s, rank, 11, 0);
        (void)sim_queue_pop(s, rank, 0);
        return;
    }
    (void)sim_queue_push(s, rank, 1, 0);
    sim_delay(rank, 1, 1); /* the write to the slot at node 1 */
    int rc = sim_queue_push(s, rank, 2, 0);
    sim_require(rc == -EIO && s->queues[rank]->kept_count == 1, "push with a delayed write: %d", rc);
    sim_delay_end();
    sim_until(has_written, s->queues[rank], "wait for the write");
    sim_delay(rank, 0, 1); /* the read of the retraction */
    uint64_t before_ns = remo__now_ns();
    rc = sim_queue_pop(s, rank, 0);
    uint64_t took_ns = remo__now_ns() - before_ns;
    sim_require(rc == 0 && sim_delay_hit(), "pop during a retraction: %d", rc);
    sim_require(took_ns < REMO_MS(1), "a pop without a timeout took %llu ns", (unsigned long long)took_ns);
    sim_delay_end();
    s->filled = true;
}

const struct sim_case sim_case_queue_kept =
    QUEUE_CASE(.name = "kept", .needs_flight = true,
               .about = "a pop while the claim of a failed push is retracted", .nodes = 2, .threads = 1,
               .body = kept_body, .after = continues_after, .has_own_fault = true);

/* The push of thread 0 has posted all operations that it posts before its write is complete. */
static bool is_delayed(void *ctx) {
    const struct queue_state *s = ctx;
    return sim_delay_hit() && s->first->posts - s->first_posts == sim_queue_posts_before_advance();
}

static bool has_popped(void *ctx) {
    return !sim_queue_is_filled(ctx);
}

static bool are_kept(void *ctx) {
    return ((const struct queue_state *)ctx)->queues[0]->kept_count == 2;
}

static void push_delayed(struct queue_state *s, uint64_t number, uint32_t skip) {
    sim_delay(0, skip, 1);
    int rc = sim_queue_push(s, 0, number, 0);
    sim_require(rc == -EIO, "push with a delayed write: %d", rc);
}

/* The pushes of two threads of node 0 fail at once, while their writes are in flight. Each thread keeps its
 * claim, and pushes again only after the claim is retracted. A dropped claim would block the queue. */
static void kept_threads_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    if (rank != 0)
        return;
    if (thread == 1) {
        sim_until(is_delayed, s, "wait for the write of thread 0");
        push_delayed(s, 2, 3); /* after a failed claim, a read of the word, and a claim */
        return;
    }
    s->first_posts = sim_current()->posts;
    s->first = sim_current();
    push_delayed(s, 1, 1); /* after the claim */
    sim_until(are_kept, s, "wait for the claim of thread 1");
    int rc = sim_queue_push(s, 0, 3, 0);
    sim_require(rc == -EIO, "push while an earlier write is in flight: %d", rc);
    sim_delay_end();
    sim_until(has_written, s->queues[0], "wait for the write");
    rc = sim_queue_push(s, 0, 4, 0);
    sim_require(rc == 0, "push after the writes: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_queue_kept_threads =
    QUEUE_CASE(.name = "kept_threads", .needs_flight = true, .about = "pushes of two threads fail at once",
               .nodes = 2, .threads = 2, .body = kept_threads_body, .after = continues_after,
               .has_own_fault = true);

/* The thread that keeps a claim has as many operations in flight as it can have. A pop of another thread
 * waits for none of them: a later call starts the read of the retraction. */
static void kept_full_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    struct remo_queue *queue = s->queues[rank];
    struct remo__queue_kept_claim *kept = kept_of_thread(queue);
    struct remo_ack acks[REMO__SLOTS_MAX] = {REMO_ACK_INIT};
    uint64_t words[REMO__SLOTS_MAX];
    if (rank != 0)
        return;
    if (thread == 1) {
        sim_until(sim_queue_is_filled, s, "wait for the operations of thread 0");
        uint64_t before_ns = remo__now_ns();
        int rc = sim_queue_pop(s, rank, 0);
        uint64_t took_ns = remo__now_ns() - before_ns;
        sim_require(rc == 0 || rc == -ETIMEDOUT, "pop: %d (%s)", rc, remo_last_error());
        sim_require(took_ns < REMO_MS(1), "a pop without a timeout took %llu ns",
                    (unsigned long long)took_ns);
        s->filled = false;
        return;
    }
    push_delayed(s, 2, 1); /* after the claim */
    sim_delay_end();
    sim_until(has_written, queue, "wait for the write");
    sim_delay(rank, 0, REMO__SLOTS_MAX);
    for (uint32_t i = 0; i < REMO__SLOTS_MAX; i++) {
        int rc = remo__read(kept->slot.ref, &words[i], sizeof words[i], &acks[i]);
        sim_require(rc == 0, "read: %s", remo_last_error());
    }
    s->filled = true;
    sim_until(has_popped, s, "wait for the pop of thread 1");
    sim_delay_end();
    for (uint32_t i = 0; i < REMO__SLOTS_MAX; i++)
        sim_require(remo_ack_wait(&acks[i], FOREVER) == 0, "read: %s", remo_last_error());
    int rc = sim_queue_push(s, rank, 4, 0);
    sim_require(rc == 0, "push after the retraction: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_queue_kept_full =
    QUEUE_CASE(.name = "kept_full", .needs_flight = true,
               .about = "a pop while no slot is free for the retraction of a claim", .nodes = 2, .threads = 2,
               .body = kept_full_body, .after = continues_after, .has_own_fault = true);

/* ---- a close whose operations are not complete ---- */

#define SLOW 1u /* the node that closes the queue */

/* Push an element. The departure of node SLOW is reported once. */
static int push_on(struct queue_state *s, uint32_t rank, uint64_t number) {
    uint64_t element[ELEMENT_WORDS];
    int rc = -EHOSTDOWN;
    for (uint32_t i = 0; i < ELEMENT_WORDS; i++)
        element[i] = sim_queue_word_of(number, i);
    s->fate[number] = PUSHING;
    for (uint32_t i = 0; i < 2 && rc == -EHOSTDOWN; i++)
        rc = remo_queue_push(s->queues[rank], element, sizeof element, 0);
    sim_require(rank == SLOW || rc == 0 || rc == -ETIMEDOUT, "push: %d (%s)", rc, remo_last_error());
    if (rc == 0 && s->fate[number] == PUSHING) {
        s->fate[number] = PUSHED;
        s->owner[number] = sim_queue_owner_of_last(s->queues[rank]);
    }
    return rc;
}

static int pop_on(struct queue_state *s, uint32_t rank, uint64_t timeout_ns) {
    uint64_t element[ELEMENT_WORDS] = {0};
    size_t size = 0;
    int rc = -EHOSTDOWN;
    for (uint32_t i = 0; i < 2 && rc == -EHOSTDOWN; i++)
        rc = remo_queue_pop(s->queues[rank], element, sizeof element, &size, timeout_ns);
    sim_require(rc == 0 || rc == -ETIMEDOUT, "pop: %d (%s)", rc, remo_last_error());
    if (rc == 0)
        sim_queue_note_popped(s, element, size, POPPED);
    return rc;
}

/* Node SLOW closes the queue after pushes, of which one operation is delayed. Other nodes push to the same
 * slots. */
static void leaving_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    if (rank != SLOW) {
        for (uint64_t i = 1; i <= 4; i++) {
            (void)push_on(s, rank, 10 * rank + i);
            (void)pop_on(s, rank, 0);
        }
        return;
    }
    sim_delay(SLOW, sim_choose(8), 1);
    s->queues[SLOW]->node->op_timeout_ns = 400; /* expires even while other nodes make steps */
    for (uint64_t i = 1; i <= 3; i++)
        (void)push_on(s, SLOW, 10 * SLOW + i);
    remo_queue_close(s->queues[SLOW]);
    s->queues[SLOW] = NULL;
    for (uint32_t turns = sim_choose(40); turns > 0; turns--)
        sim_point("before the operation takes effect");
    sim_delay_end();
}

/* Pop all elements. A pop may wait until the slots' owners have cut node SLOW off. */
static void leaving_after(void *state, uint32_t rank) {
    while (rank != SLOW && pop_on(state, rank, REMO_MS(100)) == 0)
        continue;
}

static void leaving_check(void *state) {
    const struct queue_state *s = state;
    for (uint32_t number = 0; number < VALUES_MAX; number++)
        sim_require(s->fate[number] != PUSHED || s->owner[number] == SLOW, "element %u was lost", number);
}

const struct sim_case sim_case_queue_leaving = {
    .object = "queue",
    .name = "leaving",
    .about = "a node closes the queue; an operation of its push takes effect after the close",
    .nodes = 3,
    .threads = 1,
    .state_bytes = sizeof(struct queue_state),
    .open = sim_queue_open,
    .close = sim_queue_close,
    .body = leaving_body,
    .after = leaving_after,
    .check = leaving_check,
    .has_own_fault = true};
