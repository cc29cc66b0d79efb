/* service.c - the service thread of a node: it sleeps until an immediate arrives, or until operations need to
 * be driven (sweep.c). */
#include "remote/service.h"

#include <stdlib.h>
#include <time.h>

#include "base/helper.h"
#include "remote/op.h"
#include "remote/wait.h"
#include "remote/watch.h"

#define IMMS_PER_POLL 64u
#define SWEEP_NS REMO__NS_PER_MS /* between sweeps */
#define SWEEP_DOUBLINGS_MAX 3u   /* of that time, while a sweep completes no operation */
#define RECEIVED_OFTEN 4u        /* by other threads, during one rest */
#define BUSY_RESTS 8u            /* until the rests become twice as long */
#define BUSY_RESTS_MAX (3 * BUSY_RESTS)

struct remo__service {
    struct remo_node *node;
    pthread_t thread;
    _Atomic bool is_closing;
};

/* How long to rest. */
struct rest {
    uint32_t relieved; /* as found last */
    uint32_t needed;   /* immediates since the last rest for which this thread had something to do */
    uint32_t busy;     /* rests in succession in which other threads have received often */
    uint32_t doublings;
};

#ifdef REMO_SIM
/* A schedule may let any thread rest. */
static bool rest(const struct remo_node *node, struct rest *rest) {
    (void)node, (void)rest;
    return false;
}
#else
/* Return the time of the next rest. Each rest interrupts a thread of this processor, so rests become longer
 * while other threads receive often. If a message has waited for the end of a long rest, perhaps the others
 * receive no more: the next rest is short, and shows it. On networks threads that poll may need immediates
 * that this thread delivers: rests stay short there while any is needed. */
static uint64_t next_rest_ns(struct rest *rest, uint32_t received, bool is_mapped) {
    if (received < RECEIVED_OFTEN || (!is_mapped && rest->needed > 0))
        rest->busy = 0;
    else if (rest->busy < BUSY_RESTS_MAX)
        rest->busy++;
    bool is_doubtful = rest->needed > 0 && rest->doublings > 0;
    rest->doublings = is_doubtful ? 0 : rest->busy / BUSY_RESTS;
    return REMO__SERVICE_REST_NS << rest->doublings;
}

/* Rest if other threads have received since the last time. Immediates are delivered afterwards. */
static bool rest(const struct remo_node *node, struct rest *rest) {
    uint32_t relieved = atomic_load_explicit(&node->threads->relieved, memory_order_relaxed);
    uint32_t received = relieved - rest->relieved;
    const struct timespec pause = {.tv_nsec = (long)next_rest_ns(rest, received, node->mapped)};
    rest->relieved = relieved;
    rest->needed = 0;
    return received > 0 && nanosleep(&pause, NULL) == 0;
}
#endif

/* Returns the number of immediates. */
static int deliver(struct remo_node *node, struct rest *rest) {
    struct remo__imm imms[IMMS_PER_POLL];
    uint32_t needless = node->threads->needless;
    int count = node->fabric->ops->imm_poll(node->fabric, imms, IMMS_PER_POLL);
    for (int i = 0; i < count; i++)
        node->hooks.immediate(node->hooks.ctx, imms[i].peer, imms[i].value);
    if (count > 0)
        remo__wake(node);
    rest->needed += (uint32_t)count - (node->threads->needless - needless);
    return count;
}

static void *serve(void *ctx) {
    struct remo__service *service = ctx;
    struct remo_node *node = service->node;
    struct rest rests = {0};
    uint32_t quiet = 0, doublings = 0;
    remo__wait_sleep_at_once();
    while (!atomic_load(&service->is_closing)) {
        int count = deliver(node, &rests);
        bool completed = false;
        bool sweeping =
            atomic_load(&node->threads->is_sweeping) && remo__slots_sweep(node, &quiet, &completed);
        uint64_t next_look_ns = remo__watch_look(node);
        if (count == 0 && !rest(node, &rests))
            node->fabric->ops->imm_wait(node->fabric, sweeping ? SWEEP_NS << doublings : next_look_ns);
        doublings = sweeping && !completed ? (uint32_t)remo__min(doublings + 1, SWEEP_DOUBLINGS_MAX) : 0;
    }
    return NULL;
}

int remo__service_start(struct remo_node *node, struct remo__service **ret_service) {
    struct remo__service *service = calloc(1, sizeof *service);
    if (!service)
        return remo__fail(-ENOMEM, "no memory for the service thread");
    service->node = node;
    int rc = remo__helper_start(&service->thread, "remo-service", serve, service);
    if (rc != 0) {
        free(service);
        return rc;
    }
    *ret_service = service;
    return 0;
}

void remo__service_stop(struct remo__service *service) {
    if (!service)
        return;
    atomic_store(&service->is_closing, true);
    service->node->fabric->ops->imm_wake(service->node->fabric);
    pthread_join(service->thread, NULL);
    free(service);
}
