/* threads.h - replacements of POSIX threads for library files that are compiled for the simulator
 * (redirect.h). */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <sys/types.h>

int sim_mutex_init(pthread_mutex_t *mutex);
int sim_mutex_lock(pthread_mutex_t *mutex);
int sim_mutex_trylock(pthread_mutex_t *mutex);
int sim_mutex_unlock(pthread_mutex_t *mutex);
int sim_cond_broadcast(pthread_cond_t *cond);
int sim_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int sim_thread_create(pthread_t *ret_thread, void *(*run)(void *ctx), void *ctx);
int sim_thread_join(pthread_t thread);
/* There is one key; its destructor becomes sim_thread_exit (turn.h). */
int sim_once(const void *once, void (*run)(void));
int sim_key_create(const pthread_key_t *key, void (*destroy)(void *value));
/* Let other actors run first. */
int sim_yield(void);
ssize_t sim_getrandom(void *at, size_t bytes);

static inline int sim_nothing(const void *a, const void *b) {
    (void)a, (void)b;
    return 0;
}
