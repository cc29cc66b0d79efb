/* event.c - implements remo/event.h. Peers of the same machine wake a node by a futex, which has no
 * descriptor. So each event has a helper thread that sleeps on the node's doorbell, and then makes an eventfd
 * readable. Arming counts the event as a sleeper before the caller's last check, as in wait.c: a
 * notifier reads the count, or the check finds the change. */
#include <remo/event.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/helper.h"
#include "remote/slots.h"

#define COMPLETION_POLL_NS_MIN \
    (50 * REMO__NS_PER_US) /* between polls for completions, which notify no doorbell; doubles */
#define COMPLETION_POLL_NS_MAX REMO__NS_PER_MS

/* The state when the event was armed, with which the helper compares. */
struct armed {
    uint32_t seq;                /* sequence number of the doorbell */
    uint64_t deadline_ns;        /* the event becomes readable at this time at the latest */
    struct remo__thread *thread; /* the thread that armed the event */
    uint32_t completed;          /* number of its completed operations; it may start others meanwhile */
};

struct remo_event {
    struct remo_node *node;
    int fd;
    pthread_t helper;
    pthread_mutex_t lock; /* of all fields below; not held while sleeping */
    pthread_cond_t changed;
    bool is_armed, is_closing;
    struct armed armed;
};

/* The event must be armed, and the lock held. */
static void disarm(struct remo_event *event) {
    event->is_armed = false;
    atomic_fetch_sub(&event->node->doorbell->sleepers, 1);
}

static void fire(struct remo_event *event) {
    uint64_t one = 1;
    disarm(event);
    if (write(event->fd, &one, sizeof one) < 0)
        remo__log(&event->node->log, REMO_LOG_ERROR, "cannot signal an event: %s", strerror(errno));
}

/* Drive the thread's operations, because completions notify no doorbell. Returns the number in flight. */
static uint32_t drive(struct remo__thread *thread) {
    return thread->node->mapped ? 0 : remo__slots_progress(thread);
}

static uint32_t completed(const struct remo__thread *thread) {
    return thread->node->mapped ? 0 : remo__slots_get(&thread->slots->completed);
}

/* Sleep until a ring, a completion, or the deadline. */
static void await_change(const struct remo_event *event, const struct armed *armed) {
    struct remo__doorbell *bell = event->node->doorbell;
    uint64_t poll_ns = COMPLETION_POLL_NS_MIN;
    while (atomic_load(&bell->seq) == armed->seq) {
        uint64_t left_ns = remo__remaining_ns(armed->deadline_ns);
        uint32_t count = drive(armed->thread);
        if (left_ns == 0 || completed(armed->thread) != armed->completed)
            return;
        remo__doorbell_sleep(bell, armed->seq, count > 0 ? remo__min(left_ns, poll_ns) : left_ns);
        poll_ns = remo__min(2 * poll_ns, COMPLETION_POLL_NS_MAX);
    }
}

static void *help(void *ctx) {
    struct remo_event *event = ctx;
    pthread_mutex_lock(&event->lock);
    while (!event->is_closing) {
        if (!event->is_armed) {
            pthread_cond_wait(&event->changed, &event->lock);
            continue;
        }
        struct armed armed = event->armed;
        pthread_mutex_unlock(&event->lock);
        await_change(event, &armed);
        pthread_mutex_lock(&event->lock);
        if (event->is_armed)
            fire(event);
    }
    pthread_mutex_unlock(&event->lock);
    return NULL;
}

static void free_event(struct remo_event *event) {
    if (event->fd >= 0)
        close(event->fd);
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

int remo_event_open(struct remo_node *node, struct remo_event **ret_event) {
    if (!node || !ret_event)
        return remo__fail(-EINVAL, "cannot open an event: node or ret_event is NULL");
    struct remo_event *event = calloc(1, sizeof *event);
    if (!event)
        return remo__fail(-ENOMEM, "no memory for an event");
    event->node = node;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    event->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = event->fd >= 0 ? remo__helper_start(&event->helper, "remo-event", help, event)
                            : remo__fail(-errno, "cannot open the descriptor of an event: %s; see ulimit -n",
                                         strerror(errno));
    if (rc != 0) {
        free_event(event);
        return rc;
    }
    *ret_event = event;
    return 0;
}

void remo_event_close(struct remo_event *event) {
    if (!event)
        return;
    pthread_mutex_lock(&event->lock);
    event->is_closing = true;
    if (event->is_armed)
        disarm(event);
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    remo__doorbell_notify(event->node->doorbell);
    pthread_join(event->helper, NULL);
    free_event(event);
}

int remo_event_fd(const struct remo_event *event) {
    return event ? event->fd : remo__fail(-EINVAL, "an event that is NULL has no descriptor");
}

int remo_event_arm(struct remo_event *event) {
    uint64_t count;
    if (!event)
        return remo__fail(-EINVAL, "cannot arm an event: it is NULL");
    struct remo__thread *thread = remo__thread(event->node);
    if (!thread)
        return remo__last_code();
    struct remo__doorbell *bell = event->node->doorbell;
    pthread_mutex_lock(&event->lock);
    if (!event->is_armed)
        remo__doorbell_add_sleeper(bell);
    event->is_armed = true;
    (void)drive(thread);
    event->armed = (struct armed){.seq = atomic_load(&bell->seq),
                                  .deadline_ns = remo__deadline(REMO__POLL_NS_MAX),
                                  .thread = thread,
                                  .completed = completed(thread)};
    if (read(event->fd, &count, sizeof count) < 0 && errno != EAGAIN)
        remo__log(&event->node->log, REMO_LOG_ERROR, "cannot clear an event: %s", strerror(errno));
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    return 0;
}
