/* queue.c - the queue: linearizable as long as no node fails.
 * After a failure, elements in the failed node's slots are lost; every other element is popped
 * once, and no waiter waits for the failed node. */
#include <errno.h>
#include <remo/queue.h>
#include <string.h>

#include "objects/queue/queue.h"
#include "sim/case.h"
#include "sim/oracle.h"
#include "sim/scheduler.h"

#define FOREVER REMO_FOREVER
#define ELEMENT_WORDS 15u
#define VALUES_MAX 64u
#define DRAIN_MAX 64u

/* COPIED: returned by a pop whose outcome is unknown; one later pop may return it again. */
enum fate { NOT_PUSHED, PUSHING, PUSHED, COPIED, POPPED };

struct queue_state {
    struct remo_queue *queues[SIM_NODES_MAX];
    enum fate fate[VALUES_MAX];
    uint32_t owner[VALUES_MAX];      /* of its slot */
    bool filled;                     /* private memory: a signal between nodes */
    uint32_t pops_begun, pops_ended; /* a pop that never ended may have taken an element */
    bool is_outrunning;              /* node 1 pushes and pops */
    const struct sim_actor *outrun;  /* the thread of node 0, and its posts that node 1 has seen */
    uint64_t seen_posts;
};

static void open_queue(void *state, struct remo_node *node, uint32_t rank) {
    struct queue_state *s = state;
    struct remo_queue_options options = {.capacity = ORACLE_QUEUE_CAPACITY, .slot_bytes = ELEMENT_WORDS * 8};
    sim_opened(remo_queue_open(remo_node_root(node), "queue", &options, &s->queues[rank]), "open");
    sim_opened(remo_channel_wait(remo_queue_channel(s->queues[rank]), FOREVER), "wait");
}

static void close_queue(void *state, uint32_t rank) {
    remo_queue_close(((struct queue_state *)state)->queues[rank]);
}

/* ---- calls ---- */

/* Return the owner of the slot of the last push; only one thread of the node may push. */
static uint32_t owner_of_last(const struct remo_queue *queue) {
    uint64_t ticket = atomic_load(&queue->hint[REMO__QUEUE_TAIL]) - 1;
    return queue->members[ticket % queue->capacity % queue->member_count];
}

/* Word `i` of an element. All even elements end with the same words, so a late word of one can go undetected
 * until the slot has its next element. */
static uint64_t word_of(uint64_t number, uint32_t i) {
    return i == 0 || number % 2 == 1 ? number : 0;
}

static int push(struct queue_state *s, uint32_t rank, uint64_t number, uint64_t timeout_ns) {
    uint64_t element[ELEMENT_WORDS];
    for (uint32_t i = 0; i < ELEMENT_WORDS; i++)
        element[i] = word_of(number, i);
    uint32_t call = sim_begin(QUEUE_PUSH, 0, number, 0);
    s->fate[number] = PUSHING;
    int rc = remo_queue_push(s->queues[rank], element, sizeof element, timeout_ns);
    if (rc == 0 && s->fate[number] == PUSHING) {
        s->fate[number] = PUSHED;
        s->owner[number] = owner_of_last(s->queues[rank]);
    }
    bool was_delayed = rc == -EIO && sim_delay_hit();
    sim_require(rc == 0 || rc == -ETIMEDOUT || was_delayed || sim_excused(rank, SIM_ANY, rc), "push: %d (%s)",
                rc, remo_last_error());
    if (rc == 0 || (rc == -ETIMEDOUT && !sim_hurt(rank)))
        sim_end(call, rc, 0);
    return rc;
}

static void note_popped(struct queue_state *s, const uint64_t *element, size_t size, enum fate fate) {
    for (uint32_t i = 1; i < ELEMENT_WORDS; i++)
        sim_require(element[i] == word_of(element[0], i) && size == ELEMENT_WORDS * 8,
                    "a torn element was popped");
    sim_require(element[0] < VALUES_MAX && s->fate[element[0]] != NOT_PUSHED,
                "element %llu was popped, and never pushed", (unsigned long long)element[0]);
    sim_require(s->fate[element[0]] != POPPED || fate == COPIED, "element %llu was popped twice",
                (unsigned long long)element[0]);
    if (s->fate[element[0]] != POPPED)
        s->fate[element[0]] = fate;
}

static int pop(struct queue_state *s, uint32_t rank, uint64_t timeout_ns) {
    uint64_t element[ELEMENT_WORDS] = {0};
    size_t size = 0;
    uint32_t call = sim_begin(QUEUE_POP, 0, 0, 0);
    s->pops_begun++;
    int rc = remo_queue_pop(s->queues[rank], element, sizeof element, &size, timeout_ns);
    if (sim_out(rank)) /* its peers have lost the elements in its own slots */
        return -EHOSTDOWN;
    s->pops_ended++;
    if (rc == 0 || (rc == -EIO && size != REMO_QUEUE_NO_ELEMENT))
        note_popped(s, element, size, rc == 0 ? POPPED : COPIED);
    sim_require(rc == 0 || rc == -ETIMEDOUT || sim_excused(rank, SIM_ANY, rc), "pop: %d (%s)", rc,
                remo_last_error());
    if (rc == 0 || (rc == -ETIMEDOUT && !sim_hurt(rank)))
        sim_end(call, rc, element[0]);
    return rc;
}

/* ---- after the bodies ---- */

/* Pop all remaining elements; the failure of a node is reported once. With a timeout the pops wait also for
 * elements behind a claim of a failed node, which the slot's owner has not cut off yet. */
static void drain_slowly(void *state, uint32_t rank, uint64_t timeout_ns) {
    int rc;
    for (uint32_t i = 0; i < DRAIN_MAX; i++) {
        rc = pop(state, rank, timeout_ns);
        if (rc == -ETIMEDOUT || (rc == -EHOSTDOWN && sim_out(0)))
            return;
    }
    sim_fail("the queue is not empty after %u pops", DRAIN_MAX);
}

static void drain(void *state, uint32_t rank) {
    drain_slowly(state, rank, 0);
}

/* Acknowledged elements in slots of surviving nodes were popped, except one per unended pop. */
static void count_lost(void *state) {
    const struct queue_state *s = state;
    uint32_t lost = 0, unended = s->pops_begun - s->pops_ended, last = 0;
    for (uint32_t number = 0; number < VALUES_MAX && !sim_out(0); number++)
        if (s->fate[number] == PUSHED && !sim_out(s->owner[number])) {
            lost++;
            last = number;
        }
    sim_require(lost <= unended,
                "%u acknowledged elements were lost (the last is %u), but only %u pops did not end", lost,
                last, unended);
}

/* ---- cases ---- */

#define QUEUE_CASE(...)                                                                   \
    {                                                                                     \
        .object = "queue", .state_bytes = sizeof(struct queue_state), .open = open_queue, \
        .close = close_queue, .check = count_lost, __VA_ARGS__                            \
    }
/* A case whose history is linearizable. */
#define JUDGED_CASE(...) QUEUE_CASE(.after = drain, .oracle = &oracle_queue, .whole_only = true, __VA_ARGS__)

static void tries_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    for (uint64_t i = 1; i <= 2; i++) {
        (void)push(s, rank, 10 * rank + i, 0);
        (void)pop(s, rank, 0);
    }
}

const struct sim_case sim_case_queue =
    JUDGED_CASE(.name = "tries", .about = "pushes and pops of two nodes that do not wait; two slots",
                .nodes = 2, .threads = 1, .body = tries_body);

static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    for (uint64_t i = 1; i <= 2; i++)
        if (thread == 0)
            (void)push(s, rank, 10 * rank + i, 0);
        else
            (void)pop(s, rank, 0);
}

const struct sim_case sim_case_queue_threads =
    JUDGED_CASE(.name = "threads", .about = "of each node one thread pushes and one pops", .nodes = 2,
                .threads = 2, .body = threads_body);

/* A producer and a consumer wait for each other: every pushed element is popped. A failed call may
 * have been applied: the producer pushes another element, the consumer counts it. */
static void waits_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    uint32_t good = 0;
    (void)thread;
    for (uint64_t i = 1; good < 4; i++) {
        int rc = rank == 0 ? push(s, rank, i, FOREVER) : pop(s, rank, FOREVER);
        if (rc != 0 && sim_any_out())
            return;
        sim_require(rc == 0 || sim_hurt(rank), "queue: %d (%s)", rc, remo_last_error());
        good += rc == 0 || rank != 0;
    }
}

const struct sim_case sim_case_queue_waits =
    JUDGED_CASE(.name = "waits", .about = "a producer and a consumer that wait for each other", .nodes = 2,
                .threads = 1, .body = waits_body);

/* One node pops once while another goes round the queue: it is never empty, so the pop must find an
 * element. */
static bool is_filled(void *ctx) {
    return ((const struct queue_state *)ctx)->filled || sim_out(1);
}

static void overtaken_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    if (rank == 0) {
        sim_until(is_filled, s, "wait for elements");
        (void)pop(s, rank, 0);
        return;
    }
    for (uint64_t i = 1; i <= 2; i++)
        (void)push(s, rank, i, 0);
    s->filled = true;
    for (uint64_t i = 3; i <= 6; i++) {
        (void)pop(s, rank, 0);
        (void)push(s, rank, i, 0);
    }
}

const struct sim_case sim_case_queue_overtaken =
    JUDGED_CASE(.name = "overtaken", .about = "pops that are slower than those of another node", .nodes = 2,
                .threads = 1, .body = overtaken_body);

/* One push is slow. Meanwhile the other node pops its element and pushes to the slot again. */
static void late_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    if (rank == 0) {
        (void)push(s, rank, 2, 0);
        return;
    }
    for (uint64_t number = 11; number <= 15; number += 2) {
        (void)push(s, rank, number, 0);
        (void)pop(s, rank, 0);
        (void)pop(s, rank, 0);
    }
}

const struct sim_case sim_case_queue_late =
    JUDGED_CASE(.name = "late", .about = "a push that writes after its element was popped", .nodes = 2,
                .threads = 1, .body = late_body);

/* Three nodes push and pop without waiting; one may fail between. The slots of all other nodes keep
 * working. */
static void failures_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    for (uint64_t i = 1; i <= 3; i++) {
        (void)push(s, rank, 10 * rank + i, 0);
        if (i % 2 == 0)
            (void)pop(s, rank, 0);
    }
}

/* A surviving node can push. The first push may report the failure; the queue may be full. */
static void push_again(struct queue_state *s, uint32_t rank) {
    uint64_t number = 40 + rank;
    for (uint32_t i = 0; i < DRAIN_MAX && !sim_out(0); i++) {
        if (push(s, rank, number, 0) == 0)
            break;
        (void)pop(s, rank, 0);
    }
    sim_require(sim_out(0) || s->fate[number] >= PUSHED, "node %u can no longer push", rank);
}

static void failures_after(void *state, uint32_t rank) {
    push_again(state, rank);
    drain(state, rank);
}

const struct sim_case sim_case_queue_failures =
    QUEUE_CASE(.name = "failures", .about = "three nodes push and pop; surviving nodes continue", .nodes = 3,
               .threads = 1, .body = failures_body, .after = failures_after);

/* The slot of a push that failed does not block the queue; the pops wait while its claim is retracted. */
static void continues_after(void *state, uint32_t rank) {
    push_again(state, rank);
    drain_slowly(state, rank, REMO_MS(1));
}

const struct sim_case sim_case_queue_continues =
    QUEUE_CASE(.name = "continues", .about = "as tries, and a node goes on after an operation has failed",
               .nodes = 2, .threads = 1, .body = tries_body, .after = continues_after,
               .continues_after_failure = true);

/* Node 2 is declared failed, goes round the queue, and skips the slots of a node that has cut it
 * off. */
static void skipped_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    uint32_t lost_at = sim_choose(4);
    (void)thread;
    for (uint32_t i = 0; i < (rank == 2 ? 9u : 1u); i++) {
        if (rank == 2 && i == lost_at)
            sim_lose(rank);
        (void)push(s, rank, 10 * rank + i, 0);
        if (sim_choose(2) == 0)
            (void)pop(s, rank, 0);
    }
}

/* An element pushed to an empty queue is popped, whichever slots were skipped. */
static void skipped_after(void *state, uint32_t rank) {
    struct queue_state *s = state;
    if (rank != 0)
        return;
    for (uint64_t number = 40; number < 46; number++) {
        drain_slowly(state, rank, REMO_MS(1));
        /* the failure is reported once */
        bool pushed = push(s, rank, number, 0) == 0 || push(s, rank, number, 0) == 0;
        sim_require(pushed, "an empty queue refuses element %llu", (unsigned long long)number);
        drain_slowly(state, rank, REMO_MS(1));
        sim_require(s->fate[number] == POPPED, "element %llu is not found", (unsigned long long)number);
    }
}

const struct sim_case sim_case_queue_skipped =
    QUEUE_CASE(.name = "skipped", .about = "a node that was cut off skips the slots of its peers", .nodes = 3,
               .threads = 1, .body = skipped_body, .after = skipped_after, .has_own_fault = true);

/* Nodes 0 and 1 search one lap further than the element of node 2, as after a cut-off. Node 1 pops that
 * element and pushes the next one to the same slot, while node 0 reads the slot. */
static void behind_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    if (rank == 2) {
        (void)push(s, rank, 1, 0);
        return;
    }
    for (uint32_t side = 0; side < 2; side++)
        atomic_store(&s->queues[rank]->hint[side], s->queues[rank]->capacity);
    (void)pop(s, rank, rank == 0 ? 0 : REMO_MS(1));
    if (rank == 1)
        (void)push(s, rank, 11, REMO_MS(1));
}

static void behind_after(void *state, uint32_t rank) {
    if (rank == 0)
        drain(state, rank);
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
        sim_until(is_filled, s, "wait for the pop");
        (void)push(s, rank, 11, 0);
        (void)pop(s, rank, 0);
        return;
    }
    (void)push(s, rank, 1, 0);
    sim_delay(rank, 1, 1); /* the write to the slot at node 1 */
    int rc = push(s, rank, 2, 0);
    sim_require(rc == -EIO && s->queues[rank]->kept_count == 1, "push with a delayed write: %d", rc);
    sim_delay_end();
    sim_until(has_written, s->queues[rank], "wait for the write");
    sim_delay(rank, 0, 1); /* the read of the retraction */
    uint64_t before_ns = remo__now_ns();
    rc = pop(s, rank, 0);
    uint64_t took_ns = remo__now_ns() - before_ns;
    sim_require(rc == 0 && sim_delay_hit(), "pop during a retraction: %d", rc);
    sim_require(took_ns < REMO_MS(1), "a pop without a timeout took %llu ns", (unsigned long long)took_ns);
    sim_delay_end();
    s->filled = true;
}

const struct sim_case sim_case_queue_kept =
    QUEUE_CASE(.name = "kept", .about = "a pop while the claim of a failed push is retracted", .nodes = 2,
               .threads = 1, .body = kept_body, .after = continues_after, .has_own_fault = true);

static bool is_delayed(void *ctx) {
    (void)ctx;
    return sim_delay_hit();
}

static bool has_popped(void *ctx) {
    return !is_filled(ctx);
}

static bool are_kept(void *ctx) {
    return ((const struct queue_state *)ctx)->queues[0]->kept_count == 2;
}

static void push_delayed(struct queue_state *s, uint64_t number, uint32_t skip) {
    sim_delay(0, skip, 1);
    int rc = push(s, 0, number, 0);
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
    push_delayed(s, 1, 1); /* after the claim */
    sim_until(are_kept, s, "wait for the claim of thread 1");
    int rc = push(s, 0, 3, 0);
    sim_require(rc == -EIO, "push while an earlier write is in flight: %d", rc);
    sim_delay_end();
    sim_until(has_written, s->queues[0], "wait for the write");
    rc = push(s, 0, 4, 0);
    sim_require(rc == 0, "push after the writes: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_queue_kept_threads =
    QUEUE_CASE(.name = "kept_threads", .about = "pushes of two threads fail at once", .nodes = 2,
               .threads = 2, .body = kept_threads_body, .after = continues_after, .has_own_fault = true);

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
        sim_until(is_filled, s, "wait for the operations of thread 0");
        uint64_t before_ns = remo__now_ns();
        int rc = pop(s, rank, 0);
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
    int rc = push(s, rank, 4, 0);
    sim_require(rc == 0, "push after the retraction: %d (%s)", rc, remo_last_error());
}

const struct sim_case sim_case_queue_kept_full =
    QUEUE_CASE(.name = "kept_full", .about = "a pop while no slot is free for the retraction of a claim",
               .nodes = 2, .threads = 2, .body = kept_full_body, .after = continues_after,
               .has_own_fault = true);

/* Another node pushes and pops after each operation of a try. The try ends after a bounded number of passes:
 * each takes at most three operations, and the last ones move the word. */
#define OUTRUN_ROUNDS 60u
#define OUTRUN_POSTS_MAX 40u

static bool has_posted(void *ctx) {
    struct queue_state *s = ctx;
    return (s->outrun && s->outrun->posts != s->seen_posts) || !s->is_outrunning;
}

static void outrun_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    uint64_t element[ELEMENT_WORDS] = {1};
    size_t size;
    (void)thread;
    if (rank == 0) {
        s->outrun = sim_current();
        sim_until(is_filled, s, "wait for the other node");
        struct sim_bound begin = sim_bound_begin();
        int rc = remo_queue_pop(s->queues[rank], element, sizeof element, &size, 0);
        sim_bound_end(&begin, "a pop without a timeout", OUTRUN_POSTS_MAX, UINT64_MAX);
        s->is_outrunning = false;
        sim_require(rc == 0 || rc == -ETIMEDOUT, "pop: %d (%s)", rc, remo_last_error());
        return;
    }
    s->is_outrunning = true;
    s->filled = true;
    for (uint32_t round = 0; round < OUTRUN_ROUNDS && s->is_outrunning; round++) {
        sim_until(has_posted, s, "wait for an operation of the pop");
        s->seen_posts = s->outrun->posts;
        (void)remo_queue_push(s->queues[rank], element, sizeof element, 0);
        (void)remo_queue_pop(s->queues[rank], element, sizeof element, &size, 0);
    }
}

const struct sim_case sim_case_queue_outrun =
    QUEUE_CASE(.name = "outrun", .about = "a try that another node outruns again and again", .nodes = 2,
               .threads = 1, .body = outrun_body, .has_own_fault = true);

/* Two nodes wait at once, so each changes the set of waiters while the other one does. A push notifies both:
 * neither sleeps until its next retry. */
static bool are_waiting(void *ctx) {
    const struct queue_state *s = ctx;
    return s->queues[1]->waiters[REMO__QUEUE_TAIL].thread_count
               + s->queues[2]->waiters[REMO__QUEUE_TAIL].thread_count
           == 2;
}

static void notified_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    if (rank != 0) {
        uint64_t before_ns = remo__now_ns();
        (void)pop(s, rank, FOREVER);
        uint64_t took_ns = remo__now_ns() - before_ns;
        sim_require(took_ns < REMO_MS(10), "node %u was not notified for %llu ns", rank,
                    (unsigned long long)took_ns);
        return;
    }
    sim_until(are_waiting, s, "wait for both nodes");
    (void)push(s, rank, 1, 0);
    (void)push(s, rank, 2, 0);
}

const struct sim_case sim_case_queue_notified =
    JUDGED_CASE(.name = "notified", .about = "two nodes that begin to wait at once are both notified",
                .nodes = 3, .threads = 1, .body = notified_body, .has_own_fault = true);

/* ---- a close whose operations are not complete ---- */

#define SLOW 1u /* the node that closes the queue */

/* Push an element. The departure of node SLOW is reported once. */
static int push_on(struct queue_state *s, uint32_t rank, uint64_t number) {
    uint64_t element[ELEMENT_WORDS];
    int rc = -EHOSTDOWN;
    for (uint32_t i = 0; i < ELEMENT_WORDS; i++)
        element[i] = word_of(number, i);
    s->fate[number] = PUSHING;
    for (uint32_t i = 0; i < 2 && rc == -EHOSTDOWN; i++)
        rc = remo_queue_push(s->queues[rank], element, sizeof element, 0);
    sim_require(rank == SLOW || rc == 0 || rc == -ETIMEDOUT, "push: %d (%s)", rc, remo_last_error());
    if (rc == 0 && s->fate[number] == PUSHING) {
        s->fate[number] = PUSHED;
        s->owner[number] = owner_of_last(s->queues[rank]);
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
        note_popped(s, element, size, POPPED);
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
    .open = open_queue,
    .close = close_queue,
    .body = leaving_body,
    .after = leaving_after,
    .check = leaving_check,
    .has_own_fault = true};
