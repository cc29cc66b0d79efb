/* queue.c - the queue: linearizable as long as no node fails.
 * After a failure, elements in the failed node's slots are lost; every other element is popped
 * once, and no waiter waits for the failed node. */
#include "sim/cases/queue.h"

void sim_queue_open(void *state, struct remo_node *node, uint32_t rank) {
    struct queue_state *s = state;
    if (s->element_words == 0)
        s->element_words = ELEMENT_WORDS;
    struct remo_queue_options options = {.capacity = ORACLE_QUEUE_CAPACITY,
                                         .slot_bytes = s->element_words * 8};
    sim_opened(remo_queue_open(remo_node_root(node), "queue", &options, &s->queues[rank]), "open");
    sim_opened(remo_channel_wait(remo_queue_channel(s->queues[rank]), FOREVER), "wait");
}

void sim_queue_close(void *state, uint32_t rank) {
    remo_queue_close(((struct queue_state *)state)->queues[rank]);
}

/* ---- calls ---- */

uint32_t sim_queue_owner_of_last(const struct remo_queue *queue) {
    uint64_t ticket = atomic_load(&queue->hint[REMO__QUEUE_TAIL]) - 1;
    return queue->members[ticket % queue->capacity % queue->member_count];
}

/* Word `i` of an element. All even elements end with the same words, so a late word of one can go undetected
 * until the slot has its next element. */
uint64_t sim_queue_word_of(uint64_t number, uint32_t i) {
    return i == 0 || number % 2 == 1 ? number : 0;
}

int sim_queue_push(struct queue_state *s, uint32_t rank, uint64_t number, uint64_t timeout_ns) {
    uint64_t element[LARGE_WORDS];
    for (uint32_t i = 0; i < s->element_words; i++)
        element[i] = sim_queue_word_of(number, i);
    uint32_t call = sim_begin(QUEUE_PUSH, 0, number, 0);
    s->fate[number] = PUSHING;
    int rc = remo_queue_push(s->queues[rank], element, s->element_words * 8, timeout_ns);
    if (rc == 0 && s->fate[number] == PUSHING) {
        s->fate[number] = PUSHED;
        s->owner[number] = sim_queue_owner_of_last(s->queues[rank]);
    }
    bool was_delayed = rc == -EIO && sim_delay_hit();
    sim_require(rc == 0 || rc == -ETIMEDOUT || was_delayed || sim_excused(rank, SIM_ANY, rc), "push: %d (%s)",
                rc, remo_last_error());
    if (rc == 0 || (rc == -ETIMEDOUT && !sim_hurt(rank)))
        sim_end(call, rc, 0);
    return rc;
}

void sim_queue_note_popped(struct queue_state *s, const uint64_t *element, size_t size, enum fate fate) {
    for (uint32_t i = 1; i < s->element_words; i++)
        sim_require(element[i] == sim_queue_word_of(element[0], i) && size == s->element_words * 8,
                    "a torn element was popped");
    sim_require(element[0] < VALUES_MAX && s->fate[element[0]] != NOT_PUSHED,
                "element %llu was popped, and never pushed", (unsigned long long)element[0]);
    sim_require(s->fate[element[0]] != POPPED || fate == COPIED, "element %llu was popped twice",
                (unsigned long long)element[0]);
    if (s->fate[element[0]] != POPPED)
        s->fate[element[0]] = fate;
}

int sim_queue_pop(struct queue_state *s, uint32_t rank, uint64_t timeout_ns) {
    uint64_t element[LARGE_WORDS] = {0};
    size_t size = 0;
    uint32_t call = sim_begin(QUEUE_POP, 0, 0, 0);
    s->pops_begun++;
    int rc = remo_queue_pop(s->queues[rank], element, sizeof element, &size, timeout_ns);
    if (sim_out(rank)) /* its peers have lost the elements in its own slots */
        return -EHOSTDOWN;
    /* after an unknown removal of an element above 1000 bytes: the call does not count as ended */
    bool may_lose = s->element_words == LARGE_WORDS && strstr(remo_last_error(), "may be lost");
    if (rc != -EIO || size != REMO_QUEUE_NO_ELEMENT || !may_lose)
        s->pops_ended++;
    if (rc == 0 || (rc == -EIO && size != REMO_QUEUE_NO_ELEMENT))
        sim_queue_note_popped(s, element, size, rc == 0 ? POPPED : COPIED);
    sim_require(rc == 0 || rc == -ETIMEDOUT || sim_excused(rank, SIM_ANY, rc), "pop: %d (%s)", rc,
                remo_last_error());
    if (rc == 0 || (rc == -ETIMEDOUT && !sim_hurt(rank)))
        sim_end(call, rc, element[0]);
    return rc;
}

/* ---- after the bodies ---- */

void sim_queue_drain_within(void *state, uint32_t rank, uint64_t timeout_ns) {
    int rc;
    for (uint32_t i = 0; i < DRAIN_MAX; i++) {
        rc = sim_queue_pop(state, rank, timeout_ns);
        if (rc == -ETIMEDOUT || (rc == -EHOSTDOWN && sim_out(0)))
            return;
    }
    sim_fail("the queue is not empty after %u pops", DRAIN_MAX);
}

void sim_queue_drain(void *state, uint32_t rank) {
    /* a crash may not be noticed yet: a pop then waits for the push of the failed node */
    sim_queue_drain_within(state, rank, sim_any_out() ? REMO_MS(1) : 0);
}

void sim_queue_check_lost(void *state) {
    const struct queue_state *s = state;
    uint32_t lost = 0, unended = s->pops_begun - s->pops_ended, last = 0;
    for (uint32_t number = 0; number < VALUES_MAX && !sim_out(0); number++)
        if (s->fate[number] == PUSHED && !sim_out(s->owner[number])) {
            lost++;
            last = number;
        }
    sim_require(lost <= unended,
                "%u acknowledged elements were lost (the last is %u), but only %u pops did not end, or may "
                "have lost one",
                lost, last, unended);
}

/* ---- cases ---- */

/* A case whose history is linearizable. */
#define JUDGED_CASE(...) \
    QUEUE_CASE(.after = sim_queue_drain, .oracle = &oracle_queue, .whole_only = true, __VA_ARGS__)

void sim_queue_tries_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    for (uint64_t i = 1; i <= 2; i++) {
        (void)sim_queue_push(s, rank, 10 * rank + i, 0);
        (void)sim_queue_pop(s, rank, 0);
    }
}

const struct sim_case sim_case_queue =
    JUDGED_CASE(.name = "tries", .about = "pushes and pops of two nodes that do not wait; two slots",
                .nodes = 2, .threads = 1, .body = sim_queue_tries_body);

static void threads_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    for (uint64_t i = 1; i <= 2; i++)
        if (thread == 0)
            (void)sim_queue_push(s, rank, 10 * rank + i, 0);
        else
            (void)sim_queue_pop(s, rank, 0);
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
        int rc = rank == 0 ? sim_queue_push(s, rank, i, FOREVER) : sim_queue_pop(s, rank, FOREVER);
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
bool sim_queue_is_filled(void *ctx) {
    return ((const struct queue_state *)ctx)->filled || sim_out(1);
}

static void overtaken_body(void *state, uint32_t rank, uint32_t thread) {
    struct queue_state *s = state;
    (void)thread;
    if (rank == 0) {
        sim_until(sim_queue_is_filled, s, "wait for elements");
        (void)sim_queue_pop(s, rank, 0);
        return;
    }
    for (uint64_t i = 1; i <= 2; i++)
        (void)sim_queue_push(s, rank, i, 0);
    s->filled = true;
    for (uint64_t i = 3; i <= 6; i++) {
        (void)sim_queue_pop(s, rank, 0);
        (void)sim_queue_push(s, rank, i, 0);
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
        (void)sim_queue_push(s, rank, 2, 0);
        return;
    }
    for (uint64_t number = 11; number <= 15; number += 2) {
        (void)sim_queue_push(s, rank, number, 0);
        (void)sim_queue_pop(s, rank, 0);
        (void)sim_queue_pop(s, rank, 0);
    }
}

const struct sim_case sim_case_queue_late =
    JUDGED_CASE(.name = "late", .about = "a push that writes after its element was popped", .nodes = 2,
                .threads = 1, .body = late_body);

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
        sim_until(sim_queue_is_filled, s, "wait for the other node");
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
        (void)sim_queue_pop(s, rank, FOREVER);
        uint64_t took_ns = remo__now_ns() - before_ns;
        sim_require(took_ns < REMO_MS(10), "node %u was not notified for %llu ns", rank,
                    (unsigned long long)took_ns);
        return;
    }
    sim_until(are_waiting, s, "wait for both nodes");
    (void)sim_queue_push(s, rank, 1, 0);
    (void)sim_queue_push(s, rank, 2, 0);
}

const struct sim_case sim_case_queue_notified =
    JUDGED_CASE(.name = "notified", .about = "two nodes that begin to wait at once are both notified",
                .nodes = 3, .threads = 1, .body = notified_body, .has_own_fault = true);
