/* takes_signals.c - a library that replaces signal handlers, some when it is loaded and some when it is
 * called. library.c loads it in place of libinfinipath. */
#include <signal.h>

int takes_signals_call(int number);

static void handler(int number) {
    (void)number;
}

__attribute__((constructor)) static void take(void) {
    static const int taken[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
    for (unsigned i = 0; i < sizeof taken / sizeof *taken; i++)
        signal(taken[i], handler);
}

int takes_signals_call(int number) {
    signal(SIGHUP, handler);
    signal(SIGUSR1, handler);
    return number + 1;
}
