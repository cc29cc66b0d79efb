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

struct remo__service {
    struct remo_node *node;
    pthread_t thread;
    _Atomic bool is_closing;
};

/* Rest if other threads have received since the last time. Immediates are delivered afterwards. */
static bool rest(const struct remo_node *node, uint32_t *relieved) {
#ifdef REMO_SIM
    (void)node, (void)relieved; /* a schedule may let any thread rest */
    return false;
#else
    const struct timespec pause = {.tv_nsec = REMO__SERVICE_REST_NS};
    uint32_t before = *relieved;
    *relieved = atomic_load_explicit(&node->threads->relieved, memory_order_relaxed);
    return *relieved != before && nanosleep(&pause, NULL) == 0;
#endif
}

static void *serve(void *ctx) {
    struct remo__service *service = ctx;
    struct remo_node *node = service->node;
    const struct remo__fabric_ops *ops = node->fabric->ops;
    struct remo__imm imms[IMMS_PER_POLL];
    uint32_t quiet = 0, doublings = 0, relieved = 0;
    remo__wait_sleep_at_once();
    while (!atomic_load(&service->is_closing)) {
        int count = ops->imm_poll(node->fabric, imms, IMMS_PER_POLL);
        for (int i = 0; i < count; i++)
            node->hooks.immediate(node->hooks.ctx, imms[i].peer, imms[i].value);
        if (count > 0)
            remo__wake(node);
        bool completed = false;
        bool sweeping =
            atomic_load(&node->threads->is_sweeping) && remo__slots_sweep(node, &quiet, &completed);
        uint64_t next_look_ns = remo__watch_look(node);
        if (count == 0 && !rest(node, &relieved))
            ops->imm_wait(node->fabric, sweeping ? SWEEP_NS << doublings : next_look_ns);
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
