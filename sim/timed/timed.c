/* timed.c - the world with a clock: threads with their own times, a heap of events, accesses that cost time.
 * The thread or event with the earliest time runs next. The model is described in timed.h. */
#include "sim/timed/timed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "fabric/access.h"
#include "remote/wait.h"
#include "sim/memory/heap.h"
#include "sim/timed/model.h"
#include "sim/scheduler.h"
#include "sim/world/threads.h"

#define THREADS_MAX 16384u
#define LINE_BYTES 64u
#define CLOCK_NS 20u /* to read the clock */
#define HIT_NS 1u    /* to access the line of the access just before, which is in the first-level cache */

struct actor {
    struct sim_actor is; /* first: the part that the control plane uses */
    uint64_t now_ns;
    /* of the event that may resume the thread; events with older tickets are void */
    uint64_t ticket;
    uint64_t timer_ns;       /* of the last timer; 0: none is set */
    uint64_t waits_since_ns; /* 0: it does not wait */
    uintptr_t line;          /* of its last access to network memory, which ended at line_ns */
    uint64_t line_ns;
    bool woken;         /* an event to check its condition is queued */
    struct actor *next; /* next actor of the same node */
};

struct event {
    uint64_t at_ns, number; /* events of one time run in the order of their creation */
    struct actor *actor;    /* to resume if the ticket matches; NULL: call run */
    uint64_t ticket;        /* 0: a timer */
    void (*run)(void *ctx);
    void *ctx;
};

static struct {
    struct actor *of_node[SIM_NODES_MAX];
    struct actor **actors;
    uint32_t actors_count;
    struct event *events; /* a binary heap */
    size_t events_count, events_room;
    uint64_t now_ns, numbers;
    void (*program)(void *ctx, uint32_t node);
    void *program_ctx;
} at;

bool sim_tracing;

void sim_trace_print(const char *format, ...) {
    (void)format;
}

/* Return the running thread; NULL: an event, or the start. */
static struct actor *current(void) {
    return (struct actor *)sim_turn.current;
}

uint64_t sim_timed_now(void) {
    return at.now_ns;
}

/* Choose the first of several peers with events. */
uint32_t sim_choose(uint32_t count) {
    (void)count;
    return 0;
}

/* ---- events ---- */

static bool before(const struct event *a, const struct event *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static void push(struct event event) {
    if (at.events_count == at.events_room) {
        at.events_room = at.events_room ? 2 * at.events_room : 4096;
        at.events = realloc(at.events, at.events_room * sizeof *at.events);
        if (!at.events) {
            perror("events");
            exit(1);
        }
    }
    event.number = at.numbers++;
    size_t place = at.events_count++;
    for (; place > 0 && before(&event, &at.events[(place - 1) / 2]); place = (place - 1) / 2)
        at.events[place] = at.events[(place - 1) / 2];
    at.events[place] = event;
}

static struct event pop(void) {
    struct event first = at.events[0], last = at.events[--at.events_count];
    size_t place = 0;
    for (size_t child = 1; child < at.events_count; child = 2 * place + 1) {
        if (child + 1 < at.events_count && before(&at.events[child + 1], &at.events[child]))
            child++;
        if (!before(&at.events[child], &last))
            break;
        at.events[place] = at.events[child];
        place = child;
    }
    at.events[place] = last;
    return first;
}

void sim_timed_at(uint64_t at_ns, void (*run)(void *ctx), void *ctx) {
    push((struct event){.at_ns = at_ns, .run = run, .ctx = ctx});
}

static void resume_at(struct actor *actor, uint64_t at_ns) {
    push((struct event){.at_ns = at_ns, .actor = actor, .ticket = actor->ticket});
}

static void describe_hang(void) {
    for (uint32_t i = 0; i < at.actors_count; i++) {
        const struct sim_actor *actor = &at.actors[i]->is;
        if (actor->role == SIM_PROGRAM && actor->state != SIM_DONE)
            sim_fail("no event is left: node %u thread %u waits in \"%s\"", actor->node, actor->thread,
                     actor->doing ? actor->doing : "?");
    }
}

/* Return whether a timer resumes its thread. If the thread waits for a later time, set a new
 * timer. */
static bool timer_due(struct actor *actor, uint64_t at_ns) {
    if (actor->timer_ns == at_ns)
        actor->timer_ns = 0;
    if (actor->is.state != SIM_PAUSED)
        return false;
    if (actor->is.wake_at <= at_ns)
        return true;
    if (actor->timer_ns == 0 && actor->is.wake_at != REMO_FOREVER) {
        actor->timer_ns = actor->is.wake_at;
        push((struct event){.at_ns = actor->is.wake_at, .actor = actor});
    }
    return false;
}

static bool is_resumed(const struct event *event) {
    struct actor *actor = event->actor;
    if (event->ticket == 0)
        return timer_due(actor, event->at_ns);
    if (event->ticket != actor->ticket)
        return false;
    actor->woken = false;
    return actor->is.state != SIM_UNTIL || actor->is.until(actor->is.until_ctx);
}

/* Run events until one of them resumes a thread. */
static void run_events(void) {
    struct sim_actor *from = sim_turn.current;
    sim_turn.current = NULL;
    while (!sim_turn.failed && sim_world->programs_left > 0) {
        if (at.events_count == 0) {
            describe_hang();
            break;
        }
        struct event event = pop();
        at.now_ns = event.at_ns;
        if (!event.actor) {
            event.run(event.ctx);
        } else if (is_resumed(&event)) {
            event.actor->is.state = SIM_READY;
            event.actor->ticket++;
            event.actor->woken = false;
            event.actor->now_ns = event.at_ns;
            sim_turn.current = from;
            sim_switch(&event.actor->is);
            return;
        }
    }
    sim_turn.current = from;
    sim_switch(NULL);
}

void sim_timed_spend(uint64_t ns) {
    struct actor *actor = current();
    if (!actor)
        return;
    actor->now_ns += ns;
    if (at.events_count == 0 || actor->now_ns < at.events[0].at_ns) {
        at.now_ns = actor->now_ns;
        return;
    }
    resume_at(actor, actor->now_ns);
    run_events();
}

/* ---- waiting ---- */

static uint64_t wake_cost(const struct actor *actor) {
    if (actor->is.role == SIM_CONTROL)
        return sim_model.control_ns;
    if (actor->is.state == SIM_UNTIL)
        return actor->is.role == SIM_SERVICE ? sim_model.cpu_wake_ns : sim_model.cpu_look_ns;
    return at.now_ns - actor->waits_since_ns > sim_model.cpu_spin_ns ? sim_model.cpu_wake_ns
                                                                     : sim_model.cpu_look_ns;
}

void sim_changed(uint32_t node) {
    sim_world->version[node]++;
    for (struct actor *actor = at.of_node[node]; actor; actor = actor->next) {
        if (actor->woken || (actor->is.state != SIM_PAUSED && actor->is.state != SIM_UNTIL))
            continue;
        actor->woken = true;
        resume_at(actor, at.now_ns + wake_cost(actor));
    }
}

void sim_timed_work(void) {
    struct actor *actor = current();
    if (!actor)
        return;
    actor->is.is_checking = false;
    actor->waits_since_ns = 0;
    sim_changed(actor->is.node);
}

void sim_point(const char *what) {
    (void)what;
    sim_timed_spend(sim_model.cpu_touch_ns);
}

void sim_until(bool (*until)(void *ctx), void *ctx, const char *what) {
    struct actor *actor = current();
    sim_changed(actor->is.node);
    if (until(ctx))
        return;
    actor->is.doing = what;
    actor->is.until = until;
    actor->is.until_ctx = ctx;
    actor->is.state = SIM_UNTIL;
    run_events();
}

void sim_drain(struct sim_actor *actor) {
    (void)actor;
}

void sim_timed_sleep_until(uint64_t at_ns) {
    struct actor *actor = current();
    if (at_ns > actor->now_ns)
        sim_timed_spend(at_ns - actor->now_ns);
}

void sim_notify(uint32_t node) {
    sim_changed(node);
}

void remo__sim_check_begin(const struct remo_node *node) {
    if (!current())
        return;
    current()->is.is_checking = true;
    current()->is.seen_version = sim_world->version[node->rank];
}

void remo__sim_check_end(bool ends_wait) {
    (void)ends_wait;
}

void remo__sim_retry_begin(void) {
}

void remo__sim_retry_end(bool has_succeeded) {
    (void)has_succeeded;
}

void remo__sim_pause(const struct remo_node *node, uint32_t checks, bool is_polling, uint64_t deadline_ns) {
    struct actor *actor = current();
    (void)checks, (void)is_polling;
    if (actor->waits_since_ns == 0)
        actor->waits_since_ns = actor->now_ns;
    if (sim_world->version[node->rank] != actor->is.seen_version) {
        sim_timed_spend(sim_model.cpu_look_ns);
        return;
    }
    actor->is.doing = "wait";
    actor->is.state = SIM_PAUSED;
    actor->is.wake_at = remo__min(deadline_ns, actor->now_ns + REMO__POLL_NS_MAX);
    if (actor->timer_ns == 0 || actor->timer_ns > actor->is.wake_at) {
        actor->timer_ns = actor->is.wake_at;
        push((struct event){.at_ns = actor->is.wake_at, .actor = actor});
    }
    run_events();
}

/* ---- operations that cost time ---- */

void remo__sim_turn(const char *what) {
    sim_point(what);
}

void remo__sim_fence(void) {
    sim_timed_work();
    sim_timed_spend(sim_model.cpu_touch_ns);
}

/* Peers' memory is not mapped in this world: the word is the node's own. */
void remo__sim_atomic(const void *word) {
    (void)word;
    remo__sim_fence();
}

/* Spend the time of an access to network memory: cpu_touch_ns for each line, but HIT_NS for the line of the
 * last access, if the thread has spent no time since. Then hardly another thread or the network has written
 * the line meanwhile. */
static void spend_lines(const void *memory, size_t bytes) {
    struct actor *actor = current();
    if (!actor || bytes == 0)
        return;
    uintptr_t first = (uintptr_t)memory / LINE_BYTES, last = ((uintptr_t)memory + bytes - 1) / LINE_BYTES;
    bool hits = actor->line == first && actor->line_ns == actor->now_ns;
    sim_timed_spend((last - first + !hits) * sim_model.cpu_touch_ns + (hits ? HIT_NS : 0));
    actor->line = last;
    actor->line_ns = actor->now_ns;
}

uint64_t remo__load(const void *word) {
    spend_lines(word, sizeof(uint64_t));
    return __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE);
}

void remo__store(void *word, uint64_t value) {
    spend_lines(word, sizeof value);
    __atomic_store_n((uint64_t *)word, value, __ATOMIC_RELEASE);
    sim_timed_work();
}

void remo__copy_from(void *dst, const void *network, size_t bytes) {
    spend_lines(network, bytes);
    memcpy(dst, network, bytes);
}

void remo__copy_to(void *network, const void *src, size_t bytes) {
    spend_lines(network, bytes);
    memcpy(network, src, bytes);
    sim_timed_work();
}

void remo__flush(const void *network, size_t bytes) {
    (void)network, (void)bytes;
}

void remo__invalidate(const void *network, size_t bytes) {
    (void)network, (void)bytes;
}

uint64_t remo__now_ns(void) {
    sim_timed_spend(CLOCK_NS);
    return at.now_ns;
}

uint64_t remo__deadline(uint64_t timeout_ns) {
    uint64_t deadline;
    if (timeout_ns == REMO_FOREVER || __builtin_add_overflow(remo__now_ns(), timeout_ns, &deadline))
        return REMO_FOREVER;
    return deadline;
}

/* ---- threads ---- */

static void actor_main(void) {
    remo__context_started();
    struct actor *actor = current();
    (void)actor->is.run(actor->is.run_ctx);
    if (sim_thread_exit)
        sim_thread_exit(NULL);
    actor->is.state = SIM_DONE;
    sim_changed(actor->is.node);
    run_events();
}

static struct actor *spawn(uint32_t node, enum sim_role role, void *(*run)(void *ctx), void *ctx) {
    struct actor *actor = at.actors_count < THREADS_MAX ? calloc(1, sizeof *actor) : NULL;
    char *stack = actor ? aligned_alloc(64, SIM_STACK_BYTES) : NULL;
    if (!stack) {
        free(actor);
        sim_fail("no memory for thread number %u", at.actors_count);
        return NULL;
    }
    actor->is.index = at.actors_count;
    actor->is.node = node;
    actor->is.role = role;
    actor->is.run = run;
    actor->is.run_ctx = ctx;
    actor->is.state = SIM_READY;
    actor->ticket = 1;
    actor->next = at.of_node[node];
    at.of_node[node] = actor;
    at.actors[at.actors_count++] = actor;
    remo__context_make(&actor->is.context, stack, SIM_STACK_BYTES, actor_main);
    resume_at(actor, at.now_ns);
    return actor;
}

/* The first thread that a node starts is its service thread. */
int sim_thread_create(pthread_t *ret_thread, void *(*run)(void *ctx), void *ctx) {
    uint32_t node = current()->is.node;
    bool serves = true;
    for (const struct actor *actor = at.of_node[node]; actor; actor = actor->next)
        serves &= actor->is.role != SIM_SERVICE;
    const struct actor *made = spawn(node, serves ? SIM_SERVICE : SIM_PROGRAM, run, ctx);
    if (!made)
        return 11; /* EAGAIN */
    *ret_thread = (pthread_t)made->is.index;
    return 0;
}

void sim_spawn_control(uint32_t node, void *(*run)(void *ctx), void *ctx) {
    (void)spawn(node, SIM_CONTROL, run, ctx);
}

static bool is_done(void *ctx) {
    return ((const struct actor *)ctx)->is.state == SIM_DONE;
}

int sim_thread_join(pthread_t thread) {
    sim_until(is_done, at.actors[(uint32_t)thread], "join a thread");
    return 0;
}

int sim_yield(void) {
    sim_timed_spend(sim_model.cpu_look_ns);
    return 0;
}

/* ---- a run ---- */

static void *run_program(void *ctx) {
    (void)ctx;
    at.program(at.program_ctx, current()->is.node);
    sim_world->programs_left--;
    return NULL;
}

bool sim_timed_open(uint32_t nodes, void (*program)(void *ctx, uint32_t node), void *ctx) {
    sim_heap_open();
    sim_world = calloc(1, sizeof *sim_world);
    at.actors = calloc(THREADS_MAX, sizeof *at.actors);
    if (!sim_world || !at.actors || nodes > SIM_NODES_MAX) {
        sim_fail("cannot set up a world of %u nodes: no memory, or more than %u nodes", nodes, SIM_NODES_MAX);
        return false;
    }
    at.program = program;
    at.program_ctx = ctx;
    sim_world->nodes_count = nodes;
    sim_world->programs_left = nodes;
    sim_world->running = true;
    return true;
}

bool sim_timed_start(void) {
    for (uint32_t node = 0; node < sim_world->nodes_count && !sim_turn.failed; node++)
        (void)spawn(node, SIM_PROGRAM, run_program, NULL);
    run_events();
    return !sim_turn.failed;
}
