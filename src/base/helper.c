/* helper.c - implements helper.h.
 *
 * A new thread inherits the signal mask, so the creator sets it around pthread_create. A thread that set its
 * own mask could take a signal before. */
#include "base/helper.h"

#include <signal.h>
#include <string.h>

#include "base/error.h"

int remo__helper_start(pthread_t *ret_thread, const char *name, void *(*run)(void *ctx), void *ctx) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(ret_thread, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return remo__fail(-rc, "cannot start thread %s: %s; raise the limit that `ulimit -u` shows", name,
                          strerror(rc));
    pthread_setname_np(*ret_thread, name);
    return 0;
}
