/* redirect.h - read before every file of the floors when they are compiled for the simulator: memory comes from the simulated heap, threads and
 * mutexes are coroutines' business, and nothing from outside (environment, random numbers, mappings) gets in.
 */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "sim/heap.h"
#include "sim/threads.h"

#define malloc(bytes) sim_malloc(bytes)
#define calloc(count, bytes) sim_calloc(count, bytes)
#define realloc(at, bytes) sim_realloc(at, bytes)
#define aligned_alloc(alignment, bytes) sim_aligned_alloc(alignment, bytes)
#define strdup(text) sim_strdup(text)
/* Not a macro with an argument: it is the name of a member too. */
#define free sim_free
#define mmap(at, bytes, protection, flags, fd, offset) sim_mmap(bytes)
#define munmap(at, bytes) sim_munmap(at, bytes)
#define getenv(name) ((void)(name), (char *)NULL)
#define getrandom(at, bytes, flags) sim_getrandom(at, bytes)
#define pthread_mutex_init(mutex, attributes) sim_mutex_init(mutex)
#define pthread_mutex_destroy(mutex) ((void)(mutex))
#define pthread_mutex_lock(mutex) sim_mutex_lock(mutex)
#define pthread_mutex_unlock(mutex) sim_mutex_unlock(mutex)
#define pthread_create(thread, attributes, run, ctx) sim_thread_create(thread, run, ctx)
#define pthread_join(thread, result) sim_thread_join(thread)
#define sched_yield() sim_yield()
#define pthread_once(once, run) sim_nothing(once, run)
#define pthread_key_create(key, destroy) sim_nothing(key, destroy)
#define pthread_setspecific(key, value) sim_nothing(&(key), value)
#define pthread_sigmask(how, set, old) sim_nothing(set, old)
#define pthread_setname_np(thread, name) sim_nothing(&(thread), name)
