/* library.c - implements library.h: loads shared libraries on first use.
 *
 * The lock and the tables of the libraries belong to the process. They are Remo's only state outside a node.
 * A table is written once, under the lock, before the load returns; stubs read it only after a load. */
#include "base/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- signals ---- */

/* The C library fills only part of the mask, so memcmp would compare undefined bytes. */
static bool is_same_action(const struct sigaction *a, const struct sigaction *b) {
    if (a->sa_handler != b->sa_handler || a->sa_flags != b->sa_flags)
        return false;
    for (int number = 1; number < _NSIG; number++) {
        if (sigismember(&a->sa_mask, number) != sigismember(&b->sa_mask, number))
            return false;
    }
    return true;
}

static void signals_save(struct remo__signals *ret_signals) {
    for (int number = 1; number < _NSIG; number++) /* sigaction fails for the C library's own signals */
        ret_signals->is_saved[number] = sigaction(number, NULL, &ret_signals->actions[number]) == 0;
}

static void signals_restore(const struct remo__signals *signals) {
    for (int number = 1; number < _NSIG; number++) {
        struct sigaction now;
        if (signals->is_saved[number] && sigaction(number, NULL, &now) == 0
            && !is_same_action(&now, &signals->actions[number]))
            sigaction(number, &signals->actions[number], NULL);
    }
}

void remo__signals_save(struct remo__signals *ret_signals) {
    pthread_mutex_lock(&process_lock);
    signals_save(ret_signals);
}

void remo__signals_restore(const struct remo__signals *signals) {
    signals_restore(signals);
    pthread_mutex_unlock(&process_lock);
}

/* ---- loading; the caller holds the lock ---- */

/* Signals are blocked while the library may have replaced the handlers. A stub does not block them: a call of
 * the library may take long, and Ctrl-C must end it. */
static void *file_open(const char *file) {
    struct remo__signals signals;
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    signals_save(&signals);
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    signals_restore(&signals);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    return handle;
}

/* The handle is never closed: these libraries start threads, register atexit functions and keep thread-local
 * data. An unload would leave all three dangling. */
static int library_open(const struct remo__library *library, void **ret_handle) {
    void *handle = NULL;
    for (const char *const *file = library->files; *file && !handle; file++)
        handle = file_open(*file);
    if (!handle)
        return remo__fail(-ENODEV, "cannot load %s: %s; install the package %s", library->name, dlerror(),
                          library->package);
    *ret_handle = handle;
    return 0;
}

static int table_fill(const struct remo__library *library, void *handle) {
    for (size_t i = 0; i < library->symbol_count; i++) {
        const struct remo__library_symbol *symbol = &library->symbols[i];
        void *function =
            symbol->version ? dlvsym(handle, symbol->name, symbol->version) : dlsym(handle, symbol->name);
        if (!function)
            return remo__fail(-ENODEV, "cannot use %s: %s; install a newer version of the package %s",
                              library->name, dlerror(), library->package);
        memcpy(symbol->pointer, &function, sizeof function);
    }
    return 0;
}

static int load(struct remo__library *library) {
    void *handle = NULL;
    if (library->is_loaded)
        return 0;
    int rc = library_open(library, &handle);
    if (rc == 0)
        rc = table_fill(library, handle);
    library->is_loaded = rc == 0;
    return rc;
}

int remo__library_load(struct remo__library *library) {
    pthread_mutex_lock(&process_lock);
    int rc = load(library);
    pthread_mutex_unlock(&process_lock);
    return rc;
}
