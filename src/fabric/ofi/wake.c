/* wake.c - wakes the sleeping threads of the ofi fabric: the target thread, and those that wait for
 * completions.
 *
 * Each sleeps on an event descriptor, which keeps a wake-up that arrives before the sleep. */
#include <unistd.h>

#include "fabric/ofi/ofi.h"

void remo__ofi_target_wake(struct ofi_target *target) {
    uint64_t one = 1;
    ssize_t written = write(target->wake_fd, &one, sizeof one);
    (void)written; /* fails only if the counter is full: the wake-up is pending then */
}

void remo__ofi_target_watch(struct ofi_fabric *ofi) {
    struct ofi_target *target = &ofi->target;
    if (atomic_load_explicit(&target->is_watching, memory_order_relaxed))
        return;
    atomic_store(&target->is_watching, true);
    remo__ofi_target_wake(target);
}

void remo__ofi_endpoints_wake(struct ofi_fabric *ofi) {
    uint64_t one = 1;
    pthread_mutex_lock(&ofi->endpoints_lock);
    for (uint32_t i = 0; i < ofi->endpoints_max; i++) {
        ssize_t written = ofi->endpoints[i] ? write(ofi->endpoints[i]->wake_fd, &one, sizeof one) : 0;
        (void)written; /* fails only if the counter is full: the wake-up is pending then */
    }
    pthread_mutex_unlock(&ofi->endpoints_lock);
}
