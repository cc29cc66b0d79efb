/* threads.c - mutexes, conditions and random numbers of the library in both simulated worlds (threads.h).
 * Waiting is sim_until, so a mutex is a scheduling point only if it is held. */
#include "sim/world/threads.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "sim/world/world.h"

/* The first word of a mutex is 1 while it is held. */
int sim_mutex_init(pthread_mutex_t *mutex) {
    memset(mutex, 0, sizeof *mutex);
    return 0;
}

static bool is_free(void *ctx) {
    return *(const int *)ctx == 0;
}

int sim_mutex_lock(pthread_mutex_t *mutex) {
    int *held = (int *)mutex;
    sim_until(is_free, held, "lock a mutex");
    *held = 1;
    return 0;
}

int sim_mutex_trylock(pthread_mutex_t *mutex) {
    if (!is_free(mutex))
        return EBUSY;
    *(int *)mutex = 1;
    return 0;
}

int sim_mutex_unlock(pthread_mutex_t *mutex) {
    const struct sim_actor *actor = sim_current();
    sim_drain(sim_current());
    *(int *)mutex = 0;
    if (actor)
        sim_changed(actor->node);
    return 0;
}

/* The first word of a condition counts the broadcasts. */
int sim_cond_broadcast(pthread_cond_t *cond) {
    ++*(unsigned *)cond;
    sim_changed(sim_current()->node);
    return 0;
}

struct broadcasts {
    const unsigned *count;
    unsigned before;
};

static bool has_broadcast(void *ctx) {
    const struct broadcasts *broadcasts = ctx;
    return *broadcasts->count != broadcasts->before;
}

int sim_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    struct broadcasts broadcasts = {.count = (const unsigned *)cond, .before = *(const unsigned *)cond};
    sim_mutex_unlock(mutex);
    sim_until(has_broadcast, &broadcasts, "wait for a condition");
    return sim_mutex_lock(mutex);
}

int sim_once(const void *once, void (*run)(void)) {
    (void)once;
    run();
    return 0;
}

int sim_key_create(const pthread_key_t *key, void (*destroy)(void *value)) {
    (void)key;
    sim_thread_exit = destroy;
    return 0;
}

ssize_t sim_getrandom(void *at_place, size_t bytes) {
    uint64_t word = 0x5851f42d4c957f2du * ++sim_world->random_calls;
    memset(at_place, 0, bytes);
    memcpy(at_place, &word, remo__min(bytes, sizeof word));
    return (ssize_t)bytes;
}
