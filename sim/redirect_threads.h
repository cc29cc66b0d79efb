/* redirect_threads.h - included before every file that runs in a simulated world. Threads and
 * mutexes are contexts; environment and random numbers are replaced. Library files get their
 * memory from redirect.h too. */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>

#include "sim/world/threads.h"

#define getenv(name) ((void)(name), (char *)NULL)
#define getrandom(at, bytes, flags) sim_getrandom(at, bytes)
#define pthread_mutex_init(mutex, attributes) sim_mutex_init(mutex)
#define pthread_mutex_destroy(mutex) ((void)(mutex))
#define pthread_mutex_lock(mutex) sim_mutex_lock(mutex)
#define pthread_mutex_trylock(mutex) sim_mutex_trylock(mutex)
#define pthread_mutex_unlock(mutex) sim_mutex_unlock(mutex)
#define pthread_cond_broadcast(cond) sim_cond_broadcast(cond)
#define pthread_cond_wait(cond, mutex) sim_cond_wait(cond, mutex)
#define pthread_create(thread, attributes, run, ctx) sim_thread_create(thread, run, ctx)
#define pthread_join(thread, result) sim_thread_join(thread)
#define sched_yield() sim_yield()
#define pthread_once(once, run) sim_once(once, run)
#define pthread_key_create(key, destroy) sim_key_create(key, destroy)
#define pthread_setspecific(key, value) sim_nothing(&(key), value)
#define pthread_sigmask(how, set, old) sim_nothing(set, old)
#define pthread_setname_np(thread, name) sim_nothing(&(thread), name)
